//! The patterns that a shard knows, the names that it owns, and the entries and deadlines that drive the searches for providers. The
//! states of a search are in the comment of the folder (`mod.rs`).
//!
//! A search goes through the listeners, which are sessions with patterns, in a random order (`order.rs`), and asks one at a time. It asks
//! each listener once, however many of its patterns match, and only if the `listen` rule allows the listener this very name. Listeners on
//! the node of the name's first subscriber come first, and those that left their last question unanswered come after all others.
//!
//! All of this is done in steps: one step tries one pattern with one name, or examines one name. A turn makes [`TURN_STEPS`] of them, and
//! the rest waits in queues for later turns. When a pattern or a session ends, the pattern's own list of names gives the names that are
//! affected.

mod listener;
mod order;
mod question;
mod search;
mod state;
mod topic;
mod wanted;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Listening, ReplyPart};
use crate::footprint::{PATTERN_ENTRY_BYTES, WANTED_BYTES};
use crate::listen_pattern::Matcher;
use crate::message::Topic;
use crate::table::{self, Map, Random};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use listener::{Listener, Pattern};
use order::ListenerList;
use state::{Search, Wanted};
use topic::TopicState;
use work::{Reauthorization, TURN_STEPS, WithdrawnPattern};

/// All patterns, and the searches for the names that this shard owns.
#[derive(Debug)]
pub(crate) struct ListenOwner {
    listeners: BTreeMap<u64, Listener>,
    list: ListenerList,
    by_session: Map<SessionId, u64>,
    /// The number of listeners on each node that has any.
    listeners_by_node: BTreeMap<u16, usize>,
    records: TopicState,
    events: TopicState,
    next_listener: u64,
    next_pattern: u64,
    /// Counts searches, questions and answers. A late timer finds another number, and the owner can compare a listener's silence with the
    /// start of a search.
    clock: u64,
    /// Counts the censuses of events.
    census: u64,
    timeouts: DeadlineQueue<(Topic, Name, u64)>,
    rematch: Option<Instant>,
    withdrawn_patterns: VecDeque<WithdrawnPattern>,
    reauthorizations: VecDeque<Reauthorization>,
    /// Names of events that are no longer searched for; they are dropped step by step.
    discarded: Vec<BTreeMap<Name, Wanted>>,
    /// Number of questions that no listener has answered yet.
    unanswered: usize,
    /// The steps that are left in this turn, and all steps that were made.
    turn_steps: usize,
    steps: u64,
    next_kind: usize,
    random: Random,
    matcher: Matcher,
    /// Records whose provider changed, until the engine notifies their subscribers.
    pub(crate) changes: Vec<ProviderChange>,
}

/// A record that has got, or lost, its provider. The engine notifies its subscribers.
#[derive(Debug)]
pub(crate) struct ProviderChange {
    pub(crate) name: Name,
    pub(crate) provided: bool,
}

