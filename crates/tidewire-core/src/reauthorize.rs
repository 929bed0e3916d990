//! Reauthorizing subscriptions: of all sessions after a change of rules, of one session after a renewed login.
//!
//! The work is done in slices, one a turn, so that it delays other sessions little. A session's rights are listed when its turn comes.
//! Each right is checked where its data is; the right to a record is checked at its owner. A session that has lost a right gets the same
//! message as for a denied request. A subscription that is requested but not granted yet is checked again when it is granted.
//!
//! While a view changes, an owner that lets go of a record answers without a decision, and the answer of a lost owner is missing. The next
//! owner gets these checks again when the hand-over is complete. Until then the change of rules is not settled: the session still has the
//! subscription, and earlier messages of it may wait for a client that reads slowly.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::address::SessionId;
use crate::context::{LostRight, TurnContext};
use crate::effect::Effects;
use crate::entry::{
    self, Asker, Entry, Listening, ReadFailed, RecordOperation, RecordRead, RecordRefusal,
    RecordRequest, RecordRequestKind,
};
use crate::event;
use crate::event_pattern::literal_prefix;
use crate::hub::HubTopic;
use crate::listen;
use crate::message::{PresenceAction, ScopeAction, Topic};
use crate::permission::{Access, Authorization, Decision, Question, RequestedAction};
use crate::presence;
use crate::principal::Principal;
use crate::publication::InterestTopic;
use crate::record::subscriber;
use crate::rpc;
use crate::scope::session as scope;
use crate::session::{Session, SessionRights};
use crate::table::{self, Map};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// Rights that are checked, and sessions that are visited, in one slice. They take about a millisecond.
const SLICE: usize = 500;

/// Checks that may wait for other shards at the same time.
const WAITING_MAX: usize = 1_000;

/// A subscription or registration that the permission has allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Publications of an event, of one user or of all users.
    Member(InterestTopic, Name),
    /// Changes of a record, by the serial of the subscription.
    Record(Name, u32),
    /// Calls of an rpc.
    Provide(Name),
    /// Offers of names that match a pattern.
    Listen(Topic, Name),
    /// Being a member of a scope, or the list of its members.
    Scope(ScopeAction, Name),
}

