//! An ordered map that usually has one entry: without an allocation for one, a list for a few, a tree for more.
//!
//! A tree allocates a node of eleven places for its first entry, which is most of the memory of a name with one subscriber.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// With more entries the map is a tree, because insertions and removals in a list move the entries behind.
const LIST_MAX: usize = 16;

/// An ordered map.
#[derive(Debug)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Debug)]
enum Entries<K, V> {
    List(SmallVec<[(K, V); 1]>),
    Tree(BTreeMap<K, V>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Entries::List(SmallVec::new()))
    }
}

impl<K: Ord + Copy, V> SmallMap<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::List(list) => list.len(),
            Entries::Tree(tree) => tree.len(),
        }
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        match &mut self.0 {
            Entries::List(list) => {
                let at = list.binary_search_by_key(&key, |(known, _)| *known).ok()?;
                Some(&mut list[at].1)
            }
            Entries::Tree(tree) => tree.get_mut(&key),
        }
    }

    /// Sets the value of a key. Returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let list = match &mut self.0 {
            Entries::Tree(tree) => return tree.insert(key, value),
            Entries::List(list) => list,
        };
        match list.binary_search_by_key(&key, |(known, _)| *known) {
            Ok(at) => return Some(std::mem::replace(&mut list[at].1, value)),
            Err(at) => list.insert(at, (key, value)),
        }
        if list.len() > LIST_MAX {
            self.0 = Entries::Tree(std::mem::take(list).into_iter().collect());
        }
        None
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        match &mut self.0 {
            Entries::List(list) => {
                let at = list.binary_search_by_key(&key, |(known, _)| *known).ok()?;
                Some(list.remove(at).1)
            }
            Entries::Tree(tree) => tree.remove(&key),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        let (list, tree) = match &self.0 {
            Entries::List(list) => (Some(list), None),
            Entries::Tree(tree) => (None, Some(tree)),
        };
        let list = list.into_iter().flatten().map(|(key, _)| *key);
        list.chain(tree.into_iter().flat_map(|tree| tree.keys().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_equals_a_tree_of_any_size() {
        let (mut map, mut tree) = (SmallMap::default(), BTreeMap::new());
        let mut state = 7_u32;
        for step in 0..4000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = state >> 27;
            if (state >> 20) % 64 < step / 63 {
                assert_eq!(map.remove(key), tree.remove(&key));
            } else {
                assert_eq!(map.insert(key, step), tree.insert(key, step));
            }
            assert_eq!(map.get_mut(key), tree.get_mut(&key));
            assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
            assert!(map.keys().eq(tree.keys().copied()));
        }
    }
}
