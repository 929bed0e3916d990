//! Socket.IO 5 over Engine.IO 4 (`docs/socketio.md`), with WebSockets and long polling as transports.
//!
//! A client has a session in each namespace that it joins, and its request to join is the login. `/` is the main session. A room of `/` is an
//! event of the engine with the same name, and room R of another namespace `/N` is the event `N#R`.

mod application;
pub mod bare;
mod command;
mod engine_io;
mod form;
mod message_pack;
mod owned;
mod packed;
mod packet;
mod polling;
mod write;

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachment};
use tidewire_core::message::{Auth, Backend, Connection, Message};
use tidewire_core::settings::Liveness;

use super::{
    CloseCause, CloseWords, Codec, ExchangeRefusal, ForeignPayload, Handshake, HandshakeRefusal,
    HandshakeRequest, Namespace, NamespaceRefusal, NamespaceReply, Part, Parts, Paths,
    SessionReply, SessionRequest, Terms, Variant,
};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use command::{Command, Refused};
use form::{Form, attachments_of};
use owned::OwnedPacket;
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
    /// No packet has arrived. The first one shows the parser of the client.
    #[default]
    First,
    /// The next message is a packet.
    Packet,
    /// All packets are MessagePack, in one message each.
    Packed,
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
    Attached(Box<OwnedPacket>),
    /// A packet in MessagePack.
    Unpacked(Box<OwnedPacket>),
    /// The codec answers it without the engine, with these frames. The list may be empty.
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

/// The effect of a packet without a backend.
#[derive(Debug)]
enum Decision<'a> {
    /// The client joins the namespace.
    Join,
    /// The server can't have the namespace. The frames refuse it.
    NoNamespace(Vec<u8>),
    /// The client leaves the namespace.
    Leave,
    /// Boxed, because each payload is moved several times.
    Command(Box<Command<'a>>),
    /// The codec answers it with these frames. The list may be empty.
    Answer(Vec<u8>),
}

impl Decision<'_> {
    fn into_owned(self) -> Decision<'static> {
        match self {
            Self::Join => Decision::Join,
            Self::NoNamespace(frames) => Decision::NoNamespace(frames),
            Self::Leave => Decision::Leave,
            Self::Command(command) => Decision::Command(Box::new(command.into_owned())),
            Self::Answer(frames) => Decision::Answer(frames),
        }
    }
}

/// Decides about a packet that is complete. Answers have the form.
fn decide<'a>(packet: &Packet<'a>, form: Form) -> Result<Decision<'a>, ForeignPayload> {
    Ok(match packet.packet_type {
        // Its events could not be distinguished from events of a shorter namespace. The other one is for clients without Socket.IO.
        PacketType::Connect if packet.namespace.contains('#') || namespace_of(packet) == BARE => {
            let refusal = NamespaceRefusal::Unknown;
            let refused = write::namespace_refused(packet.namespace, refusal);
            Decision::NoNamespace(form.frame(&refused))
        }
        PacketType::Connect => Decision::Join,
        PacketType::ConnectError => {
            return Err(violation("only the server refuses connections"));
        }
        PacketType::Disconnect => Decision::Leave,
        // Only backends send events that want an acknowledgement.
        PacketType::Ack => Decision::Answer(Vec::new()),
        PacketType::Event => match Command::of(packet) {
            Ok(command) => Decision::Command(Box::new(command)),
            Err(refused) => Decision::Answer(answer_frames(refused, packet, form)),
        },
    })
}

