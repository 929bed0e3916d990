//! Sessions that have lagged and catch up.
//!
//! When a session has read its waiting messages, it gets the number of missed events, and the newest value of each record that it missed
//! changes of. The owner's answer is in the order of the record's changes, so the session returns to the fan-out with that answer: the
//! value includes all earlier changes, and the later ones follow.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::entry::{Asker, LaggingReader, ReadFailed};
use crate::hub::HubTopic;
use crate::message::{Event, GAP_MAX, Message};
use crate::publication::InterestTopic;
use crate::record::subscriber;
use crate::store::Version;
use crate::text::{Name, Payload};

/// Values that are requested at once. A value that arrives when enough was sent has to be requested again later, so a higher number would
/// cause wasted requests. A lower number would wait for owners on other shards more often.
const ASKED_MAX: u32 = 64;

/// Approximate bytes of the fields and the frame of a value, without name and data.
const VALUE_OVERHEAD_BYTES: usize = 32;

/// Handles that the session has read all messages that waited for it.
pub(crate) fn drained<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let Some(lag) = turn.sessions.lag_mut(id) else {
        return;
    };
    // The flag is cleared before the list is made, so that names joined from here on are not skipped. Messages sent by `take_stock` may
    // make the session lag again; then the shard reports it again, and the list is made once more.
    lag.given_bytes = 0;
    lag.is_paused = false;
    if std::mem::take(&mut lag.is_behind) {
        take_stock(turn, id);
    }
    continue_catch_up(turn, id);
}

/// Handles a requested value.
pub(crate) fn value_came<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    value: Result<Option<(Version, Payload)>, ReadFailed>,
) {
    let given_max = turn.shard.settings.limits.catch_up_bytes_max;
    let Some(lag) = turn.sessions.lag_mut(id) else {
        return;
    };
    // The owner posts this answer in the order of the record's changes. All changes before it are in the value, and all after it arrive
    // later in this shard's mailbox. So the session must rejoin the fan-out in this turn, after the value is sent: earlier, it would get
    // changes without their base; later, it would miss some. A session that lags again, or was sent enough, stays skipped, and the value
    // is requested again. A session without a channel has ended its subscription. If the owner has no value to send, the session can't be
    // caught up, and only a new connection brings it to a known state.
    lag.asked -= 1;
    let (is_behind, is_enough) = (lag.is_behind, lag.given_bytes >= given_max);
    let channel = turn
        .hub
        .lagging_channel(HubTopic::Record, name, id, turn.sessions);
    match (channel, value) {
        (None, _) => {}
        (Some(_), Err(ReadFailed)) => return turn.out.close(id, CloseReason::NotCaughtUp),
        (Some(_), Ok(_)) if is_behind => {}
        (Some(channel), Ok(_)) if is_enough => {
            if let Some(lag) = turn.sessions.lag_mut(id) {
                lag.owed.push_back(channel);
            }
        }
        (Some(channel), Ok(value)) => {
            if let Some((version, data)) = value {
                give(turn, id, name, version, &data);
            }
            turn.hub.resume(channel, id, turn.sessions);
        }
    }
    continue_catch_up(turn, id);
}

/// Sends the session the gaps in its events, and notes the records of which it needs a value.
fn take_stock<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let mut owed = VecDeque::new();
    for (channel, topic, name, missed) in turn.hub.missed(id, turn.sessions) {
        match topic {
            HubTopic::Record if missed > 0 => {
                owed.push_back(channel);
                continue;
            }
            HubTopic::Interest(InterestTopic::Event) if missed > 0 => {
                let missed = u32::try_from(missed).unwrap_or(GAP_MAX).min(GAP_MAX);
                let gap = Event::Gap {
                    name: &name,
                    missed,
                };
                turn.send(id, &Message::Event(gap));
                turn.shard.count_lag(|lag| lag.event_gaps += 1);
            }
            HubTopic::Interest(InterestTopic::EventPattern) if missed > 0 => {
                let missed = u32::try_from(missed).unwrap_or(GAP_MAX).min(GAP_MAX);
                let gap = Event::PatternGap {
                    pattern: &name,
                    missed,
                };
                turn.send(id, &Message::Event(gap));
                turn.shard.count_lag(|lag| lag.event_gaps += 1);
            }
            _ => {}
        }
        turn.hub.resume(channel, id, turn.sessions);
    }
    if let Some(lag) = turn.sessions.lag_mut(id) {
        lag.owed = owed;
    }
}

/// Requests the next values, unless some are on their way or the session has to read first.
fn continue_catch_up<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let given_max = turn.shard.settings.limits.catch_up_bytes_max;
    let Some(lag) = turn.sessions.lag_mut(id) else {
        return;
    };
    if lag.is_behind || lag.is_paused || lag.asked > 0 {
        return;
    }
    if lag.given_bytes >= given_max && !lag.owed.is_empty() {
        lag.is_paused = true;
        return turn.out.await_drained(id);
    }
    let mut names = Vec::new();
    while names.len() < ASKED_MAX as usize {
        let Some(lag) = turn.sessions.lag_mut(id) else {
            return;
        };
        let Some(channel) = lag.owed.pop_front() else {
            break;
        };
        // The session may have ended its subscription in the meantime.
        names.extend(turn.hub.lagging_name(channel, id, turn.sessions).cloned());
    }
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    if names.is_empty() {
        if let Some(state) = &mut session.state {
            state.lag = None;
        }
        return turn.shard.count_lag(|lag| lag.sessions -= 1);
    }
    if let Some(lag) = session.lag_mut() {
        lag.asked = names.len() as u32;
    }
    let Some(principal) = turn.principal(id) else {
        return;
    };
    for name in names {
        let reader = LaggingReader {
            principal: Arc::clone(&principal),
            serial: subscriber::serial(turn, id, &name).unwrap_or_default(),
        };
        let asker = Asker::Lagging(id, Arc::new(reader));
        turn.read_value(name, asker);
    }
}

fn give<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    version: Version,
    data: &Payload,
) {
    subscriber::catch_up(turn, id, name, version, data);
    turn.shard.count_lag(|lag| lag.caught_up += 1);
    if let Some(lag) = turn.sessions.lag_mut(id) {
        lag.given_bytes += name.len() + data.len() + VALUE_OVERHEAD_BYTES;
    }
}
