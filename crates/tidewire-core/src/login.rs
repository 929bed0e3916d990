//! Connecting and logging in: everything before a session is open.

use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{
    AuthOutcome, AuthRequest, CloseReason, Effects, Flow, LOGIN_EXPIRED, LOGIN_REVOKED,
};
use crate::entry::{Entry, ReplyAction};
use crate::identity;
use crate::json::JsonKind;
use crate::message::{Auth, Connection, Message, Topic};
use crate::principal::Principal;
use crate::session::{AnswerDelay, DelayStage, Phase, SessionFlag};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// The credentials of a peer that has none.
const ANONYMOUS: &str = "{}";
/// The answer to a renewal whose credentials belong to another user.
const OTHER_USER: &str = r#"{"code":"OTHER_USER","error":"a renewal can't change the user"}"#;
/// The answer to a renewal while the auth chain is unavailable. The session keeps its login.
const AUTH_UNAVAILABLE: &str =
    r#"{"code":"AUTH_UNAVAILABLE","error":"logins can't be decided now, try again"}"#;

/// Handles a message of a session that is not open.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Message<'_>,
) -> Flow {
    let Some(session) = turn.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    match (&mut session.phase, message) {
        // Answered in every phase: a client that logs in late must not believe that the connection is dead.
        (_, Message::Connection(Connection::Ping)) => {
            turn.send(id, &Message::Connection(Connection::Pong))
        }
        (Phase::Checking, _) => return Flow::Wait,
        (Phase::Delayed(delay), message) => match (&mut delay.stage, message) {
            (DelayStage::First | DelayStage::Login { .. } | DelayStage::Unavailable, _) => {
                return Flow::Wait;
            }
            (
                DelayStage::Challenge { asked },
                Message::Connection(Connection::Challenge { coalesces, .. }),
            ) => {
                *asked = true;
                session.set_flag(SessionFlag::Coalesces, *coalesces);
            }
            (
                _,
                Message::Connection(_)
                | Message::UnknownAction {
                    topic: Topic::Connection,
                    ..
                },
            ) => {}
            _ => turn.send(id, &Message::Connection(Connection::InvalidMessage)),
        },
        (Phase::Challenge, Message::Connection(Connection::Challenge { coalesces, .. })) => {
            session.phase = Phase::Login;
            session.set_flag(SessionFlag::Coalesces, *coalesces);
            accept(turn, id, *coalesces);
        }
        (
            Phase::Challenge,
            Message::Connection(_)
            | Message::UnknownAction {
                topic: Topic::Connection,
                ..
            },
        ) => {}
        (Phase::Challenge, _) => turn.send(id, &Message::Connection(Connection::InvalidMessage)),
        (_, Message::Auth(Auth::Request { data })) => request(turn, id, *data),
        (_, Message::Auth(Auth::Change { data })) => {
            request(turn, id, data.or(Some(ANONYMOUS)));
        }
        (
            _,
            Message::Auth(_)
            | Message::UnknownAction {
                topic: Topic::Auth, ..
            },
        ) => refuse_unreadable(turn, id),
        _ => turn.send(id, &Message::Auth(Auth::InvalidMessage)),
    }
    Flow::Taken
}

/// Accepts a connection, which may now authenticate. Clients that coalesce also get the size limit of
/// their messages; other clients do not know that form of the answer.
fn accept<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, coalesces: bool) {
    if !coalesces {
        return turn.send(id, &Message::Connection(Connection::Accept));
    }
    let bytes = turn.shard.settings.limits.message_bytes_max;
    let limits = format!(r#"{{"messageBytesMax":{bytes}}}"#);
    let limits = limits.as_str();
    turn.send(
        id,
        &Message::Connection(Connection::AcceptWithin { limits }),
    );
}

/// Handles a frame that is not a valid message, in any phase of its session.
pub(crate) fn undecodable<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let answer = match turn.sessions.find(id).map(|session| &session.phase) {
        Some(Phase::Challenge) => Message::Connection(Connection::InvalidMessage),
        Some(Phase::Delayed(delay)) => match delay.stage {
            DelayStage::Challenge { .. } => Message::Connection(Connection::InvalidMessage),
            DelayStage::First | DelayStage::Login { .. } | DelayStage::Unavailable => {
                Message::Auth(Auth::InvalidMessage)
            }
        },
        Some(Phase::Login | Phase::Checking) => Message::Auth(Auth::InvalidMessage),
        Some(Phase::Open(_)) => Message::UnknownTopic,
        None => return,
    };
    turn.send(id, &answer);
}

