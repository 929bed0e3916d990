//! A message on the wire: a topic and optional fields, without interpretation.
//!
//! Presence is preserved, also for default values, because deepstream's clients distinguish "absent" from "zero". So
//! every message can be encoded again byte for byte. One table per topic has the numbers of its fields; decoding,
//! encoding and measuring all use it. Contract: `spec/deepstream.md`, "Fields".

use std::borrow::Cow;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::attachments::ATTACHMENTS_MAX;
use tidewire_core::message::Position;
use tidewire_core::trace::Trace;

use super::DecodeError;
use crate::protobuf::{Counter, FieldError, Reader, Sink, WireType, varint_bytes};
use crate::traceparent;

/// The topics that have fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireTopic {
    /// Answers to unreadable messages.
    Parser,
    /// The handshake of a connection.
    Connection,
    /// Logins.
    Auth,
    /// Events.
    Event,
    /// Records.
    Record,
    /// Rpc.
    Rpc,
    /// Presence.
    Presence,
    /// Queries, an addition of Tidewire.
    Query,
    /// Backends, an addition of Tidewire.
    Backend,
}

/// The number of the topic of queries, far from deepstream's possible new topics.
const QUERY_NUMBER: u32 = 32;
/// The number of the topic of backends.
const BACKEND_NUMBER: u32 = 33;

impl WireTopic {
    /// The topics with consecutive numbers, from 1.
    const NUMBERED: [Self; 7] = [
        Self::Parser,
        Self::Connection,
        Self::Auth,
        Self::Event,
        Self::Record,
        Self::Rpc,
        Self::Presence,
    ];

    /// The topic of a number, `None` for numbers that no client uses.
    #[must_use]
    pub fn from_wire(number: u32) -> Option<Self> {
        match number {
            QUERY_NUMBER => Some(Self::Query),
            BACKEND_NUMBER => Some(Self::Backend),
            _ => Self::NUMBERED.get(number.checked_sub(1)? as usize).copied(),
        }
    }

    /// The number on the wire.
    #[must_use]
    pub fn to_wire(self) -> u32 {
        match self {
            Self::Query => QUERY_NUMBER,
            Self::Backend => BACKEND_NUMBER,
            _ => self as u32 + 1,
        }
    }

    pub(super) fn layout(self) -> &'static [Option<Field>] {
        match self {
            Self::Parser => &PARSER,
            Self::Connection => &CONNECTION,
            Self::Auth => &AUTH,
            Self::Event => &EVENT,
            Self::Record => &RECORD,
            Self::Rpc => &RPC,
            Self::Presence => &PRESENCE,
            Self::Query => &QUERY,
            Self::Backend => &BACKEND,
        }
    }
}

/// The fields of all topics together. Each topic assigns numbers to some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Action,
    Data,
    Correlation,
    IsError,
    IsAck,
    Name,
    Names,
    Subscription,
    OriginalTopic,
    OriginalAction,
    IsWriteAck,
    Path,
    Version,
    Versions,
    Incarnation,
    Only,
    Existed,
    Key,
    SeenVersion,
    Url,
    ProtocolVersion,
    SdkVersion,
    SdkType,
    Batches,
    Jumps,
    Missed,
    Epoch,
    Offset,
    Positions,
    Trace,
    ContentType,
    Bytes,
    Attachments,
    RequestorName,
    RequestorData,
    Session,
    Except,
    Count,
    IsLocal,
    Timeout,
}

/// Stores fields at their numbers: the index in the table is the number on the wire.
const fn layout<const N: usize>(fields: &[(usize, Field)]) -> [Option<Field>; N] {
    let mut table = [None; N];
    let mut index = 0;
    while index < fields.len() {
        table[fields[index].0] = Some(fields[index].1);
        index += 1;
    }
    table
}

/// The number of a field in a table, as a constant.
pub(super) const fn number(table: &[Option<Field>], field: Field) -> u32 {
    let mut number = 0;
    while number < table.len() {
        if let Some(known) = table[number]
            && known as u8 == field as u8
        {
            return number as u32;
        }
        number += 1;
    }
    panic!("the topic does not have the field");
}

static PARSER: [Option<Field>; 10] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (8, Field::OriginalTopic),
    (9, Field::OriginalAction),
]);

