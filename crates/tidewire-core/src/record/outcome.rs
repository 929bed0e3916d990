//! Outcomes of commits: the owner acknowledges durable writes, and loads a record again if another owner has written it.
//!
//! `commit` knows which records and sessions a batch covers. This module applies the outcome to the records.

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::latency::{LatencyCounts, latency_index};
use crate::record::commit::Ending;
use crate::record::job::JobKind;
use crate::record::owner::RecordOwner;
use crate::record::request::answer;
use crate::record::state::{Blocked, Reload, Superseded, Value};
use crate::record::waiter::Waiter;
use crate::record::write_queue::WriteQueue;
use crate::route::StoreId;
use crate::store::{StoreError, Written};
use crate::text::Name;

impl RecordOwner {
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
        let mut ended = Ended::new(turn, &mut self.acknowledgements);
        let mut reason = Reload::Refused;
        match result {
            Ok(written) => commits.committed(now, batch, &written, &mut ended),
            Err(error) if error.trouble.is_eviction() => {
                commits.deposed(now, batch, &mut ended);
                reason = Reload::Deposed;
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
            self.reload(turn, &name, reason);
        }
    }

    /// Loads a record again, because the store may have another value than memory.
    pub(super) fn reload<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        name: &Name,
        reason: Reload,
    ) {
        let Some(record) = self.table.get_mut(name) else {
            return;
        };
        // The old value is kept in `superseded` until the load: the subscribers have it, and the difference to the stored one decides
        // what they get, or whether the old value is written again. Jobs that arrive before that must wait, because they would be decided
        // by a value that the store no longer has. If the store accepts no more writes, and the value has no users, the next request
        // loads it.
        let is_used = !record.interest.shards.is_empty() || record.waiting.is_some();
        if reason == Reload::Deposed && !is_used && !self.watched.has(name) {
            return self.remove(name);
        }
        record.is_dirty = false;
        let before = std::mem::replace(&mut record.value, Value::Unknown);
        self.cache.bytes -= before.bytes();
        let waits = record.waiting_mut();
        waits.superseded = Some(Superseded { before, reason });
        // A transaction must be decided by the stored value, so its part waits for it as well.
        if matches!(waits.blocked, Blocked::No | Blocked::Transaction) {
            waits.blocked = Blocked::Loading;
        }
        if let Some(JobKind::Part(part)) = waits.jobs.front_mut().map(|job| &mut job.kind) {
            part.authorized = None;
        }
        self.load(turn, name);
        self.plan_timeout(turn, name);
    }
}

/// Collects the outcome of a batch and answers the sessions that waited.
struct Ended<'a, 'd, E> {
    turn: &'a mut TurnContext<'d, E>,
    latencies: &'a mut LatencyCounts,
    clean: Vec<Name>,
    /// Each with the first key of a write that may not be in the store.
    superseded: Vec<(Name, u64)>,
}

impl<'a, 'd, E: Effects> Ended<'a, 'd, E> {
    fn new(turn: &'a mut TurnContext<'d, E>, latencies: &'a mut LatencyCounts) -> Self {
        Self {
            turn,
            latencies,
            clean: Vec::new(),
            superseded: Vec::new(),
        }
    }
}

impl<E: Effects> Ending for Ended<'_, '_, E> {
    fn answer(&mut self, name: &Name, waiter: Waiter) {
        // All waiters have the same timeout, so the deadline tells when the write was applied, and no waiter needs the time itself.
        let now = self.turn.now.monotonic + self.turn.shard.settings.write_timeout;
        self.latencies[latency_index(now.since(waiter.deadline))] += 1;
        let name = waiter.answers(name).clone();
        answer(self.turn, waiter.session, &name, None, waiter.done());
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
pub(super) fn outcome_unknown<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    waiter: Waiter,
) {
    let name = waiter.answers(name).clone();
    answer(turn, waiter.session, &name, None, waiter.unknown());
}
