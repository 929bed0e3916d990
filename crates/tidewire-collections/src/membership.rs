//! The names that one session is a member of. Most sessions have few, and the bytes matter because every idle session has them.

use crate::table::{self, Map};

/// A name with members, by its index in the hub.
pub type ChannelId = u32;

/// In place of a channel: the entry is free.
const NO_CHANNEL: ChannelId = u32::MAX;

/// In place of a position: the session lags and is not in the member list.
pub const LAGGING: u32 = u32::MAX;

/// Memberships that are stored in the session itself.
const INLINE: usize = 2;

/// The channels of one session, with its position among the members of each.
#[derive(Debug)]
pub struct Memberships {
    /// The first memberships. Free entries have [`NO_CHANNEL`].
    inline: [(ChannelId, u32); INLINE],
    /// The others.
    table: Option<Box<Map<ChannelId, u32>>>,
}

impl Memberships {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self {
            inline: [(NO_CHANNEL, 0); INLINE],
            table: None,
        }
    }

    /// The number of memberships.
    pub fn len(&self) -> usize {
        let inline = self.inline.iter().filter(|(id, _)| *id != NO_CHANNEL);
        inline.count() + self.table.as_ref().map_or(0, |table| table.len())
    }

    /// Whether the session is a member.
    pub fn contains(&self, channel: ChannelId) -> bool {
        self.position(channel).is_some()
    }

    /// Adds a membership with its position among the members.
    pub fn add(&mut self, channel: ChannelId, position: u32, seed: u64) {
        match self.inline.iter_mut().find(|(id, _)| *id == NO_CHANNEL) {
            Some(free) => *free = (channel, position),
            None => {
                let table = self.table.get_or_insert_with(|| Box::new(table::map(seed)));
                table.insert(channel, position);
            }
        }
    }

    /// The position among the members of a channel, if the session is one.
    pub fn position_mut(&mut self, channel: ChannelId) -> Option<&mut u32> {
        match self.inline.iter_mut().find(|(id, _)| *id == channel) {
            Some((_, position)) => Some(position),
            None => self.table.as_mut()?.get_mut(&channel),
        }
    }

    /// The position among the members of a channel, if the session is one.
    pub fn position(&self, channel: ChannelId) -> Option<u32> {
        match self.inline.iter().find(|(id, _)| *id == channel) {
            Some((_, position)) => Some(*position),
            None => self.table.as_ref()?.get(&channel).copied(),
        }
    }

    /// Ends a membership and returns its position.
    pub fn remove(&mut self, channel: ChannelId) -> Option<u32> {
        if let Some(inline) = self.inline.iter_mut().find(|(id, _)| *id == channel) {
            return Some(std::mem::replace(inline, (NO_CHANNEL, 0)).1);
        }
        let table = self.table.as_mut()?;
        let position = table.remove(&channel);
        if table.is_empty() {
            self.table = None;
        }
        position
    }

    /// All channels, in an order that does not depend on a hash table.
    pub fn channels(&self) -> Vec<ChannelId> {
        let mut channels: Vec<ChannelId> = self.iter().collect();
        channels.sort_unstable();
        channels
    }

    /// All channels, in no order that may decide anything.
    pub fn iter(&self) -> impl Iterator<Item = ChannelId> + '_ {
        let inline = self.inline.iter().map(|(id, _)| *id);
        let table = self.table.iter().flat_map(|table| table.keys().copied());
        inline.filter(|id| *id != NO_CHANNEL).chain(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_memberships_behave_alike() {
        for count in [1, INLINE as u32, INLINE as u32 + 1, 100] {
            let mut memberships = Memberships::new();
            for channel in (0..count).rev() {
                memberships.add(channel, channel, 7);
                *memberships.position_mut(channel).unwrap() += 1;
            }
            assert_eq!(memberships.len(), count as usize);
            assert_eq!(memberships.channels(), (0..count).collect::<Vec<_>>());
            assert!(memberships.contains(count - 1) && !memberships.contains(count));
            for channel in 0..count {
                assert_eq!(memberships.remove(channel), Some(channel + 1));
                assert_eq!(memberships.remove(channel), None);
            }
            assert!(memberships.table.is_none(), "an empty table is given back");
        }
    }
}
