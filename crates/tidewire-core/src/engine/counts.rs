//! Numbers that a shard counts of itself.

use super::Shard;
use crate::backend::BackendCounts;
use crate::history::HistoryCounts;
use crate::latency::LatencyCounts;
use crate::limits::{LagCounts, Refused};
use crate::record::commit::Commits;

/// Numbers for metrics and for callers that wait until a shard is quiet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions in every phase.
    pub sessions: usize,
    /// Sessions whose next answer the shard holds back.
    pub delayed: usize,
    /// Sessions whose login expires at some time.
    pub expiring: usize,
    /// Sessions that the shard ended because their login expired. Only grows.
    pub expired: u64,
    /// Subscriptions, registrations and patterns that ended because the right to them was lost. Only grows.
    pub rights_lost: u64,
    /// Sessions that were ended because their login was revoked. Only grows.
    pub revoked: u64,
    /// Revocations that logins are checked against.
    pub revocations: usize,
    /// Names with subscribers on this shard.
    pub subscribed_names: usize,
    /// Patterns of events with subscribers on this shard.
    pub event_patterns: usize,
    /// Sessions for which events wait until a rule has read a record.
    pub event_waiting: usize,
    /// Records in memory that this shard owns.
    pub records: usize,
    /// Their bytes.
    pub record_bytes: usize,
    /// Records that the store does not have yet.
    pub dirty_records: usize,
    /// Their bytes.
    pub dirty_bytes: usize,
    /// Keys of writes that are remembered.
    pub write_keys: usize,
    /// Commits that failed since the last successful one.
    pub commit_failures: u32,
    /// Acknowledged writes and deletes by the time from their application until the store had them. Only grows.
    pub acknowledgements: LatencyCounts,
    /// Running calls of the rpc names that this shard owns.
    pub calls: usize,
    /// Listen patterns.
    pub patterns: usize,
    /// Names of this shard with subscribers on any shard: records, and events while a provider listens to events.
    pub wanted_names: usize,
    /// Steps of searches for listening providers, and of the ends of their sessions. Only grows.
    pub listen_steps: u64,
    /// Registrations and calls that the ends of sessions, lost rights and time-outs of calls have visited. Only grows.
    pub rpc_steps: u64,
    /// Rpc names of this shard with providers.
    pub provided_rpcs: usize,
    /// Users of this shard that are online.
    pub users_online: usize,
    /// Bytes that the shard keeps for sessions, see [`Shard::kept_bytes`].
    pub kept_bytes: usize,
    /// Queries that are evaluated or wait.
    pub queries: usize,
    /// Live queries of the sessions of this shard.
    pub live_queries: usize,
    /// Live queries that this shard owns. Equal ones of principals with the same rights are one.
    pub owned_queries: usize,
    /// Live queries that watch records of this shard.
    pub watching_queries: usize,
    /// Scopes of this shard with members or subscribers.
    pub scopes: usize,
    /// Answers that wait for several shards.
    pub pending_replies: usize,
    /// Requests that shards of other nodes have not answered.
    pub awaited: usize,
    /// Those of them that are calls.
    pub awaited_calls: usize,
    /// Sessions that do not read fast enough, and the messages that the shard skipped for them.
    pub lag: LagCounts,
    /// Events with history that this shard owns.
    pub history: HistoryCounts,
    /// Names with members that the hub skips because they lag.
    pub lagging_names: usize,
    /// Backends, and the messages for them.
    pub backends: BackendCounts,
    /// How often limits and rules took effect.
    pub refused: Refused,
    /// Counts of subscriptions, online users and calls that would have fallen below zero. Each is a bug. Only grows.
    pub underflows: u64,
    /// Records that were written again, because their store had lost an acknowledged write. Only grows.
    pub written_again: u64,
    /// Sessions whose message waits for a rate.
    pub throttled: usize,
    /// Sessions that owe work.
    pub owing: usize,
    /// How often a session began to owe work. Only grows.
    pub owed: u64,
    /// Bytes of deferred requests of the records that this shard owns.
    pub deferred_bytes: usize,
    /// How many requests were deferred. Only grows.
    pub deferred: u64,
}

impl Shard {
    /// Bytes of the records in memory that this shard owns.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Bytes of requests that are deferred because their sessions have cost too much.
    #[must_use]
    pub fn deferred_bytes(&self) -> usize {
        self.records.deferred_bytes()
    }

