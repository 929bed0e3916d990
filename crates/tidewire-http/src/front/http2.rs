//! One HTTP/2 connection: how much may be open on it at a time, how long it lasts, and when a flood ends it.
//!
//! The functions that answer HTTP/1.1 requests also answer these ([`super::http`]). The server opens no WebSocket here: it does
//! not announce extended CONNECT (RFC 8441), so a client opens one HTTP/1.1 connection for each WebSocket.

mod activity;
mod answered;
mod authority;
mod frames;
mod head;

use std::error::Error as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidewire_config::plan::Plan;
use tidewire_shard::outlet::Outflow;
use tidewire_shard::peer_log::peer_line;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::http::{Socket, plain};
use super::tls::FrontStream;
use crate::refusal::RequestRefusal;
use activity::Activity;
use answered::Answered;
use frames::Counted;

/// Bytes that a peer may send ahead, on one stream and on all of them together: the minimum that the protocol allows. The
/// server reads bodies as soon as there is room for them, so a larger window would only let peers occupy memory.
const WINDOW_BYTES: u32 = (64 << 10) - 1;
/// Bytes of one answer that the library holds until the peer takes them.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Streams that the peer has reset before the server has seen them. A larger number is a flood (CVE-2023-44487).
const RESETS_PENDING_MAX: usize = 20;
/// Streams that the server had to reset because of the peer's faults on them. A larger number is a flood (CVE-2025-8671).
const LOCAL_RESETS_MAX: usize = 100;
/// The library accepts heads of up to this multiple of `http.head_bytes_max`, and answers larger ones itself. Heads between the
/// two limits are answered and counted by [`answer`].
const LIBRARY_HEADS: u32 = 4;
/// Time for the peer to take the GOAWAY frame of a connection on which nothing is open.
const GOODBYE: Duration = Duration::from_secs(1);

/// The limits of one HTTP/2 connection.
#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    /// Streams that may be open at the same time.
    pub streams_max: u32,
    /// Requests among them that the server works on, or whose answers the peer has not taken completely.
    pub requests_max: usize,
    /// How often the server pings the peer, and how long it waits for the reply.
    pub ping_interval: Duration,
}

impl Http2Limits {
    /// The limits that the configuration requests.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let http = &plan.config.http;
        Self {
            streams_max: http.connection_streams_max,
            requests_max: http.connection_requests_max.min(Semaphore::MAX_PERMITS),
            ping_interval: plan.config.network.heartbeat_interval,
        }
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(socket: Arc<Socket>, stream: FrontStream) {
    let front = &socket.front;
    front.metrics.http2_connections.inc();
    let activity = Activity::new(front.http2.requests_max);
    let service = {
        let (socket, activity) = (Arc::clone(&socket), Arc::clone(&activity));
        service_fn(move |request| answer(Arc::clone(&socket), Arc::clone(&activity), request))
    };
    let stream = Counted::new(stream, Arc::clone(&activity));
    let stream = Outflow::new(stream, Arc::clone(&socket.outlet));
    let connection = builder(&socket).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = async {
        tokio::select! {
            outcome = connection.as_mut() => return Some(outcome),
            () = served(&socket, &activity) => {}
        }
        // GOAWAY tells the peer to open no new requests. `leave` polls the connection further, so that the open ones can
        // finish.
        connection.as_mut().graceful_shutdown();
        leave(&socket, &activity, connection).await
    };
    let outcome = tokio::select! {
        outcome = ended => outcome,
        // When a shard shuts the outlet, the connection is dropped without GOAWAY: the bytes in it must not leave.
        () = socket.outlet.was_shut() => return socket.was_cut(),
    };
    let is_flood = match &outcome {
        Some(Err(error)) => is_flood(error),
        _ => activity.is_flood(),
    };
    let peer = socket.peer;
    if is_flood {
        front.metrics.http2_floods.inc();
        peer_line("flood ended", || {
            tracing::warn!(%peer, "an http/2 connection was closed, because its peer flooded it with resets or frames");
        });
    }
    match outcome {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%peer, %error, "an http/2 connection ended early"),
        None => tracing::debug!(%peer, "an http/2 connection was closed after its timeout"),
    }
}

fn builder(socket: &Socket) -> http2::Builder<TokioExecutor> {
    let front = &socket.front;
    let limits = front.http2;
    let head_bytes_max = u32::try_from(front.head_bytes_max).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(head_bytes_max.saturating_mul(LIBRARY_HEADS))
        .max_concurrent_streams(limits.streams_max)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_interval);
    builder
}

/// Answers one request, after it has waited for a permit.
async fn answer(
    socket: Arc<Socket>,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Response<Answered>, h2::Error> {
    let calm = || h2::Error::from(Reason::ENHANCE_YOUR_CALM);
    let running = activity.begin().ok_or_else(calm)?;
    let is_head = *request.method() == Method::HEAD;
    let front = &socket.front;
    if head::list_bytes(&request) > front.head_bytes_max {
        front
            .metrics
            .refused_requests
            .count(RequestRefusal::LargeHead);
        let text = "the head of the request is too large (http.head_bytes_max)\n";
        let answer = plain(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text.into());
        return Ok(Answered::of(socket.hardened(answer), is_head, running));
    }
    let running = running.admitted().await;
    let answer = match authority::named(request) {
        Ok(request) => socket.answer(request).await,
        Err(problem) => socket.hardened(plain(StatusCode::BAD_REQUEST, format!("{problem}\n"))),
    };
    Ok(Answered::of(answer, is_head, running))
}

/// Waits until the connection must end: nothing was open on it for the time limit of a request's head, its maximum time has
/// passed, a flood was detected, or the server is stopping.
async fn served(socket: &Socket, activity: &Activity) {
    let front = &socket.front;
    let mut draining = pin!(front.status.draining());
    let mut period = Instant::now();
    loop {
        let end = period + front.connection_timeout;
        let due = end.min(activity.idle_deadline(front.head_timeout));
        tokio::select! {
            () = sleep_until(due) => {}
            () = activity.flooded() => return,
            () = &mut draining => return,
        }
        let now = Instant::now();
        if now >= activity.idle_deadline(front.head_timeout) {
            return;
        }
        // Event streams last as long as their sessions, so they do not end the connection. Requests have no such right: unless
        // the number of open requests was zero at some moment of this period, the connection ends.
        if now >= end {
            if !activity.has_streams() || activity.is_busy_since(period) {
                return;
            }
            period = now;
        }
    }
}

/// Drives the connection on, so that the peer can take the answers in flight. Returns `None` if a request takes longer than the
/// connection timeout, if nothing is open and the peer does not take GOAWAY, or after a flood.
async fn leave<C>(
    socket: &Socket,
    activity: &Activity,
    mut connection: Pin<&mut C>,
) -> Option<C::Output>
where
    C: Future,
{
    let deadline = Instant::now() + socket.front.connection_timeout;
    loop {
        if let Ok(outcome) = timeout(GOODBYE, connection.as_mut()).await {
            return Some(outcome);
        }
        let is_waited_for = match activity.has_requests() {
            true => Instant::now() < deadline,
            false => activity.has_streams(),
        };
        if activity.is_flood() || !is_waited_for {
            return None;
        }
    }
}

/// Whether the library itself has ended the connection because the peer sent too many resets or too many frames of one kind.
fn is_flood(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &h2::Error| {
        cause.is_library() && cause.reason() == Some(Reason::ENHANCE_YOUR_CALM)
    })
}
