//! The properties, by name, and what a broken one reports.

use std::fmt;

/// A property of the whole. Each has a fault that breaks it, see `fault.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Promise (a): every subscriber gets the writes of a record in the owner's order, in steps of one, with the
    /// content that the naive model computes, from its read on.
    RecordOrder,
    /// A subscription's read comes first, and every later change after it.
    ReadWithoutGap,
    /// Promise (b): messages of one connection reach one owner as sent.
    ConnectionOrder,
    /// Promise (c): who reacts to a later message finds the earlier one done.
    Reaction,
    /// Promise (d): an answer is seen after the effects that it confirms were posted.
    AnswerAfterEffects,
    /// Promise (e), and (b) for events: a sender's events reach each receiver as sent, also when one had to wait.
    EventOrder,
    /// An event published after a subscription's ack reaches the subscriber.
    EventArrives,
    /// An event reaches a subscriber once, and never its sender.
    EventOnce,
    /// What a rule decides holds for some value that the record it reads had while the request was there.
    Ruling,
    /// What was acknowledged is in the store.
    Durable,
    /// What is committed is the owner's newest value, and what is loaded is what was committed.
    StoreContent,
    /// Of records that another process writes as well, what was acknowledged was kept, and in the end every subscriber has what is
    /// stored.
    Shared,
    /// A record is asked for, given to and found in the store that its name leads to.
    Routed,
    /// A request is answered, once.
    AnsweredOnce,
    /// A call has one end, unless its requestor is gone.
    RpcAnsweredOnce,
    /// A call is handed to one provider at a time, and its end comes from the one that was asked last, from a
    /// timeout that was reached, or from there being nobody left to ask.
    RpcFromProvider,
    /// Watchers hear of every change of a user after their ack, once and in order.
    PresenceNotices,
    /// Queries tell who is online.
    PresenceQuery,
    /// A name that is wanted and listened to has one provider; a name that is not has none, and it knows.
    OneProvider,
    /// After the ack of its end a listener hears no more of the pattern.
    ListenEnded,
    /// Subscribers know whether their record is provided.
    HasProvider,
    /// A session that coalesces and lagged has the newest value of each record at the end.
    CaughtUp,
    /// Of each event, those heard and those told as a gap are all that came to the subscriber's shard.
    GapCounted,
    /// No answer is given before the time for which it was held back.
    Delayed,
    /// A change of rights ends exactly what its rules forbid, and the sessions of exactly those who were revoked.
    RightsEnded,
    /// Once a change of rights is acknowledged, nothing is delivered that was authorized before it.
    OldRules,
    /// Every change of rights is acknowledged.
    Settled,
    /// A session gets nothing once its login has expired or was revoked.
    Revoked,
    /// When nobody begins anything, everything comes to an end.
    Quiet,
    /// No shard panics, whatever comes.
    NoPanic,
    /// Nothing is left when everybody has gone.
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

/// Holds the simulation to a property.
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
