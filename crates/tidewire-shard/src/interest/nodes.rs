//! The interest of other nodes, and the announcements of this node to them.
//!
//! A shard announces the names of its interest to each linked node: all when the link opens, in pieces, and then each change. Until a shard of
//! another node has announced everything, that node gets all publications. A subscription is acknowledged when all nodes to which this shard
//! has announced everything have confirmed its name, so no publication after the acknowledgement is missed.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicU16, Ordering};

use tidewire_core::effect::InterestChange;
use tidewire_core::entry::InterestEntry;
use tidewire_core::publication::InterestTopic;
use tidewire_core::text::Name;

use super::{InterestMap, NO_SHARD};

/// Names that one turn announces to a node that was linked.
const PIECE: usize = 512;

/// The interest of a life of another node. The shards of this node share it.
#[derive(Debug)]
pub struct NodeInterest {
    map: InterestMap,
    /// Shards that have not announced everything.
    unknown: AtomicU16,
}

impl NodeInterest {
    /// The interest of a node with this number of shards, of which nothing is known yet.
    #[must_use]
    pub fn new(shard_count: u16) -> Self {
        Self {
            map: InterestMap::of_other_node(shard_count),
            unknown: AtomicU16::new(shard_count),
        }
    }

    /// Takes a change of one of the node's shards. Visible to all shards when it returns.
    pub(crate) fn change(&self, shard: u16, change: InterestChange) {
        self.map.change(shard, change);
    }

    /// A shard of the node has announced everything.
    pub(crate) fn complete(&self) {
        let one_less = |unknown: u16| unknown.checked_sub(1);
        let _ = self
            .unknown
            .fetch_update(Ordering::Release, Ordering::Relaxed, one_less);
    }

    /// Whether the node may need publications of a name.
    pub(crate) fn wants(&self, topic: InterestTopic, name: &str) -> bool {
        if !self.is_complete() {
            return true;
        }
        let mut is_wanted = false;
        self.map.visit(topic, name, NO_SHARD, |_| is_wanted = true);
        is_wanted
    }

    /// Calls `visit` with the shards of the node that may have a pattern which an event matches.
    pub(crate) fn visit_pattern_shards(&self, event: &str, visit: impl FnMut(u16)) {
        match self.is_complete() {
            true => self.map.visit_pattern_shards(event, NO_SHARD, visit),
            false => (0..self.map.shard_count()).for_each(visit),
        }
    }

    fn is_complete(&self) -> bool {
        self.unknown.load(Ordering::Acquire) == 0
    }
}

/// The interest of one shard, as it announces it to other nodes.
#[derive(Debug, Default)]
pub struct OwnInterest {
    names: BTreeSet<(InterestTopic, Name)>,
    /// The number of the last change.
    last: u64,
}

/// The announcements of one shard to a node.
#[derive(Debug)]
pub(crate) struct Announced {
    cursor: Cursor,
    /// The last change that the node has to confirm.
    sent: u64,
    /// The last change that it has confirmed.
    confirmed: u64,
}

/// The last name that was announced since the link opened.
#[derive(Debug)]
enum Cursor {
    Start,
    Name(InterestTopic, Name),
    End,
}

impl OwnInterest {
    /// Notes a change of this shard.
    pub fn change(&mut self, number: u64, change: &InterestChange) {
        self.last = number;
        let key = (change.topic, change.name.clone());
        match change.wanted {
            true => self.names.insert(key),
            false => self.names.remove(&key),
        };
    }

    /// The number of the last change.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }
}

impl Announced {
    /// Nothing is announced yet.
    pub(crate) fn nothing() -> Self {
        Self {
            cursor: Cursor::Start,
            sent: 0,
            confirmed: 0,
        }
    }

    /// The announcement of a change. Names behind the cursor follow later, and the node gets all publications before.
    pub(crate) fn change(&mut self, number: u64, change: &InterestChange) -> Option<InterestEntry> {
        let InterestChange {
            topic,
            name,
            wanted,
        } = change;
        match &self.cursor {
            Cursor::End => self.sent = number,
            Cursor::Name(last_topic, last) if (topic, name) <= (last_topic, last) => {}
            Cursor::Start | Cursor::Name(..) => return None,
        }
        Some(InterestEntry::Changed {
            topic: *topic,
            name: name.clone(),
            wanted: *wanted,
            number,
        })
    }

    /// The next piece of the names, while not all are announced.
    pub(crate) fn next_piece(&mut self, own: &OwnInterest) -> Vec<InterestEntry> {
        let from = match std::mem::replace(&mut self.cursor, Cursor::End) {
            Cursor::Start => Bound::Unbounded,
            Cursor::Name(topic, name) => Bound::Excluded((topic, name)),
            Cursor::End => return Vec::new(),
        };
        let rest = own.names.range((from, Bound::Unbounded)).take(PIECE);
        let mut piece: Vec<_> = rest
            .map(|(topic, name)| InterestEntry::Changed {
                topic: *topic,
                name: name.clone(),
                wanted: true,
                number: 0,
            })
            .collect();
        match piece.last() {
            Some(InterestEntry::Changed { topic, name, .. }) if piece.len() == PIECE => {
                self.cursor = Cursor::Name(*topic, name.clone());
            }
            _ => piece.push(InterestEntry::Complete),
        }
        piece
    }

