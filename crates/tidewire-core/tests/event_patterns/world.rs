//! A node of three shards with its clients and its store, in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Epoch, SessionId};
use tidewire_core::effect::{
    AuthCompletion, AuthOutcome, Flow, Format, Input, StoreCompletion, StoreRequest,
};
use tidewire_core::engine::{Shard, ShardConfig};
use tidewire_core::entry::{Entry, HistoryEntry, RightsMarker};
use tidewire_core::history_rules::{HistoryRule, HistoryRules, Keep};
use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::name_pattern::NamePattern;
use tidewire_core::principal::Principal;
use tidewire_core::rights::RightsChange;
use tidewire_core::settings::Settings;
use tidewire_core::store::{Incarnation, Loaded, Opened, StoredRecord, Version};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::{Instant, Now, WallTime};

use crate::fault::Fault;
use crate::model::{Checked, Met, Model, Violation, is_kept};
use crate::nodes::{SHARDS, address, index_of, slots};
use crate::outside::{Heard, Outside};
use crate::permission::{OPEN, RoundPermission, Rules, gate_of};
use crate::random::Random;

const USERS: [&str; 3] = ["ann", "bob", "eve"];
const EVENTS: [&str; 8] = [
    "free/1", "free/2", "s/a", "s/b", "s/a/x", "kept/a", "kept/b", "other",
];
/// Names that sessions subscribe to themselves. No rules refuse them.
const EXACT: [&str; 2] = ["free/1", "free/2"];
const PATTERNS: [&str; 9] = [
    "free/*", "s/*", "*/a", "**", "s/**", "*/*/x", "kept/*", "*", "*/1",
];
/// All pending work ends within this number of rounds.
const ROUNDS_MAX: usize = 10_000;

/// A message of a client.
#[derive(Clone, Debug)]
enum Said {
    Challenge,
    Login,
    Subscribe {
        is_pattern: bool,
        name: String,
        id: String,
    },
    Unsubscribe {
        is_pattern: bool,
        name: String,
    },
    Emit {
        name: &'static str,
        number: u64,
    },
}

#[derive(Debug, Default)]
struct Link {
    user: &'static str,
    /// Messages that the client has sent and the shard has not taken.
    inbox: VecDeque<Said>,
    /// Messages that the shard has sent and the client has not read.
    outbox: VecDeque<Heard>,
    wanted: BTreeSet<(bool, String)>,
    /// The first message of the inbox waits for the engine.
    is_waiting: bool,
}

