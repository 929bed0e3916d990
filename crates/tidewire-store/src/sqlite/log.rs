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

/// Bytes of the log that are in use. Reads only the log's index.
pub(super) fn log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
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
pub(super) enum Log {
    /// At its size; the next commit overwrites it from its start.
    FromItsStart,
    /// Empty.
    Emptied,
}

/// Moves the whole log into the database, synced.
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
