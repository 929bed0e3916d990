//! The metrics of backends, which all shards have.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Number, ShardNumbers};

pub(super) const COUNTERS: &[Number] = &[
    (
        "backend_events",
        "Events of sessions that backends get",
        |stats| &stats.engine.backend_events,
    ),
    (
        "backend_redelivered_events",
        "Events that a lost backend was sent and had not confirmed, and that the next one gets again",
        |stats| &stats.engine.backend_redelivered,
    ),
    (
        "backend_lost_events",
        "Events that a lost backend was sent and had not confirmed, and that no other one gets",
        |stats| &stats.engine.backend_lost,
    ),
];

pub(super) const GAUGES: &[Number] = &[
    ("backends", "Backends that serve namespaces", |stats| {
        &stats.engine.backends
    }),
    (
        "backend_unconfirmed_messages",
        "Messages that backends have not confirmed; limits.backend_messages_max bounds them for each backend and shard",
        |stats| &stats.engine.backend_unconfirmed,
    ),
    (
        "backend_unconfirmed_bytes",
        "Bytes of the messages that backends have not confirmed",
        |stats| &stats.engine.backend_unconfirmed_bytes,
    ),
    (
        "backend_waiting_sessions",
        "Sessions without a backend, or whose next message waits for a backend",
        |stats| &stats.engine.backend_waiting,
    ),
];

pub(super) const LAG_HELP: &str =
    "The age of the oldest message that a backend has not confirmed, on any shard";

impl ShardNumbers {
    /// See [`LAG_HELP`].
    pub(super) fn backend_lag(&self) -> Duration {
        let shards = self.shards.iter();
        let lags = shards
            .map(|shard| &shard.stats().engine.backend_lag_nanos)
            .map(|it| it.load(Ordering::Relaxed));
        Duration::from_nanos(lags.max().unwrap_or(0))
    }
}
