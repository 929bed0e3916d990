//! Why a run gave no figure, or an insufficient one. Each failure ends the program.

use std::io;

use thiserror::Error;

use crate::delivery_log::Fault;

/// Why a run failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// The attempted action.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// An invalid argument.
    #[error("{0}")]
    Argument(String),
    /// A server did not start, or exited by itself.
    #[error("{0}")]
    Server(String),
    /// A connection was closed, or got an unexpected answer.
    #[error("connection {connection}: {what}")]
    Peer {
        /// The connection's number in its swarm.
        connection: usize,
        /// The event.
        what: String,
    },
    /// An expected event did not come in time.
    #[error("timeout while waiting for {0}")]
    Deadline(String),
    /// A delivery is missing, doubled or wrong.
    #[error("wrong deliveries: {0}")]
    Deliveries(#[from] Fault),
    /// The figures are complete and insufficient.
    #[error("{0}")]
    Threshold(String),
}

impl Failure {
    /// The program's exit code: 2 for invalid arguments, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Argument(_) => 2,
            _ => 1,
        }
    }

    /// For `map_err` on a call of the system.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
