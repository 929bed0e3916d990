//! The cost and content of a denial: it reveals nothing about the record.

use tidewire_core::message::{Change, Message, Record, RecordBulk, Write};
use tidewire_core::permission::Access;
use tidewire_core::settings::Settings;
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::driver::{Node, Seen, set};
use crate::permission::{OWNER, Rule, permission_of};

const NAME: &str = "r";

fn stored(data: &str) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(1),
        version: Version(7),
        data: Payload::from_checked(data),
        write_keys: None,
    }
}

/// A node of two shards with these rules and, if given, the record in its store.
fn node(rules: &[(Access, Rule)], record: Option<&str>) -> Node {
    let mut node = Node::with(2, Settings::default(), permission_of(rules));
    if let Some(data) = record {
        node.store_has(NAME, stored(data));
    }
    node
}

fn write<'a>(version: i32, change: Change<'a>) -> Message<'a> {
    let write = Write {
        name: NAME,
        version,
        correlation: Some("1"),
        write_ack: true,
        key: None,
    };
    Message::Record(Record::Write(write, change))
}

fn patch<'a>(path: &'a str, data: &'a str) -> Message<'a> {
    let data = Some(data);
    write(-1, Change::Patch { path, data })
}

fn read() -> Message<'static> {
    Message::Record(Record::Read { name: NAME })
}

fn subscribe(action: RecordBulk) -> Message<'static> {
    Message::Record(Record::Bulk {
        action,
        names: vec![NAME],
        correlation: Some("1"),
    })
}

#[track_caller]
fn is_one(seen: &Seen, part: &str) {
    assert!(
        matches!(&seen[..], [one] if one.contains(part)),
        "{part}: {seen:?}"
    );
}

/// A document of nearly the maximum size of a record.
fn large() -> String {
    let bytes_max = Settings::default().limits.record_bytes_max;
    format!(
        "{{\"list\":[1],\"text\":\"{}\"}}",
        "x".repeat(bytes_max - 60)
    )
}

#[test]
fn a_denied_patch_does_not_reveal_the_record() {
    let large = large();
    let long = format!("\"{}\"", "y".repeat(100));
    let records = [
        None,
        Some("{}"),
        Some("[]"),
        Some("{\"list\":{}}"),
        Some(&large),
    ];
    let patches = [
        patch("list.length", "\"none\""),
        patch("list.length", "1"),
        patch("text", "1"),
        patch("text2", &long),
        patch("list[2]", "1"),
    ];
    // The shard can't evaluate the last rule before it has applied the patch.
    for rule in [Rule::Deny, Rule::Fail, Rule::Record("gate"), Rule::New] {
        let rules = [
            (Access::RecordWrite, rule),
            (Access::RecordRead, Rule::Deny),
        ];
        for patch in &patches {
            let answers = records.map(|record| {
                let mut node = node(&rules, record);
                let session = node.login();
                node.ask(session, patch)
            });
            for answer in &answers {
                assert_eq!(answer, &answers[0], "{rule:?} {patch:?}");
            }
            let expected = match rule {
                Rule::Fail => "RuleFailed",
                _ => "Denied",
            };
            is_one(&answers[0], expected);
        }
    }
}

#[test]
fn a_session_that_may_read_the_record_learns_why_a_patch_fails() {
    for rule in [Rule::Allow, Rule::New] {
        let mut node = node(&[(Access::RecordWrite, rule)], Some("{\"list\":[1]}"));
        let session = node.login();
        is_one(
            &node.ask(session, &patch("list.length", "\"none\"")),
            "InvalidData",
        );
    }
    // A session that may write the record learns that the write failed.
    let mut node = node(&[(Access::RecordRead, Rule::Deny)], Some("{\"list\":[1]}"));
    let session = node.login();
    is_one(
        &node.ask(session, &patch("list.length", "\"none\"")),
        "InvalidData",
    );
}

