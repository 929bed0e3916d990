//! The memory that a shard reports to the node's budget, and the connections that it ends when the node uses too much.
//!
//! A session counts with all memory that is used because of it, on this shard and at owners: its outbox and its incomplete input, its
//! subscriptions with the values of their records, its rpcs, its patterns, its calls. The largest sessions on any shard are ended first,
//! so that sessions that only wait for something are not ended because of others that fill the budget.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_core::text::Name;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tidewire_wire::protocol::ResumeRefusal;

use super::Conductor;
use crate::backoff::DisconnectCause;
use crate::connection::{CloseCause, Phase};
use crate::peer_log;
use crate::stats::{add, set};

/// A session that uses less is never ended because of the budget, so that other sessions can't take the memory that it needs to work. If
/// half of an equal share is less, that half applies.
const UNTOUCHED_BYTES: usize = 64 << 10;

/// A session that uses this part of the budget is a cause of the shortage: it may be ended at once, and its reconnects are delayed. Other
/// sessions are ended only if that did not help. They have done nothing wrong.
const CAUSE_PART: usize = 100;

/// Turns that each shard has to evict records, to handle its mail and to report its largest session, before a session is ended. Memory
/// that only one turn needs is free by then: a turn's log lives until the end of the next turn.
const SHARDS_FIRST: u64 = 3;

/// After this time, the other shards no longer wait for a shard that has not made these turns.
const SHARDS_FIRST_MAX: Duration = Duration::from_secs(1);

/// How soon the next of those turns begins.
const SHARDS_FIRST_INTERVAL: Duration = Duration::from_millis(2);

/// After these turns, only causes are ended for this time, on any shard, before other sessions are.
const CAUSES_FIRST: Duration = Duration::from_millis(50);

/// At most this part of the budget is freed at once for requests that found no room.
const WANTED_PART: usize = 8;

/// For this time, records that could not be evicted count as in use, and memory that was missing counts as still requested.
const REMEMBERED: Duration = Duration::from_secs(1);

/// How often a shard looks for the largest sessions while the budget is nearly used up, and wakes the other shards while it is exceeded.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// State of the shedding of sessions.
#[derive(Debug, Default)]
pub(super) struct Shedding {
    /// The time since when the budget is exceeded.
    since: Option<Instant>,
    /// The number of turns of each shard at that time.
    turns: Vec<u64>,
    /// The time at which all shards had made the turns that they have before a session is ended.
    waited: Option<Instant>,
    checked: Instant,
    woken: Instant,
    /// Bytes of the records that could not be evicted at the last attempt, and the time of that attempt.
    pinned: usize,
    tried: Instant,
    /// The time at which memory was last missing.
    lacked: Instant,
    /// How often all unused records were evicted on request.
    clearings: u64,
}

impl Shedding {
    /// When the next look is due, while the budget is exceeded.
    pub(super) fn next_check(&self, now: Instant) -> Option<Instant> {
        self.since.map(|_| now + SHARDS_FIRST_INTERVAL)
    }

    /// Notes that the budget is no longer exceeded.
    fn is_over(&mut self) {
        (self.since, self.waited) = (None, None);
    }
}

impl Conductor {
    /// Sets the memory that the engine may use in this turn.
    pub(super) fn give_room(&mut self) {
        self.engine.set_room(self.memory.budget().room());
    }

