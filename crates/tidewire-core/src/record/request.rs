//! A session's request for one record, how it is authorized and how it is answered.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, Asker, Entry, LaggingReader, OwnedChange, OwnedPut, OwnedWrite, PendingReplyId,
    Published, ReadFailed, RecordAnswer, RecordOperation, RecordRead, RecordRefusal,
};
use crate::footprint::JOB_BYTES;
use crate::message::{RecordAction, RecordBulk};
use crate::permission::{Access, Authorization, Decision, Question, RequestedAction, Unknown};
use crate::principal::Principal;
use crate::record::state::{Blocked, Interest, Value};
use crate::store::Version;
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
    /// A change that is published once the owner knows which subscribers may read it.
    Announce(Box<Announcement>),
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

/// The outcome of running a job.
pub(super) enum Step {
    Done,
    /// A rule has denied it, or has failed.
    Denied,
    /// It waits for a rule's read, a load or the next turn.
    Blocked(Job, Blocked),
}

impl Step {
    pub(super) fn blocked<K: Kind>(job: Job<K>, blocked: Blocked) -> Self {
        Self::Blocked(job.of_any_kind(), blocked)
    }
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
            Self::Requested(RecordOperation::Read(read)) => read.action(),
            Self::Requested(RecordOperation::Delete) => Delete.action(),
            Self::Requested(RecordOperation::Write(write)) => write.action(),
            Self::Requested(RecordOperation::Put(put)) => put.action(),
            Self::CatchUp(reader) => reader.action(),
            Self::Announce(announcement) => announcement.action(),
        }
    }

    fn new_value(&self, patched: Option<&Payload>) -> Option<Payload> {
        match self {
            Self::Requested(RecordOperation::Write(write)) => write.new_value(patched),
            Self::Requested(RecordOperation::Put(put)) => put.new_value(patched),
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

impl From<Subscribe> for JobKind {
    fn from(subscribe: Subscribe) -> Self {
        Self::Subscribe(subscribe)
    }
}

impl Kind for Notify {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::Notify)
    }
}

