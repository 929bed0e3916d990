//! The store in PostgreSQL. Contract: `spec/store-postgres.md`.
//!
//! A batch is one transaction, synced before PostgreSQL answers. Names are stored as bytes, because a
//! PostgreSQL text can't contain NUL and its order depends on a collation. Values are stored as text, because `jsonb` reorders keys
//! and reformats numbers.

mod commit;
mod fence;
mod indexes;
mod registry;
mod runtime;
mod tls;

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::store::{
    Expected, Incarnation, IndexBuild, IndexEnd, IndexRead, Loaded, MemberId, Opened, Registry,
    Store, StoreError, StoreReader, StoreTrouble, StoreWrite, StoredRecord, Version, View, Written,
};
use tidewire_core::text::{Name, Payload};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, IsolationLevel, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::commit::{Columns, Shape};
use self::fence::Fence;
use self::indexes::{Declared, Indexes, ReadStatements};
use self::registry::PostgresRegistry;
use self::runtime::OwnRuntime;
use super::range::ScanRange;
use super::remote::{
    Membership, NEW_GENERATION, OpenStore, Promise, RemoteError, RemoteOptions, certificate_fault,
    is_local, refuse_format,
};
use super::{checksum, write_keys};

/// The version of the stored format, see `spec/store-postgres.md`.
pub const FORMAT: i64 = 5;
/// The version of a store that has never had an index. Servers that know no indexes may use it.
const FORMAT_WITHOUT_INDEXES: i64 = 4;

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
    INSERT INTO tidewire_meta VALUES ('format', 4), ('epoch', 0), ('opening', 0), ('clean', 0)
    ON CONFLICT DO NOTHING;";

/// Both sides send the first keepalive after this silence, ...
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// ... the next ones after each further one, ...
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// ... and give the connection up after this many without an answer.
const KEEPALIVE_COUNT: u32 = 3;

/// Sets the timeouts of a session, as far as this version of PostgreSQL has them.
const SET_TIMEOUTS: &str = "SELECT set_config(name, wanted.value, FALSE)
    FROM (VALUES ('idle_in_transaction_session_timeout', $1::TEXT), ('tcp_user_timeout', $1),
        ('tcp_keepalives_idle', $2), ('tcp_keepalives_interval', $3), ('tcp_keepalives_count', $4))
        AS wanted (name, value)
    JOIN pg_settings USING (name)";

/// How often a commit reads the list of indexes again.
const LIST_READS_MAX: usize = 4;

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
    /// The indexes that this process declares.
    declared: Vec<Arc<str>>,
    /// Whether they are not in the list of indexes yet, because a member keeps none.
    is_undeclared: bool,
}

/// The reading half, with its own connection.
pub struct PostgresReader {
    location: Location,
    session: Option<Session>,
}

/// The address of the database and how to connect to it.
#[derive(Debug)]
struct Location {
    options: RemoteOptions,
    config: Config,
    /// Drives the connections of this half of the store.
    runtime: OwnRuntime,
}

/// A connection. Its socket is closed when it is dropped: the server notices only then that its answer is no longer awaited.
struct Connection {
    client: Client,
    task: JoinHandle<()>,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection with its prepared statements.
struct Session {
    client: Connection,
    load: Statement,
    scan: Statement,
    /// Prepared by the first read of an index.
    index_reads: Option<ReadStatements>,
}

/// The connection for writing.
struct Writer {
    client: Connection,
    /// The request that begins a commit.
    begin: String,
    /// The statements for the shapes of batches that came so far.
    commits: [Option<Statement>; Shape::COUNT],
    indexes: Indexes,
    /// The connection's number among those that were opened for writing; 0 if it must not write.
    number: i64,
    /// Whether the database has another generation than the view. Its members must agree on a new one first.
    has_new_generation: bool,
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
            declared: Vec::new(),
            is_undeclared: false,
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
        self.location.runtime.catch_up();
        match self.writer.take() {
            Some(writer) if !writer.client.is_closed() => Ok(writer),
            _ => Ok(self
                .location
                .wait(self.location.connect_writer(self.opened))?),
        }
    }

