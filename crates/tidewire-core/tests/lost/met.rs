//! The cases that runs met.

use tidewire_core::engine::Counts;

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Met {
    /// Requests that waited for the lost node.
    pub awaited: usize,
    /// Runs in which these were there when the node was lost.
    pub lagging: usize,
    pub deferred: usize,
    pub throttled: usize,
    pub event_waiting: usize,
    pub calls: usize,
    pub unsettled: usize,
    pub answers: usize,
    pub late: usize,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        self.awaited += other.awaited;
        self.lagging += other.lagging;
        self.deferred += other.deferred;
        self.throttled += other.throttled;
        self.event_waiting += other.event_waiting;
        self.calls += other.calls;
        self.unsettled += other.unsettled;
        self.answers += other.answers;
        self.late += other.late;
    }

    /// Notes the state of a shard that loses the other node.
    pub fn note(&mut self, counts: &Counts) {
        self.awaited += counts.awaited;
        self.lagging += counts.lag.sessions;
        self.deferred += usize::from(counts.deferred_bytes > 0);
        self.throttled += counts.throttled;
        self.event_waiting += counts.event_waiting;
        self.calls += counts.calls;
    }

    pub fn has_everything(&self) -> bool {
        let counts = [
            self.awaited,
            self.lagging,
            self.deferred,
            self.throttled,
            self.event_waiting,
            self.calls,
            self.unsettled,
            self.answers,
            self.late,
        ];
        counts.iter().all(|count| *count > 0)
    }
}
