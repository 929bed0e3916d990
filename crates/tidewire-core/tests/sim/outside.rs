//! The world around the shards: mailboxes, turn logs, the interest map, and the engine's requests.
//!
//! One [`Outside`] serves all shards of the node; `at` is the shard that runs now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::{CallNotice, Entry, Published};
use tidewire_core::event_pattern;
use tidewire_core::message::{Event, Message};
use tidewire_core::publication::InterestTopic;

use crate::code::{close_code, code_of};
use crate::fault::{Fault, Faults};
use crate::link::Link;
use crate::nodes::{address, index_of};
use crate::tally::Tally;
use crate::wire::{Heard, parse};

/// The number of wire formats.
pub const FORMATS: usize = 2;

type InterestKey = (InterestTopic, String);

/// The shards that have subscribers, as publishers see it.
#[derive(Debug, Default)]
pub struct InterestMap {
    visible: BTreeMap<InterestKey, BTreeSet<usize>>,
    /// By shard: changes that are not visible yet.
    pending: Vec<VecDeque<(u64, InterestChange)>>,
}

impl InterestMap {
    /// Makes the shard's first `count` pending changes visible and returns the number of the last.
    pub fn make_visible(&mut self, shard: usize, count: usize) -> Option<u64> {
        let mut last = None;
        for _ in 0..count {
            let Some((number, change)) = self.pending[shard].pop_front() else {
                break;
            };
            let shards = self
                .visible
                .entry((change.topic, change.name.to_string()))
                .or_default();
            if change.wanted {
                shards.insert(shard);
            } else {
                shards.remove(&shard);
            }
            last = Some(number);
        }
        last
    }

    /// The number of the shard's changes that are not visible yet.
    pub fn pending(&self, shard: usize) -> usize {
        self.pending[shard].len()
    }

    /// The number of the shard's newest change that is not visible yet.
    pub fn newest(&self, shard: usize) -> Option<u64> {
        self.pending[shard].back().map(|(number, _)| *number)
    }

    /// Names to which at least one shard subscribes.
    pub fn wanted(&self) -> Vec<InterestKey> {
        self.visible
            .iter()
            .filter(|(_, shards)| !shards.is_empty())
            .map(|(key, _)| key.clone())
            .collect()
    }
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Outside {
    /// The shard that runs now.
    pub at: usize,
    pub mailboxes: Vec<VecDeque<Entry>>,
    pub link: Link,
    /// Posts that a fault holds back.
    pub held_back: Vec<(usize, Entry)>,
    pub logs: Vec<[Vec<Heard>; FORMATS]>,
    pub interest: InterestMap,
    pub store_requests: Vec<(usize, StoreRequest)>,
    pub logins: Vec<AuthRequest>,
    pub closes: Vec<(SessionId, CloseReason)>,
    pub resumed: Vec<SessionId>,
    /// Sessions whose drain the engine waits for.
    pub awaited: BTreeSet<SessionId>,
    /// Changes of records that were posted: name, version, value, shard.
    pub posted: BTreeSet<(String, u32, String, usize)>,
    /// Gaps in events since the last check: name and number of skipped events.
    pub gaps: Vec<(String, u32)>,
    pub faults: Faults,
    /// How often the engine sent each kind of answer.
    pub met: Tally,
}

impl Outside {
    pub fn new(shards: usize, faults: Faults) -> Self {
        let mut interest = InterestMap::default();
        interest.pending.resize_with(shards, VecDeque::new);
        Self {
            at: 0,
            mailboxes: (0..shards).map(|_| VecDeque::new()).collect(),
            link: Link::new(),
            held_back: Vec::new(),
            logs: (0..shards).map(|_| Default::default()).collect(),
            interest,
            store_requests: Vec::new(),
            logins: Vec::new(),
            closes: Vec::new(),
            resumed: Vec::new(),
            awaited: BTreeSet::new(),
            posted: BTreeSet::new(),
            gaps: Vec::new(),
            faults,
            met: Tally::default(),
        }
    }

