//! Listening: providers register patterns and are asked for names that somebody subscribed to.
//!
//! Every shard knows all patterns; the owner of a name runs its search. Candidates are asked one at a time, and at
//! most one provides a name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::address::SessionId;
use crate::desk::{Desk, Lost, Verdict};
use crate::effect::{Effects, Flow};
use crate::entry::{Entry, Gather, GatheredPart, Gathering, ListenNotice, Listening};
use crate::message::{
    Event, EventAction, EventError, Listen, Message, Record, RecordAction, RecordError, Refusal,
    Topic,
};
use crate::permission::Access;
use crate::session::Session;
use crate::table::Dice;
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Bytes that a compiled pattern may take, and as many again that matching keeps of it; larger ones are refused like
/// malformed ones. Names are matched by texts, `.*` and small classes, which take a tenth of it. Compiling as much takes a
/// millisecond at most, sixteen times as much took seven.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Compiles a pattern: matched anywhere in the name, in linear time, so without look-around and back-references.
fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .nest_limit(64)
        .build()
        .ok()
}

/// Handles a listen message of an open session.
pub(crate) fn message<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    topic: Topic,
    message: &Listen<'_>,
) -> Flow {
    match *message {
        Listen::Listen { pattern } => listen(desk, id, topic, pattern),
        Listen::Unlisten { pattern } => unlisten(desk, id, topic, pattern),
        Listen::Accept {
            pattern,
            subscription,
        } => answer(desk, id, topic, pattern, subscription, true),
        Listen::Reject {
            pattern,
            subscription,
        } => answer(desk, id, topic, pattern, subscription, false),
        // Answers of a server have no meaning here.
        Listen::ListenAck { .. }
        | Listen::UnlistenAck { .. }
        | Listen::Found { .. }
        | Listen::Removed { .. }
        | Listen::ResponseTimeout { .. }
        | Listen::InvalidPattern { .. }
        | Listen::AlreadyListening { .. } => Flow::Taken,
    }
}

/// Tells a provider of this shard something about a name, unless it has taken the pattern back meanwhile: after the
/// ack of that it hears no more of it.
pub(crate) fn notify<E: Effects>(
    desk: &mut Desk<'_, E>,
    provider: SessionId,
    topic: Topic,
    pattern: &Name,
    subscription: &str,
    notice: ListenNotice,
) {
    let key = (topic, pattern.clone());
    let listens = desk
        .sessions
        .find(provider)
        .and_then(|session| session.belongings.as_ref())
        .is_some_and(|with| with.patterns.contains(&key));
    if !listens {
        return;
    }
    let message = match notice {
        ListenNotice::Found => Listen::Found {
            pattern,
            subscription,
        },
        ListenNotice::Removed => Listen::Removed {
            pattern,
            subscription,
        },
        ListenNotice::TimedOut => Listen::ResponseTimeout { subscription },
    };
    desk.send(provider, &wrap(topic, message));
}

/// The listen message of a topic.
pub(crate) fn wrap(topic: Topic, message: Listen<'_>) -> Message<'_> {
    match topic {
        Topic::Record => Message::Record(Record::Listen(message)),
        _ => Message::Event(Event::Listen(message)),
    }
}

fn listen<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId, topic: Topic, pattern: &str) -> Flow {
    let access = if topic == Topic::Record {
        Access::RecordListen
    } else {
        Access::EventListen
    };
    let verdict = desk.judge(id, access, Some(pattern), None);
    let allowed = match verdict {
        Verdict::Wait => return Flow::Wait,
        Verdict::Allow => desk.has_room(id, 1) && has_room(desk, id),
        Verdict::Deny | Verdict::Failed => false,
    };
    if !allowed {
        desk.send(id, &refusal(topic, pattern, verdict == Verdict::Failed));
        return Flow::Taken;
    }
    let regex = if desk.place.is_name(pattern) {
        let regex = compile(pattern);
        if regex.is_none() {
            desk.place.count(|refused| refused.uncompilable += 1);
        }
        regex
    } else {
        None
    };
    let Some(regex) = regex else {
        let pattern = if pattern.len() <= desk.place.settings.limits.name_bytes_max {
            pattern
        } else {
            ""
        };
        desk.send(id, &wrap(topic, Listen::InvalidPattern { pattern }));
        return Flow::Taken;
    };
    let seed = desk.place.seed;
    let name = Name::from(pattern);
    let Some(session) = desk.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    if !session.offers(seed).patterns.insert((topic, name.clone())) {
        desk.send(id, &wrap(topic, Listen::AlreadyListening { pattern }));
        return Flow::Taken;
    }
    let shards = usize::from(desk.place.shard_count);
    let gather = desk.gather(
        id,
        shards,
        Gathering::Listen {
            topic,
            pattern: name.clone(),
        },
    );
    let regex = Arc::new(regex);
    desk.post_all(&Entry::Listening(Listening::Add {
        topic,
        pattern: name,
        regex,
        provider: id,
        gather,
    }));
    Flow::Taken
}

