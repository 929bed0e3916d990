//! Repetitions of acknowledged writes after a restart: the record has the keys of its last writes. A repetition names the state that its
//! sender had seen when it first sent the write.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidewire_core::address::{Address, SessionId};
use tidewire_core::message::{Change, Message, Record, RecordBulk, Tag, Write, WriteKey};
use tidewire_core::settings::Settings;
use tidewire_core::store::WRITE_KEYS_KEPT;

use crate::driver::{Node, Seen, set};

/// A repeatable write that sets `path` to 1 in this version; -1 is the next one, whatever that is.
fn write_at<'a>(version: i32, key: WriteKey<'a>, path: &'a str) -> Message<'a> {
    let write = Write {
        name: "r",
        version,
        correlation: Some("7"),
        write_ack: true,
        key: Some(key),
    };
    let change = Change::CreateAndPatch {
        path: Some(path),
        data: Some("1"),
    };
    Message::Record(Record::Write(write, change))
}

/// The first attempt of a write that sets the path of its key.
fn first(key: &str) -> Message<'_> {
    write_at(-1, WriteKey::new(key), key)
}

/// Its repetition.
fn again(key: &str, seen: Tag) -> Message<'_> {
    let seen = Some(seen);
    write_at(-1, WriteKey { text: key, seen }, key)
}

#[track_caller]
fn acknowledged(seen: &Seen) {
    assert!(seen.len() == 1 && seen[0].contains("WriteAck"), "{seen:?}");
}

#[track_caller]
fn unknown(seen: &Seen) {
    assert!(
        seen.len() == 1 && seen[0].contains("reason: WriteUnknown"),
        "{seen:?}"
    );
}

/// The state of the record in the store.
fn tag(node: &Node) -> Tag {
    node.stored("r").expect("it is stored").tag()
}

fn version(node: &Node) -> i32 {
    node.stored("r").map_or(-1, |record| record.tag().version)
}

/// A node whose record was created by the session, and the state of the record.
fn created() -> (Node, SessionId, Tag) {
    let mut node = Node::new(Settings::default());
    let session = node.login();
    create(&mut node, session);
    let tag = tag(&node);
    (node, session, tag)
}

fn create(node: &mut Node, session: SessionId) {
    let names = vec!["r"];
    let correlation = Some("1");
    for action in [RecordBulk::SubscribeCreateAndRead, RecordBulk::Unsubscribe] {
        let bulk = Record::Bulk {
            action,
            names: names.clone(),
            correlation,
        };
        node.ask(session, &Message::Record(bulk));
    }
}

fn restarted(node: Node) -> (Node, SessionId) {
    let mut node = node.restart(Settings::default());
    let session = node.login();
    (node, session)
}

fn write_others(node: &mut Node, session: SessionId, count: usize) {
    for number in 0..count {
        acknowledged(&node.ask(session, &first(&format!("other{number}"))));
    }
}

#[test]
fn a_stored_write_is_not_made_again_after_a_restart() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("k")));
    let (mut node, session) = restarted(node);
    acknowledged(&node.ask(session, &again("k", seen)));
    // A client that does not name what it has seen gets the same answer.
    acknowledged(&node.ask(session, &first("k")));
    assert_eq!(version(&node), 1);
    // The keys stay when the record is written without a key.
    node.ask(session, &set("r", "{}"));
    let (mut node, session) = restarted(node);
    acknowledged(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), 2);
}

#[test]
fn an_unstored_write_is_made_by_its_repetition() {
    let (mut node, session, seen) = created();
    node.store_hangs = true;
    assert!(node.ask(session, &first("k")).is_empty());
    let (mut node, session) = restarted(node);
    assert_eq!(version(&node), 0);
    acknowledged(&node.ask(session, &again("k", seen)));
    acknowledged(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), 1);
}

#[test]
fn a_commit_of_many_writes_keeps_their_keys() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("k0")));
    node.store_hangs = true;
    for key in ["k1", "k2", "k3"] {
        node.send(session, &first(key));
    }
    node.answer_store();
    assert_eq!(version(&node), 4);
    let (mut node, session) = restarted(node);
    for key in ["k3", "k2", "k1", "k0"] {
        acknowledged(&node.ask(session, &again(key, seen)));
    }
    assert_eq!(version(&node), 4);
}

#[test]
fn a_write_whose_key_may_have_been_dropped_is_refused_as_unknown() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("k")));
    write_others(&mut node, session, WRITE_KEYS_KEPT);
    let newer = tag(&node);
    let (mut node, session) = restarted(node);
    unknown(&node.ask(session, &again("k", seen)));
    // The owner can't distinguish it from one that was never made.
    unknown(&node.ask(session, &again("never", seen)));
    assert_eq!(tag(&node), newer);
    // Keys are only dropped with older versions, so this write was not made.
    acknowledged(&node.ask(session, &again("new", newer)));
    assert_eq!(version(&node), newer.version + 1);
}

