//! The metrics of `/metrics`; [`exposition`] selects the format.
//!
//! Each shard has its own counters. A collector sums them for each request.

mod backend;
pub mod cluster;
pub mod exposition;
pub mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value, json};
use tidewire_core::latency::{LATENCIES, LatencyCounts};
use tidewire_shard::handle::ShardHandle;
use tidewire_shard::stats::{REFUSALS, ShardStats, TOPICS, TURN_TIMES};
use tidewire_store::thread::StoreHealth;

use crate::refusal::RequestRefusals;
use exposition::Exposition;

/// The metrics of the front, and the collectors of all others.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Sockets accepted.
    pub accepted: Counter,
    /// How often accepting was paused because no file descriptor was free.
    pub accept_pauses: Counter,
    /// WebSockets opened.
    pub upgrades: Counter,
    /// TLS handshakes that were completed.
    pub tls_handshakes: Counter,
    /// TLS handshakes that failed.
    pub tls_handshake_failures: Counter,
    /// HTTP/2 connections.
    pub http2_connections: Counter,
    /// HTTP/2 connections that the server ended because of a flood.
    pub http2_floods: Counter,
    /// How often the certificate was read again successfully.
    pub tls_certificate_reloads: Counter,
    /// 1 while the files of the certificate are invalid and an older certificate is in use, else 0.
    pub tls_certificate_stale: Gauge,
    /// How often the rule file was read again successfully.
    pub rules_reloads: Counter,
    /// 1 while the rule file is invalid and older rules are in force, else 0.
    pub rules_stale: Gauge,
    /// 1 in development mode, else 0.
    pub development_mode: Gauge,
    /// 1 if acknowledged writes may be lost, as `store.durability` allows, else 0.
    pub store_relaxed: Gauge,
    /// Requests refused because of their Origin or Host.
    pub origin_refusals: Counter,
    /// Upgrades refused because of `limits.connections_max`.
    pub connection_refusals: Counter,
    /// Connections refused because of `limits.connections_per_address_max`.
    pub address_refusals: Counter,
    /// Connections closed because their PROXY protocol header was missing or invalid, or because the peer may not send one.
    pub proxy_refusals: Counter,
    /// HTTP requests refused, by cause.
    pub refused_requests: RequestRefusals,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tidewire");
        let development_mode = Gauge::default();
        let help = "1 in development mode, else 0";
        registry.register("development_mode", help, development_mode.clone());
        let store_relaxed = Gauge::default();
        let help = "1 if acknowledged writes may be lost, as store.durability allows, else 0";
        registry.register("store_relaxed", help, store_relaxed.clone());
        let tls_certificate_stale = Gauge::default();
        let help =
            "1 while the certificate files are invalid and an older certificate is in use, else 0";
        registry.register("tls_certificate_stale", help, tls_certificate_stale.clone());
        let rules_stale = Gauge::default();
        let help = "1 while the rule file is invalid and older rules are in force, else 0";
        registry.register("rules_stale", help, rules_stale.clone());
        let refused_requests = RequestRefusals::registered(&mut registry);
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            accepted: counter("sockets_accepted", "Sockets accepted"),
            accept_pauses: counter(
                "accept_pauses",
                "Times that accepting was paused because no file descriptor was left",
            ),
            upgrades: counter("websockets_opened", "WebSockets opened"),
            origin_refusals: counter(
                "origin_refusals",
                "Requests refused because of their Origin or Host",
            ),
            connection_refusals: counter(
                "connection_refusals",
                "WebSockets refused because of limits.connections_max",
            ),
            address_refusals: counter(
                "address_refusals",
                "Connections refused because of limits.connections_per_address_max",
            ),
            proxy_refusals: counter(
                "proxy_refusals",
                "Connections closed because their PROXY protocol header was missing, invalid or not trusted",
            ),
            tls_handshakes: counter("tls_handshakes", "TLS handshakes completed"),
            tls_handshake_failures: counter("tls_handshake_failures", "TLS handshakes that failed"),
            http2_connections: counter("http2_connections", "HTTP/2 connections opened"),
            http2_floods: counter(
                "http2_floods",
                "HTTP/2 connections closed because of a flood of resets or frames",
            ),
            tls_certificate_reloads: counter(
                "tls_certificate_reloads",
                "Successful reloads of the certificate",
            ),
            rules_reloads: counter(
                "rules_reloads",
                "Successful reloads of the permission rules",
            ),
            rules_stale,
            refused_requests,
            tls_certificate_stale,
            development_mode,
            store_relaxed,
            registry: Mutex::new(registry),
        }
    }
}

