//! Rpc: provided names, calls and their answers.

use super::PendingReplyId;
use crate::address::SessionId;
use crate::footprint::{CALL_BYTES, text_bytes};
use crate::message::Reason;
use crate::text::{Name, Payload};

/// Messages to the owner of an rpc name.
#[derive(Clone, Debug)]
pub enum RpcEntry {
    /// A session provides these names.
    Provide {
        /// The rpcs.
        names: Vec<Name>,
        /// The session that provides them.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session no longer provides these names.
    Unprovide {
        /// The rpcs.
        names: Vec<Name>,
        /// The session that provided them.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session has lost the right to provide this name: its calls go to the next provider.
    Revoke {
        /// The rpc.
        name: Name,
        /// The session that provided it.
        provider: SessionId,
    },
    /// A call.
    Request(Box<OwnedCall>),
    /// A provider's answer.
    Answer {
        /// The rpc.
        name: Name,
        /// The correlation id, as the provider got it.
        correlation: Box<str>,
        /// The provider that answers.
        provider: SessionId,
        /// The kind of the answer.
        what: CallAnswer,
        /// Any JSON value, for results and errors.
        data: Option<Payload>,
    },
}

/// A call on its way.
#[derive(Clone, Debug)]
pub struct OwnedCall {
    /// The rpc.
    pub name: Name,
    /// Chosen by the requestor.
    pub correlation: Box<str>,
    /// The session that calls.
    pub requestor: SessionId,
    /// Any JSON value.
    pub data: Option<Payload>,
    /// The requestor's user id, if configured.
    pub requestor_name: Option<Name>,
    /// The requestor's client data, if configured.
    pub requestor_data: Option<Payload>,
}

/// Bytes that are kept for a call until it ends. The shard of its requestor and its owner count the same.
pub(crate) fn call_bytes(name: &str, correlation: &str, data: Option<&str>) -> usize {
    CALL_BYTES + text_bytes(name) + 3 * text_bytes(correlation) + data.map_or(0, text_bytes)
}

impl OwnedCall {
    /// The same for a call that is kept already.
    pub(crate) fn kept_bytes(&self) -> usize {
        let data = self.data.as_ref().map(Payload::as_str);
        call_bytes(&self.name, &self.correlation, data)
    }
}

/// A provider's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// It works on the call.
    Accept,
    /// It does not take the call.
    Reject,
    /// It has a result.
    Response,
    /// It has an error.
    Error,
    /// Its shard did not send it the call, because it no longer provides the name.
    Withdrawn,
}

/// A message of a call for one session.
#[derive(Clone, Debug)]
pub struct RpcDelivery {
    /// The session that gets the message.
    pub session: SessionId,
    /// The rpc.
    pub name: Name,
    /// The correlation id of the call for that session.
    pub correlation: Box<str>,
    /// Bytes that were kept for the call, if it has ended for its requestor.
    pub kept_bytes: usize,
    /// The message.
    pub what: CallNotice,
}

impl CallNotice {
    /// Whether the call has ended for its requestor.
    pub(crate) fn ends_call(&self) -> bool {
        matches!(self, Self::Response(_) | Self::Error(_) | Self::Failed(_))
    }
}

/// A message about a call to its requestor or its provider.
#[derive(Clone, Debug)]
pub enum CallNotice {
    /// To a provider: the call.
    Request {
        /// Any JSON value.
        data: Option<Payload>,
        /// The requestor's user id, if configured.
        requestor_name: Option<Name>,
        /// The requestor's client data, if configured.
        requestor_data: Option<Payload>,
    },
    /// To the requestor: a provider works on the call.
    Accepted,
    /// To the requestor: the result; the call has ended.
    Response(Option<Payload>),
    /// To the requestor: the provider's error; the call has ended.
    Error(Option<Payload>),
    /// To the requestor: the call has ended without an answer.
    Failed(Reason),
    /// To a provider: it accepted twice.
    MultipleAccept,
    /// To a provider: the call does not exist, or the provider may not answer it.
    Unknown(CallAnswer),
}
