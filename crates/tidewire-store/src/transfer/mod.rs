//! Transfer of records between stores: as JSON Lines (contract: `spec/export.md`), and from one store of a node to another.

pub mod export;
pub mod import;
pub mod importer;
pub mod moving;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidewire_core::store::StoredRecord;
use tidewire_core::text::Payload;

use super::checksum;

/// The version of the format, see `spec/export.md`.
pub const FORMAT: u64 = 1;

/// The first line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    tidewire_export: u64,
    /// The version of the program that wrote the export, for the operator only.
    #[serde(default)]
    software: String,
}

/// The last line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    /// The number of records in the export.
    end: u64,
}

/// The line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    name: String,
    /// A 64-bit number as decimal text, because JavaScript numbers are exact only up to 53 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Puts a value on one line, without space around it. A line break can only be between tokens, because JSON strings can't contain
/// one.
fn on_one_line(record: StoredRecord) -> StoredRecord {
    let text = record.data.as_str().trim_matches([' ', '\t', '\n', '\r']);
    if text.len() == record.data.len() && !text.contains(['\n', '\r']) {
        return record;
    }
    StoredRecord {
        data: Payload::from(text.replace(['\n', '\r'], " ")),
        ..record
    }
}

/// Whether the name is that of a history row, in which the store keeps events, see `spec/store.md`.
fn is_history(name: &str) -> bool {
    tidewire_core::history::is_row(name)
}
