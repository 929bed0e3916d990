//! Records at the session's shard: checks requests, keeps the session's subscriptions, turns the owner's answers into messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{Effects, Flow};
use crate::entry::{
    Answer, BulkName, BulkReply, Entry, OwnedChange, OwnedPut, OwnedWrite, PendingReplyId,
    Published, RecordAnswer, RecordRefusal, RecordRequest, RecordRequestKind, ReplyAction,
    Snapshot,
};
use crate::footprint::{SUBSCRIPTION_BYTES, text_bytes};
use crate::hub::HubTopic;
use crate::json::JsonKind;
use crate::lag;
use crate::listen;
use crate::message::{
    Change, Message, Only, Record, RecordAction, RecordBulk, RecordError, Refusal, Topic,
    WireVersion, Write,
};
use crate::record::change;
use crate::session::RecordSubscription;
use crate::store::Version;
use crate::text::{Name, Payload};
use crate::work::{NAME_WORK, REQUEST_WORK};

const TOPIC: HubTopic = HubTopic::Record;

/// The version on the wire of a record that does not exist.
const MISSING: WireVersion = -1;

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
            request(turn, id, name, RecordAction::Read, RecordRequestKind::Read)
        }
        Record::Head { name } => {
            request(turn, id, name, RecordAction::Head, RecordRequestKind::Head)
        }
        Record::Delete { name } if turn.shard.draining => {
            turn.send(id, &error(RecordError::Delete { name }));
        }
        Record::Delete { name } => request(
            turn,
            id,
            name,
            RecordAction::Delete,
            RecordRequestKind::Delete,
        ),
        Record::Write(write, change) => self::write(turn, id, write, change, None),
        Record::RepeatableWrite { write, change, key } => {
            self::write(turn, id, write, change, Some(key));
        }
        Record::Fetch { name, correlation } => fetch(turn, id, name, correlation),
        Record::Put {
            name,
            correlation,
            only,
            data,
        } => put(turn, id, name, correlation, *only, *data),
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
        | Record::PreconditionFailed { .. }
        | Record::HasProvider { .. }
        | Record::Error(_) => {}
    }
    Flow::Taken
}

