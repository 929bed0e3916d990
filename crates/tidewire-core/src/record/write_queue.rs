//! An owner's write queues, one for each of the node's stores. They share nothing, so a store that is down delays no other store.

use crate::record::commit::Commits;
use crate::route::{StoreId, StoreRoutes};
use crate::settings::Settings;
use crate::store::{Incarnation, Opened};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// The writes and loads that wait for one store.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    pub(crate) commits: Commits,
    /// Names that the owner requests from the store at the end of the turn.
    pub(super) to_load: Vec<Name>,
    /// Deadlines of the jobs that wait for a load. Each store has its own queue: a store that is down must not keep the timers of names
    /// that another store has answered.
    pub(super) load_timeouts: DeadlineQueue<Name>,
    next_incarnation: u64,
}

impl WriteQueue {
    fn new(seed: u64, opened: Opened, shard: u16) -> Self {
        Self {
            commits: Commits::new(seed),
            to_load: Vec::new(),
            load_timeouts: DeadlineQueue::new(),
            next_incarnation: opened.first_incarnation(shard),
        }
    }

    pub(super) fn new_incarnation(&mut self) -> Incarnation {
        self.next_incarnation += 1;
        Incarnation(self.next_incarnation)
    }
}

/// The write queues of all stores, by number.
#[derive(Debug)]
pub(crate) struct WriteQueues(Vec<WriteQueue>);

impl WriteQueues {
    /// Creates a queue for each store that was opened.
    pub(super) fn new(seed: u64, opened: &[Opened], shard: u16) -> Self {
        let queue = |opened: &Opened| WriteQueue::new(seed, *opened, shard);
        Self(opened.iter().map(queue).collect())
    }

    /// The queue to the record's store.
    pub(super) fn of(&self, routes: &StoreRoutes, name: &str) -> &WriteQueue {
        &self.0[routes.find(name).index()]
    }

    /// Whether the record has a change that its store does not have yet.
    pub(super) fn is_dirty(&self, settings: &Settings, name: &str) -> bool {
        self.of(&settings.routes, name).commits.is_dirty(name)
    }

    /// The queue to the record's store, mutable.
    pub(super) fn of_mut(&mut self, routes: &StoreRoutes, name: &str) -> &mut WriteQueue {
        let store = routes.find(name).index();
        &mut self.0[store]
    }

    /// The queue to a store; `None` if the store does not exist.
    pub(super) fn at_mut(&mut self, store: StoreId) -> Option<&mut WriteQueue> {
        self.0.get_mut(store.index())
    }

    /// A record whose load has taken too long, if there is one, with its deadline.
    pub(super) fn pop_due_load(&mut self, now: Instant) -> Option<(Instant, Name)> {
        self.0.iter_mut().find_map(|queue| {
            let deadline = queue.load_timeouts.next()?;
            let name = queue.load_timeouts.pop_due(now)?;
            Some((deadline, name))
        })
    }

    /// All queues, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WriteQueue> {
        self.0.iter()
    }

    /// All queues with their store ids, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (StoreId, &mut WriteQueue)> {
        (0..).map(StoreId).zip(&mut self.0)
    }
}
