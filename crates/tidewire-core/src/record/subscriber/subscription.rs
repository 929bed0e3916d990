//! The record subscriptions in a session's state, from the request until the owner knows that they have ended.
//!
//! A session requests a subscription, the owner grants it, and the shard releases it at the owner when the session ends it. The serial
//! distinguishes it from an earlier subscription of the session to the same record. The epoch, which the owner assigns, shows whether all
//! subscriptions to the record have ended since the grant.

use super::answer::{error, reason};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, RecordRefusal};
use crate::footprint::{SUBSCRIPTION_BYTES, text_bytes};
use crate::hub::HubTopic;
use crate::lag;
use crate::message::{RecordAction, RecordBulk, Refusal};
use crate::session::RecordSubscription;
use crate::text::Name;

pub(super) const TOPIC: HubTopic = HubTopic::Record;

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

pub(super) enum Begun {
    New(u32),
    Already,
    NoRoom,
}

/// Notes that the session has requested a subscription to the record.
pub(super) fn begin_subscription<E: Effects>(
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
    let state = session.state(turn.shard.seed);
    state.serial = state.serial.wrapping_add(1);
    let serial = state.serial;
    let subscription = RecordSubscription {
        serial,
        granted: None,
        again: false,
    };
    state.subscriptions.insert(name.clone(), subscription);
    turn.sessions.add_state_bytes(id, subscription_bytes(name));
    Begun::New(serial)
}

/// Whether rights have changed since the subscription was requested, so that it has to be authorized again.
pub(super) fn is_asked_again<E: Effects>(
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
pub(super) fn grant<E: Effects>(
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
    let action = RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead);
    let refusal = Refusal {
        name: Some(name),
        ..Refusal::new(reason(why), action)
    };
    turn.send(id, &error(refusal));
    true
}

pub(super) fn unsubscribe<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
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

pub(super) fn forget_subscription<E: Effects>(
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

/// Bytes that a subscription takes in the session's state.
pub(super) fn subscription_bytes(name: &Name) -> usize {
    SUBSCRIPTION_BYTES + text_bytes(name)
}
