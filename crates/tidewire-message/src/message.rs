//! The one internal `Message`: every protocol decodes to it and encodes from it, in both directions.
//!
//! Texts are borrowed from the read buffer or from the owner of the value, so a message never outlives the turn. `data` is JSON text. The
//! engine checks the `data` of a peer's message once, where it enters. An absent `data` means *undefined*, which differs from `null` and
//! from an empty text.

mod backend;
mod connection;
mod event;
mod listen;
mod presence;
mod publication;
mod query;
mod record;
mod refusal;
mod rpc;
mod scope;

pub use backend::{Backend, BackendKind};
pub use connection::{Auth, Connection};
pub use event::{Event, EventAction, EventBulk, GAP_MAX, Position};
pub use listen::Listen;
pub use presence::{Presence, PresenceAction};
pub use publication::{Publication, RareAttributes};
pub use query::{Query, QueryReason};
pub use record::{
    Change, Only, Record, RecordAction, RecordBulk, Tag, WireVersion, Write, WriteKey,
};
pub use refusal::{Reason, Refusal, TransactionFault};
pub use rpc::{Call, Rpc, RpcAction};
pub use scope::{Scope, ScopeAction, ScopeReason};

/// A decoded unit of meaning.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// Connecting and heartbeats.
    Connection(Connection<'a>),
    /// Logging in.
    Auth(Auth<'a>),
    /// Publish and subscribe.
    Event(Event<'a>),
    /// Versioned documents.
    Record(Record<'a>),
    /// Requests and responses.
    Rpc(Rpc<'a>),
    /// The online users.
    Presence(Presence<'a>),
    /// The members of scopes.
    Scope(Scope<'a>),
    /// Records by their content.
    Query(Query<'a>),
    /// Application logic in backends. Boxed, because it has more fields than the other messages.
    Backend(Box<Backend<'a>>),
    /// A message that this server does not understand. The session continues.
    UnknownTopic,
    /// A known topic with an action that no client sends. It is counted and gets no answer.
    UnknownAction {
        /// The topic.
        topic: Topic,
        /// The number on the wire.
        action: u32,
    },
}

/// The primitives that have actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Connecting.
    Connection,
    /// Logging in.
    Auth,
    /// Publish and subscribe.
    Event,
    /// Versioned documents.
    Record,
    /// Requests and responses.
    Rpc,
    /// The online users.
    Presence,
    /// Records by their content.
    Query,
    /// Application logic in backends.
    Backend,
}

/// An ordered list of names in a bulk message.
pub type Names<'a> = Vec<&'a str>;

/// A correlation id: chosen by the peer, unique only in that peer's use of it.
pub type Correlation<'a> = Option<&'a str>;
