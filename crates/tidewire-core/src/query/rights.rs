//! Whether a principal may read a record that a query selects.

use crate::context::ShardContext;
use crate::permission::{Access, Decision, Question, RequestedAction};
use crate::principal::Principal;
use crate::text::{Name, Payload};
use crate::time::Now;

/// Decides whether the principal may read the record with this value. `values` are the records that its rule has read, at most `reads_max`. The
/// record itself is added when the rule needs it, so a needed record is another one.
pub(super) fn decide(
    context: &ShardContext,
    now: Now,
    principal: &Principal,
    (name, data): (&Name, &Payload),
    values: &mut Vec<(Name, Option<Payload>)>,
    reads_max: usize,
) -> Decision {
    loop {
        let question = Question {
            principal,
            access: Access::RecordRead,
            by: RequestedAction::Query,
            name: Some(name),
            data: None,
            old_data: Some(data.as_str()),
            now: now.wall,
            values,
        };
        match context.permission.decide(&question) {
            Decision::Need(_) if values.len() >= reads_max => return Decision::Failed,
            Decision::Need(needs) if needs == *name => values.push((needs, Some(data.clone()))),
            decision => return decision,
        }
    }
}

/// Whether the principal may read the record with this value. Live queries have only rules that need no other record
/// (`Permission::query_right`); a rule that needs one nevertheless does not allow the record.
pub(crate) fn may_read(
    context: &ShardContext,
    now: Now,
    principal: &Principal,
    name: &Name,
    data: &Payload,
) -> bool {
    let decision = decide(context, now, principal, (name, data), &mut Vec::new(), 1);
    decision == Decision::Allow
}
