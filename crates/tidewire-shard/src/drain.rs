//! The end of a node's connections, in phases. The caller decides the order of the phases and their deadlines.

use std::time::Duration;

use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tokio::sync::oneshot;

use super::handle::{Closed, Quiet, ShardHandle};

/// Waits until two rounds over all shards have found each of them quiet, with no mail handled in between. One round is not enough: a
/// shard that has answered may get mail from a shard that is visited later.
pub(crate) async fn quiet(handles: &[ShardHandle]) {
    let mut before: Option<Vec<Option<Quiet>>> = None;
    loop {
        let mut round = Vec::with_capacity(handles.len());
        for handle in handles {
            round.push(handle.quiet().await);
        }
        if before.as_ref() == Some(&round) {
            return;
        }
        before = Some(round);
    }
}

/// The closing of all connections of one shard.
#[derive(Debug)]
pub(crate) struct CloseAll {
    keys: Vec<Key>,
    closed: usize,
    started: Instant,
    spread: Duration,
    patience: Duration,
    outcome: Closed,
    reply: oneshot::Sender<Closed>,
}

impl CloseAll {
    pub(crate) fn start(
        keys: Vec<Key>,
        now: Instant,
        spread: Duration,
        patience: Duration,
        reply: oneshot::Sender<Closed>,
    ) -> Self {
        Self {
            keys,
            closed: 0,
            started: now,
            spread,
            patience,
            outcome: Closed::default(),
            reply,
        }
    }

    /// The connections that are due to be closed.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Key> {
        let due = if self.spread.is_zero() {
            self.keys.len()
        } else {
            let elapsed = now.since(self.started).as_nanos();
            let share = self.keys.len() as u128 * elapsed / self.spread.as_nanos();
            usize::try_from(share + 1)
                .unwrap_or(usize::MAX)
                .min(self.keys.len())
        };
        let from = self.closed;
        self.closed = due.max(from);
        self.keys[from..self.closed].to_vec()
    }

    /// When the next connection is due. After the last one, when the shard cuts off the remaining ones.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.closed >= self.keys.len() {
            return self.started + (self.spread + self.patience);
        }
        let share = self.spread.as_nanos() * self.closed as u128 / self.keys.len() as u128;
        self.started + Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Whether the remaining connections must be cut off.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.since(self.started) >= self.spread + self.patience
    }

    /// Counts a connection that is closed.
    pub(crate) fn count(&mut self, misses_bytes: bool) {
        if misses_bytes {
            self.outcome.cut_count += 1;
        } else {
            self.outcome.clean_count += 1;
        }
    }

    /// Reports the outcome to the caller.
    pub(crate) fn finish(self) {
        // The caller may have stopped waiting.
        let _ = self.reply.send(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn connections_are_closed_evenly_over_the_time() {
        let keys = (0..10)
            .map(|index| Key {
                index,
                generation: 0,
            })
            .collect();
        let (reply, mut answer) = oneshot::channel();
        let start = Instant(5);
        let mut closing = CloseAll::start(keys, start, millis(1000), millis(500), reply);
        assert_eq!(closing.take_due(start).len(), 1);
        assert_eq!(closing.next_deadline(), start + millis(100));
        assert_eq!(closing.take_due(start + millis(100)).len(), 1);
        assert_eq!(closing.take_due(start + millis(450)).len(), 3);
        assert_eq!(closing.take_due(start + millis(460)).len(), 0);
        assert_eq!(closing.take_due(start + millis(2000)).len(), 5);
        assert_eq!(closing.next_deadline(), start + millis(1500));
        assert!(!closing.is_over(start + millis(1499)));
        assert!(closing.is_over(start + millis(1500)));
        closing.count(true);
        closing.count(false);
        closing.finish();
        let outcome = Closed {
            clean_count: 1,
            cut_count: 1,
        };
        assert_eq!(answer.try_recv(), Ok(outcome));
    }

    #[test]
    fn without_a_time_all_are_closed_at_once() {
        let keys = (0..3)
            .map(|index| Key {
                index,
                generation: 0,
            })
            .collect();
        let (reply, _answer) = oneshot::channel();
        let mut closing = CloseAll::start(keys, Instant(0), Duration::ZERO, millis(1), reply);
        assert_eq!(closing.take_due(Instant(0)).len(), 3);
    }
}
