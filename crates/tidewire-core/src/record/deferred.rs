//! Requests that an owner does later, because their session has cost it enough for this turn.
//!
//! They are kept per session, in the order in which they came, and everything later of that session queues behind them. The
//! session's shard says when the owner may go on ([`crate::work`]); after the session has ended the owner goes on by itself, with the
//! requests that change records. Each request is authorized when it is done, so nothing deferred escapes a change of rights.

use std::collections::{BTreeMap, VecDeque};

use crate::address::SessionId;
use crate::record::job::Job;
use crate::text::Name;

/// A request that waits, with the record that it is about.
#[derive(Debug)]
pub(super) struct DeferredJob {
    pub(super) name: Name,
    pub(super) job: Job,
    bytes: usize,
}

/// What is deferred of one session. It may be empty: then the next request of the session will be deferred.
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

    /// Later requests of the session have to wait from now on.
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

    /// Takes the session's next request, and says whether it had waited for its record before.
    pub(super) fn pop(&mut self, session: SessionId) -> Option<(Name, Job, bool)> {
        let line = self.lines.get_mut(&session)?;
        let older = line.older.pop_front();
        let has_waited = older.is_some();
        let deferred = older.or_else(|| line.jobs.pop_front())?;
        self.bytes -= deferred.bytes;
        Some((deferred.name, deferred.job, has_waited))
    }

    /// Whether nothing of the session is left.
    pub(super) fn is_empty(&self, session: SessionId) -> bool {
        let line = self.lines.get(&session);
        line.is_none_or(|line| line.older.is_empty() && line.jobs.is_empty())
    }

    /// Requests of the session are done at once again.
    pub(super) fn end(&mut self, session: SessionId) {
        if let Some(line) = self.lines.remove(&session) {
            let left = line.older.iter().chain(&line.jobs);
            self.bytes -= left.map(|deferred| deferred.bytes).sum::<usize>();
        }
    }

    /// The session has ended: what is left of it is done in turn with others that have.
    pub(super) fn session_ended(&mut self, session: SessionId) {
        if self.lines.contains_key(&session) && !self.ended.contains(&session) {
            self.ended.push_back(session);
        }
    }

    /// Whether sessions that have ended left something to do.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The next of the sessions that have ended, which goes to the end of their line.
    pub(super) fn next_ended(&mut self) -> Option<SessionId> {
        let session = self.ended.pop_front()?;
        self.ended.push_back(session);
        Some(session)
    }

    /// Nothing is left of a session that has ended.
    pub(super) fn ended_is_done(&mut self, session: SessionId) {
        self.end(session);
        self.ended.retain(|ended| *ended != session);
    }
}
