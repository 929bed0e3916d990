//! The places that connections occupy, and who takes upgraded connections over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shard::handle::Adopted;

/// Takes connections over: the shards of a node.
pub trait Adopter: Send + Sync + 'static {
    /// Gives each connection to one shard, which owns it from then on. Must not block.
    fn adopt(&self, connections: Vec<Adopted>);
}

/// The connections of a node, counted.
#[derive(Debug)]
pub struct Places {
    open: AtomicUsize,
    open_max: usize,
    /// One permit for each socket that the limit of open files allows.
    pub descriptors: Arc<Semaphore>,
}

impl Places {
    /// Places for `open_max` connections, among `descriptors` sockets.
    #[must_use]
    pub fn new(open_max: usize, descriptors: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            open_max,
            descriptors: Arc::new(Semaphore::new(descriptors)),
        })
    }

    /// Occupies a place, together with the descriptor of the socket; gives the descriptor back if there is none.
    ///
    /// # Errors
    /// `limits.connections_max` is reached.
    pub fn take(
        self: &Arc<Self>,
        descriptor: OwnedSemaphorePermit,
    ) -> Result<Place, OwnedSemaphorePermit> {
        let add = |open: usize| (open < self.open_max).then_some(open + 1);
        match self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        {
            Ok(_) => {
                // The place gives it back itself: every connection has one, and so it is a single pointer.
                descriptor.forget();
                Ok(Place(Arc::clone(self)))
            }
            Err(_) => Err(descriptor),
        }
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}

/// A connection's place and the descriptor of its socket. Whoever closes the socket drops it afterwards.
#[derive(Debug)]
pub struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.descriptors.add_permits(1);
    }
}
