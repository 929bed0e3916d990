//! Subscriptions to patterns of events: delivery, rules for each name, limits, lag, and that nothing is left behind.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthOutcome, CloseReason};
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::limits::Limits;
use tidewire_core::message::{Auth, Event, Message};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::permission::{
    Access, AllowAll, Decision, EventRight, Permission, Question, Unknown,
};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::text::Payload;

use crate::driver::{Node, Seen, set};

fn subscribe<'a>(patterns: &[&'a str]) -> Message<'a> {
    Message::Event(Event::SubscribePatterns {
        patterns: patterns.to_vec(),
        correlation: Some("p"),
    })
}

fn unsubscribe<'a>(patterns: &[&'a str]) -> Message<'a> {
    Message::Event(Event::UnsubscribePatterns {
        patterns: patterns.to_vec(),
        correlation: Some("u"),
    })
}

fn subscribe_names<'a>(names: &[&'a str]) -> Message<'a> {
    Message::Event(Event::Subscribe {
        names: names.to_vec(),
        correlation: Some("n"),
        positions: Vec::new(),
    })
}

fn emit(name: &str) -> Message<'_> {
    Message::Event(Event::publication(name, None))
}

fn node(shards: u16) -> Node {
    Node::with(shards, Settings::default(), Arc::new(AllowAll))
}

fn limited(change: impl FnOnce(&mut Limits)) -> Node {
    let mut settings = Settings::default();
    change(&mut settings.limits);
    Node::new(settings)
}

/// The names of the publications among the messages.
fn names(seen: &Seen) -> Vec<String> {
    let publications = seen
        .iter()
        .filter(|message| message.contains("Publication("));
    publications
        .map(|message| {
            let start = message.find("name: \"").expect("it has a name") + 7;
            let rest = &message[start..];
            rest[..rest.find('"').expect("the name ends")].to_owned()
        })
        .collect()
}

#[track_caller]
fn hears(node: &mut Node, session: SessionId, expected: &[&str]) {
    let seen = node.take(session);
    assert_eq!(names(&seen), expected, "{seen:?}");
}

/// The reasons of the refusals among the messages.
fn refusals(seen: &Seen) -> Vec<String> {
    let refusals = seen.iter().filter(|message| message.contains("reason: "));
    refusals
        .map(|message| {
            let rest = &message[message.find("reason: ").expect("it has a reason") + 8..];
            rest[..rest.find(',').expect("the reason ends")].to_owned()
        })
        .collect()
}

fn is_acked(seen: &Seen) -> bool {
    seen.iter().any(|message| message.contains("Ack {"))
}

/// Rules for the events that subscribers may get.
#[derive(Debug)]
struct EventRules {
    rule: fn(&Question<'_>) -> Decision,
    right: EventRight,
}

impl Permission for EventRules {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::EventSubscribe => (self.rule)(question),
            _ => Decision::Allow,
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        (question.access != Access::EventSubscribe).then_some(Decision::Allow)
    }

