//! Tests the front over real sockets: routes, limits, handshakes, and the connections that it hands over to shards.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidewire_config::machine::Machine;
use tidewire_config::plan::{Plan, Speaks, plan};
use tidewire_config::value::Auto;
use tidewire_config::{Sources, load};
use tidewire_http::front::accept;
use tidewire_http::front::{Front, ReloadableSettings};
use tidewire_http::metrics::Metrics;
use tidewire_http::metrics::exposition::Exposition;
use tidewire_http::refusal::RequestRefusal;
use tidewire_http::status::{Stage, Status};
use tidewire_shard::connection_limiter::ConnectionLimiter;
use tidewire_shard::handle::UpgradedSocket;
use tidewire_shard::handle::{HandOver, ShardHandle};
use tidewire_shard::session_token::SessionToken;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const DEADLINE: Duration = Duration::from_secs(10);
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Passes the connections that the front hands over to the test.
struct Catcher(Mutex<Sender<UpgradedSocket>>);

impl HandOver for Catcher {
    fn shard_for_exchange(&self) -> Option<ShardHandle> {
        None
    }

    fn shard_for(&self, _token: &SessionToken) -> Option<ShardHandle> {
        None
    }

    fn hand_over(&self, connections: Vec<UpgradedSocket>) {
        for connection in connections {
            // A test that has ended needs no more connections.
            let _ = self.0.lock().send(connection);
        }
    }
}

/// A front on a free port, without shards behind it.
struct Server {
    address: SocketAddr,
    front: Arc<Front>,
    connections: Receiver<UpgradedSocket>,
    stop: watch::Sender<bool>,
    runtime: Runtime,
}

fn planned(flags: &[(&str, &str)]) -> Plan {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let sources = Sources {
        flags: flags.iter().map(owned).collect(),
        ..Sources::default()
    };
    let machine = Machine {
        processors: 1,
        memory_bytes: 1 << 30,
    };
    plan(&load(&sources).expect("the flags are right"), &machine).expect("a plan")
}

impl Server {
    fn start(flags: &[(&str, &str)]) -> Self {
        Self::start_with(flags, |_| {})
    }

    fn start_with(flags: &[(&str, &str)], change: impl FnOnce(&mut Front)) -> Self {
        let (sender, connections) = channel();
        let status = Arc::new(Status::default());
        status.set_stage(Stage::Serving);
        let shards = Arc::new(Catcher(Mutex::new(sender)));
        let mut front = Front::new(
            &planned(flags),
            None,
            status,
            Arc::new(Metrics::default()),
            shards,
            None,
            Arc::default(),
        );
        change(Arc::get_mut(&mut front).expect("the only owner"));
        let runtime = Runtime::new().expect("a runtime");
        let guard = runtime.enter();
        let listener = accept::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        drop(guard);
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(accept::run(
            listener,
            Speaks::Clear,
            Arc::clone(&front),
            stopped,
        ));
        Self {
            address,
            front,
            connections,
            stop,
            runtime,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the front accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream
    }

    /// Sends `request` and reads until the server closes.
    fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream
            .write_all(request.as_bytes())
            .expect("the request is sent");
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .expect("an answer within the deadline");
        // A compressed answer is not valid UTF-8.
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request without a body and with `Connection: close`.
    fn ask(&self, line: &str, headers: &[(&str, &str)]) -> String {
        self.exchange(&request(
            line,
            &[headers, &[("connection", "close")]].concat(),
        ))
    }

    /// Waits until `count` requests were refused for this cause.
    fn counts(&self, cause: RequestRefusal, count: u64) {
        let refused = &self.front.metrics.refused_requests;
        let deadline = Instant::now() + DEADLINE;
        while refused.of(cause) != count {
            assert!(
                Instant::now() < deadline,
                "{cause:?}: {}",
                refused.of(cause)
            );
            std::thread::yield_now();
        }
    }

    fn handed_over(&self) -> UpgradedSocket {
        self.connections
            .recv_timeout(DEADLINE)
            .expect("a connection is handed over")
    }
}

fn request(line: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!("{line} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n"
}

fn upgrade_headers<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-version", "13"),
    ];
    for (name, value) in changes {
        headers.retain(|(known, _)| known != name);
        if !value.is_empty() {
            headers.push((name, value));
        }
    }
    headers
}

