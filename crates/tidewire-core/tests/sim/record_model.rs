//! Records, naively: requests are executed one after another as they reach the owner, on trees, and every answer
//! and publication is written down as what a session must hear.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use serde_json::{Value, json};
use tidewire_core::address::SessionId;
use tidewire_core::entry::{RecordRequest, RecordRequestKind};
use tidewire_core::message::{RecordAction, RecordBulk};
use tidewire_core::store::StoreChange;

use crate::check::{Check, Checked, Violation, ensure, violated};
use crate::expected::{Expected, Want, matches, name_of};
use crate::judge::{Ruling, Said, gate_of};
use crate::outside::Outside;
use crate::store::SimStore;
use crate::wire::{Act, Delta, Heard, Refused, apply, parse};

/// Which message of which session caused something, and what its sender had seen by then.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub session: SessionId,
    pub number: u64,
    pub seen: Rc<Seen>,
}

/// The newest message of each session whose effects somebody has seen, directly or through others.
pub type Seen = BTreeMap<SessionId, u64>;

/// A request for one record on its way to the owner.
#[derive(Clone, Debug)]
pub struct Request {
    pub name: String,
    pub stamp: Rc<Stamp>,
    pub kind: Kind,
    /// The correlation id of the bulk message that is acknowledged once all its names are done.
    pub bulk: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Subscribe {
        action: RecordBulk,
        instance: usize,
    },
    Read,
    Head,
    Delete,
    Notify,
    /// The second half of `Notify`, after the load.
    Reloaded,
    Write {
        version: i32,
        id: Option<String>,
        act: Act,
        delta: Delta,
    },
}

impl Kind {
    /// Whether the judge looks at a gate for it.
    fn is_ruled(&self, name: &str) -> bool {
        matches!(self, Self::Delete | Self::Write { .. }) && gate_of(name).is_some()
    }
}

/// A record after some change.
#[derive(Clone, Debug)]
struct State {
    /// Its version and value, `None` if there is no such record.
    value: Option<(i32, Rc<Value>)>,
    stamp: Option<Rc<Stamp>>,
    /// The step since which it holds.
    since: u64,
}

impl State {
    fn is_open(&self) -> bool {
        self.value
            .as_ref()
            .is_some_and(|(_, value)| value["open"] == true)
    }
}

#[derive(Debug, Default)]
struct Dirty {
    queued: bool,
    in_batch: bool,
}

/// A request at the owner.
#[derive(Debug)]
struct Waiting {
    /// The time and the step of its arrival.
    since: u64,
    step: u64,
    request: Request,
}

#[derive(Debug)]
struct ModelRecord {
    owner: usize,
    /// It is kept in memory only.
    volatile: bool,
    /// Whether the owner has its value.
    known: bool,
    waiting: VecDeque<Waiting>,
    /// When somebody looks for requests that have waited too long for a load.
    timers: Vec<u64>,
    /// The judge waits for the gate of the first request.
    needs_gate: bool,
    /// By the number of changes, so that what the store has can be compared with what was acknowledged.
    states: Vec<State>,
    subscribers: Vec<(SessionId, usize)>,
}

