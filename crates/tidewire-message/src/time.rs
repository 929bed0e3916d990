//! Core's own clocks: two numbers that the driver of the engine reads once per turn.
//!
//! The types of `std::time` can't be simulated, so this crate does not use them except for `Duration`.

use std::ops::Add;
use std::time::Duration;

/// Monotonic time in nanoseconds since an arbitrary start; only for deadlines and durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// The time since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// Wall-clock time in milliseconds since the Unix epoch; for rules and for people, never for deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(pub u64);

/// The time of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// For deadlines.
    pub monotonic: Instant,
    /// For rules.
    pub wall: WallTime,
}
