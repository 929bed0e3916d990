//! One HTTP connection: its limits, its routes, and the upgrade to a WebSocket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ALLOW,
    CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE, VARY,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tidewire_config::outbound_url::is_loopback_name;
use tidewire_config::plan::{Speaks, is_loopback};
use tidewire_config::section::StoreKind;
use tidewire_config::value::Choice;
use tidewire_shard::connection_limiter::{ConnectionPermit, SocketPermits};
use tidewire_shard::handle::{Attachment, UpgradedSocket};
use tidewire_shard::outlet::{Outflow, Outlet};
use tidewire_shard::peer::{ClientCertificate, PeerDetails};
use tidewire_shard::peer_log::peer_line;
use tidewire_shard::session_token::SessionToken;
use tidewire_wire::protocol::Protocol;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::handshake::{self, Agreement, HandshakeError};
use super::http2;
use super::page;
use super::proxy_protocol;
use super::tls::{self, FrontStream, Handover};
use super::{Front, TooMany};
use crate::admin::page::Page;
use crate::api::{ApiRequest, Body, HttpResponse, TEXT, typed};
use crate::metrics::exposition::Exposition;
use crate::origin::{Refusal, host_name, is_own_page};
use crate::peer::peer;
use crate::refusal::RequestRefusal;
use crate::security_headers::{harden, stay_encrypted};
use crate::site::not_allowed;
use crate::status::Stage;

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
/// Seconds after which a refused client may try again.
const RETRY_SECONDS: &str = "5";
/// Seconds for which a browser may cache the answer to a preflight request.
const PREFLIGHT_SECONDS: &str = "600";
/// Request headers that web pages may send: the ones of deepstream's HTTP API, and the others that this server reads.
const REQUEST_HEADERS: &str = "accept, authorization, content-type, if-match, if-none-match, last-event-id, traceparent, x-http-method-override, x-requested-with";
/// Headers that proxies add. A request that has one of them did not come straight from a program on this machine.
const FORWARDED_HEADERS: [&str; 7] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];
/// Headers of an answer that web pages may read.
const ANSWER_HEADERS: &str = "etag, location, retry-after";

/// A socket of the front, until the front hands it over to a shard or closes it.
pub(super) struct Socket {
    pub(super) front: Arc<Front>,
    pub(super) peer: SocketAddr,
    pub(super) is_encrypted: bool,
    /// The certificate that the client presented in the TLS handshake. Each request carries it as an extension.
    certificate: Option<ClientCertificate>,
    /// Counts the connection's open streams, and can cut the connection off.
    pub(super) outlet: Arc<Outlet>,
    /// Whether a request has arrived.
    has_asked: AtomicBool,
    /// The permits of the connection. The upgrade moves them to the shard.
    ticket: Mutex<Option<SocketPermits>>,
}

/// An accepted socket.
#[derive(Debug)]
pub struct Arrival {
    /// Registered with the tokio runtime.
    pub stream: TcpStream,
    /// Bytes that the front has read from it already; empty if the peer may speak TLS.
    pub unread: Bytes,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// Whether the peer may speak TLS, clear text or both.
    pub speaks: Speaks,
    /// Its descriptor permit, and its count at the peer's address.
    pub ticket: SocketPermits,
}

/// Serves one connection to its end or its upgrade.
pub async fn serve(front: Arc<Front>, arrival: Arrival) {
    let Arrival {
        mut stream,
        unread,
        mut peer,
        speaks,
        mut ticket,
    } = arrival;
    if front.proxy_protocol {
        let Some(client) = introduce(&front, &mut stream, peer, &mut ticket).await else {
            return;
        };
        peer = client;
    }
    let opening = tls::open(&front, stream, unread, speaks);
    // The time limit of a request's head also bounds a handshake.
    let stream = match timeout(front.head_timeout, opening).await {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            front.metrics.tls_handshake_failures.inc();
            return tracing::debug!(%peer, %error, "a tls handshake failed");
        }
        Err(_) => {
            front.metrics.tls_handshake_failures.inc();
            return tracing::debug!(%peer, "a tls handshake took too long");
        }
    };
    let socket = Arc::new(Socket {
        front,
        peer,
        is_encrypted: stream.is_encrypted(),
        certificate: stream.certificate(),
        outlet: Arc::default(),
        has_asked: AtomicBool::new(false),
        ticket: Mutex::new(Some(ticket)),
    });
    match stream.is_http2() {
        true => http2::serve(socket, stream).await,
        false => serve_http1(socket, stream).await,
    }
}