impl ModelRecord {
    fn state(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    fn change_count(&self) -> usize {
        self.states.len() - 1
    }

    /// The first change from `place` on that made this value.
    fn place_of(&self, version: i32, value: &Value, place: usize) -> Option<usize> {
        let mut states = self.states.iter().enumerate().skip(place);
        let (place, _) = states.find(|(_, state)| {
            let made = state.value.as_ref();
            made.is_some_and(|(made, data)| *made == version && **data == *value)
        })?;
        Some(place)
    }
}

/// The subscriptions that one session has had to one record.
#[derive(Debug, Default)]
struct Instances {
    started: usize,
    /// Those before this one have ended at the session's shard.
    ended: usize,
    /// Those before this one ended with the record, which the session deleted itself.
    deleted: usize,
    /// Those whose beginning the session has heard of.
    heard: usize,
    /// The one that the session hears of now.
    current: Option<usize>,
    /// Of which it has heard nothing after the read.
    just_read: bool,
}

/// A write or delete that is to be acknowledged.
#[derive(Debug)]
struct Awaited {
    change_count: usize,
    since: u64,
    /// What the shards with subscribers must have been sent before, and for which subscription.
    effects: Vec<Effect>,
}

#[derive(Debug)]
struct Effect {
    session: SessionId,
    instance: usize,
    /// Name, version, value, shard.
    posted: (String, u32, String, usize),
}

/// A bulk message whose names are not all done.
#[derive(Debug)]
struct Bulk {
    missing: usize,
    allowed: bool,
}

/// See the head of this file.
#[derive(Debug)]
pub struct RecordModel {
    records: BTreeMap<String, ModelRecord>,
    instances: BTreeMap<(SessionId, String), Instances>,
    expected: BTreeMap<(SessionId, String), VecDeque<Expected>>,
    /// Requests between a session's shard and an owner.
    on_the_way: BTreeMap<(SessionId, usize), VecDeque<Vec<Request>>>,
    writes: BTreeMap<(SessionId, String), Awaited>,
    deletes: BTreeMap<(SessionId, String), Awaited>,
    bulks: BTreeMap<(SessionId, String), Bulk>,
    /// The newest acknowledged change of each record.
    acknowledged: BTreeMap<String, usize>,
    dirty: Vec<BTreeMap<String, Dirty>>,
    /// Sessions whose shard has not been told yet that they are gone.
    live: BTreeSet<SessionId>,
    /// Those of them that follow jumps and lagged.
    lagged: BTreeSet<SessionId>,
    /// The newest change that each of these did not hear, because something behind it came first.
    skipped: BTreeMap<(SessionId, String), Expected>,
    /// The simulation's step.
    pub step: u64,
    terms: Terms,
}

/// What the model has to know of the node's settings.
#[derive(Clone, Debug)]
pub struct Terms {
    pub shards: usize,
    /// Records of a shard that may be dirty.
    pub dirty_max: usize,
    pub load_timeout_ns: u64,
    pub write_timeout_ns: u64,
    /// Whether owners forget records that the model believes them to know.
    pub evicts: bool,
    /// Whether records under `mem/` are kept in memory only.
    pub memory_only: bool,
}

impl RecordModel {
    pub fn new(terms: Terms) -> Self {
        Self {
            records: BTreeMap::new(),
            instances: BTreeMap::new(),
            expected: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            writes: BTreeMap::new(),
            deletes: BTreeMap::new(),
            bulks: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            dirty: (0..terms.shards).map(|_| BTreeMap::new()).collect(),
            live: BTreeSet::new(),
            lagged: BTreeSet::new(),
            skipped: BTreeMap::new(),
            step: 0,
            terms,
        }
    }

    /// A subscription begins at the session's shard.
    pub fn begin(&mut self, session: SessionId, name: &str, action: RecordBulk) -> usize {
        let instances = self.instances.entry((session, name.into())).or_default();
        let instance = instances.started;
        instances.started += 1;
        if !is_read(action) {
            instances.heard += 1;
            instances.current = Some(instance);
        }
        instance
    }

    /// A session's subscriptions to a record end at its shard.
    pub fn end(&mut self, session: SessionId, name: &str) {
        let instances = self.instances.entry((session, name.into())).or_default();
        instances.ended = instances.started;
    }

    /// The store has a record from the beginning.
    pub fn begin_with(&mut self, name: &str, owner: usize, version: i32) {
        let record = self.record(name, owner);
        record.states[0].value = Some((version, Rc::new(json!({}))));
    }

    /// A session has begun.
    pub fn session_began(&mut self, session: SessionId) {
        self.live.insert(session);
    }

    /// A session that follows jumps lags: steps may be left out for it from now on, if it gets the newest in the end.
    pub fn session_lags(&mut self, session: SessionId) {
        self.lagged.insert(session);
    }

    /// A session is gone.
    pub fn session_ended(&mut self, session: SessionId) {
        self.live.remove(&session);
        self.lagged.remove(&session);
        self.skipped.retain(|(of, _), _| *of != session);
        self.instances.retain(|(of, _), _| *of != session);
        self.expected.retain(|(of, _), _| *of != session);
        self.writes.retain(|(of, _), _| *of != session);
        self.deletes.retain(|(of, _), _| *of != session);
        self.bulks.retain(|(of, _), _| *of != session);
        for record in self.records.values_mut() {
            record.subscribers.retain(|(of, _)| *of != session);
        }
    }

    /// The node has crashed: what the store has is what is left.
    pub fn crash(&mut self, store: &SimStore) -> Checked {
        self.live.clear();
        self.lagged.clear();
        self.skipped.clear();
        self.instances.clear();
        self.expected.clear();
        self.on_the_way.clear();
        self.writes.clear();
        self.deletes.clear();
        self.bulks.clear();
        self.dirty.iter_mut().for_each(BTreeMap::clear);
        for (name, record) in &mut self.records {
            let kept = store.change_count(name);
            let acknowledged = self.acknowledged.get(name).copied().unwrap_or(0);
            ensure(kept >= acknowledged, Check::Durable, || {
                format!("{name}: change {acknowledged} was acknowledged, the store has {kept}")
            })?;
            record.states.truncate(kept + 1);
            record.known = record.volatile;
            record.waiting.clear();
            record.needs_gate = false;
            record.timers.clear();
            record.subscribers.clear();
        }
        Ok(())
    }

