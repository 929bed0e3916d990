//! Decides in which turns the connections whose reads are expensive are read.
//!
//! The messages of a turn are sent at its end. If a turn handled answers of a store or cheap messages and then an expensive read, their
//! recipients would wait for that read. So such a turn ends first, and the next one begins with the expensive read.

/// After this many turns in a row that have postponed their expensive reads, a turn makes them in any case. Turns without them are short,
/// so these reads lose little, and a shard that always has other input can't stop them.
const POSTPONED_TURNS_MAX: u32 = 4;

/// The decision for this turn, and for those before it.
#[derive(Debug, Default)]
pub(super) struct ExpensiveReads {
    has_begun: bool,
    is_postponed: bool,
    postponed_turns: u32,
}

impl ExpensiveReads {
    /// Whether an expensive read is due in this turn. `has_unsent` means that the turn has handled other input.
    pub(super) fn are_due(&mut self, has_unsent: bool) -> bool {
        if self.has_begun {
            return true;
        }
        let are_due = !has_unsent || self.postponed_turns >= POSTPONED_TURNS_MAX;
        (self.has_begun, self.is_postponed) = (are_due, !are_due);
        are_due
    }

    /// Whether this turn makes them.
    pub(super) fn have_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether this turn has postponed them, so that it should end.
    pub(super) fn are_postponed(&self) -> bool {
        self.is_postponed
    }

    /// Ends the turn.
    pub(super) fn end_turn(&mut self) {
        let postponed_turns = match self.is_postponed {
            true => self.postponed_turns + 1,
            false => 0,
        };
        *self = Self {
            postponed_turns,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{ExpensiveReads, POSTPONED_TURNS_MAX};

    #[test]
    fn a_turn_with_other_input_ends_before_expensive_reads() {
        let mut reads = ExpensiveReads::default();
        assert!(!reads.are_due(true));
        assert!(reads.are_postponed());
        reads.end_turn();
        assert!(!reads.are_postponed());
        assert!(reads.are_due(false));
        assert!(reads.are_due(true), "the turn has begun them");
        assert!(!reads.are_postponed());
    }

    #[test]
    fn expensive_reads_do_not_wait_for_ever() {
        let mut reads = ExpensiveReads::default();
        let mut turns = 0;
        while !reads.are_due(true) {
            reads.end_turn();
            turns += 1;
        }
        assert_eq!(turns, POSTPONED_TURNS_MAX);
        reads.end_turn();
        assert!(!reads.are_due(true), "they have had their turn");
    }
}
