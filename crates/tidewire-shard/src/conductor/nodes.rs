//! Other nodes: their entries, and the beginning and end of the links to them.

use tidewire_core::address::Address;
use tidewire_core::effect::Input;
use tidewire_core::view::ClusterView;

use super::Conductor;
use crate::node_link::{LinkedEntries, LinkedNode};

impl Conductor {
    /// Handles the entries of another node. Their token is dropped behind the last one.
    pub(super) fn take_linked(&mut self, linked: LinkedEntries) {
        let LinkedEntries {
            node,
            birth,
            entries,
            _token,
        } = linked;
        for (shard, entry) in entries {
            let from = Address { node, shard };
            self.handle(Input::Linked { from, birth, entry });
        }
    }

    pub(super) fn node_joined(&mut self, node: LinkedNode) {
        self.has_unflushed = true;
        let (number, birth) = (node.node, node.birth);
        let nodes = self.sink.nodes.get_or_insert_default();
        nodes.joined(node);
        let sink = &mut self.sink;
        if let Err(error) = self.engine.node_joined(self.now, number, birth, sink) {
            tracing::error!(%error, "the shard can't link the node");
        }
        self.run_deferred();
    }

    pub(super) fn adopt(&mut self, view: &ClusterView) {
        self.has_unflushed = true;
        self.sink.is_clustered = true;
        self.engine.adopt(self.now, view, &mut self.sink);
        self.run_deferred();
    }

    /// Posts of this turn for the node are not sent: the engine answers their requests.
    pub(super) fn node_lost(&mut self, node: u16, birth: u64) {
        let Some(nodes) = &mut self.sink.nodes else {
            return;
        };
        if nodes.birth(node) == Some(birth) {
            nodes.lost(node);
            self.handle(Input::NodeLost { node });
        }
    }
}
