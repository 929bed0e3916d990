//! Two nodes with their clients and their store, in virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Epoch, SessionId};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, Flow, Format, Input};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::message::{Auth, Connection, Message};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::permission::Permission;
use tidewire_core::principal::Principal;
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;
use tidewire_core::slot::SlotTable;
use tidewire_core::store::Opened;
use tidewire_core::text::Name;
use tidewire_core::time::{Instant, Now, WallTime};

use crate::client::{Client, RPCS, Said, USERS, draw, with_message};
use crate::fault::Fault;
use crate::heard::{Heard, Wait};
use crate::kept_records::KeptRecords;
use crate::met::Met;
use crate::nodes::{NODE_SHARDS, SHARDS, address, index_of, node_of, slots};
use crate::outside::{Mail, Outside};
use crate::permission::GatePermission;
use crate::random::Random;

const CLIENTS: usize = 10;
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 3_000;
const LONG: Duration = Duration::from_secs(1_000_000);

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

/// See the documentation of this module.
pub struct World {
    random: Random,
    now: Now,
    slots: Arc<SlotTable>,
    shards: Vec<Shard>,
    outside: Outside,
    clients: Vec<Client>,
    /// Clients whose messages are not read, so that they lag.
    lagging: BTreeSet<SessionId>,
    next_session: u32,
    next_id: u64,
    stored: KeptRecords,
    change: u64,
    rules: Arc<dyn Permission>,
    met: Met,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed);
        let settings = settings(&mut random);
        let slots = slots(seed);
        let permission: Arc<dyn Permission> = Arc::new(GatePermission(0));
        let shards = (0..SHARDS).map(|shard| {
            Shard::new(ShardConfig {
                address: address(shard),
                slots: Arc::clone(&slots),
                settings: settings.clone(),
                permission: permission.clone(),
                seed,
                opened: vec![Opened {
                    epoch: Epoch(1),
                    opening: 1 + u64::from(node_of(shard)),
                }],
            })
        });
        let mut world = Self {
            now: Now {
                monotonic: Instant(1_000_000_000),
                wall: WallTime(1_700_000_000_000),
            },
            shards: shards.collect(),
            slots,
            outside: Outside::new(fault),
            clients: Vec::new(),
            lagging: BTreeSet::new(),
            next_session: 0,
            next_id: 0,
            stored: KeptRecords::default(),
            change: 0,
            rules: permission,
            met: Met::default(),
            random,
        };
        for shard in 0..SHARDS {
            let other = 1 - node_of(shard);
            world.outside.at = shard;
            let joined = world.shards[shard].node_joined(world.now, other, 1, &mut world.outside);
            joined.expect("the node is new");
        }
        for _ in 0..CLIENTS {
            world.connect();
        }
        world
    }

    /// Runs until a node is lost, then until the other node is at rest, and at last ends all its sessions.
    pub fn run(mut self) -> Result<Met, Violation> {
        for _ in 0..100 + self.random.below(300) {
            self.step()?;
        }
        // The loss of a node ends all requests to it. Without a rest before, the loss would hide a request that its owner never answers.
        if self.random.chance(30) {
            self.rest()?;
            self.all_is_answered()?;
        }
        self.lose()?;
        for _ in 0..self.random.below(100) {
            self.step()?;
        }
        self.rest()?;
        self.all_is_answered()?;
        self.state_is_right()?;
        self.others_are_offline()?;
        self.close_all()?;
        Ok(self.met)
    }

    fn is_live(&self, shard: usize) -> bool {
        self.outside.lost != Some(node_of(shard))
    }

    fn live(&self) -> Vec<usize> {
        (0..SHARDS).filter(|shard| self.is_live(*shard)).collect()
    }

    fn step(&mut self) -> Checked {
        let live = self.live();
        let shard = *self.random.pick(&live);
        match self.random.below(100) {
            0..45 => self.turn(shard, false)?,
            45..62 => self.client_acts(),
            62..74 => {
                let node = self.random.below(2);
                for _ in 0..=self.random.below(8) {
                    self.outside.deliver(node);
                }
            }
            74..81 => self.store_answers(),
            81..86 => self.show_interest(shard),
            86..90 => self.drains_one(),
            90..93 => self.falls_behind(),
            93..94 => self.rules_change(shard),
            94..96 => self.time_passes(),
            96..97 => {
                let index = self.random.below(self.clients.len());
                self.close(index);
                self.connect();
            }
            _ => {
                self.shards[shard].shrink_cache(usize::MAX);
            }
        }
        Ok(())
    }

    /// One of the nodes is lost. Before, the sessions of the other node begin what waits for it in ways that are rare otherwise.
    fn lose(&mut self) -> Checked {
        let node = self.random.below(2) as u16;
        let other = usize::from(1 - node);
        let survivors = other * NODE_SHARDS..(other + 1) * NODE_SHARDS;
        if self.random.chance(60) {
            for _ in 0..60 {
                self.client_acts();
            }
            for session in self.sessions_of(1 - node) {
                if self.random.chance(50) {
                    self.lags(session);
                }
            }
            for shard in (0..SHARDS).chain(0..SHARDS) {
                self.turn(shard, true)?;
                while self.outside.deliver(0) || self.outside.deliver(1) {}
            }
            // What these sessions request now is still on its way when the node is lost.
            for session in self.sessions_of(1 - node) {
                if self.random.chance(70) {
                    self.drains(session);
                }
            }
        }
        for shard in survivors.clone() {
            self.met.note(&self.shards[shard].counts());
            self.met.unsettled += usize::from(self.shards[shard].settled() < self.change);
        }
        let coming = self.outside.wires[other].len();
        let count = self.random.below(coming + 1);
        let late = self.random.below(coming - count + 1);
        self.met.late += late;
        self.outside.lose(node, count, late);
        if self.outside.fault == Some(Fault::LossUnheard) {
            let mailbox = &mut self.outside.mailboxes[survivors.clone().start];
            mailbox.retain(|mail| !matches!(mail, Mail::NodeLost(_)));
        }
        // Each node has the rules from the same place, so a change does not end with the node on which it began.
        for shard in survivors {
            self.announce_rules(shard);
        }
        self.clients
            .retain(|client| client.session.address.node != node);
        self.lagging.retain(|session| session.address.node != node);
        if self.clients.is_empty() {
            self.connect();
        }
        Ok(())
    }

    fn sessions_of(&self, node: u16) -> Vec<SessionId> {
        let sessions = self.clients.iter().map(|client| client.session);
        sessions.filter(|id| id.address.node == node).collect()
    }

    /// Runs until all pending work has ended.
    fn rest(&mut self) -> Checked {
        let mut still = 0;
        for _ in 0..ROUNDS_MAX {
            still = if self.round()? { 0 } else { still + 1 };
            if still == 3 {
                return Ok(());
            }
        }
        let counts = self
            .live()
            .into_iter()
            .map(|shard| self.shards[shard].counts());
        let counts = counts.collect::<Vec<_>>();
        ensure(false, || format!("something goes on and on: {counts:?}"))
    }

    /// Lets each shard and each client do its pending work once. Returns whether work is left.
    fn round(&mut self) -> Result<bool, Violation> {
        while self.outside.deliver(0) || self.outside.deliver(1) {}
        for shard in self.live() {
            self.turn(shard, true)?;
            self.show_interest(shard);
        }
        // The next requests to the store leave with the next turn.
        let has_loaded = !self.outside.store.is_empty();
        while !self.outside.store.is_empty() {
            self.store_answers();
        }
        let awaited = std::mem::take(&mut self.outside.awaited);
        for session in awaited.into_iter().chain(std::mem::take(&mut self.lagging)) {
            self.drains(session);
        }
        self.time_passes();
        let outside = &self.outside;
        let live = self.live();
        let soon = self.now.monotonic + Duration::from_secs(1_000);
        let is_due = |shard: &usize| {
            let shard = &self.shards[*shard];
            shard.has_work() || shard.next_deadline().is_some_and(|due| due <= soon)
        };
        Ok(live
            .iter()
            .any(|shard| !outside.mailboxes[*shard].is_empty())
            || outside.wires.iter().any(|wire| !wire.is_empty())
            || live.iter().any(|shard| !outside.pending[*shard].is_empty())
            || has_loaded
            || !outside.awaited.is_empty()
            || live.iter().any(is_due)
            || self
                .clients
                .iter()
                .any(|client| !client.waits && !client.inbox.is_empty()))
    }

    /// Runs one turn of a shard, which sees all or some of its mailbox.
    fn turn(&mut self, shard: usize, all: bool) -> Checked {
        self.outside.at = shard;
        self.shards[shard].begin_turn(self.now, &mut self.outside);
        self.follow_up(shard);
        let length = self.outside.mailboxes[shard].len();
        let seen = if all {
            length
        } else {
            self.random.below(length + 1)
        };
        for _ in 0..seen {
            let Some(mail) = self.outside.mailboxes[shard].pop_front() else {
                break;
            };
            self.receive(shard, mail);
        }
        for index in 0..self.clients.len() {
            if index_of(self.clients[index].session.address) == shard {
                self.read_connection(index, all);
            }
        }
        let due = self.shards[shard].next_deadline();
        if due.is_some_and(|due| due <= self.now.monotonic) {
            self.input(shard, Input::DeadlineReached);
        }
        self.outside.at = shard;
        self.shards[shard].end_turn(self.now, &mut self.outside);
        let mut received = Vec::new();
        let log = &self.outside.log;
        self.shards[shard].flush(|session, _, spans| {
            for span in spans {
                let heard = &log[span.start as usize..span.end as usize];
                received.extend(heard.iter().map(|heard| (session, heard.clone())));
            }
        });
        for (session, heard) in received {
            self.hear(session, heard)?;
        }
        self.end_closed();
        Ok(())
    }

    fn receive(&mut self, shard: usize, mail: Mail) {
        match mail {
            Mail::Entry { from, entry, .. } if node_of(from) == node_of(shard) => {
                self.input(shard, Input::Entry(entry));
            }
            Mail::Entry { .. }
                if self.outside.fault == Some(Fault::EntryLost) && self.random.chance(2) => {}
            Mail::Entry { from, birth, entry } => {
                let from = address(from);
                self.input(shard, Input::Linked { from, birth, entry });
            }
            Mail::NodeLost(node) => {
                self.outside.knows[shard] = true;
                self.input(shard, Input::NodeLost { node });
            }
        }
    }

    fn input(&mut self, shard: usize, input: Input) {
        self.outside.at = shard;
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.follow_up(shard);
    }

    /// Handles what the engine has requested and must get at once.
    fn follow_up(&mut self, shard: usize) {
        for session in std::mem::take(&mut self.outside.resumed) {
            let mut clients = self.clients.iter_mut();
            if let Some(client) = clients.find(|client| client.session == session) {
                client.waits = false;
            }
        }
        for login in std::mem::take(&mut self.outside.logins) {
            let session = login.session;
            let client = self.clients.iter().find(|client| client.session == session);
            let user = client.map_or("ann", |client| client.user);
            let principal = Arc::new(Principal::new(Name::from(user)));
            let outcome = AuthOutcome::Accepted(principal);
            self.input(shard, Input::Auth(AuthCompletion { session, outcome }));
        }
    }

    /// Ends the sessions that the engine has closed.
    fn end_closed(&mut self) {
        for (session, _) in std::mem::take(&mut self.outside.closed) {
            let mut clients = self.clients.iter();
            if let Some(index) = clients.position(|client| client.session == session) {
                self.close(index);
                self.connect();
            }
        }
    }

    fn close(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        let session = client.session;
        self.met.answers += client.answers;
        self.outside.awaited.remove(&session);
        self.lagging.remove(&session);
        self.input(index_of(session.address), Input::Closed { session });
    }

    fn connect(&mut self) {
        let live = self.live();
        let shard = *self.random.pick(&live);
        let session = SessionId {
            address: address(shard),
            index: self.next_session,
            generation: 1,
        };
        self.next_session += 1;
        let user = *self.random.pick(&USERS);
        self.clients.push(Client::new(session, user));
        let (format, coalesces) = (Format(0), Some(self.random.chance(70)));
        let opened = Input::Opened {
            session,
            format,
            coalesces,
        };
        self.input(shard, opened);
        let messages = [
            Message::Connection(Connection::challenge(coalesces == Some(true))),
            Message::Auth(Auth::Request { data: Some("{}") }),
        ];
        for message in &messages[1..] {
            self.outside.at = shard;
            let flow = self.shards[shard].message(self.now, session, message, &mut self.outside);
            assert_eq!(flow, Flow::Taken);
            self.follow_up(shard);
        }
    }

    fn client_acts(&mut self) {
        let index = self.random.below(self.clients.len());
        for _ in 0..=self.random.below(5) {
            self.next_id += 1;
            let id = self.next_id.to_string();
            let said = draw(&mut self.random, &self.clients[index], id);
            self.clients[index].inbox.push_back(said);
        }
    }

    fn read_connection(&mut self, index: usize, all: bool) {
        let count = match all {
            true => usize::MAX,
            false => self.random.below(5),
        };
        for _ in 0..count {
            let client = &mut self.clients[index];
            let Some(said) = client.inbox.front().cloned().filter(|_| !client.waits) else {
                return;
            };
            if client.is_early(&said) {
                client.inbox.pop_front();
                continue;
            }
            let session = client.session;
            let shard = index_of(session.address);
            // The answer may come while the shard takes the message.
            client.waits = true;
            self.outside.at = shard;
            let (shards, outside, now) = (&mut self.shards, &mut self.outside, self.now);
            let flow = with_message(&said, |message| {
                shards[shard].message(now, session, message, outside)
            });
            if flow == Flow::Taken {
                let client = &mut self.clients[index];
                client.waits = false;
                client.inbox.pop_front();
                client.took(&said);
            }
            self.follow_up(shard);
        }
    }

    fn hear(&mut self, session: SessionId, heard: Heard) -> Checked {
        let mut clients = self.clients.iter_mut();
        let Some(client) = clients.find(|client| client.session == session) else {
            return Ok(());
        };
        let answered = match &heard {
            Heard::Done(wait) => Some(wait.clone()),
            Heard::Users(users) => {
                client.queried = users.clone();
                Some(Wait::All)
            }
            _ => None,
        };
        if let Some(wait) = answered {
            return ensure(client.answered(wait), || {
                format!("{session:?} gets {heard:?} without a request")
            });
        }
        match heard {
            Heard::Call(name, id) => {
                let accepts = self.random.chance(30);
                if accepts {
                    let accept = Said::Accept(name.clone(), id.clone());
                    client.inbox.push_back(accept);
                }
                client
                    .inbox
                    .push_back(match self.random.chance(70) || accepts {
                        true => Said::Respond(name, id),
                        false => Said::Reject(name, id),
                    });
            }
            Heard::Found(topic, pattern, name) => {
                let accepts = self.random.chance(60);
                client
                    .inbox
                    .push_back(Said::Found(topic, pattern, name, accepts));
            }
            Heard::Online(user, online) => {
                client.online.insert(user, online);
            }
            _ => {}
        }
        Ok(())
    }

    fn show_interest(&mut self, shard: usize) {
        while let Some(up_to) = self.outside.make_visible(shard) {
            // The acknowledgement of a change needs all publishers of both nodes.
            let keeps = self.outside.fault == Some(Fault::InterestKept);
            if !keeps || self.outside.lost.is_none() {
                self.input(shard, Input::InterestVisible { up_to });
            }
        }
    }

    fn drains_one(&mut self) {
        let all: Vec<_> = self.outside.awaited.union(&self.lagging).copied().collect();
        if !all.is_empty() {
            let session = *self.random.pick(&all);
            self.drains(session);
        }
    }

    fn drains(&mut self, session: SessionId) {
        self.outside.awaited.remove(&session);
        self.lagging.remove(&session);
        self.input(index_of(session.address), Input::Drained { session });
    }

    fn falls_behind(&mut self) {
        let index = self.random.below(self.clients.len());
        self.lags(self.clients[index].session);
    }

    fn lags(&mut self, session: SessionId) {
        self.lagging.insert(session);
        self.input(index_of(session.address), Input::Lagging { session });
    }

    /// Changes the rules, once all shards have settled the last change.
    fn rules_change(&mut self, shard: usize) {
        let mut live = self.live().into_iter();
        if live.any(|shard| self.shards[shard].settled() < self.change) {
            return;
        }
        self.change += 1;
        let number = self.change;
        let rules: Arc<dyn Permission> = Arc::new(GatePermission(number as usize));
        self.outside.link.know(number, Arc::clone(&rules));
        self.rules = rules;
        self.announce_rules(shard);
    }

    /// Gives a shard the newest rules.
    fn announce_rules(&mut self, shard: usize) {
        let (number, rules) = (self.change, Arc::clone(&self.rules));
        if number > 0 {
            let change = RightsChange::Rules(rules);
            self.input(shard, Input::Rights { number, change });
        }
    }

    fn time_passes(&mut self) {
        self.now.monotonic = self.now.monotonic + Duration::from_millis(10);
        self.now.wall.0 += 10;
    }

    fn store_answers(&mut self) {
        if self.outside.store.is_empty() {
            return;
        }
        let index = self.random.below(self.outside.store.len());
        let (shard, request) = self.outside.store.remove(index);
        let completion = self.stored.complete(request);
        self.input(shard, Input::Store(completion));
    }

    fn all_is_answered(&self) -> Checked {
        for client in &self.clients {
            ensure(client.inbox.is_empty(), || {
                format!("{:?} may not send {:?}", client.session, client.inbox)
            })?;
            ensure(client.awaits.is_empty(), || {
                format!("{:?} waits for {:?}", client.session, client.awaits)
            })?;
        }
        for shard in self.live() {
            let counts = self.shards[shard].counts();
            let left = [
                counts.awaited,
                counts.pending_replies,
                counts.owing,
                counts.deferred_bytes,
                counts.dirty_records,
                counts.event_waiting,
                counts.throttled,
                counts.calls,
                counts.lag.sessions,
                counts.underflows as usize,
            ];
            ensure(left.iter().all(|left| *left == 0), || {
                format!("shard {shard} keeps {left:?}")
            })?;
            let settled = self.shards[shard].settled();
            ensure(settled == self.change, || {
                format!("shard {shard} has settled {settled} of {}", self.change)
            })?;
        }
        Ok(())
    }

    /// Compares what the shards know of providers and patterns with the clients.
    fn state_is_right(&self) -> Checked {
        let provided = |name: &str| {
            let mut clients = self.clients.iter();
            clients.any(|client| client.provided.iter().any(|known| *known == name))
        };
        let listens: BTreeSet<_> = self
            .clients
            .iter()
            .flat_map(|client| client.listens.iter().map(|key| (client.session, *key)))
            .collect();
        for shard in self.live() {
            let counts = self.shards[shard].counts();
            let owned = RPCS
                .iter()
                .filter(|name| self.slots.owner(name) == address(shard) && provided(name));
            // A rule may have refused some of the registrations.
            ensure(counts.provided_rpcs <= owned.count(), || {
                format!("shard {shard} has {} provided rpcs", counts.provided_rpcs)
            })?;
            ensure(counts.patterns == listens.len(), || {
                format!(
                    "shard {shard} has {} patterns, not {listens:?}",
                    counts.patterns
                )
            })?;
        }
        Ok(())
    }

    /// Queries all users from a new session: only users of this node are online.
    fn others_are_offline(&mut self) -> Checked {
        let users: BTreeSet<&str> = self.clients.iter().map(|client| client.user).collect();
        let lost = self.outside.lost;
        let is_known = |user: &str| Some(self.slots.owner(user).node) != lost;
        for client in &self.clients {
            for (user, online) in &client.online {
                let is_right = !client.watches_all
                    || !is_known(user)
                    || *online == users.contains(user.as_str())
                    || user == client.user;
                ensure(is_right, || {
                    format!("{:?} takes {user} for online: {online}", client.session)
                })?;
            }
        }
        self.connect();
        let index = self.clients.len() - 1;
        self.clients[index].inbox.push_back(Said::QueryAll);
        self.rest()?;
        self.all_is_answered()?;
        let client = &self.clients[self.clients.len() - 1];
        let known: Vec<&str> = client.queried.iter().map(String::as_str).collect();
        let is_known = |user: &str| Some(self.slots.owner(user).node) != lost;
        let expected = users.into_iter();
        let expected: Vec<&str> = expected
            .filter(|user| is_known(user) && *user != client.user)
            .collect();
        ensure(known == expected, || {
            format!("{known:?} are online, not {expected:?}")
        })
    }

    /// Ends all sessions. The shards must keep nothing.
    fn close_all(&mut self) -> Checked {
        // The last session listens, so that the owners of events still know which of them have subscribers.
        self.connect();
        let last = self.clients.len() - 1;
        let listen = Said::Listen(false, "^none$");
        self.clients[last].inbox.push_back(listen);
        self.rest()?;
        while self.clients.len() > 1 {
            self.close(self.clients.len() - 2);
        }
        self.rest()?;
        for shard in self.live() {
            let wanted = self.shards[shard].counts().wanted_names;
            ensure(wanted == 0, || {
                format!("shard {shard} has {wanted} names with subscribers")
            })?;
        }
        self.close(0);
        self.rest()?;
        // Timers of loads that have ended stay until their time.
        self.now.monotonic = self.now.monotonic + 2 * LONG;
        self.rest()?;
        for shard in self.live() {
            self.shards[shard].shrink_cache(usize::MAX);
            let counts = self.shards[shard].counts();
            let left = [
                counts.sessions,
                counts.subscribed_names,
                counts.event_patterns,
                counts.records,
                counts.calls,
                counts.patterns,
                counts.wanted_names,
                counts.provided_rpcs,
                counts.users_online,
                counts.kept_bytes,
                counts.pending_replies,
                counts.awaited,
                counts.history.names,
                counts.lagging_names,
                counts.underflows as usize,
            ];
            ensure(left.iter().all(|left| *left == 0), || {
                format!("shard {shard} keeps {left:?} at the end")
            })?;
        }
        let visible = &self.outside.visible;
        ensure(visible.is_empty(), || format!("publishers see {visible:?}"))
    }
}

