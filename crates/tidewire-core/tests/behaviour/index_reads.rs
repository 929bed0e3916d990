//! Queries that read an index of the store: the records that they read, their counts, and queries without a complete index.

use std::sync::Arc;

use serde_json::Value;
use tidewire_core::address::SessionId;
use tidewire_core::indexes::{CollectionIndex, CollectionIndexes};
use tidewire_core::message::{Message, Query};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question, Unknown};
use tidewire_core::settings::Settings;

use crate::driver::Node;
use crate::queries::{put, store};

/// A node whose store has 200 cards on 10 boards and a few records without one board.
fn cards(permission: Arc<dyn Permission>, change: impl FnOnce(&mut Settings)) -> Node {
    let mut settings = Settings::default();
    for paths in [&["board"][..], &["board", "position"], &["position"]] {
        let index = CollectionIndex::parse(paths.iter().copied());
        settings.indexes.add("cards", index.expect("an index"));
    }
    change(&mut settings);
    let mut node = Node::with(2, settings, permission);
    for n in 0..200 {
        let (board, position) = (n % 10, 1_000 - n);
        let data = format!(r#"{{"board":{board},"position":{position},"owner":"ann"}}"#);
        store(&mut node, &format!("cards/{n:03}"), &data);
    }
    store(&mut node, "cards/array", r#"{"board":[3,4],"position":1}"#);
    store(&mut node, "cards/7/note", r#"{"board":3,"position":2}"#);
    store(&mut node, "cards2/1", r#"{"board":3,"position":2}"#);
    node
}

#[track_caller]
fn ask(node: &mut Node, session: SessionId, query: &str, counts: bool) -> Value {
    let message = Message::Query(Query::Read {
        collection: "cards",
        query,
        correlation: Some("q"),
        counts,
        explains: true,
    });
    node.send(session, &message);
    while node.turn() {}
    let seen = node.take(session);
    let [answer] = &seen[..] else {
        panic!("{seen:#?}");
    };
    let data = answer.split_once("data: ").expect("an answer").1;
    let data = data.strip_suffix(" })").expect("the end");
    let text: String = serde_json::from_str(data).expect("a debug text without rare escapes");
    serde_json::from_str(&text).expect("JSON")
}

fn ids(result: &Value) -> Vec<&str> {
    let rows = result["rows"].as_array().expect("rows").iter();
    rows.map(|row| row["id"].as_str().expect("an id")).collect()
}

#[test]
fn a_query_reads_the_records_of_its_part_of_an_index() {
    let mut node = cards(Arc::new(AllowAll), |settings| {
        settings.limits.query_reads_max = 100;
    });
    let session = node.login_on(0);
    // The record with an array is not regular, so each query reads it.
    let part = ask(&mut node, session, r#"{"where":{"board":3}}"#, false);
    assert_eq!(ids(&part).len(), 21);
    assert_eq!(part["explain"]["index"], serde_json::json!(["board"]));
    assert_eq!(part["explain"]["records"], 21);
    let page = r#"{"where":{"board":3},"sort":["position"],"limit":3}"#;
    let page = ask(&mut node, session, page, false);
    assert_eq!(ids(&page), ["array", "193", "183"]);
    assert_eq!(
        page["explain"]["index"],
        serde_json::json!(["board", "position"])
    );
    let last = r#"{"sort":{"position":-1},"limit":2}"#;
    let last = ask(&mut node, session, last, false);
    assert_eq!(ids(&last), ["000", "001"]);
    assert_eq!(last["explain"]["index"], serde_json::json!(["position"]));
    assert!(last["explain"]["records"].as_u64() < Some(70), "{last}");
    let other = ask(&mut node, session, r#"{"where":{"owner":"ann"}}"#, false);
    let text = other["message"].as_str().expect("a refusal");
    assert!(
        text.contains("limits.query_reads_max") && text.contains("collections.NAME.indexes"),
        "{text}"
    );
}

#[test]
fn equal_sort_values_are_ordered_by_id_in_both_directions() {
    let mut node = cards(Arc::new(AllowAll), |_| ());
    let session = node.login_on(0);
    for (direction, expected) in [(1, ["000", "010"]), (-1, ["009", "019"])] {
        let query = format!(r#"{{"sort":{{"board":{direction}}},"limit":2}}"#);
        let page = ask(&mut node, session, &query, false);
        assert_eq!(page["explain"]["index"], serde_json::json!(["board"]));
        assert_eq!(ids(&page), expected, "{page}");
    }
}

#[test]
fn a_count_of_entries_reads_no_records() {
    let mut node = cards(Arc::new(AllowAll), |settings| {
        settings.limits.query_reads_max = 10;
    });
    let session = node.login_on(1);
    let count = ask(
        &mut node,
        session,
        r#"{"where":{"board":{"$gte":0}},"limit":0}"#,
        true,
    );
    assert!(
        count["message"]
            .as_str()
            .expect("refused")
            .contains("limits.query_reads_max")
    );
    let count = ask(
        &mut node,
        session,
        r#"{"where":{"board":3},"limit":0}"#,
        true,
    );
    assert_eq!(count["count"], 21);
    assert_eq!(count["explain"]["records"], 1, "{count}");
    assert_eq!(count["explain"]["entries"], 21, "{count}");
}

#[test]
fn a_page_and_a_count_include_unsaved_records() {
    let mut node = cards(Arc::new(AllowAll), |_| ());
    let session = node.login_on(0);
    node.commits_fail = true;
    for (name, data) in [
        ("cards/193", ""),
        ("cards/new", r#"{"board":3,"position":0}"#),
        ("cards/183", r#"{"board":5,"position":817}"#),
        ("cards/105", r#"{"board":3,"position":810}"#),
    ] {
        node.send(session, &put(name, data));
    }
    while node.turn() {}
    node.take(session);
    let page = r#"{"where":{"board":3},"sort":["position"],"limit":4}"#;
    let page = ask(&mut node, session, page, true);
    assert_eq!(ids(&page), ["new", "array", "105", "173"]);
    assert_eq!(page["count"], 21);
    assert_eq!(node.index_reads, 1);
}

#[test]
fn an_index_that_lacks_entries_is_not_used() {
    let mut node = cards(Arc::new(AllowAll), |_| ());
    node.indexes_lack_entries = true;
    let session = node.login_on(0);
    let part = ask(&mut node, session, r#"{"where":{"board":3}}"#, true);
    assert_eq!((ids(&part).len(), &part["count"]), (21, &Value::from(21)));
    assert_eq!(part["explain"]["index"], Value::Null);
    let warning = part["explain"]["warning"].as_str().expect("a warning");
    assert!(
        warning.contains("the index [board] of cards is being built"),
        "{warning}"
    );
    let other = ask(&mut node, session, r#"{"where":{"owner":"ann"}}"#, false);
    let warning = other["explain"]["warning"].as_str().expect("a warning");
    assert!(warning.contains("collections.cards.indexes"), "{warning}");
}

/// Records of the boards of an allowed list, of which the name decides about some.
#[derive(Debug)]
struct SomeBoards;

impl Permission for SomeBoards {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let is_allowed = match (question.access, question.name) {
            (Access::RecordRead, Some(name)) if name.ends_with('3') => false,
            (Access::RecordRead, _) => {
                let data: Value =
                    serde_json::from_str(question.old_data.unwrap_or("{}")).expect("JSON");
                data["position"].as_u64() < Some(900)
            }
            _ => true,
        };
        match is_allowed {
            true => Decision::Allow,
            false => Decision::Deny,
        }
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let is_denied = question.name.is_some_and(|name| name.ends_with('3'));
        match question.access {
            Access::RecordRead if is_denied => Some(Decision::Deny),
            Access::RecordRead if unknown.old_data => None,
            _ => Some(self.decide(question)),
        }
    }
}

#[test]
fn records_that_may_not_be_read_are_neither_counted_nor_shown() {
    let mut node = cards(Arc::new(SomeBoards), |_| ());
    let session = node.login_on(0);
    for (query, expected) in [
        (r#"{"where":{"board":3},"sort":["position"],"limit":3}"#, 1),
        (r#"{"where":{"board":4},"sort":["position"],"limit":3}"#, 11),
        (
            r#"{"where":{"board":4},"sort":{"position":-1},"limit":3}"#,
            11,
        ),
        (r#"{"where":{"board":{"$in":[3,5]}},"limit":0}"#, 11),
    ] {
        let by_index = ask(&mut node, session, query, true);
        node.indexes_lack_entries = true;
        let by_scan = ask(&mut node, session, query, true);
        node.indexes_lack_entries = false;
        assert_ne!(by_index["explain"]["index"], Value::Null, "{query}");
        assert_eq!(by_scan["explain"]["index"], Value::Null, "{query}");
        assert_eq!(by_index["rows"], by_scan["rows"], "{query}");
        assert_eq!(by_index["count"], by_scan["count"], "{query}");
        assert_eq!(by_index["count"], expected, "{query}");
    }
}

#[test]
fn collections_without_declared_indexes_are_scanned() {
    let mut node = cards(Arc::new(AllowAll), |settings| {
        settings.indexes = CollectionIndexes::default();
    });
    let session = node.login_on(0);
    let part = ask(&mut node, session, r#"{"where":{"board":3}}"#, true);
    assert_eq!(part["count"], 21);
    assert_eq!(
        (node.index_reads, &part["explain"]["index"]),
        (0, &Value::Null)
    );
}
