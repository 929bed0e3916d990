//! Rpc: calls, their providers and their timers.
//!
//! The owner of an rpc name runs its calls. A call is identified by (requestor, correlation id). An answer counts only if it comes from
//! the provider that has the call.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::Equivalent;
use smallvec::SmallVec;

use crate::address::{Address, SessionId};
use crate::context::{DeniedName, LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{
    CallAnswer, CallFailure, CallNotice, Entry, OwnedCall, ReplyAction, ReplyPart, RpcDelivery,
    RpcEntry,
};
use crate::footprint::{CALL_BYTES, PROVIDED_BYTES, PROVIDER_BYTES, PROVIDERS_BYTES, text_bytes};
use crate::message::{Call, Message, Refusal, Rpc, RpcAction, RpcError};
use crate::permission::{Access, Authorization};
use crate::table::{self, Map, NameMap, Random, Set};
use crate::text::{Name, Payload};
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use crate::work::NAME_WORK;

/// Registrations and calls that one turn ends. The rest follows in the next turns, so the end of a session with many of them does not
/// delay other sessions. They take about a tenth of a millisecond.
const SLICE: usize = 200;

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Rpc<'_>,
) -> Flow {
    match message {
        Rpc::Provide { names, correlation } => provide(turn, id, names, *correlation),
        Rpc::Unprovide { names, correlation } => unprovide(turn, id, names, *correlation),
        Rpc::Request { call, data, .. } => request(turn, id, *call, *data),
        Rpc::Accept(call) => answer(turn, id, *call, CallAnswer::Accept, None),
        Rpc::Reject(call) => answer(turn, id, *call, CallAnswer::Reject, None),
        Rpc::Response { call, data } => answer(turn, id, *call, CallAnswer::Response, *data),
        Rpc::RequestError { call, data } => answer(turn, id, *call, CallAnswer::Error, *data),
        // Clients must not send a server's answers. They have no effect.
        Rpc::Ack { .. } | Rpc::Error(_) => Flow::Taken,
    }
}

/// Sends a message of a call to a session of this shard.
pub(crate) fn deliver<E: Effects>(turn: &mut TurnContext<'_, E>, delivery: &RpcDelivery) {
    let call = Call {
        name: &delivery.name,
        correlation: &delivery.correlation,
    };
    let ended = matches!(
        delivery.what,
        CallNotice::Response(_) | CallNotice::Error(_) | CallNotice::Failed(_)
    );
    if ended && let Some(session) = turn.sessions.find_mut(delivery.session) {
        session.calls = session.calls.saturating_sub(1);
        session.let_go(delivery.kept_bytes);
    }
    if matches!(delivery.what, CallNotice::Request { .. }) && has_withdrawn(turn, delivery) {
        return withdraw(turn, delivery);
    }
    let message = match &delivery.what {
        CallNotice::Request {
            data,
            requestor_name,
            requestor_data,
        } => Rpc::Request {
            call,
            data: data.as_ref().map(Payload::as_str),
            requestor_name: requestor_name.as_deref(),
            requestor_data: requestor_data.as_ref().map(Payload::as_str),
        },
        CallNotice::Accepted => Rpc::Accept(call),
        CallNotice::Response(data) => Rpc::Response {
            call,
            data: data.as_ref().map(Payload::as_str),
        },
        CallNotice::Error(data) => Rpc::RequestError {
            call,
            data: data.as_ref().map(Payload::as_str),
        },
        CallNotice::Failed(failure) => Rpc::Error(match failure {
            CallFailure::NoProvider => RpcError::NoProvider(call),
            CallFailure::AcceptTimeout => RpcError::AcceptTimeout(call),
            CallFailure::ResponseTimeout => RpcError::ResponseTimeout(call),
            CallFailure::Duplicate => RpcError::InvalidCorrelation {
                call,
                action: RpcAction::Request,
            },
        }),
        CallNotice::MultipleAccept => Rpc::Error(RpcError::MultipleAccept(call)),
        CallNotice::Unknown(answer) => {
            let action = match answer {
                CallAnswer::Accept => RpcAction::Accept,
                CallAnswer::Reject | CallAnswer::Withdrawn => RpcAction::Reject,
                CallAnswer::Response => RpcAction::Response,
                CallAnswer::Error => RpcAction::RequestError,
            };
            Rpc::Error(RpcError::InvalidCorrelation { call, action })
        }
    };
    turn.send(delivery.session, &Message::Rpc(message));
}

