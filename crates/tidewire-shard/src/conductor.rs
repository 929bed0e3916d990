//! A shard's thread, which runs turns in a loop.
//!
//! A turn polls, reads, decodes, lets the engine decide, posts to other shards, and sends. There are no rules here: the engine decides
//! the meaning of a message, and the event loop decides how bytes move. Control frames (pong, close) do not go through the turn log,
//! because no other connection shares them. They follow the connection's ranges of the turn.

mod backed;
mod carried;
mod closing;
mod congestion;
mod delivering;
mod exchanges;
mod expensive_reads;
mod forwarding;
mod inspecting;
mod loading;
mod memory;
mod namespaces;
mod nodes;
mod opening;
mod reading;
mod resumable;
mod rights;
mod switching;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{AuthOutcome, CloseReason, Format, Input, Span, StoreCompletion};
use tidewire_core::engine::Shard;
use tidewire_core::time::{Instant, Now, WallTime};
use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, SLICE_SENDS_MAX, Settled};
use tidewire_net::flush_policy::{self, SMALL_TURN_SENDS_MAX};
use tidewire_net::memory_budget::{Participant, Share};
use tidewire_net::outbox::LogRange;
use tidewire_net::read_buffer::ReadBuffer;
use tidewire_net::send_batch::Path;
use tidewire_wire::frame::deflate::Inflater;
use tidewire_wire::protocol::{Encoding, Terms};
use tokio::sync::oneshot;

use carried::CarriedSessions;
use delivering::Deliveries;
use exchanges::Exchanges;
use expensive_reads::ExpensiveReads;
use forwarding::Forwarding;
use memory::Shedding;
use namespaces::Namespaces;
use resumable::ResumableSessions;
use rights::Settling;

use super::ShardLimits;
use super::batch::Batches;
use super::caller_rate::CallerRates;
use super::carrier::End;
use super::connection::{CloseCause, PauseReasons, State};
use super::credit::{Confirmations, Confirmed, Credit, NO_CONNECTION};
use super::drain::CloseAll;
use super::handle::{AuthAnswer, AuthReply, Mail, PendingLogin, Quiet, Requests, ShardHandle};
use super::peer::{ClientCertificate, PeerDetails};
use super::sink::{CARRIED, DeferredEffect, Sink, Target};
use super::stats::{LongestTurn, ShardStats, add, set, time_index};
use crate::backoff::{Delay, ReconnectBackoff};
use crate::interest::InterestMap;
use crate::interest::nodes::OwnInterest;
use crate::recent_principals::RecentPrincipals;
use crate::session_token::TokenKey;
use crate::tracer::Tracer;

/// A shard finishes a turn at least this often, so that `/health` can tell a stuck one.
const TURN_INTERVAL: Duration = Duration::from_millis(500);

/// Approximate cost of a byte of a short message for the engine, which checks, keeps and encodes it.
const WORK_PER_BYTE: usize = 4;

/// How often the engine's gauges are published.
const GAUGE_INTERVAL: Duration = Duration::from_millis(100);

/// State that a shard shares with the others of its node.
pub(crate) struct Node {
    pub(crate) handles: Arc<[ShardHandle]>,
    pub(crate) interest: Arc<InterestMap>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) backoff: Arc<ReconnectBackoff>,
    pub(crate) callers: Arc<CallerRates>,
    pub(crate) token_key: TokenKey,
    /// The namespaces that peers may join, see [`super::NodeConfig`].
    pub(crate) namespaces: Arc<[String]>,
    /// Refused logins after which a connection is closed.
    pub(crate) auth_attempts_max: u32,
    pub(crate) requests: Arc<dyn Requests>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Whether the node is a member of a cluster.
    pub(crate) is_member: bool,
}

