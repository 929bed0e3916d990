//! The store in Redis or Valkey. Contract: `spec/store-redis.md`.
//!
//! A batch is one script or transaction, which the server runs alone and whose effects it syncs before it answers (`appendfsync always`).
//! All keys have the hash tag `{tidewire}`, so that they are on one node of a Redis cluster.

mod commit;
mod indexes;
mod registry;
mod requests;
mod row;
mod upgrade;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use redis::{
    Client, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
    ServerErrorKind, TlsCertificates,
};
use tidewire_core::store::{
    IndexBuild, IndexEnd, IndexRead, Loaded, MemberId, Opened, Registry, Store, StoreError,
    StoreReader, StoreTrouble, StoreWrite, View, Written,
};
use tidewire_core::text::Name;

use self::commit::Writer;
use self::registry::{RedisRegistry, take_over};
use super::range::ScanRange;
use super::remote::{
    Membership, NEW_GENERATION, OpenStore, Promise, RemoteError, RemoteOptions, certificate_fault,
    is_local, outcomes, refuse_format,
};

/// The version of the stored format, see `spec/store-redis.md`.
pub const FORMAT: i64 = 5;
/// The version of a store that has never had an index. Servers that know no indexes may use it.
const FORMAT_WITHOUT_INDEXES: i64 = 4;

const META: &str = "{tidewire}:meta";
const NAMES: &str = "{tidewire}:names";
const RECORD: &str = "{tidewire}:record:";

/// Maximum number of names that one command looks up.
const LOAD_COUNT_MAX: usize = 1_000;

/// The writing half.
pub struct RedisStore {
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
pub struct RedisReader {
    location: Location,
    connection: Option<Connection>,
    /// Whether the store may have records of an earlier format.
    has_hashes: bool,
}

/// The address of the server and how to connect to it.
#[derive(Clone)]
struct Location {
    options: RemoteOptions,
    client: Client,
}

impl RedisStore {
    /// Opens the store of a server.
    ///
    /// # Errors
    /// The server can't be reached or used, or may lose acknowledged writes.
    pub fn open(options: RemoteOptions) -> Result<OpenStore, RemoteError> {
        let location = Location::new(options)?;
        let (mut connection, promise) = location.connect()?;
        let (found, opened) = registry::open(&mut connection, FORMAT, location.options.membership)
            .map_err(|error| refusal(&error))?;
        if found > FORMAT {
            return Err(RemoteError::NewerFormat {
                found,
                known: FORMAT,
            });
        }
        if upgrade::has_hashes(&mut connection).map_err(|error| refusal(&error))? {
            tracing::info!("changing the records in Redis to format {FORMAT}");
            upgrade::replace_hashes(&mut connection).map_err(|error| refusal(&error))?;
        }
        let writer = match location.options.membership {
            Membership::Alone => {
                let number = take_over(&mut connection, opened).map_err(|error| refusal(&error))?;
                Some(Writer::new(connection, number).map_err(|error| refusal(&error))?)
            }
            // The first commit connects, and compares the generation with that of the view.
            Membership::Joins { .. } => None,
        };
        let store = Self {
            location,
            opened,
            writer,
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

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Writer) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let mut connection = self.location.connect()?.0;
                let number =
                    take_over(&mut connection, self.opened).map_err(|error| failure(&error))?;
                if self.location.options.membership != Membership::Alone
                    && registry::has_new_generation(&mut connection)
                        .map_err(|error| failure(&error))?
                {
                    return Err(StoreError::unavailable(NEW_GENERATION));
                }
                Writer::new(connection, number).map_err(|error| failure(&error))?
            }
        };
        let done = work(&mut writer).map_err(|error| failure(&error))?;
        self.writer = Some(writer);
        Ok(done)
    }
}

impl Store for RedisStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(RedisReader {
            location: self.location.clone(),
            connection: None,
            has_hashes: false,
        }))
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        let answer = self.attempt(|writer| writer.commit((view, member), writes))?;
        let current = answer.current;
        if current > view || (current == view && !answer.is_member) {
            return Err(StoreError::stale_view(view, current, answer.is_member));
        }
        if current < view || !answer.is_newest {
            self.writer = None;
            let message = "the store in Redis was replaced while it was in use";
            return Err(StoreError::unavailable(message));
        }
        Ok(outcomes(writes.len(), answer.refused))
    }

    fn registry(&mut self) -> Result<Option<Box<dyn Registry>>, StoreError> {
        Ok(Some(Box::new(RedisRegistry {
            location: self.location.clone(),
            connection: None,
        })))
    }

    fn set_indexes(&mut self, definitions: &[Arc<str>]) -> Result<(), StoreError> {
        // A member may declare before it writes: it joins the view later.
        let (mut connection, _) = self.location.connect()?;
        let is_declared = indexes::declare(&mut connection, self.opened, definitions)
            .map_err(|error| failure(&error))?;
        if self.writer.is_some() {
            self.attempt(Writer::read_indexes)?;
        }
        self.declared = definitions.to_vec();
        self.is_undeclared = !is_declared;
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
        if (self.writer.as_ref()).is_some_and(|writer| !writer.has_pending_indexes()) {
            return Ok(IndexBuild::Complete);
        }
        self.attempt(Writer::build)
    }

    /// Marks a clean stop if the server is the only member.
    fn close(&mut self) -> Result<(), StoreError> {
        let opened = self.opened;
        self.attempt(|writer| registry::close(writer.connection(), opened))?;
        self.closed = true;
        self.writer = None;
        Ok(())
    }
}

