//! `limits.memory_bytes_max` at its limit: what of all that a node holds counts, and who gives way first.

mod client;
mod shard_support;

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, acknowledged, wait_until, write};
use shard_support::{Node, Options};
use tidewire_core::message::{Connection, Message, Record, RecordBulk};
use tidewire_server::shard::ShardLimits;
use tidewire_server::shard::stats::ShardStats;
use tidewire_wire::frame::websocket::{Opcode, encode_masked};

const MEMORY_BYTES_MAX: usize = 1 << 20;
const SHARDS: usize = 3;
const LARGE: usize = 100_000;

fn node() -> Node {
    Node::start(Options {
        limits: ShardLimits {
            memory_bytes_max: MEMORY_BYTES_MAX,
            ..ShardLimits::default()
        },
        ..Options::default()
    })
}

/// A connection to the first shard that holds so many bytes there: a frame without its end.
fn hoarder(node: &Node, bytes: usize) -> Client {
    let mut hoarder = node.log_in(0);
    let mut frame = Vec::new();
    encode_masked(Opcode::Binary, &vec![0; 1_000_000], [1; 4], &mut frame);
    // It may be cut before it has sent all.
    let _ = hoarder.stream.write_all(&frame[..bytes]);
    hoarder
}

fn text(bytes: usize) -> String {
    format!("{{\"a\":\"{}\"}}", "x".repeat(bytes))
}

/// Creates a record and says which shard owns it.
fn create(node: &Node, client: &mut Client, name: &str, data: &str) -> usize {
    let counts = || [0, 1, 2].map(|shard| node.stats(shard).engine.records.load(Ordering::Relaxed));
    let before = counts();
    client.send(&write(name, -1, data));
    client.expect(&acknowledged(name));
    let grown = || (0..SHARDS).find(|&shard| counts()[shard] > before[shard]);
    wait_until(|| grown().is_some());
    grown().expect("it was there")
}

/// The first of many small records that an owner is asked for.
fn created_where(node: &Node, client: &mut Client, is_right: impl Fn(usize) -> bool) -> String {
    (0..)
        .map(|number| format!("r{number}"))
        .find(|name| is_right(create(node, client, name, "{}")))
        .expect("some shard owns it")
}

/// A number of all shards together.
fn sum(node: &Node, number: impl Fn(&ShardStats) -> &AtomicU64) -> u64 {
    let number = |shard| number(node.stats(shard)).load(Ordering::Relaxed);
    (0..SHARDS).map(number).sum()
}

fn record_bytes(node: &Node) -> u64 {
    sum(node, |stats| &stats.engine.record_bytes)
}

fn cut(node: &Node) -> u64 {
    sum(node, |stats| &stats.slow_disconnects)
}

#[test]
fn records_that_nobody_uses_give_way_before_any_connection() {
    let node = node();
    let mut client = node.log_in(1);
    for number in 0..5 {
        create(&node, &mut client, &format!("r{number}"), &text(LARGE));
    }
    wait_until(|| record_bytes(&node) > 5 * LARGE as u64);
    let _hoarder = hoarder(&node, 800_000);
    wait_until(|| record_bytes(&node) + 800_000 <= MEMORY_BYTES_MAX as u64);
    let given_up = sum(&node, |stats| &stats.cache_shrunk_bytes);
    assert!(given_up >= 2 * LARGE as u64, "{given_up}");
    assert_eq!(cut(&node), 0);
    // What was given up is read again from the store.
    for number in 0..5 {
        let name = format!("r{number}");
        client.send(&Message::Record(Record::Head { name: &name }));
        let (name, version) = (name.as_str(), 1);
        client.expect(&Message::Record(Record::HeadResponse { name, version }));
    }
}

#[test]
fn records_in_use_stay_and_who_holds_most_goes() {
    let node = node();
    let mut client = node.log_in(1);
    for number in 0..4 {
        let name = format!("r{number}");
        create(&node, &mut client, &name, &text(LARGE));
        client.send(&Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeAndRead,
            names: vec![&name],
            correlation: Some("2"),
        }));
        let is_value =
            |message: &Message<'_>| matches!(message, Message::Record(Record::ReadResponse { .. }));
        client.receive_until(is_value);
        client.ping();
    }
    let _small = hoarder(&node, 1_000);
    let _hoarder = hoarder(&node, 800_000);
    wait_until(|| cut(&node) == 1);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) <= 1_000);
    wait_until(|| record_bytes(&node) > 4 * LARGE as u64);
    client.ping();
}

#[test]
fn messages_of_a_turn_count_while_their_log_lives() {
    let node = node();
    let mut client = node.log_in(0);
    let name = created_where(&node, &mut client, |owner| owner == 0);
    let data = text(LARGE);
    let name = name.as_str();
    client.send(&write(name, 2, &data));
    client.expect(&acknowledged(name));
    let _hoarder = hoarder(&node, 500_000);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) >= 500_000 - 100);
    client.ping();
    assert_eq!(cut(&node), 0);
    // Ten questions of a few bytes, answered in one turn: no connection holds any of it, the log a million bytes.
    let question = Message::Record(Record::Read { name });
    client.send_all((0..10).map(|_| question.clone()));
    for _ in 0..10 {
        let (version, data) = (2, data.as_str());
        let answer = Record::ReadResponse {
            name,
            version,
            data,
        };
        client.expect(&Message::Record(answer));
    }
    wait_until(|| cut(&node) == 1);
    client.ping();
}

#[test]
fn mail_on_its_way_to_another_shard_counts() {
    let node = node();
    let mut client = node.log_in(0);
    let name = created_where(&node, &mut client, |owner| owner != 0);
    // With half a write of the client this is just within the budget.
    let _hoarder = hoarder(&node, 950_000);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) >= 950_000 - 100);
    client.ping();
    assert_eq!(cut(&node), 0);
    // Writes that come to nothing: their owner keeps none of them and answers with little.
    let data = text(90_000);
    client.send_all((0..4).map(|_| write(&name, 9, &data)));
    wait_until(|| cut(&node) == 1);
    client.send(&Message::Connection(Connection::Ping));
    client.receive_until(|message| *message == Message::Connection(Connection::Pong));
}
