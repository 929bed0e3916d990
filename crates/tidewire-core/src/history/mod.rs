//! History of events: offsets, the kept events of a name, and the missed events of a subscriber.
//!
//! Only names that a rule of the configuration covers have a history. Their events go to the owner, the shard that the hash of the
//! name chooses. The owner numbers the events and keeps the last ones. Events of other names never reach this module. Decision:
//! 0032.

pub(crate) mod owner;
mod pattern;
mod ring;
mod row;
mod stored;
pub(crate) mod subscriber;

use std::time::Duration;

pub use pattern::NamePattern;
pub use row::{is_row, old_history, row_prefix};
pub(crate) use stored::is_batch;

/// The largest offset and epoch: the largest integer that a JavaScript number holds exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Limits of the kept events of names that a pattern covers. The tightest limit applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRule {
    /// The names. The first rule whose pattern matches applies.
    pub pattern: NamePattern,
    /// Events of one name.
    pub count_max: usize,
    /// Bytes of the events of one name.
    pub bytes_max: usize,
    /// Subscribers do not receive older events.
    pub age_max: Duration,
    /// Where the events are kept.
    pub keep: Keep,
}

/// Where events are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Until the server stops.
    #[default]
    Memory,
    /// In the store as well: an event is delivered when it is durable.
    Store,
}

/// Rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRules(Vec<HistoryRule>);

impl HistoryRules {
    /// Rules in their order.
    #[must_use]
    pub fn new(rules: Vec<HistoryRule>) -> Self {
        Self(rules)
    }

    /// Whether some history is kept in the store.
    #[must_use]
    pub fn keep_in_store(&self) -> bool {
        self.0.iter().any(|rule| rule.keep == Keep::Store)
    }

    /// The rule of a name; `None` if it has no history.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&HistoryRule> {
        self.0.iter().find(|rule| rule.pattern.matches(name))
    }
}

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
