//! The rights that a job needs, and how much its answers may reveal about the record.
//!
//! If a rule can decide without the record, it decides first, so that a denial costs neither a load nor a patch. If a session may not read
//! the record, its answer does not depend on the record: `spec/rights.md` has the whole table.

use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{RecordOperation, RecordRefusal};
use crate::message::{RecordAction, RecordBulk};
use crate::permission::{Access, Authorization};
use crate::record::job::{Job, JobKind, Kind};
use crate::record::request::{Asking, Given, Step, ask, refuse, stopped};
use crate::record::state::{Blocked, Value};
use crate::text::Name;

/// The rights that a job needs regardless of its record, in the order in which the owner checks them. A job that finds no record may also
/// need the right to create it.
fn needed(kind: &JobKind) -> &'static [Access] {
    match kind.action() {
        RecordAction::Bulk(RecordBulk::Notify) => &[Access::RecordNotify],
        RecordAction::Bulk(_) | RecordAction::Read | RecordAction::Head => &[Access::RecordRead],
        RecordAction::Delete | RecordAction::Erase => &[Access::RecordDelete],
        RecordAction::Update | RecordAction::Patch | RecordAction::PatchMulti => {
            &[Access::RecordWrite]
        }
        // A `Put` needs the right to create only if the record is missing.
        RecordAction::CreateAndUpdate | RecordAction::CreateAndPatch => match kind {
            JobKind::Requested(RecordOperation::Put(_)) | JobKind::Part(_) => {
                &[Access::RecordWrite]
            }
            _ => &[Access::RecordWrite, Access::RecordCreate],
        },
        RecordAction::Listen => &[Access::RecordListen],
    }
}

/// Authorizes a job before its record is known. Returns `None` if nothing has refused the job so far, so that the decision may need the
/// record. Without `may_wait` the rules get no other record, because at most one read is in flight for each record.
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

/// Whether the job's session may read the record as it is. Only such a session gets an answer that depends on the record.
pub(super) fn authorize_read<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
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

/// Refuses a job that a rule did not allow, when the record is known. A rule may fail because of one value of the record and deny because
/// of another. The session may see the difference only if it may read the record. If the rule has looked at the record, the owner checks
/// the read right for a denial as well. Otherwise the reads of that check would reveal which of the two happened.
pub(super) fn refuse_by_rule<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job<K>,
    access: Access,
    authorization: Authorization,
    value: &Value,
) -> Step {
    if authorization == Authorization::Wait || !depends_on_record(turn, &mut job, access, name) {
        return stopped(turn, name, job, authorization);
    }
    let sight = match access {
        Access::RecordRead => Authorization::Deny,
        _ => authorize_read(turn, &mut job, name, value),
    };
    match sight {
        Authorization::Allow => stopped(turn, name, job, authorization),
        Authorization::Wait => Step::blocked(job, Blocked::Rule),
        Authorization::Deny | Authorization::Failed => {
            stopped(turn, name, job, Authorization::Deny)
        }
    }
}

/// Why a subscriber loses its right, when the record is known.
pub(super) fn loss<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
    name: &Name,
    authorization: Authorization,
) -> RecordRefusal {
    refusal_without_sight(turn, job, Access::RecordRead, name, authorization)
}

/// Refuses a change that does not fit the record, before a rule has allowed it. If the session may not read the record, the change is
/// denied: otherwise the session could find out the record's content by trying changes.
pub(super) fn refuse_change<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    mut job: Job<K>,
    value: &Value,
) -> Step {
    match authorize_read(turn, &mut job, name, value) {
        Authorization::Allow => {
            refuse(turn, name, job, RecordRefusal::InvalidData);
            Step::Done
        }
        Authorization::Wait => Step::blocked(job, Blocked::Rule),
        Authorization::Deny | Authorization::Failed => {
            stopped(turn, name, job, Authorization::Deny)
        }
    }
}

/// Why a rule did not allow a job, when the record is known. As in `refuse_by_rule`, only a session that may read the record may see that a
/// rule failed because of it. Here the owner does not find out whether it may: a rule that failed because of the record counts as a denial.
pub(super) fn refusal_without_sight<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
    access: Access,
    name: &Name,
    authorization: Authorization,
) -> RecordRefusal {
    match authorization {
        Authorization::Failed if !depends_on_record(turn, job, access, name) => {
            RecordRefusal::RuleFailed
        }
        _ => RecordRefusal::Denied,
    }
}

/// Whether the rule needs the record, or the result of a change to it.
fn depends_on_record<E: Effects, K: Kind>(
    turn: &mut TurnContext<'_, E>,
    job: &mut Job<K>,
    access: Access,
    name: &Name,
) -> bool {
    // The result of a patch contains the rest of the record.
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
