//! Servers that the bench starts: child processes on free loopback ports, killed when they are dropped. Their data is
//! in a temporary folder, so a clean stop would save nothing.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cores;
use crate::driver::{PASSWORD, user_name};
use crate::failure::Failure;
use crate::link::Link;
use crate::process::Process;
use crate::rival::Rival;
use crate::target::Target;

/// The time limit for a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of checks for readiness.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
/// A server that uses less than a twentieth of a processor is idle.
const REST_DIVISOR: u32 = 20;
/// If a server is not idle after this time, the next turn starts anyway.
const REST_TIMEOUT: Duration = Duration::from_secs(3);
/// The part of its output that a failure's message shows.
const OUTPUT_BYTES_MAX: usize = 2000;

/// The rules of the scenarios with rules.
const RULES: &str = include_str!("../rules/chat.yml");
/// The number of users then, one for each connection of the largest grid and some more.
const USERS: usize = 10_100;

/// The kind of server to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The null server of this program.
    Null {
        /// Whether it looks at names and records.
        has_rooms: bool,
    },
    /// Tidewire.
    Tidewire {
        /// Its program.
        program: PathBuf,
        /// How many shards it has.
        shards: usize,
        /// Whether it uses the rules of `rules/chat.yml`, with users that have the data they need.
        has_rules: bool,
        /// More of its options, as on its command line.
        options: Vec<String>,
    },
    /// A rival's server, which must be set up.
    Rival(Rival),
}

impl ServerKind {
    /// The label in a report.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Null { has_rooms: false } => "null".to_owned(),
            Self::Null { has_rooms: true } => "null with rooms".to_owned(),
            Self::Tidewire {
                shards, has_rules, ..
            } => {
                let rules = if *has_rules { " with rules" } else { "" };
                format!("tidewire --shards {shards}{rules}")
            }
            Self::Rival(rival) => rival.title.clone(),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    label: String,
    target: Target,
    folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// It can't be started, exits, or is not ready in time; the failure shows the end of its output.
    pub fn start(kind: &ServerKind) -> Result<Self, Failure> {
        Self::start_with(kind, Link::default())
    }

