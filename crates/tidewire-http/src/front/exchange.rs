//! Requests for the path of a protocol whose sessions may have exchanges in place of a WebSocket (decision 0101).
//!
//! A request opens a session, waits for its messages, or brings messages; [`tidewire_shard::exchange_request`] is the way to the shard of the session.
//! The protocol decides the purpose of a request and the form of bodies.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use tidewire_shard::connection_limiter::SocketPermits;
use tidewire_shard::exchange::{BodyFault, OpenExchange};
use tidewire_shard::exchange_request::Post;
use tidewire_shard::outlet::Outlet;
use tidewire_shard::session_token::SessionToken;
use tidewire_shard::share::{Caller, Refused};
use tidewire_wire::protocol::{ExchangeRefusal, Handshake, HandshakeRefusal, Protocol};

use super::Front;
use super::handshake;
use super::http::{Socket, plain, stopping, too_many};
use crate::api::{Body, HttpResponse, typed};
use crate::peer::peer;
use crate::refusal::RequestRefusal;
use crate::request_body::{self, Unreadable};
use crate::status::Stage;

/// The type of answers with messages.
const MESSAGES: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
/// The answer to a request whose messages were taken.
const TAKEN: &str = "ok";
/// The type of that answer.
const TAKEN_TYPE: &str = "text/html";
/// The type of bodies that no client sends. Existing servers refuse it.
const BINARY: &[u8] = b"application/octet-stream";
/// The methods of the paths of such protocols.
const METHODS: &str = "GET, POST, OPTIONS";

/// Why the body of a request was not passed on.
enum Unread {
    /// The request is at fault, and its session ends.
    Fault(BodyFault),
    /// The server has no room or the body is too slow, and the session ends.
    NoRoom(RequestRefusal),
    /// The session has ended.
    Ended(ExchangeRefusal),
}

/// Keeps a connection open beyond its time limit while a request waits for messages.
struct Waiting(Arc<Outlet>);

impl Waiting {
    fn begin(outlet: &Arc<Outlet>) -> Self {
        outlet.begin_stream();
        Self(Arc::clone(outlet))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.end_stream();
    }
}

impl Front {
    /// The methods of a path; `None` if its protocol has no exchanges.
    pub(super) fn exchange_methods(&self, path: &str) -> Option<&'static str> {
        let protocol = self.protocol(path)?;
        let refusal = protocol.exchange_refusal(ExchangeRefusal::Unknown, false);
        refusal.map(|_| METHODS)
    }
}

