//! The streams of `spec/vectors/websocket/frames.json`: whole, cut in two at each byte, and byte by byte.

use crate::hex::from_hex;
use serde::Deserialize;
use tidewire_wire::frame::websocket::{Decoded, Decoder, Event, PayloadKind, Role};

const VECTORS: &str = include_str!("../../../../spec/vectors/websocket/frames.json");

/// The limit of vectors that do not name one.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    name: String,
    /// Where the bytes were published, if they were.
    #[serde(rename = "source")]
    _source: Option<String>,
    role: VectorRole,
    message_bytes_max: Option<usize>,
    hex: String,
    events: Vec<VectorEvent>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum VectorRole {
    Server,
    Client,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
enum VectorEvent {
    Text(String),
    Binary(String),
    Ping(String),
    Pong(String),
    Close { code: Option<u16>, reason: String },
    Error { code: u16, kind: String },
    NeedMore(usize),
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(VECTORS).expect("the vectors parse")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Feeds the pieces of a stream as reads of a socket and collects the events. The end of the stream is an event only
/// if bytes are missing or nothing came before.
fn run(vector: &Vector, pieces: &[&[u8]]) -> Vec<VectorEvent> {
    let role = match vector.role {
        VectorRole::Server => Role::Server,
        VectorRole::Client => Role::Client,
    };
    let limit = vector.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX);
    let mut decoder = Decoder::new(role);
    let mut buffer = Vec::new();
    let mut events = Vec::new();
    let mut needed = 2;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer, limit) {
                Ok(Decoded {
                    consumed,
                    event: Event::NeedMore { bytes },
                }) => {
                    buffer.drain(..consumed);
                    assert!(
                        bytes > buffer.len(),
                        "{}: the hint asks for nothing new",
                        vector.name
                    );
                    needed = bytes;
                    break;
                }
                Ok(Decoded { consumed, event }) => {
                    let event = describe(event);
                    buffer.drain(..consumed);
                    let last = matches!(event, VectorEvent::Close { .. });
                    events.push(event);
                    if last {
                        return events;
                    }
                }
                Err(error) => {
                    let code = error.close_code().number();
                    events.push(VectorEvent::Error {
                        code,
                        kind: format!("{error:?}"),
                    });
                    return events;
                }
            }
        }
    }
    if !buffer.is_empty() || events.is_empty() {
        events.push(VectorEvent::NeedMore(needed));
    }
    events
}

fn describe(event: Event<'_>) -> VectorEvent {
    match event {
        Event::Message {
            kind: PayloadKind::Text,
            payload,
        } => VectorEvent::Text(String::from_utf8(payload.into_owned()).expect("checked text")),
        Event::Message {
            kind: PayloadKind::Binary,
            payload,
        } => VectorEvent::Binary(to_hex(&payload)),
        Event::Ping(payload) => VectorEvent::Ping(to_hex(payload)),
        Event::Pong(payload) => VectorEvent::Pong(to_hex(payload)),
        Event::Close { code, reason } => VectorEvent::Close {
            code: code.map(|code| code.number()),
            reason: reason.to_owned(),
        },
        Event::NeedMore { bytes } => VectorEvent::NeedMore(bytes),
    }
}

#[test]
fn streams_decode_to_their_events() {
    for vector in vectors() {
        assert_eq!(
            run(&vector, &[&from_hex(&vector.hex)]),
            vector.events,
            "{}",
            vector.name
        );
    }
}

#[test]
fn every_cut_in_two_gives_the_same_events() {
    for vector in vectors() {
        let bytes = from_hex(&vector.hex);
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(
                run(&vector, &[head, tail]),
                vector.events,
                "{} cut at {cut}",
                vector.name
            );
        }
    }
}

#[test]
fn byte_by_byte_gives_the_same_events() {
    for vector in vectors() {
        let bytes = from_hex(&vector.hex);
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(run(&vector, &pieces), vector.events, "{}", vector.name);
    }
}
