//! Rights that end while sockets are open: what the peer hears last, and that it gets nothing behind that.

mod client;
mod shard_support;

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Client, emit, subscribe, wait_until};
use shard_support::{Node, Options};
use tidewire_core::effect::{CloseReason, LOGIN_EXPIRED};
use tidewire_core::message::{Auth, EventBulk, Message};
use tidewire_net::event_loop::OutboxMarks;
use tidewire_server::shard::ShardLimits;
use tidewire_wire::frame::websocket::CloseCode;

/// Long enough for a busy machine to do what a test does before the end.
const SHORT: Duration = Duration::from_secs(5);

/// Logs in for so long.
fn log_in_for(mut client: Client, time: Duration) -> Client {
    let expires_at = SystemTime::now() + time;
    let expires_at = expires_at.duration_since(UNIX_EPOCH).unwrap().as_millis();
    client.log_in_with(&format!(r#"{{"expires_at":{expires_at}}}"#));
    client
}

fn listen(mut client: Client, name: &str) -> Client {
    client.send(&subscribe(name));
    client.expect_ack(EventBulk::Subscribe);
    client
}

#[test]
fn an_expired_session_is_told_so_and_closed() {
    let node = Node::start(Options::default());
    let mut short = listen(log_in_for(node.connect(0), SHORT), "news");
    let mut long = listen(
        log_in_for(node.connect(0), Duration::from_secs(600)),
        "news",
    );
    let mut writer = node.log_in(1);
    writer.send(&emit("news", "1"));
    for client in [&mut short, &mut long] {
        client.expect(&emit("news", "1"));
    }
    for message in CloseReason::Expired.farewell() {
        short.expect(message);
    }
    assert_eq!(short.expect_close(), Some(CloseCode::POLICY));
    writer.send(&emit("news", "2"));
    long.expect(&emit("news", "2"));
    assert_eq!(node.stats(0).engine.expired.load(Ordering::Relaxed), 1);
}

#[test]
fn what_waits_for_an_expired_session_is_not_sent() {
    let node = Node::start(Options {
        limits: ShardLimits {
            outbox: OutboxMarks {
                bytes_max: 64 << 20,
                lagging_bytes: 64 << 20,
                drained_bytes: 1 << 20,
            },
            ..ShardLimits::default()
        },
        ..Options::default()
    });
    let mut short = listen(log_in_for(node.connect(0), SHORT), "news");
    let mut writer = node.log_in(0);
    let data = format!("\"{}\"", "x".repeat(100_000));
    // More than the kernel takes for somebody who does not read.
    let mut count = 0;
    while node.stats(0).outbox_bytes.load(Ordering::Relaxed) == 0 {
        writer.send(&emit("news", &data));
        writer.ping();
        count += 1;
    }
    for _ in 0..10 {
        writer.send(&emit("news", &data));
        writer.ping();
        count += 1;
    }
    wait_until(|| node.stats(0).engine.expired.load(Ordering::Relaxed) == 1);
    // The shard has let go of it, so what comes now was in the kernel already.
    wait_until(|| node.stats(0).connections.load(Ordering::Relaxed) == 1);
    let mut received = 0;
    short.receive_all(|message| {
        let told = Message::Auth(Auth::Unsuccessful {
            data: Some(LOGIN_EXPIRED),
        });
        assert_ne!(*message, told, "a frame was not finished");
        received += 1;
    });
    assert!(received < count, "{received} of {count}");
}
