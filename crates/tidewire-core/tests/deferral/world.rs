//! One run: a node of three shards with little work per turn, several writers, and on each shard a session that watches all
//! records. In half of the runs rules change; in the others the right of readers depends on data.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidewire_core::address::{Epoch, SessionId};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, Flow, Format, Input};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::Entry;
use tidewire_core::message::{Auth, Change, Connection, Message, Record, RecordBulk, Write};
use tidewire_core::principal::Principal;
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;
use tidewire_core::store::Opened;
use tidewire_core::text::Name;
use tidewire_core::time::{Instant, Now, WallTime};

use crate::fault::{Check, Fault};
use crate::kept_records::KeptRecords;
use crate::nodes::{SHARDS, address, index_of, slots};
use crate::outside::{Heard, Outside};
use crate::permission::{GATE, Muted, READER, TakenBy, TestPermission, is_shut};
use crate::random::Random;

const WRITERS: usize = 3;
const RECORDS: [&str; 4] = ["a", "b", "c", GATE];
const READERS: usize = 4;
const STEPS: usize = 600;
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 5_000;

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub Check, pub String);

type Checked = Result<(), Violation>;

fn ensure(holds: bool, check: Check, why: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation(check, why())),
    }
}

/// The cases that runs met.
#[derive(Debug, Default)]
pub struct Met {
    deferred: u64,
    made: usize,
    refused: usize,
    read: usize,
    settled: u64,
    /// Sessions that ended while an owner deferred their requests.
    ended: usize,
    /// Subscriptions that ended with a right to read.
    lost: u64,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        self.deferred += other.deferred;
        self.made += other.made;
        self.refused += other.refused;
        self.read += other.read;
        self.settled += other.settled;
        self.ended += other.ended;
        self.lost += other.lost;
    }

    pub fn has_everything(&self) -> bool {
        let counts = [self.made, self.refused, self.read, self.ended];
        self.deferred > 0
            && self.settled > 0
            && self.lost > 0
            && counts.iter().all(|count| *count > 0)
    }
}

/// A message of a client.
#[derive(Clone, Copy, Debug)]
enum Said {
    Write { name: &'static str, number: u64 },
    Read { name: &'static str },
    Notify { name: &'static str },
}

/// A write that a shard has taken.
#[derive(Debug)]
struct Taken {
    name: &'static str,
    session: SessionId,
    writer: usize,
    /// Some rules that may have decided about the write forbid it.
    may_be_refused: bool,
    answers: usize,
    refused: bool,
    /// The step at which a shard took the write, and the step at which the world saw its effect.
    taken_at: usize,
    made_at: Option<usize>,
}

/// A reader's state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// The reader must subscribe.
    Wanted,
    Asked,
    /// The value of the write with this number, or 0 if the value is older than all writes.
    Has(u64),
    /// The reader may not read the record.
    Lost,
}

#[derive(Debug)]
struct Reader {
    session: SessionId,
    waiting: bool,
    views: BTreeMap<&'static str, View>,
}

#[derive(Debug)]
struct Client {
    session: SessionId,
    inbox: VecDeque<Said>,
    /// The shard made the client's next message wait.
    waiting: bool,
    /// By record: for each read without an answer, the session's last write before it.
    reads: BTreeMap<&'static str, VecDeque<u64>>,
    /// The last write to each record.
    written: BTreeMap<&'static str, u64>,
}

/// See the documentation of this module.
pub struct World {
    random: Random,
    now: Now,
    shards: Vec<Shard>,
    outside: Outside,
    clients: Vec<Client>,
    readers: Vec<Reader>,
    /// The right of readers depends on data, and rules do not change.
    is_sighted: bool,
    steps: usize,
    next_index: u32,
    stored: KeptRecords,
    next_write: u64,
    taken: BTreeMap<u64, Taken>,
    /// The checked writes, by record and in order.
    made: BTreeMap<String, Vec<u64>>,
    made_count: usize,
    change: u64,
    /// The rules of the last change. `rules` has the rules that each shard applies now.
    newest: Arc<Muted>,
    rules: Vec<Arc<Muted>>,
    /// The users that must not write: all rules that a shard may still apply forbid it.
    forbidden: Muted,
    taken_by: TakenBy,
    met: Met,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed);
        let mut settings = Settings {
            heartbeat_interval: Duration::from_secs(100_000),
            login_timeout: None,
            ..Settings::default()
        };
        settings.limits.connection_work_max = *random.pick(&[1, 2_000, 15_000]);
        settings.limits.turn_work_max = *random.pick(&[6_000, 30_000]);
        let taken_by = TakenBy::default();
        let is_sighted = random.chance(50);
        let slots = slots(seed);
        let shards = (0..SHARDS)
            .map(|shard| {
                Shard::new(ShardConfig {
                    address: address(shard),
                    slots: Arc::clone(&slots),
                    settings: settings.clone(),
                    permission: Arc::new(TestPermission {
                        muted: Arc::default(),
                        is_sighted,
                        taken_by: taken_by.clone(),
                    }),
                    seed,
                    opened: vec![Opened {
                        epoch: Epoch(1),
                        opening: 1,
                    }],
                })
            })
            .collect();
        Self {
            random,
            now: Now {
                monotonic: Instant(1_000_000_000),
                wall: WallTime(1_700_000_000_000),
            },
            shards,
            outside: Outside::new(SHARDS, fault, seed),
            clients: Vec::new(),
            readers: Vec::new(),
            is_sighted,
            steps: 0,
            next_index: 0,
            stored: KeptRecords::default(),
            next_write: 0,
            taken: BTreeMap::new(),
            made: BTreeMap::new(),
            made_count: 0,
            change: 0,
            newest: Arc::default(),
            rules: vec![Arc::default(); SHARDS],
            forbidden: Muted::new(),
            taken_by,
            met: Met::default(),
        }
    }

