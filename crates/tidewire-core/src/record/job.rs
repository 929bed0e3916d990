//! A session's request for one record, how it is judged and how it is answered.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::desk::{Desk, Verdict};
use crate::effect::{Effects, Principal};
use crate::entry::{
    Answer, Asker, Entry, Gather, OwnedPut, OwnedWrite, Published, ReadFailed, RecordAnswer,
    RecordRefusal,
};
use crate::message::{RecordAction, RecordBulk};
use crate::permission::{Access, Asked, Decision, Question};
use crate::record::kept::{Blocked, Interest, Value};
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
    /// A read failed, so rules that need more fail too.
    pub(super) read_failed: bool,
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) enum JobKind {
    Bulk {
        action: RecordBulk,
        serial: Option<u32>,
        gather: Option<Gather>,
        correlation: Option<Box<str>>,
        /// For `Notify`: the value before it was loaded again.
        reloaded: Option<Value>,
    },
    /// Whether a subscription may stay; with the number under which its shard waits.
    Recheck(u64),
    Read,
    Head,
    Delete,
    Write(Box<OwnedWrite>),
    Fetch(Box<str>),
    Put(Box<OwnedPut>),
}

/// What became of a job.
pub(super) enum Step {
    Done,
    /// It waits for a rule's read or a load.
    Blocked(Job, Blocked),
}

impl Job {
    pub(super) fn action(&self) -> RecordAction {
        match &self.kind {
            JobKind::Bulk { action, .. } => RecordAction::Bulk(*action),
            JobKind::Recheck(_) => RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead),
            JobKind::Read | JobKind::Fetch(_) => RecordAction::Read,
            JobKind::Put(put) if put.data.is_none() => RecordAction::Delete,
            JobKind::Put(_) => RecordAction::CreateAndUpdate,
            JobKind::Head => RecordAction::Head,
            JobKind::Delete => RecordAction::Delete,
            JobKind::Write(write) => write.action,
        }
    }

    pub(super) fn refusal(self, why: RecordRefusal) -> (SessionId, Option<Gather>, Answer) {
        let action = self.action();
        if let JobKind::Recheck(ticket) = self.kind {
            let lost = Some(why);
            return (self.session, None, Answer::Rechecked { ticket, lost });
        }
        let (why, serial, gather, correlation, write_ack) = match self.kind {
            JobKind::Bulk {
                serial,
                gather,
                correlation,
                ..
            } => (why, serial, gather, correlation, false),
            JobKind::Write(write) => (why, None, None, write.correlation, write.write_ack),
            JobKind::Delete => (deletion(why), None, None, None, false),
            JobKind::Read | JobKind::Head | JobKind::Recheck(_) => (why, None, None, None, false),
            JobKind::Fetch(correlation) => (why, None, None, Some(correlation), false),
            JobKind::Put(put) if put.data.is_none() => {
                (deletion(why), None, None, Some(put.correlation), false)
            }
            JobKind::Put(put) => (why, None, None, Some(put.correlation), true),
        };
        (
            self.session,
            gather,
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

/// A delete knows one answer for everything that is not the rules' business.
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

/// Judges a job with the old value at hand. At most one read is under way for each record.
pub(super) fn judge<E: Effects>(
    desk: &mut Desk<'_, E>,
    job: &mut Job,
    access: Access,
    name: &Name,
    data: Option<&Payload>,
    old: Option<&Payload>,
) -> Verdict {
    loop {
        let question = Question {
            principal: &job.principal,
            access,
            by: Asked::Record(job.action()),
            name: Some(name),
            data: data.map(Payload::as_str),
            old_data: old.map(Payload::as_str),
            now: desk.now.wall,
            values: &job.values,
        };
        match desk.place.permission.decide(&question) {
            Decision::Allow => return Verdict::Allow,
            Decision::Deny => return Verdict::Deny,
            Decision::Failed => return Verdict::Failed,
            Decision::Need(_) if job.read_failed => return Verdict::Failed,
            Decision::Need(_) if job.values.len() >= desk.place.settings.limits.rule_reads_max => {
                return Verdict::Failed;
            }
            Decision::Need(read) if read == *name => job.values.push((read, old.cloned())),
            Decision::Need(read) => {
                let asker = Asker::Record {
                    owner: desk.place.address,
                    name: name.clone(),
                };
                desk.post(
                    desk.place.owner(&read),
                    Entry::ReadValue { name: read, asker },
                );
                return Verdict::Wait;
            }
        }
    }
}

/// What becomes of a job that was not allowed.
pub(super) fn stopped<E: Effects>(
    desk: &mut Desk<'_, E>,
    name: &Name,
    job: Job,
    verdict: Verdict,
) -> Step {
    desk.place.count_verdict(verdict);
    match verdict {
        Verdict::Wait => return Step::Blocked(job, Blocked::Rule),
        Verdict::Failed => refuse(desk, name, job, RecordRefusal::RuleFailed),
        Verdict::Deny | Verdict::Allow => refuse(desk, name, job, RecordRefusal::Denied),
    }
    Step::Done
}

pub(super) fn refuse<E: Effects>(
    desk: &mut Desk<'_, E>,
    name: &Name,
    job: Job,
    why: RecordRefusal,
) {
    let (session, gather, refused) = job.refusal(why);
    answer(desk, session, name, gather, refused);
}

pub(super) fn answer<E: Effects>(
    desk: &mut Desk<'_, E>,
    session: SessionId,
    name: &Name,
    gather: Option<Gather>,
    what: Answer,
) {
    desk.post(
        session.home,
        Entry::RecordAnswer(RecordAnswer {
            session,
            name: name.clone(),
            gather,
            what,
        }),
    );
}

pub(super) fn answer_value<E: Effects>(
    desk: &mut Desk<'_, E>,
    name: Name,
    asker: Asker,
    value: Result<Option<(Version, Payload)>, ReadFailed>,
) {
    let to = match &asker {
        Asker::Session(session) | Asker::Lagging(session) => session.home,
        Asker::Record { owner, .. } => *owner,
        Asker::Recheck { home, .. } => *home,
    };
    desk.post(to, Entry::Value { name, asker, value });
}

/// Tells every shard that has subscribers.
pub(super) fn publish<E: Effects>(
    desk: &mut Desk<'_, E>,
    name: &Name,
    interest: &Interest,
    what: &Published,
    except: Option<SessionId>,
) {
    for (shard, _) in &interest.shards {
        let to = Address {
            node: desk.place.address.node,
            shard: *shard,
        };
        desk.post(
            to,
            Entry::RecordPublished {
                name: name.clone(),
                what: what.clone(),
                except,
            },
        );
    }
}
