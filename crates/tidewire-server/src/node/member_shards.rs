//! The shards of a node, as its member of the cluster reaches them.
//!
//! Entries of other nodes wait here until the node has the changes of rights that they name. The shards get a change first, so they decide
//! everything behind its marker by rights that are at least as new.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_cluster::member::{LinkedMember, PeerLink, Shards, Token};
use tidewire_core::entry::Entry;
use tidewire_core::route::StoreId;
use tidewire_core::store::{MemberId, StoredView};
use tidewire_core::view::{ClusterView, Generation, View};
use tidewire_http::api::RecordEpochs;
use tidewire_http::rights::Rights;
use tidewire_shard::node_link::{LinkedNode, NodeLink};
use tidewire_shard::node_shards::NodeShards;
use tidewire_wire::entry::Post;
use tokio::runtime::Handle;

/// A delivery of another node.
type Delivery = (Vec<Post>, Token);

/// See the comment at the top of this file.
pub(super) struct MemberShards {
    common: Arc<CommonParts>,
    epochs: Arc<RecordEpochs>,
    /// The store's generation in the newest view; `None` before the first one.
    generation: Mutex<Option<Generation>>,
    runtime: Handle,
}

struct CommonParts {
    shards: NodeShards,
    rights: Arc<Rights>,
    /// The deliveries of the members whose first one names a change that this node lacks. They keep their order, and the link of such a
    /// member sends nothing beyond its window. If the change can't be read, the members evict one of the two nodes.
    waiting: Mutex<BTreeMap<MemberId, VecDeque<Delivery>>>,
}

impl MemberShards {
    pub(super) fn new(
        shards: NodeShards,
        epochs: Arc<RecordEpochs>,
        rights: Arc<Rights>,
        runtime: Handle,
    ) -> Self {
        let waiting = Mutex::default();
        Self {
            common: Arc::new(CommonParts {
                shards,
                rights,
                waiting,
            }),
            epochs,
            generation: Mutex::default(),
            runtime,
        }
    }

    /// If the store has another generation than in the view before, it may lack commits: warns, and restores the changes of rights. The
    /// shards restore records.
    fn note_generation(&self, view: &StoredView) {
        let known = self.generation.lock().replace(view.generation.clone());
        if let Some(known) = known
            && known != view.generation
        {
            tracing::warn!(
                before = known.0,
                now = view.generation.0,
                "another server has taken over the store, or it has restarted, and it may lack the last commits; the node compares the \
                 records in its memory with it, and writes lost ones again (tidewire_records_written_again_total)"
            );
            self.common.rights.store_taken_over();
        }
    }
}

impl Shards for MemberShards {
    fn joined(&self, member: &LinkedMember) {
        self.common.shards.joined(&LinkedNode {
            node: member.id.node,
            birth: member.id.birth,
            shard_count: member.shard_count,
            version: member.version,
            link: Arc::new(ShardLink(member.link.clone())),
        });
    }

    fn lost(&self, id: MemberId) {
        // Deliveries that wait are lost with the node, like entries that were still on their way.
        let mut waiting = self.common.waiting.lock();
        waiting.remove(&id);
        self.common.shards.lost(id.node, id.birth);
    }

    fn deliver(&self, id: MemberId, posts: Vec<Post>, token: Token) {
        let mut waiting = self.common.waiting.lock();
        if let Some(deliveries) = waiting.get_mut(&id) {
            return deliveries.push_back((posts, token));
        }
        let Err(number) = self.common.hear(&posts) else {
            return self.common.shards.deliver(id.node, id.birth, posts, &token);
        };
        waiting.insert(id, VecDeque::from([(posts, token)]));
        let common = Arc::clone(&self.common);
        self.runtime.spawn(async move {
            let mut number = number;
            loop {
                common.rights.read_until(number).await;
                match common.deliver_waiting(id) {
                    Ok(()) => return,
                    Err(next) => number = next,
                }
            }
        });
    }

    fn adopt(&self, view: &StoredView) {
        self.epochs.adopt(StoreId::DEFAULT, view);
        self.note_generation(view);
        // A view without an owner can't be used; the node that is left changes it.
        if let Some(adopted) = ClusterView::of(view) {
            self.common.shards.adopt(&adopted);
        }
        self.common.rights.view_changed(view.level);
    }

    fn heard_view(&self) -> View {
        self.common.shards.heard_view()
    }

    fn wake(&self) {
        self.common.shards.wake();
    }
}

impl CommonParts {
    /// Passes the changes of rights in a delivery to the shards.
    ///
    /// # Errors
    /// The number of a change that the node has to read first.
    fn hear(&self, posts: &[Post]) -> Result<(), u64> {
        for post in posts {
            if let Entry::Rights(marker) = &post.entry
                && !self.rights.hear(marker.number, &marker.change)
            {
                return Err(marker.number);
            }
        }
        Ok(())
    }

    /// Passes the deliveries of a member that wait to the shards.
    ///
    /// # Errors
    /// As [`CommonParts::hear`].
    fn deliver_waiting(&self, id: MemberId) -> Result<(), u64> {
        let mut waiting = self.waiting.lock();
        while let Some(deliveries) = waiting.get_mut(&id) {
            let Some((posts, token)) = deliveries.pop_front() else {
                waiting.remove(&id);
                break;
            };
            if let Err(number) = self.hear(&posts) {
                deliveries.push_front((posts, token));
                return Err(number);
            }
            self.shards.deliver(id.node, id.birth, posts, &token);
        }
        Ok(())
    }
}

/// The link to a member, as the shards post to it.
#[derive(Debug)]
struct ShardLink(PeerLink);

impl NodeLink for ShardLink {
    fn post(&self, batch: Vec<u8>) {
        self.0.post(batch);
    }

    fn is_congested(&self) -> bool {
        self.0.is_congested()
    }
}
