//! Transactions: changes of several records that are made together or not at all, whatever the records wait for.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Message, Record, RecordBulk};
use tidewire_core::permission::{Access, Decision, Permission, Question, Unknown};
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::settings::Settings;
use tidewire_core::slot::TagRules;

use crate::driver::{Node, Seen, foreign, set};

fn settings() -> Settings {
    Settings {
        tags: TagRules::new(["bank"]),
        ..Settings::default()
    }
}

fn node() -> Node {
    Node::with(2, settings(), Arc::new(tidewire_core::permission::AllowAll))
}

fn commit<'a>(names: &[&'a str], data: &'a str) -> Message<'a> {
    Message::Record(Record::Commit {
        names: names.to_vec(),
        correlation: "t",
        data: Some(data),
    })
}

fn subscribe<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names: names.to_vec(),
        correlation: Some("s"),
    })
}

#[track_caller]
fn check(seen: &Seen, expected: &[&str]) {
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.contains(expected), "{seen} does not say {expected}");
    }
}

fn stored(node: &Node, name: &str) -> Option<String> {
    let record = node.stored(name)?;
    Some(record.data.as_str().to_owned())
}

/// The states in the answer to a transaction.
#[track_caller]
fn states(seen: &Seen) -> Vec<Option<String>> {
    let [answer] = &seen[..] else {
        panic!("one answer: {seen:#?}");
    };
    assert!(answer.contains("Committed"), "{answer}");
    let start = answer.find("data: \"").expect("data") + "data: \"".len();
    let end = answer.rfind("\" }").expect("its end");
    serde_json::from_str(&answer[start..end].replace("\\\"", "\"")).expect("states")
}

const BOTH: [&str; 2] = ["bank/1/a", "bank/1/b"];

/// A node of two sessions, with both records at 50.
fn funded() -> (Node, SessionId, SessionId) {
    let mut node = node();
    let (first, second) = (node.login_on(0), node.login_on(1));
    let both = r#"[{"data":{"n":50}},{"data":{"n":50}}]"#;
    states(&node.ask(first, &commit(&BOTH, both)));
    (node, first, second)
}

