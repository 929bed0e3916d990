//! The rival servers: the kind of each, its start, and its versions.
//!
//! `rivals/` of this crate has their programs and lock files; [`setup`] fetches and builds their dependencies.

pub mod setup;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver::Protocol;
use crate::failure::Failure;

/// The folder of the rivals' programs.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rivals");
/// Represents the port in a start command.
const PORT: &str = "{port}";
/// The names of all included rivals.
pub const NAMES: [&str; 6] = [
    "deepstream",
    "socketio-ws",
    "socketio-bun",
    "bun",
    "socketioxide",
    "nats",
];
/// The names of the rivals that `queries` measures.
pub const QUERY_NAMES: [&str; 3] = ["deepstream", "feathers", "repoll"];
/// The names of the rivals of which several nodes share a bus; `cluster` measures them.
pub const CLUSTER_NAMES: [&str; 2] = ["deepstream-redis", "socketio-redis"];
/// The name of the rival that a start command makes.
pub const CUSTOM: &str = "custom";

/// A rival's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name on the command line and in results.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Whether it returns publishers' own messages.
    pub has_echo: bool,
    /// The path that answers 200 when it is ready; without one it is ready when it accepts connections.
    pub ready_path: Option<&'static str>,
    start: Start,
    /// The URL of the Redis that carries messages between its nodes.
    bus: Option<String>,
}

/// The runtime of a rival.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    /// Node, with one of the programs.
    Node(&'static str),
    /// Bun from npm, with one of the programs.
    Bun(&'static str),
    /// The program that is built from a crate here.
    Crate(&'static str),
    /// Debian's NATS server.
    Nats,
    /// The user's command, for the shell.
    Shell(String),
}

/// The names of all rivals of which one node is measured.
#[must_use]
pub fn single_names() -> Vec<&'static str> {
    let more = QUERY_NAMES.into_iter().filter(|name| !NAMES.contains(name));
    NAMES.into_iter().chain(more).collect()
}

/// All included rivals.
#[must_use]
pub fn all() -> Vec<Rival> {
    NAMES.into_iter().filter_map(named).collect()
}

/// The rival of this name.
#[must_use]
pub fn named(name: &str) -> Option<Rival> {
    let (title, protocol, start) = match name {
        "deepstream" => (
            "deepstream",
            Protocol::Deepstream,
            Start::Node("deepstream.cjs"),
        ),
        "socketio-ws" => (
            "Socket.IO on ws",
            Protocol::SocketIo,
            Start::Node("socketio-ws.mjs"),
        ),
        "deepstream-redis" => (
            "deepstream with Redis",
            Protocol::Deepstream,
            Start::Node("deepstream-redis.cjs"),
        ),
        "socketio-redis" => (
            "Socket.IO with Redis",
            Protocol::SocketIo,
            Start::Node("socketio-redis.mjs"),
        ),
        "feathers" => ("Feathers", Protocol::SocketIo, Start::Node("feathers.mjs")),
        "repoll" => (
            "Meteor's polling of queries",
            Protocol::Plain,
            Start::Node("repoll.mjs"),
        ),
        "socketio-bun" => (
            "Socket.IO on Bun",
            Protocol::SocketIo,
            Start::Bun("socketio-bun.mjs"),
        ),
        "bun" => (
            "Bun publish",
            Protocol::Plain,
            Start::Bun("bun-publish.mjs"),
        ),
        "socketioxide" => (
            "socketioxide",
            Protocol::SocketIo,
            Start::Crate("socketioxide-rival"),
        ),
        "nats" => ("NATS", Protocol::Nats, Start::Nats),
        _ => return None,
    };
    Some(Rival {
        name: name.to_owned(),
        title: title.to_owned(),
        protocol,
        has_echo: false,
        // It listens before its endpoints are registered.
        ready_path: name.starts_with("deepstream").then_some("/health-check"),
        start,
        bus: None,
    })
}

impl Rival {
    /// Any other server: `command` is for the shell and contains `{port}`, on which it listens on 127.0.0.1 and
    /// implements the bench's contract for plain WebSocket servers. It must be one process, which stays in the
    /// foreground.
    ///
    /// # Errors
    /// The command has no `{port}`.
    pub fn from_command(command: &str, has_echo: bool) -> Result<Self, Failure> {
        if !command.contains(PORT) {
            return Err(Failure::Argument(format!(
                "{command:?} does not contain {PORT}"
            )));
        }
        Ok(Self {
            name: CUSTOM.to_owned(),
            title: command.to_owned(),
            protocol: Protocol::Plain,
            has_echo,
            ready_path: None,
            start: Start::Shell(command.to_owned()),
            bus: None,
        })
    }

    /// The same as a node whose messages to other nodes go over a Redis.
    #[must_use]
    pub fn with_bus(self, url: &str) -> Self {
        Self {
            bus: Some(url.to_owned()),
            ..self
        }
    }

    /// The command that starts it on a port.
    #[must_use]
    pub fn command(&self, port: u16) -> Command {
        let folder = Path::new(FOLDER);
        let script = |runtime: PathBuf, program: &str| {
            let mut command = Command::new(runtime);
            command.arg(folder.join(program)).arg(port.to_string());
            command.args(&self.bus);
            command
        };
        match &self.start {
            Start::Node(program) => script("node".into(), program),
            Start::Bun(program) => script(bun(), program),
            Start::Crate(program) => {
                let mut command = Command::new(built(program));
                command.arg(port.to_string());
                command
            }
            Start::Nats => {
                let mut command = Command::new("nats-server");
                command
                    .arg("--config")
                    .arg(folder.join("nats.conf"))
                    .env("PORT", port.to_string());
                command
            }
            Start::Shell(line) => {
                let mut command = Command::new("sh");
                // `exec`, so that the measured and killed process is the server and not the shell.
                let line = format!("exec {}", line.replace(PORT, &port.to_string()));
                command.arg("-c").arg(line);
                command
            }
        }
    }

    /// Its version, such as `socket.io 4.8.4, node v20.20.2`.
    ///
    /// # Errors
    /// It is not set up.
    pub fn version(&self) -> Result<String, Failure> {
        let node = || said_by("node", &["--version"]).map(|version| format!("node {version}"));
        let bun = || npm("bun");
        let parts = match self.name.as_str() {
            "deepstream" => vec![npm("@deepstream/server")?, node()?],
            "deepstream-redis" => vec![
                npm("@deepstream/server")?,
                npm("@deepstream/clusternode-redis")?,
                node()?,
            ],
            "socketio-redis" => vec![
                npm("socket.io")?,
                npm("@socket.io/redis-adapter")?,
                npm("redis")?,
                node()?,
            ],
            "socketio-ws" => vec![npm("socket.io")?, npm("engine.io")?, node()?],
            "feathers" => vec![
                npm("@feathersjs/feathers")?,
                npm("@feathersjs/memory")?,
                npm("@feathersjs/socketio")?,
                node()?,
            ],
            "repoll" => vec![npm("sift")?, npm("ws")?, node()?],
            "socketio-bun" => vec![npm("socket.io")?, npm("@socket.io/bun-engine")?, bun()?],
            "bun" => vec![bun()?],
            "socketioxide" => vec![locked("socketioxide")?],
            "nats" => vec![said_by("nats-server", &["--version"])?],
            _ => vec![self.title.clone()],
        };
        Ok(parts.join(", "))
    }
}

/// Bun's program, which its package names the same on all systems.
fn bun() -> PathBuf {
    Path::new(FOLDER).join("node_modules/bun/bin/bun.exe")
}

/// A program that [`setup`] has built.
fn built(program: &str) -> PathBuf {
    target_folder().join("release").join(program)
}

/// The build folder of the rivals' crates, next to Tidewire's own `target` and ignored by Git.
fn target_folder() -> PathBuf {
    Path::new(FOLDER).join("../../../target/bench-rivals")
}

/// The installed version of an npm package.
fn npm(package: &str) -> Result<String, Failure> {
    let file = Path::new(FOLDER)
        .join("node_modules")
        .join(package)
        .join("package.json");
    let text = fs::read_to_string(&file).map_err(Failure::system(file.display().to_string()))?;
    let manifest: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Failure::Server(format!("{}: {error}", file.display())))?;
    let version = manifest["version"].as_str().unwrap_or("unknown");
    Ok(format!("{package} {version}"))
}

