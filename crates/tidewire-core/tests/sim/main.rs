//! The simulation: many seeds, each with its own run; see `sim.rs`.
//!
//! `SIM_SEEDS` sets the number of seeds, `SIM_FIRST` the first one. `SEED` runs a single seed and prints its messages.

mod check;
mod client;
mod code;
mod disk;
mod event_model;
mod expected;
mod fault;
mod guarded;
mod link;
mod nodes;
mod outside;
mod permission;
mod presence_model;
mod random;
mod record_model;
mod right;
mod rpc_model;
mod rude;
mod seeds;
mod seen;
mod services;
mod shared;
mod sim;
mod store;
mod stores;
mod tally;
mod trouble;
mod wire;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use check::{Check, Violation};
use fault::Fault;
use seen::Seen;
use sim::{Sim, Summary};

const SEEDS: u64 = 1_000;
/// The kinds of messages that the engine can send. The runs prove nothing about a kind that they never deliver.
const KINDS: [&str; 53] = [
    "AcceptTimeout",
    "Accepted",
    "Changed",
    "DeleteDone",
    "Deleted",
    "Error",
    "Event",
    "EventAck",
    "Found",
    "Gap",
    "HasProvider",
    "InvalidVersion",
    "ListenTimeout",
    "LoggedIn",
    "LoginRefused",
    "MultipleAccept",
    "NoProvider",
    "NotFound",
    "Online",
    "OnlineOf",
    "Presence",
    "PresenceAck",
    "ProvideAck",
    "Removed",
    "Request",
    "Response",
    "ResponseTimeout",
    "Unknown",
    "Unlistened",
    "Value",
    "Version",
    "VersionExists",
    "Written",
    "ack Notify",
    "ack SubscribeAndHead",
    "ack SubscribeAndRead",
    "ack SubscribeCreateAndRead",
    "ack Unsubscribe",
    "ended Event",
    "ended Listening",
    "ended Presence",
    "ended Record",
    "ended Rpc",
    "last version",
    "rate of a connection",
    "rate of a user",
    "refused Create",
    "refused Delete",
    "refused Denied",
    "refused Load",
    "refused LoadTimeout",
    "refused RuleFailed",
    "refused Update",
];
/// Number of seeds between two progress lines of a long run.
const PROGRESS_SEEDS: u64 = 10_000;
/// A planted fault must be found within this many seeds.
const FAULT_SEEDS: u64 = 2_000;

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = seeds::only() {
        let outcome = Sim::new(seed, None).traced().run();
        println!("seed {seed}: {outcome:?}");
        return assert!(outcome.is_ok(), "seed {seed}");
    }
    let seeds = seeds::range(SEEDS);
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let began = Instant::now();
    let done = Done::default();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| done.work(first, count, began));
        }
    });
    if let Some((seed, violation)) = done.broken.into_inner().expect("no worker panics") {
        panic!("{violation}\nrerun: SEED={seed} make sim");
    }
    println!(
        "{count} seeds, {} steps, {} deliveries in {:.1} s",
        done.steps.into_inner(),
        done.deliveries.into_inner(),
        began.elapsed().as_secs_f64()
    );
    let seen = done.seen.into_inner().expect("no worker panics");
    println!("{seen}");
    seen.is_large_enough();
    if count >= SEEDS {
        seen.has_met_everything();
    }
}

/// The combined results of the worker threads.
#[derive(Debug, Default)]
struct Done {
    begun: AtomicU64,
    ended: AtomicU64,
    steps: AtomicU64,
    deliveries: AtomicU64,
    seen: Mutex<Seen>,
    broken: Mutex<Option<(u64, Violation)>>,
}

impl Done {
    /// Runs the next free seed until no seeds are left or one has broken a promise.
    fn work(&self, first: u64, count: u64, began: Instant) {
        loop {
            let index = self.begun.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            match run(first + index, None) {
                Ok(summary) => {
                    self.steps.fetch_add(summary.steps, Ordering::Relaxed);
                    self.deliveries
                        .fetch_add(summary.deliveries, Ordering::Relaxed);
                    let mut seen = self.seen.lock().expect("no worker panics");
                    seen.add(&summary);
                }
                Err(violation) => {
                    self.begun.store(count, Ordering::Relaxed);
                    let mut broken = self.broken.lock().expect("no worker panics");
                    broken.get_or_insert((first + index, violation));
                    return;
                }
            }
            let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
            if ended.is_multiple_of(PROGRESS_SEEDS) {
                let seconds = began.elapsed().as_secs_f64();
                println!("{ended} of {count} seeds in {seconds:.0} s");
            }
        }
    }
}

#[test]
fn every_kind_of_answer_is_heard() {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..=300 {
        let counted = Sim::new(seed, None).run_counting();
        for (kind, count) in counted.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
        {
            *kinds.entry(kind).or_insert(0) += count;
        }
    }
    for kind in KINDS {
        assert!(kinds.contains_key(kind), "nobody heard {kind}: {kinds:?}");
    }
}

#[test]
fn a_seed_is_a_replay() {
    for seed in 1..=50 {
        let first = run(seed, None);
        let second = run(seed, None);
        assert_eq!(first.ok(), second.ok(), "seed {seed} has two courses");
    }
}

#[test]
fn every_planted_fault_is_found() {
    for (fault, checks) in Fault::ALL {
        let found = (1..=FAULT_SEEDS).find_map(|seed| match run(seed, Some(fault)) {
            Err(violation) if checks.contains(&violation.check) => Some((seed, violation)),
            _ => None,
        });
        let Some((seeds, violation)) = found else {
            panic!("{fault:?} was not found by {checks:?} within {FAULT_SEEDS} seeds");
        };
        let mistake = fault
            .mistake()
            .map_or(String::new(), |mistake| format!(" ({mistake})"));
        println!(
            "{fault:?}{mistake}: {:?} after {seeds} seeds",
            violation.check
        );
    }
}

/// Runs a seed. A panic counts as a broken property, so that the test reports the seed.
fn run(seed: u64, fault: Option<Fault>) -> Result<Summary, Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| Sim::new(seed, fault).run()));
    outcome.unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation {
            check: Check::NoPanic,
            detail: format!("panicked: {}", text.unwrap_or_default()),
        })
    })
}
