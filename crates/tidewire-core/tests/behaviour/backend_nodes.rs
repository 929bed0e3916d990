//! Backends that serve the sessions of other nodes: all messages, the choice of the backend, and the loss of either node.

use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::CloseReason;
use tidewire_core::message::{Backend, BackendKind, Event, Message};
use tidewire_core::settings::Settings;

use super::asks::{correlation, outcome};
use super::backends::{
    SECOND, about, about_sessions, backend, backend_with_sessions, broadcast, check_refused,
    confirm, data, event, join, kinds, login, message, served, settings,
};
use super::driver::Node;

/// The version of the protocol between nodes with which backends serve sessions of other nodes.
const LEVEL: u16 = 6;
/// The shards of a node.
const SHARDS: u16 = 2;
const MILLISECOND: Duration = Duration::from_millis(1);

fn cluster(nodes: u16) -> Node {
    cluster_with(nodes, settings())
}

fn cluster_with(nodes: u16, settings: Settings) -> Node {
    let mut cluster = Node::cluster(nodes, SHARDS, settings, LEVEL);
    cluster.link();
    cluster
}

/// The kinds of the messages about sessions that a backend has got.
fn got(node: &mut Node, backend: SessionId) -> Vec<String> {
    kinds(&about_sessions(node.take(backend)))
}

fn command(node: &mut Node, backend: SessionId, session: SessionId, sent: Backend<'_>) {
    let sent = Backend {
        session: Some(session),
        ..sent
    };
    node.send(backend, &message(sent));
}

fn with_data(kind: BackendKind, data: &str) -> Backend<'_> {
    Backend {
        data: Some(data),
        ..Backend::new(kind)
    }
}

