//! A bounded memory of names that were written recently: SQLite's rows, and the states of records in Redis.

use std::hash::{BuildHasher, RandomState};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tidewire_core::text::Name;

/// Names that are remembered, about 8 MB. When the map is full, one more name clears it.
const NAMES_MAX: usize = 1 << 16;

/// Values by name. The hash seed is random, so that clients can't choose names that collide.
#[derive(Debug)]
pub(super) struct Recent<V>(HashMap<Name, V, FixedState>);

impl<V> Default for Recent<V> {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(());
        Self(HashMap::with_hasher(FixedState::with_seed(seed)))
    }
}

impl<V: Copy> Recent<V> {
    /// The last noted value of the name.
    pub(super) fn of(&self, name: &Name) -> Option<V> {
        self.0.get(name).copied()
    }

    /// Notes the value of the name.
    pub(super) fn note(&mut self, name: &Name, value: V) {
        if let Some(noted) = self.0.get_mut(name) {
            *noted = value;
            return;
        }
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(name.clone(), value);
    }

    /// Forgets the name.
    #[cfg(any(test, feature = "redis"))]
    pub(super) fn forget(&mut self, name: &Name) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_counts_and_names_are_bounded() {
        let mut recent = Recent::default();
        let name = |number: usize| Name::from(format!("{number}").as_str());
        recent.note(&name(0), 7);
        recent.note(&name(0), 8);
        assert_eq!((recent.of(&name(0)), recent.of(&name(1))), (Some(8), None));
        for number in 1..NAMES_MAX {
            recent.note(&name(number), 1);
        }
        recent.note(&name(0), 9);
        assert_eq!((recent.of(&name(0)), recent.0.len()), (Some(9), NAMES_MAX));
        recent.note(&name(NAMES_MAX), 1);
        assert_eq!((recent.of(&name(0)), recent.0.len()), (None, 1));
        recent.forget(&name(NAMES_MAX));
        assert_eq!(recent.of(&name(NAMES_MAX)), None);
    }
}
