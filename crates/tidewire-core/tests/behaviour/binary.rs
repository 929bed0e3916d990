//! Events whose payload is bytes with a content type, or JSON with attachments.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::limits::Limits;
use tidewire_core::message::{Event, Message, Position, Publication};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question};
use tidewire_core::settings::Settings;

use crate::driver::Node;

const BYTES: [u8; 3] = [0, 255, 7];
/// The form of `BYTES` in a message that a test sees.
const SEEN: &str = "binary: Some(3 bytes of a/b)";

fn settings(keep: Keep) -> Settings {
    let rule = HistoryRule {
        pattern: NamePattern::new("kept*"),
        count_max: 100,
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(60),
        keep,
    };
    let limits = Limits {
        record_bytes_max: 16,
        ..Limits::default()
    };
    Settings {
        limits,
        history: HistoryRules::new(vec![rule]),
        ..Settings::default()
    }
}

fn subscribe<'a>(name: &'a str, positions: &[Option<Position>]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: Some("1"),
        positions: positions.iter().map(|at| (name, *at)).collect(),
    })
}

fn emit<'a>(name: &'a str, data: Option<&'a str>, content_type: &str, bytes: &[u8]) -> Message<'a> {
    let binary = Binary::new(Some(content_type), bytes);
    let publication = Publication::new(name, data, Some(9), None).with_binary(Some(binary));
    Message::Event(Event::Publication(publication))
}

fn publish(node: &mut Node, session: SessionId, name: &str) {
    node.send(session, &emit(name, None, "a/b", &BYTES));
}

/// Whether a session has received exactly one event of these bytes.
fn has_seen(node: &mut Node, session: SessionId, offset: Option<u64>) -> bool {
    let seen = node.take(session);
    let events: Vec<_> = seen
        .iter()
        .filter(|message| message.contains("Publication {"))
        .collect();
    let offset = format!("offset: {offset:?}");
    matches!(events[..], [event] if event.contains(SEEN) && event.contains("data: None") && event.contains(&offset))
}

#[test]
fn subscribers_on_every_shard_get_the_bytes() {
    let mut node = Node::with(2, settings(Keep::Memory), Arc::new(AllowAll));
    let writer = node.login_on(0);
    for shard in [0, 1] {
        let reader = node.login_on(shard);
        for (name, offset) in [("e", None), ("kept", Some(1 + u64::from(shard)))] {
            node.ask(reader, &subscribe(name, &[]));
            publish(&mut node, writer, name);
            assert!(has_seen(&mut node, reader, offset), "{name} on {shard}");
        }
        node.close(reader);
    }
}

#[test]
fn a_history_returns_the_bytes_also_after_a_restart() {
    for keep in [Keep::Memory, Keep::Store] {
        let mut node = Node::with(2, settings(keep), Arc::new(AllowAll));
        let (writer, reader) = (node.login_on(0), node.login_on(1));
        let seen = node.ask(reader, &subscribe("kept", &[None]));
        let begun = seen.iter().find(|seen| seen.contains("Position { name"));
        let begun = begun.expect("a position");
        let epoch = begun.split("epoch: ").nth(1).expect("an epoch");
        let epoch = epoch.split(',').next().expect("a number");
        let position = Position {
            epoch: epoch.parse().expect("a number"),
            offset: 0,
        };
        publish(&mut node, writer, "kept");
        assert!(has_seen(&mut node, reader, Some(1)), "{keep:?}");
        if keep == Keep::Store {
            node = node.restart(settings(keep));
        }
        let reader = node.login_on(0);
        node.send(reader, &subscribe("kept", &[Some(position)]));
        assert!(has_seen(&mut node, reader, Some(1)), "{keep:?}");
    }
}