impl From<Notify> for JobKind {
    fn from(notify: Notify) -> Self {
        Self::Notify(notify)
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

impl From<RecordRead> for JobKind {
    fn from(read: RecordRead) -> Self {
        Self::Requested(RecordOperation::Read(read))
    }
}

impl Kind for Delete {
    fn action(&self) -> RecordAction {
        RecordAction::Delete
    }
}

impl From<Delete> for JobKind {
    fn from(Delete: Delete) -> Self {
        Self::Requested(RecordOperation::Delete)
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

impl From<Box<OwnedWrite>> for JobKind {
    fn from(write: Box<OwnedWrite>) -> Self {
        Self::Requested(RecordOperation::Write(write))
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

impl From<Box<OwnedPut>> for JobKind {
    fn from(put: Box<OwnedPut>) -> Self {
        Self::Requested(RecordOperation::Put(put))
    }
}

impl Kind for Arc<LaggingReader> {
    fn action(&self) -> RecordAction {
        RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)
    }
}

impl From<Arc<LaggingReader>> for JobKind {
    fn from(reader: Arc<LaggingReader>) -> Self {
        Self::CatchUp(reader)
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

impl From<Box<Announcement>> for JobKind {
    fn from(announcement: Box<Announcement>) -> Self {
        Self::Announce(announcement)
    }
}

impl<K: Kind> Job<K> {
    /// The job without its kind, and the kind.
    pub(super) fn split(self) -> (Job<()>, K) {
        let job = Job {
            session: self.session,
            principal: self.principal,
            kind: (),
            values: self.values,
            read_failed: self.read_failed,
            after: self.after,
            since: self.since,
            was_deferred: self.was_deferred,
        };
        (job, self.kind)
    }

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
        Job {
            session: self.session,
            principal: self.principal,
            kind,
            values: self.values,
            read_failed: self.read_failed,
            after: self.after,
            since: self.since,
            was_deferred: self.was_deferred,
        }
    }
}

impl Job {
    /// Bytes that it keeps in addition to its own size.
    pub(super) fn kept_bytes(&self) -> usize {
        let own = match &self.kind {
            JobKind::Requested(RecordOperation::Write(write)) => {
                size_of::<OwnedWrite>() + write.change.kept_bytes()
            }
            JobKind::Requested(RecordOperation::Put(put)) => {
                size_of::<OwnedPut>() + put.data.as_ref().map_or(0, Payload::len)
            }
            _ => 0,
        };
        let values = self
            .values
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Payload::len));
        own + values.sum::<usize>()
    }

    /// Whether it may be deferred. Jobs that the server has created may not: they would wait for a session that does not know of them. A
    /// job that has begun may not either: its knowledge of the record is valid only until another job of the record runs.
    pub(super) fn is_deferrable(&self) -> bool {
        let is_own = match &self.kind {
            JobKind::Notify(notify) => notify.reloaded.is_some(),
            JobKind::Requested(operation) => {
                matches!(operation, RecordOperation::Read(RecordRead::Right(_)))
            }
            JobKind::CatchUp(_) | JobKind::Announce(_) => true,
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

    /// Whether it changes a record, so that it is done even if its session has ended.
    pub(super) fn changes_records(&self) -> bool {
        match &self.kind {
            JobKind::Requested(operation) => !matches!(operation, RecordOperation::Read(_)),
            _ => false,
        }
    }

    /// Bytes that it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        let data = match &self.kind {
            JobKind::Requested(RecordOperation::Write(write)) => write.change.kept_bytes(),
            JobKind::Requested(RecordOperation::Put(put)) => {
                put.data.as_ref().map_or(0, Payload::len)
            }
            _ => 0,
        };
        JOB_BYTES + data
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
            JobKind::Announce(_) => (None, refused(why, None, None, false)),
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

pub(super) fn is_under(prefixes: &[String], name: &str) -> bool {
    prefixes
        .iter()
        .any(|prefix| name.starts_with(prefix.as_str()))
}

/// A document that a rule may read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'p> {
    /// It is not known yet.
    Unknown,
    /// The document is known; `None` if it does not exist.
    Known(Option<&'p Payload>),
}

impl<'p> Given<'p> {
    fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }

    fn text(self) -> Option<&'p str> {
        match self {
            Self::Unknown => None,
            Self::Known(payload) => payload.map(Payload::as_str),
        }
    }
}

/// The question that the permission answers for a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'p> {
    pub(super) access: Access,
    /// The action that needs the access.
    pub(super) by: RecordAction,
    /// The record after the action.
    pub(super) data: Given<'p>,
    /// The record before the action.
    pub(super) old: Given<'p>,
    /// Whether the rule may read another record.
    pub(super) may_wait: bool,
}

/// Authorizes a job when both the old value and the new one are known.
pub(super) fn authorize<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
    access: Access,
    name: &Name,
    data: Option<&Payload>,
    old: Option<&Payload>,
) -> Authorization {
    let asking = Asking {
        access,
        by: job.action(),
        data: Given::Known(data),
        old: Given::Known(old),
        may_wait: true,
    };
    ask(turn, job, name, asking).unwrap_or(Authorization::Failed)
}

/// Authorizes a job with the documents that are known. `None` if the rule reads an unknown document, or another record for which the job
/// must not wait. At most one read is in flight for each record.
pub(super) fn ask<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
    name: &Name,
    asking: Asking<'_>,
) -> Option<Authorization> {
    let Asking { data, old, .. } = asking;
    let unknown = Unknown {
        data: data.is_unknown(),
        old_data: old.is_unknown(),
    };
    loop {
        let question = Question {
            principal: &job.principal,
            access: asking.access,
            by: RequestedAction::Record(asking.by),
            name: Some(name),
            data: data.text(),
            old_data: old.text(),
            now: turn.now.wall,
            values: &job.values,
        };
        let permission = &turn.shard.permission;
        let decision = match unknown {
            Unknown {
                data: false,
                old_data: false,
            } => permission.decide(&question),
            _ => permission.decide_without(&question, unknown)?,
        };
        let reads_max = turn.shard.settings.limits.rule_reads_max;
        match (decision, old) {
            (Decision::Allow, _) => return Some(Authorization::Allow),
            (Decision::Deny, _) => return Some(Authorization::Deny),
            (Decision::Failed, _) => return Some(Authorization::Failed),
            (Decision::Need(_), _) if job.read_failed || job.values.len() >= reads_max => {
                return Some(Authorization::Failed);
            }
            (Decision::Need(read), Given::Known(old)) if read == *name => {
                job.values.push((read, old.cloned()));
            }
            (Decision::Need(read), _) if read == *name || !asking.may_wait => return None,
            (Decision::Need(read), _) => {
                if let Some(known) = job.kind.known(&read) {
                    job.values.push((read, known));
                    continue;
                }
                let asker = Asker::Record {
                    owner: turn.shard.address,
                    name: name.clone(),
                };
                turn.post(
                    turn.shard.owner(&read),
                    Entry::ReadValue { name: read, asker },
                );
                return Some(Authorization::Wait);
            }
        }
    }
}

/// Refuses a job that was not allowed, or blocks it if its rule waits for a record.
pub(super) fn stopped<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    job: Job<K>,
    authorization: Authorization,
) -> Step {
    turn.shard.count_denial(authorization);
    match authorization {
        Authorization::Wait => return Step::blocked(job, Blocked::Rule),
        Authorization::Failed => refuse(turn, name, job, RecordRefusal::RuleFailed),
        Authorization::Deny | Authorization::Allow => {
            refuse(turn, name, job, RecordRefusal::Denied)
        }
    }
    Step::Denied
}

