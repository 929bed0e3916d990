//! A node: front, shards, store and auth chain, started and stopped in the right order.
//!
//! A stop loses no acknowledged write. It closes connections gradually, because clients reconnect at once.

mod cluster;
mod drain;
mod free_memory;
mod member_shards;
mod requests;
mod signals;
mod store;
mod stores;

use std::io;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use tidewire_auth::revocation_store::RevocationStore;
use tidewire_auth::waiting::{WaitingLimits, WaitingLogins};
use tidewire_auth::{AuthChain, Trouble, jwt};
use tidewire_cluster::member::Stage as MemberStage;
use tidewire_config::plan::{AdminPage, Plan, Speaks};
use tidewire_config::section::AuthKind;
use tidewire_config::stores::DEFAULT_NAME;
use tidewire_config::value::Rules;
use tidewire_core::slot::ClusterKey;
use tidewire_core::store::Opened;
use tidewire_http::admin;
use tidewire_http::admin::api::Admin;
use tidewire_http::admin::page::{Page, PageContext};
use tidewire_http::api::{Api, Common, RecordEpochs};
use tidewire_http::denials::Denials;
use tidewire_http::front::tls::Tls;
use tidewire_http::front::{Front, ReloadableSettings, accept};
use tidewire_http::metrics::cluster::ClusterNumbers;
use tidewire_http::metrics::process::ProcessNumbers;
use tidewire_http::metrics::{Metrics, ShardNumbers};
use tidewire_http::permission;
use tidewire_http::rights::Rights;
use tidewire_http::rights_log::RightsLog;
use tidewire_http::rules_text::RulesText;
use tidewire_http::status::{Reason, Stage, Status, StoreFailure};
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::scheduling::with_short_slices;
use tidewire_net::send_batch::Path;
use tidewire_shard::backoff::BackoffSettings;
use tidewire_shard::handle::{HandOver, ShardHandle, UpgradedSocket};
use tidewire_shard::peer_log::sum_peer_lines;
use tidewire_shard::session_token::SessionToken;
use tidewire_shard::tracer;
use tidewire_shard::{NodeConfig, PreparedShards, RunningShards, ShardLimits};
use tidewire_store::folder::{DataFolder, REVOCATIONS_FILE};
use tidewire_store::remote::Promise;
use tidewire_store::scrub::ScrubHealth;
use tidewire_store::thread::StoreHealth;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::{Exit, Failure};
use crate::port_holder::port_holder;
use crate::rules_file::{self, RulesFile};
use crate::traces;

use cluster::Cluster;
pub use drain::Stopped;
use member_shards::MemberShards;
use requests::NodeRequests;
pub use signals::Signals;
pub use store::{StoreWrapper, open_store, store_kind};
use stores::Stores;
pub use stores::{NamedOpen, open_all, open_all_read_only};

/// How often the node logs the sums of the events that peers caused.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// How often the node checks whether each store answers.
const STORE_INTERVAL: Duration = Duration::from_millis(100);
/// How many free ports the node tries when a port is free on one of its addresses but taken on another.
const FREE_PORT_ATTEMPTS: u32 = 20;

/// A running node.
pub struct Node {
    runtime: Runtime,
    front: Arc<Front>,
    auth: Arc<AuthChain>,
    shards: RunningShards,
    rights: Arc<Rights>,
    /// The rule file, if the rules come from one.
    rules: Option<Arc<RulesFile>>,
    stores: Stores,
    /// The member of a cluster, if the node is one.
    cluster: Option<Cluster>,
    /// Held until the store is closed.
    folder: Option<DataFolder>,
    addresses: Vec<SocketAddr>,
    send_paths: Vec<Path>,
    tls_addresses: Vec<SocketAddr>,
    accepting: Vec<JoinHandle<()>>,
    stop_accepting: watch::Sender<bool>,
    /// The task that sends spans to a collector. It ends after the shards.
    exporting: Option<JoinHandle<()>>,
    drain_timeout: Duration,
    drain_delay: Duration,
    /// The key of the admin page, if the node generated one at its start.
    made_key: Option<String>,
}

