//! The part that all carriers over a message broker share: one connection of a process to its broker, and the carriers to its peers over it.
//!
//! Each process has one inbox at the broker, which is named by the cluster, the number of its node and its birth. A message is a frame behind
//! the sender and the receiver. The process also sends messages to its own inbox. Such a check proves that publishing, the broker and the
//! subscription work, so a carrier is up only after the first one has returned, and the connection is replaced if they stop returning.

mod envelope;
mod peer;
mod shared;

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidewire_link::frame::Process;
use tidewire_membership::RELINK_MS;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

pub use self::peer::BusCarrier;
pub(super) use self::shared::Message;
use self::shared::Shared;
use super::Settings;

/// Time to connect and subscribe.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(20);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(500);
/// The first failed attempt that is logged, a second after the break; then each with twice the number.
const LOGGED_ATTEMPT: u32 = 8;
/// Time between two messages to the own inbox.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The connection is replaced if none of these consecutive checks has returned. Links suspect silent peers earlier, after 2 s. The number is
/// counted instead of a time, so a process that was paused keeps its connection.
const CHECKS_MAX: u32 = 5;
/// A process whose connection turns out dead has another one after this time, if the broker answers. The others do not evict it before.
const REPLACE_TIME_MAX: Duration = CHECK_INTERVAL
    .saturating_mul(CHECKS_MAX)
    .saturating_add(RECONNECT_DELAY_MAX)
    .saturating_add(CONNECT_TIMEOUT);
const _: () = assert!(REPLACE_TIME_MAX.as_millis() <= RELINK_MS as u128);

/// Why a connection to a broker failed. The text has no secrets.
pub(super) type BrokerError = Box<dyn Error + Send + Sync>;

/// The inbox of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbox {
    /// Identifies the cluster without its key, see [`tidewire_link::cluster_identity`].
    pub cluster: u64,
    pub process: Process,
}

impl Inbox {
    /// The name of the inbox of a process of the same cluster.
    pub fn name_of(&self, process: Process) -> String {
        let Process { node, birth } = process;
        format!("tidewire.{:016x}.{node}.{birth}", self.cluster)
    }
}

/// Publishes messages over one connection.
pub(super) trait Publish: Send {
    /// Sends messages in order. Returns when the client library or the broker has taken them.
    fn publish(
        &mut self,
        messages: Vec<Message>,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// Receives the messages of the inbox over one connection.
pub(super) trait Subscribe: Send {
    /// Calls `take` with each message that has arrived. Returns after at least one. Fails when the connection is lost.
    fn receive(
        &mut self,
        take: &mut (dyn FnMut(&[u8]) + Send),
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// A kind of broker and its address.
pub(super) trait Broker: Send + Sync + 'static {
    /// Publishes over a connection.
    type Publisher: Publish;
    /// Receives over the same connection, or over a second one.
    type Subscriber: Subscribe;

    /// Connects once, without repetition, and subscribes to the inbox.
    fn connect(
        &self,
        inbox: Inbox,
    ) -> impl Future<Output = Result<(Self::Publisher, Self::Subscriber), BrokerError>> + Send;
}

/// The connection of a process to its broker. It reconnects until it is dropped.
#[derive(Debug)]
pub struct Bus {
    shared: Arc<Shared>,
    running: JoinHandle<()>,
}

impl Bus {
    /// Connects in the background. `cluster` is the identity of the cluster, see [`tidewire_link::cluster_identity`]. Needs a tokio runtime.
    #[must_use]
    pub fn start(settings: Settings, cluster: u64, local: Process) -> Self {
        let shared = Arc::new(Shared::new(local));
        let inbox = Inbox {
            cluster,
            process: local,
        };
        let running = settings.spawn(inbox, Arc::clone(&shared));
        Self { shared, running }
    }

    /// Whether the broker answers: the last message of this process to itself has returned in time. Changes before links become suspect.
    #[must_use]
    pub fn answers(&self) -> watch::Receiver<bool> {
        self.shared.answers()
    }

    /// The carrier to a process. It follows the node to later births when their messages arrive. There is one carrier for a node: a second one
    /// takes the messages from the first.
    #[must_use]
    pub fn carrier(&self, peer: Process) -> BusCarrier {
        BusCarrier::new(Arc::clone(&self.shared), peer)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.running.abort();
        self.shared.disconnect();
    }
}

impl Settings {
    /// Runs the connection in the background.
    fn spawn(self, inbox: Inbox, shared: Arc<Shared>) -> JoinHandle<()> {
        match self {
            #[cfg(feature = "amqp")]
            Self::Amqp(broker) => tokio::spawn(run(broker, inbox, shared)),
            #[cfg(feature = "kafka")]
            Self::Kafka(broker) => tokio::spawn(run(broker, inbox, shared)),
            #[cfg(feature = "nats")]
            Self::Nats(broker) => tokio::spawn(run(broker, inbox, shared)),
            #[cfg(feature = "redis")]
            Self::Redis(broker) => tokio::spawn(run(broker, inbox, shared)),
        }
    }
}

/// Connects, and connects again whenever the connection is lost.
async fn run(broker: impl Broker, inbox: Inbox, shared: Arc<Shared>) {
    let mut delay = RECONNECT_DELAY_MIN;
    let mut attempts: u32 = 0;
    loop {
        attempts = attempts.saturating_add(1);
        let connected = timeout(CONNECT_TIMEOUT, broker.connect(inbox)).await;
        let error = match connected {
            Ok(Ok((publisher, subscriber))) => tokio::select! {
                error = publish_all(publisher, &shared) => error,
                error = receive_all(subscriber, &shared) => error,
                error = check(&shared) => error,
            },
            Ok(Err(error)) => error,
            Err(_) => "the broker did not answer in time".into(),
        };
        if shared.disconnect() {
            (delay, attempts) = (RECONNECT_DELAY_MIN, 0);
            tracing::warn!(%error, "lost the connection to the broker of the links");
        } else if attempts >= LOGGED_ATTEMPT && attempts.is_power_of_two() {
            tracing::warn!(%error, attempts, "can't connect to the broker of the links");
        }
        // The processes of a cluster lose their broker at the same time.
        sleep(delay.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        delay = (delay * 2).min(RECONNECT_DELAY_MAX);
    }
}

async fn publish_all(mut publisher: impl Publish, shared: &Shared) -> BrokerError {
    loop {
        let messages = shared.next_messages().await;
        if let Err(error) = publisher.publish(messages).await {
            return error;
        }
    }
}

async fn receive_all(mut subscriber: impl Subscribe, shared: &Shared) -> BrokerError {
    let mut take = |message: &[u8]| shared.receive(message);
    loop {
        if let Err(error) = subscriber.receive(&mut take).await {
            return error;
        }
    }
}

/// Sends messages to the own inbox, until they stop returning.
async fn check(shared: &Shared) -> BrokerError {
    let mut interval = interval(CHECK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = 0;
    loop {
        interval.tick().await;
        if shared.take_checked() {
            waiting = 0;
        }
        shared.set_answers(waiting == 0);
        if waiting == CHECKS_MAX {
            return "messages of this process to itself do not return".into();
        }
        waiting += 1;
        shared.send_check();
    }
}
