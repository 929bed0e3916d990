//! TLS as a client sees it: upgrades with their first frames in the same segment, limits of the handshake, and errors for operators.

mod client;
mod process;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use client::{DEADLINE, encode_login, wait_until};
use process::{Server, run, status_of};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tidewire_core::message::{Auth, Connection, Message};
use tidewire_wire::frame::websocket::{Decoded, Decoder, Event, Role};
use tidewire_wire::protocol::deepstream::Deepstream;

const REQUEST: &str = "GET /deepstream HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn certify() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate")
}

/// Writes both files as `certificate.pem` and `key.pem`.
fn install(folder: &Path, certified: &CertifiedKey<KeyPair>) {
    std::fs::write(
        folder.join("key.pem"),
        certified.signing_key.serialize_pem(),
    )
    .expect("written");
    std::fs::write(folder.join("certificate.pem"), certified.cert.pem()).expect("written");
}

const FILES: [&str; 4] = [
    "--tls-certificate",
    "certificate.pem",
    "--tls-key",
    "key.pem",
];

/// A server with TLS and the client's side of its certificate.
struct Secured {
    server: Server,
    tls: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Secured {
    /// TLS has a separate port.
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let certified = certify();
        install(folder.path(), &certified);
        let port = ["--tls-port", "0"];
        let server = Server::start_in(folder, &[&FILES[..], &port, arguments].concat());
        let tls = wss_address(&server.screen);
        let config = trusting(certified.cert.der());
        Self {
            server,
            tls,
            config,
        }
    }

    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        connect(self.tls, &self.config)
    }
}

fn wss_address(screen: &str) -> SocketAddr {
    let (_, rest) = screen.split_once("wss://").expect("a line for clients");
    let end = rest.find('/').expect("a path");
    rest[..end].parse().expect("an address")
}

fn trusting(certificate: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    StreamOwned::new(connection, socket(address))
}

/// The bytes that the client's TLS has to send.
fn flight(connection: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).expect("into memory");
    }
    bytes
}

/// The upgrade request and the login together.
fn opening() -> Vec<u8> {
    let mut bytes = REQUEST.as_bytes().to_vec();
    encode_login(&mut bytes);
    bytes
}

/// Reads the answer to [`opening`] to its end.
#[track_caller]
fn expect_opened(stream: &mut impl Read) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert_eq!(status_of(&String::from_utf8_lossy(&head)), 101);
    let expected = [
        Message::Connection(Connection::Accept),
        Message::Auth(Auth::Successful { data: None }),
    ];
    let mut decoder = Decoder::new(Role::Client);
    for expected in expected {
        let mut frame = Vec::new();
        loop {
            let Decoded { event, .. } = decoder.decode(&mut frame, 1 << 16).expect("a frame");
            if let Event::Message { payload, .. } = event {
                assert_eq!(Deepstream::decode(&payload), Ok(expected));
                break;
            }
            stream.read_exact(&mut byte).expect("a frame");
            frame.push(byte[0]);
            decoder = Decoder::new(Role::Client);
        }
    }
}

/// Sends `bytes` in two parts, with another request between them.
fn send_split(server: &Server, mut stream: &TcpStream, bytes: &[u8], split: usize) {
    stream.write_all(&bytes[..split]).expect("sent");
    assert_eq!(server.get("/health").expect("an answer").0, 200);
    stream.write_all(&bytes[split..]).expect("sent");
}

#[test]
fn first_frames_may_share_a_segment_with_the_upgrade_in_the_clear() {
    let server = Server::start(&[]);
    let bytes = opening();
    for split in 0..=bytes.len() {
        let mut stream = socket(server.address);
        send_split(&server, &stream, &bytes, split);
        expect_opened(&mut stream);
    }
}

#[test]
fn first_frames_may_share_a_segment_with_the_upgrade_over_tls() {
    let secured = Secured::start(&[]);
    let bytes = opening();
    // Splits the plaintext into two records, which are sent in two segments.
    for split in 0..=bytes.len() {
        let mut stream = secured.connect();
        stream
            .conn
            .complete_io(&mut stream.sock)
            .expect("a handshake");
        for part in [&bytes[..split], &bytes[split..]] {
            stream.write_all(part).expect("sent");
            assert_eq!(secured.server.get("/health").expect("an answer").0, 200);
        }
        expect_opened(&mut stream);
    }
}

#[test]
fn the_end_of_a_handshake_may_come_with_everything_else_split_at_any_byte() {
    let secured = Secured::start(&[]);
    for split in 0.. {
        let mut stream = secured.connect();
        let hello = flight(&mut stream.conn);
        stream.sock.write_all(&hello).expect("sent");
        while stream.conn.is_handshaking() {
            stream.conn.read_tls(&mut stream.sock).expect("an answer");
            stream.conn.process_new_packets().expect("a handshake");
        }
        stream
            .conn
            .writer()
            .write_all(&opening())
            .expect("buffered");
        let bytes = flight(&mut stream.conn);
        if split > bytes.len() {
            return;
        }
        send_split(&secured.server, &stream.sock, &bytes, split);
        expect_opened(&mut stream);
    }
}

