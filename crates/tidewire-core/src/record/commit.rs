//! Writes on their way to the store: which records are dirty, which are in the batch under way, and who waits.
//!
//! A record is in a batch once, with its newest value, and the batch answers all writes that it covers. A failed
//! batch is sent again whole; nothing that was shown is rolled back.

use std::collections::VecDeque;
use std::time::Duration;

use crate::address::SessionId;
use crate::entry::{Answer, RecordRefusal, Stored};
use crate::table::{self, Map};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Records in one batch: enough that a sync is shared by many writes, few enough that it takes milliseconds.
const BATCH_RECORDS_MAX: usize = 10_000;
/// Bytes in one batch, for the same reasons.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// The first pause after a failed commit; it doubles up to the longest.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Somebody who waits until a write is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    pub(crate) what: WaitsFor,
}

/// What the waiter asked for.
#[derive(Debug)]
pub(crate) enum WaitsFor {
    /// A write acknowledgement.
    Write {
        action: crate::message::RecordAction,
        correlation: Option<Box<str>>,
        /// What a `Put` has made.
        stored: Option<Stored>,
    },
    /// The end of the record.
    Delete,
    /// The end of the record, by a `Put`.
    Remove {
        correlation: Box<str>,
        existed: bool,
    },
}

impl WaitsFor {
    /// What to answer when the outcome is unknown.
    pub(crate) fn refusal(&self) -> RecordRefusal {
        match self {
            Self::Write { .. } => RecordRefusal::UpdateFailed,
            Self::Delete | Self::Remove { .. } => RecordRefusal::DeleteFailed,
        }
    }

