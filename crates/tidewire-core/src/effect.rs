//! The border of the engine: its inputs, and the effects that it asks of the world.
//!
//! Whoever drives a shard (the server's conductor, the simulation, a fuzzer) implements [`Effects`] and calls
//! [`crate::engine::Shard::handle`]. Effects are taken in the order in which they are emitted.

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

    /// Whether nothing lies in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// What comes in. Messages of sessions are given to [`crate::engine::Shard::message`] instead, because they may
/// have to wait.
#[derive(Debug)]
pub enum Input {
    /// A connection was handed over; its peer speaks next.
    Opened {
        /// Its index is free, its generation new.
        session: SessionId,
        /// How to encode for it, until [`crate::engine::Shard::set_format`] says otherwise.
        format: Format,
    },
    /// A whole frame arrived that is no message.
    Undecodable {
        /// Whose.
        session: SessionId,
    },
    /// The next answer of a session that is not open is held back, because its address or user was closed for a limit
    /// lately: the answer to its challenge or, while its login is being decided, to that. Without effect in other
    /// phases.
    Delay {
        /// Whose.
        session: SessionId,
        /// When it is answered.
        until: Instant,
        /// Whether the answer is a final no, after which a client of deepstream stays away.
        refuse: bool,
    },
    /// More waits for a session than it reads. One that coalesces is skipped by what is published, until it has
    /// read what waits; others notice nothing.
    Lagging {
        /// Whose.
        session: SessionId,
    },
    /// A session that lagged has read what waited for it; so has one that [`Effects::await_drained`] asked about.
    Drained {
        /// Whose.
        session: SessionId,
    },
    /// The connection is gone; nothing more is sent to it.
    Closed {
        /// Whose.
        session: SessionId,
    },
    /// Another shard posted this.
    Entry(Entry),
    /// The store answers a request.
    Store(StoreCompletion),
    /// An authentication has ended.
    Auth(AuthCompletion),
    /// All interest changes up to this number are visible to whoever publishes.
    InterestVisible {
        /// As given with [`Effects::interest`].
        up_to: u64,
    },
    /// A change of rights. The numbers count up by one for the whole node; one that is known already, from another shard's
    /// marker, has no effect. [`crate::engine::Shard::settled`] says when it is done.
    Rights {
        /// Its number, from 1 on.
        number: u64,
        /// What changes.
        change: RightsChange,
    },
    /// The deadline given by [`crate::engine::Shard::next_deadline`] may have been reached.
    DeadlineReached,
    /// New work is refused from now on; what runs goes on.
    Drain,
}

/// Whether a message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// It was; the next one may come.
    Taken,
    /// It has to wait. The session's later messages must not be given; after [`Effects::resume`] the same message
    /// is given again.
    Wait,
}

/// Which kind of name interest is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InterestTopic {
    /// Subscribers of an event.
    Event,
    /// Those who watch one user.
    User,
    /// Those who watch all users; the name is empty.
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

/// What is published by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationRef<'a> {
    /// An event, with any JSON value or undefined.
    Event {
        /// The event.
        name: &'a str,
        /// Its data.
        data: Option<&'a str>,
        /// Where in a trace it stands, if it belongs to one.
        trace: Option<&'a Trace>,
    },
    /// For those who watch one user, or all users.
    User {
        /// Whether it goes to those who watch all users.
        everyone: bool,
        /// The user id.
        user: &'a str,
        /// Whether the user is online now.
        online: bool,
        /// Who is not told: the session with which the user has come.
        except: Option<SessionId>,
    },
}

