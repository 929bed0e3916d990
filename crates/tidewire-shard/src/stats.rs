//! Counts of a shard, for metrics and health. The shard's thread writes them, and any thread reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewire_config::stores::COUNT_MAX;
use tidewire_core::engine::Counts;
use tidewire_core::latency::LATENCIES;
use tidewire_core::limits::Refused;
use tidewire_core::message::Message;
use tidewire_net::send_batch::Path;

/// The topics that messages are counted by, in the order of [`ShardStats::messages_in`].
pub const TOPICS: [&str; 9] = [
    "connection",
    "auth",
    "event",
    "record",
    "rpc",
    "presence",
    "query",
    "backend",
    "unknown",
];

/// Times that turns are counted by: the shorter ones of the latencies.
pub const TURN_TIMES: [Duration; 15] = *LATENCIES.first_chunk().unwrap();

/// How long a turn is remembered as the longest, at least. Above the usual interval of scrapes, so that none of them misses it.
const LONGEST_TURN_PERIOD: Duration = Duration::from_secs(60);

/// The longest turn of the running period and of the one before. Readers change nothing, so several see the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LongestTurn {
    began: tidewire_core::time::Instant,
    nanos: u64,
    nanos_before: u64,
}

impl LongestTurn {
    /// Notes a turn that ended now.
    pub(crate) fn note(&mut self, now: tidewire_core::time::Instant, nanos: u64) {
        let age = now.since(self.began);
        if age >= LONGEST_TURN_PERIOD {
            let is_next = age < 2 * LONGEST_TURN_PERIOD;
            self.nanos_before = if is_next { self.nanos } else { 0 };
            self.nanos = 0;
            self.began = now;
        }
        self.nanos = self.nanos.max(nanos);
    }

    /// The longest turn of the last one to two periods.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.max(self.nanos_before)
    }
}

/// The index of a turn of this many nanoseconds in [`ShardStats::turns_by_time`].
pub(crate) fn time_index(nanos: u64) -> usize {
    TURN_TIMES.partition_point(|time| *time < Duration::from_nanos(nanos))
}

/// The reasons to refuse a message, by the names of the fields of [`Refused`].
pub const REFUSALS: &[&str] = &[
    "denied",
    "rule_failed",
    "malformed",
    "too_deep",
    "too_large",
    "array_gaps",
    "names",
    "bulk_names",
    "subscriptions",
    "patterns",
    "event_patterns",
    "invalid_patterns",
    "event_waiting",
    "uncompilable",
    "calls",
    "waiting",
    "deferred",
    "handover",
    "dirty",
    "store_full",
    "user_store_full",
    "memory",
    "queries",
    "query_reads",
    "query_results",
    "scopes",
    "connection_rate",
    "user_rate",
];

/// The index of a message's topic in [`TOPICS`].
pub(crate) fn topic_index(message: &Message<'_>) -> usize {
    match message {
        Message::Connection(_) => 0,
        Message::Auth(_) => 1,
        Message::Event(_) => 2,
        Message::Record(_) => 3,
        Message::Rpc(_) => 4,
        Message::Presence(_) | Message::Scope(_) => 5,
        Message::Query(_) => 6,
        Message::Backend(_) => 7,
        Message::UnknownTopic | Message::UnknownAction { .. } => 8,
    }
}

