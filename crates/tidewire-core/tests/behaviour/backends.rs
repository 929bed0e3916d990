//! Backends: the sessions that they serve, their commands, their loss, and hostile ones.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::attachments::Attachments;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::limits::Limits;
use tidewire_core::message::{Backend, BackendKind, Event, Message};
use tidewire_core::permission::{AllowAll, Decision, Permission, Question};
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::settings::Settings;

use super::driver::{Node, Seen};

/// Denies every operation.
#[derive(Debug)]
struct DenyAll;

impl Permission for DenyAll {
    fn decide(&self, _: &Question<'_>) -> Decision {
        Decision::Deny
    }
}

pub const SECOND: Duration = Duration::from_secs(1);

pub fn settings() -> Settings {
    Settings {
        backend_namespaces: ["/", "/chat", "/room/*"].map(String::from).into(),
        ..Settings::default()
    }
}

pub fn node(shards: u16) -> Node {
    Node::with(shards, settings(), Arc::new(AllowAll))
}

/// A node of one shard with other limits.
pub fn limited(change: impl FnOnce(&mut Limits)) -> Node {
    let mut settings = settings();
    change(&mut settings.limits);
    Node::with(1, settings, Arc::new(AllowAll))
}

pub fn message(backend: Backend<'_>) -> Message<'_> {
    Message::Backend(Box::new(backend))
}

/// Connects a backend that serves these namespaces.
pub fn backend(node: &mut Node, shard: u16, namespaces: &[&str]) -> SessionId {
    let (backend, seen) = backend_with_sessions(node, shard, namespaces);
    assert!(seen.is_empty(), "{seen:?}");
    backend
}

/// Logs a backend in that serves no namespace yet.
pub fn login(node: &mut Node, shard: u16) -> SessionId {
    let principal = Principal::new("backend".into());
    let principal = principal.with_credential(Credential::Backend("backend".into()));
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    let backend = node.login_on(shard);
    node.login_outcome = None;
    backend
}

/// The same for one that gets sessions at once.
pub fn backend_with_sessions(
    node: &mut Node,
    shard: u16,
    namespaces: &[&str],
) -> (SessionId, Seen) {
    let backend = login(node, shard);
    let serve = Backend {
        names: namespaces.to_vec(),
        correlation: Some("1"),
        ..Backend::new(BackendKind::Serve)
    };
    let seen = node.ask(backend, &message(serve));
    assert_eq!(kinds(&seen[..2]), ["Served", "Served"], "{seen:?}");
    (backend, seen[2..].to_vec())
}

pub fn about(kind: BackendKind, session: SessionId) -> Backend<'static> {
    Backend::about(kind, session)
}

fn accept(node: &mut Node, backend: SessionId, session: SessionId, id: &str) -> Seen {
    let accept = Backend {
        name: Some(id),
        ..about(BackendKind::Accept, session)
    };
    node.send(backend, &message(accept));
    node.take(session)
}

/// A session that this backend has accepted.
pub fn served(node: &mut Node, backend: SessionId, shard: u16, namespace: &str) -> SessionId {
    let session = node.back(shard, namespace);
    let seen = about_sessions(node.take(backend));
    assert!(kinds(&seen).contains(&"Opened".to_owned()), "{seen:?}");
    let accepted = accept(node, backend, session, "id");
    assert_eq!(kinds(&accepted), ["Accept"]);
    session
}

pub fn event(data: &str) -> Message<'_> {
    message(Backend {
        data: Some(data),
        ..Backend::new(BackendKind::Event)
    })
}

pub fn join(node: &mut Node, backend: SessionId, session: SessionId, rooms: &[&str]) {
    let join = Backend {
        names: rooms.to_vec(),
        ..about(BackendKind::Join, session)
    };
    node.send(backend, &message(join));
}

/// Confirms messages of a backend.
pub fn confirm(node: &mut Node, backend: SessionId, count: u32) -> Seen {
    let confirm = Backend {
        count,
        ..Backend::new(BackendKind::Confirm)
    };
    node.ask(backend, &message(confirm))
}

pub fn broadcast<'a>(namespace: &'a str, rooms: &[&'a str], data: &'a str) -> Backend<'a> {
    Backend {
        name: Some(namespace),
        names: rooms.to_vec(),
        data: Some(data),
        ..Backend::new(BackendKind::Broadcast)
    }
}

