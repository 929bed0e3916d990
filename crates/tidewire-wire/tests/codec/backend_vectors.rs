//! The messages of `spec/vectors/deepstream/backend.json`, in bytes and as JSON, both ways. `packages/server` reads the same file.

use serde::Deserialize;
use tidewire_core::message::{Backend, BackendKind, Message};
use tidewire_wire::protocol::deepstream::json::{DeepstreamJson, JsonFields};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

use crate::hex::from_hex;

const VECTORS: &str = include_str!("../../../../spec/vectors/deepstream/backend.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    direction: String,
    hex: String,
    action_number: u32,
    text: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(VECTORS).expect("vectors")
}

fn dialect(vector: &Vector) -> Dialect {
    match vector.direction.as_str() {
        "server->client" => Dialect::ClientWithPatchMulti,
        _ => Dialect::Server,
    }
}

#[test]
fn messages_of_backends_have_the_bytes_and_the_text_of_the_vectors() {
    for vector in vectors() {
        let bytes = from_hex(&vector.hex);
        let message = Deepstream::decode(&bytes).expect("a message");
        let Message::Backend(backend) = &message else {
            panic!("{}: {message:?}", vector.name);
        };
        assert_eq!(backend.kind as u32, vector.action_number, "{}", vector.name);
        let mut encoded = Vec::new();
        Deepstream::encode(dialect(&vector), &message, &mut encoded);
        assert_eq!(encoded, bytes, "{}", vector.name);
        let read = JsonFields::read(vector.text.as_bytes()).expect("a message");
        assert_eq!(
            read.message().expect("a message"),
            message,
            "{}",
            vector.name
        );
        let mut text = Vec::new();
        DeepstreamJson::encode(dialect(&vector), &message, &mut text);
        assert_eq!(
            String::from_utf8_lossy(&text),
            vector.text,
            "{}",
            vector.name
        );
    }
}

#[test]
fn every_kind_has_a_vector() {
    for kind in BackendKind::ALL {
        let mut vectors = vectors().into_iter();
        let number = *kind as u32;
        assert!(
            vectors.any(|vector| vector.action_number == number),
            "{kind:?}"
        );
        assert_eq!(BackendKind::of(number), Some(*kind));
    }
    assert_eq!(BackendKind::of(0), None);
}

#[test]
fn a_text_that_names_no_session_is_refused() {
    for session in [
        "",
        "1",
        "0.1.2",
        "0.1.2.3.4",
        "0.1.2.-3",
        "+0.1.2.3",
        "0.1.2.03",
        "70000.1.2.3",
        "a.b.c.d",
    ] {
        let text = format!(r#"{{"topic":33,"action":13,"session":"{session}"}}"#);
        assert!(JsonFields::read(text.as_bytes()).is_err(), "{session}");
    }
    let text = r#"{"topic":33,"action":13,"session":"65535.1.4294967295.0"}"#;
    let read = JsonFields::read(text.as_bytes()).expect("a session");
    let Ok(Message::Backend(backend)) = read.message() else {
        panic!("a message");
    };
    let Backend { session, kind, .. } = *backend;
    assert_eq!(kind, BackendKind::End);
    assert_eq!(session.expect("a session").index, u32::MAX);
}
