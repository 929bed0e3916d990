//! The interface of a shard for the rest of the server, which hands over connections, answers requests, drains the shard, and reads its
//! statistics. Every call goes through the mailbox of the shard and returns at once.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use tidewire_core::address::Address;
use tidewire_core::effect::{AuthCompletion, AuthRequest, StoreCompletion, StoreRequest};
use tidewire_core::entry::Entry;
use tidewire_core::inspect::{CallView, Inspected, SubscribedName, Subscription};
use tidewire_core::rights::RightsChange;
use tidewire_core::time::Instant;
use tidewire_core::view::ClusterView;
use tidewire_net::connection::Key;
use tidewire_net::mailbox::Mailbox;
use tidewire_net::tls::TlsState;
use tidewire_wire::protocol::{Protocol, ResumeRefusal};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::carrier::CarriedMail;
use super::exchange::ExchangeMail;
use super::inspect::{ConnectionView, Inspection, TableSlice};
use super::node_link::{LinkedEntries, LinkedNode};
use super::peer::PeerDetails;
use super::stats::{Clock, ShardStats};
use super::tail::Tail;
use crate::connection_limiter::ConnectionPermit;
use crate::interest::nodes::NodeInterest;
use crate::session_token::SessionToken;

/// Entries of the table of connections that one inspection visits.
const CONNECTIONS_MAX: usize = 256;
/// Entries of the table of names that one inspection visits.
const NAMES_MAX: usize = 512;
/// Running calls that one inspection returns: more would make the turn long.
const CALLS_MAX: usize = 4_096;

/// A connection that was upgraded to a WebSocket and belongs to one shard after the upgrade.
#[derive(Debug)]
pub struct UpgradedSocket {
    /// Nonblocking. The 101 is flushed, and only this connection knows the socket.
    pub stream: TcpStream,
    /// Its TLS state with the handshake done, if it has one.
    pub tls: Option<Box<TlsState>>,
    /// Bytes that were read after the request. The shard handles them first, without waiting for readiness.
    pub unread: Bytes,
    /// The peer.
    pub peer: Arc<PeerDetails>,
    /// Its place among the connections of the node, dropped when the socket is closed.
    pub permit: ConnectionPermit,
    /// Whether permessage-deflate was agreed on.
    pub is_deflated: bool,
    /// The protocol of its path.
    pub protocol: Protocol,
    /// The session that its request names; by default it gets a new session that ends with it.
    pub attachment: Option<Box<Attachment>>,
}

/// The session of a connection, if its request names one. Peers can also request this with messages of their protocol
/// ([`tidewire_wire::protocol::SessionRequest`]).
#[derive(Debug)]
pub enum Attachment {
    /// A new session that outlives the connection, if its peer logs in. The token names it.
    Resumable(oneshot::Sender<SessionToken>),
    /// A session of the same protocol, for which the connection is the next transport. If it belongs to another shard, the connection moves
    /// there.
    Resume {
        /// Names the session.
        token: SessionToken,
        /// Messages that the peer has received since the session outlives its connections.
        received: u64,
        /// Gets the number of messages that the server has taken from the peer in the same time. If the session is not resumed, the
        /// connection has a new session. Without it the reply is a message to the peer.
        reply: Option<oneshot::Sender<Result<u64, ResumeRefusal>>>,
    },
    /// A session of exchanges, whose peer may continue on the connection. The session belongs to the shard that gets the connection.
    Switch {
        /// Names the session.
        token: SessionToken,
    },
}

/// Takes over connections: the shards of a node.
pub trait HandOver: Send + Sync + 'static {
    /// Passes each connection to one shard, which owns it afterwards. Must not block.
    fn hand_over(&self, connections: Vec<UpgradedSocket>);

    /// The shard for a new session of exchanges; `None` without shards.
    fn shard_for_exchange(&self) -> Option<ShardHandle>;

    /// The shard that takes requests for the session with this token. For a session of another node, that shard forwards them. `None` if
    /// the token names none.
    fn shard_for(&self, token: &SessionToken) -> Option<ShardHandle>;
}

