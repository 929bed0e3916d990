//! Messages of rpc.

use super::{Correlation, Names, Reason, Refusal};

/// What every message of a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The rpc.
    pub name: &'a str,
    /// Chosen by the requestor; identifies the call within its session.
    pub correlation: &'a str,
}

impl<'a> Call<'a> {
    /// The refusal of a message of this call.
    #[must_use]
    pub fn refusal(self, reason: Reason, action: RpcAction) -> Refusal<'a, RpcAction> {
        Refusal {
            name: Some(self.name),
            correlation: Some(self.correlation),
            ..Refusal::new(reason, action)
        }
    }
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
    /// A refused request.
    Error(Refusal<'a, RpcAction>),
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
