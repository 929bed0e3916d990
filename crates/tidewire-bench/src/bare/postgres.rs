//! PostgreSQL alone: one statement for each transaction, with columns of values as Tidewire sends them, on one connection.

use std::str::FromStr;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{Bare, StoredRow};
use crate::failure::Failure;

/// A table like that of Tidewire's records.
const SCHEMA: &str = "DROP TABLE IF EXISTS tidewire_bench;
    CREATE TABLE tidewire_bench (
        name bytea PRIMARY KEY,
        incarnation bigint NOT NULL,
        version bigint NOT NULL,
        data text NOT NULL,
        checksum bigint NOT NULL
    )";
const PUT: &str = "INSERT INTO tidewire_bench
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
    ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, version = excluded.version,
        data = excluded.data, checksum = excluded.checksum";

/// A connection to a server.
pub struct Postgres {
    runtime: Runtime,
    client: Client,
    put: Statement,
}

impl Postgres {
    /// Connects to `postgresql://user@host:port/database` and creates a table there.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub fn connect(url: &str) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::system("runtime"))?;
        let connect = async {
            let (client, connection) = Config::from_str(url)?.connect(NoTls).await?;
            // It ends with the client, which also gets its errors.
            tokio::spawn(connection);
            client.batch_execute(SCHEMA).await?;
            let put = client.prepare(PUT).await?;
            Ok((client, put))
        };
        let (client, put) = runtime.block_on(connect).map_err(failed)?;
        Ok(Self {
            runtime,
            client,
            put,
        })
    }
}

impl Bare for Postgres {
    fn label(&self) -> &'static str {
        "bare PostgreSQL"
    }

    fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure> {
        let names: Vec<&[u8]> = rows.iter().map(|row| row.name.as_bytes()).collect();
        let incarnations: Vec<i64> = rows.iter().map(|row| row.incarnation).collect();
        let versions: Vec<i64> = rows.iter().map(|row| row.version.into()).collect();
        let data: Vec<&str> = rows.iter().map(|row| &*row.data).collect();
        let checksums: Vec<i64> = rows.iter().map(|row| row.checksum.into()).collect();
        let columns: [&(dyn ToSql + Sync); 5] =
            [&names, &incarnations, &versions, &data, &checksums];
        let put = self.client.execute(&self.put, &columns);
        self.runtime.block_on(put).map(|_| ()).map_err(failed)
    }
}

fn failed(error: tokio_postgres::Error) -> Failure {
    Failure::Server(format!("bare PostgreSQL: {error}"))
}
