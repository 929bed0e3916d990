//! The walk over the records that a shard owns and whose store does not have their newest value: the dirty ones, and those that are kept
//! in memory only.

use std::vec::IntoIter;

use tidewire_query::{Query, QueryLimits, Tape};

use super::collection::id_of;
use crate::address::Address;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, QueryEntry, UnsavedRow, UnsavedValue};
use crate::store::StoredRecord;
use crate::text::{Name, Payload};

/// Records that a walk visits in a turn. About a quarter of a millisecond.
pub(crate) const WALK_RECORDS: usize = 128;

/// A walk for one query.
#[derive(Debug)]
pub(crate) struct UnsavedWalk {
    run: u64,
    reader: Address,
    prefix: Name,
    /// `None` if this version can't read it, so every record is sent as not selected.
    query: Option<Query>,
    /// The records that were dirty when the walk began. One that has been stored since is in the pages of the store.
    dirty: IntoIter<Name>,
    /// The last visited record of those that are kept in memory only.
    memory_only: Option<Name>,
}

impl UnsavedWalk {
    /// Begins a walk over these dirty records, which are sorted.
    pub(crate) fn new(
        run: u64,
        reader: Address,
        prefix: Name,
        query: &Payload,
        dirty: Vec<Name>,
    ) -> Self {
        Self {
            run,
            reader,
            prefix,
            query: Query::parse(query.as_str(), &QueryLimits::default()).ok(),
            dirty: dirty.into_iter(),
            memory_only: None,
        }
    }

    /// The collection.
    pub(crate) fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The next dirty record.
    pub(crate) fn next_dirty(&mut self) -> Option<Name> {
        self.dirty.next()
    }

    /// The last visited record of those that are kept in memory only.
    pub(crate) fn memory_only(&self) -> Option<&Name> {
        self.memory_only.as_ref()
    }

    /// Notes that the walk has visited this record.
    pub(crate) fn visited(&mut self, name: Name) {
        self.memory_only = Some(name);
    }

    /// The report of a record to the query; `None` if the record belongs to another collection.
    pub(crate) fn row(
        &self,
        tape: &mut Tape,
        name: &Name,
        value: Option<&StoredRecord>,
    ) -> Option<UnsavedRow> {
        let id = id_of(&self.prefix, name)?;
        let selected = value.filter(|record| {
            let document = tape.read(id, u64::from(record.version.0), record.data.as_str());
            let query = self.query.as_ref();
            document
                .zip(query)
                .is_some_and(|(document, query)| query.selector.matches(&document))
        });
        Some(UnsavedRow {
            name: name.clone(),
            value: selected.map(|record| UnsavedValue {
                version: record.version,
                data: record.data.clone(),
            }),
        })
    }

    /// Sends a part of the answer.
    pub(crate) fn send<E: Effects>(
        &self,
        turn: &mut TurnContext<'_, E>,
        rows: Vec<UnsavedRow>,
        is_last: bool,
    ) {
        let collected = QueryEntry::Collected {
            run: self.run,
            shard: turn.shard.address,
            rows,
            is_last,
        };
        turn.post(self.reader, Entry::Query(collected));
    }
}
