//! Indexes of a collection: their vectors, and plans against full evaluations of random queries.

mod generator;

use std::collections::BTreeMap;

use generator::Random;
use serde_json::Value as Json;
use tidewire_query::{
    CollectionIndex, EntryKind, INDEX_KEY_BYTES_MAX, IndexPlan, Query, QueryLimits, Tape,
    key_values,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn index(paths: &[&str]) -> CollectionIndex {
    CollectionIndex::parse(paths.iter().copied()).expect("an index")
}

fn key_of(index: &CollectionIndex, text: &str) -> Vec<u8> {
    index.key(Tape::new().read("7", 1, text).as_ref())
}

#[test]
fn records_have_the_specified_keys() {
    let path = format!(
        "{}/../../spec/vectors/query/index-keys.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect("the vectors exist");
    let vectors: Vec<Json> = serde_json::from_str(&text).expect("a list");
    for vector in &vectors {
        let paths = vector["paths"].as_array().expect("paths").iter();
        let paths: Vec<&str> = paths.map(|path| path.as_str().expect("a path")).collect();
        let record = vector["record"].as_str().expect("JSON text");
        let record = record.replace("<500 x>", &"x".repeat(500));
        let key = vector["key"].as_str().expect("a key");
        let key = key.replace("<500 x>", &"78".repeat(500));
        assert_eq!(hex(&key_of(&index(&paths), &record)), key, "{record}");
    }
    assert!(vectors.len() > 15);
}

#[test]
fn paths_that_cannot_be_indexed_are_refused() {
    for (paths, part) in [
        (&[][..], "0 paths"),
        (&["a", "b", "c", "d", "e"], "5 paths"),
        (&["a", "a"], "twice"),
        (&["_id"], "can't be indexed"),
        (&["a", "_v"], "can't be indexed"),
        (&["a..b"], "empty segment"),
        (&["$a"], "dollar sign"),
    ] {
        let error = CollectionIndex::parse(paths.iter().copied()).expect_err("refused");
        assert!(error.contains(part), "{error}");
    }
}

/// What no text may do is prevent a key: each value of every type has one, of bounded size.
#[test]
fn every_text_has_a_bounded_key() {
    let long = "x".repeat(100_000);
    let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
    let values = [
        "null".to_owned(),
        "\"\\u0000\"".to_owned(),
        "\"\\ud800\"".to_owned(),
        format!("\"{long}\""),
        format!("{{\"{long}\":1}}"),
        "1e400".to_owned(),
        "-1e400".to_owned(),
        "123456789012345678901234567890".to_owned(),
        deep,
        "[1,\"1\",{},[],null,true]".to_owned(),
        "not JSON".to_owned(),
    ];
    for value in &values {
        for text in [value.clone(), format!("{{\"a\":{value},\"b\":{value}}}")] {
            for paths in [&["a"][..], &["a", "b"], &["b", "c.d", "a.0.x"]] {
                let key = key_of(&index(paths), &text);
                assert!((1..=INDEX_KEY_BYTES_MAX).contains(&key.len()));
            }
        }
    }
}

#[test]
fn the_values_of_a_key_are_those_of_the_record() {
    let index = index(&["a", "b", "c", "d"]);
    let key = key_of(&index, r#"{"a":"x\u0000\n\"","b":-2.5,"c":null,"d":true}"#);
    assert_eq!(EntryKind::of(&key), EntryKind::Whole);
    let expected = [Some(r#""x\u0000\n\"""#), Some("-2.5"), None, Some("true")];
    let expected = expected.map(|text| text.map(str::to_owned));
    assert_eq!(key_values(&key, 4).as_deref(), Some(&expected[..]));
    assert_eq!(key_values(&key[..key.len() - 1], 4), None);
}

/// Reads an index as a store does.
fn read<'i>(
    plan: &IndexPlan,
    entries: &'i BTreeMap<(Vec<u8>, String), String>,
) -> Vec<&'i (Vec<u8>, String)> {
    let mut found = Vec::new();
    for range in &plan.ranges {
        let within = entries
            .keys()
            .filter(|(key, _)| range.low <= *key && *key < range.high);
        let mut within: Vec<_> = within.collect();
        if plan.descending {
            within.reverse();
        }
        found.extend(within);
    }
    found
}

#[test]
fn plans_find_what_full_evaluations_find() {
    let definitions: [&[&str]; 8] = [
        &["a"],
        &["b"],
        &["a", "b"],
        &["b", "a"],
        &["c", "a", "b"],
        &["a.b"],
        &["a.0", "b"],
        &["value"],
    ];
    let mut random = Random(7);
    let (mut planned, mut exact, mut stopped) = (0, 0, 0);
    for round in 0..400 {
        let documents: Vec<(String, String)> = (0..30)
            .map(|id| (format!("{id:02}"), document(&mut random, round)))
            .collect();
        let indexes = definitions.map(index);
        let stored = indexes.each_ref().map(|index| {
            let entry =
                |(id, text): &(String, String)| ((key_of(index, text), id.clone()), text.clone());
            documents.iter().map(entry).collect::<BTreeMap<_, _>>()
        });
        for _ in 0..40 {
            let text = query(&mut random);
            let query = Query::parse(&text, &QueryLimits::default()).expect("a query");
            let some = random.below(definitions.len());
            let offered = &indexes[some..];
            let Some(plan) = IndexPlan::of(&query, offered, random.below(2) == 0, &[]) else {
                continue;
            };
            planned += 1;
            let entries = read(&plan, &stored[some + plan.index]);
            let mut tape = Tape::new();
            let mut expected: Vec<(Vec<u8>, &str)> = Vec::new();
            for (id, text) in &documents {
                let document = tape.read(id, 1, text).expect("JSON");
                let is_read = entries.iter().any(|(_, found)| found == id);
                let is_selected = query.selector.matches(&document);
                let context = || format!("{text} by {plan:?} in {id}: {documents:?}");
                assert!(is_read || !is_selected, "{}", context());
                if is_selected {
                    let mut key = Vec::new();
                    query.sort.key(&document, &mut key);
                    expected.push((key, id));
                }
            }
            expected.sort();
            if plan.is_exact {
                let whole = |(key, id): &&&(Vec<u8>, String)| {
                    EntryKind::of(key) == EntryKind::Whole
                        && !expected.iter().any(|(_, selected)| selected == id)
                };
                assert_eq!(entries.iter().find(whole), None, "{text} by {plan:?}");
                exact += 1;
            }
            // A reader that stops has all rows up to the last one.
            let Some(limit) = query.limit.filter(|limit| plan.is_ordered() && *limit > 0) else {
                continue;
            };
            let mut rows: Vec<&(Vec<u8>, &str)> = Vec::new();
            for (key, id) in entries {
                rows.extend(expected.iter().filter(|(_, selected)| selected == id));
                rows.sort();
                rows.truncate(limit as usize);
                let is_full = rows.len() == limit as usize;
                if is_full && plan.is_behind(key, id, &rows[rows.len() - 1].0) {
                    stopped += 1;
                    break;
                }
            }
            let first: Vec<_> = expected.iter().take(limit as usize).collect();
            assert_eq!(rows, first, "{text} by {plan:?} in {documents:?}");
        }
    }
    assert!(
        planned > 2_000 && exact > 500 && stopped > 200,
        "{planned} {exact} {stopped}"
    );
}

/// A document, in some rounds one with long strings that differ behind the end of a cut key only.
fn document(random: &mut Random, round: usize) -> String {
    if !round.is_multiple_of(4) {
        return random.document();
    }
    let long = "y".repeat(random.below(3) * 255);
    format!(
        "{{\"a\":\"{long}{}\",\"b\":{},\"c\":{}}}",
        random.pick(&["", "1", "2", "22"]),
        random.scalar(),
        random.scalar(),
    )
}

fn query(random: &mut Random) -> String {
    let mut parts = Vec::new();
    // Few conditions leave enough records for a window.
    let has_few = random.below(2) == 0;
    for path in ["a", "b", "c", "a.b", "a.0"] {
        if has_few && random.below(5) > 0 {
            continue;
        }
        let long = format!("\"{}1\"", "y".repeat(random.below(3) * 255));
        let value = match random.below(6) {
            0 => long,
            _ => random.scalar(),
        };
        let ordered = match value.as_str() {
            "null" => "1",
            other => other,
        };
        match random.below(9) {
            0 | 1 => parts.push(format!("\"{path}\":{value}")),
            2 => parts.push(format!("\"{path}\":{{\"$gt\":{ordered}}}")),
            3 => parts.push(format!(
                "\"{path}\":{{\"$gte\":{ordered},\"$lte\":{}}}",
                random.pick(&["2", "\"b\"", "true"])
            )),
            4 => parts.push(format!("\"{path}\":{{\"$in\":[{value},1,\"a\"]}}")),
            5 => parts.push(random_test(random, path)),
            _ => {}
        }
    }
    let direction = random.pick(&["1", "-1"]);
    let sort = match random.below(5) {
        0 => String::new(),
        1 => format!(",\"sort\":{{\"a\":{direction}}}"),
        2 => format!(",\"sort\":{{\"b\":{direction}}}"),
        3 => format!(",\"sort\":{{\"a\":{direction},\"b\":{direction}}}"),
        _ => format!(",\"sort\":{{\"b\":{direction},\"a\":1}}"),
    };
    let limit = match random.below(3) {
        0 => String::new(),
        _ => format!(",\"limit\":{}", random.below(6)),
    };
    format!("{{\"where\":{{{}}}{sort}{limit}}}", parts.join(","))
}

fn random_test(random: &mut Random, path: &str) -> String {
    let test = random.pick(&[
        "{\"$exists\":false}",
        "{\"$exists\":true}",
        "{\"$regex\":\"^a\"}",
        "{\"$regex\":\"^y+1\"}",
        "{\"$ne\":1}",
        "{\"$type\":\"number\"}",
        "{\"$lt\":\"b\"}",
        "{\"$gte\":false}",
        "[]",
        "{\"b\":1}",
    ]);
    format!("\"{path}\":{test}")
}

#[test]
fn a_count_uses_the_index_with_the_fields_of_the_rights() {
    let indexes = [index(&["a", "p"]), index(&["a", "o"]), index(&["a"])];
    let check = |text: &str, counts, fields: &[&str], expected: usize| {
        let query = Query::parse(text, &QueryLimits::default()).unwrap();
        let fields: Vec<Box<str>> = fields.iter().map(|field| (*field).into()).collect();
        let plan = IndexPlan::of(&query, &indexes, counts, &fields).unwrap();
        assert_eq!(plan.index, expected, "{text} {fields:?}");
    };
    let count = r#"{"where":{"a":1},"limit":0}"#;
    check(count, true, &["o"], 1);
    check(count, true, &["p"], 0);
    // No index has them, so the records are read, in the order of the result.
    check(count, true, &["x"], 2);
    let page = r#"{"where":{"a":1},"sort":["p"],"limit":5}"#;
    check(page, false, &["o"], 0);
    // The rows are needed in their order, and the index of the order has not the fields.
    check(page, true, &["o"], 0);
}
