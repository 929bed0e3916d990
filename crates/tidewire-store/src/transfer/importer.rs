//! Puts records into the stores that their names lead to, batch by batch.
//!
//! An imported record is a new creation: it gets an incarnation of its own, because the one that it had may be given again
//! in the store to which it comes. Its version stays.

use std::collections::HashSet;

use tidewire_core::route::StoreRoutes;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Opened, Store, StoreChange, StoreError, StoreReader, StoreWrite,
    StoredRecord, Written,
};
use tidewire_core::text::Name;

use super::import::{ExportedRecord, ImportError, Imported};

/// Records of one commit.
const BATCH_COUNT_MAX: usize = 500;
/// Bytes of their names and values; the last record of a batch may go beyond.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// The part of the incarnations of an opening that no shard uses, as there are fewer of them.
const INCARNATION_RANGE: u64 = 0xff << 32;

/// An import under way.
pub struct Importer<'a> {
    /// One for each store, by number.
    intakes: Vec<Intake<'a>>,
    routes: StoreRoutes,
}

impl<'a> Importer<'a> {
    /// Into `stores`, by number, as `routes` lead. What is there already stays as it is, unless `replaces` and version or
    /// value differ.
    ///
    /// # Errors
    /// A store can't be read.
    pub fn new(
        stores: impl IntoIterator<Item = (&'a mut dyn Store, Opened)>,
        routes: StoreRoutes,
        replaces: bool,
    ) -> Result<Self, ImportError> {
        let intakes = stores.into_iter();
        let intakes = intakes.map(|(store, opened)| Intake::new(store, opened, replaces));
        let intakes = intakes.collect::<Result<_, StoreError>>();
        let intakes = intakes.map_err(|error| ImportError::Store {
            done: Imported::default(),
            error,
        })?;
        Ok(Self { intakes, routes })
    }

    pub(super) fn add(&mut self, record: ExportedRecord) -> Result<(), ImportError> {
        let target = self.routes.find(&record.name);
        let added = self.intakes[target.index()].add(record);
        added.map_err(|error| self.failed(error))
    }

    /// Commits what was added last, and says what was done.
    pub(super) fn finish(mut self) -> Result<Imported, ImportError> {
        let committed = self.intakes.iter_mut().try_for_each(Intake::commit);
        committed.map_err(|error| self.failed(error))?;
        Ok(self.done())
    }

    fn failed(&self, error: StoreError) -> ImportError {
        ImportError::Store {
            done: self.done(),
            error,
        }
    }

    fn done(&self) -> Imported {
        let mut all = Imported::default();
        for intake in &self.intakes {
            all += intake.done.clone();
        }
        all
    }
}

/// Commits changes of records that nobody else may change meanwhile.
pub(super) fn commit_alone(
    store: &mut dyn Store,
    opened: Opened,
    writes: &[StoreWrite],
) -> Result<(), StoreError> {
    let written = store.commit(opened.term(), writes)?;
    if written.contains(&Written::Refused) {
        let message = "somebody else writes to the store meanwhile";
        return Err(StoreError::unavailable(message));
    }
    store.tidy()
}

/// What one store gets.
pub(super) struct Intake<'a> {
    store: &'a mut dyn Store,
    reader: Box<dyn StoreReader>,
    opened: Opened,
    replaces: bool,
    next_incarnation: u64,
    batch: Vec<ExportedRecord>,
    /// Those of the batch, in which each may stand once.
    names: HashSet<Name>,
    batch_bytes: usize,
    done: Imported,
}

impl<'a> Intake<'a> {
    pub(super) fn new(
        store: &'a mut dyn Store,
        opened: Opened,
        replaces: bool,
    ) -> Result<Self, StoreError> {
        let reader = store.reader()?;
        Ok(Self {
            store,
            reader,
            opened,
            replaces,
            next_incarnation: (opened.opening << 40) | INCARNATION_RANGE,
            batch: Vec::new(),
            names: HashSet::new(),
            batch_bytes: 0,
            done: Imported::default(),
        })
    }

    pub(super) fn add(&mut self, record: ExportedRecord) -> Result<(), StoreError> {
        let is_full = self.batch.len() == BATCH_COUNT_MAX || self.batch_bytes >= BATCH_BYTES_MAX;
        if is_full || self.names.contains(&record.name) {
            self.commit()?;
        }
        self.names.insert(record.name.clone());
        self.batch_bytes += record.name.len() + record.data.len();
        self.batch.push(record);
        Ok(())
    }

    /// Commits what was added last.
    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        self.names.clear();
        self.batch_bytes = 0;
        let names: Vec<Name> = batch.iter().map(|record| record.name.clone()).collect();
        let found = self.reader.load(&names)?;
        let mut done = self.done.clone();
        let mut writes = Vec::with_capacity(batch.len());
        for (record, found) in std::iter::zip(batch, found) {
            let expected = match found {
                Loaded::Missing => {
                    done.added_count += 1;
                    Expected::Missing
                }
                Loaded::Found(found)
                    if (found.version, &found.data) == (record.version, &record.data) =>
                {
                    done.unchanged_count += 1;
                    continue;
                }
                Loaded::Found(_) | Loaded::Corrupt if !self.replaces => {
                    done.kept_count += 1;
                    continue;
                }
                Loaded::Found(found) => {
                    done.replaced_count += 1;
                    Expected::of(&found)
                }
                Loaded::Corrupt => {
                    done.replaced_count += 1;
                    Expected::Anything
                }
            };
            let change = StoreChange::Put(StoredRecord {
                incarnation: Incarnation(self.next_incarnation),
                version: record.version,
                data: record.data,
            });
            self.next_incarnation += 1;
            writes.push(StoreWrite {
                writer: None,
                name: record.name,
                expected,
                change,
            });
        }
        if !writes.is_empty() {
            commit_alone(self.store, self.opened, &writes)?;
        }
        self.done = done;
        Ok(())
    }
}
