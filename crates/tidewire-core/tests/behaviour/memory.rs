//! Memory that the node keeps for sessions: it counts every byte, charges it to one session, and releases it with the session.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Call, Event, Listen, Message, Presence, Record, RecordBulk, Rpc};
use tidewire_core::permission::{Access, Decision, Permission, Question};
use tidewire_core::settings::Settings;

use crate::driver::{Node, set};

const SHARDS: u16 = 3;
const COUNT: usize = 50;

fn node() -> Node {
    Node::with(
        SHARDS,
        Settings::default(),
        Arc::new(tidewire_core::permission::AllowAll),
    )
}

/// Names of 1,000 bytes each.
fn names(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{number:0>1000}"))
        .collect()
}

fn kept_bytes(node: &Node) -> usize {
    let shards = 0..usize::from(SHARDS);
    shards.map(|shard| node.counts(shard).kept_bytes).sum()
}

fn records(node: &Node) -> usize {
    let shards = 0..usize::from(SHARDS);
    shards.map(|shard| node.counts(shard).records).sum()
}

fn bulk<'a>(action: RecordBulk, names: &'a [String]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action,
        names: names.iter().map(String::as_str).collect(),
        correlation: Some("0"),
    })
}

/// The operation of the session on the names, by the name of the case.
fn keep(node: &mut Node, session: SessionId, case: &str, names: &[String]) {
    let borrowed = || names.iter().map(String::as_str).collect::<Vec<_>>();
    let correlation = Some("0");
    let message = match case {
        "events" => Message::Event(Event::Subscribe {
            names: borrowed(),
            correlation,
            positions: Vec::new(),
        }),
        "users" => Message::Presence(Presence::Subscribe {
            names: borrowed(),
            correlation,
        }),
        "rpcs" => Message::Rpc(Rpc::Provide {
            names: borrowed(),
            correlation,
        }),
        "records" => bulk(RecordBulk::SubscribeCreateAndRead, names),
        "missing records" => bulk(RecordBulk::SubscribeAndRead, names),
        "patterns" => {
            for pattern in borrowed() {
                // Patterns have a separate rate.
                node.pass(Duration::from_millis(200));
                let listen = Event::Listen(Listen::Listen { pattern });
                node.send(session, &Message::Event(listen));
            }
            return;
        }
        _ => unreachable!("{case}"),
    };
    node.send(session, &message);
}

const CASES: [&str; 6] = [
    "events",
    "users",
    "rpcs",
    "records",
    "missing records",
    "patterns",
];

#[test]
fn the_state_of_a_session_is_counted_and_released_when_it_ends() {
    for case in CASES {
        let mut node = node();
        node.login_on(1);
        let before = (kept_bytes(&node), records(&node));
        let session = node.login_on(0);
        keep(&mut node, session, case, &names(COUNT));
        let kept = kept_bytes(&node);
        assert!(kept > before.0 + COUNT * 1000, "{case}: {kept}");
        // A pattern of 1,000 letters compiles to 24 KB.
        assert!(kept < before.0 + COUNT * 30_000, "{case}: {kept}");
        let charged = node.kept_for(session);
        assert!(charged >= COUNT * 1000, "{case}: {charged}");
        node.close(session);
        for shard in 0..usize::from(SHARDS) {
            node.shrink_cache(shard, usize::MAX);
        }
        assert_eq!((kept_bytes(&node), records(&node)), before, "{case}");
    }
}

#[test]
fn released_state_is_no_longer_charged_to_the_session() {
    for case in CASES {
        let mut node = node();
        let session = node.login_on(0);
        let names = names(COUNT);
        keep(&mut node, session, case, &names);
        let borrowed = || names.iter().map(String::as_str).collect::<Vec<_>>();
        let correlation = Some("0");
        let give_up = match case {
            "events" => Message::Event(Event::Unsubscribe {
                names: borrowed(),
                correlation,
            }),
            "users" => Message::Presence(Presence::Unsubscribe {
                names: borrowed(),
                correlation,
            }),
            "rpcs" => Message::Rpc(Rpc::Unprovide {
                names: borrowed(),
                correlation,
            }),
            "patterns" => {
                for pattern in borrowed() {
                    node.pass(Duration::from_millis(200));
                    let unlisten = Event::Listen(Listen::Unlisten { pattern });
                    node.send(session, &Message::Event(unlisten));
                }
                Message::Connection(tidewire_core::message::Connection::Ping)
            }
            _ => bulk(RecordBulk::Unsubscribe, &names),
        };
        node.send(session, &give_up);
        assert_eq!(node.kept_for(session), 0, "{case}");
        assert_eq!(kept_bytes(&node), 0, "{case}");
    }
}