    /// A request leaves the session's shard for another one.
    pub fn posted(&mut self, session: SessionId, owner: usize, requests: Vec<Request>) {
        self.on_the_way
            .entry((session, owner))
            .or_default()
            .push_back(requests);
    }

    /// The owner takes a request out of its mailbox.
    pub fn taken(
        &mut self,
        owner: usize,
        request: &RecordRequest,
    ) -> Result<Vec<Request>, Violation> {
        let way = self.on_the_way.entry((request.session, owner)).or_default();
        match way.pop_front() {
            Some(sent) if is_same(&request.what, &sent) => Ok(sent),
            sent => violated(
                Check::ConnectionOrder,
                format!(
                    "{:?} sent {sent:?} before {:?}",
                    request.session, request.what
                ),
            ),
        }
    }

    /// A request is executed at the owner, or waits there for the record's value.
    pub fn arrive(&mut self, owner: usize, now: u64, request: Request) -> Checked {
        for (session, number) in request.stamp.seen.iter() {
            let earlier = self
                .on_the_way
                .get(&(*session, owner))
                .and_then(|way| way.front())
                .and_then(|requests| requests.first());
            ensure(
                earlier.is_none_or(|earlier| earlier.stamp.number > *number),
                Check::Reaction,
                || {
                    format!(
                        "{request:?} has seen message {number} of {session:?} and overtakes {earlier:?}"
                    )
                },
            )?;
        }
        let name = request.name.clone();
        let waiting = Waiting {
            since: now,
            step: self.step,
            request,
        };
        let timeout = self.terms.load_timeout_ns;
        let record = self.record(&name, owner);
        record.waiting.push_back(waiting);
        if !record.known {
            record.timers.push(now + timeout);
        }
        self.go_on(now, &name);
        Ok(())
    }

    /// A bulk message begins that is acknowledged once all its names are done.
    pub fn begin_bulk(&mut self, session: SessionId, id: &str, count: usize) {
        let bulk = Bulk {
            missing: count,
            allowed: count == 0,
        };
        self.bulks.insert((session, id.into()), bulk);
    }

    /// The judge has looked at the first request of a record whose writes are ruled.
    pub fn ruled(&mut self, now: u64, ruling: &Ruling) -> Checked {
        let Some(record) = self.records.get_mut(&ruling.name) else {
            return Ok(());
        };
        let first_need = !std::mem::take(&mut record.needs_gate);
        if ruling.said == Said::Needs && first_need {
            record.needs_gate = true;
            return Ok(());
        }
        let Some(waiting) = record.waiting.pop_front() else {
            return violated(
                Check::RecordOrder,
                format!("{ruling:?} is about a request that was not there"),
            );
        };
        let ruled = waiting.request.kind.is_ruled(&ruling.name);
        ensure(ruled, Check::RecordOrder, || {
            format!("{ruling:?} overtakes {waiting:?}")
        })?;
        match ruling.said {
            // Needed again although it was asked for: it could not be read.
            Said::Needs => self.refuse(waiting.request, Refused::RuleFailed),
            Said::Allowed => {
                self.gate_was(&ruling.name, true, waiting.step)?;
                self.execute(now, waiting.request);
            }
            Said::Denied => {
                self.gate_was(&ruling.name, false, waiting.step)?;
                self.refuse(waiting.request, Refused::Denied);
            }
        }
        self.go_on(now, &ruling.name);
        Ok(())
    }

    /// A rule has found the gate of a name open or not; it must have been so at some time since `step`.
    pub fn gate_was(&self, name: &str, open: bool, step: u64) -> Checked {
        if self.terms.evicts {
            // The owner may have been loading the gate again, so its value was older than the model's.
            return Ok(());
        }
        let gate = gate_of(name).unwrap_or_default();
        let states = self
            .records
            .get(&gate)
            .map_or(&[][..], |record| record.states.as_slice());
        let held = states.iter().enumerate().any(|(place, state)| {
            let until = states.get(place + 1).map_or(u64::MAX, |next| next.since);
            until >= step && state.is_open() == open
        });
        ensure(held || (states.is_empty() && !open), Check::Ruling, || {
            format!("{name} was judged as open: {open}, since step {step} its gate was {states:?}")
        })
    }

    /// Executes the waiting requests of a record, up to one that a rule or a load has to decide.
    fn go_on(&mut self, now: u64, name: &str) {
        while let Some(record) = self.records.get_mut(name)
            && record.known
            && let Some(waiting) = record
                .waiting
                .pop_front_if(|waiting| !waiting.request.kind.is_ruled(name))
        {
            if matches!(waiting.request.kind, Kind::Notify) {
                self.notify(now, waiting);
            } else {
                self.execute(now, waiting.request);
            }
        }
    }