/// Whether the chosen provider has withdrawn the name or lost its right to it. The owner did not know this yet when it chose the
/// provider.
fn has_withdrawn<E: Effects>(turn: &TurnContext<'_, E>, delivery: &RpcDelivery) -> bool {
    turn.sessions.find(delivery.session).is_some_and(|session| {
        let with = session.state.as_ref();
        with.is_none_or(|with| !with.provided.contains(&delivery.name))
    })
}

/// Answers for a provider that no longer provides the name, so that the owner chooses the next provider.
fn withdraw<E: Effects>(turn: &mut TurnContext<'_, E>, delivery: &RpcDelivery) {
    let answer = RpcEntry::Answer {
        name: delivery.name.clone(),
        correlation: delivery.correlation.clone(),
        provider: delivery.session,
        what: CallAnswer::Withdrawn,
        data: None,
    };
    turn.post(turn.shard.owner(&delivery.name), Entry::Rpc(answer));
}

fn provide<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let refusal = |name| Refusal {
        action: RpcAction::Provide,
        name,
        correlation,
        write_ack: false,
    };
    if !turn.shard.is_bulk(names) {
        return refuse(turn, id, RpcError::InvalidData(refusal(None)));
    }
    let Some(mut authorized) = turn.authorize_names(id, Access::RpcProvide, names) else {
        return Flow::Wait;
    };
    turn.fit(id, &mut authorized);
    for why in &authorized.denied {
        let error = match *why {
            DeniedName::Denied(name) => RpcError::Denied(refusal(Some(name))),
            DeniedName::RuleFailed(name) => RpcError::PermissionError(refusal(Some(name))),
            DeniedName::NoName => RpcError::InvalidData(refusal(None)),
        };
        turn.send(id, &Message::Rpc(Rpc::Error(error)));
    }
    let mut added = Vec::new();
    for name in &authorized.allowed {
        let owned = Name::from(*name);
        if take_up(turn, id, &owned) {
            added.push(owned);
        } else {
            turn.send(
                id,
                &Message::Rpc(Rpc::Error(RpcError::MultipleProviders { name })),
            );
        }
    }
    if authorized.is_acknowledged() {
        register(turn, id, added, true, correlation);
    }
    Flow::Taken
}

fn unprovide<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let seed = turn.shard.seed;
    turn.shard.count_work(names.len() * NAME_WORK);
    let mut removed = Vec::new();
    if let Some(session) = turn.sessions.find_mut(id) {
        let provided = &mut session.offers(seed).provided;
        removed.extend(
            names
                .iter()
                .filter_map(|name| provided.take(name))
                .map(|(name, ())| name),
        );
    }
    let bytes = removed.iter().map(provided_bytes).sum();
    turn.sessions.remove_state_bytes(id, bytes);
    register(turn, id, removed, false, correlation);
    Flow::Taken
}

/// Ends a registration whose right was lost. Returns false if the session has no such registration.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: Name,
    lost: LostRight,
) -> bool {
    let session = turn.sessions.find_mut(id);
    let has_provided = session
        .and_then(|session| session.state.as_mut())
        .is_some_and(|with| with.provided.remove(&name).is_some());
    if !has_provided {
        return false;
    }
    turn.sessions.remove_state_bytes(id, provided_bytes(&name));
    let (action, refused) = (RpcAction::Provide, Some(name.as_str()));
    let error = lost.refusal(action, refused, RpcError::Denied, RpcError::PermissionError);
    turn.send(id, &Message::Rpc(Rpc::Error(error)));
    let owner = turn.shard.owner(&name);
    let provider = id;
    turn.post(owner, Entry::Rpc(RpcEntry::Revoke { name, provider }));
    true
}

