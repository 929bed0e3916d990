//! The part of the protobuf wire format that messages and entries use: varints and length-delimited fields.
//!
//! Reading borrows and never allocates. Writing goes to a [`Sink`], which is either a buffer or a counter, so that
//! the length before a message is known before the message is written, without a copy.

use thiserror::Error;

/// Why bytes are not fields, or not the expected ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The input ends inside a field.
    #[error("message ends inside a field")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("varint too long")]
    Varint,
    /// A field number of 0 or above 2^29-1.
    #[error("invalid field number")]
    Tag,
    /// A group, or a known field of another type.
    #[error("wrong wire type")]
    WireType,
    /// A number outside the range of its field.
    #[error("number out of range")]
    Range,
    /// A text that is not UTF-8.
    #[error("text is not utf-8")]
    Utf8,
}

/// How the end of a field's bytes is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// After the first byte without the high bit.
    Varint,
    /// After eight bytes; used by no field here, skipped.
    Fixed64,
    /// After the number of bytes in the varint before it.
    Bytes,
    /// After four bytes; used by no field here, skipped.
    Fixed32,
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field's number and type, `None` at the end.
    ///
    /// # Errors
    ///
    /// Field number 0 or above 2^29-1, a group, an unknown wire type, or a varint error.
    pub fn tag(&mut self) -> Result<Option<(u32, WireType)>, FieldError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| FieldError::Tag)?;
        let wire_type = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            5 => WireType::Fixed32,
            _ => return Err(FieldError::WireType),
        };
        match tag >> 3 {
            0 => Err(FieldError::Tag),
            number => Ok(Some((number, wire_type))),
        }
    }

    /// A varint of at most ten bytes and 64 bits.
    ///
    /// # Errors
    ///
    /// The input ends inside it, or it is too long.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, FieldError> {
        // Nearly all varints have one byte: tags, actions, flags, lengths of names.
        match self.rest {
            [byte @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, FieldError> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            if index == 9 && *byte > 1 {
                return Err(FieldError::Varint);
            }
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 {
            FieldError::Truncated
        } else {
            FieldError::Varint
        })
    }

    /// A varint with a signed 32-bit number, sign-extended to 64 bits.
    ///
    /// # Errors
    ///
    /// A varint error, or a value outside of 32 bits.
    pub fn int32(&mut self) -> Result<i32, FieldError> {
        i32::try_from(self.varint()?.cast_signed()).map_err(|_| FieldError::Range)
    }

    /// A varint with an enum's number.
    ///
    /// # Errors
    ///
    /// A varint error, or a negative value or one of more than 31 bits.
    pub fn number(&mut self) -> Result<u32, FieldError> {
        u32::try_from(self.int32()?).map_err(|_| FieldError::Range)
    }

    /// A length and as many bytes.
    ///
    /// # Errors
    ///
    /// A varint error, or the input is shorter than the length.
    pub fn bytes(&mut self) -> Result<&'a [u8], FieldError> {
        let length = usize::try_from(self.varint()?).map_err(|_| FieldError::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A length and as many bytes of UTF-8.
    ///
    /// # Errors
    ///
    /// As [`Reader::bytes`], or the bytes are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, FieldError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| FieldError::Utf8)
    }

    /// Skips an unknown field.
    ///
    /// # Errors
    ///
    /// The input ends inside it.
    pub fn skip(&mut self, wire_type: WireType) -> Result<(), FieldError> {
        let length = match wire_type {
            WireType::Varint => return self.varint().map(drop),
            WireType::Bytes => return self.bytes().map(drop),
            WireType::Fixed64 => 8,
            WireType::Fixed32 => 4,
        };
        self.rest = self.rest.get(length..).ok_or(FieldError::Truncated)?;
        Ok(())
    }
}

/// The destination of encoded bytes.
pub trait Sink {
    /// Takes one byte.
    fn push(&mut self, byte: u8);
    /// Takes bytes.
    fn extend(&mut self, bytes: &[u8]);

    /// Takes a varint.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    /// Takes a number field.
    fn varint_field(&mut self, number: u32, value: u64) {
        self.varint(u64::from(number << 3));
        self.varint(value);
    }

    /// Takes a signed number field; a negative number has ten bytes.
    fn int32_field(&mut self, number: u32, value: i32) {
        self.varint_field(number, i64::from(value).cast_unsigned());
    }

    /// Takes the tag and length of a length-delimited field; its bytes follow.
    fn length_field(&mut self, number: u32, length: usize) {
        self.varint(u64::from(number << 3 | 2));
        self.varint(length as u64);
    }

    /// Takes a text field.
    fn text_field(&mut self, number: u32, text: &str) {
        self.bytes_field(number, text.as_bytes());
    }

    /// Takes a field of bytes.
    fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.length_field(number, bytes.len());
        self.extend(bytes);
    }
}

impl Sink for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts the bytes instead of storing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(pub usize);

impl Sink for Counter {
    fn push(&mut self, _byte: u8) {
        self.0 += 1;
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn varint(&mut self, value: u64) {
        self.0 += varint_bytes(value);
    }
}

/// Bytes of `value` as a varint.
#[must_use]
pub fn varint_bytes(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_have_the_length_that_is_counted() {
        let edges = (0..64)
            .flat_map(|bit| [(1u64 << bit) - 1, 1 << bit])
            .chain([u64::MAX]);
        for value in edges {
            let mut bytes = Vec::new();
            bytes.varint(value);
            assert_eq!(bytes.len(), varint_bytes(value), "{value}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.rest(), b"");
        }
    }

    #[test]
    fn negative_numbers_have_ten_bytes() {
        let mut bytes = Vec::new();
        bytes.int32_field(13, -1);
        assert_eq!(
            bytes,
            [
                0x68, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1
            ]
        );
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.tag(), Ok(Some((13, WireType::Varint))));
        assert_eq!(reader.int32(), Ok(-1));
        assert_eq!(reader.tag(), Ok(None));
    }

    #[test]
    fn unknown_fields_of_every_type_are_skipped() {
        let cases: [(&[u8], WireType); 4] = [
            (&[0x80, 1], WireType::Varint),
            (&[1, 2, 3, 4, 5, 6, 7, 8], WireType::Fixed64),
            (&[3, 1, 2, 3], WireType::Bytes),
            (&[1, 2, 3, 4], WireType::Fixed32),
        ];
        for (bytes, wire_type) in cases {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.skip(wire_type), Ok(()));
            assert_eq!(reader.rest(), b"", "{wire_type:?}");
            let mut reader = Reader::new(&bytes[..bytes.len() - 1]);
            assert_eq!(
                reader.skip(wire_type),
                Err(FieldError::Truncated),
                "{wire_type:?}"
            );
        }
    }
}
