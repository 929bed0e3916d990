//! The runtime that drives the connections of one half of the store.

use tidewire_core::store::StoreError;
use tokio::runtime::{Builder, Runtime};

use crate::remote::{RemoteError, RemoteOptions};

/// One tick of a runtime polls the sockets, and the next one runs the tasks of those with input.
const TICKS: usize = 2;

/// A runtime whose tasks run only on the thread that waits for a request. On a shared runtime each request and each answer would wake
/// another thread, which takes longer than a commit if all processors are busy.
#[derive(Debug)]
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn new() -> Result<Self, RemoteError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RemoteError::Refused(error.to_string()))?;
        Ok(Self(Some(runtime)))
    }

    /// Blocks this thread until `work` is done or the timeout of a request has passed.
    pub(super) fn wait<T>(
        &self,
        options: &RemoteOptions,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let runtime = self.0.as_ref().expect("only a drop takes the runtime");
        runtime.block_on(options.limited(work))
    }

    /// Handles the input that has arrived since the last request: the server may have closed a connection.
    pub(super) fn catch_up(&self) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(async {
                for _ in 0..TICKS {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // A plain drop panics if a task of another runtime drops the store.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
