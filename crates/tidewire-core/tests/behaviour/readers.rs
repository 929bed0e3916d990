//! Subscribers whose right to read depends on data: the server authorizes them again before each change.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::message::{Change, Message, Record, RecordBulk, Write};
use tidewire_core::permission::{Access, AllowAll};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;

use crate::driver::{Node, Seen, foreign, set};
use crate::permission::{OWNER, Rule, TestPermission, permission_of};

const OPEN: &str = r#"{"open":true}"#;
const SHUT: &str = r#"{"open":false}"#;

fn bulk(action: RecordBulk, name: &str) -> Message<'_> {
    Message::Record(Record::Bulk {
        action,
        names: vec![name],
        correlation: Some("1"),
    })
}

fn subscribe(name: &str) -> Message<'_> {
    bulk(RecordBulk::SubscribeAndRead, name)
}

fn read(name: &str) -> Message<'_> {
    Message::Record(Record::Read { name })
}

fn changed<'a>(name: &'a str, change: Change<'a>) -> Message<'a> {
    let write = Write {
        name,
        version: -1,
        correlation: Some("1"),
        write_ack: true,
        key: None,
    };
    Message::Record(Record::Write(write, change))
}

fn patch<'a>(name: &'a str, path: &'a str, data: &'a str) -> Message<'a> {
    let data = Some(data);
    changed(name, Change::Patch { path, data })
}

/// A node with one rule for reading, its permission, and the owner, who may perform every operation.
struct Scene {
    node: Node,
    permission: Arc<TestPermission>,
    owner: SessionId,
}

/// A scene whose gates and record are open.
fn scene(rule: Rule, settings: Settings) -> Scene {
    let permission = permission_of(&[(Access::RecordRead, rule)]);
    let mut node = Node::with(2, settings, permission.clone());
    let owner = node.login_as_user(0, OWNER);
    for name in ["gate", "gate/r", "r"] {
        node.ask(owner, &set(name, OPEN));
    }
    Scene {
        node,
        permission,
        owner,
    }
}

impl Scene {
    /// Logs in as a user and subscribes to the record.
    fn reader(&mut self, shard: u16, user: &str) -> SessionId {
        let reader = self.node.login_as_user(shard, user);
        self.subscribe(reader);
        reader
    }

    /// As [`Scene::reader`], for a client that coalesces.
    fn coalescing(&mut self, user: &str) -> SessionId {
        let principal = Arc::new(Principal::new(user.into()));
        self.node.login_outcome = Some(AuthOutcome::Accepted(principal));
        let coalescing = self.node.login_coalescing(0);
        self.node.login_outcome = None;
        self.subscribe(coalescing);
        coalescing
    }

    fn subscribe(&mut self, reader: SessionId) {
        let seen = self.node.ask(reader, &subscribe("r"));
        says(&seen, &["Ack {", "ReadResponse {"]);
    }

    fn write(&mut self, name: &str, data: &str) {
        let seen = self.node.ask(self.owner, &set(name, data));
        says(&seen, &["WriteAck {"]);
    }

    #[track_caller]
    fn hears(&mut self, reader: SessionId, expected: &[&str]) {
        says(&self.node.take(reader), expected);
    }
}

#[track_caller]
fn says(seen: &Seen, expected: &[&str]) {
    let as_expected = seen.len() == expected.len()
        && seen
            .iter()
            .zip(expected)
            .all(|(seen, expected)| seen.contains(expected));
    assert!(as_expected, "{seen:#?}, expected {expected:?}");
}

