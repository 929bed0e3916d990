//! The command line: the null server, and a subcommand for each scenario and for the runs of all of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::{ArgMatches, Command};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::arguments::{flag, number, take};
use crate::cluster;
use crate::cores;
use crate::failure::Failure;
use crate::null_server::{NullServer, Options, PlantedFaults};
use crate::report;
use crate::rival::setup;
use crate::runner;
use crate::scenario;

/// The whole command.
#[must_use]
pub fn command() -> Command {
    Command::new("tidewire-bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Load generator and null server; docs/bench.md explains the figures")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(null_command())
        .subcommand(setup::command())
        .subcommand(runner::command())
        .subcommand(cluster::command())
        .subcommand(report::command())
        .subcommands(scenario::ALL.iter().map(|scenario| {
            (scenario.arguments)(Command::new(scenario.name).about(scenario.about))
        }))
}

fn null_command() -> Command {
    Command::new("null")
        .about("Run the null server on 127.0.0.1")
        .arg(number("port", "0", "Port; 0 selects a free one"))
        .arg(number(
            "lose-one-in",
            "0",
            "Plant a fault: skip each Nth send; 0: no fault",
        ))
        .arg(number(
            "double-one-in",
            "0",
            "Plant a fault: repeat each Nth send; 0: no fault",
        ))
        .arg(number(
            "stall-one-in",
            "0",
            "Plant a fault: stall at each Nth publication; 0: no fault",
        ))
        .arg(number("stall-ms", "100", "Milliseconds of a stall"))
        .arg(flag("rooms", "Route by name, and count record versions"))
        .arg(flag("echo", "Return publishers their own messages"))
}

/// Runs the given command.
///
/// # Errors
/// The run gave no figure, or an insufficient one.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    raise_descriptor_limit();
    match matches.subcommand() {
        Some(("null", matches)) => run_null(matches),
        Some(("setup", matches)) => setup::run(matches),
        Some(("all", matches)) => runner::run(matches),
        Some(("cluster", matches)) => cluster::run(matches),
        Some(("report", matches)) => report::run(matches),
        Some((name, matches)) => match scenario::ALL.iter().find(|entry| entry.name == name) {
            Some(scenario) => {
                if scenario.is_pinned {
                    cores::pin_generator().map_err(Failure::system("cores"))?;
                }
                (scenario.run)(matches)
            }
            None => Err(Failure::Argument(format!("unknown command {name:?}"))),
        },
        None => Err(Failure::Argument("no command".to_owned())),
    }
}

/// Raises the limit of descriptors to the system's maximum; the generator needs one for each connection.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Fails only on a system that forbids its announced limit; then opening connections fails with a message.
    let _ = setrlimit(Resource::Nofile, raised);
}

fn run_null(matches: &ArgMatches) -> Result<(), Failure> {
    let port = u16::try_from(take::<u64>(matches, "port")?)
        .map_err(|_| Failure::Argument("a port must be at most 65535".to_owned()))?;
    let faults = PlantedFaults {
        lose_one_in: take(matches, "lose-one-in")?,
        double_one_in: take(matches, "double-one-in")?,
        stall_one_in: take(matches, "stall-one-in")?,
        stall: Duration::from_millis(take(matches, "stall-ms")?),
    };
    let options = Options {
        has_rooms: matches.get_flag("rooms"),
        has_echo: matches.get_flag("echo"),
        faults,
    };
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let server = NullServer::bind(address, options).map_err(Failure::system("null server"))?;
    let address = server.local_address();
    let address = address.map_err(Failure::system("null server"))?;
    println!(
        "null server on ws://{address}, process {}",
        std::process::id()
    );
    server.run().map_err(Failure::system("null server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }
}