/// A check that waits for another record, or for a record's owner.
#[derive(Debug)]
struct Waiting {
    session: SessionId,
    /// The principal that the request to the owner names.
    principal: Arc<Principal>,
    right: Right,
    /// The records that its rule has read.
    values: Vec<(Name, Option<Payload>)>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Reauthorizer {
    /// Whether all sessions are being reauthorized. Sessions with a new principal have their turn afterwards.
    is_sweeping: bool,
    /// The next index to visit while all sessions are being reauthorized.
    index: Option<u32>,
    /// Sessions whose principal has changed, each once.
    renewed: VecDeque<SessionId>,
    /// The current session, with its rights that are not checked yet.
    current: Option<SessionId>,
    rights: Vec<Right>,
    /// Waiting checks by ticket. An answer with an unknown ticket belongs to an earlier round and is ignored.
    waiting: Map<u64, Waiting>,
    /// Checks that the owners of their records may not have decided, because the records pass to other owners.
    undecided: Vec<Waiting>,
    tickets: u64,
    /// Sessions that have lost a right to new rules since the last call of [`Reauthorizer::take_losers`].
    losers: BTreeSet<SessionId>,
    lost: u64,
}

impl Reauthorizer {
    /// Creates it without pending work.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            is_sweeping: false,
            index: None,
            renewed: VecDeque::new(),
            current: None,
            rights: Vec::new(),
            waiting: table::map(seed),
            undecided: Vec::new(),
            tickets: 0,
            losers: BTreeSet::new(),
            lost: 0,
        }
    }

    /// Starts to reauthorize all sessions. Pending checks by older rules are dropped.
    pub(crate) fn begin(&mut self) {
        self.is_sweeping = true;
        self.index = Some(0);
        self.renewed.clear();
        self.current = None;
        self.rights.clear();
        self.waiting.clear();
        self.undecided.clear();
    }

    /// Schedules one session.
    pub(crate) fn renew(&mut self, id: SessionId) {
        if !self.renewed.contains(&id) {
            self.renewed.push_back(id);
        }
    }

    /// Whether some session is not reauthorized by the newest rules yet.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.is_sweeping
    }

    /// When the next slice is due: at once, unless it waits for other shards.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.has_next() && self.has_room()).then_some(Instant(0))
    }

    /// The number of subscriptions, registrations and patterns that have ended because their right was lost.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost
    }

    /// The sessions that have lost a right since the last call.
    pub(crate) fn take_losers(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.losers)
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.undecided.len() < WAITING_MAX
    }

    fn has_next(&self) -> bool {
        self.index.is_some()
            || !self.rights.is_empty()
            || (!self.is_sweeping && !self.renewed.is_empty())
    }

    fn end_sweep(&mut self) {
        let is_waiting = !self.waiting.is_empty() || !self.undecided.is_empty();
        if self.is_sweeping && !self.has_next() && !is_waiting {
            self.is_sweeping = false;
        }
    }

    /// Reauthorizes a slice.
    pub(crate) fn advance<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        self.authorize_slice(turn);
        self.end_sweep();
    }

    fn authorize_slice<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        // A visited session without rights also costs a step, so the sweep over many idle sessions is done in slices. The list of a
        // session's rights is made when its turn comes. Later requests of the session are decided by the new rules anyway. The principal
        // is read for each right, because the session may have ended or renewed its login between two slices. The number of waiting
        // checks is limited, so a rule that reads other records can't flood their owners.
        for _ in 0..SLICE {
            if !self.has_room() {
                return;
            }
            let Some((id, right)) = self.current.zip(self.rights.pop()) else {
                if !self.next_session(turn) {
                    return;
                }
                continue;
            };
            if let Some(principal) = turn.principal(id) {
                let waiting = Waiting {
                    session: id,
                    principal,
                    right,
                    values: Vec::new(),
                };
                self.authorize(turn, waiting, false);
            }
        }
    }

    /// Handles a value that a rule needs.
    pub(crate) fn value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        ticket: u64,
        name: Name,
        value: Result<Option<Payload>, ReadFailed>,
    ) {
        let Some(mut waiting) = self.waiting.remove(&ticket) else {
            return;
        };
        let has_failed = value.is_err();
        waiting.values.extend(value.map(|value| (name, value)));
        if let Some(principal) = turn.principal(waiting.session) {
            waiting.principal = principal;
            self.authorize(turn, waiting, has_failed);
        }
        self.end_sweep();
    }

    /// Handles the answer of a record's owner. `passes` tells whether the hand-over of a record is in progress.
    pub(crate) fn record_reauthorized<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        ticket: u64,
        lost: Option<RecordRefusal>,
        passes: impl Fn(&str) -> bool,
    ) {
        let Some(mut waiting) = self.waiting.remove(&ticket) else {
            return;
        };
        let id = waiting.session;
        let principal = turn.principal(id);
        if let Some(renewed) = principal.filter(|known| !Arc::ptr_eq(known, &waiting.principal)) {
            // The principal has changed since the request to the owner, so the decision may be wrong. The owner has to decide again.
            waiting.principal = renewed;
            self.ask_owner(turn, waiting);
        } else if let Right::Record(name, serial) = &waiting.right {
            match lost {
                Some(why) => self.lost(turn, id, name, *serial, why),
                None if passes(name) => self.undecided.push(waiting),
                None => {}
            }
        }
        self.end_sweep();
    }

    /// Asks the owners again that records have after the hand-over of a view.
    pub(crate) fn records_passed<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        for mut waiting in std::mem::take(&mut self.undecided) {
            if let Some(principal) = turn.principal(waiting.session) {
                waiting.principal = principal;
                self.ask_owner(turn, waiting);
            }
        }
        self.end_sweep();
    }

    /// Handles that the owner of a record denies a subscriber the record's value. During a sweep that may be due to the new rules, so the
    /// session counts as a loser before its turn comes.
    pub(crate) fn lost<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        name: &Name,
        serial: u32,
        why: RecordRefusal,
    ) {
        if subscriber::lose(turn, id, name, serial, why) {
            self.count(turn, id);
        }
    }

    /// Lists the rights of the next session. Returns false if no session is left.
    fn next_session<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) -> bool {
        self.current = None;
        let Some(index) = self.index else {
            let renewed = self.renewed.front().copied().filter(|_| !self.is_sweeping);
            if let Some(id) = renewed {
                self.renewed.pop_front();
                self.list(turn, id);
            }
            return renewed.is_some();
        };
        self.index = Some(index + 1).filter(|next| (*next as usize) < turn.sessions.table_len());
        if let Some(id) = turn.sessions.at(index).map(|session| session.id) {
            self.list(turn, id);
        }
        true
    }

    fn list<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, id: SessionId) {
        let state = turn.sessions.find(id).and_then(|it| it.state.as_ref());
        if state.is_some_and(|with| with.backed.is_some()) {
            // Its backend decides about its rooms.
            return;
        }
        let names = turn.hub.memberships(id, turn.sessions);
        let members = names.into_iter().filter_map(|(topic, name)| match topic {
            HubTopic::Interest(topic) => Some(Right::Member(topic, name)),
            HubTopic::Record => None,
        });
        self.rights.extend(members);
        let scopes = turn.scopes.rights(id).into_iter();
        self.rights
            .extend(scopes.map(|(action, name)| Right::Scope(action, name)));
        let Some(session) = turn.sessions.find_mut(id) else {
            return;
        };
        // Subscribers of a pattern may have lost the right to single events. These are not known, so such a session must not get its earlier
        // messages after the change is settled, like a session that has lost a subscription.
        if self.is_sweeping && session.event_pattern_count() > 0 {
            self.losers.insert(id);
        }
        let state = session.state.as_ref();
        let follows = state.and_then(|with| with.follows.as_ref());
        let waiting = follows.map_or_else(Vec::new, |follows| follows.waiting_names());
        let waiting = waiting.into_iter();
        self.rights
            .extend(waiting.map(|name| Right::Member(InterestTopic::Event, name)));
        let SessionRights {
            records,
            provided,
            patterns,
        } = session.rights_to_check();
        if !patterns.is_empty()
            && let Some(principal) = turn.principal(id)
        {
            let provider = id;
            turn.post_all(&Entry::Listening(Listening::Renewed {
                provider,
                principal,
            }));
        }
        let records = records.into_iter();
        let provided = provided.into_iter();
        let patterns = patterns.into_iter();
        self.rights
            .extend(records.map(|(name, serial)| Right::Record(name, serial)));
        self.rights.extend(provided.map(Right::Provide));
        self.rights
            .extend(patterns.map(|(topic, pattern)| Right::Listen(topic, pattern)));
        self.current = Some(id);
    }

    fn authorize<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        waiting: Waiting,
        has_failed: bool,
    ) {
        let id = waiting.session;
        let mut by = RequestedAction::Plainly;
        let mut state = None;
        let (access, name) = match &waiting.right {
            Right::Record(..) => return self.ask_owner(turn, waiting),
            Right::Member(InterestTopic::Event, name) => (Access::EventSubscribe, Some(name)),
            Right::Member(InterestTopic::EventPattern, pattern) => {
                (Access::EventSubscribe, Some(pattern))
            }
            Right::Member(InterestTopic::User, name) => {
                by = RequestedAction::Presence(PresenceAction::Subscribe);
                (Access::Presence, Some(name))
            }
            Right::Member(InterestTopic::Everyone, _) => {
                by = RequestedAction::Presence(PresenceAction::SubscribeAll);
                (Access::Presence, None)
            }
            Right::Provide(name) => (Access::RpcProvide, Some(name)),
            Right::Listen(Topic::Record, pattern) => (Access::RecordListen, Some(pattern)),
            Right::Listen(_, pattern) => (Access::EventListen, Some(pattern)),
            Right::Scope(action, name) => {
                if *action == ScopeAction::Join {
                    state = turn.scopes.state(id, name);
                }
                (scope::access_of(*action), Some(name))
            }
        };
        let question = Question {
            principal: &waiting.principal,
            access,
            by,
            name: name.map(Name::as_str),
            data: state.as_ref().map(Payload::as_str),
            old_data: None,
            now: turn.now.wall,
            values: &waiting.values,
        };
        let permission = &turn.shard.permission;
        let decision = match &waiting.right {
            Right::Listen(_, pattern) => {
                permission.decide_pattern(&question, &listen::literal_prefix(pattern))
            }
            Right::Member(InterestTopic::EventPattern, pattern) => {
                permission.decide_pattern(&question, literal_prefix(pattern))
            }
            _ => permission.decide(&question),
        };
        let lost = match decision {
            Decision::Allow => return,
            Decision::Deny => LostRight::Denied,
            Decision::Failed => LostRight::RuleFailed,
            Decision::Need(_) if has_failed => LostRight::RuleFailed,
            Decision::Need(_)
                if waiting.values.len() >= turn.shard.settings.limits.rule_reads_max =>
            {
                LostRight::RuleFailed
            }
            Decision::Need(record) => return self.ask_value(turn, waiting, record),
        };
        let has_lost = match waiting.right {
            Right::Member(InterestTopic::Event, name) => event::lose(turn, id, name, lost),
            Right::Member(InterestTopic::EventPattern, pattern) => {
                event::lose_pattern(turn, id, pattern, lost)
            }
            Right::Member(topic, name) => presence::lose(turn, id, topic, name, lost),
            Right::Provide(name) => rpc::lose(turn, id, name, lost),
            Right::Listen(topic, pattern) => listen::lose(turn, id, topic, pattern, lost),
            Right::Scope(action, name) => scope::lose(turn, id, action, &name, lost),
            Right::Record(..) => false,
        };
        if has_lost {
            turn.shard.count_denial(match lost {
                LostRight::Denied => Authorization::Deny,
                LostRight::RuleFailed => Authorization::Failed,
            });
            self.count(turn, id);
        }
    }

    fn count<E: Effects>(&mut self, turn: &TurnContext<'_, E>, id: SessionId) {
        self.lost += 1;
        if self.is_sweeping && turn.sessions.find(id).is_some() {
            self.losers.insert(id);
        }
    }

    fn ask_value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        waiting: Waiting,
        record: Name,
    ) {
        let ticket = self.wait(waiting);
        let asker = Asker::Reauthorize {
            address: turn.shard.address,
            ticket,
        };
        turn.read_value(record, asker);
    }

    fn ask_owner<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, waiting: Waiting) {
        let Right::Record(name, serial) = waiting.right.clone() else {
            return;
        };
        let Some(epoch) = subscriber::granted(turn, waiting.session, &name, serial) else {
            return;
        };
        let (session, principal) = (waiting.session, Arc::clone(&waiting.principal));
        let owner = turn.shard.owner(&name);
        let ticket = self.wait(waiting);
        let right = entry::Reauthorization {
            ticket,
            serial,
            epoch: Some(epoch),
        };
        let read = RecordOperation::Read(RecordRead::Right(right));
        let what = RecordRequestKind::One(name, read);
        turn.post(
            owner,
            Entry::RecordRequest(RecordRequest {
                session,
                principal,
                what,
            }),
        );
    }

    fn wait(&mut self, waiting: Waiting) -> u64 {
        self.tickets += 1;
        self.waiting.insert(self.tickets, waiting);
        self.tickets
    }
}

impl Session {
    /// The rights of the session except memberships, in an order that does not depend on hash tables. Record subscriptions that are not
    /// granted yet are marked, and are checked again when they are granted.
    fn rights_to_check(&mut self) -> SessionRights {
        let mut held = SessionRights::default();
        let Some(with) = &mut self.state else {
            return held;
        };
        for (name, subscription) in with.subscriptions.iter_mut() {
            match subscription.granted {
                Some(_) => held.records.push((name.clone(), subscription.serial)),
                None => subscription.again = true,
            }
        }
        held.provided.extend(with.provided.names().cloned());
        held.patterns.extend(with.patterns.keys().cloned());
        held.records.sort_unstable();
        held.provided.sort_unstable();
        held.patterns.sort_unstable();
        held
    }
}
