//! How long deliveries take: from the read of a message, on any shard of the node, until the kernel has received it for its recipients.
//!
//! The cost is one read of the clock for each slice of sends, and eight bytes for each batch of entries to another shard. There is
//! nothing per message, per recipient or per connection.

use tidewire_core::latency::latency_index;
use tidewire_core::time::Instant;

use super::Conductor;
use crate::stats::add;

/// The listed deliveries that are not sent yet, and the times of the input that caused them.
///
/// Input is dated by the turn that read it, so a latency may be too large by the length of a turn, and is never too small.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// When the oldest input of the current log was read, on any shard.
    read: Instant,
    /// The same of the oldest unsent delivery.
    listed: Instant,
    unsent: u64,
}

impl Deliveries {
    /// Notes that the shard takes input now. `has_unflushed`: the log already has messages that are not all listed.
    pub(super) fn begin_input(&mut self, now: Instant, has_unflushed: bool) {
        if !has_unflushed {
            self.read = now;
        }
    }

    /// Notes input that another shard has read.
    pub(super) fn begin_entries(&mut self, since: Instant) {
        self.read = self.read.min(since);
    }

    /// When the oldest input of the current log was read.
    pub(super) fn since(&self) -> Instant {
        self.read
    }

    /// Notes deliveries of the current log whose sends are listed.
    pub(super) fn list(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        self.listed = match self.unsent {
            0 => self.read,
            _ => self.listed.min(self.read),
        };
        self.unsent += count;
    }

    /// Notes that all messages of the log are listed. `now` is the time of the last input.
    pub(super) fn begin_log(&mut self, now: Instant) {
        // Not left to `begin_input`: the end of a session or a lagging one may put a message into the new log before the next input. If
        // each log began so, all would have the date of the first.
        self.read = now;
    }

    /// The deliveries of a slice, after which `after` of `before` sends are left. A send may have several deliveries; each slice gets
    /// an equal share of them.
    fn take(&mut self, before: usize, after: usize) -> u64 {
        let sent = before.saturating_sub(after) as u64;
        let taken = match after {
            0 => self.unsent,
            _ => self.unsent * sent / before.max(1) as u64,
        };
        self.unsent -= taken;
        taken
    }
}

impl Conductor {
    /// Counts the deliveries of a slice that was submitted. `before` is the number of sends before it.
    pub(super) fn count_deliveries(&mut self, before: usize) {
        if self.deliveries.unsent == 0 {
            return;
        }
        let taken = self.deliveries.take(before, self.event_loop.send_count());
        if taken > 0 {
            let latency = self.clock().since(self.deliveries.listed);
            let counts = &self.stats().deliveries_by_time;
            add(&counts[latency_index(latency)], taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_delivery_is_counted_once_over_all_slices() {
        let mut deliveries = Deliveries::default();
        deliveries.list(10);
        let taken = [
            deliveries.take(7, 4),
            deliveries.take(4, 1),
            deliveries.take(1, 0),
        ];
        assert_eq!(taken.iter().sum::<u64>(), 10);
        assert!(taken[0] > 0 && taken[2] > 0, "{taken:?}");
        assert_eq!(deliveries.take(0, 0), 0);
    }

    #[test]
    fn a_latency_begins_with_the_oldest_input_of_the_log() {
        let mut deliveries = Deliveries::default();
        deliveries.begin_input(Instant(50), false);
        deliveries.begin_entries(Instant(40));
        deliveries.begin_entries(Instant(45));
        deliveries.begin_input(Instant(60), true);
        assert_eq!(deliveries.since(), Instant(40));
        deliveries.list(1);
        deliveries.begin_log(Instant(60));
        deliveries.begin_input(Instant(70), false);
        assert_eq!(deliveries.since(), Instant(70), "posts have the new input");
        deliveries.list(1);
        assert_eq!(deliveries.listed, Instant(40), "a delivery is still unsent");
        assert_eq!(deliveries.take(2, 0), 2);
        deliveries.list(1);
        assert_eq!(deliveries.listed, Instant(70));
    }

    #[test]
    fn a_shard_that_never_rests_counts_no_latency_beyond_its_turns() {
        let mut deliveries = Deliveries::default();
        deliveries.begin_input(Instant(0), false);
        for turn in 1..100 {
            // The end of a session has put a message into the log before the input.
            deliveries.begin_input(Instant(turn * 10), true);
            deliveries.list(3);
            deliveries.begin_log(Instant(turn * 10));
            assert_eq!(deliveries.listed, Instant((turn - 1) * 10));
            assert_eq!(deliveries.take(3, 0), 3);
        }
    }
}
