//! Compares [`Commits`] with a model that counts the changes of each record, for random steps of an owner and its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::batch::RETRY_LONGEST;
use super::*;
use crate::address::{Address, SessionId};
use crate::message::RecordAction;
use crate::record::waiter::Requested;
use crate::store::{Incarnation, StoreChange, StoredRecord, Version, Written};
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
    /// A transaction writes these names.
    Group {
        names: [bool; NAMES],
        waits: bool,
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
        2 => (any::<[bool; NAMES]>(), any::<bool>())
            .prop_map(|(names, waits)| Step::Group { names, waits }),
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
    /// The names that the next batch must have together, and those that the batch in flight has together.
    queued_groups: Vec<BTreeSet<usize>>,
    batch_groups: Vec<BTreeSet<usize>>,
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
            queued_groups: Vec::new(),
            batch_groups: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Write { name, bytes, waits } => {
                self.changes[name] += 1;
                let waiter = waits.then(|| self.waiter(name));
                self.add(name, bytes, waiter);
            }
            Step::Group { names, waits } => {
                let names: Vec<usize> = (0..NAMES).filter(|name| names[*name]).collect();
                for name in &names {
                    self.changes[*name] += 1;
                    self.add(*name, 100, None);
                }
                let keys: Vec<Name> = names.iter().map(|name| key(*name)).collect();
                self.commits.group(&keys);
                if waits && let Some(first) = names.first() {
                    let waiter = self.waiter(*first);
                    assert!(self.commits.wait_for_all(&keys, waiter).is_none());
                }
                let mut joined: BTreeSet<usize> = names.into_iter().collect();
                self.queued_groups.retain(|group| {
                    let is_apart = group.is_disjoint(&joined);
                    if !is_apart {
                        joined.extend(group);
                    }
                    is_apart
                });
                self.queued_groups.push(joined);
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

    fn add(&mut self, name: usize, bytes: usize, waiter: Option<Waiter>) {
        self.bytes[name] = bytes;
        let (before, change) = (self.known[name], self.changes[name]);
        let share = Share::User(format!("{}", change % 3).as_str().into());
        self.commits
            .add(&key(name), before, bytes, change, share, waiter);
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
            action: RecordAction::Delete,
            correlation: None,
            request: Requested::Change,
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
        } else {
            let names: BTreeSet<usize> = distinct.into_iter().map(index_of).collect();
            let groups = std::mem::take(&mut self.queued_groups).into_iter();
            let (taken, left) = groups.partition(|group| !group.is_disjoint(&names));
            (self.batch_groups, self.queued_groups) = (taken, left);
            for group in &self.batch_groups {
                assert!(group.is_subset(&names), "{group:?} is apart: {names:?}");
            }
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
        let outcomes: Vec<Written> = writes.iter().map(|write| self.write(write)).collect();
        let (mut seen, mut clean) = (Seen::default(), BTreeSet::new());
        self.commits
            .committed(self.now, number, &outcomes, &mut seen);
        // A refused record takes the others of its group with it, in the batch and in the queue.
        let mut dropped = BTreeSet::new();
        for (write, outcome) in writes.iter().zip(&outcomes) {
            let name = index_of(&write.name);
            if *outcome == Written::Refused {
                assert!(self.foreign.remove(&name), "{name} has no other owner");
                let groups = self.batch_groups.iter();
                let torn = groups.filter(|group| group.contains(&name)).flatten();
                dropped.extend(torn.copied().chain([name]));
            }
        }
        self.batch_groups.clear();
        for group in std::mem::take(&mut self.queued_groups) {
            match group.is_disjoint(&dropped) {
                true => self.queued_groups.push(group),
                false => dropped.extend(group),
            }
        }
        for write in writes.iter() {
            let name = index_of(&write.name);
            if dropped.contains(&name) {
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
        let of_batch = |name: usize| {
            let write = writes.iter().find(|write| index_of(&write.name) == name);
            write.map(|write| match &write.change {
                StoreChange::Put(record) => u64::from(record.version.0),
                StoreChange::Delete => 0,
            })
        };
        for index in std::mem::take(&mut seen.answered) {
            let (name, change, _) = self.waiting.remove(&index).expect("answered once");
            let stored = self.stored[name].max(of_batch(name).unwrap_or(0));
            assert!(stored >= change, "answered too early");
        }
        for name in dropped {
            self.superseded(name, of_batch(name), &mut seen);
        }
        assert!(seen.superseded.is_empty(), "{:?}", seen.superseded);
        let late = self
            .waiting
            .values()
            .find(|(name, change, _)| self.stored[*name] >= *change);
        assert_eq!(late, None, "its change is stored, and it was not answered");
        assert_eq!(seen.clean, clean, "clean records");
    }

    /// Checks that all sessions that waited for the record know that its outcome is unknown. The record is then no longer dirty.
    fn superseded(&mut self, name: usize, of_batch: Option<u64>, seen: &mut Seen) {
        let (from, mut waiters) = seen.superseded.remove(&name).expect("told so");
        // The write of the batch may have been noted as stored before.
        let last = [Some(self.stored[name]), of_batch];
        assert!(
            last.contains(&Some(from - 1)),
            "the first that is not stored"
        );
        waiters.sort_unstable();
        let of_name = |(index, (waits_for, ..)): (&u32, &(usize, u64, Instant))| {
            (*waits_for == name).then_some(*index)
        };
        let expected: Vec<u32> = self.waiting.iter().filter_map(of_name).collect();
        assert_eq!(waiters, expected, "who waited for {name}");
        self.waiting.retain(|_, (waits_for, ..)| *waits_for != name);
        self.stored[name] = self.changes[name];
        self.foreign.remove(&name);
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
        write_keys: None,
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
fn the_records_of_transactions_with_a_common_record_leave_in_one_batch() {
    let mut both = Both::new();
    for names in [[true, true, false, false], [false, true, true, false]] {
        let waits = true;
        both.take(&Step::Group { names, waits });
    }
    both.take(&Step::Batch);
    let names = |both: &Both| {
        let (_, writes) = both.batch.as_ref().expect("a batch");
        writes.iter().map(|write| index_of(&write.name)).collect()
    };
    let sent: BTreeSet<usize> = names(&both);
    assert!(sent.is_superset(&[0, 1, 2].into()), "{sent:?}");
    // Another owner has written a record. The other records of its transactions are read again, and a queued transaction is dropped with it.
    both.take(&Step::Foreign { name: 2 });
    both.take(&Step::Group {
        names: [false, false, true, true],
        waits: true,
    });
    both.take(&Step::Commits);
    assert_eq!(both.commits.count(), 0);
    assert!(both.waiting.is_empty());
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
    assert_eq!(slow.last(), Some(&2), "{slow:?}");
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
