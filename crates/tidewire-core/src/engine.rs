//! The engine of one shard: one call in, effects out.
//!
//! It routes; the primitives decide. What a shard has to tell itself goes through the same entries as what it tells
//! others, in order, before the call returns.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::address::{Address, SessionId};
use crate::barrier::Barrier;
use crate::desk::{Desk, Gatherings, Interest, Place};
use crate::effect::{
    CloseReason, Effects, Flow, Format, Input, InterestTopic, News, Span, StoreCompletion,
};
use crate::entry::{
    Answer, Asker, Entry, Gather, GatheredPart, Gathering, HistoryEntry, ReadFailed, RecordAnswer,
};
use crate::event;
use crate::expiry::Expiries;
use crate::history::owner::HistoryOwner;
use crate::history::{self, HistoryCounts};
use crate::hub::{Hub, HubTopic};
use crate::lag;
use crate::limits::{LagCounts, Refused};
use crate::listen::{self, ListenOwner};
use crate::login::{self, Decided};
use crate::look::{LookedAt, SessionView, SubscribedName};
use crate::message::{Auth, Connection, Event, EventBulk, Listen, Message, Rpc};
use crate::permission::Permission;
use crate::presence::{self, PresenceOwner};
use crate::rate::{RateKeeper, RateOwner, is_compiled};
use crate::recheck::Recheck;
use crate::record::commit::Commits;
use crate::record::{home, owner::RecordOwner};
use crate::rights::{Revocations, Revoked, RightsChange};
use crate::route::StoreId;
use crate::rpc::{self, RpcOwner};
use crate::session::{Phase, RuleReads, Seat, Session, Sessions};
use crate::settings::Settings;
use crate::store::{Opened, Version};
use crate::sweep::Sweep;
use crate::table;
use crate::text::{Name, Payload};
use crate::time::{Instant, Now};
use crate::timer::DeadlineQueue;

/// What a shard is made of.
#[derive(Debug)]
pub struct ShardConfig {
    /// Which shard it is.
    pub address: Address,
    /// How many the node has.
    pub shard_count: u16,
    /// Durations, switches and limits.
    pub settings: Settings,
    /// The judge.
    pub permission: Arc<dyn Permission>,
    /// For tables and dice; clients must not be able to guess it.
    pub seed: u64,
    /// For the owner hash; the same on all shards, and clients must not be able to guess it.
    pub owner_key: u64,
    /// What each store said when it was opened, by number. Never empty.
    pub opened: Vec<Opened>,
}

/// Numbers for metrics and for whoever waits until a shard is quiet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions in every phase.
    pub sessions: usize,
    /// Sessions whose next answer is held back.
    pub detained: usize,
    /// Sessions whose login expires at some time.
    pub expiring: usize,
    /// Sessions that were ended because it did. Only grows.
    pub expired: u64,
    /// Subscriptions, registrations and patterns that ended because the right to them was lost. Only grows.
    pub rights_lost: u64,
    /// Sessions that were ended because their login was revoked. Only grows.
    pub revoked: u64,
    /// Revocations that logins are checked against.
    pub revocations: usize,
    /// Names with subscribers on this shard.
    pub subscribed_names: usize,
    /// Records in memory that this shard owns.
    pub records: usize,
    /// Their bytes.
    pub record_bytes: usize,
    /// Records that the store has not got yet.
    pub dirty_records: usize,
    /// Their bytes.
    pub dirty_bytes: usize,
    /// Keys of writes that are remembered.
    pub write_keys: usize,
    /// Commits that failed since the last one that did not.
    pub commit_failures: u32,
    /// Running calls of the rpc names that this shard owns.
    pub calls: usize,
    /// Listen patterns.
    pub patterns: usize,
    /// Names of this shard that some shard has subscribers of: records, and events while somebody listens to events.
    pub wanted_names: usize,
    /// Rpc names of this shard with providers.
    pub provided_rpcs: usize,
    /// Users of this shard that are online.
    pub users_online: usize,
    /// Answers that wait for several shards.
    pub gatherings: usize,
    /// Sessions that do not read fast enough, and what was left out for them.
    pub lag: LagCounts,
    /// Events with history that this shard owns.
    pub history: HistoryCounts,
    /// Names with members that are left out of what is published because they lag.
    pub parked_names: usize,
    /// How often limits and rules were in somebody's way.
    pub refused: Refused,
    /// Sessions whose message waits for a rate.
    pub throttled: usize,
}

