//! Delayed answers: for peers that the server has disconnected for a limit, and for logins while authentication is unavailable.
//! Also final refusals.

use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::message::{Auth, Connection, Message};
use tidewire_core::settings::Settings;
use tidewire_core::text::Payload;

use crate::driver::Node;

const CHALLENGE: Message<'_> = Message::Connection(Connection::challenge(false));
const LOGIN: Message<'_> = Message::Auth(Auth::Request { data: Some("{}") });
const PING: Message<'_> = Message::Connection(Connection::Ping);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn node(login_timeout: Option<Duration>) -> Node {
    Node::new(Settings {
        login_timeout,
        ..Settings::default()
    })
}

/// Asserts the messages that a session received since the last call, by a part of each.
fn saw(node: &mut Node, session: SessionId, parts: &[&str]) {
    let seen = node.take(session);
    let as_expected = seen.len() == parts.len()
        && seen
            .iter()
            .zip(parts)
            .all(|(seen, part)| seen.contains(part));
    assert!(as_expected, "{seen:?}, expected {parts:?}");
}

#[test]
fn a_challenge_is_answered_when_the_wait_is_over_and_not_before() {
    let mut node = node(None);
    let session = node.connect(0);
    node.delay(session, seconds(5), false);
    node.send(session, &CHALLENGE);
    node.send(session, &PING);
    saw(&mut node, session, &["Pong"]);
    assert_eq!(node.counts(0).delayed, 1);
    node.pass(Duration::from_millis(4_999));
    saw(&mut node, session, &[]);
    node.pass(Duration::from_millis(1));
    saw(&mut node, session, &["Accept"]);
    assert_eq!(node.counts(0).delayed, 0);
    node.send(session, &LOGIN);
    saw(&mut node, session, &["Successful"]);
}

#[test]
fn a_challenge_that_comes_after_the_wait_is_answered_at_once() {
    let mut node = node(None);
    let session = node.connect(0);
    node.delay(session, seconds(5), false);
    node.pass(seconds(5));
    saw(&mut node, session, &[]);
    node.send(session, &CHALLENGE);
    saw(&mut node, session, &["Accept"]);
}

#[test]
fn a_refused_challenge_is_rejected_after_the_wait() {
    let mut node = node(None);
    let session = node.connect(0);
    node.delay(session, seconds(1), true);
    node.send(session, &CHALLENGE);
    assert_eq!(node.close_reason(session), None);
    node.pass(seconds(1));
    saw(&mut node, session, &["Reject"]);
    assert_eq!(node.close_reason(session), Some(CloseReason::Refused));
}

#[test]
fn a_login_is_answered_when_the_wait_is_over() {
    let mut node = node(None);
    node.login_wait = Some((seconds(5), false));
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    node.send(session, &PING);
    saw(&mut node, session, &["Accept", "Pong"]);
    node.pass(seconds(5));
    saw(&mut node, session, &["Successful"]);
}

#[test]
fn a_refused_login_ends_in_too_many_attempts() {
    let mut node = node(None);
    node.login_wait = Some((seconds(1), true));
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    node.pass(seconds(1));
    saw(&mut node, session, &["Accept", "TooManyAttempts"]);
    assert_eq!(node.close_reason(session), Some(CloseReason::Refused));
}

#[test]
fn the_login_timeout_restarts_once_after_a_delay() {
    let mut node = node(Some(seconds(10)));
    let session = node.connect(0);
    node.delay(session, seconds(9), false);
    node.send(session, &CHALLENGE);
    node.pass(seconds(9));
    saw(&mut node, session, &["Accept"]);
    node.pass(seconds(1));
    assert_eq!(node.close_reason(session), None);
    node.pass(seconds(10));
    let reason = node.close_reason(session);
    assert_eq!(reason, Some(CloseReason::AuthenticationTimeout));
}

