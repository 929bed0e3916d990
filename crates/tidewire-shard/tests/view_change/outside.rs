//! The engine's requests to the world: mailboxes, links, the interest of shards and nodes, and what sessions hear.
//!
//! A shard posts to other nodes as in the server, by `NodePosts`, so the nodes announce their interest to each other. A link carries the
//! posts one by one: when a node crashes, a part of them arrives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::{Entry, InterestEntry};
use tidewire_core::message::Message;
use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::publication::{InterestTopic, OwnedPublication};
use tidewire_core::rights::RightsChange;
use tidewire_core::view::{ClusterView, View};
use tidewire_shard::interest::InterestMap;
use tidewire_shard::interest::nodes::{NodeInterest, OwnInterest};
use tidewire_shard::node_link::{LinkedNode, NodeLink, NodePosts};
use tidewire_wire::entry::{DecodeLimits, Decoder, INTERESTED, Post};

use crate::client::{Heard, heard};
use crate::store::Sent;
use crate::views::{LEVEL, NODE_SHARDS};

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
    Joined(u16, u64, Arc<NodeInterest>),
    Lost(u16, u64),
    Adopt(ClusterView),
    Rights(u64, RightsChange),
}

/// The batches that the running shard has passed to its links, each with the life of the other node.
type Batches = Arc<Mutex<Vec<(u16, u64, Vec<u8>)>>>;

/// A link, as a shard posts to it.
#[derive(Debug)]
struct Link {
    node: u16,
    birth: u64,
    batches: Batches,
}

impl NodeLink for Link {
    fn post(&self, batch: Vec<u8>) {
        let mut batches = self.batches.lock().expect("not poisoned");
        batches.push((self.node, self.birth, batch));
    }

    fn is_congested(&self) -> bool {
        false
    }
}

