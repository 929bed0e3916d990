//! Eviction: which records may leave memory, and in which order. The next request for an evicted record loads it again.
//!
//! Records with subscribers, waiting requests or unstored changes stay, and so do existing records that are kept in memory only.
//!
//! Records that were used once have little room of their own, so that a client which goes through ever new records neither fills the
//! memory nor evicts the records that clients use repeatedly. The names of those that left it are remembered for a while: a record
//! that is requested again soon is kept like the others. Of the others, large ones do not evict small ones (`idle`).

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::query::collection::is_under;
use crate::record::idle::{Idle, IdleClasses, IdleQueue, bytes_of};
use crate::record::owner::RecordOwner;
use crate::record::state::{OwnedRecord, Reuse, Value};
use crate::settings::Settings;
use crate::text::Name;
use tidewire_collections::readers::READER_BYTES;

/// Bytes of records in memory that do not exist or that the requesting sessions may not read, at most. Clients may request ever new names.
/// A client that requests the same name again soon, for example to wait for a record, costs the store nothing.
const ASKED_BYTES_MAX: usize = 256 << 10;

/// Bytes of idle records that were used once, at most, and at most one part of the cache in this many.
const ONCE_BYTES_MAX: usize = 4 << 20;
const ONCE_PARTS: usize = 4;

/// Bytes of idle records that were used again and stay although others fill the cache, at most, and at most one part of the cache in this
/// many. Records in use count as well, so a session with many records would otherwise make each request of other clients a load.
const KEPT_BYTES: usize = 256 << 10;
const KEPT_PARTS: usize = 4;

/// The number of names that are remembered after their records were evicted. A power of two.
const EVICTED_NAMES: usize = 1 << 16;

/// The records that no session uses, oldest first, and the bytes of all records.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) bytes: usize,
    stamp: u64,
    /// Records that were used again. Entries with an outdated stamp are skipped.
    idle: IdleClasses,
    /// The same for records that were used once, and for records that were only requested.
    once: IdleQueue,
    asked: IdleQueue,
    /// The records that were evicted after they were used once.
    pub(super) evicted: EvictedNames,
}

impl Cache {
    /// Creates it empty.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            bytes: 0,
            stamp: 0,
            idle: IdleClasses::default(),
            once: IdleQueue::default(),
            asked: IdleQueue::default(),
            evicted: EvictedNames::new(seed),
        }
    }
}

/// Names of evicted records, as parts of their hashes. A newer name replaces an older one with the same place. A collision only keeps a
/// record longer in memory.
#[derive(Debug)]
pub(super) struct EvictedNames {
    hasher: FixedState,
    /// Empty until the first record is evicted. 0 is a free place.
    marks: Box<[u32]>,
}

impl EvictedNames {
    fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            marks: Box::default(),
        }
    }

    fn place(&self, name: &Name) -> (usize, u32) {
        let hash = self.hasher.hash_one(name);
        (hash as usize % EVICTED_NAMES, (hash >> 32) as u32 | 1)
    }

    fn insert(&mut self, name: &Name) {
        if self.marks.is_empty() {
            self.marks = vec![0; EVICTED_NAMES].into();
        }
        let (index, mark) = self.place(name);
        self.marks[index] = mark;
    }

    /// Whether the record was evicted, and few others since.
    pub(super) fn contains(&self, name: &Name) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let (index, mark) = self.place(name);
        self.marks[index] == mark
    }
}

impl RecordOwner {
    /// Evicts at least `bytes` of idle records, or as many as there are. `usize::MAX` includes the last ones that were used again. Returns
    /// the number of bytes evicted.
    pub(crate) fn shrink(&mut self, settings: &Settings, bytes: usize) -> usize {
        let before = self.cache.bytes;
        let kept_bytes = match bytes {
            usize::MAX => 0,
            _ => kept_bytes(settings),
        };
        self.evict(settings, before.saturating_sub(bytes), kept_bytes);
        before - self.cache.bytes
    }