impl Metrics {
    /// Adds metrics that are collected for each request.
    pub fn register(&self, collector: Box<dyn Collector>) {
        self.registry.lock().register_collector(collector);
    }

    /// Adds metrics of another part of the server.
    pub fn add(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Adds a counter of another part of the server.
    pub fn register_counter(&self, name: &str, help: &str, counter: &Counter) {
        self.registry.lock().register(name, help, counter.clone());
    }

    /// Adds a gauge of another part of the server.
    pub fn register_gauge(&self, name: &str, help: &str, gauge: &Gauge) {
        self.registry.lock().register(name, help, gauge.clone());
    }

    /// All metrics in the given format.
    #[must_use]
    pub fn text(&self, exposition: Exposition) -> String {
        let mut text = String::new();
        let registry = self.registry.lock();
        // Writing to a string fails only if a collector fails. The text up to that point is still valid.
        let _ = encode(&mut text, &registry);
        drop(registry);
        match exposition {
            Exposition::Text => exposition::text_of(&text),
            Exposition::OpenMetrics => text,
        }
    }
}

/// Counts of latencies in the buckets of [`LATENCIES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    /// Deliveries.
    pub(crate) delivery: LatencyCounts,
    /// Acknowledged writes.
    pub(crate) acknowledgement: LatencyCounts,
}

/// The metrics of the shards and stores, collected for each request.
#[derive(Clone)]
pub struct ShardNumbers {
    shards: Arc<[ShardHandle]>,
    stores: Vec<(String, Arc<StoreHealth>)>,
}

impl ShardNumbers {
    /// The metrics of these shards, and of these stores by name.
    #[must_use]
    pub fn new(shards: Arc<[ShardHandle]>, stores: Vec<(String, Arc<StoreHealth>)>) -> Self {
        Self { shards, stores }
    }

    /// The sum of a number over all shards.
    pub(crate) fn sum(&self, number: impl Fn(&ShardStats) -> &AtomicU64) -> u64 {
        let numbers = self
            .shards
            .iter()
            .map(|shard| number(shard.stats()).load(Ordering::Relaxed));
        numbers.fold(0, u64::wrapping_add)
    }

    /// The metrics of all shards and stores as JSON, for the admin page. They have the same names as in `/metrics`.
    #[must_use]
    pub fn figures(&self) -> Value {
        let by_name = |numbers: [&[Number]; 2]| -> Map<String, Value> {
            let numbers = numbers.into_iter().flatten();
            numbers
                .map(|(name, _, number)| ((*name).to_owned(), self.sum(number).into()))
                .collect()
        };
        let topics = TOPIC_COUNTERS.iter().map(|(name, _, numbers)| {
            let by_topic: Map<String, Value> = TOPICS
                .iter()
                .enumerate()
                .map(|(index, topic)| {
                    let count = self.sum(|stats| &numbers(stats)[index]);
                    ((*topic).to_owned(), count.into())
                })
                .collect();
            ((*name).to_owned(), Value::Object(by_topic))
        });
        let refused = REFUSALS.iter().enumerate().map(|(index, cause)| {
            let count = self.sum(|stats| &stats.engine.refused[index]);
            ((*cause).to_owned(), Value::from(count))
        });
        let stores = self
            .stores
            .iter()
            .enumerate()
            .map(|(number, (name, store))| {
                let mut figures: Map<String, Value> = STORE_COUNTERS
                    .iter()
                    .map(|(name, _, number)| {
                        let count = number(store).load(Ordering::Relaxed);
                        ((*name).to_owned(), count.into())
                    })
                    .collect();
                let dirty = self.sum(|stats| &stats.engine.dirty_by_store[number]);
                let commit = Duration::from_nanos(store.commit_ns.load(Ordering::Relaxed));
                figures.insert("name".into(), name.as_str().into());
                figures.insert("store_dirty_records".into(), dirty.into());
                figures.insert("store_commit_seconds".into(), commit.as_secs_f64().into());
                let unanswered = store.unanswered().as_secs_f64();
                figures.insert("store_unanswered_seconds".into(), unanswered.into());
                Value::Object(figures)
            });
        let latencies = self.latencies();
        json!({
            "counters": by_name([COUNTERS, backend::COUNTERS]),
            "gauges": by_name([GAUGES, backend::GAUGES]),
            "topics": topics.collect::<Map<_, _>>(),
            "refused": refused.collect::<Map<_, _>>(),
            "stores": stores.collect::<Vec<_>>(),
            "latencies": {
                "upTo": LATENCIES.map(|time| time.as_secs_f64()),
                "delivery": latencies.delivery,
                "acknowledgement": latencies.acknowledgement,
            },
            "turns": {
                "upTo": TURN_TIMES.map(|time| time.as_secs_f64()),
                "counts": self.turns_by_time(),
            },
        })
    }

