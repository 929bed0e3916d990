//! Subscriptions to events with history, at the session's shard.
//!
//! A session that returns with a position receives the missed events page by page, at most as fast as it reads. With the last page
//! it joins the fan-out. The owner grants all other sessions at once. Missed events are answers; later published events are fan-out
//! as usual.

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, HistoryEntry, HistoryPage, HistoryRead, PendingReplyId, ReplyPart};
use crate::hub::{Edge, HubTopic};
use crate::lag;
use crate::message::{Event, EventAction, Message, Position, Publication, Reason, Refusal};
use crate::publication::InterestTopic;
use crate::session::follows::{Follow, Follows, Start};
use crate::text::Name;

const TOPIC: HubTopic = HubTopic::Interest(InterestTopic::Event);

/// Names that are read at the same time for one session. All reads together return at most as many bytes as a single one.
const ASKED_MAX: usize = 64;

/// Subscribes the session to a name. `reply` waits for the owner's first answer.
pub(crate) fn subscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    start: Start,
    reply: PendingReplyId,
) {
    let seed = turn.shard.seed;
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    let state = session.state(seed);
    state.serial = state.serial.wrapping_add(1);
    let serial = state.serial;
    let follows = state
        .follows
        .get_or_insert_with(|| Box::new(Follows::new(seed)));
    if follows.names.contains_key(name) {
        let refusal = Refusal {
            name: Some(name),
            ..Refusal::new(Reason::MultipleSubscriptions, EventAction::Subscribe)
        };
        turn.send(id, &Message::Event(Event::Error(refusal)));
        return turn.part_done(reply, ReplyPart::Done);
    }
    let name = Name::from(name);
    let follow = Follow {
        serial,
        is_granted: false,
        owner: turn.shard.owner(&name),
        start,
        knows_start: false,
        reply: start.position().map(|_| reply),
    };
    follows.names.insert(name.clone(), follow);
    follows.waiting += 1;
    if start.position().is_some() {
        follows.queue.push_back((name, serial));
        return;
    }
    let read = HistoryRead {
        session: id,
        name,
        serial,
        after: None,
        bytes_max: 0,
        reply: Some(reply),
    };
    ask(turn, read);
}

/// Requests the next pages, unless some are in flight or the session has to read first.
pub(crate) fn continue_replay<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let page_max = turn.shard.settings.limits.catch_up_bytes_max;
    let Some(follows) = turn.sessions.follows_mut(id) else {
        return;
    };
    if follows.is_paused || follows.asked > 0 || follows.queue.is_empty() {
        return;
    }
    if follows.given_bytes >= page_max {
        follows.is_paused = true;
        return turn.out.await_drained(id);
    }
    let mut reads = Vec::new();
    while reads.len() < ASKED_MAX
        && let Some((name, serial)) = follows.queue.pop_front()
    {
        // The session may have left the name in the meantime.
        if let Some(follow) = follows.names.get_mut(&name)
            && follow.serial == serial
        {
            follow.owner = turn.shard.owner(&name);
            reads.push(HistoryRead {
                session: id,
                name,
                serial,
                after: follow.start.position(),
                bytes_max: 0,
                reply: follow.reply.take(),
            });
        }
    }
    follows.asked = reads.len();
    let bytes_max = page_max / reads.len().max(1);
    for read in reads {
        ask(turn, HistoryRead { bytes_max, ..read });
    }
}

/// Handles that the session has read the messages that waited for it.
pub(crate) fn drained<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    if let Some(follows) = turn.sessions.follows_mut(id) {
        follows.given_bytes = 0;
        follows.is_paused = false;
        continue_replay(turn, id);
    }
}

