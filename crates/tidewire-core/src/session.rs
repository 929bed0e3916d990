//! Sessions: identified peers, and what each of them holds.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::bulk::LongBulk;
use crate::context::Authorization;
use crate::effect::{AuthOutcome, Format, Principal};
use crate::entry::ReadFailed;
use crate::history::subscriber::Follows;
use crate::hub::Memberships;
use crate::lag::Lag;
use crate::message::Topic;
use crate::rate::Spending;
use crate::table::{self, NameTable, Set};
use crate::text::{Name, Payload};
use crate::time::Instant;

/// How far a session has come.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing was said yet.
    Challenge,
    /// The peer may log in.
    Login,
    /// The auth chain is thinking.
    Checking,
    /// The next answer is held back.
    Delayed(Box<AnswerDelay>),
    /// The peer is known.
    Open(Arc<Principal>),
}

/// An answer that is held back.
#[derive(Debug)]
pub(crate) struct AnswerDelay {
    /// When it is given.
    pub(crate) until: Instant,
    /// Whether it is a final no.
    pub(crate) refuse: bool,
    pub(crate) stage: DelayStage,
}

/// Which answer it is.
#[derive(Debug)]
pub(crate) enum DelayStage {
    /// To the challenge.
    Challenge {
        /// Whether it has come.
        asked: bool,
    },
    /// To the login.
    Login {
        /// What the auth chain has said.
        outcome: Option<AuthOutcome>,
    },
    /// None will be given: nobody could say whether to let it in, and it is to come back.
    Unavailable,
}

/// A record that the session is subscribed to, or wants to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSubscription {
    /// Tells this subscription from an earlier one of the same name.
    pub(crate) serial: u32,
    /// The owner's interest epoch once it is granted.
    pub(crate) granted: Option<u64>,
    /// Rights have changed since it was asked for, so the grant is not taken: it is asked for once more.
    pub(crate) again: bool,
}

/// What a session holds beside memberships.
#[derive(Debug, Default)]
pub(crate) struct SessionRights {
    /// Granted record subscriptions, with their serials.
    pub(crate) records: Vec<(Name, u32)>,
    /// The rpcs that it provides.
    pub(crate) provided: Vec<Name>,
    /// The patterns that it listens with.
    pub(crate) patterns: Vec<(Topic, Name)>,
}

/// The reads of rules for the message that has to wait.
#[derive(Debug, Default)]
pub(crate) struct RuleReads {
    /// The records read so far.
    pub(crate) values: Vec<(Name, Option<Payload>)>,
    /// Whether a read failed.
    pub(crate) failed: bool,
    /// How far the names of a bulk message are authorized.
    pub(crate) bulk_authorization: Option<Box<BulkAuthorization>>,
}

/// The names of a bulk message that are authorized, and those that wait.
#[derive(Debug)]
pub(crate) struct BulkAuthorization {
    /// For which principal, and by the rules after how many changes.
    pub(crate) principal: Arc<Principal>,
    round: u64,
    /// By index; `Wait` for the names that are not authorized yet.
    pub(crate) results: Vec<Authorization>,
    /// The first name that was not looked at.
    pub(crate) next: usize,
    pub(crate) waiting: Vec<NameReads>,
}

/// What the rule of one name of a bulk message has read.
#[derive(Debug)]
pub(crate) struct NameReads {
    /// The index of the name in the message.
    pub(crate) index: usize,
    /// The records read so far.
    pub(crate) values: Vec<(Name, Option<Payload>)>,
    /// Whether a read failed.
    pub(crate) failed: bool,
    /// The record that is on its way.
    pub(crate) needs: Option<Name>,
}

impl NameReads {
    /// Nothing was read.
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            values: Vec::new(),
            failed: false,
            needs: None,
        }
    }
}

impl BulkAuthorization {
    /// No name is authorized yet.
    pub(crate) fn new(round: u64, principal: &Arc<Principal>, count: usize) -> Self {
        Self {
            principal: Arc::clone(principal),
            round,
            results: vec![Authorization::Wait; count],
            next: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether it is by these rules and for this principal.
    pub(crate) fn is_of(&self, round: u64, principal: &Arc<Principal>) -> bool {
        self.round == round && Arc::ptr_eq(&self.principal, principal)
    }

    /// Whether a record is on its way for some name.
    pub(crate) fn asks_for(&self, record: &Name) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|reads| reads.needs.as_ref() == Some(record))
    }

    /// A record has come. Whether nothing is on its way now.
    pub(crate) fn take(
        &mut self,
        record: &Name,
        value: &Result<Option<Payload>, ReadFailed>,
    ) -> bool {
        for reads in &mut self.waiting {
            if reads.needs.as_ref() != Some(record) {
                continue;
            }
            reads.needs = None;
            match value {
                Ok(value) => reads.values.push((record.clone(), value.clone())),
                Err(ReadFailed) => reads.failed = true,
            }
        }
        self.waiting.iter().all(|reads| reads.needs.is_none())
    }
}

