//! What a run has met: one that met nothing shows nothing.

/// How often something happened.
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
    pub fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.crashes += other.crashes;
        self.depositions += other.depositions;
        self.refused_events += other.refused_events;
        self.refused_writes += other.refused_writes;
        self.heard += other.heard;
        self.gaps += other.gaps;
        self.repeats += other.repeats;
        self.failed_commits += other.failed_commits;
        self.failed_loads += other.failed_loads;
        self.pages += other.pages;
    }

    pub fn has_everything(&self) -> bool {
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
        } = *self;
        let all = [
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
        ];
        !all.contains(&0)
    }
}
