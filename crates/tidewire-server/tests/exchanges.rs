//! Sessions whose messages are in the bodies of requests and answers, and their change to a WebSocket with messages in flight: none is lost,
//! doubled or out of order, and the end of a session leaves nothing behind.

mod client;
mod shard_support;

use std::future::{poll_fn, ready};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;
use std::{env, fs};

use bytes::Bytes;
use client::{Client, DEADLINE, emit, subscribe, wait_until};
use shard_support::{GatedPublish, Node, Options};
use tidewire_core::message::{Event, Message};
use tidewire_core::settings::Settings;
use tidewire_shard::connection_limiter::SocketPermits;
use tidewire_shard::exchange::OpenExchange;
use tidewire_shard::handle::{Attachment, ShardHandle};
use tidewire_shard::peer::PeerDetails;
use tidewire_shard::session_token::SessionToken;
use tidewire_store::memory::MemoryDisk;
use tidewire_wire::frame::websocket::{self, Opcode, encode_masked};
use tidewire_wire::protocol::{ExchangeRefusal, Protocol};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The test of the memory of this process runs alone.
static ALONE: RwLock<()> = RwLock::new(());

/// Upgrades with messages in flight.
const UPGRADES: u64 = 300;

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Bytes, ExchangeRefusal>> + 'a>>;

/// A client of a session.
struct Peer<'a> {
    runtime: &'a Runtime,
    handle: &'a ShardHandle,
    token: SessionToken,
}

impl<'a> Peer<'a> {
    fn open(runtime: &'a Runtime, node: &'a Node, shard: usize) -> Self {
        let handle = node.handle(shard);
        let descriptors = Arc::clone(&node.connection_limiter.descriptors);
        let ticket = SocketPermits {
            descriptor: descriptors.try_acquire_owned().unwrap(),
            counted: None,
        };
        let opened = OpenExchange {
            protocol: Protocol::SocketIo,
            peer: Arc::new(PeerDetails::at(([127, 0, 0, 1], 9).into())),
            permit: node.connection_limiter.take(ticket).unwrap(),
        };
        let body = run(runtime, handle.open_exchange(opened)).unwrap();
        let open: serde_json::Value = serde_json::from_slice(&body[1..]).unwrap();
        let token = SessionToken::parse(open["sid"].as_str().unwrap()).unwrap();
        assert_eq!(usize::from(token.shard()), shard);
        Self {
            runtime,
            handle,
            token,
        }
    }

