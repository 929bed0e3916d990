//! The work budget: what the messages of a session cost, and which sessions have to wait because of it.
//!
//! Work is counted in bytes that the shard touches for a session: parsed, scanned, spliced and encoded. A session may cost
//! `connection_work_max` in a turn. A session that has cost more owes the rest, and its next message waits until the debt is
//! paid. Each turn pays `turn_work_max` of all debts together, in turn for each user, so a turn stays short whatever the
//! number of sessions that owe. A paid session goes on once it has read most of its answers.
//!
//! Requests that another shard owns cost there. That owner defers the later requests of such a session (`record/deferred.rs`)
//! and reports it to the session's shard, which is the only one that decides when the session goes on.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::address::{Address, SessionId};
use crate::text::Name;

/// What a message costs beside the bytes that it touches: decoding, routing and bookkeeping of the shortest one, a quarter of a
/// microsecond.
pub(crate) const MESSAGE_WORK: usize = 256;
/// What a request for a record costs more than that: its entry at the owner, rules, decision and answer.
pub(crate) const REQUEST_WORK: usize = 768;
/// What a name of a bulk message costs beside its bytes: its rule and an entry in each of a few tables, two microseconds.
pub(crate) const NAME_WORK: usize = 2_048;
/// What a patch of a list costs beside the bytes of record and patch: a step in the tree of their paths.
pub(crate) const PATCH_WORK: usize = 64;
/// What evaluating one rule costs apart from the bytes that it reads.
pub(crate) const RULE_WORK: usize = 512;
/// What a user costs in the answer to who is online: a copy of the name on its shard, and its text.
pub(crate) const USER_WORK: usize = 64;
/// What is paid to a user in one go at least, so that a turn does not visit every session that owes.
const PAYMENT_MIN: u64 = 64 << 10;
/// What is paid in one go to a session that shares with others of its address, at least, for the same reason.
const SESSION_PAYMENT_MIN: u64 = 8 << 10;
/// Sessions whose costs of the turn are known at the same time. One that replaces another is only cheaper for that one.
const COSTS: usize = 256;

/// What a session has cost in a turn.
#[derive(Clone, Copy, Debug)]
struct Cost {
    session: SessionId,
    turn: u64,
    bytes: u64,
}

/// What sessions have cost in this turn: a small table in which each session has one entry, so that counting costs no hash and
/// an idle session no memory.
#[derive(Debug)]
pub(crate) struct TurnCosts {
    turn: u64,
    costs: Box<[Cost]>,
}

impl TurnCosts {
    /// Nothing has cost anything yet.
    pub(crate) fn new() -> Self {
        let session = SessionId {
            address: Address { node: 0, shard: 0 },
            index: u32::MAX,
            generation: u32::MAX,
        };
        let none = Cost {
            session,
            turn: 0,
            bytes: 0,
        };
        Self {
            turn: 1,
            costs: vec![none; COSTS].into(),
        }
    }

    /// Costs count from zero again.
    pub(crate) fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// Adds to what the session has cost in this turn, and gives the sum.
    pub(crate) fn add(&mut self, session: SessionId, bytes: u64) -> u64 {
        let entry = (session.index as usize)
            .wrapping_mul(31)
            .wrapping_add(usize::from(session.address.shard));
        let cost = &mut self.costs[entry % COSTS];
        if cost.turn != self.turn || cost.session != session {
            *cost = Cost {
                session,
                turn: self.turn,
                bytes: 0,
            };
        }
        cost.bytes = cost.bytes.saturating_add(bytes);
        cost.bytes
    }
}

/// Whose debts are paid in turn: those of a user, or, where no name tells users apart, those of an address, whose sessions are paid in
/// turn themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    User(Name),
    Origin(u16),
    Session(SessionId),
}

/// How far a session that owes has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for payments.
    Owing,
    /// Its debt is paid; its answers have to be read.
    Draining,
    /// Owners were asked to go on with its deferred requests, and so many have not reported yet.
    Proceeding(usize),
}

#[derive(Debug)]
struct Debtor {
    share: Share,
    debt: u64,
    stage: Stage,
    /// Owners that defer its requests.
    owners: SmallVec<[Address; 2]>,
    /// Its next message was given and has to wait.
    has_waiting: bool,
}

/// What becomes of a session whose answers were read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: it does not wait for that.
    Nothing,
    /// It owes nothing more; its waiting message may be given again.
    Resume,
    /// These owners may go on with its deferred requests.
    Proceed(SmallVec<[Address; 2]>),
}

/// The sessions of this shard that owe work.
#[derive(Debug, Default)]
pub(crate) struct Debtors {
    sessions: BTreeMap<SessionId, Debtor>,
    /// Sessions that wait for payments, by share, in the order in which they began to.
    owing: BTreeMap<Share, VecDeque<SessionId>>,
    /// The shares of `owing`, in the order of their next payments.
    ring: VecDeque<Share>,
    /// How often a session began to owe.
    count: u64,
}

