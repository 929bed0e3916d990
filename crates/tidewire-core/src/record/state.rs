//! The state that an owner keeps of a record: its value, the shards with subscribers, the waiting requests.

use std::collections::VecDeque;

use crate::entry::{Asker, Snapshot};
use crate::message::Tag;
use crate::record::job::Job;
use crate::shard_counts::ShardCounts;
use crate::store::{Expected, StoredRecord, Version};
use crate::text::Payload;

/// The owner's knowledge of a record's value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Not loaded, or no longer valid.
    Unknown,
    Missing,
    Present(StoredRecord),
}

impl Value {
    pub(super) fn record(&self) -> Option<&StoredRecord> {
        match self {
            Self::Present(record) => Some(record),
            _ => None,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    pub(super) fn data(&self) -> Option<&Payload> {
        self.record().map(|record| &record.data)
    }

    /// Bytes of the value and of the keys of its writes.
    pub(super) fn bytes(&self) -> usize {
        self.record().map_or(0, StoredRecord::bytes)
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.record().map(|record| record.version)
    }

    pub(super) fn read(&self) -> Option<(Version, Payload)> {
        self.record()
            .map(|record| (record.version, record.data.clone()))
    }

    /// The state that conditions compare.
    pub(super) fn tag(&self) -> Option<Tag> {
        self.record().map(StoredRecord::tag)
    }

    /// The state in the store, if memory has no newer one.
    pub(super) fn expected(&self) -> Expected {
        self.record().map_or(Expected::Missing, Expected::of)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        match self {
            Self::Present(record) => Snapshot::Read(Some((record.tag(), record.data.clone()))),
            _ => Snapshot::Read(None),
        }
    }

    /// Whether the record has the key of a write that the user has made.
    pub(super) fn has_key(&self, user: &str, key: &str) -> bool {
        match self {
            Self::Present(StoredRecord {
                write_keys: Some(keys),
                ..
            }) => keys.contains(user, key),
            _ => false,
        }
    }

    /// Whether a write whose key the record does not have may have been made all the same. `seen` is the state that the sender had last
    /// seen when it first sent the write.
    ///
    /// The write was not made before that state, because the sender sent it afterwards. In the same incarnation it would have made a
    /// later version, and the keys that were dropped decide (`WriteKeys`). If the record was deleted since, its keys are gone. If the
    /// record is older than the state that the sender has seen, versions were lost: the owner will make them again with other writes, and
    /// they would no longer order this write after what its sender has seen.
    pub(super) fn may_have_made(&self, seen: Tag) -> bool {
        let (Self::Present(record), Ok(version)) = (self, u32::try_from(seen.version)) else {
            return true;
        };
        let version = Version(version);
        let keys = record.write_keys.as_ref();
        record.incarnation.0 != seen.incarnation
            || record.version < version
            || keys.is_some_and(|keys| keys.may_have_dropped(version))
    }
}

/// Which shards have subscribers, and how many.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// Changes whenever all subscriptions end at once, so that the owner can recognize releases of earlier ones.
    pub(super) epoch: u64,
    pub(super) shards: ShardCounts,
}

/// The reason why the requests of a record wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    No,
    Loading,
    Rule,
    /// The turn has authorized as many groups as it may.
    Turn,
    /// The first job is a part of a transaction, and other parts of it can't be decided yet.
    Transaction,
}

/// The waiting requests of a record, boxed because few records have any.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) blocked: Blocked,
    /// Whether the store's answer to a load is still to come. The first job need not wait for it: its rule may wait for another record,
    /// while a rule of another record waits for this one.
    pub(super) loading: bool,
    pub(super) jobs: VecDeque<Job>,
    /// Reads that get the value as soon as it is loaded.
    pub(super) askers: Vec<Asker>,
    /// The value before the load, if the store may have another one.
    pub(super) superseded: Option<Superseded>,
}

/// The value of a record that the owner loads again. The subscribers have it.
#[derive(Debug)]
pub(super) struct Superseded {
    pub(super) before: Value,
    pub(super) reason: Reload,
}

/// The reason for which an owner loads a record again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// The store has refused a write: it does not have the state that the owner expected.
    Refused,
    /// The store accepts no more writes of this owner.
    Deposed,
    /// The store may have lost commits.
    Compared,
}

/// How often a record was used since it is in memory, as far as the cache distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// In use for the first time.
    First,
    /// Idle after its first use.
    Once,
    /// Used again while it was idle, or soon after it was evicted.
    Again,
}

#[derive(Debug)]
pub(super) struct OwnedRecord {
    pub(super) value: Value,
    pub(super) interest: Interest,
    pub(super) waiting: Option<Box<Waiting>>,
    /// Whether its store does not have the value yet. The write queue knows this too; the flag saves a lookup.
    pub(super) is_dirty: bool,
    /// Whether some subscribers are authorized again before each change.
    pub(super) has_readers: bool,
    /// Whether a request for it was done, rather than denied, since it is in memory.
    pub(super) is_used: bool,
    /// Whether a rule has read it, even if it does not exist: rules read the same names repeatedly.
    pub(super) is_read_by_rules: bool,
    pub(super) reuse: Reuse,
    /// Number of requests that have waited for its load and were then deferred. If the record was evicted, they would wait for another
    /// load.
    pub(super) deferred_count: u32,
    /// The cache's stamp of the last time it became idle.
    pub(super) stamp: u64,
}

impl OwnedRecord {
    /// Whether it is in the table only for a job that was refused before the load.
    pub(super) fn is_unneeded(&self) -> bool {
        matches!(self.value, Value::Unknown)
            && self.waiting.is_none()
            && self.interest.shards.is_empty()
    }

    /// Notes that a request or a rule uses it.
    pub(super) fn note_use(&mut self) {
        if self.reuse == Reuse::Once {
            self.reuse = Reuse::Again;
        }
    }

    /// Whether it is not worth keeping once no session uses it.
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
