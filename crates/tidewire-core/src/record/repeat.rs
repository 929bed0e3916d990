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
    /// In the order in which they were made.
    made: VecDeque<(Instant, RepeatKey)>,
}

impl Repeats {
    /// None.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            known: table::set(seed),
            made: VecDeque::new(),
        }
    }

    /// How many are remembered.
    pub(super) fn count(&self) -> usize {
        self.made.len()
    }

    /// Whether the write was made.
    pub(super) fn contains(&self, key: &RepeatKey) -> bool {
        self.known.contains(key)
    }

    /// Nobody can say any more what became of the writes of a record, because another owner has written it.
    pub(super) fn forget(&mut self, name: &Name) {
        let known = &mut self.known;
        self.made.retain(|(_, key)| {
            let stays = key.name != *name;
            if !stays {
                known.remove(key);
            }
            stays
        });
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
            self.made.push_back((now, key));
        }
        while let Some((at, _)) = self.made.front()
            && (self.made.len() > count_max || now.since(*at) > age_max)
        {
            if let Some((_, key)) = self.made.pop_front() {
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
        repeats.forget(&"b".into());
        assert_eq!(repeats.count(), 3);
        repeats.forget(&"a".into());
        assert!(repeats.count() == 0 && !repeats.contains(&key(3)));
    }
}
