//! How the node offers names to listeners: each session once, by its own rights, in bounded steps.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::limits::Limits;
use tidewire_core::message::{Auth, Event, Listen, Message, Record, RecordBulk};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, Question};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::text::{Name, Payload};

use crate::driver::{Node, Seen, set};

const TIMEOUT: Duration = Duration::from_millis(501);
const REMATCH: Duration = Duration::from_secs(31);

/// Allows a user without server data to listen to names that begin with the user id. With a gate it allows other names too, while
/// the record `gate/USER` is open.
#[derive(Debug, Default)]
struct Own {
    is_gated: bool,
}

impl Permission for Own {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if !matches!(question.access, Access::RecordListen | Access::EventListen) {
            return Decision::Allow;
        }
        let user = &question.principal.user_id;
        let name = question.name.unwrap_or_default();
        let is_retired = question.principal.server_data().is_some();
        if name.starts_with(user.as_str()) && !is_retired {
            return Decision::Allow;
        }
        if !self.is_gated {
            return Decision::Deny;
        }
        match question.record(&format!("gate/{user}")) {
            Ok(Some(value)) if value.as_str().contains("true") => Decision::Allow,
            Ok(_) => Decision::Deny,
            Err(needed) => needed,
        }
    }

    fn decide_pattern(&self, _question: &Question<'_>, _prefix: &str) -> Decision {
        Decision::Allow
    }
}

fn accepted(user: &str) -> AuthOutcome {
    AuthOutcome::Accepted(Arc::new(Principal::new(Name::from(user))))
}

fn login_as(node: &mut Node, shard: u16, user: &str) -> SessionId {
    node.login_outcome = Some(accepted(user));
    let session = node.login_on(shard);
    node.login_outcome = None;
    session
}

fn listen(pattern: &str) -> Message<'_> {
    Message::Record(Record::Listen(Listen::Listen { pattern }))
}

fn listen_to_events(pattern: &str) -> Message<'_> {
    Message::Event(Event::Listen(Listen::Listen { pattern }))
}

/// Listens as soon as the session may. A shard compiles few patterns for one session in a turn.
fn listen_in_time(node: &mut Node, session: SessionId, pattern: &str) -> Seen {
    while !node.offer(session, &listen(pattern)) {
        node.pass(Duration::from_nanos(1));
        node.begin_turns();
    }
    node.take(session)
}

fn subscribe(node: &mut Node, session: SessionId, names: &[&str]) {
    let names = names.to_vec();
    let read = Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names,
        correlation: Some("0"),
    };
    node.send(session, &Message::Record(read));
    // This number of names costs more than one turn.
    while node.turn() {}
}

/// The names that the node offered to a session, each with the pattern.
fn found(seen: &Seen) -> Vec<(String, String)> {
    let found = seen.iter().filter(|message| message.contains("Found {"));
    found
        .map(|message| {
            let mut quoted = message.split('"');
            let pattern = quoted.nth(1).expect("a pattern").to_owned();
            (pattern, quoted.nth(1).expect("a name").to_owned())
        })
        .collect()
}

fn answer(node: &mut Node, session: SessionId, pattern: &str, name: &str, accepts: bool) {
    let answer = if accepts {
        Listen::Accept {
            pattern,
            subscription: name,
        }
    } else {
        Listen::Reject {
            pattern,
            subscription: name,
        }
    };
    node.send(session, &Message::Record(Record::Listen(answer)));
}

/// Accepts every name that the node offers to a session. Returns the number of names.
fn accept_all(node: &mut Node, session: SessionId) -> usize {
    let mut count = 0;
    loop {
        let found = found(&node.take(session));
        if found.is_empty() {
            return count;
        }
        count += found.len();
        for (pattern, name) in found {
            answer(node, session, &pattern, &name, true);
        }
    }
}

#[test]
fn a_name_is_offered_only_to_sessions_that_may_listen_for_it() {
    let mut node = Node::with(2, Settings::default(), Arc::new(Own::default()));
    let ann = login_as(&mut node, 0, "ann");
    let bob = login_as(&mut node, 1, "bob");
    let reader = login_as(&mut node, 1, "reader");
    for session in [ann, bob] {
        assert!(node.ask(session, &listen("ann/|.*"))[0].contains("ListenAck"));
    }
    subscribe(&mut node, reader, &["ann/1", "bob/1", "eve/1"]);
    assert_eq!(found(&node.take(ann)), [("ann/|.*".into(), "ann/1".into())]);
    assert_eq!(found(&node.take(bob)), [("ann/|.*".into(), "bob/1".into())]);
    // A session can't provide a name that the node did not offer to it.
    node.take(reader);
    answer(&mut node, ann, "ann/|.*", "eve/1", true);
    answer(&mut node, bob, "ann/|.*", "ann/1", true);
    assert!(node.take(reader).is_empty());
    // Neither time nor new subscribers make the node offer a forbidden name.
    for _ in 0..3 {
        node.pass(REMATCH);
        for (session, own) in [(ann, "ann/"), (bob, "bob/")] {
            let seen = node.take(session);
            assert!(seen.iter().all(|seen| seen.contains(own)), "{seen:?}");
        }
    }
}

