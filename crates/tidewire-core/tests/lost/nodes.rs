//! The shards of a run: two nodes with equal numbers of shards.

use std::sync::Arc;

use tidewire_core::address::{Address, Epoch};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::permission::AllowAll;
use tidewire_core::settings::Settings;
use tidewire_core::slot::{ClusterKey, Member, SlotTable};
use tidewire_core::store::Opened;
use tidewire_core::time::{Instant, Now, WallTime};

/// The shards of one node.
pub const NODE_SHARDS: usize = 2;
/// The shards of both nodes.
pub const SHARDS: usize = 2 * NODE_SHARDS;

/// The address of a shard, from its index among all shards.
pub fn address(index: usize) -> Address {
    Address {
        node: node_of(index),
        shard: (index % NODE_SHARDS) as u16,
    }
}

/// The index of a shard among all shards.
pub fn index_of(address: Address) -> usize {
    usize::from(address.node) * NODE_SHARDS + usize::from(address.shard)
}

/// The node of a shard.
pub fn node_of(index: usize) -> u16 {
    (index / NODE_SHARDS) as u16
}

/// The owners of names, which differ by seed.
pub fn slots(seed: u64) -> Arc<SlotTable> {
    let members = (0..2).map(|node| Member {
        node,
        shard_count: NODE_SHARDS as u16,
        weight: 1,
    });
    let key = ClusterKey(u128::from(seed).to_be_bytes());
    Arc::new(SlotTable::new(&key, members.collect()))
}

/// The time in tests of a single shard.
pub const NOW: Now = Now {
    monotonic: Instant(1_000_000_000),
    wall: WallTime(1_700_000_000_000),
};

/// A shard of the first node with the default settings. The second node has not joined yet.
pub fn first_shard() -> Shard {
    Shard::new(ShardConfig {
        address: address(0),
        slots: slots(1),
        settings: Settings::default(),
        permission: Arc::new(AllowAll),
        seed: 1,
        opened: vec![Opened {
            epoch: Epoch(1),
            opening: 1,
        }],
    })
}