/// Handles the owner's answer: sends the session the page, and adds it to the fan-out with the last page.
pub(crate) fn page<E: Effects>(turn: &mut TurnContext<'_, E>, page: HistoryPage) {
    // The session may have left the name, or left it and subscribed again, since the request; the serial tells. A page for an old
    // subscription is dropped, but if it is the last page the owner has counted it as a grant, so the grant must be released. The reply
    // is completed in both cases, because the session's acknowledgement waits for it.
    let id = page.session;
    let follows = turn.sessions.follows_mut(id);
    let is_wanted = follows.is_some_and(|follows| {
        follows.asked -= usize::from(page.is_resumed);
        let follow = follows.names.get(&page.name);
        follow.is_some_and(|follow| follow.serial == page.serial)
    });
    if is_wanted && page.is_unavailable() && page.reply.is_none() && page.is_resumed {
        // The shard asks the next owner.
        if let Some(follows) = turn.sessions.follows_mut(id) {
            follows.stalled.push((page.name.clone(), page.serial));
        }
    } else if is_wanted && page.is_unavailable() {
        turn.sessions
            .follows_mut(id)
            .map(|follows| follows.remove(&page.name));
        let refusal = Refusal {
            name: Some(&page.name),
            ..Refusal::new(Reason::Denied, EventAction::Subscribe)
        };
        turn.send(id, &Message::Event(Event::Error(refusal)));
    } else if is_wanted {
        give(turn, &page);
    } else if page.is_granted {
        release(turn, page.name);
    }
    if let Some(reply) = page.reply {
        turn.part_done(reply, ReplyPart::Done);
    }
    continue_replay(turn, id);
}

/// Ends the session's subscription to a name. Returns false if it had no subscription or request.
pub(crate) fn leave<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) -> bool {
    let edge = give_up(turn, id, name, |turn| {
        turn.hub.leave(TOPIC, name, id, turn.sessions)
    });
    edge.is_some()
}

/// Ends a subscription whose right was lost, and drops its unsent events. Returns false if the session had no subscription or request.
pub(crate) fn lose<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) -> bool {
    let edge = give_up(turn, id, name, |turn| {
        turn.hub.revoke(TOPIC, name, id, turn.sessions)
    });
    edge.is_some()
}

/// The names of granted subscriptions, in no order.
pub(crate) fn granted(follows: Option<Box<Follows>>) -> Vec<Name> {
    let names = follows.map(|follows| follows.names).into_iter().flatten();
    let granted = names.filter(|(_, follow)| follow.is_granted);
    granted.map(|(name, _)| name).collect()
}

fn give_up<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    end: impl FnOnce(&mut TurnContext<'_, E>) -> Edge,
) -> Option<Edge> {
    let follows = turn.sessions.follows_mut(id)?;
    let follow = follows.remove(name)?;
    if let Some(reply) = follow.reply {
        // The first page was not requested yet.
        turn.part_done(reply, ReplyPart::Done);
    }
    if !follow.is_granted {
        // If the grant is in flight, it is released when it arrives.
        return Some(Edge::Unchanged);
    }
    let edge = end(turn);
    if edge == Edge::Crossed {
        // The owner of a history knows each subscriber, so it needs no interest.
        turn.report_interest(name.into(), false);
    }
    release(turn, name.into());
    Some(edge)
}

fn give<E: Effects>(turn: &mut TurnContext<'_, E>, page: &HistoryPage) {
    let (id, name) = (page.session, page.name.as_str());
    let follows = turn.sessions.follows_mut(id);
    let Some(follow) = follows.and_then(|follows| follows.names.get_mut(name)) else {
        return;
    };
    let knows_offsets = follow.start != Start::Plain;
    let is_first = !std::mem::replace(&mut follow.knows_start, true);
    if let Some(gap) = page.gap {
        let missed = gap
            .missed
            .map(|missed| u32::try_from(missed).unwrap_or(u32::MAX));
        let first = Some(Position {
            offset: page.before.offset + 1,
            ..page.before
        });
        let gap = Event::HistoryGap {
            name,
            missed: missed.map(|missed| missed.min(crate::message::GAP_MAX)),
            first,
        };
        turn.send(id, &Message::Event(gap));
    } else if knows_offsets && is_first {
        let position = page.before;
        turn.send(id, &Message::Event(Event::Position { name, position }));
    }
    let mut given_bytes = 0;
    let mut offset = page.before.offset;
    for payload in &page.events {
        offset += 1;
        given_bytes += HistoryPage::event_bytes(name, payload.as_ref());
        let publication = Publication::numbered(name, payload.as_ref(), offset);
        turn.send(id, &Message::Event(Event::Publication(publication)));
    }
    let Some(follows) = turn.sessions.follows_mut(id) else {
        return;
    };
    follows.given_bytes += given_bytes;
    let Some(follow) = follows.names.get_mut(name) else {
        return;
    };
    if !page.is_granted {
        follow.start = Start::Resume(Position {
            offset,
            ..page.before
        });
        return follows.queue.push_back((page.name.clone(), page.serial));
    }
    // The session joins the fan-out in the same turn in which it gets the last page. The owner posts later events behind that page in the
    // same mailbox, so the session gets each event exactly once: the earlier ones by pages, the later ones by fan-out. If it lags, the
    // hub skips it at once.
    follow.is_granted = true;
    follows.waiting -= 1;
    if turn.hub.join(TOPIC, &page.name, id, turn.sessions) == Edge::Crossed {
        turn.report_interest(page.name.clone(), true);
    }
    if turn.shard.is_clustered {
        let shown = Some((page.before.epoch, offset));
        turn.hub.set_shown(TOPIC, name, shown);
    }
    lag::joined(turn, TOPIC, name, id);
}

