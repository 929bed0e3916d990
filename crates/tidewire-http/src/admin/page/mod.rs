//! The admin page at `/admin`: signs operators in and serves the requests of the page. Contract: `docs/admin-page.md`.
//!
//! The operator exchanges the admin key for a cookie, which browsers send only to this path. Requests about records, events,
//! rpcs and presence go through the engine like those from other clients, with an operator's login that every rule allows
//! (`auth/operator.rs`). Requests about revocations and users go to the admin API. The page implements none of these decisions
//! itself.

mod attempts;
mod connections;
mod figures;
mod history;
mod parts;
mod providers;
mod records;
mod rules;
mod sessions;
mod tail;
mod topics;
mod trial;
mod window;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{
    CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, SET_COOKIE,
};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use tidewire_auth::jwt;
use tidewire_auth::operator::{Operators, operator};
use tidewire_config::section::Admin as Options;
use tidewire_config::value::Rules;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::text::Name;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_shard::handle::ShardHandle;
use tidewire_store::thread::StoreClient;
use tokio::time::{Instant, timeout};

use self::attempts::Attempts;
use self::history::History;
use self::sessions::{Sessions, SignedIn};
use self::tail::OpenTails;
use super::Key;
use super::api::{Admin, Refusal, invalid, unavailable};
use crate::api::{Api, ApiRequest, Body, HttpResponse};
use crate::audit;
use crate::denials::Denials;
use crate::metrics::ShardNumbers;
use crate::origin::is_own_page;
use crate::site::{ADMIN, Mounted};

/// The path of the page.
pub const PATH: &str = "/admin";
/// The path prefix of the page's requests.
const API: &str = "/admin/api";
/// The header with the token that each change needs.
const TOKEN: HeaderName = HeaderName::from_static("x-admin-token");
/// Size limit of a body. For records, the limit of the HTTP API applies instead.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Size limit of the body of a client that is not signed in.
const KEY_BYTES_MAX: usize = 4 << 10;
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of the node that the page uses.
pub struct PageContext {
    /// The HTTP API, through which the page reaches the engine.
    pub api: Arc<Api>,
    /// The admin API.
    pub admin: Arc<Admin>,
    /// Issues the tickets with which operators log in.
    pub operators: Arc<Operators>,
    /// The shards.
    pub shards: Arc<[ShardHandle]>,
    /// The stores, by number.
    pub stores: Vec<StoreClient>,
    /// The meaning of an acknowledged write in each store.
    pub promises: Vec<String>,
    /// The numbers of shards and stores.
    pub numbers: ShardNumbers,
    /// The source of the rules.
    pub rules: Rules,
    /// The last denials by the rules.
    pub denials: Arc<Denials>,
    /// The memory budget of the node.
    pub budget: MemoryBudget,
}

/// The admin page. See the comment at the top of this file.
pub struct Page {
    key: Key,
    sessions: Sessions,
    attempts: Attempts,
    parts: PageContext,
    /// The files that a browser loads.
    site: Mounted,
    history: Arc<History>,
    /// Held while a request inspects all names of all shards: the inspection is expensive, so only one runs at a time.
    inspecting: tokio::sync::Mutex<()>,
    tails: OpenTails,
}

/// A request from an operator who is signed in.
struct PageRequest {
    request: ApiRequest,
    signed_in: SignedIn,
    /// The value of the request's cookie.
    cookie: String,
}

/// The body of a request to sign in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    key: String,
}

type Outcome = Result<HttpResponse, Refusal>;

impl Page {
    /// A page that accepts this key.
    #[must_use]
    pub fn new(key: Key, options: &Options, parts: PageContext) -> Self {
        let history = Arc::new(History::new(&parts.budget, &parts.numbers));
        Self {
            history,
            key,
            sessions: Sessions::new(options.session_lifetime, options.sessions_max),
            attempts: Attempts::new(options.wrong_keys_max),
            parts,
            site: Mounted::new("/admin/", &ADMIN),
            inspecting: tokio::sync::Mutex::default(),
            tails: OpenTails::default(),
        }
    }

