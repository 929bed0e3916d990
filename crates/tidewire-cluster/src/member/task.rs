//! The task of a member: gives the membership its inputs and does its outputs.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire_core::slot::SLOT_COUNT;
use tidewire_core::store::{MemberId, Registry, StoredView, View};
use tidewire_core::view::{MemberState, Profile, Versions, ViewMember};
use tidewire_link::cluster_identity;
use tidewire_link::frame::{Levels, Process};
use tidewire_link::limits::Limits;
use tidewire_link::link::{Config, Stats};
use tidewire_membership::{Input, Membership, Output, STOP_MS, Settings as MembershipSettings};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::peer::{self, Peer};
use super::registry::{self, Request};
use super::route::Route;
use super::{MemberSnapshot, Settings, Shards, Snapshot, Stage};
use crate::driver::Command;

/// The membership learns of the time at least this often.
const TICK: Duration = Duration::from_millis(100);

/// A member that may not decide for this long after it stopped deciding ends, and joins again: its clients must not read older and older values.
const STALE_MS_MAX: u64 = 2_000;

/// A tick that comes later than this follows a pause of the process.
const STEP_MS_MAX: u64 = 500;

/// The versions of the protocol between nodes that this server speaks. Members that speak version 2 take part in revocations, and those that
/// speak version 3 in changes of rules. From version 4 on they announce their interest to each other, from version 5 on they decide
/// transactions for each other, from version 6 on backends serve sessions of all nodes, and from version 7 on they forward requests of exchanges
/// to each other.
const VERSIONS: Versions = Versions { first: 1, last: 7 };

#[derive(Debug)]
pub(super) enum LinkEvent {
    Linked,
    Lost,
    Suspect,
    Trusted,
    /// A ping that left so long ago was answered.
    Answered(Duration),
}

#[derive(Debug)]
pub(super) enum Event {
    /// An answer of the registry.
    Registry(Input),
    Link {
        id: MemberId,
        event: LinkEvent,
        stats: Stats,
    },
    /// Whether the broker of the links answers.
    #[cfg(feature = "bus")]
    Broker(bool),
    Evict(MemberId),
    Leave,
    Settled(View),
    Stop,
}

/// The link to another member.
struct PeerState {
    commands: mpsc::UnboundedSender<Command>,
    is_linked: bool,
    has_ended: bool,
    is_suspect: bool,
    stats: Stats,
}

/// See the comment at the top.
pub(super) struct Task {
    settings: Settings,
    machine: Membership,
    started: Instant,
    requests: Sender<Request>,
    route: Route,
    shards: Arc<dyn Shards>,
    events: mpsc::UnboundedSender<Event>,
    links: BTreeMap<MemberId, PeerState>,
    /// The view that the shards do not have yet.
    pending: Option<StoredView>,
    first: Option<Sender<io::Result<StoredView>>>,
    stage: Stage,
    is_frozen: bool,
    evicted_count: u64,
    /// The slots of each node in the last view.
    slot_counts: BTreeMap<u16, usize>,
    last_tick: u64,
    /// For how long the member has not been allowed to decide.
    stale_ms: u64,
}

impl Task {
    pub(super) async fn new(
        settings: Settings,
        registry: Box<dyn Registry>,
        shards: Arc<dyn Shards>,
        events: mpsc::UnboundedSender<Event>,
    ) -> io::Result<Self> {
        let route = Route::open(&settings).await?;
        let machine = Membership::new(
            MembershipSettings {
                id: settings.id,
                profile: Profile {
                    shard_count: settings.shard_count,
                    weight: 1,
                    versions: VERSIONS,
                    addresses: vec![route.address(&settings.advertise)],
                    fingerprint: route.fingerprint(),
                },
                key: settings.key,
                evictions: settings.evictions,
            },
            0,
        );
        let back = events.clone();
        let requests = registry::start(registry, move |answer| {
            let _ = back.send(Event::Registry(answer));
        })?;
        Ok(Self {
            settings,
            machine,
            started: Instant::now(),
            requests,
            route,
            shards,
            events,
            links: BTreeMap::new(),
            pending: None,
            first: None,
            stage: Stage::Joining,
            is_frozen: false,
            evicted_count: 0,
            slot_counts: BTreeMap::new(),
            last_tick: 0,
            stale_ms: 0,
        })
    }

