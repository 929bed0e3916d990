//! Bulk messages whose rules read other records: the shard authorizes each name once, and continues where it stopped.

use std::sync::Arc;

use tidewire_core::message::{Event, Message, Presence, Rpc};
use tidewire_core::permission::Access;
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::driver::Node;
use crate::permission::{Rule, TestPermission, permission_of};

/// More names than may wait for records at once.
const COUNT: usize = 600;

const RULES: [(Access, Rule); 3] = [
    (Access::EventSubscribe, Rule::Gate),
    (Access::RpcProvide, Rule::Gate),
    (Access::Presence, Rule::Gate),
];

fn names() -> Vec<String> {
    (0..COUNT).map(|number| format!("n/{number}")).collect()
}

/// A node with a gate for each name; every third gate is shut.
fn node(permission: &Arc<TestPermission>) -> Node {
    let mut node = Node::with(3, Settings::default(), permission.clone());
    for (index, name) in names().iter().enumerate() {
        let data = format!("{{\"open\":{}}}", index % 3 != 0);
        let record = StoredRecord {
            incarnation: Incarnation(1),
            version: Version(1),
            data: Payload::from(data),
            write_keys: None,
        };
        node.store_has(&format!("gate/{name}"), record);
    }
    node
}

/// Messages about all names, which the session's shard authorizes.
fn messages<'a>(names: &[&'a str]) -> [Message<'a>; 4] {
    let names = names.to_vec();
    let correlation = Some("1");
    [
        Message::Event(Event::Subscribe {
            names: names.clone(),
            correlation,
            positions: Vec::new(),
        }),
        Message::Rpc(Rpc::Provide {
            names: names.clone(),
            correlation,
        }),
        Message::Presence(Presence::Subscribe {
            names: names.clone(),
            correlation,
        }),
        Message::Presence(Presence::Query { names, correlation }),
    ]
}

#[test]
fn each_name_is_authorized_once_for_each_record_that_it_reads() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for message in messages(&names) {
        let permission = permission_of(&RULES);
        let mut node = node(&permission);
        let session = node.login();
        permission.take_asked();
        let seen = node.ask(session, &message);
        assert_eq!(permission.take_asked(), 2 * COUNT);
        // The denials in the order of the names, then the answer.
        assert_eq!(seen.len(), COUNT / 3 + 1);
        for (index, seen) in seen[..COUNT / 3].iter().enumerate() {
            let name = format!("\"n/{}\"", 3 * index);
            assert!(seen.contains("Denied") && seen.contains(&name), "{seen}");
        }
    }
}

#[test]
fn a_record_that_many_names_read_is_asked_for_once_at_a_time() {
    let rules = [(Access::EventSubscribe, Rule::Record("gate/n/1"))];
    let permission = permission_of(&rules);
    let mut node = node(&permission);
    let session = node.login();
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    permission.take_asked();
    node.take_hops();
    let seen = node.ask(session, &messages(&names)[0]);
    assert_eq!(seen.len(), 1, "the acknowledgement");
    assert_eq!(permission.take_asked(), 2 * COUNT);
    assert!(node.take_hops() <= 2 * COUNT.div_ceil(256));
}

#[test]
fn names_that_old_rules_have_allowed_are_authorized_again_by_new_ones() {
    let mut node = node(&permission_of(&[(Access::EventSubscribe, Rule::Gate)]));
    let session = node.login();
    node.store_hangs = true;
    let message = Message::Event(Event::Subscribe {
        names: vec!["free", "n/1"],
        correlation: Some("1"),
        positions: Vec::new(),
    });
    assert!(!node.offer(session, &message));
    node.begin_change(RightsChange::Rules(permission_of(&[(
        Access::EventSubscribe,
        Rule::Deny,
    )])));
    node.finish_changes();
    node.answer_store();
    assert!(node.is_resumed(session));
    assert!(node.offer(session, &message));
    let seen = node.take(session);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|seen| seen.contains("Denied")), "{seen:?}");
}

#[test]
fn a_record_that_can_not_be_read_fails_the_names_that_need_it() {
    let mut node = node(&permission_of(&[(Access::EventSubscribe, Rule::Gate)]));
    let session = node.login();
    // Two gates are in memory.
    let before = Message::Event(Event::Subscribe {
        names: vec!["n/1", "n/2"],
        correlation: Some("1"),
        positions: Vec::new(),
    });
    node.ask(session, &before);
    node.loads_fail = true;
    let message = Message::Event(Event::Subscribe {
        names: vec!["n/2", "n/4", "n/1"],
        correlation: Some("2"),
        positions: Vec::new(),
    });
    let seen = node.ask(session, &message);
    let failed: Vec<_> = seen
        .iter()
        .filter(|seen| seen.contains("RuleFailed"))
        .collect();
    assert!(
        matches!(failed[..], [one] if one.contains("\"n/4\"")),
        "{seen:?}"
    );
}
