//! Returns memory to the system after a peak in the load.
//!
//! The state of sessions is many small blocks, such as names and table entries. When many of them are freed, the allocator keeps
//! each free page that is followed by a block in use, so the process would stay large forever. Therefore the node makes the
//! allocator return its free pages after the use of the memory budget has fallen.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire_net::allocator::give_back_free_pages;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::scheduling::{process_time, thread_time};
use tokio::time::{Instant, MissedTickBehavior};

/// How often the node reads its memory use.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// For how many samples in a row the use must stay low. Memory that is only free between turns is used again at once.
const SAMPLES: usize = 8;

/// The smallest fall from the peak, in bytes, that is worth the work. The use of a busy node varies by less from moment to moment.
const FALLEN_BYTES_MIN: usize = 8 << 20;

/// Returning memory takes at most one part in this many of the processor time of one core.
const TIME_PARTS: u32 = 100;

/// If a node that has returned memory still has this many bytes more than at its start, and a quarter of the use of the budget, small blocks
/// in use pin its pages. Most of them are the node's unused records, so it evicts them.
const PINNED_BYTES_MIN: usize = 12 << 20;
const PINNED_PARTS: usize = 4;

/// How long the shards have for that. Each of them makes a turn in this time.
const EVICTION_TIME: Duration = Duration::from_secs(1);

/// A node is calm if it uses at most one part in this many of the processor time of one core.
const CALM_PARTS: u32 = 2;

/// The smallest growth of the memory, in bytes, that is worth the work on a calm node, and the part of the memory that it must be.
const GROWTH_BYTES_MIN: usize = 1 << 17;
const GROWTH_PARTS: usize = 128;

/// For how many samples in a row the node must be calm.
const CALM_SAMPLES: usize = 4;

/// Detects when the memory use of a node has fallen and stays low.
#[derive(Debug, Default)]
struct Falls {
    peak: usize,
    latest: VecDeque<usize>,
}

impl Falls {
    /// Adds a sample of the use. Returns whether the use has fallen and has stayed low.
    fn note(&mut self, used: usize) -> bool {
        self.peak = self.peak.max(used);
        if self.latest.len() == SAMPLES {
            self.latest.pop_front();
        }
        self.latest.push_back(used);
        let highest = self.latest.iter().copied().max().unwrap_or(0);
        let has_fallen = self.latest.len() == SAMPLES && highest + FALLEN_BYTES_MIN <= self.peak;
        if has_fallen {
            self.peak = highest;
        }
        has_fallen
    }
}

/// Detects that a calm process has grown. The use of the budget does not show all free memory: a burst may come and go between two samples,
/// a table that grows leaves its former memory, and the store's threads allocate as well.
#[derive(Debug, Default)]
struct Growth {
    /// The least memory since memory was returned, in bytes.
    least: Option<usize>,
    /// Samples in a row of a calm node that has grown.
    large_count: usize,
}

impl Growth {
    /// Adds a sample. Returns whether returning free memory is worth the work.
    fn note(&mut self, allocated: usize, is_calm: bool) -> bool {
        let least = self.least.map_or(allocated, |least| least.min(allocated));
        self.least = Some(least);
        let growth_min = GROWTH_BYTES_MIN.max(least / GROWTH_PARTS);
        let is_large = is_calm && allocated >= least + growth_min;
        self.large_count = if is_large { self.large_count + 1 } else { 0 };
        self.large_count >= CALM_SAMPLES
    }

    /// Notes that free memory was returned. The rest is in use, so the next sample is the new measure.
    fn returned(&mut self) {
        *self = Self::default();
    }
}

/// The processor time of the process at the last sample.
struct ProcessorUse {
    at: Instant,
    time: Duration,
}

impl ProcessorUse {
    fn new(now: Instant) -> Self {
        Self {
            at: now,
            time: process_time(),
        }
    }

    /// Adds a sample. Returns whether the node was calm since the last one.
    fn is_calm(&mut self, now: Instant) -> bool {
        let last = std::mem::replace(self, Self::new(now));
        let spent = self.time.saturating_sub(last.time);
        spent * CALM_PARTS <= now.duration_since(last.at)
    }
}

