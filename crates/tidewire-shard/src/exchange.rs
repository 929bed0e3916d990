//! The mail of the front to a shard about sessions of exchanges, whose messages are in the bodies of requests and answers. The front's calls are in
//! `exchange_request.rs`, the sessions in `conductor/exchanges.rs`. Decision: 0101.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use tidewire_core::address::Address;
use tidewire_core::entry::ExchangeReply;
use tidewire_net::connection::Key;
use tidewire_wire::protocol::{ExchangeRefusal, Protocol};
use tokio::sync::oneshot;

use super::peer::PeerDetails;
use crate::connection_limiter::ConnectionPermit;
use crate::session_token::SessionToken;

/// The reply to a request, with the body of its answer.
pub(crate) type PollReply = Reply<Bytes>;
/// The reply to a request that brings messages.
pub(crate) type PostReply = Reply<()>;

/// The reply to a request. A reply that is dropped refuses its request, because the session has ended.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    /// To a task of the front of this node.
    Here(oneshot::Sender<Result<T, ExchangeRefusal>>),
    /// To the shard of another node that has forwarded the request.
    There(NodeReply),
}

/// The content of a reply, as another node gets it.
pub(crate) trait ReplyContent {
    fn entry(self) -> ExchangeReply;
}

impl ReplyContent for Bytes {
    fn entry(self) -> ExchangeReply {
        ExchangeReply::Messages(Box::from(&self[..]))
    }
}

impl ReplyContent for () {
    fn entry(self) -> ExchangeReply {
        ExchangeReply::Taken
    }
}

impl<T: ReplyContent> Reply<T> {
    /// Replies.
    ///
    /// # Errors
    /// The client has left.
    pub(crate) fn send(self, reply: Result<T, ExchangeRefusal>) -> Result<(), ClientLeft> {
        match self {
            Self::Here(sender) => sender.send(reply).map_err(|_| ClientLeft),
            Self::There(there) if there.is_gone => Err(ClientLeft),
            Self::There(there) => {
                there.send(match reply {
                    Ok(content) => content.entry(),
                    Err(ExchangeRefusal::OutOfTurn) => ExchangeReply::OutOfTurn,
                    // The front of the other node has checked the page of the request.
                    Err(ExchangeRefusal::Unknown | ExchangeRefusal::Forbidden) => {
                        ExchangeReply::Unknown
                    }
                });
                Ok(())
            }
        }
    }

    /// Whether the client has left.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Here(sender) => sender.is_closed(),
            Self::There(there) => there.is_gone,
        }
    }

    /// The reply to a shard of another node.
    pub(crate) fn there(&self) -> Option<&NodeReply> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => Some(there),
        }
    }

    pub(crate) fn there_mut(&mut self) -> Option<&mut NodeReply> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => Some(there),
        }
    }
}

/// The client of a request has left before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientLeft;

/// A request that a shard of another node has forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardedId {
    pub(crate) from: Address,
    pub(crate) request: u64,
}

/// The way on which the replies of a shard leave to other nodes.
pub(crate) trait ReplyWay: Debug + Send + Sync {
    /// Replies. Never blocks.
    fn reply(&self, id: ForwardedId, reply: ExchangeReply);
}

/// The reply to a forwarded request. It leaves through the mailbox of the session's shard, so a session that ends can drop it anywhere.
#[derive(Debug)]
pub(crate) struct NodeReply {
    way: Box<dyn ReplyWay>,
    pub(crate) id: ForwardedId,
    is_answered: bool,
    /// Whether the client has left, or the node at which it has sent the request is lost.
    pub(crate) is_gone: bool,
    /// Whether that node stops, so that the request is answered without messages.
    pub(crate) is_released: bool,
}

impl NodeReply {
    /// The reply of a shard.
    pub(crate) fn new(way: Box<dyn ReplyWay>, id: ForwardedId) -> Self {
        Self {
            way,
            id,
            is_answered: false,
            is_gone: false,
            is_released: false,
        }
    }

    /// Allows a body of this many bytes. The reply follows.
    pub(crate) fn admit(&self, bytes_max: usize) {
        self.mail(ExchangeReply::Admitted(bytes_max));
    }

    fn send(mut self, reply: ExchangeReply) {
        self.is_answered = true;
        self.mail(reply);
    }

    fn mail(&self, reply: ExchangeReply) {
        self.way.reply(self.id, reply);
    }
}

impl Drop for NodeReply {
    fn drop(&mut self) {
        if !self.is_answered && !self.is_gone {
            self.mail(ExchangeReply::Unknown);
        }
    }
}

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
        /// Gets the number of bytes that the body may have. The reply to another node has its own way for it.
        admitted: Option<oneshot::Sender<usize>>,
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
    /// The same for an answer of another node.
    ForwardedLeft { token: SessionToken, request: u64 },
    /// A reply to another node.
    Answer {
        id: ForwardedId,
        reply: ExchangeReply,
    },
}

impl ExchangeMail {
    /// The session of a request; `None` for mail of this shard to itself, and for a new session.
    pub(crate) fn token(&self) -> Option<SessionToken> {
        match self {
            Self::Poll { token, .. }
            | Self::Post { token, .. }
            | Self::Body { token, .. }
            | Self::MaySwitch { token, .. }
            | Self::Gone(token)
            | Self::ForwardedLeft { token, .. } => Some(*token),
            Self::Open { .. } | Self::Left(_) | Self::Answer { .. } => None,
        }
    }
}