#[test]
fn without_a_restart_the_memory_of_keys_knows_more_than_the_record() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("k")));
    write_others(&mut node, session, 3 * WRITE_KEYS_KEPT);
    let before = version(&node);
    acknowledged(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), before);
}

#[test]
fn a_first_attempt_is_never_unknown() {
    let (mut node, session, _) = created();
    write_others(&mut node, session, 3 * WRITE_KEYS_KEPT);
    let (mut node, session) = restarted(node);
    let before = version(&node);
    acknowledged(&node.ask(session, &first("late")));
    assert_eq!(version(&node), before + 1);
}

#[test]
fn a_key_counts_for_its_user_only() {
    let (mut node, _, seen) = created();
    let ann = node.login_as_user(0, "ann");
    acknowledged(&node.ask(ann, &first("k")));
    let mut node = node.restart(Settings::default());
    let bob = node.login_as_user(0, "bob");
    acknowledged(&node.ask(bob, &again("k", seen)));
    assert_eq!(version(&node), 2);
    // A user that writes often displaces only its own keys.
    write_others(&mut node, bob, 5 * WRITE_KEYS_KEPT);
    let before = version(&node);
    let mut node = node.restart(Settings::default());
    let (ann, bob) = (node.login_as_user(0, "ann"), node.login_as_user(0, "bob"));
    acknowledged(&node.ask(ann, &again("k", seen)));
    unknown(&node.ask(bob, &again("k", seen)));
    assert_eq!(version(&node), before);
}

#[test]
fn a_record_that_was_deleted_since_does_not_take_the_repetition() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("k")));
    node.ask(session, &Message::Record(Record::Delete { name: "r" }));
    let (mut node, session) = restarted(node);
    unknown(&node.ask(session, &again("k", seen)));
    assert_eq!(node.stored("r"), None);
    create(&mut node, session);
    acknowledged(&node.ask(session, &first("a")));
    unknown(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), 1);
    let seen = tag(&node);
    acknowledged(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), 2);
}

#[test]
fn versions_that_were_lost_do_not_order_a_write() {
    let (mut node, session, _) = created();
    node.store_hangs = true;
    node.send(session, &first("lost"));
    node.send(session, &first("lost too"));
    let record = node.stored("r").expect("created");
    let seen = Tag {
        version: 2,
        ..record.tag()
    };
    let (mut node, session) = restarted(node);
    unknown(&node.ask(session, &again("k", seen)));
    assert_eq!(version(&node), 0);
}

#[test]
fn a_version_that_exists_is_certainly_not_the_repetitions_own() {
    let (mut node, session, seen) = created();
    acknowledged(&node.ask(session, &first("other")));
    let (mut node, session) = restarted(node);
    let key = WriteKey {
        text: "k",
        seen: Some(seen),
    };
    let answer = node.ask(session, &write_at(1, key, "k"));
    assert!(answer[0].contains("reason: VersionExists"), "{answer:?}");
    acknowledged(&node.ask(session, &write_at(2, key, "k")));
    let (mut node, session) = restarted(node);
    acknowledged(&node.ask(session, &write_at(2, key, "k")));
    assert_eq!(version(&node), 2);
}

#[test]
fn under_a_hot_path_prefix_only_a_kept_key_decides() {
    let settings = Settings {
        hot_path_prefixes: vec!["r".to_owned()],
        ..Settings::default()
    };
    let mut node = Node::new(settings.clone());
    let session = node.login();
    create(&mut node, session);
    let seen = tag(&node);
    let hot = |key, seen| {
        let write = Write {
            name: "r",
            version: -1,
            correlation: Some("7"),
            write_ack: true,
            key: Some(WriteKey { text: key, seen }),
        };
        let change = Change::CreateAndUpdate { data: Some("{}") };
        Message::Record(Record::Write(write, change))
    };
    acknowledged(&node.ask(session, &hot("k", None)));
    let mut node = node.restart(settings);
    let session = node.login();
    acknowledged(&node.ask(session, &hot("k", Some(seen))));
    unknown(&node.ask(session, &hot("never", Some(seen))));
    acknowledged(&node.ask(session, &hot("new", None)));
    assert_eq!(version(&node), 0);
}

#[test]
fn a_record_without_repeatable_writes_keeps_no_keys() {
    let (mut node, session, _) = created();
    node.ask(session, &set("r", "{}"));
    assert_eq!(node.stored("r").expect("stored").write_keys, None);
}

