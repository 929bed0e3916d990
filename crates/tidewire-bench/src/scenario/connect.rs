//! Many idle connections: what each costs the server in memory, and whether a publication reaches all of them.

use std::time::Instant;

use clap::{ArgMatches, Command};

use super::{Scenario, first_part, grid};
use crate::cli::{self, Chosen};
use crate::connection::Subscription;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::process::{self, Memory};
use crate::server::Kind;
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "connect",
    about: "Idle subscribed connections: memory of each, one publication to all",
    arguments,
    is_pinned: true,
    run,
};

/// The event's name.
const EVENT: &str = "bench/connect";

fn arguments(command: Command) -> Command {
    cli::server_arguments(command, "1").arg(cli::number("connections", "10000", "Connections"))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let connections = cli::take_count(matches, "connections", 2)?;
    println!("machine: {}", process::machine());
    let is_started = !matches.contains_id("url") && !matches.get_flag("null");
    if is_started {
        // The yardstick first, so that no figure stands alone.
        connect(
            Chosen::start(&Kind::Null { has_rooms: false })?.target(),
            connections,
        )?;
    }
    connect(Chosen::from_arguments(matches)?.target(), connections)
}

fn connect(target: &Target, connections: usize) -> Result<(), Failure> {
    let mut swarm = Swarm::new(target)?;
    let subscription = |_| Subscription::Names(vec![EVENT.to_owned()]);
    let first = first_part(connections);
    swarm.open(first, subscription)?;
    let before = memory(target)?;
    let start = Instant::now();
    swarm.open(connections - first, subscription)?;
    let opening = start.elapsed();
    let after = memory(target)?;
    println!(
        "connect: {connections} connections, logged in and subscribed; {} in {:.2} s",
        connections - first,
        opening.as_secs_f64()
    );
    if let Some((before, after)) = before.zip(after) {
        let each = |before: u64, after: u64| {
            after.saturating_sub(before) as f64 / (connections - first) as f64
        };
        println!(
            "memory of a connection: {:.0} bytes anonymous, {:.0} resident; process {:.1} MiB anonymous, {:.1} resident",
            each(before.anonymous_bytes, after.anonymous_bytes),
            each(before.resident_bytes, after.resident_bytes),
            after.anonymous_bytes as f64 / f64::from(1 << 20),
            after.resident_bytes as f64 / f64::from(1 << 20),
        );
    }
    publish(&mut swarm, target)
}

fn memory(target: &Target) -> Result<Option<Memory>, Failure> {
    let memory = target.process.as_ref().map(|process| process.memory());
    memory
        .transpose()
        .map_err(Failure::system("memory of the server"))
}

/// One publication of a connection of its own, which every other one receives once.
fn publish(swarm: &mut Swarm, target: &Target) -> Result<(), Failure> {
    let subscribers = swarm.len();
    swarm.open(1, |_| Subscription::Names(vec![EVENT.to_owned()]))?;
    let mut ledger = Ledger::new(swarm.len(), vec![subscribers], target.has_echo);
    let time = grid::round(swarm, &mut ledger, EVENT, grid::PATIENCE)?;
    println!(
        "publish: one event reached all {subscribers} others once, the last after {:.1} ms",
        time.as_secs_f64() * 1e3
    );
    Ok(())
}