/// How much the nice value of the threads that serve HTTP and hash passwords is above that of the process. On a machine where they share
/// cores with the shards, a shard that has work runs three times as long as one of them, so large HTTP responses delay the messages of
/// other clients less.
const FRONT_NICE: i32 = 5;

/// Gives the calling thread a lower priority than the shards have.
fn yield_to_shards() {
    // If the system refuses it, the front only competes with the shards as an equal. Not `nice`, which would add to the value that a thread
    // has inherited from another thread of the front.
    let process = rustix::process::getpid();
    let _ = rustix::process::getpriority_process(Some(process))
        .and_then(|nice| rustix::process::setpriority_process(None, nice + FRONT_NICE));
}

impl Node {
    /// Starts all parts. When this returns, the node accepts connections, and signals have been queued since before it did.
    /// A `wrapper` wraps the default store.
    ///
    /// # Errors
    /// A part can't start. The failure has the exit code of that part.
    pub fn start(
        plan: &Plan,
        wrapper: Option<&dyn StoreWrapper>,
    ) -> Result<(Self, Signals), Failure> {
        Self::start_after(plan, wrapper, 0)
    }

    /// The same for a node that its cluster has evicted `evictions` times in a row.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_after(
        plan: &Plan,
        wrapper: Option<&dyn StoreWrapper>,
        evictions: u32,
    ) -> Result<(Self, Signals), Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(plan.front_threads)
            .thread_name("front")
            .on_thread_start(yield_to_shards)
            .enable_all()
            .build()
            .map_err(|error| bug("can't start the threads of the front", &error))?;
        let denials = Arc::<Denials>::default();
        let permission = permission::open(plan, &denials)
            .map_err(|problem| Failure::new(Exit::Configuration, problem.to_string()))?;
        let auth = AuthChain::new(plan, plan.hashing_max)
            .map_err(|problem| Failure::new(Exit::Configuration, problem.to_string()))?;
        let auth = Arc::new(auth);
        let tls = Tls::open(plan)
            .map_err(|problem| Failure::new(Exit::Configuration, problem.to_string()))?;
        cluster::broker(plan)?;
        // Bound before the store is opened: clients that reconnect wait in the kernel's queue instead of failing.
        let (listeners, tls_listeners) = {
            let _guard = runtime.enter();
            (listen(&plan.addresses)?, listen(&plan.tls_addresses)?)
        };
        let admin_listener = {
            let _guard = runtime.enter();
            listen(plan.admin_address.as_slice())?.pop()
        };
        let admin_key = admin::Key::read(&plan.config.admin)
            .map_err(|problem| Failure::new(Exit::Configuration, problem.to_string()))?;
        let folder = DataFolder::open(&plan.config.store.path)
            .map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
        let mut stores = stores::open_all(plan, wrapper, &folder, runtime.handle())?;
        stores::refuse_strays(&mut stores, &plan.config.stores.routes())?;
        let opened: Vec<Opened> = stores.iter().map(|store| store.open.opened).collect();
        let named = stores.iter();
        let epochs = named.map(|store| (store.name.as_str(), store.open.opened.epoch));
        let tags = plan.settings().tags;
        let epochs = Arc::new(RecordEpochs::new(plan.config.stores.routes(), tags, epochs));

        let limits = ShardLimits::of(plan);
        let number = match plan.config.cluster.enabled {
            true => cluster::node_number(opened[0]),
            false => 0,
        };
        let prepared =
            PreparedShards::of_node(number, plan.shards, &limits, plan.config.network.sends)
                .map_err(|error| bug("can't create the event loops of the shards", &error))?;
        let cluster_key = (u128::from(random()?) << 64) | u128::from(random()?);
        let mut cluster_key = ClusterKey(cluster_key.to_be_bytes());
        let handles: Arc<[ShardHandle]> = prepared.handles().into();
        let rights = Rights::new(Arc::clone(&handles), plan.config.limits.revocations_max);
        let rights = Arc::new(match plan.config.cluster.enabled {
            true => {
                let (plan, denials) = (plan.clone(), Arc::clone(&denials));
                let compile = move |rules: &RulesText| {
                    permission::of_text(&plan, &denials, rules.text(), FilePath::new(rules.file()))
                };
                rights.of_member(runtime.handle().clone(), Box::new(compile))
            }
            false => rights,
        });
        let cluster = match plan.config.cluster.enabled {
            true => {
                let shards = MemberShards::new(
                    prepared.node_shards(),
                    Arc::clone(&epochs),
                    Arc::clone(&rights),
                    runtime.handle().clone(),
                );
                let (store, shards) = (&mut stores[0], Arc::new(shards));
                Some(Cluster::join(plan, store, shards, cluster_key, evictions)?)
            }
            false => None,
        };
        let first_view = cluster.as_ref().map(|cluster| &cluster.first_view);
        if let Some(key) = first_view.and_then(|view| view.key) {
            cluster_key = key;
        }
        let send_paths = prepared.send_paths();
        let budget = prepared.budget().clone();
        let answer = requests::completion_sender(Arc::clone(&handles));
        let scrub_health = ScrubHealth::default();
        // A client's acknowledgement waits for the thread that commits, which mostly waits for the disk.
        let stores = with_short_slices(|| Stores::start(plan, stores, &scrub_health, &answer))?;
        if let Some(users) = auth.users() {
            users.open(stores.default_client());
        }
        if let Some(tickets) = auth.shared_tickets() {
            tickets.open(stores.default_client(), runtime.handle());
        }
        rights.open_log(RightsLog::new(stores.default_client()));
        let waiting = WaitingLogins::new(
            WaitingLimits::of(plan),
            &budget,
            auth.counts().waiting.clone(),
        );
        let requests = NodeRequests::new(
            stores.clients(),
            Arc::clone(&auth),
            waiting,
            runtime.handle().clone(),
            Arc::clone(&handles),
        );
        let span_counts = tracer::Counts::default();
        let tracing = traces::open(&plan.config.traces, &span_counts)
            .map_err(|problem| Failure::new(Exit::Configuration, problem.to_string()))?;
        let (tracer, exporter) = tracing.unzip();
        let shards = prepared
            .start(NodeConfig {
                settings: plan.settings(),
                limits,
                names_are_proved: !plan.auth_chain.contains(&AuthKind::Open),
                backoff: BackoffSettings::of(plan),
                namespaces: plan.config.network.namespaces.iter().cloned().collect(),
                permission,
                opened,
                requests: Arc::new(requests),
                tracer: tracer.map(Arc::new),
                seed: random()?,
                cluster_key,
                slots: cluster.as_ref().and_then(Cluster::first_owners),
            })
            .map_err(|error| bug("can't start the threads of the shards", &error))?;

        let status = Arc::new(Status::default());
        let metrics = Arc::new(Metrics::default());
        metrics.development_mode.set(plan.is_development.into());
        let healths = stores.healths();
        watch(&status, &handles, &healths);
        store::watch_scrub(&status, &metrics, &scrub_health);
        for (name, promise) in stores.promises() {
            if let Some(weakness) = &promise.weakness {
                metrics.store_relaxed.set(1);
                status.warn_of_store(match healths.len() {
                    1 => weakness.clone(),
                    _ => format!("in the store {name}: {weakness}"),
                });
            }
        }
        metrics.add(|registry| auth.counts().register(registry));
        traces::register(&span_counts, &metrics);
        if let Some(cluster) = &cluster {
            let member = cluster.member().clone();
            let (shared, keys) = (Arc::clone(&rights), cluster.keys(&auth));
            let sample = Box::new(move || cluster::sample(&member, &shared, &keys));
            metrics.register(Box::new(ClusterNumbers(sample)));
            let member = cluster.member().clone();
            status.watch_cluster(Box::new(move || cluster::troubles(&member)));
        }
        watch_auth(&status, &auth);
        auth.run(runtime.handle());
        let numbers = ShardNumbers::new(Arc::clone(&handles), healths);
        metrics.register(Box::new(numbers.clone()));
        metrics.register(Box::new(ProcessNumbers));
        let rules = rules_file(plan, &denials, &rights, &metrics);
        if let Some(rules) = rules.clone() {
            status.watch_rules(Box::new(move || rules.warning()));
        }
        let refused = metrics.refused_requests.clone();
        let common = Common {
            shards: Arc::clone(&handles),
            epochs,
            refused,
            budget: budget.clone(),
        };
        let api = Arc::new(Api::new(plan, common, &auth));
        let served = plan.config.http.api.then(|| Arc::clone(&api));
        let fewest = Arc::new(FewestConnections(Arc::clone(&handles)));
        let front = Front::new(
            plan,
            tls,
            Arc::clone(&status),
            metrics,
            fewest,
            served,
            Arc::clone(&denials),
        );
        let (stop_accepting, is_stopped) = watch::channel(false);
        let mut node = Self {
            send_paths,
            addresses: local_addresses(&listeners),
            tls_addresses: local_addresses(&tls_listeners),
            accepting: Vec::new(),
            folder: Some(folder),
            drain_timeout: plan.config.drain_timeout,
            drain_delay: plan.drain_delay,
            exporting: exporter.map(|exporter| runtime.spawn(exporter.run())),
            runtime,
            front,
            auth,
            rights,
            rules,
            shards,
            stores,
            cluster,
            stop_accepting,
            made_key: None,
        };
        // Before the node accepts a connection, so that no revoked user can log in.
        let revocation_store = Arc::new(node.open_revocation_store()?);
        let kept = match node.cluster {
            Some(_) => {
                let read = node.runtime.block_on(node.rights.read());
                read.map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
                None
            }
            None => {
                node.repeat_revocations(&revocation_store)?;
                Some(Arc::clone(&revocation_store))
            }
        };
        let admin = Arc::new(node.admin(kept));
        let page_key = match plan.admin_page {
            AdminPage::Off => None,
            AdminPage::Configured => admin_key.clone(),
            AdminPage::Random => {
                let (key, text) =
                    admin::Key::random().map_err(|error| Failure::new(Exit::Bug, error))?;
                node.made_key = Some(text);
                Some(key)
            }
        };
        if let (Some(key), Some(operators)) = (page_key, node.auth.operators()) {
            let parts = PageContext {
                api,
                admin: Arc::clone(&admin),
                operators: Arc::clone(operators),
                shards: handles,
                stores: node.stores.clients(),
                promises: node
                    .promises()
                    .map(|promise| promise.text.clone())
                    .collect(),
                numbers,
                rules: plan.config.permissions.clone(),
                denials,
                budget: budget.clone(),
            };
            let page = Page::new(key, &plan.config.admin, parts);
            node.runtime.spawn(page.record_history());
            // This is the only place that sets the page, so it can't be set already.
            let _ = node.front.admin_page.set(page);
        }
        // A program that got an answer from the node may send it a signal, so the handlers come before the first answer. A signal
        // that arrives earlier ends the process, which has no clients yet.
        let signals = Signals::new(&node.runtime)?;
        // Clients come when the node owns slots and is linked to all others.
        if let Some(cluster) = &node.cluster {
            let active = cluster.until_active(node.shards.handles());
            node.runtime.block_on(active)?;
            node.share_revocations(&revocation_store)?;
            node.share_rules()?;
        }
        if let (Some(listener), Some(key)) = (admin_listener, admin_key) {
            node.open_admin(key, listener, admin, &is_stopped);
        }
        node.accept(listeners, plan.speaks, &is_stopped);
        node.accept(tls_listeners, plan.tls_speaks(), &is_stopped);
        node.keep_house(plan.config.tls.reload_interval.time(), budget);
        status.set_stage(Stage::Serving);
        Ok((node, signals))
    }

    fn accept(
        &mut self,
        listeners: Vec<TcpListener>,
        speaks: Speaks,
        is_stopped: &watch::Receiver<bool>,
    ) {
        for listener in listeners {
            let front = Arc::clone(&self.front);
            let task = accept::run(listener, speaks, front, is_stopped.clone());
            self.accepting.push(self.runtime.spawn(task));
        }
    }

    /// Opens the revocations of earlier runs of a node alone.
    fn open_revocation_store(&self) -> Result<RevocationStore, Failure> {
        let folder = self.folder.as_ref().map(DataFolder::path);
        RevocationStore::open(folder, jwt::now()).map_err(|error| self.broken_revocations(&error))
    }

    fn broken_revocations(&self, error: &dyn std::fmt::Display) -> Failure {
        let folder = self.folder.as_ref().map(DataFolder::path);
        let file = folder
            .unwrap_or(std::path::Path::new(""))
            .join(REVOCATIONS_FILE);
        let line = format!(
            "{}: {error}; restore it from a backup, or remove it and revoke again",
            file.display()
        );
        Failure::new(Exit::DataFolder, line)
    }

    /// Applies the revocations of earlier runs again.
    fn repeat_revocations(&self, revocation_store: &RevocationStore) -> Result<(), Failure> {
        let now = jwt::now();
        let stored = revocation_store.list(now);
        let stored = stored.map_err(|error| self.broken_revocations(&error))?;
        let revocations = stored.into_iter().map(|stored| stored.revocation);
        self.rights
            .revoke_again(revocations, now)
            .map_err(|error| Failure::new(Exit::Configuration, error.to_string()))
    }

    /// Passes the revocations of a node that was alone before to its cluster, once.
    fn share_revocations(&self, revocation_store: &RevocationStore) -> Result<(), Failure> {
        let now = jwt::now();
        let stored = revocation_store.list(now);
        for stored in stored.map_err(|error| self.broken_revocations(&error))? {
            let what = stored.revocation.what.clone();
            let revoked = self
                .runtime
                .block_on(self.rights.revoke(stored.revocation, now));
            revoked.map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
            let lifted = revocation_store.lift(&what);
            lifted.map_err(|error| self.broken_revocations(&error))?;
        }
        Ok(())
    }

    /// Passes the rules of the node to its cluster, if this has none.
    fn share_rules(&self) -> Result<(), Failure> {
        let Some(rules) = &self.rules else {
            return Ok(());
        };
        let shared = self.runtime.block_on(rules.share_first());
        shared.map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))
    }

    fn admin(&self, revocation_store: Option<Arc<RevocationStore>>) -> Admin {
        Admin {
            status: Arc::clone(&self.front.status),
            auth: Arc::clone(&self.auth),
            revocation_store,
            rights: Arc::clone(&self.rights),
            cluster: self
                .cluster
                .as_ref()
                .map(|cluster| cluster.admin(&self.rights, cluster.keys(&self.auth))),
            reload: Box::new(hang_up),
        }
    }

    fn open_admin(
        &mut self,
        key: admin::Key,
        listener: TcpListener,
        admin: Arc<Admin>,
        is_stopped: &watch::Receiver<bool>,
    ) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "the admin API is listening");
        }
        let server = admin::Server::new(key, admin);
        let task = server.run(listener, is_stopped.clone());
        self.accepting.push(self.runtime.spawn(task));
    }

    fn keep_house(&self, certificate_interval: Option<Duration>, budget: MemoryBudget) {
        let front = Arc::clone(&self.front);
        if let Some(every) = certificate_interval
            && front.tls.is_some()
        {
            self.runtime.spawn(async move {
                let mut interval = tokio::time::interval(every);
                loop {
                    interval.tick().await;
                    front.renew_changed_certificate();
                }
            });
        }
        if let Some(rules) = self.rules.clone() {
            self.runtime.spawn(async move {
                let mut interval = tokio::time::interval(rules_file::CHECK_INTERVAL);
                loop {
                    interval.tick().await;
                    rules.check_file().await;
                }
            });
        }
        self.runtime.spawn(free_memory::give_back(budget));
        let stores = self.stores.healths();
        self.runtime.spawn(async move {
            let mut interval = tokio::time::interval(STORE_INTERVAL);
            loop {
                interval.tick().await;
                stores.iter().for_each(|(_, store)| store.note_slow());
            }
        });
        self.runtime.spawn(async {
            let mut interval = tokio::time::interval(HOUSEKEEPING_INTERVAL);
            loop {
                interval.tick().await;
                sum_peer_lines();
            }
        });
    }

    /// The addresses on which the node listens, with the real port in place of port 0.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The key of the admin page, if the node generated one at its start. Show it only to the operator; it must not reach a log.
    #[must_use]
    pub fn made_key(&self) -> Option<&str> {
        self.made_key.as_deref()
    }

    /// How each shard passed its sends to the kernel at the start, by the number of the shard.
    #[must_use]
    pub fn send_paths(&self) -> &[Path] {
        &self.send_paths
    }

    /// The promise that each store makes for an acknowledged write: first the default store, then the others in order of name.
    pub fn promises(&self) -> impl Iterator<Item = &Promise> {
        self.stores.promises().map(|(_, promise)| promise)
    }

    /// The addresses of the separate TLS port, if there is one.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// The front, for tests that read its counters.
    #[must_use]
    pub fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// The rights of users, for changes to rules and revocations.
    #[must_use]
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// The runtime of the front, which also receives the signals.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The pause before the node joins its cluster again, and how often it was evicted in a row, if it has lost its part. The process must
    /// then be replaced.
    #[must_use]
    pub fn has_to_rejoin(&self) -> Option<(Duration, u32)> {
        let stage = self.cluster.as_ref()?.member().stage();
        match &*stage.borrow() {
            MemberStage::Evicted {
                again_after,
                evictions,
            } => Some((*again_after, *evictions)),
            _ => None,
        }
    }

    /// Why the node can't use the rules of its cluster. It must end then, because clients would be served by older rules.
    #[must_use]
    pub fn unusable_rules(&self) -> Option<String> {
        self.rights.unusable_rules()
    }

    /// Whether a shard has ended by itself, which only a bug can cause.
    #[must_use]
    pub fn has_lost_a_shard(&self) -> bool {
        self.shards.has_lost_one()
    }

    /// Applies the options that do not need a restart, and reads the certificate, the rules and the files of the auth chain
    /// again. The new rules take effect later, which the log reports.
    pub fn reload(&mut self, plan: &Plan) {
        *self.front.settings.write() = ReloadableSettings::new(plan);
        self.drain_timeout = plan.config.drain_timeout;
        self.drain_delay = plan.drain_delay;
        self.front.renew_certificate();
        if let Some(rules) = self.rules.clone() {
            self.runtime.spawn(async move { rules.reload().await });
        }
        for problem in self.auth.reload() {
            tracing::error!(%problem, "could not reload the users; the previous users stay in force");
        }
    }
}

