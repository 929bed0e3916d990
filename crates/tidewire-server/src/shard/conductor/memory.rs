//! What a shard holds for the node's memory budget: turn logs, mail on its way, the histories and records that it owns. Its connections'
//! part is the loop's, which ends those who hold most when nothing else is left to give back.

use std::sync::atomic::Ordering;

use super::Conductor;
use crate::shard::stats::{add, set};

impl Conductor {
    /// Reports what the shard holds beside its connections, and gives up records that nobody uses while the node holds too
    /// much. At the end of each turn, before its logs are released: then they are longest.
    ///
    /// Until a shard has tried in vain, its records count as what can be spared, so that no shard ends connections while another
    /// one still has records to give up. That one does so with its next turn, half a second later at most.
    pub(super) fn settle_memory(&mut self) {
        let log_bytes = self.sink.logs.bytes();
        let carried_bytes = self.own.0.carried_bytes.load(Ordering::Relaxed);
        let history_bytes = self.engine.history_bytes();
        let deferred_bytes = self.engine.deferred_bytes();
        let others =
            log_bytes + self.credit.bytes() + carried_bytes + history_bytes + deferred_bytes;
        let cached = self.engine.record_bytes();
        self.memory.report(others + cached, cached);
        let excess = self.memory.budget().excess();
        let stats = self.own.stats();
        if excess > 0 {
            let freed = self.engine.shrink_cache(excess);
            let cached = cached - freed;
            let spare = if freed < excess { 0 } else { cached };
            self.memory.report(others + cached, spare);
            add(&stats.cache_shrunk_bytes, freed as u64);
        }
        set(&stats.log_bytes, log_bytes as u64);
        set(&stats.carried_bytes, carried_bytes as u64);
        set(&stats.carried_sessions, self.carried.count() as u64);
    }
}