    /// Loads the record again, unless what is in memory is newer than anything that the store can have.
    fn notify(&mut self, now: u64, mut waiting: Waiting) {
        let name = waiting.request.name.clone();
        let Some(record) = self.records.get_mut(&name) else {
            return;
        };
        if record.volatile || self.dirty[record.owner].contains_key(&name) {
            return self.done(&waiting.request, true);
        }
        record.known = false;
        record.timers.push(now + self.terms.load_timeout_ns);
        waiting.request.kind = Kind::Reloaded;
        record.waiting.push_front(waiting);
    }

    /// A name of a bulk message is done.
    fn done(&mut self, request: &Request, allowed: bool) {
        if let Some(id) = &request.bulk
            && let Some(bulk) = self.bulks.get_mut(&(request.stamp.session, id.clone()))
        {
            bulk.missing -= 1;
            bulk.allowed |= allowed;
        }
    }

    /// The store has answered a load.
    pub fn loaded(
        &mut self,
        owner: usize,
        now: u64,
        name: &str,
        found: bool,
        store: &SimStore,
    ) -> Checked {
        let record = self.record(name, owner);
        if record.known {
            return Ok(());
        }
        if !found {
            for waiting in std::mem::take(&mut record.waiting) {
                self.refuse(waiting.request, Refused::Load);
            }
            return Ok(());
        }
        record.known = true;
        let kept = store.change_count(name);
        ensure(kept == record.change_count(), Check::StoreContent, || {
            format!(
                "{name} is loaded after change {kept}, and had {}",
                record.change_count()
            )
        })?;
        self.go_on(now, name);
        Ok(())
    }

    /// An owner has looked at its deadlines: loads that take too long are given up.
    pub fn deadline_reached(&mut self, owner: usize, now: u64) {
        let mut late = Vec::new();
        let timeout = self.terms.load_timeout_ns;
        for record in self
            .records
            .values_mut()
            .filter(|record| record.owner == owner)
        {
            let timers = record.timers.len();
            record.timers.retain(|due| *due > now);
            if record.known || record.timers.len() == timers {
                continue;
            }
            while let Some(waiting) = record
                .waiting
                .pop_front_if(|waiting| waiting.since + timeout <= now)
            {
                late.push(waiting.request);
            }
        }
        for request in late {
            self.refuse(request, Refused::LoadTimeout);
        }
    }

    /// A shard gives a write to the store: it must be the newest state. Returns the number of its change.
    pub fn commits(
        &mut self,
        owner: usize,
        name: &str,
        change: &StoreChange,
    ) -> Result<usize, Violation> {
        let record = self.record(name, owner);
        let newest = record.state().value.clone();
        let count = record.change_count();
        let same = match (change, &newest) {
            (StoreChange::Delete, None) => true,
            (StoreChange::Put(stored), Some((version, value))) => {
                i64::from(stored.version.0) == i64::from(*version)
                    && parse(stored.data.as_str()) == **value
            }
            _ => false,
        };
        ensure(same, Check::StoreContent, || {
            format!("{name} is committed as {change:?}, its newest state is {newest:?}")
        })?;
        let dirty = self.dirty[owner].entry(name.into()).or_default();
        dirty.queued = false;
        dirty.in_batch = true;
        Ok(count)
    }

    /// A shard learns how a commit ended.
    pub fn committed(&mut self, owner: usize, names: &[String], success: bool) {
        for name in names {
            let Some(dirty) = self.dirty[owner].get_mut(name) else {
                continue;
            };
            dirty.in_batch = false;
            dirty.queued |= !success;
            if !dirty.queued {
                self.dirty[owner].remove(name);
            }
        }
    }

    /// A session hears something of a record. Returns whose message it comes from.
    pub fn hear(
        &mut self,
        now: u64,
        session: SessionId,
        heard: &Heard,
        store: &SimStore,
        outside: &Outside,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        match heard {
            Heard::RecordAck { action, names, id } => {
                self.hear_ack(session, *action, names, id)?;
                Ok(None)
            }
            Heard::Written { name, id } => {
                let awaited = self.writes.remove(&(session, id.clone()));
                self.hear_done(name, awaited, store, outside)
            }
            Heard::DeleteDone { name } => {
                let awaited = self.deletes.remove(&(session, name.clone()));
                self.hear_done(name, awaited, store, outside)
            }
            Heard::RecordRefused {
                why: Refused::Update,
                id: Some(id),
                ..
            } if self.is_late(now, self.writes.get(&(session, id.clone()))) => {
                self.writes.remove(&(session, id.clone()));
                Ok(None)
            }
            Heard::RecordRefused {
                why: Refused::Delete,
                name,
                ..
            } if self.is_late(now, self.deletes.get(&(session, name.clone()))) => {
                self.deletes.remove(&(session, name.clone()));
                Ok(None)
            }
            _ => self.hear_expected(session, heard),
        }
    }

