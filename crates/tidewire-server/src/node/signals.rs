//! The signals that a server handles. It also receives them as process 1 of a container.

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// The signals that control a running server.
#[derive(Debug)]
pub struct Signals {
    /// The server stops.
    pub stop: StopSignal,
    /// SIGHUP: the server reads its files again.
    pub reload: Signal,
}

impl Signals {
    /// Installs the handlers. After that a signal no longer ends the process, but is queued until the server reads it.
    pub(super) fn new(runtime: &Runtime) -> Result<Self, Failure> {
        let _guard = runtime.enter();
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Bug, format!("no signals: {error}")))
        };
        Ok(Self {
            stop: StopSignal {
                terminate: listen(SignalKind::terminate())?,
                interrupt: listen(SignalKind::interrupt())?,
            },
            reload: listen(SignalKind::hangup())?,
        })
    }
}

/// SIGTERM or SIGINT.
#[derive(Debug)]
pub struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    /// Waits for the next stop signal.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
