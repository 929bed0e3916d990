//! Names of the engine's error codes and close reasons, for counting.

use tidewire_core::effect::CloseReason;
use tidewire_core::message::{Auth, Event, Message, Presence, Reason, Record, Rpc};

/// The name of an answer's error code, or `None` if the answer is not an error.
pub fn code_of(message: &Message<'_>) -> Option<&'static str> {
    Some(match message {
        Message::Auth(Auth::Unsuccessful { .. }) => "error: auth UNSUCCESSFUL",
        Message::Event(Event::Error(refusal)) => match refusal.reason {
            Reason::Denied => "error: event DENIED",
            Reason::RuleFailed => "error: event PERMISSION_ERROR",
            Reason::MultipleSubscriptions => "error: event MULTIPLE_SUBSCRIPTIONS",
            Reason::InvalidData => "error: event INVALID_DATA",
            _ => "error: event UNKNOWN",
        },
        Message::Record(Record::Error(refusal)) => match refusal.reason {
            Reason::Denied => "error: record DENIED",
            Reason::RuleFailed => "error: record PERMISSION_ERROR",
            Reason::MultipleSubscriptions => "error: record MULTIPLE_SUBSCRIPTIONS",
            Reason::VersionExists => "error: record VERSION_EXISTS",
            Reason::InvalidVersion => "error: record INVALID_VERSION",
            Reason::InvalidData => "error: record INVALID_DATA",
            Reason::NotFound => "error: record NOT_FOUND",
            Reason::LoadTimeout => "error: record RETRIEVAL_TIMEOUT",
            Reason::LoadFailed => "error: record LOAD",
            Reason::CreateFailed => "error: record CREATE",
            Reason::UpdateFailed => "error: record UPDATE",
            Reason::DeleteFailed => "error: record DELETE",
            Reason::NotifyFailed => "error: record NOTIFY",
            Reason::PatchOnHotPath => "error: record PATCH_ON_HOT_PATH",
            Reason::WriteUnknown => "error: record WRITE_UNKNOWN",
            _ => "error: record UNKNOWN",
        },
        Message::Rpc(Rpc::Error(refusal)) => match refusal.reason {
            Reason::Denied => "error: rpc DENIED",
            Reason::RuleFailed => "error: rpc PERMISSION_ERROR",
            Reason::MultipleProviders => "error: rpc MULTIPLE_PROVIDERS",
            Reason::NoProvider => "error: rpc NO_PROVIDER",
            Reason::AcceptTimeout => "error: rpc ACCEPT_TIMEOUT",
            Reason::ResponseTimeout => "error: rpc RESPONSE_TIMEOUT",
            Reason::MultipleAccept => "error: rpc MULTIPLE_ACCEPT",
            Reason::InvalidCorrelation => "error: rpc INVALID_CORRELATION",
            Reason::InvalidData => "error: rpc INVALID_DATA",
            _ => "error: rpc UNKNOWN",
        },
        Message::Presence(Presence::Error(refusal)) => match refusal.reason {
            Reason::Denied => "error: presence DENIED",
            Reason::RuleFailed => "error: presence PERMISSION_ERROR",
            Reason::MultipleSubscriptions => "error: presence MULTIPLE_SUBSCRIPTIONS",
            Reason::InvalidData => "error: presence INVALID_DATA",
            _ => "error: presence UNKNOWN",
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
        CloseReason::DetachedTooLong => "close: DETACHED_TOO_LONG",
        CloseReason::LoggedOut => "close: LOGGED_OUT",
        CloseReason::NoBackend => "close: NO_BACKEND",
        CloseReason::Dismissed => "close: DISMISSED",
        CloseReason::Disconnected => "close: DISCONNECTED",
    }
}
