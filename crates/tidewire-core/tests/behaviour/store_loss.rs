//! Stores that have lost acknowledged writes: the owner writes them again from memory, and no client notices it.

use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Message, Record};
use tidewire_core::permission::AllowAll;
use tidewire_core::settings::Settings;
use tidewire_core::store::{StoredRecord, Version};

use crate::driver::{Node, foreign, set};

const SHARDS: u16 = 2;
/// More records than the owner loads at the same time.
const MANY: usize = 600;

/// A node in a view, with a client.
fn joined() -> (Node, SessionId) {
    let mut node = Node::with(SHARDS, Settings::default(), Arc::new(AllowAll));
    node.adopt(1, "primary");
    let client = node.login();
    (node, client)
}

#[track_caller]
fn write(node: &mut Node, client: SessionId, name: &str, data: &str) {
    let seen = node.ask(client, &set(name, data));
    assert!(seen.len() == 1 && seen[0].contains("WriteAck"), "{seen:#?}");
}

fn stored(node: &Node, name: &str) -> StoredRecord {
    node.stored(name).expect("the record is stored").clone()
}

/// Takes turns until the comparison is complete.
fn compare(node: &mut Node) {
    for _ in 0..2 * MANY {
        if !node.turn() {
            return;
        }
    }
    panic!("the comparison does not end");
}

fn written_again(node: &Node) -> u64 {
    let shards = 0..usize::from(SHARDS);
    shards.map(|shard| node.counts(shard).written_again).sum()
}

#[test]
fn records_that_another_generation_of_the_store_lacks_are_written_again() {
    let (mut node, client) = joined();
    for number in 0..MANY {
        write(&mut node, client, &format!("kept/{number}"), "{}");
        write(&mut node, client, &format!("old/{number}"), r#"{"v":1}"#);
    }
    write(&mut node, client, "deleted", "{}");
    let before: Vec<_> = (0..MANY)
        .map(|number| stored(&node, &format!("old/{number}")))
        .collect();
    let deleted = stored(&node, "deleted");
    for number in 0..MANY {
        write(&mut node, client, &format!("old/{number}"), r#"{"v":2}"#);
        write(&mut node, client, &format!("new/{number}"), "{}");
    }
    node.ask(client, &Message::Record(Record::Delete { name: "deleted" }));
    let wanted: Vec<_> = (0..MANY)
        .flat_map(|number| ["kept", "old", "new"].map(|prefix| format!("{prefix}/{number}")))
        .map(|name| (name.clone(), stored(&node, &name)))
        .collect();
    for (number, record) in before.into_iter().enumerate() {
        node.store_has(&format!("old/{number}"), record);
        node.store_loses(&format!("new/{number}"));
    }
    node.store_has("deleted", deleted);

    node.adopt(2, "primary");
    compare(&mut node);
    assert_eq!(written_again(&node), 0, "the generation is the same");
    node.adopt(3, "standby");
    compare(&mut node);

    for (name, record) in wanted {
        assert_eq!(node.stored(&name), Some(&record), "{name}");
    }
    assert_eq!(node.stored("deleted"), None);
    assert_eq!(written_again(&node), 2 * MANY as u64 + 1);
    write(&mut node, client, "old/0", r#"{"v":3}"#);
    assert_eq!(stored(&node, "old/0").version, Version(3));
}

#[test]
fn a_subscriber_and_a_reader_do_not_notice_a_comparison() {
    let (mut node, client) = joined();
    let reader = node.login();
    write(&mut node, client, "r", r#"{"v":1}"#);
    let first = stored(&node, "r");
    write(&mut node, client, "r", r#"{"v":2}"#);
    node.ask(
        reader,
        &Message::Record(Record::Bulk {
            action: tidewire_core::message::RecordBulk::SubscribeAndRead,
            names: vec!["r"],
            correlation: Some("0"),
        }),
    );
    node.store_has("r", first);
    node.store_hangs = true;
    node.adopt(2, "standby");
    node.begin_turns();
    // The read waits for the store, as the comparison does.
    let read = Message::Record(Record::Read { name: "r" });
    assert!(node.ask(client, &read).is_empty());
    node.store_hangs = false;
    node.answer_store();
    compare(&mut node);
    let seen = node.take(client);
    assert!(
        seen.len() == 1 && seen[0].contains("version: 2"),
        "{seen:#?}"
    );
    assert!(node.take(reader).is_empty());
    assert_eq!(stored(&node, "r").version, Version(2));
}

#[test]
fn a_write_that_meets_a_store_without_the_last_one_is_written_with_it() {
    let (mut node, client) = joined();
    write(&mut node, client, "r", r#"{"v":1}"#);
    let first = stored(&node, "r");
    write(&mut node, client, "r", r#"{"v":2}"#);
    node.store_has("r", first);
    // Its outcome is unknown for the client.
    let seen = node.ask(client, &set("r", r#"{"v":3}"#));
    assert!(seen[0].contains("UpdateFailed"), "{seen:#?}");
    let stored = stored(&node, "r");
    assert_eq!(
        (stored.version, stored.data.as_str()),
        (Version(3), r#"{"v":3}"#)
    );
    assert_eq!(written_again(&node), 1);
}

#[test]
fn a_later_version_in_another_generation_is_taken() {
    let (mut node, client) = joined();
    write(&mut node, client, "r", r#"{"v":1}"#);
    let later = StoredRecord {
        version: Version(9),
        ..stored(&node, "r")
    };
    node.store_has("r", later.clone());
    node.adopt(2, "standby");
    compare(&mut node);
    let read = Message::Record(Record::Read { name: "r" });
    let seen = node.ask(client, &read);
    assert!(seen[0].contains("version: 9"), "{seen:#?}");
    assert_eq!(stored(&node, "r"), later);
}

#[test]
fn a_store_that_accepts_no_more_writes_gets_none_again() {
    let (mut node, client) = joined();
    write(&mut node, client, "r", r#"{"v":1}"#);
    node.is_deposed = true;
    node.ask(client, &set("r", r#"{"v":2}"#));
    assert_eq!(written_again(&node), 0);
    assert_eq!(stored(&node, "r").version, Version(1));
}

#[test]
fn a_comparison_waits_for_a_store_that_is_down() {
    let (mut node, client) = joined();
    write(&mut node, client, "r", r#"{"v":1}"#);
    node.store_loses("r");
    node.loads_fail = true;
    node.adopt(2, "standby");
    node.begin_turns();
    node.pass(std::time::Duration::from_secs(3));
    assert_eq!(node.stored("r"), None);
    node.loads_fail = false;
    node.pass(std::time::Duration::from_secs(2));
    assert_eq!(stored(&node, "r").version, Version(1));
}

#[test]
fn another_program_that_replaces_a_record_after_the_comparison_is_respected() {
    let (mut node, client) = joined();
    write(&mut node, client, "r", r#"{"v":1}"#);
    node.adopt(2, "standby");
    compare(&mut node);
    node.store_has("r", foreign(9));
    node.ask(client, &set("r", r#"{"v":2}"#));
    let read = Message::Record(Record::Read { name: "r" });
    let seen = node.ask(client, &read);
    assert!(seen[0].contains("version: 9"), "{seen:#?}");
}
