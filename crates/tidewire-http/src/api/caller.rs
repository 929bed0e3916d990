//! The session of a request: opens it, logs it in, and receives its replies until a deadline.

use std::sync::Arc;

use hyper::StatusCode;
use tidewire_auth::credentials::Credentials;
use tidewire_core::effect::CloseReason;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::carrier::{End, Stay};
use tidewire_shard::outlet::Outlet;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::request::OwnedRequest;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, HttpResponse};
use super::body::too_large_login;
use super::{Api, ApiRequest};
use crate::peer::peer;
use crate::refusal::RequestRefusal;

/// Why a caller receives no more answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The login was refused.
    Refused,
    /// The credentials are larger than `auth.login_bytes_max`.
    LoginTooLarge,
    /// The caller's address was disconnected for exceeding a limit too often, or the address or user had too many refused
    /// logins.
    Banned,
    /// The auth chain cannot decide about logins now.
    Unavailable,
    /// The user has used its share of the requests.
    Share,
    /// The server is stopping, or has no shard.
    GoingAway,
    /// The answers exceed `http.answer_bytes_max`, or the session was ended for another reason.
    Ended,
    /// The node has no memory for the answer; the engine has received no command.
    NoMemory,
    /// The deadline has passed.
    Timeout,
}

impl CallError {
    /// The answer to a request that has changed nothing, or whose outcome is unknown.
    pub(super) fn answer(self) -> HttpResponse {
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
            Self::Ended => answer::busy("the session has ended"),
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
            End::Engine(_) | End::Slow | End::Severed | End::Operator => Self::Ended,
        }
    }
}

/// A session with a deadline.
pub(super) struct Caller {
    session: CarriedSession,
    deadline: Instant,
}

impl Caller {
    /// Sends more requests to the session.
    pub(super) fn send(&self, requests: Vec<OwnedRequest>) {
        self.session.send(requests);
    }

    /// Returns an error if the reply refuses the login.
    pub(super) fn check_login(&self, reply: &OwnedReply) -> Result<(), CallError> {
        match reply {
            OwnedReply::Rejected => Err(CallError::Banned),
            OwnedReply::LoginRefused => Err(CallError::Refused),
            _ => Ok(()),
        }
    }

    /// The session's replies after this call leave through `outlet`, see [`CarriedSession::hand_on_to`].
    pub(super) fn hand_on_to(&self, outlet: Arc<Outlet>) {
        self.session.hand_on_to(outlet);
    }

    /// Whether the deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The webhook's data for clients that log in over HTTP, as JSON. It is set before the login is answered.
    pub(super) fn token(&self) -> Option<&str> {
        self.session.token()
    }

    /// Releases the session from the deadline, so that it can outlive the request.
    pub(super) fn into_session(self) -> CarriedSession {
        self.session
    }

    /// Receives the next replies.
    pub(super) async fn receive(&mut self) -> Result<Replies, CallError> {
        match timeout_at(self.deadline, self.session.receive()).await {
            Ok(replies) => Ok(replies?),
            Err(_) => Err(CallError::Timeout),
        }
    }
}

impl Api {
    /// Opens a session that logs in and then processes `requests`, without a round trip in between. The session processes
    /// requests after a login only once the login has succeeded; if it is refused, they have no effect.
    pub(super) fn call(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        requests: Vec<OwnedRequest>,
    ) -> Result<Caller, CallError> {
        let bytes_max = self.limits.answer_bytes_max;
        let first = [vec![login(credentials)], requests].concat();
        self.open(request, credentials, Stay::Passing { bytes_max }, first)
    }

    /// Opens a session that logs in, outlives the request, and coalesces changes.
    pub(super) fn stay(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
    ) -> Result<Caller, CallError> {
        let stay = Stay::Lasting { coalesces: true };
        self.open(request, credentials, stay, vec![login(credentials)])
    }

    fn open(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        stay: Stay,
        first: Vec<OwnedRequest>,
    ) -> Result<Caller, CallError> {
        if credentials.as_json().len() > self.limits.login_bytes_max {
            self.refused.count(RequestRefusal::LargeBody);
            return Err(CallError::LoginTooLarge);
        }
        let shard = self.shard().ok_or(CallError::GoingAway)?;
        let peer = Arc::new(peer(request.address, &request.parts, false));
        Ok(Caller {
            session: shard.carry_for(peer, request.standing.clone(), stay, first),
            deadline: Instant::now() + self.limits.request_timeout,
        })
    }
}

/// The request that begins every session.
fn login(credentials: &Credentials) -> OwnedRequest {
    OwnedRequest::LogIn {
        data: credentials.as_json().into(),
    }
}