#[test]
fn a_name_is_charged_to_one_of_its_subscribers() {
    let mut node = node();
    let (first, second) = (node.login_on(0), node.login_on(0));
    for session in [first, second] {
        keep(&mut node, session, "events", &names(COUNT));
    }
    assert!(node.kept_for(first) > COUNT * 1000);
    assert!(node.kept_for(second) < COUNT * 100);
    let charged = node.kept_for(first);
    node.close(first);
    assert_eq!(node.kept_for(second), charged);
    node.close(second);
    assert_eq!(kept_bytes(&node), 0);
}

#[test]
fn the_value_of_a_record_is_charged_to_a_subscriber_and_follows_its_size() {
    let mut node = node();
    let (holder, writer) = (node.login_on(0), node.login_on(1));
    let value = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let large = format!("[{}]", value(100_000));
    node.send(writer, &set("r", &large));
    node.send(
        holder,
        &bulk(RecordBulk::SubscribeAndHead, &["r".to_owned()]),
    );
    let charged = node.kept_for(holder);
    assert!((100_000..101_000).contains(&charged), "{charged}");
    assert_eq!(node.kept_for(writer), 0);
    let larger = format!("[{}]", value(500_000));
    node.send(writer, &set("r", &larger));
    assert_eq!(node.kept_for(holder), charged + 400_000);
    node.send(writer, &set("r", "[]"));
    assert!(node.kept_for(holder) < 1_000);
}

/// Allows all users to write, and no user to read.
#[derive(Debug)]
struct DeniesReads;

impl Permission for DeniesReads {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::RecordRead => Decision::Deny,
            _ => Decision::Allow,
        }
    }
}

/// The maximum that each shard may keep for names that clients only requested.
const ASKED_BYTES_MAX: usize = 256 << 10;

fn record_bytes(node: &Node) -> usize {
    let shards = 0..usize::from(SHARDS);
    shards.map(|shard| node.counts(shard).record_bytes).sum()
}

#[test]
fn names_that_were_only_requested_keep_little_memory() {
    const ASKED: usize = 2_000;
    let mut missing = node();
    let session = missing.login_on(0);
    for name in &names(ASKED) {
        for message in [Record::Head { name }, Record::Read { name }] {
            missing.send(session, &Message::Record(message));
        }
    }
    let kept = record_bytes(&missing);
    assert!(
        kept <= 3 * ASKED_BYTES_MAX && kept > ASKED_BYTES_MAX,
        "{kept}"
    );
    assert_eq!(kept_bytes(&missing), 0);

    let mut forbidden = Node::with(SHARDS, Settings::default(), Arc::new(DeniesReads));
    let session = forbidden.login_on(0);
    let names = names(ASKED);
    for name in &names {
        forbidden.ask(session, &set(name, "{}"));
    }
    forbidden.take(session);
    for shard in 0..usize::from(SHARDS) {
        forbidden.shrink_cache(shard, usize::MAX);
    }
    assert_eq!(records(&forbidden), 0);
    forbidden.pass(Duration::from_secs(1));
    let before = kept_bytes(&forbidden);
    for name in &names {
        for message in [Record::Head { name }, Record::Read { name }] {
            let seen = forbidden.ask(session, &Message::Record(message));
            let is_denied = seen.last().is_some_and(|last| last.contains("Denied"));
            assert!(is_denied, "{} messages", seen.len());
        }
    }
    let kept = record_bytes(&forbidden);
    assert!(kept <= 3 * ASKED_BYTES_MAX, "{kept}");
    assert_eq!(kept_bytes(&forbidden), before);
}

