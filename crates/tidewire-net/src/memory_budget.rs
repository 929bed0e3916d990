//! The memory that all shards of a node may hold together: the bytes that wait for their connections, and the reports
//! of their owners. This file only adds up and compares; the holders decide what to free.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// If the budget is exceeded by this part of it, the largest holders are closed without waiting for memory that others free. A publisher
/// can fill outboxes by megabytes a turn, so that the node would hold a multiple of its budget after a few turns.
const URGENT_PART: usize = 4;

/// A number of bytes that all its clones share.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    held: Arc<ReportedUsage>,
    bytes_max: usize,
}

/// The memory of all shares, as last reported.
#[derive(Debug, Default)]
struct ReportedUsage {
    bytes: AtomicUsize,
    spare: AtomicUsize,
    wanted: AtomicUsize,
    /// Number of requests to the shares to free their spare memory.
    clearings: AtomicU64,
    /// Until this time no caller closes a holder, in the nanoseconds of their clock.
    settling_until: AtomicU64,
    /// The shards that close holders. Locked when one joins or the budget is nearly used up.
    participants: Mutex<Vec<Arc<Published>>>,
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

    /// Bytes of all shares.
    #[must_use]
    pub fn used(&self) -> usize {
        self.held.bytes.load(Ordering::Relaxed)
    }

    /// Asks all shares to free their spare memory. Each does so when it next compares [`MemoryBudget::clearings`].
    pub fn clear_spare(&self) {
        self.held.clearings.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests to the shares to free their spare memory.
    #[must_use]
    pub fn clearings(&self) -> u64 {
        self.held.clearings.load(Ordering::Relaxed)
    }

    /// Bytes above the budget.
    #[must_use]
    pub fn excess(&self) -> usize {
        self.used().saturating_sub(self.bytes_max)
    }

    /// Bytes of all shares after they have freed their spare memory.
    #[must_use]
    pub fn used_without_spare(&self) -> usize {
        let spare = self.held.spare.load(Ordering::Relaxed);
        self.used().saturating_sub(spare)
    }

    /// The remaining bytes, if all shares free their spare memory.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.used_without_spare())
    }

    /// Requested bytes for which there is no room.
    #[must_use]
    pub fn missing(&self) -> usize {
        let wanted = self.held.wanted.load(Ordering::Relaxed);
        wanted.saturating_sub(self.room())
    }

    /// Whether shares request more than they hold.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.held.wanted.load(Ordering::Relaxed) > 0
    }

    /// Whether less than a quarter of the budget is left.
    #[must_use]
    pub fn is_nearly_used(&self) -> bool {
        self.room() < self.bytes_max / 4
    }

    /// The budget itself.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Above this use, holders are closed at once.
    #[must_use]
    pub fn urgent_bytes(&self) -> usize {
        self.bytes_max.saturating_add(self.bytes_max / URGENT_PART)
    }

    /// Whether holders may be closed at `now`. If so, no others may until `until`, so that their memory is freed
    /// before more are closed for it. All callers share one clock.
    #[must_use]
    pub fn may_end_holders(&self, now: u64, until: u64) -> bool {
        let settling = &self.held.settling_until;
        let before = settling.load(Ordering::Relaxed);
        before <= now
            && settling
                .compare_exchange(before, until, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Bytes above the budget after all shares have freed their spare memory.
    #[must_use]
    pub fn excess_without_spare(&self) -> usize {
        self.excess()
            .saturating_sub(self.held.spare.load(Ordering::Relaxed))
    }

    /// An empty share.
    #[must_use]
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
            spare: 0,
            wanted: 0,
        }
    }

    /// Adds a shard that closes holders while the budget is exceeded.
    #[must_use]
    pub fn join(&self) -> Participant {
        let own = Arc::<Published>::default();
        self.participants().push(Arc::clone(&own));
        Participant {
            budget: self.clone(),
            own,
        }
    }

    fn participants(&self) -> MutexGuard<'_, Vec<Arc<Published>>> {
        let participants = &self.held.participants;
        participants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The published state of a participant.
#[derive(Debug, Default)]
struct Published {
    largest: AtomicUsize,
    turns: AtomicU64,
}

/// A shard that closes holders while the budget is exceeded. The participants together close the largest holders
/// first, and allow each other turns to free memory before that.
#[derive(Debug)]
pub struct Participant {
    budget: MemoryBudget,
    own: Arc<Published>,
}

impl Participant {
    /// Publishes the size of this participant's largest holder, so that no other participant closes smaller ones
    /// instead.
    pub fn report_largest(&self, bytes: usize) {
        self.own.largest.store(bytes, Ordering::Relaxed);
    }

    /// The size of the other participants' largest holder, as last reported.
    #[must_use]
    pub fn largest_of_others(&self) -> usize {
        let all = self.budget.participants();
        let others = all.iter().filter(|known| !Arc::ptr_eq(known, &self.own));
        let bytes = others.map(|known| known.largest.load(Ordering::Relaxed));
        bytes.max().unwrap_or(0)
    }

