//! The default store: one SQLite database in the data folder, in WAL mode, synced at every commit.
//!
//! `spec/store.md` describes the format. One connection writes. Each reader has its own connection and runs only short
//! transactions, so checkpoints can proceed and the log never grows far beyond [`CHECKPOINT_BYTES`].

pub mod quota;
#[cfg(test)]
mod reopened;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{
    CachedStatement, Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction,
    TransactionBehavior, params,
};
use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Opened, QuotaState, Store, StoreChange, StoreError, StoreReader,
    StoreTrouble, StoreWrite, StoredRecord, Term, Version, Written,
};
use tidewire_core::text::{Name, Payload};

use super::check::{CheckReport, check_records};
use super::folder::{self, DataFolder, FolderError};
use super::range::ScanRange;
use super::row_id::RowIds;
use super::{checksum, epoch_after};
use quota::{Charges, Quota, Usage};

/// The version of the stored format, see `spec/store.md`.
pub const FORMAT: i64 = 2;

/// The database within the data folder. SQLite keeps its log and the log's index in the same folder.
pub const FILE: &str = "records.sqlite";

/// When this much of the log is in use, a checkpoint moves it into the database, and the log restarts from its beginning. Every start
/// reads the log once, so this also limits the time of a start after a crash. The larger it is, the fewer pages are written twice.
/// The file keeps this size, because a sync takes twice as long if it has to extend the file.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// The same limit after large commits. They write each page once, so a longer log would save nothing, and moving all of it into the
/// database at once would delay the next commit by tens of milliseconds.
const CHECKPOINT_BYTES_LARGE: u64 = 4 << 20;
/// A commit that writes at least this many bytes of log pages is large.
const LARGE_COMMIT_BYTES: u64 = 256 << 10;

/// Bytes of the header that precedes each page in the log.
const FRAME_HEAD_BYTES: u64 = 24;

/// The page cache of a connection, in KiB: enough for the upper levels of an index of millions of names.
pub(super) const PAGE_CACHE_KIB: i64 = 8 << 10;

/// How long a connection waits for a lock. It waits only for a reader's transaction at a checkpoint and for a commit at a quarantine,
/// and both are short.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a checkpoint between commits waits for readers. Loads and pages of scans take milliseconds. A backup takes longer, and the
/// checkpoint does not wait for it.
const TIDY_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a start waits for a backup that was started while an earlier server was running.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of names that one read transaction looks up, which keeps these transactions short.
const LOAD_COUNT_MAX: usize = 256;

/// If less than this is free, an I/O error means a full disk.
const FREE_BYTES_MIN: u64 = 1 << 20;

const SCHEMA: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE records (
        name TEXT PRIMARY KEY,
        incarnation INTEGER NOT NULL,
        version INTEGER NOT NULL,
        data TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        writer TEXT
    ) STRICT;
    CREATE TABLE quarantine (
        name TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        version INTEGER NOT NULL,
        data TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (name, incarnation, version)
    ) STRICT;
    INSERT INTO meta VALUES ('format', 2), ('epoch', 0), ('opening', 0), ('clean', 0);";

/// The upgrade of a database from format 1 to format 2.
const ADD_WRITER: &str = "ALTER TABLE records ADD COLUMN writer TEXT";

const PUT: &str =
    "INSERT INTO records (name, incarnation, version, data, checksum, writer) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, version = excluded.version,
        data = excluded.data, checksum = excluded.checksum, writer = excluded.writer";
const ADD: &str =
    "INSERT INTO records (name, incarnation, version, data, checksum, writer) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (name) DO NOTHING";
const REPLACE: &str =
    "UPDATE records SET incarnation = ?2, version = ?3, data = ?4, checksum = ?5, writer = ?6
    WHERE name = ?1 AND incarnation = ?7 AND version = ?8";
const REPLACE_AT: &str =
    "UPDATE records SET incarnation = ?2, version = ?3, data = ?4, checksum = ?5, writer = ?6
    WHERE rowid = ?9 AND name = ?1 AND incarnation = ?7 AND version = ?8";
const FIND: &str = "SELECT rowid FROM records WHERE name = ?1";
const HEAD: &str = "SELECT incarnation, version FROM records WHERE name = ?1";
const DELETE: &str = "DELETE FROM records WHERE name = ?1";
const LOAD: &str = "SELECT name, incarnation, version, data, checksum FROM records WHERE name = ?1";
const SCAN: &str = "SELECT name, incarnation, version, data, checksum FROM records
    WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3";
