//! The boundary of the engine: its inputs, and the effects that it requests.
//!
//! The driver of a shard (the server's conductor, the simulation, a fuzzer) implements [`Effects`] and calls
//! [`crate::engine::Shard::handle`]. Effects take place in the order in which they are emitted.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::entry::Entry;
use crate::message::{Auth, Message};
use crate::principal::Principal;
use crate::publication::InterestTopic;
use crate::quota::QuotaChange;
use crate::rights::RightsChange;
use crate::route::StoreId;
use crate::store::{IndexPart, IndexRead, Loaded, ScanPage, StoreError, StoreWrite, Written};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// A wire format: the id of an encoding. The engine only compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format(pub u8);

/// A range of a format's turn log. Offsets count from the start of the process and never repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Span {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it contains no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Input of the engine. Messages of sessions go to [`crate::engine::Shard::message`] instead, because they may have to wait.
#[derive(Debug)]
pub enum Input {
    /// A connection was handed over; its peer sends the next message.
    Opened {
        /// Its index is free, its generation new.
        session: SessionId,
        /// The format of messages to it, until [`crate::engine::Shard::set_format`] changes it.
        format: Format,
        /// Whether the session coalesces, and then its peer logs in at once. `None` if the peer introduces itself before.
        coalesces: Option<bool>,
    },
    /// A whole frame arrived that is not a valid message.
    Undecodable {
        /// The session.
        session: SessionId,
    },
    /// The next answer of a session that is not open is held back, because its address or user was recently closed for exceeding a limit.
    /// This is the answer to its challenge or login. Without effect on a session that is open, or that has had such an answer.
    Delay {
        /// The session.
        session: SessionId,
        /// When the session gets the answer.
        until: Instant,
        /// Whether the answer is a final refusal, after which the client does not connect again.
        refuse: bool,
    },
    /// Too much data waits for a session to read. If the session coalesces, publications skip it until it has read the waiting data. If it
    /// does not coalesce, this has no effect.
    Lagging {
        /// The session.
        session: SessionId,
    },
    /// The peer of a session that has not logged in requests that backends serve it. They decide about the login.
    Backed {
        /// The session.
        session: SessionId,
        /// The namespace, one of [`crate::settings::Settings::backend_namespaces`].
        namespace: Name,
        /// The details of its request, as JSON.
        handshake: Payload,
    },
    /// The peer ends a session, which [`Input::Closed`] follows.
    Left {
        /// The session.
        session: SessionId,
    },
    /// A session that lagged, or one that [`Effects::await_drained`] was called for, has read the data that waited for it.
    Drained {
        /// The session.
        session: SessionId,
    },
    /// The session has lost its transport and continues without one: messages to it wait until it is attached again. If that does not
    /// happen within [`crate::settings::Settings::detached_timeout`], the engine closes it.
    Detached {
        /// The session.
        session: SessionId,
    },
    /// A detached session has a transport again.
    Attached {
        /// The session.
        session: SessionId,
    },
    /// The session has ended; nothing more is sent to it.
    Closed {
        /// The session.
        session: SessionId,
    },
    /// A message that another shard has posted.
    Entry(Entry),
    /// An entry that a shard of another node has posted. An entry of an earlier life of that node is dropped.
    Linked {
        /// The shard that has posted it.
        from: Address,
        /// The birth of its node.
        birth: u64,
        /// The entry.
        entry: Entry,
    },
    /// A node is lost, with its shards and sessions. It follows all entries of the node that the shard is to handle.
    NodeLost {
        /// The number of the node.
        node: u16,
    },
    /// The store's answer to a request.
    Store(StoreCompletion),
    /// An authentication has ended.
    Auth(AuthCompletion),
    /// All interest changes up to this number are visible to all publishers.
    InterestVisible {
        /// As passed to [`Effects::interest`].
        up_to: u64,
    },
    /// A change of rights. The numbers count up for the whole cluster, and a shard gets the changes in their order. If the shard knows the
    /// change already, from another shard's marker, this has no effect. In a cluster a node passes each change to all its shards before an
    /// entry of another node with its marker. [`crate::engine::Shard::settled`] returns the number up to which changes are done.
    Rights {
        /// Its number, from 1 on.
        number: u64,
        /// The change.
        change: RightsChange,
    },
    /// The deadline given by [`crate::engine::Shard::next_deadline`] may have been reached.
    DeadlineReached,
    /// Afterwards the engine refuses new calls; everything else continues.
    Drain,
}

