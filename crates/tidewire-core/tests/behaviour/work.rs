//! Sessions that cost a shard too much: they wait, other sessions do not, and all messages arrive in order.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::identity::{NAMELESS, OPEN};
use tidewire_core::message::{Change, Event, Message, Presence, Record, RecordBulk, Rpc, Write};
use tidewire_core::permission::{Access, AllowAll};
use tidewire_core::principal::Principal;
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::settings::Settings;
use tidewire_core::time::WallTime;

use crate::driver::{Node, set};
use crate::permission::{Rule, permission_of};

/// A record of this many bytes costs more than a session may use in a turn.
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

/// A node with large records of these names. Its later turns begin without work to pay.
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

/// Offers the message up to `count` times. Returns how many the shard took before one had to wait.
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
        // The session continues in later turns, with about one read in each.
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

/// How many small reads a shard takes from a session in one turn, in which another session may have read before.
fn small_reads_in_a_turn(has_neighbour: bool) -> usize {
    let mut node = node();
    let session = login(&mut node, 0, "user");
    let neighbour = login(&mut node, 0, "neighbour");
    node.ask(session, &set("small", "{}"));
    while node.turn() {}
    node.turn();
    if has_neighbour {
        assert!(node.offer(neighbour, &read("small")));
    }
    burst(&mut node, session, &read("small"), 100)
}

#[test]
fn a_session_may_use_a_whole_turn_while_no_other_one_needs_it() {
    let (alone, shared) = (small_reads_in_a_turn(false), small_reads_in_a_turn(true));
    assert!(shared > 1, "{shared} reads");
    assert!(
        alone > 2 * shared,
        "{alone} reads alone, {shared} with a neighbour"
    );
    assert!(alone < 100, "{alone} reads in a turn");
}

/// One session of another user at another address.
const ONE: [(&str, u16); 1] = [("one other", 9)];

/// Number of large reads that the server answers to a session of this user and origin in 400 turns, while other sessions read as
/// fast as they can.
fn reads_among((user, origin): (&str, u16), others: &[(&str, u16)]) -> usize {
    let mut node = node_with(&["a"]);
    let mut open = |(user, origin): (&str, u16)| {
        let session = login(&mut node, 0, user);
        node.set_origin(session, origin);
        session
    };
    let others: Vec<SessionId> = others.iter().map(|other| open(*other)).collect();
    let session = open((user, origin));
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
fn users_share_the_work_equally_however_many_sessions_each_has() {
    let user = ("user", 1);
    let (shared, contended) = (
        reads_among(user, &ONE),
        reads_among(user, &[("other", 1); 30]),
    );
    assert!(shared > 100, "{shared} reads next to one session");
    assert!(
        contended * 3 > shared * 2,
        "{contended} reads next to 30 sessions, {shared} next to one"
    );
}

#[test]
fn sessions_without_a_name_share_with_those_of_their_address() {
    for nameless in [OPEN, NAMELESS] {
        let many = [(nameless, 1); 30];
        // A user, and a session without a name at another address, get about as many reads as with one other session.
        for who in [("user", 1), (nameless, 2)] {
            let (shared, contended) = (reads_among(who, &ONE), reads_among(who, &many));
            assert!(
                contended * 3 > shared * 2,
                "{who:?}: {contended} reads next to 30 sessions, {shared} next to one"
            );
        }
        // Each session without a name at the same address gets a part of the address's share.
        let (one, shared) = (
            reads_among((nameless, 1), &many),
            reads_among((nameless, 1), &ONE),
        );
        assert!(
            one > 0 && one * 40 > shared && one * 4 < shared,
            "{one} reads of one, {shared} next to one session"
        );
        // Without an address, each session has its own share.
        let unknown = reads_among(("user", 0), &[(nameless, 0); 30]);
        let shared = reads_among(("user", 0), &ONE);
        assert!(
            unknown * 4 < shared,
            "{unknown} reads, {shared} next to one session"
        );
    }
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

/// A session that sends requests until an owner on another shard defers some of them.
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
        key: None,
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
        assert_eq!(node.counts(shard).pending_replies, 0);
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
    settings.limits.turn_work_max = LARGE / 2;
    settings.limits.deferred_bytes_max = 300;
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
        seen.contains("LoadFailed"),
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
    // The session's work is paid, but the session does not read its answers.
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

/// More names than take effect in one turn.
const MANY: usize = 3_000;

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n/{number}")).collect()
}

fn bulk_messages<'a>(names: &[&'a str]) -> Vec<(&'static str, Message<'a>)> {
    let names = names.to_vec();
    let correlation = Some("1");
    let record = |action| {
        let names = names.clone();
        Message::Record(Record::Bulk {
            action,
            names,
            correlation,
        })
    };
    let event = Event::Subscribe {
        names: names.clone(),
        correlation,
        positions: Vec::new(),
    };
    let no_event = Event::Unsubscribe {
        names: names.clone(),
        correlation,
    };
    let provide = Rpc::Provide {
        names: names.clone(),
        correlation,
    };
    let unprovide = Rpc::Unprovide {
        names: names.clone(),
        correlation,
    };
    let user = Presence::Subscribe {
        names: names.clone(),
        correlation,
    };
    let no_user = Presence::Unsubscribe {
        names: names.clone(),
        correlation,
    };
    let query = Presence::Query {
        names: names.clone(),
        correlation,
    };
    vec![
        ("Ack", Message::Event(event)),
        ("Ack", Message::Event(no_event)),
        ("Ack", Message::Rpc(provide)),
        ("Ack", Message::Rpc(unprovide)),
        ("Ack", Message::Presence(user)),
        ("Ack", Message::Presence(no_user)),
        ("QueryResponse", Message::Presence(query)),
        ("Ack", record(RecordBulk::Subscribe)),
        ("Ack", record(RecordBulk::Unsubscribe)),
        ("Ack", record(RecordBulk::SubscribeCreateAndRead)),
        ("Ack", record(RecordBulk::Unsubscribe)),
    ]
}

