//! The resident memory of a real server while sessions make it keep as much as possible: it stays within `limits.memory_bytes_max`,
//! and falls to its earlier size after the sessions have ended.

#![cfg(target_os = "linux")]

mod client;
mod process;

use std::fs;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Client, DEADLINE, write};
use process::Server;
use tidewire_core::message::{Call, Connection, Event, Message, Record, RecordBulk, Rpc};
use tidewire_wire::protocol::deepstream::Deepstream;

const MEMORY_BYTES_MAX: usize = 32 << 20;
/// Maximum growth of the idle process: the budget, a quarter of it, and memory that the budget does not count.
const GROWN_BYTES_MAX: usize = MEMORY_BYTES_MAX / 4 * 5 + (64 << 20);
/// Maximum growth of the idle process that remains after the sessions have ended.
const LEFT_BYTES_MAX: usize = 20 << 20;
/// Maximum bytes of unused records in the budget.
const STORE_CACHE: &str = "4MiB";
/// Bytes that each attack tries to make the server keep: several times the budget.
const KEPT_BYTES: usize = 240 << 20;

fn resident_bytes(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.expect("a line").trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().expect("a number") << 10
}

/// Measures the peak of a process's resident memory.
struct Watch {
    peak: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(process: u32) -> Self {
        let (peak, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let thread = std::thread::spawn({
            let (peak, is_over) = (Arc::clone(&peak), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    peak.fetch_max(resident_bytes(process), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        Self {
            peak,
            is_over,
            thread: Some(thread),
        }
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Writes all messages until the server closes the connection. Reads and ignores the answers at the same time.
fn attack(client: &mut Client, mut next: impl FnMut(usize, &mut Vec<u8>) -> bool) {
    let reader = client.stream.try_clone().expect("a socket");
    let reader = std::thread::spawn(move || {
        let mut sink = std::io::sink();
        // The copy ends with the connection.
        let _ = std::io::copy(&mut &reader, &mut sink);
    });
    let mut bytes = Vec::new();
    for number in 0.. {
        bytes.clear();
        if !next(number, &mut bytes) || client.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = client.stream.shutdown(Shutdown::Both);
    reader.join().expect("it reads");
}

fn frame(message: &Message<'_>, out: &mut Vec<u8>) {
    Deepstream::encode_masked_frame(message, [1, 2, 3, 4], out);
}

/// Fills the caches of records and of the store as on a working server, so that their memory does not count as growth.
fn fill_caches(client: &mut Client) {
    let data = format!("[\"{}\"]", "x".repeat(1_000));
    for portion in 0..20 {
        let names: Vec<String> = (0..500)
            .map(|number| format!("used/{}", name(portion, number)))
            .collect();
        client.send_all(names.iter().map(|name| write(name, -1, &data)));
        let mut left = names.len();
        client.receive_until(|message| {
            left -= usize::from(matches!(message, Message::Record(Record::WriteAck { .. })));
            left == 0
        });
    }
    client.ping();
}

/// Runs an attack of `sessions` sessions while another session continues to work, and checks the memory of the server.
fn check(sessions: usize, run: impl Fn([Client; 2], usize) + Sync) {
    check_with(&[], sessions, run);
}

/// As [`check`], with further options of the server.
fn check_with(options: &[&str], sessions: usize, run: impl Fn([Client; 2], usize) + Sync) {
    let limits = ["--limits-memory-bytes-max", "32MiB"];
    let cache = ["--store-cache", STORE_CACHE];
    let server = Server::start(&[&limits, &cache, options].concat());
    let mut bystander = server.log_in();
    fill_caches(&mut bystander);
    let idle = resident_bytes(server.id());
    let watch = Watch::start(server.id());
    std::thread::scope(|scope| {
        for number in 0..sessions {
            let (run, pair) = (&run, [server.log_in(), server.log_in()]);
            scope.spawn(move || run(pair, number));
        }
    });
    let grown = watch.peak().saturating_sub(idle);
    drop(watch);
    assert!(grown <= GROWN_BYTES_MAX, "{} MB more", grown >> 20);
    bystander.send(&Message::Connection(Connection::Ping));
    bystander.receive_until(|message| *message == Message::Connection(Connection::Pong));
    let start = Instant::now();
    loop {
        let left = resident_bytes(server.id()).saturating_sub(idle);
        if left <= LEFT_BYTES_MAX {
            return;
        }
        assert!(start.elapsed() < DEADLINE, "{} MB are left", left >> 20);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A unique name of more than 1,000 bytes.
fn name(session: usize, number: usize) -> String {
    format!("{session}/{number:0>1000}")
}

/// Sends messages with a hundred new names each, up to `KEPT_BYTES` of names for all sessions together.
fn new_names(
    [mut client, _other]: [Client; 2],
    session: usize,
    sessions: usize,
    message: impl Fn(Vec<&str>) -> Message<'_>,
) {
    let count = KEPT_BYTES / 1000 / 100 / sessions;
    attack(&mut client, |number, out| {
        let names: Vec<String> = (0..100)
            .map(|more| name(session, number * 100 + more))
            .collect();
        frame(&message(names.iter().map(String::as_str).collect()), out);
        number < count
    });
}

#[test]
fn names_of_events_that_are_subscribed_to_stay_within_the_budget() {
    check(5, |pair, session| {
        new_names(pair, session, 5, |names| {
            Message::Event(Event::Subscribe {
                names,
                correlation: Some("1"),
                positions: Vec::new(),
            })
        });
    });
}

#[test]
fn names_of_rpcs_that_are_provided_stay_within_the_budget() {
    check(5, |pair, session| {
        new_names(pair, session, 5, |names| {
            Message::Rpc(Rpc::Provide {
                names,
                correlation: Some("1"),
            })
        });
    });
}

#[test]
fn records_that_are_created_and_subscribed_to_stay_within_the_budget() {
    check(4, |pair, session| {
        new_names(pair, session, 4, |names| {
            Message::Record(Record::Bulk {
                action: RecordBulk::SubscribeCreateAndRead,
                names,
                correlation: Some("1"),
            })
        });
    });
}

/// Requests new names in both ways, from four connections.
fn ask_for_new_names([mut client, _other]: [Client; 2], session: usize) {
    let count = KEPT_BYTES / 1000 / 4;
    attack(&mut client, |number, out| {
        let name = name(session, number);
        let message = match number % 2 {
            0 => Record::Head { name: &name },
            _ => Record::Read { name: &name },
        };
        frame(&Message::Record(message), out);
        number < count
    });
}

#[test]
fn missing_names_that_were_only_asked_for_take_nothing() {
    check(4, ask_for_new_names);
}

#[test]
fn names_that_sessions_may_not_read_take_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("permissions.yml");
    // The shard must load the record before it can authorize the request.
    let text = r#"
record:
  "*": { create: true, write: true, read: "oldData !== null && oldData.isOpen === true" }
event:
  "*": {}
rpc:
  "*": {}
presence:
  "*": {}
"#;
    fs::write(&rules, text).expect("written");
    let path = rules.to_str().expect("a path");
    check_with(&["--permissions", path], 4, ask_for_new_names);
}

#[test]
fn calls_that_are_never_answered_stay_within_the_budget() {
    for bytes in [200_000, 50_000] {
        check(1, |[mut requestor, mut provider], _| {
            provider.send(&Message::Rpc(Rpc::Provide {
                names: vec!["slow"],
                correlation: Some("1"),
            }));
            let socket = provider.stream.try_clone().expect("a socket");
            let mut answers = provider.stream.try_clone().expect("a socket");
            let accepting = std::thread::spawn(move || {
                provider.receive_all(|message| {
                    if let Message::Rpc(Rpc::Request { call, .. }) = message {
                        let mut bytes = Vec::new();
                        frame(&Message::Rpc(Rpc::Accept(*call)), &mut bytes);
                        // The server may have closed the connection in the meantime.
                        let _ = answers.write_all(&bytes);
                    }
                });
            });
            let data = format!("\"{}\"", "x".repeat(bytes));
            attack(&mut requestor, |number, out| {
                let call = Call {
                    name: "slow",
                    correlation: &number.to_string(),
                };
                let request = Rpc::Request {
                    call,
                    data: Some(&data),
                    requestor_name: None,
                    requestor_data: None,
                };
                frame(&Message::Rpc(request), out);
                number < KEPT_BYTES / bytes
            });
            let _ = socket.shutdown(Shutdown::Both);
            accepting.join().expect("it accepts");
        });
    }
}
