//! Backends: programs with application logic, which serve the sessions of namespaces (`spec/backend.md`, decision 0113).
//!
//! A backend is a session with the right of [`Principal::is_backend`]. Every shard of every node knows which namespaces it serves. The shard
//! of a session assigns it to one of them (`assign.rs`), posts its messages to the shard of the backend, and keeps a copy of each until the
//! backend has confirmed it. So a shard has at most [`Limits::backend_messages_max`] of them for each backend, and knows after the loss of
//! the backend which it was not sent: the next backend gets these. `command.rs` has the other direction, `ask.rs` the broadcasts that
//! sessions answer, `tell.rs` the messages between backends, `hand_over.rs` the planned end of a backend, `nodes.rs` the loss of a node,
//! and `reserved.rs` the sessions that wait for a backend whose node is lost.
//!
//! All messages are entries, also if the shards are the same. So the commands of a backend take effect in the order sent.
//!
//! [`Principal::is_backend`]: crate::principal::Principal::is_backend
//! [`Limits::backend_messages_max`]: crate::limits::Limits::backend_messages_max

mod ask;
mod assign;
mod command;
mod hand_over;
mod nodes;
mod reserved;
mod tell;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{Effects, Flow};
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::message::{Backend, BackendKind, Message};
use crate::namespace::covers;
use crate::session::backed::Backed;
use crate::session::{LocalSessionId, Session};
use crate::text::Name;
use crate::time::Instant;
use crate::timer::DeadlineQueue;

use ask::{Asks, OwnAsks};
use hand_over::HandOver;
use reserved::{Earlier, Reservations};

pub(crate) use command::broadcast;

/// A backend of any node.
#[derive(Debug)]
struct Known {
    backend: SessionId,
    namespaces: Vec<Name>,
    /// The sessions of this shard that it serves.
    sessions: usize,
    /// The sessions of the other shards, as of its last announcement.
    others: usize,
    /// Messages that this shard has posted for it.
    posted: u64,
    /// Those that it has not confirmed, in order, and when they were posted.
    unconfirmed: VecDeque<(Arc<OwnedBackend>, Instant)>,
    /// Events of sessions that it hands over, which are in their backlogs.
    kept: usize,
    /// Bytes of both.
    bytes: usize,
    /// Whether it ends soon, and gets no further sessions.
    is_leaving: bool,
    /// The namespaces whose unconfirmed events the next backend gets again.
    again: Vec<Name>,
    /// Sessions whose next message waits for a confirmation, each once.
    waiting: VecDeque<SessionId>,
    /// The backend that it was before the loss of its node.
    earlier: Option<Earlier>,
}

impl Known {
    fn serves(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|it| covers(it, namespace))
    }

    /// The sessions that it serves, about.
    fn load(&self) -> usize {
        self.sessions + self.others
    }

    fn has_room<E>(&self, turn: &TurnContext<'_, E>) -> bool {
        let limits = &turn.shard.settings.limits;
        self.unconfirmed.len() + self.kept < limits.backend_messages_max
            && self.bytes < limits.backend_bytes_max
    }

    /// Whether it can be given sessions.
    fn is_available<E>(&self, turn: &TurnContext<'_, E>) -> bool {
        !self.is_leaving && self.has_room(turn)
    }

    /// Notes that a session with this backlog is no longer its own.
    fn unassign(&mut self, backlog: &VecDeque<Arc<OwnedBackend>>) {
        self.sessions -= 1;
        self.kept -= backlog.len();
        self.bytes -= backlog.iter().map(|it| it.bytes()).sum::<usize>();
    }

    /// Notes that a message is in the backlog of one of its sessions.
    fn keep(&mut self, message: &OwnedBackend) {
        self.kept += 1;
        self.bytes += message.bytes();
    }

    fn post<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, message: Arc<OwnedBackend>) {
        self.posted += 1;
        self.bytes += message.bytes();
        let posted_at = turn.now.monotonic;
        self.unconfirmed
            .push_back((Arc::clone(&message), posted_at));
        let notice = BackendEntry::Notice {
            backend: self.backend,
            from: turn.shard.address,
            message,
        };
        turn.post(self.backend.address, Entry::Backend(notice));
    }
}

/// A backend that is connected to this shard.
#[derive(Debug, Default)]
struct Own {
    namespaces: Vec<Name>,
    /// The namespaces whose unconfirmed events come again.
    again: Vec<Name>,
    /// The sessions that it serves, as far as it was sent them.
    sessions: BTreeSet<SessionId>,
    /// The number of them that the shards know.
    announced: usize,
    /// The messages of each shard that it received over its earlier connection.
    received: BTreeMap<Address, u64>,
    /// The number of messages of each shard that it was sent.
    sent: BTreeMap<Address, u64>,
    /// The sources of the messages that it has not confirmed, in order.
    unconfirmed: VecDeque<(Source, u32)>,
    asks: OwnAsks,
    hand_over: Option<HandOver>,
}

