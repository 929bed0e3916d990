//! Socket.IO 5 over Engine.IO 4 (`docs/socketio.md`), with WebSockets as the only transport.
//!
//! A client has a session in each namespace that it joins, and its request to join is the login. `/` is the main session. A room of `/` is an
//! event of the engine with the same name, and room R of another namespace `/N` is the event `N#R`.

mod command;
mod engine_io;
mod packet;
mod write;

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachment, Attachments};
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::settings::{Liveness, ServerPings};

use super::{
    CloseCause, CloseWords, Codec, ForeignPayload, HandshakeRefusal, HandshakeRequest, Namespace,
    NamespaceRefusal, NamespaceReply, Part, Parts, Paths, SessionReply, SessionRequest, Terms,
    Variant,
};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use command::{AttachedPublication, Command, Refused};
use packet::{Packet, PacketType};

/// The codec.
#[derive(Clone, Copy, Debug)]
pub struct SocketIo;

/// A number of attachments that follow. An enum, because its unused values make room for the states and the protocols in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentCount {
    /// And so on, up to [`ATTACHMENTS_MAX`].
    One = 1,
    #[expect(missing_docs, reason = "see above")]
    Two,
    #[expect(missing_docs, reason = "see above")]
    Three,
    #[expect(missing_docs, reason = "see above")]
    Four,
    #[expect(missing_docs, reason = "see above")]
    Five,
    #[expect(missing_docs, reason = "see above")]
    Six,
    #[expect(missing_docs, reason = "see above")]
    Seven,
    #[expect(missing_docs, reason = "see above")]
    Eight,
    #[expect(missing_docs, reason = "see above")]
    Nine,
    #[expect(missing_docs, reason = "see above")]
    Ten,
}

const COUNTS: [AttachmentCount; ATTACHMENTS_MAX] = [
    AttachmentCount::One,
    AttachmentCount::Two,
    AttachmentCount::Three,
    AttachmentCount::Four,
    AttachmentCount::Five,
    AttachmentCount::Six,
    AttachmentCount::Seven,
    AttachmentCount::Eight,
    AttachmentCount::Nine,
    AttachmentCount::Ten,
];

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The next message is a packet.
    #[default]
    Packet,
    /// Attachments of the last packet follow.
    Awaits(AttachmentCount),
}

impl State {
    /// The state before this number of attachments.
    fn awaiting(count: usize) -> Self {
        match count.checked_sub(1) {
            Some(index) => Self::Awaits(COUNTS[index]),
            None => Self::Packet,
        }
    }
}

/// A message that was read.
#[derive(Debug)]
pub struct Payload<'a> {
    content: Content<'a>,
    /// The state of the connection after it.
    next: State,
}

#[derive(Debug)]
enum Content<'a> {
    Pong,
    Join {
        namespace: Namespace<'a>,
        credentials: &'a str,
    },
    Leave(Namespace<'a>),
    Command {
        namespace: Namespace<'a>,
        command: Command<'a>,
        ack: Option<&'a str>,
    },
    /// The packet of a command whose attachments follow.
    Header(&'a str),
    /// An attachment, which others follow.
    Attachment(&'a [u8]),
    /// The publication of an earlier packet, of which this was the last attachment.
    Attached(Box<AttachedPublication>),
    /// The codec answers it without the engine, with these frames. There may be none.
    Answer {
        namespace: Option<Namespace<'a>>,
        frames: Vec<u8>,
    },
    /// The client closes the connection.
    Close,
}

/// A message without an answer.
const IGNORED: Content<'static> = Content::Answer {
    namespace: None,
    frames: Vec::new(),
};

/// The session of a packet.
fn namespace_of<'a>(packet: &Packet<'a>) -> Namespace<'a> {
    namespace(packet.namespace)
}

fn namespace(name: &str) -> Namespace<'_> {
    match name {
        "/" => Namespace::Main,
        name => Namespace::Named(name),
    }
}

