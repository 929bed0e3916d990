//! The engine's settings: durations and switches that are not limits. All are options of the server's configuration.

use std::time::Duration;

use crate::history_rules::HistoryRules;
use crate::indexes::CollectionIndexes;
use crate::limits::Limits;
use crate::namespace::covers;
use crate::rate::Rates;
use crate::route::{StoreId, StoreRoutes};
use crate::slot::TagRules;

/// Handling of events for a session that lags and coalesces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLagPolicy {
    /// The session misses the events and gets the number of missed ones.
    Gap,
    /// The session gets all events. If too much waits for it, its connection is closed.
    Disconnect,
}

/// How the engine finds out that the peers of a protocol are gone. The interval and the timeout are [`Settings::heartbeat_interval`] and
/// [`Settings::heartbeat_timeout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// The peer pings once in an interval. A session is closed if nothing arrives for an interval and a timeout.
    #[default]
    PeerPings,
    /// The server also pings the open sessions that were silent for most of an interval.
    PingsSilent,
    /// The server pings each session, an interval after its beginning and after each answer, because its peer counts pings only. A session
    /// that does not answer within the timeout is closed. Nothing else counts as an answer.
    PingsAll,
    /// Another session of the same connection shows whether the peer is gone.
    Unchecked,
}

impl Liveness {
    /// Whether the server pings.
    #[must_use]
    pub fn has_pings(self) -> bool {
        matches!(self, Self::PingsSilent | Self::PingsAll)
    }
}

/// Settings of a shard, the same for all shards of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits of sizes and counts.
    pub limits: Limits,
    /// Rates of operations.
    pub rates: Rates,
    /// Each side pings this often. Default 30 s.
    pub heartbeat_interval: Duration,
    /// Time for the answer to a ping of the server, and for a ping of a peer that is late. Afterwards its connection is closed. Default
    /// 30 s.
    pub heartbeat_timeout: Duration,
    /// The liveness of the sessions of each format, by its number; the peers of other formats ping. Default none.
    pub liveness: Vec<Liveness>,
    /// A session without a transport is closed after this time. Default 2 min.
    pub detached_timeout: Duration,
    /// A connection on which no login was decided is closed after this time. Default 180 s, `None` never.
    pub login_timeout: Option<Duration>,
    /// A connection whose last login was refused is closed after this time without an accepted one. Default 10 min, `None` never.
    pub auth_retry_timeout: Option<Duration>,
    /// Refused logins after which the connection is closed. Default 3.
    pub auth_attempts_max: u32,
    /// How long a login waits while the auth chain is unavailable, before its connection is closed so that the client connects again.
    /// Some wait up to twice as long. Default 5 s.
    pub auth_retry_delay: Duration,
    /// Time for an rpc provider to accept. Default 1 s.
    pub rpc_accept_timeout: Duration,
    /// Time for an rpc provider to respond, from when it gets the call. Default 10 s.
    pub rpc_response_timeout: Duration,
    /// Whether a provider receives the requestor's user id. Default no.
    pub rpc_requestor_name: bool,
    /// Whether a provider receives the requestor's client data. Default no.
    pub rpc_requestor_data: bool,
    /// Time for a listening provider to accept or reject. Default 500 ms.
    pub listen_response_timeout: Duration,
    /// How often names without a provider are offered again. Default 30 s, `None` never.
    pub listen_rematch_interval: Option<Duration>,
    /// Handling of events for a session that lags and coalesces. Default a gap.
    pub event_lag_policy: EventLagPolicy,
    /// The events with history, and its size. Default none.
    pub history: HistoryRules,
    /// Whether names are offered to listening providers in random order, or else in the order of registration. Default yes.
    pub listen_shuffle: bool,
    /// How long the users of a lost node stay online. A node that is back in time, or clients that have connected to another node, cause
    /// no changes of presence. Default 5 s.
    pub presence_grace: Duration,
    /// Time for the store to load a record. Default 30 s.
    pub load_timeout: Duration,
    /// Time for an acknowledged write to become durable. Afterwards the server reports its outcome as unknown. Default 30 s.
    pub write_timeout: Duration,
    /// How long the key of an acknowledged write is remembered in memory, so that the server does not repeat the write. Default 10 min.
    pub write_key_age: Duration,
    /// Records under these prefixes are whole values with version 0 when written by `setData`. Default none.
    pub hot_path_prefixes: Vec<String>,
    /// Records under these prefixes are kept in memory only. Default none.
    pub memory_only_prefixes: Vec<String>,
    /// The store of each record. Default the only store.
    pub routes: StoreRoutes,
    /// The stores that commit each record by itself, so that they have no transactions. Default none.
    pub stores_without_transactions: Vec<StoreId>,
    /// The indexes that the stores keep. Default none.
    pub indexes: CollectionIndexes,
    /// The collections whose names share slots. Default none.
    pub tags: TagRules,
    /// The namespaces whose sessions backends serve. A `*` at the end matches any text. Default none.
    pub backend_namespaces: Vec<String>,
    /// How long the sessions of such a namespace wait for a backend, before their connections are closed. Default 10 s.
    pub backend_grace: Duration,
}

impl Settings {
    /// Whether backends serve the sessions of a namespace.
    #[must_use]
    pub fn is_backed(&self, namespace: &str) -> bool {
        let mut patterns = self.backend_namespaces.iter();
        patterns.any(|pattern| covers(pattern, namespace))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            rates: Rates::default(),
            heartbeat_interval: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(30),
            liveness: Vec::new(),
            detached_timeout: Duration::from_secs(120),
            login_timeout: Some(Duration::from_secs(180)),
            auth_retry_timeout: Some(Duration::from_secs(600)),
            auth_attempts_max: 3,
            auth_retry_delay: Duration::from_secs(5),
            rpc_accept_timeout: Duration::from_secs(1),
            rpc_response_timeout: Duration::from_secs(10),
            rpc_requestor_name: false,
            rpc_requestor_data: false,
            listen_response_timeout: Duration::from_millis(500),
            listen_rematch_interval: Some(Duration::from_secs(30)),
            event_lag_policy: EventLagPolicy::Gap,
            history: HistoryRules::default(),
            listen_shuffle: true,
            presence_grace: Duration::from_secs(5),
            load_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            write_key_age: Duration::from_secs(600),
            hot_path_prefixes: Vec::new(),
            memory_only_prefixes: Vec::new(),
            routes: StoreRoutes::default(),
            stores_without_transactions: Vec::new(),
            indexes: CollectionIndexes::default(),
            tags: TagRules::default(),
            backend_namespaces: Vec::new(),
            backend_grace: Duration::from_secs(10),
        }
    }
}
