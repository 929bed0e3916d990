//! Row ids of recently written records. With one, the next write of that record needs no lookup in the index of names.
//!
//! An entry may be outdated: a name can be deleted, and its row can be reused for another name. So a statement that uses a row id
//! also requires the name, and if the two do not match, the store looks the name up.

use std::hash::{BuildHasher, RandomState};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tidewire_core::text::Name;

/// Names that are remembered, about 8 MB. When the map is full, one more name clears it.
const NAMES_MAX: usize = 1 << 16;

/// Row ids of the table `records` by name. The hash seed is random, so that clients can't choose names that collide.
#[derive(Debug)]
pub(super) struct RowIds(HashMap<Name, i64, FixedState>);

impl Default for RowIds {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(());
        Self(HashMap::with_hasher(FixedState::with_seed(seed)))
    }
}

impl RowIds {
    /// The last known row of the record.
    pub(super) fn of(&self, name: &Name) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// Notes that the record is in this row now.
    pub(super) fn note(&mut self, name: &Name, row: i64) {
        if self.0.len() >= NAMES_MAX && !self.0.contains_key(name) {
            self.0.clear();
        }
        self.0.insert(name.clone(), row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_row_id_counts_and_names_are_bounded() {
        let mut rows = RowIds::default();
        let name = |number: usize| Name::from(format!("{number}").as_str());
        rows.note(&name(0), 7);
        rows.note(&name(0), 8);
        assert_eq!((rows.of(&name(0)), rows.of(&name(1))), (Some(8), None));
        for number in 1..NAMES_MAX {
            rows.note(&name(number), 1);
        }
        rows.note(&name(0), 9);
        assert_eq!((rows.of(&name(0)), rows.0.len()), (Some(9), NAMES_MAX));
        rows.note(&name(NAMES_MAX), 1);
        assert_eq!((rows.of(&name(0)), rows.0.len()), (None, 1));
    }
}
