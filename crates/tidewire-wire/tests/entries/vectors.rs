//! The vectors of `spec/vectors/cluster/entries.json`. `e2e/codec/entries.test.ts` checks them against `spec/entries.proto`.

use serde_json::Value;
use tidewire_wire::entry::Post;

use crate::check::{LIMITS, batch, decode};
use crate::hex::from_hex;
use crate::samples;

fn vectors() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../spec/vectors/cluster/entries.json"
    );
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    let vectors: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    vectors["entries"].as_array().expect("a list").clone()
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    from_hex(vector[key].as_str().expect("a text"))
}

#[test]
fn entries_have_the_bytes_of_the_vectors() {
    let vectors = vectors();
    let samples = samples::all();
    let names: Vec<&str> = vectors
        .iter()
        .filter_map(|vector| vector["name"].as_str())
        .collect();
    let expected: Vec<&str> = samples.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected);
    for (vector, (name, entry)) in vectors.iter().zip(samples) {
        let from = &vector["message"]["posts"][0]["from"];
        let encoded = batch(&[Post {
            shard: 5,
            entry: entry.clone(),
            from: from.as_u64().unwrap_or(0) as u16,
        }]);
        assert_eq!(encoded, bytes(vector, "bytes"), "{name}");
        let (posts, error) = decode([&encoded[..]], LIMITS);
        assert_eq!((posts.len(), error), (1, None), "{name}");
        assert_eq!(
            format!("{:?}", posts[0].entry),
            format!("{entry:?}"),
            "{name}"
        );
    }
}

/// The same messages with an unknown field of each type in front of and behind all other fields, in each message.
#[test]
fn unknown_fields_are_skipped() {
    for vector in vectors() {
        let encoded = bytes(&vector, "with_unknown_fields");
        let (posts, error) = decode([&encoded[..]], LIMITS);
        assert_eq!((posts.len(), error), (1, None), "{vector}");
        assert_eq!(batch(&posts), bytes(&vector, "bytes"), "{vector}");
    }
}