/// What only some sessions have; boxed, so that the others don't pay for it.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Bytes of `subscriptions`, `provided` and `patterns`.
    bytes: usize,
    /// The records that it is subscribed to, or wants to be.
    pub(crate) subscriptions: NameTable<RecordSubscription>,
    /// The rpcs that it provides.
    pub(crate) provided: NameTable<()>,
    /// The patterns that it listens with.
    pub(crate) patterns: Set<(Topic, Name)>,
    /// Whether it ever provided or listened, so that owners may know of it.
    pub(crate) has_offered: bool,
    /// For the message that has to wait.
    pub(crate) rule_reads: RuleReads,
    /// The message of many names of which some have not taken effect yet.
    pub(crate) bulk: Option<Box<LongBulk>>,
    /// What it is owed because it does not read fast enough.
    pub(crate) lag: Option<Box<Lag>>,
    /// Its subscriptions to events with history.
    pub(crate) follows: Option<Box<Follows>>,
    /// What it has spent of its rates, where there are any.
    pub(crate) spending: Option<Box<Spending>>,
}

/// What is true of a session or not.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Mark {
    /// An answer was held back, so that its time to log in begins again once.
    Delayed = 1,
    /// It takes a record's newest value in place of the steps to it, and the number of events that it missed.
    Coalesces = 2,
    /// Presence does not count it.
    Passing = 4,
    /// The auth chain thinks about a renewal of the login.
    Renewing = 8,
    /// Nothing is left of it but memberships that later turns end.
    Ended = 16,
}

/// A session. There are as many as connections, so what few of them have is in the boxed [`SessionState`].
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) format: Format,
    pub(crate) phase: Phase,
    /// Logins refused so far.
    pub(crate) refused: u16,
    /// Which peers without a name of their own it shares with, such as a hash of its address; 0 if that is unknown.
    pub(crate) origin: u16,
    /// A bit for each [`Mark`].
    marks: u8,
    /// When something last arrived.
    pub(crate) heard: Instant,
    /// Calls made and not answered yet.
    pub(crate) calls: u32,
    /// Counts the record subscriptions.
    pub(crate) serial: u32,
    /// Bytes of memory that are kept because of it, here and at owners: what it is subscribed to and pays for, provides, listens
    /// with and has called. The node's memory budget is kept by ending those who have most.
    pub(crate) kept_bytes: u32,
    /// Everything it gets publications of.
    pub(crate) memberships: Memberships,
    pub(crate) state: Option<Box<SessionState>>,
}

impl Phase {
    /// The principal of an open session.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        match self {
            Self::Open(principal) => Some(principal),
            _ => None,
        }
    }
}

impl Session {
    /// A session of which nothing is known.
    fn new(id: SessionId, format: Format, now: Instant) -> Self {
        Self {
            id,
            format,
            phase: Phase::Challenge,
            refused: 0,
            origin: 0,
            marks: 0,
            heard: now,
            calls: 0,
            serial: 0,
            kept_bytes: 0,
            memberships: Memberships::new(),
            state: None,
        }
    }

    /// Whether the mark is set.
    #[inline]
    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    /// Sets the mark or takes it away.
    pub(crate) fn mark(&mut self, mark: Mark, is_set: bool) {
        match is_set {
            true => self.marks |= mark as u8,
            false => self.marks &= !(mark as u8),
        }
    }

    /// Whether its next message has to wait for one that has not wholly taken effect; if so it is remembered that one does.
    #[inline]
    pub(crate) fn is_held_back(&mut self) -> bool {
        let state = self.state.as_mut();
        let Some(bulk) = state.and_then(|with| with.bulk.as_mut()) else {
            return false;
        };
        bulk.has_waiting = true;
        true
    }

    /// Whether a message of it has not wholly taken effect.
    pub(crate) fn has_bulk(&self) -> bool {
        self.state.as_ref().is_some_and(|with| with.bulk.is_some())
    }

