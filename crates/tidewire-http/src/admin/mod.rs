//! The admin API. It has a separate listener, which accepts connections from this machine only, and a separate key. The admin
//! page, in `page`, accepts the same key.
//!
//! This file handles sockets, limits and the key; `api.rs` has the operations.

pub mod api;
pub mod cluster;
pub mod key;
pub mod page;
mod users;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidewire_rules::limits::RuleLimits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use self::api::{Admin, Refusal};
use crate::security_headers::harden;

pub use key::Key;

/// Size limit of a request's body, unless it is a file of rules.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Size limit of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Time limit of a connection, whatever it does.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// Connections that may be open at the same time.
const CONNECTIONS_MAX: usize = 32;
/// Wrong keys within a minute that are answered as wrong; further ones are answered with "wait". The right key always works.
/// Otherwise any program that can reach the listener could lock the operator out, and a key of this length can't be guessed at
/// any speed.
const WRONG_KEYS_MAX: u32 = 10;
/// The time after which the count starts again.
const WRONG_KEYS_WINDOW: Duration = Duration::from_secs(60);

/// Recent requests with wrong keys.
struct WrongKeys {
    since: Instant,
    count: u32,
}

/// The admin API with its limits.
pub struct Server {
    key: Key,
    admin: Arc<Admin>,
    wrong: Mutex<WrongKeys>,
}

impl Server {
    /// An API that accepts requests with this key.
    #[must_use]
    pub fn new(key: Key, admin: Arc<Admin>) -> Arc<Self> {
        let wrong = WrongKeys {
            since: Instant::now(),
            count: 0,
        };
        Arc::new(Self {
            key,
            admin,
            wrong: Mutex::new(wrong),
        })
    }

    /// Answers requests until `stop` becomes true.
    pub async fn run(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepting = async {
            loop {
                // The semaphore is never closed.
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                    return;
                };
                if let Ok((stream, peer)) = listener.accept().await {
                    let server = Arc::clone(&self);
                    tokio::spawn(async move {
                        server.serve(stream, peer).await;
                        drop(permit);
                    });
                }
            }
        };
        tokio::select! {
            _ = stop.wait_for(|is_stopped| *is_stopped) => {}
            () = accepting => {}
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let service = service_fn(move |request| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.answer(request, peer).await) }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(CONNECTION_TIME / 6)
            .max_buf_size(HEAD_BYTES_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let _ = timeout(CONNECTION_TIME, connection).await;
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let answer = match self.admit(&request, peer) {
            Ok(()) => self.act(request).await,
            Err(refusal) => Err(refusal),
        };
        match answer {
            Ok((status, body)) => respond(status, &body),
            Err(refusal) => {
                let error = json!({ "code": refusal.code, "message": refusal.message });
                respond(refusal.status, &json!({ "error": error }))
            }
        }
    }

    /// Checks the key before the path, so that a client without the key can't find out which paths exist.
    fn admit(&self, request: &Request<Incoming>, peer: SocketAddr) -> Result<(), Refusal> {
        let header = request.headers().get(AUTHORIZATION);
        let given = header
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .unwrap_or_default();
        if self.key.is(given) {
            return Ok(());
        }
        let mut wrong = self.wrong.lock();
        if wrong.since.elapsed() >= WRONG_KEYS_WINDOW {
            wrong.since = Instant::now();
            wrong.count = 0;
        }
        wrong.count = wrong.count.saturating_add(1);
        if wrong.count > WRONG_KEYS_MAX {
            return Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_ATTEMPTS",
                "too many requests with wrong keys; wait a minute",
            ));
        }
        tracing::warn!(%peer, "a request to the admin API has a missing or wrong key");
        Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "UNAUTHORIZED",
            "the header `Authorization: Bearer KEY` is missing or wrong",
        ))
    }

    async fn act(&self, request: Request<Incoming>) -> Result<(StatusCode, Value), Refusal> {
        let (parts, body) = request.into_parts();
        let bytes_max = match cluster::has_rules(parts.uri.path()) {
            true => RuleLimits::default().file_bytes_max,
            false => BODY_BYTES_MAX,
        };
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(|_| {
            let kibibytes = bytes_max >> 10;
            Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "TOO_LARGE",
                format!("the body exceeds {kibibytes} KiB or did not arrive"),
            )
        })?;
        self.admin
            .act(
                &parts.method,
                parts.uri.path(),
                parts.uri.query(),
                &body.to_bytes(),
            )
            .await
    }
}

fn respond(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let text = match body {
        Value::Null => String::new(),
        body => format!("{body}\n"),
    };
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    harden(headers);
    answer
}
