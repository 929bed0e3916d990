//! One run: a node of three shards, clients and a failing store in virtual time, all from one seed.
//!
//! The seed picks which shard runs next, how much of its mailbox and of its connections the shard sees, and which
//! operations clients perform. It also decides when completions arrive, when interest becomes visible and when time passes.

mod connecting;
mod delivered;
mod ending;
mod rights;
mod slowing;
mod summary;
mod taken;
mod troubles;
mod turn;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Epoch, SessionId};
use tidewire_core::effect::{Input, StoreCompletion};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::route::StoreId;
use tidewire_core::settings::{EventLagPolicy, Settings};
use tidewire_core::slot::SlotTable;
use tidewire_core::store::{Incarnation, Loaded, Opened, StoredRecord, Version, Written};
use tidewire_core::text::Payload;
use tidewire_core::time::{Instant, Now, WallTime};

use crate::check::{Check, Checked, Violation, ensure};
use crate::client::{Client, Sent};
use crate::event_model::EventModel;
use crate::fault::{Fault, Faults};
use crate::guarded::GuardedModel;
use crate::link::NODES;
use crate::nodes::{SHARDS, address, slots};
use crate::outside::Outside;
use crate::permission::{Rulings, TestPermission};
use crate::presence_model::PresenceModel;
use crate::random::Random;
use crate::record_model::{RecordModel, Stamp, Terms};
use crate::rpc_model::RpcModel;
use crate::rude;
use crate::shared::{SHARED, SharedModel, foreign, is_shared};
use crate::stores::{SimStores, routes};
use crate::tally::Tally;
use crate::trouble::{Trouble, Troubles};
use crate::wire::{Heard, NEW, OLD};
use rights::Rights;
pub use summary::{Size, Summary};

/// The minimum length of a run in virtual time, and its minimum numbers of operations, of clients and of contended records.
const RUN_MS: u64 = 60_000;
const OPERATIONS_MIN: u64 = 500;
const CLIENTS_MIN: usize = 4;
const CONTENDED_MIN: usize = 2;
/// Planned number of operations for each long pause.
const OPERATIONS_A_PAUSE: u64 = 30;
/// Rounds that usually settle pending work before a pause.
const REST_ROUNDS: usize = 6;
/// Longer than the answer timeout of a listener. With all `PAUSES`, every other timer ends too.
const PAUSE_MS: u64 = 700;
const PAUSES: usize = 24;
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 1_000;
/// A cache limit below this has no room for all records of a run.
const EVICTING_BYTES: usize = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A connection of a client to a shard.
#[derive(Debug)]
struct Connection {
    client: usize,
    /// No message passes in either direction before this time.
    delayed_until: Option<Instant>,
    /// Messages that the client has sent and the shard has not read.
    inbox: VecDeque<Sent>,
    /// The shard made the first message of the inbox wait.
    waiting: bool,
    /// Messages that the shard has sent and the client has not read.
    outbox: VecDeque<(Heard, Option<Rc<Stamp>>)>,
    /// The client has disconnected, and the shard does not know yet.
    dropped: bool,
    /// Number of messages that the shard has taken.
    number: u64,
    /// Logged in, as far as the shard knows.
    open: bool,
    /// The step at which the first message of the inbox was given to the shard.
    given: Option<u64>,
    /// The client requested coalescing.
    coalesces: bool,
    /// The simulation has reported to the shard that this connection lags.
    lags: bool,
    /// The simulation holds back the next answer.
    delay: Option<AnswerDelay>,
    /// The engine has closed the connection; the shard reads no further messages.
    closing: bool,
    /// When its login expires.
    expires_at: Option<WallTime>,
}

/// An answer that the simulation holds back.
#[derive(Debug)]
struct AnswerDelay {
    until: Instant,
    refuse: bool,
    /// The engine accepted the login that is held back.
    accepted: bool,
}

/// The state of a pattern that its session has unlistened at least once.
#[derive(Debug, Default)]
struct Unlistened {
    acks_due: usize,
    /// The session registered the pattern again.
    listens: bool,
}