/// Whether the engine has taken a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// It has; the next message may come.
    Taken,
    /// The message has to wait. The driver must hold back the session's later messages, and pass the same message again after
    /// [`Effects::resume`].
    Wait,
}

/// A shard has its first, or has lost its last, subscriber of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestChange {
    /// Kind of name.
    pub topic: InterestTopic,
    /// The name.
    pub name: Name,
    /// Whether this shard wants publications of it.
    pub wanted: bool,
}

/// A request to a store's thread. Answers may come in any order. A shard has at most one commit of records and one commit of histories in
/// flight at each store.
#[derive(Debug)]
pub enum StoreRequest {
    /// Reads records.
    Load {
        /// The store that has them.
        store: StoreId,
        /// The names of the records.
        names: Vec<Name>,
    },
    /// Reads records whose names begin with a prefix, in byte order of their names.
    Scan {
        /// The store that has them.
        store: StoreId,
        /// The number that the completion repeats.
        number: u64,
        /// The prefix.
        prefix: Name,
        /// The last name of the page before.
        after: Option<Name>,
        /// At most this many.
        count_max: usize,
    },
    /// Reads these records for a query. Its answer is that of `Scan`.
    Find {
        /// The store that has them.
        store: StoreId,
        /// The number that the completion repeats.
        number: u64,
        /// The names, in the order of the answer.
        names: Vec<Name>,
    },
    /// Reads entries of an index.
    Index {
        /// The store that has it.
        store: StoreId,
        /// The number that the completion repeats.
        number: u64,
        /// The part of the index.
        read: IndexRead,
    },
    /// Makes writes durable.
    Commit {
        /// The store.
        store: StoreId,
        /// The number that the completion repeats.
        batch: u64,
        /// Each name at most once. The shard keeps the writes until the store has answered, and may have to send them again.
        writes: Arc<[StoreWrite]>,
    },
}

/// A message of a store to a shard.
#[derive(Debug)]
pub enum StoreCompletion {
    /// The answer to `Load`.
    Loaded {
        /// One answer for each name.
        records: Vec<(Name, Result<Loaded, StoreError>)>,
    },
    /// A part of the answer to `Index`. It sees every commit that was answered before the request.
    Indexed {
        /// As in the request.
        number: u64,
        /// Entries. An error is the last part.
        part: Result<IndexPart, StoreError>,
    },
    /// The answer to `Scan` and `Find`. It sees every commit that was answered before the request.
    Scanned {
        /// As in the request.
        number: u64,
        /// The records.
        page: Result<ScanPage, StoreError>,
    },
    /// The answer to `Commit`.
    Committed {
        /// The store that answers.
        store: StoreId,
        /// As in the request.
        batch: u64,
        /// The outcome of each write, in the order of the writes. After an error no outcome is certain, and the batch is sent again.
        result: Result<Vec<Written>, StoreError>,
    },
    /// The default store has rows of these events' histories that may be too old. Sent to any shard, without a request.
    OldHistories(Vec<Name>),
    /// The amount that a store may still take has changed. Sent to all shards, without a request.
    Quota {
        /// The store.
        store: StoreId,
        /// The change.
        change: QuotaChange,
    },
}

/// A request for an authentication.
#[derive(Debug)]
pub struct AuthRequest {
    /// The session that logs in. The driver adds what it knows of the connection.
    pub session: SessionId,
    /// The object given to `login()`: a JSON object or array.
    pub data: Payload,
}

/// The end of an authentication.
#[derive(Debug)]
pub struct AuthCompletion {
    /// The session that logs in.
    pub session: SessionId,
    /// The outcome.
    pub outcome: AuthOutcome,
}

/// The answer of the auth chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The login is accepted.
    Accepted(Arc<Principal>),
    /// The login is refused; another attempt may follow.
    Refused {
        /// The reason for the client, as JSON.
        client_data: Option<Payload>,
    },
    /// These credentials are refused for good, for example because they were revoked. The answer is final: the client does not connect
    /// again after it.
    Barred {
        /// The reason for the client, as JSON.
        client_data: Option<Payload>,
    },
    /// The login can't be decided now, because a server that the decision needs is down. The session waits
    /// [`crate::settings::Settings::auth_retry_delay`] and is then closed without an answer. The client then reconnects by itself and tries
    /// the same credentials again. It would take a refusal as final.
    Unavailable,
}

