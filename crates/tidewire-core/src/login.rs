//! Getting connected and identified: everything before a session is open.

use crate::address::SessionId;
use crate::desk::Desk;
use crate::effect::{AuthOutcome, AuthRequest, CloseReason, Effects, Flow};
use crate::entry::Entry;
use crate::json::Kind;
use crate::message::{Auth, Connection, Message, Topic};
use crate::presence;
use crate::session::Phase;
use crate::text::{Name, Payload};

/// Handles a message of a session that is not open.
pub(crate) fn message<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    message: &Message<'_>,
) -> Flow {
    let Some(session) = desk.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    match (&session.phase, message) {
        // Answered in every phase: a client that logs in late must not believe that the connection is dead.
        (_, Message::Connection(Connection::Ping)) => {
            desk.send(id, &Message::Connection(Connection::Pong))
        }
        (Phase::Checking, _) => return Flow::Wait,
        (Phase::Challenge, Message::Connection(Connection::Challenge { .. })) => {
            session.phase = Phase::Login;
            desk.send(id, &Message::Connection(Connection::Accept));
        }
        (
            Phase::Challenge,
            Message::Connection(_)
            | Message::UnknownAction {
                topic: Topic::Connection,
                ..
            },
        ) => {}
        (Phase::Challenge, _) => desk.send(id, &Message::Connection(Connection::InvalidMessage)),
        (_, Message::Auth(Auth::Request { data })) => request(desk, id, *data),
        (
            _,
            Message::Auth(_)
            | Message::UnknownAction {
                topic: Topic::Auth, ..
            },
        ) => refuse_unreadable(desk, id),
        _ => desk.send(id, &Message::Auth(Auth::InvalidMessage)),
    }
    Flow::Taken
}

/// Handles a frame that is no message, of a session in any phase.
pub(crate) fn undecodable<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId) {
    let answer = match desk.sessions.find(id).map(|session| &session.phase) {
        Some(Phase::Challenge) => Message::Connection(Connection::InvalidMessage),
        Some(Phase::Login | Phase::Checking) => Message::Auth(Auth::InvalidMessage),
        Some(Phase::Open(_)) => Message::UnknownTopic,
        None => return,
    };
    desk.send(id, &answer);
}

/// The auth chain has decided.
pub(crate) fn decided<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId, outcome: AuthOutcome) {
    let attempts_max = desk.place.settings.auth_attempts_max;
    let Some(session) = desk.sessions.find_mut(id) else {
        return;
    };
    if !matches!(session.phase, Phase::Checking) {
        return;
    }
    match outcome {
        AuthOutcome::Accepted(principal) => {
            session.phase = Phase::Open(principal.clone());
            let data = principal.client_data.as_ref().map(Payload::as_str);
            desk.send(id, &Message::Auth(Auth::Successful { data }));
            count_online(desk, &principal.user_id, true);
        }
        AuthOutcome::Refused { client_data } => {
            session.phase = Phase::Login;
            session.refused += 1;
            let refused = session.refused;
            let data = client_data.as_ref().map(Payload::as_str);
            desk.send(id, &Message::Auth(Auth::Unsuccessful { data }));
            if refused >= attempts_max {
                desk.send(id, &Message::Auth(Auth::TooManyAttempts));
                desk.out.close(id, CloseReason::TooManyAuthAttempts);
            }
        }
    }
    desk.out.resume(id);
}

/// The time to log in is over.
pub(crate) fn timed_out<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId) {
    let open = desk
        .sessions
        .find(id)
        .is_none_or(|session| session.principal().is_some());
    if !open {
        desk.send(id, &Message::Connection(Connection::AuthenticationTimeout));
        desk.out.close(id, CloseReason::AuthenticationTimeout);
    }
}

/// Tells the user's owner that one of its sessions has opened or ended.
pub(crate) fn count_online<E: Effects>(desk: &mut Desk<'_, E>, user: &Name, opened: bool) {
    if user.as_str() != presence::INVISIBLE {
        let user = user.clone();
        let owner = desk.place.owner(&user);
        desk.post(
            owner,
            if opened {
                Entry::Online { user }
            } else {
                Entry::Offline { user }
            },
        );
    }
}

fn request<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId, data: Option<&str>) {
    let Some(data) =
        data.filter(|data| matches!(desk.place.json_kind(data), Ok(Kind::Object | Kind::Array)))
    else {
        return refuse_unreadable(desk, id);
    };
    if let Some(session) = desk.sessions.find_mut(id) {
        session.phase = Phase::Checking;
    }
    desk.out.authenticate(AuthRequest {
        session: id,
        data: Payload::from_checked(data),
    });
}

fn refuse_unreadable<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId) {
    desk.send(id, &Message::Auth(Auth::InvalidMessageData));
    desk.out.close(id, CloseReason::InvalidLogin);
}
