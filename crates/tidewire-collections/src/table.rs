//! Hash tables with an explicit seed, so that a run can be repeated and clients can't choose collisions.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use tidewire_message::text::Name;

/// A map. It is never iterated where the order would decide anything.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A set. It is never iterated where the order would decide anything.
pub type Set<K> = hashbrown::HashSet<K, FixedState>;

/// Creates an empty map with this seed.
pub fn map<K, V>(seed: u64) -> Map<K, V> {
    Map::with_hasher(FixedState::with_seed(seed))
}

/// Creates an empty set with this seed.
pub fn set<K>(seed: u64) -> Set<K> {
    Set::with_hasher(FixedState::with_seed(seed))
}

/// A table with less capacity than this is not worth shrinking.
const SHRUNK_MIN: usize = 4096;

/// The capacity to which a table with `len` entries and `capacity` shrinks, if it does. Three of four entries have been removed by then,
/// so the cost of copying is spread over the removals.
pub fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SHRUNK_MIN && len < capacity / 4).then_some(len * 2)
}

/// Frees memory that only a burst needed. Must be called where entries are removed.
pub fn shrink_map<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    if let Some(room) = shrunk(map.len(), map.capacity()) {
        map.shrink_to(room);
    }
}

/// The same for a queue.
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if let Some(room) = shrunk(queue.len(), queue.capacity()) {
        queue.shrink_to(room);
    }
}

/// Parts of a table that may become very large. Each part grows separately: moving half a million entries at once would stop the shard
/// for tens of milliseconds.
pub const PARTS: usize = 64;

/// The part of a hash. The table in it uses the lowest and the highest bits.
#[inline]
pub fn part(hash: u64) -> usize {
    part_of(hash, PARTS)
}

#[inline]
fn part_of(hash: u64, count: usize) -> usize {
    (hash >> 32) as usize % count
}

/// A part with less capacity than this is not worth shrinking.
const PART_SHRUNK_MIN: usize = 16;

/// The same as [`shrunk`], for one of these parts.
pub fn shrunk_part(len: usize, capacity: usize) -> Option<usize> {
    (capacity > PART_SHRUNK_MIN && len < capacity / 4).then_some(len * 2)
}

/// A map of names. Each entry contains the hash of its name, so that the map can grow and shrink without reading the names, which may be
/// long and outside the cache. It is never iterated where the order would decide anything.
#[derive(Debug)]
pub struct NameTable<V, const COUNT: usize = 1> {
    parts: Parts<V, COUNT>,
    hasher: FixedState,
    len: usize,
}

/// A map of names that may become very large and therefore grows in parts.
pub type NameMap<V> = NameTable<V, PARTS>;

type Parts<V, const COUNT: usize> = [HashTable<Hashed<V>>; COUNT];

#[derive(Debug)]
struct Hashed<V> {
    hash: u64,
    name: Name,
    value: V,
}

impl<V> Hashed<V> {
    /// Whether this is the entry of a name. The hash is stored next to the tag that was found, the text of the name elsewhere.
    #[inline]
    fn is(&self, hash: u64, name: &str) -> bool {
        self.hash == hash && *self.name == *name
    }
}

