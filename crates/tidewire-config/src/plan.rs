//! Consequences of the options: addresses, development mode, shards, memory, and refusals.

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

/// The share of memory that the cache may take, and that all data held for connections may take in addition.
const MEMORY_SHARE: u64 = 8;
/// The front has one thread for this many processors; the other processors are the shards'.
const FRONT_SHARE: u16 = 4;
/// The most that the cache takes for each shard when no option sets its size.
const CACHE_BYTES_PER_SHARD: u64 = 64 << 20;
/// The cache of records is at most this part of a memory budget that was configured.
const BUDGET_PER_CACHE: u64 = 16;
/// The drain delay where load balancers may be in front of the server.
const PUBLIC_DRAIN_DELAY: Duration = Duration::from_secs(5);
/// Browsers with cookies need about this much.
const HEAD_BYTES_MIN: ByteCount = ByteCount(8 << 10);
/// Bytes that fit into an entry of PostgreSQL's index of names.
const POSTGRES_NAME_BYTES_MAX: u64 = 2_600;
/// Bytes of a value that fit into a document of MongoDB along with the name and the rest of a record.
const MONGODB_VALUE_BYTES_MAX: u64 = 15 << 20;
/// Where the demo connects, as every client of ours does without an address.
const DEMO_PATH: &str = "/deepstream";
/// Owners of names are numbered with 16 bits; more shards than this only cost memory.
const SHARDS_MAX: u16 = 1024;

/// The protocols that the peers of a listener may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP in the clear.
    Clear,
    /// TLS.
    Tls,
    /// Either; the first byte tells which.
    Both,
}

/// Everything that was worked out before anything is opened.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options.
    pub config: Config,
    /// Whether this is development mode.
    pub is_development: bool,
    /// Whether all addresses are loopback addresses and every client may log in.
    pub is_open_loopback: bool,
    /// Whether the demo is served.
    pub has_demo: bool,
    /// Whether the documentation is at `/docs/`.
    pub has_docs: bool,
    /// Where to listen; the port may be 0.
    pub addresses: Vec<SocketAddr>,
    /// Additional addresses where the server speaks TLS, if TLS has a separate port.
    pub tls_addresses: Vec<SocketAddr>,
    /// Protocols that the server speaks on `addresses`.
    pub speaks: Speaks,
    /// How many shards.
    pub shards: u16,
    /// Bytes of clean records in memory, all shards together.
    pub cache_bytes_max: u64,
    /// Bytes held for all connections together, and in records.
    pub memory_bytes_max: u64,
    /// How long `/ready` says no before connections are refused.
    pub drain_delay: Duration,
    /// How the admin page is, and with which key.
    pub admin_page: AdminPage,
    /// Where the admin API listens, if it is on.
    pub admin_address: Option<SocketAddr>,
    /// The ways to authenticate that are in effect; never empty.
    pub auth_chain: Vec<AuthKind>,
    /// Threads of the front and the side doors.
    pub front_threads: usize,
    /// Passwords that are hashed at the same time.
    pub hashing_max: usize,
}

