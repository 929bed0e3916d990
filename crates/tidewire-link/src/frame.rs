//! The wire form of frames. Contract: `spec/links.md`, `spec/links.proto`.

use thiserror::Error;
use tidewire_wire::protobuf::{Counter, FieldError, Reader, Sink, WireType};

/// The version of the form, in each frame.
pub const VERSION: u64 = 1;

/// The most bytes of a frame without its entries and without unknown fields.
pub const HEAD_BYTES_MAX: usize = 256;

/// A life of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// The number of its node.
    pub node: u16,
    /// Later for each life of the node; 0 if it is unknown.
    pub birth: u64,
}

/// The protocol levels that a process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

/// Introduces a process to its peer, at first and after each break of the carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Of the cluster, see [`crate::cluster_identity`].
    pub cluster: u64,
    /// The levels of the sender.
    pub levels: Levels,
    /// Whether it answers a hello. An answer is not answered.
    pub is_answer: bool,
}

/// A frame. A number that is 0 and a false are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The sender; its birth is never 0.
    pub from: Process,
    /// The receiver; its birth is 0 in a hello whose sender does not know it.
    pub to: Process,
    /// Introduces the sender.
    pub hello: Option<Hello>,
    /// The sender has received all frames up to this number.
    pub received: u64,
    /// The sender has handled the entries of all frames up to this number.
    pub handled: u64,
    /// The last number that the sender has sent.
    pub sent: u64,
    /// If it is not 0, the sender requests all frames after `received` up to this number.
    pub missing_to: u64,
    /// A number that the receiver returns as `pong`.
    pub ping: u64,
    /// The number of a received ping.
    pub pong: u64,
    /// The link between the two births has ended.
    pub is_end: bool,
    /// The number of this frame, if it has entries. The first one has 1.
    pub number: u64,
    /// A piece of a stream of `spec/entries.md`.
    pub entries: &'a [u8],
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not fields, or not the expected ones.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The frame has another version, or none.
    #[error("version {0} of frames, this node reads 1")]
    Version(u64),
    /// The frame has no birth of its sender.
    #[error("a frame without the birth of its sender")]
    Birth,
    /// The frame has entries without a number, or a number without entries.
    #[error("a frame with only one of number and entries")]
    Number,
}

const VERSION_FIELD: u32 = 1;
const FROM_NODE: u32 = 2;
const FROM_BIRTH: u32 = 3;
const TO_NODE: u32 = 4;
const TO_BIRTH: u32 = 5;
const HELLO: u32 = 6;
const RECEIVED: u32 = 7;
const HANDLED: u32 = 8;
const SENT: u32 = 9;
const MISSING_TO: u32 = 10;
const PING: u32 = 11;
const PONG: u32 = 12;
const IS_END: u32 = 13;
const NUMBER: u32 = 14;
const ENTRIES: u32 = 15;

const CLUSTER: u32 = 1;
const LEVEL_MIN: u32 = 2;
const LEVEL_MAX: u32 = 3;
const IS_ANSWER: u32 = 4;

