//! Broadcasts of backends that sessions answer: complete and partial answers, foreign ones, and the limits.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::attachments::Attachments;
use tidewire_core::limits::Limits;
use tidewire_core::message::{Backend, BackendKind, Event, Message};
use tidewire_core::permission::AllowAll;
use tidewire_core::settings::Settings;

use super::backends::{
    SECOND, about, about_sessions, backend, broadcast, check_refused, confirm, data, event, join,
    kinds, message, node, served, settings,
};
use super::driver::{Node, Seen};

const MILLISECOND: Duration = Duration::from_millis(1);

/// An ask with a timeout of a second.
fn ask<'a>(namespace: &'a str, rooms: &[&'a str], id: &'a str) -> Backend<'a> {
    Backend {
        kind: BackendKind::Ask,
        correlation: Some(id),
        timeout: 1_000,
        ..broadcast(namespace, rooms, r#"["really"]"#)
    }
}

/// The number of the acknowledgement of the one event that a session got.
#[track_caller]
fn number(node: &mut Node, session: SessionId) -> String {
    let seen = node.take(session);
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Send".into()], vec![r#"["really"]"#.into()])
    );
    correlation(&seen[0])
}

pub fn correlation(text: &str) -> String {
    let (_, rest) = text.split_once("correlation: Some(\"").expect("a number");
    rest.split('"').next().expect("a number").into()
}

pub fn count(text: &str) -> u32 {
    let (_, rest) = text.split_once("count: ").expect("a count");
    let digits = rest.split(',').next().expect("a count");
    digits.parse().expect("a number")
}

fn answer<'a>(number: &'a str, data: &'a str) -> Message<'a> {
    message(Backend {
        data: Some(data),
        correlation: Some(number),
        ..Backend::new(BackendKind::Answered)
    })
}

/// The messages of a backend about its asks.
pub fn outcome(node: &mut Node, backend: SessionId) -> Seen {
    let seen = about_sessions(node.take(backend));
    let of_asks = ["Response", "Asked", "AskFailed"];
    let is_of_ask =
        |text: &String| of_asks.contains(&kinds(std::slice::from_ref(text))[0].as_str());
    seen.into_iter().filter(is_of_ask).collect()
}

pub fn limited(limits: Limits) -> Node {
    let settings = Settings {
        limits,
        ..settings()
    };
    Node::with(1, settings, Arc::new(AllowAll))
}

