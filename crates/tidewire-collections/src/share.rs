//! The user or session that a write is charged to, where users share a resource: the queue of a store, or the keys of repeated writes.

use tidewire_message::address::SessionId;
use tidewire_message::identity;
use tidewire_message::principal::Principal;
use tidewire_message::text::Name;

/// One user, or one session that has logged in without a name: all such sessions have the same user id, and must not share with each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Share {
    /// A user.
    User(Name),
    /// A session without a name.
    Session(SessionId),
    /// The server: writes that no client has just made.
    Server,
}

impl Share {
    /// The share of a session that has logged in as `principal`.
    pub fn of(session: SessionId, principal: &Principal) -> Self {
        match principal.user_id.eq_ignore_ascii_case(identity::NAMELESS) {
            true => Self::Session(session),
            false => Self::User(principal.user_id.clone()),
        }
    }

    /// The user, if it has a name.
    pub fn user(&self) -> Option<&Name> {
        match self {
            Self::User(user) => Some(user),
            Self::Session(_) | Self::Server => None,
        }
    }
}
