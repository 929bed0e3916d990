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
use tidewire_core::message::{Event, Message};
use tidewire_net::event_loop::OutboxMarks;
use tidewire_shard::ShardLimits;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::carrier::{End, Stay};
use tidewire_shard::peer::PeerDetails;
use tidewire_shard::reply::OwnedReply;
use tidewire_shard::request::OwnedRequest;
use tokio::runtime::Runtime;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);
const PASSING: Stay = Stay::Passing { bytes_max: 1 << 20 };

const LASTING: Stay = Stay::Lasting { coalesces: false };

/// The request of a login, then `requests`.
fn logging_in(requests: &[OwnedRequest]) -> Vec<OwnedRequest> {
    let login = OwnedRequest::LogIn { data: "{}".into() };
    [&[login], requests].concat()
}

fn subscribe_to(event: &str) -> OwnedRequest {
    OwnedRequest::SubscribeEvents {
        events: vec![(event.into(), None)],
    }
}

fn carry(node: &Node, port: u16, stay: Stay, requests: Vec<OwnedRequest>) -> CarriedSession {
    let peer = PeerDetails::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    node.handle(0).carry(Arc::new(peer), stay, requests)
}

/// Receives replies until `is_last`, and returns all of them.
async fn receive(
    session: &mut CarriedSession,
    is_last: impl Fn(&OwnedReply) -> bool,
) -> Vec<OwnedReply> {
    let mut seen = Vec::new();
    loop {
        let replies = timeout(DEADLINE, session.receive()).await;
        let replies = replies
            .expect("a reply within the deadline")
            .expect("no end");
        for reply in replies.iter() {
            seen.push(reply.clone());
            if is_last(reply) {
                return seen;
            }
        }
    }
}

fn is_pong(reply: &OwnedReply) -> bool {
    *reply == OwnedReply::Pong
}

fn is_login(reply: &OwnedReply) -> bool {
    matches!(reply, OwnedReply::LoggedIn { .. })
}

#[test]
fn a_session_without_a_socket_is_one_like_any_other() {
    let node = Node::start(Options::default());
    let runtime = Runtime::new().expect("a runtime");
    let mut socket = node.log_in(1);
    socket.send(&subscribe("news"));
    socket.receive_until(|message| matches!(message, Message::Event(Event::Ack { .. })));
    runtime.block_on(async {
        // The shard handles the messages after the login only once the login is done.
        let publish = OwnedRequest::Publish {
            name: "news".into(),
            data: Some("1".into()),
            binary: None,
            attachments: None,
            trace: None,
        };
        let requests = [subscribe_to("answers"), publish, OwnedRequest::Ping];
        let mut session = carry(&node, 9, PASSING, logging_in(&requests));
        let seen = receive(&mut session, is_pong).await;
        assert!(is_login(&seen[0]), "{seen:?}");
        socket.expect(&emit("news", "1"));
        socket.send(&emit("answers", "2"));
        let published = OwnedReply::Publication {
            name: "answers".into(),
            data: Some("2".into()),
            binary: None,
            attachments: None,
            offset: None,
        };
        receive(&mut session, |reply| *reply == published).await;
        session.send(vec![OwnedRequest::Ping]);
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
        let mut passing = carry(&node, 7, PASSING, logging_in(&[]));
        receive(&mut passing, is_login).await;
        let mut lasting = carry(&node, 8, LASTING, logging_in(&[]));
        receive(&mut lasting, is_login).await;
        let query = OwnedRequest::QueryAllUsers;
        let mut asking = carry(&node, 9, PASSING, logging_in(&[query]));
        let is_answer = |reply: &OwnedReply| matches!(reply, OwnedReply::AllUsers { .. });
        let seen = receive(&mut asking, is_answer).await;
        let names = vec!["user-8".into()];
        assert_eq!(seen.last(), Some(&OwnedReply::AllUsers { names }));
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
        let requests = [subscribe_to("news"), OwnedRequest::Ping];
        let mut following = carry(
            &node,
            7,
            Stay::Lasting { coalesces: true },
            logging_in(&requests),
        );
        receive(&mut following, is_pong).await;
        let mut stuck = carry(&node, 8, LASTING, logging_in(&requests));
        receive(&mut stuck, is_pong).await;
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
        let is_gap = |reply: &OwnedReply| matches!(reply, OwnedReply::Gap { .. });
        receive(&mut following, is_gap).await;
    });
}

#[test]
fn a_shard_that_stops_ends_the_sessions_and_takes_no_new_ones() {
    let node = Node::start(Options::default());
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        // Waits for the login, because the shard answers a ping before it.
        let mut session = carry(&node, 7, LASTING, logging_in(&[]));
        receive(&mut session, is_login).await;
        node.handle(0).close_all(Duration::ZERO, DEADLINE).await;
        let end = session.receive().await.err();
        assert_eq!(end, Some(End::GoingAway));
        let mut late = carry(&node, 8, PASSING, logging_in(&[OwnedRequest::Ping]));
        assert_eq!(late.receive().await.err(), Some(End::GoingAway));
    });
}