#[test]
fn an_ask_gets_the_answers_of_the_sessions_of_all_backends() {
    let mut node = node(3);
    let one = backend(&mut node, 1, &["/chat"]);
    let first: Vec<SessionId> = (0..3)
        .map(|shard| served(&mut node, one, shard, "/chat"))
        .collect();
    let two = backend(&mut node, 2, &["/chat"]);
    let other = served(&mut node, two, 1, "/chat");
    for session in &first {
        join(&mut node, one, *session, &["a"]);
    }
    join(&mut node, two, other, &["a", "b"]);
    let outside = Backend {
        except: vec!["b"],
        session: Some(first[0]),
        ..ask("/chat", &["a", "b"], "x")
    };
    node.send(two, &message(outside));
    for (index, session) in [first[1], first[2]].into_iter().enumerate() {
        let number = number(&mut node, session);
        node.send(session, &answer(&number, &format!("[{index}]")));
    }
    assert!(node.take(other).is_empty() && node.take(first[0]).is_empty());
    let seen = outcome(&mut node, two);
    assert_eq!(kinds(&seen), ["Response", "Response", "Asked"]);
    assert_eq!(
        (data(&seen), count(&seen[2])),
        (vec!["[0]".into(), "[1]".into()], 2)
    );
    assert!(seen.iter().all(|text| correlation(text) == "x"), "{seen:?}");
    // To all, also the sessions of the other backend. The own ones answer with bytes.
    node.send(one, &message(ask("/chat", &[], "y")));
    for session in first.iter().chain([&other]) {
        let number = number(&mut node, *session);
        let bytes = Backend {
            data: Some(r#"[{"_placeholder":true,"num":0}]"#),
            correlation: Some(&number),
            attachments: Attachments::new([[1]]),
            ..Backend::new(BackendKind::Answered)
        };
        node.send(*session, &message(bytes));
    }
    let seen = outcome(&mut node, one);
    let all = ["Response", "Response", "Response", "Response", "Asked"];
    assert_eq!(kinds(&seen), all);
    assert!(seen[0].contains("attachments of [1] bytes"), "{seen:?}");
    // To a room without members.
    node.send(one, &message(ask("/chat", &["none"], "z")));
    let seen = outcome(&mut node, one);
    assert_eq!((kinds(&seen), count(&seen[0])), (vec!["Asked".into()], 0));
}

#[test]
fn an_ask_fails_at_its_deadline_with_the_answers_that_have_arrived() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..4)
        .map(|index| served(&mut node, backend, index % 2, "/"))
        .collect();
    node.send(backend, &message(ask("/", &[], "x")));
    let numbers: Vec<String> = sessions
        .iter()
        .map(|session| number(&mut node, *session))
        .collect();
    node.send(sessions[0], &answer(&numbers[0], "[0]"));
    // A session that has ended can't answer: the others have until the deadline.
    node.leave(sessions[1]);
    node.pass(999 * MILLISECOND);
    node.send(sessions[2], &answer(&numbers[2], "[2]"));
    assert_eq!(
        kinds(&outcome(&mut node, backend)),
        ["Response", "Response"]
    );
    node.pass(MILLISECOND);
    let seen = outcome(&mut node, backend);
    check_refused(&seen, "AskFailed", "not all have answered in time");
    assert_eq!((count(&seen[0]), correlation(&seen[0])), (4, "x".into()));
    // It is late.
    node.send(sessions[3], &answer(&numbers[3], "[3]"));
    node.pass(SECOND);
    assert!(outcome(&mut node, backend).is_empty());
}

#[test]
fn only_the_sessions_of_an_ask_answer_it_and_only_once() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..3).map(|_| served(&mut node, backend, 0, "/")).collect();
    for session in &sessions[..2] {
        join(&mut node, backend, *session, &["a"]);
    }
    node.send(backend, &message(ask("/", &["a"], "x")));
    node.send(backend, &message(ask("/", &["a"], "y")));
    let seen = node.take(sessions[0]);
    let numbers = [correlation(&seen[0]), correlation(&seen[1])];
    assert!(numbers[0] != numbers[1] && numbers.iter().all(|text| text.len() == 10));
    node.send(sessions[2], &answer(&numbers[0], "[2]"));
    for text in ["[0]", "[00]"] {
        node.send(sessions[0], &answer(&numbers[0], text));
    }
    node.send(sessions[0], &answer("1999999999", "[3]"));
    assert_eq!(data(&outcome(&mut node, backend)), ["[0]"]);
    // Such answers have nothing to do with the events of the backend.
    let own = Backend {
        correlation: Some("999999999"),
        data: Some(r#"["own"]"#),
        ..about(BackendKind::Send, sessions[0])
    };
    node.send(backend, &message(own));
    node.send(sessions[0], &answer("999999999", "[4]"));
    let seen = about_sessions(node.take(backend));
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Answered".into()], vec!["[4]".into()])
    );
    node.send(sessions[1], &answer(&numbers[0], "[1]"));
    assert_eq!(kinds(&outcome(&mut node, backend)), ["Response", "Asked"]);
}

#[test]
fn clients_of_other_protocols_get_an_ask_as_an_event() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/"]);
    let native = node.login();
    let subscribe = Event::Subscribe {
        names: vec!["a"],
        correlation: None,
        positions: Vec::new(),
    };
    node.ask(native, &Message::Event(subscribe));
    node.send(backend, &message(ask("/", &["a"], "x")));
    let seen = node.take(native);
    assert!(
        seen.len() == 1 && seen[0].contains(r#"name: "a""#),
        "{seen:?}"
    );
    assert_eq!(kinds(&outcome(&mut node, backend)), ["Asked"]);
}

