//! Logins that expire while their session is open.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::message::{Auth, Connection, Event, Message, Presence};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::time::WallTime;

use crate::driver::Node;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A session whose login expires after a time.
fn login_for(node: &mut Node, time: Duration) -> SessionId {
    let millis = u64::try_from(time.as_millis()).expect("short");
    let expires_at = WallTime(node.now.wall.0 + millis);
    let principal = Principal::new("somebody".into()).with_expiry(expires_at);
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    let session = node.login();
    node.login_outcome = None;
    session
}

fn subscribe(name: &str) -> Message<'_> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

fn emit(name: &str) -> Message<'_> {
    Message::Event(Event::publication(name, None))
}

#[test]
fn an_expired_login_ends_its_session_and_nothing_else() {
    let mut node = Node::new(Settings::default());
    let (short, long) = (
        login_for(&mut node, seconds(5)),
        login_for(&mut node, seconds(50)),
    );
    let writer = node.login();
    for session in [short, long] {
        node.ask(session, &subscribe("news"));
    }
    assert_eq!(node.counts(0).expiring, 2);
    node.pass(Duration::from_millis(4_999));
    node.send(writer, &emit("news"));
    assert_eq!(node.take(short).len(), 1);
    node.pass(Duration::from_millis(1));
    assert!(node.take(short).is_empty());
    assert_eq!(node.close_reason(short), Some(CloseReason::Expired));
    node.send(writer, &emit("news"));
    assert!(
        node.take(short).is_empty(),
        "it gets something after the end"
    );
    assert_eq!(node.take(long).len(), 2);
    assert_eq!(node.close_reason(long), None);
    let counts = node.counts(0);
    assert_eq!(
        (counts.expiring, counts.expired, counts.sessions),
        (1, 1, 2)
    );
    // The driver closes the session later; the engine knows already.
    node.close(short);
    assert_eq!(node.counts(0).sessions, 2);
}

#[test]
fn an_expired_session_releases_its_subscriptions_and_presence() {
    let mut node = Node::new(Settings::default());
    let watcher = node.login();
    node.ask(watcher, &Message::Presence(Presence::SubscribeAll));
    let session = login_for(&mut node, seconds(5));
    node.ask(session, &subscribe("own"));
    node.take(watcher);
    node.pass(seconds(5));
    let received = node.take(watcher);
    assert!(
        received
            .iter()
            .any(|message| message.contains("online: false")),
        "{received:?}"
    );
    assert_eq!(node.counts(0).subscribed_names, 1);
    assert_eq!(node.counts(0).users_online, 1);
}

#[test]
fn a_session_that_ends_before_its_login_expires_is_forgotten() {
    let mut node = Node::new(Settings::default());
    let session = login_for(&mut node, seconds(5));
    node.close(session);
    assert_eq!(node.counts(0).expiring, 0);
    node.pass(seconds(5));
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn a_login_that_has_expired_by_the_time_of_its_answer_is_refused() {
    let mut node = Node::new(Settings::default());
    let expires_at = WallTime(node.now.wall.0 + 3_000);
    let principal = Principal::new("somebody".into()).with_expiry(expires_at);
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    node.login_wait = Some((seconds(4), false));
    let session = node.connect(0);
    let challenge = Connection::challenge(false);
    node.send(session, &Message::Connection(challenge));
    node.send(session, &Message::Auth(Auth::Request { data: Some("{}") }));
    node.take(session);
    node.pass(seconds(4));
    let received = node.take(session);
    assert!(
        received.len() == 1
            && received[0].contains("Unsuccessful")
            && received[0].contains("LOGIN_EXPIRED"),
        "{received:?}"
    );
    assert_eq!(node.counts(0).expiring, 0);
    assert_eq!(
        node.close_reason(session),
        None,
        "another attempt may follow"
    );
}
