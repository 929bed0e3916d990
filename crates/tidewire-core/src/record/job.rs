//! A session's request for one record while its owner handles it.

use std::sync::Arc;

use crate::address::SessionId;
use crate::entry::{
    Answer, LaggingReader, OperationChange, OwnedChange, OwnedPut, OwnedWrite, PendingReplyId,
    Published, RecordOperation, RecordRead, RecordRefusal, TransactionResult,
};
use crate::footprint::JOB_BYTES;
use crate::message::{Only, RecordAction, RecordBulk, Tag};
use crate::principal::Principal;
use crate::record::request::Given;
use crate::record::state::Value;
use crate::text::{Name, Payload};
use crate::time::Instant;

/// A request for one record, with the findings of its authorization so far. A function that handles one kind of request takes a job of
/// that kind, so it can't get another one.
#[derive(Debug)]
pub(super) struct Job<K = JobKind> {
    pub(super) session: SessionId,
    pub(super) principal: Arc<Principal>,
    pub(super) kind: K,
    /// The records that its rules have read.
    pub(super) values: Vec<(Name, Option<Payload>)>,
    /// Whether a read has failed: rules that need more reads fail too.
    pub(super) read_failed: bool,
    /// The record after its patch, once a rule has needed it. While the job waits for a rule, the record does not change.
    pub(super) after: Option<Payload>,
    pub(super) since: Instant,
    /// Whether it was deferred. Such a job is not deferred again after it has waited for its record: otherwise other sessions that use the
    /// record could delay it forever.
    pub(super) was_deferred: bool,
}

#[derive(Debug)]
pub(super) enum JobKind {
    /// One name of a bulk action, except `Notify`.
    Subscribe(Subscribe),
    /// One name of the bulk action `Notify`.
    Notify(Notify),
    /// The operation that a session has requested.
    Requested(RecordOperation),
    /// Reads the current value for a lagging session that has missed changes of its subscription.
    CatchUp(Arc<LaggingReader>),
    /// Continues a subscription that the former owner has granted.
    Resume(Resume),
    /// A change that is published once the owner knows which subscribers may read it.
    Announce(Box<Announcement>),
    /// The operation of a transaction on this record.
    Part(Box<Part>),
}

/// The part of a transaction that is about one record. It blocks its record until the whole transaction is decided.
#[derive(Debug)]
pub(super) struct Part {
    /// The number of its transaction.
    pub(super) transaction: u64,
    /// The state that the record must have.
    pub(super) only: Only,
    pub(super) change: OperationChange,
    /// The number of the rules that have allowed it, for the present value of the record. While the part is first, the record does not
    /// change, so the rules decide it once although the transaction may have to wait several times.
    pub(super) authorized: Option<u64>,
}

/// A subscription to a record, or a read of several records.
#[derive(Debug)]
pub(super) struct Subscribe {
    pub(super) action: RecordBulk,
    /// The serial of the subscription; absent if the session only reads.
    pub(super) serial: Option<u32>,
    pub(super) reply: Option<PendingReplyId>,
    pub(super) correlation: Option<Box<str>>,
}

/// A subscription that its session's shard has announced.
#[derive(Debug)]
pub(super) struct Resume {
    /// The serial of the subscription; absent if its session was lost in the meantime.
    pub(super) serial: Option<u32>,
    /// The state of the record that the session has; absent if it knows that the record does not exist.
    pub(super) shown: Option<Tag>,
}

/// Loads a record again that another program has changed in the store.
#[derive(Debug)]
pub(super) struct Notify {
    pub(super) reply: Option<PendingReplyId>,
    pub(super) correlation: Option<Box<str>>,
    /// The value before it was loaded again.
    pub(super) reloaded: Option<Value>,
}

/// The deletion of a record.
#[derive(Debug)]
pub(super) struct Delete;

/// A change on its way to subscribers whose read right is checked again.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) what: Published,
    pub(super) except: Option<SessionId>,
    /// The record after the change.
    pub(super) full: Payload,
    /// The index of the group that is authorized next.
    pub(super) index: usize,
    /// Whether the right of some group depends on data.
    pub(super) depends: bool,
    /// Records that the rules of earlier groups have read.
    pub(super) known: Vec<(Name, Option<Payload>)>,
}

