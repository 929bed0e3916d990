//! The ends of sessions and registrations, which are done in steps.

use super::RpcOwner;
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::message::Reason;
use crate::text::Name;

/// Registrations and calls that one turn ends. The rest follows in the next turns, so the end of a session with many of them does not
/// delay other sessions. They take about a tenth of a millisecond.
pub(super) const TURN_STEPS: usize = 200;

/// The end of a session or registration, which may take several turns.
#[derive(Debug)]
pub(super) enum Ending {
    /// A session has ended, with its registrations and calls.
    Session(SessionId),
    /// A provider has lost its right to a name. Other providers get its calls.
    Provider(Name, SessionId),
}

impl RpcOwner {
    /// Handles the end of a session: its own calls fail, and the calls that it had to answer go to the next provider.
    pub(crate) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        if self.participants.contains_key(&session) && self.ended.insert(session) {
            self.ending.push_back(Ending::Session(session));
            self.advance(turn);
        }
    }

    /// Handles the end of all sessions of a lost node.
    pub(crate) fn node_lost<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        let known = self.participants.keys().copied();
        let mut ended: Vec<SessionId> = known.filter(|id| id.address.node == node).collect();
        ended.sort_unstable();
        // All of them first, so that no call goes from one to another.
        for session in ended {
            if self.ended.insert(session) {
                self.ending.push_back(Ending::Session(session));
            }
        }
        self.advance(turn);
    }

    /// Handles that a provider has lost its right: its calls go to the next provider.
    pub(super) fn revoke<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        provider: SessionId,
    ) {
        self.withdraw_provider(name, provider);
        if self.participants.contains_key(&provider) {
            let ending = Ending::Provider(name.clone(), provider);
            self.ending.push_back(ending);
            self.advance(turn);
        }
    }

    /// Handles the next part of the endings, with the steps left in this turn.
    pub(super) fn advance<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        // The sessions and registrations are ended strictly in order, one step each, so that a later one can't delay an earlier one. An
        // ended session stays in `ended` until its last step: until then it must not be chosen as provider, or a call that was just taken
        // from it would come back. Then it gets removed from `participants`, and no entry of it is left at this owner.
        while self.turn_steps > 0 {
            self.turn_steps -= 1;
            let more = match self.ending.front() {
                None => return,
                Some(Ending::Session(session)) => self.end_session_step(turn, *session),
                Some(Ending::Provider(name, provider)) => {
                    let (name, provider) = (name.clone(), *provider);
                    self.revoke_step(turn, &name, provider)
                }
            };
            self.steps += 1;
            if !more && let Some(Ending::Session(session)) = self.ending.pop_front() {
                self.ended.remove(&session);
                self.participants.remove(&session);
            }
        }
    }

    /// Ends one registration or one call of an ended session. Returns false if none is left.
    fn end_session_step<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) -> bool {
        let Some(participant) = self.participants.get_mut(&session) else {
            return false;
        };
        if let Some(mut first) = participant.served.first_entry() {
            let name = first.key().clone();
            if let Some(index) = first.get_mut().index.take() {
                participant.forget_unserved(&name);
                self.remove_provider(&name, index);
            } else if let Some(number) = first.get().assigned.last().copied()
                && let Some(running) = self.end_call(number)
            {
                self.reroute(turn, running);
            }
        } else if let Some(number) = participant.requested.last().copied() {
            // The session has gone, but its shard counts the call until this answer, and a node that stops waits for all of its calls.
            self.fail(turn, number, Reason::NoProvider);
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
            .participants
            .get(&provider)
            .and_then(|participant| participant.served.get(name));
        let Some(number) = served.and_then(|served| served.assigned.last().copied()) else {
            return false;
        };
        if let Some(running) = self.end_call(number) {
            self.reroute(turn, running);
        }
        true
    }
}