    /// Must run after each change of a record's use: notes that the record is idle, if it is, and evicts the idle records that were unused
    /// for longest while the cache exceeds its limit. Few records that were only requested are kept: clients must not make the server
    /// remember ever new names that do not exist or that they may not read.
    pub(super) fn settle<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        self.settle_with(turn, name, |_| {});
    }

    /// The same with a last change to the record.
    pub(super) fn settle_with<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        change: impl FnOnce(&mut OwnedRecord),
    ) {
        let settings = &turn.shard.settings;
        if let Some(record) = self.table.get_mut(name) {
            change(record);
            if record.is_unneeded() {
                return self.remove(name);
            }
            // An idle record gets a new stamp and a new queue entry; older entries of it keep their stamp and are skipped. So using a
            // record costs no search in the queue, and the queue stays in the order of the last use. A record that becomes used again
            // keeps its entry, which `remove_idle` checks again before it removes anything. The entries that are outdated are
            // removed below when they outnumber the records, so the queue stays proportional to the table.
            if is_idle(settings, name, record) {
                let cache = &mut self.cache;
                cache.stamp += 1;
                record.stamp = cache.stamp;
                let idle = Idle::new(name, record);
                if record.is_only_asked_for() {
                    cache.asked.push(idle);
                } else if record.reuse == Reuse::Again {
                    cache.idle.push(idle);
                } else {
                    record.reuse = Reuse::Once;
                    cache.once.push(idle);
                }
            }
        }
        while self.cache.asked.bytes() > ASKED_BYTES_MAX && self.evict_asked(settings) {}
        let bytes_max = settings.limits.cache_bytes_max;
        let once_bytes_max = ONCE_BYTES_MAX.min(bytes_max / ONCE_PARTS);
        while self.cache.once.bytes() > once_bytes_max && self.evict_once(settings) {}
        self.evict(settings, bytes_max, kept_bytes(settings));
        if self.cache.idle.count() > 2 * self.table.len() + 1_000 {
            let table = &self.table;
            self.cache
                .idle
                .compact(|name, stamp| table.get(name).is_some_and(|record| record.stamp == stamp));
        }
    }

    /// Evicts idle records until at most `bytes_max` are left: first those that were only requested, then those that were used once, then
    /// those that were unused for long or are large ([`IdleClasses`]). Of those, the last `kept_bytes` stay.
    fn evict(&mut self, settings: &Settings, bytes_max: usize, kept_bytes: usize) {
        while self.cache.bytes > bytes_max {
            if self.evict_asked(settings) || self.evict_once(settings) {
                continue;
            }
            if self.cache.idle.bytes() <= kept_bytes {
                break;
            }
            let Some((name, stamp)) = self.cache.idle.pop(self.cache.stamp) else {
                break;
            };
            self.remove_idle(settings, &name, stamp);
        }
    }

    /// Evicts the oldest record that was only requested. Returns false if no such record is left.
    fn evict_asked(&mut self, settings: &Settings) -> bool {
        let Some((name, stamp)) = self.cache.asked.pop() else {
            return false;
        };
        self.remove_idle(settings, &name, stamp);
        true
    }

    /// Evicts the oldest record that was used once. Returns false if no such record is left.
    fn evict_once(&mut self, settings: &Settings) -> bool {
        let Some((name, stamp)) = self.cache.once.pop() else {
            return false;
        };
        if self.remove_idle(settings, &name, stamp) {
            self.cache.evicted.insert(&name);
        }
        true
    }

    /// Removes a record if it has been idle since it got the stamp. Returns whether it was.
    fn remove_idle(&mut self, settings: &Settings, name: &Name, stamp: u64) -> bool {
        let record = self.table.get(name);
        let is_removed =
            record.is_some_and(|record| record.stamp == stamp && is_idle(settings, name, record));
        if is_removed {
            self.remove(name);
        }
        is_removed
    }

    /// Removes the record from the table, with its readers.
    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(record) = self.table.remove(name) {
            if record.has_readers
                && let Some(readers) = self.readers.remove(name)
            {
                self.cache.bytes -= readers.count() * READER_BYTES;
            }
            self.cache.bytes -= bytes_of(name, &record);
            if !self.unsaved.memory_only.is_empty() {
                self.unsaved.memory_only.remove(name);
            }
        }
    }
}

/// Bytes of idle records that were used again and stay.
fn kept_bytes(settings: &Settings) -> usize {
    KEPT_BYTES.min(settings.limits.cache_bytes_max / KEPT_PARTS)
}

/// Whether nothing would be lost if the record was removed.
fn is_idle(settings: &Settings, name: &Name, record: &OwnedRecord) -> bool {
    let pinned =
        matches!(record.value, Value::Present(_)) && is_under(&settings.memory_only_prefixes, name);
    record.interest.shards.is_empty() && record.waiting.is_none() && !pinned && !record.is_dirty
}
