//! Where a MongoDB server is: its address, how it is asked, and what it promises.

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

/// The codes with which a server says that it is not, or not yet, the one that takes writes, or that it is ending.
const PASSING: [i32; 8] = [91, 133, 189, 10_107, 11_600, 11_602, 13_435, 13_436];
/// The code of a full disk.
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// The code of a key that is there already.
pub(super) const DUPLICATE_KEY: i32 = 11_000;

/// Where the database is.
#[derive(Clone)]
pub(crate) struct Place {
    options: RemoteOptions,
    client: Client,
    database: Database,
    /// What the address asks of writes.
    asked: Option<WriteConcern>,
    /// Whether there may be members of a set that have not seen everything.
    is_replicated: bool,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What the server calls it, if it was the server.
    pub(super) code: Option<i32>,
    /// Whether the same request may succeed later.
    may_pass: bool,
    pub(crate) message: String,
}

impl Place {
    /// Makes the driver's client, which connects when it is used.
    pub(crate) fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        if options.url.starts_with("mongodb+srv:") {
            let reason = "an address with mongodb+srv:// is not understood; name the hosts, as mongodb://one,two/database";
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
                let reason = "there is a password, and the address names no user; write mongodb://user@host/database";
                return Err(RemoteError::Refused(reason.to_owned()));
            };
            credential.password = Some(options.password.to_string());
        }
        settings.tls = Some(tls(&settings, &options));
        let asked = settings.write_concern.take();
        settings.app_name = Some("tidewire".to_owned());
        settings.connect_timeout = Some(options.timeout);
        // So that the driver says what is wrong before the request ends without an answer.
        settings.server_selection_timeout = Some(options.timeout / 2);
        settings.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        // A request that fails may have been done. When it is repeated is decided elsewhere.
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

    /// Waits for an answer of the driver.
    pub(crate) fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failed> {
        wait(&self.options, work)
    }

    /// Runs a command in the database.
    pub(super) fn run(&self, command: Document) -> Result<Document, Failed> {
        self.wait(self.database.run_command(command).into_future())
    }

    /// Runs a command that writes, and waits until what it did is durable. The errors of single writes are left to the caller.
    pub(super) fn write(&self, mut command: Document) -> Result<Document, Failed> {
        command.insert("writeConcern", self.write_concern());
        let answer = self.run(command)?;
        match answer.get_document("writeConcernError") {
            Ok(error) => Err(Failed::from_answer(error)),
            Err(_) => Ok(answer),
        }
    }

    /// What every write asks for: a majority that has synced it, unless the address says less and that is allowed.
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

    /// The records. A set is asked for what a majority has, which no fail-over takes back.
    pub(super) fn records<T: Send + Sync>(&self) -> Collection<T> {
        let concern = self.is_replicated.then(ReadConcern::majority);
        let options = CollectionOptions::builder().read_concern(concern).build();
        self.database.collection_with_options(RECORDS, options)
    }

    /// The database, whatever it holds.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The notes about the store, as this server has them.
    pub(super) fn meta(&self) -> Collection<Document> {
        self.database.collection(META)
    }

    /// Asks the server what it does before it acknowledges, and whether it is one of several.
    pub(super) fn promise(&mut self) -> Result<Promise, RemoteError> {
        let hello = self.ask(doc! { "hello": 1 })?;
        let set = hello.get_str("setName").ok();
        let is_router = hello.get_str("msg").ok() == Some("isdbgrid");
        self.is_replicated = set.is_some() || is_router;
        let mut weaknesses = Vec::from_iter(self.asked.as_ref().and_then(asks_for_less));
        let mut found = "a router".to_owned();
        if is_router {
            let reason = "a router of MongoDB does not say whether its shards keep anything on disk; give the address of a replica set";
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

    /// The storage engine, or why it is not known to keep anything.
    fn engine(&self) -> Result<Result<String, String>, Failed> {
        let what = "whether its storage engine keeps anything on disk";
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

    /// What of a replica set's configuration lets a majority mean less than synced.
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

    /// Runs a command about the server.
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

/// TLS is spoken with other machines, unless the address says that it is not.
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

/// What a server does not say.
fn unknown(what: &str, told: &str) -> String {
    format!("MongoDB does not say {what} ({told}); give the user the role clusterMonitor")
}

/// What an address asks for, if it is less than what is asked for without it.
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
    (!less.is_empty()).then(|| format!("the address of MongoDB asks for {less}; leave that out"))
}

impl Failed {
    /// What can't be right, and stays so.
    pub(super) fn wrong(message: String) -> Self {
        Self {
            code: None,
            may_pass: false,
            message,
        }
    }

    /// What a server says of a write, or of how it was kept.
    pub(super) fn from_answer(error: &Document) -> Self {
        let code = error.get_i32("code").ok();
        Self {
            code,
            may_pass: code.is_some_and(|code| PASSING.contains(&code)),
            message: error
                .get_str("errmsg")
                .unwrap_or("an error without a text")
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

/// Why a server was not opened. What its owner must change is told at once, what may pass is tried again.
impl From<Failed> for RemoteError {
    fn from(failed: Failed) -> Self {
        if failed.may_pass {
            Self::Unreachable(failed.message)
        } else {
            Self::Refused(failed.message)
        }
    }
}

/// Why an open store could not do something.
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
