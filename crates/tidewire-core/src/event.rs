//! Events: publish and subscribe, at most once, not stored. Events with history are handled in [`crate::history`], subscriptions to patterns
//! in `event/pattern.rs`.

mod fan_out;
mod pattern;

use crate::address::SessionId;
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{DelayedAck, Entry, HistoryEntry, ReplyAction};
use crate::history::subscriber as history;
use crate::hub::{Edge, HubTopic};
use crate::lag;
use crate::listen;
use crate::message::{
    Event, EventAction, EventBulk, Message, Position, Publication, Reason, Refusal, Topic,
};
use crate::permission::{Access, Authorization};
use crate::publication::{InterestTopic, OwnedPublication};
use crate::session::follows::Start;
use crate::table;
use crate::text::{Name, Payload};
use crate::work::{NAME_WORK, USER_WORK};

pub(crate) use fan_out::{rules_changed, value};
pub(crate) use pattern::{lose as lose_pattern, lost_last as lost_last_pattern};

const TOPIC: HubTopic = HubTopic::Interest(InterestTopic::Event);

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Event<'_>,
) -> Flow {
    match message {
        Event::Publication(publication) => publish(turn, id, publication, None),
        Event::Publish {
            publication,
            correlation,
        } => publish(turn, id, publication, Some(correlation)),
        Event::Subscribe {
            names,
            correlation,
            positions,
        } => subscribe(turn, id, names, positions, *correlation),
        Event::Unsubscribe { names, correlation } => {
            turn.shard.count_work(names.len() * NAME_WORK);
            for name in names {
                unsubscribe(turn, id, name);
            }
            if turn.is_last_piece() {
                let ack = Event::Ack {
                    action: EventBulk::Unsubscribe,
                    correlation: *correlation,
                };
                turn.send(id, &Message::Event(ack));
            }
            Flow::Taken
        }
        Event::SubscribePatterns {
            patterns,
            correlation,
        } => pattern::subscribe(turn, id, patterns, *correlation),
        Event::UnsubscribePatterns {
            patterns,
            correlation,
        } => pattern::unsubscribe(turn, id, patterns, *correlation),
        Event::Listen(message) => listen::message(turn, id, Topic::Event, message),
        // Clients must not send a server's answers. They have no effect.
        Event::Ack { .. }
        | Event::Gap { .. }
        | Event::PatternGap { .. }
        | Event::Position { .. }
        | Event::HistoryGap { .. }
        | Event::Error(_) => Flow::Taken,
    }
}

/// Refuses a publication of the session because there is no room for it.
pub(crate) fn refuse_publication<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
) {
    let refusal = Refusal {
        name: Some(name),
        ..Refusal::new(Reason::Denied, EventAction::Emit)
    };
    turn.send(id, &Message::Event(Event::Error(refusal)));
}

/// Delivers a publication that another shard or the owner of its history has posted to this shard's subscribers.
pub(crate) fn deliver_posted<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    publication: OwnedPublication,
    except: Option<SessionId>,
) {
    let OwnedPublication { name, data, rare } = publication;
    let data = data.as_ref().map(Payload::as_str);
    let name = name.as_str();
    deliver(turn, Publication { name, data, rare }, except);
}

/// Delivers a publication to this shard's subscribers.
pub(crate) fn deliver<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    publication: Publication<'_>,
    except: Option<SessionId>,
) {
    let name = publication.name;
    if turn.hub.has_patterns() || turn.event_rights.has_waiting() {
        let channels = fan_out::matching(turn, name);
        if !channels.is_empty() || turn.event_rights.has_waiting() {
            return fan_out::deliver(turn, publication, except, &channels);
        }
    }
    let message = Message::Event(Event::Publication(publication));
    turn.fan_out(TOPIC, name, except, &message);
}

/// Handles that an ended session was the last subscriber of the event.
pub(crate) fn lost_last<E: Effects>(turn: &mut TurnContext<'_, E>, name: Name) {
    // The owner of a history knows each subscriber, so it needs no interest.
    if turn.shard.settings.history.find(&name).is_none() {
        turn.change_interest(InterestTopic::Event, name.clone(), false);
    }
    turn.report_interest(name, false);
}

/// Ends a subscription whose right was lost, and drops its unsent messages. Returns false if the session has no such subscription.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: Name,
    lost: LostRight,
) -> bool {
    if !history::lose(turn, id, &name) {
        match turn.hub.revoke(TOPIC, &name, id, turn.sessions) {
            Edge::Unchanged => return false,
            Edge::Inside => {}
            Edge::Crossed => lost_last(turn, name.clone()),
        }
    }
    let refusal = lost.refusal(EventAction::Subscribe, Some(&name));
    turn.send(id, &Message::Event(Event::Error(refusal)));
    true
}

fn publish<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    publication: &Publication<'_>,
    correlation: Option<&str>,
) -> Flow {
    let Publication { name, data, .. } = *publication;
    let refusal = Refusal {
        name: Some(name),
        correlation,
        ..Refusal::new(Reason::InvalidData, EventAction::Emit)
    };
    if !turn.shard.is_name(name) || !turn.shard.is_payload(publication) {
        return refuse(turn, id, shown(turn, refusal));
    }
    match turn.authorize(id, Access::EventPublish, Some(name), data) {
        Authorization::Wait => return Flow::Wait,
        Authorization::Deny => return refuse(turn, id, refusal.because(Reason::Denied)),
        Authorization::Failed => return refuse(turn, id, refusal.because(Reason::RuleFailed)),
        Authorization::Allow => {}
    }
    // Only the server assigns offsets, so an offset from a client is ignored.
    let rare = publication.rare.as_ref();
    let rare = rare.and_then(|rare| rare.of_client());
    let posted = || OwnedPublication {
        name: name.into(),
        data: data.map(Payload::from_checked),
        rare: rare.clone(),
    };
    if turn.shard.settings.history.find(name).is_some() {
        let publish = HistoryEntry::Publish {
            publication: posted(),
            publisher: id,
        };
        turn.post(turn.shard.owner(name), Entry::History(publish));
    } else {
        let rare = rare.clone();
        deliver(turn, Publication { name, data, rare }, Some(id));
        turn.out
            .publish(InterestTopic::Event, name, || Entry::Publication(posted()));
    }
    if correlation.is_some() {
        let ack = Event::Ack {
            action: EventBulk::Publish,
            correlation,
        };
        turn.send(id, &Message::Event(ack));
    }
    Flow::Taken
}

