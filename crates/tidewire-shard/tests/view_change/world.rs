//! Nodes with their clients, the registry and the store, in virtual time.

mod events;
mod membership;
mod queries;
mod rights;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, CloseReason, Flow, Format, Input};
use tidewire_core::engine::Shard;
use tidewire_core::entry::Entry;
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::message::{Auth, Message, Position};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::slot::TagRules;
use tidewire_core::text::Name;
use tidewire_core::time::{Instant, Now, WallTime};
use tidewire_core::view::{MemberId, MemberState, View};

use crate::client::{
    Client, EVENTS, GROUPS, Heard, Known, Members, RECORDS, RPCS, SCOPES, Said, Writes, member_id,
    with_message, writes,
};
use crate::met::Met;
use crate::outside::{Mail, Outside};
use crate::random::Random;
use crate::store::Store;
use crate::views::Views;
use events::Events;
use queries::Queries;
use rights::{REVOCABLE, Rights, is_guarded};
use transactions::Transactions;

const NODES_MAX: u16 = 4;
const CLIENTS: usize = 12;
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 2_000;

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub String);

type Checked = Result<(), Violation>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation(why())),
    }
}

/// A process.
#[derive(Debug)]
struct Node {
    birth: u64,
    /// The newest view that its driver has passed to its shards.
    view: View,
    /// The processes that it has linked.
    linked: BTreeMap<u16, u64>,
    /// The processes whose links have ended without a report to its shards.
    unreported: Vec<(u16, u64)>,
}

