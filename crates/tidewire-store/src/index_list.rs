//! The indexes of a store: the common part of the connectors that keep some.
//!
//! The store knows which indexes it has, so every program that writes records keeps them, whatever its configuration. Commits change the
//! entries of an index from the moment in which it is declared. So a build has to add the entries of older records only, and may end and
//! continue at any place.

use tidewire_core::indexes::{CollectionIndex, Tape, belongs, parse_definition};
#[cfg(any(feature = "postgres", feature = "redis"))]
use tidewire_core::store::{StoreChange, StoreWrite};

/// Commits change its entries, and a build adds the entries of older records.
pub(crate) const BUILDING: i64 = 0;
/// It has an entry for each record.
pub(crate) const COMPLETE: i64 = 1;
/// Its entries are removed.
pub(crate) const REMOVED: i64 = 2;

/// Records or entries of a step of a build. A commit may wait for a step, which takes a few milliseconds.
pub(crate) const STEP_ROWS: usize = 500;
/// Bytes of records after which a step ends.
pub(crate) const STEP_BYTES: usize = 1 << 20;

/// An index of a store.
#[derive(Debug)]
pub(crate) struct KeptIndex {
    pub(crate) number: i64,
    pub(crate) definition: String,
    /// The prefix of the names of its records.
    pub(crate) prefix: String,
    index: CollectionIndex,
    pub(crate) state: i64,
    /// The last record that a build has handled; empty at its beginning.
    pub(crate) position: String,
}

impl KeptIndex {
    /// Whether the index has an entry for the record.
    pub(crate) fn has(&self, name: &str) -> bool {
        belongs(&self.prefix, name)
    }

    /// The key of a record. A text that can't be read has the key of records that each query reads.
    pub(crate) fn key(&self, tape: &mut Tape, name: &str, data: &str) -> Vec<u8> {
        let id = name.get(self.prefix.len()..).unwrap_or_default();
        // Indexes have no versions.
        self.index.key(tape.read(id, 0, data).as_ref())
    }

    /// The key of a record of which nothing is known: each query reads the record.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn unknown_key(&self) -> Vec<u8> {
        self.index.key(None)
    }
}

/// The indexes of a store.
#[derive(Debug, Default)]
pub(crate) struct IndexList {
    /// Those whose entries commits change.
    pub(crate) kept: Vec<KeptIndex>,
    /// Indexes whose entries are to be removed.
    pub(crate) removed: Vec<i64>,
}

impl IndexList {
    /// Adds an index as it is stored.
    pub(crate) fn add(&mut self, number: i64, definition: String, state: i64, position: String) {
        let parsed = match state {
            REMOVED => None,
            _ => parse_definition(&definition),
        };
        // An unknown definition is not kept, so its entries are removed before they become wrong.
        let Some((collection, index)) = parsed else {
            self.removed.push(number);
            return;
        };
        self.kept.push(KeptIndex {
            number,
            prefix: format!("{collection}/"),
            index,
            state,
            position,
            definition,
        });
    }

    /// Whether an index is to be built or removed.
    pub(crate) fn is_pending(&self) -> bool {
        !self.removed.is_empty() || self.building().is_some()
    }

    /// The index that is built next.
    pub(crate) fn building(&self) -> Option<&KeptIndex> {
        self.kept.iter().find(|kept| kept.state == BUILDING)
    }

    /// The numbers of the indexes that are not among these definitions, which are to be removed.
    pub(crate) fn undeclared<'a>(&'a self, definitions: &'a [&str]) -> impl Iterator<Item = i64> {
        let undeclared =
            (self.kept.iter()).filter(move |kept| !definitions.contains(&&*kept.definition));
        undeclared.map(|kept| {
            tracing::info!(
                index = shown(&kept.definition),
                "the index is no longer declared, so its entries are removed"
            );
            kept.number
        })
    }

    /// The definitions that are not among the indexes, which are to be built.
    pub(crate) fn missing<'a>(
        &'a self,
        definitions: &'a [&'a str],
    ) -> impl Iterator<Item = &'a str> {
        let is_known = |text: &str| self.kept.iter().any(|kept| kept.definition == text);
        let missing = definitions.iter().filter(move |text| !is_known(text));
        missing.map(|text| {
            tracing::info!(
                index = shown(text),
                "the index is new, so its entries are added in the background"
            );
            *text
        })
    }

    /// Logs the indexes that a step has completed.
    pub(crate) fn log_completed(&self, before: &Self) {
        for kept in self.kept.iter().filter(|kept| kept.state == COMPLETE) {
            let was_building =
                |other: &KeptIndex| other.number == kept.number && other.state == BUILDING;
            if before.kept.iter().any(was_building) {
                tracing::info!(index = shown(&kept.definition), "the index is complete");
            }
        }
    }

    /// The entries that a batch leaves, if all of its writes are done.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn entries(&self, tape: &mut Tape, writes: &[StoreWrite]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for kept in &self.kept {
            for (write_index, write) in writes.iter().enumerate() {
                if !kept.has(&write.name) {
                    continue;
                }
                let key = match &write.change {
                    StoreChange::Put(record) => {
                        Some(kept.key(tape, &write.name, record.data.as_str()))
                    }
                    StoreChange::Delete => None,
                };
                entries.push(Entry {
                    number: kept.number,
                    write_index,
                    key,
                });
            }
        }
        entries
    }
}

/// The entry of a record after a write.
#[cfg(any(feature = "postgres", feature = "redis"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The index.
    pub(crate) number: i64,
    /// The place of the write in its batch.
    pub(crate) write_index: usize,
    /// The key; `None` after a delete.
    pub(crate) key: Option<Vec<u8>>,
}

/// A definition for people.
fn shown(definition: &str) -> String {
    definition.replace('\n', " ")
}
