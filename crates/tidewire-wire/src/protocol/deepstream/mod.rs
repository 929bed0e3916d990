//! deepstream's binary protobuf protocol, Tidewire's native one. Contract: `spec/deepstream.md`.
//!
//! Two layers: [`fields`] represents the wire exactly; the file of each primitive translates it to and from
//! [`Message`]. One frame carries one message.

mod action;
mod backend;
mod connection;
mod emit;
mod event;
pub mod fields;
pub mod json;
mod listen;
mod presence;
mod query;
mod record;
mod rpc;
mod scope;
mod write;

use thiserror::Error;
use tidewire_core::message::{Connection, Message, Reason, Refusal, Topic};
use tidewire_core::settings::Liveness;

use super::{CloseCause, CloseWords, Codec, ForeignPayload, Introduction, Paths, Variant};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use crate::protobuf::{FieldError, Reader};
use emit::Emit;
use fields::{Envelope, Fields, WireTopic};
use write::PlainWrite;

/// Why bytes are not a message. Each error gets the answer of an unknown topic, and the session stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not fields, or not the expected ones.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Bytes whose text is not base64.
    #[error("bytes are not base64")]
    Base64,
    /// An error answer without its original action, or with an impossible one.
    #[error("original action missing or unknown")]
    OriginalAction,
    /// A text that names no session.
    #[error("not a session")]
    Session,
}

/// The reader of an encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A server: nothing is rewritten.
    Server,
    /// A client before 7.1, which does not know PATCH_MULTI: it gets UPDATE with the whole new value. Every client
    /// gets a deleted path as PATCH without data, and a refused rpc request as an error of the provider.
    Client,
    /// A client from 7.1 on.
    ClientWithPatchMulti,
}

impl Dialect {
    /// The dialect of a client by the `sdkVersion` of its challenge. An unreadable version counts as old.
    #[must_use]
    pub fn of_client(sdk_version: Option<&str>) -> Self {
        let mut parts = sdk_version
            .unwrap_or("")
            .split(['.', '-', '+'])
            .map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (7, 1) => {
                Self::ClientWithPatchMulti
            }
            _ => Self::Client,
        }
    }
}

/// The codec. It has no state: one frame is one message.
#[derive(Clone, Copy, Debug)]
pub struct Deepstream;

impl Deepstream {
    /// Decodes the message in the payload of one frame and ignores bytes after the first envelope. Memory is
    /// proportional to the payload, whatever lengths it announces, so the frame limit is the limit.
    ///
    /// Absent names decode as empty texts and absent versions as 0, so that the engine answers them like wrong ones.
    ///
    /// # Errors
    ///
    /// The payload is not a message. Unknown topics and actions are messages.
    pub fn decode(frame_payload: &[u8]) -> Result<Message<'_>, DecodeError> {
        let envelope = Envelope::decode(frame_payload)?;
        let Some(topic) = WireTopic::from_wire(envelope.topic) else {
            return Ok(Message::UnknownTopic);
        };
        if topic == WireTopic::Event
            && let Some(event) = emit::decode(envelope.body)
        {
            return Ok(Message::Event(event));
        }
        if topic == WireTopic::Record
            && let Some(record) = write::decode(envelope.body)
        {
            return Ok(Message::Record(record));
        }
        decode_fields(topic, envelope.body)
    }

    /// Length of the message at the start of `frame_payload`, which is the start of the next one in a batch; `None`
    /// if it is incomplete.
    #[must_use]
    pub fn message_bytes(frame_payload: &[u8]) -> Option<usize> {
        let mut reader = Reader::new(frame_payload);
        reader.bytes().ok()?;
        Some(frame_payload.len() - reader.rest().len())
    }

    /// Appends `message` as the payload of one frame. Called once per fan-out, not once per recipient.
    pub fn encode(dialect: Dialect, message: &Message<'_>, out: &mut Vec<u8>) {
        let (topic, fields) = to_wire(dialect, message);
        let measure = fields.measure(topic);
        out.reserve(measure.payload);
        fields.encode_payload(topic, measure, out);
    }

    /// Appends `message` as a server's WebSocket frame, as it goes to the turn log.
    pub fn encode_frame(dialect: Dialect, message: &Message<'_>, out: &mut Vec<u8>) {
        if let Some(emit) = Emit::of(message) {
            websocket::encode_header(Opcode::Binary, emit.payload_bytes(), out);
            out.reserve(emit.payload_bytes());
            return emit.encode_payload(out);
        }
        if let Some(write) = PlainWrite::of(dialect, message) {
            websocket::encode_header(Opcode::Binary, write.payload_bytes(), out);
            out.reserve(write.payload_bytes());
            return write.encode_payload(out);
        }
        let (topic, fields) = to_wire(dialect, message);
        let measure = fields.measure(topic);
        websocket::encode_header(Opcode::Binary, measure.payload, out);
        out.reserve(measure.payload);
        fields.encode_payload(topic, measure, out);
    }

    /// Appends `message` as a client's WebSocket frame, masked with `key`, for [`Dialect::Server`].
    pub fn encode_masked_frame(message: &Message<'_>, key: [u8; 4], out: &mut Vec<u8>) {
        if let Some(write) = PlainWrite::of(Dialect::Server, message) {
            let bytes = write.payload_bytes();
            let encode = |out: &mut Vec<u8>| write.encode_payload(out);
            return websocket::encode_masked_with(Opcode::Binary, bytes, key, out, encode);
        }
        let (topic, fields) = to_wire(Dialect::Server, message);
        let measure = fields.measure(topic);
        websocket::encode_masked_with(Opcode::Binary, measure.payload, key, out, |out| {
            fields.encode_payload(topic, measure, out);
        });
    }
}

