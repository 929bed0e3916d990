//! Events with history: a client that reconnects gets all missed events once and in order, or learns of the gap.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::limits::Limits;
use tidewire_core::message::{Event, Listen, Message, Position};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question};
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;

use crate::driver::Node;

/// Settings with rules for names that begin with `news`, and for names that match `*/log`.
fn settings(count_max: usize, limits: Limits) -> Settings {
    let rule = |pattern: &str| HistoryRule {
        pattern: NamePattern::new(pattern),
        count_max,
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(60),
        keep: Keep::Memory,
    };
    Settings {
        limits,
        history: HistoryRules::new(vec![rule("news*"), rule("*/log")]),
        ..Settings::default()
    }
}

fn node_with(count_max: usize, limits: Limits) -> Node {
    Node::with(2, settings(count_max, limits), Arc::new(AllowAll))
}

fn node() -> Node {
    node_with(5, Limits::default())
}

fn subscribe<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

fn unsubscribe(name: &str) -> Message<'_> {
    Message::Event(Event::Unsubscribe {
        names: vec![name],
        correlation: Some("2"),
    })
}

fn resume<'a>(names: &[(&'a str, Option<Position>)]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.iter().map(|(name, _)| *name).collect(),
        correlation: Some("1"),
        positions: names.to_vec(),
    })
}

/// The messages that a session received, in a short form.
fn received(node: &mut Node, session: SessionId) -> Vec<String> {
    let part = |text: &str, begin: &str| {
        let start = text.find(begin)? + begin.len();
        let rest = &text[start..];
        Some(rest[..rest.find([',', ' ', ')', '}'])?].to_owned())
    };
    let seen = node.take(session).into_iter();
    seen.map(|message| {
        let name = part(&message, "name: ")
            .unwrap_or_default()
            .replace('"', "");
        let offset = part(&message, "offset: ");
        match &message {
            publication if publication.contains("Publication {") => {
                let offset = part(publication, "offset: Some(");
                format!("{name} {}", offset.unwrap_or_else(|| "plain".into()))
            }
            position if position.contains("Position { name") => {
                format!("{name} behind {}", offset.expect("a position"))
            }
            gap if gap.contains("HistoryGap {") => {
                let missed = part(gap, "missed: Some(").unwrap_or_else(|| "?".into());
                format!(
                    "{name} lost {missed}, first {}",
                    offset.unwrap_or_else(|| "?".into())
                )
            }
            ack if ack.contains("Ack {") => "ack".into(),
            other => other.clone(),
        }
    })
    .collect()
}

/// Subscribes and returns the position at which the events begin.
fn begin(node: &mut Node, session: SessionId, name: &str) -> Position {
    let seen = node.ask(session, &resume(&[(name, None)]));
    let number = |field: &str| {
        let begun = seen.iter().find(|seen| seen.contains("Position { name"));
        let text = begun
            .expect("a position")
            .split(field)
            .nth(1)
            .expect("the field");
        let digits = text.chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().expect("a number")
    };
    Position {
        epoch: number("epoch: "),
        offset: number("offset: "),
    }
}

fn emit(node: &mut Node, session: SessionId, name: &str, count: usize) {
    for number in 0..count {
        let data = number.to_string();
        let data = Some(data.as_str());
        node.send(session, &Message::Event(Event::publication(name, data)));
    }
}

fn at(position: Position, offset: u64) -> Option<Position> {
    Some(Position { offset, ..position })
}

