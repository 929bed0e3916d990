//! Rules that change while sessions are subscribed: which sessions lose a right, and that the others notice nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Call, Event, Listen, Message, Presence, Record, RecordBulk, Rpc};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question, Unknown};
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;

use crate::driver::{Node, set};

/// Denies some accesses to names with this prefix. With a gate, it allows them while that record is `{"open":true}`.
#[derive(Debug, Default)]
struct Denies {
    accesses: Vec<Access>,
    prefix: &'static str,
    gate: Option<&'static str>,
    fails: bool,
}

impl Permission for Denies {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let name = question.name.unwrap_or_default();
        if !self.accesses.contains(&question.access) || !name.starts_with(self.prefix) {
            return Decision::Allow;
        }
        if let Some(gate) = self.gate {
            return match question.record(gate) {
                Ok(Some(value)) if value.as_str() == r#"{"open":true}"# => Decision::Allow,
                Ok(_) => Decision::Deny,
                Err(needed) => needed,
            };
        }
        match self.fails {
            true => Decision::Failed,
            false => Decision::Deny,
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        // These rules never read a document.
        Some(self.decide(question))
    }
}

fn denies(accesses: &[Access], prefix: &'static str) -> Arc<Denies> {
    Arc::new(Denies {
        accesses: accesses.to_vec(),
        prefix,
        ..Denies::default()
    })
}

fn node(shards: u16) -> Node {
    Node::with(shards, Settings::default(), Arc::new(AllowAll))
}

fn subscribe<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

fn emit(name: &str) -> Message<'_> {
    Message::Event(Event::publication(name, None))
}

fn read_on<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: names.to_vec(),
        correlation: Some("1"),
    })
}

fn provide(name: &str) -> Message<'_> {
    Message::Rpc(Rpc::Provide {
        names: vec![name],
        correlation: Some("1"),
    })
}

/// Asserts that a session has received one message with each of the parts, and no others.
#[track_caller]
fn heard(node: &mut Node, session: SessionId, parts: &[&str]) {
    let seen = node.take(session);
    let as_expected = seen.len() == parts.len()
        && parts
            .iter()
            .all(|part| seen.iter().any(|seen| seen.contains(part)));
    assert!(as_expected, "{seen:?}, expected {parts:?}");
}

#[test]
fn exactly_the_subscriptions_without_a_right_end() {
    let mut node = node(2);
    let reader = node.login_on(0);
    let writer = node.login_on(1);
    node.ask(reader, &subscribe(&["open", "secret/a", "secret/b"]));
    node.ask(reader, &read_on(&["r/open", "secret/r"]));
    node.set_rules(denies(
        &[Access::EventSubscribe, Access::RecordRead],
        "secret/",
    ));
    heard(
        &mut node,
        reader,
        &["\"secret/a\"", "\"secret/b\"", "\"secret/r\""],
    );
    for name in ["open", "secret/a", "secret/b"] {
        node.send(writer, &emit(name));
    }
    node.send(writer, &set("r/open", "{\"n\":1}"));
    node.send(writer, &set("secret/r", "{\"n\":1}"));
    heard(&mut node, reader, &["\"open\"", "\"r/open\""]);
    assert_eq!(node.counts(0).rights_lost, 3);
    let refused = node.ask(reader, &subscribe(&["secret/a"]));
    assert!(refused[0].contains("Denied"), "{refused:?}");
}

#[test]
fn every_kind_of_subscription_is_reauthorized() {
    let mut node = node(2);
    let session = node.login_on(1);
    let other = node.login_on(0);
    node.ask(session, &provide("do"));
    for listen in [
        Message::Event(Event::Listen(Listen::Listen { pattern: "^a" })),
        Message::Record(Record::Listen(Listen::Listen { pattern: "^b" })),
        Message::Presence(Presence::SubscribeAll),
        Message::Presence(Presence::Subscribe {
            names: vec!["open"],
            correlation: Some("2"),
        }),
    ] {
        node.ask(session, &listen);
    }
    let all = [
        Access::RpcProvide,
        Access::EventListen,
        Access::RecordListen,
        Access::Presence,
    ];
    node.set_rules(denies(&all, ""));
    heard(
        &mut node,
        session,
        &[
            "action: Provide",
            "Event(Error(Refusal { reason: Denied, action: Listen",
            "Record(Error(Refusal { reason: Denied, action: Listen",
            "action: SubscribeAll, name: None",
            "action: Subscribe, name: Some(\"open\")",
        ],
    );
    for shard in 0..2 {
        let counts = node.counts(shard);
        assert_eq!((counts.patterns, counts.provided_rpcs), (0, 0));
    }
    let call = Call {
        name: "do",
        correlation: "9",
    };
    let answer = node.ask(
        other,
        &Message::Rpc(Rpc::Request {
            call,
            data: None,
            requestor_name: None,
            requestor_data: None,
        }),
    );
    assert!(answer[0].contains("NoProvider"), "{answer:?}");
}

