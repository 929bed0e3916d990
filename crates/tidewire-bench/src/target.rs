//! The server of a scenario.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::driver::Protocol;
use crate::failure::Failure;
use crate::link::{Link, tls_client};
use crate::process::Process;
use crate::random;

/// A server to be driven.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The path of the upgrade.
    pub path: String,
    /// Its process, for figures of time and memory; absent if it runs on another machine.
    pub process: Option<Process>,
    /// Whether it returns a publisher's own messages.
    pub has_echo: bool,
    /// The kind of connections.
    pub link: Link,
    /// The other nodes of the server, if it is a cluster. Connections are spread over all nodes.
    pub others: Vec<Node>,
}

/// A further node of a cluster.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its address.
    pub address: SocketAddr,
    /// Its process.
    pub process: Process,
}

impl Target {
    /// The address for a connection. On a cluster it is that of a random node, the same one for the same number.
    #[must_use]
    pub fn address_of(&self, connection: usize) -> SocketAddr {
        let mut state = connection as u64;
        let node = random::split_mix(&mut state) as usize % (self.others.len() + 1);
        match node.checked_sub(1) {
            None => self.address,
            Some(other) => self.others[other].address,
        }
    }

    /// The processes of all nodes that are on this machine.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let others = self.others.iter().map(|node| &node.process);
        self.process.iter().chain(others)
    }

    /// A server on this machine that speaks deepstream's protocol, under the usual path.
    #[must_use]
    pub fn local(address: SocketAddr, pid: u32, has_echo: bool) -> Self {
        Self {
            address,
            protocol: Protocol::Deepstream,
            path: Protocol::Deepstream.path().to_owned(),
            process: Some(Process::new(pid)),
            has_echo,
            link: Link::default(),
            others: Vec::new(),
        }
    }

    /// From `ws://host:port[/path]`, or the same with `wss`.
    ///
    /// # Errors
    /// Another scheme, or a host that has no address.
    pub fn from_url(url: &str, protocol: Protocol) -> Result<Self, Failure> {
        let wrong = || Failure::Argument(format!("{url:?} must look like ws://host:port/path"));
        let mut link = Link::default();
        let rest = match (url.strip_prefix("ws://"), url.strip_prefix("wss://")) {
            (Some(rest), _) => rest,
            (None, Some(rest)) => {
                link.tls = Some(tls_client()?);
                rest
            }
            (None, None) => return Err(wrong()),
        };
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, protocol.path()),
        };
        let path = if path == "/" { protocol.path() } else { path };
        let mut addresses = host.to_socket_addrs().map_err(Failure::system(url))?;
        Ok(Self {
            address: addresses.next().ok_or_else(wrong)?,
            protocol,
            path: path.to_owned(),
            process: None,
            has_echo: false,
            link,
            others: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_over_all_nodes() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut target = Target::local(address(1), std::process::id(), false);
        assert_eq!(target.address_of(7), address(1));
        target.others = [2, 3]
            .map(|port| Node {
                address: address(port),
                process: Process::own(),
            })
            .to_vec();
        let mut counts = [0; 3];
        for connection in 0..300 {
            let port = target.address_of(connection).port();
            counts[usize::from(port) - 1] += 1;
            assert_eq!(target.address_of(connection).port(), port);
        }
        assert!(counts.iter().all(|count| *count > 70), "{counts:?}");
        assert_eq!(target.processes().count(), 3);
    }

    #[test]
    fn urls() {
        let check = |url: &str, expected: Option<(&str, &str)>| {
            let found = Target::from_url(url, Protocol::Deepstream).ok();
            let found = found.map(|target| (target.address.to_string(), target.path));
            let expected = expected.map(|(host, path)| (host.to_owned(), path.to_owned()));
            assert_eq!(found, expected, "{url}");
        };
        check(
            "ws://127.0.0.1:6020",
            Some(("127.0.0.1:6020", "/deepstream")),
        );
        check("ws://[::1]:1/", Some(("[::1]:1", "/deepstream")));
        check("ws://127.0.0.1:1/a/b?c", Some(("127.0.0.1:1", "/a/b?c")));
        check("wss://127.0.0.1:1/", Some(("127.0.0.1:1", "/deepstream")));
        check("http://127.0.0.1:1", None);
        check("ws://127.0.0.1", None);
    }
}
