//! The seam to durable storage: the trait that every store implements, and its vocabulary.
//!
//! A store is called from its own thread and may block. The engine never calls it, and sees only requests and completions. Retries,
//! batches, the cache and metrics are implemented once, around the trait.

mod write_keys;

use std::fmt;
use std::sync::Arc;

pub use self::write_keys::{Dropped, StoredKey, WRITE_KEYS_KEPT, WriteKeys};
pub use crate::view::{Heartbeat, MemberId, Proposal, StoredView, View};

use crate::address::Epoch;
use crate::message::{Tag, WireVersion};
use crate::text::{Name, Payload};

/// A change of a store's quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// Bytes by which the store may still grow.
    Room(u64),
    /// A user has reached its quota, or has room again.
    User {
        /// The user.
        user: Name,
        /// Whether its writes are refused.
        is_full: bool,
    },
}

/// New at each creation of a record. It distinguishes a record that was deleted and created again from the earlier one.
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
    /// Identifies the creation of the record.
    pub incarnation: Incarnation,
    /// Counts the writes since the creation.
    pub version: Version,
    /// Its value: an object or array.
    pub data: Payload,
    /// The keys of its last repeatable writes; absent if it has had none.
    pub write_keys: Option<Arc<WriteKeys>>,
}

impl StoredRecord {
    /// Bytes of the value and of the keys of its writes.
    pub fn bytes(&self) -> usize {
        let keys = self.write_keys.as_ref();
        self.data.len() + keys.map_or(0, |keys| keys.bytes())
    }

    /// Whether both have the same state and value. The keys of their writes do not matter.
    pub fn is_same_value(&self, other: &Self) -> bool {
        (self.incarnation, self.version, &self.data)
            == (other.incarnation, other.version, &other.data)
    }

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

/// The place where the members of a cluster agree on their view. It is in the store, so that a commit can be compared with it. Its functions
/// may block and may be called again after an error.
pub trait Registry: Send {
    /// The current view.
    ///
    /// # Errors
    /// The registry can't be read now.
    fn view(&mut self) -> Result<StoredView, StoreError>;

    /// Makes a view that follows `expected`. From its return on, the store does no commit of an earlier view, nor of a process that is not a
    /// member; a commit that runs has ended. Returns the current view, which is another one if `expected` was not current. Each member must
    /// have opened the store. If the store has another generation than before, all slots get a later epoch.
    ///
    /// # Errors
    /// The outcome is unknown: the view may have changed.
    fn propose(&mut self, expected: View, proposal: &Proposal) -> Result<StoredView, StoreError>;

    /// The number of the current view, and the generation of the store. A member calls it once a second.
    ///
    /// # Errors
    /// The registry can't be read now.
    fn heartbeat(&mut self) -> Result<Heartbeat, StoreError>;
}

/// The change that a commit makes to one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// Stores this value.
    Put(StoredRecord),
    /// Removes the record. If it does not exist, that is not an error.
    Delete,
}

impl StoreChange {
    /// The state after the change, which the next change expects.
    #[must_use]
    pub fn leaves(&self) -> Expected {
        match self {
            Self::Put(record) => Expected::of(record),
            Self::Delete => Expected::Missing,
        }
    }

    /// Whether `stored` is already the result of the change. The data and the keys are compared as well: two owners that do not know of
    /// each other may have made the same version of different values, or of equal values for different senders.
    #[must_use]
    pub fn is_done(&self, stored: Option<&StoredRecord>) -> bool {
        match self {
            Self::Put(record) => stored == Some(record),
            Self::Delete => stored.is_none(),
        }
    }
}

/// The state that the store must have so that it takes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any state.
    Anything,
    /// No record.
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

    /// Whether the stored state is the expected one.
    #[must_use]
    pub fn is_met(self, stored: Option<&StoredRecord>) -> bool {
        match self {
            Self::Anything => true,
            Self::Missing => stored.is_none(),
            Self::At(..) => stored.is_some_and(|stored| self == Self::of(stored)),
        }
    }
}

/// One name's part of a commit. A batch contains each name at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWrite {
    /// The record.
    pub name: Name,
    /// The state that this owner last committed or found.
    pub expected: Expected,
    /// The change.
    pub change: StoreChange,
    /// The user whose quota the stored value counts for. `None` for values that the server itself keeps, and for users without a name.
    pub writer: Option<Name>,
}

/// The outcome of one write of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is on disk, by this commit or by an earlier attempt of it.
    Done,
    /// The stored state is not the expected one, and stays: another owner has written the record.
    Refused,
}