#[test]
fn a_right_that_another_record_took_is_lost_before_the_next_change() {
    for rule in [Rule::Record("gate"), Rule::Gate] {
        let gate = if rule == Rule::Gate { "gate/r" } else { "gate" };
        let mut scene = scene(rule, Settings::default());
        let readers = [scene.reader(0, "ann"), scene.reader(1, "bob")];
        let admin = scene.node.login_as_user(1, OWNER);
        scene.subscribe(admin);
        scene.write("r", r#"{"n":1}"#);
        for reader in readers {
            scene.hears(reader, &["version: 2"]);
        }
        scene.write(gate, SHUT);
        for reader in readers {
            scene.hears(reader, &[]);
        }
        scene.write("r", r#"{"n":2}"#);
        scene.write("r", r#"{"n":3}"#);
        for reader in readers {
            scene.hears(reader, &["Error(Refusal { reason: Denied"]);
        }
        scene.node.take(admin);
        scene.write("r", r#"{"n":4}"#);
        scene.hears(admin, &["version: 5"]);
        let lost: u64 = [0, 1]
            .map(|shard| scene.node.counts(shard).rights_lost)
            .iter()
            .sum();
        assert_eq!(lost, 2, "{rule:?}");
        // When the session has the right again, it can subscribe again.
        scene.write(gate, OPEN);
        scene.subscribe(readers[0]);
        scene.write("r", r#"{"n":5}"#);
        scene.hears(readers[0], &["version: 6"]);
    }
}

#[test]
fn a_change_that_takes_the_right_away_is_not_shown() {
    let changes: [Message<'_>; 4] = [
        set("r", SHUT),
        patch("r", "open", "false"),
        changed("r", Change::Erase { path: Some("open") }),
        changed(
            "r",
            Change::PatchMulti {
                data: Some(r#"[{"path":"n","data":1},{"path":"open","data":0}]"#),
                full: None,
            },
        ),
    ];
    for change in &changes {
        let mut scene = scene(Rule::Old, Settings::default());
        let readers = [scene.reader(0, "ann"), scene.reader(1, "ann")];
        let answer = scene.node.ask(scene.owner, &patch("r", "n", "7"));
        says(&answer, &["WriteAck {"]);
        for reader in readers {
            scene.hears(reader, &["version: 2"]);
        }
        says(&scene.node.ask(scene.owner, change), &["WriteAck {"]);
        for reader in readers {
            scene.hears(reader, &["Error(Refusal { reason: Denied"]);
            says(
                &scene.node.ask(reader, &read("r")),
                &["Error(Refusal { reason: Denied"],
            );
        }
    }
}

#[test]
fn a_session_that_removes_its_own_right_loses_its_subscription() {
    let mut scene = scene(Rule::Old, Settings::default());
    let reader = scene.reader(1, "ann");
    let seen = scene.node.ask(reader, &set("r", SHUT));
    assert!(
        seen.iter()
            .any(|seen| seen.contains("Error(Refusal { reason: Denied")),
        "{seen:?}"
    );
    scene.write("r", OPEN);
    scene.hears(reader, &[]);
}

#[test]
fn sessions_that_a_rule_cannot_tell_apart_are_authorized_once() {
    let mut scene = scene(Rule::Old, Settings::default());
    for _ in 0..10 {
        scene.reader(0, "ann");
        scene.reader(1, "bob");
    }
    scene.permission.take_asked();
    scene.write("r", r#"{"open":true,"n":1}"#);
    assert_eq!(scene.permission.take_asked(), 2);
    // The server does not evaluate a rule again that reads no data.
    let mut fixed = self::scene(Rule::Allow, Settings::default());
    fixed.reader(0, "ann");
    fixed.permission.take_asked();
    fixed.write("r", OPEN);
    assert_eq!(fixed.permission.take_asked(), 0);
}

#[test]
fn while_a_rule_waits_for_another_record_everything_keeps_its_order() {
    let mut scene = scene(Rule::Gate, Settings::default());
    let ann = scene.reader(0, "ann");
    let late = scene.node.login_as_user(1, "bob");
    // The gate is no longer in memory.
    for shard in 0..2 {
        scene.node.shrink_cache(shard, usize::MAX);
    }
    scene.node.store_hangs = true;
    for number in 1..=3 {
        let data = format!(r#"{{"n":{number}}}"#);
        scene.node.send(scene.owner, &set("r", &data));
    }
    scene.node.send(late, &subscribe("r"));
    scene.hears(ann, &[]);
    scene.hears(late, &["Ack {"]);
    scene.node.answer_store();
    scene.hears(ann, &["version: 2", "version: 3", "version: 4"]);
    scene.hears(late, &["ReadResponse { name: \"r\", version: 4"]);
    says(&scene.node.take(scene.owner), &["WriteAck {"; 3]);
}

#[test]
fn a_rule_whose_record_cannot_be_read_ends_the_subscription() {
    let mut scene = scene(Rule::Gate, Settings::default());
    let ann = scene.reader(1, "ann");
    for shard in 0..2 {
        scene.node.shrink_cache(shard, usize::MAX);
    }
    scene.node.loads_fail = true;
    scene.write("r", r#"{"n":1}"#);
    scene.hears(ann, &["Error(Refusal { reason: RuleFailed"]);
}

#[test]
fn a_session_that_lags_is_authorized_when_it_catches_up() {
    for rule in [Rule::Gate, Rule::Old] {
        let mut scene = scene(rule, Settings::default());
        let (ann, bob) = (scene.coalescing("ann"), scene.coalescing("bob"));
        for coalescing in [ann, bob] {
            scene.node.lag(coalescing);
        }
        scene.write("r", r#"{"open":true,"n":1}"#);
        scene.node.drained(ann);
        scene.hears(ann, &["version: 2"]);
        match rule {
            Rule::Gate => scene.write("gate/r", SHUT),
            _ => scene.write("r", SHUT),
        }
        scene.node.drained(bob);
        let lost = scene.node.take(bob);
        says(&lost, &["Error(Refusal { reason: Denied"]);
        scene.write("r", OPEN);
        scene.hears(bob, &[]);
        assert_eq!(scene.node.counts(0).lag.sessions, 0);
        assert_eq!(scene.node.counts(0).lagging_names, 0);
    }
}

#[test]
fn an_answer_to_a_slow_session_comes_after_the_change_being_authorized() {
    let mut scene = scene(Rule::Gate, Settings::default());
    let ann = scene.coalescing("ann");
    scene.node.lag(ann);
    scene.write("r", r#"{"n":1}"#);
    for shard in 0..2 {
        scene.node.shrink_cache(shard, usize::MAX);
    }
    scene.node.store_hangs = true;
    scene.node.send(scene.owner, &set("r", r#"{"n":2}"#));
    scene.node.drained(ann);
    scene.hears(ann, &[]);
    scene.node.answer_store();
    scene.hears(ann, &["version: 3"]);
    scene.node.take(scene.owner);
    scene.write("r", r#"{"n":3}"#);
    scene.hears(ann, &["version: 4"]);
}

#[test]
fn more_readers_than_a_turn_takes_are_authorized_in_several() {
    let mut settings = Settings::default();
    settings.limits.connection_work_max = 512 << 10;
    let mut scene = scene(Rule::Old, settings);
    let readers: Vec<_> = (0..1_200)
        .map(|number| scene.reader(number % 2, &format!("user{number}")))
        .collect();
    let asked_before = scene.permission.take_asked();
    assert_eq!(asked_before, 1_200);
    scene
        .node
        .send(scene.owner, &set("r", r#"{"open":true,"n":1}"#));
    scene.node.send(scene.owner, &set("r", SHUT));
    scene.hears(readers[0], &[]);
    let first = scene.permission.take_asked();
    assert_eq!(first, 500);
    let mut turns = 0;
    while scene.node.turn() {
        turns += 1;
        let asked = scene.permission.take_asked();
        assert!(asked <= 1_000, "{asked} in one turn");
    }
    assert_eq!(turns, 3);
    // The readers of the first slice lose their right before the server sends anything in the turn.
    let mut shown = 0;
    for reader in readers {
        let mut seen = scene.node.take(reader);
        let last = seen.pop().unwrap_or_default();
        assert!(last.contains("Error(Refusal { reason: Denied"), "{last}");
        shown += seen.len();
        assert!(
            seen.iter().all(|seen| seen.contains("version: 2")),
            "{seen:?}"
        );
    }
    assert_eq!(shown, 700);
}

#[test]
fn an_ended_subscription_is_not_authorized_again() {
    let mut scene = scene(Rule::Old, Settings::default());
    let (ann, bob) = (scene.reader(0, "ann"), scene.reader(1, "bob"));
    scene.node.ask(ann, &bulk(RecordBulk::Unsubscribe, "r"));
    scene.node.close(bob);
    scene.permission.take_asked();
    scene.write("r", SHUT);
    assert_eq!(scene.permission.take_asked(), 0);
    scene.hears(ann, &[]);
    // The record leaves nothing in memory.
    let bytes: usize = (0..2)
        .map(|shard| scene.node.counts(shard).record_bytes)
        .sum();
    let mut other = self::scene(Rule::Old, Settings::default());
    other.write("r", SHUT);
    let expected: usize = (0..2)
        .map(|shard| other.node.counts(shard).record_bytes)
        .sum();
    assert_eq!(bytes, expected);
}

#[test]
fn rules_that_begin_to_depend_on_data_apply_to_open_subscriptions() {
    let mut scene = scene(Rule::Allow, Settings::default());
    let (ann, bob) = (scene.reader(0, "ann"), scene.reader(1, "bob"));
    let by_data = permission_of(&[(Access::RecordRead, Rule::Old)]);
    scene.node.set_rules(by_data.clone());
    scene.node.ask(bob, &bulk(RecordBulk::Unsubscribe, "r"));
    by_data.take_asked();
    scene.write("r", SHUT);
    assert_eq!(by_data.take_asked(), 1);
    scene.hears(ann, &["Error(Refusal { reason: Denied"]);
    scene.write("r", OPEN);
    scene.subscribe(ann);
    // After the change, the server does not evaluate rules again that read no data.
    scene.node.set_rules(Arc::new(AllowAll));
    scene.write("r", SHUT);
    scene.hears(ann, &["version: 4"]);
    assert_eq!(by_data.take_asked(), 1);
}

#[test]
fn a_record_that_is_made_again_has_no_readers_from_before() {
    let mut scene = scene(Rule::Old, Settings::default());
    let ann = scene.reader(1, "ann");
    let delete = Message::Record(Record::Delete { name: "r" });
    scene.node.ask(scene.owner, &delete);
    scene.hears(ann, &["Deleted {"]);
    scene.write("r", OPEN);
    scene.permission.take_asked();
    scene.write("r", SHUT);
    assert_eq!(scene.permission.take_asked(), 0);
    scene.hears(ann, &[]);
}

#[test]
fn changes_by_another_server_are_authorized_too() {
    let mut scene = scene(Rule::Old, Settings::default());
    let ann = scene.reader(1, "ann");
    scene.node.store_has("r", foreign(9));
    let answer = scene
        .node
        .ask(scene.owner, &set("r", r#"{"open":true,"n":1}"#));
    says(&answer, &["Error(Refusal { reason: UpdateFailed"]);
    scene.hears(ann, &["Error(Refusal { reason: Denied"]);

    let mut scene = self::scene(Rule::Old, Settings::default());
    let ann = scene.reader(1, "ann");
    scene.node.store_has("r", foreign(9));
    scene.node.ask(scene.owner, &bulk(RecordBulk::Notify, "r"));
    scene.node.pass(Duration::from_secs(1));
    scene.hears(ann, &["Error(Refusal { reason: Denied"]);
}
