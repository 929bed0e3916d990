//! The turns of password hashes: each keeps a thread and tens of megabytes busy for a while, so all ways to log in share them.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Gives turns; clones share them.
#[derive(Clone, Debug)]
pub struct Hashing(Arc<Semaphore>);

impl Hashing {
    /// So many threads hash at a time, and one at least.
    #[must_use]
    pub fn new(threads_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads_max.max(1))))
    }

    /// Does work that takes as long as a hash when it is its turn; `None` if it panicked or the server stops.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // The semaphore is never closed.
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let done = spawn_blocking(move || {
            let outcome = work();
            drop(turn);
            outcome
        });
        done.await.ok()
    }
}