impl PublicationRef<'_> {
    /// Under which kind of name and which name interest is looked up.
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
        /// Where in a trace it stands. Boxed, because nearly none has one.
        trace: Option<Box<Trace>>,
    },
    /// For those who watch one user, or all users.
    User {
        /// Whether it goes to those who watch all users.
        everyone: bool,
        /// The user id.
        user: Name,
        /// Whether the user is online now.
        online: bool,
        /// Who is not told: the session with which the user has come.
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

/// A request to a store's thread. Answers may come in any order; a shard has at most one commit of records and one of
/// histories under way at each store.
#[derive(Debug)]
pub enum StoreRequest {
    /// Finds records.
    Load {
        /// Which store has them.
        store: StoreId,
        /// Which.
        names: Vec<Name>,
    },
    /// Makes writes durable.
    Commit {
        /// In which store.
        store: StoreId,
        /// Comes back in the completion.
        batch: u64,
        /// Each name once. Whoever asks keeps them until they are answered, and may have to ask again.
        writes: Arc<[StoreWrite]>,
    },
}

/// The store's answer.
#[derive(Debug)]
pub enum StoreCompletion {
    /// To `Load`.
    Loaded {
        /// One answer for each name.
        records: Vec<(Name, Result<Loaded, StoreError>)>,
    },
    /// To `Commit`.
    Committed {
        /// Which store answers.
        store: StoreId,
        /// As in the request.
        batch: u64,
        /// What became of each write, in their order. Nothing may be relied on after an error; the batch is sent again.
        result: Result<Vec<Written>, StoreError>,
    },
    /// The default store has rows of these events' histories that may be too old; unasked, to any shard.
    OldHistories(Vec<Name>),
    /// What a store may still take has changed; unasked, to all shards.
    Quota {
        /// Which store.
        store: StoreId,
        /// What has changed.
        change: QuotaChange,
    },
}

/// Asks for an authentication.
#[derive(Debug)]
pub struct AuthRequest {
    /// Who wants in. The driver adds what it knows of the connection.
    pub session: SessionId,
    /// The object given to `login()`: a JSON object or array.
    pub data: Payload,
}

/// How an authentication ended.
#[derive(Debug)]
pub struct AuthCompletion {
    /// Who wanted in.
    pub session: SessionId,
    /// How it ended.
    pub outcome: AuthOutcome,
}

/// The answer of the auth chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// Let in.
    Accepted(Arc<Principal>),
    /// Kept out; another attempt may follow.
    Refused {
        /// The reason for the client, as JSON.
        client_data: Option<Payload>,
    },
    /// Kept out for good with these credentials, as when they were revoked: the answer is final, a client of deepstream
    /// stays away after it.
    Barred {
        /// The reason for the client, as JSON.
        client_data: Option<Payload>,
    },
    /// Nobody can say now, because a server that has to be asked is down. The session waits
    /// [`crate::settings::Settings::auth_retry_delay`] and is then closed without an answer, after which a client of
    /// deepstream comes back by itself and tries the same credentials again; a refusal it would take for the last word.
    Unavailable,
}

/// What somebody has logged in with, by the id under which it can be revoked.
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
    /// The key of the admin page, by the id of what its holder has opened with it. See [`Principal::is_operator`].
    Operator(Name),
}

/// The identified peer, as permission sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user id. `OPEN` stays invisible to presence.
    pub user_id: Name,
    /// [`NEVER`] for most.
    expires_at: WallTime,
    /// Boxed, because many have none and each session pays for its own principal.
    data: Option<Box<PrincipalData>>,
}

/// The expiry of who has none.
const NEVER: WallTime = WallTime(u64::MAX);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PrincipalData {
    server: Option<Payload>,
    client: Option<Payload>,
    credential: Option<Credential>,
}

impl Principal {
    /// A user of whom nothing is known but the id.
    #[must_use]
    pub fn new(user_id: Name) -> Self {
        Self {
            user_id,
            expires_at: NEVER,
            data: None,
        }
    }

    /// With what the auth handler says of the user to rules (`server`) and to the client, as JSON.
    #[must_use]
    pub fn with_data(mut self, server: Option<Payload>, client: Option<Payload>) -> Self {
        let data = self.data.get_or_insert_default();
        (data.server, data.client) = (server, client);
        self
    }

