//! The sessions of a backend whose node is lost. The backend itself may live: it connects to another node, names its earlier connection and
//! the number of messages that it received there from each shard, and keeps its sessions (decision 0147). Until then, and for at most
//! [`Settings::backend_grace`], no other backend gets them.
//!
//! [`Settings::backend_grace`]: crate::settings::Settings::backend_grace

use std::collections::VecDeque;

use super::assign::{Sent, sessions_of};
use super::{Backends, Known, backed_mut};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::message::Backend;
use crate::session::LocalSessionId;
use crate::time::Instant;

/// A backend before the loss of its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    pub(super) id: SessionId,
    /// The messages of this shard that it received.
    pub(super) received: u64,
}

/// The sessions of one lost backend.
#[derive(Debug)]
struct Reservation {
    number: u64,
    until: Instant,
    known: Known,
}

/// The reservations of a shard, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    made: u64,
    waiting: VecDeque<Reservation>,
}

impl Reservations {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|reservation| reservation.until)
    }

    /// The sessions that wait for their backends, and maybe some that have ended since.
    pub(super) fn session_count(&self) -> usize {
        let of_each = self.waiting.iter().map(|it| it.known.sessions);
        of_each.sum()
    }

    fn take(&mut self, backend: SessionId) -> Option<Reservation> {
        // The backend names the later one of two lives of a node.
        let mut waiting = self.waiting.iter();
        let index = waiting.rposition(|it| it.known.backend == backend)?;
        self.waiting.remove(index)
    }
}

impl Backends {
    /// Notes how many messages of a shard a backend of this shard received before the loss of its node.
    pub(super) fn note_received<E: Effects>(
        &mut self,
        turn: &TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) {
        let shard = message.session.map(|session| session.address);
        let is_known = |shard: &Address| turn.shard.shards.contains(shard);
        if let Some(shard) = shard.filter(is_known) {
            let own = self.own.entry(id).or_default();
            own.received.insert(shard, message.count.into());
        }
    }

    /// Reserves the sessions of a backend whose node is lost.
    pub(super) fn reserve<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) {
        let is_leaving = self.find(backend).is_some_and(|known| known.is_leaving);
        if is_leaving {
            // It does not come back. It may have been sent all messages.
            return self.lost(turn, backend, u64::MAX);
        }
        let Some(known) = self.forget_backend(turn, backend) else {
            return;
        };
        let until = turn.now.monotonic + turn.shard.settings.backend_grace;
        let number = self.reservations.made;
        self.reservations.made += 1;
        for id in sessions_of(turn, |backed| backed.backend == Some(backend)) {
            if let Some(backed) = backed_mut(turn, id) {
                (backed.backend, backed.is_handed_over) = (None, false);
                (backed.reservation, backed.waits_until) = (Some(number), until);
            }
        }
        self.reservations.waiting.push_back(Reservation {
            number,
            until,
            known,
        });
        // The backend may be faster than the news of the loss.
        let is_back = |known: &&Known| known.earlier.is_some_and(|earlier| earlier.id == backend);
        let back = self.known.iter().find(is_back);
        if let Some((keeper, earlier)) = back.map(|known| (known.backend, known.earlier)) {
            self.resume(turn, keeper, earlier);
        }
    }

    /// Gives a backend that has lost its node the sessions that it served, with the messages that it did not receive.
    pub(super) fn resume<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        earlier: Option<Earlier>,
    ) {
        let Some(earlier) = earlier else {
            return;
        };
        // Its end at a node that lives, or the loss of the node, may become known later. A later life of the node may use the id again.
        let is_known = self.find(earlier.id).is_some();
        if let Some(known) = self.find(backend) {
            known.earlier = is_known.then_some(earlier);
        }
        if let Some(reservation) = self.reservations.take(earlier.id) {
            self.end_reservation(
                turn,
                reservation,
                Some(backend),
                Sent::Kept(earlier.received),
            );
        }
    }

    /// Gives the sessions of backends that have not come back to others, or lets them end.
    pub(super) fn end_reservations<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while let Some(next) = self.reservations.waiting.front()
            && next.until <= turn.now.monotonic
            && let Some(reservation) = self.reservations.waiting.pop_front()
        {
            // Which messages the backend was sent is unknown.
            self.end_reservation(turn, reservation, None, Sent::Lost(u64::MAX));
        }
    }

    fn end_reservation<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        Reservation {
            number,
            until,
            known,
        }: Reservation,
        keeper: Option<SessionId>,
        sent: Sent,
    ) {
        let reserved = sessions_of(turn, |backed| backed.reservation == Some(number));
        for id in &reserved {
            let Some(backed) = backed_mut(turn, *id) else {
                continue;
            };
            (backed.reservation, backed.kept_for) = (None, keeper);
            // A backend may take them some at a time. Without one their time ends with the reservation.
            match self.known.iter().any(|it| it.serves(&backed.namespace)) {
                true => self.await_backend(turn, *id),
                false => {
                    self.unserved.push_back(*id);
                    self.deadlines.push(until, LocalSessionId::of(*id));
                }
            }
        }
        self.return_messages(turn, known, &reserved, sent);
        self.assign(turn);
    }
}
