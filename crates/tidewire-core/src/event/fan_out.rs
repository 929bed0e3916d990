//! Delivery of events to this shard's subscribers of patterns, together with the subscribers of the name itself.
//!
//! The event is encoded once for each format, and the channel of the name and the channels of all patterns that match keep the same range.
//! So a session that is subscribed in several ways gets the event once, and the fan-out costs as much as that of a name. The `subscribe`
//! rule decides for each name and principal. A session that it refuses is excluded from the range; if it refuses most of them, only the
//! others get the range as an answer.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::entry::{Asker, ReadFailed};
use crate::event_rights::{DEPENDENT_LIFETIME, PendingDecision, Recipients, WaitingEvent};
use crate::footprint::{WAITING_EVENT_BYTES, text_bytes};
use crate::hub::{HubTopic, format_bit, formats_of};
use crate::membership::{ChannelId, LAGGING};
use crate::message::{Event, Message, Publication, RareAttributes};
use crate::permission::{Access, Decision, EventRight, Question, RequestedAction};
use crate::principal::Principal;
use crate::publication::{InterestTopic, OwnedPublication};
use crate::session::Session;
use crate::text::{Name, Payload};
use crate::work::RULE_WORK;

const TOPIC: HubTopic = HubTopic::Interest(InterestTopic::Event);

/// The channels of the patterns that one event matches.
pub(super) type Channels = SmallVec<[ChannelId; 4]>;

/// Cost of visiting a node of the trie of patterns.
const STEP_WORK: usize = 64;

/// The right of a session to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Allowed,
    Refused,
    /// The decision with this ticket waits for a record.
    Pending(u64),
}

/// The subscribers of one event on this shard.
struct Audience {
    /// The channel of the name.
    exact: Option<ChannelId>,
    /// The channels of the patterns that match.
    patterns: SmallVec<[(ChannelId, Recipients); 4]>,
    /// Sessions that get the event later, in ascending order.
    later: Vec<u32>,
    /// The publisher, if it has a session on this shard.
    except: Option<u32>,
}

/// The channels of the patterns that an event matches.
pub(super) fn matching<E: Effects>(turn: &TurnContext<'_, E>, event: &str) -> Channels {
    let mut channels = Channels::new();
    let steps = turn
        .hub
        .visit_matching(event, |channel| channels.push(channel));
    turn.shard.count_work(steps * STEP_WORK);
    channels
}

/// Delivers an event to the subscribers of its name and of the patterns with these channels.
pub(super) fn deliver<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    publication: Publication<'_>,
    except: Option<SessionId>,
    channels: &Channels,
) {
    let event = publication.name;
    let right = turn.shard.permission.event_right(event);
    let mut pending = Vec::new();
    let mut patterns = SmallVec::new();
    for channel in channels {
        let recipients = recipients(turn, *channel, event, right, &mut pending);
        patterns.push((*channel, recipients));
    }
    if turn.hub.has_lagging() {
        turn.skip(TOPIC, event, except);
        for channel in channels {
            skip(turn, *channel, event, right, except);
        }
    }
    let except = except.and_then(|id| turn.sessions.find(id));
    let mut audience = Audience {
        exact: turn.hub.find(TOPIC, event),
        patterns,
        later: Vec::new(),
        except: except.map(|session| session.id.index),
    };
    if !pending.is_empty() || turn.event_rights.has_waiting() {
        audience.later = wait(turn, &publication, &audience, pending);
    }
    let message = Message::Event(Event::Publication(publication));
    send(turn, &audience, &message);
}

/// Handles a value that a rule needs to decide about an event.
pub(crate) fn value<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    ticket: u64,
    record: Name,
    value: Result<Option<Payload>, ReadFailed>,
) {
    let reads_max = turn.shard.settings.limits.rule_reads_max;
    let Some(pending) = turn.event_rights.pending_mut(ticket) else {
        return;
    };
    let has_failed = value.is_err();
    pending.values.extend(value.map(|value| (record, value)));
    let (event, principal) = (pending.event.clone(), Arc::clone(&pending.principal));
    let may_read = !has_failed && pending.values.len() < reads_max;
    let values = std::mem::take(&mut pending.values);
    let decision = decide(turn, &principal, &event, &values);
    if let Decision::Need(record) = &decision
        && may_read
    {
        if let Some(pending) = turn.event_rights.pending_mut(ticket) {
            pending.values = values;
        }
        return ask(turn, ticket, record.clone());
    }
    turn.event_rights.end(ticket);
    let until = Some(turn.now.monotonic + DEPENDENT_LIFETIME);
    turn.event_rights
        .decide(&event, &principal, decision == Decision::Allow, until);
    for index in turn.event_rights.waiting_for(ticket) {
        continue_session(turn, index);
    }
}

