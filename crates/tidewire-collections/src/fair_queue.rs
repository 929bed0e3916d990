//! The write queue: which records the owner gives to a store next. Users take turns by bytes, so a user that writes much waits for its own
//! writes and delays the writes of other users by at most one batch.
//!
//! As long as one batch takes the whole queue, records leave in the order in which they were written, and no share is looked up. Beyond
//! that the queue is split by share, and shares are served by deficit round robin: each visit adds a quantum to the bytes that the share
//! may take. A share that was not waiting is served before those that have been waiting, up to half of the batch, so neither delays the
//! other.
//!
//! A record that is larger than a batch does not join one that has other records, so their commit stays short. It is in the next batch,
//! and only records that would have to wait for it join it there.

use std::collections::VecDeque;

use crate::share::Share;
use crate::table::{self, Map};
use tidewire_message::text::Name;

/// Number of visits that fill a batch.
const VISITS_PER_BATCH: usize = 64;
/// Smaller quanta would only make more visits.
const QUANTUM_BYTES_MIN: usize = 4 << 10;
/// The queue drops stale entries when it has more than this number of entries in addition to two for each queued record.
const STALE_ENTRIES_MAX: usize = 1_000;

/// The part of the queue that belongs to one share.
#[derive(Debug)]
struct Backlog {
    names: VecDeque<Name>,
    /// Bytes that the share may take.
    credit: usize,
}

/// See the start of this file. A record may be in the queue several times, once for each share that has written it. The caller knows which
/// entries still count.
#[derive(Debug)]
pub struct FairQueue {
    arrivals: VecDeque<(Name, Share)>,
    /// Empty as long as one batch takes everything.
    backlogs: Map<Share, Backlog>,
    /// Shares with a backlog. Those in `fresh` have not been served yet, those in `served` have.
    fresh: VecDeque<Share>,
    served: VecDeque<Share>,
    /// Whether the last batch omitted a record that is larger than a batch. The record's share is the first in `served`.
    is_large_due: bool,
    entries: usize,
}

impl FairQueue {
    /// Nothing is queued.
    pub fn new(seed: u64) -> Self {
        Self {
            arrivals: VecDeque::new(),
            backlogs: table::map(seed),
            fresh: VecDeque::new(),
            served: VecDeque::new(),
            is_large_due: false,
            entries: 0,
        }
    }

    /// Whether no record is queued.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Queues a record that a share has written.
    pub fn push(&mut self, name: Name, share: Share) {
        self.arrivals.push_back((name, share));
        self.entries += 1;
    }

    /// Drops the entries that no longer count, if they greatly outnumber the others. `queued_count` is the number of queued records.
    pub fn compact(&mut self, queued_count: usize, mut counts: impl FnMut(&Name, &Share) -> bool) {
        if self.entries <= 2 * queued_count + STALE_ENTRIES_MAX {
            return;
        }
        self.arrivals.retain(|(name, share)| counts(name, share));
        self.entries = self.arrivals.len();
        for (share, backlog) in &mut self.backlogs {
            backlog.names.retain(|name| counts(name, share));
            self.entries += backlog.names.len();
        }
    }

    /// Takes everything. `take` gets each entry, even one that no longer counts. The entries come in the order of their writes, unless the
    /// queue is already split by share.
    pub fn take_all(&mut self, mut take: impl FnMut(Name)) {
        if self.backlogs.is_empty() {
            for (name, _) in self.arrivals.drain(..) {
                take(name);
            }
            self.entries = 0;
        } else {
            self.take_some(usize::MAX, |_| Some(0), take);
        }
    }

    /// Takes records of about `bytes_max` bytes, exceeded by at most one record. `cost` returns the bytes of a record that still counts, or
    /// `None` if its entry is to be dropped.
    pub fn take_some(
        &mut self,
        bytes_max: usize,
        mut cost: impl FnMut(&Name) -> Option<usize>,
        mut take: impl FnMut(Name),
    ) {
        self.split();
        let quantum = (bytes_max / VISITS_PER_BATCH).max(QUANTUM_BYTES_MIN);
        let mut taken = 0;
        while taken < bytes_max {
            let first = match taken < bytes_max / 2 {
                true => self.fresh.pop_front().or_else(|| self.served.pop_front()),
                false => self.served.pop_front().or_else(|| self.fresh.pop_front()),
            };
            let Some(share) = first else {
                return;
            };
            let Some(backlog) = self.backlogs.get_mut(&share) else {
                continue;
            };
            backlog.credit = backlog.credit.saturating_add(quantum);
            while let Some(name) = backlog.names.front() {
                let cost = cost(name);
                if cost.is_some_and(|cost| cost > backlog.credit) {
                    break;
                }
                let is_large = cost.is_some_and(|cost| cost > bytes_max);
                if is_large && taken > 0 && !self.is_large_due {
                    self.is_large_due = true;
                    self.served.push_front(share);
                    return;
                }
                if let Some(name) = backlog.names.pop_front() {
                    self.entries -= 1;
                    if let Some(cost) = cost {
                        backlog.credit -= cost;
                        taken += cost;
                        take(name);
                    }
                }
                if is_large {
                    self.is_large_due = false;
                    break;
                }
            }
            if backlog.names.is_empty() {
                self.backlogs.remove(&share);
            } else {
                self.served.push_back(share);
            }
        }
    }

