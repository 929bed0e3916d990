//! The task's end of a session without a socket (`carrier.rs`).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::carrier::{CarriedMail, Carrier, End, Stay};
use super::handle::{Mail, ShardHandle};
use super::peer::PeerDetails;
use super::reply::Replies;
use super::request::OwnedRequest;
use crate::outlet::Outlet;
use crate::share::Standing;

impl ShardHandle {
    /// Opens a session that is carried by the caller instead of a socket, and sends its first requests.
    #[must_use]
    pub fn carry(
        &self,
        peer: Arc<PeerDetails>,
        stay: Stay,
        requests: Vec<OwnedRequest>,
    ) -> CarriedSession {
        self.carry_for(peer, None, stay, requests)
    }

    /// The same for a request that holds shared places, which count as its user's after the login.
    #[must_use]
    pub fn carry_for(
        &self,
        peer: Arc<PeerDetails>,
        standing: Option<Arc<Standing>>,
        stay: Stay,
        requests: Vec<OwnedRequest>,
    ) -> CarriedSession {
        let queued_bytes = Arc::clone(&self.0.carried_bytes);
        CarriedSession::open(self.clone(), queued_bytes, (peer, standing), stay, requests)
    }
}

/// The task's end of a session. Dropping it ends the session.
#[derive(Debug)]
pub struct CarriedSession {
    shard: ShardHandle,
    carrier: Arc<Carrier>,
}

impl CarriedSession {
    /// Opens a session at `shard` and sends its first requests.
    fn open(
        shard: ShardHandle,
        queued_bytes: Arc<AtomicUsize>,
        (peer, standing): (Arc<PeerDetails>, Option<Arc<Standing>>),
        stay: Stay,
        requests: Vec<OwnedRequest>,
    ) -> Self {
        let carrier = Arc::new(Carrier::new(queued_bytes));
        let session = Self { shard, carrier };
        session.mail(|carrier| CarriedMail::Open {
            carrier,
            peer,
            standing,
            stay,
            requests,
        });
        session
    }

    /// Sends more requests to the shard.
    pub fn send(&self, requests: Vec<OwnedRequest>) {
        self.mail(|carrier| CarriedMail::Requests { carrier, requests });
    }

    /// The next replies, in order. Cancellation safe. The call means that the caller has finished with the replies of the call before: it
    /// has handed them on, and holds back none of their bytes.
    ///
    /// # Errors
    /// The shard has ended the session, and everything before the end was received.
    pub async fn receive(&mut self) -> Result<Replies, End> {
        if self.carrier.hand_on() {
            self.mail(|_| CarriedMail::Taken);
        }
        loop {
            // `Notify` keeps a permit for a late reader, so a notice between the check and the wait is not missed.
            if let Some(popped) = self.carrier.pop() {
                if popped.has_drained {
                    self.mail(CarriedMail::Drained);
                }
                return popped.chunk;
            }
            self.carrier.filled.notified().await;
        }
    }

    /// Data that the webhook gives to clients that log in over HTTP, as JSON, once the login was answered.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.carrier.token.get().map(String::as_str)
    }

    /// Declares that the task hands on received chunks through `outlet` after this call. The shard shuts the outlet if they must not
    /// leave.
    pub fn hand_on_to(&self, outlet: Arc<Outlet>) {
        // A session is handed on through one outlet.
        let _ = self.carrier.outlet.set(outlet);
    }

    fn mail(&self, mail: impl FnOnce(Arc<Carrier>) -> CarriedMail) {
        let mail = mail(Arc::clone(&self.carrier));
        self.shard.0.mailbox.push(Mail::Carried(mail));
    }
}

impl Drop for CarriedSession {
    fn drop(&mut self) {
        self.mail(CarriedMail::Gone);
    }
}
