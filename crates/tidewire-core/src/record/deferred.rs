//! Requests that an owner runs later, because their session has caused it too much work in this turn.
//!
//! They are kept per session, in the order of their arrival, and later requests of that session queue behind them. The session's shard
//! decides when the owner may continue ([`crate::work`]). After the session has ended, the owner continues by itself with the requests
//! that change records. The owner authorizes each request when it runs, so a deferred request can't escape a change of rights.

use std::collections::{BTreeMap, VecDeque};

use crate::address::SessionId;
use crate::record::request::Job;
use crate::text::Name;

/// A request that waits, with the record that it is about.
#[derive(Debug)]
pub(super) struct DeferredJob {
    pub(super) name: Name,
    pub(super) job: Job,
    bytes: usize,
}

/// The deferred requests of one session. As long as it exists, even empty, further requests of the session are deferred.
#[derive(Debug, Default)]
struct Line {
    /// Requests that had waited for a record before, and are older than all of `jobs`.
    older: VecDeque<DeferredJob>,
    jobs: VecDeque<DeferredJob>,
}

/// The deferred requests of an owner.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    lines: BTreeMap<SessionId, Line>,
    /// Sessions that have ended and whose requests are not all done.
    ended: VecDeque<SessionId>,
    bytes: usize,
    /// How many requests were deferred. Only grows.
    count: u64,
}

impl Deferred {
    /// Whether requests of the session have to wait.
    pub(super) fn has(&self, session: SessionId) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&session)
    }

    /// Bytes that the deferred requests keep.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many requests were deferred. Only grows.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Starts to defer the requests of the session.
    pub(super) fn begin(&mut self, session: SessionId) {
        self.lines.entry(session).or_default();
    }

    /// Queues a request behind the others of its session.
    pub(super) fn push(&mut self, name: Name, job: Job) {
        let deferred = self.keep(name, job);
        let line = self.lines.entry(deferred.job.session).or_default();
        line.jobs.push_back(deferred);
    }

    /// Queues a request that had waited for its record, before those that came after it.
    pub(super) fn push_older(&mut self, name: Name, job: Job) {
        let deferred = self.keep(name, job);
        let line = self.lines.entry(deferred.job.session).or_default();
        line.older.push_back(deferred);
    }

    fn keep(&mut self, name: Name, job: Job) -> DeferredJob {
        let bytes = size_of::<DeferredJob>() + name.len() + job.kept_bytes();
        self.bytes += bytes;
        self.count += 1;
        DeferredJob { name, job, bytes }
    }

    /// Takes the session's next request, and returns whether it had waited for its record before.
    pub(super) fn pop(&mut self, session: SessionId) -> Option<(Name, Job, bool)> {
        let line = self.lines.get_mut(&session)?;
        let older = line.older.pop_front();
        let has_waited = older.is_some();
        let deferred = older.or_else(|| line.jobs.pop_front())?;
        self.bytes -= deferred.bytes;
        Some((deferred.name, deferred.job, has_waited))
    }

    /// Whether no request of the session is deferred.
    pub(super) fn is_empty(&self, session: SessionId) -> bool {
        let line = self.lines.get(&session);
        line.is_none_or(|line| line.older.is_empty() && line.jobs.is_empty())
    }

    /// Stops deferring the requests of the session, and drops those that are left.
    pub(super) fn end(&mut self, session: SessionId) {
        if let Some(line) = self.lines.remove(&session) {
            let left = line.older.iter().chain(&line.jobs);
            self.bytes -= left.map(|deferred| deferred.bytes).sum::<usize>();
        }
    }

    /// Notes that the session has ended. Its remaining requests are done in turn with the requests of other ended sessions.
    pub(super) fn session_ended(&mut self, session: SessionId) {
        if self.lines.contains_key(&session) && !self.ended.contains(&session) {
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
