//! The store of a simulated node with what is under way to and from it: it is slow, and stands on a disk that fails.

mod log;

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::effect::StoreCompletion;
use tidewire_core::route::StoreId;
use tidewire_core::store::{
    Expected, Loaded, Store, StoreChange, StoreError, StoreReader, StoreWrite, StoredRecord, Term,
    Written,
};
use tidewire_core::text::Name;
use tidewire_core::time::Instant;

use crate::disk::Failures;
use crate::fault::{Fault, Faults};
use crate::random::Random;
use crate::shared::{is_shared, number_of};
use crate::tally::Tally;
use log::LogStore;

/// Writes and syncs of a commit before the last of which the power goes.
const POWER_OPERATIONS: usize = 3;

/// A write with the number of its change, as the model counts.
#[derive(Clone, Debug)]
pub struct NumberedWrite {
    pub write: StoreWrite,
    pub change_count: usize,
}

/// What a shard has asked for.
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
    /// The process is killed; the machine goes on.
    Kill,
    /// The power goes, maybe in the middle of a commit.
    PowerCut,
}

/// See the head of this file.
pub struct SimStore {
    log: LogStore,
    term: Term,
    reader: Option<Box<dyn StoreReader>>,
    /// By name and transaction: which change of the record it holds, as the model counts them. Where a change had nothing left
    /// to do, that of an earlier transaction.
    changes: BTreeMap<(String, u64), usize>,
    kept: BTreeMap<String, usize>,
    /// Writes of clients that it has taken, of records that another process writes as well.
    shared: BTreeMap<String, BTreeSet<u64>>,
    /// What was there before the last commit of each record, for the fault that loads it.
    before: BTreeMap<String, [Option<StoredRecord>; 2]>,
    pub asked: Vec<(usize, Asked)>,
    /// It does nothing before.
    pub slow_until: Instant,
    /// Answers on their way to a shard, with the names of a commit.
    pub answers: Vec<(usize, StoreCompletion, Vec<String>)>,
    /// What a shard must send again, because its last batch has failed.
    pub failed: BTreeMap<usize, Vec<NumberedWrite>>,
}

impl SimStore {
    pub fn new(seed: u64, faults: &Faults) -> Self {
        let mut store = Self {
            log: LogStore::new(seed),
            term: Term(0),
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

    /// How many changes of the record the store has.
    pub fn change_count(&self, name: &str) -> usize {
        self.kept.get(name).copied().unwrap_or(0)
    }

    /// Has a record from the beginning.
    pub fn begin_with(&mut self, name: &str, record: StoredRecord) {
        let write = StoreWrite {
            writer: None,
            name: Name::from(name),
            expected: Expected::Missing,
            change: StoreChange::Put(record),
        };
        let done = self.log.commit(self.term, &[write]);
        done.expect("nothing has failed yet");
    }

    /// Another process writes a record, whatever is there. Where the disk fails nothing may come of it.
    pub fn written_by_another(&mut self, name: &str, record: StoredRecord) {
        let write = StoreWrite {
            writer: None,
            name: Name::from(name),
            expected: Expected::Anything,
            change: StoreChange::Put(record),
        };
        drop(self.log.commit(self.term, &[write]));
    }

    /// Writes of clients that it has taken, of a record that another process writes as well.
    pub fn shared(&self, name: &str) -> BTreeSet<u64> {
        self.shared.get(name).cloned().unwrap_or_default()
    }

    pub fn ask(&mut self, shard: usize, asked: Asked) {
        self.asked.push((shard, asked));
    }

    /// Does one of the things that it was asked for.
    pub fn work(&mut self, place: usize, faults: &mut Faults) {
        let (shard, asked) = self.asked.remove(place);
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

    /// Does what nobody waits for. A failure leaves it to be done later.
    pub fn tidy(&mut self) {
        drop(self.log.tidy());
    }

    /// The next operations of the disk fail.
    pub fn fail(&mut self, more: Failures) {
        self.log.disk(|disk| {
            let failures = &mut disk.failures;
            failures.writes += more.writes;
            failures.syncs += more.syncs;
            failures.reads += more.reads;
            failures.growths += more.growths;
        });
    }

    /// A bit of a stored value turns over. False if there is none that can be told from a torn write.
    pub fn flip(&mut self, which: usize) -> bool {
        self.log.flip_one(which)
    }

    /// Nothing fails any more, and what has turned over was put right.
    pub fn mend(&mut self) {
        self.log.disk(|disk| {
            disk.failures = Failures::default();
            disk.mend();
        });
    }

    /// The node ends, with nobody left to tell, and the store is opened again.
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
                // Done or not, nobody is told.
                drop(self.commit(writes));
            }
        }
        self.answers.clear();
        self.failed.clear();
        self.log.disk(|disk| match end {
            End::PowerCut => disk.power_returns(),
            End::Kill => disk.process_returns(),
        });
        let term = self.term;
        self.open();
        // What was still on its way from the node that has ended may not count any more.
        for writes in late {
            let writes: Vec<_> = writes.into_iter().map(|numbered| numbered.write).collect();
            let outcome = self.log.commit(term, &writes);
            assert!(outcome.is_err(), "a former owner has written");
        }
    }

    /// The node ends in order, and the store is opened again.
    pub fn stop(&mut self) {
        drop(self.log.close());
        self.open();
    }

    /// All records, in pages, as often as it takes while `failures` reads fail.
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

    /// As often as it takes: what fails goes over.
    fn open(&mut self) {
        self.term.0 += 1;
        while self.log.open(self.term).is_err() {}
        self.reader = None;
        self.kept.clear();
        for ((name, transaction), count) in &self.changes {
            if self.log.origin(name) == *transaction {
                self.kept.insert(name.clone(), *count);
            }
        }
    }

    /// The reader, or a new one, asked for as often as it takes, too.
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
        let written = self.log.commit(self.term, &writes)?;
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
                // Another one is asked for next time, as after a connection that broke.
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
