//! Presence in scopes: entries between the shards of sessions and the owners of scopes.

use crate::address::{Address, SessionId};
use crate::text::{Name, Payload};

/// Messages about the members of scopes, between shards.
#[derive(Clone, Debug)]
pub enum ScopeEntry {
    /// To the owner: the session is a member with this state.
    Join {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
        /// The user id of the session.
        user: Name,
        /// The state.
        state: Payload,
        /// Whether the session is a member already, so that the limit of members does not apply.
        is_member: bool,
    },
    /// To the owner: the member has a new state.
    Update {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
        /// The state.
        state: Payload,
    },
    /// To the owner: the session is no longer a member.
    Leave {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
    },
    /// To the owner: the session needs the list of members and its changes.
    Subscribe {
        /// The session.
        session: SessionId,
        /// Distinguishes the subscriptions of a shard.
        serial: u32,
        /// The scope.
        scope: Name,
    },
    /// To the owner: the subscription has ended.
    Release {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
    },
    /// To the session's shard: the session is a member.
    Joined {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
    },
    /// To the session's shard: the scope has too many members.
    Full {
        /// The session.
        session: SessionId,
        /// The scope.
        scope: Name,
    },
    /// To a subscriber's shard: all members. Their changes follow.
    Snapshot {
        /// The session.
        session: SessionId,
        /// As in `Subscribe`.
        serial: u32,
        /// The owner.
        owner: Address,
        /// The scope.
        scope: Name,
        /// A JSON object.
        data: Payload,
    },
    /// To each shard with subscribers that have the list: changes of the members.
    Changed {
        /// The owner.
        owner: Address,
        /// The scope.
        scope: Name,
        /// A JSON array.
        data: Payload,
    },
}

impl ScopeEntry {
    /// Whether it goes to the owner of the scope, else to the shard of a session.
    pub(crate) fn is_for_owner(&self) -> bool {
        match self {
            Self::Join { .. }
            | Self::Update { .. }
            | Self::Leave { .. }
            | Self::Subscribe { .. }
            | Self::Release { .. } => true,
            Self::Joined { .. }
            | Self::Full { .. }
            | Self::Snapshot { .. }
            | Self::Changed { .. } => false,
        }
    }
}
