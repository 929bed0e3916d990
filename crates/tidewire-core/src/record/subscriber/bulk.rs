//! Messages about several records: the shard sends one request to each owner, and one reply to the session when all names are done.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::answer::{error, reason};
use super::subscription::{Begun, begin_subscription, unsubscribe};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{Effects, Flow};
use crate::entry::{
    BulkName, BulkReply, Entry, PendingReplyId, RecordRequest, RecordRequestKind, ReplyAction,
};
use crate::message::{Message, Reason, Record, RecordAction, RecordBulk, Refusal};
use crate::text::Name;
use crate::work::NAME_WORK;

/// Number of denials of one bulk message that are sent in one step. Sending them takes about a tenth of a millisecond.
const DENIALS: usize = 256;

pub(super) fn bulk<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: RecordBulk,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let refusal = Refusal {
        correlation,
        ..Refusal::new(Reason::InvalidData, RecordAction::Bulk(action))
    };
    if !turn.shard.is_bulk(names) {
        turn.send(id, &error(refusal));
        return Flow::Taken;
    }
    // The owner has the same work again for each name.
    turn.shard.count_work(2 * names.len() * NAME_WORK);
    if action == RecordBulk::Unsubscribe {
        for name in names {
            unsubscribe(turn, id, name);
        }
        if turn.is_last_piece() {
            acknowledge(turn, id, action, Vec::new(), correlation);
        }
        return Flow::Taken;
    }
    let reads = action.reads();
    if reads && !turn.is_piece() {
        acknowledge(turn, id, action, names.to_vec(), correlation);
    }
    let mut wanted: BTreeMap<Address, Vec<BulkName>> = BTreeMap::new();
    let mut count = 0;
    for (index, name) in (0..).zip(names) {
        if !turn.shard.is_record_name(name) {
            turn.send(id, &error(refusal));
            continue;
        }
        let owned = Name::from(*name);
        let serial = if action == RecordBulk::Notify {
            None
        } else {
            match begin_subscription(turn, id, &owned) {
                Begun::New(serial) => Some(serial),
                Begun::Already => {
                    let action = RecordAction::Bulk(RecordBulk::Subscribe);
                    let refusal = Refusal {
                        name: Some(name),
                        ..Refusal::new(Reason::MultipleSubscriptions, action)
                    };
                    turn.send(id, &error(refusal));
                    None
                }
                Begun::NoRoom => {
                    let refusal = Refusal {
                        name: Some(name),
                        ..refusal.because(Reason::Denied)
                    };
                    turn.send(id, &error(refusal));
                    continue;
                }
            }
        };
        count += 1;
        wanted
            .entry(turn.shard.owner(name))
            .or_default()
            .push(BulkName {
                name: owned,
                index,
                serial,
            });
    }
    let reply = match reads {
        // A single denial needs no order.
        true if count < 2 => None,
        _ => begin_bulk_reply(turn, id, action, names, correlation, count),
    };
    let Some(principal) = turn.principal(id) else {
        return Flow::Taken;
    };
    for (owner, names) in wanted {
        let correlation = correlation.map(Box::from);
        let what = RecordRequestKind::Bulk {
            action,
            names,
            reply,
            correlation,
        };
        turn.post(
            owner,
            Entry::RecordRequest(RecordRequest {
                session: id,
                principal: principal.clone(),
                what,
            }),
        );
    }
    Flow::Taken
}

/// Begins a reply that sends the denials and acknowledges the bulk message once `count` names are done. If no name is left and none was
/// refused, the message is acknowledged at once.
fn begin_bulk_reply<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: RecordBulk,
    names: &[&str],
    correlation: Option<&str>,
    count: usize,
) -> Option<PendingReplyId> {
    let echoed: &[&str] = if action == RecordBulk::Notify {
        names
    } else {
        &[]
    };
    if count == 0 {
        if names.is_empty() {
            acknowledge(turn, id, action, Vec::new(), correlation);
        }
        return None;
    }
    let names = echoed.iter().map(|name| Name::from(*name)).collect();
    let mut records = BulkReply {
        action,
        names,
        correlation: correlation.map(Box::from),
        allowed: false,
        acknowledges: !action.reads(),
        denied: Vec::new(),
        is_sorted: false,
        whole: None,
    };
    if turn.is_piece() && records.acknowledges {
        // A piece sends its own denials, and is one part of the reply that acknowledges the message.
        let whole = ReplyAction::Record(records.clone());
        records.whole = Some(turn.begin_bulk_reply(id, 1, whole));
        records.acknowledges = false;
    }
    Some(turn.begin_reply(id, count, ReplyAction::Record(records)))
}

/// Finishes a bulk message whose names are all done: sends the denials in the order of the names, then the acknowledgement. Returns the
/// reply if it has more denials than one step sends.
pub(crate) fn finish<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    mut records: BulkReply,
) -> Option<BulkReply> {
    if !records.is_sorted {
        records.denied.sort_by_key(|(index, ..)| Reverse(*index));
        records.is_sorted = true;
    }
    let correlation = records.correlation.as_deref();
    for _ in 0..DENIALS {
        let Some((_, name, why)) = records.denied.pop() else {
            break;
        };
        let refusal = Refusal {
            name: Some(&name),
            correlation,
            ..Refusal::new(reason(why), RecordAction::Bulk(records.action))
        };
        turn.send(id, &error(refusal));
    }
    if !records.denied.is_empty() {
        return Some(records);
    }
    if records.allowed && records.acknowledges {
        let names = records.names.iter().map(Name::as_str).collect();
        acknowledge(turn, id, records.action, names, correlation);
    }
    None
}

/// Acknowledges a bulk message, with the names that it echoes.
pub(crate) fn acknowledge<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: RecordBulk,
    names: Vec<&str>,
    correlation: Option<&str>,
) {
    let ack = Record::Ack {
        action,
        names,
        correlation,
    };
    turn.send(id, &Message::Record(ack));
}
