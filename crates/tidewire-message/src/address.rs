//! Addresses of sessions, shards and nodes.

/// A shard of a node. A node numbers its shards from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The node, 0 while there is one only.
    pub node: u16,
    /// The shard within the node.
    pub shard: u16,
}

/// A session: its shard, its index there, and the generation of that index. A late answer to a session that has ended has an old
/// generation and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// The shard that owns the session for its life.
    pub address: Address,
    /// The index in that shard's table.
    pub index: u32,
    /// How often the index was used before.
    pub generation: u32,
}

/// The data folder's epoch: new after each unclean stop, so version numbers of different epochs are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);
