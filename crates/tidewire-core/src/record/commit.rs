//! Writes on their way to the store: the dirty records, the records in the batch in flight, and the sessions that wait.
//!
//! A batch contains each record at most once, with its newest value, and its answer covers all writes that led to that value. A failed
//! batch is sent again unchanged, because the store may have completed part of it. So each record in the store is in one of two known
//! states: the state that the batch expected, or the state that it writes. A published value is never rolled back, unless another owner
//! has written the record.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::hash_map::Entry;
use smallvec::SmallVec;

use crate::address::SessionId;
use crate::entry::{Answer, RecordRefusal, Stored};
use crate::record::queue::WriteQueue;
use crate::record::share::Share;
use crate::store::{Expected, StoreChange, StoreWrite, Written};
use crate::table::{self, Map};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Approximate cost of a write in addition to its name and value, in bytes: a store needs as long for it as for writing this number of
/// bytes. It also bounds the number of records in a batch.
const WRITE_OVERHEAD_BYTES: usize = 256;
/// The most shares that a queued record is queued for. A write of a further share waits until one of these shares has its turn.
const SHARES_MAX: usize = 8;
/// The pause after the first failed commit. It doubles with each further failure, up to `RETRY_LONGEST`.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// Initial and smallest number of bytes of a batch. With smaller batches the store would sync more than it writes.
const BATCH_BYTES_FIRST: usize = 1 << 20;
const BATCH_BYTES_MIN: usize = 256 << 10;
/// If a full batch takes longer, the next ones become smaller. An acknowledged write of another session waits for the commit in flight
/// and for its own commit, so it is stored within twice this time.
const COMMIT_TIME: Duration = Duration::from_millis(8);

/// A session that waits until a write is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    pub(crate) what: WaitsFor,
}

/// The request that the waiter has made.
#[derive(Debug)]
pub(crate) enum WaitsFor {
    /// A write acknowledgement.
    Write {
        action: crate::message::RecordAction,
        correlation: Option<Box<str>>,
        /// The result of a `Put`.
        stored: Option<Stored>,
    },
    /// The deletion of the record.
    Delete,
    /// The deletion of the record by a `Put`.
    Remove {
        correlation: Box<str>,
        existed: bool,
    },
}

impl WaitsFor {
    /// The answer when the outcome is unknown.
    pub(crate) fn refusal(&self) -> RecordRefusal {
        match self {
            Self::Write { .. } => RecordRefusal::UpdateFailed,
            Self::Delete | Self::Remove { .. } => RecordRefusal::DeleteFailed,
        }
    }

    /// The answer when the change is durable.
    pub(crate) fn done(self) -> Answer {
        match self {
            Self::Write {
                correlation,
                stored: None,
                ..
            } => Answer::Written { correlation },
            Self::Write {
                correlation,
                stored: Some(stored),
                ..
            } => Answer::Stored {
                correlation: correlation.unwrap_or_default(),
                stored,
            },
            Self::Delete => Answer::Deleted,
            Self::Remove {
                correlation,
                existed,
            } => Answer::Stored {
                correlation,
                stored: Stored { existed, tag: None },
            },
        }
    }
}

/// The sessions that wait for one record, nearly always one or none.
type Waiters = SmallVec<[Waiter; 1]>;

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

#[derive(Debug)]
struct Batch {
    number: u64,
    /// Whether its answer is outstanding. Otherwise it has failed and is sent again.
    is_under_way: bool,
    sent: Instant,
    /// Whether records were left in the queue when it was sent.
    is_full: bool,
    writes: Arc<[StoreWrite]>,
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
    queue: WriteQueue,
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
            queue: WriteQueue::new(seed),
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

