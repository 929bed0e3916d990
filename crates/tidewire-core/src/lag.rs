//! Sessions that read more slowly than messages are published for them.
//!
//! While a session that coalesces lags, the hub skips it: it gets no publications, and the hub keeps only the number of missed ones for
//! each name. Answers to its own requests are always sent. So are changes that a later value could not show: deletions, providers,
//! presence. [`crate::catch_up`] sends the rest when the session has read its waiting messages.

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::hub::HubTopic;
use crate::publication::InterestTopic;
use crate::session::{Phase, SessionFlag};
use crate::settings::EventLagPolicy;

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
    let is_behind = turn.sessions.lag_mut(id).is_some_and(|lag| lag.is_behind);
    if is_behind && is_skipped(topic, turn.shard.settings.event_lag_policy) {
        turn.hub.suspend_name(topic, name, id, turn.sessions);
    }
}

/// Whether the hub skips a lagging session for names of the topic. Presence is not skipped: a later value can't show what changed there,
/// and it is small.
fn is_skipped(topic: HubTopic, events: EventLagPolicy) -> bool {
    match topic {
        HubTopic::Record => true,
        HubTopic::Interest(InterestTopic::Event | InterestTopic::EventPattern) => {
            events == EventLagPolicy::Gap
        }
        HubTopic::Interest(InterestTopic::User | InterestTopic::Everyone) => false,
    }
}