/// A write that was sent and has no answer yet.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    seen: Tag,
}

#[derive(Clone, Debug)]
enum Step {
    /// A client sends its next write, after it has read the record or with an older state in mind. It may lose the answer.
    Write {
        client: usize,
        reads: bool,
        loses_answer: bool,
    },
    /// A client connects again and repeats its write.
    Repeat {
        client: usize,
    },
    /// Other clients write, with or without keys.
    Others {
        count: usize,
        has_keys: bool,
    },
    Delete,
    /// The store stops to answer, or answers everything.
    Hang,
    Answer,
    /// The server is killed; the store has done the unanswered commits or not.
    Kill {
        is_stored: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..3_usize;
    prop_oneof![
        4 => (client.clone(), any::<bool>(), any::<bool>()).prop_map(|(client, reads, loses_answer)| {
            Step::Write { client, reads, loses_answer }
        }),
        4 => client.prop_map(|client| Step::Repeat { client }),
        2 => (1..12_usize, any::<bool>()).prop_map(|(count, has_keys)| Step::Others { count, has_keys }),
        1 => Just(Step::Delete),
        2 => Just(Step::Hang),
        2 => Just(Step::Answer),
        3 => any::<bool>().prop_map(|is_stored| Step::Kill { is_stored }),
    ]
}

/// Clients of different users, one without a name, and a model of their writes. Each write sets a path of its own, so the version of the
/// record counts its members, as long as no write is made twice.
struct Clients {
    node: Option<Node>,
    sessions: Vec<SessionId>,
    others: SessionId,
    seen: [Option<Tag>; 3],
    pending: [Option<Pending>; 3],
    acknowledged: BTreeSet<String>,
    /// The members of records that were deleted.
    deleted: BTreeSet<String>,
    next: usize,
    unknown_count: usize,
}

const USERS: [&str; 3] = ["ann", "bob", "open"];

impl Clients {
    fn new() -> Self {
        let mut clients = Self {
            node: Some(Node::new(Settings::default())),
            sessions: Vec::new(),
            others: SessionId {
                address: Address { node: 0, shard: 0 },
                index: 0,
                generation: 0,
            },
            seen: [None; 3],
            pending: [const { None }; 3],
            acknowledged: BTreeSet::new(),
            deleted: BTreeSet::new(),
            next: 0,
            unknown_count: 0,
        };
        clients.connect();
        clients
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("it runs")
    }

    fn connect(&mut self) {
        self.sessions = (0..3).map(|client| self.log_in(client)).collect();
        self.others = self.node().login_as_user(0, "others");
        // A client of an earlier process reads the record before it writes.
        self.seen = [None; 3];
    }

    fn log_in(&mut self, client: usize) -> SessionId {
        self.node().login_as_user(0, USERS[client])
    }

    /// Reads the state of the record, and creates a missing one.
    fn look(&mut self, client: usize) -> Option<Tag> {
        let session = self.sessions[client];
        for _ in 0..2 {
            let fetch = Record::Fetch {
                name: "r",
                correlation: "0",
            };
            let answer = self.node().ask(session, &Message::Record(fetch));
            let answer = answer.iter().find(|seen| seen.contains("Fetched"))?.clone();
            let number = |part: &str| {
                let rest = answer.split_once(part)?.1;
                let end = rest.find(|c: char| !c.is_ascii_digit())?;
                rest[..end].parse::<u64>().ok()
            };
            if let Some(incarnation) = number("incarnation: ") {
                let version = number(" version: ").expect("a version") as i32;
                return Some(Tag {
                    incarnation,
                    version,
                });
            }
            create(self.node(), session);
        }
        None
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write {
                client,
                reads,
                loses_answer,
            } => self.write(client, reads, loses_answer),
            Step::Repeat { client } => self.repeat(client),
            Step::Others { count, has_keys } => self.others(count, has_keys),
            Step::Delete => self.delete(),
            Step::Hang => self.node().store_hangs = true,
            Step::Answer => {
                self.node().answer_store();
                (0..3).for_each(|client| self.take(client));
            }
            Step::Kill { is_stored } => {
                if is_stored {
                    self.node().answer_store();
                }
                let node = self.node.take().expect("it runs");
                self.node = Some(node.restart(Settings::default()));
                self.connect();
            }
        }
    }

