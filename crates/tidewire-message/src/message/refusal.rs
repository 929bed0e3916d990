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
}