#[test]
fn a_backend_serves_the_sessions_of_all_nodes() {
    let mut node = cluster(3);
    let backend = backend(&mut node, 0, &["/", "/chat"]);
    let sessions: Vec<SessionId> = (0..3 * SHARDS)
        .map(|shard| served(&mut node, backend, shard, "/chat"))
        .collect();
    for session in sessions.iter().copied() {
        node.send(session, &event(r#"["a",1]"#));
        assert_eq!(
            data(&about_sessions(node.take(backend))),
            [r#"["a",1]"#],
            "{session:?}"
        );
        for kind in [BackendKind::Answer, BackendKind::Send] {
            let sent = Backend {
                correlation: Some("7"),
                ..with_data(kind, "[1]")
            };
            command(&mut node, backend, session, sent);
        }
        assert_eq!(kinds(&node.take(session)), ["Answer", "Send"]);
        // The broadcast is behind the room.
        join(&mut node, backend, session, &["a"]);
        node.send(backend, &message(broadcast("/chat", &["a"], "[\"b\"]")));
        assert_eq!(data(&node.take(session)), [r#"["b"]"#]);
        node.send(
            backend,
            &message(Backend {
                names: vec!["a"],
                ..about(BackendKind::Leave, session)
            }),
        );
    }
    node.close(sessions[5]);
    let seen = about_sessions(node.take(backend));
    assert_eq!(kinds(&seen), ["Closed"]);
    assert!(seen[0].contains("lost"), "{seen:?}");
    node.send(backend, &message(about(BackendKind::End, sessions[3])));
    assert!(node.close_reason(sessions[3]).is_some());
}

#[test]
fn a_local_broadcast_reaches_the_sessions_of_the_backend_alone() {
    let mut node = cluster(2);
    let one = backend(&mut node, 0, &["/"]);
    let served_by_one = [0, SHARDS].map(|shard| served(&mut node, one, shard, "/"));
    let two = backend(&mut node, SHARDS, &["/"]);
    let served_by_two = served(&mut node, two, SHARDS, "/");
    // Members without a backend get it on the node of the sender.
    let natives = [0, SHARDS].map(|shard| node.login_on(shard));
    for native in natives {
        let subscribe = Message::Event(Event::Subscribe {
            names: vec!["a"],
            correlation: None,
            positions: Vec::new(),
        });
        node.send(native, &subscribe);
        node.take(native);
    }
    for session in served_by_one {
        join(&mut node, one, session, &["a"]);
    }
    join(&mut node, two, served_by_two, &["a"]);
    let sent = Backend {
        is_local: true,
        ..broadcast("/", &["a"], r#"["x"]"#)
    };
    node.send(one, &message(sent));
    for session in served_by_one {
        assert_eq!(data(&node.take(session)), [r#"["x"]"#]);
    }
    assert!(node.take(served_by_two).is_empty());
    assert_eq!(natives.map(|native| node.take(native).len()), [1, 0]);
    let asked = Backend {
        is_local: true,
        ..request(BackendKind::Ask)
    };
    node.send(one, &message(asked));
    for session in served_by_one {
        answer(&mut node, session, BackendKind::Answered);
    }
    let seen = outcome(&mut node, one);
    assert_eq!(kinds(&seen), ["Response", "Response", "Asked"]);
}

#[test]
fn a_backend_of_the_own_node_comes_first_unless_it_has_far_more_sessions() {
    let mut node = cluster(2);
    let near = backend(&mut node, SHARDS, &["/"]);
    let far = backend(&mut node, 0, &["/"]);
    let mut counts = [0, 0];
    for index in 0..100 {
        node.back(SHARDS + index % SHARDS, "/");
        for (count, backend) in counts.iter_mut().zip([near, far]) {
            *count += got(&mut node, backend).len();
        }
        if index < 20 {
            assert_eq!(counts, [usize::from(index) + 1, 0]);
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts[0] > counts[1], "{counts:?}");
    assert!(counts[1] >= 20, "{counts:?}");
    // Without one of the own node, the others share.
    let mut node = cluster(3);
    let backends = [0, SHARDS].map(|shard| backend(&mut node, shard, &["/"]));
    for index in 0..100 {
        node.back(2 * SHARDS + index % SHARDS, "/");
    }
    let counts = backends.map(|backend| got(&mut node, backend).len());
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts[0].abs_diff(counts[1]) <= 16, "{counts:?}");
}

#[test]
fn a_new_session_goes_where_all_nodes_have_the_fewest() {
    let mut node = cluster(3);
    let busy = backend(&mut node, 0, &["/"]);
    for shard in 0..80 {
        node.back(shard % SHARDS, "/");
    }
    assert_eq!(got(&mut node, busy).len(), 80);
    let idle = backend(&mut node, SHARDS, &["/"]);
    for _ in 0..20 {
        node.back(2 * SHARDS, "/");
    }
    assert_eq!(
        [busy, idle].map(|backend| got(&mut node, backend).len()),
        [0, 20]
    );
}

#[test]
fn a_node_that_is_linked_later_learns_which_backends_there_are() {
    let mut node = Node::cluster(2, SHARDS, settings(), LEVEL);
    let backend = backend(&mut node, 0, &["/"]);
    let session = node.back(SHARDS, "/");
    assert!(got(&mut node, backend).is_empty());
    node.link();
    assert_eq!(got(&mut node, backend), ["Opened"]);
    node.close(session);
    assert_eq!(got(&mut node, backend), ["Closed"]);
}

#[test]
fn nodes_of_an_earlier_version_get_no_backends_before_the_view_allows_them() {
    let mut node = Node::cluster(2, SHARDS, settings(), LEVEL - 1);
    node.link();
    let backend = backend(&mut node, 0, &["/"]);
    node.back(SHARDS, "/");
    assert!(got(&mut node, backend).is_empty());
    node.adopt_of_level(2, LEVEL);
    assert_eq!(got(&mut node, backend), ["Opened"]);
}

#[test]
fn a_session_survives_its_backend_on_another_node() {
    let mut node = cluster(3);
    let first = backend(&mut node, 0, &["/chat"]);
    let session = served(&mut node, first, 2 * SHARDS, "/chat");
    join(&mut node, first, session, &["a"]);
    node.send(session, &event(r#"["sent"]"#));
    node.close(first);
    assert!(!node.offer(session, &event(r#"["waits"]"#)));
    let (second, seen) = backend_with_sessions(&mut node, SHARDS, &["/chat"]);
    let seen = about_sessions(seen);
    assert_eq!(kinds(&seen), ["Opened"]);
    assert!(
        seen[0].contains(r#"correlation: Some("id")"#) && seen[0].contains(r#"["a"]"#),
        "{seen:?}"
    );
    assert!(node.is_resumed(session));
    node.send(session, &event(r#"["waits"]"#));
    let seen = about_sessions(node.take(second));
    assert_eq!(data(&seen), [r#"["waits"]"#]);
}

#[test]
fn a_session_whose_node_is_lost_ends_at_its_backend() {
    let mut settings = settings();
    settings.limits.backend_messages_max = 2;
    let mut node = cluster_with(2, settings);
    let backend = backend(&mut node, 0, &["/"]);
    let near = served(&mut node, backend, 1, "/");
    let far = [SHARDS, SHARDS + 1].map(|shard| served(&mut node, backend, shard, "/"));
    node.send(near, &event(r#"["a"]"#));
    node.send(far[0], &event(r#"["a"]"#));
    node.take(backend);
    node.lose_node(1);
    let seen = about_sessions(node.take(backend));
    assert_eq!(kinds(&seen), ["Closed", "Closed"]);
    for (text, session) in seen.iter().zip(far) {
        assert!(text.contains(r#"name: Some("lost")"#), "{seen:?}");
        assert!(text.contains(&format!("{session:?}")), "{seen:?}");
    }
    // A command about them has no effect, and the credit of the others is right.
    for session in far {
        assert!(kinds(&node.ask(backend, &message(about(BackendKind::End, session)))).is_empty());
    }
    assert!(!node.offer(near, &event(r#"["b"]"#)));
    assert!(confirm(&mut node, backend, 7).is_empty());
    node.send(near, &event(r#"["b"]"#));
    assert_eq!(data(&about_sessions(node.take(backend))), [r#"["b"]"#]);
    check_refused(
        &confirm(&mut node, backend, 2),
        "InvalidCommand",
        "more messages",
    );
}

/// An ask to all sessions, or a message to all backends, with a timeout of a second.
fn request(kind: BackendKind) -> Backend<'static> {
    Backend {
        correlation: Some("x"),
        timeout: 1_000,
        ..broadcast("/", &[], r#"["really"]"#)
    }
    .with_kind(kind)
}

trait WithKind {
    fn with_kind(self, kind: BackendKind) -> Self;
}

impl WithKind for Backend<'_> {
    fn with_kind(self, kind: BackendKind) -> Self {
        Self { kind, ..self }
    }
}

/// Answers the one request that a session or a backend has got.
fn answer(node: &mut Node, by: SessionId, kind: BackendKind) {
    let seen = about_sessions(node.take(by));
    let number = correlation(&seen[0]);
    let answer = Backend {
        data: Some("[1]"),
        correlation: Some(&number),
        ..Backend::new(kind)
    };
    node.send(by, &Message::Backend(Box::new(answer)));
}

#[test]
fn an_ask_ends_with_the_answers_of_the_nodes_that_are_left() {
    for is_held in [false, true] {
        let mut node = cluster(3);
        let one = backend(&mut node, 0, &["/"]);
        let sessions = [1, SHARDS, 2 * SHARDS].map(|shard| served(&mut node, one, shard, "/"));
        let others = [SHARDS + 1, 2 * SHARDS].map(|shard| backend(&mut node, shard, &["/"]));
        let mut check = |kind, answering: [SessionId; 2], by, lost: u16| {
            if is_held {
                node.hold_posts();
            }
            node.send(one, &message(request(kind)));
            node.lose_node(lost);
            node.release_posts();
            for session in answering.into_iter().filter(|it| it.address.node != lost) {
                assert!(outcome(&mut node, one).is_empty());
                answer(&mut node, session, by);
                let seen = outcome(&mut node, one);
                let expected = match session == answering[1] || answering[1].address.node == lost {
                    true => vec!["Response", "AskFailed"],
                    false => vec!["Response"],
                };
                assert_eq!(kinds(&seen), expected, "{kind:?}");
                if let Some(failed) = seen.get(1) {
                    assert!(failed.contains("a node was lost"), "{seen:?}");
                }
            }
        };
        // The second node is lost with a session, then the third one with a backend.
        let _ = others;
        check(
            BackendKind::Ask,
            [sessions[0], sessions[2]],
            BackendKind::Answered,
            1,
        );
        // The request of a message to backends that are all lost ends at once.
        node.send(one, &message(request(BackendKind::Tell)));
        assert!(outcome(&mut node, one).is_empty());
        node.lose_node(2);
        check_refused(&outcome(&mut node, one), "AskFailed", "a node was lost");
        node.pass(SECOND);
        assert!(outcome(&mut node, one).is_empty());
    }
}

#[test]
fn an_ask_of_a_lost_backend_is_forgotten() {
    let mut node = cluster(2);
    let far = backend(&mut node, SHARDS, &["/"]);
    let session = served(&mut node, far, 0, "/");
    node.send(far, &message(request(BackendKind::Ask)));
    let seen = node.take(session);
    let number = correlation(&seen[0]);
    node.lose_node(1);
    let answered = Backend {
        data: Some("[1]"),
        correlation: Some(&number),
        ..Backend::new(BackendKind::Answered)
    };
    node.send(session, &message(answered));
}

#[test]
fn a_hand_over_does_not_wait_for_a_lost_node() {
    let mut node = cluster(2);
    let leaving = backend(&mut node, 0, &["/"]);
    node.hold_posts();
    node.send(leaving, &message(Backend::new(BackendKind::HandOver)));
    assert!(got(&mut node, leaving).is_empty());
    node.lose_node(1);
    node.release_posts();
    assert_eq!(got(&mut node, leaving), ["HandedOver"]);
}

/// A backend that has lost its node, at another node. It received this number of messages from the shard of each session.
fn back(
    node: &mut Node,
    shard: u16,
    earlier: SessionId,
    received: &[(SessionId, u32)],
) -> (SessionId, Vec<String>) {
    let backend = login(node, shard);
    for (session, count) in received {
        let received = Backend {
            count: *count,
            ..about(BackendKind::Received, *session)
        };
        assert!(node.ask(backend, &message(received)).is_empty());
    }
    let serve = Backend {
        names: vec!["/"],
        correlation: Some("1"),
        ..about(BackendKind::Serve, earlier)
    };
    let seen = node.ask(backend, &message(serve));
    assert!(
        seen[0].contains("Served") && seen[0].contains(&format!("{backend:?}")),
        "{seen:?}"
    );
    (backend, about_sessions(seen))
}

#[test]
fn a_backend_keeps_its_sessions_and_their_messages_through_the_loss_of_its_node() {
    for is_back_first in [false, true] {
        let mut node = cluster(3);
        let earlier = backend(&mut node, 0, &["/"]);
        let session = served(&mut node, earlier, SHARDS, "/");
        join(&mut node, earlier, session, &["a"]);
        node.send(session, &event(r#"["received"]"#));
        assert_eq!(got(&mut node, earlier), ["Event"]);
        let other = backend(&mut node, 2 * SHARDS, &["/"]);
        // The time of its first wait ends while it waits again.
        node.pass(5 * SECOND);
        node.hold_posts();
        node.send(session, &event(r#"["on its way"]"#));
        node.cut(0);
        node.release_posts();
        let received = [(session, 2)];
        let (backend, seen) = match is_back_first {
            true => {
                let (backend, seen) = back(&mut node, SHARDS + 1, earlier, &received);
                assert!(seen.is_empty(), "{seen:?}");
                node.lose_node(0);
                (backend, about_sessions(node.take(backend)))
            }
            false => {
                node.lose_node(0);
                assert!(!node.offer(session, &event(r#"["waits"]"#)));
                node.pass(9 * SECOND);
                back(&mut node, SHARDS + 1, earlier, &received)
            }
        };
        assert_eq!(kinds(&seen), ["Opened", "Event"]);
        assert!(
            seen[0].contains(r#"correlation: Some("id")"#) && seen[0].contains(r#"["a"]"#),
            "{seen:?}"
        );
        assert_eq!(data(&seen[1..]), [r#"["on its way"]"#]);
        node.send(session, &event(r#"["next"]"#));
        assert_eq!(data(&about_sessions(node.take(backend))), [r#"["next"]"#]);
        assert!(got(&mut node, other).is_empty());
        node.pass(10 * SECOND);
        assert_eq!(node.close_reason(session), None);
    }
}

#[test]
fn a_backend_that_comes_back_gets_all_of_its_sessions_however_slow_it_is() {
    let mut settings = settings();
    settings.limits.backend_messages_max = 2;
    let mut node = cluster_with(3, settings);
    let earlier = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..5)
        .map(|_| {
            let session = served(&mut node, earlier, SHARDS, "/");
            confirm(&mut node, earlier, 1);
            session
        })
        .collect();
    let other = backend(&mut node, 2 * SHARDS, &["/"]);
    node.lose_node(0);
    let (kept, seen) = back(&mut node, 2 * SHARDS, earlier, &[(sessions[0], 5)]);
    assert_eq!(kinds(&seen), ["Opened", "Opened"]);
    let mut count = seen.len();
    while count < 5 {
        node.pass(SECOND);
        let seen = about_sessions(confirm(&mut node, kept, 1));
        assert_eq!(kinds(&seen), ["Opened"]);
        count += 1;
    }
    assert!(got(&mut node, other).is_empty());
}

#[test]
fn sessions_pass_to_another_backend_if_theirs_does_not_come_back_with_its_node() {
    for again in [false, true] {
        let mut node = cluster(3);
        let lost = backend(&mut node, 0, &["/"]);
        if again {
            let again = Backend {
                names: vec!["/"],
                ..Backend::new(BackendKind::DeliverAgain)
            };
            node.send(lost, &message(again));
        }
        let session = served(&mut node, lost, SHARDS, "/");
        node.send(session, &event(r#"["sent"]"#));
        let other = backend(&mut node, 2 * SHARDS, &["/"]);
        node.lose_node(0);
        node.pass(10 * SECOND - MILLISECOND);
        assert!(got(&mut node, other).is_empty());
        node.pass(MILLISECOND);
        let counts = node.counts(usize::from(SHARDS)).backends;
        match again {
            true => assert_eq!(got(&mut node, other), ["Opened", "Event"]),
            false => assert_eq!(got(&mut node, other), ["Opened"]),
        }
        assert_eq!(
            (counts.lost, counts.redelivered),
            (u64::from(!again), u64::from(again))
        );
        // Then its backend comes too late.
        let (_, seen) = back(&mut node, SHARDS, lost, &[(session, 2)]);
        assert!(seen.is_empty(), "{seen:?}");
        assert_eq!(node.close_reason(session), None);
    }
}

#[test]
fn another_backend_takes_the_sessions_some_at_a_time() {
    let mut settings = settings();
    settings.limits.backend_messages_max = 2;
    let mut node = cluster_with(2, settings);
    let lost = backend(&mut node, 0, &["/"]);
    let sessions: Vec<SessionId> = (0..4)
        .map(|_| {
            let session = served(&mut node, lost, SHARDS, "/");
            confirm(&mut node, lost, 1);
            session
        })
        .collect();
    let other = backend(&mut node, SHARDS, &["/"]);
    node.lose_node(0);
    node.pass(10 * SECOND);
    assert_eq!(got(&mut node, other), ["Opened", "Opened"]);
    let seen = about_sessions(confirm(&mut node, other, 2));
    assert_eq!(kinds(&seen), ["Opened", "Opened"]);
    for session in sessions {
        assert_eq!(node.close_reason(session), None);
    }
}

#[test]
fn sessions_end_if_their_backend_does_not_come_back_and_there_is_no_other_one() {
    let mut node = cluster(2);
    let lost = backend(&mut node, 0, &["/"]);
    let sessions = [SHARDS, SHARDS + 1].map(|shard| served(&mut node, lost, shard, "/"));
    node.lose_node(0);
    node.close(sessions[1]);
    node.pass(10 * SECOND - MILLISECOND);
    assert_eq!(node.close_reason(sessions[0]), None);
    node.pass(MILLISECOND);
    assert_eq!(node.close_reason(sessions[0]), Some(CloseReason::NoBackend));
    assert_eq!(node.close_reason(sessions[1]), None);
}

#[test]
fn a_leaving_backend_does_not_come_back() {
    let mut node = cluster(3);
    let leaving = backend(&mut node, 0, &["/"]);
    served(&mut node, leaving, SHARDS, "/");
    let other = backend(&mut node, 2 * SHARDS, &["/"]);
    node.send(leaving, &message(Backend::new(BackendKind::HandOver)));
    node.lose_node(0);
    assert_eq!(got(&mut node, other), ["Opened"]);
}
