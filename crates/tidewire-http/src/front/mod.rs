//! The front: accepts sockets, performs TLS handshakes, answers HTTP requests, and hands upgraded WebSockets to the shards.
//!
//! It runs on tokio with hyper. After the upgrade of a connection, its shard owns the socket and the front does no more work
//! for it.

pub mod accept;
pub mod client_address;
mod exchange;
pub mod fast_upgrade;
pub mod handshake;
pub mod http;
mod http2;
pub mod page;
pub mod proxy_protocol;
pub mod tls;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use hyper::Request;
use tidewire_config::machine::connections_allowed;
use tidewire_config::plan::{Plan, path_options};
use tidewire_config::section::{Config, StoreKind};
use tidewire_config::value::Auto;
use tidewire_core::namespace::covers;
use tidewire_shard::connection_limiter::{ConnectionLimiter, Counted};
use tidewire_shard::handle::HandOver;
use tidewire_shard::peer_log::peer_line;
use tidewire_shard::share::Shares;
use tidewire_wire::protocol::{Paths, Protocol};

use crate::admin::page::Page;
use crate::api::{Api, HttpResponse};
use crate::denials::Denials;
use crate::metrics::Metrics;
use crate::origin::OriginCheck;
use crate::site::{self, Mounted};
use crate::status::Status;
use client_address::Proxies;
use http2::Http2Limits;
use tls::Tls;

/// The settings that SIGHUP may change.
#[derive(Clone, Debug, Default)]
pub struct ReloadableSettings {
    /// Which pages and names are served.
    pub origin_check: OriginCheck,
    /// Which proxies the server trusts to report a client's address.
    pub proxies: Proxies,
    /// Whether other machines may read `/metrics`.
    pub metrics_public: bool,
    /// Whether other machines may read the reasons of `/ready`.
    pub reasons_public: bool,
}

impl ReloadableSettings {
    /// The settings that the configuration requests.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let network = &plan.config.network;
        Self {
            origin_check: OriginCheck {
                is_development: plan.is_development,
                is_open_loopback: plan.is_open_loopback,
                origins: network.origins.to_vec(),
                hosts: network.hosts.to_vec(),
            },
            proxies: Proxies {
                trusted: network.trusted_proxies.to_vec(),
                header: network.forwarded_header,
            },
            metrics_public: plan.config.health.metrics_public,
            reasons_public: plan.config.health.reasons_public,
        }
    }
}

/// The paths of WebSockets, each with its protocol.
fn paths(config: &Config) -> Vec<(String, Protocol)> {
    let paths_of = |protocol: &Protocol| match protocol.paths() {
        Paths::Fixed(paths) => paths.iter().map(|path| String::from(*path)).collect(),
        Paths::Option(name) => option_paths(config, name),
    };
    // A protocol whose sessions only backends serve has paths if they do.
    let is_served = |namespace| {
        let mut served = config.backend.namespaces.iter();
        served.any(|pattern| covers(pattern, namespace))
    };
    let all = Protocol::ALL.iter();
    let all = all.filter(|protocol| protocol.opens().is_none_or(is_served));
    all.flat_map(|protocol| {
        paths_of(protocol)
            .into_iter()
            .map(move |path| (path, *protocol))
    })
    .collect()
}

/// The paths in an option that a protocol declares.
fn option_paths(config: &Config, name: &str) -> Vec<String> {
    let mut options = path_options(config).into_iter();
    let found = options.find(|(option, _)| *option == name);
    found.map_or_else(Vec::new, |(_, paths)| paths.to_vec())
}

/// The address has reached `limits.connections_per_address_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// State that all connections of the front share.
pub struct Front {
    /// Paths of WebSockets, each with the protocol that the WebSockets speak.
    pub paths: Vec<(String, Protocol)>,
    /// Whether the server accepts offers of permessage-deflate.
    pub takes_deflate: bool,
    /// Whether this is development mode.
    pub is_development: bool,
    /// Web pages that the main port serves.
    pub sites: Vec<Mounted>,
    /// Where the server keeps records. `/ready` reports it, so that an operator does not mistake a memory store for a disk
    /// store.
    pub store: StoreKind,
    /// Whether each connection must begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// Time limit for the head of a request.
    pub head_timeout: Duration,
    /// Size limit of a request's head, in bytes.
    pub head_bytes_max: usize,
    /// How long a connection that is not upgraded may last.
    pub connection_timeout: Duration,
    /// The limits of one HTTP/2 connection.
    pub http2: Http2Limits,
    /// Permits of the bytes of bodies with messages of sessions.
    pub bodies: Arc<Shares>,
    /// Time for such a body to arrive.
    pub body_timeout: Duration,
    /// The settings that SIGHUP may change.
    pub settings: RwLock<ReloadableSettings>,
    /// Whether accepting is paused because no file descriptor is free.
    pub is_paused: AtomicBool,
    /// When the log last reported such a pause.
    pub pause_logged: Mutex<Option<Instant>>,
    /// The permits of open connections, and the file descriptors.
    pub connection_limiter: Arc<ConnectionLimiter>,
    /// The state of the node.
    pub status: Arc<Status>,
    /// The metrics of the node.
    pub metrics: Arc<Metrics>,
    /// TLS settings and certificate; `None` if TLS is off.
    pub tls: Option<Arc<Tls>>,
    /// How long browsers must use only TLS for this host; `None` sends no such header.
    pub hsts_max_age: Option<Duration>,
    /// The shards.
    pub shards: Arc<dyn HandOver>,
    /// The HTTP API; `None` if `http.api` is off.
    pub api: Option<Arc<Api>>,
    /// The last denials by rules, which `/denials` shows in development mode.
    pub denials: Arc<Denials>,
    /// Notified when `/crash` wants the process to end without a stop, which only development mode has.
    pub crash: Notify,
    /// The admin page, if it is enabled. It is set before the front accepts the first connection.
    pub admin_page: OnceLock<Page>,
}

