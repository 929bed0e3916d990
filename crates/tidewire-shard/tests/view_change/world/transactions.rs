//! Transactions: clients read the records of a group one by one, and write all of them in one step if none has changed since.
//!
//! Each value has the numbers of all transactions that its records have had, so a transaction that overwrites another one loses its number.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checked, World, ensure};
use crate::client::{GROUPS, Said, Writes, writes};

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Transactions {
    sent: BTreeMap<u64, &'static [&'static str]>,
    /// Those whose clients know that nothing was done.
    conflicts: BTreeSet<u64>,
}

impl Transactions {
    /// The records that a transaction changes.
    pub(super) fn names(&self, number: u64) -> &'static [&'static str] {
        self.sent[&number]
    }

    pub(super) fn note_conflict(&mut self, number: u64) {
        self.conflicts.insert(number);
    }
}

impl World {
    /// A client reads a record of a group, or writes the group after it has read all its records.
    pub(super) fn acts_on_group(&mut self, index: usize) -> Option<Said> {
        let group: &'static [&'static str] = self.random.pick::<&[&str]>(&GROUPS);
        let client = &mut self.clients[index];
        if !client.inbox.is_empty() {
            return None;
        }
        self.next_write += 1;
        let number = self.next_write;
        let unread = |name: &&&str| !client.read.contains_key(**name);
        if let Some(name) = group.iter().find(unread) {
            return Some(Said::Fetch(name, number));
        }
        let mut operation = |name: &&str| {
            let (tag, mut writes) = client.read.remove(*name)?;
            let state = tag.map_or("missing".to_owned(), |tag| tag.to_string());
            writes.insert(number);
            Some(format!(r#"{{"if":"{state}","data":{}}}"#, data(&writes)))
        };
        let operations: Vec<String> = group.iter().filter_map(&mut operation).collect();
        self.transactions.sent.insert(number, group);
        Some(Said::Commit(
            group,
            number,
            format!("[{}]", operations.join(",")),
        ))
    }

    /// At rest, the store has no write of a transaction that was refused because of a condition.
    pub(super) fn conflicts_changed_nothing(&self) -> Checked {
        for name in GROUPS.into_iter().flatten() {
            let stored = self.store.records.get(*name);
            let stored = stored.map_or(Writes::new(), |record| writes(record.data.as_str()));
            let mut found = stored.intersection(&self.transactions.conflicts);
            let found = found.next();
            ensure(found.is_none(), || {
                format!("{name} has {found:?} after a conflict")
            })?;
        }
        Ok(())
    }
}

/// A value with these writes.
fn data(writes: &Writes) -> String {
    let members: Vec<String> = writes.iter().map(|id| format!("\"w{id}\":1")).collect();
    format!("{{{}}}", members.join(","))
}
