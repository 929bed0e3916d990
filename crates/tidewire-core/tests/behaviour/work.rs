//! Sessions that cost a shard too much: they wait, others do not, and nothing is lost or out of order.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, Principal};
use tidewire_core::message::{Change, Message, Record, RecordBulk, Write};
use tidewire_core::permission::AllowAll;
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::settings::Settings;
use tidewire_core::time::WallTime;

use crate::driver::{Node, set};

/// A record of so many bytes costs more than a session may cost in a turn.
const LARGE: usize = 10_000;

fn node() -> Node {
    let mut settings = Settings::default();
    settings.limits.connection_work_max = LARGE / 2;
    settings.limits.turn_work_max = 2 * LARGE;
    Node::with(3, settings, Arc::new(AllowAll))
}

fn login(node: &mut Node, shard: u16, user: &str) -> SessionId {
    let principal = Principal::new(user.into());
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    node.login_on(shard)
}

fn large() -> String {
    format!(r#"{{"text":"{}"}}"#, "x".repeat(LARGE))
}

/// A node with large records of these names, and whose later turns begin without debts.
fn node_with(names: &[&str]) -> Node {
    let mut node = node();
    let writer = login(&mut node, 0, "writer");
    let large = large();
    for name in names {
        let message = set(name, &large);
        while !node.offer(writer, &message) {
            node.turn();
        }
    }
    while node.turn() {}
    node.take(writer);
    node
}

fn read(name: &str) -> Message<'_> {
    Message::Record(Record::Read { name })
}

fn answers(seen: &[String]) -> usize {
    seen.iter()
        .filter(|one| one.contains("ReadResponse"))
        .count()
}

/// Offers the message `count` times and gives how often it was taken before one had to wait.
fn burst(node: &mut Node, session: SessionId, message: &Message<'_>, count: usize) -> usize {
    (0..count)
        .take_while(|_| node.offer(session, message))
        .count()
}

#[test]
fn a_burst_of_large_reads_waits_and_the_read_of_another_user_does_not() {
    for owner in ["a", "b", "c", "d", "e", "f"] {
        let mut node = node_with(&[owner, "other"]);
        let greedy = login(&mut node, 0, "greedy");
        let bystander = login(&mut node, 0, "bystander");
        let taken = burst(&mut node, greedy, &read(owner), 100);
        assert!(taken < 3, "{taken} reads of {owner} at once");
        assert!(answers(&node.take(greedy)) <= taken);
        assert_eq!(answers(&node.ask(bystander, &read("other"))), 1, "{owner}");
        // It goes on in later turns, one read in each.
        let mut seen = 0;
        let mut left = 100 - taken;
        for _ in 0..1_000 {
            node.turn();
            let count = answers(&node.take(greedy));
            assert!(count <= 2, "{count} reads of {owner} in a turn");
            seen += count;
            if node.is_resumed(greedy) {
                left -= burst(&mut node, greedy, &read(owner), left);
            }
            if left == 0 && seen + taken >= 100 {
                break;
            }
        }
        assert_eq!(left, 0, "{owner}");
        while node.turn() {}
        assert_eq!(node.counts(0).owing, 0);
    }
}

/// How many large reads a user gets answered in 400 turns beside so many sessions of another one that reads as fast as it may.
fn reads_beside(count: usize) -> usize {
    let mut node = node_with(&["a"]);
    let others: Vec<SessionId> = (0..count).map(|_| login(&mut node, 0, "other")).collect();
    let session = login(&mut node, 0, "user");
    let mut answered = 0;
    for _ in 0..400 {
        for other in &others {
            burst(&mut node, *other, &read("a"), 10);
            node.take(*other);
        }
        burst(&mut node, session, &read("a"), 10);
        answered += answers(&node.take(session));
        node.turn();
    }
    answered
}

#[test]
fn turns_pay_for_users_in_turn_however_many_sessions_a_user_has() {
    let (alone, beside) = (reads_beside(0), reads_beside(30));
    assert!(alone > 100, "{alone} reads alone");
    assert!(
        beside * 3 > alone * 2,
        "{beside} reads beside others, {alone} alone"
    );
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let mut node = node_with(&["a"]);
    let session = login(&mut node, 1, "user");
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for number in 0..20 {
        let text = format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(LARGE));
        for message in [set("a", &text), read("a")] {
            while !node.offer(session, &message) {
                node.turn();
            }
        }
        expected.push(format!("\"number\\\":{number},"));
        seen.extend(node.take(session));
    }
    while node.turn() {}
    seen.extend(node.take(session));
    let read: Vec<&String> = seen
        .iter()
        .filter(|one| one.contains("ReadResponse"))
        .collect();
    assert_eq!(read.len(), expected.len());
    for (one, expected) in read.iter().zip(&expected) {
        assert!(
            one.contains(expected),
            "{expected} is not in {}",
            &one[..200]
        );
    }
}