#[test]
fn requests_that_wait_for_a_load_are_counted_until_the_store_answers() {
    let mut node = node();
    let session = node.login_on(0);
    node.store_hangs = true;
    let data = format!("[\"{}\"]", "x".repeat(10_000));
    node.send(session, &set("r", &data));
    let waiting = kept_bytes(&node);
    assert!((10_000..12_000).contains(&waiting), "{waiting}");
    node.store_hangs = false;
    node.answer_store();
    assert_eq!(kept_bytes(&node), 0);
}

fn call<'a>(correlation: &'a str, data: &'a str) -> Message<'a> {
    let call = Call {
        name: "add",
        correlation,
    };
    Message::Rpc(Rpc::Request {
        call,
        data: Some(data),
        requestor_name: None,
        requestor_data: None,
    })
}

/// A node with a provider on one shard and a requestor on another; a third shard is the owner.
fn with_provider() -> (Node, SessionId, SessionId) {
    let mut node = node();
    let (provider, requestor) = (node.login_on(1), node.login_on(2));
    let provide = Rpc::Provide {
        names: vec!["add"],
        correlation: Some("0"),
    };
    node.send(provider, &Message::Rpc(provide));
    (node, provider, requestor)
}

#[test]
fn calls_are_counted_with_their_payloads_until_they_end() {
    let (mut node, provider, requestor) = with_provider();
    let before = kept_bytes(&node);
    let data = format!("\"{}\"", "x".repeat(10_000));
    for correlation in ["1", "2", "3"] {
        node.send(requestor, &call(correlation, &data));
        let accepted = Call {
            name: "add",
            correlation,
        };
        node.send(provider, &Message::Rpc(Rpc::Accept(accepted)));
    }
    let charged = node.kept_for(requestor);
    assert!((30_000..34_000).contains(&charged), "{charged}");
    assert_eq!(kept_bytes(&node), before + charged);
    let answered = Call {
        name: "add",
        correlation: "1",
    };
    let response = Rpc::Response {
        call: answered,
        data: None,
    };
    node.send(provider, &Message::Rpc(response));
    assert_eq!(node.kept_for(requestor), charged / 3 * 2);
    node.pass(Duration::from_secs(11));
    assert_eq!((node.kept_for(requestor), kept_bytes(&node)), (0, before));
    node.send(requestor, &call("4", &data));
    node.close(requestor);
    assert_eq!(kept_bytes(&node), before);
}

#[test]
fn a_call_that_has_no_room_is_refused_and_may_be_made_again() {
    let (mut node, _, requestor) = with_provider();
    node.set_room(2, 0);
    let large = format!("\"{}\"", "x".repeat(70_000));
    let seen = node.ask(requestor, &call("1", &large));
    assert!(seen[0].contains("NoProvider"), "{seen:?}");
    assert_eq!(node.counts(2).refused.memory, 1);
    assert_eq!(node.kept_for(requestor), 0);
    // A small call fits into the allowance of every session, so it needs no room.
    assert_eq!(node.ask(requestor, &call("1", "1")), [""; 0]);
    node.set_room(2, 150_000);
    assert_eq!(node.ask(requestor, &call("2", &large)), [""; 0]);
    assert_eq!(node.ask(requestor, &call("3", &large)), [""; 0]);
    let seen = node.ask(requestor, &call("4", &large));
    assert!(seen[0].contains("NoProvider"), "{seen:?}");
}

#[test]
fn a_large_write_that_has_no_room_is_refused_and_a_small_one_is_made() {
    let mut node = Node::new(Settings::default());
    let session = node.login();
    node.set_room(0, 0);
    let large = format!("[\"{}\"]", "x".repeat(70_000));
    let seen = node.ask(session, &set("r", &large));
    assert!(seen[0].contains("reason: UpdateFailed"), "{seen:?}");
    assert_eq!(node.counts(0).refused.memory, 1);
    let seen = node.ask(session, &set("r", "[1]"));
    assert!(seen[0].contains("WriteAck"), "{seen:?}");
}
