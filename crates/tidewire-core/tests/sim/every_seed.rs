//! Runs a simulation with each of the selected seeds.

use crate::seeds;

/// Runs the selected seeds, by default `count` of them, and panics at the first broken promise, with the command that repeats it. Returns
/// whether the runs together must have met every case, which a single selected seed need not.
pub fn every_seed(test: &str, count: u64, mut run: impl FnMut(u64) -> Result<(), String>) -> bool {
    let only = seeds::only();
    let seeds = only.map_or_else(|| seeds::range(count), |seed| seed..seed + 1);
    println!("{} seeds", seeds.end - seeds.start);
    for seed in seeds {
        if let Err(why) = run(seed) {
            panic!("{why}\nrerun: SEED={seed} cargo test --test {test}");
        }
    }
    only.is_none()
}
