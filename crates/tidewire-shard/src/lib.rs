//! The shards of a node: their threads, and how others reach them. What a shard decides is the engine's.

pub mod backoff;
mod batch;
mod caller_rate;
pub mod carrier;
mod conductor;
mod connection;
mod credit;
mod deflation;
mod drain;
pub mod handle;
pub mod inspect;
pub mod interest;
mod message_count;
pub mod outlet;
pub mod peer_log;
pub mod place;
pub mod share;
mod sink;
pub mod stats;
pub mod tracer;
mod traces;

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tidewire_config::plan::Plan;
use tidewire_config::section::{Config, SendsKind};
use tidewire_core::address::Address;
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::permission::Permission;
use tidewire_core::settings::Settings;
use tidewire_core::store::Opened;
use tidewire_net::event_loop::{EventLoop, OutboxMarks};
use tidewire_net::mailbox::Mailbox;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::send_batch::{Path, Sender};

use crate::backoff::{BackoffSettings, ReconnectBackoff};
use crate::interest::InterestMap;
use crate::tracer::Tracer;
use caller_rate::CallerRates;
use conductor::Conductor;
use connection::State;
use credit::Confirmations;
use handle::{Requests, ShardHandle, Shared};
use stats::{Clock, ShardStats};

/// Shards stop reading when this many times the bytes of one connection are in flight for all of theirs.
const CONNECTIONS_IN_FLIGHT: usize = 16;

/// Bounds of what a shard holds for its connections, apart from the engine's own limits.
#[derive(Clone, Copy, Debug)]
pub struct ShardLimits {
    /// Bytes of messages that one connection may have posted to other shards before these have handled them. Beyond
    /// it the connection is not read.
    pub inflight_bytes_max: usize,
    /// The same for all connections of one shard together; beyond it none of its sockets is read.
    pub shard_inflight_bytes_max: usize,
    /// Bytes that the engine touches before the shard looks at its sockets and its mailbox again.
    pub turn_work_max: usize,
    /// Bytes of one connection that wait to be sent: beyond which it lags and is ended, and when it has drained.
    pub outbox: OutboxMarks,
    /// Bytes that the node may hold in outboxes, half-received messages, turn logs, mailboxes and the cache of records;
    /// beyond it the cache shrinks, then the connections that hold most are ended.
    pub memory_bytes_max: usize,
    /// Bytes of a frame before the login of its connection. A larger one closes it with 1009.
    pub login_bytes_max: usize,
    /// Messages below this size are sent plain to recipients that agreed on compression.
    pub deflate_bytes_min: usize,
    /// What a shard compresses in one turn, in bytes; what is over leaves plain.
    pub deflate_turn_bytes_max: usize,
}

impl ShardLimits {
    /// As the configuration has them.
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
            memory_bytes_max: usize::try_from(plan.memory_bytes_max).unwrap_or(usize::MAX),
            login_bytes_max: auth.login_bytes_max.as_usize(),
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
            turn_work_max: 2 << 20,
            outbox: OutboxMarks {
                bytes_max: 1 << 20,
                lagging_bytes: 256 << 10,
                drained_bytes: 64 << 10,
            },
            memory_bytes_max: 1 << 30,
            login_bytes_max: 16 << 10,
            deflate_bytes_min: 512,
            deflate_turn_bytes_max: 1 << 20,
        }
    }
}

/// What all shards of a node are made of.
pub struct NodeConfig {
    /// Durations, switches and limits of the engine.
    pub settings: Settings,
    /// Bounds of what is held for connections.
    pub limits: ShardLimits,
    /// Whether each name of a user is proved at its login.
    pub names_are_proved: bool,
    /// How long who waits that was closed for one of them.
    pub backoff: BackoffSettings,
    /// The judge.
    pub permission: Arc<dyn Permission>,
    /// What each store said when it was opened, by number.
    pub opened: Vec<Opened>,
    /// Where requests go.
    pub requests: Arc<dyn Requests>,
    /// What records publications, if there is a collector.
    pub tracer: Option<Arc<Tracer>>,
    /// For tables and dice; clients must not be able to guess it.
    pub seed: u64,
    /// For the owner hash; clients must not be able to guess it.
    pub owner_key: u64,
}

/// Shards that can be given mail and do not run yet, so that whoever answers their requests can be made first.
pub struct PreparedShards {
    handles: Vec<ShardHandle>,
    loops: Vec<EventLoop<State>>,
    budget: MemoryBudget,
}

impl PreparedShards {
    /// Makes the loops and mailboxes of `count` shards, and tries how their sends can reach the kernel.
    ///
    /// # Errors
    /// The kernel has no descriptors for them.
    pub fn new(count: u16, limits: &ShardLimits, sends: SendsKind) -> io::Result<Self> {
        let budget = MemoryBudget::new(limits.memory_bytes_max);
        let clock = Clock::start();
        let mut prepared = Self {
            handles: Vec::new(),
            loops: Vec::new(),
            budget: budget.clone(),
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
                index,
                mailbox: Mailbox::new(waker),
                stats,
                clock,
                carried_bytes: Arc::default(),
            })));
        }
        Ok(prepared)
    }

    /// What all shards may hold together.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// The ways to the shards, by number.
    #[must_use]
    pub fn handles(&self) -> &[ShardHandle] {
        &self.handles
    }

    /// How the sends of each shard reach the kernel, by number.
    #[must_use]
    pub fn send_paths(&self) -> Vec<Path> {
        self.loops.iter().map(EventLoop::send_path).collect()
    }

    /// Starts one thread for each shard.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(self, config: NodeConfig) -> io::Result<RunningShards> {
        let handles: Arc<[ShardHandle]> = self.handles.into();
        let interest = Arc::new(InterestMap::new(handles.len()));
        let confirmations = Arc::new(Confirmations::new(handles.len()));
        let backoff = Arc::new(ReconnectBackoff::new(config.backoff));
        let callers = CallerRates::new(&config.settings.rates, config.names_are_proved);
        let callers = Arc::new(callers);
        let mut running = RunningShards {
            handles: handles.clone(),
            threads: Vec::new(),
        };
        for (handle, event_loop) in handles.iter().zip(self.loops) {
            let address = Address {
                node: 0,
                shard: handle.index(),
            };
            let engine = Shard::new(ShardConfig {
                address,
                shard_count: handles.len() as u16,
                settings: config.settings.clone(),
                permission: config.permission.clone(),
                seed: config.seed.wrapping_add(u64::from(address.shard)),
                owner_key: config.owner_key,
                opened: config.opened.clone(),
            });
            let node = conductor::Node {
                handles: handles.clone(),
                interest: interest.clone(),
                confirmations: confirmations.clone(),
                backoff: backoff.clone(),
                callers: callers.clone(),
                requests: config.requests.clone(),
                tracer: config.tracer.clone(),
            };
            let message_bytes_max = config.settings.limits.message_bytes_max;
            let limits = config.limits;
            let thread = Builder::new()
                .name(format!("shard-{}", address.shard))
                .spawn(move || {
                    Conductor::new(address, engine, event_loop, node, limits, message_bytes_max)
                        .run()
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
    /// The ways to the shards, by number.
    #[must_use]
    pub fn handles(&self) -> &Arc<[ShardHandle]> {
        &self.handles
    }

    /// Whether a shard's thread has ended, which before [`RunningShards::stop`] only a defect can cause.
    #[must_use]
    pub fn has_lost_one(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until no shard has anything under way and nothing is on its way between them. Sockets must not be read any
    /// more. The caller bounds the time by dropping the future.
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