const QUARANTINE: &str =
    "INSERT OR IGNORE INTO quarantine (name, incarnation, version, data, checksum)
    SELECT name, incarnation, version, data, checksum FROM records WHERE name = ?1";

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When it is synced to disk.
    #[default]
    Full,
    /// When the kernel has it. A power cut then loses acknowledged writes. Only servers of the torture test use this, to prove that the
    /// power-cut tests detect such a loss.
    Off,
}

/// Options of the SQLite store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Maximum size of the database in bytes; further writes fail as on a full disk. No limit by default.
    pub bytes_max: Option<u64>,
    /// When a commit counts as done.
    pub sync: Sync,
    /// The quotas of the database and of each user.
    pub quota: Quota,
}

/// Checks every record in a folder. Does not count as an opening, so the epoch stays.
///
/// # Errors
/// There is no store, or it can't be read.
pub fn check(folder: &DataFolder) -> Result<CheckReport, FolderError> {
    let mut reader = reader(folder.path())?;
    reader
        .check()
        .map_err(|error| reader.location.damaged(error.message))
}

/// A reader of the store in a folder. It does not open the store, so a running server can continue to use it.
///
/// # Errors
/// There is no store, or one of a newer version.
pub fn reader(folder: &Path) -> Result<SqliteReader, FolderError> {
    let location = Location::new(folder, SqliteOptions::default());
    if !location.file().exists() {
        return Err(FolderError::NoStore {
            path: location.folder,
        });
    }
    location.refuse_newer()?;
    Ok(location.reader())
}

/// The writing connection of the store.
pub struct SqliteStore {
    location: Location,
    opened: Opened,
    /// `None` after a failed commit, until the next one.
    connection: Option<Connection>,
    closed: bool,
    rows: RowIds,
    usage: Usage,
    /// The size of the log after the previous commit.
    log_bytes: u64,
    /// Bytes that the last checkpoint left in the log because a reader blocked it. The store tries the next checkpoint when the
    /// log has grown beyond them by the usual limit.
    kept_log_bytes: u64,
}

impl SqliteStore {
    /// Opens the store of a folder, or creates it. On return, all commits of earlier processes are in the database and synced.
    ///
    /// # Errors
    /// The folder holds a newer or damaged store, or the disk is full.
    pub fn open(
        folder: &DataFolder,
        options: SqliteOptions,
    ) -> Result<(Self, Opened), FolderError> {
        let location = Location::new(folder.path(), options);
        location.refuse_newer()?;
        location.make_private()?;
        let start = || -> rusqlite::Result<_> {
            let mut connection = location.connect_writer(START_TIMEOUT)?;
            let opened = begin(&mut connection)?;
            let usage = Usage::of(&connection, location.options.quota)?;
            Ok((connection, opened, usage))
        };
        let (connection, opened, usage) = start().map_err(|error| location.refusal(&error))?;
        folder::sync(folder.path()).map_err(|error| location.damaged(error.to_string()))?;
        let store = Self {
            location,
            opened,
            connection: Some(connection),
            closed: false,
            rows: RowIds::default(),
            usage,
            log_bytes: 0,
            kept_log_bytes: 0,
        };
        Ok((store, opened))
    }

    /// The connection. If the last one was dropped, opens a new one and checks that the database is still the same.
    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reopen()?,
        };
        Ok(self.connection.insert(connection))
    }

    fn reopen(&self) -> Result<Connection, StoreError> {
        let open = || -> rusqlite::Result<_> {
            let connection = self.location.connect_writer(BUSY_TIMEOUT)?;
            let found = Opened {
                epoch: Epoch(meta(&connection, "epoch")?.cast_unsigned()),
                opening: meta(&connection, "opening")?.cast_unsigned(),
            };
            Ok((connection, found))
        };
        let (connection, found) = open().map_err(|error| self.location.failure(&error))?;
        if found != self.opened {
            let message = format!("{FILE} was replaced while it was in use");
            return Err(StoreError::unavailable(message));
        }
        Ok(connection)
    }

    /// Runs `work`. If it fails, drops the connection, because its state can no longer be trusted.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let failed = match work(self.connection()?) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if let Some(connection) = self.connection.take() {
            abandon(connection);
        }
        Err(self.location.failure(&failed))
    }
}

