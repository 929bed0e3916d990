//! The sessions of a shard and their backends: the assignment, the loss of a backend, and the time that a session waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Backends, Known, backed_mut};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::entry::OwnedBackend;
use crate::hub::HubTopic;
use crate::message::{Backend, BackendKind, Message};
use crate::namespace::{covers, room_of};
use crate::publication::InterestTopic;
use crate::session::backed::Backed;
use crate::session::{LocalSessionId, Phase};
use crate::text::{Name, Payload};

/// The reason for a session in a namespace that no backend serves. Clients know this text.
const INVALID_NAMESPACE: &str = r#"{"message":"Invalid namespace"}"#;

/// How long a new session waits for a backend that serves its namespace while other backends are connected. An application that adds a
/// namespace may name it to a client over another connection than the backend's, and the client may then be faster.
const UNKNOWN_NAMESPACE_WAIT: Duration = Duration::from_millis(500);

/// The sessions above which a backend of this node has far more than one of another node with `load` sessions. A hop to another node costs
/// each message about as much as its handling in the server, and the numbers are an eighth old.
fn far_above(load: usize) -> usize {
    load + load / 2 + 32
}

/// The backend for a session.
enum Choice {
    /// By its index.
    Backend(usize),
    /// A backend serves the namespace, and has too many messages now, or it was lost a moment ago.
    Later,
    /// No backend serves the namespace.
    Nothing,
}

