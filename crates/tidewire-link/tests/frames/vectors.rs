//! The vectors of `spec/vectors/cluster/links.json`. `e2e/codec/links.test.ts` checks them against `spec/links.proto`.

use serde_json::Value;
use tidewire_link::cluster_identity;
use tidewire_link::frame::{Frame, Hello, Levels, Process};

use crate::check::check_frame;
use crate::hex::from_hex;

fn vectors() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../spec/vectors/cluster/links.json"
    );
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    from_hex(vector[key].as_str().expect("a text"))
}

/// The frame of each vector.
fn samples() -> Vec<(&'static str, Frame<'static>)> {
    let frame = Frame {
        from: Process { node: 3, birth: 7 },
        to: Process {
            node: 65_535,
            birth: 300,
        },
        received: 12,
        handled: 10,
        ..Frame::default()
    };
    let hello = Hello {
        cluster: cluster_identity(&std::array::from_fn(|index| index as u8)),
        levels: Levels { min: 1, max: 2 },
        is_answer: false,
    };
    let to_unknown = Process { node: 4, birth: 0 };
    vec![
        (
            "the first hello",
            Frame {
                from: Process { node: 0, birth: 1 },
                to: to_unknown,
                hello: Some(hello),
                ..Frame::default()
            },
        ),
        (
            "the answer of a hello",
            Frame {
                hello: Some(Hello {
                    is_answer: true,
                    ..hello
                }),
                ..frame
            },
        ),
        (
            "entries",
            Frame {
                number: 129,
                entries: b"\x08\x01\x12\x04any.",
                ..frame
            },
        ),
        ("an acknowledgement", frame),
        (
            "a request for missing frames",
            Frame {
                missing_to: 15,
                ..frame
            },
        ),
        (
            "a ping",
            Frame {
                ping: u64::MAX,
                sent: 130,
                ..frame
            },
        ),
        (
            "the answer of a ping",
            Frame {
                pong: u64::MAX,
                ..frame
            },
        ),
        (
            "an end",
            Frame {
                is_end: true,
                ..frame
            },
        ),
    ]
}

#[test]
fn frames_have_the_bytes_of_the_vectors() {
    let vectors = vectors();
    let vectors = vectors["frames"].as_array().expect("a list");
    let names: Vec<&str> = vectors
        .iter()
        .filter_map(|vector| vector["name"].as_str())
        .collect();
    let expected: Vec<&str> = samples().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected);
    for (vector, (name, frame)) in vectors.iter().zip(samples()) {
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        assert_eq!(encoded, bytes(vector, "bytes"), "{name}");
        assert_eq!(Frame::decode(&encoded), Ok(frame), "{name}");
        assert_eq!(check_frame(&encoded), Ok(()), "{name}");
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let vectors = vectors();
    let vectors = vectors["frames"].as_array().expect("a list");
    for (vector, (name, frame)) in vectors.iter().zip(samples()) {
        let changed = bytes(vector, "with_unknown_fields");
        assert_eq!(Frame::decode(&changed), Ok(frame), "{name}");
    }
}

#[test]
fn bytes_that_are_not_frames_are_refused() {
    for vector in vectors()["refused"].as_array().expect("a list") {
        let error = Frame::decode(&bytes(vector, "bytes")).expect_err("no frame");
        assert_eq!(Some(error.to_string().as_str()), vector["error"].as_str());
    }
}

#[test]
fn a_cluster_is_identified_without_its_key() {
    let vectors = vectors();
    let key = bytes(&vectors, "key");
    let identity = cluster_identity(&key.try_into().expect("16 bytes"));
    assert_eq!(vectors["cluster"], identity.to_string());
}