/// Counters and gauges of one shard. Counters only grow; a gauge shows the end of the last turn.
#[derive(Debug, Default)]
pub struct ShardStats {
    /// When the last turn ended, in nanoseconds since the start of the node's clock.
    pub last_turn_end: AtomicU64,
    /// Turns.
    pub turns: AtomicU64,
    /// Turns by duration: at most the duration with the same index in [`TURN_TIMES`], and longer than the one before it. The last entry
    /// counts turns that are longer than all.
    pub turns_by_time: [AtomicU64; TURN_TIMES.len() + 1],
    /// Gauge: the longest of the last turns, in nanoseconds; see [`LongestTurn`].
    pub turn_nanos_max: AtomicU64,
    /// Gauge: the newest view of the cluster whose hand-over is complete at the shard.
    pub settled_view: AtomicU64,
    /// Gauge: the newest view that another shard has announced to this one.
    pub heard_view: AtomicU64,
    /// Gauge: connections, those on their way to the shard included.
    pub connections: AtomicU64,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// Bytes that the kernel took.
    pub bytes_out: AtomicU64,
    /// Messages that arrived, by topic.
    pub messages_in: [AtomicU64; TOPICS.len()],
    /// Messages that were encoded, once per wire format, by topic.
    pub messages_out: [AtomicU64; TOPICS.len()],
    /// Frames that were not a valid message.
    pub undecodable: AtomicU64,
    /// Messages sent to connections and sessions, once per recipient.
    pub deliveries: AtomicU64,
    /// Deliveries by latency, in the buckets of [`LATENCIES`]: from the turn that read the message, on any shard, until the submission of
    /// the sends to the kernel.
    pub deliveries_by_time: [AtomicU64; LATENCIES.len() + 1],
    /// Sends.
    pub sends: AtomicU64,
    /// Sends of which the kernel took only a part or nothing.
    pub short_sends: AtomicU64,
    /// Submissions to an `io_uring`, each of many sends.
    pub ring_submissions: AtomicU64,
    /// Gauge: 1 while sends go through an `io_uring`, else 0.
    pub has_ring: AtomicU64,
    /// Gauge: bytes in outboxes.
    pub outbox_bytes: AtomicU64,
    /// Gauge: bytes of messages that are half received or have to wait.
    pub inbound_bytes: AtomicU64,
    /// Gauge: bytes in the turn logs, which all recipients share.
    pub log_bytes: AtomicU64,
    /// Bytes of unused records that were evicted because the node exceeded its memory budget.
    pub cache_shrunk_bytes: AtomicU64,
    /// Gauge: sessions of HTTP requests and streams.
    pub carried_sessions: AtomicU64,
    /// How often one of their messages waited for a rate of its caller.
    pub caller_waits: AtomicU64,
    /// Gauge: memory of the replies that wait for the tasks of these sessions.
    pub carried_bytes: AtomicU64,
    /// Gauge: sessions that outlive their connections.
    pub resumable_sessions: AtomicU64,
    /// Gauge: the ones of them without a connection.
    pub detached_sessions: AtomicU64,
    /// Gauge: memory of the messages that are kept for these sessions.
    pub retained_bytes: AtomicU64,
    /// How often such a session lost its connection and continued without one.
    pub detaches: AtomicU64,
    /// How often one was resumed on another connection.
    pub resumes: AtomicU64,
    /// How often a peer could not resume a session.
    pub resumes_refused: AtomicU64,
    /// Gauge: sessions of exchanges.
    pub exchange_sessions: AtomicU64,
    /// How often one of these continued on a WebSocket.
    pub transport_switches: AtomicU64,
    /// Gauge: bytes that are kept for sessions, without records and histories.
    pub kept_bytes: AtomicU64,
    /// Connections that were ended because they did not read, or used most memory when the node exceeded its budget.
    pub slow_disconnects: AtomicU64,
    /// The ones of them that used most memory when the node exceeded its budget.
    pub memory_disconnects: AtomicU64,
    /// Connections that were ended because their peer broke the protocol of frames.
    pub protocol_errors: AtomicU64,
    /// Bytes of messages that were compressed, once for all their recipients.
    pub deflated_bytes: AtomicU64,
    /// The size of these messages after compression.
    pub deflated_to_bytes: AtomicU64,
    /// Messages that were sent uncompressed because the turn had reached its limit.
    pub deflate_skips: AtomicU64,
    /// Connections and logins that had to wait because their address or user was closed for exceeding a limit.
    pub backoff_waits: AtomicU64,
    /// The ones of them whose answer was a final refusal.
    pub backoff_refusals: AtomicU64,
    /// Gauge: addresses and users that were recently closed for exceeding a limit. Counts the whole node, on the first shard only.
    pub backoff_entries: AtomicU64,
    /// Gauge: entries found in the mailbox.
    pub mailbox_entries: AtomicU64,
    /// Entries handled, of all turns.
    pub entries: AtomicU64,
    /// Gauge: bytes posted to other shards and not yet handled there.
    pub inflight_bytes: AtomicU64,
    /// How often a connection was not read because of its bytes in flight.
    pub inflight_pauses: AtomicU64,
    /// How often a connection waited because its message goes to a congested shard.
    pub congestion_waits: AtomicU64,
    /// Connections that were cut off because they had lost a right and did not read their earlier messages.
    pub rights_cuts: AtomicU64,
    /// Gauges of the engine.
    pub engine: EngineStats,
}

impl ShardStats {
    /// Publishes how sends reach the kernel.
    pub(crate) fn set_send_path(&self, path: Path) {
        set(&self.has_ring, u64::from(path == Path::Ring));
    }
}

