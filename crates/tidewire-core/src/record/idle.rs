//! Queues of idle records.

use std::collections::VecDeque;

use crate::footprint::RECORD_BYTES;
use crate::record::state::OwnedRecord;
use crate::table;
use crate::text::Name;

/// The size classes of records end below these bytes; the last class has no end.
const CLASS_ENDS: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// An entry of an idle record. A record that is used again gets a new stamp and a new entry, so an entry may be outdated.
#[derive(Debug)]
pub(super) struct Idle {
    name: Name,
    stamp: u64,
    bytes: usize,
}

impl Idle {
    /// The entry of a record that has become idle.
    pub(super) fn new(name: &Name, record: &OwnedRecord) -> Self {
        Self {
            name: name.clone(),
            stamp: record.stamp,
            bytes: bytes_of(name, record),
        }
    }
}

/// Idle records, oldest first, with the sum of their bytes. An outdated entry counts until it is taken.
#[derive(Debug, Default)]
pub(super) struct IdleQueue {
    entries: VecDeque<Idle>,
    bytes: usize,
}

impl IdleQueue {
    /// The bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record that has become idle.
    pub(super) fn push(&mut self, idle: Idle) {
        self.bytes += idle.bytes;
        self.entries.push_back(idle);
    }

    /// Takes the oldest entry, with its stamp.
    pub(super) fn pop(&mut self) -> Option<(Name, u64)> {
        let Idle { name, stamp, bytes } = self.entries.pop_front()?;
        self.bytes -= bytes;
        table::shrink_queue(&mut self.entries);
        Some((name, stamp))
    }

    /// The bytes of the oldest record, times its age in stamps. A record that has just become idle has the age 1: otherwise a large one would
    /// leave last.
    fn space_time(&self, now: u64) -> Option<u128> {
        let oldest = self.entries.front()?;
        Some(oldest.bytes as u128 * u128::from(now.saturating_sub(oldest.stamp) + 1))
    }

    /// Drops the outdated entries.
    fn compact(&mut self, is_current: impl Fn(&Name, u64) -> bool) {
        self.entries
            .retain(|idle| is_current(&idle.name, idle.stamp));
        self.bytes = self.entries.iter().map(|idle| idle.bytes).sum();
        table::shrink_queue(&mut self.entries);
    }
}

/// Idle records by their size. Of the oldest record of each class, the one with the most bytes times age leaves first: a megabyte makes
/// room for a thousand small records, unless these are a thousand times as old. So a client that goes through large records does not
/// evict the small records of others, and large records that are no longer used do not stay.
#[derive(Debug, Default)]
pub(super) struct IdleClasses([IdleQueue; CLASS_ENDS.len() + 1]);

impl IdleClasses {
    /// The bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(IdleQueue::bytes).sum()
    }

    /// The number of entries, outdated ones included.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|class| class.entries.len()).sum()
    }

    /// Adds a record that has become idle.
    pub(super) fn push(&mut self, idle: Idle) {
        let class = CLASS_ENDS.partition_point(|end| idle.bytes >= *end);
        self.0[class].push(idle);
    }

    /// Takes the entry that is to leave next, with its stamp. `now` is the newest stamp.
    pub(super) fn pop(&mut self, now: u64) -> Option<(Name, u64)> {
        let class = self
            .0
            .iter_mut()
            .max_by_key(|class| class.space_time(now))?;
        class.pop()
    }

    /// Drops the outdated entries.
    pub(super) fn compact(&mut self, is_current: impl Fn(&Name, u64) -> bool) {
        for class in &mut self.0 {
            class.compact(&is_current);
        }
    }
}

/// The bytes of a record in memory.
pub(super) fn bytes_of(name: &Name, record: &OwnedRecord) -> usize {
    name.len() + RECORD_BYTES + record.value.bytes()
}
