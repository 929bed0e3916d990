//! Sessions that a task of the front carries. They log in, send, receive, lag and end like sessions with sockets, and leave no
//! state when their task is dropped.

mod client;
mod shard_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::{emit, subscribe, wait_until};
use shard_support::{Node, Options};
use tidewire_core::message::{Auth, Connection, Event, Message, Presence};
use tidewire_net::event_loop::OutboxMarks;
use tidewire_shard::ShardLimits;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::carrier::{End, Stay};
use tidewire_shard::peer::PeerDetails;
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);
const PASSING: Stay = Stay::Passing { bytes_max: 1 << 20 };

fn encoded(messages: &[Message<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        Deepstream::encode(Dialect::Server, message, &mut out);
    }
    out
}

/// Encodes the messages of a login, then `messages`.
fn logging_in(coalesces: bool, messages: &[Message<'_>]) -> Vec<u8> {
    let challenge = Connection::challenge(coalesces);
    let login = [
        Message::Connection(challenge),
        Message::Auth(Auth::Request { data: Some("{}") }),
    ];
    encoded(&[&login, messages].concat())
}

fn carry(node: &Node, port: u16, stay: Stay, messages: Vec<u8>) -> CarriedSession {
    let peer = PeerDetails {
        certificate: None,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        headers: Vec::new(),
    };
    node.handle(0).carry(Arc::new(peer), stay, messages)
}

/// Receives messages until `is_last`, and returns all of them as debug texts.
async fn receive(
    session: &mut CarriedSession,
    is_last: impl Fn(&Message<'_>) -> bool,
) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let chunk = timeout(DEADLINE, session.receive()).await;
        let chunk = chunk
            .expect("a message within the deadline")
            .expect("no end");
        let mut rest = &chunk[..];
        while let Some(bytes) = Deepstream::message_bytes(rest) {
            let message = Deepstream::decode(&rest[..bytes]).expect("a message");
            rest = &rest[bytes..];
            seen.push(format!("{message:?}"));
            if is_last(&message) {
                return seen;
            }
        }
    }
}

fn is_pong(message: &Message<'_>) -> bool {
    *message == Message::Connection(Connection::Pong)
}

fn is_login(message: &Message<'_>) -> bool {
    matches!(message, Message::Auth(Auth::Successful { .. }))
}

const PING: Message<'static> = Message::Connection(Connection::Ping);

#[test]
fn a_session_without_a_socket_is_one_like_any_other() {
    let node = Node::start(Options::default());
    let runtime = Runtime::new().expect("a runtime");
    let mut socket = node.log_in(1);
    socket.send(&subscribe("news"));
    socket.receive_until(|message| matches!(message, Message::Event(Event::Ack { .. })));
    runtime.block_on(async {
        // The shard handles the messages after the login only once the login is done.
        let messages = logging_in(false, &[subscribe("answers"), emit("news", "1"), PING]);
        let mut session = carry(&node, 9, PASSING, messages);
        let seen = receive(&mut session, is_pong).await;
        assert!(seen[0].contains("Accept"), "{seen:?}");
        assert!(seen[1].contains("Successful"), "{seen:?}");
        socket.expect(&emit("news", "1"));
        socket.send(&emit("answers", "2"));
        let is_emit = |message: &Message<'_>| *message == emit("answers", "2");
        receive(&mut session, is_emit).await;
        session.send(encoded(&[PING]));
        receive(&mut session, is_pong).await;
        let sessions = &node.stats(0).engine.sessions;
        wait_until(|| sessions.load(Ordering::Relaxed) == 1);
        // When the task drops its end, the session ends too.
        drop(session);
        wait_until(|| sessions.load(Ordering::Relaxed) == 0);
    });
}

#[test]
fn presence_counts_lasting_sessions_only() {
    let node = Node::start(Options::default());
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut passing = carry(&node, 7, PASSING, logging_in(false, &[]));
        receive(&mut passing, is_login).await;
        let mut lasting = carry(&node, 8, Stay::Lasting, logging_in(false, &[]));
        receive(&mut lasting, is_login).await;
        let query = Message::Presence(Presence::QueryAll);
        let mut asking = carry(&node, 9, PASSING, logging_in(false, &[query]));
        let is_answer = |message: &Message<'_>| {
            matches!(
                message,
                Message::Presence(Presence::QueryAllResponse { .. })
            )
        };
        let seen = receive(&mut asking, is_answer).await;
        let answer = seen.last().expect("an answer");
        assert!(
            answer.contains("user-8") && !answer.contains("user-7"),
            "{answer}"
        );
    });
}

#[test]
fn a_session_that_takes_nothing_lags_and_gets_the_gap_or_is_ended() {
    let limits = ShardLimits {
        outbox: OutboxMarks {
            bytes_max: 64 << 10,
            lagging_bytes: 16 << 10,
            drained_bytes: 4 << 10,
        },
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let runtime = Runtime::new().expect("a runtime");
    let mut publisher = node.log_in(1);
    runtime.block_on(async {
        let mut following = carry(
            &node,
            7,
            Stay::Lasting,
            logging_in(true, &[subscribe("news"), PING]),
        );
        let is_ack = |message: &Message<'_>| matches!(message, Message::Event(Event::Ack { .. }));
        receive(&mut following, is_ack).await;
        let mut stuck = carry(
            &node,
            8,
            Stay::Lasting,
            logging_in(false, &[subscribe("news"), PING]),
        );
        receive(&mut stuck, is_ack).await;
        let data = format!("\"{}\"", "x".repeat(4 << 10));
        let cut = &node.stats(0).slow_disconnects;
        wait_until(|| {
            publisher.send(&emit("news", &data));
            publisher.ping();
            cut.load(Ordering::Relaxed) > 0
        });
        let end = async {
            loop {
                if let Err(end) = stuck.receive().await {
                    return end;
                }
            }
        };
        assert_eq!(timeout(DEADLINE, end).await, Ok(End::Slow));
        let is_gap = |message: &Message<'_>| matches!(message, Message::Event(Event::Gap { .. }));
        receive(&mut following, is_gap).await;
    });
}

#[test]
fn a_shard_that_stops_ends_the_sessions_and_takes_no_new_ones() {
    let node = Node::start(Options::default());
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        // Waits for the login, because the shard answers a ping before it.
        let mut session = carry(&node, 7, Stay::Lasting, logging_in(false, &[]));
        receive(&mut session, is_login).await;
        node.handle(0).close_all(Duration::ZERO, DEADLINE).await;
        assert_eq!(session.receive().await, Err(End::GoingAway));
        let mut late = carry(&node, 8, PASSING, logging_in(false, &[PING]));
        assert_eq!(late.receive().await, Err(End::GoingAway));
    });
}
