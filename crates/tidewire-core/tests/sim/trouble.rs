//! The troubles around a node and their times. Each run has several. Unlike planted faults (`fault.rs`), no trouble may break a
//! property.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::time::Instant;

use crate::random::Random;

const NANOS_PER_MILLI: u64 = 1_000_000;
/// The minimum number of troubles of a run, and the maximum number of further ones.
const COUNT_MIN: usize = 5;
const MORE_MAX: usize = 4;
/// The earliest time of a trouble; before it, there is little to break.
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
    /// No message passes a connection for a while, in either direction.
    Delay,
    /// A message overtakes an earlier one of another connection.
    Reorder,
    /// The store answers late.
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

    /// The name under which a run counts the trouble.
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

    /// Whether the trouble affects reads from the store.
    pub fn is_of_loads(self) -> bool {
        matches!(self, Self::ReadError | Self::BitFlip)
    }
}

/// The planned troubles of a run, in the order of their times.
#[derive(Debug)]
pub struct Troubles(VecDeque<(Instant, Trouble)>);

impl Troubles {
    /// Plans at least one trouble of each group, and so at least three kinds. `is_allowed` selects the kinds that the models of
    /// the run can predict.
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
        for index in 0..count {
            // Few of the further troubles are crashes, because a node that restarts too often has little work to lose.
            let group = match index.checked_sub(groups.len()) {
                None => &allowed[index],
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

    /// The number of troubles, and the number of their kinds.
    pub fn counts(&self) -> (usize, usize) {
        let kinds: BTreeSet<Trouble> = self.0.iter().map(|(_, kind)| *kind).collect();
        (self.0.len(), kinds.len())
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next trouble that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Trouble> {
        let (_, trouble) = self.0.pop_front_if(|(at, _)| *at <= now)?;
        Some(trouble)
    }

    /// Returns a trouble that has no target yet.
    pub fn put_back(&mut self, now: Instant, trouble: Trouble) {
        self.0.push_front((now, trouble));
    }
}
