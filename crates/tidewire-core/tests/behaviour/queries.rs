//! Queries that are evaluated once: their results, the records that only a shard has, rights, limits and failures.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Message, Only, Query, Record};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question};
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::settings::Settings;
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::driver::{Node, Seen};

pub fn read<'a>(collection: &'a str, query: &'a str) -> Message<'a> {
    Message::Query(Query::Read {
        collection,
        query,
        correlation: Some("q"),
        counts: true,
        explains: false,
    })
}

pub fn put<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Record(Record::Put {
        name,
        correlation: "p",
        only: Only::Always,
        data: (!data.is_empty()).then_some(data),
    })
}

pub fn store(node: &mut Node, name: &str, data: &str) {
    let record = StoredRecord {
        incarnation: Incarnation(1),
        version: Version(1),
        data: Payload::from_checked(data),
        write_keys: None,
    };
    node.store_has(name, record);
}

/// A node whose store has ten cards with the members `n` and `even`.
fn cards(shards: u16, permission: Arc<dyn Permission>, change: impl FnOnce(&mut Settings)) -> Node {
    let mut settings = Settings::default();
    change(&mut settings);
    let mut node = Node::with(shards, settings, permission);
    for n in 0..10 {
        let data = format!(r#"{{"n":{n},"even":{},"text":"card {n}"}}"#, n % 2 == 0);
        store(&mut node, &format!("cards/{n}"), &data);
    }
    for other in ["cards", "cards/1/note", "cards2/1", "card/1"] {
        store(&mut node, other, r#"{"n":100,"even":true}"#);
    }
    node
}

/// The ids and the count of the only answer.
#[track_caller]
fn ids(seen: &Seen) -> (Vec<String>, u64) {
    let value = result(seen);
    let rows = value["rows"].as_array().expect("rows").iter();
    let id = |row: &serde_json::Value| row["id"].as_str().expect("an id").to_owned();
    (
        rows.map(id).collect(),
        value["count"].as_u64().expect("a count"),
    )
}

#[track_caller]
fn result(seen: &Seen) -> serde_json::Value {
    let [answer] = &seen[..] else {
        panic!("{seen:#?}");
    };
    let data = answer
        .strip_prefix(r#"Query(Result { correlation: Some("q"), data: "#)
        .and_then(|rest| rest.strip_suffix(" })"))
        .unwrap_or_else(|| panic!("{answer}"));
    let text: String = serde_json::from_str(data).expect("a debug text without rare escapes");
    serde_json::from_str(&text).expect("JSON")
}

#[track_caller]
fn check(node: &mut Node, session: SessionId, query: &str, expected: &[&str], count: u64) {
    let seen = run(node, session, &read("cards", query));
    let expected: Vec<String> = expected.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(ids(&seen), (expected, count), "{query}");
}

/// Sends a message, and begins turns until the shards have no work.
fn run(node: &mut Node, session: SessionId, message: &Message<'_>) -> Seen {
    node.send(session, message);
    while node.turn() {}
    node.take(session)
}

#[track_caller]
fn check_refused(seen: &Seen, reason: &str, part: &str) {
    let [answer] = &seen[..] else {
        panic!("{seen:#?}");
    };
    let start = format!("Query(Error {{ reason: {reason}, correlation: Some(\"q\")");
    assert!(
        answer.starts_with(&start) && answer.contains(part),
        "{answer} is not {reason} with {part}"
    );
}

#[test]
fn a_query_returns_the_selected_records_in_order() {
    for shards in [1, 3] {
        let mut node = cards(shards, Arc::new(AllowAll), |_| ());
        let session = node.login_on(shards - 1);
        let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        check(&mut node, session, "{}", &all, 10);
        let even = r#"{"where":{"even":true},"sort":{"n":-1}}"#;
        check(&mut node, session, even, &["8", "6", "4", "2", "0"], 5);
        let page = r#"{"where":{"even":true},"sort":{"n":-1},"offset":1,"limit":2}"#;
        check(&mut node, session, page, &["6", "4"], 5);
        check(
            &mut node,
            session,
            r#"{"where":{"n":{"$lt":3}},"limit":0}"#,
            &[],
            3,
        );
        check(&mut node, session, r#"{"where":"7"}"#, &["7"], 1);
        check(&mut node, session, r#"{"where":null}"#, &[], 0);
        let select = r#"{"where":{"n":3},"select":["even"]}"#;
        let value = result(&run(&mut node, session, &read("cards", select)));
        let row = serde_json::json!({"id": "3", "version": 1, "data": {"even": false}});
        assert_eq!(value, serde_json::json!({"rows": [row], "count": 1}));
        let empty = run(&mut node, session, &read("nothing", "{}"));
        assert_eq!(ids(&empty), (vec![], 0));
    }
}

#[test]
fn a_shard_has_newer_values_than_the_store() {
    for shards in [1, 2] {
        let mut node = cards(shards, Arc::new(AllowAll), |_| ());
        let session = node.login();
        node.commits_fail = true;
        node.send(session, &put("cards/1", r#"{"n":1,"even":true}"#));
        node.send(session, &put("cards/2", r#"{"n":2,"even":false}"#));
        node.send(session, &put("cards/4", ""));
        node.send(session, &put("cards/new", r#"{"n":50,"even":true}"#));
        node.send(session, &put("cards/gone", r#"{"n":51,"even":true}"#));
        node.send(session, &put("cards/gone", ""));
        node.take(session);
        let even = r#"{"where":{"even":true},"sort":["n"]}"#;
        check(&mut node, session, even, &["0", "1", "6", "8", "new"], 5);
        node.commits_fail = false;
        node.pass(Duration::from_secs(60));
        node.take(session);
        assert_eq!(node.dirty_by_store(0), [0, 0]);
        check(&mut node, session, even, &["0", "1", "6", "8", "new"], 5);
    }
}

#[test]
fn records_in_memory_only_are_found() {
    let mut node = cards(2, Arc::new(AllowAll), |settings| {
        settings.memory_only_prefixes = vec!["cards/m".to_owned()];
    });
    let session = node.login();
    // A stray record of the store is not served: the owner would not find it either.
    store(&mut node, "cards/mstray", r#"{"n":1}"#);
    let names: Vec<String> = (0..500).map(|n| format!("cards/m{n:03}")).collect();
    for name in &names {
        node.send(session, &put(name, r#"{"n":200}"#));
    }
    node.send(session, &put("cards/m007", ""));
    node.take(session);
    let seen = run(
        &mut node,
        session,
        &read("cards", r#"{"where":{"n":{"$gte":8}},"limit":4}"#),
    );
    let expected = ["8", "9", "m000", "m001"].map(str::to_owned).to_vec();
    assert_eq!(ids(&seen), (expected, 501));
}

#[test]
fn each_store_of_a_collection_is_read() {
    let mut node = cards(1, Arc::new(AllowAll), |settings| {
        settings.routes = StoreRoutes::new([("cards/x", StoreId(1))]);
    });
    let session = node.login();
    store(&mut node, "cards/x1", r#"{"n":60}"#);
    let found = r#"{"where":{"n":{"$gte":9}}}"#;
    check(&mut node, session, found, &["9", "x1"], 2);
    node.down.insert(StoreId(1));
    let seen = run(&mut node, session, &read("cards", found));
    check_refused(&seen, "Unavailable", "can't be read now");
}

/// Allows the user to read the records that name it, and those without an owner.
#[derive(Debug)]
struct OwnOnly;

impl Permission for OwnOnly {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let own = format!(r#""owner":"{}""#, question.principal.user_id);
        let is_allowed = question.access != Access::RecordRead
            || question
                .old_data
                .is_some_and(|data| data.contains(&own) || !data.contains("owner"));
        match is_allowed {
            true => Decision::Allow,
            false => Decision::Deny,
        }
    }
}

/// No part of an answer depends on a record that the user may not read: not the order, the count, the offset, or an error of its value.
#[test]
fn a_forbidden_record_changes_nothing() {
    let queries = [
        r#"{"sort":["n"]}"#,
        r#"{"sort":{"n":-1},"limit":3}"#,
        r#"{"sort":["n"],"offset":2,"limit":3}"#,
        r#"{"where":{"n":{"$gt":4}},"limit":0}"#,
        r#"{"where":{"secret":{"$exists":true}}}"#,
        r#"{"where":{"n":{"$nin":[1,2]}},"select":["secret"]}"#,
        r#"{"where":"hidden3"}"#,
    ];
    let answers = |hidden: bool| {
        let mut node = cards(2, Arc::new(OwnOnly), |_| ());
        if hidden {
            for n in 0..20 {
                let data = format!(r#"{{"n":{},"secret":{n},"owner":"eve"}}"#, n % 10);
                store(&mut node, &format!("cards/hidden{n}"), &data);
            }
        }
        let eve = node.login_as_user(1, "eve");
        if hidden {
            node.commits_fail = true;
            node.send(eve, &put("cards/hidden99", r#"{"n":3,"owner":"eve"}"#));
            node.take(eve);
            let all = run(&mut node, eve, &read("cards", "{}"));
            assert_eq!(ids(&all).1, 31, "their owner may read them");
        }
        let ann = node.login_as_user(0, "ann");
        queries.map(|query| run(&mut node, ann, &read("cards", query)))
    };
    let (without, with) = (answers(false), answers(true));
    assert_eq!(without, with);
    assert_eq!(ids(&with[2]).0, ["2", "3", "4"]);
}

#[test]
fn a_rule_may_read_other_records() {
    #[derive(Debug)]
    struct Gated;
    impl Permission for Gated {
        fn decide(&self, question: &Question<'_>) -> Decision {
            let name = question.name.unwrap_or_default();
            if question.access != Access::RecordRead || !name.starts_with("cards/") {
                return Decision::Allow;
            }
            let even = question.old_data.is_some_and(|data| data.contains("true"));
            let gate = match even {
                true => "gate/even",
                false => "gate/odd",
            };
            match question.record(gate) {
                Ok(Some(_)) => Decision::Allow,
                Ok(None) => Decision::Deny,
                Err(needed) => needed,
            }
        }
    }
    let mut node = cards(2, Arc::new(Gated), |_| ());
    store(&mut node, "gate/odd", "{}");
    let session = node.login();
    node.take_loads();
    check(&mut node, session, "{}", &["1", "3", "5", "7", "9"], 5);
    let loads: Vec<String> = node.take_loads().iter().map(ToString::to_string).collect();
    assert_eq!(loads.len(), 2, "each value is read once: {loads:?}");
    node.send(session, &put("gate/even", "{}"));
    node.take(session);
    let small = r#"{"where":{"n":{"$lt":3}}}"#;
    check(&mut node, session, small, &["0", "1", "2"], 3);
}

#[test]
fn limits_are_named_in_the_refusal() {
    let mut node = cards(2, Arc::new(AllowAll), |settings| {
        settings.limits.query_reads_max = 10;
        settings.limits.query_result_bytes_max = 300;
        settings.limits.queries_max = 3;
    });
    let session = node.login();
    let seen = run(&mut node, session, &read("cards", "{}"));
    check_refused(&seen, "TooLarge", "10 records (limits.query_reads_max)");
    node.store_loses("cards/1/note");
    let seen = run(&mut node, session, &read("cards", "{}"));
    check_refused(
        &seen,
        "TooLarge",
        "300 bytes (limits.query_result_bytes_max)",
    );
    check(&mut node, session, r#"{"limit":2}"#, &["0", "1"], 10);
    check(&mut node, session, r#"{"offset":9}"#, &["9"], 10);
    node.store_hangs = true;
    for _ in 0..3 {
        node.send(session, &read("cards", r#"{"limit":1}"#));
    }
    let seen = node.ask(session, &read("cards", r#"{"limit":1}"#));
    check_refused(
        &seen,
        "TooMany",
        "3 queries without an answer (limits.queries_max)",
    );
    node.answer_store();
    assert_eq!(node.take(session).len(), 3);
    let refused = node.counts(0).refused;
    assert_eq!(
        (refused.query_reads, refused.query_results, refused.queries),
        (1, 1, 1)
    );
}

#[test]
fn an_invalid_query_is_refused_with_its_place() {
    let mut node = cards(1, Arc::new(AllowAll), |_| ());
    let session = node.login();
    let cases = [
        ("cards", "{", r#"\"fault\":\"malformed\""#),
        (
            "cards",
            r#"{"where":{"a":{"$gt":[1]}}}"#,
            r#"\"at\":\"/where/a/$gt\""#,
        ),
        (
            "cards",
            r#"{"limit":-1}"#,
            r#"\"at\":\"/limit\",\"fault\":\"bad-limit\""#,
        ),
        (
            "cards",
            r#"{"where":{"a":{"$foo":1}}}"#,
            r#"\"fault\":\"unknown-operator\""#,
        ),
        ("", "{}", r#"\"fault\":\"bad-collection\""#),
        ("cards/", "{}", r#"\"fault\":\"bad-collection\""#),
        ("\u{1}users", "{}", r#"\"fault\":\"bad-collection\""#),
    ];
    for (collection, query, part) in cases {
        let seen = node.ask(session, &read(collection, query));
        check_refused(&seen, "Invalid", part);
    }
}

#[test]
fn the_queries_of_a_session_are_answered_in_order() {
    let mut node = cards(2, Arc::new(AllowAll), |_| ());
    let session = node.login();
    node.store_hangs = true;
    node.send(session, &read("cards", r#"{"where":"1"}"#));
    node.send(session, &read("nothing", "{}"));
    node.send(session, &read("cards", r#"{"where":"2"}"#));
    assert_eq!(node.take(session), Seen::new());
    node.answer_store();
    let seen = node.take(session);
    let found: Vec<Vec<String>> = seen.iter().map(|one| ids(&vec![one.clone()]).0).collect();
    assert_eq!(found, [vec!["1".to_owned()], vec![], vec!["2".to_owned()]]);
}

#[test]
fn a_store_that_does_not_answer_fails_its_queries_only() {
    let mut node = cards(1, Arc::new(AllowAll), |_| ());
    let session = node.login();
    node.store_hangs = true;
    node.send(session, &read("cards", "{}"));
    let timeout = Settings::default().load_timeout;
    node.pass(timeout - Duration::from_secs(1));
    assert_eq!(node.take(session), Seen::new());
    node.pass(Duration::from_secs(2));
    check_refused(&node.take(session), "Unavailable", "try again");
    // The late answer is dropped, and the next query gets its own.
    node.answer_store();
    assert_eq!(node.take(session), Seen::new());
    check(&mut node, session, r#"{"where":"3"}"#, &["3"], 1);
    node.loads_fail = true;
    let seen = run(&mut node, session, &read("cards", "{}"));
    check_refused(&seen, "Unavailable", "try again");
}

#[test]
fn a_closed_session_leaves_nothing_behind() {
    let mut node = cards(2, Arc::new(AllowAll), |_| ());
    let (session, other) = (node.login(), node.login());
    node.store_hangs = true;
    for _ in 0..10 {
        node.send(session, &read("cards", "{}"));
        node.send(other, &read("cards", r#"{"where":"5"}"#));
    }
    node.close(session);
    node.answer_store();
    assert_eq!(node.take(session), Seen::new());
    assert_eq!(node.take(other).len(), 10);
    assert_eq!(node.counts(0).queries, 0);
    assert_eq!(node.counts(1).queries, 0);
}

#[test]
fn new_rules_apply_to_queries_that_are_evaluated() {
    let mut node = cards(2, Arc::new(AllowAll), |_| ());
    for n in 0..3 {
        store(
            &mut node,
            &format!("cards/h{n}"),
            r#"{"n":0,"owner":"eve"}"#,
        );
    }
    let session = node.login_as_user(0, "ann");
    node.store_hangs = true;
    node.send(session, &read("cards", r#"{"where":{"n":0}}"#));
    node.send(session, &read("cards", r#"{"where":{"n":1}}"#));
    node.set_rules(Arc::new(OwnOnly));
    node.answer_store();
    let seen = node.take(session);
    assert_eq!(seen.len(), 2, "{seen:#?}");
    assert_eq!(ids(&vec![seen[0].clone()]), (vec!["0".to_owned()], 1));
    assert_eq!(ids(&vec![seen[1].clone()]), (vec!["1".to_owned()], 1));
}
