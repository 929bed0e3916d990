//! The credentials of a request, and `POST /api/auth`.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::http::request::Parts;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_auth::credentials::Credentials;
use tidewire_shard::reply::OwnedReply;
use tokio::time::Instant;

use super::answer::{self, HttpResponse};
use super::body::BodyLimit;
use super::caller::CallError;
use super::command::{is_object, text_of};
use super::problem::Problem;
use super::{Api, ApiRequest};
use crate::refusal::RequestRefusal;

const TICKETS_UNAVAILABLE: Problem = Problem::new(
    StatusCode::SERVICE_UNAVAILABLE,
    "STORE_UNAVAILABLE",
    "the store does not answer, which has the tickets of the cluster; request a new ticket, and try again",
);

/// The credentials that the server itself attached to a request, or else the credentials in its headers.
pub(super) fn credentials_of_request(parts: &Parts) -> Result<Credentials, Problem> {
    match parts.extensions.get::<Credentials>() {
        Some(given) => Ok(given.clone()),
        None => credentials_of(&parts.headers),
    }
}

/// The credentials in the `Authorization` header of a request.
pub(super) fn credentials_of(headers: &HeaderMap) -> Result<Credentials, Problem> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Ok(Credentials::none());
    };
    let text = header.to_str().map_err(|_| Problem::LOGIN_REFUSED)?;
    let (scheme, value) = text.split_once(' ').ok_or(Problem::LOGIN_REFUSED)?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !value.is_empty() {
        return Ok(Credentials::token(value));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(Problem::LOGIN_REFUSED);
    }
    let decoded = STANDARD.decode(value).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    let (username, password) = pair.ok_or(Problem::LOGIN_REFUSED)?;
    Ok(Credentials::object(
        &json!({ "username": username, "password": password }),
    ))
}

impl Api {
    /// `POST /api/auth`.
    pub(super) async fn log_in(&self, mut request: ApiRequest) -> HttpResponse {
        let body = self.read_json_within(&mut request, BodyLimit::Login).await;
        let body = match body {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        let text = std::str::from_utf8(&body.bytes).unwrap_or("");
        let Ok(data) = serde_json::from_str::<&RawValue>(text) else {
            self.refused.count(RequestRefusal::Malformed);
            return unparsable();
        };
        if !is_object(data) {
            self.refused.count(RequestRefusal::Malformed);
            return answer::text(
                StatusCode::BAD_REQUEST,
                "Invalid message: the body must be a login object.",
            );
        }
        let credentials = Credentials::raw(data);
        match self.ask(&request, &credentials).await {
            Ok(given) => {
                let ticket = self.issue_ticket(request.address.ip(), credentials).await;
                answer::json(&logged_in(&given, ticket))
            }
            Err(CallError::Refused) => {
                answer::text(StatusCode::UNAUTHORIZED, "Invalid authentication data.")
            }
            Err(error) => error.answer(),
        }
    }

    /// A ticket for this login; `None` at the limits of tickets, or if the store of the cluster does not take it now.
    async fn issue_ticket(&self, address: IpAddr, credentials: Credentials) -> Option<String> {
        let now = Instant::now();
        let issued = self.tickets.give(credentials.clone(), address, now)?;
        let Some(shared) = &self.shared_tickets else {
            return Some(issued.ticket);
        };
        let kept = shared.keep(&issued.ticket, &credentials, &issued.displaced);
        match kept.await {
            Ok(()) => Some(issued.ticket),
            Err(error) => {
                tracing::warn!(%error, "a login gets no ticket, because the store does not answer");
                self.tickets.take(&issued.ticket, now);
                None
            }
        }
    }

    /// The login of a ticket, which is used then.
    ///
    /// # Errors
    /// No such ticket is valid, or the store of the cluster does not answer now.
    pub(super) async fn redeem_ticket(&self, ticket: &str) -> Result<Credentials, Problem> {
        let own = self.tickets.take(ticket, Instant::now());
        let login = match &self.shared_tickets {
            None => own,
            Some(shared) => shared.redeem(ticket).await.map_err(|error| {
                tracing::warn!(%error, "a ticket can't be redeemed now");
                TICKETS_UNAVAILABLE
            })?,
        };
        login.ok_or_else(|| {
            self.refused.count(RequestRefusal::Ticket);
            Problem::LOGIN_REFUSED
        })
    }

    /// Logs in with a session that ends at once, and returns the data for the client.
    async fn ask(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
    ) -> Result<LoginGrant, CallError> {
        let mut caller = self.call(request, credentials, Vec::new())?;
        loop {
            let replies = caller.receive().await?;
            for reply in replies.iter() {
                caller.check_login(reply)?;
                if let OwnedReply::LoggedIn { data } = reply {
                    return Ok(LoginGrant {
                        client_data: data.as_deref().map(str::to_owned),
                        token: caller.token().map(str::to_owned),
                    });
                }
            }
        }
    }
}

/// The credentials in the body of a batch.
pub(super) fn body_credentials(
    token: Option<&RawValue>,
    auth_data: Option<&RawValue>,
    allow_auth_data: bool,
) -> Result<Credentials, &'static str> {
    let token = match token.map(text_of) {
        None => None,
        Some(Some(token)) if !token.is_empty() => Some(token),
        Some(_) => {
            return Err("Invalid message: the \"token\" parameter must be a non-empty string");
        }
    };
    if let Some(data) = auth_data {
        if !allow_auth_data {
            return Err("Authentication using authData is disabled. Try using a token instead.");
        }
        if !is_object(data) {
            return Err("Invalid message: the \"authData\" parameter must be an object");
        }
        return Ok(Credentials::raw(data));
    }
    Ok(token.map_or_else(Credentials::none, |token| Credentials::token(&token)))
}

/// The auth chain's data for a client that has logged in, as JSON.
struct LoginGrant {
    client_data: Option<String>,
    token: Option<String>,
}

/// The body of a successful login's answer. It contains only the keys for which the auth handler provided a value.
fn logged_in(given: &LoginGrant, ticket: Option<String>) -> String {
    let mut answer = serde_json::Map::new();
    for (key, text) in [("token", &given.token), ("clientData", &given.client_data)] {
        if let Some(Ok(value)) = text.as_deref().map(serde_json::from_str::<Value>) {
            answer.insert(key.into(), value);
        }
    }
    if let Some(ticket) = ticket {
        answer.insert("ticket".into(), ticket.into());
    }
    Value::Object(answer).to_string()
}

/// The answer to a body that is not JSON.
pub(super) fn unparsable() -> HttpResponse {
    answer::text(
        StatusCode::BAD_REQUEST,
        "Failed to parse body of request: it is not JSON",
    )
}
