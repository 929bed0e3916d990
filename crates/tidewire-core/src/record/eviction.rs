//! Eviction: which records may leave memory, and in which order. The next request for an evicted record loads it again.
//!
//! Records with subscribers, waiting requests or unstored changes stay, and so do existing records that are kept in memory only.

use std::collections::VecDeque;

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::record::owner::RecordOwner;
use crate::record::readers::READER_BYTES;
use crate::record::request::is_under;
use crate::record::state::{OwnedRecord, Value};
use crate::settings::Settings;
use crate::table;
use crate::text::{Name, Payload};

/// Approximate bytes of a record in addition to its name and data: its entries in the tables and its share of their spare room.
pub(super) const RECORD_OVERHEAD_BYTES: usize = 256;

/// Bytes of records in memory that do not exist or that the requesting sessions may not read, at most. Clients may request ever new names.
/// A client that requests the same name again soon, for example to wait for a record, costs the store nothing.
const ASKED_BYTES_MAX: usize = 256 << 10;

/// The records that no session uses, oldest first, and the bytes of all records.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) bytes: usize,
    stamp: u64,
    /// Entries with an outdated stamp are skipped.
    idle: VecDeque<(Name, u64)>,
    /// The same for records that were only requested, each with its bytes.
    asked: VecDeque<(Name, u64, usize)>,
    /// Bytes of the records in `asked`.
    asked_bytes: usize,
}

impl RecordOwner {
    /// Evicts at least `bytes` of idle records, or all idle records if they have fewer. Returns the number of bytes evicted.
    pub(crate) fn shrink(&mut self, settings: &Settings, bytes: usize) -> usize {
        let before = self.cache.bytes;
        self.evict(settings, before.saturating_sub(bytes));
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
                if record.is_only_asked_for() {
                    let data = record.value.data().map_or(0, Payload::len);
                    let bytes = name.len() + RECORD_OVERHEAD_BYTES + data;
                    cache.asked.push_back((name.clone(), record.stamp, bytes));
                    cache.asked_bytes += bytes;
                } else {
                    cache.idle.push_back((name.clone(), record.stamp));
                }
            }
        }
        while self.cache.asked_bytes > ASKED_BYTES_MAX && self.evict_asked(settings) {}
        self.evict(settings, settings.limits.cache_bytes_max);
        if self.cache.idle.len() > 2 * self.table.len() + 1_000 {
            let table = &self.table;
            self.cache.idle.retain(|(name, stamp)| {
                table.get(name).is_some_and(|record| record.stamp == *stamp)
            });
            table::shrink_queue(&mut self.cache.idle);
        }
    }

    /// Evicts idle records until at most `bytes_max` are left or no record is idle: first those that were only requested, then those that
    /// were unused for longest.
    fn evict(&mut self, settings: &Settings, bytes_max: usize) {
        while self.cache.bytes > bytes_max {
            if self.evict_asked(settings) {
                continue;
            }
            let Some((name, stamp)) = self.cache.idle.pop_front() else {
                break;
            };
            self.remove_idle(settings, &name, stamp);
        }
    }

    /// Evicts the oldest record that was only requested. Returns false if no such record is left.
    fn evict_asked(&mut self, settings: &Settings) -> bool {
        let Some((name, stamp, bytes)) = self.cache.asked.pop_front() else {
            return false;
        };
        self.cache.asked_bytes -= bytes;
        self.remove_idle(settings, &name, stamp);
        true
    }

    /// Removes a record that has been idle since it got the stamp.
    fn remove_idle(&mut self, settings: &Settings, name: &Name, stamp: u64) {
        let record = self.table.get(name);
        if record.is_some_and(|record| record.stamp == stamp && is_idle(settings, name, record)) {
            self.remove(name);
        }
    }

    /// Removes the record from the table, with its readers.
    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(record) = self.table.remove(name) {
            if record.has_readers
                && let Some(readers) = self.readers.remove(name)
            {
                self.cache.bytes -= readers.count() * READER_BYTES;
            }
            let data = record.value.data().map_or(0, Payload::len);
            self.cache.bytes -= name.len() + RECORD_OVERHEAD_BYTES + data;
        }
    }
}

/// Whether nothing would be lost if the record was removed.
fn is_idle(settings: &Settings, name: &Name, record: &OwnedRecord) -> bool {
    let pinned =
        matches!(record.value, Value::Present(_)) && is_under(&settings.memory_only_prefixes, name);
    record.interest.shards.is_empty() && record.waiting.is_none() && !pinned && !record.is_dirty
}