#[test]
fn a_rule_of_listening_may_read_records() {
    let mut node = Node::with(2, Settings::default(), Arc::new(Own { is_gated: true }));
    let ann = login_as(&mut node, 0, "ann");
    let reader = login_as(&mut node, 1, "reader");
    node.ask(ann, &listen(".*"));
    subscribe(&mut node, reader, &["other"]);
    assert!(found(&node.take(ann)).is_empty());
    node.send(reader, &set("gate/ann", r#"{"open":true}"#));
    node.pass(REMATCH);
    assert_eq!(found(&node.take(ann)), [(".*".into(), "other".into())]);
}

#[test]
fn new_rules_and_a_new_login_take_names_away() {
    let mut node = Node::with(2, Settings::default(), Arc::new(AllowAll));
    let ann = login_as(&mut node, 0, "ann");
    let reader = login_as(&mut node, 1, "reader");
    node.ask(ann, &listen(".*"));
    subscribe(&mut node, reader, &["ann/1", "bob/1"]);
    assert_eq!(accept_all(&mut node, ann), 2);
    node.take(reader);
    node.set_rules(Arc::new(Own::default()));
    let received = node.take(ann);
    assert!(
        received.len() == 1 && received[0].contains("Removed"),
        "{received:?}"
    );
    assert!(received[0].contains("bob/1"), "{received:?}");
    let received = node.take(reader);
    assert!(received[0].contains("provided: false"), "{received:?}");
    let retired = Principal::new(Name::from("ann"));
    let retired = retired.with_data(Some(Payload::from_checked("\"retired\"")), None);
    node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(retired)));
    node.ask(ann, &Message::Auth(Auth::Request { data: Some("{}") }));
    node.finish_work();
    let received = node.take(ann);
    assert!(
        received
            .iter()
            .any(|received| received.contains("Removed") && received.contains("ann/1")),
        "{received:?}"
    );
    assert!(node.take(reader)[0].contains("provided: false"));
}

#[test]
fn a_session_is_asked_once_for_a_name_however_many_of_its_patterns_match() {
    let mut node = Node::new(Settings::default());
    let listener = node.login();
    let reader = node.login();
    for pattern in ["a", "a/", "a/1", "/1", ".*"] {
        listen_in_time(&mut node, listener, pattern);
    }
    subscribe(&mut node, reader, &["a/1"]);
    let asked = found(&node.take(listener));
    assert_eq!(asked.len(), 1, "{asked:?}");
    answer(&mut node, listener, &asked[0].0, "a/1", false);
    node.pass(TIMEOUT);
    assert!(found(&node.take(listener)).is_empty());
    node.pass(REMATCH);
    assert_eq!(found(&node.take(listener)).len(), 1);
}

