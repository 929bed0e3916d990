//! Requests that an owner runs later, because their session has caused it too much work in this turn.
//!
//! They are kept per session, in the order of their arrival, and later requests of that session queue behind them. The session's shard
//! decides when the owner may continue ([`crate::work`]). After the session has ended, the owner continues by itself with the requests
//! that change records. The owner authorizes each request when it runs, so a deferred request can't escape a change of rights.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, RecordRefusal, WorkEntry};
use crate::listen::ListenOwner;
use crate::record::job::Job;
use crate::record::owner::RecordOwner;
use crate::record::request::refuse;
use crate::text::Name;
use crate::work::MESSAGE_WORK;

/// A request that waits, with the record that it is about.
#[derive(Debug)]
struct DeferredJob {
    name: Name,
    job: Job,
    bytes: usize,
}

/// The deferred requests of one session. As long as it exists, even empty, further requests of the session are deferred.
#[derive(Debug, Default)]
struct SessionQueue {
    /// Requests that had waited for a record before, and are older than all of `jobs`.
    older: VecDeque<DeferredJob>,
    jobs: VecDeque<DeferredJob>,
}

/// The deferred requests of an owner.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    queues: BTreeMap<SessionId, SessionQueue>,
    /// Sessions that have ended and whose requests are not all done.
    ended: VecDeque<SessionId>,
    bytes: usize,
    /// How many requests were deferred. Only grows.
    count: u64,
}

impl Deferred {
    /// Whether requests of the session have to wait.
    pub(super) fn has(&self, session: SessionId) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&session)
    }

    /// Whether no session has to wait.
    pub(super) fn is_unused(&self) -> bool {
        self.queues.is_empty()
    }

    /// Bytes that the deferred requests keep.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many requests were deferred. Only grows.
    fn count(&self) -> u64 {
        self.count
    }

    /// Starts to defer the requests of the session.
    pub(super) fn begin(&mut self, session: SessionId) {
        self.queues.entry(session).or_default();
    }

    /// Queues a request behind the others of its session.
    pub(super) fn push(&mut self, name: Name, job: Job) {
        let deferred = self.keep(name, job);
        let queue = self.queues.entry(deferred.job.session).or_default();
        queue.jobs.push_back(deferred);
    }

    /// Queues a request that had waited for its record, before those that came after it.
    pub(super) fn push_older(&mut self, name: Name, job: Job) {
        let deferred = self.keep(name, job);
        let queue = self.queues.entry(deferred.job.session).or_default();
        queue.older.push_back(deferred);
    }

    fn keep(&mut self, name: Name, job: Job) -> DeferredJob {
        let bytes = size_of::<DeferredJob>() + name.len() + job.kept_bytes();
        self.bytes += bytes;
        self.count += 1;
        DeferredJob { name, job, bytes }
    }

    /// Takes the session's next request, and returns whether it had waited for its record before.
    fn pop(&mut self, session: SessionId) -> Option<(Name, Job, bool)> {
        let queue = self.queues.get_mut(&session)?;
        let older = queue.older.pop_front();
        let has_waited = older.is_some();
        let deferred = older.or_else(|| queue.jobs.pop_front())?;
        self.bytes -= deferred.bytes;
        Some((deferred.name, deferred.job, has_waited))
    }

    /// Whether no request of the session is deferred.
    pub(super) fn is_empty(&self, session: SessionId) -> bool {
        let queue = self.queues.get(&session);
        queue.is_none_or(|queue| queue.older.is_empty() && queue.jobs.is_empty())
    }

    /// Stops deferring the requests of the session, and drops those that are left.
    fn end(&mut self, session: SessionId) {
        if let Some(queue) = self.queues.remove(&session) {
            let left = queue.older.iter().chain(&queue.jobs);
            self.bytes -= left.map(|deferred| deferred.bytes).sum::<usize>();
        }
    }

    /// Notes that the session has ended. Its remaining requests are done in turn with the requests of other ended sessions.
    fn session_ended(&mut self, session: SessionId) {
        if self.queues.contains_key(&session) && !self.ended.contains(&session) {
            self.ended.push_back(session);
        }
    }

    /// Whether an ended session still has requests to be done.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The next ended session, which moves to the end of the queue.
    pub(super) fn next_ended(&mut self) -> Option<SessionId> {
        let session = self.ended.pop_front()?;
        self.ended.push_back(session);
        Some(session)
    }

    /// Forgets an ended session whose requests are all done.
    pub(super) fn ended_is_done(&mut self, session: SessionId) {
        self.end(session);
        self.ended.retain(|ended| *ended != session);
    }
}

impl RecordOwner {
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
    pub(super) fn do_deferred<E: Effects>(
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

    /// The sessions with deferred requests for such names.
    pub(super) fn deferring(&self, is_meant: impl Fn(&Name) -> bool) -> Vec<SessionId> {
        let queues = self.deferred.queues.iter();
        let meant = queues.filter(|(_, queue)| {
            let mut jobs = queue.older.iter().chain(&queue.jobs);
            jobs.any(|deferred| is_meant(&deferred.name))
        });
        meant.map(|(session, _)| *session).collect()
    }

    /// Runs all deferred requests of a session, however much they cost.
    pub(super) fn do_all_deferred<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        listens: &mut ListenOwner,
        session: SessionId,
    ) {
        let has_ended = self.deferred.ended.contains(&session);
        while !self.deferred.is_empty(session) {
            self.do_deferred(turn, listens, session, |job| {
                !has_ended || job.changes_records()
            });
        }
    }

    /// Defers the jobs of these sessions that still wait for the record: earlier jobs of the sessions were deferred, and must stay before
    /// them.
    pub(super) fn defer_later(&mut self, name: &Name, sessions: &BTreeSet<SessionId>) {
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

    /// Handles the end of a session. Its deferred requests that change records still run.
    pub(crate) fn session_ended(&mut self, session: SessionId) {
        self.deferred.session_ended(session);
    }

    /// Handles the end of the sessions of a lost node.
    pub(super) fn defer_lost(&mut self, node: u16) {
        let sessions = self.deferred.queues.keys().copied();
        let lost: Vec<SessionId> = sessions.filter(|id| id.address.node == node).collect();
        for session in lost {
            self.deferred.session_ended(session);
        }
    }

    /// Bytes that deferred requests keep.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.deferred.bytes()
    }

    /// The number of requests that were deferred. Only grows.
    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred.count()
    }
}
