//! Where the requests of shards go: the store's threads and the auth chain.

use std::sync::Arc;

use tidewire_core::effect::{AuthCompletion, AuthRequest, StoreRequest};
use tokio::runtime::Handle;

use crate::auth::AuthChain;
use crate::shard::handle::{Peer, Requests, ShardHandle};
use crate::store::thread::StoreClient;

/// The way from the shards of a node to its store and auth chain, and back.
pub(super) struct NodeRequests {
    store: StoreClient,
    auth: Arc<AuthChain>,
    runtime: Handle,
    shards: Arc<[ShardHandle]>,
}

impl NodeRequests {
    pub(super) fn new(
        store: StoreClient,
        auth: Arc<AuthChain>,
        runtime: Handle,
        shards: Arc<[ShardHandle]>,
    ) -> Self {
        Self {
            store,
            auth,
            runtime,
            shards,
        }
    }
}

impl Requests for NodeRequests {
    fn store(&self, shard: u16, request: StoreRequest) {
        self.store.request(shard, request);
    }

    /// A session has one login under way at most, so these tasks are as many as connections.
    fn authenticate(&self, request: AuthRequest, peer: Arc<Peer>) {
        let auth = Arc::clone(&self.auth);
        let shards = Arc::clone(&self.shards);
        self.runtime.spawn(async move {
            let outcome = auth.authenticate(&request.data, peer).await;
            let session = request.session;
            if let Some(shard) = shards.get(usize::from(session.home.shard)) {
                shard.complete_auth(AuthCompletion { session, outcome });
            }
        });
    }
}
