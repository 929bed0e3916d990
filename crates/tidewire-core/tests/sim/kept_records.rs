//! A store that does at once what owners request from it.

use std::collections::BTreeMap;

use tidewire_core::effect::{StoreCompletion, StoreRequest};
use tidewire_core::store::{Loaded, StoreChange, StoredRecord, Written};
use tidewire_core::text::Name;

/// The records of the store.
#[derive(Debug, Default)]
pub struct KeptRecords(BTreeMap<Name, StoredRecord>);

impl KeptRecords {
    /// Does a request, and returns its completion.
    pub fn complete(&mut self, request: StoreRequest) -> StoreCompletion {
        match request {
            StoreRequest::Scan { .. } | StoreRequest::Find { .. } | StoreRequest::Index { .. } => {
                panic!("this simulation makes no queries")
            }
            StoreRequest::Load { names, .. } => {
                let load = |name: Name| {
                    let found = self.0.get(&name).cloned();
                    (name, Ok(found.map_or(Loaded::Missing, Loaded::Found)))
                };
                let records = names.into_iter().map(load).collect();
                StoreCompletion::Loaded { records }
            }
            StoreRequest::Commit {
                store,
                batch,
                writes,
            } => {
                for write in writes.iter() {
                    match &write.change {
                        StoreChange::Put(record) => {
                            self.0.insert(write.name.clone(), record.clone());
                        }
                        StoreChange::Delete => {
                            self.0.remove(&write.name);
                        }
                    }
                }
                let result = Ok(vec![Written::Done; writes.len()]);
                StoreCompletion::Committed {
                    store,
                    batch,
                    result,
                }
            }
        }
    }
}
