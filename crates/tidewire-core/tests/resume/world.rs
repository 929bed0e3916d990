//! A node of three shards with its clients and its store, in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Epoch, SessionId};
use tidewire_core::effect::{
    AuthCompletion, AuthOutcome, AuthRequest, Flow, Format, Input, StoreCompletion, StoreRequest,
};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::{Entry, HistoryEntry, RecordOperation, RecordRequestKind};
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::message::{Auth, Change, Connection, Event, Message, Record, Write, WriteKey};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::permission::AllowAll;
use tidewire_core::principal::Principal;
use tidewire_core::settings::Settings;
use tidewire_core::store::{
    Incarnation, Loaded, Opened, StoreChange, StoreError, StoreWrite, StoredRecord, Version, View,
    Written,
};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::{Instant, Now, WallTime};

use crate::fault::Fault;
use crate::met::Met;
use crate::nodes::{SHARDS, address, index_of, slots};
use crate::outside::Outside;
use crate::random::Random;
use crate::reader::{Checked, Heard, Reader, Truth, Violation};

/// The number of events that each history keeps.
const KEPT: usize = 8;
const NAMES: [&str; 4] = ["mem/a", "mem/b", "kept/a", "kept/b"];
const RECORD: &str = "r";
/// Lowest incarnation of another server. This server's incarnations are smaller.
const FOREIGN: u64 = 1 << 60;
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 10_000;
/// Rounds of about a second without work. Together they are longer than any pause before a retry.
const IDLE_ROUNDS: usize = 20;

