//! The store in PostgreSQL. Contract: `spec/store-postgres.md`.
//!
//! A batch is one statement and so one transaction, synced before PostgreSQL answers. Names are stored as bytes, because a
//! PostgreSQL text can't contain NUL and its order depends on a collation. Values are stored as text, because `jsonb` reorders keys
//! and reformats numbers.

mod tls;

use std::collections::HashMap;

use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Opened, Store, StoreChange, StoreError, StoreReader,
    StoreTrouble, StoreWrite, StoredRecord, Term, Version, Written,
};
use tidewire_core::text::{Name, Payload};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row, Statement, Transaction};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::range::ScanRange;
use super::remote::{
    OpenStore, Promise, RemoteError, RemoteOptions, certificate_fault, is_local, outcomes,
    refuse_format,
};
use super::{checksum, epoch_after, write_keys};

/// The version of the stored format, see `spec/store-postgres.md`.
pub const FORMAT: i64 = 2;

/// The advisory lock for creating the tables, so that two servers that start at the same time do not both create them.
const SCHEMA_LOCK: i64 = 0x7469_6465_7769_7265;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidewire_meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS tidewire_records (
        name BYTEA PRIMARY KEY,
        incarnation BIGINT NOT NULL,
        version BIGINT NOT NULL,
        data TEXT NOT NULL,
        checksum BIGINT NOT NULL,
        write_keys TEXT
    );
    INSERT INTO tidewire_meta VALUES ('format', 2), ('epoch', 0), ('opening', 0), ('clean', 0),
        ('connection', 0)
    ON CONFLICT DO NOTHING;";

/// The upgrade of the tables from format 1. PostgreSQL adds the column without a change of the rows.
const ADD_WRITE_KEYS: &str =
    "ALTER TABLE tidewire_records ADD COLUMN IF NOT EXISTS write_keys TEXT";

/// Commits a batch. Each array has one element for each write. `data` is null for a delete. `expects` is 0 for any state, 1 for no
/// record, 2 for the expected incarnation and version. The row locks make a server that opens the store or reconnects wait until the
/// batch is done. So an abandoned batch that PostgreSQL runs only after a reconnect writes nothing.
const COMMIT: &str = "
    WITH owner AS MATERIALIZED (
        SELECT key, value FROM tidewire_meta WHERE key IN ('opening', 'connection')
        ORDER BY key FOR SHARE
    ),
    batch AS (
        SELECT * FROM UNNEST(
            $2::BYTEA[], $3::INT[], $4::BIGINT[], $5::BIGINT[],
            $6::BIGINT[], $7::BIGINT[], $8::TEXT[], $9::BIGINT[], $11::TEXT[]
        ) WITH ORDINALITY AS batch (
            name, expects, expected_incarnation, expected_version,
            incarnation, version, data, checksum, write_keys, place
        )
        WHERE (SELECT value FROM owner WHERE key = 'opening') = $1
            AND (SELECT value FROM owner WHERE key = 'connection') = $10
    ),
    known AS (
        SELECT batch.place,
            stored.name IS NOT NULL AS is_there,
            (batch.expects = 0
                OR (batch.expects = 1 AND stored.name IS NULL)
                OR (batch.expects = 2 AND stored.incarnation = batch.expected_incarnation
                    AND stored.version = batch.expected_version)) IS TRUE AS is_met
        FROM batch LEFT JOIN tidewire_records AS stored ON stored.name = batch.name
    ),
    changed AS (
        UPDATE tidewire_records AS stored
        SET incarnation = batch.incarnation, version = batch.version,
            data = batch.data, checksum = batch.checksum, write_keys = batch.write_keys
        FROM batch
        WHERE stored.name = batch.name AND batch.data IS NOT NULL
            AND (batch.expects = 0
                OR (batch.expects = 2 AND stored.incarnation = batch.expected_incarnation
                    AND stored.version = batch.expected_version)
                OR (stored.incarnation = batch.incarnation AND stored.version = batch.version
                    AND stored.data = batch.data AND stored.checksum = batch.checksum
                    AND stored.write_keys IS NOT DISTINCT FROM batch.write_keys))
        RETURNING batch.place
    ),
    made AS (
        INSERT INTO tidewire_records (name, incarnation, version, data, checksum, write_keys)
        SELECT batch.name, batch.incarnation, batch.version, batch.data, batch.checksum,
            batch.write_keys
        FROM batch JOIN known USING (place)
        WHERE batch.data IS NOT NULL AND known.is_met AND NOT known.is_there
        ON CONFLICT DO NOTHING
        RETURNING name
    ),
    gone AS (
        DELETE FROM tidewire_records AS stored USING batch
        WHERE stored.name = batch.name AND batch.data IS NULL
            AND (batch.expects = 0
                OR (batch.expects = 2 AND stored.incarnation = batch.expected_incarnation
                    AND stored.version = batch.expected_version))
        RETURNING batch.place
    )
    SELECT (SELECT value FROM owner WHERE key = 'opening'),
        (SELECT value FROM owner WHERE key = 'connection') = $10, ARRAY(
        SELECT batch.place FROM batch JOIN known USING (place)
        WHERE NOT (
            batch.place IN (SELECT place FROM changed)
            OR batch.name IN (SELECT name FROM made)
            OR batch.place IN (SELECT place FROM gone)
            OR (batch.data IS NULL AND NOT known.is_there)
        )
    )";

