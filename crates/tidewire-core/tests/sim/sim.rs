//! One run: a node of three shards, clients and a failing store in virtual time, all from one seed.
//!
//! The seed picks which shard runs next, how much of its mailbox and of its connections it sees, when completions
//! come, when interest becomes visible, when time passes, and what clients do.

mod connecting;
mod delivered;
mod ending;
mod rights;
mod slowing;
mod taken;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use tidewire_core::address::{Address, Epoch, SessionId};
use tidewire_core::effect::{CloseReason, Flow, Input, Publication, StoreCompletion, StoreRequest};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::{Entry, RecordRequestKind};
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::settings::{EventLagPolicy, Settings};
use tidewire_core::store::{Incarnation, Loaded, Opened, StoredRecord, Version};
use tidewire_core::text::Payload;
use tidewire_core::time::{Instant, Now, WallTime};

use crate::check::{Checked, Violation};
use crate::client::{Client, Sent};
use crate::event_model::EventModel;
use crate::fault::{Fault, Faults};
use crate::guarded::GuardedModel;
use crate::judge::{Judge, Rulings};
use crate::outside::Outside;
use crate::presence_model::PresenceModel;
use crate::random::Random;
use crate::record_model::{RecordModel, Stamp, Terms};
use crate::right::is_guarded;
use crate::rpc_model::RpcModel;
use crate::store::{Asked, NumberedWrite, SimStore};
use crate::wire::{Heard, NEW, OLD};
use rights::Rights;

const SHARDS: usize = 3;
/// Longer than the time that a listener has to answer, and often enough that every other timer has its end.
const PAUSE_MS: u64 = 700;
const PAUSES: usize = 24;
/// Everything under way ends within so many rounds.
const ROUNDS_MAX: usize = 1_000;
/// A cache below this has no room for all records of a run.
const EVICTING_BYTES: usize = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub deliveries: u64,
    /// Over all deliveries in their order.
    pub digest: u64,
}

/// A connection of a client to a shard.
#[derive(Debug)]
struct Connection {
    client: usize,
    /// What the client has sent and the shard has not read.
    inbox: VecDeque<Sent>,
    /// The first message of the inbox has to wait.
    waiting: bool,
    /// What was sent to the client and not read by it.
    outbox: VecDeque<(Heard, Option<Rc<Stamp>>)>,
    /// The client has gone; the shard has not been told.
    dropped: bool,
    /// Messages taken.
    number: u64,
    /// Logged in, as far as the shard knows.
    open: bool,
    /// The step at which the first message of the inbox was given to the shard.
    given: Option<u64>,
    /// It follows jumps, as it says itself.
    jumps: bool,
    /// The shard was told that it lags.
    lags: bool,
    /// Its next answer is held back.
    detention: Option<Detention>,
    /// The engine wants it closed; nothing more of it is read.
    closing: bool,
    /// When its login expires.
    expires_at: Option<WallTime>,
}

/// An answer that is held back.
#[derive(Debug)]
struct Detention {
    until: Instant,
    refuse: bool,
    /// The login that is held back was accepted.
    accepted: bool,
}

/// What became of a pattern that was taken back at least once.
#[derive(Debug, Default)]
struct Unlistened {
    acks_due: usize,
    /// It was registered again.
    listens: bool,
}

