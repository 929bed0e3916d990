//! The interest map: the shards that have subscribers of a name. It is the only structure that shards share.
//!
//! Each shard writes its own bit, and publishers read without a lock. A subscription is acknowledged only after its bit is visible, so
//! the subscriber misses nothing that is published after the acknowledgement.

use papaya::{Compute, HashMap, Operation, ResizeMode};
use smallvec::SmallVec;
use tidewire_core::effect::InterestChange;
use tidewire_core::publication::InterestTopic;
use tidewire_core::text::Name;

/// A set of shards, 64 to a word. Most nodes have fewer shards, so the first word is stored in the map itself.
type Bits = SmallVec<[u64; 1]>;

/// Parts of the map of a topic. Each part grows separately and in one step, which takes a fraction of a millisecond. Growing in many
/// steps, as papaya does by default, makes each change ten times as expensive.
const PARTS: usize = 64;

/// The interest of all shards of a node.
#[derive(Debug)]
pub struct InterestMap {
    events: Topic,
    users: Topic,
    everyone: Topic,
    /// Whether there is only one shard, which knows its own interest.
    is_alone: bool,
}

type Topic = Box<[HashMap<Name, Bits>]>;

impl InterestMap {
    /// An empty map for `shard_count` shards.
    #[must_use]
    pub fn new(shard_count: usize) -> Self {
        let part = |_| HashMap::builder().resize_mode(ResizeMode::Blocking).build();
        let topic = || (0..PARTS).map(part).collect();
        Self {
            events: topic(),
            users: topic(),
            everyone: topic(),
            is_alone: shard_count == 1,
        }
    }

    /// Writes one shard's interest in a name. Visible to all shards when it returns.
    pub fn change(&self, shard: u16, change: InterestChange) {
        if self.is_alone {
            return;
        }
        let map = self.part(change.topic, &change.name).pin();
        let (word, bit) = word_and_bit(shard);
        let wanted = change.wanted;
        let outcome = map.compute(change.name, |entry| {
            let mut bits: Bits = entry.map_or_else(Bits::default, |(_, bits)| bits.clone());
            if wanted {
                if bits.len() <= word {
                    bits.resize(word + 1, 0);
                }
                bits[word] |= bit;
                return Operation::Insert(bits);
            }
            if let Some(word) = bits.get_mut(word) {
                *word &= !bit;
            }
            match entry {
                None => Operation::Abort(()),
                Some(_) if bits.iter().all(|word| *word == 0) => Operation::Remove,
                Some(_) => Operation::Insert(bits),
            }
        });
        debug_assert!(
            wanted || !matches!(outcome, Compute::Aborted(())),
            "only existing interest is withdrawn"
        );
    }

    /// Calls `visit` with each shard except `except` that needs publications of a name.
    pub fn visit(&self, topic: InterestTopic, name: &str, except: u16, mut visit: impl FnMut(u16)) {
        if self.is_alone {
            return;
        }
        let map = self.part(topic, name).pin();
        let Some(bits) = map.get(name) else { return };
        for (first, word) in (0u16..).step_by(64).zip(bits) {
            let mut left = *word;
            while left != 0 {
                let shard = first + left.trailing_zeros() as u16;
                left &= left - 1;
                if shard != except {
                    visit(shard);
                }
            }
        }
    }

    /// Names that any shard is interested in.
    #[cfg(test)]
    fn name_count(&self) -> usize {
        let topics = [&self.events, &self.users, &self.everyone];
        topics.into_iter().flatten().map(HashMap::len).sum()
    }

    fn part(&self, topic: InterestTopic, name: &str) -> &HashMap<Name, Bits> {
        let parts = match topic {
            InterestTopic::Event => &self.events,
            InterestTopic::User => &self.users,
            InterestTopic::Everyone => &self.everyone,
        };
        // Names mostly differ at their ends. A client that chooses names of one part only makes that part grow more.
        let last = name.bytes().rev().take(4);
        let sum = last.fold(name.len(), |sum, byte| 31 * sum + usize::from(byte));
        &parts[sum % PARTS]
    }
}

fn word_and_bit(shard: u16) -> (usize, u64) {
    (usize::from(shard) / 64, 1 << (shard % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn change(map: &InterestMap, shard: u16, name: &str, wanted: bool) {
        map.change(
            shard,
            InterestChange {
                topic: InterestTopic::Event,
                name: name.into(),
                wanted,
            },
        );
    }

    fn shards(map: &InterestMap, name: &str, except: u16) -> Vec<u16> {
        let mut shards = Vec::new();
        map.visit(InterestTopic::Event, name, except, |shard| {
            shards.push(shard)
        });
        shards
    }

    #[test]
    fn shards_beyond_the_first_word_are_found() {
        let map = InterestMap::new(2);
        for shard in [1000, 0, 64, 63] {
            change(&map, shard, "news", true);
        }
        assert_eq!(shards(&map, "news", 5), [0, 63, 64, 1000]);
        assert_eq!(shards(&map, "news", 64), [0, 63, 1000]);
        assert!(shards(&map, "other", 5).is_empty());
    }

    #[test]
    fn a_name_without_subscribers_is_forgotten() {
        let map = InterestMap::new(2);
        change(&map, 1, "news", true);
        change(&map, 70, "news", true);
        change(&map, 70, "news", false);
        assert_eq!(shards(&map, "news", 0), [1]);
        change(&map, 1, "news", false);
        assert_eq!(map.name_count(), 0);
    }

    #[test]
    fn topics_are_separate() {
        let map = InterestMap::new(2);
        change(&map, 1, "anna", true);
        map.visit(InterestTopic::User, "anna", 0, |shard| {
            panic!("shard {shard}")
        });
    }

    #[test]
    fn no_change_of_any_shard_is_lost() {
        let map = Arc::new(InterestMap::new(2));
        let threads: Vec<_> = (0..4u16)
            .map(|shard| {
                let map = map.clone();
                std::thread::spawn(move || {
                    for round in 0..2001 {
                        change(&map, shard, "busy", round % 2 == 0);
                        let seen = shards(&map, "busy", 99).contains(&shard);
                        assert_eq!(seen, round % 2 == 0, "a shard sees its own change at once");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(shards(&map, "busy", 99), [0, 1, 2, 3]);
    }
}
