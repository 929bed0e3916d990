//! The end of a session: the shard releases its resources, a part in each turn if they are many.

use std::vec::IntoIter;

use super::Shard;
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, WorkEntry};
use crate::history::subscriber as history;
use crate::hub::HubTopic;
use crate::membership::ChannelId;
use crate::publication::InterestTopic;
use crate::record::subscriber;
use crate::scope::session as scope;
use crate::session::{LocalSessionId, Phase, Session, SessionFlag};
use crate::text::Name;
use crate::time::Now;
use crate::{event, login, presence};

/// Names that ended sessions release in a turn. They take about a millisecond.
const SLICE: usize = 512;

/// Remaining state of a session that has ended.
#[derive(Debug)]
pub(super) struct EndedSession {
    session: SessionId,
    channels: IntoIter<ChannelId>,
    /// Granted subscriptions to records, with the owners' interest epochs and their serials.
    records: IntoIter<(Name, u64, u32)>,
    /// Granted subscriptions to events with history.
    histories: IntoIter<Name>,
}

impl EndedSession {
    fn of(session: SessionId, ended: &mut Session, channels: Vec<ChannelId>) -> Self {
        let mut state = ended.state.take();
        let follows = state.as_mut().and_then(|with| with.follows.take());
        let subscriptions = state
            .into_iter()
            .flat_map(|with| with.subscriptions.into_entries());
        let mut records: Vec<(Name, u64, u32)> = subscriptions
            .filter_map(|(name, subscription)| {
                subscription
                    .granted
                    .map(|epoch| (name, epoch, subscription.serial))
            })
            .collect();
        let mut histories = history::granted(follows);
        // The order of the posts must not depend on the hash table. For more names it costs too much to sort them; the seed
        // of the table makes their order the same in each run.
        if channels.len() + records.len() + histories.len() <= SLICE {
            records.sort_unstable();
            histories.sort_unstable();
        }
        Self {
            session,
            channels: channels.into_iter(),
            records: records.into_iter(),
            histories: histories.into_iter(),
        }
    }

    /// Releases at most `count` names. Returns how many of that number are left.
    fn give_back<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, count: usize) -> usize {
        let index = self.session.index;
        let mut left = count;
        let mut part = |len: usize| {
            let part = left.min(len);
            left -= part;
            part
        };
        let channels = part(self.channels.len());
        let leaving = self.channels.by_ref().take(channels);
        for (topic, name) in turn.hub.leave_channels(index, leaving, turn.sessions) {
            match topic {
                HubTopic::Interest(InterestTopic::Event) => event::lost_last(turn, name),
                HubTopic::Interest(InterestTopic::EventPattern) => {
                    event::lost_last_pattern(turn, name);
                }
                HubTopic::Interest(topic) => presence::lost_last(turn, topic, name),
                HubTopic::Record => {}
            }
        }
        let histories = part(self.histories.len());
        for name in self.histories.by_ref().take(histories) {
            history::release(turn, name);
        }
        let records = part(self.records.len());
        for (name, epoch, serial) in self.records.by_ref().take(records) {
            subscriber::release(turn, name, epoch, (self.session, serial));
        }
        // The index may be used by a new session only after the last name is released: members of names and ranges of this turn are known
        // by index, so the new session would get messages of the old one. For the same reason its outstanding ranges are dropped first.
        if self.is_done() {
            turn.hub.forget(index);
            turn.sessions.vacate(index);
        }
        left
    }

    fn is_done(&self) -> bool {
        self.channels.len() + self.records.len() + self.histories.len() == 0
    }
}

impl Shard {
    /// Ends a session and releases its resources. All posts follow the session's own messages.
    pub(super) fn closed<E: Effects>(&mut self, now: Now, id: SessionId, out: &mut E) {
        // The order matters. The channels are read first, because `find` no longer returns an ended session. Late answers then find no
        // session and are dropped. All notices are posted to the owners in the same turn, behind the session's requests, so an owner
        // sees each subscription before its end. The index stays in use until the last name is released; if there are many names, that
        // takes several turns.
        let mut turn = self.state.turn(now, out);
        let channels = turn
            .sessions
            .find(id)
            .map(|session| session.memberships.channels());
        let Some(mut session) = turn.sessions.end(id) else {
            return;
        };
        if session.has(SessionFlag::Detached) {
            self.timers.detached.remove(id);
        }
        if let Phase::Delayed(delay) = &session.phase {
            self.timers.delays.remove(&(delay.until, id));
        }
        for owner in self.debtors.ended(id) {
            turn.post(owner, Entry::Work(WorkEntry::SessionEnded { session: id }));
        }
        turn.event_rights.end_waiting(id.index);
        self.queries.session_ended(&mut turn, id);
        scope::session_ended(&mut turn, id);
        self.backends.session_ended(&mut turn, id, &mut session);
        let mut has_offered = false;
        if let Some(state) = &mut session.state {
            has_offered = state.has_offered;
            if let Some(reply) = state.bulk.take().and_then(|bulk| bulk.reply()) {
                // The message would have been its last part.
                turn.pending_replies.running.remove(&reply.number);
            }
            // Replies that wait for pages which are not requested yet.
            let follows = state.follows.iter().flat_map(|with| with.names.values());
            for reply in follows.filter_map(|follow| follow.reply) {
                turn.pending_replies.running.remove(&reply.number);
            }
            if state.lag.is_some() {
                turn.shard.count_lag(|lag| lag.sessions -= 1);
            }
            if let Some(spending) = state.spending.take() {
                let user = session
                    .phase
                    .principal()
                    .map(|principal| &principal.user_id);
                self.rates.session_ended(id, user, &spending);
            }
        }
        let mut leaving = EndedSession::of(id, &mut session, channels.unwrap_or_default());
        leaving.give_back(&mut turn, SLICE);
        if session.calls > 0 || has_offered {
            turn.post_all(&Entry::SessionEnded { session: id });
        }
        if let Some(principal) = session.principal() {
            if let Some(expires_at) = principal.expires_at() {
                self.timers
                    .expiries
                    .remove(expires_at, LocalSessionId::of(id));
            }
            if !session.has(SessionFlag::Passing) {
                login::count_offline(&mut turn, &principal.user_id, id);
            }
        }
        if !leaving.is_done() {
            self.leaving.push_back(leaving);
        }
    }

    /// Releases a part of the names of ended sessions.
    pub(super) fn continue_ending_sessions<E: Effects>(&mut self, now: Now, out: &mut E) {
        let mut left = SLICE;
        while left > 0
            && let Some(mut leaving) = self.leaving.pop_front()
        {
            left = leaving.give_back(&mut self.state.turn(now, out), left);
            if !leaving.is_done() {
                self.leaving.push_front(leaving);
            }
        }
    }

    /// Whether a session has ended but still holds names, so that another session can't use its index.
    #[must_use]
    pub fn is_leaving(&self, session: SessionId) -> bool {
        self.state.sessions.is_leaving(session)
    }
}