/// The web pages that the main port serves.
fn sites(plan: &Plan) -> Vec<Mounted> {
    let docs = plan.has_docs.then(|| Mounted::new("/docs/", &site::DOCS));
    let has_client = plan.config.pages.client;
    let client = has_client.then(|| Mounted::new("/", &site::CLIENT));
    let demo = plan.has_demo.then(|| Mounted::new("/", &site::DEMO));
    docs.into_iter().chain(client).chain(demo).collect()
}

impl Front {
    /// A front with the settings of the plan; it accepts nothing yet.
    #[must_use]
    pub fn new(
        plan: &Plan,
        tls: Option<Arc<Tls>>,
        status: Arc<Status>,
        metrics: Arc<Metrics>,
        shards: Arc<dyn HandOver>,
        api: Option<Arc<Api>>,
        denials: Arc<Denials>,
    ) -> Arc<Self> {
        let descriptors = usize::try_from(connections_allowed(plan.shards))
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS);
        let open_max = match plan.config.limits.connections_max {
            Auto::Auto => descriptors,
            Auto::Set(count) => count,
        };
        Arc::new(Self {
            paths: paths(&plan.config),
            takes_deflate: plan.config.compression.enabled,
            is_development: plan.is_development,
            sites: sites(plan),
            store: plan.config.store.kind,
            proxy_protocol: plan.config.network.proxy_protocol,
            head_timeout: plan.config.http.head_timeout,
            head_bytes_max: plan.config.http.head_bytes_max.as_usize(),
            connection_timeout: plan.config.http.connection_timeout,
            http2: Http2Limits::new(plan),
            bodies: Shares::new(plan.config.http.bodies_bytes_max.as_usize()),
            body_timeout: plan.config.http.body_timeout,
            settings: RwLock::new(ReloadableSettings::new(plan)),
            connection_limiter: ConnectionLimiter::new(
                open_max,
                plan.config.limits.connections_per_address_max,
                descriptors,
            ),
            is_paused: AtomicBool::new(false),
            pause_logged: Mutex::new(None),
            status,
            metrics,
            tls,
            hsts_max_age: plan.config.tls.hsts_max_age.time(),
            shards,
            api,
            denials,
            crash: Notify::new(),
            admin_page: OnceLock::new(),
        })
    }

    /// The protocol that the WebSockets of this path speak; `None` if this is not a WebSocket path.
    #[must_use]
    pub fn protocol(&self, path: &str) -> Option<Protocol> {
        let mut paths = self.paths.iter();
        let found = paths.find(|(known, _)| known == path);
        found.map(|(_, protocol)| *protocol)
    }

    /// The answer to a request for a web page; `None` if no site has this path.
    fn page<B>(&self, request: &Request<B>) -> Option<HttpResponse> {
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        let mut sites = self.sites.iter();
        sites.find_map(|site| site.answer(method, path, headers))
    }

    /// Counts a connection at its address. Returns `Ok(None)` for a trusted proxy, because there each client is counted
    /// instead.
    ///
    /// # Errors
    /// `limits.connections_per_address_max` is reached; the refusal has been logged and counted.
    pub fn count(&self, address: IpAddr) -> Result<Option<Counted>, TooMany> {
        if self.settings.read().proxies.trusts(address) {
            return Ok(None);
        }
        let counted = self.connection_limiter.count(address);
        if counted.is_none() {
            self.metrics.address_refusals.inc();
            peer_line("connections of one address refused", || {
                tracing::warn!(
                    %address,
                    "connection refused: limits.connections_per_address_max is reached; if this is a proxy, add it to \
                     network.trusted_proxies"
                );
            });
        }
        counted.map(Some).ok_or(TooMany)
    }

    /// Reads the certificate again. If it is not valid, the old one stays in use, and the log and a metric report that.
    pub fn renew_certificate(&self) {
        let Some(tls) = &self.tls else { return };
        match tls.reload() {
            Ok(()) => {
                self.metrics.tls_certificate_reloads.inc();
                self.metrics.tls_certificate_stale.set(0);
                tracing::info!("the certificate was reloaded; new handshakes use it");
            }
            Err(problem) => {
                self.metrics.tls_certificate_stale.set(1);
                tracing::error!(%problem, "the certificate can't be reloaded; handshakes keep using the previous one");
            }
        }
    }

    /// Reads the certificate again if its files have changed since the last read.
    pub fn renew_changed_certificate(&self) {
        if self.tls.as_ref().is_some_and(|tls| tls.has_changed_files()) {
            self.renew_certificate();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_config::value::List;

    use super::*;

    #[test]
    fn each_protocol_has_paths_by_default() {
        let mut config = Config::default();
        let without_backends = paths(&config);
        config.backend.namespaces = List(vec!["/*".into()]);
        let with_backends = paths(&config);
        for protocol in Protocol::ALL {
            for (paths, has_backends) in [(&without_backends, false), (&with_backends, true)] {
                let has_paths = paths.iter().any(|(_, of)| of == protocol);
                let expected = protocol.opens().is_none() || has_backends;
                assert_eq!(has_paths, expected, "{protocol:?} {paths:?}");
            }
        }
    }
}
