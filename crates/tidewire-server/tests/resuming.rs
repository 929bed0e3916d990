//! Sessions that outlive their connections: at every byte of an exchange they move to another connection, and no message is lost, doubled or
//! out of order. Detached sessions stay within their bounds.

mod client;
mod shard_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use client::{DEADLINE, emit, subscribe, wait_until};
use shard_support::{GatedPublish, Node, Options};
use tidewire_core::message::{Connection, Event, EventBulk, Message};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::settings::Settings;
use tidewire_core::time::WallTime;
use tidewire_shard::ShardLimits;
use tidewire_shard::handle::Attachment;
use tidewire_shard::session_token::SessionToken;
use tidewire_store::memory::MemoryDisk;
use tidewire_wire::frame::websocket::{self, Opcode, encode_masked};
use tidewire_wire::protocol::deepstream::Deepstream;
use tidewire_wire::protocol::{Protocol, ResumeRefusal};
use tokio::sync::oneshot;

const SHARD: usize = 1;

/// The test of the memory of this process runs alone.
static ALONE: RwLock<()> = RwLock::new(());

fn frame(message: &Message<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    Deepstream::encode_masked_frame(message, [7, 8, 9, 10], &mut frame);
    frame
}

/// The text of message `number`: its length varies, so that its frames have headers of two lengths.
fn text(number: usize) -> String {
    let length = if number % 8 == 7 {
        140
    } else {
        number * 5 % 17
    };
    format!("\"{number}:{}\"", "x".repeat(length))
}

/// A peer that keeps what it needs to resume its session.
struct Peer<'a> {
    node: &'a Node,
    token: SessionToken,
    stream: TcpStream,
    /// The shard that gets its next connection is the one behind this one. The session stays at its shard.
    shard: usize,
    /// All frames that it has to send, in order.
    outgoing: Vec<Vec<u8>>,
    /// The bytes of this connection that were read, and where the first incomplete frame begins.
    input: Vec<u8>,
    parsed: usize,
    /// Complete messages so far, on all connections, and the bytes of their frames.
    received: Vec<Vec<u8>>,
    frame_bytes: Vec<usize>,
}

impl<'a> Peer<'a> {
    /// Logs in on a connection with a session that outlives it.
    fn log_in(node: &'a Node) -> Self {
        let (reply, token) = oneshot::channel();
        let attachment = Attachment::Resumable(reply);
        let options = (Vec::new(), false, Protocol::Deepstream);
        let mut login = Vec::new();
        client::encode_login(&mut login);
        let first = websocket_frames(&login);
        let stream = node.attach(SHARD, options, Some(attachment));
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut peer = Self {
            node,
            token: token.blocking_recv().unwrap(),
            stream,
            shard: SHARD,
            outgoing: first,
            input: Vec::new(),
            parsed: 0,
            received: Vec::new(),
            frame_bytes: Vec::new(),
        };
        peer.stream.write_all(&login).unwrap();
        peer.receive_until(2);
        peer
    }

    fn send(&mut self, message: &Message<'_>) {
        self.outgoing.push(frame(message));
        let frame = self.outgoing.last().unwrap();
        self.stream.write_all(frame).unwrap();
    }

    /// Reads until it has `count` messages.
    #[track_caller]
    fn receive_until(&mut self, count: usize) {
        while self.received.len() < count {
            self.read(1 << 16);
        }
    }

    /// Reads until it has `bytes` bytes of this connection.
    #[track_caller]
    fn read_exactly(&mut self, bytes: usize) {
        while self.input.len() < bytes {
            self.read(bytes - self.input.len());
        }
    }

    /// Reads at most `bytes_max` bytes.
    #[track_caller]
    fn read(&mut self, bytes_max: usize) {
        let mut chunk = vec![0; bytes_max];
        let count = self.stream.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection has ended");
        self.input.extend_from_slice(&chunk[..count]);
        while let Some(bytes) = websocket::server_frame_bytes(&self.input[self.parsed..]) {
            let frame = &self.input[self.parsed..][..bytes];
            let header = if frame[1] < 126 { 2 } else { 4 };
            assert_eq!(frame[0], 0x82, "a message, not compressed");
            self.received.push(frame[header..].to_vec());
            self.frame_bytes.push(bytes);
            self.parsed += bytes;
        }
    }

