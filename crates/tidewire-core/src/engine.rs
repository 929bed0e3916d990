//! The engine of one shard: one call in, effects out.
//!
//! It routes; the primitives decide. A shard posts to itself with the same entries as to other shards, and handles them in order before
//! the call returns.

mod bulk;
mod counts;
mod deadline;
mod entry;
mod inspecting;
mod leaving;
mod node;
mod owners;
mod rights;
mod timers;
mod view;

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

use self::leaving::EndedSession;
use self::timers::SessionTimers;
use crate::address::{Address, SessionId};
use crate::awaited::Awaited;
use crate::backend::Backends;
use crate::barrier::Barrier;
use crate::bulk::LongBulk;
use crate::context::{Interest, PendingReplies, ShardContext, ShardState, TurnContext};
use crate::effect::{CloseReason, Effects, Flow, Format, Input, Span, StoreCompletion};
use crate::entry::{Entry, HistoryEntry, WorkEntry};
use crate::event;
use crate::event_rights::EventRights;
use crate::handover::{Handover, Stage};
use crate::history;
use crate::history::owner::HistoryOwner;
use crate::hub::Hub;
use crate::identity;
use crate::listen::ListenOwner;
use crate::login::{self, Decided};
use crate::membership::LAGGING;
use crate::message::{Auth, Connection, Message, Presence};
use crate::permission::Permission;
use crate::presence::{self, PresenceOwner};
use crate::query::reader::QueryReader;
use crate::quota::Quotas;
use crate::rate::is_compiled;
use crate::rate_limiter::{RateLimiter, RateOwner};
use crate::reauthorize::Reauthorizer;
use crate::record::{owner::RecordOwner, subscriber};
use crate::rights::Revocations;
use crate::route::StoreId;
use crate::rpc::{self, RpcOwner};
use crate::scope::owner::ScopeOwner;
use crate::scope::session as scope;
use crate::session::scopes::SessionScopes;
use crate::session::{LocalSessionId, Phase, RuleReads, SessionFlag, Sessions};
use crate::settings::{Liveness, Settings};
use crate::slot::SlotTable;
use crate::store::Opened;
use crate::table;
use crate::text::Name;
use crate::time::Now;
use crate::work::{Debtors, MESSAGE_WORK, Next, Share, TurnCosts, USER_WORK};
use crate::{catch_up, lag};

pub use crate::backend::BackendCounts;
pub use counts::Counts;

/// The parameters of a shard.
#[derive(Debug)]
pub struct ShardConfig {
    /// The address of the shard.
    pub address: Address,
    /// The owner of each name. It is the same on all shards.
    pub slots: Arc<SlotTable>,
    /// Durations, switches and limits.
    pub settings: Settings,
    /// Decides what principals may do.
    pub permission: Arc<dyn Permission>,
    /// Seed of tables and random choices. Clients must not be able to guess it.
    pub seed: u64,
    /// The results of opening the stores, by number. Never empty.
    pub opened: Vec<Opened>,
}

/// The engine of one shard. See the head of this file.
#[derive(Debug)]
pub struct Shard {
    state: ShardState,
    records: RecordOwner,
    listens: ListenOwner,
    rpcs: RpcOwner,
    presences: PresenceOwner,
    scopes: ScopeOwner,
    histories: HistoryOwner,
    queries: QueryReader,
    backends: Backends,
    rates: RateLimiter,
    user_rates: RateOwner,
    timers: SessionTimers,
    barrier: Barrier,
    reauthorizer: Reauthorizer,
    /// The costs of sessions of this shard in this turn.
    costs: TurnCosts,
    debtors: Debtors,
    handover: Handover,
    /// Sessions that have ended and held more names than one turn can release.
    leaving: VecDeque<EndedSession>,
}

