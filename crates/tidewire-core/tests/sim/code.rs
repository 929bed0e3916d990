//! Names of the engine's error codes and close reasons, for counting.

use tidewire_core::effect::CloseReason;
use tidewire_core::message::{
    Auth, Event, EventError, Message, Presence, PresenceError, Record, RecordError, Rpc, RpcError,
};

/// The name of an answer's error code, or `None` if the answer is not an error.
pub fn code_of(message: &Message<'_>) -> Option<&'static str> {
    Some(match message {
        Message::Auth(Auth::Unsuccessful { .. }) => "error: auth UNSUCCESSFUL",
        Message::Event(Event::Error(error)) => match error {
            EventError::Denied(_) => "error: event DENIED",
            EventError::PermissionError(_) => "error: event PERMISSION_ERROR",
            EventError::MultipleSubscriptions { .. } => "error: event MULTIPLE_SUBSCRIPTIONS",
            EventError::InvalidData(_) => "error: event INVALID_DATA",
        },
        Message::Record(Record::Error(error)) => match error {
            RecordError::Denied(_) => "error: record DENIED",
            RecordError::PermissionError(_) => "error: record PERMISSION_ERROR",
            RecordError::MultipleSubscriptions { .. } => "error: record MULTIPLE_SUBSCRIPTIONS",
            RecordError::VersionExists { .. } => "error: record VERSION_EXISTS",
            RecordError::InvalidVersion { .. } => "error: record INVALID_VERSION",
            RecordError::InvalidData(_) => "error: record INVALID_DATA",
            RecordError::NotFound { .. } => "error: record NOT_FOUND",
            RecordError::RetrievalTimeout(_) => "error: record RETRIEVAL_TIMEOUT",
            RecordError::Load(_) => "error: record LOAD",
            RecordError::Create(_) => "error: record CREATE",
            RecordError::Update(_) => "error: record UPDATE",
            RecordError::Delete { .. } => "error: record DELETE",
            RecordError::Notify { .. } => "error: record NOTIFY",
            RecordError::PatchOnHotPath(_) => "error: record PATCH_ON_HOT_PATH",
        },
        Message::Rpc(Rpc::Error(error)) => match error {
            RpcError::Denied(_) => "error: rpc DENIED",
            RpcError::PermissionError(_) => "error: rpc PERMISSION_ERROR",
            RpcError::MultipleProviders { .. } => "error: rpc MULTIPLE_PROVIDERS",
            RpcError::NoProvider(_) => "error: rpc NO_PROVIDER",
            RpcError::AcceptTimeout(_) => "error: rpc ACCEPT_TIMEOUT",
            RpcError::ResponseTimeout(_) => "error: rpc RESPONSE_TIMEOUT",
            RpcError::MultipleAccept(_) => "error: rpc MULTIPLE_ACCEPT",
            RpcError::InvalidCorrelation { .. } => "error: rpc INVALID_CORRELATION",
            RpcError::InvalidData(_) => "error: rpc INVALID_DATA",
        },
        Message::Presence(Presence::Error(error)) => match error {
            PresenceError::Denied(_) => "error: presence DENIED",
            PresenceError::PermissionError(_) => "error: presence PERMISSION_ERROR",
            PresenceError::MultipleSubscriptions { .. } => "error: presence MULTIPLE_SUBSCRIPTIONS",
            PresenceError::InvalidData(_) => "error: presence INVALID_DATA",
        },
        _ => return None,
    })
}

/// The name of a reason to close a connection.
pub fn close_code(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::InvalidLogin => "close: INVALID_LOGIN",
        CloseReason::TooManyAuthAttempts => "close: TOO_MANY_AUTH_ATTEMPTS",
        CloseReason::Barred => "close: BARRED",
        CloseReason::AuthUnavailable => "close: AUTH_UNAVAILABLE",
        CloseReason::Expired => "close: EXPIRED",
        CloseReason::Revoked => "close: REVOKED",
        CloseReason::AuthenticationTimeout => "close: AUTHENTICATION_TIMEOUT",
        CloseReason::Silent => "close: SILENT",
        CloseReason::Refused => "close: REFUSED",
        CloseReason::NotCaughtUp => "close: NOT_CAUGHT_UP",
    }
}
