//! The write-ahead log: its size, and checkpoints, which move it into the database.

use rusqlite::{Connection, ErrorCode};

use super::failed_with;

/// When this much of the log is in use, a checkpoint moves it into the database, and the log restarts from its beginning. Every start
/// reads the log once, so this also limits the time of a start after a crash. The larger it is, the fewer pages are written twice.
/// The file keeps this size, because a sync takes twice as long if it has to extend the file.
pub(super) const CHECKPOINT_BYTES: u64 = 16 << 20;

/// The same limit after large commits. They write each page once, so a longer log would save nothing, and moving all of it into the
/// database at once would delay the next commit by tens of milliseconds.
const CHECKPOINT_BYTES_LARGE: u64 = 4 << 20;
/// A commit that writes at least this many bytes of log pages is large.
const LARGE_COMMIT_BYTES: u64 = 256 << 10;

/// Bytes of the header that precedes each page in the log.
const FRAME_HEAD_BYTES: u64 = 24;

/// The size at which the log is moved into the database, after a commit that wrote `commit_bytes` of log pages.
pub(super) fn bytes_max_after(commit_bytes: u64) -> u64 {
    match commit_bytes >= LARGE_COMMIT_BYTES {
        true => CHECKPOINT_BYTES_LARGE,
        false => CHECKPOINT_BYTES,
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
