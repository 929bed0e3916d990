//! The machine: see the comment at the top of the crate.

use std::collections::BTreeMap;

use tidewire_message::slot::{ClusterKey, likely_slots};
use tidewire_message::view::{
    Heartbeat, MemberId, MemberState, Profile, Proposal, StoredView, View, ViewMember,
};

use crate::link::Link;

/// The time between two heartbeats.
pub const HEARTBEAT_MS: u64 = 1_000;

/// A side that is not more than half of the active members waits for this long before it evicts suspects, so that the others can evict
/// it first.
pub const EVICTION_WAIT_MS: u64 = 3_000;

/// A side evicts at once only if its members have just answered. A node whose network fails gets the last answers of the others up to one
/// ping interval apart, so it suspects one of them while the answers of the rest still seem to hold: a link suspects a silent peer after
/// 2 s and a broken one after 500 ms. So an answer counts if its question was sent less than [`BEFORE_SUSPICION_MS`] before the suspicion
/// began, and less than [`ANSWER_MS`] ago.
const BEFORE_SUSPICION_MS: u64 = 400;
const ANSWER_MS: u64 = 1_000;

/// A joining member that has not linked all active members becomes active after this time: they may be dead.
pub const JOIN_WAIT_MS: u64 = 5_000;

/// After the broker of the links has answered again, the links get this time to reach the other members. Each member connects again by
/// itself, and a broker that has just started may accept a connection that then turns out dead.
pub const RELINK_MS: u64 = 6_000;

/// A node without the registry and without all of its links stops deciding after this time.
pub const STOP_MS: u64 = 3_000;

/// The pause of proposals after the registry has failed.
const PROPOSAL_PAUSE_MS: u64 = 250;

/// After this many failed proposals in a row, while the registry answers everything else, it no longer knows this life of the node.
const FAILURES_MAX: u32 = 5;

/// The first pause before an evicted node joins again. It doubles with each eviction in a row.
const REJOIN_MS: u64 = 1_000;
const REJOIN_MS_MAX: u64 = 60_000;

/// A node that was active for this long starts with the first pause again.
const STEADY_MS: u64 = 60_000;

/// The settings of one life of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node and its birth, which is its opening of the store.
    pub id: MemberId,
    /// How the node takes part.
    pub profile: Profile,
    /// The key of the slot hash if the store has none yet.
    pub key: ClusterKey,
    /// How often the node was evicted in a row before.
    pub evictions: u32,
}

/// The inputs of the machine. Each request to the registry gets one answer: `Heartbeat`, `View` or `RegistryFailed`.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed. It comes at least every 250 ms.
    Tick,
    /// The answer to a heartbeat.
    Heartbeat(Heartbeat),
    /// The current view: the answer to a read or a proposal.
    View(StoredView),
    /// Another member has adopted this view.
    LaterView(View),
    /// The registry has not answered, or with an error. A proposal may have been made.
    RegistryFailed,
    /// A member has answered a question that this node sent at the time `asked`.
    Heard {
        /// The member.
        member: MemberId,
        /// When the question was sent.
        asked: u64,
    },
    /// The link to a member suspects it.
    Suspect(MemberId),
    /// The link to a member trusts it again.
    Trusted(MemberId),
    /// The broker that carries all links of this node does not answer. Until it does, the node does not know which members live: it evicts
    /// none, and does not become active without links.
    BrokerSilent,
    /// The broker answers again.
    BrokerAnswers,
    /// The clients of a node that leaves have gone, all their writes are committed, and all slots that this view gives to other owners are
    /// handed over.
    Settled(View),
    /// An operator evicts a member.
    Evict(MemberId),
    /// The node begins to leave the cluster. While no other member can own its names, it stays active until it has settled.
    Leave,
}

/// The requests to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a heartbeat to the registry.
    Heartbeat,
    /// Read the view from the registry.
    ReadView,
    /// Propose a view.
    Propose {
        /// The view that it follows.
        expected: View,
        /// The view.
        proposal: Proposal,
    },
    /// A view to which the node belongs holds.
    Adopt(StoredView),
    /// Another member has evicted the node. It closes its clients, opens the store again, and joins with its new birth.
    Evicted {
        /// The pause before that.
        again_after_ms: u64,
        /// The value of [`Settings::evictions`] then.
        evictions: u32,
    },
    /// The node has left the cluster.
    Left,
    /// The node can't be a member. The text is for the operator.
    Refused(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not been in a view yet.
    Outside,
    Member,
    /// It was evicted, has left, or was refused.
    Gone,
}