/// The remaining work after the auth chain has decided.
#[derive(Debug)]
pub(crate) enum Decided {
    /// None; the session may be open now.
    Done,
    /// The answer to the session is delayed until this time.
    Delayed(Instant),
    /// The login was refused. This is the number of refusals on this session; another login may follow.
    Refused(u32),
    /// The session has a new principal. This is the old one.
    Renewed(Arc<Principal>),
    /// The session must end at once.
    Revoked,
}

/// Handles the decision of the auth chain about a login or a renewal.
pub(crate) fn decided<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    outcome: AuthOutcome,
) -> Decided {
    let attempts_max = turn.shard.settings.auth_attempts_max;
    let Some(session) = turn.sessions.find_mut(id) else {
        return Decided::Done;
    };
    let is_renewing = session.has(SessionFlag::Renewing);
    session.set_flag(SessionFlag::Renewing, false);
    let change = UserChange {
        is_allowed: session.has(SessionFlag::ChangingUser),
        is_logout: session.has(SessionFlag::LoggingOut),
    };
    session.set_flag(SessionFlag::ChangingUser, false);
    session.set_flag(SessionFlag::LoggingOut, false);
    match &mut session.phase {
        Phase::Checking => {}
        Phase::Delayed(delay) => {
            if let DelayStage::Login { outcome: held } = &mut delay.stage {
                *held = Some(outcome);
            }
            return Decided::Done;
        }
        Phase::Open(principal) if is_renewing => {
            let principal = Arc::clone(principal);
            let decided = renewed(turn, id, principal, change, outcome);
            turn.out.resume(id);
            return decided;
        }
        _ => return Decided::Done,
    }
    // Revocation and expiry are checked here, although the auth chain may have checked them: both may have changed while the decision was
    // on its way. Such a login is handled like the refusal that the chain would have returned, with the same messages and counts.
    // Presence counts the session before any of its messages is handled, since `resume` comes last.
    match outcome {
        AuthOutcome::Accepted(principal)
            if turn.shard.revocations.covers(&principal, turn.now.wall) =>
        {
            session.phase = Phase::Checking;
            let client_data = Some(Payload::from_checked(LOGIN_REVOKED));
            return decided(turn, id, AuthOutcome::Barred { client_data });
        }
        AuthOutcome::Accepted(principal) if principal.is_expired(turn.now.wall) => {
            session.phase = Phase::Checking;
            let client_data = Some(Payload::from_checked(LOGIN_EXPIRED));
            return decided(turn, id, AuthOutcome::Refused { client_data });
        }
        AuthOutcome::Accepted(principal) => {
            session.phase = Phase::Open(principal.clone());
            let is_passing = session.has(SessionFlag::Passing)
                || principal.is_operator()
                || principal.is_backend();
            session.set_flag(SessionFlag::Passing, is_passing);
            if is_passing {
                accept_login(turn, id, &principal);
            } else {
                accept_when_online(turn, id, &principal);
            }
        }
        AuthOutcome::Refused { client_data } => {
            session.phase = Phase::Login;
            session.refused = session.refused.saturating_add(1);
            let refused = u32::from(session.refused);
            let data = client_data.as_ref().map(Payload::as_str);
            turn.send(id, &Message::Auth(Auth::Unsuccessful { data }));
            if refused >= attempts_max {
                turn.send(id, &Message::Auth(Auth::TooManyAttempts));
                turn.out.close(id, CloseReason::TooManyAuthAttempts);
            }
            turn.out.resume(id);
            return Decided::Refused(refused);
        }
        AuthOutcome::Barred { client_data } => {
            session.phase = Phase::Login;
            let data = client_data.as_ref().map(Payload::as_str);
            turn.send(id, &Message::Auth(Auth::Unsuccessful { data }));
            turn.send(id, &Message::Auth(Auth::TooManyAttempts));
            turn.out.close(id, CloseReason::Barred);
        }
        AuthOutcome::Unavailable => {
            let until = turn.now.monotonic + retry_delay(turn.shard.settings.auth_retry_delay, id);
            session.set_flag(SessionFlag::Delayed, true);
            session.phase = Phase::Delayed(Box::new(AnswerDelay {
                until,
                refuse: false,
                stage: DelayStage::Unavailable,
            }));
            return Decided::Delayed(until);
        }
    }
    turn.out.resume(id);
    Decided::Done
}

