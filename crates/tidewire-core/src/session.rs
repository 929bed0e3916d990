//! Sessions: identified peers, and the state of each of them.

pub(crate) mod backed;
pub(crate) mod follows;
pub(crate) mod heartbeat;
pub(crate) mod lag;
pub(crate) mod scopes;

use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, SessionId};
use crate::bulk::LongBulk;
use crate::effect::{AuthOutcome, Format};
use crate::entry::ReadFailed;
use crate::membership::Memberships;
use crate::message::Topic;
use crate::permission::Authorization;
use crate::principal::Principal;
use crate::rate::Spending;
use crate::table::{self, Map, NameTable};
use crate::text::{Name, Payload};
use crate::time::Instant;
use backed::Backed;
use follows::Follows;
use heartbeat::{Heartbeats, Links, Tick};
use lag::Lag;

/// The phase of a session.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The peer has not introduced itself yet.
    Challenge,
    /// The peer may log in.
    Login,
    /// The auth chain decides on the login.
    Checking,
    /// The next answer is delayed.
    Delayed(Box<AnswerDelay>),
    /// The peer has logged in.
    Open(Arc<Principal>),
}

/// A delayed answer.
#[derive(Debug)]
pub(crate) struct AnswerDelay {
    /// When the session gets it.
    pub(crate) until: Instant,
    /// Whether it is a final refusal.
    pub(crate) refuse: bool,
    pub(crate) stage: DelayStage,
}

/// The kind of the delayed answer.
#[derive(Debug)]
pub(crate) enum DelayStage {
    /// The answer to the challenge.
    Challenge {
        /// Whether the challenge has arrived.
        asked: bool,
    },
    /// The first answer of a session that logs in without a challenge. Its login waits.
    First,
    /// The answer to the login.
    Login {
        /// The outcome from the auth chain, if it has arrived.
        outcome: Option<AuthOutcome>,
    },
    /// The session gets no answer: the auth chain could not decide on the login, and the client must reconnect.
    Unavailable,
}

/// A record that the session is subscribed to, or has requested a subscription to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSubscription {
    /// Distinguishes this subscription from an earlier one of the same name.
    pub(crate) serial: u32,
    /// The owner's interest epoch once it is granted.
    pub(crate) granted: Option<u64>,
    /// Rights have changed since the request. The shard does not take the grant, and requests the subscription again.
    pub(crate) again: bool,
}

/// The rights that a session uses, apart from its memberships.
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
    /// The progress of authorizing the names of a bulk message.
    pub(crate) bulk_authorization: Option<Box<BulkAuthorization>>,
}

/// The names of a bulk message that are authorized, and the names that wait.
#[derive(Debug)]
pub(crate) struct BulkAuthorization {
    /// The principal that the names are authorized for. `round` is the number of changes of the rules so far.
    pub(crate) principal: Arc<Principal>,
    round: u64,
    /// By index; `Wait` for the names that are not authorized yet.
    pub(crate) results: Vec<Authorization>,
    /// The first name that was not examined.
    pub(crate) next: usize,
    pub(crate) waiting: Vec<NameReads>,
}

/// The records that the rule of one name of a bulk message has read.
#[derive(Debug)]
pub(crate) struct NameReads {
    /// The index of the name in the message.
    pub(crate) index: usize,
    /// The records read so far.
    pub(crate) values: Vec<(Name, Option<Payload>)>,
    /// Whether a read failed.
    pub(crate) failed: bool,
    /// The record that it waits for.
    pub(crate) needs: Option<Name>,
}

impl NameReads {
    /// Creates it before the first read.
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
    /// Creates it before the first name is authorized.
    pub(crate) fn new(round: u64, principal: &Arc<Principal>, count: usize) -> Self {
        Self {
            principal: Arc::clone(principal),
            round,
            results: vec![Authorization::Wait; count],
            next: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether it is for these rules and for this principal.
    pub(crate) fn is_of(&self, round: u64, principal: &Arc<Principal>) -> bool {
        self.round == round && Arc::ptr_eq(&self.principal, principal)
    }

    /// Whether some name waits for the record.
    pub(crate) fn asks_for(&self, record: &Name) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|reads| reads.needs.as_ref() == Some(record))
    }