    /// Whether the limits have room for a write that makes the record `bytes` large.
    pub(crate) fn has_room(
        &self,
        name: &Name,
        bytes: usize,
        records_max: usize,
        bytes_max: usize,
    ) -> bool {
        let known = self.dirty.get(name).map(|dirty| dirty.bytes);
        let more_records = usize::from(known.is_none());
        self.dirty.len() + more_records <= records_max
            && self.bytes - known.unwrap_or(0) + bytes <= bytes_max
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

    /// The next batch, or the failed one again. `None` if a batch is in flight, the pause after a failure has not ended, or nothing is
    /// queued. A new batch has about `bytes_max` bytes, exceeded by at most one record. `newest` returns the change to store for a record.
    pub(crate) fn next_batch(
        &mut self,
        now: Instant,
        bytes_max: usize,
        newest: impl FnMut(&Name) -> StoreChange,
    ) -> Option<(u64, Arc<[StoreWrite]>)> {
        if self.retry.is_some_and(|retry| retry > now) {
            return None;
        }
        // This holds in nearly every turn, and an empty batch would cost an allocation.
        if self.queue.is_empty() && self.batch.is_none() {
            self.retry = None;
            return None;
        }
        let writes = match self.batch.take() {
            Some(batch) if batch.is_under_way => {
                self.batch = Some(batch);
                return None;
            }
            // The failed writes come first, unchanged: until the store answers, the owner does not know which state to expect for newer
            // writes.
            Some(failed) => failed.writes,
            None => self
                .take_queued(bytes_max.min(self.batch_bytes), newest)
                .into(),
        };
        self.retry = None;
        if writes.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        self.batch = Some(Batch {
            number,
            is_under_way: true,
            sent: now,
            is_full: self.queued_count > 0,
            writes: writes.clone(),
        });
        Some((number, writes))
    }

    /// Takes as many queued records as fit in one batch.
    fn take_queued(
        &mut self,
        bytes_max: usize,
        mut newest: impl FnMut(&Name) -> StoreChange,
    ) -> Vec<StoreWrite> {
        // A record leaves the queue with its newest value, which is read here and not when the write arrived: several writes between two
        // batches become one. All its waiters move to `covered`, because this value contains all their changes; a write that arrives
        // after this point queues the record again and waits for the next batch. `stored` is left alone until the answer, because it is
        // the state that the store must still be in. All writes of one batch are independent, since a record is in it only once.
        let Self {
            dirty,
            queue,
            queued_count,
            queued_cost,
            ..
        } = self;
        queue.compact(*queued_count, |name, share| {
            let dirty = dirty.get(name).filter(|dirty| dirty.queued);
            dirty.is_some_and(|dirty| dirty.shares.contains(share))
        });
        let takes_all = *queued_cost <= bytes_max;
        let dirty = RefCell::new(dirty);
        let mut writes = Vec::with_capacity(if takes_all { *queued_count } else { 0 });
        let mut take = |name: Name| {
            // A record that was taken for another share, or was superseded, may still have an entry in the queue.
            let mut dirty = dirty.borrow_mut();
            let Some(dirty) = dirty.get_mut(&name).filter(|dirty| dirty.queued) else {
                return;
            };
            dirty.queued = false;
            dirty.shares.clear();
            dirty.covered.append(&mut dirty.waiting);
            *queued_count -= 1;
            *queued_cost -= dirty.cost();
            writes.push(StoreWrite {
                expected: dirty.stored,
                change: newest(&name),
                writer: dirty.writer.clone(),
                name,
            });
        };
        if takes_all {
            queue.take_all(take);
        } else {
            let cost = |name: &Name| {
                let dirty = dirty.borrow();
                let dirty = dirty.get(name).filter(|dirty| dirty.queued);
                dirty.map(Dirty::cost)
            };
            queue.take_some(bytes_max, cost, &mut take);
        }
        writes
    }

    /// Handles the store's answer to the batch: one outcome for each write, in the order of the writes.
    pub(crate) fn committed(
        &mut self,
        now: Instant,
        number: u64,
        written: &[Written],
        ending: &mut impl Ending,
    ) {
        let Some(batch) = self.take_answered(number) else {
            return;
        };
        self.failures = 0;
        // The answer covers exactly the batch in flight: `take_answered` drops late answers of a batch that was sent again under a new
        // number. Each write has one of two outcomes. If it is done, its waiters get their answers, and the record is clean unless a
        // newer write is queued. If it is refused, another owner has changed the record, and the newer writes are based on a value that
        // no longer exists, so all of them are dropped.
        self.adapt(&batch, now.since(batch.sent));
        for (write, written) in batch.writes.iter().zip(written) {
            match written {
                Written::Done => self.stored(write, ending),
                Written::Refused => self.superseded(&write.name, ending),
            }
        }
        // A record that is written continuously never becomes clean, so a timer is dropped as soon as no session with its deadline waits.
        let dirty = &self.dirty;
        self.timeouts.drop_due_front_while(|deadline, name| {
            let first = dirty.get(name).and_then(Dirty::first_deadline);
            first.is_none_or(|first| first > deadline)
        });
        table::shrink_map(&mut self.dirty);
    }

    /// Chooses the size of the next batches by the duration of this one. If each commit costs much regardless of its size, as with a disk
    /// that syncs slowly, a batch may take twice that cost, so at most half of the store's rate is lost.
    fn adapt(&mut self, batch: &Batch, took: Duration) {
        self.quickest = match took.checked_sub(self.quickest) {
            Some(longer) => self.quickest + longer / 64,
            None => took,
        };
        if !batch.is_full {
            return;
        }
        let time_max = COMMIT_TIME.max(2 * self.quickest);
        if took > time_max {
            self.batch_bytes = (self.batch_bytes / 2).max(BATCH_BYTES_MIN);
        } else if took < time_max / 4 {
            // `next_batch` applies the configured limit.
            self.batch_bytes = self.batch_bytes.saturating_mul(2);
        }
    }

    /// Handles that the store accepts no more writes from this owner: all writes of the batch count as refused.
    pub(crate) fn deposed(&mut self, now: Instant, number: u64, ending: &mut impl Ending) {
        let count = self.batch.as_ref().map_or(0, |batch| batch.writes.len());
        self.committed(now, number, &vec![Written::Refused; count], ending);
    }

    fn take_answered(&mut self, number: u64) -> Option<Batch> {
        self.batch
            .take_if(|batch| batch.is_under_way && batch.number == number)
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

    fn superseded(&mut self, name: &Name, ending: &mut impl Ending) {
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

    /// Notes that the batch has failed. It is sent again after a pause.
    pub(crate) fn failed(&mut self, number: u64, now: Instant) {
        let Some(batch) = &mut self.batch else {
            return;
        };
        if !batch.is_under_way || batch.number != number {
            return;
        }
        batch.is_under_way = false;
        let pause = RETRY_FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_LONGEST);
        self.failures += 1;
        self.retry = Some(now + pause);
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
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::address::Address;
    use crate::store::{Incarnation, StoredRecord, Version};
    use crate::text::Payload;

    const NAMES: usize = 4;
    /// Too small for all names.
    const BATCH_BYTES: usize = 600;
    const TIMEOUT: Duration = Duration::from_millis(400);

    /// An event that affects the dirty records of a shard.
    #[derive(Clone, Debug)]
    enum Step {
        Write {
            name: usize,
            bytes: usize,
            waits: bool,
        },
        Wait {
            name: usize,
        },
        Batch,
        Commits,
        /// The batch in flight fails after the store has done it for these names.
        Fails {
            done: [bool; NAMES],
        },
        /// Another owner writes to the store.
        Foreign {
            name: usize,
        },
        Pass {
            millis: u64,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..NAMES, 0..100_usize, any::<bool>())
                .prop_map(|(name, bytes, waits)| Step::Write { name, bytes, waits }),
            1 => (0..NAMES).prop_map(|name| Step::Wait { name }),
            4 => Just(Step::Batch),
            2 => Just(Step::Commits),
            2 => any::<[bool; NAMES]>().prop_map(|done| Step::Fails { done }),
            1 => (0..NAMES).prop_map(|name| Step::Foreign { name }),
            2 => (0..300_u64).prop_map(|millis| Step::Pass { millis }),
        ]
    }

    /// Commits, a model that counts the changes of each name, and a store.
    struct Both {
        commits: Commits,
        now: Instant,
        changes: [u64; NAMES],
        stored: [u64; NAMES],
        bytes: [usize; NAMES],
        store: [Option<StoredRecord>; NAMES],
        /// The state that the owner expects in the store for a clean record.
        known: [Expected; NAMES],
        /// Names that another owner has written since.
        foreign: BTreeSet<usize>,
        foreign_count: u32,
        /// The batch in flight.
        batch: Option<(u64, Arc<[StoreWrite]>)>,
        /// The failed batch, which must come again.
        failed: Option<Arc<[StoreWrite]>>,
        /// The name and change that each waiter waits for, and since when.
        waiting: BTreeMap<u32, (usize, u64, Instant)>,
        next_waiter: u32,
    }

    #[derive(Default)]
    struct Seen {
        answered: Vec<u32>,
        clean: BTreeSet<usize>,
        superseded: BTreeMap<usize, (u64, Vec<u32>)>,
    }

    impl Ending for Seen {
        fn answer(&mut self, _: &Name, waiter: Waiter) {
            self.answered.push(waiter.session.index);
        }

        fn clean(&mut self, name: &Name) {
            self.clean.insert(index_of(name));
        }

        fn superseded(&mut self, name: &Name, from: u64, waiters: impl Iterator<Item = Waiter>) {
            let waiters = waiters.map(|waiter| waiter.session.index).collect();
            self.superseded.insert(index_of(name), (from, waiters));
        }
    }

    impl Both {
        fn new() -> Self {
            Self {
                commits: Commits::new(1),
                now: Instant(0),
                changes: [0; NAMES],
                stored: [0; NAMES],
                bytes: [0; NAMES],
                store: [const { None }; NAMES],
                known: [Expected::Missing; NAMES],
                foreign: BTreeSet::new(),
                foreign_count: 0,
                batch: None,
                failed: None,
                waiting: BTreeMap::new(),
                next_waiter: 0,
            }
        }

        fn take(&mut self, step: &Step) {
            match *step {
                Step::Write { name, bytes, waits } => {
                    self.changes[name] += 1;
                    self.bytes[name] = bytes;
                    let waiter = waits.then(|| self.waiter(name));
                    let (before, change) = (self.known[name], self.changes[name]);
                    let share = Share::User(format!("{}", change % 3).as_str().into());
                    self.commits
                        .add(&key(name), before, bytes, change, share, waiter);
                }
                Step::Wait { name } => {
                    let dirty = self.changes[name] > self.stored[name];
                    let waiter = self.waiter(name);
                    let index = waiter.session.index;
                    let back = self.commits.wait(&key(name), waiter);
                    assert_eq!(back.is_none(), dirty, "{name} can be waited for");
                    if back.is_some() {
                        self.waiting.remove(&index);
                    }
                }
                Step::Batch => self.begin_batch(),
                Step::Commits => self.end_batch(),
                Step::Fails { done } => self.fail_batch(done),
                Step::Foreign { name } => {
                    self.foreign_count += 1;
                    self.store[name] = Some(written(2, self.foreign_count));
                    self.foreign.insert(name);
                }
                Step::Pass { millis } => self.pass(Duration::from_millis(millis)),
            }
            self.compare();
        }

        fn waiter(&mut self, name: usize) -> Waiter {
            self.next_waiter += 1;
            let index = self.next_waiter;
            self.waiting
                .insert(index, (name, self.changes[name], self.now));
            Waiter {
                session: SessionId {
                    address: Address { node: 0, shard: 0 },
                    index,
                    generation: 0,
                },
                deadline: self.now + TIMEOUT,
                what: WaitsFor::Delete,
            }
        }

        fn begin_batch(&mut self) {
            let under_way = self.batch.is_some();
            let changes = self.changes;
            let newest = |name: &Name| StoreChange::Put(written(1, changes[index_of(name)] as u32));
            let next = self.commits.next_batch(self.now, BATCH_BYTES, newest);
            let Some((number, writes)) = next else {
                return;
            };
            assert!(!under_way, "two batches at once");
            let distinct: BTreeSet<_> = writes.iter().map(|write| &write.name).collect();
            assert_eq!(distinct.len(), writes.len(), "a name twice in {writes:?}");
            if let Some(failed) = self.failed.take() {
                assert_eq!(writes, failed, "what has failed comes again");
            }
            self.batch = Some((number, writes));
        }

        fn write(&mut self, write: &StoreWrite) -> Written {
            let stored = &mut self.store[index_of(&write.name)];
            if write.change.is_done(stored.as_ref()) {
                return Written::Done;
            }
            if !write.expected.is_met(stored.as_ref()) {
                return Written::Refused;
            }
            *stored = match &write.change {
                StoreChange::Put(record) => Some(record.clone()),
                StoreChange::Delete => None,
            };
            Written::Done
        }

        fn fail_batch(&mut self, done: [bool; NAMES]) {
            let Some((number, writes)) = self.batch.take() else {
                return;
            };
            for write in writes.iter().filter(|write| done[index_of(&write.name)]) {
                self.write(write);
            }
            self.commits.failed(number, self.now);
            self.failed = Some(writes);
        }

        fn end_batch(&mut self) {
            let Some((number, writes)) = self.batch.take() else {
                return;
            };
            let outcomes: Vec<_> = writes.iter().map(|write| self.write(write)).collect();
            let (mut seen, mut clean) = (Seen::default(), BTreeSet::new());
            self.commits
                .committed(self.now, number, &outcomes, &mut seen);
            for (write, outcome) in writes.iter().zip(outcomes) {
                let name = index_of(&write.name);
                if outcome == Written::Refused {
                    assert!(self.foreign.remove(&name), "{name} has no other owner");
                    self.superseded(name, &mut seen);
                    continue;
                }
                let StoreChange::Put(record) = &write.change else {
                    panic!("nothing is deleted here");
                };
                self.stored[name] = record.version.0.into();
                self.known[name] = Expected::of(record);
                if self.stored[name] == self.changes[name] {
                    clean.insert(name);
                }
            }
            assert!(seen.superseded.is_empty(), "{:?}", seen.superseded);
            for index in seen.answered {
                let (name, change, _) = self.waiting.remove(&index).expect("answered once");
                assert!(self.stored[name] >= change, "answered too early");
            }
            let late = self
                .waiting
                .values()
                .find(|(name, change, _)| self.stored[*name] >= *change);
            assert_eq!(late, None, "its change is stored, and it was not answered");
            assert_eq!(seen.clean, clean, "clean records");
        }

        /// Checks that all sessions that waited for the record know that its outcome is unknown. The record is then no longer dirty.
        fn superseded(&mut self, name: usize, seen: &mut Seen) {
            let (from, mut waiters) = seen.superseded.remove(&name).expect("told so");
            assert_eq!(from, self.stored[name] + 1, "the first that is not stored");
            waiters.sort_unstable();
            let of_name = |(index, (waits_for, ..)): (&u32, &(usize, u64, Instant))| {
                (*waits_for == name).then_some(*index)
            };
            let expected: Vec<u32> = self.waiting.iter().filter_map(of_name).collect();
            assert_eq!(waiters, expected, "who waited for {name}");
            self.waiting.retain(|_, (waits_for, ..)| *waits_for != name);
            self.stored[name] = self.changes[name];
            self.known[name] = self.store[name]
                .as_ref()
                .map_or(Expected::Missing, Expected::of);
        }

        fn pass(&mut self, duration: Duration) {
            self.now = self.now + duration;
            let mut timed_out = BTreeSet::new();
            self.commits.time_out(self.now, |_, waiter| {
                assert!(timed_out.insert(waiter.session.index), "timed out twice");
            });
            let due: BTreeSet<u32> = self
                .waiting
                .iter()
                .filter(|(_, (_, _, since))| *since + TIMEOUT <= self.now)
                .map(|(index, _)| *index)
                .collect();
            assert_eq!(timed_out, due, "who has waited long enough");
            self.waiting.retain(|index, _| !due.contains(index));
        }

        fn compare(&self) {
            let dirty = |name: &usize| self.changes[*name] > self.stored[*name];
            let count = (0..NAMES).filter(dirty).count();
            let bytes: usize = (0..NAMES).filter(dirty).map(|name| self.bytes[name]).sum();
            assert_eq!((self.commits.count(), self.commits.bytes()), (count, bytes));
            for name in 0..NAMES {
                assert_eq!(self.commits.is_dirty(&key(name)), dirty(&name), "{name}");
            }
        }
    }

    fn key(name: usize) -> Name {
        Name::from(format!("{name}").as_str())
    }

    fn index_of(name: &Name) -> usize {
        name.parse().expect("names are numbers")
    }

    fn written(incarnation: u64, version: u32) -> StoredRecord {
        StoredRecord {
            incarnation: Incarnation(incarnation),
            version: Version(version),
            data: Payload::from_checked("{}"),
        }
    }

    proptest! {
        #[test]
        fn a_batch_answers_the_writes_that_it_covers(steps in prop::collection::vec(step(), 1..100)) {
            let mut both = Both::new();
            for step in &steps {
                both.take(step);
            }
            // In the end everything is stored, and no session waits.
            for _ in 0..2 * NAMES {
                both.pass(RETRY_LONGEST);
                both.begin_batch();
                both.end_batch();
            }
            prop_assert_eq!(both.commits.count(), 0);
            prop_assert!(both.waiting.is_empty());
        }
    }

    #[test]
    fn a_record_that_is_written_all_the_time_keeps_no_timers_of_answered_writes() {
        let mut both = Both::new();
        let write = Step::Write {
            name: 0,
            bytes: 1,
            waits: true,
        };
        for _ in 0..100 {
            (0..10).for_each(|_| both.take(&write));
            both.take(&Step::Batch);
            both.take(&Step::Pass { millis: 1 });
            both.take(&write);
            both.take(&Step::Commits);
            assert!(both.commits.is_dirty(&key(0)));
            assert_eq!(both.commits.timeouts.len(), 1);
        }
    }

    #[test]
    fn a_deposed_owner_drops_unstored_writes() {
        let mut both = Both::new();
        for name in 0..NAMES {
            let waits = true;
            both.take(&Step::Write {
                name,
                bytes: 1,
                waits,
            });
        }
        both.begin_batch();
        let (number, _) = both.batch.take().expect("a batch");
        let mut seen = Seen::default();
        both.commits.deposed(both.now, number + 1, &mut seen);
        assert!(seen.superseded.is_empty(), "that was another batch");
        both.commits.deposed(both.now, number, &mut seen);
        let waiters: Vec<_> = seen
            .superseded
            .into_values()
            .flat_map(|(_, waiters)| waiters)
            .collect();
        assert_eq!(waiters, [1, 2, 3, 4]);
        assert_eq!((both.commits.count(), both.commits.bytes()), (0, 0));
        assert_eq!(both.commits.next_deadline(), None);
    }

    #[test]
    fn a_full_batch_that_takes_long_makes_the_next_one_smaller() {
        /// The number of records in each of ten batches. The store takes `fixed` per batch and `per_record` for each record of 100 KB.
        fn sizes(fixed: Duration, per_record: Duration) -> Vec<usize> {
            let mut commits = Commits::new(1);
            let mut now = Instant(0);
            let mut commit = |records: std::ops::Range<usize>| {
                for number in records {
                    let share = Share::User("u".into());
                    commits.add(&key(number), Expected::Missing, 100_000, 0, share, None);
                }
                let newest = |_: &Name| StoreChange::Delete;
                let next = commits.next_batch(now, 4 << 20, newest);
                let (number, writes) = next.expect("a batch");
                let count = u32::try_from(writes.len()).unwrap();
                now = now + fixed + per_record * count;
                let outcomes = vec![Written::Done; writes.len()];
                commits.committed(now, number, &outcomes, &mut Seen::default());
                writes.len()
            };
            commit(0..1);
            let batches = (0..10).map(|turn| commit(turn * 100..(turn + 1) * 100));
            batches.collect()
        }
        let quick = sizes(Duration::ZERO, Duration::from_micros(1));
        assert_eq!(quick.last(), Some(&42), "{quick:?}");
        let slow = sizes(Duration::ZERO, Duration::from_millis(2));
        assert_eq!(slow.last(), Some(&3), "{slow:?}");
        let slow_sync = sizes(Duration::from_millis(40), Duration::from_micros(10));
        assert!(*slow_sync.last().unwrap() >= 11, "{slow_sync:?}");
    }

    #[test]
    fn pauses_after_failures_grow_up_to_a_limit() {
        let mut commits = Commits::new(1);
        let mut now = Instant(0);
        let share = Share::User("u".into());
        commits.add(&key(0), Expected::Missing, 1, 0, share, None);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let newest = |_: &Name| StoreChange::Delete;
            let (number, _) = commits
                .next_batch(now, BATCH_BYTES, newest)
                .expect("the pause is over");
            commits.failed(number, now);
            let next = commits.next_batch(now, BATCH_BYTES, newest);
            assert!(next.is_none(), "no pause");
            let next = commits.next_deadline().expect("it will be tried again");
            pauses.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(commits.failures(), 8);
    }
}
