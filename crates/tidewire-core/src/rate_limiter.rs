//! Sessions and shards that wait for a rate: the use of each session, the permits that a shard has fetched for its users, and the owners'
//! buckets.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::Entry;
use crate::identity;
use crate::message::Message;
use crate::principal::Principal;
use crate::rate::{Bucket, ByOperation, Operation, Rate, Spending, cost, is_compiled};
use crate::table::{self, Map};
use crate::text::Name;
use crate::time::Instant;

/// The share of a burst that a shard fetches at once. Fetched permits that no session uses are lost, so it is small.
const LEASE_SHARE: u32 = 8;
/// Below this number of buckets the owner does not look for full ones.
const BUCKETS_KEPT: usize = 1024;

/// Patterns of a session that are compiled in one turn. Compiling costs much more than reading the bytes of a pattern, so a read full of
/// patterns would delay all other sessions for seconds. The remaining patterns wait for the next turns.
const PATTERNS_A_TURN: u32 = 2;

/// Permits of a user that a shard has fetched from the user's owner.
#[derive(Debug, Default)]
struct Lease {
    sessions: usize,
    left: ByOperation<i64>,
    is_asked: ByOperation<bool>,
    /// Sessions whose message waits.
    waiting: Vec<SessionId>,
}

/// Waiting sessions of this shard, and the permits that its users have left.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    waiting: BTreeSet<(Instant, SessionId)>,
    leases: Map<Name, Lease>,
}

impl RateLimiter {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            waiting: BTreeSet::new(),
            leases: table::map(seed),
        }
    }

    /// When [`RateLimiter::deadline_reached`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// The number of sessions that wait.
    pub(crate) fn waiting_count(&self) -> usize {
        let by_user = self.leases.values().map(|lease| lease.waiting.len());
        self.waiting.len() + by_user.sum::<usize>()
    }

    /// Whether the shard may handle an open session's message now. If not, it handles the message later, when permits allow it.
    pub(crate) fn admits<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Message<'_>,
    ) -> bool {
        let rates = &turn.shard.settings.rates;
        let Some((operation, count)) = cost(message) else {
            return true;
        };
        let costs = [(Operation::Message, 1)]
            .into_iter()
            .chain(operation.map(|operation| (operation, count)));
        let Some(session) = turn.sessions.find_mut(id) else {
            return true;
        };
        let user = session
            .principal()
            .map(|principal| principal.user_id.clone());
        let seed = turn.shard.seed;
        let spending = session.state(seed).spending.get_or_insert_default();
        if spending.has_paid {
            return true;
        }
        // Nothing is taken until every check has passed, so a message that has to wait costs nothing, and it can be checked again as if
        // it were new. The connection's own buckets come first: they are here, while a user's permits may have to be fetched from another
        // shard. `has_paid` marks a message that has passed but waits for something else, such as a rule, so that it does not pay again.
        // A message may take more permits than are left, if one is left; the debt delays the next one.
        let now = turn.now.monotonic;
        let ready = costs.clone().filter_map(|(operation, _)| {
            let number = operation as usize;
            rates.connection[number].map(|rate| spending.buckets[number].ready_at(rate, 1))
        });
        let ready = ready.max().filter(|ready| *ready > now);
        if ready.is_some() {
            turn.shard.count(|refused| refused.connection_rate += 1);
        }
        if spending.compiled.0 != Some(now) {
            spending.compiled = (Some(now), 0);
        }
        let is_compiled = is_compiled(message);
        let is_full = is_compiled && spending.compiled.1 >= PATTERNS_A_TURN;
        // The next turn is later.
        let next_turn = is_full.then(|| now + Duration::from_nanos(1));
        if let Some(until) = ready.or(next_turn) {
            spending.is_waiting = true;
            spending.waits_until = Some(until);
            self.waiting.insert((until, id));
            return false;
        }
        let user = user.filter(|user| !identity::is_shared(user));
        if let Some(user) = &user
            && rates.user.iter().any(Option::is_some)
        {
            let lease = self.leases.entry(user.clone()).or_default();
            if !std::mem::replace(&mut spending.is_counted, true) {
                lease.sessions += 1;
            }
            let short = costs
                .clone()
                .map(|(operation, _)| operation as usize)
                .filter(|number| rates.user[*number].is_some() && lease.left[*number] <= 0);
            let short: Vec<usize> = short.collect();
            if !short.is_empty() {
                spending.is_waiting = true;
                if !lease.waiting.contains(&id) {
                    lease.waiting.push(id);
                }
                let asks = short
                    .into_iter()
                    .filter(|number| !std::mem::replace(&mut lease.is_asked[*number], true));
                for number in asks.collect::<Vec<_>>() {
                    let (owner, shard) = (turn.shard.owner(user), turn.shard.address);
                    let ask = Entry::RateAsked {
                        user: user.clone(),
                        operation: Operation::ALL[number],
                        shard,
                    };
                    turn.post(owner, ask);
                }
                turn.shard.count(|refused| refused.user_rate += 1);
                return false;
            }
            for (operation, count) in costs.clone() {
                lease.left[operation as usize] -= i64::from(count);
            }
        }
        for (operation, count) in costs {
            let number = operation as usize;
            if let Some(rate) = rates.connection[number] {
                spending.buckets[number].take(now, rate, count);
            }
        }
        spending.compiled.1 += u32::from(is_compiled);
        spending.has_paid = true;
        spending.is_waiting = false;
        true
    }

    /// Handles permits that a user's owner has sent.
    pub(crate) fn granted<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        user: &Name,
        operation: Operation,
        count: u32,
    ) {
        // Without a lease the user's last session has ended in the meantime.
        let Some(lease) = self.leases.get_mut(user) else {
            return;
        };
        let number = operation as usize;
        lease.left[number] += i64::from(count);
        lease.is_asked[number] = false;
        for session in std::mem::take(&mut lease.waiting) {
            turn.out.resume(session);
        }
    }

    /// Resumes all due sessions with their waiting messages.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while let Some((until, session)) = self.waiting.first().copied()
            && until <= turn.now.monotonic
        {
            self.waiting.pop_first();
            turn.out.resume(session);
        }
    }

    /// Handles that a session has another principal. Messages of the new user are paid by that user.
    pub(crate) fn user_changed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        before: &Principal,
    ) {
        let Some(session) = turn.sessions.find_mut(id) else {
            return;
        };
        let principal = session.principal();
        if principal.is_none_or(|principal| principal.user_id == before.user_id) {
            return;
        }
        let state = session.state.as_mut();
        if let Some(spending) = state.and_then(|with| with.spending.as_mut()) {
            self.session_ended(id, Some(&before.user_id), spending);
            spending.is_counted = false;
        }
    }

    /// Handles the end of a session.
    pub(crate) fn session_ended(
        &mut self,
        id: SessionId,
        user: Option<&Name>,
        spending: &Spending,
    ) {
        if let Some(until) = spending.waits_until {
            self.waiting.remove(&(until, id));
        }
        let Some(user) = user.filter(|_| spending.is_counted) else {
            return;
        };
        if let Some(lease) = self.leases.get_mut(user) {
            lease.waiting.retain(|waiting| *waiting != id);
            lease.sessions -= 1;
            if lease.sessions == 0 {
                self.leases.remove(user);
            }
        }
    }
}

