//! Messages of events.

use super::{Correlation, Listen, Names, Publication, Refusal};

/// Messages of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// From a client: it publishes; from the server: a publication of another client.
    Publication(Publication<'a>),
    /// From a client: it publishes, to be acknowledged.
    Publish {
        /// The publication.
        publication: Publication<'a>,
        /// For the ack.
        correlation: &'a str,
    },
    /// Bulk subscribe, to be acknowledged.
    Subscribe {
        /// The events.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
        /// The events whose beginning the peer requests, each with the position up to which the peer has it, if any. Empty if the peer
        /// does not know offsets.
        positions: Vec<(&'a str, Option<Position>)>,
    },
    /// What follows of an event with history begins behind this position. Only for peers that have asked.
    Position {
        /// The event.
        name: &'a str,
        /// Where.
        position: Position,
    },
    /// A peer that came back can't be given all that it missed. Only for peers that have asked.
    HistoryGap {
        /// The event.
        name: &'a str,
        /// How many are missing, at most [`GAP_MAX`], if that is known.
        missed: Option<u32>,
        /// The position of the first event that follows; none if the event has no history.
        first: Option<Position>,
    },
    /// Bulk unsubscribe, to be acknowledged.
    Unsubscribe {
        /// The events.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Bulk subscribe to all events whose names match patterns, to be acknowledged.
    SubscribePatterns {
        /// The patterns, see [`crate::event_pattern`].
        patterns: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Bulk unsubscribe from patterns, to be acknowledged.
    UnsubscribePatterns {
        /// The patterns.
        patterns: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges a bulk message.
    Ack {
        /// Which of the bulk actions.
        action: EventBulk,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Listening; the vocabulary is shared with records.
    Listen(Listen<'a>),
    /// The server skipped events here, because the peer was slow. Only for peers that coalesce.
    Gap {
        /// The event.
        name: &'a str,
        /// Number of skipped events, at most [`GAP_MAX`].
        missed: u32,
    },
    /// The same for the events of a pattern.
    PatternGap {
        /// The pattern.
        pattern: &'a str,
        /// Number of skipped events, at most [`GAP_MAX`].
        missed: u32,
    },
    /// A refused request.
    Error(Refusal<'a, EventAction>),
}

impl<'a> Event<'a> {
    /// The publication of a message that is one.
    #[must_use]
    pub fn published(&self) -> Option<&Publication<'a>> {
        match self {
            Self::Publication(publication) | Self::Publish { publication, .. } => Some(publication),
            _ => None,
        }
    }

    /// A publication without rare attributes.
    #[must_use]
    pub fn publication(name: &'a str, data: Option<&'a str>) -> Self {
        let rare = None;
        Self::Publication(Publication { name, data, rare })
    }
}

/// Position of an event among all events of its name: offsets count up by one within an epoch. Positions of different epochs can't
/// be compared. Both numbers are at most 2^53 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which counting.
    pub epoch: u64,
    /// The number of the event, starting at 1; 0 is the position before the first.
    pub offset: u64,
}

/// The largest number that a gap tells: numbers on the wire have a sign.
pub const GAP_MAX: u32 = i32::MAX as u32;

/// The bulk actions of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventBulk {
    /// Publish.
    Publish,
    /// Subscribe.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
    /// Subscribe to patterns.
    SubscribePatterns,
    /// Unsubscribe from patterns.
    UnsubscribePatterns,
}

/// The actions of an event message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Publish.
    Emit,
    /// Subscribe.
    Subscribe,
    /// Listen.
    Listen,
    /// Subscribe to patterns.
    SubscribePatterns,
}