    /// The session of the peer on a new connection. Returns the number of messages that the server has taken.
    fn resume(&mut self, is_deflated: bool) -> Result<usize, ResumeRefusal> {
        let (reply, outcome) = oneshot::channel();
        let attachment = Attachment::Resume {
            token: self.token,
            received: self.received.len() as u64,
            reply: Some(reply),
        };
        let options = (Vec::new(), is_deflated, Protocol::Deepstream);
        self.shard = (self.shard + 1) % self.node.handles().len();
        self.stream = self.node.attach(self.shard, options, Some(attachment));
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        (self.input, self.parsed) = (Vec::new(), 0);
        let taken = outcome.blocking_recv().unwrap()?;
        Ok(usize::try_from(taken).unwrap())
    }

    /// The same for a peer whose connection breaks first.
    fn lose_and_resume(&mut self) -> Result<usize, ResumeRefusal> {
        self.lose();
        self.resume(false)
    }

    fn lose(&mut self) {
        let before = self.node.stats(SHARD).detaches.load(Relaxed);
        self.stream.shutdown(Shutdown::Both).unwrap();
        wait_until(|| self.node.stats(SHARD).detaches.load(Relaxed) > before);
    }

    fn publications(&self) -> Vec<String> {
        let decoded = self
            .received
            .iter()
            .map(|payload| Deepstream::decode(payload).unwrap());
        let texts = decoded.filter_map(|message| match message {
            Message::Event(Event::Publication(publication)) => publication.data.map(str::to_owned),
            _ => None,
        });
        texts.collect()
    }
}

fn websocket_frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let payload = usize::from(bytes[1] & 0x7F);
        assert!(payload < 126, "a short frame");
        let (frame, rest) = bytes.split_at(6 + payload);
        frames.push(frame.to_vec());
        bytes = rest;
    }
    frames
}

/// Options with a bound of this many bytes, and engine settings with this deadline.
fn bounded(retained_bytes_max: usize, detached_timeout: Duration) -> Node {
    let options = Options {
        limits: ShardLimits {
            retained_bytes_max,
            ..ShardLimits::default()
        },
        ..Options::default()
    };
    let settings = Settings {
        detached_timeout,
        ..Settings::default()
    };
    let (store, opened) = MemoryDisk::default().open(None);
    Node::start_on(options, settings, Box::new(store), opened)
}

/// How a connection ends in the middle of the exchange.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The kernel reports the end to the server, which then publishes to a detached session.
    Broken,
    /// The peer sends a close frame.
    Closed,
    /// The server learns of it only when the peer comes back.
    Unnoticed,
}

#[test]
fn a_session_moves_at_every_byte_in_both_directions() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    const MESSAGES: usize = 24;
    // Some messages have to wait until a rule has read a record of another shard.
    let name = |number: usize| if number % 3 == 1 { "gated" } else { "up" };
    let node = Node::start(Options {
        permission: Arc::new(GatedPublish),
        ..Options::default()
    });
    for publisher_shard in [SHARD, SHARD + 1] {
        let mut other = node.log_in(publisher_shard);
        for name in ["up", "gated"] {
            other.send(&subscribe(name));
            other.expect_ack(EventBulk::Subscribe);
        }
        let mut peer = Peer::log_in(&node);
        peer.send(&subscribe("down"));
        peer.receive_until(3);
        let (first_out, first_in) = (peer.outgoing.len(), peer.received.len());
        let texts: Vec<String> = (0..MESSAGES).map(text).collect();
        let frames = texts.iter().enumerate();
        let frames = frames.map(|(number, text)| frame(&emit(name(number), text)));
        peer.outgoing.extend(frames);
        let up_bytes: usize = peer.outgoing[first_out..].iter().map(Vec::len).sum();
        let (mut taken, mut published) = (first_out, 0);
        let mut cuts = [0; 3];
        for offset in 1..=up_bytes {
            // Upwards: everything behind the messages that the server has taken, up to this offset.
            let taken_bytes: usize = peer.outgoing[first_out..taken].iter().map(Vec::len).sum();
            let unsent = peer.outgoing[taken..].concat();
            let sent = &unsent[..offset - taken_bytes];
            peer.stream.write_all(sent).unwrap();
            // Downwards: the same offset in the stream of the publications.
            let received = peer.received.len() - first_in;
            let received_bytes: usize = peer.frame_bytes[first_in..].iter().sum();
            if received == published && published < MESSAGES {
                other.send(&emit("down", &texts[published]));
                published += 1;
            }
            if received < MESSAGES {
                peer.read_exactly(offset - received_bytes);
            }
            let cut = [Cut::Broken, Cut::Closed, Cut::Unnoticed][offset % 3];
            cuts[offset % 3] += 1;
            match cut {
                Cut::Broken => peer.lose(),
                // A close frame in the middle of another frame would be a part of that.
                Cut::Closed if sent.len() == whole_frames(&peer.outgoing[taken..], sent.len()) => {
                    let mut close = Vec::new();
                    encode_masked(Opcode::Close, &[], [1; 4], &mut close);
                    peer.stream.write_all(&close).unwrap();
                }
                Cut::Closed | Cut::Unnoticed => {}
            }
            if offset % 50 == 0 && published < MESSAGES {
                // After `lose` the session has no transport now.
                other.send(&emit("down", &texts[published]));
                published += 1;
            }
            let old = peer.stream.try_clone().unwrap();
            let before = taken;
            taken = peer
                .resume(offset % 2 == 0)
                .unwrap_or_else(|refusal| panic!("{refusal} after {offset} bytes, {cut:?}"));
            drop(old);
            assert!(taken >= before, "the server forgets no message");
        }
        let rest = peer.outgoing[taken..].concat();
        peer.stream.write_all(&rest).unwrap();
        peer.receive_until(first_in + MESSAGES);
        assert_eq!(peer.publications(), texts);
        for (number, text) in texts.iter().enumerate() {
            other.expect(&emit(name(number), text));
        }
        other.ping();
        peer.send(&Message::Connection(Connection::Ping));
        peer.receive_until(first_in + MESSAGES + 1);
        assert!(cuts.iter().all(|count| *count > 100), "{cuts:?}");
    }
}

