//! Why a run gave no figure, or a figure that is not good enough. Each ends the program.

use std::io;

use thiserror::Error;

use crate::ledger::Fault;

/// Why a run failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An argument that can't be used.
    #[error("{0}")]
    Argument(String),
    /// A server could not be started, or ended by itself.
    #[error("{0}")]
    Server(String),
    /// A connection was closed, or was answered what does not belong there.
    #[error("connection {connection}: {what}")]
    Peer {
        /// The connection's number in its swarm.
        connection: usize,
        /// What happened.
        what: String,
    },
    /// Something did not come in time.
    #[error("deadline passed while waiting for {0}")]
    Deadline(String),
    /// A delivery is missing, doubled or wrong.
    #[error("wrong deliveries: {0}")]
    Deliveries(#[from] Fault),
    /// The figures are complete and not good enough.
    #[error("{0}")]
    Threshold(String),
}

impl Failure {
    /// The program's exit code: 2 for arguments that make no sense, as for those that can't be read, else 1.
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