fn status_of(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1).unwrap_or_default();
    code.parse()
        .unwrap_or_else(|_| panic!("no status in {answer:?}"))
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.split("\r\n\r\n").next()?.lines().skip(1);
    lines.find_map(|line| {
        let (known, value) = line.split_once(": ")?;
        known.eq_ignore_ascii_case(name).then_some(value)
    })
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Reads the head of the answer to an upgrade and no byte more.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream
            .read_exact(&mut byte)
            .expect("the head within the deadline");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a head is text")
}

#[test]
fn every_route_has_its_answer() {
    let server = Server::start(&[]);
    let check = |line: &str, status: u16, part: &str| {
        let answer = server.ask(line, &[]);
        assert_eq!(status_of(&answer), status, "{line}: {answer}");
        assert!(body(&answer).contains(part), "{line}: {answer}");
    };
    check("GET /health", 200, "ok");
    check("GET /ready", 200, "\"ready\":true");
    check("GET /ready?x=1", 200, "\"development\":true");
    check("GET /metrics", 200, "tidewire_sockets_accepted_total");
    check("GET /", 200, "<title>Tidewire demo</title>");
    check("GET /main.js", 200, "");
    check("POST /", 405, "GET");
    check("GET /deepstream", 426, "WebSocket");
    check("POST /deepstream", 405, "GET");
    check("GET /deepstream/", 404, "/deepstream");
    check("GET /nothing", 404, "/deepstream");
    check("POST /health", 405, "GET");
    check("DELETE /metrics", 405, "GET");
    let check = server.ask("GET /health-check", &[]);
    assert_eq!((status_of(&check), body(&check)), (200, ""));
    for path in ["/health", "/ready", "/health-check", "/metrics", "/"] {
        let answer = server.ask(&format!("HEAD {path}"), &[]);
        assert_eq!((status_of(&answer), body(&answer)), (200, ""), "{path}");
    }
}

#[test]
fn health_is_answered_before_origin_and_host_are_checked() {
    let server = Server::start(&[]);
    let headers = [("host", "evil.example"), ("origin", "https://evil.example")];
    for path in ["/health", "/ready", "/health-check"] {
        assert_eq!(
            status_of(&server.ask(&format!("GET {path}"), &headers)),
            200,
            "{path}"
        );
    }
    for path in ["/", "/metrics", "/deepstream", "/nothing"] {
        assert_eq!(
            status_of(&server.ask(&format!("GET {path}"), &headers)),
            403,
            "{path}"
        );
    }
}

#[test]
fn details_are_for_local_clients_unless_made_public() {
    let closed = [("auth.chain", "store"), ("permissions", "allow_all")];
    let server = Server::start(&closed);
    let proxied = [("x-forwarded-for", "203.0.113.7")];
    let renamed = [("host", "app.example")];
    let others = ["forwarded", "via", "x-real-ip", "x-forwarded-proto"];
    let others = others.map(|name| [(name, "proxy")]);
    for headers in [proxied, renamed].into_iter().chain(others) {
        let ready = server.ask("GET /ready", &headers);
        assert_eq!(
            (status_of(&ready), body(&ready)),
            (200, "{\"ready\":true}\n"),
            "{headers:?}"
        );
        let metrics = server.ask("GET /metrics", &headers);
        assert_eq!(status_of(&metrics), 403, "{headers:?}");
        assert!(
            body(&metrics).contains("health.metrics_public"),
            "{metrics}"
        );
    }
    *server.front.settings.write() = ReloadableSettings::new(&planned(&[
        closed[0],
        closed[1],
        ("health.metrics_public", "true"),
        ("health.reasons_public", "true"),
    ]));
    assert!(server.ask("GET /ready", &proxied).contains("reasons"));
    assert_eq!(status_of(&server.ask("GET /metrics", &renamed)), 200);
}

