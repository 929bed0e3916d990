//! The state of a link to another member.

/// A link that is broken for this long makes its member suspect.
const BROKEN_MS: u64 = 500;

/// So does one that is silent for this long.
pub const SILENCE_MS: u64 = 2_000;

/// A step that comes later than this after the former one follows a pause of this process.
const STEP_MS_MAX: u64 = 500;

/// The link to another member of the view.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// When the question was sent whose answer came last.
    asked: u64,
    /// Whether an answer arrived.
    is_up: bool,
    /// The time without an answer while this process ran.
    silent: u64,
    /// For how long the link has been broken while this process ran.
    broken: Option<u64>,
    /// For how long the member has been suspect while this process ran.
    suspect: u64,
}

impl Link {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            asked: now,
            is_up: false,
            silent: 0,
            broken: None,
            suspect: 0,
        }
    }

    /// An answer to a question that was sent at `asked` has arrived.
    pub(crate) fn heard(&mut self, asked: u64) {
        self.asked = self.asked.max(asked);
        self.is_up = true;
        self.silent = 0;
        self.broken = None;
        self.suspect = 0;
    }

    /// The carrier has reported a broken connection.
    pub(crate) fn broken(&mut self) {
        self.broken.get_or_insert(0);
    }

    /// Time has passed since the former step. While this process was paused, nothing could come.
    pub(crate) fn passed(&mut self, elapsed: u64) {
        let ran = elapsed.min(STEP_MS_MAX);
        if self.is_suspect() {
            self.suspect += ran;
        }
        self.silent += ran;
        if let Some(broken) = &mut self.broken {
            *broken += ran;
        }
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.silent >= SILENCE_MS || self.broken.is_some_and(|broken| broken >= BROKEN_MS)
    }

    /// For how long the member has been suspect.
    pub(crate) fn suspect_ms(&self) -> u64 {
        self.suspect
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
