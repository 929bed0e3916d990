//! The live queries that watch the records of this shard: finds the queries whose selection a write changes, and reports the write to
//! their owners. A shard without live queries pays one comparison for each write.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tidewire_query::{Document, Membership, PredicateIndex, Query, QueryId, QueryLimits, Tape};

use crate::address::Address;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, QueryEntry, UnsavedRow, UnsavedValue};
use crate::principal::Principal;
use crate::query::collection::split;
use crate::query::rights::may_read;
use crate::record::state::Value;
use crate::store::StoredRecord;
use crate::table::{self, Map};
use crate::text::{Name, Payload};

/// A query that watches a collection.
#[derive(Debug)]
struct Watcher {
    owner: Address,
    query: u64,
    principal: Arc<Principal>,
}

#[derive(Debug)]
struct Collection {
    index: PredicateIndex,
    watchers: Map<QueryId, Watcher>,
    ids: BTreeMap<(Address, u64), QueryId>,
}

/// The queries that watch records of this shard.
#[derive(Debug)]
pub(super) struct Watched {
    /// All queries.
    count: usize,
    /// By the prefix of the names of their records.
    collections: BTreeMap<Name, Collection>,
    before: Tape,
    after: Tape,
    seed: u64,
}

impl Watched {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            count: 0,
            collections: BTreeMap::new(),
            before: Tape::new(),
            after: Tape::new(),
            seed,
        }
    }

    /// Whether no query watches records of this shard.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of queries.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether a query watches the record's collection.
    pub(super) fn has(&self, name: &str) -> bool {
        self.count > 0
            && split(name).is_some_and(|(prefix, _)| self.collections.contains_key(prefix))
    }

    /// Adds a query. One that this version can't read selects nothing.
    pub(super) fn watch(
        &mut self,
        (owner, query): (Address, u64),
        prefix: Name,
        text: &Payload,
        principal: Arc<Principal>,
    ) {
        let Ok(parsed) = Query::parse(text.as_str(), &QueryLimits::default()) else {
            return;
        };
        let seed = self.seed;
        let collection = self
            .collections
            .entry(prefix)
            .or_insert_with(|| Collection {
                index: PredicateIndex::new(seed),
                watchers: table::map(seed),
                ids: BTreeMap::new(),
            });
        let id = collection.index.insert(parsed.selector);
        let watcher = Watcher {
            owner,
            query,
            principal,
        };
        collection.watchers.insert(id, watcher);
        if let Some(old) = collection.ids.insert((owner, query), id) {
            collection.index.remove(old);
            collection.watchers.remove(&old);
        } else {
            self.count += 1;
        }
    }

    /// Removes a query.
    pub(super) fn unwatch(&mut self, (owner, query): (Address, u64), prefix: &Name) {
        let Some(collection) = self.collections.get_mut(prefix) else {
            return;
        };
        if let Some(id) = collection.ids.remove(&(owner, query)) {
            collection.index.remove(id);
            collection.watchers.remove(&id);
            self.count -= 1;
        }
        if collection.ids.is_empty() {
            self.collections.remove(prefix);
        }
    }

    /// Removes the queries of a lost node.
    pub(super) fn lose_node(&mut self, node: u16) {
        let mut lost = Vec::new();
        for (prefix, collection) in &self.collections {
            let of_node = collection
                .ids
                .keys()
                .filter(|(owner, _)| owner.node == node);
            lost.extend(of_node.map(|id| (*id, prefix.clone())));
        }
        for (id, prefix) in lost {
            self.unwatch(id, &prefix);
        }
    }

    /// Reports a write to the queries that selected the record before or select it now.
    pub(super) fn written<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        before: &Value,
        after: &Value,
    ) {
        let Some((prefix, id)) = split(name) else {
            return;
        };
        let Some(collection) = self.collections.get_mut(prefix) else {
            return;
        };
        let (before, after) = (before.record(), after.record());
        let old = document_of(&mut self.before, id, before);
        let new = document_of(&mut self.after, id, after);
        let mut found: SmallVec<[(Address, u64, QueryId, bool); 8]> = SmallVec::new();
        let Collection {
            index, watchers, ..
        } = collection;
        index.memberships(
            old.as_ref(),
            new.as_ref(),
            |query, Membership { after, .. }| {
                if let Some(watcher) = watchers.get(&query) {
                    found.push((watcher.owner, watcher.query, query, after));
                }
            },
        );
        // The index finds queries in the order of its hash tables.
        found.sort_unstable_by_key(|(owner, query, ..)| (*owner, *query));
        for (owner, query, id, is_selected) in found {
            let watcher = watchers.get(&id).filter(|_| is_selected);
            let shown = shown_to(turn, watcher, name, after);
            report(turn, (owner, query), name, shown);
        }
    }

    /// Reports the value of a record to all queries of its collection. The value before is not known.
    pub(super) fn reloaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        value: &Value,
    ) {
        let Some((prefix, id)) = split(name) else {
            return;
        };
        let Some(collection) = self.collections.get(prefix) else {
            return;
        };
        if matches!(value, Value::Unknown) {
            return;
        }
        let record = value.record();
        let document = document_of(&mut self.after, id, record);
        for ((owner, query), id) in &collection.ids {
            let selects = document.is_some_and(|document| {
                let selector = collection.index.selector(*id);
                selector.is_some_and(|selector| selector.matches(&document))
            });
            let watcher = collection.watchers.get(id).filter(|_| selects);
            let shown = shown_to(turn, watcher, name, record);
            report(turn, (*owner, *query), name, shown);
        }
    }
}

fn document_of<'t>(
    tape: &'t mut Tape,
    id: &str,
    record: Option<&'t StoredRecord>,
) -> Option<Document<'t>> {
    let record = record?;
    tape.read(id, u64::from(record.version.0), record.data.as_str())
}

/// The record if there is a watcher that selects it and may read it.
fn shown_to<'r, E: Effects>(
    turn: &TurnContext<'_, E>,
    watcher: Option<&Watcher>,
    name: &Name,
    record: Option<&'r StoredRecord>,
) -> Option<&'r StoredRecord> {
    let principal = &watcher?.principal;
    record.filter(|record| may_read(turn.shard, turn.now, principal, name, &record.data))
}

fn report<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    (owner, query): (Address, u64),
    name: &Name,
    shown: Option<&StoredRecord>,
) {
    let row = UnsavedRow {
        name: name.clone(),
        value: shown.map(|record| UnsavedValue {
            version: record.version,
            data: record.data.clone(),
        }),
    };
    turn.post(owner, Entry::Query(QueryEntry::Written { query, row }));
}
