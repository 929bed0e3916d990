//! Listening: providers register patterns, and the server offers them matching names that have subscribers.
//!
//! Every shard knows all patterns. The owner of a name runs its search (`owner`): it asks the candidates one at a time, and at most one of
//! them provides the name. The server accepts a pattern if the `listen` rules may allow a name that begins with the literal prefix of the
//! pattern. Each name is authorized again before it is offered.

mod owner;
mod pattern;
mod prefix;
mod provider;

pub(crate) use owner::ListenOwner;
pub(crate) use prefix::literal_prefix;
pub(crate) use provider::{lose, message, notify, wrap};