/// The file that the rules come from.
fn rules_file(
    plan: &Plan,
    denials: &Arc<Denials>,
    rights: &Arc<Rights>,
    metrics: &Arc<Metrics>,
) -> Option<Arc<RulesFile>> {
    let Rules::File(path) = &plan.config.permissions else {
        return None;
    };
    let (path, plan, denials) = (path.clone(), plan.clone(), Arc::clone(denials));
    let file = path.clone();
    let compile = Box::new(move |text: &str| permission::of_text(&plan, &denials, text, &file));
    let (rights, metrics) = (Arc::clone(rights), Arc::clone(metrics));
    Some(Arc::new(RulesFile::new(path, compile, rights, metrics)))
}

fn local_addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    let addresses = listeners.iter().map(TcpListener::local_addr);
    addresses.filter_map(Result::ok).collect()
}

/// Hands each connection to the shard that has the fewest connections.
struct FewestConnections(Arc<[ShardHandle]>);

impl HandOver for FewestConnections {
    fn shard_for_exchange(&self) -> Option<ShardHandle> {
        let count = |shard: &&ShardHandle| {
            let connections = &shard.stats().connections;
            connections.load(std::sync::atomic::Ordering::Relaxed)
        };
        self.0.iter().min_by_key(count).cloned()
    }