/// Gauges of a shard's engine, as [`Counts`] names them.
#[derive(Debug, Default)]
#[expect(
    missing_docs,
    reason = "each is documented at the field of `Counts`, or of its `LagCounts` or `HistoryCounts`, of the same name"
)]
pub struct EngineStats {
    pub sessions: AtomicU64,
    pub delayed: AtomicU64,
    /// Gauge: sessions whose message waits for a rate.
    pub throttled: AtomicU64,
    pub owing: AtomicU64,
    pub owed: AtomicU64,
    pub deferred_bytes: AtomicU64,
    pub deferred: AtomicU64,
    pub underflows: AtomicU64,
    pub written_again: AtomicU64,
    pub expiring: AtomicU64,
    pub expired: AtomicU64,
    pub rights_lost: AtomicU64,
    pub revoked: AtomicU64,
    pub revocations: AtomicU64,
    pub subscribed_names: AtomicU64,
    pub event_patterns: AtomicU64,
    pub event_waiting: AtomicU64,
    pub records: AtomicU64,
    pub record_bytes: AtomicU64,
    pub dirty_records: AtomicU64,
    pub dirty_bytes: AtomicU64,
    /// The part of `dirty_records` that belongs to each store, by its number.
    pub dirty_by_store: [AtomicU64; COUNT_MAX + 1],
    pub commit_failures: AtomicU64,
    pub write_keys: AtomicU64,
    pub history_pending: AtomicU64,
    /// Acknowledged writes by latency, in the buckets of [`LATENCIES`].
    pub acknowledgements: [AtomicU64; LATENCIES.len() + 1],
    pub calls: AtomicU64,
    /// Calls of this shard's sessions that owners on other nodes have not answered.
    pub awaited_calls: AtomicU64,
    pub patterns: AtomicU64,
    pub lagging_sessions: AtomicU64,
    pub lags: AtomicU64,
    pub skipped_updates: AtomicU64,
    pub caught_up_records: AtomicU64,
    pub skipped_events: AtomicU64,
    pub event_gaps: AtomicU64,
    pub history_names: AtomicU64,
    pub history_events: AtomicU64,
    pub history_bytes: AtomicU64,
    pub history_replayed: AtomicU64,
    pub history_gaps: AtomicU64,
    pub history_forgotten: AtomicU64,
    pub history_removed: AtomicU64,
    /// Backends that are connected to this shard.
    pub backends: AtomicU64,
    pub backend_unconfirmed: AtomicU64,
    pub backend_unconfirmed_bytes: AtomicU64,
    /// Gauge: the age of the oldest message that a backend has not confirmed, in nanoseconds.
    pub backend_lag_nanos: AtomicU64,
    pub backend_waiting: AtomicU64,
    pub backend_events: AtomicU64,
    pub backend_redelivered: AtomicU64,
    pub backend_lost: AtomicU64,
    /// How often each limit, or a rule, refused a client, in the order of [`REFUSALS`].
    pub refused: [AtomicU64; REFUSALS.len()],
}

impl EngineStats {
    pub(crate) fn set_dirty(&self, by_store: impl Iterator<Item = usize>) {
        for (slot, count) in self.dirty_by_store.iter().zip(by_store) {
            set(slot, count as u64);
        }
    }

