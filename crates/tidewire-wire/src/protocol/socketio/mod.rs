//! Socket.IO 5 over Engine.IO 4 (`docs/socketio.md`), with WebSockets as the only transport and `/` as the only namespace.
//!
//! A room is an event of the engine with the same name. The login is the client's request to join the namespace.

mod command;
mod engine_io;
mod packet;
mod write;

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachment, Attachments};
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::settings::{Liveness, ServerPings};

use super::{
    CloseCause, CloseWords, Codec, ForeignPayload, HandshakeRefusal, HandshakeRequest, Part, Parts,
    Paths, SessionReply, SessionRequest, Terms, Variant,
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
    /// The client has not joined the namespace.
    #[default]
    New,
    /// It has joined, or its login is being decided.
    Joined,
    /// The same, and attachments of its last packet follow.
    Awaits(AttachmentCount),
}

impl State {
    /// The state of a client that has joined, before this number of attachments.
    fn awaiting(count: usize) -> Self {
        match count.checked_sub(1) {
            Some(index) => Self::Awaits(COUNTS[index]),
            None => Self::Joined,
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
    Login(&'a str),
    Command(Command<'a>, Option<&'a str>),
    /// The packet of a command whose attachments follow.
    Header(&'a str),
    /// An attachment, which others follow.
    Attachment(&'a [u8]),
    /// The publication of an earlier packet, of which this was the last attachment.
    Attached(Box<AttachedPublication>),
    /// The codec answers it without the engine, with these frames. There may be none.
    Answer(Vec<u8>),
    /// The client closes the connection.
    Close,
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
fn answer<'a>(refused: Refused, ack: Option<&str>) -> Content<'a> {
    let Refused { code, message } = refused;
    Content::Answer(match ack {
        Some(_) => frame(&write::failed(ack, code, message, None)),
        None => Vec::new(),
    })
}

fn text<'a>(state: State, text: &'a str) -> Result<Payload<'a>, ForeignPayload> {
    let content = match text.as_bytes().first() {
        Some(b'4') => return message(state, &text[1..]),
        Some(b'1') => Content::Close,
        Some(b'3') => Content::Pong,
        // They have no meaning on an open WebSocket. Existing servers ignore them.
        Some(b'0' | b'5' | b'6') => Content::Answer(Vec::new()),
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
    let is_joined = state == State::Joined && packet.namespace == "/";
    let mut next = state;
    let content = match packet.packet_type {
        PacketType::Connect if packet.namespace != "/" => {
            let data = Some(r#"{"message":"Invalid namespace"}"#);
            let refused = Packet {
                namespace: packet.namespace,
                ..Packet::new(PacketType::ConnectError, None, data)
            };
            let mut text = String::from("4");
            refused.write(&mut text);
            Content::Answer(frame(&text))
        }
        PacketType::Connect if is_joined => {
            return Err(violation("the namespace was joined before"));
        }
        PacketType::Connect => {
            next = State::Joined;
            Content::Login(packet.data.unwrap_or("{}"))
        }
        PacketType::ConnectError => {
            return Err(violation("only the server refuses connections"));
        }
        _ if !is_joined => return Err(violation("the namespace was not joined")),
        // The connection has no other namespace. JavaScript clients close it, too.
        PacketType::Disconnect => Content::Close,
        // The server sends no event that wants an acknowledgement.
        PacketType::Ack => Content::Answer(Vec::new()),
        PacketType::Event => match Command::of(&packet) {
            Ok(_) if packet.attachments > 0 => Content::Header(text),
            Ok(command) => Content::Command(command, packet.ack),
            // Its attachments are skipped.
            Err(refused) => answer(refused, packet.ack),
        },
    };
    if packet.attachments > 0 {
        next = State::awaiting(packet.attachments);
    }
    Ok(Payload { content, next })
}

/// Reads an attachment that was announced.
fn attachment<'a>(parts: &Parts, payload: &'a [u8], is_last: bool) -> Content<'a> {
    let Some(text) = parts.text() else {
        return Content::Answer(Vec::new());
    };
    if !is_last {
        return Content::Attachment(payload);
    }
    let attached = || {
        let packet = Packet::parse(text).ok()?;
        let attachments = parts.attachments().iter().cloned();
        let attachments = attachments.chain([Attachment::from(payload)]).collect();
        let command = Command::of(&packet).ok()?;
        command
            .with_attachments(packet.ack, attachments)
            .map(Content::Attached)
    };
    // The text was the packet of a publication when it arrived, so this is never absent.
    attached().unwrap_or_else(|| Content::Answer(Vec::new()))
}

impl Codec for SocketIo {
    const NAME: &'static str = "socket.io";
    const CLIENTS: &'static str = "Socket.IO clients";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = 1;
    const HAS_BATCHES: bool = false;
    /// An event with attachments has several messages, which compression would join.
    const COMPRESSES: bool = false;
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
            Content::Login(credentials) => Message::Auth(Auth::Request {
                data: Some(credentials),
            }),
            Content::Command(command, ack) => command.message(*ack),
            Content::Attached(publication) => publication.message(),
            Content::Header(_) | Content::Attachment(_) | Content::Answer(_) | Content::Close => {
                return None;
            }
        })
    }

    fn session_request<'p>(payload: &'p Payload<'_>) -> Option<SessionRequest<'p>> {
        match &payload.content {
            Content::Answer(frames) => Some(SessionRequest::Answer { frames }),
            Content::Close => Some(SessionRequest::Close),
            _ => None,
        }
    }

    fn encode_session_reply(_: Variant, _: SessionReply<'_>, _: &mut Vec<u8>) {}

    fn encode(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(write::text(message).as_bytes());
    }

    fn encode_frame(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        let text = write::text(message);
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
            let state = match vector["id"].as_str() {
                Some("event-before-connect" | "connect-twice") => State::New,
                _ => State::Joined,
            };
            assert!(read_all(state, &frames).is_err(), "{}", vector["id"]);
        }
    }

    #[test]
    fn engine_packets_have_their_effect() {
        let vectors = vectors();
        assert_eq!(vectors["engine"].as_array().expect("packets").len(), 17);
        let effect = |text: &str| {
            let state = State::Joined;
            match SocketIo::read(&state, PayloadKind::Text, text.as_bytes()) {
                Ok(payload) => match payload.content {
                    Content::Pong => "pong",
                    Content::Close => "close",
                    Content::Answer(frames) if frames.is_empty() => "ignored",
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
            if let Some(SessionRequest::Answer { frames }) = read.session_request() {
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

    fn joined() -> (ConnectionCodec, Parts) {
        (ConnectionCodec::SocketIo(State::Joined), Parts::default())
    }

    #[test]
    fn an_event_is_complete_with_its_last_attachment() {
        let (mut codec, mut parts) = joined();
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
            let (mut codec, mut parts) = joined();
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
        let (mut codec, mut parts) = joined();
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
    fn a_namespace_that_does_not_exist_is_refused_and_the_connection_stays() {
        let read = SocketIo::read(&State::New, PayloadKind::Text, b"40/random").expect("a packet");
        let Content::Answer(frames) = read.content else {
            panic!("{read:?}");
        };
        assert_eq!(
            &frames[2..],
            br#"44/random,{"message":"Invalid namespace"}"#
        );
        assert_eq!(read.next, State::New);
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
            let (mut codec, mut parts) = joined();
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
            state in prop_oneof![Just(State::New), Just(State::Joined), Just(State::awaiting(10))],
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
