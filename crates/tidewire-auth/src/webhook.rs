//! Authentication by the operator's HTTP server, with the contract of `docs/authentication.md`.
//!
//! Concurrent requests are limited, and a login is put off instead of refused while the server is down.

use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidewire_config::Problem;
use tidewire_config::outbound_url::outbound_url;
use tidewire_config::section::AuthWebhook;
use tidewire_core::identity;
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tokio::time::{Instant, sleep, timeout};

use super::login_attempt::Field;
use super::turns::{Turns, WaiterGroup};
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt, Trouble, outbound};

/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 2;
/// How long `/ready` reports a failure if no login has succeeded since.
const TROUBLE_TIME: Duration = Duration::from_secs(30);

/// Counters of requests.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests, including retries.
    pub requests: Counter,
    /// Requests that failed: without an answer, or with an answer that causes a retry.
    pub failures: Counter,
}

/// Authenticates through a webhook.
#[derive(Debug)]
pub struct Webhook {
    options: AuthWebhook,
    url: Url,
    client: Client,
    promoted: Vec<(String, HeaderName)>,
    is_reporting: bool,
    turns: Turns,
    failed: Mutex<Option<(Instant, String)>>,
    counts: Counts,
}

/// The result of one request.
enum WebhookReply {
    /// The server has decided. The token is JSON, for clients that log in over HTTP.
    Decided(AuthDecision, Option<String>),
    /// The request failed and is retried.
    Failed(String),
}

impl Webhook {
    /// Checks the options without sending a request.
    ///
    /// # Errors
    /// The address is missing or not encrypted, or a field to promote is not a valid header name.
    pub fn open(
        options: AuthWebhook,
        is_alone: bool,
        ca: Option<&Path>,
        counts: Counts,
    ) -> Result<Self, Problem> {
        let url = outbound_url(&options.url)
            .map_err(|reason| Problem::new("auth.webhook.url", reason))?;
        let client = outbound::client(options.timeout, ca, REDIRECTS_MAX)
            .map_err(|reason| Problem::new("auth.ca", reason))?;
        let header = |field: &String| match HeaderName::from_bytes(field.as_bytes()) {
            Ok(name) => Ok((field.clone(), name)),
            Err(_) => Err(Problem::new(
                "auth.webhook.promote_to_header",
                format!("{field:?} is not a valid header name"),
            )),
        };
        let fields = options.promote_to_header.iter();
        Ok(Self {
            url,
            client,
            promoted: fields.map(header).collect::<Result<_, _>>()?,
            is_reporting: options.report_invalid_parameters.or_else(|| is_alone),
            turns: Turns::new(options.requests_max),
            failed: Mutex::new(None),
            counts,
            options,
        })
    }

    async fn ask(&self, attempt: &LoginAttempt) -> AuthDecision {
        // If a login gets no turn within the timeout of a request, the client should retry later.
        let group = WaiterGroup::of(attempt.peer.address.ip());
        let Ok(_turn) = timeout(self.options.timeout, self.turns.turn(group)).await else {
            return AuthDecision::Unavailable;
        };
        if attempt.is_held_off() {
            return AuthDecision::HeldOff;
        }
        let Some(body) = body(attempt) else {
            return AuthDecision::Refused { client_data: None };
        };
        let headers = self.headers(attempt);
        for request in 0..=self.options.retry_attempts {
            if request > 0 {
                sleep(self.options.retry_interval).await;
            }
            self.counts.requests.inc();
            match self.request(&body, headers.clone()).await {
                WebhookReply::Decided(verdict, token) => {
                    *self.failed.lock() = None;
                    if let Some(token) = token {
                        attempt.set_token(token);
                    }
                    return verdict;
                }
                WebhookReply::Failed(reason) => {
                    self.counts.failures.inc();
                    self.note(reason);
                }
            }
        }
        AuthDecision::Unavailable
    }

