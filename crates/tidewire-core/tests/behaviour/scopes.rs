//! Presence in scopes: the list of members and its changes, limits, rights, lagging sessions, and random runs in which each subscriber
//! knows the members whenever the node rests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::message::{Auth, Message, Scope};
use tidewire_core::permission::{Access, AllowAll, Permission};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;

use crate::driver::{Node, set};
use crate::permission::{Rule, permission_of};
use crate::random::Random;

fn join<'a>(name: &'a str, state: &'a str) -> Message<'a> {
    Message::Scope(Scope::Join { name, state })
}

fn update<'a>(name: &'a str, state: &'a str) -> Message<'a> {
    Message::Scope(Scope::Update { name, state })
}

fn leave(name: &str) -> Message<'_> {
    Message::Scope(Scope::Leave { name })
}

fn subscribe(name: &str) -> Message<'_> {
    Message::Scope(Scope::Subscribe { name })
}

fn unsubscribe(name: &str) -> Message<'_> {
    Message::Scope(Scope::Unsubscribe { name })
}

/// The next text in quotes, and the rest.
fn quoted(text: &str) -> (String, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let found = values.next().expect("a text").expect("a text");
    (found, &text[values.byte_offset()..])
}

/// The members of a scope by their ids: the user and the state.
type Members = BTreeMap<String, (Option<String>, Value)>;

/// The scopes as a client knows them. Checks each change.
#[derive(Debug, Default)]
struct Client {
    scopes: BTreeMap<String, Members>,
    /// The ids of the members that it is.
    ids: BTreeMap<String, String>,
    errors: Vec<String>,
    lists: usize,
    changes: usize,
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn member(value: &Value) -> (Option<String>, Value) {
    let user = value.get("user").map(text);
    (user, value["state"].clone())
}

impl Client {
    fn take(&mut self, seen: Vec<String>) {
        for message in seen {
            let parts = |prefix: &str| {
                let (scope, rest) = quoted(message.strip_prefix(prefix)?);
                let (data, _) = quoted(rest.strip_prefix(", data: ").expect("data"));
                let data: Value = serde_json::from_str(&data).expect("JSON");
                Some((scope, data))
            };
            if let Some((scope, data)) = parts("Scope(Joined { name: ") {
                self.ids.insert(scope, text(&data));
            } else if let Some((scope, data)) = parts("Scope(Snapshot { name: ") {
                self.lists += 1;
                let members = data["members"].as_array().expect("members").iter();
                let members = members.map(|known| (text(&known["id"]), member(known)));
                self.scopes.insert(scope, members.collect());
            } else if let Some((scope, data)) = parts("Scope(Changed { name: ") {
                self.changes += 1;
                let members = self.scopes.get_mut(&scope).expect("the list came first");
                apply(members, &data);
            } else if message.starts_with("Scope(Error") {
                self.errors.push(message);
            }
        }
    }

