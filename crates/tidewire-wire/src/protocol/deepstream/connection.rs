//! Topics CONNECTION and AUTH: the messages before a session is open.

use tidewire_core::message::{Auth, Connection};

use super::action::{auth, connection};
use super::fields::Fields;

pub(super) fn connection_from_wire<'a>(fields: &Fields<'a>) -> Option<Connection<'a>> {
    Some(match fields.action {
        connection::PING => Connection::Ping,
        connection::PONG => Connection::Pong,
        connection::ACCEPT => match fields.data {
            Some(limits) => Connection::AcceptWithin { limits },
            None => Connection::Accept,
        },
        connection::CHALLENGE => Connection::Challenge {
            url: fields.url,
            protocol_version: fields.protocol_version,
            sdk_version: fields.sdk_version,
            sdk_type: fields.sdk_type,
            batches: fields.batches == Some(true),
            coalesces: fields.jumps == Some(true),
        },
        connection::REJECT => Connection::Reject,
        connection::REDIRECT => Connection::Redirect {
            url: fields.url.unwrap_or_default(),
        },
        connection::AUTHENTICATION_TIMEOUT => Connection::AuthenticationTimeout,
        connection::INVALID_MESSAGE => Connection::InvalidMessage,
        _ => return None,
    })
}

pub(super) fn connection_to_wire<'m>(message: &'m Connection<'_>) -> Fields<'m> {
    match *message {
        Connection::Ping => Fields::new(connection::PING),
        Connection::Pong => Fields::new(connection::PONG),
        Connection::Accept => Fields::new(connection::ACCEPT),
        Connection::AcceptWithin { limits } => Fields {
            data: Some(limits),
            ..Fields::new(connection::ACCEPT)
        },
        Connection::Challenge {
            url,
            protocol_version,
            sdk_version,
            sdk_type,
            batches,
            coalesces,
        } => Fields {
            url,
            protocol_version,
            sdk_version,
            sdk_type,
            batches: batches.then_some(true),
            jumps: coalesces.then_some(true),
            ..Fields::new(connection::CHALLENGE)
        },
        Connection::Reject => Fields::new(connection::REJECT),
        Connection::Redirect { url } => Fields {
            url: Some(url),
            ..Fields::new(connection::REDIRECT)
        },
        Connection::AuthenticationTimeout => Fields::new(connection::AUTHENTICATION_TIMEOUT),
        Connection::InvalidMessage => Fields::new(connection::INVALID_MESSAGE),
    }
}

pub(super) fn auth_from_wire<'a>(fields: &Fields<'a>) -> Option<Auth<'a>> {
    let data = fields.data;
    Some(match fields.action {
        auth::REQUEST => Auth::Request { data },
        auth::SUCCESSFUL => Auth::Successful { data },
        auth::UNSUCCESSFUL => Auth::Unsuccessful { data },
        auth::TOO_MANY_ATTEMPTS => Auth::TooManyAttempts,
        auth::INVALID_MESSAGE => Auth::InvalidMessage,
        auth::INVALID_MESSAGE_DATA => Auth::InvalidMessageData,
        _ => return None,
    })
}

pub(super) fn auth_to_wire<'m>(message: &'m Auth<'_>) -> Fields<'m> {
    match *message {
        // The protocol has one message for every login.
        Auth::Request { data } | Auth::Change { data } => Fields {
            data,
            ..Fields::new(auth::REQUEST)
        },
        Auth::Successful { data } => Fields {
            data,
            ..Fields::new(auth::SUCCESSFUL)
        },
        Auth::Unsuccessful { data } => Fields {
            data,
            ..Fields::new(auth::UNSUCCESSFUL)
        },
        Auth::TooManyAttempts => Fields::new(auth::TOO_MANY_ATTEMPTS),
        Auth::InvalidMessage => Fields::new(auth::INVALID_MESSAGE),
        Auth::InvalidMessageData => Fields::new(auth::INVALID_MESSAGE_DATA),
    }
}