#[test]
fn a_resumed_session_gets_missed_events_and_then_new_ones() {
    for (shard, name) in [
        (0, "news"),
        (1, "news"),
        (0, "news/1"),
        (1, "news/2"),
        (1, "a/log"),
    ] {
        let mut node = node();
        let writer = node.login_on(0);
        let reader = node.login_on(shard);
        let position = begin(&mut node, reader, name);
        assert_eq!(position.offset, 0);
        emit(&mut node, writer, name, 2);
        let expected = [format!("{name} 1"), format!("{name} 2")];
        assert_eq!(received(&mut node, reader), expected);
        node.close(reader);
        emit(&mut node, writer, name, 3);
        let reader = node.login_on(shard);
        node.send(reader, &resume(&[(name, at(position, 2))]));
        emit(&mut node, writer, name, 1);
        let offsets = [3, 4, 5].map(|offset| format!("{name} {offset}"));
        let mut expected = vec![format!("{name} behind 2")];
        expected.extend(offsets);
        expected.extend(["ack".into(), format!("{name} 6")]);
        assert_eq!(received(&mut node, reader), expected);
        // A session that has missed no events gets none.
        let reader = node.login_on(shard);
        node.send(reader, &resume(&[(name, at(position, 6))]));
        assert_eq!(
            received(&mut node, reader),
            [format!("{name} behind 6"), "ack".into()]
        );
    }
}

#[test]
fn a_gap_is_reported_once_with_its_length_and_the_first_kept_event() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.close(reader);
    emit(&mut node, writer, "news", 5);
    let expected = ["news 1", "news 2", "news 3", "news 4", "news 5", "ack"];
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 0))]));
    assert_eq!(received(&mut node, reader)[1..], expected);
    emit(&mut node, writer, "news", 4);
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 0))]));
    let expected = [
        "news lost 4, first 5",
        "news 5",
        "news 6",
        "news 7",
        "news 8",
        "news 9",
        "ack",
    ];
    assert_eq!(received(&mut node, reader), expected);
    assert_eq!(
        (0..2)
            .map(|shard| node.counts(shard).history.gaps)
            .sum::<u64>(),
        1
    );
}

#[test]
fn a_position_of_another_epoch_is_a_gap_of_unknown_length() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    emit(&mut node, writer, "news", 2);
    let other = Position {
        epoch: position.epoch + 2,
        offset: 1,
    };
    let ahead = Position {
        offset: 3,
        ..position
    };
    let far = Position {
        offset: u64::MAX,
        ..position
    };
    for position in [other, ahead, far] {
        let reader = node.login_on(0);
        node.send(reader, &resume(&[("news", Some(position))]));
        let expected = ["news lost ?, first 1", "news 1", "news 2", "ack"];
        assert_eq!(received(&mut node, reader), expected);
    }
}

#[test]
fn without_history_a_position_is_a_gap_and_events_have_no_numbers() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = Position {
        epoch: 1,
        offset: 1,
    };
    node.send(
        reader,
        &resume(&[("plain", Some(position)), ("other", None)]),
    );
    assert_eq!(
        received(&mut node, reader),
        ["plain lost ?, first ?", "ack"]
    );
    emit(&mut node, writer, "plain", 1);
    emit(&mut node, writer, "other", 1);
    assert_eq!(received(&mut node, reader), ["plain plain", "other plain"]);
    for shard in 0..2 {
        assert_eq!(node.counts(shard).history.names, 0);
    }
}

#[test]
fn a_session_without_offsets_gets_plain_events() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    node.send(reader, &subscribe(&["news", "plain", "a/log"]));
    assert_eq!(received(&mut node, reader), ["ack"]);
    emit(&mut node, writer, "news", 1);
    emit(&mut node, writer, "plain", 1);
    emit(&mut node, writer, "a/log", 1);
    let mut seen = received(&mut node, reader);
    seen.sort();
    assert_eq!(seen, ["a/log 1", "news 1", "plain plain"]);
    node.send(reader, &subscribe(&["news"]));
    let seen = node.take(reader);
    assert!(seen[0].contains("MultipleSubscriptions"), "{seen:?}");
    assert!(seen[1].contains("Ack"), "{seen:?}");
    assert_eq!(seen.len(), 2);
    node.send(reader, &unsubscribe("news"));
    assert_eq!(received(&mut node, reader), ["ack"]);
    emit(&mut node, writer, "news", 1);
    assert_eq!(received(&mut node, reader), [""; 0]);
}

