//! Start and end of memberships, and the ranges still to be sent after the end.

use smallvec::SmallVec;

use super::channel::UNPAID;
use super::span::{append, clip};
use super::{Edge, Hub, HubTopic};
use crate::address::SessionId;
use crate::effect::{Format, Span};
use crate::footprint::MEMBERSHIP_BYTES;
use crate::membership::{ChannelId, LAGGING};
use crate::session::Sessions;
use crate::text::Name;

impl Hub {
    /// Makes `session` a member.
    pub(crate) fn join(
        &mut self,
        topic: HubTopic,
        name: &Name,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        let Some(session) = sessions.find_mut(id) else {
            return Edge::Unchanged;
        };
        let channel_id = match self.find(topic, name) {
            Some(known) if session.memberships.contains(known) => return Edge::Unchanged,
            Some(known) => known,
            None => self.add_channel(topic, name),
        };
        let (since, seed) = (self.end(session.format), self.seed);
        self.count_format(channel_id, session.format);
        let channel = self.channel_mut(channel_id);
        let first = channel.is_empty();
        let position = channel.members.len() as u32;
        session.memberships.add(channel_id, position, seed);
        channel.members.push(id.index);
        channel.has_fresh = true;
        session.keep(MEMBERSHIP_BYTES);
        if channel.payer == UNPAID {
            channel.payer = id.index;
            session.keep(channel.charged_bytes());
        }
        self.bytes += MEMBERSHIP_BYTES;
        self.fresh.insert((channel_id, id.index), since);
        self.note_change(channel_id);
        if first { Edge::Crossed } else { Edge::Inside }
    }

    /// Ends a membership. Messages published before it ended are still sent.
    pub(crate) fn leave(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        match self.find(topic, name) {
            Some(channel) => self.leave_channel(channel, id.index, sessions),
            None => Edge::Unchanged,
        }
    }

    /// Ends a membership whose right was lost: earlier messages that are not sent yet are dropped.
    pub(crate) fn revoke(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        match self.find(topic, name) {
            Some(channel) => self.end_membership(channel, id.index, sessions, false),
            None => Edge::Unchanged,
        }
    }

    /// The names that a session is a member of, in an order that does not depend on a hash table.
    pub(crate) fn memberships(&self, id: SessionId, sessions: &Sessions) -> Vec<(HubTopic, Name)> {
        let session = sessions.find(id).into_iter();
        let channels = session.flat_map(|session| session.memberships.channels());
        channels
            .map(|id| {
                let channel = self.channel(id);
                (channel.topic, channel.name.clone())
            })
            .collect()
    }

    /// Ends all memberships of a name and returns the sessions that were members.
    pub(crate) fn dissolve(
        &mut self,
        topic: HubTopic,
        name: &str,
        sessions: &mut Sessions,
    ) -> Vec<SessionId> {
        let Some(channel) = self.find(topic, name) else {
            return Vec::new();
        };
        let mut members = self.channel(channel).members.clone();
        members.extend(self.lagging_in(channel));
        for session in &members {
            self.leave_channel(channel, *session, sessions);
        }
        members
            .iter()
            .filter_map(|session| sessions.at(*session).map(|session| session.id))
            .collect()
    }

    /// Ends memberships of the session at that index. Returns the names that lost their last member.
    pub(crate) fn leave_channels(
        &mut self,
        index: u32,
        channels: impl Iterator<Item = ChannelId>,
        sessions: &mut Sessions,
    ) -> Vec<(HubTopic, Name)> {
        let mut emptied = Vec::new();
        for id in channels {
            // The name may have been dissolved since the caller made the list, and its index may be free.
            let Some(Some(channel)) = self.channels.get(id as usize) else {
                continue;
            };
            let key = (channel.topic, channel.name.clone());
            if self.leave_channel(id, index, sessions) == Edge::Crossed {
                emptied.push(key);
            }
        }
        emptied
    }

    fn leave_channel(&mut self, id: ChannelId, index: u32, sessions: &mut Sessions) -> Edge {
        self.end_membership(id, index, sessions, true)
    }

    /// Ends a membership. If `keeps`, messages published before are still sent.
    fn end_membership(
        &mut self,
        id: ChannelId,
        index: u32,
        sessions: &mut Sessions,
        keeps: bool,
    ) -> Edge {
        let Some(session) = sessions.at_mut(index) else {
            return Edge::Unchanged;
        };
        let Some(position) = session.memberships.remove(id) else {
            return Edge::Unchanged;
        };
        let format = session.format;
        session.let_go(MEMBERSHIP_BYTES);
        self.bytes -= MEMBERSHIP_BYTES;
        if self.channel(id).payer == index {
            session.let_go(self.channel(id).charged_bytes());
            self.channel_mut(id).payer = UNPAID;
        }
        if position == LAGGING {
            self.forget_lagging(id, index);
        } else {
            let owed = self.take_member(id, index, position, format, sessions);
            if keeps {
                self.still_owe(index, &owed);
            }
        }
        if self.channel(id).payer == UNPAID {
            self.charge_another(id, sessions);
        }
        let channel = self.channel(id);
        let (emptied, silent) = (channel.is_empty(), channel.touched == 0);
        if emptied && silent {
            self.remove_channel(id);
        }
        if emptied { Edge::Crossed } else { Edge::Inside }
    }

    /// Removes a session from the members of a channel. Returns the earlier messages that are not sent to it yet.
    pub(super) fn take_member(
        &mut self,
        id: ChannelId,
        index: u32,
        position: u32,
        format: Format,
        sessions: &mut Sessions,
    ) -> SmallVec<[Span; 4]> {
        self.note_change(id);
        let channel = self.channel_mut(id);
        channel.members.swap_remove(position as usize);
        if let Some(&moved) = channel.members.get(position as usize)
            && let Some(session) = sessions.at_mut(moved)
            && let Some(known) = session.memberships.position_mut(id)
        {
            *known = position;
        }
        let touched = (channel.touched as usize).checked_sub(1);
        self.uncount_format(id, format);
        let joined_at = self.fresh.remove(&(id, index)).unwrap_or(0);
        let since = self.take_due(id, index).unwrap_or_else(|| {
            let listed = touched.map_or(0, |touched| self.collected(touched, index, sessions));
            joined_at.max(listed)
        });
        clip(self.spans(id, format), since).collect()
    }

    /// Adds ranges to the answers of a session that is no longer a member of their name.
    pub(super) fn still_owe(&mut self, index: u32, owed: &[Span]) {
        if !owed.is_empty() {
            let heavy = self.heavy(index);
            for span in owed {
                append(&mut heavy.answers, *span);
            }
        }
    }
}