/// Why the engine ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A login that can't be decoded.
    InvalidLogin,
    /// Too many refused logins.
    TooManyAuthAttempts,
    /// The login's credentials are no longer valid.
    Barred,
    /// The auth chain could not decide whether to accept the login.
    AuthUnavailable,
    /// Its login has expired. The engine has forgotten the session, so pending messages are not sent.
    Expired,
    /// Its login was revoked. As after an expiry, pending messages are not sent.
    Revoked,
    /// No login within the time allowed.
    AuthenticationTimeout,
    /// Nothing was received for the time of heartbeats, or a ping was not answered.
    Silent,
    /// Refused for good: its address or user was closed too often for exceeding a limit.
    Refused,
    /// It has missed changes of a record that can't be read now, or too many events waited for a rule, so it must start again.
    NotCaughtUp,
    /// It was without a transport for too long.
    DetachedTooLong,
    /// Its user has logged out, and the auth chain accepts no login without credentials.
    LoggedOut,
    /// No backend has served it for too long.
    NoBackend,
    /// Its backend ends it. The connection and its other sessions continue.
    Dismissed,
    /// Its backend ends its connection.
    Disconnected,
}

/// The data of the message to a client whose login has expired, as JSON.
pub const LOGIN_EXPIRED: &str = r#"{"code":"LOGIN_EXPIRED","error":"the login has expired"}"#;

/// The data of the message to a client whose login was revoked, as JSON.
pub const LOGIN_REVOKED: &str = r#"{"code":"LOGIN_REVOKED","error":"the login was revoked"}"#;

impl CloseReason {
    /// Whether the session must not get its pending messages, because the engine has forgotten the session.
    #[must_use]
    pub fn forfeits(self) -> bool {
        matches!(self, Self::Expired | Self::Revoked)
    }

    /// The last messages to a peer whose session the engine has already forgotten. After an expired login there are no such messages:
    /// a client that keeps a login for the next connection would take a refusal for its answer. The client reconnects at once, and gets
    /// the refusal then.
    #[must_use]
    pub fn close_messages(self) -> &'static [Message<'static>] {
        const REVOKED: [Message<'static>; 2] = [
            Message::Auth(Auth::Unsuccessful {
                data: Some(LOGIN_REVOKED),
            }),
            Message::Auth(Auth::TooManyAttempts),
        ];
        match self {
            Self::Revoked => &REVOKED,
            _ => &[],
        }
    }
}

/// The effects that the engine requests from its driver.
pub trait Effects {
    /// Encodes `message` once at the end of the format's turn log, and returns its range there.
    fn append(&mut self, format: Format, message: &Message<'_>) -> Span;
    /// The cost of compressing messages since the last call, in bytes that plain encoding would touch.
    fn take_compressed_bytes(&mut self) -> usize {
        0
    }
    /// Puts `entry` into another shard's mailbox. Never called with the shard's own address.
    fn post(&mut self, to: Address, entry: Entry);
    /// Posts an entry about a name to every **other** shard whose interest in it is visible. `entry` makes it, and is not called if there
    /// is no such shard.
    /// For events this includes the shards with interest in a pattern that matches the name.
    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry);
    /// Calls `visit` with every **other** shard whose interest in a pattern that matches the event is visible.
    fn visit_pattern_shards(&self, event: &str, visit: impl FnMut(Address));
    /// Changes this shard's interest. Numbers count up by one; [`Input::InterestVisible`] confirms them.
    fn interest(&mut self, number: u64, change: InterestChange);
    /// Sends a request to a store.
    fn store(&mut self, request: StoreRequest);
    /// Sends a request to the auth chain.
    fn authenticate(&mut self, request: AuthRequest);
    /// Ends the session after the messages that were already decided for it are sent. [`Input::Closed`] must follow, or
    /// [`Input::Detached`] if its transport was only silent.
    fn close(&mut self, session: SessionId, reason: CloseReason);
    /// The driver may pass the message that had to wait again.
    fn resume(&mut self, session: SessionId);
    /// [`Input::Drained`] must follow as soon as little data waits for the session, even if that is so already.
    fn await_drained(&mut self, session: SessionId);
}
