//! The settings that follow from the options on this machine (addresses, development mode, shards, memory), and the options that
//! contradict each other.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::layer::{Loaded, Problem};
use super::machine::Machine;
use super::option::join;
use super::outbound_url::outbound_url;
use super::routes;
use super::section::{AuthKind, ClientCertificates, Config, DocsWhen, Store, StoreKind};
use super::stores;
use super::value::{Auto, ByteCount, Limited, Rules};

/// By default the cache may use one part in `MEMORY_SHARE` of the memory, and the data of connections another one.
const MEMORY_SHARE: u64 = 8;
/// The front has one thread for this number of processors.
const FRONT_SHARE: u16 = 4;
/// Maximum bytes of the cache for each shard, if no option sets its size.
const CACHE_BYTES_PER_SHARD: u64 = 64 << 20;
/// If `limits.memory_bytes_max` is set, the cache has at most one part in `BUDGET_PER_CACHE` of it.
const BUDGET_PER_CACHE: u64 = 32;
/// The drain delay if load balancers may be in front of the server.
const PUBLIC_DRAIN_DELAY: Duration = Duration::from_secs(5);
/// Minimum of `http.head_bytes_max`: browsers with cookies need about this size.
const HEAD_BYTES_MIN: ByteCount = ByteCount(8 << 10);
/// Maximum bytes of a name that fits into an entry of PostgreSQL's index of names.
const POSTGRES_NAME_BYTES_MAX: u64 = 2_600;
/// Maximum bytes of a value that fits into a document of MongoDB together with the name and the other fields of a record.
const MONGODB_VALUE_BYTES_MAX: u64 = 15 << 20;
/// Path of the demo's connections. It is the default path of our clients.
const DEMO_PATH: &str = "/deepstream";
/// Maximum number of shards. Owners of names have numbers of 16 bits, and more shards than this would only use memory.
const SHARDS_MAX: u16 = 1024;

/// The protocols of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Unencrypted HTTP.
    Clear,
    /// TLS.
    Tls,
    /// Both. The first byte of a connection shows which one it uses.
    Both,
}

/// The settings of a server, before it opens anything.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options.
    pub config: Config,
    /// Whether the server is in development mode.
    pub is_development: bool,
    /// Whether all addresses are loopback addresses and every login succeeds.
    pub is_open_loopback: bool,
    /// Whether the demo is served.
    pub has_demo: bool,
    /// Whether the documentation is served at `/docs/`.
    pub has_docs: bool,
    /// Addresses to listen on; the port may be 0.
    pub addresses: Vec<SocketAddr>,
    /// Additional addresses where the server speaks TLS, if TLS has a separate port.
    pub tls_addresses: Vec<SocketAddr>,
    /// Protocols that the server speaks on `addresses`.
    pub speaks: Speaks,
    /// Number of shards.
    pub shards: u16,
    /// Maximum bytes of unused records in memory, for all shards together.
    pub cache_bytes_max: u64,
    /// Maximum bytes of all connections and records together.
    pub memory_bytes_max: u64,
    /// Time at a stop in which `/ready` answers 503 before the server refuses connections.
    pub drain_delay: Duration,
    /// Whether the server has an admin page, and the source of its key.
    pub admin_page: AdminPage,
    /// Address of the admin API; `None` if it is off.
    pub admin_address: Option<SocketAddr>,
    /// The authentication types in effect; never empty.
    pub auth_chain: Vec<AuthKind>,
    /// Number of threads of the front and of other asynchronous work.
    pub front_threads: usize,
    /// Maximum number of passwords that are hashed at the same time.
    pub hashing_max: usize,
}

