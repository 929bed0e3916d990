//! Records: requests to the owner, and its answers and changes.

use std::sync::Arc;

use super::PendingReplyId;
use crate::address::SessionId;
use crate::json::Path;
use crate::message::{Only, RecordAction, RecordBulk, Tag};
use crate::principal::Principal;
use crate::store::{Incarnation, StoredRecord, Version};
use crate::text::{Name, Payload};
use crate::work::PATCH_WORK;

/// A name of a bulk message of records.
#[derive(Clone, Debug)]
pub struct BulkName {
    /// The record.
    pub name: Name,
    /// Its index in the message.
    pub index: u32,
    /// The serial of the new subscription; `None` if the session is already subscribed.
    pub serial: Option<u32>,
}

/// A request to the owner of records.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// The session that makes the request.
    pub session: SessionId,
    /// The session's principal.
    pub principal: Arc<Principal>,
    /// The request itself.
    pub what: RecordRequestKind,
}

/// The requests to an owner of records.
#[derive(Clone, Debug)]
pub enum RecordRequestKind {
    /// A bulk action on the names that this shard owns.
    Bulk {
        /// The action for each record.
        action: RecordBulk,
        /// The records.
        names: Vec<BulkName>,
        /// The pending reply that waits until all are done.
        reply: Option<PendingReplyId>,
        /// The correlation id, for refusals.
        correlation: Option<Box<str>>,
    },
    /// An operation on one record.
    One(Name, RecordOperation),
}

/// An operation of a session on one record.
#[derive(Clone, Debug)]
pub enum RecordOperation {
    /// Reads.
    Read(RecordRead),
    /// Deletes.
    Delete,
    /// Writes.
    Write(Box<OwnedWrite>),
    /// Replaces or removes the record if it is in a certain state.
    Put(Box<OwnedPut>),
    /// Changes several records of one owner; the record is the first of them.
    Transaction(Box<OwnedTransaction>),
}

impl RecordOperation {
    /// Bytes that it keeps in addition to its own size.
    pub(crate) fn kept_bytes(&self) -> usize {
        match self {
            Self::Write(write) => size_of::<OwnedWrite>() + write.change.kept_bytes(),
            Self::Put(put) => size_of::<OwnedPut>() + put.data.as_ref().map_or(0, Payload::len),
            Self::Transaction(transaction) => {
                let own = size_of::<OwnedTransaction>();
                let operations = transaction.operations.iter();
                own + operations.map(OwnedOperation::kept_bytes).sum::<usize>()
            }
            Self::Read(_) | Self::Delete => 0,
        }
    }
}

/// A part of a record that a session reads, or its right to read.
#[derive(Clone, Debug)]
pub enum RecordRead {
    /// A snapshot.
    Value,
    /// The version.
    Version,
    /// The value with its state, for the answer with this correlation id.
    State(Box<str>),
    /// Only its right to read a record that it is subscribed to.
    Right(Reauthorization),
}

/// A subscription that is reauthorized.
#[derive(Clone, Copy, Debug)]
pub struct Reauthorization {
    /// The number under which the session's shard waits for the answer.
    pub ticket: u64,
    /// The serial of the subscription.
    pub serial: u32,
    /// The epoch of the grant; absent if the subscription has ended in the meantime.
    pub epoch: Option<u64>,
}

/// A checked `Put`.
#[derive(Clone, Debug)]
pub struct OwnedPut {
    /// The correlation id, for the answer.
    pub correlation: Box<str>,
    /// The state that the record must have.
    pub only: Only,
    /// The new value; absent to remove the record.
    pub data: Option<Payload>,
}

/// A checked transaction.
#[derive(Clone, Debug)]
pub struct OwnedTransaction {
    /// The correlation id, for the answer.
    pub correlation: Box<str>,
    /// The operations, each on another record.
    pub operations: Vec<OwnedOperation>,
}

/// An operation of a transaction.
#[derive(Clone, Debug)]
pub struct OwnedOperation {
    /// The record.
    pub name: Name,
    /// The state that the record must have.
    pub only: Only,
    /// The change.
    pub change: OperationChange,
}

/// The change of an operation.
#[derive(Clone, Debug)]
pub enum OperationChange {
    /// The record stays as it is.
    Check,
    /// Replaces or creates the record.
    Put(Payload),
    /// Removes the record.
    Delete,
}

impl OwnedOperation {
    /// Bytes that it keeps in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        let data = match &self.change {
            OperationChange::Put(data) => data.len(),
            OperationChange::Check | OperationChange::Delete => 0,
        };
        size_of::<Self>() + self.name.len() + data
    }
}

