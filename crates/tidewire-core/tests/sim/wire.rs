//! The messages that clients send and receive, as values that outlive a turn.
//!
//! The simulation has no bytes: a turn log contains [`Heard`], and a range of the log counts messages. `Heard` keeps only the
//! fields that a client or a check reads.

use serde_json::Value;
use tidewire_core::effect::Format;
use tidewire_core::message::{
    Auth, Call, Change, Connection, Event, EventAction, EventBulk, Listen, Message, Presence,
    PresenceAction, Publication, Reason, Record, RecordAction, RecordBulk, Refusal, Rpc, RpcAction,
    Write,
};

use crate::right::{Right, is_guarded};
use crate::rude::Rude;

/// The format of clients that know lists of patches.
pub const NEW: Format = Format(0);
/// The format of clients that get the whole value instead.
pub const OLD: Format = Format(1);

/// A change of a record as the wire carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Delta {
    Whole(String),
    Set { path: String, data: Option<String> },
    Many(String),
}

/// The action that carries the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Update,
    Patch,
    Erase,
    PatchMulti,
    CreateAndUpdate,
    CreateAndPatch,
}

impl Act {
    pub fn creates(self) -> bool {
        matches!(self, Self::CreateAndUpdate | Self::CreateAndPatch)
    }
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Challenge {
        coalesces: bool,
    },
    Login {
        user: String,
    },
    EventSubscribe {
        names: Vec<String>,
        id: String,
    },
    EventUnsubscribe {
        names: Vec<String>,
        id: String,
    },
    Emit {
        name: String,
        data: String,
    },
    Bulk {
        action: RecordBulk,
        names: Vec<String>,
        id: String,
    },
    Read {
        name: String,
    },
    Head {
        name: String,
    },
    Delete {
        name: String,
    },
    Write {
        name: String,
        version: i32,
        id: Option<String>,
        act: Act,
        delta: Delta,
    },
    Provide {
        names: Vec<String>,
        id: String,
    },
    Unprovide {
        names: Vec<String>,
        id: String,
    },
    Call {
        name: String,
        id: String,
        data: String,
    },
    Answer {
        what: CallSaid,
        name: String,
        id: String,
        data: Option<String>,
    },
    Listen {
        records: bool,
        pattern: String,
    },
    Unlisten {
        records: bool,
        pattern: String,
    },
    ListenAnswer {
        records: bool,
        pattern: String,
        name: String,
        accepts: bool,
    },
    QueryAll,
    Query {
        users: Vec<String>,
        id: String,
    },
    WatchAll,
    UnwatchAll,
    Rude(Rude),
    Watch {
        users: Vec<String>,
        id: String,
    },
    Unwatch {
        users: Vec<String>,
        id: String,
    },
}

/// The kind of a provider's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSaid {
    Accept,
    Reject,
    Response,
    Error,
}

