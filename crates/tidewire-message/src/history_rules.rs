//! Which events have a history, and how much of it is kept.

use std::time::Duration;

use crate::name_pattern::NamePattern;

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
