//! The engine's requests to the world, which the simulation handles later, and the interest of shards as publishers see it.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::{Entry, HistoryEntry};
use tidewire_core::event_pattern::matches;
use tidewire_core::message::{Event, EventBulk, Message};
use tidewire_core::publication::InterestTopic;

use crate::fault::Fault;
use crate::nodes::{address, index_of};
use crate::permission::{Rules, event_of};

/// A message to a session.
#[derive(Clone, Debug)]
pub enum Heard {
    /// An event, with the rules of the shard when it was encoded.
    Event {
        name: String,
        number: u64,
        rules: Rules,
    },
    /// The acknowledgement of the request with this id.
    Subscribed(String),
    Other,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Outside {
    pub at: usize,
    pub mailboxes: Vec<VecDeque<Entry>>,
    pub logs: Vec<Vec<Heard>>,
    pub requests: VecDeque<(usize, StoreRequest)>,
    pub logins: Vec<AuthRequest>,
    pub resumed: Vec<SessionId>,
    /// The rules that each shard has.
    pub rules: Vec<Rules>,
    /// Interest that publishers see.
    pub visible: BTreeSet<(InterestTopic, String, usize)>,
    /// By shard: changes that are not visible yet.
    pub pending: Vec<VecDeque<(u64, InterestChange)>>,
    pub fault: Option<Fault>,
    /// Counts the events that a fault could hit.
    pub chances: usize,
}

impl Outside {
    pub fn new(shards: usize, rules: Rules, fault: Option<Fault>) -> Self {
        Self {
            at: 0,
            mailboxes: vec![VecDeque::new(); shards],
            logs: vec![Vec::new(); shards],
            requests: VecDeque::new(),
            logins: Vec::new(),
            resumed: Vec::new(),
            rules: vec![rules; shards],
            visible: BTreeSet::new(),
            pending: (0..shards).map(|_| VecDeque::new()).collect(),
            fault,
            chances: 0,
        }
    }

    /// Makes the first pending change of a shard visible, and returns its number.
    pub fn make_visible(&mut self, shard: usize) -> Option<u64> {
        let (number, change) = self.pending[shard].pop_front()?;
        let key = (change.topic, change.name.to_string(), shard);
        if change.wanted {
            self.visible.insert(key);
        } else if self.fault != Some(Fault::EndUnannounced) {
            self.visible.remove(&key);
        }
        Some(number)
    }

    /// Whether the planted fault hits now.
    fn is_hit(&mut self, fault: Fault) -> bool {
        if self.fault != Some(fault) {
            return false;
        }
        self.chances += 1;
        self.chances.is_multiple_of(7)
    }

    fn interested(&self, topic: InterestTopic, name: &str) -> BTreeSet<usize> {
        let fits = self.visible.iter().filter(|(of, text, shard)| {
            let fits = match of {
                InterestTopic::EventPattern => topic == InterestTopic::Event && matches(text, name),
                _ => *of == topic && text == name,
            };
            fits && *shard != self.at
        });
        fits.map(|(_, _, shard)| *shard).collect()
    }
}

impl Effects for Outside {
    fn append(&mut self, _format: Format, message: &Message<'_>) -> Span {
        let rules = self.rules[self.at];
        let heard = match message {
            Message::Event(Event::Ack {
                action: EventBulk::Subscribe | EventBulk::SubscribePatterns,
                correlation,
            }) => Heard::Subscribed(correlation.unwrap_or_default().to_owned()),
            Message::Event(Event::Error(refusal)) => panic!("{refusal:?}"),
            message => match event_of(message) {
                Some((name, number)) => Heard::Event {
                    name,
                    number,
                    rules,
                },
                None => Heard::Other,
            },
        };
        let log = &mut self.logs[self.at];
        log.push(heard);
        let end = log.len() as u64;
        Span {
            start: end - 1,
            end,
        }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        let is_event = matches!(entry, Entry::History(HistoryEntry::Published { .. }));
        if is_event && self.is_hit(Fault::EventLost) {
            return;
        }
        if is_event && self.is_hit(Fault::EventDoubled) {
            self.mailboxes[index_of(to)].push_back(entry.clone());
        }
        self.mailboxes[index_of(to)].push_back(entry);
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        for shard in self.interested(topic, name) {
            let copies = match (
                self.is_hit(Fault::EventLost),
                self.is_hit(Fault::EventDoubled),
            ) {
                (true, _) => 0,
                (_, true) => 2,
                _ => 1,
            };
            for _ in 0..copies {
                self.mailboxes[shard].push_back(entry());
            }
        }
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        for (topic, pattern, shard) in &self.visible {
            let is_other = *shard != self.at && *topic == InterestTopic::EventPattern;
            if is_other && matches(pattern, event) {
                visit(address(*shard));
            }
        }
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        self.pending[self.at].push_back((number, change));
    }

    fn store(&mut self, request: StoreRequest) {
        self.requests.push_back((self.at, request));
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        panic!("{session:?} is closed: {reason:?}");
    }

    fn resume(&mut self, session: SessionId) {
        self.resumed.push(session);
    }

    fn await_drained(&mut self, _session: SessionId) {
        panic!("work is not limited in this simulation");
    }
}