#[test]
fn a_denial_that_needs_no_record_loads_and_keeps_none() {
    let rules = [
        (Access::RecordRead, Rule::Deny),
        (Access::RecordWrite, Rule::Fail),
        (Access::RecordDelete, Rule::Record("gate")),
    ];
    let mut node = node(&rules, Some("{}"));
    let session = node.login();
    node.ask(session, &Message::Record(Record::Read { name: "other" }));
    for message in [
        read(),
        Message::Record(Record::Head { name: NAME }),
        subscribe(RecordBulk::SubscribeCreateAndRead),
        subscribe(RecordBulk::Subscribe),
        patch("a", "1"),
        set(NAME, "{}"),
    ] {
        node.ask(session, &message);
        assert_eq!(node.take_loads(), [], "{message:?}");
    }
    // The node reads the gate, but not the record behind it.
    let delete = Message::Record(Record::Delete { name: NAME });
    is_one(&node.ask(session, &delete), "Denied");
    assert_eq!(node.take_loads(), ["gate".into()]);
    let records: usize = (0..2).map(|shard| node.counts(shard).records).sum();
    assert_eq!(records, 1, "the gate");
}

#[test]
fn a_denial_does_not_wait_for_a_load_of_another_request() {
    let rules = [(Access::RecordWrite, Rule::Deny)];
    let mut node = node(&rules, Some("{}"));
    let (reader, writer) = (node.login(), node.login());
    node.store_hangs = true;
    assert!(node.ask(reader, &read()).is_empty());
    is_one(&node.ask(writer, &patch("a", "1")), "Denied");
    node.answer_store();
    is_one(&node.take(reader), "ReadResponse");
}

#[test]
fn rules_of_records_that_read_one_another_find_them_both() {
    for (fails, expected) in [(false, "ReadResponse"), (true, "RuleFailed")] {
        let rules = [(Access::RecordRead, Rule::Record(NAME))];
        let mut node = node(&rules, Some("{\"open\":true}"));
        let (first, second) = (node.login_on(0), node.login_on(1));
        node.store_hangs = true;
        node.loads_fail = fails;
        let other = Message::Record(Record::Read { name: "other" });
        assert!(node.ask(first, &other).is_empty());
        assert!(node.ask(second, &read()).is_empty());
        node.answer_store();
        let seen = node.take(first);
        match fails {
            true => is_one(&seen, expected),
            false => is_one(&seen, "NotFound"),
        }
        let seen = node.take(second);
        match fails {
            true => is_one(&seen, "Load"),
            false => is_one(&seen, expected),
        }
    }
}

#[test]
fn a_rule_that_fails_because_of_the_record_denies_sessions_that_may_not_read_it() {
    let cases = [
        // The record or `None`, the rule for writing, the rule for reading, and the session's answer.
        (None, Rule::Old, Rule::Deny, "Denied"),
        (Some("{}"), Rule::Old, Rule::Deny, "Denied"),
        (None, Rule::Old, Rule::Old, "Denied"),
        (Some("{}"), Rule::Old, Rule::Old, "Denied"),
        (None, Rule::Old, Rule::Allow, "RuleFailed"),
        (Some("{}"), Rule::Old, Rule::Allow, "Denied"),
        (None, Rule::Fail, Rule::Deny, "RuleFailed"),
        (Some("{}"), Rule::Fail, Rule::Deny, "RuleFailed"),
    ];
    for (record, rule, reading, expected) in cases {
        let rules = [
            (Access::RecordWrite, rule),
            (Access::RecordDelete, rule),
            (Access::RecordRead, reading),
        ];
        let mut node = node(&rules, record);
        let session = node.login();
        for message in [
            patch("a", "1"),
            set(NAME, "{}"),
            Message::Record(Record::Delete { name: NAME }),
        ] {
            is_one(&node.ask(session, &message), expected);
        }
    }
    for record in [None, Some("{}")] {
        let mut node = node(&[(Access::RecordRead, Rule::Old)], record);
        let session = node.login();
        is_one(&node.ask(session, &read()), "Denied");
    }
}

#[test]
fn a_session_that_may_not_read_a_record_does_not_create_it_by_opening_it() {
    for rule in [Rule::Deny, Rule::Old] {
        let mut node = node(&[(Access::RecordRead, rule)], None);
        let session = node.login();
        let seen = node.ask(session, &subscribe(RecordBulk::SubscribeCreateAndRead));
        assert!(
            seen.len() == 2 && seen[1].contains("Denied"),
            "an ack and a denial: {seen:?}"
        );
        assert!(node.stored(NAME).is_none());
    }
}

