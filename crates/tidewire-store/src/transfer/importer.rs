//! Writes records into the stores to which their names route, batch by batch.
//!
//! An imported record counts as a new creation. It gets a new incarnation, because the target store may assign the old one to another
//! creation. Its version stays.

use std::collections::HashSet;

use tidewire_core::route::StoreRoutes;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Opened, Store, StoreChange, StoreError, StoreReader, StoreWrite,
    StoredRecord, Written,
};
use tidewire_core::text::Name;

use super::import::{ExportedRecord, ImportError, Imported};

/// Maximum number of records in one commit.
const BATCH_COUNT_MAX: usize = 500;
/// A commit gets no further record once its names and values have this many bytes.
const BATCH_BYTES_MAX: usize = 2 << 20;

/// A running import.
pub struct Importer<'a> {
    /// One for each store, by number.
    intakes: Vec<Intake<'a>>,
    routes: StoreRoutes,
}

impl<'a> Importer<'a> {
    /// Imports into `stores`, which are in the order of their numbers, by `routes`. If `replaces` is false, stored records stay. If it is
    /// true, stored records with another version or value are replaced.
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

    /// Imports a record. It is stored with the batch to which it belongs.
    ///
    /// # Errors
    /// The store has failed.
    pub fn add(&mut self, record: ExportedRecord) -> Result<(), ImportError> {
        let target = self.routes.find(&record.name);
        let added = self.intakes[target.index()].add(record);
        added.map_err(|error| self.failed(error))
    }

    /// Commits the last batches, and returns the result of the import.
    ///
    /// # Errors
    /// The store has failed.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
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

/// Commits changes of records that no other server may change at the same time.
pub(super) fn commit_alone(
    store: &mut dyn Store,
    opened: Opened,
    writes: &[StoreWrite],
) -> Result<(), StoreError> {
    let written = store.commit(opened.view(), opened.member(), writes)?;
    if written.contains(&Written::Refused) {
        let message = "another server is writing to the store; stop it";
        return Err(StoreError::unavailable(message));
    }
    store.tidy()
}

/// The import into one store.
pub(super) struct Intake<'a> {
    store: &'a mut dyn Store,
    reader: Box<dyn StoreReader>,
    opened: Opened,
    replaces: bool,
    next_incarnation: u64,
    batch: Vec<ExportedRecord>,
    /// The names in the batch. A batch must have each name only once.
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
            // The import has opened the store for itself, so no shard assigns these.
            next_incarnation: opened.first_incarnation(0),
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

    /// Commits the records that were added since the last commit.
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
                write_keys: None,
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