#[test]
fn denials_are_listed_only_in_development_mode_and_on_this_machine() {
    let open = Server::start(&[]);
    let listed = open.ask("GET /denials", &[]);
    assert_eq!((status_of(&listed), body(&listed)), (200, "[]"));
    let proxied = open.ask("GET /denials", &[("x-forwarded-for", "203.0.113.7")]);
    assert_eq!(status_of(&proxied), 403, "{proxied}");
    let closed = Server::start(&[("auth.chain", "store"), ("permissions", "allow_all")]);
    assert_eq!(status_of(&closed.ask("GET /denials", &[])), 404);
    // The same holds for the end of the process, which also pages of other ports may not request.
    assert_eq!(status_of(&closed.ask("POST /crash", &[])), 404);
    assert_eq!(status_of(&open.ask("GET /crash", &[])), 405);
    let foreign = [
        ("x-forwarded-for", "203.0.113.7"),
        ("origin", "http://localhost:1"),
        ("sec-fetch-site", "cross-site"),
    ];
    for header in foreign {
        assert_eq!(
            status_of(&open.ask("POST /crash", &[header])),
            403,
            "{header:?}"
        );
    }
    let memory = Server::start(&[("store.kind", "memory")]);
    assert_eq!(status_of(&memory.ask("POST /crash", &[])), 409);
}

#[test]
fn two_hosts_are_no_loopback_name() {
    let server = Server::start(&[("auth.chain", "store"), ("permissions", "allow_all")]);
    let hosts = [("host", "localhost"), ("host", "app.example")];
    let ready = server.ask("GET /ready", &hosts);
    assert_eq!(body(&ready), "{\"ready\":true}\n");
}

#[test]
fn an_open_loopback_server_is_not_reached_under_a_foreign_name() {
    let open = [("auth.chain", "open"), ("permissions", "allow_all")];
    let server = Server::start(&open);
    let rebound = ("host", "rebound.example:6020");
    let page = [rebound, ("origin", "http://rebound.example:6020")];
    let reason = "this host name is not allowed; see network.hosts\n";
    for line in ["GET /metrics", "GET /", "GET /nothing", "OPTIONS /api"] {
        for headers in [&page[..1], &page] {
            let answer = server.ask(line, headers);
            assert_eq!((status_of(&answer), body(&answer)), (403, reason), "{line}");
        }
    }
    // Test both paths: the request arrives whole, or in two pieces and hyper reads it.
    let upgrade = request(
        "GET /deepstream",
        &upgrade_headers(&[rebound, ("connection", "Upgrade, close")]),
    );
    assert_eq!(status_of(&server.exchange(&upgrade)), 403);
    let mut stream = server.connect();
    let (first, second) = upgrade.split_at(upgrade.len() / 2);
    stream.write_all(first.as_bytes()).expect("sent");
    stream.write_all(second.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 403);
    let own = request("GET /deepstream", &upgrade_headers(&[]));
    let mut stream = server.connect();
    stream.write_all(own.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 101);
    // A name that is listed is served.
    *server.front.settings.write() = ReloadableSettings::new(&planned(&[
        open[0],
        open[1],
        ("network.hosts", "rebound.example"),
    ]));
    let mut stream = server.connect();
    let upgrade = request("GET /deepstream", &upgrade_headers(&[rebound]));
    stream.write_all(upgrade.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 101);
}

#[test]
fn ready_says_why_not() {
    let server = Server::start(&[]);
    server.front.status.set_stage(Stage::Leaving);
    let cause = || Some("disk full".to_owned());
    server.front.status.watch_store(Box::new(cause));
    let ready = server.ask("GET /ready", &[]);
    assert_eq!(status_of(&ready), 503);
    let body: serde_json::Value = serde_json::from_str(body(&ready)).expect("JSON");
    assert_eq!(body["reasons"][0]["code"], "draining");
    assert_eq!(body["reasons"][1]["text"], "the store fails: disk full");
    assert_eq!(
        status_of(&server.ask("GET /health", &[])),
        200,
        "health is about turns only"
    );
}

#[test]
fn a_stuck_shard_is_not_healthy() {
    let server = Server::start(&[]);
    let since_turn = || Duration::from_secs(2);
    server.front.status.watch_shard(Box::new(since_turn));
    let health = server.ask("GET /health", &[]);
    assert_eq!(status_of(&health), 503);
    assert!(body(&health).contains("[0]"), "{health}");
}

#[test]
fn the_demo_is_for_development_only() {
    let server = Server::start(&[("dev", "false")]);
    for path in ["/", "/main.js"] {
        assert_eq!(status_of(&server.ask(&format!("GET {path}"), &[])), 404);
    }
}

#[test]
fn without_the_demo_a_page_says_what_can_be_reached() {
    let known = [
        ("dev", "true"),
        ("permissions", "allow_all"),
        ("auth.chain", "store"),
    ];
    for options in [
        &[("pages.demo", "false")][..],
        &[("network.paths", "/other")],
        &known,
    ] {
        let server = Server::start(options);
        let page = server.ask("GET /", &[]);
        assert_eq!(status_of(&page), 200, "{options:?}");
        assert!(
            page.contains("<code>ws://localhost/"),
            "{options:?}: {page}"
        );
        assert_eq!(status_of(&server.ask("GET /main.js", &[])), 404);
    }
}