/// A kind of job: [`JobKind`], or the content of one of its variants.
pub(super) trait Kind: Into<JobKind> {
    /// The action that a rule sees and that a refusal names.
    fn action(&self) -> RecordAction;

    /// The record after the job, if it is known. `patched` is the result of its patch, once that was computed.
    fn new_value(&self, _patched: Option<&Payload>) -> Option<Payload> {
        None
    }

    /// Whether the record after the job is unknown until a patch was applied.
    fn is_patch(&self) -> bool {
        false
    }

    /// A record that a rule of the same announcement has read for an earlier group.
    fn known(&self, _read: &Name) -> Option<Option<Payload>> {
        None
    }
}

impl Kind for JobKind {
    fn action(&self) -> RecordAction {
        match self {
            Self::Subscribe(subscribe) => subscribe.action(),
            Self::Notify(notify) => notify.action(),
            Self::Resume(resume) => resume.action(),
            Self::Requested(RecordOperation::Read(read)) => read.action(),
            Self::Requested(RecordOperation::Delete) => Delete.action(),
            Self::Requested(RecordOperation::Write(write)) => write.action(),
            Self::Requested(RecordOperation::Put(put)) => put.action(),
            // Its parts are authorized one by one.
            Self::Requested(RecordOperation::Transaction(_)) => RecordAction::CreateAndUpdate,
            Self::Part(part) => part.action(),
            Self::CatchUp(reader) => reader.action(),
            Self::Announce(announcement) => announcement.action(),
        }
    }

    fn new_value(&self, patched: Option<&Payload>) -> Option<Payload> {
        match self {
            Self::Requested(RecordOperation::Write(write)) => write.new_value(patched),
            Self::Requested(RecordOperation::Put(put)) => put.new_value(patched),
            Self::Part(part) => part.new_value(patched),
            _ => None,
        }
    }

    fn is_patch(&self) -> bool {
        match self {
            Self::Requested(RecordOperation::Write(write)) => write.is_patch(),
            _ => false,
        }
    }

    fn known(&self, read: &Name) -> Option<Option<Payload>> {
        match self {
            Self::Announce(announcement) => announcement.known(read),
            _ => None,
        }
    }
}

impl Kind for Subscribe {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(self.action)
    }
}

impl Kind for Resume {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::Subscribe)
    }
}

impl Kind for Notify {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::Notify)
    }
}

impl Kind for RecordRead {
    fn action(&self) -> RecordAction {
        match self {
            Self::Value | Self::State(_) => RecordAction::Read,
            Self::Version => RecordAction::Head,
            Self::Right(_) => RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead),
        }
    }
}

impl Kind for Delete {
    fn action(&self) -> RecordAction {
        RecordAction::Delete
    }
}

impl Kind for Box<OwnedWrite> {
    fn action(&self) -> RecordAction {
        self.action
    }

    fn new_value(&self, patched: Option<&Payload>) -> Option<Payload> {
        match &self.change {
            OwnedChange::Update(data) => Some(data.clone()),
            OwnedChange::Patch(_) | OwnedChange::PatchMulti { .. } => patched.cloned(),
        }
    }

    fn is_patch(&self) -> bool {
        !matches!(self.change, OwnedChange::Update(_))
    }
}

impl Kind for Box<OwnedPut> {
    fn action(&self) -> RecordAction {
        match self.data {
            Some(_) => RecordAction::CreateAndUpdate,
            None => RecordAction::Delete,
        }
    }

    fn new_value(&self, _patched: Option<&Payload>) -> Option<Payload> {
        self.data.clone()
    }
}

impl Kind for Box<Part> {
    fn action(&self) -> RecordAction {
        match self.change {
            OperationChange::Check => RecordAction::Read,
            OperationChange::Put(_) => RecordAction::CreateAndUpdate,
            OperationChange::Delete => RecordAction::Delete,
        }
    }

    fn new_value(&self, _patched: Option<&Payload>) -> Option<Payload> {
        match &self.change {
            OperationChange::Put(data) => Some(data.clone()),
            OperationChange::Check | OperationChange::Delete => None,
        }
    }
}

impl Kind for Arc<LaggingReader> {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)
    }
}

impl Kind for Box<Announcement> {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)
    }

    fn known(&self, read: &Name) -> Option<Option<Payload>> {
        let (_, value) = self.known.iter().find(|(name, _)| name == read)?;
        Some(value.clone())
    }
}

