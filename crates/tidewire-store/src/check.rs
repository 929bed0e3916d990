//! The report of a check of all records in a store.

use std::fmt;

use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

use super::walk::Walk;

/// Names of damaged records that a report lists; further ones are only counted.
const NAMES_MAX: usize = 1_000;

/// Records that fail their checksum: all are counted, the first ones are listed by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrupt {
    /// The number of corrupt records.
    pub count: u64,
    /// The names of the first thousand.
    pub names: Vec<Name>,
}

impl Corrupt {
    /// Adds a corrupt record.
    pub fn add(&mut self, name: Name) {
        self.count += 1;
        if self.names.len() < NAMES_MAX {
            self.names.push(name);
        }
    }
}

/// One line for each name, each preceded by a line break.
impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            write!(f, "\ncorrupt record {name:?}")?;
        }
        match self.count - self.names.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more corrupt records"),
        }
    }
}

/// The result of a check of all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records that pass their checksum.
    pub sound_count: u64,
    /// Records that fail their checksum. They are never served.
    pub corrupt: Corrupt,
    /// Copies of corrupt records in the store's quarantine.
    pub quarantined_count: u64,
    /// Faults that the store reports in its own structure, one line each.
    pub structure: Vec<String>,
}

impl CheckReport {
    /// Whether no stored record is corrupt and the structure is intact. Quarantined copies do not count: their records were replaced or
    /// deleted since.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.corrupt.count == 0 && self.structure.is_empty()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sound, {} corrupt, {} quarantined{}",
            self.sound_count, self.corrupt.count, self.quarantined_count, self.corrupt
        )?;
        for line in &self.structure {
            write!(f, "\ndamaged structure: {line}")?;
        }
        Ok(())
    }
}

/// Reads every record and compares it with its checksum.
///
/// # Errors
/// The store can't be read.
pub fn check_records(reader: &mut dyn StoreReader) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    let mut walk = Walk::new();
    loop {
        let page = walk.next_page(reader, &mut |name, loaded| match loaded {
            Loaded::Corrupt => report.corrupt.add(name.clone()),
            Loaded::Found(_) | Loaded::Missing => report.sound_count += 1,
        })?;
        if !page.has_more {
            return Ok(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_thousand_names_are_kept() {
        let mut corrupt = Corrupt::default();
        for i in 0..NAMES_MAX + 2 {
            corrupt.add(Name::from(i.to_string().as_str()));
        }
        let text = corrupt.to_string();
        assert_eq!(text.lines().count(), 1 + NAMES_MAX + 1);
        assert!(text.starts_with("\ncorrupt record \"0\"\n"), "{text}");
        assert!(text.ends_with("\nand 2 more corrupt records"), "{text}");
    }
}
