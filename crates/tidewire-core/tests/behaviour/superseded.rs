//! Records that another owner has written, and stores that another server has opened: the node drops unsaved writes, waiting
//! clients learn that the outcome is unknown, and subscribers get the stored value.

use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Message, Record, RecordBulk};
use tidewire_core::settings::Settings;
use tidewire_core::store::Version;

use crate::driver::{Node, Seen, foreign, set};

/// A node with a writer and a subscriber of the record `r`, which the store has in version 1.
fn two() -> (Node, SessionId, SessionId) {
    let mut node = Node::new(Settings::default());
    let (writer, reader) = (node.login(), node.login());
    check(&node.ask(writer, &set("r", r#"{"v":1}"#)), &["WriteAck"]);
    let subscribe = Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names: vec!["r"],
        correlation: Some("0"),
    });
    node.ask(reader, &subscribe);
    (node, writer, reader)
}

#[track_caller]
fn check(seen: &Seen, expected: &[&str]) {
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.contains(expected), "{seen} does not say {expected}");
    }
}

#[test]
fn a_record_that_another_owner_has_written_comes_from_the_store_as_a_whole() {
    let (mut node, writer, reader) = two();
    node.store_has("r", foreign(9));
    check(
        &node.ask(writer, &set("r", r#"{"v":2}"#)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(&node.take(reader), &["version: 2", "version: 9"]);
    // The record continues at the stored version.
    check(&node.ask(writer, &set("r", r#"{"v":3}"#)), &["WriteAck"]);
    check(&node.take(reader), &["version: 10"]);
    assert_eq!(node.stored("r").map(|kept| kept.version), Some(Version(10)));
}

#[test]
fn a_record_that_another_owner_has_deleted_is_deleted_for_its_subscribers() {
    let (mut node, writer, reader) = two();
    node.store_loses("r");
    check(
        &node.ask(writer, &set("r", r#"{"v":2}"#)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(&node.take(reader), &["version: 2", "Deleted"]);
    check(&node.ask(writer, &set("r", r#"{"v":3}"#)), &["WriteAck"]);
}

#[test]
fn the_stored_value_is_requested_until_the_store_answers() {
    let (mut node, writer, reader) = two();
    node.store_has("r", foreign(9));
    node.loads_fail = true;
    check(
        &node.ask(writer, &set("r", r#"{"v":2}"#)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    check(&node.take(reader), &["version: 2"]);
    node.pass(Duration::from_secs(5));
    check(&node.take(reader), &[]);
    node.loads_fail = false;
    node.pass(Duration::from_secs(2));
    check(&node.take(reader), &["version: 9"]);
}

#[test]
fn an_unused_record_is_forgotten_and_loaded_on_request() {
    let (mut node, writer, _) = two();
    check(&node.ask(writer, &set("alone", "{}")), &["WriteAck"]);
    node.store_has("alone", foreign(4));
    check(
        &node.ask(writer, &set("alone", r#"{"v":2}"#)),
        &["Error(Refusal { reason: UpdateFailed"],
    );
    let read = Message::Record(Record::Read { name: "alone" });
    check(&node.ask(writer, &read), &["version: 4"]);
}

#[test]
fn a_node_whose_store_was_opened_by_another_writes_nothing_and_shows_what_is_stored() {
    let (mut node, writer, reader) = two();
    node.is_deposed = true;
    for _ in 0..2 {
        check(
            &node.ask(writer, &set("r", r#"{"v":2}"#)),
            &["Error(Refusal { reason: UpdateFailed"],
        );
        check(&node.take(reader), &["version: 2", "version: 1"]);
    }
    let delete = Message::Record(Record::Delete { name: "r" });
    check(
        &node.ask(writer, &delete),
        &["Error(Refusal { reason: DeleteFailed"],
    );
    assert_eq!(node.stored("r").map(|kept| kept.version), Some(Version(1)));
}
