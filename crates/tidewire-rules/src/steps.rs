//! The bounded steps of an evaluation, and the reasons why one ends without a value.

use std::cell::Cell;

/// Why an evaluation ends without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// JavaScript would throw.
    Error,
    /// `steps_max` is reached.
    Exhausted,
    /// A record is needed that is not loaded.
    Need,
    /// A guard (`?.`) met null or undefined.
    Guard,
    /// The rule uses a document that is not known yet.
    Unknown,
}

/// The remaining steps.
#[derive(Debug)]
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    pub(crate) fn new(count: u64) -> Self {
        Self(Cell::new(count))
    }

    #[inline]
    pub(crate) fn spend(&self, count: u64) -> Result<(), Stop> {
        match self.0.get().checked_sub(count) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(Stop::Exhausted),
        }
    }
}
