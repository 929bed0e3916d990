//! A stop of the program, and a lack of descriptors, as connected and new clients see them.

mod client;
mod process;

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use client::{Client, acknowledged, emit, subscribe, wait_until, write};
use process::{PROGRAM, Server};
use rustix::process::Signal;
use tidewire_core::message::{Call, EventBulk, Message, Record, Rpc};
use tidewire_wire::frame::websocket::CloseCode;

fn call<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Rpc(Rpc::Request {
        call: Call {
            name,
            correlation: "1",
        },
        data: Some(data),
        requestor_name: None,
        requestor_data: None,
    })
}

fn provide(provider: &mut Client, name: &str) {
    provider.send(&Message::Rpc(Rpc::Provide {
        names: vec![name],
        correlation: Some("2"),
    }));
    provider.expect(&Message::Rpc(Rpc::Ack {
        provide: true,
        correlation: Some("2"),
    }));
}

#[test]
fn an_idle_server_stops_at_once_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        let start = Instant::now();
        server.signal(signal);
        let (code, _) = server.expect_end();
        assert_eq!(code, 0);
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_signal_behind_the_first_answer_stops_the_server_well() {
    for _ in 0..5 {
        // A separate address, so that no server of another test takes the port in the meantime.
        let free = TcpListener::bind("127.0.0.2:0").expect("a free port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let mut server = Server::begin_at(address);
        // The server listens before it accepts, so this is its first answer.
        wait_until(|| server.get("/health").is_some());
        server.signal(Signal::TERM);
        assert_eq!(server.expect_end().0, 0);
    }
}

#[test]
fn clients_get_what_was_decided_and_then_1001() {
    let mut server = Server::start(&[]);
    let mut reader = server.log_in();
    reader.send(&subscribe("news"));
    reader.expect_ack(EventBulk::Subscribe);
    let mut writer = server.log_in();
    for number in 0..100 {
        writer.send(&emit("news", &number.to_string()));
    }
    writer.send(&write("last", 1, "{\"words\":true}"));
    writer.receive_until(|message| *message == acknowledged("last"));
    server.signal(Signal::TERM);
    for number in 0..100 {
        reader.expect(&emit("news", &number.to_string()));
    }
    assert_eq!(reader.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(writer.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(server.expect_end().0, 0);
}

/// Writes records, and returns their names when all writes are acknowledged.
fn written(writer: &mut Client, round: u32) -> Vec<String> {
    let names: Vec<String> = (0..50)
        .map(|number| format!("record/{round}/{number}"))
        .collect();
    for name in &names {
        writer.send(&write(name, 1, "{\"kept\":true}"));
    }
    // Acknowledgements of different shards come in any order.
    let mut missing: BTreeSet<String> = names.iter().cloned().collect();
    while !missing.is_empty() {
        writer.receive_until(|message| match message {
            Message::Record(Record::WriteAck { name, .. }) => missing.remove(*name),
            other => panic!("{other:?} instead of an acknowledgement"),
        });
    }
    names
}

fn expect_written(server: &Server, names: &[String]) {
    let mut reader = server.log_in();
    for name in names {
        reader.send(&Message::Record(Record::Read { name }));
        reader.receive_until(|message| match message {
            Message::Record(Record::ReadResponse {
                name: of,
                version: 1,
                data: "{\"kept\":true}",
                ..
            }) => of == name,
            other => panic!("{other:?} instead of the value of {name}"),
        });
    }
}

#[test]
fn acknowledged_writes_are_there_after_the_next_start() {
    let mut server = Server::start(&[]);
    let names = written(&mut server.log_in(), 1);
    server.signal(Signal::TERM);
    assert_eq!(server.expect_end().0, 0);
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().expect("a folder"));
    expect_written(&Server::start_in(folder, &[]), &names);
}

#[test]
fn a_requested_crash_ends_the_process_at_once_and_starts_it_again_on_its_port() {
    // The server takes a free port, which its next start has to take again.
    let server = Server::start(&[]);
    let threads = |id: u32| -> BTreeSet<String> {
        let found = std::fs::read_dir(format!("/proc/{id}/task")).expect("a process");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("a thread").file_name();
        found
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    };
    for round in 1..=2 {
        let before = threads(server.id());
        let mut writer = server.log_in();
        writer.send(&subscribe("news"));
        writer.expect_ack(EventBulk::Subscribe);
        let names = written(&mut writer, round);
        let answer = server
            .ask("POST", "/crash")
            .expect("an answer before the end");
        assert_eq!(answer.0, 202, "{}", answer.1);
        // Not even a close frame: the kernel closes the socket.
        writer.expect_end();
        wait_until(|| {
            server
                .get("/ready")
                .is_some_and(|(status, _)| status == 200)
        });
        expect_written(&server, &names);
        let common = before.intersection(&threads(server.id())).count();
        assert_eq!(common, 1, "all threads but the main one have ended");
        let nice = |id: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("a process");
            let fields = stat.rsplit(") ").next().expect("fields");
            fields.split(' ').nth(16).map(str::to_owned)
        };
        assert_eq!(nice(server.id()), nice(std::process::id()));
    }
}

#[test]
fn a_running_call_is_answered_and_new_work_is_refused() {
    let mut server = Server::start(&["--drain-timeout", "20s"]);
    let mut provider = server.log_in();
    provide(&mut provider, "slow");
    let mut requestor = server.log_in();
    requestor.send(&call("slow", "1"));
    let request = call("slow", "1");
    provider.expect(&request);
    let answered = Call {
        name: "slow",
        correlation: "1",
    };
    provider.send(&Message::Rpc(Rpc::Accept(answered)));
    requestor.expect(&Message::Rpc(Rpc::Accept(answered)));
    server.signal(Signal::TERM);
    wait_until(|| TcpStream::connect(server.address).is_err());
    // The call is still pending, so the server still reads, but it refuses new requests.
    let mut was_refused = false;
    while !was_refused {
        requestor.send(&write("new", 1, "{}"));
        requestor.receive_until(|message| {
            was_refused = matches!(message, Message::Record(Record::Error(_)));
            was_refused || *message == acknowledged("new")
        });
    }
    provider.send(&Message::Rpc(Rpc::Response {
        call: answered,
        data: Some("42"),
    }));
    requestor.expect(&Message::Rpc(Rpc::Response {
        call: answered,
        data: Some("42"),
    }));
    assert_eq!(requestor.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(provider.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(server.expect_end().0, 0);
}

#[test]
fn a_call_without_an_answer_is_counted_and_the_code_is_not_0() {
    let mut server = Server::start(&["--drain-timeout", "600ms", "--rpc-response-timeout", "60s"]);
    let mut provider = server.log_in();
    provide(&mut provider, "never");
    let mut requestor = server.log_in();
    requestor.send(&call("never", "1"));
    provider.expect(&call("never", "1"));
    provider.send(&Message::Rpc(Rpc::Accept(Call {
        name: "never",
        correlation: "1",
    })));
    server.signal(Signal::TERM);
    let (code, log) = server.expect_end();
    assert_eq!(code, 5, "{log:?}");
    let last = log.last().expect("a line");
    assert!(
        last.contains("1 calls without an answer") && last.contains("drain_timeout"),
        "{last}"
    );
}

#[test]
fn ready_says_no_while_connections_are_still_accepted() {
    let mut server = Server::start(&["--drain-timeout", "20s", "--drain-delay", "1s"]);
    assert_eq!(server.get("/ready").map(|(status, _)| status), Some(200));
    server.signal(Signal::TERM);
    wait_until(|| {
        server
            .get("/ready")
            .is_some_and(|(status, _)| status == 503)
    });
    let (_, body) = server.get("/ready").expect("still accepting");
    assert!(body.contains("\"draining\""), "{body}");
    assert_eq!(server.get("/health").map(|(status, _)| status), Some(200));
    let mut late = server.log_in();
    assert_eq!(late.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(server.expect_end().0, 0);
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::start(&["--drain-timeout", "60s", "--drain-delay", "15s"]);
    let start = Instant::now();
    server.signal(Signal::TERM);
    wait_until(|| {
        server
            .get("/ready")
            .is_some_and(|(status, _)| status == 503)
    });
    server.signal(Signal::INT);
    let (code, log) = server.expect_end();
    assert_eq!(code, 5);
    assert!(
        log.last()
            .is_some_and(|line| line.contains("second signal")),
        "{log:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

/// Process 1 of a container gets no signal that it does not handle.
#[test]
fn process_1_of_a_container_stops_on_a_signal() {
    let container = ["-Urpf", "--kill-child"];
    let probe = Command::new("unshare").args(container).arg("true").status();
    assert!(
        probe.as_ref().is_ok_and(std::process::ExitStatus::success),
        "this test needs `unshare` and the right to make a process namespace \
         (apt-get install -y util-linux): {probe:?}"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("unshare");
    command.args(container).args([
        PROGRAM,
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--shards",
        "3",
    ]);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(folder.path());
    let mut server = Server::start_command(folder, command);
    let mut client = server.log_in();
    let children = format!("/proc/{0}/task/{0}/children", server.id());
    let inner = std::fs::read_to_string(children).expect("a child");
    let inner = inner
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("one child");
    rustix::process::kill_process(inner, Signal::TERM).expect("the signal is sent");
    assert_eq!(client.expect_close(), Some(CloseCode::GOING_AWAY));
    assert_eq!(server.expect_end().0, 0);
}

#[test]
fn without_descriptors_accepting_pauses_and_open_connections_are_unaffected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("sh");
    let start =
        format!("ulimit -n 256 && exec {PROGRAM} start --host 127.0.0.1 --port 0 --shards 3");
    command
        .args(["-c", &start])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(folder.path());
    let server = Server::start_command(folder, command);
    assert!(server.screen.contains("up to 189"), "{}", server.screen);
    let mut first = server.log_in();
    first.send(&subscribe("news"));
    first.expect_ack(EventBulk::Subscribe);
    // The server accepts connections up to its limit. Further ones wait in the kernel's queue.
    let mut open: Vec<Client> = (1..189).map(|_| server.open()).collect();
    let mut waiting: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(server.address).expect("the kernel queues it"))
        .collect();
    let line = server.expect_log("accepting is paused");
    assert!(line.contains("ulimit -n"), "{line}");
    // Connected clients can continue.
    let mut second = open.pop().expect("a client");
    second.log_in();
    second.send(&emit("news", "1"));
    first.expect(&emit("news", "1"));
    let spent = processor_time(&server);
    second.ping();
    assert!(
        processor_time(&server) - spent < Duration::from_secs(1),
        "a busy loop"
    );
    // As soon as some clients disconnect, the server accepts the waiting connections.
    open.truncate(100);
    waiting.clear();
    server.expect_log("accepting connections again");
    server.log_in().ping();
    assert!(server.metric("tidewire_accept_pauses_total") >= Some(1));
}

/// The processor time that the server has used.
fn processor_time(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).expect("a process");
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn every_connection_costs_one_descriptor() {
    let server = Server::start(&[]);
    let descriptors = || {
        let folder = format!("/proc/{}/fd", server.id());
        std::fs::read_dir(folder).expect("a process").count()
    };
    let mut clients = vec![server.log_in()];
    clients[0].ping();
    let before = descriptors();
    clients.extend((0..20).map(|_| server.log_in()));
    clients.iter_mut().for_each(Client::ping);
    assert_eq!(descriptors(), before + 20);
    clients.truncate(1);
    wait_until(|| descriptors() == before);
    clients[0].ping();
}
