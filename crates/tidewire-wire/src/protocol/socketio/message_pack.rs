//! Values of MessagePack as JSON text, and the reverse. Binary values are attachments, which placeholders in the JSON select.
//!
//! The values have the formats of `notepack.io`, which `socket.io-msgpack-parser` uses: extension 0 is undefined (one byte, fixed), a date (eight
//! bytes, fixed) or an `ArrayBuffer`. A JSON text has no undefined values and dates, so they become what `JSON.stringify` makes of them.

use std::borrow::Cow;
use std::fmt::Write as _;

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachment};
use tidewire_core::json::{self, Literal};

use super::packet::NESTING_MAX;

/// Milliseconds from 1970 to the first and to the last date of JavaScript.
const DATE_MS_MAX: i64 = 8_640_000_000_000_000;
const DAY_MS: i64 = 86_400_000;
/// The longest spelling of a member of a placeholder, with its quotes and each character escaped.
const KEY_BYTES_MAX: usize = 2 + "_placeholder".len() * r"\u0000".len();

/// Why bytes are not a value that JSON can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They are not MessagePack, or have a value without a form in JSON. The first byte that can't be read.
    At(usize),
    /// There are more binary values than [`ATTACHMENTS_MAX`].
    TooManyBinaries,
    /// The members of an object would be taken for a placeholder.
    Placeholder,
}

/// The result of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Its text was appended.
    Value,
    /// It is undefined, and no text was appended.
    Undefined,
}

