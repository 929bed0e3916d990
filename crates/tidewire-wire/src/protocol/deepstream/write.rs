//! Ordinary writes of records and their acknowledgements. Like plain publications they take a fast path between
//! [`Record`] and the bytes, without the thirty fields of [`Fields`](super::fields::Fields). Writes with other
//! fields, such as a key, take the general path.

use tidewire_core::message::{Message, Record, Write};

use super::Dialect;
use super::action::record::WRITE_ACKNOWLEDGEMENT;
use super::fields::{Field, RECORD, WireTopic, number};
use super::record::{change_from_wire, change_to_wire};
use crate::protobuf::{Counter, Reader, Sink, WireType, varint_bytes};

const ACTION: u32 = number(&RECORD, Field::Action);
const DATA: u32 = number(&RECORD, Field::Data);
const CORRELATION: u32 = number(&RECORD, Field::Correlation);
const NAME: u32 = number(&RECORD, Field::Name);
const IS_WRITE_ACK: u32 = number(&RECORD, Field::IsWriteAck);
const PATH: u32 = number(&RECORD, Field::Path);
const VERSION: u32 = number(&RECORD, Field::Version);

/// The fields of a write or its acknowledgement on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Parts<'m> {
    action: u32,
    data: Option<&'m str>,
    correlation: Option<&'m str>,
    name: &'m str,
    write_ack: bool,
    path: Option<&'m str>,
    version: Option<i32>,
}

/// The write or acknowledgement in the fields of a record message. `None` if it is another or a malformed message;
/// the general path distinguishes these.
pub(super) fn decode(body: &[u8]) -> Option<Record<'_>> {
    let mut parts = Parts::default();
    let mut reader = Reader::new(body);
    while let Some(tag) = reader.tag().ok()? {
        match tag {
            (ACTION, WireType::Varint) => parts.action = reader.number().ok()?,
            (DATA, WireType::Bytes) => parts.data = Some(reader.text().ok()?),
            (CORRELATION, WireType::Bytes) => parts.correlation = Some(reader.text().ok()?),
            (NAME, WireType::Bytes) => parts.name = reader.text().ok()?,
            (IS_WRITE_ACK, WireType::Varint) => parts.write_ack = reader.varint().ok()? != 0,
            (PATH, WireType::Bytes) => parts.path = Some(reader.text().ok()?),
            (VERSION, WireType::Varint) => parts.version = Some(reader.int32().ok()?),
            _ => return None,
        }
    }
    let (name, correlation) = (parts.name, parts.correlation);
    if parts.action == WRITE_ACKNOWLEDGEMENT {
        return Some(Record::WriteAck { name, correlation });
    }
    let change = change_from_wire(parts.action, parts.path, parts.data)?;
    let write = Write {
        name,
        version: parts.version.unwrap_or_default(),
        correlation,
        write_ack: parts.write_ack,
        key: None,
    };
    Some(Record::Write(write, change))
}

/// A write or an acknowledgement with the lengths of its envelope and fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainWrite<'m> {
    parts: Parts<'m>,
    body_bytes: usize,
    envelope_bytes: usize,
}

impl<'m> PlainWrite<'m> {
    /// `message` for a reader of `dialect`, `None` if it is another message.
    pub(super) fn of(dialect: Dialect, message: &Message<'m>) -> Option<Self> {
        let Message::Record(record) = message else {
            return None;
        };
        let parts = match *record {
            Record::Write(write @ Write { key: None, .. }, ref change) => {
                let (action, path, data) = change_to_wire(dialect, change);
                Parts {
                    action,
                    data,
                    correlation: write.correlation,
                    name: write.name,
                    write_ack: write.write_ack,
                    path,
                    version: Some(write.version),
                }
            }
            Record::WriteAck { name, correlation } => Parts {
                action: WRITE_ACKNOWLEDGEMENT,
                correlation,
                name,
                write_ack: true,
                ..Parts::default()
            },
            _ => return None,
        };
        let mut body = Counter::default();
        parts.encode(&mut body);
        Some(Self {
            parts,
            body_bytes: body.0,
            envelope_bytes: 2 + 1 + varint_bytes(body.0 as u64) + body.0,
        })
    }

    /// Bytes of the whole payload of a frame.
    pub(super) fn payload_bytes(&self) -> usize {
        varint_bytes(self.envelope_bytes as u64) + self.envelope_bytes
    }

    /// Appends the whole payload of a frame.
    pub(super) fn encode_payload(&self, out: &mut Vec<u8>) {
        out.varint(self.envelope_bytes as u64);
        out.varint_field(2, WireTopic::Record.to_wire().into());
        out.length_field(3, self.body_bytes);
        self.parts.encode(out);
    }
}