    /// Passes a record's value to the names that wait for it. Returns whether no name waits for a record now.
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

/// State that only some sessions have; boxed, so that the others do not pay for it.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Bytes of `subscriptions`, `provided` and `patterns`.
    bytes: usize,
    /// Counts its subscriptions to records and to events with history.
    pub(crate) serial: u32,
    /// The records that it is subscribed to, or has requested a subscription to.
    pub(crate) subscriptions: NameTable<RecordSubscription>,
    /// The rpcs that it provides.
    pub(crate) provided: NameTable<()>,
    /// The patterns that it listens with, and the bytes of each.
    pub(crate) patterns: Map<(Topic, Name), usize>,
    /// The number of patterns of events that it is subscribed to. They are memberships.
    pub(crate) event_patterns: u32,
    /// Whether it has ever provided or listened, so that owners may know of it.
    pub(crate) has_offered: bool,
    /// The reads of rules for the message that has to wait.
    pub(crate) rule_reads: RuleReads,
    /// The bulk message with names that have not taken effect yet.
    pub(crate) bulk: Option<Box<LongBulk>>,
    /// The messages that it has missed because it lags.
    pub(crate) lag: Option<Box<Lag>>,
    /// Its subscriptions to events with history.
    pub(crate) follows: Option<Box<Follows>>,
    /// The permits that it has used, if its operations have rates.
    pub(crate) spending: Option<Box<Spending>>,
    /// If backends serve it.
    pub(crate) backed: Option<Box<Backed>>,
}

/// A flag of a session.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum SessionFlag {
    /// An answer was delayed, so the time to log in starts again once.
    Delayed = 1,
    /// It gets a record's newest value in place of the single changes, and the number of events that it missed.
    Coalesces = 2,
    /// Presence does not count it.
    Passing = 4,
    /// The auth chain decides on a renewal of the login.
    Renewing = 8,
    /// The session has ended and only has memberships, which later turns end.
    Ended = 16,
    /// It has no transport now.
    Detached = 32,
    /// The auth chain decides which user the session has next, or the owner of its new user has not counted the session yet. Its later
    /// messages wait.
    ChangingUser = 64,
    /// The session has requested to have no named user. If the auth chain refuses that, the session ends.
    LoggingOut = 128,
}

/// Reads of single records that a session may have without an answer. If its client sends more, they wait, and so do its later messages.
/// Otherwise a client that sends faster than a store answers could fill the memory with records that wait for their loads.
const READS_MAX: u16 = 1_024;

/// Set in [`Session::reads`] while the next read waits for the answers to earlier ones.
const READ_HELD: u16 = 1 << 15;

