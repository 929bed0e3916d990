//! A proxy in front of PostgreSQL that stops in the middle of a commit, as if the host of the client had been cut off.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The place within a commit after which nothing is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Everything is sent on.
    Nowhere = 0,
    /// After the message that executes the batch, before the one that ends its request.
    BeforeSync = 1,
    /// Before the request that ends the transaction.
    BeforeCommit = 2,
}

/// The request `COMMIT`, and the message before it.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const SYNC: &[u8] = b"S\0\0\0\x04";

/// A proxy; it ends with the test's process.
pub struct CuttingProxy {
    pub address: SocketAddr,
    cut: Arc<AtomicUsize>,
    /// Connections that were cut stay open.
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl CuttingProxy {
    pub fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            cut: Arc::default(),
            held: Arc::default(),
        };
        let (cut, held) = (Arc::clone(&proxy.cut), Arc::clone(&proxy.held));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || copy(back.0, back.1));
                let (cut, held) = (Arc::clone(&cut), Arc::clone(&held));
                std::thread::spawn(move || forward(client, server, &cut, &held));
            }
        });
        proxy
    }

    pub fn cut(&self, place: Cut) {
        self.cut.store(place as usize, Ordering::SeqCst);
    }

    pub fn cut_count(&self) -> usize {
        self.held.lock().unwrap().len() / 2
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    cut: &AtomicUsize,
    held: &Mutex<Vec<TcpStream>>,
) {
    let mut bytes = vec![0; 1 << 20];
    loop {
        let count = client.read(&mut bytes).unwrap_or(0);
        let sent = &bytes[..count];
        let place = cut.load(Ordering::SeqCst);
        let commit = sent.windows(COMMIT.len()).position(|part| part == COMMIT);
        if let Some(at) = commit.filter(|_| place != Cut::Nowhere as usize) {
            let is_early = place == Cut::BeforeSync as usize;
            let end = if is_early { at - SYNC.len() } else { at };
            assert!(sent[..at].ends_with(SYNC));
            server.write_all(&sent[..end]).unwrap();
            held.lock().unwrap().extend([client, server]);
            return;
        }
        if count == 0 || server.write_all(sent).is_err() {
            let _ = server.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}
