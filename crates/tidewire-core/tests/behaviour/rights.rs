//! Checks the table of messages in `spec/rights.md` row by row: each action needs the rights of its row and no others. A denial
//! is the same whether or not the names exist: answers and their order, evaluations of rules, work, store reads and hops between
//! shards.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::message::{
    Call, Change, Event, Listen, Message, Presence, Record, RecordBulk, Rpc, Scope, Write,
};
use tidewire_core::permission::Access;
use tidewire_core::settings::Settings;
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::driver::{Node, Seen};
use crate::permission::{OWNER, Rule, permission_of};

const SPEC: &str = include_str!("../../../../spec/rights.md");

/// The names of a message. Bulk messages have all of them, other messages the first or second. Each shard owns some.
const NAMES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

/// A text that must not occur in an answer to a session without the right `read`.
const SECRET: &str = "secret-of-the-record";

/// Work that a turn of the costly node pays. A smaller step makes the number of turns a finer measure.
const WORK_STEP: usize = 16;

/// The state of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Nothing,
    /// The store has records, other sessions subscribe to events and provide rpcs, and users are online.
    All,
    /// As `All`, but only for the second and the fourth name.
    Some,
    /// As `All`, with the record of the third name in memory.
    InMemory,
}

impl Scene {
    const EVERY: [Self; 4] = [Self::Nothing, Self::All, Self::Some, Self::InMemory];

    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Nothing => Vec::new(),
            Self::All | Self::InMemory => NAMES.to_vec(),
            Self::Some => vec![NAMES[1], NAMES[3]],
        }
    }
}

/// The condition under which an action needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// If the record is missing.
    Missing,
}

/// A row of the table for one of its actions.
#[derive(Debug)]
struct RightCase {
    /// Topic and action, such as `RECORD READ`.
    action: String,
    rights: Vec<(Access, When)>,
}

/// The texts inside backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn access(topic: &str, right: &str) -> Access {
    match (topic, right) {
        ("event", "publish") => Access::EventPublish,
        ("event", "subscribe") => Access::EventSubscribe,
        ("event", "listen") => Access::EventListen,
        ("record", "create") => Access::RecordCreate,
        ("record", "read") => Access::RecordRead,
        ("record", "write") => Access::RecordWrite,
        ("record", "delete") => Access::RecordDelete,
        ("record", "listen") => Access::RecordListen,
        ("record", "notify") => Access::RecordNotify,
        ("rpc", "provide") => Access::RpcProvide,
        ("rpc", "request") => Access::RpcRequest,
        ("presence", "allow") => Access::Presence,
        ("presence", "join") => Access::PresenceJoin,
        ("presence", "subscribe") => Access::PresenceSubscribe,
        unknown => panic!("spec/rights.md has a right that this test does not know: {unknown:?}"),
    }
}

const EVERY_ACCESS: [Access; 14] = [
    Access::EventPublish,
    Access::EventSubscribe,
    Access::EventListen,
    Access::RecordCreate,
    Access::RecordRead,
    Access::RecordWrite,
    Access::RecordDelete,
    Access::RecordListen,
    Access::RecordNotify,
    Access::RpcProvide,
    Access::RpcRequest,
    Access::Presence,
    Access::PresenceJoin,
    Access::PresenceSubscribe,
];

/// The rows of the table of messages.
fn rows() -> Vec<RightCase> {
    let (_, section) = SPEC.split_once("\n## Messages\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let mut rows = Vec::new();
    // The first line is the table's head.
    for line in lines.skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{line}");
        let (topic, actions) = cells[0].split_once(' ').expect("topic and actions");
        let (of, _) = cells[1].split_once(' ').expect("topic and rights");
        let mut rights = Vec::new();
        for part in cells[1].split("then ") {
            for right in quoted(part).filter(|right| !right.starts_with('"')) {
                let is_conditional =
                    cells[1].contains("for a missing record") && !rights.is_empty();
                let when = if is_conditional {
                    When::Missing
                } else {
                    When::Always
                };
                rights.push((access(of, right), when));
            }
        }
        assert!(!rights.is_empty(), "{line}");
        for action in actions.split(", ") {
            let action = format!("{topic} {action}");
            rows.push(RightCase {
                action,
                rights: rights.clone(),
            });
        }
    }
    rows
}