/// See the documentation of this module.
pub struct World {
    seed: u64,
    random: Random,
    now: Now,
    views: Views,
    nodes: BTreeMap<u16, Node>,
    shards: BTreeMap<Address, Shard>,
    outside: Outside,
    store: Store,
    clients: Vec<Client>,
    next_session: u32,
    next_write: u64,
    /// The acknowledged writes of each record.
    acknowledged: BTreeMap<&'static str, Writes>,
    written: BTreeMap<u64, &'static str>,
    transactions: Transactions,
    queries: Queries,
    has_crashes: bool,
    /// No node crashes, and no view is made before the hand-over of the one before is complete everywhere. Then no request is refused.
    is_planned: bool,
    events: Events,
    rights: Rights,
    met: Met,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let has_crashes = random.chance(60);
        let is_planned = !has_crashes && random.chance(50);
        let mut world = Self {
            seed,
            random,
            now: Now {
                monotonic: Instant(1_000_000_000),
                wall: WallTime(1_700_000_000_000),
            },
            views: Views::new(seed),
            nodes: BTreeMap::new(),
            shards: BTreeMap::new(),
            outside: Outside::new(),
            store: Store::default(),
            clients: Vec::new(),
            next_session: 0,
            next_write: 0,
            acknowledged: BTreeMap::new(),
            written: BTreeMap::new(),
            transactions: Transactions::default(),
            queries: Queries::default(),
            has_crashes,
            is_planned,
            events: Events::default(),
            rights: Rights::default(),
            met: Met::default(),
        };
        world.start(1, MemberState::Active);
        for node in 2..=1 + world.random.below(3) as u16 {
            world.start(node, MemberState::Active);
        }
        world
    }

    /// Runs with changes of views, then until everything is at rest.
    pub fn run(mut self) -> Result<Met, Violation> {
        self.rest()?;
        for _ in 0..CLIENTS {
            self.connect();
        }
        for _ in 0..300 + self.random.below(900) {
            self.step()?;
        }
        self.repair();
        self.rest()?;
        self.is_right()?;
        self.results_are_right()?;
        self.interest_is_right()?;
        Ok(self.met)
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether a node was lost or evicted, with writes that only its clients and its subscribers have got.
    fn has_lost(&self) -> bool {
        self.met.crashes + self.met.evictions > 0
    }

    fn live(&self) -> Vec<Address> {
        self.shards.keys().copied().collect()
    }

    fn node_numbers(&self) -> Vec<u16> {
        self.nodes.keys().copied().collect()
    }

    fn step(&mut self) -> Checked {
        let live = self.live();
        let shard = *self.random.pick(&live);
        match self.random.below(200) {
            0..70 => self.turn(shard, false)?,
            70..110 => self.client_acts(),
            110..150 => {
                let wires: Vec<(u16, u16)> = self.outside.wires.keys().copied().collect();
                if !wires.is_empty() {
                    let wire = *self.random.pick(&wires);
                    for _ in 0..=self.random.below(8) {
                        self.outside.deliver(wire);
                    }
                }
            }
            150..164 => self.store_answers()?,
            164..168 => self.announces(shard),
            168..174 => self.time_passes(),
            174..184 => self.reads_view(),
            184..189 => self.links(),
            189..193 => self.promotes(),
            193..194 => {
                self.shards
                    .get_mut(&shard)
                    .map(|shard| shard.shrink_cache(usize::MAX));
            }
            194 => self.changes_rights(),
            195..197 => {
                let index = self.random.below(self.clients.len());
                let left = self.clients[index].positions();
                self.close(index);
                self.connect_again(left);
            }
            _ => self.changes(),
        }
        Ok(())
    }

    fn rest(&mut self) -> Checked {
        let mut still = 0;
        for _ in 0..ROUNDS_MAX {
            still = if self.round()? { 0 } else { still + 1 };
            if still == 5 {
                return Ok(());
            }
        }
        let stages = self
            .shards
            .iter()
            .map(|(address, shard)| (address, shard.view(), shard.handed_over(), shard.counts()));
        let stages: Vec<_> = stages.collect();
        let members = &self.views.current;
        ensure(false, || format!("no rest: {members:?} {stages:?}"))
    }

    /// Lets each shard and each client do its pending work once. Returns whether work is left.
    fn round(&mut self) -> Result<bool, Violation> {
        for node in self.node_numbers() {
            if self.nodes.contains_key(&node) {
                self.node_reads_view(node);
            }
        }
        self.promotes();
        let numbers = self.node_numbers();
        for one in &numbers {
            for other in &numbers {
                self.link(*one, *other);
            }
        }
        let wires: Vec<(u16, u16)> = self.outside.wires.keys().copied().collect();
        for wire in wires {
            while self.outside.deliver(wire) {}
        }
        for shard in self.live() {
            self.turn(shard, true)?;
            self.announces(shard);
        }
        let has_stored = !self.outside.store.is_empty();
        while !self.outside.store.is_empty() {
            self.store_answers()?;
        }
        let awaited = std::mem::take(&mut self.outside.awaited);
        for session in awaited {
            self.input(session.address, Input::Drained { session });
        }
        self.time_passes();
        let outside = &self.outside;
        let current = self.views.current.number;
        let soon = self.now.monotonic + Duration::from_secs(10);
        Ok(has_stored
            || outside.mailboxes.values().any(|mail| !mail.is_empty())
            || outside.wires.values().any(|wire| !wire.is_empty())
            || outside.has_more_to_announce()
            || !outside.awaited.is_empty()
            || self.shards.values().any(|shard| {
                shard.has_work()
                    || shard.next_deadline().is_some_and(|due| due <= soon)
                    || shard.handed_over() != current
            })
            || self
                .clients
                .iter()
                .any(|client| !client.waits && !client.inbox.is_empty()))
    }

    /// Runs one turn of a shard, which sees all or some of its mailbox.
    fn turn(&mut self, address: Address, all: bool) -> Checked {
        let Some(shard) = self.shards.get_mut(&address) else {
            return Ok(());
        };
        self.outside.at = address;
        shard.begin_turn(self.now, &mut self.outside);
        self.follow_up(address);
        let length = self.outside.mailboxes[&address].len();
        let seen = match all {
            true => length,
            false => self.random.below(length + 1),
        };
        for _ in 0..seen {
            let mailbox = self.outside.mailboxes.get_mut(&address);
            if let Some(mail) = mailbox.and_then(VecDeque::pop_front) {
                self.receive(address, mail);
            }
        }
        for index in 0..self.clients.len() {
            if self.clients[index].session.address == address {
                self.read_connection(index, all);
            }
        }
        let due = self.shards[&address].next_deadline();
        if due.is_some_and(|due| due <= self.now.monotonic) {
            self.input(address, Input::DeadlineReached);
        }
        self.outside.at = address;
        let Some(shard) = self.shards.get_mut(&address) else {
            return Ok(());
        };
        self.outside.handed_over = shard.handed_over();
        shard.end_turn(self.now, &mut self.outside);
        let mut received = Vec::new();
        let log = &self.outside.log;
        shard.flush(|session, _, spans| {
            for span in spans {
                let heard = &log[span.start as usize..span.end as usize];
                received.extend(heard.iter().map(|heard| (session, heard.clone())));
            }
        });
        self.note_losers(address);
        for (session, heard) in received {
            self.hear(session, &heard)?;
        }
        self.has_sent(address, all);
        self.end_closed()?;
        self.rights_hold()
    }

    fn receive(&mut self, address: Address, mail: Mail) {
        let Some(shard) = self.shards.get_mut(&address) else {
            return;
        };
        self.outside.at = address;
        match mail {
            Mail::Local(entry) => return self.input(address, Input::Entry(entry)),
            Mail::Linked {
                from,
                birth,
                entry: Entry::Interest(entry),
            } => self.outside.take_interest(from, birth, entry),
            Mail::Linked { from, birth, entry } => {
                return self.input(address, Input::Linked { from, birth, entry });
            }
            Mail::Lost(node, birth) => {
                if self.outside.lost(node, birth) {
                    self.input(address, Input::NodeLost { node });
                }
            }
            Mail::Rights(number, change) => {
                return self.input(address, Input::Rights { number, change });
            }
            Mail::Joined(node, birth, interest) => {
                self.outside.joined(node, birth, interest);
                let joined = shard.node_joined(self.now, node, birth, &mut self.outside);
                joined.expect("births only grow");
            }
            Mail::Adopt(view) => {
                if shard.handed_over() != shard.view() {
                    self.met.overlaps += 1;
                }
                shard.adopt(self.now, &view, &mut self.outside);
            }
        }
        self.follow_up(address);
    }

    fn input(&mut self, address: Address, input: Input) {
        let Some(shard) = self.shards.get_mut(&address) else {
            return;
        };
        self.outside.at = address;
        shard.handle(self.now, input, &mut self.outside);
        self.follow_up(address);
    }

    /// Decides logins at once, and lets clients continue.
    fn follow_up(&mut self, address: Address) {
        for request in std::mem::take(&mut self.outside.logins) {
            let principal = Principal::new(Name::from(user_of(request.session)));
            let completion = AuthCompletion {
                session: request.session,
                outcome: AuthOutcome::Accepted(Arc::new(principal)),
            };
            self.input(address, Input::Auth(completion));
        }
        for up_to in std::mem::take(&mut self.outside.visible) {
            self.input(address, Input::InterestVisible { up_to });
        }
        for session in std::mem::take(&mut self.outside.resumed) {
            let mut clients = self.clients.iter_mut();
            if let Some(client) = clients.find(|client| client.session == session) {
                client.waits = false;
            }
        }
    }

    fn read_connection(&mut self, index: usize, all: bool) {
        let count = if all {
            usize::MAX
        } else {
            self.random.below(4)
        };
        for _ in 0..count {
            let client = &mut self.clients[index];
            if client.waits {
                return;
            }
            let Some(said) = client.inbox.front().cloned() else {
                return;
            };
            let session = client.session;
            let Some(shard) = self.shards.get_mut(&session.address) else {
                return;
            };
            self.outside.at = session.address;
            let flow = with_message(&said, |message| {
                shard.message(self.now, session, message, &mut self.outside)
            });
            match flow {
                Flow::Taken => {
                    client.inbox.pop_front();
                    client.took(&said);
                    self.took_event(session, &said);
                }
                Flow::Wait => client.waits = true,
            }
            self.follow_up(session.address);
        }
    }

    fn hear(&mut self, session: SessionId, heard: &Heard) -> Checked {
        self.may_hear(session, heard)?;
        self.may_be_refused(session, heard)?;
        let may_regress = self.has_lost();
        let is_evicted = !self.serves(session.address.node);
        let mut clients = self.clients.iter_mut();
        let Some(client) = clients.find(|client| client.session == session) else {
            return Ok(());
        };
        match heard {
            Heard::Written(id) => {
                self.met.acknowledged += 1;
                let name = self.written[id];
                self.acknowledged.entry(name).or_default().insert(*id);
            }
            Heard::NotWritten(_) => self.met.refused += 1,
            Heard::ResultChanged(..) => self.met.result_changes += 1,
            Heard::Committed(id) => {
                self.met.transactions += 1;
                for name in self.transactions.names(*id) {
                    self.acknowledged.entry(name).or_default().insert(*id);
                }
            }
            Heard::Conflict(id) => {
                self.met.conflicts += 1;
                self.transactions.note_conflict(*id);
            }
            Heard::Replaced(..) => self.met.values += 1,
            Heard::Members(scope, _) => {
                self.met.lists += 1;
                self.met.lists_again += usize::from(client.members.contains_key(scope));
            }
            Heard::MembersChanged(..) => self.met.member_changes += 1,
            Heard::Emitted(name, number) => return self.hears_event(session, name, *number),
            _ => {}
        }
        let is_strict = !client.coalesces;
        let heard = client.hear(heard, may_regress, client.coalesces || is_evicted);
        heard.map_err(|why| Violation(format!("{session:?} (strict: {is_strict}): {why}")))
    }

    /// A planned change of the view refuses nothing: an owner serves what was posted to it before it lets go of the names.
    fn may_be_refused(&self, session: SessionId, heard: &Heard) -> Checked {
        let is_refusal = match heard {
            Heard::Refused(name) | Heard::NotFollowed(name) => !is_guarded(session, name),
            Heard::NotWritten(_) | Heard::NotPublished | Heard::NotProvided | Heard::NotRemoved => {
                true
            }
            _ => false,
        };
        let may_be = !self.is_planned || self.has_lost();
        ensure(may_be || !is_refusal, || {
            format!("{session:?} hears {heard:?} though each view was planned")
        })
    }

    fn end_closed(&mut self) -> Checked {
        for (session, reason) in std::mem::take(&mut self.outside.closed) {
            let ends = matches!(reason, CloseReason::Revoked | CloseReason::Barred);
            let is_revoked = ends && user_of(session) == REVOCABLE;
            let is_behind = reason == CloseReason::NotCaughtUp && self.has_lost();
            ensure(is_revoked || is_behind, || {
                format!("{session:?} is closed: {reason:?}")
            })?;
            self.met.not_caught_up += usize::from(is_behind);
            self.met.revoked += usize::from(is_revoked);
            let mut clients = self.clients.iter();
            if let Some(index) = clients.position(|client| client.session == session) {
                self.close(index);
                self.connect();
            }
        }
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        let session = client.session;
        self.input(session.address, Input::Closed { session });
    }

    /// A client connects again, maybe to another node, often to one that does not know yet that it is evicted. It follows the events that it has followed, unless it publishes now.
    fn connect_again(&mut self, left: BTreeMap<&'static str, Position>) {
        let mut served = self.live();
        served.retain(|address| self.has_served(address.node));
        let is_evicted = |address: &Address| !self.serves(address.node);
        let evicted: Vec<Address> = served.iter().copied().filter(is_evicted).collect();
        let addresses = match evicted.is_empty() || self.random.chance(50) {
            true => served,
            false => evicted,
        };
        let address = *self.random.pick(&addresses);
        self.connect_to(address);
        // A publisher does not get its own events.
        if self.clients.last().is_some_and(|client| !client.writes) {
            self.follow_again(left);
        }
    }

    /// The newest client follows events behind the positions of an earlier connection.
    fn follow_again(&mut self, left: BTreeMap<&'static str, Position>) {
        if let Some(client) = self.clients.last_mut() {
            let follow =
                |(name, after): (&&'static str, &Position)| Said::Follow(name, Some(*after));
            client.inbox.extend(left.iter().map(follow));
            client.left = left;
        }
    }

    /// A node that joins has clients only after its first view.
    fn connect(&mut self) {
        let mut live = self.live();
        live.retain(|address| self.has_served(address.node));
        let address = *self.random.pick(&live);
        self.connect_to(address);
    }

    fn connect_to(&mut self, address: Address) {
        let session = SessionId {
            address,
            index: self.next_session,
            generation: 1,
        };
        self.next_session += 1;
        let coalesces = self.random.chance(50);
        let writes = self.random.chance(40);
        self.clients.push(Client::new(session, coalesces, writes));
        let opened = Input::Opened {
            session,
            format: Format(0),
            coalesces: Some(coalesces),
        };
        self.input(address, opened);
        let message = Message::Auth(Auth::Request { data: Some("{}") });
        if let Some(shard) = self.shards.get_mut(&address) {
            self.outside.at = address;
            let flow = shard.message(self.now, session, &message, &mut self.outside);
            assert_eq!(flow, Flow::Taken);
        }
        self.follow_up(address);
    }

    fn client_acts(&mut self) {
        let index = self.random.below(self.clients.len());
        for _ in 0..=self.random.below(4) {
            if self.clients[index].writes && self.random.chance(25) {
                if let Some(said) = self.acts_on_group(index) {
                    self.clients[index].inbox.push_back(said);
                }
                continue;
            }
            if self.random.chance(25) {
                if let Some(said) = self.acts_in_scope(index) {
                    self.clients[index].inbox.push_back(said);
                }
                continue;
            }
            if self.random.chance(20) {
                if let Some(said) = self.acts_on_cards(index) {
                    self.clients[index].inbox.push_back(said);
                }
                continue;
            }
            if self.random.chance(25) {
                if let Some(said) = self.acts_on_event(index) {
                    self.clients[index].inbox.push_back(said);
                }
                continue;
            }
            let is_of_group = !self.clients[index].writes && self.random.chance(25);
            let group = *self.random.pick(&GROUPS);
            let name = match is_of_group {
                true => pick(&mut self.random, group),
                false => pick(&mut self.random, &RECORDS),
            };
            let said = match self.clients[index].writes {
                true if self.random.chance(15) => Said::Publish(pick(&mut self.random, &EVENTS)),
                true if self.random.chance(20) => {
                    let name = pick(&mut self.random, &RPCS);
                    let client = &self.clients[index];
                    if !client.inbox.is_empty() {
                        continue;
                    }
                    match client.provided.contains(name) {
                        true => Said::Unprovide(name),
                        false => Said::Provide(name),
                    }
                }
                false if self.random.chance(15) => {
                    let name = pick(&mut self.random, &EVENTS);
                    let client = &self.clients[index];
                    if client.follows.contains(name) || !client.inbox.is_empty() {
                        continue;
                    }
                    Said::Follow(name, client.left.get(name).copied())
                }
                true => {
                    self.next_write += 1;
                    self.written.insert(self.next_write, name);
                    Said::Write(name, self.next_write)
                }
                false if self.random.chance(75) => Said::Subscribe(name),
                false => {
                    // The client could not distinguish the answer from that of a later subscription.
                    let known = self.clients[index].records.get(name);
                    match known {
                        Some(Known::Value(..)) => Said::Unsubscribe(name),
                        _ => continue,
                    }
                }
            };
            let client = &mut self.clients[index];
            let is_repeated = match &said {
                Said::Subscribe(name) => {
                    let mut waiting = client.inbox.iter();
                    client.records.contains_key(*name)
                        || waiting.any(|said| matches!(said, Said::Subscribe(known) | Said::Unsubscribe(known) if known == name))
                }
                Said::Unsubscribe(name) => client
                    .inbox
                    .iter()
                    .any(|said| matches!(said, Said::Unsubscribe(known) if known == name)),
                _ => false,
            };
            if !is_repeated {
                client.inbox.push_back(said);
            }
        }
    }

    /// A message of a client about a scope.
    fn acts_in_scope(&mut self, index: usize) -> Option<Said> {
        let scope = pick(&mut self.random, &SCOPES);
        let state = self.random.below(1_000) as u64;
        let client = &self.clients[index];
        if !client.inbox.is_empty() {
            return None;
        }
        let is_member = client.joined.contains_key(scope);
        Some(match self.random.below(8) {
            0..2 if is_member => Said::Leave(scope),
            2..5 if is_member => Said::Update(scope, state),
            0..5 => Said::Join(scope, state),
            5 if client.watches.contains(scope) => Said::Unwatch(scope),
            _ => Said::Watch(scope),
        })
    }

    /// At rest, each subscriber of a scope knows its members, and no owner keeps another scope.
    fn scopes_are_right(&self) -> Checked {
        let mut used = 0;
        for scope in SCOPES {
            let members = self.clients.iter().filter_map(|client| {
                let state = client.joined.get(scope)?;
                Some((member_id(client.session), *state))
            });
            let members: Members = members.collect();
            let mut subscribers = self.clients.iter();
            let has_subscribers = subscribers.any(|client| client.watches.contains(scope));
            used += usize::from(has_subscribers || !members.is_empty());
            for client in &self.clients {
                if !client.watches.contains(scope) {
                    continue;
                }
                let (session, known) = (client.session, client.members.get(scope));
                ensure(known == Some(&members), || {
                    format!("{session:?} knows {known:?} of {scope}, members are {members:?}")
                })?;
            }
        }
        let known: usize = self.shards.values().map(|it| it.counts().scopes).sum();
        ensure(known == used, || {
            format!("{used} scopes are used, owners know {known}")
        })
    }

    fn store_answers(&mut self) -> Checked {
        if self.outside.store.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.outside.store.len());
        // A shard has one commit in flight, so requests may be done in any order.
        let sent = self.outside.store.remove(index);
        let (from, birth) = (sent.from, sent.birth);
        let id = MemberId {
            node: from.node,
            birth,
        };
        let is_member = self.views.current.has(id);
        let completion = self.store.complete(sent, is_member).map_err(Violation)?;
        if self.birth(from.node) == Some(birth) {
            self.input(from, Input::Store(completion));
        }
        Ok(())
    }

    /// A shard announces its interest to the nodes that it has linked.
    fn announces(&mut self, shard: Address) {
        self.outside.at = shard;
        self.outside.announce_interest();
    }

    fn time_passes(&mut self) {
        self.now.monotonic = self.now.monotonic + Duration::from_millis(20);
        self.now.wall = WallTime(self.now.wall.0 + 20);
    }

    /// Checks what must hold at rest.
    fn is_right(&self) -> Checked {
        let current = self.views.current.number;
        for (address, shard) in &self.shards {
            let complete = shard.handed_over();
            ensure(complete == current, || {
                format!("{address:?} has handed over {complete:?}, not {current:?}")
            })?;
            let counts = shard.counts();
            ensure(counts.awaited == 0 && counts.underflows == 0, || {
                format!("{address:?} still awaits: {counts:?}")
            })?;
            ensure(counts.dirty_records == 0, || {
                format!("{address:?} is dirty")
            })?;
        }
        let users = self.clients.iter().map(|client| user_of(client.session));
        let users = users.collect::<BTreeSet<_>>().len();
        let online = self.shards.values();
        let online: usize = online.map(|shard| shard.counts().users_online).sum();
        ensure(online == users, || {
            format!("{users} users have sessions, owners know {online}")
        })?;
        let provided = self.clients.iter().flat_map(|client| &client.provided);
        let provided = provided.collect::<BTreeSet<_>>().len();
        let known = self.shards.values();
        let known: usize = known.map(|shard| shard.counts().provided_rpcs).sum();
        ensure(known == provided, || {
            format!("{provided} rpcs are provided, owners know {known}")
        })?;
        self.scopes_are_right()?;
        self.events_have_arrived()?;
        self.rights_are_settled()?;
        self.conflicts_changed_nothing()?;
        for name in EVENTS {
            let follows = self.clients.iter();
            let follows = follows.filter(|client| client.follows.contains(name));
            let last = follows.map(|client| client.events.get(name).map(|last| last.offset));
            let last: BTreeSet<_> = last.collect();
            ensure(last.len() <= 1 && !last.contains(&None), || {
                format!("the subscribers of {name} have {last:?}")
            })?;
        }
        for (name, expected) in &self.acknowledged {
            let stored = self.store.records.get(*name);
            let stored = stored.map_or(Writes::new(), |record| writes(record.data.as_str()));
            let lost: BTreeSet<_> = expected.difference(&stored).collect();
            ensure(lost.is_empty(), || format!("{name} has lost {lost:?}"))?;
        }
        for client in &self.clients {
            let (session, unanswered) = (client.session, &client.unanswered);
            ensure(unanswered.is_empty(), || {
                format!("{session:?} has no answer to {unanswered:?}")
            })?;
            for (name, known) in &client.records {
                let stored = self.store.records.get(name.as_str());
                let stored = stored.map(|record| {
                    Known::Value(i64::from(record.version.0), writes(record.data.as_str()))
                });
                ensure(stored.as_ref() == Some(known), || {
                    format!("{session:?} knows {known:?} of {name}, the store has {stored:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// The user of a session: users have sessions on several nodes, and one of them has few.
fn user_of(session: SessionId) -> &'static str {
    match session.index % 16 {
        0 => "carla",
        1..6 => "ben",
        6 | 7 => REVOCABLE,
        _ => "anna",
    }
}

fn pick(random: &mut Random, names: &[&'static str]) -> &'static str {
    random.pick::<&'static str>(names)
}

fn settings() -> Settings {
    Settings {
        history: HistoryRules::new(vec![HistoryRule {
            pattern: NamePattern::new("stored/*"),
            count_max: 1_000,
            bytes_max: 1 << 20,
            age_max: Duration::from_secs(1_000_000),
            keep: Keep::Store,
        }]),
        heartbeat_interval: Duration::from_secs(1_000_000),
        login_timeout: None,
        auth_retry_timeout: None,
        presence_grace: Duration::from_millis(100),
        listen_rematch_interval: None,
        tags: TagRules::new(["t"]),
        ..Settings::default()
    }
}
