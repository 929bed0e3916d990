//! Searches for providers at the owner of a name.
//!
//! A search goes through the listeners, which are sessions with patterns, and asks one at a time. It asks each listener once, however many
//! of its patterns match, and only if the `listen` rule allows the listener this very name. Listeners that left their last question
//! unanswered come after all others.
//!
//! All of this is done in steps: one step tries one pattern with one name, or examines one name. A turn makes [`TURN_STEPS`] of them, and
//! the rest waits in queues for later turns. When a pattern or a session ends, the pattern's own list of names gives the names that are
//! affected.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use regex::Regex;
use smallvec::SmallVec;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Asker, Entry, ListenNotice, Listening, ReadFailed, ReplyPart};
use crate::footprint::{PATTERN_ENTRY_BYTES, WANTED_BYTES};
use crate::message::Topic;
use crate::permission::{Access, Decision, Question, RequestedAction};
use crate::principal::Principal;
use crate::table::{self, Map, Random};
use crate::text::{Name, Payload};
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Steps that searches may make in one turn. About a tenth of a millisecond for usual names and patterns.
const TURN_STEPS: usize = 1_000;

/// Bytes of a name that one step matches.
const STEP_BYTES: usize = 64;

/// Listeners that a search among new patterns remembers. If it meets more, it goes through all listeners instead, where it meets each once.
const NEW_ASKED_MAX: usize = 8;

/// Kinds of queued work, which take turns.
const KINDS: usize = 10;

/// A registered pattern.
#[derive(Debug)]
struct Pattern {
    topic: Topic,
    text: Name,
    regex: Arc<Regex>,
    weight: u8,
    /// The names that its listener provides by this pattern, and those that still wait for the listener's answer.
    names: BTreeSet<Name>,
}

/// A session with patterns.
#[derive(Debug)]
struct Listener {
    session: SessionId,
    /// The principal whose rights decide which names are offered.
    principal: Arc<Principal>,
    patterns: BTreeMap<u64, Pattern>,
    numbers: BTreeMap<(Topic, Name), u64>,
    /// Questions that it has not answered yet.
    unanswered: usize,
    /// By the owner's clock: when it became silent by leaving a question unanswered, and when it ended that by answering one in time.
    silent_from: u64,
    silent_to: u64,
}

impl Listener {
    fn is_silent(&self) -> bool {
        self.silent_from > self.silent_to
    }

    /// Whether it was silent at that moment of the owner's clock.
    fn was_silent(&self, at: u64) -> bool {
        let (from, to) = (self.silent_from, self.silent_to);
        from > 0 && from <= at && (from > to || to > at)
    }
}

/// A listener, and its pattern that matches a name.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    listener: u64,
    session: SessionId,
    pattern: u64,
}

/// The progress of a search.
#[derive(Debug)]
struct Progress {
    /// When it began, by the owner's clock.
    began: u64,
    /// Whether some pattern has matched.
    has_matched: bool,
    /// Whether a listener was skipped because it has too many unanswered questions.
    was_busy: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// All listeners: from `first` to the last one, then from the start to `first`.
    All {
        /// Whether this is the second round, for the listeners that left their last question unanswered.
        silent: bool,
        first: u64,
        is_around: bool,
        /// The next listener, and its next pattern.
        at: u64,
        pattern: u64,
    },
    /// The patterns from the number `at` on.
    New { at: u64, asked: SmallVec<[u64; 2]> },
}

#[derive(Debug)]
enum Search {
    /// No listener provides the name, and no listener has a question about it.
    Idle,
    /// It waits for its search: among all patterns, or among the new ones.
    Queued { all: bool },
    /// It waits for the next steps of its search.
    Running(Box<Progress>),
    /// At least one listener that matches was skipped because it has too many unanswered questions.
    Postponed,
    /// The rule of the next listener needs a record.
    Authorizing(Box<Authorizing>),
    /// A listener has a question about the name, and has not answered yet.
    Asking(Box<Asking>),
    /// This listener provides the name.
    Provided(Candidate),
}

#[derive(Debug)]
struct Authorizing {
    candidate: Candidate,
    number: u64,
    values: Vec<(Name, Option<Payload>)>,
    progress: Progress,
}

/// A question to a listener that was not answered yet.
#[derive(Debug)]
struct Asking {
    candidate: Candidate,
    number: u64,
    progress: Progress,
}

