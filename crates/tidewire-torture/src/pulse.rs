//! The progress of a load, shared between its threads and the thread that injects faults: counts, and the first broken promise.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state that all threads of a load share.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    acknowledged: u64,
    refused: u64,
    is_over: bool,
    fault: Option<String>,
}

impl Pulse {
    /// Adds the outcomes of one read from a connection.
    pub(super) fn note(&self, acknowledged: u64, refused: u64) {
        if acknowledged + refused > 0 {
            let mut state = self.lock();
            state.acknowledged += acknowledged;
            state.refused += refused;
            self.changed.notify_all();
        }
    }

    /// Notes a broken promise. Only the first is kept.
    pub(super) fn fail(&self, fault: String) {
        self.lock().fault.get_or_insert(fault);
        self.changed.notify_all();
    }

    /// Notes that the server has ended, so that no client reconnects.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Whether the server has ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The number of acknowledged writes and deletes.
    pub(super) fn acknowledged(&self) -> u64 {
        self.lock().acknowledged
    }

    /// The number of refused writes and deletes.
    pub(super) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// The first broken promise.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Waits for `count` more acknowledgements. Returns false if they did not arrive in time or a promise was broken.
    pub(super) fn await_more(&self, count: u64, patience: Duration) -> bool {
        let enough = self.acknowledged() + count;
        self.wait(patience, |state| state.acknowledged >= enough)
    }

    /// Waits for this time, or until the server has ended or a promise is broken.
    pub(super) fn pause(&self, time: Duration) {
        self.wait(time, |state| state.is_over);
    }

    fn wait(&self, patience: Duration, is_enough: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        while !is_enough(&state) && state.fault.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        is_enough(&state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
