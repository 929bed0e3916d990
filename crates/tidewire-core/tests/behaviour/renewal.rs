//! Logins of open sessions: renewals, other users, and logouts. And logins without a challenge.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::message::{Auth, Connection, Event, Message, Presence, Record, RecordBulk};
use tidewire_core::permission::{Access, Decision, Permission, Question};
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::settings::Settings;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;

use crate::driver::Node;

/// Allows subscriptions only to users with the role `reader` in their server data.
#[derive(Debug)]
struct ByRole;

impl Permission for ByRole {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let decided = matches!(question.access, Access::EventSubscribe | Access::RecordRead);
        let role = question.principal.server_data().map(Payload::as_str);
        match decided && role != Some("\"reader\"") {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }
}

fn node() -> Node {
    Node::with(2, Settings::default(), Arc::new(ByRole))
}

fn principal(user: &str, role: &str, expires_at: Option<u64>) -> Principal {
    let principal =
        Principal::new(Name::from(user)).with_data(Some(Payload::from_checked(role)), None);
    match expires_at {
        Some(expires_at) => principal.with_expiry(WallTime(expires_at)),
        None => principal,
    }
}

fn accepted(principal: Principal) -> Option<AuthOutcome> {
    Some(AuthOutcome::Accepted(Arc::new(principal)))
}

/// A reader with subscriptions to an event and a record.
fn reader(node: &mut Node, expires_at: Option<u64>) -> SessionId {
    node.login_outcome = accepted(principal("anna", "\"reader\"", expires_at));
    let session = node.login_on(0);
    node.ask(
        session,
        &Message::Event(Event::Subscribe {
            names: vec!["e"],
            correlation: Some("1"),
            positions: Vec::new(),
        }),
    );
    node.ask(
        session,
        &Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            names: vec!["a", "b", "c"],
            correlation: Some("2"),
        }),
    );
    session
}

fn renew(node: &mut Node, session: SessionId, outcome: Option<AuthOutcome>) -> Vec<String> {
    node.login_outcome = outcome;
    let mut seen = node.ask(session, &Message::Auth(Auth::Request { data: Some("{}") }));
    node.go_on();
    node.go_on();
    seen.extend(node.take(session));
    seen
}

#[test]
fn a_renewed_login_goes_on_with_a_new_expiry() {
    let mut node = node();
    let start = node.now.wall.0;
    let session = reader(&mut node, Some(start + 5_000));
    let renewed = accepted(principal("anna", "\"reader\"", Some(start + 60_000)));
    let seen = renew(&mut node, session, renewed);
    assert!(
        seen.len() == 1 && seen[0].contains("Successful"),
        "{seen:?}"
    );
    assert_eq!(node.counts(0).expiring, 1);
    node.pass(Duration::from_secs(59));
    assert_eq!(node.close_reason(session), None);
    node.pass(Duration::from_secs(1));
    assert_eq!(node.close_reason(session), Some(CloseReason::Expired));
}