#[test]
fn names_are_distributed_evenly_although_other_listeners_registered_before_or_may_not_provide_them()
{
    const NAMES: usize = 400;
    let mut node = Node::with(2, Settings::default(), Arc::new(Own::default()));
    // These never provide the names: their patterns do not match, or their rules refuse the names.
    for number in 0..60 {
        let other = login_as(&mut node, number % 2, "other");
        let pattern = ["^other/", "^(other|own)/"][usize::from(number / 30)];
        listen_in_time(&mut node, other, pattern);
    }
    let owners: Vec<SessionId> = (0..4).map(|_| login_as(&mut node, 0, "own")).collect();
    for owner in &owners {
        listen_in_time(&mut node, *owner, "^own/");
        listen_in_time(&mut node, *owner, "own/");
    }
    let reader = login_as(&mut node, 1, "reader");
    let names: Vec<String> = (0..NAMES).map(|number| format!("own/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let steps = |node: &Node| -> u64 { (0..2).map(|shard| node.counts(shard).listen_steps).sum() };
    let before = steps(&node);
    subscribe(&mut node, reader, &names);
    node.finish_work();
    let accepted = owners.iter().map(|owner| accept_all(&mut node, *owner));
    let counts: Vec<usize> = accepted.collect();
    assert_eq!(counts.iter().sum::<usize>(), NAMES);
    let is_even = |count: &usize| count.abs_diff(NAMES / 4) < 40;
    assert!(counts.iter().all(is_even), "{counts:?}");
    // One search visits each listener at most once, although its order is random.
    let per_name = (steps(&node) - before) / NAMES as u64;
    assert!(per_name <= 2 * 64, "{per_name} steps for each name");
}

#[test]
fn a_thousand_patterns_that_never_answer_starve_no_honest_provider() {
    let mut node = Node::with(2, Settings::default(), Arc::new(AllowAll));
    let silent = node.login_on(0);
    for number in 0..1_000 {
        let pattern = format!("^(stock/|{number})");
        listen_in_time(&mut node, silent, &pattern);
    }
    let honest = node.login_on(1);
    node.ask(honest, &listen("^stock/"));
    let reader = node.login_on(1);
    let names: Vec<String> = (0..20).map(|number| format!("stock/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&mut node, reader, &names);
    node.finish_work();
    let mut provided = accept_all(&mut node, honest);
    node.pass(TIMEOUT);
    node.finish_work();
    provided += accept_all(&mut node, honest);
    assert_eq!(provided, 20, "within one time-out");
    // A session that left an offer unanswered now gets offers last.
    node.take(silent);
    let names: Vec<String> = (20..40).map(|number| format!("stock/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&mut node, reader, &names);
    node.finish_work();
    assert_eq!(accept_all(&mut node, honest), 20, "at once");
    assert!(found(&node.take(silent)).is_empty());
}

#[test]
fn a_session_has_a_limited_number_of_questions_to_answer_and_gets_all_in_the_end() {
    let settings = Settings {
        limits: Limits {
            listen_questions_max: 3,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let mut node = Node::new(settings);
    let listener = node.login();
    let reader = node.login();
    let names: Vec<String> = (0..50).map(|number| format!("n/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&mut node, reader, &names);
    node.send(listener, &listen("^n/"));
    node.finish_work();
    let mut asked = found(&node.take(listener));
    let mut count = 0;
    while !asked.is_empty() {
        assert!(asked.len() <= 3, "{asked:?}");
        count += asked.len();
        for (pattern, name) in asked {
            answer(&mut node, listener, &pattern, &name, count % 2 == 0);
        }
        node.finish_work();
        asked = found(&node.take(listener));
    }
    assert!(count >= 50, "{count}");
}

#[test]
fn searches_go_on_in_slices_and_reach_every_name() {
    const NAMES: usize = 20_000;
    let mut node = Node::new(Settings {
        limits: Limits {
            listen_questions_max: NAMES,
            ..Limits::default()
        },
        ..Settings::default()
    });
    let listener = node.login();
    let reader = node.login();
    let names: Vec<String> = (0..NAMES).map(|number| format!("n/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(&mut node, reader, &names);
    let before = node.counts(0).listen_steps;
    node.send(listener, &listen("^n/"));
    let in_one_turn = node.counts(0).listen_steps - before;
    assert!(in_one_turn <= 2_000, "{in_one_turn}");
    // Each slice is bounded too, and the shard can serve other sessions between slices.
    let mut most = 0;
    while node.has_work() {
        let before = node.counts(0).listen_steps;
        node.go_on();
        most = most.max(node.counts(0).listen_steps - before);
    }
    assert!(most <= 2_000, "{most}");
    assert_eq!(found(&node.take(listener)).len(), NAMES);
    // This pattern matches no name. When it ends, the shard does not match the names again.
    let other = node.login();
    node.send(other, &listen("^none/"));
    node.finish_work();
    let before = node.counts(0).listen_steps;
    node.send(
        other,
        &Message::Record(Record::Listen(Listen::Unlisten { pattern: "^none/" })),
    );
    let steps = node.counts(0).listen_steps - before;
    assert!(steps <= 10, "the end of a pattern without names: {steps}");
}

#[test]
fn the_events_of_a_census_come_in_parts_and_are_counted_once() {
    const NAMES: usize = 5_000;
    let mut node = Node::with(2, Settings::default(), Arc::new(AllowAll));
    let (reader, listener) = (node.login_on(0), node.login_on(1));
    let names: Vec<String> = (0..NAMES).map(|number| format!("e/{number}")).collect();
    let all = Event::Subscribe {
        names: names.iter().map(String::as_str).collect(),
        correlation: Some("1"),
        positions: Vec::new(),
    };
    node.send(reader, &Message::Event(all));
    node.send(listener, &listen_to_events("^e/"));
    // Subscriptions to names begin and end while the census is in progress.
    for name in names.iter().rev().take(10) {
        let names = vec![name.as_str()];
        let correlation = Some("2");
        node.send(
            reader,
            &Message::Event(Event::Unsubscribe { names, correlation }),
        );
    }
    let again = Event::Subscribe {
        names: vec![names[NAMES - 1].as_str()],
        correlation: Some("3"),
        positions: Vec::new(),
    };
    node.send(reader, &Message::Event(again));
    node.finish_work();
    let wanted: usize = (0..2).map(|shard| node.counts(shard).wanted_names).sum();
    assert_eq!(wanted, NAMES - 9);
    node.close(reader);
    while node.turn() {}
    node.finish_work();
    let wanted: usize = (0..2).map(|shard| node.counts(shard).wanted_names).sum();
    assert_eq!(wanted, 0);
    node.close(listener);
    node.finish_work();
}
