//! Records at the session's shard: checks the session's requests and posts them to the owners of the records.
//!
//! The session's subscriptions are in `subscription`, messages about several records in `bulk`. `answer` turns the owner's answers and
//! changes into messages.

mod announcing;
mod answer;
mod bulk;
mod subscription;
mod transaction;

pub(crate) use announcing::{announce, note_incarnation, note_shown, note_version, resumed};
pub(crate) use answer::{answered, catch_up, published};
pub(crate) use bulk::{acknowledge, finish};
pub(crate) use subscription::{granted, lose, release, serial};

use self::answer::error;
use self::bulk::bulk;
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{Effects, Flow};
use crate::entry::{
    Entry, OwnedKey, OwnedPut, OwnedWrite, RecordOperation, RecordRead, RecordRequest,
    RecordRequestKind,
};
use crate::json::JsonKind;
use crate::listen;
use crate::message::{Change, Only, Reason, Record, RecordAction, Refusal, Topic, Write};
use crate::record::change;
use crate::session::Session;
use crate::store::Version;
use crate::text::Payload;
use crate::work::REQUEST_WORK;

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Record<'_>,
) -> Flow {
    if !matches!(message, Record::Bulk { .. } | Record::Listen(_)) {
        turn.shard.count_work(REQUEST_WORK);
    }
    match message {
        Record::Bulk {
            action,
            names,
            correlation,
        } => return bulk(turn, id, *action, names, *correlation),
        Record::Read { name } => {
            return read(turn, id, name, RecordAction::Read, RecordRead::Value);
        }
        Record::Head { name } => {
            return read(turn, id, name, RecordAction::Head, RecordRead::Version);
        }
        Record::Delete { name } => {
            if accepts_name(turn, id, name, RecordAction::Delete) {
                post_operation(turn, id, name, RecordOperation::Delete);
            }
        }
        Record::Write(write, change) => self::write(turn, id, write, change),
        Record::Fetch { name, correlation } => fetch(turn, id, name, correlation),
        Record::Put {
            name,
            correlation,
            only,
            data,
        } => put(turn, id, name, correlation, *only, *data),
        Record::Commit {
            names,
            correlation,
            data,
        } => transaction::commit(turn, id, names, correlation, *data),
        Record::Listen(message) => return listen::message(turn, id, Topic::Record, message),
        // Answers of a server have no meaning here.
        Record::Ack { .. }
        | Record::ReadResponse { .. }
        | Record::HeadResponse { .. }
        | Record::HeadResponseBulk { .. }
        | Record::DeleteSuccess { .. }
        | Record::Deleted { .. }
        | Record::WriteAck { .. }
        | Record::Fetched { .. }
        | Record::Stored { .. }
        | Record::Committed { .. }
        | Record::PreconditionFailed { .. }
        | Record::HasProvider { .. }
        | Record::Error(_) => {}
    }
    Flow::Taken
}

/// Requests the value or the version of a record, unless the session has to wait for the answers to earlier reads.
fn read<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    action: RecordAction,
    what: RecordRead,
) -> Flow {
    if !accepts_name(turn, id, name, action) {
        return Flow::Taken;
    }
    let session = turn.sessions.find_mut(id);
    if !session.is_some_and(Session::begin_read) {
        return Flow::Wait;
    }
    post_operation(turn, id, name, RecordOperation::Read(what));
    Flow::Taken
}

/// Whether a session may request a record with this name. Otherwise it gets the refusal.
fn accepts_name<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    action: RecordAction,
) -> bool {
    let is_accepted = turn.shard.is_record_name(name);
    if !is_accepted {
        let refusal = Refusal::new(Reason::InvalidData, action);
        turn.send(id, &error(refusal));
    }
    is_accepted
}

fn post_operation<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    operation: RecordOperation,
) {
    let what = RecordRequestKind::One(name.into(), operation);
    post_request(turn, id, name, what);
}

fn post_request<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    what: RecordRequestKind,
) {
    if let Some(principal) = turn.principal(id) {
        let owner = turn.shard.owner(name);
        turn.post(
            owner,
            Entry::RecordRequest(RecordRequest {
                session: id,
                principal,
                what,
            }),
        );
    }
}

fn write<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    write: &Write<'_>,
    change: &Change<'_>,
) {
    let action = change.action();
    let name = Some(write.name).filter(|name| turn.shard.is_record_name(name));
    let refusal = Refusal {
        name,
        correlation: write.correlation,
        write_ack: write.write_ack,
        ..Refusal::new(Reason::InvalidData, action)
    };
    let is_key = write.key.is_none_or(|key| {
        write.write_ack && key.text.len() <= turn.shard.settings.limits.write_key_bytes_max
    });
    let checked = match name {
        Some(_) if is_key => change::check(turn.shard, change),
        _ => None,
    };
    let version = match write.version {
        -1 => Some(None),
        version => u32::try_from(version)
            .ok()
            .map(|version| Some(Version(version))),
    };
    let (Some(change), Some(version)) = (checked, version) else {
        return turn.send(id, &error(refusal));
    };
    let owned = OwnedWrite {
        version,
        correlation: write.correlation.map(Box::from),
        write_ack: write.write_ack,
        action,
        change,
        put: None,
        key: write.key.map(|key| OwnedKey {
            text: key.text.into(),
            seen: key.seen,
        }),
    };
    let operation = RecordOperation::Write(Box::new(owned));
    post_operation(turn, id, write.name, operation);
}

fn fetch<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str, correlation: &str) {
    if turn.shard.is_record_name(name) {
        let read = RecordOperation::Read(RecordRead::State(correlation.into()));
        return post_operation(turn, id, name, read);
    }
    let refusal = Refusal {
        correlation: Some(correlation),
        ..Refusal::new(Reason::InvalidData, RecordAction::Read)
    };
    turn.send(id, &error(refusal));
}

fn put<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    correlation: &str,
    only: Only,
    data: Option<&str>,
) {
    let action = match data {
        Some(_) => RecordAction::CreateAndUpdate,
        None => RecordAction::Delete,
    };
    let refusal = Refusal {
        name: Some(name).filter(|name| turn.shard.is_record_name(name)),
        correlation: Some(correlation),
        write_ack: true,
        ..Refusal::new(Reason::InvalidData, action)
    };
    let is_value = data.is_none_or(|data| {
        matches!(
            turn.shard.json_kind(data),
            Ok(JsonKind::Object | JsonKind::Array)
        )
    });
    if refusal.name.is_none() || !is_value {
        return turn.send(id, &error(refusal));
    }
    let put = OwnedPut {
        correlation: correlation.into(),
        only,
        data: data.map(Payload::from_checked),
    };
    post_operation(turn, id, name, RecordOperation::Put(Box::new(put)));
}