    /// Runs until the stop. `first` gets the first view.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Event>,
        first: Sender<io::Result<StoredView>>,
        stages: watch::Sender<Stage>,
        snapshot: Arc<Mutex<Snapshot>>,
    ) {
        self.first = Some(first);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    None | Some(Event::Stop) => return,
                    Some(event) => self.handle(event),
                },
                _ = ticks.tick() => self.tick(),
            }
            self.adopt();
            // Before the stage: a node that has become active waits for the hand-over of the view in which it did, and takes that view from
            // the snapshot.
            *snapshot.lock().unwrap_or_else(PoisonError::into_inner) = self.snapshot();
            stages.send_if_modified(|stage| {
                let is_new = *stage != self.stage;
                stage.clone_from(&self.stage);
                is_new
            });
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Registry(input) => {
                self.is_frozen = matches!(input, Input::RegistryFailed);
                self.step(input);
            }
            #[cfg(feature = "bus")]
            Event::Broker(true) => self.step(Input::BrokerAnswers),
            #[cfg(feature = "bus")]
            Event::Broker(false) => {
                tracing::warn!(
                    "the broker of the links does not answer; members can't be evicted until it does"
                );
                self.step(Input::BrokerSilent);
            }
            Event::Evict(id) => self.step(Input::Evict(id)),
            Event::Leave => self.step(Input::Leave),
            Event::Settled(view) => self.step(Input::Settled(view)),
            Event::Link { id, event, stats } => self.link(id, event, stats),
            Event::Stop => {}
        }
    }

    fn tick(&mut self) {
        // Names that pass to another owner pause until all members have adopted the view, which the next heartbeat would show a second later.
        self.step(Input::LaterView(self.shards.heard_view()));
        self.step(Input::Tick);
        let now = self.now();
        let ran = now.saturating_sub(self.last_tick).min(STEP_MS_MAX);
        self.last_tick = now;
        let owns = matches!(self.stage, Stage::Active | Stage::Leaving);
        if !owns || self.machine.decides(now) {
            self.stale_ms = 0;
            return;
        }
        self.stale_ms += ran;
        if self.stale_ms >= STALE_MS_MAX {
            tracing::error!(
                "neither the registry nor all members answer; the node closes its clients and joins again"
            );
            self.stage = Stage::Evicted {
                again_after: Duration::from_millis(STOP_MS),
                evictions: self.settings.evictions + 1,
            };
        }
    }

    fn step(&mut self, input: Input) {
        let outputs = self.machine.step(self.now(), input);
        for output in outputs {
            match output {
                Output::Heartbeat => self.request(Request::Heartbeat),
                Output::ReadView => self.request(Request::ReadView),
                Output::Propose { expected, proposal } => {
                    self.request(Request::Propose { expected, proposal });
                }
                Output::Adopt(view) => self.view(view),
                Output::Evicted {
                    again_after_ms,
                    evictions,
                } => {
                    tracing::error!(
                        "the other members have evicted this node; it closes its clients and joins again"
                    );
                    self.stage = Stage::Evicted {
                        again_after: Duration::from_millis(again_after_ms),
                        evictions,
                    };
                }
                Output::Left => self.stage = Stage::Left,
                Output::Refused(text) => {
                    if let Some(first) = self.first.take() {
                        let _ = first.send(Err(io::Error::other(text.clone())));
                    }
                    self.stage = Stage::Refused(text);
                }
            }
        }
        if let Stage::Evicted { .. } = self.stage
            && let Some(first) = self.first.take()
        {
            let text = "the other members have evicted this node while it joined";
            let _ = first.send(Err(io::Error::other(text)));
        }
    }

    fn request(&self, request: Request) {
        // The thread ends only with this task.
        let _ = self.requests.send(request);
    }

    /// Links new members, and ends the links to those that the view does not have any longer.
    fn view(&mut self, view: StoredView) {
        log(&view, self.settings.id);
        for (id, link) in &mut self.links {
            if !view.has(*id) && !link.has_ended {
                self.evicted_count += u64::from(link.is_suspect);
                let _ = link.commands.send(Command::PeerLeft(id.birth));
                link.has_ended = !link.is_linked;
            }
        }
        self.links
            .retain(|id, link| view.has(*id) || !link.has_ended);
        for member in &view.members {
            if member.id != self.settings.id && !self.links.contains_key(&member.id) {
                self.open(&view, member);
            }
        }
        self.slot_counts.clear();
        if let Some(table) = view.table() {
            for slot in 0..SLOT_COUNT {
                *self.slot_counts.entry(table.node(slot)).or_default() += 1;
            }
        }
        self.pending = Some(view);
    }

    fn open(&mut self, view: &StoredView, member: &ViewMember) {
        let Some(key) = view.key else {
            return;
        };
        let cluster = cluster_identity(&key.0);
        self.route
            .start(cluster, process(self.settings.id), &self.events);
        let target = match self.route.target(&member.profile) {
            Ok(target) => target,
            Err(why) => {
                let node = member.id.node;
                return tracing::error!(node, "a member can't be linked: {why}");
            }
        };
        let config = Config {
            local: process(self.settings.id),
            peer: member.id.node,
            peer_birth_min: member.id.birth,
            cluster,
            levels: Levels {
                min: u32::from(VERSIONS.first),
                max: u32::from(VERSIONS.last),
            },
            limits: Limits::default(),
        };
        let peer = Peer {
            id: member.id,
            shard_count: member.profile.shard_count,
            entries: self.settings.entries,
            shards: Arc::clone(&self.shards),
            events: self.events.clone(),
        };
        let link = PeerState {
            commands: peer::link(peer, config, target),
            is_linked: false,
            has_ended: false,
            is_suspect: false,
            stats: Stats::default(),
        };
        self.links.insert(member.id, link);
    }

    fn link(&mut self, id: MemberId, event: LinkEvent, stats: Stats) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.stats = stats;
        let input = match event {
            LinkEvent::Linked => {
                link.is_linked = true;
                let MemberId { node, birth } = id;
                return tracing::info!(node, birth, "a member is linked");
            }
            LinkEvent::Lost => {
                let MemberId { node, birth } = id;
                tracing::warn!(node, birth, "the link to a member has ended");
                (link.is_linked, link.has_ended) = (false, true);
                let view = self.machine.view();
                if !view.is_some_and(|view| view.has(id)) {
                    self.links.remove(&id);
                }
                return;
            }
            LinkEvent::Suspect => {
                link.is_suspect = true;
                Input::Suspect(id)
            }
            LinkEvent::Trusted => {
                link.is_suspect = false;
                Input::Trusted(id)
            }
            LinkEvent::Answered(after) => {
                let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                let asked = self.now().saturating_sub(after);
                Input::Heard { member: id, asked }
            }
        };
        self.step(input);
    }

    /// Passes the newest view to the shards, which wait for the links that it needs. The node starts its shards with the first one.
    fn adopt(&mut self) {
        let Some(view) = self.pending.take() else {
            return;
        };
        self.shards.adopt(&view);
        if let Some(first) = self.first.take() {
            let _ = first.send(Ok(view.clone()));
        }
        let own = view.member(self.settings.id).map(|own| own.state);
        if matches!(self.stage, Stage::Joining | Stage::Active | Stage::Leaving) {
            self.stage = match own {
                Some(MemberState::Active) => Stage::Active,
                Some(MemberState::Leaving) => Stage::Leaving,
                Some(MemberState::Joining) | None => Stage::Joining,
            };
        }
    }

    fn snapshot(&self) -> Snapshot {
        let view = self.machine.view();
        let member = |member: &ViewMember| {
            let link = self.links.get(&member.id);
            MemberSnapshot {
                id: member.id,
                state: member.state,
                address: member
                    .profile
                    .addresses
                    .first()
                    .cloned()
                    .unwrap_or_default(),
                slot_count: self.slot_counts.get(&member.id.node).copied().unwrap_or(0),
                is_linked: member.id == self.settings.id || link.is_some_and(|link| link.is_linked),
                is_suspect: link.is_some_and(|link| link.is_suspect),
                link: link.map(|link| link.stats).unwrap_or_default(),
            }
        };
        Snapshot {
            own: self.settings.id,
            view: view.map_or(View(0), |view| view.number),
            decides: self.machine.decides(self.now()),
            is_frozen: self.is_frozen,
            evicted_count: self.evicted_count,
            members: view
                .map(|view| view.members.iter().map(member).collect())
                .unwrap_or_default(),
        }
    }
}

fn process(id: MemberId) -> Process {
    Process {
        node: id.node,
        birth: id.birth,
    }
}

fn log(view: &StoredView, own: MemberId) {
    let members: Vec<String> = view
        .members
        .iter()
        .map(|member| {
            let MemberId { node, birth } = member.id;
            let marker = if member.id == own { " (this one)" } else { "" };
            format!("{node}/{birth} {:?}{marker}", member.state)
        })
        .collect();
    tracing::info!(
        view = view.number.0,
        members = members.join(", "),
        "a new view"
    );
}
