//! The end of the process without a stop, and its next start: for `POST /crash` in development mode (decision 0096), and after the other
//! members of a cluster have evicted the node (decision 0108).
//!
//! The process replaces itself by a new one (execve): the kernel ends all threads where they are, frees the memory and closes the sockets
//! and files, as it does at SIGKILL, and no code of the server runs. The id of the process stays, so the terminal, npx, a container and a
//! service manager still wait for the right process.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tidewire_config::Config;
use tidewire_config::layer::Sources;
use tidewire_config::value::Auto;
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::Node;

/// Variable with the ports of the earlier process, `network.port,tls.port`, which it may have found free; a port that it had not is empty.
pub const PORTS: &str = "TIDEWIRE_CRASH_PORTS";
/// Variable with the evictions in a row before this start, and with the pause before it in milliseconds.
pub const REJOIN: &str = "TIDEWIRE_REJOIN";
/// The pause before the next start of a process that could not join again. It doubles with each start.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5);
const OPTIONS: [&str; 2] = ["network.port", "tls.port"];

/// The sources of a process that starts after a crash: with the ports of the earlier process, which its pages and clients know.
pub fn on_ports(mut sources: Sources, ports: Option<&str>) -> Sources {
    for (name, port) in OPTIONS.iter().zip(ports.unwrap_or_default().split(',')) {
        if !port.is_empty() {
            sources.flags.retain(|(flag, _)| flag != name);
            sources.flags.push(((*name).to_owned(), port.to_owned()));
        }
    }
    sources
}

/// The start of a process that replaces a member of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejoin {
    /// How often the node was evicted in a row before.
    pub evictions: u32,
    /// The pause before the start.
    pub pause: Duration,
}

impl Rejoin {
    /// Reads the value of [`REJOIN`]. Without one the process is not such a start.
    pub fn parse(text: Option<&str>) -> Self {
        let parsed = text.and_then(|text| {
            let (evictions, pause) = text.split_once(',')?;
            Some(Self {
                evictions: evictions.parse().ok()?,
                pause: Duration::from_millis(pause.parse().ok()?),
            })
        });
        parsed.unwrap_or_default()
    }

    /// The next start, if this one replaces a member and has failed for a reason that may pass: the store does not answer, its address is
    /// in use, or the other members have evicted the node again.
    pub fn again(self, exit: Exit) -> Option<Self> {
        let may_pass = matches!(exit, Exit::Address | Exit::DataFolder);
        let pause = PAUSE_MIN * (1 << self.evictions.saturating_sub(1).min(8));
        (self.evictions > 0 && may_pass).then(|| Self {
            evictions: self.evictions.saturating_add(1),
            pause: pause.min(PAUSE_MAX),
        })
    }

    fn variable(self) -> String {
        format!("{},{}", self.evictions, self.pause.as_millis())
    }
}

/// Replaces a process that has failed to join again. Returns only if the system refuses that.
pub fn retry(rejoin: Rejoin) -> Failure {
    // The variable with the ports is still set.
    execute(Command::new(program()).env(REJOIN, rejoin.variable()))
}

/// Replaces the process of a node that has lost its part in the cluster. Its clients connect to other nodes.
pub fn rejoin(node: &Node, config: &Config, rejoin: Rejoin) -> Failure {
    replace(node, config, &[(REJOIN, &rejoin.variable())])
}

/// Replaces the process. Returns only if the system refuses that.
pub fn start_again(node: &Node, config: &Config) -> Failure {
    replace(node, config, &[])
}

fn replace(node: &Node, config: &Config, variables: &[(&str, &str)]) -> Failure {
    let port = |addresses: &[SocketAddr]| {
        let first = addresses.first();
        first.map_or_else(String::new, |address| address.port().to_string())
    };
    let main = port(node.addresses());
    // Without a separate port TLS shares the main one.
    let tls = match config.tls.port {
        Auto::Set(_) => port(node.tls_addresses()),
        Auto::Auto => String::new(),
    };
    let mut command = Command::new(program());
    command.env_remove(REJOIN);
    command.env(PORTS, format!("{main},{tls}"));
    execute(command.envs(variables.iter().copied()))
}

/// Replaces the process by the same program with the same arguments.
fn execute(command: &mut Command) -> Failure {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // This runs on the main thread, whose priority and signal mask are not changed: the new process inherits them.
    let error = command.arg0(name).args(arguments).exec();
    Failure::new(
        Exit::Bug,
        format!("the process can't be replaced: {error}; start the server again"),
    )
}

/// The file of this program, also if it was replaced or removed since the start.
fn program() -> PathBuf {
    let found = std::env::current_exe().ok().filter(|path| path.exists());
    found.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_rejoin_is_repeated_unless_its_reason_stays() {
        let check = |evictions, exit, expected: Option<(u32, u64)>| {
            let pause = Duration::ZERO;
            let again = Rejoin { evictions, pause }.again(exit);
            let again = again.map(|again| (again.evictions, again.pause.as_secs()));
            assert_eq!(again, expected, "{evictions} {exit:?}");
        };
        check(0, Exit::DataFolder, None);
        check(1, Exit::Configuration, None);
        check(1, Exit::Bug, None);
        check(1, Exit::DataFolder, Some((2, 1)));
        check(2, Exit::Address, Some((3, 2)));
        check(9, Exit::DataFolder, Some((10, 5)));
        check(u32::MAX, Exit::DataFolder, Some((u32::MAX, 5)));
    }

    #[test]
    fn a_rejoin_has_the_evictions_and_the_pause_of_its_variable() {
        let rejoin = Rejoin::parse(Some("2,4000"));
        assert_eq!(
            (rejoin.evictions, rejoin.pause),
            (2, Duration::from_secs(4))
        );
        assert_eq!(Rejoin::parse(None), Rejoin::default());
        assert_eq!(Rejoin::parse(Some("2")), Rejoin::default());
    }

    #[test]
    fn ports_of_the_earlier_process_replace_the_ones_of_the_command_line() {
        let flags = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            list.iter().map(owned).collect()
        };
        let check = |ports: Option<&str>, expected: &[(&str, &str)]| {
            let sources = Sources {
                flags: flags(&[("network.port", "0"), ("dev", "true")]),
                ..Sources::default()
            };
            assert_eq!(on_ports(sources, ports).flags, flags(expected), "{ports:?}");
        };
        check(None, &[("network.port", "0"), ("dev", "true")]);
        check(Some(","), &[("network.port", "0"), ("dev", "true")]);
        check(Some("81,"), &[("dev", "true"), ("network.port", "81")]);
        let tls = [("network.port", "0"), ("dev", "true"), ("tls.port", "82")];
        check(Some(",82"), &tls);
    }
}
