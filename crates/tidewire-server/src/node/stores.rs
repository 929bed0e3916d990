//! The stores of a node: the default one and those that have prefixes of their own. Each runs on threads of its own.

use std::iter;
use std::sync::Arc;

use tidewire_config::option::join;
use tidewire_config::plan::Plan;
use tidewire_config::section::Store as StoreOptions;
use tidewire_config::stores::{DEFAULT_NAME, SECTION};
use tidewire_core::effect::{StoreCompletion, StoreRequest};
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::store::{Store, StoreError};
use tidewire_store::Beside;
use tidewire_store::folder::DataFolder;
use tidewire_store::history_sweep::HistorySweep;
use tidewire_store::remote::{OpenStore, Promise};
use tidewire_store::scrub::{Scrub, ScrubHealth};
use tidewire_store::stray;
use tidewire_store::thread::{
    Answer, Ending, OnQuotaChange, StoreClient, StoreHealth, StoreThreads,
};
use tokio::runtime::Handle;

use super::store::{StoreWrapper, open_beside, open_named, open_store, start_scrub};
use crate::exit::{Exit, Failure};

/// A store that is open, before its threads run.
pub struct NamedOpen {
    /// Its name in the configuration.
    pub name: String,
    /// The open store.
    pub open: OpenStore,
    /// Its own data folder, if it has one.
    pub folder: Option<DataFolder>,
}

/// Opens all stores of the configuration, by number. `folder` is that of the first.
///
/// # Errors
/// One can't be opened.
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

/// Reads all stores of the configuration without opening them, by number.
///
/// # Errors
/// One is not there, or can't be read.
pub fn open_all_beside(plan: &Plan, runtime: &Handle) -> Result<Vec<Beside>, Failure> {
    let default = &plan.config.store;
    let named = plan.config.stores.iter();
    let named = named.map(|(name, named)| (join(SECTION, name), &named.store));
    let all = iter::once(("store".to_owned(), default)).chain(named);
    all.map(|(section, options)| open_beside(&section, options, &default.path, runtime))
        .collect()
}

/// Refuses a store that has a record which is looked for in another one: it would be as good as gone, and might be written anew
/// there.
///
/// # Errors
/// There is one, or a store can't be read.
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
                "the store {name} holds the record {:?}, which is looked for in the store {target} since the prefixes below \
                 `stores` have changed; move such records with `tidewire store move`, or set the prefixes as they were",
                stray.as_str()
            );
            return Err(Failure::new(Exit::DataFolder, line));
        }
    }
    Ok(())
}

/// Starts to look for histories that are too old, if some are kept in the store.
///
/// # Errors
/// The store has no reader to give, or the system no thread.
fn start_sweep(
    plan: &Plan,
    store: &mut dyn Store,
    answer: &Answer,
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
    // Any shard passes them on to their owners.
    let tell = Box::new(move |names| answer(0, StoreCompletion::OldHistories(names)));
    let sweep = HistorySweep::start(reader, rules, interval, tell);
    Ok(Some(sweep.map_err(|error| failed(error.to_string()))?))
}

/// The running stores, by number.
pub(super) struct Stores(Vec<RunningStore>);

struct RunningStore {
    name: String,
    promise: Promise,
    /// Reads all records again and again, if it is to.
    scrub: Option<Scrub>,
    /// The same of histories, in the default store.
    sweep: Option<HistorySweep>,
    threads: StoreThreads,
    /// Held until the store is closed.
    _folder: Option<DataFolder>,
}

impl Stores {
    /// Starts the threads of all.
    pub(super) fn start(
        plan: &Plan,
        stores: Vec<NamedOpen>,
        scrub_health: &ScrubHealth,
        answer: &Answer,
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
            let (term, answer) = (opened.term(), Arc::clone(answer));
            let threads = StoreThreads::start_named(logged, store, term, answer, on_change)
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

    /// The ways to all of them.
    pub(super) fn clients(&self) -> StoreClients {
        let clients = self.0.iter().map(|store| store.threads.client());
        StoreClients(clients.collect())
    }

    /// Each with its name and what an acknowledged write means there.
    pub(super) fn promises(&self) -> impl Iterator<Item = (&str, &Promise)> {
        let stores = self.0.iter();
        stores.map(|store| (store.name.as_str(), &store.promise))
    }

    /// Each with its name and how it is doing.
    pub(super) fn healths(&self) -> Vec<(String, Arc<StoreHealth>)> {
        let health = |store: &RunningStore| Arc::clone(store.threads.client().health());
        let stores = self.0.iter();
        stores
            .map(|store| (store.name.clone(), health(store)))
            .collect()
    }

    /// Stops all; how each ends follows from what it has not got. The first error counts.
    pub(super) fn stop(self, dirty: impl Fn(StoreId) -> u64) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for (number, store) in (0..).map(StoreId).zip(self.0) {
            let ending = match dirty(number) {
                0 => Ending::Complete,
                _ => Ending::CutOff,
            };
            // Its reader would be in the way of the last checkpoint.
            drop((store.scrub, store.sweep));
            outcome = outcome.and(store.threads.stop(ending));
        }
        outcome
    }
}

/// The shards' way to the stores, by number.
pub(super) struct StoreClients(Vec<StoreClient>);

impl StoreClients {
    /// That to the default store, which also keeps what the server has for itself.
    pub(super) fn first(&self) -> StoreClient {
        self.0[StoreId::DEFAULT.index()].clone()
    }

    /// The ways to all, by number.
    pub(super) fn all(self) -> Vec<StoreClient> {
        self.0
    }

    /// Hands a request to the store that it is for.
    pub(super) fn request(&self, shard: u16, request: StoreRequest) {
        let store = match &request {
            StoreRequest::Load { store, .. } | StoreRequest::Commit { store, .. } => *store,
        };
        self.0[store.index()].request(shard, request);
    }
}