/// The version of a crate in the rivals' lock file.
fn locked(package: &str) -> Result<String, Failure> {
    let file = Path::new(FOLDER).join("socketioxide/Cargo.lock");
    let text = fs::read_to_string(&file).map_err(Failure::system(file.display().to_string()))?;
    let version = locked_version(&text, package);
    Ok(format!("{package} {}", version.unwrap_or("unknown")))
}

fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}

/// The first line that a program prints.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(Failure::system(program))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_rival() {
        assert_eq!(all().len(), NAMES.len());
        for (rival, name) in all().iter().zip(NAMES) {
            assert_eq!(rival.name, name);
            assert_ne!(rival.name, CUSTOM);
        }
        assert_eq!(named("carrier pigeon"), None);
    }

    #[test]
    fn programs_and_lock_files_are_there() {
        let folder = Path::new(FOLDER);
        for rival in all()
            .into_iter()
            .chain(CLUSTER_NAMES.into_iter().filter_map(named))
            .chain(QUERY_NAMES.into_iter().filter_map(named))
        {
            match rival.start {
                Start::Node(program) | Start::Bun(program) => {
                    assert!(folder.join(program).is_file(), "{program}");
                }
                Start::Crate(_) => assert!(folder.join("socketioxide/Cargo.lock").is_file()),
                Start::Nats => assert!(folder.join("nats.conf").is_file()),
                Start::Shell(_) => panic!("{} is no rival of the bench's own", rival.name),
            }
        }
        assert!(folder.join("package-lock.json").is_file());
    }

    #[test]
    fn a_command_of_the_user_gets_the_port() {
        let rival = Rival::from_command("my-server --port {port}", true).unwrap();
        assert!(rival.has_echo && rival.protocol == Protocol::Plain);
        let command = rival.command(4711);
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["-c", "exec my-server --port 4711"]);
        assert!(Rival::from_command("my-server", false).is_err());
    }

    #[test]
    fn versions_of_crates_come_from_the_lock_file() {
        assert!(
            locked("socketioxide")
                .unwrap()
                .starts_with("socketioxide 0.")
        );
        assert_eq!(locked_version("", "socketioxide"), None);
    }
}
