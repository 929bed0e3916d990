//! Shares of callers over HTTP, and the memory that they can use: requests, bodies, streams, rates, answers.

mod client;
mod process;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use client::DEADLINE;
use process::{Server, run, status_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidewire_core::message::{Message, Rpc};

/// Two client addresses that the proxy reports.
const GREEDY: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";

/// A server with this machine as a trusted proxy.
fn proxied(arguments: &[&str]) -> Server {
    let proxy = ["--network-trusted-proxies", "127.0.0.1"];
    Server::start(&[&proxy, arguments].concat())
}

/// Raises the limit of descriptors, because a test opens hundreds of sockets.
fn allow_many_sockets() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised");
}

/// Sends a request with this client address, without waiting for the answer.
fn send(server: &Server, address: &str, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).expect("the server accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-forwarded-for: {address}\r\n\
        content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// The whole answer.
fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn ask(server: &Server, address: &str, head: &str, body: &str) -> String {
    answer(send(server, address, head, body))
}

/// Reads the head of an answer, and no byte after it.
fn read_head(mut stream: &TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn refusals(server: &Server, cause: &str) -> u64 {
    let name = format!("tidewire_refused_requests_total{{cause=\"{cause}\"}}");
    server.metric(&name).expect("a metric")
}

#[track_caller]
fn wait_for(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// The peak of the server's resident memory, in bytes.
fn peak_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes: u64 = kibibytes.expect("a number").parse().expect("a number");
    kibibytes << 10
}

/// `limits.memory_bytes_max` in the tests of memory. The process may use `PEAK_MAX` bytes with it.
const BUDGET: &str = "128MiB";
const PEAK_MAX: u64 = (128 << 20) / 4 * 5 + (64 << 20);

fn put_large(server: &Server, name: &str, bytes: usize) {
    let value = format!("{{\"a\":\"{}\"}}", "x".repeat(bytes));
    let stored = ask(server, OTHER, &format!("PUT /records/{name}"), &value);
    assert_eq!(status_of(&stored), 201, "{stored}");
}

const EMIT: &str = r#"{"body":[{"topic":"event","action":"emit","eventName":"e","data":1}]}"#;

/// A provider that neither answers nor rejects its calls.
fn provide_silence(server: &Server) -> client::Client {
    let mut provider = server.log_in();
    provider.send(&Message::Rpc(Rpc::Provide {
        names: vec!["silence"],
        correlation: Some("1"),
    }));
    provider.receive_until(|message| matches!(message, Message::Rpc(_)));
    provider
}

const CALL: &str = r#"{"body":[{"topic":"rpc","action":"make","rpcName":"silence"}]}"#;

#[test]
fn a_thousand_unanswered_calls_of_one_address_leave_room_for_others() {
    allow_many_sockets();
    let server = proxied(&[
        "--rpc-accept-timeout",
        "20s",
        "--rpc-response-timeout",
        "20s",
    ]);
    let _provider = provide_silence(&server);
    let calls: Vec<TcpStream> = (0..1_000)
        .map(|_| send(&server, GREEDY, "POST /api", CALL))
        .collect();
    wait_for("half of the calls have no place", || {
        refusals(&server, "request_share") == 500
    });
    let emitted = ask(&server, OTHER, "POST /api", EMIT);
    assert!(emitted.contains("\"result\":\"SUCCESS\""), "{emitted}");
    let refused = ask(&server, GREEDY, "POST /api", EMIT);
    assert_eq!(status_of(&refused), 429, "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    let refused = ask(&server, GREEDY, "GET /records/a", "");
    assert!(refused.contains("\"code\":\"CALLER_SHARE\""), "{refused}");
    assert_eq!(refusals(&server, "requests"), 0);
    drop(calls);
}

#[test]
fn a_thousand_unanswered_calls_of_one_user_leave_room_for_others_at_its_address() {
    allow_many_sockets();
    let secret = "a secret of at least thirty-two bytes";
    let jwt = [
        "--auth-chain",
        "jwt",
        "--auth-jwt-secret",
        secret,
        "--permissions",
        "allow_all",
    ];
    let timeouts = [
        "--rpc-accept-timeout",
        "20s",
        "--rpc-response-timeout",
        "20s",
    ];
    let server = proxied(&[&jwt[..], &timeouts].concat());
    let token = |user: &str| {
        let command = [&["token", "--user", user][..], &jwt].concat();
        let (code, text, problem) = run(server.folder.path(), &command);
        assert_eq!(code, 0, "{problem}");
        text.trim().to_owned()
    };
    let (greedy, other) = (token("greedy"), token("other"));
    let mut provider = server.open();
    provider.log_in_with(&format!("{{\"token\":\"{}\"}}", token("provider")));
    provider.send(&Message::Rpc(Rpc::Provide {
        names: vec!["silence"],
        correlation: Some("1"),
    }));
    provider.receive_until(|message| matches!(message, Message::Rpc(_)));
    let with =
        |token: &str, body: &str| body.replacen('{', &format!("{{\"token\":\"{token}\","), 1);
    let call = with(&greedy, CALL);
    let calls: Vec<TcpStream> = (0..1_000)
        .map(|_| send(&server, GREEDY, "POST /api", &call))
        .collect();
    // Until its login a call counts for its address, so the share of the address may already refuse some calls.
    let is_answered = |call: &&TcpStream| {
        call.set_nonblocking(true).expect("a socket");
        let is_answered = call.peek(&mut [0]).is_ok();
        call.set_nonblocking(false).expect("a socket");
        is_answered
    };
    wait_for("half of the calls have no place", || {
        calls.iter().filter(is_answered).count() >= 500
    });
    for call in calls.iter().filter(is_answered) {
        let head = read_head(call);
        assert_eq!(status_of(&head), 429, "{head}");
        assert!(head.contains("retry-after: 5\r\n"), "{head}");
    }
    let emitted = ask(&server, GREEDY, "POST /api", &with(&other, EMIT));
    assert!(emitted.contains("\"result\":\"SUCCESS\""), "{emitted}");
    // At another address the caller is the same user, who gets at most half of the requests.
    let more: Vec<TcpStream> = (0..600)
        .map(|_| send(&server, OTHER, "POST /api", &call))
        .collect();
    wait_for("the user has its share at every address", || {
        more.iter().filter(is_answered).count() >= 100
    });
    for call in more.iter().filter(is_answered) {
        assert_eq!(status_of(&read_head(call)), 429);
    }
}

#[test]
fn announced_bodies_of_one_address_leave_room_for_others() {
    let server = proxied(&[]);
    let announced = |_| {
        let mut stream = TcpStream::connect(server.address).expect("the server accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let head = format!(
            "POST /api HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {GREEDY}\r\n\
            content-type: application/json\r\ncontent-length: 1000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    let bodies: Vec<TcpStream> = (0..70).map(announced).collect();
    wait_for("more than half of the bodies have no room", || {
        refusals(&server, "body_share") == 37
    });
    assert_eq!(refusals(&server, "bodies"), 0);
    put_large(&server, "large", 900_000);
    let refused = ask(
        &server,
        GREEDY,
        "POST /api",
        &format!("[{}]", "1,".repeat(499_000) + "1"),
    );
    assert_eq!(status_of(&refused), 429, "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    drop(bodies);
}

#[test]
fn streams_of_one_address_leave_room_for_others() {
    let server = proxied(&["--http-streams-max", "100"]);
    let open = |address| {
        let stream = send(&server, address, "GET /sse?event=e", "");
        let head = read_head(&stream);
        (status_of(&head), head, stream)
    };
    let opened: Vec<_> = (0..100).map(|_| open(GREEDY)).collect();
    let count = opened.iter().filter(|(status, ..)| *status == 200).count();
    assert_eq!(count, 50);
    let refused = opened
        .iter()
        .filter(|(status, head, _)| *status == 429 && head.contains("retry-after: 5\r\n"));
    assert_eq!(refused.count(), 50);
    assert_eq!(open(OTHER).0, 200);
    assert_eq!(refusals(&server, "stream_share"), 50);
}

#[test]
fn rates_hold_over_requests_of_one_address() {
    let server = proxied(&["--rates-connection-read", "10/s burst 10"]);
    put_large(&server, "a", 10);
    let time = |address, count| {
        let start = Instant::now();
        for _ in 0..count {
            let read = ask(&server, address, "GET /records/a", "");
            assert_eq!(status_of(&read), 200, "{read}");
        }
        start.elapsed()
    };
    // The burst, then ten requests a second.
    let slow = time(GREEDY, 30);
    assert!(slow >= Duration::from_millis(1_900), "{slow:?}");
    let waits = server.metric("tidewire_http_rate_waits_total");
    assert!(waits >= Some(15), "{waits:?}");
    let start = Instant::now();
    let read = ask(&server, OTHER, "GET /records/a", "");
    assert_eq!(status_of(&read), 200);
    assert!(start.elapsed() < slow / 2, "{:?}", start.elapsed());
}

#[test]
fn the_answer_to_a_batch_of_ten_thousand_large_reads_is_bounded() {
    let server = proxied(&["--limits-memory-bytes-max", BUDGET]);
    put_large(&server, "large", 1_000_000);
    let read = r#"{"topic":"record","action":"read","recordName":"large"}"#;
    let body = format!("{{\"body\":[{}]}}", vec![read; 10_000].join(","));
    let answered = ask(&server, GREEDY, "POST /api", &body);
    let body = answered.split_once("\r\n\r\n").expect("a body").1;
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["result"], "PARTIAL_SUCCESS");
    let outcomes = body["body"].as_array().expect("outcomes");
    assert_eq!(outcomes.len(), 10_000);
    let done = outcomes
        .iter()
        .take_while(|outcome| outcome["success"] == true)
        .count();
    assert!(
        (8..=16).contains(&done),
        "{done} of 16 MiB, a caller's part of the budget"
    );
    for outcome in outcomes.iter().skip(17) {
        let event = outcome["errorEvent"].as_str().unwrap_or_default();
        assert!(
            ["ANSWER_TOO_LARGE", "SERVER_BUSY"].contains(&event),
            "{outcome}"
        );
        assert_eq!(outcome["retryable"], true);
    }
    let peak = peak_bytes(&server);
    assert!(peak <= PEAK_MAX, "{} MB", peak >> 20);
}

#[test]
fn many_batches_of_large_reads_at_a_time_stay_within_the_memory_budget() {
    let server = proxied(&["--limits-memory-bytes-max", BUDGET]);
    put_large(&server, "large", 1_000_000);
    let read = r#"{"topic":"record","action":"read","recordName":"large"}"#;
    let body = format!("{{\"body\":[{}]}}", vec![read; 100].join(","));
    // The test does not read these answers yet.
    let streams: Vec<TcpStream> = (0..40)
        .map(|_| send(&server, GREEDY, "POST /api", &body))
        .collect();
    let mut done = 0;
    for stream in streams {
        let answered = answer(stream);
        done += answered.matches("\"success\":true").count();
    }
    assert!(done >= 40, "{done} reads");
    let peak = peak_bytes(&server);
    assert!(peak <= PEAK_MAX, "{} MB", peak >> 20);
}

#[test]
fn unread_streams_of_large_records_stay_within_the_memory_budget_and_miss_nothing() {
    let server = proxied(&["--limits-memory-bytes-max", BUDGET]);
    for number in 0..100 {
        put_large(&server, &format!("r{number}"), 900_000);
    }
    let names: Vec<String> = (0..100).map(|number| format!("record=r{number}")).collect();
    let path = format!("GET /sse?{}", names.join("&"));
    let streams: Vec<TcpStream> = (0..20).map(|_| send(&server, GREEDY, &path, "")).collect();
    for stream in &streams {
        assert_eq!(status_of(&read_head(stream)), 200);
    }
    // Finally one client reads its stream, and gets all records.
    let mut reader = BufReader::new(&streams[7]);
    let mut line = Vec::new();
    let mut received = 0;
    while received < 100 {
        line.clear();
        let count = reader.read_until(b'\n', &mut line).expect("a line");
        assert!(count > 0, "the stream ended after {received} records");
        received += usize::from(line.starts_with(b"event: record"));
    }
    let peak = peak_bytes(&server);
    assert!(peak <= PEAK_MAX, "{} MB", peak >> 20);
    // The server still serves other clients.
    let read = ask(&server, OTHER, "GET /records/r3", "");
    assert_eq!(status_of(&read), 200);
}
