//! A member of a cluster: joins the registry, the membership and the links to the other members, and passes what arrives to the shards.
//!
//! It runs on its own thread, so that no work of the front delays its heartbeats. The membership decides who belongs to the view, and the
//! links decide which peer is suspect; nothing is decided here but the order in which the shards learn of it: first that a node is linked,
//! then its entries, then that it is lost.

mod peer;
mod registry;
mod route;
mod task;

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc as channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tidewire_core::slot::ClusterKey;
use tidewire_core::store::{MemberId, Registry, StoredView, View};
use tidewire_core::view::MemberState;
use tidewire_link::link::Stats;
use tidewire_wire::entry::{DecodeLimits, Post};
use tokio::sync::{mpsc, watch};

use crate::carrier;
use task::{Event, Task};

pub use peer::PeerLink;

/// Kept until all entries of a delivery are handled.
pub type Token = Arc<dyn Any + Send + Sync>;

/// A member whose link is open.
#[derive(Clone, Debug)]
pub struct LinkedMember {
    /// The process.
    pub id: MemberId,
    /// The number of its shards.
    pub shard_count: u16,
    /// The highest version of the protocol between nodes that both know.
    pub version: u32,
    /// The link to it.
    pub link: PeerLink,
}

/// The shards of this node. The calls come in the order in which the shards must see them, and never block.
pub trait Shards: Send + Sync {
    /// The link to a member is open. Its entries follow.
    fn joined(&self, member: &LinkedMember);

    /// The link to a member has ended. None of its entries follows.
    fn lost(&self, id: MemberId);

    /// Entries of a member. `token` is dropped when they are handled. Before an entry with a change of rights, all shards get the change and
    /// those before it.
    fn deliver(&self, id: MemberId, posts: Vec<Post>, token: Token);

    /// A view holds. The first one comes before anything else. The links to its members may open later.
    fn adopt(&self, view: &StoredView);

    /// The newest view that a shard of any member has announced to the shards of this one.
    fn heard_view(&self) -> View;

    /// Sessions that waited for a congested link may continue.
    fn wake(&self);
}

/// The settings of a member.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The process.
    pub id: MemberId,
    /// The number of its shards.
    pub shard_count: u16,
    /// The key of the slot hash if the store has none yet.
    pub key: ClusterKey,
    /// How often the node was evicted in a row before.
    pub evictions: u32,
    /// Where it listens for links; the port may be 0.
    pub listen: SocketAddr,
    /// The host or address, with or without a port, at which the others reach it.
    pub advertise: String,
    /// The broker that carries the links; `None` for direct connections. All members have the same one.
    pub link: Option<carrier::Settings>,
    /// Limits of the entries of other members.
    pub entries: DecodeLimits,
}

/// The part of the node in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It does not own slots yet.
    Joining,
    /// It owns slots, and its shards know it.
    Active,
    /// It hands its slots over.
    Leaving,
    /// It has left.
    Left,
    /// It was evicted, or could not reach the others. The process must start again after the pause.
    Evicted {
        /// The pause.
        again_after: Duration,
        /// The value of [`Settings::evictions`] then.
        evictions: u32,
    },
    /// It can't be a member. The text is for the operator.
    Refused(String),
}

/// The cluster as this member sees it, for operators.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The process.
    pub own: MemberId,
    /// The view that the member knows.
    pub view: View,
    /// Whether the member may decide now.
    pub decides: bool,
    /// Whether the registry does not answer, so that the members can't change.
    pub is_frozen: bool,
    /// Members that were evicted while this one was a member.
    pub evicted_count: u64,
    /// The members of the view.
    pub members: Vec<MemberSnapshot>,
}

/// A member of the view, as this one sees it.
#[derive(Clone, Debug)]
pub struct MemberSnapshot {
    /// The process.
    pub id: MemberId,
    /// Its part.
    pub state: MemberState,
    /// Where it listens for links.
    pub address: String,
    /// The number of slots that it owns.
    pub slot_count: usize,
    /// Whether the link to it is open. Its own is.
    pub is_linked: bool,
    /// Whether its link suspects it.
    pub is_suspect: bool,
    /// The counts of its link.
    pub link: Stats,
}

/// A handle to the running member.
#[derive(Clone, Debug)]
pub struct Member {
    events: mpsc::UnboundedSender<Event>,
    stage: watch::Receiver<Stage>,
    snapshot: Arc<Mutex<Snapshot>>,
}

/// The thread of a member.
#[derive(Debug)]
pub struct MemberThread {
    member: Member,
    thread: JoinHandle<()>,
}

impl MemberThread {
    /// Starts a member, and returns it with the first view that has it.
    ///
    /// # Errors
    /// The address for links is not available, or the registry refuses the node for good.
    pub fn start(
        settings: Settings,
        registry: Box<dyn Registry>,
        shards: Arc<dyn Shards>,
    ) -> io::Result<(Self, StoredView)> {
        let (events, taken) = mpsc::unbounded_channel();
        let (stages, stage) = watch::channel(Stage::Joining);
        let snapshot = Arc::new(Mutex::new(Snapshot {
            own: settings.id,
            view: View(0),
            decides: false,
            is_frozen: false,
            evicted_count: 0,
            members: Vec::new(),
        }));
        let (first, first_view) = channel::channel();
        let (own, kept) = (events.clone(), Arc::clone(&snapshot));
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(first.send(Err(error))),
            };
            runtime.block_on(async move {
                match Task::new(settings, registry, shards, own).await {
                    Ok(task) => task.run(taken, first, stages, kept).await,
                    Err(error) => drop(first.send(Err(error))),
                }
            });
        };
        let thread = Builder::new().name("cluster".to_owned()).spawn(run)?;
        let ended = || io::Error::other("the thread of the cluster has ended");
        let view = first_view.recv().map_err(|_| ended())??;
        let member = Member {
            events,
            stage,
            snapshot,
        };
        Ok((Self { member, thread }, view))
    }

    /// A handle to the member.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Ends the thread and all links. Peers notice the end of the links.
    pub fn stop(self) {
        self.member.send(Event::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the cluster has panicked");
        }
    }
}

impl Member {
    /// The stage, which changes.
    #[must_use]
    pub fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.clone()
    }

    /// Begins to leave: the slots are handed over.
    pub fn leave(&self) {
        self.send(Event::Leave);
    }

    /// All slots that this view gives to other owners are handed over, and the node's clients have gone: it leaves the view.
    pub fn settled(&self, view: View) {
        self.send(Event::Settled(view));
    }

    /// Evicts another member.
    pub fn evict(&self, id: MemberId) {
        self.send(Event::Evict(id));
    }

    /// The cluster as this member sees it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.snapshot.lock();
        snapshot.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send(&self, event: Event) {
        // After its end the member has left the view, or its process was replaced.
        let _ = self.events.send(event);
    }
}
