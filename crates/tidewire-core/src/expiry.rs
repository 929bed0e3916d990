//! The expiry of logins: which session expires next.
//!
//! Expiries are wall-clock times, because tokens contain them, but the engine's deadlines are monotonic. The wall clock may be set, so it
//! is read again at least once a minute while a session has an expiry.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::session::LocalSessionId;
use crate::time::{Instant, Now, WallTime};

/// If the wall clock is set forward, an expiry is late by at most this time.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The sessions whose logins expire, by time.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    by_time: BTreeSet<(WallTime, LocalSessionId)>,
    /// When the first of them is checked.
    due: Option<Instant>,
}

impl Expiries {
    /// The number of sessions with an expiry.
    pub(crate) fn count(&self) -> usize {
        self.by_time.len()
    }

    /// When [`Expiries::pop_due`] must be called.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// Adds the expiry of a session's login.
    pub(crate) fn add(&mut self, now: Now, expires_at: WallTime, local_id: LocalSessionId) {
        self.by_time.insert((expires_at, local_id));
        self.plan(now);
    }

    /// Removes an expiry, because the session has ended or its login was renewed.
    pub(crate) fn remove(&mut self, expires_at: WallTime, local_id: LocalSessionId) {
        self.by_time.remove(&(expires_at, local_id));
        if self.by_time.is_empty() {
            self.due = None;
        }
    }

    /// Returns the next session whose login has expired, and plans the next check if no login has.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<LocalSessionId> {
        let first = self.by_time.first()?;
        if first.0 > now.wall {
            self.plan(now);
            return None;
        }
        self.by_time.pop_first().map(|(_, local_id)| local_id)
    }

    fn plan(&mut self, now: Now) {
        self.due = self.by_time.first().map(|(expires_at, _)| {
            let left = Duration::from_millis(expires_at.0.saturating_sub(now.wall.0));
            now.monotonic + left.min(CLOCK_CHECK_INTERVAL)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic: u64, wall: u64) -> Now {
        Now {
            monotonic: Instant(0) + Duration::from_secs(monotonic),
            wall: WallTime(wall * 1_000),
        }
    }

    fn local_id(index: u32) -> LocalSessionId {
        LocalSessionId {
            index,
            generation: 0,
        }
    }

    #[test]
    fn logins_expire_in_the_order_of_their_times() {
        let mut expiries = Expiries::default();
        expiries.add(at(0, 100), WallTime(120_000), local_id(1));
        expiries.add(at(0, 100), WallTime(110_000), local_id(2));
        assert_eq!(expiries.next(), Some(at(10, 0).monotonic));
        assert_eq!(expiries.pop_due(at(9, 109)), None);
        assert_eq!(expiries.pop_due(at(10, 110)), Some(local_id(2)));
        assert_eq!(expiries.pop_due(at(10, 110)), None);
        assert_eq!(expiries.next(), Some(at(20, 0).monotonic));
        expiries.remove(WallTime(120_000), local_id(1));
        assert_eq!(expiries.next(), None);
        assert_eq!(expiries.pop_due(at(99, 999)), None);
    }

    #[test]
    fn expiry_follows_a_changed_wall_clock_within_a_minute() {
        let mut expiries = Expiries::default();
        expiries.add(at(0, 0), WallTime(86_400_000), local_id(1));
        assert_eq!(expiries.next(), Some(at(60, 0).monotonic));
        assert_eq!(expiries.pop_due(at(60, 60)), None);
        assert_eq!(expiries.next(), Some(at(120, 0).monotonic));
        assert_eq!(expiries.pop_due(at(120, 90_000)), Some(local_id(1)));
    }
}