/// The engine of one shard. See the head of this file.
#[derive(Debug)]
pub struct Shard {
    place: Place,
    sessions: Sessions,
    hub: Hub,
    interest: Interest,
    gatherings: Gatherings,
    local: VecDeque<Entry>,
    records: RecordOwner,
    listens: ListenOwner,
    rpcs: RpcOwner,
    presences: PresenceOwner,
    histories: HistoryOwner,
    rates: RateKeeper,
    user_rates: RateOwner,
    heartbeats: Sweep,
    logins: DeadlineQueue<Seat>,
    /// Sessions whose next answer is held back, by the end of that. Their waits differ, so no queue will do.
    detentions: BTreeSet<(Instant, SessionId)>,
    expiries: Expiries,
    barrier: Barrier,
    recheck: Recheck,
}

/// What a shard has beside its desk: the owners of names, and the clocks of its sessions.
struct Parts<'a> {
    records: &'a mut RecordOwner,
    listens: &'a mut ListenOwner,
    rpcs: &'a mut RpcOwner,
    presences: &'a mut PresenceOwner,
    histories: &'a mut HistoryOwner,
    rates: &'a mut RateKeeper,
    user_rates: &'a mut RateOwner,
    heartbeats: &'a mut Sweep,
    logins: &'a mut DeadlineQueue<Seat>,
    detentions: &'a mut BTreeSet<(Instant, SessionId)>,
    expiries: &'a mut Expiries,
    recheck: &'a mut Recheck,
}

