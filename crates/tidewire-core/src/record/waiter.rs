//! Sessions that wait until a change is durable, and the answers that they get.

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::entry::{Answer, RecordRefusal, Stored, TransactionResult};
use crate::message::RecordAction;
use crate::text::Name;
use crate::time::Instant;

/// A session that waits until a change is durable.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) deadline: Instant,
    /// The action that the session has requested. `Delete` is answered as a deletion, every other action as a write.
    pub(crate) action: RecordAction,
    pub(crate) correlation: Option<Box<str>>,
    pub(crate) request: Requested,
}

/// The request of a session that waits, with the part of its answer that is known.
#[derive(Debug)]
pub(crate) enum Requested {
    /// A write or a deletion.
    Change,
    /// A `Put`.
    Put(Stored),
    /// A transaction. Its waiter belongs to one of its records.
    Transaction(Box<DecidedTransaction>),
}

/// A transaction that is applied, and not yet durable.
#[derive(Debug)]
pub(crate) struct DecidedTransaction {
    /// Its first record, to which its answer belongs.
    pub(crate) name: Name,
    pub(crate) stored: Vec<Stored>,
}

impl Waiter {
    /// The record to which its answer belongs. `record` is the one that it waits for.
    pub(crate) fn answers<'w>(&'w self, record: &'w Name) -> &'w Name {
        match &self.request {
            Requested::Transaction(decided) => &decided.name,
            Requested::Change | Requested::Put(_) => record,
        }
    }

    /// The answer when the change is durable.
    pub(crate) fn done(self) -> Answer {
        let Self {
            action,
            correlation,
            request,
            ..
        } = self;
        match (request, action) {
            (Requested::Put(stored), _) => Answer::Stored {
                correlation: correlation.unwrap_or_default(),
                stored,
            },
            (Requested::Transaction(decided), _) => Answer::Decided {
                correlation: correlation.unwrap_or_default(),
                result: TransactionResult::Committed {
                    stored: decided.stored,
                },
            },
            (Requested::Change, RecordAction::Delete) => Answer::Deleted,
            (Requested::Change, _) => Answer::Written { correlation },
        }
    }

    /// The answer when the outcome is unknown.
    pub(crate) fn unknown(self) -> Answer {
        if let Requested::Transaction(decided) = self.request {
            return Answer::Decided {
                correlation: self.correlation.unwrap_or_default(),
                result: TransactionResult::Refused {
                    name: decided.name,
                    why: RecordRefusal::UpdateFailed,
                },
            };
        }
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
