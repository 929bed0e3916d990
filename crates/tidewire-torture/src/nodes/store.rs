//! The store of the cluster, read from outside: before the test, when it must be empty, and after it, when no node runs.

use std::time::Duration;

use tidewire_core::store::Loaded;
use tidewire_core::text::Name;
use tidewire_store::remote::{Membership, RemoteError, RemoteOptions};
use tidewire_store::{OpenError, ReadOnlyStore, StoreKind, open_read_only};
use tokio::runtime::Runtime;

use super::super::operation_history::ReadRecord;
use super::super::server::SECRETS;
use super::remote_url::RemoteUrl;

/// The timeout of a request to the store.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
/// How many records one read has.
const BATCH: usize = 256;

/// The name of the store in the configuration of a server.
pub(super) fn section(url: &RemoteUrl) -> &'static str {
    match url.scheme() {
        "redis" => "redis",
        _ => "postgres",
    }
}

/// A connection to the store that only reads.
pub(super) struct Reader {
    store: Option<ReadOnlyStore>,
    /// Drives the connections of the store, so it ends after them.
    _runtime: Runtime,
}

impl Reader {
    /// Connects. A database without the tables of a store is an empty store.
    ///
    /// # Errors
    /// The server can't be reached.
    pub(super) fn open(url: &RemoteUrl) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let is_redis = section(url) == "redis";
        let password = std::env::var(SECRETS[usize::from(is_redis)]).unwrap_or_default();
        let options = RemoteOptions {
            url: url.text().to_owned(),
            password: password.into(),
            ca: None,
            timeout: TIMEOUT,
            is_relaxed: true,
            membership: Membership::Alone,
            runtime: runtime.handle().clone(),
        };
        let kind = match is_redis {
            true => StoreKind::Redis(options),
            false => StoreKind::Postgres(options),
        };
        let store = match open_read_only(&kind, std::path::Path::new("")) {
            Ok(store) => Some(store),
            // The nodes report every other reason at their start.
            Err(OpenError::Remote {
                cause: RemoteError::Refused(_),
                ..
            }) => None,
            Err(error) => return Err(error.to_string()),
        };
        Ok(Self {
            store,
            _runtime: runtime,
        })
    }

    /// The name of a record, if the store has any.
    ///
    /// # Errors
    /// The store can't be read.
    pub(super) fn first_name(&mut self) -> Result<Option<String>, String> {
        let Some(store) = &mut self.store else {
            return Ok(None);
        };
        let mut found = None;
        store
            .reader
            .scan("", None, 1, &mut |name, _| found = Some(name.to_string()))
            .map_err(|error| error.to_string())?;
        Ok(found)
    }

    /// The stored records with these names.
    ///
    /// # Errors
    /// The store can't be read.
    pub(super) fn read(&mut self, names: &[&str]) -> Result<Vec<Option<ReadRecord>>, String> {
        let store = self.store.as_mut().ok_or("the store has no tables")?;
        let mut records = Vec::with_capacity(names.len());
        for batch in names.chunks(BATCH) {
            let batch: Vec<Name> = batch.iter().map(|name| Name::from(*name)).collect();
            let loaded = store
                .reader
                .load(&batch)
                .map_err(|error| error.to_string())?;
            for (name, loaded) in batch.iter().zip(loaded) {
                records.push(match loaded {
                    Loaded::Found(record) => Some(ReadRecord {
                        version: record.tag().version,
                        text: record.data.as_str().to_owned(),
                    }),
                    Loaded::Missing => None,
                    Loaded::Corrupt => return Err(format!("{name}: is damaged in the store")),
                });
            }
        }
        Ok(records)
    }
}
