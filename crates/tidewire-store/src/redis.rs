//! The store in Redis or Valkey. Contract: `spec/store-redis.md`.
//!
//! A batch is one script, which the server runs alone and whose effects it syncs before it answers (`appendfsync always`).
//! All keys have the hash tag `{tidewire}`, so that they are on one node of a Redis cluster.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::LazyLock;

use redis::{
    Client, Connection, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline,
    RedisError, RedisResult, Script, ServerErrorKind, TlsCertificates,
};
use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Opened, Store, StoreChange, StoreError, StoreReader,
    StoreTrouble, StoreWrite, StoredRecord, Term, Version, Written,
};
use tidewire_core::text::{Name, Payload};

use super::range::ScanRange;
use super::remote::{
    OpenStore, Promise, RemoteError, RemoteOptions, certificate_fault, is_local, outcomes,
    refuse_format,
};
use super::{checksum, epoch_after, write_keys};

/// The version of the stored format, see `spec/store-redis.md`.
pub const FORMAT: i64 = 2;

const META: &str = "{tidewire}:meta";
const NAMES: &str = "{tidewire}:names";
const RECORD: &str = "{tidewire}:record:";

/// Maximum number of names that one pipeline looks up.
const LOAD_COUNT_MAX: usize = 1_000;

/// Stores an opening. Arguments: this version's format, and the epoch to use after an unclean stop. Returns format, epoch and opening.
static OPEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "redis.call('HSETNX', KEYS[1], 'format', ARGV[1])
        local format = redis.call('HGET', KEYS[1], 'format')
        if tonumber(format) > tonumber(ARGV[1]) then return {format, '0', '0'} end
        redis.call('HSET', KEYS[1], 'format', ARGV[1])
        if redis.call('HGET', KEYS[1], 'clean') ~= '1' then
            redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
        end
        redis.call('HSET', KEYS[1], 'clean', '0')
        local opening = redis.call('HINCRBY', KEYS[1], 'opening', 1)
        return {format, redis.call('HGET', KEYS[1], 'epoch'), tostring(opening)}",
    )
});

/// Makes a connection the one for writing and returns its number, or 0 if another server has opened the store since. Batches of earlier
/// connections that Redis has not started yet then have no effect.
static TAKE_OVER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HGET', KEYS[1], 'opening') ~= ARGV[1] then return 0 end
        return redis.call('HINCRBY', KEYS[1], 'connection', 1)",
    )
});

/// Commits a batch. Keys: the meta key, the key of all names, and one key for each write. Arguments: the term, the number of the
/// connection, and nine values for each write. Returns the last opening and the numbers of the refused writes, counted from 1, or 0 if
/// the whole batch was refused. Numbers are compared as text, because a Lua number has only 53 bits.
static COMMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local opening = redis.call('HGET', KEYS[1], 'opening') or '0'
        local answer = {opening}
        if opening ~= ARGV[1] or redis.call('HGET', KEYS[1], 'connection') ~= ARGV[2] then
            return {opening, '0'}
        end
        for place = 1, #KEYS - 2 do
            local key, at = KEYS[place + 2], (place - 1) * 9 + 3
            local name, expects = ARGV[at], ARGV[at + 1]
            local incarnation, version = ARGV[at + 4], ARGV[at + 5]
            local checksum, data, write_keys = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
            local stored = redis.call('HMGET', key, 'incarnation', 'version')
            local is_met = expects == 'anything' or (expects == 'missing' and not stored[1])
                or (expects == 'at' and stored[1] == ARGV[at + 2] and stored[2] == ARGV[at + 3])
            if checksum == '' then
                if stored[1] and is_met then
                    redis.call('DEL', key)
                    redis.call('ZREM', KEYS[2], name)
                elseif stored[1] then
                    answer[#answer + 1] = tostring(place)
                end
            elseif is_met then
                redis.call('HSET', key, 'incarnation', incarnation, 'version', version,
                    'checksum', checksum, 'data', data)
                if write_keys == '' then
                    redis.call('HDEL', key, 'write_keys')
                else
                    redis.call('HSET', key, 'write_keys', write_keys)
                end
                redis.call('ZADD', KEYS[2], 0, name)
            elseif stored[1] ~= incarnation or stored[2] ~= version
                or redis.call('HGET', key, 'data') ~= data
                or (redis.call('HGET', key, 'write_keys') or '') ~= write_keys then
                answer[#answer + 1] = tostring(place)
            end
        end
        return answer",
    )
});

/// Marks a clean stop, unless another server has opened the store since.
static CLOSE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HGET', KEYS[1], 'opening') == ARGV[1] then
            redis.call('HSET', KEYS[1], 'clean', '1')
        end",
    )
});

/// The writing half.
pub struct RedisStore {
    location: Location,
    opened: Opened,
    /// The connection for writing, and its number.
    writer: Option<(Connection, u64)>,
    closed: bool,
}

