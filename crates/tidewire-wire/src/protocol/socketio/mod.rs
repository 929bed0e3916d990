//! Socket.IO 5 over Engine.IO 4 (`docs/socketio.md`), with WebSockets and long polling as transports.
//!
//! A client has a session in each namespace that it joins, and its request to join is the login. `/` is the main session. A room of `/` is an
//! event of the engine with the same name, and room R of another namespace `/N` is the event `N#R`.

mod application;
pub mod bare;
mod command;
mod engine_io;
mod packet;
mod polling;
mod write;

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachment, Attachments};
use tidewire_core::message::{Auth, Backend, Connection, Event, Message};
use tidewire_core::settings::Liveness;

use super::{
    CloseCause, CloseWords, Codec, ExchangeRefusal, ForeignPayload, Handshake, HandshakeRefusal,
    HandshakeRequest, Namespace, NamespaceRefusal, NamespaceReply, Part, Parts, Paths,
    SessionReply, SessionRequest, Terms, Variant,
};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use application::Attached;
use command::{Command, Refused};
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
    /// The connection may become the transport of a session that polls.
    Probe,
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
    /// The packet of an event or an acknowledgement, which a backend gets instead of `content`.
    packet: Option<&'a str>,
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
        /// Boxed, because each payload is moved several times.
        command: Box<Command<'a>>,
        ack: Option<&'a str>,
    },
    /// A packet whose attachments follow.
    Header(&'a str),
    /// An attachment, which others follow.
    Attachment(&'a [u8]),
    /// An earlier packet, of which this was the last attachment.
    Attached(Box<Attached>),
    /// The codec answers it without the engine, with these frames. There may be none.
    Answer {
        namespace: Option<Namespace<'a>>,
        frames: Vec<u8>,
    },
    /// The client closes the connection.
    Close,
    /// The client tests whether messages pass. The frames answer it.
    Probe(Vec<u8>),
    /// The session continues on this connection.
    Switch,
}

/// The namespace of clients without Socket.IO.
const BARE: Namespace<'static> = Namespace::Named(bare::NAMESPACE);

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
    Content::Answer {
        namespace: Some(namespace_of(packet)),
        frames: answer_frames(refused, packet),
    }
}

fn answer_frames(refused: Refused, packet: &Packet<'_>) -> Vec<u8> {
    let Refused { code, message } = refused;
    match (packet.ack, namespace_of(packet)) {
        (None, _) => Vec::new(),
        (ack, Namespace::Main) => frame(&write::failed(ack, code, message, None)),
        (ack, Namespace::Named(name)) => {
            let mut frames = Vec::new();
            let answer = frame(&write::failed(ack, code, message, None));
            SocketIo::put_in_namespace(name, &answer, &mut frames);
            frames
        }
    }
}

fn text<'a>(state: State, text: &'a str) -> Result<Payload<'a>, ForeignPayload> {
    let content = match text.as_bytes().first() {
        Some(b'4') => return message(state, &text[1..]),
        Some(b'1') => Content::Close,
        Some(b'3') => Content::Pong,
        // They have no meaning on an open WebSocket. Existing servers ignore them.
        Some(b'0' | b'5' | b'6') => IGNORED,
        Some(b'2') => return Err(violation(engine_io::CLIENT_PING)),
        _ => return Err(malformed(0)),
    };
    Ok(Payload {
        content,
        packet: None,
        next: state,
    })
}

