//! Bytes in flight: bytes that connections have posted to other shards and that these have not handled yet.
//!
//! A mailbox never refuses, so the limit applies to the input: a connection over its limit is not read. Posts that a shard makes because
//! of its mail belong to no connection.
//!
//! If all posts of a shard together exceed the shard's limit, the shard reports the receivers that have most of them as congested. On all
//! shards, messages that go to a congested shard wait, and so do the later messages of their connections. All other connections are read. A
//! congested shard itself reads no sockets. A shard with twice the limit in flight reports itself: the messages that go to it make it post
//! to a congested shard. Mailboxes are always emptied, so there is no deadlock (decision 0072).
//!
//! Receivers confirm with one number for each sender. A sender is woken only if it waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tidewire_net::connection::Key;

/// Cost of one entry without its message's bytes, which several entries share.
const ENTRY_BYTES: u32 = 64;

/// In place of a connection. No connection has this index: indexes count up from 0, and descriptors run out long before.
pub(crate) const NO_CONNECTION: Key = Key {
    index: u32::MAX,
    generation: 0,
};

/// A number on a separate cache line, since another thread writes its neighbour.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded<T>(T);

/// The batches of each shard that the other shards have handled. Shared by all shards.
#[derive(Debug)]
pub(crate) struct Confirmations {
    count: usize,
    /// The last batch of `origin` that `target` has handled, at `origin * count + target`.
    handled: Box<[Padded<AtomicU64>]>,
    /// By origin: whether a confirmation must wake it.
    is_waiting: Box<[Padded<AtomicBool>]>,
    /// By shard: the number of shards that report it as congested.
    reports: Box<[Padded<AtomicUsize>]>,
    /// The number of all reports.
    report_count: Padded<AtomicUsize>,
}

impl Confirmations {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count,
            handled: (0..count * count).map(|_| Padded::default()).collect(),
            is_waiting: (0..count).map(|_| Padded::default()).collect(),
            reports: (0..count).map(|_| Padded::default()).collect(),
            report_count: Padded::default(),
        }
    }

    /// Notes that `target` has handled all batches of `origin` up to `batch`. Returns whether `origin` must be woken.
    pub(crate) fn confirm(&self, origin: u16, target: u16, batch: u64) -> bool {
        // Sequentially consistent against `set_waiting`: either the origin reads the new number, or this thread reads that the origin
        // waits.
        self.handled_at(origin, target)
            .store(batch, Ordering::SeqCst);
        self.is_waiting[usize::from(origin)]
            .0
            .load(Ordering::SeqCst)
    }

    /// Whether any shard is congested.
    pub(crate) fn has_congested(&self) -> bool {
        self.report_count.0.load(Ordering::SeqCst) > 0
    }

    /// Whether messages that go to this shard wait.
    pub(crate) fn is_congested(&self, shard: u16) -> bool {
        self.reports[usize::from(shard)].0.load(Ordering::SeqCst) > 0
    }

    /// Adds a report about a shard.
    fn report(&self, shard: u16) {
        self.reports[usize::from(shard)]
            .0
            .fetch_add(1, Ordering::SeqCst);
        self.report_count.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a report back. Returns whether it was the last one about the shard.
    fn take_back(&self, shard: u16) -> bool {
        self.report_count.0.fetch_sub(1, Ordering::SeqCst);
        let reports = &self.reports[usize::from(shard)].0;
        reports.fetch_sub(1, Ordering::SeqCst) == 1
    }

    fn handled(&self, origin: u16, target: u16) -> u64 {
        self.handled_at(origin, target).load(Ordering::SeqCst)
    }

    fn set_waiting(&self, origin: u16, is_waiting: bool) {
        self.is_waiting[usize::from(origin)]
            .0
            .store(is_waiting, Ordering::SeqCst);
    }

    fn handled_at(&self, origin: u16, target: u16) -> &AtomicU64 {
        &self.handled[usize::from(origin) * self.count + usize::from(target)].0
    }
}

/// Bytes that one connection posted with one batch.
#[derive(Clone, Copy, Debug)]
struct Charge {
    batch: u64,
    key: Key,
    bytes: u32,
}