/// Handles that the rules have changed: all events that wait are decided by the new ones.
pub(crate) fn rules_changed<E: Effects>(turn: &mut TurnContext<'_, E>) {
    turn.event_rights.forget_all();
    for index in turn.event_rights.waiting_sessions() {
        continue_session(turn, index);
    }
}

/// The members of a pattern that get an event now. Adds those whose right is pending to `pending`.
fn recipients<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    channel: ChannelId,
    event: &str,
    right: EventRight,
    pending: &mut Vec<(u32, u64)>,
) -> Recipients {
    match right {
        EventRight::Constant(true) => return Recipients::All,
        EventRight::Constant(false) => return Recipients::None,
        EventRight::ByPrincipal | EventRight::ByOthers => {}
    }
    let (changed, now) = (turn.hub.changed(channel), turn.now.monotonic);
    let known = turn.event_rights.recipients(event, channel, changed, now);
    if let Some(known) = known {
        return known;
    }
    let (mut allowed, mut refused) = (Vec::new(), Vec::new());
    let pending_before = pending.len();
    for index in turn.hub.members(channel).to_vec() {
        match right_of(turn, index, event, right) {
            Right::Allowed => allowed.push(index),
            Right::Refused => refused.push(index),
            Right::Pending(ticket) => {
                refused.push(index);
                pending.push((index, ticket));
            }
        }
    }
    let recipients = Recipients::new(allowed, refused);
    if pending.len() == pending_before {
        turn.event_rights
            .set_recipients(event, channel, changed, &recipients);
    }
    recipients
}

/// The right of one session. If it is not known, decides, or begins to.
fn right_of<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    index: u32,
    event: &str,
    right: EventRight,
) -> Right {
    let allowed = |is_allowed| match is_allowed {
        true => Right::Allowed,
        false => Right::Refused,
    };
    if let EventRight::Constant(is_allowed) = right {
        return allowed(is_allowed);
    }
    let session = turn.sessions.at(index);
    let Some(principal) = session.and_then(Session::principal).cloned() else {
        return Right::Refused;
    };
    let now = turn.now.monotonic;
    if let Some(known) = turn.event_rights.decision(event, &principal, now) {
        return allowed(known);
    }
    if let Some(ticket) = turn.event_rights.pending_ticket(event, &principal) {
        return Right::Pending(ticket);
    }
    let decision = decide(turn, &principal, event, &[]);
    if let Decision::Need(record) = decision {
        let ticket = turn.event_rights.begin(PendingDecision {
            event: Name::from(event),
            principal,
            values: Vec::new(),
        });
        ask(turn, ticket, record);
        return Right::Pending(ticket);
    }
    let until = (right == EventRight::ByOthers).then(|| now + DEPENDENT_LIFETIME);
    let is_allowed = decision == Decision::Allow;
    turn.event_rights
        .decide(event, &principal, is_allowed, until);
    allowed(is_allowed)
}

fn decide<E: Effects>(
    turn: &TurnContext<'_, E>,
    principal: &Principal,
    event: &str,
    values: &[(Name, Option<Payload>)],
) -> Decision {
    turn.shard.count_work(RULE_WORK);
    turn.shard.permission.decide(&Question {
        principal,
        access: Access::EventSubscribe,
        by: RequestedAction::Plainly,
        name: Some(event),
        data: None,
        old_data: None,
        now: turn.now.wall,
        values,
    })
}

fn ask<E: Effects>(turn: &mut TurnContext<'_, E>, ticket: u64, record: Name) {
    let asker = Asker::EventRight {
        address: turn.shard.address,
        ticket,
    };
    turn.read_value(record, asker);
}