/// Handles the login of an open session, which renews it: the same user with other credentials.
pub(crate) fn renew<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    data: Option<&str>,
) -> Flow {
    authenticate_again(turn, id, data, &[SessionFlag::Renewing])
}

/// Handles the login of another user in an open session, or without `data` the logout of its user.
pub(crate) fn change<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    data: Option<&str>,
) -> Flow {
    use SessionFlag::{ChangingUser, LoggingOut, Renewing};
    let flags: &[_] = match data {
        Some(_) => &[Renewing, ChangingUser],
        None => &[Renewing, ChangingUser, LoggingOut],
    };
    authenticate_again(turn, id, data.or(Some(ANONYMOUS)), flags)
}

/// Requests the decision about a login of an open session, and notes its kind in `flags`.
fn authenticate_again<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    data: Option<&str>,
    flags: &[SessionFlag],
) -> Flow {
    let session = turn.sessions.find_mut(id);
    if session.is_some_and(|session| session.has(SessionFlag::Renewing)) {
        return Flow::Wait;
    }
    if let Some(request) = readable(turn, id, data) {
        if let Some(session) = turn.sessions.find_mut(id) {
            for flag in flags {
                session.set_flag(*flag, true);
            }
        }
        turn.out.authenticate(request);
    }
    Flow::Taken
}

/// The kind of a login of an open session.
#[derive(Clone, Copy, Debug)]
struct UserChange {
    /// Whether the session may have another user afterwards.
    is_allowed: bool,
    /// Whether the session must not keep its user.
    is_logout: bool,
}

/// Handles the decision of the auth chain about a login of an open session.
fn renewed<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    before: Arc<Principal>,
    change: UserChange,
    outcome: AuthOutcome,
) -> Decided {
    let data = match outcome {
        AuthOutcome::Barred { .. } => return Decided::Revoked,
        AuthOutcome::Accepted(principal)
            if turn.shard.revocations.covers(&principal, turn.now.wall) =>
        {
            return Decided::Revoked;
        }
        AuthOutcome::Accepted(principal)
            if principal.user_id != before.user_id
                && !(change.is_allowed && !before.is_operator() && !principal.is_operator()) =>
        {
            Some(Payload::from_checked(OTHER_USER))
        }
        AuthOutcome::Accepted(principal) if principal.is_expired(turn.now.wall) => {
            Some(Payload::from_checked(LOGIN_EXPIRED))
        }
        AuthOutcome::Accepted(principal) => {
            let mut is_counted = false;
            if let Some(session) = turn.sessions.find_mut(id) {
                session.phase = Phase::Open(Arc::clone(&principal));
                session.refused = 0;
                is_counted = !session.has(SessionFlag::Passing);
            }
            if !before.is_alike(&principal) {
                turn.hub.note_renewed(id, turn.sessions);
            }
            if principal.user_id != before.user_id && is_counted {
                count_offline(turn, &before.user_id, id);
                accept_when_online(turn, id, &principal);
            } else {
                accept_login(turn, id, &principal);
            }
            return Decided::Renewed(before);
        }
        AuthOutcome::Unavailable if !change.is_logout => {
            let data = Some(AUTH_UNAVAILABLE);
            turn.send(id, &Message::Auth(Auth::Unsuccessful { data }));
            return Decided::Done;
        }
        AuthOutcome::Unavailable => None,
        AuthOutcome::Refused { client_data } => client_data,
    };
    // The user has logged out, and the server has no anonymous users: the session must not go on as the old one.
    if change.is_logout {
        turn.out.close(id, CloseReason::LoggedOut);
        return Decided::Done;
    }
    let attempts_max = turn.shard.settings.auth_attempts_max;
    let data = data.as_ref().map(Payload::as_str);
    turn.send(id, &Message::Auth(Auth::Unsuccessful { data }));
    let refused = turn.sessions.find_mut(id).map_or(0, |session| {
        session.refused = session.refused.saturating_add(1);
        u32::from(session.refused)
    });
    if refused >= attempts_max {
        turn.send(id, &Message::Auth(Auth::TooManyAttempts));
        turn.out.close(id, CloseReason::TooManyAuthAttempts);
    }
    Decided::Done
}

