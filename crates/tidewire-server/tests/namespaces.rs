//! Several sessions on one connection: each has its own login, rooms and acknowledgements, ends alone or with the connection, and leaves
//! neither memory nor messages behind.

mod client;
mod shard_support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use client::{DEADLINE, emit, wait_until};
use shard_support::{Node, Options};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::settings::Settings;
use tidewire_core::time::WallTime;
use tidewire_shard::ShardLimits;
use tidewire_store::memory::MemoryDisk;
use tidewire_wire::frame::websocket::{self, Opcode, encode_masked};
use tidewire_wire::protocol::Protocol;

const SHARD: usize = 1;

/// The test of the memory of this process runs alone.
static ALONE: RwLock<()> = RwLock::new(());

fn options(sessions_max: usize) -> Options {
    Options {
        limits: ShardLimits {
            connection_sessions_max: sessions_max,
            ..ShardLimits::default()
        },
        namespaces: ["/a", "/b", "/room/*"].map(String::from).into(),
        ..Options::default()
    }
}

fn start() -> Node {
    Node::start(options(8))
}

fn start_with(settings: Settings) -> Node {
    let (store, opened) = MemoryDisk::default().open(None);
    Node::start_on(options(8), settings, Box::new(store), opened)
}

/// A connection of Socket.IO.
struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    parsed: usize,
}

impl Peer {
    /// A connection whose open packet was read.
    fn open(node: &Node) -> Self {
        let options = (Vec::new(), false, Protocol::SocketIo);
        let stream = node.attach(SHARD, options, None);
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut peer = Self {
            stream,
            input: Vec::new(),
            parsed: 0,
        };
        assert!(peer.next().unwrap().starts_with("0{"));
        peer
    }