    /// Whether somebody is subscribed.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.records.get(name).is_some_and(|record| {
            record.subscribers.iter().any(|(session, instance)| {
                let instances = self.instances.get(&(*session, name.to_owned()));
                instances.is_some_and(|instances| *instance >= instances.ended)
            })
        })
    }

    /// Everything that had to be heard was heard, and every acknowledgement has come.
    pub fn quiet(&self) -> Checked {
        for ((session, name), expected) in &self.expected {
            let ended = self.ended(*session, name);
            let missing = expected
                .iter()
                .find(|expected| expected.instance.is_none_or(|instance| instance >= ended));
            if let Some(missing) = missing {
                let just_read = self
                    .instances
                    .get(&(*session, name.clone()))
                    .is_some_and(|instances| instances.just_read);
                let is_owed =
                    self.lagged.contains(session) && matches!(missing.want, Want::Changed { .. });
                let check = match is_owed {
                    true => Check::CaughtUp,
                    false => gap_or_order(missing, just_read),
                };
                violated(
                    check,
                    format!("{session:?} never heard of {name}: {missing:?}"),
                )?;
            }
        }
        for ((session, name), skipped) in &self.skipped {
            let ended = self.ended(*session, name);
            let lasts = skipped.instance.is_none_or(|instance| instance >= ended);
            ensure(!lasts, Check::CaughtUp, || {
                format!("{session:?} skipped {skipped:?} of {name} and got nothing for it")
            })?;
        }
        let bulk = self
            .bulks
            .iter()
            .find(|(_, bulk)| bulk.missing > 0 || bulk.allowed);
        ensure(bulk.is_none(), Check::AnsweredOnce, || {
            format!("a bulk message was not acknowledged: {bulk:?}")
        })?;
        let waiting = self
            .records
            .values()
            .flat_map(|record| &record.waiting)
            .next();
        ensure(waiting.is_none(), Check::AnsweredOnce, || {
            format!("never decided: {waiting:?}")
        })?;
        let unanswered = self.writes.iter().chain(&self.deletes).next();
        ensure(unanswered.is_none(), Check::AnsweredOnce, || {
            format!("never answered: {unanswered:?}")
        })
    }

    fn record(&mut self, name: &str, owner: usize) -> &mut ModelRecord {
        let volatile = self.terms.memory_only && name.starts_with("mem/");
        self.records
            .entry(name.into())
            .or_insert_with(|| ModelRecord {
                owner,
                volatile,
                known: volatile,
                waiting: VecDeque::new(),
                timers: Vec::new(),
                needs_gate: false,
                states: vec![State {
                    value: None,
                    stamp: None,
                    since: 0,
                }],
                subscribers: Vec::new(),
            })
    }

    fn hear_ack(
        &mut self,
        session: SessionId,
        action: RecordBulk,
        names: &[String],
        id: &str,
    ) -> Checked {
        if action == RecordBulk::Unsubscribe {
            if let Some(instances) = self.instances.get_mut(&(session, id.to_owned())) {
                instances.current = None;
            }
        } else if is_read(action) {
            for name in names {
                if let Some(instances) = self.instances.get_mut(&(session, name.clone())) {
                    instances.current = Some(instances.heard);
                    instances.heard += 1;
                }
            }
        } else {
            let bulk = self.bulks.remove(&(session, id.to_owned()));
            let right = bulk
                .as_ref()
                .is_some_and(|bulk| bulk.missing == 0 && bulk.allowed);
            return ensure(right, Check::AnsweredOnce, || {
                format!("{session:?} hears the ack {id} of {bulk:?}")
            });
        }
        Ok(())
    }

    fn hear_done(
        &mut self,
        name: &str,
        awaited: Option<Awaited>,
        store: &SimStore,
        outside: &Outside,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        let Some(awaited) = awaited else {
            return violated(
                Check::AnsweredOnce,
                format!("{name}: an answer that nobody waits for"),
            );
        };
        let kept = store.change_count(name);
        let volatile = self.records.get(name).is_some_and(|record| record.volatile);
        let durable = kept >= awaited.change_count || volatile;
        ensure(durable, Check::Durable, || {
            format!(
                "{name}: change {} is acknowledged, the store has {kept}",
                awaited.change_count
            )
        })?;
        let kept = kept.min(awaited.change_count);
        let newest = self.acknowledged.entry(name.into()).or_insert(0);
        *newest = (*newest).max(kept);
        let missing = awaited.effects.iter().find(|effect| {
            // An owner that forgets loads more often than the model and so decides later: the subscription may have
            // ended by then.
            let is_certain = !self.terms.evicts
                || (self.live.contains(&effect.session)
                    && effect.instance >= self.ended(effect.session, name));
            is_certain && !outside.posted.contains(&effect.posted)
        });
        ensure(missing.is_none(), Check::AnswerAfterEffects, || {
            format!("{name}: acknowledged before this was posted: {missing:?}")
        })?;
        Ok(None)
    }

    fn is_late(&self, now: u64, awaited: Option<&Awaited>) -> bool {
        awaited.is_some_and(|awaited| awaited.since + self.terms.write_timeout_ns <= now)
    }

    fn hear_expected(
        &mut self,
        session: SessionId,
        heard: &Heard,
    ) -> Result<Option<Rc<Stamp>>, Violation> {
        let Some(name) = name_of(heard) else {
            return Ok(None);
        };
        let key = (session, name.to_owned());
        let ended = self.ended(session, name);
        let (current, just_read) = self.instances.get(&key).map_or((None, false), |instances| {
            (instances.current, instances.just_read)
        });
        let may_skip = self.lagged.contains(&session);
        if may_skip && let Some(stamp) = self.hear_jump(&key, current, heard) {
            return Ok(stamp);
        }
        let queue = self.expected.entry(key.clone()).or_default();
        while let Some(front) = queue.pop_front() {
            let belongs = front.instance.is_none() || front.instance == current;
            if belongs && matches(&front.want, heard) {
                let is_step = matches!(front.want, Want::Changed { .. });
                let skipped = self
                    .skipped
                    .get(&key)
                    .filter(|skipped| skipped.instance == current);
                ensure(!is_step || skipped.is_none(), Check::RecordOrder, || {
                    format!("{session:?} hears the step {heard:?} and skipped {skipped:?}")
                })?;
                if front.want == Want::Deleted {
                    self.skipped.remove(&key);
                }
                if front.instance.is_some()
                    && let Some(instances) = self.instances.get_mut(&key)
                {
                    instances.just_read = front.want.is_read();
                }
                return Ok(front.stamp);
            }
            let is_answer = !matches!(heard, Heard::Changed { .. });
            if may_skip && belongs && is_answer && matches!(front.want, Want::Changed { .. }) {
                self.skipped.insert(key.clone(), front);
                continue;
            }
            if front.instance.is_none_or(|instance| instance >= ended) {
                return violated(
                    gap_or_order(&front, just_read),
                    format!(
                        "{session:?} hears {heard:?} in subscription {current:?} instead of {front:?}"
                    ),
                );
            }
        }
        violated(
            Check::RecordOrder,
            format!("{session:?} hears {heard:?} and nothing was due"),
        )
    }

    /// Of the subscriptions before this one a session need not hear any more. Of those that ended with its own delete it
    /// hears all the same, unless it lagged.
    fn ended(&self, session: SessionId, name: &str) -> usize {
        let instances = self.instances.get(&(session, name.to_owned()));
        instances.map_or(0, |instances| {
            if self.lagged.contains(&session) {
                instances.ended.max(instances.deleted)
            } else {
                instances.ended
            }
        })
    }

    /// Whether what a session that lagged hears is a jump: a whole value that the record has had, at the change that it
    /// skipped or a later one, perhaps one of its own. It stands for all changes up to there.
    fn hear_jump(
        &mut self,
        key: &(SessionId, String),
        current: Option<usize>,
        heard: &Heard,
    ) -> Option<Option<Rc<Stamp>>> {
        let Heard::Changed {
            version,
            delta: Delta::Whole(data),
            ..
        } = heard
        else {
            return None;
        };
        let record = self.records.get(&key.1)?;
        let place_in = |expected: &Expected| match &expected.want {
            Want::Changed { place, .. } if expected.instance == current => Some(*place),
            _ => None,
        };
        let skipped = self.skipped.get(key).and_then(place_in);
        let queue = self.expected.entry(key.clone()).or_default();
        let owed = skipped.or_else(|| queue.front().and_then(place_in))?;
        let place = record.place_of(*version, &parse(data), owed)?;
        self.skipped.remove(key);
        while queue
            .pop_front_if(|front| place_in(front).is_some_and(|made| made <= place))
            .is_some()
        {}
        Some(record.states[place].stamp.clone())
    }

    fn expect(
        &mut self,
        session: SessionId,
        name: &str,
        instance: Option<usize>,
        want: Want,
        stamp: Option<Rc<Stamp>>,
    ) {
        let key = (session, name.to_owned());
        let ended = self
            .instances
            .get(&key)
            .map_or(0, |instances| instances.ended);
        if self.live.contains(&session) && instance.is_none_or(|instance| instance >= ended) {
            self.expected.entry(key).or_default().push_back(Expected {
                instance,
                want,
                stamp,
            });
        }
    }

    fn refuse(&mut self, request: Request, why: Refused) {
        self.done(&request, false);
        let session = request.stamp.session;
        let (why, id) = match request.kind {
            // A refused notify names no record.
            Kind::Notify | Kind::Reloaded => return,
            Kind::Delete if !matches!(why, Refused::Denied | Refused::RuleFailed) => {
                (Refused::Delete, None)
            }
            Kind::Write { id, .. } => (why, id),
            _ => (why, None),
        };
        self.expect(session, &request.name, None, Want::Refused(why, id), None);
    }

    fn has_place(&self, owner: usize, name: &str) -> bool {
        let volatile = self.records.get(name).is_some_and(|record| record.volatile);
        let dirty = &self.dirty[owner];
        volatile || dirty.contains_key(name) || dirty.len() < self.terms.dirty_max
    }

    fn change(&mut self, name: &str, value: Option<(i32, Rc<Value>)>, stamp: &Rc<Stamp>) {
        if let Some(record) = self.records.get_mut(name) {
            record.states.push(State {
                value,
                stamp: Some(stamp.clone()),
                since: self.step,
            });
            if !record.volatile {
                self.dirty[record.owner]
                    .entry(name.into())
                    .or_default()
                    .queued = true;
            }
        }
    }

    fn execute(&mut self, now: u64, request: Request) {
        let Some(record) = self.records.get(&request.name) else {
            return;
        };
        let state = record.state().clone();
        let session = request.stamp.session;
        let name = request.name.clone();
        let name = name.as_str();
        match request.kind.clone() {
            Kind::Subscribe { action, instance } => {
                self.done(&request, true);
                self.subscribe(&request.stamp, name, action, instance);
            }
            Kind::Notify | Kind::Reloaded => self.done(&request, true),
            Kind::Read => {
                let want = match state.value {
                    Some((version, value)) => Want::Value(version, value),
                    None => Want::NotFound,
                };
                self.expect(session, name, None, want, state.stamp);
            }
            Kind::Head => {
                let version = state.value.map_or(-1, |(version, _)| version);
                self.expect(session, name, None, Want::Version(version), state.stamp);
            }
            Kind::Delete => self.delete(now, &request.stamp, name, state.value.is_some()),
            Kind::Write {
                version,
                id,
                act,
                delta,
            } => {
                self.write(now, &request.stamp, name, state, version, id, act, &delta);
            }
        }
    }

    fn subscribe(&mut self, stamp: &Rc<Stamp>, name: &str, action: RecordBulk, instance: usize) {
        let Some(record) = self.records.get(name) else {
            return;
        };
        let session = stamp.session;
        if action == RecordBulk::SubscribeCreateAndRead && record.state().value.is_none() {
            if !self.has_place(record.owner, name) {
                return self.expect(
                    session,
                    name,
                    None,
                    Want::Refused(Refused::Create, None),
                    None,
                );
            }
            self.change(name, Some((0, Rc::new(json!({})))), stamp);
        }
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        if self.live.contains(&session) {
            record.subscribers.push((session, instance));
        }
        let state = record.state().clone();
        let version = state.value.as_ref().map_or(-1, |(version, _)| *version);
        let want = match action {
            RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead => {
                let value = state
                    .value
                    .map_or_else(|| Rc::new(json!({})), |(_, value)| value);
                Want::Value(version, value)
            }
            RecordBulk::SubscribeAndHead => Want::Version(version),
            _ => return,
        };
        self.expect(session, name, Some(instance), want, state.stamp);
    }

    fn delete(&mut self, now: u64, stamp: &Rc<Stamp>, name: &str, exists: bool) {
        let session = stamp.session;
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        let owner = record.owner;
        if exists && !self.has_place(owner, name) {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Delete, None),
                None,
            );
        }
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        for (subscriber, instance) in std::mem::take(&mut record.subscribers) {
            if subscriber == session {
                let instances = self.instances.entry((session, name.into())).or_default();
                instances.deleted = instance + 1;
            } else {
                self.expect(
                    subscriber,
                    name,
                    Some(instance),
                    Want::Deleted,
                    Some(stamp.clone()),
                );
            }
        }
        if exists {
            self.change(name, None, stamp);
        }
        let awaited = self.awaited(now, name, Vec::new());
        if self.live.contains(&session) {
            self.deletes.insert((session, name.into()), awaited);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one write, used once"
    )]
    fn write(
        &mut self,
        now: u64,
        stamp: &Rc<Stamp>,
        name: &str,
        state: State,
        version: i32,
        id: Option<String>,
        act: Act,
        delta: &Delta,
    ) {
        let session = stamp.session;
        let exists = state.value.is_some();
        let (current, before) = state.value.unwrap_or_else(|| (0, Rc::new(json!({}))));
        if !exists && !act.creates() && id.is_none() {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Update, id),
                None,
            );
        }
        let wraps = current == i32::MAX;
        let next = if wraps { 1 } else { current + 1 };
        if version != -1 && version != next {
            let want = if version <= current {
                Want::VersionExists(current, before, id)
            } else {
                Want::InvalidVersion(current, id)
            };
            return self.expect(session, name, None, want, state.stamp);
        }
        let Some(owner) = self.records.get(name).map(|record| record.owner) else {
            return;
        };
        if !self.has_place(owner, name) {
            return self.expect(
                session,
                name,
                None,
                Want::Refused(Refused::Update, id),
                None,
            );
        }
        let after = Rc::new(apply(&before, delta));
        self.change(name, Some((next, after.clone())), stamp);
        let place = self.records.get(name).map_or(0, ModelRecord::change_count);
        let subscribers = self
            .records
            .get(name)
            .map(|record| record.subscribers.clone())
            .unwrap_or_default();
        let mut effects = Vec::new();
        for (subscriber, instance) in subscribers {
            let shard = usize::from(subscriber.home.shard);
            let key = (subscriber, name.to_owned());
            let lasts = self
                .instances
                .get(&key)
                .is_some_and(|instances| instance >= instances.ended);
            if lasts && shard != owner {
                effects.push(Effect {
                    session: subscriber,
                    instance,
                    posted: (name.to_owned(), next as u32, after.to_string(), shard),
                });
            }
            if subscriber != session {
                let want = Want::Changed {
                    version: next,
                    before: before.clone(),
                    after: after.clone(),
                    whole: wraps,
                    place,
                };
                self.expect(subscriber, name, Some(instance), want, Some(stamp.clone()));
            }
        }
        if let Some(id) = id
            && self.live.contains(&session)
        {
            let awaited = self.awaited(now, name, effects);
            self.writes.insert((session, id), awaited);
        }
    }

    fn awaited(&self, now: u64, name: &str, effects: Vec<Effect>) -> Awaited {
        let change_count = self.records.get(name).map_or(0, ModelRecord::change_count);
        Awaited {
            change_count,
            since: now,
            effects,
        }
    }
}

