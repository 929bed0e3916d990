//! Memberships of sessions that do not read fast enough: outside the fan-out, with the number of messages that they miss.
//!
//! A channel counts the messages published while a member lags. Each lagging session has the count at which it began to lag. So a
//! publication costs one addition, regardless of the number of lagging sessions, and the state of a session does not grow.

use std::collections::BTreeMap;

use super::{Hub, HubTopic};
use crate::address::SessionId;
use crate::membership::{ChannelId, LAGGING};
use crate::session::Sessions;
use crate::text::Name;

/// The lagging members of one channel.
#[derive(Debug, Default)]
pub(super) struct LaggingMembers {
    /// Number of messages published since the first of them began to lag.
    skipped: u64,
    /// By session: the count since which it misses all messages. Its own messages are added, because it does not miss them.
    since: BTreeMap<u32, u64>,
}

impl LaggingMembers {
    /// The number of lagging members.
    pub(super) fn count(&self) -> usize {
        self.since.len()
    }
}

impl Hub {
    /// Whether any session lags.
    pub(crate) fn has_lagging(&self) -> bool {
        !self.lagging.is_empty()
    }

    /// The number of names with lagging members.
    pub(crate) fn lagging_count(&self) -> usize {
        self.lagging.len()
    }

    /// Removes a session from the fan-out of all names whose topic is `is_skipped`. Messages published before are still sent.
    pub(crate) fn suspend(
        &mut self,
        id: SessionId,
        sessions: &mut Sessions,
        is_skipped: impl Fn(HubTopic) -> bool,
    ) {
        let channels = sessions
            .find(id)
            .map(|session| session.memberships.channels());
        for channel in channels.into_iter().flatten() {
            if is_skipped(self.channel(channel).topic) {
                self.suspend_in(channel, id, sessions);
            }
        }
    }

    /// The same for one name.
    pub(crate) fn suspend_name(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) {
        if let Some(channel) = self.find(topic, name) {
            self.suspend_in(channel, id, sessions);
        }
    }

    fn suspend_in(&mut self, channel: ChannelId, id: SessionId, sessions: &mut Sessions) {
        let Some(session) = sessions.find_mut(id) else {
            return;
        };
        let format = session.format;
        let position = match session.memberships.position_mut(channel) {
            Some(known) if *known != LAGGING => std::mem::replace(known, LAGGING),
            _ => return,
        };
        // Ranges published before this point are still owed: the session missed none of them, and the count starts after them. The
        // channel keeps the session in `lagging` instead of `members`, so it stays alive and visible to the owner while all its members
        // lag.
        let owed = self.take_member(channel, id.index, position, format, sessions);
        self.still_owe(id.index, &owed);
        self.channel_mut(channel).has_lagging = true;
        let lagging = self.lagging.entry(channel).or_default();
        lagging.since.insert(id.index, lagging.skipped);
    }

    /// Returns a session to the fan-out of a name. It gets the messages published after this call.
    pub(crate) fn resume(&mut self, channel: ChannelId, id: SessionId, sessions: &mut Sessions) {
        let Some(session) = sessions.find_mut(id) else {
            return;
        };
        let format = session.format;
        let since = self.end(format);
        let Some(known) = session.memberships.position_mut(channel) else {
            return;
        };
        if *known != LAGGING {
            return;
        }
        self.count_format(channel, format);
        let resumed = self.channel_mut(channel);
        *known = resumed.members.len() as u32;
        resumed.members.push(id.index);
        resumed.has_fresh = true;
        self.fresh.insert((channel, id.index), since);
        self.note_change(channel);
        self.forget_lagging(channel, id.index);
    }

    /// The lagging memberships of a session, with topic, name and the number of publications that it misses.
    pub(crate) fn missed(
        &self,
        id: SessionId,
        sessions: &Sessions,
    ) -> Vec<(ChannelId, HubTopic, Name, u64)> {
        let Some(session) = sessions.find(id) else {
            return Vec::new();
        };
        let channels = session.memberships.channels().into_iter();
        let missed = channels.filter_map(|id_of| {
            let lagging = self.lagging.get(&id_of)?;
            let since = lagging.since.get(&id.index)?;
            let channel = self.channel(id_of);
            Some((
                id_of,
                channel.topic,
                channel.name.clone(),
                lagging.skipped - since,
            ))
        });
        missed.collect()
    }

    /// The name of a channel in which a session lags.
    pub(crate) fn lagging_name(
        &self,
        channel: ChannelId,
        id: SessionId,
        sessions: &Sessions,
    ) -> Option<&Name> {
        let session = sessions.find(id)?;
        let known = session.memberships.position(channel)?;
        (known == LAGGING).then(|| &self.channel(channel).name)
    }

    /// The channel of a name, if the session lags in it.
    pub(crate) fn lagging_channel(
        &self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &Sessions,
    ) -> Option<ChannelId> {
        let channel = self.find(topic, name)?;
        self.lagging_name(channel, id, sessions).map(|_| channel)
    }

    /// Notes that something is published to a name; `except` does not miss it. Returns how many do.
    pub(crate) fn skip(&mut self, topic: HubTopic, name: &str, except: Option<u32>) -> usize {
        let Some(lagging) = self
            .find(topic, name)
            .and_then(|channel| self.lagging.get_mut(&channel))
        else {
            return 0;
        };
        lagging.skipped += 1;
        match except.and_then(|session| lagging.since.get_mut(&session)) {
            Some(since) => {
                *since += 1;
                lagging.since.len() - 1
            }
            None => lagging.since.len(),
        }
    }

    /// The same for a pattern, without the sessions for which `is_excluded`. The count is not constant work, as each lagging session is
    /// asked for.
    pub(crate) fn skip_in(
        &mut self,
        channel: ChannelId,
        is_excluded: impl Fn(u32) -> bool,
    ) -> usize {
        let Some(lagging) = self.lagging.get_mut(&channel) else {
            return 0;
        };
        lagging.skipped += 1;
        let mut missed = 0;
        for (session, since) in &mut lagging.since {
            match is_excluded(*session) {
                true => *since += 1,
                false => missed += 1,
            }
        }
        missed
    }

    /// The sessions that lag in a name.
    pub(crate) fn lagging_sessions(
        &self,
        topic: HubTopic,
        name: &str,
        sessions: &Sessions,
    ) -> Vec<SessionId> {
        let channel = self.find(topic, name);
        let lagging = channel
            .into_iter()
            .flat_map(|channel| self.lagging_in(channel));
        lagging
            .filter_map(|index| sessions.at(index).map(|session| session.id))
            .collect()
    }

    pub(super) fn lagging_in(&self, channel: ChannelId) -> impl Iterator<Item = u32> + use<'_> {
        let lagging = self.lagging.get(&channel).into_iter();
        lagging.flat_map(|lagging| lagging.since.keys().copied())
    }

    pub(super) fn forget_lagging(&mut self, channel: ChannelId, session: u32) {
        let Some(lagging) = self.lagging.get_mut(&channel) else {
            return;
        };
        lagging.since.remove(&session);
        if lagging.since.is_empty() {
            self.lagging.remove(&channel);
            self.channel_mut(channel).has_lagging = false;
        }
    }
}
