//! The vectors of `spec/vectors/query`, which the client's tests read as well, and the cost of a match.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::Value as Json;
use tidewire_query::{Document, Query, QueryErrorCode, QueryLimits, Tape};

fn vectors(file: &str) -> Vec<Json> {
    let path = format!(
        "{}/../../spec/vectors/query/{file}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    serde_json::from_str(&text).expect("a list of vectors")
}

fn parse(query: &str) -> Query {
    Query::parse(query, &QueryLimits::default()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

#[test]
fn selectors_match_as_specified() {
    let vectors = vectors("match");
    assert!(vectors.len() > 250);
    let mut tape = Tape::new();
    for vector in &vectors {
        let query = parse(&format!("{{\"where\":{}}}", vector["where"]));
        let document = vector["document"].to_string();
        let document = tape.read("7", 3, &document).expect("JSON");
        assert_eq!(
            Json::Bool(query.selector.matches(&document)),
            vector["matches"],
            "{vector}"
        );
    }
}

#[test]
fn refusals_name_the_place() {
    let mut reached = Vec::new();
    for vector in vectors("refusals") {
        let query = vector["query"].as_str().expect("text");
        let error = Query::parse(query, &QueryLimits::default())
            .map(|_| ())
            .expect_err(query);
        assert_eq!(
            (Some(error.code.word()), Some(&*error.at)),
            (vector["code"].as_str(), vector["at"].as_str()),
            "{query}: {error}"
        );
        // What happened; what to do.
        assert!(
            error.what.contains("; ") && !error.what.ends_with('.'),
            "{error}"
        );
        reached.push(error.code);
    }
    for code in QueryErrorCode::ALL {
        assert!(reached.contains(&code), "{}", code.word());
    }
}

#[test]
fn a_collection_may_refuse_regular_expressions_and_name_the_id_twice() {
    let mut limits = QueryLimits::default();
    limits.regex_allowed = false;
    limits.id_alias = true;
    let error = Query::parse(r#"{"where":{"a":{"$regex":"x"}}}"#, &limits)
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "/where/a/$regex: $regex is not allowed in this collection; use a range or another field"
    );
    let query = Query::parse(
        r#"{"where":{"id":"7"},"sort":["id"],"select":["id"]}"#,
        &limits,
    )
    .expect("valid");
    assert_eq!(
        query.normal_form(),
        parse(r#"{"where":{"_id":"7"},"sort":["_id"],"select":["_id"]}"#).normal_form()
    );
}

#[test]
fn records_are_sorted_as_specified() {
    for vector in vectors("sort") {
        let sort = parse(&format!("{{\"sort\":{}}}", vector["sort"])).sort;
        let texts: Vec<(String, String)> = vector["documents"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| {
                (
                    entry[0].as_str().expect("an id").to_owned(),
                    entry[1].to_string(),
                )
            })
            .collect();
        let mut tapes: Vec<Tape> = texts.iter().map(|_| Tape::new()).collect();
        let documents: Vec<Document<'_>> = tapes
            .iter_mut()
            .zip(&texts)
            .map(|(tape, (id, text))| tape.read(id, 3, text).expect("JSON"))
            .collect();
        let key = |document: &Document<'_>| {
            let mut key = Vec::new();
            sort.key(document, &mut key);
            key
        };
        for (left_at, left) in documents.iter().enumerate() {
            for (right_at, right) in documents.iter().enumerate() {
                assert_eq!(
                    sort.compare(left, right),
                    left_at.cmp(&right_at),
                    "{left_at} {right_at} {vector}"
                );
                assert_eq!(
                    key(left).cmp(&key(right)),
                    left_at.cmp(&right_at),
                    "key {left_at} {right_at} {vector}"
                );
            }
        }
    }
}

#[test]
fn projections_keep_the_named_fields() {
    for vector in vectors("projection") {
        let projection = parse(&format!("{{\"select\":{}}}", vector["select"])).projection;
        let mut out = String::new();
        projection.apply(&vector["document"].to_string(), &mut out);
        let out: Json = serde_json::from_str(&out).expect("JSON");
        assert_eq!(out, vector["result"], "{vector}");
    }
}

#[test]
fn a_projection_keeps_the_bytes_of_its_parts() {
    let projection = parse(r#"{"select":["a.b","\u00e9"]}"#).projection;
    let mut out = String::new();
    projection.apply(
        " {\"a\" : {\"b\": [ 1.0 ] , \"c\":2}, \"\\u00e9\" : 1e2 } ",
        &mut out,
    );
    assert_eq!(out, "{\"a\":{\"b\":[ 1.0 ]},\"\\u00e9\":1e2}");
}

#[test]
fn equal_queries_have_one_normal_form() {
    let mut forms: HashMap<String, usize> = HashMap::new();
    for (group, queries) in vectors("normal-form").iter().enumerate() {
        for query in queries.as_array().expect("a list") {
            let query = query.as_str().expect("text");
            let form = parse(query).normal_form();
            let known = *forms.entry(form.clone()).or_insert(group);
            assert_eq!(known, group, "{query} has the form {form}");
        }
    }
    assert_eq!(
        forms.len(),
        vectors("normal-form").len(),
        "one form for each group"
    );
}

/// A record of about 1 KB with 30 fields.
fn kilobyte() -> String {
    let fields: Vec<String> = (0..30)
        .map(|n| format!("\"field{n}\":\"value {n} of a record\""))
        .collect();
    format!(
        "{{{},\"roomId\":\"room-17\",\"position\":5.5,\"tags\":[\"a\",\"b\"]}}",
        fields.join(",")
    )
}

/// `cargo test --release -p tidewire-query --test language -- --ignored --nocapture`
#[test]
#[ignore = "prints the cost of a match"]
fn the_cost_of_a_match() {
    let text = kilobyte();
    let mut tape = Tape::new();
    const ROUNDS: u32 = 200_000;
    let start = Instant::now();
    let mut nodes = 0;
    for version in 0..ROUNDS {
        let document = tape.read("7", version.into(), &text).expect("JSON");
        nodes += usize::from(document.root().is_object());
    }
    println!(
        "reading a record of {} bytes: {} ns",
        text.len(),
        start.elapsed().as_nanos() / u128::from(ROUNDS)
    );
    assert_eq!(nodes, ROUNDS as usize);
    let document = tape.read("7", 1, &text).expect("JSON");
    for (name, query, expected) in [
        ("equality on one field", r#"{"roomId":"room-17"}"#, true),
        (
            "equality on one field, no match",
            r#"{"roomId":"room-18"}"#,
            false,
        ),
        (
            "list of three",
            r#"{"roomId":{"$in":["room-1","room-17","room-3"]}}"#,
            true,
        ),
        (
            "equality and interval",
            r#"{"roomId":"room-17","position":{"$gt":1,"$lt":9}}"#,
            true,
        ),
        ("element of an array", r#"{"tags":"b"}"#, true),
        (
            "regular expression",
            r#"{"roomId":{"$regex":"^room-1"}}"#,
            true,
        ),
    ] {
        let query = parse(&format!("{{\"where\":{query}}}"));
        let mut count = 0_u32;
        let allocated = allocation_counter::measure(|| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                count += u32::from(
                    std::hint::black_box(&query)
                        .selector
                        .matches(std::hint::black_box(&document)),
                );
            }
            println!(
                "{name}: {} ns",
                start.elapsed().as_nanos() / u128::from(ROUNDS)
            );
        });
        assert_eq!(count, if expected { ROUNDS } else { 0 });
        assert!(
            allocated.count_total < 100,
            "{name}: {} allocations",
            allocated.count_total
        );
    }
}