/// Reads a text message of a connection that is to become the transport of a session.
fn probe<'a>(text: &str) -> Result<Payload<'a>, ForeignPayload> {
    let (content, next) = match text {
        "2probe" => (Content::Probe(frame("3probe")), State::Probe),
        // Later messages are messages of an open connection.
        "5" => (Content::Switch, State::Packet),
        _ => return Err(violation("a probe or the upgrade must come first")),
    };
    Ok(Payload {
        content,
        packet: None,
        next,
    })
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
        // Its events could not be distinguished from those of a shorter namespace. The other one is for clients without Socket.IO.
        PacketType::Connect if packet.namespace.contains('#') || namespace == BARE => {
            Content::Answer {
                namespace: None,
                frames: frame(&write::namespace_refused(
                    packet.namespace,
                    NamespaceRefusal::Unknown,
                )),
            }
        }
        PacketType::Connect => Content::Join {
            namespace,
            credentials: packet.data.unwrap_or("{}"),
        },
        PacketType::ConnectError => {
            return Err(violation("only the server refuses connections"));
        }
        PacketType::Disconnect => Content::Leave(namespace),
        PacketType::Ack | PacketType::Event if packet.attachments > 0 => Content::Header(text),
        // Only backends send events that want an acknowledgement.
        PacketType::Ack => Content::Answer {
            namespace: Some(namespace),
            frames: Vec::new(),
        },
        PacketType::Event => match Command::of(&packet) {
            Ok(command) => Content::Command {
                namespace,
                command: Box::new(command),
                ack: packet.ack,
            },
            Err(refused) => answer(refused, &packet),
        },
    };
    let is_passed_on = matches!(packet.packet_type, PacketType::Event | PacketType::Ack);
    Ok(Payload {
        content,
        packet: is_passed_on.then_some(text),
        next: State::awaiting(packet.attachments),
    })
}

/// Reads an attachment that was announced.
fn attachment<'a>(parts: &Parts, payload: &'a [u8], is_last: bool) -> Content<'a> {
    let Some(text) = parts.text() else {
        return IGNORED;
    };
    if !is_last {
        return Content::Attachment(payload);
    }
    let attachments = parts.attachments().iter().cloned();
    let attachments = attachments.chain([Attachment::from(payload)]).collect();
    // The text was a packet when it arrived, so this is never absent.
    Attached::of(text, attachments).map_or(IGNORED, Content::Attached)
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
    const EXCHANGE_NAME: &'static str = "socket.io polling";
    const LIVENESS: Liveness = Liveness::PingsAll;

    type State = State;
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

    fn switching_state() -> State {
        State::Probe
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
                let text_of = text_of.map_err(|error| malformed(error.valid_up_to()))?;
                match state {
                    State::Probe => probe(text_of),
                    State::Packet | State::Awaits(_) => text(state, text_of),
                }
            }
            (PayloadKind::Binary, State::Awaits(count)) => Ok(Payload {
                content: attachment(parts, payload, count == AttachmentCount::One),
                packet: None,
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
            Content::Attached(attached) => attached.publication()?.message(),
            Content::Leave(_)
            | Content::Header(_)
            | Content::Attachment(_)
            | Content::Answer { .. }
            | Content::Close
            | Content::Probe(_)
            | Content::Switch => return None,
        })
    }

    fn session_request<'p>(payload: &'p Payload<'_>) -> Option<SessionRequest<'p>> {
        Some(match &payload.content {
            Content::Command { namespace, .. } => within(*namespace)?,
            Content::Attached(attached) if attached.publication().is_some() => {
                within(attached.namespace())?
            }
            Content::Attached(attached) => SessionRequest::Answer {
                namespace: Some(attached.namespace()),
                frames: attached.answer(),
            },
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
            Content::Probe(frames) => SessionRequest::Probe { frames },
            Content::Switch => SessionRequest::Switch,
        })
    }

    fn application<'p>(payload: &'p Payload<'_>) -> Option<(Namespace<'p>, Box<Backend<'p>>)> {
        match &payload.content {
            Content::Attached(attached) => attached.message(),
            _ => application::message(payload.packet?, None),
        }
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
        let attachments = match message {
            Message::Event(Event::Publication(publication)) => {
                if let Some(binary) = publication.binary() {
                    websocket::encode(Opcode::Binary, binary.bytes(), out);
                }
                publication.attachments()
            }
            Message::Backend(message) => message.attachments.as_ref(),
            _ => None,
        };
        for bytes in attachments.into_iter().flat_map(Attachments::iter) {
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
mod tests;