#[derive(Debug)]
struct Wanted {
    /// The shards with subscribers of an event. `RecordOwner` counts the subscribers of a record.
    shards: SmallVec<[u16; 2]>,
    /// Patterns below this number were tried.
    tried: u64,
    /// Whether the last search has met a pattern that matches.
    has_matched: bool,
    search: Search,
}

/// A walk through all names of a topic.
#[derive(Debug)]
struct Walk {
    after: Option<Name>,
    /// Whether names that were declined are offered again, or only names with new patterns.
    offers_again: bool,
}

/// The names and patterns of one topic.
#[derive(Debug, Default)]
struct Side {
    /// The names with subscribers: records always, events while there are patterns of events.
    wanted: BTreeMap<Name, Wanted>,
    /// The listener of each pattern.
    patterns: BTreeMap<u64, u64>,
    /// Names whose search is to continue. A name that is no longer queued is skipped.
    queue: VecDeque<Name>,
    postponed: VecDeque<Name>,
    /// Number of questions that have ended since names were postponed.
    freed: usize,
    walk: Option<Walk>,
    /// The walk that begins after this one: its `offers_again`.
    next_walk: Option<bool>,
}

impl Side {
    /// Ends the question about a name, if `is_meant` holds for it. Returns the name's entry, whose search is then idle, and the question.
    fn take_asking(
        &mut self,
        name: &Name,
        is_meant: impl Fn(&Asking) -> bool,
    ) -> Option<(&mut Wanted, Asking)> {
        let wanted = self.wanted.get_mut(name)?;
        if !matches!(&wanted.search, Search::Asking(asking) if is_meant(asking)) {
            return None;
        }
        match std::mem::replace(&mut wanted.search, Search::Idle) {
            Search::Asking(asking) => Some((wanted, *asking)),
            _ => None,
        }
    }

    fn has_new(&self, tried: u64) -> bool {
        let last = self.patterns.last_key_value();
        last.is_some_and(|(number, _)| *number >= tried)
    }

    fn walk(&mut self, offers_again: bool) {
        if self.walk.is_none() {
            let after = None;
            self.walk = Some(Walk {
                after,
                offers_again,
            });
        } else {
            self.next_walk = Some(offers_again || self.next_walk == Some(true));
        }
    }

    /// Drops queue entries of names that have left the queue in another way, before they greatly outnumber the names.
    fn trim(&mut self) {
        let max = 2 * self.wanted.len() + 1_000;
        let wanted = &self.wanted;
        let search = |name: &Name| wanted.get(name).map(|wanted| &wanted.search);
        if self.queue.len() > max {
            let mut known = BTreeSet::new();
            self.queue.retain(|name| {
                matches!(
                    search(name),
                    Some(Search::Queued { .. } | Search::Running(_))
                ) && known.insert(name.clone())
            });
        }
        if self.postponed.len() > max {
            let mut known = BTreeSet::new();
            self.postponed.retain(|name| {
                matches!(search(name), Some(Search::Postponed)) && known.insert(name.clone())
            });
        }
    }
}

/// When a pattern has ended: the names that its listener provided by it, or had not answered for.
#[derive(Debug)]
struct Orphans {
    topic: Topic,
    listener: u64,
    pattern: u64,
    names: BTreeSet<Name>,
}

/// A pattern whose names are authorized again.
#[derive(Debug)]
struct Again {
    listener: u64,
    pattern: u64,
    after: Option<Name>,
}

/// A record that has got, or lost, its provider. The engine notifies its subscribers.
#[derive(Debug)]
pub(crate) struct ProviderChange {
    pub(crate) name: Name,
    pub(crate) provided: bool,
}

/// The result of one step of a search.
enum SearchStep {
    /// The search continues.
    More,
    Found(Candidate),
    End,
}

