//! The server's queries against the client's: random queries over random records, evaluated by Node as well. The generator is seeded, so a
//! run can be repeated; `QUERY_PAIRS` says how many pairs of query and record it makes. The Rust side writes its results to the program in
//! `e2e/query-parity`, as the other parity tests do, so neither side needs a program in its sources.

mod generator;
#[path = "../../tidewire-json/tests/node/mod.rs"]
mod node;

use std::io::Write;

use generator::Random;
use node::Report;
use serde_json::{Value, json};
use tidewire_query::{Query, QueryLimits, Tape};

/// Pairs of a run of the tests; the proof makes a million.
const PAIRS: usize = 20_000;
/// Records that each query is evaluated on.
const RECORDS: usize = 20;

/// A deliberate mistake: the text that our side reads instead of the one that Node reads.
type Fault = (&'static str, &'static str);
const FAULTS: [Fault; 7] = [
    ("$lte", "$lt"),
    ("$or", "$and"),
    ("$nin", "$ne"),
    ("desc", "asc"),
    ("$elemMatch", "$not"),
    ("\"a.0\"", "\"a\""),
    (":0}", ":1}"),
];

fn case(random: &mut Random, fault: Option<Fault>) -> Option<Value> {
    let text = format!(
        "{{\"where\":{},\"sort\":{},\"limit\":{},\"offset\":{},\"select\":{}}}",
        random.selector(2),
        random.sort(),
        5 + random.below(20),
        random.below(3),
        random.select()
    );
    let ours = match fault {
        Some((from, to)) => text.replace(from, to),
        None => text.clone(),
    };
    let query = match (Query::parse(&ours, &QueryLimits::default()), fault) {
        (Ok(query), _) => query,
        // A changed text may be invalid; the generator's own never is.
        (Err(_), Some(_)) => return None,
        (Err(error), None) => panic!("{text}: {error}"),
    };
    let records: Vec<(String, String)> = (0..RECORDS)
        .map(|n| (format!("r{n}"), random.document()))
        .collect();
    let mut tapes: Vec<Tape> = records.iter().map(|_| Tape::new()).collect();
    let mut selected: Vec<_> = tapes
        .iter_mut()
        .zip(&records)
        .map(|(tape, record)| (record, tape.read(&record.0, 3, &record.1).expect("JSON")))
        .filter(|(_, document)| query.selector.matches(document))
        .collect();
    selected.sort_by(|(_, left), (_, right)| query.sort.compare(left, right));
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let result: Vec<Value> = selected
        .iter()
        .skip(query.offset as usize)
        .take(query.limit.map_or(usize::MAX, |limit| limit as usize))
        .map(|((id, text), _)| {
            let mut value = String::new();
            query.projection.apply(text, &mut value);
            json!([id, parse(&value)])
        })
        .collect();
    let records: Vec<Value> = records
        .iter()
        .map(|(id, text)| json!({"id": id, "version": 3, "value": parse(text)}))
        .collect();
    Some(json!({"query": parse(&text), "records": records, "result": result}))
}

fn compare(seed: u64, pairs: usize, fault: Option<Fault>) -> Report {
    let (report, ()) = node::compare("query-parity/parity.ts", move |out| {
        let mut random = Random(seed);
        let cases = std::iter::from_fn(|| Some(case(&mut random, fault))).flatten();
        for case in cases.take(pairs / RECORDS) {
            writeln!(out, "{case}").expect("Node reads");
        }
        out.flush().expect("Node reads");
    });
    report
}

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn the_client_evaluates_queries_as_the_server_does() {
    let pairs = std::env::var("QUERY_PAIRS")
        .map_or(PAIRS, |text| text.parse().expect("QUERY_PAIRS is a number"));
    let report = compare(1, pairs, None);
    let few: Vec<String> = report
        .disagreements
        .iter()
        .take(5)
        .map(Value::to_string)
        .collect();
    assert!(
        few.is_empty(),
        "{} disagreements:\n{}",
        report.disagreements.len(),
        few.join("\n")
    );
    assert_eq!(report.summary["pairs"], json!(pairs));
    let selected = report.summary["selected"].as_u64().expect("a number");
    println!(
        "{pairs} pairs of query and record agree with the client, {selected} records in results"
    );
    assert!(selected as usize > pairs / 20);
}

#[test]
#[ignore = "needs Node; npm --prefix e2e run parity runs it"]
fn planted_faults_are_found() {
    for fault in FAULTS {
        let report = compare(2, 20_000, Some(fault));
        assert!(!report.disagreements.is_empty(), "{fault:?} was not found");
    }
}
