//! Notifications of a real server to a service manager: ready, reloading, signs of life and stopping.

mod client;
mod process;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use client::{DEADLINE, acknowledged, write};
use process::{Server, tidewire};
use rustix::process::Signal;
use tempfile::TempDir;
use tidewire_core::message::{Change, Message, Record, Write};

const START: [&str; 5] = ["start", "--shards", "1", "--config", "own.yml"];

/// Receives notifications, as systemd does.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    /// Creates a socket in a new folder with a configuration.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        let manager = Self { folder, socket };
        manager.configure("network: {host: 127.0.0.1, port: 0}\n");
        manager
    }

    fn configure(&self, text: &str) {
        fs::write(self.folder.path().join("own.yml"), text).expect("written");
    }

    fn name(&self) -> OsString {
        self.folder.path().join("notify").into()
    }

    /// The next datagram, as lines.
    #[track_caller]
    fn next(&self) -> Vec<String> {
        self.socket
            .set_read_timeout(Some(DEADLINE))
            .expect("a timeout");
        let mut bytes = [0; 1024];
        let length = self.socket.recv(&mut bytes).expect("the manager is told");
        let text = String::from_utf8(bytes[..length].to_vec()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// The next datagram, which must begin with `first`. Skips signs of life.
    #[track_caller]
    fn expect(&self, first: &str) -> Vec<String> {
        loop {
            let lines = self.next();
            if lines[0] == first {
                return lines;
            }
            assert_eq!(lines, ["WATCHDOG=1"], "before {first}");
        }
    }
}

#[test]
fn it_is_notified_when_the_server_serves_lives_reloads_and_stops() {
    let manager = Manager::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = tidewire(manager.folder.path(), &START);
    command.env("NOTIFY_SOCKET", manager.name());
    command.env("WATCHDOG_USEC", "100000");
    let mut server = Server::start_command(folder, command);

    let status = format!("STATUS=ready on http://{}", server.address);
    assert_eq!(manager.next(), ["READY=1", &status]);
    let start = Instant::now();
    for _ in 0..8 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
    // The first sign comes at once, the others each quarter of the timeout.
    assert!(start.elapsed().as_millis() >= 100, "{:?}", start.elapsed());

    server.signal(Signal::HUP);
    let reloading = manager.expect("RELOADING=1");
    let micros: u64 = reloading[1]
        .strip_prefix("MONOTONIC_USEC=")
        .and_then(|number| number.parse().ok())
        .expect("a time");
    assert!(micros > 0);
    assert_eq!(manager.expect("READY=1")[1], "STATUS=reloaded");

    manager.configure("network: {host: 127.0.0.1, prot: 0}\n");
    server.signal(Signal::HUP);
    manager.expect("RELOADING=1");
    let status = manager.expect("READY=1").remove(1);
    assert!(
        status.starts_with(
            "STATUS=not reloaded, the server continues with its earlier configuration: "
        ) && status.contains("prot"),
        "{status}"
    );

    server.signal(Signal::TERM);
    manager.expect("STOPPING=1");
    assert_eq!(server.expect_end().0, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn its_socket_may_have_an_abstract_name() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    let mut manager = Manager::new();
    let name = format!("tidewire-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    manager.socket = UnixDatagram::bind_addr(&address).expect("a socket");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = tidewire(manager.folder.path(), &START);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let _server = Server::start_command(folder, command);
    assert_eq!(manager.next()[0], "READY=1");
}

#[test]
fn a_start_that_fails_is_not_ready() {
    let manager = Manager::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    manager.configure(&format!(
        "network: {{host: 127.0.0.1, port: {}}}\n",
        address.port()
    ));
    let mut command = tidewire(manager.folder.path(), &START);
    let output = command
        .env("NOTIFY_SOCKET", manager.name())
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(3));
    manager.socket.set_nonblocking(true).expect("it can be set");
    let error = manager.socket.recv(&mut [0]).expect_err("nothing came");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn without_one_the_server_serves_all_the_same() {
    let manager = Manager::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = tidewire(manager.folder.path(), &START);
    command.env("NOTIFY_SOCKET", "/nowhere/notify");
    let server = Server::start_command(folder, command);
    server.expect_log("NOTIFY_SOCKET can't be used");
    assert_eq!(server.get("/health").expect("an answer").0, 200);
}

/// Without a sign of life for this long, the service manager ends the server.
const WATCHDOG: Duration = Duration::from_millis(400);
/// The number of patches in the burst. Without limits one turn takes most of them.
const PATCHES: usize = 500;

/// The longest time between two signs of life while one connection sends patches of a record of 4 MB.
fn longest_silence(limits: &str) -> Duration {
    let manager = Manager::new();
    manager.configure(&format!(
        "network: {{host: 127.0.0.1, port: 0}}\nlimits: {{message_bytes_max: 8MiB, record_bytes_max: 8MiB, {limits}}}\n"
    ));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = tidewire(manager.folder.path(), &START);
    command.env("NOTIFY_SOCKET", manager.name());
    command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let server = Server::start_command(folder, command);
    let mut client = server.log_in();
    let large = format!(r#"{{"count":0,"text":"{}"}}"#, "x".repeat(4_000_000));
    client.send(&write("large", -1, &large));
    client.expect(&acknowledged("large"));
    manager.expect("READY=1");
    let patch = |last: bool| {
        let write = Write {
            name: "large",
            version: -1,
            correlation: last.then_some("last"),
            write_ack: last,
            key: None,
        };
        let (path, data) = ("count", Some("1"));
        Message::Record(Record::Write(write, Change::Patch { path, data }))
    };
    client.send_all((1..=PATCHES).map(|number| patch(number == PATCHES)));
    let done = std::thread::spawn(move || {
        client.receive_until(|message| matches!(message, Message::Record(Record::WriteAck { .. })));
    });
    let mut longest = Duration::ZERO;
    while !done.is_finished() {
        let start = Instant::now();
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
        longest = longest.max(start.elapsed());
    }
    done.join().expect("the last patch is acknowledged");
    longest
}

#[test]
fn a_burst_of_patches_of_a_large_record_does_not_stop_the_signs_of_life() {
    // The server sends four signs per timeout of the watchdog, unless a shard has not finished a turn for a second.
    let longest = longest_silence("");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let longest = longest_silence("connection_work_max: 0, turn_work_max: 1TiB");
    // The service manager would have ended the server.
    assert!(longest > WATCHDOG, "{longest:?} without the limits");
}
