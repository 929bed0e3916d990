//! The steps of a search: one step, or a few, try one pattern with one name.

use smallvec::SmallVec;

use super::ListenOwner;
use super::listener::Candidate;
use super::order::Visit;
use super::state::{Phase, Progress, Round, Search};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::message::Topic;
use crate::text::Name;

/// Listeners that a search among new patterns remembers. If it meets more, it goes through all listeners instead, where it meets each once.
const NEW_ASKED_MAX: usize = 8;

/// The result of one step of a search.
enum SearchStep {
    /// The search continues.
    More,
    Found(Candidate),
    End,
}

impl ListenOwner {
    /// Continues the search of the next name until a listener gets a question, its rule waits for a record, or no listener or step is left.
    pub(super) fn search_step<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, topic: Topic) {
        let now = self.clock + 1;
        let tried = self.next_pattern;
        let visit = self.first_visit(turn);
        let is_one_node = self.is_one_node(turn);
        let state = self.topic_state_mut(topic);
        let Some(name) = state.queue.pop_front() else {
            return;
        };
        let Some(wanted) = state.wanted.get_mut(&name) else {
            return self.spend(1);
        };
        let progress = match std::mem::replace(&mut wanted.search, Search::Idle) {
            Search::Running(progress) => *progress,
            Search::Queued { all } => {
                let at = std::mem::replace(&mut wanted.tried, tried);
                Progress {
                    began: now,
                    has_matched: wanted.has_matched && !all,
                    was_busy: false,
                    phase: if all {
                        Phase::all(first_round(is_one_node, wanted.node), visit, tried)
                    } else {
                        Phase::New {
                            at,
                            asked: SmallVec::new(),
                        }
                    },
                }
            }
            other => {
                wanted.search = other;
                return self.spend(1);
            }
        };
        self.clock = now;
        self.spend(1);
        self.advance_search(turn, topic, name, progress);
    }

    /// The order in which a search visits all listeners, at its start.
    fn first_visit<E: Effects>(&mut self, turn: &TurnContext<'_, E>) -> Visit {
        if turn.shard.settings.listen_shuffle {
            let seed = self.random.below(u32::MAX as usize);
            self.list.shuffled(seed as u64)
        } else {
            Visit::in_order()
        }
    }

    /// Whether all listeners are sessions of this node.
    fn is_one_node<E: Effects>(&self, turn: &TurnContext<'_, E>) -> bool {
        let own = turn.shard.address.node;
        self.listeners_by_node.keys().all(|node| *node == own)
    }

    /// Makes steps of one search until it has a candidate, ends, or the turn has no steps left.
    fn advance_search<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        mut progress: Progress,
    ) {
        loop {
            if self.turn_steps == 0 {
                let state = self.topic_state_mut(topic);
                if let Some(wanted) = state.wanted.get_mut(&name) {
                    wanted.search = Search::Running(Box::new(progress));
                    state.queue.push_front(name);
                }
                return;
            }
            match self.try_next_pattern(turn, topic, &name, &mut progress) {
                SearchStep::More => {}
                SearchStep::Found(candidate) => {
                    return self.try_candidate(turn, topic, name, progress, candidate, Vec::new());
                }
                SearchStep::End => {
                    let state = self.topic_state_mut(topic);
                    if let Some(wanted) = state.wanted.get_mut(&name) {
                        wanted.has_matched = progress.has_matched;
                        if progress.was_busy {
                            wanted.search = Search::Postponed;
                            state.postponed.push_back(name);
                            state.trim();
                        }
                    }
                    return;
                }
            }
        }
    }

    /// Tries one pattern, or skips one listener.
    fn try_next_pattern<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        topic: Topic,
        name: &Name,
        progress: &mut Progress,
    ) -> SearchStep {
        let began = progress.began;
        let (order, number) = match &mut progress.phase {
            Phase::All {
                round,
                visit,
                patterns_end,
            } => {
                let Some(order) = visit.listener(&self.list, &self.listeners) else {
                    visit.restart();
                    self.spend(1);
                    let Some(next) = round.next() else {
                        return self.search_new_patterns(topic, name, progress);
                    };
                    *round = next;
                    return SearchStep::More;
                };
                let next = self.listeners.get(&order).and_then(|listener| {
                    let mut patterns = listener.patterns.range(visit.pattern..*patterns_end);
                    round
                        .tries(listener, began)
                        .then(|| patterns.next())
                        .flatten()
                });
                let Some((&number, _)) = next else {
                    visit.advance();
                    self.spend(1);
                    return SearchStep::More;
                };
                visit.pattern = number + 1;
                (order, number)
            }
            Phase::New { at, asked } => {
                let Some((&number, &order)) = self.topic_state(topic).patterns.range(*at..).next()
                else {
                    return SearchStep::End;
                };
                *at = number + 1;
                if asked.contains(&order) {
                    self.spend(1);
                    return SearchStep::More;
                }
                (order, number)
            }
        };
        let Some(listener) = self.listeners.get(&order) else {
            return SearchStep::More;
        };
        let Some(pattern) = listener.patterns.get(&number) else {
            return SearchStep::More;
        };
        let is_match = pattern.topic == topic && self.matcher.is_match(&pattern.expression, name);
        let steps = pattern.expression.steps(name);
        let is_busy = listener.unanswered >= questions_max(turn);
        let candidate = Candidate {
            listener: order,
            session: listener.session,
            pattern: number,
        };
        self.spend(steps);
        if !is_match {
            return SearchStep::More;
        }
        progress.has_matched = true;
        progress.was_busy |= is_busy;
        match &mut progress.phase {
            Phase::All { visit, .. } => visit.advance(),
            Phase::New { asked, .. } if asked.len() < NEW_ASKED_MAX => asked.push(order),
            Phase::New { .. } => {
                return self.search_all_patterns(turn, topic, name, progress);
            }
        }
        if is_busy {
            SearchStep::More
        } else {
            SearchStep::Found(candidate)
        }
    }

    /// After too many listeners with new patterns: tries all patterns.
    fn search_all_patterns<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        topic: Topic,
        name: &Name,
        progress: &mut Progress,
    ) -> SearchStep {
        let next = self.next_pattern;
        let is_one_node = self.is_one_node(turn);
        let Some(wanted) = self.topic_state_mut(topic).wanted.get_mut(name) else {
            return SearchStep::End;
        };
        wanted.tried = next;
        let round = first_round(is_one_node, wanted.node);
        progress.phase = Phase::all(round, self.first_visit(turn), next);
        SearchStep::More
    }

    /// After all listeners: tries the patterns that were added during the search.
    fn search_new_patterns(
        &mut self,
        topic: Topic,
        name: &Name,
        progress: &mut Progress,
    ) -> SearchStep {
        let next = self.next_pattern;
        let state = self.topic_state_mut(topic);
        let tried = state.wanted.get(name).map_or(next, |wanted| wanted.tried);
        if !state.has_new(tried) {
            return SearchStep::End;
        }
        if let Some(wanted) = state.wanted.get_mut(name) {
            wanted.tried = next;
        }
        progress.phase = Phase::New {
            at: tried,
            asked: SmallVec::new(),
        };
        SearchStep::More
    }
}

/// The first round of a search among all listeners, for a name whose first subscriber is on that node.
fn first_round(is_one_node: bool, node: u16) -> Round {
    if is_one_node {
        Round::OneNode
    } else {
        Round::Near(node)
    }
}

fn questions_max<E: Effects>(turn: &TurnContext<'_, E>) -> usize {
    turn.shard.settings.limits.listen_questions_max.max(1)
}