#[test]
fn an_ask_that_can_not_be_executed_is_refused() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, backend, 1, "/");
    let mut refused = |sent: Backend<'_>, part: &str| {
        let seen = node.ask(backend, &message(sent));
        check_refused(&seen, "InvalidCommand", part);
    };
    let valid = || ask("/", &[], "x");
    let long = "x".repeat(129);
    for correlation in [None, Some(""), Some(long.as_str())] {
        let sent = Backend {
            correlation,
            ..valid()
        };
        refused(sent, "a correlationId of 1 to 128 bytes");
    }
    let timeless = Backend {
        timeout: 0,
        ..valid()
    };
    refused(timeless, "at least 1 millisecond");
    refused(ask("/chat", &[], "x"), "does not serve");
    refused(ask("/", &[""], "x"), "a room is empty");
    let wordless = Backend {
        data: Some("["),
        ..valid()
    };
    refused(wordless, "the data are missing");
    for number in ["", "1000000000", "x", "+1", "-1"] {
        let sent = Backend {
            correlation: Some(number),
            data: Some("[1]"),
            ..about(BackendKind::Send, session)
        };
        refused(sent, "1 to 9 digits");
    }
    for kind in [
        BackendKind::Response,
        BackendKind::Asked,
        BackendKind::AskFailed,
    ] {
        refused(about(kind, session), "only sessions and the server");
    }
    assert!(node.take(session).is_empty());
}

#[test]
fn the_asks_of_a_backend_are_limited() {
    let mut node = limited(Limits {
        backend_asks_max: 2,
        ..Limits::default()
    });
    let busy = backend(&mut node, 0, &["/"]);
    let other = backend(&mut node, 0, &["/chat"]);
    let session = served(&mut node, busy, 0, "/");
    for id in ["1", "2"] {
        assert!(
            node.ask(busy, &message(ask("/", &[], id)))
                .iter()
                .all(|text| text.contains("Served"))
        );
    }
    let seen = node.ask(busy, &message(ask("/", &[], "3")));
    check_refused(&seen, "InvalidCommand", "limits.backend_asks_max");
    assert_eq!(correlation(&seen[0]), "3");
    node.send(other, &message(ask("/chat", &[], "1")));
    assert_eq!(kinds(&outcome(&mut node, other)), ["Asked"]);
    let seen = node.take(session);
    assert_eq!(seen.len(), 2);
    node.send(session, &answer(&correlation(&seen[0]), "[1]"));
    assert_eq!(kinds(&outcome(&mut node, busy)), ["Response", "Asked"]);
    assert!(node.ask(busy, &message(ask("/", &[], "4"))).is_empty());
}

#[test]
fn answers_that_a_backend_does_not_confirm_are_limited() {
    let mut node = limited(Limits {
        backend_answers_bytes_max: 10_000,
        ..Limits::default()
    });
    let slow = backend(&mut node, 0, &["/"]);
    let other = backend(&mut node, 0, &["/chat"]);
    let sessions: Vec<SessionId> = (0..3).map(|_| served(&mut node, slow, 0, "/")).collect();
    let unasked = served(&mut node, other, 0, "/chat");
    node.take(slow);
    confirm(&mut node, slow, 3);
    node.send(slow, &message(ask("/", &[], "x")));
    let large = format!("[\"{}\"]", "x".repeat(4_000));
    for session in &sessions {
        let number = number(&mut node, *session);
        node.send(*session, &answer(&number, &large));
    }
    let seen = outcome(&mut node, slow);
    assert_eq!(kinds(&seen), ["Response", "Response", "AskFailed"]);
    assert!(
        seen[2].contains("limits.backend_answers_bytes_max"),
        "{seen:?}"
    );
    // Sessions do not notice.
    for (session, backend) in [(sessions[0], slow), (unasked, other)] {
        assert!(node.offer(session, &event("[1]")));
        assert_eq!(data(&about_sessions(node.take(backend))), ["[1]"]);
    }
    node.send(slow, &message(ask("/", &[], "y")));
    let first = number(&mut node, sessions[0]);
    node.send(sessions[0], &answer(&first, &large));
    assert_eq!(kinds(&outcome(&mut node, slow)), ["AskFailed"]);
    for session in &sessions[1..] {
        node.take(*session);
    }
    // It confirms both asks and its event.
    confirm(&mut node, slow, 5);
    node.send(slow, &message(ask("/", &[], "z")));
    for session in &sessions {
        let number = number(&mut node, *session);
        node.send(*session, &answer(&number, "[1]"));
    }
    let all = ["Response", "Response", "Response", "Asked"];
    assert_eq!(kinds(&outcome(&mut node, slow)), all);
}