/// Runs turns until no work is left, and returns the messages that the session received.
fn finish(node: &mut Node, session: SessionId) -> Vec<String> {
    let mut seen = Vec::new();
    while node.turn() {
        seen.extend(node.take(session));
    }
    seen.extend(node.take(session));
    seen
}

#[test]
fn a_message_of_many_names_takes_effect_in_several_turns_and_is_answered_once() {
    let names = numbered(MANY);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = Node::with(3, Settings::default(), Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    let bystander = login(&mut node, 0, "bystander");
    node.ask(bystander, &set("other", "{}"));
    for (answer, message) in bulk_messages(&names) {
        let shown = format!("{message:?}").chars().take(40).collect::<String>();
        assert!(node.offer(session, &message), "{shown}");
        assert!(!node.offer(session, &read("other")), "{shown} is done");
        assert_eq!(answers(&node.ask(bystander, &read("other"))), 1, "{shown}");
        // The shard acknowledges reads before their answers.
        let reads = shown.contains("SubscribeCreateAnd");
        let has_answer = |one: &String| one.contains(answer) && one.contains("Some(\"1\")");
        let first = node.take(session);
        let early = first.iter().filter(|one| has_answer(one)).count();
        assert_eq!(early, usize::from(reads), "{shown} was answered too early");
        let mut seen = finish(&mut node, session);
        let late = seen.iter().filter(|one| has_answer(one)).count();
        assert_eq!(early + late, 1, "{shown}");
        if reads {
            seen.extend(first);
            assert_eq!(answers(&seen), MANY, "{shown}");
        }
        assert!(node.is_resumed(session), "{shown}");
        assert!(node.offer(session, &read("other")), "{shown}");
        assert_eq!(answers(&finish(&mut node, session)), 1, "{shown}");
    }
    // All subscriptions have ended again.
    for shard in 0..3 {
        let counts = node.counts(shard);
        assert_eq!((counts.pending_replies, counts.owing), (0, 0));
        assert_eq!((counts.subscribed_names, counts.provided_rpcs), (0, 0));
    }
}

#[test]
fn a_session_that_ends_within_a_message_of_many_names_leaves_nothing() {
    let names = numbered(MANY);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (_, message) in bulk_messages(&names) {
        let mut node = Node::with(3, Settings::default(), Arc::new(AllowAll));
        let session = login(&mut node, 0, "user");
        assert!(node.offer(session, &message));
        node.turn();
        node.close(session);
        while node.turn() {}
        for shard in 0..3 {
            let counts = node.counts(shard);
            assert_eq!((counts.pending_replies, counts.owing), (0, 0));
            assert_eq!((counts.subscribed_names, counts.sessions), (0, 0));
        }
    }
}

#[test]
fn later_pieces_of_a_message_are_authorized_by_the_rules_of_their_moment() {
    let names = numbered(MANY);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = Node::with(3, Settings::default(), Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    let correlation = Some("1");
    let subscribe = Event::Subscribe {
        names,
        correlation,
        positions: Vec::new(),
    };
    assert!(node.offer(session, &Message::Event(subscribe)));
    node.set_rules(permission_of(&[(Access::EventSubscribe, Rule::Deny)]));
    node.finish_changes();
    let mut seen = finish(&mut node, session);
    node.finish_work();
    seen.extend(node.take(session));
    let denied = seen.iter().filter(|one| one.contains("Denied")).count();
    // Subscriptions that had taken effect end, and all others are refused.
    assert_eq!(denied, MANY);
    assert_eq!(node.counts(0).subscribed_names, 0);
}

#[test]
fn without_a_limit_of_work_a_message_of_many_names_takes_effect_at_once() {
    let names = numbered(MANY);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut settings = Settings::default();
    settings.limits.connection_work_max = 0;
    let mut node = Node::with(3, settings, Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    for (_, message) in bulk_messages(&names) {
        assert!(node.offer(session, &message));
    }
}

#[test]
fn the_end_of_a_session_with_many_names_takes_several_turns() {
    let names = numbered(MANY);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = Node::with(1, Settings::default(), Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    let publisher = login(&mut node, 0, "publisher");
    for (_, message) in bulk_messages(&names) {
        if let Message::Event(Event::Subscribe { .. })
        | Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            ..
        }) = message
        {
            assert!(node.offer(session, &message));
            finish(&mut node, session);
        }
    }
    let held = node.counts(0).subscribed_names;
    assert_eq!(held, 2 * MANY);
    node.close(session);
    assert_eq!(node.counts(0).sessions, 1);
    let mut left = node.counts(0).subscribed_names;
    assert!(left > held / 2, "{left} of {held} names are left at once");
    while node.is_leaving(session) {
        // The session is not a subscriber now, even while its names are still being removed.
        let name = "n/2999";
        node.send(publisher, &Message::Event(Event::publication(name, None)));
        let goes_on = node.turn();
        assert!(goes_on || !node.is_leaving(session));
        let now = node.counts(0).subscribed_names;
        assert!(left - now < 1_100, "{left} names, then {now}");
        left = now;
    }
    while node.turn() {}
    assert!(!node.is_leaving(session));
    assert!(node.take(session).is_empty());
    assert_eq!(node.counts(0).wanted_names, 0);
}

#[test]
fn records_may_be_deleted_while_the_end_of_a_session_gives_them_back() {
    const COUNT: usize = 6_000;
    let names = numbered(COUNT);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut settings = Settings::default();
    settings.limits.connection_work_max = 0;
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let session = login(&mut node, 0, "user");
    let other = login(&mut node, 0, "other");
    let action = RecordBulk::SubscribeCreateAndRead;
    let correlation = Some("1");
    let subscribe = Record::Bulk {
        action,
        names: names.clone(),
        correlation,
    };
    node.send(session, &Message::Record(subscribe));
    node.close(session);
    assert!(node.is_leaving(session));
    // In reverse order, so that the table of names returns the places of names that the session has not left yet.
    for name in names.iter().rev() {
        node.send(other, &Message::Record(Record::Delete { name }));
    }
    while node.turn() {}
    assert!(!node.is_leaving(session));
    assert_eq!(node.counts(0).subscribed_names, 0);
}
