//! The seam to durable storage: the trait every store implements, and its vocabulary.
//!
//! A store is called from a thread of its own and may block; the engine never sees it, only requests and
//! completions. Retry, batching, cache and metrics are written once, around the trait.

use std::fmt;

use crate::address::Epoch;
use crate::message::{Tag, WireVersion};
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

/// What a commit does to one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// Keeps this value, whatever was there.
    Put(StoredRecord),
    /// Forgets the record; a missing one is no error.
    Delete,
}

/// One name's part of a commit. A batch holds each name once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWrite {
    /// The record.
    pub name: Name,
    /// What happens to it.
    pub change: StoreChange,
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

/// Why a store could not do what it was asked. Nothing of a failed commit may be relied on, and all of it may be
/// repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// For people: lowercase, names the thing.
    pub message: String,
    /// Whether the disk or the quota is full, which people must mend.
    pub full: bool,
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

/// A place that keeps records. It has one writer, whose functions may block and may be called again after an error.
pub trait Store: Send {
    /// A reader of its own, for another thread.
    ///
    /// # Errors
    /// The store can't be read now.
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// Makes all writes durable, or none: on return they are on disk, synced. Repeating a batch is harmless.
    ///
    /// # Errors
    /// Nothing may be relied on; the store has closed what failed and opens it again at the next call.
    fn commit(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError>;

    /// Does what nobody waits for, such as a checkpoint. Called after the writers of a commit were answered; by
    /// default nothing.
    ///
    /// # Errors
    /// The work is still to be done; no commit is in doubt.
    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Closes cleanly: the next opening keeps the epoch. Nothing can be committed afterwards.
    ///
    /// # Errors
    /// The clean mark could not be written; the next opening starts a new epoch.
    fn close(&mut self) -> Result<(), StoreError>;
}