/// The kinds of the messages of backends.
pub fn kinds(seen: &[String]) -> Vec<String> {
    let kind = |text: &String| {
        let (_, rest) = text.split_once("kind: ")?;
        Some(rest.split([',', ' ']).next()?.to_owned())
    };
    seen.iter().filter_map(kind).collect()
}

/// The messages about sessions.
pub fn about_sessions(seen: Seen) -> Seen {
    let is_count = |text: &String| text.contains("kind: Served");
    seen.into_iter().filter(|text| !is_count(text)).collect()
}

/// The data of messages.
pub fn data(seen: &[String]) -> Vec<String> {
    let data = |text: &String| {
        let (_, rest) = text.split_once("data: Some(\"")?;
        Some(rest.split_once("\")")?.0.replace('\\', ""))
    };
    seen.iter().filter_map(data).collect()
}

#[track_caller]
pub fn check_refused(seen: &[String], kind: &str, part: &str) {
    assert_eq!(kinds(seen), [kind], "{seen:?}");
    assert!(seen[0].contains(part), "{seen:?}");
}

#[test]
fn a_session_opens_when_its_backend_accepts_it() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/", "/chat"]);
    for shard in 0..2 {
        let session = node.back(shard, "/chat");
        assert!(node.take(session).is_empty());
        let seen = about_sessions(node.take(backend));
        assert_eq!(kinds(&seen), ["Opened"]);
        assert!(seen[0].contains(r#"name: Some("/chat")"#), "{seen:?}");
        assert_eq!(data(&seen), [r#"{"auth":{}}"#]);
        let accepted = accept(&mut node, backend, session, "abc");
        assert!(accepted[0].contains(r#"name: Some("abc")"#), "{accepted:?}");
        node.send(session, &event(r#"["a",1]"#));
        let asking = Backend {
            correlation: Some("7"),
            attachments: Attachments::new([[1]]),
            data: Some(r#"["b"]"#),
            ..Backend::new(BackendKind::Event)
        };
        node.send(session, &message(asking));
        let seen = about_sessions(node.take(backend));
        assert_eq!(data(&seen), [r#"["a",1]"#, r#"["b"]"#]);
        assert!(seen[1].contains(r#"correlation: Some("7")"#), "{seen:?}");
        assert!(seen[1].contains("attachments of [1] bytes"), "{seen:?}");
        for kind in [BackendKind::Answer, BackendKind::Send] {
            let sent = Backend {
                data: Some("[1]"),
                correlation: Some("7"),
                ..about(kind, session)
            };
            node.send(backend, &message(sent));
        }
        assert_eq!(kinds(&node.take(session)), ["Answer", "Send"]);
    }
}

#[test]
fn a_client_that_comes_back_gets_events_before_its_session_opens() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/"]);
    for shard in 0..2 {
        let session = node.back(shard, "/");
        let missed = Backend {
            data: Some(r#"["missed"]"#),
            ..about(BackendKind::Send, session)
        };
        let accept = Backend {
            name: Some("id"),
            correlation: Some("secret"),
            ..about(BackendKind::Accept, session)
        };
        node.send(backend, &message(missed));
        node.send(backend, &message(accept));
        let seen = node.take(session);
        assert_eq!(kinds(&seen), ["Send", "Accept"]);
        assert!(
            seen[1].contains(r#"correlation: Some("secret")"#),
            "{seen:?}"
        );
    }
}

#[test]
fn a_refused_session_gets_the_reason_and_may_try_again() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/"]);
    let session = node.back(0, "/");
    about_sessions(node.take(backend));
    let refuse = Backend {
        data: Some(r#"{"message":"no"}"#),
        ..about(BackendKind::Refuse, session)
    };
    node.send(backend, &message(refuse));
    let seen = node.take(session);
    assert_eq!(
        (kinds(&seen), data(&seen)),
        (vec!["Refuse".into()], vec![r#"{"message":"no"}"#.into()])
    );
    node.back_again(session, "/");
    assert_eq!(kinds(&about_sessions(node.take(backend))), ["Opened"]);
    assert_eq!(kinds(&accept(&mut node, backend, session, "x")), ["Accept"]);
}

#[test]
fn a_namespace_that_no_backend_serves_is_refused() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/", "/room/a*"]);
    for namespace in ["/chat", "/room/b"] {
        let session = node.back(0, namespace);
        assert!(node.take(session).is_empty(), "a backend may follow");
        node.pass(Duration::from_millis(499));
        assert!(node.take(session).is_empty(), "a backend may follow");
        node.pass(Duration::from_millis(1));
        assert_eq!(
            data(&node.take(session)),
            [r#"{"message":"Invalid namespace"}"#]
        );
    }
    let session = node.back(0, "/room/a1");
    assert!(node.take(session).is_empty());
    assert_eq!(kinds(&about_sessions(node.take(backend))), ["Opened"]);
}

#[test]
fn a_session_may_be_faster_than_the_backend_that_serves_its_namespace() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = node.back(1, "/chat");
    node.pass(Duration::from_millis(400));
    let serve = Backend {
        names: vec!["/", "/chat"],
        correlation: Some("2"),
        ..Backend::new(BackendKind::Serve)
    };
    let seen = about_sessions(node.ask(first, &message(serve)));
    assert_eq!(kinds(&seen), ["Opened"], "{seen:?}");
    node.pass(Duration::from_millis(1_000));
    assert!(node.take(session).is_empty(), "it is not refused");
}

#[test]
fn only_backends_serve_namespaces_and_only_configured_ones() {
    let mut node = node(1);
    let serve = |names: &[&'static str]| Backend {
        names: names.to_vec(),
        ..Backend::new(BackendKind::Serve)
    };
    let other = node.login();
    for kind in BackendKind::ALL {
        let seen = node.ask(other, &message(Backend::about(*kind, other)));
        check_refused(&seen, "NotABackend", "backend.key");
    }
    let backend = backend(&mut node, 0, &["/"]);
    let many = ["/"; 1_001];
    for names in [&["/other"][..], &["/*"], &["/roo*"], &["/", "/chat2"]] {
        let seen = node.ask(backend, &message(serve(names)));
        check_refused(&seen, "InvalidCommand", "backend.namespaces");
    }
    for names in [&[][..], &["chat"], &[""], &many] {
        let seen = node.ask(backend, &message(serve(names)));
        check_refused(&seen, "InvalidCommand", "namespaces begin with /");
    }
    let seen = node.ask(backend, &message(serve(&["/room/*", "/room/x*", "/chat"])));
    assert_eq!(kinds(&seen), ["Served", "Served"]);
}

#[test]
fn a_broadcast_reaches_each_session_once() {
    let mut node = node(3);
    let backend = backend(&mut node, 1, &["/", "/chat"]);
    let sessions: Vec<SessionId> = (0..6)
        .map(|index| served(&mut node, backend, index % 3, "/chat"))
        .collect();
    let main = served(&mut node, backend, 0, "/");
    for (index, rooms) in [&["a", "b"][..], &["a"], &["b"], &["a", "b"], &["b", "c"]]
        .iter()
        .enumerate()
    {
        join(&mut node, backend, sessions[index], rooms);
    }
    join(&mut node, backend, main, &["a"]);
    let mut check = |sent: Backend<'_>, expected: &[usize]| {
        let text = format!("{sent:?}");
        node.send(backend, &message(sent));
        let got: Vec<usize> = (0..sessions.len())
            .flat_map(|index| node.take(sessions[index]).into_iter().map(move |_| index))
            .collect();
        assert_eq!(got, expected, "{text}");
        assert!(
            node.take(main).is_empty() && about_sessions(node.take(backend)).is_empty(),
            "{text}"
        );
    };
    let sent = |rooms: &[&'static str]| broadcast("/chat", rooms, r#"["said"]"#);
    check(sent(&["a"]), &[0, 1, 3]);
    check(sent(&["a", "b"]), &[0, 1, 2, 3, 4]);
    check(sent(&["a", "a", "none"]), &[0, 1, 3]);
    check(sent(&[]), &[0, 1, 2, 3, 4, 5]);
    let from = |index: usize, sent| Backend {
        session: Some(sessions[index]),
        ..sent
    };
    check(from(0, sent(&["a"])), &[1, 3]);
    check(from(4, sent(&["a", "b"])), &[0, 1, 2, 3]);
    check(from(5, sent(&[])), &[0, 1, 2, 3, 4]);
    let except = |rooms: &[&'static str], sent| Backend {
        except: rooms.to_vec(),
        ..sent
    };
    check(except(&["b"], sent(&["a"])), &[1]);
    check(except(&["a", "c"], sent(&[])), &[2, 5]);
    check(except(&["a"], from(5, sent(&[]))), &[2, 4]);
    let leave = Backend {
        names: vec!["a", "none"],
        ..about(BackendKind::Leave, sessions[0])
    };
    node.send(backend, &message(leave));
    node.send(backend, &message(sent(&["a"])));
    assert_eq!(node.take(sessions[0]).len(), 0);
    assert_eq!(node.take(sessions[1]).len(), 1);
}

#[test]
fn a_room_is_the_event_of_its_name() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/", "/chat"]);
    let (main, chat) = (
        served(&mut node, backend, 0, "/"),
        served(&mut node, backend, 1, "/chat"),
    );
    for session in [main, chat] {
        join(&mut node, backend, session, &["a"]);
    }
    let other = node.login_on(1);
    let names = vec!["a", "chat#a"];
    let subscribe = Event::Subscribe {
        names,
        correlation: None,
        positions: Vec::new(),
    };
    node.ask(other, &Message::Event(subscribe));
    node.send(backend, &message(broadcast("/", &["a"], "1")));
    node.send(backend, &message(broadcast("/chat", &["a"], "2")));
    assert_eq!(data(&node.take(other)), ["1", "2"]);
    assert_eq!(data(&node.take(main)), ["1"]);
    assert_eq!(data(&node.take(chat)), ["2"]);
    // The data of a room in several rooms have the name of the room.
    let two = broadcast("/chat", &["none", "a"], "3");
    node.send(backend, &message(two));
    let seen = node.take(other);
    assert!(seen[0].contains(r#"name: "chat#a""#), "{seen:?}");
    node.take(chat);
    node.send(
        other,
        &Message::Event(Event::publication("chat#a", Some("4"))),
    );
    assert_eq!(data(&node.take(chat)), ["4"]);
    assert!(node.take(main).is_empty());
}

#[test]
fn an_emit_after_a_join_reaches_the_session() {
    let mut node = node(3);
    let backend = backend(&mut node, 1, &["/"]);
    let sessions: Vec<SessionId> = (0..3)
        .map(|shard| served(&mut node, backend, shard, "/"))
        .collect();
    node.hold_posts();
    for session in &sessions {
        join(&mut node, backend, *session, &["a"]);
        let mine = Backend {
            data: Some("[0]"),
            ..about(BackendKind::Send, *session)
        };
        node.send(backend, &message(mine));
    }
    node.send(backend, &message(broadcast("/", &["a"], "[1]")));
    node.release_posts();
    for session in sessions {
        assert_eq!(data(&node.take(session)), ["[0]", "[1]"]);
    }
}

#[test]
fn commands_that_can_not_be_executed_have_no_effect() {
    let mut node = node(2);
    let one = backend(&mut node, 0, &["/"]);
    let two = backend(&mut node, 1, &["/chat"]);
    let session = served(&mut node, one, 1, "/");
    join(&mut node, one, session, &["a"]);
    let native = node.login_on(1);
    let foreign = SessionId {
        address: Address { node: 9, shard: 0 },
        ..session
    };
    let late = SessionId {
        generation: 7,
        ..session
    };
    let with_data = |kind, session| Backend {
        data: Some("[1]"),
        name: Some("x"),
        names: vec!["a", ""],
        ..about(kind, session)
    };
    // Another backend, a session without one, one that has ended, and one of a lost node. This is not a fault: the session may have ended a moment before.
    for (from, to) in [(two, session), (one, native), (one, late), (one, foreign)] {
        for kind in [
            BackendKind::Accept,
            BackendKind::Send,
            BackendKind::Answer,
            BackendKind::Join,
            BackendKind::Leave,
            BackendKind::End,
            BackendKind::EndConnection,
        ] {
            assert!(
                node.ask(from, &message(with_data(kind, to))).is_empty(),
                "{kind:?}"
            );
        }
    }
    for to in [session, native] {
        assert!(node.take(to).is_empty());
        assert_eq!(node.close_reason(to), None);
    }
    let mut refused = |sent: Backend<'_>, part: &str| {
        let text = format!("{sent:?}");
        let seen = node.ask(one, &message(sent));
        assert!(
            seen.len() == 1 && seen[0].contains("InvalidCommand"),
            "{text}: {seen:?}"
        );
        assert!(seen[0].contains(part), "{text}: {seen:?}");
    };
    refused(Backend::new(BackendKind::End), "needs a session");
    for bad in ["", "[", "{}", "1", "[1]x"] {
        for kind in [BackendKind::Send, BackendKind::Answer] {
            let sent = Backend {
                data: Some(bad),
                ..about(kind, session)
            };
            refused(sent, "the data are missing");
        }
    }
    refused(about(BackendKind::Send, session), "the data are missing");
    refused(
        with_data(BackendKind::Refuse, session),
        "the data are missing",
    );
    let unfit = Backend {
        data: Some(r#"[{"_placeholder":true,"num":1}]"#),
        attachments: Attachments::new([[1]]),
        ..about(BackendKind::Send, session)
    };
    refused(unfit, "the data are missing");
    refused(broadcast("/", &["a"], "no"), "the data are missing");
    refused(broadcast("/chat", &["a"], "1"), "does not serve");
    refused(broadcast("/", &[""], "1"), "a room is empty");
    let long = "x".repeat(2_000);
    refused(broadcast("/", &[&long], "1"), "a room is empty");
    let nameless = about(BackendKind::Accept, session);
    refused(nameless, "1 to 128 bytes");
    for kind in [
        BackendKind::Served,
        BackendKind::Opened,
        BackendKind::Event,
        BackendKind::Answered,
        BackendKind::Closed,
        BackendKind::NotABackend,
        BackendKind::InvalidCommand,
    ] {
        refused(with_data(kind, session), "only sessions and the server");
    }
    let seen = confirm(&mut node, one, 5);
    check_refused(&seen, "InvalidCommand", "more messages are confirmed");
    // A session gets events and nothing else before it is accepted, and is accepted once.
    let new = node.back(0, "/");
    node.send(one, &message(with_data(BackendKind::Join, new)));
    let asking = Backend {
        correlation: Some("1"),
        ..with_data(BackendKind::Send, new)
    };
    node.send(one, &message(asking));
    assert!(node.take(new).is_empty());
    let long = "x".repeat(129);
    let secret = Backend {
        name: Some("x"),
        correlation: Some(&long),
        ..about(BackendKind::Accept, new)
    };
    node.take(one);
    node.send(one, &message(secret));
    check_refused(&node.take(one), "InvalidCommand", "1 to 128 bytes");
    assert_eq!(kinds(&accept(&mut node, one, new, "x")), ["Accept"]);
    assert!(accept(&mut node, one, new, "y").is_empty());
    let refuse = Backend {
        data: Some("{}"),
        ..about(BackendKind::Refuse, new)
    };
    node.send(one, &message(refuse));
    assert!(node.take(new).is_empty());
}

#[test]
fn backends_get_to_know_their_number() {
    let mut node = node(2);
    let count = |seen: &Seen| {
        let (_, rest) = seen[0].split_once("count: ").expect("a count");
        rest.split(',').next().expect("a number").to_owned()
    };
    let one = backend(&mut node, 0, &["/"]);
    let two = backend(&mut node, 1, &["/chat"]);
    assert_eq!(count(&node.take(one)), "2");
    node.close(two);
    assert_eq!(count(&node.take(one)), "1");
}

#[test]
fn sessions_go_to_the_backend_with_the_fewest() {
    let mut node = node(1);
    let backends: Vec<SessionId> = (0..3).map(|_| backend(&mut node, 0, &["/"])).collect();
    let sessions: Vec<SessionId> = (0..6).map(|_| node.back(0, "/")).collect();
    for backend in &backends {
        assert_eq!(
            kinds(&about_sessions(node.take(*backend))),
            ["Opened", "Opened"]
        );
    }
    // Both sessions of the second one end.
    node.close(sessions[1]);
    node.close(sessions[4]);
    assert_eq!(
        kinds(&about_sessions(node.take(backends[1]))),
        ["Closed", "Closed"]
    );
    node.back(0, "/");
    node.back(0, "/");
    assert_eq!(
        kinds(&about_sessions(node.take(backends[1]))),
        ["Opened", "Opened"]
    );
}

#[test]
fn the_sessions_of_a_lost_backend_go_to_another_with_their_rooms() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/chat"]);
    let session = served(&mut node, first, 1, "/chat");
    join(&mut node, first, session, &["a", "b"]);
    let opening = node.back(0, "/chat");
    about_sessions(node.take(first));
    node.close(first);
    assert!(!node.offer(session, &event("[1]")), "it waits");
    let (second, seen) = backend_with_sessions(&mut node, 1, &["/chat"]);
    assert!(node.is_resumed(session));
    assert_eq!(kinds(&seen), ["Opened", "Opened"]);
    let taken = seen
        .iter()
        .find(|text| text.contains(r#"correlation: Some("id")"#));
    let taken = taken.expect("the open session has its id");
    assert!(taken.contains(r#"names: ["a", "b"]"#), "{taken}");
    node.send(session, &event("[1]"));
    assert_eq!(data(&about_sessions(node.take(second))), ["[1]"]);
    assert_eq!(
        kinds(&accept(&mut node, second, opening, "new")),
        ["Accept"]
    );
    // Its rooms have stayed.
    node.send(second, &message(broadcast("/chat", &["b"], "2")));
    assert_eq!(data(&node.take(session)), ["2"]);
    assert_eq!(node.close_reason(session), None);
}

#[test]
fn an_event_that_a_lost_backend_was_not_sent_reaches_the_next_one_once() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    for data in ["[1]", "[2]"] {
        node.send(session, &event(data));
    }
    assert_eq!(data(&about_sessions(node.take(first))), ["[1]", "[2]"]);
    confirm(&mut node, first, 2);
    node.hold_posts();
    for data in ["[3]", "[4]"] {
        assert!(node.offer(session, &event(data)));
    }
    // The end of the backend overtakes nothing: the shard of the session learns how many it was sent.
    node.close(first);
    node.release_posts();
    assert!(about_sessions(node.take(first)).is_empty());
    assert!(!node.offer(session, &event("[5]")));
    let (second, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen), ["Opened", "Event", "Event"]);
    assert_eq!(data(&seen)[1..], ["[3]", "[4]"]);
    node.send(session, &event("[5]"));
    assert_eq!(data(&about_sessions(node.take(second))), ["[5]"]);
}

#[test]
fn an_event_that_a_lost_backend_was_sent_is_not_sent_again() {
    let mut node = node(2);
    let first = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, first, 1, "/");
    for data in ["[1]", "[2]", "[3]"] {
        node.send(session, &event(data));
    }
    // It has handled its session and one event.
    confirm(&mut node, first, 2);
    node.close(first);
    let (second, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen), ["Opened"]);
    node.send(session, &event("[4]"));
    assert_eq!(data(&about_sessions(node.take(second))), ["[4]"]);
}

#[test]
fn sessions_without_a_backend_are_closed_after_the_grace() {
    let mut node = node(2);
    let early = node.back(0, "/");
    node.pass(9 * SECOND);
    assert_eq!(node.close_reason(early), None);
    let (first, seen) = backend_with_sessions(&mut node, 0, &["/"]);
    assert_eq!(kinds(&seen), ["Opened"]);
    accept(&mut node, first, early, "a");
    let other = served(&mut node, first, 1, "/");
    node.pass(20 * SECOND);
    node.close(first);
    node.pass(9 * SECOND);
    for session in [early, other] {
        assert_eq!(node.close_reason(session), None);
    }
    // A namespace whose backend was lost a moment ago is not refused.
    backend(&mut node, 0, &["/chat"]);
    let new = node.back(0, "/");
    assert!(node.take(new).is_empty());
    node.pass(SECOND);
    for session in [early, other] {
        assert_eq!(node.close_reason(session), Some(CloseReason::NoBackend));
    }
    assert_eq!(node.close_reason(new), None);
    node.pass(9 * SECOND);
    assert_eq!(node.close_reason(new), Some(CloseReason::NoBackend));
}

#[test]
fn a_slow_backend_stops_only_its_own_sessions() {
    let mut node = limited(|limits| limits.backend_messages_max = 3);
    let (slow, other) = (
        backend(&mut node, 0, &["/"]),
        backend(&mut node, 0, &["/chat"]),
    );
    let (one, two) = (
        served(&mut node, slow, 0, "/"),
        served(&mut node, slow, 0, "/"),
    );
    let free = served(&mut node, other, 0, "/chat");
    assert!(node.offer(one, &event("[1]")), "the third");
    assert!(!node.offer(one, &event("[2]")));
    assert!(!node.offer(two, &event("[3]")));
    assert!(node.offer(free, &event("[4]")));
    let late = node.back(0, "/");
    assert_eq!(data(&about_sessions(node.take(slow))), ["[1]"]);
    assert!(!node.is_resumed(one) && !node.is_resumed(two));
    // A new session comes first, then the sessions that wait, as far as there is room.
    let seen = confirm(&mut node, slow, 2);
    assert_eq!(kinds(&seen), ["Opened"]);
    assert!(node.is_resumed(one) && !node.is_resumed(two));
    assert!(node.offer(one, &event("[2]")));
    let seen = confirm(&mut node, slow, 3);
    assert_eq!(data(&seen), ["[2]"]);
    assert!(node.is_resumed(two));
    assert!(node.offer(two, &event("[3]")));
    assert_eq!(data(&about_sessions(node.take(slow))), ["[3]"]);
    assert_eq!(kinds(&accept(&mut node, slow, late, "late")), ["Accept"]);
}

#[test]
fn messages_for_a_backend_are_limited_in_bytes() {
    let mut node = limited(|limits| limits.backend_bytes_max = 10_000);
    let slow = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, slow, 0, "/");
    confirm(&mut node, slow, 1);
    let large = format!("[\"{}\"]", "x".repeat(20_000));
    assert!(
        node.offer(session, &event(&large)),
        "one message may be larger"
    );
    assert!(!node.offer(session, &event("[2]")));
    confirm(&mut node, slow, 1);
    assert!(node.is_resumed(session));
    assert!(node.offer(session, &event("[2]")));
}

#[test]
fn a_backend_ends_a_session() {
    for (kind, reason) in [
        (BackendKind::End, CloseReason::Dismissed),
        (BackendKind::EndConnection, CloseReason::Disconnected),
    ] {
        let mut node = node(2);
        let backend = backend(&mut node, 0, &["/"]);
        let session = served(&mut node, backend, 1, "/");
        join(&mut node, backend, session, &["a"]);
        node.send(backend, &message(broadcast("/", &["a"], "1")));
        node.send(backend, &message(about(kind, session)));
        for rooms in [&["a"][..], &[]] {
            node.send(backend, &message(broadcast("/", rooms, "2")));
        }
        assert_eq!(
            data(&node.take(session)),
            ["1"],
            "it gets nothing after its end"
        );
        assert_eq!(node.close_reason(session), Some(reason));
        // Messages that are on their way are dropped.
        assert!(node.offer(session, &event("[1]")));
        node.close(session);
        assert!(
            about_sessions(node.take(backend)).is_empty(),
            "the backend knows it"
        );
    }
}

#[test]
fn the_end_of_a_session_has_a_reason() {
    let mut node = node(2);
    let backend = backend(&mut node, 0, &["/"]);
    let mut check = |reason: &str, end: &dyn Fn(&mut Node, SessionId)| {
        let session = served(&mut node, backend, 1, "/");
        end(&mut node, session);
        let seen = about_sessions(node.take(backend));
        let closed = seen.iter().find(|text| text.contains("kind: Closed"));
        let closed = closed.expect("the backend gets to know it");
        assert!(
            closed.contains(&format!("name: Some({reason:?})")),
            "{closed}"
        );
    };
    check("left", &|node, session| node.leave(session));
    check("lost", &|node, session| node.close(session));
    check("silent", &|node, session| {
        node.pass(61 * SECOND);
        assert_eq!(node.close_reason(session), Some(CloseReason::Silent));
        node.close(session);
    });
}

#[test]
fn rules_do_not_decide_about_sessions_with_a_backend() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/"]);
    let session = served(&mut node, backend, 0, "/");
    join(&mut node, backend, session, &["a"]);
    node.set_rules(Arc::new(DenyAll));
    node.send(backend, &message(broadcast("/", &["a"], "1")));
    assert_eq!(data(&node.take(session)), ["1"]);
    join(&mut node, backend, session, &["b"]);
    node.send(backend, &message(broadcast("/", &["b"], "2")));
    assert_eq!(data(&node.take(session)), ["2"]);
}

#[test]
fn the_memory_of_a_handshake_belongs_to_its_session() {
    let mut node = node(1);
    let backend = backend(&mut node, 0, &["/"]);
    let session = node.back(0, "/");
    assert!(node.kept_for(session) >= 200);
    let refuse = Backend {
        data: Some("{}"),
        ..about(BackendKind::Refuse, session)
    };
    node.send(backend, &message(refuse));
    assert_eq!(node.kept_for(session), 0);
}
