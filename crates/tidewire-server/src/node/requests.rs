//! Where the requests of shards go: the store's threads and the auth chain.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_core::effect::{AuthCompletion, AuthRequest, StoreRequest};
use tokio::runtime::Handle;

use super::stores::StoreClients;
use crate::auth::AuthChain;
use crate::shard::handle::{Peer, Requests, ShardHandle};

/// The way from the shards of a node to its stores and auth chain, and back.
pub(super) struct NodeRequests {
    stores: StoreClients,
    auth: Arc<AuthChain>,
    runtime: Handle,
    shards: Arc<[ShardHandle]>,
}

impl NodeRequests {
    pub(super) fn new(
        stores: StoreClients,
        auth: Arc<AuthChain>,
        runtime: Handle,
        shards: Arc<[ShardHandle]>,
    ) -> Self {
        Self {
            stores,
            auth,
            runtime,
            shards,
        }
    }
}

impl Requests for NodeRequests {
    fn store(&self, shard: u16, request: StoreRequest) {
        self.stores.request(shard, request);
    }

    /// A chain that need not wait for anything answers here: two changes of threads would cost a login more than all
    /// the rest. Else it goes on in a task; a session has one login under way at most, so these are as many as connections.
    fn authenticate(&self, request: AuthRequest, peer: Arc<Peer>) -> Option<AuthCompletion> {
        let auth = Arc::clone(&self.auth);
        let session = request.session;
        let mut judging = Box::pin(async move {
            let outcome = auth.authenticate(&request.data, peer).await;
            AuthCompletion { session, outcome }
        });
        // What it begins to wait for belongs to the runtime.
        let _entered = self.runtime.enter();
        if let Poll::Ready(completion) = judging
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Some(completion);
        }
        let shards = Arc::clone(&self.shards);
        self.runtime.spawn(async move {
            let completion = judging.await;
            if let Some(shard) = shards.get(usize::from(session.home.shard)) {
                shard.complete_auth(completion);
            }
        });
        None
    }
}
