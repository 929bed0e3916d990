//! Sessions that read too slowly: the messages that the server skips for sessions that coalesce, and the messages that replace
//! them.

use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::CloseReason;
use tidewire_core::limits::Limits;
use tidewire_core::message::{Event, Listen, Message, Presence, Record, RecordBulk};
use tidewire_core::permission::AllowAll;
use tidewire_core::settings::{EventLagPolicy, Settings};

use crate::driver::{Node, Seen, set};

fn bulk<'a>(action: RecordBulk, names: &[&'a str]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action,
        names: names.to_vec(),
        correlation: Some("1"),
    })
}

fn read_on<'a>(names: &[&'a str]) -> Message<'a> {
    bulk(RecordBulk::SubscribeCreateAndRead, names)
}

fn listen_to<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

fn emit<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Event(Event::publication(name, Some(data)))
}

/// The version and data of each change that a session received, and the name and number of each gap.
fn received(seen: &Seen) -> Vec<String> {
    let part = |text: &str, begin: &str| {
        let start = text.find(begin)? + begin.len();
        let rest = &text[start..];
        Some(rest[..rest.find([',', ' ', ')', '}'])?].to_owned())
    };
    seen.iter()
        .map(|message| match message {
            change if change.contains("Write(") => {
                let kind = if change.contains("Update {") {
                    "whole"
                } else {
                    "step"
                };
                format!(
                    "{kind} {} to {}",
                    part(change, "name: ").unwrap(),
                    part(change, "version: ").unwrap()
                )
            }
            gap if gap.contains("Gap {") => format!(
                "gap {} of {}",
                part(gap, "name: ").unwrap(),
                part(gap, "missed: ").unwrap()
            ),
            other => other.chars().take_while(|c| *c != '{').collect(),
        })
        .collect()
}

/// Two shards with a writer, a reader that coalesces, and a reader that does not. All three subscribe to the records and events.
struct Three {
    node: Node,
    writer: SessionId,
    coalescing: SessionId,
    stock: SessionId,
}

const RECORDS: [&str; 4] = ["a", "b", "c", "d"];

fn three(settings: Settings) -> Three {
    let mut node = Node::with(2, settings, Arc::new(AllowAll));
    let writer = node.login();
    let coalescing = node.login_coalescing(0);
    let stock = node.login_on(1);
    for session in [coalescing, stock] {
        node.send(session, &read_on(&RECORDS));
        node.send(session, &listen_to(&["news", "sport"]));
        node.take(session);
    }
    Three {
        node,
        writer,
        coalescing,
        stock,
    }
}

impl Three {
    fn write(&mut self, name: &str, data: &str) {
        self.node.send(self.writer, &set(name, data));
    }

    fn coalescing_saw(&mut self) -> Vec<String> {
        received(&self.node.take(self.coalescing))
    }
}

