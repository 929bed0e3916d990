//! The clients of a run: their messages, the answers to them, and their knowledge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidewire_core::address::SessionId;
use tidewire_core::message::{
    Change, Event, EventAction, EventBulk, Message, Only, Position, Query, QueryReason, Record,
    RecordAction, RecordBulk, Rpc, RpcAction, Scope, Tag, Write,
};

use crate::live_rows::{Rows, apply, rows_of};

pub const RECORDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The records of transactions: each transaction changes all records of a group. The names of a group have one slot.
pub const GROUPS: [&[&str]; 2] = [&["t/1/a", "t/1/b", "t/1/c"], &["t/2/a", "t/2/b"]];

/// The records of live queries.
pub const CARDS: [&str; 6] = [
    "cards/1", "cards/2", "cards/3", "cards/4", "cards/5", "cards/6",
];

pub const EVENTS: [&str; 3] = ["stored/a", "stored/b", "stored/c"];
/// Events without history, and the pattern that all of them match.
pub const EMITTED: [&str; 3] = ["e/a", "e/b", "e/c"];
pub const EMITTED_PATTERN: &str = "e/*";
pub const RPCS: [&str; 4] = ["r/a", "r/b", "r/c", "r/d"];
pub const SCOPES: [&str; 4] = ["s/a", "s/b", "s/c", "s/d"];

/// The writes that a record contains: each sets a member of its own.
pub type Writes = BTreeSet<u64>;

