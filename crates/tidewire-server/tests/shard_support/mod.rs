//! A node of three shards without a front, and clients that speak to it through the wire crate.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tidewire_config::section::SendsKind;
use tidewire_config::value::Auto;
use tidewire_core::effect::{AuthCompletion, AuthOutcome, AuthRequest, StoreRequest};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question};
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::settings::Settings;
use tidewire_core::slot::ClusterKey;
use tidewire_core::store::{Opened, Store};
use tidewire_core::time::WallTime;
use tidewire_shard::backoff::BackoffSettings;
use tidewire_shard::connection_limiter::{ConnectionLimiter, SocketPermits};
use tidewire_shard::handle::{
    Attachment, AuthReply, PendingLogin, Requests, ShardHandle, UpgradedSocket,
};
use tidewire_shard::peer::PeerDetails;
use tidewire_shard::stats::ShardStats;
use tidewire_shard::{NodeConfig, PreparedShards, RunningShards, ShardLimits};
use tidewire_store::memory::MemoryDisk;
use tidewire_store::thread::{Ending, StoreClient, StoreHealth, StoreThreads};
use tidewire_wire::protocol::Protocol;
use tokio::sync::Semaphore;

use crate::client::Client;

/// A permission that reads a record before it allows a publish of the event `gated`.
#[derive(Debug)]
pub struct GatedPublish;

impl Permission for GatedPublish {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if question.access == Access::EventPublish && question.name == Some("gated") {
            return match question.record("gate") {
                Ok(_) => Decision::Allow,
                Err(need) => need,
            };
        }
        Decision::Allow
    }
}

/// A permission that stops a shard's thread when a client of the shard publishes the event `stop`, until the test drops its sender.
#[derive(Debug)]
pub struct StoppingPublish {
    stopped: Mutex<mpsc::Sender<()>>,
    resumed: Mutex<mpsc::Receiver<()>>,
}

impl StoppingPublish {
    /// Also returns the test's ends: one gets a message when a shard has stopped, and the shard continues when the other one is dropped.
    pub fn new() -> (Self, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (stopped, has_stopped) = mpsc::channel();
        let (resume, resumed) = mpsc::channel();
        let (stopped, resumed) = (Mutex::new(stopped), Mutex::new(resumed));
        (Self { stopped, resumed }, has_stopped, resume)
    }
}

impl Permission for StoppingPublish {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if question.access == Access::EventPublish && question.name == Some("stop") {
            self.stopped.lock().unwrap().send(()).unwrap();
            // The sender is dropped; it never sends.
            let _ = self.resumed.lock().unwrap().recv();
        }
        Decision::Allow
    }
}

pub struct Options {
    pub limits: ShardLimits,
    pub backoff: BackoffSettings,
    pub namespaces: Arc<[String]>,
    pub permission: Arc<dyn Permission>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: ShardLimits::default(),
            // All clients of a test have the same address, and most tests need no back-off.
            backoff: BackoffSettings {
                wait_max: Duration::ZERO,
                ..BackoffSettings::default()
            },
            namespaces: Arc::default(),
            permission: Arc::new(AllowAll),
        }
    }
}

/// Sends store requests to the store, and accepts all logins at once through the shard's mailbox.
struct Services {
    store: StoreClient,
    shards: Arc<OnceLock<Vec<ShardHandle>>>,
}

impl Requests for Services {
    fn store(&self, shard: u16, request: StoreRequest) {
        self.store.request(shard, request);
    }

    fn authenticate(&self, request: AuthRequest, peer: Arc<PeerDetails>) -> AuthReply {
        let principal = principal(&request, &peer);
        let shards = self.shards.get().expect("set before the shards run");
        shards[usize::from(request.session.address.shard)].complete_auth(AuthCompletion {
            session: request.session,
            outcome: AuthOutcome::Accepted(Arc::new(principal)),
        });
        AuthReply::Waits(PendingLogin::default())
    }
}

/// The principal of a login. Its name is `user` of the login data, or else is made from the port. With `expires_in` it expires that
/// many milliseconds after this decision, so that no test has to beat a deadline that it chose earlier.
fn principal(request: &AuthRequest, peer: &PeerDetails) -> Principal {
    let data: serde_json::Value = serde_json::from_str(request.data.as_str()).unwrap();
    let port = format!("user-{}", peer.address.port());
    let user = data["user"].as_str().unwrap_or(&port);
    let mut principal = Principal::new(user.into());
    if let Some(milliseconds) = data["expires_in"].as_u64() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        principal = principal.with_expiry(WallTime(now.as_millis() as u64 + milliseconds));
    }
    if let Some(token) = data["token"].as_str() {
        principal = principal.with_credential(Credential::Token(token.into()));
    }
    principal
}

pub struct Node {
    shards: Option<RunningShards>,
    store: Option<StoreThreads>,
    listener: TcpListener,
    pub connection_limiter: Arc<ConnectionLimiter>,
}