    fn note(&mut self, to: usize, entry: &Entry) {
        if let Entry::RecordPublished {
            name,
            what: Published::Changed { version, full, .. },
            ..
        } = entry
        {
            let value: Value = parse(full.as_str());
            self.posted
                .insert((name.to_string(), version.0, value.to_string(), to));
        }
    }
}

impl Effects for Outside {
    fn append(&mut self, format: Format, message: &Message<'_>) -> Span {
        let log = &mut self.logs[self.at][usize::from(format.0)];
        let start = log.len() as u64;
        if let Message::Event(Event::Gap { name, missed }) = message {
            self.gaps.push(((*name).into(), *missed));
        }
        if let Some(code) = code_of(message) {
            self.met.add(code);
        }
        log.push(Heard::of(format, message));
        Span {
            start,
            end: start + 1,
        }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        let to = index_of(to);
        assert_ne!(to, self.at, "a shard must not post to itself");
        let entry = self.link.carry(self.at, to, entry);
        match (&entry, self.faults.on()) {
            (Entry::RecordPublished { .. }, Some(Fault::ChangeLost)) if self.faults.strike() => {
                return;
            }
            (Entry::RpcDelivery(delivery), Some(Fault::CallOvertaken))
                if matches!(delivery.what, CallNotice::Request { .. }) && self.faults.strike() =>
            {
                return self.held_back.push((to, entry));
            }
            (Entry::RecordPublished { .. }, Some(Fault::PostHeldBack))
            | (Entry::RecordRequest(_), Some(Fault::RequestHeldBack))
                if self.faults.strike() =>
            {
                return self.held_back.push((to, entry));
            }
            (Entry::SessionEnded { .. }, Some(Fault::CloseOvertakes)) if self.faults.strike() => {
                return self.mailboxes[to].push_front(entry);
            }
            _ => {}
        }
        self.note(to, &entry);
        self.mailboxes[to].push_back(entry);
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        let exact = self.interest.visible.get(&(topic, name.to_string()));
        let mut shards = exact.cloned().unwrap_or_default();
        if topic == InterestTopic::Event {
            self.visit_pattern_shards(name, |shard| {
                shards.insert(index_of(shard));
            });
        }
        for shard in shards {
            if shard == self.at {
                continue;
            }
            let is_event = topic == InterestTopic::Event;
            if is_event && self.faults.hits(Fault::MarkerOvertakes) {
                let entry = self.link.carry(self.at, shard, entry());
                self.held_back.push((shard, entry));
                continue;
            }
            let copies = match (self.faults.on(), topic) {
                (Some(Fault::PublicationLost), InterestTopic::Event) if self.faults.strike() => 0,
                (Some(Fault::PublicationDoubled), InterestTopic::Event) if self.faults.strike() => {
                    2
                }
                (Some(Fault::NoticeLost), InterestTopic::User | InterestTopic::Everyone)
                    if self.faults.strike() =>
                {
                    0
                }
                _ => 1,
            };
            for _ in 0..copies {
                let entry = self.link.carry(self.at, shard, entry());
                self.mailboxes[shard].push_back(entry);
            }
        }
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        for ((topic, pattern), shards) in &self.interest.visible {
            if *topic == InterestTopic::EventPattern && event_pattern::matches(pattern, event) {
                let others = shards.iter().filter(|shard| **shard != self.at);
                others.for_each(|shard| visit(address(*shard)));
            }
        }
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        self.interest.pending[self.at].push_back((number, change));
    }

    fn store(&mut self, request: StoreRequest) {
        self.store_requests.push((self.at, request));
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        self.met.add(close_code(reason));
        self.closes.push((session, reason));
    }

    fn resume(&mut self, session: SessionId) {
        self.resumed.push(session);
    }

    fn await_drained(&mut self, session: SessionId) {
        self.awaited.insert(session);
    }
}
