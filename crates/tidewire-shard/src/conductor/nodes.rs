//! Other nodes: their entries, and the beginning and end of the links to them.

use std::sync::Arc;

use tidewire_core::address::Address;
use tidewire_core::effect::Input;
use tidewire_core::entry::{Entry, InterestEntry};
use tidewire_core::view::ClusterView;

use super::Conductor;
use crate::interest::nodes::NodeInterest;
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
        // Changes of interest are confirmed once, behind the last one.
        let mut confirmed: Vec<(Address, u64)> = Vec::new();
        for (shard, entry) in entries {
            let from = Address { node, shard };
            let entry = match entry {
                Entry::Interest(entry) => entry,
                Entry::Exchange(entry) => {
                    self.take_forwarded(from, birth, entry);
                    continue;
                }
                entry => {
                    self.handle(Input::Linked { from, birth, entry });
                    continue;
                }
            };
            let number = self.take_interest(from, birth, entry);
            match confirmed.iter_mut().find(|(known, _)| *known == from) {
                Some((_, last)) => *last = number.max(*last),
                None => confirmed.push((from, number)),
            }
        }
        for (to, number) in confirmed {
            if let Some(nodes) = &mut self.sink.nodes
                && number != 0
            {
                self.has_unflushed = true;
                let answer = Entry::Interest(InterestEntry::Visible { number });
                nodes.post(self.address.shard, to, answer);
            }
        }
    }

    /// Takes the interest of a shard of another node, or its answer to this shard. Returns the change to confirm, or 0.
    fn take_interest(&mut self, from: Address, birth: u64, entry: InterestEntry) -> u64 {
        let nodes = self.sink.nodes.as_mut();
        let Some(nodes) = nodes.filter(|nodes| nodes.birth(from.node) == Some(birth)) else {
            return 0;
        };
        let number = nodes.take_interest(from, entry);
        if number.is_none() {
            self.sink.note_visible();
            self.run_deferred();
        }
        number.unwrap_or(0)
    }

    /// Announces the next piece of the interest of this shard to nodes that were linked.
    pub(super) fn announce_interest(&mut self) {
        if !self.sink.has_more_to_announce() {
            return;
        }
        self.has_unflushed = true;
        self.sink.announce_piece();
        if self.sink.has_more_to_announce() {
            // The next piece follows in the next turn, which begins at once.
            self.handles[usize::from(self.address.shard)]
                .0
                .mailbox
                .wake();
        }
    }

    pub(super) fn node_joined(&mut self, node: LinkedNode, interest: Arc<NodeInterest>) {
        self.has_unflushed = true;
        let (number, birth) = (node.node, node.birth);
        let nodes = self.sink.nodes.get_or_insert_default();
        nodes.joined(node, interest);
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
            self.forwarding.node_lost(node);
            self.lose_exchanges_of(node);
            self.handle(Input::NodeLost { node });
            self.sink.note_visible();
            self.run_deferred();
        }
    }
}