#[test]
fn own_events_are_delivered_only_if_they_were_missed() {
    let mut node = node();
    let (own, other) = (node.login_on(0), node.login_on(0));
    let position = begin(&mut node, own, "news");
    begin(&mut node, other, "news");
    emit(&mut node, own, "news", 1);
    emit(&mut node, other, "news", 1);
    assert_eq!(received(&mut node, own), ["news 2"]);
    assert_eq!(received(&mut node, other), ["news 1"]);
    let again = node.login_on(0);
    node.send(again, &resume(&[("news", at(position, 0))]));
    assert_eq!(
        received(&mut node, again),
        ["news behind 0", "news 1", "news 2", "ack"]
    );
}

#[test]
fn a_long_history_is_sent_page_by_page_as_the_session_reads() {
    let limits = Limits {
        // Two events of about 37 bytes each.
        catch_up_bytes_max: 70,
        ..Limits::default()
    };
    let mut node = node_with(100, limits);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.close(reader);
    emit(&mut node, writer, "news", 7);
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 0))]));
    assert_eq!(
        received(&mut node, reader),
        ["news behind 0", "news 1", "news 2", "ack"]
    );
    let mut expected = 3;
    while node.is_awaited(reader) {
        // Events published during the catch-up follow at the end.
        if expected < 8 {
            emit(&mut node, writer, "news", 1);
        }
        assert_eq!(received(&mut node, reader), [""; 0]);
        node.drained(reader);
        for seen in received(&mut node, reader) {
            assert_eq!(seen, format!("news {expected}"));
            expected += 1;
        }
    }
    let published = expected;
    emit(&mut node, writer, "news", 1);
    assert_eq!(received(&mut node, reader), [format!("news {published}")]);
    assert!(published > 10, "{published} events before it was there");
}

#[test]
fn events_forgotten_during_a_read_are_a_gap() {
    let limits = Limits {
        catch_up_bytes_max: 70,
        ..Limits::default()
    };
    let mut node = node_with(5, limits);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.close(reader);
    emit(&mut node, writer, "news", 5);
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 0))]));
    assert_eq!(
        received(&mut node, reader),
        ["news behind 0", "news 1", "news 2", "ack"]
    );
    emit(&mut node, writer, "news", 5);
    node.drained(reader);
    assert_eq!(
        received(&mut node, reader),
        ["news lost 3, first 6", "news 6", "news 7"]
    );
}

#[test]
fn several_names_are_resumed_together() {
    let names: Vec<String> = (0..200).map(|number| format!("news/{number}")).collect();
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let mut positions = Vec::new();
    for name in &names {
        positions.push(begin(&mut node, reader, name));
    }
    node.close(reader);
    for name in &names {
        emit(&mut node, writer, name, 2);
    }
    let reader = node.login_on(1);
    let wanted = names.iter().zip(&positions);
    let wanted: Vec<_> = wanted
        .map(|(name, position)| (name.as_str(), Some(*position)))
        .collect();
    node.send(reader, &resume(&wanted));
    let seen = received(&mut node, reader);
    assert_eq!(seen.iter().filter(|seen| *seen == "ack").count(), 1);
    for name in &names {
        let begin = format!("{name} ");
        let of_name: Vec<_> = seen
            .iter()
            .filter_map(|seen| seen.strip_prefix(&begin))
            .collect();
        assert_eq!(of_name, ["behind 0", "1", "2"], "{name}");
    }
    // A session that unsubscribes during the catch-up gets no further events.
    let limits = Limits {
        catch_up_bytes_max: 70,
        ..Limits::default()
    };
    let mut node = node_with(100, limits);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.send(reader, &unsubscribe("news"));
    emit(&mut node, writer, "news", 9);
    node.take(reader);
    node.send(reader, &resume(&[("news", Some(position))]));
    node.send(reader, &unsubscribe("news"));
    node.take(reader);
    node.drained(reader);
    emit(&mut node, writer, "news", 1);
    assert_eq!(received(&mut node, reader), [""; 0]);
}