async fn serve_http1(socket: Arc<Socket>, stream: FrontStream) {
    let (front, peer) = (&socket.front, socket.peer);
    let limit = front.connection_timeout;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(front.head_timeout)
        .max_buf_size(front.head_bytes_max);
    let service = {
        let socket = Arc::clone(&socket);
        service_fn(move |request| {
            let socket = Arc::clone(&socket);
            async move { Ok::<_, Infallible>(socket.answer(request).await) }
        })
    };
    let stream = Outflow::new(stream, Arc::clone(&socket.outlet));
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = async {
        let mut outcome = timeout(limit, connection.as_mut()).await;
        if outcome.is_err() {
            // The request in progress may finish, but no other one follows.
            connection.as_mut().graceful_shutdown();
            outcome = timeout(limit, connection.as_mut()).await;
        }
        // An event stream may last as long as its session.
        while outcome.is_err() && socket.outlet.has_streams() {
            outcome = timeout(limit, connection.as_mut()).await;
        }
        outcome
    };
    let outcome = tokio::select! {
        outcome = served => outcome,
        () = socket.outlet.was_shut() => return socket.was_cut(),
    };
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let is_first = !socket.has_asked.load(Ordering::Relaxed);
            if let Some(cause) = RequestRefusal::of_connection(&error, is_first) {
                front.metrics.refused_requests.count(cause);
            }
            tracing::debug!(%peer, %error, "an http connection ended early");
        }
        Err(_) => {
            let refused = &front.metrics.refused_requests;
            refused.count(RequestRefusal::SlowConnection);
            tracing::debug!(%peer, "an http connection was closed after its time");
        }
    }
}

/// Reads the PROXY protocol header and counts the connection at the client address that it contains. Returns `None` if the
/// front must close the connection.
async fn introduce(
    front: &Front,
    stream: &mut TcpStream,
    peer: SocketAddr,
    ticket: &mut SocketPermits,
) -> Option<SocketAddr> {
    let refuse = |problem: &str| {
        front.metrics.proxy_refusals.inc();
        peer_line("connection without its proxy head", || {
            tracing::warn!(%peer, problem, "connection closed, because network.proxy_protocol is on");
        });
    };
    let is_trusted = front.settings.read().proxies.trusts(peer.ip());
    // Programs on this machine may connect directly, as `tidewire health` does, but may not report another address.
    if !is_trusted && !is_loopback(peer.ip()) {
        refuse("the peer is not in network.trusted_proxies");
        return None;
    }
    let announced = match timeout(front.head_timeout, proxy_protocol::read(stream)).await {
        Ok(Ok(announced)) => announced,
        Ok(Err(error)) => {
            refuse(&error.to_string());
            return None;
        }
        Err(_) => {
            refuse("the PROXY head did not arrive in time");
            return None;
        }
    };
    if announced.is_some() && !is_trusted {
        refuse("the peer is not in network.trusted_proxies");
        return None;
    }
    let client = announced.unwrap_or(peer);
    match front.count(client.ip()) {
        Ok(counted) => ticket.counted = counted,
        Err(TooMany) => return None,
    }
    Some(client)
}

impl Socket {
    /// Logs that the connection was cut off because its outlet was shut. Bytes that still wait in the outlet are lost.
    pub(super) fn was_cut(&self) {
        tracing::debug!(peer = %self.peer, "a connection was cut off: a stream has lost a right and its client does not read");
    }

    pub(super) async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> HttpResponse {
        self.has_asked.store(true, Ordering::Relaxed);
        let answer = self.respond(request).await;
        self.hardened(answer)
    }