impl RedisReader {
    /// A reader of a store that it does not open, so a running server can continue to use the store.
    ///
    /// # Errors
    /// The server can't be reached or used, or holds no store that this version can read.
    pub fn read_only(options: RemoteOptions) -> Result<Self, RemoteError> {
        let location = Location::new(options)?;
        let mut connection = location.connect()?.0;
        let found = redis::cmd("HGET")
            .arg(META)
            .arg("format")
            .query(&mut connection);
        refuse_format(found.map_err(|error| refusal(&error))?, FORMAT)?;
        let has_hashes = upgrade::has_hashes(&mut connection).map_err(|error| refusal(&error))?;
        Ok(Self {
            location,
            connection: Some(connection),
            has_hashes,
        })
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        self.location.attempt(&mut self.connection, work)
    }

    /// Looks up records that are not rows.
    fn load_hashes(&mut self, names: &[Name], found: &mut [Loaded]) -> Result<(), StoreError> {
        let missing = std::iter::zip(names, &*found);
        let missing = missing.filter(|(_, loaded)| **loaded == Loaded::Missing);
        let missing: Vec<Name> = missing.map(|(name, _)| name.clone()).collect();
        // If a server replaces one of the hashes at the same time, this fails, and the next attempt finds its row.
        let hashes = self.attempt(|connection| upgrade::load_hashes(connection, &missing))?;
        let mut hashes = hashes.into_iter();
        for loaded in found
            .iter_mut()
            .filter(|loaded| **loaded == Loaded::Missing)
        {
            *loaded = hashes.next().unwrap_or(Loaded::Missing);
        }
        Ok(())
    }
}

impl StoreReader for RedisReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(LOAD_COUNT_MAX) {
            let rows: Vec<Option<Vec<u8>>> = self.attempt(|connection| {
                let keys: Vec<String> = names.iter().map(|name| record_key(name)).collect();
                redis::cmd("MGET").arg(keys).query(connection)
            })?;
            let rows = std::iter::zip(names, rows).map(|(name, row)| match row {
                Some(row) => row::decode(name, &row),
                None => Loaded::Missing,
            });
            let mut loaded: Vec<Loaded> = rows.collect();
            if self.has_hashes {
                self.load_hashes(names, &mut loaded)?;
            }
            found.append(&mut loaded);
        }
        Ok(found)
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let range = ScanRange::new(prefix, after, count_max);
        let start = match range.start {
            Bound::Excluded(after) => format!("({after}"),
            Bound::Included(first) => format!("[{first}"),
            Bound::Unbounded => "-".to_owned(),
        };
        let end = range.end.map_or("+".to_owned(), |end| format!("({end}"));
        let found: Vec<Vec<u8>> = self.attempt(|connection| {
            redis::cmd("ZRANGEBYLEX")
                .arg(NAMES)
                .arg(start)
                .arg(end)
                .arg(&["LIMIT", "0"])
                .arg(range.limit)
                .query(connection)
        })?;
        let mut names: Vec<_> = found
            .iter()
            .map(|name| Name::from(&*String::from_utf8_lossy(name)))
            .collect();
        let has_more = names.len() > count_max;
        names.truncate(count_max);
        let records = self.load(&names)?;
        for (name, loaded) in names.into_iter().zip(records) {
            // Skips records that were deleted between the two requests.
            if loaded != Loaded::Missing {
                visit(name, loaded);
            }
        }
        Ok(has_more)
    }

    fn read_index(
        &mut self,
        read: &IndexRead,
        visit: &mut dyn FnMut(&[u8], &str),
    ) -> Result<IndexEnd, StoreError> {
        self.attempt(|connection| indexes::read(connection, read, visit))
    }
}

/// Connects to a server that may not hold a store.
///
/// # Errors
/// The server can't be reached, or refuses the connection.
pub fn connect_to_any(options: &RemoteOptions) -> Result<Connection, RemoteError> {
    let connection = Location::new(options.clone())?.open_connection();
    connection.map_err(|error| refusal(&error))
}