pub(super) fn refuse<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    job: Job<K>,
    why: RecordRefusal,
) {
    let job = job.of_any_kind();
    if let JobKind::CatchUp(reader) = &job.kind {
        let asker = Asker::Lagging(job.session, Arc::clone(reader));
        let is_lost = matches!(why, RecordRefusal::Denied | RecordRefusal::RuleFailed);
        if !is_lost {
            return answer_value(turn, name.clone(), asker, Err(ReadFailed));
        }
        let (session, reply, lost) = job.refusal(why);
        answer(turn, session, name, reply, lost);
        // The subscription has ended when this answer arrives, so the session gets no message.
        return answer_value(turn, name.clone(), asker, Ok(None));
    }
    let (session, reply, refused) = job.refusal(why);
    answer(turn, session, name, reply, refused);
}

pub(super) fn answer<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    session: SessionId,
    name: &Name,
    reply: Option<PendingReplyId>,
    what: Answer,
) {
    // Encoding the answer costs the session's shard about as much, but the owner has to count it now.
    turn.shard.count_work(what.bytes());
    turn.post(
        session.address,
        Entry::RecordAnswer(RecordAnswer {
            session,
            name: name.clone(),
            reply,
            what,
        }),
    );
}

pub(super) fn answer_value<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: Name,
    asker: Asker,
    value: Result<Option<(Version, Payload)>, ReadFailed>,
) {
    let to = match &asker {
        Asker::Session(session) | Asker::Lagging(session, _) => session.address,
        Asker::Record { owner, .. } | Asker::Listening { owner, .. } => *owner,
        Asker::Reauthorize { address, .. } => *address,
    };
    turn.post(to, Entry::Value { name, asker, value });
}

/// Sends it to every shard that has subscribers.
pub(super) fn publish<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    interest: &Interest,
    what: &Published,
    except: Option<SessionId>,
) {
    for (shard, _) in &interest.shards {
        let to = Address {
            node: turn.shard.address.node,
            shard: *shard,
        };
        turn.post(
            to,
            Entry::RecordPublished {
                name: name.clone(),
                what: what.clone(),
                except,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_stays_small() {
        assert!(size_of::<Job>() <= 152, "{}", size_of::<Job>());
    }
}