    /// The outcomes of the writes of a batch that was not done as a whole. `changed` has the names of the rows that it has changed; `None`
    /// if these are all that it could change.
    fn settle(
        &self,
        writer: &Writer,
        writes: &[StoreWrite],
        changed: Option<Vec<Vec<u8>>>,
    ) -> Result<Vec<Written>, StoreError> {
        let changed: Option<HashSet<Vec<u8>>> = changed.map(HashSet::from_iter);
        let is_changed = |write: &StoreWrite| match &changed {
            Some(changed) => changed.contains(write.name.as_bytes()),
            None => !commit::changes_nothing(write),
        };
        let left: Vec<&[u8]> = writes
            .iter()
            .filter(|write| !is_changed(write))
            .map(|write| write.name.as_bytes())
            .collect();
        // The state that a write expects was not there at one instant, so another owner has written the record, or an earlier attempt of
        // the same batch was done. A separate statement may decide between the two, because it can only find the result of the write if
        // the write has been done.
        let load = format!("SELECT {COLUMNS} {LOAD}");
        let rows = self
            .location
            .attempt(writer.client.query(&load, &[&left]))?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let name: &[u8] = column(row, 0)?;
            found.insert(name, loaded_from(row)?);
        }
        let written = writes.iter().map(|write| {
            let is_done = is_changed(write)
                || write.expected == Expected::Anything
                || match found.get(write.name.as_bytes()) {
                    Some(Loaded::Found(stored)) => write.change.is_done(Some(stored)),
                    Some(_) => false,
                    None => write.change.is_done(None),
                };
            match is_done {
                true => Written::Done,
                false => Written::Refused,
            }
        });
        Ok(written.collect())
    }
}

impl Store for PostgresStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(PostgresReader {
            location: self.location.again()?,
            session: None,
        }))
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        let mut writer = self.writer()?;
        if writer.has_new_generation {
            // The next connection looks again.
            return Err(StoreError::unavailable(NEW_GENERATION));
        }
        let mut reads = 0;
        let (answer, count) = loop {
            let entries = writer.indexes.entries(writes);
            let columns = Columns::new(writes, &entries);
            let answer = self
                .location
                .attempt(writer.commit(view, member, &columns))?;
            if !answer.is_locked {
                return Err(StoreError::unavailable(
                    "a commit was cancelled at its start",
                ));
            }
            let current = answer.current;
            if current > view || (current == view && answer.connection.is_none()) {
                // A member that stays commits on the same connection again.
                let is_member = answer.connection.is_some();
                self.writer = is_member.then_some(writer);
                return Err(StoreError::stale_view(view, current, is_member));
            }
            if current < view || answer.connection != Some(writer.number) {
                let message = "the database was replaced while it was in use";
                return Err(StoreError::unavailable(message));
            }
            if answer.indexes == writer.indexes.number {
                break (answer, columns.len());
            }
            // Another member has declared indexes.
            if reads == LIST_READS_MAX {
                let message = "the list of indexes changed during each attempt";
                return Err(StoreError::unavailable(message));
            }
            reads += 1;
            writer.indexes = self.location.attempt(Indexes::read(&*writer.client))?;
        };
        let written = match answer.changed {
            None if count == writes.len() => vec![Written::Done; writes.len()],
            changed => self.settle(&writer, writes, changed)?,
        };
        self.writer = Some(writer);
        Ok(written)
    }

    fn registry(&mut self) -> Result<Option<Box<dyn Registry>>, StoreError> {
        Ok(Some(Box::new(PostgresRegistry {
            location: self.location.again()?,
            client: None,
        })))
    }

    fn set_indexes(&mut self, definitions: &[Arc<str>]) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let birth = self.opened.opening.cast_signed();
        let declared = self.location.attempt(async {
            let declared = indexes::declare(&mut writer.client, birth, definitions, FORMAT).await?;
            writer.indexes = Indexes::read(&*writer.client).await?;
            Ok(declared)
        })?;
        self.declared = definitions.to_vec();
        self.is_undeclared = declared == Declared::Waiting;
        self.writer = Some(writer);
        Ok(())
    }

    fn has_indexes(&self) -> bool {
        !self.declared.is_empty()
    }

    fn build_indexes(&mut self) -> Result<IndexBuild, StoreError> {
        if self.is_undeclared {
            let declared = self.declared.clone();
            self.set_indexes(&declared)?;
            if self.is_undeclared {
                return Ok(IndexBuild::Waiting);
            }
        }
        // A new connection knows the list.
        if (self.writer.as_ref()).is_some_and(|writer| !writer.indexes.is_pending()) {
            return Ok(IndexBuild::Complete);
        }
        let mut writer = self.writer()?;
        let (indexes, state) = self.location.attempt(indexes::step(&mut writer.client))?;
        writer.indexes = indexes;
        self.writer = Some(writer);
        Ok(state)
    }

    /// Marks a clean stop if the server is the only member.
    fn close(&mut self) -> Result<(), StoreError> {
        let writer = self.writer()?;
        let opening = self.opened.opening.cast_signed();
        let set_clean = "UPDATE tidewire_meta SET value = 1 WHERE key = 'clean'
            AND EXISTS (SELECT FROM tidewire_members WHERE birth = $1 AND is_active)
            AND (SELECT count(*) FROM tidewire_members WHERE is_active) = 1";
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
            location,
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

    fn read_index(
        &mut self,
        read: &IndexRead,
        visit: &mut dyn FnMut(&[u8], &str),
    ) -> Result<IndexEnd, StoreError> {
        let mut session = self.session()?;
        let end = self.location.attempt(async {
            let statements = match &session.index_reads {
                Some(known) => known.clone(),
                None => {
                    let prepared = ReadStatements::prepare(&session.client).await?;
                    session.index_reads.insert(prepared).clone()
                }
            };
            indexes::read(&mut session.client, &statements, read, visit).await
        })?;
        self.session = Some(session);
        Ok(end)
    }
}

