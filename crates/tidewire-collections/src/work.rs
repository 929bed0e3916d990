//! The work budget: the cost of a session's messages, and the sessions that have to wait because of it.
//!
//! Work is counted in the bytes that the shard touches for a session: bytes parsed, scanned, spliced and encoded. A session may cost
//! `connection_work_max` in a turn, or `turn_work_max` while no other session costs anything or owes: its messages then share the sends
//! of a longer turn. If it has cost more, it owes the rest, and its next message waits until the debt is paid. Each turn pays `turn_work_max` of all debts together and takes the users in turn, so the length of a turn does not depend on the number of
//! sessions that owe. When its debt is paid, a session continues as soon as it has read most of its answers.
//!
//! Requests for records of another shard cost work at that shard. The owner defers the later requests of such a session
//! (`record/deferred.rs`) and reports the work to the session's shard. Only the session's shard decides when the session continues.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use tidewire_message::address::{Address, SessionId};
use tidewire_message::text::Name;

/// Cost of a message in addition to the bytes that it touches: decoding, routing and bookkeeping of the shortest message, a quarter of a
/// microsecond.
pub const MESSAGE_WORK: usize = 256;
/// Further cost of a request for a record: its entry at the owner, rules, decision and answer.
pub const REQUEST_WORK: usize = 768;
/// Cost of a name of a bulk message in addition to its bytes: its rule and an entry in each of a few tables, two microseconds.
pub const NAME_WORK: usize = 2_048;
/// Cost of a patch of a list in addition to the bytes of record and patch: a step in the tree of their paths.
pub const PATCH_WORK: usize = 64;
/// Cost of evaluating one rule in addition to the bytes that it reads.
pub const RULE_WORK: usize = 512;
/// Cost of a user in the answer to a presence query: a copy of the name on its shard, and its text.
pub const USER_WORK: usize = 64;
/// Cost of compiling a listen pattern in addition to its bytes: the parser and the compiler take about 64 microseconds.
pub const COMPILE_WORK: usize = 64 << 10;
/// Cost of each byte of a compiled pattern.
pub const COMPILE_WORK_PER_BYTE: usize = 16;
/// Further cost of a pattern that the server refuses: the compiler stops at the limit, after a millisecond.
pub const REFUSED_COMPILE_WORK: usize = 1 << 20;
/// Smallest payment to a user, so that a turn does not visit every session that owes.
const PAYMENT_MIN: u64 = 64 << 10;
/// Smallest payment to a session that shares payments with other sessions of its address, for the same reason.
const SESSION_PAYMENT_MIN: u64 = 8 << 10;
/// Sessions whose costs of the turn are known at the same time. If two sessions use the same entry, the later one replaces the earlier
/// one, whose costs then count from zero again.
const COSTS: usize = 256;

/// The cost of a session in one turn.
#[derive(Clone, Copy, Debug)]
struct Cost {
    session: SessionId,
    turn: u64,
    bytes: u64,
}

/// The costs of sessions in this turn: a small table in which each session has one fixed entry, so that counting needs no hash and an
/// idle session needs no memory.
#[derive(Debug)]
pub struct TurnCosts {
    turn: u64,
    /// The cost of all sessions in this turn.
    total: u64,
    costs: Box<[Cost]>,
}

impl TurnCosts {
    /// Creates the table without costs.
    pub fn new() -> Self {
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
            total: 0,
            costs: vec![none; COSTS].into(),
        }
    }

    /// Starts a turn: all costs count from zero again.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        self.total = 0;
    }

    /// Whether no other session has cost anything in this turn than the one whose cost is `sum`.
    pub fn is_alone(&self, sum: u64) -> bool {
        self.total == sum
    }

    /// Adds to the cost of the session in this turn and returns the sum.
    pub fn add(&mut self, session: SessionId, bytes: u64) -> u64 {
        let Address { node, shard } = session.address;
        let entry = (session.index as usize)
            .wrapping_mul(31)
            .wrapping_add(usize::from(node).wrapping_mul(17))
            .wrapping_add(usize::from(shard));
        let cost = &mut self.costs[entry % COSTS];
        if cost.turn != self.turn || cost.session != session {
            *cost = Cost {
                session,
                turn: self.turn,
                bytes: 0,
            };
        }
        self.total = self.total.saturating_add(bytes);
        cost.bytes = cost.bytes.saturating_add(bytes);
        cost.bytes
    }
}

/// The unit that takes its turn in payments: a user, or an address if user names do not distinguish users. The sessions of an address are
/// paid in turn within its share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// A user.
    User(Name),
    /// All sessions from an address.
    Origin(u16),
    /// A session whose address is unknown.
    Session(SessionId),
}

