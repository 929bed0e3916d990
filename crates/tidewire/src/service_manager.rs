//! Notifications to the service manager, in systemd's protocol (sd_notify(3)): one datagram for each change, to the socket in the
//! environment. A unit with `Type=notify` counts as started when the server is ready, and restarts if a shard is stuck.
//!
//! Without such a socket the server sends no notifications.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use tidewire_http::status::{Stage, Status};

/// Variable with the name of the socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Variable with the time in microseconds after which the service manager restarts a server that sends no sign of life.
const WATCHDOG_MICROS: &str = "WATCHDOG_USEC";
/// Variable with the id of the watched process. A child of that process must not send signs of life.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Signs of life per timeout, so that some of them may be late.
const SIGNS_PER_TIMEOUT: u32 = 4;
/// Maximum time for which a service manager that does not read may delay a start, a reload or a stop.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to the service manager, if there is one.
#[derive(Clone, Debug)]
pub struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    watchdog_timeout: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that the environment of this process names.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var_os(name))
    }

    fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = variable(SOCKET).filter(|name| !name.is_empty());
        let socket = named.and_then(|name| match connect(&name) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                // The variable may come from the parent of the parent process, so the server starts anyway.
                tracing::warn!(socket = %name.display(), %error, "{SOCKET} can't be used, and the service manager gets no notifications; unset the variable if there is no service manager");
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

    /// Reports that the server is ready, after a start or a reload. `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"), SendFlags::empty());
    }

    /// Reports that the server reads its configuration again. `ready` must follow.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(
            &format!("RELOADING=1\nMONOTONIC_USEC={micros}"),
            SendFlags::empty(),
        );
    }

    /// Reports that the server stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping", SendFlags::empty());
    }

    /// Sends signs of life while no shard is stuck, if the service manager expects them.
    pub async fn give_signs_of_life(self, status: Arc<Status>) {
        let Some(timeout) = self.watchdog_timeout else {
            return;
        };
        let mut interval = tokio::time::interval(timeout / SIGNS_PER_TIMEOUT);
        loop {
            interval.tick().await;
            // During a stop the shards end before the store is closed. The unit's stop timeout limits that time.
            if status.stage() == Stage::Draining || status.stuck_shards().is_empty() {
                // The front must not wait for the service manager. If this sign is lost, the next one follows soon.
                self.tell("WATCHDOG=1", SendFlags::DONTWAIT);
            }
        }
    }

    fn tell(&self, change: &str, flags: SendFlags) {
        if let Some(socket) = &self.socket
            && let Err(error) = send(socket, change.as_bytes(), flags)
        {
            tracing::warn!(%error, change, "the notification was not sent to the service manager");
        }
    }
}

/// A socket that is connected to the named one. The name is a path, or an abstract name after `@`.
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
        const STUCK_CHECKS: u32 = 3;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        listener
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        let checks = Arc::new(AtomicU32::new(0));
        let status = Arc::new(Status::default());
        status.set_stage(Stage::Serving);
        let counted = Arc::clone(&checks);
        status.watch_shard(Box::new(move || {
            if counted.fetch_add(1, Ordering::SeqCst) < STUCK_CHECKS {
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
        assert!(checks.load(Ordering::SeqCst) > STUCK_CHECKS);
        runtime.shutdown_background();
    }
}