/// The request to pass a message to a session; `None` for the main session.
fn within(namespace: Namespace<'_>) -> Option<SessionRequest<'_>> {
    match namespace {
        Namespace::Main => None,
        Namespace::Named(namespace) => Some(SessionRequest::Within { namespace }),
    }
}

const fn violation(text: &'static str) -> ForeignPayload {
    ForeignPayload::Violation(text)
}

fn frame(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::encode(Opcode::Text, text.as_bytes(), &mut out);
    out
}

/// The answer to an event that is no command. Without a number it has none, as in Socket.IO.
fn answer<'a>(refused: Refused, packet: &Packet<'a>) -> Content<'a> {
    let Refused { code, message } = refused;
    let namespace = namespace_of(packet);
    let frames = match (packet.ack, namespace) {
        (None, _) => Vec::new(),
        (ack, Namespace::Main) => frame(&write::failed(ack, code, message, None)),
        (ack, Namespace::Named(name)) => {
            let mut frames = Vec::new();
            let answer = frame(&write::failed(ack, code, message, None));
            SocketIo::put_in_namespace(name, &answer, &mut frames);
            frames
        }
    };
    Content::Answer {
        namespace: Some(namespace),
        frames,
    }
}

fn text<'a>(state: State, text: &'a str) -> Result<Payload<'a>, ForeignPayload> {
    let content = match text.as_bytes().first() {
        Some(b'4') => return message(state, &text[1..]),
        Some(b'1') => Content::Close,
        Some(b'3') => Content::Pong,
        // They have no meaning on an open WebSocket. Existing servers ignore them.
        Some(b'0' | b'5' | b'6') => IGNORED,
        Some(b'2') => return Err(violation("the server pings, the client must not")),
        _ => return Err(malformed(0)),
    };
    let next = state;
    Ok(Payload { content, next })
}

const fn malformed(offset: usize) -> ForeignPayload {
    let format = "Socket.IO packet";
    ForeignPayload::Malformed { format, offset }
}

/// Reads a message of Engine.IO, which is a packet.
fn message<'a>(state: State, text: &'a str) -> Result<Payload<'a>, ForeignPayload> {
    if matches!(state, State::Awaits(_)) {
        return Err(violation("attachments must follow their packet"));
    }
    let packet = Packet::parse(text).map_err(|error| malformed(error.0 + 1))?;
    let namespace = namespace_of(&packet);
    let content = match packet.packet_type {
        // Its events could not be distinguished from those of a shorter namespace.
        PacketType::Connect if packet.namespace.contains('#') => Content::Answer {
            namespace: None,
            frames: frame(&write::namespace_refused(
                packet.namespace,
                NamespaceRefusal::Unknown,
            )),
        },
        PacketType::Connect => Content::Join {
            namespace,
            credentials: packet.data.unwrap_or("{}"),
        },
        PacketType::ConnectError => {
            return Err(violation("only the server refuses connections"));
        }
        PacketType::Disconnect => Content::Leave(namespace),
        // The server sends no event that wants an acknowledgement.
        PacketType::Ack => Content::Answer {
            namespace: Some(namespace),
            frames: Vec::new(),
        },
        PacketType::Event => match Command::of(&packet) {
            Ok(_) if packet.attachments > 0 => Content::Header(text),
            Ok(command) => Content::Command {
                namespace,
                command,
                ack: packet.ack,
            },
            // Its attachments are skipped.
            Err(refused) => answer(refused, &packet),
        },
    };
    let next = State::awaiting(packet.attachments);
    Ok(Payload { content, next })
}

/// Reads an attachment that was announced.
fn attachment<'a>(parts: &Parts, payload: &'a [u8], is_last: bool) -> Content<'a> {
    let Some(text) = parts.text() else {
        return IGNORED;
    };
    if !is_last {
        return Content::Attachment(payload);
    }
    let attached = || {
        let packet = Packet::parse(text).ok()?;
        let attachments = parts.attachments().iter().cloned();
        let attachments = attachments.chain([Attachment::from(payload)]).collect();
        let command = Command::of(&packet).ok()?;
        let publication = command.with_attachments(&packet, attachments);
        publication.map(Content::Attached)
    };
    // The text was the packet of a publication when it arrived, so this is never absent.
    attached().unwrap_or(IGNORED)
}

