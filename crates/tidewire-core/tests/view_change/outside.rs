//! The engine's requests to the world: mailboxes, links, the interest that publishers see, and what sessions hear.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::Entry;
use tidewire_core::event_pattern::matches;
use tidewire_core::message::Message;
use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::publication::InterestTopic;
use tidewire_core::rights::RightsChange;
use tidewire_core::view::{ClusterView, View};
use tidewire_wire::entry::{DecodeLimits, Decoder, Post, begin_batch, encode};

use crate::client::{Heard, heard};
use crate::store::Sent;

/// An item of a shard's mailbox.
#[derive(Clone, Debug)]
pub enum Mail {
    /// From a shard of the same node.
    Local(Entry),
    Linked {
        from: Address,
        birth: u64,
        entry: Entry,
    },
    Joined(u16, u64),
    Lost(u16),
    Adopt(ClusterView),
    Rights(u64, RightsChange),
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Outside {
    /// The shard that runs, and the newest view whose hand-over is complete there.
    pub at: Address,
    pub handed_over: View,
    pub births: BTreeMap<u16, u64>,
    /// By shard and node: the birth that the shard has linked.
    pub links: BTreeMap<(Address, u16), u64>,
    /// The mailboxes of the shards that live.
    pub mailboxes: BTreeMap<Address, VecDeque<Mail>>,
    /// By sending and receiving node: the entries on their way.
    pub wires: BTreeMap<(u16, u16), VecDeque<(Address, Mail)>>,
    pub log: Vec<Heard>,
    pub store: Vec<Sent>,
    pub logins: Vec<AuthRequest>,
    pub resumed: Vec<SessionId>,
    pub awaited: BTreeSet<SessionId>,
    pub closed: Vec<(SessionId, CloseReason)>,
    /// Interest that publishers see.
    pub visible: BTreeSet<(InterestTopic, String, Address)>,
    /// Changes that are not visible yet.
    pub pending: BTreeMap<Address, VecDeque<(u64, InterestChange)>>,
    /// The changes of rights that the store has, and how many of them each node has read.
    pub changes: Vec<RightsChange>,
    read: BTreeMap<u16, usize>,
}

impl Outside {
    pub fn new() -> Self {
        Self {
            at: Address { node: 0, shard: 0 },
            handed_over: View::default(),
            births: BTreeMap::new(),
            links: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            wires: BTreeMap::new(),
            log: Vec::new(),
            store: Vec::new(),
            logins: Vec::new(),
            resumed: Vec::new(),
            awaited: BTreeSet::new(),
            closed: Vec::new(),
            visible: BTreeSet::new(),
            pending: BTreeMap::new(),
            changes: Vec::new(),
            read: BTreeMap::new(),
        }
    }

    /// A node reads the changes of rights that it does not have, and passes them to its shards.
    pub fn read_changes(&mut self, node: u16) {
        let read = self.read.entry(node).or_default();
        for (index, change) in self.changes.iter().enumerate().skip(*read) {
            for (_, mailbox) in self.mailboxes.iter_mut().filter(|(it, _)| it.node == node) {
                mailbox.push_back(Mail::Rights(index as u64 + 1, change.clone()));
            }
        }
        *read = self.changes.len();
    }

    pub fn birth(&self) -> u64 {
        self.births[&self.at.node]
    }

    /// Makes the first pending change of a shard visible, and returns its number.
    pub fn make_visible(&mut self, shard: Address) -> Option<u64> {
        let (number, change) = self.pending.get_mut(&shard)?.pop_front()?;
        let key = (change.topic, change.name.to_string(), shard);
        match change.wanted {
            true => self.visible.insert(key),
            false => self.visible.remove(&key),
        };
        Some(number)
    }

    /// Delivers the first entry on its way from one node to another.
    pub fn deliver(&mut self, wire: (u16, u16)) -> bool {
        let Some((shard, mail)) = self.wires.get_mut(&wire).and_then(VecDeque::pop_front) else {
            return false;
        };
        if let Mail::Linked { entry, .. } = &mail
            && let Entry::Rights(marker) = entry
            && self.read.get(&shard.node).copied().unwrap_or(0) < marker.number as usize
        {
            self.read_changes(shard.node);
        }
        if let Some(mailbox) = self.mailboxes.get_mut(&shard) {
            mailbox.push_back(mail);
        }
        true
    }

    /// A node ends. Of the entries that it has posted, those arrive that `arrives` chooses the number of.
    pub fn end_node(&mut self, node: u16, mut arrives: impl FnMut(usize) -> usize) {
        let wires: Vec<(u16, u16)> = self.wires.keys().copied().collect();
        for wire in wires {
            let coming = self.wires[&wire].len();
            if wire.0 == node {
                for _ in 0..arrives(coming) {
                    self.deliver(wire);
                }
            }
            if wire.0 == node || wire.1 == node {
                self.wires.remove(&wire);
            }
        }
        self.mailboxes.retain(|shard, _| shard.node != node);
        self.pending.retain(|shard, _| shard.node != node);
        self.visible.retain(|(_, _, shard)| shard.node != node);
        self.awaited.retain(|session| session.address.node != node);
        self.births.remove(&node);
        self.read.remove(&node);
        self.links.retain(|(shard, _), _| shard.node != node);
    }

    fn interested(&self, topic: InterestTopic, name: &str) -> BTreeSet<Address> {
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

/// The rules of a marker, which the shards have before the marker.
#[derive(Debug)]
struct Unused;

impl Permission for Unused {
    fn decide(&self, _question: &Question<'_>) -> Decision {
        panic!("a shard uses the rules of a marker")
    }
}

/// The entry as another node receives it.
fn carried(from: u16, shard: u16, entry: Entry) -> Entry {
    let mut bytes = Vec::new();
    begin_batch(&mut bytes);
    encode(&Post { shard, entry, from }, &mut bytes);
    let mut decoder = Decoder::new(DecodeLimits {
        post_bytes_max: 1 << 20,
        pattern_bytes_max: 1 << 10,
    });
    decoder.push(&bytes);
    let post = decoder.decode(&|_| Some(Arc::new(Unused) as _));
    let post = post.expect("the node reads what another node has written");
    post.expect("the whole post has arrived").entry
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
        let from = self.at;
        if to.node == from.node {
            let mailbox = self.mailboxes.get_mut(&to);
            return mailbox
                .expect("the shard lives")
                .push_back(Mail::Local(entry));
        }
        let birth = self.birth();
        let entry = carried(from.shard, to.shard, entry);
        // A link ends with the process at its other end.
        let linked = self.links.get(&(from, to.node));
        if linked.is_some() && linked == self.births.get(&to.node) {
            let wire = self.wires.entry((from.node, to.node)).or_default();
            wire.push_back((to, Mail::Linked { from, birth, entry }));
        }
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        for shard in self.interested(topic, name) {
            self.post(shard, entry());
        }
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        for (topic, pattern, shard) in &self.visible {
            let is_other = *shard != self.at && *topic == InterestTopic::EventPattern;
            if is_other && matches(pattern, event) {
                visit(*shard);
            }
        }
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        let pending = self.pending.entry(self.at).or_default();
        pending.push_back((number, change));
    }

    fn store(&mut self, request: StoreRequest) {
        let sent = Sent {
            from: self.at,
            birth: self.birth(),
            handed_over: self.handed_over,
            request,
        };
        self.store.push(sent);
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
