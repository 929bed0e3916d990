//! The change of a view: the rounds by which names pass to their next owners.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::message::Tag;
use crate::principal::Principal;
use crate::text::Name;
use crate::view::View;

/// Messages of the change of a view, between all shards of its members. Each shard posts one of each kind to every shard of a view, itself
/// included, in this order. A shard ignores the messages of a view that it does not adopt.
#[derive(Clone, Debug)]
pub enum ViewEntry {
    /// The sender has adopted the view: no later entry of it follows an earlier view.
    Marker {
        /// The sender.
        from: Address,
        /// The number of the view.
        view: View,
        /// The slots whose names the sender has posted to another shard since it last announced what its sessions have, and that are those
        /// of their former owner again. An owner that still holds them lets go of them.
        returned: Vec<u16>,
    },
    /// The sender has committed everything that it had of these slots, and has let go of them. Its last effects are posted before.
    Closed {
        /// The sender.
        from: Address,
        /// The number of the view.
        view: View,
        /// The slots, of which the sender held the names that belong to its shard.
        slots: Vec<u16>,
    },
    /// All shards have let go of their slots, the sender has received all their effects, and has announced what its sessions have of the
    /// names.
    Passed {
        /// The sender.
        from: Address,
        /// The number of the view.
        view: View,
    },
    /// To the next owner of records: a session's subscriptions that the former owner had granted. It precedes `Passed`.
    Records {
        /// The session.
        session: SessionId,
        /// Its principal.
        principal: Arc<Principal>,
        /// The records.
        names: Vec<AnnouncedRecord>,
    },
    /// To the next owner of rpcs: the names that a session provides. It precedes `Passed`.
    Providers {
        /// The session.
        provider: SessionId,
        /// The rpcs.
        names: Vec<Name>,
    },
    /// To the next owner of users: those with sessions on a shard. It precedes `Passed`.
    Users {
        /// The shard.
        shard: Address,
        /// The users.
        users: Vec<AnnouncedUser>,
    },
}

/// A user whose owner has changed.
#[derive(Clone, Debug)]
pub struct AnnouncedUser {
    /// The user id.
    pub user: Name,
    /// The user's sessions on the shard that the former owner knew of.
    pub before: u32,
    /// The sessions now.
    pub count: u32,
}

/// A subscription to a record whose owner has changed.
#[derive(Clone, Debug)]
pub struct AnnouncedRecord {
    /// The record.
    pub name: Name,
    /// The serial of the subscription.
    pub serial: u32,
    /// The epoch with which it was granted. The owner ignores a subscription that it has granted itself.
    pub epoch: u64,
    /// The state of the record that the session has received; absent if it knows that the record does not exist.
    pub shown: Option<Tag>,
}

impl ViewEntry {
    /// The session that an announcement is about.
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::Records { session, .. } => Some(*session),
            Self::Providers { provider, .. } => Some(*provider),
            _ => None,
        }
    }

    /// The shard that has made an announcement.
    pub(crate) fn announcer(&self) -> Option<Address> {
        match self {
            Self::Users { shard, .. } => Some(*shard),
            _ => self.session().map(|session| session.address),
        }
    }
}
