//! Why the server closes a connection, and the close frame of protocols without own codes.

use std::borrow::Cow;

use tidewire_core::effect::CloseReason;

use super::ForeignPayload;
use crate::frame::websocket::{CloseCode, FrameError};

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The peer broke the protocol of frames.
    Frame(FrameError),
    /// The peer does not speak the protocol.
    Foreign(ForeignPayload),
    /// The peer has confirmed more messages than it was sent.
    Confirmation,
    /// The engine closes it.
    Engine(CloseReason),
    /// The node holds too much memory, and this session most of it.
    Memory,
    /// The server stops.
    GoingAway,
    /// An operator closes it. The client may connect again.
    Operator,
}

/// The content of a close frame: a code and a text, which helps with debugging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseWords {
    /// The code.
    pub code: CloseCode,
    /// The text.
    pub text: Cow<'static, str>,
}

impl CloseWords {
    /// The codes of RFC 6455, and a text for each cause.
    #[must_use]
    pub fn standard(cause: CloseCause) -> Self {
        let (code, text) = match cause {
            CloseCause::Frame(error) => (error.close_code(), error.to_string().into()),
            CloseCause::Foreign(foreign) => (foreign.close_code(), foreign.to_string().into()),
            CloseCause::Confirmation => {
                let text = "confirmed more messages than it was sent";
                (CloseCode::POLICY, text.into())
            }
            CloseCause::Engine(reason) => (reason_code(reason), reason_text(reason).into()),
            CloseCause::Memory => (CloseCode::TRY_AGAIN_LATER, "holds too much memory".into()),
            CloseCause::GoingAway => (CloseCode::GOING_AWAY, "server stops".into()),
            CloseCause::Operator => {
                let text = "disconnected by an operator";
                (CloseCode::TRY_AGAIN_LATER, text.into())
            }
        };
        Self { code, text }
    }
}

fn reason_code(reason: CloseReason) -> CloseCode {
    match reason {
        CloseReason::AuthUnavailable | CloseReason::NoBackend => CloseCode::TRY_AGAIN_LATER,
        _ => CloseCode::POLICY,
    }
}

fn reason_text(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::InvalidLogin => "login can't be read",
        CloseReason::TooManyAuthAttempts => "too many refused logins",
        CloseReason::Barred => "these credentials are no longer valid",
        CloseReason::AuthUnavailable => "logins can't be decided now",
        CloseReason::Expired => "the login has expired",
        CloseReason::Revoked => "the login was revoked",
        CloseReason::AuthenticationTimeout => "no login within the time allowed",
        CloseReason::Silent => "no heartbeat within the time allowed",
        CloseReason::Refused => "closed for a limit too often",
        CloseReason::NotCaughtUp => "a record that changed could not be read",
        CloseReason::DetachedTooLong => "without a connection for too long",
        CloseReason::LoggedOut => "logged out, and this server has no anonymous users",
        CloseReason::NoBackend => "no backend serves the namespace now",
        CloseReason::Dismissed | CloseReason::Disconnected => "disconnected by the application",
    }
}
