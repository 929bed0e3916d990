//! Records: versioned documents. [`subscriber`] is a session's side of them, [`owner`] the side that decides.

mod announce;
mod authorize;
pub(crate) mod change;
pub(crate) mod commit;
mod decide;
mod deferred;
mod job;
mod kept;
pub(crate) mod owner;
mod queue;
mod readers;
mod repeat;
pub(crate) mod share;
pub(crate) mod subscriber;
pub(crate) mod write_queue;
