//! Request bodies: how many bytes the server accepts, for how long it waits, and how many bytes all bodies together may use.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::{StatusCode, Version};
use tidewire_shard::share::{Caller, Refused};
use tokio::time::timeout;

use super::answer::{self, HttpResponse};
use super::{Api, ApiRequest, is_of_type};
use crate::refusal::RequestRefusal;

/// Time to read the rest of a refused body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

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
        let hint = request.body.size_hint();
        let bytes = match hint.exact().map(usize::try_from) {
            Some(Ok(bytes)) if bytes <= bytes_max => bytes,
            Some(announced) => {
                let discarded_max = bytes_max.saturating_mul(2);
                if announced.is_ok_and(|bytes| bytes <= discarded_max) {
                    discard(request, discarded_max).await;
                }
                return Err(BodyError::TooLarge);
            }
            // A body without a length reserves the most that it may have.
            None => bytes_max,
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
        let reading = Limited::new(&mut request.body, bytes_max).collect();
        match timeout(self.limits.body_timeout, reading).await {
            Ok(Ok(collected)) => Ok(ReceivedBody {
                bytes: collected.to_bytes(),
            }),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                // `Limited` has read `bytes_max`, half of the bound.
                discard(request, bytes_max).await;
                Err(BodyError::TooLarge)
            }
            Ok(Err(_)) => Err(BodyError::Broken),
            Err(_) => Err(BodyError::TooSlow),
        }
    }
}

/// Reads the rest of a refused body, at most `bytes_max`, and drops it. A connection that the server closes with unread bytes is reset, so a
/// client that is still writing would lose the answer. An HTTP/2 stream ends without its connection, so its body is not read.
async fn discard(request: &mut ApiRequest, bytes_max: usize) {
    if request.parts.version >= Version::HTTP_2 {
        return;
    }
    let mut rest = Limited::new(&mut request.body, bytes_max);
    let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
    // The answer is the same if the rest does not arrive in time.
    let _ = timeout(DISCARD_TIMEOUT, reading).await;
}
