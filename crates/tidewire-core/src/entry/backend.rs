//! Backends: entries between the shards of sessions and the shards of the backends that serve them.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::attachments::Attachments;
use crate::message::{Backend, BackendKind};
use crate::text::{Name, Payload};

/// Messages about backends, between shards.
#[derive(Clone, Debug)]
pub enum BackendEntry {
    /// To every shard: a backend serves these namespaces, and no others. It is posted again when the number of sessions has changed much.
    Serve {
        /// The backend.
        backend: SessionId,
        /// Namespaces; a `*` at the end matches any text.
        namespaces: Vec<Name>,
        /// The sessions of all shards that it serves.
        sessions: u32,
        /// The backend that it was before the loss of its node, whose sessions it keeps.
        earlier: Option<SessionId>,
        /// The number of the shard's messages that it received then.
        received: u64,
    },
    /// To every shard: the backend has ended.
    Lost {
        /// The backend.
        backend: SessionId,
        /// The number of the shard's messages that it was sent.
        sent: u64,
    },
    /// To the backend's shard: a message for the backend.
    Notice {
        /// The backend.
        backend: SessionId,
        /// The shard of the session.
        from: Address,
        /// The message.
        message: Arc<OwnedBackend>,
    },
    /// To a session's shard: the backend has handled some of the shard's messages.
    Confirmed {
        /// The backend.
        backend: SessionId,
        /// The number of messages.
        count: u32,
    },
    /// To a session's shard: a command of a backend about the session.
    Command {
        /// The backend.
        backend: SessionId,
        /// The command.
        message: Box<OwnedBackend>,
    },
    /// To every shard: a publication of a backend. The rooms have the names of their events.
    Broadcast(Arc<OwnedBackend>),
    /// To every shard: such a publication, which each session answers, or a message for the other backends.
    Ask {
        /// The backend.
        backend: SessionId,
        /// The number that the backend's shard has given the ask.
        ask: u64,
        /// How long sessions or backends may answer. Zero for a message to backends without answers.
        timeout_ms: u32,
        /// The publication.
        message: Arc<OwnedBackend>,
    },
    /// To the backend's shard: the shard has handled an ask.
    Asked {
        /// The backend.
        backend: SessionId,
        /// The ask.
        ask: u64,
        /// The sessions or backends that got it.
        count: u32,
        /// Whether some did not get it, because of a limit.
        is_refused: bool,
    },
    /// To the backend's shard: the answer of a session or of another backend.
    Response {
        /// The backend.
        backend: SessionId,
        /// The ask.
        ask: u64,
        /// The answer.
        message: Box<OwnedBackend>,
    },
    /// To every shard: the backend does not wait for further answers.
    AskOver {
        /// The backend.
        backend: SessionId,
        /// The ask. Without one, all of the backend.
        ask: Option<u64>,
    },
    /// To every shard: events that the backend is sent and does not confirm come again, if they are of these namespaces.
    DeliverAgain {
        /// The backend.
        backend: SessionId,
        /// Namespaces; a `*` at the end matches any text.
        namespaces: Vec<Name>,
    },
    /// To every shard: the backend ends soon, and gets no further sessions.
    HandOver {
        /// The backend.
        backend: SessionId,
    },
    /// To the backend's shard: the shard has posted all sessions that the backend gets.
    HandedOver {
        /// The backend.
        backend: SessionId,
    },
}

/// An owned message of backends.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedBackend {
    /// See [`Backend`], also for the other fields.
    pub kind: BackendKind,
    /// The session.
    pub session: Option<SessionId>,
    /// A text whose meaning depends on the kind.
    pub name: Option<Name>,
    /// JSON.
    pub data: Option<Payload>,
    /// The number of an acknowledgement.
    pub correlation: Option<Box<str>>,
    /// Namespaces or rooms.
    pub names: Vec<Name>,
    /// Rooms whose members do not get it.
    pub except: Vec<Name>,
    /// Attachments of the data.
    pub attachments: Option<Attachments>,
    /// A number. Of an event, the number of lost backends that it was sent to.
    pub count: u32,
    /// The backend whose sessions alone get a broadcast or an ask, with the members of the rooms on its node that no backend serves.
    pub only: Option<SessionId>,
}

impl OwnedBackend {
    /// A message about a session, without other fields.
    #[must_use]
    pub fn about(kind: BackendKind, session: SessionId) -> Self {
        Self::of(&Backend::about(kind, session))
    }

    /// A copy. The data was checked.
    #[must_use]
    pub fn of(message: &Backend<'_>) -> Self {
        let names = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect();
        Self {
            kind: message.kind,
            session: message.session,
            name: message.name.map(Name::from),
            data: message.data.map(Payload::from_checked),
            correlation: message.correlation.map(Box::from),
            names: names(&message.names),
            except: names(&message.except),
            attachments: message.attachments.clone(),
            count: message.count,
            only: None,
        }
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Backend<'_> {
        Backend {
            session: self.session,
            name: self.name.as_ref().map(Name::as_str),
            data: self.data.as_ref().map(Payload::as_str),
            correlation: self.correlation.as_deref(),
            names: self.names.iter().map(Name::as_str).collect(),
            except: self.except.iter().map(Name::as_str).collect(),
            attachments: self.attachments.clone(),
            count: self.count,
            ..Backend::new(self.kind)
        }
    }

    /// Bytes of memory that it takes, approximately.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.names.iter().chain(&self.except).chain(&self.name);
        let names: usize = names.map(|name| name.len() + size_of::<Name>()).sum();
        let data = self.data.as_ref().map_or(0, |data| data.as_str().len());
        let attachments = self.attachments.as_ref().map_or(0, Attachments::size);
        size_of::<Self>() + names + data + attachments
    }
}