/// A message of a client.
#[derive(Clone, Debug)]
pub enum Said {
    Subscribe(&'static str),
    Unsubscribe(&'static str),
    /// An acknowledged write.
    Write(&'static str, u64),
    /// A read of the state of a record, and a transaction over a group with its operations.
    Fetch(&'static str, u64),
    Commit(&'static [&'static str], u64, String),
    /// A value of a card, or its removal.
    Put(&'static str, u64, Option<String>),
    /// A live query of cards, and its end.
    Query(u64, &'static str),
    EndQuery(u64),
    /// A subscription to an event with history, behind the position of an earlier connection if there was one, and an event.
    Follow(&'static str, Option<Position>),
    Publish(&'static str),
    /// A subscription to an event without history or to the pattern, its end, and an event.
    SubscribeEvent(&'static str),
    UnsubscribeEvent(&'static str),
    Emit(&'static str, u64),
    Provide(&'static str),
    Unprovide(&'static str),
    /// A member of a scope, with its state.
    Join(&'static str, u64),
    Update(&'static str, u64),
    Leave(&'static str),
    Watch(&'static str),
    Unwatch(&'static str),
}

/// A message to a client.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The answer to a subscription.
    Value(String, i64, Writes),
    /// A change: one write, or the whole value.
    Patched(String, i64, u64),
    Replaced(String, i64, Writes),
    Written(u64),
    NotWritten(u64),
    /// The state of a record.
    Fetched(u64, String, Option<Tag>, Writes),
    /// The transaction is made, or a record was in another state than the one that its client had read.
    Committed(u64),
    Conflict(u64),
    /// The value of a card is durable, or its removal is refused.
    Stored(u64),
    NotRemoved,
    /// The whole result of a live query, changes of all with this key, and its end.
    Result(u64, String, Rows),
    ResultChanged(String, serde_json::Value),
    QueryEnded(u64, QueryReason),
    Refused(String),
    Deleted(String),
    /// An event, the position at which events begin, and that events are missing.
    Event(String, u64),
    Position(String, Position),
    Gap(String),
    NotFollowed(String),
    /// An event without history, and the acknowledgement of a subscription.
    Emitted(String, u64),
    Subscribed(String),
    /// The members of a scope by their ids, and their changes: `None` for one that has left.
    Members(String, Members),
    MembersChanged(String, Vec<(Word, String, Option<u64>)>),
    ScopeRefused(String),
    NotPublished,
    NotProvided,
    Other,
}

/// The states of the members of a scope, by their ids.
pub type Members = BTreeMap<String, u64>;

/// The kind of a change of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Joined,
    Updated,
    Left,
}

/// The id of the member that a session is.
pub fn member_id(session: SessionId) -> String {
    let address = session.address;
    format!(
        "{}.{}.{}.{}",
        address.node, address.shard, session.index, session.generation
    )
}

/// The knowledge of a client about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    Requested,
    Value(i64, Writes),
}

/// A live query of a client: its text, and after its first result its key and its rows.
#[derive(Debug)]
pub struct Live {
    pub query: &'static str,
    pub result: Option<(String, Rows)>,
}

/// A client with its session.
#[derive(Debug)]
pub struct Client {
    pub session: SessionId,
    /// Whether it may miss versions.
    pub coalesces: bool,
    pub writes: bool,
    pub inbox: VecDeque<Said>,
    pub waits: bool,
    pub records: BTreeMap<String, Known>,
    pub unanswered: BTreeSet<u64>,
    /// The states that it has read for its next transaction, and the writes in them.
    pub read: BTreeMap<String, (Option<Tag>, Writes)>,
    pub lives: BTreeMap<u64, Live>,
    /// The keys of the live queries that it has ended. Their changes may have been on their way.
    pub ended: BTreeSet<String>,
    /// The positions of the last events that it has.
    pub events: BTreeMap<String, Position>,
    /// The same of an earlier connection. A subscription continues behind them.
    pub left: BTreeMap<&'static str, Position>,
    pub follows: BTreeSet<&'static str>,
    /// Its subscriptions to events without history, and whether each is acknowledged.
    pub subscribed: BTreeMap<&'static str, bool>,
    pub provided: BTreeSet<&'static str>,
    /// Its states in scopes, and the scopes whose members it follows.
    pub joined: BTreeMap<&'static str, u64>,
    pub watches: BTreeSet<&'static str>,
    pub members: BTreeMap<String, Members>,
}

impl Client {
    pub fn new(session: SessionId, coalesces: bool, writes: bool) -> Self {
        Self {
            session,
            coalesces,
            writes,
            inbox: VecDeque::new(),
            waits: false,
            records: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            read: BTreeMap::new(),
            lives: BTreeMap::new(),
            ended: BTreeSet::new(),
            events: BTreeMap::new(),
            left: BTreeMap::new(),
            follows: BTreeSet::new(),
            subscribed: BTreeMap::new(),
            provided: BTreeSet::new(),
            joined: BTreeMap::new(),
            watches: BTreeSet::new(),
            members: BTreeMap::new(),
        }
    }

    /// Notes that the shard has taken a message.
    pub fn took(&mut self, said: &Said) {
        match said {
            Said::Subscribe(name) => {
                let known = self.records.entry((*name).to_owned());
                known.or_insert(Known::Requested);
            }
            Said::Unsubscribe(name) => {
                self.records.remove(*name);
            }
            Said::Write(_, id)
            | Said::Fetch(_, id)
            | Said::Commit(_, id, _)
            | Said::Put(_, id, Some(_)) => {
                self.unanswered.insert(*id);
            }
            Said::Query(id, query) => {
                let live = Live {
                    query,
                    result: None,
                };
                self.lives.insert(*id, live);
            }
            Said::EndQuery(id) => {
                let ended = self.lives.remove(id);
                self.ended
                    .extend(ended.and_then(|it| it.result).map(|(key, _)| key));
            }
            Said::Follow(name, _) => {
                self.follows.insert(name);
            }
            Said::Provide(name) => {
                self.provided.insert(name);
            }
            Said::Unprovide(name) => {
                self.provided.remove(name);
            }
            Said::Join(scope, state) | Said::Update(scope, state) => {
                self.joined.insert(scope, *state);
            }
            Said::Leave(scope) => {
                self.joined.remove(scope);
            }
            Said::Watch(scope) => {
                self.watches.insert(scope);
            }
            Said::Unwatch(scope) => {
                self.watches.remove(scope);
                self.members.remove(*scope);
            }
            Said::SubscribeEvent(name) => {
                self.subscribed.insert(name, false);
            }
            Said::UnsubscribeEvent(name) => {
                self.subscribed.remove(name);
            }
            // The refusal of a removal names only the card.
            Said::Publish(_) | Said::Emit(..) | Said::Put(..) => {}
        }
    }

    /// The positions with which the client continues on another connection.
    pub fn positions(&self) -> BTreeMap<&'static str, Position> {
        let position = |name: &&'static str| {
            let last = self.events.get(*name).or(self.left.get(name));
            last.map(|last| (*name, *last))
        };
        EVENTS.iter().filter_map(position).collect()
    }

    /// Whether an acknowledged subscription includes an event without history.
    pub fn has_acknowledged(&self, event: &str) -> bool {
        let mut names = [event, EMITTED_PATTERN].into_iter();
        names.any(|name| self.subscribed.get(name) == Some(&true))
    }

    /// Notes what the client hears. `may_regress` after a crash: the newest versions may be lost. `may_jump` if the client may miss versions,
    /// or its node is evicted: it shows what the store has instead of its own changes, until it closes its clients.
    pub fn hear(&mut self, heard: &Heard, may_regress: bool, may_jump: bool) -> Result<(), String> {
        match heard {
            Heard::Value(name, version, writes) => {
                if let Some(known) = self.records.get_mut(name) {
                    if *known != Known::Requested {
                        return Err(format!("a second answer for {name}"));
                    }
                    *known = Known::Value(*version, writes.clone());
                }
            }
            Heard::Patched(name, version, write) => {
                if let Some(Known::Value(before, writes)) = self.records.get_mut(name) {
                    if *version != *before + 1 {
                        return Err(format!("{name} goes from {before} to {version} by a patch"));
                    }
                    *before = *version;
                    if !writes.insert(*write) {
                        return Err(format!("write {write} arrives twice"));
                    }
                }
            }
            Heard::Replaced(name, version, writes) => {
                if let Some(Known::Value(before, known)) = self.records.get_mut(name) {
                    let is_next = *version == *before + 1;
                    // A transaction replaces values. It has read all writes before it.
                    let is_transaction = is_next && is_in_group(name) && writes.is_superset(known);
                    if !is_transaction && (!may_regress || !may_jump && !is_next) {
                        return Err(format!("{name} goes from {before} to {version} by a value"));
                    }
                    (*before, *known) = (*version, writes.clone());
                }
            }
            Heard::Written(id)
            | Heard::NotWritten(id)
            | Heard::Committed(id)
            | Heard::Conflict(id)
            | Heard::Fetched(id, ..) => {
                if !self.unanswered.remove(id) {
                    return Err(format!("a second answer to request {id}"));
                }
                if let Heard::Fetched(_, name, tag, writes) = heard {
                    self.read.insert(name.clone(), (*tag, writes.clone()));
                }
            }
            Heard::Stored(id) => {
                self.unanswered.remove(id);
            }
            Heard::Result(id, key, rows) => {
                if let Some(live) = self.lives.get_mut(id) {
                    live.result = Some((key.clone(), rows.clone()));
                }
            }
            Heard::ResultChanged(key, changes) => self.hear_changes(key, changes)?,
            Heard::QueryEnded(id, reason) => {
                return Err(format!("live query {id} ends: {reason:?}"));
            }
            Heard::Refused(name) => {
                self.records.remove(name);
            }
            Heard::Deleted(name) => {
                if !may_regress {
                    return Err(format!("{name} is deleted"));
                }
                self.records.remove(name);
            }
            Heard::Event(name, offset) => {
                if let Some(last) = self.events.get_mut(name) {
                    if *offset != last.offset + 1 {
                        return Err(format!("{name} goes from event {last:?} to {offset}"));
                    }
                    last.offset = *offset;
                }
            }
            Heard::Position(name, position) => {
                if self.events.insert(name.clone(), *position).is_some() {
                    return Err(format!("a second position of {name}"));
                }
                if let Some(left) = self.left.remove(name.as_str())
                    && left != *position
                {
                    return Err(format!("{name} continues at {position:?}, not {left:?}"));
                }
            }
            // The store has each event that a client has got.
            Heard::Gap(name) => return Err(format!("a gap in {name}")),
            Heard::Subscribed(name) => {
                if let Some(is_acknowledged) = self.subscribed.get_mut(name.as_str()) {
                    *is_acknowledged = true;
                }
            }
            Heard::NotFollowed(name) => {
                self.follows.retain(|known| *known != name.as_str());
                self.events.remove(name);
            }
            // The shard had sent it before it took the end of the subscription.
            Heard::Members(scope, _) | Heard::MembersChanged(scope, _)
                if !self.watches.contains(scope.as_str()) => {}
            Heard::Members(scope, members) => {
                self.members.insert(scope.clone(), members.clone());
            }
            Heard::MembersChanged(scope, changes) => {
                let Some(members) = self.members.get_mut(scope) else {
                    return Err(format!("changes of {scope} before its list"));
                };
                for (word, id, state) in changes {
                    let known = match state {
                        Some(state) => members.insert(id.clone(), *state),
                        None => members.remove(id),
                    };
                    if *word != Word::Joined && known.is_none() {
                        return Err(format!("{id} is not in {scope}: {word:?}"));
                    }
                }
            }
            Heard::ScopeRefused(scope) => return Err(format!("{scope} is refused")),
            Heard::NotPublished
            | Heard::NotProvided
            | Heard::NotRemoved
            | Heard::Emitted(..)
            | Heard::Other => {}
        }
        Ok(())
    }

    fn hear_changes(&mut self, key: &str, changes: &serde_json::Value) -> Result<(), String> {
        let results = self.lives.values_mut().filter_map(|it| it.result.as_mut());
        let mut is_known = self.ended.contains(key);
        for (_, rows) in results.filter(|(of, _)| of == key) {
            is_known = true;
            apply(rows, changes)?;
        }
        match is_known {
            true => Ok(()),
            false => Err(format!("changes of no live query: {key} {changes}")),
        }
    }
}

/// Whether transactions change the record.
pub fn is_in_group(name: &str) -> bool {
    GROUPS.iter().any(|group| group.contains(&name))
}

/// Calls `give` with the message.
pub fn with_message<T>(said: &Said, give: impl FnOnce(&Message<'_>) -> T) -> T {
    let (path, id);
    let bulk = |action, name| {
        Message::Record(Record::Bulk {
            action,
            names: vec![name],
            correlation: Some("s"),
        })
    };
    let message = match said {
        Said::Subscribe(name) => bulk(RecordBulk::SubscribeCreateAndRead, *name),
        Said::Unsubscribe(name) => bulk(RecordBulk::Unsubscribe, *name),
        Said::Follow(name, after) => Message::Event(Event::Subscribe {
            names: vec![name],
            correlation: Some("f"),
            positions: vec![(name, *after)],
        }),
        Said::Publish(name) => Message::Event(Event::publication(name, Some("1"))),
        Said::SubscribeEvent(EMITTED_PATTERN) => Message::Event(Event::SubscribePatterns {
            patterns: vec![EMITTED_PATTERN],
            correlation: Some(EMITTED_PATTERN),
        }),
        Said::SubscribeEvent(name) => Message::Event(Event::Subscribe {
            names: vec![name],
            correlation: Some(name),
            positions: Vec::new(),
        }),
        Said::UnsubscribeEvent(EMITTED_PATTERN) => Message::Event(Event::UnsubscribePatterns {
            patterns: vec![EMITTED_PATTERN],
            correlation: Some(EMITTED_PATTERN),
        }),
        Said::UnsubscribeEvent(name) => Message::Event(Event::Unsubscribe {
            names: vec![name],
            correlation: Some(name),
        }),
        Said::Emit(name, number) => {
            id = number.to_string();
            Message::Event(Event::publication(name, Some(&id)))
        }
        Said::Provide(name) => Message::Rpc(Rpc::Provide {
            names: vec![name],
            correlation: Some("p"),
        }),
        Said::Unprovide(name) => Message::Rpc(Rpc::Unprovide {
            names: vec![name],
            correlation: Some("p"),
        }),
        Said::Join(name, number) | Said::Update(name, number) => {
            id = number.to_string();
            let state = id.as_str();
            Message::Scope(match said {
                Said::Join(..) => Scope::Join { name, state },
                _ => Scope::Update { name, state },
            })
        }
        Said::Leave(name) => Message::Scope(Scope::Leave { name }),
        Said::Watch(name) => Message::Scope(Scope::Subscribe { name }),
        Said::Unwatch(name) => Message::Scope(Scope::Unsubscribe { name }),
        Said::Fetch(name, number) => {
            id = number.to_string();
            Message::Record(Record::Fetch {
                name,
                correlation: &id,
            })
        }
        Said::Commit(names, number, operations) => {
            id = number.to_string();
            Message::Record(Record::Commit {
                names: names.to_vec(),
                correlation: &id,
                data: Some(operations),
            })
        }
        Said::Put(name, number, data) => {
            id = number.to_string();
            Message::Record(Record::Put {
                name,
                correlation: &id,
                only: Only::Always,
                data: data.as_deref(),
            })
        }
        Said::Query(number, query) => {
            id = number.to_string();
            Message::Query(Query::Subscribe {
                collection: "cards",
                query,
                correlation: Some(&id),
            })
        }
        Said::EndQuery(number) => {
            id = number.to_string();
            Message::Query(Query::Unsubscribe {
                correlation: Some(&id),
            })
        }
        Said::Write(name, number) => {
            path = format!("w{number}");
            id = number.to_string();
            let write = Write {
                name,
                version: -1,
                correlation: Some(&id),
                write_ack: true,
                key: None,
            };
            let change = Change::Patch {
                path: &path,
                data: Some("1"),
            };
            Message::Record(Record::Write(write, change))
        }
    };
    give(&message)
}

/// The content of a message to a client.
pub fn heard(message: &Message<'_>) -> Heard {
    let message = match message {
        Message::Record(message) => message,
        Message::Scope(message) => return heard_of_scope(message),
        Message::Query(message) => return heard_of_query(message),
        Message::Event(Event::Publication(publication)) => {
            let offset = publication.rare.as_ref().and_then(|rare| rare.offset);
            let name = publication.name.to_owned();
            return match offset {
                Some(offset) => Heard::Event(name, offset),
                None => Heard::Emitted(name, id(publication.data)),
            };
        }
        Message::Event(Event::Ack {
            action: EventBulk::Subscribe | EventBulk::SubscribePatterns,
            correlation: Some(name),
        }) => return Heard::Subscribed((*name).to_owned()),
        Message::Event(Event::Position { name, position }) => {
            return Heard::Position((*name).to_owned(), *position);
        }
        Message::Event(Event::HistoryGap { name, .. }) => return Heard::Gap((*name).to_owned()),
        Message::Event(Event::Error(refusal)) if refusal.action == EventAction::Subscribe => {
            return Heard::NotFollowed(refusal.name.unwrap_or_default().to_owned());
        }
        Message::Event(Event::Error(_)) => {
            return Heard::NotPublished;
        }
        Message::Rpc(Rpc::Error(refusal)) if refusal.action == RpcAction::Provide => {
            return Heard::NotProvided;
        }
        _ => return Heard::Other,
    };
    match message {
        Record::ReadResponse {
            name,
            version,
            data,
            ..
        } => Heard::Value((*name).to_owned(), i64::from(*version), writes(data)),
        Record::Write(write, change) => {
            let (name, version) = (write.name.to_owned(), i64::from(write.version));
            match change {
                Change::Patch { path, .. } => Heard::Patched(name, version, number(path)),
                Change::Update { data } => {
                    Heard::Replaced(name, version, writes(data.unwrap_or_default()))
                }
                _ => Heard::Other,
            }
        }
        Record::WriteAck { correlation, .. } => Heard::Written(id(*correlation)),
        Record::Fetched {
            name,
            correlation,
            state,
        } => {
            let tag = state.map(|(tag, _)| tag);
            let writes = state.map_or(Writes::new(), |(_, data)| writes(data));
            Heard::Fetched(id(Some(correlation)), (*name).to_owned(), tag, writes)
        }
        Record::Stored { correlation, .. } => Heard::Stored(id(Some(correlation))),
        Record::Committed { correlation, .. } => Heard::Committed(id(Some(correlation))),
        Record::PreconditionFailed { correlation, .. } => Heard::Conflict(id(Some(correlation))),
        Record::Error(refusal) => match refusal.action {
            RecordAction::Bulk(_) => Heard::Refused(refusal.name.unwrap_or_default().to_owned()),
            RecordAction::Delete => Heard::NotRemoved,
            _ => Heard::NotWritten(id(refusal.correlation)),
        },
        Record::Deleted { name } => Heard::Deleted((*name).to_owned()),
        _ => Heard::Other,
    }
}

fn heard_of_query(message: &Query<'_>) -> Heard {
    let json = |data: &str| serde_json::from_str(data).expect("JSON");
    match *message {
        Query::Snapshot {
            correlation,
            key,
            data,
        } => Heard::Result(id(correlation), key.to_owned(), rows_of(&json(data))),
        Query::Changed { key, data } => Heard::ResultChanged(key.to_owned(), json(data)),
        Query::Error {
            reason,
            correlation,
            ..
        } => Heard::QueryEnded(id(correlation), reason),
        _ => Heard::Other,
    }
}

fn heard_of_scope(message: &Scope<'_>) -> Heard {
    let list = |data: &str| -> Vec<serde_json::Value> {
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        let list = data.get("members").unwrap_or(&data).as_array();
        list.expect("a list").clone()
    };
    let id = |value: &serde_json::Value| value["id"].as_str().expect("an id").to_owned();
    match *message {
        Scope::Snapshot { name, data } => {
            let members = list(data);
            let members = members.iter();
            let members = members.map(|it| (id(it), it["state"].as_u64().expect("a state")));
            Heard::Members(name.to_owned(), members.collect())
        }
        Scope::Changed { name, data } => {
            let changes = list(data);
            let changes = changes.iter().map(|it| {
                let word = match it["type"].as_str() {
                    Some("joined") => Word::Joined,
                    Some("updated") => Word::Updated,
                    _ => Word::Left,
                };
                (word, id(it), it["state"].as_u64())
            });
            Heard::MembersChanged(name.to_owned(), changes.collect())
        }
        Scope::Error { name, .. } => Heard::ScopeRefused(name.to_owned()),
        _ => Heard::Other,
    }
}

/// The writes that a value contains.
pub fn writes(data: &str) -> Writes {
    let keys = data.split('"').skip(1).step_by(2);
    keys.map(number).collect()
}

fn number(path: &str) -> u64 {
    let digits = path.trim_start_matches('w');
    digits.parse().expect("a path of a write")
}

fn id(correlation: Option<&str>) -> u64 {
    let id = correlation.and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("the number of a write or an event: {correlation:?}"))
}