static CONNECTION: [Option<Field>; 17] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::IsError),
    (4, Field::IsAck),
    (5, Field::Url),
    (6, Field::ProtocolVersion),
    (7, Field::SdkVersion),
    (8, Field::SdkType),
    // Tidewire's additions, far from deepstream's possible new numbers.
    (15, Field::Batches),
    (16, Field::Jumps),
]);

static AUTH: [Option<Field>; 5] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::IsError),
    (4, Field::IsAck),
]);

pub(super) static EVENT: [Option<Field>; 23] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::Correlation),
    (4, Field::IsError),
    (5, Field::IsAck),
    (6, Field::Name),
    (7, Field::Names),
    (8, Field::Subscription),
    (10, Field::OriginalTopic),
    (11, Field::OriginalAction),
    // Tidewire's additions, far from deepstream's possible new numbers.
    (15, Field::Missed),
    (16, Field::Epoch),
    (17, Field::Offset),
    (18, Field::Positions),
    (19, Field::Trace),
    (20, Field::ContentType),
    (21, Field::Bytes),
    (22, Field::Attachments),
]);

pub(super) static RECORD: [Option<Field>; 27] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::Correlation),
    (4, Field::IsError),
    (5, Field::IsAck),
    (6, Field::Name),
    (7, Field::Names),
    (9, Field::Subscription),
    (10, Field::OriginalAction),
    (11, Field::IsWriteAck),
    (12, Field::Path),
    (13, Field::Version),
    (14, Field::Versions),
    // Tidewire's additions, far from deepstream's possible new numbers.
    (20, Field::Incarnation),
    (21, Field::Only),
    (22, Field::Existed),
    (23, Field::Key),
    (24, Field::SeenVersion),
    // Records have JSON only. The fields are known, so that the server refuses them.
    (25, Field::Bytes),
    (26, Field::Attachments),
]);

static RPC: [Option<Field>; 17] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::Correlation),
    (4, Field::IsError),
    (5, Field::IsAck),
    (6, Field::Names),
    (7, Field::Name),
    (9, Field::OriginalAction),
    (10, Field::RequestorName),
    (11, Field::RequestorData),
    // As in a record.
    (15, Field::Bytes),
    (16, Field::Attachments),
]);

static PRESENCE: [Option<Field>; 10] = layout(&[
    (1, Field::Action),
    (2, Field::OriginalTopic),
    (3, Field::OriginalAction),
    (4, Field::Data),
    (5, Field::Correlation),
    (6, Field::IsError),
    (7, Field::IsAck),
    (8, Field::Name),
    (9, Field::Names),
]);

static QUERY: [Option<Field>; 7] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::Correlation),
    (4, Field::IsError),
    (6, Field::Name),
]);

static BACKEND: [Option<Field>; 23] = layout(&[
    (1, Field::Action),
    (2, Field::Data),
    (3, Field::Correlation),
    (4, Field::IsError),
    (6, Field::Name),
    (7, Field::Names),
    (15, Field::Session),
    (16, Field::Except),
    (17, Field::Count),
    (18, Field::IsLocal),
    (19, Field::Timeout),
    (22, Field::Attachments),
]);

/// The length-delimited outer message: the topic, and the bytes of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The topic's number; 0 if it was absent.
    pub topic: u32,
    /// The fields, encoded.
    pub body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// The envelope at the start of `frame_payload`. Bytes after it are ignored, as by every peer.
    ///
    /// # Errors
    ///
    /// The bytes are not an envelope.
    pub fn decode(frame_payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Reader::new(frame_payload).bytes()?);
        let mut envelope = Self {
            topic: 0,
            body: &[],
        };
        while let Some(tag) = reader.tag()? {
            match tag {
                (2, WireType::Varint) => envelope.topic = reader.number()?,
                (3, WireType::Bytes) => envelope.body = reader.bytes()?,
                (2 | 3, _) => return Err(DecodeError::Field(FieldError::WireType)),
                (_, wire_type) => reader.skip(wire_type)?,
            }
        }
        Ok(envelope)
    }
}