/// Sends the owner's answer to the session. Returns true if the name is done, or false if the shard asks the owner again.
pub(crate) fn answered<E: Effects>(turn: &mut TurnContext<'_, E>, answer: RecordAnswer) -> bool {
    let RecordAnswer {
        session: id,
        name,
        reply,
        what,
    } = answer;
    match what {
        Answer::Granted {
            serial,
            epoch,
            action,
            correlation,
            ..
        } if is_asked_again(turn, id, &name, serial) => {
            release(turn, name.clone(), epoch, (id, serial));
            let names = vec![BulkName {
                name: name.clone(),
                index: reply.map_or(0, |reply| reply.index),
                serial: Some(serial),
            }];
            let what = RecordRequestKind::Bulk {
                action,
                names,
                reply,
                correlation,
            };
            post_request(turn, id, &name, what);
            return false;
        }
        Answer::Granted {
            serial,
            epoch,
            provided,
            value_bytes,
            snapshot,
            ..
        } => {
            if !grant(turn, id, &name, serial, epoch, value_bytes) {
                return true;
            }
            if provided {
                turn.send(
                    id,
                    &Message::Record(Record::HasProvider {
                        name: &name,
                        provided,
                    }),
                );
            }
            tell(turn, id, &name, &snapshot);
        }
        Answer::Snapshot(snapshot) => tell(turn, id, &name, &snapshot),
        Answer::NotFound => {
            turn.send(
                id,
                &error(RecordError::NotFound {
                    name: &name,
                    action: RecordAction::Read,
                }),
            );
        }
        Answer::Deleted => turn.send(id, &Message::Record(Record::DeleteSuccess { name: &name })),
        Answer::Written { correlation } => {
            let correlation = correlation.as_deref();
            turn.send(
                id,
                &Message::Record(Record::WriteAck {
                    name: &name,
                    correlation,
                }),
            );
        }
        Answer::Fetched { correlation, state } => {
            let state = state
                .as_ref()
                .map(|record| (record.tag(), record.data.as_str()));
            let fetched = Record::Fetched {
                name: &name,
                correlation: &correlation,
                state,
            };
            turn.send(id, &Message::Record(fetched));
        }
        Answer::Stored {
            correlation,
            stored,
        } => {
            let stored = Record::Stored {
                name: &name,
                correlation: &correlation,
                existed: stored.existed,
                tag: stored.tag,
            };
            turn.send(id, &Message::Record(stored));
        }
        Answer::PreconditionFailed { correlation, tag } => {
            let failed = Record::PreconditionFailed {
                name: &name,
                correlation: &correlation,
                tag,
            };
            turn.send(id, &Message::Record(failed));
        }
        Answer::VersionExists {
            version,
            data,
            action,
            correlation,
            write_ack,
        } => {
            let (version, correlation) = (on_wire(version), correlation.as_deref());
            let data = data.as_ref().map(Payload::as_str);
            let conflict = RecordError::VersionExists {
                name: &name,
                version,
                data,
                action,
                correlation,
                write_ack,
            };
            turn.send(id, &error(conflict));
        }
        Answer::InvalidVersion {
            version,
            action,
            correlation,
            write_ack,
        } => {
            let (version, correlation) = (on_wire(version), correlation.as_deref());
            let invalid = RecordError::InvalidVersion {
                name: &name,
                version,
                action,
                correlation,
                write_ack,
            };
            turn.send(id, &error(invalid));
        }
        Answer::Refused {
            why,
            action,
            serial,
            correlation,
            write_ack,
        } => {
            forget_subscription(turn, id, &name, serial);
            if let Some(reply) = reply
                && matches!(why, RecordRefusal::Denied | RecordRefusal::RuleFailed)
                && let Some(records) = turn.pending_replies.records_mut(reply)
            {
                records.denied.push((reply.index, name, why));
                return true;
            }
            let correlation = correlation.as_deref();
            let refusal = Refusal {
                action,
                name: Some(&name),
                correlation,
                write_ack,
            };
            turn.send(id, &error(refused(why, refusal)));
        }
        // The engine hands these answers to the reauthorizer.
        Answer::Reauthorized { .. } | Answer::Lost { .. } => {}
    }
    true
}

/// The serial of the session's subscription to a record, whether granted or only requested.
pub(crate) fn serial<E: Effects>(
    turn: &TurnContext<'_, E>,
    id: SessionId,
    name: &str,
) -> Option<u32> {
    let state = turn.sessions.find(id)?.state.as_ref()?;
    Some(state.subscriptions.get(name)?.serial)
}

/// The epoch with which the subscription with this serial was granted.
pub(crate) fn granted<E: Effects>(
    turn: &TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    serial: u32,
) -> Option<u64> {
    let state = turn.sessions.find(id)?.state.as_ref()?;
    let subscription = state.subscriptions.get(name)?;
    subscription
        .granted
        .filter(|_| subscription.serial == serial)
}

/// Ends a subscription whose right was lost, and drops its changes that are not sent yet. Returns false if there is no such subscription.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    serial: u32,
    why: RecordRefusal,
) -> bool {
    let session = turn.sessions.find_mut(id);
    let Some(with) = session.and_then(|session| session.state.as_mut()) else {
        return false;
    };
    let held = with.subscriptions.get(name).copied();
    let Some(epoch) = held
        .filter(|subscription| subscription.serial == serial)
        .and_then(|subscription| subscription.granted)
    else {
        return false;
    };
    with.subscriptions.remove(name);
    turn.sessions
        .remove_state_bytes(id, subscription_bytes(name));
    turn.hub.revoke(TOPIC, name, id, turn.sessions);
    release(turn, name.clone(), epoch, (id, serial));
    let refusal = Refusal {
        action: RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead),
        name: Some(name),
        correlation: None,
        write_ack: false,
    };
    turn.send(id, &error(refused(why, refusal)));
    true
}

