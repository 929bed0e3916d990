//! Reads the messages of a stream as a Socket.IO client sends them.

use serde_json::Value;
use tidewire_core::attachments::Attachments;
use tidewire_core::message::{Backend, BackendKind, Message};
use tidewire_wire::frame::websocket::{self, PayloadKind};
use tidewire_wire::protocol::{ConnectionCodec, Encoding, Parts, Protocol, Variant};

use super::Kept;

/// The variants of main sessions: packets as text, and in MessagePack.
const VARIANTS: [Variant; 2] = [Variant(0), Variant(2)];

/// Reads all messages up to the first one that closes the connection. Returns the number of messages that were read.
pub fn read_all(events: &[Kept], mut seen: impl FnMut(&Backend<'_>)) -> usize {
    let mut codec = ConnectionCodec::new(Protocol::SocketIo);
    let mut parts = Parts::default();
    let mut count = 0;
    for event in events {
        let Kept::Message(kind, payload) = event else {
            continue;
        };
        let Ok(read) = codec.read(&parts, *kind, payload) else {
            break;
        };
        std::hint::black_box((read.message().is_some(), read.session_request()));
        if let Some((_, message)) = read.application() {
            seen(&message);
        }
        codec.advance(&mut parts, &read);
        count += 1;
    }
    count
}

/// Checks that an event which a backend sends on is the same event for each client.
///
/// # Panics
/// It is another one.
pub fn check(events: &[Kept]) {
    read_all(events, |message| {
        if message.kind != BackendKind::Event {
            return;
        }
        for variant in VARIANTS {
            let sent = Backend {
                kind: BackendKind::Send,
                ..message.clone()
            };
            check_sent(variant, &sent);
        }
    });
}

fn check_sent(variant: Variant, sent: &Backend<'_>) {
    let encoding = Encoding {
        variant,
        ..Encoding::first(Protocol::SocketIo, false)
    };
    let mut frames = Vec::new();
    encoding.encode_frame(&Message::Backend(Box::new(sent.clone())), &mut frames);
    let mut received = Vec::new();
    let mut rest = &frames[..];
    while let Some(bytes) = websocket::server_frame_bytes(rest) {
        let (frame, after) = rest.split_at(bytes);
        rest = after;
        let (opcode, payload) = websocket::server_payload(frame).expect("our own frame");
        let kind = match opcode {
            websocket::Opcode::Text => PayloadKind::Text,
            _ => PayloadKind::Binary,
        };
        received.push(Kept::Message(kind, payload.to_vec()));
    }
    let mut found = 0;
    read_all(&received, |message| {
        found += 1;
        assert_eq!(message.correlation, sent.correlation, "in {variant:?}");
        assert_eq!(value(message), value(sent), "in {variant:?}");
    });
    assert_eq!(found, 1, "an event in {variant:?}");
}

/// Its data with each placeholder replaced by the bytes. Numbers are read as in JavaScript, and half of a character is U+FFFD.
fn value(message: &Backend<'_>) -> Option<Value> {
    let data = message.data?;
    // Texts with half of a character have no value here.
    let value: Value = serde_json::from_str(data).ok()?;
    let attachments = message.attachments.iter().flat_map(Attachments::iter);
    Some(replaced(value, &attachments.collect::<Vec<_>>()))
}

fn replaced(value: Value, attachments: &[&[u8]]) -> Value {
    match value {
        Value::Object(members) => {
            let number = members.get("num").and_then(Value::as_u64);
            let is_placeholder =
                members.len() == 2 && members.get("_placeholder") == Some(&Value::Bool(true));
            let bytes = number.and_then(|number| attachments.get(number as usize));
            match bytes.filter(|_| is_placeholder) {
                Some(bytes) => serde_json::json!({ "bytes": bytes }),
                None => {
                    let members = members.into_iter();
                    members
                        .map(|(key, value)| (key, replaced(value, attachments)))
                        .collect()
                }
            }
        }
        Value::Array(items) => {
            let items = items.into_iter();
            items.map(|item| replaced(item, attachments)).collect()
        }
        Value::Number(number) => number
            .as_f64()
            .map_or(Value::Null, |it| it.to_string().into()),
        other => other,
    }
}