/// Requests the events after those that the sessions have, for names whose owner has changed.
pub(crate) fn announce<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    has_moved: impl Fn(&str, Address) -> bool,
) {
    for index in 0..turn.sessions.table_len() {
        let Some(id) = turn.sessions.at(index as u32).map(|session| session.id) else {
            continue;
        };
        let Some(follows) = turn.sessions.follows_mut(id) else {
            continue;
        };
        let stalled = std::mem::take(&mut follows.stalled);
        follows.queue.extend(stalled);
        let names = follows.names.iter();
        let moved =
            names.filter(|(name, follow)| follow.is_granted && has_moved(name, follow.owner));
        let mut moved: Vec<Name> = moved.map(|(name, _)| name.clone()).collect();
        moved.sort_unstable();
        for name in moved {
            subscribe_again(turn, id, &name);
        }
        continue_replay(turn, id);
    }
}

/// Takes a session out of the fan-out, and requests the events after those that it has.
fn subscribe_again<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &Name) {
    let Some((epoch, offset)) = turn.hub.shown(TOPIC, name) else {
        return;
    };
    let missed = turn.hub.missed(id, turn.sessions).into_iter();
    let missed =
        missed.filter(|(_, topic, of, missed)| (*topic, of) == (TOPIC, name) && *missed > 0);
    for (.., missed) in missed {
        let missed = u32::try_from(missed).unwrap_or(crate::message::GAP_MAX);
        let missed = missed.min(crate::message::GAP_MAX);
        turn.send(id, &Message::Event(Event::Gap { name, missed }));
    }
    turn.hub.leave(TOPIC, name, id, turn.sessions);
    let Some(follows) = turn.sessions.follows_mut(id) else {
        return;
    };
    let Some(follow) = follows.names.get_mut(name) else {
        return;
    };
    follow.is_granted = false;
    follow.knows_start = true;
    follow.start = Start::Resume(Position { epoch, offset });
    follows.waiting += 1;
    follows.queue.push_back((name.clone(), follow.serial));
}

/// Notes the offset of an event that this shard's subscribers get.
pub(crate) fn note_shown<E: Effects>(turn: &mut TurnContext<'_, E>, name: &str, offset: u64) {
    if turn.shard.is_clustered
        && let Some((epoch, _)) = turn.hub.shown(TOPIC, name)
    {
        turn.hub.set_shown(TOPIC, name, Some((epoch, offset)));
    }
}

fn ask<E: Effects>(turn: &mut TurnContext<'_, E>, read: HistoryRead) {
    let owner = turn.shard.owner(&read.name);
    turn.post(owner, Entry::History(HistoryEntry::Read(Box::new(read))));
}

/// Releases a granted subscription at its owner.
pub(crate) fn release<E: Effects>(turn: &mut TurnContext<'_, E>, name: Name) {
    let (owner, shard) = (turn.shard.owner(&name), turn.shard.address);
    turn.post(owner, Entry::History(HistoryEntry::Release { name, shard }));
}
