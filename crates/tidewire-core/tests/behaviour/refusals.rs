//! The answers in cases where the original server is wrong, and the refusals of a draining node.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::CloseReason;
use tidewire_core::message::{
    Auth, Call, Change, Connection, Event, Listen, Message, Publication, Record, RecordBulk, Rpc,
    Write,
};
use tidewire_core::permission::{Decision, Permission, Question, Unknown};
use tidewire_core::settings::{Liveness, Settings};
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::driver::{Node, set};

/// Denies names under `denied/`, and allows names under `gated/` only while the record `gate` is open.
#[derive(Debug)]
struct Rules;

impl Permission for Rules {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let name = question.name.unwrap_or_default();
        if name.starts_with("denied/") {
            return Decision::Deny;
        }
        if !name.starts_with("gated/") {
            return Decision::Allow;
        }
        match question.record("gate") {
            Ok(Some(gate)) if gate.as_str() == r#"{"open":true}"# => Decision::Allow,
            Ok(_) => Decision::Deny,
            Err(need) => need,
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        // These rules never read a document.
        Some(self.decide(question))
    }
}

fn node() -> Node {
    Node::with(2, Settings::default(), Arc::new(Rules))
}

/// Makes the session a provider of the rpc `p`.
fn provide(node: &mut Node, session: SessionId) {
    let provide = Rpc::Provide {
        names: vec!["p"],
        correlation: Some("0"),
    };
    node.ask(session, &Message::Rpc(provide));
}

fn request(correlation: &str) -> Message<'_> {
    let call = Call {
        name: "p",
        correlation,
    };
    Message::Rpc(Rpc::Request {
        call,
        data: Some("1"),
        requestor_name: None,
        requestor_data: None,
    })
}

#[test]
fn a_bulk_message_loses_exactly_the_refused_names() {
    let mut node = node();
    let (session, other) = (node.login_on(0), node.login_on(1));
    let names = vec!["k1", "denied/2", "k2"];
    let seen = node.ask(
        session,
        &Message::Event(Event::Subscribe {
            names,
            correlation: Some("0"),
            positions: Vec::new(),
        }),
    );
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen[0].contains("Denied")
            && seen[0].contains("denied/2")
            && seen[0].contains(r#"Some("0")"#)
    );
    for (name, arrives) in [("k1", true), ("k2", true)] {
        node.send(other, &Message::Event(Event::publication(name, None)));
        assert_eq!(node.take(session).len() == 1, arrives, "{name}");
    }
    let names = vec!["denied/1"];
    let seen = node.ask(
        session,
        &Message::Event(Event::Subscribe {
            names,
            correlation: Some("1"),
            positions: Vec::new(),
        }),
    );
    assert_eq!(seen.len(), 1, "no ack if nothing is left: {seen:?}");
}