impl Socket {
    /// Answers a request for the path of a protocol.
    pub(super) async fn connect(
        self: &Arc<Self>,
        request: Request<Incoming>,
        protocol: Protocol,
    ) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().map(str::to_owned);
        let asked = tidewire_wire::protocol::HandshakeRequest {
            query: query.as_deref(),
            ..handshake::request(&parts)
        };
        let is_upgrade = asked.is_upgrade;
        let refuse = |refusal| match protocol.exchange_refusal(refusal, is_upgrade) {
            Some(refused) => refused_with(refused),
            None => plain(StatusCode::BAD_REQUEST, "this session has ended\n".into()),
        };
        let purpose = match protocol.handshake(&asked) {
            Ok(purpose) => purpose,
            Err(refused) => return refused_with(refused),
        };
        // A request that waits should hold little memory, so each future is a separate block, and most of the request is dropped before.
        let answered = match purpose {
            Handshake::WebSocket => {
                return self.upgrade(Request::from_parts(parts, body), protocol, None);
            }
            Handshake::Open => return Box::pin(self.open(parts, protocol)).await,
            Handshake::Poll { token } => {
                drop((parts, body));
                Box::pin(self.poll(token)).await
            }
            Handshake::Post { token } => Box::pin(self.post(parts, body, token)).await,
            Handshake::Switch { token } => match self.may_switch(token).await {
                Ok(token) => {
                    let request = Request::from_parts(parts, body);
                    return self.upgrade(request, protocol, Some(token));
                }
                Err(refusal) => Err(refusal),
            },
            Handshake::Misuse { token } => match self.may_switch(token).await {
                Ok(_) => Err(ExchangeRefusal::OutOfTurn),
                Err(refusal) => Err(refusal),
            },
        };
        answered.unwrap_or_else(refuse)
    }

    /// The answer to a request from a page that the server does not serve, in the form of the protocol of its path.
    pub(super) fn forbid_exchange(
        &self,
        request: &Request<Incoming>,
        answer: HttpResponse,
    ) -> HttpResponse {
        let protocol = self.front.protocol(request.uri().path());
        let refusal = protocol.filter(|_| answer.status() == StatusCode::FORBIDDEN);
        let is_upgrade = request.headers().contains_key(hyper::header::UPGRADE);
        let refusal =
            refusal.and_then(|it| it.exchange_refusal(ExchangeRefusal::Forbidden, is_upgrade));
        refusal.map_or(answer, refused_with)
    }

    async fn open(self: &Arc<Self>, parts: Parts, protocol: Protocol) -> HttpResponse {
        let front = &self.front;
        if front.status.stage() == Stage::Draining {
            return stopping();
        }
        let client = self.client(&parts.headers);
        // The session has a place like a connection, with the descriptor that its WebSocket may need.
        let Ok(counted) = front.count(client.ip()) else {
            return too_many();
        };
        let limiter = &front.connection_limiter;
        let descriptor = Arc::clone(&limiter.descriptors).try_acquire_owned();
        let permit = descriptor.ok().and_then(|descriptor| {
            let ticket = SocketPermits {
                descriptor,
                counted,
            };
            limiter.take(ticket).ok()
        });
        let (Some(permit), Some(shard)) = (permit, front.shards.shard_for_exchange()) else {
            return self.full(client);
        };
        let opened = OpenExchange {
            protocol,
            peer: Arc::new(peer(client, &parts, self.is_encrypted)),
            permit,
        };
        drop(parts);
        match shard.open_exchange(opened).await {
            Some(body) => messages(body),
            None => stopping(),
        }
    }

    async fn poll(&self, token: &str) -> Result<HttpResponse, ExchangeRefusal> {
        let (token, shard) = self.session(token)?;
        let _waiting = Waiting::begin(&self.outlet);
        shard.poll_exchange(token).await.map(messages)
    }

    async fn post(
        &self,
        parts: Parts,
        mut body: Incoming,
        token: &str,
    ) -> Result<HttpResponse, ExchangeRefusal> {
        let (token, shard) = self.session(token)?;
        let client = self.client(&parts.headers);
        let mut post = shard.post_exchange(token).await?;
        let bytes_max = post.bytes_max();
        let content_type = parts.headers.get(CONTENT_TYPE);
        let is_binary = content_type.is_some_and(|it| it.as_bytes().starts_with(BINARY));
        let version = parts.version;
        drop(parts);
        if is_binary {
            post.refuse(BodyFault::Broken);
            return Err(ExchangeRefusal::OutOfTurn);
        }
        let caller = Caller::at(client.ip());
        let refused = match self.read_messages(&mut post, &mut body, caller).await {
            Ok((body, room)) => {
                post.send(body).await?;
                drop(room);
                return Ok(typed(StatusCode::OK, TAKEN_TYPE, TAKEN.into()));
            }
            Err(Unread::Ended(refusal)) => return Err(refusal),
            Err(Unread::Fault(fault)) => {
                post.refuse(fault);
                match fault {
                    BodyFault::TooLarge => {
                        let discarded_max = bytes_max.saturating_mul(2);
                        request_body::discard(&mut body, version, discarded_max).await;
                        RequestRefusal::LargeBody
                    }
                    BodyFault::Broken => return Err(ExchangeRefusal::OutOfTurn),
                }
            }
            Err(Unread::NoRoom(cause)) => {
                post.refuse(BodyFault::Broken);
                cause
            }
        };
        self.front.metrics.refused_requests.count(refused);
        Ok(match refused {
            RequestRefusal::LargeBody => plain(StatusCode::PAYLOAD_TOO_LARGE, String::new()),
            RequestRefusal::SlowBody => plain(StatusCode::REQUEST_TIMEOUT, String::new()),
            _ => plain(StatusCode::SERVICE_UNAVAILABLE, String::new()),
        })
    }

    /// Reads the body of a request within the limits of its session and of all bodies. Returns it with its room among them.
    async fn read_messages(
        &self,
        post: &mut Post,
        body: &mut Incoming,
        caller: Caller,
    ) -> Result<(Bytes, tidewire_shard::share::Seat), Unread> {
        let bytes_max = post.bytes_max();
        let Some(bytes) = request_body::bytes_needed(body, bytes_max) else {
            return Err(Unread::Fault(BodyFault::TooLarge));
        };
        let room = self.front.bodies.take(caller, bytes);
        let room = room.map_err(|refused| {
            Unread::NoRoom(match refused {
                Refused::Full => RequestRefusal::Bodies,
                Refused::Share => RequestRefusal::BodyShare,
            })
        })?;
        let reading = request_body::read(body, bytes_max, self.front.body_timeout);
        let read = tokio::select! {
            read = reading => read,
            refusal = post.ended() => return Err(Unread::Ended(refusal)),
        };
        read.map(|body| (body, room)).map_err(|error| match error {
            Unreadable::TooLarge => Unread::Fault(BodyFault::TooLarge),
            Unreadable::TooSlow => Unread::NoRoom(RequestRefusal::SlowBody),
            Unreadable::Broken => Unread::Fault(BodyFault::Broken),
        })
    }

    /// Whether a WebSocket to this node may become the transport of a session. Only the session's node can do that; a client whose WebSocket
    /// is refused continues to poll.
    async fn may_switch(&self, token: &str) -> Result<SessionToken, ExchangeRefusal> {
        let (token, shard) = self.session(token)?;
        shard.may_switch(token).await?;
        match shard.address().node == token.node() {
            true => Ok(token),
            false => Err(ExchangeRefusal::OutOfTurn),
        }
    }

    /// The shard that takes the requests for a token. Only the shard that the token names can check whether it is right.
    fn session(
        &self,
        token: &str,
    ) -> Result<(SessionToken, tidewire_shard::handle::ShardHandle), ExchangeRefusal> {
        let token = SessionToken::parse(token).ok_or(ExchangeRefusal::Unknown)?;
        let shard = self.front.shards.shard_for(&token);
        Ok((token, shard.ok_or(ExchangeRefusal::Unknown)?))
    }
}

/// An answer with messages.
fn messages(body: Bytes) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::from(body));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, MESSAGES);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The answer of a protocol that refuses a request.
fn refused_with(refused: HandshakeRefusal) -> HttpResponse {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    typed(status, refused.content_type, refused.body.into_owned())
}
