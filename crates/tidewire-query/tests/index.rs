//! The predicate index: every query whose result a write changes is among the candidates, by brute force, and the cost of a write.

mod generator;

use std::time::Instant;

use generator::Random;
use tidewire_query::{PredicateIndex, Query, QueryId, QueryLimits, Selector, Tape};

fn selector(text: &str) -> Selector {
    Query::parse(&format!("{{\"where\":{text}}}"), &QueryLimits::default())
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .selector
}

/// A selector as an app has it: one or more equalities or ranges, so that levels within levels occur.
fn usual(random: &mut Random) -> String {
    let mut parts = Vec::new();
    for field in ["a", "b", "c"] {
        match random.below(4) {
            0 => parts.push(format!("\"{field}\":{}", random.scalar())),
            1 => parts.push(format!(
                "\"{field}\":{{\"$gte\":{},\"$lt\":{}}}",
                random.below(3),
                random.below(4)
            )),
            _ => {}
        }
    }
    format!("{{{}}}", parts.join(","))
}

#[test]
fn candidates_contain_every_query_whose_result_changes() {
    let (mut changed, mut visited, mut queries) = (0_u64, 0_u64, 0_u64);
    for seed in 0..8 {
        let mut random = Random(seed);
        let mut index = PredicateIndex::new(seed);
        let mut live: Vec<(QueryId, Selector, String)> = Vec::new();
        for step in 0..1000 {
            // Queries come and go between the writes.
            for _ in 0..if step < 300 { 3 } else { 1 } {
                if live.is_empty() || random.below(live.len() + 200) < 250 {
                    let text = match random.below(4) {
                        0 => random.selector(2),
                        1 => format!("{{\"_id\":\"{}\"}}", random.id(9)),
                        _ => usual(&mut random),
                    };
                    let selector = selector(&text);
                    live.push((index.insert(selector.clone()), selector, text));
                } else {
                    let at = random.below(live.len());
                    let (id, ..) = live.swap_remove(at);
                    assert!(index.remove(id), "{seed}");
                }
            }
            let id = random.id(9);
            let (old_text, new_text) = (random.document(), random.document());
            let (has_old, has_new) = (random.below(5) > 0, random.below(5) > 0);
            let (mut old_tape, mut new_tape) = (Tape::new(), Tape::new());
            let old = old_tape.read(&id, 1, &old_text).filter(|_| has_old);
            let new = new_tape.read(&id, 2, &new_text).filter(|_| has_new);
            let mut candidates = Vec::new();
            index.candidates(old.as_ref(), new.as_ref(), &mut candidates);
            let mut memberships = Vec::new();
            index.memberships(old.as_ref(), new.as_ref(), |id, membership| {
                memberships.push((id, membership))
            });
            let mut once = candidates.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(
                once.len(),
                candidates.len(),
                "{seed}: a candidate occurs twice"
            );
            for (query, selector, text) in &live {
                let matches =
                    |document: &Option<_>| document.as_ref().is_some_and(|it| selector.matches(it));
                let (before, after) = (matches(&old), matches(&new));
                let found = memberships
                    .iter()
                    .find(|(id, _)| id == query)
                    .map(|(_, it)| (it.before, it.after));
                assert_eq!(
                    found,
                    (before || after).then_some((before, after)),
                    "{seed}: {text} on {old_text} and {new_text}"
                );
                if before || after {
                    changed += 1;
                    assert!(
                        once.binary_search(query).is_ok(),
                        "{seed}: {text} on {old_text} and {new_text}"
                    );
                }
            }
            visited += candidates.len() as u64;
            queries += live.len() as u64;
        }
        for (id, ..) in live {
            assert!(index.remove(id));
        }
        assert!(index.is_empty() && index.shape_count() == 0 && index.residual_count() == 0);
    }
    println!("{changed} memberships, {visited} candidates of {queries} queries");
    assert!(changed > 5_000 && visited < queries);
}

