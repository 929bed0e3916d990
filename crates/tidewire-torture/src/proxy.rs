//! A TCP proxy between clients and the server that cuts connections at any byte.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The addresses to which clients connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    /// The server itself.
    pub(super) direct: SocketAddr,
    /// The proxy, which forwards to the same server.
    pub(super) proxied: SocketAddr,
}

/// A proxy for one server at a time. It ends with the process.
#[derive(Clone)]
pub(super) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The address of the server. If `None`, the proxy closes new connections at once.
    target: Option<SocketAddr>,
    /// Both ends of each connection.
    open: Vec<[TcpStream; 2]>,
}

impl Proxy {
    /// Starts the proxy on a free port.
    ///
    /// # Errors
    /// The system can't provide a port or a thread.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Self {
            address: listener.local_addr()?,
            state: Arc::default(),
        };
        let accepting = proxy.clone();
        thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    // If the server has ended, the connection of the client is closed, as a network would.
                    let _ = accepting.join(client);
                }
            })?;
        Ok(proxy)
    }

    /// The address to which clients connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards new connections to this server, or closes them if `target` is `None`.
    pub(super) fn lead_to(&self, target: Option<SocketAddr>) {
        self.lock().target = target;
    }

    /// Cuts the connections for which `is_cut` returns true. Returns how many were open.
    pub(super) fn cut(&self, mut is_cut: impl FnMut() -> bool) -> u64 {
        let mut count = 0;
        self.lock().open.retain(|ends| {
            if !is_cut() {
                return true;
            }
            // Fails if the connection has already ended.
            let was_open = ends.iter().all(|end| end.shutdown(Shutdown::Both).is_ok());
            count += u64::from(was_open);
            false
        });
        count
    }

    fn join(&self, client: TcpStream) -> io::Result<()> {
        let Some(target) = self.lock().target else {
            return Ok(());
        };
        let server = TcpStream::connect(target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        // Before the first byte is forwarded, so that every connection that carries data can be cut.
        let ends = [client.try_clone()?, server.try_clone()?];
        self.lock().open.push(ends);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            thread::Builder::new()
                .name("proxy".to_owned())
                .spawn(move || carry(from, to))?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards bytes until one end closes, then closes both.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_both_ways_until_the_cut() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start().unwrap();
        proxy.lead_to(Some(server.local_addr().unwrap()));
        let mut near = TcpStream::connect(proxy.address()).unwrap();
        let (mut far, _) = server.accept().unwrap();
        let mut byte = [0];
        near.write_all(b"a").unwrap();
        far.read_exact(&mut byte).unwrap();
        far.write_all(b"b").unwrap();
        near.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"b");
        assert_eq!(proxy.cut(|| false), 0);
        assert_eq!(proxy.cut(|| true), 1);
        assert_eq!(near.read(&mut byte).unwrap_or(0), 0);
        assert_eq!(far.read(&mut byte).unwrap_or(0), 0);
        assert_eq!(proxy.cut(|| true), 0);
    }

    #[test]
    fn without_a_server_clients_are_closed() {
        let proxy = Proxy::start().unwrap();
        let mut near = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap_or(0), 0);
    }
}