    /// Bytes that the shard keeps for sessions in addition to records and histories. They hold names of subscriptions,
    /// registrations and patterns, calls, waiting requests, and the data of a write until it is stored.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.state.sessions.bytes()
            + self.state.hub.bytes()
            + self.listens.bytes()
            + self.rpcs.bytes()
            + self.records.kept_bytes()
            + self.queries.bytes()
            + self.state.scopes.bytes()
            + self.scopes.bytes()
            + self.handover.queue_bytes()
    }

    /// Bytes that are kept, on this shard and at owners, because of the session at this index: records that it is subscribed to
    /// included, each for one of its subscribers.
    #[must_use]
    pub fn kept_for(&self, index: u32) -> usize {
        let session = self.state.sessions.at(index);
        session.map_or(0, |session| session.kept_bytes as usize)
    }

    /// Sets the number of bytes that the engine may additionally keep in this turn. The engine refuses a request without room with
    /// a code that allows a retry; see [`Refused::memory`].
    pub fn set_room(&mut self, bytes: usize) {
        self.state.context.room.set(bytes);
    }

    /// Bytes for which there was no room since the last call.
    pub fn take_lacking(&mut self) -> usize {
        self.state.context.lacking.take()
    }

    /// Whether the store still lacks a change.
    #[must_use]
    pub fn is_uncommitted(&self) -> bool {
        self.records.is_dirty() || self.histories.is_uncommitted()
    }

    /// Whether another node has not answered a read or write of a record by a session of this shard.
    #[must_use]
    pub fn awaits_records(&self) -> bool {
        self.state.awaited.record_count() > 0
    }

    /// Bytes of the events with history that this shard owns.
    #[must_use]
    pub fn history_bytes(&self) -> usize {
        let counts = self.histories.counts();
        counts.bytes + counts.pending_bytes
    }

    /// Records that each store does not have yet, by its number.
    pub fn dirty_by_store(&self) -> impl Iterator<Item = usize> {
        self.records.dirty().map(Commits::count)
    }

    /// Numbers of the moment.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.state.sessions.count(),
            delayed: self.timers.delays.len(),
            expiring: self.timers.expiries.count(),
            expired: self.state.context.expired,
            revoked: self.state.context.revoked,
            revocations: self.state.context.revocations.count(),
            rights_lost: self.reauthorizer.lost_count(),
            subscribed_names: self.state.hub.name_count(),
            event_patterns: self.state.hub.pattern_count(),
            event_waiting: self.state.event_rights.waiting_count(),
            records: self.records.count(),
            record_bytes: self.records.bytes(),
            dirty_records: self.records.dirty().map(Commits::count).sum(),
            dirty_bytes: self.records.dirty().map(Commits::bytes).sum(),
            write_keys: self.records.write_key_count(),
            commit_failures: self.records.dirty().map(Commits::failures).sum(),
            acknowledgements: *self.records.acknowledgements(),
            calls: self.rpcs.call_count(),
            patterns: self.listens.pattern_count(),
            wanted_names: self.listens.wanted_count(),
            listen_steps: self.listens.step_count(),
            rpc_steps: self.rpcs.step_count(),
            provided_rpcs: self.rpcs.name_count(),
            users_online: self.presences.count_online(),
            kept_bytes: self.kept_bytes(),
            queries: self.queries.count(),
            live_queries: self.queries.subscriptions.count(),
            owned_queries: self.queries.live_count(),
            watching_queries: self.records.watched_count(),
            scopes: self.scopes.count(),
            pending_replies: self.state.pending_replies.running.len(),
            awaited: self.state.awaited.len(),
            awaited_calls: self.state.awaited.call_count(),
            lag: self.state.context.lag.get(),
            history: self.histories.counts(),
            backends: self.backends.counts(),
            lagging_names: self.state.hub.lagging_count(),
            refused: self.state.context.refused.get(),
            underflows: self.state.context.underflows.get(),
            written_again: self.records.written_again(),
            throttled: self.rates.waiting_count(),
            owing: self.debtors.len(),
            owed: self.debtors.count(),
            deferred_bytes: self.records.deferred_bytes(),
            deferred: self.records.deferred_count(),
        }
    }
}