impl Location {
    fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        let wrong = |error: RedisError| RemoteError::Refused(error_text(&error));
        let mut info = options.url.as_str().into_connection_info().map_err(wrong)?;
        if !options.password.is_empty() {
            let settings = info
                .redis_settings()
                .clone()
                .set_password(&options.password);
            info = info.set_redis_settings(settings);
        }
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                let read = |path| {
                    std::fs::read(path)
                        .map_err(|error| RemoteError::Refused(format!("{path:?}: {error}")))
                };
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: options.ca.as_ref().map(read).transpose()?,
                };
                Client::build_with_tls(info, certificates).map_err(wrong)?
            }
            address => {
                if let ConnectionAddr::Tcp(host, _) = address
                    && !is_local(host)
                {
                    tracing::warn!(
                        host,
                        "the connection to Redis is not encrypted; use an address with rediss://"
                    );
                }
                Client::open(info).map_err(wrong)?
            }
        };
        Ok(Self { options, client })
    }

    /// Opens a connection without sending a command of ours.
    fn open_connection(&self) -> RedisResult<Connection> {
        let timeout = self.options.timeout;
        let connection = self.client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }

    /// Opens a connection and checks the server's settings, which may have changed.
    fn connect(&self) -> Result<(Connection, Promise), RemoteError> {
        let mut connection = self.open_connection().map_err(|error| refusal(&error))?;
        let promise = promise(&mut connection, self.options.is_relaxed)?;
        Ok((connection, promise))
    }

    /// Runs `work` on the connection. If the last connection was given up, opens a new one.
    fn attempt<T>(
        &self,
        slot: &mut Option<Connection>,
        work: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect()?.0,
        };
        match work(&mut connection) {
            Ok(done) => {
                *slot = Some(connection);
                Ok(done)
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

fn record_key(name: &str) -> String {
    format!("{RECORD}{name}")
}

/// Reads the server's settings for durability and for full memory.
fn promise(connection: &mut Connection, is_relaxed: bool) -> Result<Promise, RemoteError> {
    let wanted = [
        "appendonly",
        "appendfsync",
        "no-appendfsync-on-rewrite",
        "maxmemory",
        "maxmemory-policy",
    ];
    let mut settings: HashMap<String, String> = HashMap::new();
    let mut weaknesses = Vec::new();
    for setting in wanted {
        let answer: RedisResult<HashMap<String, String>> = redis::cmd("CONFIG")
            .arg("GET")
            .arg(setting)
            .query(connection);
        match answer {
            Ok(answer) => settings.extend(answer),
            Err(error)
                if error.is_io_error() || error.is_timeout() || error.code() == Some("NOAUTH") =>
            {
                return Err(refusal(&error));
            }
            Err(error) => {
                weaknesses.push(format!(
                    "Redis does not report whether it syncs ({}); allow the user to run CONFIG GET",
                    error_text(&error)
                ));
                break;
            }
        }
    }
    if weaknesses.is_empty() {
        let mut require = |setting: &str, is_right: &dyn Fn(&str) -> bool, right: &str| {
            let found = settings.get(setting).map_or("unknown", String::as_str);
            if !is_right(found) {
                weaknesses.push(format!("Redis' {setting} is {found}; set it to {right}"));
            }
        };
        require("appendonly", &|found| found == "yes", "yes");
        require("appendfsync", &|found| found == "always", "always");
        require("no-appendfsync-on-rewrite", &|found| found == "no", "no");
        if settings.get("maxmemory").is_none_or(|bytes| bytes != "0") {
            // The store's keys have no time to live, so the volatile policies never evict them.
            let keeps = |found: &str| found == "noeviction" || found.starts_with("volatile-");
            require("maxmemory-policy", &keeps, "noeviction");
        }
    }
    Promise::of_server(
        &weaknesses,
        "Redis with appendonly=yes, appendfsync=always",
        is_relaxed,
    )
}

/// Classifies why opening failed: [`RemoteError::Unreachable`] if a retry may help, [`RemoteError::Refused`] if the operator must act.
fn refusal(error: &RedisError) -> RemoteError {
    if let Some(fault) = certificate_fault(error) {
        return RemoteError::Refused(fault);
    }
    let may_pass = error.is_io_error()
        || error.is_timeout()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::TryAgain
            )
        );
    if may_pass {
        RemoteError::Unreachable(error_text(error))
    } else {
        RemoteError::Refused(error_text(error))
    }
}

/// The error of an open store.
fn failure(error: &RedisError) -> StoreError {
    StoreError {
        trouble: match error.code() {
            Some("OOM" | "MISCONF") => StoreTrouble::Full,
            _ => StoreTrouble::Unavailable,
        },
        message: error_text(error),
    }
}

fn error_text(error: &RedisError) -> String {
    error.to_string()
}