/// The answer to an event that is not a command. Without a number it has none, as in Socket.IO.
fn answer_frames(refused: Refused, packet: &Packet<'_>, form: Form) -> Vec<u8> {
    let Refused { code, message } = refused;
    if packet.ack.is_none() {
        return Vec::new();
    }
    let failed = write::failed(packet.ack, code, message, None);
    form.frame(&Packet {
        namespace: packet.namespace,
        ..failed.packet()
    })
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
    match state {
        State::Awaits(_) => return Err(violation("attachments must follow their packet")),
        State::Packed => return Err(violation("the client has begun with MessagePack")),
        State::First | State::Packet | State::Probe => {}
    }
    let packet = Packet::parse(text).map_err(|error| malformed(error.0 + 1))?;
    let namespace = namespace_of(&packet);
    let is_passed_on = matches!(packet.packet_type, PacketType::Event | PacketType::Ack);
    let content = if is_passed_on && packet.attachments > 0 {
        Content::Header(text)
    } else {
        match decide(&packet, Form::Text)? {
            Decision::Join => Content::Join {
                namespace,
                credentials: packet.data.unwrap_or("{}"),
            },
            Decision::NoNamespace(frames) => Content::Answer {
                namespace: None,
                frames,
            },
            Decision::Leave => Content::Leave(namespace),
            Decision::Command(command) => Content::Command {
                namespace,
                command,
                ack: packet.ack,
            },
            Decision::Answer(frames) => Content::Answer {
                namespace: Some(namespace),
                frames,
            },
        }
    };
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
    OwnedPacket::attached(text, attachments).map_or(IGNORED, Content::Attached)
}

impl Codec for SocketIo {
    const NAME: &'static str = "socket.io";
    const CLIENTS: &'static str = "Socket.IO clients";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = Form::COUNT;
    const HAS_BATCHES: bool = false;
    /// An event with attachments has several messages, which compression would join.
    const COMPRESSES: bool = false;
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
                    state => text(state, text_of),
                }
            }
            (PayloadKind::Binary, State::Awaits(count)) => Ok(Payload {
                content: attachment(parts, payload, count == AttachmentCount::One),
                packet: None,
                next: State::awaiting(count as usize - 1),
            }),
            (PayloadKind::Binary, State::First | State::Packed) => Ok(Payload {
                content: Content::Unpacked(OwnedPacket::unpack(payload)?),
                packet: None,
                next: State::Packed,
            }),
            (PayloadKind::Binary, State::Packet | State::Probe) => {
                Err(violation("no packet has announced the attachment"))
            }
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

    fn variant(state: &State) -> Variant {
        match state {
            State::Packed => Form::MessagePack.variant(),
            _ => Form::Text.variant(),
        }
    }

    fn next_variant(payload: &Payload<'_>) -> Variant {
        Self::variant(&payload.next)
    }

    fn namespaced(variant: Variant) -> Option<Variant> {
        Some(Form::of(variant).named().variant())
    }

    fn message<'p>(payload: &'p Payload<'_>) -> Option<Message<'p>> {
        Some(match &payload.content {
            Content::Pong => Message::Connection(Connection::Pong),
            Content::Join { credentials, .. } => Message::Auth(Auth::Request {
                data: Some(credentials),
            }),
            Content::Command { command, ack, .. } => command.message(*ack, None),
            Content::Attached(packet) | Content::Unpacked(packet) => return packet.message(),
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
            Content::Attached(packet) | Content::Unpacked(packet) => {
                return packet.session_request();
            }
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
            Content::Attached(packet) | Content::Unpacked(packet) => packet.application(),
            // The text was a packet when it arrived.
            _ => application::message(&Packet::parse(payload.packet?).ok()?, None),
        }
    }

    fn encode_session_reply(_: Variant, _: SessionReply<'_>, _: &mut Vec<u8>) {}

    fn encode_namespace_reply(variant: Variant, reply: NamespaceReply<'_>, out: &mut Vec<u8>) {
        let packet = match reply {
            NamespaceReply::Refused(namespace, refusal) => {
                write::namespace_refused(namespace, refusal)
            }
            NamespaceReply::Ended(namespace) => write::namespace_ended(namespace.name()),
        };
        Form::of(variant).write(&packet, &[], out);
    }

    fn put_in_namespace(variant: Variant, namespace: &str, frames: &[u8], out: &mut Vec<u8>) {
        Form::of(variant).put_in_namespace(namespace, frames, out);
    }

    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        if let Message::Connection(Connection::Ping) = message {
            return out.push(b'2');
        }
        let form = Form::of(variant);
        if let Some(sent) = write::sent(form, message) {
            form.write_payload(&sent.packet(), &attachments_of(message), out);
        }
    }

    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        if let Message::Connection(Connection::Ping) = message {
            return websocket::encode(Opcode::Text, b"2", out);
        }
        let form = Form::of(variant);
        if let Some(sent) = write::sent(form, message) {
            form.write(&sent.packet(), &attachments_of(message), out);
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
