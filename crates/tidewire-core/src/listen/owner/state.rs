//! The state of one search. The comment of the folder (`listen/mod.rs`) draws it.

use smallvec::SmallVec;

use super::listener::Candidate;
use super::order::Visit;
use crate::address::Address;
use crate::text::{Name, Payload};

#[derive(Debug)]
pub(super) struct Wanted {
    /// The shards with subscribers of an event. `RecordOwner` counts the subscribers of a record.
    pub(super) shards: SmallVec<[Address; 2]>,
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
        /// Whether this is the second round, for the listeners that left their last question unanswered.
        silent: bool,
        visit: Visit,
        /// Patterns from this number on were added during the search, and are tried after all others.
        patterns_end: u64,
    },
    /// The patterns from the number `at` on.
    New { at: u64, asked: SmallVec<[u64; 2]> },
}

impl Phase {
    /// All listeners in the order of `visit`, with their patterns below the number `patterns_end`.
    pub(super) fn all(visit: Visit, patterns_end: u64) -> Self {
        Self::All {
            silent: false,
            visit,
            patterns_end,
        }
    }
}
