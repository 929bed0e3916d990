//! The shards of a node: their threads, and the interface to them. The engine makes the decisions of a shard.

pub mod backoff;
mod batch;
mod caller_rate;
pub mod carried_session;
pub mod carrier;
mod conductor;
mod connection;
pub mod connection_limiter;
mod credit;
mod deflation;
mod drain;
pub mod exchange;
pub mod exchange_request;
pub mod handle;
pub mod inspect;
pub mod interest;
mod message_count;
pub mod node_link;
pub mod node_shards;
pub mod outlet;
pub mod peer;
pub mod peer_log;
mod recent_principals;
pub mod reply;
pub mod request;
mod retained;
pub mod session_token;
pub mod share;
mod sink;
pub mod stats;
pub mod tail;
pub mod tracer;
mod traces;

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tidewire_config::plan::Plan;
use tidewire_config::section::{Config, SendsKind};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::permission::Permission;
use tidewire_core::settings::Settings;
use tidewire_core::slot::{ClusterKey, SlotTable};
use tidewire_core::store::Opened;
use tidewire_net::event_loop::{EventLoop, OutboxMarks};
use tidewire_net::mailbox::Mailbox;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::send_batch::{Path, Sender};
use tidewire_wire::protocol::Terms;

use crate::backoff::{BackoffSettings, ReconnectBackoff};
use crate::interest::InterestMap;
use crate::tracer::Tracer;
use caller_rate::CallerRates;
use conductor::Conductor;
use connection::State;
use credit::Confirmations;
use handle::{Requests, ShardHandle, Shared};
use node_shards::NodeShards;
use session_token::TokenKey;
use stats::{Clock, ShardStats};

/// A shard reports the receivers of its messages as congested when its bytes in flight exceed this many times the limit of one
/// connection.
const CONNECTIONS_IN_FLIGHT: usize = 16;

/// Limits of the memory that a shard uses for its connections, apart from the engine's limits.
#[derive(Clone, Copy, Debug)]
pub struct ShardLimits {
    /// Bytes of messages that one connection may have posted to other shards and that these have not handled yet. Beyond the limit the
    /// connection is not read.
    pub inflight_bytes_max: usize,
    /// The same for all connections of one shard together. Beyond the limit, messages wait that go to the shards with most of these
    /// bytes.
    pub shard_inflight_bytes_max: usize,
    /// Bytes that the engine touches before the shard polls its sockets and its mailbox again.
    pub turn_work_max: usize,
    /// Bytes of one connection that wait to be sent: the marks beyond which it lags and is ended, and below which it has drained.
    pub outbox: OutboxMarks,
    /// Bytes of messages that are kept for one session that outlives its connection. Beyond the limit the oldest ones are dropped, or the
    /// session ends if it is detached and they were not sent.
    pub retained_bytes_max: usize,
    /// Bytes that the node may use for outboxes, incomplete messages, turn logs, mailboxes and the cache of records. Beyond the limit the
    /// cache shrinks, and then the connections that use most are ended.
    pub memory_bytes_max: usize,
    /// Bytes of a frame before the login of its connection. A larger one closes it with 1009.
    pub login_bytes_max: usize,
    /// Sessions of one connection, if its protocol has several. The server refuses further ones.
    pub connection_sessions_max: usize,
    /// Messages below this size are sent uncompressed to recipients that agreed on compression.
    pub deflate_bytes_min: usize,
    /// Bytes that a shard compresses in one turn. Further messages are sent uncompressed.
    pub deflate_turn_bytes_max: usize,
}

