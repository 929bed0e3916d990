//! The interest map: the shards that have subscribers of a name. It is the only structure that shards share.
//!
//! Each shard writes its own bit, and publishers read without a lock. A subscription is acknowledged only after its bit is visible, so
//! the subscriber misses nothing that is published after the acknowledgement. Patterns of events are in `pattern.rs`; publishers look at
//! them only while there are some.

pub mod nodes;
mod pattern;

use papaya::{Compute, HashMap, Operation, ResizeMode};
use smallvec::SmallVec;
use tidewire_core::effect::InterestChange;
use tidewire_core::entry::Entry;
use tidewire_core::publication::InterestTopic;
use tidewire_core::text::Name;

use pattern::PatternInterest;

/// A set of shards, 64 to a word. Most nodes have fewer shards, so the first word is stored in the map itself.
type Bits = SmallVec<[u64; 1]>;

/// In place of a shard: [`InterestMap::visit`] excludes none.
pub(crate) const NO_SHARD: u16 = u16::MAX;

/// Parts of the map of a topic. Each part grows separately and in one step, which takes a fraction of a millisecond. Growing in many
/// steps, as papaya does by default, makes each change ten times as expensive.
const PARTS: usize = 64;

/// The interest of all shards of a node.
#[derive(Debug)]
pub struct InterestMap {
    events: Topic,
    patterns: PatternInterest,
    users: Topic,
    everyone: Topic,
    shard_count: u16,
    /// Whether the only shard is the only reader, which knows its own interest.
    is_alone: bool,
}

type Topic = Box<[HashMap<Name, Bits>]>;

impl InterestMap {
    /// An empty map of the `shard_count` shards of this node, which are its readers too.
    #[must_use]
    pub fn new(shard_count: u16) -> Self {
        Self::with_readers(shard_count, shard_count == 1)
    }

    /// An empty map of the shards of another node.
    pub(crate) fn of_other_node(shard_count: u16) -> Self {
        Self::with_readers(shard_count, false)
    }

    fn with_readers(shard_count: u16, is_alone: bool) -> Self {
        let part = |_| HashMap::builder().resize_mode(ResizeMode::Blocking).build();
        let topic = || (0..PARTS).map(part).collect();
        Self {
            events: topic(),
            patterns: PatternInterest::new(),
            users: topic(),
            everyone: topic(),
            shard_count,
            is_alone,
        }
    }

    /// Writes one shard's interest in a name. Visible to all shards when it returns.
    pub fn change(&self, shard: u16, change: InterestChange) {
        if self.is_alone {
            return;
        }
        let Some(part) = self.part(change.topic, &change.name) else {
            return self.patterns.change(shard, &change.name, change.wanted);
        };
        let map = part.pin();
        let wanted = change.wanted;
        let outcome = map.compute(change.name, |entry| {
            let mut bits: Bits = entry.map_or_else(Bits::default, |(_, bits)| bits.clone());
            if wanted {
                set_bit(&mut bits, shard);
                return Operation::Insert(bits);
            }
            clear_bit(&mut bits, shard);
            match entry {
                None => Operation::Abort(()),
                Some(_) if is_zero(&bits) => Operation::Remove,
                Some(_) => Operation::Insert(bits),
            }
        });
        debug_assert!(
            wanted || !matches!(outcome, Compute::Aborted(())),
            "only existing interest is withdrawn"
        );
    }

    /// Calls `visit` with each shard except `except` that needs publications of a name, once each. For an event these include the shards
    /// with a pattern that the name matches.
    pub fn visit(&self, topic: InterestTopic, name: &str, except: u16, visit: impl FnMut(u16)) {
        let Some(part) = self.part(topic, name).filter(|_| !self.is_alone) else {
            return;
        };
        let map = part.pin();
        let bits = map.get(name);
        if topic == InterestTopic::Event && !self.patterns.is_empty() {
            let mut bits = bits.cloned().unwrap_or_default();
            self.add_pattern_shards(name, except, &mut bits);
            visit_bits(&bits, except, visit);
        } else if let Some(bits) = bits {
            visit_bits(bits, except, visit);
        }
    }

    /// Calls `visit` with each shard that needs an entry of another node, which is for all shards with interest in its name.
    pub fn visit_receivers(&self, entry: &Entry, mut visit: impl FnMut(u16)) {
        let (topic, name) = match entry {
            Entry::Publication(publication) => (InterestTopic::Event, publication.name.as_str()),
            Entry::PresenceChanged(change) if change.everyone => (InterestTopic::Everyone, ""),
            Entry::PresenceChanged(change) => (InterestTopic::User, change.user.as_str()),
            // Other entries are for one shard.
            _ => return,
        };
        match self.is_alone {
            // The interest of a single shard is not in the map.
            true => visit(0),
            false => self.visit(topic, name, NO_SHARD, visit),
        }
    }

