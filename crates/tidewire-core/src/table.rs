//! Hash tables with a seed that is an argument, so that a run can be repeated and clients can't choose collisions.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::text::Name;

/// A map; never iterated where the order would decide anything.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A set; never iterated where the order would decide anything.
pub(crate) type Set<K> = hashbrown::HashSet<K, FixedState>;

/// An empty map of the given seed.
pub(crate) fn map<K, V>(seed: u64) -> Map<K, V> {
    Map::with_hasher(FixedState::with_seed(seed))
}

/// An empty set of the given seed.
pub(crate) fn set<K>(seed: u64) -> Set<K> {
    Set::with_hasher(FixedState::with_seed(seed))
}

/// A table with less room than this is not worth shrinking.
const SHRUNK_MIN: usize = 4096;

/// The room that a table of `len` entries is to keep of `capacity`, if it is to give some back. Three of four entries have
/// gone by then, so the copying is paid for by their removals.
pub(crate) fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SHRUNK_MIN && len < capacity / 4).then_some(len * 2)
}

/// Gives memory back that only a burst has needed. To be called where entries are removed.
pub(crate) fn shrink_map<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    if let Some(room) = shrunk(map.len(), map.capacity()) {
        map.shrink_to(room);
    }
}

/// The same for a set.
pub(crate) fn shrink_set<K: Eq + Hash>(set: &mut Set<K>) {
    if let Some(room) = shrunk(set.len(), set.capacity()) {
        set.shrink_to(room);
    }
}

/// The same for a queue.
pub(crate) fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if let Some(room) = shrunk(queue.len(), queue.capacity()) {
        queue.shrink_to(room);
    }
}

/// Parts of a table that may become very large. Each grows alone: to move half a million entries at once would hold up everything
/// else of the shard for tens of milliseconds.
pub(crate) const PARTS: usize = 64;

/// The part of a hash. The table in it uses the lowest and the highest bits.
#[inline]
pub(crate) fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

/// A part with less room than this is not worth shrinking.
const PART_SHRUNK_MIN: usize = 16;

/// As [`shrunk`], for one of these parts.
pub(crate) fn shrunk_part(len: usize, capacity: usize) -> Option<usize> {
    (capacity > PART_SHRUNK_MIN && len < capacity / 4).then_some(len * 2)
}

/// A map of names that grows in parts.
#[derive(Debug)]
pub(crate) struct NameMap<V> {
    parts: Box<[HashTable<(Name, V)>]>,
    hasher: FixedState,
    len: usize,
}

impl<V> NameMap<V> {
    /// An empty map of the given seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashTable::new()).collect(),
            hasher: FixedState::with_seed(seed),
            len: 0,
        }
    }

    /// The number of names.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value of a name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        let hash = self.hasher.hash_one(name);
        let found = self.parts[part(hash)].find(hash, |(known, _)| **known == *name);
        found.map(|(_, value)| value)
    }

    /// The value of a name.
    #[inline]
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        let hash = self.hasher.hash_one(name);
        let found = self.parts[part(hash)].find_mut(hash, |(known, _)| **known == *name);
        found.map(|(_, value)| value)
    }

    /// The name as the map has it, and its value; `make` makes the value of a name that is new.
    pub(crate) fn get_or_insert_with(
        &mut self,
        name: Name,
        make: impl FnOnce(&Name) -> V,
    ) -> (&Name, &mut V) {
        let hash = self.hasher.hash_one(&*name);
        let hasher = &self.hasher;
        let entry = self.parts[part(hash)].entry(
            hash,
            |(known, _)| *known == name,
            |(known, _)| hasher.hash_one(&**known),
        );
        let (name, value) = match entry {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(entry) => {
                self.len += 1;
                let value = make(&name);
                entry.insert((name, value)).into_mut()
            }
        };
        (name, value)
    }

    /// Takes a name out, and gives memory back that only a burst has needed.
    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        let hash = self.hasher.hash_one(name);
        let hasher = &self.hasher;
        let table = &mut self.parts[part(hash)];
        let entry = table.find_entry(hash, |(known, _)| **known == *name).ok()?;
        let ((_, value), _) = entry.remove();
        self.len -= 1;
        if let Some(room) = shrunk_part(table.len(), table.capacity()) {
            table.shrink_to(room, |(known, _)| hasher.hash_one(&**known));
        }
        Some(value)
    }
}

/// A small pseudo-random generator (xorshift64*), for choices that need not be secret.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Starts from `seed`; equal seeds give equal throws.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let thrown = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        // The high half scaled to the bound: no division, and the bias is below 2^-32 for any list that fits memory.
        ((thrown * bound as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_the_memory_of_a_burst_back() {
        let mut burst = set(7);
        burst.extend(0..100_000);
        let grown = burst.capacity();
        for number in 0..100_000 {
            burst.remove(&number);
            shrink_set(&mut burst);
        }
        assert!(
            grown >= 100_000 && burst.capacity() <= SHRUNK_MIN,
            "{}",
            burst.capacity()
        );
    }
}