impl Store for SqliteStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(self.location.reader()))
    }

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        // The folder is locked, so no other server can have opened the store.
        let newest = self.opened.term();
        if term < newest {
            return Err(StoreError::stale_term(term, newest));
        }
        let mut rows = std::mem::take(&mut self.rows);
        let counts_users = self.usage.counts_users();
        let written = self.attempt(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (written, charges) = {
                let mut statements = Statements::prepare(&transaction, &mut rows)?;
                let mut charges = match counts_users {
                    true => Some(Charges::prepare(&transaction)?),
                    false => None,
                };
                let mut written = Vec::with_capacity(writes.len());
                for write in writes {
                    written.push(statements.write(write, charges.as_mut())?);
                }
                (written, charges.map(Charges::into_charges))
            };
            transaction.commit()?;
            Ok((written, charges))
        });
        self.rows = rows;
        let (written, charges) = written?;
        self.usage.charge_all(charges.unwrap_or_default());
        Ok(written)
    }

    fn quota(&mut self) -> Option<QuotaState> {
        // After a failed commit there is no connection, and the next commit measures again.
        if let Some(connection) = &self.connection {
            // If the measurement fails, the last values stay.
            let _ = self.usage.measure(connection);
        }
        let quota = self.location.options.quota;
        Some(QuotaState {
            used_bytes: self.usage.used_bytes(),
            bytes_max: quota.store_bytes_max,
            full_users: self.usage.full_users(),
            changes: self.usage.take_changes(),
        })
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        // After a failed commit there is no connection, and the next one starts with a checkpoint.
        if self.connection.is_none() {
            return Ok(());
        }
        let (before, kept) = (self.log_bytes, self.kept_log_bytes);
        (self.log_bytes, self.kept_log_bytes) = self.attempt(|connection| {
            let log_bytes = log_bytes(connection)?;
            let bytes_max = match log_bytes.saturating_sub(before) >= LARGE_COMMIT_BYTES {
                true => CHECKPOINT_BYTES_LARGE,
                false => CHECKPOINT_BYTES,
            };
            if log_bytes < bytes_max + kept {
                return Ok((log_bytes, kept));
            }
            connection.busy_timeout(TIDY_TIMEOUT)?;
            let done = unless_busy(checkpoint(connection, Log::FromItsStart));
            connection.busy_timeout(BUSY_TIMEOUT)?;
            // A reader that blocks the checkpoint is not a failure, but the next commits should not wait for it again at once.
            Ok((log_bytes, if done? { 0 } else { log_bytes }))
        })?;
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.attempt(|connection| {
            set_meta(connection, "clean", 1)?;
            // The mark is synced in the log. If a backup blocks the checkpoint, the next opening moves the rest of the log.
            unless_busy(checkpoint(connection, Log::Emptied))
        })?;
        self.closed = true;
        self.connection = None;
        Ok(())
    }
}

/// The statements of a commit.
struct Statements<'transaction> {
    rows: &'transaction mut RowIds,
    put: CachedStatement<'transaction>,
    add: CachedStatement<'transaction>,
    replace: CachedStatement<'transaction>,
    replace_at: CachedStatement<'transaction>,
    find: CachedStatement<'transaction>,
    delete: CachedStatement<'transaction>,
    head: CachedStatement<'transaction>,
    load: CachedStatement<'transaction>,
}

