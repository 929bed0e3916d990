//! Messages of rpc.

use super::{Correlation, Names, Refusal};

/// What every message of a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The rpc.
    pub name: &'a str,
    /// Chosen by the requestor; identifies the call within its session.
    pub correlation: &'a str,
}

/// Messages of rpc.
#[derive(Clone, Debug, PartialEq)]
pub enum Rpc<'a> {
    /// Bulk registration as provider, to be acknowledged.
    Provide {
        /// The rpcs.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Takes registrations back, to be acknowledged.
    Unprovide {
        /// The rpcs.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges `Provide` or `Unprovide`.
    Ack {
        /// True for `Provide`.
        provide: bool,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// A call; from the server: to a provider.
    Request {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
        /// The requestor's user id, if configured; only from the server.
        requestor_name: Option<&'a str>,
        /// The requestor's client data, if configured; only from the server.
        requestor_data: Option<&'a str>,
    },
    /// The provider works on it.
    Accept(Call<'a>),
    /// The provider does not want it.
    Reject(Call<'a>),
    /// The result.
    Response {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// The provider's error.
    RequestError {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// An error answer.
    Error(RpcError<'a>),
}

/// The actions of an rpc message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcAction {
    /// Provide.
    Provide,
    /// Request.
    Request,
    /// Accept.
    Accept,
    /// Response.
    Response,
    /// Request error.
    RequestError,
    /// Reject.
    Reject,
}

/// Error answers of rpc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcError<'a> {
    /// A rule said no.
    Denied(Refusal<'a, RpcAction>),
    /// A rule failed.
    PermissionError(Refusal<'a, RpcAction>),
    /// The session provides that name already.
    MultipleProviders {
        /// The rpc.
        name: &'a str,
    },
    /// The call has no provider, or all its providers have declined.
    NoProvider(Call<'a>),
    /// The provider did not accept in time.
    AcceptTimeout(Call<'a>),
    /// The provider did not respond in time.
    ResponseTimeout(Call<'a>),
    /// The provider accepted twice.
    MultipleAccept(Call<'a>),
    /// There is no such call, or it is not this session's to answer.
    InvalidCorrelation {
        /// Which call.
        call: Call<'a>,
        /// The refused action.
        action: RpcAction,
    },
    /// The data is not JSON, or a limit of name, size or depth was passed.
    InvalidData(Refusal<'a, RpcAction>),
}
