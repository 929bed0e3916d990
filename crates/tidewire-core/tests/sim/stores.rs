//! The stores of a simulated node. Names lead records to one of them; each has a disk, failures and a pace of its own.

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::time::Instant;

use crate::disk::Failures;
use crate::fault::Faults;
use crate::random::Random;
use crate::store::{End, SimStore};
use crate::tally::Tally;

/// Where what begins like this is kept; all else is in the first store.
const ROUTES: [(&str, StoreId); 3] = [
    ("r/2", StoreId(1)),
    ("r/3", StoreId(1)),
    ("gate/1", StoreId(1)),
];
/// How many there are.
pub const STORES: usize = 2;

/// The routes of every run.
pub fn routes() -> StoreRoutes {
    StoreRoutes::new(ROUTES)
}

/// See the head of this file.
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

    /// Which one has the records of this name.
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

    /// One of them.
    pub fn any(&mut self, random: &mut Random) -> &mut SimStore {
        &mut self.stores[random.below(STORES)]
    }

    /// One that has something to do and is not too slow for it.
    pub fn ready(&mut self, random: &mut Random, now: Instant) -> Option<&mut SimStore> {
        let ready = |store: &&mut SimStore| !store.asked.is_empty() && store.slow_until <= now;
        pick(random, self.stores.iter_mut().filter(ready))
    }

    /// One of which an answer is on its way.
    pub fn answering(&mut self, random: &mut Random) -> Option<&mut SimStore> {
        let answers = |store: &&mut SimStore| !store.answers.is_empty();
        pick(random, self.stores.iter_mut().filter(answers))
    }

    /// Whether nothing is on its way to any of them, or from there.
    pub fn are_still(&self) -> bool {
        let is_still = |store: &SimStore| store.asked.is_empty() && store.answers.is_empty();
        self.stores.iter().all(is_still)
    }

    pub fn mend(&mut self) {
        self.stores.iter_mut().for_each(SimStore::mend);
    }

    /// The node ends at once, and all are opened again.
    pub fn crash(&mut self, end: End, random: &mut Random) {
        for store in &mut self.stores {
            store.crash(end, random);
        }
    }

    /// The node ends in order, though some disks may fail even then, and all are opened again.
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
