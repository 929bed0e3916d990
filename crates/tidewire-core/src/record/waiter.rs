//! Sessions that wait until a change is durable, and the answers that they get.

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::entry::{Answer, RecordRefusal, Stored};
use crate::message::RecordAction;
use crate::time::Instant;

/// A session that waits until a write is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    pub(crate) what: WaitsFor,
}

/// The request that the waiter has made.
#[derive(Debug)]
pub(crate) enum WaitsFor {
    /// A write acknowledgement.
    Write {
        action: RecordAction,
        correlation: Option<Box<str>>,
        /// The result of a `Put`.
        stored: Option<Stored>,
    },
    /// The deletion of the record.
    Delete,
    /// The deletion of the record by a `Put`.
    Remove {
        correlation: Box<str>,
        existed: bool,
    },
}

impl WaitsFor {
    /// The answer when the outcome is unknown.
    pub(crate) fn refusal(&self) -> RecordRefusal {
        match self {
            Self::Write { .. } => RecordRefusal::UpdateFailed,
            Self::Delete | Self::Remove { .. } => RecordRefusal::DeleteFailed,
        }
    }

    /// The answer when the change is durable.
    pub(crate) fn done(self) -> Answer {
        match self {
            Self::Write {
                correlation,
                stored: None,
                ..
            } => Answer::Written { correlation },
            Self::Write {
                correlation,
                stored: Some(stored),
                ..
            } => Answer::Stored {
                correlation: correlation.unwrap_or_default(),
                stored,
            },
            Self::Delete => Answer::Deleted,
            Self::Remove {
                correlation,
                existed,
            } => Answer::Stored {
                correlation,
                stored: Stored { existed, tag: None },
            },
        }
    }
}

/// The sessions that wait for one record, nearly always one or none.
pub(super) type Waiters = SmallVec<[Waiter; 1]>;
