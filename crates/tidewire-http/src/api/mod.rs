//! The HTTP API: operations that need no WebSocket. Contract: `docs/http-api.md`.
//!
//! A request opens a session at a shard (see [`tidewire_shard::carrier`]), which logs in through the same auth chain as a
//! WebSocket session. The same rules authorize it. The API itself makes no permission decision; it only translates HTTP to
//! requests of that session, and its replies back to HTTP.

mod answer;
mod answer_room;
mod batch;
mod body;
mod caller;
mod command;
mod condition;
mod epochs;
mod event;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod login;
pub(crate) mod name;
mod openapi;
mod outcome;
pub mod patch;
mod problem;
mod query;
mod query_stream;
mod record;
mod sign_up;
mod stream;
mod stream_event;
mod stream_output;
mod transaction;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use tidewire_auth::AuthChain;
use tidewire_auth::credentials::Credentials;
use tidewire_auth::shared_ticket::SharedTickets;
use tidewire_auth::ticket::{LoginTickets, TicketLimits};
use tidewire_config::plan::Plan;
use tidewire_core::trace::Trace;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_shard::handle::ShardHandle;
use tidewire_shard::outlet::Outlet;
use tidewire_shard::share::{Caller, Refused, Seat, Shares, Standing};
use tidewire_wire::traceparent;
use tokio::time::Instant;

use crate::refusal::{RequestRefusal, RequestRefusals};

use answer_room::{AnswerMemory, Reserved};
use caller::CallError;
use patch::PatchLimits;
use problem::Problem;
use query::QueryForm;
use sign_up::SignUps;

pub use answer::{Body, HttpResponse};
pub(crate) use answer::{TEXT, typed};
pub use epochs::RecordEpochs;
pub use stream_output::EventStream;

/// The answer when `http.requests_max` is reached.
const WORKING: &str = "the server has reached its limit of requests (http.requests_max)";
/// Nesting limit of a patched record, whatever the configured limits: with more containers serde_json could not parse the
/// record again.
const PATCHED_NESTING_MAX: usize = 127;

/// Limits and timeouts of the API; most come from the options of the section `http`.
#[derive(Clone, Copy, Debug)]
pub struct ApiLimits {
    /// Size limit of a request's body.
    pub body_bytes_max: usize,
    /// Size limit of the credentials of a login.
    pub login_bytes_max: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// Time for the engine to answer.
    pub request_timeout: Duration,
    /// Size limit of the answer to one request.
    pub answer_bytes_max: usize,
    /// Size limit of a record, and so of the answer to a read.
    pub record_bytes_max: usize,
    /// Size limit of the result of a query.
    pub query_result_bytes_max: usize,
    /// Limit of the commands of one batch.
    pub commands_max: usize,
    /// Limit of the operations of one transaction.
    pub transaction_names_max: usize,
    /// Size limit of a name.
    pub name_bytes_max: usize,
    /// Limits of the result of a JSON patch.
    pub patch: PatchLimits,
    /// Interval within which a session must send at least one message.
    pub heartbeat_interval: Duration,
    /// Whether a batch may contain the data of a login instead of a token.
    pub allow_auth_data: bool,
    /// Whether `/api/auth` exists.
    pub auth_endpoint: bool,
    /// Whether `/api/auth/sign-up` exists.
    pub sign_up: bool,
}

/// The parts of the node that the API uses.
#[derive(Debug)]
pub struct Common {
    /// The shards.
    pub shards: Arc<[ShardHandle]>,
    /// The epoch of each store, for entity tags.
    pub epochs: Arc<RecordEpochs>,
    /// Counts refused requests by cause.
    pub refused: RequestRefusals,
    /// The memory budget of the node.
    pub budget: MemoryBudget,
}

/// State that all requests of the API share.
#[derive(Debug)]
pub struct Api {
    shards: Arc<[ShardHandle]>,
    next_shard: AtomicUsize,
    limits: ApiLimits,
    /// Permits of the requests in progress.
    requests: Arc<Shares>,
    /// Permits of the bytes of bodies.
    bodies: Arc<Shares>,
    /// Permits of the open streams.
    streams: Arc<Shares>,
    /// The memory that answers may use.
    memory: AnswerMemory,
    tickets: LoginTickets,
    /// The tickets of all nodes, in a cluster.
    shared_tickets: Option<Arc<SharedTickets>>,
    /// Creates new users, if the configuration allows users to sign up.
    sign_ups: Option<SignUps>,
    epochs: Arc<RecordEpochs>,
    /// The answer of `/openapi.json`.
    description: String,
    /// Counts refused requests by cause.
    refused: RequestRefusals,
}