/// Derives the settings of the server from the options and this machine.
///
/// # Errors
/// Options that contradict each other, or name something that does not exist. Never empty.
pub fn plan(loaded: &Loaded, machine: &Machine) -> Result<Plan, Vec<Problem>> {
    let mut problems = Vec::new();
    let config = loaded.config.clone();
    let addresses = addresses(loaded, &mut problems);
    let tls_problem = tls_problem(&config);
    let is_loopback = addresses.iter().all(|address| is_loopback(address.ip()));
    let is_open = config.auth.chain.is_empty();
    let is_development = config.dev.or_else(|| is_open && is_loopback);
    let mut refuse = |option: &str, reason: String| {
        let origin = format!("{option} ({})", loaded.origin(option));
        problems.push(Problem::new(origin, reason));
    };

    if let Some((option, reason)) = tls_problem {
        refuse(option, reason.into());
    }
    let auth_chain = if is_open {
        vec![AuthKind::Open]
    } else {
        config.auth.chain.to_vec()
    };
    let has_open_auth = auth_chain.contains(&AuthKind::Open);
    if has_open_auth && !is_loopback && !config.auth.open_on_public_address {
        refuse(
            "network.host",
            "other machines can reach this address and every login succeeds; set auth.chain to [file], listen on \
             127.0.0.1, or set auth.open_on_public_address to true"
                .into(),
        );
    }
    if auth_chain.contains(&AuthKind::File) && config.auth.file.path.0.is_none() {
        refuse(
            "auth.chain",
            "`file` needs users; set auth.file.path to the file with the users".into(),
        );
    }
    if auth_chain.contains(&AuthKind::Tls) && config.tls.client_ca.0.is_none() {
        refuse(
            "auth.chain",
            "`tls` needs certificate authorities; set tls.client_ca to the file with their certificates"
                .into(),
        );
    }
    let keeps_users = auth_chain.contains(&AuthKind::Store);
    let store = &config.auth.store;
    if store.sign_up && !keeps_users {
        refuse(
            "auth.store.sign_up",
            "sign-up creates users of the store; add `store` to auth.chain".into(),
        );
    }
    if store.sign_up && auth_chain.len() > 1 && store.user_prefix.is_empty() {
        refuse(
            "auth.store.sign_up",
            "a client could sign up under the name of a user of another type in auth.chain; set auth.store.user_prefix"
                .into(),
        );
    }
    if config.auth.session_lifetime == Limited::After(Duration::ZERO) {
        refuse(
            "auth.session_lifetime",
            "0 is not allowed; set a time above 0, or `never`".into(),
        );
    }
    if config.event.history_sweep_interval == Limited::After(Duration::ZERO) {
        refuse(
            "event.history_sweep_interval",
            "0 is not allowed; set a time above 0, or `never`".into(),
        );
    }
    let knows_users = auth_chain.iter().any(|kind| *kind != AuthKind::Open);
    if knows_users && config.permissions == Rules::None {
        refuse(
            "permissions",
            "users may log in, but there are no permission rules; set `permissions` to a file of rules, or to allow_all to allow everything".into(),
        );
    }
    let heartbeat_timeout = config.network.heartbeat_timeout;
    if heartbeat_timeout == Auto::Set(Duration::ZERO) {
        refuse(
            "network.heartbeat_timeout",
            "0 is not allowed; set a time above 0, or `auto`".into(),
        );
    }
    for (option, time) in [
        (
            "network.heartbeat_interval",
            config.network.heartbeat_interval,
        ),
        (
            "network.heartbeat_timeout",
            heartbeat_timeout.or_else(|| Duration::ZERO),
        ),
    ] {
        if time > HEARTBEAT_MAX {
            refuse(option, "the time is too long; set at most 24h".into());
        }
    }
    let (paths, json_paths) = (&config.network.paths, &config.network.json_paths);
    for (option, paths) in path_options(&config) {
        for path in paths {
            if !path.starts_with('/') || path.contains(['?', '#']) {
                refuse(
                    option,
                    format!(
                        "{path:?} is not a path; write it with / at its start, and without ? and #"
                    ),
                );
            }
        }
    }
    if let Some(path) = json_paths.iter().find(|path| paths.contains(path)) {
        refuse(
            "network.json_paths",
            format!(
                "{path:?} is also in network.paths, but a path has one protocol; remove it from one of the two"
            ),
        );
    }
    if config.network.paths.is_empty() {
        refuse(
            "network.paths",
            "the list is empty; set at least one path, as [/deepstream]".into(),
        );
    }
    for origin in config.network.origins.iter() {
        if let Err(reason) = check_origin(origin) {
            refuse("network.origins", reason);
        }
    }
    let own = config.network.namespaces.iter().filter(|it| *it != "/");
    let own = own.map(|namespace| ("network.namespaces", namespace));
    let backed = config.backend.namespaces.iter();
    let backed = backed.map(|namespace| ("backend.namespaces", namespace));
    for (option, namespace) in own.chain(backed) {
        let name = namespace.strip_suffix('*').unwrap_or(namespace);
        if !name.starts_with('/') || name.contains(['*', '#', ',']) {
            refuse(
                option,
                format!(
                    "{namespace:?} is not a namespace; set names as /chat, or /room/* for all names that begin with /room/"
                ),
            );
        }
    }
    if config.network.namespaces.iter().any(|it| it == "/") {
        refuse(
            "network.namespaces",
            "\"/\" is not a namespace for the list, because every client may join it; remove it"
                .into(),
        );
    }
    let has_key = !config.backend.key.0.is_empty() || config.backend.key_file.0.is_some();
    if !config.backend.namespaces.is_empty() && !has_key {
        refuse(
            "backend.namespaces",
            "backend.namespaces requires a key with which backends log in; set backend.key or backend.key_file".into(),
        );
    }
    if config.limits.backend_messages_max == 0 || config.limits.backend_bytes_max.0 == 0 {
        refuse(
            "limits.backend_messages_max",
            "no message could pass to a backend; set limits.backend_messages_max and limits.backend_bytes_max from 1".into(),
        );
    }
    if config.limits.connection_sessions_max == 0 {
        refuse(
            "limits.connection_sessions_max",
            "0 is not allowed; set a number from 1".into(),
        );
    }
    if config.network.proxy_protocol && config.network.trusted_proxies.is_empty() {
        refuse(
            "network.proxy_protocol",
            "network.proxy_protocol requires network.trusted_proxies; list the addresses of your load balancers there".into(),
        );
    }
    if config.limits.connections_per_address_max == Auto::Set(0) {
        refuse(
            "limits.connections_per_address_max",
            "0 is not allowed; set a number from 1, or `auto`".into(),
        );
    }
    let admin_address = match admin_address(&config) {
        Ok(address) => address,
        Err(reason) => {
            refuse("admin.host", reason);
            None
        }
    };
    if config.admin.sessions_max == 0 {
        refuse(
            "admin.sessions_max",
            "0 is not allowed; set a number from 1".into(),
        );
    }
    let shards = config.shards.or_else(|| machine.processors.min(SHARDS_MAX));
    if shards == 0 || shards > SHARDS_MAX {
        refuse(
            "shards",
            format!("the number is out of range; set a number from 1 to {SHARDS_MAX}"),
        );
    }
    if config.http.head_bytes_max < HEAD_BYTES_MIN {
        refuse(
            "http.head_bytes_max",
            "the size is too small; set at least 8KiB".into(),
        );
    }
    if config.http.bodies_bytes_max < config.http.body_bytes_max {
        refuse(
            "http.bodies_bytes_max",
            "the size is too small for one body of http.body_bytes_max; set at least that size"
                .into(),
        );
    }
    if !config.traces.endpoint.is_empty()
        && let Err(reason) = outbound_url(&config.traces.endpoint)
    {
        refuse("traces.endpoint", reason);
    }
    if config.traces.queue_max == 0 {
        refuse(
            "traces.queue_max",
            "0 is not allowed; set a number from 1".into(),
        );
    }
    for (option, reason) in store_problems(&config) {
        refuse(&option, reason);
    }
    if let Some((option, reason)) = cluster_problem(&config) {
        refuse(option, reason);
    }
    let marks = config.limits.outbox_marks();
    if marks.lagging_bytes > marks.bytes_max {
        refuse(
            "limits.outbox_lagging_bytes",
            "a client is disconnected before it lags; set at most limits.outbox_bytes_max".into(),
        );
    }
    if marks.drained_bytes > marks.lagging_bytes {
        refuse(
            "limits.outbox_drained_bytes",
            "a client would stop lagging before it starts; set at most limits.outbox_lagging_bytes"
                .into(),
        );
    }
    for (name, time) in positive_times(&config) {
        if time.is_zero() {
            refuse(name, "0 is not allowed; set a time above 0".into());
        }
    }

    let share = machine.memory_bytes / MEMORY_SHARE;
    let cache = || {
        let bytes = share.min(CACHE_BYTES_PER_SHARD * u64::from(shards));
        // Sessions need most of the budget, so the cache must not fill it.
        match config.limits.memory_bytes_max {
            Auto::Auto => ByteCount(bytes),
            Auto::Set(budget) => ByteCount(bytes.min(budget.0 / BUDGET_PER_CACHE)),
        }
    };
    let drain_delay = || {
        if is_loopback {
            Duration::ZERO
        } else {
            PUBLIC_DRAIN_DELAY
        }
    };
    let cache_bytes_max = config.store.cache.or_else(cache).0;
    let history_bytes_max = match config.event.history.is_empty() {
        true => 0,
        false => config.limits.history_bytes_max.0,
    };
    let plan = Plan {
        is_development,
        is_open_loopback: is_loopback && has_open_auth,
        has_demo: is_development
            && has_open_auth
            && config.pages.demo
            && config.network.paths.iter().any(|path| path == DEMO_PATH),
        has_docs: match config.pages.docs {
            DocsWhen::Development => is_development,
            DocsWhen::Always => true,
            DocsWhen::Never => false,
        },
        admin_page: admin_page(&config, is_development),
        admin_address,
        tls_addresses: tls_addresses(&config, &addresses),
        speaks: speaks(&config),
        addresses,
        shards,
        cache_bytes_max,
        memory_bytes_max: config
            .limits
            .memory_bytes_max
            .or_else(|| {
                let bytes = share.saturating_add(cache_bytes_max);
                ByteCount(bytes.saturating_add(history_bytes_max))
            })
            .0,
        drain_delay: config.drain_delay.or_else(drain_delay),
        auth_chain,
        front_threads: usize::from(machine.processors / FRONT_SHARE).max(1),
        hashing_max: usize::from(machine.processors),
        config,
    };
    problems.extend(routes::problems(loaded));
    if problems.is_empty() {
        Ok(plan)
    } else {
        Err(problems)
    }
}