    /// Reports the memory of the shard without its connections, and evicts unused records while the node uses too much. This runs at the
    /// end of each turn, before its logs are released, when they are longest.
    ///
    /// Records are reported as spare memory, so that no shard ends sessions while another one has records to evict. That shard is woken
    /// to do so. Records that it could not evict count as in use.
    pub(super) fn settle_memory(&mut self) {
        let log_bytes = self.sink.logs.bytes() + self.sink.replies.bytes();
        let carried_bytes = self.own.0.carried_bytes.load(Ordering::Relaxed);
        let history_bytes = self.engine.history_bytes();
        let deferred_bytes = self.engine.deferred_bytes();
        let kept_bytes = self.engine.kept_bytes();
        let others = log_bytes
            + self.credit.bytes()
            + carried_bytes
            + history_bytes
            + deferred_bytes
            + kept_bytes
            + self.resumable.bytes()
            + self.namespaces.bytes()
            + self.exchanges.bytes();
        let cached = self.engine.record_bytes();
        let now = self.now.monotonic;
        let shedding = &mut self.shedding;
        if now.since(shedding.tried) > REMEMBERED {
            shedding.pinned = 0;
        }
        self.memory
            .report(others + cached, cached.saturating_sub(shedding.pinned));
        let lacking = self.engine.take_lacking();
        if lacking > 0 {
            let wanted_max = self.memory.budget().bytes_max() / WANTED_PART;
            self.memory.report_wanted(lacking.min(wanted_max));
            shedding.lacked = now;
        } else if now.since(shedding.lacked) > REMEMBERED {
            self.memory.report_wanted(0);
        }
        let budget = self.memory.budget();
        let clearings = budget.clearings();
        let is_clearing = std::mem::replace(&mut shedding.clearings, clearings) != clearings;
        let excess = match is_clearing {
            true => usize::MAX,
            false => budget.excess().max(budget.missing()),
        };
        let stats = self.own.stats();
        if excess > 0 {
            let freed = self.engine.shrink_cache(excess);
            let cached = cached - freed;
            if freed < excess {
                (shedding.pinned, shedding.tried) = (cached, now);
            }
            self.memory
                .report(others + cached, cached.saturating_sub(shedding.pinned));
            add(&stats.cache_shrunk_bytes, freed as u64);
        }
        set(&stats.log_bytes, log_bytes as u64);
        set(&stats.kept_bytes, kept_bytes as u64);
        set(&stats.retained_bytes, self.resumable.bytes() as u64);
        set(&stats.resumable_sessions, self.resumable.count() as u64);
        set(
            &stats.detached_sessions,
            self.resumable.detached_count() as u64,
        );
        set(&stats.exchange_sessions, self.exchanges.count() as u64);
        set(&stats.carried_bytes, carried_bytes as u64);
        set(&stats.carried_sessions, self.carried.count() as u64);
    }

    /// Ends the sessions whose unsent bytes of this turn would take more memory than the node has even in an urgent case. This runs before
    /// these bytes are copied into outboxes.
    pub(super) fn end_outgrowing(&mut self) {
        let cause = self.memory.budget().bytes_max() / CAUSE_PART;
        for (bytes, key) in self.event_loop.outgrowing(&self.sink.logs, cause) {
            self.end_holder(key, bytes, true);
        }
    }

    /// Ends the largest sessions while the node uses too much. This runs at the end of each turn, after all reports.
    pub(super) fn shed(&mut self) {
        let now = self.now.monotonic;
        let budget = self.memory.budget();
        self.participant.end_turn();
        if !budget.is_nearly_used() {
            self.shedding.is_over();
            return self.participant.report_largest(0);
        }
        // Requests that found no room were refused. If the server only refused them, the sessions that fill the budget would lock out all
        // other sessions.
        let missing = budget.missing();
        let excess = budget.excess_without_spare().max(missing);
        if budget.excess().max(missing) > 0 && now.since(self.shedding.woken) >= CHECK_INTERVAL {
            // The other shards may have records to evict, or the largest sessions, but be asleep.
            self.shedding.woken = now;
            for handle in self.handles.iter() {
                if handle.index() != self.address.shard {
                    handle.0.mailbox.wake();
                }
            }
        }
        let interval = match excess {
            0 => {
                // There may be room for a moment, between two turns in which a request finds none.
                if !budget.is_wanted() {
                    self.shedding.is_over();
                }
                CHECK_INTERVAL
            }
            _ => {
                if self.shedding.since.is_none() {
                    self.shedding.since = Some(now);
                    self.participant.turns(&mut self.shedding.turns);
                }
                SHARDS_FIRST_INTERVAL
            }
        };
        if now.since(self.shedding.checked) < interval {
            return;
        }
        self.shedding.checked = now;
        let mut holders = self.holders();
        self.participant
            .report_largest(holders.last().map_or(0, |(bytes, _)| *bytes));
        let before = holders.len();
        self.shed_largest(&mut holders, excess);
        let left = holders.last().map_or(0, |(bytes, _)| *bytes);
        self.participant.report_largest(left);
        if holders.len() < before {
            self.settle_memory();
        }
    }

