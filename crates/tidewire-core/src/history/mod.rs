//! History of events: offsets, the kept events of a name, and the missed events of a subscriber.
//!
//! Only names that a rule of the configuration covers have a history. Their events go to the owner, the shard that the hash of the
//! name chooses. The owner numbers the events and keeps the last ones. Events of other names never reach this module. Decision:
//! 0032.

pub(crate) mod owner;
mod row;
mod stored;
pub(crate) mod subscriber;

pub use row::{is_row, old_history, row_prefix};
pub(crate) use stored::is_batch;

/// The largest offset and epoch: the largest integer that a JavaScript number holds exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Numbers of kept events, and counts of exceeded limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryCounts {
    /// Names with an owner's state on this shard.
    pub names: usize,
    /// Events that are kept.
    pub events: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Events that returning subscribers received. This and the following numbers only grow.
    pub replayed: u64,
    /// Gaps that returning subscribers received.
    pub gaps: u64,
    /// Events that wait for the store.
    pub pending: usize,
    /// Their bytes.
    pub pending_bytes: usize,
    /// Names that were forgotten with their events because of a limit (`history_names_max`, `history_bytes_max`).
    pub forgotten: u64,
    /// Histories that were removed from the store because all their events had expired.
    pub removed: u64,
}
