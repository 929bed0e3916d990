//! Where the requests of shards go: the store's threads and the auth chain.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_auth::waiting::WaitingLogins;
use tidewire_auth::{Answer, AuthChain};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, AuthRequest, StoreRequest};
use tidewire_shard::handle::{Asked, AuthAnswer, Peer, PendingLogin, Requests, ShardHandle};
use tokio::runtime::Handle;

use super::stores::StoreClients;

/// The way from the shards of a node to its stores and auth chain, and back.
pub(super) struct NodeRequests {
    stores: StoreClients,
    auth: Arc<AuthChain>,
    waiting: Arc<WaitingLogins>,
    runtime: Handle,
    shards: Arc<[ShardHandle]>,
}

impl NodeRequests {
    pub(super) fn new(
        stores: StoreClients,
        auth: Arc<AuthChain>,
        waiting: Arc<WaitingLogins>,
        runtime: Handle,
        shards: Arc<[ShardHandle]>,
    ) -> Self {
        Self {
            stores,
            auth,
            waiting,
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
    /// the rest. Else it goes on in a task, if there is a place among the logins that wait; a session has one login under way
    /// at most, and gives it up when it ends.
    fn authenticate(&self, request: AuthRequest, peer: Arc<Peer>) -> Asked {
        let auth = Arc::clone(&self.auth);
        let AuthRequest { session, data } = request;
        let mut judging = {
            let (data, peer) = (data.clone(), Arc::clone(&peer));
            Box::pin(async move {
                let Answer {
                    outcome,
                    token,
                    is_held_off,
                } = auth.log_in(&data, peer).await;
                AuthAnswer {
                    completion: AuthCompletion { session, outcome },
                    token,
                    is_held_off,
                }
            })
        };
        // What it begins to wait for belongs to the runtime.
        let _entered = self.runtime.enter();
        if let Poll::Ready(answer) = judging
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Asked::Answered(answer);
        }
        let Some(place) = self.waiting.place(&data, &peer) else {
            let outcome = AuthOutcome::Unavailable;
            return Asked::Answered(AuthCompletion { session, outcome }.into());
        };
        let shards = Arc::clone(&self.shards);
        let task = self.runtime.spawn(async move {
            let answer = judging.await;
            drop(place);
            if let Some(shard) = shards.get(usize::from(session.address.shard)) {
                shard.complete_auth(answer);
            }
        });
        Asked::Waits(PendingLogin::new(task.abort_handle()))
    }
}
