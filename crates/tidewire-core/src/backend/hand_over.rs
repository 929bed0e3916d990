//! The planned end of a backend, after which no event is lost: it gets no further sessions. Then it hands its sessions over one by one: it gets no
//! further events of a session, handles the ones that it has, and releases the session. Events that arrive in between wait in the backlog, so a
//! session waits for its own turn only, and not for all sessions of the backend.

use std::sync::Arc;

use super::nodes::{OfNodes, awaited_of, without_lost};
use super::{Backends, Own, backed_mut};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::message::{Backend, BackendKind, Message};

const NOTHING_TO_HAND_OVER: &str = r#"{"message":"a backend hands over once, after SERVE"}"#;

/// The state of a leaving backend at its shard.
#[derive(Debug)]
pub(super) struct HandOver {
    correlation: Option<Box<str>>,
    /// The shards that may still post sessions.
    awaited: usize,
    /// The shards of other nodes among them.
    pub(super) nodes: OfNodes,
}

impl Own {
    /// Notes that some shards post no further sessions for the backend. The answer follows the last of them.
    pub(super) fn shards_stopped<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        count: impl FnOnce(&mut HandOver) -> usize,
    ) {
        let Some(hand_over) = self.hand_over.as_mut().filter(|it| it.awaited > 0) else {
            return;
        };
        hand_over.awaited = hand_over.awaited.saturating_sub(count(hand_over));
        if hand_over.awaited > 0 {
            return;
        }
        let handed_over = Backend {
            correlation: hand_over.correlation.as_deref(),
            ..Backend::new(BackendKind::HandedOver)
        };
        turn.send(backend, &Message::Backend(Box::new(handed_over)));
    }
}

impl Backends {
    /// Handles that a backend of this shard ends soon.
    pub(super) fn begin_hand_over<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        let own = self.own.get_mut(&id);
        let own = own.filter(|own| own.hand_over.is_none() && !own.namespaces.is_empty());
        let own = own.ok_or(NOTHING_TO_HAND_OVER)?;
        let shards = without_lost(turn, turn.shard.shards().collect());
        own.hand_over = Some(HandOver {
            correlation: message.correlation.map(Box::from),
            awaited: shards.len(),
            nodes: awaited_of(turn, &shards),
        });
        for shard in shards {
            let hand_over = BackendEntry::HandOver { backend: id };
            turn.post(shard, Entry::Backend(hand_over));
        }
        Ok(())
    }

    /// Handles that a backend gets no further sessions of this shard. The answer is behind the earlier ones.
    pub(super) fn stop_sessions<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) {
        if let Some(known) = self.find(backend) {
            known.is_leaving = true;
        }
        let handed_over = BackendEntry::HandedOver { backend };
        turn.post(backend.address, Entry::Backend(handed_over));
    }

    /// Handles that a shard posts no further sessions for a backend of this shard.
    pub(super) fn sessions_stopped<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) {
        if let Some(own) = self.own.get_mut(&backend) {
            own.shards_stopped(turn, backend, |_| 1);
        }
    }

    /// Whether a backend of this shard ends soon.
    pub(super) fn is_leaving(&self, id: SessionId) -> bool {
        self.own.get(&id).is_some_and(|own| own.hand_over.is_some())
    }

    /// Handles that a leaving backend gets no further events of a session. The answer is behind the earlier ones.
    pub(super) fn stop_events<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        id: SessionId,
    ) {
        let Some(backed) = backed_mut(turn, id).filter(|it| !it.is_handed_over) else {
            return;
        };
        backed.is_handed_over = true;
        let handed_over = OwnedBackend::about(BackendKind::HandedOver, id);
        if let Some(known) = self.find(backend) {
            known.post(turn, Arc::new(handed_over));
        }
    }

    /// Takes a session from its leaving backend, which has handled all of its messages, for another one.
    pub(super) fn release<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, id: SessionId) {
        let backlog = self.unassign(turn, id);
        if let Some(backed) = backed_mut(turn, id) {
            backed.backlog = backlog;
        }
        self.await_backend(turn, id);
        self.assign(turn);
    }
}
