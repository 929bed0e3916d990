//! The indexes of collections that the configuration declares.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::{CollectionIndex, Tape};

/// The declared indexes by the prefix of the names of their records.
#[derive(Clone, Debug, Default)]
pub struct CollectionIndexes(BTreeMap<String, IndexesOf>);

/// The indexes of one collection.
#[derive(Clone, Debug, Default)]
pub struct IndexesOf {
    /// The text by which a store knows each index.
    pub definitions: Vec<Arc<str>>,
    /// The indexes, in the same order.
    pub indexes: Vec<CollectionIndex>,
}

impl CollectionIndexes {
    /// Declares an index of a collection.
    pub fn add(&mut self, collection: &str, index: CollectionIndex) {
        let of = self.0.entry(format!("{collection}/")).or_default();
        of.definitions.push(definition(collection, &index).into());
        of.indexes.push(index);
    }

    /// The indexes of the collection whose names have this prefix.
    #[must_use]
    pub fn find(&self, prefix: &str) -> Option<&IndexesOf> {
        self.0.get(prefix)
    }

    /// All collections with indexes, by the prefixes of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &IndexesOf)> {
        self.0.iter().map(|(prefix, of)| (prefix.as_str(), of))
    }
}

/// The text by which a store knows an index: the collection and the paths, each in a line.
fn definition(collection: &str, index: &CollectionIndex) -> String {
    let mut text = collection.to_owned();
    for path in index.paths() {
        text.push('\n');
        text.push_str(&path);
    }
    text
}

/// The collection and the index of a definition. `None` if this version does not know such indexes.
#[must_use]
pub fn parse_definition(text: &str) -> Option<(&str, CollectionIndex)> {
    let mut lines = text.split('\n');
    let collection = lines.next().filter(|collection| !collection.is_empty())?;
    let index = CollectionIndex::parse(lines).ok()?;
    Some((collection, index))
}

/// Whether the record belongs to the collection whose names have this prefix, and not to one below it.
#[must_use]
pub fn belongs(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_gives_its_index_again() {
        let index = CollectionIndex::parse(["board", "author.name"]).expect("an index");
        let mut indexes = CollectionIndexes::default();
        indexes.add("cards", index.clone());
        let of = indexes.find("cards/").expect("declared");
        assert_eq!(&*of.definitions[0], "cards\nboard\nauthor.name");
        assert_eq!(parse_definition(&of.definitions[0]), Some(("cards", index)));
        assert_eq!(parse_definition("cards"), None);
        assert_eq!(parse_definition("\nboard"), None);
    }

    #[test]
    fn records_below_a_collection_do_not_belong_to_it() {
        assert!(belongs("cards/", "cards/7"));
        for other in ["cards/", "cards/7/note", "cards2/7", "card/7"] {
            assert!(!belongs("cards/", other), "{other}");
        }
    }
}