/// The columns of a record. A program that only reads may find tables of format 1.
const COLUMNS: &str = "name, incarnation, version, data, checksum, write_keys";
const COLUMNS_OF_FORMAT_1: &str = "name, incarnation, version, data, checksum, NULL::TEXT";
const HAS_WRITE_KEYS: &str = "SELECT EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('tidewire_records') AND attname = 'write_keys')";
const LOAD: &str = "FROM tidewire_records WHERE name = ANY($1)";
const SCAN: &str = "FROM tidewire_records
    WHERE name >= $1 AND ($2::BYTEA IS NULL OR name < $2) ORDER BY name LIMIT $3";

/// The writing half.
pub struct PostgresStore {
    location: Location,
    opened: Opened,
    writer: Option<Writer>,
    closed: bool,
}

/// The reading half, with its own connection.
pub struct PostgresReader {
    location: Location,
    session: Option<Session>,
}

/// The address of the database and how to connect to it.
#[derive(Clone, Debug)]
struct Location {
    options: RemoteOptions,
    config: Config,
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    load: Statement,
    scan: Statement,
}

/// The connection for writing.
struct Writer {
    client: Client,
    commit: Statement,
    /// The connection's number among those that were opened for writing; 0 if it must not write.
    number: i64,
}

impl PostgresStore {
    /// Opens the store of a database. Creates missing tables in the first schema of the search path.
    ///
    /// # Errors
    /// The database can't be reached or used, or may lose acknowledged writes.
    pub fn open(options: RemoteOptions) -> Result<OpenStore, RemoteError> {
        let location = Location::new(options)?;
        let (writer, opened, promise) = location.wait(location.open())?;
        let store = Self {
            location,
            opened,
            writer: Some(writer),
            closed: false,
        };
        Ok(OpenStore {
            store: Box::new(store),
            opened,
            promise,
        })
    }

    /// The connection for writing. If the last one was given up, opens a new one and checks the server's settings again.
    fn writer(&mut self) -> Result<Writer, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        match self.writer.take() {
            Some(writer) if !writer.client.is_closed() => Ok(writer),
            _ => Ok(self
                .location
                .wait(self.location.connect_writer(self.opened))?),
        }
    }
}

impl Store for PostgresStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(PostgresReader {
            location: self.location.clone(),
            session: None,
        }))
    }

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        let writer = self.writer()?;
        let answer = self.location.attempt(writer.commit(term, writes))?;
        if answer.newest > term {
            return Err(StoreError::stale_term(term, answer.newest));
        }
        if answer.newest < term || !answer.is_taken {
            let message = "the database was replaced while it was in use";
            return Err(StoreError::unavailable(message));
        }
        self.writer = Some(writer);
        Ok(outcomes(writes.len(), answer.refused))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let writer = self.writer()?;
        let opening = self.opened.opening.cast_signed();
        let set_clean = "UPDATE tidewire_meta SET value = 1 WHERE key = 'clean'
            AND (SELECT value FROM tidewire_meta WHERE key = 'opening') = $1";
        self.location
            .attempt(writer.client.execute(set_clean, &[&opening]))?;
        self.closed = true;
        Ok(())
    }
}

impl PostgresReader {
    /// A reader of a store that it does not open, so a running server can continue to use the store.
    ///
    /// # Errors
    /// The database can't be reached or used, or holds no store that this version can read.
    pub fn read_only(options: RemoteOptions) -> Result<Self, RemoteError> {
        let location = Location::new(options)?;
        let session = location.wait(async {
            let session = location.connect().await?;
            let format = "SELECT value FROM tidewire_meta WHERE key = 'format'";
            let row = session.client.query_opt(format, &[]).await;
            let row = row.map_err(refusal)?;
            let found = row.map(|row| row.try_get(0)).transpose();
            refuse_format(found.map_err(refusal)?, FORMAT)?;
            Ok(session)
        })?;
        Ok(Self {
            location: location.clone(),
            session: Some(session),
        })
    }
}

