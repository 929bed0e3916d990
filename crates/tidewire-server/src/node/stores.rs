//! The stores of a node: the default store and the stores for certain prefixes. Each store has its own threads.

use std::iter;
use std::sync::Arc;

use tidewire_config::option::join;
use tidewire_config::plan::Plan;
use tidewire_config::section::Store as StoreOptions;
use tidewire_config::stores::{DEFAULT_NAME, SECTION};
use tidewire_core::effect::StoreCompletion;
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::store::{Store, StoreError};
use tidewire_store::ReadOnlyStore;
use tidewire_store::folder::DataFolder;
use tidewire_store::history_sweep::HistorySweep;
use tidewire_store::remote::{OpenStore, Promise};
use tidewire_store::scrub::{Scrub, ScrubHealth};
use tidewire_store::stray;
use tidewire_store::thread::{
    CompletionSender, Ending, OnQuotaChange, StoreClient, StoreHealth, StoreThreads,
};
use tokio::runtime::Handle;

use super::store::{StoreWrapper, open_named, open_read_only, open_store, start_scrub};
use crate::exit::{Exit, Failure};

/// An open store whose threads have not started.
pub struct NamedOpen {
    /// Its name in the configuration.
    pub name: String,
    /// The open store.
    pub open: OpenStore,
    /// Its own data folder, if it has one.
    pub folder: Option<DataFolder>,
}

/// Opens all stores of the configuration, ordered by number. `folder` is the data folder of the node.
///
/// # Errors
/// A store can't be opened.
pub fn open_all(
    plan: &Plan,
    wrapper: Option<&dyn StoreWrapper>,
    folder: &DataFolder,
    runtime: &Handle,
) -> Result<Vec<NamedOpen>, Failure> {
    let mut stores = vec![NamedOpen {
        name: DEFAULT_NAME.to_owned(),
        open: open_store(plan, wrapper, folder, runtime)?,
        folder: None,
    }];
    for (name, named) in plan.config.stores.iter() {
        let (open, folder) = open_named(name, &named.store, plan, folder, runtime)?;
        stores.push(NamedOpen {
            name: name.to_owned(),
            open,
            folder,
        });
    }
    Ok(stores)
}

/// Opens all stores of the configuration for reading only, ordered by number.
///
/// # Errors
/// A store does not exist or can't be read.
pub fn open_all_read_only(plan: &Plan, runtime: &Handle) -> Result<Vec<ReadOnlyStore>, Failure> {
    let default = &plan.config.store;
    let named = plan.config.stores.iter();
    let named = named.map(|(name, named)| (join(SECTION, name), &named.store));
    let all = iter::once(("store".to_owned(), default)).chain(named);
    all.map(|(section, options)| open_read_only(&section, options, &default.path, runtime))
        .collect()
}

/// Refuses a store that holds a record which the prefixes assign to another store. The server would not find that record, and a
/// client might create it again in the other store.
///
/// # Errors
/// A store holds such a record, or can't be read.
pub(crate) fn refuse_strays(stores: &mut [NamedOpen], routes: &StoreRoutes) -> Result<(), Failure> {
    let names: Vec<String> = stores.iter().map(|store| store.name.clone()).collect();
    for (number, NamedOpen { name, open, .. }) in (0..).map(StoreId).zip(stores) {
        let reader = open.store.reader();
        let found = reader.and_then(|mut reader| stray::find(&mut *reader, number, routes));
        let found = found.map_err(|error| {
            let line = format!("the store {name} can't be read: {error}");
            Failure::new(Exit::DataFolder, line)
        })?;
        if let Some(stray) = found {
            let target = &names[routes.find(&stray).index()];
            let line = format!(
                "the store {name} holds the record {:?}, but the prefixes below `stores` assign it to the store {target}; move such \
                 records with `tidewire store move`, or restore the previous prefixes",
                stray.as_str()
            );
            return Err(Failure::new(Exit::DataFolder, line));
        }
    }
    Ok(())
}

