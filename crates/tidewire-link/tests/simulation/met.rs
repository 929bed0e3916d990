//! The cases that runs have met.

/// Counts of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub delivered: usize,
    pub linked: usize,
    pub lost: usize,
    pub restarts: usize,
    pub breaks: usize,
    pub cuts: usize,
    pub resent: u64,
    pub duplicates: u64,
    pub early: u64,
    pub broken: usize,
    pub silent: usize,
    pub stuck: usize,
    pub full: usize,
    pub trusted: usize,
    pub congested: usize,
    pub resets: usize,
    pub left: usize,
    pub pauses: usize,
    pub cut_turns: usize,
    /// Frames that were sent before the peer has acknowledged one.
    pub starts: usize,
}

impl Met {
    fn counts(&self) -> [u64; 20] {
        let counts = [
            self.delivered,
            self.linked,
            self.lost,
            self.restarts,
            self.breaks,
            self.cuts,
            self.broken,
            self.silent,
            self.stuck,
            self.full,
            self.trusted,
            self.congested,
            self.resets,
            self.left,
            self.pauses,
            self.cut_turns,
            self.starts,
        ];
        let mut all = [0; 20];
        for (to, from) in all.iter_mut().zip(counts) {
            *to = from as u64;
        }
        all[17..].copy_from_slice(&[self.resent, self.duplicates, self.early]);
        all
    }

    pub fn has_everything(&self) -> bool {
        self.counts().iter().all(|count| *count > 0)
    }

    pub fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.linked += other.linked;
        self.lost += other.lost;
        self.restarts += other.restarts;
        self.breaks += other.breaks;
        self.cuts += other.cuts;
        self.resent += other.resent;
        self.duplicates += other.duplicates;
        self.early += other.early;
        self.broken += other.broken;
        self.silent += other.silent;
        self.stuck += other.stuck;
        self.full += other.full;
        self.trusted += other.trusted;
        self.congested += other.congested;
        self.resets += other.resets;
        self.left += other.left;
        self.pauses += other.pauses;
        self.cut_turns += other.cut_turns;
        self.starts += other.starts;
    }
}
