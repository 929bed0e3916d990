//! Faults that are planted, so that each check is known to be able to fail.

/// Planted faults: each breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A deferred request is authorized by the rules that held when its session's shard took it.
    OldRules,
    /// A later request of a session overtakes one that the owner has deferred.
    Overtaken,
    /// The owner is not told that a session has ended of which it defers requests.
    EndForgotten,
    /// The owner is not told that it may go on.
    ProceedLost,
    /// A session is not told that it has lost the right to read a record.
    LossUntold,
    /// A rule that reauthorizes subscribers reads a record that it takes for missing.
    GateMisled,
}

/// The promises that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing is changed by rules from before a change that all shards have settled.
    OldRules,
    /// The requests of a session for one record are done in its order.
    Order,
    /// A subscriber gets each change of a record, in their order.
    Steps,
    /// A subscriber gets nothing that it may not read.
    Sight,
    /// Each request of a session that is there is answered once.
    Answered,
    /// Each write that was taken is made, unless it was refused.
    Made,
    /// Everything comes to rest, and nothing is kept.
    Rest,
}

impl Fault {
    /// All of them, each with the check that must find it.
    pub const ALL: [(Self, Check); 6] = [
        (Self::OldRules, Check::OldRules),
        (Self::Overtaken, Check::Order),
        (Self::EndForgotten, Check::Made),
        (Self::ProceedLost, Check::Answered),
        (Self::LossUntold, Check::Sight),
        (Self::GateMisled, Check::Sight),
    ];
}
