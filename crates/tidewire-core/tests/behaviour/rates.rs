//! Rates of connections and users: messages that arrive too early wait, and none is lost.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::identity;
use tidewire_core::message::{Connection, Event, Message, Record};
use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::principal::Principal;
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::settings::Settings;

use crate::driver::Node;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Ten a second, three at once.
const TEN: Rate = Rate {
    interval: Duration::from_millis(100),
    burst: 3,
};

fn connection(operation: Operation) -> Settings {
    let mut settings = Settings::default();
    settings.rates.connection[operation as usize] = Some(TEN);
    settings
}

fn user(operation: Operation, rate: Rate) -> Settings {
    let mut settings = Settings::default();
    settings.rates.user[operation as usize] = Some(rate);
    settings
}

fn emit(name: &str) -> Message<'_> {
    Message::Event(Event::publication(name, None))
}

fn subscribe<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

fn login_as(node: &mut Node, shard: u16, user: &str) -> SessionId {
    let principal = Arc::new(Principal::new(user.into()));
    node.login_outcome = Some(AuthOutcome::Accepted(principal));
    node.login_on(shard)
}

/// Number of messages that the shard takes before one has to wait.
fn taken(node: &mut Node, session: SessionId, message: &Message<'_>) -> usize {
    let mut count = 0;
    while node.offer(session, message) {
        count += 1;
        assert!(count < 1_000_000, "nothing bounds it");
    }
    count
}

#[test]
fn a_message_above_the_rate_waits() {
    let mut node = Node::new(connection(Operation::Publish));
    let (busy, other, reader) = (node.login(), node.login(), node.login());
    node.ask(reader, &subscribe(&["news"]));
    assert_eq!(taken(&mut node, busy, &emit("news")), 3);
    assert_eq!(node.counts(0).throttled, 1);
    node.pass(millis(99));
    assert!(!node.is_resumed(busy));
    node.pass(millis(1));
    assert!(node.is_resumed(busy));
    assert!(node.offer(busy, &emit("news")));
    assert_eq!(node.counts(0).throttled, 0);
    assert_eq!(node.counts(0).refused.connection_rate, 1);
    assert_eq!(node.take(reader).len(), 4, "each was published once");
    assert_eq!(
        taken(&mut node, other, &emit("news")),
        3,
        "others have their own"
    );
}

#[test]
fn other_operations_and_heartbeats_are_free() {
    let mut node = Node::new(connection(Operation::Publish));
    let session = node.login();
    taken(&mut node, session, &emit("news"));
    for _ in 0..10 {
        assert!(node.offer(session, &Message::Connection(Connection::Ping)));
        assert!(node.offer(session, &Message::Record(Record::Head { name: "a" })));
    }
    let mut node = Node::new(connection(Operation::Message));
    let session = node.login();
    assert!(node.offer(session, &Message::Record(Record::Head { name: "a" })));
    assert_eq!(
        taken(&mut node, session, &emit("news")),
        2,
        "all messages count"
    );
    assert!(node.offer(session, &Message::Connection(Connection::Ping)));
}

#[test]
fn many_names_in_one_message_leave_a_debt() {
    let mut node = Node::new(connection(Operation::Subscribe));
    let session = node.login();
    assert!(node.offer(session, &subscribe(&["a", "b", "c", "d", "e", "f"])));
    assert!(!node.offer(session, &subscribe(&["g"])));
    node.pass(millis(300));
    assert!(!node.is_resumed(session));
    node.pass(millis(100));
    assert!(node.is_resumed(session));
    assert!(node.offer(session, &subscribe(&["g"])));
    assert_eq!(node.take(session).len(), 2, "both are acknowledged");
}

#[test]
fn a_users_rate_covers_all_shards_and_connections() {
    let rate = Rate {
        interval: Duration::from_millis(10),
        burst: 40,
    };
    let settings = user(Operation::Publish, rate);
    let mut node = Node::with(3, settings, Arc::new(tidewire_core::permission::AllowAll));
    let sessions = [0, 1, 2, 0].map(|shard| login_as(&mut node, shard, "alice"));
    let stranger = login_as(&mut node, 1, "bob");
    let mut count = 0;
    let mut strangers = 0;
    for _ in 0..100 {
        for session in sessions {
            count += taken(&mut node, session, &emit("news"));
        }
        strangers += taken(&mut node, stranger, &emit("news"));
        node.pass(millis(10));
    }
    // A burst of 40 and one message every 10 ms, less the permits that shards have fetched and not used.
    assert!((120..=140).contains(&count), "{count}");
    assert!((120..=140).contains(&strangers), "{strangers}");
    assert!(node.counts(0).refused.user_rate > 0);
    for session in sessions {
        node.close(session);
    }
    node.close(stranger);
    let throttled: usize = (0..3).map(|shard| node.counts(shard).throttled).sum();
    assert_eq!(throttled, 0, "who is gone does not wait");
}

#[test]
fn a_session_without_a_user_name_has_no_user_rate() {
    let mut node = Node::new(user(Operation::Publish, TEN));
    for user in [identity::NAMELESS, identity::OPEN] {
        let session = login_as(&mut node, 0, user);
        for _ in 0..10 {
            assert!(node.offer(session, &emit("news")), "{user}");
        }
    }
}

#[test]
fn a_session_that_waits_is_not_silent() {
    let mut settings = connection(Operation::Publish);
    settings.heartbeat_interval = millis(200);
    settings.heartbeat_timeout = millis(200);
    settings.rates.connection[Operation::Publish as usize] = Some(Rate {
        interval: Duration::from_secs(5),
        burst: 1,
    });
    let mut node = Node::new(settings);
    let (busy, silent) = (node.login(), node.login());
    taken(&mut node, busy, &emit("news"));
    for _ in 0..20 {
        node.pass(millis(100));
    }
    assert_eq!(node.close_reason(busy), None);
    assert!(node.close_reason(silent).is_some(), "the check works");
    node.close(busy);
    assert_eq!(node.counts(0).throttled, 0);
}

/// Each publication needs to read a record first.
#[derive(Debug)]
struct Gated;

impl Permission for Gated {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.record("gate") {
            Ok(_) => Decision::Allow,
            Err(needed) => needed,
        }
    }
}

#[test]
fn a_message_that_waits_for_something_else_pays_once() {
    let mut node = Node::with(1, connection(Operation::Publish), Arc::new(Gated));
    let session = node.login();
    for _ in 0..3 {
        assert!(
            !node.offer(session, &emit("news")),
            "the gate is read first"
        );
        assert!(node.is_resumed(session));
        assert!(node.offer(session, &emit("news")));
    }
    assert!(!node.offer(session, &emit("news")));
    assert_eq!(node.counts(0).throttled, 1);
}
