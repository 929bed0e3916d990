//! Writes the records of stores as JSON Lines, page by page, so that memory does not depend on their number.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;
use tidewire_core::store::{Loaded, StoreError, StoreReader, StoredRecord};

use super::{FORMAT, Footer, Header, Line, checksum, is_history, on_one_line};
use crate::check::Corrupt;
use crate::walk::Walk;

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Records that were written.
    pub record_count: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Records that do not pass their checksum. The export skips them.
    pub corrupt: Corrupt,
    /// Rows of event histories. The export skips them, because their offsets are valid only in their own store.
    pub history_count: u64,
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records exported in {} bytes, {} corrupt, {} history rows skipped{}",
            self.record_count, self.bytes, self.corrupt.count, self.history_count, self.corrupt
        )
    }
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store can't be read.
    #[error("the store can't be read: {0}")]
    Store(#[from] StoreError),
    /// The lines can't be written.
    #[error("the export can't be written: {0}")]
    Output(#[from] io::Error),
}

/// Writes all records of the stores, in their order, to `out`. Each record is the result of a complete commit. A record that changes
/// during the export may be the old or the new one.
///
/// # Errors
/// A store can't be read, or `out` can't be written. The last line is missing then.
pub fn export<'a>(
    readers: impl IntoIterator<Item = &'a mut dyn StoreReader>,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let mut out = Counted { out, bytes: 0 };
    let mut exported = Exported::default();
    let header = Header {
        tidewire_export: FORMAT,
        software: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write_line(&mut out, &header)?;
    for reader in readers {
        write_records(reader, &mut out, &mut exported)?;
    }
    let end = exported.record_count;
    write_line(&mut out, &Footer { end })?;
    out.flush()?;
    exported.bytes = out.bytes;
    Ok(exported)
}

fn write_records(
    reader: &mut dyn StoreReader,
    out: &mut dyn Write,
    exported: &mut Exported,
) -> Result<(), ExportError> {
    let mut walk = Walk::new();
    let mut page = Vec::new();
    loop {
        let seen = walk.next_page(reader, &mut |name, loaded| match loaded {
            Loaded::Corrupt => exported.corrupt.add(name.clone()),
            Loaded::Found(_) if is_history(name) => exported.history_count += 1,
            Loaded::Found(record) => page.push((name.clone(), record)),
            Loaded::Missing => {}
        })?;
        for (name, record) in page.drain(..) {
            write_record(out, &name, record)?;
            exported.record_count += 1;
        }
        if !seen.has_more {
            return Ok(());
        }
    }
}

fn write_record(out: &mut dyn Write, name: &str, record: StoredRecord) -> io::Result<()> {
    // The importing store makes a new incarnation, for which the keys of earlier writes have no meaning.
    let record = on_one_line(record);
    let data: &RawValue = serde_json::from_str(record.data.as_str())?;
    let line = Line {
        name: name.to_owned(),
        incarnation: Some(record.incarnation.0.to_string()),
        version: Some(record.version.0),
        checksum: Some(checksum(name, &record, None)),
        data,
    };
    write_line(out, &line)
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Counts the bytes that are written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
