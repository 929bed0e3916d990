//! Counts of latencies by their size, for histograms.

use std::time::Duration;

/// Upper ends of the buckets of a histogram of latencies. Steps of 2 to 2.5 keep a percentile within a factor of 2.5, and within much
/// less if it is interpolated.
pub const LATENCIES: [Duration; 19] = [
    Duration::from_micros(10),
    Duration::from_micros(20),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Counts by the bucket of [`LATENCIES`] with the same index. The last one counts latencies that exceed all of them.
pub type LatencyCounts = [u64; LATENCIES.len() + 1];

/// The index of a latency in [`LatencyCounts`].
#[must_use]
pub fn latency_index(latency: Duration) -> usize {
    LATENCIES.partition_point(|upper| *upper < latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_in_the_first_bucket_that_it_does_not_exceed() {
        for (micros, expected) in [(0, 0), (10, 0), (11, 1), (10_000_000, 18), (10_000_001, 19)] {
            assert_eq!(
                latency_index(Duration::from_micros(micros)),
                expected,
                "{micros}"
            );
        }
        assert!(LATENCIES.is_sorted());
    }
}