/// The options with the paths of WebSockets. Each is for one protocol, which knows the name of its option.
#[must_use]
pub fn path_options(config: &Config) -> [(&'static str, &[String]); 2] {
    let network = &config.network;
    [
        ("network.paths", &network.paths),
        ("network.json_paths", &network.json_paths),
    ]
}

/// Protocols that the server speaks on a port with TLS.
fn tls_speaks(config: &Config) -> Speaks {
    if config.tls.allow_clear {
        Speaks::Both
    } else {
        Speaks::Tls
    }
}

impl Plan {
    /// Protocols that the server speaks on `tls_addresses`.
    #[must_use]
    pub fn tls_speaks(&self) -> Speaks {
        tls_speaks(&self.config)
    }
}

/// Protocols that the server speaks on the main port.
fn speaks(config: &Config) -> Speaks {
    match (&config.tls.certificate.0, config.tls.port) {
        (Some(_), Auto::Auto) => tls_speaks(config),
        _ => Speaks::Clear,
    }
}

fn tls_addresses(config: &Config, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let (Some(_), Auto::Set(port)) = (&config.tls.certificate.0, config.tls.port) else {
        return Vec::new();
    };
    let mut addresses = addresses.to_vec();
    addresses
        .iter_mut()
        .for_each(|address| address.set_port(port));
    addresses
}

fn tls_problem(config: &Config) -> Option<(&'static str, &'static str)> {
    let tls = &config.tls;
    match (&tls.certificate.0, &tls.key.0) {
        (Some(_), None) => Some(("tls.certificate", "the certificate has no key; set tls.key")),
        (None, Some(_)) => Some(("tls.key", "the key has no certificate; set tls.certificate")),
        (None, None) if tls.port != Auto::Auto || tls.allow_clear => Some((
            if tls.allow_clear {
                "tls.allow_clear"
            } else {
                "tls.port"
            },
            "TLS needs a certificate; set tls.certificate and tls.key",
        )),
        (None, None) if tls.client_ca.0.is_some() => Some((
            "tls.client_ca",
            "client certificates need TLS; set tls.certificate and tls.key",
        )),
        _ if tls.client_certificates == ClientCertificates::Required
            && tls.client_ca.0.is_none() =>
        {
            Some((
                "tls.client_certificates",
                "client certificates need an authority that issues them; set tls.client_ca",
            ))
        }
        _ if tls.reload_interval == Limited::After(Duration::ZERO) => Some((
            "tls.reload_interval",
            "0 is not allowed; set a time above 0, or `never`",
        )),
        _ if tls.port == Auto::Set(config.network.port) && config.network.port != 0 => Some((
            "tls.port",
            "network.port is the same port; set tls.port to auto for TLS on that port, or choose another one",
        )),
        _ => None,
    }
}

/// Problem with the options of the scrub, which reads stored records to find damage.
fn scrub_problem(store: &Store) -> Option<(&'static str, String)> {
    if store.scrub_interval == Limited::After(Duration::ZERO) {
        let reason = "0 is not allowed; set a time above 0, or `never`";
        return Some(("store.scrub_interval", reason.into()));
    }
    let reason = "0 is not allowed; set a size above 0, or store.scrub_interval to never";
    (store.scrub_bytes_per_second.0 == 0).then(|| ("store.scrub_bytes_per_second", reason.into()))
}

/// Problems with the options of all stores.
fn store_problems(config: &Config) -> Vec<(String, String)> {
    let named = config.stores.iter();
    let named = named.map(|(name, named)| (join(stores::SECTION, name), &named.store));
    let all = std::iter::once(("store".to_owned(), &config.store)).chain(named);
    let mut problems = Vec::new();
    for (section, store) in all {
        let wrong = [scrub_problem(store), store_problem(config, store)];
        for (option, reason) in wrong.into_iter().flatten() {
            let option = match option.split_once('.') {
                Some(("store", key)) => join(&section, key),
                _ => option.to_owned(),
            };
            problems.push((option, reason));
        }
        if section != "store" && store.timeout.is_zero() {
            let reason = "0 is not allowed; set a time above 0".into();
            problems.push((join(&section, "timeout"), reason));
        }
    }
    problems.extend(quota_problem(config));
    problems
}

/// Problem with the options of a cluster.
fn cluster_problem(config: &Config) -> Option<(&'static str, String)> {
    let cluster = &config.cluster;
    if !cluster.enabled {
        let reason = "a server without a cluster has no links; set cluster.enabled to true, or remove the URL";
        return (!cluster.link.0.is_empty()).then(|| ("cluster.link", reason.into()));
    }
    let why = match config.store.kind {
        StoreKind::Postgres | StoreKind::Redis => None,
        StoreKind::Sqlite => Some("an SQLite store belongs to one node"),
        StoreKind::Memory => Some("a store in memory belongs to one node"),
        StoreKind::Mongodb => Some(
            "MongoDB could do late writes of a node that was replaced, and keeps no list of members",
        ),
    };
    if let Some(why) = why {
        let reason = format!(
            "{why}, so it can't be shared; set store.kind to postgres or redis, or cluster.enabled to false"
        );
        return Some(("cluster.enabled", reason));
    }
    if config.stores.iter().next().is_some() {
        let reason = "a cluster has one store, which all nodes share; remove the stores below `stores`, or set cluster.enabled to false";
        return Some(("cluster.enabled", reason.into()));
    }
    if cluster.host.parse::<IpAddr>().is_err() {
        let reason = format!(
            "{:?} is not an address; set 0.0.0.0, or an address of this machine",
            cluster.host
        );
        return Some(("cluster.host", reason));
    }
    if cluster.advertise == Auto::Set(String::new()) {
        return Some((
            "cluster.advertise",
            "the address is empty; set it, or `auto`".into(),
        ));
    }
    None
}

/// Problem with a quota that no store of this configuration can apply.
fn quota_problem(config: &Config) -> Option<(String, String)> {
    let named = config.stores.iter().map(|(_, named)| named.store.kind);
    let mut kinds = std::iter::once(config.store.kind).chain(named);
    if kinds.any(|kind| kind == StoreKind::Sqlite) {
        return None;
    }
    let limits = &config.limits;
    let options = [
        ("limits.store_bytes_max", limits.store_bytes_max),
        ("limits.user_store_bytes_max", limits.user_store_bytes_max),
    ];
    let (option, _) = options.into_iter().find(|(_, bytes)| bytes.0.is_some())?;
    let reason = "no store is of the kind sqlite, and other kinds have no quotas; remove the option, and limit the store on its own server";
    Some((option.to_owned(), reason.to_owned()))
}

/// Problem with one store. Its options have the same names as the options of `store`.
fn store_problem(config: &Config, store: &Store) -> Option<(&'static str, String)> {
    let (url, option, example) = match store.kind {
        StoreKind::Sqlite | StoreKind::Memory => return None,
        StoreKind::Mongodb => (
            &store.mongodb.url,
            "store.mongodb.url",
            "mongodb://user@host:27017/database",
        ),
        StoreKind::Postgres => (
            &store.postgres.url,
            "store.postgres.url",
            "postgresql://user@host:5432/database",
        ),
        StoreKind::Redis => (&store.redis.url, "store.redis.url", "redis://host:6379/0"),
    };
    if url.is_empty() {
        let reason = format!("the address of the server is missing; set it, as {example}");
        return Some((option, reason));
    }
    if has_password(url) {
        let reason = "the address has a password, and logs show addresses; set `password` or `password_file` \
            of the same section instead";
        return Some((option, reason.into()));
    }
    let name_bytes_max = config.limits.name_bytes_max.0;
    if store.kind == StoreKind::Postgres && name_bytes_max > POSTGRES_NAME_BYTES_MAX {
        let reason = format!(
            "the limit is too large for PostgreSQL's index; set at most {POSTGRES_NAME_BYTES_MAX} bytes"
        );
        return Some(("limits.name_bytes_max", reason));
    }
    let values = [
        ("limits.record_bytes_max", config.limits.record_bytes_max.0),
        (
            "limits.message_bytes_max",
            config.limits.message_bytes_max.0,
        ),
    ];
    let too_large = |(_, bytes): &(_, u64)| *bytes > MONGODB_VALUE_BYTES_MAX;
    if store.kind == StoreKind::Mongodb
        && let Some((option, _)) = values.into_iter().find(too_large)
    {
        let mebibytes = MONGODB_VALUE_BYTES_MAX >> 20;
        let reason =
            format!("the limit is too large for a document of MongoDB; set at most {mebibytes}MiB");
        return Some((option, reason));
    }
    None
}

/// Whether an address contains a password, before its host or in its parameters.
pub fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let in_authority = authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    in_authority || url.contains("password=")
}

