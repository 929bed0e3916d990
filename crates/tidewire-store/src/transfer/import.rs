//! Imports the records of an export into stores, line by line.

use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::ops::AddAssign;

use tidewire_core::json::{self, JsonKind, JsonLimits};
use tidewire_core::store::{Incarnation, StoreError, StoredRecord, Version};
use tidewire_core::text::{Name, Payload, RESERVED};

use super::importer::Importer;
use super::{FORMAT, Footer, Header, Line, checksum, is_history};

/// Maximum size of a line in bytes, without its name and value.
const LINE_OVERHEAD_BYTES: usize = 1 << 10;
/// Maximum number of bytes in JSON for one byte of a name.
const ESCAPED_BYTES_MAX: usize = 6;
/// Bytes by which the names of the server's own records may exceed the limit for clients.
const RESERVED_BYTES_MAX: usize = 64;

/// Limits of an imported record.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of a name in bytes.
    pub name_bytes_max: usize,
    /// Maximum size and nesting of a value.
    pub json: JsonLimits,
}

impl Limits {
    /// Maximum size of a line in bytes.
    fn line_bytes_max(&self) -> usize {
        let name = (self.name_bytes_max + RESERVED_BYTES_MAX) * ESCAPED_BYTES_MAX;
        self.json.bytes_max + name + LINE_OVERHEAD_BYTES
    }

    /// The record if it is within the limits.
    ///
    /// # Errors
    /// It is not; the text is the reason.
    pub fn check(
        &self,
        name: &str,
        version: Version,
        text: &str,
    ) -> Result<ExportedRecord, String> {
        let bytes_max = match name.starts_with(RESERVED) {
            true => self.name_bytes_max + RESERVED_BYTES_MAX,
            false => self.name_bytes_max,
        };
        if name.is_empty() || name.len() > bytes_max {
            let bytes = name.len();
            return Err(format!(
                "the name has {bytes} bytes, not 1 to {bytes_max} (limits.name_bytes_max)"
            ));
        }
        match json::check(text, self.json) {
            Ok(JsonKind::Object | JsonKind::Array) => {}
            Ok(_) => return Err("the data are not an object or array".to_owned()),
            Err(error) => {
                return Err(format!(
                    "the data are refused: {error} (limits.record_bytes_max, limits.nesting_max)"
                ));
            }
        }
        if version > Version::LAST {
            return Err(format!("the version is beyond {}", Version::LAST.0));
        }
        Ok(ExportedRecord {
            name: Name::from(name),
            version,
            data: Payload::from_checked(text),
        })
    }
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records that did not exist in the store.
    pub added_count: u64,
    /// Records that replaced a stored one.
    pub replaced_count: u64,
    /// Records that the store already had, with the same version and value.
    pub unchanged_count: u64,
    /// Stored records with another version or value that the import has not replaced.
    pub kept_count: u64,
}

impl AddAssign for Imported {
    fn add_assign(&mut self, other: Self) {
        self.added_count += other.added_count;
        self.replaced_count += other.replaced_count;
        self.unchanged_count += other.unchanged_count;
        self.kept_count += other.kept_count;
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records added, {} replaced, {} there already, {} kept as they were",
            self.added_count, self.replaced_count, self.unchanged_count, self.kept_count
        )
    }
}

/// Why an import failed. Records that were committed before stay, and the import can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line is invalid.
    #[error("line {line}: {reason}")]
    Damaged {
        /// The number of the line, from 1.
        line: u64,
        /// Why it is invalid.
        reason: String,
    },
    /// Written by a newer version.
    #[error(
        "the export has format {found}, and this version reads up to format {FORMAT}; import it with a newer version"
    )]
    NewerFormat {
        /// Its format.
        found: u64,
    },
    /// The lines can't be read.
    #[error("the export can't be read: {0}")]
    Input(#[from] io::Error),
    /// A store has failed.
    #[error("{done}, then the store failed: {error}; repeat the import when the store works again")]
    Store {
        /// The result until then.
        done: Imported,
        /// The store's error.
        error: StoreError,
    },
}

/// Reads the records of an export and checks each of them.
pub struct Lines<R> {
    input: R,
    limits: Limits,
    /// Lines that were read so far.
    line: u64,
    record_count: u64,
    buffer: Vec<u8>,
}

/// A record from a line of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedRecord {
    /// Its name.
    pub name: Name,
    /// Its version; 1 if the line has none.
    pub version: Version,
    /// Its value.
    pub data: Payload,
}