    /// Whether names are left to announce.
    pub(crate) fn has_more(&self) -> bool {
        !matches!(self.cursor, Cursor::End)
    }

    /// The node has confirmed changes up to a number.
    pub(crate) fn confirm(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number);
    }

    /// The last change that is visible at the node; `None` if all are, or if it gets all publications.
    pub(crate) fn visible(&self) -> Option<u64> {
        (self.confirmed < self.sent).then_some(self.confirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, wanted: bool) -> InterestChange {
        InterestChange {
            topic: InterestTopic::Event,
            name: name.into(),
            wanted,
        }
    }

    fn name(number: usize) -> String {
        format!("name/{number:06}")
    }

    /// One shard of a node with interest, and another node that it announces it to.
    struct Pair {
        own: OwnInterest,
        number: u64,
        announced: Announced,
        seen: NodeInterest,
    }

    impl Pair {
        fn new(count: usize) -> Self {
            let mut own = OwnInterest::default();
            for number in 0..count {
                own.change(number as u64 + 1, &change(&name(number), true));
            }
            Self {
                own,
                number: count as u64,
                announced: Announced::nothing(),
                seen: NodeInterest::new(1),
            }
        }

        fn take(&self, entry: InterestEntry) {
            match entry {
                InterestEntry::Changed {
                    topic,
                    name,
                    wanted,
                    ..
                } => self.seen.change(
                    0,
                    InterestChange {
                        topic,
                        name,
                        wanted,
                    },
                ),
                InterestEntry::Complete => self.seen.complete(),
                InterestEntry::Visible { .. } => panic!("an answer"),
            }
        }

        fn change(&mut self, name: &str, wanted: bool) {
            self.number += 1;
            let change = change(name, wanted);
            self.own.change(self.number, &change);
            if let Some(entry) = self.announced.change(self.number, &change) {
                self.take(entry);
            }
        }

        fn announce_piece(&mut self) {
            for entry in self.announced.next_piece(&self.own) {
                self.take(entry);
            }
        }

        fn wants(&self, name: &str) -> bool {
            self.seen.wants(InterestTopic::Event, name)
        }
    }

    #[test]
    fn a_node_gets_everything_until_all_is_announced() {
        let mut pair = Pair::new(2 * PIECE);
        pair.announce_piece();
        assert!(pair.announced.has_more() && pair.wants("other"));
        pair.announce_piece();
        assert!(pair.announced.has_more() && pair.wants("other"));
        pair.announce_piece();
        assert!(!pair.announced.has_more() && !pair.wants("other"));
        assert!((0..2 * PIECE).all(|number| pair.wants(&name(number))));
        assert!(pair.announced.next_piece(&pair.own).is_empty());
    }

    #[test]
    fn changes_during_the_announcement_are_kept() {
        let mut pair = Pair::new(3 * PIECE);
        pair.announce_piece();
        // In front of the cursor and behind it: removed, removed and added again, and new.
        for at in [0, 2 * PIECE] {
            pair.change(&name(at + 1), false);
            pair.change(&name(at + 2), false);
            pair.change(&name(at + 2), true);
            pair.change(&format!("{}/new", name(at)), true);
            pair.change(&format!("{}/short", name(at)), true);
            pair.change(&format!("{}/short", name(at)), false);
        }
        while pair.announced.has_more() {
            pair.announce_piece();
        }
        for at in [0, 2 * PIECE] {
            assert!(!pair.wants(&name(at + 1)) && pair.wants(&name(at + 2)));
            assert!(pair.wants(&format!("{}/new", name(at))));
            assert!(!pair.wants(&format!("{}/short", name(at))));
        }
        assert_eq!(pair.announced.visible(), None, "it got all publications");
    }

    #[test]
    fn a_change_is_visible_when_the_node_confirms_it() {
        let mut pair = Pair::new(1);
        pair.announce_piece();
        pair.change("a", true);
        pair.change("b", true);
        assert_eq!(pair.announced.visible(), Some(0));
        pair.announced.confirm(2);
        assert_eq!(pair.announced.visible(), Some(2));
        pair.announced.confirm(3);
        pair.announced.confirm(2);
        assert_eq!(pair.announced.visible(), None);
    }

    #[test]
    fn all_shards_of_a_node_announce_and_patterns_name_their_shards() {
        let node = NodeInterest::new(2);
        let pattern = InterestChange {
            topic: InterestTopic::EventPattern,
            name: "a/*".into(),
            wanted: true,
        };
        let shards = |event: &str| {
            let mut shards = Vec::new();
            node.visit_pattern_shards(event, |shard| shards.push(shard));
            shards
        };
        node.change(1, pattern);
        node.complete();
        assert_eq!(
            shards("b"),
            [0, 1],
            "one shard has not announced its interest"
        );
        node.complete();
        assert_eq!((shards("b"), shards("a/b")), (vec![], vec![1]));
        assert!(node.wants(InterestTopic::Event, "a/b") && !node.wants(InterestTopic::Event, "b"));
        assert!(!node.wants(InterestTopic::User, "a/b"));
    }
}
