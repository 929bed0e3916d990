//! The cost of a session's end on a node with very many calls and providers of other sessions.

use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::limits::Limits;
use tidewire_core::message::{Call, Message, Rpc};
use tidewire_core::permission::AllowAll;
use tidewire_core::settings::Settings;

use crate::driver::Node;

const MILLION: usize = 1_000_000;

/// The maximum steps of one slice, and of the direct work for one message.
const SLICE_STEPS: u64 = 700;

fn node(shards: u16) -> Node {
    let limits = Limits {
        subscriptions_max: MILLION,
        calls_max: MILLION,
        bulk_names_max: MILLION,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::default()
    };
    Node::with(shards, settings, Arc::new(AllowAll))
}

fn provide(node: &mut Node, session: SessionId, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    let provide = Rpc::Provide {
        names: names.iter().map(String::as_str).collect(),
        correlation: Some("1"),
    };
    node.send(session, &Message::Rpc(provide));
    while node.turn() {}
    node.take(session);
}

fn call(node: &mut Node, session: SessionId, name: &str, number: usize) {
    let correlation = number.to_string();
    let call = Call {
        name,
        correlation: &correlation,
    };
    let request = Rpc::Request {
        call,
        data: None,
        requestor_name: None,
        requestor_data: None,
    };
    node.send(session, &Message::Rpc(request));
}

fn steps(node: &Node) -> u64 {
    node.counts(0).rpc_steps
}

#[test]
fn the_end_of_a_session_touches_its_own_names_and_calls_only() {
    let mut node = node(1);
    let (provider, other) = (node.login(), node.login());
    provide(
        &mut node,
        provider,
        (0..MILLION).map(|number| format!("p/{number}")),
    );
    assert_eq!(node.counts(0).provided_rpcs, MILLION);
    provide(
        &mut node,
        other,
        ["own".to_owned(), "p/7".to_owned()].into_iter(),
    );
    let before = steps(&node);
    node.close(other);
    assert!(steps(&node) - before <= 4, "{}", steps(&node) - before);
    assert_eq!(node.counts(0).provided_rpcs, MILLION);
    // The end of a session with very many names takes many slices, and each slice is short.
    let before = steps(&node);
    node.close(provider);
    assert!(steps(&node) - before <= SLICE_STEPS);
    let caller = node.login();
    call(&mut node, caller, "p/999999", 1);
    let seen = node.take(caller);
    assert!(seen[0].contains("NoProvider"), "{seen:?}");
    while node.has_work() {
        let before = steps(&node);
        node.go_on();
        assert!(steps(&node) - before <= SLICE_STEPS);
    }
    assert_eq!(node.counts(0).provided_rpcs, 0);
}

#[test]
fn the_end_of_a_session_takes_few_steps_among_very_many_calls() {
    const CALLS: usize = 100_000;
    let mut node = node(1);
    let (provider, spare) = (node.login(), node.login());
    let (caller, other) = (node.login(), node.login());
    provide(&mut node, provider, std::iter::once("a".to_owned()));
    for number in 0..CALLS {
        call(&mut node, caller, "a", number);
        if number % 1_000 == 0 {
            node.take(provider);
        }
    }
    call(&mut node, other, "a", 1);
    assert_eq!(node.counts(0).calls, CALLS + 1);
    provide(&mut node, spare, std::iter::once("b".to_owned()));
    for session in [spare, other] {
        let before = steps(&node);
        node.close(session);
        assert!(steps(&node) - before <= 4);
    }
    assert_eq!(node.counts(0).calls, CALLS);
    // After the provider has gone, each call fails, in slices.
    node.take(caller);
    let before = steps(&node);
    node.close(provider);
    assert!(steps(&node) - before <= SLICE_STEPS);
    assert!(node.counts(0).calls > CALLS / 2);
    while node.has_work() {
        let before = steps(&node);
        node.go_on();
        assert!(steps(&node) - before <= SLICE_STEPS);
    }
    assert_eq!(node.counts(0).calls, 0);
    let failed = node.take(caller);
    assert_eq!(failed.len(), CALLS);
    assert!(failed.iter().all(|seen| seen.contains("NoProvider")));
}

#[test]
fn a_call_of_a_session_that_ends_goes_to_no_other_provider() {
    let mut node = node(2);
    let (first, second) = (node.login_on(0), node.login_on(1));
    let caller = node.login_on(1);
    for session in [first, second] {
        provide(
            &mut node,
            session,
            (0..500).map(|number| format!("n/{number}")),
        );
    }
    for number in 0..500 {
        call(&mut node, caller, &format!("n/{number}"), number);
    }
    let asked = node.take(first).len() + node.take(second).len();
    assert_eq!(asked, 500);
    // The caller and one provider end before the work for either end is done.
    node.close(caller);
    node.close(first);
    node.finish_work();
    let rerouted = node.take(second);
    assert!(rerouted.is_empty(), "{rerouted:?}");
    let running: usize = (0..2).map(|shard| node.counts(shard).calls).sum();
    assert_eq!(running, 0);
}

/// Ends 1 % as many sessions as calls run, each with a call and an rpc of its own. Returns the most steps and posts that the end of one
/// of them takes on all shards together.
fn most_for_one_end(running: usize) -> (u64, usize) {
    const SHARDS: u16 = 4;
    const CALLERS: usize = 100;
    let mut node = node(SHARDS);
    let count = |node: &Node| {
        let counts = (0..usize::from(SHARDS)).map(|shard| node.counts(shard));
        counts.fold((0, 0), |(calls, steps), counts| {
            (calls + counts.calls, steps + counts.rpc_steps)
        })
    };
    let provider = node.login_on(0);
    let names: Vec<String> = (0..CALLERS).map(|number| format!("rpc/{number}")).collect();
    provide(&mut node, provider, names.iter().cloned());
    let on = |number: usize| number as u16 % SHARDS;
    let callers: Vec<SessionId> = (0..CALLERS).map(|it| node.login_on(on(it))).collect();
    for number in 0..running {
        call(
            &mut node,
            callers[number % CALLERS],
            &names[number / 7 % CALLERS],
            number,
        );
        if number % 1_000 == 0 {
            node.take(provider);
        }
    }
    let ending: Vec<SessionId> = (0..running / 100).map(|it| node.login_on(on(it))).collect();
    for (number, session) in ending.iter().enumerate() {
        provide(
            &mut node,
            *session,
            std::iter::once(format!("own/{number}")),
        );
        call(&mut node, *session, &names[number % CALLERS], 0);
    }
    assert_eq!(count(&node).0, running + ending.len());
    let (mut steps, mut hops) = (0, 0);
    for session in &ending {
        let before = count(&node).1;
        node.take_hops();
        node.close(*session);
        node.finish_work();
        steps = steps.max(count(&node).1 - before);
        hops = hops.max(node.take_hops());
    }
    assert_eq!(count(&node).0, running, "the calls of the others");
    (steps, hops)
}

#[test]
fn the_end_of_a_session_costs_the_same_however_many_calls_of_others_run() {
    let few = most_for_one_end(1_000);
    assert_eq!(most_for_one_end(30_000), few);
    assert!(few.0 <= 8 && few.1 <= 12, "{few:?}");
}

#[test]
#[ignore = "takes 10 seconds; npm --prefix e2e run million runs it"]
fn a_million_calls_do_not_make_the_ends_of_ten_thousand_sessions_more_expensive() {
    assert_eq!(most_for_one_end(MILLION), most_for_one_end(1_000));
}
