//! The nodes of the world: how they start, join, leave and crash, link each other, and read the views of the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_core::address::{Address, Epoch};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::permission::AllowAll;
use tidewire_core::store::Opened;
use tidewire_core::view::{ClusterView, MemberId, MemberState, View};
use tidewire_shard::interest::nodes::NodeInterest;

use super::{NODES_MAX, Node, World, settings};
use crate::client::Client;
use crate::outside::Mail;
use crate::views::NODE_SHARDS;

impl World {
    /// A node joins, leaves, crashes, is evicted after a crash, or is evicted while it is paused.
    pub(super) fn changes(&mut self) {
        if self.has_to_wait() {
            return;
        }
        let active = self.views.with(MemberState::Active);
        let lost: Vec<u16> = self.lost_members();
        match self.random.below(10) {
            0..4 => {
                let absent: Vec<u16> = (1..=NODES_MAX)
                    .filter(|node| !self.nodes.contains_key(node))
                    .collect();
                if !absent.is_empty() {
                    let node = *self.random.pick(&absent);
                    self.start(node, MemberState::Joining);
                    self.met.joins += 1;
                    self.met.planned += usize::from(self.is_planned);
                }
            }
            4..6 if active.len() > 1 && lost.is_empty() => {
                self.views
                    .set(*self.random.pick(&active), MemberState::Leaving);
                self.met.drains += 1;
                self.met.planned += usize::from(self.is_planned);
            }
            6..8 if self.has_crashes && self.nodes.len() > 1 => {
                let node = *self.random.pick(&self.node_numbers());
                if self.is_dispensable(node) {
                    match self.random.chance(60) {
                        true => self.crash(node),
                        false => self.evicts(node),
                    }
                }
            }
            _ if !lost.is_empty() => {
                let node = *self.random.pick(&lost);
                self.views.remove(node);
            }
            _ => {}
        }
    }

    /// Whether the next view waits until all nodes are linked and have completed the hand-over of this one.
    fn has_to_wait(&self) -> bool {
        let current = self.views.current.number;
        let mut shards = self.shards.values();
        let is_complete = shards.all(|shard| shard.handed_over() == current);
        let mut nodes = self.nodes.values();
        let are_linked = nodes.all(|node| node.linked.len() + 1 == self.nodes.len());
        self.is_planned && !(is_complete && are_linked)
    }

    /// Whether another active node may have clients.
    pub(super) fn is_dispensable(&self, node: u16) -> bool {
        let mut active = self.views.with(MemberState::Active).into_iter();
        active
            .any(|other| other != node && self.nodes.contains_key(&other) && self.has_served(other))
    }

    /// Members of the view whose process has ended.
    pub(super) fn lost_members(&self) -> Vec<u16> {
        let members = self.views.current.members.iter().map(|member| member.id);
        let lost = members.filter(|id| self.birth(id.node) != Some(id.birth));
        lost.map(|id| id.node).collect()
    }

    pub(super) fn birth(&self, node: u16) -> Option<u64> {
        self.nodes.get(&node).map(|known| known.birth)
    }

    /// A process starts, and adds itself to the view.
    pub(super) fn start(&mut self, node: u16, state: MemberState) {
        let birth = self.views.number();
        self.views.add(node, birth, state);
        let view = self.views.view().expect("some member is active");
        let known = Node {
            birth,
            view: View(0),
            linked: BTreeMap::new(),
            unreported: Vec::new(),
        };
        self.nodes.insert(node, known);
        self.outside.start_node(node, birth);
        for shard in 0..NODE_SHARDS {
            let address = Address { node, shard };
            let config = ShardConfig {
                address,
                slots: Arc::clone(&view.slots),
                settings: settings(),
                permission: Arc::new(AllowAll),
                seed: self.seed ^ (birth << 8) ^ u64::from(shard),
                opened: vec![Opened {
                    epoch: Epoch(1),
                    opening: birth,
                }],
            };
            self.shards.insert(address, Shard::new(config));
        }
        // The first view precedes all sessions.
        if let Some(known) = self.nodes.get_mut(&node) {
            known.view = view.number;
        }
        for shard in 0..NODE_SHARDS {
            self.receive(Address { node, shard }, Mail::Adopt(view.clone()));
        }
        // A node reads the changes of rights before it has clients, maybe after it is linked.
        if self.random.chance(50) {
            self.outside.read_changes(node);
        }
    }

    /// The others evict a node that was paused. It serves its clients until it reads the view.
    fn evicts(&mut self, node: u16) {
        self.met.evictions += 1;
        self.views.remove(node);
    }

    pub(super) fn crash(&mut self, node: u16) {
        self.met.crashes += 1;
        let random = &mut self.random;
        self.outside
            .end_node(node, |coming| random.below(coming + 1));
        self.ended(node);
    }

