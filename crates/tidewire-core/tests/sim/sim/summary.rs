//! What a run was: its length and size, and what it met.

use std::fmt;

use crate::tally::Tally;

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub deliveries: u64,
    /// Over all deliveries in their order.
    pub digest: u64,
    pub size: Size,
    /// Troubles, error codes and outcomes of the store, each with how often it was met.
    pub met: Tally,
}

/// How large a run was, before everything came to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub virtual_ms: u64,
    pub clients: usize,
    /// What clients did of their own accord.
    pub operations: u64,
    /// Records that several clients wrote.
    pub contended_records: usize,
    pub troubles: usize,
    pub kinds_of_trouble: usize,
    pub crashes: u64,
}

impl Size {
    /// Of each measure the smaller one.
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