impl StoreReader for PostgresReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let wanted: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let rows = self.query(|session| (&session.load, vec![Box::new(wanted) as Box<_>]))?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let name: &[u8] = column(row, 0)?;
            found.insert(name, loaded_from(row)?);
        }
        let find = |name: &Name| found.get(name.as_bytes()).cloned();
        let missing = || Loaded::Missing;
        Ok(names
            .iter()
            .map(|name| find(name).unwrap_or_else(missing))
            .collect())
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let range = ScanRange::new(prefix, after, count_max);
        let rows = self.query(|session| {
            let values: Values = vec![
                Box::new(range.first().into_bytes()),
                Box::new(range.end.map(String::into_bytes)),
                Box::new(range.limit),
            ];
            (&session.scan, values)
        })?;
        for row in rows.iter().take(count_max) {
            let name: &[u8] = column(row, 0)?;
            visit(
                Name::from(&*String::from_utf8_lossy(name)),
                loaded_from(row)?,
            );
        }
        Ok(rows.len() > count_max)
    }
}

/// The parameters of a statement.
type Values<'a> = Vec<Box<dyn tokio_postgres::types::ToSql + Sync + Send + 'a>>;

impl PostgresReader {
    fn query<'a>(
        &mut self,
        what: impl FnOnce(&Session) -> (&Statement, Values<'a>),
    ) -> Result<Vec<Row>, StoreError> {
        let session = match self.session.take() {
            Some(session) if !session.client.is_closed() => session,
            _ => self.location.wait(self.location.connect())?,
        };
        let (statement, values) = what(&session);
        let values: Vec<_> = values.iter().map(|value| &**value as _).collect();
        let rows = self
            .location
            .attempt(session.client.query(statement, &values))?;
        self.session = Some(session);
        Ok(rows)
    }
}

/// Connects to a database that may not hold a store.
///
/// # Errors
/// The database can't be reached, or refuses the connection.
pub fn connect_to_any(options: &RemoteOptions) -> Result<Client, RemoteError> {
    let location = Location::new(options.clone())?;
    location.wait(location.open_connection())
}

impl Location {
    fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        let mut config: Config = options
            .url
            .parse()
            .map_err(|error: Error| RemoteError::Refused(error_text(&error)))?;
        if !options.password.is_empty() {
            config.password(&options.password);
        }
        let is_near = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(host) => is_local(host),
            Host::Unix(_) => true,
        });
        // With `prefer`, an attacker on the network could disable TLS.
        if !is_near && config.get_ssl_mode() == SslMode::Prefer {
            config.ssl_mode(SslMode::Require);
        }
        config.connect_timeout(options.timeout);
        config.application_name("tidewire");
        Ok(Self { options, config })
    }

    fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        self.options
            .wait(work)
            .map_err(|error| RemoteError::Unreachable(error.message))?
    }

    fn attempt<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        self.options.wait(work)?.map_err(|error| {
            let is_full = error
                .code()
                .is_some_and(|code| [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code));
            StoreError {
                message: error_text(&error),
                trouble: if is_full {
                    StoreTrouble::Full
                } else {
                    StoreTrouble::Unavailable
                },
            }
        })
    }

    /// Opens a connection without prepared statements.
    async fn open_connection(&self) -> Result<Client, RemoteError> {
        let tls = MakeRustlsConnect::new(tls::config(&self.options)?);
        let (client, connection) = self.config.connect(tls).await.map_err(refusal)?;
        // The task ends with the client. Requests on the client return the connection's errors, so the log needs only a debug line.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        Ok(client)
    }

    /// Creates missing tables and stores the opening.
    async fn open(&self) -> Result<(Writer, Opened, Promise), RemoteError> {
        let mut client = self.open_connection().await?;
        let promise = promise(&client, self.options.is_relaxed).await?;
        let opened = {
            let transaction = client.transaction().await.map_err(refusal)?;
            transaction
                .execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK])
                .await
                .map_err(refusal)?;
            transaction.batch_execute(SCHEMA).await.map_err(refusal)?;
            let opened = begin(&transaction).await?;
            transaction.commit().await.map_err(refusal)?;
            opened
        };
        let writer = Writer::new(client, opened).await.map_err(refusal)?;
        Ok((writer, opened, promise))
    }

    /// Opens the connection for writing. Batches of earlier connections that PostgreSQL has not started yet then have no effect.
    async fn connect_writer(&self, opened: Opened) -> Result<Writer, RemoteError> {
        let client = self.open_connection().await?;
        promise(&client, self.options.is_relaxed).await?;
        Writer::new(client, opened).await.map_err(refusal)
    }

    /// Opens a connection to the store. Checks the server's settings again, because they may have changed.
    async fn connect(&self) -> Result<Session, RemoteError> {
        let client = self.open_connection().await?;
        promise(&client, self.options.is_relaxed).await?;
        Session::new(client).await.map_err(refusal)
    }
}