#[test]
fn a_call_goes_on_to_the_next_provider_when_the_first_has_lost_its_right() {
    let mut node = node(1);
    let (first, second, caller) = (node.login(), node.login(), node.login());
    node.ask(first, &provide("do"));
    let call = Call {
        name: "do",
        correlation: "9",
    };
    node.ask(
        caller,
        &Message::Rpc(Rpc::Request {
            call,
            data: None,
            requestor_name: None,
            requestor_data: None,
        }),
    );
    heard(&mut node, first, &["Request"]);
    node.set_rules(denies(&[Access::RpcProvide], "do"));
    heard(&mut node, first, &["Denied"]);
    heard(&mut node, caller, &["NoProvider"]);
    let _ = second;
    let late = node.ask(first, &Message::Rpc(Rpc::Response { call, data: None }));
    assert!(late[0].contains("InvalidCorrelation"), "{late:?}");
}

#[test]
fn a_rule_may_read_other_records_when_it_reauthorizes() {
    let mut node = node(3);
    let writer = node.login_on(0);
    node.ask(writer, &set("gate/open", "{\"open\":true}"));
    node.ask(writer, &set("gate/shut", "{}"));
    for (gate, denied) in [
        ("gate/open", false),
        ("gate/shut", true),
        ("gate/none", true),
    ] {
        let reader = node.login_on(1);
        node.ask(reader, &subscribe(&["e"]));
        node.ask(reader, &read_on(&["r"]));
        node.set_rules(Arc::new(Denies {
            accesses: vec![Access::EventSubscribe, Access::RecordRead],
            gate: Some(gate),
            ..Denies::default()
        }));
        let expected: &[&str] = if denied { &["\"e\"", "\"r\""] } else { &[] };
        heard(&mut node, reader, expected);
        node.set_rules(Arc::new(AllowAll));
        node.close(reader);
    }
}

#[test]
fn a_rule_that_fails_ends_subscriptions_and_reports_it() {
    let mut node = node(1);
    let reader = node.login();
    node.ask(reader, &subscribe(&["e"]));
    node.ask(reader, &read_on(&["r"]));
    node.set_rules(Arc::new(Denies {
        accesses: vec![Access::EventSubscribe, Access::RecordRead],
        fails: true,
        ..Denies::default()
    }));
    heard(
        &mut node,
        reader,
        &[
            "Event(Error(Refusal { reason: RuleFailed",
            "Record(Error(Refusal { reason: RuleFailed",
        ],
    );
}

#[test]
fn a_subscription_that_was_asked_for_by_the_old_rules_is_authorized_by_the_new_ones() {
    let mut node = node(2);
    node.store_hangs = true;
    let reader = node.login_on(0);
    // The requests are in flight to owners that must load the records.
    node.ask(reader, &read_on(&["r/1", "r/2", "r/3", "r/4"]));
    node.begin_change(RightsChange::Rules(denies(&[Access::RecordRead], "r/")));
    node.finish_changes();
    node.answer_store();
    let seen = node.take(reader);
    let denied: BTreeSet<&String> = seen.iter().filter(|seen| seen.contains("Denied")).collect();
    assert_eq!((denied.len(), seen.len()), (4, 4), "{seen:?}");
}

#[test]
fn many_rights_are_authorized_slice_by_slice() {
    let mut node = node(1);
    let names: Vec<String> = (0..3_000)
        .map(|number| format!("secret/{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reader = node.login();
    node.ask(reader, &subscribe(&names));
    while node.turn() {}
    node.take(reader);
    node.begin_change(RightsChange::Rules(denies(
        &[Access::EventSubscribe],
        "secret/",
    )));
    let mut slices = 0;
    while node.counts(0).subscribed_names > 0 {
        node.go_on();
        let ended = node.take(reader).len();
        assert!(ended <= 500, "{ended} at once");
        slices += 1;
    }
    assert_eq!(slices, 7, "the first slice looks at the session");
    node.finish_changes();
}

#[test]
fn rules_that_change_again_before_the_end_of_a_reauthorization_decide() {
    let mut node = node(2);
    let reader = node.login_on(1);
    node.ask(reader, &subscribe(&["a", "b"]));
    node.ask(reader, &read_on(&["a", "b"]));
    let both = [Access::EventSubscribe, Access::RecordRead];
    node.begin_change(RightsChange::Rules(denies(&both, "a")));
    node.set_rules(denies(&both, "b"));
    heard(
        &mut node,
        reader,
        &[
            "Event(Error(Refusal { reason: Denied",
            "Record(Error(Refusal { reason: Denied",
        ],
    );
    assert_eq!(node.counts(1).rights_lost, 2);
}

#[test]
fn a_lagging_session_loses_what_it_may_not_read() {
    let mut node = node(1);
    let reader = node.login_coalescing(0);
    let writer = node.login();
    node.ask(reader, &subscribe(&["secret"]));
    node.ask(reader, &read_on(&["secret", "open"]));
    node.lag(reader);
    for name in ["secret", "open"] {
        node.send(writer, &set(name, "{\"n\":1}"));
    }
    node.send(writer, &emit("secret"));
    node.set_rules(denies(
        &[Access::EventSubscribe, Access::RecordRead],
        "secret",
    ));
    heard(
        &mut node,
        reader,
        &[
            "Event(Error(Refusal { reason: Denied",
            "Record(Error(Refusal { reason: Denied",
        ],
    );
    node.drained(reader);
    heard(&mut node, reader, &["\"open\""]);
    assert_eq!(node.counts(0).lag.sessions, 0);
    assert_eq!(node.counts(0).lagging_names, 0);
}
