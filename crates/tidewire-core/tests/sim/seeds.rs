//! Selects the seeds of a simulation: `SEED` selects one; `SIM_FIRST` and `SIM_SEEDS` set the first one and the count.

use std::ops::Range;

/// The only seed to run, if the variable is set.
pub fn only() -> Option<u64> {
    variable("SEED")
}

/// The seeds to run; by default `count` seeds, starting at 1.
pub fn range(count: u64) -> Range<u64> {
    let first = variable("SIM_FIRST").unwrap_or(1);
    first..first + variable("SIM_SEEDS").unwrap_or(count)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
