//! Every limit of the engine in one table: name, unit, default and what happens there.

/// The limits of a shard. All of them are options of the same name under `limits` in `tidewire.yml`, but for the cache,
/// which is `store.cache` for all shards together, `login_bytes_max`, which is `auth.login_bytes_max`, `catch_up_bytes_max`, which is `outbox_lagging_bytes`, and
/// `write_keys_max` and those of history, which are of all shards together there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message of a client. A larger frame closes the connection with 1009. Default 1 MiB.
    pub message_bytes_max: usize,
    /// Bytes of a login, and of any message before it. Larger data is refused with INVALID_MESSAGE_DATA, a larger frame closes the
    /// connection with 1009. Default 16 KiB.
    pub login_bytes_max: usize,
    /// Bytes of a name, pattern or user id. Longer ones are refused with INVALID_MESSAGE_DATA. Default 1,024.
    pub name_bytes_max: usize,
    /// Containers that a JSON payload or a path may nest. Deeper ones are refused. Default 64.
    pub nesting_max: usize,
    /// Bytes of one record's JSON, also after a patch. A larger result is refused. Default 1 MiB.
    pub record_bytes_max: usize,
    /// Elements of arrays that one write may fill with null, because it names an index behind the end. A wider gap is refused with
    /// INVALID_MESSAGE_DATA: a short path would make a large record. Default 100.
    pub array_gap_max: usize,
    /// Names in one bulk message. More are refused. Default 100,000.
    pub bulk_names_max: usize,
    /// Names, patterns and providers that one session may hold. More are denied. Default 100,000.
    pub subscriptions_max: usize,
    /// Patterns that one session may listen with. More are denied. Default 1,000.
    pub patterns_max: usize,
    /// Names that one listening session may be asked for at a time. Beyond it other sessions are asked, or the name waits until the session
    /// has answered. Default 1,000.
    pub listen_questions_max: usize,
    /// Running calls of one session. More are answered with NO_RPC_PROVIDER. Default 10,000.
    pub calls_max: usize,
    /// Operations that wait for one record (load, rule). More are refused with RECORD_LOAD_ERROR or
    /// RECORD_UPDATE_ERROR. Default 10,000.
    pub record_waiting_max: usize,
    /// Bytes of records that a shard keeps in memory beyond those in use. Default 64 MiB.
    pub cache_bytes_max: usize,
    /// Records of a shard that are written but not yet committed. At the limit writes are refused with
    /// RECORD_UPDATE_ERROR. Default 100,000.
    pub dirty_records_max: usize,
    /// Bytes of those records. Default 256 MiB.
    pub dirty_bytes_max: usize,
    /// Bytes of written records that a shard gives a store at a time. What is more waits for the next commit, and users take turns, so
    /// this is about what a small write may wait for. Default 4 MiB.
    pub batch_bytes_max: usize,
    /// Records that one rule decision may read. More fail the rule. Default 10.
    pub rule_reads_max: usize,
    /// Bytes that a shard may touch for one connection in a turn. A connection that has cost more has to wait until later turns
    /// have made up for it. Zero for no bound. Default 512 KiB.
    pub connection_work_max: usize,
    /// Bytes that a shard touches in a turn before it looks at its sockets and its mailbox again, and what a turn makes up for of all
    /// connections that wait. Default 2 MiB.
    pub turn_work_max: usize,
    /// Bytes of requests that an owner defers because their connections have cost too much. More are refused with
    /// RECORD_LOAD_ERROR or RECORD_UPDATE_ERROR. Default 64 MiB.
    pub deferred_bytes_max: usize,
    /// Bytes of records that a session which lagged is given before it must have read them; one record may have more.
    /// Default 256 KiB.
    pub catch_up_bytes_max: usize,
    /// Bytes of the key of a write that may be repeated. A longer one is refused with INVALID_MESSAGE_DATA. Default 128.
    pub write_key_bytes_max: usize,
    /// Keys of writes that a shard remembers. At the limit the user with most keys loses its oldest one. Default 100,000.
    pub write_keys_max: usize,
    /// Names with history that a shard keeps while nobody is subscribed to them. At the limit those used least lately are
    /// forgotten with their events. Default 10,000.
    pub history_names_max: usize,
    /// Bytes of all histories of a shard. At the limit names that nobody is subscribed to are forgotten first, then the
    /// events that would be too old soonest. Default 64 MiB.
    pub history_bytes_max: usize,
}

/// Sessions that do not read as fast as something is published for them, and coalesce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagCounts {
    /// Those that lag now, or are being told what they have missed.
    pub sessions: usize,
    /// How often one began to lag. This and what follows only grows.
    pub lags: u64,
    /// Changes of records that were left out for one session, to be made up for by a whole value.
    pub skipped_updates: u64,
    /// Whole values that were given for them.
    pub caught_up: u64,
    /// Events that were left out for one session.
    pub skipped_events: u64,
    /// Gaps that sessions were told of.
    pub event_gaps: u64,
}

/// How often each limit, or a rule, was in somebody's way. Counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Refused by a rule.
    pub denied: u64,
    /// Refused because a rule failed.
    pub rule_failed: u64,
    /// Data that is not JSON.
    pub malformed: u64,
    /// Beyond `nesting_max`.
    pub too_deep: u64,
    /// Beyond `record_bytes_max`.
    pub too_large: u64,
    /// Beyond `array_gap_max`.
    pub array_gaps: u64,
    /// Empty, beyond `name_bytes_max`, or of the server's own records.
    pub names: u64,
    /// Beyond `bulk_names_max`.
    pub bulk_names: u64,
    /// Beyond `subscriptions_max`.
    pub subscriptions: u64,
    /// Beyond `patterns_max`.
    pub patterns: u64,
    /// Patterns that can't be compiled, or into too many bytes.
    pub uncompilable: u64,
    /// Beyond `calls_max`.
    pub calls: u64,
    /// Beyond `record_waiting_max`.
    pub waiting: u64,
    /// Beyond `dirty_records_max` or `dirty_bytes_max`, or, for records in memory only, `cache_bytes_max`.
    pub dirty: u64,
    /// Beyond `deferred_bytes_max`.
    pub deferred: u64,
    /// A store has no room left (`store_bytes_max`).
    pub store_full: u64,
    /// A user has no room left in a store (`user_store_bytes_max`).
    pub user_store_full: u64,
    /// Calls and large writes for which the node's memory budget has no room.
    pub memory: u64,
    /// Had to wait because of a rate of their connection.
    pub connection_rate: u64,
    /// Had to wait because of a rate of their user.
    pub user_rate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 1 << 20,
            login_bytes_max: 16 << 10,
            name_bytes_max: 1024,
            nesting_max: 64,
            record_bytes_max: 1 << 20,
            array_gap_max: 100,
            bulk_names_max: 100_000,
            subscriptions_max: 100_000,
            patterns_max: 1_000,
            listen_questions_max: 1_000,
            calls_max: 10_000,
            record_waiting_max: 10_000,
            cache_bytes_max: 64 << 20,
            dirty_records_max: 100_000,
            dirty_bytes_max: 256 << 20,
            batch_bytes_max: 4 << 20,
            rule_reads_max: 10,
            connection_work_max: 512 << 10,
            turn_work_max: 2 << 20,
            deferred_bytes_max: 64 << 20,
            catch_up_bytes_max: 256 << 10,
            write_key_bytes_max: 128,
            write_keys_max: 100_000,
            history_names_max: 10_000,
            history_bytes_max: 64 << 20,
        }
    }
}