/// One shard: its engine, its loop, and the state between them.
pub(crate) struct Conductor {
    address: Address,
    engine: Shard,
    event_loop: EventLoop<State>,
    sink: Sink,
    buffer: ReadBuffer,
    inflater: Inflater,
    batches: Batches,
    /// Sessions without a socket.
    carried: CarriedSessions,
    /// Sessions that outlive their sockets.
    resumable: ResumableSessions,
    /// Connections with several sessions.
    namespaces: Namespaces,
    /// Sessions whose messages are in the bodies of requests and answers.
    exchanges: Exchanges,
    forwarding: Forwarding,
    own: ShardHandle,
    handles: Arc<[ShardHandle]>,
    confirmations: Arc<Confirmations>,
    backoff: Arc<ReconnectBackoff>,
    callers: Arc<CallerRates>,
    credit: Credit,
    limits: ShardLimits,
    /// The terms that new peers get.
    terms: Terms,
    message_bytes_max: usize,
    /// The same before the login.
    login_bytes_max: usize,
    /// Logins that wait for an answer. An entry is removed with its session.
    logins: HashMap<Key, PendingLogin>,
    principals: RecentPrincipals,
    now: Now,
    /// When this turn began.
    turn_started: Instant,
    /// Bytes read in this turn.
    turn_bytes: usize,
    deliveries: Deliveries,
    expensive_reads: ExpensiveReads,
    /// The engine's work count when this turn last began to take input, and when its log began.
    turn_work_start: u64,
    log_work_start: u64,
    /// Whether the engine was called since the last flush.
    has_unflushed: bool,
    /// Answers to pings, and ends of single sessions. They are sent after the messages of the turn.
    pongs: Vec<(Key, Vec<u8>)>,
    /// Connections that end with this turn.
    closing: Vec<(Key, CloseCause)>,
    /// Connections whose close frame was not sent yet.
    unsent_goodbyes: Vec<Key>,
    /// Closed connections, with the time at which they are cut off, in that order.
    lingering: VecDeque<(Instant, Key)>,
    /// Keys of removed connections whose sessions still release names.
    leaving: Vec<Key>,
    /// Connections that are not read because they have too many bytes in flight.
    without_credit: Vec<Key>,
    /// Connections that are not read because their last message goes to a congested shard or node.
    congested: Vec<(Key, Target)>,
    /// The last batch of each shard that was handled in this turn.
    taken_batches: Vec<(u16, u64)>,
    confirmed: Vec<Confirmed>,
    broken: Vec<Key>,
    settled: Settled,
    /// Memory that this shard holds apart from its connections.
    memory: Share,
    participant: Participant,
    shedding: Shedding,
    /// Answers to loads that were not handled yet.
    loaded: VecDeque<StoreCompletion>,
    mail_count: u64,
    /// Whether the shard refuses new work. A caller that waits for the end of running calls reads the gauges.
    is_refusing: bool,
    is_draining: bool,
    quiet: Vec<oneshot::Sender<Quiet>>,
    close_all: Option<CloseAll>,
    /// Changes of rights that a caller waits for.
    settlings: Vec<Settling>,
    gauges_published: Instant,
    longest_turn: LongestTurn,
    /// The engine's next deadline, as of the end of the last turn or the last deadline since.
    engine_deadline: Option<Instant>,
    send_path: Path,
    is_stopped: bool,
}

impl Conductor {
    pub(crate) fn new(
        address: Address,
        engine: Shard,
        event_loop: EventLoop<State>,
        node: Node,
        limits: ShardLimits,
        terms: Terms,
    ) -> Self {
        let own = node.handles[usize::from(address.shard)].clone();
        let shard_count = node.handles.len();
        let send_path = event_loop.send_path();
        let memory = event_loop.budget().share();
        let participant = event_loop.budget().join();
        let mut sink = Sink::new(
            address,
            own.clone(),
            shard_count,
            node.interest,
            node.requests,
            node.tracer,
            &limits,
        );
        sink.own_interest = node.is_member.then(OwnInterest::default);
        Self {
            address,
            engine,
            event_loop,
            sink,
            buffer: ReadBuffer::default(),
            inflater: Inflater::default(),
            batches: Batches::default(),
            carried: CarriedSessions::default(),
            resumable: ResumableSessions::new(node.token_key),
            namespaces: Namespaces::new(
                node.namespaces,
                limits.connection_sessions_max,
                node.auth_attempts_max,
            ),
            exchanges: Exchanges::default(),
            forwarding: Forwarding::default(),
            own,
            handles: node.handles,
            confirmations: node.confirmations,
            backoff: node.backoff,
            callers: node.callers,
            credit: Credit::new(address.shard, shard_count, limits.shard_inflight_bytes_max),
            limits,
            terms,
            message_bytes_max: terms.message_bytes_max,
            login_bytes_max: limits.login_bytes_max.min(terms.message_bytes_max),
            logins: HashMap::new(),
            principals: RecentPrincipals::default(),
            now: Now::default(),
            turn_started: Instant(0),
            turn_bytes: 0,
            deliveries: Deliveries::default(),
            expensive_reads: ExpensiveReads::default(),
            turn_work_start: 0,
            log_work_start: 0,
            has_unflushed: false,
            pongs: Vec::new(),
            closing: Vec::new(),
            unsent_goodbyes: Vec::new(),
            lingering: VecDeque::new(),
            leaving: Vec::new(),
            without_credit: Vec::new(),
            congested: Vec::new(),
            taken_batches: Vec::new(),
            confirmed: Vec::new(),
            broken: Vec::new(),
            settled: Settled::default(),
            memory,
            participant,
            shedding: Shedding::default(),
            loaded: VecDeque::new(),
            mail_count: 0,
            is_refusing: false,
            is_draining: false,
            quiet: Vec::new(),
            close_all: None,
            settlings: Vec::new(),
            gauges_published: Instant(0),
            longest_turn: LongestTurn::default(),
            engine_deadline: None,
            send_path,
            is_stopped: false,
        }
    }