    /// The principal of an open session.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        self.phase.principal()
    }

    /// Names, patterns and registrations that it holds.
    pub(crate) fn subscription_count(&self) -> usize {
        let member_count = self.memberships.len();
        self.state.as_ref().map_or(member_count, |with| {
            // A granted record is both a subscription and a membership, one that is not granted yet is only a subscription. The larger
            // number is exact once the owners have answered, and bounds what waits by the same limit.
            let waiting = with
                .follows
                .as_ref()
                .map_or(0, |follows| follows.waiting_count());
            with.subscriptions.len().max(member_count)
                + waiting
                + with.provided.len()
                + with.patterns.len()
        })
    }

    /// Patterns that it listens with.
    pub(crate) fn pattern_count(&self) -> usize {
        let state = self.state.as_ref();
        state.map_or(0, |with| with.patterns.len())
    }

    /// Whether its next message waits for a rate, so that it can't be heard.
    pub(crate) fn is_throttled(&self) -> bool {
        let spending = self.state.as_ref().and_then(|with| with.spending.as_ref());
        spending.is_some_and(|spending| spending.is_waiting)
    }

    /// The server keeps `bytes` more because of it.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_add(saturated(bytes));
    }

    /// The server has given back `bytes` of that.
    pub(crate) fn let_go(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(saturated(bytes));
    }

    /// What it has beside memberships, made on first use.
    pub(crate) fn state(&mut self, seed: u64) -> &mut SessionState {
        self.state.get_or_insert_with(|| {
            Box::new(SessionState {
                bytes: 0,
                subscriptions: NameTable::new(seed),
                provided: NameTable::new(seed),
                patterns: table::set(seed),
                has_offered: false,
                rule_reads: RuleReads::default(),
                bulk: None,
                lag: None,
                follows: None,
                spending: None,
            })
        })
    }

    /// What it offers: it counts as somebody of whom owners know from now on.
    pub(crate) fn offers(&mut self, seed: u64) -> &mut SessionState {
        let state = self.state(seed);
        state.has_offered = true;
        state
    }
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A session of this shard: the part of its id that differs. Every session waits in a queue of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalSessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LocalSessionId {
    /// The part of an id.
    pub(crate) fn of(id: SessionId) -> Self {
        Self {
            index: id.index,
            generation: id.generation,
        }
    }

    /// The whole id.
    pub(crate) fn session(self, address: Address) -> SessionId {
        SessionId {
            address,
            index: self.index,
            generation: self.generation,
        }
    }
}

/// The sessions of a shard, by their index.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Vec<Option<Session>>,
    count: usize,
    /// Bytes of what all sessions have beside memberships.
    bytes: usize,
}

impl Sessions {
    /// No sessions.
    pub(crate) fn new() -> Self {
        Self {
            table: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    /// Opens a session at the index that its id names.
    pub(crate) fn open(&mut self, id: SessionId, format: Format, now: Instant) {
        let index = id.index as usize;
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        let session = Session::new(id, format, now);
        if self.table[index].replace(session).is_none() {
            self.count += 1;
        }
    }

    /// The session, unless it has ended.
    pub(crate) fn find(&self, id: SessionId) -> Option<&Session> {
        self.table
            .get(id.index as usize)?
            .as_ref()
            .filter(|session| session.id == id && !session.has(Mark::Ended))
    }

    /// The session, unless it has ended.
    pub(crate) fn find_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.table
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|session| session.id == id && !session.has(Mark::Ended))
    }

    /// The session at that index, unless it has ended.
    pub(crate) fn at(&self, index: u32) -> Option<&Session> {
        let session = self.table.get(index as usize)?.as_ref();
        session.filter(|session| !session.has(Mark::Ended))
    }

    /// The session at that index, also one that has ended and has memberships left.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.table.get_mut(index as usize)?.as_mut()
    }

    /// Ends a session, which is not found from here on. Its memberships stay at its index until [`Sessions::vacate`].
    pub(crate) fn end(&mut self, id: SessionId) -> Option<Session> {
        let session = self.find_mut(id)?;
        let ended = Session {
            memberships: std::mem::replace(&mut session.memberships, Memberships::new()),
            marks: Mark::Ended as u8,
            ..Session::new(id, session.format, session.heard)
        };
        let session = std::mem::replace(session, ended);
        self.count -= 1;
        let state = session.state.as_ref();
        self.bytes -= state.map_or(0, |with| with.bytes);
        Some(session)
    }

    /// Whether the session has ended and its index is not free yet.
    pub(crate) fn is_leaving(&self, id: SessionId) -> bool {
        let entry = self.table.get(id.index as usize);
        let session = entry.and_then(Option::as_ref);
        session.is_some_and(|session| session.id == id && session.has(Mark::Ended))
    }

    /// Frees the index of a session that has ended and has no memberships left.
    pub(crate) fn vacate(&mut self, index: u32) {
        if let Some(entry) = self.table.get_mut(index as usize) {
            *entry = None;
        }
    }

    /// The session has something more beside memberships.
    pub(crate) fn add_state_bytes(&mut self, id: SessionId, bytes: usize) {
        let Some(session) = self.find_mut(id) else {
            return;
        };
        session.keep(bytes);
        if let Some(with) = &mut session.state {
            with.bytes += bytes;
            self.bytes += bytes;
        }
    }

    /// It has that no more.
    pub(crate) fn remove_state_bytes(&mut self, id: SessionId, bytes: usize) {
        let Some(session) = self.find_mut(id) else {
            return;
        };
        session.let_go(bytes);
        if let Some(with) = &mut session.state {
            with.bytes -= bytes;
            self.bytes -= bytes;
        }
    }

    /// Bytes of what all sessions have beside memberships.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length of the table, free entries included.
    pub(crate) fn table_len(&self) -> usize {
        self.table.len()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stays_small() {
        assert!(size_of::<Session>() <= 88, "{}", size_of::<Session>());
    }
}
