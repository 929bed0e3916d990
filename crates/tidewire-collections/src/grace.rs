//! The nodes that were lost, while what their sessions have is kept: a node that only crashed has its clients back soon.

use tidewire_message::time::Instant;

/// Lost nodes with the ends of their grace periods.
#[derive(Debug, Default)]
pub struct GracePeriods(Vec<(Instant, u16)>);

impl GracePeriods {
    /// The grace period of a node begins.
    pub fn begin(&mut self, node: u16, until: Instant) {
        self.0.push((until, node));
    }

    /// Whether no grace period runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the first grace period ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|(until, _)| *until).min()
    }

    /// Removes the grace periods that have ended. Returns their nodes, without those that were lost again since.
    pub fn take_ended(&mut self, now: Instant) -> Vec<u16> {
        let (ended, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.0 = left;
        let is_lost = |node: u16| self.0.iter().any(|(_, lost)| *lost == node);
        let nodes = ended.into_iter().map(|(_, node)| node);
        nodes.filter(|node| !is_lost(*node)).collect()
    }
}
