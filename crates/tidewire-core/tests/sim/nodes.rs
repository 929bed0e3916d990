//! The shards of a run. They are on two nodes, whose shards have the same numbers: a shard number without its node identifies no shard.

use std::sync::Arc;

use tidewire_core::address::Address;
use tidewire_core::slot::{ClusterKey, Member, SlotTable};

/// The number of shards of both nodes together.
pub const SHARDS: usize = 3;
/// The shards of the first node. The second has the others.
const FIRST_NODE_SHARDS: usize = 2;

/// The address of a shard, from its index among all shards.
pub fn address(index: usize) -> Address {
    Address {
        node: (index / FIRST_NODE_SHARDS) as u16,
        shard: (index % FIRST_NODE_SHARDS) as u16,
    }
}

/// The index of a shard among all shards.
pub fn index_of(address: Address) -> usize {
    usize::from(address.node) * FIRST_NODE_SHARDS + usize::from(address.shard)
}

/// The owners of names, which differ by seed.
pub fn slots(seed: u64) -> Arc<SlotTable> {
    let counts = [FIRST_NODE_SHARDS, SHARDS - FIRST_NODE_SHARDS];
    let members = (0..).zip(counts).map(|(node, shard_count)| Member {
        node,
        shard_count: shard_count as u16,
        weight: shard_count as u8,
    });
    let key = ClusterKey(u128::from(seed).to_be_bytes());
    Arc::new(SlotTable::new(&key, members.collect()))
}
