//! Counts the cases that runs met, because a case that never occurs is not tested.

/// How often each case occurred.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub cuts: u64,
    pub crashes: u64,
    pub depositions: u64,
    pub refused_events: u64,
    pub refused_writes: u64,
    pub heard: u64,
    pub gaps: u64,
    pub repeats: u64,
    pub failed_commits: u64,
    pub failed_loads: u64,
    pub pages: u64,
}

impl Met {
    pub fn add(&mut self, mut other: Self) {
        for (own, others) in self.counters().into_iter().zip(other.counters()) {
            *own += *others;
        }
    }

    pub fn has_everything(mut self) -> bool {
        self.counters().into_iter().all(|counter| *counter > 0)
    }

    /// All counters. The pattern makes the compiler find a missing one.
    fn counters(&mut self) -> [&mut u64; 11] {
        let Self {
            cuts,
            crashes,
            depositions,
            refused_events,
            refused_writes,
            heard,
            gaps,
            repeats,
            failed_commits,
            failed_loads,
            pages,
        } = self;
        [
            cuts,
            crashes,
            depositions,
            refused_events,
            refused_writes,
            heard,
            gaps,
            repeats,
            failed_commits,
            failed_loads,
            pages,
        ]
    }
}
