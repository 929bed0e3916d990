//! Patterns of events: the channels whose patterns a published name matches, and the recipients that rules leave.

use super::{Hub, HubTopic};
use crate::address::SessionId;
use crate::membership::ChannelId;
use crate::publication::InterestTopic;
use crate::session::Sessions;

/// The topic of the channels of patterns.
pub(crate) const PATTERN: HubTopic = HubTopic::Interest(InterestTopic::EventPattern);

impl Hub {
    /// Whether some session of this shard is subscribed to a pattern.
    #[inline]
    pub(crate) fn has_patterns(&self) -> bool {
        self.patterns.len() > 0
    }

    /// The number of patterns with members.
    pub(crate) fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Calls `visit` with the channel of each pattern that an event matches. Returns the number of steps that this took.
    pub(crate) fn visit_matching(&self, event: &str, visit: impl FnMut(ChannelId)) -> usize {
        self.patterns.visit(event, visit)
    }

    /// The number of the last change of the members of a pattern's channel, or of the rights of one of them. Two channels, also of the
    /// same index, never have the same number.
    pub(crate) fn changed(&self, id: ChannelId) -> u64 {
        self.pattern_changes.get(&id).copied().unwrap_or_default()
    }

    /// Notes that a channel has other members, if it is the channel of a pattern.
    pub(super) fn note_change(&mut self, id: ChannelId) {
        if self.channel(id).topic == PATTERN {
            self.changes += 1;
            self.pattern_changes.insert(id, self.changes);
        }
    }

    /// Notes that a session has another principal, so that its rights to events are decided again.
    pub(crate) fn note_renewed(&mut self, id: SessionId, sessions: &Sessions) {
        let session = sessions.find(id).into_iter();
        for channel in session.flat_map(|session| session.memberships.channels()) {
            self.note_change(channel);
        }
    }

    /// Whether some members of the channel lag.
    pub(crate) fn lags_in(&self, id: ChannelId) -> bool {
        self.channel(id).has_lagging
    }

    /// The members of a channel that lag, by their index.
    pub(crate) fn lagging_members(&self, id: ChannelId) -> Vec<u32> {
        self.lagging_in(id).collect()
    }
}