    /// Runs turns until the shard receives the order to stop.
    ///
    /// # Errors
    /// The poll itself failed; the shard can't continue.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.is_stopped {
            match self.next_wake() {
                Some(deadline) => {
                    let deadline = self.own.0.clock.at(deadline.0);
                    self.event_loop.poll_until(deadline)?;
                }
                None => self.event_loop.poll(Some(Duration::ZERO))?,
            }
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        // A turn is in two parts. First its input is decided and every send is listed; then the sends are submitted in slices. A message
        // is in the log before any of its recipients is sent to, and the log lives until the last send. Between the slices the shard
        // takes input of the next turn, so a large fan-out does not stop the poll; those messages must go to a new log, because the
        // ranges of the listed sends are fixed. Statistics and `settle_rights` come last: they report the sends of this turn as made.
        self.take_in();
        let started = self.now.monotonic;
        self.turn_started = started;
        flush_policy::flush(self)?;
        self.end_input();
        let mut hurried_left = self.event_loop.send_count();
        loop {
            self.submit_slice();
            if !self.event_loop.has_sends() {
                break;
            }
            // Input that arrives during the flush belongs to the next turn, whose log has already begun.
            self.event_loop.poll_again()?;
            self.take_in();
            self.hurry(&mut hurried_left);
        }
        self.end_sending();
        self.watch_send_path();
        self.finish_closing();
        self.publish_stats(started);
        self.settle_rights();
        Ok(())
    }

    /// Sends the new messages first if few arrived during a large flush. Otherwise sessions that talk to few others would wait until
    /// thousands of recipients have their messages. If many messages arrived, the shard continues to take input until the flush has
    /// ended, so that a flood still coalesces. But it sends a part of them first, starting with the names that have few members. The logs
    /// of all these turns live until the flush ends. `left` is how many more sends may go first in this flush. At the start it is the number of
    /// the flush's own sends: under a steady load of small messages the flush would otherwise never end, and the logs would grow with it.
    fn hurry(&mut self, left: &mut usize) {
        if !self.has_unflushed || *left == 0 {
            return;
        }
        let before = self.event_loop.send_count();
        if self.engine.owed_count() > SMALL_TURN_SENDS_MAX {
            self.decide();
            self.list_sends(SMALL_TURN_SENDS_MAX);
        } else {
            self.end_input();
        }
        let added = self.event_loop.send_count() - before;
        *left = left.saturating_sub(added);
        self.event_loop.send_first(added);
    }

    /// The time until which the poll may wait; `None` if there is work to do at once.
    fn next_wake(&mut self) -> Option<Instant> {
        // `set_waiting` comes last, directly before the sleep: it announces that this shard sleeps and then checks the confirmations once
        // more. A confirmation between the two would otherwise find no sleeper to wake, and the shard would wait for its next deadline
        // with connections that may be read.
        self.engine_deadline = self.engine.next_deadline();
        let has_work = self.has_unflushed
            || !self.loaded.is_empty()
            || !self.closing.is_empty()
            || self.carried.has_ending()
            || self.namespaces.has_ending()
            || self.exchanges.has_polls()
            || self.engine.has_work()
            || self.event_loop.has_sends()
            || (self.may_read() && self.event_loop.readable_count() > 0);
        let wants_wake =
            !self.without_credit.is_empty() || !self.quiet.is_empty() || self.credit.has_reported();
        if has_work || self.credit.set_waiting(&self.confirmations, wants_wake) {
            return None;
        }
        let deadlines = [
            self.engine_deadline,
            self.lingering.front().map(|(deadline, _)| *deadline),
            self.close_all.as_ref().map(CloseAll::next_deadline),
            self.settlings.iter().filter_map(Settling::deadline).min(),
            self.carried.next_deadline(),
            self.exchanges.next_deadline(),
            self.shedding.next_check(self.now.monotonic),
            Some(self.now.monotonic + TURN_INTERVAL),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn clock(&self) -> Instant {
        Instant(self.own.0.clock.nanos())
    }

    fn stats(&self) -> &ShardStats {
        self.own.stats()
    }

    fn session(&self, key: Key) -> SessionId {
        SessionId {
            address: self.address,
            index: key.index,
            generation: key.generation,
        }
    }

    /// Takes the available input: confirmations, mail, deadlines, sockets.
    fn take_in(&mut self) {
        // The order matters. Confirmations come first, because they release connections that this turn can then read. Mail comes before
        // the sockets: it is work that the node has already accepted, and a shard that read more before it handled that could fill the
        // other shards' mailboxes without end. The deadline comes after the mail, so an answer that has already arrived counts before its
        // timeout, unless it waits in `loaded`.
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.now = Now {
            monotonic: self.clock(),
            wall: WallTime(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        };
        self.deliveries
            .begin_input(self.now.monotonic, self.has_unflushed);
        self.give_room();
        self.take_confirmations();
        self.turn_work_start = self.engine.work();
        self.engine.begin_turn(self.now, &mut self.sink);
        self.free_keys();
        self.has_unflushed |= self.engine.work() != self.turn_work_start;
        self.charge(NO_CONNECTION, 0);
        self.run_deferred();
        self.take_mail();
        self.announce_interest();
        self.take_loaded();
        if self
            .engine_deadline
            .is_some_and(|deadline| deadline <= self.now.monotonic)
        {
            self.handle(Input::DeadlineReached);
            self.engine_deadline = self.engine.next_deadline();
        }
        self.continue_closing();
        self.end_unpolled();
        self.release_carried();
        self.release_congested();
        self.read_sockets();
        self.take_polls();
    }

    /// Ends the input of a turn: the commit batch, the posts, and then the list of sends.
    fn end_input(&mut self) {
        // Decisions and posts come before the list of sends, see `decide`. The list comes before `begin_turn` of the logs, because it
        // refers to ranges of this turn. Pongs are pushed after the list, so they follow the messages that were decided before them.
        self.decide();
        self.list_sends(usize::MAX);
        self.settle_requests();
        if let Some(traces) = &mut self.sink.traces {
            traces.list();
        }
        if let Some(tails) = &mut self.sink.tails
            && !tails.end_turn(self.now.wall)
        {
            self.sink.tails = None;
        }
        self.has_unflushed = false;
        self.turn_bytes = 0;
        self.deliveries.begin_log(self.now.monotonic);
        self.expensive_reads.end_turn();
        self.log_work_start = self.engine.work();
        for (key, pong) in self.pongs.drain(..) {
            self.event_loop.push_bytes(key, &pong);
        }
        self.sink.logs.begin_turn();
        self.sink.replies.begin_turn();
        self.sink.ends.begin_turn();
        self.sink.deflation.begin_turn();
        self.batches.begin_turn();
        self.resumable.begin_turn();
        self.namespaces.begin_turn();
        // Closing a session may publish to others. These messages are sent with the next turn, so they must be in that turn's log.
        self.say_goodbyes();
    }

    /// Collects the store requests and posts the entries for other shards. Posts precede every answer of the turn, so a client
    /// that has an answer can rely on its effects being posted.
    fn decide(&mut self) {
        self.engine.end_turn(self.now, &mut self.sink);
        self.charge(NO_CONNECTION, 0);
        self.run_deferred();
        self.post();
    }

    /// Submits a slice of the sends, then passes the requests of the turn to the stores. In the other order the threads of the stores would
    /// preempt a shard on the same core, and recipients would wait for a commit that has nothing to do with them.
    fn submit_slice(&mut self) {
        let before = self.event_loop.send_count();
        self.event_loop
            .submit_slice(&self.sink.logs, &mut self.broken);
        self.count_deliveries(before);
        self.sink.request_stores();
    }

    /// Lists the sends of at most `count` sessions.
    fn list_sends(&mut self, count: usize) {
        let (engine, event_loop) = (&mut self.engine, &mut self.event_loop);
        let (sink, batches, stats) = (&mut self.sink, &mut self.batches, self.own.stats());
        let (carried, resumable) = (&mut self.carried, &mut self.resumable);
        let namespaces = &mut self.namespaces;
        let now = self.now.wall;
        let mut deliveries = 0;
        engine.flush_some(count, |session, format, spans| {
            let messages = sink.ends.count(format, spans);
            deliveries += messages;
            if let Some(tails) = &mut sink.tails {
                tails.note_sent(now, session, format, spans, messages);
            }
            if format >= CARRIED {
                let key = key(session);
                if format == CARRIED {
                    return carried.push(key, spans, &sink.replies);
                }
                let ranges = (format, spans);
                let parts = (&mut *resumable, &mut *event_loop);
                if namespaces.deliver(key, ranges, messages, &mut sink.logs, parts) {
                    return;
                }
                return resumable.deliver(key, ranges, messages, &sink.logs, event_loop);
            }
            if Encoding::of(format.0).is_batched {
                let Sink {
                    logs, deflation, ..
                } = sink;
                let ranges = batches.ranges(format, spans, logs, deflation, stats);
                return event_loop.push_ranges(key(session), ranges.iter().cloned());
            }
            event_loop.push_ranges(key(session), log_ranges(format, spans));
        });
        add(&self.own.stats().deliveries, deliveries);
        self.deliveries.list(deliveries);
    }

    /// Ends the sending of a turn: removes broken connections, closes slow ones, and reports lagging and drained sessions.
    fn end_sending(&mut self) {
        // The order matters. Broken sockets are removed first, so that their bytes count neither as memory nor as lag. `settle_memory` runs
        // before the logs are released, when they are longest. `settle` then copies the unsent rest of the previous turn into the outboxes
        // and releases that turn's log; sessions whose outboxes would outgrow the node's memory are ended before that. The engine learns of
        // lagging sessions afterwards, so its reaction is part of the next turn. Last, a close frame that was sent completely lets the shard
        // shut down its side of the socket.
        if let Some(traces) = &mut self.sink.traces {
            traces.sent();
        }
        for key in std::mem::take(&mut self.broken) {
            self.lose(key);
        }
        self.answer_polls();
        self.settle_carried();
        self.settle_retained();
        self.settle_memory();
        self.end_outgrowing();
        let mut settled = std::mem::take(&mut self.settled);
        self.event_loop
            .settle(&mut self.sink.logs, &self.limits.outbox, &mut settled);
        for key in settled.cut.drain(..) {
            self.cut_slow(key);
        }
        self.shed();
        for key in settled.lagging.drain(..) {
            self.handle_each(key, |session| Input::Lagging { session });
        }
        for key in settled.drained.drain(..) {
            self.handle_each(key, |session| Input::Drained { session });
        }
        self.settled = settled;
        let connections = self.event_loop.connections();
        self.unsent_goodbyes.retain(|key| {
            let Some(connection) = connections.get(*key) else {
                return false;
            };
            if connection.is_flushed() {
                connection.shut_down_sending();
            }
            !connection.is_flushed()
        });
        self.resume_sessions();
        self.switch_transports();
        self.answer_quiet();
    }

    fn take_confirmations(&mut self) {
        let mut confirmed = std::mem::take(&mut self.confirmed);
        self.credit.collect(&self.confirmations, &mut confirmed);
        for Confirmed { key, bytes } in confirmed.drain(..) {
            if self.resumable.confirm_posts(key, bytes) {
                continue;
            }
            if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
                connection.state.inflight_bytes -= bytes;
            }
        }
        self.confirmed = confirmed;
        let low = self.limits.inflight_bytes_max / 2;
        for key in std::mem::take(&mut self.without_credit) {
            match self.event_loop.connections().get(key) {
                Some(connection) if connection.state.inflight_bytes as usize > low => {
                    self.without_credit.push(key);
                }
                Some(_) => self.release(key, PauseReasons::CREDIT),
                None => {}
            }
        }
    }

    fn take_mail(&mut self) {
        let own = self.own.clone();
        let mut count = 0;
        for mail in own.0.mailbox.take() {
            count += 1;
            // `Quiet` mail is not counted, because the caller compares this number between two rounds of it.
            self.mail_count += u64::from(!matches!(mail, Mail::Quiet(_)));
            self.take(mail);
        }
        set(&own.stats().mailbox_entries, count);
        self.report_congestion();
        for (origin, batch) in self.taken_batches.drain(..) {
            if self
                .confirmations
                .confirm(origin, self.address.shard, batch)
            {
                self.handles[usize::from(origin)].0.mailbox.wake();
            }
        }
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Entries {
                from,
                batch,
                since,
                bytes,
                entries,
            } => {
                self.deliveries.begin_entries(since);
                add(&self.stats().entries, entries.len() as u64);
                let share = bytes / entries.len().max(1);
                for entry in entries {
                    self.handle_charged(Input::Entry(entry), share);
                }
                match self
                    .taken_batches
                    .iter_mut()
                    .find(|(origin, _)| *origin == from)
                {
                    Some((_, last)) => *last = batch,
                    None => self.taken_batches.push((from, batch)),
                }
            }
            Mail::Linked(linked) => self.take_linked(linked),
            Mail::NodeJoined(node, interest) => self.node_joined(node, interest),
            Mail::NodeLost { node, birth } => self.node_lost(node, birth),
            Mail::View(view) => self.adopt(&view),
            Mail::Upgraded(connection) => self.add_connection(connection),
            Mail::Store(loaded @ StoreCompletion::Loaded { .. }) => self.loaded.push_back(loaded),
            Mail::Store(completion) => self.handle(Input::Store(completion)),
            Mail::Auth(answer) => self.complete_auth(answer),
            Mail::Rights {
                number,
                change,
                reply,
            } => {
                self.settlings
                    .extend(reply.map(|reply| Settling::new(number, reply)));
                self.handle(Input::Rights { number, change });
            }
            Mail::Carried(mail) => self.take_carried(mail),
            Mail::Exchange(mail) => self.take_exchange(mail),
            Mail::Inspect(inspection) => self.inspect(inspection),
            Mail::Disconnect(key, reply) => self.disconnect(key, reply),
            Mail::Follow(tail) => self.sink.tails.get_or_insert_default().add(tail),
            Mail::RefuseNew => {
                self.is_refusing = true;
                self.handle(Input::Drain);
            }
            Mail::StopReading => self.stop_reading(),
            Mail::Quiet(reply) => self.quiet.push(reply),
            Mail::CloseAll {
                spread,
                patience,
                reply,
            } => {
                self.stop_reading();
                self.end_all_carried();
                self.end_all_detached();
                let keys = self.event_loop.connections().keys().collect();
                self.close_all = Some(CloseAll::start(
                    keys,
                    self.now.monotonic,
                    spread,
                    patience,
                    reply,
                ));
            }
            Mail::Stop => self.is_stopped = true,
        }
    }

    fn complete_auth(&mut self, answer: AuthAnswer) {
        let AuthAnswer {
            mut completion,
            token,
            is_held_off,
        } = answer;
        let key = key(completion.session);
        self.logins.remove(&key);
        if let Some(token) = token {
            self.carried.give_token(key, token);
        }
        if matches!(completion.outcome, AuthOutcome::Refused { .. })
            && let Some(peer) = self.carried.peer(key)
        {
            let address = peer.address.ip();
            self.backoff.refused_login(self.now.monotonic, address);
        }
        if matches!(completion.outcome, AuthOutcome::Unavailable) {
            // A request gets this answer at once. It can decide when to try again.
            let reason = match is_held_off {
                true => CloseReason::Refused,
                false => CloseReason::AuthUnavailable,
            };
            self.end_carried(key, End::Engine(reason));
        }
        let connection = self.namespaces.connection(key);
        let peer = match self.event_loop.connections_mut().get_mut(connection) {
            Some(socket) => &mut socket.state.peer,
            None => self.carried.peer(key),
        };
        if let AuthOutcome::Accepted(principal) = &mut completion.outcome {
            *principal = self.principals.share(Arc::clone(principal));
        }
        if let AuthOutcome::Accepted(principal) = &completion.outcome
            && let Some(peer) = peer.take()
        {
            self.keep_peer(connection, &peer);
            let (now, address) = (self.now.monotonic, peer.address.ip());
            let caller = || self.callers.caller(principal, address);
            if !self.carried.logged_in(key, caller) {
                return self.end_carried(key, End::Share);
            }
            if let Some(delay) = self.backoff.login(now, address, &principal.user_id) {
                self.delay(completion.session, delay);
            }
        }
        self.handle(Input::Auth(completion));
    }

    /// The peer of a connection. After the login, for a renewal, only the address and the certificate of its socket are known.
    fn peer(&mut self, key: Key) -> Option<Arc<PeerDetails>> {
        let key = self.namespaces.connection(key);
        let Some(connection) = self.event_loop.connections().get(key) else {
            let carried = self.carried.peer(key).clone();
            return carried.or_else(|| self.resumable.peer(key));
        };
        let known = connection.state.peer.clone();
        let known = known.or_else(|| self.namespaces.peer(key));
        known.or_else(|| self.exchanges.peer(key)).or_else(|| {
            let address = connection.peer_address()?;
            let certificate = connection.peer_certificate();
            Some(Arc::new(PeerDetails {
                certificate: certificate.map(|der| ClientCertificate(der.into())),
                ..PeerDetails::at(address)
            }))
        })
    }

    /// Delays the next answer of a session.
    fn delay(&mut self, session: SessionId, delay: Delay) {
        let stats = self.own.stats();
        add(&stats.backoff_waits, 1);
        add(&stats.backoff_refusals, u64::from(delay.refuse));
        self.handle(Input::Delay {
            session,
            until: delay.until,
            refuse: delay.refuse,
        });
    }

    /// Passes an input to the engine and executes the deferred effects.
    fn handle(&mut self, input: Input) {
        self.handle_charged(input, 0);
    }

    /// The same for an input of `bytes` bytes, which may cause posts to other shards.
    fn handle_charged(&mut self, input: Input, bytes: usize) {
        self.has_unflushed = true;
        self.engine.handle(self.now, input, &mut self.sink);
        if !self.sink.targets.is_empty() {
            self.charge(NO_CONNECTION, bytes);
        }
        self.run_deferred();
    }

    fn run_deferred(&mut self) {
        while let Some(effect) = self.sink.deferred.pop_front() {
            match effect {
                DeferredEffect::Visible(up_to) => {
                    self.engine
                        .handle(self.now, Input::InterestVisible { up_to }, &mut self.sink);
                    self.sink.targets.clear();
                }
                DeferredEffect::Authenticate(request) => {
                    let key = key(request.session);
                    if let Some(peer) = self.peer(key) {
                        match self.sink.ask_auth(request, peer) {
                            AuthReply::Answered(answer) => self.complete_auth(answer),
                            AuthReply::Waits(pending) => {
                                self.logins.insert(key, pending);
                            }
                        }
                    }
                }
                DeferredEffect::Close(session, CloseReason::Silent)
                    if self.is_held(key(session)) => {}
                DeferredEffect::Close(session, reason) => {
                    let key = key(session);
                    if reason.forfeits() {
                        self.carried.take_back(key);
                    }
                    self.end_carried(key, End::Engine(reason));
                    self.close_detached(self.namespaces.connection(key), reason);
                    if let Some(key) = self.end_in_namespace(key, reason) {
                        let cause = self.cause(key, reason);
                        self.close(key, cause);
                    }
                }
                DeferredEffect::Resume(session) if self.resumable.has_waiting(key(session)) => {
                    self.give_earlier(key(session));
                }
                DeferredEffect::Resume(session) => self.continue_session(key(session)),
                DeferredEffect::SessionRequest(session, request) => {
                    self.request_session(session, request);
                }
                DeferredEffect::AwaitDrained(session) => {
                    let connection = self.namespaces.connection(key(session));
                    self.event_loop.await_drained(connection);
                    self.await_carried(key(session));
                }
                DeferredEffect::Send(session, format, spans) => {
                    let count = self.sink.ends.count(format, &spans);
                    add(&self.own.stats().deliveries, count);
                    self.deliveries.list(count);
                    if format > CARRIED {
                        let (logs, event_loop) = (&self.sink.logs, &mut self.event_loop);
                        let ranges = (format, &spans[..]);
                        self.resumable
                            .deliver(key(session), ranges, count, logs, event_loop);
                        continue;
                    }
                    self.event_loop
                        .push_ranges(key(session), log_ranges(format, &spans));
                }
            }
        }
    }

    fn post(&mut self) {
        for (target, outgoing) in (0u16..).zip(&mut self.sink.outgoing) {
            if outgoing.is_empty() {
                continue;
            }
            let (batch, bytes) = self.credit.next_batch(target);
            let mail = Mail::Entries {
                from: self.address.shard,
                batch,
                since: self.deliveries.since(),
                bytes,
                entries: std::mem::take(outgoing),
            };
            self.handles[usize::from(target)].0.mailbox.push(mail);
        }
        if let Some(nodes) = &mut self.sink.nodes {
            nodes.end_turn();
        }
        self.report_congestion();
    }

    /// Logs it when the kernel stops supporting the way in which sends were submitted so far.
    fn watch_send_path(&mut self) {
        let path = self.event_loop.send_path();
        if path == self.send_path {
            return;
        }
        self.send_path = path;
        self.stats().set_send_path(path);
        if let Path::WithoutRing(cause) = path {
            let shard = self.address.shard;
            tracing::warn!(shard, %cause, "io_uring failed; each send is now a separate system call, and nothing was lost");
        }
    }

    fn publish_stats(&mut self, started: Instant) {
        let now = self.clock();
        let stats = self.own.stats();
        let counts = self.event_loop.counts();
        add(&stats.turns, 1);
        set(&stats.bytes_in, counts.bytes_in);
        set(&stats.bytes_out, counts.bytes_out);
        set(&stats.sends, counts.sends);
        set(&stats.short_sends, counts.short_sends);
        set(&stats.ring_submissions, counts.ring_submissions);
        set(&stats.outbox_bytes, self.event_loop.outbox_bytes() as u64);
        set(&stats.inbound_bytes, self.event_loop.inbound_bytes() as u64);
        set(&stats.inflight_bytes, self.credit.bytes() as u64);
        let turn_nanos = u64::try_from(now.since(started).as_nanos()).unwrap_or(u64::MAX);
        self.longest_turn.note(now, turn_nanos);
        set(&stats.turn_nanos_max, self.longest_turn.nanos());
        add(&stats.turns_by_time[time_index(turn_nanos)], 1);
        if self.sink.is_clustered {
            set(&stats.settled_view, self.engine.handed_over().0);
            set(&stats.heard_view, self.engine.heard_view().0);
        }
        if self.is_refusing || now.since(self.gauges_published) >= GAUGE_INTERVAL {
            self.gauges_published = now;
            stats.engine.set(self.engine.counts(), now);
            stats.engine.set_dirty(self.engine.dirty_by_store());
            // A number of the node, which only its first shard reports.
            if self.address.shard == 0 {
                set(&stats.backoff_entries, self.backoff.entry_count() as u64);
            }
        }
        set(&stats.last_turn_end, now.0);
    }
}