/// Denies subscriptions to names with this prefix.
#[derive(Debug)]
struct DeniesNames(&'static str);

impl Permission for DeniesNames {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let name = question.name.unwrap_or_default();
        match question.access == Access::EventSubscribe && name.starts_with(self.0) {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }
}

#[test]
fn a_lost_right_ends_granted_subscriptions_and_reads_in_progress() {
    let limits = Limits {
        catch_up_bytes_max: 70,
        ..Limits::default()
    };
    let mut node = node_with(100, limits);
    let (writer, live, reading) = (node.login_on(0), node.login_on(0), node.login_on(1));
    let position = begin(&mut node, live, "news");
    emit(&mut node, writer, "news", 9);
    node.take(live);
    node.send(reading, &resume(&[("news", Some(position))]));
    assert!(node.is_awaited(reading));
    node.take(reading);
    node.begin_change(RightsChange::Rules(Arc::new(DeniesNames("news"))));
    node.finish_changes();
    for session in [live, reading] {
        let seen = node.take(session);
        assert!(seen.len() == 1 && seen[0].contains("Denied"), "{seen:?}");
    }
    node.drained(reading);
    emit(&mut node, writer, "news", 1);
    for session in [live, reading] {
        assert_eq!(received(&mut node, session), [""; 0]);
        node.send(session, &resume(&[("news", Some(position))]));
        let seen = node.take(session);
        assert!(seen.len() == 1 && seen[0].contains("Denied"), "{seen:?}");
    }
    // The sessions no longer count as subscribers, so one can subscribe again.
    node.set_rules(Arc::new(AllowAll));
    node.send(live, &resume(&[("news", at(position, 9))]));
    assert_eq!(
        received(&mut node, live),
        ["news behind 9", "news 10", "ack"]
    );
}

#[test]
fn events_are_forgotten_when_they_are_too_old() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.close(reader);
    emit(&mut node, writer, "news", 2);
    node.pass(Duration::from_secs(30));
    emit(&mut node, writer, "news", 1);
    let events = |node: &Node| {
        (0..2)
            .map(|shard| node.counts(shard).history.events)
            .sum::<usize>()
    };
    assert_eq!(events(&node), 3);
    node.pass(Duration::from_secs(30));
    assert_eq!(events(&node), 1);
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 1))]));
    assert_eq!(
        received(&mut node, reader),
        ["news lost 1, first 3", "news 3", "ack"]
    );
    node.pass(Duration::from_secs(30));
    assert_eq!(events(&node), 0);
    let bytes: usize = (0..2).map(|shard| node.counts(shard).history.bytes).sum();
    assert_eq!(bytes, 0);
    // The name and its offsets remain, so a session that has all events gets no gap.
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", at(position, 3))]));
    assert_eq!(received(&mut node, reader), ["news behind 3", "ack"]);
}

