//! Routes the requests of shards to the threads of the stores and to the auth chain, and the answers back.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_auth::waiting::WaitingLogins;
use tidewire_auth::{AuthChain, LoginResult};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, AuthRequest, StoreRequest};
use tidewire_shard::handle::{AuthAnswer, AuthReply, PendingLogin, Requests, ShardHandle};
use tidewire_shard::peer::PeerDetails;
use tidewire_store::thread::{CompletionSender, StoreClient};
use tokio::runtime::Handle;

/// Returns the answers of stores to the shards that made the requests.
pub(super) fn completion_sender(shards: Arc<[ShardHandle]>) -> CompletionSender {
    Arc::new(move |shard, completion| shards[usize::from(shard)].complete(completion))
}

/// Carries requests from the shards of a node to its stores and auth chain, and the answers back.
pub(super) struct NodeRequests {
    /// By number.
    stores: Vec<StoreClient>,
    auth: Arc<AuthChain>,
    waiting: Arc<WaitingLogins>,
    runtime: Handle,
    shards: Arc<[ShardHandle]>,
}

impl NodeRequests {
    pub(super) fn new(
        stores: Vec<StoreClient>,
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
        let store = match &request {
            StoreRequest::Load { store, .. }
            | StoreRequest::Scan { store, .. }
            | StoreRequest::Find { store, .. }
            | StoreRequest::Index { store, .. }
            | StoreRequest::Commit { store, .. } => *store,
        };
        self.stores[store.index()].request(shard, request);
    }

    /// A chain that need not wait answers here: two thread switches would cost a login more than the rest of its work.
    /// Otherwise the login continues in a task, if the limit of waiting logins permits one more. A session has at most one login
    /// in progress and cancels it when the session ends.
    fn authenticate(&self, request: AuthRequest, peer: Arc<PeerDetails>) -> AuthReply {
        let auth = Arc::clone(&self.auth);
        let AuthRequest { session, data } = request;
        let mut login = {
            let (data, peer) = (data.clone(), Arc::clone(&peer));
            Box::pin(async move {
                let LoginResult {
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
        // The first poll may register sockets and timers with the runtime.
        let _entered = self.runtime.enter();
        if let Poll::Ready(answer) = login.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return AuthReply::Answered(answer);
        }
        let Some(permit) = self.waiting.take_permit(&data, &peer) else {
            let outcome = AuthOutcome::Unavailable;
            return AuthReply::Answered(AuthCompletion { session, outcome }.into());
        };
        let shards = Arc::clone(&self.shards);
        let task = self.runtime.spawn(async move {
            let answer = login.await;
            drop(permit);
            if let Some(shard) = shards.get(usize::from(session.address.shard)) {
                shard.complete_auth(answer);
            }
        });
        AuthReply::Waits(PendingLogin::new(task.abort_handle()))
    }
}