#[test]
fn a_page_has_the_headers_of_a_page() {
    let server = Server::start(&[]);
    let page = server.ask("GET /", &[]);
    let policy = header(&page, "content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'self'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&page, "x-content-type-options"), Some("nosniff"));
    assert_eq!(header(&page, "cache-control"), Some("no-cache"));
    let script = server.ask("GET /main.js", &[("accept-encoding", "gzip, br")]);
    assert_eq!(header(&script, "content-encoding"), Some("gzip"));
    assert_eq!(
        header(&script, "content-type"),
        Some("text/javascript; charset=utf-8")
    );
    let origin = [
        ("origin", "http://localhost:5173"),
        ("accept-encoding", "gzip"),
    ];
    let script = server.ask("GET /main.js", &origin);
    let varies: Vec<_> = script
        .lines()
        .filter(|line| line.starts_with("vary:"))
        .collect();
    assert_eq!(varies, ["vary: Accept-Encoding", "vary: Origin"]);
    let tag = header(&script, "etag").expect("a tag").to_owned();
    let known = [("if-none-match", &*tag), ("accept-encoding", "gzip")];
    let again = server.ask("GET /main.js", &known);
    assert_eq!((status_of(&again), body(&again)), (304, ""));
}

#[test]
fn the_client_is_served_as_a_module_with_its_types() {
    // Without development mode too, because pages of apps load it.
    let server = Server::start(&[("dev", "false"), ("network.origins", "https://app.example")]);
    let origin = [("origin", "https://app.example")];
    let module = server.ask("GET /tidewire.js", &origin);
    assert_eq!(status_of(&module), 200);
    assert_eq!(
        header(&module, "content-type"),
        Some("text/javascript; charset=utf-8")
    );
    // A module of another origin loads only with this header.
    assert_eq!(
        header(&module, "access-control-allow-origin"),
        Some("https://app.example")
    );
    let tag = header(&module, "etag").expect("a tag").to_owned();
    let known = server.ask("GET /tidewire.js", &[("if-none-match", &*tag)]);
    assert_eq!(status_of(&known), 304);
    let types = server.ask("GET /tidewire.d.ts", &[]);
    assert!(body(&types).contains("export declare class Client"));
    assert_eq!(
        header(&types, "content-type"),
        Some("text/plain; charset=utf-8")
    );
    let without = Server::start(&[("pages.client", "false")]);
    for path in ["/tidewire.js", "/tidewire.d.ts"] {
        assert_eq!(status_of(&without.ask(&format!("GET {path}"), &[])), 404);
    }
}

#[test]
fn preflights_are_answered_from_the_same_list() {
    let server = Server::start(&[("network.origins", "https://app.example")]);
    let preflight = |origin| [("origin", origin), ("access-control-request-method", "GET")];
    let allowed = server.ask("OPTIONS /deepstream", &preflight("https://app.example"));
    assert_eq!(status_of(&allowed), 204);
    assert_eq!(
        header(&allowed, "access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(header(&allowed, "vary"), Some("Origin"));
    assert!(header(&allowed, "access-control-allow-methods").is_some());
    let vite = server.ask("OPTIONS /anything", &preflight("http://localhost:5173"));
    assert_eq!(status_of(&vite), 204);
    let refused = server.ask("OPTIONS /deepstream", &preflight("https://evil.example"));
    assert_eq!(status_of(&refused), 403);
    assert_eq!(header(&refused, "access-control-allow-origin"), None);
    assert!(
        server
            .front
            .metrics
            .text(Exposition::OpenMetrics)
            .contains("tidewire_origin_refusals_total 1")
    );
}

#[test]
fn broken_handshakes_are_answered_as_the_rfc_says() {
    let server = Server::start(&[]);
    let check = |changes: &[(&str, &str)], status: u16, name: &str, value: Option<&str>| {
        let headers = [upgrade_headers(changes), vec![("connection", "close")]].concat();
        let answer = server.exchange(&request("GET /deepstream?x=1", &headers));
        assert_eq!(status_of(&answer), status, "{changes:?}: {answer}");
        assert_eq!(header(&answer, name), value, "{changes:?}: {answer}");
    };
    check(&[("upgrade", "")], 426, "upgrade", Some("websocket"));
    check(
        &[("sec-websocket-version", "8")],
        426,
        "sec-websocket-version",
        Some("13"),
    );
    check(&[("sec-websocket-key", "short")], 400, "upgrade", None);
    check(&[("origin", "https://evil.example")], 403, "upgrade", None);
    check(&[("host", "evil.example")], 403, "upgrade", None);
}

#[test]
fn an_upgrade_hands_the_socket_over_with_its_head() {
    let server = Server::start(&[("network.paths", "/deepstream,/other")]);
    let extra = [
        ("origin", "http://localhost:5173"),
        ("x-token", "secret"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ];
    let mut stream = server.connect();
    let text = request("GET /other?user=1", &upgrade_headers(&extra));
    stream.write_all(text.as_bytes()).expect("sent");
    let head = read_head(&mut stream);
    assert_eq!(status_of(&head), 101);
    assert_eq!(
        header(&head, "sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(header(&head, "sec-websocket-extensions"), None);
    let connection = server.handed_over();
    assert_eq!(connection.peer.header("x-token"), Some("secret"));
    assert_eq!(
        connection.peer.address,
        stream.local_addr().expect("an address")
    );
    assert!(connection.unread.is_empty());
    assert_eq!(server.front.connection_limiter.open(), 1);
    // The socket works in both directions, and closing it releases its permit.
    connection.stream.set_nonblocking(false).expect("blocking");
    (&connection.stream).write_all(b"down").expect("sent");
    let mut down = [0; 4];
    stream.read_exact(&mut down).expect("received");
    stream.write_all(b"up").expect("sent");
    let mut up = [0; 2];
    (&connection.stream).read_exact(&mut up).expect("received");
    assert_eq!((&down, &up), (b"down", b"up"));
    drop(connection);
    assert_eq!(server.front.connection_limiter.open(), 0);
}

/// A header that does not change the answer, but prevents the fast upgrade.
const LONG_WAY: (&str, &str) = ("content-length", "0");

#[test]
fn the_fast_upgrade_answers_like_hyper() {
    let server = Server::start(&[("compression.enabled", "true")]);
    let open = |path: &str, headers: &[(&str, &str)]| {
        let mut stream = server.connect();
        let text = request(&format!("GET {path}"), &upgrade_headers(headers));
        stream.write_all(text.as_bytes()).expect("sent");
        let mut lines: Vec<_> = read_head(&mut stream).lines().map(str::to_owned).collect();
        lines.sort();
        let connection = server.handed_over();
        assert!(
            connection.stream.nodelay().expect("an option"),
            "{headers:?}"
        );
        let mut known = connection.peer.headers.clone();
        known.retain(|(name, _)| *name != LONG_WAY.0);
        let agreed = (connection.is_deflated, connection.protocol);
        (lines, agreed, known)
    };
    let check_on = |path: &str, headers: &[(&str, &str)]| {
        let short = open(path, headers);
        let mut long = open(path, &[headers, &[LONG_WAY]].concat());
        let is_date = |line: &String| line.starts_with("date: ");
        // Only hyper adds this header, so it shows which path was taken.
        assert!(!short.0.iter().any(is_date), "{short:?} went the long way");
        assert!(long.0.iter().any(is_date), "{long:?} went the short way");
        long.0.retain(|line| !is_date(line));
        assert_eq!(short, long);
        let name = path.split(['/', '?']).nth(1);
        assert_eq!(Some(short.1.1.name()), name, "{path}");
    };
    check_on("/deepstream-json", &[]);
    check_on("/deepstream-json?a=b", &[]);
    let check = |headers: &[(&str, &str)]| check_on("/deepstream?a=b", headers);
    check(&[]);
    check(&[("origin", "http://localhost:5173")]);
    check(&[
        ("connection", "keep-alive, Upgrade"),
        ("x-twice", "1"),
        ("X-Twice", "2"),
    ]);
    check(&[("sec-websocket-extensions", "permessage-deflate")]);
    let offer = "x-other, permessage-deflate; client_max_window_bits";
    check(&[("sec-websocket-extensions", offer)]);
}

#[test]
fn many_upgrades_at_once_are_all_handed_over() {
    let server = Server::start(&[]);
    let text = request("GET /deepstream", &upgrade_headers(&[]));
    let long = request("GET /deepstream", &upgrade_headers(&[LONG_WAY]));
    let mut streams: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        let text = if number % 7 == 0 { &long } else { &text };
        stream.write_all(text.as_bytes()).expect("sent");
    }
    for stream in &mut streams {
        assert_eq!(status_of(&read_head(stream)), 101);
    }
    let connections: Vec<_> = streams.iter().map(|_| server.handed_over()).collect();
    assert_eq!(server.front.connection_limiter.open(), streams.len());
    drop(connections);
    assert_eq!(server.front.connection_limiter.open(), 0);
}

#[test]
fn an_upgrade_split_at_any_byte_loses_none() {
    for headers in [&[][..], &[LONG_WAY]] {
        split_at_every_byte(headers);
    }
}

fn split_at_every_byte(headers: &[(&str, &str)]) {
    let server = Server::start(&[]);
    let frames: &[u8] = b"\x82\x85abcd\0\0\0\0\0 and what follows the first frame";
    let mut whole = request("GET /deepstream", &upgrade_headers(headers)).into_bytes();
    whole.extend_from_slice(frames);
    for split in 0..=whole.len() {
        let mut stream = server.connect();
        stream.set_nodelay(true).expect("no delay");
        stream.write_all(&whole[..split]).expect("sent");
        stream.write_all(&whole[split..]).expect("sent");
        stream.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(status_of(&read_head(&mut stream)), 101, "split at {split}");
        let connection = server.handed_over();
        connection.stream.set_nonblocking(false).expect("blocking");
        connection
            .stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a timeout");
        let mut received = connection.unread.to_vec();
        (&connection.stream)
            .read_to_end(&mut received)
            .expect("all arrives");
        assert_eq!(received, frames, "split at {split}");
    }
}

#[test]
fn the_connection_limit_is_a_clear_503() {
    let server = Server::start(&[("limits.connections_max", "1")]);
    let text = request("GET /deepstream", &upgrade_headers(&[]));
    let mut first = server.connect();
    first.write_all(text.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut first)), 101);
    let connection = server.handed_over();
    let mut second = server.connect();
    second.write_all(text.as_bytes()).expect("sent");
    let refused = read_head(&mut second);
    assert_eq!(status_of(&refused), 503);
    assert!(header(&refused, "retry-after").is_some());
    assert!(
        server
            .front
            .metrics
            .text(Exposition::OpenMetrics)
            .contains("tidewire_connection_refusals_total 1")
    );
    assert_eq!(
        status_of(&server.ask("GET /health", &[])),
        200,
        "requests are still answered"
    );
    drop(connection);
    let mut third = server.connect();
    third.write_all(text.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut third)), 101);
}

#[test]
fn the_limit_of_an_address_is_a_clear_429() {
    let server = Server::start(&[("limits.connections_per_address_max", "1")]);
    let text = request("GET /deepstream", &upgrade_headers(&[]));
    let mut first = server.connect();
    first.write_all(text.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut first)), 101);
    let connection = server.handed_over();
    let refused = server.exchange(&text);
    assert_eq!(status_of(&refused), 429);
    assert!(header(&refused, "retry-after").is_some());
    let numbers = server.front.metrics.text(Exposition::OpenMetrics);
    assert!(numbers.contains("tidewire_address_refusals_total 1"));
    drop(connection);
    let mut third = server.connect();
    third.write_all(text.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut third)), 101);
}

