//! Several nodes with the real membership machine, in virtual time.
//!
//! The registry is linearizable, but each node may lose it, and a request or its answer may be late or lost. Links may be cut in one
//! direction, and processes crash, pause and start again. A seed picks all of it. `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED`
//! runs one. `e2e/faults/patches/membership.patch` has planted faults, each of which the simulation finds.

#[path = "../../../tidewire-core/tests/sim/every_seed.rs"]
mod every_seed;
mod promises;
#[path = "../../../tidewire-core/tests/sim/random.rs"]
#[expect(dead_code, reason = "other simulations pick items, too")]
mod random;
mod registry;
mod relink;
#[path = "../../../tidewire-core/tests/sim/seeds.rs"]
mod seeds;
mod world;

use every_seed::every_seed;
use promises::Met;
use world::World;

const SEEDS: u64 = 300;

#[test]
fn every_seed_keeps_every_promise() {
    let mut met = Met::default();
    let run = |seed| World::new(seed).run();
    let is_whole = every_seed("membership", SEEDS, run, |of_seed| met.add(&of_seed));
    println!("{met:?}");
    // Each of these cases must occur; a case that never occurs is not tested.
    assert!(!is_whole || met.has_everything(), "{met:?}");
}