    /// All sessions with the memory that they use, the largest last.
    fn holders(&self) -> Vec<(usize, Key)> {
        let sockets = self.event_loop.holders();
        let connections = self.event_loop.connections();
        let detached = self.resumable.detached();
        let detached = detached.filter(|key| connections.get(*key).is_none());
        let mut holders: Vec<(usize, Key)> = sockets
            .chain(self.carried.holders())
            .chain(detached.map(|key| (0, key)))
            .map(|(held, key)| (held + self.resumable.bytes_of(key), key))
            .map(|(held, key)| (held + self.exchanges.bytes_of(key), key))
            .map(|(held, key)| (held + self.kept_for(key), key))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        holders.sort_unstable();
        holders
    }

    fn shed_largest(&mut self, holders: &mut Vec<(usize, Key)>, mut excess: usize) {
        // Memory is freed in this order: every shard evicts records and reports its largest session (`SHARDS_FIRST` turns); then causes
        // are ended, or at once if it is urgent; then the largest other sessions, down to `untouched`. A shard ends a session only if no
        // other shard has a larger one, so the order holds for the whole node without a lock. `may_end_holders` admits one shard per
        // interval, because the budget shows the effect of an end only after the next reports. Two shards that end sessions for the same
        // shortage would free twice as much.
        let now = self.now.monotonic;
        let shedding = &mut self.shedding;
        let Some(since) = shedding.since else {
            return;
        };
        let bytes_max = self.memory.budget().bytes_max();
        let is_urgent = excess > self.memory.budget().urgent_bytes() - bytes_max;
        let have_turned = self.participant.have_turned(&shedding.turns, SHARDS_FIRST);
        if have_turned || now.since(since) >= SHARDS_FIRST_MAX {
            shedding.waited.get_or_insert(now);
        } else if !is_urgent {
            return;
        }
        let session_count = (holders.len() * self.handles.len()).max(1);
        let untouched = UNTOUCHED_BYTES.min(bytes_max / session_count / 2);
        let cause = bytes_max / CAUSE_PART;
        let least = match shedding.waited {
            Some(waited) if now.since(waited) >= CAUSES_FIRST => untouched,
            _ => cause,
        };
        let least = least.max(self.participant.largest_of_others()).max(1);
        if holders.last().is_none_or(|(bytes, _)| *bytes < least) {
            return;
        }
        let until = match is_urgent {
            true => now + SHARDS_FIRST_INTERVAL,
            false => now + CHECK_INTERVAL,
        };
        if !self.memory.budget().may_end_holders(now.0, until.0) {
            return;
        }
        while excess > 0
            && let Some((bytes, key)) = holders.pop_if(|(bytes, _)| *bytes >= least)
        {
            excess = excess.saturating_sub(bytes);
            self.end_holder(key, bytes, bytes >= cause);
        }
    }

    /// Ends a session because of the memory that it uses.
    fn end_holder(&mut self, key: Key, bytes: usize, is_cause: bool) {
        add(&self.stats().slow_disconnects, 1);
        add(&self.stats().memory_disconnects, 1);
        let Some(connection) = self.event_loop.connections().get(key) else {
            self.end_detached(key, ResumeRefusal::OutboxFull);
            return self.end_carried_holder(key);
        };
        let is_open = connection.state.phase == Phase::Open;
        let address = self.address(key);
        let has_unsent = connection.outbox_bytes() > 0;
        if is_cause && is_open {
            self.note_disconnect(key, DisconnectCause::Slow);
        }
        let session = self.session(key);
        let user = self.engine.user(session).map(Name::as_str);
        let socket_bytes = self.event_loop.held_bytes(key);
        peer_log::peer_line("connections disconnected for their memory", || {
            tracing::info!(
                address = address.map(tracing::field::display),
                user,
                bytes,
                socket_bytes,
                is_cause,
                "disconnected: the node uses more than memory_bytes_max, and this session uses most"
            );
        });
        // The memory of its socket is released only with the socket.
        if has_unsent || !is_open || socket_bytes > bytes / 2 {
            return self.cut_off(key);
        }
        self.say_goodbye(key, CloseCause::Memory);
    }
}
