//! The boundary of the engine: its inputs, and the effects that it requests.
//!
//! The driver of a shard (the server's conductor, the simulation, a fuzzer) implements [`Effects`] and calls
//! [`crate::engine::Shard::handle`]. Effects take place in the order in which they are emitted.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::entry::Entry;
use crate::message::{Auth, Message};
use crate::quota::QuotaChange;
use crate::rights::RightsChange;
use crate::route::StoreId;
use crate::store::{Loaded, StoreError, StoreWrite, Written};
use crate::text::{Name, Payload};
use crate::time::{Instant, WallTime};
use crate::trace::Trace;

/// A wire format: protocol, dialect and compression together. The engine only compares them.
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
    },
    /// A whole frame arrived that is not a valid message.
    Undecodable {
        /// The session.
        session: SessionId,
    },
    /// The next answer of a session that is not open is held back, because its address or user was recently closed for exceeding a limit.
    /// This is the answer to its challenge or, if its login is being decided, the answer to the login. Without effect in other phases.
    Delay {
        /// The session.
        session: SessionId,
        /// When the session gets the answer.
        until: Instant,
        /// Whether the answer is a final refusal, after which a deepstream client does not connect again.
        refuse: bool,
    },
    /// Too much data waits for a session to read. If the session coalesces, publications skip it until it has read the waiting data. If it
    /// does not coalesce, this has no effect.
    Lagging {
        /// The session.
        session: SessionId,
    },
    /// A session that lagged, or one that [`Effects::await_drained`] was called for, has read the data that waited for it.
    Drained {
        /// The session.
        session: SessionId,
    },
    /// The connection has ended; nothing more is sent to it.
    Closed {
        /// The session.
        session: SessionId,
    },
    /// A message that another shard has posted.
    Entry(Entry),
    /// The store's answer to a request.
    Store(StoreCompletion),
    /// An authentication has ended.
    Auth(AuthCompletion),
    /// All interest changes up to this number are visible to all publishers.
    InterestVisible {
        /// As passed to [`Effects::interest`].
        up_to: u64,
    },
    /// A change of rights. The numbers count up by one for the whole node. If the shard knows the change already, from another shard's
    /// marker, this has no effect. [`crate::engine::Shard::settled`] returns the number up to which changes are done.
    Rights {
        /// Its number, from 1 on.
        number: u64,
        /// The change.
        change: RightsChange,
    },
    /// The deadline given by [`crate::engine::Shard::next_deadline`] may have been reached.
    DeadlineReached,
    /// Afterwards the engine refuses new work; running work continues.
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

/// The kind of name that interest is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InterestTopic {
    /// Subscribers of an event.
    Event,
    /// Sessions that watch one user.
    User,
    /// Sessions that watch all users; the name is empty.
    Everyone,
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

/// A publication by name, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationRef<'a> {
    /// An event, with any JSON value or undefined.
    Event {
        /// The event.
        name: &'a str,
        /// Its data.
        data: Option<&'a str>,
        /// Its position in a trace, if it belongs to one.
        trace: Option<&'a Trace>,
    },
    /// A change of a user's presence, for the sessions that watch this user or all users.
    User {
        /// Whether it goes to the sessions that watch all users.
        everyone: bool,
        /// The user id.
        user: &'a str,
        /// Whether the user is online now.
        online: bool,
        /// The session with which the user came online, and which does not get the publication.
        except: Option<SessionId>,
    },
}

impl PublicationRef<'_> {
    /// The kind of name and the name by which interest is looked up.
    #[must_use]
    pub fn key(&self) -> (InterestTopic, &str) {
        match self {
            Self::Event { name, .. } => (InterestTopic::Event, name),
            Self::User {
                everyone: false,
                user,
                ..
            } => (InterestTopic::User, user),
            Self::User { everyone: true, .. } => (InterestTopic::Everyone, ""),
        }
    }

    /// A copy that lives longer than the turn.
    #[must_use]
    pub fn to_owned(&self) -> Publication {
        match *self {
            Self::Event { name, data, trace } => Publication::Event {
                name: name.into(),
                data: data.map(Payload::from_checked),
                trace: trace.copied().map(Box::new),
            },
            Self::User {
                everyone,
                user,
                online,
                except,
            } => Publication::User {
                everyone,
                user: user.into(),
                online,
                except,
            },
        }
    }
}

/// A publication on its way to another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// An event.
    Event {
        /// The event.
        name: Name,
        /// Its data.
        data: Option<Payload>,
        /// Its position in a trace. Boxed, because nearly no event has one.
        trace: Option<Box<Trace>>,
    },
    /// A change of a user's presence, for the sessions that watch this user or all users.
    User {
        /// Whether it goes to the sessions that watch all users.
        everyone: bool,
        /// The user id.
        user: Name,
        /// Whether the user is online now.
        online: bool,
        /// The session with which the user came online, and which does not get the publication.
        except: Option<SessionId>,
    },
}

