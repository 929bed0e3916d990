//! Passes what arrives from other nodes to the shards. It takes the way through their mailboxes, so a shard sees entries, losses and new
//! views in the order in which they were given here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewire_core::entry::Entry;
use tidewire_core::view::{ClusterView, View};
use tidewire_wire::entry::{INTERESTED, Post};

use super::handle::{Mail, ShardHandle};
use super::node_link::{DeliveryToken, LinkedEntries, LinkedNode};
use crate::interest::InterestMap;
use crate::interest::nodes::NodeInterest;

/// Passes what arrives from other nodes to the shards of this one.
#[derive(Clone, Debug)]
pub struct NodeShards {
    pub(crate) handles: Arc<[ShardHandle]>,
    pub(crate) interest: Arc<InterestMap>,
}

impl NodeShards {
    /// A node is linked. All entries of this birth follow.
    pub fn joined(&self, node: &LinkedNode) {
        let interest = Arc::new(NodeInterest::new(node.shard_count));
        for handle in self.handles.iter() {
            let mail = Mail::NodeJoined(node.clone(), Arc::clone(&interest));
            handle.0.mailbox.push(mail);
        }
    }

    /// A node is lost. No entry of its birth follows.
    pub fn lost(&self, node: u16, birth: u64) {
        for handle in self.handles.iter() {
            handle.0.mailbox.push(Mail::NodeLost { node, birth });
        }
    }

    /// A view holds. It follows all entries of nodes that it does not have.
    pub fn adopt(&self, view: &ClusterView) {
        for handle in self.handles.iter() {
            handle.0.mailbox.push(Mail::View(view.clone()));
        }
    }

    /// The newest view that a shard of any node has announced to these shards.
    #[must_use]
    pub fn heard_view(&self) -> View {
        let handles = self.handles.iter();
        let heard = handles.map(|handle| handle.stats().heard_view.load(Ordering::Relaxed));
        View(heard.max().unwrap_or(0))
    }

    /// Passes entries of a linked node to the shards that they are for, in their order.
    pub fn deliver(&self, node: u16, birth: u64, posts: Vec<Post>, token: &DeliveryToken) {
        let mut by_shard: Vec<Vec<(u16, Entry)>> = vec![Vec::new(); self.handles.len()];
        for Post { shard, entry, from } in posts {
            if shard != INTERESTED {
                // A post for a shard that does not exist is of a sender with another view of this node.
                if let Some(entries) = by_shard.get_mut(usize::from(shard)) {
                    entries.push((from, entry));
                }
                continue;
            }
            self.interest.visit_receivers(&entry, |shard| {
                by_shard[usize::from(shard)].push((from, entry.clone()));
            });
        }
        for (handle, entries) in self.handles.iter().zip(by_shard) {
            if !entries.is_empty() {
                handle.0.mailbox.push(Mail::Linked(LinkedEntries {
                    node,
                    birth,
                    entries,
                    _token: Arc::clone(token),
                }));
            }
        }
    }

    /// Sessions that waited for a congested link may continue.
    pub fn wake(&self) {
        for handle in self.handles.iter() {
            handle.0.mailbox.wake();
        }
    }
}