#[test]
fn queries_of_one_shape_share_a_matcher() {
    let mut index = PredicateIndex::new(1);
    for room in 0..1000 {
        index.insert(selector(&format!("{{\"roomId\":\"room-{room}\"}}")));
    }
    assert_eq!(
        (index.len(), index.shape_count(), index.residual_count()),
        (1000, 1, 0)
    );
    let mut tape = Tape::new();
    let document = tape.read("7", 1, r#"{"roomId":"room-17"}"#).expect("JSON");
    let mut candidates = Vec::new();
    index.candidates(None, Some(&document), &mut candidates);
    assert_eq!(candidates.len(), 1);
}

#[test]
fn a_tenant_with_many_queries_is_indexed_again() {
    let mut index = PredicateIndex::new(1);
    for room in 0..10_000 {
        index.insert(selector(&format!(
            "{{\"a_tenant\":1,\"room\":{room},\"n\":{{\"$gt\":{room}}}}}"
        )));
    }
    let mut tape = Tape::new();
    let document = tape
        .read("7", 1, r#"{"a_tenant":1,"room":17,"n":99999}"#)
        .expect("JSON");
    let mut candidates = Vec::new();
    index.candidates(None, Some(&document), &mut candidates);
    assert_eq!(candidates.len(), 1);
}

/// 1,000 shapes over 40 fields: an equality, and a second condition.
fn template(query: usize) -> String {
    let (shape, constant) = (query % 1000, query / 1000);
    let (field, other) = (shape / 25, (shape / 25 + 1 + shape % 25) % 40);
    match shape % 3 {
        0 => format!("{{\"f{field}\":\"v{constant}\",\"f{other}\":\"v{constant}\"}}"),
        1 => format!("{{\"f{field}\":\"v{constant}\",\"f{other}\":{{\"$gt\":\"v{constant}\"}}}}"),
        _ => format!("{{\"f{field}\":\"v{constant}\",\"f{other}\":{{\"$ne\":\"v\"}}}}"),
    }
}

/// `cargo test --release -p tidewire-query --test index -- --ignored --nocapture`
#[test]
#[ignore = "prints the cost of a write"]
fn the_cost_of_a_write() {
    const QUERIES: usize = 100_000;
    let rooms: Vec<String> = (0..QUERIES)
        .map(|n| format!("{{\"roomId\":\"room-{n}\"}}"))
        .collect();
    let templates: Vec<String> = (0..QUERIES).map(template).collect();
    let wide = |value: &str| {
        let fields: Vec<String> = (0..40).map(|n| format!("\"f{n}\":\"{value}\"")).collect();
        format!("{{{},\"roomId\":\"{value}\"}}", fields.join(","))
    };
    for (name, queries, old, new) in [
        (
            "{roomId: X}, record in one room",
            &rooms,
            wide("room-17"),
            wide("room-17"),
        ),
        ("{roomId: X}, no room", &rooms, wide("none"), wide("none")),
        (
            "1,000 templates, 40 fields that match nothing",
            &templates,
            wide("none"),
            wide("none2"),
        ),
        (
            "1,000 templates, one field matches",
            &templates,
            wide("none"),
            wide("none").replace("\"f3\":\"none\"", "\"f3\":\"v50\""),
        ),
        (
            "1,000 templates, a record of 3 fields",
            &templates,
            r#"{"f3":"none","x":1,"y":2}"#.into(),
            r#"{"f3":"none","x":2,"y":2}"#.into(),
        ),
    ] {
        let parsed: Vec<Selector> = queries.iter().map(|text| selector(text)).collect();
        let mut index = PredicateIndex::new(1);
        let start = Instant::now();
        let allocated = allocation_counter::measure(|| {
            for selector in &parsed {
                index.insert(selector.clone());
            }
        });
        let insertion = start.elapsed().as_nanos() / QUERIES as u128;
        let (mut old_tape, mut new_tape) = (Tape::new(), Tape::new());
        const ROUNDS: u32 = 10_000;
        let (mut found, mut out) = (0, Vec::new());
        let start = Instant::now();
        for version in 0..ROUNDS {
            let old = old_tape.read("7", version.into(), &old).expect("JSON");
            let new = new_tape.read("7", version.into(), &new).expect("JSON");
            index.memberships(Some(&old), Some(&new), |_, _| found += 1);
        }
        let write = start.elapsed().as_nanos() / u128::from(ROUNDS);
        let old = old_tape.read("7", 1, &old).expect("JSON");
        let new = new_tape.read("7", 1, &new).expect("JSON");
        let start = Instant::now();
        for _ in 0..ROUNDS {
            out.clear();
            index.candidates(Some(&old), Some(&new), &mut out);
        }
        let search = start.elapsed().as_nanos() / u128::from(ROUNDS);
        println!(
            "{name}: {write} ns per write with reading and matching, {search} ns for the candidates ({} of them, {} match), {} bytes per query, {insertion} ns per insertion, {} shapes",
            out.len(),
            found / ROUNDS,
            allocated.bytes_max / QUERIES as u64,
            index.shape_count()
        );
    }
}