impl ListenOwner {
    /// Creates it without patterns and names.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            listeners: BTreeMap::new(),
            list: ListenerList::default(),
            by_session: table::map(seed),
            listeners_by_node: BTreeMap::new(),
            records: TopicState::default(),
            events: TopicState::default(),
            next_listener: 0,
            next_pattern: 0,
            clock: 0,
            census: 0,
            timeouts: DeadlineQueue::new(),
            rematch: None,
            withdrawn_patterns: VecDeque::new(),
            reauthorizations: VecDeque::new(),
            discarded: Vec::new(),
            unanswered: 0,
            turn_steps: TURN_STEPS,
            steps: 0,
            next_kind: 0,
            random: Random::new(seed),
            matcher: Matcher::default(),
            changes: Vec::new(),
        }
    }

    /// The number of patterns.
    pub(crate) fn pattern_count(&self) -> usize {
        self.records.patterns.len() + self.events.patterns.len()
    }

    /// The number of names with subscribers.
    pub(crate) fn wanted_count(&self) -> usize {
        self.records.wanted.len() + self.events.wanted.len()
    }

    /// Bytes of the patterns, without their expressions, and of the names with subscribers.
    pub(crate) fn bytes(&self) -> usize {
        let discarded: usize = self.discarded.iter().map(BTreeMap::len).sum();
        self.pattern_count() * PATTERN_ENTRY_BYTES
            + (self.wanted_count() + discarded) * WANTED_BYTES
    }

    /// The number of steps that were made.
    pub(crate) fn step_count(&self) -> u64 {
        self.steps
    }

    /// Whether names that were offered under older rights are still to be authorized again.
    pub(crate) fn is_reauthorizing(&self) -> bool {
        !self.reauthorizations.is_empty()
    }

    /// Whether a listener provides the name.
    pub(crate) fn is_provided(&self, topic: Topic, name: &Name) -> bool {
        let wanted = self.topic_state(topic).wanted.get(name);
        wanted.is_some_and(|wanted| matches!(wanted.search, Search::Provided(_)))
    }

    /// The earliest deadline: at once, if work is queued.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.has_work() {
            return Some(Instant(0));
        }
        [self.timeouts.next(), self.rematch]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends a turn: the next one has its own steps.
    pub(crate) fn end_turn(&mut self) {
        self.turn_steps = TURN_STEPS;
    }

    /// Handles a message about listening from another shard or from this one.
    pub(crate) fn handle<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, entry: Listening) {
        match entry {
            Listening::Add {
                topic,
                pattern,
                provider,
                principal,
                reply,
            } => {
                let (text, expression) = pattern.into_parts();
                let pattern = Pattern {
                    topic,
                    text,
                    expression,
                    names: BTreeSet::new(),
                };
                self.add_pattern(turn, provider, principal, pattern);
                if let Some(reply) = reply {
                    turn.part_done(reply, ReplyPart::Done);
                }
            }
            Listening::Remove {
                topic,
                pattern,
                provider,
                reply,
            } => {
                if let Some((listener, number)) = self.find_pattern(provider, topic, &pattern) {
                    self.withdraw_pattern(turn, listener, number);
                }
                if let Some(reply) = reply {
                    turn.part_done(reply, ReplyPart::Done);
                }
            }
            Listening::Renewed {
                provider,
                principal,
            } => self.renewed(provider, principal),
            Listening::Answered {
                topic,
                pattern,
                name,
                provider,
                accepted,
            } => {
                if let Some((_, number)) = self.find_pattern(provider, topic, &pattern) {
                    self.answered(topic, name, number, accepted);
                }
            }
            Listening::Census { owner, round } => turn.take_part_in_census(owner, round),
            Listening::CensusEnded { owner } => turn.leave_census(owner),
            Listening::Present {
                round,
                shard,
                names,
            } => {
                for name in names {
                    self.interest_changed(turn, round, shard, name, true);
                }
            }
            Listening::Interest {
                round,
                shard,
                name,
                wanted,
            } => self.interest_changed(turn, round, shard, name, wanted),
        }
        self.work(turn);
    }

    /// Asks the next candidate if one did not answer in time, offers unprovided names again from time to time, and continues with the
    /// queued work.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        self.turn_steps = TURN_STEPS;
        let now = turn.now.monotonic;
        while self.turn_steps > 0
            && let Some((topic, name, number)) = self.timeouts.pop_due(now)
        {
            self.spend(1);
            self.timed_out(turn, topic, name, number);
        }
        if self.rematch.is_some_and(|due| due <= now) {
            self.rematch = None;
            self.records.walk(true);
            self.events.walk(true);
        }
        self.plan_rematch(turn);
        self.work(turn);
    }

    fn topic_state(&self, topic: Topic) -> &TopicState {
        if topic == Topic::Record {
            &self.records
        } else {
            &self.events
        }
    }

    fn topic_state_mut(&mut self, topic: Topic) -> &mut TopicState {
        if topic == Topic::Record {
            &mut self.records
        } else {
            &mut self.events
        }
    }

    /// The next number of the owner's clock.
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