#[test]
fn a_handshake_that_does_not_end_is_cut_off() {
    let secured = Secured::start(&["--http-head-timeout", "300ms"]);
    let mut silent = socket(secured.tls);
    let mut slow = socket(secured.tls);
    slow.write_all(&[0x16, 3, 1]).expect("sent");
    for stream in [&mut silent, &mut slow] {
        assert_eq!(stream.read(&mut [0; 16]).expect("the end"), 0);
    }
    let failures = || {
        secured
            .server
            .metric("tidewire_tls_handshake_failures_total")
    };
    assert_eq!(failures(), Some(2));
}

#[test]
fn one_port_may_serve_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let certified = certify();
    install(folder.path(), &certified);
    let allowed = ["--tls-port", "0", "--tls-allow-clear", "true"];
    let server = Server::start_in(folder, &[&FILES[..], &allowed].concat());
    let tls = wss_address(&server.screen);
    let mut clear = socket(tls);
    clear.write_all(&opening()).expect("sent");
    expect_opened(&mut clear);
    let mut encrypted = connect(tls, &trusting(certified.cert.der()));
    encrypted.write_all(&opening()).expect("sent");
    expect_opened(&mut encrypted);
}

#[test]
fn a_hangup_reads_the_certificate_again() {
    let secured = Secured::start(&["--tls-reload-interval", "never"]);
    let mut before = secured.connect();
    before.write_all(&opening()).expect("sent");
    expect_opened(&mut before);
    let renewed = certify();
    install(secured.server.folder.path(), &renewed);
    secured.server.signal(Signal::HUP);
    secured.server.expect_log("the certificate was reloaded");
    let mut after = connect(secured.tls, &trusting(renewed.cert.der()));
    after.write_all(&opening()).expect("sent");
    expect_opened(&mut after);

    std::fs::write(secured.server.folder.path().join("key.pem"), "broken").expect("written");
    secured.server.signal(Signal::HUP);
    secured.server.expect_log("has no private key");
    assert_eq!(
        secured.server.metric("tidewire_tls_certificate_stale"),
        Some(1)
    );
    let mut later = connect(secured.tls, &trusting(renewed.cert.der()));
    later.write_all(&opening()).expect("sent");
    expect_opened(&mut later);
}

/// Runs a command that must end with code 2, and returns its line.
#[track_caller]
fn refusal(folder: &TempDir, arguments: &[&str]) -> String {
    let (code, _, error) = run(folder.path(), arguments);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    error
}

#[test]
fn wrong_files_end_the_start_with_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    install(folder.path(), &certify());
    let other = certify().signing_key.serialize_pem();
    std::fs::write(folder.path().join("other.pem"), other).expect("written");
    std::fs::write(folder.path().join("text.pem"), "text").expect("written");
    let check = |certificate: &str, key: &str, parts: &[&str]| {
        let files = ["--tls-certificate", certificate, "--tls-key", key];
        for command in [&["start"][..], &["config", "check"]] {
            let line = refusal(&folder, &[command, &files].concat());
            for part in parts {
                assert!(line.contains(part), "{part:?} in {line}");
            }
        }
    };
    check(
        "none.pem",
        "key.pem",
        &["tls.certificate", "none.pem", "can't be read"],
    );
    check(
        "certificate.pem",
        "none.pem",
        &["tls.key", "none.pem", "can't be read"],
    );
    check(
        "text.pem",
        "key.pem",
        &["tls.certificate", "BEGIN CERTIFICATE"],
    );
    check(
        "certificate.pem",
        "text.pem",
        &["tls.key", "BEGIN PRIVATE KEY"],
    );
    check(
        "certificate.pem",
        "other.pem",
        &["tls.key", "other.pem is not the key of"],
    );
    let line = refusal(&folder, &["start", "--tls-certificate", "certificate.pem"]);
    assert!(line.contains("set tls.key"), "{line}");
    let line = refusal(&folder, &["start", "--tls-port", "6443"]);
    assert!(line.contains("set tls.certificate and tls.key"), "{line}");
}

#[test]
fn health_is_asked_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let certified = certify();
    install(folder.path(), &certified);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let address_arguments = ["--host", "127.0.0.1", "--port", &port];
    let mut command = process::tidewire(
        folder.path(),
        &[
            &["start"][..],
            &address_arguments,
            &FILES,
            &["--shards", "1"],
        ]
        .concat(),
    );
    let mut child = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let ask = || {
        run(
            folder.path(),
            &[&["health"][..], &address_arguments, &FILES].concat(),
        )
        .0
    };
    wait_until(|| ask() == 0);
    child.kill().expect("ended");
    child.wait().expect("ended");
    assert_eq!(ask(), 1);
}
