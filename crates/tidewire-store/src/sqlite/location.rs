//! The location of the database, connections to it, and the meaning of their errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tidewire_core::store::{StoreError, StoreTrouble};

use super::super::folder::{self, FolderError};
use super::format::{FORMAT, meta};
use super::log::{CHECKPOINT_BYTES, Log, checkpoint};
use super::reader::SqliteReader;
use super::{FILE, SqliteOptions, failed_with};

/// The page cache of a connection, in KiB: enough for the upper levels of an index of millions of names.
pub(crate) const PAGE_CACHE_KIB: i64 = 4 << 10;

/// How long a connection waits for a lock. It waits only for a reader's transaction at a checkpoint and for a commit at a quarantine,
/// and both are short.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// If less than this is free, an I/O error means a full disk.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// The location of the database and the options for opening it.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) folder: PathBuf,
    pub(super) options: SqliteOptions,
}

impl Location {
    pub(super) fn new(folder: &Path, options: SqliteOptions) -> Self {
        Self {
            folder: folder.to_owned(),
            options,
        }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Makes all files of the database private to their owner.
    pub(super) fn make_private(&self) -> Result<(), FolderError> {
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

    pub(super) fn reader(&self) -> SqliteReader {
        SqliteReader::new(self.clone())
    }

    /// Refuses a newer format through a connection that can't change the files.
    pub(super) fn refuse_newer(&self) -> Result<(), FolderError> {
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

    pub(super) fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
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
    pub(super) fn connect_writer(&self, timeout: Duration) -> rusqlite::Result<Connection> {
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
    pub(super) fn refusal(&self, error: &rusqlite::Error) -> FolderError {
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

    pub(super) fn damaged(&self, cause: String) -> FolderError {
        FolderError::Damaged {
            path: self.folder.clone(),
            cause: format!("{FILE}: {cause}"),
        }
    }

    /// The error of an open store.
    pub(super) fn failure(&self, error: &rusqlite::Error) -> StoreError {
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
