//! Every limit of the engine in one table: name, unit, default, and the effect of reaching it.

/// The limits of a shard. Each of them is an option of the same name under `limits` in `tidewire.yml`, with these exceptions: the cache
/// is `store.cache` for all shards together, `login_bytes_max` is `auth.login_bytes_max`, and `catch_up_bytes_max` is
/// `outbox_lagging_bytes`. The options for `write_keys_max` and the limits of history apply to all shards together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message of a client. A larger frame closes the connection with 1009. Default 1 MiB.
    pub message_bytes_max: usize,
    /// Bytes of a login, and of any message before it. Larger data is refused with INVALID_MESSAGE_DATA, a larger frame closes the
    /// connection with 1009. Default 16 KiB.
    pub login_bytes_max: usize,
    /// Bytes of a name, pattern or user id. Longer ones are refused with INVALID_MESSAGE_DATA. Default 1,024.
    pub name_bytes_max: usize,
    /// Nesting depth of containers in a JSON payload or a path. Deeper ones are refused. Default 64.
    pub nesting_max: usize,
    /// Bytes of one record's JSON, also after a patch. A larger result is refused. Default 1 MiB.
    pub record_bytes_max: usize,
    /// Array elements that one write may fill with null because its path has an index after the end. A wider gap is refused with
    /// INVALID_MESSAGE_DATA: otherwise a short path could make a large record. Default 100.
    pub array_gap_max: usize,
    /// Names in one bulk message. More are refused. Default 100,000.
    pub bulk_names_max: usize,
    /// Names, patterns and providers that one session may hold. More are denied. Default 100,000.
    pub subscriptions_max: usize,
    /// Patterns that one session may listen with. More are denied. Default 1,000.
    pub patterns_max: usize,
    /// Patterns of events that one session may subscribe to. More are denied. Default 1,000.
    pub event_patterns_max: usize,
    /// Segments of a pattern of events. A pattern with more is refused with INVALID_PATTERN. Default 32.
    pub event_pattern_segments_max: usize,
    /// Events that wait for one session because a rule first needs a record to decide about an event of a pattern. At the limit the
    /// session's connection is closed, so that it subscribes again. Default 1,000.
    pub event_waiting_max: usize,
    /// Names offered to one listening session that it has not answered yet. At the limit the owner offers the name to other sessions, or
    /// the name waits until the session has answered. Default 1,000.
    pub listen_questions_max: usize,
    /// Calls of one session without an answer. More are answered with NO_RPC_PROVIDER. Default 10,000.
    pub calls_max: usize,
    /// Operations that wait for one record, for its load or for a rule. More are refused with RECORD_LOAD_ERROR or RECORD_UPDATE_ERROR.
    /// Default 10,000.
    pub record_waiting_max: usize,
    /// Bytes of records that a shard keeps in memory in addition to those in use. Default 64 MiB.
    pub cache_bytes_max: usize,
    /// Records of a shard that are written but not yet committed. At the limit writes are refused with RECORD_UPDATE_ERROR. Default
    /// 100,000.
    pub dirty_records_max: usize,
    /// Bytes of those records. Default 256 MiB.
    pub dirty_bytes_max: usize,
    /// Bytes of written records that a shard passes to a store in one batch. The rest waits for the next commit. Users take turns, so a
    /// small write waits for about this many bytes. Default 4 MiB.
    pub batch_bytes_max: usize,
    /// Records that one rule decision may read. If a rule needs more, it fails. Default 10.
    pub rule_reads_max: usize,
    /// Bytes that a shard may touch for one connection in a turn. A connection that has cost more waits until later turns have paid its
    /// debt. While no other connection costs anything or owes, the limit is `turn_work_max`. Zero for no limit. Default 256 KiB.
    pub connection_work_max: usize,
    /// Bytes that a shard touches in a turn before it polls its sockets and its mailbox again. Also the debt of all waiting connections
    /// that a turn pays. Default 1 MiB.
    pub turn_work_max: usize,
    /// Bytes of requests that an owner defers because their connections have cost too much. More are refused with RECORD_LOAD_ERROR or
    /// RECORD_UPDATE_ERROR. Default 64 MiB.
    pub deferred_bytes_max: usize,
    /// Bytes of requests that wait at a shard because the change of a view passes their names to it. More are refused with
    /// RECORD_LOAD_ERROR, RECORD_UPDATE_ERROR or NO_RPC_PROVIDER. Default 64 MiB.
    pub handover_bytes_max: usize,
    /// Bytes of records that are sent to a session that lagged before it has to read them. One record may be larger. Default 256 KiB.
    pub catch_up_bytes_max: usize,
    /// Operations of one transaction. A larger one is refused with TRANSACTION_REFUSED. Default 100.
    pub transaction_names_max: usize,
    /// Bytes of the key of a write that may be repeated. A longer one is refused with INVALID_MESSAGE_DATA. Default 128.
    pub write_key_bytes_max: usize,
    /// Write keys that a shard remembers in memory. At the limit the user with the most keys loses its oldest one. Default 100,000.
    pub write_keys_max: usize,
    /// Names with history that a shard keeps without subscribers. At the limit the least recently used names are forgotten with their
    /// events. Default 10,000.
    pub history_names_max: usize,
    /// Bytes of all histories of a shard. At the limit the names without subscribers are forgotten first, then the events that would
    /// expire soonest. Default 64 MiB.
    pub history_bytes_max: usize,
    /// Queries of one session without an answer. More are refused with TOO_MANY_QUERIES. Default 100.
    pub queries_max: usize,
    /// Live queries of one session. More are refused with TOO_MANY_QUERIES. Default 1,000.
    pub live_queries_max: usize,
    /// Records that one query may read, of its collection and below. A query that reads more is refused with QUERY_TOO_LARGE. Default
    /// 100,000.
    pub query_reads_max: usize,
    /// Bytes of the result of one query. A larger result is refused with QUERY_TOO_LARGE. Default 512 KiB.
    pub query_result_bytes_max: usize,
    /// Bytes of the state of a member of a scope. A larger state is refused with STATE_TOO_LARGE. Default 1 KiB.
    pub presence_state_bytes_max: usize,
    /// Scopes that one session may use, as a member or as a subscriber. More are refused with TOO_MANY_SCOPES. Default 100.
    pub presence_scopes_max: usize,
    /// Members of one scope. More are refused with SCOPE_FULL. Default 500.
    pub presence_members_max: usize,
    /// Messages of the sessions of a shard that one backend has not confirmed. At the limit the connections of its sessions are not read.
    /// Default 1,000.
    pub backend_messages_max: usize,
    /// Bytes of these messages. One message may be larger. Default 256 KiB.
    pub backend_bytes_max: usize,
    /// Asks of one backend that wait for answers of sessions or other backends. More are refused. Default 1,000.
    pub backend_asks_max: usize,
    /// Bytes of answers and of messages of other backends that one backend has not confirmed, and of the answers that a shard awaits for it.
    /// At the limit an ask fails. Default 4 MiB.
    pub backend_answers_bytes_max: usize,
    /// Bytes of the data that backends set for one session. Larger data are refused. Default 16 KiB.
    pub backend_data_bytes_max: usize,
}