/// A shard that waits for permits of a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    until: Instant,
    /// In the order of their arrival.
    number: u64,
    user: Name,
    operation: Operation,
    shard: Address,
}

/// The buckets of the users that this shard owns.
#[derive(Debug)]
pub(crate) struct RateOwner {
    buckets: Map<Name, ByOperation<Bucket>>,
    asks: BTreeSet<Ask>,
    ask_count: u64,
    /// Buckets above which the full ones are forgotten.
    kept: usize,
}

impl RateOwner {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            buckets: table::map(seed),
            asks: BTreeSet::new(),
            ask_count: 0,
            kept: BUCKETS_KEPT,
        }
    }

    /// When [`RateOwner::deadline_reached`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.asks.first().map(|ask| ask.until)
    }

    /// Handles a shard's request for permits of a user.
    pub(crate) fn asked<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        user: Name,
        operation: Operation,
        shard: Address,
    ) {
        self.ask_count += 1;
        let ask = Ask {
            until: turn.now.monotonic,
            number: self.ask_count,
            user,
            operation,
            shard,
        };
        self.give(turn, ask);
    }

    /// Grants permits to all shards that are due.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while self
            .next_deadline()
            .is_some_and(|due| due <= turn.now.monotonic)
        {
            if let Some(ask) = self.asks.pop_first() {
                self.give(turn, ask);
            }
        }
    }

    /// Forgets the shards of a lost node that wait for permits.
    pub(crate) fn node_lost(&mut self, node: u16) {
        self.asks.retain(|ask| ask.shard.node != node);
    }

    fn give<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, mut ask: Ask) {
        let number = ask.operation as usize;
        let Some(rate) = turn.shard.settings.rates.user[number] else {
            return;
        };
        let now = turn.now.monotonic;
        self.forget_full(now);
        let bucket = &mut self.buckets.entry(ask.user.clone()).or_default()[number];
        let count = lease(rate);
        let ready = bucket.ready_at(rate, count);
        if ready > now {
            ask.until = ready;
            self.asks.insert(ask);
            return;
        }
        bucket.take(now, rate, count);
        let grant = Entry::RateGranted {
            user: ask.user,
            operation: ask.operation,
            count,
        };
        turn.post(ask.shard, grant);
    }

    fn forget_full(&mut self, now: Instant) {
        if self.buckets.len() < self.kept {
            return;
        }
        self.buckets
            .retain(|_, buckets| !buckets.iter().all(|bucket| bucket.is_full(now)));
        self.kept = (2 * self.buckets.len()).max(BUCKETS_KEPT);
    }
}

/// The number of permits that a shard fetches at once.
fn lease(rate: Rate) -> u32 {
    (rate.burst / LEASE_SHARE).max(1)
}
