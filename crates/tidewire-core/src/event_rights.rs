//! The rights to single events of the sessions that subscribe to patterns, and the events that wait until a rule has decided.
//!
//! A decision counts for one event name and all principals that rules can't distinguish. It is kept until the rules change, or for a second
//! if the rule depends on other records or on the time. If a rule first needs a record, the event waits for the sessions that the rule
//! concerns, together with all later events for them, so that they get all events in order.
//!
//! This is the state; `event/fan_out.rs` fills and uses it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::membership::ChannelId;
use crate::principal::Principal;
use crate::publication::OwnedPublication;
use crate::table::{self, Map};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// How long a decision that depends on other records or on the time is kept.
pub(crate) const DEPENDENT_LIFETIME: Duration = Duration::from_secs(1);

/// Names whose decisions are kept. If there are more, all are forgotten and decided again, so that a client that publishes under ever new
/// names can't fill the memory.
const NAMES_MAX: usize = 4_096;

/// Decisions and listed recipients that are kept, for the same reason: about 8 MB.
const ENTRIES_MAX: usize = 128 << 10;

/// The members of a pattern that get an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recipients {
    /// All of them.
    All,
    /// None of them.
    None,
    /// The sessions with these indexes, fewer than the others.
    Only(Arc<[u32]>),
    /// All except the sessions with these indexes.
    Without(Arc<[u32]>),
}

impl Recipients {
    /// Chooses the shorter list.
    pub(crate) fn new(allowed: Vec<u32>, refused: Vec<u32>) -> Self {
        if refused.is_empty() {
            Self::All
        } else if allowed.is_empty() {
            Self::None
        } else if allowed.len() < refused.len() {
            Self::Only(allowed.into())
        } else {
            Self::Without(refused.into())
        }
    }

    fn entry_count(&self) -> usize {
        match self {
            Self::All | Self::None => 1,
            Self::Only(list) | Self::Without(list) => 1 + list.len(),
        }
    }
}

/// A principal as rules see it: two that rules can't distinguish are equal.
#[derive(Clone, Debug)]
struct Alike(Arc<Principal>);

impl PartialEq for Alike {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.is_operator() == other.0.is_operator() && self.0.is_alike(&other.0)
    }
}

impl Eq for Alike {}

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.user_id.hash(state);
        self.0.server_data().map(Payload::as_str).hash(state);
    }
}

/// The decisions about one event.
#[derive(Debug)]
struct EventDecisions {
    /// When they end, if they depend on other records or on the time.
    until: Option<Instant>,
    decisions: Map<Alike, bool>,
    /// The recipients of each pattern, with the number of the last change of its members.
    recipients: SmallVec<[(ChannelId, u64, Recipients); 1]>,
}

/// A decision that waits for a record.
#[derive(Debug)]
pub(crate) struct PendingDecision {
    pub(crate) event: Name,
    pub(crate) principal: Arc<Principal>,
    /// The records that the rule has read.
    pub(crate) values: Vec<(Name, Option<Payload>)>,
}

/// An event that waits for one session.
#[derive(Clone, Debug)]
pub(crate) struct WaitingEvent {
    pub(crate) publication: Arc<OwnedPublication>,
}

