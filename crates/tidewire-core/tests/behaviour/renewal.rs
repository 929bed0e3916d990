//! Logins that a client renews while its session is open.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::message::{Auth, Event, Message, Record, RecordBulk};
use tidewire_core::permission::{Access, Decision, Permission, Question};
use tidewire_core::principal::Principal;
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
