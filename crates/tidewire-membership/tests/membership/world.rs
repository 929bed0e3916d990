//! The nodes, their links and the faults of one run.

mod isolation;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tidewire_membership::{Input, Membership, Output, RELINK_MS, STOP_MS, Settings};
use tidewire_message::slot::ClusterKey;
use tidewire_message::view::{MemberId, MemberState, Profile, StoredView, Versions, View};

use crate::promises::{Met, Silence, Silences, check_removals};
use crate::random::Random;
use crate::registry::{Proposed, Registry};

/// Faults happen until then, ...
const FAULTS_MS: u64 = 60_000;
/// ... and afterwards all nodes must be active members again within the longest pause before a rejoin.
const REPAIR_MS: u64 = 90_000;
const TICK_MS: u64 = 100;
const PING_MS: u64 = 500;
const REQUEST_MS: u64 = 1_000;
/// As much of a gap between two steps counts as running time.
const STEP_MS_MAX: u64 = 500;
/// The times of `spec/links.md` after which a peer is suspect.
const SILENCE_MS: u64 = 2_000;
const BROKEN_MS: u64 = 500;
/// Within this time after a member has dropped the link of an evicted one, the latter stops deciding.
const EVICTED_MS: u64 = 4_600;
/// A node notices within this time that the broker of the links does not answer.
const BROKER_NOTICED_MS: u64 = 1_000;

type Violation = String;

#[derive(Clone, Debug)]
enum Event {
    Tick(MemberId),
    SendPings(MemberId),
    SendPing {
        from: MemberId,
        to: MemberId,
    },
    Ping {
        from: MemberId,
        to: MemberId,
        asked: u64,
    },
    Pong {
        from: MemberId,
        to: MemberId,
        asked: u64,
    },
    Broken {
        to: MemberId,
        member: MemberId,
    },
    /// A request arrives at the registry.
    Request {
        from: MemberId,
        number: u64,
        sent: u64,
        request: Output,
        silences: Silences,
    },
    Answer {
        to: MemberId,
        number: u64,
        sent: u64,
        input: Input,
    },
    Timeout {
        to: MemberId,
        number: u64,
    },
    /// A node notices whether the broker of the links answers.
    Broker {
        to: MemberId,
        answers: bool,
    },
    BrokerReturns,
    Settled(MemberId, View),
    Leave(MemberId),
    Wake(MemberId),
    Start {
        node: u16,
        evictions: u32,
    },
    /// `evicted` has no link to a member any more that knows of the eviction.
    CheckEvicted(MemberId),
    Fault,
    Repair,
}

/// One life of a node.
struct Life {
    id: MemberId,
    machine: Membership,
    is_paused: bool,
    /// What arrived during a pause.
    inbox: Vec<Event>,
    last_step: u64,
    /// For how long the process has run, with a part of each pause.
    ran: u64,
    /// When it last had an answer of each member: how long it had run, and when it had asked.
    heard: BTreeMap<MemberId, (u64, u64)>,
    /// How long it had run when the connection to a member broke, without an answer since.
    broken: BTreeMap<MemberId, u64>,
    /// The members that its links suspect.
    suspects: BTreeSet<MemberId>,
    /// When it asked the registry for the last answer that has confirmed its view.
    confirmed: u64,
    request: Option<u64>,
    did_decide: bool,
    broker: BrokerSeen,
    /// Whether it has owned slots, and whether all that it owned is handed over or committed.
    has_owned: bool,
    has_settled: bool,
}

impl Life {
    /// The changes of suspicion, by the rules of links: a member is suspect if its connection is broken for 500 ms, or if it is silent for 2 s.
    fn suspicions(&mut self) -> Vec<Input> {
        let mut changes = Vec::new();
        let others = self.machine.view().into_iter().flat_map(StoredView::ids);
        let others: Vec<MemberId> = others.filter(|other| *other != self.id).collect();
        self.suspects.retain(|suspect| others.contains(suspect));
        for member in others {
            let heard = self.heard.get(&member).map_or(self.ran, |(ran, _)| *ran);
            let broken = self.broken.get(&member);
            let is_suspect = self.ran - heard >= SILENCE_MS
                || broken.is_some_and(|broken| self.ran - broken >= BROKEN_MS);
            if is_suspect && self.suspects.insert(member) {
                changes.push(Input::Suspect(member));
            } else if !is_suspect && self.suspects.remove(&member) {
                changes.push(Input::Trusted(member));
            }
        }
        changes
    }
}