/// The fields of one message. `None` is absent; default values are preserved and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The action; its meaning depends on the topic.
    pub action: u32,
    /// JSON text, unchecked.
    pub data: Option<&'a str>,
    /// `correlationId`.
    pub correlation: Option<&'a str>,
    /// The message is an error answer.
    pub is_error: Option<bool>,
    /// The message acknowledges the action.
    pub is_ack: Option<bool>,
    /// A name, or a pattern.
    pub name: Option<&'a str>,
    /// Names of a bulk message. An empty list equals an absent one.
    pub names: Cow<'a, [&'a str]>,
    /// The name that the server offers to a listening provider.
    pub subscription: Option<&'a str>,
    /// `originalTOPIC`.
    pub original_topic: Option<u32>,
    /// The action that an error answer refers to.
    pub original_action: Option<u32>,
    /// The message requests a write acknowledgement or is one.
    pub is_write_ack: Option<bool>,
    /// A path in a record.
    pub path: Option<&'a str>,
    /// A record's version.
    pub version: Option<i32>,
    /// Names and versions, in the order on the wire. An empty list equals an absent one.
    pub versions: Cow<'a, [(&'a str, i32)]>,
    /// The incarnation of the record.
    pub incarnation: Option<u64>,
    /// The required state of the record, as a number.
    pub only: Option<u32>,
    /// Whether the record existed before.
    pub existed: Option<bool>,
    /// The key of the write: a repetition with the same key is not made twice.
    pub key: Option<&'a str>,
    /// The version that the sender of a repeated write had last seen when it first sent the write.
    pub seen_version: Option<i32>,
    /// A server's address.
    pub url: Option<&'a str>,
    /// Version of the protocol.
    pub protocol_version: Option<&'a str>,
    /// Version of the peer's library.
    pub sdk_version: Option<&'a str>,
    /// JsonKind of the peer's library.
    pub sdk_type: Option<&'a str>,
    /// The peer reads several messages in one frame.
    pub batches: Option<bool>,
    /// The peer accepts jumps: updates that skip versions.
    pub jumps: Option<bool>,
    /// The number of skipped events.
    pub missed: Option<u32>,
    /// The epoch of the offset.
    pub epoch: Option<u64>,
    /// The number of an event.
    pub offset: Option<u64>,
    /// Names and positions, in the order on the wire. An empty list equals an absent one.
    pub positions: Cow<'a, [(&'a str, Option<Position>)]>,
    /// `traceparent`. An invalid one equals an absent one. Boxed, because nearly no message has one.
    pub trace: Option<Box<Trace>>,
    /// The content type of `bytes`.
    pub content_type: Option<&'a str>,
    /// A payload that is not JSON.
    pub bytes: Option<&'a [u8]>,
    /// The attachments of the data, in the order of their numbers. A decoder keeps one more than an event may have, so that the engine
    /// refuses the event. An empty list equals an absent one.
    pub attachments: Cow<'a, [&'a [u8]]>,
    /// The user id of an rpc's requestor.
    pub requestor_name: Option<&'a str>,
    /// The client data of an rpc's requestor, JSON text.
    pub requestor_data: Option<&'a str>,
    /// A session that a backend serves.
    pub session: Option<SessionId>,
    /// Rooms that are excepted. An empty list equals an absent one.
    pub except: Cow<'a, [&'a str]>,
    /// A number of messages.
    pub count: Option<u32>,
    /// The message stays on the node.
    pub is_local: Option<bool>,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

impl<'a> Fields<'a> {
    /// Fields with only the action set.
    #[must_use]
    pub fn new(action: u32) -> Self {
        Self {
            action,
            ..Self::default()
        }
    }

