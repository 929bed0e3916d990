//! The records that a query can't find in the stores.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use tidewire_query::Tape;

use crate::address::Address;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::query::unsaved::{UnsavedWalk, WALK_RECORDS};
use crate::record::owner::RecordOwner;
use crate::record::state::Value;
use crate::text::{Name, Payload};

/// The walks of queries, and the records that are kept in memory only.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    walks: VecDeque<UnsavedWalk>,
    tape: Tape,
    /// The records that are kept in memory only and exist.
    pub(super) memory_only: BTreeSet<Name>,
}

impl Unsaved {
    /// Whether the next turn must come at once.
    pub(super) fn has_work(&self) -> bool {
        !self.walks.is_empty()
    }
}

impl RecordOwner {
    /// Sends a query the records of a collection whose store does not have their newest value.
    pub(crate) fn collect<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        run: u64,
        reader: Address,
        prefix: Name,
        query: &Payload,
    ) {
        // The list is complete in this turn: a record that becomes dirty later changes after the query began, and one that is stored later
        // is in the store before the query reads it.
        let mut dirty: Vec<Name> = Vec::new();
        for commits in self.dirty() {
            turn.shard.count_work(commits.count() * size_of::<Name>());
            let names = commits.names();
            dirty.extend(names.filter(|name| name.starts_with(&*prefix)).cloned());
        }
        dirty.sort_unstable();
        let walk = UnsavedWalk::new(run, reader, prefix, query, dirty);
        self.unsaved.walks.push_back(walk);
        // Walks that began earlier continue first.
        if self.unsaved.walks.len() == 1 {
            self.continue_walks(turn);
        }
    }

    /// Continues the walk that has waited longest.
    pub(super) fn continue_walks<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let Self { unsaved, table, .. } = self;
        let Some(mut walk) = unsaved.walks.pop_front() else {
            return;
        };
        let mut rows = Vec::new();
        let mut left = WALK_RECORDS;
        while left > 0
            && let Some(name) = walk.next_dirty()
        {
            left -= 1;
            let value = match table.get(&name).map(|record| &record.value) {
                Some(Value::Present(record)) => Some(record),
                Some(Value::Missing) => None,
                // The store has its newest value: that of this shard, or of another owner.
                Some(Value::Unknown) | None => continue,
            };
            turn.shard
                .count_work(value.map_or(0, |record| record.data.len()));
            rows.extend(walk.row(&mut unsaved.tape, &name, value));
        }
        let after = walk
            .memory_only()
            .map_or(Bound::Included(walk.prefix()), Bound::Excluded);
        let names = unsaved
            .memory_only
            .range::<Name, _>((after, Bound::Unbounded));
        let prefix = walk.prefix().clone();
        let names = names.take_while(|name| name.starts_with(&*prefix));
        let names: Vec<Name> = names.take(left).cloned().collect();
        let is_last = names.len() < left;
        for name in names {
            if let Some(Value::Present(record)) = table.get(&name).map(|record| &record.value) {
                turn.shard.count_work(record.data.len());
                rows.extend(walk.row(&mut unsaved.tape, &name, Some(record)));
            }
            walk.visited(name);
        }
        walk.send(turn, rows, is_last);
        if !is_last {
            unsaved.walks.push_back(walk);
        }
    }

    /// Notes whether a record that is kept in memory only exists.
    pub(super) fn note_memory_only(&mut self, name: &Name, exists: bool) {
        match exists {
            true => self.unsaved.memory_only.insert(name.clone()),
            false => self.unsaved.memory_only.remove(name),
        };
    }
}
