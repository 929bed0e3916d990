//! The order in which a search visits the listeners: random, or that of their registrations.
//!
//! In a random order each of the candidates of a name is the first with the same probability. A search that began at a random listener and
//! continued in the order of registration would prefer a candidate that registered after many listeners of other names.

use std::collections::BTreeMap;

use super::listener::Listener;

/// Rounds of a shuffle. With fewer rounds, some candidates of short lists are preferred.
const ROUNDS: u32 = 4;

/// Listeners that may have ended before the list is built again, in addition to the number of those that have not.
const ENDED_MAX: usize = 16;

/// The numbers of the listeners by position, so that a search finds the listener of a random position in one step.
#[derive(Debug, Default)]
pub(super) struct ListenerList {
    /// Also has listeners that have ended.
    numbers: Vec<u64>,
    /// Changes when listeners change their positions.
    version: u64,
}

impl ListenerList {
    /// Appends a new listener.
    pub(super) fn push(&mut self, number: u64) {
        self.numbers.push(number);
    }

    /// Removes the listeners that have ended, if these are the majority. So a search visits few positions in vain, and the cost of one
    /// removal is constant on average.
    pub(super) fn trim(&mut self, listeners: &BTreeMap<u64, Listener>) {
        if self.numbers.len() > 2 * listeners.len() + ENDED_MAX {
            self.numbers = listeners.keys().copied().collect();
            self.version += 1;
        }
    }

    /// All listeners in a random order, which `seed` decides.
    pub(super) fn shuffled(&self, seed: u64) -> Visit {
        Visit {
            order: Order::Random {
                shuffle: Shuffle::new(seed, self.numbers.len()),
                version: self.version,
                index: 0,
            },
            pattern: 0,
        }
    }
}

/// The position of a search among the listeners.
#[derive(Debug)]
pub(super) struct Visit {
    order: Order,
    /// The next pattern of the listener that is visited.
    pub(super) pattern: u64,
}

#[derive(Debug)]
enum Order {
    Registration {
        at: u64,
    },
    Random {
        shuffle: Shuffle,
        version: u64,
        index: usize,
    },
}

impl Visit {
    /// All listeners in the order of their registrations.
    pub(super) fn in_order() -> Self {
        Self {
            order: Order::Registration { at: 0 },
            pattern: 0,
        }
    }

    /// The listener that is visited, which may have ended. `None` after the last one.
    pub(super) fn listener(
        &mut self,
        list: &ListenerList,
        listeners: &BTreeMap<u64, Listener>,
    ) -> Option<u64> {
        // When the list is built again, the visited positions are no longer known. The search visits all listeners again, in an order
        // that can't be lost. Clients whose listeners begin and end all the time can't delay it further.
        if let Order::Random { version, .. } = self.order
            && version != list.version
        {
            *self = Self::in_order();
        }
        match &mut self.order {
            Order::Registration { at } => {
                let (&number, _) = listeners.range(*at..).next()?;
                if number != *at {
                    (*at, self.pattern) = (number, 0);
                }
                Some(number)
            }
            Order::Random { shuffle, index, .. } => {
                list.numbers.get(shuffle.position(*index)?).copied()
            }
        }
    }

    /// Continues with the next listener.
    pub(super) fn advance(&mut self) {
        self.pattern = 0;
        match &mut self.order {
            Order::Registration { at } => *at += 1,
            Order::Random { index, .. } => *index += 1,
        }
    }

    /// Begins again with the first listener.
    pub(super) fn restart(&mut self) {
        self.pattern = 0;
        match &mut self.order {
            Order::Registration { at } => *at = 0,
            Order::Random { index, .. } => *index = 0,
        }
    }
}

/// A random order of the numbers below `len`, which takes no memory for each number.
#[derive(Debug)]
struct Shuffle {
    seed: u64,
    len: usize,
}

impl Shuffle {
    fn new(seed: u64, len: usize) -> Self {
        Self { seed, len }
    }

    /// The number at this index of the order; `None` from `len` on.
    fn position(&self, index: usize) -> Option<usize> {
        if index >= self.len {
            return None;
        }
        // Each round maps the numbers of `bits` bits one to one: an addition, a product with an odd number, and a shift that is added
        // without carry. Numbers that are too large are mapped again, so that the rest is one to one too. At least half of the numbers
        // are below `len`, so this takes less than two passes on average.
        let bits = usize::BITS - (self.len - 1).leading_zeros();
        let mask = (1_u64 << bits) - 1;
        let mut number = index as u64;
        loop {
            for round in 0..ROUNDS {
                let key = mix(self.seed.wrapping_add(u64::from(round)));
                number = number.wrapping_add(key >> 32).wrapping_mul(key | 1) & mask;
                number ^= number >> bits.div_ceil(2);
            }
            if number < self.len as u64 {
                return Some(number as usize);
            }
        }
    }
}

/// The finalizer of `SplitMix64`: each bit of the result depends on all bits of the number.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_each_number_once() {
        for len in (0..70).chain([1_000, 1_024, 1_025]) {
            let shuffle = Shuffle::new(len as u64 * 7, len);
            let mut numbers: Vec<usize> = (0..).map_while(|at| shuffle.position(at)).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn each_of_some_numbers_is_the_first_of_them_equally_often() {
        const ROUNDS: u32 = 20_000;
        let cases: [(usize, &[usize]); 6] = [
            (2, &[0, 1]),
            (3, &[0, 1, 2]),
            (5, &[0, 1, 4]),
            (64, &[10, 11]),
            (100, &[0, 1, 2, 98, 99]),
            (1_000, &[500, 501, 502]),
        ];
        for (len, some) in cases {
            let mut firsts = vec![0_u32; some.len()];
            for seed in 0..ROUNDS {
                let shuffle = Shuffle::new(mix(u64::from(seed)), len);
                let first = (0..len).find_map(|at| {
                    let number = shuffle.position(at)?;
                    some.iter().position(|one| *one == number)
                });
                firsts[first.expect("one of them")] += 1;
            }
            let even = ROUNDS / some.len() as u32;
            let is_even = |count: &u32| count.abs_diff(even) < even / 10;
            assert!(firsts.iter().all(is_even), "{len}: {firsts:?}");
        }
    }
}