    /// The same for another kind of connections, which only Tidewire supports.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_with(kind: &ServerKind, link: Link) -> Result<Self, Failure> {
        let folder = TempDir::new().map_err(Failure::system("temporary folder"))?;
        let address = free_address().map_err(Failure::system("free port"))?;
        let mut command = command(kind, address, folder.path())?;
        let mut label = kind.label();
        if link.tls.is_some() {
            label += " with TLS";
            encrypt(&mut command, folder.path())?;
        }
        if link.has_compression {
            label += " with compression";
            command.args(["--compression-enabled", "true"]);
        }
        let output = output_path(folder.path());
        let output = File::create(output).map_err(Failure::system("output file"))?;
        let errors = output.try_clone();
        let errors = errors.map_err(Failure::system("output file"))?;
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = cores::as_server(|| command.spawn());
        let child = child.map_err(Failure::system(program))?;
        let mut target = Target::local(address, child.id(), false);
        target.link = link;
        if let ServerKind::Rival(rival) = kind {
            target.protocol = rival.protocol;
            target.path = rival.protocol.path().to_owned();
            target.has_echo = rival.has_echo;
        }
        let mut server = Self {
            child,
            label,
            target,
            folder,
        };
        server.wait_until_ready(kind)?;
        Ok(server)
    }

    /// The label in a report.
    #[must_use]
    pub fn label(&self) -> String {
        self.label.clone()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address and protocol.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Waits until it has done the work after the end of a swarm: thousands of closings, and garbage collection. It
    /// must not disturb the next measurement.
    pub fn rest(&self) {
        let process = Process::new(self.pid());
        let deadline = Instant::now() + REST_TIMEOUT;
        let mut before = process.cpu_time();
        while Instant::now() < deadline {
            std::thread::sleep(ASK_INTERVAL);
            let now = process.cpu_time();
            let (Ok(old), Ok(new)) = (&before, &now) else {
                // It has exited, as its next turn will report.
                return;
            };
            // The time of threads that have ended no longer counts.
            if new.saturating_sub(*old) < ASK_INTERVAL / REST_DIVISOR {
                return;
            }
            before = now;
        }
    }

    fn wait_until_ready(&mut self, kind: &ServerKind) -> Result<(), Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready(kind, self.target.address) {
            let status = self.child.try_wait().map_err(Failure::system("wait"))?;
            if let Some(status) = status {
                return Err(self.failed(&format!("{} ended with {status}", kind.label())));
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!("{} was not ready in time", kind.label())));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(())
    }

    fn failed(&self, what: &str) -> Failure {
        let output = fs::read(output_path(self.folder.path())).unwrap_or_default();
        let end = &output[output.len().saturating_sub(OUTPUT_BYTES_MAX)..];
        Failure::Server(format!("{what}: {}", String::from_utf8_lossy(end).trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output_path(folder: &Path) -> PathBuf {
    folder.join("output")
}

fn command(kind: &ServerKind, address: SocketAddr, folder: &Path) -> Result<Command, Failure> {
    let port = address.port().to_string();
    Ok(match kind {
        ServerKind::Null { has_rooms } => {
            let own = std::env::current_exe().map_err(Failure::system("own program"))?;
            let mut command = Command::new(own);
            command.args(["null", "--port", &port]);
            command.args(has_rooms.then_some("--rooms"));
            command
        }
        ServerKind::Tidewire {
            program,
            shards,
            has_rules,
            options,
        } => {
            let mut command = Command::new(program);
            command
                .args(["start", "--host", "127.0.0.1", "--port", &port])
                .args(["--shards", &shards.to_string(), "--log-level", "warn"])
                .arg("--data")
                .arg(folder.join("data"))
                // All connections of the bench come from one address, and some modes cause disconnects of readers.
                .args(["--backoff-wait-max", "0s"])
                .args(options)
                // It must not read a configuration file of the folder in which the bench was started.
                .current_dir(folder);
            if *has_rules {
                guard(&mut command, folder)?;
            }
            command
        }
        ServerKind::Rival(rival) => rival.command(address.port()),
    })
}

/// Gives Tidewire rules, and users with the data that the rules use.
fn guard(command: &mut Command, folder: &Path) -> Result<(), Failure> {
    let (rules, users) = (folder.join("permissions.yml"), folder.join("users.yml"));
    let entries: String = (0..USERS)
        .map(|user| {
            let (name, password) = (user_name(user), PASSWORD);
            format!("{name}: {{ password: {password}, serverData: {{ role: member }} }}\n")
        })
        .collect();
    fs::write(&rules, RULES).map_err(Failure::system("rules"))?;
    fs::write(&users, entries).map_err(Failure::system("users"))?;
    command.arg("--permissions").arg(rules);
    command.args(["--auth-chain", "file", "--auth-file-path"]);
    command.arg(users);
    Ok(())
}

/// Gives Tidewire a generated certificate. The port also serves unencrypted requests, for the check of readiness.
fn encrypt(command: &mut Command, folder: &Path) -> Result<(), Failure> {
    let failed = |error: rcgen::Error| Failure::Server(format!("certificate: {error}"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).map_err(failed)?;
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    fs::write(&certificate, made.cert.pem()).map_err(Failure::system("certificate"))?;
    fs::write(&key, made.signing_key.serialize_pem()).map_err(Failure::system("key"))?;
    command.arg("--tls-certificate").arg(certificate);
    command.arg("--tls-key").arg(key);
    command.args(["--tls-allow-clear", "true"]);
    Ok(())
}

/// A free port.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn is_ready(kind: &ServerKind, address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        let path = match kind {
            ServerKind::Null { .. } => None,
            ServerKind::Tidewire { .. } => Some("/ready"),
            ServerKind::Rival(rival) => rival.ready_path,
        };
        let Some(path) = path else {
            return Ok(true);
        };
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(program: &str) -> Failure {
        let program = program.into();
        Server::start(&ServerKind::Tidewire {
            program,
            shards: 1,
            has_rules: false,
            options: Vec::new(),
        })
        .unwrap_err()
    }

    #[test]
    fn a_program_that_ends_is_a_failure_with_its_output() {
        // `sort` does not know the flags and fails.
        let failure = start("sort").to_string();
        assert!(failure.contains("ended with"), "{failure}");
        assert!(failure.contains("--host"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_a_failure() {
        let failure = start("/nonexistent/tidewire").to_string();
        assert!(failure.contains("/nonexistent/tidewire"), "{failure}");
    }
}
