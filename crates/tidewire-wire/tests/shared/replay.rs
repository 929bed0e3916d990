//! Mutations of a corpus as a test. The module that includes this file has the mutator as `mutate`.

use std::fmt::Display;

use super::mutate::Mutator;

/// Checks this many mutations of the inputs, and panics at the first finding.
pub fn check_mutations<Finding: Display>(
    inputs: Vec<Vec<u8>>,
    count: usize,
    finding: impl Fn(&[u8]) -> Option<Finding>,
) {
    let mut mutator = Mutator::new(inputs, 1);
    for round in 0..count {
        let input = mutator.next_input();
        if let Some(what) = finding(&input) {
            panic!("round {round}: {what}: {input:02x?}");
        }
    }
}
