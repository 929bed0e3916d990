//! Deferred requests under random schedules: sessions that cost more than their share of a turn, rules that change in between,
//! and sessions that end.
//!
//! Turns have small work limits, so owners often defer requests, which the models of `tests/sim` do not cover. A seed picks which
//! shard runs next, how much of its mailbox and of its connections it sees, and when the store answers. Each planted fault must
//! be found by its check. `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED` runs one.

#[path = "../sim/every_seed.rs"]
mod every_seed;
mod fault;
#[path = "../sim/kept_records.rs"]
mod kept_records;
#[path = "../sim/nodes.rs"]
mod nodes;
mod outside;
mod permission;
#[path = "../sim/random.rs"]
mod random;
#[path = "../sim/seeds.rs"]
mod seeds;
mod world;

use every_seed::every_seed;
use fault::Fault;
use world::{Met, Violation, World};

const SEEDS: u64 = 300;
/// The test must find a planted fault within this many seeds.
const FAULT_SEEDS: u64 = 200;

#[test]
fn every_seed_keeps_every_promise() {
    let mut met = Met::default();
    let run = |seed| {
        World::new(seed, None)
            .run()
            .map_err(|Violation(check, why)| format!("{check:?}: {why}"))
    };
    let is_whole = every_seed("deferral", SEEDS, run, |of_seed| met.add(&of_seed));
    println!("{met:?}");
    // Each of these cases must occur; a case that never occurs is not tested.
    assert!(!is_whole || met.has_everything(), "{met:?}");
}

#[test]
fn each_planted_fault_is_found_by_its_check() {
    for (fault, check) in Fault::ALL {
        // In some runs another check finds the effects of a fault before its own check does.
        let mut outcomes =
            (1..=FAULT_SEEDS).map(|seed| (seed, World::new(seed, Some(fault)).run()));
        let found = outcomes.find_map(|(seed, outcome)| {
            let Violation(found, why) = outcome.err()?;
            (found == check).then_some((seed, why))
        });
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} is not found by {check:?}");
    }
}