    /// Records one more turn in which this participant has freed its spare memory.
    pub fn end_turn(&self) {
        // Only this participant writes the number.
        let turns = self.own.turns.load(Ordering::Relaxed);
        self.own.turns.store(turns + 1, Ordering::Relaxed);
    }

    /// The turns that each participant has ended, including this one.
    pub fn turns(&self, into: &mut Vec<u64>) {
        into.clear();
        let all = self.budget.participants();
        into.extend(all.iter().map(|known| known.turns.load(Ordering::Relaxed)));
    }

    /// Whether each participant has ended `count` turns since [`Participant::turns`] returned those numbers.
    #[must_use]
    pub fn have_turned(&self, since: &[u64], count: u64) -> bool {
        let all = self.budget.participants();
        let now = all.iter().map(|known| known.turns.load(Ordering::Relaxed));
        now.len() == since.len() && now.zip(since).all(|(now, since)| now - since >= count)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        self.budget
            .participants()
            .retain(|known| !Arc::ptr_eq(known, &self.own));
    }
}

/// One holder's report to a budget. When it is dropped, it counts as 0.
#[derive(Debug)]
pub struct Share {
    budget: MemoryBudget,
    bytes: usize,
    spare: usize,
    wanted: usize,
}

impl Share {
    /// The budget of this share.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Replaces the last report: `bytes` are held, of which up to `spare` can be freed without harm.
    pub fn report(&mut self, bytes: usize, spare: usize) {
        replace(&self.budget.held.bytes, &mut self.bytes, bytes);
        replace(&self.budget.held.spare, &mut self.spare, spare);
    }

    /// Replaces the last report of requested bytes that found no room.
    pub fn report_wanted(&mut self, bytes: usize) {
        replace(&self.budget.held.wanted, &mut self.wanted, bytes);
    }
}

impl Share {
    /// Replaces the last report by `bytes` that can't be freed, unless they are more than before and the node would
    /// then exceed its budget. Holders that try at the same moment may lock each other out; they try again.
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
        self.report_wanted(0);
    }
}

/// Most turns change nothing, and all shards write the sum.
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
    fn the_room_includes_memory_that_can_be_spared() {
        let budget = MemoryBudget::new(100);
        let (mut cache, mut outboxes) = (budget.share(), budget.share());
        cache.report(60, 50);
        outboxes.report(40, 0);
        assert_eq!((budget.room(), budget.is_nearly_used()), (50, false));
        outboxes.report(80, 0);
        assert_eq!((budget.room(), budget.is_nearly_used()), (10, true));
        cache.report_wanted(30);
        assert_eq!(budget.missing(), 20);
        outboxes.report(180, 0);
        assert_eq!((budget.room(), budget.missing()), (0, 30));
        drop(cache);
        assert_eq!(budget.missing(), 0);
    }

    #[test]
    fn holders_are_ended_by_one_share_at_a_time() {
        let budget = MemoryBudget::new(100);
        assert!(budget.may_end_holders(10, 20));
        assert!(!budget.clone().may_end_holders(19, 29));
        assert!(budget.may_end_holders(20, 30));
    }

    #[test]
    fn a_participant_knows_the_largest_holder_of_the_others() {
        let budget = MemoryBudget::new(100);
        let (first, second) = (budget.join(), budget.join());
        first.report_largest(50);
        second.report_largest(20);
        assert_eq!(
            (first.largest_of_others(), second.largest_of_others()),
            (20, 50)
        );
        drop(first);
        let third = budget.join();
        assert_eq!(
            (second.largest_of_others(), third.largest_of_others()),
            (0, 20)
        );
    }

    #[test]
    fn a_participant_waits_for_the_turns_of_all() {
        let budget = MemoryBudget::new(100);
        let (first, second) = (budget.join(), budget.join());
        second.end_turn();
        let mut since = Vec::new();
        first.turns(&mut since);
        for _ in 0..5 {
            first.end_turn();
        }
        second.end_turn();
        assert!(first.have_turned(&since, 1) && !first.have_turned(&since, 2));
        second.end_turn();
        assert!(first.have_turned(&since, 2));
        // A participant that joins later must end its turns, too.
        let _third = budget.join();
        assert!(!first.have_turned(&since, 2));
    }

    #[test]
    fn spare_memory_does_not_count_as_excess_of_others() {
        let budget = MemoryBudget::new(100);
        let (mut cache, mut outboxes) = (budget.share(), budget.share());
        cache.report(60, 50);
        outboxes.report(80, 0);
        assert_eq!((budget.excess(), budget.excess_without_spare()), (40, 0));
        cache.report(60, 0);
        assert_eq!((budget.excess(), budget.excess_without_spare()), (40, 40));
    }
}
