//! A disk under the simulated store. At a power cut, unsynced writes are lost, torn or kept. After a failed sync the store can't
//! know how much of its data is durable, though it can still read all of it.

use std::collections::BTreeSet;

use crate::random::Random;
use crate::tally::Tally;

/// The disk writes this many bytes at once or not at all; a torn write ends inside a sector.
const SECTOR: usize = 64;

/// Why an operation of the disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    Write,
    Sync,
    Read,
    Full,
    /// The power failed in the middle.
    Gone,
}

/// How many of the next operations of each kind fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    pub writes: usize,
    pub syncs: usize,
    pub reads: usize,
    /// Writes that extend the file.
    pub growths: usize,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Disk {
    /// The content as a reader sees it.
    view: Vec<u8>,
    /// The content that survives a power cut.
    durable: Vec<u8>,
    /// Sectors that were written since the last sync.
    unsynced: BTreeSet<usize>,
    /// Flipped bits: offset and mask.
    flips: Vec<(usize, u8)>,
    pub failures: Failures,
    /// Writes and syncs until the power fails.
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

    /// The whole content.
    pub fn read(&mut self) -> Result<&[u8], DiskError> {
        if take_one(&mut self.failures.reads) {
            return Err(DiskError::Read);
        }
        Ok(&self.view)
    }

    /// Writes where every reader sees it at once; only a sync makes it durable. A failed write may have written a part.
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

    /// Makes all writes durable. After a failed sync some sectors are durable and others are not. The next sync does not retry
    /// them, because the operating system believes that they are clean.
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

    /// Lets the power fail after this many further writes and syncs.
    pub fn power_goes_after(&mut self, operations: usize) {
        self.power_left = Some(operations);
    }

    /// The machine starts again after a power cut. Each unsynced sector is whole, lost or torn.
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

    /// The process starts again on a machine that kept running.
    pub fn process_returns(&mut self) {
        self.power_left = None;
    }

    /// Flips a bit of the durable content.
    pub fn flip(&mut self, at: usize, bytes: usize) {
        let (at, mask) = (at + self.random.below(bytes), 1 << self.random.below(8));
        if at < self.durable.len() {
            self.durable[at] ^= mask;
            self.view[at] ^= mask;
            self.flips.push((at, mask));
        }
    }

    /// Repairs all flipped bits, as an operator who restores a good copy.
    pub fn repair(&mut self) {
        for (at, mask) in std::mem::take(&mut self.flips) {
            self.durable[at] ^= mask;
            self.view[at] ^= mask;
        }
    }

    /// Makes the first bytes of a sector durable.
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
