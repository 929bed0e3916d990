//! How values become the fields of a message, and fields become values.
//!
//! A type has one list of its fields, from which the macros make both directions. They destructure the type and match all variants, so a
//! new field or variant does not compile until it has a number.

use std::sync::Arc;

use tidewire_core::text::{Name, Payload};

use super::DecodeError;
use super::context::Context;
use crate::protobuf::{FieldError, Reader, Sink, WireType, varint_bytes};

/// The unread fields of a message.
pub(super) struct Source<'a> {
    fields: Reader<'a>,
    pub(super) context: &'a Context<'a>,
}

impl<'a> Source<'a> {
    pub(super) fn new(bytes: &'a [u8], context: &'a Context<'a>) -> Self {
        let fields = Reader::new(bytes);
        Self { fields, context }
    }

    /// The number and type of the next field; `None` at the end of the message.
    pub(super) fn field(&mut self) -> Result<Option<(u32, WireType)>, DecodeError> {
        Ok(self.fields.tag()?)
    }

    /// Skips the field.
    pub(super) fn skip(&mut self, wire_type: WireType) -> Result<(), DecodeError> {
        Ok(self.fields.skip(wire_type)?)
    }

    /// The fields of a message that is the value of the field.
    pub(super) fn nested(&mut self) -> Result<Self, DecodeError> {
        let fields = Reader::new(self.fields.bytes()?);
        let context = self.context;
        Ok(Self { fields, context })
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        Ok(self.fields.bytes()?)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        Ok(self.fields.text()?)
    }

    /// The value of a field that is read with any of these types.
    pub(super) fn value<T: Value>(&mut self, wire_type: WireType) -> Result<T, DecodeError> {
        if wire_type != T::WIRE_TYPE {
            return Err(FieldError::WireType.into());
        }
        T::read_value(self)
    }
}

/// The value of a field.
pub(super) trait Value: Sized {
    const WIRE_TYPE: WireType;

    /// Bytes behind the field's number.
    fn value_len(&self) -> usize;

    fn write_value(&self, out: &mut Vec<u8>);

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError>;

    /// The value of a required field that is absent; `None` if the field must not be absent.
    fn absent() -> Option<Self> {
        None
    }

    /// Whether it equals `absent()`.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A field of a struct: required, optional or repeated.
pub(super) trait Field: Sized {
    fn field_len(&self, number: u32) -> usize;

    fn write_field(&self, number: u32, out: &mut Vec<u8>);

    /// Adds a field that was found to the value, as far as it is known.
    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError>;

    /// The value after the end of the message.
    fn finish(known: Option<Self>) -> Result<Self, DecodeError>;
}

/// Bytes of a value with the number of its field.
pub(super) fn present_len<T: Value>(value: &T, number: u32) -> usize {
    varint_bytes(key::<T>(number)) + value.value_len()
}

/// Writes a value with the number of its field.
pub(super) fn write_present<T: Value>(value: &T, number: u32, out: &mut Vec<u8>) {
    out.varint(key::<T>(number));
    value.write_value(out);
}

fn key<T: Value>(number: u32) -> u64 {
    let wire_type = match T::WIRE_TYPE {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Bytes => 2,
        WireType::Fixed32 => 5,
    };
    u64::from(number << 3 | wire_type)
}

/// Bytes of a message whose fields have `len` bytes, with their length.
pub(super) fn prefixed(len: usize) -> usize {
    varint_bytes(len as u64) + len
}

impl<T: Value> Field for T {
    fn field_len(&self, number: u32) -> usize {
        match self.is_absent() {
            true => 0,
            false => present_len(self, number),
        }
    }

    fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_absent() {
            write_present(self, number, out);
        }
    }

    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError> {
        *known = Some(source.value(wire_type)?);
        Ok(())
    }

    fn finish(known: Option<Self>) -> Result<Self, DecodeError> {
        known.or_else(T::absent).ok_or(DecodeError::Missing)
    }
}

impl<T: Value> Field for Option<T> {
    fn field_len(&self, number: u32) -> usize {
        self.as_ref().map_or(0, |value| present_len(value, number))
    }

    fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(value) = self {
            write_present(value, number, out);
        }
    }

    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError> {
        *known = Some(Some(source.value(wire_type)?));
        Ok(())
    }

    fn finish(known: Option<Self>) -> Result<Self, DecodeError> {
        Ok(known.flatten())
    }
}

impl<T: Value> Field for Vec<T> {
    fn field_len(&self, number: u32) -> usize {
        self.iter().map(|value| present_len(value, number)).sum()
    }

    fn write_field(&self, number: u32, out: &mut Vec<u8>) {
        for value in self {
            write_present(value, number, out);
        }
    }

    fn add(
        known: &mut Option<Self>,
        wire_type: WireType,
        source: &mut Source<'_>,
    ) -> Result<(), DecodeError> {
        // No length is announced for a list, so it grows only by values that are there.
        known.get_or_insert_default().push(source.value(wire_type)?);
        Ok(())
    }

