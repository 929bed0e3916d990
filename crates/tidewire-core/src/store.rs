//! The seam to durable storage: the trait every store implements, and its vocabulary.
//!
//! A store is called from a thread of its own and may block; the engine never sees it, only requests and
//! completions. Retry, batching, cache and metrics are written once, around the trait.

use std::fmt;

use crate::address::Epoch;
use crate::message::{Tag, WireVersion};
use crate::quota::QuotaChange;
use crate::text::{Name, Payload};

/// New at each creation of a record, so a record that was deleted and created again is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// Counts the writes of a record from 0; after 2^31 - 1 comes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// The version of a record that was created and not yet written.
    pub const CREATED: Self = Self(0);
    /// The last version before the numbers start again.
    pub const LAST: Self = Self(i32::MAX as u32);

    /// The version that the next write makes.
    #[must_use]
    pub fn next(self) -> Self {
        if self >= Self::LAST {
            Self(1)
        } else {
            Self(self.0 + 1)
        }
    }
}

/// A record as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Which creation of the name.
    pub incarnation: Incarnation,
    /// How often it was written.
    pub version: Version,
    /// Its value: an object or array.
    pub data: Payload,
}

impl StoredRecord {
    /// The state that conditions compare.
    #[must_use]
    pub fn tag(&self) -> Tag {
        Tag {
            incarnation: self.incarnation.0,
            // Versions stay within `Version::LAST`, so the conversion never saturates.
            version: WireVersion::try_from(self.version.0).unwrap_or(WireVersion::MAX),
        }
    }
}

/// Which owner of records speaks: the number of an opening of the store, which only grows. It is a fencing token: once
/// somebody else has opened the store, nothing of an earlier owner is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(pub u64);

/// What a commit does to one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// Keeps this value.
    Put(StoredRecord),
    /// Forgets the record; a missing one is no error.
    Delete,
}

impl StoreChange {
    /// What is there after the change, for whoever changes it next.
    #[must_use]
    pub fn leaves(&self) -> Expected {
        match self {
            Self::Put(record) => Expected::of(record),
            Self::Delete => Expected::Missing,
        }
    }

    /// Whether the change has nothing left to do where `stored` is. The data count, too: two owners that know nothing
    /// of each other may have made the same version of different values.
    #[must_use]
    pub fn is_done(&self, stored: Option<&StoredRecord>) -> bool {
        match self {
            Self::Put(record) => stored == Some(record),
            Self::Delete => stored.is_none(),
        }
    }
}

/// What must be stored for a write to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there.
    Anything,
    /// Nothing.
    Missing,
    /// This version of this creation of the record.
    At(Incarnation, Version),
}

impl Expected {
    /// Exactly this record.
    #[must_use]
    pub fn of(record: &StoredRecord) -> Self {
        Self::At(record.incarnation, record.version)
    }

    /// Whether it is what is stored.
    #[must_use]
    pub fn is_met(self, stored: Option<&StoredRecord>) -> bool {
        match self {
            Self::Anything => true,
            Self::Missing => stored.is_none(),
            Self::At(..) => stored.is_some_and(|stored| self == Self::of(stored)),
        }
    }
}

/// One name's part of a commit. A batch holds each name once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWrite {
    /// The record.
    pub name: Name,
    /// What this owner last committed, or found.
    pub expected: Expected,
    /// What happens to it.
    pub change: StoreChange,
    /// The user whose quota the stored value counts for. None for what the server keeps itself, and for users without a name.
    pub writer: Option<Name>,
}

/// What became of one write of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is on disk, by this commit or by an earlier attempt of it.
    Done,
    /// Something else than expected is stored, and stays: another owner has written it.
    Refused,
}

/// What a load found for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The record.
    Found(StoredRecord),
    /// There is no such record.
    Missing,
    /// What is stored does not pass its checksum. It is kept aside and never served.
    Corrupt,
}

/// What a store says of itself once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// New after each unclean stop.
    pub epoch: Epoch,
    /// How often the store was opened, this time included; makes incarnations unique.
    pub opening: u64,
}

impl Opened {
    /// The term of whoever opened it.
    #[must_use]
    pub fn term(self) -> Term {
        Term(self.opening)
    }
}

/// What kind of trouble a store is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTrouble {
    /// It can't be used now, and it is not known what became of the request. Trying again may help.
    Unavailable,
    /// The disk or the quota is full, which people must mend.
    Full,
    /// Somebody else has opened the store since. Nothing was done, and nothing ever will be for this term.
    StaleTerm,
}

/// Why a store could not do what it was asked. Nothing of a failed commit may be relied on, and all of it may be
/// repeated as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// For people: lowercase, names the thing.
    pub message: String,
    /// What to make of it.
    pub trouble: StoreTrouble,
}

impl StoreError {
    /// The store can't be used now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            trouble: StoreTrouble::Unavailable,
        }
    }

    /// Somebody else has opened the store since.
    #[must_use]
    pub fn stale_term(term: Term, newest: Term) -> Self {
        Self {
            message: format!(
                "another server has opened the store: this is its opening {}, ours was {}",
                newest.0, term.0
            ),
            trouble: StoreTrouble::StaleTerm,
        }
    }

    /// Whether there is no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.trouble == StoreTrouble::Full
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

/// The reading half of a store. A store gives as many readers as are asked for, so that reads need not wait behind
/// commits. All functions may block and may be called again after an error.
pub trait StoreReader: Send {
    /// Finds records, one answer for each name and in their order. Sees every commit that returned before the call.
    ///
    /// # Errors
    /// The store can't be read now.
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError>;

    /// Calls `visit` with up to `count_max` records whose names start with `prefix` and come after `after`, in
    /// byte order of their names, and says whether there may be more.
    ///
    /// # Errors
    /// The store can't be read now.
    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError>;
}

/// How a store stands to its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// Bytes that it may use, if there is a limit.
    pub bytes_max: Option<u64>,
    /// Users that have used up their quota.
    pub full_users: usize,
    /// What shards are to learn since the last call.
    pub changes: Vec<QuotaChange>,
}

/// A place that keeps records. It has one writer, whose functions may block and may be called again after an error.
pub trait Store: Send {
    /// A reader of its own, for another thread.
    ///
    /// # Errors
    /// The store can't be read now.
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// Does each write whose expectation is met, and says of each, in their order, whether it was. On return all that is
    /// done is on disk, synced; so is what a refusal was based on. May be repeated, also after an error that left
    /// open what was done: a write whose outcome is there already is done.
    ///
    /// # Errors
    /// Nothing may be relied on; the store has closed what failed and opens it again at the next call. A term before that
    /// of the last opening does nothing, [`StoreTrouble::StaleTerm`].
    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError>;

    /// Does what nobody waits for, such as a checkpoint. Called after the writers of a commit were answered; by
    /// default nothing.
    ///
    /// # Errors
    /// The work is still to be done; no commit is in doubt.
    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How the store stands to its quotas; called at the start and after each commit. By default none are kept.
    fn quota(&mut self) -> Option<QuotaState> {
        None
    }

    /// Closes cleanly: the next opening keeps the epoch. Nothing can be committed afterwards.
    ///
    /// # Errors
    /// The clean mark could not be written; the next opening starts a new epoch.
    fn close(&mut self) -> Result<(), StoreError>;
}