    fn note(&self, reason: String) {
        let mut failed = self.failed.lock();
        if failed
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() > TROUBLE_TIME)
        {
            tracing::warn!(
                reason = reason.as_str(),
                "the authentication webhook fails; logins are put off until it works again"
            );
        }
        *failed = Some((Instant::now(), reason));
    }

    fn headers(&self, attempt: &LoginAttempt) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (field, name) in &self.promoted {
            let text = match attempt.field(field) {
                Some(Field::Text(text)) if !text.is_empty() => text,
                Some(Field::Number(number)) => number.to_string(),
                _ => continue,
            };
            // A value that is not valid in a header, such as one with a line end, is omitted. The body contains it anyway.
            if let Ok(mut value) = HeaderValue::from_str(&text) {
                value.set_sensitive(true);
                headers.insert(name.clone(), value);
            }
        }
        headers
    }

    async fn request(&self, body: &str, headers: HeaderMap) -> WebhookReply {
        let request = self.client.post(self.url.clone()).headers(headers);
        let answer = match request.body(body.to_owned()).send().await {
            Ok(answer) => answer,
            Err(error) => return WebhookReply::Failed(outbound::describe(error)),
        };
        let status = answer.status().as_u16();
        if self.options.retry_statuses.contains(&status) {
            return WebhookReply::Failed(format!("the webhook answered with status {status}"));
        }
        let body = match outbound::body(answer, outbound::ANSWER_BYTES_MAX).await {
            Ok(body) => body,
            Err(reason) => return WebhookReply::Failed(reason),
        };
        let Some(body) = read(&body) else {
            return WebhookReply::Failed("the answer is neither text nor a JSON object".into());
        };
        if self.options.permitted_statuses.contains(&status) {
            let token = body.token();
            let verdict = self.permitted(body);
            let token = token.filter(|_| matches!(verdict, AuthDecision::Accepted(_)));
            return WebhookReply::Decided(verdict, token);
        }
        let reason = match body {
            Body::Empty => None,
            Body::Text(text) => Some(json!({ "error": text })),
            Body::Object(object) if object.is_empty() => None,
            Body::Object(object) => Some(Value::Object(object)),
        };
        WebhookReply::Decided(self.refused(reason), None)
    }

    fn permitted(&self, body: Body) -> AuthDecision {
        let mut object = match body {
            Body::Empty => {
                return AuthDecision::Accepted(Principal::new(Name::from(identity::NAMELESS)));
            }
            Body::Text(text) => {
                return AuthDecision::Accepted(Principal::new(Name::from(text.as_str())));
            }
            Body::Object(object) => object,
        };
        let client = object.remove("clientData");
        if object.get("isValid") == Some(&Value::Bool(false)) {
            return self.refused(client);
        }
        let id = match object.remove("id") {
            Some(Value::String(id)) if !id.is_empty() => id,
            Some(Value::Number(id)) => id.to_string(),
            _ => identity::NAMELESS.to_owned(),
        };
        let text = |value: Option<Value>| value.map(|value| Payload::from(value.to_string()));
        let server = object.remove("serverData");
        let mut principal =
            Principal::new(Name::from(id.as_str())).with_data(text(server), text(client));
        match object.get("expiresAt") {
            None | Some(Value::Null) => {}
            Some(seconds) => match seconds
                .as_u64()
                .and_then(|seconds| seconds.checked_mul(1_000))
            {
                Some(end) => principal = principal.with_expiry(WallTime(end)),
                // An unreadable expiry must not turn into no expiry.
                None => return self.refused(None),
            },
        }
        AuthDecision::Accepted(principal)
    }

    fn refused(&self, client_data: Option<Value>) -> AuthDecision {
        let client_data = client_data.map(|data| Payload::from(data.to_string()));
        match self.is_reporting {
            true => AuthDecision::Refused { client_data },
            false => AuthDecision::Declined { client_data },
        }
    }
}

/// The body of a request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    connection_data: Value,
    /// The login data as received, without parsing it into a tree.
    auth_data: &'a RawValue,
}

/// The body of the request; `None` if the login is not valid JSON.
fn body(attempt: &LoginAttempt) -> Option<String> {
    let peer = &attempt.peer;
    let mut headers = Map::new();
    for (name, value) in &peer.headers {
        let joined = match headers.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        headers.insert(name.clone(), joined.into());
    }
    let question = Question {
        connection_data: json!({
            "remoteAddress": peer.address.ip().to_string(),
            "headers": headers,
            "referer": peer.header("referer"),
        }),
        auth_data: serde_json::from_str(attempt.as_json()).ok()?,
    };
    serde_json::to_string(&question).ok()
}

/// The body of an answer.
#[derive(Debug, PartialEq)]
enum Body {
    Empty,
    Text(String),
    Object(Map<String, Value>),
}

impl Body {
    /// The token for clients that log in over HTTP, as JSON.
    fn token(&self) -> Option<String> {
        match self {
            Self::Object(object) => object.get("token").map(Value::to_string),
            Self::Empty | Self::Text(_) => None,
        }
    }
}

/// Parses a body. Returns `None` for broken objects, arrays and invalid UTF-8, because these must not become a user id.
fn read(bytes: &[u8]) -> Option<Body> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.trim().is_empty() {
        return Some(Body::Empty);
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Some(Body::Object(object)),
        Ok(Value::String(text)) => Some(Body::Text(text)),
        Ok(Value::Array(_)) => None,
        Err(_) if text.trim_start().starts_with(['{', '[']) => None,
        _ => Some(Body::Text(text.to_owned())),
    }
}

impl Authenticator for Webhook {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(self.ask(attempt))
    }

    fn trouble(&self) -> Option<Trouble> {
        let failed = self.failed.lock();
        let (_, reason) = failed
            .as_ref()
            .filter(|(at, _)| at.elapsed() <= TROUBLE_TIME)?;
        Some(Trouble {
            code: "auth_webhook",
            text: format!("logins are put off, because the authentication webhook fails: {reason}"),
            // As a blocking problem, it would make the load balancer remove the node. Then no login would arrive to show that the
            // webhook works again.
            is_blocking: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_text_an_object_or_empty() {
        let check = |text: &str, expected: Option<Body>| {
            assert_eq!(read(text.as_bytes()), expected, "{text}")
        };
        let text = |text: &str| Some(Body::Text(text.to_owned()));
        check("", Some(Body::Empty));
        check(" \n", Some(Body::Empty));
        check("alice", text("alice"));
        check("\"alice\"", text("alice"));
        check("7", text("7"));
        check("true", text("true"));
        check("{}", Some(Body::Object(Map::new())));
        check("{\"id\":", None);
        check("{\"id\":\"\\ud800\"}", None);
        check("[\"alice\"]", None);
        assert_eq!(read(&[0xff]), None);
    }
}
