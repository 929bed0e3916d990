//! Sessions without a transport: they keep their subscriptions, have a deadline in place of heartbeats, and may be attached again.

use std::time::Duration;

use tidewire_core::effect::CloseReason;
use tidewire_core::message::{Connection, Event, Message, Presence};
use tidewire_core::settings::Settings;

use crate::driver::Node;

const TIMEOUT: Duration = Duration::from_secs(120);

fn node() -> Node {
    Node::new(Settings {
        detached_timeout: TIMEOUT,
        ..Settings::default()
    })
}

fn subscribe(name: &str) -> Message<'_> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: None,
        positions: Vec::new(),
    })
}

#[test]
fn publications_reach_a_detached_session() {
    let mut node = node();
    let (publisher, reader) = (node.login(), node.login());
    node.ask(reader, &subscribe("news"));
    node.detach(reader);
    node.send(
        publisher,
        &Message::Event(Event::publication("news", Some("1"))),
    );
    node.attach(reader);
    node.send(
        publisher,
        &Message::Event(Event::publication("news", Some("2"))),
    );
    assert_eq!(node.take(reader).len(), 2);
}

#[test]
fn a_detached_session_is_closed_at_its_deadline_and_not_for_silence() {
    let mut node = node();
    let (detached, attached) = (node.login(), node.login());
    node.detach(detached);
    for _ in 0..7 {
        node.pass(Duration::from_secs(15));
        node.ask(attached, &Message::Connection(Connection::Ping));
    }
    assert_eq!(node.close_reason(detached), None);
    node.pass(Duration::from_secs(15));
    node.ask(attached, &Message::Connection(Connection::Ping));
    node.pass(Duration::from_secs(1));
    assert_eq!(
        node.close_reason(detached),
        Some(CloseReason::DetachedTooLong)
    );
    assert_eq!(node.close_reason(attached), None);
}

#[test]
fn an_attached_session_has_heartbeats_again() {
    let mut node = node();
    let session = node.login();
    // Each loss of the transport starts the time again.
    for _ in 0..3 {
        node.detach(session);
        node.pass(TIMEOUT - Duration::from_secs(1));
        node.attach(session);
    }
    node.pass(Duration::from_secs(30));
    assert_eq!(node.close_reason(session), None);
    node.pass(Duration::from_secs(60));
    assert_eq!(node.close_reason(session), Some(CloseReason::Silent));
}

#[test]
fn a_detached_session_that_ends_leaves_no_deadline() {
    let mut node = node();
    let (detached, other) = (node.login_as_user(0, "ann"), node.login_as_user(0, "bob"));
    let query = Message::Presence(Presence::QueryAll);
    node.detach(detached);
    let online = node.ask(other, &query);
    assert!(online[0].contains("ann"), "{online:?}");
    node.close(detached);
    let online = node.ask(other, &query);
    assert!(!online[0].contains("ann"), "{online:?}");
    node.pass(TIMEOUT);
    assert_eq!(node.close_reason(detached), None);
}