/// A broker of the links.
#[derive(Clone, Copy)]
struct Broker {
    is_up: bool,
}

/// The broker as a node has noticed it.
#[derive(Clone, Copy)]
enum BrokerSeen {
    Always,
    Silent,
    /// It answers since this time.
    Again(u64),
}

pub struct World {
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Boxed)>>,
    sequence: u64,
    registry: Registry,
    lives: Vec<Option<Life>>,
    /// Whether messages from the first node to the second one are lost.
    cut: Vec<Vec<bool>>,
    /// Each link sends its pings at other times than the other links of the node.
    ping_phases: Vec<Vec<u64>>,
    without_registry: Vec<bool>,
    /// The broker that carries all links, if there is one.
    broker: Option<Broker>,
    /// When a link or a node was last disturbed or repaired.
    link_changed: Vec<Vec<u64>>,
    node_changed: Vec<u64>,
    /// When a member was evicted.
    evicted: BTreeMap<MemberId, u64>,
    is_repaired: bool,
    met: Met,
}

/// An event; the queue compares only times.
#[derive(Debug)]
struct Boxed(Event);

impl PartialEq for Boxed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Boxed {}
impl PartialOrd for Boxed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Boxed {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(4);
        let has_broker = random.chance(40);
        let mut phase = || random.below(PING_MS as usize) as u64;
        let ping_phases = (0..count).map(|_| (0..count).map(|_| phase()).collect());
        let ping_phases = ping_phases.collect();
        let mut world = Self {
            random,
            now: 10_000,
            events: BinaryHeap::new(),
            sequence: 0,
            registry: Registry::new(),
            lives: (0..count).map(|_| None).collect(),
            cut: vec![vec![false; count]; count],
            ping_phases,
            without_registry: vec![false; count],
            broker: has_broker.then_some(Broker { is_up: true }),
            link_changed: vec![vec![0; count]; count],
            node_changed: vec![0; count],
            evicted: BTreeMap::new(),
            is_repaired: false,
            met: Met::default(),
        };
        for node in 0..count as u16 {
            let start = world.random.below(2_000) as u64;
            world.later(start, Event::Start { node, evictions: 0 });
        }
        world.later(8_000, Event::Fault);
        world.later(FAULTS_MS, Event::Repair);
        world
    }

    pub fn run(mut self) -> Result<Met, Violation> {
        let end = self.now + FAULTS_MS + REPAIR_MS;
        while let Some(Reverse((at, _, Boxed(event)))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle(event)?;
        }
        self.now = end;
        let view = &self.registry.view;
        for (node, life) in self.lives.iter().enumerate() {
            let Some(life) = life else {
                return Err(format!("node {node} does not run in the end"));
            };
            let is_active = view
                .member(life.id)
                .is_some_and(|it| it.state == MemberState::Active);
            let is_current = life.machine.view().map(|view| view.number) == Some(view.number);
            if !is_active || !is_current || !life.machine.decides(end) {
                return Err(format!(
                    "node {node} is not a deciding member of the last view: {life:?} of {view:?}",
                    life = life.id
                ));
            }
        }
        if view.generation != self.registry.generation {
            return Err("no view has the last generation of the store".to_owned());
        }
        match view.members.len() == self.lives.len() {
            true => Ok(self.met),
            false => Err(format!(
                "the last view has members that do not run: {view:?}"
            )),
        }
    }

    fn later(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events
            .push(Reverse((self.now + after, self.sequence, Boxed(event))));
    }

    fn latency(&mut self) -> u64 {
        1 + self.random.below(20) as u64
    }

    fn life(&mut self, id: MemberId) -> Option<&mut Life> {
        let life = self.lives[usize::from(id.node)].as_mut();
        life.filter(|life| life.id == id)
    }

    fn is_cut(&self, from: MemberId, to: MemberId) -> bool {
        let is_down = self.broker.is_some_and(|broker| !broker.is_up);
        is_down || self.cut[usize::from(from.node)][usize::from(to.node)]
    }

    /// The broker goes down or returns. Each node notices it later.
    fn set_broker(&mut self, is_up: bool) {
        if self.broker.is_none_or(|broker| broker.is_up == is_up) {
            return;
        }
        self.broker = Some(Broker { is_up });
        let lives: Vec<MemberId> = self.lives.iter().flatten().map(|life| life.id).collect();
        for to in lives {
            let latency = match is_up {
                true => self.random.below(300) as u64,
                false => self.random.below(BROKER_NOTICED_MS as usize) as u64,
            };
            self.later(latency, Event::Broker { to, answers: is_up });
        }
    }

    /// A node that has noticed that the broker does not answer proposes to evict no member.
    fn check_broker(&self, id: MemberId, request: &Output) -> Result<(), Violation> {
        let life = self.lives[usize::from(id.node)].as_ref();
        let (Output::Propose { proposal, .. }, Some(life)) = (request, life) else {
            return Ok(());
        };
        let is_kept = |other: MemberId| proposal.members.iter().any(|it| it.id == other);
        let mut known = life.machine.view().into_iter().flat_map(StoredView::ids);
        let evicts = known.any(|other| other.node != id.node && !is_kept(other));
        let is_late = match life.broker {
            BrokerSeen::Always => true,
            BrokerSeen::Silent => false,
            BrokerSeen::Again(since) => self.now >= since + RELINK_MS,
        };
        match evicts && !is_late {
            false => Ok(()),
            true => Err(format!("{id:?} evicts a member without the broker")),
        }
    }

    /// A member that owns slots leaves the view only after its clients have gone and their writes are committed.
    fn check_leaving(&mut self, id: MemberId, output: &Output) -> Result<(), Violation> {
        let is_evicted = self.evicted.contains_key(&id);
        let Some(life) = self.life(id) else {
            return Ok(());
        };
        match output {
            Output::Adopt(view) => {
                let own = view.member(id).map(|own| own.state);
                life.has_owned |= own.is_some_and(|state| state != MemberState::Joining);
            }
            Output::Left if life.has_owned && !life.has_settled && !is_evicted => {
                return Err(format!("{id:?} has left before its writes were committed"));
            }
            _ => {}
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        // What arrives at a paused process waits.
        let receiver = match &event {
            Event::Tick(id) | Event::SendPings(id) | Event::Settled(id, _) | Event::Leave(id) => {
                Some(*id)
            }
            Event::SendPing { from, .. } => Some(*from),
            Event::Ping { to, .. }
            | Event::Pong { to, .. }
            | Event::Broken { to, .. }
            | Event::Broker { to, .. }
            | Event::Answer { to, .. }
            | Event::Timeout { to, .. } => Some(*to),
            _ => None,
        };
        if let Some(id) = receiver {
            let Some(life) = self.life(id) else {
                return Ok(());
            };
            if life.is_paused {
                life.inbox.push(event);
                return Ok(());
            }
        }
        match event {
            Event::Tick(id) => {
                self.later(TICK_MS, Event::Tick(id));
                self.step(id, Input::Tick)?;
            }
            Event::SendPings(id) => self.send_pings(id),
            Event::SendPing { from, to } => self.send_ping(from, to),
            Event::Ping { from, to, asked } => {
                let is_known = |life: &mut Life| {
                    life.machine
                        .view()
                        .is_some_and(|view| view.has(from) && view.has(to))
                };
                if self.life(to).is_some_and(is_known) && !self.is_cut(to, from) {
                    // The shards of a member announce each view that they adopt.
                    let life = self.life(from).and_then(|life| life.machine.view());
                    if let Some(view) = life.map(|view| view.number) {
                        self.step(to, Input::LaterView(view))?;
                    }
                    let latency = self.latency();
                    let (from, to) = (to, from);
                    self.later(latency, Event::Pong { from, to, asked });
                }
            }
            Event::Pong { from, to, asked } => {
                let now = self.now;
                let life = self.life(to).expect("it lives");
                // The step counts the time since the former one.
                let ran = life.ran + (now - life.last_step).min(STEP_MS_MAX);
                let known = life.heard.get(&from).map_or(0, |(_, asked)| *asked);
                life.heard.insert(from, (ran, known.max(asked)));
                life.broken.remove(&from);
                self.step(
                    to,
                    Input::Heard {
                        member: from,
                        asked,
                    },
                )?;
            }
            Event::Broken { to, member } => {
                let life = self.life(to).expect("it lives");
                life.broken.entry(member).or_insert(life.ran);
                self.step(to, Input::Tick)?;
            }
            Event::Broker { to, answers } => {
                if self.broker.is_some_and(|broker| broker.is_up == answers) {
                    let now = self.now;
                    let life = self.life(to).expect("it lives");
                    let (seen, input) = match (answers, life.broker) {
                        (false, _) => (BrokerSeen::Silent, Input::BrokerSilent),
                        (true, BrokerSeen::Silent) => {
                            (BrokerSeen::Again(now), Input::BrokerAnswers)
                        }
                        (true, seen) => (seen, Input::BrokerAnswers),
                    };
                    // The links notice their suspicions before.
                    self.step(to, input)?;
                    if let Some(life) = self.life(to) {
                        life.broker = seen;
                    }
                }
            }
            Event::BrokerReturns => self.set_broker(true),
            Event::Request {
                from,
                number,
                sent,
                request,
                silences,
            } => {
                self.request(from, number, sent, &request, &silences)?;
            }
            Event::Answer {
                to,
                number,
                sent,
                input,
            } => {
                let life = self.life(to).expect("it lives");
                if life.request == Some(number) {
                    life.request = None;
                    self.confirm(to, sent, &input);
                    self.step(to, input)?;
                }
            }
            Event::Timeout { to, number } => {
                let life = self.life(to).expect("it lives");
                if life.request == Some(number) {
                    life.request = None;
                    self.step(to, Input::RegistryFailed)?;
                }
            }
            Event::Settled(id, view) => {
                if let Some(life) = self.life(id) {
                    life.has_settled = true;
                }
                self.step(id, Input::Settled(view))?;
            }
            Event::Leave(id) => {
                // Its clients go after a while, also if no other member can take over its slots.
                let pause = 100 + self.random.below(2_000) as u64;
                self.later(pause, Event::Settled(id, View(0)));
                self.step(id, Input::Leave)?;
            }
            Event::Wake(id) => self.wake(id)?,
            Event::Start { node, evictions } => self.start(node, evictions),
            Event::CheckEvicted(id) => {
                let now = self.now;
                if let Some(life) = self.life(id)
                    && !life.is_paused
                    && life.machine.decides(now)
                {
                    return Err(format!("{id:?} was evicted and still decides"));
                }
            }
            Event::Fault => {
                if !self.is_repaired {
                    self.fault();
                    let pause = 200 + self.random.below(4_000) as u64;
                    self.later(pause, Event::Fault);
                }
            }
            Event::Repair => {
                self.is_repaired = true;
                self.repair();
            }
        }
        Ok(())
    }

    fn start(&mut self, node: u16, evictions: u32) {
        if self.lives[usize::from(node)].is_some() {
            return;
        }
        if self.without_registry[usize::from(node)] {
            self.later(500, Event::Start { node, evictions });
            return;
        }
        let birth = self.registry.open();
        self.node_changed[usize::from(node)] = self.now;
        let id = MemberId { node, birth };
        let settings = Settings {
            id,
            profile: Profile {
                versions: Versions { first: 1, last: 2 },
                ..Profile::default()
            },
            key: ClusterKey([node as u8 + 1; 16]),
            evictions,
        };
        self.lives[usize::from(node)] = Some(Life {
            id,
            machine: Membership::new(settings, self.now),
            is_paused: false,
            inbox: Vec::new(),
            last_step: self.now,
            ran: 0,
            heard: BTreeMap::new(),
            broken: BTreeMap::new(),
            suspects: BTreeSet::new(),
            confirmed: self.now,
            request: None,
            did_decide: false,
            has_owned: false,
            has_settled: false,
            broker: match self.broker {
                Some(_) => BrokerSeen::Silent,
                None => BrokerSeen::Always,
            },
        });
        self.later(0, Event::Tick(id));
        self.later(1, Event::SendPings(id));
        if let Some(Broker { is_up }) = self.broker {
            let now = self.now;
            let life = self.life(id).expect("it lives");
            let outputs = life.machine.step(now, Input::BrokerSilent);
            for output in outputs {
                self.output(id, output);
            }
            if is_up {
                let latency = self.latency();
                let answers = true;
                self.later(latency, Event::Broker { to: id, answers });
            }
        }
    }

    fn send_pings(&mut self, id: MemberId) {
        self.later(PING_MS, Event::SendPings(id));
        let life = self.life(id).expect("it lives");
        let Some(view) = life.machine.view().filter(|view| view.has(id)) else {
            return;
        };
        let others: Vec<MemberId> = view.ids().filter(|other| *other != id).collect();
        for to in others {
            let phase = self.ping_phases[usize::from(id.node)][usize::from(to.node)];
            self.later(phase, Event::SendPing { from: id, to });
        }
    }

    fn send_ping(&mut self, from: MemberId, to: MemberId) {
        let (asked, latency) = (self.now, self.latency());
        if !self.is_cut(from, to) {
            self.later(latency, Event::Ping { from, to, asked });
        }
    }

    /// The answer of the registry shows that the known view is the current one.
    fn confirm(&mut self, id: MemberId, sent: u64, input: &Input) {
        let life = self.life(id).expect("it lives");
        let known = life.machine.view().map(|view| view.number);
        let is_confirmed = match input {
            Input::Heartbeat(heartbeat) => Some(heartbeat.view) == known,
            Input::View(_) => true,
            _ => false,
        };
        if is_confirmed {
            life.confirmed = life.confirmed.max(sent);
        }
    }

    fn step(&mut self, id: MemberId, input: Input) -> Result<(), Violation> {
        let now = self.now;
        let life = self.life(id).expect("it lives");
        life.ran += (now - life.last_step).min(STEP_MS_MAX);
        life.last_step = now;
        for input in life.suspicions().into_iter().chain([input]) {
            let Some(life) = self.life(id) else {
                return Ok(());
            };
            let outputs = life.machine.step(now, input);
            for output in outputs {
                self.check_broker(id, &output)?;
                self.check_leaving(id, &output)?;
                self.output(id, output);
            }
        }
        let Some(life) = self.life(id) else {
            return Ok(());
        };
        let decides = life.machine.decides(now);
        let view = life.machine.view();
        let is_linked = view.is_some_and(|view| {
            let others = view
                .members
                .iter()
                .filter(|member| member.state == MemberState::Active && member.id != id);
            others.map(|member| member.id).all(|other| {
                life.heard
                    .get(&other)
                    .is_some_and(|(_, asked)| now - asked < STOP_MS)
            })
        });
        if decides && now - life.confirmed >= STOP_MS && !is_linked {
            return Err(format!("{id:?} decides without the registry and its links"));
        }
        let has_stopped = life.did_decide && !decides && view.is_some_and(|view| view.has(id));
        life.did_decide = decides;
        if has_stopped {
            self.met.stops += 1;
        }
        Ok(())
    }

    fn output(&mut self, id: MemberId, output: Output) {
        match output {
            Output::Heartbeat | Output::ReadView | Output::Propose { .. } => {
                self.send_request(id, output)
            }
            Output::Adopt(view) => {
                let ran = self.life(id).expect("it lives").ran;
                let now = self.now;
                let life = self.life(id).expect("it lives");
                life.heard.retain(|member, _| view.has(*member));
                for member in view.ids() {
                    life.heard.entry(member).or_insert((ran, now));
                }
                let is_leaving = view
                    .member(id)
                    .is_some_and(|own| own.state == MemberState::Leaving);
                if is_leaving {
                    let pause = 100 + self.random.below(2_000) as u64;
                    self.later(pause, Event::Settled(id, view.number));
                }
                // A member that knows the eviction of another one has no link to it.
                let gone: Vec<MemberId> = self
                    .evicted
                    .keys()
                    .copied()
                    .filter(|gone| !view.has(*gone))
                    .collect();
                for gone in gone {
                    let knows = self.life(gone).is_some_and(|life| {
                        let view = life.machine.view();
                        view.and_then(|view| view.member(id))
                            .is_some_and(|it| it.state == MemberState::Active)
                    });
                    if knows {
                        self.later(EVICTED_MS, Event::CheckEvicted(gone));
                    }
                }
            }
            Output::Evicted {
                again_after_ms,
                evictions,
            } => {
                self.met.evicted += 1;
                self.lives[usize::from(id.node)] = None;
                self.later(
                    again_after_ms,
                    Event::Start {
                        node: id.node,
                        evictions,
                    },
                );
            }
            Output::Left => {
                self.met.left += 1;
                self.lives[usize::from(id.node)] = None;
                let pause = 500 + self.random.below(3_000) as u64;
                self.later(
                    pause,
                    Event::Start {
                        node: id.node,
                        evictions: 0,
                    },
                );
            }
            Output::Refused(why) => panic!("{id:?} was refused: {why}"),
        }
    }

    fn send_request(&mut self, id: MemberId, request: Output) {
        self.sequence += 1;
        let (number, sent) = (self.sequence, self.now);
        let life = self.life(id).expect("it lives");
        assert!(life.request.is_none(), "one request at a time");
        life.request = Some(number);
        let ran = life.ran;
        let silence = |(member, (heard, _)): (&MemberId, &(u64, u64))| {
            let silence = Silence {
                ms: ran - heard,
                is_broken: life.broken.contains_key(member),
            };
            (*member, silence)
        };
        let silences = life.heard.iter().map(silence).collect();
        self.later(REQUEST_MS, Event::Timeout { to: id, number });
        if self.without_registry[usize::from(id.node)] {
            return;
        }
        let is_late = self.random.chance(3);
        let latency = match is_late {
            true => self.random.below(4_000) as u64,
            false => self.latency(),
        };
        let from = id;
        self.later(
            latency,
            Event::Request {
                from,
                number,
                sent,
                request,
                silences,
            },
        );
    }

    fn request(
        &mut self,
        from: MemberId,
        number: u64,
        sent: u64,
        request: &Output,
        silences: &Silences,
    ) -> Result<(), Violation> {
        let input = match request {
            Output::Heartbeat => Input::Heartbeat(self.registry.heartbeat()),
            Output::Propose { expected, proposal } => {
                let before = self.registry.view.clone();
                let proposed = self.registry.propose(*expected, proposal);
                if proposed == Proposed::Made {
                    let after = self.registry.view.clone();
                    self.met.late_proposals += usize::from(self.now - sent > REQUEST_MS);
                    if after.generation != before.generation {
                        self.met.generations += 1;
                        if after.epochs.epoch <= before.epochs.latest() {
                            return Err("a new generation has raised no epoch".to_owned());
                        }
                    }
                    let evicted = check_removals(&before, &after, from, silences, &mut self.met)?;
                    for id in evicted {
                        self.check_isolated(&before, id, from)?;
                        self.check_just_isolated(&before, id, from, sent, silences)?;
                        self.evicted.insert(id, self.now);
                    }
                } else {
                    self.met.refused_proposals += 1;
                }
                match proposed {
                    Proposed::Unknown => Input::RegistryFailed,
                    _ => Input::View(self.registry.view.clone()),
                }
            }
            _ => Input::View(self.registry.view.clone()),
        };
        if !self.without_registry[usize::from(from.node)] {
            let latency = self.latency();
            self.later(
                latency,
                Event::Answer {
                    to: from,
                    number,
                    sent,
                    input,
                },
            );
        }
        Ok(())
    }

    fn set_cut(&mut self, from: usize, to: usize, is_cut: bool) {
        if self.cut[from][to] != is_cut {
            self.cut[from][to] = is_cut;
            self.link_changed[from][to] = self.now;
        }
    }

    fn set_without_registry(&mut self, node: usize, is_without: bool) {
        if self.without_registry[node] != is_without {
            self.without_registry[node] = is_without;
            self.node_changed[node] = self.now;
        }
    }

    fn repair(&mut self) {
        let count = self.lives.len();
        for from in 0..count {
            for to in 0..count {
                self.set_cut(from, to, false);
            }
            self.set_without_registry(from, false);
        }
        self.set_broker(true);
    }

    fn wake(&mut self, id: MemberId) -> Result<(), Violation> {
        let now = self.now;
        let Some(life) = self.life(id) else {
            return Ok(());
        };
        life.is_paused = false;
        self.node_changed[usize::from(id.node)] = now;
        let life = self.life(id).expect("it lives");
        let (paused, did_decide) = (now - life.last_step, life.did_decide);
        let inbox = std::mem::take(&mut life.inbox);
        if paused >= STOP_MS {
            self.met.long_pauses += 1;
        }
        if paused > STOP_MS + 1_000 && did_decide {
            // Before it handles anything that arrived, it knows that it must not decide.
            let life = self.life(id).expect("it lives");
            let has_others = life.machine.view().is_some_and(|view| {
                let mut others = view.members.iter().filter(|member| member.id != id);
                others.any(|member| member.state == MemberState::Active)
            });
            if has_others {
                if life.machine.decides(now) {
                    return Err(format!("{id:?} decides after a pause of {paused} ms"));
                }
                self.met.stops_after_a_pause += 1;
            }
        }
        for event in inbox {
            self.handle(event)?;
        }
        Ok(())
    }

    fn fault(&mut self) {
        let count = self.lives.len();
        let (one, other) = (self.random.below(count), self.random.below(count));
        match self.random.below(13) {
            0 | 1 => {
                let pause = match self.random.chance(50) {
                    true => 200 + self.random.below(3_000),
                    false => 3_000 + self.random.below(9_000),
                };
                if let Some(life) = self.lives[one].as_mut().filter(|life| !life.is_paused) {
                    life.is_paused = true;
                    self.node_changed[one] = self.now;
                    let id = life.id;
                    self.later(pause as u64, Event::Wake(id));
                }
            }
            2 => self.crash(one),
            3 => self.set_cut(one, other, true),
            4 | 5 => {
                self.set_cut(one, other, true);
                self.set_cut(other, one, true);
            }
            6 => {
                for peer in 0..count {
                    self.set_cut(one, peer, true);
                    self.set_cut(peer, one, true);
                }
            }
            7 => self.set_without_registry(one, true),
            8 => (0..count).for_each(|node| self.set_without_registry(node, true)),
            9 => {
                let next = self.registry.generation.0.parse::<u64>().unwrap_or(0) + 1;
                self.registry.generation.0 = next.to_string();
            }
            10 if self.broker.is_some() => {
                self.set_broker(false);
                self.met.broker_losses += 1;
                let pause = 200 + self.random.below(12_000) as u64;
                self.later(pause, Event::BrokerReturns);
            }
            11 => {
                if let Some(id) = self.lives[one].as_ref().map(|life| life.id) {
                    self.later(0, Event::Leave(id));
                }
            }
            _ => self.repair(),
        }
    }

    /// The process ends. Its connections are reset where the network works.
    fn crash(&mut self, node: usize) {
        let Some(life) = self.lives[node].take() else {
            return;
        };
        let member = life.id;
        let others: Vec<MemberId> = self.lives.iter().flatten().map(|life| life.id).collect();
        for to in others {
            // A broker does not report the end of a peer.
            if self.broker.is_none() && !self.is_cut(member, to) {
                let latency = self.latency();
                self.later(latency, Event::Broken { to, member });
            }
        }
        let pause = 500 + self.random.below(5_000) as u64;
        let node = member.node;
        self.later(pause, Event::Start { node, evictions: 0 });
    }
}