#[test]
fn a_lagging_session_gets_only_the_newest_value_of_each_changed_record() {
    let mut three = three(Settings::default());
    three.write("a", "{}");
    assert_eq!(three.coalescing_saw(), ["whole \"a\" to 1"]);
    three.node.lag(three.coalescing);
    for number in 0..5 {
        three.write("a", &format!(r#"{{"n":{number}}}"#));
        three.write("b", &format!(r#"{{"n":{number}}}"#));
    }
    assert_eq!(three.coalescing_saw(), Vec::<String>::new());
    assert_eq!(three.node.counts(0).lag.skipped_updates, 10);
    three.node.drained(three.coalescing);
    let mut saw = three.coalescing_saw();
    saw.sort();
    assert_eq!(saw, ["whole \"a\" to 6", "whole \"b\" to 5"]);
    assert_eq!(three.node.counts(0).lag.sessions, 0);
    three.write("a", "{}");
    three.write("c", "{}");
    assert_eq!(
        three.coalescing_saw(),
        ["whole \"a\" to 7", "whole \"c\" to 1"]
    );
    assert_eq!(three.node.counts(0).lagging_names, 0);
}

#[test]
fn a_session_that_does_not_coalesce_gets_every_change() {
    let mut three = three(Settings::default());
    three.node.lag(three.stock);
    for _ in 0..3 {
        three.write("a", "{}");
        three.node.send(three.writer, &emit("news", "1"));
    }
    let seen = received(&three.node.take(three.stock));
    assert_eq!(seen.len(), 6, "{seen:?}");
    three.node.drained(three.stock);
    assert!(three.node.take(three.stock).is_empty());
    assert_eq!(three.node.counts(1).lag.lags, 0);
}

#[test]
fn a_gap_reports_how_many_events_of_each_name_were_skipped() {
    let mut three = three(Settings::default());
    three.node.send(three.writer, &emit("news", "1"));
    three.node.lag(three.coalescing);
    for _ in 0..3 {
        three.node.send(three.writer, &emit("news", "1"));
        three.node.send(three.stock, &emit("news", "1"));
        // The session's own events do not count as missed.
        three.node.send(three.coalescing, &emit("news", "1"));
    }
    three.node.drained(three.coalescing);
    three.node.send(three.writer, &emit("news", "1"));
    let saw = three.coalescing_saw();
    assert_eq!(
        saw,
        [
            "Event(Publication(Publication ",
            "gap \"news\" of 6",
            "Event(Publication(Publication "
        ]
    );
    let counts = three.node.counts(0).lag;
    assert_eq!((counts.skipped_events, counts.event_gaps), (6, 1));
}

#[test]
fn events_are_kept_in_full_where_the_policy_says_so() {
    let mut three = three(Settings {
        event_lag_policy: EventLagPolicy::Disconnect,
        ..Settings::default()
    });
    three.node.lag(three.coalescing);
    three.node.send(three.writer, &emit("news", "1"));
    three.write("a", "{}");
    assert_eq!(three.coalescing_saw(), ["Event(Publication(Publication "]);
    three.node.drained(three.coalescing);
    assert_eq!(three.coalescing_saw(), ["whole \"a\" to 1"]);
}

#[test]
fn deletions_providers_and_presence_are_sent_at_once() {
    let mut three = three(Settings::default());
    three
        .node
        .send(three.coalescing, &Message::Presence(Presence::SubscribeAll));
    three.node.take(three.coalescing);
    three.node.lag(three.coalescing);
    let listen = Listen::Listen { pattern: "^b$" };
    three
        .node
        .send(three.writer, &Message::Record(Record::Listen(listen)));
    let accept = Listen::Accept {
        pattern: "^b$",
        subscription: "b",
    };
    three
        .node
        .send(three.writer, &Message::Record(Record::Listen(accept)));
    three.write("a", "{}");
    let delete = Message::Record(Record::Delete { name: "a" });
    three.node.send(three.writer, &delete);
    let saw = three.coalescing_saw();
    assert_eq!(saw, ["Record(HasProvider ", "Record(Deleted "]);
    three.node.drained(three.coalescing);
    assert!(three.coalescing_saw().is_empty());
    assert_eq!(three.node.counts(0).lagging_names, 0);
}

#[test]
fn a_lagging_session_gets_answers_to_its_requests() {
    let mut three = three(Settings::default());
    three.node.lag(three.coalescing);
    three.write("a", r#"{"n":1}"#);
    let read = Message::Record(Record::Read { name: "a" });
    let seen = three.node.ask(three.coalescing, &read);
    assert!(seen[0].contains("ReadResponse"), "{seen:?}");
    // A new subscription gets its first value; after that the server skips its messages as well.
    three.node.send(three.coalescing, &read_on(&["new"]));
    three.node.send(three.coalescing, &listen_to(&["late"]));
    let seen = three.coalescing_saw();
    assert!(seen.iter().any(|seen| seen.contains("ReadResponse")));
    three.write("new", r#"{"n":1}"#);
    three.node.send(three.writer, &emit("late", "1"));
    assert!(three.coalescing_saw().is_empty());
    // A subscription that has ended gets no catch-up.
    three
        .node
        .send(three.coalescing, &bulk(RecordBulk::Unsubscribe, &["a"]));
    three.node.take(three.coalescing);
    three.node.drained(three.coalescing);
    let saw = three.coalescing_saw();
    assert_eq!(saw, ["gap \"late\" of 1", "whole \"new\" to 1"]);
}

/// A session that lagged must read each value before it gets the next one.
fn one_value_at_a_time() -> Settings {
    Settings {
        limits: Limits {
            catch_up_bytes_max: 1,
            ..Limits::default()
        },
        ..Settings::default()
    }
}

#[test]
fn values_come_in_portions_that_are_read_in_between() {
    let mut three = three(one_value_at_a_time());
    three.node.lag(three.coalescing);
    RECORDS.iter().for_each(|name| three.write(name, "{}"));
    three.node.drained(three.coalescing);
    let mut saw = Vec::new();
    for round in 0..RECORDS.len() {
        let portion = three.coalescing_saw();
        assert_eq!(portion.len(), 1, "round {round}: {portion:?}");
        saw.extend(portion);
        let is_last = round == RECORDS.len() - 1;
        assert_eq!(three.node.is_awaited(three.coalescing), !is_last);
        // A session that has the value already gets a later change as a step. Otherwise the change is part of the value.
        three.write("d", "{}");
        saw.extend(
            three
                .coalescing_saw()
                .into_iter()
                .filter(|seen| !seen.contains("\"d\"")),
        );
        three.node.drained(three.coalescing);
    }
    saw.sort();
    assert_eq!(saw.len(), 4, "{saw:?}");
    assert_eq!(three.node.counts(0).lag.sessions, 0);
}

#[test]
fn a_session_that_lags_again_during_catch_up_starts_over() {
    let mut three = three(one_value_at_a_time());
    three.node.lag(three.coalescing);
    RECORDS.iter().for_each(|name| three.write(name, "{}"));
    three.node.drained(three.coalescing);
    assert_eq!(three.coalescing_saw().len(), 1);
    three.node.lag(three.coalescing);
    RECORDS.iter().for_each(|name| three.write(name, "{}"));
    assert!(three.coalescing_saw().is_empty());
    let mut saw = Vec::new();
    for _ in RECORDS {
        three.node.drained(three.coalescing);
        saw.extend(three.coalescing_saw());
    }
    saw.sort();
    let expected: Vec<String> = RECORDS.map(|name| format!("whole {name:?} to 2")).into();
    assert_eq!(saw, expected);
    assert_eq!(three.node.counts(0).lag.sessions, 0);
}

#[test]
fn a_record_that_cannot_be_read_ends_the_connection() {
    let mut three = three(Settings::default());
    three.node.lag(three.coalescing);
    three.write("a", "{}");
    three.node.loads_fail = true;
    three
        .node
        .send(three.writer, &bulk(RecordBulk::Notify, &["a"]));
    three.node.drained(three.coalescing);
    assert_eq!(
        three.node.close_reason(three.coalescing),
        Some(CloseReason::NotCaughtUp)
    );
    three.node.close(three.coalescing);
    assert_eq!(three.node.counts(0).lag.sessions, 0);
    assert_eq!(three.node.counts(0).lagging_names, 0);
}

#[test]
fn a_session_that_ends_while_it_lags_leaves_no_state() {
    let mut three = three(Settings::default());
    three.node.lag(three.coalescing);
    three.write("a", "{}");
    three.node.close(three.coalescing);
    three.node.close(three.stock);
    let counts = three.node.counts(0);
    assert_eq!(counts.lag.sessions, 0);
    assert_eq!((counts.lagging_names, counts.subscribed_names), (0, 0));
}