impl Publication {
    /// The same, borrowed.
    #[must_use]
    pub fn as_borrowed(&self) -> PublicationRef<'_> {
        match self {
            Self::Event { name, data, trace } => PublicationRef::Event {
                name,
                data: data.as_ref().map(Payload::as_str),
                trace: trace.as_deref(),
            },
            Self::User {
                everyone,
                user,
                online,
                except,
            } => PublicationRef::User {
                everyone: *everyone,
                user,
                online: *online,
                except: *except,
            },
        }
    }
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
    /// These credentials are refused for good, for example because they were revoked. The answer is final: a deepstream client does not
    /// connect again after it.
    Barred {
        /// The reason for the client, as JSON.
        client_data: Option<Payload>,
    },
    /// The login can't be decided now, because a server that the decision needs is down. The session waits
    /// [`crate::settings::Settings::auth_retry_delay`] and is then closed without an answer. A deepstream client then reconnects by itself
    /// and tries the same credentials again. It would take a refusal as final.
    Unavailable,
}

/// The credential of a login, by the id under which it can be revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// A token, by its own id (`jti`).
    Token(Name),
    /// A key of a back end, by its id.
    Key(Name),
    /// A client certificate, by its serial number.
    Certificate(Name),
    /// A password of a stored user, by the id that each password gets.
    Password(Name),
    /// The key of the admin page, by the id of the page session that its holder has opened. See [`Principal::is_operator`].
    Operator(Name),
}

/// The identified peer, as permission sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user id. Presence never shows the id `OPEN`.
    pub user_id: Name,
    /// [`NEVER`] for most principals.
    expires_at: WallTime,
    /// Boxed, because many have none and each session pays for its own principal.
    data: Option<Box<PrincipalData>>,
}

/// The expiry of a login that does not expire.
const NEVER: WallTime = WallTime(u64::MAX);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PrincipalData {
    server: Option<Payload>,
    client: Option<Payload>,
    credential: Option<Credential>,
}

impl Principal {
    /// A user with an id and no other data.
    #[must_use]
    pub fn new(user_id: Name) -> Self {
        Self {
            user_id,
            expires_at: NEVER,
            data: None,
        }
    }

    /// Adds the auth handler's data about the user: for rules (`server`) and for the client, as JSON.
    #[must_use]
    pub fn with_data(mut self, server: Option<Payload>, client: Option<Payload>) -> Self {
        let data = self.data.get_or_insert_default();
        (data.server, data.client) = (server, client);
        self
    }

    /// Adds the time at which the login expires. The session ends at that time, unless its login was renewed.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: WallTime) -> Self {
        self.expires_at = expires_at;
        self
    }

    /// Adds the credential of the login.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.data.get_or_insert_default().credential = Some(credential);
        self
    }

    /// When the login expires; never if absent.
    #[must_use]
    pub fn expires_at(&self) -> Option<WallTime> {
        Some(self.expires_at).filter(|expires_at| *expires_at != NEVER)
    }

    /// Whether the login has expired.
    #[must_use]
    pub fn is_expired(&self, now: WallTime) -> bool {
        self.expires_at()
            .is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether rules can't distinguish the two.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.user_id == other.user_id
            && self.server_data() == other.server_data()
            && self.client_data() == other.client_data()
    }

    /// The credential of the login, if it can be revoked by its own id.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.data.as_ref()?.credential.as_ref()
    }

    /// Whether it is the operator of the server, who has logged in with the key of the admin page. Presence does not count the operator,
    /// and the rules do not decide the operator's rights.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        matches!(self.credential(), Some(Credential::Operator(_)))
    }

    /// The auth handler's data about the user for rules, as JSON.
    #[must_use]
    pub fn server_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.server.as_ref()
    }

    /// The auth handler's data for the client, as JSON; absent is not the same as `null`.
    #[must_use]
    pub fn client_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.client.as_ref()
    }
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
    /// Nothing was received for two heartbeat intervals.
    Silent,
    /// Refused for good: its address or user was closed too often for exceeding a limit.
    Refused,
    /// It has missed changes of a record that can't be read now, so it must start again.
    NotCaughtUp,
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
    /// `@deepstream/client` would take a refusal for the answer to a `login()` that it keeps for the next connection. It reconnects at
    /// once, and gets the refusal then.
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
    /// Posts the publication, as [`Entry::Publication`], to every **other** shard whose interest is visible.
    fn publish(&mut self, publication: PublicationRef<'_>);
    /// Changes this shard's interest. Numbers count up by one; [`Input::InterestVisible`] confirms them.
    fn interest(&mut self, number: u64, change: InterestChange);
    /// Sends a request to a store.
    fn store(&mut self, request: StoreRequest);
    /// Sends a request to the auth chain.
    fn authenticate(&mut self, request: AuthRequest);
    /// Ends the connection after the messages that were already decided for it are sent. [`Input::Closed`] must follow.
    fn close(&mut self, session: SessionId, reason: CloseReason);
    /// The driver may pass the message that had to wait again.
    fn resume(&mut self, session: SessionId);
    /// [`Input::Drained`] must follow as soon as little data waits for the session, even if that is so already.
    fn await_drained(&mut self, session: SessionId);
}
