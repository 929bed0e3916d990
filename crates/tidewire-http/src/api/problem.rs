//! Refusals of the resource operations: a status, and a JSON object with a code on which programs can act.

use hyper::StatusCode;
use tidewire_core::message::{Reason, RecordAction, Refusal};

use super::answer::{self, HttpResponse};
use super::body::BodyError;
use super::caller::CallError;
use super::patch::PatchError;
use crate::refusal::RequestRefusal;

/// The content type of problems (RFC 9457).
pub(super) const PROBLEM: &str = "application/problem+json";

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) title: &'static str,
}

impl Problem {
    pub(super) const NOT_FOUND: Self = Self::new(
        StatusCode::NOT_FOUND,
        "RECORD_NOT_FOUND",
        "the record does not exist",
    );
    pub(super) const PRECONDITION_FAILED: Self = Self::new(
        StatusCode::PRECONDITION_FAILED,
        "PRECONDITION_FAILED",
        "the record is not in the state that the request requires",
    );
    pub(super) const INVALID_NAME: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "INVALID_NAME",
        "the name is empty, reserved, longer than limits.name_bytes_max or not percent-encoded UTF-8",
    );
    pub(super) const BROKEN_QUERY: Self =
        Self::invalid_query("the query string is not percent-encoded UTF-8");
    pub(super) const NOTHING_TO_STREAM: Self = Self::invalid_query(
        "the query string has none of the parameters event, pattern and record",
    );
    pub(super) const TOO_MANY_NAMES: Self = Self::invalid_query(
        "one of the parameters event, pattern and record occurs more than 100 times",
    );
    pub(super) const INVALID_CONDITION: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "INVALID_CONDITION",
        "If-Match or If-None-Match is neither * nor a list of entity tags",
    );
    pub(super) const NOT_JSON: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "INVALID_JSON",
        "the body is not JSON in UTF-8",
    );
    pub(super) const NOT_OPERATIONS: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "INVALID_TRANSACTION",
        "the body is not a list of objects with name, and with data, if, or both; if is missing, present or a strong entity tag",
    );
    pub(super) const TRANSACTION_REFUSED: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "TRANSACTION_REFUSED",
        "the records can't be committed in one step",
    );
    pub(super) const NOT_A_VALUE: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "INVALID_VALUE",
        "a record must be an object or array within limits.record_bytes_max and limits.nesting_max",
    );
    pub(super) const WRONG_TYPE: Self = Self::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "the Content-Type of the body must be application/json",
    );
    pub(super) const WRONG_PATCH_TYPE: Self = Self::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Self::WRONG_TYPE.code,
        "the Content-Type of a patch must be application/merge-patch+json or application/json-patch+json",
    );
    pub(super) const INVALID_PATCH: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "INVALID_PATCH",
        "the body is not a patch",
    );
    pub(super) const PATCH_FAILED: Self = Self::new(
        StatusCode::CONFLICT,
        "PATCH_FAILED",
        "the patch can't be applied to the record: a test failed, or a path does not exist",
    );
    pub(super) const CONTENDED: Self = Self::new(
        StatusCode::CONFLICT,
        "RECORD_CONTENDED",
        "other clients changed the record before each attempt to write the patch; try again",
    );
    pub(super) const LOGIN_REFUSED: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "LOGIN_REFUSED",
        "the credentials were refused",
    );
    pub(super) const METHOD: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        "the path does not support this method",
    );
    pub(super) const BUSY: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "BUSY",
        "the server has reached its limit of requests; try again later",
    );
    pub(super) const SHARE: Self = Self::new(
        StatusCode::TOO_MANY_REQUESTS,
        "CALLER_SHARE",
        "this caller has used up its share of a shared limit; try again later",
    );

    const DENIED: Self = Self::new(
        StatusCode::FORBIDDEN,
        "MESSAGE_DENIED",
        "the rules do not allow this operation",
    );
    const RULE_FAILED: Self = Self::new(
        StatusCode::FORBIDDEN,
        "MESSAGE_PERMISSION_ERROR",
        "a rule could not be evaluated",
    );
    pub(super) const INVALID_PAYLOAD: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "INVALID_MESSAGE_DATA",
        "the payload exceeds the limits of size and depth, or its content type is invalid",
    );

    pub(super) const fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        Self {
            status,
            code,
            title,
        }
    }

    const fn invalid_query(title: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_QUERY", title)
    }

    /// Why an event was refused.
    pub(super) fn of_event(reason: Reason) -> Self {
        match reason {
            Reason::RuleFailed => Self::RULE_FAILED,
            Reason::InvalidData => Self::INVALID_PAYLOAD,
            _ => Self::DENIED,
        }
    }

    /// The metric's cause, if the request itself was at fault. Other causes are counted where they occur.
    pub(super) fn cause(self) -> Option<RequestRefusal> {
        match self {
            Self::INVALID_NAME => Some(RequestRefusal::Names),
            Self::BROKEN_QUERY
            | Self::NOTHING_TO_STREAM
            | Self::TOO_MANY_NAMES
            | Self::NOT_JSON
            | Self::NOT_OPERATIONS
            | Self::WRONG_TYPE
            | Self::WRONG_PATCH_TYPE
            | Self::INVALID_PATCH => Some(RequestRefusal::Malformed),
            Self::NOT_A_VALUE | Self::INVALID_PAYLOAD | Self::PATCH_FAILED => {
                Some(RequestRefusal::Value)
            }
            _ => None,
        }
    }

    /// The problem as an answer.
    pub(super) fn answer(self) -> HttpResponse {
        let Self {
            status,
            code,
            title,
        } = self;
        let body = serde_json::json!({ "status": status.as_u16(), "code": code, "title": title });
        let answer = answer::typed(status, PROBLEM, format!("{body}\n"));
        match status {
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::GATEWAY_TIMEOUT => answer::retryable(answer),
            StatusCode::UNAUTHORIZED => answer::with_challenge(answer),
            StatusCode::UNSUPPORTED_MEDIA_TYPE if self == Self::WRONG_PATCH_TYPE => {
                answer::with_accept_patch(answer)
            }
            _ => answer,
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let (status, code, title) = match error {
            BodyError::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "BODY_TOO_LARGE",
                "the body exceeds http.body_bytes_max",
            ),
            BodyError::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "BODY_TOO_SLOW",
                "the body did not arrive within http.body_timeout",
            ),
            BodyError::NoRoom => return Self::BUSY,
            BodyError::Share => return Self::SHARE,
            BodyError::Broken => (
                StatusCode::BAD_REQUEST,
                "BODY_BROKEN",
                "the body is incomplete",
            ),
        };
        Self::new(status, code, title)
    }
}

