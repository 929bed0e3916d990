//! The few statistics of the reports.

use std::time::Duration;

/// The middle of a sample, its lowest and its highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle value; of an even count the mean of the two.
    pub median: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
}

impl Summary {
    /// Of a sample in any order; `None` if it is empty or contains not-a-number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Self { median, min, max })
    }

    /// Of times, in milliseconds.
    #[must_use]
    pub fn of_times_ms(times: &[Duration]) -> Option<Self> {
        let values: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        Self::of(&values)
    }
}

/// Nanoseconds per item, for `count` items; `None` without any.
#[must_use]
pub fn nanos_each(time: Duration, count: u64) -> Option<f64> {
    (count > 0).then(|| time.as_nanos() as f64 / count as f64)
}

/// Items per second, for `count` items; `None` if no time passed.
#[must_use]
pub fn per_second(count: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let check = |values: &[f64], expected: Option<(f64, f64, f64)>| {
            let found = Summary::of(values).map(|found| (found.median, found.min, found.max));
            assert_eq!(found, expected, "{values:?}");
        };
        check(&[], None);
        check(&[f64::NAN, 1.0], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[9.0, 1.0], Some((5.0, 1.0, 9.0)));
        check(&[5.0, -1.0, 100.0], Some((5.0, -1.0, 100.0)));
        check(&[4.0, 1.0, 3.0, 2.0], Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn times_are_milliseconds() {
        let times = [Duration::from_micros(1500), Duration::from_micros(500)];
        assert_eq!(Summary::of_times_ms(&times).unwrap().median, 1.0);
    }

    #[test]
    fn rates_need_something_to_divide_by() {
        assert_eq!(nanos_each(Duration::from_micros(3), 2), Some(1500.0));
        assert_eq!(nanos_each(Duration::from_micros(3), 0), None);
        assert_eq!(per_second(10, Duration::from_millis(500)), Some(20.0));
        assert_eq!(per_second(10, Duration::ZERO), None);
    }
}
