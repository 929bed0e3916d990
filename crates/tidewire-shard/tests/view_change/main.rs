//! The change of a view: nodes that join, leave and crash while clients write, make transactions, subscribe, query, provide rpcs, publish,
//! and watch each other.
//! The nodes know the interest of each other as in the server, so a publication goes only to nodes with subscribers.
//!
//! A seed picks what clients do, which shard runs next, how much of its mailbox it sees, when links deliver, when shards announce their
//! interest, when the store answers, and when views change. The links are perfect until a node crashes: then a part of what it has posted
//! still arrives. A node that is evicted continues until it reads the view, and a client may connect to it. The store is linearizable and
//! takes no commit of a process that its view does not have. `SIM_SEEDS` and `SIM_FIRST` select the seeds; `SEED` runs one.

mod client;
#[path = "../../../tidewire-core/tests/sim/every_seed.rs"]
mod every_seed;
#[path = "../../../tidewire-core/tests/sim/live_rows.rs"]
mod live_rows;
mod met;
mod outside;
#[path = "../../../tidewire-core/tests/sim/random.rs"]
mod random;
#[path = "../../../tidewire-core/tests/sim/seeds.rs"]
mod seeds;
mod store;
mod views;
mod world;

use every_seed::every_seed;
use met::Met;
use world::{Violation, World};

const SEEDS: u64 = 500;

#[test]
fn every_seed_keeps_every_promise() {
    let mut met = Met::default();
    let run = |seed| World::new(seed).run().map_err(|Violation(why)| why);
    let is_whole = every_seed("view_change", SEEDS, run, |of_seed| met.add(&of_seed));
    println!("{met:?}");
    // Each of these cases must occur; a case that never occurs is not tested.
    assert!(!is_whole || met.has_everything(), "{met:?}");
}

/// The node at the other end of a lost link may still serve clients until a view without it holds.
#[test]
fn a_change_of_rights_waits_for_a_view_without_a_lost_node() {
    let mut world = two_nodes();
    if let Err(Violation(why)) = world.loses_a_link_during_a_change() {
        panic!("{why}");
    }
}

/// Until then the session has the subscription, and earlier messages of it may wait for a client that reads slowly.
#[test]
fn a_change_of_rules_waits_for_the_next_owner_of_a_record() {
    let mut subscribed = 0;
    for lost in [1, 2] {
        match two_nodes().loses_an_owner_during_a_change(lost) {
            Ok(count) => subscribed += count,
            Err(Violation(why)) => panic!("{why}"),
        }
    }
    assert!(subscribed > 0, "no client was subscribed to a lost owner");
}

/// A rule may wait for another record when its record passes to another owner. The client does not notice it.
#[test]
fn a_check_of_new_rules_passes_to_the_next_owner() {
    let mut kept = 0;
    for leaving in [1, 2] {
        match two_nodes().drains_an_owner_during_a_check(leaving) {
            Ok(count) => kept += count,
            Err(Violation(why)) => panic!("{why}"),
        }
    }
    assert!(kept > 0, "no client was subscribed");
}

fn two_nodes() -> World {
    let two_nodes = (0..).map(World::new).find(|world| world.node_count() == 2);
    two_nodes.expect("a seed has two nodes")
}