    /// Calls `visit` with each shard except `except` that has a pattern which an event matches.
    pub fn visit_pattern_shards(&self, event: &str, except: u16, visit: impl FnMut(u16)) {
        if self.is_alone || self.patterns.is_empty() {
            return;
        }
        let mut bits = Bits::new();
        self.add_pattern_shards(event, except, &mut bits);
        visit_bits(&bits, except, visit);
    }

    fn add_pattern_shards(&self, event: &str, except: u16, bits: &mut Bits) {
        // When all shards but `except` are found, the remaining patterns can't add one.
        let count = usize::from(self.shard_count) - usize::from(except < self.shard_count);
        let is_complete = |bits: &Bits| count_without(bits, except) == count;
        if !is_complete(bits) {
            self.patterns.find(event, bits, is_complete);
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// Names that any shard is interested in.
    #[cfg(test)]
    fn name_count(&self) -> usize {
        let topics = [&self.events, &self.users, &self.everyone];
        topics.into_iter().flatten().map(HashMap::len).sum()
    }

    /// The part of the map with a name; patterns have a separate map.
    fn part(&self, topic: InterestTopic, name: &str) -> Option<&HashMap<Name, Bits>> {
        let parts = match topic {
            InterestTopic::Event => &self.events,
            InterestTopic::EventPattern => return None,
            InterestTopic::User => &self.users,
            InterestTopic::Everyone => &self.everyone,
        };
        // Names mostly differ at their ends. A client that chooses names of one part only makes that part grow more.
        let last = name.bytes().rev().take(4);
        let sum = last.fold(name.len(), |sum, byte| 31 * sum + usize::from(byte));
        Some(&parts[sum % PARTS])
    }
}

fn set_bit(bits: &mut Bits, shard: u16) {
    let (word, bit) = word_and_bit(shard);
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits[word] |= bit;
}

fn clear_bit(bits: &mut Bits, shard: u16) {
    let (word, bit) = word_and_bit(shard);
    if let Some(word) = bits.get_mut(word) {
        *word &= !bit;
    }
}

fn is_zero(bits: &Bits) -> bool {
    bits.iter().all(|word| *word == 0)
}

fn add_bits(bits: &mut Bits, more: &Bits) {
    if bits.len() < more.len() {
        bits.resize(more.len(), 0);
    }
    for (word, more) in bits.iter_mut().zip(more) {
        *word |= more;
    }
}

/// The number of shards in a set, without this one.
fn count_without(bits: &Bits, shard: u16) -> usize {
    let (word, bit) = word_and_bit(shard);
    let has_it = bits.get(word).is_some_and(|word| word & bit != 0);
    let count: u32 = bits.iter().map(|word| word.count_ones()).sum();
    count as usize - usize::from(has_it)
}

fn visit_bits(bits: &Bits, except: u16, mut visit: impl FnMut(u16)) {
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

fn word_and_bit(shard: u16) -> (usize, u64) {
    (usize::from(shard) / 64, 1 << (shard % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn change_pattern(map: &InterestMap, shard: u16, pattern: &str, wanted: bool) {
        map.change(
            shard,
            InterestChange {
                topic: InterestTopic::EventPattern,
                name: pattern.into(),
                wanted,
            },
        );
    }

    fn pattern_shards(map: &InterestMap, event: &str, except: u16) -> Vec<u16> {
        let mut shards = Vec::new();
        map.visit_pattern_shards(event, except, |shard| shards.push(shard));
        shards
    }

    #[test]
    fn shards_with_a_pattern_are_found_with_those_of_the_name() {
        let map = InterestMap::new(200);
        change(&map, 3, "a/b", true);
        change_pattern(&map, 3, "a/*", true);
        change_pattern(&map, 0, "a/*", true);
        change_pattern(&map, 150, "a/**", true);
        change_pattern(&map, 7, "*/b", true);
        assert_eq!(shards(&map, "a/b", 5), [0, 3, 7, 150]);
        assert_eq!(shards(&map, "a/b", 7), [0, 3, 150]);
        assert_eq!(shards(&map, "a/c", 5), [0, 3, 150]);
        assert_eq!(shards(&map, "a/b/c", 5), [150]);
        assert_eq!(shards(&map, "a", 5), [0_u16; 0]);
        assert_eq!(pattern_shards(&map, "x/b", 5), [7]);
        assert_eq!(pattern_shards(&map, "x/b", 7), [0_u16; 0]);
        change_pattern(&map, 0, "a/*", false);
        change_pattern(&map, 150, "a/**", false);
        assert_eq!(shards(&map, "a/b", 5), [3, 7]);
        change_pattern(&map, 7, "*/b", false);
        change_pattern(&map, 3, "a/*", false);
        assert_eq!(
            (shards(&map, "a/b", 5), map.patterns.is_empty()),
            (vec![3], true)
        );
        assert_eq!(map.patterns.node_count(), 0);
    }

    #[test]
    fn an_event_of_another_node_finds_the_pattern_of_the_last_shard() {
        let map = InterestMap::new(2);
        change(&map, 0, "a/b", true);
        change_pattern(&map, 1, "a/*", true);
        assert_eq!(shards(&map, "a/b", NO_SHARD), [0, 1]);
        assert_eq!(pattern_shards(&map, "a/b", NO_SHARD), [1]);
        assert_eq!(shards(&map, "a/b", 1), [0]);
    }

    #[test]
    fn the_map_finds_what_comparing_each_pattern_finds() {
        use tidewire_core::event_pattern::{is_pattern, matches};
        // A fixed sequence of patterns and names of few segments, so that they share paths.
        let segments = ["a", "b", "*", "**", "", "é"];
        let text = |mut number: usize| {
            let length = number % 4 + 1;
            let segments = (0..length).map(|_| {
                number = number / 6 + number * 31;
                segments[number % 6]
            });
            segments.collect::<Vec<_>>().join("/")
        };
        let map = InterestMap::new(8);
        let mut model = std::collections::BTreeSet::new();
        for step in 0..4_000_usize {
            let (shard, pattern) = ((step * 7 % 8) as u16, text(step * 13));
            if !is_pattern(&pattern, 100, 8) {
                continue;
            }
            let key = (shard, pattern.clone());
            let is_added = !model.remove(&key);
            if is_added {
                model.insert(key);
            }
            change_pattern(&map, shard, &pattern, is_added);
            let name = text(step * 17);
            let fits = model.iter().filter(|(_, pattern)| matches(pattern, &name));
            let mut expected: Vec<u16> = fits.map(|(shard, _)| *shard).collect();
            expected.retain(|shard| *shard != 5);
            expected.dedup();
            assert_eq!(pattern_shards(&map, &name, 5), expected, "{name}");
        }
        assert!(model.len() > 50, "{}", model.len());
        for (shard, pattern) in model {
            change_pattern(&map, shard, &pattern, false);
        }
        assert_eq!(
            (map.patterns.node_count(), map.patterns.is_empty()),
            (0, true)
        );
    }

    /// Adds and removes the interest of four shards at the same time, an odd number of times, so that it ends as added.
    fn toggle_at_once(change: impl Fn(u16, bool) + Sync, sees: impl Fn(u16) -> bool + Sync) {
        std::thread::scope(|scope| {
            for shard in 0..4u16 {
                let (change, sees) = (&change, &sees);
                scope.spawn(move || {
                    for round in 0..2001 {
                        change(shard, round % 2 == 0);
                        assert_eq!(
                            sees(shard),
                            round % 2 == 0,
                            "a shard sees its own change at once"
                        );
                    }
                });
            }
        });
    }

    #[test]
    fn no_change_of_a_pattern_of_any_shard_is_lost() {
        let map = InterestMap::new(5);
        toggle_at_once(
            |shard, is_added| change_pattern(&map, shard, "busy/*/x", is_added),
            |shard| pattern_shards(&map, "busy/1/x", 4).contains(&shard),
        );
        assert_eq!(pattern_shards(&map, "busy/1/x", 4), [0, 1, 2, 3]);
        for shard in 0..4 {
            change_pattern(&map, shard, "busy/*/x", false);
        }
        assert_eq!(
            (map.patterns.node_count(), map.patterns.is_empty()),
            (0, true)
        );
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
        let map = InterestMap::new(2);
        toggle_at_once(
            |shard, is_added| change(&map, shard, "busy", is_added),
            |shard| shards(&map, "busy", 99).contains(&shard),
        );
        assert_eq!(shards(&map, "busy", 99), [0, 1, 2, 3]);
    }
}
