//! Questions: the authorization of a candidate, the notice to it, and its answer.

use super::listener::Candidate;
use super::state::{Asking, Authorizing, Progress, Search};
use super::{ListenOwner, ProviderChange};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Asker, Entry, ListenNotice, ReadFailed};
use crate::message::Topic;
use crate::permission::{Access, Decision, Question, RequestedAction};
use crate::text::{Name, Payload};

impl ListenOwner {
    /// Asks a listener for a name if the listener's rule allows it.
    pub(super) fn try_candidate<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        progress: Progress,
        candidate: Candidate,
        values: Vec<(Name, Option<Payload>)>,
    ) {
        self.spend(1);
        match self.decide(turn, topic, &name, &candidate, &values) {
            Some(Decision::Allow) => self.ask(turn, topic, name, progress, candidate),
            Some(Decision::Need(record))
                if values.len() < turn.shard.settings.limits.rule_reads_max =>
            {
                let number = self.tick();
                let asker = Asker::Listening {
                    owner: turn.shard.address,
                    topic,
                    name: name.clone(),
                    number,
                };
                turn.read_value(record, asker);
                if let Some(wanted) = self.topic_state_mut(topic).wanted.get_mut(&name) {
                    wanted.search = Search::Authorizing(Box::new(Authorizing {
                        candidate,
                        number,
                        values,
                        progress,
                    }));
                }
            }
            _ => self.continue_later(topic, name, progress),
        }
    }

    /// The decision of the `listen` rule on a name and a listener; `None` if the listener or its pattern no longer exists.
    pub(super) fn decide<E: Effects>(
        &self,
        turn: &TurnContext<'_, E>,
        topic: Topic,
        name: &Name,
        candidate: &Candidate,
        values: &[(Name, Option<Payload>)],
    ) -> Option<Decision> {
        let listener = self.listeners.get(&candidate.listener)?;
        listener.patterns.get(&candidate.pattern)?;
        let access = if topic == Topic::Record {
            Access::RecordListen
        } else {
            Access::EventListen
        };
        Some(turn.shard.permission.decide(&Question {
            principal: &listener.principal,
            access,
            by: RequestedAction::Plainly,
            name: Some(name),
            data: None,
            old_data: None,
            now: turn.now.wall,
            values,
        }))
    }

    /// Handles the value of a record that a listener's rule needs.
    pub(crate) fn value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (topic, name, number): (Topic, Name, u64),
        record: Name,
        value: Result<Option<Payload>, ReadFailed>,
    ) {
        let Some(wanted) = self.topic_state_mut(topic).wanted.get_mut(&name) else {
            return;
        };
        let is_asked = |authorizing: &Authorizing| authorizing.number == number;
        if !matches!(&wanted.search, Search::Authorizing(authorizing) if is_asked(authorizing)) {
            return;
        }
        let Search::Authorizing(authorizing) = std::mem::replace(&mut wanted.search, Search::Idle)
        else {
            return;
        };
        let Authorizing {
            candidate,
            mut values,
            progress,
            ..
        } = *authorizing;
        match value {
            Ok(value) => {
                values.push((record, value));
                self.try_candidate(turn, topic, name, progress, candidate, values);
            }
            Err(ReadFailed) => self.continue_later(topic, name, progress),
        }
        self.work(turn);
    }

    /// Asks a candidate whose rule allows the name.
    fn ask<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        progress: Progress,
        candidate: Candidate,
    ) {
        let number = self.tick();
        if let Some(pattern) = self.pattern_mut(&candidate) {
            pattern.names.insert(name.clone());
        }
        if let Some(listener) = self.listeners.get_mut(&candidate.listener) {
            listener.unanswered += 1;
            self.unanswered += 1;
        }
        self.notify(turn, topic, &candidate, &name, ListenNotice::Found);
        if let Some(wanted) = self.topic_state_mut(topic).wanted.get_mut(&name) {
            wanted.has_matched = true;
            wanted.search = Search::Asking(Box::new(Asking {
                candidate,
                number,
                progress,
            }));
        }
        let deadline = turn.now.monotonic + turn.shard.settings.listen_response_timeout;
        self.timeouts.push(deadline, (topic, name, number));
    }

    /// Handles the answer of a listener, if the question was about this pattern.
    pub(super) fn answered(&mut self, topic: Topic, name: Name, pattern: u64, accepted: bool) {
        let is_asked = |asking: &Asking| asking.candidate.pattern == pattern;
        let Some((wanted, asking)) = self.topic_state_mut(topic).take_asking(&name, is_asked)
        else {
            return;
        };
        let Asking {
            candidate,
            progress,
            ..
        } = asking;
        if accepted {
            wanted.search = Search::Provided(candidate);
        }
        let now = self.tick();
        self.question_ended(candidate.listener);
        if let Some(listener) = self.listeners.get_mut(&candidate.listener)
            && listener.is_silent()
        {
            listener.silent_to = now;
        }
        if !accepted {
            self.forget_name(&candidate, &name);
            self.continue_later(topic, name, progress);
        } else if topic == Topic::Record {
            let provided = true;
            self.changes.push(ProviderChange { name, provided });
        }
    }

    /// Asks the next listener if this one did not answer the question of this number.
    pub(super) fn timed_out<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        number: u64,
    ) {
        let is_asked = |asking: &Asking| asking.number == number;
        let Some((_, asking)) = self.topic_state_mut(topic).take_asking(&name, is_asked) else {
            return;
        };
        let Asking {
            candidate,
            progress,
            ..
        } = asking;
        let now = self.tick();
        self.question_ended(candidate.listener);
        if let Some(listener) = self.listeners.get_mut(&candidate.listener)
            && !listener.is_silent()
        {
            listener.silent_from = now;
        }
        self.notify(turn, topic, &candidate, &name, ListenNotice::TimedOut);
        self.forget_name(&candidate, &name);
        self.continue_later(topic, name, progress);
    }

    /// Sends a listener a notice about a name, with the pattern by which the listener got the question.
    pub(super) fn notify<E: Effects>(
        &self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        to: &Candidate,
        name: &Name,
        notice: ListenNotice,
    ) {
        let listener = self.listeners.get(&to.listener);
        let Some(pattern) = listener.and_then(|listener| listener.patterns.get(&to.pattern)) else {
            return;
        };
        let entry = Entry::ListenNotice {
            provider: to.session,
            topic,
            pattern: pattern.text.clone(),
            name: name.clone(),
            notice,
        };
        turn.post(to.session.address, entry);
    }

    /// Notes that a question was answered, or can no longer be answered.
    pub(super) fn question_ended(&mut self, order: u64) {
        if let Some(listener) = self.listeners.get_mut(&order) {
            listener.unanswered -= 1;
            self.unanswered -= 1;
        }
        for state in [&mut self.records, &mut self.events] {
            if !state.postponed.is_empty() {
                state.ended_questions += 1;
            }
        }
    }

    /// Removes a name from the names that depend on a pattern.
    pub(super) fn forget_name(&mut self, candidate: &Candidate, name: &Name) {
        if let Some(pattern) = self.pattern_mut(candidate) {
            pattern.names.remove(name);
        }
    }
}