    /// Turns of all shards in the order of [`ShardStats::turns_by_time`].
    pub(crate) fn turns_by_time(&self) -> [u64; TURN_TIMES.len() + 1] {
        std::array::from_fn(|index| self.sum(|stats| &stats.turns_by_time[index]))
    }

    /// The latencies of all shards.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            delivery: std::array::from_fn(|index| {
                self.sum(|stats| &stats.deliveries_by_time[index])
            }),
            acknowledgement: std::array::from_fn(|index| {
                self.sum(|stats| &stats.engine.acknowledgements[index])
            }),
        }
    }

    /// Messages received by all shards.
    pub(crate) fn messages_in(&self) -> u64 {
        let topics = 0..TOPICS.len();
        topics
            .map(|topic| self.sum(|stats| &stats.messages_in[topic]))
            .sum()
    }

    /// The sum of a number over all stores.
    pub(crate) fn store_sum(&self, number: impl Fn(&StoreHealth) -> u64) -> u64 {
        self.stores.iter().map(|(_, store)| number(store)).sum()
    }

    /// The longest turn of any shard in the last one to two minutes.
    fn longest_turn(&self) -> Duration {
        let turns = self
            .shards
            .iter()
            .map(|shard| shard.stats().turn_nanos_max.load(Ordering::Relaxed));
        Duration::from_nanos(turns.max().unwrap_or(0))
    }
}

impl ShardNumbers {
    /// Encodes the histograms of times. A sum uses the upper bound of each bucket, so it is as exact as the histogram.
    fn encode_times(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help =
            "Duration of the turns of all shards; the sum uses the upper bound of each bucket";
        encode_histogram(encoder, "turn", help, &TURN_TIMES, &self.turns_by_time())?;
        let latencies = self.latencies();
        let help = "Time from the turn that read a message until its submission to the kernel, once per recipient; \
                    the sum uses the upper bound of each bucket";
        encode_histogram(encoder, "delivery", help, &LATENCIES, &latencies.delivery)?;
        let help = "Time from the application of a write until the store had it, for writes that clients wait for; \
                    the sum uses the upper bound of each bucket";
        let counts = &latencies.acknowledgement;
        encode_histogram(encoder, "write_acknowledgement", help, &LATENCIES, counts)
    }

