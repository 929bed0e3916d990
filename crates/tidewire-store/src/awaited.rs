//! A store whose answers are futures, for tasks that read and write records of the server itself.

use std::sync::Arc;

use tidewire_core::store::{Loaded, ScanPage, StoreError, StoreWrite, Written};
use tidewire_core::text::Name;
use tokio::sync::oneshot;

use super::thread::{Scan, StoreClient};

/// The store. Clones share it.
#[derive(Clone)]
pub struct AwaitedStore(StoreClient);

impl std::fmt::Debug for AwaitedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AwaitedStore")
    }
}

impl AwaitedStore {
    /// Wraps the store.
    #[must_use]
    pub fn new(store: StoreClient) -> Self {
        Self(store)
    }

    /// Loads a record. The load sees every commit that was answered before.
    ///
    /// # Errors
    /// The store can't be read now, or the server is stopping.
    pub async fn load(&self, name: Name) -> Result<Loaded, StoreError> {
        let (answer, found) = oneshot::channel();
        self.0.load(
            vec![name],
            Box::new(move |found| {
                let _ = answer.send(found);
            }),
        );
        let mut found = found.await.map_err(|_| stopped())??;
        Ok(found.pop().unwrap_or(Loaded::Missing))
    }

    /// Reads a page of records.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn page(&self, scan: Scan) -> Result<ScanPage, StoreError> {
        let (answer, page) = oneshot::channel();
        self.0.scan(
            scan,
            Box::new(move |page| {
                let _ = answer.send(page);
            }),
        );
        page.await.map_err(|_| stopped())?
    }

    /// Commits writes. Returns one outcome for each, in their order.
    ///
    /// # Errors
    /// No outcome is certain, or the server is stopping.
    pub async fn commit(&self, writes: Arc<[StoreWrite]>) -> Result<Vec<Written>, StoreError> {
        let (answer, done) = oneshot::channel();
        self.0.commit(
            writes,
            Box::new(move |result| {
                let _ = answer.send(result);
            }),
        );
        done.await.map_err(|_| stopped())?
    }
}

fn stopped() -> StoreError {
    StoreError::unavailable("the server is stopping")
}
