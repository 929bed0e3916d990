//! Memory that a flood has needed goes back to the system when the flood is over.
//!
//! What sessions have the server keep lies in small blocks, names and places in tables. When a flood of them is freed, the allocator
//! keeps their pages wherever a block that is in use lies behind them, so the process would stay large for good. The node has them
//! given back after the bytes of its memory budget have fallen.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidewire_net::allocator::give_back_free_pages;
use tidewire_net::memory_budget::MemoryBudget;

/// How often the budget is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The number of looks in which the budget must have been lower. What only goes to and fro between turns is used again at once.
const LOOKS: usize = 8;

/// The fall from the peak, in bytes, from which giving back is worth it. A smaller one is what a busy node needs at one moment and not at the next.
const FALLEN_BYTES_MIN: usize = 8 << 20;

/// Giving back takes at most one part of the time in this number of parts.
const TIME_PARTS: u32 = 100;

/// Watches what a node holds for a fall that lasts.
#[derive(Debug, Default)]
struct Falls {
    peak: usize,
    latest: VecDeque<usize>,
}

impl Falls {
    /// Notes what is held now. Whether that has fallen, and has stayed low.
    fn note(&mut self, used: usize) -> bool {
        self.peak = self.peak.max(used);
        if self.latest.len() == LOOKS {
            self.latest.pop_front();
        }
        self.latest.push_back(used);
        let highest = self.latest.iter().copied().max().unwrap_or(0);
        let has_fallen = self.latest.len() == LOOKS && highest + FALLEN_BYTES_MIN <= self.peak;
        if has_fallen {
            self.peak = highest;
        }
        has_fallen
    }
}

/// Has free memory go back to the system each time that the budget has fallen. For as long as the node runs.
pub(super) async fn give_back(budget: MemoryBudget) {
    let mut falls = Falls::default();
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    loop {
        interval.tick().await;
        if !falls.note(budget.used()) {
            continue;
        }
        let start = Instant::now();
        // On a thread of its own: the front goes on meanwhile.
        if tokio::task::spawn_blocking(give_back_free_pages)
            .await
            .is_err()
        {
            return;
        }
        let elapsed = start.elapsed();
        tracing::debug!(?elapsed, "free memory was given back to the system");
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
        let looks: Vec<bool> = (0..2 * LOOKS).map(|_| fall(&mut falls, 5)).collect();
        let found: Vec<usize> = (0..looks.len()).filter(|at| looks[*at]).collect();
        assert_eq!(found, [LOOKS - 1]);
    }

    #[test]
    fn what_goes_to_and_fro_is_no_fall() {
        let mut falls = Falls::default();
        for look in 0..1_000 {
            let used = if look % LOOKS == 0 { 100 } else { 5 };
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