/// The beginning of a value. Containers and strings have their count.
enum Head {
    Nil,
    Boolean(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(usize),
    Binary(usize),
    Array(usize),
    Map(usize),
    /// Its type and bytes, and whether the format has a fixed length.
    Extension(i8, usize, bool),
}

/// Reads values. It allocates nothing for the counts that the bytes announce, so a short message can't announce a large list.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    attachments: Vec<Attachment>,
    has_placeholder: bool,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            attachments: Vec::new(),
            has_placeholder: false,
        }
    }

    /// The binary values of all values that were read, in their order.
    pub fn into_attachments(self) -> Result<Vec<Attachment>, Unreadable> {
        // A reader of the JSON would replace the peer's own object, too.
        match self.has_placeholder && !self.attachments.is_empty() {
            true => Err(Unreadable::Placeholder),
            false => Ok(self.attachments),
        }
    }

    /// The number of the binary values so far.
    pub fn binaries(&self) -> usize {
        self.attachments.len()
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The place of the next byte as an error.
    pub fn here(&self) -> Unreadable {
        Unreadable::At(self.at)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let taken = taken.ok_or(Unreadable::At(self.bytes.len()))?;
        self.at += count;
        Ok(taken)
    }

    /// A number of `count` bytes, at most 8, in big-endian order.
    fn number(&mut self, count: usize) -> Result<u64, Unreadable> {
        let bytes = self.take(count)?.iter();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The same with a sign.
    fn signed(&mut self, count: usize) -> Result<i64, Unreadable> {
        let unused = 64 - 8 * count as u32;
        Ok((self.number(count)? as i64) << unused >> unused)
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Unreadable> {
        Ok(self.number(bytes)? as usize)
    }

    fn extension(&mut self, length: usize, is_fixed: bool) -> Result<Head, Unreadable> {
        let kind = self.signed(1)? as i8;
        Ok(Head::Extension(kind, length, is_fixed))
    }

    fn head(&mut self) -> Result<Head, Unreadable> {
        let start = self.at;
        let byte = self.take(1)?[0];
        Ok(match byte {
            0..=0x7f => Head::Unsigned(byte.into()),
            0x80..=0x8f => Head::Map(usize::from(byte & 0x0f)),
            0x90..=0x9f => Head::Array(usize::from(byte & 0x0f)),
            0xa0..=0xbf => Head::Text(usize::from(byte & 0x1f)),
            0xc0 => Head::Nil,
            0xc1 => return Err(Unreadable::At(start)),
            0xc2 | 0xc3 => Head::Boolean(byte == 0xc3),
            0xc4..=0xc6 => Head::Binary(self.length(1 << (byte - 0xc4))?),
            0xc7..=0xc9 => {
                let length = self.length(1 << (byte - 0xc7))?;
                self.extension(length, false)?
            }
            0xca => Head::Float(f32::from_bits(self.number(4)? as u32).into()),
            0xcb => Head::Float(f64::from_bits(self.number(8)?)),
            0xcc..=0xcf => Head::Unsigned(self.number(1 << (byte - 0xcc))?),
            0xd0..=0xd3 => Head::Signed(self.signed(1 << (byte - 0xd0))?),
            0xd4..=0xd8 => self.extension(1 << (byte - 0xd4), true)?,
            0xd9..=0xdb => Head::Text(self.length(1 << (byte - 0xd9))?),
            0xdc | 0xdd => Head::Array(self.length(2 << (byte - 0xdc))?),
            0xde | 0xdf => Head::Map(self.length(2 << (byte - 0xde))?),
            0xe0..=0xff => Head::Signed(i64::from(byte as i8)),
        })
    }

    fn text(&mut self, bytes: usize) -> Result<&'a str, Unreadable> {
        let start = self.at;
        let text = std::str::from_utf8(self.take(bytes)?);
        text.map_err(|error| Unreadable::At(start + error.valid_up_to()))
    }

    /// The number of members of a map that follows.
    pub fn map(&mut self) -> Result<usize, Unreadable> {
        let start = self.at;
        match self.head()? {
            Head::Map(count) => Ok(count),
            _ => Err(Unreadable::At(start)),
        }
    }

    /// A string that follows.
    pub fn string(&mut self) -> Result<&'a str, Unreadable> {
        let start = self.at;
        match self.head()? {
            Head::Text(bytes) => self.text(bytes),
            _ => Err(Unreadable::At(start)),
        }
    }

    /// A whole number from 0 that follows; `None` if undefined follows.
    pub fn whole(&mut self) -> Result<Option<u64>, Unreadable> {
        let start = self.at;
        match self.head()? {
            Head::Unsigned(number) => Ok(Some(number)),
            Head::Extension(0, 1, true) => self.take(1).map(|_| None),
            _ => Err(Unreadable::At(start)),
        }
    }

    /// Passes over a value. Its depth does not matter, because no text is made.
    pub fn skip(&mut self) -> Result<(), Unreadable> {
        let mut values: usize = 1;
        while let Some(rest) = values.checked_sub(1) {
            values = rest;
            match self.head()? {
                Head::Text(bytes) | Head::Binary(bytes) | Head::Extension(_, bytes, _) => {
                    self.take(bytes)?;
                }
                // A count above the bytes of the message ends with an error at its end.
                Head::Array(count) => values = values.saturating_add(count),
                Head::Map(count) => values = values.saturating_add(count.saturating_mul(2)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the JSON text of a value. It has at most six times the bytes of the value, apart from a placeholder for each
    /// binary value.
    pub fn json(&mut self, out: &mut String) -> Result<Written, Unreadable> {
        self.value(NESTING_MAX, out)
    }

    fn value(&mut self, levels: usize, out: &mut String) -> Result<Written, Unreadable> {
        let start = self.at;
        match self.head()? {
            Head::Nil => out.push_str("null"),
            Head::Boolean(value) => out.push_str(if value { "true" } else { "false" }),
            Head::Unsigned(number) => push(out, format_args!("{number}")),
            Head::Signed(number) => push(out, format_args!("{number}")),
            Head::Float(number) => float(number, out),
            Head::Text(bytes) => json::string(self.text(bytes)?, out),
            Head::Binary(bytes) => self.binary(bytes, out)?,
            Head::Extension(0, 1, true) => {
                self.take(1)?;
                return Ok(Written::Undefined);
            }
            Head::Extension(0, 8, true) => date(Some(self.signed(8)?), out),
            Head::Extension(0, bytes, false) => self.binary(bytes, out)?,
            Head::Extension(-1, bytes, _) => date(self.timestamp(bytes, start)?, out),
            Head::Extension(..) => return Err(Unreadable::At(start)),
            Head::Array(_) | Head::Map(_) if levels == 0 => return Err(Unreadable::At(start)),
            Head::Array(count) => self.array(count, levels - 1, out)?,
            Head::Map(count) => self.object(count, levels - 1, out)?,
        }
        Ok(Written::Value)
    }

    fn array(&mut self, count: usize, levels: usize, out: &mut String) -> Result<(), Unreadable> {
        out.push('[');
        for index in 0..count {
            if index > 0 {
                out.push(',');
            }
            if self.value(levels, out)? == Written::Undefined {
                out.push_str("null");
            }
        }
        out.push(']');
        Ok(())
    }

    fn object(&mut self, count: usize, levels: usize, out: &mut String) -> Result<(), Unreadable> {
        out.push('{');
        let first = out.len();
        for _ in 0..count {
            let before = out.len();
            if before > first {
                out.push(',');
            }
            let key = self.string()?;
            json::string(key, out);
            out.push(':');
            let value = out.len();
            if self.value(levels, out)? == Written::Undefined {
                out.truncate(before);
                continue;
            }
            self.has_placeholder |= key == "_placeholder" && &out[value..] == "true";
        }
        out.push('}');
        Ok(())
    }

    fn binary(&mut self, bytes: usize, out: &mut String) -> Result<(), Unreadable> {
        let number = self.attachments.len();
        if number == ATTACHMENTS_MAX {
            return Err(Unreadable::TooManyBinaries);
        }
        let attachment = self.take(bytes)?.into();
        self.attachments.push(attachment);
        push(
            out,
            format_args!(r#"{{"_placeholder":true,"num":{number}}}"#),
        );
        Ok(())
    }

    /// The milliseconds of a timestamp, whose bytes follow. `None` if JavaScript has no such date.
    fn timestamp(&mut self, bytes: usize, start: usize) -> Result<Option<i64>, Unreadable> {
        let (seconds, nanoseconds) = match bytes {
            4 => (self.number(4)? as i64, 0),
            8 => {
                let both = self.number(8)?;
                ((both & ((1 << 34) - 1)) as i64, both >> 34)
            }
            12 => {
                let nanoseconds = self.number(4)?;
                (self.signed(8)?, nanoseconds)
            }
            _ => return Err(Unreadable::At(start)),
        };
        let milliseconds = (nanoseconds / 1_000_000) as i64;
        let all = seconds.checked_mul(1_000);
        Ok(all.and_then(|all| all.checked_add(milliseconds)))
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes all text.
    let _ = out.write_fmt(text);
}

/// As `JSON.stringify` writes it, apart from signs of exponents. Without exponents, nine bytes could become 300 digits.
fn float(number: f64, out: &mut String) {
    let size = number.abs();
    match size {
        _ if !number.is_finite() => out.push_str("null"),
        0.0 => out.push('0'),
        1e-6..1e21 => push(out, format_args!("{number}")),
        _ => push(out, format_args!("{number:e}")),
    }
}

/// As `JSON.stringify` writes a date: a text with milliseconds, or null for an invalid one.
fn date(milliseconds: Option<i64>, out: &mut String) {
    let valid = milliseconds.filter(|it| (-DATE_MS_MAX..=DATE_MS_MAX).contains(it));
    let Some(milliseconds) = valid else {
        return out.push_str("null");
    };
    let (days, rest) = (
        milliseconds.div_euclid(DAY_MS),
        milliseconds.rem_euclid(DAY_MS),
    );
    let (year, month, day) = civil(days);
    out.push('"');
    match year {
        0..=9999 => push(out, format_args!("{year:04}")),
        _ => push(out, format_args!("{year:+07}")),
    }
    let (seconds, milliseconds) = (rest / 1_000, rest % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    push(
        out,
        format_args!(
            "-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}Z\""
        ),
    );
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that a leap day is the last day of a year. 719,468 days from the first of March of year 0 to 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year_of_era + next, month, day)
}

/// Appends a string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    match text.len() {
        bytes @ 0..0x20 => out.push(0xa0 | bytes as u8),
        bytes => write_length(bytes, [0xd9, 0xda, 0xdb], out),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends a whole number.
pub fn write_unsigned(number: u64, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    let (kind, count) = match number {
        0..0x80 => return out.push(number as u8),
        0x80..0x100 => (0xcc, 1),
        0x100..0x1_0000 => (0xcd, 2),
        0x1_0000..0x1_0000_0000 => (0xce, 4),
        _ => (0xcf, 8),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[8 - count..]);
}

/// Appends the beginning of a map of up to 15 members.
pub fn write_small_map(members: u8, out: &mut Vec<u8>) {
    debug_assert!(members < 0x10, "the count has four bits");
    out.push(0x80 | members);
}

/// A length behind the format of its size: one, two or four bytes.
fn write_length(length: usize, formats: [u8; 3], out: &mut Vec<u8>) {
    let bytes = (length as u32).to_be_bytes();
    let (format, count) = match length {
        0..0x100 => (formats[0], 1),
        0x100..0x1_0000 => (formats[1], 2),
        _ => (formats[2], 4),
    };
    out.push(format);
    out.extend_from_slice(&bytes[4 - count..]);
}

/// A count behind the format of a container, whose small counts are part of `small`.
fn write_count(count: u32, small: u8, (medium, large): (u8, u8), out: &mut Vec<u8>) {
    match count {
        0..0x10 => out.push(small | count as u8),
        0x10..0x1_0000 => {
            out.push(medium);
            out.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => {
            out.push(large);
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    write_length(bytes.len(), [0xc4, 0xc5, 0xc6], out);
    out.extend_from_slice(bytes);
}

fn write_signed(number: i64, out: &mut Vec<u8>) {
    if let Ok(number) = u64::try_from(number) {
        return write_unsigned(number, out);
    }
    let bytes = number.to_be_bytes();
    let (kind, count) = match number {
        -0x20.. => return out.push(bytes[7]),
        -0x80.. => (0xd0, 1),
        -0x8000.. => (0xd1, 2),
        -0x8000_0000.. => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[8 - count..]);
}

/// Appends a value, which is a checked JSON text. Each placeholder of one of the attachments becomes its bytes.
pub fn write_json(text: &str, attachments: &[&[u8]], out: &mut Vec<u8>) {
    // A container begins with its count, which the text has at its end. A walk of each container's entries would scan the text once for
    // each of its levels, so one scan collects all of them.
    let containers = Container::all(text);
    let bytes = text.as_bytes();
    let (mut at, mut index) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => string(&text[at..], out),
            b'{' | b'[' => {
                let container = containers.get(index).copied().unwrap_or_default();
                match container.number.and_then(|it| attachments.get(it)) {
                    Some(attachment) => {
                        write_binary(attachment, out);
                        index = container.next;
                        container.end - at
                    }
                    None => {
                        let (small, large) = match byte {
                            b'{' => (0x80, (0xde, 0xdf)),
                            _ => (0x90, (0xdc, 0xdd)),
                        };
                        write_count(container.entries, small, large, out);
                        index += 1;
                        1
                    }
                }
            }
            b't' => literal(0xc3, "true", out),
            b'f' => literal(0xc2, "false", out),
            b'n' => literal(0xc0, "null", out),
            b'-' | b'0'..=b'9' => number(&text[at..], out),
            _ => 1,
        };
    }
}

/// An object or array of a text.
#[derive(Clone, Copy, Debug, Default)]
struct Container {
    entries: u32,
    /// The place behind it.
    end: usize,
    /// The number of the containers up to its end.
    next: usize,
    is_placeholder: bool,
    /// The member `num`, if it is a placeholder.
    number: Option<usize>,
}

impl Container {
    /// The containers of a checked text, in the order of their beginnings.
    fn all(text: &str) -> Vec<Self> {
        let bytes = text.as_bytes();
        let mut all: Vec<Self> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        // Whether the next value is an entry of the innermost container that is not counted yet.
        let mut is_entry_due = false;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let is_value = !matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'}' | b']');
            if is_value
                && std::mem::take(&mut is_entry_due)
                && let Some(container) = open.last()
            {
                all[*container].entries += 1;
            }
            match byte {
                b'{' | b'[' => {
                    open.push(all.len());
                    all.push(Self::default());
                    is_entry_due = true;
                }
                b',' => is_entry_due = true,
                b'}' | b']' => {
                    is_entry_due = false;
                    let next = all.len();
                    if let Some(container) = open.pop().map(|index| &mut all[index]) {
                        container.number.take_if(|_| !container.is_placeholder);
                        (container.end, container.next) = (at + 1, next);
                    }
                }
                b'"' => {
                    let rest = &text[at..];
                    let bytes = string_bytes(rest);
                    let value = rest[bytes..].trim_ascii_start().strip_prefix(':');
                    if let Some(value) = value
                        && let Some(container) = open.last()
                    {
                        all[*container].take(&rest[..bytes], value.trim_ascii_start());
                    }
                    at += bytes;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        all
    }

    /// Notes a member of an object, whose value begins `rest`. Of equal members the last one counts.
    fn take(&mut self, key: &str, rest: &str) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        match Literal::scan(key).and_then(Literal::text).as_deref() {
            Some("_placeholder") => self.is_placeholder = rest.starts_with("true"),
            Some("num") => {
                let end = rest
                    .bytes()
                    .take_while(|byte| !b",} \n\r\t".contains(byte))
                    .count();
                self.number = rest[..end].parse().ok();
            }
            _ => {}
        }
    }
}

/// Bytes of the string that a checked text begins with.
fn string_bytes(text: &str) -> usize {
    let literal = Literal::scan(text);
    literal.map_or(text.len(), |literal| literal.inner.len() + 2)
}

fn string(text: &str, out: &mut Vec<u8>) -> usize {
    let Some(literal) = Literal::scan(text) else {
        return text.len();
    };
    let value = literal.text();
    let value = value.unwrap_or_else(|| Cow::Owned(unescape_lossy(literal.inner)));
    write_string(&value, out);
    literal.inner.len() + 2
}

/// A string with half of a character, which UTF-8 can't represent. As in JavaScript's own encoder, U+FFFD replaces it.
fn unescape_lossy(inner: &str) -> String {
    let mut units = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        let code = rest
            .get(2..6)
            .and_then(|it| u16::from_str_radix(it, 16).ok());
        let (taken, unit) = match (rest.as_bytes(), code) {
            ([b'\\', b'u', ..], Some(unit)) => (6, unit),
            ([b'\\', b'b', ..], _) => (2, 0x08),
            ([b'\\', b'f', ..], _) => (2, 0x0c),
            ([b'\\', b'n', ..], _) => (2, 0x0a),
            ([b'\\', b'r', ..], _) => (2, 0x0d),
            ([b'\\', b't', ..], _) => (2, 0x09),
            ([b'\\', other, ..], _) => (2, u16::from(*other)),
            _ => {
                units.extend_from_slice(first.encode_utf16(&mut [0; 2]));
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        units.push(unit);
        rest = &rest[taken..];
    }
    String::from_utf16_lossy(&units)
}

fn literal(format: u8, text: &str, out: &mut Vec<u8>) -> usize {
    out.push(format);
    text.len()
}

fn number(text: &str, out: &mut Vec<u8>) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let end = text.bytes().take_while(is_part).count();
    let digits = &text[..end];
    match (digits.parse::<i64>(), digits.parse::<u64>()) {
        // JSON has a zero with a sign, and JavaScript keeps it.
        (Ok(0), _) if digits.starts_with('-') => write_float(-0.0, out),
        (Ok(number), _) => write_signed(number, out),
        (_, Ok(number)) => write_unsigned(number, out),
        // A checked number is one of Rust, too.
        _ => write_float(digits.parse().unwrap_or(f64::NAN), out),
    }
    end
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    out.push(0xcb);
    out.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests;