    /// With the moment at which its login expires: its session ends then, unless it was renewed.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: WallTime) -> Self {
        self.expires_at = expires_at;
        self
    }

    /// With what it has logged in with.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.data.get_or_insert_default().credential = Some(credential);
        self
    }

    /// When it ends; never if absent.
    #[must_use]
    pub fn expires_at(&self) -> Option<WallTime> {
        Some(self.expires_at).filter(|expires_at| *expires_at != NEVER)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_expired(&self, now: WallTime) -> bool {
        self.expires_at()
            .is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether rules can't tell them apart.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.user_id == other.user_id
            && self.server_data() == other.server_data()
            && self.client_data() == other.client_data()
    }

    /// What it has logged in with, if that can be revoked by an id of its own.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.data.as_ref()?.credential.as_ref()
    }

    /// Whether it is whoever runs the server, with the key of the admin page: presence does not count it, and what it may do is not
    /// the rules' to say.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        matches!(self.credential(), Some(Credential::Operator(_)))
    }

    /// What the auth handler says of the user to rules, as JSON.
    #[must_use]
    pub fn server_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.server.as_ref()
    }

    /// What the auth handler says to the client, as JSON; absent is not the same as `null`.
    #[must_use]
    pub fn client_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.client.as_ref()
    }
}

/// Why the engine ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A login that can't be read.
    InvalidLogin,
    /// Too many refused logins.
    TooManyAuthAttempts,
    /// The login's credentials are no longer valid.
    Barred,
    /// Nobody could say whether to let it in.
    AuthUnavailable,
    /// Its login has expired. The engine knows the session no more: what it was owed is not sent.
    Expired,
    /// Its login was revoked. As with one that has expired, what it was owed is not sent.
    Revoked,
    /// No login within the time allowed.
    AuthenticationTimeout,
    /// Nothing was heard for two heartbeat intervals.
    Silent,
    /// Refused for good: its address or user was closed for a limit too often.
    Refused,
    /// It has missed changes of a record that can't be read now, so it must begin anew.
    NotCaughtUp,
}

/// What a client is told of a login that has expired, as JSON.
pub const LOGIN_EXPIRED: &str = r#"{"code":"LOGIN_EXPIRED","error":"the login has expired"}"#;

/// What a client is told of a login that was revoked, as JSON.
pub const LOGIN_REVOKED: &str = r#"{"code":"LOGIN_REVOKED","error":"the login was revoked"}"#;

impl CloseReason {
    /// Whether the session must not get what it was owed: the engine knows it no more.
    #[must_use]
    pub fn forfeits(self) -> bool {
        matches!(self, Self::Expired | Self::Revoked)
    }

    /// The last messages to the peer, where the engine has already forgotten the session. None when its login has
    /// expired: `@deepstream/client` would take a refusal for the answer to a `login()` that it keeps for the next
    /// connection, and it comes back at once and gets the refusal then.
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

/// What the engine wants from the world.
pub trait Effects {
    /// Encodes `message` once at the end of the format's turn log and says where it lies.
    fn append(&mut self, format: Format, message: &Message<'_>) -> Span;
    /// What compressing messages has cost since the last call, in bytes that plain encoding would touch.
    fn take_compressed_bytes(&mut self) -> usize {
        0
    }
    /// Puts `entry` into another shard's mailbox. Never called with the own address.
    fn post(&mut self, to: Address, entry: Entry);
    /// Posts the publication, as [`Entry::Publication`], to every **other** shard whose interest is visible.
    fn publish(&mut self, publication: PublicationRef<'_>);
    /// Changes this shard's interest. Numbers count up by one; [`Input::InterestVisible`] confirms.
    fn interest(&mut self, number: u64, change: InterestChange);
    /// Asks the store.
    fn store(&mut self, request: StoreRequest);
    /// Asks the auth chain.
    fn authenticate(&mut self, request: AuthRequest);
    /// Ends the connection once everything already decided for it was sent. [`Input::Closed`] must follow.
    fn close(&mut self, session: SessionId, reason: CloseReason);
    /// The message that had to wait may be given again.
    fn resume(&mut self, session: SessionId);
    /// [`Input::Drained`] must follow as soon as little waits for the session, also if that is so already.
    fn await_drained(&mut self, session: SessionId);
}