impl<'transaction> Statements<'transaction> {
    fn prepare(
        transaction: &'transaction Transaction<'_>,
        rows: &'transaction mut RowIds,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            rows,
            put: transaction.prepare_cached(PUT)?,
            add: transaction.prepare_cached(ADD)?,
            replace: transaction.prepare_cached(REPLACE)?,
            replace_at: transaction.prepare_cached(REPLACE_AT)?,
            find: transaction.prepare_cached(FIND)?,
            delete: transaction.prepare_cached(DELETE)?,
            head: transaction.prepare_cached(HEAD)?,
            load: transaction.prepare_cached(LOAD)?,
        })
    }

    fn write(
        &mut self,
        write: &StoreWrite,
        mut charges: Option<&mut Charges<'_>>,
    ) -> rusqlite::Result<Written> {
        let before = match &mut charges {
            Some(charges) => charges.find(&write.name)?,
            None => None,
        };
        let writer = write.writer.as_ref().map(Name::as_str);
        let is_written = match &write.change {
            StoreChange::Put(record) => self.put(&write.name, write.expected, record, writer)?,
            StoreChange::Delete => {
                let is_met = self.is_met(&write.name, write.expected)?;
                if is_met {
                    self.delete.execute([write.name.as_str()])?;
                }
                is_met
            }
        };
        if is_written && let Some(charges) = charges {
            charges.add(write, before);
        }
        if is_written || self.is_done(write)? {
            Ok(Written::Done)
        } else {
            Ok(Written::Refused)
        }
    }

    /// Writes a record if the stored state is the expected one. Returns whether it has written the record. As for a delete, a damaged row
    /// is the expected one if its incarnation and version match.
    fn put(
        &mut self,
        name: &Name,
        expected: Expected,
        record: &StoredRecord,
        writer: Option<&str>,
    ) -> rusqlite::Result<bool> {
        let (incarnation, version) = (record.incarnation.0.cast_signed(), record.version.0);
        let (data, checksum) = (record.data.as_str(), checksum(name, record));
        let name_text = name.as_str();
        let rows = match expected {
            Expected::Anything | Expected::Missing => {
                let statement = match expected {
                    Expected::Missing => &mut self.add,
                    _ => &mut self.put,
                };
                statement.execute(params![
                    name_text,
                    incarnation,
                    version,
                    data,
                    checksum,
                    writer
                ])?
            }
            Expected::At(was, at) => {
                let (was, at) = (was.0.cast_signed(), at.0);
                let mut rows = 0;
                if let Some(row) = self.row_of(name)? {
                    rows = self.replace_at.execute(params![
                        name_text,
                        incarnation,
                        version,
                        data,
                        checksum,
                        writer,
                        was,
                        at,
                        row
                    ])?;
                }
                // The record is in another row now, or is not the expected one.
                if rows == 0 {
                    rows = self.replace.execute(params![
                        name_text,
                        incarnation,
                        version,
                        data,
                        checksum,
                        writer,
                        was,
                        at
                    ])?;
                    if rows > 0 {
                        self.find_row(name)?;
                    }
                }
                rows
            }
        };
        Ok(rows > 0)
    }

    /// The row of the record, or its row at the last write.
    fn row_of(&mut self, name: &Name) -> rusqlite::Result<Option<i64>> {
        match self.rows.of(name) {
            Some(row) => Ok(Some(row)),
            None => self.find_row(name),
        }
    }

    /// Looks up the row of the record and remembers it.
    fn find_row(&mut self, name: &Name) -> rusqlite::Result<Option<i64>> {
        let row = self.find.query_row([name.as_str()], |row| row.get(0));
        let row = row.optional()?;
        if let Some(row) = row {
            self.rows.note(name, row);
        }
        Ok(row)
    }

    /// Whether the stored state is the expected one. A damaged row is the expected one if its incarnation and version match: the owner has
    /// the record in memory and replaces the row with a sound one.
    fn is_met(&mut self, name: &str, expected: Expected) -> rusqlite::Result<bool> {
        if expected == Expected::Anything {
            return Ok(true);
        }
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let head = self.head.query_row([name], read).optional()?;
        Ok(match expected {
            Expected::Anything => true,
            Expected::Missing => head.is_none(),
            Expected::At(incarnation, version) => {
                head == Some((incarnation.0.cast_signed(), version.0.into()))
            }
        })
    }

    fn is_done(&mut self, write: &StoreWrite) -> rusqlite::Result<bool> {
        let mut rows = self.load.query([write.name.as_str()])?;
        let stored = match rows.next()? {
            Some(row) => match loaded_from(row)? {
                Loaded::Found(record) => Some(record),
                Loaded::Missing | Loaded::Corrupt => return Ok(false),
            },
            None => None,
        };
        Ok(write.change.is_done(stored.as_ref()))
    }
}

/// The location of the database and the options for opening it.
#[derive(Clone)]
struct Location {
    folder: PathBuf,
    options: SqliteOptions,
}