impl From<PatchError> for Problem {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed => Self::INVALID_PATCH,
            PatchError::Unfit => Self::PATCH_FAILED,
            PatchError::TooLarge | PatchError::NotARecord => Self::NOT_A_VALUE,
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let (status, code, title) = match error {
            CallError::Refused => return Self::LOGIN_REFUSED,
            CallError::Share => return Self::SHARE,
            CallError::NoMemory => return Self::BUSY,
            CallError::LoginTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "LOGIN_TOO_LARGE",
                "the credentials exceed auth.login_bytes_max",
            ),
            CallError::Banned => (
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_LOGINS",
                "this address or user had too many refused logins; try again later",
            ),
            CallError::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "AUTH_UNAVAILABLE",
                "logins can't be decided now; try again later",
            ),
            CallError::GoingAway => (
                StatusCode::SERVICE_UNAVAILABLE,
                "GOING_AWAY",
                "the server is stopping",
            ),
            CallError::Ended => (
                StatusCode::SERVICE_UNAVAILABLE,
                "SESSION_ENDED",
                "the session ended before an answer arrived",
            ),
            CallError::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "TIMEOUT",
                "no answer arrived within http.request_timeout; the outcome is unknown",
            ),
        };
        Self::new(status, code, title)
    }
}

impl From<&Refusal<'_, RecordAction>> for Problem {
    fn from(refusal: &Refusal<'_, RecordAction>) -> Self {
        let (status, code, title) = match refusal.reason {
            Reason::Denied => return Self::DENIED,
            Reason::RuleFailed => return Self::RULE_FAILED,
            Reason::InvalidData => return Self::NOT_A_VALUE,
            Reason::NotFound => return Self::NOT_FOUND,
            Reason::LoadFailed | Reason::LoadTimeout => (
                StatusCode::SERVICE_UNAVAILABLE,
                "RECORD_LOAD_ERROR",
                "the record can't be read now",
            ),
            Reason::DeleteFailed => (
                StatusCode::SERVICE_UNAVAILABLE,
                "RECORD_DELETE_ERROR",
                "the delete failed, or its outcome is unknown",
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                "RECORD_UPDATE_ERROR",
                "the write failed, or its outcome is unknown",
            ),
        };
        Self::new(status, code, title)
    }
}
