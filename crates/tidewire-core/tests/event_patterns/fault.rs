//! Planted faults, which prove that each check can fail.

/// A planted fault, which breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A shard confirms a subscription before publishers see it.
    VisibleTooEarly,
    /// An event does not reach a shard.
    EventLost,
    /// An event reaches a shard twice.
    EventDoubled,
    /// A mailbox swaps two neighbouring entries.
    MailboxReordered,
    /// The permission reports that all sessions may get an event of which its rule refuses some.
    RightsOverstated,
    /// A shard does not announce that its last subscriber of a pattern has gone.
    EndUnannounced,
}

impl Fault {
    pub const ALL: [Self; 6] = [
        Self::VisibleTooEarly,
        Self::EventLost,
        Self::EventDoubled,
        Self::MailboxReordered,
        Self::RightsOverstated,
        Self::EndUnannounced,
    ];
}
