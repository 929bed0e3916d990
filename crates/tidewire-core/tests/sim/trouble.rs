//! What goes wrong around a node, and when: each run has its share of it. Other than planted faults (`fault.rs`), none of it may
//! break a property.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::time::Instant;

use crate::random::Random;

const NANOS_PER_MILLI: u64 = 1_000_000;
/// Troubles of a run, at least, and how many more there may be.
const COUNT_MIN: usize = 5;
const MORE_MAX: usize = 4;
/// The first comes after this time, when there is something to break.
const BEGIN_MS: usize = 1_000;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The machine of the node loses its power.
    PowerCut,
    /// The process is killed.
    Kill,
    /// A connection is lost; the node may learn of it much later.
    ConnectionLost,
    /// Nothing gets through a connection for a while, in either direction.
    Delay,
    /// What was sent later through one connection comes before what was sent through another.
    Reorder,
    /// The store takes its time.
    SlowStore,
    WriteError,
    SyncError,
    ReadError,
    DiskFull,
    BitFlip,
}

impl Trouble {
    const CRASHES: [Self; 2] = [Self::PowerCut, Self::Kill];
    const OF_NETWORK: [Self; 3] = [Self::ConnectionLost, Self::Delay, Self::Reorder];
    const OF_DISK: [Self; 6] = [
        Self::SlowStore,
        Self::WriteError,
        Self::SyncError,
        Self::DiskFull,
        Self::ReadError,
        Self::BitFlip,
    ];

    /// As it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::PowerCut => "trouble: power cut",
            Self::Kill => "trouble: kill",
            Self::ConnectionLost => "trouble: connection lost",
            Self::Delay => "trouble: connection delayed",
            Self::Reorder => "trouble: connections reordered",
            Self::SlowStore => "trouble: slow store",
            Self::WriteError => "trouble: write error",
            Self::SyncError => "trouble: sync error",
            Self::ReadError => "trouble: read error",
            Self::DiskFull => "trouble: disk full",
            Self::BitFlip => "trouble: bit flip",
        }
    }

    /// Whether it is of a store that can't be read.
    pub fn is_of_loads(self) -> bool {
        matches!(self, Self::ReadError | Self::BitFlip)
    }
}

/// The troubles of a run, by their times.
#[derive(Debug)]
pub struct Troubles(VecDeque<(Instant, Trouble)>);

impl Troubles {
    /// One of each group at least, and so three kinds. `is_allowed` says which the models of this run can predict.
    pub fn new(
        random: &mut Random,
        now: Instant,
        run_ms: usize,
        is_allowed: impl Fn(Trouble) -> bool,
    ) -> Self {
        let groups = [
            &Trouble::CRASHES[..],
            &Trouble::OF_NETWORK[..],
            &Trouble::OF_DISK[..],
        ];
        let allowed: Vec<Vec<Trouble>> = groups
            .iter()
            .map(|group| {
                group
                    .iter()
                    .copied()
                    .filter(|kind| is_allowed(*kind))
                    .collect()
            })
            .collect();
        let count = COUNT_MIN + random.below(MORE_MAX + 1);
        let mut planned: Vec<(Instant, Trouble)> = Vec::with_capacity(count);
        for place in 0..count {
            // More of them would leave nothing to crash.
            let group = match place.checked_sub(groups.len()) {
                None => &allowed[place],
                Some(_) if random.chance(10) => &allowed[0],
                Some(_) => &allowed[1 + random.below(groups.len() - 1)],
            };
            let millis = BEGIN_MS + random.below(run_ms - 2 * BEGIN_MS);
            let at = Instant(now.0 + millis as u64 * NANOS_PER_MILLI);
            planned.push((at, *random.pick(group)));
        }
        planned.sort_unstable();
        Self(planned.into())
    }

    /// How many of them there are, and of how many kinds.
    pub fn counts(&self) -> (usize, usize) {
        let kinds: BTreeSet<Trouble> = self.0.iter().map(|(_, kind)| *kind).collect();
        (self.0.len(), kinds.len())
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next one whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<Trouble> {
        let (_, trouble) = self.0.pop_front_if(|(at, _)| *at <= now)?;
        Some(trouble)
    }

    /// One could not strike yet.
    pub fn put_back(&mut self, now: Instant, trouble: Trouble) {
        self.0.push_front((now, trouble));
    }
}
