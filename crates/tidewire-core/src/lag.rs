//! Sessions that do not read as fast as something is published for them.
//!
//! One that coalesces is skipped in the hub while it lags: it gets no more publications, and of each name only their
//! number is kept. When it has read what waited, it is told of events how many it missed, and of records the newest
//! value. The owner's answer comes in the order of the record's changes, so the session goes back into the fan-out with
//! it: what came before lies in the value, what comes behind follows. Answers to its own requests go out all the time;
//! so does what a later value could not tell: deletions, providers, presence.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects, InterestTopic};
use crate::entry::{Asker, Entry, LaggingReader, ReadFailed};
use crate::hub::{ChannelId, HubTopic};
use crate::message::{Event, GAP_MAX, Message};
use crate::record::subscriber;
use crate::session::{Mark, Phase, Session};
use crate::settings::EventLagPolicy;
use crate::store::Version;
use crate::text::{Name, Payload};

/// Values that are asked for at once. Each that comes when enough was given is asked for again later, so more would be
/// asked for in vain; fewer would wait for owners on other shards more often.
const ASKED_MAX: u32 = 64;

/// What the fields and the frame of a value take beside name and data, about.
const VALUE_OVERHEAD_BYTES: usize = 32;

/// What is kept of a session from when it lags until it has been told everything that it missed.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// It has not read what waits for it.
    is_behind: bool,
    /// Enough was given; the rest follows when it has read that.
    is_paused: bool,
    /// The records of which it missed something, as far as they were not asked for.
    owed: VecDeque<ChannelId>,
    /// Values on their way from the owners.
    asked: u32,
    /// Bytes given since it last had read everything.
    given_bytes: usize,
}

/// More waits for the session than it reads.
pub(crate) fn fell_behind<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let (context, events) = (turn.shard, turn.shard.settings.event_lag_policy);
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    if !session.has(Mark::Coalesces) || !matches!(session.phase, Phase::Open(_)) {
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
    // What is still missing is found again when it has read what waits.
    lag.owed.clear();
    context.count_lag(|lag| lag.lags += 1);
    turn.hub
        .suspend(id, turn.sessions, |topic| is_skipped(topic, events));
}

/// The session has joined a name: if it lags, it gets nothing of it for now.
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

/// The session has read what waited for it.
pub(crate) fn drained<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let Some(lag) = turn.sessions.find_mut(id).and_then(lag_of) else {
        return;
    };
    lag.given_bytes = 0;
    lag.is_paused = false;
    if std::mem::take(&mut lag.is_behind) {
        take_stock(turn, id);
    }
    go_on(turn, id);
}

/// A value that was asked for has come.
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
    go_on(turn, id);
}

/// Tells the session of the gaps in its events, and notes of which records it is owed a value.
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

/// Asks for the next values, unless some are on their way or the session has to read first.
fn go_on<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
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
        // It may have ended its subscription meanwhile.
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

/// Whether a session that lags is left out of what is published to names of the topic. Presence is not: what changed
/// there can't be told by a later value, and it is small.
fn is_skipped(topic: HubTopic, events: EventLagPolicy) -> bool {
    match topic {
        HubTopic::Record => true,
        HubTopic::Interest(InterestTopic::Event) => events == EventLagPolicy::Gap,
        HubTopic::Interest(InterestTopic::User | InterestTopic::Everyone) => false,
    }
}
