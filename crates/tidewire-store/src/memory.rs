//! The memory store: the reference implementation of a store, and the test double for all code above the trait.
//!
//! A [`MemoryDisk`] takes the role of the data folder, so that tests can try reopening, unclean stops and a full disk
//! without one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Loaded, MemberId, Opened, Store, StoreChange, StoreError, StoreReader, StoreTrouble,
    StoreWrite, StoredRecord, View, Written,
};
use tidewire_core::text::Name;

use super::epoch_after;
use super::range::ScanRange;

/// The contents that outlive a [`MemoryStore`]; clones share the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    records: BTreeMap<Name, StoredRecord>,
    /// Bytes of the names and values in `records`.
    bytes: u64,
    epoch: Epoch,
    opening: u64,
    /// Whether the last store was closed.
    clean: bool,
}

impl MemoryDisk {
    /// Opens the disk. `bytes_max` limits names and values together; further writes fail as on a full disk.
    #[must_use]
    pub fn open(&self, bytes_max: Option<u64>) -> (MemoryStore, Opened) {
        let mut contents = self.lock();
        if !contents.clean {
            contents.epoch = epoch_after(contents.epoch);
        }
        contents.clean = false;
        contents.opening += 1;
        let opened = Opened {
            epoch: contents.epoch,
            opening: contents.opening,
        };
        let store = MemoryStore {
            disk: self.clone(),
            bytes_max,
            closed: false,
        };
        (store, opened)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Every change below is complete before the next call that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store that keeps its records in memory.
pub struct MemoryStore {
    disk: MemoryDisk,
    bytes_max: Option<u64>,
    closed: bool,
}

impl Store for MemoryStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(self.disk.clone()))
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let mut contents = self.disk.lock();
        let current = View(contents.opening);
        if view != current || member.birth != contents.opening {
            return Err(StoreError::stale_view(view, current, false));
        }
        let written: Vec<_> = writes.iter().map(|write| contents.check(write)).collect();
        let done = || std::iter::zip(writes, &written).filter(|(_, how)| **how == Written::Done);
        let grown = contents.bytes_after(done().map(|(write, _)| write));
        if self.bytes_max.is_some_and(|max| grown > max) && grown > contents.bytes {
            return Err(StoreError {
                message: format!("the store would hold {grown} bytes, which exceeds its limit"),
                trouble: StoreTrouble::Full,
            });
        }
        for (write, _) in done() {
            contents.apply(write);
        }
        Ok(written)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.closed = true;
        self.disk.lock().clean = true;
        Ok(())
    }
}

impl StoreReader for MemoryDisk {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let contents = self.lock();
        let find = |name| match contents.records.get::<Name>(name) {
            Some(record) => Loaded::Found(record.clone()),
            None => Loaded::Missing,
        };
        Ok(names.iter().map(find).collect())
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let ScanRange { start, end, .. } = ScanRange::new(prefix, after, count_max);
        let start = start.map(Name::from);
        let contents = self.lock();
        let mut found = contents
            .records
            .range((start, Bound::Unbounded))
            .take_while(|(name, _)| end.as_ref().is_none_or(|end| name.as_str() < end.as_str()));
        for (name, record) in found.by_ref().take(count_max) {
            visit(name.clone(), Loaded::Found(record.clone()));
        }
        Ok(found.next().is_some())
    }
}

impl Contents {
    /// Decides whether a write is done or refused.
    fn check(&self, write: &StoreWrite) -> Written {
        let stored = self.records.get(&write.name);
        if write.change.is_done(stored) || write.expected.is_met(stored) {
            Written::Done
        } else {
            Written::Refused
        }
    }

    /// The bytes in the store after `writes`, which contain each name at most once.
    fn bytes_after<'a>(&self, writes: impl Iterator<Item = &'a StoreWrite>) -> u64 {
        writes.fold(self.bytes, |bytes, write| {
            let before = self
                .records
                .get(&write.name)
                .map_or(0, |record| bytes_of(&write.name, record));
            let after = match &write.change {
                StoreChange::Put(record) => bytes_of(&write.name, record),
                StoreChange::Delete => 0,
            };
            (bytes + after).saturating_sub(before)
        })
    }

    fn apply(&mut self, write: &StoreWrite) {
        let before = match &write.change {
            StoreChange::Put(record) => {
                self.bytes += bytes_of(&write.name, record);
                self.records.insert(write.name.clone(), record.clone())
            }
            StoreChange::Delete => self.records.remove(&write.name),
        };
        if let Some(before) = before {
            self.bytes -= bytes_of(&write.name, &before);
        }
    }
}

fn bytes_of(name: &Name, record: &StoredRecord) -> u64 {
    (name.len() + record.data.len()) as u64
}