/// The parameters of a statement.
type Values<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

impl PostgresReader {
    /// The connection. If the last one was given up, opens a new one.
    fn session(&mut self) -> Result<Session, StoreError> {
        self.location.runtime.catch_up();
        match self.session.take() {
            Some(session) if !session.client.is_closed() => Ok(session),
            _ => Ok(self.location.wait(self.location.connect())?),
        }
    }

    fn query<'a>(
        &mut self,
        what: impl FnOnce(&Session) -> (&Statement, Values<'a>),
    ) -> Result<Vec<Row>, StoreError> {
        let session = self.session()?;
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
    let (client, _) = options
        .wait(location.open_client())
        .map_err(|error| RemoteError::Unreachable(error.message))??;
    Ok(client)
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
        notice_silence(&mut config, options.timeout);
        Ok(Self {
            options,
            config,
            runtime: OwnRuntime::new()?,
        })
    }

    /// The same location for another thread.
    fn again(&self) -> Result<Self, RemoteError> {
        Ok(Self {
            options: self.options.clone(),
            config: self.config.clone(),
            runtime: OwnRuntime::new()?,
        })
    }

    fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        self.runtime
            .wait(&self.options, work)
            .map_err(|error| RemoteError::Unreachable(error.message))?
    }

    fn attempt<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        self.runtime.wait(&self.options, work)?.map_err(|error| {
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

    /// Opens a connection without prepared statements. PostgreSQL ends it if this host falls silent or leaves a transaction open: its locks
    /// would hold up others.
    async fn open_connection(&self) -> Result<Connection, RemoteError> {
        let (client, task) = self.open_client().await?;
        let connection = Connection { client, task };
        let timeout_ms = self.options.timeout.as_millis().to_string();
        let [idle, interval] =
            [KEEPALIVE_IDLE, KEEPALIVE_INTERVAL].map(|it| it.as_secs().to_string());
        let count = KEEPALIVE_COUNT.to_string();
        connection
            .execute(SET_TIMEOUTS, &[&timeout_ms, &idle, &interval, &count])
            .await
            .map_err(refusal)?;
        Ok(connection)
    }

    /// Opens a client, and starts the task that drives its connection.
    async fn open_client(&self) -> Result<(Client, JoinHandle<()>), RemoteError> {
        let tls = MakeRustlsConnect::new(tls::config(&self.options)?);
        let (client, connection) = self.config.connect(tls).await.map_err(refusal)?;
        // The task ends with the client. Requests on the client return the connection's errors, so the log needs only a debug line.
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        Ok((client, task))
    }

    /// Creates missing tables and stores the opening.
    async fn open(&self) -> Result<(Writer, Opened, Promise), RemoteError> {
        let mut client = self.open_connection().await?;
        let promise = promise(&client, self.options.is_relaxed).await?;
        // Only members need it. Databases that speak the protocol of PostgreSQL may not have it.
        let generation = registry::generation(&*client).await.ok();
        let opened = {
            let transaction = client
                .build_transaction()
                .isolation_level(IsolationLevel::ReadCommitted)
                .start()
                .await
                .map_err(refusal)?;
            transaction
                .execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK])
                .await
                .map_err(refusal)?;
            for schema in [SCHEMA, registry::SCHEMA, indexes::SCHEMA] {
                transaction.batch_execute(schema).await.map_err(refusal)?;
            }
            let opened = registry::begin(&transaction, self.options.membership, generation).await?;
            transaction.commit().await.map_err(refusal)?;
            opened
        };
        let writer = Writer::new(client, opened, self.options.membership)
            .await
            .map_err(refusal)?;
        Ok((writer, opened, promise))
    }

    /// Opens the connection for writing. Batches of earlier connections that PostgreSQL has not started yet then have no effect.
    async fn connect_writer(&self, opened: Opened) -> Result<Writer, RemoteError> {
        let client = self.open_connection().await?;
        promise(&client, self.options.is_relaxed).await?;
        Writer::new(client, opened, self.options.membership)
            .await
            .map_err(refusal)
    }

    /// Opens a connection to the store. Checks the server's settings again, because they may have changed.
    async fn connect(&self) -> Result<Session, RemoteError> {
        let client = self.open_connection().await?;
        promise(&client, self.options.is_relaxed).await?;
        Session::new(client).await.map_err(refusal)
    }
}