#[test]
fn clients_of_a_trusted_proxy_are_counted_at_their_own_address() {
    let server = Server::start(&[
        ("network.trusted_proxies", "127.0.0.0/8"),
        ("limits.connections_per_address_max", "1"),
    ]);
    let mut open = Vec::new();
    let mut check = |list: &str, expected| {
        // Test both paths: the request arrives whole, or in two pieces and hyper reads it.
        let headers = upgrade_headers(&[("x-forwarded-for", list)]);
        let text = request("GET /deepstream", &headers);
        let mut stream = server.connect();
        let half = text.len() / if open.len() % 2 == 0 { 1 } else { 2 };
        stream.write_all(&text.as_bytes()[..half]).expect("sent");
        stream.write_all(&text.as_bytes()[half..]).expect("sent");
        let head = read_head(&mut stream);
        assert_eq!(status_of(&head), expected, "{list}: {head}");
        if expected == 101 {
            let connection = server.handed_over();
            let address = connection.peer.address.ip().to_string();
            assert!(list.contains(&address), "{address} of {list}");
            open.push((stream, connection));
        }
    };
    check("192.0.2.1", 101);
    check("192.0.2.2", 101);
    check("192.0.2.1", 429);
    check("203.0.113.5, 192.0.2.2, 127.0.0.9", 429);
    check("192.0.2.1, 192.0.2.3", 101);
    check("2001:db8::1", 101);
    check("2001:db8::2", 429);
    assert_eq!(server.front.connection_limiter.address_count(), 4);
    open.clear();
    assert_eq!(server.front.connection_limiter.address_count(), 0);
}

