//! The store of a simulated node, with the requests and answers in flight: it is slow, and its disk fails.

mod log;

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::effect::StoreCompletion;
use tidewire_core::route::StoreId;
use tidewire_core::store::{
    Expected, Loaded, MemberId, Store, StoreChange, StoreError, StoreReader, StoreWrite,
    StoredRecord, View, Written,
};
use tidewire_core::text::Name;
use tidewire_core::time::Instant;

use crate::disk::Failures;
use crate::fault::{Fault, Faults};
use crate::random::Random;
use crate::shared::{is_shared, number_of};
use crate::tally::Tally;
use log::LogStore;

/// The only member of each view; the log compares the views alone.
const MEMBER: MemberId = MemberId { node: 0, birth: 0 };

/// The power fails before one of this many writes and syncs of a commit.
const POWER_OPERATIONS: usize = 3;

/// A write and the number of its change in the model's count.
#[derive(Clone, Debug)]
pub struct NumberedWrite {
    pub write: StoreWrite,
    pub change_count: usize,
}

/// A request of a shard.
#[derive(Debug)]
pub enum Asked {
    Load(Vec<Name>),
    Commit {
        store: StoreId,
        batch: u64,
        writes: Vec<NumberedWrite>,
    },
}

/// How the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process is killed; the machine continues to run.
    Kill,
    /// The power fails, perhaps in the middle of a commit.
    PowerCut,
}

/// See the documentation of this module.
pub struct SimStore {
    log: LogStore,
    view: View,
    reader: Option<Box<dyn StoreReader>>,
    /// By name and transaction: the change of the record that the transaction holds, in the model's count. If a change was
    /// already done, the key is the earlier transaction that did it.
    changes: BTreeMap<(String, u64), usize>,
    kept: BTreeMap<String, usize>,
    /// Client writes that the store accepted, for records that another process also writes.
    shared: BTreeMap<String, BTreeSet<u64>>,
    /// The newest and the previous content of each record, for the fault that loads stale content.
    before: BTreeMap<String, [Option<StoredRecord>; 2]>,
    pub asked: Vec<(usize, Asked)>,
    /// The store does no work before this time.
    pub slow_until: Instant,
    /// Answers in flight to a shard, with the names of a commit.
    pub answers: Vec<(usize, StoreCompletion, Vec<String>)>,
    /// The writes that a shard must send again because its last batch failed.
    pub failed: BTreeMap<usize, Vec<NumberedWrite>>,
}

impl SimStore {
    pub fn new(seed: u64, faults: &Faults) -> Self {
        let mut store = Self {
            log: LogStore::new(seed),
            view: View(0),
            reader: None,
            changes: BTreeMap::new(),
            kept: BTreeMap::new(),
            shared: BTreeMap::new(),
            before: BTreeMap::new(),
            asked: Vec::new(),
            slow_until: Instant(0),
            answers: Vec::new(),
            failed: BTreeMap::new(),
        };
        if faults.is_on(Fault::OnlySyncedAgain) {
            store.log.only_sync_again();
        }
        store.open();
        store
    }

    /// The number of the model's change that the store has of this record.
    pub fn change_count(&self, name: &str) -> usize {
        self.kept.get(name).copied().unwrap_or(0)
    }

    /// Creates a record before the run starts.
    pub fn begin_with(&mut self, name: &str, record: StoredRecord) {
        let write = StoreWrite {
            writer: None,
            name: Name::from(name),
            expected: Expected::Missing,
            change: StoreChange::Put(record),
        };
        let done = self.log.commit(self.view, MEMBER, &[write]);
        done.expect("nothing has failed yet");
    }

    /// Another process writes a record, whatever the store contains. If the disk fails, the write may be lost.
    pub fn written_by_another(&mut self, name: &str, record: StoredRecord) {
        let write = StoreWrite {
            writer: None,
            name: Name::from(name),
            expected: Expected::Anything,
            change: StoreChange::Put(record),
        };
        drop(self.log.commit(self.view, MEMBER, &[write]));
    }

    /// Client writes that the store accepted, for a record that another process also writes.
    pub fn shared(&self, name: &str) -> BTreeSet<u64> {
        self.shared.get(name).cloned().unwrap_or_default()
    }

    pub fn ask(&mut self, shard: usize, asked: Asked) {
        self.asked.push((shard, asked));
    }

    /// Handles one of the pending requests.
    pub fn work(&mut self, index: usize, faults: &mut Faults) {
        let (shard, asked) = self.asked.remove(index);
        match asked {
            Asked::Load(names) => {
                let records = self.load(names, faults);
                self.answers
                    .push((shard, StoreCompletion::Loaded { records }, Vec::new()));
            }
            Asked::Commit {
                store,
                batch,
                writes,
            } => {
                let names = writes
                    .iter()
                    .map(|numbered| numbered.write.name.to_string())
                    .collect();
                let result = match faults.hits(Fault::CommitForgotten) {
                    true => Ok(vec![Written::Done; writes.len()]),
                    false => {
                        self.log.set_syncs(!faults.hits(Fault::AckBeforeSync));
                        let result = self.commit(writes.clone());
                        if result.is_err() {
                            self.failed.insert(shard, writes);
                        }
                        result
                    }
                };
                self.answers.push((
                    shard,
                    StoreCompletion::Committed {
                        store,
                        batch,
                        result,
                    },
                    names,
                ));
            }
        }
    }

    /// Does work that no shard waits for. After a failure the store does it later.
    pub fn tidy(&mut self) {
        drop(self.log.tidy());
    }