/// Starts to sweep expired histories, if the store keeps histories.
///
/// # Errors
/// The store can't open a reader, or the system can't start a thread.
fn start_sweep(
    plan: &Plan,
    store: &mut dyn Store,
    answer: &CompletionSender,
) -> Result<Option<HistorySweep>, Failure> {
    let rules = plan.settings().history;
    let (Some(interval), true) = (
        plan.config.event.history_sweep_interval.time(),
        rules.keep_in_store(),
    ) else {
        return Ok(None);
    };
    let failed = |error: String| Failure::new(Exit::DataFolder, error);
    let reader = store.reader().map_err(|error| failed(error.to_string()))?;
    let answer = Arc::clone(answer);
    // Any shard forwards the names to their owners.
    let tell = Box::new(move |names| answer(0, StoreCompletion::OldHistories(names)));
    let sweep = HistorySweep::start(reader, rules, interval, tell);
    Ok(Some(sweep.map_err(|error| failed(error.to_string()))?))
}

/// The running stores, ordered by number.
pub(super) struct Stores(Vec<RunningStore>);

struct RunningStore {
    name: String,
    promise: Promise,
    /// Checks all records periodically, if the scrub is enabled.
    scrub: Option<Scrub>,
    /// Finds expired histories periodically. Only in the default store.
    sweep: Option<HistorySweep>,
    threads: StoreThreads,
    /// Held until the store is closed.
    _folder: Option<DataFolder>,
}

impl Stores {
    /// Starts the threads of all stores.
    pub(super) fn start(
        plan: &Plan,
        stores: Vec<NamedOpen>,
        scrub_health: &ScrubHealth,
        answer: &CompletionSender,
    ) -> Result<Self, Failure> {
        let is_alone = stores.len() == 1;
        let config = &plan.config;
        let named = config.stores.iter().map(|(_, named)| &named.store);
        let options = std::iter::once(&config.store).chain(named);
        let shards = plan.shards;
        let run = |((number, store), options): ((StoreId, NamedOpen), &StoreOptions)| {
            let NamedOpen { name, open, folder } = store;
            let OpenStore {
                mut store,
                opened,
                promise,
            } = open;
            let scrub = start_scrub(options, &mut *store, scrub_health)?;
            let sweep = match number {
                StoreId::DEFAULT => start_sweep(plan, &mut *store, answer)?,
                _ => None,
            };
            let logged = if is_alone { "" } else { name.as_str() };
            let tell = Arc::clone(answer);
            let on_change: OnQuotaChange = Box::new(move |change| {
                for shard in 0..shards {
                    let (store, change) = (number, change.clone());
                    tell(shard, StoreCompletion::Quota { store, change });
                }
            });
            let answer = Arc::clone(answer);
            let threads = StoreThreads::start_named(logged, store, opened, answer, on_change)
                .map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
            Ok(RunningStore {
                name,
                promise,
                scrub,
                sweep,
                threads,
                _folder: folder,
            })
        };
        let running: Result<Vec<RunningStore>, Failure> = (0..)
            .map(StoreId)
            .zip(stores)
            .zip(options)
            .map(run)
            .collect();
        Ok(Self(running?))
    }

    /// The client of the default store, which also keeps the server's internal data.
    pub(super) fn default_client(&self) -> StoreClient {
        self.0[StoreId::DEFAULT.index()].threads.client()
    }

    /// The clients of all stores, ordered by number.
    pub(super) fn clients(&self) -> Vec<StoreClient> {
        let clients = self.0.iter().map(|store| store.threads.client());
        clients.collect()
    }

    /// The name of each store and its promise for an acknowledged write.
    pub(super) fn promises(&self) -> impl Iterator<Item = (&str, &Promise)> {
        let stores = self.0.iter();
        stores.map(|store| (store.name.as_str(), &store.promise))
    }

    /// The name of each store and its health.
    pub(super) fn healths(&self) -> Vec<(String, Arc<StoreHealth>)> {
        let health = |store: &RunningStore| Arc::clone(store.threads.client().health());
        let stores = self.0.iter();
        stores
            .map(|store| (store.name.clone(), health(store)))
            .collect()
    }

    /// Stops all stores. A store with dirty records, as `dirty` counts them, ends as cut off. Returns the first error.
    pub(super) fn stop(self, dirty: impl Fn(StoreId) -> u64) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for (number, store) in (0..).map(StoreId).zip(self.0) {
            let ending = match dirty(number) {
                0 => Ending::Complete,
                _ => Ending::CutOff,
            };
            // Dropped first: an open reader would block the last checkpoint.
            drop((store.scrub, store.sweep));
            outcome = outcome.and(store.threads.stop(ending));
        }
        outcome
    }
}