    /// Decodes the fields in the body of an envelope. If a field occurs twice, the last one counts; fields that the
    /// topic does not have are ignored.
    ///
    /// # Errors
    ///
    /// The bytes are not fields of this topic.
    pub fn decode(topic: WireTopic, body: &'a [u8]) -> Result<Self, DecodeError> {
        let layout = topic.layout();
        let mut fields = Self::default();
        let mut reader = Reader::new(body);
        while let Some((number, wire_type)) = reader.tag()? {
            match layout.get(number as usize) {
                Some(Some(field)) => fields.decode_field(*field, wire_type, &mut reader)?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(fields)
    }

    fn decode_field(
        &mut self,
        field: Field,
        wire_type: WireType,
        reader: &mut Reader<'a>,
    ) -> Result<(), DecodeError> {
        if wire_type != field.wire_type() {
            return Err(DecodeError::Field(FieldError::WireType));
        }
        match field {
            Field::Action => self.action = reader.number()?,
            Field::Data => self.data = Some(reader.text()?),
            Field::Correlation => self.correlation = Some(reader.text()?),
            Field::IsError => self.is_error = Some(reader.varint()? != 0),
            Field::IsAck => self.is_ack = Some(reader.varint()? != 0),
            Field::Name => self.name = Some(reader.text()?),
            Field::Names => self.names.to_mut().push(reader.text()?),
            Field::Subscription => self.subscription = Some(reader.text()?),
            Field::OriginalTopic => self.original_topic = Some(reader.number()?),
            Field::OriginalAction => self.original_action = Some(reader.number()?),
            Field::IsWriteAck => self.is_write_ack = Some(reader.varint()? != 0),
            Field::Path => self.path = Some(reader.text()?),
            Field::Version => self.version = Some(reader.int32()?),
            Field::Versions => self
                .versions
                .to_mut()
                .push(decode_version(reader.bytes()?)?),
            Field::Incarnation => self.incarnation = Some(reader.varint()?),
            Field::Only => self.only = Some(reader.number()?),
            Field::Existed => self.existed = Some(reader.varint()? != 0),
            Field::Key => self.key = Some(reader.text()?),
            Field::SeenVersion => self.seen_version = Some(reader.int32()?),
            Field::Url => self.url = Some(reader.text()?),
            Field::ProtocolVersion => self.protocol_version = Some(reader.text()?),
            Field::SdkVersion => self.sdk_version = Some(reader.text()?),
            Field::SdkType => self.sdk_type = Some(reader.text()?),
            Field::Batches => self.batches = Some(reader.varint()? != 0),
            Field::Jumps => self.jumps = Some(reader.varint()? != 0),
            Field::Missed => self.missed = Some(reader.number()?),
            Field::Epoch => self.epoch = Some(reader.varint()?),
            Field::Offset => self.offset = Some(reader.varint()?),
            Field::Positions => self
                .positions
                .to_mut()
                .push(decode_position(reader.bytes()?)?),
            Field::Trace => self.trace = traceparent::parse(reader.text()?).map(Box::new),
            Field::ContentType => self.content_type = Some(reader.text()?),
            Field::Bytes => self.bytes = Some(reader.bytes()?),
            Field::Attachments => {
                let bytes = reader.bytes()?;
                if self.attachments.len() <= ATTACHMENTS_MAX {
                    self.attachments.to_mut().push(bytes);
                }
            }
            Field::RequestorName => self.requestor_name = Some(reader.text()?),
            Field::RequestorData => self.requestor_data = Some(reader.text()?),
            Field::Session => self.session = Some(parse_session(reader.text()?)?),
            Field::Except => self.except.to_mut().push(reader.text()?),
            Field::Count => self.count = Some(reader.number()?),
            Field::IsLocal => self.is_local = Some(reader.varint()? != 0),
            Field::Timeout => self.timeout = Some(reader.number()?),
        }
        Ok(())
    }

    /// Writes the present fields, by ascending field numbers. Skips fields that the topic does not have.
    pub fn encode(&self, topic: WireTopic, sink: &mut impl Sink) {
        for (number, field) in (0u32..).zip(topic.layout()) {
            let Some(field) = field else {
                continue;
            };
            match field {
                Field::Action => sink.varint_field(number, self.action.into()),
                Field::Names => self
                    .names
                    .iter()
                    .for_each(|name| sink.text_field(number, name)),
                Field::Except => self
                    .except
                    .iter()
                    .for_each(|name| sink.text_field(number, name)),
                Field::Session => encode_some(self.session, |session| {
                    sink.text_field(number, &format_session(session));
                }),
                Field::Count => {
                    encode_some(self.count, |count| sink.varint_field(number, count.into()));
                }
                Field::Timeout => {
                    encode_some(self.timeout, |timeout| {
                        sink.varint_field(number, timeout.into());
                    });
                }
                Field::Versions => self
                    .versions
                    .iter()
                    .for_each(|entry| encode_version(number, *entry, sink)),
                Field::Version => {
                    encode_some(self.version, |version| sink.int32_field(number, version))
                }
                Field::SeenVersion => {
                    encode_some(self.seen_version, |version| {
                        sink.int32_field(number, version)
                    });
                }
                Field::IsError
                | Field::IsAck
                | Field::IsWriteAck
                | Field::Batches
                | Field::Existed
                | Field::IsLocal
                | Field::Jumps => {
                    encode_some(self.flag(*field), |flag| {
                        sink.varint_field(number, flag.into())
                    });
                }
                Field::OriginalTopic => {
                    encode_some(self.original_topic, |topic| {
                        sink.varint_field(number, topic.into())
                    });
                }
                Field::OriginalAction => {
                    encode_some(self.original_action, |action| {
                        sink.varint_field(number, action.into())
                    });
                }
                Field::Incarnation => {
                    encode_some(self.incarnation, |incarnation| {
                        sink.varint_field(number, incarnation);
                    });
                }
                Field::Epoch => {
                    encode_some(self.epoch, |epoch| sink.varint_field(number, epoch));
                }
                Field::Offset => {
                    encode_some(self.offset, |offset| sink.varint_field(number, offset));
                }
                Field::Positions => self
                    .positions
                    .iter()
                    .for_each(|entry| encode_position(number, *entry, sink)),
                Field::Only => {
                    encode_some(self.only, |only| sink.varint_field(number, only.into()));
                }
                Field::Missed => {
                    encode_some(self.missed, |missed| {
                        sink.varint_field(number, missed.into())
                    });
                }
                Field::Trace => encode_some(self.trace.as_deref(), |trace| {
                    sink.text_field(number, traceparent::format(trace).as_str());
                }),
                Field::Bytes => {
                    encode_some(self.bytes, |bytes| sink.bytes_field(number, bytes));
                }
                Field::Attachments => self
                    .attachments
                    .iter()
                    .for_each(|bytes| sink.bytes_field(number, bytes)),
                _ => encode_some(self.text(*field), |text| sink.text_field(number, text)),
            }
        }
    }

    pub(super) fn flag(&self, field: Field) -> Option<bool> {
        match field {
            Field::IsError => self.is_error,
            Field::IsAck => self.is_ack,
            Field::IsWriteAck => self.is_write_ack,
            Field::Batches => self.batches,
            Field::Jumps => self.jumps,
            Field::Existed => self.existed,
            Field::IsLocal => self.is_local,
            _ => None,
        }
    }

    pub(super) fn text(&self, field: Field) -> Option<&'a str> {
        match field {
            Field::Data => self.data,
            Field::Correlation => self.correlation,
            Field::Name => self.name,
            Field::Subscription => self.subscription,
            Field::Path => self.path,
            Field::Key => self.key,
            Field::Url => self.url,
            Field::ProtocolVersion => self.protocol_version,
            Field::SdkVersion => self.sdk_version,
            Field::SdkType => self.sdk_type,
            Field::ContentType => self.content_type,
            Field::RequestorName => self.requestor_name,
            Field::RequestorData => self.requestor_data,
            _ => None,
        }
    }

    /// The storage of a text field, `None` for other fields.
    pub(super) fn text_mut(&mut self, field: Field) -> Option<&mut Option<&'a str>> {
        Some(match field {
            Field::Data => &mut self.data,
            Field::Correlation => &mut self.correlation,
            Field::Name => &mut self.name,
            Field::Subscription => &mut self.subscription,
            Field::Path => &mut self.path,
            Field::Key => &mut self.key,
            Field::Url => &mut self.url,
            Field::ProtocolVersion => &mut self.protocol_version,
            Field::SdkVersion => &mut self.sdk_version,
            Field::SdkType => &mut self.sdk_type,
            Field::ContentType => &mut self.content_type,
            Field::RequestorName => &mut self.requestor_name,
            Field::RequestorData => &mut self.requestor_data,
            _ => return None,
        })
    }

