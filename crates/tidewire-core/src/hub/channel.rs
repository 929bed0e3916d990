//! Names with members: finding, adding and removing them.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::lagging::LaggingMembers;
use super::pattern::PATTERN;
use super::{Hub, HubTopic, Shown};
use crate::event_pattern;
use crate::footprint::{CHANNEL_BYTES, INTEREST_BYTES, PATTERN_SEGMENT_BYTES, text_bytes};
use crate::membership::ChannelId;
use crate::publication::InterestTopic;
use crate::session::Sessions;
use crate::table;
use crate::text::Name;

/// A name with members. There may be as many of these as sessions, so state that only one turn needs is stored elsewhere.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) topic: HubTopic,
    pub(super) name: Name,
    pub(super) members: SmallVec<[u32; 4]>,
    /// The formats of the members, one bit each (`formats.rs`).
    pub(super) formats: u64,
    /// One more than the index of its ranges in `Hub::touched`, or 0 if it has none in this turn.
    pub(super) touched: u32,
    /// Whether a member joined in this turn.
    pub(super) has_fresh: bool,
    /// Whether some members lag. They are not in `members`, so fan-out costs nothing for them.
    pub(super) has_lagging: bool,
    /// The interest change that made the name visible, see [`crate::effect::Effects::interest`].
    pub(super) interest: u64,
    /// The member to which the name's memory is charged, or [`UNPAID`].
    pub(super) payer: u32,
    /// Bytes of the record's value, as last sent to its members.
    pub(super) value_bytes: u32,
}

/// In place of a payer: the name has lost its last member in this turn.
pub(super) const UNPAID: u32 = u32::MAX;

impl Channel {
    /// Bytes of the name with its table entries.
    pub(super) fn own_bytes(&self) -> usize {
        first_member_bytes(self.topic, &self.name)
    }

    /// Bytes that the hub charges to the payer. They include the value, because its owner keeps it while it has subscribers.
    pub(super) fn charged_bytes(&self) -> usize {
        self.own_bytes() + self.value_bytes as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && !self.has_lagging
    }
}

/// Bytes of the first subscription to a name or pattern on a shard.
pub(crate) fn first_member_bytes(topic: HubTopic, name: &str) -> usize {
    CHANNEL_BYTES + topic_bytes(topic, name) + text_bytes(name)
}

/// Bytes of the entries that publishers look up.
fn topic_bytes(topic: HubTopic, name: &str) -> usize {
    match topic {
        HubTopic::Interest(InterestTopic::EventPattern) => {
            event_pattern::segments(name).count() * PATTERN_SEGMENT_BYTES
        }
        HubTopic::Interest(_) => INTEREST_BYTES,
        HubTopic::Record => 0,
    }
}

impl Hub {
    /// The number of names with members.
    pub(crate) fn name_count(&self) -> usize {
        self.keys.iter().map(|keys| keys.len()).sum()
    }

    /// The topic and name of a membership.
    pub(crate) fn topic_and_name(&self, id: ChannelId) -> (HubTopic, &Name) {
        let channel = self.channel(id);
        (channel.topic, &channel.name)
    }

    /// The members of a name except those that lag, by their index among the sessions.
    pub(crate) fn members(&self, id: ChannelId) -> &[u32] {
        &self.channel(id).members
    }

    /// Length of the table of names, free entries included.
    pub(crate) fn table_len(&self) -> usize {
        self.channels.len()
    }