/// Delivers a record's change, its deletion or the change of its provider to this shard's subscribers.
pub(crate) fn published<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    what: &Published,
    except: Option<SessionId>,
) {
    match what {
        Published::Changed {
            version,
            change,
            full,
        } => {
            let write = Write {
                name,
                version: on_wire(*version),
                correlation: None,
                write_ack: false,
            };
            let change = match change {
                OwnedChange::Update(data) => Change::Update {
                    data: Some(data.as_str()),
                },
                OwnedChange::Patch(patch) => Change::Patch {
                    path: &patch.text,
                    data: patch.data.as_ref().map(Payload::as_str),
                },
                OwnedChange::PatchMulti {
                    text: Some(text), ..
                } => Change::PatchMulti {
                    data: Some(text.as_str()),
                    full: Some(full.as_str()),
                },
                OwnedChange::PatchMulti { text: None, .. } => Change::Update {
                    data: Some(full.as_str()),
                },
            };
            let message = Message::Record(Record::Write(write, change));
            turn.fan_out_value(name, except, &message, full.len());
        }
        // The subscriptions end here, so a lagging session could not receive the message later.
        Published::Deleted => {
            turn.fan_out_to_all(
                TOPIC,
                name,
                except,
                &Message::Record(Record::Deleted { name }),
            );
            for member in turn.hub.dissolve(TOPIC, name, turn.sessions) {
                let session = turn.sessions.find_mut(member);
                let state = session.and_then(|session| session.state.as_mut());
                if state.is_some_and(|with| with.subscriptions.remove(name).is_some()) {
                    turn.sessions
                        .remove_state_bytes(member, subscription_bytes(name));
                }
            }
        }
        Published::Provided(provided) => {
            let message = Record::HasProvider {
                name,
                provided: *provided,
            };
            turn.fan_out_to_all(TOPIC, name, except, &Message::Record(message));
        }
    }
}

/// Sends a session that has missed changes the value after them.
pub(crate) fn catch_up<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    version: Version,
    data: &Payload,
) {
    let write = Write {
        name,
        version: on_wire(version),
        correlation: None,
        write_ack: false,
    };
    let change = Change::Update {
        data: Some(data.as_str()),
    };
    turn.send(id, &Message::Record(Record::Write(write, change)));
}

fn bulk<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: RecordBulk,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let refusal = |name| Refusal {
        action: RecordAction::Bulk(action),
        name,
        correlation,
        write_ack: false,
    };
    if !turn.shard.is_bulk(names) {
        turn.send(id, &error(RecordError::InvalidData(refusal(None))));
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
            turn.send(id, &error(RecordError::InvalidData(refusal(None))));
            continue;
        }
        let owned = Name::from(*name);
        let serial = if action == RecordBulk::Notify {
            None
        } else {
            match begin_subscription(turn, id, &owned) {
                Begun::New(serial) => Some(serial),
                Begun::Already => {
                    turn.send(id, &error(RecordError::MultipleSubscriptions { name }));
                    None
                }
                Begun::NoRoom => {
                    turn.send(id, &error(RecordError::Denied(refusal(Some(name)))));
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

enum Begun {
    New(u32),
    Already,
    NoRoom,
}

/// Notes that the session has requested a subscription to the record.
fn begin_subscription<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
) -> Begun {
    let has_room = turn.has_room(id, 1);
    let Some(session) = turn.sessions.find_mut(id) else {
        return Begun::NoRoom;
    };
    if session
        .state
        .as_ref()
        .is_some_and(|with| with.subscriptions.contains(name))
    {
        return Begun::Already;
    }
    if !has_room {
        return Begun::NoRoom;
    }
    session.serial = session.serial.wrapping_add(1);
    let subscription = RecordSubscription {
        serial: session.serial,
        granted: None,
        again: false,
    };
    let serial = session.serial;
    let subscriptions = &mut session.state(turn.shard.seed).subscriptions;
    subscriptions.insert(name.clone(), subscription);
    turn.sessions.add_state_bytes(id, subscription_bytes(name));
    Begun::New(serial)
}

/// Bytes that a subscription takes in the session's state.
fn subscription_bytes(name: &Name) -> usize {
    SUBSCRIPTION_BYTES + text_bytes(name)
}

/// Whether rights have changed since the subscription was requested, so that it has to be authorized again.
fn is_asked_again<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    serial: u32,
) -> bool {
    let session = turn.sessions.find_mut(id);
    let subscription = session
        .and_then(|session| session.state.as_mut())
        .and_then(|with| with.subscriptions.get_mut(name));
    subscription.is_some_and(|subscription| {
        subscription.serial == serial && std::mem::take(&mut subscription.again)
    })
}

/// Notes that the owner has granted a subscription. If the session has ended it in the meantime, releases it and returns false.
fn grant<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    serial: u32,
    epoch: u64,
    value_bytes: usize,
) -> bool {
    let subscription = turn
        .sessions
        .find_mut(id)
        .and_then(|session| session.state.as_mut())
        .and_then(|with| with.subscriptions.get_mut(name));
    match subscription {
        // The owner posts this answer and all later changes of the record to the same mailbox. So the session joins the fan-out here, in
        // the order of the owner's decisions: it gets every change after the snapshot of this answer, and no earlier one. The serial
        // tells whether the session has ended the subscription, or ended it and subscribed again, since the request; a grant for an old
        // subscription is returned to the owner. A session that lags is skipped at once, or it would get changes while it should get
        // none.
        Some(subscription) if subscription.serial == serial => {
            subscription.granted = Some(epoch);
            turn.hub.join(TOPIC, name, id, turn.sessions);
            if let Some(channel) = turn.hub.find(TOPIC, name) {
                turn.hub
                    .set_value_bytes(channel, value_bytes, turn.sessions);
            }
            lag::joined(turn, TOPIC, name, id);
            true
        }
        _ => {
            release(turn, name.clone(), epoch, (id, serial));
            false
        }
    }
}

