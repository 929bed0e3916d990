//! Every message of `spec/vectors/deepstream` as JSON: it decodes to the same message as its bytes, is encoded
//! unchanged, and arrives for every split of the bytes.

use crate::harness::{Kept, events};
use crate::hex::from_hex;
use serde::Deserialize;
use tidewire_wire::frame::websocket::{Decoder, Opcode, PayloadKind, Role, encode, encode_masked};
use tidewire_wire::protocol::deepstream::json::{DeepstreamJson, JsonFields, TextError};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

const VECTORS: &str = include_str!("../../../../spec/vectors/deepstream/json.json");

#[derive(Deserialize)]
struct Vector {
    name: String,
    direction: String,
    text: String,
    hex: String,
}

impl Vector {
    /// The reader of this message.
    fn dialect(&self) -> Dialect {
        match self.direction.as_str() {
            "server->client" => Dialect::ClientWithPatchMulti,
            "client->server" => Dialect::Server,
            other => panic!("unknown direction {other}"),
        }
    }
}

fn vectors() -> Vec<Vector> {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).expect("the vectors parse");
    assert!(vectors.len() > 109, "{}", vectors.len());
    vectors
}

#[test]
fn texts_mean_what_the_bytes_mean() {
    for vector in vectors() {
        let fields = JsonFields::read(vector.text.as_bytes()).expect(&vector.name);
        let bytes = from_hex(&vector.hex);
        let expected = Deepstream::decode(&bytes);
        assert_eq!(fields.message(), expected, "{}", vector.name);
    }
}

#[test]
fn messages_are_written_as_these_texts() {
    let mut rewritten = Vec::new();
    for vector in vectors() {
        let bytes = from_hex(&vector.hex);
        let message = Deepstream::decode(&bytes).expect(&vector.name);
        let mut written = Vec::new();
        DeepstreamJson::encode(vector.dialect(), &message, &mut written);
        if written != vector.text.as_bytes() {
            rewritten.push(vector.name);
        }
    }
    // What Tidewire writes differently on purpose, as in protobuf.
    assert_eq!(
        rewritten,
        [
            "record update broadcast to another subscriber",
            "record patch broadcast",
            "record erase as broadcast (PATCH without data)",
            "record invalid version",
        ]
    );
}

#[test]
fn a_stream_cut_at_any_byte_gives_its_messages() {
    for pair in vectors().windows(2) {
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for vector in pair {
            let text = vector.text.as_bytes();
            encode_masked(Opcode::Text, text, [7, 77, 177, 0], &mut stream);
            expected.push(Kept::Message(PayloadKind::Text, text.to_vec()));
        }
        for end in 0..=stream.len() {
            let pieces = [&stream[..end], &stream[end..]];
            let events = events(Decoder::new(Role::Server), pieces);
            assert_eq!(events, expected, "{} cut at {end}", pair[0].name);
        }
        let bytes = stream.chunks(1);
        assert_eq!(events(Decoder::new(Role::Server), bytes), expected);
    }
}

#[test]
fn every_cut_of_a_text_is_malformed() {
    for vector in vectors() {
        for end in 0..vector.text.len() {
            let read = JsonFields::read(&vector.text.as_bytes()[..end]);
            // A cut inside of a character leaves no text at all.
            let is_refused = matches!(
                read,
                Err(TextError::Malformed { .. } | TextError::Unreadable(_))
            );
            assert!(is_refused, "{} cut at {end}", vector.name);
        }
    }
}

#[test]
fn frames_carry_the_text() {
    for vector in vectors() {
        let fields = JsonFields::read(vector.text.as_bytes()).expect(&vector.name);
        let message = fields.message().expect(&vector.name);
        let (mut text, mut frame, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        DeepstreamJson::encode(Dialect::Client, &message, &mut text);
        DeepstreamJson::encode_frame(Dialect::Client, &message, &mut frame);
        encode(Opcode::Text, &text, &mut expected);
        assert_eq!(frame, expected, "{}", vector.name);
    }
}
