//! The part of a session that belongs to backends (`backend/`).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::SessionId;
use crate::entry::OwnedBackend;
use crate::text::{Name, Payload};
use crate::time::Instant;

/// Memory of such a session in addition to its handshake and namespace.
const BACKED_BYTES: usize = 200;

/// The state of a session that a backend serves.
#[derive(Debug)]
pub(crate) struct Backed {
    pub(crate) namespace: Name,
    /// For the first backend, and for each later one.
    pub(crate) handshake: Payload,
    /// When its peer wanted to open it.
    pub(crate) since: Instant,
    pub(crate) backend: Option<SessionId>,
    /// The public id that the first backend has given it.
    pub(crate) id: Option<Name>,
    /// Its data for the next backend, as JSON.
    pub(crate) data: Option<Payload>,
    /// Its reservation for the backend that served it, whose node is lost.
    pub(crate) reservation: Option<u64>,
    /// The backend that alone may serve it, because it keeps its sessions.
    pub(crate) kept_for: Option<SessionId>,
    /// Until when it may be without a backend, if it is without one now.
    pub(crate) waits_until: Instant,
    /// Messages for the next backend: ones that a lost backend was not sent, and ones that arrived while a backend was about to release it.
    pub(crate) backlog: VecDeque<Arc<OwnedBackend>>,
    /// Whether its backend hands it over. Then its events wait in the backlog.
    pub(crate) is_handed_over: bool,
    /// Whether its next message waits for a backend.
    pub(crate) is_waiting: bool,
    /// Whether its peer has ended it.
    pub(crate) has_left: bool,
    /// Whether it is closed because it is silent.
    pub(crate) is_silent: bool,
    /// Whether a backend has ended it. Its peer may not know that yet.
    pub(crate) has_ended: bool,
}

impl Backed {
    /// A session without a backend.
    pub(crate) fn new(namespace: Name, handshake: Payload, since: Instant) -> Self {
        Self {
            namespace,
            handshake,
            since,
            backend: None,
            id: None,
            data: None,
            reservation: None,
            kept_for: None,
            waits_until: since,
            backlog: VecDeque::new(),
            is_handed_over: false,
            is_waiting: false,
            has_left: false,
            is_silent: false,
            has_ended: false,
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        BACKED_BYTES + self.namespace.len() + self.handshake.as_str().len() + self.data_bytes()
    }

    /// Bytes of the data for the next backend.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.as_str().len())
    }

    /// The handshake for the next backend: with the data of the session, if a backend has told them.
    pub(crate) fn handshake_with_data(&self) -> Payload {
        let Some(data) = &self.data else {
            return self.handshake.clone();
        };
        // The handshake is an object that has at least the credentials.
        let members = &self.handshake.as_str()[1..];
        Payload::from_checked(&format!("{{\"data\":{},{members}", data.as_str()))
    }
}
