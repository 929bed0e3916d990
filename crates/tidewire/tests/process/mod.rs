//! The `tidewire` program as a child process. A test starts it on a free port, waits for its first screen, and kills it at the end.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use tempfile::TempDir;

use crate::client::{Client, DEADLINE};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewire");

/// A command without options from the environment, in a folder without a configuration.
pub fn tidewire(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().current_dir(folder);
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = tidewire(folder, arguments)
        .output()
        .expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let code = output.status.code().expect("it ended by itself");
    (code, text(output.stdout), text(output.stderr))
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub folder: TempDir,
    /// Its first screen.
    pub screen: String,
    child: Child,
    log: Receiver<String>,
    /// Open, so that a process that replaces itself can print its first screen.
    _out: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts a server of three shards in a new folder.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::start_in(folder, arguments)
    }

    pub fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        let start_arguments = [
            "start",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--shards",
            "3",
        ];
        let command = tidewire(folder.path(), &[&start_arguments, arguments].concat());
        Self::start_command(folder, command)
    }

    /// Starts a server at an address and does not wait for it.
    pub fn begin_at(address: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let start_arguments = ["start", "--host", &host, "--port", &port];
        let mut command = tidewire(folder.path(), &start_arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let log = lines(child.stderr.take().expect("piped"));
        Self {
            address,
            folder,
            screen: String::new(),
            child,
            log,
            _out: None,
        }
    }

    pub fn start_command(folder: TempDir, mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let log = lines(child.stderr.take().expect("piped"));
        let mut screen = String::new();
        let address = loop {
            let start = screen.len();
            if out.read_line(&mut screen).expect("text") == 0 {
                let lines: Vec<String> = log.iter().collect();
                panic!(
                    "the server ended while starting: {screen}{}",
                    lines.join("\n")
                );
            }
            if let Some(address) = screen[start..].strip_prefix("ready on http://") {
                break address.trim().parse().expect("an address");
            }
        };
        Self {
            address,
            folder,
            screen,
            child,
            log,
            _out: Some(out),
        }
    }

    /// A client that is logged in.
    pub fn log_in(&self) -> Client {
        let mut client = self.open();
        client.log_in();
        client
    }

    /// A client whose WebSocket is open.
    pub fn open(&self) -> Client {
        self.try_open().expect("a WebSocket")
    }

    /// A client whose WebSocket is open, or the status of the refusal.
    pub fn try_open(&self) -> Result<Client, u16> {
        let mut stream = TcpStream::connect(self.address).expect("the server accepts");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let request = "GET /deepstream HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("sent");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream
                .read_exact(&mut byte)
                .expect("the head of the answer");
            head.push(byte[0]);
        }
        match status_of(&String::from_utf8_lossy(&head)) {
            101 => Ok(Client::new(stream)),
            status => Err(status),
        }
    }

    /// The status and body of a page; `None` if the server does not accept the connection.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        self.ask("GET", path)
    }

    /// The same for another method.
    pub fn ask(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        Some((status_of(&answer), body))
    }

    /// The value of a metric in `/metrics`.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = self.get("/metrics")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        let id = rustix::process::Pid::from_raw(id).expect("not zero");
        rustix::process::kill_process(id, signal).expect("the signal is sent");
    }

    /// The next line of the log that contains `part`.
    #[track_caller]
    pub fn expect_log(&self, part: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) if line.contains(part) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line with {part:?} in the log"),
            }
        }
    }

    /// Waits for the end of the process, with any exit code or signal.
    pub fn wait(&mut self) {
        self.child.wait().expect("a child");
    }

    /// Waits for the end of the process, and returns its exit code and the rest of the log.
    #[track_caller]
    pub fn expect_end(&mut self) -> (i32, Vec<String>) {
        let deadline = Instant::now() + DEADLINE;
        let status: ExitStatus = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the server did not end"),
            }
            std::thread::yield_now();
        };
        (
            status.code().expect("it ended by itself"),
            self.log.iter().collect(),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn status_of(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1).unwrap_or_default();
    code.parse()
        .unwrap_or_else(|_| panic!("no status in {answer:?}"))
}

fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
