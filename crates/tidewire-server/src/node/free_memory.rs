//! Returns memory to the system after a peak in the load.
//!
//! The state of sessions is many small blocks, such as names and table entries. When many of them are freed, the allocator keeps
//! each free page that is followed by a block in use, so the process would stay large forever. Therefore the node makes the
//! allocator return its free pages after the use of the memory budget has fallen.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidewire_net::allocator::give_back_free_pages;
use tidewire_net::memory_budget::MemoryBudget;

/// How often the node reads the use of the budget.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// For how many samples in a row the use must stay low. Memory that is only free between turns is used again at once.
const SAMPLES: usize = 8;

/// The smallest fall from the peak, in bytes, that is worth the work. The use of a busy node varies by less from moment to moment.
const FALLEN_BYTES_MIN: usize = 8 << 20;

/// Returning memory takes at most one part in this many of the time.
const TIME_PARTS: u32 = 100;

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

/// Returns free memory to the system each time that the use of the budget has fallen. Runs as long as the node.
pub(super) async fn give_back(budget: MemoryBudget) {
    let mut falls = Falls::default();
    let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        interval.tick().await;
        if !falls.note(budget.used()) {
            continue;
        }
        let start = Instant::now();
        // On a separate thread, so that the front keeps working.
        if tokio::task::spawn_blocking(give_back_free_pages)
            .await
            .is_err()
        {
            return;
        }
        let elapsed = start.elapsed();
        tracing::debug!(?elapsed, "returned free memory to the system");
        tokio::time::sleep(elapsed * TIME_PARTS).await;
    }
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
}
