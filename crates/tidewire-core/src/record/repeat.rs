//! Acknowledged writes that may come twice: a client that lost its connection before the answer can't know whether the write
//! was made. With a key it may repeat it; the owner remembers the keys of the writes that it made, and makes none twice.
//!
//! A key is the user's own and for one record. Who logs in without a name shares the keys with all others who do, so keys should
//! be drawn at random. They are kept in memory; see decision 0033 for what that means for a restart.

use std::collections::VecDeque;
use std::time::Duration;

use crate::table::{self, Set};
use crate::text::Name;
use crate::time::Instant;

/// Whose write it was, of which record, with which key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RepeatKey {
    pub(super) name: Name,
    pub(super) user: Name,
    pub(super) key: Box<str>,
}

/// The keys of the writes that were made lately.
#[derive(Debug)]
pub(super) struct Repeats {
    known: Set<RepeatKey>,
    /// In the order in which they were made, each with its number.
    made: VecDeque<(Instant, u64, RepeatKey)>,
    next: u64,
}

impl Repeats {
    /// None.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            known: table::set(seed),
            made: VecDeque::new(),
            next: 0,
        }
    }

    /// How many are remembered.
    pub(super) fn count(&self) -> usize {
        self.made.len()
    }

    /// The number that the next key gets.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the write was made.
    pub(super) fn contains(&self, key: &RepeatKey) -> bool {
        self.known.contains(key)
    }

    /// Nobody can say any more what became of the writes of a record with keys from this number on, because another owner has
    /// written it. Those before are in the store, and not to be made again.
    pub(super) fn forget(&mut self, name: &Name, from: u64) {
        let known = &mut self.known;
        let first = self.made.partition_point(|(_, number, _)| *number < from);
        let mut later = self.made.split_off(first);
        later.retain(|(_, _, key)| {
            let stays = key.name != *name;
            if !stays {
                known.remove(key);
            }
            stays
        });
        self.made.append(&mut later);
    }

    /// A write was made. Those of long ago are forgotten, and the oldest ones if there are too many.
    pub(super) fn note(
        &mut self,
        key: RepeatKey,
        now: Instant,
        count_max: usize,
        age_max: Duration,
    ) {
        if self.known.insert(key.clone()) {
            self.made.push_back((now, self.next, key));
            self.next += 1;
        }
        while let Some((at, ..)) = self.made.front()
            && (self.made.len() > count_max || now.since(*at) > age_max)
        {
            if let Some((.., key)) = self.made.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: u32) -> RepeatKey {
        RepeatKey {
            name: "a".into(),
            user: "u".into(),
            key: key.to_string().into(),
        }
    }

    #[test]
    fn the_oldest_are_forgotten_by_number_and_by_age() {
        let mut repeats = Repeats::new(7);
        let age_max = Duration::from_secs(10);
        for number in 0..5 {
            let now = Instant(0) + Duration::from_secs(number.into());
            repeats.note(key(number), now, 3, age_max);
        }
        let known: Vec<u32> = (0..5)
            .filter(|number| repeats.contains(&key(*number)))
            .collect();
        assert_eq!(known, [2, 3, 4]);
        repeats.note(key(9), Instant(0) + Duration::from_secs(13), 3, age_max);
        assert!(!repeats.contains(&key(2)) && repeats.contains(&key(3)));
        assert_eq!(repeats.count(), 3);
        // A key that is noted again keeps its place.
        repeats.note(key(3), Instant(0) + Duration::from_secs(13), 3, age_max);
        assert_eq!(repeats.count(), 3);
        repeats.forget(&"b".into(), 0);
        assert_eq!(repeats.count(), 3);
        // Of 3, 4 and 9 the last one is not in the store.
        repeats.forget(&"a".into(), repeats.next() - 1);
        let known = [3, 4, 9].map(|number| repeats.contains(&key(number)));
        assert_eq!((repeats.count(), known), (2, [true, true, false]));
        repeats.forget(&"a".into(), 0);
        assert!(repeats.count() == 0 && !repeats.contains(&key(3)));
    }
}
