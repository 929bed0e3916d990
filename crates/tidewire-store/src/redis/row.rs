//! The stored form of a record: a line of four numbers, the write keys, and the value. Contract: `spec/store-redis.md`.

use tidewire_core::store::{Incarnation, Loaded, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::{checksum, write_keys};

/// Appends the text of a record.
pub(super) fn append(name: &str, record: &StoredRecord, out: &mut Vec<u8>) {
    let keys = record.write_keys.as_deref().map(write_keys::to_text);
    let checksum = checksum(name, record, keys.as_deref());
    let keys = keys.unwrap_or_default();
    append_state(record.incarnation, record.version, out);
    append_number(checksum.into(), b' ', out);
    append_number(keys.len() as u64, b'\n', out);
    out.extend_from_slice(keys.as_bytes());
    out.extend_from_slice(record.data.as_str().as_bytes());
}

/// Appends the bytes with which the text of each record of this version starts. Two states are different exactly when these bytes are, so a
/// commit compares nothing else with an expectation.
pub(super) fn append_state(incarnation: Incarnation, version: Version, out: &mut Vec<u8>) {
    append_number(incarnation.0, b' ', out);
    append_number(version.0.into(), b' ', out);
}

fn append_number(number: u64, end: u8, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(number).as_bytes());
    out.push(end);
}

/// The record with this text. If the text is damaged, the record is corrupt.
pub(super) fn decode(name: &str, row: &[u8]) -> Loaded {
    match std::str::from_utf8(row)
        .ok()
        .and_then(|row| sound(name, row))
    {
        Some(record) => Loaded::Found(record),
        None => Loaded::Corrupt,
    }
}

fn sound(name: &str, row: &str) -> Option<StoredRecord> {
    let (head, rest) = row.split_once('\n')?;
    let mut numbers = head.split(' ');
    let incarnation = Incarnation(numbers.next()?.parse().ok()?);
    let version = Version(numbers.next()?.parse().ok()?);
    let stored_checksum: u32 = numbers.next()?.parse().ok()?;
    let keys_bytes: usize = numbers.next()?.parse().ok()?;
    if numbers.next().is_some() {
        return None;
    }
    let (keys, data) = rest.split_at_checked(keys_bytes)?;
    let keys = (!keys.is_empty()).then_some(keys);
    let record = StoredRecord {
        incarnation,
        version,
        data: Payload::from_checked(data),
        write_keys: write_keys::of_row(keys)?,
    };
    (stored_checksum == checksum(name, &record, keys)).then_some(record)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidewire_core::store::{Dropped, WriteKeys};

    use super::*;

    fn record(write_keys: Option<WriteKeys>) -> StoredRecord {
        StoredRecord {
            incarnation: Incarnation(7),
            version: Version(1),
            data: Payload::from_checked("[1]"),
            write_keys: write_keys.map(Arc::new),
        }
    }

    fn encode(name: &str, record: &StoredRecord) -> String {
        let mut text = Vec::new();
        append(name, record, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_text_is_the_one_of_the_specification() {
        assert_eq!(encode("a", &record(None)), "7 1 997353011 0\n[1]");
        let keyed = record(Some(WriteKeys::stored(Vec::new(), Dropped::Unordered)));
        let text = encode("a", &keyed);
        assert!(
            text.ends_with(" 28\n{\"kept\":[],\"unordered\":true}[1]"),
            "{text}"
        );
        for record in [record(None), keyed] {
            let text = encode("a", &record);
            let mut state = Vec::new();
            append_state(record.incarnation, record.version, &mut state);
            assert!(text.as_bytes().starts_with(&state));
            assert_eq!(decode("a", text.as_bytes()), Loaded::Found(record));
        }
    }

    #[test]
    fn a_damaged_text_is_corrupt() {
        let sound = "7 1 997353011 0\n[1]";
        assert_ne!(decode("a", sound.as_bytes()), Loaded::Corrupt);
        for damaged in [
            "",
            "7 1 997353011 0",
            "7 1 997353011\n[1]",
            "7 1 997353011 0 0\n[1]",
            "7 1 997353011 3\n[1]",
            "7 1 997353011 4\n[1]",
            "8 1 997353011 0\n[1]",
            "7 2 997353011 0\n[1]",
            "7 1 997353011 0\n[2]",
        ] {
            assert_eq!(
                decode("a", damaged.as_bytes()),
                Loaded::Corrupt,
                "{damaged}"
            );
        }
        assert_eq!(decode("b", sound.as_bytes()), Loaded::Corrupt);
        assert_eq!(decode("a", b"7 1 997353011 0\n[\xff]"), Loaded::Corrupt);
    }
}
