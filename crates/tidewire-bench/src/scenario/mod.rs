//! The scenarios, one file each. A new one is a file and a line in [`ALL`].

mod connect;
mod fairness;
pub mod grid;
mod records;
mod smoke;

use clap::{ArgMatches, Command};

use crate::driver::Incoming;
use crate::failure::Failure;

/// A workload and its report.
#[derive(Debug)]
pub struct Scenario {
    /// Its subcommand.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Adds its arguments.
    pub arguments: fn(Command) -> Command,
    /// Whether generator and servers run on their own cores. Not so where the generator has several threads.
    pub is_pinned: bool,
    /// Runs it and prints the report.
    pub run: fn(&ArgMatches) -> Result<(), Failure>,
}

/// All scenarios, in the order of the help.
pub const ALL: [Scenario; 5] = [
    grid::SCENARIO,
    smoke::SCENARIO,
    connect::SCENARIO,
    fairness::SCENARIO,
    records::SCENARIO,
];

/// How many of `connections` are opened before the server's memory is read for the first time, so that what a server
/// sets up once is not counted for each.
fn first_part(connections: usize) -> usize {
    connections.div_ceil(10)
}

/// For the handlers of scenarios: what does not belong there.
fn unexpected(connection: usize, incoming: Incoming<'_>) -> Failure {
    Failure::Peer {
        connection,
        what: format!("received {incoming:?}"),
    }
}
