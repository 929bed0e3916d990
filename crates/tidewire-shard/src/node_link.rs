//! The links to other nodes, as the shards of this node post to them. A shard encodes its posts for a node once per turn into one batch and
//! passes it to the link.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tidewire_core::address::Address;
use tidewire_core::effect::InterestChange;
use tidewire_core::entry::{Entry, InterestEntry};
use tidewire_core::publication::InterestTopic;
use tidewire_wire::entry::{INTERESTED, Post, begin_batch, encode};

use crate::interest::nodes::{Announced, NodeInterest, OwnInterest};

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
    /// The highest version of the protocol between nodes that both know.
    pub version: u32,
    /// The link to it.
    pub link: Arc<dyn NodeLink>,
}

/// Nodes that speak this version announce their interest to each other. Others get all publications.
const INTEREST_VERSION: u32 = 4;

/// Nodes that speak this version forward requests of exchanges to each other.
const EXCHANGE_VERSION: u32 = 7;

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
pub struct NodePosts {
    nodes: Vec<NodePost>,
    /// A post that several nodes get, once one of them wants it.
    shared: Vec<u8>,
}

#[derive(Debug)]
struct NodePost {
    node: LinkedNode,
    interest: Arc<NodeInterest>,
    /// The announcements of this shard to it. Absent for a node that does not speak the version.
    announced: Option<Announced>,
    /// The posts of this turn, or nothing.
    batch: Vec<u8>,
}

impl NodePosts {
    /// A node is linked. The shards of this node share its interest.
    pub fn joined(&mut self, node: LinkedNode, interest: Arc<NodeInterest>) {
        self.lost(node.node);
        let announces = node.version >= INTEREST_VERSION;
        self.nodes.push(NodePost {
            node,
            interest,
            announced: announces.then(Announced::nothing),
            batch: Vec::new(),
        });
    }

    /// A node is lost. Posts of this turn for it are not sent.
    pub fn lost(&mut self, node: u16) {
        self.nodes.retain(|post| post.node.node != node);
    }

    /// The birth of a node, if it is linked.
    #[must_use]
    pub fn birth(&self, node: u16) -> Option<u64> {
        let found = self.nodes.iter().find(|post| post.node.node == node);
        found.map(|post| post.node.birth)
    }

    /// Whether a node is linked to which requests of exchanges can be forwarded.
    #[must_use]
    pub fn takes_exchanges(&self, node: u16) -> bool {
        let mut nodes = self.nodes.iter().map(|post| &post.node);
        nodes.any(|found| found.node == node && found.version >= EXCHANGE_VERSION)
    }

    /// Adds an entry for a shard. Without a link to its node the entry is dropped: the engine has answered its requests.
    pub fn post(&mut self, from: u16, to: Address, entry: Entry) {
        let shard = to.shard;
        if let Some(post) = self.find(to.node) {
            encode(&Post { shard, entry, from }, post.batch());
        }
    }

    /// Adds an entry about a name for the shards of all nodes that may have interest in it.
    pub fn post_to_interested(
        &mut self,
        from: u16,
        topic: InterestTopic,
        name: &str,
        entry: impl Fn() -> Entry,
    ) {
        self.shared.clear();
        let wanting = self
            .nodes
            .iter_mut()
            .filter(|post| post.interest.wants(topic, name));
        for post in wanting {
            if self.shared.is_empty() {
                let (shard, entry) = (INTERESTED, entry());
                encode(&Post { shard, entry, from }, &mut self.shared);
            }
            post.batch().extend_from_slice(&self.shared);
        }
    }

    /// Announces a change of the interest of a shard.
    pub fn announce(&mut self, from: u16, number: u64, change: &InterestChange) {
        for post in &mut self.nodes {
            let announced = post.announced.as_mut();
            if let Some(entry) = announced.and_then(|it| it.change(number, change)) {
                post.announce(from, entry);
            }
        }
    }

