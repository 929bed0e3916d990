//! A node at `limits.memory_bytes_max`: which memory counts towards the limit, and which memory the node frees first.

mod client;
mod shard_support;

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, acknowledged, wait_until, write};
use shard_support::{Node, Options};
use tidewire_core::message::{Connection, Message, Record, RecordBulk};
use tidewire_core::settings::Settings;
use tidewire_shard::ShardLimits;
use tidewire_shard::backoff::BackoffSettings;
use tidewire_shard::stats::ShardStats;
use tidewire_store::memory::MemoryDisk;
use tidewire_wire::frame::websocket::{CloseCode, Opcode, encode_masked};
use tidewire_wire::protocol::deepstream::Deepstream;

const MEMORY_BYTES_MAX: usize = 1 << 20;
const SHARDS: usize = 3;
const LARGE: usize = 100_000;

fn node() -> Node {
    Node::start(options())
}

fn options() -> Options {
    Options {
        limits: ShardLimits {
            memory_bytes_max: MEMORY_BYTES_MAX,
            ..ShardLimits::default()
        },
        ..Options::default()
    }
}

/// A connection that makes the first shard hold this many bytes: a frame without its end.
fn hoarder(node: &Node, bytes: usize) -> Client {
    let mut hoarder = node.log_in(0);
    let mut frame = Vec::new();
    encode_masked(Opcode::Binary, &vec![0; bytes], [1; 4], &mut frame);
    // The server may close the connection before all bytes are sent.
    let _ = hoarder.stream.write_all(&frame[..bytes]);
    hoarder
}

fn text(bytes: usize) -> String {
    format!("{{\"a\":\"{}\"}}", "x".repeat(bytes))
}

/// Creates a record and returns the shard that owns it.
fn create(node: &Node, client: &mut Client, name: &str, data: &str) -> usize {
    let counts = || [0, 1, 2].map(|shard| node.stats(shard).engine.records.load(Ordering::Relaxed));
    let before = counts();
    client.send(&write(name, -1, data));
    client.expect(&acknowledged(name));
    let grown = || (0..SHARDS).find(|&shard| counts()[shard] > before[shard]);
    wait_until(|| grown().is_some());
    grown().expect("a shard owns it")
}

/// Creates small records until `is_right` accepts the owner of one, and returns its name.
fn created_where(node: &Node, client: &mut Client, is_right: impl Fn(usize) -> bool) -> String {
    (0..)
        .map(|number| format!("r{number}"))
        .find(|name| is_right(create(node, client, name, "{}")))
        .expect("some shard owns it")
}

/// The sum of a counter over all shards.
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
fn unused_records_are_evicted_before_any_connection_is_closed() {
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
    // The node reads the evicted records again from the store.
    for number in 0..5 {
        let name = format!("r{number}");
        client.send(&Message::Record(Record::Head { name: &name }));
        let (name, version) = (name.as_str(), 1);
        client.expect(&Message::Record(Record::HeadResponse { name, version }));
    }
}

#[test]
fn records_in_use_stay_and_the_largest_session_is_ended() {
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

/// Creates `count` records that no session uses. Returns the bytes that the cache was shrunk by.
fn create_unused(node: &Node, client: &mut Client, count: usize) -> u64 {
    for number in 0..count {
        create(node, client, &format!("unused/{number}"), &text(LARGE));
    }
    wait_until(|| sum(node, |stats| &stats.engine.dirty_records) == 0);
    sum(node, |stats| &stats.cache_shrunk_bytes)
}

#[test]
fn messages_of_a_turn_count_while_their_log_lives() {
    // One turn answers all requests.
    let mut settings = Settings::default();
    settings.limits.connection_work_max = 0;
    let (store, opened) = MemoryDisk::default().open(None);
    let node = Node::start_on(options(), settings, Box::new(store), opened);
    let mut client = node.log_in(0);
    let name = created_where(&node, &mut client, |owner| owner == 0);
    let data = text(LARGE);
    let name = name.as_str();
    client.send(&write(name, 2, &data));
    client.expect(&acknowledged(name));
    let shrunk = create_unused(&node, &mut client, 3);
    assert_eq!(shrunk, 0);
    // Ten small requests, answered in one turn: no connection holds the answers, but the turn log holds a million bytes. The
    // kernel may deliver the requests in parts, which take several turns.
    let question = Message::Record(Record::Read { name });
    wait_until(|| {
        client.send_all((0..10).map(|_| question.clone()));
        for _ in 0..10 {
            client.receive_until(|message| match message {
                Message::Record(Record::ReadResponse {
                    name: of,
                    version: 2,
                    data: value,
                    ..
                }) => *of == name && *value == data,
                other => panic!("{other:?} instead of the value"),
            });
        }
        sum(&node, |stats| &stats.cache_shrunk_bytes) > 0
    });
    client.ping();
    // Memory that only one turn needs ends no session.
    assert_eq!(cut(&node), 0);
}

#[test]
fn mail_on_its_way_to_another_shard_counts() {
    let node = node();
    let mut client = node.log_in(0);
    let name = created_where(&node, &mut client, |owner| owner != 0);
    let shrunk = create_unused(&node, &mut client, 3);
    assert_eq!(shrunk, 0);
    // This is just within the budget, even with half a write of the client.
    let _hoarder = hoarder(&node, 600_000);
    wait_until(|| node.stats(0).inbound_bytes.load(Ordering::Relaxed) >= 600_000 - 100);
    client.ping();
    assert_eq!(sum(&node, |stats| &stats.cache_shrunk_bytes), 0);
    // Writes with a wrong version: their owner discards them and sends short answers.
    let data = text(60_000);
    client.send_all((0..8).map(|_| write(&name, 9, &data)));
    wait_until(|| sum(&node, |stats| &stats.cache_shrunk_bytes) > 0);
    client.send(&Message::Connection(Connection::Ping));
    client.receive_until(|message| *message == Message::Connection(Connection::Pong));
    assert_eq!(cut(&node), 0);
}

/// Subscribes to new records and fills each of them in turn. Ends when the session has all records or the server closes it with a
/// code. Repeats each write that the server refuses for lack of memory, as the error advises.
fn hold_records(client: &mut Client, names: impl Iterator<Item = String>) -> Result<(), CloseCode> {
    let data = text(LARGE);
    for name in names {
        let subscription = Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            names: vec![&name],
            correlation: Some("2"),
        });
        send_unless_closed(client, &subscription);
        let mut is_written = false;
        while !is_written {
            send_unless_closed(client, &write(&name, -1, &data));
            client.receive_until_closed(|message| {
                is_written = *message == acknowledged(&name);
                is_written || matches!(message, Message::Record(Record::Error(_)))
            })?;
        }
    }
    Ok(())
}

