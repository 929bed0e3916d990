//! Percentiles of latencies without keeping each: buckets whose width grows with the value, so that any percentile is
//! within one part in 128 of the true one, in a few kilobytes.

use std::time::Duration;

/// Buckets for each doubling; the relative error is one part in this.
const PER_DOUBLING: u64 = 128;
/// Doublings above the exact part; the last one ends above eighteen minutes in nanoseconds.
const DOUBLINGS: usize = 34;

/// A sample of durations.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max_nanos: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; PER_DOUBLING as usize * (DOUBLINGS + 1)],
            count: 0,
            max_nanos: 0,
        }
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let last = self.counts.len() - 1;
        self.counts[bucket(nanos).min(last)] += 1;
        self.count += 1;
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// Adds all of another sample.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max_nanos = self.max_nanos.max(other.max_nanos);
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest, exactly.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// The duration that `percent` of the sample do not exceed; `None` for an empty sample.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return Some(Duration::from_nanos(upper(index).min(self.max_nanos)));
            }
        }
        None
    }
}

/// Values below `PER_DOUBLING` have a bucket each; above, each doubling has as many.
fn bucket(nanos: u64) -> usize {
    if nanos < PER_DOUBLING {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() - PER_DOUBLING.ilog2();
    let within = (nanos >> doubling) - PER_DOUBLING;
    (u64::from(doubling + 1) * PER_DOUBLING + within) as usize
}

/// The highest value of a bucket.
fn upper(index: usize) -> u64 {
    let index = index as u64;
    if index < PER_DOUBLING {
        return index;
    }
    let doubling = index / PER_DOUBLING - 1;
    let within = index % PER_DOUBLING + PER_DOUBLING;
    ((within + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        nanos.for_each(|nanos| histogram.add(Duration::from_nanos(nanos)));
        histogram
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        for nanos in (0..2000).chain([1 << 20, (1 << 20) + 1, 123_456_789, 1 << 39]) {
            let index = bucket(nanos);
            assert!(nanos <= upper(index), "{nanos}");
            assert!(index == 0 || nanos > upper(index - 1), "{nanos}");
            assert!(
                (upper(index) - nanos) * PER_DOUBLING <= nanos.max(1),
                "{nanos}"
            );
        }
    }

    #[test]
    fn percentiles() {
        let check = |histogram: &Histogram, percent, expected: u64| {
            let found = histogram.percentile(percent).unwrap().as_nanos() as f64;
            let error = (found - expected as f64).abs() / expected as f64;
            assert!(error < 0.01, "p{percent}: {found}, not {expected}");
        };
        let even = of((1..=1000).map(|number| number * 1000));
        check(&even, 50.0, 500_000);
        check(&even, 99.0, 990_000);
        check(&even, 99.9, 999_000);
        check(&even, 100.0, 1_000_000);
        // One in a thousand is late: the 99th does not show it, the 99.95th does.
        let late = of((0..10_000).map(|number| if number < 10 { 50_000_000 } else { 100_000 }));
        check(&late, 99.0, 100_000);
        check(&late, 99.95, 50_000_000);
        assert_eq!(late.max(), Duration::from_millis(50));
        assert_eq!((late.count(), of(0..0).percentile(50.0)), (10_000, None));
    }

    #[test]
    fn a_merged_sample_is_that_of_both() {
        let mut merged = of(1..=500);
        merged.merge(&of(501..=1000));
        let both = of(1..=1000);
        assert_eq!(merged.counts, both.counts);
        assert_eq!((merged.count(), merged.max()), (1000, both.max()));
    }

    #[test]
    fn values_beyond_all_buckets_count_in_the_last() {
        let histogram = of([u64::MAX].into_iter());
        assert_eq!(histogram.count(), 1);
        assert!(histogram.percentile(50.0).is_some());
    }
}