#[test]
fn invalid_bytes_are_refused_and_reach_no_subscriber() {
    let mut node = Node::with(1, settings(Keep::Memory), Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    node.ask(reader, &subscribe("e", &[]));
    let long = format!("a/{}", "b".repeat(254));
    for message in [
        emit("e", Some("1"), "a/b", &BYTES),
        emit("e", None, "a/b", &[0; 17]),
        emit("e", None, "ab", &BYTES),
        emit("e", None, "", &BYTES),
        emit("e", None, "a/\n", &BYTES),
        emit("e", None, "a/ä", &BYTES),
        emit("e", None, &long, &BYTES),
    ] {
        let seen = node.ask(writer, &message);
        assert!(
            matches!(&seen[..], [refusal] if refusal.contains("InvalidData")),
            "{message:?}: {seen:?}"
        );
        assert!(node.take(reader).is_empty(), "{message:?}");
    }
    assert_eq!(node.counts(0).refused.too_large, 1);
    node.send(writer, &emit("e", None, &long[..255], &[0; 16]));
    assert_eq!(node.take(reader).len(), 1);
}

const DATA: &str = r#"["e",{"_placeholder":true,"num":0}]"#;

fn attached<'a>(name: &'a str, data: Option<&'a str>, attachments: &[&[u8]]) -> Message<'a> {
    let publication = Publication::new(name, data, Some(9), None);
    let attachments = Attachments::new(attachments.iter().copied());
    Message::Event(Event::Publication(
        publication.with_attachments(attachments),
    ))
}

#[test]
fn attachments_reach_every_shard_and_stay_in_histories() {
    let limits = Limits::default();
    let settings = |keep| Settings {
        limits: limits.clone(),
        ..settings(keep)
    };
    for keep in [Keep::Memory, Keep::Store] {
        let mut node = Node::with(2, settings(keep), Arc::new(AllowAll));
        let writer = node.login_on(0);
        let has_seen = |node: &mut Node, session| {
            let seen = node.take(session);
            let mut events = seen
                .iter()
                .filter(|message| message.contains("Publication {"));
            let found = events.next().is_some_and(|event| {
                event.contains("attachments: Some(attachments of [3, 0] bytes)")
                    && event.contains("_placeholder")
            });
            found && events.next().is_none()
        };
        let mut epoch = 0;
        for (shard, name) in [(0, "e"), (1, "e"), (0, "kept"), (1, "kept1")] {
            let reader = node.login_on(shard);
            let seen = node.ask(reader, &subscribe(name, &[None]));
            if let Some(begun) = seen.iter().find(|seen| seen.contains("Position { name")) {
                let digits = begun
                    .split("epoch: ")
                    .nth(1)
                    .and_then(|rest| rest.split(',').next());
                epoch = digits
                    .and_then(|digits| digits.parse().ok())
                    .expect("an epoch");
            }
            node.send(writer, &attached(name, Some(DATA), &[&BYTES, b""]));
            assert!(has_seen(&mut node, reader), "{name} on {shard}");
            node.close(reader);
        }
        if keep == Keep::Store {
            node = node.restart(settings(keep));
        }
        let reader = node.login_on(0);
        node.send(
            reader,
            &subscribe("kept1", &[Some(Position { epoch, offset: 0 })]),
        );
        assert!(has_seen(&mut node, reader), "{keep:?}");
    }
}

#[test]
fn attachments_that_do_not_fit_are_refused() {
    let limits = Limits {
        record_bytes_max: DATA.len() + 4,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..settings(Keep::Memory)
    };
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    node.ask(reader, &subscribe("e", &[]));
    let both = Publication::new("e", Some(DATA), None, None)
        .with_attachments(Attachments::new([BYTES]))
        .with_binary(Some(Binary::new(None, BYTES)));
    for message in [
        attached("e", None, &[&BYTES]),
        attached("e", Some(""), &[&BYTES]),
        attached("e", Some(r#"{"_placeholder":true,"num":1}"#), &[&BYTES]),
        attached("e", Some(r#"{"_placeholder":true}"#), &[&BYTES]),
        attached(
            "e",
            Some(r#"{"\u005fplaceholder":true,"num":1}"#),
            &[&BYTES],
        ),
        attached("e", Some(DATA), &[&BYTES, &BYTES]),
        attached("e", Some("1"), &[&b""[..]; 11]),
        Message::Event(Event::Publication(both)),
    ] {
        let seen = node.ask(writer, &message);
        assert!(
            matches!(&seen[..], [refusal] if refusal.contains("InvalidData")),
            "{message:?}: {seen:?}"
        );
        assert!(node.take(reader).is_empty(), "{message:?}");
    }
    node.send(writer, &attached("e", Some(DATA), &[&BYTES, b"1"]));
    node.send(writer, &attached("e", Some("1"), &[&b""[..]; 10]));
    assert_eq!(node.take(reader).len(), 2);
}

/// Allows to publish undefined only.
#[derive(Debug)]
struct UndefinedOnly;

impl Permission for UndefinedOnly {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.access == Access::EventPublish && question.data.is_some() {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }
}

#[test]
fn rules_see_bytes_as_undefined() {
    let mut node = Node::with(1, settings(Keep::Memory), Arc::new(UndefinedOnly));
    let (writer, reader) = (node.login(), node.login());
    node.ask(reader, &subscribe("e", &[]));
    let json = Message::Event(Event::publication("e", Some("1")));
    let seen = node.ask(writer, &json);
    assert!(seen[0].contains("Denied"), "{seen:?}");
    publish(&mut node, writer, "e");
    assert!(has_seen(&mut node, reader, None));
    // The data of an event with attachments are JSON.
    let seen = node.ask(writer, &attached("e", Some("1"), &[&BYTES]));
    assert!(seen[0].contains("Denied"), "{seen:?}");
}
