//! Listeners, which are sessions with patterns: their registrations and the ends of these.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use super::ListenOwner;
use super::work::{Reauthorization, WithdrawnPattern};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, Listening};
use crate::listen_pattern::{Expression, ListenPattern};
use crate::message::Topic;
use crate::principal::Principal;
use crate::text::Name;

/// A registered pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) topic: Topic,
    pub(super) text: Name,
    pub(super) expression: Expression,
    /// The names that its listener provides by this pattern, and those that still wait for the listener's answer.
    pub(super) names: BTreeSet<Name>,
}

/// A session with patterns.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) session: SessionId,
    /// The principal whose rights decide which names are offered.
    pub(super) principal: Arc<Principal>,
    pub(super) patterns: BTreeMap<u64, Pattern>,
    pub(super) numbers: BTreeMap<(Topic, Name), u64>,
    /// Questions that it has not answered yet.
    pub(super) unanswered: usize,
    /// By the owner's clock: when it became silent by leaving a question unanswered, and when it ended that by answering one in time.
    pub(super) silent_from: u64,
    pub(super) silent_to: u64,
}

impl Listener {
    /// Whether it left its last question unanswered.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_from > self.silent_to
    }

    /// Whether it was silent at that moment of the owner's clock.
    pub(super) fn was_silent(&self, at: u64) -> bool {
        let (from, to) = (self.silent_from, self.silent_to);
        from > 0 && from <= at && (from > to || to > at)
    }
}

/// A listener, and its pattern that matches a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) listener: u64,
    pub(super) session: SessionId,
    pub(super) pattern: u64,
}