    /// Runs to the end, when all pending work has ended and all clients are still connected.
    pub fn run(mut self) -> Result<Met, Violation> {
        // Each shard has a watcher, so every change of an owner also goes to another shard.
        for shard in 0..SHARDS {
            let watcher = self.login(shard, "watcher");
            let subscribe = Message::Record(Record::Bulk {
                action: RecordBulk::SubscribeCreateAndRead,
                names: RECORDS.to_vec(),
                correlation: Some("0"),
            });
            while self.give(watcher, &subscribe) == Flow::Wait {
                self.round()?;
            }
        }
        self.rest()?;
        for writer in 0..WRITERS {
            let client = self.connect(writer);
            self.clients.push(client);
        }
        for reader in 0..READERS {
            let reader = self.begin_to_read(reader);
            self.readers.push(reader);
        }
        for _ in 0..STEPS {
            self.step()?;
        }
        self.rest()?;
        self.all_is_answered()?;
        self.all_is_made()?;
        self.readers_are_up_to_date()?;
        self.nothing_is_kept()?;
        self.met.made = self.made_count;
        Ok(self.met)
    }

    /// Runs until all pending work has ended.
    fn rest(&mut self) -> Checked {
        // The last message of a round is sent in the next round.
        let mut still = 0;
        for _ in 0..ROUNDS_MAX {
            still = if self.round()? { 0 } else { still + 1 };
            if still == 3 {
                return Ok(());
            }
        }
        ensure(false, Check::Rest, || "something goes on and on".into())
    }

    fn step(&mut self) -> Checked {
        self.steps += 1;
        match self.random.below(100) {
            0..45 => {
                let shard = self.random.below(SHARDS);
                self.turn(shard, false)?;
            }
            45..65 => self.client_acts(),
            65..70 => self.reader_acts(),
            70..85 => self.store_answers(),
            85..93 => {
                let awaited: Vec<_> = self.outside.awaited.iter().copied().collect();
                if !awaited.is_empty() {
                    let session = *self.random.pick(&awaited);
                    self.drains(session);
                }
            }
            93..97 if !self.is_sighted => self.rules_change(),
            93 => self.reader_ends(),
            94..97 => self.reader_acts(),
            97 => {
                self.now.monotonic = self.now.monotonic + Duration::from_millis(10);
                self.now.wall.0 += 10;
            }
            _ => self.connection_ends(),
        }
        self.check()
    }

    /// Lets each shard and each client do its pending work once. Returns whether work is left.
    fn round(&mut self) -> Result<bool, Violation> {
        for shard in 0..SHARDS {
            self.turn(shard, true)?;
        }
        while !self.outside.store.is_empty() {
            self.store_answers();
        }
        for session in std::mem::take(&mut self.outside.awaited) {
            self.drains(session);
        }
        self.check()?;
        let is_due = |shard: &Shard| {
            let due = shard.next_deadline();
            shard.has_work() || due.is_some_and(|due| due <= self.now.monotonic)
        };
        Ok(self
            .outside
            .mailboxes
            .iter()
            .any(|mailbox| !mailbox.is_empty())
            || !self.outside.store.is_empty()
            || !self.outside.awaited.is_empty()
            || self
                .clients
                .iter()
                .any(|client| !client.waiting && !client.inbox.is_empty())
            || self.shards.iter().any(is_due))
    }

