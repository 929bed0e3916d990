//! Records at their owner: the order of writes, versions, permissions that see the old value, interest by shard.
//!
//! If a request can't be decided yet (the record is being loaded, or a rule waits for another record), later requests of the same record
//! wait behind it, but requests of other records do not. The decisions themselves are in `apply`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::context::{Authorization, TurnContext};
use crate::effect::{Effects, StoreRequest};
use crate::entry::{
    Answer, Asker, BulkName, Entry, PendingReplyId, Published, ReadFailed, RecordRefusal,
    RecordRequest, RecordRequestKind, WorkEntry,
};
use crate::footprint::{DIRTY_BYTES, LOAD_TIMER_BYTES, WRITE_KEY_BYTES};
use crate::listen::ListenOwner;
use crate::message::RecordAction;
use crate::record::apply::is_repeated;
use crate::record::authorize::authorize_early;
use crate::record::commit::{Commits, Ending, Waiter, WaitsFor};
use crate::record::deferred::Deferred;
use crate::record::readers::{READER_BYTES, Readers};
use crate::record::repeat::Repeats;
use crate::record::request::{
    Job, JobKind, Step, answer, answer_value, is_under, publish, refuse, stopped,
};
use crate::record::state::{Blocked, Interest, OwnedRecord, Value};
use crate::record::write_queue::{WriteQueue, WriteQueues};
use crate::route::StoreId;
use crate::settings::Settings;
use crate::store::{Incarnation, Loaded, Opened, StoreChange, StoreError, StoreTrouble, Written};
use crate::table::{self, Map, NameMap};
use crate::text::{Name, Payload};
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use crate::work::{MESSAGE_WORK, TurnCosts};

/// Approximate bytes of a record in addition to its name and data: its entries in the tables and its share of their spare room.
const RECORD_OVERHEAD_BYTES: usize = 256;

/// Bytes of records in memory that do not exist or that the requesting sessions may not read, at most. Clients may request ever new names.
/// A client that requests the same name again soon, for example to wait for a record, costs the store nothing.
const ASKED_BYTES_MAX: usize = 256 << 10;

/// If another owner has written a record and the store can't be read, the record is loaded again after this pause.
const SUPERSEDED_LOAD_PAUSE: Duration = Duration::from_secs(1);

/// The records that no session uses, oldest first, and the bytes of all records.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) bytes: usize,
    stamp: u64,
    /// Entries with an outdated stamp are skipped.
    idle: VecDeque<(Name, u64)>,
    /// The same for records that were only requested, each with its bytes.
    asked: VecDeque<(Name, u64, usize)>,
    /// Bytes of the records in `asked`.
    asked_bytes: usize,
}

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
    /// Records that another owner has written, and that must be loaded again.
    superseded_loads: DeadlineQueue<Name>,
    /// Bytes of records that are kept in memory only and can't be evicted.
    pub(super) memory_only_bytes: usize,
    pub(super) repeats: Repeats,
    pub(super) next_epoch: u64,
    /// The work that sessions have caused here in this turn.
    costs: TurnCosts,
    deferred: Deferred,
    /// Bytes of the waiting requests.
    pub(super) waiting_bytes: usize,
}

