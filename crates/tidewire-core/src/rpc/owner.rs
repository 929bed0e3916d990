//! The providers and calls of the names that a shard owns, and the entries and deadlines that drive them. The states of a call are in the
//! comment of the folder (`mod.rs`).

mod call;
mod ending;
mod participant;

use std::collections::VecDeque;

use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{ReplyPart, RpcEntry};
use crate::message::Reason;
use crate::table::{self, Map, NameMap, Random, Set};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;
use call::Running;
use ending::{Ending, TURN_STEPS};
use participant::Participant;

/// The providers and calls of the names that this shard owns.
#[derive(Debug)]
pub(crate) struct RpcOwner {
    providers: NameMap<Vec<SessionId>>,
    calls: Map<u64, Running>,
    next_call: u64,
    by_requestor: Map<(SessionId, Box<str>), u64>,
    by_provider: Map<(SessionId, Box<str>), u64>,
    participants: Map<SessionId, Participant>,
    /// Ended sessions and registrations that still have calls or names here, in order.
    ending: VecDeque<Ending>,
    /// The sessions in `ending`. They get no calls.
    ended: Set<SessionId>,
    assignments: u64,
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
            participants: table::map(seed),
            ending: VecDeque::new(),
            ended: table::set(seed),
            assignments: 0,
            turn_steps: TURN_STEPS,
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
        self.turn_steps = TURN_STEPS;
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
                    self.withdraw_provider(name, provider);
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

    /// Registers the names that a session provides, after the former owner has let go of them.
    pub(crate) fn announced(&mut self, names: Vec<Name>, provider: SessionId) {
        for name in names {
            self.add_provider(name, provider);
        }
    }

    /// Lets go of names: their calls fail, and their providers are forgotten.
    pub(crate) fn leave<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        is_leaving: impl Fn(&str) -> bool,
    ) {
        let calls = self.calls.iter();
        let calls = calls.filter(|(_, running)| is_leaving(&running.call.name));
        let mut calls: Vec<u64> = calls.map(|(number, _)| *number).collect();
        calls.sort_unstable();
        for number in calls {
            self.fail(turn, number, Reason::NoProvider);
        }
        let providers = self.providers.iter();
        let leaving = providers.filter(|(name, _)| is_leaving(name));
        let leaving = leaving.flat_map(|(name, providers)| {
            let name = name.clone();
            providers
                .iter()
                .map(move |provider| (name.clone(), *provider))
        });
        for (name, provider) in leaving.collect::<Vec<_>>() {
            self.withdraw_provider(&name, provider);
        }
    }

    /// Fails the calls whose provider was too slow, and continues with endings.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        self.end_turn();
        self.advance(turn);
        let now = turn.now.monotonic;
        for _ in 0..TURN_STEPS {
            let Some((number, assignment)) = self.accept_timeouts.pop_due(now) else {
                break;
            };
            self.steps += 1;
            if self
                .calls
                .get(&number)
                .is_some_and(|running| running.assignment == assignment && !running.accepted)
            {
                self.fail(turn, number, Reason::AcceptTimeout);
            }
        }
        for _ in 0..TURN_STEPS {
            let Some((number, assignment)) = self.response_timeouts.pop_due(now) else {
                break;
            };
            self.steps += 1;
            if self
                .calls
                .get(&number)
                .is_some_and(|running| running.assignment == assignment)
            {
                self.fail(turn, number, Reason::ResponseTimeout);
            }
        }
    }
}
