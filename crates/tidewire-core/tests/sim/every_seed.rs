//! Runs a simulation with each of the selected seeds.

use crate::seeds;

/// Runs the selected seeds, by default `count` of them, and adds the cases that each has met. Panics at the first broken promise, with the
/// command that repeats it. Returns whether the runs together must have met every case, which a single selected seed need not.
pub fn every_seed<Met>(
    test: &str,
    count: u64,
    run: impl Fn(u64) -> Result<Met, String>,
    mut add: impl FnMut(Met),
) -> bool {
    let only = seeds::only();
    let seeds = only.map_or_else(|| seeds::range(count), |seed| seed..seed + 1);
    println!("{} seeds", seeds.end - seeds.start);
    for seed in seeds {
        match run(seed) {
            Ok(met) => add(met),
            Err(why) => panic!("{why}\nrerun: SEED={seed} cargo test --test {test}"),
        }
    }
    only.is_none()
}
