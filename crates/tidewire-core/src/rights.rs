//! Changes of rights while people are connected, as the node gives them to its shards: new rules, and who is nobody any
//! more.
//!
//! Every change has a number, counted up by one for the whole node, and reaches each shard in that order.

use std::sync::Arc;

use crate::permission::Permission;

/// A change of rights.
#[derive(Clone, Debug)]
pub enum RightsChange {
    /// Another judge. Whoever holds a subscription is judged again by it.
    Rules(Arc<dyn Permission>),
}
