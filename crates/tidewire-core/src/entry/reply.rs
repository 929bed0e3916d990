//! Replies that wait for parts from several owners.

use std::num::NonZeroU64;

use super::RecordRefusal;
use crate::address::Address;
use crate::message::{EventBulk, PresenceAction, RecordBulk, Topic};
use crate::text::Name;

/// A reply that waits for parts from several owners, with the number that its shard gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReplyId {
    /// The shard that sends the reply.
    pub address: Address,
    /// The name of a bulk message of records that this part is about, as its index in the message. 0 for all other parts.
    pub index: u32,
    /// The number of the reply at that shard. It is not zero, so an optional id is not larger.
    pub number: NonZeroU64,
}

/// The content of one part of a pending reply.
#[derive(Clone, Debug)]
pub enum ReplyPart {
    /// The part is done.
    Done,
    /// Users that are online.
    Users(Vec<Name>),
}

/// A bulk action of records whose names are not all done.
#[derive(Clone, Debug)]
pub(crate) struct BulkReply {
    pub(crate) action: RecordBulk,
    /// The names that some acknowledgements echo.
    pub(crate) names: Vec<Name>,
    pub(crate) correlation: Option<Box<str>>,
    /// Whether a name was allowed.
    pub(crate) allowed: bool,
    /// Whether the acknowledgement comes last. Actions that read are acknowledged first.
    pub(crate) acknowledges: bool,
    /// The names that rules have denied, with their indexes. They are sent together, because the order in which owners decide depends on
    /// which records exist and are in memory.
    pub(crate) denied: Vec<(u32, Name, RecordRefusal)>,
    /// Whether all names are done, and `denied` is sorted: the last index first.
    pub(crate) is_sorted: bool,
    /// The pending reply of the whole message, if these names are a piece of it.
    pub(crate) whole: Option<PendingReplyId>,
}

/// The action when the last part of a pending reply has arrived.
#[derive(Clone, Debug)]
pub(crate) enum ReplyAction {
    /// Answers a login whose session the owner of its user has counted.
    Login,
    /// Sends the denials of a bulk action of records, and acknowledges it unless every name was refused.
    Record(BulkReply),
    /// Acknowledges subscriptions to events or users that are not all made at the same time.
    Ack(DelayedAck),
    /// Acknowledges a new pattern.
    Listen { topic: Topic, pattern: Name },
    /// Acknowledges that a pattern was taken back.
    Unlisten { topic: Topic, pattern: Name },
    /// Acknowledges registrations, or their end.
    Provide {
        provide: bool,
        correlation: Option<Box<str>>,
    },
    /// Answers which users are online.
    Presence {
        action: PresenceAction,
        correlation: Option<Box<str>>,
        asked: Vec<Name>,
        online: Vec<Name>,
    },
}

impl ReplyAction {
    /// Adds the names of a later piece of the same message.
    pub(crate) fn add_names(&mut self, later: Self) {
        match (self, later) {
            (Self::Record(records), Self::Record(later)) => records.names.extend(later.names),
            (Self::Presence { asked, .. }, Self::Presence { asked: later, .. }) => {
                asked.extend(later);
            }
            _ => {}
        }
    }
}

/// An acknowledgement that is held back until the interest is visible to publishers.
#[derive(Clone, Debug)]
pub(crate) enum DelayedAck {
    Event {
        action: EventBulk,
        correlation: Option<Box<str>>,
    },
    Presence {
        action: PresenceAction,
        correlation: Option<Box<str>>,
    },
    /// It is one part of a larger reply.
    Part(PendingReplyId),
}