    pub(crate) fn set(&self, counts: Counts, now: tidewire_core::time::Instant) {
        set(&self.sessions, counts.sessions as u64);
        set(&self.delayed, counts.delayed as u64);
        set(&self.throttled, counts.throttled as u64);
        set(&self.owing, counts.owing as u64);
        set(&self.owed, counts.owed);
        set(&self.deferred_bytes, counts.deferred_bytes as u64);
        set(&self.deferred, counts.deferred);
        set(&self.underflows, counts.underflows);
        set(&self.written_again, counts.written_again);
        set(&self.expiring, counts.expiring as u64);
        set(&self.expired, counts.expired);
        set(&self.rights_lost, counts.rights_lost);
        set(&self.revoked, counts.revoked);
        set(&self.revocations, counts.revocations as u64);
        set(&self.subscribed_names, counts.subscribed_names as u64);
        set(&self.event_patterns, counts.event_patterns as u64);
        set(&self.event_waiting, counts.event_waiting as u64);
        set(&self.records, counts.records as u64);
        set(&self.record_bytes, counts.record_bytes as u64);
        set(&self.dirty_records, counts.dirty_records as u64);
        set(&self.dirty_bytes, counts.dirty_bytes as u64);
        set(&self.commit_failures, u64::from(counts.commit_failures));
        set(&self.write_keys, counts.write_keys as u64);
        for (number, count) in self.acknowledgements.iter().zip(counts.acknowledgements) {
            set(number, count);
        }
        set(&self.calls, counts.calls as u64);
        set(&self.awaited_calls, counts.awaited_calls as u64);
        set(&self.patterns, counts.patterns as u64);
        let lag = counts.lag;
        set(&self.lagging_sessions, lag.sessions as u64);
        set(&self.lags, lag.lags);
        set(&self.skipped_updates, lag.skipped_updates);
        set(&self.caught_up_records, lag.caught_up);
        set(&self.skipped_events, lag.skipped_events);
        set(&self.event_gaps, lag.event_gaps);
        let backends = counts.backends;
        let lag = backends.oldest_posted.map(|posted_at| now.since(posted_at));
        let lag = u64::try_from(lag.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        set(&self.backends, backends.connected as u64);
        set(&self.backend_unconfirmed, backends.unconfirmed as u64);
        set(
            &self.backend_unconfirmed_bytes,
            backends.unconfirmed_bytes as u64,
        );
        set(&self.backend_lag_nanos, lag);
        set(&self.backend_waiting, backends.waiting as u64);
        set(&self.backend_events, backends.events);
        set(&self.backend_redelivered, backends.redelivered);
        set(&self.backend_lost, backends.lost);
        let history = counts.history;
        set(&self.history_names, history.names as u64);
        set(&self.history_events, history.events as u64);
        set(&self.history_bytes, history.bytes as u64);
        set(&self.history_pending, history.pending as u64);
        set(&self.history_replayed, history.replayed);
        set(&self.history_gaps, history.gaps);
        set(&self.history_forgotten, history.forgotten);
        set(&self.history_removed, history.removed);
        let Refused {
            denied,
            rule_failed,
            malformed,
            too_deep,
            too_large,
            array_gaps,
            names,
            bulk_names,
            subscriptions,
            patterns,
            event_patterns,
            invalid_patterns,
            event_waiting,
            uncompilable,
            calls,
            waiting,
            deferred,
            handover,
            dirty,
            store_full,
            user_store_full,
            memory,
            queries,
            query_reads,
            query_results,
            scopes,
            connection_rate,
            user_rate,
        } = counts.refused;
        let refused = [
            denied,
            rule_failed,
            malformed,
            too_deep,
            too_large,
            array_gaps,
            names,
            bulk_names,
            subscriptions,
            patterns,
            event_patterns,
            invalid_patterns,
            event_waiting,
            uncompilable,
            calls,
            waiting,
            deferred,
            handover,
            dirty,
            store_full,
            user_store_full,
            memory,
            queries,
            query_reads,
            query_results,
            scopes,
            connection_rate,
            user_rate,
        ];
        for (number, count) in self.refused.iter().zip(refused) {
            set(number, count);
        }
    }
}

/// Sets a number that only this thread writes.
pub(crate) fn set(number: &AtomicU64, value: u64) {
    number.store(value, Ordering::Relaxed);
}

/// Adds to a number that only this thread writes, which is cheaper than an atomic addition.
pub(crate) fn add(number: &AtomicU64, more: u64) {
    set(number, number.load(Ordering::Relaxed) + more);
}

/// The node's monotonic clock: all shards count from the same instant.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// The start in nanoseconds since the Unix epoch. Later changes of the wall clock have no effect.
    unix_start: u64,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_start = wall.unwrap_or_default().as_nanos();
        Self {
            start: Instant::now(),
            unix_start: u64::try_from(unix_start).unwrap_or(u64::MAX),
        }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Converts an instant of this clock to one of the system.
    #[must_use]
    pub fn at(&self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }

    /// An instant of this clock in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn unix(&self, nanos: u64) -> u64 {
        self.unix_start.saturating_add(nanos)
    }

    /// How long ago an instant of this clock was.
    #[must_use]
    pub fn since(&self, nanos: u64) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_forgotten_after_one_to_two_periods() {
        let mut longest = LongestTurn::default();
        let at = |periods: u32, millis| {
            let since = LONGEST_TURN_PERIOD * periods + Duration::from_millis(millis);
            tidewire_core::time::Instant(0) + since
        };
        for (now, nanos, expected) in [
            (at(0, 1), 5, 5),
            (at(0, 2), 900, 900),
            (at(0, 3), 7, 900),
            (at(1, 1), 8, 900),
            (at(1, 500), 10, 900),
            (at(2, 2), 9, 10),
            (at(5, 0), 3, 3),
        ] {
            longest.note(now, nanos);
            assert_eq!(longest.nanos(), expected, "{now:?}");
        }
    }

    #[test]
    fn turns_are_counted_by_the_time_that_they_do_not_exceed() {
        for (nanos, expected) in [
            (0, 0),
            (10_000, 0),
            (10_001, 1),
            (20_000, 1),
            (500_000_000, 14),
            (500_000_001, 15),
        ] {
            assert_eq!(time_index(nanos), expected, "{nanos}");
        }
        assert!(TURN_TIMES.is_sorted());
    }
}
