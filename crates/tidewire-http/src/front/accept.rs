//! Accepts sockets: one task for each listener. It pauses while no file descriptor is free.
//!
//! A task takes the sockets that wait in the kernel's queue in batches, and hands over together those that became WebSockets at
//! once. So a thousand new connections wake the front and a shard a few times, instead of a thousand times each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tidewire_config::plan::Speaks;
use tidewire_net::listener::await_first_bytes;
use tidewire_shard::connection_limiter::SocketPermits;
use tidewire_shard::handle::UpgradedSocket;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};

use super::fast_upgrade::{self, FastUpgrade, try_upgrade};
use super::http::{self, Arrival};
use super::{Front, TooMany};

/// Connections that may wait in the kernel's queue while the front is busy; the kernel may apply a lower limit.
const BACKLOG: u32 = 4096;
/// Sockets that a task accepts before it yields, about a millisecond's work.
const BATCH_MAX: usize = 64;
/// How often the log reports that no file descriptor is free.
const PAUSE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait before the next attempt, after the kernel had no descriptor or memory left.
const EXHAUSTED_DELAY: Duration = Duration::from_millis(100);

/// Listens on an address.
///
/// # Errors
/// The address is in use, does not belong to this machine, or this user may not listen on it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted server must not wait for the last packets of the old connections.
    socket.set_reuseaddr(true)?;
    // Small messages must not wait for the acknowledgement of earlier ones. Accepted sockets inherit the option.
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    // In every protocol of this port the client speaks first. Without the option each connection would wake the front a second
    // time.
    let _ = await_first_bytes(listener.as_fd());
    Ok(listener)
}

/// Accepts connections until `stop` becomes true, then closes the listener.
pub async fn run(
    listener: TcpListener,
    speaks: Speaks,
    front: Arc<Front>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        _ = stop.wait_for(|is_stopped| *is_stopped) => {}
        () = accept(&listener, speaks, &front) => {}
    }
}

async fn accept(listener: &TcpListener, speaks: Speaks, front: &Arc<Front>) {
    loop {
        // The descriptor permit comes first: while none is free, new connections wait in the kernel's queue instead of failing.
        let descriptor = descriptor(front).await;
        let accepted = listener.accept().await;
        // Tokio registers each socket that it accepts. Most sockets go to a shard at once, so this undoes the registration.
        match accepted.and_then(|(socket, peer)| Ok((socket.into_std()?, peer))) {
            Ok((socket, peer)) => {
                let mut opened = Vec::new();
                open(front, socket, speaks, peer, descriptor, &mut opened);
                let is_full = accept_waiting(listener, speaks, front, &mut opened);
                if !opened.is_empty() {
                    front.shards.hand_over(opened);
                }
                if is_full {
                    yield_now().await;
                }
            }
            Err(error) if is_exhausted(&error) => {
                drop(descriptor);
                pause_begins(front);
                log_pause(front, &error.to_string());
                sleep(EXHAUSTED_DELAY).await;
            }
            // The peer was gone before its connection was accepted. This error concerns no other connection.
            Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

/// Accepts the sockets that already wait, and returns whether there may be more. It ignores an error, because the next `accept`
/// fails in the same way and handles it.
fn accept_waiting(
    listener: &TcpListener,
    speaks: Speaks,
    front: &Arc<Front>,
    opened: &mut Vec<UpgradedSocket>,
) -> bool {
    for _ in 1..BATCH_MAX {
        let Ok(descriptor) = Arc::clone(&front.connection_limiter.descriptors).try_acquire_owned()
        else {
            return false;
        };
        let Ok((socket, peer)) = accept_one(listener) else {
            return false;
        };
        open(front, socket, speaks, peer, descriptor, opened);
    }
    true
}

/// Accepts a nonblocking socket that the runtime does not know.
fn accept_one(listener: &TcpListener) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = acceptfrom_with(listener, flags)?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    // A TCP socket without an address was closed by its peer in the meantime.
    let address = address.ok_or(io::ErrorKind::NotConnected)?;
    Ok((socket.into(), address))
}

/// Opens the WebSocket if its request has arrived; otherwise starts a task that serves the connection.
fn open(
    front: &Arc<Front>,
    socket: std::net::TcpStream,
    speaks: Speaks,
    peer: SocketAddr,
    descriptor: OwnedSemaphorePermit,
    opened: &mut Vec<UpgradedSocket>,
) {
    if front.is_paused.swap(false, Ordering::AcqRel) {
        tracing::info!("accepting connections again");
    }
    front.metrics.accepted.inc();
    let mut counted = None;
    // Behind a load balancer the client's address arrives later, in the PROXY protocol header.
    if !front.proxy_protocol {
        match front.count(peer.ip()) {
            Ok(address) => counted = address,
            Err(TooMany) => return fast_upgrade::refuse(socket, speaks),
        }
    }
    let ticket = SocketPermits {
        descriptor,
        counted,
    };
    let upgrade = match speaks {
        Speaks::Clear if !front.proxy_protocol => try_upgrade(front, socket, peer, ticket),
        // The first bytes belong to the TLS handshake or the PROXY protocol header, so nothing is read here.
        _ => FastUpgrade::Unanswered {
            socket,
            ticket,
            unread: Bytes::new(),
        },
    };
    let (socket, ticket, unread) = match upgrade {
        FastUpgrade::Opened(connection) => return opened.push(*connection),
        FastUpgrade::Gone => return,
        FastUpgrade::Unanswered {
            socket,
            ticket,
            unread,
        } => (socket, ticket, unread),
    };
    match TcpStream::from_std(socket) {
        Ok(stream) => {
            let arrival = Arrival {
                stream,
                unread,
                peer,
                speaks,
                ticket,
            };
            tokio::spawn(http::serve(Arc::clone(front), arrival));
        }
        Err(error) => tracing::warn!(%peer, %error, "a connection can't be watched"),
    }
}

/// Waits for a free file descriptor. While it waits, it logs that accepting is paused.
async fn descriptor(front: &Arc<Front>) -> OwnedSemaphorePermit {
    if let Ok(descriptor) = Arc::clone(&front.connection_limiter.descriptors).try_acquire_owned() {
        return descriptor;
    }
    pause_begins(front);
    let mut free =
        std::pin::pin!(Arc::clone(&front.connection_limiter.descriptors).acquire_owned());
    loop {
        log_pause(front, "all are in use");
        let deadline = Instant::now() + PAUSE_LOG_INTERVAL;
        match timeout_at(deadline, &mut free).await {
            Ok(Ok(descriptor)) => return descriptor,
            // The semaphore is never closed.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => {}
        }
    }
}

fn pause_begins(front: &Front) {
    if !front.is_paused.swap(true, Ordering::AcqRel) {
        front.metrics.accept_pauses.inc();
    }
}

/// Logs at most one line in ten seconds, for all listeners and pauses together.
fn log_pause(front: &Front, cause: &str) {
    let now = Instant::now();
    let mut last = front.pause_logged.lock();
    if last.is_some_and(|last| now.duration_since(last) < PAUSE_LOG_INTERVAL) {
        return;
    }
    *last = Some(now);
    drop(last);
    tracing::warn!(
        open = front.connection_limiter.open(),
        "accepting is paused: no file descriptor is left ({cause}); raise the limit of open files (ulimit -n)"
    );
}

fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let code = error.raw_os_error();
    exhausted
        .iter()
        .any(|errno| Some(errno.raw_os_error()) == code)
}