impl Codec for SocketIo {
    const NAME: &'static str = "socket.io";
    const CLIENTS: &'static str = "Socket.IO clients";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = 2;
    const HAS_BATCHES: bool = false;
    /// An event with attachments has several messages, which compression would join.
    const COMPRESSES: bool = false;
    const NAMESPACED: Option<Variant> = Some(Variant(1));
    const PATHS: Paths = Paths::Fixed(&["/socket.io/", "/socket.io"]);
    const SUBPROTOCOLS: &'static [&'static str] = &[];
    const LIVENESS: Liveness = Liveness {
        server_pings: ServerPings::Always,
        silent_intervals_max: 2,
    };

    type State = State;
    type Payload<'a> = Payload<'a>;

    fn handshake_refusal(request: &HandshakeRequest<'_>) -> Option<HandshakeRefusal> {
        engine_io::refusal(request)
    }

    fn greet(terms: &Terms, out: &mut Vec<u8>) {
        let packet = engine_io::open_packet(terms);
        websocket::encode(Opcode::Text, packet.as_bytes(), out);
    }

    fn read<'a>(
        state: &State,
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Payload<'a>, ForeignPayload> {
        Self::read_behind(&Parts::default(), state, kind, payload)
    }

    fn read_behind<'a>(
        parts: &Parts,
        state: &State,
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Payload<'a>, ForeignPayload> {
        match (kind, *state) {
            (PayloadKind::Text, state) => {
                let text_of = std::str::from_utf8(payload);
                text(
                    state,
                    text_of.map_err(|error| malformed(error.valid_up_to()))?,
                )
            }
            (PayloadKind::Binary, State::Awaits(count)) => Ok(Payload {
                content: attachment(parts, payload, count == AttachmentCount::One),
                next: State::awaiting(count as usize - 1),
            }),
            (PayloadKind::Binary, _) => Err(violation("no packet has announced the attachment")),
        }
    }

    fn part<'p>(payload: &'p Payload<'_>) -> Option<Part<'p>> {
        match payload.content {
            Content::Header(text) => Some(Part::Text(text)),
            Content::Attachment(bytes) => Some(Part::Attachment(bytes)),
            Content::Attached(_) => Some(Part::Last),
            _ => None,
        }
    }

    fn advance(state: &mut State, payload: &Payload<'_>) {
        *state = payload.next;
    }

    fn message<'p>(payload: &'p Payload<'_>) -> Option<Message<'p>> {
        Some(match &payload.content {
            Content::Pong => Message::Connection(Connection::Pong),
            Content::Join { credentials, .. } => Message::Auth(Auth::Request {
                data: Some(credentials),
            }),
            Content::Command { command, ack, .. } => command.message(*ack),
            Content::Attached(publication) => publication.message(),
            Content::Leave(_)
            | Content::Header(_)
            | Content::Attachment(_)
            | Content::Answer { .. }
            | Content::Close => return None,
        })
    }

    fn session_request<'p>(payload: &'p Payload<'_>) -> Option<SessionRequest<'p>> {
        Some(match &payload.content {
            Content::Command { namespace, .. } => within(*namespace)?,
            Content::Attached(publication) => within(publication.namespace())?,
            Content::Pong | Content::Header(_) | Content::Attachment(_) => return None,
            Content::Join {
                namespace,
                credentials,
            } => SessionRequest::Join {
                namespace: *namespace,
                credentials,
            },
            Content::Leave(namespace) => SessionRequest::Leave {
                namespace: *namespace,
            },
            Content::Answer { namespace, frames } => SessionRequest::Answer {
                namespace: *namespace,
                frames,
            },
            Content::Close => SessionRequest::Close,
        })
    }

    fn encode_session_reply(_: Variant, _: SessionReply<'_>, _: &mut Vec<u8>) {}

    fn encode_namespace_reply(reply: NamespaceReply<'_>, out: &mut Vec<u8>) {
        let text = match reply {
            NamespaceReply::Refused(namespace, refusal) => {
                write::namespace_refused(namespace, refusal)
            }
            NamespaceReply::Ended(Namespace::Main) => write::namespace_ended("/"),
            NamespaceReply::Ended(Namespace::Named(name)) => write::namespace_ended(name),
        };
        websocket::encode(Opcode::Text, text.as_bytes(), out);
    }

    fn put_in_namespace(namespace: &str, mut frames: &[u8], out: &mut Vec<u8>) {
        // The server encoded these frames itself, so they are complete.
        while let Some(bytes) = websocket::server_frame_bytes(frames) {
            let (frame, rest) = frames.split_at(bytes);
            frames = rest;
            let Some(packet) = websocket::server_text(frame) else {
                // An attachment belongs to the packet in front of it.
                out.extend_from_slice(frame);
                continue;
            };
            let (start, end) = packet.split_at(packet::namespace_offset(packet));
            websocket::encode_header(Opcode::Text, packet.len() + namespace.len() + 1, out);
            for part in [start, namespace.as_bytes(), b",", end] {
                out.extend_from_slice(part);
            }
        }
    }

    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(write::text(variant, message).as_bytes());
    }

    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        let text = write::text(variant, message);
        if text.is_empty() {
            return;
        }
        websocket::encode(Opcode::Text, text.as_bytes(), out);
        let Message::Event(Event::Publication(publication)) = message else {
            return;
        };
        if let Some(binary) = publication.binary() {
            websocket::encode(Opcode::Binary, binary.bytes(), out);
        }
        for bytes in publication
            .attachments()
            .into_iter()
            .flat_map(Attachments::iter)
        {
            websocket::encode(Opcode::Binary, bytes, out);
        }
    }

    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Some(batch.len())
    }

    fn close_words(cause: CloseCause) -> CloseWords {
        CloseWords::standard(cause)
    }
}