    fn shard_for(&self, token: &SessionToken) -> Option<ShardHandle> {
        let index = usize::from(token.shard());
        let is_here = self.0.first()?.address().node == token.node();
        let index = match is_here {
            true => index,
            // The requests for a session of another node take one way, so they keep their order.
            false => index % self.0.len(),
        };
        self.0.get(index).cloned()
    }

    fn hand_over(&self, connections: Vec<UpgradedSocket>) {
        let count = |shard: &ShardHandle| {
            let connections = &shard.stats().connections;
            connections.load(std::sync::atomic::Ordering::Relaxed)
        };
        let mut shares: Vec<(u64, Vec<UpgradedSocket>)> = self
            .0
            .iter()
            .map(|shard| (count(shard), Vec::new()))
            .collect();
        for connection in connections {
            if let Some((count, share)) = shares.iter_mut().min_by_key(|(count, _)| *count) {
                *count += 1;
                share.push(connection);
            }
        }
        for (shard, (_, share)) in self.0.iter().zip(shares) {
            if !share.is_empty() {
                shard.hand_over(share);
            }
        }
    }
}

/// Makes `/health` and `/ready` report the state of shards and stores.
fn watch(status: &Status, handles: &[ShardHandle], stores: &[(String, Arc<StoreHealth>)]) {
    for handle in handles {
        let handle = handle.clone();
        status.watch_shard(Box::new(move || handle.since_last_turn()));
    }
    for (name, store) in stores {
        let health = Arc::clone(store);
        status.watch_quota(name.clone(), Box::new(move || health.is_full()));
        let store = Arc::clone(store);
        let failure: StoreFailure = Box::new(move || {
            let error = store.commit_error().or_else(|| store.read_error());
            let slow = || {
                let since = store.unanswered().as_secs_f32();
                let text = || format!("it has not answered for {since:.1} s");
                store.is_slow().then(text)
            };
            error.map(|error| error.to_string()).or_else(slow)
        });
        match name.as_str() {
            DEFAULT_NAME => status.watch_store(failure),
            _ => status.watch_other_store(name.clone(), failure),
        }
    }
}