impl ShardLimits {
    /// Takes the limits from the configuration.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let Config {
            limits,
            compression,
            auth,
            ..
        } = &plan.config;
        let inflight_bytes_max = limits.inflight_bytes_max.as_usize();
        Self {
            inflight_bytes_max,
            shard_inflight_bytes_max: inflight_bytes_max.saturating_mul(CONNECTIONS_IN_FLIGHT),
            turn_work_max: limits.turn_work_max.as_usize(),
            outbox: limits.outbox_marks(),
            retained_bytes_max: limits.retained_bytes_max.as_usize(),
            memory_bytes_max: usize::try_from(plan.memory_bytes_max).unwrap_or(usize::MAX),
            login_bytes_max: auth.login_bytes_max.as_usize(),
            connection_sessions_max: limits.connection_sessions_max,
            deflate_bytes_min: compression.bytes_min.as_usize(),
            deflate_turn_bytes_max: compression.turn_bytes_max.as_usize(),
        }
    }
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            inflight_bytes_max: 4 << 20,
            shard_inflight_bytes_max: 64 << 20,
            turn_work_max: 1 << 20,
            outbox: OutboxMarks {
                bytes_max: 1 << 20,
                lagging_bytes: 256 << 10,
                drained_bytes: 64 << 10,
            },
            retained_bytes_max: 256 << 10,
            memory_bytes_max: 1 << 30,
            login_bytes_max: 16 << 10,
            connection_sessions_max: 16,
            deflate_bytes_min: 512,
            deflate_turn_bytes_max: 1 << 20,
        }
    }
}

/// The parameters of all shards of a node.
pub struct NodeConfig {
    /// Durations, switches and limits of the engine.
    pub settings: Settings,
    /// Limits of the memory for connections.
    pub limits: ShardLimits,
    /// Whether logins prove user names.
    pub names_are_proved: bool,
    /// The reconnect back-off.
    pub backoff: BackoffSettings,
    /// The namespaces in which peers may open further sessions on a connection, if their protocol has several. A `*` at the end of a name
    /// matches any text.
    pub namespaces: Arc<[String]>,
    /// Decides what principals may do.
    pub permission: Arc<dyn Permission>,
    /// The results of opening the stores, by number.
    pub opened: Vec<Opened>,
    /// The receiver of the shards' requests.
    pub requests: Arc<dyn Requests>,
    /// The recorder of publications, if a collector is configured.
    pub tracer: Option<Arc<Tracer>>,
    /// Seed of tables and random choices. Clients must not be able to guess it.
    pub seed: u64,
    /// Key of the slot hash. Clients must not be able to guess it.
    pub cluster_key: ClusterKey,
    /// The owners of names in a cluster. `None` if the node is alone.
    pub slots: Option<Arc<SlotTable>>,
}

/// Shards that accept mail but do not run yet, so that the receiver of their requests can be created first.
pub struct PreparedShards {
    handles: Vec<ShardHandle>,
    loops: Vec<EventLoop<State>>,
    budget: MemoryBudget,
    interest: Arc<InterestMap>,
}

impl PreparedShards {
    /// Creates the event loops and mailboxes of `count` shards, and tests how their sends can reach the kernel.
    ///
    /// # Errors
    /// The kernel has no descriptors left for them.
    pub fn new(count: u16, limits: &ShardLimits, sends: SendsKind) -> io::Result<Self> {
        Self::of_node(0, count, limits, sends)
    }

    /// The same for a node with this number in its cluster.
    ///
    /// # Errors
    /// As [`PreparedShards::new`].
    pub fn of_node(
        node: u16,
        count: u16,
        limits: &ShardLimits,
        sends: SendsKind,
    ) -> io::Result<Self> {
        let budget = MemoryBudget::new(limits.memory_bytes_max);
        let clock = Clock::start();
        let mut prepared = Self {
            handles: Vec::new(),
            loops: Vec::new(),
            budget: budget.clone(),
            interest: Arc::new(InterestMap::new(count)),
        };
        for index in 0..count {
            let sender = match sends {
                SendsKind::Auto => Sender::detect(),
                SendsKind::Plain => Sender::plain(),
            };
            let stats = ShardStats::default();
            stats.set_send_path(sender.path());
            let (event_loop, waker) = EventLoop::new(&budget, sender)?;
            prepared.loops.push(event_loop);
            prepared.handles.push(ShardHandle(Arc::new(Shared {
                node,
                index,
                mailbox: Mailbox::new(waker),
                stats,
                clock,
                carried_bytes: Arc::default(),
            })));
        }
        Ok(prepared)
    }