#[test]
fn only_named_proxies_are_trusted() {
    let server = Server::start(&[("network.trusted_proxies", "10.0.0.0/8")]);
    let headers = upgrade_headers(&[("x-forwarded-for", "192.0.2.1")]);
    let mut stream = server.connect();
    stream
        .write_all(request("GET /deepstream", &headers).as_bytes())
        .expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 101);
    let address = server.handed_over().peer.address;
    assert_eq!(address, stream.local_addr().expect("an address"));
}

#[test]
fn a_load_balancer_announces_the_address_first() {
    let server = Server::start(&[
        ("network.trusted_proxies", "127.0.0.1"),
        ("network.proxy_protocol", "true"),
        ("limits.connections_per_address_max", "1"),
    ]);
    let text = request("GET /deepstream", &upgrade_headers(&[]));
    let exchange = |head: &str| {
        let mut stream = server.connect();
        let whole = format!("{head}{text}");
        stream.write_all(whole.as_bytes()).expect("sent");
        stream
    };
    let mut first = exchange("PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n");
    assert_eq!(status_of(&read_head(&mut first)), 101);
    let connection = server.handed_over();
    assert_eq!(connection.peer.address.to_string(), "192.0.2.1:4711");
    let mut unknown = exchange("PROXY UNKNOWN\r\n");
    assert_eq!(status_of(&read_head(&mut unknown)), 101);
    let own = unknown.local_addr().expect("an address");
    assert_eq!(server.handed_over().peer.address, own);
    for refused in [
        "",
        "PROXY TCP4 192.0.2.1 10.0.0.1 4712 443\r\n",
        "PROXY TCP9\r\n",
    ] {
        let mut rest = Vec::new();
        // Because the front leaves bytes unread, the kernel may reset the connection, so an error is ignored.
        let _ = exchange(refused).read_to_end(&mut rest);
        assert!(rest.is_empty(), "{refused:?}");
    }
    let numbers = server.front.metrics.text(Exposition::OpenMetrics);
    assert!(
        numbers.contains("tidewire_proxy_refusals_total 2"),
        "{numbers}"
    );
    assert!(
        numbers.contains("tidewire_address_refusals_total 1"),
        "{numbers}"
    );
}

