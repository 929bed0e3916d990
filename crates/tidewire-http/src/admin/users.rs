//! The users of the record store: an operator can list, read, create, change and delete them.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tidewire_auth::jwt;
use tidewire_auth::users::{Change, Changed, UserError, Users};
use tidewire_core::principal::Credential;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::text::Name;

use super::api::{self, Admin, AdminResponse, Refusal, invalid, percent_decoded, unavailable};

/// The path prefix of users.
pub(super) const PATH: &str = "/admin/v1/users";
/// How long the server remembers the id of a replaced or deleted password. A login that was accepted with it arrives at a shard
/// within seconds; later no login can have it.
const MEMORY: Duration = Duration::from_secs(600);

impl Admin {
    /// Handles a request to [`PATH`]; `rest` is the rest of the path.
    pub(super) async fn user(
        &self,
        method: &Method,
        rest: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> AdminResponse {
        let users = self
            .auth
            .users()
            .ok_or_else(|| not_found("there are no stored users; add `store` to auth.chain"))?;
        if rest.is_empty() {
            return match *method {
                Method::GET => list(users, query).await,
                _ => Err(wrong_method(method)),
            };
        }
        let name = rest.strip_prefix('/').and_then(percent_decoded);
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| not_found("no user with this name exists"))?;
        match *method {
            Method::GET => read(users, &name).await,
            Method::PUT => self.put(users, &name, body).await,
            Method::DELETE => self.delete(users, &name).await,
            _ => Err(wrong_method(method)),
        }
    }

    /// When the answer arrives at the caller, the user is stored. If the password is new, all sessions of the old one have
    /// ended.
    async fn put(&self, users: &Arc<Users>, name: &str, body: &[u8]) -> AdminResponse {
        let change: Change = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body is not a user: {error}")))?;
        let changed = users.put(name, change).await.map_err(refusal)?;
        let Changed {
            is_new,
            old_password_id,
        } = changed;
        tracing::info!(name, is_new, "a user was stored");
        if let Some(id) = old_password_id {
            self.end_sessions(id).await?;
        }
        let status = match is_new {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        Ok((status, read(users, name).await?.1))
    }

    /// When the answer arrives at the caller, the user does not exist, and a restart does not bring it back.
    async fn delete(&self, users: &Arc<Users>, name: &str) -> AdminResponse {
        let id = users.delete(name).await.map_err(refusal)?;
        tracing::info!(name, "a user was deleted");
        self.end_sessions(id).await?;
        Ok((StatusCode::NO_CONTENT, Value::Null))
    }

    /// Ends the sessions of a password that is no longer valid. The revocation is not stored, because a restart ends the
    /// sessions anyway.
    async fn end_sessions(&self, id: Name) -> Result<(), Refusal> {
        let now = jwt::now();
        let memory = u64::try_from(MEMORY.as_millis()).unwrap_or(u64::MAX);
        let revocation = Revocation {
            what: Revoked::Credential(Credential::Password(id)),
            until: tidewire_core::time::WallTime(now.0.saturating_add(memory)),
        };
        let revoked = self.rights.revoke(revocation, now).await;
        revoked.map_err(|error| {
            let stays = "the change is stored, but sessions of the old password stay open";
            let refused = api::refusal(error);
            let message = format!("{stays}: {}", refused.message);
            Refusal { message, ..refused }
        })
    }
}

async fn list(users: &Users, query: Option<&str>) -> AdminResponse {
    let after = match query {
        None | Some("") => None,
        Some(query) => {
            let after = query.strip_prefix("after=").and_then(percent_decoded);
            Some(after.ok_or_else(|| invalid("the query must be `after=NAME`, percent-encoded"))?)
        }
    };
    let (names, more) = users.list(after.as_deref()).await.map_err(refusal)?;
    Ok((StatusCode::OK, json!({ "users": names, "more": more })))
}

async fn read(users: &Users, name: &str) -> AdminResponse {
    let user = users.read(name).await.map_err(refusal)?;
    let user = user.ok_or_else(|| refusal(UserError::Missing))?;
    let body = json!({
        "name": name,
        "user": users.user_id(name),
        "serverData": user.server_data,
        "clientData": user.client_data,
        "createdAt": user.created_at,
        "changedAt": user.changed_at,
    });
    Ok((StatusCode::OK, body))
}

pub(super) fn not_found(message: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
}

fn wrong_method(method: &Method) -> Refusal {
    let message = format!("this path does not support {method}");
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        message,
    )
}

fn refusal(error: UserError) -> Refusal {
    let text = error.to_string();
    match error {
        UserError::Missing => not_found(&text),
        UserError::InvalidName | UserError::InvalidPassword => invalid(text),
        UserError::Taken => Refusal::new(StatusCode::CONFLICT, "TAKEN", text),
        UserError::Broken => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "BROKEN", text),
        UserError::HeldOff | UserError::Unavailable(_) => unavailable(&text),
    }
}
