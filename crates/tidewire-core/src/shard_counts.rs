//! The number of subscriptions that each shard has of one name, at the owner of the name.

use smallvec::SmallVec;

/// Subscriptions by shard. Only shards with subscriptions have an entry, in the order of their first one.
#[derive(Debug, Default)]
pub(crate) struct ShardCounts(SmallVec<[(u16, u32); 2]>);

impl ShardCounts {
    /// Counts a subscription.
    pub(crate) fn add(&mut self, shard: u16) {
        match self.0.iter_mut().find(|(known, _)| *known == shard) {
            Some((_, count)) => *count += 1,
            None => self.0.push((shard, 1)),
        }
    }

    /// Counts the end of a subscription. Returns false, and changes nothing, if none was counted for the shard, which is a bug.
    #[must_use]
    pub(crate) fn remove(&mut self, shard: u16) -> bool {
        let Some(index) = self.0.iter().position(|(known, _)| *known == shard) else {
            return false;
        };
        self.0[index].1 -= 1;
        if self.0[index].1 == 0 {
            self.0.remove(index);
        }
        true
    }

    /// Whether no shard has subscriptions.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shards with subscriptions.
    pub(crate) fn shards(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().map(|(shard, _)| *shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_does_not_fall_below_zero() {
        let mut counts = ShardCounts::default();
        assert!(!counts.remove(1));
        counts.add(1);
        counts.add(2);
        counts.add(1);
        assert!(counts.remove(1) && counts.remove(2));
        assert!(!counts.remove(2));
        assert_eq!(Vec::from_iter(counts.shards()), [1]);
        assert!(counts.remove(1) && counts.is_empty());
    }
}