/// A request that the front hands over to the API.
#[derive(Debug)]
pub struct ApiRequest {
    /// Its head.
    pub parts: Parts,
    /// Its body, not read yet.
    pub body: Incoming,
    /// The address of its client.
    pub address: SocketAddr,
    /// The outlet of its connection.
    pub outlet: Arc<Outlet>,
    /// The shared permits that the request holds, once it has been admitted.
    standing: Option<Arc<Standing>>,
}

impl ApiRequest {
    /// Splits a request into head and body.
    #[must_use]
    pub fn new(request: Request<Incoming>, address: SocketAddr, outlet: Arc<Outlet>) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            parts,
            body,
            address,
            outlet,
            standing: None,
        }
    }

    /// The caller for which permits count: the address until the login, the user afterwards.
    fn caller(&self) -> Caller {
        match &self.standing {
            Some(standing) => standing.caller(),
            None => Caller::at(self.address.ip()),
        }
    }
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The operations by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// `/api`: a batch of commands.
    Batch,
    /// `/api/auth`: a login.
    Login,
    /// `/api/auth/sign-up`: a new user.
    SignUp,
    /// `/records/NAME`: one record.
    Record,
    /// `/records`: the records of a collection by their content.
    Query,
    /// `/transactions`: changes of several records in one step.
    Transaction,
    /// `/events/NAME`: one event.
    Event,
    /// `/sse`: a stream of events and records.
    Stream,
    /// `/openapi.json`: the description of the API.
    Description,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/api" => Some(Self::Batch),
            "/api/auth" => Some(Self::Login),
            sign_up::PATH => Some(Self::SignUp),
            stream::PATH => Some(Self::Stream),
            openapi::PATH => Some(Self::Description),
            query::PATH => Some(Self::Query),
            transaction::PATH => Some(Self::Transaction),
            path if path.starts_with(record::PREFIX) => Some(Self::Record),
            path if path.starts_with(event::PREFIX) => Some(Self::Event),
            _ => None,
        }
    }
}

/// The methods of a path, as the value of `Allow`.
fn route_methods(path: &str) -> Option<&'static str> {
    Route::of(path).map(|route| match route {
        Route::Batch => "GET, POST, OPTIONS",
        Route::Login => "POST, OPTIONS",
        Route::SignUp => sign_up::METHODS,
        Route::Record => record::METHODS,
        Route::Query => query::METHODS,
        Route::Transaction => transaction::METHODS,
        Route::Event => event::METHODS,
        Route::Stream => stream::METHODS,
        Route::Description => openapi::METHODS,
    })
}

impl Api {
    /// An API for these shards.
    pub fn new(plan: &Plan, common: Common, auth: &AuthChain) -> Self {
        let Common {
            shards,
            epochs,
            refused,
            budget,
        } = common;
        let http = &plan.config.http;
        let limits = ApiLimits {
            body_bytes_max: http.body_bytes_max.as_usize(),
            login_bytes_max: plan.config.auth.login_bytes_max.as_usize(),
            body_timeout: http.body_timeout,
            request_timeout: http.request_timeout,
            answer_bytes_max: http.answer_bytes_max.as_usize(),
            record_bytes_max: plan.config.limits.record_bytes_max.as_usize(),
            query_result_bytes_max: plan.config.limits.query_result_bytes_max.as_usize(),
            commands_max: http.batch_commands_max,
            transaction_names_max: plan.config.limits.transaction_names_max,
            name_bytes_max: plan.config.limits.name_bytes_max.as_usize(),
            patch: PatchLimits {
                copied_bytes_max: plan.config.limits.record_bytes_max.as_usize(),
                nesting_max: plan.config.limits.nesting_max.min(PATCHED_NESTING_MAX),
            },
            heartbeat_interval: plan.config.network.heartbeat_interval,
            allow_auth_data: http.allow_auth_data,
            auth_endpoint: http.auth_endpoint,
            sign_up: plan.config.auth.store.sign_up,
        };
        Self {
            shards,
            next_shard: AtomicUsize::new(0),
            description: openapi::description(&limits),
            limits,
            requests: Shares::new(http.requests_max),
            bodies: Shares::new(http.bodies_bytes_max.as_usize()),
            streams: Shares::new(http.streams_max),
            tickets: LoginTickets::new(
                TicketLimits::of(plan),
                &budget,
                auth.counts().tickets.clone(),
            ),
            shared_tickets: auth.shared_tickets().cloned(),
            memory: AnswerMemory::new(budget, as_usize(plan.memory_bytes_max)),
            sign_ups: SignUps::new(&plan.config.auth.store, auth.users()),
            epochs,
            refused,
        }
    }

