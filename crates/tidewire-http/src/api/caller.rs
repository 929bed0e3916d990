//! The session of a request: opened, logged in, and listened to until a deadline.

use bytes::Bytes;
use hyper::StatusCode;
use tidewire_auth::credentials::Credentials;
use tidewire_core::effect::CloseReason;
use tidewire_core::message::{Auth, Connection, Message};
use tidewire_shard::carrier::{CarriedSession, End, Stay};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer};
use super::body::too_large_login;
use super::{Api, ApiRequest, peer};
use crate::front::refusal::RequestRefusal;

/// Why a caller gets no more answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The login was refused.
    Refused,
    /// The object of the login has more than `auth.login_bytes_max`.
    LoginTooLarge,
    /// Its address was closed for a limit too often, or too many logins of the address or the user were refused.
    Banned,
    /// Nobody can say now whether to let it in.
    Unavailable,
    /// Its user holds all that one may hold of what requests share.
    Share,
    /// The server stops, or has no shard.
    GoingAway,
    /// The answers have more than `http.answer_bytes_max`, or the session was ended for another reason.
    Ended,
    /// The node has no memory for the answer; nothing was done.
    NoMemory,
    /// The time is over.
    Timeout,
}

impl CallError {
    /// The answer to a request of which nothing was done, or nothing is known.
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Refused => answer::text(
                StatusCode::UNAUTHORIZED,
                "Unsuccessful authentication attempt.",
            ),
            Self::LoginTooLarge => too_large_login(),
            Self::Banned => answer::retryable(answer::text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many failed logins.",
            )),
            Self::Share => answer::share("requests (http.requests_max)"),
            Self::Unavailable => answer::busy("logins can't be decided now"),
            Self::GoingAway => answer::busy("the server is stopping"),
            Self::Ended => answer::busy("the session was ended"),
            Self::NoMemory => {
                answer::busy("the server has no memory for the answer (limits.memory_bytes_max)")
            }
            Self::Timeout => answer::retryable(answer::text(
                StatusCode::GATEWAY_TIMEOUT,
                "Request exceeded timeout before a response was received.",
            )),
        }
    }
}

impl From<End> for CallError {
    fn from(end: End) -> Self {
        match end {
            End::GoingAway => Self::GoingAway,
            End::Share => Self::Share,
            End::Engine(CloseReason::Refused) => Self::Banned,
            End::Engine(
                CloseReason::InvalidLogin
                | CloseReason::TooManyAuthAttempts
                | CloseReason::Barred
                | CloseReason::Expired,
            ) => Self::Refused,
            End::Engine(CloseReason::AuthUnavailable) => Self::Unavailable,
            End::Engine(_) | End::Slow | End::Severed => Self::Ended,
        }
    }
}

/// A session with a deadline.
pub(super) struct Caller {
    session: CarriedSession,
    deadline: Instant,
}

impl Caller {
    /// Gives the session more messages.
    pub(super) fn send(&self, messages: Vec<u8>) {
        self.session.send(messages);
    }

    /// Fails if the message refuses the login.
    pub(super) fn check_login(&self, message: &Message<'_>) -> Result<(), CallError> {
        match message {
            Message::Connection(Connection::Reject) => Err(CallError::Banned),
            Message::Auth(
                Auth::Unsuccessful { .. } | Auth::TooManyAttempts | Auth::InvalidMessageData,
            ) => Err(CallError::Refused),
            _ => Ok(()),
        }
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// What the webhook gives to clients that log in over HTTP, as JSON, once the login was answered.
    pub(super) fn token(&self) -> Option<&str> {
        self.session.token()
    }

    /// The session, for longer than a request.
    pub(super) fn into_session(self) -> CarriedSession {
        self.session
    }

    /// The next chunk of whole messages; read them with [`messages`].
    pub(super) async fn receive(&mut self) -> Result<Bytes, CallError> {
        match timeout_at(self.deadline, self.session.receive()).await {
            Ok(chunk) => Ok(chunk?),
            Err(_) => Err(CallError::Timeout),
        }
    }
}

impl Api {
    /// Opens a session that logs in and then does what `messages` say, without waiting in between: what stands behind a
    /// login waits for it, and is not done if it is refused.
    pub(super) fn call(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        messages: &[u8],
    ) -> Result<Caller, CallError> {
        let bytes_max = self.limits.answer_bytes_max;
        let mut first = introduction(credentials, false);
        first.extend_from_slice(messages);
        self.open(request, credentials, Stay::Passing { bytes_max }, first)
    }

    /// Opens a session that logs in, and stays and coalesces.
    pub(super) fn stay(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
    ) -> Result<Caller, CallError> {
        let first = introduction(credentials, true);
        self.open(request, credentials, Stay::Lasting, first)
    }

    fn open(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        stay: Stay,
        first: Vec<u8>,
    ) -> Result<Caller, CallError> {
        if credentials.as_json().len() > self.limits.login_bytes_max {
            self.refused.count(RequestRefusal::LargeBody);
            return Err(CallError::LoginTooLarge);
        }
        let shard = self.shard().ok_or(CallError::GoingAway)?;
        let peer = peer(&request.parts, request.address);
        Ok(Caller {
            session: shard.carry_for(peer, request.standing.clone(), stay, first),
            deadline: Instant::now() + self.limits.request_timeout,
        })
    }
}

/// The messages that every session begins with.
fn introduction(credentials: &Credentials, coalesces: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let challenge = Connection::challenge(coalesces);
    encode(&Message::Connection(challenge), &mut out);
    let data = Some(credentials.as_json());
    encode(&Message::Auth(Auth::Request { data }), &mut out);
    out
}

/// Appends a message for a session.
pub(super) fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    Deepstream::encode(Dialect::Server, message, out);
}

/// The messages of a chunk, in order.
pub(super) fn messages(mut chunk: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let bytes = Deepstream::message_bytes(chunk)?;
        let (message, rest) = chunk.split_at(bytes);
        chunk = rest;
        // The shard wrote it with the same file, so it can be read.
        Deepstream::decode(message).ok()
    })
}
