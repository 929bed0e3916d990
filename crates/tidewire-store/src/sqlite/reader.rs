//! Reads of the store: loads, scans, checks, and the quarantine of corrupt records.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, params};
use tidewire_core::store::{
    Incarnation, IndexEnd, IndexRead, Loaded, StoreError, StoreReader, StoredRecord, Version,
};
use tidewire_core::text::{Name, Payload};

use super::super::check::{CheckReport, check_records};
use super::super::checksum;
use super::super::range::ScanRange;
use super::super::write_keys;
use super::abandon;
use super::format::has_write_keys;
use super::indexes;
use super::location::Location;

/// Maximum number of names that one read transaction looks up, which keeps these transactions short.
const LOAD_COUNT_MAX: usize = 256;

pub(super) const LOAD: &str =
    "SELECT name, incarnation, version, data, checksum, write_keys FROM records WHERE name = ?1";
const SCAN: &str = "SELECT name, incarnation, version, data, checksum, write_keys FROM records
    WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3";
/// The same for a format without write keys.
const LOAD_WITHOUT_KEYS: &str =
    "SELECT name, incarnation, version, data, checksum, NULL FROM records WHERE name = ?1";
const SCAN_WITHOUT_KEYS: &str =
    "SELECT name, incarnation, version, data, checksum, NULL FROM records
    WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3";
const QUARANTINE: &str =
    "INSERT OR IGNORE INTO quarantine (name, incarnation, version, data, checksum)
    SELECT name, incarnation, version, data, checksum FROM records WHERE name = ?1";

/// A reading connection of the store, opened at its first use and again after an error.
pub struct SqliteReader {
    pub(super) location: Location,
    connection: Option<Connection>,
    /// Whether the records are known to have write keys.
    has_write_keys: bool,
}

impl SqliteReader {
    pub(super) fn new(location: Location) -> Self {
        Self {
            location,
            connection: None,
            has_write_keys: false,
        }
    }

    /// Checks every record and the structure of the database.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn check(&mut self) -> Result<CheckReport, StoreError> {
        let mut report = check_records(self)?;
        self.attempt(|connection, _| {
            report.quarantined_count = connection
                .query_row("SELECT count(*) FROM quarantine", [], |row| {
                    row.get::<_, i64>(0)
                })?
                .cast_unsigned();
            let mut lines = connection.prepare("PRAGMA integrity_check")?;
            let lines = lines.query_map([], |row| row.get::<_, String>(0))?;
            report.structure = lines
                .filter(|line| line.as_deref() != Ok("ok"))
                .collect::<rusqlite::Result<_>>()?;
            Ok(())
        })?;
        Ok(report)
    }

    /// Runs `work` with the connection, and with whether the records have write keys.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, bool) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let attempt = || {
            let connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.location.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?,
            };
            let connection = self.connection.insert(connection);
            // A server may open the folder, and so upgrade it, while another program reads it.
            self.has_write_keys = self.has_write_keys || has_write_keys(connection)?;
            work(connection, self.has_write_keys)
        };
        attempt().map_err(|error| {
            if let Some(connection) = self.connection.take() {
                abandon(connection);
            }
            self.location.failure(&error)
        })
    }

    /// Copies a corrupt record into the table `quarantine`, so that a later write of the name does not destroy the remains.
    fn quarantine(&mut self, name: &str) {
        // If this fails, the record stays corrupt, and the next load tries again.
        let copied = self.attempt(|connection, _| connection.execute(QUARANTINE, [name]));
        // Logs only the first copy, because any client can request the record repeatedly.
        if copied.is_ok_and(|rows| rows > 0) {
            tracing::error!(
                record = name,
                "a stored record does not pass its checksum and is not served; restore it from a backup"
            );
        }
    }
}

impl StoreReader for SqliteReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(LOAD_COUNT_MAX) {
            self.attempt(|connection, has_write_keys| {
                let transaction = connection.transaction()?;
                let mut load = transaction.prepare_cached(match has_write_keys {
                    true => LOAD,
                    false => LOAD_WITHOUT_KEYS,
                })?;
                for name in names {
                    let mut rows = load.query([name.as_str()])?;
                    found.push(match rows.next()? {
                        Some(row) => loaded_from(row)?,
                        None => Loaded::Missing,
                    });
                }
                Ok(())
            })?;
        }
        for (name, loaded) in names.iter().zip(&found) {
            if *loaded == Loaded::Corrupt {
                self.quarantine(name);
            }
        }
        Ok(found)
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let range = ScanRange::new(prefix, after, count_max);
        // SQLite orders every text before every blob, so an empty blob is an end after all names.
        let first = range.first();
        let end = range.end.map_or(Value::Blob(Vec::new()), Value::Text);
        let mut corrupt = Vec::new();
        let more = self.attempt(|connection, has_write_keys| {
            let mut scan = connection.prepare_cached(match has_write_keys {
                true => SCAN,
                false => SCAN_WITHOUT_KEYS,
            })?;
            let mut rows = scan.query(params![first, end, range.limit])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                if count == count_max {
                    return Ok(true);
                }
                count += 1;
                let name = Name::from(&*String::from_utf8_lossy(text(row, 0)?));
                let loaded = loaded_from(row)?;
                if loaded == Loaded::Corrupt {
                    corrupt.push(name.clone());
                }
                visit(name, loaded);
            }
            Ok(false)
        })?;
        for name in &corrupt {
            self.quarantine(name);
        }
        Ok(more)
    }

    fn read_index(
        &mut self,
        read: &IndexRead,
        visit: &mut dyn FnMut(&[u8], &str),
    ) -> Result<IndexEnd, StoreError> {
        self.attempt(|connection, _| indexes::read(connection, read, visit))
    }
}

/// Reads a row of name, incarnation, version, data, checksum and write keys. If the record does not pass its checksum, it is corrupt.
pub(super) fn loaded_from(row: &Row<'_>) -> rusqlite::Result<Loaded> {
    let (Ok(name), Ok(data)) = (
        std::str::from_utf8(text(row, 0)?),
        std::str::from_utf8(text(row, 3)?),
    ) else {
        return Ok(Loaded::Corrupt);
    };
    let Ok(version) = u32::try_from(row.get::<_, i64>(2)?) else {
        return Ok(Loaded::Corrupt);
    };
    let Ok(keys_text) = std::str::from_utf8(text(row, 5)?) else {
        return Ok(Loaded::Corrupt);
    };
    // A null has no bytes, and no stored text is empty.
    let keys_text = Some(keys_text).filter(|text| !text.is_empty());
    let Some(write_keys) = write_keys::of_row(keys_text) else {
        return Ok(Loaded::Corrupt);
    };
    let record = StoredRecord {
        incarnation: Incarnation(row.get::<_, i64>(1)?.cast_unsigned()),
        version: Version(version),
        data: Payload::from_checked(data),
        write_keys,
    };
    if row.get::<_, i64>(4)? == i64::from(checksum(name, &record, keys_text)) {
        Ok(Loaded::Found(record))
    } else {
        Ok(Loaded::Corrupt)
    }
}

/// The bytes of a text. In a damaged row they may not be UTF-8.
fn text<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<&'row [u8]> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes),
        _ => Ok(&[]),
    }
}