/// The receiver of the shards' requests. Both functions return at once. The answers arrive through [`ShardHandle::complete`] and
/// [`ShardHandle::complete_auth`].
pub trait Requests: Send + Sync {
    /// Hands a request to the store.
    fn store(&self, shard: u16, request: StoreRequest);
    /// Passes a login to the auth chain. The session's address names the shard that waits for the answer. If the answer is known without
    /// waiting, it is returned instead of being sent.
    fn authenticate(&self, request: AuthRequest, peer: Arc<PeerDetails>) -> AuthReply;
}

/// Immediate reply of the auth chain to a login.
#[derive(Debug)]
pub enum AuthReply {
    /// The answer.
    Answered(AuthAnswer),
    /// The answer comes later.
    Waits(PendingLogin),
}

/// A login that waits for its answer. Dropping it cancels the login, which then leaves all queues.
#[derive(Debug, Default)]
pub struct PendingLogin(Option<AbortHandle>);

impl PendingLogin {
    /// Creates it for the task that decides the login.
    #[must_use]
    pub fn new(task: AbortHandle) -> Self {
        Self(Some(task))
    }
}

impl Drop for PendingLogin {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// The answer of the auth chain.
#[derive(Debug)]
pub struct AuthAnswer {
    /// For the engine.
    pub completion: AuthCompletion,
    /// Data that the webhook gives to clients that log in over HTTP, as JSON.
    pub token: Option<String>,
    /// Whether the chain did not decide the login, because it had refused too many logins before.
    pub is_held_off: bool,
}

impl From<AuthCompletion> for AuthAnswer {
    fn from(completion: AuthCompletion) -> Self {
        Self {
            completion,
            token: None,
            is_held_off: false,
        }
    }
}

/// An item of a shard's mailbox.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Entries that another shard posted in one turn.
    Entries {
        /// The shard that posted them.
        from: u16,
        /// Its batches to this shard are numbered from 1.
        batch: u64,
        /// When the oldest input was read that may have caused one of them.
        since: Instant,
        /// Approximate size of the messages behind the entries.
        bytes: usize,
        entries: Vec<Entry>,
    },
    /// Entries of another node.
    Linked(LinkedEntries),
    /// Another node is linked.
    NodeJoined(LinkedNode, Arc<NodeInterest>),
    /// A life of another node is lost.
    NodeLost {
        node: u16,
        birth: u64,
    },
    /// A view of the cluster holds.
    View(ClusterView),
    Upgraded(UpgradedSocket),
    Store(StoreCompletion),
    Auth(AuthAnswer),
    /// A change of rights.
    Rights {
        /// Counts up for the whole node or cluster.
        number: u64,
        change: RightsChange,
        /// Answered when the change is settled. Without it, a later change follows that has one.
        reply: Option<oneshot::Sender<()>>,
    },
    /// A message about a session without a socket.
    Carried(CarriedMail),
    /// A message about a session of exchanges.
    Exchange(ExchangeMail),
    /// An operator inspects the shard.
    Inspect(Inspection),
    /// An operator closes a connection. The reply is false if it has ended.
    Disconnect(Key, oneshot::Sender<bool>),
    /// An operator follows messages.
    Follow(Arc<Tail>),
    /// The shard refuses new work after this item.
    RefuseNew,
    /// Sockets are no longer read.
    StopReading,
    /// The shard answers as soon as it has no unfinished work.
    Quiet(oneshot::Sender<Quiet>),
    /// The shard closes all connections in sequence within a time, then answers.
    CloseAll {
        /// The first is closed at once, the last at the end of this time.
        spread: Duration,
        /// The shard cuts off a connection that has unsent bytes by then.
        patience: Duration,
        reply: oneshot::Sender<Closed>,
    },
    /// Ends the thread.
    Stop,
}