impl Debtors {
    /// Sessions that owe now.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// How often a session began to owe. Only grows.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the next turn has something to pay.
    pub(crate) fn has_owing(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether the session's next message has to wait; if so it is remembered that one does.
    pub(crate) fn holds_back(&mut self, session: SessionId) -> bool {
        match self.sessions.get_mut(&session) {
            Some(debtor) => {
                debtor.has_waiting = true;
                true
            }
            None => false,
        }
    }

    /// Adds to what the session owes.
    pub(crate) fn owe(&mut self, session: SessionId, share: impl FnOnce() -> Share, work: u64) {
        if let Some(debtor) = self.sessions.get_mut(&session) {
            debtor.debt = debtor.debt.saturating_add(work);
            return;
        }
        let share = share();
        self.count += 1;
        let debtor = Debtor {
            share: share.clone(),
            debt: work,
            stage: Stage::Owing,
            owners: SmallVec::new(),
            has_waiting: false,
        };
        self.sessions.insert(session, debtor);
        self.line_up(session, share);
    }

    /// Whether the session owes or waits.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// An owner defers requests of the session.
    pub(crate) fn deferred_by(&mut self, session: SessionId, owner: Address) {
        if let Some(debtor) = self.sessions.get_mut(&session)
            && !debtor.owners.contains(&owner)
        {
            debtor.owners.push(owner);
        }
    }

    /// An owner has gone on with the session's requests for `work`; `is_done` says that none is left. Whether the session's answers
    /// have to be read now, as after [`Debtors::pay`].
    pub(crate) fn proceeded(
        &mut self,
        session: SessionId,
        owner: Address,
        work: u64,
        is_done: bool,
    ) -> bool {
        let Some(debtor) = self.sessions.get_mut(&session) else {
            return false;
        };
        debtor.debt = debtor.debt.saturating_add(work);
        if is_done {
            debtor.owners.retain(|known| *known != owner);
        }
        let Stage::Proceeding(missing) = debtor.stage else {
            return false;
        };
        if missing > 1 {
            debtor.stage = Stage::Proceeding(missing - 1);
            return false;
        }
        if debtor.debt == 0 {
            debtor.stage = Stage::Draining;
            return true;
        }
        debtor.stage = Stage::Owing;
        let share = debtor.share.clone();
        self.line_up(session, share);
        false
    }

    fn line_up(&mut self, session: SessionId, share: Share) {
        let line = self.owing.entry(share.clone()).or_default();
        if line.is_empty() {
            self.ring.push_back(share);
        }
        line.push_back(session);
    }

    /// Pays `work` of the debts, in turn for each share, and calls `paid` for sessions that owe nothing more.
    pub(crate) fn pay(&mut self, work: u64, mut paid: impl FnMut(SessionId)) {
        let mut left = work;
        while left > 0
            && let Some(share) = self.ring.pop_front()
        {
            let part = (left / (self.ring.len() as u64 + 1))
                .max(PAYMENT_MIN)
                .min(left);
            let mut purse = part;
            let Some(line) = self.owing.get_mut(&share) else {
                continue;
            };
            // One session of a user may wait for another; those of an address may be of different people.
            let payment_max = match share {
                Share::Origin(_) => (part / line.len().max(1) as u64).max(SESSION_PAYMENT_MIN),
                Share::User(_) | Share::Session(_) => part,
            };
            while purse > 0
                && let Some(session) = line.front().copied()
            {
                let Some(debtor) = self.sessions.get_mut(&session) else {
                    line.pop_front();
                    continue;
                };
                let payment = debtor.debt.min(purse).min(payment_max);
                debtor.debt -= payment;
                purse -= payment;
                if debtor.debt > 0 {
                    // A session of a user has taken the whole purse.
                    if matches!(share, Share::Origin(_)) {
                        line.rotate_left(1);
                    }
                    continue;
                }
                debtor.stage = Stage::Draining;
                line.pop_front();
                paid(session);
            }
            left -= part - purse;
            if line.is_empty() {
                self.owing.remove(&share);
            } else {
                self.ring.push_back(share);
            }
        }
    }

    /// The session has read most of its answers.
    pub(crate) fn drained(&mut self, session: SessionId) -> Next {
        let Some(debtor) = self.sessions.get_mut(&session) else {
            return Next::Nothing;
        };
        if debtor.stage != Stage::Draining {
            return Next::Nothing;
        }
        if debtor.debt > 0 {
            // It has cost more meanwhile: answers of requests that were on their way.
            debtor.stage = Stage::Owing;
            let share = debtor.share.clone();
            self.line_up(session, share);
            return Next::Nothing;
        }
        if !debtor.owners.is_empty() {
            debtor.stage = Stage::Proceeding(debtor.owners.len());
            return Next::Proceed(debtor.owners.clone());
        }
        let has_waiting = debtor.has_waiting;
        self.sessions.remove(&session);
        match has_waiting {
            true => Next::Resume,
            false => Next::Nothing,
        }
    }

    /// The session has ended; gives the owners that defer requests of it. Its place in a line stays until a payment finds it: to
    /// search for it would cost as much as there are sessions that owe.
    pub(crate) fn ended(&mut self, session: SessionId) -> SmallVec<[Address; 2]> {
        let debtor = self.sessions.remove(&session);
        debtor.map_or_else(SmallVec::new, |debtor| debtor.owners)
    }
}
