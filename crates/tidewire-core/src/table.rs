//! Hash tables with a seed that is an argument, so that a run can be repeated and clients can't choose collisions.

use foldhash::fast::FixedState;

/// A map; never iterated where the order would decide anything.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A set; never iterated where the order would decide anything.
pub(crate) type Set<K> = hashbrown::HashSet<K, FixedState>;

/// An empty map of the given seed.
pub(crate) fn map<K, V>(seed: u64) -> Map<K, V> {
    Map::with_hasher(FixedState::with_seed(seed))
}

/// An empty set of the given seed.
pub(crate) fn set<K>(seed: u64) -> Set<K> {
    Set::with_hasher(FixedState::with_seed(seed))
}

/// A small pseudo-random generator (xorshift64*), for choices that need not be secret.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Starts from `seed`; equal seeds give equal throws.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let thrown = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        // The high half scaled to the bound: no division, and the bias is below 2^-32 for any list that fits memory.
        ((thrown * bound as u64) >> 32) as usize
    }
}
