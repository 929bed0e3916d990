//! The records that a shard owns, and the inputs that drive them: requests, the start and end of a turn, deadlines.
//!
//! `run` orders the requests of each record, `apply` and `interest` decide them, `load` and `outcome` handle the answers of the stores, and
//! `eviction` keeps the memory limit. The states of a record are in the comment of the folder (`mod.rs`).

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{Effects, StoreRequest};
use crate::entry::{
    AnnouncedRecord, BulkName, PendingReplyId, Published, RecordRefusal, RecordRequest,
    RecordRequestKind,
};
use crate::footprint::{DIRTY_BYTES, LOAD_TIMER_BYTES, RECORD_BYTES, WRITE_KEY_BYTES};
use crate::latency::LatencyCounts;
use crate::listen::ListenOwner;
use crate::message::RecordBulk;
use crate::principal::Principal;
use crate::query::collection::is_under;
use crate::record::commit::Commits;
use crate::record::deferred::Deferred;
use crate::record::eviction::Cache;
use crate::record::job::{Job, JobKind, Notify, Resume, Subscribe};
use crate::record::outcome::outcome_unknown;
use crate::record::repeat::Repeats;
use crate::record::request::publish;
use crate::record::state::{Interest, OwnedRecord, Reuse, Value};
use crate::record::store_loss::Comparison;
use crate::record::transaction::Transactions;
use crate::record::unsaved::Unsaved;
use crate::record::watched::Watched;
use crate::record::write_queue::{WriteQueue, WriteQueues};
use crate::settings::Settings;
use crate::shard_counts::ShardCounts;
use crate::store::{Incarnation, Opened, StoreChange};
use crate::table;
use crate::table::{Map, NameMap};
use crate::text::{Name, Payload};
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use crate::work::TurnCosts;
use tidewire_collections::readers::Readers;

/// The records that this shard owns.
#[derive(Debug)]
pub(crate) struct RecordOwner {
    pub(super) table: NameMap<OwnedRecord>,
    /// The subscribers that are authorized again before each change, for the records that have such subscribers.
    pub(super) readers: Map<Name, Readers>,
    /// Records that have more of them than one turn can authorize.
    pub(super) to_authorize: VecDeque<Name>,
    pub(super) cache: Cache,
    pub(super) write_queues: WriteQueues,
    /// Records whose store could not be read, and that must be loaded again.
    pub(super) superseded_loads: DeadlineQueue<Name>,
    /// Bytes of records that are kept in memory only and can't be evicted.
    pub(super) memory_only_bytes: usize,
    pub(super) repeats: Repeats,
    next_epoch: u64,
    /// The work that sessions have caused here in this turn.
    pub(super) costs: TurnCosts,
    pub(super) deferred: Deferred,
    /// Records that this shard lets go of, and that the store does not have yet or that have waiting requests.
    pub(super) leaving: Vec<Name>,
    /// Bytes of the waiting requests.
    pub(super) waiting_bytes: usize,
    pub(super) unsaved: Unsaved,
    pub(super) watched: Watched,
    pub(super) comparison: Comparison,
    pub(super) transactions: Transactions,
    /// Acknowledged writes by their latency.
    pub(super) acknowledgements: LatencyCounts,
}

impl RecordOwner {
    /// Creates it without records in memory.
    pub(crate) fn new(seed: u64, opened: &[Opened], shard: u16) -> Self {
        Self {
            table: NameMap::new(seed),
            readers: table::map(seed),
            to_authorize: VecDeque::new(),
            cache: Cache::new(seed),
            write_queues: WriteQueues::new(seed, opened, shard),
            superseded_loads: DeadlineQueue::new(),
            memory_only_bytes: 0,
            repeats: Repeats::new(seed),
            next_epoch: 1,
            costs: TurnCosts::new(),
            deferred: Deferred::default(),
            leaving: Vec::new(),
            waiting_bytes: 0,
            unsaved: Unsaved::default(),
            watched: Watched::new(seed),
            comparison: Comparison::default(),
            transactions: Transactions::default(),
            acknowledgements: LatencyCounts::default(),
        }
    }

    /// Begins epochs that no other owner has: a release with the epoch of another owner must not match one of this owner.
    pub(crate) fn separate_epochs(&mut self, seed: u64, own: Address) {
        self.next_epoch = FixedState::with_seed(seed).hash_one((own.node, own.shard)) >> 1;
    }

    /// Acknowledged writes by their latency.
    pub(crate) fn acknowledgements(&self) -> &LatencyCounts {
        &self.acknowledgements
    }

