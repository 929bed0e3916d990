//! Accepting sockets: one task for each listener, paused while descriptors are short.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::tls::Speaks;
use super::{Front, http};

/// Connections that the kernel keeps for us while we are busy; it caps this itself.
const BACKLOG: u32 = 4096;
/// How often the log says that descriptors are short.
const PAUSE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait after the kernel itself had no descriptor or memory left, before it is asked again.
const EXHAUSTED_DELAY: Duration = Duration::from_millis(100);

/// Listens on an address.
///
/// # Errors
/// The address is in use, may not be listened on, or is none of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted server must not wait for the old connections' last packets.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts until `stop` becomes true; the listener is closed then.
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
        let descriptor = descriptor(front).await;
        match listener.accept().await {
            Ok((socket, peer)) => open(front, socket, speaks, peer, descriptor),
            Err(error) if is_exhausted(&error) => {
                drop(descriptor);
                pause_begins(front);
                log_pause(front, &error.to_string());
                sleep(EXHAUSTED_DELAY).await;
            }
            // The peer was gone before it was accepted; the next one may be there.
            Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

fn open(
    front: &Arc<Front>,
    socket: TcpStream,
    speaks: Speaks,
    peer: SocketAddr,
    descriptor: OwnedSemaphorePermit,
) {
    if front.is_paused.swap(false, Ordering::AcqRel) {
        tracing::info!("accepting connections again");
    }
    front.metrics.accepted.inc();
    // Small messages must not wait for the acknowledgement of earlier ones.
    let _ = socket.set_nodelay(true);
    tokio::spawn(http::serve(
        Arc::clone(front),
        socket,
        speaks,
        peer,
        descriptor,
    ));
}

/// Waits until a descriptor is free, and says so while it has to.
async fn descriptor(front: &Arc<Front>) -> OwnedSemaphorePermit {
    if let Ok(descriptor) = Arc::clone(&front.places.descriptors).try_acquire_owned() {
        return descriptor;
    }
    pause_begins(front);
    let mut free = std::pin::pin!(Arc::clone(&front.places.descriptors).acquire_owned());
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

/// At most one line in ten seconds, however many listeners wait and however often the pause begins anew.
fn log_pause(front: &Front, cause: &str) {
    let now = Instant::now();
    let mut last = front.pause_logged.lock();
    if last.is_some_and(|last| now.duration_since(last) < PAUSE_LOG_INTERVAL) {
        return;
    }
    *last = Some(now);
    drop(last);
    tracing::warn!(
        open = front.places.open(),
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