/// A client from 7.1 on, which reads PATCH_MULTI. Other clients have the first variant.
const WITH_PATCH_MULTI: Variant = Variant(1);
const VARIANTS: u8 = 2;

impl Dialect {
    fn of(variant: Variant) -> Self {
        match variant {
            WITH_PATCH_MULTI => Self::ClientWithPatchMulti,
            _ => Self::Client,
        }
    }
}

/// The features of the sender of a challenge.
fn introduction(message: &Message<'_>) -> Option<Introduction> {
    let Message::Connection(Connection::Challenge {
        sdk_version,
        batches,
        coalesces,
        ..
    }) = message
    else {
        return None;
    };
    Some(Introduction {
        variant: match Dialect::of_client(*sdk_version) {
            Dialect::ClientWithPatchMulti => WITH_PATCH_MULTI,
            Dialect::Client | Dialect::Server => Variant::default(),
        },
        reads_batches: *batches,
        coalesces: *coalesces,
    })
}

impl Codec for Deepstream {
    const NAME: &'static str = "deepstream";
    const CLIENTS: &'static str = "deepstream clients";
    const KIND: PayloadKind = PayloadKind::Binary;
    const VARIANTS: u8 = VARIANTS;
    const HAS_BATCHES: bool = true;
    const PATHS: Paths = Paths::Option("network.paths");
    const SUBPROTOCOLS: &'static [&'static str] = &[];
    const LIVENESS: Liveness = Liveness::PeerPings;
    const INTRODUCES: bool = true;

    type State = ();

    /// `None` for a text message.
    type Payload<'a> = Option<&'a [u8]>;

    #[inline(always)]
    fn read<'a>(
        (): &(),
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Self::Payload<'a>, ForeignPayload> {
        Ok((kind == PayloadKind::Binary).then_some(payload))
    }

    #[inline(always)]
    fn message<'p>(payload: &'p Self::Payload<'_>) -> Option<Message<'p>> {
        Self::decode((*payload)?).ok()
    }

    fn introduction(message: &Message<'_>) -> Option<Introduction> {
        introduction(message)
    }

    #[inline(always)]
    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode(Dialect::of(variant), message, out);
    }

    #[inline(always)]
    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode_frame(Dialect::of(variant), message, out);
    }

    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Self::message_bytes(batch)
    }

    fn close_words(cause: CloseCause) -> CloseWords {
        CloseWords::standard(cause)
    }
}

/// The message of any fields. Not inlined, so that the fast path does not reserve stack space for them.
#[inline(never)]
fn decode_fields(topic: WireTopic, body: &[u8]) -> Result<Message<'_>, DecodeError> {
    from_wire(topic, Fields::decode(topic, body)?)
}