    /// The names with members at these indexes, each with its number of members.
    pub(crate) fn names_at(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (HubTopic, &Name, usize)> {
        let channels = self.channels.get(range.clone()).unwrap_or_default();
        let channels = range.zip(channels).filter_map(|(index, channel)| {
            let channel = channel.as_ref().filter(|channel| !channel.is_empty())?;
            // Indexes fit into an id.
            let lagging = self.lagging.get(&(index as ChannelId));
            let lagging = lagging.map_or(0, LaggingMembers::count);
            Some((channel, channel.members.len() + lagging))
        });
        channels.map(|(channel, count)| (channel.topic, &channel.name, count))
    }

    /// The interest change that a subscription to the name has to wait for.
    pub(crate) fn interest(&self, topic: HubTopic, name: &str) -> u64 {
        self.find(topic, name)
            .map_or(0, |channel| self.channel(channel).interest)
    }

    /// Notes the interest change that makes the name visible.
    pub(crate) fn set_interest(&mut self, topic: HubTopic, name: &str, number: u64) {
        if let Some(channel) = self.find(topic, name) {
            self.channel_mut(channel).interest = number;
        }
    }

    pub(super) fn add_channel(&mut self, topic: HubTopic, name: &Name) -> ChannelId {
        let channel = Channel {
            topic,
            name: name.clone(),
            members: SmallVec::new(),
            formats: 0,
            touched: 0,
            has_fresh: false,
            has_lagging: false,
            interest: 0,
            payer: UNPAID,
            value_bytes: 0,
        };
        self.bytes += channel.own_bytes();
        let end = self.channels.len() as ChannelId;
        let id = match self.free.pop() {
            Some(Reverse(id)) if id < end => {
                self.channels[id as usize] = Some(channel);
                id
            }
            _ => {
                // The table has become shorter than the lowest free index.
                self.free.clear();
                self.channels.push(Some(channel));
                end
            }
        };
        let key = Key {
            hash: hash(&self.hasher, topic, name),
            id,
        };
        self.keys[table::part(key.spread())].insert_unique(key.spread(), key, Key::spread);
        if topic == PATTERN {
            self.patterns.insert(name, id);
        }
        id
    }

    pub(super) fn remove_channel(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels[id as usize].take() {
            self.bytes -= channel.own_bytes();
            if !self.shown.is_empty() {
                self.shown.remove(&id);
            }
            if channel.topic == PATTERN {
                self.patterns.remove(&channel.name);
                self.pattern_changes.remove(&id);
            }
            let hash = hash(&self.hasher, channel.topic, &channel.name);
            let key = Key { hash, id };
            let part = table::part(key.spread());
            let keys = &mut self.keys[part];
            if let Ok(entry) = keys.find_entry(key.spread(), |known| known.id == id) {
                entry.remove();
            }
            self.free.push(Reverse(id));
            self.shrink_keys(part);
            self.shorten();
        }
    }

    /// Frees memory of one part of the keys that only a burst of names needed.
    fn shrink_keys(&mut self, part: usize) {
        let keys = &mut self.keys[part];
        if let Some(room) = table::shrunk_part(keys.len(), keys.capacity()) {
            keys.shrink_to(room, Key::spread);
        }
    }

    /// Removes the free entries at the end of the table, and frees memory that only a burst of names needed. Entries in the middle can't
    /// be removed, because memberships refer to them by index.
    fn shorten(&mut self) {
        while self.channels.pop_if(|channel| channel.is_none()).is_some() {}
        if let Some(room) = table::shrunk(self.channels.len(), self.channels.capacity()) {
            self.channels.shrink_to(room);
            let end = self.channels.len() as ChannelId;
            self.free.retain(|Reverse(id)| *id < end);
            self.free.shrink_to(room);
        }
    }

    /// Bytes of the names and memberships, without the values of records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes the size of the value of a record that this shard has subscribers of.
    #[inline]
    pub(crate) fn set_value_bytes(&mut self, id: ChannelId, bytes: usize, sessions: &mut Sessions) {
        let channel = self.channel_mut(id);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut channel.value_bytes, bytes);
        if before != bytes
            && let Some(payer) = sessions.at_mut(channel.payer)
        {
            payer.let_go(before as usize);
            payer.keep(bytes as usize);
        }
    }

    /// Notes the state that the members of a name have received.
    pub(crate) fn set_shown(&mut self, topic: HubTopic, name: &str, shown: Option<Shown>) {
        if let Some(channel) = self.find(topic, name) {
            match shown {
                Some(shown) => self.shown.insert(channel, shown),
                None => self.shown.remove(&channel),
            };
        }
    }

    /// The state that the members of a name have received.
    pub(crate) fn shown(&self, topic: HubTopic, name: &str) -> Option<Shown> {
        self.shown.get(&self.find(topic, name)?).copied()
    }

    /// Charges a name to another member after the paying one has left.
    pub(super) fn charge_another(&mut self, id: ChannelId, sessions: &mut Sessions) {
        let first = self.channel(id).members.first().copied();
        let next = first.or_else(|| self.lagging_in(id).next());
        let channel = self.channel_mut(id);
        channel.payer = next.unwrap_or(UNPAID);
        if let Some(payer) = next.and_then(|index| sessions.at_mut(index)) {
            payer.keep(channel.charged_bytes());
        }
    }

    /// The index of a name that has members or had some in this turn.
    pub(crate) fn find(&self, topic: HubTopic, name: &str) -> Option<ChannelId> {
        let hash = hash(&self.hasher, topic, name);
        let is_it = |key: &Key| {
            let channel = self.channels[key.id as usize].as_ref();
            key.hash == hash
                && channel.is_some_and(|channel| channel.topic == topic && *channel.name == *name)
        };
        let spread = spread(hash);
        let found = self.keys[table::part(spread)].find(spread, is_it);
        found.map(|key| key.id)
    }

    pub(super) fn has_channel(&self, id: ChannelId) -> bool {
        matches!(self.channels.get(id as usize), Some(Some(_)))
    }

    pub(super) fn channel(&self, id: ChannelId) -> &Channel {
        self.channels[id as usize]
            .as_ref()
            .expect("ids come from `keys` and memberships, which contain live channels only")
    }

    pub(super) fn channel_mut(&mut self, id: ChannelId) -> &mut Channel {
        self.channels[id as usize]
            .as_mut()
            .expect("ids come from `keys` and memberships, which contain live channels only")
    }
}

/// An entry of the table of names. It contains the hash, so that the table can grow without reading the names, which may be long and
/// outside the cache: thousands of them would stop the shard for milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    hash: u32,
    id: ChannelId,
}

impl Key {
    fn spread(&self) -> u64 {
        spread(self.hash)
    }
}

fn hash(hasher: &FixedState, topic: HubTopic, name: &str) -> u32 {
    (hasher.hash_one((topic, name)) >> 32) as u32
}

/// Spreads a hash over the bits that a table uses: the lowest and the highest ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
