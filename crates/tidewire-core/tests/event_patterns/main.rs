//! Subscriptions to patterns of events under random schedules: sessions that subscribe, unsubscribe and end, rules that change and that
//! read records, events with and without history, and interest that becomes visible late.
//!
//! A seed picks which shard runs next, how much of its mailbox it sees, when interest becomes visible and when the store answers. The
//! test must find each planted fault, which proves that each check can fail. `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED`
//! runs one.

mod fault;
mod model;
mod outside;
mod permission;
#[path = "../sim/random.rs"]
mod random;
#[path = "../sim/seeds.rs"]
mod seeds;
mod world;

use fault::Fault;
use model::{Met, Violation};
use world::World;

const SEEDS: u64 = 500;
/// The test must find a planted fault within this many seeds.
const FAULT_SEEDS: u64 = 300;

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = seeds::only() {
        let outcome = World::new(seed, None).run();
        return assert!(outcome.is_ok(), "seed {seed}: {outcome:?}");
    }
    let seeds = seeds::range(SEEDS);
    let count = seeds.end - seeds.start;
    let mut met = Met::default();
    for seed in seeds {
        match World::new(seed, None).run() {
            Ok(of_seed) => met.add(of_seed),
            Err(Violation(why)) => {
                panic!("{why}\nrerun: SEED={seed} cargo test --test event_patterns")
            }
        }
    }
    println!("{count} seeds: {met:?}");
    // Each of these cases must occur; a case that never occurs is not tested.
    assert!(met.has_everything(), "{met:?}");
}

#[test]
fn each_planted_fault_is_found() {
    for fault in Fault::ALL {
        let found = (1..=FAULT_SEEDS).find(|seed| World::new(*seed, Some(fault)).run().is_err());
        println!("{fault:?}: seed {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}