fn subscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    positions: &[(&str, Option<Position>)],
    correlation: Option<&str>,
) -> Flow {
    let refusal = Refusal {
        correlation,
        ..Refusal::new(Reason::InvalidData, EventAction::Subscribe)
    };
    if !turn.shard.is_bulk(names) || positions.len() > names.len() {
        return refuse(turn, id, refusal);
    }
    let Some(mut authorized) = turn.authorize_names(id, Access::EventSubscribe, names) else {
        return Flow::Wait;
    };
    turn.fit(id, &mut authorized);
    for why in &authorized.denied {
        turn.send(id, &Message::Event(Event::Error(why.refusal(refusal))));
    }
    let rules = &turn.shard.settings.history;
    let (kept, plain): (Vec<&str>, Vec<&str>) = authorized
        .allowed
        .iter()
        .partition(|name| rules.find(name).is_some());
    let mut visible_from = 0;
    for name in &plain {
        visible_from = visible_from.max(join(turn, id, name));
    }
    let (action, correlation) = (EventBulk::Subscribe, correlation.map(Box::from));
    if kept.is_empty() {
        if authorized.is_acknowledged() {
            turn.ack_bulk(
                id,
                visible_from,
                DelayedAck::Event {
                    action,
                    correlation,
                },
            );
        }
    } else {
        let ack = ReplyAction::Ack(DelayedAck::Event {
            action,
            correlation,
        });
        let reply = turn.begin_bulk_reply(id, kept.len() + 1, ack);
        turn.ack_when_visible(visible_from, id, DelayedAck::Part(reply));
        let mut wishes = table::map(turn.shard.seed);
        wishes.extend(positions.iter().copied());
        for name in kept {
            let start = match wishes.get(name) {
                None => Start::Plain,
                Some(None) => Start::Begin,
                Some(Some(position)) => Start::Resume(*position),
            };
            history::subscribe(turn, id, name, start, reply);
        }
        history::continue_replay(turn, id);
    }
    tell_without_history(turn, id, &plain, positions);
    Flow::Taken
}

/// Sends a gap to a session that resumes an event without history: the server can't know what it missed.
fn tell_without_history<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    plain: &[&str],
    positions: &[(&str, Option<Position>)],
) {
    if positions.is_empty() {
        return;
    }
    turn.shard.count_work(positions.len() * USER_WORK);
    let mut announced = table::set(turn.shard.seed);
    let resumed = positions.iter().filter(|(_, position)| position.is_some());
    announced.extend(resumed.map(|(name, _)| *name));
    for name in plain.iter().filter(|name| announced.contains(*name)) {
        let gap = Event::HistoryGap {
            name,
            missed: None,
            first: None,
        };
        turn.send(id, &Message::Event(gap));
    }
}

/// Makes the session a subscriber. Returns the interest change that its acknowledgement has to wait for.
fn join<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) -> u64 {
    if !enter(turn, id, name) {
        let refusal = Refusal {
            name: Some(name),
            ..Refusal::new(Reason::MultipleSubscriptions, EventAction::Subscribe)
        };
        turn.send(id, &Message::Event(Event::Error(refusal)));
    }
    turn.hub.interest(TOPIC, name)
}

/// Makes the session a member of an event, without a right and without an answer. Returns false if it was one before.
pub(crate) fn enter<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) -> bool {
    let owned = Name::from(name);
    let edge = turn.hub.join(TOPIC, &owned, id, turn.sessions);
    if edge == Edge::Crossed {
        // The owner of a history knows each subscriber, so it needs no interest.
        if turn.shard.settings.history.find(name).is_none() {
            turn.change_interest(InterestTopic::Event, owned.clone(), true);
        }
        turn.report_interest(owned, true);
    }
    lag::joined(turn, TOPIC, name, id);
    edge != Edge::Unchanged
}

/// Ends such a membership.
pub(crate) fn depart<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
    if turn.hub.leave(TOPIC, name, id, turn.sessions) == Edge::Crossed {
        lost_last(turn, name.into());
    }
}

fn unsubscribe<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
    if !history::leave(turn, id, name)
        && turn.hub.leave(TOPIC, name, id, turn.sessions) == Edge::Crossed
    {
        lost_last(turn, name.into());
    }
}

fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    refusal: Refusal<'_, EventAction>,
) -> Flow {
    turn.send(id, &Message::Event(Event::Error(refusal)));
    Flow::Taken
}

/// Removes the name from a refusal if it is too long to be repeated.
fn shown<'a, E, A>(turn: &TurnContext<'_, E>, refusal: Refusal<'a, A>) -> Refusal<'a, A> {
    let name = refusal
        .name
        .filter(|name| name.len() <= turn.shard.settings.limits.name_bytes_max);
    Refusal { name, ..refusal }
}
