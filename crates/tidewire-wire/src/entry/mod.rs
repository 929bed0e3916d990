//! The wire form of entries, in which nodes post to each other's shards. Contract: `spec/entries.md`.
//!
//! An entry in memory may hold forms that its node has derived: a compiled pattern, a parsed path, the compiled rules. The shards of a node
//! share them. On the wire there is only the data from which the receiver derives them again, once for its node.

mod context;
mod field;
mod forms;
mod tables;

use std::cell::RefCell;

use thiserror::Error;
use tidewire_core::entry::Entry;

use self::context::{Context, LastPattern};
use self::field::{Field, Source, Value, prefixed, read_fields, structs};
use crate::protobuf::{FieldError, Reader, Sink, WireType};

pub use context::RulesOf;

/// The version of the form, with which each batch begins.
pub const VERSION: u64 = 1;

/// The fields of a batch.
const VERSION_FIELD: u32 = 1;
const POST_FIELD: u32 = 2;

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// In place of a shard: the receiving node passes the entry to those of its shards that have interest in the entry's name.
pub const INTERESTED: u16 = u16::MAX;

/// An entry for a shard of the receiving node.
#[derive(Clone, Debug)]
pub struct Post {
    /// The shard, or [`INTERESTED`].
    pub shard: u16,
    /// The entry.
    pub entry: Entry,
    /// The shard of the sending node.
    pub from: u16,
}

structs! { Post { 1 shard, 2 entry, 3 from } }

/// Why bytes are not posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not fields, or not the expected ones.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A field that every sender writes is absent.
    #[error("a required field is missing")]
    Missing,
    /// A message that must be one of several has none that this node knows.
    #[error("unknown kind of entry")]
    UnknownVariant,
    /// An enum has a number that this node does not know.
    #[error("unknown value of an enum")]
    UnknownValue,
    /// The pattern of a listening provider is too long or does not compile.
    #[error("invalid pattern")]
    Pattern,
    /// The path of a patch is invalid.
    #[error("invalid path")]
    Path,
    /// A post is longer than the limit.
    #[error("post of {bytes} bytes, allowed are {max}")]
    TooLong {
        /// The announced bytes.
        bytes: u64,
        /// The limit.
        max: usize,
    },
    /// A batch begins with another version, or with none.
    #[error("version {0} of entries, this node reads 1")]
    Version(u64),
    /// A marker names rules that this node does not have yet. No byte was taken: the caller may load the rules and try again.
    #[error("the rules of change {0} are not loaded")]
    UnknownRules(u64),
}

/// Begins a batch: the posts of one turn for one node.
pub fn begin_batch(out: &mut Vec<u8>) {
    out.varint_field(VERSION_FIELD, VERSION);
}

/// Appends a post to a batch.
pub fn encode(post: &Post, out: &mut Vec<u8>) {
    out.reserve(field::present_len(post, POST_FIELD));
    field::write_present(post, POST_FIELD, out);
}

/// Limits of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes of one post.
    pub post_bytes_max: usize,
    /// Bytes of the pattern of a listening provider, as in `name_bytes_max`.
    pub pattern_bytes_max: usize,
}

