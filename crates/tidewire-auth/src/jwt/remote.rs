//! The keys of an issuer: fetched, kept, renewed when a token names one that is not there, and kept within a bound while
//! the issuer is down.
//!
//! One fetch is under way at most, and between two is a pause whatever tokens name, so nobody can use this server to flood
//! the issuer.

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

/// What OpenID Connect Discovery section 4 appends to the issuer.
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Where the keys are.
#[derive(Clone, Debug)]
pub enum Address {
    /// At this address.
    Keys(Url),
    /// Where the issuer's configuration says.
    Discovery {
        /// The issuer as it calls itself.
        issuer: String,
        /// Its configuration.
        url: Url,
    },
}

impl Address {
    /// The configuration of an issuer.
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

/// Times of the renewal.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two renewals while all is well.
    pub refresh_interval: Duration,
    /// Between two fetches at least.
    pub pause: Duration,
    /// How long keys are used after they were fetched.
    pub age_max: Duration,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Fetches.
    pub fetches: Counter,
    /// Those that failed.
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

/// What the keys are now.
#[derive(Clone, Debug)]
pub struct Known {
    /// Those that may be used; none when they are too old.
    pub keys: Option<Arc<KeySet>>,
    /// Whether the last fetch failed, so that a key that is not there may exist all the same.
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
    /// Nothing is fetched yet.
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

    /// What is known without asking.
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

    /// What is known after asking the issuer, if that may be asked again already. Whoever comes while somebody else asks
    /// waits for that answer.
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

    /// Why logins may fail, if they may, and whether they certainly do.
    #[must_use]
    pub fn failure(&self) -> Option<(String, bool)> {
        let failure = self.state.read().failure.clone()?;
        Some((failure, self.known().keys.is_none()))
    }

    /// Renews the keys for ever.
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
                    tracing::info!("the issuer's keys can be read again");
                }
                state.fetched_at = state.attempted_at;
                state.keys = Arc::new(keys);
            }
            Err(failure) => {
                self.counts.failures.inc();
                if state.failure.is_none() {
                    tracing::warn!(
                        failure = failure.as_str(),
                        "the issuer's keys can't be read; known ones are used for auth.jwt.keys_age_max"
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
            true => Err("the answer has no key that can be used".into()),
            false => Ok(set),
        }
    }
}

/// Where the configuration of an issuer says that its keys are.
fn discovered(configuration: &Value, issuer: &str) -> Result<Url, String> {
    let text = |name: &str| configuration.get(name).and_then(Value::as_str);
    // Section 4.3: else somebody who can answer for one path of a host could speak for another issuer on it.
    if text("issuer") != Some(issuer) {
        return Err(
            "the configuration is of another issuer; auth.jwt.issuer must be as it calls itself"
                .into(),
        );
    }
    let keys = text("jwks_uri").ok_or("the configuration has no jwks_uri")?;
    outbound_url(keys)
}
