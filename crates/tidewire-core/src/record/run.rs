//! The order in which the jobs of a record run.
//!
//! A job runs at once or waits behind earlier jobs of the record. If it needs a load, another record or the next turn, it blocks the
//! record: later jobs of the same record wait, jobs of other records do not. If a session has caused too
//! much work in this turn, its further jobs are deferred instead (`deferred`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, Asker, Entry, ReadFailed, Reauthorization, RecordOperation, RecordRead, Snapshot,
    WorkEntry,
};
use crate::listen::ListenOwner;
use crate::permission::{Access, Authorization};
use crate::record::authorize::{authorize_early, refuse_by_rule};
use crate::record::job::{Delete, Job, JobKind, Kind};
use crate::record::owner::RecordOwner;
use crate::record::request::{Step, answer, answer_value, authorize, refuse, stopped};
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
        if let JobKind::Requested(RecordOperation::Transaction(_)) = &job.kind {
            return self.begin_transaction(turn, listens, name, job);
        }
        let (name, record) = self.ensure(turn, name);
        record.note_use();
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
        if !self.is_repeated(name, &job)
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
        self.charge(turn, (session, is_deferrable), before);
        step
    }

    /// Charges a session for the work since `before`. If it has then caused too much work in this turn, its later requests are deferred.
    /// Requests that the server has created are charged as well, but do not begin that.
    pub(super) fn charge<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (session, is_deferrable): (SessionId, bool),
        before: u64,
    ) {
        let work = turn.shard.work.get().wrapping_sub(before) + MESSAGE_WORK as u64;
        let sum = self.costs.add(session, work);
        let is_alone = self.deferred.is_unused() && self.costs.is_alone(sum);
        let work_max = turn.shard.settings.limits.session_work_max(is_alone);
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
    }

    pub(super) fn run<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        name: &Name,
        job: Job,
    ) -> Step {
        let Some(value) = self.table.get(name).map(|record| record.value.clone()) else {
            return Step::Done;
        };
        if matches!(value, Value::Unknown) && !matches!(job.kind, JobKind::Announce(_)) {
            return self.run_unloaded(turn, name, job);
        }
        let (job, kind) = job.split();
        match kind {
            JobKind::Announce(change) => self.announce(turn, name, job.with(change)),
            // `continue_transaction` decides it, as soon as all parts are here.
            JobKind::Part(part) => Step::blocked(job.with(part), Blocked::Transaction),
            // `take_now` has divided it.
            JobKind::Requested(RecordOperation::Transaction(_)) => Step::Done,
            JobKind::Notify(notify) => self.notify(turn, listens, name, job.with(notify), value),
            JobKind::Subscribe(subscribe) => {
                self.subscribe(turn, listens, name, job.with(subscribe), value)
            }
            JobKind::Resume(resume) => self.resume(turn, listens, name, job.with(resume), &value),
            JobKind::CatchUp(reader) => {
                let job = match authorized_reader(turn, name, job.with(reader), &value) {
                    ControlFlow::Continue(job) => job,
                    ControlFlow::Break(step) => return step,
                };
                let asker = Asker::Lagging(job.session, job.kind);
                answer_value(turn, name.clone(), asker, Ok(value.read()));
                Step::Done
            }
            JobKind::Requested(RecordOperation::Read(read)) => {
                self.read(turn, name, job.with(read), value)
            }
            JobKind::Requested(RecordOperation::Delete) => {
                self.delete(turn, listens, name, job.with(Delete), &value)
            }
            JobKind::Requested(RecordOperation::Write(write)) => {
                self.write(turn, name, job.with(write), &value)
            }
            JobKind::Requested(RecordOperation::Put(put)) => {
                self.put_if(turn, listens, name, job.with(put), &value)
            }
        }
    }

    fn read<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        job: Job<RecordRead>,
        value: Value,
    ) -> Step {
        let job = match authorized_reader(turn, name, job, &value) {
            ControlFlow::Continue(job) => job,
            ControlFlow::Break(step) => return step,
        };
        let read = match job.kind {
            RecordRead::Value if matches!(value, Value::Missing) => Answer::NotFound,
            RecordRead::Value => Answer::Snapshot(value.snapshot()),
            RecordRead::Version => Answer::Snapshot(Snapshot::Head(value.version())),
            RecordRead::State(correlation) => {
                let state = match value {
                    Value::Present(record) => Some(Box::new(record)),
                    _ => None,
                };
                Answer::Fetched { correlation, state }
            }
            RecordRead::Right(Reauthorization {
                ticket,
                serial,
                epoch,
            }) => {
                let kept = self.table.get(name);
                if epoch.is_some_and(|epoch| kept.is_some_and(|kept| kept.interest.epoch == epoch))
                {
                    self.add_reader(turn, name, (job.session, serial), &job.principal);
                }
                Answer::Reauthorized { ticket, lost: None }
            }
        };
        answer(turn, job.session, name, None, read);
        Step::Done
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
        let is_begun = match &mut job.kind {
            JobKind::Notify(notify) => notify.reloaded.is_some(),
            JobKind::Part(part) => {
                part.authorized = None;
                true
            }
            _ => false,
        };
        if !is_begun && !self.is_repeated(name, &job) {
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
        self.continue_transaction(turn, listens, name);
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

/// The job, if its session may read the record.
fn authorized_reader<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job<K>,
    value: &Value,
) -> ControlFlow<Step, Job<K>> {
    let read = Access::RecordRead;
    match authorize(turn, &mut job, read, name, None, value.data()) {
        Authorization::Allow => ControlFlow::Continue(job),
        authorization => {
            ControlFlow::Break(refuse_by_rule(turn, name, job, read, authorization, value))
        }
    }
}
