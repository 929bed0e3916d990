//! What operators see of a shard. Inspecting changes nothing.

use super::Shard;
use crate::address::SessionId;
use crate::inspect::{CallView, Inspected, SessionView, SubscribedName, Subscription};
use crate::inspect::{SubscribedKind, SubscriptionKind};
use crate::message::Topic;
use crate::time::Instant;

impl Shard {
    /// The names with subscribers on this shard in `count` entries of the table starting at `first`. An inspection of all names uses many
    /// short calls, between which the shard does its work.
    #[must_use]
    pub fn inspect_names(&self, first: usize, count: usize) -> Inspected<SubscribedName> {
        let table_len = self.state.hub.table_len();
        let end = first.saturating_add(count).min(table_len);
        let names = self.state.hub.names_at(first.min(end)..end);
        Inspected {
            found: names.filter_map(SubscribedName::new).collect(),
            next: (end < table_len).then_some(end),
        }
    }

    /// The inspected state of a session.
    #[must_use]
    pub fn inspect_session(&self, session: SessionId) -> Option<SessionView> {
        self.state.sessions.find(session).map(SessionView::new)
    }

    /// `count` subscriptions of a session, starting at number `first`: the rpcs that it provides, the patterns that it listens with, then
    /// its memberships. Subscriptions that are not granted yet are omitted. The order is the same while none of them changes. `None` if
    /// the session has ended.
    #[must_use]
    pub fn inspect_subscriptions(
        &self,
        session: SessionId,
        first: usize,
        count: usize,
    ) -> Option<Inspected<Subscription>> {
        let session = self.state.sessions.find(session)?;
        let state = session.state.as_deref();
        let offers = state.into_iter().flat_map(|with| {
            let provided = with.provided.names();
            let provided = provided.map(|name| Subscription::new(SubscriptionKind::Rpc, name));
            let patterns = with.patterns.keys().map(|(topic, pattern)| {
                let kind = match topic {
                    Topic::Record => SubscriptionKind::RecordListener,
                    _ => SubscriptionKind::EventListener,
                };
                Subscription::new(kind, pattern)
            });
            provided.chain(patterns)
        });
        let hub = &self.state.hub;
        let joined = session.memberships.iter().map(|id| {
            let (topic, name) = hub.topic_and_name(id);
            let kind = SubscribedKind::of(topic)
                .map_or(SubscriptionKind::AllUsers, SubscriptionKind::Name);
            Subscription::new(kind, name)
        });
        let mut all = offers.chain(joined).skip(first);
        let found: Vec<_> = all.by_ref().take(count).collect();
        let next = all.next().map(|_| first + found.len());
        Some(Inspected { found, next })
    }

    /// Running calls of the rpc names that this shard owns, at most `count_max`, in no order.
    #[must_use]
    pub fn inspect_calls(&self, now: Instant, count_max: usize) -> Vec<CallView> {
        let timeout = self.state.context.settings.rpc_response_timeout;
        self.rpcs.views(now, timeout).take(count_max).collect()
    }
}