impl Session {
    async fn new(client: Client) -> Result<Self, Error> {
        let has_write_keys: bool = client.query_one(HAS_WRITE_KEYS, &[]).await?.try_get(0)?;
        let columns = match has_write_keys {
            true => COLUMNS,
            false => COLUMNS_OF_FORMAT_1,
        };
        Ok(Self {
            load: client.prepare(&format!("SELECT {columns} {LOAD}")).await?,
            scan: client.prepare(&format!("SELECT {columns} {SCAN}")).await?,
            client,
        })
    }
}

impl Writer {
    /// Makes this the connection for writing, unless another server has opened the store since.
    async fn new(client: Client, opened: Opened) -> Result<Self, Error> {
        let commit = client.prepare(COMMIT).await?;
        let count = "UPDATE tidewire_meta SET value = value + 1 WHERE key = 'connection'
            AND (SELECT value FROM tidewire_meta WHERE key = 'opening') = $1 RETURNING value";
        let opening = opened.opening.cast_signed();
        let row = client.query_opt(count, &[&opening]).await?;
        let number = row.map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Self {
            client,
            commit,
            number,
        })
    }

    /// Commits a batch.
    async fn commit(&self, term: Term, writes: &[StoreWrite]) -> Result<BatchOutcome, Error> {
        let mut columns = Columns::with_capacity(writes.len());
        writes.iter().for_each(|write| columns.add(write));
        let row = self
            .client
            .query_one(
                &self.commit,
                &[
                    &term.0.cast_signed(),
                    &columns.names,
                    &columns.expects,
                    &columns.expected_incarnations,
                    &columns.expected_versions,
                    &columns.incarnations,
                    &columns.versions,
                    &columns.data,
                    &columns.checksums,
                    &self.number,
                    &columns.write_keys,
                ],
            )
            .await?;
        let newest: i64 = row.try_get(0)?;
        Ok(BatchOutcome {
            newest: Term(newest.cast_unsigned()),
            is_taken: row.try_get(1)?,
            refused: row.try_get(2)?,
        })
    }
}

/// The result of a batch.
struct BatchOutcome {
    /// The term of the last opening.
    newest: Term,
    /// Whether the batch came on the newest connection for writing.
    is_taken: bool,
    /// The numbers of the refused writes, counted from 1.
    refused: Vec<i64>,
}

/// A batch as one array for each column.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a [u8]>,
    expects: Vec<i32>,
    expected_incarnations: Vec<i64>,
    expected_versions: Vec<i64>,
    incarnations: Vec<i64>,
    versions: Vec<i64>,
    data: Vec<Option<&'a str>>,
    checksums: Vec<i64>,
    write_keys: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    fn with_capacity(count: usize) -> Self {
        Self {
            names: Vec::with_capacity(count),
            data: Vec::with_capacity(count),
            ..Self::default()
        }
    }

    fn add(&mut self, write: &'a StoreWrite) {
        let (expects, incarnation, version) = match write.expected {
            Expected::Anything => (0, 0, 0),
            Expected::Missing => (1, 0, 0),
            Expected::At(incarnation, version) => {
                (2, incarnation.0.cast_signed(), i64::from(version.0))
            }
        };
        self.names.push(write.name.as_bytes());
        self.expects.push(expects);
        self.expected_incarnations.push(incarnation);
        self.expected_versions.push(version);
        let (incarnation, version, data, checksum, write_keys) = match &write.change {
            StoreChange::Put(record) => {
                let write_keys = record.write_keys.as_deref().map(write_keys::to_text);
                let checksum = checksum(&write.name, record, write_keys.as_deref());
                (
                    record.incarnation.0.cast_signed(),
                    i64::from(record.version.0),
                    Some(record.data.as_str()),
                    i64::from(checksum),
                    write_keys,
                )
            }
            StoreChange::Delete => (0, 0, None, 0, None),
        };
        self.incarnations.push(incarnation);
        self.versions.push(version);
        self.data.push(data);
        self.checksums.push(checksum);
        self.write_keys.push(write_keys);
    }
}