/// Decodes a stream of batches. Any split of the bytes gives the same posts and the same error.
#[derive(Debug)]
pub struct Decoder {
    limits: DecodeLimits,
    /// Bytes that were received and not all decoded.
    buffer: Vec<u8>,
    /// The bytes of `buffer` that are decoded.
    taken: usize,
    /// Whether the version of a batch was read. Before that, a post has no meaning.
    has_version: bool,
    patterns: RefCell<LastPattern>,
    /// After an error the place of the next field is unknown, or the sender is faulty.
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(limits: DecodeLimits) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            taken: 0,
            has_version: false,
            patterns: RefCell::default(),
            failed: None,
        }
    }

    /// Takes bytes that have arrived. Call `decode` until it returns `None` before the next bytes, because bytes that are not decoded stay in memory.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next post, `None` if more bytes are needed for it.
    ///
    /// # Errors
    /// The bytes are not posts. The decoder then repeats the error forever, except for [`DecodeError::UnknownRules`].
    pub fn decode(&mut self, rules: &RulesOf<'_>) -> Result<Option<Post>, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.next_post(rules);
        if let Err(error) = result
            && !matches!(error, DecodeError::UnknownRules(_))
        {
            self.failed = Some(error);
            self.buffer = Vec::new();
            self.taken = 0;
        }
        result
    }

    fn next_post(&mut self, rules: &RulesOf<'_>) -> Result<Option<Post>, DecodeError> {
        loop {
            let rest = &self.buffer[self.taken..];
            let Some(found) = next_field(rest, self.limits.post_bytes_max)? else {
                return Ok(None);
            };
            match found {
                Found::Version { version, .. } if version != VERSION => {
                    return Err(DecodeError::Version(version));
                }
                Found::Version { .. } => self.has_version = true,
                Found::Other { .. } => {}
                Found::Post { .. } if !self.has_version => return Err(DecodeError::Version(0)),
                Found::Post { post, .. } => {
                    let context = Context {
                        rules,
                        pattern_bytes_max: self.limits.pattern_bytes_max,
                        patterns: &self.patterns,
                    };
                    let post = Post::read_value(&mut Source::new(post, &context))?;
                    self.taken += found.len();
                    return Ok(Some(post));
                }
            }
            self.taken += found.len();
        }
    }
}

/// A field of a batch, with all its bytes.
enum Found<'a> {
    Version {
        version: u64,
        len: usize,
    },
    /// `post` begins with the length of the message.
    Post {
        post: &'a [u8],
        len: usize,
    },
    /// An unknown field.
    Other {
        len: usize,
    },
}

impl Found<'_> {
    /// The bytes of the field with its number.
    fn len(&self) -> usize {
        let (Self::Version { len, .. } | Self::Post { len, .. } | Self::Other { len }) = self;
        *len
    }
}

/// The next field of a batch; `None` if its bytes have not all arrived.
fn next_field(rest: &[u8], bytes_max: usize) -> Result<Option<Found<'_>>, DecodeError> {
    // The number, and the value or its length, are at most two varints. If one of them ends where the input ends, it is not complete, and
    // its beginning decides nothing.
    let mut reader = Reader::new(rest);
    let has_arrived = |rest: &[u8]| rest.iter().take(VARINT_BYTES_MAX).any(|byte| *byte < 0x80);
    let is_complete = |rest: &[u8]| rest.len() >= VARINT_BYTES_MAX || has_arrived(rest);
    if !is_complete(rest) {
        return Ok(None);
    }
    let Some((number, wire_type)) = reader.tag()? else {
        return Ok(None);
    };
    let value = reader.rest();
    let fixed_len = match wire_type {
        WireType::Fixed64 => Some(8),
        WireType::Fixed32 => Some(4),
        WireType::Varint | WireType::Bytes => None,
    };
    match (number, wire_type) {
        (VERSION_FIELD, WireType::Varint) | (POST_FIELD, WireType::Bytes) => {}
        (VERSION_FIELD | POST_FIELD, _) => return Err(FieldError::WireType.into()),
        _ => {}
    }
    let len = match fixed_len {
        Some(len) if value.len() < len => return Ok(None),
        Some(len) => rest.len() - value.len() + len,
        None if !is_complete(value) => return Ok(None),
        None => {
            let number_or_length = reader.varint()?;
            let head = rest.len() - reader.rest().len();
            match wire_type {
                WireType::Bytes => {
                    let max = bytes_max;
                    let bytes = number_or_length;
                    // The buffer grows only by bytes that have arrived, and never beyond this limit and one read.
                    let length = usize::try_from(bytes).ok().filter(|length| *length <= max);
                    let length = length.ok_or(DecodeError::TooLong { bytes, max })?;
                    if reader.rest().len() < length {
                        return Ok(None);
                    }
                    head + length
                }
                _ if number == VERSION_FIELD => {
                    let (version, len) = (number_or_length, head);
                    return Ok(Some(Found::Version { version, len }));
                }
                _ => head,
            }
        }
    };
    Ok(Some(match number {
        POST_FIELD => Found::Post {
            post: &rest[rest.len() - value.len()..len],
            len,
        },
        _ => Found::Other { len },
    }))
}