/// Bytes of the frames that are complete within `end` bytes.
fn whole_frames(frames: &[Vec<u8>], end: usize) -> usize {
    let mut boundary = 0;
    for frame in frames {
        if boundary + frame.len() > end {
            break;
        }
        boundary += frame.len();
    }
    boundary
}

#[test]
fn ten_thousand_moves_leave_the_memory_flat() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(Options::default());
    let mut other = node.log_in(SHARD);
    let mut peer = Peer::log_in(&node);
    peer.send(&subscribe("news"));
    peer.receive_until(3);
    let mut resident = Vec::new();
    for cycle in 0..11_000 {
        peer.lose();
        other.send(&emit("news", "1"));
        peer.resume(cycle % 2 == 0).unwrap();
        peer.receive_until(4 + cycle);
        if cycle == 1_000 || cycle == 10_999 {
            resident.push(resident_bytes());
        }
        // The test keeps no more than the server.
        peer.received[3 + cycle] = Vec::new();
    }
    let [before, after] = resident[..] else {
        panic!("two figures");
    };
    assert!(
        after < before + (2 << 20),
        "{before} to {after} bytes resident"
    );
    let stats = node.stats(SHARD);
    assert_eq!(stats.resumes.load(Relaxed), 11_000);
    assert_eq!(stats.resumable_sessions.load(Relaxed), 1);
    // Each resumption confirms the messages that were received before it.
    assert!(stats.retained_bytes.load(Relaxed) < 1_000);
    wait_until(|| stats.connections.load(Relaxed) == 2);
}

/// Memory of this process.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kibibytes.parse::<usize>().unwrap() << 10
}

#[test]
fn a_detached_session_ends_when_too_much_waits_for_it() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    const BOUND: usize = 16 << 10;
    let node = bounded(BOUND, Duration::from_secs(600));
    let mut other = node.log_in(SHARD);
    let mut peer = Peer::log_in(&node);
    peer.send(&subscribe("news"));
    peer.receive_until(3);
    peer.lose();
    let text = format!("\"{}\"", "x".repeat(1_000));
    let stats = node.stats(SHARD);
    let mut most = 0;
    let mut count = 0;
    while stats.resumable_sessions.load(Relaxed) > 0 {
        other.send(&emit("news", &text));
        other.ping();
        most = most.max(stats.retained_bytes.load(Relaxed));
        count += 1;
        assert!(count < 100, "it never ends");
    }
    assert!(count > 10, "ended after {count} messages, below the bound");
    assert!(most <= BOUND as u64, "{most} bytes");
    assert_eq!(peer.resume(false), Err(ResumeRefusal::OutboxFull));
    wait_until(|| stats.retained_bytes.load(Relaxed) == 0);
}

#[test]
fn messages_that_were_sent_make_room_for_those_that_wait() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    const BOUND: usize = 16 << 10;
    let node = bounded(BOUND, Duration::from_secs(600));
    let mut other = node.log_in(SHARD);
    let mut peer = Peer::log_in(&node);
    peer.send(&subscribe("news"));
    peer.receive_until(3);
    let text = format!("\"{}\"", "x".repeat(1_000));
    // While the session is attached, the bound only ends what can be sent again.
    for count in 0..40 {
        other.send(&emit("news", &text));
        peer.receive_until(4 + count);
    }
    let behind = peer.received.len();
    peer.lose();
    for _ in 0..10 {
        other.send(&emit("news", &text));
    }
    other.ping();
    assert!(node.stats(SHARD).retained_bytes.load(Relaxed) <= BOUND as u64);
    peer.resume(false).unwrap();
    peer.receive_until(behind + 10);
    // A peer that has missed a message that is no longer kept can't continue without a gap.
    peer.received.truncate(behind - 30);
    assert_eq!(peer.lose_and_resume(), Err(ResumeRefusal::Missed));
    wait_until(|| node.stats(SHARD).resumable_sessions.load(Relaxed) == 0);
}

