//! The beginning of a connection: the purpose of its request, rules about requests, and the first frames of the server.

use std::borrow::Cow;
use std::time::Duration;

/// A request for a path of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeRequest<'a> {
    /// The query of its URL.
    pub query: Option<&'a str>,
    /// Whether its method is GET.
    pub is_get: bool,
    /// Whether its method is POST.
    pub is_post: bool,
    /// Whether it wants to open a WebSocket.
    pub is_upgrade: bool,
}

/// The purpose of a request for a path of a protocol. All but the first are for sessions of exchanges: their messages are in the bodies of
/// requests and answers, until the session gets a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake<'a> {
    /// It opens a WebSocket with a new session.
    WebSocket,
    /// It opens a session of exchanges. The answer has its first messages.
    Open,
    /// The answer has the messages that wait for a session, or the next ones.
    Poll {
        /// Names the session.
        token: &'a str,
    },
    /// The body has messages of the peer.
    Post {
        /// Names the session.
        token: &'a str,
    },
    /// It opens a WebSocket that becomes the transport of a session.
    Switch {
        /// Names the session.
        token: &'a str,
    },
    /// It names a session, but has no other purpose in this list. The answer depends on whether the session exists.
    Misuse {
        /// Names the session.
        token: &'a str,
    },
}

/// Why the server refuses a request for a path of a protocol, although the request itself is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeRefusal {
    /// No session has the token.
    Unknown,
    /// The session has another transport now, or another request of the same kind is open.
    OutOfTurn,
    /// The server does not serve the page of the request.
    Forbidden,
}

/// The answer to a request that the protocol refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeRefusal {
    /// The status.
    pub status: u16,
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
    /// Time for the answer to a heartbeat.
    pub heartbeat_timeout: Duration,
    /// Bytes of a message of the peer.
    pub message_bytes_max: usize,
}