impl RecordOwner {
    /// Creates it without records in memory.
    pub(crate) fn new(seed: u64, opened: &[Opened], shard: u16) -> Self {
        Self {
            table: NameMap::new(seed),
            readers: table::map(seed),
            to_authorize: VecDeque::new(),
            cache: Cache::default(),
            write_queues: WriteQueues::new(seed, opened, shard),
            superseded_loads: DeadlineQueue::new(),
            memory_only_bytes: 0,
            repeats: Repeats::new(seed),
            next_epoch: 1,
            costs: TurnCosts::new(),
            deferred: Deferred::default(),
            waiting_bytes: 0,
        }
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

    /// Evicts at least `bytes` of idle records, or all idle records if they have fewer. Returns the number of bytes evicted.
    pub(crate) fn shrink(&mut self, settings: &Settings, bytes: usize) -> usize {
        let before = self.cache.bytes;
        self.evict(settings, before.saturating_sub(bytes));
        before - self.cache.bytes
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
                    let kind = JobKind::Bulk {
                        action,
                        serial,
                        reply,
                        correlation,
                        reloaded: None,
                    };
                    self.take(turn, listens, name, job(principal.clone(), kind));
                }
            }
            RecordRequestKind::Reauthorize(name, reauthorization) => {
                let kind = JobKind::Reauthorize {
                    ticket: reauthorization.ticket,
                    serial: reauthorization.serial,
                    epoch: Some(reauthorization.epoch),
                };
                self.take(turn, listens, name, job(principal, kind));
            }
            RecordRequestKind::Read(name) => {
                self.take(turn, listens, name, job(principal, JobKind::Read))
            }
            RecordRequestKind::Head(name) => {
                self.take(turn, listens, name, job(principal, JobKind::Head))
            }
            RecordRequestKind::Delete(name) => {
                self.take(turn, listens, name, job(principal, JobKind::Delete))
            }
            RecordRequestKind::Write(name, write) => {
                self.take(turn, listens, name, job(principal, JobKind::Write(write)));
            }
            RecordRequestKind::Fetch(name, correlation) => {
                let kind = JobKind::Fetch(correlation);
                self.take(turn, listens, name, job(principal, kind));
            }
            RecordRequestKind::Put(name, put) => {
                self.take(turn, listens, name, job(principal, JobKind::Put(put)));
            }
        }
    }

    /// Ends a subscription of a session.
    pub(crate) fn release<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        epoch: u64,
        (session, serial): (SessionId, u32),
    ) {
        let shard = session.address.shard;
        let Some(mut record) = self.table.get_mut(name) else {
            return;
        };
        if record.interest.epoch != epoch {
            return;
        }
        // The session's shard may have requested to reauthorize the subscription.
        for job in record.waiting.iter_mut().flat_map(|waits| &mut waits.jobs) {
            job.forget_subscription(session, serial);
        }
        if record.has_readers {
            self.remove_reader(name, session, serial);
            let Some(kept) = self.table.get_mut(name) else {
                return;
            };
            record = kept;
        }
        if let Some(index) = record
            .interest
            .shards
            .iter()
            .position(|(known, _)| *known == shard)
        {
            let count = &mut record.interest.shards[index].1;
            *count -= 1;
            if *count == 0 {
                record.interest.shards.remove(index);
            }
        }
        if record.interest.shards.is_empty() {
            listens.record_unwanted(turn, name);
            self.settle(turn, name);
        }
    }

    /// Sends the value to the asker. The asker does not wait behind the requests for the record.
    pub(crate) fn read_value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: Name,
        asker: Asker,
    ) {
        // A rule may build a name from a client's data.
        if !turn.shard.is_record_name(&name) {
            return answer_value(turn, name, asker, Err(ReadFailed));
        }
        let (name, record) = self.ensure(turn, name);
        record.is_read_by_rules = true;
        if let Asker::Lagging(session, reader) = &asker
            && record.has_readers
        {
            let job = Job {
                session: *session,
                principal: Arc::clone(&reader.principal),
                kind: JobKind::CatchUp(Arc::clone(reader)),
                values: Vec::new(),
                read_failed: false,
                after: None,
                since: turn.now.monotonic,
                was_deferred: false,
            };
            return self.take_now(turn, listens, name, job);
        }
        if matches!(record.value, Value::Unknown) {
            let waits = record.waiting_mut();
            if waits.askers.len() >= turn.shard.settings.limits.record_waiting_max {
                turn.shard.count(|refused| refused.waiting += 1);
                return answer_value(turn, name, asker, Err(ReadFailed));
            }
            waits.askers.push(asker);
            if waits.blocked == Blocked::No {
                waits.blocked = Blocked::Loading;
            }
            if !waits.loading {
                self.load(turn, &name);
            }
            self.plan_timeout(turn, &name);
        } else {
            let value = record.value.read();
            answer_value(turn, name.clone(), asker, Ok(value));
            self.settle(turn, &name);
        }
    }

    /// Handles a value that a waiting rule has requested.
    pub(crate) fn value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        waiting: &Name,
        read: Name,
        value: Result<Option<Payload>, ReadFailed>,
    ) {
        let Some(waits) = self
            .table
            .get_mut(waiting)
            .and_then(|record| record.waiting.as_mut())
        else {
            return;
        };
        if waits.blocked != Blocked::Rule {
            return;
        }
        waits.blocked = Blocked::No;
        if let Some(job) = waits.jobs.front_mut() {
            match value {
                Ok(value) => job.values.push((read, value)),
                Err(ReadFailed) => job.read_failed = true,
            }
        }
        self.go_on(turn, listens, waiting);
    }

    /// Handles the store's answer to a load.
    pub(crate) fn loaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        result: Result<Loaded, StoreError>,
    ) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        if !matches!(record.value, Value::Unknown) {
            return;
        }
        if let Some(waits) = &mut record.waiting {
            waits.loading = false;
        }
        match result {
            Ok(Loaded::Found(found)) => {
                turn.shard.count_work(found.data.len());
                self.cache.bytes += found.data.len();
                record.value = Value::Present(found);
            }
            Ok(Loaded::Missing) => record.value = Value::Missing,
            Ok(Loaded::Corrupt) | Err(_) => {
                return self.fail_waiting(turn, name, RecordRefusal::LoadFailed, None);
            }
        }
        // The order matters. The value is in the table now, so everything below sees it. Rules of other records that asked for it get it
        // before the jobs run: they asked for the loaded value, and a job may change it. The jobs run last and in their order. Timers of
        // this load are dropped after that, when it is known which jobs still wait.
        let (value, now) = (record.value.read(), record.value.clone());
        let mut superseded = None;
        if let Some(waits) = &mut record.waiting {
            if waits.blocked == Blocked::Loading {
                waits.blocked = Blocked::No;
            }
            superseded = waits.superseded.take();
            for asker in std::mem::take(&mut waits.askers) {
                answer_value(turn, name.clone(), asker, Ok(value.clone()));
            }
        }
        // The subscribers get the other owner's value before the waiting jobs run, because these may publish changes of it.
        if let Some(before) = superseded {
            self.tell_reloaded(turn, listens, name, &before, &now);
        }
        self.go_on(turn, listens, name);
        self.drop_load_timeouts(turn, name);
    }

    /// Handles the store's answer to a commit.
    pub(crate) fn committed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        store: StoreId,
        batch: u64,
        result: Result<Vec<Written>, StoreError>,
    ) {
        let Some(WriteQueue { commits, .. }) = self.write_queues.at_mut(store) else {
            return;
        };
        let now = turn.now.monotonic;
        // The outcome is collected first and applied afterwards: while `commits` is borrowed the table can't change, and settling a record
        // may evict others. Waiters are answered during the collection, because their change is durable regardless of what happens to the
        // record. A clean record may be evicted afterwards, and a superseded one must be loaded again before any job uses it.
        let mut ended = Ended::new(turn);
        match result {
            Ok(written) => commits.committed(now, batch, &written, &mut ended),
            Err(error) if error.trouble == StoreTrouble::StaleTerm => {
                commits.deposed(now, batch, &mut ended);
            }
            Err(_) => commits.failed(batch, now),
        }
        let Ended {
            clean, superseded, ..
        } = ended;
        for name in clean {
            self.settle_with(turn, &name, |record| record.is_dirty = false);
        }
        for (name, from) in superseded {
            self.repeats.forget(&name, from);
            self.superseded(turn, &name);
        }
    }

    /// Handles that another owner has written the record: the value in memory is invalid, and the subscribers get the stored value.
    fn superseded<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        // A record without subscribers and jobs is removed, and the next request loads it. Otherwise the old value is kept in
        // `superseded` until the load: the subscribers have it, and the difference to the stored one decides what they get. Jobs that
        // arrive before that must wait, because they would be decided by a value that the store no longer has.
        if record.interest.shards.is_empty() && record.waiting.is_none() {
            return self.remove(name);
        }
        record.is_dirty = false;
        let before = std::mem::replace(&mut record.value, Value::Unknown);
        self.cache.bytes -= before.data().map_or(0, Payload::len);
        let waits = record.waiting_mut();
        waits.superseded = Some(before);
        if waits.blocked == Blocked::No {
            waits.blocked = Blocked::Loading;
        }
        self.load(turn, name);
        self.plan_timeout(turn, name);
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

    /// The record in the table, with the table's copy of its name: a further lookup by that copy reads no other memory. A new record has no
    /// value yet and is not loaded here: its job may be refused without it.
    fn ensure<E: Effects>(
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
            cache.bytes += name.len() + RECORD_OVERHEAD_BYTES;
            OwnedRecord {
                value: if is_under(prefixes, name) {
                    Value::Missing
                } else {
                    Value::Unknown
                },
                interest: Interest {
                    epoch: *next_epoch,
                    shards: SmallVec::new(),
                },
                waiting: None,
                is_dirty: false,
                has_readers: false,
                is_used: false,
                is_read_by_rules: false,
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

    /// Requests the record from its store at the end of the turn.
    pub(super) fn load<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        if let Some(record) = self.table.get_mut(name) {
            record.waiting_mut().loading = true;
        }
        self.write_queue_mut(turn, name).to_load.push(name.clone());
    }

    /// The same, unless an earlier load is in progress.
    pub(super) fn load_unless_loading<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
    ) {
        let waits = self.table.get(name).and_then(|kept| kept.waiting.as_ref());
        if !waits.is_some_and(|waits| waits.loading) {
            self.load(turn, name);
        }
    }

    /// Runs the job, or queues it: behind the deferred requests of its session, or behind the earlier jobs of the record.
    fn take<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: Name,
        job: Job,
    ) {
        if !self.deferred.has(job.session) || !job.is_deferrable() {
            return self.take_now(turn, listens, name, job);
        }
        if self.deferred.bytes() < turn.shard.settings.limits.deferred_bytes_max {
            return self.deferred.push(name, job);
        }
        turn.shard.count(|refused| refused.deferred += 1);
        let why = job.overload_refusal();
        refuse(turn, &name, job, why);
    }

    /// Runs the job now, or queues it behind the earlier jobs of the record.
    fn take_now<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: Name,
        job: Job,
    ) {
        let (name, record) = self.ensure(turn, name);
        if record.waiting.is_some() {
            return self.queue(turn, &name, job);
        }
        let step = self.run_counted(turn, listens, &name, job);
        let is_used = matches!(step, Step::Done);
        if let Step::Blocked(job, blocked) = step {
            self.wait(turn, &name, job, blocked);
        }
        self.settle_with(turn, &name, |record| record.is_used |= is_used);
    }

    /// Queues a job behind the earlier ones. A denial that does not depend on the record is sent at once: its delay would reveal whether
    /// other sessions use the record.
    fn queue<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, name: &Name, mut job: Job) {
        if !is_repeated(&self.repeats, name, &job)
            && let Some(authorization @ (Authorization::Deny | Authorization::Failed)) =
                authorize_early(turn, &mut job, name, false)
        {
            stopped(turn, name, job, authorization);
            return;
        }
        let waits = self.table.get_mut(name).map(OwnedRecord::waiting_mut);
        let Some(waits) = waits else {
            return;
        };
        if waits.jobs.len() >= turn.shard.settings.limits.record_waiting_max {
            turn.shard.count(|refused| refused.waiting += 1);
            let why = job.overload_refusal();
            return refuse(turn, name, job, why);
        }
        if job.was_deferred {
            // Jobs of its session that wait here came before it, and must not be deferred behind it.
            let earlier = waits.jobs.iter_mut();
            for earlier in earlier.filter(|earlier| earlier.session == job.session) {
                earlier.was_deferred = true;
            }
        }
        let bytes = job.bytes();
        waits.jobs.push_back(job);
        self.waiting_bytes += bytes;
        self.plan_timeout(turn, name);
    }

    /// Runs the job. If its session has then caused too much work in this turn, its later jobs are deferred.
    fn run_counted<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        job: Job,
    ) -> Step {
        let (session, is_deferrable) = (job.session, job.is_deferrable() || job.was_deferred);
        let before = turn.shard.work.get();
        let step = self.run(turn, listens, name, job);
        let work = turn.shard.work.get().wrapping_sub(before) + MESSAGE_WORK as u64;
        let work_max = turn.shard.settings.limits.connection_work_max as u64;
        let sum = self.costs.add(session, work);
        if is_deferrable && work_max > 0 && sum > work_max && !self.deferred.has(session) {
            self.deferred.begin(session);
            let owner = turn.shard.address;
            let work = sum;
            let deferred = WorkEntry::Deferred {
                session,
                owner,
                work,
            };
            turn.post(session.address, Entry::Work(deferred));
        }
        step
    }

    /// Runs deferred requests of a session until they have cost as much as one connection may cost in a turn, and reports that to the
    /// session's shard.
    pub(crate) fn proceed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        session: SessionId,
    ) {
        let work = self.do_deferred(turn, listens, session, |_| true);
        // A session that has again caused too much work stays deferred, even without a waiting request, so that its next request has to
        // wait.
        let work_max = turn.shard.settings.limits.connection_work_max as u64;
        let is_done = work <= work_max && self.deferred.is_empty(session);
        if is_done {
            self.deferred.end(session);
        }
        let owner = turn.shard.address;
        let proceeded = WorkEntry::Proceeded {
            session,
            owner,
            work,
            is_done,
        };
        turn.post(session.address, Entry::Work(proceeded));
    }

    /// Runs deferred requests of a session until they have cost as much as one connection may cost in a turn. Requests that are not
    /// `wanted` are refused. Returns their cost.
    fn do_deferred<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        session: SessionId,
        wanted: impl Fn(&Job) -> bool,
    ) -> u64 {
        let work_max = turn.shard.settings.limits.connection_work_max as u64;
        let mut work = 0;
        while work <= work_max
            && let Some((name, mut job, has_waited)) = self.deferred.pop(session)
        {
            job.was_deferred = true;
            if has_waited && let Some(record) = self.table.get_mut(&name) {
                record.deferred_count = record.deferred_count.saturating_sub(1);
            }
            let before = turn.shard.work.get();
            // The user may have been revoked since the request arrived. The rules run when the request runs, but they do not know of
            // revocations.
            let is_revoked = turn.shard.revocations.covers(&job.principal, turn.now.wall);
            if wanted(&job) && !is_revoked {
                self.take_now(turn, listens, name, job);
            } else {
                refuse(turn, &name, job, RecordRefusal::Denied);
                self.settle(turn, &name);
            }
            work += turn.shard.work.get().wrapping_sub(before) + MESSAGE_WORK as u64;
        }
        work
    }

    /// Handles the end of a session. Its deferred requests that change records still run.
    pub(crate) fn session_ended(&mut self, session: SessionId) {
        self.deferred.session_ended(session);
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
        if let Some(session) = self.deferred.next_ended() {
            self.do_deferred(turn, listens, session, Job::changes_records);
            if self.deferred.is_empty(session) {
                self.deferred.ended_is_done(session);
            }
        }
    }

    /// Whether ended sessions still have requests, or subscribers are still to be authorized, so that the next turn must come at once.
    pub(crate) fn has_work(&self) -> bool {
        self.deferred.has_ended() || !self.to_authorize.is_empty()
    }

    /// Bytes that deferred requests keep.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.deferred.bytes()
    }

    /// The number of requests that were deferred. Only grows.
    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred.count()
    }

    pub(super) fn wait<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        job: Job,
        blocked: Blocked,
    ) {
        if blocked == Blocked::Turn {
            self.to_authorize.push_back(name.clone());
        }
        if let Some(record) = self.table.get_mut(name) {
            let waits = record.waiting_mut();
            waits.blocked = blocked;
            let bytes = job.bytes();
            waits.jobs.push_front(job);
            self.waiting_bytes += bytes;
            self.plan_timeout(turn, name);
        }
    }

    /// Continues with the waiting jobs until one has to wait again.
    pub(super) fn go_on<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
    ) {
        // `blocked` is the only gate: while it is not `No`, the event that clears it calls this function again, so a record never has a
        // job that can run and no caller to run it. The waiting state is removed only when the queue is empty, no load is in flight and
        // no other owner's value is to be fetched. Until then every new job is queued, so no job overtakes an earlier one. The record is
        // settled once at the end, because it must not be evicted while jobs wait for it.
        let mut is_used = false;
        // The sessions of jobs that were deferred here, nearly always none.
        let mut deferred = BTreeSet::new();
        // The jobs run in the order of the queue. A job that blocks goes back to the front, and the later ones wait behind it.
        while let Some(waits) = self
            .table
            .get_mut(name)
            .and_then(|record| record.waiting.as_mut())
            .filter(|waits| waits.blocked == Blocked::No)
        {
            let Some(job) = waits.jobs.pop_front() else {
                if waits.loading {
                    // The load is for rules of other records. The jobs of this record no longer needed it.
                    waits.blocked = Blocked::Loading;
                    break;
                }
                if waits.superseded.is_some() {
                    waits.blocked = Blocked::Loading;
                    self.load(turn, name);
                    break;
                }
                if let Some(record) = self.table.get_mut(name) {
                    record.waiting = None;
                }
                break;
            };
            self.waiting_bytes -= job.bytes();
            // Thousands of requests of one session may have waited for the same record.
            if self.deferred.has(job.session) && job.is_deferrable() {
                deferred.insert(job.session);
                self.deferred.push_older(name.clone(), job);
                if let Some(record) = self.table.get_mut(name) {
                    record.deferred_count = record.deferred_count.saturating_add(1);
                }
                continue;
            }
            match self.run_counted(turn, listens, name, job) {
                Step::Done => is_used = true,
                Step::Denied => {}
                Step::Blocked(job, blocked) => self.wait(turn, name, job, blocked),
            }
        }
        self.defer_later(name, &deferred);
        self.settle_with(turn, name, |record| record.is_used |= is_used);
    }

    /// Defers the jobs of these sessions that still wait for the record: earlier jobs of the sessions were deferred, and must stay before
    /// them.
    fn defer_later(&mut self, name: &Name, sessions: &BTreeSet<SessionId>) {
        if sessions.is_empty() {
            return;
        }
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        let Some(waits) = record.waiting.as_mut() else {
            return;
        };
        for job in std::mem::take(&mut waits.jobs) {
            if sessions.contains(&job.session) && job.is_deferrable() {
                self.waiting_bytes -= job.bytes();
                record.deferred_count = record.deferred_count.saturating_add(1);
                self.deferred.push_older(name.clone(), job);
            } else {
                waits.jobs.push_back(job);
            }
        }
    }

    /// If the record is being loaded, sets a timer. When it ends, the jobs that have waited too long are refused.
    fn plan_timeout<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let loading = self
            .table
            .get(name)
            .and_then(|record| record.waiting.as_ref())
            .is_some_and(|waits| waits.loading);
        if loading {
            let deadline = turn.now.monotonic + turn.shard.settings.load_timeout;
            self.write_queue_mut(turn, name)
                .load_timeouts
                .push(deadline, name.clone());
        }
    }

    /// Drops the timers of loads that have ended, so that a name that was only requested is not kept for as long as a load may take.
    fn drop_load_timeouts<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let settings = &turn.shard.settings;
        let Self {
            table,
            write_queues,
            ..
        } = self;
        let queue = write_queues.of_mut(&settings.routes, name);
        queue.load_timeouts.drop_due_front_while(|deadline, name| {
            // A job that waits for a rule may have to wait for another load. Its timeout still counts from its arrival.
            let Some(waits) = table.get(name).and_then(|record| record.waiting.as_ref()) else {
                return true;
            };
            // Requests wait in the order in which they came, and announcements before them.
            let first = waits
                .jobs
                .iter()
                .find(|job| !matches!(job.kind, JobKind::Announce(_)))
                .map(|job| job.since + settings.load_timeout);
            waits.askers.is_empty() && first.is_none_or(|first| first > deadline)
        });
    }

    /// Refuses the waiting jobs: all of them, or those that came at `before` or earlier while the load continues.
    fn fail_waiting<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        why: RecordRefusal,
        before: Option<Instant>,
    ) {
        let Some(waits) = self
            .table
            .get_mut(name)
            .and_then(|record| record.waiting.as_mut())
        else {
            return;
        };
        for asker in std::mem::take(&mut waits.askers) {
            answer_value(turn, name.clone(), asker, Err(ReadFailed));
        }
        // The first job does not wait for this load, but for a rule or for the next turn.
        if waits.blocked != Blocked::Loading {
            return;
        }
        let too_old = |job: &Job| before.is_none_or(|before| job.since <= before);
        let (failed, left): (Vec<Job>, VecDeque<Job>) = {
            let mut failed = Vec::new();
            let mut left = VecDeque::new();
            for job in waits.jobs.drain(..) {
                if too_old(&job) {
                    failed.push(job)
                } else {
                    left.push_back(job)
                }
            }
            (failed, left)
        };
        waits.jobs = left;
        self.waiting_bytes -= failed.iter().map(Job::bytes).sum::<usize>();
        if before.is_none() {
            self.forget(turn, name);
        }
        for job in failed {
            refuse(turn, name, job, why);
        }
    }

    /// Removes a record that could not be loaded from the table, unless a session is subscribed to it. The next request asks the store
    /// again. If another owner has superseded the value that subscribers have, a timer loads the record again as well.
    fn forget<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        if record.interest.shards.is_empty() {
            return self.remove(name);
        }
        record.value = Value::Unknown;
        let waits = record.waiting.as_ref();
        if waits.is_some_and(|waits| waits.superseded.is_some()) {
            let again = turn.now.monotonic + SUPERSEDED_LOAD_PAUSE;
            self.superseded_loads.push(again, name.clone());
        } else {
            record.waiting = None;
        }
    }

    fn remove(&mut self, name: &Name) {
        if let Some(record) = self.table.remove(name) {
            if record.has_readers
                && let Some(readers) = self.readers.remove(name)
            {
                self.cache.bytes -= readers.count() * READER_BYTES;
            }
            let data = record.value.data().map_or(0, Payload::len);
            self.cache.bytes -= name.len() + RECORD_OVERHEAD_BYTES + data;
        }
    }

    /// Must run after each change of a record's use: notes that the record is idle, if it is, and evicts the idle records that were unused
    /// for longest while the cache exceeds its limit. Few records that were only requested are kept: clients must not make the server
    /// remember ever new names that do not exist or that they may not read.
    fn settle<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        self.settle_with(turn, name, |_| {});
    }

    /// The same with a last change to the record.
    fn settle_with<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        change: impl FnOnce(&mut OwnedRecord),
    ) {
        let settings = &turn.shard.settings;
        if let Some(record) = self.table.get_mut(name) {
            change(record);
            if record.is_unneeded() {
                return self.remove(name);
            }
            // An idle record gets a new stamp and a new queue entry; older entries of it keep their stamp and are skipped. So using a
            // record costs no search in the queue, and the queue stays in the order of the last use. A record that becomes used again
            // keeps its entry, which `remove_idle` checks again before it removes anything. The entries that are outdated are
            // removed below when they outnumber the records, so the queue stays proportional to the table.
            if is_idle(settings, name, record) {
                let cache = &mut self.cache;
                cache.stamp += 1;
                record.stamp = cache.stamp;
                if record.is_only_asked_for() {
                    let data = record.value.data().map_or(0, Payload::len);
                    let bytes = name.len() + RECORD_OVERHEAD_BYTES + data;
                    cache.asked.push_back((name.clone(), record.stamp, bytes));
                    cache.asked_bytes += bytes;
                } else {
                    cache.idle.push_back((name.clone(), record.stamp));
                }
            }
        }
        while self.cache.asked_bytes > ASKED_BYTES_MAX && self.evict_asked(settings) {}
        self.evict(settings, settings.limits.cache_bytes_max);
        if self.cache.idle.len() > 2 * self.table.len() + 1_000 {
            let table = &self.table;
            self.cache.idle.retain(|(name, stamp)| {
                table.get(name).is_some_and(|record| record.stamp == *stamp)
            });
            table::shrink_queue(&mut self.cache.idle);
        }
    }

    /// Evicts idle records until at most `bytes_max` are left or no record is idle: first those that were only requested, then those that
    /// were unused for longest.
    fn evict(&mut self, settings: &Settings, bytes_max: usize) {
        while self.cache.bytes > bytes_max {
            if self.evict_asked(settings) {
                continue;
            }
            let Some((name, stamp)) = self.cache.idle.pop_front() else {
                break;
            };
            self.remove_idle(settings, &name, stamp);
        }
    }

    /// Evicts the oldest record that was only requested. Returns false if no such record is left.
    fn evict_asked(&mut self, settings: &Settings) -> bool {
        let Some((name, stamp, bytes)) = self.cache.asked.pop_front() else {
            return false;
        };
        self.cache.asked_bytes -= bytes;
        self.remove_idle(settings, &name, stamp);
        true
    }

    /// Removes a record that has been idle since it got the stamp.
    fn remove_idle(&mut self, settings: &Settings, name: &Name, stamp: u64) {
        let record = self.table.get(name);
        if record.is_some_and(|record| record.stamp == stamp && is_idle(settings, name, record)) {
            self.remove(name);
        }
    }
}

