//! Compares sends with TLS and without: `cargo run --release --example tls_cost -- [recipients] [bytes] [turns]`.
//!
//! Each recipient is owed the same range in every turn, every other one with a hole, as a publisher that does not get
//! its own message. Printed is the processor time of the sending thread for each recipient and turn, and the memory of an
//! idle connection. Peers read in another thread and decrypt nothing.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, OutboxMarks, Settled};
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::outbox::LogRange;
use tidewire_net::send_batch::Sender;
use tidewire_net::tls::{HEADROOM, TlsState};
use tidewire_net::turn_log::TurnLogs;

fn main() -> std::io::Result<()> {
    tidewire_net::descriptors::raise_limit()?;
    stay_on(0);
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let recipients = numbers.next().unwrap_or(1000);
    let bytes = numbers.next().unwrap_or(20_000);
    let turns = numbers.next().unwrap_or(60);
    let (client, server) = configs();
    let mut states = Vec::new();
    let before = allocated_bytes();
    for _ in 0..recipients {
        states.push(established(&client, &server));
    }
    let held = allocated_bytes().saturating_sub(before) / recipients;
    println!("tls state itself: {} bytes", size_of::<TlsState>());
    println!("tls state of an idle connection: {held} bytes");
    let mut clear = run(turns, bytes, (0..recipients).map(|_| None).collect())?;
    let mut sealed = run(turns, bytes, states.into_iter().map(Some).collect())?;
    clear.sort_unstable();
    sealed.sort_unstable();
    let (clear, sealed) = (clear[clear.len() / 2], sealed[sealed.len() / 2]);
    let per_send = |turn: u64| turn / recipients as u64;
    println!(
        "{recipients} recipients of {bytes} bytes: clear {} ns, tls {} ns a send; ratio {:.2}",
        per_send(clear),
        per_send(sealed),
        clear as f64 / sealed as f64
    );
    Ok(())
}

/// Processor nanoseconds of each turn.
fn run(
    count: usize,
    bytes: usize,
    states: Vec<Option<Box<TlsState>>>,
) -> std::io::Result<Vec<u64>> {
    let (mut event_loop, _waker) =
        EventLoop::new(&MemoryBudget::new(usize::MAX), Sender::detect())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut keys: Vec<Key> = Vec::new();
    let mut peers = Vec::new();
    for tls in states {
        let peer = TcpStream::connect(listener.local_addr()?)?;
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        peer.set_nonblocking(true)?;
        keys.push(event_loop.add_with_tls(socket, b"", tls, ())?);
        peers.push(peer);
    }
    let reader = std::thread::spawn(move || {
        stay_on(1);
        drain(&peers);
    });
    let mut logs = TurnLogs::new(1);
    let text = vec![b'x'; bytes];
    let mut turns = Vec::new();
    for _ in 0..count {
        let start = thread_nanos();
        let range = logs.log_mut(0).append(|out| out.extend_from_slice(&text));
        for (index, key) in keys.iter().enumerate() {
            let middle = range.start + bytes as u64 / 3;
            let whole = [range.clone()];
            let with_hole = [range.start..middle, middle + 40..range.end];
            let ranges = if index % 2 == 0 {
                &whole[..]
            } else {
                &with_hole
            };
            let ranges = ranges.iter().cloned();
            event_loop.push_ranges(*key, ranges.map(|range| LogRange { format: 0, range }));
        }
        logs.begin_turn();
        loop {
            while event_loop.has_sends() {
                event_loop.submit_slice(&logs, &mut Vec::new());
            }
            let marks = OutboxMarks::limit(usize::MAX);
            event_loop.settle(&mut logs, &marks, &mut Settled::default());
            if event_loop.backlog_count() == 0 {
                break;
            }
            event_loop.poll(Some(Duration::from_millis(10)))?;
        }
        turns.push(thread_nanos() - start);
    }
    drop(event_loop);
    reader
        .join()
        .map_err(|_| std::io::Error::other("the reader failed"))?;
    Ok(turns)
}

/// Reads until all peers' connections are closed.
fn drain(peers: &[TcpStream]) {
    let mut chunk = vec![0; 1 << 18];
    let mut is_open = vec![true; peers.len()];
    while is_open.contains(&true) {
        for (mut peer, open) in peers.iter().zip(&mut is_open) {
            if *open {
                *open = match peer.read(&mut chunk) {
                    Ok(count) => count > 0,
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                };
            }
        }
    }
}

/// Pins this thread to one processor: a send costs half as much if the scheduler puts its reader on the same one.
fn stay_on(processor: usize) {
    // SAFETY: a set of processors is plain bits, and all calls read or write that one set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        // On a machine with one processor the second call fails, and both threads share it.
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Processor time of this thread. The scheduler's figure in `/proc` is as old as its last tick, 4 ms.
fn thread_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes one `timespec` through a pointer to one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Bytes that the allocator has given out, those of the C library of cryptography included.
fn allocated_bytes() -> usize {
    // SAFETY: it has no arguments and reads the allocator's own counters under its lock.
    unsafe { libc::mallinfo2() }.uordblks
}

fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a certificate with its key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(client), Arc::new(server))
}

/// The server's state after a handshake in memory; the client's is dropped.
fn established(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Box<TlsState> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut server = Box::new(TlsState::new(Arc::clone(server)).expect("a server"));
    while client.is_handshaking() || !server.is_established() {
        let mut buffer = vec![0; HEADROOM];
        while client.wants_write() {
            client.write_tls(&mut buffer).expect("into memory");
        }
        server.open(&mut buffer).expect("a handshake");
        let answer = server.take_outgoing();
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("from memory");
            client.process_new_packets().expect("a handshake");
        }
    }
    server
}
