//! The order in which the jobs of a record run.
//!
//! A job runs at once or waits behind earlier jobs of the record. If it needs a load, another record or the next turn, it blocks the
//! record: later jobs of the same record wait, jobs of other records do not. If a session has caused too
//! much work in this turn, its further jobs are deferred instead (`deferred`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Answer, Asker, Entry, ReadFailed, Snapshot, WorkEntry};
use crate::listen::ListenOwner;
use crate::message::RecordBulk;
use crate::permission::Access;
use crate::permission::Authorization;
use crate::record::apply::is_repeated;
use crate::record::authorize::{authorize_early, refuse_by_rule};
use crate::record::owner::RecordOwner;
use crate::record::request::{
    Job, JobKind, Step, answer, answer_value, authorize, refuse, stopped,
};
use crate::record::state::{Blocked, OwnedRecord, Value};
use crate::text::{Name, Payload};
use crate::work::MESSAGE_WORK;

impl RecordOwner {
    /// Runs the job, or queues it: behind the deferred requests of its session, or behind the earlier jobs of the record.
    pub(super) fn take<E: Effects>(
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
    pub(super) fn take_now<E: Effects>(
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

    pub(super) fn run<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        mut job: Job,
    ) -> Step {
        let Some(value) = self.table.get(name).map(|record| record.value.clone()) else {
            return Step::Done;
        };
        match &job.kind {
            JobKind::Announce(_) => self.announce(turn, name, job),
            _ if matches!(value, Value::Unknown) => self.run_unloaded(turn, name, job),
            JobKind::Bulk {
                action: RecordBulk::Notify,
                ..
            } => self.notify(turn, listens, name, job, value),
            JobKind::Bulk { .. } => self.subscribe(turn, listens, name, job, value),
            JobKind::CatchUp(reader) => {
                let reader = Arc::clone(reader);
                let read = Access::RecordRead;
                match authorize(turn, &mut job, read, name, None, value.data()) {
                    Authorization::Allow => {}
                    authorization => {
                        return refuse_by_rule(turn, name, job, read, authorization, &value);
                    }
                }
                let asker = Asker::Lagging(job.session, reader);
                answer_value(turn, name.clone(), asker, Ok(value.read()));
                Step::Done
            }
            JobKind::Reauthorize {
                ticket,
                serial,
                epoch,
            } => {
                let (ticket, serial, epoch) = (*ticket, *serial, *epoch);
                let read = Access::RecordRead;
                match authorize(turn, &mut job, read, name, None, value.data()) {
                    Authorization::Allow => {}
                    authorization => {
                        return refuse_by_rule(turn, name, job, read, authorization, &value);
                    }
                }
                let kept = self.table.get(name);
                if epoch.is_some_and(|epoch| kept.is_some_and(|kept| kept.interest.epoch == epoch))
                {
                    self.add_reader(turn, name, (job.session, serial), &job.principal);
                }
                let lost = None;
                answer(
                    turn,
                    job.session,
                    name,
                    None,
                    Answer::Reauthorized { ticket, lost },
                );
                Step::Done
            }
            JobKind::Read | JobKind::Head => {
                let read = Access::RecordRead;
                match authorize(turn, &mut job, read, name, None, value.data()) {
                    Authorization::Allow => {}
                    authorization => {
                        return refuse_by_rule(turn, name, job, read, authorization, &value);
                    }
                }
                let snapshot = match job.kind {
                    JobKind::Head => Answer::Snapshot(Snapshot::Head(value.version())),
                    _ if matches!(value, Value::Missing) => Answer::NotFound,
                    _ => Answer::Snapshot(value.snapshot()),
                };
                answer(turn, job.session, name, None, snapshot);
                Step::Done
            }
            JobKind::Delete => self.delete(turn, listens, name, job, &value),
            JobKind::Write(_) => self.write(turn, name, job, &value),
            JobKind::Fetch(_) => {
                let read = Access::RecordRead;
                match authorize(turn, &mut job, read, name, None, value.data()) {
                    Authorization::Allow => {}
                    authorization => {
                        return refuse_by_rule(turn, name, job, read, authorization, &value);
                    }
                }
                if let JobKind::Fetch(correlation) = job.kind {
                    let state = match value {
                        Value::Present(record) => Some(Box::new(record)),
                        _ => None,
                    };
                    let fetched = Answer::Fetched { correlation, state };
                    answer(turn, job.session, name, None, fetched);
                }
                Step::Done
            }
            JobKind::Put(_) => self.put_if(turn, listens, name, job, &value),
        }
    }

    /// Refuses a job that is denied regardless of its record. For all other jobs the record is loaded.
    fn run_unloaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        mut job: Job,
    ) -> Step {
        // The result of a patch to an earlier value is no longer valid.
        job.after = None;
        let is_begun = matches!(
            &job.kind,
            JobKind::Bulk {
                reloaded: Some(_),
                ..
            }
        );
        if !is_begun && !is_repeated(&self.repeats, name, &job) {
            match authorize_early(turn, &mut job, name, true) {
                None | Some(Authorization::Allow) => {}
                Some(authorization) => return stopped(turn, name, job, authorization),
            }
        }
        self.load_unless_loading(turn, name);
        Step::Blocked(job, Blocked::Loading)
    }

    /// Blocks the record: the job becomes the first one that waits.
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
    pub(super) fn run_waiting<E: Effects>(
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
        self.run_waiting(turn, listens, waiting);
    }
}