/// See the head of this file.
pub struct Sim {
    random: Random,
    now: Now,
    shards: Vec<Shard>,
    outside: Outside,
    connections: BTreeMap<SessionId, Connection>,
    /// By shard and place: the generation of the next session there.
    generations: Vec<Vec<u32>>,
    /// Free places.
    places: Vec<Vec<u32>>,
    visible: VecDeque<(usize, u64)>,
    /// Deliveries that a fault has held back.
    late: Vec<(SessionId, Heard)>,
    store: SimStore,
    clients: Vec<Client>,
    records: RecordModel,
    events: EventModel,
    rpcs: RpcModel,
    presences: PresenceModel,
    guarded: GuardedModel,
    /// Patterns that a session has taken back: session, whether records, pattern.
    unlistened: BTreeMap<(SessionId, bool, String), Unlistened>,
    rulings: Rulings,
    rights: Rights,
    /// Rules change in this run.
    is_ruled: bool,
    /// Rights of some kind do.
    is_changing: bool,
    /// Where in its shard's log the message stands that is delivered.
    place: usize,
    owner_hash: FixedState,
    seed: u64,
    settings: Settings,
    opening: u64,
    next_event: u64,
    /// No new work is begun, nothing fails any more.
    calm: bool,
    /// Nothing changes any more, so answers can be compared with the truth.
    truthful: bool,
    trace: bool,
    /// How often each kind of message was delivered.
    kinds: Option<BTreeMap<String, u64>>,
    summary: Summary,
    digest: DefaultHasher,
}

