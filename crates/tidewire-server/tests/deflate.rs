//! Compression and batches with real sockets: how often and in which form the server sends messages, and which input it accepts.

mod client;
mod shard_support;

use std::io::Write;
use std::sync::atomic::Ordering;

use client::{Client, emit, subscribe};
use shard_support::{Node, Options};
use tidewire_core::message::{Event, EventBulk, Message, Publication};
use tidewire_shard::ShardLimits;
use tidewire_wire::frame::websocket::{CloseCode, Opcode};

/// The sizes of a ticker's messages, as in the performance goal.
const LARGE_BYTES: usize = 2500;
const SMALL_BYTES: usize = 155;

/// A price of one instrument as JSON, always [`SMALL_BYTES`] long.
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

/// A list of prices, about [`LARGE_BYTES`] long.
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
    with_ticks(client)
}

/// A client that accepts all messages of a turn in one frame.
fn batching(mut client: Client) -> Client {
    client.log_in_batching();
    with_ticks(client)
}

fn with_ticks(mut client: Client) -> Client {
    client.send(&subscribe("ticks"));
    client.expect_ack(EventBulk::Subscribe);
    client
}

/// Publishes each of `texts` after `client` has received the one before. Returns how many bytes it received on the wire.
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
fn messages_beyond_the_compression_budget_are_sent_plain() {
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

/// Sends 20 ticks at once, ten times. Returns the bytes and frames that each client received.
fn batches_of(node: &Node, clients: &mut [Client]) -> Vec<(usize, usize)> {
    let mut publisher = node.log_in(0);
    let before: Vec<_> = counts(clients);
    for round in 0..10 {
        let texts: Vec<String> = (0..20).map(|index| tick(round * 20 + index)).collect();
        publisher.send_all(texts.iter().map(|text| emit("ticks", text)));
        for client in &mut *clients {
            for text in &texts {
                client.expect(&emit("ticks", text));
            }
        }
    }
    let after = counts(clients);
    let both = before.into_iter().zip(after);
    both.map(|(before, after)| (after.0 - before.0, after.1 - before.1))
        .collect()
}

fn counts(clients: &[Client]) -> Vec<(usize, usize)> {
    let counts = clients.iter();
    counts
        .map(|client| (client.bytes_in, client.frames_in))
        .collect()
}

#[test]
fn batches_of_small_messages_need_two_fifths_of_the_bytes() {
    let node = Node::start(Options::default());
    let mut clients = [
        subscribed(node.connect(0)),
        batching(node.connect(0)),
        batching(node.connect_deflated(0)),
        batching(node.connect_deflated(0)),
    ];
    let skipped = node.stats(0).deflated_bytes.load(Ordering::Relaxed);
    let received = batches_of(&node, &mut clients);
    println!("10 times 20 messages of 155 bytes, bytes and frames: {received:?}");
    let [plain, batched, deflated, same] = received[..] else {
        panic!("four clients");
    };
    assert_eq!(plain.1, 200);
    // The server may read the 20 messages in two turns.
    assert!(batched.1 < 25 && batched.0 < plain.0, "{batched:?}");
    assert!(deflated.0 * 10 <= plain.0 * 4, "{deflated:?} of {plain:?}");
    assert_eq!(deflated, same);
    let deflated_bytes = node.stats(0).deflated_bytes.load(Ordering::Relaxed) - skipped;
    assert!(
        deflated_bytes <= batched.0 as u64,
        "two recipients share a batch: {deflated_bytes} bytes were compressed"
    );
}

#[test]
fn a_batch_leaves_out_what_its_reader_has_sent() {
    let node = Node::start(Options::default());
    let mut writers: Vec<Client> = (0..3).map(|_| batching(node.connect_deflated(0))).collect();
    let texts: Vec<String> = (0..30).map(ticks).collect();
    for (index, text) in texts.iter().enumerate() {
        writers[index % 3].send(&emit("ticks", text));
    }
    for (own, writer) in writers.iter_mut().enumerate() {
        let mut received = Vec::new();
        while received.len() < 20 {
            writer.receive_until(|message| {
                let Message::Event(Event::Publication(Publication { data, .. })) = message else {
                    return false;
                };
                let index = texts.iter().position(|text| Some(text.as_str()) == *data);
                received.push(index.expect("one of the texts"));
                true
            });
        }
        for other in 0..3 {
            let of_other = received.iter().filter(|index| *index % 3 == other);
            let sent = (0..30).filter(|index| index % 3 == other && other != own);
            assert!(
                of_other.copied().eq(sent),
                "{own} got of {other}: {received:?}"
            );
        }
        writer.ping();
    }
}

#[test]
fn answers_and_large_messages_come_in_batches_too() {
    let node = Node::start(Options::default());
    for mut client in [node.connect(1), node.connect_deflated(1)] {
        client.log_in_batching();
        let mut client = with_ticks(client);
        let mut publisher = node.log_in(1);
        let texts: Vec<String> = (0..100).map(ticks).collect();
        publisher.send_all(texts.iter().map(|text| emit("ticks", text)));
        for text in &texts {
            client.expect(&emit("ticks", text));
        }
        client.ping();
        client.send_frame(Opcode::Ping, b"control");
        assert_eq!(client.expect_pong(), b"control");
    }
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
fn data_that_can_not_be_inflated_ends_the_connection_with_1007() {
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
