//! A store that does one request after the other, and takes no commit of a process that its view does not have.

use std::collections::BTreeMap;

use tidewire_core::address::Address;
use tidewire_core::effect::{StoreCompletion, StoreRequest};
use tidewire_core::store::{Loaded, ScanPage, StoreChange, StoreError, StoredRecord, Written};
use tidewire_core::text::Name;
use tidewire_core::view::View;

use crate::client::{GROUPS, Writes, writes};

/// A request, with the process that has sent it.
#[derive(Debug)]
pub struct Sent {
    pub from: Address,
    pub birth: u64,
    /// The newest view whose hand-over was complete at the shard.
    pub handed_over: View,
    pub request: StoreRequest,
}

/// The records of the store.
#[derive(Debug, Default)]
pub struct Store {
    pub records: BTreeMap<Name, StoredRecord>,
    /// The last shard that has used a name, and its view.
    users: BTreeMap<Name, (Address, u64, View)>,
}

impl Store {
    /// Does a request. `is_member` tells whether the process belongs to the view.
    pub fn complete(&mut self, sent: Sent, is_member: bool) -> Result<StoreCompletion, String> {
        Ok(match sent.request {
            StoreRequest::Scan {
                number,
                ref prefix,
                ref after,
                count_max,
                ..
            } => {
                let records = self.records.iter();
                let of_prefix = records.filter(|(name, _)| name.starts_with(&**prefix));
                let mut behind =
                    of_prefix.filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
                let found = |(name, record): (&Name, &StoredRecord)| {
                    (name.clone(), Loaded::Found(record.clone()))
                };
                let records = behind.by_ref().take(count_max).map(found).collect();
                let more = behind.next().is_some();
                StoreCompletion::Scanned {
                    number,
                    page: Ok(ScanPage { records, more }),
                }
            }
            StoreRequest::Find { .. } | StoreRequest::Index { .. } => {
                panic!("this simulation has no indexes")
            }
            StoreRequest::Load { ref names, .. } => {
                if is_member {
                    for name in names {
                        self.used(&sent, name)?;
                    }
                }
                let load = |name: &Name| {
                    let found = self.records.get(name).cloned();
                    (
                        name.clone(),
                        Ok(found.map_or(Loaded::Missing, Loaded::Found)),
                    )
                };
                let records = names.iter().map(load).collect();
                StoreCompletion::Loaded { records }
            }
            StoreRequest::Commit {
                store,
                batch,
                ref writes,
            } => {
                let result = match is_member {
                    true => {
                        let mut written = Vec::new();
                        for write in writes.iter() {
                            self.used(&sent, &write.name)?;
                            let stored = self.records.get(&write.name);
                            if !write.expected.is_met(stored) && !write.change.is_done(stored) {
                                written.push(Written::Refused);
                                continue;
                            }
                            match &write.change {
                                StoreChange::Put(record) => {
                                    self.records.insert(write.name.clone(), record.clone());
                                }
                                StoreChange::Delete => {
                                    self.records.remove(&write.name);
                                }
                            }
                            written.push(Written::Done);
                        }
                        Ok(written)
                    }
                    false => Err(StoreError::stale_view(View(0), View(1), false)),
                };
                self.has_whole_transactions()?;
                StoreCompletion::Committed {
                    store,
                    batch,
                    result,
                }
            }
        })
    }

    /// The store has all changes of a transaction or none. Each transaction changes all records of a group.
    fn has_whole_transactions(&self) -> Result<(), String> {
        for group in GROUPS {
            let stored = |name: &&str| {
                let record = self.records.get(*name);
                record.map_or(Writes::new(), |record| writes(record.data.as_str()))
            };
            let stored: Vec<Writes> = group.iter().map(stored).collect();
            if stored.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!(
                    "a part of a transaction is in {group:?}: {stored:?}"
                ));
            }
        }
        Ok(())
    }

    /// Notes that a shard uses a name. Two shards use it only one after the other, with the hand-over of a view between them.
    fn used(&mut self, sent: &Sent, name: &Name) -> Result<(), String> {
        let now = (sent.from, sent.birth, sent.handed_over);
        if let Some((user, birth, view)) = self.users.insert(name.clone(), now)
            && (user, birth) != (sent.from, sent.birth)
            && view >= sent.handed_over
        {
            return Err(format!(
                "{:?} uses {name:?} with view {:?} after {user:?} with view {view:?}",
                sent.from, sent.handed_over
            ));
        }
        Ok(())
    }
}