fn unsubscribe<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
    let subscription = turn
        .sessions
        .find_mut(id)
        .and_then(|session| session.state.as_mut())
        .and_then(|with| with.subscriptions.take(name));
    let subscription = subscription.map(|(name, subscription)| {
        turn.sessions
            .remove_state_bytes(id, subscription_bytes(&name));
        subscription
    });
    // A subscription that was not granted yet is released when the grant arrives.
    if let Some((epoch, serial)) =
        subscription.and_then(|subscription| Some((subscription.granted?, subscription.serial)))
    {
        turn.hub.leave(TOPIC, name, id, turn.sessions);
        release(turn, name.into(), epoch, (id, serial));
    }
}

fn forget_subscription<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    serial: Option<u32>,
) {
    let session = turn.sessions.find_mut(id);
    if let Some(with) = session.and_then(|session| session.state.as_mut())
        && with
            .subscriptions
            .get(name)
            .is_some_and(|subscription| Some(subscription.serial) == serial)
    {
        with.subscriptions.remove(name);
        turn.sessions
            .remove_state_bytes(id, subscription_bytes(name));
    }
}

/// Tells the record's owner that a granted subscription has ended.
pub(crate) fn release<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: Name,
    epoch: u64,
    (session, serial): (SessionId, u32),
) {
    let release = Entry::RecordRelease {
        name: name.clone(),
        epoch,
        session,
        serial,
    };
    turn.post(turn.shard.owner(&name), release);
}

fn request<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    action: RecordAction,
    what: impl FnOnce(Name) -> RecordRequestKind,
) {
    if !turn.shard.is_record_name(name) {
        let refusal = Refusal {
            action,
            name: None,
            correlation: None,
            write_ack: false,
        };
        return turn.send(id, &error(RecordError::InvalidData(refusal)));
    }
    post_request(turn, id, name, what(name.into()));
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
    key: Option<&str>,
) {
    let action = change.action();
    let name = Some(write.name).filter(|name| turn.shard.is_record_name(name));
    let refusal = Refusal {
        action,
        name,
        correlation: write.correlation,
        write_ack: write.write_ack,
    };
    if turn.shard.draining {
        return turn.send(id, &error(RecordError::Update(refusal)));
    }
    let is_key = key.is_none_or(|key| {
        write.write_ack && key.len() <= turn.shard.settings.limits.write_key_bytes_max
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
        return turn.send(id, &error(RecordError::InvalidData(refusal)));
    };
    let owned = OwnedWrite {
        version,
        correlation: write.correlation.map(Box::from),
        write_ack: write.write_ack,
        action,
        change,
        put: None,
        key: key.map(Box::from),
    };
    post_request(
        turn,
        id,
        write.name,
        RecordRequestKind::Write(write.name.into(), Box::new(owned)),
    );
}

fn fetch<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str, correlation: &str) {
    if turn.shard.is_record_name(name) {
        let what = RecordRequestKind::Fetch(name.into(), correlation.into());
        return post_request(turn, id, name, what);
    }
    let refusal = Refusal {
        action: RecordAction::Read,
        name: None,
        correlation: Some(correlation),
        write_ack: false,
    };
    turn.send(id, &error(RecordError::InvalidData(refusal)));
}