    /// Moves the arrivals to the backlogs of their shares.
    fn split(&mut self) {
        for (name, share) in self.arrivals.drain(..) {
            if let Some(backlog) = self.backlogs.get_mut(&share) {
                backlog.names.push_back(name);
                continue;
            }
            self.fresh.push_back(share.clone());
            let backlog = Backlog {
                names: [name].into(),
                credit: 0,
            };
            self.backlogs.insert(share, backlog);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: usize = 1 << 20;

    fn share(user: &str) -> Share {
        Share::User(user.into())
    }

    /// Queues `count` records of a user whose names end with their size.
    fn push(queue: &mut FairQueue, user: &str, count: usize, bytes: usize) {
        for number in 0..count {
            let name = format!("{user}/{number}/{bytes}");
            queue.push(Name::from(name.as_str()), share(user));
        }
    }

    fn bytes_of(name: &str) -> usize {
        let bytes = name.rsplit('/').next().expect("it ends with its size");
        bytes.parse().expect("a number")
    }

    fn batch(queue: &mut FairQueue) -> Vec<Name> {
        let mut taken = Vec::new();
        queue.take_some(BATCH, |name| Some(bytes_of(name)), |name| taken.push(name));
        taken
    }

    fn count_of(batch: &[Name], user: &str) -> usize {
        let prefix = format!("{user}/");
        batch
            .iter()
            .filter(|name| name.starts_with(&prefix))
            .count()
    }

    #[test]
    fn small_writes_are_in_the_next_batch_however_much_others_write() {
        let mut queue = FairQueue::new(1);
        for user in 0..200 {
            push(&mut queue, &format!("heavy{user}"), 20, 30_000);
        }
        for round in 0..20 {
            push(&mut queue, "ann", 1, 100);
            push(&mut queue, "bob", 2, 200);
            let taken = batch(&mut queue);
            let counts = (count_of(&taken, "ann"), count_of(&taken, "bob"));
            assert_eq!(counts, (1, 2), "in batch {round}");
            let bytes: usize = taken.iter().map(|name| bytes_of(name)).sum();
            assert!((BATCH..BATCH + 60_000).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn a_record_that_is_larger_than_a_batch_does_not_delay_the_others_of_its_batch() {
        let mut queue = FairQueue::new(1);
        push(&mut queue, "large", 10, 3 * BATCH);
        assert_eq!(batch(&mut queue).len(), 1, "it is alone");
        for round in 0..4 {
            push(&mut queue, "ann", 1, 100);
            let taken = batch(&mut queue);
            assert_eq!((count_of(&taken, "ann"), taken.len()), (1, 1), "in {round}");
            push(&mut queue, "bob", 1, 100);
            let taken = batch(&mut queue);
            let counts = (count_of(&taken, "bob"), count_of(&taken, "large"));
            assert_eq!(counts, (1, 1), "bob's record would have to wait for it");
        }
        let left: Vec<_> = (0..5).map(|_| batch(&mut queue).len()).collect();
        assert_eq!((left, queue.is_empty()), (vec![1; 5], true));
    }

    #[test]
    fn users_that_always_wait_get_equal_bytes_in_turn() {
        let mut queue = FairQueue::new(1);
        push(&mut queue, "large", 20, 1_000_000);
        push(&mut queue, "middle", 500, 30_000);
        push(&mut queue, "small", 100_000, 300);
        let mut bytes = [0; 3];
        for _ in 0..20 {
            let taken = batch(&mut queue);
            for (user, bytes) in ["large/", "middle/", "small/"].iter().zip(&mut bytes) {
                let backlog = taken.iter().filter(|name| name.starts_with(user));
                *bytes += backlog.map(|name| bytes_of(name)).sum::<usize>();
            }
        }
        let (least, most) = (bytes.iter().min(), bytes.iter().max());
        let difference = most.zip(least).map_or(0, |(most, least)| most - least);
        assert!(difference <= 1_100_000, "{bytes:?}");
    }

    #[test]
    fn users_that_come_and_go_leave_half_of_each_batch_to_those_that_wait() {
        let mut queue = FairQueue::new(1);
        push(&mut queue, "waits", 1_000, 1_000);
        for round in 0..10 {
            for user in 0..1_000 {
                push(&mut queue, &format!("guest{round}-{user}"), 1, 10_000);
            }
            batch(&mut queue);
        }
        let mut left = 0;
        while !queue.is_empty() {
            left += count_of(&batch(&mut queue), "waits");
        }
        assert!(left < 1_000, "none of it was taken");
    }

    #[test]
    fn each_entry_leaves_once_in_the_order_of_its_user() {
        let mut queue = FairQueue::new(1);
        push(&mut queue, "a", 300, 20_000);
        push(&mut queue, "b", 300, 500);
        let mut taken = batch(&mut queue);
        push(&mut queue, "c", 10, 2_000_000);
        while !queue.is_empty() {
            taken.extend(batch(&mut queue));
        }
        for (user, count) in [("a", 300), ("b", 300), ("c", 10)] {
            let prefix = format!("{user}/");
            let numbers = taken.iter().filter_map(|name| name.strip_prefix(&prefix));
            let numbers: Vec<usize> = numbers
                .map(|rest| bytes_of(rest.split('/').next().expect("a number")))
                .collect();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{user}");
        }
        assert!(queue.backlogs.is_empty() && queue.fresh.is_empty() && queue.served.is_empty());
    }

    #[test]
    fn entries_that_no_longer_count_are_dropped() {
        let mut queue = FairQueue::new(1);
        push(&mut queue, "a", 3_000, 100);
        queue.take_some(1, |_| Some(1), |_| ());
        push(&mut queue, "b", 500, 100);
        queue.compact(2_000, |_, _| panic!("there are not too many"));
        queue.compact(1, |_, user| *user == share("b"));
        assert_eq!(queue.entries, 500);
        let mut taken = 0;
        queue.take_all(|_| taken += 1);
        assert_eq!((taken, queue.is_empty()), (500, true));
    }
}
