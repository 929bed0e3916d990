//! A session's request for one record, how it is authorized and how it is answered.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, Asker, Entry, LaggingReader, OwnedChange, OwnedPut, OwnedWrite, PendingReplyId,
    Published, ReadFailed, RecordAnswer, RecordRefusal,
};
use crate::footprint::JOB_BYTES;
use crate::message::{RecordAction, RecordBulk};
use crate::permission::Authorization;
use crate::permission::{Access, Decision, Question, RequestedAction, Unknown};
use crate::principal::Principal;
use crate::record::state::{Blocked, Interest, Value};
use crate::store::Version;
use crate::text::{Name, Payload};
use crate::time::Instant;

/// A request for one record.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) session: SessionId,
    pub(super) principal: Arc<Principal>,
    pub(super) kind: JobKind,
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
    Bulk {
        action: RecordBulk,
        serial: Option<u32>,
        reply: Option<PendingReplyId>,
        correlation: Option<Box<str>>,
        /// For `Notify`: the value before it was loaded again.
        reloaded: Option<Value>,
    },
    /// Decides whether a subscription may stay. Without an epoch the subscription has ended in the meantime.
    Reauthorize {
        ticket: u64,
        serial: u32,
        epoch: Option<u64>,
    },
    /// Reads the current value for a lagging session that has missed changes of its subscription.
    CatchUp(Arc<LaggingReader>),
    /// A change that is published once the owner knows which subscribers may read it.
    Announce(Box<Announcement>),
    Read,
    Head,
    Delete,
    Write(Box<OwnedWrite>),
    Fetch(Box<str>),
    Put(Box<OwnedPut>),
}

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

impl Job {
    /// Bytes that it keeps in addition to its own size.
    pub(super) fn kept_bytes(&self) -> usize {
        let own = match &self.kind {
            JobKind::Write(write) => size_of::<OwnedWrite>() + write.change.kept_bytes(),
            JobKind::Put(put) => size_of::<OwnedPut>() + put.data.as_ref().map_or(0, Payload::len),
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
        let is_own = matches!(
            self.kind,
            JobKind::Reauthorize { .. }
                | JobKind::CatchUp(_)
                | JobKind::Announce(_)
                | JobKind::Bulk {
                    reloaded: Some(_),
                    ..
                }
        );
        let has_begun = self.after.is_some() || !self.values.is_empty() || self.read_failed;
        !is_own && !has_begun && !self.was_deferred
    }

    /// A record that a rule of the same announcement has read for an earlier group.
    fn known(&self, read: &Name) -> Option<Option<Payload>> {
        let JobKind::Announce(announcement) = &self.kind else {
            return None;
        };
        let mut known = announcement.known.iter();
        let (_, value) = known.find(|(name, _)| name == read)?;
        Some(value.clone())
    }

    /// Notes that a subscription has ended, in case the job reauthorizes it.
    pub(super) fn forget_subscription(&mut self, session: SessionId, ended: u32) {
        if let JobKind::Reauthorize { serial, epoch, .. } = &mut self.kind
            && (self.session, *serial) == (session, ended)
        {
            *epoch = None;
        }
    }

    /// Whether it changes a record, so that it is done even if its session has ended.
    pub(super) fn changes_records(&self) -> bool {
        matches!(
            self.kind,
            JobKind::Write(_) | JobKind::Put(_) | JobKind::Delete
        )
    }

    /// Bytes that it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        let data = match &self.kind {
            JobKind::Write(write) => write.change.kept_bytes(),
            JobKind::Put(put) => put.data.as_ref().map_or(0, Payload::len),
            _ => 0,
        };
        JOB_BYTES + data
    }

    pub(super) fn action(&self) -> RecordAction {
        match &self.kind {
            JobKind::Bulk { action, .. } => RecordAction::Bulk(*action),
            JobKind::Reauthorize { .. } | JobKind::CatchUp(_) | JobKind::Announce(_) => {
                RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)
            }
            JobKind::Read | JobKind::Fetch(_) => RecordAction::Read,
            JobKind::Put(put) if put.data.is_none() => RecordAction::Delete,
            JobKind::Put(_) => RecordAction::CreateAndUpdate,
            JobKind::Head => RecordAction::Head,
            JobKind::Delete => RecordAction::Delete,
            JobKind::Write(write) => write.action,
        }
    }

    /// The record after the job, if it is known: a patch has to be applied first.
    pub(super) fn new_value(&self) -> Option<Payload> {
        match &self.kind {
            JobKind::Write(write) => match &write.change {
                OwnedChange::Update(data) => Some(data.clone()),
                OwnedChange::Patch(_) | OwnedChange::PatchMulti { .. } => self.after.clone(),
            },
            JobKind::Put(put) => put.data.clone(),
            _ => None,
        }
    }

    /// The new value as rules see it.
    pub(super) fn given<'p>(&self, new: Option<&'p Payload>) -> Given<'p> {
        match (&self.kind, new) {
            (JobKind::Write(_), None) => Given::Unknown,
            (_, new) => Given::Known(new),
        }
    }

    /// The refusal of the job if too many requests wait.
    pub(super) fn overload_refusal(&self) -> RecordRefusal {
        match self.kind {
            JobKind::Write(_) => RecordRefusal::UpdateFailed,
            _ => RecordRefusal::LoadFailed,
        }
    }

    pub(super) fn refusal(self, why: RecordRefusal) -> (SessionId, Option<PendingReplyId>, Answer) {
        let action = self.action();
        match &self.kind {
            JobKind::Reauthorize { ticket, .. } => {
                let (ticket, lost) = (*ticket, Some(why));
                return (self.session, None, Answer::Reauthorized { ticket, lost });
            }
            JobKind::CatchUp(reader) => {
                let serial = reader.serial;
                return (self.session, None, Answer::Lost { serial, why });
            }
            _ => {}
        }
        let (why, serial, reply, correlation, write_ack) = match self.kind {
            JobKind::Bulk {
                serial,
                reply,
                correlation,
                ..
            } => (why, serial, reply, correlation, false),
            JobKind::Write(write) => (why, None, None, write.correlation, write.write_ack),
            JobKind::Delete => (deletion(why), None, None, None, false),
            JobKind::Read
            | JobKind::Head
            | JobKind::Reauthorize { .. }
            | JobKind::CatchUp(_)
            | JobKind::Announce(_) => (why, None, None, None, false),
            JobKind::Fetch(correlation) => (why, None, None, Some(correlation), false),
            JobKind::Put(put) if put.data.is_none() => {
                (deletion(why), None, None, Some(put.correlation), false)
            }
            JobKind::Put(put) => (why, None, None, Some(put.correlation), true),
        };
        (
            self.session,
            reply,
            Answer::Refused {
                why,
                action,
                serial,
                correlation,
                write_ack,
            },
        )
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
pub(super) fn authorize<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
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
pub(super) fn ask<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
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
                if let Some(known) = job.known(&read) {
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
pub(super) fn stopped<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    job: Job,
    authorization: Authorization,
) -> Step {
    turn.shard.count_denial(authorization);
    match authorization {
        Authorization::Wait => return Step::Blocked(job, Blocked::Rule),
        Authorization::Failed => refuse(turn, name, job, RecordRefusal::RuleFailed),
        Authorization::Deny | Authorization::Allow => {
            refuse(turn, name, job, RecordRefusal::Denied)
        }
    }
    Step::Denied
}

pub(super) fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    job: Job,
    why: RecordRefusal,
) {
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
