//! Engine.IO 4 without Socket.IO: each message is a text or bytes, and a backend gets it (`docs/socketio.md`).
//!
//! Handshake, heartbeats, polling and the upgrade are the same as in [`super::SocketIo`]. A connection has one session, in the namespace
//! [`NAMESPACE`], from its beginning. A text is the event `message` with a string, bytes are the same event with an attachment.

use std::borrow::Cow;

use tidewire_core::attachments::Attachments;
use tidewire_core::json::{self, Literal};
use tidewire_core::message::{Backend, BackendKind, Connection, Event, Message};
use tidewire_core::settings::Liveness;

use super::packet::is_placeholder;
use super::{engine_io, malformed, polling, violation};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use crate::protocol::{
    CloseCause, CloseWords, Codec, ExchangeRefusal, ForeignPayload, Handshake, HandshakeRefusal,
    HandshakeRequest, Namespace, Paths, Protocol, SessionRequest, Terms, Variant,
};

/// The namespace of all sessions. Clients of Socket.IO can't join it.
pub const NAMESPACE: &str = "/engine.io";
/// The data of bytes.
const BYTES: &str = r#"["message",{"_placeholder":true,"num":0}]"#;
/// The byte between two packets of a body. In a text it would end the packet.
const SEPARATOR: char = '\u{1e}';

/// The codec.
#[derive(Clone, Copy, Debug)]
pub struct EngineIo;

/// A message that was read.
#[derive(Debug)]
pub enum Payload<'a> {
    /// The answer to a ping.
    Pong,
    /// The data of a text.
    Text(String),
    /// Bytes.
    Bytes(&'a [u8]),
    /// It has no meaning on an open WebSocket. Existing servers ignore it.
    Ignored,
    /// The client closes the connection.
    Close,
}

fn data_of(text: &str) -> String {
    let mut data = String::from(r#"["message","#);
    json::string(text, &mut data);
    data.push(']');
    data
}

/// A message for clients.
#[derive(Debug, PartialEq, Eq)]
enum Sent<'a> {
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
}

