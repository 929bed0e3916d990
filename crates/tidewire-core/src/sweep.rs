//! The round over all sessions that finds the silent ones. Each is looked at once an interval, some at each step, so
//! that a session costs nothing for it and a shard of many never stops for all of them.

use std::time::Duration;

use crate::time::Instant;

/// Steps of an interval.
const STEPS: u32 = 32;

/// Where the round stands.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// When the next step is due; never while there are no sessions.
    next: Option<Instant>,
    /// The first place of the next step.
    place: usize,
}

impl Sweep {
    /// There is a session; a round begins if none is going on.
    pub(crate) fn begin(&mut self, now: Instant, interval: Duration) {
        self.next.get_or_insert(now + interval / STEPS);
    }

    /// There are no sessions.
    pub(crate) fn end(&mut self) {
        self.next = None;
    }

    /// When the next step is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Calls `look` with each place, of `place_count`, whose turn it is. Whoever comes an interval late looks at all once.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        interval: Duration,
        place_count: usize,
        mut look: impl FnMut(usize),
    ) {
        let size = place_count.div_ceil(STEPS as usize);
        for _ in 0..STEPS {
            let Some(due) = self.next.filter(|due| *due <= now) else {
                return;
            };
            self.next = Some(due + interval / STEPS);
            if self.place >= place_count {
                self.place = 0;
            }
            let end = place_count.min(self.place + size);
            (self.place..end).for_each(&mut look);
            self.place = end;
        }
        // All were looked at; what was missed is not made up for.
        let next = self.next.map_or(now, |next| next.max(now));
        self.next = Some(next + interval / STEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(32);

    fn looked_at(sweep: &mut Sweep, now: u64, place_count: usize) -> Vec<usize> {
        let mut places = Vec::new();
        let now = Instant(0) + Duration::from_secs(now);
        sweep.advance(now, INTERVAL, place_count, |place| places.push(place));
        places
    }

    #[test]
    fn each_place_has_its_turn_once_an_interval() {
        for place_count in [1, 31, 32, 33, 100] {
            let mut sweep = Sweep::default();
            sweep.begin(Instant(0), INTERVAL);
            let mut places: Vec<usize> = (1..=32)
                .flat_map(|now| looked_at(&mut sweep, now, place_count))
                .collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places, (0..place_count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn who_comes_late_looks_at_all_once() {
        let mut sweep = Sweep::default();
        sweep.begin(Instant(0), INTERVAL);
        assert_eq!(looked_at(&mut sweep, 1000, 64), (0..64).collect::<Vec<_>>());
        assert!(looked_at(&mut sweep, 1000, 64).is_empty());
        assert_eq!(looked_at(&mut sweep, 1001, 64), [0, 1]);
    }

    #[test]
    fn nothing_is_due_without_sessions() {
        let mut sweep = Sweep::default();
        assert_eq!(sweep.next(), None);
        sweep.begin(Instant(0), INTERVAL);
        assert_eq!(sweep.next(), Some(Instant(0) + Duration::from_secs(1)));
        sweep.end();
        assert!(looked_at(&mut sweep, 100, 10).is_empty());
    }
}
