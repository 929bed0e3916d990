//! Transactions at the session's shard: checks that one owner can decide the whole transaction, and sends its answer to the session.

use std::collections::BTreeSet;

use super::answer::{error, reason};
use super::post_operation;
use crate::address::SessionId;
use crate::context::{ShardContext, TurnContext};
use crate::effect::Effects;
use crate::entry::{
    OperationChange, OwnedOperation, OwnedTransaction, RecordOperation, Stored, TransactionResult,
};
use crate::json::{self, JsonKind, JsonLimits, Operation};
use crate::message::{Message, Only, Reason, Record, RecordAction, Refusal, Tag, TransactionFault};
use crate::query::collection::is_under;
use crate::text::{Name, Payload};

/// The version of the protocol between nodes that has transactions.
const LEVEL: u16 = 5;

/// Handles a session's transaction.
pub(super) fn commit<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    correlation: &str,
    data: Option<&str>,
) {
    match checked(turn.shard, names, data) {
        Ok(operations) => {
            let transaction = OwnedTransaction {
                correlation: correlation.into(),
                operations,
            };
            let operation = RecordOperation::Transaction(Box::new(transaction));
            post_operation(turn, id, names[0], operation);
        }
        Err(fault) => {
            let refusal = Refusal {
                data: Some(fault.data()),
                ..refusal(Reason::TransactionRefused, correlation)
            };
            turn.send(id, &error(refusal));
        }
    }
}

/// The operations, if one owner can decide them in one step. There is at least one.
fn checked(
    context: &ShardContext,
    names: &[&str],
    data: Option<&str>,
) -> Result<Vec<OwnedOperation>, TransactionFault> {
    let settings = &context.settings;
    let first = names.first().ok_or(TransactionFault::Count)?;
    if names.len() > settings.limits.transaction_names_max {
        return Err(TransactionFault::Count);
    }
    if !names.iter().all(|name| context.is_record_name(name)) {
        return Err(TransactionFault::Name);
    }
    let mut known = BTreeSet::new();
    if !names.iter().all(|name| known.insert(*name)) {
        return Err(TransactionFault::Repeated);
    }
    let is_same = |is_same: &dyn Fn(&str) -> bool| names.iter().all(|name| is_same(name));
    let tag = settings.tags.tag(first);
    if !is_same(&|name| settings.tags.tag(name) == tag) {
        return Err(TransactionFault::Slots);
    }
    let is_memory_only = |name: &str| is_under(&settings.memory_only_prefixes, name);
    if !is_same(&|name| is_memory_only(name) == is_memory_only(first)) {
        return Err(TransactionFault::MemoryOnly);
    }
    let store = settings.routes.find(first);
    if !is_same(&|name| settings.routes.find(name) == store) {
        return Err(TransactionFault::Stores);
    }
    if !is_memory_only(first) && settings.stores_without_transactions.contains(&store) {
        return Err(TransactionFault::StoreKind);
    }
    if context.owner(first).node != context.address.node && context.level < LEVEL {
        return Err(TransactionFault::Level);
    }
    let data = data.ok_or(TransactionFault::Malformed)?;
    // Each value is checked by its own limits below. Here the values are in an array of objects.
    let limits = JsonLimits {
        nesting_max: settings.limits.nesting_max + 2,
        bytes_max: settings.limits.message_bytes_max,
        ..context.json_limits()
    };
    context.count_work(data.len());
    json::check(data, limits).map_err(|_| TransactionFault::Malformed)?;
    let operations = json::parse_operations(data).map_err(|_| TransactionFault::Malformed)?;
    if operations.len() != names.len() {
        return Err(TransactionFault::Count);
    }
    let pairs = names.iter().zip(operations);
    pairs
        .map(|(name, operation)| owned(context, name, &operation))
        .collect()
}

fn owned(
    context: &ShardContext,
    name: &str,
    operation: &Operation<'_>,
) -> Result<OwnedOperation, TransactionFault> {
    let only = match operation.condition.as_deref() {
        None => Only::Always,
        Some("missing") => Only::Missing,
        Some("present") => Only::Present,
        Some(state) => Only::Is(Tag::parse(state).ok_or(TransactionFault::Malformed)?),
    };
    let change = match operation.data {
        None => OperationChange::Check,
        Some("null") => OperationChange::Delete,
        Some(data) => match context.json_kind(data) {
            Ok(JsonKind::Object | JsonKind::Array) => {
                OperationChange::Put(Payload::from_checked(data))
            }
            _ => return Err(TransactionFault::Value),
        },
    };
    Ok(OwnedOperation {
        name: Name::from(name),
        only,
        change,
    })
}

/// Sends the decision of the owner to the session.
pub(super) fn decided<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    correlation: &str,
    result: &TransactionResult,
) {
    match result {
        TransactionResult::Committed { stored } => {
            let data = &states(stored);
            turn.send(
                id,
                &Message::Record(Record::Committed { correlation, data }),
            );
        }
        TransactionResult::PreconditionFailed { name, tag } => {
            let failed = Record::PreconditionFailed {
                name,
                correlation,
                tag: *tag,
            };
            turn.send(id, &Message::Record(failed));
        }
        TransactionResult::Refused { name, why } => {
            let refusal = Refusal {
                name: Some(name),
                ..refusal(reason(*why), correlation)
            };
            turn.send(id, &error(refusal));
        }
    }
}

/// The states of the records, as JSON.
fn states(stored: &[Stored]) -> String {
    let states = stored.iter().map(|stored| match stored.tag {
        Some(tag) => format!("\"{tag}\""),
        None => "null".to_owned(),
    });
    format!("[{}]", states.collect::<Vec<String>>().join(","))
}

/// A refusal, which names the action of a `Put`: peers know it.
fn refusal<'a>(reason: Reason, correlation: &'a str) -> Refusal<'a, RecordAction> {
    Refusal {
        correlation: Some(correlation),
        write_ack: true,
        ..Refusal::new(reason, RecordAction::CreateAndUpdate)
    }
}