/// Whether nothing would be lost if the record was removed.
fn is_idle(settings: &Settings, name: &Name, record: &OwnedRecord) -> bool {
    let pinned =
        matches!(record.value, Value::Present(_)) && is_under(&settings.memory_only_prefixes, name);
    record.interest.shards.is_empty() && record.waiting.is_none() && !pinned && !record.is_dirty
}

/// Collects the outcome of a batch and answers the sessions that waited.
struct Ended<'a, 'd, E> {
    turn: &'a mut TurnContext<'d, E>,
    clean: Vec<Name>,
    /// Each with the first key of a write that may not be in the store.
    superseded: Vec<(Name, u64)>,
}

impl<'a, 'd, E: Effects> Ended<'a, 'd, E> {
    fn new(turn: &'a mut TurnContext<'d, E>) -> Self {
        Self {
            turn,
            clean: Vec::new(),
            superseded: Vec::new(),
        }
    }
}

impl<E: Effects> Ending for Ended<'_, '_, E> {
    fn answer(&mut self, name: &Name, waiter: Waiter) {
        let done = waiter.what.done();
        answer(self.turn, waiter.session, name, None, done);
    }

    fn clean(&mut self, name: &Name) {
        self.clean.push(name.clone());
    }

    fn superseded(&mut self, name: &Name, from: u64, waiters: impl Iterator<Item = Waiter>) {
        for waiter in waiters {
            outcome_unknown(self.turn, name, waiter);
        }
        self.superseded.push((name.clone(), from));
    }
}

/// Answers a session that waited for a write whose outcome is unknown.
fn outcome_unknown<E: Effects>(turn: &mut TurnContext<'_, E>, name: &Name, waiter: Waiter) {
    let why = waiter.what.refusal();
    let (action, correlation, write_ack) = match waiter.what {
        WaitsFor::Write {
            action,
            correlation,
            ..
        } => (action, correlation, true),
        WaitsFor::Delete => (RecordAction::Delete, None, false),
        WaitsFor::Remove { correlation, .. } => (RecordAction::Delete, Some(correlation), false),
    };
    let refused = Answer::Refused {
        why,
        action,
        serial: None,
        correlation,
        write_ack,
    };
    answer(turn, waiter.session, name, None, refused);
}