/// Counts the event as missed for the members of a pattern that lag, except those that may not get it. A session whose right is pending
/// counts as allowed: it must not lose an event without a gap.
fn skip<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    channel: ChannelId,
    event: &str,
    right: EventRight,
    except: Option<SessionId>,
) {
    if !turn.hub.lags_in(channel) {
        return;
    }
    let mut refused = Vec::new();
    for index in turn.hub.lagging_members(channel) {
        let is_own = except.is_some_and(|id| id.index == index && turn.sessions.find(id).is_some());
        if is_own || right_of(turn, index, event, right) == Right::Refused {
            refused.push(index);
        }
    }
    let missed = turn
        .hub
        .skip_in(channel, |index| refused.binary_search(&index).is_ok());
    turn.shard
        .count_lag(|lag| lag.skipped_events += missed as u64);
}

/// Lets the event wait for the sessions whose right is pending, and for those of the audience for which earlier events wait. Returns them.
fn wait<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    publication: &Publication<'_>,
    audience: &Audience,
    pending: Vec<(u32, u64)>,
) -> Vec<u32> {
    let mut later = Vec::new();
    let is_own = |index: u32| audience.except == Some(index);
    for index in turn.event_rights.waiting_sessions() {
        if !is_own(index) && audience.has(turn, index) {
            later.push(index);
        }
    }
    for (index, ticket) in pending {
        // A subscriber of the name itself needs no decision.
        if is_own(index) || audience.has_exact(turn, index) || turn.event_rights.is_waiting(index) {
            continue;
        }
        if let Some(session) = turn.sessions.at(index) {
            turn.event_rights.begin_waiting(session.id, ticket);
            later.push(index);
        }
    }
    later.sort_unstable();
    if later.is_empty() {
        return later;
    }
    let publication = Arc::new(OwnedPublication {
        name: publication.name.into(),
        data: publication.data.map(Payload::from_checked),
        rare: publication.rare.clone(),
    });
    for index in &later {
        let event = WaitingEvent {
            publication: Arc::clone(&publication),
        };
        keep(turn, *index, event);
    }
    later
}

/// Keeps an event for a session. If too many wait, or there is no memory for it, closes the connection.
fn keep<E: Effects>(turn: &mut TurnContext<'_, E>, index: u32, event: WaitingEvent) {
    if turn.event_rights.is_closing(index) {
        return;
    }
    let Some(session) = turn.sessions.at(index) else {
        return;
    };
    let (id, bytes) = (session.id, waiting_bytes(&event));
    let count_max = match turn.shard.has_memory(session.kept_bytes, bytes) {
        true => turn.shard.settings.limits.event_waiting_max,
        false => 0,
    };
    if turn.event_rights.push(index, event, count_max) {
        // The state exists since the session has subscribed to a pattern.
        turn.sessions.add_state_bytes(id, bytes);
    } else {
        turn.shard.count(|refused| refused.event_waiting += 1);
        turn.out.close(id, CloseReason::NotCaughtUp);
    }
}

fn waiting_bytes(event: &WaitingEvent) -> usize {
    let OwnedPublication { name, data, rare } = &*event.publication;
    let data_bytes = data.as_ref().map_or(0, |data| text_bytes(data.as_str()));
    let binary_bytes = RareAttributes::payload_size(rare.as_deref());
    WAITING_EVENT_BYTES + text_bytes(name) + data_bytes + binary_bytes
}

/// Sends a session the events that wait for it, up to one whose decision is pending.
fn continue_session<E: Effects>(turn: &mut TurnContext<'_, E>, index: u32) {
    while let Some((id, event)) = turn.event_rights.first(index) {
        let name = event.publication.name.clone();
        // The session may have got or lost any of its subscriptions while the event waited.
        let right = match is_subscribed(turn, index, &name) {
            true => Right::Allowed,
            false => pattern_right(turn, index, &name),
        };
        if let Right::Pending(ticket) = right {
            return turn.event_rights.wait_for(index, ticket);
        }
        turn.event_rights.pop(index);
        turn.sessions.remove_state_bytes(id, waiting_bytes(&event));
        if right == Right::Allowed {
            let OwnedPublication { name, data, rare } = &*event.publication;
            let publication = Publication {
                name,
                data: data.as_ref().map(Payload::as_str),
                rare: rare.clone(),
            };
            turn.send(id, &Message::Event(Event::Publication(publication)));
        }
    }
    if !turn.event_rights.is_closing(index) {
        turn.event_rights.end_waiting(index);
    }
}

/// Whether a session is subscribed to the name of an event.
fn is_subscribed<E>(turn: &TurnContext<'_, E>, index: u32, event: &str) -> bool {
    let exact = turn.hub.find(TOPIC, event);
    let session = turn.sessions.at(index);
    let mut both = session.zip(exact).into_iter();
    both.any(|(session, channel)| session.memberships.contains(channel))
}

