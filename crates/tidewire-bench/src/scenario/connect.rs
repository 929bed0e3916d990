//! New connections per second: each is opened, logged in, subscribed and closed, many at a time.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::Scenario;
use crate::arguments;
use crate::connection::Subscription;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "connect",
    about: "New connections per second, each logged in and subscribed, then closed",
    arguments,
    is_pinned: true,
    run,
};

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number(
            "connections",
            "30000",
            "Total connections",
        ))
        .arg(arguments::number(
            "width",
            "250",
            "Connections that are opened at the same time",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let count = arguments::take_count(matches, "connections", 1)?;
    let width = arguments::take_count(matches, "width", 1)?;
    let time_max = super::take_time_max(matches)?;
    super::measure(matches, false, |target| {
        Ok(vec![connect(target, count, width, time_max)?])
    })
}

/// Opens and closes `count` connections, `width` at a time, or as many as the time allows.
///
/// # Errors
/// One of them is refused or broken.
pub fn connect(
    target: &Target,
    count: usize,
    width: usize,
    time_max: Duration,
) -> Result<Cell, Failure> {
    let end = Instant::now() + time_max;
    let subscription = |_| Subscription::Names(vec!["bench/connect".to_owned()]);
    let mut swarm = Swarm::new(target)?;
    // The server's one-time setup.
    swarm.churn(width, width, end, subscription)?;
    let meter = Meter::start(target)?;
    let done = swarm.churn(count, width, end, subscription)?;
    let usage = meter.read()?;
    let name = format!("{width} at a time");
    let mut cell = Cell::new("connect", name, target.protocol.name(), &usage);
    if done < count {
        cell.status = Status::OverTime;
    }
    cell.set_rate("connections", done as u64, &usage);
    Ok(cell)
}
