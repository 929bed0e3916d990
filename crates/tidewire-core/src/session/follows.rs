//! The subscriptions of a session to events with history.

use std::collections::VecDeque;

use super::Sessions;
use crate::address::{Address, SessionId};
use crate::entry::PendingReplyId;
use crate::message::Position;
use crate::table::{self, Map};
use crate::text::Name;

/// The start that a session requests for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Later events, for clients that know no offsets.
    Plain,
    /// Events published after the request, and the position at which they begin.
    Begin,
    /// The events after a position.
    Resume(Position),
}

impl Start {
    pub(crate) fn position(self) -> Option<Position> {
        match self {
            Self::Resume(position) => Some(position),
            Self::Plain | Self::Begin => None,
        }
    }
}

/// A subscription, or the request for one.
#[derive(Debug)]
pub(crate) struct Follow {
    /// Distinguishes it from an earlier subscription to the same name.
    pub(crate) serial: u32,
    pub(crate) is_granted: bool,
    /// The owner that got the last request.
    pub(crate) owner: Address,
    /// The start that the session has requested, until the owner grants the subscription.
    pub(crate) start: Start,
    /// Whether the session knows the position at which the events start.
    pub(crate) knows_start: bool,
    /// The reply that waits for the first answer.
    pub(crate) reply: Option<PendingReplyId>,
}

/// The subscriptions of a session to events with history.
#[derive(Debug)]
pub(crate) struct Follows {
    pub(crate) names: Map<Name, Follow>,
    /// The number of subscriptions that are not granted yet.
    pub(crate) waiting: usize,
    /// The names whose next page the shard requests, with their serials.
    pub(crate) queue: VecDeque<(Name, u32)>,
    /// Names whose owner was lost before it has answered, until the shard knows the next owner.
    pub(crate) stalled: Vec<(Name, u32)>,
    /// The number of pages that are requested and have not arrived.
    pub(crate) asked: usize,
    /// Bytes sent since the session last had read everything.
    pub(crate) given_bytes: usize,
    /// Whether enough was sent. The rest follows when the session has read that.
    pub(crate) is_paused: bool,
}

impl Follows {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            names: table::map(seed),
            waiting: 0,
            queue: VecDeque::new(),
            stalled: Vec::new(),
            asked: 0,
            given_bytes: 0,
            is_paused: false,
        }
    }

    /// The number of subscriptions that are not granted yet. The granted ones are memberships.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// The names of subscriptions that are not granted yet, in an order that does not depend on a hash table.
    pub(crate) fn waiting_names(&self) -> Vec<Name> {
        let waiting = self.names.iter().filter(|(_, follow)| !follow.is_granted);
        let mut names: Vec<Name> = waiting.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Follow> {
        let follow = self.names.remove(name)?;
        self.waiting -= usize::from(!follow.is_granted);
        Some(follow)
    }
}

impl Sessions {
    /// The subscriptions of a session to events with history, if it has any.
    pub(crate) fn follows_mut(&mut self, id: SessionId) -> Option<&mut Follows> {
        self.find_mut(id)?.state.as_mut()?.follows.as_deref_mut()
    }
}
