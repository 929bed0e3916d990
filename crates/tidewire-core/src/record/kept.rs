//! What an owner keeps of a record: its value, who is interested, who waits.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::entry::{Asker, Snapshot};
use crate::message::Tag;
use crate::record::job::Job;
use crate::store::{Expected, StoredRecord, Version};
use crate::text::Payload;

/// What is known of a record's value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Unknown,
    Missing,
    Present(StoredRecord),
}

impl Value {
    pub(super) fn data(&self) -> Option<&Payload> {
        match self {
            Self::Present(record) => Some(&record.data),
            _ => None,
        }
    }

    pub(super) fn version(&self) -> Option<Version> {
        match self {
            Self::Present(record) => Some(record.version),
            _ => None,
        }
    }

    pub(super) fn read(&self) -> Option<(Version, Payload)> {
        match self {
            Self::Present(record) => Some((record.version, record.data.clone())),
            _ => None,
        }
    }

    /// The state that conditions compare.
    pub(super) fn tag(&self) -> Option<Tag> {
        match self {
            Self::Present(record) => Some(record.tag()),
            _ => None,
        }
    }

    /// What the store has, where nothing newer is in memory.
    pub(super) fn expected(&self) -> Expected {
        match self {
            Self::Present(record) => Expected::of(record),
            _ => Expected::Missing,
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::Read(self.read())
    }
}

/// Which shards have subscribers, and how many.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// New whenever all subscriptions end at once, so that releases of earlier ones are told apart.
    pub(super) epoch: u64,
    pub(super) shards: SmallVec<[(u16, u32); 2]>,
}

/// What a waiting request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    No,
    Loading,
    Rule,
    /// Enough was authorized in this turn.
    Turn,
}

/// Requests that wait, boxed because few records have some.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) blocked: Blocked,
    /// The store was asked for the record, and has not answered. The first job need not wait for that: its rule may wait for
    /// another record while somebody else's waits for this one.
    pub(super) loading: bool,
    pub(super) jobs: VecDeque<Job>,
    /// Rules that want the value as soon as it is loaded.
    pub(super) askers: Vec<Asker>,
    /// What subscribers have, since another owner has written the record; the stored value is on its way.
    pub(super) superseded: Option<Value>,
}

#[derive(Debug)]
pub(super) struct OwnedRecord {
    pub(super) value: Value,
    pub(super) interest: Interest,
    pub(super) waiting: Option<Box<Waiting>>,
    /// Its store has not got the value yet. Its write queue knows that, too; this saves the look.
    pub(super) is_dirty: bool,
    /// Some subscribers are authorized again before each change.
    pub(super) has_readers: bool,
    /// Whether a session was allowed something with it since it is in memory.
    pub(super) is_used: bool,
    /// Whether a rule has read it, also if it does not exist: rules ask for the same names again and again.
    pub(super) is_read_by_rules: bool,
    /// Requests that have waited for its load and were deferred then. Without the record they would wait for another load.
    pub(super) deferred_count: u32,
    /// The last time it became idle, as counted by the cache.
    pub(super) stamp: u64,
}

impl OwnedRecord {
    /// Whether it is in the table for a job that was refused before it was loaded.
    pub(super) fn is_unneeded(&self) -> bool {
        matches!(self.value, Value::Unknown)
            && self.waiting.is_none()
            && self.interest.shards.is_empty()
    }

    /// Whether nothing of it is worth keeping once no session uses it.
    pub(super) fn is_only_asked_for(&self) -> bool {
        let is_used = self.is_used && matches!(self.value, Value::Present(_));
        !is_used && !self.is_read_by_rules && self.deferred_count == 0
    }

    pub(super) fn waiting_mut(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_with(|| {
            Box::new(Waiting {
                blocked: Blocked::No,
                loading: false,
                jobs: VecDeque::new(),
                askers: Vec::new(),
                superseded: None,
            })
        })
    }
}
