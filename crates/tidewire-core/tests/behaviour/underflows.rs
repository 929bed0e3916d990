//! Ends that the owner had not counted, which only a bug can send: the count stays, and the owner reports the bug.

use tidewire_core::entry::Entry;
use tidewire_core::message::{Message, Presence, Record, RecordBulk};
use tidewire_core::settings::Settings;
use tidewire_core::text::Name;

use crate::driver::{Node, set};

#[test]
fn the_end_of_a_session_that_was_not_counted_leaves_all_users_online() {
    let mut node = Node::new(Settings::default());
    let watcher = node.login();
    let all = Message::Presence(Presence::SubscribeAll);
    node.ask(watcher, &all);
    let user = Name::from("never online");
    let shard = watcher.address;
    node.forge(0, Entry::Offline { user, shard });
    assert_eq!(node.counts(0).underflows, 1);
    let seen = node.take(watcher);
    assert!(seen.is_empty(), "{seen:?}");
    let online = node.counts(0).users_online;
    node.login();
    assert_eq!(node.counts(0).users_online, online);
    assert_eq!(node.counts(0).underflows, 1);
}

#[test]
fn the_end_of_a_subscription_that_was_not_counted_ends_no_other_one() {
    let mut node = Node::new(Settings::default());
    let (reader, writer) = (node.login(), node.login());
    let subscribe = Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: vec!["a"],
        correlation: Some("1"),
    };
    node.ask(reader, &Message::Record(subscribe));
    // Shard 1 has no subscription. The owner ignores ends of earlier epochs.
    let mut session = reader;
    session.address.shard = 1;
    for epoch in 0..10 {
        let release = Entry::RecordRelease {
            name: Name::from("a"),
            epoch,
            session,
            serial: 0,
        };
        node.forge(0, release);
    }
    assert_eq!(node.counts(0).underflows, 1);
    node.send(writer, &set("a", "{}"));
    let seen = node.take(reader);
    assert!(seen.iter().any(|seen| seen.contains("Update")), "{seen:?}");
}