impl ListenOwner {
    /// Adds a pattern and, with its first pattern, its listener. The names of its topic are then tried with it.
    pub(super) fn add_pattern<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        principal: Arc<Principal>,
        pattern: Pattern,
    ) {
        if self
            .find_pattern(session, pattern.topic, &pattern.text)
            .is_some()
        {
            return;
        }
        let number = self.next_pattern;
        self.next_pattern += 1;
        let topic = pattern.topic;
        let order = match self.by_session.get(&session) {
            Some(order) => *order,
            None => {
                let order = self.next_listener;
                self.next_listener += 1;
                self.by_session.insert(session, order);
                *self
                    .listeners_by_node
                    .entry(session.address.node)
                    .or_default() += 1;
                let listener = Listener {
                    session,
                    principal,
                    patterns: BTreeMap::new(),
                    numbers: BTreeMap::new(),
                    unanswered: 0,
                    silent_from: 0,
                    silent_to: 0,
                };
                self.listeners.insert(order, listener);
                self.list.push(order);
                order
            }
        };
        if let Some(listener) = self.listeners.get_mut(&order) {
            let key = (topic, pattern.text.clone());
            listener.numbers.insert(key, number);
            listener.patterns.insert(number, pattern);
        }
        let state = self.topic_state_mut(topic);
        let begins_census = topic == Topic::Event && state.patterns.is_empty();
        state.patterns.insert(number, order);
        state.walk(false);
        if begins_census {
            self.census += 1;
            turn.post_all(&Entry::Listening(Listening::Census {
                owner: turn.shard.address,
                round: self.census,
            }));
        }
        self.plan_rematch(turn);
    }

    /// The entries for a shard that has just learned of this one: the patterns of the sessions here, and that this owner takes a census.
    pub(crate) fn introduced(&self, own: Address) -> Vec<Listening> {
        let local = self.listeners.values();
        let local = local.filter(|listener| listener.session.address == own);
        let patterns = local.flat_map(|listener| {
            listener.patterns.values().filter_map(|pattern| {
                Some(Listening::Add {
                    topic: pattern.topic,
                    pattern: ListenPattern::compile(pattern.text.clone())?,
                    provider: listener.session,
                    principal: Arc::clone(&listener.principal),
                    reply: None,
                })
            })
        });
        let has_events = !self.events.patterns.is_empty();
        let census = has_events.then_some(Listening::Census {
            owner: own,
            round: self.census,
        });
        patterns.chain(census).collect()
    }

    /// The numbers of a listener and of its pattern.
    pub(super) fn find_pattern(
        &self,
        session: SessionId,
        topic: Topic,
        pattern: &Name,
    ) -> Option<(u64, u64)> {
        let listener = *self.by_session.get(&session)?;
        let numbers = &self.listeners.get(&listener)?.numbers;
        Some((listener, *numbers.get(&(topic, pattern.clone()))?))
    }

    pub(super) fn pattern_mut(&mut self, candidate: &Candidate) -> Option<&mut Pattern> {
        let listener = self.listeners.get_mut(&candidate.listener)?;
        listener.patterns.get_mut(&candidate.pattern)
    }

    /// Handles the new principal of a listener: its names are authorized again.
    pub(super) fn renewed(&mut self, session: SessionId, principal: Arc<Principal>) {
        let Some(order) = self.by_session.get(&session).copied() else {
            return;
        };
        if let Some(listener) = self.listeners.get_mut(&order) {
            listener.principal = principal;
        }
        self.queue_reauthorizations(order);
    }

    /// Queues all names that were offered under older rules to be authorized again.
    pub(crate) fn rules_changed(&mut self) {
        self.reauthorizations.clear();
        for listener in self.listeners.keys().copied().collect::<Vec<_>>() {
            self.queue_reauthorizations(listener);
        }
    }

    /// Queues the names of one listener to be authorized again.
    pub(super) fn queue_reauthorizations(&mut self, order: u64) {
        let Some(listener) = self.listeners.get(&order) else {
            return;
        };
        let patterns = listener.patterns.iter();
        let used = patterns.filter(|(_, pattern)| !pattern.names.is_empty());
        self.reauthorizations
            .extend(used.map(|(number, _)| Reauthorization {
                listener: order,
                pattern: *number,
                after: None,
            }));
    }

    /// Takes a pattern away, and queues the names that depended on it for another search.
    pub(super) fn withdraw_pattern<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        order: u64,
        number: u64,
    ) {
        let Some(listener) = self.listeners.get_mut(&order) else {
            return;
        };
        let Some(pattern) = listener.patterns.remove(&number) else {
            return;
        };
        listener
            .numbers
            .remove(&(pattern.topic, pattern.text.clone()));
        if listener.patterns.is_empty() {
            self.remove_listener(order);
        }
        let topic = pattern.topic;
        if !pattern.names.is_empty() {
            self.withdrawn_patterns.push_back(WithdrawnPattern {
                topic,
                listener: order,
                pattern: number,
                names: pattern.names,
            });
        }
        self.topic_state_mut(topic).patterns.remove(&number);
        if topic == Topic::Event && self.events.patterns.is_empty() {
            self.discarded.push(std::mem::take(&mut self.events.wanted));
            turn.post_all(&Entry::Listening(Listening::CensusEnded {
                owner: turn.shard.address,
            }));
        }
    }

    /// Removes a listener that has no patterns left.
    fn remove_listener(&mut self, order: u64) {
        let Some(listener) = self.listeners.remove(&order) else {
            return;
        };
        self.unanswered -= listener.unanswered;
        self.by_session.remove(&listener.session);
        let node = listener.session.address.node;
        if let btree_map::Entry::Occupied(mut count) = self.listeners_by_node.entry(node) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.list.trim(&self.listeners);
    }

    /// Withdraws all patterns of a lost node's sessions, and ends the interest of its shards in events.
    pub(crate) fn node_lost<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        let listeners = self.listeners.values().map(|listener| listener.session);
        let ended: Vec<SessionId> = listeners.filter(|id| id.address.node == node).collect();
        for session in ended {
            self.session_ended(turn, session);
        }
        let mut unwanted = Vec::new();
        for (name, wanted) in &mut self.events.wanted {
            wanted.shards.retain(|shard| shard.node != node);
            if wanted.shards.is_empty() {
                unwanted.push(name.clone());
            }
        }
        for name in unwanted {
            self.remove_name(turn, Topic::Event, &name);
        }
        self.work(turn);
    }

    /// Withdraws all patterns of a session that has ended.
    pub(crate) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        let Some(listener) = self.by_session.get(&session).copied() else {
            return;
        };
        while let Some(number) = self
            .listeners
            .get(&listener)
            .and_then(|known| known.patterns.first_key_value())
            .map(|(number, _)| *number)
        {
            self.withdraw_pattern(turn, listener, number);
        }
        self.work(turn);
    }
}
