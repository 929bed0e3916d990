//! Which seeds a simulation runs: `SEED` names one, `SIM_FIRST` and `SIM_SEEDS` the first one and how many.

use std::ops::Range;

/// The one seed to run, if there is one.
pub fn only() -> Option<u64> {
    variable("SEED")
}

/// The seeds to run, by default `count` from 1 on.
pub fn range(count: u64) -> Range<u64> {
    let first = variable("SIM_FIRST").unwrap_or(1);
    first..first + variable("SIM_SEEDS").unwrap_or(count)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