/// Counts of sessions that coalesce and read more slowly than messages are published for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagCounts {
    /// Sessions that lag now, or are still receiving what they missed.
    pub sessions: usize,
    /// How often a session began to lag. This and the following counters only grow.
    pub lags: u64,
    /// Changes of records that one session missed. A whole value replaces them.
    pub skipped_updates: u64,
    /// Whole values that were sent to replace missed changes.
    pub caught_up: u64,
    /// Events that one session missed.
    pub skipped_events: u64,
    /// Gap messages sent to sessions.
    pub event_gaps: u64,
}

/// How often each limit, or a rule, refused or delayed a message. Counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Denied by a rule.
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
    /// Empty, beyond `name_bytes_max`, or reserved for the server's own records.
    pub names: u64,
    /// Beyond `bulk_names_max`.
    pub bulk_names: u64,
    /// Beyond `subscriptions_max`.
    pub subscriptions: u64,
    /// Beyond `patterns_max`.
    pub patterns: u64,
    /// Patterns of events beyond `event_patterns_max`.
    pub event_patterns: u64,
    /// Texts that are not patterns of events, or beyond `event_pattern_segments_max`.
    pub invalid_patterns: u64,
    /// Sessions closed at `event_waiting_max`.
    pub event_waiting: u64,
    /// Patterns that can't be compiled, or whose compiled form is too large.
    pub uncompilable: u64,
    /// Beyond `calls_max`.
    pub calls: u64,
    /// Beyond `record_waiting_max`.
    pub waiting: u64,
    /// Beyond `dirty_records_max` or `dirty_bytes_max`, or, for records in memory only, `cache_bytes_max`.
    pub dirty: u64,
    /// Beyond `deferred_bytes_max`.
    pub deferred: u64,
    /// Beyond `handover_bytes_max`.
    pub handover: u64,
    /// A store has reached `store_bytes_max`.
    pub store_full: u64,
    /// A user has reached `user_store_bytes_max` in a store.
    pub user_store_full: u64,
    /// Calls and large writes for which the node's memory budget has no room.
    pub memory: u64,
    /// Beyond `queries_max` or `live_queries_max`.
    pub queries: u64,
    /// Beyond `query_reads_max`.
    pub query_reads: u64,
    /// Beyond `query_result_bytes_max`.
    pub query_results: u64,
    /// Beyond `presence_state_bytes_max`, `presence_scopes_max` or `presence_members_max`.
    pub scopes: u64,
    /// Messages that waited because of a rate of their connection.
    pub connection_rate: u64,
    /// Messages that waited because of a rate of their user.
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
            event_patterns_max: 1_000,
            event_pattern_segments_max: 32,
            event_waiting_max: 1_000,
            listen_questions_max: 1_000,
            calls_max: 10_000,
            record_waiting_max: 10_000,
            cache_bytes_max: 64 << 20,
            dirty_records_max: 100_000,
            dirty_bytes_max: 256 << 20,
            batch_bytes_max: 4 << 20,
            rule_reads_max: 10,
            connection_work_max: 256 << 10,
            turn_work_max: 1 << 20,
            deferred_bytes_max: 64 << 20,
            handover_bytes_max: 64 << 20,
            catch_up_bytes_max: 256 << 10,
            write_key_bytes_max: 128,
            transaction_names_max: 100,
            write_keys_max: 100_000,
            history_names_max: 10_000,
            history_bytes_max: 64 << 20,
            queries_max: 100,
            live_queries_max: 1_000,
            query_reads_max: 100_000,
            query_result_bytes_max: 512 << 10,
            presence_state_bytes_max: 1 << 10,
            presence_scopes_max: 100,
            presence_members_max: 500,
            backend_messages_max: 1_000,
            backend_bytes_max: 256 << 10,
            backend_asks_max: 1_000,
            backend_answers_bytes_max: 4 << 20,
            backend_data_bytes_max: 16 << 10,
        }
    }
}

impl Limits {
    /// Bytes that a session may cost in a turn; zero for no limit. `is_alone` means that no other session costs anything or owes.
    #[must_use]
    pub fn session_work_max(&self, is_alone: bool) -> u64 {
        let work_max = match self.connection_work_max {
            0 => 0,
            own if is_alone => own.max(self.turn_work_max),
            own => own,
        };
        work_max as u64
    }
}