#[test]
fn a_delay_longer_than_the_login_timeout_does_not_time_out() {
    let mut node = node(Some(seconds(2)));
    node.login_wait = Some((seconds(9), false));
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    for _ in 0..9 {
        node.pass(seconds(1));
    }
    saw(&mut node, session, &["Accept", "Successful"]);
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn a_session_that_ends_during_its_delay_is_forgotten() {
    let mut node = node(None);
    let session = node.connect(0);
    node.delay(session, seconds(5), false);
    node.send(session, &CHALLENGE);
    node.close(session);
    assert_eq!(node.counts(0).delayed, 0);
    node.pass(seconds(5));
    saw(&mut node, session, &[]);
}

#[test]
fn an_undecided_login_ends_without_an_answer_after_the_delay() {
    let mut node = node(Some(seconds(3)));
    node.login_outcome = Some(AuthOutcome::Unavailable);
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    node.send(session, &PING);
    saw(&mut node, session, &["Accept", "Pong"]);
    assert_eq!(node.counts(0).delayed, 1);
    // The login timeout does not run during the delay, because its close message would keep the client away.
    node.pass(Duration::from_millis(4_999));
    assert_eq!(node.close_reason(session), None);
    node.pass(Duration::from_millis(1));
    saw(&mut node, session, &[]);
    let reason = node.close_reason(session);
    assert_eq!(reason, Some(CloseReason::AuthUnavailable));
    assert_eq!(node.counts(0).delayed, 0);
}

#[test]
fn sessions_with_undecided_logins_do_not_end_together() {
    let mut node = node(None);
    node.login_outcome = Some(AuthOutcome::Unavailable);
    let sessions: Vec<SessionId> = (0..16).map(|_| node.connect(0)).collect();
    for session in &sessions {
        node.send(*session, &CHALLENGE);
        node.send(*session, &LOGIN);
    }
    node.pass(seconds(5));
    let has_ended = |node: &Node| {
        let ended = |session: &&SessionId| node.close_reason(**session).is_some();
        sessions.iter().filter(ended).count()
    };
    assert_eq!(has_ended(&node), 1);
    node.pass(seconds(5));
    assert_eq!(has_ended(&node), 16);
}

#[test]
fn a_barred_credential_ends_the_session_at_the_first_attempt() {
    let mut node = node(None);
    node.login_outcome = Some(AuthOutcome::Barred {
        client_data: Some(Payload::from_checked(r#""revoked""#)),
    });
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    saw(
        &mut node,
        session,
        &["Accept", "revoked", "TooManyAttempts"],
    );
    assert_eq!(node.close_reason(session), Some(CloseReason::Barred));
}

/// A node that refuses all logins. Sessions have 10 s for the first login, and 60 s after a refused one.
fn refusing() -> Node {
    let mut node = Node::new(Settings {
        login_timeout: Some(seconds(10)),
        auth_retry_timeout: Some(seconds(60)),
        ..Settings::default()
    });
    node.login_outcome = Some(AuthOutcome::Refused { client_data: None });
    node
}

#[test]
fn after_a_refused_login_the_retry_timeout_counts_from_the_last_refusal() {
    let mut node = refusing();
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.pass(seconds(9));
    node.send(session, &LOGIN);
    node.pass(seconds(59));
    node.send(session, &LOGIN);
    saw(
        &mut node,
        session,
        &["Accept", "Unsuccessful", "Unsuccessful"],
    );
    node.pass(seconds(59));
    assert_eq!(node.close_reason(session), None);
    node.pass(seconds(1));
    saw(&mut node, session, &["AuthenticationTimeout"]);
    let reason = node.close_reason(session);
    assert_eq!(reason, Some(CloseReason::AuthenticationTimeout));
}

#[test]
fn a_session_that_logs_in_after_a_refusal_stays() {
    let mut node = refusing();
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &LOGIN);
    node.pass(seconds(30));
    node.login_outcome = None;
    node.send(session, &LOGIN);
    saw(
        &mut node,
        session,
        &["Accept", "Unsuccessful", "Successful"],
    );
    for _ in 0..6 {
        node.pass(seconds(20));
        node.send(session, &PING);
    }
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn refusals_are_bounded_however_much_time_there_is() {
    let mut node = refusing();
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    for _ in 0..3 {
        node.send(session, &LOGIN);
    }
    let reason = node.close_reason(session);
    assert_eq!(reason, Some(CloseReason::TooManyAuthAttempts));
}

#[test]
fn login_data_beyond_its_limit_is_refused_before_and_after_the_login() {
    let mut settings = Settings::default();
    settings.limits.login_bytes_max = 100;
    let mut node = Node::new(settings);
    let login = |bytes: usize| format!(r#"{{"password":"{}"}}"#, "x".repeat(bytes - 15));
    let (largest, larger) = (login(100), login(101));
    let with = |data| Message::Auth(Auth::Request { data: Some(data) });
    assert_eq!((largest.len(), larger.len()), (100, 101));
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &with(&larger));
    saw(&mut node, session, &["Accept", "InvalidMessageData"]);
    assert_eq!(node.close_reason(session), Some(CloseReason::InvalidLogin));
    let session = node.connect(0);
    node.send(session, &CHALLENGE);
    node.send(session, &with(&largest));
    saw(&mut node, session, &["Accept", "Successful"]);
    node.send(session, &with(&larger));
    saw(&mut node, session, &["InvalidMessageData"]);
    assert_eq!(node.close_reason(session), Some(CloseReason::InvalidLogin));
}
