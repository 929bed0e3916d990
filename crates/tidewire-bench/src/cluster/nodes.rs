//! The servers of a run: a Redis, which is the store and registry of Tidewire and the bus of rivals, and the nodes.

use std::cell::Cell;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cores;
use crate::failure::Failure;
use crate::rival::Rival;
use crate::server::{Server, ServerKind, free_address};
use crate::target::{Node, Target};

/// The time limit for a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// The program of a contender's nodes.
#[derive(Clone, Debug)]
pub enum Program {
    /// Tidewire's.
    Tidewire(PathBuf),
    /// A rival's, whose nodes exchange messages over a Redis.
    Rival(Rival),
}

/// A Redis server. It ends with this value, if this run has started it.
#[derive(Debug)]
pub struct Redis {
    url: String,
    started: Option<(Child, TempDir)>,
    /// The databases that are in use.
    databases: Cell<u32>,
}

impl Redis {
    /// Starts one that syncs each write, as Tidewire's store needs.
    ///
    /// # Errors
    /// It can't be started, or is not ready in time.
    pub fn start() -> Result<Self, Failure> {
        let folder = TempDir::new().map_err(Failure::system("temporary folder"))?;
        let address = free_address().map_err(Failure::system("free port"))?;
        let mut command = Command::new("redis-server");
        command
            .args([
                "--port",
                &address.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = cores::as_server(|| command.spawn());
        let child = child.map_err(Failure::system(
            "redis-server (apt-get install -y redis-server)",
        ))?;
        let redis = Self {
            url: format!("redis://{address}"),
            started: Some((child, folder)),
            databases: Cell::new(0),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err(Failure::Server(
                    "redis-server was not ready in time".to_owned(),
                ));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(redis)
    }

    /// A running one. Its databases from 0 on must be empty.
    ///
    /// # Errors
    /// It is not a URL of a Redis without a database.
    pub fn running(url: &str) -> Result<Self, Failure> {
        let wrong = || Failure::Argument(format!("{url:?} must look like redis://host:port"));
        let rest = url.strip_prefix("redis://").ok_or_else(wrong)?;
        if rest.contains('/') {
            return Err(wrong());
        }
        Ok(Self {
            url: url.to_owned(),
            started: None,
            databases: Cell::new(0),
        })
    }

    /// The URL of a database that no other contender uses.
    fn database(&self) -> String {
        let number = self.databases.get();
        self.databases.set(number + 1);
        format!("{}/{number}", self.url)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.started {
            // Both fail only if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The running nodes of a contender.
#[derive(Debug)]
pub struct Nodes {
    servers: Vec<Server>,
    target: Target,
}

impl Nodes {
    /// Starts `count` nodes in order, with a separate database. A single node is not a cluster.
    ///
    /// # Errors
    /// One of them can't be started, or is not ready in time.
    pub fn start(program: &Program, count: usize, redis: &Redis) -> Result<Self, Failure> {
        let database = redis.database();
        let mut servers = Vec::new();
        for _ in 0..count {
            let kind = match program {
                Program::Tidewire(path) => ServerKind::Tidewire {
                    program: path.clone(),
                    shards: 1,
                    has_rules: false,
                    options: options(&database, count > 1),
                },
                Program::Rival(rival) if count == 1 => ServerKind::Rival(rival.clone()),
                Program::Rival(rival) => ServerKind::Rival(rival.clone().with_bus(&database)),
            };
            servers.push(Server::start(&kind)?);
        }
        let mut nodes = servers.iter().map(|server| server.target().clone());
        let no_node = || Failure::Argument("a server has at least one node".to_owned());
        let mut target = nodes.next().ok_or_else(no_node)?;
        for node in nodes {
            let address = node.address;
            target
                .others
                .extend(node.process.map(|process| Node { address, process }));
        }
        Ok(Self { servers, target })
    }

    /// All nodes as one target.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Waits until all have done the work after the end of a swarm.
    pub fn rest(&self) {
        self.servers.iter().for_each(Server::rest);
    }
}

/// Tidewire's options for a node with this store.
fn options(database: &str, is_cluster: bool) -> Vec<String> {
    let mut options = vec!["--store-kind", "redis", "--store-redis-url", database];
    if is_cluster {
        options.extend(["--cluster-enabled", "true", "--cluster-host", "127.0.0.1"]);
        options.extend(["--cluster-port", "0"]);
    }
    options.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_has_its_database() {
        let redis = Redis::running("redis://127.0.0.1:1").unwrap();
        assert_eq!(redis.database(), "redis://127.0.0.1:1/0");
        assert_eq!(redis.database(), "redis://127.0.0.1:1/1");
        for wrong in ["redis://127.0.0.1:1/0", "postgresql://127.0.0.1"] {
            assert_eq!(Redis::running(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn one_node_is_not_a_cluster() {
        assert!(
            !options("redis://x/0", false)
                .iter()
                .any(|option| option.contains("cluster"))
        );
        assert!(options("redis://x/0", true).contains(&"--cluster-enabled".to_owned()));
    }
}