/// The posts of one shard to one other.
#[derive(Debug, Default)]
struct Posts {
    /// Batches pushed so far.
    posted: u64,
    /// Bytes in flight.
    bytes: usize,
    /// Whether this shard reports the receiver, which may be itself, as congested.
    is_reported: bool,
    /// Bytes charged for the batch that is pushed next.
    batch_bytes: usize,
    /// Charges that are not confirmed, oldest first.
    charges: VecDeque<Charge>,
    /// The last batch that was seen to be handled.
    seen: u64,
}

/// One shard's bytes in flight.
#[derive(Debug)]
pub(crate) struct Credit {
    shard: u16,
    posts: Box<[Posts]>,
    bytes: usize,
    bytes_max: usize,
    /// The number of shards that this one reports as congested.
    reported_count: usize,
}

/// Confirmed bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    pub(crate) key: Key,
    pub(crate) bytes: u32,
}

impl Credit {
    /// Creates it with nothing in flight. If more than `bytes_max` are, some receivers are congested.
    pub(crate) fn new(shard: u16, shard_count: usize, bytes_max: usize) -> Self {
        Self {
            shard,
            posts: (0..shard_count).map(|_| Posts::default()).collect(),
            bytes: 0,
            bytes_max,
            reported_count: 0,
        }
    }

    /// Bytes in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether every batch was handled.
    pub(crate) fn is_settled(&self) -> bool {
        self.posts.iter().all(|posts| posts.seen == posts.posted)
    }

    /// Whether this shard reports others, or itself, as congested. A confirmation must then wake it, so that it takes the reports back.
    pub(crate) fn has_reported(&self) -> bool {
        self.reported_count > 0
    }

    /// Reports shards as congested, or takes such reports back. Returns whether a shard is no longer congested, so that the shards with
    /// connections that wait for it must be woken.
    pub(crate) fn report(&mut self, confirmations: &Confirmations) -> bool {
        let is_over = self.bytes > self.bytes_max;
        if !is_over && self.reported_count == 0 {
            return false;
        }
        // If all receivers together have more than the limit, at least one has more than its share. A report lasts until half of its cause
        // is left, so that a shard at the limit does not wake all others after each batch.
        let share = self.bytes_max / self.posts.len();
        let mut has_ended = false;
        for (shard, posts) in (0u16..).zip(&mut self.posts) {
            let is_congested = match (shard == self.shard, posts.is_reported) {
                (true, false) => self.bytes / 2 > self.bytes_max,
                (true, true) => is_over,
                (false, false) => is_over && posts.bytes > share,
                (false, true) => posts.bytes > share / 2,
            };
            match (posts.is_reported, is_congested) {
                (false, true) => {
                    self.reported_count += 1;
                    confirmations.report(shard);
                }
                (true, false) => {
                    self.reported_count -= 1;
                    has_ended |= confirmations.take_back(shard);
                }
                _ => {}
            }
            posts.is_reported = is_congested;
        }
        has_ended
    }

    /// Charges a connection, or [`NO_CONNECTION`], for an entry that is sent with the next batch to `target`. `message_bytes` are zero if
    /// another entry of the same message was charged with them. Returns the bytes charged.
    pub(crate) fn charge(&mut self, target: u16, key: Key, message_bytes: u32) -> u32 {
        let bytes = message_bytes.saturating_add(ENTRY_BYTES);
        self.bytes += bytes as usize;
        let posts = &mut self.posts[usize::from(target)];
        let batch = posts.posted + 1;
        posts.bytes += bytes as usize;
        posts.batch_bytes += bytes as usize;
        match posts.charges.back_mut() {
            Some(last) if last.key == key && last.batch == batch => last.bytes += bytes,
            _ => posts.charges.push_back(Charge { batch, key, bytes }),
        }
        bytes
    }

    /// Returns the number of the batch that is pushed to `target` now, and the bytes charged for it.
    pub(crate) fn next_batch(&mut self, target: u16) -> (u64, usize) {
        let posts = &mut self.posts[usize::from(target)];
        posts.posted += 1;
        (posts.posted, std::mem::take(&mut posts.batch_bytes))
    }

    /// Appends the numbers that were confirmed since the last call.
    pub(crate) fn collect(
        &mut self,
        confirmations: &Confirmations,
        confirmed: &mut Vec<Confirmed>,
    ) {
        for (target, posts) in (0u16..).zip(&mut self.posts) {
            if posts.seen == posts.posted {
                continue;
            }
            posts.seen = confirmations.handled(self.shard, target);
            while let Some(charge) = posts
                .charges
                .pop_front_if(|charge| charge.batch <= posts.seen)
            {
                self.bytes -= charge.bytes as usize;
                posts.bytes -= charge.bytes as usize;
                confirmed.push(Confirmed {
                    key: charge.key,
                    bytes: charge.bytes,
                });
            }
        }
    }

