//! One run: a node of three shards, clients and a failing store in virtual time, all from one seed.
//!
//! The seed picks which shard runs next, how much of its mailbox and of its connections it sees, when completions
//! come, when interest becomes visible, when time passes, and what clients do.

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

use foldhash::fast::FixedState;
use tidewire_core::address::{Address, Epoch, SessionId};
use tidewire_core::effect::{Input, StoreCompletion};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::rate::{Operation, Rate};
use tidewire_core::route::StoreId;
use tidewire_core::settings::{EventLagPolicy, Settings};
use tidewire_core::store::{Incarnation, Loaded, Opened, StoredRecord, Version, Written};
use tidewire_core::text::Payload;
use tidewire_core::time::{Instant, Now, WallTime};

use crate::check::{Check, Checked, Violation, ensure};
use crate::client::{Client, Sent};
use crate::event_model::EventModel;
use crate::fault::{Fault, Faults};
use crate::guarded::GuardedModel;
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

const SHARDS: usize = 3;
/// A run lasts at least so long, with so much done by so many.
const RUN_MS: u64 = 60_000;
const OPERATIONS_MIN: u64 = 500;
const CLIENTS_MIN: usize = 4;
const CONTENDED_MIN: usize = 2;
/// Operations for each long pause.
const OPERATIONS_A_PAUSE: u64 = 30;
/// Rounds in which things come to rest before a pause, often.
const REST_ROUNDS: usize = 6;
/// Longer than the time that a listener has to answer, and often enough that every other timer has its end.
const PAUSE_MS: u64 = 700;
const PAUSES: usize = 24;
/// Everything under way ends within so many rounds.
const ROUNDS_MAX: usize = 1_000;
/// A cache below this has no room for all records of a run.
const EVICTING_BYTES: usize = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A connection of a client to a shard.
#[derive(Debug)]
struct Connection {
    client: usize,
    /// Nothing gets through before.
    delayed_until: Option<Instant>,
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
    /// It coalesces, as it says itself.
    coalesces: bool,
    /// The shard was told that it lags.
    lags: bool,
    /// Its next answer is held back.
    delay: Option<AnswerDelay>,
    /// The engine wants it closed; nothing more of it is read.
    closing: bool,
    /// When its login expires.
    expires_at: Option<WallTime>,
}

/// An answer that is held back.
#[derive(Debug)]
struct AnswerDelay {
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
    began: Instant,
    now: Now,
    shards: Vec<Shard>,
    outside: Outside,
    connections: BTreeMap<SessionId, Connection>,
    /// By shard and place: the generation of the next session there.
    generations: Vec<Vec<u32>>,
    /// Free places.
    places: Vec<Vec<u32>>,
    visible: VecDeque<(usize, u64)>,
    troubles: Troubles,
    /// Connections are looked at in any order until then.
    reordered_until: Instant,
    /// Deliveries that a fault has held back.
    late: Vec<(SessionId, Heard)>,
    stores: SimStores,
    clients: Vec<Client>,
    records: RecordModel,
    events: EventModel,
    rpcs: RpcModel,
    presences: PresenceModel,
    guarded: GuardedModel,
    shared: SharedModel,
    /// Another process writes some records in this run.
    is_shared: bool,
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
    /// Shards whose deadlines a fault keeps from being reached.
    has_no_timers: [bool; SHARDS],
    /// Nothing changes any more, so answers can be compared with the truth.
    truthful: bool,
    trace: bool,
    /// How often each kind of message was delivered.
    kinds: Option<BTreeMap<String, u64>>,
    /// Messages that clients have sent.
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
        // Turns are not begun here; what waits for them is simulated in `tests/deferral`.
        settings.limits.connection_work_max = 0;
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
        // One kind of lack a run, because the model predicts each of them alone.
        match random.below(4) {
            0 => settings.limits.dirty_records_max = 1 + random.below(3),
            1 => {
                // The model does not know what is evicted, so it can't know which loads are late, or fail.
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
        // The model of other records does not know how much room these take.
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
            places: vec![Vec::new(); SHARDS],
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
            place: 0,
            owner_hash: FixedState::with_seed(seed),
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

    /// The store has a record whose versions are about to start again.
    fn versions_end_soon(&mut self) {
        let (name, version) = ("r/3", Version(Version::LAST.0 - 2));
        let record = StoredRecord {
            incarnation: Incarnation(1),
            version,
            data: Payload::from_checked("{}"),
        };
        self.stores.of_mut(name).begin_with(name, record);
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
        self.stores.mend();
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
        self.opening += 1;
        let opened = |store: StoreId| Opened {
            epoch: Epoch(self.opening),
            // Each store counts its own.
            opening: self.opening + 100 * u64::from(store.0),
        };
        self.shards = (0..SHARDS)
            .map(|shard| {
                Shard::new(ShardConfig {
                    address: address(shard),
                    shard_count: SHARDS as u16,
                    settings: self.settings.clone(),
                    permission: Arc::new(TestPermission {
                        rulings: self.rulings.clone(),
                        rules: Arc::default(),
                    }),
                    seed: self.seed,
                    owner_key: self.seed,
                    opened: SimStores::all().map(opened).collect(),
                })
            })
            .collect();
    }

    /// Whether it was long and eventful enough.
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
            let place = self.random.below(store.asked.len());
            store.work(place, &mut self.outside.faults);
            if self.random.chance(10) {
                store.tidy();
            }
        }
        Ok(())
    }

    /// False if no answer is on its way.
    fn store_answers(&mut self) -> Result<bool, Violation> {
        let Some(store) = self.stores.answering(&mut self.random) else {
            return Ok(false);
        };
        let place = self.random.below(store.answers.len());
        let (shard, mut completion, names) = store.answers.remove(place);
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
            // These stores have no quotas and nobody looks for old histories.
            StoreCompletion::Quota { .. } | StoreCompletion::OldHistories(_) => {}
        }
        self.input(shard, Input::Store(completion))?;
        Ok(true)
    }

    /// Another process writes a record, of which its owner learns with its next commit.
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

    /// Nobody does anything for a while: often everything under way comes to its end before, sometimes it hangs.
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

/// A session as shard, place and generation.
fn shown(session: SessionId) -> String {
    let SessionId {
        address,
        index,
        generation,
    } = session;
    format!("{}.{index}.{generation}", address.shard)
}

fn address(shard: usize) -> Address {
    Address {
        node: 0,
        shard: shard as u16,
    }
}
