//! The messages that sessions receive, as far as the checks need them.

use tidewire_core::message::{
    Auth, Event, EventAction, EventBulk, Listen, Message, Presence, PresenceAction, Reason, Record,
    RecordAction, RecordBulk, Refusal, Rpc, RpcAction,
};

/// An answer that a client waits for, by the fields by which an answer identifies its request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// The value of a record.
    Value(String),
    /// The version of a record.
    Head(String),
    /// The deletion of a record.
    Gone(String),
    /// The answer with this correlation id.
    Id(String),
    /// All users.
    All,
    /// A pattern, of records or events.
    Listen(bool, String),
    /// The end of a pattern.
    Unlisten(bool, String),
}

/// See the documentation of this module.
#[derive(Clone, Debug)]
pub enum Heard {
    Done(Wait),
    /// The answer to a query of all users.
    Users(Vec<String>),
    /// A call for a provider.
    Call(String, String),
    /// A question to a listening provider.
    Found(bool, String, String),
    /// A user came online, or went offline, for a session that watches all.
    Online(String, bool),
    /// The login is accepted.
    LoggedIn,
    Other,
}

/// See the documentation of this module.
pub fn heard(message: &Message<'_>) -> Heard {
    let done = match message {
        Message::Auth(Auth::Successful { .. }) => return Heard::LoggedIn,
        Message::Record(message) => return record(message),
        Message::Event(Event::Ack {
            action: EventBulk::Subscribe | EventBulk::SubscribePatterns,
            correlation,
        }) => id(*correlation),
        Message::Event(Event::Error(refusal)) => match refusal.action {
            EventAction::Listen => Some(Wait::Listen(false, named(refusal))),
            EventAction::Emit => None,
            _ => id(refusal.correlation),
        },
        Message::Event(Event::Listen(message)) => return listen(false, message),
        Message::Rpc(message) => match message {
            Rpc::Request { call, .. } => {
                return Heard::Call(call.name.to_owned(), call.correlation.to_owned());
            }
            Rpc::Ack { correlation, .. } => id(*correlation),
            Rpc::Response { call, .. } | Rpc::RequestError { call, .. } => {
                id(Some(call.correlation))
            }
            Rpc::Error(refusal) => match refusal.action {
                RpcAction::Request | RpcAction::Provide => id(refusal.correlation),
                _ => None,
            },
            _ => None,
        },
        Message::Presence(message) => match message {
            Presence::QueryAllResponse { names } => {
                return Heard::Users(names.iter().map(|name| (*name).to_owned()).collect());
            }
            Presence::QueryResponse { correlation, .. } => id(*correlation),
            Presence::Ack {
                action: PresenceAction::Subscribe,
                correlation,
            } => id(*correlation),
            Presence::Changed {
                name,
                online,
                all: true,
            } => return Heard::Online((*name).to_owned(), *online),
            Presence::Error(refusal) => match refusal.action {
                PresenceAction::QueryAll => Some(Wait::All),
                _ => id(refusal.correlation),
            },
            _ => None,
        },
        _ => None,
    };
    done.map_or(Heard::Other, Heard::Done)
}

fn record(message: &Record<'_>) -> Heard {
    let done = match message {
        Record::ReadResponse { name, .. } => Some(Wait::Value((*name).to_owned())),
        Record::HeadResponse { name, .. } => Some(Wait::Head((*name).to_owned())),
        Record::DeleteSuccess { name } => Some(Wait::Gone((*name).to_owned())),
        Record::Fetched { correlation, .. }
        | Record::Stored { correlation, .. }
        | Record::PreconditionFailed { correlation, .. } => id(Some(*correlation)),
        Record::WriteAck { correlation, .. } => id(*correlation),
        Record::Ack {
            action: RecordBulk::Notify | RecordBulk::Subscribe,
            correlation,
            ..
        } => id(*correlation),
        Record::Listen(message) => return listen(true, message),
        Record::Error(refusal) => return record_error(refusal),
        _ => None,
    };
    done.map_or(Heard::Other, Heard::Done)
}

fn record_error(refusal: &Refusal<'_, RecordAction>) -> Heard {
    if refusal.reason == Reason::MultipleSubscriptions {
        return Heard::Other;
    }
    let name = named(refusal);
    let done = match refusal.action {
        RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead) => {
            // Without a correlation id, a right was lost.
            refusal.correlation.map(|_| Wait::Value(name))
        }
        RecordAction::Bulk(_) => id(refusal.correlation),
        RecordAction::Read if refusal.correlation.is_none() => Some(Wait::Value(name)),
        RecordAction::Read => id(refusal.correlation),
        RecordAction::Head => Some(Wait::Head(name)),
        RecordAction::Delete => Some(Wait::Gone(name)),
        RecordAction::Listen => Some(Wait::Listen(true, name)),
        _ if refusal.write_ack => id(refusal.correlation),
        _ => None,
    };
    done.map_or(Heard::Other, Heard::Done)
}

fn listen(is_record: bool, message: &Listen<'_>) -> Heard {
    match *message {
        Listen::ListenAck { pattern } | Listen::AlreadyListening { pattern } => {
            Heard::Done(Wait::Listen(is_record, pattern.to_owned()))
        }
        Listen::UnlistenAck { pattern } => {
            Heard::Done(Wait::Unlisten(is_record, pattern.to_owned()))
        }
        Listen::Found {
            pattern,
            subscription,
        } => Heard::Found(is_record, pattern.to_owned(), subscription.to_owned()),
        _ => Heard::Other,
    }
}

fn id(correlation: Option<&str>) -> Option<Wait> {
    correlation.map(|id| Wait::Id(id.to_owned()))
}

fn named<A>(refusal: &Refusal<'_, A>) -> String {
    refusal.name.unwrap_or_default().to_owned()
}
