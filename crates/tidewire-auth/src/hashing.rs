//! Limits concurrent password hashing: each hash occupies a thread and tens of megabytes, so all authenticators share the limit.

use tokio::task::spawn_blocking;

use super::turns::{Turn, Turns, WaiterGroup};

/// Hands out turns to hash; clones share them.
#[derive(Clone, Debug)]
pub struct Hashing(Turns);

/// A turn to hash one password.
#[derive(Debug)]
pub struct HashTurn(Turn);

impl Hashing {
    /// Allows `threads_max` threads to hash at a time, but at least one.
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
    /// Runs long work on a blocking thread; `None` if it panicked or the server is stopping.
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