    /// Makes the next operations of the disk fail.
    pub fn fail(&mut self, more: Failures) {
        self.log.disk(|disk| {
            let failures = &mut disk.failures;
            failures.writes += more.writes;
            failures.syncs += more.syncs;
            failures.reads += more.reads;
            failures.growths += more.growths;
        });
    }

    /// Flips a bit of a stored value. Returns false if no value is safe to flip: a flip must differ from a torn write.
    pub fn flip(&mut self, which: usize) -> bool {
        self.log.flip_one(which)
    }

    /// Ends all failures and repairs the flipped bits.
    pub fn repair(&mut self) {
        self.log.disk(|disk| {
            disk.failures = Failures::default();
            disk.repair();
        });
    }

    /// Ends the node without an answer to pending requests, and opens the store again.
    pub fn crash(&mut self, end: End, random: &mut Random) {
        let (mut is_dying, mut late) = (false, Vec::new());
        for (_, asked) in std::mem::take(&mut self.asked) {
            let Asked::Commit { writes, .. } = asked else {
                continue;
            };
            if is_dying || random.chance(50) {
                late.push(writes);
            } else {
                if end == End::PowerCut && random.chance(70) {
                    is_dying = true;
                    let operations = random.below(POWER_OPERATIONS);
                    self.log.disk(|disk| disk.power_goes_after(operations));
                }
                // The shards are gone, so the result reaches none of them.
                drop(self.commit(writes));
            }
        }
        self.answers.clear();
        self.failed.clear();
        self.log.disk(|disk| match end {
            End::PowerCut => disk.power_returns(),
            End::Kill => disk.process_returns(),
        });
        let view = self.view;
        self.open();
        // Writes still in flight from the former node must not take effect.
        for writes in late {
            let writes: Vec<_> = writes.into_iter().map(|numbered| numbered.write).collect();
            let outcome = self.log.commit(view, MEMBER, &writes);
            assert!(outcome.is_err(), "a former owner has written");
        }
    }

    /// Stops the node in order, and opens the store again.
    pub fn stop(&mut self) {
        drop(self.log.close());
        self.open();
    }

    /// Reads all records in pages. `failures` reads fail; the scan retries until it succeeds.
    pub fn scan(&mut self, page: usize, failures: usize) -> Vec<(Name, Loaded)> {
        let mut found: Vec<(Name, Loaded)> = Vec::new();
        self.reader();
        self.fail(Failures {
            reads: failures,
            ..Failures::default()
        });
        loop {
            let after = found.last().map(|(name, _)| name.clone());
            let mut visit = |name, loaded| found.push((name, loaded));
            if let Ok(false) = self.reader().scan("", after.as_ref(), page, &mut visit) {
                return found;
            }
        }
    }

    pub fn met(&self) -> Tally {
        self.log.met()
    }

    /// Opens the store. Retries until it succeeds, because the planned failures run out.
    fn open(&mut self) {
        self.view.0 += 1;
        while self.log.open(self.view).is_err() {}
        self.reader = None;
        self.kept.clear();
        for ((name, transaction), count) in &self.changes {
            if self.log.origin(name) == *transaction {
                self.kept.insert(name.clone(), *count);
            }
        }
    }

    /// The reader, or a new one. Retries until the store returns one.
    fn reader(&mut self) -> &mut dyn StoreReader {
        let log = &mut self.log;
        let new = || std::iter::from_fn(|| Some(log.reader().ok())).find_map(|reader| reader);
        let reader = self.reader.take().or_else(new);
        &mut **self
            .reader
            .insert(reader.expect("it is asked for until there is one"))
    }

    fn commit(&mut self, numbered: Vec<NumberedWrite>) -> Result<Vec<Written>, StoreError> {
        let transaction = self.log.next_transaction();
        let (mut writes, mut changes) = (Vec::new(), Vec::new());
        for NumberedWrite {
            write,
            change_count,
        } in numbered
        {
            changes.push((write.name.to_string(), change_count));
            writes.push(write);
        }
        for (name, count) in &changes {
            self.changes.insert((name.clone(), transaction), *count);
        }
        let written = self.log.commit(self.view, MEMBER, &writes)?;
        for (name, count) in changes {
            let origin = self.log.origin(&name);
            self.changes.insert((name.clone(), origin), count);
            self.kept.insert(name, count);
        }
        for (write, written) in writes.into_iter().zip(&written) {
            if let (StoreChange::Put(record), Written::Done) = (&write.change, written)
                && is_shared(&write.name)
            {
                let shared = self.shared.entry(write.name.to_string()).or_default();
                shared.insert(number_of(record.data.as_str()));
            }
            let record = match write.change {
                StoreChange::Put(record) => Some(record),
                StoreChange::Delete => None,
            };
            let [newest, before] = self.before.entry(write.name.to_string()).or_default();
            *before = std::mem::replace(newest, record);
        }
        Ok(written)
    }

    fn load(
        &mut self,
        names: Vec<Name>,
        faults: &mut Faults,
    ) -> Vec<(Name, Result<Loaded, StoreError>)> {
        let loaded = match self.reader().load(&names) {
            Ok(loaded) => loaded,
            Err(error) => {
                // The next load opens a new reader, as after a broken connection.
                self.reader = None;
                let failed = names.into_iter();
                return failed.map(|name| (name, Err(error.clone()))).collect();
            }
        };
        let mut records = Vec::new();
        for (name, mut loaded) in names.into_iter().zip(loaded) {
            if faults.hits(Fault::StaleLoad)
                && let Some([_, before]) = self.before.get(name.as_str())
            {
                loaded = before.clone().map_or(Loaded::Missing, Loaded::Found);
            }
            records.push((name, Ok(loaded)));
        }
        records
    }
}