#[test]
fn a_renewal_with_fewer_rights_ends_the_subscriptions_that_it_denies() {
    let mut node = node();
    let session = reader(&mut node, None);
    let seen = renew(
        &mut node,
        session,
        accepted(principal("anna", "\"guest\"", None)),
    );
    let denied = seen.iter().filter(|seen| seen.contains("Denied")).count();
    assert_eq!((denied, seen.len()), (4, 5), "{seen:?}");
    assert_eq!(node.counts(0).subscribed_names, 0);
    assert_eq!(node.counts(0).rights_lost, 4);
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn a_renewal_that_is_refused_leaves_the_session_as_it_is_until_the_last_attempt() {
    let mut node = node();
    let session = reader(&mut node, None);
    let refused = Some(AuthOutcome::Refused { client_data: None });
    let other = accepted(principal("bert", "\"reader\"", None));
    let seen = renew(&mut node, session, refused);
    assert!(
        seen.len() == 1 && seen[0].contains("Unsuccessful"),
        "{seen:?}"
    );
    let seen = renew(&mut node, session, Some(AuthOutcome::Unavailable));
    assert!(seen[0].contains("AUTH_UNAVAILABLE"), "{seen:?}");
    let seen = renew(&mut node, session, other.clone());
    assert!(seen[0].contains("OTHER_USER"), "{seen:?}");
    assert_eq!(node.counts(0).subscribed_names, 4);
    assert_eq!(node.close_reason(session), None);
    let seen = renew(&mut node, session, other);
    assert!(seen[1].contains("TooManyAttempts"), "{seen:?}");
    let reason = node.close_reason(session);
    assert_eq!(reason, Some(CloseReason::TooManyAuthAttempts));
}

#[test]
fn a_renewal_with_a_revoked_credential_ends_the_session() {
    let mut node = node();
    let session = reader(&mut node, None);
    let barred = Some(AuthOutcome::Barred { client_data: None });
    let seen = renew(&mut node, session, barred);
    assert!(seen[0].contains("LOGIN_REVOKED"), "{seen:?}");
    assert_eq!(node.close_reason(session), Some(CloseReason::Revoked));
    assert_eq!(node.counts(0).sessions, 0);
}

#[test]
fn a_renewal_that_can_not_be_read_ends_the_session() {
    let mut node = node();
    let session = reader(&mut node, None);
    node.send(session, &Message::Auth(Auth::Request { data: Some("1") }));
    assert_eq!(node.close_reason(session), Some(CloseReason::InvalidLogin));
}

const LOGIN: Message<'_> = Message::Auth(Auth::Request { data: Some("{}") });
const CHANGE: Message<'_> = Message::Auth(Auth::Change { data: Some("{}") });
const LOGOUT: Message<'_> = Message::Auth(Auth::Change { data: None });

fn subscribe<'a>(name: &'a str) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: Some("1"),
        positions: Vec::new(),
    })
}

/// Changes the user of a session, and judges its subscriptions again.
fn change(
    node: &mut Node,
    session: SessionId,
    message: &Message<'_>,
    outcome: Option<AuthOutcome>,
) -> Vec<String> {
    node.login_outcome = outcome;
    let mut seen = node.ask(session, message);
    node.go_on();
    node.go_on();
    seen.extend(node.take(session));
    seen
}

/// The users that a session sees, as text.
fn online(node: &mut Node, watcher: SessionId) -> String {
    node.ask(watcher, &Message::Presence(Presence::QueryAll))
        .concat()
}

#[test]
fn a_login_needs_no_challenge_where_the_protocol_has_none() {
    let mut node = node();
    for coalesces in [false, true] {
        let session = node.open(0, Some(coalesces));
        let seen = node.ask(session, &LOGIN);
        assert!(
            seen.len() == 1 && seen[0].contains("Successful"),
            "{seen:?}"
        );
    }
    let session = node.connect(0);
    let seen = node.ask(session, &LOGIN);
    assert!(seen[0].contains("InvalidMessage"), "{seen:?}");
}

#[test]
fn a_delayed_peer_without_a_challenge_logs_in_after_the_delay() {
    let mut node = node();
    let session = node.open(0, Some(false));
    node.delay(session, Duration::from_secs(5), false);
    node.send(session, &Message::Connection(Connection::Ping));
    assert!(!node.offer(session, &LOGIN));
    node.pass(Duration::from_secs(4));
    assert!(!node.is_resumed(session));
    node.pass(Duration::from_secs(1));
    assert!(node.is_resumed(session));
    assert!(node.offer(session, &LOGIN));
    let seen = node.take(session);
    assert!(
        seen[0].contains("Pong") && seen[1].contains("Successful"),
        "{seen:?}"
    );

    let refused = node.open(0, Some(false));
    node.delay(refused, Duration::from_secs(5), true);
    assert!(!node.offer(refused, &LOGIN));
    node.pass(Duration::from_secs(5));
    assert!(node.take(refused)[0].contains("Reject"));
    assert_eq!(node.close_reason(refused), Some(CloseReason::Refused));
}