impl<'a> Frame<'a> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD_BYTES_MAX + self.entries.len());
        out.varint_field(VERSION_FIELD, VERSION);
        number(out, FROM_NODE, u64::from(self.from.node));
        number(out, FROM_BIRTH, self.from.birth);
        number(out, TO_NODE, u64::from(self.to.node));
        number(out, TO_BIRTH, self.to.birth);
        if let Some(hello) = &self.hello {
            let mut counter = Counter(0);
            hello.encode(&mut counter);
            out.length_field(HELLO, counter.0);
            hello.encode(out);
        }
        number(out, RECEIVED, self.received);
        number(out, HANDLED, self.handled);
        number(out, SENT, self.sent);
        number(out, MISSING_TO, self.missing_to);
        number(out, PING, self.ping);
        number(out, PONG, self.pong);
        number(out, IS_END, u64::from(self.is_end));
        number(out, NUMBER, self.number);
        if !self.entries.is_empty() {
            out.bytes_field(ENTRIES, self.entries);
        }
    }

    /// Reads a frame, which is all of `bytes`. Skips unknown fields.
    ///
    /// # Errors
    /// The bytes are not a frame of this version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut frame = Self::default();
        let mut version = 0;
        while let Some((field, wire_type)) = reader.tag()? {
            match field {
                VERSION_FIELD => version = varint(&mut reader, wire_type)?,
                FROM_NODE => frame.from.node = node(&mut reader, wire_type)?,
                FROM_BIRTH => frame.from.birth = varint(&mut reader, wire_type)?,
                TO_NODE => frame.to.node = node(&mut reader, wire_type)?,
                TO_BIRTH => frame.to.birth = varint(&mut reader, wire_type)?,
                HELLO => frame.hello = Some(Hello::decode(length(&mut reader, wire_type)?)?),
                RECEIVED => frame.received = varint(&mut reader, wire_type)?,
                HANDLED => frame.handled = varint(&mut reader, wire_type)?,
                SENT => frame.sent = varint(&mut reader, wire_type)?,
                MISSING_TO => frame.missing_to = varint(&mut reader, wire_type)?,
                PING => frame.ping = varint(&mut reader, wire_type)?,
                PONG => frame.pong = varint(&mut reader, wire_type)?,
                IS_END => frame.is_end = varint(&mut reader, wire_type)? != 0,
                NUMBER => frame.number = varint(&mut reader, wire_type)?,
                ENTRIES => frame.entries = length(&mut reader, wire_type)?,
                _ => reader.skip(wire_type)?,
            }
        }
        match (version, frame.from.birth, frame.number) {
            (version, ..) if version != VERSION => Err(DecodeError::Version(version)),
            (_, 0, _) => Err(DecodeError::Birth),
            (.., number) if (number == 0) != frame.entries.is_empty() => Err(DecodeError::Number),
            _ => Ok(frame),
        }
    }
}

impl Hello {
    fn encode(&self, out: &mut impl Sink) {
        number(out, CLUSTER, self.cluster);
        number(out, LEVEL_MIN, u64::from(self.levels.min));
        number(out, LEVEL_MAX, u64::from(self.levels.max));
        number(out, IS_ANSWER, u64::from(self.is_answer));
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut hello = Self::default();
        while let Some((field, wire_type)) = reader.tag()? {
            match field {
                CLUSTER => hello.cluster = varint(&mut reader, wire_type)?,
                LEVEL_MIN => hello.levels.min = level(&mut reader, wire_type)?,
                LEVEL_MAX => hello.levels.max = level(&mut reader, wire_type)?,
                IS_ANSWER => hello.is_answer = varint(&mut reader, wire_type)? != 0,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(hello)
    }
}

fn number(out: &mut impl Sink, field: u32, value: u64) {
    if value != 0 {
        out.varint_field(field, value);
    }
}

fn varint(reader: &mut Reader<'_>, wire_type: WireType) -> Result<u64, FieldError> {
    match wire_type {
        WireType::Varint => reader.varint(),
        _ => Err(FieldError::WireType),
    }
}

fn node(reader: &mut Reader<'_>, wire_type: WireType) -> Result<u16, FieldError> {
    u16::try_from(varint(reader, wire_type)?).map_err(|_| FieldError::Range)
}

fn level(reader: &mut Reader<'_>, wire_type: WireType) -> Result<u32, FieldError> {
    u32::try_from(varint(reader, wire_type)?).map_err(|_| FieldError::Range)
}

fn length<'a>(reader: &mut Reader<'a>, wire_type: WireType) -> Result<&'a [u8], FieldError> {
    match wire_type {
        WireType::Bytes => reader.bytes(),
        _ => Err(FieldError::WireType),
    }
}