impl Own {
    fn serves(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|it| covers(it, namespace))
    }

    /// Notes that it is sent a message.
    fn note_sent(&mut self, from: Source) {
        match self.unconfirmed.back_mut() {
            Some((source, count)) if *source == from => *count += 1,
            _ => self.unconfirmed.push_back((from, 1)),
        }
    }
}

/// Where a message for a backend comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A shard, which has a copy of it.
    Shard(Address),
    /// A shard of a lost node.
    Lost,
    /// The asks of the backend.
    Asks,
}

/// The backends of all nodes, as one shard sees them.
#[derive(Debug)]
pub(crate) struct Backends {
    known: Vec<Known>,
    own: BTreeMap<SessionId, Own>,
    /// Sessions without a backend, in order.
    unserved: VecDeque<SessionId>,
    /// The end of their time.
    deadlines: DeadlineQueue<LocalSessionId>,
    /// When a backend must serve the namespace of a new session.
    known_by: DeadlineQueue<LocalSessionId>,
    /// The namespaces of lost backends, until their sessions have no time left.
    lost: VecDeque<(Instant, Vec<Name>)>,
    /// The sessions of backends whose nodes are lost.
    reservations: Reservations,
    /// The asks that sessions of this shard answer.
    asks: Asks,
    /// The counters of events. The gauges are made on request.
    counts: BackendCounts,
}

/// Numbers of backends, as one shard has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendCounts {
    /// Backends that are connected to this shard.
    pub connected: usize,
    /// Messages for backends that they have not confirmed, and events that wait for the release of their session.
    pub unconfirmed: usize,
    /// Bytes of these.
    pub unconfirmed_bytes: usize,
    /// When the oldest of the unconfirmed messages was posted.
    pub oldest_posted: Option<Instant>,
    /// Sessions without a backend, or whose next message waits for a confirmation.
    pub waiting: usize,
    /// Events of sessions that backends get. This and the following counters only grow.
    pub events: u64,
    /// Events that a lost backend was sent, and that the next one gets again.
    pub redelivered: u64,
    /// Events that a lost backend was sent and had not confirmed, and that no other backend gets.
    pub lost: u64,
}

impl Backends {
    /// No backends.
    pub(crate) fn new() -> Self {
        Self {
            known: Vec::new(),
            own: BTreeMap::new(),
            unserved: VecDeque::new(),
            deadlines: DeadlineQueue::new(),
            known_by: DeadlineQueue::new(),
            lost: VecDeque::new(),
            reservations: Reservations::default(),
            asks: Asks::default(),
            counts: BackendCounts::default(),
        }
    }

    /// Numbers of the moment.
    pub(crate) fn counts(&self) -> BackendCounts {
        let known = || self.known.iter();
        let oldest = known().filter_map(|it| it.unconfirmed.front());
        BackendCounts {
            connected: self.own.len(),
            unconfirmed: known().map(|it| it.unconfirmed.len() + it.kept).sum(),
            unconfirmed_bytes: known().map(|it| it.bytes).sum(),
            oldest_posted: oldest.map(|(_, posted_at)| *posted_at).min(),
            waiting: self.unserved.len()
                + self.reservations.session_count()
                + known().map(|it| it.waiting.len()).sum::<usize>(),
            ..self.counts
        }
    }

