//! The scenarios, one file each. A new one is a file and a line in [`ALL`].

pub mod connect;
mod fairness;
pub mod grid;
pub mod idle;
pub mod neighbour;
pub mod pairs;
pub mod presence;
pub mod queries;
pub mod rate;
pub mod records;
pub mod rooms;
pub mod rpc;
mod smoke;
mod store;
pub mod stream;
pub mod window;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::arguments::{self, Chosen};
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::process;
use crate::result::{Cell, Results};
use crate::target::Target;

/// A workload and its report.
#[derive(Debug)]
pub struct Scenario {
    /// Its subcommand.
    pub name: &'static str,
    /// Its measurement, in one line.
    pub about: &'static str,
    /// Adds its arguments.
    pub arguments: fn(Command) -> Command,
    /// Whether generator and servers run on separate cores. Not if the generator has several threads.
    pub is_pinned: bool,
    /// Runs it and prints the report.
    pub run: fn(&ArgMatches) -> Result<(), Failure>,
}

/// All scenarios, in the order of the help.
pub const ALL: [Scenario; 14] = [
    grid::SCENARIO,
    smoke::SCENARIO,
    rooms::SCENARIO,
    pairs::SCENARIO,
    rate::SCENARIO,
    idle::SCENARIO,
    connect::SCENARIO,
    fairness::SCENARIO,
    records::SCENARIO,
    store::SCENARIO,
    rpc::SCENARIO,
    queries::SCENARIO,
    window::SCENARIO,
    presence::SCENARIO,
];

/// Adds the common arguments of all modes whose results are cells.
fn cell_arguments(command: Command) -> Command {
    command
        .arg(arguments::number(
            "patience",
            "30",
            "Seconds without a delivery or response after which the missing ones count as lost",
        ))
        .arg(arguments::number(
            "cell-seconds",
            "120",
            "Seconds after which a cell ends, complete or not",
        ))
        .arg(
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Also write the results to a file"),
        )
}

/// The end of a cell, complete or not.
fn take_time_max(matches: &ArgMatches) -> Result<Duration, Failure> {
    Ok(Duration::from_secs(
        arguments::take_count(matches, "cell-seconds", 1)? as u64,
    ))
}

/// If nothing arrives for this time, the missing deliveries count as lost.
fn take_patience(matches: &ArgMatches) -> Result<Duration, Failure> {
    Ok(Duration::from_secs(
        arguments::take_count(matches, "patience", 1)? as u64,
    ))
}

/// Measures the server of the arguments, prints its cells and writes them. A null server looks at names if the mode
/// `needs_rooms`.
fn measure(
    matches: &ArgMatches,
    needs_rooms: bool,
    cells: impl FnOnce(&Target) -> Result<Vec<Cell>, Failure>,
) -> Result<(), Failure> {
    let server = Chosen::from_arguments(matches, needs_rooms)?;
    println!("machine: {}", process::machine());
    let mut cells = cells(server.target())?;
    for cell in &mut cells {
        cell.server = server.label();
        print!("{}", cell.text());
    }
    match matches.get_one::<PathBuf>("json") {
        Some(file) => Results::new(cells).write(file),
        None => Ok(()),
    }
}

/// The number of `connections` that are opened before the first reading of the server's memory, so that the server's
/// one-time setup does not count.
fn first_part(connections: usize) -> usize {
    connections.div_ceil(10)
}

/// Refuses a server whose protocol lacks the measured ability.
fn require(target: &Target, has_it: bool, what: &str) -> Result<(), Failure> {
    match has_it {
        true => Ok(()),
        false => Err(Failure::Argument(format!(
            "{} has no {what}",
            target.protocol.name()
        ))),
    }
}

/// For callers that expect no message.
fn nothing(connection: usize, incoming: Incoming<'_>) -> Result<(), Failure> {
    Err(unexpected(connection, incoming))
}

/// The failure for an unexpected message.
fn unexpected(connection: usize, incoming: Incoming<'_>) -> Failure {
    Failure::Peer {
        connection,
        what: format!("received {incoming:?}"),
    }
}
