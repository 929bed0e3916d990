//! Collections and counters that the engine works with: tables of names, queues, timers, histories in memory, the accounting of work.
//!
//! None of them knows a message, a shard or an effect, and nothing that decides is iterated in hash order.

#![expect(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    reason = "the engine needs neither"
)]

pub mod fair_queue;
pub mod grace;
pub mod membership;
pub mod pattern_trie;
pub mod readers;
pub mod ring;
pub mod shard_counts;
pub mod share;
pub mod small_map;
pub mod sweep;
pub mod table;
pub mod timer;
pub mod work;