/// All patterns, and the searches for the names that this shard owns.
#[derive(Debug)]
pub(crate) struct ListenOwner {
    listeners: BTreeMap<u64, Listener>,
    by_session: Map<SessionId, u64>,
    records: Side,
    events: Side,
    next_listener: u64,
    next_pattern: u64,
    /// Counts searches, questions and answers. A late timer finds another number, and the owner can compare a listener's silence with the
    /// start of a search.
    clock: u64,
    /// Counts the censuses of events.
    census: u64,
    timeouts: DeadlineQueue<(Topic, Name, u64)>,
    rematch: Option<Instant>,
    orphans: VecDeque<Orphans>,
    again: VecDeque<Again>,
    /// Names of events that are no longer searched for; they are dropped step by step.
    discarded: Vec<BTreeMap<Name, Wanted>>,
    /// Number of questions that no listener has answered yet.
    unanswered: usize,
    /// The steps that are left in this turn, and all steps that were made.
    turn_steps: usize,
    steps: u64,
    next_kind: usize,
    random: Random,
    /// Records whose provider changed, until the engine notifies their subscribers.
    pub(crate) changes: Vec<ProviderChange>,
}

impl ListenOwner {
    /// Creates it without patterns and names.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            listeners: BTreeMap::new(),
            by_session: table::map(seed),
            records: Side::default(),
            events: Side::default(),
            next_listener: 0,
            next_pattern: 0,
            clock: 0,
            census: 0,
            timeouts: DeadlineQueue::new(),
            rematch: None,
            orphans: VecDeque::new(),
            again: VecDeque::new(),
            discarded: Vec::new(),
            unanswered: 0,
            turn_steps: TURN_STEPS,
            steps: 0,
            next_kind: 0,
            random: Random::new(seed),
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
    pub(crate) fn is_authorizing_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether a listener provides the name.
    pub(crate) fn is_provided(&self, topic: Topic, name: &Name) -> bool {
        let wanted = self.side(topic).wanted.get(name);
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
                regex,
                weight,
                provider,
                principal,
                reply,
            } => {
                let pattern = Pattern {
                    topic,
                    text: pattern,
                    regex,
                    weight,
                    names: BTreeSet::new(),
                };
                self.add(turn, provider, principal, pattern);
                turn.part_done(reply, ReplyPart::Done);
            }
            Listening::Remove {
                topic,
                pattern,
                provider,
                reply,
            } => {
                if let Some((listener, number)) = self.find(provider, topic, &pattern) {
                    self.withdraw(turn, listener, number);
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
                if let Some((_, number)) = self.find(provider, topic, &pattern) {
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
                    self.interest(turn, round, shard, name, true);
                }
            }
            Listening::Interest {
                round,
                shard,
                name,
                wanted,
            } => self.interest(turn, round, shard, name, wanted),
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
            self.withdraw(turn, listener, number);
        }
        self.work(turn);
    }

    /// Queues all names that were offered under older rules to be authorized again.
    pub(crate) fn rules_changed(&mut self) {
        self.again.clear();
        for listener in self.listeners.keys().copied().collect::<Vec<_>>() {
            self.authorize_again(listener);
        }
    }

    /// Notes that a record has its first subscriber.
    pub(crate) fn record_wanted<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, name: &Name) {
        self.begin(Topic::Record, name.clone());
        self.work(turn);
    }

    /// Notes that a record has lost its last subscriber.
    pub(crate) fn record_unwanted<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
    ) {
        self.end(turn, Topic::Record, name);
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

    /// Handles the value of a record that a listener's rule needs.
    pub(crate) fn value<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (topic, name, number): (Topic, Name, u64),
        record: Name,
        value: Result<Option<Payload>, ReadFailed>,
    ) {
        let Some(wanted) = self.side_mut(topic).wanted.get_mut(&name) else {
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

    fn side(&self, topic: Topic) -> &Side {
        if topic == Topic::Record {
            &self.records
        } else {
            &self.events
        }
    }

    fn side_mut(&mut self, topic: Topic) -> &mut Side {
        if topic == Topic::Record {
            &mut self.records
        } else {
            &mut self.events
        }
    }

    fn spend(&mut self, steps: usize) {
        self.turn_steps = self.turn_steps.saturating_sub(steps);
        self.steps += steps as u64;
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn find(&self, session: SessionId, topic: Topic, pattern: &Name) -> Option<(u64, u64)> {
        let listener = *self.by_session.get(&session)?;
        let numbers = &self.listeners.get(&listener)?.numbers;
        Some((listener, *numbers.get(&(topic, pattern.clone()))?))
    }

    fn pattern_mut(&mut self, candidate: &Candidate) -> Option<&mut Pattern> {
        let listener = self.listeners.get_mut(&candidate.listener)?;
        listener.patterns.get_mut(&candidate.pattern)
    }

    fn plan_rematch<E: Effects>(&mut self, turn: &TurnContext<'_, E>) {
        if self.listeners.is_empty() {
            self.rematch = None;
        } else if self.rematch.is_none() {
            let interval = turn.shard.settings.listen_rematch_interval;
            self.rematch = interval.map(|interval| turn.now.monotonic + interval);
        }
    }

    fn add<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        principal: Arc<Principal>,
        pattern: Pattern,
    ) {
        if self.find(session, pattern.topic, &pattern.text).is_some() {
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
                order
            }
        };
        if let Some(listener) = self.listeners.get_mut(&order) {
            let key = (topic, pattern.text.clone());
            listener.numbers.insert(key, number);
            listener.patterns.insert(number, pattern);
        }
        let side = self.side_mut(topic);
        let begins_census = topic == Topic::Event && side.patterns.is_empty();
        side.patterns.insert(number, order);
        side.walk(false);
        if begins_census {
            self.census += 1;
            turn.post_all(&Entry::Listening(Listening::Census {
                owner: turn.shard.address,
                round: self.census,
            }));
        }
        self.plan_rematch(turn);
    }

    /// Takes a pattern away, and queues the names that depended on it for another search.
    fn withdraw<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, order: u64, number: u64) {
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
            self.unanswered -= listener.unanswered;
            self.by_session.remove(&listener.session);
            self.listeners.remove(&order);
        }
        let topic = pattern.topic;
        if !pattern.names.is_empty() {
            self.orphans.push_back(Orphans {
                topic,
                listener: order,
                pattern: number,
                names: pattern.names,
            });
        }
        self.side_mut(topic).patterns.remove(&number);
        if topic == Topic::Event && self.events.patterns.is_empty() {
            self.discarded.push(std::mem::take(&mut self.events.wanted));
            turn.post_all(&Entry::Listening(Listening::CensusEnded {
                owner: turn.shard.address,
            }));
        }
    }

    /// Handles the new principal of a listener: its names are authorized again.
    fn renewed(&mut self, session: SessionId, principal: Arc<Principal>) {
        let Some(order) = self.by_session.get(&session).copied() else {
            return;
        };
        if let Some(listener) = self.listeners.get_mut(&order) {
            listener.principal = principal;
        }
        self.authorize_again(order);
    }

    fn authorize_again(&mut self, order: u64) {
        let Some(listener) = self.listeners.get(&order) else {
            return;
        };
        let patterns = listener.patterns.iter();
        let used = patterns.filter(|(_, pattern)| !pattern.names.is_empty());
        self.again.extend(used.map(|(number, _)| Again {
            listener: order,
            pattern: *number,
            after: None,
        }));
    }

    fn answered(&mut self, topic: Topic, name: Name, pattern: u64, accepted: bool) {
        let is_asked = |asking: &Asking| asking.candidate.pattern == pattern;
        let Some((wanted, asking)) = self.side_mut(topic).take_asking(&name, is_asked) else {
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
        self.free(candidate.listener);
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

    fn timed_out<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        number: u64,
    ) {
        let is_asked = |asking: &Asking| asking.number == number;
        let Some((_, asking)) = self.side_mut(topic).take_asking(&name, is_asked) else {
            return;
        };
        let Asking {
            candidate,
            progress,
            ..
        } = asking;
        let now = self.tick();
        self.free(candidate.listener);
        if let Some(listener) = self.listeners.get_mut(&candidate.listener)
            && !listener.is_silent()
        {
            listener.silent_from = now;
        }
        self.tell(turn, topic, &candidate, &name, ListenNotice::TimedOut);
        self.forget_name(&candidate, &name);
        self.continue_later(topic, name, progress);
    }

    /// Notes that a question was answered, or can no longer be answered.
    fn free(&mut self, order: u64) {
        if let Some(listener) = self.listeners.get_mut(&order) {
            listener.unanswered -= 1;
            self.unanswered -= 1;
        }
        for side in [&mut self.records, &mut self.events] {
            if !side.postponed.is_empty() {
                side.freed += 1;
            }
        }
    }

    fn forget_name(&mut self, candidate: &Candidate, name: &Name) {
        if let Some(pattern) = self.pattern_mut(candidate) {
            pattern.names.remove(name);
        }
    }

    /// Notes that a shard has got its first subscriber of an event, or lost its last.
    fn interest<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        round: u64,
        shard: u16,
        name: Name,
        wanted: bool,
    ) {
        if round != self.census || self.events.patterns.is_empty() {
            return;
        }
        if wanted && !self.events.wanted.contains_key(&name) {
            self.begin(Topic::Event, name.clone());
        }
        let Some(known) = self.events.wanted.get_mut(&name) else {
            return;
        };
        // A census goes through a shard's names while they change, so it may repeat what the shard has reported already.
        let index = known.shards.iter().position(|known| *known == shard);
        match (index, wanted) {
            (None, true) => known.shards.push(shard),
            (Some(index), false) => {
                known.shards.swap_remove(index);
            }
            _ => {}
        }
        if known.shards.is_empty() {
            self.end(turn, Topic::Event, &name);
        }
    }

    fn begin(&mut self, topic: Topic, name: Name) {
        let tried = self.next_pattern;
        let side = self.side_mut(topic);
        let has_patterns = !side.patterns.is_empty();
        let search = if has_patterns {
            side.queue.push_back(name.clone());
            Search::Queued { all: true }
        } else {
            Search::Idle
        };
        let wanted = Wanted {
            shards: SmallVec::new(),
            tried,
            has_matched: false,
            search,
        };
        side.wanted.insert(name, wanted);
        side.trim();
    }

    fn end<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, topic: Topic, name: &Name) {
        let Some(wanted) = self.side_mut(topic).wanted.remove(name) else {
            return;
        };
        // A listener that has not answered yet gets the notice too: its acceptance would come too late.
        let candidate = match wanted.search {
            Search::Provided(candidate) => candidate,
            Search::Asking(asking) => {
                self.free(asking.candidate.listener);
                asking.candidate
            }
            _ => return,
        };
        self.tell(turn, topic, &candidate, name, ListenNotice::Removed);
        self.forget_name(&candidate, name);
    }

    fn queue(&mut self, topic: Topic, name: &Name, all: bool) {
        let side = self.side_mut(topic);
        if let Some(wanted) = side.wanted.get_mut(name) {
            wanted.search = Search::Queued { all };
            side.queue.push_back(name.clone());
        }
    }

    /// Queues a search, so that it continues with its next candidate.
    fn continue_later(&mut self, topic: Topic, name: Name, progress: Progress) {
        let side = self.side_mut(topic);
        if let Some(wanted) = side.wanted.get_mut(&name) {
            wanted.search = Search::Running(Box::new(progress));
            side.queue.push_back(name);
        }
    }

    fn has_work(&self) -> bool {
        let has_postponed =
            |side: &Side| !side.postponed.is_empty() && (side.freed > 0 || self.unanswered == 0);
        let is_busy =
            |side: &Side| !side.queue.is_empty() || side.walk.is_some() || has_postponed(side);
        !self.orphans.is_empty()
            || !self.again.is_empty()
            || !self.discarded.is_empty()
            || is_busy(&self.records)
            || is_busy(&self.events)
    }

    /// Makes the steps that are left in this turn, or fewer if there is less work.
    fn work<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while self.turn_steps > 0 && self.has_work() {
            // The kinds of work take turns, so that a client that keeps one of them busy does not delay the others for long.
            let kind = self.next_kind;
            self.next_kind = (kind + 1) % KINDS;
            let topic = if kind.is_multiple_of(2) {
                Topic::Record
            } else {
                Topic::Event
            };
            match kind / 2 {
                0 => self.orphan_step(),
                1 => self.again_step(turn),
                2 => self.search_step(turn, topic),
                3 => self.walk_step(topic),
                _ => self.postponed_step(topic),
            }
        }
    }

    fn orphan_step(&mut self) {
        if let Some(discarded) = self.discarded.last_mut() {
            discarded.pop_first();
            if discarded.is_empty() {
                self.discarded.pop();
            }
            self.spend(1);
        }
        let Some(orphans) = self.orphans.front_mut() else {
            return;
        };
        let (topic, listener, pattern) = (orphans.topic, orphans.listener, orphans.pattern);
        let Some(name) = orphans.names.pop_first() else {
            self.orphans.pop_front();
            return;
        };
        self.spend(1);
        let Some(wanted) = self.side_mut(topic).wanted.get(&name) else {
            return;
        };
        match &wanted.search {
            Search::Asking(asking) if asking.candidate.pattern == pattern => self.free(listener),
            Search::Provided(candidate) if candidate.pattern == pattern => {
                self.lost(topic, &name);
            }
            _ => return,
        }
        self.queue(topic, &name, true);
    }

    /// Notes that a record has lost its provider.
    fn lost(&mut self, topic: Topic, name: &Name) {
        if topic == Topic::Record {
            self.changes.push(ProviderChange {
                name: name.clone(),
                provided: false,
            });
        }
    }

    /// Authorizes one name of a listener again.
    fn again_step<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let Some(again) = self.again.front_mut() else {
            return;
        };
        let (order, number) = (again.listener, again.pattern);
        let after = again
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
            self.again.pop_front();
            return;
        };
        again.after = Some(name.clone());
        self.spend(2);
        let wanted = self.side(topic).wanted.get(&name);
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
            self.lost(topic, &name);
        } else {
            self.free(order);
        }
        self.tell(turn, topic, &candidate, &name, ListenNotice::Removed);
        self.forget_name(&candidate, &name);
        self.queue(topic, &name, true);
    }

    /// Examines one name of a walk.
    fn walk_step(&mut self, topic: Topic) {
        let side = self.side_mut(topic);
        let Some(walk) = &mut side.walk else {
            return;
        };
        let after = walk
            .after
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = side.wanted.range_mut::<Name, _>((after, Bound::Unbounded));
        let Some((name, wanted)) = names.next() else {
            side.walk = None;
            if let Some(offers_again) = side.next_walk.take() {
                side.walk(offers_again);
            }
            return;
        };
        walk.after = Some(name.clone());
        let last = side.patterns.last_key_value();
        let has_new = last.is_some_and(|(number, _)| *number >= wanted.tried);
        let all = walk.offers_again && wanted.has_matched;
        if matches!(wanted.search, Search::Idle) && (all || has_new) {
            wanted.search = Search::Queued { all };
            side.queue.push_back(name.clone());
        }
        self.spend(1);
    }

    fn postponed_step(&mut self, topic: Topic) {
        let is_free = self.unanswered == 0;
        let side = self.side_mut(topic);
        if side.freed == 0 && !is_free {
            return;
        }
        side.freed = side.freed.saturating_sub(1);
        let Some(name) = side.postponed.pop_front() else {
            side.freed = 0;
            return;
        };
        if let Some(wanted) = side.wanted.get_mut(&name)
            && matches!(wanted.search, Search::Postponed)
        {
            wanted.search = Search::Queued { all: true };
            side.queue.push_back(name);
        }
        self.spend(1);
    }

    /// Continues the search of the next name until a listener gets a question, its rule waits for a record, or no listener or step is left.
    fn search_step<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, topic: Topic) {
        let now = self.clock + 1;
        let tried = self.next_pattern;
        let first = self.first_listener(turn);
        let side = self.side_mut(topic);
        let Some(name) = side.queue.pop_front() else {
            return;
        };
        let Some(wanted) = side.wanted.get_mut(&name) else {
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
                        Phase::all(first)
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
        self.seek(turn, topic, name, progress);
    }

    /// The number of the listener with which a search begins.
    fn first_listener<E: Effects>(&mut self, turn: &TurnContext<'_, E>) -> u64 {
        let first = self
            .listeners
            .first_key_value()
            .map_or(0, |(first, _)| *first);
        if !turn.shard.settings.listen_shuffle || self.listeners.len() < 2 {
            return first;
        }
        let span = usize::try_from(self.next_listener - first).unwrap_or(usize::MAX);
        first + self.random.below(span) as u64
    }

    fn seek<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: Name,
        mut progress: Progress,
    ) {
        loop {
            if self.turn_steps == 0 {
                let side = self.side_mut(topic);
                if let Some(wanted) = side.wanted.get_mut(&name) {
                    wanted.search = Search::Running(Box::new(progress));
                    side.queue.push_front(name);
                }
                return;
            }
            match self.try_next(turn, topic, &name, &mut progress) {
                SearchStep::More => {}
                SearchStep::Found(candidate) => {
                    return self.try_candidate(turn, topic, name, progress, candidate, Vec::new());
                }
                SearchStep::End => {
                    let side = self.side_mut(topic);
                    if let Some(wanted) = side.wanted.get_mut(&name) {
                        wanted.has_matched = progress.has_matched;
                        if progress.was_busy {
                            wanted.search = Search::Postponed;
                            side.postponed.push_back(name);
                            side.trim();
                        }
                    }
                    return;
                }
            }
        }
    }

    /// Tries one pattern, or skips one listener.
    fn try_next<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        topic: Topic,
        name: &Name,
        progress: &mut Progress,
    ) -> SearchStep {
        let began = progress.began;
        let (order, number) = match &mut progress.phase {
            Phase::All {
                silent,
                first,
                is_around,
                at,
                pattern,
            } => {
                let next = if *is_around {
                    self.listeners.range(*at..(*first).max(*at)).next()
                } else {
                    self.listeners.range(*at..).next()
                };
                let Some((&order, listener)) = next else {
                    self.steps += 1;
                    self.turn_steps = self.turn_steps.saturating_sub(1);
                    if !*is_around {
                        (*is_around, *at, *pattern) = (true, 0, 0);
                    } else if !*silent {
                        (*silent, *is_around, *at, *pattern) = (true, false, *first, 0);
                    } else {
                        return self.search_new(topic, name, progress);
                    }
                    return SearchStep::More;
                };
                if order != *at {
                    (*at, *pattern) = (order, 0);
                }
                let is_asked = if *silent {
                    listener.was_silent(began)
                } else {
                    !listener.is_silent()
                };
                let next = listener.patterns.range(*pattern..).next();
                let Some((&number, _)) = next.filter(|_| is_asked) else {
                    (*at, *pattern) = (order + 1, 0);
                    self.spend(1);
                    return SearchStep::More;
                };
                *pattern = number + 1;
                (order, number)
            }
            Phase::New { at, asked } => {
                let Some((&number, &order)) = self.side(topic).patterns.range(*at..).next() else {
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
        let is_match = pattern.topic == topic && pattern.regex.is_match(name);
        let cost = usize::from(pattern.weight) * (1 + name.len() / STEP_BYTES);
        let is_busy = listener.unanswered >= questions_max(turn);
        let candidate = Candidate {
            listener: order,
            session: listener.session,
            pattern: number,
        };
        self.spend(cost);
        if !is_match {
            return SearchStep::More;
        }
        progress.has_matched = true;
        progress.was_busy |= is_busy;
        match &mut progress.phase {
            Phase::All { at, pattern, .. } => (*at, *pattern) = (order + 1, 0),
            Phase::New { asked, .. } if asked.len() < NEW_ASKED_MAX => asked.push(order),
            Phase::New { .. } => {
                progress.phase = Phase::all(order);
                return SearchStep::More;
            }
        }
        if is_busy {
            SearchStep::More
        } else {
            SearchStep::Found(candidate)
        }
    }

    /// After all listeners: tries the patterns that were added during the search.
    fn search_new(&mut self, topic: Topic, name: &Name, progress: &mut Progress) -> SearchStep {
        let next = self.next_pattern;
        let side = self.side_mut(topic);
        let tried = side.wanted.get(name).map_or(next, |wanted| wanted.tried);
        if !side.has_new(tried) {
            return SearchStep::End;
        }
        if let Some(wanted) = side.wanted.get_mut(name) {
            wanted.tried = next;
        }
        progress.phase = Phase::New {
            at: tried,
            asked: SmallVec::new(),
        };
        SearchStep::More
    }

    /// The decision of the `listen` rule on a name and a listener; `None` if the listener or its pattern no longer exists.
    fn decide<E: Effects>(
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

    /// Asks a listener for a name if the listener's rule allows it.
    fn try_candidate<E: Effects>(
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
                let owner = turn.shard.owner(&record);
                turn.post(
                    owner,
                    Entry::ReadValue {
                        name: record,
                        asker,
                    },
                );
                if let Some(wanted) = self.side_mut(topic).wanted.get_mut(&name) {
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
        self.tell(turn, topic, &candidate, &name, ListenNotice::Found);
        if let Some(wanted) = self.side_mut(topic).wanted.get_mut(&name) {
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

    /// Sends a listener a notice about a name, with the pattern by which the listener got the question.
    fn tell<E: Effects>(
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
}

impl Phase {
    /// All listeners, starting with the number `first`.
    fn all(first: u64) -> Self {
        Self::All {
            silent: false,
            first,
            is_around: false,
            at: first,
            pattern: 0,
        }
    }
}

fn questions_max<E: Effects>(turn: &TurnContext<'_, E>) -> usize {
    turn.shard.settings.limits.listen_questions_max.max(1)
}
