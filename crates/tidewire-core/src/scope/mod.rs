//! Presence in scopes: the sessions that are members of a named scope, each with a state.
//!
//! The slot of a scope's name selects its owner, which keeps the members and sends their changes once a turn: the newest state of each
//! member, as one text for all subscribers. The shard of a session keeps what the session has requested, authorizes it, and posts it
//! again if the owner changes. So owners never pass members to each other (decision 0115).
//!
//! - [`session`]: the scopes of the sessions of a shard.
//! - [`owner`]: the members and subscribers of the scopes that a shard owns.

pub(crate) mod owner;
pub(crate) mod session;