#[test]
fn the_least_recently_used_names_are_forgotten_first() {
    let limits = Limits {
        history_names_max: 3,
        ..Limits::default()
    };
    let mut node = Node::with(1, settings(5, limits), Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    let live = begin(&mut node, reader, "news/live");
    emit(&mut node, writer, "news/live", 1);
    for name in ["news/1", "news/2", "news/3"] {
        emit(&mut node, writer, name, 1);
    }
    emit(&mut node, writer, "news/1", 1);
    assert_eq!(node.counts(0).history.names, 4);
    emit(&mut node, writer, "news/4", 1);
    let counts = node.counts(0).history;
    assert_eq!((counts.names, counts.events, counts.forgotten), (4, 5, 1));
    // The forgotten name is `news/2`. A session that resumes it starts again at offset 0, and another name goes.
    let again = node.login();
    let second = begin(&mut node, again, "news/2");
    assert_eq!(second.offset, 0);
    node.take(reader);
    emit(&mut node, writer, "news/live", 1);
    assert_eq!(received(&mut node, reader), ["news/live 2"]);
    node.send(again, &resume(&[("news/live", Some(live))]));
    assert_eq!(
        received(&mut node, again),
        ["news/live behind 0", "news/live 1", "news/live 2", "ack"]
    );
}

#[test]
fn a_name_that_was_forgotten_has_another_epoch() {
    let limits = Limits {
        history_names_max: 1,
        ..Limits::default()
    };
    let mut node = Node::with(1, settings(5, limits), Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    let position = begin(&mut node, reader, "news/1");
    emit(&mut node, writer, "news/1", 2);
    node.close(reader);
    emit(&mut node, writer, "news/2", 1);
    emit(&mut node, writer, "news/1", 3);
    let reader = node.login();
    node.send(reader, &resume(&[("news/1", at(position, 2))]));
    let expected = [
        "news/1 lost ?, first 1",
        "news/1 1",
        "news/1 2",
        "news/1 3",
        "ack",
    ];
    assert_eq!(received(&mut node, reader), expected);
}

#[test]
fn all_histories_together_stay_within_their_bytes() {
    let limits = Limits {
        history_bytes_max: 10_000,
        ..Limits::default()
    };
    let mut node = Node::with(1, settings(1_000, limits), Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    for name in ["news/live/1", "news/live/2"] {
        begin(&mut node, reader, name);
    }
    for round in 0..50 {
        for name in ["news/live/1", "news/live/2", "news/idle/1", "news/idle/2"] {
            emit(&mut node, writer, name, 10);
        }
        let bytes = node.counts(0).history.bytes;
        assert!(bytes <= 10_000, "{bytes} bytes in round {round}");
    }
    let counts = node.counts(0).history;
    assert!(counts.events > 100 && counts.forgotten > 0, "{counts:?}");
    assert_eq!(received(&mut node, reader).len(), 1_000);
}

#[test]
fn listening_providers_hear_of_names_with_history() {
    let mut node = node();
    let (provider, reader) = (node.login_on(0), node.login_on(1));
    let listen = Listen::Listen { pattern: "^news" };
    node.ask(provider, &Message::Event(Event::Listen(listen)));
    node.ask(reader, &subscribe(&["news/a"]));
    let found = node.take(provider);
    assert!(found.len() == 1 && found[0].contains("Found"), "{found:?}");
    let accept = Listen::Accept {
        pattern: "^news",
        subscription: "news/a",
    };
    node.send(provider, &Message::Event(Event::Listen(accept)));
    node.close(reader);
    let removed = node.take(provider);
    assert!(
        removed.len() == 1 && removed[0].contains("Removed"),
        "{removed:?}"
    );
}

#[test]
fn a_lagging_session_gets_a_gap_as_for_events_without_history() {
    let mut node = node();
    let writer = node.login_on(0);
    let reader = node.login_coalescing(1);
    node.ask(reader, &subscribe(&["news"]));
    node.lag(reader);
    emit(&mut node, writer, "news", 3);
    assert_eq!(node.take(reader).len(), 0);
    node.drained(reader);
    let seen = node.take(reader);
    assert!(
        seen.len() == 1 && seen[0].contains("Gap { name: \"news\", missed: 3 }"),
        "{seen:?}"
    );
    emit(&mut node, writer, "news", 1);
    assert_eq!(received(&mut node, reader), ["news 4"]);
}

/// Settings that keep all histories in the store.
fn stored_settings(count_max: usize) -> Settings {
    let rule = HistoryRule {
        pattern: NamePattern::new("*"),
        count_max,
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(60),
        keep: Keep::Store,
    };
    Settings {
        history: HistoryRules::new(vec![rule]),
        ..Settings::default()
    }
}

fn stored_node(count_max: usize) -> Node {
    Node::with(2, stored_settings(count_max), Arc::new(AllowAll))
}

/// The same stores with new shards, as after a restart.
fn restarted(node: Node, count_max: usize) -> Node {
    let mut next = stored_node(count_max);
    next.take_over_store(node);
    next
}

#[test]
fn a_restart_makes_no_gap_in_what_the_store_keeps() {
    let mut node = stored_node(5);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    emit(&mut node, writer, "news", 3);
    assert_eq!(received(&mut node, reader), ["news 1", "news 2", "news 3"]);
    let mut node = restarted(node, 5);
    let (writer, reader) = (node.login_on(1), node.login_on(0));
    emit(&mut node, writer, "news", 1);
    node.send(reader, &resume(&[("news", at(position, 1))]));
    let expected = ["news behind 1", "news 2", "news 3", "news 4", "ack"];
    assert_eq!(received(&mut node, reader), expected);
    emit(&mut node, writer, "news", 4);
    let mut node = restarted(node, 5);
    let reader = node.login_on(0);
    node.send(reader, &resume(&[("news", at(position, 1))]));
    let expected = [
        "news lost 2, first 4",
        "news 4",
        "news 5",
        "news 6",
        "news 7",
        "news 8",
        "ack",
    ];
    assert_eq!(received(&mut node, reader), expected);
    // Rows beyond the limit are deleted from the store, and the epoch has not changed.
    assert_eq!(node.stored_count(), 6);
}

#[test]
fn a_subscription_without_events_stores_nothing_and_keeps_its_position() {
    let mut node = stored_node(5);
    let reader = node.login_on(1);
    let position = begin(&mut node, reader, "news");
    assert_eq!(node.stored_count(), 0);
    let mut node = restarted(node, 5);
    let (writer, reader) = (node.login_on(1), node.login_on(0));
    emit(&mut node, writer, "news", 1);
    node.send(reader, &resume(&[("news", Some(position))]));
    assert_eq!(
        received(&mut node, reader),
        ["news behind 0", "news 1", "ack"]
    );
}

#[test]
fn an_event_is_shown_when_it_is_durable_and_not_before() {
    let mut node = stored_node(5);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    node.commits_fail = true;
    emit(&mut node, writer, "news", 2);
    let late = node.login_on(1);
    node.send(late, &resume(&[("news", Some(position))]));
    assert_eq!(received(&mut node, late), ["news behind 0", "ack"]);
    assert_eq!(node.take(reader).len(), 0);
    let pending: usize = (0..2).map(|shard| node.counts(shard).history.pending).sum();
    assert_eq!(pending, 2);
    node.commits_fail = false;
    node.pass(Duration::from_secs(5));
    for session in [reader, late] {
        assert_eq!(received(&mut node, session), ["news 1", "news 2"]);
    }
}

#[test]
fn a_read_waits_until_the_store_can_answer() {
    let mut node = stored_node(5);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    emit(&mut node, writer, "news", 2);
    let mut node = restarted(node, 5);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    node.loads_fail = true;
    node.send(reader, &resume(&[("news", Some(position))]));
    emit(&mut node, writer, "news", 1);
    assert_eq!(node.take(reader).len(), 0);
    node.loads_fail = false;
    for _ in 0..4 {
        node.pass(Duration::from_secs(5));
    }
    let expected = ["news behind 0", "news 1", "news 2", "ack", "news 3"];
    assert_eq!(received(&mut node, reader), expected);
}

#[test]
fn a_corrupt_event_is_a_gap() {
    let mut node = stored_node(5);
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let position = begin(&mut node, reader, "news");
    emit(&mut node, writer, "news", 4);
    node.lose_stored(|name| name.ends_with("0002"));
    let mut node = restarted(node, 5);
    let reader = node.login_on(1);
    node.send(reader, &resume(&[("news", Some(position))]));
    let expected = ["news lost 2, first 3", "news 3", "news 4", "ack"];
    assert_eq!(received(&mut node, reader), expected);
}

#[test]
fn work_that_waits_for_the_store_is_bounded() {
    let mut settings = stored_settings(1_000);
    settings.limits.dirty_records_max = 10;
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let (writer, reader) = (node.login(), node.login());
    begin(&mut node, reader, "news");
    node.commits_fail = true;
    emit(&mut node, writer, "news", 12);
    let refused = node.take(writer);
    assert_eq!(refused.len(), 2);
    assert!(
        refused.iter().all(|refused| refused.contains("Denied")),
        "{refused:?}"
    );
    node.commits_fail = false;
    node.pass(Duration::from_secs(5));
    assert_eq!(received(&mut node, reader).len(), 10);
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A node whose store has histories of many names that its shards have forgotten.
fn forgetful_node(names: usize) -> (Node, HistoryRules, Position) {
    let mut settings = stored_settings(5);
    settings.limits.history_names_max = 2;
    let rules = settings.history.clone();
    let mut node = Node::with(2, settings, Arc::new(AllowAll));
    let session = node.login();
    let position = begin(&mut node, session, "n0");
    node.send(session, &unsubscribe("n0"));
    for name in 0..names {
        emit(&mut node, session, &format!("n{name}"), 3);
    }
    assert_eq!(node.stored_count(), 4 * names);
    (node, rules, position)
}

#[test]
fn the_sweep_removes_the_histories_of_forgotten_names() {
    let (mut node, rules, position) = forgetful_node(50);
    assert_eq!(node.sweep_histories(&rules), 0, "nothing is too old");
    node.pass(Duration::from_secs(61));
    assert!(
        node.stored_count() > 150,
        "what is forgotten stays by itself"
    );
    node.sweep_histories(&rules);
    assert_eq!(node.stored_count(), 50, "only where they end");
    let (first, second) = (node.counts(0).history, node.counts(1).history);
    assert!(first.names + second.names <= 4, "it keeps none in memory");
    // Offsets continue while the store keeps the name.
    let session = node.login();
    node.send(session, &resume(&[("n0", at(position, 1))]));
    let seen = received(&mut node, session);
    assert_eq!(seen, ["n0 lost 2, first 4", "ack"], "{seen:?}");
    node.pass(DAY);
    node.sweep_histories(&rules);
    // The sweep must keep a name with a subscriber, whose position must stay valid.
    assert_eq!(node.stored_count(), 1);
    node.send(session, &unsubscribe("n0"));
    node.sweep_histories(&rules);
    assert_eq!(node.stored_count(), 0);
    let removed = node.counts(0).history.removed + node.counts(1).history.removed;
    assert_eq!(removed, 50);
    // After the removal, an old position must not count as a position of the new history.
    emit(&mut node, session, "n0", 5);
    node.send(session, &resume(&[("n0", at(position, 1))]));
    let seen = received(&mut node, session);
    assert!(seen.contains(&"n0 lost ?, first 1".to_owned()), "{seen:?}");
}

#[test]
fn the_sweep_keeps_young_histories_and_events_in_flight() {
    let (mut node, rules, _) = forgetful_node(10);
    node.pass(Duration::from_secs(30));
    let session = node.login();
    for name in 0..10 {
        emit(&mut node, session, &format!("n{name}"), 1);
    }
    node.pass(Duration::from_secs(31));
    node.sweep_histories(&rules);
    assert_eq!(node.stored_count(), 2 * 10, "one event and the end of each");
    node.pass(DAY);
    // An event arrives while the node removes the name.
    node.store_hangs = true;
    node.sweep_histories(&rules);
    emit(&mut node, session, "n0", 1);
    node.answer_store();
    node.store_hangs = false;
    node.pass(Duration::from_secs(6));
    assert_eq!(node.stored_count(), 2, "the event and the end of its name");
}