/// The decision on a transaction.
#[derive(Clone, Debug)]
pub enum TransactionResult {
    /// It is done, and durable.
    Committed {
        /// Each record in the order of the operations: whether it existed before, and its state afterwards.
        stored: Vec<Stored>,
    },
    /// Nothing was done, because a record is not in the state that its operation requires.
    PreconditionFailed {
        /// The record.
        name: Name,
        /// Its state, if it exists.
        tag: Option<Tag>,
    },
    /// Refused. With `UpdateFailed` its outcome may be unknown, otherwise nothing was done.
    Refused {
        /// The record that was the reason.
        name: Name,
        /// Why.
        why: RecordRefusal,
    },
}

/// The result of a durable `Put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whether the record existed before.
    pub existed: bool,
    /// The new state; absent if the record was removed.
    pub tag: Option<Tag>,
}

/// A checked write.
#[derive(Clone, Debug)]
pub struct OwnedWrite {
    /// The version that it expects to make; `None` for the next one, whichever it is.
    pub version: Option<Version>,
    /// As in the request.
    pub correlation: Option<Box<str>>,
    /// Whether the session requests a write acknowledgement.
    pub write_ack: bool,
    /// The client's action.
    pub action: RecordAction,
    /// The change.
    pub change: OwnedChange,
    /// For a `Put`: whether the record existed before.
    pub put: Option<bool>,
    /// A write of the same user with the same key is not made again.
    pub key: Option<OwnedKey>,
}

/// The key of a write.
#[derive(Clone, Debug)]
pub struct OwnedKey {
    /// The client's own text.
    pub text: Arc<str>,
    /// For a repetition: the state that the client had last seen when it first sent the write.
    pub seen: Option<Tag>,
}

/// A checked change.
#[derive(Clone, Debug)]
pub enum OwnedChange {
    /// Replaces the whole value.
    Update(Payload),
    /// Sets or deletes one path.
    Patch(OwnedPatch),
    /// Several patches, one version step.
    PatchMulti {
        /// The text as the client sent it; `None` if a path is a list of steps, which only the server can read. Subscribers then get the
        /// whole value.
        text: Option<Payload>,
        /// The patches.
        patches: Arc<[OwnedPatch]>,
    },
}

impl OwnedChange {
    /// Bytes that it touches when it is applied to a document.
    pub(crate) fn work(&self, before: &str) -> usize {
        match self {
            Self::Update(_) => 0,
            // The document is scanned and copied.
            Self::Patch(_) => 2 * before.len(),
            // The same, once for all patches. Their paths are sorted before.
            Self::PatchMulti { patches, .. } => 2 * before.len() + patches.len() * PATCH_WORK,
        }
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        let of_patch = |patch: &OwnedPatch| {
            let data = patch.data.as_ref().map_or(0, Payload::len);
            size_of::<OwnedPatch>() + 2 * patch.text.len() + data
        };
        match self {
            Self::Update(data) => data.len(),
            Self::Patch(patch) => of_patch(patch),
            Self::PatchMulti { text, patches } => {
                // The steps of lists are kept only in the paths.
                let of_paths = || patches.iter().map(|patch| patch.path.kept_bytes()).sum();
                let text = text.as_ref().map_or_else(of_paths, Payload::len);
                text + patches.iter().map(of_patch).sum::<usize>()
            }
        }
    }
}

/// One checked patch.
#[derive(Clone, Debug)]
pub struct OwnedPatch {
    /// The path as the client wrote it.
    pub text: Name,
    /// The path.
    pub path: Arc<Path<'static>>,
    /// The value, absent to delete.
    pub data: Option<Payload>,
}

/// An owner's answer to a session.
#[derive(Clone, Debug)]
pub struct RecordAnswer {
    /// The session that made the request.
    pub session: SessionId,
    /// The record.
    pub name: Name,
    /// The pending reply that waits until all names are done.
    pub reply: Option<PendingReplyId>,
    /// The answer.
    pub what: Answer,
}

/// The continuation of a subscription by the next owner of its record.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// As announced.
    pub serial: u32,
    /// The epoch of the grant, which the release repeats.
    pub epoch: u64,
    /// Whether a session provides the record.
    pub provided: bool,
    /// As announced: the state that the session has.
    pub shown: Option<Tag>,
    /// The record, unless its state is the announced one.
    pub snapshot: Snapshot,
}