/// See the documentation of this module.
pub struct Sim {
    random: Random,
    began: Instant,
    now: Now,
    shards: Vec<Shard>,
    outside: Outside,
    connections: BTreeMap<SessionId, Connection>,
    /// By shard and slot: the generation of the next session in that slot.
    generations: Vec<Vec<u32>>,
    /// By shard: the slots that no connection uses.
    free_slots: Vec<Vec<u32>>,
    visible: VecDeque<(usize, u64)>,
    troubles: Troubles,
    /// Until this time the shard visits connections in random order.
    reordered_until: Instant,
    /// Messages that a fault delays on their way to a session.
    late: Vec<(SessionId, Heard)>,
    stores: SimStores,
    clients: Vec<Client>,
    records: RecordModel,
    events: EventModel,
    rpcs: RpcModel,
    presences: PresenceModel,
    guarded: GuardedModel,
    shared: SharedModel,
    /// In this run another process writes some records.
    is_shared: bool,
    /// Patterns that a session has unlistened, by session, kind (true for records) and pattern.
    unlistened: BTreeMap<(SessionId, bool, String), Unlistened>,
    rulings: Rulings,
    rights: Rights,
    /// In this run rules change.
    is_ruled: bool,
    /// In this run rights change in some way: rules, expiry or revocations.
    is_changing: bool,
    /// The position of the message that is being delivered in its shard's log.
    log_index: usize,
    slots: Arc<SlotTable>,
    seed: u64,
    settings: Settings,
    opening: u64,
    next_event: u64,
    /// Clients start no new work, and all faults of the environment have stopped.
    calm: bool,
    /// Shards whose deadlines never arrive because of a fault.
    has_no_timers: [bool; SHARDS],
    /// No state changes, so the checks can compare answers with the truth.
    truthful: bool,
    trace: bool,
    /// The number of delivered messages of each kind.
    kinds: Option<BTreeMap<String, u64>>,
    /// Number of messages that clients have sent.
    sent_count: u64,
    /// The clients that have written each record.
    writers: BTreeMap<String, BTreeSet<usize>>,
    met: Tally,
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
        let faults = Faults::new(fault, seed);
        let stores = SimStores::new(&mut random, &faults);
        settings.routes = routes();
        // Connections do not wait for turns in this simulation. `tests/deferral` simulates connections that wait.
        settings.limits.connection_work_max = 0;
        // In half of the runs the server sends a session that lagged only one value at a time.
        if random.chance(50) {
            settings.limits.catch_up_bytes_max = 1;
        }
        if random.chance(20) {
            settings.event_lag_policy = EventLagPolicy::Disconnect;
        }
        // A rate only delays messages; it changes nothing else.
        if random.chance(20) {
            let rate = Rate {
                interval: Duration::from_millis(20),
                burst: 4,
            };
            settings.rates.connection[Operation::Message as usize] = Some(rate);
            settings.rates.user[Operation::Write as usize] = Some(rate);
        }
        // Each run lacks one resource at most, because the model predicts each lack alone.
        match random.below(4) {
            0 => settings.limits.dirty_records_max = 1 + random.below(3),
            1 => {
                // The model does not know which records are evicted, so it can't predict which loads are late or fail.
                settings.limits.cache_bytes_max = EVICTING_BYTES - 1;
                settings.load_timeout = Duration::from_secs(100_000);
            }
            _ => {}
        }
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let evicts = settings.limits.cache_bytes_max < EVICTING_BYTES;
        settings.memory_only_prefixes = vec!["shut/".into(), rude::PREFIX.into()];
        settings.hot_path_prefixes = vec![rude::HOT_PREFIX.into()];
        if !evicts {
            settings.memory_only_prefixes.push("mem/".into());
        }
        let records = RecordModel::new(Terms {
            shards: SHARDS,
            routes: settings.routes.clone(),
            dirty_max: settings.limits.dirty_records_max,
            load_timeout_ns: nanos(settings.load_timeout),
            write_timeout_ns: nanos(settings.write_timeout),
            evicts,
            memory_only: !evicts,
        });
        let rpcs = RpcModel::new(settings.rpc_accept_timeout, settings.rpc_response_timeout);
        let is_ruled = random.chance(20);
        let is_changing = is_ruled || random.chance(20);
        // The model of the other records does not know how much room these take.
        let has_room =
            settings.limits.dirty_records_max == Settings::default().limits.dirty_records_max;
        let is_shared = has_room && !is_ruled && random.chance(30);
        let clients = (0..CLIENTS_MIN + random.below(3))
            .map(|index| {
                let format = if random.chance(50) { NEW } else { OLD };
                let coalesces = random.chance(60);
                let mut client = Client::new(format!("user{}", index % 3), format, coalesces);
                client.services.salt = random.next();
                client.is_ruled = is_ruled;
                client.shares = is_shared;
                client
            })
            .collect();
        let now = Now {
            monotonic: Instant(1_000 * NANOS_PER_MILLI),
            wall: WallTime(1_700_000_000_000),
        };
        let troubles = Troubles::new(&mut random, now.monotonic, RUN_MS as usize, |trouble| {
            !evicts || !trouble.is_of_loads()
        });
        let mut sim = Self {
            random,
            began: now.monotonic,
            now,
            troubles,
            reordered_until: now.monotonic,
            shards: Vec::new(),
            outside: Outside::new(SHARDS, faults),
            connections: BTreeMap::new(),
            generations: vec![Vec::new(); SHARDS],
            free_slots: vec![Vec::new(); SHARDS],
            visible: VecDeque::new(),
            late: Vec::new(),
            stores,
            clients,
            records,
            events: EventModel::default(),
            rpcs,
            presences: PresenceModel::default(),
            guarded: GuardedModel::default(),
            shared: SharedModel::default(),
            is_shared,
            unlistened: BTreeMap::new(),
            rulings: Rulings::default(),
            rights: Rights::default(),
            is_ruled,
            is_changing,
            log_index: 0,
            slots: slots(seed),
            seed,
            settings,
            opening: 0,
            next_event: 0,
            calm: false,
            has_no_timers: [false; SHARDS],
            truthful: false,
            trace: false,
            kinds: None,
            sent_count: 0,
            writers: BTreeMap::new(),
            met: Tally::default(),
            summary: Summary::default(),
            digest: DefaultHasher::new(),
        };
        if sim.random.chance(15) {
            sim.versions_end_soon();
        }
        sim.start();
        sim
    }

    /// Starts the store with a record that has almost reached the last version.
    fn versions_end_soon(&mut self) {
        let (name, version) = ("r/3", Version(Version::LAST.0 - 2));
        let record = StoredRecord {
            incarnation: Incarnation(1),
            version,
            data: Payload::from_checked("{}"),
            write_keys: None,
        };
        self.stores.of_mut(name).begin_with(name, record);
        let owner = self.owner(name);
        self.records.begin_with(name, owner, i32::MAX - 2);
    }

    /// Prints each message that is taken or delivered, to debug one seed.
    pub fn traced(mut self) -> Self {
        self.trace = true;
        self
    }

    /// Runs to the end and counts the delivered messages by kind.
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

    /// Runs to the end: first until all clients are connected and idle, then until all clients have gone and the node is idle.
    pub fn run(mut self) -> Result<Summary, Violation> {
        self.run_on()?;
        self.summary.digest = self.digest.finish();
        self.met.merge(&self.outside.met);
        self.met.merge(&self.stores.met());
        self.summary.met = self.met;
        Ok(self.summary)
    }

    fn run_on(&mut self) -> Checked {
        let (troubles, kinds_of_trouble) = self.troubles.counts();
        for client in 0..self.clients.len() {
            self.connect(client)?;
        }
        while !self.is_done() {
            self.step()?;
        }
        self.summary.size = Size {
            virtual_ms: self.passed_ms(),
            clients: self.clients.len(),
            contended_records: self.contended_count(),
            troubles,
            kinds_of_trouble,
            crashes: self.met.of(Trouble::PowerCut.name()) + self.met.of(Trouble::Kill.name()),
            ..self.summary.size
        };
        self.calm = true;
        self.stores.repair();
        for client in &mut self.clients {
            client.services.calm = true;
        }
        self.settle()?;
        self.truthful = true;
        self.all_clients(Client::query_presence);
        self.settle()?;
        self.quiet()?;
        self.providers_are_right()?;
        self.guarded_records_go_on()?;
        self.shared_records_go_on()?;
        self.all_clients(Client::unsubscribe_all);
        self.settle()?;
        self.providers_are_right()?;
        for client in 0..self.clients.len() {
            self.drop_client(client);
        }
        self.settle()?;
        self.nothing_leaks()?;
        self.stop()
    }

    fn start(&mut self) {
        let first_opening = self.opening + 1;
        self.opening += NODES as u64;
        let opened = |node: u16, store: StoreId| Opened {
            epoch: Epoch(first_opening),
            // Each node opens each store, and each store has its own count of openings.
            opening: first_opening + u64::from(node) + 1_000 * u64::from(store.0),
        };
        self.shards = (0..SHARDS)
            .map(|shard| {
                Shard::new(ShardConfig {
                    address: address(shard),
                    slots: Arc::clone(&self.slots),
                    settings: self.settings.clone(),
                    permission: Arc::new(TestPermission {
                        rulings: self.rulings.clone(),
                        rules: Arc::default(),
                    }),
                    seed: self.seed,
                    opened: SimStores::all()
                        .map(|store| opened(address(shard).node, store))
                        .collect(),
                })
            })
            .collect();
    }

    /// Whether the run was long enough and had enough operations, troubles and contended records.
    fn is_done(&self) -> bool {
        self.summary.size.operations >= OPERATIONS_MIN
            && self.passed_ms() >= RUN_MS
            && self.troubles.is_over()
            && self.contended_count() >= CONTENDED_MIN
    }

    fn passed_ms(&self) -> u64 {
        (self.now.monotonic.0 - self.began.0) / NANOS_PER_MILLI
    }

    fn contended_count(&self) -> usize {
        let writers = self.writers.values();
        writers.filter(|writers| writers.len() > 1).count()
    }

    fn step(&mut self) -> Checked {
        self.summary.steps += 1;
        self.records.step = self.summary.steps;
        self.troubles_strike()?;
        match self.random.below(100) {
            0..40 => {
                let shard = self.random.below(SHARDS);
                self.turn(shard)?;
            }
            40..60 => self.client_acts(),
            60..72 => self.client_reads(),
            72..82 => self.store_works()?,
            82..88 => {
                self.store_answers()?;
            }
            88..92 => self.interest_moves()?,
            92..94 => self.confirm_interest()?,
            94..96 => self.late_things_come()?,
            97 if self.is_shared && self.random.chance(30) => self.another_process_writes(),
            96 if self.random.chance(30) => self.rights_change(),
            96 => self.time_passes(),
            97 => self.nothing_is_done()?,
            98 => self.slowness_changes()?,
            _ => self.connection_changes()?,
        }
        Ok(())
    }

    fn store_works(&mut self) -> Checked {
        if !self.outside.logins.is_empty() && self.random.chance(50) {
            self.log_in()?;
        }
        if let Some(store) = self.stores.ready(&mut self.random, self.now.monotonic) {
            let index = self.random.below(store.asked.len());
            store.work(index, &mut self.outside.faults);
            if self.random.chance(10) {
                store.tidy();
            }
        }
        Ok(())
    }

    /// Delivers one answer of a store to its shard. Returns false if no answer is in flight.
    fn store_answers(&mut self) -> Result<bool, Violation> {
        let Some(store) = self.stores.answering(&mut self.random) else {
            return Ok(false);
        };
        let index = self.random.below(store.answers.len());
        let (shard, mut completion, names) = store.answers.remove(index);
        if let StoreCompletion::Committed {
            result: Ok(written),
            ..
        } = &mut completion
            && written.contains(&Written::Refused)
            && self.outside.faults.is_on(Fault::RefusalMissed)
        {
            written.fill(Written::Done);
        }
        let now = self.now.monotonic.0;
        if self.trace {
            println!("{:6} shard {shard} gets {completion:?}", self.summary.steps);
        }
        match &completion {
            StoreCompletion::Loaded { records } => {
                for (name, result) in records.iter().filter(|(name, _)| !is_shared(name)) {
                    let found = matches!(result, Ok(Loaded::Found(_) | Loaded::Missing));
                    self.records.loaded(shard, now, name, found, &self.stores)?;
                }
            }
            StoreCompletion::Committed { result, .. } => {
                let written = result.as_deref().unwrap_or_default();
                let mut refused = names.iter().zip(written);
                let refused = refused
                    .find(|(name, written)| !is_shared(name) && **written == Written::Refused);
                ensure(refused.is_none(), Check::StoreContent, || {
                    format!("{refused:?} was committed by its only owner")
                })?;
                if result.is_ok() {
                    self.records.committed(shard, &names);
                }
            }
            // These stores have no quotas, and the simulation makes no queries and never searches for old histories.
            StoreCompletion::Quota { .. }
            | StoreCompletion::Scanned { .. }
            | StoreCompletion::Indexed { .. }
            | StoreCompletion::OldHistories(_) => {}
        }
        self.input(shard, Input::Store(completion))?;
        Ok(true)
    }

    /// Another process writes a record. The owner learns of it at its next commit.
    fn another_process_writes(&mut self) {
        self.next_event += 1;
        self.shared.write(self.next_event);
        let name = *self.random.pick(&SHARED);
        let store = self.stores.of_mut(name);
        store.written_by_another(name, foreign(self.next_event));
        self.met.add("trouble: write of another process");
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

    /// Delivers the messages that a fault has delayed.
    fn late_things_come(&mut self) -> Checked {
        for (session, heard) in std::mem::take(&mut self.late) {
            self.deliver(session, heard)?;
        }
        // Messages that markers must overtake wait until the markers have arrived.
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

    /// No client does anything for a while. In 60 % of cases most pending work ends first, otherwise it stays pending.
    fn nothing_is_done(&mut self) -> Checked {
        if self.random.chance(60) {
            for _ in 0..REST_ROUNDS {
                if !self.round()? {
                    break;
                }
            }
        }
        let size = &self.summary.size;
        let pauses = OPERATIONS_MIN.saturating_sub(size.operations) / OPERATIONS_A_PAUSE + 1;
        let left = RUN_MS.saturating_sub(self.passed_ms());
        let millis = self.random.below(2 * (left / pauses) as usize + 100);
        self.advance(millis as u64);
        Ok(())
    }

    fn advance(&mut self, millis: u64) {
        self.now.monotonic.0 += millis * NANOS_PER_MILLI;
        self.now.wall.0 += millis;
    }
}

/// Formats a session as node, shard, slot and generation.
fn shown(session: SessionId) -> String {
    let SessionId {
        address,
        index,
        generation,
    } = session;
    format!("{}.{}.{index}.{generation}", address.node, address.shard)
}
