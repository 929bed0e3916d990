//! One server of the torture test: this program as a child process with a given data folder.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::broken_store::Break;
use super::events;

/// The shards of each server. More than one, so that sessions use records that another shard owns.
const SHARDS: &str = "2";
/// The longest time that a stop may take, see `drain_timeout`.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the test checks whether the process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The variables with the password of a shared store.
pub(super) const SECRETS: [&str; 2] = [
    "TIDEWIRE_STORE__POSTGRES__PASSWORD",
    "TIDEWIRE_STORE__REDIS__PASSWORD",
];
/// A server is ready within this time, even if it waits for its store first.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// All threads of a stopped process halt within this time, even on a busy machine.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(10);
/// The server answers an HTTP request within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How to start a server.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// The program.
    pub(super) program: PathBuf,
    /// A program with arguments that replaces itself with the server; empty to start the server directly.
    pub(super) launcher: Vec<String>,
    /// The data folder.
    pub(super) data: PathBuf,
    /// The log file.
    pub(super) log: PathBuf,
    /// The planted fault, if the server is broken on purpose.
    pub(super) broken: Option<Break>,
    /// More options of the server, as `--set` has them. They replace the usual ones.
    pub(super) options: Vec<String>,
}

impl Launch {
    /// Writes a line of the test into the log.
    pub(super) fn note(&self, line: &str) {
        // The line only helps people who read the log, so a failure is ignored.
        if let Ok(mut log) = self.open_log() {
            let _ = writeln!(log, "torture: {line}");
        }
    }

    fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.log)
    }
}

/// A running server. A drop kills it.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    ready_count: Arc<AtomicU64>,
}

impl Server {
    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// The server ended instead. The text has its status and the end of its log.
    pub(super) fn start(launch: &Launch) -> Result<Self, String> {
        let mut child = command(launch)
            .and_then(|mut command| command.spawn())
            .map_err(|error| format!("{}: can't start: {error}", launch.program.display()))?;
        let out = child.stdout.take().ok_or("no standard output")?;
        let ready_count = Arc::<AtomicU64>::default();
        let (sender, addresses) = channel();
        let counted = Arc::clone(&ready_count);
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || read_output(out, &counted, &sender))
            .map_err(|error| error.to_string())?;
        match addresses.recv_timeout(START_TIMEOUT) {
            Ok(address) => Ok(Self {
                child,
                address,
                ready_count,
            }),
            Err(error) => {
                if error == RecvTimeoutError::Timeout {
                    // The process may have ended at this moment.
                    let _ = child.kill();
                }
                let status = child.wait().map_err(|error| error.to_string())?;
                Err(format!(
                    "the server did not start ({status}): {}",
                    last_lines(launch)
                ))
            }
        }
    }

    /// How often this process was ready: once, and once more after each eviction from its cluster.
    pub(super) fn ready_count(&self) -> u64 {
        self.ready_count.load(Ordering::Relaxed)
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // Fails only if the process has ended, which the next wait for it reports.
            let _ = kill_process(id, signal);
        }
    }

    /// Sends SIGSTOP and waits until no thread of the server runs. A thread in an uninterruptible system call, such as a sync,
    /// halts at the end of that call.
    ///
    /// # Errors
    /// The server does not halt in time.
    pub(super) fn freeze(&self) -> Result<(), String> {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        while !self.is_frozen() {
            if Instant::now() > deadline {
                return Err(format!(
                    "the server did not stop on SIGSTOP within {FREEZE_TIMEOUT:?}"
                ));
            }
            thread::sleep(POLL_INTERVAL / 10);
        }
        Ok(())
    }

    /// Whether each thread is stopped (T) or waits for a device (D), see proc(5). A process that has ended has no threads.
    fn is_frozen(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            matches!(state, None | Some('T' | 't' | 'D' | 'Z' | 'X'))
        })
    }

    /// Kills the server and waits for its end.
    pub(super) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Stops the server with SIGTERM, as an operator does.
    ///
    /// # Errors
    /// The server did not stop in time, or not with code 0.
    pub(super) fn stop(mut self) -> Result<(), String> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!(
                        "the server ended with {} after SIGTERM",
                        describe(status)
                    ));
                }
                Ok(None) => thread::sleep(POLL_INTERVAL),
                Err(error) => return Err(format!("can't wait for the end of the server: {error}")),
            }
        }
        Err(format!(
            "the server did not end within {STOP_TIMEOUT:?} after SIGTERM"
        ))
    }

    /// How the server ended by itself, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(describe)
    }

    /// The status and the body of an HTTP page of the server.
    ///
    /// # Errors
    /// The server did not answer.
    pub(super) fn page(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (Some(status), Some((_, body))) = (status, answer.split_once("\r\n\r\n")) else {
            return Err(io::Error::other("not an HTTP response"));
        };
        Ok((status, body.to_owned()))
    }

    /// A counter of the server's metrics; 0 if the server does not answer.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let text = self
            .page("/metrics")
            .map(|(_, body)| body)
            .unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what a server prints until it ends, because a server that prints to a closed pipe receives SIGPIPE. Sends its address when it
/// is ready for the first time.
fn read_output(out: ChildStdout, ready_count: &AtomicU64, address: &Sender<SocketAddr>) {
    let mut out = BufReader::new(out);
    let mut line = String::new();
    while out.read_line(&mut line).unwrap_or(0) > 0 {
        let ready = line.strip_prefix("ready on http://");
        if let Some(ready) = ready.and_then(|ready| ready.trim().parse().ok()) {
            ready_count.fetch_add(1, Ordering::Relaxed);
            // The receiver has ended after the first one.
            let _ = address.send(ready);
        }
        line.clear();
    }
}

fn command(launch: &Launch) -> io::Result<Command> {
    let program = launch.program.as_os_str();
    let mut command = match launch.launcher.split_first() {
        Some((launcher, arguments)) => {
            let mut command = Command::new(launcher);
            command.args(arguments).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg("torture-node");
    if let Some(broken) = launch.broken {
        command.args(["--break", broken.name()]);
    }
    match launch.options.is_empty() {
        true => command.args(["--host", "127.0.0.1", "--port", "0"]),
        false => command.args(launch.options.iter().flat_map(|option| ["--set", option])),
    };
    command.args(["--shards", SHARDS]);
    command.arg("--event-history").arg(events::history());
    command.arg("--data").arg(&launch.data);
    let log: File = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&launch.log)?;
    // The server gets only these options: no environment variable except PATH and the password of a shared store, and no configuration
    // file of the current folder.
    let is_passed = |name: &OsStr| name == "PATH" || SECRETS.iter().any(|secret| name == *secret);
    command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_passed(name)));
    if let Some(folder) = launch.log.parent() {
        command.current_dir(folder);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    Ok(command)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no code".to_owned(),
    }
}

/// The end of the log.
fn last_lines(launch: &Launch) -> String {
    let text = std::fs::read_to_string(&launch.log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
