//! A naive model of records. It executes requests on trees, in the order in which they reach the owner. It records every answer
//! and publication that a session must hear.

mod arriving;
mod executing;
mod hearing;
mod request;
mod state;
mod storing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use serde_json::json;
use tidewire_core::address::SessionId;
use tidewire_core::message::RecordBulk;
use tidewire_core::route::StoreRoutes;
use tidewire_core::store::StoredRecord;

use crate::check::{Check, Checked, ensure};
use crate::expected::Expected;
use crate::stores::SimStores;
use crate::wire::parse;

pub use request::{Request, RequestKind, Seen, Stamp};
use state::{Awaited, Bulk, Dirty, Instances, ModelRecord, State};

/// See the documentation of this module.
#[derive(Debug)]
pub struct RecordModel {
    records: BTreeMap<String, ModelRecord>,
    instances: BTreeMap<(SessionId, String), Instances>,
    expected: BTreeMap<(SessionId, String), VecDeque<Expected>>,
    /// Requests in flight between a session's shard and an owner.
    on_the_way: BTreeMap<(SessionId, usize), VecDeque<Vec<Request>>>,
    writes: BTreeMap<(SessionId, String), Awaited>,
    deletes: BTreeMap<(SessionId, String), Awaited>,
    bulks: BTreeMap<(SessionId, String), Bulk>,
    /// The newest acknowledged change of each record.
    acknowledged: BTreeMap<String, usize>,
    dirty: Vec<BTreeMap<String, Dirty>>,
    /// Sessions whose end their shard does not know yet.
    live: BTreeSet<SessionId>,
    /// The live sessions that coalesce and have lagged.
    lagged: BTreeSet<SessionId>,
    /// For a session and a record: the newest change that the session skipped, because a later message arrived first.
    skipped: BTreeMap<(SessionId, String), Expected>,
    /// The current step of the simulation.
    pub step: u64,
    terms: Terms,
}

/// The settings of the node that the model needs.
#[derive(Clone, Debug)]
pub struct Terms {
    pub shards: usize,
    /// The store of each record.
    pub routes: StoreRoutes,
    /// The maximum number of dirty records per shard and store.
    pub dirty_max: usize,
    pub load_timeout_ns: u64,
    pub write_timeout_ns: u64,
    /// Whether owners evict records that the model believes to be in memory.
    pub evicts: bool,
    /// Whether records under `mem/` exist only in memory.
    pub memory_only: bool,
}

impl RecordModel {
    pub fn new(terms: Terms) -> Self {
        Self {
            records: BTreeMap::new(),
            instances: BTreeMap::new(),
            expected: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            writes: BTreeMap::new(),
            deletes: BTreeMap::new(),
            bulks: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            dirty: (0..terms.shards).map(|_| BTreeMap::new()).collect(),
            live: BTreeSet::new(),
            lagged: BTreeSet::new(),
            skipped: BTreeMap::new(),
            step: 0,
            terms,
        }
    }

    /// A subscription begins at the session's shard.
    pub fn begin(&mut self, session: SessionId, name: &str, action: RecordBulk) -> usize {
        let instances = self.instances.entry((session, name.into())).or_default();
        let instance = instances.started;
        instances.started += 1;
        if !is_read(action) {
            instances.heard += 1;
            instances.current = Some(instance);
        }
        instance
    }

    /// A session's subscriptions to a record end at the session's shard.
    pub fn end(&mut self, session: SessionId, name: &str) {
        let instances = self.instances.entry((session, name.into())).or_default();
        instances.ended = instances.started;
    }

    /// The store has this record before the run starts.
    pub fn begin_with(&mut self, name: &str, owner: usize, version: i32) {
        let record = self.record(name, owner);
        record.states[0].value = Some((version, Rc::new(json!({}))));
    }

    /// A session has begun.
    pub fn session_began(&mut self, session: SessionId) {
        self.live.insert(session);
    }

    /// A session that coalesces lags. It may now skip changes, but must get the newest value in the end.
    pub fn session_lags(&mut self, session: SessionId) {
        self.lagged.insert(session);
    }

    /// A session is gone.
    pub fn session_ended(&mut self, session: SessionId) {
        self.live.remove(&session);
        self.lagged.remove(&session);
        self.skipped.retain(|(of, _), _| *of != session);
        self.instances.retain(|(of, _), _| *of != session);
        self.expected.retain(|(of, _), _| *of != session);
        self.writes.retain(|(of, _), _| *of != session);
        self.deletes.retain(|(of, _), _| *of != session);
        self.bulks.retain(|(of, _), _| *of != session);
        for record in self.records.values_mut() {
            record.subscribers.retain(|(of, _)| *of != session);
        }
    }

    /// The node has crashed. The model keeps only the records of the store.
    pub fn crash(&mut self, stores: &SimStores) -> Checked {
        self.live.clear();
        self.lagged.clear();
        self.skipped.clear();
        self.instances.clear();
        self.expected.clear();
        self.on_the_way.clear();
        self.writes.clear();
        self.deletes.clear();
        self.bulks.clear();
        self.dirty.iter_mut().for_each(BTreeMap::clear);
        for (name, record) in &mut self.records {
            let kept = stores.of(name).change_count(name);
            let acknowledged = self.acknowledged.get(name).copied().unwrap_or(0);
            ensure(kept >= acknowledged, Check::Durable, || {
                format!("{name}: change {acknowledged} was acknowledged, the store has {kept}")
            })?;
            record.states.truncate(kept + 1);
            record.known = record.volatile;
            record.waiting.clear();
            record.needs_gate = false;
            record.timers.clear();
            record.subscribers.clear();
        }
        Ok(())
    }

    /// Whether a record had this content after the given number of changes.
    pub fn has_made(&self, name: &str, changes: usize, stored: &StoredRecord) -> bool {
        // Guarded records have their own model.
        let Some(record) = self.records.get(name) else {
            return true;
        };
        let made = record.states.get(changes);
        made.and_then(|state| state.value.as_ref())
            .is_some_and(|(version, value)| {
                i64::from(stored.version.0) == i64::from(*version)
                    && parse(stored.data.as_str()) == **value
            })
    }

    /// Whether a session is subscribed.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.records.get(name).is_some_and(|record| {
            record.subscribers.iter().any(|(session, instance)| {
                let instances = self.instances.get(&(*session, name.to_owned()));
                instances.is_some_and(|instances| *instance >= instances.ended)
            })
        })
    }

    fn record(&mut self, name: &str, owner: usize) -> &mut ModelRecord {
        let volatile = self.terms.memory_only && name.starts_with("mem/");
        self.records
            .entry(name.into())
            .or_insert_with(|| ModelRecord {
                owner,
                volatile,
                known: volatile,
                waiting: VecDeque::new(),
                timers: Vec::new(),
                needs_gate: false,
                states: vec![State {
                    value: None,
                    stamp: None,
                    since: 0,
                }],
                subscribers: Vec::new(),
            })
    }
}

fn is_read(action: RecordBulk) -> bool {
    matches!(
        action,
        RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead
    )
}