    /// Encodes one metric of each store, with a label only if there are several stores.
    fn encode_stores<M: EncodeMetric>(
        &self,
        mut family: MetricEncoder<'_>,
        number: impl Fn(usize, &StoreHealth) -> M,
    ) -> Result<(), std::fmt::Error> {
        if let [(_, store)] = &self.stores[..] {
            return number(0, store).encode(family);
        }
        for (index, (name, store)) in self.stores.iter().enumerate() {
            let labels = [("store", name.as_str())];
            number(index, store).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A metric of a store: its name, its help text, and its value.
type StoreNumber = (&'static str, &'static str, fn(&StoreHealth) -> &AtomicU64);

const STORE_COUNTERS: [StoreNumber; 7] = [
    (
        "store_commits",
        "Successful commits, one sync each",
        |store| &store.commit_count,
    ),
    ("store_writes", "Records that were written", |store| {
        &store.write_count
    }),
    (
        "store_written_bytes",
        "Bytes of the names and values of these records",
        |store| &store.written_bytes,
    ),
    (
        "store_refused_writes",
        "Writes dropped because another server had written the record",
        |store| &store.refused_write_count,
    ),
    ("store_failed_commits", "Commits that failed", |store| {
        &store.failed_commit_count
    }),
    (
        "store_loads",
        "Names whose records were looked up in the store",
        |store| &store.load_count,
    ),
    (
        "store_corrupt_records",
        "Records that failed their checksum",
        |store| &store.corrupt_count,
    ),
];

const STORE_GAUGES: [StoreNumber; 2] = [
    (
        "store_used_bytes",
        "Bytes in use in the database, for stores in a data folder",
        |store| &store.used_bytes,
    ),
    (
        "store_full_users",
        "Users that have used up limits.user_store_bytes_max",
        |store| &store.full_users,
    ),
];

impl std::fmt::Debug for ShardNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardNumbers")
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

/// A metric of a shard: its name, its help text, and its value.
type Number = (&'static str, &'static str, fn(&ShardStats) -> &AtomicU64);
/// A metric of a shard with one value per topic.
type TopicNumbers = (
    &'static str,
    &'static str,
    fn(&ShardStats) -> &[AtomicU64; TOPICS.len()],
);

const COUNTERS: &[Number] = &[
    ("turns", "Turns of all shards", |stats| &stats.turns),
    ("received_bytes", "Bytes read from WebSockets", |stats| {
        &stats.bytes_in
    }),
    (
        "sent_bytes",
        "Bytes written to WebSockets and accepted by the kernel",
        |stats| &stats.bytes_out,
    ),
    (
        "undecodable_frames",
        "Frames that could not be decoded",
        |stats| &stats.undecodable,
    ),
    (
        "deliveries",
        "Messages delivered to connections and sessions, once per recipient",
        |stats| &stats.deliveries,
    ),
    (
        "session_detaches",
        "Sessions that lost their connection and continued without one",
        |stats| &stats.detaches,
    ),
    (
        "session_resumes",
        "Sessions that were resumed on another connection",
        |stats| &stats.resumes,
    ),
    (
        "session_resumes_refused",
        "Requests to resume a session that were refused",
        |stats| &stats.resumes_refused,
    ),
    (
        "polling_upgrades",
        "Polling sessions that continued on a WebSocket",
        |stats| &stats.transport_switches,
    ),
    ("sends", "Send operations", |stats| &stats.sends),
    (
        "short_sends",
        "Send operations that the kernel accepted only in part",
        |stats| &stats.short_sends,
    ),
    (
        "ring_submissions",
        "Submissions to an io_uring, each with many send operations",
        |stats| &stats.ring_submissions,
    ),
    (
        "slow_disconnects",
        "Connections closed because the client did not read",
        |stats| &stats.slow_disconnects,
    ),
    (
        "lags",
        "Times that a session that reads too slowly began to lag",
        |stats| &stats.engine.lags,
    ),
    (
        "lag_skipped_updates",
        "Record updates skipped for lagging sessions, replaced by a later snapshot, once per session",
        |stats| &stats.engine.skipped_updates,
    ),
    (
        "lag_caught_up_records",
        "Record snapshots sent to sessions that caught up after lagging",
        |stats| &stats.engine.caught_up_records,
    ),
    (
        "lag_skipped_events",
        "Events skipped for lagging sessions, once per session",
        |stats| &stats.engine.skipped_events,
    ),
    (
        "lag_event_gaps",
        "Event gaps reported to sessions that had lagged",
        |stats| &stats.engine.event_gaps,
    ),
    (
        "work_waits",
        "Times that a session had to wait because it exceeded limits.connection_work_max",
        |stats| &stats.engine.owed,
    ),
    (
        "deferred_requests",
        "Record requests that waited because their session exceeded limits.connection_work_max",
        |stats| &stats.engine.deferred,
    ),
    (
        "count_underflows",
        "Counts of subscriptions, online users and calls that would have fallen below zero; each is a bug",
        |stats| &stats.engine.underflows,
    ),
    (
        "records_written_again",
        "Records that were written to their store again, because it had lost acknowledged writes",
        |stats| &stats.engine.written_again,
    ),
    (
        "history_replayed_events",
        "Events replayed to resuming subscribers",
        |stats| &stats.engine.history_replayed,
    ),
    (
        "history_gaps",
        "Event gaps reported to resuming subscribers",
        |stats| &stats.engine.history_gaps,
    ),
    (
        "history_forgotten_names",
        "Names whose event history was discarded because of limits.history_names_max or limits.history_bytes_max",
        |stats| &stats.engine.history_forgotten,
    ),
    (
        "http_rate_waits",
        "Messages of HTTP requests and streams that waited for a rate limit of their caller",
        |stats| &stats.caller_waits,
    ),
    (
        "history_removed_names",
        "Names whose event history was removed from the store because all events were too old",
        |stats| &stats.engine.history_removed,
    ),
    (
        "backoff_waits",
        "Connections and logins delayed by reconnect back-off of their address or user",
        |stats| &stats.backoff_waits,
    ),
    (
        "expired_sessions",
        "Sessions closed because their login had expired",
        |stats| &stats.engine.expired,
    ),
    (
        "rights_lost",
        "Subscriptions, registrations and patterns removed because the session lost the right to them",
        |stats| &stats.engine.rights_lost,
    ),
    (
        "revoked_sessions",
        "Sessions closed because their login was revoked",
        |stats| &stats.engine.revoked,
    ),
    (
        "rights_cuts",
        "Connections cut off because they had lost a right and the client did not read",
        |stats| &stats.rights_cuts,
    ),
    (
        "backoff_refusals",
        "Connections and logins refused by reconnect back-off",
        |stats| &stats.backoff_refusals,
    ),
    (
        "protocol_errors",
        "Connections closed because the peer violated the protocol",
        |stats| &stats.protocol_errors,
    ),
    (
        "deflated_bytes",
        "Bytes of compressed messages before compression, once for all recipients",
        |stats| &stats.deflated_bytes,
    ),
    (
        "deflated_to_bytes",
        "Bytes of compressed messages after compression",
        |stats| &stats.deflated_to_bytes,
    ),
    (
        "deflate_skips",
        "Messages sent uncompressed because the turn had reached its compression limit",
        |stats| &stats.deflate_skips,
    ),
    (
        "mailbox_entries",
        "Mailbox entries posted between shards",
        |stats| &stats.entries,
    ),
    (
        "cache_shrunk_bytes",
        "Bytes of unused records evicted because of limits.memory_bytes_max",
        |stats| &stats.cache_shrunk_bytes,
    ),
    (
        "memory_disconnects",
        "Sessions closed because of limits.memory_bytes_max, largest first",
        |stats| &stats.memory_disconnects,
    ),
    (
        "inflight_pauses",
        "Times that reading from a connection was paused because of its bytes in flight",
        |stats| &stats.inflight_pauses,
    ),
    (
        "congestion_waits",
        "Times that a connection waited because its message goes to a shard that has too many unhandled bytes of others",
        |stats| &stats.congestion_waits,
    ),
];

const TOPIC_COUNTERS: [TopicNumbers; 2] = [
    (
        "messages_received",
        "Messages received, by topic",
        |stats| &stats.messages_in,
    ),
    (
        "messages_encoded",
        "Messages encoded, once per wire format, by topic",
        |stats| &stats.messages_out,
    ),
];

const GAUGES: &[Number] = &[
    ("connections", "Open WebSockets", |stats| &stats.connections),
    ("outbox_bytes", "Bytes that wait to be sent", |stats| {
        &stats.outbox_bytes
    }),
    (
        "inbound_bytes",
        "Bytes of the memory for messages that are partly received or wait",
        |stats| &stats.inbound_bytes,
    ),
    (
        "kept_bytes",
        "Bytes of subscriptions, registrations, patterns, calls and waiting requests",
        |stats| &stats.kept_bytes,
    ),
    (
        "log_bytes",
        "Bytes of the messages of the last two turns, shared by all recipients",
        |stats| &stats.log_bytes,
    ),
    (
        "inflight_bytes",
        "Bytes posted to other shards and not yet processed",
        |stats| &stats.inflight_bytes,
    ),
    ("sessions", "Sessions", |stats| &stats.engine.sessions),
    (
        "http_sessions",
        "Sessions of HTTP requests and streams",
        |stats| &stats.carried_sessions,
    ),
    (
        "http_session_bytes",
        "Bytes that wait for HTTP requests and streams to read them",
        |stats| &stats.carried_bytes,
    ),
    (
        "polling_sessions",
        "Sessions whose messages are in the bodies of HTTP requests",
        |stats| &stats.exchange_sessions,
    ),
    (
        "resumable_sessions",
        "Sessions that outlive their connections",
        |stats| &stats.resumable_sessions,
    ),
    (
        "detached_sessions",
        "Resumable sessions without a connection",
        |stats| &stats.detached_sessions,
    ),
    (
        "retained_bytes",
        "Bytes of messages that are kept for resumable sessions",
        |stats| &stats.retained_bytes,
    ),
    (
        "delayed_sessions",
        "Sessions whose challenge or login is delayed by reconnect back-off",
        |stats| &stats.engine.delayed,
    ),
    (
        "throttled_sessions",
        "Sessions whose next message waits for a rate limit",
        |stats| &stats.engine.throttled,
    ),
    (
        "owing_sessions",
        "Sessions that wait because they exceeded limits.connection_work_max",
        |stats| &stats.engine.owing,
    ),
    (
        "deferred_bytes",
        "Bytes of record requests that wait because their session exceeded limits.connection_work_max",
        |stats| &stats.engine.deferred_bytes,
    ),
    (
        "expiring_sessions",
        "Sessions whose login has an expiry",
        |stats| &stats.engine.expiring,
    ),
    (
        "lagging_sessions",
        "Sessions that lag or are catching up",
        |stats| &stats.engine.lagging_sessions,
    ),
    (
        "backoff_entries",
        "Addresses and users in reconnect back-off",
        |stats| &stats.backoff_entries,
    ),
    ("subscribed_names", "Names with subscribers", |stats| {
        &stats.engine.subscribed_names
    }),
    (
        "event_patterns",
        "Patterns of events with subscribers, counted once for each shard",
        |stats| &stats.engine.event_patterns,
    ),
    (
        "event_waiting_sessions",
        "Sessions for which events wait until a rule has read a record",
        |stats| &stats.engine.event_waiting,
    ),
    ("history_names", "Names with history", |stats| {
        &stats.engine.history_names
    }),
    ("history_events", "Events kept as history", |stats| {
        &stats.engine.history_events
    }),
    ("history_bytes", "Bytes of event history", |stats| {
        &stats.engine.history_bytes
    }),
    (
        "history_pending_events",
        "Events with history that wait for the store",
        |stats| &stats.engine.history_pending,
    ),
    (
        "write_keys",
        "Idempotency keys of writes that clients may repeat",
        |stats| &stats.engine.write_keys,
    ),
    ("records", "Records in memory", |stats| {
        &stats.engine.records
    }),
    ("record_bytes", "Bytes of records in memory", |stats| {
        &stats.engine.record_bytes
    }),
    (
        "dirty_records",
        "Records with changes that are not yet committed",
        |stats| &stats.engine.dirty_records,
    ),
    ("dirty_bytes", "Bytes of dirty records", |stats| {
        &stats.engine.dirty_bytes
    }),
    (
        "commit_failures",
        "Failed commits since the last successful one",
        |stats| &stats.engine.commit_failures,
    ),
    ("running_calls", "Rpcs in progress", |stats| {
        &stats.engine.calls
    }),
    (
        "listen_patterns",
        "Patterns registered by listeners",
        |stats| &stats.engine.patterns,
    ),
];

impl Collector for ShardNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, number) in COUNTERS.iter().chain(backend::COUNTERS) {
            encode_counter(&mut encoder, name, help, self.sum(number))?;
        }
        for (name, help, number) in GAUGES.iter().chain(backend::GAUGES) {
            let gauge = ConstGauge::new(i64::try_from(self.sum(number)).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, numbers) in TOPIC_COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (index, topic) in TOPICS.iter().enumerate() {
                let count = ConstCounter::new(self.sum(|stats| &numbers(stats)[index]));
                count.encode(family.encode_family(&[("topic", *topic)])?)?;
            }
        }
        let with_ring = self.sum(|stats| &stats.has_ring);
        let without_ring = self.shards.len() as u64 - with_ring;
        let help = "Shards, by how their sends reach the kernel";
        let mut family = encoder.encode_descriptor("sends_path", help, None, MetricType::Gauge)?;
        for (path, count) in [("io_uring", with_ring), ("plain", without_ring)] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("path", path)])?)?;
        }
        self.encode_times(&mut encoder)?;
        let longest = self.longest_turn();
        let gauge = ConstGauge::new(longest.as_secs_f64());
        let help = "The longest turn of any shard in the last one to two minutes";
        let unit = Unit::Seconds;
        let kind = gauge.metric_type();
        gauge.encode(encoder.encode_descriptor("turn_longest", help, Some(&unit), kind)?)?;
        let gauge = ConstGauge::new(self.backend_lag().as_secs_f64());
        let descriptor =
            encoder.encode_descriptor("backend_lag", backend::LAG_HELP, Some(&unit), kind)?;
        gauge.encode(descriptor)?;
        let help = "Messages refused or delayed, by the limit, rate or rule that caused it";
        let mut family =
            encoder.encode_descriptor("refused_messages", help, None, MetricType::Counter)?;
        for (index, cause) in REFUSALS.iter().enumerate() {
            let count = ConstCounter::new(self.sum(|stats| &stats.engine.refused[index]));
            count.encode(family.encode_family(&[("cause", *cause)])?)?;
        }
        for (name, help, number) in STORE_COUNTERS {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            self.encode_stores(family, |_, store| {
                ConstCounter::new(number(store).load(Ordering::Relaxed))
            })?;
        }
        for (name, help, number) in STORE_GAUGES {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            self.encode_stores(family, |_, store| {
                let number = number(store).load(Ordering::Relaxed);
                ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX))
            })?;
        }
        let help = "Time since the store received the request that it has not answered yet";
        let unit = Unit::Seconds;
        let family =
            encoder.encode_descriptor("store_unanswered", help, Some(&unit), MetricType::Gauge)?;
        self.encode_stores(family, |_, store| {
            ConstGauge::new(store.unanswered().as_secs_f64())
        })?;
        let help = "Records with changes that the store has not received yet";
        let family =
            encoder.encode_descriptor("store_dirty_records", help, None, MetricType::Gauge)?;
        self.encode_stores(family, |number, _| {
            let dirty = self.sum(|stats| &stats.engine.dirty_by_store[number]);
            ConstGauge::new(i64::try_from(dirty).unwrap_or(i64::MAX))
        })?;
        let help = "Seconds spent in commits";
        let family =
            encoder.encode_descriptor("store_commit_seconds", help, None, MetricType::Counter)?;
        self.encode_stores(family, |_, store| {
            let nanos = store.commit_ns.load(Ordering::Relaxed);
            ConstCounter::new(Duration::from_nanos(nanos).as_secs_f64())
        })
    }
}

/// Encodes a histogram in seconds. `counts` has one more element than `bounds`, for times above all of them.
fn encode_histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    bounds: &[Duration],
    counts: &[u64],
) -> Result<(), std::fmt::Error> {
    let last = bounds.last().map_or(0.0, Duration::as_secs_f64);
    let times = bounds.iter().map(Duration::as_secs_f64);
    let times = times.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = times.zip(counts.iter().copied()).collect();
    let sum = buckets
        .iter()
        .map(|(time, count)| time.min(last) * *count as f64);
    let unit = Unit::Seconds;
    let mut family = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
    family.encode_histogram::<NoLabelSet>(sum.sum(), counts.iter().sum(), &buckets, None)
}

fn encode_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: u64,
) -> Result<(), std::fmt::Error> {
    let counter = ConstCounter::new(count);
    counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}
