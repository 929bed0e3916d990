//! The union of the things that many runs met, and the size of the smallest run. A case that no run met is not tested.

use std::fmt;

use crate::sim::{Size, Summary};
use crate::tally::Tally;

/// The minimum of each measure of every run.
const LEAST: Size = Size {
    virtual_ms: 60_000,
    clients: 4,
    operations: 500,
    contended_records: 2,
    troubles: 5,
    kinds_of_trouble: 3,
    crashes: 1,
};

/// The cases that all runs together must meet: troubles and their effects, results of the store, error codes.
const TO_MEET: [&str; 71] = [
    "close: BARRED",
    "close: EXPIRED",
    "close: INVALID_LOGIN",
    "close: REFUSED",
    "close: REVOKED",
    "close: TOO_MANY_AUTH_ATTEMPTS",
    "disk: pages lost by a failed sync",
    "disk: torn sectors",
    "disk: unsynced pages lost",
    "error: auth UNSUCCESSFUL",
    "error: event DENIED",
    "error: event INVALID_DATA",
    "error: event MULTIPLE_SUBSCRIPTIONS",
    "error: event PERMISSION_ERROR",
    "error: presence DENIED",
    "error: presence INVALID_DATA",
    "error: presence MULTIPLE_SUBSCRIPTIONS",
    "error: presence PERMISSION_ERROR",
    "error: record CREATE",
    "error: record DELETE",
    "error: record DENIED",
    "error: record INVALID_DATA",
    "error: record INVALID_VERSION",
    "error: record LOAD",
    "error: record MULTIPLE_SUBSCRIPTIONS",
    "error: record NOTIFY",
    "error: record NOT_FOUND",
    "error: record PATCH_ON_HOT_PATH",
    "error: record PERMISSION_ERROR",
    "error: record RETRIEVAL_TIMEOUT",
    "error: record UPDATE",
    "error: record VERSION_EXISTS",
    "error: rpc ACCEPT_TIMEOUT",
    "error: rpc DENIED",
    "error: rpc INVALID_CORRELATION",
    "error: rpc INVALID_DATA",
    "error: rpc MULTIPLE_ACCEPT",
    "error: rpc MULTIPLE_PROVIDERS",
    "error: rpc NO_PROVIDER",
    "error: rpc PERMISSION_ERROR",
    "error: rpc RESPONSE_TIMEOUT",
    "network: overtaken by another connection",
    "store: closed",
    "store: closing failed",
    "store: commit done",
    "store: commit done, and a write of it refused",
    "store: commit failed, full",
    "store: commit failed, stale view",
    "store: commit failed, not synced",
    "store: commit failed, not written",
    "store: load failed",
    "store: loaded",
    "store: loaded nothing",
    "store: loaded what is corrupt",
    "store: reader failed",
    "store: scan failed",
    "store: scanned",
    "store: tidied",
    "store: tidying failed",
    "trouble: bit flip",
    "trouble: connection delayed",
    "trouble: connection lost",
    "trouble: connections reordered",
    "trouble: disk full",
    "trouble: kill",
    "trouble: power cut",
    "trouble: read error",
    "trouble: slow store",
    "trouble: sync error",
    "trouble: write error",
    "trouble: write of another process",
];

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Seen {
    met: Tally,
    least: Option<Size>,
}

impl Seen {
    pub fn add(&mut self, summary: &Summary) {
        self.met.merge(&summary.met);
        let size = summary.size;
        self.least = Some(self.least.map_or(size, |least| least.smallest(size)));
    }

    /// Panics if a run was too small to count.
    pub fn is_large_enough(&self) {
        let least = self.least.unwrap_or_default();
        assert_eq!(least.smallest(LEAST), LEAST, "a run was too small: {least}");
    }

    /// Panics if something was never met.
    pub fn has_met_everything(&self) {
        let missing: Vec<_> = TO_MEET
            .iter()
            .filter(|what| self.met.of(what) == 0)
            .collect();
        assert!(missing.is_empty(), "never met: {missing:?}");
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "each seed at least: {}", self.least.unwrap_or_default())?;
        let mut last = "";
        for (what, times) in self.met.iter() {
            let (group, what) = what.split_once(": ").unwrap_or((what, ""));
            match last == group {
                true => write!(f, ", {what} {times}")?,
                false => write!(f, "\nmet, {group}: {what} {times}")?,
            }
            last = group;
        }
        Ok(())
    }
}