/// The waiting time of a session while the auth chain is unavailable. Sessions that logged in together are spread in sixteen groups over
/// twice the delay, so that they do not try again together.
fn retry_delay(delay: Duration, id: SessionId) -> Duration {
    delay + delay * (id.index % 16) / 16
}

/// Delays the next answer to a session that misbehaved. Returns false if the session is past that answer.
pub(crate) fn delay<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    until: Instant,
    refuse: bool,
) -> bool {
    let Some(session) = turn.sessions.find_mut(id) else {
        return false;
    };
    let stage = match session.phase {
        Phase::Challenge => DelayStage::Challenge { asked: false },
        Phase::Login if session.refused == 0 => DelayStage::First,
        Phase::Checking => DelayStage::Login { outcome: None },
        _ => return false,
    };
    session.set_flag(SessionFlag::Delayed, true);
    session.phase = Phase::Delayed(Box::new(AnswerDelay {
        until,
        refuse,
        stage,
    }));
    true
}

/// Ends the delay of an answer. If the answer was requested in the meantime, it is sent now.
pub(crate) fn release<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) -> Decided {
    let Some(session) = turn.sessions.find_mut(id) else {
        return Decided::Done;
    };
    let Phase::Delayed(delay) = &session.phase else {
        return Decided::Done;
    };
    if delay.until > turn.now.monotonic {
        return Decided::Done;
    }
    let refuse = delay.refuse;
    // The session first returns to the phase that it had before the delay, because the held-back step runs exactly as it would have run
    // then: `decided` expects a session that is being checked. Three orders are possible. If the client has asked, or the auth chain has
    // decided, during the delay, the answer is sent now. If neither has happened, the session is again in its old phase and the answer
    // follows when its cause arrives. If the connection is to be refused, the reason is sent only now, so that a peer that guesses logins
    // gets one answer per delay.
    let next = match delay.stage {
        DelayStage::Login { .. } | DelayStage::Unavailable => Phase::Checking,
        DelayStage::Challenge { .. } => Phase::Challenge,
        DelayStage::First => Phase::Login,
    };
    let Phase::Delayed(delay) = std::mem::replace(&mut session.phase, next) else {
        return Decided::Done;
    };
    match delay.stage {
        DelayStage::Login { .. } if refuse => {
            turn.send(id, &Message::Auth(Auth::TooManyAttempts));
            turn.out.close(id, CloseReason::Refused);
        }
        DelayStage::First | DelayStage::Challenge { .. } if refuse => {
            turn.send(id, &Message::Connection(Connection::Reject));
            turn.out.close(id, CloseReason::Refused);
        }
        DelayStage::Challenge { asked: true } => {
            session.phase = Phase::Login;
            let coalesces = session.has(SessionFlag::Coalesces);
            accept(turn, id, coalesces);
        }
        DelayStage::Login {
            outcome: Some(outcome),
        } => return decided(turn, id, outcome),
        DelayStage::Unavailable => turn.out.close(id, CloseReason::AuthUnavailable),
        DelayStage::First => turn.out.resume(id),
        DelayStage::Challenge { asked: false } | DelayStage::Login { outcome: None } => {}
    }
    Decided::Done
}

/// Handles the end of the time to log in after `refused` refusals. Returns true if the time starts again, because the server delayed the
/// session. After another refusal, the timeout of that refusal counts instead: the first decided login ends the
/// timeout that started with the connection.
pub(crate) fn timed_out<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    refused: u32,
) -> bool {
    let Some(session) = turn.sessions.find_mut(id) else {
        return false;
    };
    if session.principal().is_some() || u32::from(session.refused) != refused {
        return false;
    }
    let is_delayed = matches!(session.phase, Phase::Delayed(_));
    let was_delayed = session.has(SessionFlag::Delayed);
    session.set_flag(SessionFlag::Delayed, false);
    if was_delayed || is_delayed {
        return true;
    }
    turn.send(id, &Message::Connection(Connection::AuthenticationTimeout));
    turn.out.close(id, CloseReason::AuthenticationTimeout);
    false
}

