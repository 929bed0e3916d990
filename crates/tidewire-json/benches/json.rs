//! Compares the cost of checking and patching JSON with serde_json, in one run: `cargo bench -p tidewire-json --bench json`.
//!
//! Prints nanoseconds per call in the fastest of many short rounds, since other work on the machine only adds. The
//! rounds of all rows take turns. What counts is the ratio.

use std::hint::black_box;
use std::time::Instant;

use serde_json::Value;
use serde_json::value::RawValue;
use tidewire_json::{JsonLimits, Path, check, lookup, patch};

const LIMITS: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: 64,
    bytes_max: 1 << 20,
};
const ROUNDS: usize = 400;
const CALLS: usize = 200;

/// An order with so many items: short keys, texts, numbers, nested containers.
fn order(items: usize) -> String {
    let items: Vec<String> = (0..items)
        .map(|n| {
            format!(
                r#"{{"id":{n},"title":"Item \"{n}\" of the order","price":{}.25,"tags":["new","sale"]}}"#,
                100 + n * 7
            )
        })
        .collect();
    format!(
        r#"{{"customer":{{"name":"Zoë Example","city":"Lübeck","active":true}},"items":[{}],"total":12345,"note":null}}"#,
        items.join(",")
    )
}

/// Something to measure, with its name.
type Measurement<'a> = (&'a str, Box<dyn Fn() + 'a>);

fn main() {
    let (one_kb, two_kb) = (order(11), order(23));
    let number = Path::parse("total").expect("a path");
    let inner = Path::parse("items[11].price").expect("a path");
    let parse_set_write = |set: fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&two_kb).expect("JSON");
        set(&mut value);
        black_box(serde_json::to_string(&value).expect("JSON"));
    };
    let rows: [Measurement<'_>; 8] = [
        (
            "check 1 KB",
            Box::new(|| _ = black_box(check(&one_kb, LIMITS))),
        ),
        (
            "check 1 KB, serde_json without building",
            Box::new(|| _ = black_box(serde_json::from_str::<&RawValue>(&one_kb))),
        ),
        (
            "check 1 KB, serde_json into a tree",
            Box::new(|| _ = black_box(serde_json::from_str::<Value>(&one_kb))),
        ),
        (
            "patch a number of the root in 2 KB",
            Box::new(|| _ = black_box(patch(&two_kb, &number, Some("54321"), LIMITS))),
        ),
        (
            "same, serde_json parse + set + write",
            Box::new(|| parse_set_write(|value| value["total"] = 54_321.into())),
        ),
        (
            "patch a number of the 12th item in 2 KB",
            Box::new(|| _ = black_box(patch(&two_kb, &inner, Some("5.5"), LIMITS))),
        ),
        (
            "same, serde_json parse + set + write",
            Box::new(|| parse_set_write(|value| value["items"][11]["price"] = 5.5.into())),
        ),
        (
            "look that number up in 2 KB",
            Box::new(|| _ = black_box(lookup(&two_kb, &inner))),
        ),
    ];
    let mut fastest = [usize::MAX; 8];
    // Without cargo bench's argument this is a test that it runs.
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        ROUNDS
    } else {
        1
    };
    for _ in 0..rounds {
        for ((_, run), fastest) in rows.iter().zip(&mut fastest) {
            let start = Instant::now();
            (0..CALLS).for_each(|_| run());
            *fastest = (*fastest).min(start.elapsed().as_nanos() as usize / CALLS);
        }
    }
    println!("{} and {} bytes", one_kb.len(), two_kb.len());
    for ((name, _), fastest) in rows.iter().zip(fastest) {
        println!("{fastest:>7} ns  {name}");
    }
}