    /// The number of records in memory.
    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    /// The bytes of the records in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.cache.bytes
    }

    /// Bytes kept in addition to the records: waiting requests, changes that the stores do not have yet, and keys of writes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let dirty: usize = self.dirty().map(Commits::count).sum();
        let timers: usize = self
            .write_queues
            .iter()
            .map(|queue| queue.load_timeouts.len())
            .sum();
        self.waiting_bytes
            + dirty * DIRTY_BYTES
            + timers * LOAD_TIMER_BYTES
            + self.repeats.count() * WRITE_KEY_BYTES
    }

    /// The writes on their way to each store.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &Commits> {
        self.write_queues.iter().map(|queue| &queue.commits)
    }

    /// Whether some store does not have all changes yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty().any(|commits| commits.count() > 0)
    }

    /// The number of remembered keys of writes.
    pub(crate) fn write_key_count(&self) -> usize {
        self.repeats.count()
    }

    /// The number of live queries that watch records of this shard.
    pub(crate) fn watched_count(&self) -> usize {
        self.watched.count()
    }

    /// A live query watches a collection.
    pub(crate) fn watch(
        &mut self,
        query: (Address, u64),
        prefix: Name,
        text: &Payload,
        principal: Arc<Principal>,
    ) {
        self.watched.watch(query, prefix, text, principal);
    }

    /// A live query has ended.
    pub(crate) fn unwatch(&mut self, query: (Address, u64), prefix: &Name) {
        self.watched.unwatch(query, prefix);
    }

    /// The live queries of a node are lost with it.
    pub(crate) fn lose_watchers(&mut self, node: u16) {
        self.watched.lose_node(node);
    }

    /// Handles a session's request.
    pub(crate) fn request<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        request: RecordRequest,
    ) {
        let RecordRequest {
            session,
            principal,
            what,
        } = request;
        let since = turn.now.monotonic;
        let job = |principal, kind| Job {
            session,
            principal,
            kind,
            values: Vec::new(),
            read_failed: false,
            after: None,
            since,
            was_deferred: false,
        };
        match what {
            RecordRequestKind::Bulk {
                action,
                names,
                reply,
                correlation,
            } => {
                for BulkName {
                    name,
                    index,
                    serial,
                } in names
                {
                    let correlation = correlation.clone();
                    let reply = reply.map(|reply| PendingReplyId { index, ..reply });
                    let kind = match action {
                        RecordBulk::Notify => JobKind::Notify(Notify {
                            reply,
                            correlation,
                            reloaded: None,
                        }),
                        _ => JobKind::Subscribe(Subscribe {
                            action,
                            serial,
                            reply,
                            correlation,
                        }),
                    };
                    self.take(turn, listens, name, job(principal.clone(), kind));
                }
            }
            RecordRequestKind::One(name, operation) => {
                let kind = JobKind::Requested(operation);
                self.take(turn, listens, name, job(principal, kind));
            }
        }
    }

    /// Continues a subscription that the former owner of the record has granted, as soon as the record is loaded.
    pub(crate) fn resume_announced<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        (session, principal): (SessionId, &Arc<Principal>),
        announced: AnnouncedRecord,
    ) {
        let known = self.table.get(&announced.name);
        if known.is_some_and(|record| record.interest.epoch == announced.epoch) {
            return;
        }
        let resume = Resume {
            serial: Some(announced.serial),
            shown: announced.shown,
        };
        let job = Job {
            session,
            principal: Arc::clone(principal),
            kind: JobKind::Resume(resume),
            values: Vec::new(),
            read_failed: false,
            after: None,
            since: turn.now.monotonic,
            was_deferred: false,
        };
        self.take_now(turn, listens, announced.name, job);
    }

    /// Publishes to the subscribers that a record has got, or lost, its provider.
    pub(crate) fn provider_changed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        provided: bool,
    ) {
        if let Some(record) = self.table.get(name) {
            publish(
                turn,
                name,
                &record.interest,
                &Published::Provided(provided),
                None,
            );
        }
    }

    /// Starts a turn: the costs of sessions count from zero, and some requests of one ended session run. Requests that only read are
    /// refused, which completes the replies that wait for their answers.
    pub(crate) fn begin_turn<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
    ) {
        self.costs.begin_turn();
        self.authorize_more(turn, listens);
        self.run_released(turn, listens);
        self.continue_walks(turn);
        self.compare_more(turn);
        if let Some(session) = self.deferred.next_ended() {
            self.do_deferred(turn, listens, session, Job::changes_records);
            if self.deferred.is_empty(session) {
                self.deferred.ended_is_done(session);
            }
        }
    }

    /// Requests the records that this turn needs from their stores, and sends the stores the changes of this turn.
    pub(crate) fn end_turn<E: Effects>(&mut self, settings: &Settings, now: Instant, out: &mut E) {
        // Loads and commits leave once per turn, so that a turn with many messages makes one request of each kind to a store. The values
        // are read from the table at this point: each write in the batch has the newest state of its record. The commit leaves after the
        // messages of the turn were decided, so a record that was written and deleted in the turn is written once.
        let bytes_max = settings.limits.batch_bytes_max;
        let table = &self.table;
        let newest = |name: &Name| match table.get(name).map(|record| &record.value) {
            Some(Value::Present(record)) => StoreChange::Put(record.clone()),
            _ => StoreChange::Delete,
        };
        for (store, queue) in self.write_queues.iter_mut() {
            if !queue.to_load.is_empty() {
                let names = std::mem::take(&mut queue.to_load);
                out.store(StoreRequest::Load { store, names });
            }
            if let Some((batch, writes)) = queue.commits.next_batch(now, bytes_max, newest) {
                out.store(StoreRequest::Commit {
                    store,
                    batch,
                    writes,
                });
            }
        }
    }

    /// Whether ended sessions still have requests, subscribers are still to be authorized, requests behind a transaction can run, queries
    /// still wait for records, or records are still to be compared with their store, so that the next turn must come at once.
    pub(crate) fn has_work(&self) -> bool {
        self.deferred.has_ended()
            || !self.to_authorize.is_empty()
            || self.transactions.has_released()
            || self.unsaved.has_work()
            || self.comparison.has_work(&self.table)
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let of_queues = self.write_queues.iter().flat_map(|queue| {
            let commits = &queue.commits;
            [queue.load_timeouts.next(), commits.next_deadline()]
        });
        of_queues
            .chain([self.superseded_loads.next()])
            .flatten()
            .min()
    }

    /// Fails the requests and writes that have waited too long.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let now = turn.now.monotonic;
        for (_, queue) in self.write_queues.iter_mut() {
            queue
                .commits
                .time_out(now, |name, waiter| outcome_unknown(turn, name, waiter));
        }
        while let Some(name) = self.superseded_loads.pop_due(now) {
            let waits = self.table.get(&name).and_then(|kept| kept.waiting.as_ref());
            if waits.is_some_and(|waits| waits.superseded.is_some()) {
                self.load(turn, &name);
            }
        }
        let timeout = turn.shard.settings.load_timeout.as_nanos();
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        while let Some((deadline, name)) = self.write_queues.pop_due_load(now) {
            let before = Instant(deadline.0.saturating_sub(timeout));
            self.fail_waiting(turn, &name, RecordRefusal::LoadTimeout, Some(before));
        }
    }

    /// The record in the table, with the table's copy of its name: a further lookup by that copy reads no other memory. A new record has no
    /// value yet and is not loaded here: its job may be refused without it.
    pub(super) fn ensure<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: Name,
    ) -> (Name, &mut OwnedRecord) {
        let Self {
            table,
            cache,
            next_epoch,
            ..
        } = self;
        let prefixes = &turn.shard.settings.memory_only_prefixes;
        let (name, record) = table.get_or_insert_with(name, |name| {
            *next_epoch += 1;
            cache.bytes += name.len() + RECORD_BYTES;
            OwnedRecord {
                value: if is_under(prefixes, name) {
                    Value::Missing
                } else {
                    Value::Unknown
                },
                interest: Interest {
                    epoch: *next_epoch,
                    shards: ShardCounts::default(),
                },
                waiting: None,
                is_dirty: false,
                has_readers: false,
                is_used: false,
                is_read_by_rules: false,
                reuse: match cache.evicted.contains(name) {
                    true => Reuse::Again,
                    false => Reuse::First,
                },
                deferred_count: 0,
                stamp: 0,
            }
        });
        (name.clone(), record)
    }

    pub(super) fn new_epoch(&mut self) -> u64 {
        self.next_epoch += 1;
        self.next_epoch
    }

    pub(super) fn new_incarnation<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
    ) -> Incarnation {
        self.write_queue_mut(turn, name).new_incarnation()
    }

    /// The write queue to the record's store.
    pub(super) fn write_queue_mut<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
    ) -> &mut WriteQueue {
        self.write_queues.of_mut(&turn.shard.settings.routes, name)
    }
}
