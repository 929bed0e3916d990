//! The stores of a simulated node. The name of a record selects its store; each store has its own disk, failures and pace.

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::time::Instant;

use crate::disk::Failures;
use crate::fault::Faults;
use crate::random::Random;
use crate::store::{End, SimStore};
use crate::tally::Tally;

/// Name prefixes and their stores; the first store keeps all other records.
const ROUTES: [(&str, StoreId); 3] = [
    ("r/2", StoreId(1)),
    ("r/3", StoreId(1)),
    ("gate/1", StoreId(1)),
];
/// The number of stores.
pub const STORES: usize = 2;

/// The routes of every run.
pub fn routes() -> StoreRoutes {
    StoreRoutes::new(ROUTES)
}

/// See the documentation of this module.
pub struct SimStores {
    stores: [SimStore; STORES],
    routes: StoreRoutes,
}

impl SimStores {
    pub fn new(random: &mut Random, faults: &Faults) -> Self {
        Self {
            stores: std::array::from_fn(|_| SimStore::new(random.next(), faults)),
            routes: routes(),
        }
    }

    /// The store that keeps the records of this name.
    pub fn route(&self, name: &str) -> StoreId {
        self.routes.find(name)
    }

    pub fn of(&self, name: &str) -> &SimStore {
        &self.stores[self.route(name).index()]
    }

    pub fn of_mut(&mut self, name: &str) -> &mut SimStore {
        self.at(self.route(name))
    }

    pub fn at(&mut self, store: StoreId) -> &mut SimStore {
        &mut self.stores[store.index()]
    }

    pub fn all() -> impl Iterator<Item = StoreId> {
        (0..STORES as u8).map(StoreId)
    }

    /// A random store.
    pub fn any(&mut self, random: &mut Random) -> &mut SimStore {
        &mut self.stores[random.below(STORES)]
    }

    /// A random store that has a pending request and is not slow now.
    pub fn ready(&mut self, random: &mut Random, now: Instant) -> Option<&mut SimStore> {
        let ready = |store: &&mut SimStore| !store.asked.is_empty() && store.slow_until <= now;
        pick(random, self.stores.iter_mut().filter(ready))
    }

    /// A random store that has an answer in flight.
    pub fn answering(&mut self, random: &mut Random) -> Option<&mut SimStore> {
        let answers = |store: &&mut SimStore| !store.answers.is_empty();
        pick(random, self.stores.iter_mut().filter(answers))
    }

    /// Whether no request or answer is in flight at any store.
    pub fn are_still(&self) -> bool {
        let is_still = |store: &SimStore| store.asked.is_empty() && store.answers.is_empty();
        self.stores.iter().all(is_still)
    }

    pub fn repair(&mut self) {
        self.stores.iter_mut().for_each(SimStore::repair);
    }

    /// Ends the node at once, and opens all stores again.
    pub fn crash(&mut self, end: End, random: &mut Random) {
        for store in &mut self.stores {
            store.crash(end, random);
        }
    }

    /// Stops the node in order, though some disks may fail even then, and opens all stores again.
    pub fn stop(&mut self, random: &mut Random) {
        for store in &mut self.stores {
            if random.chance(30) {
                store.fail(Failures {
                    syncs: 1,
                    reads: random.below(3),
                    ..Failures::default()
                });
            }
            store.stop();
        }
    }

    pub fn met(&self) -> Tally {
        let mut met = Tally::default();
        self.stores.iter().for_each(|store| met.merge(&store.met()));
        met
    }
}

fn pick<'a>(
    random: &mut Random,
    stores: impl Iterator<Item = &'a mut SimStore>,
) -> Option<&'a mut SimStore> {
    let mut stores: Vec<_> = stores.collect();
    (!stores.is_empty()).then(|| stores.swap_remove(random.below(stores.len())))
}
