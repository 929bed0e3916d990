//! Memberships of sessions that do not read fast enough: out of the fan-out, with the number of what they miss.
//!
//! A channel counts what is published while somebody is parked in it, and each parked session has the count at which it
//! was parked. So a publication costs one addition, however many are parked, and a session keeps nothing that grows.

use std::collections::BTreeMap;

use super::membership::PARKED;
use super::{ChannelId, Hub, HubTopic};
use crate::address::SessionId;
use crate::session::Sessions;
use crate::text::Name;

/// The parked members of one channel.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// What was published since the first of them was parked.
    passed: u64,
    /// By session: the count since which it misses everything. What it published itself is added, because it does not
    /// miss that.
    since: BTreeMap<u32, u64>,
}

impl Parked {
    /// How many members are parked.
    pub(super) fn count(&self) -> usize {
        self.since.len()
    }
}

impl Hub {
    /// Whether anybody is parked anywhere.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// How many names have parked members.
    pub(crate) fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// Takes a session out of the fan-out of all names whose topic is `is_parked`. What was published before stays owed.
    pub(crate) fn park(
        &mut self,
        id: SessionId,
        sessions: &mut Sessions,
        is_parked: impl Fn(HubTopic) -> bool,
    ) {
        let channels = sessions
            .find(id)
            .map(|session| session.memberships.channels());
        for channel in channels.into_iter().flatten() {
            if is_parked(self.channel(channel).topic) {
                self.park_in(channel, id, sessions);
            }
        }
    }

    /// The same for one name.
    pub(crate) fn park_name(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) {
        if let Some(channel) = self.find(topic, name) {
            self.park_in(channel, id, sessions);
        }
    }

    fn park_in(&mut self, channel: ChannelId, id: SessionId, sessions: &mut Sessions) {
        let Some(session) = sessions.find_mut(id) else {
            return;
        };
        let format = session.format;
        let position = match session.memberships.place_mut(channel) {
            Some(place) if *place != PARKED => std::mem::replace(place, PARKED),
            _ => return,
        };
        let owed = self.take_member(channel, id.index, position, format, sessions);
        self.still_owe(id.index, &owed);
        self.channel_mut(channel).has_parked = true;
        let parked = self.parked.entry(channel).or_default();
        parked.since.insert(id.index, parked.passed);
    }

    /// Takes a session back into the fan-out of a name, from here on.
    pub(crate) fn unpark(&mut self, channel: ChannelId, id: SessionId, sessions: &mut Sessions) {
        let Some(session) = sessions.find_mut(id) else {
            return;
        };
        let since = self.end(session.format);
        let Some(place) = session.memberships.place_mut(channel) else {
            return;
        };
        if *place != PARKED {
            return;
        }
        let members = &mut self.channel_mut(channel).members;
        *place = members.len() as u32;
        members.push(id.index);
        self.channel_mut(channel).has_fresh = true;
        self.fresh.insert((channel, id.index), since);
        self.forget_parked(channel, id.index);
    }

    /// The parked memberships of a session, with topic, name and the number of publications that it misses.
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
            let parked = self.parked.get(&id_of)?;
            let since = parked.since.get(&id.index)?;
            let channel = self.channel(id_of);
            Some((
                id_of,
                channel.topic,
                channel.name.clone(),
                parked.passed - since,
            ))
        });
        missed.collect()
    }

    /// The name of a channel in which a session is parked.
    pub(crate) fn parked_name(
        &self,
        channel: ChannelId,
        id: SessionId,
        sessions: &Sessions,
    ) -> Option<&Name> {
        let session = sessions.find(id)?;
        let place = session.memberships.place(channel)?;
        (place == PARKED).then(|| &self.channel(channel).name)
    }

    /// The channel of a name, if the session is parked in it.
    pub(crate) fn parked_channel(
        &self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &Sessions,
    ) -> Option<ChannelId> {
        let channel = self.find(topic, name)?;
        self.parked_name(channel, id, sessions).map(|_| channel)
    }

    /// Notes that something is published to a name; `except` does not miss it. Returns how many do.
    pub(crate) fn pass_over(&mut self, topic: HubTopic, name: &str, except: Option<u32>) -> usize {
        let Some(parked) = self
            .find(topic, name)
            .and_then(|channel| self.parked.get_mut(&channel))
        else {
            return 0;
        };
        parked.passed += 1;
        match except.and_then(|session| parked.since.get_mut(&session)) {
            Some(since) => {
                *since += 1;
                parked.since.len() - 1
            }
            None => parked.since.len(),
        }
    }

    /// The sessions that are parked in a name.
    pub(crate) fn parked_sessions(
        &self,
        topic: HubTopic,
        name: &str,
        sessions: &Sessions,
    ) -> Vec<SessionId> {
        let channel = self.find(topic, name);
        let parked = channel
            .into_iter()
            .flat_map(|channel| self.parked_in(channel));
        parked
            .filter_map(|index| sessions.at(index).map(|session| session.id))
            .collect()
    }

    pub(super) fn parked_in(&self, channel: ChannelId) -> impl Iterator<Item = u32> + use<'_> {
        let parked = self.parked.get(&channel).into_iter();
        parked.flat_map(|parked| parked.since.keys().copied())
    }

    pub(super) fn forget_parked(&mut self, channel: ChannelId, session: u32) {
        let Some(parked) = self.parked.get_mut(&channel) else {
            return;
        };
        parked.since.remove(&session);
        if parked.since.is_empty() {
            self.parked.remove(&channel);
            self.channel_mut(channel).has_parked = false;
        }
    }
}
