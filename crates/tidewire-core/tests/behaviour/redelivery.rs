//! Events that come again after the loss of a backend, and the data of sessions that outlive their backends.

use tidewire_core::address::SessionId;
use tidewire_core::message::{Backend, BackendKind, Message};

use super::backends::{
    SECOND, about, about_sessions, backend, backend_with_sessions, check_refused, confirm, data,
    event, kinds, limited, message, node, served,
};

fn deliver_again<'a>(namespaces: &[&'a str]) -> Message<'a> {
    message(Backend {
        names: namespaces.to_vec(),
        ..Backend::new(BackendKind::DeliverAgain)
    })
}

fn set_data(session: SessionId, data: &str) -> Message<'_> {
    message(Backend {
        data: Some(data),
        ..about(BackendKind::SetData, session)
    })
}

/// How often each event was sent before.
fn counts(seen: &[String]) -> Vec<String> {
    let events = seen.iter().filter(|text| text.contains("kind: Event"));
    let count = |text: &String| {
        let (_, rest) = text.split_once("count: ").expect("a count");
        rest.split(',').next().expect("a number").to_owned()
    };
    events.map(count).collect()
}

#[test]
fn events_without_a_confirmation_come_again_in_order_where_the_backend_wants_that() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/", "/chat"]);
    node.send(first, &deliver_again(&["/ch*"]));
    let (once, again) = (
        served(&mut node, first, 1, "/"),
        served(&mut node, first, 1, "/chat"),
    );
    for session in [once, again] {
        for data in ["[1]", "[2]", "[3]"] {
            node.send(session, &event(data));
        }
    }
    let answered = Backend {
        data: Some("[0]"),
        correlation: Some("7"),
        ..Backend::new(BackendKind::Answered)
    };
    node.send(again, &message(answered));
    assert_eq!(about_sessions(node.take(first)).len(), 7);
    // It has handled both sessions, the events of one, and an event of the other.
    confirm(&mut node, first, 6);
    node.close(first);
    let (second, seen) = backend_with_sessions(&mut node, 0, &["/", "/chat"]);
    assert_eq!(kinds(&seen), ["Opened", "Opened", "Event", "Event"]);
    assert_eq!(data(&seen)[2..], ["[2]", "[3]"]);
    assert_eq!(counts(&seen), ["1", "1"]);
    // An event that the next one is sent, too, comes once more.
    node.send(second, &deliver_again(&["/chat"]));
    node.send(again, &event("[4]"));
    confirm(&mut node, second, 3);
    node.close(second);
    let (_, seen) = backend_with_sessions(&mut node, 1, &["/", "/chat"]);
    assert_eq!(data(&seen)[2..], ["[3]", "[4]"]);
    assert_eq!(counts(&seen), ["2", "1"]);
    let numbers = node.counts(1).backends;
    assert_eq!(
        (numbers.events, numbers.redelivered, numbers.lost),
        (7, 4, 0)
    );
}

#[test]
fn lost_events_are_counted() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 0, "/");
    for data in ["[1]", "[2]", "[3]"] {
        node.send(session, &event(data));
    }
    confirm(&mut node, first, 2);
    node.pass(2 * SECOND);
    let numbers = node.counts(0).backends;
    assert_eq!((numbers.connected, numbers.unconfirmed), (1, 2));
    assert!(numbers.unconfirmed_bytes > 0 && numbers.oldest_posted.is_some());
    node.close(first);
    let numbers = node.counts(0).backends;
    assert_eq!((numbers.connected, numbers.unconfirmed), (0, 0));
    assert_eq!((numbers.waiting, numbers.oldest_posted), (1, None));
    assert_eq!(
        (numbers.events, numbers.redelivered, numbers.lost),
        (3, 0, 2)
    );
}

#[test]
fn events_that_come_again_are_not_more_than_the_window() {
    let mut node = limited(|limits| limits.backend_messages_max = 4);
    let first = backend(&mut node, 0, &["/"]);
    node.send(first, &deliver_again(&["/"]));
    let session = served(&mut node, first, 0, "/");
    confirm(&mut node, first, 1);
    let accepted = (1..10)
        .filter(|_| node.offer(session, &event("[1]")))
        .count();
    assert_eq!(accepted, 4);
    node.close(first);
    let (_, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen).len(), 5);
}

#[test]
fn a_released_session_has_no_events_that_come_again() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    node.send(first, &deliver_again(&["/*"]));
    let session = served(&mut node, first, 0, "/");
    let second = backend(&mut node, 0, &["/"]);
    node.send(session, &event("[1]"));
    node.send(first, &message(Backend::new(BackendKind::HandOver)));
    node.send(first, &message(about(BackendKind::HandOver, session)));
    node.send(first, &message(about(BackendKind::Release, session)));
    node.close(first);
    assert_eq!(kinds(&about_sessions(node.take(second))), ["Opened"]);
}

#[test]
fn the_next_backend_gets_the_data_of_a_session() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    let before = node.kept_for(session);
    node.send(first, &set_data(session, r#"{"name":"ann"}"#));
    assert_eq!(node.kept_for(session), before + 14);
    node.send(first, &set_data(session, r#"{"name":1}"#));
    assert_eq!(node.kept_for(session), before + 10);
    node.close(first);
    let (second, seen) = backend_with_sessions(&mut node, 1, &["/"]);
    assert_eq!(data(&seen), [r#"{"data":{"name":1},"auth":{}}"#]);
    // The data stay until a backend changes them.
    node.close(second);
    let (third, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(data(&seen), [r#"{"data":{"name":1},"auth":{}}"#]);
    // A backend that does not serve the session changes nothing.
    let other = backend(&mut node, 1, &["/chat"]);
    node.send(other, &set_data(session, "2"));
    node.close(third);
    let (_, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(data(&seen), [r#"{"data":{"name":1},"auth":{}}"#]);
}

#[test]
fn what_a_backend_asks_for_in_vain_is_refused() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 0, "/");
    let long = format!("\"{}\"", "x".repeat(16 << 10));
    for (sent, part) in [
        (set_data(session, &long), "limits.backend_data_bytes_max"),
        (set_data(session, "{"), "the data are missing"),
        (
            message(about(BackendKind::SetData, session)),
            "the data are missing",
        ),
        (deliver_again(&["/"; 1_001]), "at most 1,000 names"),
        (deliver_again(&[""]), "SERVE first"),
    ] {
        check_refused(&node.ask(first, &sent), "InvalidCommand", part);
    }
    assert_eq!(node.close_reason(session), None);
}
