//! The checked properties, by name, and the report of a broken one.

use std::fmt;

/// A property of the whole simulation. Each has a fault in `fault.rs` that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Promise (a): after its read, every subscriber gets the writes of a record in the owner's order. Versions increase in steps
    /// of one, and the content is the content that the naive model computes.
    RecordOrder,
    /// A subscriber gets its read first, and then every later change.
    ReadWithoutGap,
    /// Promise (b): the messages of one connection reach one owner in the order in which the client sent them.
    ConnectionOrder,
    /// Promise (c): a session that reacts to a later message finds the earlier one done.
    Reaction,
    /// Promise (d): a session sees an answer only after the shard has posted the effects that the answer confirms.
    AnswerAfterEffects,
    /// Promise (e), and (b) for events: each receiver gets a sender's events in order, even if one of them had to wait.
    EventOrder,
    /// An event that is published after a subscription's ack reaches the subscriber.
    EventArrives,
    /// A subscriber gets an event once, and the sender never gets its own.
    EventOnce,
    /// A rule's decision holds for some value that the record had while the request was pending.
    Ruling,
    /// The store has every acknowledged write.
    Durable,
    /// A committed value is the owner's newest value, and a loaded value is a committed one.
    StoreContent,
    /// For records that another process also writes: acknowledged writes are kept, and in the end every subscriber has the stored
    /// value.
    Shared,
    /// Requests for a record go to the store of its route, and only that store has the record.
    Routed,
    /// A request gets exactly one answer.
    AnsweredOnce,
    /// A call ends exactly once, unless its requestor is gone.
    RpcAnsweredOnce,
    /// The server offers a call to one provider at a time. The call ends by the last of these providers, by a timeout that was
    /// reached, or because no provider is left.
    RpcFromProvider,
    /// After its ack, a watcher gets every change of a user once and in order.
    PresenceNotices,
    /// A query returns the users that are online.
    PresenceQuery,
    /// A name with subscribers and listeners has one provider. Any other name has no provider, and its listeners know it.
    OneProvider,
    /// After the ack of its unlisten, a listener gets no further notices of the pattern.
    ListenEnded,
    /// Subscribers know whether their record has a provider.
    HasProvider,
    /// In the end, a session that coalesces and lagged has the newest value of each record.
    CaughtUp,
    /// Of each event, the received and the skipped messages add up to all messages that reached the subscriber's shard.
    GapCounted,
    /// No session gets an answer before the end of its delay.
    Delayed,
    /// A change of rights ends exactly the holdings that its rules forbid, and exactly the sessions of the revoked users.
    RightsEnded,
    /// After a change of rights is acknowledged, no session gets a message that was authorized before the change.
    OldRules,
    /// All shards acknowledge every change of rights.
    Settled,
    /// A session gets no message after its login has expired or was revoked.
    Revoked,
    /// If no client starts new work, all pending work ends.
    Quiet,
    /// No shard panics, whatever it receives.
    NoPanic,
    /// After all clients have gone, the shards keep no state of them.
    NothingLeaks,
}

/// A broken property.
#[derive(Clone, Debug)]
pub struct Violation {
    pub check: Check,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.check, self.detail)
    }
}

pub type Checked = Result<(), Violation>;

/// Returns a violation if the property does not hold.
pub fn ensure(holds: bool, check: Check, detail: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        violated(check, detail())
    }
}

/// Reports a broken property.
pub fn violated<T>(check: Check, detail: impl Into<String>) -> Result<T, Violation> {
    Err(Violation {
        check,
        detail: detail.into(),
    })
}
