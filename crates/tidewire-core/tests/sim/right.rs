//! The rights that rules can take away from a session, and the messages that a session hears by such a right.

use crate::expected::name_of;
use crate::services::{EVENT_PATTERNS, RECORD_PATTERNS, RPCS, USERS};
use crate::wire::{Heard, RpcHeard};

/// The records whose reads the rules may forbid. The model of the other records does not predict when a shard reauthorizes a
/// session. Therefore these records have their own model, and clients use no others while rules change.
pub const GUARDED: [&str; 3] = ["shut/0", "shut/1", "shut/2"];
/// The events that rules may forbid.
const RULED_EVENTS: [&str; 3] = ["e/0", "e/1", "e/2"];

/// The names that rules may forbid to publish, write or call.
pub fn mutable() -> impl Iterator<Item = &'static str> {
    let names = RULED_EVENTS.into_iter().chain(GUARDED);
    names.chain(RPCS)
}

/// The kind of a name of [`mutable`].
pub fn holding_of(name: &str) -> Holding {
    match name.split_once('/') {
        Some(("shut", _)) => Holding::Record,
        Some(("rpc", _)) => Holding::Rpc,
        _ => Holding::Event,
    }
}

/// Whether the record is one of [`GUARDED`].
pub fn is_guarded(record: &str) -> bool {
    record.starts_with("shut/")
}

/// A right of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// A subscription to an event.
    Event(String),
    /// A subscription to a record.
    Record(String),
    /// A registration as the provider of an rpc.
    Provide(String),
    /// A watch over one user, or over all users.
    Watch(Option<String>),
    /// A listener's pattern; true for a pattern of records, false for one of events.
    Listen(bool, String),
}

/// The kinds of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    Event,
    Record,
    Rpc,
    Presence,
    Listening,
}

impl Right {
    /// All rights that rules may forbid.
    pub fn all() -> Vec<Self> {
        let owned = |name: &&str| (*name).to_owned();
        let events = RULED_EVENTS.iter().map(owned).map(Self::Event);
        let records = GUARDED.iter().map(owned).map(Self::Record);
        let rpcs = RPCS.iter().map(owned).map(Self::Provide);
        let users = USERS.iter().map(owned).map(Some);
        let watches = users.chain([None]).map(Self::Watch);
        let patterns = RECORD_PATTERNS.iter().map(|pattern| (true, *pattern));
        let patterns = patterns.chain(EVENT_PATTERNS.iter().map(|pattern| (false, *pattern)));
        let patterns = patterns.map(|(records, pattern)| Self::Listen(records, pattern.into()));
        let all = events.chain(records).chain(rpcs);
        all.chain(watches).chain(patterns).collect()
    }

    pub fn holding(&self) -> Holding {
        match self {
            Self::Event(_) => Holding::Event,
            Self::Record(_) => Holding::Record,
            Self::Provide(_) => Holding::Rpc,
            Self::Watch(_) => Holding::Presence,
            Self::Listen(..) => Holding::Listening,
        }
    }

    /// The right by which a session hears this message.
    pub fn behind(heard: &Heard) -> Option<Self> {
        match heard {
            Heard::Event { name, .. } | Heard::Gap { name, .. } => Some(Self::Event(name.clone())),
            Heard::Rpc {
                name,
                what: RpcHeard::Request(_),
                ..
            } => Some(Self::Provide(name.clone())),
            Heard::Presence { user, all, .. } => Some(Self::Watch((!all).then(|| user.clone()))),
            Heard::Found {
                records, pattern, ..
            }
            | Heard::Removed {
                records, pattern, ..
            } => Some(Self::Listen(*records, pattern.clone())),
            Heard::HasProvider { name, .. } => record(name),
            Heard::Value { .. } | Heard::Version { .. } | Heard::Changed { .. } => {
                record(name_of(heard)?)
            }
            _ => None,
        }
    }
}

fn record(name: &str) -> Option<Right> {
    is_guarded(name).then(|| Right::Record(name.into()))
}