fn put<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    correlation: &str,
    only: Only,
    data: Option<&str>,
) {
    let refusal = Refusal {
        action: match data {
            Some(_) => RecordAction::CreateAndUpdate,
            None => RecordAction::Delete,
        },
        name: Some(name).filter(|name| turn.shard.is_record_name(name)),
        correlation: Some(correlation),
        write_ack: true,
    };
    if turn.shard.draining {
        return turn.send(id, &error(RecordError::Update(refusal)));
    }
    let is_value = data.is_none_or(|data| {
        matches!(
            turn.shard.json_kind(data),
            Ok(JsonKind::Object | JsonKind::Array)
        )
    });
    if refusal.name.is_none() || !is_value {
        return turn.send(id, &error(RecordError::InvalidData(refusal)));
    }
    let put = OwnedPut {
        correlation: correlation.into(),
        only,
        data: data.map(Payload::from_checked),
    };
    post_request(
        turn,
        id,
        name,
        RecordRequestKind::Put(name.into(), Box::new(put)),
    );
}

fn tell<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    snapshot: &Snapshot,
) {
    let message = match snapshot {
        Snapshot::Read(Some((version, data))) => Record::ReadResponse {
            name,
            version: on_wire(*version),
            data: data.as_str(),
        },
        Snapshot::Read(None) => Record::ReadResponse {
            name,
            version: MISSING,
            data: "{}",
        },
        Snapshot::Head(version) => Record::HeadResponse {
            name,
            version: version.map_or(MISSING, on_wire),
        },
        Snapshot::Nothing => return,
    };
    turn.send(id, &Message::Record(message));
}

fn refused(why: RecordRefusal, refusal: Refusal<'_, RecordAction>) -> RecordError<'_> {
    match why {
        RecordRefusal::LoadTimeout | RecordRefusal::LoadFailed
            if refusal.action == RecordAction::Bulk(RecordBulk::Notify) =>
        {
            RecordError::Notify {
                data: "\"the record could not be loaded\"",
                correlation: refusal.correlation,
            }
        }
        RecordRefusal::Denied => RecordError::Denied(refusal),
        RecordRefusal::RuleFailed => RecordError::PermissionError(refusal),
        RecordRefusal::LoadTimeout => RecordError::RetrievalTimeout(refusal),
        RecordRefusal::LoadFailed => RecordError::Load(refusal),
        RecordRefusal::CreateFailed => RecordError::Create(refusal),
        RecordRefusal::UpdateFailed => RecordError::Update(refusal),
        RecordRefusal::DeleteFailed => RecordError::Delete {
            name: refusal.name.unwrap_or_default(),
        },
        RecordRefusal::InvalidData => RecordError::InvalidData(refusal),
        RecordRefusal::PatchOnHotPath => RecordError::PatchOnHotPath(refusal),
    }
}

fn error(error: RecordError<'_>) -> Message<'_> {
    Message::Record(Record::Error(error))
}

/// Versions stay within `Version::LAST`, so the conversion never saturates.
fn on_wire(version: Version) -> WireVersion {
    WireVersion::try_from(version.0).unwrap_or(WireVersion::MAX)
}

/// Number of denials of one bulk message that are sent in one step. Sending them takes about a tenth of a millisecond.
const DENIALS: usize = 256;

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
            action: RecordAction::Bulk(records.action),
            name: Some(&name),
            correlation,
            write_ack: false,
        };
        turn.send(id, &error(refused(why, refusal)));
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
