//! Live queries: the first result and its changes, sharing, rights, lagging sessions, and random runs in which each live result equals
//! a full evaluation whenever the node rests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidewire_core::address::SessionId;
use tidewire_core::indexes::{CollectionIndex, CollectionIndexes};
use tidewire_core::message::{Message, Query};
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, QueryRight, Question};
use tidewire_core::settings::Settings;

use crate::driver::Node;
use crate::live_rows::{Rows, apply, rows_of};
use crate::queries::put;

fn subscribe<'a>(collection: &'a str, query: &'a str, correlation: &'a str) -> Message<'a> {
    Message::Query(Query::Subscribe {
        collection,
        query,
        correlation: Some(correlation),
    })
}

fn read_with(query: &str, counts: bool) -> Message<'_> {
    Message::Query(Query::Read {
        collection: "cards",
        query,
        correlation: Some("q"),
        counts,
        explains: false,
    })
}

fn unsubscribe(correlation: &str) -> Message<'_> {
    Message::Query(Query::Unsubscribe {
        correlation: Some(correlation),
    })
}

/// A message about queries that a session got.
#[derive(Debug)]
enum Got {
    Snapshot(String, String, Value),
    Changed(String, Value),
    Error(String),
    Result(Value),
    Other,
}

/// The next text in quotes, and the rest.
fn quoted(text: &str) -> (String, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let found = values.next().expect("a text").expect("a text");
    (found, &text[values.byte_offset()..])
}

fn got(message: &str) -> Got {
    let json = |text: String| serde_json::from_str(&text).expect("JSON");
    if let Some(rest) = message.strip_prefix("Query(Snapshot { correlation: Some(") {
        let (correlation, rest) = quoted(rest);
        let (key, rest) = quoted(rest.strip_prefix("), key: ").expect("a key"));
        let (data, _) = quoted(rest.strip_prefix(", data: ").expect("data"));
        return Got::Snapshot(correlation, key, json(data));
    }
    if let Some(rest) = message.strip_prefix("Query(Changed { key: ") {
        let (key, rest) = quoted(rest);
        let (data, _) = quoted(rest.strip_prefix(", data: ").expect("data"));
        return Got::Changed(key, json(data));
    }
    if let Some(rest) = message.strip_prefix("Query(Result { correlation: Some(\"q\"), data: ") {
        return Got::Result(json(quoted(rest).0));
    }
    match message.starts_with("Query(Error") {
        true => Got::Error(message.to_owned()),
        false => Got::Other,
    }
}

/// The live queries of a session as its client sees them. Checks each change.
#[derive(Debug, Default)]
struct Client {
    /// By correlation: the key, and the rows.
    lives: BTreeMap<String, (String, Rows)>,
    errors: Vec<String>,
    results: Vec<Value>,
    changes: usize,
    snapshots: usize,
    /// In random runs the queries by correlation.
    queries: BTreeMap<String, String>,
}

impl Client {
    fn take(&mut self, seen: Vec<String>) {
        for message in seen {
            match got(&message) {
                Got::Snapshot(correlation, key, value) => {
                    self.snapshots += 1;
                    self.lives.insert(correlation, (key, rows_of(&value)));
                }
                Got::Changed(key, value) => {
                    self.changes += 1;
                    let mut is_known = false;
                    for (of, rows) in self.lives.values_mut().filter(|(of, _)| *of == key) {
                        is_known = true;
                        assert_eq!(*of, key);
                        apply(rows, &value).unwrap_or_else(|why| panic!("{why}"));
                    }
                    assert!(is_known, "{message} belongs to no live query");
                }
                Got::Error(text) => self.errors.push(text),
                Got::Result(value) => self.results.push(value),
                Got::Other => {}
            }
        }
    }

    #[track_caller]
    fn ids(&self, correlation: &str) -> Vec<&str> {
        let (_, rows) = &self.lives[correlation];
        rows.iter().map(|(id, _)| id.as_str()).collect()
    }
}

fn node(shards: u16, permission: Arc<dyn Permission>) -> Node {
    Node::with(shards, Settings::default(), permission)
}

/// Writes a record.
fn write(node: &mut Node, session: SessionId, name: &str, data: &str) {
    node.send(session, &put(name, data));
    while node.turn() {}
    node.take(session);
}

fn look(node: &mut Node, session: SessionId, client: &mut Client) {
    while node.turn() {}
    client.take(node.take(session));
}

