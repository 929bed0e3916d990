//! The keys of the last repeatable writes of a record. They are part of the record: a commit stores a value together with the keys of the
//! writes that made it, so a key is durable exactly when its write is.
//!
//! A sender that repeats a write states the version that it had last seen when it first sent the write. That decides the cases in which
//! the key is not kept:
//!
//! - A write is made after its sender has seen a version, so it makes a later version than that one.
//! - A key is dropped only with the version that its write made, and the list remembers the latest such version.
//! - So if the sender had seen that version or a later one, the key of its write was not dropped: the write was not made.
//! - If the sender had only seen an earlier version, its write may be one of those whose keys were dropped.
//!
//! This needs versions that grow. Where they start again, no version decides ([`Dropped::Unordered`]). Decision 0069 has the whole argument.

use std::sync::Arc;

use super::Version;
use crate::text::Name;

/// The number of keys that a record keeps. A client has one write of a record in flight, so 8 clients that write the same record can lose
/// their connections at once, and all of them learn what became of their writes.
pub const WRITE_KEYS_KEPT: usize = 8;

/// The key of a write that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// The user that wrote. A key counts only for its user.
    pub user: Name,
    /// The user's own text.
    pub key: Arc<str>,
    /// The version that the write made.
    pub version: Version,
}

/// Which keys of a record were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropped {
    /// None: all keys of the record's writes are kept.
    #[default]
    Nothing,
    /// The latest of them made this version.
    UpTo(Version),
    /// Some may have been dropped, and versions do not order the writes of the record, because they have started again.
    Unordered,
}

/// The keys of a record's last repeatable writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteKeys {
    /// The keys that are kept, the oldest first.
    kept: Vec<StoredKey>,
    dropped: Dropped,
}

impl WriteKeys {
    /// The keys that a store has kept, the oldest first. Of too many keys, the first ones are dropped.
    #[must_use]
    pub fn stored(kept: Vec<StoredKey>, dropped: Dropped) -> Self {
        let mut keys = Self {
            kept: Vec::with_capacity(kept.len().min(WRITE_KEYS_KEPT)),
            dropped,
        };
        for key in kept {
            keys.add(key);
        }
        keys
    }

    /// The keys that are kept, the oldest first.
    #[must_use]
    pub fn kept(&self) -> &[StoredKey] {
        &self.kept
    }

    /// Which keys were dropped.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Whether the user has made a write with this key.
    #[must_use]
    pub fn contains(&self, user: &str, key: &str) -> bool {
        let is_it = |kept: &StoredKey| kept.user.as_str() == user && &*kept.key == key;
        self.kept.iter().any(is_it)
    }

    /// Whether the key of a write may have been dropped if its sender had seen the version `seen` before it sent the write.
    #[must_use]
    pub fn may_have_dropped(&self, seen: Version) -> bool {
        match self.dropped {
            Dropped::Nothing => false,
            Dropped::UpTo(version) => seen < version,
            Dropped::Unordered => true,
        }
    }

    /// Adds the key of a write. If there are too many, the user with the most keys loses its oldest one, so a user that writes often does
    /// not displace the key of a user that writes rarely.
    pub fn add(&mut self, key: StoredKey) {
        self.kept.push(key);
        if self.kept.len() > WRITE_KEYS_KEPT {
            let surplus = self.kept.remove(self.surplus());
            self.note_dropped(surplus.version);
        }
    }

    /// Notes that the versions of the record start again. The order of later versions says nothing about earlier writes.
    pub fn restart_versions(&mut self) {
        self.dropped = Dropped::Unordered;
    }

    /// Approximate bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_key = |key: &StoredKey| size_of::<StoredKey>() + key.user.len() + key.key.len();
        size_of::<Self>() + self.kept.iter().map(of_key).sum::<usize>()
    }

    /// The index of the oldest key of the user with the most keys. Of several such users it is the one whose oldest key is older.
    fn surplus(&self) -> usize {
        let count = |key: &StoredKey| self.kept.iter().filter(|of| of.user == key.user).count();
        let most = self.kept.iter().map(count).max().unwrap_or(0);
        let first = self.kept.iter().position(|key| count(key) == most);
        first.unwrap_or(0)
    }

    fn note_dropped(&mut self, version: Version) {
        self.dropped = match self.dropped {
            Dropped::Nothing => Dropped::UpTo(version),
            Dropped::UpTo(latest) => Dropped::UpTo(latest.max(version)),
            Dropped::Unordered => Dropped::Unordered,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(user: &str, version: u32) -> StoredKey {
        StoredKey {
            user: user.into(),
            key: version.to_string().as_str().into(),
            version: Version(version),
        }
    }

    fn keys(writes: &[(&str, u32)]) -> WriteKeys {
        let kept = writes.iter().map(|(user, version)| key(user, *version));
        WriteKeys::stored(kept.collect(), Dropped::Nothing)
    }

    #[test]
    fn the_last_keys_are_kept_and_the_latest_dropped_version_decides() {
        let mut keys = keys(&(1..=8).map(|version| ("u", version)).collect::<Vec<_>>());
        assert_eq!(keys.dropped(), Dropped::Nothing);
        assert!(keys.contains("u", "1") && !keys.may_have_dropped(Version(0)));
        keys.add(key("u", 9));
        keys.add(key("u", 12));
        assert!(!keys.contains("u", "2") && keys.contains("u", "3"));
        let may = [0, 1, 2, 3].map(|seen| keys.may_have_dropped(Version(seen)));
        assert_eq!(may, [true, true, false, false]);
    }

    #[test]
    fn a_user_that_writes_often_loses_its_own_keys() {
        let mut keys = keys(&[("ann", 1)]);
        for version in 2..100 {
            keys.add(key("bob", version));
        }
        assert!(keys.contains("ann", "1") && !keys.contains("bob", "1"));
        assert!(keys.contains("bob", "99") && !keys.contains("bob", "92"));
        assert_eq!(keys.dropped(), Dropped::UpTo(Version(92)));
        // With one key each, the oldest one is dropped, although a later one was dropped before.
        for user in ["c", "d", "e", "f", "g", "h"] {
            keys.add(key(user, 100));
        }
        assert!(keys.contains("ann", "1"));
        keys.add(key("i", 101));
        assert!(!keys.contains("ann", "1"));
        assert_eq!(keys.dropped(), Dropped::UpTo(Version(98)));
    }

    #[test]
    fn where_versions_start_again_only_a_kept_key_decides() {
        let mut keys = keys(&[("u", 5)]);
        keys.restart_versions();
        assert!(keys.contains("u", "5") && keys.may_have_dropped(Version::LAST));
        for version in 1..=8 {
            keys.add(key("u", version));
        }
        assert_eq!(keys.dropped(), Dropped::Unordered);
        assert_eq!(keys.kept().len(), WRITE_KEYS_KEPT);
    }
}
