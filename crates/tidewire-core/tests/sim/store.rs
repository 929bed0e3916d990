//! A store that fails: it refuses, answers late, or has done what it says it could not.

use std::collections::BTreeMap;

use tidewire_core::effect::StoreCompletion;
use tidewire_core::store::{Loaded, StoreChange, StoreError, StoreWrite, StoredRecord};
use tidewire_core::text::Name;

use crate::fault::{Fault, Faults};
use crate::random::Random;

/// A write with the number of its change, as the model counts.
#[derive(Debug)]
pub struct NumberedWrite {
    pub write: StoreWrite,
    pub change_count: usize,
}

/// What a shard has asked for.
#[derive(Debug)]
pub enum Asked {
    Load(Vec<Name>),
    Commit {
        batch: u64,
        writes: Vec<NumberedWrite>,
    },
}

#[derive(Debug, Default)]
struct Kept {
    record: Option<StoredRecord>,
    before: Option<StoredRecord>,
    change_count: usize,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct SimStore {
    kept: BTreeMap<String, Kept>,
    pub asked: Vec<(usize, Asked)>,
    /// Answers on their way to a shard, with the names of a commit.
    pub answers: Vec<(usize, StoreCompletion, Vec<String>)>,
    pub commits_fail_percent: usize,
    pub loads_fail_percent: usize,
}

impl SimStore {
    /// How many changes of the record are durable.
    pub fn change_count(&self, name: &str) -> usize {
        self.kept.get(name).map_or(0, |kept| kept.change_count)
    }

    /// Has a record from the beginning.
    pub fn begin_with(&mut self, name: &str, record: StoredRecord) {
        let kept = Kept {
            record: Some(record),
            ..Kept::default()
        };
        self.kept.insert(name.into(), kept);
    }

    pub fn ask(&mut self, shard: usize, asked: Asked) {
        self.asked.push((shard, asked));
    }

    /// Does one of the things that it was asked for.
    pub fn work(&mut self, place: usize, random: &mut Random, faults: &mut Faults) {
        let (shard, asked) = self.asked.remove(place);
        match asked {
            Asked::Load(names) => {
                let records = names
                    .into_iter()
                    .map(|name| {
                        let result = self.load(&name, random, faults);
                        (name, result)
                    })
                    .collect();
                self.answers
                    .push((shard, StoreCompletion::Loaded { records }, Vec::new()));
            }
            Asked::Commit { batch, writes } => {
                let names = writes
                    .iter()
                    .map(|numbered| numbered.write.name.to_string())
                    .collect();
                let failed = random.chance(self.commits_fail_percent);
                // A failed commit may have been applied all the same; it is repeated, which is harmless.
                let applied = !failed || random.chance(30);
                if applied && !faults.hits(Fault::CommitForgotten) {
                    self.apply(writes);
                }
                let result = if failed { Err(error()) } else { Ok(()) };
                self.answers
                    .push((shard, StoreCompletion::Committed { batch, result }, names));
            }
        }
    }

    /// The node ends: what was under way is done or not.
    pub fn crash(&mut self, random: &mut Random) {
        for (_, asked) in std::mem::take(&mut self.asked) {
            if let Asked::Commit { writes, .. } = asked
                && random.chance(50)
            {
                self.apply(writes);
            }
        }
        self.answers.clear();
    }

    fn apply(&mut self, writes: Vec<NumberedWrite>) {
        for NumberedWrite {
            write,
            change_count,
        } in writes
        {
            let kept = self.kept.entry(write.name.to_string()).or_default();
            let record = match write.change {
                StoreChange::Put(record) => Some(record),
                StoreChange::Delete => None,
            };
            kept.before = std::mem::replace(&mut kept.record, record);
            kept.change_count = change_count;
        }
    }

    fn load(
        &self,
        name: &Name,
        random: &mut Random,
        faults: &mut Faults,
    ) -> Result<Loaded, StoreError> {
        if random.chance(self.loads_fail_percent) {
            return if random.chance(50) {
                Err(error())
            } else {
                Ok(Loaded::Corrupt)
            };
        }
        let record = self.kept.get(name.as_str()).and_then(|kept| {
            if faults.hits(Fault::StaleLoad) {
                kept.before.clone()
            } else {
                kept.record.clone()
            }
        });
        Ok(record.map_or(Loaded::Missing, Loaded::Found))
    }
}

fn error() -> StoreError {
    StoreError {
        message: "the simulated disk failed".into(),
        full: false,
    }
}
