//! Running calls: their assignment to a provider, its answers, and their end.

use std::time::Duration;

use hashbrown::Equivalent;
use smallvec::SmallVec;

use super::RpcOwner;
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{CallAnswer, CallNotice, Entry, OwnedCall, RpcDelivery};
use crate::inspect::CallView;
use crate::message::Reason;
use crate::table;
use crate::text::{Name, Payload};
use crate::time::Instant;

/// Providers of other nodes that a search for one on the requestor's node passes, so that a call costs little however many there are.
const NEAR_SEARCH_MAX: usize = 256;

/// A call that has no response yet, with its provider.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) call: Box<OwnedCall>,
    pub(super) provider: SessionId,
    /// As the provider knows the call: the requestor's, unless the provider has a call of that id already.
    pub(super) provider_correlation: Box<str>,
    pub(super) accepted: bool,
    /// Providers that have rejected the call or have gone.
    pub(super) tried: SmallVec<[SessionId; 2]>,
    /// The number of this assignment among all. A late timer of an earlier assignment has another number.
    pub(super) assignment: u64,
    /// Its index among the calls of its requestor, and among the calls of its provider.
    pub(super) requested_index: usize,
    pub(super) assigned_index: usize,
}

/// Finds a call by its session and a correlation id that is only borrowed.
#[derive(Hash)]
struct CallKey<'a>(SessionId, &'a str);

impl Equivalent<(SessionId, Box<str>)> for CallKey<'_> {
    fn equivalent(&self, key: &(SessionId, Box<str>)) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

impl RpcOwner {
    /// The running calls as operators see them, in no order.
    pub(crate) fn views(&self, now: Instant, timeout: Duration) -> impl Iterator<Item = CallView> {
        self.calls.values().map(move |running| {
            // Assignments are numbered in the order of the queue, so a call needs no field for its time.
            let is_before = |(_, assignment): &(u64, u64)| *assignment < running.assignment;
            let deadline = self.response_timeouts.deadline(is_before);
            CallView {
                name: running.call.name.clone(),
                requestor: running.call.requestor,
                provider: running.provider,
                is_accepted: running.accepted,
                age: deadline.map_or(timeout, |deadline| (now + timeout).since(deadline)),
            }
        })
    }

