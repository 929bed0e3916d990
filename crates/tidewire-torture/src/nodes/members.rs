//! The nodes of the cluster as processes, and their network.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::broken_store::{Break, MARK};
use super::super::server::{Launch, Server};
use super::network::{Network, Place, own_address};
use super::{ClusterSettings, store};

/// All nodes are members again within this time after the last fault, even on a busy machine.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The nodes.
pub(super) struct Members {
    nodes: Vec<Node>,
    pub(super) network: Network,
}

struct Node {
    launch: Launch,
    address: SocketAddr,
    /// `None` while the process does not run.
    server: Option<Server>,
    /// How often its earlier processes became members again.
    rejoin_count: u64,
}

impl Members {
    /// Starts all nodes and waits until they are one cluster.
    ///
    /// # Errors
    /// A node does not start, or does not become a member.
    pub(super) fn start(
        settings: &ClusterSettings,
        broken: Option<Break>,
        folder: &Path,
    ) -> Result<Self, String> {
        let network = Network::default();
        let mut nodes = Vec::new();
        for index in 0..settings.node_count {
            let node = Node::prepare(index, settings, broken, folder, &network);
            nodes.push(node.map_err(|error| format!("can't prepare a node: {error}"))?);
        }
        let mut members = Self { nodes, network };
        for index in 0..members.nodes.len() {
            members.run(index)?;
        }
        members.await_all()?;
        Ok(members)
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The addresses for clients.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Writes a line of the test into the log of each node.
    pub(super) fn note(&self, line: &str) {
        self.nodes.iter().for_each(|node| node.launch.note(line));
    }

    /// Starts the process of a node.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn run(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let server =
            Server::start(&node.launch).map_err(|error| format!("node {}: {error}", index + 1))?;
        node.server = Some(server);
        Ok(())
    }

    pub(super) fn signal(&self, index: usize, signal: Signal) {
        if let Some(server) = &self.nodes[index].server {
            server.signal(signal);
        }
    }

    /// Kills a node.
    pub(super) fn kill(&mut self, index: usize) {
        if let Some(server) = self.nodes[index].take() {
            server.kill();
        }
    }

    /// Stops a node with SIGTERM.
    ///
    /// # Errors
    /// It did not end in time with code 0.
    pub(super) fn stop(&mut self, index: usize) -> Result<(), String> {
        let server = self.nodes[index].take();
        server
            .map_or(Ok(()), Server::stop)
            .map_err(|error| format!("node {}: {error}", index + 1))
    }

    /// Cuts a node off from the other nodes, or from the broker of the links.
    pub(super) fn isolate(&self, index: usize) {
        self.network.cut(Place::Node(index), Place::Broker);
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            self.network.cut(Place::Node(index), Place::Node(other));
        }
    }

    /// How often nodes became members again after the others had evicted them.
    pub(super) fn rejoin_count(&self) -> u64 {
        self.nodes.iter().map(|node| node.rejoin_count).sum()
    }

    /// Waits until every node is ready and has the same view, with all nodes as active members. Returns its number.
    ///
    /// # Errors
    /// That takes too long, or a node has ended by itself.
    pub(super) fn await_all(&mut self) -> Result<u64, String> {
        let deadline = Instant::now() + MEMBERS_TIMEOUT;
        loop {
            if let Some(view) = self.common_view() {
                return Ok(view);
            }
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if let Some(how) = node.server.as_mut().and_then(Server::ended) {
                    return Err(format!("node {} ended by itself with {how}", index + 1));
                }
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "the nodes were not all members of one view within {MEMBERS_TIMEOUT:?}: {}",
                    self.states().join(", ")
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The view of all nodes, if all are ready and active in it.
    pub(super) fn common_view(&self) -> Option<u64> {
        let mut views = self.nodes.iter().map(|node| node.view(self.nodes.len()));
        let first = views.next()??;
        views.all(|view| view == Some(first)).then_some(first)
    }

    fn states(&self) -> Vec<String> {
        let state = |node: &Node| {
            let server = node.server.as_ref()?;
            let (status, _) = server.page("/ready").ok()?;
            let view = server.counter("tidewire_cluster_view");
            Some(format!("/ready {status} in view {view}"))
        };
        let states = self.nodes.iter().enumerate();
        states
            .map(|(index, node)| {
                let state = state(node).unwrap_or_else(|| "no answer".to_owned());
                format!("node {}: {state}", index + 1)
            })
            .collect()
    }
}

impl Node {
    fn prepare(
        index: usize,
        settings: &ClusterSettings,
        broken: Option<Break>,
        folder: &Path,
        network: &Network,
    ) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let data = folder.join(format!("node-{}", index + 1));
        std::fs::create_dir(&data)
            .and_then(|()| std::fs::write(data.join(MARK), ""))
            .map_err(|error| format!("{}: {error}", data.display()))?;
        let host = own_address(index);
        let port = || -> Result<u16, String> {
            let listener = TcpListener::bind((host, 0)).map_err(text)?;
            Ok(listener.local_addr().map_err(text)?.port())
        };
        let (client_port, link_port) = (port()?, port()?);
        let store_proxy = network
            .lead_to_server(index, Place::Store, &settings.store)
            .map_err(text)?;
        let section = store::section(&settings.store);
        let mut options = vec![
            format!("network.host={host}"),
            format!("network.port={client_port}"),
            "cluster.enabled=true".to_owned(),
            format!("store.kind={section}"),
            format!(
                "store.{section}.url={}",
                settings.store.through(store_proxy)
            ),
            format!("store.timeout={}ms", store::TIMEOUT.as_millis()),
        ];
        match &settings.link {
            None => {
                let proxy = network.lead_to_node(index, link_port).map_err(text)?;
                options.push(format!("cluster.host={host}"));
                options.push(format!("cluster.port={link_port}"));
                options.push(format!("cluster.advertise={proxy}"));
            }
            // Kafka gives its clients its own address, so that no proxy can be in between.
            Some(link) if link.scheme() == "kafka" => {
                options.push(format!("cluster.link={}", link.text()));
            }
            Some(link) => {
                let proxy = network
                    .lead_to_server(index, Place::Broker, link)
                    .map_err(text)?;
                options.push(format!("cluster.link={}", link.through(proxy)));
            }
        }
        Ok(Self {
            launch: Launch {
                program: std::env::current_exe().map_err(text)?,
                launcher: Vec::new(),
                log: folder.join(format!("node-{}.log", index + 1)),
                data,
                broken,
                options,
            },
            address: SocketAddr::from((host, client_port)),
            server: None,
            rejoin_count: 0,
        })
    }

    /// The process, which is about to end.
    fn take(&mut self) -> Option<Server> {
        let server = self.server.take()?;
        self.rejoin_count += server.ready_count().saturating_sub(1);
        Some(server)
    }

    /// The number of the view in which this node and all others are active, if it is ready.
    fn view(&self, count: usize) -> Option<u64> {
        let server = self.server.as_ref()?;
        let (status, _) = server.page("/ready").ok()?;
        let active = server.counter("tidewire_cluster_members{state=\"active\"}");
        let is_whole = status == 200 && active == count as u64;
        is_whole.then(|| server.counter("tidewire_cluster_view"))
    }
}
