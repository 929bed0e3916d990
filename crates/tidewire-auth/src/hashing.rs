//! The turns of password hashes: each keeps a thread and tens of megabytes busy for a while, so all ways to log in share them.

use tokio::task::spawn_blocking;

use super::turns::{Turn, Turns, WaiterGroup};

/// Gives turns; clones share them.
#[derive(Clone, Debug)]
pub struct Hashing(Turns);

/// The turn of one that may hash.
#[derive(Debug)]
pub struct HashTurn(Turn);

impl Hashing {
    /// Up to `threads_max` threads hash at a time, and at least one.
    #[must_use]
    pub fn new(threads_max: usize) -> Self {
        Self(Turns::new(threads_max))
    }

    /// Waits for a turn.
    pub async fn turn(&self, group: WaiterGroup) -> HashTurn {
        HashTurn(self.0.turn(group).await)
    }
}

impl HashTurn {
    /// Does work that takes as long as a hash; `None` if it panicked or the server stops.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.0;
        let done = spawn_blocking(move || {
            let outcome = work();
            drop(turn);
            outcome
        });
        done.await.ok()
    }
}
