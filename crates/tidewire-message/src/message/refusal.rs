//! The refusal of a request, in one shape for all primitives.

use super::{Correlation, WireVersion};

/// A request that the server refuses, or a right that it takes back. `A` has the actions of the primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a, A> {
    /// Why.
    pub reason: Reason,
    /// The action of the refused message.
    pub action: A,
    /// The name that was checked; absent for requests without a name.
    pub name: Option<&'a str>,
    /// The correlation id of the request.
    pub correlation: Correlation<'a>,
    /// Whether the request asked for a write acknowledgement.
    pub write_ack: bool,
    /// The record's current version, if that is the reason.
    pub version: Option<WireVersion>,
    /// JSON text: the record's current value, if the peer may read it, or what failed in a notify.
    pub data: Option<&'a str>,
}

impl<'a, A> Refusal<'a, A> {
    /// A refusal without the optional fields.
    #[must_use]
    pub fn new(reason: Reason, action: A) -> Self {
        Self {
            reason,
            action,
            name: None,
            correlation: None,
            write_ack: false,
            version: None,
            data: None,
        }
    }

    /// The refusal of the same request for another reason.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }
}

/// Why the server refuses a request. `spec/errors.toml` has the code of each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A rule said no, or a limit of the session is reached.
    Denied,
    /// A rule failed.
    RuleFailed,
    /// The data, path or name can't be used, or a limit of name, size or depth was passed. Unparsable data is never echoed.
    InvalidData,
    /// The text is not a pattern of events, or has too many segments.
    InvalidPattern,
    /// The session is subscribed to that name, pattern, user or to all users, already.
    MultipleSubscriptions,
    /// The session provides that rpc already.
    MultipleProviders,
    /// The call has no provider, or all its providers have declined.
    NoProvider,
    /// The provider did not accept the call in time.
    AcceptTimeout,
    /// The provider did not respond in time.
    ResponseTimeout,
    /// The provider accepted the call twice.
    MultipleAccept,
    /// There is no such call, it is not this session's to answer, or the requestor has a running call with this correlation id.
    InvalidCorrelation,
    /// The version exists already; the peer merges.
    VersionExists,
    /// The version lies ahead of the next one.
    InvalidVersion,
    /// A read of a record that does not exist.
    NotFound,
    /// The store did not answer in time.
    LoadTimeout,
    /// The store failed, or the record is corrupt.
    LoadFailed,
    /// The record could not be created.
    CreateFailed,
    /// The write failed, may be tried again, or its record is missing.
    UpdateFailed,
    /// The delete failed and may be tried again.
    DeleteFailed,
    /// A notify failed.
    NotifyFailed,
    /// A patch of a record whose prefix takes whole values only.
    PatchOnHotPath,
    /// The repeated write may have been made, and its key is not kept. Nothing was done.
    WriteUnknown,
    /// The records of the transaction can't be committed in one step, or its operations can't be read. The data of the refusal is a
    /// sentence ([`TransactionFault`]).
    TransactionRefused,
}

/// Why a transaction is refused before its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionFault {
    /// It has no operation, or too many.
    Count,
    /// An operation is not valid.
    Malformed,
    /// A name is not valid.
    Name,
    /// A name occurs twice.
    Repeated,
    /// A value is not an object or array, or exceeds a limit.
    Value,
    /// The names have several slots.
    Slots,
    /// The records are in several stores.
    Stores,
    /// Only some of the records are kept in memory only.
    MemoryOnly,
    /// The store commits each record by itself.
    StoreKind,
    /// A member of the cluster can't read the request.
    Level,
}

impl TransactionFault {
    /// A JSON string that says it, and how to solve it.
    #[must_use]
    pub fn data(self) -> &'static str {
        match self {
            Self::Count => {
                "\"a transaction has 1 to limits.transaction_names_max operations, one for each name\""
            }
            Self::Malformed => {
                "\"an operation is not an object with data, if, or both; if is missing, present or a state\""
            }
            Self::Name => "\"a name is empty, reserved or longer than limits.name_bytes_max\"",
            Self::Repeated => "\"a name occurs twice; write one operation for it\"",
            Self::Value => {
                "\"a record must be an object or array within limits.record_bytes_max and limits.nesting_max\""
            }
            Self::Slots => {
                "\"the names have several slots; set collections.X.slot_by to prefix, and begin all names with the same X/ID\""
            }
            Self::Stores => {
                "\"the records are in several stores; use names that stores.X.prefixes leads to one store\""
            }
            Self::MemoryOnly => {
                "\"some of the records are under record.memory_only_prefixes and others are not; use records of one kind\""
            }
            Self::StoreKind => {
                "\"a store of the kind mongodb can't commit several records in one step; set store.kind to sqlite, postgres or redis\""
            }
            Self::Level => {
                "\"a member of the cluster runs a version of the server without transactions; update all members\""
            }
        }
    }
}
