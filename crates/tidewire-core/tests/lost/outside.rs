//! The engine's requests to the world: mailboxes, the links between the nodes, the interest that publishers see, and what sessions hear.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::Entry;
use tidewire_core::event_pattern::matches;
use tidewire_core::message::Message;
use tidewire_core::publication::InterestTopic;

use crate::fault::Fault;
use crate::heard::{Heard, heard};
use crate::link::Link;
use crate::nodes::{NODE_SHARDS, SHARDS, address, index_of, node_of};

/// An item of a shard's mailbox.
#[derive(Clone, Debug)]
pub enum Mail {
    Entry {
        from: usize,
        birth: u64,
        entry: Entry,
    },
    NodeLost(u16),
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Outside {
    pub at: usize,
    pub mailboxes: Vec<VecDeque<Mail>>,
    /// By destination node: entries on their way from the other node, each with its shard.
    pub wires: [VecDeque<(usize, Mail)>; 2],
    pub births: [u64; 2],
    pub lost: Option<u16>,
    /// Whether a shard has handled the loss of the other node.
    pub knows: [bool; SHARDS],
    pub link: Link,
    pub log: Vec<Heard>,
    /// Store requests, each with the shard that sent it.
    pub store: Vec<(usize, StoreRequest)>,
    pub logins: Vec<AuthRequest>,
    pub resumed: Vec<SessionId>,
    pub awaited: BTreeSet<SessionId>,
    pub closed: Vec<(SessionId, CloseReason)>,
    /// Interest that publishers see.
    pub visible: BTreeSet<(InterestTopic, String, usize)>,
    /// By shard: changes that are not visible yet.
    pub pending: Vec<VecDeque<(u64, InterestChange)>>,
    pub fault: Option<Fault>,
}

impl Outside {
    pub fn new(fault: Option<Fault>) -> Self {
        Self {
            at: 0,
            mailboxes: vec![VecDeque::new(); SHARDS],
            wires: [VecDeque::new(), VecDeque::new()],
            births: [1, 1],
            lost: None,
            knows: [false; SHARDS],
            link: Link::new(),
            log: Vec::new(),
            store: Vec::new(),
            logins: Vec::new(),
            resumed: Vec::new(),
            awaited: BTreeSet::new(),
            closed: Vec::new(),
            visible: BTreeSet::new(),
            pending: (0..SHARDS).map(|_| VecDeque::new()).collect(),
            fault,
        }
    }

    /// Makes the first pending change of a shard visible, and returns its number.
    pub fn make_visible(&mut self, shard: usize) -> Option<u64> {
        let (number, change) = self.pending[shard].pop_front()?;
        let key = (change.topic, change.name.to_string(), shard);
        match change.wanted {
            true => self.visible.insert(key),
            false => self.visible.remove(&key),
        };
        Some(number)
    }

    /// Delivers the first entry on its way to a node.
    pub fn deliver(&mut self, node: usize) -> bool {
        let Some((shard, mail)) = self.wires[node].pop_front() else {
            return false;
        };
        self.mailboxes[shard].push_back(mail);
        true
    }

    /// The other node goes away. The first `count` entries on their way still arrive before the news, and `late` ones after it.
    pub fn lose(&mut self, node: u16, count: usize, late: usize) {
        let other = usize::from(1 - node);
        for _ in 0..count {
            self.deliver(other);
        }
        for index in other * NODE_SHARDS..(other + 1) * NODE_SHARDS {
            self.mailboxes[index].push_back(Mail::NodeLost(node));
        }
        for _ in 0..late {
            self.deliver(other);
        }
        self.wires = [VecDeque::new(), VecDeque::new()];
        for index in 0..SHARDS {
            if node_of(index) == node {
                self.mailboxes[index].clear();
                self.pending[index].clear();
            }
        }
        self.store.retain(|(shard, _)| node_of(*shard) != node);
        self.logins
            .retain(|login| login.session.address.node != node);
        self.awaited.retain(|session| session.address.node != node);
        self.visible.retain(|(_, _, shard)| node_of(*shard) != node);
        self.lost = Some(node);
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
        self.log.push(heard(message));
        let end = self.log.len() as u64;
        Span {
            start: end - 1,
            end,
        }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        let (from, node) = (self.at, node_of(self.at));
        if self.lost == Some(to.node) {
            // A shard that knows of the loss refuses its requests itself.
            assert!(!self.knows[from], "{entry:?} is posted to a lost node");
            return;
        }
        let shard = index_of(to);
        let entry = self.link.carry(from, shard, entry);
        let birth = self.births[usize::from(node)];
        let mail = Mail::Entry { from, birth, entry };
        match to.node == node {
            true => self.mailboxes[shard].push_back(mail),
            false => self.wires[usize::from(to.node)].push_back((shard, mail)),
        }
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        for shard in self.interested(topic, name) {
            self.post(address(shard), entry());
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
        self.store.push((self.at, request));
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        self.closed.push((session, reason));
    }

    fn resume(&mut self, session: SessionId) {
        self.resumed.push(session);
    }

    fn await_drained(&mut self, session: SessionId) {
        self.awaited.insert(session);
    }
}