    fn write(&mut self, client: usize, reads: bool, loses_answer: bool) {
        if self.pending[client].is_some() {
            return;
        }
        if reads || self.seen[client].is_none() {
            self.seen[client] = self.look(client);
        }
        let Some(seen) = self.seen[client] else {
            return;
        };
        let key = format!("k{}", self.next);
        self.next += 1;
        let session = self.sessions[client];
        self.node().send(session, &first(&key));
        self.pending[client] = Some(Pending { key, seen });
        if loses_answer {
            self.node().close(session);
            self.sessions[client] = self.log_in(client);
        }
        self.take(client);
    }

    fn repeat(&mut self, client: usize) {
        self.take(client);
        let Some(pending) = self.pending[client].clone() else {
            return;
        };
        let session = self.log_in(client);
        self.sessions[client] = session;
        let message = again(&pending.key, pending.seen);
        self.node().send(session, &message);
        self.take(client);
    }

    /// Handles the answers that a client has got.
    fn take(&mut self, client: usize) {
        let session = self.sessions[client];
        for answer in self.node().take(session) {
            if answer.contains("WriteAck") {
                let done = self.pending[client].take();
                self.acknowledged.extend(done.map(|pending| pending.key));
            } else if answer.contains("WriteUnknown") {
                self.pending[client] = None;
                self.unknown_count += 1;
            }
        }
    }

    fn others(&mut self, count: usize, has_keys: bool) {
        for _ in 0..count {
            let path = format!("o{}", self.next);
            self.next += 1;
            let write = Write {
                name: "r",
                version: -1,
                correlation: Some("7"),
                write_ack: true,
                key: has_keys.then(|| WriteKey::new(&path)),
            };
            let change = Change::CreateAndPatch {
                path: Some(&path),
                data: Some("1"),
            };
            let others = self.others;
            let message = Message::Record(Record::Write(write, change));
            self.node().send(others, &message);
        }
    }

    fn delete(&mut self) {
        // The model knows which records were deleted only if the store has the deletion.
        self.step(&Step::Answer);
        self.deleted.extend(self.members());
        let others = self.others;
        self.node()
            .send(others, &Message::Record(Record::Delete { name: "r" }));
    }

    /// The members of the stored record.
    fn members(&self) -> BTreeSet<String> {
        let node = self.node.as_ref().expect("it runs");
        let Some(record) = node.stored("r") else {
            return BTreeSet::new();
        };
        let text = record.data.as_str().trim_matches(['{', '}']);
        let members = text.split(',').filter(|member| !member.is_empty());
        let name = |member: &str| {
            let (name, _) = member.split_once(':').expect("a member");
            name.trim_matches('"').to_owned()
        };
        members.map(name).collect()
    }

    fn check(&self) {
        let node = self.node.as_ref().expect("it runs");
        let members = self.members();
        if let Some(record) = node.stored("r") {
            let text = record.data.as_str();
            assert_eq!(record.version.0 as usize, members.len(), "twice: {text}");
        }
        let twice: Vec<_> = members.intersection(&self.deleted).collect();
        assert!(twice.is_empty(), "made again after a deletion: {twice:?}");
        let is_lost = |key: &&String| !members.contains(*key) && !self.deleted.contains(*key);
        let lost: Vec<_> = self.acknowledged.iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
}

fn run(steps: &[Step]) -> Clients {
    let mut clients = Clients::new();
    for step in steps {
        clients.step(step);
        clients.check();
    }
    clients.step(&Step::Answer);
    (0..3).for_each(|client| clients.repeat(client));
    clients.check();
    let open: BTreeMap<_, _> = clients
        .pending
        .iter()
        .flatten()
        .map(|p| (&p.key, p))
        .collect();
    assert!(open.is_empty(), "without an answer: {open:?}");
    clients
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_write_is_made_twice(steps in proptest::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}

/// The steps of the property lead to the case that it is about.
#[test]
fn a_client_that_was_away_during_many_writes_learns_that_its_write_is_unknown() {
    let lost = Step::Write {
        client: 0,
        reads: true,
        loses_answer: true,
    };
    let others = Step::Others {
        count: 2 * WRITE_KEYS_KEPT,
        has_keys: true,
    };
    let kill = Step::Kill { is_stored: true };
    let steps = [lost, others, kill, Step::Repeat { client: 0 }];
    let clients = run(&steps);
    // The user `ann` has one key, so the other user's writes have not displaced it.
    assert_eq!((clients.unknown_count, clients.acknowledged.len()), (0, 1));
    let writes = [0, 1, 2].map(|client| Step::Write {
        client,
        reads: true,
        loses_answer: true,
    });
    let [_, others, kill, repeat] = steps;
    let delete = Step::Delete;
    let clients = run(&[&writes[..], &[others, delete, kill, repeat]].concat());
    assert_eq!(clients.unknown_count, 3);
}
