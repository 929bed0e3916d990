//! Slow readers with real sockets. A session that coalesces stays open and receives the newest value at the end; the server closes a
//! session that does not coalesce.

mod client;
mod shard_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, emit, subscribe, wait_until};
use shard_support::{Node, Options};
use tidewire_core::message::{
    Change, Event, EventBulk, Message, Publication, Record, RecordBulk, Write,
};
use tidewire_shard::ShardLimits;

/// How far one turn may exceed the limit of an outbox before the shard notices that the reader is slow.
const TURN_BYTES: u64 = 8 << 20;

fn read_on<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: names.to_vec(),
        correlation: Some("7"),
    })
}

/// A write of a whole value as the next version, with an acknowledgement.
fn set<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    let write = Write {
        name,
        version: -1,
        correlation: Some("1"),
        write_ack: true,
        key: None,
    };
    Message::Record(Record::Write(write, Change::Update { data: Some(data) }))
}

fn value(number: usize, bytes: usize) -> String {
    format!(r#"{{"n":{number},"fill":"{}"}}"#, "x".repeat(bytes))
}

fn number_in(data: &str) -> usize {
    let rest = data.strip_prefix(r#"{"n":"#).unwrap();
    rest[..rest.find(',').unwrap()].parse().unwrap()
}

/// Logs in, subscribes to records and waits for their first values.
fn reader(mut client: Client, names: &[&str], coalesces: bool) -> Client {
    match coalesces {
        true => client.log_in_coalescing(),
        false => client.log_in(),
    }
    client.send(&read_on(names));
    let mut left = names.len();
    client.receive_until(|message| {
        left -= usize::from(matches!(
            message,
            Message::Record(Record::ReadResponse { .. })
        ));
        left == 0
    });
    client
}

/// Writes and waits for the acknowledgement, so that each turn has at most one value.
fn write(writer: &mut Client, name: &str, data: &str) {
    writer.send(&set(name, data));
    writer.receive_until(|message| matches!(message, Message::Record(Record::WriteAck { .. })));
}

fn get(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

#[test]
fn a_slow_reader_of_a_hot_record_stays_and_has_its_newest_value_at_the_end() {
    let node = Node::start(Options::default());
    let mut coalescing = reader(node.connect(0), &["hot"], true);
    let mut stock = reader(node.connect(0), &["hot"], false);
    let mut writer = node.log_in(1);
    let stats = node.stats(0);
    let outbox_bytes_max = ShardLimits::default().outbox.bytes_max as u64;
    let mut writes = 0;
    let mut held_bytes_max = 0;
    // Until the server cuts the stock client, and then three times as many writes again.
    let mut cut_at = None;
    while cut_at.is_none_or(|cut_at| writes < 4 * cut_at) {
        writes += 1;
        write(&mut writer, "hot", &value(writes, 100_000));
        held_bytes_max = held_bytes_max.max(get(&stats.outbox_bytes));
        if get(&stats.slow_disconnects) == 1 {
            cut_at.get_or_insert(writes);
        }
        assert!(writes < 10_000, "no client was cut");
    }
    // Two outboxes at their limit, each with the output of one more turn.
    assert!(
        held_bytes_max < 2 * (outbox_bytes_max + TURN_BYTES),
        "{held_bytes_max} bytes"
    );
    wait_until(|| get(&stats.engine.skipped_updates) > 0);
    assert_eq!(get(&stats.engine.lagging_sessions), 1);

    let (mut version, mut skips) = (0, 0);
    coalescing.receive_until(|message| {
        let Message::Record(Record::Write(write, Change::Update { data: Some(data) })) = message
        else {
            panic!("{message:?} instead of a change");
        };
        assert!(write.version > version, "{} after {version}", write.version);
        skips += usize::from(write.version > version + 1);
        version = write.version;
        assert_eq!(number_in(data), version as usize);
        version as usize == writes
    });
    assert_eq!(skips, 1);
    // After that the client receives every version.
    for number in writes + 1..writes + 4 {
        write(&mut writer, "hot", &value(number, 10));
        coalescing.expect(&Message::Record(Record::Write(
            Write {
                name: "hot",
                version: number as i32,
                correlation: None,
                write_ack: false,
                key: None,
            },
            Change::Update {
                data: Some(&value(number, 10)),
            },
        )));
    }
    // The stock client received every version until the server cut it.
    let mut last = 0;
    stock.receive_all(|message| {
        if let Message::Record(Record::Write(write, _)) = message {
            assert_eq!(write.version, last + 1);
            last = write.version;
        }
    });
    assert!((last as usize) < writes);
    assert_eq!(get(&stats.slow_disconnects), 1);
    wait_until(|| get(&stats.engine.lagging_sessions) == 0);
    assert_eq!(get(&stats.engine.caught_up_records), 1);
}

#[test]
fn many_records_are_made_up_for_without_passing_the_limit() {
    let node = Node::start(Options::default());
    let names: Vec<String> = (0..150).map(|index| format!("many/{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut coalescing = reader(node.connect(0), &names, true);
    let mut writer = node.log_in(0);
    let mut number = 0;
    while get(&node.stats(0).engine.lagging_sessions) == 0 {
        number += 1;
        names
            .iter()
            .for_each(|name| write(&mut writer, name, &value(number, 40_000)));
        assert!(number < 100, "it never lagged");
    }
    // Every record changes at least once more while the session lags.
    number += 1;
    names
        .iter()
        .for_each(|name| write(&mut writer, name, &value(number, 40_000)));
    let mut newest: BTreeMap<String, usize> = BTreeMap::new();
    coalescing.receive_until(|message| {
        if let Message::Record(Record::Write(write, Change::Update { data: Some(data) })) = message
        {
            let before = newest.insert(write.name.to_owned(), number_in(data));
            assert!(before.is_none_or(|before| before < number_in(data)));
        }
        newest.len() == names.len() && newest.values().all(|newest| *newest == number)
    });
    assert_eq!(get(&node.stats(0).slow_disconnects), 0);
    wait_until(|| get(&node.stats(0).engine.lagging_sessions) == 0);
}

#[test]
fn skipped_events_are_counted_for_the_slow_session() {
    let node = Node::start(Options::default());
    let mut coalescing = node.connect(0);
    coalescing.log_in_coalescing();
    coalescing.send(&subscribe("news"));
    coalescing.expect_ack(EventBulk::Subscribe);
    let mut publisher = node.log_in(2);
    let text = format!("\"{}\"", "x".repeat(50_000));
    let mut published = 0;
    while get(&node.stats(0).engine.skipped_events) < 100 {
        publisher.send(&emit("news", &text));
        publisher.ping();
        published += 1;
        assert!(published < 10_000, "it never lagged");
    }
    publisher.send(&emit("news", "\"last\""));
    let (mut heard, mut missed) = (0, 0);
    // The gap may include the last event, so the test ends with one more event.
    coalescing.receive_until(|message| match message {
        Message::Event(Event::Publication(_)) => {
            heard += 1;
            false
        }
        Message::Event(Event::Gap {
            name: "news",
            missed: count,
        }) => {
            missed += *count;
            true
        }
        other => panic!("{other:?}"),
    });
    publisher.send(&emit("news", "\"end\""));
    coalescing.receive_until(|message| {
        let Message::Event(Event::Publication(Publication { data, .. })) = message else {
            panic!("{message:?} instead of an event");
        };
        heard += 1;
        *data == Some("\"end\"")
    });
    assert_eq!(heard + missed, published + 2);
    assert_eq!(get(&node.stats(0).slow_disconnects), 0);
}