/// Whether a session may listen with one more pattern. All shards keep each of them compiled and try it with each new name, so
/// they are fewer than other subscriptions.
fn has_room<E: Effects>(desk: &Desk<'_, E>, id: SessionId) -> bool {
    let held = desk.sessions.find(id).map_or(0, Session::pattern_count);
    let has_room = held < desk.place.settings.limits.patterns_max;
    if !has_room {
        desk.place.count(|refused| refused.patterns += 1);
    }
    has_room
}

/// Takes a pattern back. The ack waits until every shard knows it, so that what owners have said of the pattern before
/// comes before the ack, and a new registration of the same pattern is not mistaken for the old one.
fn unlisten<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: &str,
) -> Flow {
    let name = Name::from(pattern);
    let seed = desk.place.seed;
    let held = desk
        .sessions
        .find_mut(id)
        .is_some_and(|session| session.offers(seed).patterns.remove(&(topic, name.clone())));
    if !held {
        desk.send(id, &wrap(topic, Listen::UnlistenAck { pattern }));
        return Flow::Taken;
    }
    let shards = usize::from(desk.place.shard_count);
    let what = Gathering::Unlisten {
        topic,
        pattern: name.clone(),
    };
    let gather = desk.gather(id, shards, what);
    desk.post_all(&Entry::Listening(Listening::Remove {
        topic,
        pattern: name,
        provider: id,
        gather: Some(gather),
    }));
    Flow::Taken
}

/// Takes back a pattern whose right was lost; false if it is not there.
pub(crate) fn lose<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: Name,
    lost: Lost,
) -> bool {
    let session = desk.sessions.find_mut(id);
    let has_listened = session
        .and_then(|session| session.belongings.as_mut())
        .is_some_and(|with| with.patterns.remove(&(topic, pattern.clone())));
    if !has_listened {
        return false;
    }
    desk.send(id, &refusal(topic, &pattern, lost == Lost::RuleFailed));
    desk.post_all(&Entry::Listening(Listening::Remove {
        topic,
        pattern,
        provider: id,
        gather: None,
    }));
    true
}

fn answer<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: &str,
    subscription: &str,
    accepted: bool,
) -> Flow {
    let owner = desk.place.owner(subscription);
    let (pattern, name) = (Name::from(pattern), Name::from(subscription));
    desk.post(
        owner,
        Entry::Listening(Listening::Answered {
            topic,
            pattern,
            name,
            provider: id,
            accepted,
        }),
    );
    Flow::Taken
}

fn refusal(topic: Topic, pattern: &str, failed: bool) -> Message<'_> {
    let (name, correlation, write_ack) = (Some(pattern), None, false);
    if topic == Topic::Record {
        let refusal = Refusal {
            action: RecordAction::Listen,
            name,
            correlation,
            write_ack,
        };
        let error = if failed {
            RecordError::PermissionError(refusal)
        } else {
            RecordError::Denied(refusal)
        };
        Message::Record(Record::Error(error))
    } else {
        let refusal = Refusal {
            action: EventAction::Listen,
            name,
            correlation,
            write_ack,
        };
        let error = if failed {
            EventError::PermissionError(refusal)
        } else {
            EventError::Denied(refusal)
        };
        Message::Event(Event::Error(error))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    provider: SessionId,
    pattern: Name,
}

#[derive(Debug)]
struct Pattern {
    topic: Topic,
    regex: Arc<Regex>,
    candidate: Candidate,
}