/// See the documentation of this module.
pub struct World {
    random: Random,
    fault: Option<Fault>,
    now: Now,
    shards: Vec<Shard>,
    outside: Outside,
    links: BTreeMap<SessionId, Link>,
    next_session: u32,
    next_number: u64,
    next_id: u64,
    /// The number of the newest change of rules that each shard has applied.
    applied: Vec<usize>,
    /// The gates, by event, and the events whose gate was open at some time, or closed at some time.
    gates: BTreeMap<String, bool>,
    was_open: BTreeSet<String>,
    was_closed: BTreeSet<String>,
    completions: VecDeque<(usize, StoreCompletion)>,
    model: Model,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed);
        let rules = pick_rules(&mut random);
        let rule = HistoryRule {
            pattern: NamePattern::new("kept/*"),
            count_max: 8,
            bytes_max: 1 << 20,
            age_max: Duration::from_secs(1_000_000),
            keep: Keep::Memory,
        };
        let mut settings = Settings {
            history: HistoryRules::new(vec![rule]),
            heartbeat_interval: Duration::from_secs(1_000_000),
            load_timeout: Duration::from_secs(1_000_000),
            login_timeout: None,
            ..Settings::default()
        };
        settings.limits.connection_work_max = 0;
        // Records are forgotten at once, so that rules wait for the store.
        settings.limits.cache_bytes_max = 0;
        let permission = Arc::new(RoundPermission { rules, fault });
        let slots = slots(seed);
        let shards = (0..SHARDS).map(|shard| {
            Shard::new(ShardConfig {
                address: address(shard),
                slots: Arc::clone(&slots),
                settings: settings.clone(),
                permission: permission.clone(),
                seed: seed.wrapping_mul(31),
                opened: vec![Opened {
                    epoch: Epoch(1),
                    opening: 1,
                }],
            })
        });
        let shards = shards.collect();
        let mut world = Self {
            fault,
            now: Now {
                monotonic: Instant(1_000_000_000),
                wall: WallTime(1_700_000_000_000),
            },
            shards,
            outside: Outside::new(SHARDS, rules, fault),
            links: BTreeMap::new(),
            next_session: 0,
            next_number: 0,
            next_id: 0,
            applied: vec![0; SHARDS],
            gates: BTreeMap::new(),
            was_open: BTreeSet::new(),
            was_closed: BTreeSet::new(),
            completions: VecDeque::new(),
            model: Model::new(rules),
            random,
        };
        for event in EVENTS {
            let is_open = world.random.chance(50);
            world.set_gate(event, is_open);
        }
        for _ in 0..5 {
            world.connect();
        }
        world
    }

    /// Runs to the end, when all clients have all events.
    pub fn run(mut self) -> Result<Met, Violation> {
        let steps = 300 + self.random.below(700);
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()?;
        let was_closed = &self.was_closed;
        self.model.quiet(|event| !was_closed.contains(event))?;
        self.close_all()?;
        Ok(self.model.met)
    }

    fn step(&mut self) -> Checked {
        match self.random.below(100) {
            0..35 => {
                let shard = self.random.below(SHARDS);
                self.turn(shard);
            }
            35..55 => self.publish(),
            55..65 => self.change_subscription(),
            65..78 => self.clients_read()?,
            78..85 => self.store_works(),
            85..91 => self.show_interest(),
            91..93 => self.change_rules(),
            93..95 => self.move_gate(),
            95..97 => self.replace_client(),
            _ => self.time_passes(),
        }
        Ok(())
    }

    fn connect(&mut self) {
        let shard = self.random.below(SHARDS);
        let session = SessionId {
            address: address(shard),
            index: self.next_session,
            generation: 0,
        };
        self.next_session += 1;
        let user = *self.random.pick(&USERS);
        let link = Link {
            user,
            inbox: [Said::Challenge, Said::Login].into(),
            ..Link::default()
        };
        self.links.insert(session, link);
        self.model.opened(session, user);
        let format = Format(self.random.below(2) as u8);
        self.input(
            shard,
            Input::Opened {
                session,
                format,
                coalesces: None,
            },
        );
    }

    fn pick_session(&mut self) -> Option<SessionId> {
        let sessions: Vec<SessionId> = self.links.keys().copied().collect();
        (!sessions.is_empty()).then(|| *self.random.pick(&sessions))
    }

    fn publish(&mut self) {
        let name = *self.random.pick(&EVENTS);
        self.next_number += 1;
        let number = self.next_number;
        self.say(Said::Emit { name, number });
    }

    fn say(&mut self, said: Said) {
        if let Some(session) = self.pick_session()
            && let Some(link) = self.links.get_mut(&session)
        {
            link.inbox.push_back(said);
        }
    }

    fn change_subscription(&mut self) {
        let is_pattern = self.random.chance(75);
        let name = match is_pattern {
            true => *self.random.pick(&PATTERNS),
            false => *self.random.pick(&EXACT),
        };
        let name = name.to_owned();
        let Some(session) = self.pick_session() else {
            return;
        };
        self.next_id += 1;
        let id = self.next_id.to_string();
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let key = (is_pattern, name.clone());
        let said = match link.wanted.remove(&key) {
            true => Said::Unsubscribe { is_pattern, name },
            false => {
                link.wanted.insert(key);
                Said::Subscribe {
                    is_pattern,
                    name,
                    id,
                }
            }
        };
        link.inbox.push_back(said);
    }

    fn replace_client(&mut self) {
        if let Some(session) = self.pick_session() {
            self.close(session);
            self.connect();
        }
    }

    fn close(&mut self, session: SessionId) {
        self.links.remove(&session);
        self.model.ended(session);
        self.input(index_of(session.address), Input::Closed { session });
    }

    fn change_rules(&mut self) {
        let rules = pick_rules(&mut self.random);
        self.model.met.rule_changes += 1;
        self.model.rounds.push(rules);
        let number = (self.model.rounds.len() - 1) as u64;
        let fault = self.fault;
        let change = RightsChange::Rules(Arc::new(RoundPermission { rules, fault }));
        let shard = self.random.below(SHARDS);
        self.input(shard, Input::Rights { number, change });
    }

    fn move_gate(&mut self) {
        let event = *self.random.pick(&EVENTS);
        let is_open = self.random.chance(50);
        self.set_gate(event, is_open);
        // A decision is kept for a second.
        self.now.monotonic = self.now.monotonic + Duration::from_millis(1_001);
    }

    fn set_gate(&mut self, event: &str, is_open: bool) {
        self.gates.insert(event.to_owned(), is_open);
        let ever = match is_open {
            true => &mut self.was_open,
            false => &mut self.was_closed,
        };
        ever.insert(event.to_owned());
    }

    fn time_passes(&mut self) {
        self.now.monotonic = self.now.monotonic + Duration::from_millis(300);
        for shard in 0..SHARDS {
            self.input(shard, Input::DeadlineReached);
        }
    }

    fn show_interest(&mut self) {
        let shard = self.random.below(SHARDS);
        if let Some(up_to) = self.outside.make_visible(shard) {
            self.input(shard, Input::InterestVisible { up_to });
        }
    }

    /// A shard takes some entries of its mailbox and some messages of its clients, and sends.
    fn turn(&mut self, shard: usize) {
        let entries = self.random.below(6);
        for _ in 0..entries {
            if self.fault == Some(Fault::MailboxReordered)
                && self.outside.mailboxes[shard]
                    .iter()
                    .take(2)
                    .filter(|entry| is_event(entry))
                    .count()
                    == 2
                && self.random.chance(20)
            {
                self.outside.mailboxes[shard].swap(0, 1);
            }
            let Some(entry) = self.outside.mailboxes[shard].pop_front() else {
                break;
            };
            self.input(shard, Input::Entry(entry));
        }
        let sessions: Vec<SessionId> = self.links.keys().copied().collect();
        for session in sessions {
            if index_of(session.address) == shard && self.random.chance(70) {
                self.take_message(session);
            }
        }
        self.outside.at = shard;
        self.shards[shard].end_turn(self.now, &mut self.outside);
        self.flush(shard);
    }

    fn take_message(&mut self, session: SessionId) {
        let shard = index_of(session.address);
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        if link.is_waiting {
            return;
        }
        let Some(said) = link.inbox.front().cloned() else {
            return;
        };
        self.outside.at = shard;
        let data;
        let message = match &said {
            Said::Challenge => Message::Connection(Connection::challenge(false)),
            Said::Login => Message::Auth(Auth::Request { data: Some("{}") }),
            Said::Subscribe {
                is_pattern: true,
                name,
                id,
            } => Message::Event(Event::SubscribePatterns {
                patterns: vec![name.as_str()],
                correlation: Some(id),
            }),
            Said::Subscribe { name, id, .. } => Message::Event(Event::Subscribe {
                names: vec![name.as_str()],
                correlation: Some(id),
                positions: Vec::new(),
            }),
            Said::Unsubscribe {
                is_pattern: true,
                name,
            } => Message::Event(Event::UnsubscribePatterns {
                patterns: vec![name.as_str()],
                correlation: None,
            }),
            Said::Unsubscribe { name, .. } => Message::Event(Event::Unsubscribe {
                names: vec![name.as_str()],
                correlation: None,
            }),
            Said::Emit { name, number } => {
                data = number.to_string();
                Message::Event(Event::publication(name, Some(&data)))
            }
        };
        let flow = self.shards[shard].message(self.now, session, &message, &mut self.outside);
        if flow == Flow::Wait {
            link.is_waiting = true;
        } else {
            link.inbox.pop_front();
            self.took(session, &said);
        }
        self.follow_up(shard);
    }

    /// Notes in the model that a shard has taken a message.
    fn took(&mut self, session: SessionId, said: &Said) {
        match said {
            Said::Subscribe {
                is_pattern,
                name,
                id,
            } => self.model.subscribe(session, *is_pattern, name, id),
            Said::Unsubscribe { is_pattern, name } => {
                self.model.unsubscribe(session, *is_pattern, name);
            }
            Said::Emit { name, number } => {
                // Another shard may still decide by older rules than this one.
                let round = self.applied.iter().copied().min().unwrap_or(0);
                self.model.publish(session, name, *number, round);
            }
            Said::Challenge | Said::Login => {}
        }
    }

    fn input(&mut self, shard: usize, input: Input) {
        self.outside.at = shard;
        if let Input::Rights { number, .. }
        | Input::Entry(Entry::Rights(RightsMarker { number, .. })) = &input
        {
            let number = *number as usize;
            if number > self.applied[shard] {
                self.applied[shard] = number;
                self.outside.rules[shard] = self.model.rounds[number];
            }
        }
        self.shards[shard].handle(self.now, input, &mut self.outside);
        self.follow_up(shard);
    }

    /// Handles what the engine has requested and must get at once.
    fn follow_up(&mut self, shard: usize) {
        let waiting = self.shards[shard].counts().event_waiting;
        self.model.met.waited = self.model.met.waited.max(waiting as u64);
        if self.fault == Some(Fault::VisibleTooEarly)
            && let Some((up_to, _)) = self.outside.pending[shard].back()
        {
            let up_to = *up_to;
            let visible = Input::InterestVisible { up_to };
            self.shards[shard].handle(self.now, visible, &mut self.outside);
        }
        for login in std::mem::take(&mut self.outside.logins) {
            let session = login.session;
            let user = self.links.get(&session).map_or("ann", |link| link.user);
            let principal = Arc::new(Principal::new(Name::from(user)));
            let outcome = AuthOutcome::Accepted(principal);
            self.input(shard, Input::Auth(AuthCompletion { session, outcome }));
        }
        for session in std::mem::take(&mut self.outside.resumed) {
            if let Some(link) = self.links.get_mut(&session) {
                link.is_waiting = false;
            }
        }
    }

    fn flush(&mut self, shard: usize) {
        let (log, links) = (&self.outside.logs[shard], &mut self.links);
        self.shards[shard].flush(|session, _, spans| {
            let Some(link) = links.get_mut(&session) else {
                return;
            };
            for span in spans {
                let messages = &log[span.start as usize..span.end as usize];
                link.outbox.extend(messages.iter().cloned());
            }
        });
    }

    fn clients_read(&mut self) -> Checked {
        let sessions: Vec<SessionId> = self.links.keys().copied().collect();
        for session in sessions {
            let count = self.random.below(6);
            for _ in 0..count {
                self.read_one(session)?;
            }
        }
        Ok(())
    }

    fn read_one(&mut self, session: SessionId) -> Checked {
        let link = self.links.get_mut(&session);
        let Some(heard) = link.and_then(|link| link.outbox.pop_front()) else {
            return Ok(());
        };
        match heard {
            Heard::Subscribed(id) => {
                self.model.acked(session, &id);
                Ok(())
            }
            Heard::Event {
                name,
                number,
                rules,
            } => {
                let gate = self.was_open.contains(&name);
                self.model.hear(session, &name, number, rules, gate)
            }
            Heard::Other => Ok(()),
        }
    }

    /// The store handles one request, or its completion reaches the shard.
    fn store_works(&mut self) {
        if self.random.chance(50)
            && let Some((shard, request)) = self.outside.requests.pop_front()
        {
            let StoreRequest::Load { names, .. } = request else {
                panic!("this simulation writes no records");
            };
            let records = names.into_iter().map(|name| {
                let loaded = self.load(&name);
                (name, Ok(loaded))
            });
            let records = records.collect();
            self.completions
                .push_back((shard, StoreCompletion::Loaded { records }));
        } else if let Some((shard, completion)) = self.completions.pop_front() {
            self.input(shard, Input::Store(completion));
            // Nothing uses the record any longer, so the next rule loads it again.
            self.shards[shard].shrink_cache(usize::MAX);
        }
    }

    fn load(&self, name: &Name) -> Loaded {
        let gates = self.gates.iter();
        let gate = gates.filter(|(event, _)| gate_of(event) == name.as_str());
        let is_open = gate.map(|(_, is_open)| *is_open).next().unwrap_or(false);
        match is_open {
            true => Loaded::Found(StoredRecord {
                incarnation: Incarnation(1),
                version: Version(1),
                data: Payload::from_checked(OPEN),
                write_keys: None,
            }),
            false => Loaded::Missing,
        }
    }

    /// Lets everything arrive.
    fn settle(&mut self) -> Checked {
        for _ in 0..ROUNDS_MAX {
            for shard in 0..SHARDS {
                self.turn(shard);
                self.show_interest();
            }
            self.store_works();
            self.time_passes();
            self.clients_read()?;
            if self.is_quiet() {
                return Ok(());
            }
        }
        Err(Violation("the work never ends".to_owned()))
    }

    fn is_quiet(&self) -> bool {
        self.outside.mailboxes.iter().all(VecDeque::is_empty)
            && self.outside.pending.iter().all(VecDeque::is_empty)
            && self.outside.requests.is_empty()
            && self.completions.is_empty()
            && self
                .links
                .values()
                .all(|link| link.inbox.is_empty() && link.outbox.is_empty())
            && self
                .shards
                .iter()
                .all(|shard| shard.owed_count() == 0 && shard.counts().event_waiting == 0)
    }

    /// Ends all sessions. Nothing may be left of their patterns.
    fn close_all(&mut self) -> Checked {
        for session in self.links.keys().copied().collect::<Vec<_>>() {
            self.close(session);
        }
        self.settle()?;
        for shard in &self.shards {
            let counts = shard.counts();
            let left = (
                counts.event_patterns,
                counts.event_waiting,
                counts.kept_bytes,
            );
            if left != (0, 0, 0) {
                return Err(Violation(format!("{left:?} is left")));
            }
        }
        let visible = &self.outside.visible;
        match visible.iter().find(|(_, name, _)| !is_kept(name)) {
            Some(left) => Err(Violation(format!("publishers still see {left:?}"))),
            None => Ok(()),
        }
    }
}

fn is_event(entry: &Entry) -> bool {
    matches!(
        entry,
        Entry::Publication(_) | Entry::History(HistoryEntry::Published { .. })
    )
}

fn pick_rules(random: &mut Random) -> Rules {
    match random.below(5) {
        0 => Rules::Open,
        1 => Rules::Closed,
        2 | 3 => Rules::ByUser(random.next()),
        _ => Rules::ByGate,
    }
}
