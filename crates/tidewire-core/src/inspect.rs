//! The view of a shard for operators. Inspecting changes nothing, and each inspection is short.

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

impl SubscribedName {
    /// Returns `None` for the empty name that presence of all users has.
    pub(crate) fn new((topic, name, count): (HubTopic, &Name, usize)) -> Option<Self> {
        let kind = match topic {
            HubTopic::Interest(InterestTopic::Event) => SubscribedKind::Event,
            HubTopic::Interest(InterestTopic::EventPattern) => SubscribedKind::EventPattern,
            HubTopic::Interest(InterestTopic::User) => SubscribedKind::User,
            HubTopic::Interest(InterestTopic::Everyone) => return None,
            HubTopic::Record => SubscribedKind::Record,
        };
        Some(Self {
            kind,
            name: name.clone(),
            count,
        })
    }
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
            is_lagging: state.is_some_and(|with| with.lag.is_some()),
        }
    }
}
