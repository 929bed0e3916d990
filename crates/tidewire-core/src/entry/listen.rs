//! Listening: registrations of providers, offers of names and their answers.

use std::sync::Arc;

use super::PendingReplyId;
use crate::address::{Address, SessionId};
use crate::listen_pattern::ListenPattern;
use crate::message::Topic;
use crate::principal::Principal;
use crate::text::Name;

/// Messages about listening, between shards.
#[derive(Clone, Debug)]
pub enum Listening {
    /// A provider has registered a pattern; to all shards.
    Add {
        /// Events or records.
        topic: Topic,
        /// The pattern. The shards of a node share the compiled form; another node compiles the text once.
        pattern: ListenPattern,
        /// The session that listens.
        provider: SessionId,
        /// Its principal: a name is offered if the rules allow this principal to listen for it.
        principal: Arc<Principal>,
        /// The pending reply that waits until all shards know it. `None` if the shard learns a pattern that others know.
        reply: Option<PendingReplyId>,
    },
    /// A provider takes a pattern back; to all shards.
    Remove {
        /// Events or records.
        topic: Topic,
        /// The pattern.
        pattern: Name,
        /// The session that listened.
        provider: SessionId,
        /// The pending reply that waits until all shards know it, and so have sent their last message about it; `None` if the right to
        /// listen was lost.
        reply: Option<PendingReplyId>,
    },
    /// A session with patterns has another principal; to all shards.
    Renewed {
        /// The session.
        provider: SessionId,
        /// The principal with which it listens now.
        principal: Arc<Principal>,
    },
    /// A provider answers; to the name's owner.
    Answered {
        /// Events or records.
        topic: Topic,
        /// The provider's pattern.
        pattern: Name,
        /// The name.
        name: Name,
        /// The provider that answers.
        provider: SessionId,
        /// Whether it will provide the name.
        accepted: bool,
    },
    /// An owner has its first pattern of events, so it needs to know which of its events have subscribers on each shard, now and later; to
    /// all shards. An owner without patterns does not need these reports.
    Census {
        /// The owner.
        owner: Address,
        /// Counts the owner's censuses. Messages of an earlier census are ignored.
        round: u64,
    },
    /// An owner no longer has a pattern of events; to all shards.
    CensusEnded {
        /// The owner.
        owner: Address,
    },
    /// A part of a shard's answer to a census: events of the owner with subscribers there. It may repeat events that the shard has reported
    /// since the census began.
    Present {
        /// The number of the census.
        round: u64,
        /// The shard.
        shard: Address,
        /// The events.
        names: Vec<Name>,
    },
    /// A shard has its first, or lost its last, subscriber of an event; to the name's owner.
    Interest {
        /// The number of the census.
        round: u64,
        /// The shard.
        shard: Address,
        /// The event.
        name: Name,
        /// Whether the shard has subscribers now.
        wanted: bool,
    },
}

/// A notice to a listening provider about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenNotice {
    /// The name has a subscriber, and the provider has to answer whether it provides the name.
    Found,
    /// The name has no subscribers any longer, or the provider may no longer provide it.
    Removed,
    /// The provider did not answer in time.
    TimedOut,
}