    /// Announces a piece of the interest of a shard to nodes that were linked.
    pub fn announce_piece(&mut self, from: u16, own: &OwnInterest) {
        for post in &mut self.nodes {
            let announced = post.announced.as_mut();
            let piece = announced.map_or_else(Vec::new, |it| it.next_piece(own));
            for entry in piece {
                post.announce(from, entry);
            }
        }
    }

    /// Whether a node does not know all interest of this shard yet.
    #[must_use]
    pub fn has_more_to_announce(&self) -> bool {
        let mut announced = self.nodes.iter().filter_map(|post| post.announced.as_ref());
        announced.any(Announced::has_more)
    }

    /// Takes the interest of a shard of another node, or its answer. Returns the change to confirm.
    pub fn take_interest(&mut self, from: Address, entry: InterestEntry) -> Option<u64> {
        let post = self.find(from.node)?;
        match entry {
            InterestEntry::Changed {
                topic,
                name,
                wanted,
                number,
            } => {
                let change = InterestChange {
                    topic,
                    name,
                    wanted,
                };
                post.interest.change(from.shard, change);
                return Some(number);
            }
            InterestEntry::Complete => post.interest.complete(),
            InterestEntry::Visible { number } => {
                if let Some(announced) = &mut post.announced {
                    announced.confirm(number);
                }
            }
        }
        None
    }

    /// The last change of this shard that is visible at all nodes; `None` if all are.
    #[must_use]
    pub fn visible(&self) -> Option<u64> {
        let announced = self.nodes.iter().filter_map(|post| post.announced.as_ref());
        announced.filter_map(Announced::visible).min()
    }

