//! The mail of the front to a shard about sessions of exchanges, whose messages are in the bodies of requests and answers. The front's calls are in
//! `exchange_request.rs`, the sessions in `conductor/exchanges.rs`. Decision: 0101.

use std::sync::Arc;

use bytes::Bytes;
use tidewire_net::connection::Key;
use tidewire_wire::protocol::{ExchangeRefusal, Protocol};
use tokio::sync::oneshot;

use super::peer::PeerDetails;
use crate::connection_limiter::ConnectionPermit;
use crate::session_token::SessionToken;

/// The reply to a request, with the body of its answer.
pub(crate) type PollReply = oneshot::Sender<Result<Bytes, ExchangeRefusal>>;
/// The reply to a request that brings messages.
pub(crate) type PostReply = oneshot::Sender<Result<(), ExchangeRefusal>>;

/// A new session of exchanges.
#[derive(Debug)]
pub struct OpenExchange {
    /// The protocol of its path.
    pub protocol: Protocol,
    /// The peer that sends its first request.
    pub peer: Arc<PeerDetails>,
    /// The place of the session among the connections of the node.
    pub permit: ConnectionPermit,
}

/// Why the body of a request ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It has more bytes than the server accepts.
    TooLarge,
    /// It did not arrive completely, or not as text.
    Broken,
}

/// Mail to a shard about sessions of exchanges.
#[derive(Debug)]
pub(crate) enum ExchangeMail {
    /// A new session.
    Open {
        opened: OpenExchange,
        reply: PollReply,
    },
    /// A request for the messages that wait.
    Poll {
        token: SessionToken,
        reply: PollReply,
    },
    /// A request that brings messages. Its body was not read yet.
    Post {
        token: SessionToken,
        /// Gets the number of bytes that the body may have.
        admitted: oneshot::Sender<usize>,
        reply: PostReply,
    },
    /// The body of that request.
    Body {
        token: SessionToken,
        body: Result<Bytes, BodyFault>,
    },
    /// Whether a WebSocket may become the transport of the session.
    MaySwitch {
        token: SessionToken,
        reply: PostReply,
    },
    /// The task of a request has ended without its answer.
    Gone(SessionToken),
    /// The library has released the bytes of an answer.
    Left(Key),
}