/// Whether the answer to a write of an old version has the value depends on the session's right to read.
#[test]
fn a_version_conflict_has_the_value_for_sessions_that_may_read_it() {
    let open = "{\"open\":true}";
    let cases = [
        (Rule::Allow, Some(open), true),
        (Rule::Deny, Some(open), false),
        (Rule::Fail, Some(open), false),
        (Rule::Old, Some(open), true),
        (Rule::Old, Some("{\"open\":false}"), false),
        (Rule::Record("gate"), Some(open), false),
        (Rule::Record("wide"), Some(open), true),
        (Rule::Allow, None, true),
        (Rule::Deny, None, false),
        (Rule::Old, None, false),
    ];
    for writing in [Rule::Allow, Rule::New, Rule::Record("wide")] {
        for (reading, record, has_value) in cases {
            let rules = [
                (Access::RecordWrite, writing),
                (Access::RecordRead, reading),
            ];
            let mut node = node(&rules, record);
            node.store_has("wide", stored(open));
            let session = node.login();
            for change in [
                Change::CreateAndUpdate { data: Some(open) },
                Change::CreateAndPatch {
                    path: Some("open"),
                    data: Some("true"),
                },
            ] {
                // The write creates a missing record with version 0, so this version always exists.
                let seen = node.ask(session, &write(0, change));
                is_one(&seen, "VersionExists");
                let has = seen[0].contains("data: Some(");
                let hides = seen[0].contains("data: None");
                assert_eq!(
                    (has, hides),
                    (has_value, !has_value),
                    "{reading:?}: {seen:?}"
                );
                let version = if record.is_some() { 7 } else { 0 };
                assert!(
                    seen[0].contains(&format!("version: Some({version})")),
                    "{seen:?}"
                );
            }
        }
    }
}

#[test]
fn denials_of_a_bulk_message_leave_in_the_order_of_its_names() {
    // More names than the server sends in one step.
    let names: Vec<String> = (0..900).map(|number| format!("r{number}")).collect();
    let open = "{\"open\":true}";
    for is_mixed in [false, true] {
        let mut node = node(&[(Access::RecordRead, Rule::Old)], None);
        for (index, name) in names.iter().enumerate() {
            match index % 3 {
                0 if is_mixed => node.store_has(name, stored(open)),
                1 => node.store_has(name, stored("{\"open\":false}")),
                _ => {}
            }
        }
        // Some records are in memory, the last ones first.
        let owner = node.login_as_user(1, OWNER);
        for name in names.iter().rev().step_by(5) {
            node.ask(owner, &Message::Record(Record::Read { name }));
        }
        let session = node.login();
        for action in [RecordBulk::Subscribe, RecordBulk::SubscribeAndRead] {
            let message = Message::Record(Record::Bulk {
                action,
                names: names.iter().map(String::as_str).collect(),
                correlation: Some("1"),
            });
            let mut seen = node.ask(session, &message);
            while node.turn() {}
            seen.extend(node.take(session));
            let denied: Vec<&String> = seen.iter().filter(|one| one.contains("Denied")).collect();
            let expected = names.iter().enumerate();
            let expected: Vec<&String> = expected
                .filter(|(index, _)| !is_mixed || index % 3 > 0)
                .map(|(_, name)| name)
                .collect();
            assert_eq!(denied.len(), expected.len());
            for (denial, name) in denied.iter().zip(expected) {
                assert!(denial.contains(&format!("\"{name}\"")), "{name}: {denial}");
            }
            let is_ack = |one: &String| one.contains("Record(Ack");
            let acks: Vec<usize> = (0..seen.len()).filter(|at| is_ack(&seen[*at])).collect();
            match (action, is_mixed) {
                (RecordBulk::Subscribe, false) => assert!(acks.is_empty()),
                (RecordBulk::Subscribe, true) => assert_eq!(acks, [seen.len() - 1]),
                _ => assert_eq!(acks, [0]),
            }
            let values = seen.iter().filter(|one| one.contains("ReadResponse"));
            let is_read = is_mixed && action == RecordBulk::SubscribeAndRead;
            assert_eq!(values.count(), if is_read { 300 } else { 0 });
        }
        let pending_replies: usize = (0..2).map(|shard| node.counts(shard).pending_replies).sum();
        assert_eq!(pending_replies, 0);
    }
}