fn settings(random: &mut Random) -> Settings {
    let rule = |pattern, keep| HistoryRule {
        pattern: NamePattern::new(pattern),
        count_max: 8,
        bytes_max: 1 << 20,
        age_max: LONG,
        keep,
    };
    let mut settings = Settings {
        history: HistoryRules::new(vec![
            rule("kept/*", Keep::Memory),
            rule("stored/*", Keep::Store),
        ]),
        heartbeat_interval: LONG,
        login_timeout: None,
        rpc_accept_timeout: LONG,
        rpc_response_timeout: LONG,
        listen_response_timeout: LONG,
        listen_rematch_interval: None,
        load_timeout: LONG,
        write_timeout: LONG,
        write_key_age: LONG,
        ..Settings::default()
    };
    let limits = &mut settings.limits;
    // Names of histories without subscribers are forgotten at once, so that a forgotten subscriber shows.
    limits.history_names_max = 0;
    limits.connection_work_max = *random.pick(&[0, 0, 1, 3_000]);
    limits.turn_work_max = *random.pick(&[6_000, 30_000]);
    limits.catch_up_bytes_max = *random.pick(&[100, 1 << 20]);
    if random.chance(50) {
        limits.cache_bytes_max = 0;
    }
    if random.chance(30) {
        let interval = Duration::from_millis(5);
        let rate = Rate { interval, burst: 8 };
        settings.rates.user[Operation::Message as usize] = Some(rate);
    }
    settings
}
