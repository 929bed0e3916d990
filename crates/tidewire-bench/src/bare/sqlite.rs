//! SQLite alone: the library in Tidewire's binary, with a write-ahead log, synced at each commit, and otherwise with
//! its defaults.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{Bare, StoredRow};
use crate::failure::Failure;

/// A table like that of Tidewire's records.
const SCHEMA: &str = "CREATE TABLE records (
    name TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    version INTEGER NOT NULL,
    data TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;";
const PUT: &str =
    "INSERT INTO records (name, incarnation, version, data, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, version = excluded.version,
        data = excluded.data, checksum = excluded.checksum";

/// A database in a folder.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Creates it.
    ///
    /// # Errors
    /// SQLite's error.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(folder.join("bare.sqlite"))?;
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let connection = open().map_err(failed)?;
        Ok(Self { connection })
    }

    /// The versions of all rows, in the order of their names.
    #[cfg(test)]
    pub(super) fn versions(&self) -> rusqlite::Result<Vec<u32>> {
        let mut all = self
            .connection
            .prepare("SELECT version FROM records ORDER BY name")?;
        all.query_map([], |row| row.get(0))?.collect()
    }
}

impl Bare for Sqlite {
    fn label(&self) -> &'static str {
        "bare SQLite"
    }

    fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure> {
        let mut commit = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            {
                let mut put = transaction.prepare_cached(PUT)?;
                for row in rows {
                    put.execute(params![
                        row.name,
                        row.incarnation,
                        row.version,
                        row.data,
                        row.checksum
                    ])?;
                }
            }
            transaction.commit()
        };
        commit().map_err(failed)
    }
}

fn failed(error: rusqlite::Error) -> Failure {
    Failure::Server(format!("bare SQLite: {error}"))
}