    /// Adds the security headers that every answer has.
    pub(super) fn hardened(&self, mut answer: HttpResponse) -> HttpResponse {
        // The answer that opens a WebSocket has no body that a browser could misinterpret.
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let headers = answer.headers_mut();
            harden(headers);
            if let Some(max_age) = self.front.hsts_max_age.filter(|_| self.is_encrypted) {
                stay_encrypted(headers, max_age);
            }
        }
        answer
    }

    async fn respond(self: &Arc<Self>, mut request: Request<Incoming>) -> HttpResponse {
        let front = &self.front;
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let path = request.uri().path().to_owned();
        let path = path.as_str();
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            "/health" if is_reading => return self.health(),
            "/ready" if is_reading => return self.ready(request.headers()),
            "/health-check" if is_reading => return plain(StatusCode::OK, String::new()),
            _ => {}
        }
        let admitted = match front.settings.read().origin_check.admit(request.headers()) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let answer = self.refuse(self.client(request.headers()), &refusal);
                return self.forbid_exchange(&request, answer);
            }
        };
        if Page::serves(path)
            && let Some(page) = front.admin_page.get()
        {
            let client = self.client(request.headers());
            let request = ApiRequest::new(request, client, Arc::clone(&self.outlet));
            return page.answer(request, self.is_encrypted).await;
        }
        let origin = admitted.origin.as_deref();
        let api = front.api.as_ref().filter(|api| api.serves(path));
        let is_preflight = *request.method() == Method::OPTIONS
            && request
                .headers()
                .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let mut answer = if is_preflight && origin.is_some() {
            let methods = api.and_then(|api| api.methods(path));
            preflight(methods.or_else(|| front.exchange_methods(path)))
        } else if let Some(api) = api {
            let client = self.client(request.headers());
            let outlet = Arc::clone(&self.outlet);
            api.answer(ApiRequest::new(request, client, outlet)).await
        } else if let Some(protocol) = front.protocol(path) {
            self.connect(request, protocol).await
        } else if let Some(answer) = front.page(&request) {
            answer
        } else {
            match path {
                "/metrics" if is_reading => self.metrics(request.headers()),
                "/denials" if is_reading && front.is_development => self.denials(request.headers()),
                "/" if is_reading && front.is_development => self.index(request.headers()),
                "/denials" if front.is_development => not_allowed("this page supports only GET"),
                "/crash" if front.is_development => self.crash(request.method(), request.headers()),
                "/metrics" | "/health" | "/ready" | "/health-check" => {
                    not_allowed("this page supports only GET")
                }
                _ => self.not_found(),
            }
        };
        if let Some(origin) = origin {
            allow_origin(answer.headers_mut(), origin);
        }
        answer
    }

    /// Answers 200 as long as every shard finishes its turns, whatever the state of the store.
    fn health(&self) -> HttpResponse {
        let stuck = self.front.status.stuck_shards();
        if stuck.is_empty() {
            return plain(StatusCode::OK, "ok\n".into());
        }
        let text = format!("shards that have not finished a turn for a second: {stuck:?}\n");
        plain(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    fn ready(&self, headers: &HeaderMap) -> HttpResponse {
        let reasons = self.front.status.reasons();
        let is_ready = reasons.is_empty();
        let mut body = serde_json::json!({ "ready": is_ready });
        if self.front.settings.read().reasons_public || self.is_local(headers) {
            body["development"] = self.front.is_development.into();
            body["store"] = self.front.store.word().into();
            body["reasons"] = serde_json::json!(reasons);
            body["warnings"] = serde_json::json!(self.front.status.warnings());
        }
        let status = if is_ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        typed(status, JSON, format!("{body}\n"))
    }

    fn metrics(&self, headers: &HeaderMap) -> HttpResponse {
        if !self.front.settings.read().metrics_public && !self.is_local(headers) {
            let text = "metrics are available only on this machine; set health.metrics_public to publish them\n";
            return plain(StatusCode::FORBIDDEN, text.into());
        }
        let exposition = Exposition::wanted(headers);
        let text = self.front.metrics.text(exposition);
        let mut answer = typed(StatusCode::OK, exposition.content_type(), text);
        let accept = HeaderValue::from_static("Accept");
        answer.headers_mut().insert(VARY, accept);
        answer
    }

    /// The last denials by rules, for developers on this machine. They contain names and ids of users.
    fn denials(&self, headers: &HeaderMap) -> HttpResponse {
        if !self.is_local(headers) {
            let text = "denials are available only on this machine\n";
            return plain(StatusCode::FORBIDDEN, text.into());
        }
        typed(StatusCode::OK, JSON, self.front.denials.json())
    }

    /// Ends the process without any stop, and starts the server again: for the demo and for developers on this machine. The process ends
    /// only after the answer has reached the kernel, because a browser repeats a request whose connection ends without an answer, and the
    /// repetition would end the new server too.
    fn crash(&self, method: &Method, headers: &HeaderMap) -> HttpResponse {
        let refuse = |status, text: &str| plain(status, format!("{text}\n"));
        if *method != Method::POST {
            let answer = refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path supports only POST",
            );
            return with_header(answer, ALLOW, "POST");
        }
        if !self.is_local(headers) || !is_own_page(headers) {
            let text =
                "only programs on this machine and this server's own pages may end the server";
            return refuse(StatusCode::FORBIDDEN, text);
        }
        if self.front.store == StoreKind::Memory {
            let text = "the server keeps its records in memory, and a crash would lose them; set store.kind to another one";
            return refuse(StatusCode::CONFLICT, text);
        }
        let (piece, sent) = self
            .outlet
            .piece("the server ends now and starts again\n".into());
        let front = Arc::clone(&self.front);
        tokio::spawn(async move {
            // An error means that the client is gone; its request still counts.
            let _ = sent.await;
            front.crash.notify_one();
        });
        let mut answer = HttpResponse::new(Body::from(piece));
        *answer.status_mut() = StatusCode::ACCEPTED;
        with_header(answer, CONTENT_TYPE, TEXT)
    }

    fn index(&self, headers: &HeaderMap) -> HttpResponse {
        let host = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default();
        typed(
            StatusCode::OK,
            HTML,
            page::index(host, self.is_encrypted, &self.front.paths),
        )
    }

    fn not_found(&self) -> HttpResponse {
        let paths = self.front.paths.iter().map(|(path, _)| path.as_str());
        let paths = paths.collect::<Vec<_>>().join(", ");
        let text = format!("this path does not exist; WebSocket clients connect to {paths}\n");
        plain(StatusCode::NOT_FOUND, text)
    }

    /// Whether the request was made on this machine: the peer is a loopback address and not a proxy, and the only `Host` is a
    /// loopback name. A proxy that adds no forwarding header usually passes on the `Host` that the client sent, and that is not
    /// a loopback name.
    fn is_local(&self, headers: &HeaderMap) -> bool {
        let is_forwarded = FORWARDED_HEADERS
            .iter()
            .any(|name| headers.contains_key(*name));
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            _ => "",
        };
        is_loopback(self.peer.ip()) && !is_forwarded && is_loopback_name(host_name(host))
    }

    /// The address of the client, which trusted proxies report in a header.
    pub(super) fn client(&self, headers: &HeaderMap) -> SocketAddr {
        self.front
            .settings
            .read()
            .proxies
            .client(self.peer, headers)
    }

    fn refuse(&self, peer: SocketAddr, refusal: &Refusal) -> HttpResponse {
        let text = match refusal {
            Refusal::Malformed(problem) => {
                let refused = &self.front.metrics.refused_requests;
                refused.count(RequestRefusal::MalformedHead);
                return plain(StatusCode::BAD_REQUEST, format!("{problem}\n"));
            }
            Refusal::Origin(origin) => {
                peer_line("page refused", || {
                    tracing::warn!(%peer, origin = origin.as_str(), "page refused; add its origin to network.origins to allow it");
                });
                "pages of this origin may not connect; see network.origins\n"
            }
            Refusal::Host(host) => {
                peer_line("host refused", || {
                    tracing::warn!(%peer, host = host.as_str(), "host name refused; add it to network.hosts to allow it");
                });
                "this host name is not allowed; see network.hosts\n"
            }
        };
        self.front.metrics.origin_refusals.inc();
        plain(StatusCode::FORBIDDEN, text.into())
    }

    /// Opens a WebSocket. It carries a new session, or continues the session of the token.
    pub(super) fn upgrade(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        protocol: Protocol,
        token: Option<SessionToken>,
    ) -> HttpResponse {
        let on_upgrade = hyper::upgrade::on(&mut request);
        let (parts, _) = request.into_parts();
        let takes_deflate = self.front.takes_deflate && protocol.compresses();
        let agreement = match handshake::agree(&parts, protocol.subprotocols(), takes_deflate) {
            Ok(agreement) => agreement,
            Err(error) => return self.refuse_handshake(error),
        };
        if self.front.status.stage() == Stage::Draining {
            return stopping();
        }
        let client = self.client(&parts.headers);
        if self.count(client) == Err(TooMany) {
            return too_many();
        }
        // The permit is taken before the 101 answer, because afterwards the server could not refuse the WebSocket with an HTTP
        // status.
        let Some(permit) = self.take_permit() else {
            return self.full(client);
        };
        let front = Arc::clone(&self.front);
        let opened = Opened {
            peer: Arc::new(peer(client, &parts, self.is_encrypted)),
            permit,
            is_deflated: agreement.deflate.is_some(),
            protocol,
            token,
        };
        tokio::spawn(hand_over(front, on_upgrade, opened));
        let mut answer = HttpResponse::default();
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = switching_protocols(&agreement);
        answer
    }

    fn refuse_handshake(&self, error: HandshakeError) -> HttpResponse {
        if matches!(error, HandshakeError::Malformed(_)) {
            let refused = &self.front.metrics.refused_requests;
            refused.count(RequestRefusal::MalformedHead);
        }
        refuse_handshake(error)
    }

    /// Counts and logs that `limits.connections_max` is reached, and returns the answer.
    pub(super) fn full(&self, client: SocketAddr) -> HttpResponse {
        self.front.metrics.connection_refusals.inc();
        peer_line("connection refused", || {
            tracing::warn!(peer = %client, "connection refused: limits.connections_max is reached");
        });
        unavailable("the server has reached its limit of connections\n")
    }

    /// Counts a WebSocket at its client's address, if it arrived through a trusted proxy.
    fn count(&self, client: SocketAddr) -> Result<(), TooMany> {
        let mut slot = self.ticket.lock();
        match &mut *slot {
            Some(ticket) if ticket.counted.is_none() => {
                ticket.counted = self.front.count(client.ip())?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes a permit for an open connection and passes the socket's ticket to it. Returns `None` if `limits.connections_max`
    /// is reached.
    fn take_permit(&self) -> Option<ConnectionPermit> {
        let mut slot = self.ticket.lock();
        match self.front.connection_limiter.take(slot.take()?) {
            Ok(permit) => Some(permit),
            Err(ticket) => {
                *slot = Some(ticket);
                None
            }
        }
    }
}

/// Whether this is the path of a page that `respond` answers before it checks `Host` and `Origin`.
pub(super) fn is_page(path: &str) -> bool {
    matches!(path, "/health" | "/ready" | "/health-check")
}

/// The headers of an answer that opens a WebSocket.
pub(super) fn switching_protocols(agreement: &Agreement) -> HeaderMap {
    let Agreement {
        accepted,
        deflate,
        subprotocol,
    } = agreement;
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accepted) = HeaderValue::from_str(accepted) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    }
    if let Some(Ok(answer)) = deflate.as_deref().map(HeaderValue::from_str) {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, answer);
    }
    if let Some(subprotocol) = subprotocol {
        let subprotocol = HeaderValue::from_static(subprotocol);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, subprotocol);
    }
    headers
}