/// The result of a load for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The record.
    Found(StoredRecord),
    /// The record does not exist.
    Missing,
    /// The stored data do not pass their checksum. They are kept aside and never served.
    Corrupt,
}

/// The state that a store reports when it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// New after each unclean stop.
    pub epoch: Epoch,
    /// The number of openings of the store, including this one; makes incarnations unique.
    pub opening: u64,
}

/// Bits of an incarnation below the bits of its opening.
const OPENING_BITS_BELOW: u32 = 42;
/// Bits of an incarnation below the bits of its shard.
const SHARD_BITS_BELOW: u32 = 32;

impl Opened {
    /// The first incarnation of one of at most 1,024 shards. Each node opens the store for itself, and each shard of an opening has 2^32
    /// incarnations, so they are unique within the store. There can be 2^22 openings.
    #[must_use]
    pub fn first_incarnation(self, shard: u16) -> u64 {
        (self.opening << OPENING_BITS_BELOW) | (u64::from(shard) << SHARD_BITS_BELOW)
    }

    /// The view of a server that has opened the store alone.
    #[must_use]
    pub fn view(self) -> View {
        View(self.opening)
    }

    /// This life of a server that has opened the store alone.
    #[must_use]
    pub fn member(self) -> MemberId {
        MemberId {
            node: 0,
            birth: self.opening,
        }
    }
}

/// The kind of a store's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTrouble {
    /// The store can't be used now, and the outcome of the request is unknown. A retry may help.
    Unavailable,
    /// The disk or the quota is full. An operator must make room.
    Full,
    /// The view has changed since. Nothing was done.
    StaleView {
        /// The current view.
        current: View,
        /// Whether the member belongs to it. If it does, it adopts the view and repeats the commit unchanged. If it does not, the store
        /// never does a commit of it again.
        is_member: bool,
    },
}

impl StoreTrouble {
    /// Whether the store takes no more writes from this process.
    #[must_use]
    pub fn is_eviction(self) -> bool {
        matches!(
            self,
            Self::StaleView {
                is_member: false,
                ..
            }
        )
    }
}

/// Why a store could not do a request. After a failed commit no outcome is certain, and the whole commit may be repeated unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// For people: lowercase, names the thing.
    pub message: String,
    /// The kind of the failure.
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

    /// The store does not do a commit of `view`, because `current` is the current one.
    #[must_use]
    pub fn stale_view(view: View, current: View, is_member: bool) -> Self {
        let (ours, current_number) = (view.0, current.0);
        let message = match is_member {
            true => format!(
                "the view of the store has changed: it is {current_number}, ours was {ours}"
            ),
            false => format!(
                "another server has opened the store: its view is {current_number}, ours is {ours}"
            ),
        };
        Self {
            message,
            trouble: StoreTrouble::StaleView { current, is_member },
        }
    }

    /// Whether the store has no room left.
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

/// One page of the records whose names share a prefix, in byte order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// The records.
    pub records: Vec<(Name, Loaded)>,
    /// Whether there may be more after the last of them.
    pub more: bool,
}

/// A read of a part of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRead {
    /// The definition of the index, by which the store finds it.
    pub definition: Arc<str>,
    /// The ranges of keys in the order in which they are read, each from its first key to before its second one.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether each range is read from its end.
    pub descending: bool,
    /// At most this many entries.
    pub count_max: usize,
}

/// An entry of an index. Entries with equal keys may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The key, at most 512 bytes.
    pub key: Arc<[u8]>,
    /// The record.
    pub name: Name,
}

/// How a read of an index ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexEnd {
    /// The store does not have the index, or it lacks entries yet.
    Unusable,
    /// There are no more entries.
    Complete,
    /// There may be more.
    More,
}

/// How far a store is with its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexBuild {
    /// There is nothing to do.
    Complete,
    /// There is more to do.
    Pending,
    /// There is more to do, but not now: another member of the cluster does it, or one that keeps no indexes must leave first.
    Waiting,
}

/// A part of the entries of a read. All parts are from one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPart {
    /// The entries.
    pub entries: Vec<IndexEntry>,
    /// `None` if more parts follow.
    pub end: Option<IndexEnd>,
}

/// The reading half of a store. A store gives as many readers as its users need, so that reads do not wait behind commits. All functions
/// may block and may be called again after an error.
pub trait StoreReader: Send {
    /// Finds records, one answer for each name and in their order. Sees every commit that returned before the call.
    ///
    /// # Errors
    /// The store can't be read now.
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError>;