#[test]
fn only_trusted_load_balancers_announce_addresses() {
    let server = Server::start(&[
        ("network.trusted_proxies", "10.0.0.0/8"),
        ("network.proxy_protocol", "true"),
    ]);
    let text = request("GET /health", &[("connection", "close")]);
    let request = format!("PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n{text}");
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    // A health check from this machine is allowed.
    let own = format!("PROXY UNKNOWN\r\n{text}");
    assert_eq!(status_of(&server.exchange(&own)), 200);
}

#[test]
fn a_draining_server_takes_no_new_websockets() {
    let server = Server::start(&[]);
    server.front.status.set_stage(Stage::Draining);
    let headers = [upgrade_headers(&[]), vec![("connection", "close")]].concat();
    assert_eq!(
        status_of(&server.exchange(&request("GET /deepstream", &headers))),
        503
    );
}

#[test]
fn a_head_that_does_not_end_is_cut_off() {
    let server = Server::start(&[("http.head_timeout", "100ms")]);
    let start = Instant::now();
    let mut stream = server.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: loc")
        .expect("sent");
    let mut rest = Vec::new();
    stream
        .read_to_end(&mut rest)
        .expect("closed within the deadline");
    assert!(start.elapsed() >= Duration::from_millis(100));
    server.counts(RequestRefusal::SlowHead, 1);
    // A silent connection and an idle keep-alive connection end in the same way. The idle one is not an attack.
    let mut silent = server.connect();
    let mut kept = server.connect();
    kept.write_all(request("GET /health", &[]).as_bytes())
        .expect("sent");
    for stream in [&mut silent, &mut kept] {
        stream
            .read_to_end(&mut rest)
            .expect("closed within the deadline");
    }
    server.counts(RequestRefusal::Idle, 1);
    server.counts(RequestRefusal::SlowHead, 2);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let server = Server::start(&[("http.head_bytes_max", "8KiB")]);
    let cookie = "x".repeat(7 << 10);
    assert_eq!(
        status_of(&server.ask("GET /health", &[("cookie", &cookie)])),
        200
    );
    let mut stream = server.connect();
    let text = request("GET /health", &[("cookie", &"x".repeat(9 << 10))]);
    stream.write_all(text.as_bytes()).expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 431);
    server.counts(RequestRefusal::LargeHead, 1);
    let many: Vec<_> = (0..101).map(|_| ("a", "b")).collect();
    let mut stream = server.connect();
    stream
        .write_all(request("GET /health", &many).as_bytes())
        .expect("sent");
    assert_eq!(status_of(&read_head(&mut stream)), 431);
    server.counts(RequestRefusal::LargeHead, 2);
}

