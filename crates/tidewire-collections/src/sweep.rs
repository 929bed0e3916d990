//! The sweep over all sessions that finds silent ones. It visits each session once an interval, a part of them at each step, so an idle
//! session needs no timer and a shard with many sessions never stops to visit them all.

use std::time::Duration;

use tidewire_message::time::Instant;

/// Steps in an interval.
const STEPS: u32 = 32;

/// The progress of the sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// When the next step is due. `None` while there are no sessions.
    next: Option<Instant>,
    /// The first index of the next step.
    next_index: usize,
}

impl Sweep {
    /// Starts the sweep when a session opens, if it is not running.
    pub fn begin(&mut self, now: Instant, interval: Duration) {
        self.next.get_or_insert(now + interval / STEPS);
    }

    /// Stops the sweep, because there are no sessions.
    pub fn end(&mut self) {
        self.next = None;
    }

    /// When the next step is due.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Calls `visit` with each due index below `table_len`. A call that is late by an interval or more visits each index once.
    pub fn advance(
        &mut self,
        now: Instant,
        interval: Duration,
        table_len: usize,
        mut visit: impl FnMut(usize),
    ) {
        let size = table_len.div_ceil(STEPS as usize);
        for _ in 0..STEPS {
            let Some(due) = self.next.filter(|due| *due <= now) else {
                return;
            };
            self.next = Some(due + interval / STEPS);
            if self.next_index >= table_len {
                self.next_index = 0;
            }
            let end = table_len.min(self.next_index + size);
            (self.next_index..end).for_each(&mut visit);
            self.next_index = end;
        }
        // All indexes were visited. Missed steps are not repeated.
        let next = self.next.map_or(now, |next| next.max(now));
        self.next = Some(next + interval / STEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(32);

    fn visited(sweep: &mut Sweep, now: u64, table_len: usize) -> Vec<usize> {
        let mut indexes = Vec::new();
        let now = Instant(0) + Duration::from_secs(now);
        sweep.advance(now, INTERVAL, table_len, |index| indexes.push(index));
        indexes
    }

    #[test]
    fn each_index_is_visited_once_per_interval() {
        for table_len in [1, 31, 32, 33, 100] {
            let mut sweep = Sweep::default();
            sweep.begin(Instant(0), INTERVAL);
            let mut indexes: Vec<usize> = (1..=32)
                .flat_map(|now| visited(&mut sweep, now, table_len))
                .collect();
            indexes.sort_unstable();
            indexes.dedup();
            assert_eq!(indexes, (0..table_len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_late_sweep_visits_each_index_once() {
        let mut sweep = Sweep::default();
        sweep.begin(Instant(0), INTERVAL);
        assert_eq!(visited(&mut sweep, 1000, 64), (0..64).collect::<Vec<_>>());
        assert!(visited(&mut sweep, 1000, 64).is_empty());
        assert_eq!(visited(&mut sweep, 1001, 64), [0, 1]);
    }

    #[test]
    fn nothing_is_due_without_sessions() {
        let mut sweep = Sweep::default();
        assert_eq!(sweep.next(), None);
        sweep.begin(Instant(0), INTERVAL);
        assert_eq!(sweep.next(), Some(Instant(0) + Duration::from_secs(1)));
        sweep.end();
        assert!(visited(&mut sweep, 100, 10).is_empty());
    }
}