impl<V, const COUNT: usize> NameTable<V, COUNT> {
    /// Creates an empty map with this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            parts: std::array::from_fn(|_| HashTable::new()),
            hasher: FixedState::with_seed(seed),
            len: 0,
        }
    }

    /// The number of names.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the map has a name.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The value of a name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&V> {
        let hash = self.hasher.hash_one(name);
        let found = self.parts[part_of(hash, COUNT)].find(hash, |entry| entry.is(hash, name));
        found.map(|entry| &entry.value)
    }

    /// The value of a name.
    #[inline]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        let hash = self.hasher.hash_one(name);
        let found = self.parts[part_of(hash, COUNT)].find_mut(hash, |entry| entry.is(hash, name));
        found.map(|entry| &mut entry.value)
    }

    /// The stored name and its value. `make` creates the value of a new name.
    pub fn get_or_insert_with(
        &mut self,
        name: Name,
        make: impl FnOnce(&Name) -> V,
    ) -> (&Name, &mut V) {
        let hash = self.hasher.hash_one(&*name);
        let entry = match entry(&mut self.parts, hash, &name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(entry) => {
                self.len += 1;
                let value = make(&name);
                entry.insert(Hashed { hash, name, value }).into_mut()
            }
        };
        (&entry.name, &mut entry.value)
    }

    /// Sets the value of a name. Returns false if the name already had a value.
    pub fn insert(&mut self, name: Name, value: V) -> bool {
        let hash = self.hasher.hash_one(&*name);
        match entry(&mut self.parts, hash, &name) {
            Entry::Occupied(mut known) => {
                known.get_mut().value = value;
                false
            }
            Entry::Vacant(entry) => {
                self.len += 1;
                entry.insert(Hashed { hash, name, value });
                true
            }
        }
    }

    /// Removes a name. Returns the name and its value.
    pub fn take(&mut self, name: &str) -> Option<(Name, V)> {
        let hash = self.hasher.hash_one(name);
        let table = &mut self.parts[part_of(hash, COUNT)];
        let entry = table.find_entry(hash, |entry| entry.is(hash, name)).ok()?;
        let (entry, _) = entry.remove();
        self.len -= 1;
        // Free memory that only a burst needed.
        let (len, capacity) = (table.len(), table.capacity());
        let room = if COUNT == 1 {
            shrunk(len, capacity)
        } else {
            shrunk_part(len, capacity)
        };
        if let Some(room) = room {
            table.shrink_to(room, |entry| entry.hash);
        }
        Some((entry.name, entry.value))
    }

    /// Removes a name. Returns its value.
    pub fn remove(&mut self, name: &str) -> Option<V> {
        self.take(name).map(|(_, value)| value)
    }

    /// The names and their values, in no order that may decide anything.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut V)> {
        let entries = self.parts.iter_mut().flatten();
        entries.map(|entry| (&entry.name, &mut entry.value))
    }

    /// The names and their values, in no order that may decide anything.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &V)> {
        let entries = self.parts.iter().flatten();
        entries.map(|entry| (&entry.name, &entry.value))
    }

    /// The names, in no order that may decide anything.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.parts.iter().flatten().map(|entry| &entry.name)
    }

    /// The names and their values, in no order that may decide anything.
    pub fn into_entries(self) -> impl Iterator<Item = (Name, V)> {
        let entries = self.parts.into_iter().flatten();
        entries.map(|entry| (entry.name, entry.value))
    }
}

/// The entry of a name, or a vacant one.
fn entry<'a, V, const COUNT: usize>(
    parts: &'a mut Parts<V, COUNT>,
    hash: u64,
    name: &str,
) -> Entry<'a, Hashed<V>> {
    let table = &mut parts[part_of(hash, COUNT)];
    table.entry(hash, |entry| entry.is(hash, name), |entry| entry.hash)
}

/// A small pseudo-random generator (xorshift64*), for choices that need not be secret.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`. Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
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
    fn a_table_releases_memory_after_a_burst() {
        let mut burst = map(7);
        burst.extend((0..100_000).map(|number| (number, ())));
        let grown = burst.capacity();
        for number in 0..100_000 {
            burst.remove(&number);
            shrink_map(&mut burst);
        }
        assert!(
            grown >= 100_000 && burst.capacity() <= SHRUNK_MIN,
            "{}",
            burst.capacity()
        );
    }

    fn check_names<const COUNT: usize>() {
        let name = |number: u32| Name::from(format!("sensor/{number}").as_str());
        let mut table: NameTable<u32, COUNT> = NameTable::new(7);
        for number in 0..20_000 {
            assert!(table.insert(name(number), number), "{number} is new");
        }
        assert!(!table.insert(name(3), 4), "a known name gets a new value");
        assert_eq!(table.get("sensor/3"), Some(&4));
        assert_eq!(table.get_or_insert_with(name(3), |_| 0), (&name(3), &mut 4));
        assert_eq!(table.len(), 20_000);
        let grown: usize = table.parts.iter().map(HashTable::capacity).sum();
        for number in 0..19_990 {
            let value = if number == 3 { 4 } else { number };
            assert_eq!(table.take(&name(number)), Some((name(number), value)));
            assert!(!table.contains(&name(number)));
        }
        assert_eq!(table.remove("sensor/3"), None);
        let left: usize = table.parts.iter().map(HashTable::capacity).sum();
        assert!(left <= SHRUNK_MIN && left < grown, "{left} of {grown}");
        let mut names: Vec<(Name, u32)> = table.into_entries().collect();
        names.sort();
        let expected: Vec<(Name, u32)> = (19_990..20_000).map(|n| (name(n), n)).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_table_of_names_finds_them_after_it_has_grown_and_shrunk() {
        check_names::<1>();
        check_names::<PARTS>();
    }
}
