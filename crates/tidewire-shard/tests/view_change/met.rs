//! The cases that runs met.

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Met {
    pub joins: usize,
    pub drains: usize,
    /// Joins and drains that follow a complete hand-over, in runs that refuse nothing.
    pub planned: usize,
    pub crashes: usize,
    /// Nodes that were evicted and continued until they read the view.
    pub evictions: usize,
    /// Views that were adopted before the hand-over of the one before was complete.
    pub overlaps: usize,
    /// Writes that were acknowledged, and those whose outcome was unknown or that were refused.
    pub acknowledged: usize,
    pub refused: usize,
    /// Transactions that were made, and those that found another state than the one that their clients had read.
    pub transactions: usize,
    pub conflicts: usize,
    /// Whole values that replaced missed changes, and sessions that were closed because they allow none.
    pub values: usize,
    pub not_caught_up: usize,
    /// Lists of members, those that replaced an earlier one, and changes of members.
    pub lists: usize,
    pub lists_again: usize,
    pub member_changes: usize,
    /// Results of live queries that were compared with full evaluations, and changes of them.
    pub results: usize,
    pub result_changes: usize,
    /// Events without history that clients got from other nodes.
    pub events_between: usize,
    /// Changes of rights, those that were acknowledged, sessions that were closed by them, changes of rules that were acknowledged, and
    /// subscriptions that rules have denied.
    pub changes: usize,
    pub settled: usize,
    pub revoked: usize,
    pub rules: usize,
    pub denied: usize,
}

impl Met {
    fn counts(&self) -> [usize; 23] {
        [
            self.joins,
            self.drains,
            self.planned,
            self.crashes,
            self.evictions,
            self.overlaps,
            self.acknowledged,
            self.refused,
            self.transactions,
            self.conflicts,
            self.values,
            self.not_caught_up,
            self.lists,
            self.lists_again,
            self.member_changes,
            self.results,
            self.result_changes,
            self.events_between,
            self.changes,
            self.settled,
            self.revoked,
            self.rules,
            self.denied,
        ]
    }

    pub fn add(&mut self, other: &Self) {
        self.joins += other.joins;
        self.drains += other.drains;
        self.planned += other.planned;
        self.crashes += other.crashes;
        self.evictions += other.evictions;
        self.overlaps += other.overlaps;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.transactions += other.transactions;
        self.conflicts += other.conflicts;
        self.values += other.values;
        self.not_caught_up += other.not_caught_up;
        self.lists += other.lists;
        self.lists_again += other.lists_again;
        self.member_changes += other.member_changes;
        self.results += other.results;
        self.result_changes += other.result_changes;
        self.events_between += other.events_between;
        self.changes += other.changes;
        self.settled += other.settled;
        self.revoked += other.revoked;
        self.rules += other.rules;
        self.denied += other.denied;
    }

    pub fn has_everything(&self) -> bool {
        self.counts().iter().all(|count| *count > 0)
    }
}
