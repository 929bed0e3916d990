//! The clients of a run, their messages, and the answers that they still have to get.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidewire_core::address::SessionId;
use tidewire_core::message::{
    Call, Change, Event, Listen, Message, Only, Position, Presence, Record, RecordBulk, Rpc, Write,
};

use crate::heard::Wait;
use crate::permission::GATES;
use crate::random::Random;

pub const RECORDS: [&str; 10] = [
    "a", "b", "c", "d", "g/a", "g/b", "g/c", GATES[0], GATES[1], GATES[2],
];
pub const EVENTS: [&str; 10] = [
    "e/a", "e/b", "g/a", "g/b", "g/c", "kept/a", "kept/b", "kept/c", "stored/a", "stored/b",
];
const EVENT_PATTERNS: [&str; 4] = ["e/*", "g/*", "kept/*", "**"];
pub const RPCS: [&str; 6] = ["r/a", "r/b", "r/c", "g/a", "g/b", "g/c"];
/// Patterns to listen with.
const LISTENS: [&str; 4] = ["^[abcd]$", "g/", "e/", "^gate"];
pub const USERS: [&str; 6] = ["ann", "bob", "cid", "dan", "eve", "fay"];

/// A message of a client.
#[derive(Clone, Debug)]
pub enum Said {
    Records(RecordBulk, Vec<&'static str>, String),
    Read(&'static str),
    Head(&'static str),
    Fetch(&'static str, String),
    Write(&'static str, Option<String>, usize),
    Put(&'static str, String),
    Delete(&'static str),
    Emit(&'static str),
    Events(Vec<&'static str>, String, bool),
    LeaveEvent(&'static str),
    EventPattern(&'static str, String),
    LeaveEventPattern(&'static str),
    Provide(Vec<&'static str>, String),
    Unprovide(&'static str, String),
    Call(&'static str, String),
    Accept(String, String),
    Reject(String, String),
    Respond(String, String),
    Query(Vec<&'static str>, String),
    QueryAll,
    Watch(&'static str, String),
    WatchAll,
    Listen(bool, &'static str),
    Unlisten(bool, &'static str),
    Found(bool, String, String, bool),
}

/// A client with its session.
#[derive(Debug)]
pub struct Client {
    pub session: SessionId,
    pub user: &'static str,
    pub inbox: VecDeque<Said>,
    /// The shard made the first message of the inbox wait.
    pub waits: bool,
    /// Requests without an answer.
    pub awaits: BTreeMap<Wait, i64>,
    pub provided: BTreeSet<&'static str>,
    pub listens: BTreeSet<(bool, &'static str)>,
    pub watches_all: bool,
    /// The last change of each user's presence that the client has received.
    pub online: BTreeMap<String, bool>,
    /// The answer to the last query of all users.
    pub queried: Vec<String>,
    pub answers: usize,
}

impl Client {
    pub fn new(session: SessionId, user: &'static str) -> Self {
        Self {
            session,
            user,
            inbox: VecDeque::new(),
            waits: false,
            awaits: BTreeMap::new(),
            provided: BTreeSet::new(),
            listens: BTreeSet::new(),
            watches_all: false,
            online: BTreeMap::new(),
            queried: Vec::new(),
            answers: 0,
        }
    }

    /// Whether the message ends a subscription whose request has no answer yet, and would get none.
    pub fn is_early(&self, said: &Said) -> bool {
        let Said::Records(RecordBulk::Unsubscribe, names, _) = said else {
            return false;
        };
        let mut names = names.iter();
        names.any(|name| self.awaits.contains_key(&Wait::Value((*name).to_owned())))
    }

    /// Notes that the shard has taken a message.
    pub fn took(&mut self, said: &Said) {
        for wait in waits(said) {
            *self.awaits.entry(wait).or_default() += 1;
        }
        match said {
            Said::Provide(names, _) => self.provided.extend(names),
            Said::Unprovide(name, _) => {
                self.provided.remove(name);
            }
            Said::Listen(topic, pattern) => {
                self.listens.insert((*topic, pattern));
            }
            Said::Unlisten(topic, pattern) => {
                self.listens.remove(&(*topic, *pattern));
            }
            Said::WatchAll => self.watches_all = true,
            _ => {}
        }
    }

    /// Notes an answer. Returns whether the client has waited for it.
    pub fn answered(&mut self, wait: Wait) -> bool {
        self.answers += 1;
        let Some(count) = self.awaits.get_mut(&wait) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.awaits.remove(&wait);
        }
        true
    }
}

/// The answers that a message must get.
fn waits(said: &Said) -> Vec<Wait> {
    let id = |id: &String| vec![Wait::Id(id.clone())];
    match said {
        Said::Records(action, names, _) if action.reads() => {
            let names = names.iter();
            names.map(|name| Wait::Value((*name).to_owned())).collect()
        }
        Said::Records(RecordBulk::Unsubscribe, ..) => Vec::new(),
        Said::Read(name) => vec![Wait::Value((*name).to_owned())],
        Said::Head(name) => vec![Wait::Head((*name).to_owned())],
        Said::Delete(name) => vec![Wait::Gone((*name).to_owned())],
        Said::Write(_, correlation, _) => correlation.iter().flat_map(id).collect(),
        Said::Records(_, _, of)
        | Said::Fetch(_, of)
        | Said::Put(_, of)
        | Said::Events(_, of, _)
        | Said::EventPattern(_, of)
        | Said::Provide(_, of)
        | Said::Unprovide(_, of)
        | Said::Call(_, of)
        | Said::Query(_, of)
        | Said::Watch(_, of) => id(of),
        Said::QueryAll => vec![Wait::All],
        Said::Listen(topic, pattern) => vec![Wait::Listen(*topic, (*pattern).to_owned())],
        Said::Unlisten(topic, pattern) => vec![Wait::Unlisten(*topic, (*pattern).to_owned())],
        _ => Vec::new(),
    }
}

/// The next message of a client.
pub fn draw(random: &mut Random, client: &Client, id: String) -> Said {
    let record = pick(random, &RECORDS);
    let event = pick(random, &EVENTS);
    let rpc = pick(random, &RPCS);
    let user = pick(random, &USERS);
    let other = pick(random, &RECORDS);
    match random.below(100) {
        0..9 => Said::Records(
            RecordBulk::SubscribeCreateAndRead,
            distinct(record, other),
            id,
        ),
        9..12 => Said::Records(RecordBulk::Subscribe, vec![record], id),
        12..15 => Said::Records(RecordBulk::Notify, vec![record], id),
        15..18 => Said::Records(RecordBulk::Unsubscribe, vec![record], id),
        18..21 => Said::Read(record),
        21..23 => Said::Head(record),
        23..25 => Said::Fetch(record, id),
        25..36 => Said::Write(
            record,
            Some(id).filter(|_| random.chance(70)),
            random.below(3_000),
        ),
        36..39 => Said::Put(record, id),
        39..41 => Said::Delete(record),
        41..48 => Said::Emit(event),
        48..56 => Said::Events(ruled(event, pick(random, &EVENTS)), id, random.chance(60)),
        56..58 => Said::LeaveEvent(event),
        58..61 => Said::EventPattern(pick(random, &EVENT_PATTERNS), id),
        61..62 => Said::LeaveEventPattern(pick(random, &EVENT_PATTERNS)),
        62..69 => {
            let names = ruled(rpc, pick(random, &RPCS));
            Said::Provide(names, id)
        }
        69..71 if client.provided.contains(rpc) => Said::Unprovide(rpc, id),
        69..81 => Said::Call(rpc, id),
        81..85 => Said::Query(distinct(user, pick(random, &USERS)), id),
        85..87 => Said::QueryAll,
        87..89 => Said::Watch(user, id),
        89..91 => Said::WatchAll,
        91..98 => Said::Listen(random.chance(50), pick(random, &LISTENS)),
        _ => Said::Unlisten(random.chance(50), pick(random, &LISTENS)),
    }
}

fn pick(random: &mut Random, names: &[&'static str]) -> &'static str {
    random.pick::<&'static str>(names)
}

fn distinct(one: &'static str, other: &'static str) -> Vec<&'static str> {
    match one == other {
        true => vec![one],
        false => vec![one, other],
    }
}

/// A rule may refuse one of several names, which then has an answer of its own.
fn ruled(one: &'static str, other: &'static str) -> Vec<&'static str> {
    match one.starts_with("g/") || other.starts_with("g/") {
        true => vec![one],
        false => distinct(one, other),
    }
}

/// Calls `give` with the message.
pub fn with_message<T>(said: &Said, give: impl FnOnce(&Message<'_>) -> T) -> T {
    let data;
    let message = match said {
        Said::Records(action, names, id) => Message::Record(Record::Bulk {
            action: *action,
            names: names.clone(),
            correlation: Some(id),
        }),
        Said::Read(name) => Message::Record(Record::Read { name }),
        Said::Head(name) => Message::Record(Record::Head { name }),
        Said::Fetch(name, correlation) => Message::Record(Record::Fetch { name, correlation }),
        Said::Write(name, id, bytes) => {
            data = format!(r#"{{"p":"{}"}}"#, "x".repeat(*bytes));
            let write = Write {
                name,
                version: -1,
                correlation: id.as_deref(),
                write_ack: id.is_some(),
                key: None,
            };
            let change = Change::CreateAndUpdate { data: Some(&data) };
            Message::Record(Record::Write(write, change))
        }
        Said::Put(name, correlation) => Message::Record(Record::Put {
            name,
            correlation,
            only: Only::Present,
            data: Some("{}"),
        }),
        Said::Delete(name) => Message::Record(Record::Delete { name }),
        Said::Emit(name) => Message::Event(Event::publication(name, Some("1"))),
        Said::Events(names, id, resumes) => {
            let position = Position {
                epoch: 1,
                offset: 1,
            };
            let positions = names.iter().map(|name| (*name, Some(position)));
            Message::Event(Event::Subscribe {
                names: names.clone(),
                correlation: Some(id),
                positions: positions.filter(|_| *resumes).collect(),
            })
        }
        Said::LeaveEvent(name) => Message::Event(Event::Unsubscribe {
            names: vec![name],
            correlation: None,
        }),
        Said::EventPattern(pattern, id) => Message::Event(Event::SubscribePatterns {
            patterns: vec![pattern],
            correlation: Some(id),
        }),
        Said::LeaveEventPattern(pattern) => Message::Event(Event::UnsubscribePatterns {
            patterns: vec![pattern],
            correlation: None,
        }),
        Said::Provide(names, id) => Message::Rpc(Rpc::Provide {
            names: names.clone(),
            correlation: Some(id),
        }),
        Said::Unprovide(name, id) => Message::Rpc(Rpc::Unprovide {
            names: vec![name],
            correlation: Some(id),
        }),
        Said::Call(name, correlation) => Message::Rpc(Rpc::Request {
            call: Call { name, correlation },
            data: Some("1"),
            requestor_name: None,
            requestor_data: None,
        }),
        Said::Accept(name, correlation) => Message::Rpc(Rpc::Accept(Call { name, correlation })),
        Said::Reject(name, correlation) => Message::Rpc(Rpc::Reject(Call { name, correlation })),
        Said::Respond(name, correlation) => Message::Rpc(Rpc::Response {
            call: Call { name, correlation },
            data: Some("2"),
        }),
        Said::Query(users, id) => Message::Presence(Presence::Query {
            names: users.clone(),
            correlation: Some(id),
        }),
        Said::QueryAll => Message::Presence(Presence::QueryAll),
        Said::Watch(user, id) => Message::Presence(Presence::Subscribe {
            names: vec![user],
            correlation: Some(id),
        }),
        Said::WatchAll => Message::Presence(Presence::SubscribeAll),
        Said::Listen(topic, pattern) => listen(*topic, Listen::Listen { pattern }),
        Said::Unlisten(topic, pattern) => listen(*topic, Listen::Unlisten { pattern }),
        Said::Found(topic, pattern, subscription, accepts) => match accepts {
            true => listen(
                *topic,
                Listen::Accept {
                    pattern,
                    subscription,
                },
            ),
            false => listen(
                *topic,
                Listen::Reject {
                    pattern,
                    subscription,
                },
            ),
        },
    };
    give(&message)
}

fn listen(is_record: bool, message: Listen<'_>) -> Message<'_> {
    match is_record {
        true => Message::Record(Record::Listen(message)),
        false => Message::Event(Event::Listen(message)),
    }
}