    /// Records the figures each second. The future never ends.
    pub fn record_history(&self) -> impl Future<Output = ()> + Send + use<> {
        let (history, numbers) = (Arc::clone(&self.history), self.parts.numbers.clone());
        async move { history.record(&numbers).await }
    }

    /// Whether a path belongs to the page.
    #[must_use]
    pub fn serves(path: &str) -> bool {
        let rest = path.strip_prefix(PATH);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers a request for one of the page's paths.
    pub async fn answer(&self, request: ApiRequest, is_encrypted: bool) -> HttpResponse {
        let outcome = match is_own_page(&request.parts.headers) {
            true => self.route(request, is_encrypted).await,
            false => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "FOREIGN_PAGE",
                "the admin API of the page accepts only the admin page itself, regardless of network.origins",
            )),
        };
        outcome.unwrap_or_else(|refusal| refused(&refusal))
    }

    async fn route(&self, request: ApiRequest, is_encrypted: bool) -> Outcome {
        let method = request.parts.method.clone();
        let path = request.parts.uri.path().to_owned();
        let Some(path) = path.strip_prefix(API) else {
            let found = self.site.answer(&method, &path, &request.parts.headers);
            return found.ok_or_else(nothing);
        };
        if (&method, path) == (&Method::POST, "/session") {
            return self.sign_in(request, is_encrypted).await;
        }
        let asked = self.signed_in(request)?;
        let is_reading = matches!(method, Method::GET | Method::HEAD);
        if !is_reading && !asked.has_token() {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "TOKEN",
                "a change requires the header `X-Admin-Token` with the token of the session",
            ));
        }
        if let Some(name) = path.strip_prefix("/records/") {
            return self.record(asked, name).await;
        }
        if let Some(id) = path.strip_prefix("/connections/") {
            return match is_reading {
                true => self.connection(&asked, id).await,
                false if method == Method::DELETE => self.disconnect(&asked, id).await,
                false => Err(unsupported("GET, DELETE")),
            };
        }
        if let Some(number) = path.strip_prefix("/tails/") {
            return match is_reading {
                true => self.take_tail(&asked, number).await,
                false if method == Method::DELETE => self.close_tail(&asked, number),
                false => Err(unsupported("GET, DELETE")),
            };
        }
        if path.starts_with("/v1/") {
            return self.act(asked, path, is_reading).await;
        }
        match (path, is_reading) {
            ("/session", true) => Ok(shown(StatusCode::OK, &asked.signed_in.show())),
            ("/session", false) if method == Method::DELETE => self.sign_out(&asked).await,
            ("/ticket", false) if method == Method::POST => self.ticket(&asked),
            ("/commands", false) if method == Method::POST => self.try_out(asked).await,
            ("/rules/explain", false) if method == Method::POST => self.explain(asked).await,
            ("/tails", false) if method == Method::POST => self.open_tail(asked).await,
            ("/figures", true) => Ok(self.figures()),
            ("/history", true) => self.history(&asked),
            ("/connections", true) => self.connections(&asked).await,
            ("/topics", true) => self.topics(&asked).await,
            ("/providers", true) => self.providers(&asked).await,
            ("/calls", true) => self.calls(&asked).await,
            ("/records", true) => self.records(&asked).await,
            ("/rules", true) => self.rules(&asked),
            ("/denials", true) => self.denials(&asked),
            _ => Err(wrong_method(path)),
        }
    }

    /// Exchanges the key for the cookie.
    async fn sign_in(&self, mut request: ApiRequest, is_encrypted: bool) -> Outcome {
        let (address, now) = (request.address, Instant::now());
        if let Some(wait) = self.attempts.wait(address.ip(), now) {
            let mut answer = refused(&Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_ATTEMPTS",
                "too many wrong keys from this address (admin.wrong_keys_max); try again later",
            ));
            let seconds = HeaderValue::from(wait.as_secs() + 1);
            answer.headers_mut().insert(RETRY_AFTER, seconds);
            return Ok(answer);
        }
        let body = read(&mut request.body, KEY_BYTES_MAX).await?;
        let SignIn { key } = serde_json::from_slice(&body)
            .map_err(|_| invalid("the body is not `{ \"key\": \"...\" }`"))?;
        if !self.key.is(key.trim()) {
            self.attempts.note(address.ip(), now);
            audit::page("", address, "wrong key", "");
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "UNAUTHORIZED",
                "the key is wrong",
            ));
        }
        let opened = self.sessions.open(jwt::now());
        let (cookie, signed_in, ended) = opened.map_err(|error| unavailable(&error))?;
        if let Some(ended) = ended {
            self.end(&ended).await?;
        }
        audit::page(&signed_in.id, address, "sign in", "");
        let seconds = self.sessions.lifetime().as_secs();
        let is_secure = is_encrypted || has_secure_page(&request.parts.headers);
        let mut answer = shown(StatusCode::CREATED, &signed_in.show());
        set_cookie(&mut answer, &cookie, seconds, is_secure);
        Ok(answer)
    }

    fn signed_in(&self, request: ApiRequest) -> Result<PageRequest, Refusal> {
        let headers = request.parts.headers.get_all(COOKIE).iter();
        let cookie = sessions::cookie(headers.filter_map(|value| value.to_str().ok()));
        let cookie = cookie.unwrap_or_default().to_owned();
        let signed_in = self.sessions.find(&cookie, jwt::now()).ok_or_else(|| {
            let message = "sign in with the key: POST /admin/api/session";
            Refusal::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
        })?;
        Ok(PageRequest {
            request,
            signed_in,
            cookie,
        })
    }

    /// When the answer arrives at the browser, all connections that were opened with the session have ended, too.
    async fn sign_out(&self, asked: &PageRequest) -> Outcome {
        self.sessions.close(&asked.cookie);
        self.end(&asked.signed_in).await?;
        asked.audit("sign out", "");
        let mut answer = shown(StatusCode::NO_CONTENT, &Value::Null);
        set_cookie(&mut answer, "", 0, false);
        Ok(answer)
    }

    /// Ends the connections that were opened with a session.
    async fn end(&self, signed_in: &SignedIn) -> Result<(), Refusal> {
        let revocation = Revocation {
            what: Revoked::Credential(Credential::Operator(Name::from(signed_in.id.as_str()))),
            until: signed_in.ends,
        };
        let revoked = self.parts.admin.rights.revoke(revocation, jwt::now()).await;
        revoked.map_err(|error| unavailable(&error.to_string()))
    }

    /// Returns a login object for the page's own client.
    fn ticket(&self, asked: &PageRequest) -> Outcome {
        let login = self.login(asked.principal())?;
        asked.audit("connect", "");
        Ok(shown(StatusCode::CREATED, &json!({ "login": login })))
    }

    fn login(&self, principal: Principal) -> Result<Value, Refusal> {
        let login = self.parts.operators.login(principal);
        login.ok_or_else(|| unavailable("the system has no random numbers"))
    }

    /// Answers a request for one record, like `/records/NAME` of the HTTP API.
    async fn record(&self, asked: PageRequest, name: &str) -> Outcome {
        let login = self.login(asked.principal())?;
        let mut request = asked.request;
        let query = request.parts.uri.query();
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let path = PathAndQuery::try_from(format!("/records/{name}{query}"));
        request.parts.uri = Uri::from(path.map_err(|error| invalid(error.to_string()))?);
        let mut answer = self.parts.api.answer_as(request, &login).await;
        answer.headers_mut().remove(LOCATION);
        Ok(answer)
    }

    /// Executes a request of the admin API.
    async fn act(&self, mut asked: PageRequest, path: &str, is_reading: bool) -> Outcome {
        let body = read(&mut asked.request.body, BODY_BYTES_MAX).await?;
        let parts = &asked.request.parts;
        let path = format!("{PATH}{path}");
        let what = format!("{} {path}", parts.method);
        match is_reading {
            true => self.log_view(&asked, &what),
            // Without the body, which may contain a password or a token.
            false => asked.audit("admin api", &what),
        }
        let query = parts.uri.query();
        let (status, answer) = self
            .parts
            .admin
            .act(&parts.method, &path, query, &body)
            .await?;
        Ok(shown(status, &answer))
    }

    /// Writes to the audit log that the operator looked at `what`, unless the log already has a recent line about it.
    fn log_view(&self, asked: &PageRequest, what: &str) {
        if self
            .sessions
            .is_first_view(&asked.cookie, what, Instant::now())
        {
            asked.audit("look", what);
        }
    }
}

