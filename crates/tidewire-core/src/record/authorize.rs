//! Which rights a job needs, and what the answers may tell of its record.
//!
//! What a rule decides without the record is decided first, so that a denial costs neither a load nor a patch. What is answered to a
//! session without the right to read does not depend on the record: `spec/rights.md` has the whole table.

use crate::context::{Authorization, TurnContext};
use crate::effect::Effects;
use crate::entry::RecordRefusal;
use crate::message::{RecordAction, RecordBulk};
use crate::permission::Access;
use crate::record::job::{Asking, Given, Job, JobKind, Step, ask, refuse, stopped};
use crate::record::kept::{Blocked, Value};
use crate::text::Name;

/// The rights that a job needs whatever its record is, in the order in which they are asked for. A job that finds no record may
/// need the right to create it besides.
fn needed(kind: &JobKind) -> &'static [Access] {
    match kind {
        JobKind::Bulk {
            action: RecordBulk::Notify,
            ..
        } => &[Access::RecordNotify],
        JobKind::Bulk { .. }
        | JobKind::Reauthorize { .. }
        | JobKind::CatchUp(_)
        | JobKind::Announce(_)
        | JobKind::Read
        | JobKind::Head
        | JobKind::Fetch(_) => &[Access::RecordRead],
        JobKind::Delete => &[Access::RecordDelete],
        JobKind::Write(write) => match write.action {
            RecordAction::Erase => &[Access::RecordDelete],
            RecordAction::CreateAndUpdate | RecordAction::CreateAndPatch => {
                &[Access::RecordWrite, Access::RecordCreate]
            }
            _ => &[Access::RecordWrite],
        },
        JobKind::Put(put) if put.data.is_none() => &[Access::RecordDelete],
        JobKind::Put(_) => &[Access::RecordWrite],
    }
}

/// Authorizes a job while nothing is known of its record. `None` if the record has to be looked at, or may be: nothing has refused the
/// job so far. Without `may_wait` no other record is asked for, because one read is under way for each record at most.
pub(super) fn authorize_early<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
    name: &Name,
    may_wait: bool,
) -> Option<Authorization> {
    let new = job.new_value();
    for access in needed(&job.kind) {
        let asking = Asking {
            access: *access,
            by: job.action(),
            data: job.given(new.as_ref()),
            old: Given::Unknown,
            may_wait,
        };
        match ask(turn, job, name, asking)? {
            Authorization::Allow => {}
            refusing => return Some(refusing),
        }
    }
    None
}

/// Whether the job's session may read the record as it is. An answer that depends on the record is for a session that may.
pub(super) fn authorize_read<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
    name: &Name,
    value: &Value,
) -> Authorization {
    let asking = Asking {
        access: Access::RecordRead,
        by: RecordAction::Read,
        data: Given::Known(None),
        old: Given::Known(value.data()),
        may_wait: true,
    };
    ask(turn, job, name, asking).unwrap_or(Authorization::Deny)
}

/// What becomes of a job that a rule has not allowed, with the record at hand. A rule can fail because of what the record is, and
/// deny another record: the session can tell the two apart only if it may read. Whether it may is asked for a denial, too, where the
/// rule has looked at the record: else the reads of that question would show which of the two it was.
pub(super) fn refuse_by_rule<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job,
    access: Access,
    authorization: Authorization,
    value: &Value,
) -> Step {
    if authorization == Authorization::Wait || !has_looked(turn, &mut job, access, name) {
        return stopped(turn, name, job, authorization);
    }
    let sight = match access {
        Access::RecordRead => Authorization::Deny,
        _ => authorize_read(turn, &mut job, name, value),
    };
    match sight {
        Authorization::Allow => stopped(turn, name, job, authorization),
        Authorization::Wait => Step::Blocked(job, Blocked::Rule),
        Authorization::Deny | Authorization::Failed => {
            stopped(turn, name, job, Authorization::Deny)
        }
    }
}

/// Why a subscriber loses its right, with the record at hand. As where a request is refused, a rule that has failed because of the record
/// denies.
pub(super) fn loss<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
    name: &Name,
    authorization: Authorization,
) -> RecordRefusal {
    match authorization {
        Authorization::Failed if !has_looked(turn, job, Access::RecordRead, name) => {
            RecordRefusal::RuleFailed
        }
        _ => RecordRefusal::Denied,
    }
}

/// Refuses a change that the record can't take before a rule has allowed it. A session that may not read the record is denied: else
/// it would find out by its changes what is there.
pub(super) fn refuse_change<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job,
    value: &Value,
) -> Step {
    match authorize_read(turn, &mut job, name, value) {
        Authorization::Allow => {
            refuse(turn, name, job, RecordRefusal::InvalidData);
            Step::Done
        }
        Authorization::Wait => Step::Blocked(job, Blocked::Rule),
        Authorization::Deny | Authorization::Failed => {
            stopped(turn, name, job, Authorization::Deny)
        }
    }
}

/// Whether a rule has looked at the record, or at what a change has made of it.
fn has_looked<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job,
    access: Access,
    name: &Name,
) -> bool {
    // What a patch has made has the rest of the record in it.
    job.after = None;
    let new = job.new_value();
    let asking = Asking {
        access,
        by: job.action(),
        data: job.given(new.as_ref()),
        old: Given::Unknown,
        may_wait: false,
    };
    ask(turn, job, name, asking).is_none()
}