#[test]
fn answers_reach_a_backend_as_far_as_it_confirms_them() {
    let mut node = limited(Limits {
        backend_messages_max: 4,
        ..Limits::default()
    });
    let slow = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..6)
        .map(|_| {
            let session = served(&mut node, slow, 0, "/");
            confirm(&mut node, slow, 1);
            session
        })
        .collect();
    node.send(slow, &message(ask("/", &[], "x")));
    for (index, session) in sessions.iter().enumerate() {
        let number = number(&mut node, *session);
        node.send(*session, &answer(&number, &format!("[{index}]")));
    }
    let texts = ["[0]", "[1]", "[2]", "[3]", "[4]", "[5]"];
    assert_eq!(data(&outcome(&mut node, slow)), texts[..4]);
    assert_eq!(data(&confirm(&mut node, slow, 1)), texts[4..5]);
    let seen = confirm(&mut node, slow, 4);
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Response".into(), "Asked".into()], vec!["[5]".into()])
    );
    assert_eq!(count(&seen[1]), 6);
    assert!(confirm(&mut node, slow, 2).is_empty());
    check_refused(
        &confirm(&mut node, slow, 1),
        "InvalidCommand",
        "more messages are confirmed",
    );
}

#[test]
fn a_shard_awaits_a_limited_number_of_answers() {
    let mut node = limited(Limits {
        backend_answers_bytes_max: 48,
        ..Limits::default()
    });
    let backend = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..4).map(|_| served(&mut node, backend, 0, "/")).collect();
    for session in &sessions[..2] {
        join(&mut node, backend, *session, &["a"]);
    }
    node.send(backend, &message(ask("/", &[], "x")));
    let seen = outcome(&mut node, backend);
    check_refused(&seen, "AskFailed", "limits.backend_answers_bytes_max");
    for session in &sessions {
        assert!(node.take(*session).is_empty());
    }
    assert_eq!(kinds(&confirm(&mut node, backend, 5)), [""; 0]);
    node.send(backend, &message(ask("/", &["a"], "y")));
    assert_eq!(kinds(&node.take(sessions[0])), ["Send"]);
    // Two answers are awaited, so there is room for one.
    node.send(backend, &message(ask("/", &["a"], "z")));
    assert_eq!(kinds(&outcome(&mut node, backend)), ["AskFailed"]);
    // The deadline frees it.
    node.pass(SECOND);
    assert_eq!(kinds(&outcome(&mut node, backend)), ["AskFailed"]);
    confirm(&mut node, backend, 2);
    node.take(sessions[0]);
    node.send(backend, &message(ask("/", &["a"], "z")));
    assert_eq!(kinds(&node.take(sessions[0])), ["Send"]);
}

#[test]
fn the_end_of_a_backend_ends_its_asks() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    node.send(first, &message(ask("/", &[], "x")));
    let number = number(&mut node, session);
    node.close(first);
    let (second, _) = super::backends::backend_with_sessions(&mut node, 0, &["/"]);
    node.send(session, &answer(&number, "[1]"));
    node.send(session, &event("[2]"));
    assert_eq!(data(&about_sessions(node.take(second))), ["[2]"]);
    node.pass(2 * SECOND);
    assert!(about_sessions(node.take(second)).is_empty());
}
