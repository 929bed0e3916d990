//! Records: versioned documents. [`subscriber`] is a session's side of them, [`owner`] the side that decides.

mod announce;
mod apply;
mod authorize;
pub(crate) mod change;
pub(crate) mod commit;
mod deferred;
mod eviction;
mod interest;
mod load;
mod outcome;
pub(crate) mod owner;
mod queue;
mod readers;
mod repeat;
mod request;
mod run;
pub(crate) mod share;
mod state;
pub(crate) mod subscriber;
mod waiter;
pub(crate) mod write_queue;
