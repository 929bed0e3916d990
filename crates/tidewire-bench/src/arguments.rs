//! Arguments that several subcommands share, and the server that they select.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::driver::Protocol;
use crate::failure::Failure;
use crate::link::{Link, tls_client};
use crate::process::Process;
use crate::rival::{self, Rival};
use crate::server::{Server, ServerKind};
use crate::target::Target;

/// The folder of results.
pub(crate) fn folder() -> Arg {
    Arg::new("folder")
        .long("folder")
        .value_name("FOLDER")
        .value_parser(value_parser!(PathBuf))
        .help("Folder of the results [default: target/bench/full or target/bench/quick]")
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
                .value_parser(PossibleValuesParser::new(rival::single_names()))
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
            ..Link::default()
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
