//! The queued work, which is done in steps.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::state::Search;
use super::topic::TopicState;
use super::{ListenOwner, ProviderChange};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::ListenNotice;
use crate::message::Topic;
use crate::permission::Decision;
use crate::text::Name;

/// Steps that searches may make in one turn. About a tenth of a millisecond for usual names and patterns.
pub(super) const TURN_STEPS: usize = 1_000;

/// Kinds of queued work, which take turns.
const WORK_KINDS: usize = 10;

/// When a pattern has ended: the names that its listener provided by it, or had not answered for.
#[derive(Debug)]
pub(super) struct WithdrawnPattern {
    pub(super) topic: Topic,
    pub(super) listener: u64,
    pub(super) pattern: u64,
    pub(super) names: BTreeSet<Name>,
}

/// A pattern whose names are authorized again.
#[derive(Debug)]
pub(super) struct Reauthorization {
    pub(super) listener: u64,
    pub(super) pattern: u64,
    pub(super) after: Option<Name>,
}

impl ListenOwner {
    /// Whether a step can be made.
    pub(super) fn has_work(&self) -> bool {
        let has_postponed = |state: &TopicState| {
            !state.postponed.is_empty() && (state.ended_questions > 0 || self.unanswered == 0)
        };
        let is_busy = |state: &TopicState| {
            !state.queue.is_empty() || state.walk.is_some() || has_postponed(state)
        };
        !self.withdrawn_patterns.is_empty()
            || !self.reauthorizations.is_empty()
            || !self.discarded.is_empty()
            || is_busy(&self.records)
            || is_busy(&self.events)
    }

    /// Makes the steps that are left in this turn, or fewer if there is less work.
    pub(super) fn work<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while self.turn_steps > 0 && self.has_work() {
            // The kinds of work take turns, so that a client that keeps one of them busy does not delay the others for long.
            let kind = self.next_kind;
            self.next_kind = (kind + 1) % WORK_KINDS;
            let topic = if kind.is_multiple_of(2) {
                Topic::Record
            } else {
                Topic::Event
            };
            match kind / 2 {
                0 => self.withdrawn_step(),
                1 => self.reauthorization_step(turn),
                2 => self.search_step(turn, topic),
                3 => self.walk_step(topic),
                _ => self.postponed_step(topic),
            }
        }
    }

    /// Counts steps.
    pub(super) fn spend(&mut self, steps: usize) {
        self.turn_steps = self.turn_steps.saturating_sub(steps);
        self.steps += steps as u64;
    }

    /// Searches again for one name of a withdrawn pattern, and drops one name of an event that is no longer searched for.
    fn withdrawn_step(&mut self) {
        if let Some(discarded) = self.discarded.last_mut() {
            discarded.pop_first();
            if discarded.is_empty() {
                self.discarded.pop();
            }
            self.spend(1);
        }
        let Some(withdrawn) = self.withdrawn_patterns.front_mut() else {
            return;
        };
        let (topic, listener, pattern) = (withdrawn.topic, withdrawn.listener, withdrawn.pattern);
        let Some(name) = withdrawn.names.pop_first() else {
            self.withdrawn_patterns.pop_front();
            return;
        };
        self.spend(1);
        let Some(wanted) = self.topic_state_mut(topic).wanted.get(&name) else {
            return;
        };
        match &wanted.search {
            Search::Asking(asking) if asking.candidate.pattern == pattern => {
                self.question_ended(listener)
            }
            Search::Provided(candidate) if candidate.pattern == pattern => {
                self.provider_lost(topic, &name);
            }
            _ => return,
        }
        self.queue_search(topic, &name, true);
    }

    /// Authorizes one name of a listener again.
    fn reauthorization_step<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let Some(reauthorization) = self.reauthorizations.front_mut() else {
            return;
        };
        let (order, number) = (reauthorization.listener, reauthorization.pattern);
        let after = reauthorization
            .after
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let pattern = self
            .listeners
            .get(&order)
            .and_then(|listener| listener.patterns.get(&number));
        let next = pattern.and_then(|pattern| {
            let mut names = pattern.names.range::<Name, _>((after, Bound::Unbounded));
            Some((pattern.topic, names.next()?.clone()))
        });
        let Some((topic, name)) = next else {
            self.reauthorizations.pop_front();
            return;
        };
        reauthorization.after = Some(name.clone());
        self.spend(2);
        let wanted = self.topic_state(topic).wanted.get(&name);
        let (candidate, is_provided) = match wanted.map(|wanted| &wanted.search) {
            Some(Search::Asking(asking)) => (asking.candidate, false),
            Some(Search::Provided(candidate)) => (*candidate, true),
            _ => return,
        };
        // If the rule needs another record, the search that follows authorizes the name.
        if candidate.pattern != number
            || self.decide(turn, topic, &name, &candidate, &[]) == Some(Decision::Allow)
        {
            return;
        }
        if is_provided {
            self.provider_lost(topic, &name);
        } else {
            self.question_ended(order);
        }
        self.notify(turn, topic, &candidate, &name, ListenNotice::Removed);
        self.forget_name(&candidate, &name);
        self.queue_search(topic, &name, true);
    }

    /// Notes that a record has lost its provider.
    pub(super) fn provider_lost(&mut self, topic: Topic, name: &Name) {
        if topic == Topic::Record {
            self.changes.push(ProviderChange {
                name: name.clone(),
                provided: false,
            });
        }
    }

    /// Examines one name of a walk.
    fn walk_step(&mut self, topic: Topic) {
        let state = self.topic_state_mut(topic);
        let Some(walk) = &mut state.walk else {
            return;
        };
        let after = walk
            .after
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = state.wanted.range_mut::<Name, _>((after, Bound::Unbounded));
        let Some((name, wanted)) = names.next() else {
            state.walk = None;
            if let Some(offers_again) = state.next_walk.take() {
                state.walk(offers_again);
            }
            return;
        };
        walk.after = Some(name.clone());
        let last = state.patterns.last_key_value();
        let has_new = last.is_some_and(|(number, _)| *number >= wanted.tried);
        let all = walk.offers_again && wanted.has_matched;
        if matches!(wanted.search, Search::Idle) && (all || has_new) {
            wanted.search = Search::Queued { all };
            state.queue.push_back(name.clone());
        }
        self.spend(1);
    }

    /// Queues one postponed search, if a question has ended.
    fn postponed_step(&mut self, topic: Topic) {
        let is_free = self.unanswered == 0;
        let state = self.topic_state_mut(topic);
        if state.ended_questions == 0 && !is_free {
            return;
        }
        state.ended_questions = state.ended_questions.saturating_sub(1);
        let Some(name) = state.postponed.pop_front() else {
            state.ended_questions = 0;
            return;
        };
        if let Some(wanted) = state.wanted.get_mut(&name)
            && matches!(wanted.search, Search::Postponed)
        {
            wanted.search = Search::Queued { all: true };
            state.queue.push_back(name);
        }
        self.spend(1);
    }

    /// Sets the time of the next offer of unprovided names, while there are listeners.
    pub(super) fn plan_rematch<E: Effects>(&mut self, turn: &TurnContext<'_, E>) {
        if self.listeners.is_empty() {
            self.rematch = None;
        } else if self.rematch.is_none() {
            let interval = turn.shard.settings.listen_rematch_interval;
            self.rematch = interval.map(|interval| turn.now.monotonic + interval);
        }
    }
}