#[test]
fn a_transaction_changes_all_its_records_and_is_acknowledged_once() {
    let mut node = node();
    let (writer, reader) = (node.login_on(0), node.login_on(1));
    node.ask(writer, &set("bank/1/c", "{}"));
    node.ask(reader, &subscribe(&["bank/1/a", "bank/1/b", "bank/1/c"]));
    let names = ["bank/1/a", "bank/1/b", "bank/1/c", "bank/1/d"];
    let text = r#"[{"if":"missing","data":{"n":1}},{"data":[2]},{"data":null,"if":"present"},{"if":"missing"}]"#;
    let states = states(&node.ask(writer, &commit(&names, text)));
    assert!(
        states[0]
            .as_deref()
            .is_some_and(|state| state.ends_with("-1"))
    );
    assert!(states[1].is_some() && states[2].is_none() && states[3].is_none());
    assert_eq!(stored(&node, "bank/1/a").as_deref(), Some(r#"{"n":1}"#));
    assert_eq!(stored(&node, "bank/1/b").as_deref(), Some("[2]"));
    assert_eq!(stored(&node, "bank/1/c"), None);
    check(
        &node.take(reader),
        &[
            "name: \"bank/1/a\"",
            "name: \"bank/1/b\"",
            "Deleted { name: \"bank/1/c\"",
        ],
    );
    assert!(node.take(writer).is_empty());
}

#[test]
fn the_session_of_a_transaction_gets_the_changes_of_its_subscriptions_before_the_answer() {
    let (mut node, first, _) = funded();
    node.ask(first, &subscribe(&BOTH));
    let text = r#"[{"data":{"n":1}},{"data":null}]"#;
    check(
        &node.ask(first, &commit(&BOTH, text)),
        &[
            "Write(Write { name: \"bank/1/a\"",
            "Deleted { name: \"bank/1/b\"",
            "Committed",
        ],
    );
}

#[test]
fn an_unmet_condition_of_one_record_leaves_all_as_they_are() {
    let (mut node, first, second) = funded();
    node.ask(second, &subscribe(&BOTH));
    let text = r#"[{"data":{"n":40}},{"if":"missing","data":{"n":60}}]"#;
    let answer = node.ask(first, &commit(&BOTH, text));
    check(
        &answer,
        &["PreconditionFailed { name: \"bank/1/b\", correlation: \"t\", tag: Some(Tag"],
    );
    assert!(node.take(second).is_empty());
    assert_eq!(stored(&node, "bank/1/a").as_deref(), Some(r#"{"n":50}"#));
}

#[test]
fn the_states_of_an_answer_are_conditions_of_the_next_transaction() {
    let mut node = node();
    let session = node.login();
    let text = r#"[{"data":{}},{"data":{}}]"#;
    let seen = states(&node.ask(session, &commit(&BOTH, text)));
    let [a, b] = [0, 1].map(|index| seen[index].clone().expect("a state"));
    let next = format!(r#"[{{"if":"{a}","data":{{"n":1}}}},{{"if":"{b}"}}]"#);
    let after = states(&node.ask(session, &commit(&BOTH, &next)));
    assert_eq!((after[0] == seen[0], after[1] == seen[1]), (false, true));
    let answer = node.ask(session, &commit(&BOTH, &next));
    check(&answer, &["PreconditionFailed { name: \"bank/1/a\""]);
}

#[test]
fn transactions_that_no_owner_can_decide_are_refused_with_the_option() {
    let mut settings = settings();
    settings.memory_only_prefixes = vec!["bank/1/memory".to_owned()];
    settings.routes = StoreRoutes::new([("bank/1/far", StoreId(1)), ("bank/2", StoreId(1))]);
    settings.stores_without_transactions = vec![StoreId(1)];
    settings.limits.transaction_names_max = 3;
    settings.limits.name_bytes_max = 20;
    let mut node = Node::new(settings);
    let session = node.login();
    let put = r#"[{"data":{}},{"data":{}}]"#;
    let cases: [(&[&str], &str, &str); 13] = [
        (&["bank/1/a", "bank/2/a"], put, "collections.X.slot_by"),
        (&["a/1/a", "a/1/b"], put, "collections.X.slot_by"),
        (&["bank/1/a", "bank/1/far"], put, "stores.X.prefixes"),
        (
            &["bank/1/a", "bank/1/memory"],
            put,
            "record.memory_only_prefixes",
        ),
        (&["bank/2/a", "bank/2/b"], put, "store.kind"),
        (&["bank/1/a", "bank/1/a"], put, "occurs twice"),
        (
            &["bank/1/a", "bank/1/0123456789abcdef"],
            put,
            "limits.name_bytes_max",
        ),
        (&["bank/1/a"], put, "limits.transaction_names_max"),
        (&[], "[]", "limits.transaction_names_max"),
        (
            &["bank/1/a", "bank/1/b", "bank/1/c", "bank/1/d"],
            r#"[{"data":{}},{"data":{}},{"data":{}},{"data":{}}]"#,
            "limits.transaction_names_max",
        ),
        (
            &BOTH,
            r#"[{"data":{}},{"data":1}]"#,
            "must be an object or array",
        ),
        (&BOTH, r#"[{"data":{}},{}]"#, "is not an object with data"),
        (
            &BOTH,
            r#"[{"data":{}},{"if":"1a"}]"#,
            "is not an object with data",
        ),
    ];
    for (names, data, reason) in cases {
        let answer = node.ask(session, &commit(names, data));
        check(&answer, &["reason: TransactionRefused"]);
        assert!(answer[0].contains(reason), "{names:?}: {answer:?}");
        assert!(answer[0].contains("correlation: Some(\"t\")"), "{answer:?}");
    }
    assert_eq!(node.stored_count(), 0);
    let check_alone = commit(&["bank/1/a"], r#"[{"if":"missing"}]"#);
    assert_eq!(states(&node.ask(session, &check_alone)), [None]);
}

#[test]
fn records_that_are_kept_in_memory_only_have_transactions_too() {
    let mut settings = settings();
    settings.memory_only_prefixes = vec!["bank/".to_owned()];
    settings.stores_without_transactions = vec![StoreId(0)];
    let mut node = Node::new(settings);
    let session = node.login();
    let text = r#"[{"data":{"n":1}},{"data":{"n":2}}]"#;
    assert_eq!(states(&node.ask(session, &commit(&BOTH, text))).len(), 2);
    assert_eq!(node.stored_count(), 0);
    let answer = node.ask(
        session,
        &commit(&BOTH, r#"[{"if":"present"},{"if":"missing"}]"#),
    );
    check(&answer, &["PreconditionFailed { name: \"bank/1/b\""]);
}

#[test]
fn a_transaction_waits_until_all_its_records_are_loaded() {
    let (node, ..) = funded();
    let mut node = node.restart(settings());
    let session = node.login();
    node.store_hangs = true;
    node.send(
        session,
        &commit(
            &BOTH,
            r#"[{"if":"present","data":{"n":1}},{"if":"present","data":null}]"#,
        ),
    );
    // A later write of the same session must not overtake it.
    node.send(session, &set("bank/1/a", r#"{"n":2}"#));
    node.send(session, &Message::Record(Record::Read { name: "bank/1/b" }));
    assert!(node.take(session).is_empty());
    node.answer_store();
    node.answer_store();
    while node.turn() {}
    node.answer_store();
    check(
        &node.take(session),
        &["Committed", "reason: NotFound", "WriteAck"],
    );
    assert_eq!(stored(&node, "bank/1/a").as_deref(), Some(r#"{"n":2}"#));
    assert_eq!(stored(&node, "bank/1/b"), None);
}

#[test]
fn transactions_on_the_same_records_in_opposite_order_are_all_decided() {
    let (node, ..) = funded();
    let mut node = node.restart(settings());
    let sessions = [node.login_on(0), node.login_on(1), node.login_on(0)];
    node.store_hangs = true;
    let opposite = ["bank/1/b", "bank/1/a"];
    let text = r#"[{"if":"present","data":{"n":1}},{"if":"present","data":{"n":2}}]"#;
    node.send(sessions[0], &commit(&BOTH, text));
    node.send(sessions[1], &commit(&opposite, text));
    node.send(sessions[2], &commit(&BOTH, text));
    node.answer_store();
    while node.turn() {}
    for session in sessions {
        assert_eq!(states(&node.take(session)).len(), 2);
    }
    assert_eq!(stored(&node, "bank/1/a").as_deref(), Some(r#"{"n":1}"#));
    assert!(!node.has_work() && node.counts(0).dirty_records + node.counts(1).dirty_records == 0);
}

#[test]
fn a_record_that_can_not_be_loaded_refuses_the_transaction_once() {
    let (node, ..) = funded();
    let mut node = node.restart(settings());
    let session = node.login();
    node.ask(session, &Message::Record(Record::Read { name: "bank/1/a" }));
    node.loads_fail = true;
    let text = r#"[{"data":{"n":1}},{"data":{"n":2}}]"#;
    check(
        &node.ask(session, &commit(&BOTH, text)),
        &["reason: LoadFailed"],
    );
    node.loads_fail = false;
    while node.turn() {}
    assert_eq!(states(&node.ask(session, &commit(&BOTH, text))).len(), 2);
}

#[test]
fn a_load_that_takes_too_long_refuses_the_transaction_and_frees_its_other_records() {
    let (node, ..) = funded();
    let mut node = node.restart(settings());
    let (session, other) = (node.login(), node.login());
    node.ask(session, &Message::Record(Record::Read { name: "bank/1/a" }));
    node.store_hangs = true;
    node.send(
        session,
        &commit(&BOTH, r#"[{"data":{"n":1}},{"data":{"n":2}}]"#),
    );
    node.send(other, &Message::Record(Record::Read { name: "bank/1/a" }));
    assert!(
        node.take(other).is_empty(),
        "the read waits behind the transaction"
    );
    node.pass(Duration::from_secs(31));
    while node.turn() {}
    check(&node.take(session), &["reason: LoadTimeout"]);
    check(&node.take(other), &["ReadResponse { name: \"bank/1/a\""]);
}

#[test]
fn a_transaction_without_room_changes_nothing() {
    let mut settings = settings();
    settings.limits.dirty_records_max = 1;
    let mut node = Node::new(settings);
    let session = node.login();
    let text = r#"[{"data":{"n":1}},{"data":{"n":2}}]"#;
    check(
        &node.ask(session, &commit(&BOTH, text)),
        &["reason: UpdateFailed"],
    );
    assert_eq!(node.stored_count(), 0);
    check(&node.ask(session, &set("bank/1/a", "{}")), &["WriteAck"]);
}

#[test]
fn a_record_that_another_owner_has_written_makes_the_outcome_unknown() {
    let (mut node, first, reader) = funded();
    node.ask(reader, &subscribe(&BOTH));
    node.store_has("bank/1/b", foreign(9));
    let text = r#"[{"data":{"n":1}},{"data":{"n":2}}]"#;
    check(
        &node.ask(first, &commit(&BOTH, text)),
        &["reason: UpdateFailed"],
    );
    let values: Vec<String> = node.take(reader);
    assert!(
        values
            .last()
            .is_some_and(|seen| seen.contains("version: 9")),
        "{values:#?}"
    );
    assert_eq!(states(&node.ask(first, &commit(&BOTH, text))).len(), 2);
}

/// Denies changes of records with `n` below zero, and changes of `bank/1/b` while `gate` is not open.
#[derive(Debug)]
struct Rules;

impl Permission for Rules {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if question.access != Access::RecordWrite || question.name == Some("gate") {
            return Decision::Allow;
        }
        if question.data.is_some_and(|data| data.contains("\"n\":-")) {
            return Decision::Deny;
        }
        if question.name != Some("bank/1/b") {
            return Decision::Allow;
        }
        match question.record("gate") {
            Ok(Some(value)) if value.as_str() == r#"{"open":true}"# => Decision::Allow,
            Ok(_) => Decision::Deny,
            Err(needed) => needed,
        }
    }

    fn decide_without(&self, _question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        None
    }
}

#[test]
fn a_denied_operation_refuses_the_whole_transaction() {
    let mut node = Node::with(2, settings(), Arc::new(Rules));
    let session = node.login();
    node.ask(session, &set("gate", r#"{"open":true}"#));
    let negative = r#"[{"data":{"n":101}},{"data":{"n":-1}}]"#;
    check(
        &node.ask(session, &commit(&BOTH, negative)),
        &["reason: Denied"],
    );
    assert_eq!(stored(&node, "bank/1/a"), None);
    let fine = r#"[{"data":{"n":101}},{"data":{"n":0}}]"#;
    assert_eq!(states(&node.ask(session, &commit(&BOTH, fine))).len(), 2);
}

#[test]
fn a_rule_that_needs_another_record_holds_all_records_of_the_transaction() {
    let mut node = Node::with(2, settings(), Arc::new(Rules));
    let (session, other) = (node.login_on(0), node.login_on(1));
    node.store_has("gate", foreign(1));
    node.store_hangs = true;
    node.send(
        session,
        &commit(&BOTH, r#"[{"data":{"n":1}},{"data":{"n":2}}]"#),
    );
    node.answer_store();
    node.store_hangs = true;
    node.send(
        other,
        &commit(
            &BOTH,
            r#"[{"if":"missing","data":{"n":3}},{"if":"missing"}]"#,
        ),
    );
    node.answer_store();
    while node.turn() {}
    // The gate is closed, so the first is denied, and the second does not need it.
    check(&node.take(session), &["reason: Denied"]);
    assert_eq!(states(&node.take(other)).len(), 2);
    assert_eq!(stored(&node, "bank/1/a").as_deref(), Some(r#"{"n":3}"#));
}

/// A transfer that a session has requested.
struct Transfer {
    session: SessionId,
    accounts: [usize; 2],
    balances: [i64; 2],
}

/// Transfers between accounts from several sessions while loads and commits take any time. Each is done or refused as a whole, so the sum
/// in the store never changes.
#[test]
fn the_sum_of_all_accounts_in_the_store_stays_the_same() {
    const ACCOUNTS: usize = 4;
    let names: Vec<String> = (0..ACCOUNTS).map(|n| format!("bank/1/{n}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut done = 0;
    for seed in 1..200_u64 {
        let mut node = node();
        let sessions = [node.login_on(0), node.login_on(1), node.login_on(1)];
        let funds = r#"[{"data":{"n":10}},{"data":{"n":10}},{"data":{"n":10}},{"data":{"n":10}}]"#;
        let states = states(&node.ask(sessions[0], &commit(&all, funds)));
        let mut known: Vec<(String, i64)> = states
            .into_iter()
            .map(|state| (state.expect("a state"), 10))
            .collect();
        let mut random = seed;
        let mut next = |bound: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % bound
        };
        let mut transfers: Vec<Transfer> = Vec::new();
        for _ in 0..30 {
            // The store answers only sometimes, so transactions meet records that are dirty, in flight, and queued again.
            node.store_hangs |= next(2) == 0;
            node.commits_fail = next(4) == 0;
            let from = next(ACCOUNTS);
            let accounts = [from, (from + 1 + next(ACCOUNTS - 1)) % ACCOUNTS];
            let amount = next(5) as i64;
            let [(paid, has), (received, gets)] = accounts.map(|account| &known[account]);
            let balances = [has - amount, gets + amount];
            let text = format!(
                r#"[{{"if":"{paid}","data":{{"n":{}}}}},{{"if":"{received}","data":{{"n":{}}}}}]"#,
                balances[0], balances[1]
            );
            let transfer = Transfer {
                session: sessions[next(3)],
                accounts,
                balances,
            };
            let correlation = transfers.len().to_string();
            let message = Message::Record(Record::Commit {
                names: accounts.map(|account| all[account]).to_vec(),
                correlation: &correlation,
                data: Some(&text),
            });
            node.send(transfer.session, &message);
            transfers.push(transfer);
            if next(3) == 0 {
                node.answer_store();
            }
            node.pass(Duration::from_millis(50));
            for answer in sessions.map(|session| node.take(session)).concat() {
                let Some(rest) = answer.split_once("Committed { correlation: \"") else {
                    assert!(answer.contains("PreconditionFailed"), "{answer}");
                    continue;
                };
                let number = rest.1.split('"').next().expect("a correlation id");
                let transfer = &transfers[number.parse::<usize>().expect("a number")];
                let after = self::states(&vec![answer.clone()]);
                for (index, account) in transfer.accounts.into_iter().enumerate() {
                    let state = after[index].clone().expect("a state");
                    if version(&state) > version(&known[account].0) {
                        known[account] = (state, transfer.balances[index]);
                    }
                }
                done += 1;
            }
            let sum: i64 = all.iter().map(|name| balance(&node, name)).sum();
            assert_eq!(sum, 40, "seed {seed}");
        }
    }
    assert!(done > 500, "{done} transfers were done");
}

fn version(state: &str) -> u32 {
    let (_, version) = state.split_once('-').expect("a state");
    version.parse().expect("a version")
}

fn balance(node: &Node, name: &str) -> i64 {
    let text = stored(node, name).expect("an account");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["n"].as_i64().expect("a number")
}