/// The reading half, with its own connection.
pub struct RedisReader {
    location: Location,
    connection: Option<Connection>,
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
        let last = redis::cmd("HGET")
            .arg(META)
            .arg("epoch")
            .query::<Option<u64>>(&mut connection)
            .map_err(|error| refusal(&error))?;
        let next = epoch_after(Epoch(last.unwrap_or(0)));
        let (found, epoch, opening): (i64, u64, u64) = OPEN
            .key(META)
            .arg(FORMAT)
            .arg(next.0)
            .invoke(&mut connection)
            .map_err(|error| refusal(&error))?;
        if found > FORMAT {
            return Err(RemoteError::NewerFormat {
                found,
                known: FORMAT,
            });
        }
        let epoch = Epoch(epoch);
        let opened = Opened { epoch, opening };
        let number = take_over(&mut connection, opened).map_err(|error| refusal(&error))?;
        let store = Self {
            location,
            opened,
            writer: Some((connection, number)),
            closed: false,
        };
        Ok(OpenStore {
            store: Box::new(store),
            opened,
            promise,
        })
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, u64) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let (mut connection, number) = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let mut connection = self.location.connect()?.0;
                let number = take_over(&mut connection, self.opened);
                (connection, number.map_err(|error| failure(&error))?)
            }
        };
        let done = work(&mut connection, number).map_err(|error| failure(&error))?;
        self.writer = Some((connection, number));
        Ok(done)
    }
}

/// Makes a connection the one for writing, and returns its number.
fn take_over(connection: &mut Connection, opened: Opened) -> RedisResult<u64> {
    TAKE_OVER.key(META).arg(opened.opening).invoke(connection)
}

impl Store for RedisStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(RedisReader {
            location: self.location.clone(),
            connection: None,
        }))
    }

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        let answer: Vec<u64> =
            self.attempt(|connection, number| commit(connection, number, term, writes))?;
        let (newest, refused) = answer
            .split_first()
            .ok_or_else(|| StoreError::unavailable("the answer of Redis is empty"))?;
        let newest = Term(*newest);
        if newest > term {
            return Err(StoreError::stale_term(term, newest));
        }
        if newest < term || refused.contains(&0) {
            self.writer = None;
            let message = "the store in Redis was replaced while it was in use";
            return Err(StoreError::unavailable(message));
        }
        Ok(outcomes(writes.len(), refused.iter().copied()))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let opening = self.opened.opening;
        self.attempt(|connection, _| CLOSE.key(META).arg(opening).invoke::<()>(connection))?;
        self.closed = true;
        self.writer = None;
        Ok(())
    }
}

/// Commits a batch on the connection with this number.
fn commit(
    connection: &mut Connection,
    number: u64,
    term: Term,
    writes: &[StoreWrite],
) -> RedisResult<Vec<u64>> {
    let mut call = COMMIT.prepare_invoke();
    call.key(META).key(NAMES).arg(term.0).arg(number);
    for write in writes {
        call.key(record_key(&write.name)).arg(write.name.as_str());
        match write.expected {
            Expected::Anything => call.arg("anything").arg("").arg(""),
            Expected::Missing => call.arg("missing").arg("").arg(""),
            Expected::At(incarnation, version) => call.arg("at").arg(incarnation.0).arg(version.0),
        };
        match &write.change {
            StoreChange::Put(record) => {
                let write_keys = record.write_keys.as_deref().map(write_keys::to_text);
                call.arg(record.incarnation.0)
                    .arg(record.version.0)
                    .arg(checksum(&write.name, record, write_keys.as_deref()))
                    .arg(record.data.as_str())
                    .arg(write_keys.unwrap_or_default())
            }
            StoreChange::Delete => call.arg("").arg("").arg("").arg("").arg(""),
        };
    }
    call.invoke(connection)
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
        Ok(Self {
            location,
            connection: Some(connection),
        })
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        self.location.attempt(&mut self.connection, work)
    }
}

impl StoreReader for RedisReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(LOAD_COUNT_MAX) {
            let mut lookups = Pipeline::with_capacity(names.len());
            for name in names {
                lookups.cmd("HMGET").arg(record_key(name)).arg(&[
                    "incarnation",
                    "version",
                    "checksum",
                    "data",
                    "write_keys",
                ]);
            }
            let rows: Vec<StoredRow> = self.attempt(|connection| lookups.query(connection))?;
            found.extend(std::iter::zip(names, rows).map(|(name, row)| row.loaded(name)));
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

/// The stored fields of a record. If the record does not exist, all are missing.
struct StoredRow {
    incarnation: Option<u64>,
    version: Option<u32>,
    checksum: Option<u32>,
    data: Option<Vec<u8>>,
    write_keys: Option<Vec<u8>>,
    is_there: bool,
}

impl FromRedisValue for StoredRow {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        let fields: [Option<Vec<u8>>; 5] = FromRedisValue::from_redis_value(value)?;
        let is_there = fields.iter().any(Option::is_some);
        let [incarnation, version, checksum, data, write_keys] = fields;
        Ok(Self {
            incarnation: number(incarnation),
            version: number(version),
            checksum: number(checksum),
            data,
            write_keys,
            is_there,
        })
    }
}

fn number<T: std::str::FromStr>(field: Option<Vec<u8>>) -> Option<T> {
    std::str::from_utf8(&field?).ok()?.parse().ok()
}

impl StoredRow {
    fn loaded(self, name: &str) -> Loaded {
        if !self.is_there {
            return Loaded::Missing;
        }
        let sound = || {
            let keys_text = match &self.write_keys {
                Some(text) => Some(std::str::from_utf8(text).ok()?),
                None => None,
            };
            let record = StoredRecord {
                incarnation: Incarnation(self.incarnation?),
                version: Version(self.version?),
                data: Payload::from_checked(std::str::from_utf8(self.data.as_deref()?).ok()?),
                write_keys: write_keys::of_row(keys_text)?,
            };
            (self.checksum? == checksum(name, &record, keys_text)).then_some(record)
        };
        sound().map_or(Loaded::Corrupt, Loaded::Found)
    }
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
