//! The batch in flight: its size, its departure, its answer, and its repetition after a failure.
//!
//! At most one batch is in flight. The records in it stay dirty until the answer.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Commits, Dirty, Ending};
use crate::store::{StoreChange, StoreWrite, Written};
use crate::table;
use crate::text::Name;
use crate::time::Instant;

/// The pause after the first failed commit. It doubles with each further failure, up to `RETRY_LONGEST`.
const RETRY_FIRST: Duration = Duration::from_millis(100);
pub(super) const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// Initial and smallest number of bytes of a batch. With smaller batches the store would sync more than it writes.
pub(super) const BATCH_BYTES_FIRST: usize = 1 << 20;
const BATCH_BYTES_MIN: usize = 128 << 10;
/// If a full batch takes longer, the next ones become smaller. An acknowledged write of another session waits for the commit in flight
/// and for its own commit, so it is stored within twice this time.
const COMMIT_TIME: Duration = Duration::from_millis(2);

/// The batch that the store has, or that has failed and is sent again.
#[derive(Debug)]
pub(super) struct Batch {
    number: u64,
    /// Whether its answer is outstanding. Otherwise it has failed and is sent again.
    is_in_flight: bool,
    sent: Instant,
    /// Whether records were left in the queue when it was sent.
    is_full: bool,
    writes: Arc<[StoreWrite]>,
    /// The groups in it: ranges of the writes.
    groups: Vec<Range<usize>>,
}

impl Commits {
    /// The next batch, or the failed one again. `None` if a batch is in flight, the pause after a failure has not ended, or nothing is
    /// queued. A new batch has about `bytes_max` bytes, exceeded by at most one record or group. `newest` returns the change to store for
    /// a record.
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
        let (writes, groups) = match self.batch.take() {
            Some(batch) if batch.is_in_flight => {
                self.batch = Some(batch);
                return None;
            }
            // The failed writes come first, unchanged: until the store answers, the owner does not know which state to expect for newer
            // writes.
            Some(failed) => (failed.writes, failed.groups),
            None => {
                let bytes_max = bytes_max.min(self.batch_bytes);
                let (writes, groups) = self.take_queued(bytes_max, newest);
                (writes.into(), groups)
            }
        };
        self.retry = None;
        if writes.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        self.batch = Some(Batch {
            number,
            is_in_flight: true,
            sent: now,
            is_full: self.queued_count > 0,
            writes: writes.clone(),
            groups,
        });
        Some((number, writes))
    }

    /// Takes as many queued records as fit in one batch, with the groups among them.
    fn take_queued(
        &mut self,
        bytes_max: usize,
        mut newest: impl FnMut(&Name) -> StoreChange,
    ) -> (Vec<StoreWrite>, Vec<Range<usize>>) {
        // A record leaves the queue with its newest value, which is read here and not when the write arrived: several writes between two
        // batches become one. All its waiters move to `covered`, because this value contains all their changes; a write that arrives
        // after this point queues the record again and waits for the next batch. `stored` is left alone until the answer, because it is
        // the state that the store must still be in. All writes of one batch are independent, since a record is in it only once.
        //
        // The first record of a group takes the others with it, so no batch has a part of a group. They keep their entries in the queue,
        // which no longer count.
        let Self {
            dirty,
            groups,
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
        let (dirty, groups) = (RefCell::new(dirty), RefCell::new(groups));
        let mut writes = Vec::with_capacity(if takes_all { *queued_count } else { 0 });
        let mut taken_groups = Vec::new();
        let mut take_one = |name: Name, writes: &mut Vec<StoreWrite>| {
            // A record that was taken for another share, or was superseded, may still have an entry in the queue.
            let mut dirty = dirty.borrow_mut();
            let Some(dirty) = dirty.get_mut(&name).filter(|dirty| dirty.queued) else {
                return;
            };
            dirty.queued = false;
            dirty.group = None;
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
        // Usually no record has a group, and then none is looked up for it.
        let has_groups = !groups.borrow().is_empty();
        let group_of = |name: &Name| match has_groups {
            true => dirty.borrow().get(name).and_then(|dirty| dirty.group),
            false => None,
        };
        let mut take = |name: Name| match group_of(&name) {
            None => take_one(name, &mut writes),
            Some(group) => {
                let start = writes.len();
                for member in groups.borrow_mut().remove(&group).unwrap_or_default() {
                    take_one(member, &mut writes);
                }
                taken_groups.push(start..writes.len());
            }
        };
        if takes_all {
            queue.take_all(take);
        } else {
            let cost_of = |name: &Name| {
                let dirty = dirty.borrow();
                let dirty = dirty.get(name).filter(|dirty| dirty.queued);
                dirty.map(Dirty::cost)
            };
            let cost = |name: &Name| match group_of(name) {
                None => cost_of(name),
                Some(group) => {
                    let groups = groups.borrow();
                    let members = groups.get(&group)?.iter();
                    Some(members.filter_map(cost_of).sum())
                }
            };
            queue.take_some(bytes_max, cost, &mut take);
        }
        (writes, taken_groups)
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
        //
        // If the store has refused one record of a transaction, the outcome of the transaction is unknown. All its records are loaded
        // again, so those that the store has done are read back.
        self.adapt(&batch, now.since(batch.sent));
        let is_refused = |index: usize| written.get(index) == Some(&Written::Refused);
        let groups = batch.groups.iter();
        let torn: Vec<_> = groups
            .filter(|group| Range::clone(group).any(is_refused))
            .collect();
        for (index, (write, written)) in batch.writes.iter().zip(written).enumerate() {
            match written {
                Written::Done if !torn.iter().any(|group| group.contains(&index)) => {
                    self.stored(write, ending)
                }
                _ => self.superseded(&write.name, ending),
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
            .take_if(|batch| batch.is_in_flight && batch.number == number)
    }

    /// Notes that the batch has failed. It is sent again after a pause.
    pub(crate) fn failed(&mut self, number: u64, now: Instant) {
        let Some(batch) = &mut self.batch else {
            return;
        };
        if !batch.is_in_flight || batch.number != number {
            return;
        }
        batch.is_in_flight = false;
        let pause = RETRY_FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_LONGEST);
        self.failures += 1;
        self.retry = Some(now + pause);
    }
}