/// Sends a message, and ignores the error if the server has closed the connection: the client then reads the close frame.
fn send_unless_closed(client: &mut Client, message: &Message<'_>) {
    let mut bytes = Vec::new();
    Deepstream::encode_masked_frame(message, [1, 2, 3, 4], &mut bytes);
    let _ = client.stream.write_all(&bytes);
}

#[test]
fn only_the_session_whose_records_fill_the_budget_is_ended() {
    let node = Node::start(Options {
        limits: ShardLimits {
            memory_bytes_max: 2 * MEMORY_BYTES_MAX,
            ..ShardLimits::default()
        },
        backoff: BackoffSettings::default(),
        ..Options::default()
    });
    let mut bystanders: Vec<Client> = (0..SHARDS).map(|shard| node.log_in(shard)).collect();
    let mut frame = Vec::new();
    encode_masked(Opcode::Binary, &vec![0; 200_000], [1; 4], &mut frame);
    for bystander in &mut bystanders {
        bystander.stream.write_all(&frame[..150_000]).expect("sent");
    }
    wait_until(|| sum(&node, |stats| &stats.inbound_bytes) >= 450_000 - 100);
    let mut holder = node.log_in(1);
    let names = (0..40).map(|number| format!("held/{number}"));
    assert_eq!(
        hold_records(&mut holder, names),
        Err(CloseCode::TRY_AGAIN_LATER)
    );
    wait_until(|| sum(&node, |stats| &stats.memory_disconnects) == 1);
    wait_until(|| record_bytes(&node) <= 2 * MEMORY_BYTES_MAX as u64);
    // The other clients complete their frames. These contain no valid message, and their sessions stay open.
    for bystander in &mut bystanders {
        bystander.stream.write_all(&frame[150_000..]).expect("sent");
        bystander.send(&Message::Connection(Connection::Ping));
        bystander.receive_until(|message| *message == Message::Connection(Connection::Pong));
    }
    assert_eq!(cut(&node), 1);
    // One entry for the holder's address and one for its user, and none for other users.
    wait_until(|| sum(&node, |stats| &stats.backoff_entries) == 2);
}

#[test]
fn sessions_that_are_ended_for_the_sum_of_all_are_not_delayed() {
    const COUNT: usize = 45;
    // Each session holds less than a hundredth of the budget, and all together exceed it.
    let node = Node::start(Options {
        limits: ShardLimits {
            memory_bytes_max: 4 << 20,
            ..ShardLimits::default()
        },
        backoff: BackoffSettings::default(),
        ..Options::default()
    });
    let hoarders: Vec<Client> = (0..4 * COUNT).map(|_| hoarder(&node, 30_000)).collect();
    wait_until(|| sum(&node, |stats| &stats.memory_disconnects) > 0);
    wait_until(|| sum(&node, |stats| &stats.inbound_bytes) <= 4 << 20);
    assert!(cut(&node) < COUNT as u64, "{}", cut(&node));
    let entries = |shard| node.stats(shard).backoff_entries.load(Ordering::Relaxed);
    assert_eq!(entries(0), 0);
    drop(hoarders);
}