    /// What to answer when it is durable.
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

#[derive(Debug, Default)]
struct Dirty {
    bytes: usize,
    /// In the queue for the next batch.
    queued: bool,
    waiting: Vec<Waiter>,
    /// Those whom the batch under way answers.
    covered: Vec<Waiter>,
}

/// The dirty records of a shard.
#[derive(Debug)]
pub(crate) struct Commits {
    dirty: Map<Name, Dirty>,
    bytes: usize,
    queue: VecDeque<Name>,
    batch: Option<(u64, Vec<Name>)>,
    next_batch: u64,
    failures: u32,
    retry: Option<Instant>,
    timeouts: DeadlineQueue<Name>,
}

impl Commits {
    /// Nothing is dirty.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dirty: table::map(seed),
            bytes: 0,
            queue: VecDeque::new(),
            batch: None,
            next_batch: 0,
            failures: 0,
            retry: None,
            timeouts: DeadlineQueue::new(),
        }
    }

    /// Whether the record has something that the store does not.
    pub(crate) fn is_dirty(&self, name: &str) -> bool {
        self.dirty.contains_key(name)
    }

    /// How many records are dirty.
    pub(crate) fn count(&self) -> usize {
        self.dirty.len()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many commits have failed since the last one that did not.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether a write that makes the record `bytes` large has a place within the limits.
    pub(crate) fn has_place(
        &self,
        name: &str,
        bytes: usize,
        records_max: usize,
        bytes_max: usize,
    ) -> bool {
        let known = self.dirty.get(name).map(|dirty| dirty.bytes);
        let more_records = usize::from(known.is_none());
        self.dirty.len() + more_records <= records_max
            && self.bytes - known.unwrap_or(0) + bytes <= bytes_max
    }

    /// Takes note of a write or delete.
    pub(crate) fn add(&mut self, name: &Name, bytes: usize, waiter: Option<Waiter>) {
        let dirty = self.dirty.entry(name.clone()).or_default();
        self.bytes = self.bytes - dirty.bytes + bytes;
        dirty.bytes = bytes;
        if !dirty.queued {
            dirty.queued = true;
            self.queue.push_back(name.clone());
        }
        if let Some(waiter) = waiter {
            self.timeouts.push(waiter.deadline, name.clone());
            dirty.waiting.push(waiter);
        }
    }

    /// Has somebody wait for what is already on its way; gives the waiter back if nothing is.
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

    /// The names of the next batch, unless one is under way, a pause is on, or nothing is to be done.
    pub(crate) fn next_batch(&mut self, now: Instant) -> Option<(u64, &[Name])> {
        if self.batch.is_some()
            || self.queue.is_empty()
            || self.retry.is_some_and(|retry| retry > now)
        {
            return None;
        }
        self.retry = None;
        let mut names = Vec::new();
        let mut bytes = 0;
        while names.len() < BATCH_RECORDS_MAX && (bytes < BATCH_BYTES_MAX || names.is_empty()) {
            let Some(name) = self.queue.pop_front() else {
                break;
            };
            if let Some(dirty) = self.dirty.get_mut(&name) {
                dirty.queued = false;
                dirty.covered.append(&mut dirty.waiting);
                bytes += dirty.bytes;
                names.push(name);
            }
        }
        let number = self.next_batch;
        self.next_batch += 1;
        let (_, names) = self.batch.insert((number, names));
        Some((number, names))
    }

    /// The batch is durable. Calls `answer` for everybody who waited for it and `clean` for every record that has
    /// nothing newer.
    pub(crate) fn committed(
        &mut self,
        batch: u64,
        mut answer: impl FnMut(&Name, Waiter),
        mut clean: impl FnMut(&Name),
    ) {
        let Some((_, names)) = self.batch.take_if(|(number, _)| *number == batch) else {
            return;
        };
        self.failures = 0;
        for name in names {
            let Some(dirty) = self.dirty.get_mut(&name) else {
                continue;
            };
            for waiter in dirty.covered.drain(..) {
                answer(&name, waiter);
            }
            if !dirty.queued {
                self.bytes -= dirty.bytes;
                self.dirty.remove(&name);
                clean(&name);
            }
        }
        let dirty = &self.dirty;
        self.timeouts
            .drop_front_while(|name| !dirty.contains_key(name));
    }

    /// The batch failed: all of it is dirty as before, and after a pause it is sent again.
    pub(crate) fn failed(&mut self, batch: u64, now: Instant) {
        let Some((_, names)) = self.batch.take_if(|(number, _)| *number == batch) else {
            return;
        };
        for name in names.into_iter().rev() {
            let Some(dirty) = self.dirty.get_mut(&name) else {
                continue;
            };
            let newer = std::mem::take(&mut dirty.waiting);
            dirty.waiting = std::mem::take(&mut dirty.covered);
            dirty.waiting.extend(newer);
            if !dirty.queued {
                dirty.queued = true;
                self.queue.push_front(name);
            }
        }
        let pause = RETRY_FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_LONGEST);
        self.failures += 1;
        self.retry = Some(now + pause);
    }

    /// Calls `answer` for everybody whose deadline is reached.
    pub(crate) fn time_out(&mut self, now: Instant, mut answer: impl FnMut(&Name, Waiter)) {
        while let Some(name) = self.timeouts.pop_due(now) {
            let Some(dirty) = self.dirty.get_mut(&name) else {
                continue;
            };
            for list in [&mut dirty.covered, &mut dirty.waiting] {
                let (due, left) = std::mem::take(list)
                    .into_iter()
                    .partition(|waiter: &Waiter| waiter.deadline <= now);
                *list = left;
                for waiter in Vec::from_iter::<Vec<Waiter>>(due) {
                    answer(&name, waiter);
                }
            }
        }
    }

    /// The earliest deadline: a pause that ends, or somebody who has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let retry = self
            .retry
            .filter(|_| self.batch.is_none() && !self.queue.is_empty());
        [retry, self.timeouts.next()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::address::Address;

    const NAMES: usize = 4;
    const TIMEOUT: Duration = Duration::from_millis(400);

    /// What happens to the dirty records of a shard.
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
        Commits {
            success: bool,
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
            4 => any::<bool>().prop_map(|success| Step::Commits { success }),
            2 => (0..300_u64).prop_map(|millis| Step::Pass { millis }),
        ]
    }

    /// Commits beside a model that counts the changes of each name.
    struct Both {
        commits: Commits,
        now: Instant,
        changes: [u64; NAMES],
        stored: [u64; NAMES],
        bytes: [usize; NAMES],
        /// The batch under way, with the change of each of its names.
        batch: Option<(u64, BTreeMap<usize, u64>)>,
        /// Who waits for which change of which name, since when.
        waiting: BTreeMap<u32, (usize, u64, Instant)>,
        next_waiter: u32,
    }

    impl Both {
        fn new() -> Self {
            Self {
                commits: Commits::new(1),
                now: Instant(0),
                changes: [0; NAMES],
                stored: [0; NAMES],
                bytes: [0; NAMES],
                batch: None,
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
                    self.commits.add(&key(name), bytes, waiter);
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
                Step::Commits { success } => self.end_batch(success),
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
                    home: Address { node: 0, shard: 0 },
                    index,
                    generation: 0,
                },
                deadline: self.now + TIMEOUT,
                what: WaitsFor::Delete,
            }
        }

        fn begin_batch(&mut self) {
            let under_way = self.batch.is_some();
            let Some((number, names)) = self.commits.next_batch(self.now) else {
                return;
            };
            assert!(!under_way, "two batches at once");
            let names: Vec<usize> = names.iter().map(place).collect();
            let distinct: BTreeSet<usize> = names.iter().copied().collect();
            assert_eq!(distinct.len(), names.len(), "a name twice in {names:?}");
            let changes = names.into_iter().map(|name| (name, self.changes[name]));
            self.batch = Some((number, changes.collect()));
        }

        fn end_batch(&mut self, success: bool) {
            let Some((number, changes)) = self.batch.take() else {
                return;
            };
            if !success {
                return self.commits.failed(number, self.now);
            }
            for (name, change) in &changes {
                self.stored[*name] = *change;
            }
            let (mut answered, mut clean) = (Vec::new(), BTreeSet::new());
            self.commits.committed(
                number,
                |_, waiter| answered.push(waiter.session.index),
                |name| {
                    clean.insert(place(name));
                },
            );
            for index in answered {
                let (name, change, _) = self.waiting.remove(&index).expect("answered once");
                assert!(self.stored[name] >= change, "answered too early");
            }
            let late = self
                .waiting
                .values()
                .find(|(name, change, _)| changes.get(name).is_some_and(|stored| stored >= change));
            assert_eq!(late, None, "its change is stored, and it was not answered");
            let newest = |name: &usize| self.changes[*name] == self.stored[*name];
            let expected = changes.into_keys().filter(newest).collect();
            assert_eq!(clean, expected, "clean records");
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

    fn place(name: &Name) -> usize {
        name.parse().expect("names are numbers")
    }

    proptest! {
        #[test]
        fn a_batch_answers_what_it_covers(steps in prop::collection::vec(step(), 1..100)) {
            let mut both = Both::new();
            for step in &steps {
                both.take(step);
            }
            // In the end everything is stored, and nobody waits.
            for _ in 0..3 {
                both.pass(RETRY_LONGEST);
                both.begin_batch();
                both.end_batch(true);
            }
            prop_assert_eq!(both.commits.count(), 0);
            prop_assert!(both.waiting.is_empty());
        }
    }

    #[test]
    fn pauses_after_failures_grow_up_to_a_limit() {
        let mut commits = Commits::new(1);
        let mut now = Instant(0);
        commits.add(&key(0), 1, None);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let (number, _) = commits.next_batch(now).expect("the pause is over");
            commits.failed(number, now);
            assert!(commits.next_batch(now).is_none(), "no pause");
            let next = commits.next_deadline().expect("it will be tried again");
            pauses.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(commits.failures(), 8);
    }
}