impl Shard {
    /// A shard without sessions.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let ShardConfig {
            address,
            shard_count,
            settings,
            permission,
            seed,
            owner_key,
            opened,
        } = config;
        Self {
            place: Place {
                address,
                shard_count,
                is_rated: !settings.rates.is_off(),
                owner_hash: FixedState::with_seed(owner_key),
                settings,
                permission,
                seed,
                draining: false,
                refused: Cell::default(),
                lag: Cell::default(),
                expired: 0,
                revoked: 0,
                revocations: Revocations::default(),
            },
            sessions: Sessions::new(),
            hub: Hub::new(seed),
            interest: Interest::default(),
            gatherings: Gatherings {
                next: 0,
                running: table::map(seed),
            },
            local: VecDeque::new(),
            records: RecordOwner::new(seed, &opened, address.shard),
            listens: ListenOwner::new(seed),
            rpcs: RpcOwner::new(seed),
            presences: PresenceOwner::default(),
            histories: HistoryOwner::new(seed, opened[StoreId::DEFAULT.index()]),
            rates: RateKeeper::new(seed),
            user_rates: RateOwner::new(seed),
            heartbeats: Sweep::default(),
            logins: DeadlineQueue::new(),
            detentions: BTreeSet::new(),
            expiries: Expiries::default(),
            barrier: Barrier::new(address, shard_count),
            recheck: Recheck::new(seed),
        }
    }

    /// Handles everything that is not a session's message.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut impl Effects) {
        match input {
            Input::Opened { session, format } => self.opened(now, session, format),
            Input::Undecodable { session } => {
                self.heard(session, now);
                login::undecodable(&mut self.desk(now, out), session);
            }
            Input::Detain {
                session,
                until,
                refuse,
            } => {
                if login::detain(&mut self.desk(now, out), session, until, refuse) {
                    self.detentions.insert((until, session));
                }
            }
            Input::Lagging { session } => lag::fell_behind(&mut self.desk(now, out), session),
            Input::Drained { session } => {
                let mut desk = self.desk(now, out);
                lag::drained(&mut desk, session);
                history::home::drained(&mut desk, session);
            }
            Input::Closed { session } => self.closed(now, session, out),
            Input::Entry(entry) => self.entry(now, entry, out),
            Input::Store(StoreCompletion::Loaded { records }) => {
                let (mut desk, parts) = self.split(now, out);
                for (name, result) in records {
                    if history::is_row(&name) {
                        parts.histories.loaded(&mut desk, &name, result);
                        continue;
                    }
                    parts
                        .records
                        .loaded(&mut desk, parts.listens, &name, result);
                }
            }
            Input::Store(StoreCompletion::Committed {
                store,
                batch,
                result,
            }) => {
                let (mut desk, parts) = self.split(now, out);
                if history::is_batch(batch) {
                    parts
                        .histories
                        .committed(&mut desk, batch, result.map(drop));
                } else {
                    parts.records.committed(&mut desk, store, batch, result);
                }
            }
            Input::Auth(completion) => {
                let session = completion.session;
                let (mut desk, mut parts) = self.split(now, out);
                match login::decided(&mut desk, session, completion.outcome) {
                    Decided::Revoked => {
                        self.place.revoked += 1;
                        self.expel(now, session, CloseReason::Revoked, out);
                    }
                    decided => parts.logged_in(&desk, session, decided),
                }
            }
            Input::InterestVisible { up_to } => self.desk(now, out).interest_visible(up_to),
            Input::Rights { number, change } => self.change(now, number, change, out),
            Input::DeadlineReached => self.deadline_reached(now, out),
            Input::Drain => self.place.draining = true,
        }
        self.tell_self(now, out);
        if !self.recheck.is_sweeping() {
            self.barrier.all_judged();
        }
    }

    /// Handles a message of a session. After [`Flow::Wait`] the same message is given again once
    /// [`Effects::resume`] was called, and no later one before.
    pub fn message(
        &mut self,
        now: Now,
        id: SessionId,
        message: &Message<'_>,
        out: &mut impl Effects,
    ) -> Flow {
        self.heard(id, now);
        let (mut desk, parts) = self.split(now, out);
        let open = desk
            .sessions
            .find(id)
            .is_some_and(|session| matches!(session.phase, Phase::Open(_)));
        let flow = if !open {
            login::message(&mut desk, id, message)
        } else if (desk.place.is_rated || is_compiled(message))
            && !parts.rates.admits(&mut desk, id, message)
        {
            Flow::Wait
        } else {
            route(&mut desk, id, message)
        };
        if flow == Flow::Taken
            && let Some(session) = self.sessions.find_mut(id)
            && let Some(belongings) = &mut session.belongings
        {
            belongings.rule_reads = RuleReads::default();
            if let Some(spending) = &mut belongings.spending {
                spending.has_paid = false;
            }
        }
        self.tell_self(now, out);
        flow
    }

    /// Changes how to encode for a session, before it has subscribed to anything. What was decided for it before is not owed any
    /// more: its ranges of the log of the format that it had are given back, to be sent at once.
    #[must_use]
    pub fn set_format(
        &mut self,
        session: SessionId,
        format: Format,
    ) -> Option<(Format, Vec<Span>)> {
        let session = self.sessions.find_mut(session)?;
        let before = std::mem::replace(&mut session.format, format);
        if before == format {
            return None;
        }
        let answers = self.hub.take_answers(session.id.index, before);
        (!answers.is_empty()).then_some((before, answers))
    }

    /// Changes of rights up to this number are settled here: the sessions of this shard hold what they may, and nothing
    /// that was judged before is on its way to it.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.barrier.settled()
    }

    /// The sessions that have lost something to a change of rights since the last call.
    pub fn take_losers(&mut self) -> BTreeSet<SessionId> {
        self.recheck.take_losers()
    }

    /// Has presence not count a session, before it has logged in: it lives for one request, and a user who is online for a
    /// millisecond is no news.
    pub fn set_passing(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.find_mut(session) {
            session.is_passing = true;
        }
    }

    /// The user id of an open session.
    #[must_use]
    pub fn user(&self, session: SessionId) -> Option<&Name> {
        let session = self.sessions.find(session)?;
        session.principal().map(|principal| &principal.user_id)
    }

    /// Ends a turn: asks the store for what the turn needs and gives it what the turn wrote.
    pub fn end_turn(&mut self, now: Now, out: &mut impl Effects) {
        self.records.end_turn(now.monotonic, out);
        self.histories.end_turn(now.monotonic, out);
    }

    /// Calls `send` for each session that something was decided for since the last flush, with its ranges of the format's
    /// log in order.
    pub fn flush(&mut self, send: impl FnMut(SessionId, Format, &[Span])) {
        self.flush_some(usize::MAX, send);
    }

    /// The same for `count` of these sessions at most. What is decided before the next call goes to all others together
    /// with the rest, and again to those that were called with; small answers go first.
    pub fn flush_some(&mut self, count: usize, send: impl FnMut(SessionId, Format, &[Span])) {
        self.hub.collect(&self.sessions);
        self.hub.flush_some(count, &self.sessions, send);
    }

    /// About how many sessions [`Shard::flush`] would name.
    #[must_use]
    pub fn owed_count(&self) -> usize {
        self.hub.owed_count()
    }

    /// When [`Input::DeadlineReached`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.records.next_deadline(),
            self.listens.next_deadline(),
            self.rpcs.next_deadline(),
            self.histories.next_deadline(),
            self.rates.next_deadline(),
            self.user_rates.next_deadline(),
            self.heartbeats.next(),
            self.logins.next(),
            self.detentions.first().map(|(until, _)| *until),
            self.expiries.next(),
            self.recheck.next(),
        ];
        // As numbers, because this is asked several times a turn, and comparing options takes four times as long.
        let nanos = deadlines.map(|deadline| deadline.map_or(u64::MAX, |deadline| deadline.0));
        let first = nanos.into_iter().fold(u64::MAX, u64::min);
        (first < u64::MAX).then_some(Instant(first))
    }

    /// Bytes of the records in memory that this shard owns.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Whether the store has not got everything yet.
    #[must_use]
    pub fn is_uncommitted(&self) -> bool {
        self.records.is_dirty() || self.histories.is_uncommitted()
    }

    /// Bytes of the events with history that this shard owns.
    #[must_use]
    pub fn history_bytes(&self) -> usize {
        let counts = self.histories.counts();
        counts.bytes + counts.pending_bytes
    }

    /// Gives up at least `bytes` of the records that nobody uses and that the store has, those not used for longest first, or
    /// all of them. How many bytes it were; fewer than asked for means that the others are in use.
    pub fn shrink_cache(&mut self, bytes: usize) -> usize {
        self.records.shrink(&self.place.settings, bytes)
    }

    /// Records that each store has not got yet, by its number.
    pub fn dirty_by_store(&self) -> impl Iterator<Item = usize> {
        self.records.dirty().map(Commits::count)
    }

    /// The names with subscribers on this shard that lie in `count` places from `first` on: a look at all of them is made of
    /// many short ones, between which the shard does its work.
    #[must_use]
    pub fn look_at_names(&self, first: usize, count: usize) -> LookedAt<SubscribedName> {
        let place_count = self.hub.place_count();
        let end = first.saturating_add(count).min(place_count);
        let names = self.hub.names_at(first.min(end)..end);
        LookedAt {
            found: names.filter_map(SubscribedName::new).collect(),
            next: (end < place_count).then_some(end),
        }
    }

    /// What there is to see of a session.
    #[must_use]
    pub fn look_at_session(&self, session: SessionId) -> Option<SessionView> {
        self.sessions.find(session).map(SessionView::new)
    }

    /// Numbers of the moment.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.count(),
            detained: self.detentions.len(),
            expiring: self.expiries.count(),
            expired: self.place.expired,
            revoked: self.place.revoked,
            revocations: self.place.revocations.count(),
            rights_lost: self.recheck.lost_count(),
            subscribed_names: self.hub.name_count(),
            records: self.records.count(),
            record_bytes: self.records.bytes(),
            dirty_records: self.records.dirty().map(Commits::count).sum(),
            dirty_bytes: self.records.dirty().map(Commits::bytes).sum(),
            write_keys: self.records.write_key_count(),
            commit_failures: self.records.dirty().map(Commits::failures).sum(),
            calls: self.rpcs.call_count(),
            patterns: self.listens.pattern_count(),
            wanted_names: self.listens.wanted_count(),
            provided_rpcs: self.rpcs.name_count(),
            users_online: self.presences.count_online(),
            gatherings: self.gatherings.running.len(),
            lag: self.place.lag.get(),
            history: self.histories.counts(),
            parked_names: self.hub.parked_count(),
            refused: self.place.refused.get(),
            throttled: self.rates.waiting_count(),
        }
    }

    fn desk<'a, E: Effects>(&'a mut self, now: Now, out: &'a mut E) -> Desk<'a, E> {
        self.split(now, out).0
    }

    /// The desk of this call, and beside it the parts that act on it.
    fn split<'a, E: Effects>(&'a mut self, now: Now, out: &'a mut E) -> (Desk<'a, E>, Parts<'a>) {
        let desk = Desk {
            now,
            place: &self.place,
            sessions: &mut self.sessions,
            hub: &mut self.hub,
            interest: &mut self.interest,
            gatherings: &mut self.gatherings,
            local: &mut self.local,
            out,
        };
        let parts = Parts {
            records: &mut self.records,
            listens: &mut self.listens,
            rpcs: &mut self.rpcs,
            presences: &mut self.presences,
            histories: &mut self.histories,
            rates: &mut self.rates,
            user_rates: &mut self.user_rates,
            heartbeats: &mut self.heartbeats,
            logins: &mut self.logins,
            detentions: &mut self.detentions,
            expiries: &mut self.expiries,
            recheck: &mut self.recheck,
        };
        (desk, parts)
    }

    fn opened(&mut self, now: Now, session: SessionId, format: Format) {
        self.sessions.open(session, format, now.monotonic);
        self.heartbeats
            .begin(now.monotonic, self.place.settings.heartbeat_interval);
        if let Some(timeout) = self.place.settings.login_timeout {
            let (sessions, home) = (&self.sessions, self.place.address);
            self.logins.drop_front_while(|seat| {
                let waiting = sessions.find(seat.session(home));
                waiting.is_none_or(|session| session.principal().is_some())
            });
            self.logins.push(now.monotonic + timeout, Seat::of(session));
        }
    }

    fn heard(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.find_mut(id) {
            session.heard = now.monotonic;
        }
    }

    /// Gives back all that the session held. Everything is posted behind the session's own messages.
    fn closed<E: Effects>(&mut self, now: Now, id: SessionId, out: &mut E) {
        let (mut desk, parts) = self.split(now, out);
        let emptied = desk.hub.leave_all(id, desk.sessions);
        let Some(mut session) = desk.sessions.remove(id) else {
            return;
        };
        if let Phase::Detained(detention) = &session.phase {
            parts.detentions.remove(&(detention.until, id));
        }
        for (topic, name) in emptied {
            match topic {
                HubTopic::Interest(InterestTopic::Event) => event::lost_last(&mut desk, name),
                HubTopic::Interest(topic) => presence::lost_last(&mut desk, topic, name),
                HubTopic::Record => {}
            }
        }
        let mut belongings = session.belongings.take();
        if belongings.as_ref().is_some_and(|with| with.lag.is_some()) {
            desk.place.count_lag(|lag| lag.sessions -= 1);
        }
        if let Some(spending) = belongings.as_ref().and_then(|with| with.spending.as_ref()) {
            let user = session.principal().map(|principal| &principal.user_id);
            parts.rates.session_ended(id, user, spending);
        }
        let has_offered = belongings.as_ref().is_some_and(|with| with.has_offered);
        let follows = belongings.as_mut().and_then(|with| with.follows.take());
        history::home::release_all(&mut desk, follows);
        let holds = belongings.into_iter().flat_map(|with| with.holds);
        home::release_all(&mut desk, holds);
        if session.calls > 0 || has_offered {
            desk.post_all(&Entry::SessionEnded { session: id });
        }
        if let Some(expires_at) = session
            .principal()
            .and_then(|principal| principal.expires_at())
        {
            parts.expiries.remove(expires_at, Seat::of(id));
        }
        if let Some(principal) = session.principal().filter(|_| !session.is_passing) {
            login::count_online(&mut desk, &principal.user_id, id, false);
        }
    }

    fn tell_self<E: Effects>(&mut self, now: Now, out: &mut E) {
        loop {
            while let Some(entry) = self.local.pop_front() {
                self.entry(now, entry, out);
            }
            let changes = std::mem::take(&mut self.listens.changes);
            if changes.is_empty() && self.local.is_empty() {
                return;
            }
            let (mut desk, parts) = self.split(now, out);
            for change in changes {
                parts
                    .records
                    .provider_changed(&mut desk, &change.name, change.provided);
            }
        }
    }

    /// Takes a change of rights over, unless it is known, and says so to all others behind everything posted before.
    fn change<E: Effects>(&mut self, now: Now, number: u64, change: RightsChange, out: &mut E) {
        if !self.barrier.is_new(number) {
            return;
        }
        match &change {
            RightsChange::Rules(permission) => {
                self.place.permission = permission.clone();
                self.recheck.begin();
                self.barrier.take_over(number, true);
            }
            RightsChange::Revoke(revocation) => {
                self.place.revocations.add(revocation.clone(), now.wall);
                self.revoke(now, &revocation.what, out);
                self.barrier.take_over(number, false);
            }
            RightsChange::Restore(what) => {
                self.place.revocations.remove(what);
                self.barrier.take_over(number, false);
            }
        }
        let from = self.place.address;
        for shard in self.place.shards().filter(|shard| *shard != from) {
            let change = change.clone();
            out.post(
                shard,
                Entry::Rights {
                    from,
                    number,
                    change,
                },
            );
        }
        self.pass_on(out);
    }

    /// Says to all others when all markers of a change are in, behind everything that was posted before.
    fn pass_on<E: Effects>(&mut self, out: &mut E) {
        let Some(number) = self.barrier.newly_passed() else {
            return;
        };
        let from = self.place.address;
        for shard in self.place.shards().filter(|shard| *shard != from) {
            out.post(shard, Entry::RightsPassed { from, number });
        }
    }

    /// Ends the sessions of whoever was revoked.
    fn revoke<E: Effects>(&mut self, now: Now, what: &Revoked, out: &mut E) {
        for place in 0..self.sessions.place_count() as u32 {
            let session = self.sessions.at(place);
            let revoked = session.filter(|session| {
                let principal = session.principal();
                principal.is_some_and(|principal| what.covers(principal))
            });
            if let Some(id) = revoked.map(|session| session.id) {
                self.place.revoked += 1;
                self.expel(now, id, CloseReason::Revoked, out);
            }
        }
    }

    fn entry<E: Effects>(&mut self, now: Now, entry: Entry, out: &mut E) {
        if let Entry::Rights {
            from,
            number,
            change,
        } = entry
        {
            self.change(now, number, change, out);
            self.barrier.mark(from, number);
            return self.pass_on(out);
        }
        if let Entry::RightsPassed { from, number } = entry {
            return self.barrier.pass(from, number);
        }
        let (mut desk, parts) = self.split(now, out);
        let desk = &mut desk;
        let Parts {
            records,
            listens,
            rpcs,
            presences,
            histories,
            rates,
            user_rates,
            recheck,
            ..
        } = parts;
        match entry {
            Entry::RateAsked {
                user,
                operation,
                shard,
            } => user_rates.asked(desk, user, operation, shard),
            Entry::RateGranted {
                user,
                operation,
                count,
            } => rates.granted(desk, &user, operation, count),
            Entry::Publication(publication) => match publication.as_news() {
                News::Event { name, data, trace } => {
                    let event = Event::published(name, data, None, trace);
                    event::deliver(desk, name, event, None);
                }
                news @ News::User { .. } => presence::deliver(desk, &news),
            },
            Entry::History(entry) => match entry {
                HistoryEntry::Emit {
                    name,
                    data,
                    publisher,
                    trace,
                } => histories.emit(desk, &name, data.as_ref(), publisher, trace),
                HistoryEntry::Read(read) => histories.read(desk, *read),
                HistoryEntry::Refused { publisher, name } => {
                    event::refuse_emit(desk, publisher, &name);
                }
                HistoryEntry::Release { name, shard } => histories.release(desk, &name, shard),
                HistoryEntry::Published {
                    name,
                    offset,
                    data,
                    except,
                    trace,
                } => {
                    let data = data.as_ref().map(Payload::as_str);
                    let event = Event::published(&name, data, Some(offset), trace.as_deref());
                    event::deliver(desk, &name, event, Some(except));
                }
                HistoryEntry::Page(page) => history::home::page(desk, *page),
            },
            Entry::RecordRequest(request) => records.request(desk, listens, request),
            Entry::RecordRelease { name, epoch, shard } => {
                records.release(desk, listens, &name, epoch, shard)
            }
            Entry::RecordAnswer(RecordAnswer {
                what: Answer::Rechecked { ticket, lost },
                ..
            }) => recheck.record_judged(desk, ticket, lost),
            Entry::RecordAnswer(answer) => {
                let part = answer
                    .gather
                    .map(|gather| (gather, !matches!(answer.what, Answer::Refused { .. })));
                if home::answered(desk, answer)
                    && let Some((gather, allowed)) = part
                {
                    gathered(desk, gather, allowed, GatheredPart::Done);
                }
            }
            Entry::RecordPublished { name, what, except } => {
                home::published(desk, &name, &what, except)
            }
            Entry::ReadValue { name, asker } => records.read_value(desk, name, asker),
            Entry::Value {
                name,
                asker: Asker::Session(session),
                value,
            } => value_read(desk, session, name, data_of(value)),
            Entry::Value {
                name,
                asker: Asker::Lagging(session),
                value,
            } => lag::value_came(desk, session, &name, value),
            Entry::Value {
                name,
                asker: Asker::Recheck { ticket, .. },
                value,
            } => recheck.value(desk, ticket, name, data_of(value)),
            Entry::Value {
                name,
                asker: Asker::Record { name: waiting, .. },
                value,
            } => {
                records.value(desk, listens, &waiting, name, data_of(value));
            }
            Entry::Listening(entry) => listens.handle(desk, entry),
            Entry::ListenNotice {
                provider,
                topic,
                pattern,
                name,
                notice,
            } => {
                listen::notify(desk, provider, topic, &pattern, &name, notice);
            }
            Entry::Rpc(entry) => rpcs.handle(desk, entry),
            Entry::RpcDelivery(delivery) => rpc::deliver(desk, &delivery),
            Entry::Online { user, session } => presences.count(desk, user, Some(session)),
            Entry::Offline { user } => presences.count(desk, user, None),
            Entry::PresenceQuery { gather, users } => presences.query(desk, gather, users),
            Entry::Gathered { gather, part } => gathered(desk, gather, true, part),
            Entry::SessionEnded { session } => {
                listens.session_ended(desk, session);
                rpcs.session_ended(desk, session);
            }
            // Taken above.
            Entry::Rights { .. } | Entry::RightsPassed { .. } => {}
        }
    }

    fn deadline_reached<E: Effects>(&mut self, now: Now, out: &mut E) {
        let (mut desk, mut parts) = self.split(now, out);
        parts.recheck.advance(&mut desk);
        parts.records.deadline_reached(&mut desk);
        parts.listens.deadline_reached(&mut desk);
        parts.rpcs.deadline_reached(&mut desk);
        parts.histories.deadline_reached(&desk);
        parts.rates.deadline_reached(&mut desk);
        parts.user_rates.deadline_reached(&mut desk);
        while let Some((until, session)) = parts.detentions.first().copied()
            && until <= now.monotonic
        {
            parts.detentions.pop_first();
            let decided = login::release(&mut desk, session);
            parts.logged_in(&desk, session, decided);
        }
        let home = desk.place.address;
        while let Some(seat) = parts.logins.pop_due(now.monotonic) {
            if login::timed_out(&mut desk, seat.session(home))
                && let Some(timeout) = desk.place.settings.login_timeout
            {
                parts.logins.push(now.monotonic + timeout, seat);
            }
        }
        let interval = desk.place.settings.heartbeat_interval;
        if desk.sessions.count() == 0 {
            parts.heartbeats.end();
        }
        let (sessions, closes) = (&desk.sessions, &mut desk.out);
        let place_count = sessions.place_count();
        parts
            .heartbeats
            .advance(now.monotonic, interval, place_count, |place| {
                if let Some(session) = sessions.at(place as u32)
                    && now.monotonic.since(session.heard) > interval * 2
                    && !session.is_throttled()
                {
                    closes.close(session.id, CloseReason::Silent);
                }
            });
        while let Some(seat) = self.expiries.pop_due(now) {
            self.place.expired += 1;
            self.expel(now, seat.session(home), CloseReason::Expired, out);
        }
    }

    /// Ends a session that is nobody any more: it gets nothing from here on, not even what it is owed.
    fn expel<E: Effects>(&mut self, now: Now, id: SessionId, reason: CloseReason, out: &mut E) {
        out.close(id, reason);
        self.closed(now, id, out);
    }
}