/// Works out what the options mean on this machine.
///
/// # Errors
/// Options that contradict each other or name what does not exist. Never empty.
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
    let lets_everybody_in = auth_chain.contains(&AuthKind::Open);
    if lets_everybody_in && !is_loopback && !config.auth.open_on_public_address {
        refuse(
            "network.host",
            "other machines can reach this address and everybody may log in; set auth.chain to [file], listen on \
             127.0.0.1, or set auth.open_on_public_address to true"
                .into(),
        );
    }
    if auth_chain.contains(&AuthKind::File) && config.auth.file.path.0.is_none() {
        refuse(
            "auth.chain",
            "`file` needs auth.file.path, the file with the users".into(),
        );
    }
    if auth_chain.contains(&AuthKind::Tls) && config.tls.client_ca.0.is_none() {
        refuse(
            "auth.chain",
            "`tls` needs tls.client_ca, the file with the authorities of client certificates"
                .into(),
        );
    }
    let keeps_users = auth_chain.contains(&AuthKind::Store);
    let store = &config.auth.store;
    if store.sign_up && !keeps_users {
        refuse(
            "auth.store.sign_up",
            "who signs up is a user of the store; add `store` to auth.chain".into(),
        );
    }
    if store.sign_up && auth_chain.len() > 1 && store.user_prefix.is_empty() {
        refuse(
            "auth.store.sign_up",
            "whoever signs up could take the name of somebody that another member of auth.chain lets in; set \
             auth.store.user_prefix"
                .into(),
        );
    }
    if config.auth.session_lifetime == Limited::After(Duration::ZERO) {
        refuse(
            "auth.session_lifetime",
            "a time above 0 is needed, or `never`".into(),
        );
    }
    if config.event.history_sweep_interval == Limited::After(Duration::ZERO) {
        refuse(
            "event.history_sweep_interval",
            "a time above 0 is needed, or `never`".into(),
        );
    }
    let knows_users = auth_chain.iter().any(|kind| *kind != AuthKind::Open);
    if knows_users && config.permissions == Rules::None {
        refuse(
            "permissions",
            "no permission rules: set `permissions`, or `permissions: allow_all` by name".into(),
        );
    }
    let (paths, json_paths) = (&config.network.paths, &config.network.json_paths);
    for (option, paths) in [("network.paths", paths), ("network.json_paths", json_paths)] {
        for path in paths.iter() {
            if !path.starts_with('/') || path.contains(['?', '#']) {
                refuse(
                    option,
                    format!("{path:?} is no path; it begins with / and has no ? or #"),
                );
            }
        }
    }
    if let Some(path) = json_paths.iter().find(|path| paths.contains(path)) {
        refuse(
            "network.json_paths",
            format!("{path:?} is in network.paths, too; a path speaks one protocol"),
        );
    }
    if config.network.paths.is_empty() {
        refuse(
            "network.paths",
            "at least one path is needed, as [/deepstream]".into(),
        );
    }
    for origin in config.network.origins.iter() {
        if let Err(reason) = check_origin(origin) {
            refuse("network.origins", reason);
        }
    }
    if config.network.proxy_protocol && config.network.trusted_proxies.is_empty() {
        refuse(
            "network.proxy_protocol",
            "somebody has to be believed; set network.trusted_proxies to the addresses of the load balancers".into(),
        );
    }
    if config.limits.connections_per_address_max == Auto::Set(0) {
        refuse(
            "limits.connections_per_address_max",
            "a number from 1 is needed, or `auto`".into(),
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
        refuse("admin.sessions_max", "a number from 1 is needed".into());
    }
    let shards = config.shards.or_else(|| machine.processors.min(SHARDS_MAX));
    if shards == 0 || shards > SHARDS_MAX {
        refuse(
            "shards",
            format!("a number from 1 to {SHARDS_MAX} is needed"),
        );
    }
    if config.http.head_bytes_max < HEAD_BYTES_MIN {
        refuse("http.head_bytes_max", "at least 8KiB are needed".into());
    }
    if config.http.bodies_bytes_max < config.http.body_bytes_max {
        refuse(
            "http.bodies_bytes_max",
            "at least http.body_bytes_max is needed, or no such body is ever taken".into(),
        );
    }
    if !config.traces.endpoint.is_empty()
        && let Err(reason) = outbound_url(&config.traces.endpoint)
    {
        refuse("traces.endpoint", reason);
    }
    if config.traces.queue_max == 0 {
        refuse("traces.queue_max", "a number from 1 is needed".into());
    }
    for (option, reason) in store_problems(&config) {
        refuse(&option, reason);
    }
    let marks = config.limits.outbox_marks();
    if marks.lagging_bytes > marks.bytes_max {
        refuse(
            "limits.outbox_lagging_bytes",
            "at most limits.outbox_bytes_max makes sense: who has more is disconnected".into(),
        );
    }
    if marks.drained_bytes > marks.lagging_bytes {
        refuse(
            "limits.outbox_drained_bytes",
            "at most limits.outbox_lagging_bytes makes sense: who lags has not drained".into(),
        );
    }
    for (name, time) in positive_times(&config) {
        if time.is_zero() {
            refuse(name, "a time above 0 is needed".into());
        }
    }

    let share = machine.memory_bytes / MEMORY_SHARE;
    let cache = || {
        let bytes = share.min(CACHE_BYTES_PER_SHARD * u64::from(shards));
        // The budget is for what sessions hold; a cache that fills it would leave them no room.
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
        is_open_loopback: is_loopback && lets_everybody_in,
        has_demo: is_development
            && lets_everybody_in
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

/// Protocols of the port of TLS: every protocol by which the server may distinguish its clients.
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

/// Protocols of the main port.
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
        (Some(_), None) => Some((
            "tls.certificate",
            "a certificate needs its key; set tls.key",
        )),
        (None, Some(_)) => Some((
            "tls.key",
            "a key needs its certificate; set tls.certificate",
        )),
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
            "client certificates are shown in TLS; set tls.certificate and tls.key",
        )),
        _ if tls.client_certificates == ClientCertificates::Required
            && tls.client_ca.0.is_none() =>
        {
            Some((
                "tls.client_certificates",
                "somebody must have issued them; set tls.client_ca",
            ))
        }
        _ if tls.reload_interval == Limited::After(Duration::ZERO) => Some((
            "tls.reload_interval",
            "a time above 0 is needed, or `never`",
        )),
        _ if tls.port == Auto::Set(config.network.port) && config.network.port != 0 => Some((
            "tls.port",
            "that is network.port; leave tls.port at auto for TLS there, or choose another",
        )),
        _ => None,
    }
}