#[derive(Debug)]
enum Search {
    /// Nobody provides it, nobody is asked.
    Idle,
    /// One is asked, the others wait for their turn.
    Asking(Box<Asking>),
    /// The one.
    Provided(Box<Candidate>),
}

/// A question to a provider that was not answered yet.
#[derive(Debug)]
struct Asking {
    asked: Candidate,
    number: u64,
    rest: VecDeque<Candidate>,
}

#[derive(Debug)]
struct Wanted {
    /// How many shards have subscribers; for records the owner counts them itself and this is 0.
    shard_count: u32,
    search: Search,
}

/// A record has got, or lost, its provider; its subscribers are to be told.
#[derive(Debug)]
pub(crate) struct ProviderChange {
    pub(crate) name: Name,
    pub(crate) provided: bool,
}

/// All patterns, and the searches for the names that this shard owns.
#[derive(Debug)]
pub(crate) struct ListenOwner {
    patterns: Vec<Pattern>,
    /// The names with subscribers: records always, events while there are patterns of events.
    wanted: BTreeMap<(Topic, Name), Wanted>,
    /// Counts the censuses of events.
    census: u64,
    /// Counts the questions to providers, so that a late timer meets another number.
    asked: u64,
    timeouts: DeadlineQueue<(Topic, Name, u64)>,
    rematch: Option<Instant>,
    dice: Dice,
    /// Records whose provider changed, until the engine tells their subscribers.
    pub(crate) changes: Vec<ProviderChange>,
}