impl<R: BufRead> Lines<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// It is not the first line of an export, or the export has a newer format.
    pub fn new(input: R, limits: Limits) -> Result<Self, ImportError> {
        let mut lines = Self {
            input,
            limits,
            line: 0,
            record_count: 0,
            buffer: Vec::new(),
        };
        let no_export = "not an export: the first line must be {\"tidewire_export\":1}";
        if !lines.read_line()? {
            lines.line = 1;
            return Err(lines.damaged(no_export));
        }
        // Every format has its number in this field, whatever its other fields are.
        let found = serde_json::from_slice::<serde_json::Value>(&lines.buffer).ok();
        let found = found.and_then(|header| header.get("tidewire_export")?.as_u64());
        match found {
            Some(found) if found > FORMAT => Err(ImportError::NewerFormat { found }),
            Some(FORMAT) => match serde_json::from_slice::<Header>(&lines.buffer) {
                Ok(_) => Ok(lines),
                Err(error) => Err(lines.malformed(&error)),
            },
            _ => Err(lines.damaged(no_export)),
        }
    }

    /// The next record; `None` after the last line.
    ///
    /// # Errors
    /// The line is invalid, or the last line is missing.
    pub fn next_record(&mut self) -> Result<Option<ExportedRecord>, ImportError> {
        if !self.read_line()? {
            self.line += 1;
            let reason = "the file is cut off: its last line {\"end\":COUNT} is missing";
            return Err(self.damaged(reason));
        }
        if self.buffer.starts_with(b"{\"end\"") {
            return self.end().map(|()| None);
        }
        let line: Line<'_> =
            serde_json::from_slice(&self.buffer).map_err(|error| self.malformed(&error))?;
        let record = self.record(&line).map_err(|reason| self.damaged(&reason))?;
        self.record_count += 1;
        Ok(Some(record))
    }

    fn record(&self, line: &Line<'_>) -> Result<ExportedRecord, String> {
        if is_history(&line.name) {
            return Err(
                "it is a row of an event history, which only its own store can use".to_owned(),
            );
        }
        let version = Version(line.version.unwrap_or(1));
        let record = self.limits.check(&line.name, version, line.data.get())?;
        let incarnation = match &line.incarnation {
            Some(text) => text
                .parse()
                .map_err(|_| format!("the incarnation {text:?} is not a 64-bit number"))?,
            None => 0,
        };
        if let Some(expected) = line.checksum {
            let stored = StoredRecord {
                incarnation: Incarnation(incarnation),
                version,
                data: record.data.clone(),
                write_keys: None,
            };
            let found = checksum(&record.name, &stored, None);
            if found != expected {
                return Err(format!(
                    "the checksum is {found}, but the line has {expected}; if you have changed the line on purpose, remove its checksum"
                ));
            }
        }
        Ok(record)
    }

    /// Checks the last line, and that the input ends after it.
    fn end(&mut self) -> Result<(), ImportError> {
        let footer: Footer =
            serde_json::from_slice(&self.buffer).map_err(|error| self.malformed(&error))?;
        if footer.end != self.record_count {
            let (expected, found) = (footer.end, self.record_count);
            let reason = format!("the file should have {expected} records, but has {found}");
            return Err(self.damaged(&reason));
        }
        match self.read_line()? {
            true => Err(self.damaged("there is another line after the last one")),
            false => Ok(()),
        }
    }

    /// Reads a line without its end; false at the end of the input.
    fn read_line(&mut self) -> Result<bool, ImportError> {
        let bytes_max = self.limits.line_bytes_max();
        self.buffer.clear();
        let mut input = self.input.by_ref().take(bytes_max as u64 + 1);
        if input.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(false);
        }
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() > bytes_max {
            let reason = format!(
                "it has more than {bytes_max} bytes, the maximum for a record (limits.record_bytes_max)"
            );
            return Err(self.damaged(&reason));
        }
        Ok(true)
    }

    fn damaged(&self, reason: &str) -> ImportError {
        ImportError::Damaged {
            line: self.line,
            reason: reason.to_owned(),
        }
    }

    fn malformed(&self, error: &serde_json::Error) -> ImportError {
        // The parser has seen only this line, so its line number is always 1.
        let text = error.to_string();
        let reason = text.replace(" at line 1 column ", " at byte ");
        self.damaged(&reason)
    }
}

/// Checks the whole export without storing records, so that a damaged file is detected before an import changes a store. Returns the
/// number of records.
///
/// # Errors
/// The first invalid line.
pub fn verify(input: impl BufRead, limits: Limits) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input, limits)?;
    while lines.next_record()?.is_some() {}
    Ok(lines.record_count)
}

/// Imports all records into the stores of `importer`. Each batch is durable before the next one is read.
///
/// # Errors
/// A line is invalid, or a store fails.
pub fn import(
    input: impl BufRead,
    limits: Limits,
    mut importer: Importer<'_>,
) -> Result<Imported, ImportError> {
    let mut lines = Lines::new(input, limits)?;
    while let Some(record) = lines.next_record()? {
        importer.add(record)?;
    }
    importer.finish()
}