/// The message of these fields. Absent names become empty texts and absent versions 0.
#[inline]
fn from_wire(topic: WireTopic, mut fields: Fields<'_>) -> Result<Message<'_>, DecodeError> {
    let action = fields.action;
    let has_payload = matches!(topic, WireTopic::Event | WireTopic::Backend);
    if !has_payload && (fields.bytes.is_some() || !fields.attachments.is_empty()) {
        // Records and rpcs have JSON only. An empty text is not JSON, so the engine refuses it.
        fields.data = Some("");
    }
    let (topic, message) = match topic {
        WireTopic::Parser => return Ok(Message::UnknownTopic),
        WireTopic::Connection => (
            Topic::Connection,
            connection::connection_from_wire(&fields).map(Message::Connection),
        ),
        WireTopic::Auth => (
            Topic::Auth,
            connection::auth_from_wire(&fields).map(Message::Auth),
        ),
        WireTopic::Event => (Topic::Event, event::from_wire(fields)?.map(Message::Event)),
        WireTopic::Record => (
            Topic::Record,
            record::from_wire(fields)?.map(Message::Record),
        ),
        WireTopic::Rpc => (Topic::Rpc, rpc::from_wire(fields)?.map(Message::Rpc)),
        WireTopic::Presence => match scope::from_wire(&fields) {
            Some(message) => return Ok(Message::Scope(message)),
            None => (
                Topic::Presence,
                presence::from_wire(fields)?.map(Message::Presence),
            ),
        },
        WireTopic::Query => (Topic::Query, query::from_wire(fields).map(Message::Query)),
        WireTopic::Backend => {
            let message = backend::from_wire(fields).map(Box::new);
            (Topic::Backend, message.map(Message::Backend))
        }
    };
    Ok(message.unwrap_or(Message::UnknownAction { topic, action }))
}

fn to_wire<'m>(dialect: Dialect, message: &'m Message<'_>) -> (WireTopic, Fields<'m>) {
    match message {
        Message::Connection(message) => (
            WireTopic::Connection,
            connection::connection_to_wire(message),
        ),
        Message::Auth(message) => (WireTopic::Auth, connection::auth_to_wire(message)),
        Message::Event(message) => (WireTopic::Event, event::to_wire(message)),
        Message::Record(message) => (WireTopic::Record, record::to_wire(dialect, message)),
        Message::Rpc(message) => (WireTopic::Rpc, rpc::to_wire(dialect, message)),
        Message::Presence(message) => (WireTopic::Presence, presence::to_wire(message)),
        Message::Scope(message) => (WireTopic::Presence, scope::to_wire(message)),
        Message::Query(message) => (WireTopic::Query, query::to_wire(message)),
        Message::Backend(message) => (WireTopic::Backend, backend::to_wire(message)),
        Message::UnknownTopic => (
            WireTopic::Parser,
            Fields::new(action::parser::UNKNOWN_TOPIC),
        ),
        Message::UnknownAction { topic, action } => (topic_to_wire(*topic), Fields::new(*action)),
    }
}

fn topic_to_wire(topic: Topic) -> WireTopic {
    match topic {
        Topic::Connection => WireTopic::Connection,
        Topic::Auth => WireTopic::Auth,
        Topic::Event => WireTopic::Event,
        Topic::Record => WireTopic::Record,
        Topic::Rpc => WireTopic::Rpc,
        Topic::Presence => WireTopic::Presence,
        Topic::Query => WireTopic::Query,
        Topic::Backend => WireTopic::Backend,
    }
}

/// Helpers of all primitives' translations.
impl<'a> Fields<'a> {
    fn is_ack(&self) -> bool {
        self.is_ack == Some(true)
    }