    fn finish(known: Option<Self>) -> Result<Self, DecodeError> {
        Ok(known.unwrap_or_default())
    }
}

/// Implements [`Value`] for pointers, which have the form of their value.
macro_rules! pointers {
    ($($pointer:ident),*) => {$(
        impl<T: Value> Value for $pointer<T> {
            const WIRE_TYPE: WireType = T::WIRE_TYPE;

            fn value_len(&self) -> usize {
                T::value_len(self)
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                T::write_value(self, out);
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                T::read_value(source).map(Self::new)
            }
        }
    )*};
}

pointers!(Box, Arc);

/// Implements [`Value`] for numbers, which are 0 if they are absent.
macro_rules! number {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = WireType::Varint;

            fn value_len(&self) -> usize {
                varint_bytes(*self as u64)
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                out.varint(*self as u64);
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                let number = source.fields.varint()?;
                Self::try_from(number).map_err(|_| FieldError::Range.into())
            }

            fn absent() -> Option<Self> {
                Some(0)
            }

            fn is_absent(&self) -> bool {
                *self == 0
            }
        }
    )*};
}

number!(u16, u32, u64, usize);

impl Value for i32 {
    const WIRE_TYPE: WireType = WireType::Varint;

    fn value_len(&self) -> usize {
        varint_bytes(i64::from(*self).cast_unsigned())
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(i64::from(*self).cast_unsigned());
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(source.fields.int32()?)
    }

    fn absent() -> Option<Self> {
        Some(0)
    }

    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl Value for bool {
    const WIRE_TYPE: WireType = WireType::Varint;

    fn value_len(&self) -> usize {
        1
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(u64::from(*self));
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(source.fields.varint()? != 0)
    }

    fn absent() -> Option<Self> {
        Some(false)
    }

    fn is_absent(&self) -> bool {
        !self
    }
}

/// Implements [`Value`] for texts, which are empty if they are absent.
macro_rules! text {
    ($($type:ty, $make:expr, $text:expr;)*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = WireType::Bytes;

            fn value_len(&self) -> usize {
                let text: fn(&Self) -> &str = $text;
                prefixed(text(self).len())
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                let text: fn(&Self) -> &str = $text;
                out.varint(text(self).len() as u64);
                out.extend_from_slice(text(self).as_bytes());
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                source.text().map($make)
            }

            fn absent() -> Option<Self> {
                let make: fn(&'static str) -> Self = $make;
                Some(make(""))
            }

            fn is_absent(&self) -> bool {
                let text: fn(&Self) -> &str = $text;
                text(self).is_empty()
            }
        }
    )*};
}

text! {
    Name, Name::from, |name| name.as_str();
    Payload, Payload::from_checked, |payload| payload.as_str();
    Box<str>, Box::from, |text| text;
    Arc<str>, Arc::from, |text| text;
}

impl<const N: usize> Value for [u8; N] {
    const WIRE_TYPE: WireType = WireType::Bytes;

    fn value_len(&self) -> usize {
        prefixed(N)
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(N as u64);
        out.extend_from_slice(self);
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        let bytes = source.bytes()?;
        bytes.try_into().map_err(|_| FieldError::Range.into())
    }
}

/// Bytes of any length.
impl Value for Box<[u8]> {
    const WIRE_TYPE: WireType = WireType::Bytes;

    fn value_len(&self) -> usize {
        prefixed(self.len())
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.varint(self.len() as u64);
        out.extend_from_slice(self);
    }

    fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
        source.bytes().map(Box::from)
    }

    fn absent() -> Option<Self> {
        Some(Box::default())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// Reads the fields of a message into variables of their names.
macro_rules! read_fields {
    ($source:ident, $($number:literal $field:ident),* $(,)?) => {
        $(let mut $field = None;)*
        while let Some((number, wire_type)) = $source.field()? {
            match number {
                $($number => Field::add(&mut $field, wire_type, &mut $source)?,)*
                _ => $source.skip(wire_type)?,
            }
        }
    };
}

/// Implements [`Value`] for structs, whose fields have these numbers.
macro_rules! structs {
    ($($type:ident { $($number:literal $field:ident),* $(,)? })*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = WireType::Bytes;

            fn value_len(&self) -> usize {
                let Self { $($field),* } = self;
                prefixed(0 $(+ $field.field_len($number))*)
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                out.varint((0 $(+ $field.field_len($number))*) as u64);
                $($field.write_field($number, out);)*
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                let mut message = source.nested()?;
                read_fields!(message, $($number $field),*);
                Ok(Self { $($field: Field::finish($field)?),* })
            }
        }
    )*};
}

/// Implements [`Value`] for structs that wrap one value, and have its form.
macro_rules! wrappers {
    ($($type:ident($inner:ty))*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = <$inner>::WIRE_TYPE;

            fn value_len(&self) -> usize {
                self.0.value_len()
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                self.0.write_value(out);
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                <$inner>::read_value(source).map(Self)
            }

            fn absent() -> Option<Self> {
                <$inner>::absent().map(Self)
            }

            fn is_absent(&self) -> bool {
                self.0.is_absent()
            }
        }
    )*};
}

