//! Listening by rules, with the engine around them: a session learns of a name, and provides it, only if the `listen` rule allows it
//! this very name, whatever its patterns match.

#[expect(dead_code, reason = "the driver serves other tests of the engine, too")]
#[path = "../../tidewire-core/tests/behaviour/driver.rs"]
mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use driver::Node;
use tidewire_core::address::SessionId;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::message::{Event, Listen, Message, Record, RecordBulk};
use tidewire_core::permission::{
    Access, AllowAll, Decision, Permission, Question, RequestedAction,
};
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load;
use tidewire_rules::set::RuleSet;

const USERS: [&str; 3] = ["ann", "bob", "carl"];
const PATTERNS: usize = 10_000;
const PATTERNS_OF_A_RUN: usize = 50;

/// A small generator (xorshift64*), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn text(&mut self, parts: &[&str], most: usize) -> String {
        (0..=self.below(most)).map(|_| self.pick(parts)).collect()
    }
}

fn name(random: &mut Random) -> String {
    random.text(&["a", "b", "/", "ann", "bob", "price/", "secret/", "é"], 4)
}

fn pattern(random: &mut Random) -> String {
    let parts = [
        "a",
        "b",
        "/",
        "ann",
        "bob",
        "price/",
        "secret/",
        "é",
        ".",
        ".*",
        "|",
        "^",
        "$",
        "?",
        "+",
        "*",
        "(a|b)",
        "[^a]",
        "(?i)",
        r"\w",
        r"\/",
        "{0,2}",
        "()",
        "(price/|)",
    ];
    random.text(&parts, 5)
}

fn rules(random: &mut Random) -> String {
    let mut rules = String::new();
    for section in ["record", "event"] {
        rules += &format!(
            "{section}:\n  \"*\": {{ {}, listen: {} }}\n",
            if section == "record" {
                "create: true, read: true, write: true, delete: true, notify: true"
            } else {
                "publish: true, subscribe: true"
            },
            random.pick(&["false", "true", "\"user.id === 'ann'\""]),
        );
        let paths = [
            "price/*", "secret/*", "a*", "*b", "$x", "$x/*", "price/$x", "ann/*", ".*", "*/ann",
            "a.b",
        ];
        let bodies = [
            "true",
            "false",
            "\"user.id === 'ann'\"",
            "\"user.id !== 'bob'\"",
            "\"name.includes('b')\"",
            "\"_('acl/' + user.id).open === true\"",
            "\"user.data.none.x\"",
        ];
        let mut known = BTreeSet::new();
        for _ in 0..random.below(5) {
            let path = random.pick(&paths);
            if known.insert(path) {
                let body = if path.contains("$x") && random.below(2) == 0 {
                    "\"$x === user.id\""
                } else {
                    random.pick(&bodies)
                };
                rules += &format!("  \"{path}\": {{ listen: {body} }}\n");
            }
        }
    }
    rules + "rpc:\n  \"*\": { provide: true, request: true }\npresence:\n  \"*\": { allow: true }\n"
}

fn parse(text: &str) -> RuleSet {
    load::parse(text, "permissions.yml", &RuleLimits::default())
        .unwrap_or_else(|errors| panic!("{errors:?}: {text}"))
}

/// The decision of the rule about a name itself.
fn is_allowed(
    rules: &RuleSet,
    user: &str,
    access: Access,
    name: &str,
    open: &BTreeMap<&str, bool>,
) -> bool {
    let values: Vec<(Name, Option<Payload>)> = open
        .iter()
        .map(|(user, open)| {
            let data = Payload::from_checked(&format!("{{\"open\":{open}}}"));
            (Name::from(format!("acl/{user}").as_str()), Some(data))
        })
        .collect();
    let principal = Principal::new(Name::from(user));
    rules.decide(&Question {
        principal: &principal,
        access,
        by: RequestedAction::Plainly,
        name: Some(name),
        data: None,
        old_data: None,
        now: WallTime(1),
        values: &values,
    }) == Decision::Allow
}