fn bulk(action: RecordBulk) -> Vec<Message<'static>> {
    vec![Message::Record(Record::Bulk {
        action,
        names: NAMES.to_vec(),
        correlation: Some("1"),
    })]
}

/// A write with acknowledgement for any version, and one for an old version.
fn write(change: Change<'static>) -> Vec<Message<'static>> {
    let message = |version| {
        let write = Write {
            name: NAMES[1],
            version,
            correlation: Some("1"),
            write_ack: true,
            key: None,
        };
        Message::Record(Record::Write(write, change))
    };
    vec![message(-1), message(0)]
}

/// The messages of each action.
fn cases() -> BTreeMap<&'static str, Vec<Message<'static>>> {
    const NAME: &str = NAMES[1];
    let names = || NAMES.to_vec();
    let listen = Listen::Listen { pattern: "n[1-6]" };
    let state = r#"{"open":false}"#;
    let data = Some(state);
    let patches = Some(r#"[{"path":"list[0]","data":1}]"#);
    let correlation = Some("1");
    let event = |event| vec![Message::Event(event)];
    let record = |record| vec![Message::Record(record)];
    let presence = |presence| vec![Message::Presence(presence)];
    BTreeMap::from([
        ("EVENT EMIT", event(Event::publication(NAME, data))),
        (
            "EVENT SUBSCRIBE",
            event(Event::Subscribe {
                names: names(),
                correlation,
                positions: Vec::new(),
            }),
        ),
        ("EVENT LISTEN", event(Event::Listen(listen))),
        ("RECORD READ", record(Record::Read { name: NAME })),
        ("RECORD HEAD", record(Record::Head { name: NAME })),
        ("RECORD SUBSCRIBE", bulk(RecordBulk::Subscribe)),
        (
            "RECORD SUBSCRIBEANDREAD",
            bulk(RecordBulk::SubscribeAndRead),
        ),
        (
            "RECORD SUBSCRIBEANDHEAD",
            bulk(RecordBulk::SubscribeAndHead),
        ),
        (
            "RECORD SUBSCRIBECREATEANDREAD",
            bulk(RecordBulk::SubscribeCreateAndRead),
        ),
        (
            "RECORD CREATEANDUPDATE",
            write(Change::CreateAndUpdate { data }),
        ),
        (
            "RECORD CREATEANDPATCH",
            write(Change::CreateAndPatch {
                path: Some("list[0]"),
                data: Some("1"),
            }),
        ),
        ("RECORD UPDATE", write(Change::Update { data })),
        (
            "RECORD PATCH",
            write(Change::Patch {
                path: "list[0]",
                data: Some("1"),
            }),
        ),
        (
            "RECORD PATCH_MULTI",
            write(Change::PatchMulti {
                data: patches,
                full: None,
            }),
        ),
        (
            "RECORD ERASE",
            write(Change::Erase {
                path: Some("list[0]"),
            }),
        ),
        ("RECORD DELETE", record(Record::Delete { name: NAME })),
        ("RECORD NOTIFY", bulk(RecordBulk::Notify)),
        ("RECORD LISTEN", record(Record::Listen(listen))),
        (
            "RPC PROVIDE",
            vec![Message::Rpc(Rpc::Provide {
                names: names(),
                correlation,
            })],
        ),
        (
            "RPC REQUEST",
            vec![Message::Rpc(Rpc::Request {
                call: Call {
                    name: NAME,
                    correlation: "1",
                },
                data,
                requestor_name: None,
                requestor_data: None,
            })],
        ),
        (
            "PRESENCE QUERY",
            presence(Presence::Query {
                names: names(),
                correlation,
            }),
        ),
        (
            "PRESENCE SUBSCRIBE",
            presence(Presence::Subscribe {
                names: names(),
                correlation,
            }),
        ),
        ("PRESENCE QUERY_ALL", presence(Presence::QueryAll)),
        ("PRESENCE SUBSCRIBE_ALL", presence(Presence::SubscribeAll)),
        (
            "PRESENCE SCOPE_JOIN",
            vec![Message::Scope(Scope::Join { name: NAME, state })],
        ),
        (
            "PRESENCE SCOPE_UPDATE",
            vec![Message::Scope(Scope::Update { name: NAME, state })],
        ),
        (
            "PRESENCE SCOPE_SUBSCRIBE",
            vec![Message::Scope(Scope::Subscribe { name: NAME })],
        ),
    ])
}

/// All effects of a message.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    answers: Seen,
    evaluations: usize,
    loads: Vec<String>,
    hops: usize,
    /// Turns that paid for the message's work, if the trace counts work.
    turns: usize,
}

fn stored() -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(1),
        version: Version(7),
        data: Payload::from_checked(&format!(r#"{{"open":false,"list":[],"text":"{SECRET}"}}"#)),
        write_keys: None,
    }
}

/// Sets up the state of the names, as another user.
fn set_scene(node: &mut Node, scene: Scene) {
    let owner = node.login_as_user(1, OWNER);
    let correlation = Some("0");
    let names = scene.names();
    for name in &names {
        node.store_has(name, stored());
        node.login_as_user(1, name);
    }
    if names.is_empty() {
        return;
    }
    node.send(
        owner,
        &Message::Event(Event::Subscribe {
            names: names.clone(),
            correlation,
            positions: Vec::new(),
        }),
    );
    for name in &names {
        let state = "1";
        node.send(owner, &Message::Scope(Scope::Join { name, state }));
        node.send(owner, &Message::Scope(Scope::Subscribe { name }));
    }
    node.send(owner, &Message::Rpc(Rpc::Provide { names, correlation }));
    if scene == Scene::InMemory {
        let names = vec![NAMES[2]];
        let action = RecordBulk::SubscribeAndRead;
        node.send(
            owner,
            &Message::Record(Record::Bulk {
                action,
                names,
                correlation,
            }),
        );
    }
}

/// Sends the message under the rules and waits for all its effects. With `counts_work` the session waits for each step of its
/// work.
fn trace(
    message: &Message<'_>,
    rules: &[(Access, Rule)],
    scene: Scene,
    counts_work: bool,
) -> Trace {
    let permission = permission_of(rules);
    let mut settings = Settings::default();
    if counts_work {
        settings.limits.connection_work_max = 1;
        settings.limits.turn_work_max = WORK_STEP;
    }
    let mut node = Node::with(2, settings, permission.clone());
    set_scene(&mut node, scene);
    let session = node.login_as_user(0, "asker");
    while node.turn() {}
    node.take(session);
    // The counts below start here.
    node.take_hops();
    node.take_loads();
    permission.take_asked();
    node.send(session, message);
    let mut turns = 0;
    while node.turn() {
        turns += 1;
        assert!(turns < 100_000, "the work never ends");
    }
    assert!((0..2).all(|shard| node.counts(shard).owing == 0));
    Trace {
        answers: node.take(session),
        evaluations: permission.take_asked(),
        loads: node.take_loads().iter().map(ToString::to_string).collect(),
        hops: node.take_hops(),
        turns,
    }
}

fn is_denied(seen: &Seen) -> bool {
    seen.iter()
        .any(|one| one.contains("Denied") || one.contains("RuleFailed"))
}

/// Rules that can deny, by the data that they read.
const DENYING: [Rule; 6] = [
    Rule::Deny,
    Rule::Fail,
    Rule::Record("gate"),
    Rule::Gate,
    Rule::Old,
    Rule::New,
];

fn is_of_records(access: Access) -> bool {
    use Access::{RecordCreate, RecordDelete, RecordNotify, RecordRead, RecordWrite};
    let records = [
        RecordCreate,
        RecordDelete,
        RecordNotify,
        RecordRead,
        RecordWrite,
    ];
    records.contains(&access)
}

#[test]
fn the_table_and_the_cases_have_the_same_actions() {
    let rows: BTreeSet<String> = rows().into_iter().map(|row| row.action).collect();
    let cases: BTreeSet<String> = cases().into_keys().map(String::from).collect();
    assert_eq!(rows, cases);
}

#[test]
fn each_action_asks_for_the_rights_of_its_row_and_no_others() {
    let cases = cases();
    for RightCase { action, rights } in rows() {
        for message in &cases[action.as_str()] {
            let denied_but = |granted: &[(Access, When)]| -> Vec<(Access, Rule)> {
                let is_granted = |access: &Access| granted.iter().any(|(known, _)| known == access);
                let denied = EVERY_ACCESS.iter().filter(|access| !is_granted(access));
                denied.map(|access| (*access, Rule::Deny)).collect()
            };
            for scene in Scene::EVERY {
                // In the scene `Some`, the message has names of both kinds.
                let rules = denied_but(&rights);
                let seen = trace(message, &rules, scene, false).answers;
                assert!(
                    !is_denied(&seen),
                    "{action} with all of its rights, {scene:?}: {seen:?}"
                );
                for (access, when) in &rights {
                    let seen = trace(message, &[(*access, Rule::Deny)], scene, false).answers;
                    let is_asked = *when == When::Always
                        || scene == Scene::Nothing
                        || scene == Scene::Some
                            && matches!(message, Message::Record(Record::Bulk { .. }));
                    assert_eq!(
                        is_denied(&seen),
                        is_asked,
                        "{action} without {access:?}, {scene:?}: {seen:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_denial_is_the_same_for_names_that_exist_and_names_that_do_not() {
    let cases = cases();
    for RightCase { action, rights } in rows() {
        for (access, when) in &rights {
            if *when == When::Missing {
                // This right applies only to missing records.
                continue;
            }
            for rule in DENYING {
                let needs_data = matches!(rule, Rule::Old | Rule::New);
                if needs_data && !is_of_records(*access)
                    || rule == Rule::New && *access != Access::RecordWrite
                {
                    continue;
                }
                // The session may not read the record either; a second rule denies that at once or after a read of another
                // record.
                for reading in [Rule::Deny, Rule::Gate] {
                    let rules = [(*access, rule), (Access::RecordRead, reading)];
                    for message in &cases[action.as_str()] {
                        let what = format!("{action} without {access:?} by {rule:?}, {reading:?}");
                        is_the_same_denial(message, &rules, &what);
                    }
                }
            }
        }
    }
}

/// Checks that a denial by the first rule is the same in every scene.
fn is_the_same_denial(message: &Message<'_>, rules: &[(Access, Rule)], what: &str) {
    let rule = rules[0].1;
    for counts_work in [false, true] {
        let missing = trace(message, rules, Scene::Nothing, counts_work);
        assert!(is_denied(&missing.answers), "{what}: {missing:?}");
        for scene in [Scene::All, Scene::Some, Scene::InMemory] {
            let mut there = trace(message, rules, scene, counts_work);
            if scene == Scene::InMemory {
                // A shard evaluates a rule first without the record only if the record is not in memory. A rule that reads the
                // record then needs no load, and the load counts as a step of work.
                there.evaluations = missing.evaluations;
                if rule == Rule::Old {
                    let gates = |trace: &Trace| -> BTreeSet<String> {
                        let loads = trace.loads.iter();
                        let gates = loads.filter(|name| name.starts_with("gate/"));
                        gates.cloned().collect()
                    };
                    assert_eq!(gates(&there), gates(&missing), "{what}, {scene:?}");
                    there.loads.clone_from(&missing.loads);
                    there.turns = missing.turns;
                }
            }
            if rule == Rule::New {
                // The shard must apply the patch before it can evaluate such a rule.
                there.turns = missing.turns;
            }
            assert_eq!(there, missing, "{what}, {scene:?}");
        }
    }
}

#[test]
fn no_answer_has_the_value_of_a_record_that_may_not_be_read() {
    for (action, messages) in cases() {
        for message in &messages {
            for rule in [Rule::Deny, Rule::Fail, Rule::Old, Rule::Gate] {
                for scene in Scene::EVERY {
                    let rules = [(Access::RecordRead, rule)];
                    let seen = trace(message, &rules, scene, false).answers;
                    let tells = seen.iter().any(|one| one.contains(SECRET));
                    assert!(!tells, "{action} with {rule:?}: {seen:?}");
                }
            }
        }
    }
}