/// Allows web pages of this origin to read the answer.
pub(super) fn allow_origin(headers: &mut HeaderMap, origin: &str) {
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static(ANSWER_HEADERS);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        let origin = HeaderValue::from_static("Origin");
        if headers.get(VARY).is_some_and(|known| known != origin) {
            headers.append(VARY, origin);
        } else {
            headers.insert(VARY, origin);
        }
    }
}

/// A WebSocket whose handshake the front has answered.
struct Opened {
    peer: Arc<PeerDetails>,
    permit: ConnectionPermit,
    is_deflated: bool,
    protocol: Protocol,
    /// The session that it continues.
    token: Option<SessionToken>,
}

/// Waits until the 101 answer has left, removes the socket from the runtime, and hands it over to a shard.
async fn hand_over(front: Arc<Front>, on_upgrade: hyper::upgrade::OnUpgrade, opened: Opened) {
    let Opened {
        peer,
        permit,
        is_deflated,
        protocol,
        token,
    } = opened;
    let address = peer.address;
    let upgraded = match timeout(front.connection_timeout, on_upgrade).await {
        Ok(Ok(upgraded)) => upgraded,
        Ok(Err(error)) => {
            return tracing::debug!(peer = %address, %error, "a connection was lost during its upgrade");
        }
        Err(_) => return tracing::debug!(peer = %address, "a connection did not read its upgrade"),
    };
    let Ok(parts) = upgraded.downcast::<TokioIo<Outflow<FrontStream>>>() else {
        return tracing::error!("an upgraded connection has an unexpected type");
    };
    match parts.io.into_inner().into_inner().hand_over(parts.read_buf) {
        Ok(Handover {
            stream,
            tls,
            unread,
        }) => {
            front.metrics.upgrades.inc();
            tracing::debug!(peer = %address, "a websocket was opened");
            let opened = vec![UpgradedSocket {
                stream,
                tls,
                unread,
                peer,
                permit,
                is_deflated,
                protocol,
                attachment: token.map(|token| Box::new(Attachment::Switch { token })),
            }];
            // The session stays at its shard. That shard has checked the token before the 101 answer.
            match token.and_then(|token| front.shards.shard_for(&token)) {
                Some(shard) => shard.hand_over(opened),
                None => front.shards.hand_over(opened),
            }
        }
        Err(error) => {
            tracing::warn!(peer = %address, %error, "a connection could not be handed over");
        }
    }
}

