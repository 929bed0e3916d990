//! Authentication with JSON Web Tokens signed with HMAC, RSA, ECDSA or EdDSA. Their claims become the principal.
//!
//! Keys come from the configuration, a file or the issuer (`jwt/remote.rs`). `jwt/token.rs` decides which tokens are accepted.

pub mod key;
pub mod mapping;
pub mod mint;
pub mod remote;
pub mod token;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tidewire_config::Problem;
use tidewire_config::outbound_url::outbound_url;
use tidewire_config::section::AuthJwt;
use tidewire_core::time::WallTime;
use zeroize::Zeroizing;

use self::key::KeySet;
use self::mapping::Mapping;
use self::remote::{Address, Counts, Remote, Times};
use self::token::{Checks, TokenError, Unverified, Verified};
use super::fingerprint::Fingerprint;
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt, Trouble, outbound, reason};

/// Code for a token that is not accepted. Only the log has the exact reason, so an attacker who invents tokens learns nothing.
pub const INVALID_TOKEN: &str = "INVALID_TOKEN";
/// Code for an expired token: the client should get a new one.
pub const TOKEN_EXPIRED: &str = "TOKEN_EXPIRED";
/// Code for a login without a token.
pub const MISSING_TOKEN: &str = "MISSING_TOKEN";
/// The entry of `auth.jwt.audience` that accepts every audience.
pub const ANY_AUDIENCE: &str = "*";

/// Authenticates with tokens.
#[derive(Debug)]
pub struct Jwt {
    options: AuthJwt,
    /// Whether it is the only member of the chain, so that a missing token is an error.
    is_alone: bool,
    local: RwLock<Arc<KeySet>>,
    /// Of the secret and the file of keys; the issuer has the same keys for all nodes.
    fingerprint: RwLock<Fingerprint>,
    remote: Option<Remote>,
    checks: Checks,
    mapping: Mapping,
}

impl Jwt {
    /// Reads the keys of the configuration. The keys of an issuer are fetched later.
    ///
    /// # Errors
    /// A key can't be read or used, or neither a key nor a source of keys is configured.
    pub fn open(
        options: AuthJwt,
        is_alone: bool,
        ca: Option<&Path>,
        counts: Counts,
    ) -> Result<Self, Problem> {
        let (local, fingerprint) = local_keys(&options)?;
        let remote = match address(&options)? {
            None => None,
            Some(address) => {
                let client = outbound::client(options.keys_timeout, ca, 0)
                    .map_err(|reason| Problem::new("auth.ca", reason))?;
                let times = Times {
                    refresh_interval: options.keys_refresh_interval,
                    pause: options.keys_refresh_pause,
                    age_max: options.keys_age_max,
                };
                Some(Remote::new(address, client, times, counts))
            }
        };
        if local.0.is_empty() && remote.is_none() {
            return Err(Problem::new(
                "auth.jwt",
                "no key is configured; set auth.jwt.secret, auth.jwt.key_file, auth.jwt.jwks_url or auth.jwt.discover",
            ));
        }
        let any_audience = options.audience.iter().any(|name| name == ANY_AUDIENCE);
        if remote.is_some() && options.audience.is_empty() {
            return Err(Problem::new(
                "auth.jwt.audience",
                "an issuer makes tokens for other applications too; set auth.jwt.audience to your own audience, or to \"*\" for all",
            ));
        }
        let checks = Checks {
            issuer: Some(options.issuer.clone()).filter(|issuer| !issuer.is_empty()),
            audiences: match any_audience {
                true => Vec::new(),
                false => options.audience.to_vec(),
            },
        };
        Ok(Self {
            mapping: Mapping::new(&options),
            local: RwLock::new(Arc::new(local)),
            fingerprint: RwLock::new(fingerprint),
            remote,
            checks,
            is_alone,
            options,
        })
    }

    async fn decide(&self, attempt: &LoginAttempt) -> AuthDecision {
        let Some(text) = self.token(attempt) else {
            return match self.is_alone {
                true => {
                    attempt.explain("the login has no token");
                    declined(MISSING_TOKEN)
                }
                false => AuthDecision::Unknown,
            };
        };
        match self.verify(&text).await {
            Ok(Some(token)) => match self.mapping.principal(&token) {
                Some(principal) => AuthDecision::Accepted(principal),
                None => {
                    tracing::debug!(
                        claim = self.options.user_claim.as_str(),
                        "a token names no user"
                    );
                    attempt.explain(format!(
                        "the token has no claim {:?} that names a user",
                        self.options.user_claim.as_str()
                    ));
                    declined(INVALID_TOKEN)
                }
            },
            Ok(None) => AuthDecision::Unavailable,
            Err(error) => {
                tracing::debug!(%error, "a token was refused");
                attempt.explain(error.to_string());
                declined(match error {
                    TokenError::Expired => TOKEN_EXPIRED,
                    _ => INVALID_TOKEN,
                })
            }
        }
    }

    /// The token of the login, or of the request that opened the connection. A page of another site can't set the latter.
    fn token(&self, attempt: &LoginAttempt) -> Option<String> {
        let given = attempt.given(&self.options.token_field);
        given.or_else(|| attempt.peer.bearer().map(str::to_owned))
    }