impl Session {
    async fn new(client: Connection) -> Result<Self, Error> {
        let has_write_keys: bool = client.query_one(HAS_WRITE_KEYS, &[]).await?.try_get(0)?;
        let columns = match has_write_keys {
            true => COLUMNS,
            false => COLUMNS_OF_FORMAT_1,
        };
        Ok(Self {
            load: client.prepare(&format!("SELECT {columns} {LOAD}")).await?,
            scan: client.prepare(&format!("SELECT {columns} {SCAN}")).await?,
            index_reads: None,
            client,
        })
    }
}

impl Writer {
    /// Makes this the connection for writing, unless the view has changed without this member.
    async fn new(
        client: Connection,
        opened: Opened,
        membership: Membership,
    ) -> Result<Self, Error> {
        let fence = Fence::find(&*client).await?;
        let number = fence
            .register(&client, opened.opening.cast_signed())
            .await?;
        let has_new_generation =
            membership != Membership::Alone && registry::has_new_generation(&*client).await?;
        Ok(Self {
            begin: fence.begin_commit(),
            commits: [const { None }; Shape::COUNT],
            indexes: Indexes::read(&*client).await?,
            client,
            number,
            has_new_generation,
        })
    }

    /// Commits a batch.
    async fn commit(
        &mut self,
        view: View,
        member: MemberId,
        columns: &Columns<'_>,
    ) -> Result<BatchOutcome, Error> {
        let shape = columns.shape();
        let commit = &mut self.commits[shape.index()];
        let statement = match commit {
            Some(known) => known,
            None => commit.insert(self.client.prepare(&shape.statement()).await?),
        };
        let (view, birth) = (view.0.cast_signed(), member.birth.cast_signed());
        let count = columns.len() as i64;
        let indexes = self.indexes.number;
        let mut values: Vec<&(dyn ToSql + Sync)> =
            vec![&view, &birth, &self.number, &count, &indexes];
        values.extend(columns.arrays());
        // Sent in this order and at once: each future sends its request when it is first polled.
        let (begun, answer, ended) = tokio::join!(
            biased;
            self.client.batch_execute(&self.begin),
            self.client.query_one(&*statement, &values),
            self.client.batch_execute("COMMIT"),
        );
        begun?;
        let row = answer?;
        ended?;
        let current: Option<i64> = row.try_get(0)?;
        Ok(BatchOutcome {
            current: View(current.unwrap_or(0).cast_unsigned()),
            connection: row.try_get(1)?,
            changed: row.try_get(2)?,
            is_locked: row.try_get(3)?,
            indexes: row.try_get(4)?,
        })
    }
}

/// The result of a batch.
struct BatchOutcome {
    /// The current view.
    current: View,
    /// The newest connection for writing of the member, unless it does not belong to the view.
    connection: Option<i64>,
    /// The names of the changed rows, if these are fewer than the writes that could change one.
    changed: Option<Vec<Vec<u8>>>,
    /// Whether the commit was within a transaction that held the fence. If not, it has done nothing.
    is_locked: bool,
    /// The number of the list of indexes. If it is not the one of the batch, the commit has done nothing.
    indexes: i64,
}

/// Makes the system notice a server that falls silent, unless the address has other settings.
fn notice_silence(config: &mut Config, timeout: Duration) {
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_COUNT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(timeout);
    }
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
        None
        | Some(
            &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::TOO_MANY_CONNECTIONS
            | &SqlState::LOCK_NOT_AVAILABLE,
        ) => RemoteError::Unreachable(text),
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