    /// Takes a new call in, unless its requestor has a call of that correlation id.
    pub(super) fn request<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        call: Box<OwnedCall>,
    ) {
        let key = CallKey(call.requestor, &call.correlation);
        if self.by_requestor.contains_key(&key) {
            notify_requestor(turn, &call, CallNotice::Failed(Reason::InvalidCorrelation));
            return;
        }
        self.assign(turn, call, SmallVec::new());
    }

    /// Passes a call to a random provider that was not tried yet, on the node of the requestor if there is one.
    fn assign<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        call: Box<OwnedCall>,
        tried: SmallVec<[SessionId; 2]>,
    ) {
        let Some(provider) = self.choose(&call, &tried) else {
            notify_requestor(turn, &call, CallNotice::Failed(Reason::NoProvider));
            return;
        };
        // Each assignment gets a new call number and a new timer number. So an answer or timer of an earlier provider finds no call and
        // can't end this one. The call is entered in every table before the notice can be answered, because answers arrive as later
        // entries. The provider may have withdrawn in the meantime; its shard knows that first, and answers with a withdrawal.
        let number = self.next_call;
        self.next_call += 1;
        self.assignments += 1;
        let assignment = self.assignments;
        let provider_correlation = self.provider_correlation(provider, &call.correlation, number);
        let settings = &turn.shard.settings;
        let now = turn.now.monotonic;
        self.accept_timeouts
            .push(now + settings.rpc_accept_timeout, (number, assignment));
        self.response_timeouts
            .push(now + settings.rpc_response_timeout, (number, assignment));
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
        let requested = &mut self
            .participants
            .entry(call.requestor)
            .or_default()
            .requested;
        let requested_index = requested.len();
        requested.push(number);
        let assigned = &mut self
            .participants
            .entry(provider)
            .or_default()
            .served
            .entry(call.name.clone())
            .or_default()
            .assigned;
        let assigned_index = assigned.len();
        assigned.push(number);
        self.by_requestor
            .insert((call.requestor, call.correlation.clone()), number);
        self.by_provider
            .insert((provider, provider_correlation.clone()), number);
        self.call_bytes += call.kept_bytes();
        self.calls.insert(
            number,
            Running {
                call,
                provider,
                provider_correlation,
                accepted: false,
                tried,
                assignment,
                requested_index,
                assigned_index,
            },
        );
    }

    /// A provider that was not tried yet, at or after a random position: the first one on the node of the requestor, or else the first one.
    /// The search visits a limited number of providers in addition to those that were tried or have ended.
    fn choose(&mut self, call: &OwnedCall, tried: &[SessionId]) -> Option<SessionId> {
        let providers = self.providers.get(&call.name)?;
        let first = self.random.below(providers.len());
        let (before, from) = providers.split_at(first);
        let untried = from.iter().chain(before).copied();
        let mut untried =
            untried.filter(|provider| !tried.contains(provider) && !self.ended.contains(provider));
        let any = untried.next()?;
        let is_near = |provider: &SessionId| provider.address.node == call.requestor.address.node;
        if is_near(&any) {
            return Some(any);
        }
        Some(untried.take(NEAR_SEARCH_MAX).find(is_near).unwrap_or(any))
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

    /// Passes a call on after its provider has rejected it or has gone.
    pub(super) fn reroute<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, running: Running) {
        if self.ended.contains(&running.call.requestor) {
            notify_requestor(turn, &running.call, CallNotice::Failed(Reason::NoProvider));
            return;
        }
        let mut tried = running.tried;
        tried.push(running.provider);
        self.assign(turn, running.call, tried);
    }

    pub(super) fn answer<E: Effects>(
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
                if let Some(running) = self.end_call(number) {
                    self.reroute(turn, running);
                }
            }
            CallAnswer::Response => self.finish(turn, number, CallNotice::Response(data)),
            CallAnswer::Error => self.finish(turn, number, CallNotice::Error(data)),
        }
    }

    /// Notes that the provider has accepted the call.
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

    pub(super) fn fail<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        reason: Reason,
    ) {
        self.finish(turn, number, CallNotice::Failed(reason));
    }

    /// Ends a call with a notice to its requestor.
    fn finish<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64, what: CallNotice) {
        if let Some(running) = self.end_call(number) {
            notify_requestor(turn, &running.call, what);
        }
    }

    /// Removes a call from every table.
    pub(super) fn end_call(&mut self, number: u64) -> Option<Running> {
        let running = self.calls.remove(&number)?;
        self.call_bytes -= running.call.kept_bytes();
        let key = CallKey(running.call.requestor, &running.call.correlation);
        self.by_requestor.remove(&key);
        let key = CallKey(running.provider, &running.provider_correlation);
        self.by_provider.remove(&key);
        self.forget_requested(&running);
        self.forget_assigned(&running);
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
    fn forget_requested(&mut self, ended: &Running) {
        let requestor = ended.call.requestor;
        let Some(participant) = self.participants.get_mut(&requestor) else {
            return;
        };
        participant.requested.swap_remove(ended.requested_index);
        if let Some(number) = participant.requested.get(ended.requested_index)
            && let Some(moved) = self.calls.get_mut(number)
        {
            moved.requested_index = ended.requested_index;
        } else {
            self.forget_idle(requestor);
        }
    }

    /// Removes an ended call from the calls of its provider. The last call gets its index.
    fn forget_assigned(&mut self, ended: &Running) {
        let name = &ended.call.name;
        let Some(participant) = self.participants.get_mut(&ended.provider) else {
            return;
        };
        let Some(served) = participant.served.get_mut(name) else {
            return;
        };
        served.assigned.swap_remove(ended.assigned_index);
        if let Some(number) = served.assigned.get(ended.assigned_index)
            && let Some(moved) = self.calls.get_mut(number)
        {
            moved.assigned_index = ended.assigned_index;
        } else if served.is_empty() {
            participant.served.remove(name);
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
        kept_bytes: if ended { call.kept_bytes() } else { 0 },
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