/// Reports to the user's owner that one of the user's sessions has ended.
pub(crate) fn count_offline<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    user: &Name,
    session: SessionId,
) {
    if let Some(owner) = owner_that_counts(turn, user, -1) {
        let user = user.clone();
        let shard = session.address;
        turn.post(owner, Entry::Offline { user, shard });
    }
}

/// Reports to the user's owner that a session of the user has opened, and accepts its login.
///
/// The owner may be on another node. Each node has a separate link to it, so the end of an older session on a second node could overtake
/// this report, and the user would appear to go offline in between. The login is therefore accepted only when that owner has counted the
/// session, or is lost.
fn accept_when_online<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    principal: &Principal,
) {
    let user = &principal.user_id;
    let owner = owner_that_counts(turn, user, 1);
    let is_remote = owner.is_some_and(|owner| owner.node != turn.shard.address.node);
    let reply = is_remote.then(|| turn.begin_reply(id, 1, ReplyAction::Login));
    if let Some(owner) = owner {
        let (user, session) = (user.clone(), id);
        turn.post(
            owner,
            Entry::Online {
                user,
                session,
                reply,
            },
        );
    }
    if reply.is_none() {
        accept_login(turn, id, principal);
    } else if let Some(session) = turn.sessions.find_mut(id) {
        session.set_flag(SessionFlag::ChangingUser, true);
    }
}

/// Accepts a login whose session the owner of its user has counted.
pub(crate) fn counted<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    session.set_flag(SessionFlag::ChangingUser, false);
    if let Some(principal) = session.principal().cloned() {
        accept_login(turn, id, &principal);
    }
    turn.out.resume(id);
}

fn accept_login<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, principal: &Principal) {
    let data = principal.client_data().map(Payload::as_str);
    turn.send(id, &Message::Auth(Auth::Successful { data }));
}

/// The owner that counts a change of the number of a user's sessions. `None` if presence does not count the user, or if the next owner
/// learns the change with the announcement, because users pass to other owners.
fn owner_that_counts<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    user: &Name,
    change: i32,
) -> Option<Address> {
    if user.as_str() == identity::NAMELESS {
        return None;
    }
    let owner = turn.shard.owner(user);
    let is_lost = turn.awaited.is_lost(owner.node);
    let placed = turn.shard.placed.as_ref();
    if is_lost || placed.is_some() {
        let tag = turn.shard.settings.tags.tag(user);
        *turn.interest.withheld.entry(user.clone()).or_default() += change;
        if is_lost || placed.is_some_and(|placed| placed.owner(tag) != owner) {
            return None;
        }
    }
    Some(owner)
}

fn request<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, data: Option<&str>) {
    let Some(request) = readable(turn, id, data) else {
        return;
    };
    if let Some(session) = turn.sessions.find_mut(id) {
        session.phase = Phase::Checking;
    }
    turn.out.authenticate(request);
}

/// The request to the auth chain, unless the data passed to `login()` is too large or can't be parsed.
fn readable<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    data: Option<&str>,
) -> Option<AuthRequest> {
    let is_readable = |data: &&str| {
        matches!(
            turn.shard.json_kind(data),
            Ok(JsonKind::Object | JsonKind::Array)
        )
    };
    let bytes_max = turn.shard.settings.limits.login_bytes_max;
    let is_small = |data: &&str| data.len() <= bytes_max;
    let Some(data) = data.filter(is_small).filter(is_readable) else {
        refuse_unreadable(turn, id);
        return None;
    };
    Some(AuthRequest {
        session: id,
        data: Payload::from_checked(data),
    })
}

fn refuse_unreadable<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    turn.send(id, &Message::Auth(Auth::InvalidMessageData));
    turn.out.close(id, CloseReason::InvalidLogin);
}