/// A request to the registry without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Heartbeat,
    Read,
    /// A read before an eviction by a side that is not more than half.
    ReadBeforeEviction,
    Propose,
}

/// The membership of one life of a node.
#[derive(Debug)]
pub struct Membership {
    settings: Settings,
    phase: Phase,
    view: Option<StoredView>,
    /// By member, all others of the view.
    links: BTreeMap<MemberId, Link>,
    /// The request that runs, and when it was sent.
    pending: Option<(Request, u64)>,
    /// When the last request was sent whose answer has shown that the known view is the current one.
    confirmed: u64,
    next_request: u64,
    /// After a failure, proposals pause until then.
    next_proposal: u64,
    /// Failed proposals to join since the registry last failed to answer anything else.
    failures: u32,
    last_step: u64,
    /// When the node entered a view, and when it became active.
    joined: u64,
    activated: Option<u64>,
    /// Whether the registry has just confirmed the view, so that this side may evict.
    has_waited: bool,
    /// When the links begin to show which members live; `None` while the broker of the links does not answer.
    links_show_from: Option<u64>,
    is_leaving: bool,
    /// The members that an operator evicts.
    unwanted: Vec<MemberId>,
    settled: Option<View>,
    /// The store's generation, if it is not the one of the view.
    has_new_generation: bool,
}

impl Membership {
    /// A process that has opened the store and belongs to no view.
    #[must_use]
    pub fn new(settings: Settings, now: u64) -> Self {
        Self {
            settings,
            phase: Phase::Outside,
            view: None,
            links: BTreeMap::new(),
            pending: None,
            confirmed: now,
            next_request: now,
            next_proposal: now,
            failures: 0,
            last_step: now,
            joined: now,
            activated: None,
            has_waited: false,
            links_show_from: Some(now),
            is_leaving: false,
            unwanted: Vec::new(),
            settled: None,
            has_new_generation: false,
        }
    }

    /// The newest view that the node knows.
    #[must_use]
    pub fn view(&self) -> Option<&StoredView> {
        self.view.as_ref()
    }

