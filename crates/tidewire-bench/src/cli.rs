//! The command line: the null server and a subcommand for each scenario.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cores;
use crate::driver::Protocol;
use crate::failure::Failure;
use crate::link::{Link, tls_client};
use crate::null_server::{NullServer, Options, PlantedFaults};
use crate::process::Process;
use crate::report;
use crate::rival::{self, Rival, setup};
use crate::runner;
use crate::scenario;
use crate::server::{Server, ServerKind};
use crate::target::Target;

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

/// A numeric argument.
pub(crate) fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .default_value(default)
        .value_parser(value_parser!(u64))
        .help(help)
}

/// A flag.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// The value of an argument that has a default.
pub(crate) fn take<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    name: &str,
) -> Result<T, Failure> {
    matches
        .get_one::<T>(name)
        .cloned()
        .ok_or_else(|| Failure::Argument(format!("--{name} is missing")))
}

/// A count that is at least `min`.
pub(crate) fn take_count(matches: &ArgMatches, name: &str, min: u64) -> Result<usize, Failure> {
    let count: u64 = take(matches, name)?;
    usize::try_from(count)
        .ok()
        .filter(|_| count >= min)
        .ok_or_else(|| Failure::Argument(format!("--{name} must be at least {min}")))
}

/// The argument that names Tidewire's program.
pub(crate) fn server_bin() -> Arg {
    Arg::new("server-bin")
        .long("server-bin")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Tidewire's program [default: `tidewire` in the folder of this program]")
}

/// Tidewire's program.
pub(crate) fn take_server_bin(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    if let Some(program) = matches.get_one::<PathBuf>("server-bin") {
        // The server starts in another folder.
        return std::path::absolute(program).map_err(Failure::system("server program"));
    }
    let own = std::env::current_exe().map_err(Failure::system("own program"))?;
    Ok(own.with_file_name("tidewire"))
}

/// The arguments that select a server: a running one, the null server, or Tidewire with some shards.
pub(crate) fn server_arguments(command: Command, shards: &'static str) -> Command {
    command
        .arg(
            Arg::new("url")
                .long("url")
                .help("Use a running server, ws://host:port/path"),
        )
        .arg(
            Arg::new("protocol")
                .long("protocol")
                .requires("url")
                .default_value(Protocol::Deepstream.name())
                .value_parser(Protocol::ALL.map(Protocol::name))
                .help("Protocol of the server"),
        )
        .arg(
            Arg::new("server-pid")
                .long("server-pid")
                .requires("url")
                .value_parser(value_parser!(u32))
                .help("Process id of the server on this machine, to measure its time and memory"),
        )
        .arg(
            Arg::new("echo")
                .long("echo")
                .requires("url")
                .action(ArgAction::SetTrue)
                .help("The server returns publishers their own messages"),
        )
        .arg(
            Arg::new("null")
                .long("null")
                .conflicts_with("url")
                .action(ArgAction::SetTrue)
                .help("Start the null server instead of Tidewire"),
        )
        .arg(
            Arg::new("rival")
                .long("rival")
                .value_name("NAME")
                .conflicts_with_all(["url", "null"])
                .value_parser(rival::NAMES)
                .help("Start a rival instead of Tidewire; run `setup` first"),
        )
        .arg(
            Arg::new("rival-command")
                .long("rival-command")
                .value_name("LINE")
                .conflicts_with_all(["url", "null", "rival"])
                .help("Start this server instead, on {port}; docs/bench.md describes the contract"),
        )
        .arg(
            Arg::new("rival-echo")
                .long("rival-echo")
                .requires("rival-command")
                .action(ArgAction::SetTrue)
                .help("The server returns publishers their own messages"),
        )
        .arg(flag("tls", "Start Tidewire with TLS").conflicts_with_all(["url", "null", "rival"]))
        .arg(
            flag(
                "compression",
                "Offer permessage-deflate, and enable it in the Tidewire to start",
            )
            .conflicts_with_all(["null", "rival"]),
        )
        .arg(
            flag("batches", "Accept all messages of a turn in one frame")
                .conflicts_with_all(["null", "rival"]),
        )
        .arg(
            flag("rules", "Start Tidewire with the rules of docs/bench.md").conflicts_with_all([
                "url",
                "null",
                "rival",
                "rival-command",
            ]),
        )
        .arg(number("shards", shards, "Shards of the Tidewire to start").conflicts_with("url"))
        .arg(server_bin().conflicts_with("url"))
}

/// The rival of the arguments, by name or by its command.
fn take_rival(matches: &ArgMatches) -> Result<Option<Rival>, Failure> {
    if let Some(line) = matches.get_one::<String>("rival-command") {
        return Rival::from_command(line, matches.get_flag("rival-echo")).map(Some);
    }
    let name = matches.get_one::<String>("rival");
    Ok(name.and_then(|name| rival::named(name)))
}

/// The server of a scenario: a running one, or one that lives as long as this.
#[derive(Debug)]
pub(crate) enum Chosen {
    /// Started by the user.
    Running(Target),
    /// Started here.
    Started(Server),
}

impl Chosen {
    /// Reads the arguments of [`server_arguments`] and starts their server. A null server looks at names if the
    /// scenario `needs_rooms`.
    pub(crate) fn from_arguments(matches: &ArgMatches, needs_rooms: bool) -> Result<Self, Failure> {
        if let Some(url) = matches.get_one::<String>("url") {
            let name: String = take(matches, "protocol")?;
            let protocol = Protocol::from_name(&name)
                .ok_or_else(|| Failure::Argument(format!("unknown protocol {name:?}")))?;
            let mut target = Target::from_url(url, protocol)?;
            target.process = matches.get_one("server-pid").copied().map(Process::new);
            target.has_echo = matches.get_flag("echo");
            target.link.has_compression = matches.get_flag("compression");
            target.link.has_batches = matches.get_flag("batches");
            return Ok(Self::Running(target));
        }
        let kind = if matches.get_flag("null") {
            ServerKind::Null {
                has_rooms: needs_rooms,
            }
        } else if let Some(rival) = take_rival(matches)? {
            ServerKind::Rival(rival)
        } else {
            ServerKind::Tidewire {
                program: take_server_bin(matches)?,
                shards: take_count(matches, "shards", 1)?,
                has_rules: matches.get_flag("rules"),
                options: Vec::new(),
            }
        };
        let link = Link {
            tls: matches.get_flag("tls").then(tls_client).transpose()?,
            has_compression: matches.get_flag("compression"),
            has_batches: matches.get_flag("batches"),
        };
        Self::start_with(&kind, link)
    }

    /// The label in a report.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Running(target) => target.address.to_string(),
            Self::Started(server) => server.label(),
        }
    }

    /// Starts a server and reports it.
    fn start_with(kind: &ServerKind, link: Link) -> Result<Self, Failure> {
        println!("server: {}", kind.label());
        Server::start_with(kind, link).map(Self::Started)
    }

    /// Its address and protocol.
    pub(crate) fn target(&self) -> &Target {
        match self {
            Self::Running(target) => target,
            Self::Started(server) => server.target(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn counts_have_a_least_value() {
        let parse = |count: &str| {
            let matches = Command::new("x")
                .arg(number("rounds", "3", "Rounds"))
                .get_matches_from(["x", "--rounds", count]);
            take_count(&matches, "rounds", 2).ok()
        };
        assert_eq!((parse("1"), parse("2")), (None, Some(2)));
    }
}