    /// The shards of all nodes that may have a pattern which an event matches.
    pub fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        for post in &self.nodes {
            let node = post.node.node;
            let address = |shard| Address { node, shard };
            post.interest
                .visit_pattern_shards(event, |shard| visit(address(shard)));
        }
    }

    /// Whether sessions that post to some node must wait.
    pub(crate) fn has_congested(&self) -> bool {
        self.nodes.iter().any(|post| post.node.link.is_congested())
    }

    /// A congested node that may have interest in an event.
    pub(crate) fn congested(&self, event: &str) -> Option<u16> {
        let mut congested = self
            .nodes
            .iter()
            .filter(|post| post.node.link.is_congested());
        let found = congested.find(|post| post.interest.wants(InterestTopic::Event, event));
        found.map(|post| post.node.node)
    }

    pub(crate) fn is_congested(&self, node: u16) -> bool {
        let mut nodes = self.nodes.iter().map(|post| &post.node);
        nodes.any(|found| found.node == node && found.link.is_congested())
    }

    /// Passes the posts of the turn to the links.
    pub fn end_turn(&mut self) {
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
    /// Adds an entry for one of the node's shards, always the same one, so that it takes the changes in their order.
    fn announce(&mut self, from: u16, entry: InterestEntry) {
        let shard = from % self.node.shard_count;
        let entry = Entry::Interest(entry);
        encode(&Post { shard, entry, from }, self.batch());
    }

    fn batch(&mut self) -> &mut Vec<u8> {
        if self.batch.is_empty() {
            begin_batch(&mut self.batch);
        }
        &mut self.batch
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tidewire_core::publication::OwnedPublication;
    use tidewire_wire::entry::{DecodeLimits, Decoder};

    use super::*;

    /// Keeps the batches.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<u8>>);

    impl NodeLink for Kept {
        fn post(&self, batch: Vec<u8>) {
            self.0.lock().expect("not poisoned").extend(batch);
        }

        fn is_congested(&self) -> bool {
            false
        }
    }

    impl Kept {
        /// The posts since the last call: their shards, and whether they are publications.
        fn take(&self) -> Vec<(u16, bool)> {
            let bytes = std::mem::take(&mut *self.0.lock().expect("not poisoned"));
            let mut decoder = Decoder::new(DecodeLimits {
                post_bytes_max: 1_000,
                pattern_bytes_max: 100,
            });
            decoder.push(&bytes);
            let mut posts = Vec::new();
            while let Some(post) = decoder.decode(&|_| None).expect("posts") {
                posts.push((post.shard, matches!(post.entry, Entry::Publication(_))));
            }
            posts
        }
    }

    const EVENTS: InterestTopic = InterestTopic::Event;

    /// Two linked nodes of one shard, the second one with this version of the protocol.
    fn linked(version: u32) -> (NodePosts, [Arc<Kept>; 2]) {
        let mut nodes = NodePosts::default();
        let links = [(1, INTEREST_VERSION), (2, version)].map(|(node, version)| {
            let link = Arc::<Kept>::default();
            let linked = LinkedNode {
                node,
                birth: 1,
                shard_count: 1,
                version,
                link: Arc::clone(&link) as Arc<dyn NodeLink>,
            };
            nodes.joined(linked, Arc::new(NodeInterest::new(1)));
            link
        });
        (nodes, links)
    }

    fn publish(nodes: &mut NodePosts, name: &str) {
        nodes.post_to_interested(0, EVENTS, name, || {
            Entry::Publication(OwnedPublication {
                name: name.into(),
                data: None,
                rare: None,
            })
        });
        nodes.end_turn();
    }

    fn changed(name: &str, wanted: bool, number: u64) -> InterestEntry {
        InterestEntry::Changed {
            topic: EVENTS,
            name: name.into(),
            wanted,
            number,
        }
    }

    #[test]
    fn a_publication_goes_only_to_nodes_with_interest() {
        let (mut nodes, links) = linked(INTEREST_VERSION);
        let address = |node| Address { node, shard: 0 };
        publish(&mut nodes, "news");
        assert_eq!(links.each_ref().map(|link| link.take().len()), [1, 1]);
        for node in [1, 2] {
            nodes.take_interest(address(node), InterestEntry::Complete);
        }
        publish(&mut nodes, "news");
        assert_eq!(links.each_ref().map(|link| link.take().len()), [0, 0]);
        let number = nodes.take_interest(address(2), changed("news", true, 7));
        assert_eq!(number, Some(7));
        publish(&mut nodes, "news");
        publish(&mut nodes, "other");
        let posts = links.each_ref().map(|link| link.take());
        assert_eq!(posts, [vec![], vec![(INTERESTED, true)]]);
        nodes.take_interest(address(2), changed("news", false, 8));
        publish(&mut nodes, "news");
        assert!(links[1].take().is_empty());
    }

    #[test]
    fn a_node_of_an_earlier_version_gets_all_publications_and_no_announcement() {
        let (mut nodes, [own, earlier]) = linked(INTEREST_VERSION - 1);
        let mut interest = OwnInterest::default();
        let change = InterestChange {
            topic: EVENTS,
            name: "news".into(),
            wanted: true,
        };
        assert!(nodes.has_more_to_announce());
        nodes.announce_piece(0, &interest);
        interest.change(1, &change);
        nodes.announce(0, 1, &change);
        nodes.end_turn();
        assert_eq!(
            own.take(),
            [(0, false), (0, false)],
            "`Complete` and the change"
        );
        assert!(!nodes.has_more_to_announce() && earlier.take().is_empty());
        assert_eq!(nodes.visible(), Some(0));
        let visible = InterestEntry::Visible { number: 1 };
        assert_eq!(
            nodes.take_interest(Address { node: 1, shard: 0 }, visible),
            None
        );
        assert_eq!(nodes.visible(), None);
        publish(&mut nodes, "news");
        assert_eq!(earlier.take(), [(INTERESTED, true)]);
    }

    #[test]
    fn the_loss_of_a_node_ends_the_wait_for_its_confirmation() {
        let (mut nodes, _links) = linked(INTEREST_VERSION);
        nodes.announce_piece(0, &OwnInterest::default());
        let change = InterestChange {
            topic: EVENTS,
            name: "news".into(),
            wanted: true,
        };
        nodes.announce(0, 1, &change);
        let visible = InterestEntry::Visible { number: 1 };
        nodes.take_interest(Address { node: 2, shard: 0 }, visible);
        assert_eq!(nodes.visible(), Some(0));
        nodes.lost(1);
        assert_eq!(nodes.visible(), None);
    }
}
