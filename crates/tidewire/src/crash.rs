//! The end of the process without a stop, and its next start, for `POST /crash` in development mode (decision 0096).
//!
//! The process replaces itself by a new one (execve): the kernel ends all threads where they are, frees the memory and closes the sockets
//! and files, as it does at SIGKILL, and no code of the server runs. The id of the process stays, so the terminal, npx, a container and a
//! service manager still wait for the right process.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use tidewire_config::Config;
use tidewire_config::layer::Sources;
use tidewire_config::value::Auto;
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::Node;

/// Variable with the ports of the earlier process, `network.port,tls.port`, which it may have found free; a port that it had not is empty.
pub const PORTS: &str = "TIDEWIRE_CRASH_PORTS";
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

/// Replaces the process. Returns only if the system refuses that.
pub fn start_again(node: &Node, config: &Config) -> Failure {
    let port = |addresses: &[SocketAddr]| {
        let first = addresses.first();
        first.map_or_else(String::new, |address| address.port().to_string())
    };
    let main = port(node.addresses());
    // Without a port of its own TLS shares the main one.
    let tls = match config.tls.port {
        Auto::Set(_) => port(node.tls_addresses()),
        Auto::Auto => String::new(),
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // This runs on the main thread, whose priority and signal mask are not changed: the new process inherits them.
    let error = Command::new(program())
        .arg0(name)
        .args(arguments)
        .env(PORTS, format!("{main},{tls}"))
        .exec();
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