impl Parts<'_> {
    /// The auth chain has decided about a session: it is held back, or it may be open now, or it has another principal.
    fn logged_in<E: Effects>(&mut self, desk: &Desk<'_, E>, id: SessionId, decided: Decided) {
        let Some(principal) = desk.sessions.find(id).and_then(Session::principal) else {
            if let Decided::Held(until) = decided {
                self.detentions.insert((until, id));
            }
            return;
        };
        if let Decided::Renewed(before) = decided {
            if let Some(expires_at) = before.expires_at() {
                self.expiries.remove(expires_at, Seat::of(id));
            }
            if !before.is_alike(principal) {
                self.recheck.renew(id);
            }
        }
        if let Some(expires_at) = principal.expires_at() {
            self.expiries.add(desk.now, expires_at, Seat::of(id));
        }
    }
}

/// One match on the primitive.
fn route<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId, message: &Message<'_>) -> Flow {
    match message {
        Message::Connection(Connection::Ping) => {
            desk.send(id, &Message::Connection(Connection::Pong))
        }
        Message::Event(message) => return event::message(desk, id, message),
        Message::Record(message) => return home::message(desk, id, message),
        Message::Rpc(message) => return rpc::message(desk, id, message),
        Message::Presence(message) => return presence::message(desk, id, message),
        Message::Auth(Auth::Request { data }) => return login::renew(desk, id, *data),
        Message::Connection(_) | Message::Auth(_) | Message::UnknownTopic => {
            desk.send(id, &Message::UnknownTopic)
        }
        Message::UnknownAction { .. } => {}
    }
    Flow::Taken
}

