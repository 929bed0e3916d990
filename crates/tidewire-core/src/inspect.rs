//! The view of a shard for operators. Inspecting changes nothing, and each inspection is short.

use std::time::Duration;

use crate::address::SessionId;
use crate::hub::HubTopic;
use crate::publication::InterestTopic;
use crate::session::Session;
use crate::text::Name;

/// A part of the inspected items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected<T> {
    /// The items of this part.
    pub found: Vec<T>,
    /// The start of the next part. Absent after the last one.
    pub next: Option<usize>,
}

/// Kind of name that is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubscribedKind {
    /// An event.
    Event,
    /// A pattern of events.
    EventPattern,
    /// A record.
    Record,
    /// A user, by presence.
    User,
}

/// A name with subscribers on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribedName {
    /// Kind of name.
    pub kind: SubscribedKind,
    /// The name.
    pub name: Name,
    /// Sessions of the shard that are subscribed to it.
    pub count: usize,
}

impl SubscribedKind {
    /// Returns `None` for presence of all users, which has an empty name.
    pub(crate) fn of(topic: HubTopic) -> Option<Self> {
        Some(match topic {
            HubTopic::Interest(InterestTopic::Event) => Self::Event,
            HubTopic::Interest(InterestTopic::EventPattern) => Self::EventPattern,
            HubTopic::Interest(InterestTopic::User) => Self::User,
            HubTopic::Interest(InterestTopic::Everyone) => return None,
            HubTopic::Record => Self::Record,
        })
    }
}

impl SubscribedName {
    /// Returns `None` for presence of all users.
    pub(crate) fn new((topic, name, count): (HubTopic, &Name, usize)) -> Option<Self> {
        let kind = SubscribedKind::of(topic)?;
        Some(Self {
            kind,
            name: name.clone(),
            count,
        })
    }
}

/// Kind of a subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubscriptionKind {
    /// It is subscribed to a name with publications.
    Name(SubscribedKind),
    /// It is subscribed to presence of all users.
    AllUsers,
    /// It provides an rpc.
    Rpc,
    /// It listens with a pattern of events.
    EventListener,
    /// It listens with a pattern of records.
    RecordListener,
}

/// A subscription of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// Kind of subscription.
    pub kind: SubscriptionKind,
    /// The name or pattern; empty for presence of all users.
    pub name: Name,
}

impl Subscription {
    pub(crate) fn new(kind: SubscriptionKind, name: &Name) -> Self {
        Self {
            kind,
            name: name.clone(),
        }
    }
}

/// A running call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The rpc.
    pub name: Name,
    /// The session that called.
    pub requestor: SessionId,
    /// The session that must answer.
    pub provider: SessionId,
    /// Whether the provider has accepted the call.
    pub is_accepted: bool,
    /// The time since the provider got the call.
    pub age: Duration,
}

/// The inspected state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The user id, once it is logged in.
    pub user: Option<Name>,
    /// Whether the session belongs to an operator.
    pub is_operator: bool,
    /// Names, patterns and registrations that it holds.
    pub subscription_count: usize,
    /// The rpcs that it provides and the patterns that it listens with.
    pub offer_count: usize,
    /// Whether the session lags and misses publications.
    pub is_lagging: bool,
}

impl SessionView {
    pub(crate) fn new(session: &Session) -> Self {
        let principal = session.principal();
        let state = session.state.as_ref();
        Self {
            user: principal.map(|principal| principal.user_id.clone()),
            is_operator: principal.is_some_and(|principal| principal.is_operator()),
            subscription_count: session.subscription_count(),
            offer_count: state.map_or(0, |with| with.provided.len() + with.patterns.len()),
            is_lagging: state.is_some_and(|with| with.lag.is_some()),
        }
    }
}
