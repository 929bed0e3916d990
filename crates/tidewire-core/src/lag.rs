//! Sessions that read more slowly than messages are published for them.
//!
//! While a session that coalesces lags, the hub skips it: it gets no publications, and the hub keeps only the number of missed ones for
//! each name. When the session has read its waiting messages, it gets the number of missed events, and the newest value of each record
//! that it missed changes of. The owner's answer is in the order of the record's changes, so the session returns to the fan-out with that
//! answer: the value includes all earlier changes, and the later ones follow. Answers to its own requests are always sent. So are changes
//! that a later value could not show: deletions, providers, presence.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects, InterestTopic};
use crate::entry::{Asker, Entry, LaggingReader, ReadFailed};
use crate::hub::{ChannelId, HubTopic};
use crate::message::{Event, GAP_MAX, Message};
use crate::record::subscriber;
use crate::session::{Phase, Session, SessionFlag};
use crate::settings::EventLagPolicy;
use crate::store::Version;
use crate::text::{Name, Payload};

/// Values that are requested at once. A value that arrives when enough was sent has to be requested again later, so a higher number would
/// cause wasted requests. A lower number would wait for owners on other shards more often.
const ASKED_MAX: u32 = 64;

/// Approximate bytes of the fields and the frame of a value, without name and data.
const VALUE_OVERHEAD_BYTES: usize = 32;

/// The state of a session from when it lags until it has received everything that it missed.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Whether messages wait that the session has not read.
    is_behind: bool,
    /// Whether enough was sent. The rest follows when the session has read that.
    is_paused: bool,
    /// The records of which the session missed changes and that are not requested yet.
    owed: VecDeque<ChannelId>,
    /// Requested values that have not arrived yet.
    asked: u32,
    /// Bytes of values sent since the session last had read everything.
    given_bytes: usize,
}

/// Handles that more messages wait for the session than it reads.
pub(crate) fn fell_behind<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let (context, events) = (turn.shard, turn.shard.settings.event_lag_policy);
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    if !session.has(SessionFlag::Coalesces) || !matches!(session.phase, Phase::Open(_)) {
        return;
    }
    let lag = &mut session.state(context.seed).lag;
    if lag.is_none() {
        context.count_lag(|lag| lag.sessions += 1);
    }
    let lag = lag.get_or_insert_default();
    if lag.is_behind {
        return;
    }
    lag.is_behind = true;
    lag.is_paused = false;
    // The list is computed again when the session has read its waiting messages. Clearing it loses nothing: a channel stays skipped until
    // its value was sent, so the hub still counts it as missed, also if the value is already on its way from the owner.
    lag.owed.clear();
    context.count_lag(|lag| lag.lags += 1);
    turn.hub
        .suspend(id, turn.sessions, |topic| is_skipped(topic, events));
}

/// Handles that a session has joined a name. If the session lags, the hub skips it for this name, too.
pub(crate) fn joined<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    topic: HubTopic,
    name: &str,
    id: SessionId,
) {
    let is_behind = turn
        .sessions
        .find_mut(id)
        .and_then(lag_of)
        .is_some_and(|lag| lag.is_behind);
    if is_behind && is_skipped(topic, turn.shard.settings.event_lag_policy) {
        turn.hub.suspend_name(topic, name, id, turn.sessions);
    }
}

/// Handles that the session has read all messages that waited for it.
pub(crate) fn drained<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) else {
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
    let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) else {
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
            if let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) {
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
            _ => {}
        }
        turn.hub.resume(channel, id, turn.sessions);
    }
    if let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) {
        lag.owed = owed;
    }
}

/// Requests the next values, unless some are on their way or the session has to read first.
fn continue_catch_up<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let given_max = turn.shard.settings.limits.catch_up_bytes_max;
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    let Some(lag) = lag_of(session) else {
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
        let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) else {
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
    if let Some(lag) = lag_of(session) {
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
        turn.post(turn.shard.owner(&name), Entry::ReadValue { name, asker });
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
    if let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) {
        lag.given_bytes += name.len() + data.len() + VALUE_OVERHEAD_BYTES;
    }
}

fn lag_of(session: &mut Session) -> Option<&mut Lag> {
    session.state.as_mut()?.lag.as_deref_mut()
}

/// Whether the hub skips a lagging session for names of the topic. Presence is not skipped: a later value can't show what changed there,
/// and it is small.
fn is_skipped(topic: HubTopic, events: EventLagPolicy) -> bool {
    match topic {
        HubTopic::Record => true,
        HubTopic::Interest(InterestTopic::Event) => events == EventLagPolicy::Gap,
        HubTopic::Interest(InterestTopic::User | InterestTopic::Everyone) => false,
    }
}
