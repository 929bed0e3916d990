//! Acknowledged writes that a client may repeat: if it loses its connection before the answer, it can't know whether the write was made. If
//! the write has a key, the client may repeat it. The owner remembers the keys of the writes that it made, and makes none of them twice.
//!
//! A key belongs to one user and one record. Clients that log in without a name share one user id, so keys should be random. This module
//! keeps the keys of all writes in memory, for a while. The record itself has the keys of its last writes (`store::WriteKeys`), which
//! also survive a restart; decisions 0033 and 0069. At the limit the user with the most keys loses its oldest one, so a user that writes
//! many keys does not displace the keys of another user.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::table::{self, Map, Set};
use crate::text::Name;
use crate::time::Instant;
use tidewire_collections::share::Share;

/// The user, the record and the key of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RepeatKey {
    pub(super) name: Name,
    pub(super) user: Name,
    pub(super) key: Arc<str>,
}

/// A write that was made.
#[derive(Debug)]
struct Made {
    at: Instant,
    share: Share,
    key: RepeatKey,
}

/// The keys of recent writes.
#[derive(Debug)]
pub(super) struct Repeats {
    known: Set<RepeatKey>,
    /// By number, in the order in which they were made.
    made: BTreeMap<u64, Made>,
    /// The numbers of each share, the oldest first.
    shares: Map<Share, VecDeque<u64>>,
    /// The shares by their number of keys.
    sizes: BTreeSet<(usize, Share)>,
    next: u64,
}

impl Repeats {
    /// Remembers no keys yet.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            known: table::set(seed),
            made: BTreeMap::new(),
            shares: table::map(seed),
            sizes: BTreeSet::new(),
            next: 0,
        }
    }

    /// The number of keys that are remembered.
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

    /// Forgets the keys of a record from the number `from` on: another owner has written the record, so the outcome of their writes is
    /// unknown. Writes with earlier keys are in the store, and must not be made again.
    pub(super) fn forget(&mut self, name: &Name, from: u64) {
        let later = self.made.range(from..);
        let of_name = later.filter(|(_, made)| made.key.name == *name);
        let numbers: Vec<u64> = of_name.map(|(number, _)| *number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// Remembers the key of a write that was made. Keys that are older than `age_max` are forgotten. If there are more than `count_max`
    /// keys, the share with the most keys loses its oldest one.
    pub(super) fn note(
        &mut self,
        key: RepeatKey,
        share: Share,
        now: Instant,
        count_max: usize,
        age_max: Duration,
    ) {
        if self.known.insert(key.clone()) {
            let numbers = self.shares.entry(share.clone()).or_default();
            self.sizes.remove(&(numbers.len(), share.clone()));
            numbers.push_back(self.next);
            self.sizes.insert((numbers.len(), share.clone()));
            let made = Made {
                at: now,
                share,
                key,
            };
            self.made.insert(self.next, made);
            self.next += 1;
        }
        while let Some((number, made)) = self.made.first_key_value()
            && now.since(made.at) > age_max
        {
            self.remove(*number);
        }
        while self.made.len() > count_max
            && let Some((_, share)) = self.sizes.last()
            && let Some(oldest) = self.shares.get(share).and_then(VecDeque::front)
        {
            self.remove(*oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(Made { share, key, .. }) = self.made.remove(&number) else {
            return;
        };
        self.known.remove(&key);
        let Some(numbers) = self.shares.get_mut(&share) else {
            return;
        };
        self.sizes.remove(&(numbers.len(), share.clone()));
        if let Ok(index) = numbers.binary_search(&number) {
            numbers.remove(index);
        }
        if numbers.is_empty() {
            self.shares.remove(&share);
        } else {
            self.sizes.insert((numbers.len(), share));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: u32) -> RepeatKey {
        of("u", key)
    }

    fn of(user: &str, key: u32) -> RepeatKey {
        RepeatKey {
            name: "a".into(),
            user: user.into(),
            key: key.to_string().as_str().into(),
        }
    }

    impl Repeats {
        fn note_of(&mut self, key: RepeatKey, now: Instant, age_max: Duration) {
            let share = Share::User(key.user.clone());
            self.note(key, share, now, 3, age_max);
        }
    }

    #[test]
    fn the_oldest_keys_are_forgotten_by_count_and_by_age() {
        let mut repeats = Repeats::new(7);
        let age_max = Duration::from_secs(10);
        for number in 0..5 {
            let now = Instant(0) + Duration::from_secs(number.into());
            repeats.note_of(key(number), now, age_max);
        }
        let known: Vec<u32> = (0..5)
            .filter(|number| repeats.contains(&key(*number)))
            .collect();
        assert_eq!(known, [2, 3, 4]);
        repeats.note_of(key(9), Instant(0) + Duration::from_secs(13), age_max);
        assert!(!repeats.contains(&key(2)) && repeats.contains(&key(3)));
        assert_eq!(repeats.count(), 3);
        // A key that is noted again keeps its place.
        repeats.note_of(key(3), Instant(0) + Duration::from_secs(13), age_max);
        assert_eq!(repeats.count(), 3);
        repeats.forget(&"b".into(), 0);
        assert_eq!(repeats.count(), 3);
        // Of 3, 4 and 9 the last one is not in the store.
        repeats.forget(&"a".into(), repeats.next() - 1);
        let known = [3, 4, 9].map(|number| repeats.contains(&key(number)));
        assert_eq!((repeats.count(), known), (2, [true, true, false]));
        repeats.forget(&"a".into(), 0);
        assert!(repeats.count() == 0 && !repeats.contains(&key(3)));
        assert!(repeats.shares.is_empty() && repeats.sizes.is_empty());
    }

    #[test]
    fn the_user_with_most_keys_loses_its_oldest() {
        let mut repeats = Repeats::new(7);
        let age_max = Duration::from_secs(10);
        repeats.note_of(of("ann", 1), Instant(0), age_max);
        for number in 0..1_000 {
            repeats.note_of(of("bob", number), Instant(1), age_max);
        }
        assert!(repeats.contains(&of("ann", 1)));
        assert!(repeats.contains(&of("bob", 999)) && !repeats.contains(&of("bob", 997)));
        repeats.note_of(of("ann", 2), Instant(2), age_max);
        let known = [of("ann", 1), of("ann", 2), of("bob", 998), of("bob", 999)];
        let known = known.map(|key| repeats.contains(&key));
        assert_eq!(known, [true, true, false, true]);
    }
}