/// A message of a client.
#[derive(Clone, Debug)]
enum Said {
    Challenge,
    Login,
    Follow(usize),
    Emit(&'static str, u64),
    Write(u64),
}

#[derive(Debug, Default)]
struct Link {
    /// Messages that the client has sent and the shard has not read.
    inbox: VecDeque<Said>,
    /// Messages that the shard has sent and the client has not read.
    outbox: VecDeque<Heard>,
    /// The client is gone, and the shard does not know yet.
    is_gone: bool,
}

/// A client that sends writes with keys in order, and repeats each until the server acknowledges it.
#[derive(Debug, Default)]
struct Writer {
    session: Option<SessionId>,
    /// The key of the write that waits for its acknowledgement.
    key: u64,
    is_sent: bool,
}

/// See the documentation of this module.
pub struct World {
    random: Random,
    fault: Option<Fault>,
    now: Now,
    settings: Settings,
    shards: Vec<Shard>,
    outside: Outside,
    links: BTreeMap<SessionId, Link>,
    next_session: u32,
    stored: BTreeMap<Name, StoredRecord>,
    /// Keys of all writes that the store has ever had, even if another write has replaced them.
    kept_keys: BTreeSet<u64>,
    /// Number of writes of the record by another server.
    foreign_writes: u64,
    completions: VecDeque<(usize, StoreCompletion)>,
    fails_percent: usize,
    crashes: bool,
    /// Another server has opened the store since the last start.
    is_deposed: bool,
    starts: u64,
    seed: u64,
    publisher: SessionId,
    readers: Vec<Reader>,
    writer: Writer,
    truth: Truth,
    /// By name: the number of events that shards have taken.
    published: BTreeMap<&'static str, u64>,
    next_number: u64,
    met: Met,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed);
        let rule = |pattern: &str, keep| HistoryRule {
            pattern: NamePattern::new(pattern),
            count_max: KEPT,
            bytes_max: 1 << 20,
            age_max: Duration::from_secs(1_000_000),
            keep,
        };
        let mut settings = Settings {
            history: HistoryRules::new(vec![
                rule("mem/*", Keep::Memory),
                rule("kept/*", Keep::Store),
            ]),
            heartbeat_interval: Duration::from_secs(1_000_000),
            load_timeout: Duration::from_secs(1_000_000),
            write_timeout: Duration::from_secs(1_000_000),
            login_timeout: None,
            ..Settings::default()
        };
        // Connections do not wait for turns in this simulation.
        settings.limits.connection_work_max = 0;
        // In half of the runs a page of history has one event.
        if random.chance(50) {
            settings.limits.catch_up_bytes_max = 1;
        }
        let readers = NAMES.iter().chain(&NAMES).map(|name| Reader::new(name));
        let (fails_percent, crashes) = (
            if random.chance(50) { 30 } else { 0 },
            random.chance(50) || fault == Some(Fault::CommitForgotten),
        );
        let no_session = SessionId {
            address: address(0),
            index: u32::MAX,
            generation: 0,
        };
        let mut world = Self {
            fault,
            now: Now {
                monotonic: Instant(1_000_000_000),
                wall: WallTime(1_700_000_000_000),
            },
            settings,
            shards: Vec::new(),
            outside: Outside::default(),
            links: BTreeMap::new(),
            next_session: 0,
            stored: BTreeMap::new(),
            kept_keys: BTreeSet::new(),
            foreign_writes: 0,
            completions: VecDeque::new(),
            fails_percent,
            crashes,
            is_deposed: false,
            starts: 0,
            seed,
            publisher: no_session,
            readers: readers.collect(),
            writer: Writer::default(),
            truth: Truth::new(),
            published: BTreeMap::new(),
            next_number: 0,
            met: Met::default(),
            random,
        };
        world.start();
        world
    }

    /// Runs to the end, when all clients have all events.
    pub fn run(mut self) -> Result<Met, Violation> {
        let steps = 300 + self.random.below(700);
        for _ in 0..steps {
            self.step()?;
        }
        self.fails_percent = 0;
        if self.is_deposed {
            self.give_up()?;
            self.crash();
        }
        self.settle()?;
        self.quiet()?;
        self.met.heard = self.readers.iter().map(|reader| reader.heard).sum();
        self.met.gaps = self.readers.iter().map(|reader| reader.gaps).sum();
        Ok(self.met)
    }

    /// Starts the shards with the content of the store. No client is connected.
    fn start(&mut self) {
        self.starts += 1;
        self.is_deposed = false;
        let slots = slots(self.seed);
        self.shards = (0..SHARDS)
            .map(|shard| {
                Shard::new(ShardConfig {
                    address: address(shard),
                    slots: Arc::clone(&slots),
                    settings: self.settings.clone(),
                    permission: Arc::new(AllowAll),
                    seed: self.seed.wrapping_mul(31).wrapping_add(self.starts << 32),
                    opened: vec![Opened {
                        epoch: Epoch(self.starts),
                        opening: self.starts,
                    }],
                })
            })
            .collect();
        self.outside = Outside {
            mailboxes: vec![VecDeque::new(); SHARDS],
            logs: vec![Vec::new(); SHARDS],
            ..Outside::default()
        };
        self.completions.clear();
        self.links.clear();
        for reader in &mut self.readers {
            reader.session = None;
        }
        self.writer.session = None;
        self.publisher = self.connect(0);
    }

    fn connect(&mut self, shard: usize) -> SessionId {
        let session = SessionId {
            address: address(shard),
            index: self.next_session,
            generation: 0,
        };
        self.next_session += 1;
        let link = Link {
            inbox: [Said::Challenge, Said::Login].into(),
            ..Link::default()
        };
        self.links.insert(session, link);
        let format = Format(0);
        self.input(
            shard,
            Input::Opened {
                session,
                format,
                coalesces: None,
            },
        );
        session
    }

    fn say(&mut self, session: SessionId, said: Said) {
        if let Some(link) = self.links.get_mut(&session) {
            link.inbox.push_back(said);
        }
    }

    fn step(&mut self) -> Checked {
        match self.random.below(100) {
            0..40 => {
                let shard = self.random.below(SHARDS);
                self.turn(shard);
            }
            40..60 => self.publish(),
            60..70 => {
                let count = 1 + self.random.below(5);
                self.clients_read(count)?;
            }
            70..84 => self.store_works(),
            84..92 => self.move_reader(),
            92..97 => self.writer_acts(),
            97 if self.crashes && self.random.chance(30) => self.crash(),
            98 if self.crashes && self.random.chance(30) => {
                self.met.depositions += 1;
                self.is_deposed = true;
            }
            99 if self.random.chance(30) => self.another_server_writes(),
            _ => self.time_passes(),
        }
        Ok(())
    }

    /// Another server writes the record. The owner learns of it at its next commit.
    fn another_server_writes(&mut self) {
        self.foreign_writes += 1;
        let record = StoredRecord {
            incarnation: Incarnation(FOREIGN + self.foreign_writes),
            version: Version(1 + self.random.below(5) as u32),
            data: Payload::from_checked("{}"),
            write_keys: None,
        };
        self.stored.insert(Name::from(RECORD), record);
    }

    fn crash(&mut self) {
        self.met.crashes += 1;
        self.start();
    }

    fn publish(&mut self) {
        let name = *self.random.pick(&NAMES);
        self.next_number += 1;
        self.say(self.publisher, Said::Emit(name, self.next_number));
    }

    /// A reader connects or disconnects.
    fn move_reader(&mut self) {
        let index = self.random.below(self.readers.len());
        match self.readers[index].session.take() {
            Some(session) => {
                self.met.cuts += 1;
                self.cut(session);
            }
            None => self.comes(index),
        }
    }

    fn comes(&mut self, index: usize) {
        let shard = self.random.below(SHARDS);
        let session = self.connect(shard);
        self.say(session, Said::Follow(index));
        self.readers[index].comes(session);
    }

    /// Drops a connection. Messages in flight to the client are lost; messages from it may still arrive.
    fn cut(&mut self, session: SessionId) {
        let keeps = self.random.chance(50);
        if let Some(link) = self.links.get_mut(&session) {
            link.is_gone = true;
            link.outbox.clear();
            if !keeps {
                link.inbox.clear();
            }
        }
    }

    fn writer_acts(&mut self) {
        match self.writer.session {
            None => {
                let shard = self.random.below(SHARDS);
                let session = self.connect(shard);
                self.writer.session = Some(session);
                // The client does not know whether its last write took effect.
                if self.writer.is_sent {
                    self.met.repeats += 1;
                    self.say(session, Said::Write(self.writer.key));
                }
            }
            Some(session) if self.random.chance(30) => {
                self.writer.session = None;
                self.cut(session);
            }
            Some(session) if !self.writer.is_sent => {
                self.writer.key += 1;
                self.writer.is_sent = true;
                self.say(session, Said::Write(self.writer.key));
            }
            Some(_) => {}
        }
    }

    fn time_passes(&mut self) {
        let millis = 1 + self.random.below(2_000) as u64;
        self.now.monotonic = self.now.monotonic + Duration::from_millis(millis);
        self.now.wall.0 += millis;
    }

    fn turn(&mut self, shard: usize) {
        for _ in 0..self.random.below(4) {
            let Some(entry) = self.next_entry(shard) else {
                break;
            };
            for entry in self.spoilt(entry) {
                self.input(shard, Input::Entry(entry));
            }
        }
        let here: Vec<SessionId> = self
            .links
            .keys()
            .filter(|session| index_of(session.address) == shard)
            .copied()
            .collect();
        for session in here {
            for _ in 0..self.random.below(4) {
                self.read(session);
            }
        }
        let due = self.shards[shard].next_deadline();
        if due.is_some_and(|due| due <= self.now.monotonic) {
            self.input(shard, Input::DeadlineReached);
        }
        self.outside.at = shard;
        self.shards[shard].end_turn(self.now, &mut self.outside);
        let (logs, links) = (&self.outside.logs, &mut self.links);
        self.shards[shard].flush(|session, _, spans| {
            let link = links.get_mut(&session).filter(|link| !link.is_gone);
            if let Some(link) = link {
                for span in spans {
                    let heard = &logs[shard][span.start as usize..span.end as usize];
                    link.outbox.extend(heard.iter().cloned());
                }
            }
        });
    }

    /// The next entry of a mailbox, after the swap that a fault causes.
    fn next_entry(&mut self, shard: usize) -> Option<Entry> {
        let mailbox = &mut self.outside.mailboxes[shard];
        if self.fault == Some(Fault::SubscribeAfterRead)
            && let (Some(page), Some(published)) = (mailbox.front(), mailbox.get(1))
            && let Entry::History(HistoryEntry::Page(page)) = page
            && let Entry::History(HistoryEntry::Published { publication, .. }) = published
            && page.name == publication.name
        {
            mailbox.swap(0, 1);
        }
        mailbox.pop_front()
    }

    fn spoilt(&mut self, entry: Entry) -> Vec<Entry> {
        let strikes = self.fault.is_some() && self.random.chance(20);
        match (self.fault, entry) {
            (Some(Fault::ResumeOneTooFar), Entry::History(HistoryEntry::Read(mut read))) => {
                if let Some(after) = read.after.as_mut().filter(|_| strikes) {
                    after.offset += 1;
                }
                vec![Entry::History(HistoryEntry::Read(read))]
            }
            (Some(Fault::RepeatMade), Entry::RecordRequest(mut request)) => {
                if let RecordRequestKind::One(_, RecordOperation::Write(write)) = &mut request.what
                {
                    write.key = None;
                }
                vec![Entry::RecordRequest(request)]
            }
            (Some(Fault::EventLost), Entry::History(HistoryEntry::Published { .. })) if strikes => {
                Vec::new()
            }
            (Some(Fault::EventDoubled), entry)
                if strikes && matches!(entry, Entry::History(HistoryEntry::Published { .. })) =>
            {
                vec![entry.clone(), entry]
            }
            (_, entry) => vec![entry],
        }
    }

    /// A shard reads one message of a connection, or the end of the connection.
    fn read(&mut self, session: SessionId) {
        let shard = index_of(session.address);
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let Some(said) = link.inbox.pop_front() else {
            if link.is_gone {
                self.links.remove(&session);
                self.outside.awaited.remove(&session);
                self.input(shard, Input::Closed { session });
            }
            return;
        };
        let (key, number);
        let message = match said {
            Said::Challenge => Message::Connection(Connection::challenge(false)),
            Said::Login => Message::Auth(Auth::Request { data: Some("{}") }),
            Said::Follow(index) => {
                let Reader { name, position, .. } = self.readers[index];
                Message::Event(Event::Subscribe {
                    names: vec![name],
                    correlation: Some("1"),
                    positions: vec![(name, position)],
                })
            }
            Said::Emit(name, of) => {
                number = of.to_string();
                let data = Some(number.as_str());
                Message::Event(Event::publication(name, data))
            }
            Said::Write(of) => {
                key = of.to_string();
                let write = Write {
                    name: RECORD,
                    version: -1,
                    correlation: Some(&key),
                    write_ack: true,
                    key: Some(WriteKey::new(&key)),
                };
                let change = Change::CreateAndPatch {
                    path: Some("last"),
                    data: Some(&key),
                };
                Message::Record(Record::Write(write, change))
            }
        };
        self.outside.at = shard;
        let flow = self.shards[shard].message(self.now, session, &message, &mut self.outside);
        match (flow, said) {
            (Flow::Taken, Said::Emit(name, _)) => *self.published.entry(name).or_default() += 1,
            (Flow::Taken, _) => {}
            // A message after the login waits until the owner of the user has counted the session.
            (_, said) => {
                if let Some(link) = self.links.get_mut(&session) {
                    link.inbox.push_front(said);
                }
            }
        }
        self.follow_up(shard);
    }

    fn input(&mut self, shard: usize, input: Input) {
        if let Input::Entry(Entry::History(HistoryEntry::Page(page))) = &input {
            self.met.pages += u64::from(!page.is_granted);
        }
        self.outside.at = shard;
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.follow_up(shard);
    }

    fn follow_up(&mut self, shard: usize) {
        if let Some(up_to) = self.outside.visible.take() {
            self.input(shard, Input::InterestVisible { up_to });
        }
        if let Some(AuthRequest { session, .. }) = self.outside.logins.pop() {
            let outcome = AuthOutcome::Accepted(Arc::new(Principal::new("user".into())));
            self.input(shard, Input::Auth(AuthCompletion { session, outcome }));
        }
    }

    /// The store handles its next request, or its oldest answer arrives.
    fn store_works(&mut self) {
        if self.random.chance(50)
            && let Some((shard, completion)) = self.completions.pop_front()
        {
            return self.input(shard, Input::Store(completion));
        }
        let Some((shard, request)) = self.outside.requests.pop_front() else {
            return;
        };
        let fails = self.random.chance(self.fails_percent);
        let failed = || StoreError::unavailable("the seed says so");
        let completion = match request {
            StoreRequest::Scan { .. } | StoreRequest::Find { .. } | StoreRequest::Index { .. } => {
                panic!("this simulation makes no queries")
            }
            StoreRequest::Load { names, .. } => {
                self.met.failed_loads += u64::from(fails);
                let load = |name: Name| {
                    let found = self.stored.get(&name).cloned();
                    let found = found.map_or(Loaded::Missing, Loaded::Found);
                    (name, if fails { Err(failed()) } else { Ok(found) })
                };
                let records = names.into_iter().map(load).collect();
                StoreCompletion::Loaded { records }
            }
            StoreRequest::Commit {
                store,
                batch,
                writes,
            } => {
                self.met.failed_commits += u64::from(fails);
                // A commit that fails may still take effect.
                let is_done = match fails {
                    _ if self.is_deposed => false,
                    true => self.random.chance(50),
                    false => self.fault != Some(Fault::CommitForgotten) || self.random.chance(80),
                };
                let written = writes
                    .iter()
                    .map(|write| self.write(write, is_done))
                    .collect();
                let result = match fails {
                    _ if self.is_deposed => Err(StoreError::stale_view(
                        View(self.starts),
                        View(u64::MAX),
                        false,
                    )),
                    true => Err(failed()),
                    false => Ok(written),
                };
                StoreCompletion::Committed {
                    store,
                    batch,
                    result,
                }
            }
        };
        self.completions.push_back((shard, completion));
    }

    /// The store applies one write of a commit.
    fn write(&mut self, write: &StoreWrite, is_done: bool) -> Written {
        let stored = self.stored.get(&write.name);
        if !write.change.is_done(stored) && !write.expected.is_met(stored) {
            if self.fault == Some(Fault::RefusalMissed) {
                return Written::Done;
            }
            self.met.refused_writes += 1;
            return Written::Refused;
        }
        if is_done {
            match &write.change {
                StoreChange::Put(record) => {
                    self.kept_keys.extend(last_key(record));
                    self.stored.insert(write.name.clone(), record.clone());
                }
                StoreChange::Delete => {
                    self.stored.remove(&write.name);
                }
            }
        }
        Written::Done
    }

    /// Clients read some of their pending messages.
    fn clients_read(&mut self, count: usize) -> Checked {
        for index in 0..self.readers.len() {
            let Some(session) = self.readers[index].session else {
                continue;
            };
            for _ in 0..count {
                let link = self.links.get_mut(&session);
                let Some(heard) = link.and_then(|link| link.outbox.pop_front()) else {
                    break;
                };
                let reader = &mut self.readers[index];
                let published = self.published.get(reader.name).copied().unwrap_or(0);
                let terms = (published, KEPT as u64, reader.name.starts_with("kept"));
                reader.hear(&heard, &mut self.truth, terms)?;
            }
            self.drained(session);
        }
        if let Some(link) = self.links.get_mut(&self.publisher) {
            // The publisher gets its login's answer, and refusals of events that the node can no longer store.
            let refused = |heard: &Heard| matches!(heard, Heard::EventRefused);
            let received = std::mem::take(&mut link.outbox);
            self.met.refused_events +=
                received.iter().filter(|heard| refused(heard)).count() as u64;
        }
        if let Some(session) = self.writer.session
            && let Some(link) = self.links.get_mut(&session)
        {
            for heard in std::mem::take(&mut link.outbox) {
                match heard {
                    Heard::Written(key) if key == self.writer.key.to_string() => {
                        self.writer.is_sent = false;
                        if !self.kept_keys.contains(&self.writer.key) {
                            return Err(Violation(format!("{key} is acknowledged and not kept")));
                        }
                    }
                    // The owner could not read the record, so the client may try again.
                    Heard::Refused if self.writer.is_sent => {
                        link.inbox.push_back(Said::Write(self.writer.key));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn drained(&mut self, session: SessionId) {
        let link = self.links.get(&session);
        let is_empty = link.is_some_and(|link| link.outbox.is_empty());
        if is_empty && self.outside.awaited.remove(&session) {
            self.input(index_of(session.address), Input::Drained { session });
        }
    }

    /// All clients reconnect, nothing fails, and all pending work ends.
    fn settle(&mut self) -> Checked {
        for index in 0..self.readers.len() {
            if self.readers[index].session.is_none() {
                self.comes(index);
            }
        }
        while self.writer.session.is_none() {
            self.writer_acts();
        }
        self.come_to_rest()
    }

    /// A server that may no longer write stops its attempts once no client gives it more to write.
    fn give_up(&mut self) -> Checked {
        if let Some(session) = self.writer.session.take() {
            self.cut(session);
        }
        self.come_to_rest()
    }

    fn come_to_rest(&mut self) -> Checked {
        let mut idle_rounds = 0;
        for _ in 0..ROUNDS_MAX {
            idle_rounds = if self.is_idle() { idle_rounds + 1 } else { 0 };
            if idle_rounds > IDLE_ROUNDS {
                return Ok(());
            }
            for shard in 0..SHARDS {
                self.turn(shard);
            }
            self.store_works();
            self.clients_read(usize::MAX)?;
            self.time_passes();
        }
        Err(Violation("it never comes to rest".into()))
    }

    fn is_idle(&self) -> bool {
        let links = &mut self.links.values();
        self.outside.mailboxes.iter().all(VecDeque::is_empty)
            && self.outside.requests.is_empty()
            && self.completions.is_empty()
            && links.all(|link| link.inbox.is_empty() && link.outbox.is_empty() && !link.is_gone)
    }

    fn quiet(&self) -> Checked {
        let ensure = |holds: bool, why: String| match holds {
            true => Ok(()),
            false => Err(Violation(why)),
        };
        for reader in &self.readers {
            let Some(position) = reader.position else {
                return ensure(false, format!("never told where it is: {reader:?}"));
            };
            let of_name = self
                .truth
                .keys()
                .filter(|(name, epoch, _)| name == reader.name && *epoch == position.epoch);
            let newest = of_name.map(|(_, _, offset)| *offset).max().unwrap_or(0);
            ensure(
                position.offset >= newest,
                format!("{reader:?} has not got {newest}"),
            )?;
            let published = self.published.get(reader.name).copied().unwrap_or(0);
            ensure(
                self.met.crashes > 0 || position.offset == published,
                format!("{reader:?} has not got all of {published}"),
            )?;
        }
        let mut seen = BTreeSet::new();
        for ((name, epoch, offset), number) in &self.truth {
            ensure(
                seen.insert(number),
                format!("{number} of {name} comes again at {epoch}/{offset}"),
            )?;
        }
        let version = self.stored.get(RECORD).map_or(0, |record| record.version.0);
        ensure(
            !self.writer.is_sent,
            "a write was never acknowledged".into(),
        )?;
        ensure(
            self.met.crashes > 0
                || self.foreign_writes > 0
                || u64::from(version) == self.writer.key,
            format!("{} writes made version {version}", self.writer.key),
        )
    }
}

/// The key of the write that made a record's value, if it has one.
fn last_key(record: &StoredRecord) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(record.data.as_str()).ok()?;
    value["last"].as_u64()
}
