//! Order-preserving keys: bytes whose order is the order of values. `spec/query.md` has the encoding.

use crate::number::Number;
use crate::order::sorted_members;
use crate::tape::{Kind, Value};

/// The longest key of a store's index.
pub const INDEX_KEY_BYTES_MAX: usize = 512;
/// Bytes of the hash that ends a cut key.
const HASH_BYTES: usize = 8;

/// 2^53: from here on not every integer is a double.
const INTEGERS_END: f64 = 9_007_199_254_740_992.0;

/// Below every byte that begins a value, and above no byte that continues a string's escape.
const END: u8 = 0x01;
/// Follows a null character within a string.
const ESCAPE: u8 = 0xFF;
pub(crate) const EMPTY_ARRAY: u8 = 0x08;
pub(crate) const NULL: u8 = 0x10;
pub(crate) const NUMBER: u8 = 0x20;
pub(crate) const STRING: u8 = 0x30;
const OBJECT: u8 = 0x40;
const ARRAY: u8 = 0x50;
/// 0x60 and 0x68 are reserved for binary values and ids of extended JSON, 0x80 for dates.
pub(crate) const FALSE: u8 = 0x70;
const TRUE: u8 = 0x71;

/// Appends the key of a value.
pub fn encode(value: &Value<'_>, out: &mut Vec<u8>) {
    match value.kind() {
        Kind::Null => out.push(NULL),
        Kind::Bool(it) => out.push(if it { TRUE } else { FALSE }),
        Kind::Number(it) => number(it.0, out),
        Kind::String(it) => string(it, out),
        Kind::Array => {
            out.push(ARRAY);
            value.elements().for_each(|element| encode(&element, out));
            out.push(END);
        }
        Kind::Object => {
            out.push(OBJECT);
            for (key, member) in sorted_members(value) {
                string(key, out);
                encode(&member, out);
            }
            out.push(END);
        }
    }
}

/// The bits of the largest double that is not above the number, ordered as bytes, and from 2^53 on the rest.
fn number(number: Number, out: &mut Vec<u8>) {
    let (floor, rest) = number.floor();
    let bits = floor.to_bits();
    let ordered = if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    };
    out.push(NUMBER);
    out.extend(ordered.to_be_bytes());
    if floor.abs() >= INTEGERS_END {
        out.extend(rest.to_be_bytes());
    }
}

/// The bytes with each 0 followed by 255, then a 0. What follows the end is never 255, so a shorter string is first.
pub(crate) fn string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(STRING);
    for piece in bytes.split_inclusive(|byte| *byte == 0) {
        out.extend_from_slice(piece);
        if piece.last() == Some(&0) {
            out.push(ESCAPE);
        }
    }
    out.push(0);
}

/// Bytes of the value that `key` begins with. `None` if it begins with none.
pub(crate) fn value_bytes(key: &[u8]) -> Option<usize> {
    match *key.first()? {
        EMPTY_ARRAY | NULL | FALSE | TRUE => Some(1),
        NUMBER => {
            let bits = key.get(1..9)?;
            let is_long = double(bits)?.abs() >= INTEGERS_END;
            let bytes = if is_long { 11 } else { 9 };
            (key.len() >= bytes).then_some(bytes)
        }
        STRING => {
            let mut at = 1;
            loop {
                at += key.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
                if key.get(at) != Some(&ESCAPE) {
                    return Some(at);
                }
                at += 1;
            }
        }
        first @ (OBJECT | ARRAY) => {
            let mut at = 1;
            while *key.get(at)? != END {
                at += value_bytes(key.get(at..)?)?;
                if first == OBJECT {
                    at += value_bytes(key.get(at..)?)?;
                }
            }
            Some(at + 1)
        }
        _ => None,
    }
}

/// The JSON text of a key that is a string, a boolean or a number that a double has exactly; `None` for all others.
pub(crate) fn decode_scalar(key: &[u8]) -> Option<String> {
    match *key.first()? {
        FALSE => Some("false".into()),
        TRUE => Some("true".into()),
        NUMBER if key.len() == 9 => {
            let number = double(key.get(1..9)?)?;
            Some(format!("{number:?}"))
        }
        STRING => {
            let mut bytes = Vec::with_capacity(key.len());
            let mut rest = key.get(1..key.len() - 1)?.iter();
            while let Some(byte) = rest.next() {
                bytes.push(*byte);
                if *byte == 0 {
                    rest.next();
                }
            }
            let mut text = String::new();
            tidewire_json::string(std::str::from_utf8(&bytes).ok()?, &mut text);
            Some(text)
        }
        _ => None,
    }
}

/// The double of the bytes of a number.
fn double(bytes: &[u8]) -> Option<f64> {
    let ordered = u64::from_be_bytes(bytes.try_into().ok()?);
    let bits = if ordered >> 63 == 1 {
        ordered & !(1 << 63)
    } else {
        !ordered
    };
    Some(f64::from_bits(bits))
}

/// A key of a store's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexKey {
    /// At most [`INDEX_KEY_BYTES_MAX`] bytes.
    pub bytes: Vec<u8>,
    /// Whether it is the whole key. If not, equal keys may belong to different values, and the order holds for the first 504 bytes only, so
    /// a reader compares the values.
    pub is_exact: bool,
}

/// The key for an index: `key` itself with at most 511 bytes, otherwise its first 504 bytes and a hash of all.
#[must_use]
pub fn index_key(key: &[u8]) -> IndexKey {
    if key.len() < INDEX_KEY_BYTES_MAX {
        return IndexKey {
            bytes: key.to_vec(),
            is_exact: true,
        };
    }
    // The hash need not resist an attack: equal keys only cost a comparison of the values.
    let hash = siphasher::sip::SipHasher13::new_with_keys(0, 0).hash(key);
    let mut bytes = key[..INDEX_KEY_BYTES_MAX - HASH_BYTES].to_vec();
    bytes.extend(hash.to_be_bytes());
    IndexKey {
        bytes,
        is_exact: false,
    }
}