impl ListenOwner {
    /// No patterns, no names.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            patterns: Vec::new(),
            wanted: BTreeMap::new(),
            census: 0,
            asked: 0,
            timeouts: DeadlineQueue::new(),
            rematch: None,
            dice: Dice::new(seed),
            changes: Vec::new(),
        }
    }

    /// The number of patterns.
    pub(crate) fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// The number of names with subscribers.
    pub(crate) fn wanted_count(&self) -> usize {
        self.wanted.len()
    }

    /// Whether somebody provides the name.
    pub(crate) fn is_provided(&self, topic: Topic, name: &Name) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let wanted = self.wanted.get(&(topic, name.clone()));
        wanted.is_some_and(|wanted| matches!(wanted.search, Search::Provided(_)))
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.timeouts.next(), self.rematch]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles what another shard, or this one, has to say about listening.
    pub(crate) fn handle<E: Effects>(&mut self, desk: &mut Desk<'_, E>, entry: Listening) {
        match entry {
            Listening::Add {
                topic,
                pattern,
                regex,
                provider,
                gather,
            } => {
                let candidate = Candidate { provider, pattern };
                self.add(
                    desk,
                    Pattern {
                        topic,
                        regex,
                        candidate,
                    },
                    gather,
                );
            }
            Listening::Remove {
                topic,
                pattern,
                provider,
                gather,
            } => {
                let gone = Candidate { provider, pattern };
                self.withdraw(desk, |of, candidate| of == topic && *candidate == gone);
                if let Some(gather) = gather {
                    desk.part_done(gather, GatheredPart::Done);
                }
            }
            Listening::Answered {
                topic,
                pattern,
                name,
                provider,
                accepted,
            } => {
                self.answered(
                    desk,
                    topic,
                    name,
                    &Candidate { provider, pattern },
                    accepted,
                );
            }
            Listening::Census { owner, round } => desk.take_part_in_census(owner, round),
            Listening::CensusEnded { owner } => desk.leave_census(owner),
            Listening::Present { round, names } => {
                for name in names {
                    self.interest(desk, round, name, true);
                }
            }
            Listening::Interest {
                round,
                name,
                wanted,
            } => self.interest(desk, round, name, wanted),
        }
    }

    /// A session has ended, with all its patterns.
    pub(crate) fn session_ended<E: Effects>(&mut self, desk: &mut Desk<'_, E>, session: SessionId) {
        self.withdraw(desk, |_, candidate| candidate.provider == session);
    }

    /// A record has its first subscriber.
    pub(crate) fn record_wanted<E: Effects>(&mut self, desk: &mut Desk<'_, E>, name: &Name) {
        self.begin(desk, Topic::Record, name.clone());
    }

    /// A record has lost its last subscriber.
    pub(crate) fn record_unwanted<E: Effects>(&mut self, desk: &mut Desk<'_, E>, name: &Name) {
        self.end(desk, Topic::Record, name.clone());
    }

    /// Asks the next candidate where one did not answer, and offers unprovided names again from time to time.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, desk: &mut Desk<'_, E>) {
        let now = desk.now.monotonic;
        while let Some((topic, name, number)) = self.timeouts.pop_due(now) {
            self.timed_out(desk, topic, name, number);
        }
        if self.rematch.is_some_and(|due| due <= now) {
            self.rematch = None;
            let idle: Vec<(Topic, Name)> = self
                .wanted
                .iter()
                .filter(|(_, wanted)| matches!(wanted.search, Search::Idle))
                .map(|(key, _)| key.clone())
                .collect();
            for (topic, name) in idle {
                self.search(desk, topic, name);
            }
        }
        self.plan_rematch(desk);
    }

    fn plan_rematch<E: Effects>(&mut self, desk: &Desk<'_, E>) {
        if self.patterns.is_empty() {
            self.rematch = None;
        } else if self.rematch.is_none() {
            let interval = desk.place.settings.listen_rematch_interval;
            self.rematch = interval.map(|interval| desk.now.monotonic + interval);
        }
    }

    fn add<E: Effects>(&mut self, desk: &mut Desk<'_, E>, pattern: Pattern, gather: Gather) {
        let matching: Vec<Name> = self
            .wanted
            .keys()
            .filter(|(topic, name)| *topic == pattern.topic && pattern.regex.is_match(name))
            .map(|(_, name)| name.clone())
            .collect();
        let (topic, candidate) = (pattern.topic, pattern.candidate.clone());
        let begins_census = topic == Topic::Event && !self.listens_to_events();
        self.patterns.push(pattern);
        if begins_census {
            self.census += 1;
            desk.post_all(&Entry::Listening(Listening::Census {
                owner: desk.place.address,
                round: self.census,
            }));
        }
        for name in matching {
            match self
                .wanted
                .get_mut(&(topic, name.clone()))
                .map(|wanted| &mut wanted.search)
            {
                Some(Search::Asking(asking)) => asking.rest.push_back(candidate.clone()),
                Some(Search::Idle) => {
                    self.ask(desk, topic, name, VecDeque::from([candidate.clone()]))
                }
                Some(Search::Provided(_)) | None => {}
            }
        }
        self.plan_rematch(desk);
        desk.part_done(gather, GatheredPart::Done);
    }

    /// Takes patterns away; whoever depended on them is searched for again.
    fn withdraw<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        gone: impl Fn(Topic, &Candidate) -> bool,
    ) {
        let before = self.patterns.len();
        let listened_to_events = self.listens_to_events();
        self.patterns
            .retain(|pattern| !gone(pattern.topic, &pattern.candidate));
        if self.patterns.len() == before {
            return;
        }
        let mut lost = Vec::new();
        let mut unanswered = Vec::new();
        for ((topic, name), wanted) in &mut self.wanted {
            match &mut wanted.search {
                Search::Provided(provider) if gone(*topic, provider) => {
                    lost.push((*topic, name.clone()))
                }
                Search::Asking(asking) => {
                    let Asking { asked, rest, .. } = &mut **asking;
                    rest.retain(|candidate| !gone(*topic, candidate));
                    if gone(*topic, asked) {
                        unanswered.push((*topic, name.clone(), std::mem::take(rest)));
                    }
                }
                _ => {}
            }
        }
        for (topic, name) in lost {
            if topic == Topic::Record {
                self.changes.push(ProviderChange {
                    name: name.clone(),
                    provided: false,
                });
            }
            self.search(desk, topic, name);
        }
        for (topic, name, rest) in unanswered {
            self.ask(desk, topic, name, rest);
        }
        if listened_to_events && !self.listens_to_events() {
            self.wanted.retain(|(topic, _), _| *topic != Topic::Event);
            desk.post_all(&Entry::Listening(Listening::CensusEnded {
                owner: desk.place.address,
            }));
        }
    }

    fn listens_to_events(&self) -> bool {
        self.patterns
            .iter()
            .any(|pattern| pattern.topic == Topic::Event)
    }

    fn answered<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        topic: Topic,
        name: Name,
        by: &Candidate,
        accepted: bool,
    ) {
        let Some(wanted) = self.wanted.get_mut(&(topic, name.clone())) else {
            return;
        };
        let Search::Asking(asking) = &mut wanted.search else {
            return;
        };
        if asking.asked != *by {
            return;
        }
        if accepted {
            wanted.search = Search::Provided(Box::new(by.clone()));
            if topic == Topic::Record {
                self.changes.push(ProviderChange {
                    name,
                    provided: true,
                });
            }
        } else {
            let rest = std::mem::take(&mut asking.rest);
            self.ask(desk, topic, name, rest);
        }
    }

    fn timed_out<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        topic: Topic,
        name: Name,
        number: u64,
    ) {
        let Some(wanted) = self.wanted.get_mut(&(topic, name.clone())) else {
            return;
        };
        let Search::Asking(asking) = &mut wanted.search else {
            return;
        };
        if asking.number != number {
            return;
        }
        let (late, rest) = (asking.asked.clone(), std::mem::take(&mut asking.rest));
        tell(desk, topic, &late, &name, ListenNotice::TimedOut);
        self.ask(desk, topic, name, rest);
    }

    /// A shard has got its first subscriber of an event, or lost its last.
    fn interest<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        round: u64,
        name: Name,
        wanted: bool,
    ) {
        if round != self.census || !self.listens_to_events() {
            return;
        }
        let key = (Topic::Event, name.clone());
        if wanted {
            if !self.wanted.contains_key(&key) {
                self.begin(desk, Topic::Event, name);
            }
            if let Some(known) = self.wanted.get_mut(&key) {
                known.shard_count += 1;
            }
        } else if let Some(known) = self.wanted.get_mut(&key) {
            known.shard_count -= 1;
            if known.shard_count == 0 {
                self.end(desk, Topic::Event, name);
            }
        }
    }

    fn begin<E: Effects>(&mut self, desk: &mut Desk<'_, E>, topic: Topic, name: Name) {
        let wanted = Wanted {
            shard_count: 0,
            search: Search::Idle,
        };
        self.wanted.insert((topic, name.clone()), wanted);
        self.search(desk, topic, name);
    }

    fn end<E: Effects>(&mut self, desk: &mut Desk<'_, E>, topic: Topic, name: Name) {
        let Some(wanted) = self.wanted.remove(&(topic, name.clone())) else {
            return;
        };
        // Who is being asked is told too: its acceptance would come too late.
        let candidate = match wanted.search {
            Search::Idle => return,
            Search::Provided(candidate) => *candidate,
            Search::Asking(asking) => asking.asked,
        };
        tell(desk, topic, &candidate, &name, ListenNotice::Removed);
    }

    fn search<E: Effects>(&mut self, desk: &mut Desk<'_, E>, topic: Topic, name: Name) {
        let mut candidates: Vec<Candidate> = self
            .patterns
            .iter()
            .filter(|pattern| pattern.topic == topic && pattern.regex.is_match(&name))
            .map(|pattern| pattern.candidate.clone())
            .collect();
        if desk.place.settings.listen_shuffle {
            self.dice.shuffle(&mut candidates);
        }
        self.ask(desk, topic, name, candidates.into());
    }

    fn ask<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        topic: Topic,
        name: Name,
        mut candidates: VecDeque<Candidate>,
    ) {
        let Some(wanted) = self.wanted.get_mut(&(topic, name.clone())) else {
            return;
        };
        let Some(asked) = candidates.pop_front() else {
            wanted.search = Search::Idle;
            return;
        };
        self.asked += 1;
        let number = self.asked;
        tell(desk, topic, &asked, &name, ListenNotice::Found);
        wanted.search = Search::Asking(Box::new(Asking {
            asked,
            number,
            rest: candidates,
        }));
        let deadline = desk.now.monotonic + desk.place.settings.listen_response_timeout;
        self.timeouts.push(deadline, (topic, name, number));
    }
}

fn tell<E: Effects>(
    desk: &mut Desk<'_, E>,
    topic: Topic,
    to: &Candidate,
    name: &Name,
    notice: ListenNotice,
) {
    let entry = Entry::ListenNotice {
        provider: to.provider,
        topic,
        pattern: to.pattern.clone(),
        name: name.clone(),
        notice,
    };
    desk.post(to.provider.home, entry);
}
