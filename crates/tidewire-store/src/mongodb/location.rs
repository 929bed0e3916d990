//! The connection to a MongoDB server: its address, its requests, and its durability.

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, ReadConcern, ReadPreference,
    SelectionCriteria, ServerAddress, Tls, TlsOptions, WriteConcern,
};
use mongodb::{Client, Collection, Database};
use tidewire_core::store::{StoreError, StoreTrouble};

use crate::remote::{Promise, RemoteError, RemoteOptions, is_local};

const RECORDS: &str = "tidewire_records";
const META: &str = "tidewire_meta";

/// The error codes of a server that is not the primary, not yet the primary, or shutting down.
const PASSING: [i32; 8] = [91, 133, 189, 10_107, 11_600, 11_602, 13_435, 13_436];
/// The error code of a full disk.
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// The error code of a key that already exists.
pub(super) const DUPLICATE_KEY: i32 = 11_000;

/// The database and how to connect to it.
#[derive(Clone)]
pub struct Location {
    options: RemoteOptions,
    client: Client,
    database: Database,
    /// The write concern in the address.
    asked: Option<WriteConcern>,
    /// Whether the server is part of a replica set, whose members may be behind the primary.
    is_replicated: bool,
}

/// Why a request failed.
#[derive(Debug)]
pub struct Failed {
    /// The server's error code, if the server has answered.
    pub(super) code: Option<i32>,
    /// Whether the same request may succeed later.
    may_pass: bool,
    /// The server's reason.
    pub message: String,
}

impl Location {
    /// Creates the driver's client, which connects at its first use.
    ///
    /// # Errors
    /// The address or its options are wrong.
    pub fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        if options.url.starts_with("mongodb+srv:") {
            let reason = "an address with mongodb+srv:// is not supported; name the hosts, such as mongodb://one,two/database";
            return Err(RemoteError::Refused(reason.to_owned()));
        }
        let mut settings = wait(&options, ClientOptions::parse(&options.url).into_future())?;
        let Some(name) = settings.default_database.clone() else {
            let reason =
                "the address names no database; write mongodb://host:27017/database".to_owned();
            return Err(RemoteError::Refused(reason));
        };
        if !options.password.is_empty() {
            let Some(credential) = &mut settings.credential else {
                let reason = "a password is set, but the address names no user; write mongodb://user@host/database";
                return Err(RemoteError::Refused(reason.to_owned()));
            };
            credential.password = Some(options.password.to_string());
        }
        settings.tls = Some(tls(&settings, &options));
        let asked = settings.write_concern.take();
        settings.app_name = Some("tidewire".to_owned());
        settings.connect_timeout = Some(options.timeout);
        // Shorter than the request's timeout, so that the driver reports the cause before the request ends.
        settings.server_selection_timeout = Some(options.timeout / 2);
        settings.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        // A failed request may have been done. The engine decides when to retry it.
        settings.retry_writes = Some(false);
        settings.retry_reads = Some(false);
        let client = wait(&options, async { Client::with_options(settings) })?;
        Ok(Self {
            database: client.database(&name),
            client,
            options,
            asked,
            is_replicated: false,
        })
    }

    /// Waits for the driver's answer.
    ///
    /// # Errors
    /// The request has failed, or the timeout of a request has passed.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        wait(&self.options, work)
    }

    /// Runs a command in the database.
    pub(super) fn run(&self, command: Document) -> Result<Document, Failed> {
        self.wait(self.database.run_command(command).into_future())
    }

    /// Runs a command that writes, and waits until its writes are durable. The caller handles the errors of single writes.
    pub(super) fn write(&self, mut command: Document) -> Result<Document, Failed> {
        command.insert("writeConcern", self.write_concern());
        let answer = self.run(command)?;
        match answer.get_document("writeConcernError") {
            Ok(error) => Err(Failed::from_answer(error)),
            Err(_) => Ok(answer),
        }
    }

    /// The write concern of every write: synced by a majority. If the address sets a weaker one, that one applies.
    fn write_concern(&self) -> Document {
        let timeout_ms = i64::try_from(self.options.timeout.as_millis()).unwrap_or(i64::MAX);
        let mut concern = doc! { "w": "majority", "j": true, "wtimeout": timeout_ms };
        if let Some(asked) = &self.asked {
            if let Some(Acknowledgment::Nodes(count)) = asked.w {
                concern.insert("w", i64::from(count));
            }
            if asked.journal == Some(false) {
                concern.insert("j", false);
            }
        }
        concern
    }

    /// The collection of records. Reads from a replica set return only writes that a majority has, which no fail-over can roll back.
    pub(super) fn records<T: Send + Sync>(&self) -> Collection<T> {
        let concern = self.is_replicated.then(ReadConcern::majority);
        let options = CollectionOptions::builder().read_concern(concern).build();
        self.database.collection_with_options(RECORDS, options)
    }

    /// The database, which may not hold a store.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The collection with the store's state. Its reads return the newest data of the server.
    pub(super) fn meta(&self) -> Collection<Document> {
        self.database.collection(META)
    }

    /// Reads the server's settings for durability, and whether it is part of a replica set.
    pub(super) fn promise(&mut self) -> Result<Promise, RemoteError> {
        let hello = self.ask(doc! { "hello": 1 })?;
        let set = hello.get_str("setName").ok();
        let is_router = hello.get_str("msg").ok() == Some("isdbgrid");
        self.is_replicated = set.is_some() || is_router;
        let mut weaknesses = Vec::from_iter(self.asked.as_ref().and_then(asks_for_less));
        let mut found = "a router".to_owned();
        if is_router {
            let reason = "a router of MongoDB does not report whether its shards write to disk; use the address of a replica set";
            weaknesses.push(reason.to_owned());
        } else {
            match self.engine()? {
                Ok(engine) => found = engine,
                Err(weakness) => weaknesses.push(weakness),
            }
        }
        if let Some(set) = set {
            weaknesses.extend(self.weakness_of_set()?);
            found = format!("{found}, set {set}");
        }
        let found = format!("MongoDB with w=majority, j=true ({found})");
        Promise::of_server(&weaknesses, &found, self.options.is_relaxed)
    }

    /// The storage engine, or the weakness: it is not persistent, or that is unknown.
    fn engine(&self) -> Result<Result<String, String>, Failed> {
        let what = "whether its storage engine writes to disk";
        let status = match self.ask(doc! { "serverStatus": 1 }) {
            Err(error) if error.may_pass => return Err(error),
            Err(error) => return Ok(Err(unknown(what, &error.message))),
            Ok(status) => status,
        };
        let Ok(engine) = status.get_document("storageEngine") else {
            return Ok(Err(unknown(what, "no storageEngine in serverStatus")));
        };
        let name = engine.get_str("name").unwrap_or("unknown").to_owned();
        Ok(match engine.get_bool("persistent") {
            Ok(true) => Ok(name),
            Ok(false) => Err(format!(
                "MongoDB's storage engine is {name}; set storage.engine to wiredTiger"
            )),
            Err(_) => Err(unknown(what, "no storageEngine.persistent in serverStatus")),
        })
    }

    /// The setting of a replica set with which a majority acknowledges writes before they are synced.
    fn weakness_of_set(&self) -> Result<Option<String>, Failed> {
        let setting = "writeConcernMajorityJournalDefault";
        let config = match self.ask(doc! { "replSetGetConfig": 1 }) {
            Err(error) if error.may_pass => return Err(error),
            Err(error) => return Ok(Some(unknown("how its set is configured", &error.message))),
            Ok(answer) => answer,
        };
        let config = config.get_document("config");
        let is_set = config.and_then(|config| config.get_bool(setting));
        let weakness = || format!("MongoDB's {setting} is false; set it to true");
        Ok((is_set.ok() == Some(false)).then(weakness))
    }

    /// Runs a command in the database `admin`.
    fn ask(&self, command: Document) -> Result<Document, Failed> {
        self.wait(
            self.client
                .database("admin")
                .run_command(command)
                .into_future(),
        )
    }
}