/// Notes that the session provides the name. Returns false if it already does.
fn take_up<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &Name) -> bool {
    let seed = turn.shard.seed;
    let is_new = turn
        .sessions
        .find_mut(id)
        .is_some_and(|session| session.offers(seed).provided.insert(name.clone(), ()));
    if is_new {
        turn.sessions.add_state_bytes(id, provided_bytes(name));
    }
    is_new
}

/// Bytes of a registration at the provider's shard, with the text that it shares with the owner.
fn provided_bytes(name: &Name) -> usize {
    PROVIDED_BYTES + text_bytes(name)
}

/// Posts the names to their owners, and acknowledges when all owners have handled them.
fn register<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: Vec<Name>,
    provide: bool,
    correlation: Option<&str>,
) {
    let mut by_owner: BTreeMap<Address, Vec<Name>> = BTreeMap::new();
    for name in names {
        by_owner
            .entry(turn.shard.owner(&name))
            .or_default()
            .push(name);
    }
    if by_owner.is_empty() && !turn.is_piece() {
        turn.send(
            id,
            &Message::Rpc(Rpc::Ack {
                provide,
                correlation,
            }),
        );
        return;
    }
    let what = ReplyAction::Provide {
        provide,
        correlation: correlation.map(Box::from),
    };
    let reply = turn.begin_bulk_reply(id, by_owner.len(), what);
    for (owner, names) in by_owner {
        let entry = if provide {
            RpcEntry::Provide {
                names,
                provider: id,
                reply,
            }
        } else {
            RpcEntry::Unprovide {
                names,
                provider: id,
                reply,
            }
        };
        turn.post(owner, Entry::Rpc(entry));
    }
}

fn request<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    call: Call<'_>,
    data: Option<&str>,
) -> Flow {
    let refusal = Refusal {
        action: RpcAction::Request,
        name: Some(call.name),
        correlation: Some(call.correlation),
        write_ack: false,
    };
    if !turn.shard.is_name(call.name)
        || !turn.shard.is_name(call.correlation)
        || !turn.shard.is_json(data)
    {
        let name = refusal.name.filter(|name| turn.shard.is_name(name));
        let correlation = refusal
            .correlation
            .filter(|correlation| turn.shard.is_name(correlation));
        return refuse(
            turn,
            id,
            RpcError::InvalidData(Refusal {
                name,
                correlation,
                ..refusal
            }),
        );
    }
    match turn.authorize(id, Access::RpcRequest, Some(call.name), data) {
        Authorization::Wait => return Flow::Wait,
        Authorization::Deny => return refuse(turn, id, RpcError::Denied(refusal)),
        Authorization::Failed => return refuse(turn, id, RpcError::PermissionError(refusal)),
        Authorization::Allow => {}
    }
    let calls_max = turn.shard.settings.limits.calls_max;
    let draining = turn.shard.draining;
    let Some(session) = turn.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    let is_over = session.calls as usize >= calls_max;
    if is_over {
        turn.shard.count(|refused| refused.calls += 1);
    }
    let bytes = kept_bytes(call.name, call.correlation, data);
    // The memory budget is checked before the call is copied, because the copy is kept until the answer arrives.
    if draining || is_over || !turn.shard.has_memory(session.kept_bytes, bytes) {
        return refuse(turn, id, RpcError::NoProvider(call));
    }
    session.calls += 1;
    session.keep(bytes);
    let principal = session.principal().cloned();
    let settings = &turn.shard.settings;
    let requestor_name = principal
        .as_ref()
        .filter(|_| settings.rpc_requestor_name)
        .map(|principal| principal.user_id.clone());
    let requestor_data = principal
        .filter(|_| settings.rpc_requestor_data)
        .and_then(|principal| principal.client_data().cloned())
        .filter(|data| data.as_str() != "null");
    let owned = OwnedCall {
        name: call.name.into(),
        correlation: call.correlation.into(),
        requestor: id,
        data: data.map(Payload::from_checked),
        requestor_name,
        requestor_data,
    };
    turn.post(
        turn.shard.owner(call.name),
        Entry::Rpc(RpcEntry::Request(Box::new(owned))),
    );
    Flow::Taken
}