    /// Runs one turn of a shard, which sees all or some of its mailbox.
    fn turn(&mut self, shard: usize, all: bool) -> Checked {
        self.outside.at = shard;
        self.shards[shard].begin_turn(self.now, &mut self.outside);
        let length = self.outside.mailboxes[shard].len();
        let seen = if all {
            length
        } else {
            self.random.below(length + 1)
        };
        for _ in 0..seen {
            let Some(entry) = self.outside.mailboxes[shard].pop_front() else {
                break;
            };
            if let Entry::Rights(marker) = &entry
                && marker.number == self.change
            {
                self.rules[shard] = self.newest.clone();
            }
            self.input(shard, Input::Entry(entry));
        }
        for client in 0..self.clients.len() {
            if index_of(self.clients[client].session.address) == shard {
                self.read_connection(client, all);
            }
        }
        for reader in 0..self.readers.len() {
            if index_of(self.readers[reader].session.address) == shard {
                self.subscribe(reader);
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
        // The checks must see a change before a session hears of it.
        self.check()?;
        for (session, heard) in received {
            self.hear(session, heard)?;
        }
        Ok(())
    }

    fn input(&mut self, shard: usize, input: Input) {
        self.outside.at = shard;
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.resume();
    }

    fn resume(&mut self) {
        for session in std::mem::take(&mut self.outside.resumed) {
            let mut clients = self.clients.iter_mut();
            if let Some(client) = clients.find(|client| client.session == session) {
                client.waiting = false;
            }
            let mut readers = self.readers.iter_mut();
            if let Some(reader) = readers.find(|reader| reader.session == session) {
                reader.waiting = false;
            }
        }
    }

    fn give(&mut self, session: SessionId, message: &Message<'_>) -> Flow {
        let shard = index_of(session.address);
        self.outside.at = shard;
        let flow = self.shards[shard].message(self.now, session, message, &mut self.outside);
        self.resume();
        flow
    }

    fn login(&mut self, shard: usize, user: &str) -> SessionId {
        let session = SessionId {
            address: address(shard),
            index: self.next_index,
            generation: 1,
        };
        self.next_index += 1;
        let format = Format(0);
        self.input(
            shard,
            Input::Opened {
                session,
                format,
                coalesces: None,
            },
        );
        let messages = [
            Message::Connection(Connection::challenge(false)),
            Message::Auth(Auth::Request { data: Some("{}") }),
        ];
        for message in messages {
            while self.give(session, &message) == Flow::Wait {
                self.shards[shard].begin_turn(self.now, &mut self.outside);
                self.drains(session);
            }
        }
        for request in std::mem::take(&mut self.outside.logins) {
            let principal = Principal::new(Name::from(user));
            let outcome = AuthOutcome::Accepted(Arc::new(principal));
            let session = request.session;
            self.input(shard, Input::Auth(AuthCompletion { session, outcome }));
        }
        session
    }

    fn connect(&mut self, writer: usize) -> Client {
        let shard = self.random.below(SHARDS);
        Client {
            session: self.login(shard, &user(writer)),
            inbox: VecDeque::new(),
            waiting: false,
            reads: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    fn drains(&mut self, session: SessionId) {
        self.outside.awaited.remove(&session);
        self.input(index_of(session.address), Input::Drained { session });
    }

    fn client_acts(&mut self) {
        let client = self.random.below(self.clients.len());
        for _ in 0..=self.random.below(6) {
            let name = *self.random.pick(&RECORDS);
            let said = match self.random.below(10) {
                0..6 => {
                    self.next_write += 1;
                    let number = self.next_write;
                    Said::Write { name, number }
                }
                6..9 => Said::Read { name },
                _ => Said::Notify { name },
            };
            self.clients[client].inbox.push_back(said);
        }
    }

    fn read_connection(&mut self, index: usize, all: bool) {
        let count = if all {
            usize::MAX
        } else {
            self.random.below(5)
        };
        for _ in 0..count {
            let client = &self.clients[index];
            let Some(said) = client.inbox.front().copied().filter(|_| !client.waiting) else {
                return;
            };
            let session = client.session;
            if self.say(session, said) == Flow::Wait {
                self.clients[index].waiting = true;
                return;
            }
            let client = &mut self.clients[index];
            client.inbox.pop_front();
            match said {
                Said::Write { name, number } => {
                    client.written.insert(name, number);
                }
                Said::Read { name } => {
                    let before = client.written.get(name).copied().unwrap_or(0);
                    client.reads.entry(name).or_default().push_back(before);
                }
                Said::Notify { .. } => {}
            }
        }
    }

    fn say(&mut self, session: SessionId, said: Said) -> Flow {
        match said {
            Said::Write { name, number } => self.say_write(session, name, number),
            Said::Read { name } => self.give(session, &Message::Record(Record::Read { name })),
            Said::Notify { name } => {
                let notify = Record::Bulk {
                    action: RecordBulk::Notify,
                    names: vec![name],
                    correlation: Some("0"),
                };
                self.give(session, &Message::Record(notify))
            }
        }
    }

    fn say_write(&mut self, session: SessionId, name: &'static str, number: u64) -> Flow {
        let writers = self.clients.iter();
        let writer = writers
            .take_while(|client| client.session != session)
            .count();
        let rules = self.rules[index_of(session.address)].clone();
        if self.outside.fault == Some(Fault::OldRules) {
            let mut taken_by = self.taken_by.lock().unwrap_or_else(PoisonError::into_inner);
            taken_by.insert(number, rules);
        }
        // The write may take effect while the shard takes the message.
        let before = self.taken.insert(
            number,
            Taken {
                name,
                session,
                writer,
                may_be_refused: self.may_be_refused(writer),
                answers: 0,
                refused: false,
                taken_at: self.steps,
                made_at: None,
            },
        );
        let data = format!(
            r#"{{"n":{number},"p":"{}"}}"#,
            "x".repeat(number as usize * 997 % 7_000)
        );
        let id = number.to_string();
        let write = Write {
            name,
            version: -1,
            correlation: Some(&id),
            write_ack: true,
            key: None,
        };
        let change = Change::Update { data: Some(&data) };
        let flow = self.give(session, &Message::Record(Record::Write(write, change)));
        if flow == Flow::Wait && before.is_none() {
            self.taken.remove(&number);
        }
        flow
    }

    /// Whether some rules that a shard may apply forbid this writer to write.
    fn may_be_refused(&self, writer: usize) -> bool {
        let user = user(writer);
        let mut rules = self.rules.iter().chain([&self.newest]);
        rules.any(|muted| muted.contains(&user))
    }

    /// Changes the rules, once all shards have settled the last change.
    fn rules_change(&mut self) {
        if self
            .shards
            .iter()
            .any(|shard| shard.settled() < self.change)
        {
            return;
        }
        let mut muted = Muted::new();
        for writer in 0..WRITERS {
            if self.random.chance(35) {
                muted.insert(user(writer));
            }
        }
        self.change += 1;
        self.forbidden = self.forbidden.intersection(&muted).cloned().collect();
        for taken in self.taken.values_mut() {
            taken.may_be_refused |= muted.contains(&user(taken.writer));
        }
        self.newest = Arc::new(muted);
        let permission = TestPermission {
            muted: self.newest.clone(),
            is_sighted: self.is_sighted,
            taken_by: self.taken_by.clone(),
        };
        let shard = self.random.below(SHARDS);
        self.rules[shard] = self.newest.clone();
        let change = RightsChange::Rules(Arc::new(permission));
        let number = self.change;
        self.input(shard, Input::Rights { number, change });
    }

    fn connection_ends(&mut self) {
        let index = self.random.below(self.clients.len());
        let session = self.clients[index].session;
        let mut deferring = self.outside.deferring.iter();
        self.met.ended += usize::from(deferring.any(|(known, _)| *known == session));
        self.outside.awaited.remove(&session);
        self.input(index_of(session.address), Input::Closed { session });
        self.clients[index] = self.connect(index);
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

    /// Checks the changes that owners have made.
    fn check(&mut self) -> Checked {
        for (name, number) in std::mem::take(&mut self.outside.made) {
            let made = self.made.entry(name.clone()).or_default();
            let Some(taken) = self.taken.get(&number).filter(|_| !made.contains(&number)) else {
                continue;
            };
            let is_forbidden = self.forbidden.contains(&user(taken.writer));
            ensure(!is_forbidden, Check::OldRules, || {
                format!("write {number} to {name} is made, and no rules allow it")
            })?;
            let later = made
                .iter()
                .find(|later| **later > number && self.taken[*later].session == taken.session);
            ensure(later.is_none(), Check::Order, || {
                format!("{later:?} of {:?} is made before {number}", taken.session)
            })?;
            made.push(number);
            self.made_count += 1;
            if let Some(taken) = self.taken.get_mut(&number) {
                taken.made_at = Some(self.steps);
            }
        }
        let settled = self.shards.iter().map(Shard::settled).min().unwrap_or(0);
        if settled == self.change && settled > 0 {
            self.met.settled = settled;
            self.forbidden = (*self.newest).clone();
        }
        let lost = self.shards.iter().map(|shard| shard.counts().rights_lost);
        self.met.lost = lost.sum();
        self.met.deferred = self
            .shards
            .iter()
            .map(|shard| shard.counts().deferred)
            .sum();
        Ok(())
    }

    /// A reader subscribes again to all records that it lost.
    fn reader_acts(&mut self) {
        let reader = self.random.below(self.readers.len());
        for view in self.readers[reader].views.values_mut() {
            if *view == View::Lost {
                *view = View::Wanted;
            }
        }
    }

    fn reader_ends(&mut self) {
        let reader = self.random.below(self.readers.len());
        let session = self.readers[reader].session;
        self.outside.awaited.remove(&session);
        self.input(index_of(session.address), Input::Closed { session });
        self.readers[reader] = self.begin_to_read(reader);
    }

    fn begin_to_read(&mut self, reader: usize) -> Reader {
        let shard = self.random.below(SHARDS);
        // Two readers share one user.
        let user = format!("{READER}{}", reader / 2);
        Reader {
            session: self.login(shard, &user),
            waiting: false,
            views: RECORDS.map(|name| (name, View::Wanted)).into(),
        }
    }

    /// Subscribes to the next record that a reader wants.
    fn subscribe(&mut self, reader: usize) {
        let Reader {
            session,
            waiting,
            views,
        } = &self.readers[reader];
        let wanted = views.iter().find(|(_, view)| **view == View::Wanted);
        let Some((name, _)) = wanted.filter(|_| !waiting) else {
            return;
        };
        let (session, name) = (*session, *name);
        let subscribe = Message::Record(Record::Bulk {
            action: RecordBulk::SubscribeAndRead,
            names: vec![name],
            correlation: Some("0"),
        });
        let is_taken = self.give(session, &subscribe) == Flow::Taken;
        let reader = &mut self.readers[reader];
        reader.waiting = !is_taken;
        if is_taken {
            reader.views.insert(name, View::Asked);
        }
    }

    fn read(&mut self, reader: usize, heard: &Heard) -> Checked {
        let (name, number) = match heard {
            Heard::Value(name, number)
            | Heard::Changed(name, number)
            | Heard::Refused(name, number) => (name, *number),
            _ => return Ok(()),
        };
        let made = self.made.get(name).map_or(&[][..], Vec::as_slice);
        let position = |number| made.iter().position(|made| *made == number);
        let mut views = self.readers[reader].views.iter_mut();
        let Some((_, view)) = views.find(|(known, _)| **known == name) else {
            return Ok(());
        };
        let before = *view;
        *view = match heard {
            Heard::Refused(..) => View::Lost,
            _ => View::Has(number),
        };
        let is_next = match (heard, before) {
            (Heard::Refused(..), View::Asked | View::Has(_)) => return Ok(()),
            (Heard::Value(..), View::Asked) => true,
            (Heard::Changed(..), View::Has(0)) => position(number) == Some(0),
            (Heard::Changed(..), View::Has(before)) => {
                position(before).is_some_and(|before| position(number) == Some(before + 1))
            }
            _ => false,
        };
        ensure(is_next, Check::Steps, || {
            format!("{heard:?} behind {before:?} of {made:?}")
        })?;
        let is_sight = !self.is_sighted || number == 0 || !is_shut(name, number);
        ensure(is_sight, Check::Sight, || {
            format!("a reader hears {heard:?}")
        })?;
        let since = self.taken.get(&number).map_or(0, |taken| taken.taken_at);
        let is_right = !self.is_sighted || !matches!(heard, Heard::Changed(..));
        ensure(
            is_right || self.gate_may_be_open_since(since),
            Check::Sight,
            || format!("a reader hears {heard:?}, the gate is shut since before step {since}"),
        )
    }

    /// Whether the gate may have been open at some time since a step. Each write to it took effect after a shard took it, and
    /// before the world saw the effect.
    fn gate_may_be_open_since(&self, since: usize) -> bool {
        let made = self.made.get(GATE).map_or(&[][..], Vec::as_slice);
        let made_at = |number: &u64| self.taken.get(number).and_then(|taken| taken.made_at);
        let ends = |index: usize| made.get(index).and_then(made_at).unwrap_or(usize::MAX);
        let was_open = made
            .iter()
            .enumerate()
            .any(|(index, number)| !is_shut(GATE, *number) && ends(index + 1) >= since);
        let mut taken = self.taken.iter();
        let may_be_opened = taken.any(|(number, taken)| {
            taken.name == GATE && taken.made_at.is_none() && !is_shut(GATE, *number)
        });
        was_open || may_be_opened || ends(0) >= since
    }

    fn hear(&mut self, session: SessionId, heard: Heard) -> Checked {
        let mut readers = self.readers.iter();
        if let Some(reader) = readers.position(|reader| reader.session == session) {
            return self.read(reader, &heard);
        }
        let Some(client) = self
            .clients
            .iter_mut()
            .find(|client| client.session == session)
        else {
            return Ok(());
        };
        match heard {
            Heard::Written(number) | Heard::Refused(_, number) => {
                let is_refused = matches!(heard, Heard::Refused(..));
                let Some(taken) = self.taken.get_mut(&number) else {
                    return Ok(());
                };
                taken.answers += 1;
                taken.refused = is_refused;
                self.met.refused += usize::from(is_refused);
                ensure(taken.answers == 1, Check::Answered, || {
                    format!("write {number} is answered {} times", taken.answers)
                })?;
                ensure(!is_refused || taken.may_be_refused, Check::Made, || {
                    format!("write {number} is refused, and all rules allow it")
                })
            }
            Heard::Value(name, number) => {
                self.met.read += 1;
                let reads = client.reads.iter_mut();
                let mut reads = reads.filter(|(known, _)| **known == name);
                let before = reads.next().and_then(|(_, reads)| reads.pop_front());
                let made = self.made.get(&name).map_or(&[][..], Vec::as_slice);
                let position = |number| made.iter().position(|made| *made == number);
                let Some(own) = before.and_then(position) else {
                    return ensure(before.is_some(), Check::Answered, || {
                        format!("{session:?} hears of {name} without a read")
                    });
                };
                ensure(position(number) >= Some(own), Check::Order, || {
                    format!("a read of {name} gives {number}, behind the own write {before:?}")
                })
            }
            Heard::Changed(..) | Heard::Other => Ok(()),
        }
    }

    fn all_is_answered(&self) -> Checked {
        for client in &self.clients {
            let is_answered =
                client.inbox.is_empty() && client.reads.values().all(VecDeque::is_empty);
            ensure(is_answered, Check::Answered, || format!("{client:?} waits"))?;
            let mut taken = self.taken.iter();
            let unanswered =
                taken.find(|(_, taken)| taken.session == client.session && taken.answers == 0);
            ensure(unanswered.is_none(), Check::Answered, || {
                format!("{unanswered:?} has no answer")
            })?;
        }
        Ok(())
    }

    fn readers_are_up_to_date(&self) -> Checked {
        for reader in &self.readers {
            for (name, view) in &reader.views {
                let newest = self.made.get(*name).and_then(|made| made.last());
                let right = match view {
                    View::Has(number) => *number == newest.copied().unwrap_or(0),
                    View::Lost => self.is_sighted,
                    View::Wanted | View::Asked => false,
                };
                ensure(right, Check::Steps, || {
                    format!("{reader:?} has {view:?} of {name}, {newest:?} is made")
                })?;
            }
        }
        Ok(())
    }

    fn all_is_made(&self) -> Checked {
        for (number, taken) in &self.taken {
            let made = self.made.get(taken.name);
            let is_made = made.is_some_and(|made| made.contains(number));
            let is_answered = taken.answers > 0;
            let right = match is_answered {
                true => is_made != taken.refused,
                false => is_made || taken.may_be_refused,
            };
            ensure(right, Check::Made, || {
                format!("write {number}, {taken:?}, made: {is_made}")
            })?;
        }
        Ok(())
    }

    fn nothing_is_kept(&self) -> Checked {
        for (shard, engine) in self.shards.iter().enumerate() {
            let counts = engine.counts();
            let left = [
                counts.deferred_bytes,
                counts.owing,
                counts.dirty_records,
                counts.pending_replies,
            ];
            ensure(left == [0; 4], Check::Rest, || {
                format!("shard {shard} keeps {counts:?}")
            })?;
        }
        Ok(())
    }
}

/// The user of a writer.
fn user(writer: usize) -> String {
    format!("user{writer}")
}