    fn event_right(&self, _name: &str) -> EventRight {
        self.right
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        let _ = question;
        match prefix.starts_with("closed/") {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }
}

fn rules(right: EventRight, rule: fn(&Question<'_>) -> Decision) -> Arc<EventRules> {
    Arc::new(EventRules { rule, right })
}

fn by(is_allowed: bool) -> Decision {
    match is_allowed {
        true => Decision::Allow,
        false => Decision::Deny,
    }
}

/// Each user gets the events that contain the user's name.
fn own_events(question: &Question<'_>) -> Decision {
    let name = question.name.unwrap_or_default();
    by(name.contains(question.principal.user_id.as_str()))
}

/// An event `a/x` needs the record `open/a/x`.
fn gated(question: &Question<'_>) -> Decision {
    let gate = format!("open/{}", question.name.unwrap_or_default());
    match question.record(&gate) {
        Ok(value) => by(value.is_some_and(|value| value.as_str() == "{\"open\":true}")),
        Err(need) => need,
    }
}

#[test]
fn a_pattern_gets_the_events_whose_names_it_matches() {
    let mut node = node(3);
    let reader = node.login_on(0);
    let (near, far) = (node.login_on(0), node.login_on(2));
    let seen = node.ask(reader, &subscribe(&["a/*", "x/**", "*/b/*"]));
    assert!(is_acked(&seen), "{seen:?}");
    for publisher in [near, far] {
        for name in ["a/1", "a", "a/1/2", "x/y/z", "x", "q/b/r", "b/q", "a/b/c"] {
            node.send(publisher, &emit(name));
        }
        hears(&mut node, reader, &["a/1", "x/y/z", "q/b/r", "a/b/c"]);
    }
    node.ask(reader, &unsubscribe(&["a/*", "*/b/*", "not/*"]));
    for publisher in [near, far] {
        for name in ["a/1", "x/y", "a/b/c"] {
            node.send(publisher, &emit(name));
        }
        hears(&mut node, reader, &["x/y"]);
    }
}

#[test]
fn an_event_that_several_subscriptions_match_comes_once() {
    let mut node = node(2);
    let reader = node.login_on(0);
    let (near, far) = (node.login_on(0), node.login_on(1));
    node.ask(reader, &subscribe_names(&["a/b"]));
    node.ask(reader, &subscribe(&["a/*", "a/**", "*/b", "**"]));
    for publisher in [near, far] {
        node.send(publisher, &emit("a/b"));
        hears(&mut node, reader, &["a/b"]);
    }
    node.ask(
        reader,
        &Message::Event(Event::Unsubscribe {
            names: vec!["a/b"],
            correlation: Some("3"),
        }),
    );
    node.send(far, &emit("a/b"));
    hears(&mut node, reader, &["a/b"]);
}

#[test]
fn a_publisher_does_not_get_its_own_event() {
    let mut node = node(2);
    let publisher = node.login_on(1);
    let other = node.login_on(1);
    for session in [publisher, other] {
        node.ask(session, &subscribe(&["a/*"]));
    }
    node.ask(publisher, &subscribe_names(&["a/b"]));
    node.send(publisher, &emit("a/b"));
    hears(&mut node, publisher, &[]);
    hears(&mut node, other, &["a/b"]);
}

#[test]
fn events_with_history_reach_patterns_once() {
    let rule = HistoryRule {
        pattern: NamePattern::new("a/*"),
        count_max: 5,
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(60),
        keep: Keep::Memory,
    };
    let settings = Settings {
        history: HistoryRules::new(vec![rule]),
        ..Settings::default()
    };
    let mut node = Node::with(3, settings, Arc::new(AllowAll));
    let (reader, both) = (node.login_on(0), node.login_on(1));
    let publishers = [node.login_on(0), node.login_on(2)];
    node.ask(reader, &subscribe(&["a/*"]));
    node.ask(both, &subscribe_names(&["a/b"]));
    node.ask(both, &subscribe(&["a/**"]));
    for publisher in publishers {
        for name in ["a/b", "a/c"] {
            node.send(publisher, &emit(name));
        }
        hears(&mut node, reader, &["a/b", "a/c"]);
        hears(&mut node, both, &["a/b", "a/c"]);
    }
}

#[test]
fn texts_that_are_not_patterns_are_refused() {
    let mut node = limited(|limits| {
        limits.event_pattern_segments_max = 3;
        limits.name_bytes_max = 20;
    });
    let session = node.login();
    let seen = node.ask(session, &subscribe(&["", "a", "**/a", "a*", "a/*/c/d"]));
    assert_eq!(refusals(&seen), ["InvalidPattern"; 5], "{seen:?}");
    assert!(!is_acked(&seen), "{seen:?}");
    // A text that is too long is not repeated.
    let long = format!("{}/*", "x".repeat(30));
    let seen = node.ask(session, &subscribe(&[&long, "a/*/c"]));
    assert_eq!(refusals(&seen), ["InvalidPattern"], "{seen:?}");
    assert!(is_acked(&seen) && !seen[0].contains("xxx"), "{seen:?}");
    let refused = node.counts(0).refused;
    assert_eq!(
        (refused.invalid_patterns, node.counts(0).event_patterns),
        (6, 1)
    );
}

#[test]
fn a_second_subscription_is_refused_and_acknowledged() {
    let mut node = node(1);
    let session = node.login();
    node.ask(session, &subscribe(&["a/*"]));
    let seen = node.ask(session, &subscribe(&["a/*"]));
    assert_eq!(refusals(&seen), ["MultipleSubscriptions"], "{seen:?}");
    assert!(
        seen[0].contains("SubscribePatterns") && is_acked(&seen),
        "{seen:?}"
    );
    // The name of an event may look like a pattern.
    node.ask(session, &subscribe_names(&["a/*"]));
    let other = node.login();
    node.send(other, &emit("a/*"));
    hears(&mut node, session, &["a/*"]);
}

#[test]
fn a_session_has_a_limited_number_of_patterns() {
    let mut node = limited(|limits| limits.event_patterns_max = 2);
    let session = node.login();
    let seen = node.ask(session, &subscribe(&["a/*", "b/*", "c/*"]));
    assert_eq!(refusals(&seen), ["Denied"], "{seen:?}");
    assert!(seen[0].contains("\"c/*\""), "{seen:?}");
    assert_eq!(node.counts(0).refused.event_patterns, 1);
    // One that ends makes room for another.
    node.ask(session, &unsubscribe(&["a/*"]));
    assert!(refusals(&node.ask(session, &subscribe(&["c/*"]))).is_empty());
    let seen = node.ask(session, &subscribe(&["d/*"]));
    assert_eq!(refusals(&seen), ["Denied"], "{seen:?}");
    // Another session has its own limit.
    let other = node.login();
    assert!(refusals(&node.ask(other, &subscribe(&["c/*", "d/*"]))).is_empty());
}

#[test]
fn patterns_without_room_in_the_memory_budget_are_denied() {
    let mut node = limited(|limits| limits.event_patterns_max = 100_000);
    let session = node.login();
    node.set_room(0, 0);
    let texts: Vec<String> = (0..2_000)
        .map(|number| format!("a/{number}/*/b/**"))
        .collect();
    let patterns: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut denied = 0;
    for some in patterns.chunks(100) {
        denied += refusals(&node.ask(session, &subscribe(some))).len();
    }
    assert!((1_900..2_000).contains(&denied), "{denied}");
    let kept = node.kept_for(session);
    assert!((32 << 10..=64 << 10).contains(&kept), "{kept}");
}

#[test]
fn nothing_is_left_after_churn() {
    let mut node = node(2);
    let stays = node.login_on(0);
    node.ask(stays, &subscribe(&["a/*", "shared/**"]));
    let before = (node.counts(0).kept_bytes, node.counts(0).event_patterns);
    for round in 0..50 {
        let session = node.login_on(0);
        let texts: Vec<String> = (0..100)
            .map(|number| format!("{round}/*/{number}/**"))
            .collect();
        let mut patterns: Vec<&str> = texts.iter().map(String::as_str).collect();
        patterns.push("shared/**");
        node.ask(session, &subscribe(&patterns));
        assert_eq!(node.counts(0).event_patterns, 102);
        if round % 2 == 0 {
            node.ask(session, &unsubscribe(&patterns));
            assert_eq!(node.kept_for(session), 0);
        }
        node.close(session);
        node.turn();
    }
    let after = (node.counts(0).kept_bytes, node.counts(0).event_patterns);
    assert_eq!(after, before);
    node.close(stays);
    assert_eq!(node.counts(0).event_patterns, 0);
    assert_eq!(node.counts(0).kept_bytes, 0);
    assert!(node.announced_patterns().is_empty());
}

#[test]
fn many_patterns_in_one_message_take_effect_in_pieces() {
    let mut node = limited(|limits| limits.event_patterns_max = 10_000);
    let session = node.login();
    let texts: Vec<String> = (0..3_000).map(|number| format!("a/{number}/*")).collect();
    let patterns: Vec<&str> = texts.iter().map(String::as_str).collect();
    node.send(session, &subscribe(&patterns));
    while node.turn() {}
    let seen = node.take(session);
    assert_eq!((seen.len(), is_acked(&seen)), (1, true), "{seen:?}");
    assert_eq!(node.counts(0).event_patterns, 3_000);
    node.send(session, &unsubscribe(&patterns));
    while node.turn() {}
    let seen = node.take(session);
    assert_eq!((seen.len(), is_acked(&seen)), (1, true), "{seen:?}");
    assert_eq!(node.counts(0).event_patterns, 0);
}

#[test]
fn rules_decide_for_each_name_and_user() {
    for right in [EventRight::ByPrincipal, EventRight::ByOthers] {
        let mut node = Node::with(2, Settings::default(), rules(right, own_events));
        let publishers = [node.login_as_user(0, "eve"), node.login_as_user(1, "eve")];
        let ann = node.login_as_user(0, "ann");
        let also_ann = node.login_as_user(0, "ann");
        let bob = node.login_as_user(0, "bob");
        for session in [ann, also_ann, bob] {
            let seen = node.ask(session, &subscribe(&["u/*", "u/**"]));
            assert!(is_acked(&seen), "{seen:?}");
        }
        for publisher in publishers {
            for name in ["u/ann", "u/bob", "u/ann/bob", "u/other"] {
                node.send(publisher, &emit(name));
                node.send(publisher, &emit(name));
            }
            hears(
                &mut node,
                ann,
                &["u/ann", "u/ann", "u/ann/bob", "u/ann/bob"],
            );
            hears(
                &mut node,
                also_ann,
                &["u/ann", "u/ann", "u/ann/bob", "u/ann/bob"],
            );
            hears(
                &mut node,
                bob,
                &["u/bob", "u/bob", "u/ann/bob", "u/ann/bob"],
            );
        }
        // A session that joins or leaves later does not change what the others get.
        let late = node.login_as_user(0, "bob");
        node.ask(late, &subscribe(&["u/*"]));
        node.close(ann);
        node.send(publishers[1], &emit("u/bob"));
        hears(&mut node, late, &["u/bob"]);
        hears(&mut node, bob, &["u/bob"]);
        hears(&mut node, also_ann, &[]);
    }
}

#[test]
fn one_of_many_may_get_an_event() {
    let mut node = Node::with(
        1,
        Settings::default(),
        rules(EventRight::ByPrincipal, own_events),
    );
    let publisher = node.login_as_user(0, "eve");
    let users: Vec<String> = (0..20).map(|number| format!("user{number:02}")).collect();
    let sessions: Vec<SessionId> = users
        .iter()
        .map(|user| {
            let session = node.login_as_user(0, user);
            node.ask(session, &subscribe(&["u/*", "**"]));
            session
        })
        .collect();
    for name in ["u/user07", "u/user07", "u/other"] {
        node.send(publisher, &emit(name));
    }
    for (index, session) in sessions.iter().enumerate() {
        let expected: &[&str] = match index {
            7 => &["u/user07", "u/user07"],
            _ => &[],
        };
        hears(&mut node, *session, expected);
    }
}

#[test]
fn a_pattern_that_no_rule_can_allow_is_denied() {
    let mut node = Node::with(
        1,
        Settings::default(),
        rules(EventRight::ByPrincipal, own_events),
    );
    let session = node.login_as_user(0, "ann");
    let seen = node.ask(session, &subscribe(&["closed/*", "open/*"]));
    assert_eq!(refusals(&seen), ["Denied"], "{seen:?}");
    assert!(seen[0].contains("closed/*") && is_acked(&seen), "{seen:?}");
    assert_eq!(node.counts(0).event_patterns, 1);
}

#[test]
fn rules_take_a_name_from_a_pattern_and_give_it_back() {
    let mut node = node(2);
    let reader = node.login_as_user(0, "ann");
    let publisher = node.login_on(1);
    node.ask(reader, &subscribe_names(&["u/bob"]));
    node.ask(reader, &subscribe(&["u/*"]));
    node.set_rules(rules(EventRight::ByPrincipal, own_events));
    let seen = node.take(reader);
    assert_eq!(
        refusals(&seen),
        ["Denied"],
        "only the name is lost: {seen:?}"
    );
    node.send(publisher, &emit("u/bob"));
    node.send(publisher, &emit("u/ann"));
    hears(&mut node, reader, &["u/ann"]);
    node.set_rules(Arc::new(AllowAll));
    node.send(publisher, &emit("u/bob"));
    hears(&mut node, reader, &["u/bob"]);
    assert_eq!(node.counts(0).event_patterns, 1);
}

#[test]
fn new_rules_end_a_pattern_that_they_can_not_allow() {
    let mut node = node(2);
    let reader = node.login_on(0);
    let publisher = node.login_on(1);
    node.ask(reader, &subscribe(&["closed/*", "open/*"]));
    node.set_rules(rules(EventRight::Constant(true), |_| Decision::Allow));
    let seen = node.take(reader);
    assert_eq!(refusals(&seen), ["Denied"], "{seen:?}");
    assert!(seen[0].contains("closed/*"), "{seen:?}");
    assert!(seen[0].contains("SubscribePatterns"), "{seen:?}");
    node.send(publisher, &emit("closed/a"));
    node.send(publisher, &emit("open/a"));
    hears(&mut node, reader, &["open/a"]);
    assert_eq!(node.counts(0).rights_lost, 1);
    // The session has room for another pattern again.
    node.ask(reader, &unsubscribe(&["open/*"]));
    assert_eq!(
        (node.kept_for(reader), node.counts(0).event_patterns),
        (0, 0)
    );
}

#[test]
fn a_renewed_login_changes_the_events_of_a_pattern() {
    fn by_data(question: &Question<'_>) -> Decision {
        let data = question.principal.server_data().map(Payload::as_str);
        by(data.is_some_and(|data| question.name.unwrap_or_default().contains(data)))
    }
    let mut node = Node::with(
        1,
        Settings::default(),
        rules(EventRight::ByPrincipal, by_data),
    );
    let login = |node: &mut Node, data: &str| {
        let data = Some(Payload::from_checked(data));
        let principal = Principal::new("ann".into()).with_data(data, None);
        node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
    };
    login(&mut node, "1");
    let (reader, publisher) = (node.login(), node.login());
    node.ask(reader, &subscribe(&["a/*"]));
    for name in ["a/1", "a/2"] {
        node.send(publisher, &emit(name));
    }
    hears(&mut node, reader, &["a/1"]);
    login(&mut node, "2");
    node.ask(reader, &Message::Auth(Auth::Request { data: Some("{}") }));
    for name in ["a/1", "a/2"] {
        node.send(publisher, &emit(name));
    }
    hears(&mut node, reader, &["a/2"]);
}

fn gated_node(shards: u16, change: impl FnOnce(&mut Limits)) -> Node {
    let mut settings = Settings::default();
    change(&mut settings.limits);
    Node::with(shards, settings, rules(EventRight::ByOthers, gated))
}

#[test]
fn a_rule_that_reads_records_decides_for_each_name_and_keeps_the_order() {
    let mut node = gated_node(2, |_| {});
    let (reader, publisher) = (node.login_on(0), node.login_on(1));
    let writer = node.login_on(1);
    node.ask(writer, &set("open/a/1", "{\"open\":true}"));
    node.ask(writer, &set("open/a/2", "{\"open\":false}"));
    node.ask(writer, &set("open/exact", "{\"open\":true}"));
    node.ask(reader, &subscribe_names(&["exact"]));
    node.ask(reader, &subscribe(&["a/*"]));
    // The values are in the stores only, which do not answer yet.
    for shard in 0..2 {
        node.shrink_cache(shard, usize::MAX);
    }
    node.store_hangs = true;
    for name in ["a/1", "exact", "a/2", "a/3", "a/1"] {
        node.send(publisher, &emit(name));
    }
    hears(&mut node, reader, &[]);
    assert_eq!(node.counts(0).event_waiting, 1);
    assert!(node.kept_for(reader) > 5 * 96, "{}", node.kept_for(reader));
    for _ in 0..5 {
        node.answer_store();
    }
    hears(&mut node, reader, &["a/1", "exact", "a/1"]);
    assert_eq!(node.counts(0).event_waiting, 0);
    // The decisions are known for a second.
    node.take_loads();
    node.send(publisher, &emit("a/1"));
    node.send(publisher, &emit("a/2"));
    hears(&mut node, reader, &["a/1"]);
    // Afterwards the new values count.
    node.ask(writer, &set("open/a/2", "{\"open\":true}"));
    node.pass(Duration::from_millis(1_001));
    node.send(publisher, &emit("a/2"));
    hears(&mut node, reader, &["a/2"]);
}

#[test]
fn a_subscriber_of_the_name_gets_an_event_that_its_pattern_may_not() {
    let mut node = gated_node(2, |_| {});
    let (reader, publisher) = (node.login_on(0), node.login_on(1));
    let other = node.login_on(0);
    node.ask(reader, &set("open/a/1", "{\"open\":true}"));
    node.ask(reader, &subscribe_names(&["a/1"]));
    for session in [reader, other] {
        node.ask(session, &subscribe(&["a/*", "**"]));
    }
    // A subscription to a name is authorized when it begins, and each event of a pattern when it is published.
    node.ask(reader, &set("open/a/1", "{\"open\":false}"));
    node.take(other);
    node.send(publisher, &emit("a/1"));
    hears(&mut node, reader, &["a/1"]);
    hears(&mut node, other, &[]);
}

#[test]
fn a_record_that_can_not_be_read_refuses_the_event() {
    let mut node = gated_node(1, |_| {});
    let (reader, publisher) = (node.login(), node.login());
    node.ask(reader, &subscribe(&["a/*"]));
    node.loads_fail = true;
    node.send(publisher, &emit("a/1"));
    while node.turn() {}
    hears(&mut node, reader, &[]);
    assert_eq!(node.counts(0).event_waiting, 0);
}

#[test]
fn new_rules_decide_about_events_that_wait() {
    let mut node = gated_node(1, |_| {});
    let (reader, publisher) = (node.login_as_user(0, "ann"), node.login());
    node.ask(reader, &subscribe(&["a/*"]));
    node.store_hangs = true;
    for name in ["a/ann", "a/bob"] {
        node.send(publisher, &emit(name));
    }
    hears(&mut node, reader, &[]);
    node.set_rules(rules(EventRight::ByPrincipal, own_events));
    hears(&mut node, reader, &["a/ann"]);
    assert_eq!(node.counts(0).event_waiting, 0);
    node.answer_store();
    hears(&mut node, reader, &[]);
}

#[test]
fn a_pattern_that_ends_drops_the_events_that_wait_for_it() {
    let mut node = gated_node(1, |_| {});
    let (reader, publisher) = (node.login(), node.login());
    node.ask(reader, &set("open/a/1", "{\"open\":true}"));
    node.shrink_cache(0, usize::MAX);
    node.ask(reader, &subscribe(&["a/*"]));
    node.store_hangs = true;
    node.send(publisher, &emit("a/1"));
    node.ask(reader, &unsubscribe(&["a/*"]));
    node.answer_store();
    hears(&mut node, reader, &[]);
    assert_eq!(
        (node.counts(0).event_waiting, node.kept_for(reader)),
        (0, 0)
    );
    // The same if the session ends.
    node.ask(reader, &subscribe(&["a/*"]));
    node.store_hangs = true;
    node.pass(Duration::from_secs(2));
    node.shrink_cache(0, usize::MAX);
    node.send(publisher, &emit("a/1"));
    node.close(reader);
    assert_eq!(node.counts(0).event_waiting, 0);
    node.answer_store();
    assert_eq!(node.counts(0).kept_bytes, 0);
}

#[test]
fn too_many_events_that_wait_close_the_connection() {
    let mut node = gated_node(1, |limits| limits.event_waiting_max = 3);
    let (reader, publisher) = (node.login(), node.login());
    node.ask(reader, &subscribe(&["a/*"]));
    node.store_hangs = true;
    for _ in 0..3 {
        node.send(publisher, &emit("a/1"));
    }
    assert_eq!(node.close_reason(reader), None);
    for _ in 0..3 {
        node.send(publisher, &emit("a/1"));
    }
    assert_eq!(node.close_reason(reader), Some(CloseReason::NotCaughtUp));
    assert_eq!(node.counts(0).refused.event_waiting, 1);
    node.answer_store();
    hears(&mut node, reader, &[]);
    node.close(reader);
    assert_eq!(
        (node.counts(0).event_waiting, node.counts(0).kept_bytes),
        (0, 0)
    );
}

#[test]
fn a_lagging_session_gets_the_number_of_missed_events_of_each_pattern() {
    let mut node = Node::with(
        1,
        Settings::default(),
        rules(EventRight::ByPrincipal, |question| {
            by(!question.name.unwrap_or_default().contains("secret"))
        }),
    );
    let (reader, publisher) = (node.login_coalescing(0), node.login());
    node.ask(reader, &subscribe(&["a/*", "b/*"]));
    node.send(publisher, &emit("a/1"));
    node.lag(reader);
    for name in ["a/2", "a/3", "a/secret", "c/1"] {
        node.send(publisher, &emit(name));
    }
    node.send(reader, &emit("a/own"));
    hears(&mut node, reader, &["a/1"]);
    node.drained(reader);
    let seen = node.take(reader);
    let gaps: Vec<&String> = seen.iter().filter(|seen| seen.contains("Gap")).collect();
    assert_eq!(gaps.len(), 1, "{seen:?}");
    assert!(
        gaps[0].contains("PatternGap")
            && gaps[0].contains("\"a/*\"")
            && gaps[0].contains("missed: 2"),
        "{seen:?}"
    );
    node.send(publisher, &emit("a/4"));
    hears(&mut node, reader, &["a/4"]);
}
