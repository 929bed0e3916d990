//! The write-ahead log: its size, and checkpoints, which move it into the database.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::failed_with;

/// When this much of the log is in use, a checkpoint moves it into the database, and the log restarts from its beginning. Every start
/// reads the log once, so this also limits the time of a start after a crash. The larger it is, the fewer pages are written twice.
/// The file keeps this size, because a sync takes twice as long if it has to extend the file.
pub(super) const CHECKPOINT_BYTES: u64 = 16 << 20;

/// The largest and smallest limit after large commits. They write each page once, so a longer log would save nothing, and a checkpoint
/// of the whole log at once would delay the next commit by tens of milliseconds.
const LARGE_COMMITS_BYTES_MAX: u64 = 4 << 20;
const LARGE_COMMITS_BYTES_MIN: u64 = 512 << 10;
/// A commit that writes at least this many bytes of log pages is large.
const LARGE_COMMIT_BYTES: u64 = 128 << 10;
/// If a checkpoint after large commits takes longer, the next ones come sooner and move less.
const CHECKPOINT_TIME: Duration = Duration::from_millis(2);

/// Bytes of the header that precedes each page in the log.
const FRAME_HEAD_BYTES: u64 = 24;

/// The size of the log at which a checkpoint is due.
#[derive(Debug)]
pub(super) struct CheckpointSize {
    /// The limit after large commits.
    after_large: u64,
    /// Duration of the quickest recent checkpoints: the cost of one that moves little.
    quickest: Duration,
}

impl CheckpointSize {
    /// Begins with the smallest limit, whose checkpoints show what each of them costs at least.
    pub(super) fn new() -> Self {
        Self {
            after_large: LARGE_COMMITS_BYTES_MIN,
            quickest: Duration::MAX,
        }
    }

    /// The limit after a commit that wrote `commit_bytes` of log pages.
    pub(super) fn bytes_max_after(&self, commit_bytes: u64) -> u64 {
        match commit_bytes >= LARGE_COMMIT_BYTES {
            true => self.after_large,
            false => CHECKPOINT_BYTES,
        }
    }

    /// Chooses the next limit after large commits by the duration of a checkpoint. If each checkpoint costs much regardless of its
    /// size, as with a disk that syncs slowly, it may take twice that cost.
    pub(super) fn adapt(&mut self, took: Duration) {
        self.quickest = match took.checked_sub(self.quickest) {
            Some(longer) => self.quickest + longer / 64,
            None => took,
        };
        let time_max = CHECKPOINT_TIME.max(2 * self.quickest);
        if took > time_max {
            self.after_large = (self.after_large / 2).max(LARGE_COMMITS_BYTES_MIN);
        } else if took < time_max * 5 / 8 {
            self.after_large = (self.after_large * 2).min(LARGE_COMMITS_BYTES_MAX);
        }
    }
}

/// The part of the log's file that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogUse {
    /// Bytes from the start of the log to its newest commit.
    pub(super) bytes: u64,
    /// How many of them are in the database too.
    pub(super) moved: u64,
}

impl LogUse {
    /// Reads only the log's index.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        Self::after(connection, "PRAGMA wal_checkpoint(NOOP)")
    }

    /// Runs a checkpoint, and returns the log's use after it.
    fn after(connection: &Connection, checkpoint: &str) -> rusqlite::Result<Self> {
        let page: i64 = connection
            .prepare_cached("PRAGMA page_size")?
            .query_row([], |row| row.get(0))?;
        let frame_bytes = page.cast_unsigned() + FRAME_HEAD_BYTES;
        let bytes = |frames: i64| frames.max(0).cast_unsigned() * frame_bytes;
        connection.prepare_cached(checkpoint)?.query_row([], |row| {
            Ok(Self {
                bytes: bytes(row.get(1)?),
                moved: bytes(row.get(2)?),
            })
        })
    }

    /// Bytes that only the log has.
    pub(super) fn unmoved(self) -> u64 {
        self.bytes.saturating_sub(self.moved)
    }

    /// Bytes of the newest commit, if this is the use of the log after it and `before` the use before it.
    pub(super) fn commit_bytes(self, before: Self) -> u64 {
        match self.moved < before.moved {
            // The commit has restarted the log.
            true => self.bytes,
            false => self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Moves the log into the database, synced, as far as no reader needs the database as it is, and does not wait for readers. If the
/// whole log was moved, the next commit restarts it, unless a reader still reads from it.
pub(super) fn move_unread(connection: &Connection) -> rusqlite::Result<LogUse> {
    LogUse::after(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// How a checkpoint leaves the log's file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Log {
    /// At its size; the next commit overwrites it from its start.
    FromItsStart,
    /// Empty.
    Emptied,
}

/// Moves the whole log into the database, synced, and waits for readers.
pub(super) fn checkpoint(connection: &Connection, log: Log) -> rusqlite::Result<()> {
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
pub(super) fn unless_busy(done: rusqlite::Result<()>) -> rusqlite::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckpointSize, LARGE_COMMIT_BYTES, LARGE_COMMITS_BYTES_MAX};
    use std::time::Duration;

    /// The limit after 50 checkpoints whose duration depends on the limit.
    fn after_checkpoints(duration: impl Fn(u64) -> Duration) -> u64 {
        let mut size = CheckpointSize::new();
        for _ in 0..50 {
            size.adapt(duration(size.bytes_max_after(LARGE_COMMIT_BYTES)));
        }
        size.bytes_max_after(LARGE_COMMIT_BYTES)
    }

    #[test]
    fn a_checkpoint_that_takes_long_because_of_its_size_stays_small() {
        let slow = |bytes: u64| Duration::from_micros(bytes / 400);
        let bytes = after_checkpoints(slow);
        assert!(bytes < LARGE_COMMITS_BYTES_MAX, "{bytes}");
        assert!(slow(bytes) <= Duration::from_millis(4), "{bytes}");
    }

    #[test]
    fn a_checkpoint_becomes_large_if_the_disk_is_quick_or_each_sync_is_slow() {
        let quick = |bytes: u64| Duration::from_micros(bytes / 4_500);
        assert_eq!(after_checkpoints(quick), LARGE_COMMITS_BYTES_MAX);
        let slow_sync = |bytes: u64| Duration::from_micros(30_000 + bytes / 400);
        assert_eq!(after_checkpoints(slow_sync), LARGE_COMMITS_BYTES_MAX);
    }

    #[test]
    fn small_commits_have_the_whole_log() {
        let mut size = CheckpointSize::new();
        size.adapt(Duration::from_secs(1));
        size.adapt(Duration::from_secs(3));
        assert_eq!(
            size.bytes_max_after(LARGE_COMMIT_BYTES - 1),
            super::CHECKPOINT_BYTES
        );
    }
}