    /// A peer that has joined as this user, and a room.
    fn join(runtime: &'a Runtime, node: &'a Node, shard: usize, user: &str, room: &str) -> Self {
        let peer = Self::open(runtime, node, shard);
        let login = format!(r#"40{{"user":"{user}"}}"#);
        peer.post(&[&login, &format!(r#"420["$join","{room}"]"#)])
            .unwrap();
        let mut packets = Vec::new();
        while packets.len() < 2 {
            packets.extend(peer.packets());
            packets.retain(|packet| packet != "2");
        }
        assert!(packets[0].starts_with("40{") && packets[1] == r#"430[{"ok":true}]"#);
        peer
    }

    /// A request that waits at the shard.
    fn wait(&self) -> Waiting<'a> {
        let (handle, token) = (self.handle, self.token);
        let mut waiting: Waiting<'a> = Box::pin(async move { handle.poll_exchange(token).await });
        let begun = self.runtime.block_on(poll_fn(|context| {
            Poll::Ready(waiting.as_mut().poll(context))
        }));
        match begun {
            // The shard was faster.
            Poll::Ready(answer) => Box::pin(ready(answer)),
            Poll::Pending => waiting,
        }
    }

    fn poll(&self) -> Result<Bytes, ExchangeRefusal> {
        run(self.runtime, self.handle.poll_exchange(self.token))
    }

    /// The packets of one request.
    fn packets(&self) -> Vec<String> {
        packets(&self.poll().unwrap())
    }

    fn post(&self, packets: &[&str]) -> Result<(), ExchangeRefusal> {
        let body = Bytes::from(packets.join("\x1e"));
        run(self.runtime, async {
            self.handle
                .post_exchange(self.token)
                .await?
                .send(body)
                .await
        })
    }

    /// A WebSocket that may become the transport.
    fn socket(&self, node: &Node) -> Socket {
        let token = self.token;
        let shard = usize::from(token.shard());
        let options = (Vec::new(), false, Protocol::SocketIo);
        let stream = node.attach(shard, options, Some(Attachment::Switch { token }));
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let input = Vec::new();
        Socket { stream, input }
    }
}

/// The result of a future, which has a deadline.
#[track_caller]
fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let result = runtime.block_on(async { timeout(DEADLINE, future).await });
    result.expect("an answer in time")
}

fn packets(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.split('\x1e').map(String::from).collect()
}

struct Socket {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Socket {
    fn send(&mut self, messages: &[&str]) {
        let mut frames = Vec::new();
        for message in messages {
            encode_masked(Opcode::Text, message.as_bytes(), [1, 2, 3, 4], &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    /// The next text message; `None` if the connection ends.
    fn next(&mut self) -> Option<String> {
        loop {
            if let Some(bytes) = websocket::server_frame_bytes(&self.input) {
                let frame: Vec<u8> = self.input.drain(..bytes).collect();
                let text = websocket::server_text(&frame)?;
                return Some(String::from_utf8(text.to_vec()).unwrap());
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.input.extend_from_slice(&chunk[..count]);
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A node on which no heartbeat ends a session that a test has left.
fn start() -> Node {
    let (store, opened) = MemoryDisk::default().open(None);
    let options = Options {
        permission: Arc::new(GatedPublish),
        ..Options::default()
    };
    let settings = Settings {
        heartbeat_interval: Duration::from_secs(3_600),
        ..Settings::default()
    };
    Node::start_on(options, settings, Box::new(store), opened)
}

fn sessions(node: &Node) -> u64 {
    let count = |shard| node.stats(shard).exchange_sessions.load(Relaxed);
    (0..3).map(count).sum()
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, max: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % max
    }
}

/// Messages in both directions, with numbers.
struct Flight<'a> {
    random: Random,
    sender: &'a mut Client,
    inward: String,
    sent: u64,
    posted: u64,
    received: Vec<u64>,
}

impl Flight<'_> {
    /// Sends some events to the peer.
    fn burst(&mut self) {
        for _ in 0..self.random.below(5) {
            self.emit();
        }
    }

    fn emit(&mut self) {
        self.sent += 1;
        let filler = "x".repeat(self.random.below(300) as usize);
        let data = format!(r#"["n",{},"{filler}"]"#, self.sent);
        self.sender.send(&emit(&self.inward, &data));
    }

    /// Some events of the peer. Those in the room `gated` have to wait for a record of another shard.
    fn events(&mut self) -> Vec<String> {
        let count = 1 + self.random.below(5);
        let event = |flight: &mut Self| {
            flight.posted += 1;
            let room = ["gated", "out"][flight.random.below(2) as usize];
            format!(r#"42["$to","{room}","n",{}]"#, flight.posted)
        };
        (0..count).map(|_| event(self)).collect()
    }

    fn take(&mut self, packets: &[String]) {
        for packet in packets {
            match packet.strip_prefix(r#"42["n","#) {
                Some(rest) => {
                    let number = rest.split_once(',').unwrap().0;
                    self.received.push(number.parse().unwrap());
                }
                None => assert!(["2", "6"].contains(&packet.as_str()), "{packet}"),
            }
        }
    }
}

fn upgrade_in_flight(
    runtime: &Runtime,
    node: &Node,
    (sender, listener): (&mut Client, &mut Client),
    seed: u64,
) {
    let inward = format!("in{seed}");
    let shard = (seed % 3) as usize;
    let peer = Peer::join(runtime, node, shard, "peer", &inward);
    let mut flight = Flight {
        random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        sender,
        inward,
        sent: 0,
        posted: 0,
        received: Vec::new(),
    };
    let post = |flight: &mut Flight<'_>| {
        let events = flight.events();
        let texts: Vec<&str> = events.iter().map(String::as_str).collect();
        peer.post(&texts).unwrap();
    };
    for _ in 0..flight.random.below(4) {
        flight.burst();
        flight.emit();
        let packets = peer.packets();
        flight.take(&packets);
        post(&mut flight);
    }
    let mut socket = peer.socket(node);
    let waiting = (flight.random.below(2) == 0).then(|| peer.wait());
    flight.burst();
    socket.send(&["2probe"]);
    assert_eq!(socket.next().as_deref(), Some("3probe"));
    if let Some(waiting) = waiting {
        let body = run(runtime, waiting).unwrap();
        flight.take(&packets(&body));
    }
    for _ in 0..flight.random.below(4) {
        flight.burst();
        let packets = peer.packets();
        flight.take(&packets);
        post(&mut flight);
    }
    flight.burst();
    let (first, second) = (flight.events(), flight.events());
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    socket.send(&[&["5"], &first[..]].concat());
    flight.burst();
    socket.send(&second.iter().map(String::as_str).collect::<Vec<_>>());
    flight.emit();
    while flight.received.last() != Some(&flight.sent) {
        let message = socket.next().expect("the session continues");
        assert_ne!(message, "6", "seed {seed}");
        flight.take(&[message]);
    }
    let expected: Vec<u64> = (1..=flight.sent).collect();
    assert_eq!(flight.received, expected, "seed {seed}");
    let mut next = 1;
    while next <= flight.posted {
        listener.receive_until(|message| {
            let Message::Event(Event::Publication(publication)) = message else {
                return false;
            };
            let expected = format!(r#"["n",{next}]"#);
            assert_eq!(publication.data, Some(expected.as_str()), "seed {seed}");
            true
        });
        next += 1;
    }
    assert_eq!(peer.poll(), Err(ExchangeRefusal::OutOfTurn));
    assert_eq!(peer.post(&["3"]), Err(ExchangeRefusal::OutOfTurn));
}

#[test]
fn a_change_of_the_transport_loses_doubles_and_reorders_nothing() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let (runtime, node) = (runtime(), start());
    let (mut sender, mut listener) = (node.log_in(2), node.log_in(0));
    for room in ["gated", "out"] {
        listener.send(&subscribe(room));
    }
    listener.ping_through();
    let count = env::var("UPGRADES").map_or(UPGRADES, |count| count.parse().unwrap());
    for seed in 1..=count {
        upgrade_in_flight(&runtime, &node, (&mut sender, &mut listener), seed);
    }
    wait_until(|| node.connection_limiter.open() == 2);
    assert_eq!(sessions(&node), 0);
    let switches = |shard| node.stats(shard).transport_switches.load(Relaxed);
    assert_eq!((0..3).map(switches).sum::<u64>(), count);
}

#[test]
fn a_request_that_is_dropped_ends_its_session() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let (runtime, node) = (runtime(), start());
    let polling = Peer::join(&runtime, &node, 1, "ann", "room");
    drop(polling.wait());
    wait_until(|| sessions(&node) == 0);
    let posting = Peer::join(&runtime, &node, 1, "ann", "room");
    let post = run(&runtime, posting.handle.post_exchange(posting.token));
    drop(post.unwrap());
    wait_until(|| sessions(&node) == 0);
    for peer in [&polling, &posting] {
        assert_eq!(peer.poll(), Err(ExchangeRefusal::Unknown));
        assert_eq!(peer.post(&["3"]), Err(ExchangeRefusal::Unknown));
    }
    wait_until(|| node.connection_limiter.open() == 0);
    wait_until(|| node.stats(1).engine.sessions.load(Relaxed) == 0);
}

#[test]
fn an_answer_waits_until_the_last_one_has_left() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let (runtime, node) = (runtime(), start());
    let mut sender = node.log_in(0);
    let peer = Peer::join(&runtime, &node, 1, "ann", "room");
    sender.send(&emit("room", "1"));
    let first = peer.poll().unwrap();
    let mut second = peer.wait();
    sender.send(&emit("room", "2"));
    sender.send(&emit("room", "3"));
    sender.ping_through();
    // The shard has the events when it has taken a later message of another session.
    peer.post(&["3"]).unwrap();
    runtime.block_on(poll_fn(|context| {
        assert!(second.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    assert_eq!(packets(&first), [r#"42["message",1]"#]);
    drop(first);
    let second = run(&runtime, second).unwrap();
    assert_eq!(
        packets(&second),
        [r#"42["message",2]"#, r#"42["message",3]"#]
    );
}

#[test]
fn a_long_body_takes_as_many_turns_as_its_reads() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let (runtime, node) = (runtime(), start());
    let peer = Peer::join(&runtime, &node, 1, "ann", "room");
    let turns = || node.stats(1).turns.load(Relaxed);
    let before = turns();
    let pongs = vec!["3"; 250_000];
    peer.post(&pongs).unwrap();
    // Each packet is a frame of seven bytes, and a turn handles at most as many reads as fit into its work.
    assert!(turns() - before >= 4, "{} turns", turns() - before);
    wait_until(|| node.stats(1).inbound_bytes.load(Relaxed) == 0);
}

#[test]
fn ten_thousand_idle_sessions_cost_little_and_leave_the_memory_flat() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    const SESSIONS: usize = 10_000;
    let (runtime, node) = (runtime(), start());
    let mut resident = Vec::new();
    let mut each = 0;
    for _ in 0..3 {
        let before = resident_bytes();
        let peers: Vec<Peer<'_>> = (0..SESSIONS)
            .map(|number| Peer::join(&runtime, &node, number % 3, "ann", "room"))
            .collect();
        let waiting: Vec<Waiting<'_>> = peers.iter().map(Peer::wait).collect();
        wait_until(|| sessions(&node) == SESSIONS as u64);
        each = resident_bytes().saturating_sub(before) / SESSIONS;
        drop(waiting);
        wait_until(|| sessions(&node) == 0 && node.connection_limiter.open() == 0);
        resident.push(resident_bytes());
        if each > 0 {
            println!("{each} bytes for each session");
        }
    }
    assert!(each < 4 << 10, "{each} bytes for each session");
    let growth = resident[2].saturating_sub(resident[1]);
    assert!(growth < 4 << 20, "{resident:?} bytes resident");
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}
