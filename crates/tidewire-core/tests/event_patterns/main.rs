//! Subscriptions to patterns of events under random schedules: sessions that subscribe, unsubscribe and end, rules that change and that
//! read records, events with and without history, and interest that becomes visible late.
//!
//! A seed picks which shard runs next, how much of its mailbox it sees, when interest becomes visible and when the store answers. The
//! test must find each planted fault, which proves that each check can fail. `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED`
//! runs one.

#[path = "../sim/every_seed.rs"]
mod every_seed;
mod fault;
mod model;
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
use model::{Met, Violation};
use world::World;

const SEEDS: u64 = 500;
/// The test must find a planted fault within this many seeds.
const FAULT_SEEDS: u64 = 300;

#[test]
fn every_seed_keeps_every_promise() {
    let mut met = Met::default();
    let run = |seed| World::new(seed, None).run().map_err(|Violation(why)| why);
    let is_whole = every_seed("event_patterns", SEEDS, run, |of_seed| met.add(of_seed));
    println!("{met:?}");
    // Each of these cases must occur; a case that never occurs is not tested.
    assert!(!is_whole || met.has_everything(), "{met:?}");
}

#[test]
fn each_planted_fault_is_found() {
    for fault in Fault::ALL {
        let found = (1..=FAULT_SEEDS).find(|seed| World::new(*seed, Some(fault)).run().is_err());
        println!("{fault:?}: seed {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}