#[test]
fn a_head_that_can_be_read_in_two_ways_is_refused_or_the_last() {
    let server = Server::start(&[]);
    let start = "POST /deepstream HTTP/1.1\r\nhost: localhost\r\n";
    let hidden = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let refused = [
        "content-length: 1\r\ncontent-length: 2\r\n\r\nx",
        "content-length: +1\r\n\r\nx",
        "content-length : 1\r\n\r\nx",
        "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "x-one: 1\r\n folded: 2\r\n\r\n",
        "x-one: 1\rx-two: 2\r\n\r\n",
    ];
    for (index, rest) in (1..).zip(refused) {
        let answer = server.exchange(&format!("{start}{rest}{hidden}"));
        assert_eq!(status_of(&answer), 400, "{rest:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{rest:?}: {answer}");
        server.counts(RequestRefusal::MalformedHead, index);
    }
    // A server that uses the length instead of the chunks would take the hidden request for a part of the body, so there must
    // be only one answer.
    let both =
        format!("{start}content-length: 99\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}");
    let answer = server.exchange(&both);
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[test]
fn a_body_is_not_waited_for() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let text = request("POST /deepstream", &[("content-length", "1000000")]);
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("answered and closed");
    assert_eq!(status_of(&answer), 405);
}

#[test]
fn a_connection_that_is_not_upgraded_ends() {
    let server = Server::start(&[("http.connection_timeout", "200ms")]);
    let mut stream = server.connect();
    stream
        .write_all(request("GET /health", &[]).as_bytes())
        .expect("sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("closed within the deadline");
    assert_eq!(status_of(&answer), 200);
}

#[test]
fn accepting_pauses_without_descriptors_and_resumes() {
    let server = Server::start_with(&[], |front| {
        front.connection_limiter = ConnectionLimiter::new(usize::MAX, Auto::Auto, 2);
    });
    let text = request("GET /deepstream", &upgrade_headers(&[]));
    let mut open: Vec<(TcpStream, UpgradedSocket)> = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        assert_eq!(status_of(&read_head(&mut stream)), 101);
        open.push((stream, server.handed_over()));
    }
    // The third connection waits in the kernel's queue until a descriptor is free.
    let mut waiting = server.connect();
    waiting.write_all(text.as_bytes()).expect("sent");
    let deadline = Instant::now() + DEADLINE;
    while !server
        .front
        .metrics
        .text(Exposition::OpenMetrics)
        .contains("tidewire_accept_pauses_total 1")
    {
        assert!(
            Instant::now() < deadline,
            "{}",
            server.front.metrics.text(Exposition::OpenMetrics)
        );
        std::thread::yield_now();
    }
    assert_eq!(server.front.connection_limiter.open(), 2);
    open.pop();
    assert_eq!(status_of(&read_head(&mut waiting)), 101);
    assert_eq!(server.front.connection_limiter.open(), 2);
}

#[test]
fn stopping_closes_the_listener() {
    let server = Server::start(&[]);
    server.stop.send(true).expect("the front listens");
    let deadline = Instant::now() + DEADLINE;
    while TcpStream::connect(server.address).is_ok() {
        assert!(Instant::now() < deadline, "still accepting");
        std::thread::yield_now();
    }
    server.runtime.shutdown_timeout(DEADLINE);
}