/// A session. There are as many sessions as connections, so state that few of them have is in the boxed [`SessionState`].
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) format: Format,
    pub(crate) phase: Phase,
    /// Logins refused so far.
    pub(crate) refused: u16,
    /// While its user has no name, it shares its work with the peers of the same origin, such as a hash of their address; 0 if unknown.
    pub(crate) origin: u16,
    /// A bit for each [`SessionFlag`].
    flags: u8,
    /// When data last arrived from it. For a session that the server pings, the beginning of its interval.
    pub(crate) heard: Tick,
    /// Its place among the sessions that the server pings.
    links: Links,
    /// Calls that it has made and that are not answered yet.
    pub(crate) calls: u32,
    /// Reads of single records that are not answered yet, and the bit [`READ_HELD`].
    reads: u16,
    /// Bytes of memory that are kept because of it, here and at owners: for its subscriptions that it pays for, and for its rpcs, patterns
    /// and calls. To stay within the node's memory budget, the server ends the sessions with the most bytes.
    pub(crate) kept_bytes: u32,
    /// The names whose publications it gets.
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
    /// Creates a session in its first phase.
    fn new(id: SessionId, format: Format, now: Tick) -> Self {
        Self {
            id,
            format,
            phase: Phase::Challenge,
            refused: 0,
            origin: 0,
            flags: 0,
            heard: now,
            links: Links::OUT,
            calls: 0,
            reads: 0,
            kept_bytes: 0,
            memberships: Memberships::new(),
            state: None,
        }
    }

    /// Whether the flag is set.
    #[inline]
    pub(crate) fn has(&self, flag: SessionFlag) -> bool {
        self.flags & flag as u8 != 0
    }

    /// Sets or clears the flag.
    pub(crate) fn set_flag(&mut self, flag: SessionFlag, is_set: bool) {
        match is_set {
            true => self.flags |= flag as u8,
            false => self.flags &= !(flag as u8),
        }
    }

    /// Whether its next message has to wait for one that has not completely taken effect. If so, notes that a message waits.
    #[inline]
    pub(crate) fn is_held_back(&mut self) -> bool {
        let state = self.state.as_mut();
        let Some(bulk) = state.and_then(|with| with.bulk.as_mut()) else {
            return false;
        };
        bulk.has_waiting = true;
        true
    }

    /// Counts a read of a single record, unless too many are not answered. Then the read has to wait.
    pub(crate) fn begin_read(&mut self) -> bool {
        if self.reads & READ_HELD != 0 || self.reads >= READS_MAX {
            self.reads |= READ_HELD;
            return false;
        }
        self.reads += 1;
        true
    }

    /// Notes that a read is answered. Returns whether a read that waits may continue.
    pub(crate) fn end_read(&mut self) -> bool {
        let held = self.reads & READ_HELD;
        let left = (self.reads & !READ_HELD).saturating_sub(1);
        let continues = held != 0 && left <= READS_MAX / 2;
        self.reads = if continues { left } else { left | held };
        continues
    }

    /// Whether one of its messages has not completely taken effect.
    pub(crate) fn has_bulk(&self) -> bool {
        self.state.as_ref().is_some_and(|with| with.bulk.is_some())
    }

    /// The principal of an open session.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        self.phase.principal()
    }

    /// The number of names, patterns and registrations of the session.
    pub(crate) fn subscription_count(&self) -> usize {
        let member_count = self.memberships.len();
        self.state.as_ref().map_or(member_count, |with| {
            // A granted record is both a subscription and a membership, one that is not granted yet is only a subscription. The larger
            // number is exact once the owners have answered, and bounds the waiting subscriptions by the same limit.
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

    /// The number of patterns that it listens with.
    pub(crate) fn pattern_count(&self) -> usize {
        let state = self.state.as_ref();
        state.map_or(0, |with| with.patterns.len())
    }

    /// The number of patterns of events that it is subscribed to.
    pub(crate) fn event_pattern_count(&self) -> usize {
        let state = self.state.as_ref();
        state.map_or(0, |with| with.event_patterns as usize)
    }

    /// Whether its next message waits for a rate or a backend, so that the shard can't receive anything from it.
    pub(crate) fn is_throttled(&self) -> bool {
        let Some(state) = &self.state else {
            return false;
        };
        let spending = state.spending.as_ref();
        let backed = state.backed.as_ref();
        spending.is_some_and(|spending| spending.is_waiting)
            || backed.is_some_and(|backed| backed.is_waiting)
    }

    /// Notes that the server keeps `bytes` more because of it.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_add(saturated(bytes));
    }

    /// Notes that the server has released `bytes` of them.
    pub(crate) fn let_go(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(saturated(bytes));
    }

    /// Its state apart from memberships, created on first use.
    pub(crate) fn state(&mut self, seed: u64) -> &mut SessionState {
        self.state.get_or_insert_with(|| {
            Box::new(SessionState {
                bytes: 0,
                serial: 0,
                subscriptions: NameTable::new(seed),
                provided: NameTable::new(seed),
                patterns: table::map(seed),
                event_patterns: 0,
                has_offered: false,
                rule_reads: RuleReads::default(),
                bulk: None,
                lag: None,
                follows: None,
                spending: None,
                backed: None,
            })
        })
    }

    /// Its state, to add an offer: afterwards owners may know of the session.
    pub(crate) fn offers(&mut self, seed: u64) -> &mut SessionState {
        let state = self.state(seed);
        state.has_offered = true;
        state
    }
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A session of this shard, by the part of its id that differs. It is small, because queues have an entry for every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalSessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LocalSessionId {
    /// The local part of an id.
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
    /// Bytes of the state of all sessions, apart from memberships.
    bytes: usize,
    /// The sessions that the server pings.
    heartbeats: Heartbeats,
}

impl Sessions {
    /// Creates it without sessions.
    pub(crate) fn new(heartbeat_interval: Duration, heartbeat_timeout: Duration) -> Self {
        Self {
            table: Vec::new(),
            count: 0,
            bytes: 0,
            heartbeats: Heartbeats::new(heartbeat_interval, heartbeat_timeout),
        }
    }

    /// Opens a session at the index that its id names.
    pub(crate) fn open(
        &mut self,
        id: SessionId,
        format: Format,
        coalesces: Option<bool>,
        now: Instant,
    ) {
        let index = id.index as usize;
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        let mut session = Session::new(id, format, Tick::at(now));
        if let Some(coalesces) = coalesces {
            session.phase = Phase::Login;
            session.set_flag(SessionFlag::Coalesces, coalesces);
        }
        if self.table[index].replace(session).is_none() {
            self.count += 1;
        }
    }

    /// The session, unless it has ended.
    pub(crate) fn find(&self, id: SessionId) -> Option<&Session> {
        self.table
            .get(id.index as usize)?
            .as_ref()
            .filter(|session| session.id == id && !session.has(SessionFlag::Ended))
    }

    /// The session, unless it has ended.
    pub(crate) fn find_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.table
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|session| session.id == id && !session.has(SessionFlag::Ended))
    }

    /// The session at that index, unless it has ended.
    pub(crate) fn at(&self, index: u32) -> Option<&Session> {
        let session = self.table.get(index as usize)?.as_ref();
        session.filter(|session| !session.has(SessionFlag::Ended))
    }

    /// The session at that index, including one that has ended and has memberships left.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.table.get_mut(index as usize)?.as_mut()
    }

    /// Ends a session, so that it is no longer found. Its memberships stay at its index until [`Sessions::vacate`].
    pub(crate) fn end(&mut self, id: SessionId) -> Option<Session> {
        self.end_heartbeat(id);
        let session = self.find_mut(id)?;
        let ended = Session {
            memberships: std::mem::replace(&mut session.memberships, Memberships::new()),
            flags: SessionFlag::Ended as u8,
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
        session.is_some_and(|session| session.id == id && session.has(SessionFlag::Ended))
    }

    /// Frees the index of a session that has ended and has no memberships left.
    pub(crate) fn vacate(&mut self, index: u32) {
        if let Some(entry) = self.table.get_mut(index as usize) {
            *entry = None;
        }
    }

    /// Notes that the session's state, apart from memberships, has grown.
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

    /// Notes that the session's state, apart from memberships, has shrunk.
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

    /// Changes the number of patterns of events that a session is subscribed to.
    pub(crate) fn count_event_patterns(&mut self, id: SessionId, change: i32) {
        let session = self.find_mut(id);
        if let Some(with) = session.and_then(|session| session.state.as_mut()) {
            with.event_patterns = with.event_patterns.saturating_add_signed(change);
        }
    }

    /// Bytes of the state of all sessions, apart from memberships.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length of the table, free entries included.
    pub(crate) fn table_len(&self) -> usize {
        self.table.len()
    }

    /// The number of sessions.
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
