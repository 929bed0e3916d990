//! The timers of the sessions of a shard.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::SessionId;
use crate::backend::Backends;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::expiry::Expiries;
use crate::login::Decided;
use crate::message::{Connection, Message};
use crate::reauthorize::Reauthorizer;
use crate::session::heartbeat::HeartbeatStep;
use crate::session::{LocalSessionId, Session};
use crate::settings::Liveness;
use crate::sweep::Sweep;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// Heartbeats of one call of the engine, so that the pings of many sessions that are due together are sent in slices.
const HEARTBEATS_MAX: usize = 2_000;

/// The times at which the shard has to act on a session that sends nothing.
#[derive(Debug)]
pub(super) struct SessionTimers {
    /// Finds silent sessions whose peers ping.
    pub(super) sweep: Sweep,
    pub(super) logins: DeadlineQueue<LocalSessionId>,
    /// Sessions whose login was refused, with the number of refusals, by the end of their time to log in again.
    pub(super) retries: DeadlineQueue<(LocalSessionId, u32)>,
    /// Sessions whose next answer is delayed, by the end of the delay. The delays differ, so a queue does not suffice.
    pub(super) delays: BTreeSet<(Instant, SessionId)>,
    pub(super) expiries: Expiries,
    pub(super) detached: DetachedSessions,
}

/// The deadlines of the sessions without a transport. Sessions with one cost nothing here.
#[derive(Debug, Default)]
pub(super) struct DetachedSessions {
    deadlines: BTreeSet<(Instant, SessionId)>,
    by_session: BTreeMap<SessionId, Instant>,
}

impl DetachedSessions {
    /// When the first of them has to be attached.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Adds a session that has to be attached until then.
    pub(super) fn add(&mut self, id: SessionId, until: Instant) {
        self.remove(id);
        self.by_session.insert(id, until);
        self.deadlines.insert((until, id));
    }

    /// Removes a session that was attached or has ended.
    pub(super) fn remove(&mut self, id: SessionId) {
        if let Some(until) = self.by_session.remove(&id) {
            self.deadlines.remove(&(until, id));
        }
    }

    /// Takes out a session whose deadline has passed.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<SessionId> {
        let (until, id) = *self.deadlines.first()?;
        if until > now {
            return None;
        }
        self.remove(id);
        Some(id)
    }
}

impl SessionTimers {
    pub(super) fn new() -> Self {
        Self {
            sweep: Sweep::default(),
            logins: DeadlineQueue::new(),
            retries: DeadlineQueue::new(),
            delays: BTreeSet::new(),
            expiries: Expiries::default(),
            detached: DetachedSessions::default(),
        }
    }

    /// Closes the sessions that were silent for too long, and pings those whose protocol wants that.
    pub(super) fn check_liveness<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let sweep = &mut self.sweep;
        if turn.sessions.count() == 0 {
            sweep.end();
        }
        let settings = &turn.shard.settings;
        let (now, interval) = (turn.now.monotonic, settings.heartbeat_interval);
        let silent_max = interval + settings.heartbeat_timeout;
        let (shard, sessions) = (turn.shard, &turn.sessions);
        let (mut pinged, mut silent) = (Vec::new(), Vec::new());
        sweep.advance(now, interval, sessions.table_len(), |index| {
            // A session without a transport has a deadline instead, and one that the server pings a heartbeat.
            let session = sessions.at(index as u32);
            let Some(session) = session.filter(|session| session.is_swept()) else {
                return;
            };
            let (quiet, liveness) = (session.heard.elapsed(now), shard.liveness(session.format));
            // The answer to the ping before came a moment after the last visit, so its silence is less than an interval.
            let is_quiet = quiet > interval / 2;
            if liveness == Liveness::Unchecked {
                return;
            }
            if quiet > silent_max {
                silent.push(session.id);
            } else if liveness.has_pings() && is_quiet && session.principal().is_some() {
                pinged.push(session.id);
            }
        });
        for _ in 0..HEARTBEATS_MAX {
            match turn.sessions.step_heartbeat(now) {
                Some(HeartbeatStep::Ping(id)) => pinged.push(id),
                Some(HeartbeatStep::Silent(id)) => silent.push(id),
                None => break,
            }
        }
        for id in silent {
            close_silent(turn, id);
        }
        turn.send_to_all(&pinged, &Message::Connection(Connection::Ping));
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

/// Closes a silent session. If the shard does not receive anything from it, because its next message has to wait, it may have answered.
fn close_silent<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    if !session.is_throttled() {
        Backends::note_silent(session, true);
        turn.out.close(id, CloseReason::Silent);
    }
}