    /// The members that are suspect.
    pub fn suspects(&self) -> impl Iterator<Item = MemberId> + '_ {
        let suspects = self.links.iter().filter(|(_, link)| link.is_suspect());
        suspects.map(|(member, _)| *member)
    }

    /// Whether the node may decide now: as an active or leaving member that has had the registry, or all links to active members, within 3 s.
    /// It counts from the sending of a question to the registry or a member, so an answer that waited during a pause does not extend it.
    #[must_use]
    pub fn decides(&self, now: u64) -> bool {
        let is_in_time = |age: u64| age < STOP_MS;
        let has_links = || {
            let active = self.others(MemberState::Active);
            active
                .into_iter()
                .all(|id| is_in_time(self.links[&id].age(now)))
        };
        matches!(
            self.state(),
            Some(MemberState::Active | MemberState::Leaving)
        ) && (is_in_time(now.saturating_sub(self.confirmed)) || has_links())
    }

    /// The state of the node in the view.
    fn state(&self) -> Option<MemberState> {
        let view = self.view.as_ref().filter(|_| self.phase == Phase::Member)?;
        view.member(self.settings.id).map(|member| member.state)
    }

    /// Whether the links show which members live.
    fn links_show(&self, now: u64) -> bool {
        self.links_show_from.is_some_and(|from| now >= from)
    }

    /// The other members in a state.
    fn others(&self, state: MemberState) -> Vec<MemberId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let members =
            members.filter(|member| member.state == state && member.id != self.settings.id);
        members.map(|member| member.id).collect()
    }

    /// Handles an input at the time `now`, in milliseconds of a clock that only grows.
    pub fn step(&mut self, now: u64, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        let elapsed = now.saturating_sub(self.last_step);
        self.last_step = now;
        for link in self.links.values_mut() {
            link.passed(elapsed);
        }
        if self.phase == Phase::Gone {
            return outputs;
        }
        match input {
            Input::Tick => {}
            Input::Heartbeat(heartbeat) => self.heartbeat(now, &heartbeat, &mut outputs),
            Input::View(view) => self.current(now, view, &mut outputs),
            Input::LaterView(view) => {
                let known = self.view.as_ref().map(|known| known.number);
                if known.is_some_and(|known| known < view) {
                    self.next_request = self.next_request.min(now);
                }
            }
            Input::RegistryFailed => {
                let failed = self.pending.take().map(|(request, _)| request);
                if failed == Some(Request::Propose) {
                    // The view may have changed.
                    self.next_request = now;
                    self.failures += u32::from(self.phase == Phase::Outside);
                } else {
                    self.failures = 0;
                }
                if self.failures >= FAILURES_MAX {
                    // A former proposal was made although it failed, and the others have evicted this node in the meantime.
                    self.phase = Phase::Gone;
                    outputs.push(self.eviction(now));
                }
                self.next_proposal = now + PROPOSAL_PAUSE_MS;
                self.has_waited = false;
            }
            Input::Heard { member, asked } => {
                if let Some(link) = self.links.get_mut(&member) {
                    link.heard(asked);
                }
            }
            Input::Suspect(member) => self.set_suspect(now, member, true),
            Input::Trusted(member) => self.set_suspect(now, member, false),
            Input::BrokerSilent => self.links_show_from = None,
            Input::BrokerAnswers => {
                self.links_show_from.get_or_insert(now + RELINK_MS);
                for link in self.links.values_mut() {
                    link.restart_suspicion(now);
                }
            }
            Input::Settled(view) => self.settled = self.settled.max(Some(view)),
            Input::Evict(member) => self.unwanted.push(member),
            Input::Leave => self.is_leaving = true,
        }
        if self.pending.is_none() && self.phase != Phase::Gone {
            self.request(now, &mut outputs);
        }
        outputs
    }

    fn set_suspect(&mut self, now: u64, member: MemberId, is_suspect: bool) {
        if let Some(link) = self.links.get_mut(&member) {
            link.set_suspect(is_suspect, now);
        }
    }

    fn heartbeat(&mut self, now: u64, heartbeat: &Heartbeat, outputs: &mut Vec<Output>) {
        let sent = self.pending.take().map(|(_, sent)| sent);
        let Some(view) = &self.view else { return };
        if heartbeat.view < view.number {
            return self.refuse(older(heartbeat.view, view.number), outputs);
        }
        if heartbeat.view > view.number {
            return self.send(now, Request::Read, Output::ReadView, outputs);
        }
        self.has_new_generation = heartbeat.generation != view.generation;
        self.confirmed = self.confirmed.max(sent.unwrap_or(0));
    }

    fn current(&mut self, now: u64, view: StoredView, outputs: &mut Vec<Output>) {
        let request = self.pending.take();
        let known = self.view.as_ref().map(|known| known.number);
        if known.is_some_and(|known| view.number < known) {
            let known = known.unwrap_or_default();
            return self.refuse(older(view.number, known), outputs);
        }
        self.confirmed = self.confirmed.max(request.map_or(0, |(_, sent)| sent));
        if known == Some(view.number) {
            self.has_waited =
                request.is_some_and(|(request, _)| request == Request::ReadBeforeEviction);
            return;
        }
        self.next_request = now;
        self.has_waited = false;
        self.has_new_generation = false;
        let own = view.member(self.settings.id).map(|member| member.state);
        match (own, self.phase) {
            (Some(state), _) => {
                if self.phase == Phase::Outside {
                    self.joined = now;
                }
                if state == MemberState::Active {
                    self.activated.get_or_insert(now);
                }
                self.phase = Phase::Member;
                self.keep_links(now, &view);
                outputs.push(Output::Adopt(view.clone()));
            }
            (None, Phase::Member) if self.is_leaving => {
                self.phase = Phase::Gone;
                outputs.push(Output::Left);
            }
            (None, Phase::Member) => {
                self.phase = Phase::Gone;
                outputs.push(self.eviction(now));
            }
            (None, _) => {}
        }
        self.view = Some(view);
    }

    fn keep_links(&mut self, now: u64, view: &StoredView) {
        self.links.retain(|member, _| view.has(*member));
        for member in view.ids().filter(|member| *member != self.settings.id) {
            self.links.entry(member).or_insert_with(|| Link::new(now));
        }
    }

    fn eviction(&self, now: u64) -> Output {
        let was_steady = self
            .activated
            .is_some_and(|since| now.saturating_sub(since) >= STEADY_MS);
        let before = if was_steady {
            0
        } else {
            self.settings.evictions
        };
        let pause = REJOIN_MS << before.min(6);
        Output::Evicted {
            again_after_ms: pause.min(REJOIN_MS_MAX),
            evictions: before + 1,
        }
    }

    fn refuse(&mut self, text: String, outputs: &mut Vec<Output>) {
        self.phase = Phase::Gone;
        outputs.push(Output::Refused(text));
    }

    fn send(&mut self, now: u64, request: Request, output: Output, outputs: &mut Vec<Output>) {
        self.pending = Some((request, now));
        self.next_request = now + HEARTBEAT_MS;
        outputs.push(output);
    }

    /// Sends the request that is due.
    fn request(&mut self, now: u64, outputs: &mut Vec<Output>) {
        let is_due = now >= self.next_request;
        let Some(view) = &self.view else {
            if is_due {
                self.send(now, Request::Read, Output::ReadView, outputs);
            }
            return;
        };
        let number = view.number;
        let may_propose = now >= self.next_proposal;
        let proposal = match self.phase {
            Phase::Outside if may_propose => match self.with_this_node(view) {
                Ok(proposal) => Some(proposal),
                Err(text) => return self.refuse(text, outputs),
            },
            Phase::Member if may_propose => self.change(now),
            _ => None,
        };
        // The view was read for this moment only.
        self.has_waited = false;
        if let Some(proposal) = proposal {
            let expected = number;
            let output = Output::Propose { expected, proposal };
            self.send(now, Request::Propose, output, outputs);
        } else if may_propose && self.wants_to_read_before_eviction(now) {
            let request = Request::ReadBeforeEviction;
            self.send(now, request, Output::ReadView, outputs);
        } else if is_due {
            self.send(now, Request::Heartbeat, Output::Heartbeat, outputs);
        }
    }

    /// The view with this node, without its earlier lives. The slots of such a life are lost.
    fn with_this_node(&self, view: &StoredView) -> Result<Proposal, String> {
        let own = self.settings.id;
        let (lives, mut members): (Vec<ViewMember>, Vec<ViewMember>) = view
            .members
            .iter()
            .cloned()
            .partition(|member| member.id.node == own.node);
        if lives.iter().any(|life| life.id.birth > own.birth) {
            return Err(format!("another process runs as node {}", own.node));
        }
        let is_first = !members
            .iter()
            .any(|member| member.state == MemberState::Active);
        members.push(ViewMember {
            id: own,
            state: if is_first {
                MemberState::Active
            } else {
                MemberState::Joining
            },
            profile: self.settings.profile.clone(),
        });
        let versions = members.iter().map(|member| member.profile.versions);
        let first = versions.clone().map(|versions| versions.first).max();
        let last = versions.map(|versions| versions.last).min();
        if first > last {
            return Err(format!(
                "the members speak no common version of the protocol: one needs {}, another has {} at most",
                first.unwrap_or(0),
                last.unwrap_or(0)
            ));
        }
        let lost: Vec<MemberId> = lives.iter().map(|life| life.id).collect();
        Ok(self.proposal(view, members, &lost))
    }

    fn proposal(&self, view: &StoredView, members: Vec<ViewMember>, lost: &[MemberId]) -> Proposal {
        let key = view.key.unwrap_or(self.settings.key);
        let levels = members.iter().map(|member| member.profile.versions.last);
        Proposal {
            key: Some(key),
            level: levels.min().unwrap_or(1),
            raised: lost_slots(view, lost),
            members,
        }
    }

    /// The change of the view that this member proposes now.
    fn change(&self, now: u64) -> Option<Proposal> {
        let (view, own) = (self.view.as_ref()?, self.settings.id);
        let mut lost = self.evictable(now);
        if self.state() == Some(MemberState::Active) {
            let unwanted = self.unwanted.iter().copied();
            lost.extend(unwanted.filter(|id| *id != own && view.has(*id)));
        }
        if !lost.is_empty() {
            let kept = view
                .members
                .iter()
                .filter(|member| !lost.contains(&member.id));
            return Some(self.proposal(view, kept.cloned().collect(), &lost));
        }
        if self.has_new_generation {
            return Some(self.proposal(view, view.members.clone(), &[]));
        }
        let state = self.state()?;
        if self.is_leaving {
            return self.change_of_leaving(view, state);
        }
        if state == MemberState::Joining {
            let active = self.others(MemberState::Active);
            let is_linked = active.iter().all(|id| self.links[id].is_up());
            let since = self.links_show_from.map(|from| from.max(self.joined));
            let has_waited = since.is_some_and(|since| now.saturating_sub(since) >= JOIN_WAIT_MS);
            if is_linked || has_waited {
                return Some(self.in_state(view, MemberState::Active));
            }
        }
        None
    }

    /// The change that a member proposes which leaves.
    fn change_of_leaving(&self, view: &StoredView, state: MemberState) -> Option<Proposal> {
        let own = self.settings.id;
        let is_only = self.others(MemberState::Active).is_empty();
        let has_settled = match state {
            MemberState::Joining => true,
            MemberState::Active => is_only && self.settled.is_some(),
            MemberState::Leaving if is_only => self.settled.is_some(),
            MemberState::Leaving => self.settled >= Some(view.number),
        };
        if has_settled {
            let kept = view.members.iter().filter(|member| member.id != own);
            return Some(self.proposal(view, kept.cloned().collect(), &[]));
        }
        match state {
            MemberState::Active if !is_only => Some(self.in_state(view, MemberState::Leaving)),
            // The members that could take its names over have ended. In a view without owners no write can be committed.
            MemberState::Leaving if is_only => Some(self.in_state(view, MemberState::Active)),
            _ => None,
        }
    }

    /// The view with this node in another state.
    fn in_state(&self, view: &StoredView, state: MemberState) -> Proposal {
        let mut members = view.members.clone();
        for member in &mut members {
            if member.id == self.settings.id {
                member.state = state;
            }
        }
        self.proposal(view, members, &[])
    }

    /// The suspects that this node may evict now.
    fn evictable(&self, now: u64) -> Vec<MemberId> {
        if self.state() != Some(MemberState::Active) || !self.links_show(now) {
            return Vec::new();
        }
        let may_evict = |(member, link): (&MemberId, &Link)| {
            let since = link.suspect_since()?;
            let is_confirmed = self.has_waited && link.suspect_ms() >= EVICTION_WAIT_MS;
            (is_confirmed || self.is_larger_side(now, since)).then_some(*member)
        };
        self.links.iter().filter_map(may_evict).collect()
    }

    /// Whether a suspect has been one for so long that this side may evict it once it has read the view again.
    fn wants_to_read_before_eviction(&self, now: u64) -> bool {
        let is_due = |link: &Link| link.is_suspect() && link.suspect_ms() >= EVICTION_WAIT_MS;
        let may_evict = self.state() == Some(MemberState::Active) && self.links_show(now);
        may_evict && self.links.values().any(is_due)
    }

    /// Whether this node and the active members that have answered since a member became suspect are more than half of all active members, or
    /// half of them with the lowest number.
    fn is_larger_side(&self, now: u64, suspect_since: u64) -> bool {
        let since = suspect_since.saturating_sub(BEFORE_SUSPICION_MS);
        let since = since.max(now.saturating_sub(ANSWER_MS));
        let others = self.others(MemberState::Active);
        let is_reached = |id: &MemberId| self.links[id].has_answered_since(since);
        let reached = 1 + others.iter().filter(|id| is_reached(id)).count();
        let all = 1 + others.len();
        let own = self.settings.id;
        let lowest = others.iter().copied().chain([own]).min();
        let has_lowest = lowest.is_some_and(|id| id == own || is_reached(&id));
        2 * reached > all || (2 * reached == all && has_lowest)
    }
}

/// The slots whose records may have versions that only a lost member has shown: those that it owns, and those that it would own without one
/// other member, which may have taken them over a moment ago.
fn lost_slots(view: &StoredView, lost: &[MemberId]) -> Vec<u16> {
    let Some(key) = view.key else {
        return Vec::new();
    };
    let mut view = view.clone();
    let mut nodes = Vec::new();
    for member in &mut view.members {
        if lost.contains(&member.id) && member.state != MemberState::Joining {
            // One that was leaving may not have handed all slots over.
            member.state = MemberState::Active;
            nodes.push(member.id.node);
        }
    }
    likely_slots(&key, &view.owners(), &nodes)
}

fn older(found: View, known: View) -> String {
    format!(
        "the store has the view {}, and this node has seen the view {}: the store was replaced by an earlier copy",
        found.0, known.0
    )
}
