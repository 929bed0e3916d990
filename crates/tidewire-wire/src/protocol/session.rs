//! Requests of a peer about its session and transport, and the replies. The shard handles them; the engine does not see them.

use thiserror::Error;

/// A session of a connection that may have several, as its peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace<'a> {
    /// The session that the connection has from its beginning.
    Main,
    /// A further one.
    Named(&'a str),
}

impl<'a> Namespace<'a> {
    /// Its name. That of the main one is `/`.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Self::Main => "/",
            Self::Named(name) => name,
        }
    }
}

/// A request about the session of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRequest<'a> {
    /// The peer opens a session. The message of the payload is its login.
    Join {
        /// The namespace of the session. The connection has no open session there.
        namespace: Namespace<'a>,
        /// The credentials, as JSON.
        credentials: &'a str,
    },
    /// The message of the payload goes to the session of this namespace. Other messages go to the main one.
    Within {
        /// The namespace.
        namespace: &'a str,
    },
    /// The peer ends a session.
    Leave {
        /// Its namespace.
        namespace: Namespace<'a>,
    },
    /// The session outlives its connection after this request. The reply has the token with which the peer resumes it.
    Keep,
    /// The connection becomes the transport of another session. It must not have logged in.
    Resume {
        /// The token of the session.
        token: &'a str,
        /// Messages that the peer has received since the reply to [`SessionRequest::Keep`], without replies to session requests.
        received: u64,
    },
    /// The peer has received the messages up to this number, so the server may forget them. It has no reply.
    Confirm {
        /// As in [`SessionRequest::Resume`].
        received: u64,
    },
    /// The codec has answered the payload without the engine. The transport sends its frames, which may overtake answers of the engine.
    Answer {
        /// The namespace of the payload, in which the peer must have a session; `None` if it has none.
        namespace: Option<Namespace<'a>>,
        /// Frames; there may be none.
        frames: &'a [u8],
    },
    /// The peer ends the connection. The answer is a close frame.
    Close,
    /// The connection, which was opened for it, can carry the session of exchanges. The transport sends the frames and answers polls of the
    /// session at once, until the peer continues with [`SessionRequest::Switch`].
    Probe {
        /// Frames.
        frames: &'a [u8],
    },
    /// The session of exchanges continues on this connection.
    Switch,
}

/// A reply to a [`SessionRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionReply<'a> {
    /// The session outlives its connection.
    Kept {
        /// Names the session and proves the right to resume it.
        token: &'a str,
    },
    /// The session continues here. Messages that the peer has not received follow.
    Resumed {
        /// Messages of the peer that the server has taken since the reply to [`SessionRequest::Keep`], without session requests. The peer
        /// sends the later ones again.
        received: u64,
    },
    /// The session was not resumed. The connection may log in instead.
    Refused(ResumeRefusal),
}

/// A message of the server about the session of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceReply<'a> {
    /// The peer can't open a session in this namespace.
    Refused(&'a str, NamespaceRefusal),
    /// The server has ended the session of this namespace.
    Ended(Namespace<'a>),
}

/// Why a peer can't open a session in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum NamespaceRefusal {
    /// The server has no such namespace.
    #[error("the namespace is not in network.namespaces")]
    Unknown,
    /// The connection has as many sessions as the server permits.
    #[error("the connection has limits.connection_sessions_max sessions")]
    TooMany,
}

/// Why a session can't be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ResumeRefusal {
    /// No session has this token, or it ended long ago.
    #[error("no such session")]
    Unknown,
    /// The connection already has a login.
    #[error("the connection has logged in")]
    LoggedIn,
    /// The session had no transport for longer than the server waits.
    #[error("the session was detached for longer than network.detached_timeout")]
    DetachedTooLong,
    /// More bytes waited for the session than the server keeps.
    #[error("more than limits.retained_bytes_max waited for the detached session")]
    OutboxFull,
    /// The server no longer has the first message that the peer has not received.
    #[error("the server no longer has all messages that the peer has missed")]
    Missed,
    /// The session has ended for another reason, such as an expired login.
    #[error("the session has ended")]
    Ended,
}
