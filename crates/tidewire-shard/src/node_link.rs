//! The links to other nodes, as the shards of this node post to them. A shard encodes its posts for a node once per turn into one batch and
//! passes it to the link.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tidewire_core::address::Address;
use tidewire_core::entry::Entry;
use tidewire_wire::entry::{INTERESTED, Post, begin_batch, encode};

/// A link to a life of another node.
pub trait NodeLink: fmt::Debug + Send + Sync {
    /// Takes the posts of one shard in one turn, as a batch. Never blocks.
    fn post(&self, batch: Vec<u8>);

    /// Whether sessions that post to the node must wait.
    fn is_congested(&self) -> bool;
}

/// Another node whose link is open.
#[derive(Clone, Debug)]
pub struct LinkedNode {
    /// The number of the node.
    pub node: u16,
    /// Its birth.
    pub birth: u64,
    /// The number of its shards.
    pub shard_count: u16,
    /// The link to it.
    pub link: Arc<dyn NodeLink>,
}

/// Dropped when all entries of one delivery are handled, so that the peer may send more.
pub type DeliveryToken = Arc<dyn Any + Send + Sync>;

/// Entries of another node for one shard.
#[derive(Debug)]
pub(crate) struct LinkedEntries {
    pub(crate) node: u16,
    pub(crate) birth: u64,
    /// Each with the shard that has posted it.
    pub(crate) entries: Vec<(u16, Entry)>,
    pub(crate) _token: DeliveryToken,
}

/// The posts of one shard to other nodes in this turn.
#[derive(Debug, Default)]
pub(crate) struct NodePosts {
    nodes: Vec<NodePost>,
    /// A post that several nodes get.
    shared: Vec<u8>,
}

#[derive(Debug)]
struct NodePost {
    node: LinkedNode,
    /// The posts of this turn, or nothing.
    batch: Vec<u8>,
}

impl NodePosts {
    pub(crate) fn joined(&mut self, node: LinkedNode) {
        self.lost(node.node);
        let batch = Vec::new();
        self.nodes.push(NodePost { node, batch });
    }

    pub(crate) fn lost(&mut self, node: u16) {
        self.nodes.retain(|post| post.node.node != node);
    }

    /// The birth of a node, if it is linked.
    pub(crate) fn birth(&self, node: u16) -> Option<u64> {
        let found = self.nodes.iter().find(|post| post.node.node == node);
        found.map(|post| post.node.birth)
    }

    /// Adds an entry for a shard. Without a link to its node the entry is dropped: the engine has answered its requests.
    pub(crate) fn post(&mut self, from: u16, to: Address, entry: Entry) {
        let shard = to.shard;
        if let Some(post) = self.find(to.node) {
            encode(&Post { shard, entry, from }, post.batch());
        }
    }

    /// Adds an entry for the shards of all nodes that have interest in its name.
    pub(crate) fn post_to_interested(&mut self, from: u16, entry: Entry) {
        let shard = INTERESTED;
        self.shared.clear();
        encode(&Post { shard, entry, from }, &mut self.shared);
        for post in &mut self.nodes {
            post.batch().extend_from_slice(&self.shared);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All shards of all nodes.
    pub(crate) fn shards(&self) -> impl Iterator<Item = Address> + '_ {
        self.nodes.iter().flat_map(|post| {
            let node = post.node.node;
            (0..post.node.shard_count).map(move |shard| Address { node, shard })
        })
    }

    /// A congested node.
    pub(crate) fn congested(&self) -> Option<u16> {
        let mut nodes = self.nodes.iter().map(|post| &post.node);
        let found = nodes.find(|node| node.link.is_congested());
        found.map(|node| node.node)
    }

    pub(crate) fn is_congested(&self, node: u16) -> bool {
        let mut nodes = self.nodes.iter().map(|post| &post.node);
        nodes.any(|found| found.node == node && found.link.is_congested())
    }

    /// Passes the posts of the turn to the links.
    pub(crate) fn end_turn(&mut self) {
        for post in &mut self.nodes {
            if !post.batch.is_empty() {
                post.node.link.post(std::mem::take(&mut post.batch));
            }
        }
    }

    fn find(&mut self, node: u16) -> Option<&mut NodePost> {
        self.nodes.iter_mut().find(|post| post.node.node == node)
    }
}

impl NodePost {
    fn batch(&mut self) -> &mut Vec<u8> {
        if self.batch.is_empty() {
            begin_batch(&mut self.batch);
        }
        &mut self.batch
    }
}