    /// Lengths of all parts of these fields, so that they can be written in one pass.
    #[must_use]
    pub fn measure(&self, topic: WireTopic) -> Measure {
        let mut body = Counter::default();
        self.encode(topic, &mut body);
        let envelope = 2 + 1 + varint_bytes(body.0 as u64) + body.0;
        Measure {
            body: body.0,
            envelope,
            payload: varint_bytes(envelope as u64) + envelope,
        }
    }

    /// Appends the whole payload of a frame: length, envelope, fields.
    pub fn encode_payload(&self, topic: WireTopic, measure: Measure, out: &mut Vec<u8>) {
        out.varint(measure.envelope as u64);
        out.varint_field(2, topic.to_wire().into());
        out.length_field(3, measure.body);
        self.encode(topic, out);
    }
}

/// Lengths of an encoded message, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Length of the fields.
    body: usize,
    /// Length of topic and fields.
    envelope: usize,
    /// Length of the frame's payload.
    pub payload: usize,
}

impl Field {
    fn wire_type(self) -> WireType {
        match self {
            Self::Action
            | Self::IsError
            | Self::IsAck
            | Self::OriginalTopic
            | Self::OriginalAction
            | Self::IsWriteAck
            | Self::Batches
            | Self::Jumps
            | Self::Missed
            | Self::Epoch
            | Self::Offset
            | Self::Incarnation
            | Self::Only
            | Self::Existed
            | Self::SeenVersion
            | Self::Count
            | Self::IsLocal
            | Self::Timeout
            | Self::Version => WireType::Varint,
            _ => WireType::Bytes,
        }
    }
}