/// Implements [`Value`] for enums without data. An absent value is the one with the number 0.
macro_rules! numbers {
    ($($type:ident { $($number:literal $variant:tt $(($($inner:tt)*))?),* $(,)? })*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = WireType::Varint;

            fn value_len(&self) -> usize {
                1
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                let number: u8 = match self {
                    $(Self::$variant $(($($inner)*))? => const { assert!($number < 0x80); $number },)*
                };
                out.push(number);
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                Ok(match u32::read_value(source)? {
                    $($number => Self::$variant $(($($inner)*))?,)*
                    _ => return Err(DecodeError::UnknownValue),
                })
            }

            fn absent() -> Option<Self> {
                match 0_u32 {
                    $($number => Some(Self::$variant $(($($inner)*))?),)*
                    _ => None,
                }
            }

            fn is_absent(&self) -> bool {
                Self::absent().is_some_and(|absent| absent == *self)
            }
        }
    )*};
}

/// Implements [`Value`] for enums with data: a message with one field, whose number is that of the variant. The data of a variant is a
/// message with the fields in braces or parentheses, or the one value in brackets.
macro_rules! choices {
    ($($type:ident {
        $($number:literal $variant:ident
            $({ $($named:literal $field:ident),* $(,)? })?
            $(( $($placed:literal $part:ident),* $(,)? ))?
            $([ $only:ident ])?
        ),* $(,)?
    })*) => {$(
        impl Value for $type {
            const WIRE_TYPE: WireType = WireType::Bytes;

            fn value_len(&self) -> usize {
                prefixed(match self {
                    $(Self::$variant $({ $($field),* })? $(( $($part),* ))? $(( $only ))? => choices!(
                        @len $number $({ $($named $field),* })? $({ $($placed $part),* })? $([ $only ])?
                    ),)*
                })
            }

            fn write_value(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(( $($part),* ))? $(( $only ))? => choices!(
                        @write out $number $({ $($named $field),* })? $({ $($placed $part),* })? $([ $only ])?
                    ),)*
                }
            }

            fn read_value(source: &mut Source<'_>) -> Result<Self, DecodeError> {
                let mut choice = source.nested()?;
                let mut found = None;
                while let Some((number, wire_type)) = choice.field()? {
                    match number {
                        $($number => found = Some(choices!(
                            @read choice wire_type $type $variant
                            $({ $($named $field),* })? $(( $($placed $part),* ))? $([ $only ])?
                        )),)*
                        _ => choice.skip(wire_type)?,
                    }
                }
                found.ok_or(DecodeError::UnknownVariant)
            }
        }
    )*};
    (@len $number:literal) => {
        varint_bytes($number << 3) + 1
    };
    (@len $number:literal { $($named:literal $field:ident),* }) => {
        varint_bytes($number << 3) + prefixed(0 $(+ $field.field_len($named))*)
    };
    (@len $number:literal [ $only:ident ]) => {
        present_len($only, $number)
    };
    (@write $out:ident $number:literal) => {{
        $out.varint((varint_bytes($number << 3) + 1) as u64);
        $out.length_field($number, 0);
    }};
    (@write $out:ident $number:literal { $($named:literal $field:ident),* }) => {{
        let len = 0 $(+ $field.field_len($named))*;
        $out.varint((varint_bytes($number << 3) + prefixed(len)) as u64);
        $out.length_field($number, len);
        $($field.write_field($named, $out);)*
    }};
    (@write $out:ident $number:literal [ $only:ident ]) => {{
        $out.varint(present_len($only, $number) as u64);
        write_present($only, $number, $out);
    }};
    (@read $choice:ident $wire_type:ident $type:ident $variant:ident) => {{
        message_of(&mut $choice, $wire_type)?;
        $type::$variant
    }};
    (@read $choice:ident $wire_type:ident $type:ident $variant:ident { $($named:literal $field:ident),* }) => {{
        let mut message = message_of(&mut $choice, $wire_type)?;
        read_fields!(message, $($named $field),*);
        $type::$variant { $($field: Field::finish($field)?),* }
    }};
    (@read $choice:ident $wire_type:ident $type:ident $variant:ident ( $($placed:literal $part:ident),* )) => {{
        let mut message = message_of(&mut $choice, $wire_type)?;
        read_fields!(message, $($placed $part),*);
        $type::$variant($(Field::finish($part)?),*)
    }};
    (@read $choice:ident $wire_type:ident $type:ident $variant:ident [ $only:ident ]) => {
        $type::$variant($choice.value($wire_type)?)
    };
}

/// The fields of a message in a field of this type.
pub(super) fn message_of<'a>(
    source: &mut Source<'a>,
    wire_type: WireType,
) -> Result<Source<'a>, DecodeError> {
    match wire_type {
        WireType::Bytes => source.nested(),
        _ => Err(FieldError::WireType.into()),
    }
}

pub(super) use {choices, numbers, read_fields, structs, wrappers};