impl Shard {
    /// Creates a shard without sessions.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let ShardConfig {
            address,
            slots,
            settings,
            permission,
            seed,
            opened,
        } = config;
        let mut shards: Vec<Address> = slots.shards().collect();
        if let Err(index) = shards.binary_search(&address) {
            // A node that joins owns no slots yet.
            shards.insert(index, address);
        }
        let barrier = Barrier::new(address, shards.iter().copied());
        let handover = Handover::new(address, &slots);
        let sessions = Sessions::new(settings.heartbeat_interval, settings.heartbeat_timeout);
        Self {
            state: ShardState {
                context: ShardContext {
                    address,
                    is_rated: !settings.rates.is_off(),
                    shards,
                    placed: None,
                    is_clustered: false,
                    level: 1,
                    slots,
                    settings,
                    permission,
                    rules_round: 0,
                    seed,
                    draining: false,
                    quotas: Quotas::new(seed),
                    room: Cell::new(usize::MAX),
                    lacking: Cell::default(),
                    refused: Cell::default(),
                    lag: Cell::default(),
                    work: Cell::default(),
                    underflows: Cell::default(),
                    expired: 0,
                    revoked: 0,
                    revocations: Revocations::default(),
                },
                sessions,
                hub: Hub::new(seed),
                interest: Interest::default(),
                scopes: SessionScopes::default(),
                event_rights: EventRights::new(seed),
                pending_replies: PendingReplies {
                    next: NonZeroU64::MIN,
                    running: table::map(seed),
                },
                awaited: Awaited::new(seed),
                local: VecDeque::new(),
            },
            records: RecordOwner::new(seed, &opened, address.shard),
            listens: ListenOwner::new(seed),
            rpcs: RpcOwner::new(seed),
            presences: PresenceOwner::default(),
            scopes: ScopeOwner::default(),
            histories: HistoryOwner::new(seed, opened[StoreId::DEFAULT.index()]),
            queries: QueryReader::new(seed),
            backends: Backends::new(),
            rates: RateLimiter::new(seed),
            user_rates: RateOwner::new(seed),
            timers: SessionTimers::new(),
            barrier,
            reauthorizer: Reauthorizer::new(seed),
            costs: TurnCosts::new(),
            debtors: Debtors::default(),
            handover,
            leaving: VecDeque::new(),
        }
    }

    /// Handles every input except messages of sessions.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut impl Effects) {
        match input {
            Input::Opened {
                session,
                format,
                coalesces,
            } => self.opened(now, session, format, coalesces),
            Input::Undecodable { session } => {
                self.heard(session, now);
                login::undecodable(&mut self.state.turn(now, out), session);
            }
            Input::Delay {
                session,
                until,
                refuse,
            } => {
                if login::delay(&mut self.state.turn(now, out), session, until, refuse) {
                    self.timers.delays.insert((until, session));
                }
            }
            Input::Backed {
                session,
                namespace,
                handshake,
            } => {
                let turn = &mut self.state.turn(now, out);
                self.backends.open(turn, session, namespace, handshake);
            }
            Input::Left { session } => {
                if let Some(session) = self.state.sessions.find_mut(session) {
                    Backends::note_left(session);
                }
            }
            Input::Lagging { session } => lag::fell_behind(&mut self.state.turn(now, out), session),
            Input::Drained { session } => {
                let mut turn = self.state.turn(now, out);
                catch_up::drained(&mut turn, session);
                history::subscriber::drained(&mut turn, session);
                self.queries.subscriptions.drained(&mut turn, session);
                scope::drained(&mut turn, session);
                self.drained(now, session, out);
            }
            Input::Detached { session } => self.detached(now, session),
            Input::Attached { session } => self.attached(now, session),
            Input::Closed { session } => self.closed(now, session, out),
            Input::Entry(entry) => self.entry(now, entry, out),
            Input::Linked { from, birth, entry } => self.linked(now, from, birth, entry, out),
            Input::NodeLost { node } => self.node_lost(now, node, out),
            Input::Store(StoreCompletion::Loaded { records }) => {
                let mut turn = self.state.turn(now, out);
                for (name, result) in records {
                    if history::is_row(&name) {
                        self.histories.loaded(&mut turn, &name, result);
                        continue;
                    }
                    self.records
                        .loaded(&mut turn, &mut self.listens, &name, result);
                }
            }
            Input::Store(StoreCompletion::Scanned { number, page }) => {
                let work_before = self.state.context.work.get();
                let mut turn = self.state.turn(now, out);
                // The page is charged to the session that has made the query.
                if let Some(session) = self.queries.scanned(&mut turn, number, page) {
                    let work = self.state.context.work.get().wrapping_sub(work_before);
                    self.charge(session, work);
                }
            }
            Input::Store(StoreCompletion::Indexed { number, part }) => {
                let work_before = self.state.context.work.get();
                let mut turn = self.state.turn(now, out);
                if let Some(session) = self.queries.indexed(&mut turn, number, part) {
                    let work = self.state.context.work.get().wrapping_sub(work_before);
                    self.charge(session, work);
                }
            }
            Input::Store(StoreCompletion::Committed {
                store,
                batch,
                result,
            }) => {
                let mut turn = self.state.turn(now, out);
                if history::is_batch(batch) {
                    self.histories.committed(&mut turn, batch, result.map(drop));
                } else {
                    self.records.committed(&mut turn, store, batch, result);
                }
            }
            Input::Store(StoreCompletion::OldHistories(names)) => {
                let mut turn = self.state.turn(now, out);
                for name in names {
                    let owner = turn.shard.owner(&name);
                    turn.post(owner, Entry::History(HistoryEntry::Sweep(name)));
                }
            }
            Input::Store(StoreCompletion::Quota { store, change }) => {
                self.state.context.quotas.change(store, change);
            }
            Input::Auth(completion) => {
                let session = completion.session;
                let mut turn = self.state.turn(now, out);
                match login::decided(&mut turn, session, completion.outcome) {
                    Decided::Revoked => {
                        self.state.context.revoked += 1;
                        self.end_session(now, session, CloseReason::Revoked, out);
                    }
                    decided => {
                        if let Decided::Renewed(before) = &decided {
                            self.rates.user_changed(&mut turn, session, before);
                            self.queries.rights_changed(&mut turn, Some(session));
                            scope::renewed(&mut turn, session);
                        }
                        self.timers
                            .logged_in(&turn, &mut self.reauthorizer, session, decided);
                    }
                }
            }
            Input::InterestVisible { up_to } => self.state.turn(now, out).interest_visible(up_to),
            Input::Rights { number, change } => self.change(now, number, change, out),
            Input::DeadlineReached => self.deadline_reached(now, out),
            Input::Drain => self.state.context.draining = true,
        }
        // Entries for this shard itself run first: they may lose rights or start further checks. Only if no session waits for its
        // reauthorization after that may the barrier treat the newest rules as applied.
        self.tell_self(now, out);
        self.note_reauthorized();
    }

    fn note_reauthorized(&mut self) {
        if !self.reauthorizer.is_sweeping()
            && !self.listens.is_reauthorizing()
            && !self.queries.subscriptions.is_unsettled()
        {
            self.barrier.all_reauthorized();
        }
    }

    /// Handles a message of a session. After [`Flow::Wait`] the caller must pass the same message again once [`Effects::resume`] was
    /// called, and no later message of the session before.
    pub fn message(
        &mut self,
        now: Now,
        id: SessionId,
        message: &Message<'_>,
        out: &mut impl Effects,
    ) -> Flow {
        // The order of the checks keeps a session's messages in order: while one of them is applied in pieces or waits for a payment, a
        // rate or a rule, no later one is handled. The debt is checked first, because a session that owes must not cost more. The rate is
        // checked before the primitive, because a message that has to wait must have no effect. The work is measured around the call and
        // charged at the end, also if the message has to wait, so repeated attempts are not free.
        if matches!(message, Message::Connection(Connection::Pong)) && self.answer_ping(now, id) {
            return Flow::Taken;
        }
        let mut is_open = false;
        if let Some(session) = self.state.sessions.find_mut(id) {
            session.note_heard(now.monotonic);
            is_open = matches!(session.phase, Phase::Open(_));
            // Later messages belong to the new user. A ping is answered at once, because the auth chain may take long.
            let is_changing = session.has(SessionFlag::ChangingUser);
            let waits_for_user = is_changing && !matches!(message, Message::Connection(_));
            if waits_for_user || session.is_held_back() {
                return Flow::Wait;
            }
        }
        if self.debtors.len() > 0 && self.debtors.holds_back(id) {
            return Flow::Wait;
        }
        let mut work_before = self.state.context.work.get();
        let next_reply = self.state.pending_replies.next;
        let limits = &self.state.context.settings.limits;
        let bulk_names_max = match limits.connection_work_max {
            0 => 0,
            _ => limits.bulk_names_max,
        };
        let mut turn = self.state.turn(now, out);
        let flow = if !is_open {
            login::message(&mut turn, id, message)
        } else if (turn.shard.is_rated || is_compiled(message))
            && !self.rates.admits(&mut turn, id, message)
        {
            Flow::Wait
        } else if let Some(bulk) = LongBulk::of(message, bulk_names_max, turn.shard.seed) {
            self.begin_bulk(now, id, bulk, out);
            // `begin_bulk` has charged the session already.
            work_before = self.state.context.work.get();
            Flow::Taken
        } else if let Message::Query(query) = message {
            self.queries.message(&mut turn, id, query);
            Flow::Taken
        } else if let Message::Backend(message) = message {
            self.backends.message(&mut turn, id, message)
        } else {
            route(&mut turn, id, message)
        };
        if flow == Flow::Taken
            && let Some(session) = self.state.sessions.find_mut(id)
            && let Some(state) = &mut session.state
        {
            // If a bulk message is in progress, these reads belong to its first piece.
            if state.bulk.is_none() {
                state.rule_reads = RuleReads::default();
            }
            if let Some(spending) = &mut state.spending {
                spending.has_paid = false;
            }
        }
        if let Message::Presence(Presence::QueryAll) = message
            && self.state.pending_replies.next != next_reply
        {
            // The answer is charged when all shards have sent their part. The expected cost is charged now, so that a client can't send a
            // burst of such queries before. A denied query requests nothing from the shards, and its cost must not reveal how many users
            // are online.
            let users = self.presences.count_online() * self.state.context.shard_count();
            self.state.context.count_work(users * USER_WORK);
        }
        let work = self.state.context.work.get().wrapping_sub(work_before);
        self.charge(id, work + MESSAGE_WORK as u64);
        self.tell_self(now, out);
        flow
    }

    /// Changes the encoding of a session, at any time if the flush owes it no publication, otherwise only before it has subscribed to
    /// anything. Returns the answers that it is still owed in the log of its earlier format. The caller must send them at once; the flush
    /// no longer does.
    #[must_use]
    pub fn set_format(
        &mut self,
        session: SessionId,
        format: Format,
    ) -> Option<(Format, Vec<Span>)> {
        let session = self.state.sessions.find_mut(session)?;
        let before = std::mem::replace(&mut session.format, format);
        if before == format {
            return None;
        }
        for channel in session.memberships.channels() {
            // Lagging members are not counted.
            if session.memberships.position(channel) != Some(LAGGING) {
                self.state.hub.change_format(channel, before, format);
            }
        }
        let answers = self.state.hub.take_answers(session.id.index, before);
        (!answers.is_empty()).then_some((before, answers))
    }

    /// The encoding of a session.
    #[must_use]
    pub fn format(&self, session: SessionId) -> Option<Format> {
        self.state
            .sessions
            .find(session)
            .map(|session| session.format)
    }

    /// Excludes a session from presence, before it has logged in. Such a session lasts for one request, and its user is not reported as
    /// online.
    pub fn set_passing(&mut self, session: SessionId) {
        if let Some(session) = self.state.sessions.find_mut(session) {
            session.set_flag(SessionFlag::Passing, true);
        }
    }

    /// Sets the peers with which a session shares its work while its user has no name: all peers with the same `origin`, such as a hash
    /// of their address. Without it, or with 0, the session has a separate share.
    pub fn set_origin(&mut self, session: SessionId, origin: u16) {
        if let Some(session) = self.state.sessions.find_mut(session) {
            session.origin = origin;
        }
    }

    /// Whether backends serve some namespaces.
    #[must_use]
    pub fn has_backed_namespaces(&self) -> bool {
        !self.state.context.settings.backend_namespaces.is_empty()
    }

    /// Whether backends serve the sessions of a namespace.
    #[must_use]
    pub fn is_backed(&self, namespace: &str) -> bool {
        self.state.context.settings.is_backed(namespace)
    }

    /// Whether the next answer of a session is delayed, see [`Input::Delay`].
    #[must_use]
    pub fn is_delayed(&self, session: SessionId) -> bool {
        let session = self.state.sessions.find(session);
        session.is_some_and(|session| matches!(session.phase, Phase::Delayed(_)))
    }

    /// Whether the last login of a session was refused.
    #[must_use]
    pub fn was_refused(&self, session: SessionId) -> bool {
        let session = self.state.sessions.find(session);
        session.is_some_and(|session| session.refused > 0 && session.principal().is_none())
    }

    /// The user id of an open session.
    #[must_use]
    pub fn user(&self, session: SessionId) -> Option<&Name> {
        let session = self.state.sessions.find(session)?;
        session.principal().map(|principal| &principal.user_id)
    }

    /// Starts a turn: the costs of sessions count from zero, and a part of their debts is paid.
    pub fn begin_turn(&mut self, now: Now, out: &mut impl Effects) {
        // Debts are paid before this turn's messages add to them, so a session waits as short as possible. A paid session continues only
        // when it has read its answers (`await_drained`), not in this call: otherwise a client that does not read could cause work
        // without end. Requests of ended sessions and the release of their names come last. Each of these steps is limited, so a turn
        // stays short whatever has accumulated.
        self.costs.begin_turn();
        let turn_work_max = self.state.context.settings.limits.turn_work_max as u64;
        self.debtors
            .pay(turn_work_max, |session| out.await_drained(session));
        let mut turn = self.state.turn(now, out);
        self.records.begin_turn(&mut turn, &mut self.listens);
        self.continue_ending_sessions(now, out);
        self.tell_self(now, out);
    }

    /// Whether sessions wait for the next turn, so that it must come at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.debtors.has_owing() || self.records.has_work() || !self.leaving.is_empty()
    }

    /// Bytes that this shard has touched since it started. The number wraps around.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.state.context.work.get()
    }

    /// Counts bytes that were touched for a session before its message was handled: read, inflated, decoded.
    pub fn add_work(&mut self, session: SessionId, bytes: usize) {
        self.state.context.count_work(bytes);
        self.charge(session, bytes as u64);
    }

    /// Ends a turn: sends the store the turn's loads and writes.
    pub fn end_turn(&mut self, now: Now, out: &mut impl Effects) {
        // The stores get their requests once per turn, after all messages of the turn are decided: loads and writes of many messages then
        // share one request and one commit. The driver must call this before it sends, because an answer that is sent may refer to a
        // write that must already be on its way.
        self.send_scopes(now, out);
        self.listens.end_turn();
        self.rpcs.end_turn();
        let settings = &self.state.context.settings;
        self.records.end_turn(settings, now.monotonic, out);
        self.histories.end_turn(settings, now, out);
        self.queries
            .end_turn(&self.state.context, now.monotonic, out);
    }

    /// Posts the changes of scopes of this turn. The newest state of a member replaces the others of the turn.
    fn send_scopes(&mut self, now: Now, out: &mut impl Effects) {
        if self.scopes.unsent.is_empty() {
            return;
        }
        let turn = &mut self.state.turn(now, out);
        self.scopes.end_turn(turn, &self.handover);
        self.tell_self(now, out);
    }

    /// Calls `send` for each session that has unsent messages, with its ranges of the format's log in order.
    pub fn flush(&mut self, send: impl FnMut(SessionId, Format, &[Span])) {
        self.flush_some(usize::MAX, send);
    }

    /// The same for at most `count` of these sessions. Messages decided before the next call are sent to the remaining sessions together
    /// with the rest, and to the earlier ones by a later call. Small answers are sent first.
    pub fn flush_some(&mut self, count: usize, send: impl FnMut(SessionId, Format, &[Span])) {
        self.state.hub.collect(&self.state.sessions);
        self.state.hub.flush_some(count, &self.state.sessions, send);
    }

    /// The approximate number of sessions for which [`Shard::flush`] would call `send`.
    #[must_use]
    pub fn owed_count(&self) -> usize {
        self.state.hub.owed_count()
    }

    /// Evicts at least `bytes` of records that no session uses and that the store has, least recently used first, or as many as there are.
    /// Returns the number of bytes evicted. If it is smaller than `bytes`, all other records are in use, or are the last few that were used
    /// repeatedly, which only `usize::MAX` evicts.
    pub fn shrink_cache(&mut self, bytes: usize) -> usize {
        self.records.shrink(&self.state.context.settings, bytes)
    }

    fn opened(&mut self, now: Now, session: SessionId, format: Format, coalesces: Option<bool>) {
        let sessions = &mut self.state.sessions;
        sessions.open(session, format, coalesces, now.monotonic);
        let context = &self.state.context;
        if context.liveness(format) == Liveness::PingsAll {
            sessions.begin_heartbeat(session, now.monotonic);
        }
        let interval = context.settings.heartbeat_interval;
        self.timers.sweep.begin(now.monotonic, interval);
        if let Some(timeout) = self.state.context.settings.login_timeout {
            let (sessions, address) = (&self.state.sessions, self.state.context.address);
            self.timers.logins.drop_front_while(|local_id| {
                let waiting = sessions.find(local_id.session(address));
                waiting.is_none_or(|session| session.principal().is_some() || session.refused > 0)
            });
            self.timers
                .logins
                .push(now.monotonic + timeout, LocalSessionId::of(session));
        }
    }

    /// The session keeps its rights, subscriptions and debts, so publications reach it as before. Only its liveness changes: its deadline
    /// replaces the heartbeat.
    fn detached(&mut self, now: Now, id: SessionId) {
        if let Some(session) = self.state.sessions.find_mut(id) {
            session.set_flag(SessionFlag::Detached, true);
            self.state.sessions.end_heartbeat(id);
            let until = now.monotonic + self.state.context.settings.detached_timeout;
            self.timers.detached.add(id, until);
        }
    }

    fn attached(&mut self, now: Now, id: SessionId) {
        let Some(session) = self.state.sessions.find_mut(id) else {
            return;
        };
        session.set_flag(SessionFlag::Detached, false);
        session.note_heard(now.monotonic);
        if self.state.context.liveness(session.format) == Liveness::PingsAll {
            self.state.sessions.begin_heartbeat(id, now.monotonic);
        }
        self.timers.detached.remove(id);
    }

    /// Charges a session with work. If it has used up its share of this turn, it owes the rest.
    fn charge(&mut self, id: SessionId, work: u64) {
        let limits = &self.state.context.settings.limits;
        let sum = self.costs.add(id, work);
        let is_alone = self.debtors.len() == 0 && self.costs.is_alone(sum);
        let work_max = limits.session_work_max(is_alone);
        if work_max == 0 || sum <= work_max {
            return;
        }
        let owed = if self.debtors.has(id) {
            work
        } else {
            sum - work_max
        };
        self.owe(id, owed);
    }

    /// Adds to the debt of a session.
    fn owe(&mut self, id: SessionId, work: u64) {
        let Some(session) = self.state.sessions.find(id) else {
            return;
        };
        let Some(principal) = session.principal() else {
            return;
        };
        // It works for all its sessions. No session is charged with its messages.
        if principal.is_backend() {
            return;
        }
        let share = || match (
            identity::is_shared(principal.user_id.as_str()),
            session.origin,
        ) {
            (true, 0) => Share::Session(id),
            (true, origin) => Share::Origin(origin),
            (false, _) => Share::User(principal.user_id.clone()),
        };
        self.debtors.owe(id, share, work);
    }

    /// Handles that a session has read most of its answers. If its debt is paid, it continues.
    fn drained<E: Effects>(&mut self, now: Now, id: SessionId, out: &mut E) {
        match self.debtors.drained(id) {
            Next::Nothing => {}
            Next::Resume => self.resume(now, id, out),
            Next::Proceed(owners) => {
                let mut turn = self.state.turn(now, out);
                for owner in owners {
                    turn.post(owner, Entry::Work(WorkEntry::Proceed { session: id }));
                }
            }
        }
    }

    fn heard(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.state.sessions.find_mut(id) {
            session.note_heard(now.monotonic);
        }
    }

    /// Handles the answer to a ping. It counts although other messages of the session wait. Returns false if the session owes none.
    fn answer_ping(&mut self, now: Now, id: SessionId) -> bool {
        let sessions = &mut self.state.sessions;
        let owes = sessions.answer_ping(id, now.monotonic);
        if owes && let Some(session) = sessions.find_mut(id) {
            Backends::note_silent(session, false);
        }
        owes
    }

    fn tell_self<E: Effects>(&mut self, now: Now, out: &mut E) {
        // Entries for this shard are handled in order, and an entry may post more of them. Changes of providers are handled in a second
        // step, because `listens` and `records` can't call each other while one of them is handling an entry. They may post entries
        // again, so the loop ends only if both are empty.
        loop {
            while let Some(entry) = self.state.local.pop_front() {
                self.entry(now, entry, out);
            }
            let changes = std::mem::take(&mut self.listens.changes);
            if changes.is_empty() && self.state.local.is_empty() {
                if self.handover.stage() != Stage::Complete && self.advance_view(now, out) {
                    continue;
                }
                return;
            }
            let mut turn = self.state.turn(now, out);
            for change in changes {
                self.records
                    .provider_changed(&mut turn, &change.name, change.provided);
            }
        }
    }

    /// Ends a session whose login was revoked or has expired. It receives nothing more, not even messages that are already encoded.
    fn end_session<E: Effects>(
        &mut self,
        now: Now,
        id: SessionId,
        reason: CloseReason,
        out: &mut E,
    ) {
        out.close(id, reason);
        self.closed(now, id, out);
    }
}

/// Routes a message to its primitive.
fn route<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, message: &Message<'_>) -> Flow {
    match message {
        Message::Connection(Connection::Ping) => {
            turn.send(id, &Message::Connection(Connection::Pong))
        }
        // One that answers a ping was handled before.
        Message::Connection(Connection::Pong) if turn.pings(id) => {}
        Message::Event(message) => return event::message(turn, id, message),
        Message::Record(message) => return subscriber::message(turn, id, message),
        Message::Rpc(message) => return rpc::message(turn, id, message),
        Message::Presence(message) => return presence::message(turn, id, message),
        Message::Scope(message) => return scope::message(turn, id, message),
        Message::Auth(Auth::Request { data }) => return login::renew(turn, id, *data),
        Message::Auth(Auth::Change { data }) => return login::change(turn, id, *data),
        Message::Connection(_) | Message::Auth(_) | Message::UnknownTopic => {
            turn.send(id, &Message::UnknownTopic)
        }
        // Handled before.
        Message::Query(_) | Message::Backend(_) | Message::UnknownAction { .. } => {}
    }
    Flow::Taken
}
