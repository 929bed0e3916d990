//! The memory that all shards of a node may hold together: what waits for their connections, and what their owners report
//! besides. Here it is only added up and compared; who gives something back is decided by those who hold it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that all its clones keep to together.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    held: Arc<Held>,
    bytes_max: usize,
}

/// What all shares hold, as last reported.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    spare: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            held: Arc::default(),
            bytes_max,
        }
    }

    /// Bytes that all shares hold.
    #[must_use]
    pub fn used(&self) -> usize {
        self.held.bytes.load(Ordering::Relaxed)
    }

    /// Bytes above the budget.
    #[must_use]
    pub fn excess(&self) -> usize {
        self.used().saturating_sub(self.bytes_max)
    }

    /// Bytes above the budget that would be left if all gave back what they can spare.
    #[must_use]
    pub fn excess_without_spare(&self) -> usize {
        self.excess()
            .saturating_sub(self.held.spare.load(Ordering::Relaxed))
    }

    /// A part that holds nothing yet.
    #[must_use]
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
            spare: 0,
        }
    }
}

/// What one holder reports to a budget. Dropped, it holds nothing any more.
#[derive(Debug)]
pub struct Share {
    budget: MemoryBudget,
    bytes: usize,
    spare: usize,
}

impl Share {
    /// The budget that this is a part of.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Replaces what was reported before: `bytes` are held, of which up to `spare` can be given back without harm.
    pub fn report(&mut self, bytes: usize, spare: usize) {
        replace(&self.budget.held.bytes, &mut self.bytes, bytes);
        replace(&self.budget.held.spare, &mut self.spare, spare);
    }
}

impl Share {
    /// Replaces what was reported before by `bytes` that can't be given back, unless they are more than before and the node would
    /// then hold more than its budget. Holders that try at the same moment may keep each other out; they try again.
    #[must_use]
    pub fn try_report(&mut self, bytes: usize) -> bool {
        let (bytes_before, spare_before) = (self.bytes, self.spare);
        self.report(bytes, 0);
        let is_kept = bytes <= bytes_before || self.budget.excess_without_spare() == 0;
        if !is_kept {
            self.report(bytes_before, spare_before);
        }
        is_kept
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.report(0, 0);
    }
}

/// Most turns change nothing, and the sum is written by all shards.
fn replace(sum: &AtomicUsize, before: &mut usize, after: usize) {
    if *before != after {
        // Wrapping arithmetic makes one addition of both directions.
        sum.fetch_add(after.wrapping_sub(*before), Ordering::Relaxed);
        *before = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_adds_up_over_its_shares() {
        let budget = MemoryBudget::new(100);
        let (mut first, mut second) = (budget.clone().share(), budget.share());
        first.report(80, 0);
        second.report(50, 0);
        assert_eq!((budget.used(), budget.excess()), (130, 30));
        first.report(10, 0);
        assert_eq!((budget.used(), budget.excess()), (60, 0));
        drop(second);
        assert_eq!(budget.used(), 10);
    }

    #[test]
    fn a_reservation_is_given_only_within_the_budget() {
        let budget = MemoryBudget::new(100);
        let mut cache = budget.share();
        cache.report(70, 50);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.try_report(60), "the cache gives way");
        assert!(!second.try_report(30));
        assert_eq!(budget.used(), 130);
        assert!(!first.try_report(90) && first.try_report(80) && first.try_report(10));
        assert_eq!(budget.used(), 80);
        cache.report(200, 0);
        assert!(first.try_report(5), "less is always taken");
        assert!(!second.try_report(1));
        drop(first);
        assert_eq!(budget.used(), 200);
    }

    #[test]
    fn what_can_be_spared_is_no_reason_to_take_from_others() {
        let budget = MemoryBudget::new(100);
        let (mut cache, mut outboxes) = (budget.share(), budget.share());
        cache.report(60, 50);
        outboxes.report(80, 0);
        assert_eq!((budget.excess(), budget.excess_without_spare()), (40, 0));
        cache.report(60, 0);
        assert_eq!((budget.excess(), budget.excess_without_spare()), (40, 40));
    }
}
