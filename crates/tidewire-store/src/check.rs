//! What a look at everything that is stored found.

use std::fmt;

use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

use super::walk::Walk;

/// Names of damaged records that are kept; more are counted only.
const NAMES_MAX: usize = 1_000;

/// Records that do not pass their checksum: all are counted, the first ones named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrupt {
    /// How many.
    pub count: u64,
    /// The first thousand of them.
    pub names: Vec<Name>,
}

impl Corrupt {
    /// Adds one.
    pub fn add(&mut self, name: Name) {
        self.count += 1;
        if self.names.len() < NAMES_MAX {
            self.names.push(name);
        }
    }
}

/// One line for each name, each with a line end before it.
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

/// What a look at everything that is stored found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records that pass their checksum.
    pub sound_count: u64,
    /// Records that do not. They are never served.
    pub corrupt: Corrupt,
    /// Copies of corrupt records that are kept aside.
    pub quarantined_count: u64,
    /// What the store finds wrong with its own structure, one line each.
    pub structure: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong. What is only kept aside was replaced or deleted since.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.corrupt.count == 0 && self.structure.is_empty()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sound, {} corrupt, {} kept aside{}",
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