impl flush_policy::Owner for Conductor {
    type State = State;

    fn event_loop(&mut self) -> &mut EventLoop<State> {
        &mut self.event_loop
    }

    fn owed_count(&self) -> usize {
        self.engine.owed_count()
    }

    fn turn_bytes(&self) -> usize {
        let work = self.engine.work().wrapping_sub(self.log_work_start);
        self.turn_bytes.max(work as usize / WORK_PER_BYTE)
    }

    fn turn_time(&self) -> Duration {
        self.clock().since(self.turn_started)
    }

    fn may_read(&self) -> bool {
        Self::may_read(self) && !self.expensive_reads.are_postponed()
    }

    fn take_input(&mut self) -> io::Result<()> {
        self.take_in();
        Ok(())
    }

    fn send_slice(&mut self) {
        self.decide();
        self.list_sends(SLICE_SENDS_MAX);
        self.submit_slice();
    }
}

fn key(session: SessionId) -> Key {
    Key {
        index: session.index,
        generation: session.generation,
    }
}

/// Ranges of a format whose messages have separate frames.
fn log_ranges(format: Format, spans: &[Span]) -> impl Iterator<Item = LogRange> {
    spans.iter().map(move |span| LogRange {
        format: format.0,
        range: span.start..span.end,
    })
}
