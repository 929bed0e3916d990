//! The other operations of a client: it calls and answers rpcs, listens to patterns, provides names, and watches users.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::random::Random;
use crate::right::Right;
use crate::wire::{CallSaid, Heard, RpcHeard, Said};

pub const RPCS: [&str; 3] = ["rpc/0", "rpc/1", "rpc/2"];
pub const RECORD_PATTERNS: [&str; 4] = ["^r/", "r/[01]$", "^ruled/", "^shut/"];
pub const EVENT_PATTERNS: [&str; 2] = ["^e/", "[0-9]$"];
/// All users that may be online.
pub const USERS: [&str; 4] = ["user0", "user1", "user2", "nobody"];

/// A call that the client must answer.
#[derive(Clone, Debug)]
struct Serving {
    name: String,
    id: String,
    data: String,
    accepted: bool,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Services {
    provided: BTreeSet<String>,
    serving: Vec<Serving>,
    patterns: BTreeSet<(bool, String)>,
    /// Patterns that the client has unlistened without an ack so far. Until the ack, notices belong to the earlier registration.
    ending: Vec<(bool, String)>,
    /// Names that the client believes to provide, by kind (true for records) and name, each with the pattern.
    pub providing: BTreeMap<(bool, String), String>,
    /// The seed of the tastes.
    pub salt: u64,
    watches_all: bool,
    watched: BTreeSet<String>,
    correlation: u64,
    /// The client answers every request and starts no operation.
    pub calm: bool,
}

impl Services {
    /// The connection is gone, and all state with it.
    pub fn lost(&mut self) {
        *self = Self {
            correlation: self.correlation,
            calm: self.calm,
            salt: self.salt,
            ..Self::default()
        };
    }

    /// Performs a random operation.
    pub fn act(&mut self, random: &mut Random, next_call: &mut u64) -> Vec<Said> {
        match random.below(12) {
            0..2 => self.change_provided(random),
            2..5 => {
                *next_call += 1;
                vec![Said::Call {
                    name: random.pick(&RPCS).to_string(),
                    id: format!("call{next_call}"),
                    data: next_call.to_string(),
                }]
            }
            5..7 => self.answer_one(random),
            7..9 => self.change_pattern(random),
            9 => self.change_watches(random),
            10 => vec![Said::QueryAll],
            _ => vec![self.query()],
        }
    }

    /// Queries the state of all users.
    pub fn query(&mut self) -> Said {
        Said::Query {
            users: USERS.map(str::to_owned).to_vec(),
            id: self.next_id(),
        }
    }

    /// Reads a message and answers some of them.
    pub fn hear(&mut self, heard: &Heard, random: &mut Random) -> Vec<Said> {
        match heard {
            Heard::Rpc {
                name,
                id,
                what: RpcHeard::Request(data),
            } => {
                self.serving.push(Serving {
                    name: name.clone(),
                    id: id.clone(),
                    data: data.clone(),
                    accepted: false,
                });
                if self.calm || random.chance(50) {
                    return self.answer_one(random);
                }
            }
            Heard::Found {
                records,
                pattern,
                name,
            } => return self.found(*records, pattern, name),
            Heard::Unlistened { records, pattern } => {
                let ended = self
                    .ending
                    .iter()
                    .position(|(of, ending)| of == records && ending == pattern);
                if let Some(index) = ended {
                    self.ending.remove(index);
                }
            }
            Heard::LoggedIn if !self.calm && !self.watches_all && random.chance(50) => {
                self.watches_all = true;
                return vec![Said::WatchAll];
            }
            Heard::Ended { right, .. } => return self.ended(right),
            Heard::Removed { records, name, .. } | Heard::ListenTimeout { records, name } => {
                self.providing.remove(&(*records, name.clone()));
            }
            _ => {}
        }
        Vec::new()
    }

    /// A holding was refused or has ended. The next request for it may be in flight already. The client takes that request back,
    /// so that it knows its state.
    fn ended(&mut self, right: &Right) -> Vec<Said> {
        let id = self.next_id();
        let said = match right {
            Right::Provide(name) => self.provided.remove(name).then(|| Said::Unprovide {
                names: vec![name.clone()],
                id,
            }),
            Right::Watch(None) => std::mem::take(&mut self.watches_all).then_some(Said::UnwatchAll),
            Right::Watch(Some(user)) => self.watched.remove(user).then(|| Said::Unwatch {
                users: vec![user.clone()],
                id,
            }),
            Right::Listen(records, pattern) => {
                let listened = (*records, pattern.clone());
                self.patterns
                    .contains(&listened)
                    .then(|| self.unlisten(listened))
            }
            Right::Event(_) | Right::Record(_) => None,
        };
        said.into_iter().collect()
    }

    fn unlisten(&mut self, listened: (bool, String)) -> Said {
        self.patterns.remove(&listened);
        let (records, pattern) = listened.clone();
        self.providing
            .retain(|(of, _), with| *of != records || *with != pattern);
        self.ending.push(listened);
        Said::Unlisten { records, pattern }
    }

