//! Two nodes, which restart, and a link between them over a faulty carrier, in virtual time.
//!
//! A seed picks the kind of the carrier, its faults, what the nodes post, when they handle it, and when they restart, pause or leave. Between
//! two births each byte must be delivered once and in order. Memory is bounded, a peer that does not answer is suspect in time, and after
//! the repair all is delivered and only pings are sent. `e2e/faults/patches/link.patch` plants faults, which this test must find.
//! `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED` runs one.

mod carrier;
#[path = "../../../tidewire-core/tests/sim/every_seed.rs"]
mod every_seed;
mod met;
#[path = "../../../tidewire-core/tests/sim/random.rs"]
mod random;
#[path = "../../../tidewire-core/tests/sim/seeds.rs"]
mod seeds;
mod world;

use every_seed::every_seed;
use met::Met;
use world::World;

/// A few seconds in a debug build.
const SEEDS: u64 = 1_000;

#[test]
fn every_seed_keeps_every_promise() {
    let mut met = Met::default();
    let run = |seed| World::new(seed).run();
    let is_whole = every_seed("simulation", SEEDS, run, |of_seed| met.add(&of_seed));
    println!("{met:?}");
    // A case that never occurs is not tested.
    assert!(!is_whole || met.has_everything(), "{met:?}");
}

/// Equal inputs give equal outputs: the same seed has the same history.
#[test]
fn a_seed_repeats_itself() {
    for seed in 1..=20 {
        let [first, second] = [World::new(seed).run(), World::new(seed).run()];
        assert_eq!(first.expect("passes"), second.expect("passes"));
    }
}