impl Said {
    /// The message in the form in which a protocol decodes it.
    pub fn message(&self) -> Message<'_> {
        match self {
            Self::Challenge { coalesces } => Message::Connection(Connection::challenge(*coalesces)),
            Self::Login { user } => Message::Auth(Auth::Request { data: Some(user) }),
            Self::EventSubscribe { names, id } => Message::Event(Event::Subscribe {
                names: borrowed(names),
                correlation: Some(id),
                positions: Vec::new(),
            }),
            Self::EventUnsubscribe { names, id } => Message::Event(Event::Unsubscribe {
                names: borrowed(names),
                correlation: Some(id),
            }),
            Self::Emit { name, data } => Message::Event(Event::publication(name, Some(data))),
            Self::Bulk { action, names, id } => Message::Record(Record::Bulk {
                action: *action,
                names: borrowed(names),
                correlation: Some(id),
            }),
            Self::Read { name } => Message::Record(Record::Read { name }),
            Self::Head { name } => Message::Record(Record::Head { name }),
            Self::Delete { name } => Message::Record(Record::Delete { name }),
            Self::Write {
                name,
                version,
                id,
                act,
                delta,
            } => {
                let write = Write {
                    name,
                    version: *version,
                    correlation: id.as_deref(),
                    write_ack: id.is_some(),
                    key: None,
                };
                Message::Record(Record::Write(write, change(*act, delta)))
            }
            Self::Listen { records, pattern } => listen(*records, Listen::Listen { pattern }),
            Self::Unlisten { records, pattern } => listen(*records, Listen::Unlisten { pattern }),
            Self::ListenAnswer {
                records,
                pattern,
                name: subscription,
                accepts,
            } => listen(
                *records,
                if *accepts {
                    Listen::Accept {
                        pattern,
                        subscription,
                    }
                } else {
                    Listen::Reject {
                        pattern,
                        subscription,
                    }
                },
            ),
            Self::Rude(rude) => rude.message(),
            _ => self.service_message(),
        }
    }

    /// The messages of rpc and presence.
    fn service_message(&self) -> Message<'_> {
        match self {
            Self::Provide { names, id } => Message::Rpc(Rpc::Provide {
                names: borrowed(names),
                correlation: Some(id),
            }),
            Self::Unprovide { names, id } => Message::Rpc(Rpc::Unprovide {
                names: borrowed(names),
                correlation: Some(id),
            }),
            Self::Call { name, id, data } => Message::Rpc(Rpc::Request {
                call: call(name, id),
                data: Some(data),
                requestor_name: None,
                requestor_data: None,
            }),
            Self::Answer {
                what,
                name,
                id,
                data,
            } => {
                let (call, data) = (call(name, id), data.as_deref());
                Message::Rpc(match what {
                    CallSaid::Accept => Rpc::Accept(call),
                    CallSaid::Reject => Rpc::Reject(call),
                    CallSaid::Response => Rpc::Response { call, data },
                    CallSaid::Error => Rpc::RequestError { call, data },
                })
            }
            Self::Query { users, id } => Message::Presence(Presence::Query {
                names: borrowed(users),
                correlation: Some(id),
            }),
            Self::Watch { users, id } => Message::Presence(Presence::Subscribe {
                names: borrowed(users),
                correlation: Some(id),
            }),
            Self::Unwatch { users, id } => Message::Presence(Presence::Unsubscribe {
                names: borrowed(users),
                correlation: Some(id),
            }),
            Self::WatchAll => Message::Presence(Presence::SubscribeAll),
            Self::UnwatchAll => Message::Presence(Presence::UnsubscribeAll),
            _ => Message::Presence(Presence::QueryAll),
        }
    }
}

fn call<'a>(name: &'a str, correlation: &'a str) -> Call<'a> {
    Call { name, correlation }
}

fn listen(records: bool, message: Listen<'_>) -> Message<'_> {
    if records {
        Message::Record(Record::Listen(message))
    } else {
        Message::Event(Event::Listen(message))
    }
}

fn change(act: Act, delta: &Delta) -> Change<'_> {
    match (act, delta) {
        (Act::CreateAndUpdate, Delta::Whole(data)) => Change::CreateAndUpdate { data: Some(data) },
        (_, Delta::Whole(data)) => Change::Update { data: Some(data) },
        (Act::CreateAndPatch, Delta::Set { path, data }) => Change::CreateAndPatch {
            path: Some(path),
            data: data.as_deref(),
        },
        (_, Delta::Set { path, data: None }) => Change::Erase { path: Some(path) },
        (_, Delta::Set { path, data }) => Change::Patch {
            path,
            data: data.as_deref(),
        },
        (_, Delta::Many(text)) => Change::PatchMulti {
            data: Some(text),
            full: None,
        },
    }
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    Accepted,
    LoggedIn,
    LoginRefused,
    EventAck {
        subscribed: bool,
        id: String,
    },
    Event {
        name: String,
        data: String,
    },
    Gap {
        name: String,
        missed: u32,
    },
    /// A right was refused, or a holding has ended because the session lost the right.
    Ended {
        right: Right,
        /// True if the message answers a request of the session, false if it ends a holding, `None` if the message does not show
        /// which.
        asked: Option<bool>,
    },
    RecordAck {
        action: RecordBulk,
        names: Vec<String>,
        id: String,
    },
    Value {
        name: String,
        version: i32,
        data: String,
    },
    Version {
        name: String,
        version: i32,
    },
    Changed {
        name: String,
        version: i32,
        delta: Delta,
    },
    NotFound {
        name: String,
    },
    Deleted {
        name: String,
    },
    DeleteDone {
        name: String,
    },
    Written {
        name: String,
        id: String,
    },
    VersionExists {
        name: String,
        version: i32,
        /// Absent if the session may not read the record.
        data: Option<String>,
        id: Option<String>,
    },
    InvalidVersion {
        name: String,
        version: i32,
        id: Option<String>,
    },
    RecordRefused {
        name: String,
        why: Refused,
        action: Option<RecordAction>,
        id: Option<String>,
    },
    HasProvider {
        name: String,
        provided: bool,
    },
    ProvideAck {
        id: String,
    },
    Rpc {
        name: String,
        id: String,
        what: RpcHeard,
    },
    Found {
        records: bool,
        pattern: String,
        name: String,
    },
    Removed {
        records: bool,
        pattern: String,
        name: String,
    },
    ListenTimeout {
        records: bool,
        name: String,
    },
    Unlistened {
        records: bool,
        pattern: String,
    },
    PresenceAck {
        action: PresenceAction,
        id: String,
    },
    Presence {
        user: String,
        online: bool,
        all: bool,
    },
    Online {
        users: Vec<String>,
    },
    OnlineOf {
        id: String,
        data: String,
    },
    Other(String),
}

