//! Writes on their way to the store: the dirty records, the records in the batch in flight, and the sessions that wait.
//!
//! A batch contains each record at most once, with its newest value, and its answer covers all writes that led to that value. A failed
//! batch is sent again unchanged, because the store may have completed part of it. So each record in the store is in one of two known
//! states: the state that the batch expected, or the state that it writes. A published value is never rolled back, unless another owner
//! has written the record.

mod batch;

use std::time::Duration;

use hashbrown::hash_map::Entry;
use smallvec::SmallVec;

use self::batch::{BATCH_BYTES_FIRST, Batch};
use crate::record::waiter::{Waiter, Waiters};
use crate::store::{Expected, StoreWrite};
use crate::table::{self, Map};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use tidewire_collections::fair_queue::FairQueue;
use tidewire_collections::share::Share;

/// Approximate cost of a write in addition to its name and value, in bytes: a store needs as long for it as for writing this number of
/// bytes. It also bounds the number of records in a batch.
const WRITE_OVERHEAD_BYTES: usize = 256;
/// The most shares that a queued record is queued for. A write of a further share waits until one of these shares has its turn.
const SHARES_MAX: usize = 8;

/// A record that has changes which the store does not have yet.
#[derive(Debug)]
struct Dirty {
    bytes: usize,
    /// The record's state in the store before the batch in flight.
    stored: Expected,
    /// The first key of a write that the store may not have (see `Repeats`).
    unstored_from: u64,
    /// Whether it is queued for the next batch.
    queued: bool,
    /// The first key of a write that is newer than the value in the batch in flight.
    queued_from: u64,
    waiting: Waiters,
    /// The sessions that the batch in flight answers.
    covered: Waiters,
    /// The shares that it is queued for. Most records are written by one user.
    shares: SmallVec<[Share; 1]>,
    /// The user that has written the newest value, unless the user has no name.
    writer: Option<Name>,
    /// The queued group to which it belongs.
    group: Option<u64>,
}

impl Dirty {
    fn cost(&self) -> usize {
        self.bytes + WRITE_OVERHEAD_BYTES
    }

    /// The deadline of the session that has waited longest. All sessions have the same timeout, and those that the batch in flight answers
    /// came first.
    fn first_deadline(&self) -> Option<Instant> {
        let first = self.covered.first().or_else(|| self.waiting.first());
        first.map(|waiter| waiter.deadline)
    }
}

/// Receives the outcome of a batch, for each record and each session that waits.
pub(crate) trait Ending {
    /// The waiter's change is durable.
    fn answer(&mut self, name: &Name, waiter: Waiter);
    /// The store has all changes of the record.
    fn clean(&mut self, name: &Name);
    /// Another owner has written the record. All changes that were not in the store yet are dropped. The outcome is unknown for these
    /// waiters, and for the writes whose keys have the number `from` or a later one.
    fn superseded(&mut self, name: &Name, from: u64, waiters: impl Iterator<Item = Waiter>);
}

/// The dirty records of a shard.
#[derive(Debug)]
pub(crate) struct Commits {
    dirty: Map<Name, Dirty>,
    bytes: usize,
    /// The queued records of transactions: the records of a group leave in one batch.
    groups: Map<u64, Vec<Name>>,
    next_group: u64,
    queue: FairQueue,
    /// The number of queued records, and the cost of writing them in bytes.
    queued_count: usize,
    queued_cost: usize,
    batch: Option<Batch>,
    next_batch: u64,
    /// Approximate bytes of the next batch.
    batch_bytes: usize,
    /// Duration of the quickest recent commits: the cost of a commit that writes little.
    quickest: Duration,
    failures: u32,
    retry: Option<Instant>,
    timeouts: DeadlineQueue<Name>,
}