/// Makes a job of one kind a job of any kind.
macro_rules! any_kind {
    ($($kind:ty: $job:pat => $any:expr,)+) => {
        $(impl From<$kind> for JobKind {
            fn from($job: $kind) -> Self {
                $any
            }
        })+
    };
}

any_kind! {
    Subscribe: subscribe => Self::Subscribe(subscribe),
    Notify: notify => Self::Notify(notify),
    Resume: resume => Self::Resume(resume),
    RecordRead: read => Self::Requested(RecordOperation::Read(read)),
    Delete: Delete => Self::Requested(RecordOperation::Delete),
    Box<OwnedWrite>: write => Self::Requested(RecordOperation::Write(write)),
    Box<OwnedPut>: put => Self::Requested(RecordOperation::Put(put)),
    Arc<LaggingReader>: reader => Self::CatchUp(reader),
    Box<Announcement>: announcement => Self::Announce(announcement),
    Box<Part>: part => Self::Part(part),
}

impl<K> Job<K> {
    /// The job with another kind, and its present kind.
    fn exchange<N>(self, kind: N) -> (Job<N>, K) {
        let job = Job {
            session: self.session,
            principal: self.principal,
            kind,
            values: self.values,
            read_failed: self.read_failed,
            after: self.after,
            since: self.since,
            was_deferred: self.was_deferred,
        };
        (job, self.kind)
    }

    /// The job without its kind, and the kind.
    pub(super) fn split(self) -> (Job<()>, K) {
        self.exchange(())
    }
}

impl<K: Kind> Job<K> {
    /// The same job as one of any kind, to refuse it or to let it wait.
    pub(super) fn of_any_kind(self) -> Job {
        let (job, kind) = self.split();
        job.with(kind.into())
    }

    pub(super) fn action(&self) -> RecordAction {
        self.kind.action()
    }

    /// The record after the job, if it is known: a patch has to be applied first.
    pub(super) fn new_value(&self) -> Option<Payload> {
        self.kind.new_value(self.after.as_ref())
    }

    /// The new value as rules see it.
    pub(super) fn given<'p>(&self, new: Option<&'p Payload>) -> Given<'p> {
        match new {
            None if self.kind.is_patch() => Given::Unknown,
            new => Given::Known(new),
        }
    }
}

impl Job<()> {
    pub(super) fn with<K>(self, kind: K) -> Job<K> {
        self.exchange(kind).0
    }
}

impl Job {
    /// Bytes of the operation's box, and of the data in it.
    fn boxed_bytes(&self) -> (usize, usize) {
        match &self.kind {
            JobKind::Requested(RecordOperation::Write(write)) => {
                (size_of::<OwnedWrite>(), write.change.kept_bytes())
            }
            JobKind::Requested(RecordOperation::Put(put)) => {
                let data = put.data.as_ref().map_or(0, Payload::len);
                (size_of::<OwnedPut>(), data)
            }
            JobKind::Requested(operation @ RecordOperation::Transaction(_)) => {
                (0, operation.kept_bytes())
            }
            JobKind::Part(part) => {
                let data = part.new_value(None).map_or(0, |data| data.len());
                (size_of::<Part>(), data)
            }
            _ => (0, 0),
        }
    }

