//! Request bodies: how many bytes the server accepts, for how long it waits, and how many bytes all bodies together may use.

use bytes::Bytes;
use hyper::StatusCode;
use tidewire_shard::share::{Caller, Refused};

use super::answer::{self, HttpResponse};
use super::{Api, ApiRequest, is_of_type};
use crate::refusal::RequestRefusal;
use crate::request_body::{self, Unreadable};

/// The body of a request. The request's `standing` holds its room among all bodies until the request ends.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
}

/// Which size limit applies to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLimit {
    /// `http.body_bytes_max`.
    Body,
    /// `auth.login_bytes_max`, if that is less than `http.body_bytes_max`.
    Login,
}

/// The answer to a login that is too large.
pub(super) fn too_large_login() -> HttpResponse {
    answer::text(
        StatusCode::PAYLOAD_TOO_LARGE,
        "The login is too large (auth.login_bytes_max).",
    )
}

/// Why the server refused a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// The body has more than `http.body_bytes_max`.
    TooLarge,
    /// It did not arrive within `http.body_timeout`.
    TooSlow,
    /// The bodies of all requests together have reached `http.bodies_bytes_max`.
    NoRoom,
    /// The caller has used its share of `http.bodies_bytes_max`.
    Share,
    /// The connection was lost, or the framing is invalid.
    Broken,
}

impl BodyError {
    /// The metric's cause, if a limit was the reason.
    fn cause(self) -> Option<RequestRefusal> {
        match self {
            Self::TooLarge => Some(RequestRefusal::LargeBody),
            Self::TooSlow => Some(RequestRefusal::SlowBody),
            Self::NoRoom => Some(RequestRefusal::Bodies),
            Self::Share => Some(RequestRefusal::BodyShare),
            Self::Broken => None,
        }
    }

    /// The answer in deepstream's form.
    pub(super) fn answer(self) -> HttpResponse {
        let failed = "Failed to parse body of request: ";
        let (status, reason) = match self {
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "it is too large (http.body_bytes_max)",
            ),
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "it did not arrive in time (http.body_timeout)",
            ),
            Self::NoRoom => {
                return answer::busy("the server has no room for the body (http.bodies_bytes_max)");
            }
            Self::Share => return answer::share("the bytes of bodies (http.bodies_bytes_max)"),
            Self::Broken => (StatusCode::BAD_REQUEST, "it is incomplete"),
        };
        answer::text(status, &format!("{failed}{reason}"))
    }
}

impl Api {
    /// Reads a body within all limits, and counts a refusal by its cause.
    pub(super) async fn read(&self, request: &mut ApiRequest) -> Result<ReceivedBody, BodyError> {
        self.read_within(request, BodyLimit::Body).await
    }

    async fn read_within(
        &self,
        request: &mut ApiRequest,
        limit: BodyLimit,
    ) -> Result<ReceivedBody, BodyError> {
        let taken = self.try_read(request, limit).await;
        if let Some(cause) = taken.as_ref().err().and_then(|error| error.cause()) {
            self.refused.count(cause);
        }
        taken
    }

    /// Reads the body of a request that must be JSON; the error is the answer to send.
    pub(super) async fn read_json(
        &self,
        request: &mut ApiRequest,
    ) -> Result<ReceivedBody, HttpResponse> {
        self.read_json_within(request, BodyLimit::Body).await
    }

    /// Reads a body like `read_json`, within `limit`.
    pub(super) async fn read_json_within(
        &self,
        request: &mut ApiRequest,
        limit: BodyLimit,
    ) -> Result<ReceivedBody, HttpResponse> {
        if !is_of_type(&request.parts, "application/json") {
            return Err(answer::text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Invalid \"Content-Type\" header. Supported media types: \"application/json\"",
            ));
        }
        let body = self.read_within(request, limit).await;
        body.map_err(|error| match (error, limit) {
            (BodyError::TooLarge, BodyLimit::Login) => too_large_login(),
            (error, _) => error.answer(),
        })
    }

    async fn try_read(
        &self,
        request: &mut ApiRequest,
        limit: BodyLimit,
    ) -> Result<ReceivedBody, BodyError> {
        let caller = Caller::at(request.address.ip());
        let body_bytes_max = self.limits.body_bytes_max;
        let bytes_max = match limit {
            BodyLimit::Body => body_bytes_max,
            BodyLimit::Login => body_bytes_max.min(self.limits.login_bytes_max),
        };
        let discarded_max = bytes_max.saturating_mul(2);
        let version = request.parts.version;
        let Some(bytes) = request_body::bytes_needed(&request.body, bytes_max) else {
            request_body::discard(&mut request.body, version, discarded_max).await;
            return Err(BodyError::TooLarge);
        };
        let room = self
            .bodies
            .take(caller, bytes)
            .map_err(|refused| match refused {
                Refused::Full => BodyError::NoRoom,
                Refused::Share => BodyError::Share,
            })?;
        // A request of the API has its permit, and with it its `standing`, before its body is read.
        if let Some(standing) = &request.standing {
            standing.keep_body(room);
        }
        let body = &mut request.body;
        match request_body::read(body, bytes_max, self.limits.body_timeout).await {
            Ok(bytes) => Ok(ReceivedBody { bytes }),
            Err(Unreadable::TooLarge) => {
                // The server has read `bytes_max`, half of the bound.
                request_body::discard(body, version, bytes_max).await;
                Err(BodyError::TooLarge)
            }
            Err(Unreadable::TooSlow) => Err(BodyError::TooSlow),
            Err(Unreadable::Broken) => Err(BodyError::Broken),
        }
    }
}
