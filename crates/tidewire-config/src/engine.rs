//! Converts the options into the settings of the engine and of the outboxes.

use tidewire_core::history_rules::HistoryRules;
use tidewire_core::limits::Limits;
use tidewire_core::rate::{Operation, Rate, Rates};
use tidewire_core::route::StoreId;
use tidewire_core::settings::{EventLagPolicy, Settings};
use tidewire_net::event_loop::OutboxMarks;

use super::history::HistoryRule;
use super::plan::Plan;
use super::section::{self, Config, EventLagKind, StoreKind};
use super::value::ByteCount;

/// Minimum bytes of one shard's batch of writes, for any number of shards that share `limits.batch_bytes_max`. With smaller batches the
/// sync would dominate the cost.
const BATCH_BYTES_MIN: usize = 256 << 10;

impl section::Limits {
    /// The marks of an outbox. A mark that is `auto` follows from the others.
    #[must_use]
    pub fn outbox_marks(&self) -> OutboxMarks {
        let quarter = |bytes: ByteCount| ByteCount(bytes.0 / 4);
        let bytes_max = self.outbox_bytes_max;
        let lagging = self.outbox_lagging_bytes.or_else(|| quarter(bytes_max));
        let drained = self.outbox_drained_bytes.or_else(|| quarter(lagging));
        OutboxMarks {
            bytes_max: bytes_max.as_usize(),
            lagging_bytes: lagging.as_usize(),
            drained_bytes: drained.as_usize(),
        }
    }
}

impl section::OperationRates {
    /// The rates in the order of the engine's operations.
    fn of_engine(&self) -> [Option<Rate>; Operation::ALL.len()] {
        let Self {
            messages,
            publish,
            write,
            read,
            subscribe,
            call,
        } = self;
        [messages, publish, write, read, subscribe, call].map(|rate| rate.0)
    }
}

impl section::Rates {
    fn of_engine(&self) -> Rates {
        Rates {
            connection: self.connection.of_engine(),
            user: self.user.of_engine(),
        }
    }
}

impl Plan {
    /// The engine's settings. The code names every field, so that the compiler reports a missing one.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let Config {
            network,
            cluster,
            auth,
            record,
            stores,
            collections,
            rpc,
            event,
            listen,
            limits,
            rates,
            backend,
            ..
        } = &self.config;
        Settings {
            limits: self.limits(),
            rates: rates.of_engine(),
            heartbeat_interval: network.heartbeat_interval,
            heartbeat_timeout: network
                .heartbeat_timeout
                .or_else(|| network.heartbeat_interval),
            // The shards know it, from their protocols.
            liveness: Vec::new(),
            detached_timeout: network.detached_timeout,
            login_timeout: auth.login_timeout.time(),
            auth_retry_timeout: auth.retry_timeout.time(),
            auth_attempts_max: auth.attempts_max,
            auth_retry_delay: auth.retry_delay,
            rpc_accept_timeout: rpc.accept_timeout,
            rpc_response_timeout: rpc.response_timeout,
            rpc_requestor_name: rpc.requestor_name,
            rpc_requestor_data: rpc.requestor_data,
            listen_response_timeout: listen.response_timeout,
            listen_rematch_interval: listen.rematch_interval.time(),
            event_lag_policy: match limits.event_lag_policy {
                EventLagKind::Gap => EventLagPolicy::Gap,
                EventLagKind::Disconnect => EventLagPolicy::Disconnect,
            },
            history: HistoryRules::new(event.history.iter().map(HistoryRule::of_engine).collect()),
            listen_shuffle: listen.shuffle,
            presence_grace: cluster.presence_grace,
            load_timeout: record.load_timeout,
            write_timeout: record.write_timeout,
            write_key_age: record.write_key_age,
            hot_path_prefixes: record.hot_path_prefixes.to_vec(),
            memory_only_prefixes: record.memory_only_prefixes.to_vec(),
            routes: stores.routes(),
            stores_without_transactions: self.stores_without_transactions(),
            indexes: collections.indexes(),
            tags: collections.tags(),
            backend_namespaces: backend.namespaces.to_vec(),
            backend_grace: backend.grace,
        }
    }

    /// The stores that commit each record by itself, by number: the default store first, then the others by name.
    fn stores_without_transactions(&self) -> Vec<StoreId> {
        let named = self.config.stores.iter().map(|(_, named)| &named.store);
        let stores = std::iter::once(&self.config.store).chain(named);
        let numbered = (0..).map(StoreId).zip(stores);
        let without = numbered.filter(|(_, store)| store.kind == StoreKind::Mongodb);
        without.map(|(number, _)| number).collect()
    }

    fn limits(&self) -> Limits {
        let limits = &self.config.limits;
        let cache_bytes_max = self.cache_bytes_max / u64::from(self.shards);
        Limits {
            message_bytes_max: limits.message_bytes_max.as_usize(),
            login_bytes_max: self.config.auth.login_bytes_max.as_usize(),
            name_bytes_max: limits.name_bytes_max.as_usize(),
            nesting_max: limits.nesting_max,
            record_bytes_max: limits.record_bytes_max.as_usize(),
            array_gap_max: limits.array_gap_max,
            bulk_names_max: limits.bulk_names_max,
            subscriptions_max: limits.subscriptions_max,
            patterns_max: limits.patterns_max,
            event_patterns_max: limits.event_patterns_max,
            event_pattern_segments_max: limits.event_pattern_segments_max,
            event_waiting_max: limits.event_waiting_max,
            listen_questions_max: limits.listen_questions_max,
            calls_max: limits.calls_max,
            record_waiting_max: limits.record_waiting_max,
            cache_bytes_max: usize::try_from(cache_bytes_max).unwrap_or(usize::MAX),
            dirty_records_max: limits.dirty_records_max,
            dirty_bytes_max: limits.dirty_bytes_max.as_usize(),
            batch_bytes_max: (limits.batch_bytes_max.as_usize() / usize::from(self.shards))
                .max(BATCH_BYTES_MIN),
            queries_max: limits.queries_max,
            live_queries_max: limits.live_queries_max,
            query_reads_max: limits.query_reads_max,
            query_result_bytes_max: limits.query_result_bytes_max.as_usize(),
            presence_state_bytes_max: limits.presence_state_bytes_max.as_usize(),
            presence_scopes_max: limits.presence_scopes_max,
            presence_members_max: limits.presence_members_max,
            backend_messages_max: limits.backend_messages_max,
            backend_bytes_max: limits.backend_bytes_max.as_usize(),
            backend_asks_max: limits.backend_asks_max,
            backend_answers_bytes_max: limits.backend_answers_bytes_max.as_usize(),
            backend_data_bytes_max: limits.backend_data_bytes_max.as_usize(),
            rule_reads_max: limits.rule_reads_max,
            connection_work_max: limits.connection_work_max.as_usize(),
            turn_work_max: limits.turn_work_max.as_usize(),
            deferred_bytes_max: limits.deferred_bytes_max.as_usize() / usize::from(self.shards),
            handover_bytes_max: self.config.cluster.handover_bytes_max.as_usize()
                / usize::from(self.shards),
            catch_up_bytes_max: limits.outbox_marks().lagging_bytes,
            write_key_bytes_max: limits.write_key_bytes_max,
            transaction_names_max: limits.transaction_names_max,
            write_keys_max: limits.write_keys_max.div_ceil(usize::from(self.shards)),
            history_names_max: limits.history_names_max.div_ceil(usize::from(self.shards)),
            history_bytes_max: limits.history_bytes_max.as_usize() / usize::from(self.shards),
        }
    }
}
