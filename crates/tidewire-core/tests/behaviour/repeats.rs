//! Acknowledged writes that a client repeats.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::latency::{LatencyCounts, latency_index};
use tidewire_core::message::{Change, Message, Record, Write, WriteKey};
use tidewire_core::permission::AllowAll;
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::store::WRITE_KEYS_KEPT;

use crate::driver::{Node, Seen, foreign};

/// A repeatable write that sets `path` to 1 in the next version, whatever that is.
fn append<'a>(key: &'a str, path: &'a str) -> Message<'a> {
    let write = Write {
        name: "r",
        version: -1,
        correlation: Some("7"),
        write_ack: true,
        key: Some(WriteKey::new(key)),
    };
    let change = Change::CreateAndPatch {
        path: Some(path),
        data: Some("1"),
    };
    Message::Record(Record::Write(write, change))
}

fn node() -> Node {
    Node::with(2, Settings::default(), Arc::new(AllowAll))
}

#[track_caller]
fn acknowledged(seen: &Seen) {
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(
        seen[0].contains("WriteAck") && seen[0].contains("\"7\""),
        "{seen:?}"
    );
}

fn version(node: &Node) -> u32 {
    node.stored("r").map_or(0, |record| record.version.0)
}

#[test]
fn a_repeated_write_is_made_once_and_answered_each_time() {
    let mut node = node();
    let (first, second) = (node.login_on(0), node.login_on(1));
    acknowledged(&node.ask(first, &append("k1", "a")));
    acknowledged(&node.ask(second, &append("k1", "a")));
    assert_eq!(version(&node), 1);
    acknowledged(&node.ask(second, &append("k2", "b")));
    acknowledged(&node.ask(first, &append("k1", "a")));
    assert_eq!(version(&node), 2);
}

#[test]
fn a_repetition_is_answered_when_the_first_is_durable_and_not_before() {
    let mut node = node();
    let (first, second) = (node.login_on(0), node.login_on(1));
    acknowledged(&node.ask(first, &append("k0", "a")));
    node.store_hangs = true;
    assert_eq!(node.ask(first, &append("k1", "a")).len(), 0);
    node.close(first);
    assert_eq!(node.ask(second, &append("k1", "a")).len(), 0);
    node.answer_store();
    acknowledged(&node.take(second));
    assert_eq!(version(&node), 2);
}

#[test]
fn each_acknowledgement_is_counted_by_the_time_since_its_own_request() {
    let mut node = node();
    let (first, second) = (node.login_on(0), node.login_on(1));
    acknowledged(&node.ask(first, &append("k0", "a")));
    node.store_hangs = true;
    assert_eq!(node.ask(first, &append("k1", "a")).len(), 0);
    node.pass(Duration::from_millis(100));
    assert_eq!(node.ask(second, &append("k1", "a")).len(), 0);
    node.pass(Duration::from_millis(30));
    node.answer_store();
    acknowledged(&node.take(first));
    acknowledged(&node.take(second));
    let mut expected = LatencyCounts::default();
    for millis in [0, 130, 30] {
        expected[latency_index(Duration::from_millis(millis))] += 1;
    }
    let [one, other] = [0, 1].map(|shard| node.counts(shard).acknowledgements);
    let found: Vec<u64> = one
        .iter()
        .zip(other)
        .map(|(one, other)| one + other)
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_refused_write_is_authorized_again_when_repeated() {
    let mut node = node();
    let session = node.login();
    let update = |version| {
        let write = Write {
            name: "r",
            version,
            correlation: Some("7"),
            write_ack: true,
            key: Some(WriteKey::new("k")),
        };
        let change = Change::CreateAndUpdate { data: Some("{}") };
        Message::Record(Record::Write(write, change))
    };
    let seen = node.ask(session, &update(2));
    assert!(seen[0].contains("InvalidVersion"), "{seen:?}");
    acknowledged(&node.ask(session, &update(1)));
    // The version is the version of the first write, which took effect, so there is no conflict.
    acknowledged(&node.ask(session, &update(1)));
    assert_eq!(version(&node), 1);
}

#[test]
fn after_another_owners_write_only_unstored_writes_are_made_again() {
    let mut node = node();
    let session = node.login();
    acknowledged(&node.ask(session, &append("k1", "a")));
    node.store_has("r", foreign(9));
    let lost = node.ask(session, &append("k2", "b"));
    assert!(
        lost[0].contains("Error(Refusal { reason: UpdateFailed"),
        "{lost:?}"
    );
    acknowledged(&node.ask(session, &append("k2", "b")));
    assert_eq!(version(&node), 10);
    // The write `k1` was already stored, so the record keeps the changes of the other owner and of the second write.
    acknowledged(&node.ask(session, &append("k1", "a")));
    assert_eq!(version(&node), 10);
    let stored = node.stored("r").expect("it is there");
    assert_eq!(stored.data.as_str(), r#"{"foreign":true,"b":1}"#);
}

#[test]
fn keys_are_bounded_in_length_number_and_age() {
    let mut settings = Settings::default();
    settings.limits.write_keys_max = 2;
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let session = node.login();
    let long = "k".repeat(129);
    let refused = node.ask(session, &append(&long, "a"));
    assert!(refused[0].contains("InvalidData"), "{refused:?}");
    for number in 0..=WRITE_KEYS_KEPT {
        acknowledged(&node.ask(session, &append(&format!("k{number}"), "a")));
    }
    assert_eq!(node.counts(0).write_keys, 2);
    let before = version(&node);
    // The memory of recent keys has forgotten this write, but the record has its key.
    acknowledged(&node.ask(session, &append("k1", "a")));
    assert_eq!(version(&node), before);
    // Neither has the first key, and the client does not state which version it had seen, so the write is made again.
    acknowledged(&node.ask(session, &append("k0", "a")));
    assert_eq!(version(&node), before + 1);
    node.pass(Duration::from_secs(601));
    acknowledged(&node.ask(session, &append("k9", "a")));
    assert_eq!(node.counts(0).write_keys, 1);
}

/// One user sends far more keyed writes than the server remembers. A repeated write of another user must still take effect only
/// once.
fn flooded(node: &mut Node, victim: SessionId, flooder: SessionId) {
    acknowledged(&node.ask(victim, &append("mine", "a")));
    let before = version(node);
    for number in 0..200 {
        let key = format!("k{number}");
        acknowledged(&node.ask(flooder, &append(&key, "b")));
    }
    acknowledged(&node.ask(victim, &append("mine", "a")));
    assert_eq!(version(node), before + 200, "the repetition was made again");
    assert_eq!(node.counts(0).write_keys, 50);
}

fn small_memory() -> Node {
    let mut settings = Settings::default();
    settings.limits.write_keys_max = 50;
    Node::with(1, settings, Arc::new(AllowAll))
}

#[test]
fn a_user_with_many_keys_makes_the_server_forget_none_of_another_user() {
    let mut node = small_memory();
    let login = |node: &mut Node, user: &str| {
        let principal = Arc::new(Principal::new(user.into()));
        node.login_outcome = Some(AuthOutcome::Accepted(principal));
        node.login()
    };
    let (ann, bob) = (login(&mut node, "ann"), login(&mut node, "bob"));
    flooded(&mut node, ann, bob);
}

#[test]
fn sessions_without_a_name_keep_their_keys_from_each_other() {
    let mut node = small_memory();
    let (first, second) = (node.login(), node.login());
    flooded(&mut node, first, second);
}
