//! The beginning of a connection: rules about the request, and the first frames of the server.

use std::borrow::Cow;
use std::time::Duration;

/// A request for a path of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeRequest<'a> {
    /// The query of its URL.
    pub query: Option<&'a str>,
    /// Whether its method is GET.
    pub is_get: bool,
    /// Whether it wants to open a WebSocket.
    pub is_upgrade: bool,
}

/// The answer to a request that the protocol refuses. Its status is 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeRefusal {
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Cow<'static, str>,
}

/// The terms of a connection that a protocol may announce to a new peer.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The interval of heartbeats.
    pub heartbeat_interval: Duration,
    /// Bytes of a message of the peer.
    pub message_bytes_max: usize,
}