impl Sim {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed);
        let mut settings = Settings {
            load_timeout: Duration::from_secs(3),
            write_timeout: Duration::from_secs(5),
            heartbeat_interval: Duration::from_secs(100_000),
            login_timeout: None,
            listen_rematch_interval: Some(Duration::from_secs(2)),
            rpc_response_timeout: Duration::from_secs(3),
            ..Settings::default()
        };
        let mut store = SimStore::default();
        // Sometimes one value is as much as a session that lagged is given at once.
        if random.chance(50) {
            settings.limits.catch_up_bytes_max = 1;
        }
        if random.chance(20) {
            settings.event_lag_policy = EventLagPolicy::Disconnect;
        }
        // What waits for a rate comes later; nothing else changes.
        if random.chance(20) {
            let rate = Rate {
                interval: Duration::from_millis(20),
                burst: 4,
            };
            settings.rates.connection[Operation::Message as usize] = Some(rate);
            settings.rates.user[Operation::Write as usize] = Some(rate);
        }
        // One kind of trouble a run, because the model predicts each of them alone.
        match random.below(6) {
            0 => settings.limits.dirty_records_max = 1 + random.below(3),
            1 => {
                // The model does not know what is evicted, so it can't know which loads are late.
                settings.limits.cache_bytes_max = EVICTING_BYTES - 1;
                settings.load_timeout = Duration::from_secs(100_000);
            }
            2 => store.loads_fail_percent = 30,
            3 => store.commits_fail_percent = 30,
            4 => store.commits_fail_percent = 80,
            _ => {}
        }
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let evicts = settings.limits.cache_bytes_max < EVICTING_BYTES;
        settings.memory_only_prefixes = vec!["shut/".into()];
        if !evicts {
            settings.memory_only_prefixes.push("mem/".into());
        }
        let records = RecordModel::new(Terms {
            shards: SHARDS,
            dirty_max: settings.limits.dirty_records_max,
            load_timeout_ns: nanos(settings.load_timeout),
            write_timeout_ns: nanos(settings.write_timeout),
            evicts,
            memory_only: !evicts,
        });
        let rpcs = RpcModel::new(settings.rpc_accept_timeout, settings.rpc_response_timeout);
        let is_ruled = random.chance(20);
        let is_changing = is_ruled || random.chance(20);
        let clients = (0..2 + random.below(4))
            .map(|index| {
                let format = if random.chance(50) { NEW } else { OLD };
                let jumps = random.chance(60);
                let mut client = Client::new(format!("user{}", index % 3), format, jumps);
                client.services.salt = random.next();
                client.is_ruled = is_ruled;
                client
            })
            .collect();
        let mut sim = Self {
            random,
            now: Now {
                monotonic: Instant(1_000 * NANOS_PER_MILLI),
                wall: WallTime(1_700_000_000_000),
            },
            shards: Vec::new(),
            outside: Outside::new(SHARDS, Faults::new(fault, seed)),
            connections: BTreeMap::new(),
            generations: vec![Vec::new(); SHARDS],
            places: vec![Vec::new(); SHARDS],
            visible: VecDeque::new(),
            late: Vec::new(),
            store,
            clients,
            records,
            events: EventModel::default(),
            rpcs,
            presences: PresenceModel::default(),
            guarded: GuardedModel::default(),
            unlistened: BTreeMap::new(),
            rulings: Rulings::default(),
            rights: Rights::default(),
            is_ruled,
            is_changing,
            place: 0,
            owner_hash: FixedState::with_seed(seed),
            seed,
            settings,
            opening: 0,
            next_event: 0,
            calm: false,
            truthful: false,
            trace: false,
            kinds: None,
            summary: Summary::default(),
            digest: DefaultHasher::new(),
        };
        if sim.random.chance(15) {
            sim.versions_end_soon();
        }
        sim.start();
        sim
    }

    /// The store has a record whose versions are about to start again.
    fn versions_end_soon(&mut self) {
        let (name, version) = ("r/3", Version(Version::LAST.0 - 2));
        let record = StoredRecord {
            incarnation: Incarnation(1),
            version,
            data: Payload::from_checked("{}"),
        };
        self.store.begin_with(name, record);
        let owner = self.owner(name);
        self.records.begin_with(name, owner, i32::MAX - 2);
    }

    /// Prints what is taken and delivered, for people who look into one seed.
    pub fn traced(mut self) -> Self {
        self.trace = true;
        self
    }

    /// Runs to the end and counts what was delivered.
    pub fn run_counting(mut self) -> Result<BTreeMap<String, u64>, Violation> {
        self.kinds = Some(BTreeMap::new());
        self.run_on()?;
        let mut kinds = self.kinds.unwrap_or_default();
        for shard in &self.shards {
            let refused = shard.counts().refused;
            *kinds.entry("rate of a connection".into()).or_default() += refused.connection_rate;
            *kinds.entry("rate of a user".into()).or_default() += refused.user_rate;
        }
        kinds.retain(|_, count| *count > 0);
        Ok(kinds)
    }

    /// Runs to the end, through quiet with everybody connected to quiet with everybody gone.
    pub fn run(mut self) -> Result<Summary, Violation> {
        self.run_on()?;
        self.summary.digest = self.digest.finish();
        Ok(self.summary)
    }

    fn run_on(&mut self) -> Checked {
        let steps = 200 + self.random.below(800);
        for client in 0..self.clients.len() {
            self.connect(client)?;
        }
        for _ in 0..steps {
            self.step()?;
        }
        self.calm = true;
        self.store.commits_fail_percent = 0;
        self.store.loads_fail_percent = 0;
        for client in &mut self.clients {
            client.services.calm = true;
        }
        self.settle()?;
        self.truthful = true;
        self.all_clients(Client::ask_for_everybody);
        self.settle()?;
        self.quiet()?;
        self.providers_are_right()?;
        self.guarded_records_go_on()?;
        self.all_clients(Client::unsubscribe_all);
        self.settle()?;
        self.providers_are_right()?;
        for client in 0..self.clients.len() {
            self.drop_client(client);
        }
        self.settle()?;
        self.nothing_leaks()
    }

    fn start(&mut self) {
        self.opening += 1;
        let opened = Opened {
            epoch: Epoch(self.opening),
            opening: self.opening,
        };
        self.shards = (0..SHARDS)
            .map(|shard| {
                Shard::new(ShardConfig {
                    address: address(shard),
                    shard_count: SHARDS as u16,
                    settings: self.settings.clone(),
                    permission: Arc::new(Judge {
                        rulings: self.rulings.clone(),
                        rules: Arc::default(),
                    }),
                    seed: self.seed,
                    owner_key: self.seed,
                    opened,
                })
            })
            .collect();
    }

    fn step(&mut self) -> Checked {
        self.summary.steps += 1;
        self.records.step = self.summary.steps;
        match self.random.below(100) {
            0..40 => {
                let shard = self.random.below(SHARDS);
                self.turn(shard)?;
            }
            40..60 => self.client_acts(),
            60..72 => self.client_reads(),
            72..82 => self.store_works()?,
            82..88 => self.store_answers()?,
            88..92 => self.interest_moves()?,
            92..94 => self.confirm_interest()?,
            94..96 => self.late_things_come()?,
            96 if self.random.chance(30) => self.rights_change(),
            96 => self.time_passes(),
            97 => {
                if self.random.chance(15) {
                    self.crash()?;
                } else {
                    self.slowness_changes()?;
                }
            }
            98 => self.slowness_changes()?,
            _ => self.connection_changes()?,
        }
        Ok(())
    }

    /// One turn of a shard: some of its connections, some of its mailbox, its deadlines; then what it sends.
    fn turn(&mut self, shard: usize) -> Checked {
        self.outside.at = shard;
        self.take_rights(shard)?;
        if self.random.chance(50) {
            self.read_connections(shard)?;
            self.read_mailbox(shard)?;
        } else {
            self.read_mailbox(shard)?;
            self.read_connections(shard)?;
        }
        let due = self.shards[shard]
            .next_deadline()
            .is_some_and(|deadline| deadline <= self.now.monotonic);
        if due {
            self.records.deadline_reached(shard, self.now.monotonic.0);
            self.detentions_end(shard);
            self.input(shard, Input::DeadlineReached)?;
        }
        self.end_turn(shard)?;
        self.settle_rights(shard)
    }

    fn end_turn(&mut self, shard: usize) -> Checked {
        self.shards[shard].end_turn(self.now, &mut self.outside);
        for (shard, request) in std::mem::take(&mut self.outside.store_requests) {
            let asked = match request {
                StoreRequest::Load { names } => Asked::Load(names),
                StoreRequest::Commit { batch, writes } => {
                    let mut numbered = Vec::new();
                    for write in writes {
                        let change_count =
                            self.records.commits(shard, &write.name, &write.change)?;
                        numbered.push(NumberedWrite {
                            write,
                            change_count,
                        });
                    }
                    Asked::Commit {
                        batch,
                        writes: numbered,
                    }
                }
            };
            self.store.ask(shard, asked);
        }
        self.flush(shard)
    }

    fn flush(&mut self, shard: usize) -> Checked {
        let mut deliveries = Vec::new();
        // A large flush goes on while more is decided.
        let count = match self.calm || self.random.chance(70) {
            true => usize::MAX,
            false => self.random.below(4),
        };
        self.shards[shard].flush_some(count, |session, format, spans| {
            for span in spans {
                for place in span.start..span.end {
                    deliveries.push((session, format, place as usize));
                }
            }
        });
        for (session, format, place) in deliveries {
            let heard = self.outside.logs[shard][usize::from(format.0)][place].clone();
            self.place = place;
            if matches!(heard, Heard::Found { .. })
                && self.outside.faults.hits(Fault::ListenNoticeLate)
            {
                self.late.push((session, heard));
            } else {
                self.deliver(session, heard)?;
            }
        }
        Ok(())
    }

    fn read_mailbox(&mut self, shard: usize) -> Checked {
        let outside = &mut self.outside;
        outside.faults.reorder(&mut outside.mailboxes[shard]);
        let seen = self.random.below(self.outside.mailboxes[shard].len() + 1);
        for _ in 0..seen {
            let Some(entry) = self.outside.mailboxes[shard].pop_front() else {
                break;
            };
            self.take(shard, entry)?;
        }
        Ok(())
    }

    fn take(&mut self, shard: usize, entry: Entry) -> Checked {
        if let Entry::RecordRequest(request) = &entry
            && !is_about_guarded(&request.what)
        {
            let now = self.now.monotonic.0;
            for request in self.records.taken(shard, request)? {
                self.records.arrive(shard, now, request)?;
            }
        }
        match &entry {
            Entry::RecordRequest(request) => {
                if let RecordRequestKind::Write(name, write) = &request.what
                    && is_guarded(name)
                {
                    let id = write.correlation.as_deref().unwrap_or_default();
                    self.rights.judged_write(name, id, shard);
                }
            }
            Entry::Rights { number, .. } if !self.outside.faults.is_on(Fault::MarkerLost) => {
                self.rights_taken_over(shard, *number);
            }
            Entry::Online { user } => self.presences.count(user, true),
            Entry::Offline { user } => self.presences.count(user, false),
            _ => {}
        }
        if let Entry::Publication(Publication::Event { name, data }) = &entry {
            let data = data.as_ref().map_or("", Payload::as_str);
            self.events.comes(shard, name, data);
        }
        for entry in self.outside.faults.spoil(entry) {
            self.input(shard, Input::Entry(entry))?;
        }
        Ok(())
    }

    fn read_connections(&mut self, shard: usize) -> Checked {
        let sessions: Vec<SessionId> = self
            .connections
            .keys()
            .filter(|session| usize::from(session.home.shard) == shard)
            .copied()
            .collect();
        for session in sessions {
            if self.random.chance(60) {
                self.read_connection(session)?;
            }
        }
        Ok(())
    }

    fn read_connection(&mut self, session: SessionId) -> Checked {
        let count = self.random.below(5) + 1;
        for _ in 0..count {
            let Some(connection) = self.connections.get_mut(&session) else {
                return Ok(());
            };
            if connection.closing {
                break;
            }
            if connection.waiting && !self.outside.faults.hits(Fault::WaitIgnored) {
                break;
            }
            // Past the message that waits, which is what the fault ignores.
            let place = usize::from(connection.waiting);
            let Some(sent) = connection.inbox.get(place).cloned() else {
                break;
            };
            let number = connection.number + 1;
            let given = *connection.given.get_or_insert(self.summary.steps);
            self.outside.at = usize::from(session.home.shard);
            let shard = usize::from(session.home.shard);
            let flow = self.shards[shard].message(
                self.now,
                session,
                &sent.said.message(),
                &mut self.outside,
            );
            if let Some(connection) = self.connections.get_mut(&session) {
                match flow {
                    Flow::Wait => connection.waiting = true,
                    Flow::Taken => {
                        connection.number = number;
                        connection.given = None;
                        connection.inbox.remove(place);
                    }
                }
            }
            if flow == Flow::Taken {
                let stamp = Rc::new(Stamp {
                    session,
                    number,
                    seen: sent.seen.clone(),
                });
                self.taken(&stamp, &sent.said, given)?;
            }
            self.take_effects()?;
        }
        let ended = self.connections.get(&session).is_some_and(|connection| {
            connection.closing || (connection.dropped && connection.inbox.is_empty())
        });
        if ended {
            self.close(session)?;
        }
        Ok(())
    }

    fn input(&mut self, shard: usize, input: Input) -> Checked {
        self.outside.at = shard;
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.take_effects()
    }

    /// What the engine has said and asked for beside messages.
    fn take_effects(&mut self) -> Checked {
        for ruling in self.rulings.take() {
            self.records.ruled(self.now.monotonic.0, &ruling)?;
        }
        for session in std::mem::take(&mut self.outside.resumed) {
            if let Some(connection) = self.connections.get_mut(&session) {
                connection.waiting = false;
            }
        }
        for (session, reason) in std::mem::take(&mut self.outside.closes) {
            if matches!(reason, CloseReason::Expired | CloseReason::Revoked) {
                self.expel(session, reason)?;
            } else if let Some(connection) = self.connections.get_mut(&session) {
                connection.dropped = true;
                connection.closing = true;
            }
        }
        Ok(())
    }

    fn store_works(&mut self) -> Checked {
        if !self.outside.logins.is_empty() && self.random.chance(50) {
            self.log_in()?;
        }
        if !self.store.asked.is_empty() {
            let place = self.random.below(self.store.asked.len());
            self.store
                .work(place, &mut self.random, &mut self.outside.faults);
        }
        Ok(())
    }

    fn store_answers(&mut self) -> Checked {
        if self.store.answers.is_empty() {
            return Ok(());
        }
        let place = self.random.below(self.store.answers.len());
        let (shard, completion, names) = self.store.answers.remove(place);
        let now = self.now.monotonic.0;
        if self.trace {
            println!("{:6} shard {shard} gets {completion:?}", self.summary.steps);
        }
        match &completion {
            StoreCompletion::Loaded { records } => {
                for (name, result) in records {
                    let found = matches!(result, Ok(Loaded::Found(_) | Loaded::Missing));
                    self.records.loaded(shard, now, name, found, &self.store)?;
                }
            }
            StoreCompletion::Committed { result, .. } => {
                self.records.committed(shard, &names, result.is_ok());
            }
        }
        self.input(shard, Input::Store(completion))
    }

    fn interest_moves(&mut self) -> Checked {
        let shard = self.random.below(SHARDS);
        if let Some(newest) = self.outside.interest.newest(shard)
            && self.outside.faults.hits(Fault::VisibleTooEarly)
        {
            return self.input(shard, Input::InterestVisible { up_to: newest });
        }
        let count = self.random.below(self.outside.interest.pending(shard) + 1);
        if let Some(up_to) = self.outside.interest.make_visible(shard, count) {
            self.visible.push_back((shard, up_to));
        }
        Ok(())
    }

    fn confirm_interest(&mut self) -> Checked {
        if let Some((shard, up_to)) = self.visible.pop_front() {
            self.input(shard, Input::InterestVisible { up_to })?;
        }
        Ok(())
    }

    /// What faults have held back comes after all.
    fn late_things_come(&mut self) -> Checked {
        for (session, heard) in std::mem::take(&mut self.late) {
            self.deliver(session, heard)?;
        }
        // What markers are to overtake waits until they have.
        let is_overtaken = matches!(
            self.outside.faults.on(),
            Some(Fault::MarkerOvertakes | Fault::CallOvertaken)
        );
        if is_overtaken && !self.calm && !self.rights.all_acknowledged() {
            return Ok(());
        }
        for (to, entry) in std::mem::take(&mut self.outside.held_back) {
            self.outside.mailboxes[to].push_back(entry);
        }
        Ok(())
    }

    fn time_passes(&mut self) {
        let millis = match self.random.below(10) {
            0 => self.random.below(4_000),
            1..4 => self.random.below(300),
            _ => self.random.below(20),
        };
        self.advance(millis as u64);
    }

    fn advance(&mut self, millis: u64) {
        self.now.monotonic.0 += millis * NANOS_PER_MILLI;
        self.now.wall.0 += millis;
    }

    /// The node ends at once: what is not committed is lost, and it starts again.
    fn crash(&mut self) -> Checked {
        self.store.crash(&mut self.random);
        self.records.crash(&self.store)?;
        self.events.crash();
        self.rpcs.crash();
        self.unlistened.clear();
        self.presences.crash();
        self.rights = Rights::default();
        for index in 0..self.clients.len() {
            // Some of what was sent to the client still reaches it.
            while self.random.chance(70) && self.client_reads_one(index) {}
            self.clients[index].lost();
        }
        self.connections.clear();
        self.visible.clear();
        self.late.clear();
        let faults = self.outside.faults.clone();
        self.outside = Outside::new(SHARDS, faults);
        for shard in 0..SHARDS {
            let count = self.generations[shard].len() as u32;
            self.places[shard] = (0..count).collect();
        }
        self.start();
        Ok(())
    }
}

/// Whether a request is for a guarded record.
fn is_about_guarded(what: &RecordRequestKind) -> bool {
    match what {
        RecordRequestKind::Bulk { names, .. } => names.iter().any(|(name, _)| is_guarded(name)),
        RecordRequestKind::Recheck(name, _)
        | RecordRequestKind::Head(name)
        | RecordRequestKind::Write(name, _) => is_guarded(name),
        _ => false,
    }
}

/// A session as shard, place and generation.
fn shown(session: SessionId) -> String {
    let SessionId {
        home,
        index,
        generation,
    } = session;
    format!("{}.{index}.{generation}", home.shard)
}

fn address(shard: usize) -> Address {
    Address {
        node: 0,
        shard: shard as u16,
    }
}
