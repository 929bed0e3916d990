//! Records on their way from any store into any other: as JSON Lines (contract: `spec/export.md`), from one store of a node to
//! another, and from deepstream.

pub mod deepstream;
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

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    tidewire_export: u64,
    /// The version of the server that wrote it; for people.
    #[serde(default)]
    software: String,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    /// How many records there are.
    end: u64,
}

/// A line between them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    name: String,
    /// A number of 64 bits as decimal text, because a number of JavaScript has 53.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Puts a value on one line, without space around it. A line break in it can only stand between its parts, for a text in
/// JSON has none.
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

/// Whether a name is of the rows in which the store keeps events, see `spec/store.md`.
fn is_history(name: &str) -> bool {
    tidewire_core::history::is_row(name)
}