    /// Bytes that it keeps in addition to its own size.
    pub(super) fn kept_bytes(&self) -> usize {
        let (own, data) = self.boxed_bytes();
        let values = self
            .values
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Payload::len));
        own + data + values.sum::<usize>()
    }

    /// Whether it may be deferred. Jobs that the server has created may not: they would wait for a session that does not know of them. A
    /// job that has begun may not either: its knowledge of the record is valid only until another job of the record runs.
    pub(super) fn is_deferrable(&self) -> bool {
        let is_own = match &self.kind {
            JobKind::Notify(notify) => notify.reloaded.is_some(),
            JobKind::Requested(operation) => {
                matches!(operation, RecordOperation::Read(RecordRead::Right(_)))
            }
            JobKind::CatchUp(_) | JobKind::Announce(_) | JobKind::Resume(_) => true,
            // A transaction is deferred as a whole, before it has parts: two that wait for each other's records would never end.
            JobKind::Part(_) => true,
            JobKind::Subscribe(_) => false,
        };
        let has_begun = self.after.is_some() || !self.values.is_empty() || self.read_failed;
        !is_own && !has_begun && !self.was_deferred
    }

    /// Notes that a subscription has ended, in case the job reauthorizes it.
    pub(super) fn forget_subscription(&mut self, session: SessionId, ended: u32) {
        let JobKind::Requested(RecordOperation::Read(RecordRead::Right(right))) = &mut self.kind
        else {
            return;
        };
        if (self.session, right.serial) == (session, ended) {
            right.epoch = None;
        }
    }

    /// Notes that the session was lost with its node: the job must leave no subscription at the owner.
    pub(super) fn session_lost(&mut self) {
        match &mut self.kind {
            JobKind::Subscribe(subscribe) => subscribe.serial = None,
            JobKind::Resume(resume) => resume.serial = None,
            JobKind::Requested(RecordOperation::Read(RecordRead::Right(right))) => {
                right.epoch = None;
            }
            _ => {}
        }
    }

    /// Whether it changes a record, so that it is done even if its session has ended.
    pub(super) fn changes_records(&self) -> bool {
        match &self.kind {
            JobKind::Requested(operation) => !matches!(operation, RecordOperation::Read(_)),
            _ => false,
        }
    }

    /// Bytes that it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        JOB_BYTES + self.boxed_bytes().1
    }

    /// The refusal of the job if too many requests wait.
    pub(super) fn overload_refusal(&self) -> RecordRefusal {
        match self.kind {
            JobKind::Requested(RecordOperation::Write(_)) => RecordRefusal::UpdateFailed,
            _ => RecordRefusal::LoadFailed,
        }
    }

    pub(super) fn refusal(self, why: RecordRefusal) -> (SessionId, Option<PendingReplyId>, Answer) {
        let action = self.action();
        let refused = |why, serial, correlation, write_ack| Answer::Refused {
            why,
            action,
            serial,
            correlation,
            write_ack,
        };
        let (reply, answer) = match self.kind {
            JobKind::Subscribe(Subscribe {
                serial,
                reply,
                correlation,
                ..
            }) => (reply, refused(why, serial, correlation, false)),
            JobKind::Notify(Notify {
                reply, correlation, ..
            }) => (reply, refused(why, None, correlation, false)),
            JobKind::CatchUp(reader) => {
                let serial = reader.serial;
                (None, Answer::Lost { serial, why })
            }
            JobKind::Resume(resume) => {
                let serial = resume.serial.unwrap_or_default();
                (None, Answer::Lost { serial, why })
            }
            // Neither is a request. `transaction` answers the request of a part.
            JobKind::Announce(_) | JobKind::Part(_) => (None, refused(why, None, None, false)),
            JobKind::Requested(operation) => {
                let answer = match operation {
                    RecordOperation::Read(RecordRead::Right(right)) => Answer::Reauthorized {
                        ticket: right.ticket,
                        lost: Some(why),
                    },
                    RecordOperation::Read(RecordRead::State(correlation)) => {
                        refused(why, None, Some(correlation), false)
                    }
                    RecordOperation::Read(RecordRead::Value | RecordRead::Version) => {
                        refused(why, None, None, false)
                    }
                    RecordOperation::Delete => refused(deletion(why), None, None, false),
                    RecordOperation::Write(write) => {
                        refused(why, None, write.correlation, write.write_ack)
                    }
                    RecordOperation::Put(put) if put.data.is_none() => {
                        refused(deletion(why), None, Some(put.correlation), false)
                    }
                    RecordOperation::Put(put) => refused(why, None, Some(put.correlation), true),
                    RecordOperation::Transaction(transaction) => Answer::Decided {
                        correlation: transaction.correlation,
                        result: TransactionResult::Refused {
                            name: transaction
                                .operations
                                .into_iter()
                                .next()
                                .map_or_else(|| Name::from(""), |operation| operation.name),
                            why,
                        },
                    },
                };
                (None, answer)
            }
        };
        (self.session, reply, answer)
    }
}

/// A delete has one answer for all refusals that do not come from rules.
pub(super) fn deletion(why: RecordRefusal) -> RecordRefusal {
    match why {
        RecordRefusal::Denied | RecordRefusal::RuleFailed => why,
        _ => RecordRefusal::DeleteFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_stays_small() {
        assert!(size_of::<Job>() <= 160, "{}", size_of::<Job>());
    }
}