fn answer<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    call: Call<'_>,
    what: CallAnswer,
    data: Option<&str>,
) -> Flow {
    if !turn.shard.is_json(data) {
        let action = if what == CallAnswer::Error {
            RpcAction::RequestError
        } else {
            RpcAction::Response
        };
        let refusal = Refusal {
            action,
            name: Some(call.name),
            correlation: Some(call.correlation),
            write_ack: false,
        };
        return refuse(turn, id, RpcError::InvalidData(refusal));
    }
    let entry = RpcEntry::Answer {
        name: call.name.into(),
        correlation: call.correlation.into(),
        provider: id,
        what,
        data: data.map(Payload::from_checked),
    };
    turn.post(turn.shard.owner(call.name), Entry::Rpc(entry));
    Flow::Taken
}

fn refuse<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, error: RpcError<'_>) -> Flow {
    turn.send(id, &Message::Rpc(Rpc::Error(error)));
    Flow::Taken
}

/// Bytes that are kept for a call until it ends.
fn kept_bytes(name: &str, correlation: &str, data: Option<&str>) -> usize {
    CALL_BYTES + text_bytes(name) + 3 * text_bytes(correlation) + data.map_or(0, text_bytes)
}

/// The same for a call that is kept already.
fn call_bytes(call: &OwnedCall) -> usize {
    let data = call.data.as_ref().map(Payload::as_str);
    kept_bytes(&call.name, &call.correlation, data)
}

/// A call that has no response yet, with its provider.
#[derive(Debug)]
struct Running {
    call: Box<OwnedCall>,
    provider: SessionId,
    /// As the provider knows the call: the requestor's, unless the provider has a call of that id already.
    provider_correlation: Box<str>,
    accepted: bool,
    /// Providers that have rejected the call or have gone.
    tried: SmallVec<[SessionId; 2]>,
    /// The number of this hand-over among all. A late timer of an earlier hand-over has another number.
    hand_over: u64,
    /// Its index among the calls of its requestor, and among the calls of its provider.
    made_index: usize,
    asked_index: usize,
}

/// Finds a call by its session and a correlation id that is only borrowed.
#[derive(Hash)]
struct CallKey<'a>(SessionId, &'a str);

impl Equivalent<(SessionId, Box<str>)> for CallKey<'_> {
    fn equivalent(&self, key: &(SessionId, Box<str>)) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

/// The registrations and calls of one session at this owner. When the session ends, only these are visited.
#[derive(Debug, Default)]
struct Involved {
    served: BTreeMap<Name, Served>,
    /// The calls that it has made, each at its `made_index`.
    made: SmallVec<[u64; 2]>,
}

impl Involved {
    fn is_empty(&self) -> bool {
        self.served.is_empty() && self.made.is_empty()
    }

    /// Removes the entry of a name that the session neither provides nor has calls of.
    fn forget_unserved(&mut self, name: &Name) {
        if self.served.get(name).is_some_and(Served::is_empty) {
            self.served.remove(name);
        }
    }
}

/// An rpc that a session provides, or of which it has calls to answer.
#[derive(Debug, Default)]
struct Served {
    /// Its index among the providers. `None` after it has withdrawn.
    index: Option<usize>,
    /// The calls that the session has to answer, each at its `asked_index`.
    asked: SmallVec<[u64; 2]>,
}

impl Served {
    /// Whether the session neither provides the name nor has calls of it.
    fn is_empty(&self) -> bool {
        self.index.is_none() && self.asked.is_empty()
    }
}

/// The end of a session or registration, which may take several turns.
#[derive(Debug)]
enum Ending {
    /// A session has ended, with its registrations and calls.
    Session(SessionId),
    /// A provider has lost its right to a name. Other providers get its calls.
    Provider(Name, SessionId),
}