/// A shard had no unfinished work: no entries posted or to be handled, no dirty record, no unsent byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Mail handled so far. If it stays the same in two rounds over all shards, nothing is on its way between them.
    pub mail_count: u64,
}

/// How the connections of a shard ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Closed with everything sent, or by their peers.
    pub clean_count: u64,
    /// Cut off with unsent bytes while their peers were still there.
    pub cut_count: u64,
}

/// The part of a shard that other threads see.
pub(crate) struct Shared {
    /// The number of the node.
    pub(crate) node: u16,
    pub(crate) index: u16,
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) stats: ShardStats,
    pub(crate) clock: Clock,
    /// Bytes that wait in the channels of the sessions that tasks of the front carry.
    pub(crate) carried_bytes: Arc<AtomicUsize>,
}

/// A handle to a shard. Clones refer to the same shard.
#[derive(Clone)]
pub struct ShardHandle(pub(crate) Arc<Shared>);

impl ShardHandle {
    /// The shard's number within the node.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.0.index
    }

    /// The shard's address in the ids of its sessions.
    #[must_use]
    pub fn address(&self) -> Address {
        Address {
            node: self.0.node,
            shard: self.0.index,
        }
    }

    /// Hands over connections. The shard counts them as its own after this call.
    pub fn hand_over(&self, connections: Vec<UpgradedSocket>) {
        // The connections are counted before they are in the mailbox. The shard subtracts from the count when a connection ends; if that
        // happened first, the count would wrap around. After the push this thread must not touch the sockets: the shard may already have
        // read from them, or closed them. All are pushed at once, so the shard is woken once.
        self.0.stats.connections.fetch_add(
            connections.len() as u64,
            std::sync::atomic::Ordering::Relaxed,
        );
        let mail = connections.into_iter().map(Mail::Upgraded);
        self.0.mailbox.push_all(mail);
    }

    /// Passes the answer to a request of [`Requests::store`] to the shard.
    pub fn complete(&self, completion: StoreCompletion) {
        self.0.mailbox.push(Mail::Store(completion));
    }

    /// Passes the answer to a request of [`Requests::authenticate`] to the shard.
    pub fn complete_auth(&self, answer: impl Into<AuthAnswer>) {
        self.0.mailbox.push(Mail::Auth(answer.into()));
    }

    /// Changes rights. Numbers count up and reach every shard in order. The shard answers when four conditions hold.
    /// The rights of its sessions are applied. No message that was authorized before is on its way to the shard.
    /// All messages that waited for these sessions were sent. In a cluster, the same holds for all shards of the other nodes.
    pub fn change_rights(&self, number: u64, change: RightsChange) -> oneshot::Receiver<()> {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::Rights {
            number,
            change,
            reply: Some(reply),
        });
        answer
    }

    /// The same without an answer, for a change that a later one follows at once.
    pub fn precede_rights(&self, number: u64, change: RightsChange) {
        self.0.mailbox.push(Mail::Rights {
            number,
            change,
            reply: None,
        });
    }

    /// After this call the shard refuses new work with a retryable code; running calls may still be answered.
    pub fn refuse_new(&self) {
        self.0.mailbox.push(Mail::RefuseNew);
    }

    /// After this call the shard no longer reads sockets.
    pub fn stop_reading(&self) {
        self.0.mailbox.push(Mail::StopReading);
    }

    /// Waits until the shard has no unfinished work; `None` if it has ended. Callers first call
    /// [`ShardHandle::stop_reading`], since peers could keep the shard busy for ever.
    pub async fn quiet(&self) -> Option<Quiet> {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::Quiet(reply));
        answer.await.ok()
    }

    /// Closes all connections with 1001, spread evenly over `spread`, and waits until the last one is gone, for at most
    /// `patience` longer. The shard then cuts off and counts each connection that has unsent bytes.
    pub async fn close_all(&self, spread: Duration, patience: Duration) -> Closed {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::CloseAll {
            spread,
            patience,
            reply,
        });
        answer.await.unwrap_or_default()
    }

    /// The connections in some entries starting at `first`; `None` if the shard has ended.
    pub async fn inspect_connections(&self, first: usize) -> Option<Inspected<ConnectionView>> {
        let count = CONNECTIONS_MAX;
        self.inspect(|reply| Inspection::Connections {
            slice: TableSlice { first, count },
            reply,
        })
        .await
    }

    /// One connection; `None` if it or the shard has ended.
    pub async fn inspect_connection(&self, key: Key) -> Option<ConnectionView> {
        let first = usize::try_from(key.index).ok()?;
        let inspected = self.inspect(|reply| Inspection::Connections {
            slice: TableSlice { first, count: 1 },
            reply,
        });
        let found = inspected.await?.found;
        found.into_iter().find(|view| view.key == key)
    }

    /// The subscribed names in some entries starting at `first`; `None` if the shard has ended.
    pub async fn inspect_names(&self, first: usize) -> Option<Inspected<SubscribedName>> {
        let count = NAMES_MAX;
        self.inspect(|reply| Inspection::Names {
            slice: TableSlice { first, count },
            reply,
        })
        .await
    }

    /// `count` subscriptions of a connection's session, starting at number `first`, see
    /// [`tidewire_core::engine::Shard::inspect_subscriptions`]. The request is in the mailbox when this returns, so a caller can send
    /// several before it waits.
    pub fn inspect_subscriptions(
        &self,
        key: Key,
        first: usize,
        count: usize,
    ) -> impl Future<Output = Option<Inspected<Subscription>>> + use<> {
        let slice = TableSlice { first, count };
        let answer = self.ask(|reply| Inspection::Subscriptions { key, slice, reply });
        async { answer.await.ok().flatten() }
    }

    /// Running calls of the rpcs that the shard owns, and whether these are all; `None` if the shard has ended.
    pub async fn inspect_calls(&self) -> Option<(Vec<CallView>, bool)> {
        let count_max = CALLS_MAX + 1;
        let mut calls = self
            .inspect(|reply| Inspection::Calls { count_max, reply })
            .await?;
        let is_complete = calls.len() < count_max;
        calls.truncate(CALLS_MAX);
        Some((calls, is_complete))
    }

    /// Closes a connection and ends its session. Its client may connect again at once. False if the connection or the shard has ended.
    pub async fn disconnect(&self, key: Key) -> bool {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::Disconnect(key, reply));
        answer.await.unwrap_or_default()
    }

    /// Adds a tail. It ends when no operator takes its lines.
    pub fn follow(&self, tail: Arc<Tail>) {
        self.0.mailbox.push(Mail::Follow(tail));
    }

    async fn inspect<T>(
        &self,
        inspection: impl FnOnce(oneshot::Sender<T>) -> Inspection,
    ) -> Option<T> {
        self.ask(inspection).await.ok()
    }

    fn ask<T>(
        &self,
        inspection: impl FnOnce(oneshot::Sender<T>) -> Inspection,
    ) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::Inspect(inspection(reply)));
        answer
    }

    /// The shard's statistics.
    #[must_use]
    pub fn stats(&self) -> &ShardStats {
        &self.0.stats
    }

    /// How long ago the shard finished a turn. It finishes one at least every 500 ms.
    #[must_use]
    pub fn since_last_turn(&self) -> Duration {
        let end = self
            .0
            .stats
            .last_turn_end
            .load(std::sync::atomic::Ordering::Relaxed);
        self.0.clock.since(end)
    }

    pub(crate) fn stop(&self) {
        self.0.mailbox.push(Mail::Stop);
    }
}

impl std::fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardHandle")
            .field("index", &self.0.index)
            .finish_non_exhaustive()
    }
}