impl Parts<'_> {
    /// Writes the present fields, by ascending field numbers.
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        sink.varint_field(ACTION, self.action.into());
        if let Some(data) = self.data {
            sink.text_field(DATA, data);
        }
        if let Some(correlation) = self.correlation {
            sink.text_field(CORRELATION, correlation);
        }
        sink.text_field(NAME, self.name);
        if self.write_ack {
            sink.varint_field(IS_WRITE_ACK, 1);
        }
        if let Some(path) = self.path {
            sink.text_field(PATH, path);
        }
        if let Some(version) = self.version {
            sink.int32_field(VERSION, version);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidewire_core::message::Change;

    use super::super::fields::{Envelope, Fields};
    use super::super::record;
    use super::*;

    /// The result of the general path for the fields of a record message.
    fn decode_fields(body: &[u8]) -> Option<Record<'_>> {
        let fields = Fields::decode(WireTopic::Record, body).ok()?;
        record::from_wire(fields).ok()?
    }

    const WRITE: Write<'_> = Write {
        name: "r",
        version: 7,
        correlation: Some("c"),
        write_ack: true,
        key: None,
    };

    #[test]
    fn only_writes_and_acknowledgements_without_anything_else_go_the_short_way() {
        let check = |body: &[u8], expected: Option<Record<'_>>| {
            let decoded = decode(body);
            assert_eq!(decoded, expected, "{body:02x?}");
            if expected.is_some() {
                assert_eq!(decode_fields(body), expected, "{body:02x?}");
            }
        };
        let update = |write, data| Some(Record::Write(write, Change::Update { data }));
        let short = Write {
            name: "",
            version: 0,
            correlation: None,
            write_ack: false,
            key: None,
        };
        let whole = [8, 18, 18, 1, b'1', 26, 1, b'c', 50, 1, b'r', 88, 1, 104, 7];
        check(&whole, update(WRITE, Some("1")));
        check(
            &[104, 7, 88, 5, 50, 1, b'r', 26, 1, b'c', 8, 18],
            update(WRITE, None),
        );
        check(&[8, 18], update(short, None));
        // Of a field that occurs twice the last one counts, the action, too.
        check(
            &[8, 14, 88, 1, 88, 0, 50, 1, b'x', 50, 0, 8, 18],
            update(short, None),
        );
        let path = Change::Patch {
            path: "p",
            data: None,
        };
        check(&[8, 19, 98, 1, b'p'], Some(Record::Write(short, path)));
        let ack = |correlation| {
            Some(Record::WriteAck {
                name: "r",
                correlation,
            })
        };
        check(&[8, 14, 26, 1, b'c', 50, 1, b'r', 88, 1], ack(Some("c")));
        check(&[8, 14, 50, 1, b'r'], ack(None));
        // Other actions, none, a field of others, an unknown one, and malformed fields.
        for tail in [
            &[8, 3][..],
            &[8, 0],
            &[186, 1, 1, b'k'],
            &[34, 0],
            &[0xF8, 7, 7],
        ] {
            check(&[&whole[..], tail].concat(), None);
        }
        check(&[], None);
        check(&[50, 1, b'r'], None);
        check(&[8, 18, 50, 2, b'r'], None);
        check(&[8, 18, 50, 1, 0xFF], None);
        check(&[8, 18, 48, 1], None);
        check(&[8, 18, 104, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F], None);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "\\PC{0,200}", 1 => (0usize..40_000).prop_map(|bytes| "x".repeat(bytes))]
    }

    proptest! {
        #[test]
        fn both_ways_write_the_same_bytes(
            name in text(),
            data in proptest::option::of(text()),
            path in proptest::option::of(text()),
            correlation in proptest::option::of(text()),
            version in any::<i32>(),
            write_ack in any::<bool>(),
            kind in 0..7,
        ) {
            let (path, data, correlation) = (path.as_deref(), data.as_deref(), correlation.as_deref());
            let change = match kind {
                0 => Some(Change::Update { data }),
                1 => Some(Change::Patch { path: path.unwrap_or_default(), data }),
                2 => Some(Change::Erase { path }),
                3 => Some(Change::PatchMulti { data, full: path }),
                4 => Some(Change::CreateAndUpdate { data }),
                5 => Some(Change::CreateAndPatch { path, data }),
                _ => None,
            };
            let write = Write { name: &name, version, correlation, write_ack, key: None, };
            let record = match change {
                Some(change) => Record::Write(write, change),
                None => Record::WriteAck { name: &name, correlation },
            };
            for dialect in [Dialect::Server, Dialect::Client, Dialect::ClientWithPatchMulti] {
                let (mut short, mut expected) = (Vec::new(), Vec::new());
                let fields = record::to_wire(dialect, &record);
                fields.encode_payload(WireTopic::Record, fields.measure(WireTopic::Record), &mut expected);
                let message = Message::Record(record.clone());
                let plain = PlainWrite::of(dialect, &message).expect("it is a write or an acknowledgement");
                plain.encode_payload(&mut short);
                prop_assert_eq!(&short, &expected);
                prop_assert_eq!(plain.payload_bytes(), expected.len());
                let body = Envelope::decode(&short).expect("it is an envelope").body;
                let read = decode(body);
                prop_assert!(read.is_some());
                prop_assert_eq!(read, decode_fields(body));
            }
        }

        #[test]
        fn the_short_way_reads_what_the_long_one_does(body in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(vec![8u8, 14, 16, 17, 18, 19, 20, 26, 50, 88, 98, 104, 0, 1, b'r']),
                any::<u8>(),
            ],
            0..16,
        )) {
            if let Some(record) = decode(&body) {
                prop_assert_eq!(decode_fields(&body), Some(record));
            }
        }
    }
}
