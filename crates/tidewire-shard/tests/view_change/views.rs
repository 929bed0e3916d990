//! The registry of the views, and the members that it has.

use tidewire_core::address::Epoch;
use tidewire_core::slot::ClusterKey;
use tidewire_core::view::{
    ClusterView, Generation, MemberId, MemberState, Profile, SlotEpochs, StoredView, View,
    ViewMember,
};

/// The shards of each node.
pub const NODE_SHARDS: u16 = 2;

/// The version of the protocol between nodes that all nodes of this world speak.
pub const LEVEL: u16 = 5;

/// See the documentation of this module.
#[derive(Debug)]
pub struct Views {
    pub current: StoredView,
    /// Counts the views and the births.
    next: u64,
}

impl Views {
    pub fn new(seed: u64) -> Self {
        Self {
            current: StoredView {
                number: View(0),
                key: Some(ClusterKey(u128::from(seed).to_be_bytes())),
                level: LEVEL,
                members: Vec::new(),
                epochs: SlotEpochs::all(Epoch(1)),
                generation: Generation::default(),
            },
            next: 1,
        }
    }

    /// A number that no birth and no view has had.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes a view with one node more.
    pub fn add(&mut self, node: u16, birth: u64, state: MemberState) {
        let profile = Profile {
            shard_count: NODE_SHARDS,
            ..Profile::default()
        };
        self.current.members.retain(|member| member.id.node != node);
        let id = MemberId { node, birth };
        self.current.members.push(ViewMember { id, state, profile });
        self.current.number = View(self.number());
    }

    /// Makes a view in which a node has another state.
    pub fn set(&mut self, node: u16, state: MemberState) {
        let mut members = self.current.members.iter_mut();
        if let Some(member) = members.find(|member| member.id.node == node) {
            member.state = state;
            self.current.number = View(self.number());
        }
    }

    /// Makes a view without a node.
    pub fn remove(&mut self, node: u16) {
        self.current.members.retain(|member| member.id.node != node);
        self.current.number = View(self.number());
    }

    pub fn with(&self, state: MemberState) -> Vec<u16> {
        let members = self.current.members.iter();
        let members = members.filter(|member| member.state == state);
        members.map(|member| member.id.node).collect()
    }

    pub fn view(&self) -> Option<ClusterView> {
        ClusterView::of(&self.current)
    }
}
