//! Backends that hand their sessions over before they end: no event is lost, repeated or out of order.

use tidewire_core::address::SessionId;
use tidewire_core::message::{Backend, BackendKind};

use super::backends::{
    SECOND, about, about_sessions, backend, backend_with_sessions, broadcast, check_refused,
    confirm, data, event, join, kinds, limited, message, node, served,
};
use super::driver::{Node, Seen};

fn hand_over(node: &mut Node, backend: SessionId) -> Seen {
    let hand_over = Backend {
        correlation: Some("h"),
        ..Backend::new(BackendKind::HandOver)
    };
    about_sessions(node.ask(backend, &message(hand_over)))
}

/// Hands a session over, and returns what the backend has got before.
fn stop(node: &mut Node, backend: SessionId, session: SessionId) -> Seen {
    about_sessions(node.ask(backend, &message(about(BackendKind::HandOver, session))))
}

fn release(node: &mut Node, backend: SessionId, session: SessionId) {
    node.send(backend, &message(about(BackendKind::Release, session)));
}

fn answered(number: &str) -> Backend<'_> {
    Backend {
        data: Some("[]"),
        correlation: Some(number),
        ..Backend::new(BackendKind::Answered)
    }
}

#[test]
fn a_released_session_continues_at_the_next_backend_with_all_events() {
    let mut node = node(3);
    let first = backend(&mut node, 0, &["/chat"]);
    let sessions: Vec<SessionId> = (0..3)
        .map(|shard| served(&mut node, first, shard, "/chat"))
        .collect();
    for session in &sessions {
        join(&mut node, first, *session, &["a"]);
    }
    let second = backend(&mut node, 1, &["/chat"]);
    node.hold_posts();
    for session in &sessions {
        assert!(node.offer(*session, &event("[1]")));
    }
    node.release_posts();
    let seen = hand_over(&mut node, first);
    assert_eq!(kinds(&seen), ["Event", "Event", "Event", "HandedOver"]);
    assert!(seen[3].contains(r#"correlation: Some("h")"#), "{seen:?}");
    for session in &sessions {
        node.send(*session, &event("[1]"));
        let seen = stop(&mut node, first, *session);
        assert_eq!(
            kinds(&seen),
            ["Event", "HandedOver"],
            "each waits for itself only"
        );
    }
    for session in &sessions {
        for data in ["[2]", "[3]"] {
            assert!(node.offer(*session, &event(data)), "it does not wait");
        }
    }
    assert!(about_sessions(node.take(first)).is_empty());
    assert!(about_sessions(node.take(second)).is_empty());
    for session in sessions {
        // The old backend answers until it releases the session.
        let answer = Backend {
            data: Some("[1]"),
            correlation: Some("7"),
            ..about(BackendKind::Answer, session)
        };
        node.send(first, &message(answer));
        assert_eq!(kinds(&node.take(session)), ["Answer"]);
        release(&mut node, first, session);
        let seen = about_sessions(node.take(second));
        assert_eq!(kinds(&seen), ["Opened", "Event", "Event"]);
        assert!(seen[0].contains(r#"correlation: Some("id")"#), "{seen:?}");
        assert!(seen[0].contains(r#"names: ["a"]"#), "{seen:?}");
        assert_eq!(data(&seen)[1..], ["[2]", "[3]"]);
        assert!(node.offer(session, &event("[4]")));
        assert_eq!(data(&about_sessions(node.take(second))), ["[4]"]);
        // Then its commands about the session have no effect.
        node.send(first, &message(about(BackendKind::End, session)));
        assert_eq!(node.close_reason(session), None);
        release(&mut node, first, session);
        assert!(about_sessions(node.take(second)).is_empty());
    }
    // It may still send to rooms.
    node.send(first, &message(broadcast("/chat", &["a"], "[5]")));
    node.close(first);
    assert!(about_sessions(node.take(second)).is_empty());
}

#[test]
fn a_leaving_backend_gets_the_answers_that_it_waits_for() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    let sent = Backend {
        data: Some(r#"["ask"]"#),
        correlation: Some("5"),
        ..about(BackendKind::Send, session)
    };
    node.send(first, &message(sent));
    hand_over(&mut node, first);
    stop(&mut node, first, session);
    // The answer is behind an event for the next backend.
    assert!(node.offer(session, &event("[1]")));
    assert!(node.offer(session, &message(answered("5"))));
    assert_eq!(kinds(&about_sessions(node.take(first))), ["Answered"]);
    let (_, seen) = {
        release(&mut node, first, session);
        backend_with_sessions(&mut node, 1, &["/"])
    };
    assert_eq!(kinds(&seen), ["Opened", "Event"]);
}

#[test]
fn new_sessions_go_to_other_backends_or_wait() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    hand_over(&mut node, first);
    let waiting = node.back(0, "/");
    node.pass(SECOND);
    assert!(node.take(waiting).is_empty(), "it is not refused");
    let (second, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen), ["Opened"]);
    for _ in 0..3 {
        node.back(0, "/");
        assert_eq!(kinds(&about_sessions(node.take(second))), ["Opened"]);
    }
    assert!(about_sessions(node.take(first)).is_empty());
    // A session that it has neither accepted nor refused opens at the other one.
    let third = backend(&mut node, 0, &["/chat"]);
    let opening = node.back(0, "/chat");
    assert_eq!(kinds(&about_sessions(node.take(third))), ["Opened"]);
    hand_over(&mut node, third);
    stop(&mut node, third, opening);
    release(&mut node, third, opening);
    let (_, seen) = backend_with_sessions(&mut node, 0, &["/chat"]);
    assert_eq!(kinds(&seen), ["Opened"]);
    assert!(seen[0].contains("correlation: None"), "{seen:?}");
}

#[test]
fn events_that_wait_for_a_release_are_limited() {
    let mut node = limited(|limits| limits.backend_messages_max = 4);
    let first = backend(&mut node, 0, &["/"]);
    let (one, two) = (
        served(&mut node, first, 0, "/"),
        served(&mut node, first, 0, "/"),
    );
    hand_over(&mut node, first);
    stop(&mut node, first, one);
    stop(&mut node, first, two);
    confirm(&mut node, first, 4);
    for data in ["[1]", "[2]", "[3]"] {
        assert!(node.offer(one, &event(data)));
    }
    assert!(node.offer(two, &event("[4]")));
    assert!(!node.offer(two, &event("[5]")), "the fifth waits");
    // The end of a session gives its part of the limit back, and the old backend gets its last events.
    node.close(one);
    let seen = about_sessions(node.take(first));
    assert_eq!(kinds(&seen), ["Event", "Event", "Event", "Closed"]);
    assert_eq!(data(&seen), ["[1]", "[2]", "[3]"]);
    confirm(&mut node, first, 4);
    assert!(node.is_resumed(two));
    for data in ["[5]", "[6]", "[7]"] {
        assert!(node.offer(two, &event(data)));
    }
    assert!(!node.offer(two, &event("[8]")));
    release(&mut node, first, two);
    let (second, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(data(&seen)[1..], ["[4]", "[5]", "[6]", "[7]"]);
    assert!(node.is_resumed(two));
    confirm(&mut node, second, 5);
    assert!(node.offer(two, &event("[8]")));
    assert_eq!(data(&about_sessions(node.take(second))), ["[8]"]);
}

#[test]
fn a_backend_that_is_lost_while_it_leaves_loses_no_event_that_waits() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    node.hold_posts();
    assert!(node.offer(session, &event("[1]")));
    // The command reaches the shard of the session. Its first event is still on its way to the backend.
    node.send(first, &message(Backend::new(BackendKind::HandOver)));
    node.send(first, &message(about(BackendKind::HandOver, session)));
    node.release_last_post();
    assert!(node.offer(session, &event("[2]")));
    node.close(first);
    node.release_posts();
    let (_, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen), ["Opened", "Event", "Event"]);
    assert_eq!(data(&seen)[1..], ["[1]", "[2]"]);
}

#[test]
fn the_loss_of_a_leaving_backend_does_not_touch_released_sessions() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let (released, other) = (
        served(&mut node, first, 1, "/"),
        served(&mut node, first, 1, "/"),
    );
    let second = backend(&mut node, 1, &["/"]);
    for session in [released, other] {
        assert!(node.offer(session, &event("[1]")));
    }
    hand_over(&mut node, first);
    stop(&mut node, first, released);
    stop(&mut node, first, other);
    release(&mut node, first, released);
    assert_eq!(kinds(&about_sessions(node.take(second))), ["Opened"]);
    for session in [released, other] {
        assert!(node.offer(session, &event("[2]")));
    }
    assert_eq!(data(&about_sessions(node.take(second))), ["[2]"]);
    node.close(first);
    let seen = about_sessions(node.take(second));
    assert_eq!(kinds(&seen), ["Opened", "Event"]);
    assert_eq!(data(&seen)[1..], ["[2]"]);
}

#[test]
fn a_backend_hands_over_once_and_before_it_releases() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 0, "/");
    let early = node.ask(first, &message(about(BackendKind::Release, session)));
    check_refused(&early, "InvalidCommand", "after a HAND_OVER");
    assert_eq!(kinds(&hand_over(&mut node, first)), ["HandedOver"]);
    // Without HAND_OVER for the session it has no effect, because events may be on their way.
    release(&mut node, first, session);
    node.send(session, &event("[1]"));
    assert_eq!(kinds(&about_sessions(node.take(first))), ["Event"]);
    assert_eq!(kinds(&stop(&mut node, first, session)), ["HandedOver"]);
    assert!(stop(&mut node, first, session).is_empty());
    let twice = hand_over(&mut node, first);
    check_refused(&twice, "InvalidCommand", "hands over once");
    let answer = node.ask(first, &message(Backend::new(BackendKind::HandedOver)));
    check_refused(&answer, "InvalidCommand", "only sessions and the server");
    let client = node.login();
    let seen = node.ask(client, &message(Backend::new(BackendKind::HandOver)));
    check_refused(&seen, "NotABackend", "backend.key");
}

#[test]
fn the_time_without_a_backend_begins_with_its_loss() {
    let mut node = node(1);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 0, "/");
    node.pass(9 * SECOND);
    node.close(first);
    // Ten seconds after the session has come, and one after the loss.
    node.pass(SECOND);
    assert_eq!(node.close_reason(session), None);
    node.pass(8 * SECOND);
    assert_eq!(node.close_reason(session), None);
    node.pass(SECOND);
    assert!(node.close_reason(session).is_some());
}