fn listening(access: Access, message: Listen<'_>) -> Message<'_> {
    match access {
        Access::RecordListen => Message::Record(Record::Listen(message)),
        _ => Message::Event(Event::Listen(message)),
    }
}

/// The information of a listener about a name.
struct Heard {
    access: Access,
    is_found: bool,
    pattern: String,
    name: String,
}

fn heard(seen: &[String]) -> Vec<Heard> {
    let unquote = |text: &str| text.to_owned();
    let of_names = |seen: &&String| {
        ["Listen(Found", "Listen(Removed", "Listen(ResponseTimeout"]
            .iter()
            .any(|kind| seen.contains(kind))
    };
    seen.iter()
        .filter(of_names)
        .map(|seen| {
            let quoted: Vec<&str> = seen.split('"').collect();
            let is_found = seen.contains("Listen(Found");
            let name = if quoted.len() > 3 {
                quoted[3]
            } else {
                quoted[1]
            };
            Heard {
                access: if seen.starts_with("Record") {
                    Access::RecordListen
                } else {
                    Access::EventListen
                },
                is_found,
                // Debug text escapes backslashes.
                pattern: unquote(quoted[1]).replace("\\\\", "\\"),
                name: unquote(name),
            }
        })
        .collect()
}

struct World {
    node: Node,
    listeners: Vec<(SessionId, &'static str)>,
    rules: RuleSet,
    text: String,
    open: BTreeMap<&'static str, bool>,
    /// What each listener has accepted and not lost, with the pattern.
    provides: BTreeMap<(usize, bool, String), String>,
    offers: usize,
}

impl World {
    /// Reads the listeners' messages, and accepts or declines the offered names.
    fn hear(&mut self, random: &mut Random) {
        loop {
            self.node.finish_work();
            let mut has_heard = false;
            for index in 0..self.listeners.len() {
                let (session, user) = self.listeners[index];
                for heard in heard(&self.node.take(session)) {
                    has_heard = true;
                    let Heard {
                        access,
                        is_found,
                        pattern,
                        name,
                    } = heard;
                    let key = (index, access == Access::RecordListen, name.clone());
                    if !is_found {
                        self.provides.remove(&key);
                        continue;
                    }
                    self.offers += 1;
                    assert!(
                        is_allowed(&self.rules, user, access, &name, &self.open),
                        "{user} learns of {name} by {pattern} in spite of\n{}",
                        self.text
                    );
                    let (pattern, subscription) = (pattern.as_str(), name.as_str());
                    let answer = match random.below(3) {
                        0 => Listen::Reject {
                            pattern,
                            subscription,
                        },
                        _ => {
                            self.provides.insert(key, pattern.to_owned());
                            Listen::Accept {
                                pattern,
                                subscription,
                            }
                        }
                    };
                    self.node.send(session, &listening(access, answer));
                }
            }
            if !has_heard {
                return;
            }
        }
    }

    /// No listener provides a name that its rule denies.
    fn check(&self) {
        for (index, is_record, name) in self.provides.keys() {
            let access = if *is_record {
                Access::RecordListen
            } else {
                Access::EventListen
            };
            let user = self.listeners[*index].1;
            assert!(
                is_allowed(&self.rules, user, access, name, &self.open),
                "{user} still provides {name} in spite of\n{}",
                self.text
            );
        }
    }
}

fn run(seed: u64) -> (usize, usize) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let text = rules(&mut random);
    let mut node = Node::with(2, Settings::default(), Arc::new(AllowAll));
    let writer = node.login();
    let mut open = BTreeMap::new();
    for user in USERS {
        let is_open = random.below(2) == 0;
        open.insert(user, is_open);
        let data = format!("{{\"open\":{is_open}}}");
        node.ask(writer, &driver::set(&format!("acl/{user}"), &data));
    }
    node.set_rules(Arc::new(parse(&text)));
    let mut listeners = Vec::new();
    for (index, user) in USERS.into_iter().enumerate() {
        let principal = Principal::new(Name::from(user));
        node.login_outcome = Some(AuthOutcome::Accepted(Arc::new(principal)));
        listeners.push((node.login_on(index as u16 % 2), user));
    }
    let mut world = World {
        node,
        listeners,
        rules: parse(&text),
        text,
        open,
        provides: BTreeMap::new(),
        offers: 0,
    };
    let names: Vec<String> = (0..40).map(|_| name(&mut random)).collect();
    let (early, late) = names.split_at(20);
    let subscribe = |world: &mut World, names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let records = Record::Bulk {
            action: RecordBulk::SubscribeAndRead,
            names: names.clone(),
            correlation: Some("1"),
        };
        let events = Event::Subscribe {
            names,
            correlation: Some("1"),
            positions: Vec::new(),
        };
        world.node.ask(writer, &Message::Record(records));
        world.node.ask(writer, &Message::Event(events));
    };
    subscribe(&mut world, early);
    let mut taken = 0;
    for _ in 0..PATTERNS_OF_A_RUN {
        let pattern = pattern(&mut random);
        let access = [Access::RecordListen, Access::EventListen][random.below(2)];
        let (session, _) = world.listeners[random.below(USERS.len())];
        let listen = listening(access, Listen::Listen { pattern: &pattern });
        // A session compiles few patterns in one turn, and pays for their costs in the next ones.
        while !world.node.offer(session, &listen) {
            world.node.pass(Duration::from_nanos(1));
            world.node.turn();
        }
        taken += 1;
        if random.below(8) == 0 {
            world.hear(&mut random);
        }
    }
    subscribe(&mut world, late);
    world.hear(&mut random);
    world.check();
    // Silence, declines and the offers that follow them.
    world.node.pass(Duration::from_millis(501));
    world.hear(&mut random);
    world.node.pass(Duration::from_secs(31));
    world.hear(&mut random);
    world.check();
    // Other rules: the listeners lose the names that these deny.
    world.text = rules(&mut random);
    world.rules = parse(&world.text);
    world.node.set_rules(Arc::new(parse(&world.text)));
    for (index, user) in USERS.iter().enumerate() {
        let (session, _) = world.listeners[index];
        let seen = world.node.take(session);
        // A pattern that is lost ends with all its names.
        for seen in seen.iter().filter(|seen| seen.contains("Error(")) {
            let is_record = seen.starts_with("Record");
            let lost = seen.split('"').nth(1).unwrap_or_default();
            let lost = lost.replace("\\\\", "\\");
            let is_lost = |key: &(usize, bool, String), pattern: &String| {
                key.0 == index && key.1 == is_record && *pattern == lost
            };
            world.provides.retain(|key, pattern| !is_lost(key, pattern));
        }
        for Heard {
            access,
            is_found,
            name,
            ..
        } in heard(&seen)
        {
            let key = (index, access == Access::RecordListen, name.clone());
            if is_found {
                assert!(is_allowed(&world.rules, user, access, &name, &world.open));
            } else {
                world.provides.remove(&key);
            }
        }
    }
    world.check();
    (taken, world.offers)
}

