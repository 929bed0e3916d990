//! The operations of the admin API: status, revocations and reload. Users are in `admin/users.rs`. Contract:
//! `docs/admin-api.md`.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tidewire_auth::revocation_store::{FOR_EVER, RevocationStore, Stored, from_parts, parts};
use tidewire_auth::{AuthChain, jwt, tls};
use tidewire_core::principal::Credential;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tokio::task::spawn_blocking;

use super::cluster::{self, ClusterAdmin};
use super::users;
use crate::rights::{ChangeError, Rights};
use crate::status::Status;

/// Bytes of the name of a revoked user or credential. A token id has at most 256, but a user id may have more.
const SUBJECT_BYTES_MAX: usize = 4096;

/// A request that the server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// A fixed code for programs.
    pub code: &'static str,
    /// A description for people.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }
}

pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", message)
}

pub(super) type AdminResponse = Result<(StatusCode, Value), Refusal>;

/// The parts of the node that the API uses.
pub struct Admin {
    /// The state of the node.
    pub status: Arc<Status>,
    /// The chain that decides logins.
    pub auth: Arc<AuthChain>,
    /// The stored revocations of a node alone. A cluster has its revocations in its store.
    pub revocation_store: Option<Arc<RevocationStore>>,
    /// Ends sessions and changes rights on all shards.
    pub rights: Arc<Rights>,
    /// The cluster, if the node is a member of one.
    pub cluster: Option<Box<dyn ClusterAdmin>>,
    /// Makes the server read its configuration again, as SIGHUP does. Returns false if the server can't receive the request.
    pub reload: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The body of a revocation: exactly one of the first five fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationBody {
    user: Option<String>,
    token: Option<String>,
    key: Option<String>,
    /// A serial number, or a whole certificate as PEM; of the latter, the serial number and the expiry are used.
    certificate: Option<String>,
    /// A whole token, of which the id and the expiry are used.
    jwt: Option<String>,
    /// Seconds since 1970.
    until: Option<u64>,
}

impl Admin {
    /// Executes a request.
    ///
    /// # Errors
    /// The reason why the request was not executed.
    pub async fn act(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> AdminResponse {
        let subject = path.strip_prefix("/admin/v1/revocations/");
        if let Some(user) = path.strip_prefix(users::PATH) {
            return self.user(method, user, query, body).await;
        }
        if let Some(rest) = path.strip_prefix(cluster::PATH) {
            return self.cluster(method, rest, query, body).await;
        }
        match (method, path) {
            (&Method::GET, "/admin/v1/status") => Ok((StatusCode::OK, self.status())),
            (&Method::GET, "/admin/v1/revocations") => self.list().await,
            (&Method::POST, "/admin/v1/revocations") => self.revoke(body).await,
            (&Method::POST, "/admin/v1/reload") => self.reload(),
            (&Method::DELETE, _) if subject.is_some() => {
                self.lift(subject.unwrap_or_default()).await
            }
            (_, "/admin/v1/status" | "/admin/v1/revocations" | "/admin/v1/reload") => {
                Err(Refusal::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "METHOD_NOT_ALLOWED",
                    format!("{path} does not support {method}"),
                ))
            }
            _ => Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "NOT_FOUND",
                "this path does not exist; see docs/admin-api.md",
            )),
        }
    }

    fn status(&self) -> Value {
        let reasons = self.status.reasons();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": reasons.is_empty(),
            "reasons": reasons,
            "warnings": self.status.warnings(),
        })
    }

    async fn list(&self) -> AdminResponse {
        let now = jwt::now();
        let all = match &self.revocation_store {
            Some(revocation_store) => {
                let revocation_store = Arc::clone(revocation_store);
                blocking(move || revocation_store.list(now)).await?
            }
            None => self.shared(now).await?,
        };
        let all: Vec<Value> = all.iter().map(show).collect();
        Ok((StatusCode::OK, json!({ "revocations": all })))
    }

    /// The revocations of a cluster that operators have made.
    async fn shared(&self, now: WallTime) -> Result<Vec<Stored>, Refusal> {
        let found = self.rights.stored_revocations(now).await;
        let found = found.map_err(|error| unavailable(&error.message))?;
        let stored = found
            .into_iter()
            .map(|(revocation, since)| Stored { revocation, since });
        let mut all: Vec<Stored> = stored.filter(is_of_operator).collect();
        all.sort_by(|one, other| parts(&one.revocation.what).cmp(&parts(&other.revocation.what)));
        Ok(all)
    }

    fn reload(&self) -> AdminResponse {
        match (self.reload)() {
            true => Ok((
                StatusCode::ACCEPTED,
                json!({ "reload": "started; the log reports the outcome" }),
            )),
            false => Err(unavailable(
                "the server can't receive the request to reload",
            )),
        }
    }

    /// When the answer arrives at the caller, the credential or user can no longer log in, its sessions have ended, and the
    /// revocation survives a restart.
    async fn revoke(&self, body: &[u8]) -> AdminResponse {
        let order: RevocationBody = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body is not a revocation: {error}")))?;
        let now = jwt::now();
        let (what, until) = self.ordered(order).await?;
        if until <= now {
            return Err(invalid("`until` is in the past; use seconds since 1970"));
        }
        let revocation = match &self.revocation_store {
            Some(revocation_store) => {
                let revocation_store = Arc::clone(revocation_store);
                blocking(move || revocation_store.revocation(what, until)).await?
            }
            // An existing end may move later, never earlier.
            None => {
                let before = self.rights.revoked_until(&what);
                let until = before.map_or(until, |before| until.max(before));
                Revocation { what, until }
            }
        };
        // End the sessions before the revocation is stored: they must not continue because a disk is slow or fails. In a cluster the
        // revocation is stored first, because its number comes from the store.
        let revoked = self.rights.revoke(revocation.clone(), now).await;
        revoked.map_err(refusal)?;
        if let Some(revocation_store) = &self.revocation_store {
            let (revocation_store, stored) = (Arc::clone(revocation_store), revocation.clone());
            blocking(move || revocation_store.store(&stored, now)).await?;
        }
        let (kind, name) = parts(&revocation.what);
        tracing::info!(kind, name, "revoked");
        let stored = Stored {
            revocation,
            since: now,
        };
        Ok((StatusCode::CREATED, show(&stored)))
    }

    async fn ordered(&self, order: RevocationBody) -> Result<(Revoked, WallTime), Refusal> {
        let milliseconds = |seconds: u64| {
            let time = seconds.checked_mul(1_000).map(WallTime);
            time.ok_or_else(|| invalid("`until` is too large; use seconds since 1970"))
        };
        let until = order.until.map(milliseconds).transpose()?;
        let one = "exactly one of user, token, key, certificate and jwt is required";
        let RevocationBody {
            user,
            token,
            key,
            certificate,
            jwt,
            ..
        } = order;
        let what = match (user, token, key, certificate, jwt) {
            (Some(user), None, None, None, None) => Revoked::User(name(&user)?),
            (None, Some(id), None, None, None) => {
                Revoked::Credential(Credential::Token(name(&id)?))
            }
            (None, None, Some(id), None, None) => Revoked::Credential(Credential::Key(name(&id)?)),
            (None, None, None, Some(text), None) => {
                let (serial, end) = tls::revoked(&text).ok_or_else(|| {
                    invalid("`certificate` is neither a hexadecimal serial number nor a PEM certificate")
                })?;
                let what = Revoked::Credential(Credential::Certificate(serial));
                return Ok((what, until.or(end).unwrap_or(FOR_EVER)));
            }
            (None, None, None, None, Some(token)) => {
                let principal = self.auth.principal_of_token(&token).await;
                let principal = principal
                    .ok_or_else(|| invalid("`jwt` is not a token that is accepted now"))?;
                let credential = principal.credential().cloned();
                let credential = credential.ok_or_else(|| invalid("`jwt` has no id"))?;
                let end = until.or(principal.expires_at());
                return Ok((Revoked::Credential(credential), end.unwrap_or(FOR_EVER)));
            }
            _ => return Err(invalid(one)),
        };
        Ok((what, until.unwrap_or(FOR_EVER)))
    }

    /// `path` is `KIND/NAME`, with the name percent-encoded.
    async fn lift(&self, path: &str) -> AdminResponse {
        let missing = || {
            Refusal::new(
                StatusCode::NOT_FOUND,
                "NOT_FOUND",
                "no revocation of that kind and name exists",
            )
        };
        let (kind, name) = path.split_once('/').ok_or_else(missing)?;
        let name = percent_decoded(name).ok_or_else(missing)?;
        let what = from_parts(kind, &name).ok_or_else(missing)?;
        let is_lifted = match &self.revocation_store {
            Some(revocation_store) => {
                let (revocation_store, lifted) = (Arc::clone(revocation_store), what.clone());
                blocking(move || revocation_store.lift(&lifted)).await?
            }
            None => {
                let all = self.shared(jwt::now()).await?;
                all.iter().any(|stored| stored.revocation.what == what)
            }
        };
        match is_lifted {
            true => {
                let restored = self.rights.restore(what).await;
                restored.map_err(refusal)?;
                tracing::info!(kind, name = name.as_str(), "a revocation was lifted");
                Ok((StatusCode::NO_CONTENT, Value::Null))
            }
            false => Err(missing()),
        }
    }
}