/// The message that an event is for clients: the only argument of the event `message`, if that is a string or bytes, and otherwise the JSON
/// text of the event.
fn sent<'a>(data: &'a str, attachments: Option<&'a Attachments>) -> Sent<'a> {
    if !data.trim_ascii_start().starts_with('[') {
        return Sent::Text(data.into());
    }
    let mut items = json::entries(data).map(|(_, value)| value);
    let argument = match (items.next(), items.next(), items.next()) {
        (Some(r#""message""#), Some(argument), None) => argument,
        _ => return Sent::Text(data.into()),
    };
    let mut bytes = attachments.into_iter().flat_map(Attachments::iter);
    match (bytes.next(), bytes.next()) {
        (Some(bytes), None) if is_placeholder(argument) => Sent::Bytes(bytes),
        (None, _) => match Literal::scan(argument).and_then(|literal| literal.text()) {
            Some(text) => Sent::Text(text),
            None => Sent::Text(data.into()),
        },
        _ => Sent::Text(data.into()),
    }
}

/// The frame of a message of the engine; `None` if clients get no such message.
fn sent_of<'a>(message: &'a Message<'_>) -> Option<Sent<'a>> {
    match message {
        Message::Event(Event::Publication(publication)) => match publication.binary() {
            Some(binary) => Some(Sent::Bytes(binary.bytes())),
            None => Some(sent(
                publication.data.unwrap_or_default(),
                publication.attachments(),
            )),
        },
        Message::Backend(message) if message.kind == BackendKind::Send => Some(sent(
            message.data.unwrap_or_default(),
            message.attachments.as_ref(),
        )),
        _ => None,
    }
}

fn text_of(sent: &str) -> String {
    let mut text = String::from("4");
    match sent.contains(SEPARATOR) {
        true => text.push_str(&sent.replace(SEPARATOR, "\u{fffd}")),
        false => text.push_str(sent),
    }
    text
}

impl Codec for EngineIo {
    const NAME: &'static str = "engine.io";
    const CLIENTS: &'static str = "Engine.IO clients";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = 1;
    const HAS_BATCHES: bool = false;
    const COMPRESSES: bool = false;
    const OPENS: Option<&'static str> = Some(NAMESPACE);
    const SWITCHES_AS: Option<Protocol> = Some(Protocol::SocketIo);
    const PATHS: Paths = Paths::Fixed(&["/engine.io/", "/engine.io"]);
    const SUBPROTOCOLS: &'static [&'static str] = &[];
    const EXCHANGE_NAME: &'static str = "engine.io polling";
    const LIVENESS: Liveness = Liveness::PingsAll;

    type State = ();
    type Payload<'a> = Payload<'a>;

    fn handshake<'a>(request: &HandshakeRequest<'a>) -> Result<Handshake<'a>, HandshakeRefusal> {
        engine_io::handshake(request)
    }

    fn exchange_refusal(refusal: ExchangeRefusal, is_upgrade: bool) -> Option<HandshakeRefusal> {
        Some(engine_io::exchange_refusal(refusal, is_upgrade))
    }

    fn greet(terms: &Terms, out: &mut Vec<u8>) {
        engine_io::greet(terms, out);
    }

    fn greet_exchange(terms: &Terms, token: &str, out: &mut Vec<u8>) {
        engine_io::greet_exchange(terms, token, out);
    }

    fn exchange_input(
        body: &[u8],
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, ForeignPayload> {
        polling::input(body, bytes_max, out)
    }

    fn exchange_output(frames: &[u8], is_late: bool, out: &mut Vec<u8>) {
        polling::output(frames, is_late, out);
    }

    fn read<'a>(
        (): &(),
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Payload<'a>, ForeignPayload> {
        if kind == PayloadKind::Binary {
            return Ok(Payload::Bytes(payload));
        }
        let text = std::str::from_utf8(payload);
        let text = text.map_err(|error| malformed(error.valid_up_to()))?;
        Ok(match text.as_bytes().first() {
            Some(b'4') => Payload::Text(data_of(&text[1..])),
            Some(b'3') => Payload::Pong,
            Some(b'1') => Payload::Close,
            Some(b'0' | b'5' | b'6') => Payload::Ignored,
            Some(b'2') => return Err(violation(engine_io::CLIENT_PING)),
            _ => return Err(malformed(0)),
        })
    }

    fn message<'p>(payload: &'p Payload<'_>) -> Option<Message<'p>> {
        match payload {
            Payload::Pong => Some(Message::Connection(Connection::Pong)),
            _ => None,
        }
    }

    fn session_request<'p>(payload: &'p Payload<'_>) -> Option<SessionRequest<'p>> {
        Some(match payload {
            Payload::Ignored => SessionRequest::Answer {
                namespace: None,
                frames: &[],
            },
            Payload::Close => SessionRequest::Close,
            Payload::Pong | Payload::Text(_) | Payload::Bytes(_) => return None,
        })
    }

    fn application<'p>(payload: &'p Payload<'_>) -> Option<(Namespace<'p>, Box<Backend<'p>>)> {
        let (data, attachments) = match payload {
            Payload::Text(data) => (data.as_str(), None),
            Payload::Bytes(bytes) => (BYTES, Attachments::new([*bytes])),
            _ => return None,
        };
        let message = Backend {
            data: Some(data),
            attachments,
            ..Backend::new(BackendKind::Event)
        };
        Some((Namespace::Main, Box::new(message)))
    }

    fn encode(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        match (message, sent_of(message)) {
            (Message::Connection(Connection::Ping), _) => out.push(b'2'),
            (_, Some(Sent::Text(text))) => out.extend_from_slice(text_of(&text).as_bytes()),
            (_, Some(Sent::Bytes(bytes))) => out.extend_from_slice(bytes),
            _ => {}
        }
    }

    fn encode_frame(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        match (message, sent_of(message)) {
            (Message::Connection(Connection::Ping), _) => {
                websocket::encode(Opcode::Text, b"2", out);
            }
            (_, Some(Sent::Text(text))) => {
                websocket::encode(Opcode::Text, text_of(&text).as_bytes(), out);
            }
            (_, Some(Sent::Bytes(bytes))) => websocket::encode(Opcode::Binary, bytes, out),
            _ => {}
        }
    }

    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Some(batch.len())
    }

    fn close_words(cause: CloseCause) -> CloseWords {
        CloseWords::standard(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::socketio::vectors;

    fn message_of(kind: PayloadKind, payload: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
        let read = EngineIo::read(&(), kind, payload).ok()?;
        let (namespace, message) = EngineIo::application(&read)?;
        assert_eq!(
            (namespace, message.kind),
            (Namespace::Main, BackendKind::Event)
        );
        let attachment = message.attachments.as_ref();
        let attachment = attachment.and_then(|all| all.iter().next().map(<[u8]>::to_vec));
        Some((message.data?.into(), attachment))
    }

    /// The frame of an event with this data for clients.
    fn frame_of(data: &str, attachments: &[&[u8]]) -> (Opcode, Vec<u8>) {
        let message = Message::Backend(Box::new(Backend {
            data: Some(data),
            attachments: Attachments::new(attachments.iter().copied()),
            ..Backend::new(BackendKind::Send)
        }));
        let mut frame = Vec::new();
        EngineIo::encode_frame(Variant(0), &message, &mut frame);
        let (opcode, payload) = websocket::server_payload(&frame).expect("a frame");
        (opcode, payload.to_vec())
    }

    #[test]
    fn an_echo_returns_each_message() {
        for text in ["", "hello", "é\"\n\u{7f}", "[\"message\"]"] {
            let (data, attachment) =
                message_of(PayloadKind::Text, format!("4{text}").as_bytes()).expect(text);
            assert_eq!(attachment, None);
            let expected = (Opcode::Text, format!("4{text}").into_bytes());
            assert_eq!(frame_of(&data, &[]), expected);
        }
        for bytes in [&[][..], &[1, 2, 3, 4]] {
            let (data, attachment) = message_of(PayloadKind::Binary, bytes).expect("bytes");
            assert_eq!(attachment.as_deref(), Some(bytes));
            assert_eq!(frame_of(&data, &[bytes]), (Opcode::Binary, bytes.to_vec()));
        }
    }

    #[test]
    fn other_events_are_json_texts() {
        for data in [
            r#"["message","a","b"]"#,
            r#"["other","a"]"#,
            r#"["message",1]"#,
            r#"["message"]"#,
            r#"{"message":"a","b":"c"}"#,
            "7",
        ] {
            let expected = (Opcode::Text, format!("4{data}").into_bytes());
            assert_eq!(frame_of(data, &[]), expected, "{data}");
        }
        let expected = (Opcode::Text, format!("4{BYTES}").into_bytes());
        assert_eq!(frame_of(BYTES, &[]), expected);
        // A peer that polls must not take a part of a text for a packet.
        let (_, text) = frame_of(r#"["message","a\u001e1"]"#, &[]);
        assert_eq!(text, "4a\u{fffd}1".as_bytes());
    }

    #[test]
    fn the_packets_of_the_reference_are_read() {
        let vectors = vectors();
        for vector in vectors["engine"].as_array().expect("packets") {
            let (id, wire) = (
                vector["id"].as_str(),
                vector["wire"].as_str().expect("text"),
            );
            let is_received = vector["dir"] != "s2c" && !wire.contains(SEPARATOR);
            // The others are for a WebSocket that is to become the transport, or for long polling.
            if !is_received || matches!(id, Some("probe" | "payload-binary-empty")) {
                continue;
            }
            let read = EngineIo::read(&(), PayloadKind::Text, wire.as_bytes());
            assert!(read.is_ok(), "{id:?} {read:?}");
        }
        for wire in ["", "2", "2probe", "7", "abc"] {
            let read = EngineIo::read(&(), PayloadKind::Text, wire.as_bytes());
            assert!(read.is_err(), "{wire}");
        }
    }
}