    /// The states in a scope, without the ids.
    #[track_caller]
    fn states(&self, scope: &str) -> Vec<Value> {
        let members = self.scopes[scope].values();
        let mut states: Vec<Value> = members.map(|(_, state)| state.clone()).collect();
        states.sort_by_key(Value::to_string);
        states
    }
}

fn apply(members: &mut Members, changes: &Value) {
    let changes = changes.as_array().expect("changes");
    assert!(!changes.is_empty());
    for change in changes {
        let id = text(&change["id"]);
        match change["type"].as_str() {
            Some("joined") => {
                members.insert(id, member(change));
            }
            Some("updated") => {
                let known = members.get_mut(&id).expect("an updated member is known");
                known.1 = change["state"].clone();
            }
            Some("left") => {
                members.remove(&id).expect("a member that leaves is known");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn node(shards: u16, permission: Arc<dyn Permission>) -> Node {
    Node::with(shards, Settings::default(), permission)
}

fn look(node: &mut Node, session: SessionId, client: &mut Client) {
    client.take(node.take(session));
}

fn errors(node: &mut Node, session: SessionId, message: &Message<'_>) -> Vec<String> {
    let mut seen = node.ask(session, message);
    seen.retain(|message| message.starts_with("Scope(Error"));
    seen
}

/// Whether the node keeps nothing for scopes.
#[track_caller]
fn check_empty(node: &Node, shards: usize) {
    for shard in 0..shards {
        let counts = node.counts(shard);
        assert_eq!((counts.scopes, counts.underflows), (0, 0), "shard {shard}");
    }
}

#[test]
fn subscribers_get_the_members_and_their_changes() {
    for scope in ["board/1", "board/2", "board/3", "board/4"] {
        let mut node = node(2, Arc::new(AllowAll));
        let reader = node.login_as_user(0, "reader");
        let (anna, ben) = (node.login_as_user(0, "anna"), node.login_as_user(1, "ben"));
        let mut client = Client::default();
        node.send(anna, &join(scope, r#"{"x":1}"#));
        node.send(reader, &subscribe(scope));
        look(&mut node, reader, &mut client);
        let of = |user: &str, state| (Some(user.to_owned()), state);
        let members: Vec<_> = client.scopes[scope].values().cloned().collect();
        assert_eq!(members, [of("anna", json!({"x": 1}))]);
        node.send(ben, &join(scope, "null"));
        let mut own = Client::default();
        look(&mut node, ben, &mut own);
        look(&mut node, reader, &mut client);
        let id = &own.ids[scope];
        assert_eq!(client.scopes[scope][id], of("ben", json!(null)));
        node.send(anna, &update(scope, r#"{"x":2}"#));
        node.send(anna, &update(scope, r#"{"x":2}"#));
        look(&mut node, reader, &mut client);
        assert_eq!(client.states(scope), [json!(null), json!({"x": 2})]);
        assert_eq!(
            (client.lists, client.changes),
            (1, 2),
            "an equal state is no change"
        );
        node.send(ben, &leave(scope));
        look(&mut node, reader, &mut client);
        node.close(anna);
        look(&mut node, reader, &mut client);
        assert_eq!((client.scopes[scope].len(), client.changes), (0, 4));
        node.send(ben, &join(scope, "1"));
        node.send(reader, &unsubscribe(scope));
        node.send(ben, &update(scope, "2"));
        node.take(reader);
        node.send(ben, &update(scope, "3"));
        assert_eq!(node.take(reader), Vec::<String>::new());
        assert_eq!(client.errors, Vec::<String>::new());
        node.close(reader);
        node.close(ben);
        check_empty(&node, 2);
    }
}

#[test]
fn a_member_gets_its_own_changes() {
    let mut node = node(1, Arc::new(AllowAll));
    let (session, mut client) = (node.login(), Client::default());
    node.send(session, &subscribe("s"));
    node.send(session, &join("s", "1"));
    node.send(session, &update("s", "2"));
    look(&mut node, session, &mut client);
    // The user `open` has a name. A session without one is a member without a user.
    let known = &client.scopes["s"][&client.ids["s"]];
    assert_eq!(*known, (Some("open".to_owned()), json!(2)));
    let nameless = node.login_as_user(0, "OPEN");
    node.send(nameless, &join("s", "3"));
    let mut other = Client::default();
    look(&mut node, nameless, &mut other);
    look(&mut node, session, &mut client);
    assert_eq!(client.scopes["s"][&other.ids["s"]], (None, json!(3)));
}

#[test]
fn a_turn_sends_the_newest_state_only() {
    // With several scopes, some are owned by the shard that holds posts back.
    let mut node = node(2, Arc::new(AllowAll));
    let (writer, reader) = (node.login_on(1), node.login_on(0));
    let scopes = ["a", "b", "c", "d", "e", "f"];
    let mut client = Client::default();
    for scope in scopes {
        node.send(writer, &join(scope, "0"));
        node.send(reader, &subscribe(scope));
    }
    look(&mut node, reader, &mut client);
    node.hold_posts();
    for state in ["1", "2", "3"] {
        for scope in scopes {
            node.send(writer, &update(scope, state));
        }
    }
    node.release_posts();
    look(&mut node, reader, &mut client);
    for scope in scopes {
        assert_eq!(client.states(scope), [json!(3)]);
    }
    let (changes, all) = (client.changes, scopes.len() * 3);
    assert!(changes < all, "{changes} changes of {all} updates");
}

#[test]
fn updates_of_a_scope_with_many_subscribers_wait_for_each_other() {
    let mut node = node(2, Arc::new(AllowAll));
    let (one, other) = (node.login_on(0), node.login_on(1));
    for session in [one, other] {
        node.send(session, &join("s", "0"));
    }
    let readers: Vec<SessionId> = (0..20).map(|index| node.login_on(index % 2)).collect();
    for reader in &readers {
        node.send(*reader, &subscribe("s"));
    }
    let mut client = Client::default();
    let mut changes = |node: &mut Node| {
        let before = client.changes;
        look(node, readers[0], &mut client);
        (client.changes - before, client.states("s"))
    };
    changes(&mut node);
    node.pass(Duration::from_secs(1));
    node.send(one, &update("s", "1"));
    let first = changes(&mut node);
    assert_eq!(first.0, 1, "the first one leaves at once");
    for state in ["2", "3"] {
        node.send(one, &update("s", state));
        node.send(other, &update("s", state));
    }
    assert_eq!(changes(&mut node), (0, first.1));
    node.pass(Duration::from_millis(4));
    assert_eq!(changes(&mut node), (1, vec![json!(3), json!(3)]));
    // A member that joins or leaves does not wait, and the updates before it leave with it.
    node.send(one, &update("s", "4"));
    node.send(other, &leave("s"));
    assert_eq!(changes(&mut node), (1, vec![json!(4)]));
}

#[test]
fn each_limit_has_its_refusal() {
    let mut settings = Settings::default();
    settings.limits.presence_state_bytes_max = 5;
    settings.limits.presence_scopes_max = 2;
    settings.limits.presence_members_max = 2;
    let mut node = Node::with(2, settings, Arc::new(AllowAll));
    let (one, two, three) = (node.login_on(0), node.login_on(1), node.login_on(0));
    let error = |reason: &str, action: &str, name: &str| {
        let error =
            format!("Scope(Error {{ reason: {reason}, action: {action}, name: {name:?} }})");
        vec![error]
    };
    let long = "n".repeat(2_000);
    assert_eq!(
        errors(&mut node, one, &join("", "1")),
        error("Invalid", "Join", "")
    );
    assert_eq!(
        errors(&mut node, one, &subscribe(&long)),
        error("Invalid", "Subscribe", &long)
    );
    for invalid in ["", "{", "1 2"] {
        let expected = error("Invalid", "Join", "a");
        assert_eq!(errors(&mut node, one, &join("a", invalid)), expected);
    }
    let expected = error("TooLarge", "Join", "a");
    assert_eq!(errors(&mut node, one, &join("a", "123456")), expected);
    let expected = error("NotMember", "Update", "a");
    assert_eq!(errors(&mut node, one, &update("a", "1")), expected);
    check_empty(&node, 2);

    assert_eq!(
        errors(&mut node, one, &join("a", "12345")),
        [] as [String; 0]
    );
    let expected = error("TooLarge", "Update", "a");
    assert_eq!(errors(&mut node, one, &update("a", "123456")), expected);
    assert_eq!(errors(&mut node, two, &join("a", "2")), [] as [String; 0]);
    let expected = error("Full", "Join", "a");
    assert_eq!(errors(&mut node, three, &join("a", "3")), expected);
    let expected = error("NotMember", "Update", "a");
    assert_eq!(errors(&mut node, three, &update("a", "4")), expected);
    // A member may join again with another state.
    assert_eq!(errors(&mut node, two, &join("a", "5")), [] as [String; 0]);
    let mut client = Client::default();
    client.take(node.ask(three, &subscribe("a")));
    assert_eq!(client.states("a"), [json!(12345), json!(5)]);
    node.close(two);
    assert_eq!(errors(&mut node, three, &join("a", "3")), [] as [String; 0]);

    assert_eq!(errors(&mut node, one, &subscribe("a")), [] as [String; 0]);
    assert_eq!(errors(&mut node, one, &subscribe("b")), [] as [String; 0]);
    let expected = error("TooMany", "Join", "c");
    assert_eq!(errors(&mut node, one, &join("c", "1")), expected);
    node.send(one, &unsubscribe("b"));
    assert_eq!(errors(&mut node, one, &join("c", "1")), [] as [String; 0]);
    let refused: u64 = (0..2).map(|shard| node.counts(shard).refused.scopes).sum();
    assert_eq!(refused, 4);
    node.close(one);
    node.close(three);
    check_empty(&node, 2);
}

#[test]
fn a_refused_join_ends_the_membership() {
    let mut node = node(1, permission_of(&[(Access::PresenceJoin, Rule::New)]));
    let (session, mut client) = (node.login(), Client::default());
    node.send(session, &join("s", r#"{"open":true}"#));
    node.send(session, &subscribe("s"));
    look(&mut node, session, &mut client);
    assert_eq!(client.scopes["s"].len(), 1);
    // A refused update changes nothing.
    node.send(session, &update("s", r#"{"open":false}"#));
    look(&mut node, session, &mut client);
    assert_eq!(client.states("s"), [json!({"open": true})]);
    assert!(
        client
            .errors
            .pop()
            .expect("an error")
            .contains("reason: Denied, action: Update")
    );
    node.send(session, &join("s", r#"{"open":false}"#));
    look(&mut node, session, &mut client);
    assert!(
        client
            .errors
            .pop()
            .expect("an error")
            .contains("reason: Denied, action: Join")
    );
    assert_eq!(client.scopes["s"].len(), 0);
}

#[test]
fn rules_decide_about_joining_and_subscribing() {
    let cases = [
        (Rule::Deny, "Denied"),
        (Rule::Fail, "RuleFailed"),
        (Rule::Record("gate"), "Denied"),
    ];
    for (rule, reason) in cases {
        for (access, message, action) in [
            (Access::PresenceJoin, join("s", "1"), "Join"),
            (Access::PresenceSubscribe, subscribe("s"), "Subscribe"),
        ] {
            let mut node = node(2, permission_of(&[(access, rule)]));
            let session = node.login_on(1);
            let refused = errors(&mut node, session, &message);
            let expected = format!("reason: {reason}, action: {action}");
            assert!(refused[0].contains(&expected), "{refused:?}");
            check_empty(&node, 2);
        }
    }
    // The record opens the gate.
    let rules = [
        (Access::PresenceJoin, Rule::Record("gate")),
        (Access::PresenceSubscribe, Rule::Record("gate")),
    ];
    let mut node = node(2, permission_of(&rules));
    let (session, mut client) = (node.login_on(1), Client::default());
    node.send(session, &set("gate", r#"{"open":true}"#));
    node.send(session, &subscribe("s"));
    node.send(session, &join("s", "1"));
    node.send(session, &update("s", "2"));
    look(&mut node, session, &mut client);
    assert_eq!(client.states("s"), [json!(2)]);
}

#[test]
fn new_rules_end_what_they_deny() {
    let mut node = node(2, Arc::new(AllowAll));
    let (reader, writer) = (node.login_on(0), node.login_on(1));
    let (mut client, mut other) = (Client::default(), Client::default());
    node.send(reader, &subscribe("s"));
    node.send(reader, &join("s", r#"{"open":true}"#));
    node.send(writer, &join("s", "1"));
    look(&mut node, reader, &mut client);
    assert_eq!(client.scopes["s"].len(), 2);
    node.set_rules(permission_of(&[(Access::PresenceJoin, Rule::New)]));
    look(&mut node, reader, &mut client);
    look(&mut node, writer, &mut other);
    assert_eq!(client.states("s"), [json!({"open": true})]);
    assert_eq!(other.errors.len(), 1);
    assert!(other.errors[0].contains("reason: Denied, action: Join"));
    node.set_rules(permission_of(&[(Access::PresenceSubscribe, Rule::Fail)]));
    look(&mut node, reader, &mut client);
    assert!(client.errors[0].contains("reason: RuleFailed, action: Subscribe"));
    node.send(writer, &join("s", "2"));
    assert_eq!(node.take(reader), Vec::<String>::new());
    node.close(reader);
    node.close(writer);
    check_empty(&node, 2);
}

#[test]
fn a_member_has_the_user_of_its_session() {
    let mut node = node(2, Arc::new(AllowAll));
    let reader = node.login_on(0);
    let member = node.login_as_user(1, "anna");
    let mut client = Client::default();
    node.send(reader, &subscribe("s"));
    node.send(member, &join("s", "1"));
    let principal = Arc::new(Principal::new("ben".into()));
    node.login_outcome = Some(AuthOutcome::Accepted(principal));
    node.send(member, &Message::Auth(Auth::Change { data: Some("{}") }));
    node.finish_work();
    look(&mut node, reader, &mut client);
    let members: Vec<_> = client.scopes["s"].values().collect();
    assert_eq!(members, [&(Some("ben".to_owned()), json!(1))]);
}

#[test]
fn a_lagging_session_gets_the_list_later() {
    let mut node = node(2, Arc::new(AllowAll));
    let (writer, reader) = (node.login_on(1), node.login_coalescing(0));
    let mut client = Client::default();
    node.send(writer, &join("s", "0"));
    node.send(reader, &subscribe("s"));
    look(&mut node, reader, &mut client);
    node.lag(reader);
    for state in 1..50 {
        node.send(writer, &update("s", &state.to_string()));
    }
    look(&mut node, reader, &mut client);
    assert_eq!((client.changes, client.lists), (0, 1));
    node.drained(reader);
    look(&mut node, reader, &mut client);
    assert_eq!(client.states("s"), [json!(49)]);
    assert_eq!((client.changes, client.lists), (0, 2));
    node.send(writer, &leave("s"));
    look(&mut node, reader, &mut client);
    assert_eq!((client.changes, client.scopes["s"].len()), (1, 0));
}

#[test]
fn states_count_in_the_memory_of_their_session() {
    let mut settings = Settings::default();
    settings.limits.presence_state_bytes_max = 1 << 20;
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let session = node.login();
    let before = (node.kept_for(session), node.counts(0).kept_bytes);
    let state = format!("\"{}\"", "s".repeat(100_000));
    node.send(session, &join("s", &state));
    assert!(node.kept_for(session) > before.0 + 200_000);
    assert!(node.counts(0).kept_bytes > before.1 + 200_000);
    node.set_room(0, 1_000);
    let refused = errors(&mut node, session, &join("t", &state));
    assert!(refused[0].contains("reason: Unavailable, action: Join"));
    assert_eq!(node.counts(0).refused.memory, 1);
    node.send(session, &leave("s"));
    assert_eq!((node.kept_for(session), node.counts(0).kept_bytes), before);
}

/// Sessions that come, go, lag, join, change their states, leave and subscribe, while posts between shards are held back at times.
/// Whenever the node rests, each subscriber knows the members.
fn run(seed: u64, steps: usize) -> usize {
    let mut random = Random::new(seed);
    let shards = 1 + random.below(3) as u16;
    let mut node = node(shards, Arc::new(AllowAll));
    let scopes = ["s/0", "s/1", "s/2", "s/3"];
    let mut clients: BTreeMap<SessionId, Client> = BTreeMap::new();
    let mut members: BTreeMap<&str, BTreeMap<SessionId, Value>> = BTreeMap::new();
    let mut subscribed: BTreeMap<SessionId, Vec<&str>> = BTreeMap::new();
    let (mut compared, mut is_held) = (0, false);
    for step in 0..steps {
        let session = clients.keys().nth(random.below(8)).copied();
        let scope = *random.pick(&scopes);
        let state = random.below(1_000);
        match (random.below(20), session) {
            (0, Some(session)) if random.chance(80) => {
                node.close(session);
                clients.remove(&session);
                subscribed.remove(&session);
                for members in members.values_mut() {
                    members.remove(&session);
                }
            }
            (_, None) if !is_held => {
                let session = node.login_coalescing(random.below(usize::from(shards)) as u16);
                clients.insert(session, Client::default());
            }
            (1..=4, Some(session)) => {
                node.send(session, &join(scope, &state.to_string()));
                members
                    .entry(scope)
                    .or_default()
                    .insert(session, json!(state));
            }
            (5..=10, Some(session)) => {
                if let Some(known) = members.entry(scope).or_default().get_mut(&session) {
                    *known = json!(state);
                    node.send(session, &update(scope, &state.to_string()));
                }
            }
            (11..=12, Some(session)) => {
                node.send(session, &leave(scope));
                members.entry(scope).or_default().remove(&session);
            }
            (13..=14, Some(session)) => {
                node.send(session, &subscribe(scope));
                let known = subscribed.entry(session).or_default();
                if !known.contains(&scope) {
                    known.push(scope);
                }
            }
            (15, Some(session)) => {
                node.send(session, &unsubscribe(scope));
                subscribed
                    .entry(session)
                    .or_default()
                    .retain(|known| *known != scope);
            }
            (16, Some(session)) => node.lag(session),
            (17, Some(session)) => node.drained(session),
            (18, _) if !is_held => {
                node.hold_posts();
                is_held = true;
            }
            _ => {
                node.release_posts();
                is_held = false;
                for session in clients.keys().copied().collect::<Vec<_>>() {
                    node.drained(session);
                }
                for (session, client) in &mut clients {
                    look(&mut node, *session, client);
                    for scope in subscribed.get(session).into_iter().flatten() {
                        let members = members.get(scope).into_iter().flatten();
                        let mut expected: Vec<_> = members.map(|(_, it)| it.clone()).collect();
                        expected.sort_by_key(Value::to_string);
                        assert_eq!(client.states(scope), expected, "seed {seed} step {step}");
                        compared += 1;
                    }
                    assert_eq!(client.errors, Vec::<String>::new(), "seed {seed}");
                }
            }
        }
    }
    node.release_posts();
    for session in clients.into_keys() {
        node.close(session);
    }
    check_empty(&node, usize::from(shards));
    compared
}

/// `SIM_SEEDS` is the number of runs.
#[test]
fn subscribers_know_the_members_at_rest() {
    let seeds = std::env::var("SIM_SEEDS").ok();
    let seeds: u64 = seeds.map_or(100, |seeds| seeds.parse().expect("a number"));
    let compared: usize = (0..seeds).map(|seed| run(seed, 300)).sum();
    println!("{seeds} seeds: {compared} lists equal the members");
    assert!(compared > 1_000, "{compared}");
}
