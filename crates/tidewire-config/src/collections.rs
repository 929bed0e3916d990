//! Collections: sections whose names the file chooses. The collection `X` contains the names that begin with `X/`.

use std::collections::BTreeMap;

use tidewire_core::indexes::{CollectionIndex, CollectionIndexes};
use tidewire_core::slot::TagRules;

use super::option::{Field, OptionRow, Visitor, join, section, visit_members};
use super::value::{List, Scalar, choice, quote};

/// The section that contains the collections.
pub const SECTION: &str = "collections";
/// Maximum number of collections. Each name that the server routes is compared with about the logarithm of their number.
const COUNT_MAX: usize = 256;
/// Maximum bytes of a collection's name.
const NAME_BYTES_MAX: usize = 64;

choice! {
    /// The part of a name that selects its slot.
    SlotBy {
        /// The whole name.
        Name = "name",
        /// The first two segments: all names `X/ID/…` have one slot.
        Prefix = "prefix",
    }
}

section! {
    /// A collection.
    Collection {
        /// The part of a name that selects its slot.
        slot_by: SlotBy = SlotBy::Name;
        /// The indexes that the store keeps for queries of the records `X/ID`.
        indexes: List<IndexPaths> = List(Vec::new());
    }
}

/// Maximum number of indexes of a collection. Each write of a record changes each of them.
const INDEXES_MAX: usize = 16;
/// Joins the paths of an index in a text.
const PATH_SEPARATOR: char = '+';

/// The paths of an index: a path, or in the file a list of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPaths(CollectionIndex);

impl Scalar for IndexPaths {
    fn parse(text: &str) -> Result<Self, String> {
        CollectionIndex::parse(text.split(PATH_SEPARATOR)).map(Self)
    }

    fn format(&self) -> String {
        let paths: Vec<String> = self.0.paths().map(|path| quote(&path)).collect();
        match &paths[..] {
            [path] => path.clone(),
            paths => format!("[{}]", paths.join(", ")),
        }
    }

    fn kind() -> String {
        "a path or a list of paths".into()
    }
}

/// Whether the entries of an option's list may be lists.
pub(super) fn has_nested_lists(option: &str) -> bool {
    let mut parts = option.split('.');
    parts.next() == Some(SECTION) && parts.nth(1) == Some("indexes")
}

/// The text of an entry that is a list in the file.
pub(super) fn nested_text(entries: &[&str]) -> String {
    entries.join(&PATH_SEPARATOR.to_string())
}

/// The option with the indexes of a collection.
#[must_use]
pub fn indexes_option(collection: &str) -> String {
    join(&join(SECTION, collection), "indexes")
}

/// The collections, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collections(BTreeMap<String, Collection>);

impl Collections {
    /// Adds a collection with default options.
    ///
    /// # Errors
    /// Problem with its name, or with the number of collections.
    pub(super) fn add(&mut self, name: &str) -> Result<(), String> {
        let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_word || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "{name:?} is not a valid name of a collection; write the part of the names before the first slash, at most {NAME_BYTES_MAX} letters, digits, _ and -, a letter first"
            ));
        }
        if let Some(other) = self.0.keys().find(|other| other.eq_ignore_ascii_case(name)) {
            return Err(format!(
                "{name:?} and {other:?} differ in case only, so their options would have the same variables; remove one of the two"
            ));
        }
        if self.0.len() == COUNT_MAX {
            return Err(format!(
                "more than {COUNT_MAX} collections; remove those with default options, because they have no effect"
            ));
        }
        self.0.insert(name.to_owned(), Collection::default());
        Ok(())
    }

    /// The collections with indexes, and problems of their lists.
    pub(super) fn with_indexes(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let with = self.0.iter().filter(|(_, it)| !it.indexes.is_empty());
        with.map(|(name, collection)| {
            let indexes = &collection.indexes;
            let repeated = indexes
                .iter()
                .enumerate()
                .find(|(at, index)| indexes[..*at].contains(index));
            let problem = match repeated {
                Some((_, index)) => Some(format!(
                    "the index {} occurs twice; remove one of the two",
                    index.format()
                )),
                None => (indexes.len() > INDEXES_MAX).then(|| {
                    format!(
                        "{} indexes are more than {INDEXES_MAX}; each write of a record changes all of them, so remove some",
                        indexes.len()
                    )
                }),
            };
            (name.as_str(), problem)
        })
    }

    /// The indexes in the engine's form.
    #[must_use]
    pub fn indexes(&self) -> CollectionIndexes {
        let mut declared = CollectionIndexes::default();
        for (name, collection) in &self.0 {
            for index in collection.indexes.iter() {
                declared.add(name, index.0.clone());
            }
        }
        declared
    }

    /// The rules for tags in the engine's form.
    #[must_use]
    pub fn tags(&self) -> TagRules {
        let by_prefix = self
            .0
            .iter()
            .filter(|(_, collection)| collection.slot_by == SlotBy::Prefix);
        TagRules::new(by_prefix.map(|(name, _)| name.as_str()))
    }
}

impl Field for Collections {
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor) {
        visit_members(&row, visitor, &mut self.0);
    }
}