fn refuse_handshake(error: HandshakeError) -> HttpResponse {
    let text = format!("{error}\n");
    let (status, header) = match error {
        HandshakeError::Method => return not_allowed("a WebSocket must be opened with GET"),
        HandshakeError::NoUpgrade => (StatusCode::UPGRADE_REQUIRED, (UPGRADE, "websocket")),
        HandshakeError::Version => (
            StatusCode::UPGRADE_REQUIRED,
            (SEC_WEBSOCKET_VERSION, handshake::VERSION),
        ),
        HandshakeError::Malformed(_) | HandshakeError::Subprotocol(_) => {
            return plain(StatusCode::BAD_REQUEST, text);
        }
    };
    let mut answer = with_header(plain(status, text), header.0, header.1);
    if status == StatusCode::UPGRADE_REQUIRED {
        answer = with_header(answer, UPGRADE, "websocket");
        answer = with_header(answer, CONNECTION, "Upgrade");
    }
    answer
}

fn preflight(methods: Option<&'static str>) -> HttpResponse {
    let answer = plain(StatusCode::NO_CONTENT, String::new());
    let methods = methods.unwrap_or("GET, HEAD, OPTIONS");
    let answer = with_header(answer, ACCESS_CONTROL_ALLOW_METHODS, methods);
    let answer = with_header(answer, ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    with_header(answer, ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS)
}

/// The answer while the server stops.
pub(super) fn stopping() -> HttpResponse {
    unavailable("the server is stopping\n")
}

/// The answer when `limits.connections_per_address_max` is reached.
pub(super) fn too_many() -> HttpResponse {
    let text = "this address has reached its limit of connections\n";
    let answer = plain(StatusCode::TOO_MANY_REQUESTS, text.into());
    with_header(answer, RETRY_AFTER, RETRY_SECONDS)
}

fn unavailable(text: &str) -> HttpResponse {
    with_header(
        plain(StatusCode::SERVICE_UNAVAILABLE, text.into()),
        RETRY_AFTER,
        RETRY_SECONDS,
    )
}

pub(super) fn plain(status: StatusCode, text: String) -> HttpResponse {
    typed(status, TEXT, text)
}

fn with_header(mut answer: HttpResponse, name: HeaderName, value: &'static str) -> HttpResponse {
    answer
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    answer
}
