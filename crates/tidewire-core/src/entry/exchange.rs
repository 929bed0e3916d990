//! Requests for sessions of exchanges, if they arrive at another node than the one of their session.

use crate::address::SessionId;

/// Between the shard of a session and a shard of the node at which a request arrived.
#[derive(Clone, Debug)]
pub enum ExchangeEntry {
    /// To the session's shard.
    Request {
        /// The session.
        session: SessionId,
        /// Proves the right to the session.
        secret: [u8; 16],
        /// The number of the request at the shard that posts it.
        request: u64,
        /// A part of the request.
        what: ExchangeRequest,
    },
    /// To the shard that has posted the request.
    Reply {
        /// Its number.
        request: u64,
        /// A part of the reply.
        what: ExchangeReply,
    },
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeRequest {
    /// It waits for messages.
    Poll,
    /// It brings messages. Its body was not read yet.
    Post,
    /// The body.
    Body(Box<[u8]>),
    /// The body has more bytes than were allowed.
    LargeBody,
    /// The body did not arrive completely, or not as text.
    BrokenBody,
    /// It asks whether a WebSocket may become the transport of the session.
    MaySwitch,
    /// Its client has left.
    Gone,
    /// The bytes of its answer have left.
    Left,
    /// The node that has posted it stops, so a request that waits is answered without messages.
    Release,
}

impl ExchangeRequest {
    /// Whether it is the first part of its request.
    #[must_use]
    pub fn begins(&self) -> bool {
        matches!(self, Self::Poll | Self::Post | Self::MaySwitch)
    }
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeReply {
    /// The request may bring a body of this many bytes.
    Admitted(usize),
    /// The messages, which are the body of the answer.
    Messages(Box<[u8]>),
    /// The session has taken the messages of the body, or may get a WebSocket.
    Taken,
    /// No session has the token.
    Unknown,
    /// The session has another transport now, or another request of the same kind is open.
    OutOfTurn,
}