/// A session has too few bits for longer times.
const HEARTBEAT_MAX: Duration = Duration::from_secs(86_400);

/// Times that must not be 0.
fn positive_times(config: &Config) -> [(&'static str, Duration); 23] {
    [
        ("backend.grace", config.backend.grace),
        ("admin.session_lifetime", config.admin.session_lifetime),
        ("store.timeout", config.store.timeout),
        ("drain_timeout", config.drain_timeout),
        (
            "network.heartbeat_interval",
            config.network.heartbeat_interval,
        ),
        ("http.head_timeout", config.http.head_timeout),
        ("http.connection_timeout", config.http.connection_timeout),
        ("http.body_timeout", config.http.body_timeout),
        ("http.request_timeout", config.http.request_timeout),
        ("record.load_timeout", config.record.load_timeout),
        ("record.write_timeout", config.record.write_timeout),
        ("rpc.accept_timeout", config.rpc.accept_timeout),
        ("rpc.response_timeout", config.rpc.response_timeout),
        ("listen.response_timeout", config.listen.response_timeout),
        (
            "auth.jwt.keys_refresh_interval",
            config.auth.jwt.keys_refresh_interval,
        ),
        (
            "auth.jwt.keys_refresh_pause",
            config.auth.jwt.keys_refresh_pause,
        ),
        ("auth.jwt.keys_age_max", config.auth.jwt.keys_age_max),
        ("auth.jwt.keys_timeout", config.auth.jwt.keys_timeout),
        ("auth.webhook.timeout", config.auth.webhook.timeout),
        ("backoff.wait_min", config.backoff.wait_min),
        ("traces.interval", config.traces.interval),
        ("traces.timeout", config.traces.timeout),
        ("backoff.forgive_interval", config.backoff.forgive_interval),
    ]
}

fn addresses(loaded: &Loaded, problems: &mut Vec<Problem>) -> Vec<SocketAddr> {
    let network = &loaded.config.network;
    let mut addresses = BTreeSet::new();
    for host in network.host.iter() {
        match (host.as_str(), network.port).to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(error) => {
                let origin = format!("network.host ({})", loaded.origin("network.host"));
                problems.push(Problem::new(
                    origin,
                    format!("{host:?} is not an address or a known host name: {error}"),
                ));
            }
        }
    }
    if network.host.is_empty() {
        let origin = format!("network.host ({})", loaded.origin("network.host"));
        problems.push(Problem::new(
            origin,
            "the list is empty; set at least one address, as 127.0.0.1",
        ));
    }
    addresses.into_iter().collect()
}