/// Rules do not look at versions.
fn data_of(
    value: Result<Option<(Version, Payload)>, ReadFailed>,
) -> Result<Option<Payload>, ReadFailed> {
    value.map(|value| value.map(|(_, data)| data))
}

/// The value that a session's rule asked for has come; its message is given again.
fn value_read<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    name: Name,
    value: Result<Option<Payload>, ReadFailed>,
) {
    let Some(session) = desk.sessions.find_mut(id) else {
        return;
    };
    let reads = &mut session.belongings(desk.place.seed).rule_reads;
    match value {
        Ok(value) => reads.values.push((name, value)),
        Err(ReadFailed) => reads.failed = true,
    }
    desk.out.resume(id);
}

/// One part of a gathering is in; with the last one it is answered.
fn gathered<E: Effects>(
    desk: &mut Desk<'_, E>,
    gather: Gather,
    was_allowed: bool,
    part: GatheredPart,
) {
    let Some(running) = desk.gatherings.running.get_mut(&gather.number) else {
        return;
    };
    running.missing -= 1;
    match (&mut running.what, part) {
        (Gathering::Record { allowed, .. }, GatheredPart::Done) => *allowed |= was_allowed,
        (Gathering::Presence { online, .. }, GatheredPart::Users(mut users)) => {
            online.append(&mut users)
        }
        _ => {}
    }
    if running.missing > 0 {
        return;
    }
    let Some(done) = desk.gatherings.running.remove(&gather.number) else {
        return;
    };
    let id = done.session;
    match done.what {
        Gathering::Record {
            action,
            names,
            correlation,
            allowed,
        } => {
            if allowed {
                home::acknowledge(desk, id, action, &names, correlation.as_deref());
            }
        }
        Gathering::Event { correlation } => {
            let ack = Event::Ack {
                action: EventBulk::Subscribe,
                correlation: correlation.as_deref(),
            };
            desk.send(id, &Message::Event(ack));
        }
        Gathering::Listen { topic, pattern } => {
            desk.send(
                id,
                &listen::wrap(topic, Listen::ListenAck { pattern: &pattern }),
            );
        }
        Gathering::Unlisten { topic, pattern } => {
            desk.send(
                id,
                &listen::wrap(topic, Listen::UnlistenAck { pattern: &pattern }),
            );
        }
        Gathering::Provide {
            provide,
            correlation,
        } => {
            desk.send(
                id,
                &Message::Rpc(Rpc::Ack {
                    provide,
                    correlation: correlation.as_deref(),
                }),
            );
        }
        Gathering::Presence {
            action,
            correlation,
            asked,
            online,
        } => {
            presence::answer(desk, id, action, correlation.as_deref(), &asked, online);
        }
    }
}
