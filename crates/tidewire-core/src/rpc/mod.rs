//! Rpc: calls, their providers and their timers.
//!
//! The owner of an rpc name runs its calls. A call is identified by (requestor, correlation id). An answer counts only if it comes from
//! the provider that has the call.

mod footprint;
mod owner;
mod registration;
mod session;

pub(crate) use owner::RpcOwner;
pub(crate) use registration::lose;
pub(crate) use session::{deliver, message};
