//! How a job asks for its rights, waits, and is refused or answered.

use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, Asker, Entry, PendingReplyId, Published, ReadFailed, RecordAnswer, RecordRefusal,
};
use crate::message::RecordAction;
use crate::permission::{Access, Authorization, Decision, Question, RequestedAction, Unknown};
use crate::record::job::{Job, JobKind, Kind};
use crate::record::state::{Blocked, Interest};
use crate::store::Version;
use crate::text::{Name, Payload};

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
                turn.read_value(read, asker);
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
    let to = asker.address();
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
    for shard in interest.shards.shards() {
        turn.post(
            shard,
            Entry::RecordPublished {
                name: name.clone(),
                what: what.clone(),
                except,
            },
        );
    }
}