/// Which promise is broken when this was not heard.
fn gap_or_order(missing: &Expected, just_read: bool) -> Check {
    let at_the_read = missing.instance.is_some() && (just_read || missing.want.is_read());
    if at_the_read {
        Check::ReadWithoutGap
    } else {
        Check::RecordOrder
    }
}

fn is_read(action: RecordBulk) -> bool {
    matches!(
        action,
        RecordBulk::SubscribeCreateAndRead | RecordBulk::SubscribeAndRead
    )
}

/// Whether the owner got what was sent.
fn is_same(got: &RecordRequestKind, sent: &[Request]) -> bool {
    let [first, ..] = sent else {
        return false;
    };
    match (got, &first.kind) {
        (RecordRequestKind::Bulk { action, names, .. }, Kind::Subscribe { .. } | Kind::Notify) => {
            let wanted = match first.kind {
                Kind::Subscribe { action, .. } => action,
                _ => RecordBulk::Notify,
            };
            *action == wanted
                && names.len() == sent.len()
                && names
                    .iter()
                    .zip(sent)
                    .all(|((name, _), request)| name.as_str() == request.name)
        }
        (RecordRequestKind::Read(name), Kind::Read)
        | (RecordRequestKind::Head(name), Kind::Head)
        | (RecordRequestKind::Delete(name), Kind::Delete) => name.as_str() == first.name,
        (
            RecordRequestKind::Write(name, write),
            Kind::Write {
                version, id, act, ..
            },
        ) => {
            name.as_str() == first.name
                && write.version.map_or(-1, |version| i64::from(version.0)) == i64::from(*version)
                && write.correlation.as_deref() == id.as_deref()
                && write.action == action_of(*act)
        }
        _ => false,
    }
}

fn action_of(act: Act) -> RecordAction {
    match act {
        Act::Update => RecordAction::Update,
        Act::Patch => RecordAction::Patch,
        Act::Erase => RecordAction::Erase,
        Act::PatchMulti => RecordAction::PatchMulti,
        Act::CreateAndUpdate => RecordAction::CreateAndUpdate,
        Act::CreateAndPatch => RecordAction::CreateAndPatch,
    }
}
