//! Planted faults, which prove that each check can fail.

/// A planted fault, which breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A shard authorizes a deferred request by the rules that were valid when the session's shard took it.
    OldRules,
    /// A later request of a session overtakes one that the owner has deferred.
    Overtaken,
    /// The owner does not learn that a session has ended whose requests it defers.
    EndForgotten,
    /// The owner does not receive the message to proceed.
    ProceedLost,
    /// A session does not learn that it has lost the right to read a record.
    LossNoticeLost,
    /// A rule that reauthorizes subscribers takes an existing record for a missing one.
    GateMisled,
}

/// The promises that the simulation checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// After all shards have settled a change, no request changes a record by older rules.
    OldRules,
    /// The owner handles a session's requests for one record in the order in which the session sent them.
    Order,
    /// A subscriber gets each change of a record, in order.
    Steps,
    /// A subscriber gets no value that it may not read.
    Sight,
    /// Each request of a connected session gets one answer.
    Answered,
    /// Each write that a shard took takes effect, unless it was refused.
    Made,
    /// All pending work ends, and the shards keep no state.
    Rest,
}

impl Fault {
    /// All faults, each with the check that must find it.
    pub const ALL: [(Self, Check); 6] = [
        (Self::OldRules, Check::OldRules),
        (Self::Overtaken, Check::Order),
        (Self::EndForgotten, Check::Made),
        (Self::ProceedLost, Check::Answered),
        (Self::LossNoticeLost, Check::Sight),
        (Self::GateMisled, Check::Sight),
    ];
}
