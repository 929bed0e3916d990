//! Acknowledged writes that a store has lost, and that the owner writes again from memory.
//!
//! A standby that was promoted, or a backup that was restored while nodes run, may lack the last commits. The view then names another
//! generation of the store. Each owner compares the records in its memory with the store, and writes again what differs: all their writes
//! passed the owner, so memory has the newest state. Records that have left memory can't be compared.
//!
//! A dirty record is not compared. Its commit expects the last state that the store had, so the store refuses it if that state is lost, and
//! the refusal leads to the same comparison.

use tidewire_collections::share::Share;

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::query::collection::is_under;
use crate::record::owner::RecordOwner;
use crate::record::state::{OwnedRecord, Reload, Superseded, Value};
use crate::route::StoreId;
use crate::table::NameMap;
use crate::text::Name;
use crate::view::Generation;

/// Records that are loaded at the same time.
const LOADED_MAX: usize = 200;
/// Records that one turn visits.
const VISITED_MAX: usize = 2_000;

/// The comparison of the records in memory with their store.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// The store's generation; `None` before the first view.
    generation: Option<Generation>,
    /// Records that are still to be compared.
    names: Vec<Name>,
    /// Records that were requested from the store.
    requested: Vec<Name>,
    /// The number of records that were written again.
    written_again: u64,
}

impl Comparison {
    /// Whether the next turn must come at once.
    pub(super) fn has_work(&self, table: &NameMap<OwnedRecord>) -> bool {
        !self.names.is_empty() && !self.is_loading(table)
    }

    fn is_loading(&self, table: &NameMap<OwnedRecord>) -> bool {
        self.requested.iter().any(|name| {
            let record = table.get(name);
            record.is_some_and(|record| !record.value.is_known())
        })
    }
}

impl Superseded {
    /// Whether the store has lost the state that memory had.
    pub(super) fn is_lost(&self, stored: &Value) -> bool {
        match (&self.before, stored) {
            (_, Value::Unknown) | (Value::Unknown, _) | (Value::Missing, Value::Missing) => false,
            _ if self.reason == Reload::Deposed => false,
            // No owner writes an earlier version of the same incarnation.
            (Value::Present(before), Value::Present(stored))
                if before.incarnation == stored.incarnation =>
            {
                before.version > stored.version
            }
            // After a refusal these are writes of another program.
            _ => self.reason == Reload::Compared,
        }
    }
}

impl RecordOwner {
    /// The number of records that were written again, because their store had lost their last state.
    pub(crate) fn written_again(&self) -> u64 {
        self.comparison.written_again
    }

    /// Takes the generation of the store in a view. If it is another one than before, begins the comparison.
    pub(crate) fn adopt_generation<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        generation: &Generation,
    ) {
        let known = self.comparison.generation.replace(generation.clone());
        if known.is_none_or(|known| known == *generation) {
            return;
        }
        let settings = &turn.shard.settings;
        let is_stored = |name: &&Name| {
            settings.routes.find(name) == StoreId::DEFAULT
                && !is_under(&settings.memory_only_prefixes, name)
        };
        let names = self.table.names().filter(is_stored);
        self.comparison.names = names.cloned().collect();
        turn.shard
            .count_work(self.comparison.names.len() * size_of::<Name>());
    }

    /// Continues the comparison with the next records, if the store has answered the last loads.
    pub(super) fn compare_more<E: Effects>(&mut self, turn: &TurnContext<'_, E>) {
        if !self.comparison.has_work(&self.table) {
            return;
        }
        self.comparison.requested.clear();
        for _ in 0..VISITED_MAX {
            if self.comparison.requested.len() == LOADED_MAX {
                return;
            }
            let Some(name) = self.comparison.names.pop() else {
                return;
            };
            let record = self.table.get(&name);
            if record.is_some_and(|record| !record.is_dirty && record.value.is_known()) {
                self.reload(turn, &name, Reload::Compared);
                self.comparison.requested.push(name);
            }
        }
    }

    /// Writes the state again that a record had in memory. The table has the one of the store.
    pub(super) fn write_again<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        before: Value,
    ) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        let bytes = before.bytes();
        self.cache.bytes = self.cache.bytes + bytes - record.value.bytes();
        let stored = std::mem::replace(&mut record.value, before);
        record.is_dirty = true;
        self.comparison.written_again += 1;
        self.queue_value(turn, name, stored.expected(), bytes, Share::Server, None);
    }
}