/// Returns free memory to the system each time that the use of the budget has fallen, or that a calm node has grown. Runs as long as the
/// node.
pub(super) async fn give_back(budget: MemoryBudget) {
    let (mut falls, mut growth) = (Falls::default(), Growth::default());
    let at_start = surplus_bytes(budget.used()).unwrap_or(0);
    let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_due = false;
    let mut not_before = Instant::now();
    let mut processor_use = ProcessorUse::new(not_before);
    loop {
        let now = interval.tick().await;
        let is_calm = processor_use.is_calm(now);
        let used = budget.used();
        is_due |= falls.note(used);
        let has_grown = allocated_bytes().is_some_and(|bytes| growth.note(bytes, is_calm));
        if !(is_due || has_grown) || now < not_before {
            continue;
        }
        is_due = false;
        let Some(mut processor_time) = return_pages().await else {
            return;
        };
        let used = budget.used();
        let pinned_min = at_start + PINNED_BYTES_MIN + used / PINNED_PARTS;
        if surplus_bytes(used).is_some_and(|bytes| bytes > pinned_min) {
            budget.clear_spare();
            tokio::time::sleep(EVICTION_TIME).await;
            let Some(more) = return_pages().await else {
                return;
            };
            processor_time += more;
        }
        growth.returned();
        tracing::debug!(?processor_time, "returned free memory to the system");
        not_before = Instant::now() + processor_time * TIME_PARTS;
    }
}

/// Bytes of the process that the budget does not count. `None` if the system does not report them.
fn surplus_bytes(used: usize) -> Option<usize> {
    allocated_bytes().map(|bytes| bytes.saturating_sub(used))
}

/// Returns free pages on a separate thread, so that the front keeps working. The result is the processor time that it took, or `None` if
/// the node stops.
async fn return_pages() -> Option<Duration> {
    tokio::task::spawn_blocking(give_back_pages_timed)
        .await
        .ok()
}

/// Returns the free pages, and the processor time that it took. On a busy core the call lasts much longer.
fn give_back_pages_timed() -> Duration {
    let start = thread_time();
    give_back_free_pages();
    thread_time().saturating_sub(start)
}

/// Bytes of memory that the process has and that no file holds, free blocks of the allocator included. `None` if the system does not
/// report them.
fn allocated_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: usize = 1 << 20;

    fn fall(falls: &mut Falls, used: usize) -> bool {
        falls.note(used * MEBIBYTE)
    }

    #[test]
    fn a_fall_counts_once_it_has_lasted() {
        let mut falls = Falls::default();
        assert!(!fall(&mut falls, 100));
        let samples: Vec<bool> = (0..2 * SAMPLES).map(|_| fall(&mut falls, 5)).collect();
        let found: Vec<usize> = (0..samples.len()).filter(|at| samples[*at]).collect();
        assert_eq!(found, [SAMPLES - 1]);
    }

    #[test]
    fn an_oscillation_is_not_a_fall() {
        let mut falls = Falls::default();
        for sample in 0..1_000 {
            let used = if sample % SAMPLES == 0 { 100 } else { 5 };
            assert!(!fall(&mut falls, used));
        }
    }

    #[test]
    fn a_fall_in_small_steps_counts_when_it_is_large_enough() {
        let mut falls = Falls::default();
        let fallen = (0..100)
            .rev()
            .filter(|used| fall(&mut falls, *used))
            .count();
        assert!((5..=12).contains(&fallen), "{fallen}");
    }

    #[test]
    fn growth_counts_once_a_calm_node_has_kept_it() {
        let mut growth = Growth::default();
        assert!(!growth.note(5 * MEBIBYTE, true));
        let busy = (0..2 * CALM_SAMPLES).any(|_| growth.note(30 * MEBIBYTE, false));
        assert!(!busy, "the node is busy");
        let calm: Vec<bool> = (0..CALM_SAMPLES)
            .map(|_| growth.note(30 * MEBIBYTE, true))
            .collect();
        assert_eq!(
            calm.iter().position(|is_due| *is_due),
            Some(CALM_SAMPLES - 1)
        );
        assert!(
            growth.note(30 * MEBIBYTE, true),
            "until memory was returned"
        );
        growth.returned();
        let again = (0..2 * CALM_SAMPLES).any(|_| growth.note(30 * MEBIBYTE, true));
        assert!(!again, "the rest is in use");
    }

    #[test]
    fn the_process_has_memory_that_no_file_holds() {
        let before = allocated_bytes().expect("Linux reports it");
        let block = vec![1_u8; 64 * MEBIBYTE];
        let after = allocated_bytes().expect("Linux reports it");
        assert!(after >= before + block.len() / 2, "{before} {after}");
    }
}
