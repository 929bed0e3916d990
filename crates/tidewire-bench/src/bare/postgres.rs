//! PostgreSQL alone: one statement for each transaction, with columns of values as Tidewire sends them, on one connection.

use std::str::FromStr;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{Bare, StoredRow};
use crate::failure::Failure;

const SCHEMA: &str = "DROP TABLE IF EXISTS tidewire_bench;
    CREATE TABLE tidewire_bench (name text PRIMARY KEY, version bigint NOT NULL, data text NOT NULL)";
const PUT: &str =
    "INSERT INTO tidewire_bench SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, data = excluded.data";

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
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        let versions: Vec<i64> = rows.iter().map(|row| row.version.into()).collect();
        let data: Vec<&str> = rows.iter().map(|row| &*row.data).collect();
        let columns: [&(dyn ToSql + Sync); 3] = [&names, &versions, &data];
        let put = self.client.execute(&self.put, &columns);
        self.runtime.block_on(put).map(|_| ()).map_err(failed)
    }
}

fn failed(error: tokio_postgres::Error) -> Failure {
    Failure::Server(format!("bare PostgreSQL: {error}"))
}
