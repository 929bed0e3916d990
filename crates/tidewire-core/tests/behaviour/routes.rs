//! Records with routes to another store: each store has only its own records, and a store that is down delays no other. Records of one
//! tag have one owner.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Message, Record, RecordBulk};
use tidewire_core::permission::AllowAll;
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::settings::Settings;
use tidewire_core::slot::TagRules;

use crate::driver::{Node, Seen, set};

const LOGS: StoreId = StoreId(1);

/// A node with a second store for names under `logs/`, except `logs/here/`.
fn routed(change: impl FnOnce(&mut Settings)) -> (Node, SessionId) {
    let mut settings = Settings {
        routes: StoreRoutes::new([("logs/", LOGS), ("logs/here/", StoreId::DEFAULT)]),
        ..Settings::default()
    };
    change(&mut settings);
    let mut node = Node::new(settings);
    let session = node.login();
    (node, session)
}

fn read(name: &str) -> Message<'_> {
    Message::Record(Record::Read { name })
}

fn delete(name: &str) -> Message<'_> {
    Message::Record(Record::Delete { name })
}

#[track_caller]
fn check(seen: &Seen, expected: &[&str]) {
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.contains(expected), "{seen} does not say {expected}");
    }
}

/// Whether each of the two stores has the record.
fn kept(node: &Node, name: &str) -> (bool, bool) {
    let is_in = |store| node.stored_in(store, name).is_some();
    (is_in(StoreId::DEFAULT), is_in(LOGS))
}

#[test]
fn a_record_is_stored_only_in_the_store_of_its_longest_prefix() {
    let (mut node, session) = routed(|_| ());
    for (name, expected) in [
        ("a", (true, false)),
        ("logs", (true, false)),
        ("logs/", (false, true)),
        ("logs/a", (false, true)),
        ("logs/here/a", (true, false)),
    ] {
        check(&node.ask(session, &set(name, "{}")), &["WriteAck"]);
        assert_eq!(kept(&node, name), expected, "{name}");
        check(&node.ask(session, &delete(name)), &["DeleteSuccess"]);
        assert_eq!(kept(&node, name), (false, false), "{name}");
    }
}

#[test]
fn a_record_is_read_from_the_store_of_its_prefix() {
    let (mut node, session) = routed(|limits| limits.limits.cache_bytes_max = 0);
    check(&node.ask(session, &set("logs/a", "{}")), &["WriteAck"]);
    assert_eq!(node.counts(0).records, 0, "it was evicted");
    check(&node.ask(session, &read("logs/a")), &["version: 1"]);
    node.down.insert(LOGS);
    check(
        &node.ask(session, &read("logs/a")),
        &["Error(Refusal { reason: LoadFailed"],
    );
    check(
        &node.ask(session, &read("a")),
        &["Error(Refusal { reason: NotFound"],
    );
}

#[test]
fn incarnations_count_the_openings_of_the_records_own_store() {
    let (mut node, session) = routed(|_| ());
    let mut incarnations = Vec::new();
    for name in ["a", "logs/a"] {
        check(&node.ask(session, &set(name, "{}")), &["WriteAck"]);
        let stored = node.stored(name).expect("it was written");
        incarnations.push(stored.incarnation.0 >> 42);
    }
    // The driver's stores are in their first and in their second opening.
    assert_eq!(incarnations, [1, 2]);
}

#[test]
fn a_store_that_is_down_does_not_delay_writes_to_another() {
    let (mut node, session) = routed(|_| ());
    check(&node.ask(session, &set("logs/cached", "{}")), &["WriteAck"]);
    node.down.insert(LOGS);
    check(&node.ask(session, &set("logs/cached", r#"{"v":2}"#)), &[]);
    for version in 1..=3 {
        let value = format!(r#"{{"v":{version}}}"#);
        check(&node.ask(session, &set("a", &value)), &["WriteAck"]);
    }
    // The server reads records in memory as before, and can't load others.
    check(&node.ask(session, &read("logs/cached")), &["version: 2"]);
    check(
        &node.ask(session, &read("logs/other")),
        &["Error(Refusal { reason: LoadFailed"],
    );
    let dirty: Vec<usize> = node.dirty_by_store(0);
    assert_eq!(dirty, [0, 1]);
    // A client that waits too long learns that the outcome is unknown. The node commits the write as soon as the store is back.
    node.pass(Settings::default().write_timeout + Duration::from_secs(1));
    check(
        &node.take(session),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    node.down.remove(&LOGS);
    node.pass(Duration::from_secs(10));
    assert_eq!(node.dirty_by_store(0), [0, 0]);
    let stored = node.stored("logs/cached").expect("it was committed");
    assert_eq!(stored.data.as_str(), r#"{"v":2}"#);
}

#[test]
fn the_limits_of_waiting_writes_apply_to_each_store() {
    let (mut node, session) = routed(|settings| settings.limits.dirty_records_max = 1);
    check(&node.ask(session, &set("logs/a", "{}")), &["WriteAck"]);
    check(&node.ask(session, &set("logs/b", "{}")), &["WriteAck"]);
    node.down.insert(LOGS);
    check(&node.ask(session, &set("logs/a", "{}")), &[]);
    check(
        &node.ask(session, &set("logs/b", "{}")),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(&node.ask(session, &set("a", "{}")), &["WriteAck"]);
    check(&node.ask(session, &set("b", "{}")), &["WriteAck"]);
}

#[test]
fn of_several_records_in_one_message_those_of_a_store_that_is_up_are_given() {
    let (mut node, session) = routed(|_| ());
    node.down.insert(LOGS);
    let subscribe = Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: vec!["logs/a", "a"],
        correlation: Some("7"),
    });
    let seen = node.ask(session, &subscribe);
    let has = |part: &str| seen.iter().any(|message| message.contains(part));
    assert!(
        has("Error(Refusal { reason: LoadFailed") && has("name: \"a\""),
        "{seen:#?}"
    );
    assert_eq!(kept(&node, "a"), (true, false));
    assert_eq!(kept(&node, "logs/a"), (false, false));
}

#[test]
fn records_of_one_prefix_have_one_owner_if_it_selects_their_slot() {
    let owners = |prefix: &str| {
        let settings = Settings {
            tags: TagRules::new(["orders"]),
            ..Settings::default()
        };
        let mut node = Node::with(4, settings, Arc::new(AllowAll));
        let session = node.login();
        for number in 0..40 {
            let name = format!("{prefix}/{number}/note");
            check(&node.ask(session, &set(&name, "{}")), &["WriteAck"]);
        }
        (0..4)
            .filter(|shard| node.counts(*shard).records > 0)
            .count()
    };
    assert_eq!(owners("orders/7"), 1);
    assert_eq!(owners("orders"), 4);
    assert_eq!(owners("carts/7"), 4);
}
