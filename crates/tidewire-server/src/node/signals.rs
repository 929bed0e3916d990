//! The signals that a server knows; waiting for them also works as process 1 of a container.

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// What can be told to a running server.
#[derive(Debug)]
pub struct Signals {
    /// To stop.
    pub stop: StopSignal,
    /// To read its files again.
    pub reload: Signal,
}

impl Signals {
    /// From here on signals are kept until somebody waits for them, and do not end the process.
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
    /// Waits for the next one.
    pub async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
