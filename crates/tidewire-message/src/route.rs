//! The store of each record: the one with the longest prefix with which the record's name starts.

/// A store of a node, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub u8);

impl StoreId {
    /// The store of all records without another prefix, and of the server's own records: users, histories of events.
    pub const DEFAULT: Self = Self(0);

    /// Its index in the list of all stores.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The prefixes of names that are not in the default store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRoutes {
    /// Sorted by length, the longest first.
    prefixes: Vec<(Box<str>, StoreId)>,
}

impl StoreRoutes {
    /// The routes of these prefixes. If two are equal, the first applies.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = (&'a str, StoreId)>) -> Self {
        let boxed = |(prefix, store): (&str, StoreId)| (prefix.into(), store);
        let mut prefixes: Vec<(Box<str>, StoreId)> = prefixes.into_iter().map(boxed).collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { prefixes }
    }

    /// The store of a record.
    #[must_use]
    pub fn find(&self, name: &str) -> StoreId {
        self.prefix_of(name)
            .map_or(StoreId::DEFAULT, |(_, store)| store)
    }

    /// The longest matching prefix of a record's name, and its store.
    #[must_use]
    pub fn prefix_of(&self, name: &str) -> Option<(&str, StoreId)> {
        self.prefixes().find(|(prefix, _)| name.starts_with(prefix))
    }

    /// All prefixes, the longest first.
    pub fn prefixes(&self) -> impl Iterator<Item = (&str, StoreId)> {
        let prefixes = self.prefixes.iter();
        prefixes.map(|(prefix, store)| (&**prefix, *store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let routes = StoreRoutes::new([
            ("a/", StoreId(1)),
            ("a/b/", StoreId(2)),
            ("a/b/c/", StoreId::DEFAULT),
            ("é", StoreId(1)),
        ]);
        for (name, store) in [
            ("", 0),
            ("a", 0),
            ("a/", 1),
            ("a/b", 1),
            ("a/b/", 2),
            ("a/b/x", 2),
            ("a/b/c/x", 0),
            ("b/a/", 0),
            ("é", 1),
            ("\u{1}a/", 0),
        ] {
            assert_eq!(routes.find(name), StoreId(store), "{name:?}");
        }
        assert_eq!(StoreRoutes::default().find("a/"), StoreId::DEFAULT);
    }
}
