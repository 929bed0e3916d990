//! Messages between backends: replies, deadlines and limits.

use tidewire_core::address::SessionId;
use tidewire_core::attachments::Attachments;
use tidewire_core::limits::Limits;
use tidewire_core::message::{Backend, BackendKind, Message};

use super::asks::{correlation, count, limited, outcome};
use super::backends::{
    SECOND, about, about_sessions, backend, check_refused, confirm, data, kinds, message, node,
    served,
};
use super::driver::Node;

fn tell<'a>(namespace: &'a str, data: &'a str, id: &'a str, timeout: u32) -> Backend<'a> {
    Backend {
        name: Some(namespace),
        data: Some(data),
        correlation: Some(id),
        timeout,
        ..Backend::new(BackendKind::Tell)
    }
}

fn reply<'a>(number: &'a str, data: &'a str) -> Message<'a> {
    message(Backend {
        data: Some(data),
        correlation: Some(number),
        ..Backend::new(BackendKind::Reply)
    })
}

/// The number in the one message of another backend that a backend has got.
#[track_caller]
fn told(node: &mut Node, backend: SessionId, expected: &str) -> String {
    let seen = about_sessions(node.take(backend));
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Told".into()], vec![expected.into()])
    );
    assert!(seen[0].contains(r#"name: Some("/chat")"#), "{seen:?}");
    correlation(&seen[0])
}

#[test]
fn a_backend_gets_the_replies_of_the_others_that_serve_the_namespace() {
    let mut node = node(3);
    let one = backend(&mut node, 1, &["/chat"]);
    let two = backend(&mut node, 1, &["/", "/chat"]);
    let three = backend(&mut node, 2, &["/chat"]);
    let other = backend(&mut node, 2, &["/"]);
    let sent = Backend {
        attachments: Attachments::new([[7]]),
        ..tell(
            "/chat",
            r#"{"a":{"_placeholder":true,"num":0}}"#,
            "x",
            1_000,
        )
    };
    node.send(one, &message(sent));
    for (index, backend) in [two, three].into_iter().enumerate() {
        let number = told(&mut node, backend, r#"{"a":{"_placeholder":true,"num":0}}"#);
        node.send(backend, &reply(&number, &format!("[{index}]")));
        node.send(backend, &reply(&number, "[9]"));
    }
    assert!(about_sessions(node.take(other)).is_empty());
    let seen = outcome(&mut node, one);
    assert_eq!(kinds(&seen), ["Response", "Response", "Asked"]);
    assert_eq!(
        (data(&seen), count(&seen[2])),
        (vec!["[0]".into(), "[1]".into()], 2)
    );
    assert_eq!(correlation(&seen[2]), "x");
    // A backend that is alone.
    node.send(other, &message(tell("/", "1", "y", 1_000)));
    let number = correlation(&about_sessions(node.take(two))[0]);
    node.send(one, &reply(&number, "[\"of another one\"]"));
    assert!(outcome(&mut node, other).is_empty());
    node.close(two);
    node.pass(SECOND);
    check_refused(
        &outcome(&mut node, other),
        "AskFailed",
        "not all have answered in time",
    );
    node.send(other, &message(tell("/", "1", "z", 1_000)));
    let seen = outcome(&mut node, other);
    assert_eq!((kinds(&seen), count(&seen[0])), (vec!["Asked".into()], 0));
}

#[test]
fn a_message_without_a_timeout_has_no_replies_and_an_end() {
    let mut node = node(2);
    let one = backend(&mut node, 0, &["/chat"]);
    let two = backend(&mut node, 1, &["/chat"]);
    node.send(one, &message(tell("/chat", "[1]", "x", 0)));
    let seen = about_sessions(node.take(two));
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Told".into()], vec!["[1]".into()])
    );
    assert!(seen[0].contains("correlation: None"), "{seen:?}");
    let seen = outcome(&mut node, one);
    assert_eq!((kinds(&seen), count(&seen[0])), (vec!["Asked".into()], 1));
    assert!(confirm(&mut node, two, 1).is_empty());
    node.pass(60 * SECOND);
    assert!(outcome(&mut node, one).is_empty());
}

#[test]
fn a_message_to_backends_that_can_not_be_executed_is_refused() {
    let mut node = node(1);
    let one = backend(&mut node, 0, &["/chat"]);
    let two = backend(&mut node, 0, &["/chat"]);
    let session = served(&mut node, one, 0, "/chat");
    let mut refused = |sent: Backend<'_>, part: &str| {
        let seen = node.ask(one, &message(sent));
        check_refused(&seen, "InvalidCommand", part);
    };
    refused(tell("/", "[1]", "x", 0), "does not serve");
    refused(tell("/chat", "[", "x", 0), "the data are missing");
    refused(
        tell("/chat", "[1]", "", 0),
        "a correlationId of 1 to 128 bytes",
    );
    let wordless = Backend {
        data: Some("{}"),
        ..about(BackendKind::Reply, session)
    };
    refused(wordless, "the data are missing");
    refused(
        about(BackendKind::Told, session),
        "only sessions and the server",
    );
    for number in ["", "1000000000", "x"] {
        assert!(node.ask(one, &reply(number, "[1]")).is_empty());
    }
    assert!(about_sessions(node.take(two)).is_empty());
}

#[test]
fn a_backend_that_does_not_confirm_gets_a_limited_number_of_messages() {
    let mut node = limited(Limits {
        backend_answers_bytes_max: 10_000,
        ..Limits::default()
    });
    let one = backend(&mut node, 0, &["/chat"]);
    let slow = backend(&mut node, 0, &["/chat"]);
    let large = format!("[\"{}\"]", "x".repeat(4_000));
    let mut ends = Vec::new();
    for id in ["1", "2", "3"] {
        node.send(one, &message(tell("/chat", &large, id, 0)));
        let seen = outcome(&mut node, one);
        ends.extend(kinds(&seen));
        confirm(&mut node, one, 1);
    }
    assert_eq!(ends, ["Asked", "Asked", "AskFailed"]);
    assert_eq!(kinds(&about_sessions(node.take(slow))), ["Told", "Told"]);
    confirm(&mut node, slow, 2);
    node.send(one, &message(tell("/chat", &large, "4", 0)));
    assert_eq!(kinds(&outcome(&mut node, one)), ["Asked"]);
    assert_eq!(kinds(&about_sessions(node.take(slow))), ["Told"]);
}