    /// Whether the API serves this path.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        self.route(path).is_some()
    }

    /// The methods that a path of the API accepts, as the value of `Allow`.
    #[must_use]
    pub fn methods(&self, path: &str) -> Option<&'static str> {
        self.route(path).and_then(|_| route_methods(path))
    }

    fn route(&self, path: &str) -> Option<Route> {
        Route::of(path).filter(|route| match route {
            Route::Login => self.limits.auth_endpoint,
            Route::SignUp => self.sign_ups.is_some(),
            _ => true,
        })
    }

    /// Answers a request as if its caller had logged in with this object. The request's own credentials are ignored.
    pub(crate) async fn answer_as(&self, mut request: ApiRequest, login: &Value) -> HttpResponse {
        let credentials = Credentials::object(login);
        request.parts.extensions.insert(credentials);
        self.answer(request).await
    }

    /// Answers a request for one of the API's paths.
    pub async fn answer(&self, mut request: ApiRequest) -> HttpResponse {
        let Some(route) = self.route(request.parts.uri.path()) else {
            return answer::text(StatusCode::NOT_FOUND, "Endpoint not found.");
        };
        // A stream outlives a request, so it uses a permit of `http.streams_max` instead of `http.requests_max`.
        if request.parts.method == Method::GET {
            match route {
                Route::Stream => return self.stream(request).await,
                Route::Query if query_stream::wants_stream(&request.parts) => {
                    return self.query(request, QueryForm::Live).await;
                }
                _ => {}
            }
        }
        let is_plain = matches!(
            route,
            Route::Record
                | Route::Query
                | Route::Transaction
                | Route::Event
                | Route::Stream
                | Route::SignUp
        );
        match self.take_seat(&request) {
            Ok(seat) => request.standing = Some(Arc::new(Standing::new(seat))),
            Err(Refused::Full) if is_plain => return Problem::BUSY.answer(),
            Err(Refused::Full) => return answer::busy(WORKING),
            Err(Refused::Share) if is_plain => return Problem::SHARE.answer(),
            Err(Refused::Share) => return answer::share("requests (http.requests_max)"),
        }
        match (route, &request.parts.method) {
            (Route::Batch, &Method::POST) => self.batch(request).await,
            (Route::Login, &Method::POST) => self.log_in(request).await,
            (Route::SignUp, &Method::POST) => self.sign_up(request).await,
            (Route::Record, _) => self.record(request).await,
            (Route::Query, _) => self.query(request, QueryForm::Once).await,
            (Route::Transaction, _) => self.transaction(request).await,
            (Route::Event, _) => self.event(request).await,
            (Route::Description, &Method::GET | &Method::HEAD) => {
                openapi::describe(&self.description)
            }
            (Route::Batch, &Method::GET) => answer::text(
                StatusCode::BAD_REQUEST,
                "Reading records via HTTP GET is not yet implemented, please use a post request instead.",
            ),
            (_, &Method::OPTIONS) => answer::options(self.methods(request.parts.uri.path())),
            (Route::Stream | Route::Description | Route::SignUp, _) => answer::with_allow(
                Problem::METHOD.answer(),
                self.methods(request.parts.uri.path()),
            ),
            _ => answer::with_allow(
                answer::text(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "Unsupported method. Supported methods: GET, POST, OPTIONS",
                ),
                self.methods(request.parts.uri.path()),
            ),
        }
    }

    /// The shard for the next session. Shards take turns, since requests are short and numerous.
    fn shard(&self) -> Option<&ShardHandle> {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed);
        self.shards.get(next.checked_rem(self.shards.len())?)
    }

    /// Waits for memory of `bytes` bytes, at most for the time limit of a request.
    async fn memory(&self, request: &ApiRequest, bytes: usize) -> Result<Reserved, CallError> {
        let deadline = Instant::now() + self.limits.request_timeout;
        let memory = self.memory.wait(&request.caller(), bytes, deadline).await;
        memory.ok_or(CallError::NoMemory)
    }

    /// Counts a refusal, and returns its answer.
    fn refuse(&self, problem: Problem) -> HttpResponse {
        if let Some(cause) = problem.cause() {
            self.refused.count(cause);
        }
        problem.answer()
    }

    /// Takes one of the permits for requests in progress; a refusal is counted.
    fn take_seat(&self, request: &ApiRequest) -> Result<Seat, Refused> {
        let seat = self.requests.take(Caller::at(request.address.ip()), 1);
        seat.inspect_err(|refused| {
            self.refused.count(match refused {
                Refused::Full => RequestRefusal::Requests,
                Refused::Share => RequestRefusal::RequestShare,
            });
        })
    }
}

/// The trace that the events of a request continue. An invalid one counts as absent.
fn trace_of(parts: &Parts) -> Option<Trace> {
    let trace = parts.headers.get("traceparent")?;
    traceparent::parse(trace.to_str().ok()?)
}

/// Whether `Content-Type` names this media type; parameters are ignored.
fn is_of_type(parts: &Parts, expected: &str) -> bool {
    let value = parts.headers.get(CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("");
    essence.trim().eq_ignore_ascii_case(expected)
}
