//! Brings the records of an export into stores, line by line.

use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::ops::AddAssign;

use tidewire_core::json::{self, JsonLimits, Kind};
use tidewire_core::store::{Incarnation, StoreError, StoredRecord, Version};
use tidewire_core::text::{Name, Payload, RESERVED};

use super::importer::Importer;
use super::{FORMAT, Footer, Header, Line, checksum, is_history};

/// Bytes of a line beside its name and value.
const LINE_BYTES_BESIDE: usize = 1 << 10;
/// Bytes that a character of a name may become in JSON, for each of its own.
const ESCAPED_BYTES_MAX: usize = 6;
/// Bytes that the names of the server's own records may have beyond those of clients.
const RESERVED_BYTES_MAX: usize = 64;

/// What an imported record may be at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a name.
    pub name_bytes_max: usize,
    /// Bytes and nesting of a value.
    pub json: JsonLimits,
}

impl Limits {
    /// Bytes of a line.
    fn line_bytes_max(&self) -> usize {
        let name = (self.name_bytes_max + RESERVED_BYTES_MAX) * ESCAPED_BYTES_MAX;
        self.json.bytes_max + name + LINE_BYTES_BESIDE
    }

    /// A record that may be kept, or what is wrong with it.
    pub(super) fn check(
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
            Ok(Kind::Object | Kind::Array) => {}
            Ok(_) => return Err("the data are no object or array".to_owned()),
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

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records that were not there.
    pub added_count: u64,
    /// Records that took the place of others.
    pub replaced_count: u64,
    /// Records that were there already, version and value alike.
    pub unchanged_count: u64,
    /// Records that were there in another version or with another value, and stayed.
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

/// Why an import ended before its end. What was committed until then stays, and the import may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line is not what it should be.
    #[error("line {line}: {reason}")]
    Damaged {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Written by a newer version.
    #[error(
        "the export has format {found} and this version knows up to {FORMAT}; import it with a newer version"
    )]
    NewerFormat {
        /// Its format.
        found: u64,
    },
    /// The lines can't be read.
    #[error("the export can't be read: {0}")]
    Input(#[from] io::Error),
    /// A store fails.
    #[error("{done}, then the store failed: {error}; repeat the import when it is mended")]
    Store {
        /// What was done.
        done: Imported,
        /// What the store says.
        error: StoreError,
    },
}

/// The records of an export, checked one by one.
pub struct Lines<R> {
    input: R,
    limits: Limits,
    /// Lines that were read.
    line: u64,
    record_count: u64,
    buffer: Vec<u8>,
}

/// A record as a line gives it.
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
    /// It is not that of an export, or of a newer one.
    pub fn new(input: R, limits: Limits) -> Result<Self, ImportError> {
        let mut lines = Self {
            input,
            limits,
            line: 0,
            record_count: 0,
            buffer: Vec::new(),
        };
        let no_export = "no export: the first line should be {\"tidewire_export\":1}";
        if !lines.read_line()? {
            lines.line = 1;
            return Err(lines.damaged(no_export));
        }
        // Whatever a newer format has besides, it has its number there.
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

    /// The next record, none behind the last line.
    ///
    /// # Errors
    /// The line is damaged, or the last one is missing.
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
                "a row of a history of events, which only its own store can use".to_owned(),
            );
        }
        let version = Version(line.version.unwrap_or(1));
        let record = self.limits.check(&line.name, version, line.data.get())?;
        let incarnation = match &line.incarnation {
            Some(text) => text
                .parse()
                .map_err(|_| format!("the incarnation {text:?} is no number of 64 bits"))?,
            None => 0,
        };
        if let Some(expected) = line.checksum {
            let stored = StoredRecord {
                incarnation: Incarnation(incarnation),
                version,
                data: record.data.clone(),
            };
            let found = checksum(&record.name, &stored);
            if found != expected {
                return Err(format!(
                    "the checksum is {found}, not {expected} as the line says; leave it out where a line was changed on purpose"
                ));
            }
        }
        Ok(record)
    }

    /// Behind the last line there is nothing.
    fn end(&mut self) -> Result<(), ImportError> {
        let footer: Footer =
            serde_json::from_slice(&self.buffer).map_err(|error| self.malformed(&error))?;
        if footer.end != self.record_count {
            let (expected, found) = (footer.end, self.record_count);
            let reason = format!("the file should have {expected} records and has {found}");
            return Err(self.damaged(&reason));
        }
        match self.read_line()? {
            true => Err(self.damaged("something stands behind the last line")),
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
                "it has more than {bytes_max} bytes, what a record may have (limits.record_bytes_max)"
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
        // It counts the lines of what it was given, which is one.
        let text = error.to_string();
        let reason = text.replace(" at line 1 column ", " at byte ");
        self.damaged(&reason)
    }
}

/// Reads everything and keeps nothing, so that a damaged file is known before anything of it is in a store. How many
/// records it has.
///
/// # Errors
/// The first line that is damaged.
pub fn verify(input: impl BufRead, limits: Limits) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input, limits)?;
    while lines.next_record()?.is_some() {}
    Ok(lines.record_count)
}

/// Brings all records into the stores of `importer`. Each batch is durable before the next one is read.
///
/// # Errors
/// A line is damaged, or a store fails.
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
