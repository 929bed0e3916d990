//! A publication with only a name and optional data: nearly all messages of a busy server. This fast path converts
//! between such a [`Publication`] and the bytes with a fifth of the instructions of [`Fields`](super::fields::Fields), which
//! have thirty fields. All other messages take the general path.

use tidewire_core::message::{Event, Message, Publication};

use super::action::event::EMIT;
use super::fields::{EVENT, Field, WireTopic, number};
use crate::protobuf::{Reader, Sink, WireType, varint_bytes};

const ACTION: u32 = number(&EVENT, Field::Action);
const DATA: u32 = number(&EVENT, Field::Data);
const NAME: u32 = number(&EVENT, Field::Name);

/// The publication in the fields of an event message. `None` if it is another or a malformed message; the general
/// path distinguishes these.
#[inline]
pub(super) fn decode(body: &[u8]) -> Option<Event<'_>> {
    let (mut is_emit, mut name, mut data) = (false, "", None);
    let mut reader = Reader::new(body);
    while let Some(tag) = reader.tag().ok()? {
        match tag {
            (ACTION, WireType::Varint) if reader.number() == Ok(EMIT) => is_emit = true,
            (DATA, WireType::Bytes) => data = Some(reader.text().ok()?),
            (NAME, WireType::Bytes) => name = reader.text().ok()?,
            _ => return None,
        }
    }
    is_emit.then(|| Event::publication(name, data))
}

/// A publication with the lengths of its envelope and fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emit<'m> {
    name: &'m str,
    data: Option<&'m str>,
    body_bytes: usize,
    envelope_bytes: usize,
}

impl<'m> Emit<'m> {
    /// `message` as a publication, `None` if it is another message.
    #[inline]
    pub(super) fn of(message: &Message<'m>) -> Option<Self> {
        let Message::Event(Event::Publication(Publication {
            name,
            data,
            rare: None,
        })) = *message
        else {
            return None;
        };
        let body_bytes = 2 + text_bytes(name) + data.map_or(0, text_bytes);
        Some(Self {
            name,
            data,
            body_bytes,
            envelope_bytes: 2 + 1 + varint_bytes(body_bytes as u64) + body_bytes,
        })
    }

    /// Bytes of the whole payload of a frame.
    pub(super) fn payload_bytes(&self) -> usize {
        varint_bytes(self.envelope_bytes as u64) + self.envelope_bytes
    }

    /// Appends the whole payload of a frame.
    pub(super) fn encode_payload(&self, out: &mut Vec<u8>) {
        out.varint(self.envelope_bytes as u64);
        out.varint_field(2, WireTopic::Event.to_wire().into());
        out.length_field(3, self.body_bytes);
        out.varint_field(ACTION, EMIT.into());
        if let Some(data) = self.data {
            out.text_field(DATA, data);
        }
        out.text_field(NAME, self.name);
    }
}

/// Bytes of a text field whose tag has one byte.
fn text_bytes(text: &str) -> usize {
    1 + varint_bytes(text.len() as u64) + text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fields::Fields;
    use super::super::{Deepstream, event};
    use super::*;

    /// The result of the general path for the fields of an event message.
    fn decode_fields(body: &[u8]) -> Option<Event<'_>> {
        let fields = Fields::decode(WireTopic::Event, body).ok()?;
        event::from_wire(fields).ok()?
    }

    #[test]
    fn only_publications_without_anything_else_go_the_short_way() {
        let check = |body: &[u8], expected| {
            assert_eq!(decode(body), expected, "{body:02x?}");
            if expected.is_some() {
                assert_eq!(decode_fields(body), expected, "{body:02x?}");
            }
        };
        let emit = |name, data| Some(Event::publication(name, data));
        check(&[8, 2, 18, 1, b'1', 50, 1, b'e'], emit("e", Some("1")));
        check(&[50, 1, b'e', 8, 2], emit("e", None));
        check(&[8, 2], emit("", None));
        check(&[8, 2, 18, 0, 50, 0], emit("", Some("")));
        // Of a field that occurs twice the last one counts.
        check(&[8, 2, 50, 1, b'e', 50, 1, b'f', 8, 2], emit("f", None));
        check(&[8, 2, 8, 3, 50, 1, b'e'], None);
        check(&[8, 3, 8, 2, 50, 1, b'e'], None);
        // No action, another one, another field, an unknown one, and malformed fields.
        check(&[], None);
        check(&[50, 1, b'e'], None);
        check(&[8, 4, 50, 1, b'e'], None);
        check(&[8, 2, 50, 1, b'e', 0x88, 1, 7], None);
        check(&[8, 2, 50, 1, b'e', 0xF8, 7, 7], None);
        check(&[8, 2, 50, 2, b'e'], None);
        check(&[8, 2, 50, 1, 0xFF], None);
        check(&[8, 2, 48, 1], None);
    }

    proptest! {
        #[test]
        fn both_ways_write_the_same_bytes(
            name in "\\PC{0,200}",
            data in proptest::option::of("\\PC{0,200}"),
            long in proptest::option::of(0usize..40_000),
        ) {
            let data = long.map(|bytes| "x".repeat(bytes)).or(data);
            let event = Event::publication(&name, data.as_deref());
            let (mut short, mut expected) = (Vec::new(), Vec::new());
            let fields = event::to_wire(&event);
            fields.encode_payload(WireTopic::Event, fields.measure(WireTopic::Event), &mut expected);
            let message = Message::Event(event);
            let emit = Emit::of(&message).expect("it is a publication");
            emit.encode_payload(&mut short);
            prop_assert_eq!(&short, &expected);
            prop_assert_eq!(emit.payload_bytes(), expected.len());
            prop_assert_eq!(Deepstream::decode(&short), Ok(message));
        }

        #[test]
        fn the_short_way_reads_what_the_long_one_does(body in proptest::collection::vec(
            prop_oneof![Just(8u8), Just(2), Just(18), Just(50), Just(0), Just(1), Just(b'e'), any::<u8>()], 0..12,
        )) {
            if let Some(event) = decode(&body) {
                prop_assert_eq!(decode_fields(&body), Some(event));
            }
        }
    }
}