    /// Calls `visit` with up to `count_max` records whose names start with `prefix` and come after `after`, in byte order of their names.
    /// Returns whether there may be more.
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

    /// Calls `visit` with the key and the name of entries of an index, all of one moment that is after every commit that returned before the
    /// call. By default a store has no indexes.
    ///
    /// # Errors
    /// The store can't be read now; some entries may have been visited.
    fn read_index(
        &mut self,
        read: &IndexRead,
        visit: &mut dyn FnMut(&[u8], &str),
    ) -> Result<IndexEnd, StoreError> {
        let _ = (read, visit);
        Ok(IndexEnd::Unusable)
    }
}

/// The use of a store's quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// Bytes that it may use, if there is a limit.
    pub bytes_max: Option<u64>,
    /// Users that have used up their quota.
    pub full_users: usize,
    /// The changes since the last call that the shards must know.
    pub changes: Vec<QuotaChange>,
}

/// A place that keeps records. It has one writer, whose functions may block and may be called again after an error.
pub trait Store: Send {
    /// A separate reader, for another thread.
    ///
    /// # Errors
    /// The store can't be read now.
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// Does each write whose expectation is met. Returns one outcome for each write, in their order. On return all completed writes are on
    /// disk and synced, and so is the state that a refusal was based on. A commit may be repeated, even after an error that left its
    /// outcome open: a write whose result is already stored is done.
    ///
    /// # Errors
    /// No outcome is certain. The store has closed the part that failed, and opens it again at the next call. If `view` is not the current
    /// one or `member` does not belong to it, the store does nothing and returns [`StoreTrouble::StaleView`].
    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError>;

    /// The registry of the members that share the store. `None` by default: such a store belongs to the server that opened it last, whose
    /// view is [`StoredView::of_one_node`].
    ///
    /// # Errors
    /// The registry can't be reached now.
    fn registry(&mut self) -> Result<Option<Box<dyn Registry>>, StoreError> {
        Ok(None)
    }

    /// Does work that no session waits for, such as a checkpoint. Called after the writers of a commit have their answers. By default it
    /// does nothing.
    ///
    /// # Errors
    /// The work is still to be done; no commit is in doubt.
    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The use of the store's quotas. Called at the start and after each commit. By default a store has no quotas.
    fn quota(&mut self) -> Option<QuotaState> {
        None
    }

    /// Declares the indexes that the store keeps, by their definitions. A new one is built by [`Store::build_indexes`]; the store removes
    /// all others, unless another member of a cluster declares them. Each commit from then on, of all members, changes the entries of the
    /// declared indexes together with the records. By default a store keeps no indexes.
    ///
    /// # Errors
    /// The store keeps no indexes, or can't be written now.
    fn set_indexes(&mut self, definitions: &[Arc<str>]) -> Result<(), StoreError> {
        match definitions {
            [] => Ok(()),
            _ => Err(StoreError::unavailable("the store keeps no indexes")),
        }
    }

    /// Whether indexes are declared.
    fn has_indexes(&self) -> bool {
        false
    }

    /// Adds entries of records to an index that is not complete, or removes entries of an index that is no longer declared: as many as a
    /// commit may wait for. Called after each commit, so it must be fast if there is nothing to do.
    ///
    /// # Errors
    /// Nothing has changed, and the step is still to be done.
    fn build_indexes(&mut self) -> Result<IndexBuild, StoreError> {
        Ok(IndexBuild::Complete)
    }

    /// Closes cleanly: the next opening keeps the epoch. Nothing can be committed afterwards.
    ///
    /// # Errors
    /// The clean mark could not be written; the next opening starts a new epoch.
    fn close(&mut self) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_of_each_opening_has_separate_incarnations() {
        let first = |opening, shard| {
            let epoch = Epoch(1);
            Opened { epoch, opening }.first_incarnation(shard)
        };
        let openings = [1, 2, 3, (1 << 22) - 1];
        let shards = openings.map(|opening| (0..1_024).map(move |shard| first(opening, shard)));
        let all: Vec<u64> = shards.into_iter().flatten().collect();
        assert!(all.is_sorted_by(|one, next| next - one >= 1 << 32));
        // Earlier versions shifted the opening by 40 bits.
        assert!(
            openings
                .iter()
                .all(|opening| first(*opening, 0) >= *opening << 40)
        );
    }
}