#[test]
fn a_session_changes_its_user_and_its_subscriptions_are_judged_again() {
    let mut node = node();
    let watcher = node.login_as_user(1, "watcher");
    node.login_outcome = accepted(principal("guest", "\"guest\"", None));
    let session = node.login_on(0);
    assert!(node.ask(session, &subscribe("e"))[0].contains("Denied"));
    let anna = accepted(principal("anna", "\"reader\"", None));
    let seen = change(&mut node, session, &CHANGE, anna);
    assert!(
        seen.len() == 1 && seen[0].contains("Successful"),
        "{seen:?}"
    );
    let users = online(&mut node, watcher);
    assert!(
        users.contains("anna") && !users.contains("guest"),
        "{users}"
    );
    assert!(node.ask(session, &subscribe("e"))[0].contains("Ack"));
    let guest = accepted(principal("guest", "\"guest\"", None));
    let seen = change(&mut node, session, &LOGOUT, guest);
    assert!(
        seen[0].contains("Successful") && seen[1].contains("Denied"),
        "{seen:?}"
    );
    assert_eq!(node.counts(0).subscribed_names, 0);
    let users = online(&mut node, watcher);
    assert!(
        users.contains("guest") && !users.contains("anna"),
        "{users}"
    );
    node.close(session);
    let users = online(&mut node, watcher);
    assert!(
        !users.contains("guest") && !users.contains("anna"),
        "{users}"
    );
}

#[test]
fn a_refused_change_of_the_user_leaves_the_session_as_it_is() {
    let mut node = node();
    let session = reader(&mut node, None);
    let refused = Some(AuthOutcome::Refused { client_data: None });
    for outcome in [refused, Some(AuthOutcome::Unavailable)] {
        let seen = change(&mut node, session, &CHANGE, outcome);
        assert!(
            seen.len() == 1 && seen[0].contains("Unsuccessful"),
            "{seen:?}"
        );
    }
    assert_eq!(node.counts(0).subscribed_names, 4);
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn a_logout_that_the_auth_chain_does_not_accept_ends_the_session() {
    let refused = Some(AuthOutcome::Refused { client_data: None });
    for outcome in [refused, Some(AuthOutcome::Unavailable)] {
        let mut node = node();
        let session = reader(&mut node, None);
        change(&mut node, session, &LOGOUT, outcome);
        assert_eq!(node.close_reason(session), Some(CloseReason::LoggedOut));
    }
}

#[test]
fn an_operator_is_not_replaced_by_a_user_nor_a_user_by_an_operator() {
    let credential = Credential::Operator(Name::from("key"));
    let operator = || principal("operator", "null", None).with_credential(credential.clone());
    let user = || principal("anna", "\"reader\"", None);
    for (first, second) in [(operator(), user()), (user(), operator())] {
        let mut node = node();
        node.login_outcome = accepted(first);
        let session = node.login_on(0);
        let seen = change(&mut node, session, &CHANGE, accepted(second));
        assert!(seen[0].contains("OTHER_USER"), "{seen:?}");
    }
}

#[test]
fn messages_after_a_change_are_paid_by_the_new_user() {
    let mut settings = Settings::default();
    settings.rates.user[Operation::Publish as usize] = Some(Rate {
        interval: Duration::from_secs(10),
        burst: 1,
    });
    let mut node = Node::with(1, settings, Arc::new(ByRole));
    node.login_outcome = accepted(principal("anna", "\"reader\"", None));
    let session = node.login_on(0);
    let emit = Message::Event(Event::publication("e", None));
    node.send(session, &emit);
    node.login_outcome = accepted(principal("bert", "\"reader\"", None));
    node.send(session, &CHANGE);
    // No time has passed, so the first user could not pay for another one.
    node.send(session, &emit);
    assert!(!node.offer(session, &emit));
    node.close(session);
    assert_eq!(node.counts(0).throttled, 0);
}
