//! The number of subscriptions that each shard has of one name, or of open sessions of one user, at the owner of the name.

use smallvec::{SmallVec, smallvec};

use tidewire_message::address::Address;

/// Subscriptions by shard. Only shards with subscriptions have an entry, in the order of their first one.
#[derive(Clone, Debug, Default)]
pub struct ShardCounts(SmallVec<[(Address, u32); 2]>);

impl ShardCounts {
    /// The counts after the first subscription, which this shard has.
    pub fn one(shard: Address) -> Self {
        Self(smallvec![(shard, 1)])
    }

    /// The shard with the only subscription, if there is exactly one.
    pub fn only(&self) -> Option<Address> {
        match self.0[..] {
            [(shard, 1)] => Some(shard),
            _ => None,
        }
    }

    /// Counts a subscription.
    pub fn add(&mut self, shard: Address) {
        self.set(shard, self.of(shard) + 1);
    }

    /// Counts the end of a subscription. Returns false, and changes nothing, if none was counted for the shard, which is a bug.
    #[must_use]
    pub fn remove(&mut self, shard: Address) -> bool {
        let left = self.of(shard).checked_sub(1);
        if let Some(left) = left {
            self.set(shard, left);
        }
        left.is_some()
    }

    /// Forgets the subscriptions of a lost node. Returns whether it had any.
    pub fn remove_node(&mut self, node: u16) -> bool {
        let before = self.0.len();
        self.0.retain(|(shard, _)| shard.node != node);
        self.0.len() < before
    }

    /// Forgets the subscriptions of all other nodes.
    pub fn keep_node(&mut self, node: u16) {
        self.0.retain(|(shard, _)| shard.node == node);
    }

    /// Whether no shard has subscriptions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shards with subscriptions.
    pub fn shards(&self) -> impl Iterator<Item = Address> + '_ {
        self.0.iter().map(|(shard, _)| *shard)
    }

    fn of(&self, shard: Address) -> u32 {
        let found = self.0.iter().find(|(known, _)| *known == shard);
        found.map_or(0, |(_, count)| *count)
    }

    /// Sets the number of a shard. Setting the same number again changes nothing.
    pub fn set(&mut self, shard: Address, count: u32) {
        let index = self.0.iter().position(|(known, _)| *known == shard);
        match (index, count) {
            (Some(index), 0) => {
                self.0.remove(index);
            }
            (Some(index), _) => self.0[index].1 = count,
            (None, 0) => {}
            (None, _) => self.0.push((shard, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn address(node: u16, shard: u16) -> Address {
        Address { node, shard }
    }

    #[test]
    fn a_count_does_not_fall_below_zero() {
        let mut counts = ShardCounts::default();
        let (one, two) = (address(0, 1), address(1, 1));
        assert!(!counts.remove(one));
        counts.add(one);
        counts.add(two);
        counts.add(one);
        assert!(counts.remove(one) && counts.remove(two));
        assert!(!counts.remove(two));
        assert_eq!(Vec::from_iter(counts.shards()), [one]);
        assert!(counts.remove(one) && counts.is_empty());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add,
        Remove,
        Announce(u32),
    }

    proptest! {
        #[test]
        fn announcing_a_count_again_changes_nothing(
            steps in prop::collection::vec((0u16..2, 0u16..3, prop_oneof![
                Just(Step::Add),
                Just(Step::Remove),
                (0u32..3).prop_map(Step::Announce),
            ]), 0..60),
        ) {
            let mut counts = ShardCounts::default();
            let mut model: BTreeMap<Address, u32> = BTreeMap::new();
            for (node, shard, step) in steps {
                let shard = address(node, shard);
                let known = model.entry(shard).or_default();
                match step {
                    Step::Add => {
                        counts.add(shard);
                        *known += 1;
                    }
                    Step::Remove => {
                        prop_assert_eq!(counts.remove(shard), *known > 0);
                        *known = known.saturating_sub(1);
                    }
                    Step::Announce(count) => {
                        counts.set(shard, count);
                        *known = count;
                        let before = format!("{counts:?}");
                        counts.set(shard, count);
                        prop_assert_eq!(before, format!("{counts:?}"));
                    }
                }
                model.retain(|_, count| *count > 0);
                let mut shards = Vec::from_iter(counts.shards());
                shards.sort_unstable();
                prop_assert_eq!(shards, Vec::from_iter(model.keys().copied()));
                prop_assert_eq!(counts.is_empty(), model.is_empty());
            }
        }
    }
}
