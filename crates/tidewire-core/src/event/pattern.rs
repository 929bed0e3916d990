//! Subscriptions to patterns of events.
//!
//! A pattern is a channel of the hub like a name, and is announced to publishers like a name. `fan_out.rs` delivers the events.

use super::refuse;
use crate::address::SessionId;
use crate::context::{AccessRequest, AuthorizedNames, DeniedName, LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::DelayedAck;
use crate::event_pattern;
use crate::footprint::MEMBERSHIP_BYTES;
use crate::hub::{Edge, PATTERN, first_member_bytes};
use crate::lag;
use crate::message::{Event, EventAction, EventBulk, Message, Reason, Refusal};
use crate::publication::InterestTopic;
use crate::text::Name;
use crate::work::NAME_WORK;

pub(super) fn subscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    patterns: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let refusal = Refusal {
        correlation,
        ..Refusal::new(Reason::InvalidData, EventAction::SubscribePatterns)
    };
    if !turn.shard.is_bulk(patterns) {
        return refuse(turn, id, refusal);
    }
    let limits = &turn.shard.settings.limits;
    let (bytes_max, segments_max) = (limits.name_bytes_max, limits.event_pattern_segments_max);
    let (valid, invalid): (Vec<&str>, Vec<&str>) = patterns
        .iter()
        .partition(|pattern| event_pattern::is_pattern(pattern, bytes_max, segments_max));
    let authorized = turn.authorize_names(id, AccessRequest::EVENT_PATTERN, &valid);
    let Some(mut authorized) = authorized else {
        return Flow::Wait;
    };
    turn.fit(id, &mut authorized);
    fit(turn, id, &mut authorized);
    let count = invalid.len() as u64;
    turn.shard
        .count(|refused| refused.invalid_patterns += count);
    authorized.denied.extend(invalid.iter().map(|pattern| {
        DeniedName::NoPattern(Some(*pattern).filter(|pattern| pattern.len() <= bytes_max))
    }));
    for why in &authorized.denied {
        turn.send(id, &Message::Event(Event::Error(why.refusal(refusal))));
    }
    let mut visible_from = 0;
    for pattern in &authorized.allowed {
        visible_from = visible_from.max(join(turn, id, pattern));
    }
    if authorized.is_acknowledged() {
        let ack = DelayedAck::Event {
            action: EventBulk::SubscribePatterns,
            correlation: correlation.map(Box::from),
        };
        turn.ack_bulk(id, visible_from, ack);
    }
    Flow::Taken
}

pub(super) fn unsubscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    patterns: &[&str],
    correlation: Option<&str>,
) -> Flow {
    turn.shard.count_work(patterns.len() * NAME_WORK);
    for pattern in patterns {
        match turn.hub.leave(PATTERN, pattern, id, turn.sessions) {
            Edge::Unchanged => continue,
            Edge::Inside => {}
            Edge::Crossed => lost_last(turn, Name::from(*pattern)),
        }
        turn.sessions.count_event_patterns(id, -1);
    }
    if turn.is_last_piece() {
        let ack = Event::Ack {
            action: EventBulk::UnsubscribePatterns,
            correlation,
        };
        turn.send(id, &Message::Event(ack));
    }
    Flow::Taken
}

/// Announces that the last subscriber of a pattern has gone.
pub(crate) fn lost_last<E: Effects>(turn: &mut TurnContext<'_, E>, pattern: Name) {
    turn.change_interest(InterestTopic::EventPattern, pattern, false);
}

/// Ends a subscription whose right was lost, and drops its unsent events. Returns false if the session has no such subscription.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    pattern: Name,
    lost: LostRight,
) -> bool {
    match turn.hub.revoke(PATTERN, &pattern, id, turn.sessions) {
        Edge::Unchanged => return false,
        Edge::Inside => {}
        Edge::Crossed => lost_last(turn, pattern.clone()),
    }
    turn.sessions.count_event_patterns(id, -1);
    let refusal = lost.refusal(EventAction::SubscribePatterns, Some(&pattern));
    turn.send(id, &Message::Event(Event::Error(refusal)));
    true
}

/// Makes the session a subscriber. Returns the interest change that its acknowledgement has to wait for.
fn join<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, pattern: &str) -> u64 {
    let owned = Name::from(pattern);
    match turn.hub.join(PATTERN, &owned, id, turn.sessions) {
        Edge::Unchanged => {
            let refusal = Refusal {
                name: Some(pattern),
                ..Refusal::new(
                    Reason::MultipleSubscriptions,
                    EventAction::SubscribePatterns,
                )
            };
            turn.send(id, &Message::Event(Event::Error(refusal)));
            return turn.hub.interest(PATTERN, pattern);
        }
        Edge::Inside => {}
        Edge::Crossed => turn.change_interest(InterestTopic::EventPattern, owned, true),
    }
    // The state exists now, so that the count is kept in it.
    let seed = turn.shard.seed;
    if let Some(session) = turn.sessions.find_mut(id) {
        session.state(seed);
    }
    turn.sessions.count_event_patterns(id, 1);
    lag::joined(turn, PATTERN, pattern, id);
    turn.hub.interest(PATTERN, pattern)
}

/// Denies the patterns that exceed the session's limit, or that the memory budget has no room for.
fn fit<E: Effects>(turn: &TurnContext<'_, E>, id: SessionId, authorized: &mut AuthorizedNames<'_>) {
    let Some(session) = turn.sessions.find(id) else {
        return;
    };
    let patterns_max = turn.shard.settings.limits.event_patterns_max;
    let mut room = patterns_max.saturating_sub(session.event_pattern_count());
    let mut kept = session.kept_bytes;
    for pattern in std::mem::take(&mut authorized.allowed) {
        if room == 0 {
            turn.shard.count(|refused| refused.event_patterns += 1);
            authorized.denied.push(DeniedName::Denied(pattern));
            continue;
        }
        let bytes = match turn.hub.find(PATTERN, pattern) {
            Some(_) => MEMBERSHIP_BYTES,
            None => MEMBERSHIP_BYTES + first_member_bytes(PATTERN, pattern),
        };
        if !turn.shard.has_memory(kept, bytes) {
            authorized.denied.push(DeniedName::Denied(pattern));
            continue;
        }
        room -= 1;
        kept = kept.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        authorized.allowed.push(pattern);
    }
}