/// The answer for one record.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The subscription begins here: the session gets everything that is published later.
    Granted {
        /// As in the request.
        serial: u32,
        /// The epoch of the grant, which the release repeats.
        epoch: u64,
        /// Whether a session provides the record.
        provided: bool,
        /// Bytes of its value, which the owner keeps for its subscribers.
        value_bytes: usize,
        /// The snapshot that the session requested.
        snapshot: Snapshot,
        /// As in the request, for a shard that has to ask again.
        action: RecordBulk,
        /// As in the request.
        correlation: Option<Box<str>>,
    },
    /// The answer to an announced subscription: it continues here.
    Resumed(Box<Resumed>),
    /// The answer to `Reauthorize`.
    Reauthorized {
        /// As in the request.
        ticket: u64,
        /// Why the subscription has to end; `None` if it may stay.
        lost: Option<RecordRefusal>,
    },
    /// Not an answer: the session has lost the right to read, because this record or another one has changed. The subscription ends.
    Lost {
        /// The serial of the subscription.
        serial: u32,
        /// Why.
        why: RecordRefusal,
    },
    /// An answer without a subscription.
    Snapshot(Snapshot),
    /// The answer to a read of a record that does not exist.
    NotFound,
    /// The deletion is durable.
    Deleted,
    /// The write is durable.
    Written {
        /// As in the request.
        correlation: Option<Box<str>>,
    },
    /// The answer to a `Fetch`.
    Fetched {
        /// As in the request.
        correlation: Box<str>,
        /// The record, if it exists.
        state: Option<Box<StoredRecord>>,
    },
    /// The `Put` is durable.
    Stored {
        /// As in the request.
        correlation: Box<str>,
        /// The result of the `Put`.
        stored: Stored,
    },
    /// The record is not in the state that the `Put` requires.
    PreconditionFailed {
        /// As in the request.
        correlation: Box<str>,
        /// The state of the record, if it exists.
        tag: Option<Tag>,
    },
    /// The answer to a transaction.
    Decided {
        /// As in the request.
        correlation: Box<str>,
        /// The decision.
        result: TransactionResult,
    },
    /// The version exists already.
    VersionExists {
        /// The current version.
        version: Version,
        /// The current value, for a session that may read it; an empty value if the record does not exist.
        data: Option<Payload>,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
    /// The version is later than the next one.
    InvalidVersion {
        /// The current version.
        version: Version,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
    /// Refused; a subscription with this serial does not begin.
    Refused {
        /// Why.
        why: RecordRefusal,
        /// The refused action.
        action: RecordAction,
        /// The serial of the requested subscription.
        serial: Option<u32>,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
}

impl Answer {
    /// Bytes of the value that it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Granted { snapshot, .. } | Self::Snapshot(snapshot) => match snapshot {
                Snapshot::Read(Some((_, data))) => data.len(),
                _ => 0,
            },
            Self::Fetched {
                state: Some(record),
                ..
            } => record.data.len(),
            Self::VersionExists { data, .. } => data.as_ref().map_or(0, Payload::len),
            _ => 0,
        }
    }
}

/// The state of a record that an owner reports: its value, its version or nothing.
#[derive(Clone, Debug)]
pub enum Snapshot {
    /// State and value; `None` if it does not exist.
    Read(Option<(Tag, Payload)>),
    /// The version; `None` if it does not exist.
    Head(Option<Version>),
    /// Nothing.
    Nothing,
    /// In a cluster, for a subscription without a read: the state that its shard announces if the owner changes.
    Known(Tag),
}

/// Why an owner refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRefusal {
    /// A rule has denied it.
    Denied,
    /// A rule failed.
    RuleFailed,
    /// The store did not answer in time.
    LoadTimeout,
    /// The store failed, the record is corrupt, or too many requests wait for it.
    LoadFailed,
    /// The record could not be created.
    CreateFailed,
    /// The write could not be accepted, its outcome is unknown, or its record does not exist.
    UpdateFailed,
    /// The delete could not be accepted, or its outcome is unknown.
    DeleteFailed,
    /// The change can't be applied to the value, or the result exceeds a limit.
    InvalidData,
    /// Patches are refused under a hot-path prefix.
    PatchOnHotPath,
    /// The repeated write may have been made, and its key is not kept.
    WriteUnknown,
}

/// A change of a record, for its subscribers.
#[derive(Clone, Debug)]
pub enum Published {
    /// In a cluster: the next change belongs to this creation of the record.
    Created(Incarnation),
    /// It was written.
    Changed {
        /// The new version.
        version: Version,
        /// The change.
        change: OwnedChange,
        /// The new value.
        full: Payload,
    },
    /// It was deleted; all subscriptions end.
    Deleted,
    /// It has got, or lost, its provider.
    Provided(bool),
}