/// A session for which events wait.
#[derive(Debug)]
struct WaitingSession {
    id: SessionId,
    /// The decision that its first event waits for.
    ticket: u64,
    events: VecDeque<WaitingEvent>,
    /// Whether too many events waited. The connection is being closed, and the session gets no further event.
    is_closing: bool,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct EventRights {
    events: Map<Name, EventDecisions>,
    entry_count: usize,
    pending: Map<u64, PendingDecision>,
    tickets_by_event: Map<(Name, Alike), u64>,
    next_ticket: u64,
    /// By the index of the session.
    waiting: BTreeMap<u32, WaitingSession>,
    seed: u64,
}

impl EventRights {
    /// Creates it without decisions.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            events: table::map(seed),
            entry_count: 0,
            pending: table::map(seed),
            tickets_by_event: table::map(seed),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            seed,
        }
    }

    /// Forgets all decisions, because the rules have changed. Pending ones end, and their answers are ignored: the new rules may not need them.
    pub(crate) fn forget_all(&mut self) {
        self.forget();
        self.pending = table::map(self.seed);
        self.tickets_by_event = table::map(self.seed);
    }

    fn forget(&mut self) {
        self.events = table::map(self.seed);
        self.entry_count = 0;
    }

    /// Whether the principal may get the event, if that is decided.
    pub(crate) fn decision(
        &mut self,
        event: &str,
        principal: &Arc<Principal>,
        now: Instant,
    ) -> Option<bool> {
        let decisions = &self.valid(event, now)?.decisions;
        decisions.get(&Alike(Arc::clone(principal))).copied()
    }

    /// Keeps a decision. `until` is the end of all decisions about the event, if they depend on other records or on the time.
    pub(crate) fn decide(
        &mut self,
        event: &str,
        principal: &Arc<Principal>,
        is_allowed: bool,
        until: Option<Instant>,
    ) {
        self.make_room(1);
        if !self.events.contains_key(event) {
            let decisions = EventDecisions {
                until,
                decisions: table::map(self.seed),
                recipients: SmallVec::new(),
            };
            self.events.insert(Name::from(event), decisions);
        }
        let Some(known) = self.events.get_mut(event) else {
            return;
        };
        let who = Alike(Arc::clone(principal));
        let before = known.decisions.insert(who, is_allowed);
        self.entry_count += usize::from(before.is_none());
    }

    /// The recipients of an event among the members of a pattern, if they are known and `changed` is still the last change.
    pub(crate) fn recipients(
        &mut self,
        event: &str,
        channel: ChannelId,
        changed: u64,
        now: Instant,
    ) -> Option<Recipients> {
        let mut known = self.valid(event, now)?.recipients.iter();
        let known = known.find(|(of, number, _)| *of == channel && *number == changed)?;
        Some(known.2.clone())
    }

    /// Keeps the recipients of an event with decisions.
    pub(crate) fn set_recipients(
        &mut self,
        event: &str,
        channel: ChannelId,
        changed: u64,
        recipients: &Recipients,
    ) {
        let added = recipients.entry_count();
        self.make_room(added);
        let Some(known) = self.events.get_mut(event) else {
            return;
        };
        let mut removed = 0;
        known.recipients.retain(|(of, _, recipients)| {
            let is_kept = *of != channel;
            removed += if is_kept { 0 } else { recipients.entry_count() };
            is_kept
        });
        known
            .recipients
            .push((channel, changed, recipients.clone()));
        self.entry_count = self.entry_count + added - removed;
    }

    /// The running decision about an event and a principal.
    pub(crate) fn pending_ticket(&self, event: &str, principal: &Arc<Principal>) -> Option<u64> {
        if self.pending.is_empty() {
            return None;
        }
        let key = (Name::from(event), Alike(Arc::clone(principal)));
        self.tickets_by_event.get(&key).copied()
    }

    /// Notes that a decision waits for a record. Returns the ticket for the answer.
    pub(crate) fn begin(&mut self, decision: PendingDecision) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let key = (
            decision.event.clone(),
            Alike(Arc::clone(&decision.principal)),
        );
        self.tickets_by_event.insert(key, ticket);
        self.pending.insert(ticket, decision);
        ticket
    }

    /// The decision with this ticket, unless it has ended.
    pub(crate) fn pending_mut(&mut self, ticket: u64) -> Option<&mut PendingDecision> {
        self.pending.get_mut(&ticket)
    }

    /// Ends a decision that has waited.
    pub(crate) fn end(&mut self, ticket: u64) -> Option<PendingDecision> {
        let decision = self.pending.remove(&ticket)?;
        let key = (
            decision.event.clone(),
            Alike(Arc::clone(&decision.principal)),
        );
        self.tickets_by_event.remove(&key);
        table::shrink_map(&mut self.pending);
        table::shrink_map(&mut self.tickets_by_event);
        Some(decision)
    }

    /// Whether events wait for some session.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The indexes of the sessions for which events wait, in order.
    pub(crate) fn waiting_sessions(&self) -> Vec<u32> {
        self.waiting.keys().copied().collect()
    }

    /// The same for the sessions whose first event waits for this decision.
    pub(crate) fn waiting_for(&self, ticket: u64) -> Vec<u32> {
        let all = self.waiting.iter();
        let waiting = all.filter(|(_, session)| session.ticket == ticket);
        waiting.map(|(index, _)| *index).collect()
    }

    /// Whether events wait for the session at this index.
    pub(crate) fn is_waiting(&self, index: u32) -> bool {
        self.waiting.contains_key(&index)
    }

    /// Lets events wait for a session, from its next one on, until the decision with this ticket.
    pub(crate) fn begin_waiting(&mut self, id: SessionId, ticket: u64) {
        let session = WaitingSession {
            id,
            ticket,
            events: VecDeque::new(),
            is_closing: false,
        };
        self.waiting.insert(id.index, session);
    }

    /// Adds an event of a session that is not closing. Returns false if there are `count_max` already, and drops all of them.
    pub(crate) fn push(&mut self, index: u32, event: WaitingEvent, count_max: usize) -> bool {
        let Some(session) = self.waiting.get_mut(&index) else {
            return true;
        };
        if session.events.len() >= count_max {
            session.is_closing = true;
            session.events = VecDeque::new();
            return false;
        }
        session.events.push_back(event);
        true
    }

    /// Whether too many events have waited for the session at this index, so that its connection is being closed.
    pub(crate) fn is_closing(&self, index: u32) -> bool {
        self.waiting
            .get(&index)
            .is_some_and(|session| session.is_closing)
    }

    /// The first event that waits for a session; `None` if no event is left, or the session gets no further event.
    pub(crate) fn first(&self, index: u32) -> Option<(SessionId, WaitingEvent)> {
        let session = self.waiting.get(&index)?;
        Some((session.id, session.events.front()?.clone()))
    }

    /// Removes the first event that waits for a session.
    pub(crate) fn pop(&mut self, index: u32) {
        if let Some(session) = self.waiting.get_mut(&index) {
            session.events.pop_front();
        }
    }

    /// Notes that the first event of a session waits for another decision.
    pub(crate) fn wait_for(&mut self, index: u32, ticket: u64) {
        if let Some(session) = self.waiting.get_mut(&index) {
            session.ticket = ticket;
        }
    }

    /// Forgets a session for which no events wait any longer, or that has ended.
    pub(crate) fn end_waiting(&mut self, index: u32) {
        self.waiting.remove(&index);
    }

    /// The number of sessions for which events wait.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    fn valid(&mut self, event: &str, now: Instant) -> Option<&mut EventDecisions> {
        let has_ended = {
            let known = self.events.get(event)?;
            known.until.is_some_and(|until| until <= now)
        };
        if has_ended {
            let ended = self.events.remove(event)?;
            let recipients = ended.recipients.iter();
            let listed: usize = recipients.map(|(_, _, list)| list.entry_count()).sum();
            self.entry_count -= ended.decisions.len() + listed;
            return None;
        }
        self.events.get_mut(event)
    }

    fn make_room(&mut self, added: usize) {
        if self.events.len() >= NAMES_MAX || self.entry_count + added > ENTRIES_MAX {
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(user: &str, data: &str) -> Arc<Principal> {
        let data = Some(Payload::from_checked(data));
        Arc::new(Principal::new(Name::from(user)).with_data(data, None))
    }

    #[test]
    fn principals_that_rules_cannot_tell_apart_share_a_decision() {
        let mut rights = EventRights::new(7);
        let now = Instant(5);
        rights.decide("a/b", &principal("ann", "{}"), true, None);
        assert_eq!(
            rights.decision("a/b", &principal("ann", "{}"), now),
            Some(true)
        );
        for (event, other) in [
            ("a/b", principal("ann", "[]")),
            ("a/b", principal("bob", "{}")),
            ("a/c", principal("ann", "{}")),
        ] {
            assert_eq!(rights.decision(event, &other, now), None);
        }
        rights.forget_all();
        assert_eq!(rights.decision("a/b", &principal("ann", "{}"), now), None);
    }

    #[test]
    fn a_decision_that_depends_on_others_ends() {
        let mut rights = EventRights::new(7);
        let ann = principal("ann", "{}");
        rights.decide("a/b", &ann, false, Some(Instant(9)));
        rights.set_recipients("a/b", 3, 1, &Recipients::None);
        assert_eq!(rights.decision("a/b", &ann, Instant(8)), Some(false));
        assert_eq!(
            rights.recipients("a/b", 3, 2, Instant(8)),
            None,
            "the members have changed"
        );
        assert_eq!(
            rights.recipients("a/b", 3, 1, Instant(8)),
            Some(Recipients::None)
        );
        assert_eq!(rights.recipients("a/b", 3, 1, Instant(9)), None);
        assert_eq!(rights.entry_count, 0);
    }

    #[test]
    fn ever_new_names_are_forgotten() {
        let mut rights = EventRights::new(7);
        let ann = principal("ann", "{}");
        for number in 0..3 * NAMES_MAX {
            rights.decide(&number.to_string(), &ann, true, None);
            assert!(rights.events.len() <= NAMES_MAX);
        }
        let long = Recipients::new(
            (0..ENTRIES_MAX as u32 / 3).collect(),
            (0..ENTRIES_MAX as u32).collect(),
        );
        for channel in 0..10 {
            rights.decide("a", &ann, true, None);
            rights.set_recipients("a", channel, 1, &long);
            assert!(rights.entry_count <= ENTRIES_MAX, "{}", rights.entry_count);
        }
    }

    #[test]
    fn the_shorter_list_is_kept() {
        let list = |range: std::ops::Range<u32>| range.collect::<Vec<u32>>();
        let new = |allowed, refused| Recipients::new(list(allowed), list(refused));
        assert_eq!(new(0..3, 0..0), Recipients::All);
        assert_eq!(new(0..0, 0..3), Recipients::None);
        assert_eq!(new(0..1, 1..3), Recipients::Only(list(0..1).into()));
        assert_eq!(new(0..2, 2..4), Recipients::Without(list(2..4).into()));
    }
}