/// The vectors of the reference.
#[cfg(test)]
fn vectors() -> serde_json::Value {
    let text = include_str!("../../../../../spec/vectors/socketio/vectors.json");
    serde_json::from_str(text).expect("JSON")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::protocol::ConnectionCodec;

    /// Reads messages, and returns the state after them, or the first error.
    fn read_all(mut state: State, frames: &[Value]) -> Result<State, ForeignPayload> {
        for frame in frames {
            let read = match frame {
                Value::String(text) => {
                    SocketIo::read(&state, PayloadKind::Text, text.as_bytes())?.next
                }
                _ => SocketIo::read(&state, PayloadKind::Binary, b"x")?.next,
            };
            state = read;
        }
        Ok(state)
    }

    #[test]
    fn the_state_has_one_byte() {
        assert_eq!(size_of::<State>(), 1);
    }

    #[test]
    fn packets_that_the_reference_refuses_close_the_connection() {
        let vectors = vectors();
        let cases = vectors["invalid"].as_array().expect("cases");
        assert_eq!(cases.len(), 35);
        for vector in cases {
            let frames: Vec<Value> = vector["frames_after_message_prefix"]
                .as_array()
                .expect("frames")
                .iter()
                .map(|frame| match frame {
                    Value::String(text) => format!("4{text}").into(),
                    bytes => bytes.clone(),
                })
                .collect();
            // These depend on the sessions of the connection, which the shard knows.
            let is_packet = matches!(
                vector["id"].as_str(),
                Some("event-before-connect" | "connect-twice" | "disconnect-unknown-ns")
            );
            let read = read_all(State::Packet, &frames);
            assert_eq!(read.is_ok(), is_packet, "{}", vector["id"]);
        }
    }

    #[test]
    fn engine_packets_have_their_effect() {
        let vectors = vectors();
        assert_eq!(vectors["engine"].as_array().expect("packets").len(), 17);
        let effect = |text: &str| {
            let state = State::Packet;
            match SocketIo::read(&state, PayloadKind::Text, text.as_bytes()) {
                Ok(payload) => match payload.content {
                    Content::Pong => "pong",
                    Content::Close => "close",
                    Content::Answer { frames, .. } if frames.is_empty() => "ignored",
                    _ => "message",
                },
                Err(_) => "refused",
            }
        };
        for vector in vectors["engine"].as_array().expect("packets") {
            let wire = vector["wire"].as_str().expect("text");
            let expected = match vector["id"].as_str().expect("an id") {
                "open-polling" | "open-ws" | "upgrade" | "noop" => "ignored",
                "pong" | "probe-reply" => "pong",
                "close" => "close",
                // The texts are no packets of Socket.IO, or belong to long polling.
                "ping" | "probe" | "message-text" | "message-empty" => "refused",
                "payload-three" | "payload-mixed" | "payload-binary" => "refused",
                "payload-binary-empty" | "b64-ws" => "refused",
                "payload-close-after-noop" => "ignored",
                other => panic!("{other}"),
            };
            assert_eq!(effect(wire), expected, "{}", vector["id"]);
        }
        for vector in vectors["engine_invalid"].as_array().expect("packets") {
            assert_eq!(effect(vector["wire"].as_str().expect("text")), "refused");
        }
    }

    /// Passes frames to the codec of a connection. The messages for the engine, and the texts of the answers.
    fn pass(codec: &mut ConnectionCodec, parts: &mut Parts, frames: &[Frame<'_>]) -> Vec<String> {
        let mut seen = Vec::new();
        for frame in frames {
            let (kind, bytes) = match frame {
                Frame::Text(text) => (PayloadKind::Text, text.as_bytes()),
                Frame::Bytes(bytes) => (PayloadKind::Binary, *bytes),
            };
            let read = codec.read(parts, kind, bytes).expect("a packet");
            if let Some(message) = read.message() {
                seen.push(format!("{message:?}"));
            }
            if let Some(SessionRequest::Answer { frames, .. }) = read.session_request() {
                seen.extend((!frames.is_empty()).then(|| String::from_utf8_lossy(frames).into()));
            }
            assert_eq!(
                read.is_unfinished(),
                read.message().is_none() && read.session_request().is_none()
            );
            codec.advance(parts, &read);
        }
        seen
    }

    #[derive(Clone, Copy)]
    enum Frame<'a> {
        Text(&'a str),
        Bytes(&'a [u8]),
    }

    const HEADER: &str =
        r#"452-3["$to","a","up",{"_placeholder":true,"num":1},{"_placeholder":true,"num":0}]"#;

    fn connected() -> (ConnectionCodec, Parts) {
        (ConnectionCodec::SocketIo(State::Packet), Parts::default())
    }

    #[test]
    fn an_event_is_complete_with_its_last_attachment() {
        let (mut codec, mut parts) = connected();
        let begun = [Frame::Text(HEADER), Frame::Bytes(b"ab"), Frame::Text("3")];
        let seen = pass(&mut codec, &mut parts, &begun);
        assert_eq!(seen, ["Connection(Pong)"], "heartbeats may interleave");
        assert_eq!(parts.bytes(), HEADER.len() - 1 + 2);
        let last = codec
            .read(&parts, PayloadKind::Binary, b"")
            .expect("an attachment");
        let again = codec
            .read(&parts, PayloadKind::Binary, b"")
            .expect("an attachment");
        let texts = [&last, &again].map(|read| format!("{:?}", read.message().expect("a message")));
        assert_eq!(
            texts[0], texts[1],
            "a message that has to wait is read again"
        );
        for part in [
            r#"Publish { publication: Publication { name: "a""#,
            r#"data: Some("[\"up\",{\"_placeholder\":true,\"num\":1},{\"_placeholder\":true,\"num\":0}]")"#,
            "attachments: Some(attachments of [2, 0] bytes)",
            r#"correlation: "3""#,
        ] {
            assert!(texts[0].contains(part), "{part}: {}", texts[0]);
        }
        codec.advance(&mut parts, &last);
        assert_eq!((parts.size(), parts.text()), (0, None));
        let join = pass(&mut codec, &mut parts, &[Frame::Text(r#"42["$join","a"]"#)]);
        assert!(join[0].contains("Subscribe"), "{join:?}");
    }

    #[test]
    fn attachments_of_a_refused_event_and_of_acknowledgements_are_skipped() {
        let placeholder = r#"{"_placeholder":true,"num":0}"#;
        for (header, answer) in [
            (format!(r#"452-3["up",{placeholder}]"#), Some("NO_HANDLER")),
            (
                format!(r#"452-3["$join",{placeholder}]"#),
                Some("INVALID_MESSAGE_DATA"),
            ),
            (
                format!(r#"452-3["$call","add",{placeholder}]"#),
                Some("INVALID_MESSAGE_DATA"),
            ),
            (format!(r#"452-["up",{placeholder}]"#), None),
            (format!("462-3[{placeholder}]"), None),
        ] {
            let (mut codec, mut parts) = connected();
            let bytes = Frame::Bytes(b"abc");
            let seen = pass(
                &mut codec,
                &mut parts,
                &[Frame::Text(&header), bytes, Frame::Text("3")],
            );
            assert_eq!(parts.size(), 0, "{header}");
            let expected = usize::from(answer.is_some()) + 1;
            assert!(
                seen.len() == expected && seen[0].contains(answer.unwrap_or("Pong")),
                "{seen:?}"
            );
            assert!(pass(&mut codec, &mut parts, &[bytes]).is_empty());
            assert!(
                codec.read(&parts, PayloadKind::Binary, b"").is_err(),
                "{header}"
            );
        }
    }

    #[test]
    fn a_packet_among_attachments_closes_the_connection() {
        let (mut codec, mut parts) = connected();
        pass(
            &mut codec,
            &mut parts,
            &[Frame::Text(HEADER), Frame::Bytes(b"ab")],
        );
        for text in [r#"42["$join","a"]"#, "41", HEADER] {
            let read = codec.read(&parts, PayloadKind::Text, text.as_bytes());
            assert_eq!(
                read.err(),
                Some(violation("attachments must follow their packet"))
            );
        }
    }

    #[test]
    fn packets_of_a_namespace_are_for_its_session() {
        let request = |text: &str| {
            let read = SocketIo::read(&State::Packet, PayloadKind::Text, text.as_bytes());
            let read = read.expect("a packet");
            let has_message = SocketIo::message(&read).is_some();
            (
                format!("{:?}", SocketIo::session_request(&read)),
                has_message,
            )
        };
        for (text, expected, has_message) in [
            ("40", r#"Join { namespace: Main, credentials: "{}" }"#, true),
            (
                r#"40/n,{"a":1}"#,
                r#"Join { namespace: Named("/n"), credentials: "{\"a\":1}" }"#,
                true,
            ),
            ("40/n", r#"namespace: Named("/n")"#, true),
            ("41", "Leave { namespace: Main }", false),
            ("41/n", r#"Leave { namespace: Named("/n") }"#, false),
            (r#"42["$join","a"]"#, "None", true),
            (
                r#"42/n,["$join","a"]"#,
                r#"Within { namespace: "/n" }"#,
                true,
            ),
            (
                r#"42/n,["x"]"#,
                r#"Answer { namespace: Some(Named("/n"))"#,
                false,
            ),
            ("431[]", "Answer { namespace: Some(Main)", false),
            ("3", "None", true),
        ] {
            let (found, message) = request(text);
            assert!(found.contains(expected), "{text}: {found}");
            assert_eq!(message, has_message, "{text}");
        }
    }

    #[test]
    fn a_namespace_is_inserted_into_each_packet_and_into_no_attachment() {
        let encoded = |texts: &[&str]| {
            let mut frames = Vec::new();
            for text in texts {
                match text.strip_prefix('!') {
                    Some(bytes) => {
                        websocket::encode(Opcode::Binary, bytes.as_bytes(), &mut frames);
                    }
                    None => websocket::encode(Opcode::Text, text.as_bytes(), &mut frames),
                }
            }
            frames
        };
        let long = format!(r#"42["x","{}"]"#, "y".repeat(120));
        let longer = format!(r#"42["x","{}"]"#, "y".repeat(70_000));
        let (prefix, expected) = ("42", "42/name,");
        let with_name = |text: &str| text.replacen(prefix, expected, 1);
        let mut out = Vec::new();
        let frames = [
            r#"40{"sid":"x"}"#,
            r#"4312[{"ok":true}]"#,
            r#"451-["message",{"_placeholder":true,"num":0}]"#,
            "!42",
            "41",
            &long,
            &longer,
        ];
        SocketIo::put_in_namespace("/name", &encoded(&frames), &mut out);
        let written = [
            r#"40/name,{"sid":"x"}"#,
            r#"43/name,12[{"ok":true}]"#,
            r#"451-/name,["message",{"_placeholder":true,"num":0}]"#,
            "!42",
            "41/name,",
            &with_name(&long),
            &with_name(&longer),
        ];
        assert_eq!(out, encoded(&written));
    }

    #[test]
    fn an_event_of_bytes_is_a_header_and_an_attachment() {
        use tidewire_core::binary::Binary;
        use tidewire_core::message::Publication;
        let publication = Publication::new("room", None, None, None);
        let publication = publication.with_binary(Some(Binary::new(None, [1, 2])));
        let mut out = Vec::new();
        SocketIo::encode_frame(
            Variant(0),
            &Message::Event(Event::Publication(publication)),
            &mut out,
        );
        let header = out[1] as usize + 2;
        assert_eq!((out[0], &out[header..]), (0x81, &[0x82, 2, 1, 2][..]));
    }

    #[test]
    fn an_event_with_attachments_is_a_header_and_a_frame_for_each() {
        use tidewire_core::message::Publication;
        let data = r#"["up",{"_placeholder":true,"num":1}]"#;
        let publication = Publication::new("room", Some(data), None, None);
        let publication = publication.with_attachments(Attachments::new([&b"ab"[..], b""]));
        let mut out = Vec::new();
        SocketIo::encode_frame(
            Variant(0),
            &Message::Event(Event::Publication(publication)),
            &mut out,
        );
        let header = frame(&format!("452-{data}"));
        assert_eq!(out, [&header[..], &[0x82, 2, b'a', b'b', 0x82, 0]].concat());
    }

    /// An event as a client sends it: its header and its attachments.
    fn sent(count: usize) -> impl Strategy<Value = (String, Vec<Vec<u8>>)> {
        let numbers = proptest::collection::vec(0..count, 0..4);
        let attachments =
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), count);
        (numbers, attachments).prop_map(move |(numbers, attachments)| {
            let placeholders = numbers
                .iter()
                .map(|number| format!(r#",[{{"_placeholder":true,"num":{number}}}]"#));
            let placeholders: String = placeholders.collect();
            (
                format!(r#"45{count}-["$to","room","up"{placeholders}]"#),
                attachments,
            )
        })
    }

    proptest! {
        #[test]
        fn an_event_of_a_client_reaches_the_others_as_it_was((header, attachments) in (1..=ATTACHMENTS_MAX).prop_flat_map(sent), pongs in 0usize..3) {
            let (mut codec, mut parts) = connected();
            let mut frames = vec![Frame::Text(&header)];
            for bytes in &attachments {
                frames.extend(vec![Frame::Text("3"); pongs]);
                frames.push(Frame::Bytes(bytes));
            }
            let (last, first) = frames.split_last().expect("frames");
            pass(&mut codec, &mut parts, first);
            let Frame::Bytes(last) = last else { unreachable!() };
            let read = codec.read(&parts, PayloadKind::Binary, last).expect("an attachment");
            let message = read.message().expect("a publication");
            let mut out = Vec::new();
            SocketIo::encode_frame(Variant(0), &message, &mut out);
            let mut expected = frame(&header.replace(r#""$to","room","#, ""));
            for bytes in &attachments {
                websocket::encode(Opcode::Binary, bytes, &mut expected);
            }
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            state in prop_oneof![Just(State::Packet), Just(State::awaiting(10))],
            payload in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..64),
                r#"4[0-7][0-9]{0,2}-?(/[a-z]{0,3},?)?[0-9]{0,2}[\[\]{}",$a-z0-9]{0,40}"#.prop_map(String::into_bytes),
            ],
            is_text in any::<bool>(),
        ) {
            let kind = if is_text { PayloadKind::Text } else { PayloadKind::Binary };
            let mut parts = Parts::default();
            if is_text {
                parts.apply(Part::Text(&HEADER[1..]));
            }
            if let Ok(read) = SocketIo::read_behind(&parts, &state, kind, &payload) {
                let _ = (SocketIo::message(&read), SocketIo::session_request(&read));
            }
        }
    }
}
