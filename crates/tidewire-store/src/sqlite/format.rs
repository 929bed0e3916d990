//! The tables of the database, their creation and upgrade, and the values that describe the store.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tidewire_core::address::Epoch;
use tidewire_core::store::Opened;

use super::super::epoch_after;

/// The version of the stored format, see `spec/store.md`.
pub const FORMAT: i64 = 4;

const SCHEMA: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE records (
        name TEXT PRIMARY KEY,
        incarnation INTEGER NOT NULL,
        version INTEGER NOT NULL,
        data TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        writer TEXT,
        write_keys TEXT
    ) STRICT;
    CREATE TABLE quarantine (
        name TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        version INTEGER NOT NULL,
        data TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (name, incarnation, version)
    ) STRICT;
    INSERT INTO meta VALUES ('format', 4), ('epoch', 0), ('opening', 0), ('clean', 0);";

/// The tables of indexes, which format 4 added.
const INDEX_TABLES: &str = "
    CREATE TABLE indexes (
        number INTEGER PRIMARY KEY,
        definition TEXT NOT NULL,
        state INTEGER NOT NULL,
        position TEXT NOT NULL
    ) STRICT;
    CREATE TABLE index_entries (
        number INTEGER NOT NULL,
        key BLOB NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (number, key, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX index_entries_by_name ON index_entries (name, number);";

/// The upgrade of a database from each format to the next one, from format 1 on. SQLite adds a column without a change of the rows.
const UPGRADES: [&str; (FORMAT - 1) as usize] = [
    "ALTER TABLE records ADD COLUMN writer TEXT",
    "ALTER TABLE records ADD COLUMN write_keys TEXT",
    INDEX_TABLES,
];

/// The first format with the column `write_keys`.
const WRITE_KEYS_FORMAT: i64 = 3;

/// Stores the opening in the database, synced, and returns it. Creates the tables in an empty database.
pub(super) fn begin(connection: &mut Connection) -> rusqlite::Result<Opened> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.execute_batch(INDEX_TABLES)?;
    } else {
        upgrade(&transaction)?;
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

/// Brings the tables of an older format up to this one.
fn upgrade(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let found = meta(transaction, "format")?;
    for (next, upgrade) in (2..).zip(UPGRADES) {
        if next > found {
            transaction.execute_batch(upgrade)?;
        }
    }
    match found < FORMAT {
        true => set_meta(transaction, "format", FORMAT),
        false => Ok(()),
    }
}

/// Whether the records have write keys. A program that only reads may find a folder that no server of this version has opened yet.
pub(super) fn has_write_keys(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(meta(connection, "format")? >= WRITE_KEYS_FORMAT)
}

pub(crate) fn meta(connection: &Connection, key: &str) -> rusqlite::Result<i64> {
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
        row.get(0)
    })
}

pub(crate) fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .execute(
            "UPDATE meta SET value = ?2 WHERE key = ?1",
            params![key, value],
        )
        .map(|_| ())
}