    /// The name; empty if absent, which the engine never accepts.
    fn name(&self) -> &'a str {
        self.name.unwrap_or_default()
    }

    fn ack(action: u32, correlation: Option<&'a str>) -> Self {
        Self {
            correlation,
            is_ack: Some(true),
            ..Self::new(action)
        }
    }

    fn named(action: u32, name: &'a str) -> Self {
        Self {
            name: Some(name),
            ..Self::new(action)
        }
    }

    fn bulk(action: u32, names: &'a [&'a str], correlation: Option<&'a str>) -> Self {
        Self {
            names: names.into(),
            correlation,
            ..Self::new(action)
        }
    }

    /// The refusal in an error answer; `from_number` translates its action.
    fn refusal<A>(
        &self,
        reason: Reason,
        from_number: impl FnOnce(u32) -> Option<A>,
    ) -> Result<Refusal<'a, A>, DecodeError> {
        Ok(Refusal {
            name: self.name,
            correlation: self.correlation,
            write_ack: self.is_write_ack == Some(true),
            ..Refusal::new(reason, self.original(from_number)?)
        })
    }

    /// The refusal in an error answer that has no more than a name.
    fn named_refusal<A>(&self, reason: Reason, action: A) -> Refusal<'a, A> {
        Refusal {
            name: Some(self.name()),
            ..Refusal::new(reason, action)
        }
    }

    fn original<A>(&self, from_number: impl FnOnce(u32) -> Option<A>) -> Result<A, DecodeError> {
        self.original_action
            .and_then(from_number)
            .ok_or(DecodeError::OriginalAction)
    }

    /// An error answer with all fields of a refusal.
    fn refused<A: Copy>(
        action: u32,
        refusal: &Refusal<'a, A>,
        to_number: impl FnOnce(A) -> u32,
    ) -> Self {
        Self {
            name: refusal.name,
            original_action: Some(to_number(refusal.action)),
            is_error: Some(true),
            correlation: refusal.correlation,
            is_write_ack: refusal.write_ack.then_some(true),
            ..Self::new(action)
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::message::{Call, Change, Record, Rpc, RpcAction, Write};

    use super::*;

    const WRITE: Write<'_> = Write {
        name: "r",
        version: 0,
        correlation: None,
        write_ack: false,
        key: None,
    };

    /// The message that a peer of `dialect` reads when `message` is sent.
    fn check_read(dialect: Dialect, message: &Message<'_>, expected: &Message<'_>) {
        let mut payload = Vec::new();
        Deepstream::encode(dialect, message, &mut payload);
        assert_eq!(
            Deepstream::decode(&payload).as_ref(),
            Ok(expected),
            "{dialect:?}"
        );
    }

    #[test]
    fn dialect_follows_the_version_of_the_library() {
        let cases = [
            (None, Dialect::Client),
            (Some(""), Dialect::Client),
            (Some("7"), Dialect::Client),
            (Some("7.0.5"), Dialect::Client),
            (Some("6.9.9"), Dialect::Client),
            (Some("seven.one"), Dialect::Client),
            (Some("7.1.0"), Dialect::ClientWithPatchMulti),
            (Some("7.1"), Dialect::ClientWithPatchMulti),
            (Some("7.1-beta.1"), Dialect::ClientWithPatchMulti),
            (Some("7.10.2"), Dialect::ClientWithPatchMulti),
            (Some("10.0.0"), Dialect::ClientWithPatchMulti),
        ];
        for (sdk_version, expected) in cases {
            assert_eq!(Dialect::of_client(sdk_version), expected, "{sdk_version:?}");
        }
    }

    #[test]
    fn clients_read_a_deleted_path_as_a_patch_without_data() {
        let erase = Message::Record(Record::Write(WRITE, Change::Erase { path: Some("a.b") }));
        let patch = Message::Record(Record::Write(
            WRITE,
            Change::Patch {
                path: "a.b",
                data: None,
            },
        ));
        check_read(Dialect::Server, &erase, &erase);
        check_read(Dialect::Client, &erase, &patch);
        check_read(Dialect::ClientWithPatchMulti, &erase, &patch);
    }

    #[test]
    fn clients_without_patch_multi_read_the_whole_value() {
        let change = |full| Change::PatchMulti {
            data: Some("[{\"path\":\"a\",\"data\":1}]"),
            full,
        };
        let sent = Message::Record(Record::Write(WRITE, change(Some("{\"a\":1}"))));
        let multi = Message::Record(Record::Write(WRITE, change(None)));
        let update = Message::Record(Record::Write(
            WRITE,
            Change::Update {
                data: Some("{\"a\":1}"),
            },
        ));
        check_read(Dialect::Client, &sent, &update);
        check_read(Dialect::ClientWithPatchMulti, &sent, &multi);
        check_read(Dialect::Server, &sent, &multi);
        // Without the whole value there is nothing better to send.
        check_read(Dialect::Client, &multi, &multi);
    }

    #[test]
    fn clients_read_a_refused_request_as_an_error_of_the_provider() {
        let call = tidewire_core::message::Call {
            name: "sum",
            correlation: "7",
        };
        let refusal = call.refusal(Reason::InvalidData, RpcAction::Request);
        let refused = Message::Rpc(Rpc::Error(refusal));
        let error = Message::Rpc(Rpc::RequestError {
            call,
            data: Some("\"INVALID_MESSAGE_DATA\""),
        });
        check_read(Dialect::Client, &refused, &error);
        check_read(Dialect::Server, &refused, &refused);
        let provide = Refusal {
            action: RpcAction::Provide,
            ..refusal
        };
        let refused = Message::Rpc(Rpc::Error(provide));
        check_read(Dialect::Client, &refused, &refused);
    }

    #[test]
    fn unknown_topics_and_actions_are_messages() {
        let cases: [(&[u8], Message<'_>); 6] = [
            (&[0], Message::UnknownTopic),
            (&[2, 0x10, 11], Message::UnknownTopic),
            (&[2, 0x10, 1], Message::UnknownTopic),
            (
                &[2, 0x10, 4],
                Message::UnknownAction {
                    topic: Topic::Event,
                    action: 0,
                },
            ),
            (
                &[6, 0x10, 5, 0x1A, 2, 8, 7],
                Message::UnknownAction {
                    topic: Topic::Record,
                    action: 7,
                },
            ),
            (
                &[7, 0x10, 6, 0x1A, 3, 8, 0xE8, 7],
                Message::UnknownAction {
                    topic: Topic::Rpc,
                    action: 1000,
                },
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Deepstream::decode(bytes), Ok(expected), "{bytes:02x?}");
        }
    }

    #[test]
    fn malformed_messages_are_errors() {
        // Each of them is the fields of an EVENT EMIT with something wrong behind the action.
        let cases: [(&[u8], DecodeError); 13] = [
            (&[0x32], DecodeError::Field(FieldError::Truncated)),
            (&[0x32, 2, b'e'], DecodeError::Field(FieldError::Truncated)),
            (
                &[0x32, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
                DecodeError::Field(FieldError::Truncated),
            ),
            (
                &[
                    0x32, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1,
                ],
                DecodeError::Field(FieldError::Truncated),
            ),
            (
                &[
                    0x32, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2,
                ],
                DecodeError::Field(FieldError::Varint),
            ),
            (
                &[
                    0x32, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0,
                ],
                DecodeError::Field(FieldError::Varint),
            ),
            (&[0x32, 1, 0xFF], DecodeError::Field(FieldError::Utf8)),
            (&[0x30, 1], DecodeError::Field(FieldError::WireType)),
            (&[0x33], DecodeError::Field(FieldError::WireType)),
            (&[0x02, 0], DecodeError::Field(FieldError::Tag)),
            (
                &[0x80, 0x80, 0x80, 0x80, 0x10, 0],
                DecodeError::Field(FieldError::Tag),
            ),
            (
                &[
                    0x58, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1,
                ],
                DecodeError::Field(FieldError::Range),
            ),
            (&[0x75, 1, 2, 3], DecodeError::Field(FieldError::Truncated)),
        ];
        for (fields, expected) in cases {
            let mut bytes = vec![
                fields.len() as u8 + 6,
                0x10,
                4,
                0x1A,
                fields.len() as u8 + 2,
                8,
                2,
            ];
            bytes.extend_from_slice(fields);
            assert_eq!(Deepstream::decode(&bytes), Err(expected), "{fields:02x?}");
        }
    }

    #[test]
    fn bytes_in_place_of_json_become_data_that_is_no_json() {
        let call = Call {
            name: "n",
            correlation: "7",
        };
        let write = Write { name: "n", ..WRITE };
        let cases = [
            (
                WireTopic::Record,
                action::record::UPDATE,
                Message::Record(Record::Write(write, Change::Update { data: Some("") })),
            ),
            (
                WireTopic::Rpc,
                action::rpc::RESPONSE,
                Message::Rpc(Rpc::Response {
                    call,
                    data: Some(""),
                }),
            ),
        ];
        for (topic, action, expected) in cases {
            let named = Fields {
                correlation: (topic == WireTopic::Rpc).then_some("7"),
                ..Fields::named(action, "n")
            };
            let of_bytes = Fields {
                bytes: Some(b"\xff"),
                ..named.clone()
            };
            let attached = Fields {
                data: Some("1"),
                attachments: vec![&b""[..]].into(),
                ..named
            };
            for fields in [of_bytes, attached] {
                let mut payload = Vec::new();
                fields.encode_payload(topic, fields.measure(topic), &mut payload);
                assert_eq!(
                    Deepstream::decode(&payload).as_ref(),
                    Ok(&expected),
                    "{topic:?}"
                );
            }
        }
    }

    #[test]
    fn error_answers_without_a_usable_original_action_are_errors() {
        let denied_without = [6, 0x10, 4, 0x1A, 2, 8, 104];
        let denied_of_listen_timeout = [8, 0x10, 4, 0x1A, 4, 8, 104, 0x58, 101];
        for bytes in [&denied_without[..], &denied_of_listen_timeout[..]] {
            assert_eq!(Deepstream::decode(bytes), Err(DecodeError::OriginalAction));
        }
    }
}