    fn send(&mut self, messages: &[&str]) {
        let mut frames = Vec::new();
        for message in messages {
            encode_masked(Opcode::Text, message.as_bytes(), [1, 2, 3, 4], &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    /// The next message of the server, without pings; `None` if the connection ends.
    fn next(&mut self) -> Option<String> {
        loop {
            let unread = &self.input[self.parsed..];
            let Some(bytes) = websocket::server_frame_bytes(unread) else {
                self.input.drain(..self.parsed);
                self.parsed = 0;
                let mut chunk = [0; 4096];
                let count = match self.stream.read(&mut chunk) {
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                    Err(error) => panic!("{error}"),
                };
                if count == 0 {
                    return None;
                }
                self.input.extend_from_slice(&chunk[..count]);
                continue;
            };
            let payload = websocket::server_text(&unread[..bytes]);
            let text = payload.map(|payload| String::from_utf8(payload.to_vec()).unwrap());
            self.parsed += bytes;
            match text {
                Some(ping) if ping == "2" => {}
                Some(text) => return Some(text),
                // The close frame.
                None => return None,
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, start: &str) -> String {
        let message = self.next().expect("the connection is open");
        assert!(message.starts_with(start), "{message} instead of {start}");
        message
    }

    /// Joins a namespace as a user.
    #[track_caller]
    fn join(&mut self, namespace: &str, user: &str) {
        let prefix = match namespace {
            "/" => String::new(),
            _ => format!("{namespace},"),
        };
        self.send(&[&format!(r#"40{prefix}{{"user":"{user}"}}"#)]);
        self.expect(&format!(r#"40{prefix}{{"sid":""#));
    }

    /// Waits until the server has handled all messages so far.
    #[track_caller]
    fn settle(&mut self, namespace: &str) {
        self.send(&[&format!(r#"42{namespace}99["$leave","none"]"#)]);
        self.expect(&format!(r#"43{namespace}99[{{"ok":true}}]"#));
    }
}

#[test]
fn each_namespace_has_a_session_of_its_own() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut other = node.log_in(SHARD + 1);
    let mut peer = Peer::open(&node);
    peer.join("/a", "ann");
    peer.join("/", "bob");
    peer.join("/room/1", "ann");
    // The same number, at the same time, in three sessions.
    for prefix in ["", "/a,", "/room/1,"] {
        peer.send(&[&format!(r#"42{prefix}0["$join","x"]"#)]);
        peer.expect(&format!(r#"43{prefix}0[{{"ok":true}}]"#));
    }
    other.send(&emit("x", r#"["main",1]"#));
    other.send(&emit("a#x", r#"["a",1]"#));
    other.send(&emit("room/1#x", "7"));
    other.ping();
    let mut received = [(); 3].map(|()| peer.next().unwrap());
    received.sort_unstable();
    assert_eq!(
        received,
        [
            r#"42/a,["a",1]"#,
            r#"42/room/1,["message",7]"#,
            r#"42["main",1]"#
        ]
    );
    // A sender does not receive its event, and the other sessions of its connection have other rooms.
    peer.send(&[r#"42/a,1["$to","x","said","hello"]"#]);
    peer.expect(r#"43/a,1[{"ok":true}]"#);
    peer.send(&[r#"42/b,["$to","x"]"#]);
    assert_eq!(peer.next(), None, "the namespace was not joined");
}

#[test]
fn a_session_ends_alone() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut other = node.log_in(SHARD);
    let mut peer = Peer::open(&node);
    peer.join("/", "ann");
    peer.join("/a", "ann");
    for prefix in ["", "/a,"] {
        peer.send(&[&format!(r#"42{prefix}0["$join","x"]"#)]);
        peer.expect("43");
    }
    // The main session ends, and begins again in another slot.
    for round in 0..3 {
        peer.send(&["41"]);
        peer.settle("/a,");
        other.send(&emit("x", "1"));
        other.send(&emit("a#x", "2"));
        peer.expect(r#"42/a,["message",2]"#);
        peer.join("/", "ann");
        peer.send(&[&format!(r#"42{round}["$join","x"]"#)]);
        peer.expect(&format!(r#"43{round}[{{"ok":true}}]"#));
        other.send(&emit("x", "3"));
        peer.expect(r#"42["message",3]"#);
    }
    for _ in 0..3 {
        peer.send(&["41/a,"]);
        peer.settle("");
        other.send(&emit("a#x", "1"));
        other.send(&emit("x", "2"));
        peer.expect(r#"42["message",2]"#);
        peer.join("/a", "ann");
        peer.send(&[r#"42/a,0["$join","x"]"#]);
        peer.expect("43/a,0");
    }
    peer.send(&["41", "41/a", "40/b"]);
    peer.expect("40/b,{");
}

#[test]
fn violations_end_the_connection() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    for messages in [
        &[r#"42["x"]"#][..],
        &[r#"42["$join","x"]"#],
        &["41"],
        &["431[]"],
        &["40/a,", r#"42["$join","x"]"#],
        &["40", "40"],
        &["40/a", "40/a"],
        &["40", r#"42/a,["x"]"#],
        &["40", r#"42/a,["$join","x"]"#],
        &["40", "41/a"],
        &["40", "41", "41"],
        &["40/a", "41/a", r#"42/a,["$join","x"]"#],
        &["40", "43/a,1[]"],
        &["40", "41", "40", "41", r#"42["x"]"#],
        &["40/c", r#"42/c,["x"]"#],
    ] {
        let mut peer = Peer::open(&node);
        peer.send(messages);
        while peer.next().is_some() {}
    }
    wait_until(|| node.stats(SHARD).engine.sessions.load(Relaxed) == 0);
}

#[test]
fn unknown_namespaces_and_too_many_of_them_are_refused() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(options(3));
    let mut peer = Peer::open(&node);
    for unknown in ["/c", "/room", "/aa", "/room/a#b"] {
        peer.send(&[&format!("40{unknown}")]);
        let expected = format!(r#"44{unknown},{{"message":"Invalid namespace"}}"#);
        assert_eq!(peer.next().unwrap(), expected);
    }
    peer.join("/", "ann");
    peer.join("/room/1", "ann");
    peer.join("/room/2", "ann");
    for _ in 0..2 {
        peer.send(&["40/room/3"]);
        peer.expect(r#"44/room/3,{"message":"Too many namespaces""#);
    }
    peer.send(&["41/room/1"]);
    peer.join("/room/3", "ann");
}

#[test]
fn the_end_of_a_connection_ends_its_sessions() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut other = node.log_in(SHARD);
    let stats = node.stats(SHARD);
    for messages in [
        &["1"][..],
        &["47"],
        &["41", "41/a", "41/b", "1"],
        &["41/a", "1"],
        &[],
    ] {
        let mut peer = Peer::open(&node);
        for namespace in ["/", "/a", "/b"] {
            peer.join(namespace, "ann");
            let prefix = match namespace {
                "/" => "",
                _ => &format!("{namespace},"),
            };
            peer.send(&[&format!(r#"42{prefix}0["$join",["x","y"]]"#)]);
            peer.expect("43");
        }
        peer.send(messages);
        match messages {
            [] => drop(peer),
            _ => while peer.next().is_some() {},
        }
        wait_until(|| stats.engine.sessions.load(Relaxed) == 1);
        // Their slots are used again, by sessions that have joined no room.
        let mut next = Peer::open(&node);
        for namespace in ["/", "/a", "/b"] {
            next.join(namespace, "bob");
        }
        for name in ["x", "y", "a#x", "b#x"] {
            other.send(&emit(name, "1"));
        }
        other.ping();
        next.settle("/b,");
        drop(next);
        wait_until(|| stats.engine.sessions.load(Relaxed) == 1);
    }
}

#[test]
fn the_revocation_of_a_user_ends_the_sessions_of_that_user_alone() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut other = node.log_in(SHARD);
    let mut number = 0;
    let mut revoke = |user: &str| {
        number += 1;
        let shards = node.handles().iter();
        let answers = shards.map(|shard| {
            let revocation = Revocation {
                what: Revoked::User(user.into()),
                until: WallTime(u64::MAX),
            };
            shard.change_rights(number, RightsChange::Revoke(revocation))
        });
        for answer in answers.collect::<Vec<_>>() {
            answer.blocking_recv().unwrap();
        }
    };
    let mut peer = Peer::open(&node);
    for (namespace, user) in [
        ("/", "ann"),
        ("/a", "bob"),
        ("/b", "cid"),
        ("/room/1", "ann"),
    ] {
        peer.join(namespace, user);
    }
    peer.send(&[r#"42/b,0["$join","x"]"#, r#"42/a,0["$join","x"]"#]);
    peer.expect("43");
    peer.expect("43");
    revoke("bob");
    assert_eq!(peer.next().unwrap(), "41/a,");
    // The peer may have sent this before it knew.
    peer.send(&[r#"42/a,1["$join","y"]"#, r#"42/a,1["y"]"#]);
    other.send(&emit("a#x", "1"));
    other.send(&emit("b#x", "2"));
    peer.expect(r#"42/b,["message",2]"#);
    revoke("ann");
    let mut ended = [peer.next().unwrap(), peer.next().unwrap()];
    ended.sort_unstable();
    assert_eq!(ended, ["41", "41/room/1,"]);
    peer.send(&[r#"420["$join","y"]"#]);
    peer.settle("/b,");
    // Another user may join these namespaces on the same connection. The revoked one is refused.
    peer.join("/a", "dan");
    peer.join("/", "dan");
    peer.send(&[r#"40/room/1,{"user":"ann"}"#]);
    peer.expect("41/room/1,");
    peer.settle("/a,");
    revoke("dan");
    let mut ended = [peer.next().unwrap(), peer.next().unwrap()];
    ended.sort_unstable();
    assert_eq!(ended, ["41", "41/a,"]);
    // The last session ends with the connection.
    revoke("cid");
    peer.expect("41/b,");
    peer.expect("41");
    assert_eq!(peer.next(), None);
}

#[test]
fn a_connection_without_a_session_is_closed_after_the_time_to_log_in() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    const TIMEOUT: Duration = Duration::from_millis(1_000);
    let node = start_with(Settings {
        login_timeout: Some(TIMEOUT),
        ..Settings::default()
    });
    let mut peer = Peer::open(&node);
    peer.join("/a", "ann");
    std::thread::sleep(3 * TIMEOUT);
    peer.settle("/a,");
    peer.send(&["41/a,"]);
    std::thread::sleep(TIMEOUT / 3);
    peer.join("/", "ann");
    std::thread::sleep(3 * TIMEOUT);
    peer.settle("");
    peer.send(&["41"]);
    assert_eq!(peer.next(), None);
    assert_eq!(Peer::open(&node).next(), None);
}

#[test]
fn an_expired_login_ends_the_connection_so_that_its_client_logs_in_again() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut peer = Peer::open(&node);
    peer.join("/", "ann");
    peer.send(&[r#"40/a,{"expires_in":100}"#]);
    peer.expect("40/a,{");
    assert_eq!(peer.next(), None);
}

#[test]
fn ten_thousand_sessions_on_a_connection_leave_the_memory_flat() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let node = start();
    let mut other = node.log_in(SHARD);
    let stats = node.stats(SHARD);
    let mut peer = Peer::open(&node);
    let mut resident = Vec::new();
    for cycle in 0..10_000 {
        let (prefix, room) = match cycle % 3 {
            0 => ("", "x".to_owned()),
            1 => ("/a,", "a#x".to_owned()),
            _ => ("/room/1,", "room/1#x".to_owned()),
        };
        peer.send(&[
            &format!(r#"40{prefix}{{"user":"user-{cycle}"}}"#),
            &format!(r#"42{prefix}0["$join",["x","y-{cycle}"]]"#),
        ]);
        peer.expect(&format!("40{prefix}"));
        peer.expect(&format!("43{prefix}0"));
        other.send(&emit(&room, &cycle.to_string()));
        peer.expect(&format!(r#"42{prefix}["message",{cycle}]"#));
        peer.send(&[&format!("41{prefix}")]);
        if cycle == 1_000 || cycle == 9_999 {
            resident.push(resident_bytes());
        }
    }
    let [before, after] = resident[..] else {
        panic!("two figures");
    };
    assert!(
        after < before + (2 << 20),
        "{before} to {after} bytes resident"
    );
    // The connection waits for a login, and the other client has a session.
    wait_until(|| stats.engine.sessions.load(Relaxed) == 2);
    drop(peer);
    wait_until(|| stats.engine.sessions.load(Relaxed) == 1);
    assert_eq!(stats.connections.load(Relaxed), 1);
}

#[test]
fn no_sequence_of_packets_leaves_a_session_behind() {
    let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let node = Node::start(options(3));
    let mut other = node.log_in(SHARD);
    let stats = node.stats(SHARD);
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let mut peer = Peer::open(&node);
        let mut frames = Vec::new();
        for _ in 0..1 + random(40) {
            let prefix = ["", "/a,", "/b,", "/room/1,", "/c,"][random(5) as usize];
            let user = random(3);
            let text = match random(12) {
                0..=3 => format!(r#"40{prefix}{{"user":"{user}"}}"#),
                4 => format!(r#"40{prefix}{{"expires_in":{user}}}"#),
                5 => format!("41{prefix}"),
                6 => format!(r#"42{prefix}{user}["$join",["x","y"]]"#),
                7 => format!(r#"42{prefix}["$to","x","message",{user}]"#),
                8 => format!(r#"42{prefix}{user}["unknown"]"#),
                9 => format!(r#"43{prefix}{user}[]"#),
                10 => "3".to_owned(),
                _ => format!(r#"42{prefix}{user}["$leave","x"]"#),
            };
            encode_masked(Opcode::Text, text.as_bytes(), [1, 2, 3, 4], &mut frames);
        }
        // The server may have closed the connection.
        let _ = peer.stream.write_all(&frames);
        other.send(&emit("a#x", "1"));
        other.ping();
        if random(2) == 0 {
            let _ = peer.stream.shutdown(std::net::Shutdown::Write);
            while peer.next().is_some() {}
        }
    }
    wait_until(|| stats.engine.sessions.load(Relaxed) == 1);
    wait_until(|| stats.connections.load(Relaxed) == 1);
}

/// Memory of this process.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kibibytes.parse::<usize>().unwrap() << 10
}
