//! Compression with real sockets: what leaves how often in which form, and what comes in.

mod client;
mod shard_support;

use std::io::Write;
use std::sync::atomic::Ordering;

use client::{Client, emit, subscribe};
use shard_support::{Node, Options};
use tidewire_core::message::EventBulk;
use tidewire_server::shard::ShardLimits;
use tidewire_wire::frame::websocket::{CloseCode, Opcode};

/// The bytes of a ticker's messages, as the objective names them.
const LARGE_BYTES: usize = 2500;
const SMALL_BYTES: usize = 155;

/// A price of one instrument in JSON, always of [`SMALL_BYTES`].
fn tick(number: u64) -> String {
    let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let price = |cents: u64| format!("{}.{:02}", 100 + cents / 100 % 900, cents % 100);
    let text = format!(
        "{{\"id\":{},\"symbol\":\"SYM{:03}\",\"bid\":{},\"ask\":{},\"last\":{},\"open\":{},\"volume\":{},\"time\":{},\"venue\":\"XETR\",\"currency\":\"EUR\"}}",
        100_000 + noise % 900_000,
        noise % 50,
        price(noise % 70_000),
        price(noise % 70_000 + 3),
        price(noise % 70_000 + 1),
        price(noise % 50_000),
        1_000_000 + noise % 9_000_000,
        1_795_000_000_000 + number * 137,
    );
    assert_eq!(text.len(), SMALL_BYTES, "{text}");
    text
}

/// A list of prices of about [`LARGE_BYTES`].
fn ticks(number: u64) -> String {
    let mut text = String::from("[");
    for index in 0.. {
        let next = tick(number * 31 + index);
        if text.len() + next.len() + 1 >= LARGE_BYTES {
            break;
        }
        if index > 0 {
            text.push(',');
        }
        text.push_str(&next);
    }
    text.push(']');
    text
}

fn subscribed(mut client: Client) -> Client {
    client.log_in();
    client.send(&subscribe("ticks"));
    client.expect_ack(EventBulk::Subscribe);
    client
}

/// What `client` receives of `texts`, published one after the other, in bytes on the wire.
fn bytes_of(node: &Node, client: &mut Client, texts: &[String]) -> usize {
    let mut publisher = node.log_in(0);
    let before = client.bytes_in;
    for text in texts {
        publisher.send(&emit("ticks", text));
        client.expect(&emit("ticks", text));
    }
    client.bytes_in - before
}

#[test]
fn a_ticker_of_large_messages_needs_two_fifths_of_the_bytes() {
    let node = Node::start(Options::default());
    let texts: Vec<String> = (0..50).map(ticks).collect();
    let plain = bytes_of(&node, &mut subscribed(node.connect(0)), &texts);
    let deflated = bytes_of(&node, &mut subscribed(node.connect_deflated(0)), &texts);
    println!("50 messages of 2.5 KB: {plain} bytes plain, {deflated} compressed");
    assert!(deflated * 10 <= plain * 4, "{deflated} of {plain}");
}

#[test]
fn small_messages_are_sent_plain() {
    let node = Node::start(Options::default());
    let texts: Vec<String> = (0..50).map(tick).collect();
    let plain = bytes_of(&node, &mut subscribed(node.connect(0)), &texts);
    let offered = bytes_of(&node, &mut subscribed(node.connect_deflated(0)), &texts);
    assert_eq!(offered, plain);
    assert_eq!(node.stats(0).deflated_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_message_is_compressed_once_for_all() {
    let node = Node::start(Options::default());
    let mut plain = subscribed(node.connect(0));
    let mut others: Vec<Client> = (0..5)
        .map(|_| subscribed(node.connect_deflated(0)))
        .collect();
    let mut new = node.connect_deflated(0);
    new.log_in_as("10.0.0");
    new.send(&subscribe("ticks"));
    new.expect_ack(EventBulk::Subscribe);
    others.push(new);
    let text = ticks(1);
    let before = node.stats(0).deflated_bytes.load(Ordering::Relaxed);
    let mut publisher = node.log_in(0);
    publisher.send(&emit("ticks", &text));
    plain.expect(&emit("ticks", &text));
    for other in &mut others {
        other.expect(&emit("ticks", &text));
    }
    let deflated = node.stats(0).deflated_bytes.load(Ordering::Relaxed) - before;
    assert!(
        (text.len() as u64..text.len() as u64 + 50).contains(&deflated),
        "{deflated} bytes were compressed for one message of {}",
        text.len()
    );
}

#[test]
fn what_a_turn_may_not_compress_leaves_plain() {
    let limits = ShardLimits {
        deflate_turn_bytes_max: 1000,
        ..ShardLimits::default()
    };
    let node = Node::start(Options {
        limits,
        ..Options::default()
    });
    let texts = [ticks(1)];
    let received = bytes_of(&node, &mut subscribed(node.connect_deflated(0)), &texts);
    assert!(received > texts[0].len());
    let stats = node.stats(0);
    assert_eq!(stats.deflated_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(stats.deflate_skips.load(Ordering::Relaxed), 1);
}

#[test]
fn compressed_messages_are_understood() {
    let node = Node::start(Options::default());
    let mut listener = subscribed(node.connect(1));
    let mut client = node.connect_deflated(0);
    client.log_in();
    for number in 0..3 {
        let text = ticks(number);
        client.send_deflated(&emit("ticks", &text));
        listener.expect(&emit("ticks", &text));
    }
    client.ping();
}

#[test]
fn a_bomb_ends_the_connection_with_1009() {
    let node = Node::start(Options::default());
    let mut client = node.connect_deflated(0);
    client.log_in();
    client.send_deflated_frame(&vec![0; 64 << 20]);
    assert_eq!(client.expect_close(), Some(CloseCode::TOO_BIG));
    node.log_in(0).ping();
}

#[test]
fn compression_that_was_not_agreed_on_ends_the_connection_with_1002() {
    let node = Node::start(Options::default());
    let mut client = node.connect(0);
    client.log_in();
    client.send_deflated_frame(&[0; 600]);
    assert_eq!(client.expect_close(), Some(CloseCode::PROTOCOL));
}

#[test]
fn what_can_not_be_inflated_ends_the_connection_with_1007() {
    let node = Node::start(Options::default());
    let mut client = node.connect_deflated(0);
    client.log_in();
    // A block type that does not exist.
    client
        .stream
        .write_all(&[0xC2, 0x81, 0, 0, 0, 0, 0x06])
        .unwrap();
    assert_eq!(client.expect_close(), Some(CloseCode::INVALID_PAYLOAD));
}

#[test]
fn a_compressed_control_frame_ends_the_connection_with_1002() {
    let node = Node::start(Options::default());
    let mut client = node.connect_deflated(0);
    client.log_in();
    client.send_frame(Opcode::Ping, b"plain");
    assert_eq!(client.expect_pong(), b"plain");
    client.stream.write_all(&[0xC9, 0x80, 0, 0, 0, 0]).unwrap();
    assert_eq!(client.expect_close(), Some(CloseCode::PROTOCOL));
}
