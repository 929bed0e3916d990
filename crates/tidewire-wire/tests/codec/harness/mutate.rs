//! A small deterministic mutator: the same seed makes the same inputs, so a test that uses it never flickers.

/// Bytes that sit at the edges of varints, lengths, tags and UTF-8.
const INTERESTING: [u8; 12] = [
    0x00, 0x01, 0x05, 0x0A, 0x7D, 0x7E, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF,
];

/// Makes new inputs of old ones.
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    /// A mutator of `corpus`, which must not be empty.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        assert!(!corpus.is_empty());
        Self {
            corpus,
            state: seed,
        }
    }

    /// The next input: one of the corpus with one to four changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let which = self.below(self.corpus.len());
        let mut input = self.corpus[which].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(8)).min(input.len());
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = INTERESTING[self.below(INTERESTING.len())],
            2 if at < input.len() => input[at] = input[at].wrapping_add(1),
            3 if at < input.len() => input[at] = input[at].wrapping_sub(1),
            4 => drop(input.drain(at..end)),
            5 => input.extend_from_within(at..end),
            _ => {
                let other = self.below(self.corpus.len());
                let from = self.below(self.corpus[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.corpus[other][from..]);
            }
        }
    }

    /// A number below `bound` (splitmix64).
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }
}
