//! The default store: one SQLite database in the data folder, in WAL mode, synced at every commit.
//!
//! `spec/store.md` describes the format. One connection writes. Each reader has its own connection and runs only short
//! transactions, so checkpoints can proceed and the log rarely grows far beyond [`log::CHECKPOINT_BYTES`].

mod format;
mod indexes;
mod location;
mod log;
pub mod quota;
mod reader;
#[cfg(test)]
mod reopened;
mod statements;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};
use tidewire_core::address::Epoch;
use tidewire_core::store::{
    IndexBuild, MemberId, Opened, QuotaState, Store, StoreError, StoreReader, StoreWrite, View,
    Written,
};

use super::check::CheckReport;
use super::folder::{self, DataFolder, FolderError};
use super::recent::Recent;
use format::begin;
use indexes::Indexes;
use location::{BUSY_TIMEOUT, Location};
use log::{CHECKPOINT_BYTES, CheckpointSize, Log, LogUse, checkpoint, move_unread, unless_busy};
use quota::{Charges, Quota, Usage};
use statements::Statements;

pub use format::FORMAT;
pub(crate) use format::{meta, set_meta};
pub(crate) use location::PAGE_CACHE_KIB;
pub use reader::SqliteReader;

/// The database within the data folder. SQLite keeps its log and the log's index in the same folder.
pub const FILE: &str = "records.sqlite";

/// If readers that overlap have kept the log from restarting until it has this size, a checkpoint waits for them.
const WAITING_BYTES: u64 = 4 * CHECKPOINT_BYTES;
/// How long that checkpoint waits. Loads and pages of scans take milliseconds. A backup takes longer, and the checkpoint does not wait
/// for its end.
const WAITING_TIME: Duration = Duration::from_millis(200);

/// How long a start waits for a backup that was started while an earlier server was running.
const START_TIMEOUT: Duration = Duration::from_secs(30);

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
    rows: Recent<i64>,
    usage: Usage,
    indexes: Indexes,
    /// The log after the previous commit, and after the checkpoint that followed it.
    log: LogUse,
    /// Bytes that the last checkpoint did not move because of a reader. The store tries the next checkpoint when the usual limit has
    /// been written in addition to them.
    blocked_bytes: u64,
    /// The size of the log at which a checkpoint waits for readers.
    waiting_bytes: u64,
    checkpoint_size: CheckpointSize,
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
            let indexes = Indexes::of(&connection)?;
            Ok((connection, opened, usage, indexes))
        };
        let (connection, opened, usage, indexes) =
            start().map_err(|error| location.refusal(&error))?;
        folder::sync(folder.path()).map_err(|error| location.damaged(error.to_string()))?;
        let store = Self {
            location,
            opened,
            connection: Some(connection),
            closed: false,
            rows: Recent::default(),
            usage,
            indexes,
            log: LogUse::default(),
            blocked_bytes: 0,
            waiting_bytes: WAITING_BYTES,
            checkpoint_size: CheckpointSize::new(),
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

    /// Moves the whole log into the database and restarts it, after the readers of the log have ended.
    fn move_after_readers(&mut self, log: LogUse) -> Result<LogUse, StoreError> {
        let (is_done, log_after) = self.attempt(|connection| {
            connection.busy_timeout(WAITING_TIME)?;
            let done = unless_busy(checkpoint(connection, Log::FromItsStart));
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok((done?, LogUse::of(connection)?))
        })?;
        // A reader that stays, such as a backup, is not a failure, but the next commits should not wait for it again at once.
        if !is_done {
            self.waiting_bytes = log.bytes + WAITING_BYTES;
        }
        Ok(log_after)
    }
}

impl Store for SqliteStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(self.location.reader()))
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        // The folder is locked, so no other server can have opened the store.
        let current = self.opened.view();
        if (view, member) != (current, self.opened.member()) {
            return Err(StoreError::stale_view(view, current, false));
        }
        let mut rows = std::mem::take(&mut self.rows);
        let mut indexes = std::mem::take(&mut self.indexes);
        let counts_users = self.usage.counts_users();
        let written = self.attempt(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (written, charges) = {
                let keeper = indexes.keeper(&transaction)?;
                let mut statements = Statements::prepare(&transaction, &mut rows, keeper)?;
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
        self.indexes = indexes;
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
        let log = self.attempt(|connection| LogUse::of(connection))?;
        let commit_bytes = log.commit_bytes(self.log);
        let bytes_max = self.checkpoint_size.bytes_max_after(commit_bytes);
        self.log = log;
        if log.bytes < WAITING_BYTES {
            self.waiting_bytes = WAITING_BYTES;
        }
        if log.unmoved() < bytes_max + self.blocked_bytes {
            return Ok(());
        }
        let began = Instant::now();
        self.log = match log.bytes < self.waiting_bytes {
            true => self.attempt(|connection| move_unread(connection))?,
            false => self.move_after_readers(log)?,
        };
        self.blocked_bytes = self.log.unmoved();
        if self.blocked_bytes == 0 && bytes_max < CHECKPOINT_BYTES {
            self.checkpoint_size.adapt(began.elapsed());
        }
        Ok(())
    }

    fn set_indexes(&mut self, definitions: &[Arc<str>]) -> Result<(), StoreError> {
        let indexes = std::mem::take(&mut self.indexes);
        match self.attempt(|connection| indexes.declare(connection, definitions)) {
            Ok(declared) => self.indexes = declared,
            Err(error) => {
                self.indexes = indexes;
                return Err(error);
            }
        }
        Ok(())
    }

    fn has_indexes(&self) -> bool {
        !self.indexes.is_empty()
    }

    fn build_indexes(&mut self) -> Result<IndexBuild, StoreError> {
        if !self.indexes.is_pending() {
            return Ok(IndexBuild::Complete);
        }
        let mut indexes = std::mem::take(&mut self.indexes);
        let stepped = self.attempt(|connection| indexes.step(connection));
        match stepped {
            Ok(next) => self.indexes = next,
            Err(error) => {
                self.indexes = indexes;
                return Err(error);
            }
        }
        Ok(match self.indexes.is_pending() {
            true => IndexBuild::Pending,
            false => IndexBuild::Complete,
        })
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

impl SqliteOptions {
    fn synchronous(&self) -> &'static str {
        match self.sync {
            Sync::Full => "FULL",
            Sync::Off => "OFF",
        }
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
