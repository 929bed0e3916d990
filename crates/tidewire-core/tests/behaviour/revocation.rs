//! Revocations of users, tokens and keys, while their sessions are open and at a login.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::settings::Settings;
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use crate::driver::Node;

fn node() -> Node {
    let allow = Arc::new(tidewire_core::permission::AllowAll);
    Node::with(3, Settings::default(), allow)
}

fn login(node: &mut Node, shard: u16, user: &str, token: &str) -> SessionId {
    let token = Credential::Token(Name::from(token));
    let principal = Principal::new(Name::from(user)).with_credential(token);
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    let session = node.login_on(shard);
    let subscribe = Event::Subscribe {
        names: vec!["news"],
        correlation: Some("1"),
        positions: Vec::new(),
    };
    node.ask(session, &Message::Event(subscribe));
    session
}

fn revoke(node: &mut Node, what: Revoked, time: Duration) {
    let until = WallTime(node.now.wall.0 + u64::try_from(time.as_millis()).expect("short"));
    node.begin_change(RightsChange::Revoke(Revocation { what, until }));
    node.finish_changes();
}

fn user(name: &str) -> Revoked {
    Revoked::User(Name::from(name))
}

fn token(id: &str) -> Revoked {
    Revoked::Credential(Credential::Token(Name::from(id)))
}

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn exactly_the_sessions_of_a_revoked_credential_end() {
    for (what, ended) in [
        (user("anna"), [true, true, false]),
        (token("1"), [true, false, true]),
        (token("9"), [false; 3]),
    ] {
        let mut node = node();
        let sessions = [
            login(&mut node, 0, "anna", "1"),
            login(&mut node, 1, "anna", "2"),
            login(&mut node, 2, "bert", "1"),
        ];
        revoke(&mut node, what.clone(), HOUR);
        for (session, ended) in sessions.into_iter().zip(ended) {
            let reason = ended.then_some(CloseReason::Revoked);
            assert_eq!(node.close_reason(session), reason, "{what:?}");
            let seen = node.take(session);
            let received = seen.len() == 2
                && seen[0].contains("LOGIN_REVOKED")
                && seen[1].contains("TooManyAttempts");
            assert_eq!(received, ended, "{seen:?}");
        }
        node.login_outcome = None;
        let writer = node.login_on(1);
        let data = None;
        node.send(writer, &Message::Event(Event::publication("news", data)));
        for (session, ended) in sessions.into_iter().zip(ended) {
            assert_eq!(node.take(session).len(), usize::from(!ended), "{what:?}");
        }
    }
}

#[test]
fn a_revoked_credential_is_refused_until_the_revocation_ends_or_is_withdrawn() {
    let mut node = node();
    let attempt = |node: &mut Node| {
        let principal = Principal::new("anna".into());
        node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
        let session = node.connect(1);
        let challenge = Connection::challenge(false);
        node.send(session, &Message::Connection(challenge));
        node.send(session, &Message::Auth(Auth::Request { data: Some("{}") }));
        let seen = node.take(session).join(" ");
        let is_final = seen.contains("LOGIN_REVOKED") && seen.contains("TooManyAttempts");
        assert_eq!(
            is_final,
            node.close_reason(session) == Some(CloseReason::Barred)
        );
        assert!(is_final != seen.contains("Successful"), "{seen}");
        !is_final
    };
    assert!(attempt(&mut node));
    revoke(&mut node, user("anna"), HOUR);
    assert!(!attempt(&mut node));
    node.begin_change(RightsChange::Restore(user("anna")));
    node.finish_changes();
    assert!(attempt(&mut node));
    revoke(&mut node, user("anna"), HOUR);
    node.pass(HOUR);
    assert!(attempt(&mut node));
}

#[test]
fn a_login_that_is_held_back_is_revoked_too() {
    let mut node = node();
    node.login_wait = Some((Duration::from_secs(5), false));
    let principal = Principal::new("anna".into());
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    let session = node.connect(0);
    let challenge = Connection::challenge(false);
    node.send(session, &Message::Connection(challenge));
    node.send(session, &Message::Auth(Auth::Request { data: Some("{}") }));
    revoke(&mut node, user("anna"), HOUR);
    node.pass(Duration::from_secs(5));
    assert_eq!(node.close_reason(session), Some(CloseReason::Barred));
}