fn wait<T>(
    options: &RemoteOptions,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failed> {
    match options.wait(work) {
        Ok(done) => done.map_err(|error| Failed::from(&error)),
        Err(error) => Err(Failed {
            code: None,
            may_pass: true,
            message: error.message,
        }),
    }
}

/// The TLS settings. Connections to other machines use TLS, unless the address disables it.
fn tls(settings: &ClientOptions, options: &RemoteOptions) -> Tls {
    let is_near = settings.hosts.iter().all(|address| match address {
        ServerAddress::Tcp { host, .. } => is_local(host),
        _ => true,
    });
    match &settings.tls {
        Some(Tls::Disabled) => Tls::Disabled,
        None if is_near => Tls::Disabled,
        asked => {
            let mut tls = match asked {
                Some(Tls::Enabled(tls)) => tls.clone(),
                _ => TlsOptions::default(),
            };
            if options.ca.is_some() {
                tls.ca_file_path.clone_from(&options.ca);
            }
            Tls::Enabled(tls)
        }
    }
}

/// The text for a setting that the server does not report.
fn unknown(what: &str, cause: &str) -> String {
    format!("MongoDB does not report {what} ({cause}); give the user the role clusterMonitor")
}

/// The text for a write concern in the address that is weaker than the store's own.
fn asks_for_less(asked: &WriteConcern) -> Option<String> {
    let mut less = Vec::new();
    match &asked.w {
        None | Some(Acknowledgment::Majority) => {}
        Some(Acknowledgment::Nodes(count)) => less.push(format!("w={count}")),
        Some(other) => less.push(format!("w={other:?}")),
    }
    if asked.journal == Some(false) {
        less.push("journal=false".to_owned());
    }
    let less = less.join("&");
    (!less.is_empty()).then(|| format!("the address of MongoDB sets {less}; remove that option"))
}

impl Failed {
    /// An error that a retry can't fix.
    pub(super) fn wrong(message: String) -> Self {
        Self {
            code: None,
            may_pass: false,
            message,
        }
    }

    /// The error of a single write, or of a write concern, in the server's answer.
    pub(super) fn from_answer(error: &Document) -> Self {
        let code = error.get_i32("code").ok();
        Self {
            code,
            may_pass: code.is_some_and(|code| PASSING.contains(&code)),
            message: error
                .get_str("errmsg")
                .unwrap_or("an error without a message")
                .to_owned(),
        }
    }
}

impl From<&Error> for Failed {
    fn from(error: &Error) -> Self {
        let (code, may_pass) = match &*error.kind {
            ErrorKind::Command(said) => (Some(said.code), PASSING.contains(&said.code)),
            ErrorKind::Io(_)
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. } => (None, true),
            _ => (None, false),
        };
        Self {
            code,
            may_pass,
            message: error.to_string(),
        }
    }
}

/// Why a server was not opened: [`RemoteError::Unreachable`] if a retry may help, [`RemoteError::Refused`] if the operator must act.
impl From<Failed> for RemoteError {
    fn from(failed: Failed) -> Self {
        if failed.may_pass {
            Self::Unreachable(failed.message)
        } else {
            Self::Refused(failed.message)
        }
    }
}

/// The error of an open store.
impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        Self {
            trouble: if failed.code == Some(OUT_OF_DISK_SPACE) {
                StoreTrouble::Full
            } else {
                StoreTrouble::Unavailable
            },
            message: failed.message,
        }
    }
}