impl PageRequest {
    fn has_token(&self) -> bool {
        let given = self.request.parts.headers.get(TOKEN);
        let given = given.and_then(|value| value.to_str().ok());
        self.signed_in.has_token(given.unwrap_or_default())
    }

    fn principal(&self) -> Principal {
        operator(&self.signed_in.id, self.signed_in.ends)
    }

    fn audit(&self, action: &str, about: &str) {
        audit::page(&self.signed_in.id, self.request.address, action, about);
    }

    /// The parameters of the query string.
    fn parameters(&self) -> Result<Vec<(String, String)>, Refusal> {
        let query = self.request.parts.uri.query().unwrap_or_default();
        let broken = || invalid("the query string is not percent-encoded");
        crate::api::name::parameters(query).ok_or_else(broken)
    }
}

impl SignedIn {
    fn show(&self) -> Value {
        json!({
            "token": self.token,
            "session": self.id,
            "ends": self.ends.0 / 1_000,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// The value of a parameter; `None` if it is absent or empty.
fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut parameters = parameters.iter();
    let found = parameters.find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

async fn read(body: &mut Incoming, bytes_max: usize) -> Result<bytes::Bytes, Refusal> {
    let reading = Limited::new(body, bytes_max).collect();
    match timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        _ => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "TOO_LARGE",
            format!("the body exceeds {bytes_max} bytes or did not arrive"),
        )),
    }
}

/// Whether the browser loaded the page over TLS, which a proxy may have ended.
fn has_secure_page(headers: &HeaderMap) -> bool {
    let origin = headers.get(hyper::header::ORIGIN);
    origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn set_cookie(answer: &mut HttpResponse, value: &str, seconds: u64, is_secure: bool) {
    let name = sessions::COOKIE;
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!(
        "{name}={value}; Path={PATH}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    // The value consists of letters, digits, `-` and `_`.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
}

fn nothing() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "NOT_FOUND",
        "this path does not exist; see docs/admin-page.md",
    )
}

/// The methods of each path with a fixed name.
const METHODS: [(&str, &str); 14] = [
    ("/history", "GET"),
    ("/session", "GET, POST, DELETE"),
    ("/ticket", "POST"),
    ("/commands", "POST"),
    ("/rules/explain", "POST"),
    ("/tails", "POST"),
    ("/figures", "GET"),
    ("/connections", "GET"),
    ("/topics", "GET"),
    ("/providers", "GET"),
    ("/calls", "GET"),
    ("/records", "GET"),
    ("/rules", "GET"),
    ("/denials", "GET"),
];

fn wrong_method(path: &str) -> Refusal {
    match METHODS.iter().find(|(known, _)| *known == path) {
        Some((_, methods)) => unsupported(methods),
        None => nothing(),
    }
}

fn unsupported(methods: &str) -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("this path supports only {methods}"),
    )
}

fn refused(refusal: &Refusal) -> HttpResponse {
    let error = json!({ "code": refusal.code, "message": refusal.message });
    shown(refusal.status, &json!({ "error": error }))
}

/// An answer with a JSON body, or without a body if `body` is null.
fn shown(status: StatusCode, body: &Value) -> HttpResponse {
    let text = match body {
        Value::Null => String::new(),
        body => format!("{body}\n"),
    };
    let mut answer = HttpResponse::new(Body::from(text));
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