impl Node {
    pub fn start(options: Options) -> Self {
        let (store, opened) = MemoryDisk::default().open(None);
        Self::start_on(options, Settings::default(), Box::new(store), opened)
    }

    /// A node with these engine settings on the test's own store.
    pub fn start_on(
        options: Options,
        settings: Settings,
        store: Box<dyn Store>,
        opened: Opened,
    ) -> Self {
        let prepared = PreparedShards::new(3, &options.limits, SendsKind::Auto).unwrap();
        let shards = Arc::new(OnceLock::new());
        shards.set(prepared.handles().to_vec()).unwrap();
        let handles = prepared.handles().to_vec();
        let store = StoreThreads::start(
            store,
            opened,
            Arc::new(move |shard, completion| handles[usize::from(shard)].complete(completion)),
        )
        .unwrap();
        let requests = Services {
            store: store.client(),
            shards,
        };
        let running = prepared
            .start(NodeConfig {
                settings,
                limits: options.limits,
                names_are_proved: true,
                backoff: options.backoff,
                namespaces: options.namespaces,
                permission: options.permission,
                opened: vec![opened],
                requests: Arc::new(requests),
                tracer: None,
                seed: 1,
                cluster_key: ClusterKey([2; 16]),
                slots: None,
            })
            .unwrap();
        Self {
            shards: Some(running),
            store: Some(store),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            connection_limiter: ConnectionLimiter::new(
                usize::MAX,
                Auto::Auto,
                Semaphore::MAX_PERMITS,
            ),
        }
    }

    pub fn handles(&self) -> &[ShardHandle] {
        self.shards.as_ref().expect("taken by drop only").handles()
    }

    pub fn handle(&self, shard: usize) -> &ShardHandle {
        &self.handles()[shard]
    }

    pub fn stats(&self, shard: usize) -> &ShardStats {
        self.handle(shard).stats()
    }

    pub fn store_client(&self) -> StoreClient {
        let store = self.store.as_ref().expect("taken by drop only");
        store.client()
    }

    pub fn store_health(&self) -> Arc<StoreHealth> {
        Arc::clone(self.store_client().health())
    }

    pub async fn quiet(&self) {
        self.shards
            .as_ref()
            .expect("taken by drop only")
            .quiet()
            .await;
    }

    pub fn connect(&self, shard: usize) -> Client {
        self.connect_with(shard, Vec::new())
    }

    /// A connection that the front hands over with bytes that it has already read.
    pub fn connect_with(&self, shard: usize, unread: Vec<u8>) -> Client {
        Client::new(self.hand_over(shard, unread, false, Protocol::Deepstream))
    }

    /// A connection that has agreed on compression.
    pub fn connect_deflated(&self, shard: usize) -> Client {
        Client::with_deflate(self.hand_over(shard, Vec::new(), true, Protocol::Deepstream))
    }

    /// A connection that speaks JSON.
    pub fn connect_json(&self, shard: usize) -> Client {
        Client::new(self.hand_over(shard, Vec::new(), false, Protocol::DeepstreamJson))
    }

    /// A connection that speaks JSON and has agreed on compression.
    pub fn connect_deflated_json(&self, shard: usize) -> Client {
        Client::with_deflate(self.hand_over(shard, Vec::new(), true, Protocol::DeepstreamJson))
    }

    fn hand_over(
        &self,
        shard: usize,
        unread: Vec<u8>,
        is_deflated: bool,
        protocol: Protocol,
    ) -> TcpStream {
        self.attach(shard, (unread, is_deflated, protocol), None)
    }

    /// A connection whose request says something about its session.
    pub fn attach(
        &self,
        shard: usize,
        (unread, is_deflated, protocol): (Vec<u8>, bool, Protocol),
        attachment: Option<Attachment>,
    ) -> TcpStream {
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let (socket, address) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        let descriptors = Arc::clone(&self.connection_limiter.descriptors);
        let descriptor = descriptors.try_acquire_owned().unwrap();
        self.handle(shard).hand_over(vec![UpgradedSocket {
            stream: socket,
            tls: None,
            unread: Bytes::from(unread),
            peer: Arc::new(PeerDetails::at(address)),
            permit: self
                .connection_limiter
                .take(SocketPermits {
                    descriptor,
                    counted: None,
                })
                .unwrap(),
            is_deflated,
            protocol,
            attachment: attachment.map(Box::new),
        }]);
        stream
    }

    pub fn log_in(&self, shard: usize) -> Client {
        let mut client = self.connect(shard);
        client.log_in();
        client
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let stopped = self.shards.take().map(RunningShards::stop);
        let closed = self.store.take().map(|store| store.stop(Ending::Complete));
        if !std::thread::panicking() {
            stopped.unwrap().unwrap();
            closed.unwrap().unwrap();
        }
    }
}