/// The text of a session: the numbers of node, shard, slot and generation.
pub(super) fn format_session(session: SessionId) -> String {
    let SessionId {
        address: Address { node, shard },
        index,
        generation,
    } = session;
    format!("{node}.{shard}.{index}.{generation}")
}

/// Parses the text of a session.
pub(super) fn parse_session(text: &str) -> Result<SessionId, DecodeError> {
    let parse = || {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let session = SessionId {
            address: Address {
                node: next()?.parse().ok()?,
                shard: next()?.parse().ok()?,
            },
            index: next()?.parse().ok()?,
            generation: next()?.parse().ok()?,
        };
        // Each session has one text only.
        (format_session(session) == text).then_some(session)
    };
    parse().ok_or(DecodeError::Session)
}

fn encode_some<T>(value: Option<T>, encode: impl FnOnce(T)) {
    if let Some(value) = value {
        encode(value);
    }
}

/// Decodes an entry of a map. Absent parts have their default values.
fn decode_version(entry: &[u8]) -> Result<(&str, i32), DecodeError> {
    let mut reader = Reader::new(entry);
    let (mut name, mut version) = ("", 0);
    while let Some(tag) = reader.tag()? {
        match tag {
            (1, WireType::Bytes) => name = reader.text()?,
            (2, WireType::Varint) => version = reader.int32()?,
            (1 | 2, _) => return Err(DecodeError::Field(FieldError::WireType)),
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    Ok((name, version))
}

/// Decodes an entry of a map of positions. A position needs both epoch and offset.
fn decode_position(entry: &[u8]) -> Result<(&str, Option<Position>), DecodeError> {
    let mut reader = Reader::new(entry);
    let (mut name, mut epoch, mut offset) = ("", None, None);
    while let Some(tag) = reader.tag()? {
        match tag {
            (1, WireType::Bytes) => name = reader.text()?,
            (2, WireType::Varint) => epoch = Some(reader.varint()?),
            (3, WireType::Varint) => offset = Some(reader.varint()?),
            (1..=3, _) => return Err(DecodeError::Field(FieldError::WireType)),
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    let position = epoch.zip(offset);
    Ok((
        name,
        position.map(|(epoch, offset)| Position { epoch, offset }),
    ))
}

fn encode_position(number: u32, (name, position): (&str, Option<Position>), sink: &mut impl Sink) {
    let mut length = Counter::default();
    encode_position_entry(name, position, &mut length);
    sink.length_field(number, length.0);
    encode_position_entry(name, position, sink);
}

fn encode_position_entry(name: &str, position: Option<Position>, sink: &mut impl Sink) {
    sink.text_field(1, name);
    encode_some(position, |position| {
        sink.varint_field(2, position.epoch);
        sink.varint_field(3, position.offset);
    });
}

/// Always writes key and value: older clients read both by position without checking the tags.
fn encode_version(number: u32, (name, version): (&str, i32), sink: &mut impl Sink) {
    let mut length = Counter::default();
    encode_version_entry(name, version, &mut length);
    sink.length_field(number, length.0);
    encode_version_entry(name, version, sink);
}

fn encode_version_entry(name: &str, version: i32, sink: &mut impl Sink) {
    sink.text_field(1, name);
    sink.int32_field(2, version);
}