/// The providers and calls of the names that this shard owns.
#[derive(Debug)]
pub(crate) struct RpcOwner {
    providers: NameMap<Vec<SessionId>>,
    calls: Map<u64, Running>,
    next_call: u64,
    by_requestor: Map<(SessionId, Box<str>), u64>,
    by_provider: Map<(SessionId, Box<str>), u64>,
    involved: Map<SessionId, Involved>,
    /// Ended sessions and registrations that still have calls or names here, in order.
    ending: VecDeque<Ending>,
    /// The sessions in `ending`. They get no calls.
    ended: Set<SessionId>,
    hand_overs: u64,
    /// Steps left in this turn.
    turn_steps: usize,
    /// The number of registrations and calls that endings and timeouts have visited.
    steps: u64,
    accept_timeouts: DeadlineQueue<(u64, u64)>,
    response_timeouts: DeadlineQueue<(u64, u64)>,
    random: Random,
    /// Bytes of the calls.
    call_bytes: usize,
    /// Bytes of the names with providers.
    provider_bytes: usize,
}

impl RpcOwner {
    /// Creates it without providers and calls.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            providers: NameMap::new(seed),
            calls: table::map(seed),
            next_call: 0,
            by_requestor: table::map(seed),
            by_provider: table::map(seed),
            involved: table::map(seed),
            ending: VecDeque::new(),
            ended: table::set(seed),
            hand_overs: 0,
            turn_steps: SLICE,
            steps: 0,
            accept_timeouts: DeadlineQueue::new(),
            response_timeouts: DeadlineQueue::new(),
            random: Random::new(seed),
            call_bytes: 0,
            provider_bytes: 0,
        }
    }

    /// Bytes of the calls and of the names with providers.
    pub(crate) fn bytes(&self) -> usize {
        self.call_bytes + self.provider_bytes
    }

    /// The number of names with providers.
    pub(crate) fn name_count(&self) -> usize {
        self.providers.len()
    }

    /// The number of running calls.
    pub(crate) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The number of registrations and calls that endings and timeouts have visited.
    pub(crate) fn step_count(&self) -> u64 {
        self.steps
    }

    /// The earliest deadline. It is due at once while an ending is not complete.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if !self.ending.is_empty() {
            return Some(Instant(0));
        }
        [self.accept_timeouts.next(), self.response_timeouts.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends a turn. The next turn has its own steps.
    pub(crate) fn end_turn(&mut self) {
        self.turn_steps = SLICE;
    }

    /// Handles an entry from a session's shard.
    pub(crate) fn handle<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, entry: RpcEntry) {
        match entry {
            RpcEntry::Provide {
                names,
                provider,
                reply,
            } => {
                for name in names {
                    self.add_provider(name, provider);
                }
                turn.part_done(reply, ReplyPart::Done);
            }
            RpcEntry::Unprovide {
                names,
                provider,
                reply,
            } => {
                for name in &names {
                    self.take_provider(name, provider);
                }
                turn.part_done(reply, ReplyPart::Done);
            }
            RpcEntry::Revoke { name, provider } => self.revoke(turn, &name, provider),
            RpcEntry::Request(call) => self.request(turn, call),
            RpcEntry::Answer {
                name,
                correlation,
                provider,
                what,
                data,
            } => {
                self.answer(turn, name, correlation, provider, what, data);
            }
        }
    }

    /// Handles the end of a session: its own calls are forgotten, and the calls that it had to answer go to the next provider.
    pub(crate) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        if self.involved.contains_key(&session) && self.ended.insert(session) {
            self.ending.push_back(Ending::Session(session));
            self.advance(turn);
        }
    }

    /// Fails the calls whose provider was too slow, and continues with endings.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        self.end_turn();
        self.advance(turn);
        let now = turn.now.monotonic;
        for _ in 0..SLICE {
            let Some((number, hand_over)) = self.accept_timeouts.pop_due(now) else {
                break;
            };
            self.steps += 1;
            if self
                .calls
                .get(&number)
                .is_some_and(|running| running.hand_over == hand_over && !running.accepted)
            {
                self.fail(turn, number, CallFailure::AcceptTimeout);
            }
        }
        for _ in 0..SLICE {
            let Some((number, hand_over)) = self.response_timeouts.pop_due(now) else {
                break;
            };
            self.steps += 1;
            if self
                .calls
                .get(&number)
                .is_some_and(|running| running.hand_over == hand_over)
            {
                self.fail(turn, number, CallFailure::ResponseTimeout);
            }
        }
    }

    /// Handles the next part of the endings, with the steps left in this turn.
    fn advance<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        // The sessions and registrations are ended strictly in order, one step each, so that a later one can't delay an earlier one. An
        // ended session stays in `ended` until its last step: until then it must not be chosen as provider, or a call that was just taken
        // from it would come back. Then it gets removed from `involved`, and no entry of it is left at this owner.
        while self.turn_steps > 0 {
            self.turn_steps -= 1;
            let more = match self.ending.front() {
                None => return,
                Some(Ending::Session(session)) => self.end_step(turn, *session),
                Some(Ending::Provider(name, provider)) => {
                    let (name, provider) = (name.clone(), *provider);
                    self.revoke_step(turn, &name, provider)
                }
            };
            self.steps += 1;
            if !more && let Some(Ending::Session(session)) = self.ending.pop_front() {
                self.ended.remove(&session);
                self.involved.remove(&session);
            }
        }
    }

    /// Ends one registration or one call of an ended session. Returns false if none is left.
    fn end_step<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, session: SessionId) -> bool {
        let Some(involved) = self.involved.get_mut(&session) else {
            return false;
        };
        if let Some(mut first) = involved.served.first_entry() {
            let name = first.key().clone();
            if let Some(index) = first.get_mut().index.take() {
                involved.forget_unserved(&name);
                self.remove_provider(&name, index);
            } else if let Some(number) = first.get().asked.last().copied()
                && let Some(running) = self.end(number)
            {
                self.reroute(turn, running);
            }
        } else if let Some(number) = involved.made.last().copied() {
            self.end(number);
        } else {
            return false;
        }
        true
    }

    /// Takes one call from a provider that has lost its right to the name. Returns false if none is left.
    fn revoke_step<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        provider: SessionId,
    ) -> bool {
        let served = self
            .involved
            .get(&provider)
            .and_then(|involved| involved.served.get(name));
        let Some(number) = served.and_then(|served| served.asked.last().copied()) else {
            return false;
        };
        if let Some(running) = self.end(number) {
            self.reroute(turn, running);
        }
        true
    }

    fn add_provider(&mut self, name: Name, provider: SessionId) {
        let (_, providers) = self
            .providers
            .get_or_insert_with(name.clone(), |_| Vec::new());
        let involved = self.involved.entry(provider).or_default();
        let served = involved.served.entry(name).or_default();
        if served.index.is_none() {
            served.index = Some(providers.len());
            // The text is counted by the sessions that provide it.
            self.provider_bytes += PROVIDER_BYTES;
            if providers.is_empty() {
                self.provider_bytes += PROVIDERS_BYTES;
            }
            providers.push(provider);
        }
    }

    fn take_provider(&mut self, name: &Name, provider: SessionId) {
        let Some(involved) = self.involved.get_mut(&provider) else {
            return;
        };
        let served = involved.served.get_mut(name);
        if let Some(index) = served.and_then(|served| served.index.take()) {
            involved.forget_unserved(name);
            self.remove_provider(name, index);
            self.forget_idle(provider);
        }
    }

    /// Removes a provider of a name. The last provider gets its index.
    fn remove_provider(&mut self, name: &Name, index: usize) {
        let Some(providers) = self.providers.get_mut(name) else {
            return;
        };
        providers.swap_remove(index);
        let moved = providers.get(index).copied();
        self.provider_bytes -= PROVIDER_BYTES;
        if providers.is_empty() {
            self.providers.remove(name);
            self.provider_bytes -= PROVIDERS_BYTES;
        }
        if let Some(involved) = moved.and_then(|moved| self.involved.get_mut(&moved))
            && let Some(served) = involved.served.get_mut(name)
        {
            served.index = Some(index);
        }
    }

    /// Removes the entry of a session without registrations and calls.
    fn forget_idle(&mut self, session: SessionId) {
        let involved = self.involved.get(&session);
        if involved.is_some_and(Involved::is_empty) && !self.ended.contains(&session) {
            self.involved.remove(&session);
        }
    }

    /// Handles that a provider has lost its right: its calls go to the next provider.
    fn revoke<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        provider: SessionId,
    ) {
        self.take_provider(name, provider);
        if self.involved.contains_key(&provider) {
            let ending = Ending::Provider(name.clone(), provider);
            self.ending.push_back(ending);
            self.advance(turn);
        }
    }

    fn request<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, call: Box<OwnedCall>) {
        let key = CallKey(call.requestor, &call.correlation);
        if self.by_requestor.contains_key(&key) {
            notify_requestor(turn, &call, CallNotice::Failed(CallFailure::Duplicate));
            return;
        }
        self.hand_over(turn, call, SmallVec::new());
    }

    fn reroute<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, running: Running) {
        if self.ended.contains(&running.call.requestor) {
            return;
        }
        let mut tried = running.tried;
        tried.push(running.provider);
        self.hand_over(turn, running.call, tried);
    }

    /// Passes a call to a random provider that was not tried yet.
    fn hand_over<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        call: Box<OwnedCall>,
        tried: SmallVec<[SessionId; 2]>,
    ) {
        let Some(provider) = self.choose(&call.name, &tried) else {
            notify_requestor(turn, &call, CallNotice::Failed(CallFailure::NoProvider));
            return;
        };
        // Each hand-over gets a new call number and a new timer number. So an answer or timer of an earlier provider finds no call and
        // can't end this one. The call is entered in every table before the notice can be answered, because answers arrive as later
        // entries. The provider may have withdrawn in the meantime; its shard knows that first, and answers with a withdrawal.
        let number = self.next_call;
        self.next_call += 1;
        self.hand_overs += 1;
        let hand_over = self.hand_overs;
        let provider_correlation = self.provider_correlation(provider, &call.correlation, number);
        let settings = &turn.shard.settings;
        let now = turn.now.monotonic;
        self.accept_timeouts
            .push(now + settings.rpc_accept_timeout, (number, hand_over));
        self.response_timeouts
            .push(now + settings.rpc_response_timeout, (number, hand_over));
        let what = CallNotice::Request {
            data: call.data.clone(),
            requestor_name: call.requestor_name.clone(),
            requestor_data: call.requestor_data.clone(),
        };
        notify(
            turn,
            provider,
            call.name.clone(),
            provider_correlation.clone(),
            what,
        );
        let made = &mut self.involved.entry(call.requestor).or_default().made;
        let made_index = made.len();
        made.push(number);
        let asked = &mut self
            .involved
            .entry(provider)
            .or_default()
            .served
            .entry(call.name.clone())
            .or_default()
            .asked;
        let asked_index = asked.len();
        asked.push(number);
        self.by_requestor
            .insert((call.requestor, call.correlation.clone()), number);
        self.by_provider
            .insert((provider, provider_correlation.clone()), number);
        self.call_bytes += call_bytes(&call);
        self.calls.insert(
            number,
            Running {
                call,
                provider,
                provider_correlation,
                accepted: false,
                tried,
                hand_over,
                made_index,
                asked_index,
            },
        );
    }

    /// A provider that was not tried yet: the first one at or after a random position. So the search visits at most one more provider
    /// than were tried or have ended.
    fn choose(&mut self, name: &Name, tried: &[SessionId]) -> Option<SessionId> {
        let providers = self.providers.get(name)?;
        let first = self.random.below(providers.len());
        let (before, from) = providers.split_at(first);
        let mut untried = from.iter().chain(before);
        untried
            .find(|provider| !tried.contains(provider) && !self.ended.contains(*provider))
            .copied()
    }

    /// A correlation id is unique only for its requestor. A provider needs a different id for each of its calls.
    fn provider_correlation(
        &self,
        provider: SessionId,
        correlation: &str,
        number: u64,
    ) -> Box<str> {
        if self
            .by_provider
            .contains_key(&CallKey(provider, correlation))
        {
            format!("{correlation}~{number}").into()
        } else {
            correlation.into()
        }
    }

    fn answer<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: Name,
        correlation: Box<str>,
        provider: SessionId,
        what: CallAnswer,
        data: Option<Payload>,
    ) {
        let number = self
            .by_provider
            .get(&CallKey(provider, &correlation))
            .copied()
            .filter(|number| self.calls[number].call.name == name);
        let Some(number) = number else {
            // The provider did not send a withdrawal itself, so it gets no answer to a late one.
            if what != CallAnswer::Withdrawn {
                notify(turn, provider, name, correlation, CallNotice::Unknown(what));
            }
            return;
        };
        match what {
            CallAnswer::Accept => self.accept(turn, number),
            CallAnswer::Reject | CallAnswer::Withdrawn => {
                if let Some(running) = self.end(number) {
                    self.reroute(turn, running);
                }
            }
            CallAnswer::Response => self.finish(turn, number, CallNotice::Response(data)),
            CallAnswer::Error => self.finish(turn, number, CallNotice::Error(data)),
        }
    }

    fn accept<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64) {
        let Some(running) = self.calls.get_mut(&number) else {
            return;
        };
        if running.accepted {
            let (name, correlation) = (
                running.call.name.clone(),
                running.provider_correlation.clone(),
            );
            notify(
                turn,
                running.provider,
                name,
                correlation,
                CallNotice::MultipleAccept,
            );
        } else {
            running.accepted = true;
            notify_requestor(turn, &running.call, CallNotice::Accepted);
        }
    }

    fn fail<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        failure: CallFailure,
    ) {
        self.finish(turn, number, CallNotice::Failed(failure));
    }

    fn finish<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64, what: CallNotice) {
        if let Some(running) = self.end(number) {
            notify_requestor(turn, &running.call, what);
        }
    }

    fn end(&mut self, number: u64) -> Option<Running> {
        let running = self.calls.remove(&number)?;
        self.call_bytes -= call_bytes(&running.call);
        let key = CallKey(running.call.requestor, &running.call.correlation);
        self.by_requestor.remove(&key);
        let key = CallKey(running.provider, &running.provider_correlation);
        self.by_provider.remove(&key);
        self.forget_made(&running);
        self.forget_asked(&running);
        let calls = &self.calls;
        for timeouts in [&mut self.accept_timeouts, &mut self.response_timeouts] {
            timeouts.drop_front_while(|(number, _)| !calls.contains_key(number));
        }
        table::shrink_map(&mut self.calls);
        table::shrink_map(&mut self.by_requestor);
        table::shrink_map(&mut self.by_provider);
        Some(running)
    }

    /// Removes an ended call from the calls of its requestor. The last call gets its index.
    fn forget_made(&mut self, ended: &Running) {
        let requestor = ended.call.requestor;
        let Some(involved) = self.involved.get_mut(&requestor) else {
            return;
        };
        involved.made.swap_remove(ended.made_index);
        if let Some(number) = involved.made.get(ended.made_index)
            && let Some(moved) = self.calls.get_mut(number)
        {
            moved.made_index = ended.made_index;
        } else {
            self.forget_idle(requestor);
        }
    }

    /// Removes an ended call from the calls of its provider. The last call gets its index.
    fn forget_asked(&mut self, ended: &Running) {
        let name = &ended.call.name;
        let Some(involved) = self.involved.get_mut(&ended.provider) else {
            return;
        };
        let Some(served) = involved.served.get_mut(name) else {
            return;
        };
        served.asked.swap_remove(ended.asked_index);
        if let Some(number) = served.asked.get(ended.asked_index)
            && let Some(moved) = self.calls.get_mut(number)
        {
            moved.asked_index = ended.asked_index;
        } else if served.is_empty() {
            involved.served.remove(name);
            self.forget_idle(ended.provider);
        }
    }
}

fn notify_requestor<E: Effects>(turn: &mut TurnContext<'_, E>, call: &OwnedCall, what: CallNotice) {
    let ended = !matches!(what, CallNotice::Accepted);
    let delivery = RpcDelivery {
        session: call.requestor,
        name: call.name.clone(),
        correlation: call.correlation.clone(),
        kept_bytes: if ended { call_bytes(call) } else { 0 },
        what,
    };
    turn.post(call.requestor.address, Entry::RpcDelivery(delivery));
}

fn notify<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    session: SessionId,
    name: Name,
    correlation: Box<str>,
    what: CallNotice,
) {
    turn.post(
        session.address,
        Entry::RpcDelivery(RpcDelivery {
            session,
            name,
            correlation,
            kept_bytes: 0,
            what,
        }),
    );
}