    pub(super) fn ended(&mut self, node: u16) {
        self.nodes.remove(&node);
        self.shards.retain(|shard, _| shard.node != node);
        let is_lost = |client: &&Client| client.session.address.node == node;
        let lost: Vec<_> = self
            .clients
            .iter()
            .filter(is_lost)
            .map(Client::positions)
            .collect();
        self.clients
            .retain(|client| client.session.address.node != node);
        for known in self.nodes.values_mut() {
            if let Some(birth) = known.linked.remove(&node) {
                known.unreported.push((node, birth));
            }
        }
        for other in self.node_numbers() {
            if self.random.chance(50) {
                self.reports_lost(other);
            }
        }
        for left in lost {
            self.connect_again(left);
        }
    }

    /// The driver of a node reports the nodes to its shards whose links have ended.
    fn reports_lost(&mut self, node: u16) {
        let Some(known) = self.nodes.get_mut(&node) else {
            return;
        };
        for (lost, birth) in std::mem::take(&mut known.unreported) {
            for shard in 0..NODE_SHARDS {
                let mailbox = self.outside.mailboxes.get_mut(&Address { node, shard });
                let mailbox = mailbox.expect("the node lives");
                mailbox.push_back(Mail::Lost(lost, birth));
            }
        }
    }

    /// The driver of a node reads the current view. It may have missed earlier ones.
    pub(super) fn reads_view(&mut self) {
        let numbers = self.node_numbers();
        let node = *self.random.pick(&numbers);
        let id = MemberId {
            node,
            birth: self.nodes[&node].birth,
        };
        // A node that is evicted was paused before, and learns of it late.
        if self.views.current.has(id) || self.random.chance(10) {
            self.node_reads_view(node);
        }
    }

    pub(super) fn node_reads_view(&mut self, node: u16) {
        let (current, birth) = (self.views.current.number, self.nodes[&node].birth);
        if self.nodes[&node].view >= current {
            return self.reports_lost(node);
        }
        match self.views.current.has(MemberId { node, birth }) {
            true => {
                if let Some(view) = self.views.view() {
                    self.pass_view(node, &view);
                }
            }
            // It has been evicted, or has left.
            false => {
                self.outside.end_node(node, |coming| coming);
                self.ended(node);
            }
        }
    }

    pub(super) fn pass_view(&mut self, node: u16, view: &ClusterView) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.view = view.number;
        }
        for shard in 0..NODE_SHARDS {
            let mailbox = self.outside.mailboxes.get_mut(&Address { node, shard });
            let mailbox = mailbox.expect("the node lives");
            mailbox.push_back(Mail::Adopt(view.clone()));
        }
        self.reports_lost(node);
        self.outside.read_changes(node);
    }

    /// Two processes link each other.
    pub(super) fn links(&mut self) {
        let numbers = self.node_numbers();
        let (one, other) = (*self.random.pick(&numbers), *self.random.pick(&numbers));
        self.link(one, other);
    }

    pub(super) fn link(&mut self, one: u16, other: u16) {
        let current = &self.views.current;
        let is_member = |node: u16| {
            let birth = self.nodes[&node].birth;
            current.has(MemberId { node, birth })
        };
        if one == other
            || self.nodes[&one].linked.contains_key(&other)
            || !is_member(one)
            || !is_member(other)
        {
            return;
        }
        for (node, peer) in [(one, other), (other, one)] {
            let birth = self.nodes[&peer].birth;
            if let Some(known) = self.nodes.get_mut(&node) {
                known.linked.insert(peer, birth);
            }
            // The shards of the node share what they learn of the other one.
            let interest = Arc::new(NodeInterest::new(NODE_SHARDS));
            for shard in 0..NODE_SHARDS {
                let mailbox = self.outside.mailboxes.get_mut(&Address { node, shard });
                let mailbox = mailbox.expect("the node lives");
                mailbox.push_back(Mail::Joined(peer, birth, Arc::clone(&interest)));
            }
        }
    }

    /// A joining node becomes active, or a node that has handed over everything leaves.
    pub(super) fn promotes(&mut self) {
        if self.has_to_wait() {
            return;
        }
        let joining = self.views.with(MemberState::Joining);
        let active = self.views.with(MemberState::Active);
        for node in joining {
            let Some(known) = self.nodes.get(&node) else {
                continue;
            };
            if active.iter().all(|other| known.linked.contains_key(other)) {
                self.views.set(node, MemberState::Active);
                return;
            }
        }
        for node in self.views.with(MemberState::Leaving) {
            let Some(known) = self.nodes.get(&node) else {
                continue;
            };
            let (view, current) = (known.view, self.views.current.number);
            let mut shards = self.shards.iter().filter(|(shard, _)| shard.node == node);
            let has_handed_over = shards.all(|(_, shard)| shard.handed_over() == current);
            if view == current && has_handed_over && self.is_dispensable(node) {
                self.views.remove(node);
                return;
            }
        }
    }

    /// Nothing changes any longer: lost nodes are evicted, joining ones become active, leaving ones go.
    pub(super) fn repair(&mut self) {
        self.store_confirms();
        for node in self.lost_members() {
            self.views.remove(node);
        }
        if self.views.with(MemberState::Active).is_empty() {
            let numbers = self.node_numbers();
            self.views.set(numbers[0], MemberState::Active);
        }
    }
}
