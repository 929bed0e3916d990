//! New connections in a second: each is opened, logged in, subscribed and closed, many at a time.

use clap::{ArgMatches, Command};

use super::Scenario;
use crate::cli;
use crate::connection::Subscription;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::result::Cell;
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "connect",
    about: "New connections in a second, each logged in and subscribed, then closed",
    arguments,
    is_pinned: true,
    run,
};

fn arguments(command: Command) -> Command {
    super::cell_arguments(cli::server_arguments(command, "1"))
        .arg(cli::number("connections", "30000", "Connections in all"))
        .arg(cli::number(
            "width",
            "250",
            "How many are being opened at the same time",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let count = cli::take_count(matches, "connections", 1)?;
    let width = cli::take_count(matches, "width", 1)?;
    super::measure(matches, false, |target| {
        Ok(vec![connect(target, count, width)?])
    })
}

/// Opens and closes `count` connections, `width` at a time.
///
/// # Errors
/// One of them is refused or broken.
pub fn connect(target: &Target, count: usize, width: usize) -> Result<Cell, Failure> {
    let subscription = |_| Subscription::Names(vec!["bench/connect".to_owned()]);
    let mut swarm = Swarm::new(target)?;
    // What a server sets up once.
    swarm.churn(width, width, subscription)?;
    let meter = Meter::start(target)?;
    swarm.churn(count, width, subscription)?;
    let usage = meter.read()?;
    let name = format!("{width} at a time");
    let mut cell = Cell::new("connect", name, target.protocol.name(), &usage);
    cell.set_rate("connections", count as u64, &usage);
    Ok(cell)
}
