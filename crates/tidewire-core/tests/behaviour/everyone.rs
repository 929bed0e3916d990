//! A query or watch for all users hides each user whose own rule denies the session.

use std::sync::Arc;

use tidewire_core::message::{Message, Presence};
use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::settings::Settings;

use crate::driver::{Node, Seen};

/// Only the user `board` may see `boss`, the rule of `listed` reads the record `list`, and the rule of `broken` fails.
#[derive(Debug)]
struct Rules;

impl Permission for Rules {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let is_board = question.principal.user_id.as_str() == "board";
        match question.name {
            Some("boss") if !is_board => Decision::Deny,
            Some("listed") => match question.record("list") {
                Ok(_) => Decision::Allow,
                Err(need) => need,
            },
            Some("broken") => Decision::Failed,
            _ => Decision::Allow,
        }
    }
}

fn node() -> Node {
    Node::with(2, Settings::default(), Arc::new(Rules))
}

/// The users in the answer to a query for all users.
fn users(seen: &Seen) -> &str {
    let [answer] = &seen[..] else {
        panic!("{seen:?}");
    };
    let (_, names) = answer.split_once("names: ").expect("an answer");
    names.trim_end_matches([' ', '}', ')'])
}

#[test]
fn the_answer_omits_users_that_the_session_may_not_query_by_name() {
    let mut node = node();
    let ann = node.login_as_user(0, "ann");
    let board = node.login_as_user(1, "board");
    for user in ["bob", "boss", "listed", "broken"] {
        node.login_as_user(1, user);
    }
    let all = Message::Presence(Presence::QueryAll);
    assert_eq!(users(&node.ask(ann, &all)), "[\"board\", \"bob\"]");
    let seen = node.ask(board, &all);
    assert_eq!(users(&seen), "[\"ann\", \"bob\", \"boss\"]");
    // In a query by name, the rule may wait for its record.
    let by_name = Message::Presence(Presence::Query {
        names: vec!["listed"],
        correlation: Some("1"),
    });
    let seen = node.ask(ann, &by_name);
    assert!(seen[0].contains("\\\"listed\\\":true"), "{seen:?}");
}

#[test]
fn a_session_that_watches_everyone_hears_only_of_users_that_it_may_watch_by_name() {
    let mut node = node();
    let watchers: Vec<_> = [(0, "ann"), (0, "board"), (1, "cid"), (1, "board")]
        .map(|(shard, user)| (user, node.login_as_user(shard, user)))
        .into();
    for (_, watcher) in &watchers {
        node.ask(*watcher, &Message::Presence(Presence::SubscribeAll));
    }
    for (user, is_seen_by_all) in [("boss", false), ("bob", true), ("broken", false)] {
        let session = node.login_as_user(1, user);
        node.close(session);
        for (watching, watcher) in &watchers {
            let seen = node.take(*watcher);
            let is_seen = is_seen_by_all || (user == "boss" && *watching == "board");
            // The user came online and went offline.
            assert_eq!(
                seen.len(),
                if is_seen { 2 } else { 0 },
                "{watching}: {seen:?}"
            );
            assert!(seen.iter().all(|seen| seen.contains(user)), "{seen:?}");
        }
    }
    // By name, sessions can watch the hidden user as before.
    let board = watchers[1].1;
    let by_name = Message::Presence(Presence::Subscribe {
        names: vec!["boss"],
        correlation: Some("1"),
    });
    node.ask(board, &by_name);
    node.login_as_user(0, "boss");
    assert_eq!(node.take(board).len(), 2, "as one of all, and by name");
}