/// A session whose requests an owner on another shard defers, with so many of them.
fn deferring(node: &mut Node, user: &str, message: &Message<'_>) -> SessionId {
    for shard in 0..3 {
        let session = login(node, shard, user);
        node.hold_posts();
        burst(node, session, message, 20);
        node.release_posts();
        if (0..3).any(|shard| node.counts(shard).deferred_bytes > 0) {
            return session;
        }
        while node.turn() {
            if node.is_resumed(session) {
                node.close(session);
            }
        }
    }
    panic!("no owner defers");
}

fn patch<'a>(value: &'a str) -> Message<'a> {
    let write = Write {
        name: "a",
        version: -1,
        correlation: None,
        write_ack: false,
    };
    let path = Some("count");
    Message::Record(Record::Write(
        write,
        Change::CreateAndPatch {
            path,
            data: Some(value),
        },
    ))
}

#[test]
fn the_deferred_writes_of_a_session_that_has_ended_are_made() {
    let mut node = node_with(&["a"]);
    let version = node.stored("a").expect("written").version.0;
    let session = deferring(&mut node, "user", &patch("1"));
    node.close(session);
    for _ in 0..100 {
        node.turn();
    }
    while node.turn() {}
    let made = node.stored("a").expect("written").version.0 - version;
    assert!(made >= 2, "{made} writes");
    for shard in 0..3 {
        assert_eq!(node.counts(shard).deferred_bytes, 0);
        assert_eq!(node.counts(shard).gatherings, 0);
    }
}

#[test]
fn the_deferred_writes_of_a_revoked_user_are_not_made() {
    let mut node = node_with(&["a"]);
    deferring(&mut node, "user", &patch("1"));
    let version = node.stored("a").expect("written").version.0;
    let until = WallTime(node.now.wall.0 + 3_600_000);
    let what = Revoked::User("user".into());
    node.begin_change(RightsChange::Revoke(Revocation { what, until }));
    node.finish_changes();
    for _ in 0..100 {
        node.turn();
    }
    while node.turn() {}
    assert_eq!(node.stored("a").expect("written").version.0, version);
    assert!((0..3).all(|shard| node.counts(shard).deferred_bytes == 0));
}

#[test]
fn deferred_requests_are_bounded_and_those_beyond_are_refused() {
    let mut settings = Settings::default();
    settings.limits.connection_work_max = LARGE / 2;
    settings.limits.deferred_bytes_max = 1_000;
    let mut node = Node::with(3, settings, Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    let name = ["a", "b", "c", "d", "e"].into_iter().find(|name| {
        node.send(session, &set(name, &large()));
        while node.turn() {}
        node.hold_posts();
        burst(&mut node, session, &read(name), 20);
        node.release_posts();
        while node.turn() {}
        (0..3).any(|shard| node.counts(shard).refused.deferred > 0)
    });
    assert!(name.is_some());
    let seen = node.take(session).join(" ");
    assert!(
        seen.contains("Load("),
        "{}",
        &seen[seen.len().saturating_sub(500)..]
    );
}

#[test]
fn waiting_for_a_slow_reader_ends_when_it_has_read() {
    let mut node = node_with(&["a"]);
    let session = login(&mut node, 0, "user");
    burst(&mut node, session, &read("a"), 10);
    assert!(!node.offer(session, &read("a")));
    // Its debt is paid, but it does not read its answers.
    for _ in 0..10 {
        node.begin_turns();
    }
    assert!(!node.is_resumed(session));
    node.pass(Duration::from_secs(1));
    assert!(!node.is_resumed(session));
    while node.turn() {}
    assert!(node.is_resumed(session));
}

#[test]
fn many_names_of_one_message_are_granted_in_later_turns_and_acknowledged_once() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut node = node_with(&names);
    let session = login(&mut node, 0, "user");
    let subscribe = Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names: names.to_vec(),
        correlation: Some("1"),
    });
    let mut seen = node.ask(session, &subscribe);
    assert!(answers(&seen) < names.len());
    while node.turn() {
        seen.extend(node.take(session));
    }
    seen.extend(node.take(session));
    assert_eq!(answers(&seen), names.len());
    let acknowledged = seen.iter().filter(|one| one.contains("Ack {")).count();
    assert_eq!(acknowledged, 1);
}
