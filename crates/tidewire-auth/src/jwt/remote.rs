//! The keys of an issuer: fetched, cached, and renewed when a token names an unknown key. If the issuer is down, the cached keys
//! stay in use for a limited time.
//!
//! At most one fetch is in progress, and a minimum pause follows each fetch, whatever keys the tokens name. So clients can't use
//! this server to flood the issuer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use reqwest::{Client, Url};
use serde_json::Value;
use tidewire_config::outbound_url::outbound_url;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::key::{self, KeySet, Source};
use crate::outbound;

/// The path that OpenID Connect Discovery, section 4, appends to the issuer.
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// The location of the keys.
#[derive(Clone, Debug)]
pub enum Address {
    /// The keys are at this address.
    Keys(Url),
    /// The issuer's configuration has the address.
    Discovery {
        /// The exact name of the issuer.
        issuer: String,
        /// The address of its configuration.
        url: Url,
    },
}

impl Address {
    /// The location of an issuer's configuration.
    ///
    /// # Errors
    /// See [`outbound_url`].
    pub fn discovery(issuer: &str) -> Result<Self, String> {
        let url = outbound_url(&format!("{}{DISCOVERY_PATH}", issuer.trim_end_matches('/')))?;
        Ok(Self::Discovery {
            issuer: issuer.to_owned(),
            url,
        })
    }
}

/// Intervals of the renewal.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time between two renewals while fetches succeed.
    pub refresh_interval: Duration,
    /// Minimum time between two fetches.
    pub pause: Duration,
    /// Maximum age of keys in use, counted from their fetch.
    pub age_max: Duration,
}

/// Counters of fetches.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// All fetches, including failed ones.
    pub fetches: Counter,
    /// Fetches that failed.
    pub failures: Counter,
}

#[derive(Debug, Default)]
struct State {
    keys: Arc<KeySet>,
    fetched_at: Option<Instant>,
    attempted_at: Option<Instant>,
    /// Why the last fetch failed.
    failure: Option<String>,
}

/// The current keys.
#[derive(Clone, Debug)]
pub struct Known {
    /// The usable keys; `None` if they are too old or were never fetched.
    pub keys: Option<Arc<KeySet>>,
    /// Whether the last fetch failed or none was made, so that an unknown key may exist.
    pub is_stale: bool,
}

/// The keys of an issuer.
#[derive(Debug)]
pub struct Remote {
    address: Address,
    client: Client,
    times: Times,
    state: RwLock<State>,
    fetching: Mutex<()>,
    counts: Counts,
}

impl Remote {
    /// Creates the source without fetching the keys.
    #[must_use]
    pub fn new(address: Address, client: Client, times: Times, counts: Counts) -> Self {
        Self {
            address,
            client,
            times,
            state: RwLock::default(),
            fetching: Mutex::new(()),
            counts,
        }
    }

    /// The current keys, without a fetch.
    #[must_use]
    pub fn known(&self) -> Known {
        let state = self.state.read();
        let is_usable = state
            .fetched_at
            .is_some_and(|at| at.elapsed() <= self.times.age_max);
        Known {
            keys: is_usable.then(|| Arc::clone(&state.keys)),
            is_stale: state.failure.is_some() || state.fetched_at.is_none(),
        }
    }

    /// The current keys after a fetch, unless the pause since the last fetch has not passed. If another caller already fetches,
    /// waits for that result.
    pub async fn renewed(&self) -> Known {
        let before = self.state.read().attempted_at;
        let _turn = self.fetching.lock().await;
        let may_ask = {
            let state = self.state.read();
            let is_unchanged = state.attempted_at == before;
            is_unchanged
                && state
                    .attempted_at
                    .is_none_or(|at| at.elapsed() >= self.times.pause)
        };
        if may_ask {
            self.fetch().await;
        }
        self.known()
    }

    /// The reason of the last failed fetch, and whether all logins fail because no key is usable.
    #[must_use]
    pub fn failure(&self) -> Option<(String, bool)> {
        let failure = self.state.read().failure.clone()?;
        Some((failure, self.known().keys.is_none()))
    }

    /// Renews the keys repeatedly; never returns.
    pub async fn keep_fresh(&self) {
        loop {
            self.renewed().await;
            let is_well = self.state.read().failure.is_none();
            sleep(match is_well {
                true => self.times.refresh_interval,
                false => self.times.pause,
            })
            .await;
        }
    }

    async fn fetch(&self) {
        self.counts.fetches.inc();
        let outcome = self.ask().await;
        let mut state = self.state.write();
        state.attempted_at = Some(Instant::now());
        match outcome {
            Ok(keys) => {
                if state.failure.take().is_some() {
                    tracing::info!("the issuer's keys can be fetched again");
                }
                state.fetched_at = state.attempted_at;
                state.keys = Arc::new(keys);
            }
            Err(failure) => {
                self.counts.failures.inc();
                if state.failure.is_none() {
                    tracing::warn!(
                        failure = failure.as_str(),
                        "the issuer's keys can't be fetched; the known keys stay in use for auth.jwt.keys_age_max"
                    );
                }
                state.failure = Some(failure);
            }
        }
    }

    async fn ask(&self) -> Result<KeySet, String> {
        let keys = match &self.address {
            Address::Keys(url) => url.clone(),
            Address::Discovery { issuer, url } => {
                let found = outbound::json(&self.client, url.clone()).await?;
                discovered(&found, issuer)?
            }
        };
        let set = outbound::json(&self.client, keys).await?;
        let set =
            key::set(&set, Source::Server).map_err(|reason| format!("the answer {reason}"))?;
        match set.0.is_empty() {
            true => Err("the answer has no usable key".into()),
            false => Ok(set),
        }
    }
}

/// The address of the keys in the configuration of an issuer.
fn discovered(configuration: &Value, issuer: &str) -> Result<Url, String> {
    let text = |name: &str| configuration.get(name).and_then(Value::as_str);
    // Section 4.3: without this check, a server of one path of a host could act as another issuer on the same host.
    if text("issuer") != Some(issuer) {
        return Err(
            "the configuration belongs to another issuer; set auth.jwt.issuer to the exact name that the issuer uses"
                .into(),
        );
    }
    let keys = text("jwks_uri").ok_or("the configuration has no jwks_uri")?;
    outbound_url(keys)
}
