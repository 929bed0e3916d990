//! The state of one search. The comment of the folder (`listen/mod.rs`) draws it.

use smallvec::SmallVec;

use super::listener::{Candidate, Listener};
use super::order::Visit;
use crate::address::Address;
use crate::text::{Name, Payload};

#[derive(Debug)]
pub(super) struct Wanted {
    /// The shards with subscribers of an event. `RecordOwner` counts the subscribers of a record.
    pub(super) shards: SmallVec<[Address; 2]>,
    /// The node of the first subscriber. A search asks the listeners there first.
    pub(super) node: u16,
    /// Patterns below this number were tried.
    pub(super) tried: u64,
    /// Whether the last search has met a pattern that matches.
    pub(super) has_matched: bool,
    pub(super) search: Search,
}

#[derive(Debug)]
pub(super) enum Search {
    /// No listener provides the name, and no listener has a question about it.
    Idle,
    /// It waits for its search: among all patterns, or among the new ones.
    Queued { all: bool },
    /// It waits for the next steps of its search.
    Running(Box<Progress>),
    /// At least one listener that matches was skipped because it has too many unanswered questions.
    Postponed,
    /// The rule of the next listener needs a record.
    Authorizing(Box<Authorizing>),
    /// A listener has a question about the name, and has not answered yet.
    Asking(Box<Asking>),
    /// This listener provides the name.
    Provided(Candidate),
}

#[derive(Debug)]
pub(super) struct Authorizing {
    pub(super) candidate: Candidate,
    pub(super) number: u64,
    pub(super) values: Vec<(Name, Option<Payload>)>,
    pub(super) progress: Progress,
}

/// A question to a listener that was not answered yet.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) candidate: Candidate,
    pub(super) number: u64,
    pub(super) progress: Progress,
}

/// The progress of a search.
#[derive(Debug)]
pub(super) struct Progress {
    /// When it began, by the owner's clock.
    pub(super) began: u64,
    /// Whether some pattern has matched.
    pub(super) has_matched: bool,
    /// Whether a listener was skipped because it has too many unanswered questions.
    pub(super) was_busy: bool,
    pub(super) phase: Phase,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// All listeners.
    All {
        round: Round,
        visit: Visit,
        /// Patterns from this number on were added during the search, and are tried after all others.
        patterns_end: u64,
    },
    /// The patterns from the number `at` on.
    New { at: u64, asked: SmallVec<[u64; 2]> },
}

/// The listeners that a pass through all of them tries. A listener is silent if it left its last question unanswered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Round {
    /// Listeners of this node, except the silent ones.
    Near(u16),
    /// Listeners of other nodes than this one, except the silent ones.
    Far(u16),
    /// All listeners, except the silent ones: they are on one node.
    OneNode,
    Silent,
}

impl Round {
    /// The round after this one.
    pub(super) fn next(self) -> Option<Self> {
        match self {
            Self::Near(node) => Some(Self::Far(node)),
            Self::Far(_) | Self::OneNode => Some(Self::Silent),
            Self::Silent => None,
        }
    }

    /// Whether it tries a listener, in a search that began at that moment of the owner's clock.
    pub(super) fn tries(self, listener: &Listener, began: u64) -> bool {
        let is_of = |node: u16| listener.session.address.node == node;
        match self {
            Self::Near(node) => is_of(node) && !listener.is_silent(),
            Self::Far(node) => !is_of(node) && !listener.is_silent(),
            Self::OneNode => !listener.is_silent(),
            Self::Silent => listener.was_silent(began),
        }
    }
}

impl Phase {
    /// All listeners in the order of `visit`, with their patterns below the number `patterns_end`.
    pub(super) fn all(round: Round, visit: Visit, patterns_end: u64) -> Self {
        Self::All {
            round,
            visit,
            patterns_end,
        }
    }
}