/// Whether the server has an admin page, and the source of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminPage {
    /// The server has no admin page.
    Off,
    /// The key is that of the options.
    Configured,
    /// The server creates a key at the start.
    Random,
}

impl AdminPage {
    /// Whether the server has an admin page.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}

fn admin_page(config: &Config, is_development: bool) -> AdminPage {
    let admin = &config.admin;
    let has_key = !admin.key.0.is_empty() || admin.key_file.0.is_some();
    match (admin.page, has_key, is_development) {
        (true, true, _) => AdminPage::Configured,
        (true, false, true) => AdminPage::Random,
        _ => AdminPage::Off,
    }
}

/// Address of the admin API; `None` without a key.
fn admin_address(config: &Config) -> Result<Option<SocketAddr>, String> {
    let admin = &config.admin;
    if admin.key.0.is_empty() && admin.key_file.0.is_none() {
        return Ok(None);
    }
    match admin.host.parse::<IpAddr>() {
        Ok(address) if is_loopback(address) => Ok(Some(SocketAddr::new(address, admin.port))),
        _ => Err(format!(
            "{:?} is not a loopback address, but the admin API is not encrypted; set 127.0.0.1 or ::1",
            admin.host
        )),
    }
}

/// Whether only this machine can reach the address.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Checks that an origin has scheme and host, and optionally a port, as a browser sends it; or is `*`.
fn check_origin(origin: &str) -> Result<(), String> {
    let wrong = || {
        Err(format!(
            "{origin:?} is not an origin; write it as https://app.example.com, without a path"
        ))
    };
    if origin == "*" {
        return Ok(());
    }
    match origin.split_once("://") {
        Some((scheme, host))
            if !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '*', '?']) =>
        {
            Ok(())
        }
        _ => wrong(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::{Sources, load};
    use super::*;

    const MACHINE: Machine = Machine {
        processors: 2,
        memory_bytes: 4 << 30,
    };

    fn planned(flags: &[(&str, &str)]) -> Result<Plan, Vec<Problem>> {
        let flags = flags
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let sources = Sources {
            flags: flags.collect(),
            ..Sources::default()
        };
        plan(&load(&sources).expect("the values are right"), &MACHINE)
    }

    #[test]
    fn a_scrub_needs_time_and_bytes() {
        for (option, zero, right) in [
            ("store.scrub_interval", "0s", "never"),
            ("store.scrub_bytes_per_second", "0", "1"),
        ] {
            let Err(problems) = planned(&[(option, zero)]) else {
                panic!("{option}: {zero} is not refused")
            };
            assert!(problems[0].to_string().contains(option), "{problems:?}");
            assert!(planned(&[(option, right)]).is_ok(), "{option}");
        }
    }

    #[test]
    fn a_store_on_a_server_needs_an_address_without_a_password() {
        let refused = |flags: &[(&str, &str)]| match planned(flags) {
            Ok(_) => String::new(),
            Err(problems) => problems[0].to_string(),
        };
        for (kind, option, right) in [
            ("mongodb", "store.mongodb.url", "mongodb://a@db:27017/b"),
            ("postgres", "store.postgres.url", "postgresql://a@db:5432/b"),
            ("redis", "store.redis.url", "rediss://db:6379/0"),
        ] {
            let kind = ("store.kind", kind);
            assert_eq!(refused(&[kind, (option, right)]), "");
            let missing = refused(&[kind]);
            assert!(missing.contains(option), "{missing}");
            for wrong in [
                right.replace("db:", "x:hunter2@db:").replace("a@x", "x"),
                format!("{right}?password=hunter2"),
            ] {
                let refusal = refused(&[kind, (option, &wrong)]);
                assert!(
                    refusal.contains(option) && !refusal.contains("hunter2"),
                    "{refusal}"
                );
            }
        }
        let long = ("limits.name_bytes_max", "4KiB");
        let postgres = ("store.kind", "postgres");
        let url = ("store.postgres.url", "postgresql://a@db/b");
        let refusal = refused(&[postgres, url, long]);
        assert!(refusal.contains("limits.name_bytes_max"), "{refusal}");
        let mongodb = ("store.kind", "mongodb");
        let url = ("store.mongodb.url", "mongodb://db/b");
        for option in ["limits.record_bytes_max", "limits.message_bytes_max"] {
            let refusal = refused(&[mongodb, url, (option, "16MiB")]);
            assert!(refusal.contains(option), "{refusal}");
            assert_eq!(refused(&[mongodb, url, (option, "15MiB")]), "");
        }
    }

    #[test]
    fn development_mode_is_no_authentication_on_loopback() {
        let check = |flags: &[(&str, &str)], expected: bool| {
            let plan = planned(flags).expect("a plan");
            assert_eq!(plan.is_development, expected, "{flags:?}");
        };
        let public = ("network.host", "0.0.0.0");
        let by_name = ("auth.open_on_public_address", "true");
        check(&[], true);
        check(&[("network.host", "localhost")], true);
        check(&[("network.host", "127.0.0.2")], true);
        check(&[("auth.chain", "open")], false);
        check(&[("dev", "false")], false);
        check(&[public, by_name], false);
        check(&[public, by_name, ("dev", "true")], true);
        let rules = ("permissions", "allow_all");
        check(
            &[
                ("auth.chain", "file"),
                ("auth.file.path", "users.yml"),
                rules,
            ],
            false,
        );
        check(
            &[
                rules,
                ("auth.chain", "file"),
                ("auth.file.path", "users.yml"),
                ("dev", "true"),
            ],
            true,
        );
    }

    #[test]
    fn contradictions_are_refused_with_the_option() {
        let check = |flags: &[(&str, &str)], option: &str, part: &str| {
            let problems = planned(flags).expect_err(option);
            let [problem] = &problems[..] else {
                panic!("one problem is expected: {problems:?}")
            };
            assert!(problem.origin.starts_with(option), "{problem}");
            assert!(problem.reason.contains(part), "{problem}");
        };
        check(
            &[("network.host", "0.0.0.0")],
            "network.host (--host)",
            "auth.open_on_public_address",
        );
        check(
            &[("network.host", "::")],
            "network.host",
            "every login succeeds",
        );
        check(
            &[("network.host", "0.0.0.0"), ("auth.chain", "open")],
            "network.host",
            "every login",
        );
        check(
            &[("network.host", "0.0.0.0"), ("dev", "true")],
            "network.host",
            "every login",
        );
        check(&[("network.host", "")], "network.host", "at least one");
        check(
            &[("network.host", "no such host")],
            "network.host",
            "no such host",
        );
        let rules = ("permissions", "allow_all");
        check(
            &[("auth.chain", "file"), rules],
            "auth.chain",
            "auth.file.path",
        );
        check(
            &[("auth.chain", "tls"), rules],
            "auth.chain",
            "tls.client_ca",
        );
        let sign_up = ("auth.store.sign_up", "true");
        check(&[sign_up], "auth.store.sign_up", "auth.chain");
        check(
            &[sign_up, rules, ("auth.chain", "store,open")],
            "auth.store.sign_up",
            "auth.store.user_prefix",
        );
        check(
            &[("auth.session_lifetime", "0s")],
            "auth.session_lifetime",
            "above 0",
        );
        let ca = ("tls.client_ca", "ca.pem");
        check(&[ca], "tls.client_ca", "tls.certificate");
        check(
            &[
                ("tls.client_certificates", "required"),
                ("tls.certificate", "a.pem"),
                ("tls.key", "b.pem"),
            ],
            "tls.client_certificates",
            "tls.client_ca",
        );
        let users = ("auth.file.path", "users.yml");
        for chain in ["file", "open,file", "jwt"] {
            check(&[("auth.chain", chain), users], "permissions", "allow_all");
        }
        check(
            &[("network.heartbeat_interval", "25h")],
            "network.heartbeat_interval",
            "at most 24h",
        );
        for (value, reason) in [("25h", "at most 24h"), ("0s", "above 0")] {
            let option = "network.heartbeat_timeout";
            check(&[(option, value)], option, reason);
        }
        check(
            &[("network.paths", "deepstream")],
            "network.paths",
            "with / at its start",
        );
        check(&[("network.paths", "")], "network.paths", "at least one");
        check(
            &[("network.json_paths", "/a?b")],
            "network.json_paths",
            "not a path",
        );
        check(
            &[("network.paths", "/a, /b"), ("network.json_paths", "/b")],
            "network.json_paths",
            "one protocol",
        );
        check(
            &[("network.origins", "https://a.example/page")],
            "network.origins",
            "without a path",
        );
        check(
            &[("network.origins", "a.example")],
            "network.origins",
            "not an origin",
        );
        for namespace in ["chat", "/", "/a*b", "/a#b", "*"] {
            let option = ("network.namespaces", namespace);
            check(&[option], option.0, "not a namespace");
        }
        let sessions = ("limits.connection_sessions_max", "0");
        check(&[sessions], sessions.0, "from 1");
        check(&[("shards", "0")], "shards (--shards)", "from 1");
        check(
            &[("http.head_bytes_max", "4KiB")],
            "http.head_bytes_max",
            "8KiB",
        );
        check(&[("drain_timeout", "0s")], "drain_timeout", "above 0");
        check(
            &[("network.proxy_protocol", "true")],
            "network.proxy_protocol",
            "network.trusted_proxies",
        );
        check(
            &[("limits.connections_per_address_max", "0")],
            "limits.connections_per_address_max",
            "from 1",
        );
        check(
            &[("http.body_bytes_max", "1GiB")],
            "http.bodies_bytes_max",
            "http.body_bytes_max",
        );
        let cluster = ("cluster.enabled", "true");
        let mongodb = ("store.mongodb.url", "mongodb://user@host:27017/database");
        check(&[cluster], cluster.0, "SQLite");
        check(&[cluster, ("store.kind", "memory")], cluster.0, "memory");
        check(
            &[cluster, mongodb, ("store.kind", "mongodb")],
            cluster.0,
            "postgres or redis",
        );
        let redis = [
            cluster,
            ("store.kind", "redis"),
            ("store.redis.url", "redis://host:6379/0"),
        ];
        let with = |option| [&redis[..], &[option]].concat();
        check(&with(("cluster.host", "node-1")), "cluster.host", "0.0.0.0");
        check(
            &with(("cluster.advertise", "")),
            "cluster.advertise",
            "auto",
        );
        assert!(planned(&redis).is_ok());
        let link = ("cluster.link", "nats://host:4222");
        check(&[link], link.0, "cluster.enabled");
        assert!(planned(&with(link)).is_ok());
    }

    #[test]
    fn unset_options_follow_the_machine() {
        let plan = planned(&[]).expect("a plan");
        assert_eq!(plan.shards, 2);
        assert_eq!(plan.cache_bytes_max, 128 << 20);
        assert_eq!(plan.memory_bytes_max, (512 + 128) << 20);
        assert_eq!(plan.drain_delay, Duration::ZERO);
        let kept = planned(&[("event.history", "news/*")]).expect("a plan");
        assert_eq!(kept.memory_bytes_max, (512 + 128 + 64) << 20);
        assert_eq!(plan.auth_chain, [AuthKind::Open]);
        let public = [
            ("network.host", "0.0.0.0"),
            ("auth.open_on_public_address", "true"),
        ];
        assert_eq!(
            planned(&public).expect("a plan").drain_delay,
            PUBLIC_DRAIN_DELAY
        );
    }
}
