//! Sessions that wait until a change is durable, and the answers that they get.

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::entry::{Answer, RecordRefusal, Stored};
use crate::message::RecordAction;
use crate::time::Instant;

/// A session that waits until a change is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    /// The action that the session has requested. `Delete` is answered as a deletion, every other action as a write.
    pub(crate) action: RecordAction,
    pub(crate) correlation: Option<Box<str>>,
    /// The result of a `Put`.
    pub(crate) stored: Option<Stored>,
}

impl Waiter {
    /// The answer when the change is durable.
    pub(crate) fn done(self) -> Answer {
        let Self {
            action,
            correlation,
            stored,
            ..
        } = self;
        match (stored, action) {
            (Some(stored), _) => Answer::Stored {
                correlation: correlation.unwrap_or_default(),
                stored,
            },
            (None, RecordAction::Delete) => Answer::Deleted,
            (None, _) => Answer::Written { correlation },
        }
    }

    /// The answer when the outcome is unknown.
    pub(crate) fn unknown(self) -> Answer {
        let is_deletion = self.action == RecordAction::Delete;
        Answer::Refused {
            why: match is_deletion {
                true => RecordRefusal::DeleteFailed,
                false => RecordRefusal::UpdateFailed,
            },
            action: self.action,
            serial: None,
            correlation: self.correlation,
            write_ack: !is_deletion,
        }
    }
}

/// The sessions that wait for one record, nearly always one or none.
pub(super) type Waiters = SmallVec<[Waiter; 1]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_stays_small() {
        assert!(size_of::<Waiter>() <= 72, "{}", size_of::<Waiter>());
    }
}