impl Location {
    fn new(folder: &Path, options: SqliteOptions) -> Self {
        Self {
            folder: folder.to_owned(),
            options,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Makes all files of the database private to their owner.
    fn make_private(&self) -> Result<(), FolderError> {
        let file = self.file();
        let others = ["-wal", "-shm"].map(|end| self.folder.join(format!("{FILE}{end}")));
        folder::make_private(&file)
            .and_then(|()| {
                others
                    .iter()
                    .try_for_each(|file| folder::keep_private(file))
            })
            .map_err(|error| FolderError::NotWritable {
                path: self.folder.clone(),
                cause: format!("{FILE}: {error}"),
            })
    }

    fn reader(&self) -> SqliteReader {
        SqliteReader {
            location: self.clone(),
            connection: None,
        }
    }

    /// Refuses a newer format through a connection that can't change the files.
    fn refuse_newer(&self) -> Result<(), FolderError> {
        if !self.file().exists() {
            return Ok(());
        }
        let read_version = || -> rusqlite::Result<i64> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(self.file(), flags)?;
            let is_empty =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
                    row.get::<_, i64>(0)
                })? == 0;
            if is_empty {
                return Ok(FORMAT);
            }
            meta(&connection, "format")
        };
        match read_version() {
            Ok(found) if found > FORMAT => Err(FolderError::NewerFormat {
                path: self.folder.clone(),
                found,
                known: FORMAT,
            }),
            Ok(_) => Ok(()),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.file(), flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "cache_size", -PAGE_CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.pragma_update(None, "synchronous", self.options.synchronous())?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // If the log has grown during a backup, SQLite truncates it to this size when the log restarts.
        connection.pragma_update(None, "journal_size_limit", CHECKPOINT_BYTES.cast_signed())?;
        Ok(connection)
    }

    /// Opens the database for writing and moves the whole log into it before any other work.
    ///
    /// After a failed sync, the end of the log may exist only in the page cache. The kernel would not write those pages again, and a
    /// power cut would end the log there, before later commits. The checkpoint writes and syncs those pages in the database, and
    /// the log restarts empty. The checkpoint waits up to `timeout` for readers.
    fn connect_writer(&self, timeout: Duration) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = self.connect(flags)?;
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        if mode != "wal" {
            return Err(failed_with(
                rusqlite::ffi::SQLITE_CANTOPEN,
                "the file system has no room for the index of a write-ahead log",
            ));
        }
        if let Some(bytes_max) = self.options.bytes_max {
            let page_bytes: i64 =
                connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages_max = i64::try_from(bytes_max).unwrap_or(i64::MAX) / page_bytes;
            connection
                .pragma_update_and_check(None, "max_page_count", pages_max.max(1), |_| Ok(()))?;
        }
        connection.busy_timeout(timeout)?;
        checkpoint(&connection, Log::Emptied)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    /// Why the store can't be opened.
    fn refusal(&self, error: &rusqlite::Error) -> FolderError {
        let path = self.folder.clone();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => FolderError::Full { path },
            Some(ErrorCode::SystemIoFailure) if self.is_full() => FolderError::Full { path },
            Some(ErrorCode::DatabaseBusy) => FolderError::Busy { path },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                FolderError::NotWritable {
                    path,
                    cause: error.to_string(),
                }
            }
            _ => self.damaged(error.to_string()),
        }
    }

    fn damaged(&self, cause: String) -> FolderError {
        FolderError::Damaged {
            path: self.folder.clone(),
            cause: format!("{FILE}: {cause}"),
        }
    }

    /// The error of an open store.
    fn failure(&self, error: &rusqlite::Error) -> StoreError {
        let full = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => true,
            Some(ErrorCode::SystemIoFailure) => self.is_full(),
            _ => false,
        };
        StoreError {
            message: format!("{}: {error}", self.file().display()),
            trouble: if full {
                StoreTrouble::Full
            } else {
                StoreTrouble::Unavailable
            },
        }
    }

    fn is_full(&self) -> bool {
        folder::has_less_than(&self.folder, FREE_BYTES_MIN)
    }
}

impl SqliteOptions {
    fn synchronous(&self) -> &'static str {
        match self.sync {
            Sync::Full => "FULL",
            Sync::Off => "OFF",
        }
    }
}

/// A reading connection of the store, opened at its first use and again after an error.
pub struct SqliteReader {
    location: Location,
    connection: Option<Connection>,
}

