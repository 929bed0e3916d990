//! What the service manager is told, so that a unit with `Type=notify` is started when the server is, and is started again
//! when a shard stands still: systemd's protocol (sd_notify(3)), one datagram for each change, to the socket that it names.
//!
//! Without such a socket nothing is told.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use tidewire_http::status::{Stage, Status};

/// Names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// After so many microseconds without a sign of life the server is started again.
const WATCHDOG_MICROS: &str = "WATCHDOG_USEC";
/// The process that this is about; a child of it must not answer for it.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Signs of life in the time after which a missing one counts: some may come late.
const SIGNS_PER_TIMEOUT: u32 = 4;
/// How long a service manager that reads nothing may hold up a start, a reload or a stop.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the service manager listens.
#[derive(Clone, Debug)]
pub struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    watchdog_timeout: Option<Duration>,
}

impl ServiceManager {
    /// Whoever has started this process, as its environment says.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var_os(name))
    }

    fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = variable(SOCKET).filter(|name| !name.is_empty());
        let socket = named.and_then(|name| match connect(&name) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                // It may be left over from whoever started whoever started this, so it is no reason not to serve.
                tracing::warn!(socket = %name.display(), %error, "{SOCKET} can't be used, so the service manager is told nothing; unset it where there is none");
                None
            }
        });
        let number = |name| -> Option<u64> { variable(name)?.to_str()?.parse().ok() };
        let is_meant = variable(WATCHDOG_PROCESS).is_none()
            || number(WATCHDOG_PROCESS) == Some(u64::from(std::process::id()));
        let micros = number(WATCHDOG_MICROS).filter(|micros| *micros > 0 && is_meant);
        Self {
            socket,
            watchdog_timeout: micros.map(Duration::from_micros),
        }
    }

    /// The server serves, for the first time or again after a reload. `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"), SendFlags::empty());
    }

    /// The configuration is read again; `ready` follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(
            &format!("RELOADING=1\nMONOTONIC_USEC={micros}"),
            SendFlags::empty(),
        );
    }

    /// The server stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping", SendFlags::empty());
    }

    /// Gives signs of life for as long as all shards do, if the service manager wants any.
    pub async fn give_signs_of_life(self, status: Arc<Status>) {
        let Some(timeout) = self.watchdog_timeout else {
            return;
        };
        let mut interval = tokio::time::interval(timeout / SIGNS_PER_TIMEOUT);
        loop {
            interval.tick().await;
            // Shards end before the store is closed; how long that takes is bounded by the unit's stop timeout.
            if status.stage() == Stage::Draining || status.stuck_shards().is_empty() {
                // The front waits for nobody; the next one comes soon.
                self.tell("WATCHDOG=1", SendFlags::DONTWAIT);
            }
        }
    }

    fn tell(&self, change: &str, flags: SendFlags) {
        if let Some(socket) = &self.socket
            && let Err(error) = send(socket, change.as_bytes(), flags)
        {
            tracing::warn!(%error, change, "the service manager was not told");
        }
    }
}

/// A socket that is connected to the one of this name: a path, or an abstract name behind `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn manager(variables: &[(&str, &OsStr)]) -> ServiceManager {
        ServiceManager::new(|name| {
            let (_, value) = variables.iter().find(|(own, _)| *own == name)?;
            Some((*value).to_owned())
        })
    }

    #[test]
    fn the_watchdog_is_that_of_this_process() {
        let check = |timeout: &str, process: Option<&str>, expected: Option<u64>| {
            let mut variables = vec![(WATCHDOG_MICROS, OsStr::new(timeout))];
            variables.extend(process.map(|id| (WATCHDOG_PROCESS, OsStr::new(id))));
            let expected = expected.map(Duration::from_micros);
            let found = manager(&variables).watchdog_timeout;
            assert_eq!(found, expected, "{timeout:?}, {process:?}");
        };
        let own = std::process::id().to_string();
        check("2000", None, Some(2000));
        check("2000", Some(&own), Some(2000));
        check("2000", Some("1"), None);
        check("2000", Some("none"), None);
        check("0", None, None);
        check("soon", None, None);
    }

    #[test]
    fn a_stuck_shard_gives_no_sign_of_life() {
        const STUCK_LOOKS: u32 = 3;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        listener
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        let looks = Arc::new(AtomicU32::new(0));
        let status = Arc::new(Status::default());
        status.set_stage(Stage::Serving);
        let counted = Arc::clone(&looks);
        status.watch_shard(Box::new(move || {
            if counted.fetch_add(1, Ordering::SeqCst) < STUCK_LOOKS {
                Duration::from_secs(60)
            } else {
                Duration::ZERO
            }
        }));
        let manager = manager(&[
            (SOCKET, path.as_os_str()),
            (WATCHDOG_MICROS, OsStr::new("4000")),
        ]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.spawn(manager.give_signs_of_life(status));
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).expect("a sign of life");
        assert_eq!(&bytes[..length], b"WATCHDOG=1");
        assert!(looks.load(Ordering::SeqCst) > STUCK_LOOKS);
        runtime.shutdown_background();
    }
}