/// Stores the opening. Refuses a store of a newer version, and upgrades one of an older version.
async fn begin(transaction: &Transaction<'_>) -> Result<Opened, RemoteError> {
    let rows = transaction
        .query(
            "SELECT key, value FROM tidewire_meta ORDER BY key FOR UPDATE",
            &[],
        )
        .await
        .map_err(refusal)?;
    let mut meta: HashMap<String, i64> = HashMap::new();
    for row in &rows {
        meta.insert(
            row.try_get(0).map_err(refusal)?,
            row.try_get(1).map_err(refusal)?,
        );
    }
    let value = |key: &str| {
        let missing = || RemoteError::Refused(format!("tidewire_meta has no row {key:?}"));
        meta.get(key).copied().ok_or_else(missing)
    };
    let found = value("format")?;
    if found > FORMAT {
        return Err(RemoteError::NewerFormat {
            found,
            known: FORMAT,
        });
    }
    if found < FORMAT {
        transaction
            .batch_execute(ADD_WRITE_KEYS)
            .await
            .map_err(refusal)?;
    }
    let mut epoch = Epoch(value("epoch")?.cast_unsigned());
    if value("clean")? == 0 {
        epoch = epoch_after(epoch);
    }
    let opening = value("opening")?.cast_unsigned() + 1;
    let news = [
        ("format", FORMAT),
        ("epoch", epoch.0.cast_signed()),
        ("opening", opening.cast_signed()),
        ("clean", 0),
    ];
    for (key, value) in news {
        let set = "UPDATE tidewire_meta SET value = $2 WHERE key = $1";
        transaction
            .execute(set, &[&key, &value])
            .await
            .map_err(refusal)?;
    }
    Ok(Opened { epoch, opening })
}

/// Reads the server's settings for durability.
async fn promise(client: &Client, is_relaxed: bool) -> Result<Promise, RemoteError> {
    let mut weaknesses = Vec::new();
    let mut found = Vec::new();
    // `synchronous_commit` waits for the local disk with every value except `off`; the other values differ only for standby servers.
    for (setting, is_weak) in [
        ("fsync", "off"),
        ("synchronous_commit", "off"),
        ("full_page_writes", "off"),
    ] {
        let row = client
            .query_one("SELECT current_setting($1)", &[&setting])
            .await
            .map_err(refusal)?;
        let value: String = row.try_get(0).map_err(refusal)?;
        if value == is_weak {
            weaknesses.push(format!("PostgreSQL's {setting} is {value}; set it to on"));
        }
        found.push(format!("{setting}={value}"));
    }
    let found = format!("PostgreSQL with {}", found.join(", "));
    Promise::of_server(&weaknesses, &found, is_relaxed)
}

/// Reads a record from a row. If the record does not pass its checksum, it is corrupt.
fn loaded_from(row: &Row) -> Result<Loaded, StoreError> {
    let name: &[u8] = column(row, 0)?;
    let (Ok(name), Ok(version)) = (
        std::str::from_utf8(name),
        u32::try_from(column::<i64>(row, 2)?),
    ) else {
        return Ok(Loaded::Corrupt);
    };
    let keys_text: Option<&str> = column(row, 5)?;
    let Some(write_keys) = write_keys::of_row(keys_text) else {
        return Ok(Loaded::Corrupt);
    };
    let record = StoredRecord {
        incarnation: Incarnation(column::<i64>(row, 1)?.cast_unsigned()),
        version: Version(version),
        data: Payload::from_checked(column::<&str>(row, 3)?),
        write_keys,
    };
    if column::<i64>(row, 4)? == i64::from(checksum(name, &record, keys_text)) {
        Ok(Loaded::Found(record))
    } else {
        Ok(Loaded::Corrupt)
    }
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|error| StoreError::unavailable(error_text(&error)))
}

/// Classifies why opening failed: [`RemoteError::Unreachable`] if a retry may help, [`RemoteError::Refused`] if the operator must act.
fn refusal(error: Error) -> RemoteError {
    if let Some(fault) = certificate_fault(&error) {
        return RemoteError::Refused(fault);
    }
    let text = error_text(&error);
    match error.code() {
        None | Some(&SqlState::CANNOT_CONNECT_NOW | &SqlState::TOO_MANY_CONNECTIONS) => {
            RemoteError::Unreachable(text)
        }
        Some(_) => RemoteError::Refused(text),
    }
}

/// The error's text with its causes. The error's own text does not contain the server's message.
fn error_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