    fn next_id(&mut self) -> String {
        self.correlation += 1;
        format!("s{}", self.correlation)
    }

    fn change_provided(&mut self, random: &mut Random) -> Vec<Said> {
        let name = random.pick(&RPCS).to_string();
        let id = self.next_id();
        let names = vec![name.clone()];
        if self.provided.remove(&name) {
            return vec![Said::Unprovide { names, id }];
        }
        self.provided.insert(name);
        vec![Said::Provide { names, id }]
    }

    fn answer_one(&mut self, random: &mut Random) -> Vec<Said> {
        if self.serving.is_empty() {
            return Vec::new();
        }
        let index = random.below(self.serving.len());
        let serving = &mut self.serving[index];
        let chosen = if self.calm { 5 } else { random.below(10) };
        let (what, data) = match chosen {
            0 | 1 => (CallSaid::Accept, None),
            2 => (CallSaid::Reject, None),
            3 => (CallSaid::Error, Some(serving.data.clone())),
            // The client never answers this call.
            4 if !serving.accepted => {
                self.serving.remove(index);
                return Vec::new();
            }
            _ => (CallSaid::Response, Some(serving.data.clone())),
        };
        let said = Said::Answer {
            what,
            name: serving.name.clone(),
            id: serving.id.clone(),
            data,
        };
        if what == CallSaid::Accept {
            serving.accepted = true;
        } else {
            self.serving.remove(index);
        }
        vec![said]
    }

    fn change_pattern(&mut self, random: &mut Random) -> Vec<Said> {
        let records = random.chance(60);
        let pattern = if records {
            random.pick(&RECORD_PATTERNS).to_string()
        } else {
            random.pick(&EVENT_PATTERNS).to_string()
        };
        let listened = (records, pattern.clone());
        if self.patterns.contains(&listened) {
            return vec![self.unlisten(listened)];
        }
        self.patterns.insert((records, pattern.clone()));
        vec![Said::Listen { records, pattern }]
    }

    fn found(&mut self, records: bool, pattern: &str, name: &str) -> Vec<Said> {
        let listened = (records, pattern.to_owned());
        if !self.patterns.contains(&listened) || self.ending.contains(&listened) {
            return Vec::new();
        }
        let key = (records, name.to_owned());
        let accepts = match self.taste(records, name) {
            Taste::Accepts => true,
            Taste::Rejects => false,
            Taste::Ignores => return Vec::new(),
        };
        if accepts {
            self.providing.insert(key, pattern.into());
        }
        vec![Said::ListenAnswer {
            records,
            pattern: pattern.into(),
            name: name.into(),
            accepts,
        }]
    }

    fn change_watches(&mut self, random: &mut Random) -> Vec<Said> {
        if random.chance(50) {
            self.watches_all = !self.watches_all;
            return vec![if self.watches_all {
                Said::WatchAll
            } else {
                Said::UnwatchAll
            }];
        }
        let user = random.pick(&USERS).to_string();
        let id = self.next_id();
        let users = vec![user.clone()];
        if self.watched.remove(&user) {
            return vec![Said::Unwatch { users, id }];
        }
        self.watched.insert(user);
        vec![Said::Watch { users, id }]
    }

    /// Whether the client provides the name with a pattern that it still listens to.
    pub fn provides(&self, records: bool, name: &str) -> bool {
        self.providing.contains_key(&(records, name.to_owned()))
    }

    /// Whether the client would provide the name: one of its patterns matches, and its taste accepts the name.
    pub fn would_provide(&self, records: bool, name: &str) -> bool {
        self.taste(records, name) == Taste::Accepts
            && self
                .patterns
                .iter()
                .any(|(of, pattern)| *of == records && is_match(pattern, name))
    }

    /// Answers to a "found" notice have no number, so a late answer counts for the next notice. Therefore both answers must be
    /// the same.
    fn taste(&self, records: bool, name: &str) -> Taste {
        let mixed = name.bytes().fold(self.salt, |mixed, byte| {
            mixed.rotate_left(7).wrapping_add(u64::from(byte))
        });
        match Random::new(mixed ^ u64::from(records)).below(10) {
            0..6 => Taste::Accepts,
            6..8 => Taste::Rejects,
            _ => Taste::Ignores,
        }
    }
}

/// The answer of a client when a name is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taste {
    Accepts,
    Rejects,
    Ignores,
}

/// Matches a pattern of the simulation without regular expressions.
fn is_match(pattern: &str, name: &str) -> bool {
    match pattern {
        "r/[01]$" => name.ends_with("r/0") || name.ends_with("r/1"),
        "[0-9]$" => name.ends_with(|last: char| last.is_ascii_digit()),
        prefix => name.starts_with(prefix.trim_start_matches('^')),
    }
}

/// The answer to [`Services::query`] for these users.
pub fn presence_of(online: &BTreeSet<String>) -> serde_json::Value {
    USERS
        .iter()
        .map(|user| ((*user).to_owned(), json!(online.contains(*user))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