/// Sends SIGHUP to this process, so that it reads the configuration again.
fn hang_up() -> bool {
    use rustix::process::{Signal, getpid, kill_process};
    kill_process(getpid(), Signal::HUP).is_ok()
}

/// Makes `/ready` report the troubles of the auth chain.
fn watch_auth(status: &Status, auth: &Arc<AuthChain>) {
    let auth = Arc::clone(auth);
    status.watch_auth(Box::new(move || {
        let troubles = auth.troubles().into_iter();
        let reasons = troubles.map(
            |Trouble {
                 code,
                 text,
                 is_blocking,
             }| { (Reason { code, text }, is_blocking) },
        );
        reasons.collect()
    }));
}

/// An unpredictable number from the system.
fn random() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| {
        Failure::new(
            Exit::Bug,
            format!("the system has no random numbers: {error}"),
        )
    })
}

fn bug(what: &str, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Bug,
        format!("{what}: {error}; raise the limits of the process"),
    )
}

/// Listens on all addresses. Port 0 becomes the same free port on all of them.
fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, Failure> {
    let mut attempt = 1;
    loop {
        match listen_once(addresses) {
            Err((_, error))
                if error.kind() == io::ErrorKind::AddrInUse
                    && attempt < FREE_PORT_ATTEMPTS
                    && addresses.iter().any(|address| address.port() == 0) =>
            {
                attempt += 1;
            }
            Err((address, error)) => return Err(unusable(address, &error)),
            Ok(listeners) => return Ok(listeners),
        }
    }
}

