//! How a shard knows that nothing judged before a change of rights is on its way any more.
//!
//! A shard that learns of a change, from the node or from another shard, takes it over at once, and posts a marker to all
//! others behind everything that it has posted before. The marker is the change itself, so whatever a shard posts after it
//! is handled by rules at least as new. With the markers of all others in, and everybody judged again, nothing judged before is on
//! its way here. But what it has led to may be on its way elsewhere: a call goes from its requestor's shard to the owner, and
//! from there to a provider. So a shard that has all markers says so to all others, once more behind everything that it has
//! posted, and the change is settled here when all have said that. With all shards settled it may be acknowledged.

use crate::address::Address;

/// Where this shard stands with the changes of rights.
#[derive(Debug)]
pub(crate) struct Barrier {
    own: usize,
    /// The last change of which this shard's own marker and the others' have come, by shard.
    markers: Vec<u64>,
    /// The last change of which each shard has all markers, as it has said.
    passed: Vec<u64>,
    /// The oldest change after which not everybody was judged again.
    unjudged: Option<u64>,
}

impl Barrier {
    /// Nothing has changed yet.
    pub(crate) fn new(own: Address, shard_count: u16) -> Self {
        Self {
            own: usize::from(own.shard),
            markers: vec![0; usize::from(shard_count)],
            passed: vec![0; usize::from(shard_count)],
            unjudged: None,
        }
    }

    /// Whether this change is to be taken over; each one is once.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number > self.markers[self.own]
    }

    /// This shard has taken over a change. `rejudges` says that everybody is judged again for it.
    pub(crate) fn take_over(&mut self, number: u64, rejudges: bool) {
        self.markers[self.own] = number;
        if rejudges {
            self.unjudged.get_or_insert(number);
        }
    }

    /// The marker of another shard has come.
    pub(crate) fn mark(&mut self, from: Address, number: u64) {
        if let Some(known) = self.markers.get_mut(usize::from(from.shard)) {
            *known = (*known).max(number);
        }
    }

    /// The change of which this shard has all markers now, to be said to all others; each one is once.
    pub(crate) fn newly_passed(&mut self) -> Option<u64> {
        let marked = self.markers.iter().copied().min().unwrap_or(0);
        let own = &mut self.passed[self.own];
        (marked > std::mem::replace(own, marked)).then_some(marked)
    }

    /// Another shard has all markers of a change.
    pub(crate) fn pass(&mut self, from: Address, number: u64) {
        if let Some(known) = self.passed.get_mut(usize::from(from.shard)) {
            *known = (*known).max(number);
        }
    }

    /// Everybody was judged again by the newest rules.
    pub(crate) fn all_judged(&mut self) {
        self.unjudged = None;
    }

    /// Changes up to this number are settled here.
    pub(crate) fn settled(&self) -> u64 {
        let passed = self.passed.iter().copied().min().unwrap_or(0);
        match self.unjudged {
            Some(number) => passed.min(number - 1),
            None => passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(shard: u16) -> Address {
        Address { node: 0, shard }
    }

    #[test]
    fn a_change_is_settled_when_all_have_all_markers_and_everybody_is_judged() {
        let mut barrier = Barrier::new(shard(1), 3);
        assert!(barrier.is_new(1));
        barrier.take_over(1, true);
        assert!(!barrier.is_new(1));
        barrier.mark(shard(0), 1);
        assert_eq!(barrier.newly_passed(), None);
        // Another one is further.
        barrier.pass(shard(0), 1);
        barrier.mark(shard(2), 1);
        assert_eq!(barrier.newly_passed(), Some(1));
        assert_eq!(barrier.newly_passed(), None);
        barrier.all_judged();
        assert_eq!(barrier.settled(), 0);
        barrier.pass(shard(2), 1);
        assert_eq!(barrier.settled(), 1);
    }

    #[test]
    fn a_shard_alone_settles_when_everybody_is_judged() {
        let mut barrier = Barrier::new(shard(0), 1);
        barrier.take_over(1, true);
        assert_eq!(barrier.newly_passed(), Some(1));
        assert_eq!(barrier.settled(), 0);
        barrier.all_judged();
        assert_eq!(barrier.settled(), 1);
    }

    #[test]
    fn a_second_change_during_the_first_settles_both_at_its_end() {
        let mut barrier = Barrier::new(shard(0), 2);
        let other_marks = |barrier: &mut Barrier, number| {
            barrier.mark(shard(1), number);
            assert_eq!(barrier.newly_passed(), Some(number));
            barrier.pass(shard(1), number);
        };
        barrier.take_over(1, true);
        other_marks(&mut barrier, 1);
        barrier.take_over(2, true);
        assert_eq!(barrier.settled(), 0);
        other_marks(&mut barrier, 2);
        barrier.all_judged();
        assert_eq!(barrier.settled(), 2);
        barrier.take_over(3, false);
        assert_eq!(barrier.settled(), 2);
        other_marks(&mut barrier, 3);
        assert_eq!(barrier.settled(), 3);
    }
}
