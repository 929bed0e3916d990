//! The timers of the sessions of a shard.

use std::collections::BTreeSet;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::expiry::Expiries;
use crate::login::Decided;
use crate::reauthorize::Reauthorizer;
use crate::session::{LocalSessionId, Session};
use crate::sweep::Sweep;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// The times at which the shard has to act on a session that sends nothing.
#[derive(Debug)]
pub(super) struct SessionTimers {
    pub(super) heartbeats: Sweep,
    pub(super) logins: DeadlineQueue<LocalSessionId>,
    /// Sessions whose login was refused, with the number of refusals, by the end of their time to log in again.
    pub(super) retries: DeadlineQueue<(LocalSessionId, u32)>,
    /// Sessions whose next answer is delayed, by the end of the delay. The delays differ, so a queue does not suffice.
    pub(super) delays: BTreeSet<(Instant, SessionId)>,
    pub(super) expiries: Expiries,
}

impl SessionTimers {
    pub(super) fn new() -> Self {
        Self {
            heartbeats: Sweep::default(),
            logins: DeadlineQueue::new(),
            retries: DeadlineQueue::new(),
            delays: BTreeSet::new(),
            expiries: Expiries::default(),
        }
    }

    /// Handles the decision of the auth chain: the session's answer is delayed, or it may be open now, or it has another principal.
    pub(super) fn logged_in<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        reauthorizer: &mut Reauthorizer,
        id: SessionId,
        decided: Decided,
    ) {
        let Some(principal) = turn.sessions.find(id).and_then(Session::principal) else {
            match decided {
                Decided::Delayed(until) => {
                    self.delays.insert((until, id));
                }
                Decided::Refused(refused) => self.begin_retry(turn, id, refused),
                Decided::Done | Decided::Renewed(_) | Decided::Revoked => {}
            }
            return;
        };
        if let Decided::Renewed(before) = decided {
            if let Some(expires_at) = before.expires_at() {
                self.expiries.remove(expires_at, LocalSessionId::of(id));
            }
            if !before.is_alike(principal) {
                reauthorizer.renew(id);
            }
        }
        if let Some(expires_at) = principal.expires_at() {
            self.expiries
                .add(turn.now, expires_at, LocalSessionId::of(id));
        }
    }

    /// Starts the time to log in again.
    fn begin_retry<E: Effects>(&mut self, turn: &TurnContext<'_, E>, id: SessionId, refused: u32) {
        let Some(timeout) = turn.shard.settings.auth_retry_timeout else {
            return;
        };
        let (sessions, address) = (&turn.sessions, turn.shard.address);
        self.retries.drop_front_while(|(local_id, refused)| {
            let waiting = sessions.find(local_id.session(address));
            waiting.is_none_or(|session| {
                session.principal().is_some() || u32::from(session.refused) != *refused
            })
        });
        let deadline = turn.now.monotonic + timeout;
        self.retries
            .push(deadline, (LocalSessionId::of(id), refused));
    }
}
