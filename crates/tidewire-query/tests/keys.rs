//! Order-preserving keys: their vectors, and their order against the comparator.

mod generator;

use std::cmp::Ordering;

use generator::Random;
use serde_json::Value as Json;
use tidewire_query::{
    INDEX_KEY_BYTES_MAX, Query, QueryLimits, Tape, compare, encode_key, equal, index_key,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_of(text: &str) -> Vec<u8> {
    let mut tape = Tape::new();
    let mut key = Vec::new();
    encode_key(&tape.read("7", 1, text).expect("JSON").root(), &mut key);
    key
}

#[test]
fn values_have_the_specified_keys() {
    let path = format!(
        "{}/../../spec/vectors/query/keys.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let vectors: Vec<Json> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors exist"))
            .expect("a list");
    let mut last = Vec::new();
    for vector in &vectors {
        let text = vector["value"].as_str().expect("JSON text");
        let key = key_of(text);
        assert_eq!(Some(&*hex(&key)), vector["key"].as_str(), "{text}");
        assert!(last < key, "the vectors ascend: {text}");
        last = key;
    }
    assert!(vectors.len() > 30);
}

#[test]
fn the_order_of_keys_is_the_order_of_values() {
    let mut random = Random(1);
    let numbers = [
        "-1e400",
        "-9007199254740993",
        "-9007199254740992.0",
        "-0.0",
        "1e-400",
        "9007199254740993",
        "9007199254740994",
        "1e300",
    ];
    let strings = [
        "\"\\u0000\"",
        "\"a\\u0000\"",
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"\\ue000\"",
        "\"\\ud800\\udc00\"",
        "\"\\u00ff\"",
    ];
    let value = |random: &mut Random| match random.below(4) {
        0 => random.pick(&numbers).to_owned(),
        1 => random.pick(&strings).to_owned(),
        2 => format!("[{},{}]", random.pick(&strings), random.value(1)),
        _ => random.value(3),
    };
    let mut equal_count = 0;
    for _ in 0..50_000 {
        let (left_text, right_text) = (value(&mut random), value(&mut random));
        let (mut left_tape, mut right_tape) = (Tape::new(), Tape::new());
        let left = left_tape.read("7", 1, &left_text).expect("JSON").root();
        let right = right_tape.read("7", 1, &right_text).expect("JSON").root();
        let order = compare(&left, &right);
        assert_eq!(
            key_of(&left_text).cmp(&key_of(&right_text)),
            order,
            "{left_text} {right_text}"
        );
        assert_eq!(
            equal(&left, &right),
            order == Ordering::Equal,
            "{left_text} {right_text}"
        );
        equal_count += usize::from(order == Ordering::Equal);
    }
    assert!(equal_count > 500, "{equal_count}");
}

#[test]
fn the_order_of_sort_keys_is_the_order_of_records() {
    let mut random = Random(2);
    let (mut ties, mut descending) = (0, 0);
    for _ in 0..30_000 {
        let sort = random.sort();
        descending += usize::from(sort.contains("desc"));
        let sort = Query::parse(&format!("{{\"sort\":{sort}}}"), &QueryLimits::default())
            .expect("valid")
            .sort;
        let (left_id, right_id) = (random.id(4), random.id(4));
        let (left_text, right_text) = (random.document(), random.document());
        let (mut left_tape, mut right_tape) = (Tape::new(), Tape::new());
        let left = left_tape.read(&left_id, 1, &left_text).expect("JSON");
        let right = right_tape.read(&right_id, 1, &right_text).expect("JSON");
        let (mut left_key, mut right_key) = (Vec::new(), Vec::new());
        sort.key(&left, &mut left_key);
        sort.key(&right, &mut right_key);
        let order = sort.compare(&left, &right);
        assert_eq!(left_key.cmp(&right_key), order, "{left_text} {right_text}");
        ties += usize::from(order == Ordering::Equal);
    }
    assert!(ties > 500 && descending > 5_000, "{ties} {descending}");
}

#[test]
fn long_keys_are_cut_and_say_it() {
    let text = |length: usize, end: &str| format!("\"{}{end}\"", "x".repeat(length));
    // A tag, the text and its end.
    let whole = index_key(&key_of(&text(509, "")));
    assert!(whole.is_exact && whole.bytes.len() == INDEX_KEY_BYTES_MAX - 1);
    let (one, two) = (
        index_key(&key_of(&text(600, "a"))),
        index_key(&key_of(&text(600, "b"))),
    );
    assert!(!one.is_exact && one.bytes.len() == INDEX_KEY_BYTES_MAX);
    assert_eq!(one.bytes[..504], two.bytes[..504]);
    assert_ne!(one.bytes, two.bytes);
    // The specified hash.
    assert_eq!(
        hex(&index_key(&[0x30; 512]).bytes[504..]),
        "5a5db9d8a82b2bde"
    );
    // The order holds where the first 504 bytes differ.
    let long = |first: &str| index_key(&key_of(&format!("\"{first}{}\"", "x".repeat(600)))).bytes;
    assert!(long("a") < long("b") && long("b") < index_key(&key_of("\"c\"")).bytes);
}
