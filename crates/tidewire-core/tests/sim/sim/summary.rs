//! The summary of a run: its length, its size and the things that it met.

use std::fmt;

use crate::tally::Tally;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub deliveries: u64,
    /// A hash over all deliveries in order.
    pub digest: u64,
    pub size: Size,
    /// How often the run met each trouble, error code and store outcome.
    pub met: Tally,
}

/// The size of a run before the final settling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub virtual_ms: u64,
    pub clients: usize,
    /// Operations that clients started.
    pub operations: u64,
    /// Records that several clients wrote.
    pub contended_records: usize,
    pub troubles: usize,
    pub kinds_of_trouble: usize,
    pub crashes: u64,
}

impl Size {
    /// The smaller value of each measure.
    pub fn smallest(self, other: Self) -> Self {
        Self {
            virtual_ms: self.virtual_ms.min(other.virtual_ms),
            clients: self.clients.min(other.clients),
            operations: self.operations.min(other.operations),
            contended_records: self.contended_records.min(other.contended_records),
            troubles: self.troubles.min(other.troubles),
            kinds_of_trouble: self.kinds_of_trouble.min(other.kinds_of_trouble),
            crashes: self.crashes.min(other.crashes),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            virtual_ms,
            clients,
            operations,
            contended_records,
            troubles,
            kinds_of_trouble,
            crashes,
        } = self;
        let seconds = virtual_ms / 1_000;
        write!(
            f,
            "{seconds} virtual seconds, {clients} clients, {operations} operations, {contended_records} records that several \
             write, {troubles} troubles of {kinds_of_trouble} kinds, {crashes} crashes"
        )
    }
}
