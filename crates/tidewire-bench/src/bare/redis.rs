//! Redis alone: one `MSET` for each transaction, with a whole row as the value of its key. Whether it syncs is the server's own setting,
//! `appendfsync always`.

use redis::{Connection, Pipeline};

use super::{Bare, StoredRow};
use crate::failure::Failure;

/// A connection to a server.
pub struct Redis {
    connection: Connection,
}

impl Redis {
    /// Connects to `redis://host:port/database`.
    ///
    /// # Errors
    /// Redis's error.
    pub fn connect(url: &str) -> Result<Self, Failure> {
        let connect = || redis::Client::open(url)?.get_connection();
        let connection = connect().map_err(|error| failed(&error))?;
        Ok(Self { connection })
    }
}

impl Bare for Redis {
    fn label(&self) -> &'static str {
        "bare Redis"
    }

    fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure> {
        let mut all = Pipeline::new();
        let set = all.cmd("MSET");
        for row in rows {
            let (incarnation, version, checksum) = (row.incarnation, row.version, row.checksum);
            let value = format!("{incarnation} {version} {checksum}\n{}", row.data);
            set.arg(&row.name).arg(value);
        }
        all.exec(&mut self.connection)
            .map_err(|error| failed(&error))
    }
}

fn failed(error: &redis::RedisError) -> Failure {
    Failure::Server(format!("bare Redis: {error}"))
}