#[test]
fn a_rule_waits_for_the_record_that_it_needs_at_the_session_and_at_the_owner() {
    let mut node = node();
    let (session, other) = (node.login_on(0), node.login_on(1));
    let subscribe = Event::Subscribe {
        names: vec!["gated/e"],
        correlation: Some("0"),
        positions: Vec::new(),
    };
    let seen = node.ask(session, &Message::Event(subscribe.clone()));
    assert!(seen[0].contains("Denied"), "{seen:?}");
    let seen = node.ask(session, &set("gated/r", "{}"));
    assert!(seen[0].contains("Denied"), "{seen:?}");
    node.ask(other, &set("gate", r#"{"open":true}"#));
    let seen = node.ask(session, &Message::Event(subscribe));
    assert!(seen[0].contains("Ack"), "{seen:?}");
    let seen = node.ask(session, &set("gated/r", "{}"));
    assert!(seen[0].contains("WriteAck"), "{seen:?}");
}

#[test]
fn unreadable_logins_are_answered_and_the_connection_is_closed() {
    for data in [
        None,
        Some("null"),
        Some("1"),
        Some("{\"a\":"),
        Some("\"x\""),
    ] {
        let mut node = node();
        let session = node.connect(0);
        let challenge = Connection::challenge(false);
        node.send(session, &Message::Connection(challenge));
        let seen = node.ask(session, &Message::Auth(Auth::Request { data }));
        assert!(
            seen.iter().any(|seen| seen.contains("InvalidMessageData")),
            "{data:?}: {seen:?}"
        );
        assert_eq!(node.close_reason(session), Some(CloseReason::InvalidLogin));
    }
}

#[test]
fn a_connection_without_login_is_closed_after_the_time_allowed() {
    let mut node = node();
    let session = node.connect(0);
    node.pass(Duration::from_secs(181));
    assert_eq!(
        node.close_reason(session),
        Some(CloseReason::AuthenticationTimeout)
    );
}

#[test]
fn a_silent_connection_is_closed_and_a_pinging_one_is_not() {
    let mut node = node();
    let (silent, alive) = (node.login(), node.login());
    for _ in 0..8 {
        node.pass(Duration::from_secs(15));
        assert!(node.ask(alive, &Message::Connection(Connection::Ping))[0].contains("Pong"));
    }
    assert_eq!(node.close_reason(silent), Some(CloseReason::Silent));
    assert_eq!(node.close_reason(alive), None);
}

fn with_liveness(liveness: Liveness) -> Node {
    Node::new(Settings {
        liveness: vec![liveness],
        heartbeat_interval: Duration::from_secs(25),
        heartbeat_timeout: Duration::from_secs(20),
        ..Settings::default()
    })
}

#[test]
fn a_session_that_does_not_answer_the_pings_of_the_server_is_closed() {
    let mut node = with_liveness(Liveness::PingsSilent);
    let (silent, alive, stranger) = (node.login(), node.login(), node.connect(0));
    let mut pings = 0;
    for _ in 0..8 {
        node.pass(Duration::from_millis(12_500));
        let seen = node.take(alive);
        if seen.iter().any(|seen| seen.contains("Ping")) {
            pings += 1;
            node.send(alive, &Message::Connection(Connection::Pong));
        }
    }
    assert_eq!(node.close_reason(silent), Some(CloseReason::Silent));
    assert_eq!(node.close_reason(alive), None);
    assert!((3..=4).contains(&pings), "{pings} pings in 4 intervals");
    assert!(node.take(stranger).is_empty(), "it has not logged in");
}

/// The number of pings among the messages for a session.
fn pings(node: &mut Node, session: SessionId) -> usize {
    let seen = node.take(session);
    seen.iter().filter(|seen| seen.contains("Ping")).count()
}

#[test]
fn a_session_whose_peer_counts_pings_gets_one_in_each_interval_while_it_sends_messages() {
    let mut node = with_liveness(Liveness::PingsAll);
    let (busy, stranger) = (node.login(), node.connect(0));
    for round in 0..4 {
        node.pass(Duration::from_millis(24_900));
        assert_eq!(pings(&mut node, busy), 0, "round {round}");
        node.ask(busy, &Message::Connection(Connection::Ping));
        node.pass(Duration::from_millis(101));
        assert_eq!(pings(&mut node, busy), 1, "round {round}");
        node.send(busy, &Message::Connection(Connection::Pong));
        // One that nothing has asked for changes nothing.
        node.send(busy, &Message::Connection(Connection::Pong));
        if round == 0 {
            assert_eq!(pings(&mut node, stranger), 1);
        }
    }
    assert_eq!(node.close_reason(busy), None);
    assert_eq!(node.close_reason(stranger), Some(CloseReason::Silent));
}

#[test]
fn a_session_that_owes_an_answer_is_closed_after_the_timeout_whatever_else_it_sends() {
    let mut node = with_liveness(Liveness::PingsAll);
    let (busy, detached) = (node.login(), node.login());
    node.pass(Duration::from_millis(25_001));
    assert_eq!(pings(&mut node, busy), 1);
    node.detach(detached);
    for _ in 0..19 {
        node.pass(Duration::from_secs(1));
        assert!(node.ask(busy, &Message::Connection(Connection::Ping))[0].contains("Pong"));
    }
    node.pass(Duration::from_millis(990));
    assert_eq!(node.close_reason(busy), None);
    node.pass(Duration::from_millis(11));
    assert_eq!(node.close_reason(busy), Some(CloseReason::Silent));
    assert_eq!(node.close_reason(detached), None, "it has another deadline");
}

#[test]
fn a_publication_is_acknowledged_or_refused_if_its_publisher_requests_that() {
    let mut node = node();
    let (publisher, subscriber) = (node.login_on(0), node.login_on(1));
    let subscribe = Message::Event(Event::Subscribe {
        names: vec!["e"],
        correlation: None,
        positions: Vec::new(),
    });
    node.ask(subscriber, &subscribe);
    let publish = |name| {
        Message::Event(Event::Publish {
            publication: Publication::new(name, Some("1"), None, None),
            correlation: "7",
        })
    };
    let answers = node.ask(publisher, &publish("e"));
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].contains(r#"Ack { action: Publish, correlation: Some("7") }"#));
    assert!(node.take(subscriber)[0].contains("Publication"));
    let refused = node.ask(publisher, &publish(""));
    assert!(refused[0].contains("InvalidData") && refused[0].contains(r#"Some("7")"#));
    assert_eq!(refused.len(), 1, "{refused:?}");
}

#[test]
fn answers_to_calls_count_only_from_the_provider_that_was_asked() {
    let mut node = node();
    let (provider, requestor, stranger) = (node.login_on(0), node.login_on(1), node.login_on(0));
    provide(&mut node, provider);
    node.send(requestor, &request("c"));
    let call = Call {
        name: "p",
        correlation: "c",
    };
    let response = Message::Rpc(Rpc::Response {
        call,
        data: Some("2"),
    });
    assert!(node.ask(stranger, &response)[0].contains("InvalidCorrelation"));
    assert!(node.take(requestor).is_empty());
    node.send(provider, &response);
    assert!(node.take(requestor)[0].contains("Response"));
    assert!(node.take(provider)[0].contains("Request"));
    assert!(node.ask(provider, &response)[0].contains("InvalidCorrelation"));
}

#[test]
fn equal_correlation_ids_of_two_requestors_do_not_meet_at_the_provider() {
    let mut node = node();
    let (provider, one, two) = (node.login_on(0), node.login_on(1), node.login_on(0));
    provide(&mut node, provider);
    node.send(one, &request("c"));
    node.send(two, &request("c"));
    let asked = node.take(provider);
    assert_eq!(asked.len(), 2);
    assert!(
        asked[0].contains(r#"correlation: "c""#) && asked[1].contains(r#"correlation: "c~"#),
        "{asked:?}"
    );
    let call = Call {
        name: "p",
        correlation: "c",
    };
    node.send(
        provider,
        &Message::Rpc(Rpc::Response {
            call,
            data: Some("1"),
        }),
    );
    assert_eq!((node.take(one).len(), node.take(two).len()), (1, 0));
}

#[test]
fn accept_then_reject_goes_to_the_next_provider_with_a_fresh_clock() {
    let mut node = node();
    let (first, requestor) = (node.login_on(0), node.login_on(1));
    provide(&mut node, first);
    node.send(requestor, &request("c"));
    let call = Call {
        name: "p",
        correlation: "c",
    };
    node.send(first, &Message::Rpc(Rpc::Accept(call)));
    let second = node.login_on(1);
    provide(&mut node, second);
    node.pass(Duration::from_millis(900));
    node.send(first, &Message::Rpc(Rpc::Reject(call)));
    assert!(node.take(second)[0].contains("Request"));
    node.pass(Duration::from_millis(900));
    node.send(second, &Message::Rpc(Rpc::Accept(call)));
    node.pass(Duration::from_millis(900));
    node.send(second, &Message::Rpc(Rpc::Response { call, data: None }));
    let seen = node.take(requestor);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen[2].contains("Response"));
}

#[test]
fn a_provider_that_goes_has_its_calls_rerouted_or_failed_at_once() {
    let mut node = node();
    let (provider, requestor) = (node.login_on(0), node.login_on(1));
    provide(&mut node, provider);
    node.send(requestor, &request("c"));
    node.close(provider);
    assert!(node.take(requestor)[0].contains("NoProvider"));
    assert_eq!(node.counts(0).calls + node.counts(1).calls, 0);
}

#[test]
fn a_call_is_accepted_and_answered_in_time_or_fails() {
    let mut node = node();
    let (provider, requestor) = (node.login_on(0), node.login_on(1));
    provide(&mut node, provider);
    node.send(requestor, &request("a"));
    node.pass(Duration::from_millis(1_001));
    assert!(node.take(requestor)[0].contains("AcceptTimeout"));
    node.send(requestor, &request("b"));
    node.send(
        provider,
        &Message::Rpc(Rpc::Accept(Call {
            name: "p",
            correlation: "b",
        })),
    );
    node.pass(Duration::from_millis(10_001));
    assert!(node.take(requestor)[1].contains("ResponseTimeout"));
}

#[test]
fn listeners_are_asked_one_at_a_time_and_subscribers_learn_of_the_provider() {
    let settings = Settings {
        listen_shuffle: false,
        ..Settings::default()
    };
    let mut node = Node::with(2, settings, Arc::new(Rules));
    let (first, second, subscriber) = (node.login_on(0), node.login_on(1), node.login_on(1));
    let listen = Message::Record(Record::Listen(Listen::Listen { pattern: "a/.*" }));
    assert!(node.ask(first, &listen)[0].contains("ListenAck"));
    assert!(node.ask(first, &listen)[0].contains("AlreadyListening"));
    assert!(node.ask(second, &listen)[0].contains("ListenAck"));
    let names = vec!["a/1"];
    let read = Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names,
        correlation: Some("0"),
    };
    node.send(subscriber, &Message::Record(read));
    assert!(node.take(first)[0].contains("Found"));
    node.pass(Duration::from_millis(501));
    assert!(node.take(first)[0].contains("ResponseTimeout"));
    assert!(node.take(second)[0].contains("Found"));
    let accept = Message::Record(Record::Listen(Listen::Accept {
        pattern: "a/.*",
        subscription: "a/1",
    }));
    node.send(first, &accept);
    node.take(subscriber);
    node.send(second, &accept);
    assert!(node.take(subscriber)[0].contains("provided: true"));
    node.close(second);
    let received = node.take(subscriber);
    assert!(received[0].contains("provided: false"), "{received:?}");
    assert!(node.take(first)[0].contains("Found"));
    node.send(first, &accept);
    assert!(node.take(subscriber)[0].contains("provided: true"));
    node.close(subscriber);
    assert!(node.take(first)[0].contains("Removed"));
    let refused = |node: &Node| node.counts(0).refused.uncompilable;
    // A malformed pattern, and one that compiles into more than a megabyte.
    for (count, pattern) in [(1, "("), (2, r"(\pL{1000}){1000}")] {
        let bad = Message::Event(Event::Listen(Listen::Listen { pattern }));
        assert!(node.ask(first, &bad)[0].contains("InvalidPattern"));
        assert_eq!(refused(&node), count);
    }
}

#[test]
fn draining_refuses_new_calls_and_finishes_everything_else() {
    let mut node = node();
    let (provider, requestor) = (node.login_on(0), node.login_on(1));
    provide(&mut node, provider);
    node.send(requestor, &request("running"));
    node.drain();
    assert!(node.ask(requestor, &request("new"))[0].contains("NoProvider"));
    assert!(node.ask(requestor, &set("r", "{}"))[0].contains("WriteAck"));
    let delete = Message::Record(Record::Delete { name: "r" });
    let deleted = node.ask(requestor, &delete);
    assert!(deleted[0].contains("Record(DeleteSuccess "), "{deleted:?}");
    let call = Call {
        name: "p",
        correlation: "running",
    };
    node.send(
        provider,
        &Message::Rpc(Rpc::Response {
            call,
            data: Some("1"),
        }),
    );
    assert!(node.take(requestor)[0].contains("Response"));
}

#[test]
fn after_the_last_version_comes_the_first_as_a_whole_update() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    let data = Payload::from_checked(r#"{"a":1}"#);
    node.store_has(
        "r",
        StoredRecord {
            incarnation: Incarnation(9),
            version: Version::LAST,
            data,
            write_keys: None,
        },
    );
    let names = vec!["r"];
    let read = Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names,
        correlation: Some("0"),
    };
    node.ask(reader, &Message::Record(read));
    let write = Write {
        name: "r",
        version: -1,
        correlation: Some("1"),
        write_ack: true,
        key: None,
    };
    let patch = Change::Patch {
        path: "a",
        data: Some("2"),
    };
    node.send(writer, &Message::Record(Record::Write(write, patch)));
    let seen = node.take(reader);
    assert!(
        seen[0].contains("version: 1") && seen[0].contains("Update"),
        "{seen:?}"
    );
    assert_eq!(
        node.stored("r").map(|record| record.version),
        Some(Version(1))
    );
}

#[test]
fn a_deleted_record_ends_its_subscriptions_and_starts_afresh() {
    let mut node = node();
    let (one, two) = (node.login_on(0), node.login_on(1));
    node.ask(one, &set("r", r#"{"a":1}"#));
    let read = |names| {
        Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            names,
            correlation: Some("0"),
        })
    };
    node.ask(one, &read(vec!["r"]));
    node.ask(two, &read(vec!["r"]));
    let seen = node.ask(one, &Message::Record(Record::Delete { name: "r" }));
    assert!(
        seen[0].contains("DeleteSuccess") && seen.len() == 1,
        "{seen:?}"
    );
    assert!(node.take(two)[0].contains("Deleted"));
    assert!(node.stored("r").is_none());
    let seen = node.ask(two, &read(vec!["r"]));
    assert!(
        seen[1].contains("version: 0") && !seen[1].contains("Multiple"),
        "{seen:?}"
    );
    node.ask(one, &set("r", r#"{"b":1}"#));
    assert!(node.take(two)[0].contains("version: 1"));
}