/// The progress of a session that owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The session waits for payments.
    Owing,
    /// The debt is paid. The session has to read its answers.
    Draining,
    /// The owners may continue with the session's deferred requests. This many owners have not reported yet.
    Proceeding(usize),
}

#[derive(Debug)]
struct Debtor {
    share: Share,
    debt: u64,
    stage: Stage,
    /// Owners that defer requests of the session.
    owners: SmallVec<[Address; 2]>,
    /// Whether the next message of the session was received and has to wait.
    has_waiting: bool,
}

/// The next step of a session that has read its answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the session was not waiting for this.
    Nothing,
    /// The session has no debt left. Its waiting message may be handled now.
    Resume,
    /// These owners may continue with the session's deferred requests.
    Proceed(SmallVec<[Address; 2]>),
}

/// The sessions of this shard that owe work.
#[derive(Debug, Default)]
pub struct Debtors {
    sessions: BTreeMap<SessionId, Debtor>,
    /// Sessions that wait for payments, by share, in the order in which they started to wait.
    owing: BTreeMap<Share, VecDeque<SessionId>>,
    /// The shares of `owing`, in the order of their next payments.
    ring: VecDeque<Share>,
    /// The number of times that a session began to owe.
    count: u64,
}

impl Debtors {
    /// The number of sessions that owe.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The number of times that a session began to owe. Only grows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the next turn has a debt to pay.
    pub fn has_owing(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether the session's next message has to wait. If so, the session is marked as having a waiting message.
    pub fn holds_back(&mut self, session: SessionId) -> bool {
        match self.sessions.get_mut(&session) {
            Some(debtor) => {
                debtor.has_waiting = true;
                true
            }
            None => false,
        }
    }

    /// Adds to the debt of the session.
    pub fn owe(&mut self, session: SessionId, share: impl FnOnce() -> Share, work: u64) {
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

    /// Whether the session owes work or waits.
    pub fn has(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Notes that an owner defers requests of the session.
    pub fn deferred_by(&mut self, session: SessionId, owner: Address) {
        if let Some(debtor) = self.sessions.get_mut(&session)
            && !debtor.owners.contains(&owner)
        {
            debtor.owners.push(owner);
        }
    }

    /// Notes that an owner has continued with the session's requests at a cost of `work`. `is_done` means that the owner has none of them
    /// left. Returns whether the session has to read its answers now, as after [`Debtors::pay`].
    pub fn proceeded(
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

    /// Pays `work` of the debts, in turn for each share, and calls `paid` for each session whose debt is paid.
    pub fn pay(&mut self, work: u64, mut paid: impl FnMut(SessionId)) {
        let mut left = work;
        while left > 0
            && let Some(share) = self.ring.pop_front()
        {
            // Each share gets an equal part of the remaining work. A share with less debt than its part leaves the rest to the later
            // shares, and a share that still owes goes to the end of the ring, so a share with many sessions gets no more than a share
            // with one. The minimum bounds the number of shares that a turn visits. The loop ends because each round spends work or
            // removes a session or share.
            let part = (left / (self.ring.len() as u64 + 1))
                .max(PAYMENT_MIN)
                .min(left);
            let mut purse = part;
            let Some(line) = self.owing.get_mut(&share) else {
                continue;
            };
            // A session of a user may delay the user's other sessions. The sessions of an address may belong to different people.
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
                    // A session of a user has used all of its share's payment.
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

    /// Handles that the session has read most of its answers.
    pub fn drained(&mut self, session: SessionId) -> Next {
        let Some(debtor) = self.sessions.get_mut(&session) else {
            return Next::Nothing;
        };
        if debtor.stage != Stage::Draining {
            return Next::Nothing;
        }
        if debtor.debt > 0 {
            // Answers to earlier requests arrived in the meantime and added to the debt.
            debtor.stage = Stage::Owing;
            let share = debtor.share.clone();
            self.line_up(session, share);
            return Next::Nothing;
        }
        // The order matters: the deferred requests are older than the waiting message, so the owners continue first. The session stays a
        // debtor until all owners have reported, because their requests may cost more than a turn allows.
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

    /// Removes an ended session and returns the owners that defer its requests. Its entry in `owing` stays until a payment finds it,
    /// because a search would cost as much as there are sessions that owe.
    pub fn ended(&mut self, session: SessionId) -> SmallVec<[Address; 2]> {
        let debtor = self.sessions.remove(&session);
        debtor.map_or_else(SmallVec::new, |debtor| debtor.owners)
    }
}
