//! Faults that are planted, so that each check is known to be able to fail.

/// Planted faults: each breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A subscriber comes back one event too far.
    ResumeOneTooFar,
    /// The history is read before the subscription begins, so that what is published in between is missed.
    SubscribeAfterRead,
    /// A repeated write is taken for a new one.
    RepeatMade,
    /// An event does not reach a shard.
    EventLost,
    /// An event reaches a shard twice.
    EventDoubled,
    /// The store forgets a commit.
    CommitForgotten,
    /// The store does not say that something else is stored than an owner expects.
    RefusalMissed,
    /// Histories are committed again and again for a term that is over.
    FormerOwnerGoesOn,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::ResumeOneTooFar,
        Self::SubscribeAfterRead,
        Self::RepeatMade,
        Self::EventLost,
        Self::EventDoubled,
        Self::CommitForgotten,
        Self::RefusalMissed,
        Self::FormerOwnerGoesOn,
    ];

    /// The name of a fault that is planted in the engine, which takes the feature `fuzzing`.
    pub fn in_engine(self) -> Option<&'static str> {
        (self == Self::FormerOwnerGoesOn).then_some("history-deposed")
    }
}