#[test]
fn a_detached_session_ends_at_its_deadline() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = bounded(1 << 20, Duration::from_millis(30));
    let mut peer = Peer::log_in(&node);
    peer.lose();
    wait_until(|| node.stats(SHARD).resumable_sessions.load(Relaxed) == 0);
    assert_eq!(peer.resume(false), Err(ResumeRefusal::DetachedTooLong));
    // The connection that could not resume it may log in.
    let mut login = Vec::new();
    client::encode_login(&mut login);
    peer.stream.write_all(&login).unwrap();
    let before = peer.received.len();
    peer.receive_until(before + 2);
}

#[test]
fn only_the_token_resumes_a_session() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(Options::default());
    let mut peer = Peer::log_in(&node);
    let token = peer.token;
    let mut text = token.to_string();
    let last = text.pop();
    text.push(if last == Some('0') { '1' } else { '0' });
    peer.lose();
    peer.token = SessionToken::parse(&text).unwrap();
    assert_eq!(peer.resume(false), Err(ResumeRefusal::Unknown));
    let other = peer.stream.try_clone().unwrap();
    peer.token = token;
    peer.resume(false).unwrap();
    // The connection's own shard refuses the invented token. The shard that the token names does not learn of it.
    let refused = [0, 1, 2].map(|shard| node.stats(shard).resumes_refused.load(Relaxed));
    assert_eq!((refused[SHARD], refused.iter().sum::<u64>()), (0, 1));
    other.shutdown(Shutdown::Both).unwrap();
    peer.send(&Message::Connection(Connection::Ping));
    peer.receive_until(3);
}

#[test]
fn a_session_without_a_login_ends_with_its_connection() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(Options::default());
    let (reply, token) = oneshot::channel();
    let options = (Vec::new(), false, Protocol::Deepstream);
    let stream = node.attach(SHARD, options, Some(Attachment::Resumable(reply)));
    token.blocking_recv().unwrap();
    drop(stream);
    wait_until(|| node.stats(SHARD).connections.load(Relaxed) == 0);
    wait_until(|| node.stats(SHARD).resumable_sessions.load(Relaxed) == 0);
    assert_eq!(node.stats(SHARD).detaches.load(Relaxed), 0);
}

#[test]
fn a_detached_session_whose_login_is_revoked_ends() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(Options::default());
    let mut peer = Peer::log_in(&node);
    let user = format!("user-{}", peer.stream.local_addr().unwrap().port());
    peer.lose();
    let shards = node.handles().iter();
    let answers = shards.map(|shard| {
        let revocation = Revocation {
            what: Revoked::User(user.as_str().into()),
            until: WallTime(u64::MAX),
        };
        shard.change_rights(1, RightsChange::Revoke(revocation))
    });
    for answer in answers.collect::<Vec<_>>() {
        answer.blocking_recv().unwrap();
    }
    assert_eq!(peer.resume(false), Err(ResumeRefusal::Ended));
}

#[test]
fn the_end_of_a_close_handshake_does_not_end_the_next_connection() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    /// Longer than the server waits for the end of a close handshake.
    const LINGER: Duration = Duration::from_millis(2_500);
    let node = Node::start(Options::default());
    let mut peer = Peer::log_in(&node);
    let mut close = Vec::new();
    encode_masked(Opcode::Close, &[], [1; 4], &mut close);
    for is_complete in [true, false] {
        peer.stream.write_all(&close).unwrap();
        let mut frame = [0; 2];
        peer.stream.read_exact(&mut frame).unwrap();
        assert_eq!(frame, [0x88, 0]);
        let old = peer.stream.try_clone().unwrap();
        if is_complete {
            old.shutdown(Shutdown::Both).unwrap();
            wait_until(|| node.stats(SHARD).connections.load(Relaxed) == 0);
        }
        peer.resume(false).unwrap();
        let start = Instant::now();
        while start.elapsed() < LINGER {
            let count = peer.received.len();
            peer.send(&Message::Connection(Connection::Ping));
            peer.receive_until(count + 1);
        }
    }
}