/// The interest of a shard, and its posts to other nodes.
#[derive(Debug, Default)]
struct Linked {
    own: OwnInterest,
    nodes: NodePosts,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Outside {
    /// The shard that runs, and the newest view whose hand-over is complete there.
    pub at: Address,
    pub handed_over: View,
    pub births: BTreeMap<u16, u64>,
    /// The mailboxes of the shards that live.
    pub mailboxes: BTreeMap<Address, VecDeque<Mail>>,
    /// By sending and receiving node: the birth of the sender and the posts on their way.
    pub wires: BTreeMap<(u16, u16), VecDeque<(u64, Post)>>,
    batches: Batches,
    linked: BTreeMap<Address, Linked>,
    /// The interest of the shards of each node, as its own shards see it.
    interest: BTreeMap<u16, InterestMap>,
    /// The changes of interest of the running shard that have become visible.
    pub visible: Vec<u64>,
    pub log: Vec<Heard>,
    pub store: Vec<Sent>,
    pub logins: Vec<AuthRequest>,
    pub resumed: Vec<SessionId>,
    pub awaited: BTreeSet<SessionId>,
    pub closed: Vec<(SessionId, CloseReason)>,
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
            mailboxes: BTreeMap::new(),
            wires: BTreeMap::new(),
            batches: Batches::default(),
            linked: BTreeMap::new(),
            interest: BTreeMap::new(),
            visible: Vec::new(),
            log: Vec::new(),
            store: Vec::new(),
            logins: Vec::new(),
            resumed: Vec::new(),
            awaited: BTreeSet::new(),
            closed: Vec::new(),
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

    /// A process starts.
    pub fn start_node(&mut self, node: u16, birth: u64) {
        self.births.insert(node, birth);
        self.interest.insert(node, InterestMap::new(NODE_SHARDS));
        for shard in 0..NODE_SHARDS {
            let address = Address { node, shard };
            self.mailboxes.insert(address, VecDeque::new());
            self.linked.insert(address, Linked::default());
        }
    }

    /// The running shard links a process.
    pub fn joined(&mut self, node: u16, birth: u64, interest: Arc<NodeInterest>) {
        let batches = Arc::clone(&self.batches);
        let link = Link {
            node,
            birth,
            batches,
        };
        let linked = LinkedNode {
            node,
            birth,
            shard_count: NODE_SHARDS,
            version: u32::from(LEVEL),
            link: Arc::new(link),
        };
        self.linked_here().nodes.joined(linked, interest);
    }

    /// The running shard loses a process. Returns whether it was linked.
    pub fn lost(&mut self, node: u16, birth: u64) -> bool {
        let nodes = &mut self.linked_here().nodes;
        let is_linked = nodes.birth(node) == Some(birth);
        if is_linked {
            nodes.lost(node);
            self.note_visible();
        }
        is_linked
    }

    /// The running shard takes the interest of a shard of another node, or its answer.
    pub fn take_interest(&mut self, from: Address, birth: u64, entry: InterestEntry) {
        let own = self.at.shard;
        let nodes = &mut self.linked_here().nodes;
        if nodes.birth(from.node) != Some(birth) {
            return;
        }
        match nodes.take_interest(from, entry) {
            Some(0) => {}
            Some(number) => {
                let answer = Entry::Interest(InterestEntry::Visible { number });
                nodes.post(own, from, answer);
                self.send();
            }
            None => self.note_visible(),
        }
    }

    /// The running shard announces a piece of its interest to nodes that it has linked.
    pub fn announce_interest(&mut self) {
        let from = self.at.shard;
        let Linked { own, nodes } = self.linked_here();
        nodes.announce_piece(from, own);
        self.send();
    }

    /// Whether a shard has interest to announce.
    pub fn has_more_to_announce(&self) -> bool {
        let mut linked = self.linked.values();
        linked.any(|linked| linked.nodes.has_more_to_announce())
    }

    /// The other nodes to which a shard posts an event.
    pub fn receivers(&mut self, shard: Address, name: &str) -> BTreeSet<u16> {
        self.at = shard;
        let nodes = &mut self.linked_here().nodes;
        nodes.post_to_interested(shard.shard, InterestTopic::Event, name, || {
            Entry::Publication(OwnedPublication {
                name: name.into(),
                data: None,
                rare: None,
            })
        });
        nodes.end_turn();
        let mut batches = self.batches.lock().expect("not poisoned");
        batches.drain(..).map(|(node, ..)| node).collect()
    }

    fn note_visible(&mut self) {
        let Linked { own, nodes } = self.linked_here();
        let up_to = nodes.visible().unwrap_or(own.last());
        self.visible.push(up_to);
    }

    fn linked_here(&mut self) -> &mut Linked {
        self.linked.get_mut(&self.at).expect("the shard lives")
    }

    /// Puts the posts of the running shard on their way. A link ends with the process at its other end.
    fn send(&mut self) {
        let (own, birth) = (self.at.node, self.birth());
        self.linked_here().nodes.end_turn();
        let mut batches = self.batches.lock().expect("not poisoned");
        for (node, life, batch) in batches.drain(..) {
            if self.births.get(&node) == Some(&life) {
                let wire = self.wires.entry((own, node)).or_default();
                wire.extend(decoded(&batch).into_iter().map(|post| (birth, post)));
            }
        }
    }

    /// Delivers the first entry on its way from one node to another.
    pub fn deliver(&mut self, wire: (u16, u16)) -> bool {
        let Some((birth, post)) = self.wires.get_mut(&wire).and_then(VecDeque::pop_front) else {
            return false;
        };
        let (from, node) = (wire.0, wire.1);
        let Post { shard, entry, .. } = &post;
        if let Entry::Rights(marker) = entry
            && self.read.get(&node).copied().unwrap_or(0) < marker.number as usize
        {
            self.read_changes(node);
        }
        let mut shards = vec![*shard];
        if *shard == INTERESTED {
            shards.clear();
            self.interest[&node].visit_receivers(entry, |shard| shards.push(shard));
        }
        let from = Address {
            node: from,
            shard: post.from,
        };
        for shard in shards {
            let entry = post.entry.clone();
            if let Some(mailbox) = self.mailboxes.get_mut(&Address { node, shard }) {
                mailbox.push_back(Mail::Linked { from, birth, entry });
            }
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
        self.linked.retain(|shard, _| shard.node != node);
        self.interest.remove(&node);
        self.awaited.retain(|session| session.address.node != node);
        self.births.remove(&node);
        self.read.remove(&node);
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

/// The posts of a batch, as another node receives them.
fn decoded(batch: &[u8]) -> Vec<Post> {
    let mut decoder = Decoder::new(DecodeLimits {
        post_bytes_max: 1 << 20,
        pattern_bytes_max: 1 << 10,
    });
    decoder.push(batch);
    let mut posts = Vec::new();
    let rules = |_| Some(Arc::new(Unused) as _);
    while let Some(post) = decoder
        .decode(&rules)
        .expect("a node reads what another has written")
    {
        posts.push(post);
    }
    posts
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
        self.linked_here().nodes.post(from.shard, to, entry);
        self.send();
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        let own = self.at;
        let nodes = &mut self.linked_here().nodes;
        nodes.post_to_interested(own.shard, topic, name, &entry);
        self.send();
        let mailboxes = &mut self.mailboxes;
        self.interest[&own.node].visit(topic, name, own.shard, |shard| {
            let to = Address { shard, ..own };
            let mailbox = mailboxes.get_mut(&to).expect("the shard lives");
            mailbox.push_back(Mail::Local(entry()));
        });
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        let Address { node, shard: own } = self.at;
        let interest = &self.interest[&node];
        interest.visit_pattern_shards(event, own, |shard| visit(Address { node, shard }));
        self.linked[&self.at]
            .nodes
            .visit_pattern_shards(event, visit);
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        let from = self.at;
        let Linked { own, nodes } = self.linked_here();
        own.change(number, &change);
        nodes.announce(from.shard, number, &change);
        let at_nodes = nodes.visible();
        self.send();
        self.interest[&from.node].change(from.shard, change);
        self.visible.push(at_nodes.unwrap_or(number));
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