fn listen_once(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut port = None;
    for address in addresses {
        let mut address = *address;
        if address.port() == 0 {
            address.set_port(port.unwrap_or(0));
        }
        match accept::listen(address) {
            Ok(listener) => {
                port = listener.local_addr().ok().map(|bound| bound.port());
                listeners.push(listener);
            }
            // The default is both loopback addresses, and some machines have no IPv6.
            Err(error)
                if is_missing(&error) && address.ip().is_loopback() && !listeners.is_empty() =>
            {
                tracing::warn!(%address, "does not listen on this address: the machine does not have it");
            }
            Err(error) => return Err((address, error)),
        }
    }
    Ok(listeners)
}

fn is_missing(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family)
}

fn unusable(address: SocketAddr, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::AddrInUse {
        let reason = port_holder(address.port()).map_or_else(
            || "another process uses the port; stop it".to_owned(),
            |holder| format!("{holder} uses the port; stop it"),
        );
        let line =
            format!("can't listen on {address}: {reason}, or choose another port with --port");
        return Failure::new(Exit::Address, line);
    }
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "choose a port above 1023 with --port, or give the process CAP_NET_BIND_SERVICE"
        }
        _ => "choose an address of this machine with --host",
    };
    Failure::new(
        Exit::Address,
        format!("can't listen on {address}: {error}; {advice}"),
    )
}
