//! The state of a link to another member. The link decides whether its peer is suspect (`spec/links.md`).

/// A step that comes later than this after the former one follows a pause of this process.
const STEP_MS_MAX: u64 = 500;

/// The link to another member of the view.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// When the question was sent whose answer came last.
    asked: u64,
    /// Whether an answer arrived.
    is_up: bool,
    suspicion: Option<Suspicion>,
}

/// The member is suspect.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// Since when.
    since: u64,
    /// For how long while this process ran.
    ms: u64,
}

impl Link {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            asked: now,
            is_up: false,
            suspicion: None,
        }
    }

    /// An answer to a question that was sent at `asked` has arrived.
    pub(crate) fn heard(&mut self, asked: u64) {
        self.asked = self.asked.max(asked);
        self.is_up = true;
    }

    /// The link suspects the member, or trusts it again.
    pub(crate) fn set_suspect(&mut self, is_suspect: bool, now: u64) {
        let begun = Suspicion { since: now, ms: 0 };
        self.suspicion = is_suspect.then_some(self.suspicion.unwrap_or(begun));
    }

    /// A suspicion begins again.
    pub(crate) fn restart_suspicion(&mut self, now: u64) {
        if let Some(suspicion) = &mut self.suspicion {
            *suspicion = Suspicion { since: now, ms: 0 };
        }
    }

    /// Time has passed since the former step. While this process was paused, nothing could come.
    pub(crate) fn passed(&mut self, elapsed: u64) {
        let ran = elapsed.min(STEP_MS_MAX);
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.ms += ran;
        }
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspicion.is_some()
    }

    /// For how long the member has been suspect.
    pub(crate) fn suspect_ms(&self) -> u64 {
        self.suspicion.map_or(0, |suspicion| suspicion.ms)
    }

    /// Since when the member has been suspect.
    pub(crate) fn suspect_since(&self) -> Option<u64> {
        self.suspicion.map(|suspicion| suspicion.since)
    }

    /// Whether the member is not suspect, and has answered a question that was sent at `since` or later.
    pub(crate) fn has_answered_since(&self, since: u64) -> bool {
        !self.is_suspect() && self.is_up && self.asked >= since
    }

    /// Whether an answer arrived and the member is not suspect.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up && !self.is_suspect()
    }

    /// For how long no round trip has been known. Unlike the suspicion this counts the pauses of this process: the answers that waited in its
    /// sockets describe the past.
    pub(crate) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.asked)
    }
}