impl Backends {
    /// Handles that a peer wants to open a session in a namespace of backends.
    pub(crate) fn open<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        namespace: Name,
        handshake: Payload,
    ) {
        let seed = turn.shard.seed;
        let Some(session) = turn.sessions.find_mut(id) else {
            return;
        };
        if !matches!(session.phase, Phase::Login) {
            return;
        }
        session.phase = Phase::Checking;
        let now = turn.now.monotonic;
        let backed = Backed::new(namespace, handshake, now);
        let bytes = backed.bytes();
        session.state(seed).backed = Some(Box::new(backed));
        turn.sessions.add_state_bytes(id, bytes);
        self.await_backend(turn, id);
        let known_by = now + UNKNOWN_NAMESPACE_WAIT;
        self.known_by.push(known_by, LocalSessionId::of(id));
        self.assign(turn);
    }

    /// Begins the time in which a session has to get a backend.
    pub(super) fn await_backend<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
    ) {
        self.unserved.push_back(id);
        let deadline = turn.now.monotonic + turn.shard.settings.backend_grace;
        if let Some(backed) = backed_mut(turn, id) {
            backed.waits_until = deadline;
        }
        self.deadlines.push(deadline, LocalSessionId::of(id));
    }

    /// Closes the sessions whose time has ended without a backend, and refuses new ones whose namespace is still unknown.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let now = turn.now.monotonic;
        let mut is_due = false;
        while self.known_by.pop_due(now).is_some() {
            is_due = true;
        }
        if is_due {
            self.assign(turn);
        }
        self.end_reservations(turn);
        while self.lost.front().is_some_and(|(until, _)| *until <= now) {
            self.lost.pop_front();
        }
        while let Some(local_id) = self.deadlines.pop_due(now) {
            let id = local_id.session(turn.shard.address);
            // A session that has got a backend since, and has lost it, has a later deadline.
            let is_over = |backed: &mut Backed| {
                backed.backend.is_none() && !backed.has_ended && backed.waits_until <= now
            };
            if backed_mut(turn, id).is_some_and(is_over) {
                turn.out.close(id, CloseReason::NoBackend);
            }
        }
        self.asks.deadline_reached(now);
        self.own_asks_deadline_reached(turn);
    }

    /// Handles that a backend serves these namespaces.
    pub(super) fn serving<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        namespaces: Vec<Name>,
        sessions: usize,
    ) {
        match self.find(backend) {
            Some(known) => {
                known.others = sessions.saturating_sub(known.sessions);
                if known.namespaces == namespaces {
                    return;
                }
                known.namespaces = namespaces;
            }
            None => self.known.push(Known {
                backend,
                namespaces,
                sessions: 0,
                others: sessions,
                posted: 0,
                unconfirmed: Default::default(),
                bytes: 0,
                kept: 0,
                is_leaving: false,
                again: Vec::new(),
                waiting: Default::default(),
                earlier: None,
            }),
        }
        self.announce_count(turn);
        self.assign(turn);
    }

    /// Sends the backends of this shard the number of all backends.
    pub(super) fn announce_count<E: Effects>(&self, turn: &mut TurnContext<'_, E>) {
        let count = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        for backend in self.own.keys() {
            let backends = Backend {
                count,
                ..Backend::new(BackendKind::Served)
            };
            turn.send(*backend, &Message::Backend(Box::new(backends)));
        }
    }

    /// Assigns the sessions without a backend, as far as backends have room.
    pub(super) fn assign<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        let mut later = Vec::new();
        while let Some(id) = self.unserved.pop_front() {
            let backed = backed_mut(turn, id).filter(|backed| backed.backend.is_none());
            let Some(backed) = backed else {
                continue;
            };
            let namespace = backed.namespace.clone();
            let kept_for = backed.kept_for;
            let refusable_at = backed.since + UNKNOWN_NAMESPACE_WAIT;
            let is_new = backed.id.is_none();
            let is_refusable = is_new && refusable_at <= turn.now.monotonic;
            match self.choose(turn, &namespace, kept_for) {
                Choice::Backend(index) => self.give(turn, index, id),
                Choice::Nothing if is_refusable => refuse(turn, id, INVALID_NAMESPACE),
                Choice::Nothing | Choice::Later => later.push(id),
            }
            if !self.known.iter().any(|known| known.is_available(turn)) {
                break;
            }
        }
        for id in later.into_iter().rev() {
            self.unserved.push_front(id);
        }
    }

    /// The backend with the fewest sessions, of this node unless one of another node has far fewer. Shards with equal numbers begin with
    /// different ones.
    fn choose<E: Effects>(
        &self,
        turn: &TurnContext<'_, E>,
        namespace: &str,
        kept_for: Option<SessionId>,
    ) -> Choice {
        let keeper = self
            .known
            .iter()
            .position(|known| Some(known.backend) == kept_for && known.serves(namespace));
        if let Some(index) = keeper.filter(|index| !self.known[*index].is_leaving) {
            return match self.known[index].has_room(turn) {
                true => Choice::Backend(index),
                false => Choice::Later,
            };
        }
        let first = usize::from(turn.shard.address.shard) % self.known.len().max(1);
        let serving = || {
            let known = self.known.iter().enumerate();
            known.filter(|(_, known)| known.serves(namespace))
        };
        let available = || serving().filter(|(_, known)| known.is_available(turn));
        let order = |(index, known): &(usize, &Known)| {
            let distance = (index + self.known.len() - first) % self.known.len();
            (known.load(), known.sessions, distance)
        };
        let node = turn.shard.address.node;
        let near = available().filter(|(_, known)| known.backend.address.node == node);
        let fewest = match (near.min_by_key(order), available().min_by_key(order)) {
            (Some((_, near)), Some((index, any))) if near.load() > far_above(any.load()) => {
                Some(index)
            }
            (near, any) => near.or(any).map(|(index, _)| index),
        };
        if let Some(index) = fewest {
            return Choice::Backend(index);
        }
        let mut lost = self.lost.iter().flat_map(|(_, namespaces)| namespaces);
        let is_served = serving().next().is_some() || self.known.is_empty();
        match is_served || lost.any(|it| covers(it, namespace)) {
            true => Choice::Later,
            false => Choice::Nothing,
        }
    }

    /// Gives a session to a backend: its handshake and rooms, then the messages that wait for a backend.
    fn give<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, index: usize, id: SessionId) {
        let memberships = turn.hub.memberships(id, turn.sessions);
        let Some(backed) = backed_mut(turn, id) else {
            return;
        };
        let events = memberships.iter().filter_map(|(topic, name)| {
            (*topic == HubTopic::Interest(InterestTopic::Event)).then_some(name)
        });
        let rooms = events.filter_map(|event| room_of(&backed.namespace, event));
        let opened = OwnedBackend {
            name: Some(backed.namespace.clone()),
            data: Some(backed.handshake_with_data()),
            correlation: backed.id.as_deref().map(Box::from),
            names: rooms.map(Name::from).collect(),
            ..OwnedBackend::about(BackendKind::Opened, id)
        };
        let known = &mut self.known[index];
        known.sessions += 1;
        (backed.backend, backed.kept_for) = (Some(known.backend), None);
        let backlog = std::mem::take(&mut backed.backlog);
        let was_waiting = std::mem::take(&mut backed.is_waiting);
        known.post(turn, Arc::new(opened));
        for message in backlog {
            known.post(turn, message);
        }
        if was_waiting {
            turn.out.resume(id);
        }
    }

    /// Handles that a backend has confirmed some messages of this shard.
    pub(super) fn confirmed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        count: u32,
    ) {
        let Some(known) = self.find(backend) else {
            return;
        };
        let had_room = known.has_room(turn);
        let count = (count as usize).min(known.unconfirmed.len());
        for (message, _) in known.unconfirmed.drain(..count) {
            known.bytes -= message.bytes();
        }
        if !had_room {
            // Only then sessions may wait for this backend.
            self.assign(turn);
        }
        let Some(known) = self.find(backend) else {
            return;
        };
        if !known.has_room(turn) {
            return;
        }
        let limits = &turn.shard.settings.limits;
        let room = limits.backend_messages_max - known.unconfirmed.len() - known.kept;
        let continuing = known.waiting.len().min(room);
        for id in known.waiting.drain(..continuing) {
            let backed = backed_mut(turn, id).filter(|backed| backed.backend == Some(backend));
            if let Some(backed) = backed {
                backed.is_waiting = false;
                turn.out.resume(id);
            }
        }
    }

    /// Handles the end of a backend, which was sent `sent` messages of this shard. Its sessions wait for another one.
    pub(super) fn lost<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        sent: u64,
    ) {
        let Some(known) = self.forget_backend(turn, backend) else {
            return;
        };
        let served = sessions_of(turn, |backed| backed.backend == Some(backend));
        for id in &served {
            if let Some(backed) = backed_mut(turn, *id) {
                (backed.backend, backed.is_handed_over) = (None, false);
            }
            self.await_backend(turn, *id);
        }
        self.return_messages(turn, known, &served, Sent::Lost(sent));
        for known in &mut self.known {
            known.earlier = known.earlier.filter(|earlier| earlier.id != backend);
        }
        self.assign(turn);
    }

    /// Removes a backend from those that get sessions.
    pub(super) fn forget_backend<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) -> Option<Known> {
        let position = self.known.iter().position(|it| it.backend == backend);
        let known = position.map(|index| self.known.remove(index))?;
        self.announce_count(turn);
        let until = turn.now.monotonic + turn.shard.settings.backend_grace;
        self.lost.push_back((until, known.namespaces.clone()));
        Some(known)
    }

    /// Returns the messages that a lost backend was not sent to its sessions, for the next one.
    pub(super) fn return_messages<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        known: Known,
        served: &BTreeSet<SessionId>,
        sent: Sent,
    ) {
        let confirmed = known.posted - known.unconfirmed.len() as u64;
        let (Sent::Lost(count) | Sent::Kept(count)) = sent;
        let was_sent = usize::try_from(count.saturating_sub(confirmed)).unwrap_or(usize::MAX);
        // A session that was about to be released may have later messages in its backlog, so these go in front, the last one first.
        let unconfirmed = known.unconfirmed.into_iter().enumerate().rev();
        for (index, (mut message, _)) in unconfirmed {
            // The handshake of a session is sent again with the session, and the backend has handled all messages of a session that it has
            // released.
            let Some(id) = message.session.filter(|id| served.contains(id)) else {
                continue;
            };
            let Some(backed) = backed_mut(turn, id) else {
                continue;
            };
            let is_event = message.kind == BackendKind::Event;
            let comes_again = || known.again.iter().any(|it| covers(it, &backed.namespace));
            match index < was_sent {
                false if is_event || message.kind == BackendKind::Answered => {}
                // A message that the backend was sent may have had an effect, so no other backend gets it, unless the app wants that.
                true if is_event && matches!(sent, Sent::Lost(_)) && comes_again() => {
                    self.counts.redelivered += 1;
                    let message = Arc::make_mut(&mut message);
                    message.count = message.count.saturating_add(1);
                }
                was_sent => {
                    let is_lost = was_sent && is_event && matches!(sent, Sent::Lost(_));
                    self.counts.lost += u64::from(is_lost);
                    continue;
                }
            }
            backed.backlog.push_front(message);
        }
    }

    /// Notes that the backend of a session no longer serves it. Returns the messages of the session that no backend was posted.
    pub(super) fn unassign<E>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
    ) -> VecDeque<Arc<OwnedBackend>> {
        let Some(backed) = backed_mut(turn, id) else {
            return VecDeque::new();
        };
        let backlog = std::mem::take(&mut backed.backlog);
        backed.is_handed_over = false;
        let known = backed.backend.take().and_then(|it| self.find(it));
        if let Some(known) = known {
            known.unassign(&backlog);
        }
        backlog
    }
}