/// Whether an operator has made the revocation, and not the server for an old password or a session of an operator.
fn is_of_operator(stored: &Stored) -> bool {
    let (kind, name) = parts(&stored.revocation.what);
    from_parts(kind, name).is_some()
}

/// The refusal of a change of rights.
pub(super) fn refusal(error: ChangeError) -> Refusal {
    let text = error.to_string();
    match error {
        ChangeError::Full | ChangeError::OlderMember => {
            Refusal::new(StatusCode::CONFLICT, "LIMIT", text)
        }
        ChangeError::ShardEnded => stopping(),
        ChangeError::NotStored(_) => unavailable(&text),
        ChangeError::Invalid(_) => Refusal::new(StatusCode::CONFLICT, "RULES_WRONG", text),
    }
}

fn name(text: &str) -> Result<Name, Refusal> {
    match text.len() {
        1..=SUBJECT_BYTES_MAX => Ok(Name::from(text)),
        _ => Err(invalid("a revoked name must have 1 to 4,096 bytes")),
    }
}

fn show(stored: &Stored) -> Value {
    let (kind, name) = parts(&stored.revocation.what);
    let until = stored.revocation.until;
    json!({
        "kind": kind,
        "name": name,
        "since": stored.since.0 / 1_000,
        "until": (until < FOR_EVER).then(|| until.0.div_ceil(1_000)),
    })
}

pub(super) fn unavailable(message: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
}

/// The refusal of a request that a shard did not answer, because it has ended.
pub(super) fn stopping() -> Refusal {
    unavailable("the server is stopping")
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let not_stored = |error: String| {
        tracing::error!(%error, "a change of revocations was not stored");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "NOT_STORED", error)
    };
    match spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(not_stored(error.to_string())),
        Err(error) => Err(not_stored(error.to_string())),
    }
}

pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(percent_decoded(text).as_deref(), expected, "{text}");
        };
        check("alice", Some("alice"));
        check("a%2Fb%20c", Some("a/b c"));
        check("%F0%9F%8C%8A", Some("\u{1f30a}"));
        check("%", None);
        check("%4", None);
        check("%zz", None);
        check("%ff", None);
    }
}