#[test]
fn a_live_query_shows_its_result_and_each_change() {
    for shards in [1, 3] {
        let mut node = node(shards, Arc::new(AllowAll));
        let (writer, reader) = (node.login_on(0), node.login_on(shards - 1));
        for (name, data) in [("cards/1", r#"{"n":1}"#), ("cards/2", r#"{"n":2}"#)] {
            write(&mut node, writer, name, data);
        }
        let mut client = Client::default();
        let query = r#"{"where":{"n":{"$gt":0}},"sort":{"n":-1},"limit":2}"#;
        node.send(reader, &subscribe("cards", query, "a"));
        look(&mut node, reader, &mut client);
        assert_eq!(client.ids("a"), ["2", "1"]);
        write(&mut node, writer, "cards/3", r#"{"n":3}"#);
        look(&mut node, reader, &mut client);
        assert_eq!((client.ids("a"), client.changes), (vec!["3", "2"], 1));
        write(&mut node, writer, "cards/4", r#"{"n":0}"#);
        write(&mut node, writer, "other/4", r#"{"n":9}"#);
        write(&mut node, writer, "cards/4/x", r#"{"n":9}"#);
        look(&mut node, reader, &mut client);
        assert_eq!(client.changes, 1, "these do not concern the query");
        write(&mut node, writer, "cards/3", "");
        write(&mut node, writer, "cards/1", r#"{"n":5}"#);
        look(&mut node, reader, &mut client);
        assert_eq!(client.ids("a"), ["1", "2"]);
        write(&mut node, writer, "cards/1", r#"{"n":5,"more":true}"#);
        look(&mut node, reader, &mut client);
        assert_eq!(
            client.lives["a"].1[0].1,
            serde_json::json!({"n": 5, "more": true})
        );
        node.send(reader, &unsubscribe("a"));
        let changes = client.changes;
        write(&mut node, writer, "cards/1", r#"{"n":6}"#);
        look(&mut node, reader, &mut client);
        assert_eq!(client.changes, changes);
        for shard in 0..usize::from(shards) {
            let counts = node.counts(shard);
            assert_eq!(
                (
                    counts.live_queries,
                    counts.owned_queries,
                    counts.watching_queries
                ),
                (0, 0, 0)
            );
        }
    }
}

#[test]
fn equal_queries_of_users_with_the_same_rights_are_one() {
    let mut node = node(2, Arc::new(AllowAll));
    let queries = [
        r#"{"where":{"a":1,"b":2}}"#,
        r#"{"where":{"b":{"$eq":2},"a":1}}"#,
    ];
    let sessions: Vec<SessionId> = (0..10)
        .map(|n| node.login_as_user(n % 2, &format!("user{n}")))
        .collect();
    for (n, session) in sessions.iter().enumerate() {
        node.send(*session, &subscribe("cards", queries[n % 2], "a"));
    }
    let owned = |node: &Node| {
        (0..2)
            .map(|shard| node.counts(shard).owned_queries)
            .sum::<usize>()
    };
    assert_eq!(owned(&node), 1);
    let writer = node.login();
    write(&mut node, writer, "cards/1", r#"{"a":1,"b":2}"#);
    for session in &sessions {
        let mut client = Client::default();
        look(&mut node, *session, &mut client);
        assert_eq!(client.ids("a"), ["1"]);
        node.close(*session);
    }
    assert_eq!(owned(&node), 0, "the last subscriber ends the query");
    assert_eq!(
        node.counts(0).watching_queries + node.counts(1).watching_queries,
        0
    );
}

/// Only the owner of a record reads it; without an owner all users do. `is_open` allows everything.
#[derive(Debug)]
struct OwnOnly {
    is_open: bool,
    reads_others: bool,
}

impl Permission for OwnOnly {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let own = format!(r#""owner":"{}""#, question.principal.user_id);
        let is_allowed = self.is_open
            || question.access != Access::RecordRead
            || question
                .old_data
                .is_none_or(|data| data.contains(&own) || !data.contains("owner"));
        match is_allowed {
            true => Decision::Allow,
            false => Decision::Deny,
        }
    }

    fn query_right(&self, _prefix: &str) -> QueryRight {
        match (self.reads_others, self.is_open) {
            (true, _) => QueryRight::ByOthers,
            (_, true) => QueryRight::Common,
            (_, false) => QueryRight::ByPrincipal,
        }
    }
}

const CLOSED: OwnOnly = OwnOnly {
    is_open: false,
    reads_others: false,
};

/// No message depends on a record that the user may not read: the messages are the same with and without such records.
#[test]
fn a_forbidden_record_causes_no_message() {
    let messages = |has_hidden: bool| {
        let mut node = node(2, Arc::new(CLOSED));
        let (eve, ann) = (node.login_as_user(1, "eve"), node.login_as_user(0, "ann"));
        let query = r#"{"sort":["n"],"limit":3,"offset":1}"#;
        if has_hidden {
            write(&mut node, eve, "cards/h0", r#"{"n":0,"owner":"eve"}"#);
        }
        node.send(ann, &subscribe("cards", query, "a"));
        for n in 0..8 {
            let name = format!("cards/{n}");
            write(&mut node, eve, &name, &format!(r#"{{"n":{n}}}"#));
            if has_hidden {
                let hidden = format!("cards/h{n}");
                write(
                    &mut node,
                    eve,
                    &hidden,
                    &format!(r#"{{"n":{n},"owner":"eve"}}"#),
                );
                write(&mut node, eve, &hidden, r#"{"n":-1,"owner":"eve"}"#);
            }
        }
        if has_hidden {
            for n in 0..4 {
                write(&mut node, eve, &format!("cards/h{n}"), "");
            }
        }
        write(&mut node, eve, "cards/1", "");
        // The right to a record that is shown is lost and returns.
        write(&mut node, eve, "cards/2", r#"{"n":2,"owner":"eve"}"#);
        write(&mut node, eve, "cards/2", r#"{"n":2,"owner":"ann"}"#);
        let seen = node.take(ann);
        let mut client = Client::default();
        client.take(seen.clone());
        assert_eq!(client.ids("a"), ["2", "3", "4"]);
        seen
    };
    assert_eq!(messages(false), messages(true));
}

#[test]
fn new_rules_change_the_result() {
    let mut node = node(3, Arc::new(CLOSED));
    let (eve, ann) = (node.login_as_user(1, "eve"), node.login_as_user(2, "ann"));
    write(&mut node, eve, "cards/1", r#"{"owner":"eve"}"#);
    write(&mut node, eve, "cards/2", r#"{"owner":"ann"}"#);
    let mut client = Client::default();
    node.send(ann, &subscribe("cards", "{}", "a"));
    look(&mut node, ann, &mut client);
    assert_eq!(client.ids("a"), ["2"]);
    let open = OwnOnly {
        is_open: true,
        reads_others: false,
    };
    node.set_rules(Arc::new(open));
    look(&mut node, ann, &mut client);
    assert_eq!(client.ids("a"), ["1", "2"]);
    node.set_rules(Arc::new(CLOSED));
    look(&mut node, ann, &mut client);
    assert_eq!(client.ids("a"), ["2"]);
    write(&mut node, eve, "cards/3", r#"{"owner":"eve"}"#);
    look(&mut node, ann, &mut client);
    assert_eq!(client.ids("a"), ["2"]);
    let unsupported = OwnOnly {
        is_open: false,
        reads_others: true,
    };
    node.set_rules(Arc::new(unsupported));
    look(&mut node, ann, &mut client);
    assert!(
        client.errors[0].contains("reason: Rule"),
        "{:?}",
        client.errors
    );
    node.send(ann, &subscribe("cards", "{}", "b"));
    look(&mut node, ann, &mut client);
    assert!(
        client.errors[1].contains("reason: Rule"),
        "{:?}",
        client.errors
    );
    assert_eq!(
        (0..3)
            .map(|shard| node.counts(shard).owned_queries)
            .sum::<usize>(),
        0
    );
}

#[test]
fn a_lagging_session_gets_the_whole_result_later() {
    let mut node = node(2, Arc::new(AllowAll));
    let (writer, reader) = (node.login_on(1), node.login_coalescing(0));
    let mut client = Client::default();
    node.send(reader, &subscribe("cards", "{}", "a"));
    look(&mut node, reader, &mut client);
    node.lag(reader);
    for n in 0..50 {
        write(
            &mut node,
            writer,
            &format!("cards/{}", n % 7),
            &format!(r#"{{"n":{n}}}"#),
        );
    }
    look(&mut node, reader, &mut client);
    assert_eq!((client.changes, client.snapshots), (0, 1));
    node.drained(reader);
    look(&mut node, reader, &mut client);
    assert_eq!(
        (client.ids("a").len(), client.changes, client.snapshots),
        (7, 0, 2)
    );
    write(&mut node, writer, "cards/0", "");
    look(&mut node, reader, &mut client);
    assert_eq!((client.ids("a").len(), client.changes), (6, 1));
}

#[test]
fn refusals_name_their_cause() {
    let mut settings = Settings::default();
    settings.limits.live_queries_max = 2;
    settings.limits.query_result_bytes_max = 200;
    let mut node = Node::with(1, settings, Arc::new(AllowAll));
    let (session, writer) = (node.login(), node.login());
    let mut client = Client::default();
    for (message, part) in [
        (subscribe("cards", "{", "x"), "malformed"),
        (subscribe("", "{}", "x"), "bad-collection"),
    ] {
        node.send(session, &message);
        look(&mut node, session, &mut client);
        assert!(client.errors.last().expect("an error").contains(part));
    }
    node.send(session, &subscribe("cards", "{}", "a"));
    node.send(session, &subscribe("cards", "{}", "a"));
    look(&mut node, session, &mut client);
    assert!(client.errors[2].contains("bad-correlation"));
    node.send(session, &subscribe("other", "{}", "b"));
    node.send(session, &subscribe("other", "{}", "c"));
    look(&mut node, session, &mut client);
    assert!(client.errors[3].contains("2 live queries (limits.live_queries_max)"));
    for n in 0..100 {
        let data = format!(r#"{{"text":"{}"}}"#, "x".repeat(100));
        write(&mut node, writer, &format!("cards/{n}"), &data);
    }
    look(&mut node, session, &mut client);
    assert!(client.errors[4].contains("200 bytes (limits.query_result_bytes_max)"));
    assert_eq!(node.counts(0).live_queries, 1);
    node.loads_fail = true;
    node.send(session, &unsubscribe("b"));
    node.send(session, &subscribe("more", "{}", "d"));
    look(&mut node, session, &mut client);
    assert!(
        client
            .errors
            .last()
            .expect("an error")
            .contains("Unavailable")
    );
}

/// A generator of random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const QUERIES: [&str; 12] = [
    "{}",
    r#"{"where":{"a":1}}"#,
    r#"{"where":{"a":{"$gte":1}},"sort":["b"],"limit":2}"#,
    r#"{"sort":{"b":-1},"limit":1}"#,
    r#"{"sort":["a"],"offset":1,"limit":3,"select":["a"]}"#,
    r#"{"where":{"$or":[{"a":0},{"b":{"$exists":false}}]},"sort":{"a":-1,"b":1},"limit":4}"#,
    r#"{"where":{"b":{"$ne":2}},"select":{"b":0}}"#,
    r#"{"where":"3"}"#,
    r#"{"where":{"a":1},"sort":["b"],"limit":2}"#,
    r#"{"where":{"a":2,"b":{"$gt":1}},"sort":{"b":-1},"offset":1,"limit":2}"#,
    r#"{"where":{"a":{"$in":[0,2]}},"limit":0}"#,
    r#"{"where":{"a":0,"b":null}}"#,
];

/// The indexes of the collection in some of the random runs.
fn indexes(random: &mut Random) -> CollectionIndexes {
    let mut indexes = CollectionIndexes::default();
    for paths in [&["a"][..], &["a", "b"], &["b"]] {
        if random.below(2) == 0 {
            let index = CollectionIndex::parse(paths.iter().copied());
            indexes.add("cards", index.expect("an index"));
        }
    }
    indexes
}

/// Writes, deletes, stores that hang or fail, indexes that are complete or not, new rules, sessions that come, go and lag, evictions.
/// Whenever the node rests, each live
/// result is what a full evaluation returns.
fn equivalence(seed: u64, steps: usize) -> usize {
    let mut random = Random(seed);
    let shards = 1 + random.below(3) as u16;
    let settings = Settings {
        memory_only_prefixes: match random.below(3) {
            0 => vec!["cards/1".to_owned()],
            _ => Vec::new(),
        },
        indexes: indexes(&mut random),
        ..Settings::default()
    };
    let mut node = Node::with(shards, settings, Arc::new(CLOSED));
    let writer = node.login_as_user(0, "writer");
    let mut clients: BTreeMap<SessionId, Client> = BTreeMap::new();
    let mut compared = 0;
    for step in 0..steps {
        let id = random.below(24);
        match random.below(24) {
            0..=9 => {
                let owner =
                    ["", r#","owner":"ann""#, r#","owner":"eve""#][random.below(3) as usize];
                let b = match random.below(4) {
                    0 => String::new(),
                    b => format!(r#","b":{b}"#),
                };
                let data = format!(r#"{{"a":{}{b}{owner}}}"#, random.below(3));
                node.send(writer, &put(&format!("cards/{id}"), &data));
            }
            10..=12 => node.send(writer, &put(&format!("cards/{id}"), "")),
            13 => {
                let user = ["ann", "eve"][random.below(2) as usize];
                let shard = random.below(u64::from(shards)) as u16;
                if clients.len() < 6 {
                    let session = node.login_as_user(shard, user);
                    clients.insert(session, Client::default());
                }
            }
            14..=16 => {
                let count = clients.len() as u64;
                if let Some(session) = clients
                    .keys()
                    .nth(random.below(count.max(1)) as usize)
                    .copied()
                {
                    let query = QUERIES[random.below(QUERIES.len() as u64) as usize];
                    let correlation = format!("{step}");
                    node.send(session, &subscribe("cards", query, &correlation));
                    let client = clients.get_mut(&session).expect("known");
                    client.queries.insert(correlation, query.to_owned());
                }
            }
            17 => node.store_hangs = true,
            18 => {
                node.answer_store();
                node.indexes_lack_entries = random.below(3) == 0;
            }
            19 => node.commits_fail = random.below(2) == 0,
            20 => {
                for shard in 0..usize::from(shards) {
                    node.shrink_cache(shard, usize::MAX);
                }
            }
            21 => {
                let is_open = random.below(2) == 0;
                node.answer_store();
                let rules = OwnOnly {
                    is_open,
                    reads_others: false,
                };
                node.set_rules(Arc::new(rules));
            }
            22 if random.below(2) == 0 => {
                // One of the live queries ends.
                if let Some((session, client)) = clients.iter_mut().next_back()
                    && let Some((correlation, _)) = client.queries.pop_first()
                {
                    client.take(node.take(*session));
                    node.send(*session, &unsubscribe(&correlation));
                    client.take(node.take(*session));
                    client.lives.remove(&correlation);
                }
            }
            22 => {
                if let Some(session) = clients
                    .keys()
                    .next()
                    .copied()
                    .filter(|_| random.below(4) == 0)
                {
                    node.close(session);
                    clients.remove(&session);
                }
            }
            _ => compared += rest(&mut node, &mut clients, seed, step),
        }
        if random.below(3) == 0 {
            node.turn();
        }
        node.take(writer);
    }
    compared + rest(&mut node, &mut clients, seed, steps)
}

/// Lets the node rest, and compares all live results.
fn rest(
    node: &mut Node,
    clients: &mut BTreeMap<SessionId, Client>,
    seed: u64,
    step: usize,
) -> usize {
    node.commits_fail = false;
    node.answer_store();
    node.pass(std::time::Duration::from_secs(31));
    node.answer_store();
    while node.turn() {}
    let mut compared = 0;
    for (session, client) in clients {
        client.take(node.take(*session));
        for (correlation, query) in client.queries.clone() {
            // Without an index, and with one if it helps, counted and not.
            let mut results = Vec::new();
            for (lack_entries, counts) in [(true, true), (false, true), (false, false)] {
                let before = std::mem::replace(&mut node.indexes_lack_entries, lack_entries);
                node.send(*session, &read_with(&query, counts));
                while node.turn() {}
                node.indexes_lack_entries = before;
                client.take(node.take(*session));
                results.push(client.results.pop().expect("a result"));
            }
            let count = |result: &Value| result["count"].as_u64();
            let of = || format!("seed {seed} step {step}: {query}");
            assert_eq!(count(&results[0]), count(&results[1]), "{}", of());
            let (_, live) = &client.lives[&correlation];
            for result in &results {
                assert_eq!(*live, rows_of(result), "{}", of());
            }
            compared += 1;
        }
        assert_eq!(
            client.errors,
            Vec::<String>::new(),
            "seed {seed} step {step}"
        );
    }
    compared
}

/// `SIM_SEEDS` is the number of runs.
#[test]
fn live_results_equal_full_evaluations() {
    let seeds = std::env::var("SIM_SEEDS").ok();
    let seeds: u64 = seeds.map_or(60, |seeds| seeds.parse().expect("a number"));
    let compared: usize = (0..seeds).map(|seed| equivalence(seed, 150)).sum();
    println!("{seeds} seeds: {compared} live results equal full evaluations");
    assert!(compared > 1_000, "{compared}");
}