/// The right of a session to an event that waited, if a pattern of the session matches it.
fn pattern_right<E: Effects>(turn: &mut TurnContext<'_, E>, index: u32, event: &str) -> Right {
    let session = turn.sessions.at(index);
    let mut is_member = false;
    turn.hub.visit_matching(event, |channel| {
        is_member |= session.is_some_and(|session| session.memberships.contains(channel));
    });
    let right = turn.shard.permission.event_right(event);
    match is_member {
        true => right_of(turn, index, event, right),
        false => Right::Refused,
    }
}

/// Encodes the event for each format of the audience, and adds its range to all channels.
fn send<E: Effects>(turn: &mut TurnContext<'_, E>, audience: &Audience, message: &Message<'_>) {
    for format in formats_of(audience.format_bits(turn)) {
        let bit = format_bit(format);
        let span = turn.out.append(format, message);
        turn.shard
            .count_work(span.len() as usize + turn.out.take_compressed_bytes());
        let patterns = audience.patterns.iter();
        let whole = patterns.filter(|(_, recipients)| {
            matches!(recipients, Recipients::All | Recipients::Without(_))
        });
        let whole = whole.map(|(channel, _)| *channel);
        for channel in whole.chain(audience.exact) {
            if turn.hub.format_bits(channel) & bit != 0 {
                turn.hub.publish(channel, format, span, None);
            }
        }
        let has_format = |turn: &TurnContext<'_, E>, index: u32| {
            let session = turn.sessions.at(index);
            session.is_some_and(|session| session.format == format)
        };
        for (_, recipients) in &audience.patterns {
            match recipients {
                Recipients::Only(list) => {
                    for index in list.iter().copied() {
                        if has_format(turn, index) && !audience.is_left_out(turn, index) {
                            turn.hub.answer(index, format, span);
                        }
                    }
                }
                Recipients::Without(list) => {
                    for index in list.iter().copied() {
                        if has_format(turn, index) && !audience.has_exact(turn, index) {
                            turn.hub.withhold(index, span);
                        }
                    }
                }
                Recipients::All | Recipients::None => {}
            }
        }
        for index in audience.later.iter().copied().chain(audience.except) {
            if has_format(turn, index) {
                turn.hub.withhold(index, span);
            }
        }
    }
}

impl Audience {
    /// The formats of the sessions that may get the event, one bit each.
    fn format_bits<E>(&self, turn: &TurnContext<'_, E>) -> u64 {
        let bits_of = |channel| turn.hub.format_bits(channel);
        let mut bits = self.exact.map_or(0, bits_of);
        for (channel, recipients) in &self.patterns {
            match recipients {
                Recipients::All | Recipients::Without(_) => bits |= bits_of(*channel),
                Recipients::Only(list) => {
                    let sessions = list.iter().filter_map(|index| turn.sessions.at(*index));
                    bits |= sessions.fold(0, |bits, session| bits | format_bit(session.format));
                }
                Recipients::None => {}
            }
        }
        bits
    }

    /// Whether a session gets the events of the name because it is subscribed to it.
    fn has_exact<E>(&self, turn: &TurnContext<'_, E>, index: u32) -> bool {
        self.exact
            .is_some_and(|channel| is_reading_member(turn, index, channel))
    }

    /// Whether a session is subscribed to the name or a pattern.
    fn has<E>(&self, turn: &TurnContext<'_, E>, index: u32) -> bool {
        let mut patterns = self.patterns.iter();
        self.has_exact(turn, index)
            || patterns.any(|(channel, _)| is_reading_member(turn, index, *channel))
    }

    /// Whether a session of a list gets the event in another way, or not now.
    fn is_left_out<E>(&self, turn: &TurnContext<'_, E>, index: u32) -> bool {
        self.except == Some(index)
            || self.later.binary_search(&index).is_ok()
            || self.has_exact(turn, index)
    }
}

/// Whether a session is a member that does not lag.
fn is_reading_member<E>(turn: &TurnContext<'_, E>, index: u32, channel: ChannelId) -> bool {
    let session = turn.sessions.at(index);
    let position = session.and_then(|session| session.memberships.position(channel));
    position.is_some_and(|position| position != LAGGING)
}