#[test]
fn a_listener_never_learns_of_or_provides_a_name_that_its_rule_denies() {
    let (mut patterns, mut offers, mut seed) = (0, 0, 0);
    while patterns < PATTERNS {
        let (taken, offered) = run(seed);
        patterns += taken;
        offers += offered;
        seed += 1;
    }
    assert!(offers > PATTERNS / 4, "too little was offered: {offers}");
}

#[test]
fn a_pattern_outside_of_what_is_allowed_is_refused_at_once() {
    let text = r#"
record:
  "*":             { create: true, read: true, write: true, delete: true, notify: true, listen: false }
  "price/*":       { listen: true }
  "price/old/*":   { listen: false }
  "own/$user/*":   { listen: "$user === user.id" }
  "shop/*":        { listen: "user.id === 'bob'" }
event:
  "*": { publish: true, subscribe: true, listen: true }
rpc:
  "*": { provide: true, request: true }
presence:
  "*": { allow: true }
"#;
    for (pattern, expected) in [
        ("price/.*", "ListenAck"),
        ("^price/", "ListenAck"),
        ("^pri", "ListenAck"),
        (".*", "ListenAck"),
        ("price/|.*", "ListenAck"),
        ("own/.*", "ListenAck"),
        ("secret/.*", "Denied"),
        ("^secret/", "Denied"),
        ("^prices/", "Denied"),
        ("^price/old/", "Denied"),
        ("shop/.*", "Denied"),
        ("^price/(", "InvalidPattern"),
    ] {
        let mut node = Node::with(1, Settings::default(), Arc::new(parse(text)));
        let session = node.login();
        let answer = node.ask(
            session,
            &listening(Access::RecordListen, Listen::Listen { pattern }),
        );
        assert!(answer[0].contains(expected), "{pattern}: {answer:?}");
    }
}
