//! The exchange between owners and the store.

use tidewire_core::store::StoreChange;

use super::RecordModel;
use crate::check::{Check, Checked, Violation, ensure};
use crate::stores::SimStores;
use crate::wire::{Refused, parse};

impl RecordModel {
    /// The store has answered a load.
    pub fn loaded(
        &mut self,
        owner: usize,
        now: u64,
        name: &str,
        found: bool,
        stores: &SimStores,
    ) -> Checked {
        let record = self.record(name, owner);
        if record.known {
            return Ok(());
        }
        if !found {
            for waiting in std::mem::take(&mut record.waiting) {
                self.refuse(waiting.request, Refused::Load);
            }
            return Ok(());
        }
        record.known = true;
        let kept = stores.of(name).change_count(name);
        ensure(kept == record.change_count(), Check::StoreContent, || {
            format!(
                "{name} is loaded after change {kept}, and had {}",
                record.change_count()
            )
        })?;
        self.go_on(now, name);
        Ok(())
    }

    /// A shard sends a write to the store; the write must have the newest state. Returns the number of its change.
    pub fn commits(
        &mut self,
        owner: usize,
        name: &str,
        change: &StoreChange,
    ) -> Result<usize, Violation> {
        let record = self.record(name, owner);
        let newest = record.state().value.clone();
        let count = record.change_count();
        let same = match (change, &newest) {
            (StoreChange::Delete, None) => true,
            (StoreChange::Put(stored), Some((version, value))) => {
                i64::from(stored.version.0) == i64::from(*version)
                    && parse(stored.data.as_str()) == **value
            }
            _ => false,
        };
        ensure(same, Check::StoreContent, || {
            format!("{name} is committed as {change:?}, its newest state is {newest:?}")
        })?;
        let dirty = self.dirty[owner].entry(name.into()).or_default();
        dirty.queued = false;
        dirty.in_batch = true;
        Ok(count)
    }

    /// A shard learns that a commit is done.
    pub fn committed(&mut self, owner: usize, names: &[String]) {
        for name in names {
            let Some(dirty) = self.dirty[owner].get_mut(name) else {
                continue;
            };
            dirty.in_batch = false;
            if !dirty.queued {
                self.dirty[owner].remove(name);
            }
        }
    }
}
