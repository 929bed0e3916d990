//! A small random number generator (xorshift64*), so that the same seed repeats the decisions of a run.

use std::time::Duration;

/// A random number generator with a seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A generator for this seed and thrower. Each thrower has a different sequence.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mixed =
            (seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mut random = Self(mixed.max(1));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }

    /// A number from 0 up to, but not including, `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True once in `count` throws on average.
    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A whole number of milliseconds below `longest`.
    pub(super) fn pause(&mut self, longest: Duration) -> Duration {
        let bound = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(bound))
    }

    /// Shuffles the items.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let index = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            items.swap(last, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_streams_differ() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 8].map(|()| random.below(1000))
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(1, 1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<u32>>());
    }
}