/// A message of a call, as the requestor or the provider receives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RpcHeard {
    Request(String),
    Accepted,
    Response(String),
    Error(String),
    NoProvider,
    AcceptTimeout,
    ResponseTimeout,
    MultipleAccept,
    Unknown,
}

/// Why a record's request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    Denied,
    RuleFailed,
    Load,
    LoadTimeout,
    Create,
    Update,
    Delete,
}

impl Heard {
    /// The kind of the message, for counting.
    pub fn kind(&self) -> String {
        let kind = match self {
            Self::Rpc { what, .. } => format!("{what:?}"),
            Self::RecordRefused { why, .. } => format!("refused {why:?}"),
            Self::RecordAck { action, .. } => format!("ack {action:?}"),
            Self::Ended { right, .. } => format!("ended {:?}", right.holding()),
            Self::Changed { version, .. } if *version == i32::MAX => "last version".into(),
            other => format!("{other:?}"),
        };
        kind.split(['{', '('])
            .next()
            .unwrap_or_default()
            .trim()
            .into()
    }

    /// The message as a client of this format receives it.
    pub fn of(format: Format, message: &Message<'_>) -> Self {
        match message {
            Message::Connection(Connection::Accept | Connection::AcceptWithin { .. }) => {
                Self::Accepted
            }
            Message::Auth(Auth::Successful { .. }) => Self::LoggedIn,
            Message::Auth(Auth::Unsuccessful { .. }) => Self::LoginRefused,
            Message::Event(event) => Self::of_event(event),
            Message::Record(record) => Self::of_record(format, record),
            Message::Rpc(rpc) => Self::of_rpc(rpc),
            Message::Presence(presence) => Self::of_presence(presence),
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn of_event(event: &Event<'_>) -> Self {
        match event {
            Event::Ack {
                action,
                correlation,
            } => Self::EventAck {
                subscribed: *action == EventBulk::Subscribe,
                id: text(*correlation),
            },
            Event::Publication(Publication {
                name,
                data,
                rare: None,
            }) => Self::Event {
                name: (*name).into(),
                data: text(*data),
            },
            Event::Gap { name, missed } => Self::Gap {
                name: (*name).into(),
                missed: *missed,
            },
            Event::Listen(message) => Self::of_listen(false, message),
            Event::Error(refusal) if refusal.reason == Reason::Denied => match refusal.action {
                EventAction::Subscribe => {
                    ended(Right::Event(text(refusal.name)), refusal.correlation)
                }
                EventAction::Listen => Self::Ended {
                    right: Right::Listen(false, text(refusal.name)),
                    asked: None,
                },
                // The clients of this simulation use no patterns of events.
                EventAction::Emit | EventAction::SubscribePatterns => {
                    Self::Other(format!("{event:?}"))
                }
            },
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn of_listen(records: bool, message: &Listen<'_>) -> Self {
        match *message {
            Listen::Found {
                pattern,
                subscription,
            } => Self::Found {
                records,
                pattern: pattern.into(),
                name: subscription.into(),
            },
            Listen::Removed {
                pattern,
                subscription,
            } => Self::Removed {
                records,
                pattern: pattern.into(),
                name: subscription.into(),
            },
            Listen::UnlistenAck { pattern } => Self::Unlistened {
                records,
                pattern: pattern.into(),
            },
            Listen::ResponseTimeout { subscription } => Self::ListenTimeout {
                records,
                name: subscription.into(),
            },
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn of_rpc(rpc: &Rpc<'_>) -> Self {
        let (call, what) = match rpc {
            Rpc::Ack { correlation, .. } => {
                return Self::ProvideAck {
                    id: text(*correlation),
                };
            }
            Rpc::Request { call, data, .. } => (call, RpcHeard::Request(text(*data))),
            Rpc::Accept(call) => (call, RpcHeard::Accepted),
            Rpc::Response { call, data } => (call, RpcHeard::Response(text(*data))),
            Rpc::RequestError { call, data } => (call, RpcHeard::Error(text(*data))),
            Rpc::Error(refusal) => {
                let what = match refusal.reason {
                    Reason::Denied if refusal.action == RpcAction::Provide => {
                        return ended(Right::Provide(text(refusal.name)), refusal.correlation);
                    }
                    Reason::NoProvider => RpcHeard::NoProvider,
                    Reason::AcceptTimeout => RpcHeard::AcceptTimeout,
                    Reason::ResponseTimeout => RpcHeard::ResponseTimeout,
                    Reason::MultipleAccept => RpcHeard::MultipleAccept,
                    Reason::InvalidCorrelation => RpcHeard::Unknown,
                    _ => return Self::Other(format!("{rpc:?}")),
                };
                return Self::Rpc {
                    name: text(refusal.name),
                    id: text(refusal.correlation),
                    what,
                };
            }
            other => return Self::Other(format!("{other:?}")),
        };
        Self::Rpc {
            name: call.name.into(),
            id: call.correlation.into(),
            what,
        }
    }

    fn of_presence(presence: &Presence<'_>) -> Self {
        match presence {
            Presence::Ack {
                action,
                correlation,
            } => Self::PresenceAck {
                action: *action,
                id: text(*correlation),
            },
            Presence::Changed { name, online, all } => Self::Presence {
                user: (*name).into(),
                online: *online,
                all: *all,
            },
            Presence::Error(refusal) if refusal.reason == Reason::Denied => match refusal.action {
                PresenceAction::SubscribeAll => Self::Ended {
                    right: Right::Watch(None),
                    asked: None,
                },
                _ => ended(Right::Watch(Some(text(refusal.name))), refusal.correlation),
            },
            Presence::QueryAllResponse { names } => Self::Online {
                users: names.iter().map(|name| (*name).into()).collect(),
            },
            Presence::QueryResponse { correlation, data } => Self::OnlineOf {
                id: text(*correlation),
                data: (*data).into(),
            },
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn of_record(format: Format, record: &Record<'_>) -> Self {
        match record {
            Record::Ack {
                action,
                names,
                correlation,
            } => Self::RecordAck {
                action: *action,
                names: names.iter().map(|name| (*name).into()).collect(),
                id: text(*correlation),
            },
            Record::ReadResponse {
                name,
                version,
                data,
                ..
            } => Self::Value {
                name: (*name).into(),
                version: *version,
                data: (*data).into(),
            },
            Record::HeadResponse { name, version } => Self::Version {
                name: (*name).into(),
                version: *version,
            },
            Record::Write(write, change) => Self::Changed {
                name: write.name.into(),
                version: write.version,
                delta: delta_of(format, change),
            },
            Record::Deleted { name } => Self::Deleted {
                name: (*name).into(),
            },
            Record::DeleteSuccess { name } => Self::DeleteDone {
                name: (*name).into(),
            },
            Record::WriteAck { name, correlation } => Self::Written {
                name: (*name).into(),
                id: text(*correlation),
            },
            Record::HasProvider { name, provided } => Self::HasProvider {
                name: (*name).into(),
                provided: *provided,
            },
            Record::Listen(message) => Self::of_listen(true, message),
            Record::Error(error) => Self::of_record_error(error),
            other => Self::Other(format!("{other:?}")),
        }
    }

    fn of_record_error(refusal: &Refusal<'_, RecordAction>) -> Self {
        let (name, id) = (text(refusal.name), refusal.correlation.map(Into::into));
        let is_guarded = refusal.name.is_some_and(is_guarded);
        let why = match (refusal.reason, refusal.action) {
            (Reason::VersionExists, _) => {
                return Self::VersionExists {
                    name,
                    version: refusal.version.unwrap_or_default(),
                    data: refusal.data.map(Into::into),
                    id,
                };
            }
            (Reason::InvalidVersion, _) => {
                return Self::InvalidVersion {
                    name,
                    version: refusal.version.unwrap_or_default(),
                    id,
                };
            }
            (Reason::NotFound, _) => return Self::NotFound { name },
            (Reason::DeleteFailed, _) => {
                return Self::RecordRefused {
                    name,
                    why: Refused::Delete,
                    action: None,
                    id: None,
                };
            }
            (Reason::Denied, RecordAction::Listen) => {
                return Self::Ended {
                    right: Right::Listen(true, name),
                    asked: None,
                };
            }
            (Reason::Denied, RecordAction::Bulk(_)) if is_guarded => {
                return ended(Right::Record(name), refusal.correlation);
            }
            (Reason::Denied, _) => Refused::Denied,
            (Reason::RuleFailed, _) => Refused::RuleFailed,
            (Reason::LoadTimeout, _) => Refused::LoadTimeout,
            (Reason::LoadFailed, _) => Refused::Load,
            (Reason::CreateFailed, _) => Refused::Create,
            (Reason::UpdateFailed, _) => Refused::Update,
            _ => return Self::Other(format!("{refusal:?}")),
        };
        Self::RecordRefused {
            name,
            why,
            action: Some(refusal.action),
            id,
        }
    }
}

/// A refusal that answers a request repeats the request's correlation id.
fn ended(right: Right, correlation: Option<&str>) -> Heard {
    let asked = Some(correlation.is_some());
    Heard::Ended { right, asked }
}

fn delta_of(format: Format, change: &Change<'_>) -> Delta {
    match *change {
        Change::Update { data } | Change::CreateAndUpdate { data } => Delta::Whole(text(data)),
        Change::Patch { path, data } => Delta::Set {
            path: path.into(),
            data: data.map(Into::into),
        },
        Change::Erase { path } | Change::CreateAndPatch { path, .. } => Delta::Set {
            path: text(path),
            data: None,
        },
        Change::PatchMulti { full, .. } if format == OLD => Delta::Whole(text(full)),
        Change::PatchMulti { data, .. } => Delta::Many(text(data)),
    }
}

fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().into()
}

/// Parses JSON that the simulation or the engine wrote.
pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {text:?}: {error}"))
}

/// Applies a change to a tree, as a client does.
pub fn apply(value: &Value, delta: &Delta) -> Value {
    let mut after = value.clone();
    match delta {
        Delta::Whole(data) => return parse(data),
        Delta::Set { path, data } => set(&mut after, path, data.as_deref().map(parse)),
        Delta::Many(list) => {
            for patch in parse(list).as_array().into_iter().flatten() {
                let path = patch["path"].as_str().unwrap_or_default();
                set(&mut after, path, patch.get("data").cloned());
            }
        }
    }
    after
}

/// Sets or deletes a path of one or two keys, the only kind that the simulation writes.
fn set(root: &mut Value, path: &str, data: Option<Value>) {
    let mut node = root;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        if !node.is_object() {
            *node = Value::Object(serde_json::Map::new());
        }
        let Some(object) = node.as_object_mut() else {
            return;
        };
        if keys.peek().is_some() {
            node = object.entry(key).or_insert_with(|| serde_json::json!({}));
            continue;
        }
        match data {
            Some(data) => object.insert(key.into(), data),
            None => object.remove(key),
        };
        return;
    }
}