impl Commits {
    /// Creates it without dirty records.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dirty: table::map(seed),
            bytes: 0,
            groups: table::map(seed),
            next_group: 0,
            queue: FairQueue::new(seed),
            queued_count: 0,
            queued_cost: 0,
            batch: None,
            next_batch: 0,
            batch_bytes: BATCH_BYTES_FIRST,
            quickest: Duration::MAX,
            failures: 0,
            retry: None,
            timeouts: DeadlineQueue::new(),
        }
    }

    /// Whether the record has a change that the store does not have yet.
    pub(crate) fn is_dirty(&self, name: &str) -> bool {
        self.dirty.contains_key(name)
    }

    /// The names of the dirty records, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.dirty.keys()
    }

    /// The number of dirty records.
    pub(crate) fn count(&self) -> usize {
        self.dirty.len()
    }

    /// The bytes of the dirty records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of failed commits since the last successful one.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the limits have room for writes that make these records as large as given.
    pub(crate) fn has_room<'n>(
        &self,
        writes: impl Iterator<Item = (&'n Name, usize)>,
        records_max: usize,
        bytes_max: usize,
    ) -> bool {
        let (mut records, mut sum) = (self.dirty.len(), self.bytes);
        for (name, bytes) in writes {
            match self.dirty.get(name) {
                Some(known) => sum -= known.bytes,
                None => records += 1,
            }
            sum += bytes;
        }
        records <= records_max && sum <= bytes_max
    }

    /// Notes a write or delete of a share. `before` is the record's state before it, which the store has if the record was clean. `key` is
    /// the number that the write's key gets if it has one.
    pub(crate) fn add(
        &mut self,
        name: &Name,
        before: Expected,
        bytes: usize,
        key: u64,
        share: Share,
        waiter: Option<Waiter>,
    ) {
        // The store has `before` only if the record was clean. Otherwise it has the state from before the changes that are not stored yet,
        // so `stored` and `unstored_from` stay as they are.
        let dirty = self.dirty.entry(name.clone()).or_insert_with(|| Dirty {
            bytes: 0,
            stored: before,
            unstored_from: key,
            queued: false,
            queued_from: key,
            waiting: Waiters::new(),
            covered: Waiters::new(),
            shares: SmallVec::new(),
            writer: None,
            group: None,
        });
        self.bytes = self.bytes - dirty.bytes + bytes;
        if dirty.queued {
            self.queued_cost -= dirty.cost();
        } else {
            dirty.queued = true;
            dirty.queued_from = key;
            self.queued_count += 1;
        }
        dirty.bytes = bytes;
        dirty.writer = share.user().cloned();
        self.queued_cost += dirty.cost();
        // Each share that writes the record has an entry for it. Otherwise a user would wait for the long queue of another user that wrote
        // the record first.
        if dirty.shares.len() < SHARES_MAX && !dirty.shares.contains(&share) {
            dirty.shares.push(share.clone());
            self.queue.push(name.clone(), share);
        }
        if let Some(waiter) = waiter {
            self.timeouts.push(waiter.deadline, name.clone());
            dirty.waiting.push(waiter);
        }
    }

    /// Adds a waiter for changes that are already on their way to the store. Returns the waiter if the record is clean.
    pub(crate) fn wait(&mut self, name: &Name, waiter: Waiter) -> Option<Waiter> {
        let Some(dirty) = self.dirty.get_mut(name) else {
            return Some(waiter);
        };
        self.timeouts.push(waiter.deadline, name.clone());
        if dirty.queued {
            dirty.waiting.push(waiter)
        } else {
            dirty.covered.push(waiter)
        }
        None
    }

    /// Makes one group of the queued ones of these records, and of the groups to which they belong already: the next batch has all of
    /// them or none.
    pub(crate) fn group(&mut self, names: &[Name]) {
        let number = self.next_group;
        self.next_group += 1;
        let mut members: Vec<Name> = Vec::with_capacity(names.len());
        for name in names {
            let Some(dirty) = self.dirty.get_mut(name).filter(|dirty| dirty.queued) else {
                continue;
            };
            match dirty.group {
                // An earlier record of the list had the same group.
                Some(known) if known == number => {}
                Some(other) => {
                    let joined = self.groups.remove(&other).unwrap_or_default();
                    for member in &joined {
                        if let Some(dirty) = self.dirty.get_mut(member) {
                            dirty.group = Some(number);
                        }
                    }
                    members.extend(joined);
                }
                None => {
                    dirty.group = Some(number);
                    members.push(name.clone());
                }
            }
        }
        if !members.is_empty() {
            self.groups.insert(number, members);
        }
    }

    /// Adds a waiter for the changes of all these records, whose queued ones are a group. Returns the waiter if all are clean.
    pub(crate) fn wait_for_all(&mut self, names: &[Name], waiter: Waiter) -> Option<Waiter> {
        let is_queued = |name: &&Name| self.dirty.get(*name).is_some_and(|dirty| dirty.queued);
        let is_dirty = |name: &&Name| self.dirty.contains_key(*name);
        // The batch in flight is stored before any queued record.
        let last = names.iter().find(is_queued);
        match last.or_else(|| names.iter().find(is_dirty)) {
            Some(name) => self.wait(name, waiter),
            None => Some(waiter),
        }
    }

    fn stored(&mut self, write: &StoreWrite, ending: &mut impl Ending) {
        let Entry::Occupied(mut entry) = self.dirty.entry(write.name.clone()) else {
            return;
        };
        let dirty = entry.get_mut();
        // The stored state becomes the expectation of the next batch before the waiters are answered, and also if the record is written
        // again. That next write was queued against the old expectation, but its batch is built later and reads this one. The same
        // applies to the keys: writes up to this batch are stored, so only later ones would be forgotten if the record was superseded.
        dirty.stored = write.change.leaves();
        dirty.unstored_from = dirty.queued_from;
        for waiter in dirty.covered.drain(..) {
            ending.answer(&write.name, waiter);
        }
        if !dirty.queued {
            self.bytes -= dirty.bytes;
            entry.remove();
            ending.clean(&write.name);
        }
    }

    /// Drops the changes of a record, and of the queued group to which it belongs: a part of a transaction must not be stored alone.
    fn superseded(&mut self, name: &Name, ending: &mut impl Ending) {
        let group = self.dirty.get(name).and_then(|dirty| dirty.group);
        match group.and_then(|group| self.groups.remove(&group)) {
            None => self.drop_changes(name, ending),
            Some(members) => {
                for member in &members {
                    self.drop_changes(member, ending);
                }
            }
        }
    }

    fn drop_changes(&mut self, name: &Name, ending: &mut impl Ending) {
        let Some(dirty) = self.dirty.remove(name) else {
            return;
        };
        self.bytes -= dirty.bytes;
        if dirty.queued {
            self.queued_count -= 1;
            self.queued_cost -= dirty.cost();
        }
        let waiters = dirty.covered.into_iter().chain(dirty.waiting);
        ending.superseded(name, dirty.unstored_from, waiters);
    }

    /// Calls `answer` for each session whose deadline has passed.
    pub(crate) fn time_out(&mut self, now: Instant, mut answer: impl FnMut(&Name, Waiter)) {
        while let Some(name) = self.timeouts.pop_due(now) {
            let Some(dirty) = self.dirty.get_mut(&name) else {
                continue;
            };
            for list in [&mut dirty.covered, &mut dirty.waiting] {
                let (due, left): (Waiters, Waiters) = std::mem::take(list)
                    .into_iter()
                    .partition(|waiter| waiter.deadline <= now);
                *list = left;
                for waiter in due {
                    answer(&name, waiter);
                }
            }
        }
    }

    /// The earliest deadline: the end of the pause after a failure, or the deadline of a session that waits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.retry, self.timeouts.next()]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests;