    /// Announces, before this shard sleeps, whether a confirmation must wake it. Returns whether there are already new confirmations, so
    /// that it must not sleep.
    pub(crate) fn set_waiting(&self, confirmations: &Confirmations, is_waiting: bool) -> bool {
        confirmations.set_waiting(self.shard, is_waiting);
        is_waiting
            && (0u16..).zip(&self.posts).any(|(target, posts)| {
                posts.seen < posts.posted && confirmations.handled(self.shard, target) > posts.seen
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 0,
        }
    }

    fn collect(credit: &mut Credit, confirmations: &Confirmations) -> Vec<(u32, u32)> {
        let mut confirmed = Vec::new();
        credit.collect(confirmations, &mut confirmed);
        confirmed
            .iter()
            .map(|one| (one.key.index, one.bytes))
            .collect()
    }

    #[test]
    fn bytes_come_back_when_their_batch_is_handled() {
        let confirmations = Confirmations::new(3);
        let mut credit = Credit::new(0, 3, 1000);
        credit.charge(1, key(7), 100);
        credit.charge(1, key(7), 100);
        credit.charge(2, key(8), 0);
        assert_eq!(credit.next_batch(1), (1, 328));
        assert_eq!(credit.next_batch(2), (1, 64));
        credit.charge(1, key(7), 1);
        assert_eq!(credit.next_batch(1), (2, 65));
        assert_eq!(credit.bytes(), 200 + 1 + 4 * 64);
        assert!(collect(&mut credit, &confirmations).is_empty());
        confirmations.confirm(0, 1, 1);
        assert_eq!(collect(&mut credit, &confirmations), [(7, 328)]);
        confirmations.confirm(0, 1, 2);
        confirmations.confirm(0, 2, 1);
        assert!(!credit.is_settled());
        assert_eq!(collect(&mut credit, &confirmations), [(7, 65), (8, 64)]);
        assert_eq!(credit.bytes(), 0);
        assert!(credit.is_settled());
    }

    #[test]
    fn only_a_waiting_shard_is_woken() {
        let confirmations = Confirmations::new(2);
        let mut credit = Credit::new(1, 2, 1000);
        credit.next_batch(0);
        credit.next_batch(0);
        assert!(!credit.set_waiting(&confirmations, true));
        assert!(confirmations.confirm(1, 0, 1));
        assert!(!confirmations.confirm(0, 1, 1), "another origin");
        assert!(credit.set_waiting(&confirmations, true), "one came already");
        collect(&mut credit, &confirmations);
        assert!(!credit.set_waiting(&confirmations, false));
        assert!(!confirmations.confirm(1, 0, 2));
    }

    #[test]
    fn only_the_receiver_of_most_bytes_is_congested_until_half_of_them_are_handled() {
        let confirmations = Confirmations::new(4);
        let mut credit = Credit::new(0, 4, 1000);
        credit.charge(1, NO_CONNECTION, 100);
        credit.charge(2, NO_CONNECTION, 700);
        assert!(!credit.report(&confirmations) && !confirmations.has_congested());
        let (first, _) = credit.next_batch(2);
        credit.charge(2, key(3), 50);
        assert!(!credit.report(&confirmations) && credit.has_reported());
        let congested =
            || Vec::from_iter((0..4).filter(|shard| confirmations.is_congested(*shard)));
        assert_eq!(congested(), [2]);
        // Another shard reports it as well.
        let mut other = Credit::new(1, 4, 1000);
        other.charge(2, key(1), 2000);
        other.report(&confirmations);
        let (batch, _) = other.next_batch(2);
        assert_eq!(congested(), [1, 2], "and itself, with twice the limit");
        confirmations.confirm(1, 2, batch);
        collect(&mut other, &confirmations);
        assert!(other.report(&confirmations), "shard 1 must be woken");
        assert_eq!(congested(), [2]);
        confirmations.confirm(0, 2, first);
        collect(&mut credit, &confirmations);
        assert!(credit.report(&confirmations), "the others must be woken");
        assert!(!confirmations.has_congested() && !credit.has_reported());
        assert!(!credit.report(&confirmations), "only once");
    }
}