    /// Verifies a token; `None` if the key is unknown and can't be fetched now.
    ///
    /// # Errors
    /// The token is not accepted.
    pub async fn verify(&self, text: &str) -> Result<Option<Verified>, TokenError> {
        let token = token::parse(text, self.options.token_bytes_max.as_usize())?;
        let local = Arc::clone(&*self.local.read());
        let outcome = token.verify(&local, &self.checks, now());
        let Some(remote) = &self.remote else {
            return outcome.map(Some);
        };
        match outcome {
            Err(TokenError::UnknownKey | TokenError::Signature) => {
                self.verify_by_issuer(&token, remote).await
            }
            outcome => outcome.map(Some),
        }
    }

    async fn verify_by_issuer(
        &self,
        token: &Unverified<'_>,
        remote: &Remote,
    ) -> Result<Option<Verified>, TokenError> {
        let try_with = |known: &remote::Known| match &known.keys {
            Some(keys) => token.verify(keys, &self.checks, now()),
            None => Err(TokenError::UnknownKey),
        };
        match try_with(&remote.known()) {
            Err(TokenError::UnknownKey) => {}
            // Without a key id, a wrong signature may mean that the issuer has a new key.
            Err(TokenError::Signature) if token.key_id.is_none() => {}
            outcome => return outcome.map(Some),
        }
        let known = remote.renewed().await;
        match try_with(&known) {
            Err(TokenError::UnknownKey) if known.is_stale || known.keys.is_none() => Ok(None),
            outcome => outcome.map(Some),
        }
    }
}

impl Authenticator for Jwt {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(self.decide(attempt))
    }

    fn reload(&self) -> Result<(), Problem> {
        let (local, fingerprint) = local_keys(&self.options)?;
        *self.local.write() = Arc::new(local);
        *self.fingerprint.write() = fingerprint;
        Ok(())
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        Some(*self.fingerprint.read())
    }

    fn run(&self) -> Option<super::Running<'_>> {
        let remote = self.remote.as_ref()?;
        Some(Box::pin(remote.keep_fresh()))
    }

    fn token_field(&self) -> Option<&str> {
        Some(&self.options.token_field)
    }

    fn trouble(&self) -> Option<Trouble> {
        let (cause, is_blocking) = self.remote.as_ref()?.failure()?;
        let text = match is_blocking {
            true => format!(
                "no token can be verified, because the issuer's keys can't be fetched: {cause}"
            ),
            false => format!(
                "the known keys stay in use, because the issuer's keys can't be fetched: {cause}"
            ),
        };
        Some(Trouble {
            code: "jwt_keys",
            text,
            is_blocking,
        })
    }
}

fn declined(code: &'static str) -> AuthDecision {
    AuthDecision::Declined {
        client_data: reason(code),
    }
}

/// The wall clock.
#[must_use]
pub fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = since.map_or(0, |since| since.as_millis());
    WallTime(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

/// The secret of the options, from the option itself or from its file.
///
/// # Errors
/// Its file can't be read.
pub fn secret(options: &AuthJwt) -> Result<Option<Zeroizing<Vec<u8>>>, Problem> {
    if let Some(path) = &options.secret_file.0 {
        let bytes = std::fs::read(path).map_err(|error| {
            let reason = format!("{} can't be read: {error}", path.display());
            Problem::new("auth.jwt.secret_file", reason)
        })?;
        let bytes = Zeroizing::new(bytes);
        return Ok(Some(bytes.trim_ascii_end().to_vec().into()));
    }
    let secret = &options.secret.0;
    Ok((!secret.is_empty()).then(|| secret.clone().into_bytes().into()))
}

fn local_keys(options: &AuthJwt) -> Result<(KeySet, Fingerprint), Problem> {
    let (mut keys, text) = match &options.key_file.0 {
        None => (KeySet::default(), String::new()),
        Some(path) => {
            let wrong =
                |reason| Problem::new(path.display(), format!("{reason}; see auth.jwt.key_file"));
            let text = key::read(path).map_err(wrong)?;
            (key::parse(&text, options.algorithm).map_err(wrong)?, text)
        }
    };
    let secret = secret(options)?;
    if let Some(secret) = &secret {
        let key = key::secret(secret, options.algorithm)
            .map_err(|reason| Problem::new("auth.jwt.secret", reason))?;
        keys.0.push(key);
    }
    let secret = secret.as_deref().map_or(&[][..], Vec::as_slice);
    let fingerprint = Fingerprint::of("auth.jwt", &[text.as_bytes(), secret]);
    Ok((keys, fingerprint))
}

fn address(options: &AuthJwt) -> Result<Option<Address>, Problem> {
    let at = |option: &'static str| move |reason| Problem::new(option, reason);
    if options.discover {
        if options.issuer.is_empty() {
            let reason = "discovery needs the issuer; set auth.jwt.issuer";
            return Err(Problem::new("auth.jwt.discover", reason));
        }
        return Address::discovery(&options.issuer)
            .map(Some)
            .map_err(at("auth.jwt.issuer"));
    }
    if options.jwks_url.is_empty() {
        return Ok(None);
    }
    let url = outbound_url(&options.jwks_url).map_err(at("auth.jwt.jwks_url"))?;
    Ok(Some(Address::Keys(url)))
}
