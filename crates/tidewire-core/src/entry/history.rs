//! Histories of events: requests to the owner, and its pages.

use super::PendingReplyId;
use crate::address::{Address, SessionId};
use crate::binary::EventPayload;
use crate::message::Position;
use crate::publication::OwnedPublication;
use crate::text::Name;

/// Messages about events with history, between their owner and other shards.
#[derive(Clone, Debug)]
pub enum HistoryEntry {
    /// To the owner: a session publishes an event.
    Publish {
        /// The event, without an offset.
        publication: OwnedPublication,
        /// The session that publishes, and does not get it.
        publisher: SessionId,
    },
    /// To the owner: a session requests the events after a position.
    Read(Box<HistoryRead>),
    /// To a publisher's shard: its event was refused, because too much data waits for the store.
    Refused {
        /// The session that published it.
        publisher: SessionId,
        /// The event.
        name: Name,
    },
    /// To the owner: one granted subscription of a shard has ended.
    Release {
        /// The event.
        name: Name,
        /// The shard that had it.
        shard: Address,
    },
    /// To the owner: the store has rows of the name that may be too old.
    Sweep(Name),
    /// To a shard with subscribers: an event was published.
    Published {
        /// The event, with its offset.
        publication: OwnedPublication,
        /// The session that published it, and does not get it.
        except: SessionId,
    },
    /// To a session's shard: the answer to `Read`.
    Page(Box<HistoryPage>),
}

/// A request for the events after a position.
#[derive(Clone, Debug)]
pub struct HistoryRead {
    /// The session that requests them.
    pub session: SessionId,
    /// The event.
    pub name: Name,
    /// The serial of the subscription.
    pub serial: u32,
    /// The position; if absent, the session requests only later events.
    pub after: Option<Position>,
    /// The bytes that the answer may have. A single event may have more.
    pub bytes_max: usize,
    /// The pending reply that waits for the answer.
    pub reply: Option<PendingReplyId>,
}

/// Some of the events of a name, in order.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// The session that requested them.
    pub session: SessionId,
    /// The event.
    pub name: Name,
    /// As in the request.
    pub serial: u32,
    /// Whether a position was given.
    pub is_resumed: bool,
    /// As in the request.
    pub reply: Option<PendingReplyId>,
    /// The position before the first of the events.
    pub before: Position,
    /// The events that are missing between the requested position and `before`.
    pub gap: Option<HistoryGap>,
    /// The payloads of the events.
    pub events: Vec<Option<EventPayload>>,
    /// Whether the page reaches the end and grants the subscription, which then gets everything that is published later.
    pub is_granted: bool,
}

/// Events that are no longer available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryGap {
    /// Their number, if it is known.
    pub missed: Option<u64>,
}

impl HistoryPage {
    /// The answer to a read whose owner is lost: only such a page has no event and does not grant the subscription.
    pub(crate) fn unavailable(read: &HistoryRead) -> Self {
        Self {
            session: read.session,
            name: read.name.clone(),
            serial: read.serial,
            is_resumed: read.after.is_some(),
            reply: read.reply,
            before: Position {
                epoch: 0,
                offset: 0,
            },
            gap: None,
            events: Vec::new(),
            is_granted: false,
        }
    }

    /// Whether the owner is lost.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.events.is_empty() && !self.is_granted
    }

    /// Approximate bytes that an event takes of a page: its name, its payload, and its fields and frame.
    pub(crate) fn event_bytes(name: &str, payload: Option<&EventPayload>) -> usize {
        const OVERHEAD_BYTES: usize = 32;
        name.len() + payload.map_or(0, EventPayload::size) + OVERHEAD_BYTES
    }
}