/// The number of messages of this shard that a backend was sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    /// It has ended, and may have handled some of them.
    Lost(u64),
    /// It has only lost its node, and handles them.
    Kept(u64),
}

/// The sessions of this shard that backends serve and that meet a condition.
pub(super) fn sessions_of<E>(
    turn: &TurnContext<'_, E>,
    is_meant: impl Fn(&Backed) -> bool,
) -> BTreeSet<SessionId> {
    let sessions =
        (0..turn.sessions.table_len() as u32).filter_map(|index| turn.sessions.at(index));
    let meant = sessions.filter(|session| {
        let backed = session
            .state
            .as_ref()
            .and_then(|with| with.backed.as_deref());
        backed.is_some_and(&is_meant)
    });
    meant.map(|session| session.id).collect()
}

/// Refuses a session that is not open.
pub(super) fn refuse<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, data: &str) {
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    session.phase = Phase::Login;
    session.refused = session.refused.saturating_add(1);
    forget(turn, id);
    let refused = Backend {
        data: Some(data),
        ..Backend::new(BackendKind::Refuse)
    };
    turn.send(id, &Message::Backend(Box::new(refused)));
    turn.out.resume(id);
}

/// Forgets that backends serve a session.
fn forget<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId) {
    let state = turn.sessions.find_mut(id).and_then(|it| it.state.as_mut());
    let Some(backed) = state.and_then(|with| with.backed.take()) else {
        return;
    };
    turn.sessions.remove_state_bytes(id, backed.bytes());
}
