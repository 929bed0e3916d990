//! Planted faults, which prove that each check can fail.

/// A planted fault, which breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A subscriber resumes one event too late.
    ResumeOneTooFar,
    /// The shard reads the history before the subscription begins, so the subscriber misses events published in between.
    SubscribeAfterRead,
    /// The server takes a repeated write for a new one.
    RepeatMade,
    /// An event does not reach a shard.
    EventLost,
    /// An event reaches a shard twice.
    EventDoubled,
    /// The store forgets a commit.
    CommitForgotten,
    /// The store does not report that its content differs from the content that an owner expects.
    RefusalMissed,
}

impl Fault {
    pub const ALL: [Self; 7] = [
        Self::ResumeOneTooFar,
        Self::SubscribeAfterRead,
        Self::RepeatMade,
        Self::EventLost,
        Self::EventDoubled,
        Self::CommitForgotten,
        Self::RefusalMissed,
    ];
}