    /// When the time of a session without a backend, or of an ask, ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = [
            self.deadlines.next(),
            self.known_by.next(),
            self.reservations.next_deadline(),
            self.asks.next_deadline(),
        ];
        let own = self.own.values().map(|own| own.asks.next_deadline());
        next.into_iter().chain(own).flatten().min()
    }

    /// Handles a message of an open session.
    pub(crate) fn message<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Flow {
        match backed_mut(turn, id) {
            Some(backed) if backed.has_ended => Flow::Taken,
            Some(_) => match ask::number_of(message) {
                Some(number) => {
                    self.asks.answer(turn, id, number, message);
                    Flow::Taken
                }
                None => self.pass(turn, id, message),
            },
            None => {
                self.command(turn, id, message);
                Flow::Taken
            }
        }
    }

    /// Passes a message of a session to its backend.
    fn pass<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Flow {
        let Some(backed) = backed_mut(turn, id) else {
            return Flow::Taken;
        };
        let is_handed_over = backed.is_handed_over;
        let was_waiting = std::mem::replace(&mut backed.is_waiting, true);
        let Some(backend) = backed.backend else {
            return Flow::Wait;
        };
        let Some(known) = self.find(backend) else {
            return Flow::Wait;
        };
        if !known.has_room(turn) {
            if !was_waiting {
                known.waiting.push_back(id);
            }
            return Flow::Wait;
        }
        turn.shard.count_work(message.data.map_or(0, str::len));
        let message = OwnedBackend {
            session: Some(id),
            ..OwnedBackend::of(message)
        };
        let message = Arc::new(message);
        // The client may answer what a leaving backend waits for, behind events for the next one.
        let is_kept = is_handed_over && message.kind == BackendKind::Event;
        match is_kept {
            true => known.keep(&message),
            false => known.post(turn, Arc::clone(&message)),
        }
        self.counts.events += u64::from(message.kind == BackendKind::Event);
        if let Some(backed) = backed_mut(turn, id) {
            backed.is_waiting = false;
            if is_kept {
                backed.backlog.push_back(message);
            }
        }
        Flow::Taken
    }

    /// Handles an entry of another shard, or of this one.
    pub(crate) fn entry<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, entry: BackendEntry) {
        match entry {
            BackendEntry::Serve {
                backend,
                namespaces,
                sessions,
                earlier,
                received,
            } => {
                let earlier = earlier.map(|id| Earlier { id, received });
                self.serving(turn, backend, namespaces, sessions as usize);
                self.resume(turn, backend, earlier);
            }
            BackendEntry::Lost { backend, sent } => self.lost(turn, backend, sent),
            BackendEntry::Notice {
                backend,
                from,
                message,
            } => self.notice(turn, backend, from, &message),
            BackendEntry::Confirmed { backend, count } => self.confirmed(turn, backend, count),
            BackendEntry::Command { backend, message } => self.execute(turn, backend, &message),
            BackendEntry::Broadcast(message) => broadcast(turn, &message),
            BackendEntry::Ask {
                backend,
                ask,
                timeout_ms,
                message,
            } => match message.kind {
                BackendKind::Tell => self.tell(turn, (backend, ask), timeout_ms, &message),
                _ => self.asks.ask(turn, (backend, ask), timeout_ms, &message),
            },
            BackendEntry::Asked {
                backend,
                ask,
                count,
                is_refused,
            } => self.asked(turn, (backend, ask), count, is_refused),
            BackendEntry::Response {
                backend,
                ask,
                message,
            } => self.response(turn, (backend, ask), *message),
            BackendEntry::AskOver { backend, ask } => self.asks.over(backend, ask),
            BackendEntry::DeliverAgain {
                backend,
                namespaces,
            } => {
                if let Some(known) = self.find(backend) {
                    known.again = namespaces;
                }
            }
            BackendEntry::HandOver { backend } => self.stop_sessions(turn, backend),
            BackendEntry::HandedOver { backend } => self.sessions_stopped(turn, backend),
        }
    }

    /// Handles the end of a session. `session` has its last state.
    pub(crate) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        session: &mut Session,
    ) {
        if let Some(own) = self.own.remove(&id) {
            for shard in turn.shard.shards() {
                let sent = own.sent.get(&shard).copied().unwrap_or_default();
                let lost = BackendEntry::Lost { backend: id, sent };
                turn.post(shard, Entry::Backend(lost));
            }
            if own.asks.is_waiting() {
                let over = BackendEntry::AskOver {
                    backend: id,
                    ask: None,
                };
                turn.post_all(&Entry::Backend(over));
            }
        }
        let state = session.state.as_mut();
        let Some(backed) = state.and_then(|with| with.backed.take()) else {
            return;
        };
        let known = backed.backend.and_then(|backend| self.find(backend));
        let Some(known) = known else {
            return;
        };
        let reason = match (backed.has_left, backed.is_silent) {
            (true, _) => "left",
            (false, true) => "silent",
            (false, false) => "lost",
        };
        known.unassign(&backed.backlog);
        let closed = OwnedBackend {
            name: Some(reason.into()),
            ..OwnedBackend::about(BackendKind::Closed, id)
        };
        // The end is posted beyond the limit: each session has only one. A leaving backend gets the last events, too: no other one will.
        for message in backed.backlog {
            known.post(turn, message);
        }
        known.post(turn, Arc::new(closed));
    }

    /// Notes that the peer of a session ends it.
    pub(crate) fn note_left(session: &mut Session) {
        if let Some(backed) = session.state.as_mut().and_then(|with| with.backed.as_mut()) {
            backed.has_left = true;
        }
    }

    /// Notes whether a session is closed because it is silent.
    pub(crate) fn note_silent(session: &mut Session, is_silent: bool) {
        if let Some(backed) = session.state.as_mut().and_then(|with| with.backed.as_mut()) {
            backed.is_silent = is_silent;
        }
    }

    fn find(&mut self, backend: SessionId) -> Option<&mut Known> {
        let mut known = self.known.iter_mut();
        known.find(|known| known.backend == backend)
    }

    /// Sends a backend of this shard a message.
    fn notice<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        from: Address,
        message: &OwnedBackend,
    ) {
        // After its end, the sender gets to know how many it was sent before.
        let Some(own) = self.own.get_mut(&backend) else {
            return;
        };
        *own.sent.entry(from).or_default() += 1;
        own.note_sent(Source::Shard(from));
        turn.send(backend, &Message::Backend(Box::new(message.message())));
        own.note_session(message);
        own.announce_load(turn, backend);
    }
}

/// The state of a session that a backend serves.
fn backed_mut<'t, E>(turn: &'t mut TurnContext<'_, E>, id: SessionId) -> Option<&'t mut Backed> {
    let session = turn.sessions.find_mut(id)?;
    session.state.as_mut()?.backed.as_deref_mut()
}

/// The shards of this node.
fn shards_of_node<E>(turn: &TurnContext<'_, E>) -> Vec<Address> {
    let node = turn.shard.address.node;
    let shards = turn.shard.shards();
    shards.filter(|shard| shard.node == node).collect()
}
