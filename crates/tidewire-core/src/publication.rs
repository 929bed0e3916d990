//! Publications: events and changes of presence, on their way to the sessions that want them.

use crate::address::SessionId;
use crate::text::{Name, Payload};
use crate::trace::Trace;

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