/// Problem with the options that say how the server reads stored records to find damage.
fn scrub_problem(store: &Store) -> Option<(&'static str, String)> {
    if store.scrub_interval == Limited::After(Duration::ZERO) {
        let reason = "a time above 0 is needed, or `never`";
        return Some(("store.scrub_interval", reason.into()));
    }
    let reason = "a size above 0 is needed; store.scrub_interval: never reads nothing";
    (store.scrub_bytes_per_second.0 == 0).then(|| ("store.scrub_bytes_per_second", reason.into()))
}

/// Problems with the options that say where the server keeps records.
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
            let reason = "a time above 0 is needed".into();
            problems.push((join(&section, "timeout"), reason));
        }
    }
    problems.extend(quota_problem(config));
    problems
}

/// Whether a quota is set that no store keeps.
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
    let reason = "only stores of the kind sqlite have quotas; limit the others on their servers";
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
        let reason = format!("the address of the server is needed, as {example}");
        return Some((option, reason));
    }
    if has_password(url) {
        let reason = "an address is shown in many places; put the password into the option \
            `password` beside it, or better into a file or the environment";
        return Some((option, reason.into()));
    }
    let name_bytes_max = config.limits.name_bytes_max.0;
    if store.kind == StoreKind::Postgres && name_bytes_max > POSTGRES_NAME_BYTES_MAX {
        let reason =
            format!("PostgreSQL's index takes names of at most {POSTGRES_NAME_BYTES_MAX} bytes");
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
        let reason = format!("a document of MongoDB takes values of at most {mebibytes} MiB");
        return Some((option, reason));
    }
    None
}

/// Whether an address has a password, before its host or among its parameters.
pub fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let in_authority = authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    in_authority || url.contains("password=")
}

/// Times that make no sense as 0.
fn positive_times(config: &Config) -> [(&'static str, Duration); 22] {
    [
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
                    format!("{host:?} is no address of a host: {error}"),
                ));
            }
        }
    }
    if network.host.is_empty() {
        let origin = format!("network.host ({})", loaded.origin("network.host"));
        problems.push(Problem::new(
            origin,
            "at least one address is needed, as 127.0.0.1",
        ));
    }
    addresses.into_iter().collect()
}

/// How the admin page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminPage {
    /// The server has no admin page.
    Off,
    /// It takes the key of the options.
    Configured,
    /// It takes a key that is made at the start.
    Random,
}

impl AdminPage {
    /// Whether there is one.
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

/// Where the admin API listens, if it has a key.
fn admin_address(config: &Config) -> Result<Option<SocketAddr>, String> {
    let admin = &config.admin;
    if admin.key.0.is_empty() && admin.key_file.0.is_none() {
        return Ok(None);
    }
    match admin.host.parse::<IpAddr>() {
        Ok(address) if is_loopback(address) => Ok(Some(SocketAddr::new(address, admin.port))),
        _ => Err(format!(
            "{:?} is no loopback address, as 127.0.0.1 and ::1 are; the admin API is not encrypted",
            admin.host
        )),
    }
}

/// Whether only this machine can reach the address.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// An origin is scheme and host, maybe a port, as a browser sends it; or `*`.
fn check_origin(origin: &str) -> Result<(), String> {
    let wrong = || {
        Err(format!(
            "{origin:?} is no origin; write it as https://app.example.com, without a path"
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
                let told = refused(&[kind, (option, &wrong)]);
                assert!(told.contains(option) && !told.contains("hunter2"), "{told}");
            }
        }
        let long = ("limits.name_bytes_max", "4KiB");
        let postgres = ("store.kind", "postgres");
        let url = ("store.postgres.url", "postgresql://a@db/b");
        let told = refused(&[postgres, url, long]);
        assert!(told.contains("limits.name_bytes_max"), "{told}");
        let mongodb = ("store.kind", "mongodb");
        let url = ("store.mongodb.url", "mongodb://db/b");
        for option in ["limits.record_bytes_max", "limits.message_bytes_max"] {
            let told = refused(&[mongodb, url, (option, "16MiB")]);
            assert!(told.contains(option), "{told}");
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
            "everybody may log in",
        );
        check(
            &[("network.host", "0.0.0.0"), ("auth.chain", "open")],
            "network.host",
            "everybody",
        );
        check(
            &[("network.host", "0.0.0.0"), ("dev", "true")],
            "network.host",
            "everybody",
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
            check(
                &[("auth.chain", chain), users],
                "permissions",
                "`permissions: allow_all` by name",
            );
        }
        check(
            &[("network.paths", "deepstream")],
            "network.paths",
            "begins with /",
        );
        check(&[("network.paths", "")], "network.paths", "at least one");
        check(
            &[("network.json_paths", "/a?b")],
            "network.json_paths",
            "no path",
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
            "no origin",
        );
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
    }

    #[test]
    fn the_machine_decides_what_nobody_says() {
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