impl SqliteReader {
    /// Checks every record and the structure of the database.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn check(&mut self) -> Result<CheckReport, StoreError> {
        let mut report = check_records(self)?;
        self.attempt(|connection| {
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

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let attempt = || {
            let connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.location.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?,
            };
            let connection = self.connection.insert(connection);
            work(connection)
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
        let copied = self.attempt(|connection| connection.execute(QUARANTINE, [name]));
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
            self.attempt(|connection| {
                let transaction = connection.transaction()?;
                let mut load = transaction.prepare_cached(LOAD)?;
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
        let more = self.attempt(|connection| {
            let mut scan = connection.prepare_cached(SCAN)?;
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
}

/// Reads a row of name, incarnation, version, data and checksum. If the record does not pass its checksum, it is corrupt.
fn loaded_from(row: &Row<'_>) -> rusqlite::Result<Loaded> {
    let (Ok(name), Ok(data)) = (
        std::str::from_utf8(text(row, 0)?),
        std::str::from_utf8(text(row, 3)?),
    ) else {
        return Ok(Loaded::Corrupt);
    };
    let Ok(version) = u32::try_from(row.get::<_, i64>(2)?) else {
        return Ok(Loaded::Corrupt);
    };
    let record = StoredRecord {
        incarnation: Incarnation(row.get::<_, i64>(1)?.cast_unsigned()),
        version: Version(version),
        data: Payload::from_checked(data),
    };
    if row.get::<_, i64>(4)? == i64::from(checksum(name, &record)) {
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

/// Stores the opening in the database, synced, and returns it. Creates the tables in an empty database.
fn begin(connection: &mut Connection) -> rusqlite::Result<Opened> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(SCHEMA)?;
    } else if meta(&transaction, "format")? < FORMAT {
        transaction.execute_batch(ADD_WRITER)?;
        set_meta(&transaction, "format", FORMAT)?;
    }
    let mut epoch = Epoch(meta(&transaction, "epoch")?.cast_unsigned());
    if meta(&transaction, "clean")? == 0 {
        epoch = epoch_after(epoch);
    }
    let opening = meta(&transaction, "opening")?.cast_unsigned() + 1;
    set_meta(&transaction, "epoch", epoch.0.cast_signed())?;
    set_meta(&transaction, "opening", opening.cast_signed())?;
    set_meta(&transaction, "clean", 0)?;
    transaction.commit()?;
    Ok(Opened { epoch, opening })
}

pub(super) fn meta(connection: &Connection, key: &str) -> rusqlite::Result<i64> {
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
        row.get(0)
    })
}

pub(super) fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .execute(
            "UPDATE meta SET value = ?2 WHERE key = ?1",
            params![key, value],
        )
        .map(|_| ())
}

/// Bytes of the log that are in use. Reads only the log's index.
fn log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let frames: i64 = connection
        .prepare_cached("PRAGMA wal_checkpoint(NOOP)")?
        .query_row([], |row| row.get(1))?;
    let page: i64 = connection
        .prepare_cached("PRAGMA page_size")?
        .query_row([], |row| row.get(0))?;
    Ok(frames.max(0).cast_unsigned() * (page.cast_unsigned() + FRAME_HEAD_BYTES))
}

/// How a checkpoint leaves the log's file.
#[derive(Clone, Copy, Debug)]
enum Log {
    /// At its size; the next commit overwrites it from its start.
    FromItsStart,
    /// Empty.
    Emptied,
}

/// Moves the whole log into the database, synced.
fn checkpoint(connection: &Connection, log: Log) -> rusqlite::Result<()> {
    let checkpoint = match log {
        Log::FromItsStart => "PRAGMA wal_checkpoint(RESTART)",
        Log::Emptied => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let busy: i64 = connection.query_row(checkpoint, [], |row| row.get(0))?;
    if busy == 0 {
        return Ok(());
    }
    Err(failed_with(
        rusqlite::ffi::SQLITE_BUSY,
        "a reader blocks the checkpoint of the log",
    ))
}

/// Whether a checkpoint was done; false if a reader has blocked it.
fn unless_busy(done: rusqlite::Result<()>) -> rusqlite::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The error for a failure that SQLite reports only in a row.
pub(super) fn failed_with(code: i32, message: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(code);
    rusqlite::Error::SqliteFailure(code, Some(message.to_owned()))
}

/// Drops a connection without the checkpoint that SQLite does when the last connection closes. After a failed sync, that checkpoint
/// would trust pages that never reached the disk.
fn abandon(connection: Connection) {
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    // Even if closing fails, it releases the descriptors, so the error does not matter.
    let _ = connection.close();
}
