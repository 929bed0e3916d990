//! A disk under the simulated store. What was written and not synced is lost, torn or kept when the power goes; after a
//! failed sync nobody can say how much of it is there, though all of it can still be read.

use std::collections::BTreeSet;

use crate::random::Random;
use crate::tally::Tally;

/// The disk writes so many bytes at once, or not at all; a torn write ends inside.
const SECTOR: usize = 64;

/// Why the disk did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    Write,
    Sync,
    Read,
    Full,
    /// The power went in the middle.
    Gone,
}

/// How many of the next operations of a kind fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    pub writes: usize,
    pub syncs: usize,
    pub reads: usize,
    /// Writes that make the file longer.
    pub growths: usize,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Disk {
    /// As it reads.
    view: Vec<u8>,
    /// What is there for certain.
    durable: Vec<u8>,
    /// Sectors that were written and not synced since.
    unsynced: BTreeSet<usize>,
    /// Bits that have flipped: place and mask.
    flips: Vec<(usize, u8)>,
    pub failures: Failures,
    /// Writes and syncs until the power goes.
    power_left: Option<usize>,
    random: Random,
    pub met: Tally,
}

impl Disk {
    pub fn new(seed: u64) -> Self {
        Self {
            view: Vec::new(),
            durable: Vec::new(),
            unsynced: BTreeSet::new(),
            flips: Vec::new(),
            failures: Failures::default(),
            power_left: None,
            random: Random::new(seed),
            met: Tally::default(),
        }
    }

    /// All that can be read.
    pub fn read(&mut self) -> Result<&[u8], DiskError> {
        if take_one(&mut self.failures.reads) {
            return Err(DiskError::Read);
        }
        Ok(&self.view)
    }

    /// Writes, as far as anybody who reads can tell. A failed write may have written a part.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), DiskError> {
        let end = at + bytes.len();
        let (done, outcome) = if self.power_fails() {
            (self.random.below(bytes.len() + 1), Err(DiskError::Gone))
        } else if end > self.view.len() && take_one(&mut self.failures.growths) {
            let room = self.view.len().saturating_sub(at);
            (room.min(bytes.len()), Err(DiskError::Full))
        } else if take_one(&mut self.failures.writes) {
            (self.random.below(bytes.len() + 1), Err(DiskError::Write))
        } else {
            (bytes.len(), Ok(()))
        };
        if done > 0 {
            self.view.resize(self.view.len().max(at + done), 0);
            self.view[at..at + done].copy_from_slice(&bytes[..done]);
            self.unsynced.extend(at / SECTOR..=(at + done - 1) / SECTOR);
        }
        outcome
    }

    /// Makes everything that was written durable. After a failure some of it is and some is not, and the next sync does
    /// not try it again: the system believes it to be clean.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        if self.power_fails() {
            return Err(DiskError::Gone);
        }
        let fails = take_one(&mut self.failures.syncs);
        for sector in std::mem::take(&mut self.unsynced) {
            if fails && self.random.chance(50) {
                self.met.add("disk: pages lost by a failed sync");
            } else {
                self.persist(sector, SECTOR);
            }
        }
        if fails {
            return Err(DiskError::Sync);
        }
        Ok(())
    }

    /// From now on the power goes after so many writes and syncs.
    pub fn power_goes_after(&mut self, operations: usize) {
        self.power_left = Some(operations);
    }

    /// The machine starts again after a power cut: of what was not synced, each sector is there, gone or torn.
    pub fn power_returns(&mut self) {
        for sector in std::mem::take(&mut self.unsynced) {
            match self.random.below(4) {
                0 => {
                    let bytes = 1 + self.random.below(SECTOR - 1);
                    self.persist(sector, bytes);
                    self.met.add("disk: torn sectors");
                }
                1 => self.persist(sector, SECTOR),
                _ => self.met.add("disk: unsynced pages lost"),
            }
        }
        self.power_left = None;
        self.view.clone_from(&self.durable);
    }

    /// The process starts again on a machine that went on.
    pub fn process_returns(&mut self) {
        self.power_left = None;
    }

    /// A bit of what is durable turns over.
    pub fn flip(&mut self, at: usize, bytes: usize) {
        let (at, mask) = (at + self.random.below(bytes), 1 << self.random.below(8));
        if at < self.durable.len() {
            self.durable[at] ^= mask;
            self.view[at] ^= mask;
            self.flips.push((at, mask));
        }
    }

    /// Somebody has put a good copy in the place of what had turned over.
    pub fn mend(&mut self) {
        for (at, mask) in std::mem::take(&mut self.flips) {
            self.durable[at] ^= mask;
            self.view[at] ^= mask;
        }
    }

    /// Copies the first bytes of a sector to where they stay.
    fn persist(&mut self, sector: usize, bytes: usize) {
        let start = sector * SECTOR;
        let end = (start + bytes).min(self.view.len());
        self.durable.resize(self.durable.len().max(end), 0);
        self.durable[start..end].copy_from_slice(&self.view[start..end]);
    }

    fn power_fails(&mut self) -> bool {
        match &mut self.power_left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

fn take_one(left: &mut usize) -> bool {
    let some = *left > 0;
    *left -= usize::from(some);
    some
}
