//! Planted faults of the driver, which prove that each check can fail. `e2e/faults/patches/lost-node.patch` plants those of the engine.

/// A planted fault, which breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One shard does not learn that the other node is lost.
    LossUnheard,
    /// An entry of the link is lost.
    EntryLost,
    /// The interest of the lost node's shards stays visible, and an acknowledgement waits for them.
    InterestKept,
}

impl Fault {
    pub const ALL: [Self; 3] = [Self::LossUnheard, Self::EntryLost, Self::InterestKept];
}