    /// The memory budget of all shards together.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// The handles of the shards, by number.
    #[must_use]
    pub fn handles(&self) -> &[ShardHandle] {
        &self.handles
    }

    /// Passes what arrives from other nodes to the shards.
    #[must_use]
    pub fn node_shards(&self) -> NodeShards {
        NodeShards {
            handles: self.handles.as_slice().into(),
            interest: Arc::clone(&self.interest),
        }
    }

    /// How the sends of each shard reach the kernel, by number.
    #[must_use]
    pub fn send_paths(&self) -> Vec<Path> {
        self.loops.iter().map(EventLoop::send_path).collect()
    }

    /// Starts one thread for each shard.
    ///
    /// # Errors
    /// The system can't start another thread.
    pub fn start(self, config: NodeConfig) -> io::Result<RunningShards> {
        let handles: Arc<[ShardHandle]> = self.handles.into();
        let interest = self.interest;
        let confirmations = Arc::new(Confirmations::new(handles.len()));
        let backoff = Arc::new(ReconnectBackoff::new(config.backoff));
        let callers = CallerRates::new(&config.settings.rates, config.names_are_proved);
        let callers = Arc::new(callers);
        let is_member = config.slots.is_some();
        let slots = config.slots.unwrap_or_else(|| {
            let count = handles.len() as u16;
            Arc::new(SlotTable::of_one_node(&config.cluster_key, count))
        });
        let mut running = RunningShards {
            handles: handles.clone(),
            threads: Vec::new(),
        };
        for (handle, event_loop) in handles.iter().zip(self.loops) {
            let address = handle.address();
            let engine = Shard::new(ShardConfig {
                address,
                slots: Arc::clone(&slots),
                settings: Settings {
                    liveness: sink::liveness(),
                    ..config.settings.clone()
                },
                permission: config.permission.clone(),
                seed: config.seed.wrapping_add(u64::from(address.shard)),
                opened: config.opened.clone(),
            });
            let node = conductor::Node {
                handles: handles.clone(),
                interest: interest.clone(),
                confirmations: confirmations.clone(),
                backoff: backoff.clone(),
                callers: callers.clone(),
                token_key: TokenKey::new(&config.cluster_key, config.seed),
                namespaces: config.namespaces.clone(),
                auth_attempts_max: config.settings.auth_attempts_max,
                requests: config.requests.clone(),
                tracer: config.tracer.clone(),
                is_member,
            };
            let terms = Terms {
                heartbeat_interval: config.settings.heartbeat_interval,
                heartbeat_timeout: config.settings.heartbeat_timeout,
                message_bytes_max: config.settings.limits.message_bytes_max,
            };
            let limits = config.limits;
            let thread = Builder::new()
                .name(format!("shard-{}", address.shard))
                .spawn(move || {
                    Conductor::new(address, engine, event_loop, node, limits, terms).run()
                })?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

/// The running shards of a node.
pub struct RunningShards {
    handles: Arc<[ShardHandle]>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl RunningShards {
    /// The handles of the shards, by number.
    #[must_use]
    pub fn handles(&self) -> &Arc<[ShardHandle]> {
        &self.handles
    }

    /// Whether a shard's thread has ended. Before [`RunningShards::stop`] only a defect can cause this.
    #[must_use]
    pub fn has_lost_one(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until no shard has unfinished work and no message is on its way between them. The caller must stop the reading of sockets
    /// first, and limits the time by dropping the future.
    pub async fn quiet(&self) {
        drain::quiet(&self.handles).await;
    }

    /// Ends the threads; connections that are still open are dropped.
    ///
    /// # Errors
    /// A shard's poll failed or its thread panicked.
    pub fn stop(self) -> io::Result<()> {
        self.handles.iter().for_each(ShardHandle::stop);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a shard's thread panicked"))??;
        }
        Ok(())
    }
}
