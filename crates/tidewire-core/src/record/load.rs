//! Loads of records from their stores: their requests, answers, failures and timeouts.
//!
//! Reads of values for rules and lagging sessions wait for the load here, not in the queue of the record's jobs. A timeout refuses only
//! the requests that have waited too long; the load continues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Answer, Asker, OwnedChange, Published, ReadFailed, RecordRefusal, Snapshot};
use crate::listen::ListenOwner;
use crate::permission::{Access, Authorization};
use crate::query::collection::is_under;
use crate::record::authorize::refuse_by_rule;
use crate::record::job::{Job, JobKind, Notify};
use crate::record::owner::RecordOwner;
use crate::record::request::{Step, answer, answer_value, authorize, publish, refuse};
use crate::record::state::{Blocked, Reload, Superseded, Value};
use crate::shard_counts::ShardCounts;
use crate::store::{Loaded, StoreError};
use crate::text::Name;
use crate::time::Instant;

/// If another owner has written a record and the store can't be read, the record is loaded again after this pause.
const SUPERSEDED_LOAD_PAUSE: Duration = Duration::from_secs(1);

impl RecordOwner {
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
        record.note_use();
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
                self.cache.bytes += found.bytes();
                record.value = Value::Present(found);
            }
            Ok(Loaded::Missing) => record.value = Value::Missing,
            Ok(Loaded::Corrupt) | Err(_) => {
                return self.fail_waiting(turn, name, RecordRefusal::LoadFailed, None);
            }
        }
        let superseded = record.waiting.as_mut();
        let mut superseded = superseded.and_then(|waits| waits.superseded.take());
        if let Some(lost) = superseded.take_if(|before| before.is_lost(&record.value)) {
            // The subscribers and watching queries have this value already.
            self.write_again(turn, name, lost.before);
        }
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        // The order matters. The value is in the table now, so everything below sees it. Rules of other records that asked for it get it
        // before the jobs run: they asked for the loaded value, and a job may change it. The jobs run last and in their order. Timers of
        // this load are dropped after that, when it is known which jobs still wait.
        let (value, now) = (record.value.read(), record.value.clone());
        if let Some(waits) = &mut record.waiting {
            if waits.blocked == Blocked::Loading {
                waits.blocked = Blocked::No;
            }
            for asker in std::mem::take(&mut waits.askers) {
                answer_value(turn, name.clone(), asker, Ok(value.clone()));
            }
        }
        // The subscribers get the other owner's value before the waiting jobs run, because these may publish changes of it.
        if let Some(Superseded { before, reason }) = superseded {
            self.watched.reloaded(turn, name, &now);
            let others = self.leave_others(turn, name, reason);
            self.tell_reloaded(turn, listens, name, &before, &now);
            self.take_others(name, others);
        }
        self.run_waiting(turn, listens, name);
        self.drop_load_timeouts(turn, name);
    }

    /// Loads the record again and publishes its new value to the subscribers.
    pub(super) fn notify<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job<Notify>,
        value: Value,
    ) -> Step {
        let (reply, done) = (job.kind.reply, Answer::Snapshot(Snapshot::Nothing));
        if let Some(before) = job.kind.reloaded.take() {
            self.watched.reloaded(turn, name, &value);
            self.tell_reloaded(turn, listens, name, &before, &value);
            answer(turn, job.session, name, reply, done);
            return Step::Done;
        }
        let access = Access::RecordNotify;
        match authorize(turn, &mut job, access, name, None, value.data()) {
            Authorization::Allow => {}
            authorization => return refuse_by_rule(turn, name, job, access, authorization, &value),
        }
        let memory_only = is_under(&turn.shard.settings.memory_only_prefixes, name);
        if memory_only || self.write_queues.is_dirty(&turn.shard.settings, name) {
            // The value in memory is newer than any value that the store can have.
            answer(turn, job.session, name, reply, done);
            return Step::Done;
        }
        job.kind.reloaded = Some(value.clone());
        self.cache.bytes -= value.bytes();
        if let Some(record) = self.table.get_mut(name) {
            record.value = Value::Unknown;
        }
        self.load(turn, name);
        Step::blocked(job, Blocked::Loading)
    }

    /// If this node was evicted, removes the shards of other nodes from the subscribers and returns all of them. The next owner continues the
    /// subscriptions of other nodes, and closes sessions that have to read again; from here the stored value would reach them like a change.
    fn leave_others<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        reason: Reload,
    ) -> Option<(u64, ShardCounts)> {
        let record = self.table.get_mut(name);
        let record = record.filter(|_| turn.shard.is_clustered && reason == Reload::Deposed)?;
        let all = record.interest.shards.clone();
        record.interest.shards.keep_node(turn.shard.address.node);
        Some((record.interest.epoch, all))
    }

    /// Adds them again, unless all subscriptions have ended. They are still to be released.
    fn take_others(&mut self, name: &Name, others: Option<(u64, ShardCounts)>) {
        if let Some((epoch, shards)) = others
            && let Some(record) = self.table.get_mut(name)
            && record.interest.epoch == epoch
        {
            record.interest.shards = shards;
        }
    }

    fn tell_reloaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        before: &Value,
        value: &Value,
    ) {
        match (before, value) {
            (Value::Present(before), Value::Present(now)) if before.is_same_value(now) => {}
            (_, Value::Present(now)) => {
                let full = now.data.clone();
                if turn.shard.is_clustered
                    && let Some(record) = self.table.get(name)
                {
                    let created = Published::Created(now.incarnation);
                    publish(turn, name, &record.interest, &created, None);
                }
                let what = Published::Changed {
                    version: now.version,
                    change: OwnedChange::Update(full.clone()),
                    full,
                };
                self.publish(turn, name, what, None);
            }
            (Value::Present(_), _) => self.end_subscriptions(turn, listens, name, None),
            _ => {}
        }
    }

    /// If the record is being loaded, sets a timer. When it ends, the jobs that have waited too long are refused.
    pub(super) fn plan_timeout<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
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
    pub(super) fn fail_waiting<E: Effects>(
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
            match &job.kind {
                JobKind::Part(part) => self.refuse_transaction(turn, part.transaction, name, why),
                _ => refuse(turn, name, job, why),
            }
        }
    }

    /// Removes a record that could not be loaded from the table, unless a session is subscribed to it. The next request asks the store
    /// again. If the store may lack the value that memory had, or subscribers have, a timer loads the record again as well.
    fn forget<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        let waits = record.waiting.as_ref();
        let reason = waits.and_then(|waits| waits.superseded.as_ref());
        let reason = reason.map(|superseded| superseded.reason);
        if record.interest.shards.is_empty() && reason.is_none_or(|why| why == Reload::Deposed) {
            return self.remove(name);
        }
        record.value = Value::Unknown;
        if reason.is_some() {
            let again = turn.now.monotonic + SUPERSEDED_LOAD_PAUSE;
            self.superseded_loads.push(again, name.clone());
        } else {
            record.waiting = None;
        }
    }
}
