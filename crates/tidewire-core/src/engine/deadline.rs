//! Deadlines: the time of the next one, and the due work.

use super::Shard;
use crate::effect::{CloseReason, Effects};
use crate::login;
use crate::time::{Instant, Now};

impl Shard {
    /// When [`Input::DeadlineReached`](crate::effect::Input::DeadlineReached) is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.records.next_deadline(),
            self.listens.next_deadline(),
            self.rpcs.next_deadline(),
            self.histories.next_deadline(),
            self.queries.next_deadline(),
            self.backends.next_deadline(),
            self.presences.next_deadline(),
            self.scopes.next_deadline(),
            self.rates.next_deadline(),
            self.user_rates.next_deadline(),
            self.timers.sweep.next(),
            self.state.sessions.next_heartbeat(),
            self.timers.logins.next(),
            self.timers.retries.next(),
            self.timers.delays.first().map(|(until, _)| *until),
            self.timers.expiries.next(),
            self.timers.detached.next(),
            self.reauthorizer.next(),
            self.state.interest.next(),
        ];
        // As numbers, because the engine computes this several times a turn, and comparing options takes four times as long.
        let nanos = deadlines.map(|deadline| deadline.map_or(u64::MAX, |deadline| deadline.0));
        let first = nanos.into_iter().fold(u64::MAX, u64::min);
        (first < u64::MAX).then_some(Instant(first))
    }

    pub(super) fn deadline_reached<E: Effects>(&mut self, now: Now, out: &mut E) {
        let mut turn = self.state.turn(now, out);
        self.reauthorizer.advance(&mut turn);
        turn.continue_census();
        self.records.deadline_reached(&mut turn);
        self.listens.deadline_reached(&mut turn);
        self.rpcs.deadline_reached(&mut turn);
        self.histories.deadline_reached(&turn);
        self.queries.deadline_reached(&mut turn);
        self.backends.deadline_reached(&mut turn);
        self.presences.deadline_reached(&mut turn);
        self.scopes.deadline_reached(now.monotonic);
        self.rates.deadline_reached(&mut turn);
        self.user_rates.deadline_reached(&mut turn);
        while let Some((until, session)) = self.timers.delays.first().copied()
            && until <= now.monotonic
        {
            self.timers.delays.pop_first();
            let decided = login::release(&mut turn, session);
            self.timers
                .logged_in(&turn, &mut self.reauthorizer, session, decided);
        }
        let address = turn.shard.address;
        while let Some(local_id) = self.timers.logins.pop_due(now.monotonic) {
            if login::timed_out(&mut turn, local_id.session(address), 0)
                && let Some(timeout) = turn.shard.settings.login_timeout
            {
                self.timers.logins.push(now.monotonic + timeout, local_id);
            }
        }
        while let Some((local_id, refused)) = self.timers.retries.pop_due(now.monotonic) {
            if login::timed_out(&mut turn, local_id.session(address), refused)
                && let Some(timeout) = turn.shard.settings.auth_retry_timeout
            {
                let deadline = now.monotonic + timeout;
                self.timers.retries.push(deadline, (local_id, refused));
            }
        }
        self.timers.check_liveness(&mut turn);
        while let Some(session) = self.timers.detached.pop_due(now.monotonic) {
            turn.out.close(session, CloseReason::DetachedTooLong);
        }
        while let Some(local_id) = self.timers.expiries.pop_due(now) {
            self.state.context.expired += 1;
            self.end_session(now, local_id.session(address), CloseReason::Expired, out);
        }
    }
}
