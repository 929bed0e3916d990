//! Connections with several sessions, which their peers call namespaces.
//!
//! A connection begins with its main session, in the slot of the connection. It is not open until its peer joins the main namespace. The session
//! of another namespace borrows a slot, like a session without a socket, and has a format above [`CARRIED`], by which its sends are recognized and
//! go to its connection. If the main session ends before its connection, a new one borrows a slot, too: a key is never used for two
//! sessions. The main session shows whether the peer is alive, and waits for a login while no other session is open.
//! A connection that only has the session in its slot has no entry here. Decision: 0100.
//!
//! [`CARRIED`]: crate::sink::CARRIED

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{CloseReason, Flow, Format, Input, Span};
use tidewire_core::message::{Auth, Message};
use tidewire_core::namespace::covers;
use tidewire_core::text::Name;
use tidewire_net::connection::Key;
use tidewire_net::event_loop::EventLoop;
use tidewire_net::outbox::LogRange;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::protocol::{
    Encoding, Namespace, NamespaceRefusal, NamespaceReply, Protocol, Variant,
};

use super::resumable::ResumableSessions;
use super::{Conductor, log_ranges};
use crate::connection::{Binding, CloseCause, Phase, State};
use crate::connection_limiter::Subject;
use crate::peer::PeerDetails;
use crate::sink::{FRAMES, plain_encoding, resumable_format};

/// Approximate memory of a session in a borrowed slot: its entries in the tables of connections and sessions, and here.
const SESSION_BYTES: usize = 512;

/// The session of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// It is open, or its login is being decided.
    Open(Key),
    /// The server has ended it. The peer may not know that yet, so its messages are ignored.
    Ended,
    /// The peer has not joined the namespace.
    Absent,
}

/// The session of a namespace other than the main one.
#[derive(Debug)]
struct Named {
    name: Arc<str>,
    /// Never [`Member::Absent`].
    member: Member,
    /// Whether the login is not decided yet.
    is_joining: bool,
}

/// The sessions of one connection.
#[derive(Debug, Default)]
struct Sessions {
    /// The main session and its state, if it does not have the slot of the connection.
    main: Option<(Key, Standing)>,
    named: Vec<Named>,
    /// The session whose message has to wait, unless it has the slot of the connection.
    waiting: Option<Key>,
    /// Logins refused so far.
    refused: u32,
    /// The peer of the connection, for later logins.
    peer: Option<Arc<PeerDetails>>,
}

/// The state of a main session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Absent,
    /// The server has ended the session before, as in [`Member::Ended`].
    Ended,
    Open,
}

/// A session in a borrowed slot.
#[derive(Debug)]
struct Borrower {
    connection: Key,
    /// Without it, it is the main session.
    name: Option<Arc<str>>,
}

/// Frames of the turn with the name of a namespace, which sessions with the same ranges share.
#[derive(Debug)]
struct Made {
    name: Arc<str>,
    format: Format,
    spans: Vec<Span>,
    range: Range<u64>,
}

/// The connections of a shard that have several sessions.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The namespaces that peers may join. A `*` at the end matches any text.
    permitted: Arc<[String]>,
    /// Sessions of a connection, the main one included.
    sessions_max: usize,
    /// Refused logins after which a connection is closed.
    attempts_max: u32,
    connections: HashMap<Key, Sessions>,
    borrowers: HashMap<Key, Borrower>,
    /// Sessions that end with this turn, behind their last messages, each with the state of its namespace afterwards.
    ending: Vec<(Key, Member)>,
    made: Option<Made>,
    scratch: Vec<u8>,
    /// The connection and session of the last message.
    last: Option<(Key, Key)>,
}

impl Namespaces {
    /// No such connections.
    pub(super) fn new(permitted: Arc<[String]>, sessions_max: usize, attempts_max: u32) -> Self {
        Self {
            permitted,
            sessions_max,
            attempts_max,
            connections: HashMap::new(),
            borrowers: HashMap::new(),
            ending: Vec::new(),
            made: None,
            scratch: Vec::new(),
            last: None,
        }
    }

    /// The memory of the sessions in borrowed slots.
    pub(super) fn bytes(&self) -> usize {
        self.borrowers.len() * SESSION_BYTES
    }

    fn is_ending(&self, session: Key) -> bool {
        self.ending.iter().any(|(key, _)| *key == session)
    }

    /// Whether a session ends with this turn.
    pub(super) fn has_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Whether the connection has, or had, more than the session in its slot.
    pub(super) fn has(&self, connection: Key) -> bool {
        self.connections.contains_key(&connection)
    }

    /// The connection of a session. A session without a borrowed slot has the key of its connection.
    pub(super) fn connection(&self, session: Key) -> Key {
        let borrower = self.borrowers.get(&session);
        borrower.map_or(session, |borrower| borrower.connection)
    }

    /// The main session of a connection.
    pub(super) fn main(&self, connection: Key) -> Key {
        let sessions = self.connections.get(&connection);
        let main = sessions.and_then(|sessions| sessions.main);
        main.map_or(connection, |(key, _)| key)
    }

    /// The peer of a connection that has logged in, if it may log in to further namespaces.
    pub(super) fn peer(&self, connection: Key) -> Option<Arc<PeerDetails>> {
        self.connections.get(&connection)?.peer.clone()
    }

    /// All sessions of a connection. The main one may not be open.
    pub(super) fn sessions(&self, connection: Key) -> impl Iterator<Item = Key> {
        let sessions = self.connections.get(&connection);
        let named = sessions.into_iter().flat_map(|sessions| &sessions.named);
        let named = named.filter_map(|named| match named.member {
            Member::Open(key) => Some(key),
            Member::Ended | Member::Absent => None,
        });
        std::iter::once(self.main(connection)).chain(named)
    }

    /// The session of a namespace. `binding` is the one of its connection.
    pub(super) fn find(
        &self,
        connection: Key,
        binding: Binding,
        namespace: Namespace<'_>,
    ) -> Member {
        let sessions = self.connections.get(&connection);
        match namespace {
            Namespace::Main => match sessions.and_then(|sessions| sessions.main) {
                Some((key, Standing::Open)) => Member::Open(key),
                Some((_, Standing::Ended)) => Member::Ended,
                None if !binding.is_apart() => Member::Open(connection),
                Some((_, Standing::Absent)) | None => Member::Absent,
            },
            Namespace::Named(name) => {
                let mut named = sessions.into_iter().flat_map(|sessions| &sessions.named);
                let named = named.find(|named| *named.name == *name);
                named.map_or(Member::Absent, |named| named.member)
            }
        }
    }

    /// Notes that the engine has taken the login of the main session.
    pub(super) fn main_joined(&mut self, connection: Key, binding: &mut Binding) {
        let sessions = self.connections.get_mut(&connection);
        match sessions.and_then(|sessions| sessions.main.as_mut()) {
            Some((_, standing)) => *standing = Standing::Open,
            None => binding.set_apart(false),
        }
    }

    /// Notes whether a message of a session has to wait.
    pub(super) fn note_flow(&mut self, connection: Key, session: Key, flow: Flow) {
        self.last = Some((connection, session));
        if let Some(sessions) = self.connections.get_mut(&connection) {
            sessions.waiting = (flow == Flow::Wait && session != connection).then_some(session);
        }
    }

    /// The session that pays for the last message of a connection, whose slot has the session `own`.
    pub(super) fn payer(&mut self, own: SessionId) -> SessionId {
        match self.last.take() {
            Some((connection, session)) if connection == super::key(own) => SessionId {
                index: session.index,
                generation: session.generation,
                ..own
            },
            _ => own,
        }
    }

    /// Whether the waiting message of a connection is one of this session.
    fn waits_for(&self, connection: Key, session: Key) -> bool {
        let sessions = self.connections.get(&connection);
        let waiting = sessions.and_then(|sessions| sessions.waiting);
        waiting.unwrap_or(connection) == session
    }

    /// Whether a connection may open a session in this namespace.
    fn admit(&self, connection: Key, name: &str, is_backed: bool) -> Result<(), NamespaceRefusal> {
        let mut permitted = self.permitted.iter();
        if !is_backed && !permitted.any(|pattern| covers(pattern, name)) {
            return Err(NamespaceRefusal::Unknown);
        }
        let sessions = self.connections.get(&connection);
        let others = sessions.into_iter().flat_map(|sessions| &sessions.named);
        // An ended session counts until its peer joins its namespace again or leaves it. So the list is bounded.
        let count = 1 + others.filter(|named| *named.name != *name).count();
        match count < self.sessions_max {
            true => Ok(()),
            false => Err(NamespaceRefusal::TooMany),
        }
    }

    /// Sends a session in a borrowed slot its ranges of the log. Returns false if the session has none.
    pub(super) fn deliver(
        &mut self,
        key: Key,
        (format, spans): (Format, &[Span]),
        count: u64,
        logs: &mut TurnLogs,
        (resumable, event_loop): (&mut ResumableSessions, &mut EventLoop<State>),
    ) -> bool {
        let Some(Borrower { connection, name }) = self.borrowers.get(&key) else {
            return false;
        };
        let Some(name) = name else {
            let frames = || {
                let ranges = log_ranges(format, spans);
                let slices = ranges.map(|range| logs.slice(range.format, &range.range));
                slices.flatten().copied().collect()
            };
            if resumable.keep_frames(*connection, frames, count) {
                event_loop.push_ranges(*connection, log_ranges(format, spans));
            }
            return true;
        };
        let is_same =
            |made: &&Made| made.format == format && made.spans == spans && *made.name == **name;
        let range = match self.made.as_ref().filter(is_same) {
            Some(made) => made.range.clone(),
            None => {
                let frames = &mut self.scratch;
                frames.clear();
                for range in log_ranges(format, spans) {
                    frames.extend_from_slice(logs.slice(range.format, &range.range));
                }
                let Encoding {
                    protocol, variant, ..
                } = plain_encoding(format);
                let range = logs
                    .log_mut(FRAMES)
                    .append(|out| protocol.put_in_namespace(variant, name, frames, out));
                self.made = Some(Made {
                    name: Arc::clone(name),
                    format,
                    spans: spans.to_vec(),
                    range: range.clone(),
                });
                range
            }
        };
        let frames = || logs.slice(FRAMES, &range).into();
        if resumable.keep_frames(*connection, frames, count) {
            let format = FRAMES;
            event_loop.push_ranges(*connection, std::iter::once(LogRange { format, range }));
        }
        true
    }

    /// Forgets the ranges of the turn.
    pub(super) fn begin_turn(&mut self) {
        self.made = None;
        self.scratch = Vec::new();
    }
}

impl Conductor {
    /// The session of a connection that operators see: its main one, or the first other one that is open.
    pub(super) fn shown(&self, connection: Key) -> Key {
        let mut sessions = self.namespaces.sessions(connection);
        let open = sessions.find(|key| self.engine.user(self.session(*key)).is_some());
        open.unwrap_or(connection)
    }

    /// The user of that session.
    pub(super) fn user(&self, connection: Key) -> Option<&Name> {
        self.engine.user(self.session(self.shown(connection)))
    }

    /// Keeps the peer of a connection for logins to further namespaces.
    pub(super) fn keep_peer(&mut self, connection: Key, peer: &Arc<PeerDetails>) {
        let socket = self.event_loop.connections().get(connection);
        let protocol = socket.map(|socket| socket.state.codec.protocol());
        let has_others =
            !self.namespaces.permitted.is_empty() || self.engine.has_backed_namespaces();
        if has_others && protocol.is_some_and(Protocol::has_namespaces) {
            let sessions = self.namespaces.connections.entry(connection).or_default();
            sessions.peer = Some(Arc::clone(peer));
        }
    }

    /// Memory that the engine keeps for the sessions of a connection.
    pub(super) fn kept_for(&self, connection: Key) -> usize {
        let sessions = self.namespaces.sessions(connection);
        sessions
            .map(|session| self.engine.kept_for(session.index))
            .sum()
    }

    /// Passes an input to the engine for each session of a connection.
    pub(super) fn handle_each(&mut self, connection: Key, input: impl Fn(SessionId) -> Input) {
        if !self.namespaces.has(connection) {
            return self.handle(input(self.session(connection)));
        }
        let keys: Vec<Key> = self.namespaces.sessions(connection).collect();
        for key in keys {
            self.handle(input(self.session(key)));
        }
    }

    /// Opens a session in a borrowed slot.
    fn open_borrower(&mut self, connection: Key, variant: Variant, name: Option<Arc<str>>) -> Key {
        let key = self.event_loop.connections_mut().lend_slot();
        let borrower = Borrower { connection, name };
        self.namespaces.borrowers.insert(key, borrower);
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return key;
        };
        let state = &socket.state;
        let encoding = Encoding {
            variant,
            ..Encoding::first(state.codec.protocol(), false)
        };
        let address = state.peer.as_ref().map(|peer| peer.address);
        let address = address.or_else(|| self.address(connection));
        let session = self.session(key);
        self.handle(Input::Opened {
            session,
            format: resumable_format(Format(encoding.id())),
            coalesces: Some(false),
        });
        if let Some(address) = address {
            let origin = Subject::new(address.ip()).hash();
            self.engine.set_origin(session, origin);
        }
        key
    }

    /// Ends a session in a borrowed slot.
    fn end_borrower(&mut self, key: Key) {
        self.namespaces.borrowers.remove(&key);
        self.logins.remove(&key);
        let session = self.session(key);
        self.handle(Input::Closed { session });
        self.free_key(key);
    }

    /// Handles the request of a peer to open a session in a namespace other than the main one.
    pub(super) fn join(&mut self, connection: Key, namespace: &str, credentials: &str) {
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return;
        };
        let codec = &socket.state.codec;
        let (protocol, main) = (codec.protocol(), codec.variant());
        let (Some(variant), Phase::Open) = (protocol.namespaced(main), socket.state.phase) else {
            return;
        };
        let is_backed = self.engine.is_backed(namespace);
        if namespace == Namespace::Main.name() {
            let main = self.namespaces.main(connection);
            return self.request_backend(connection, main, namespace, credentials);
        }
        if let Err(refusal) = self.namespaces.admit(connection, namespace, is_backed) {
            let mut frames = Vec::new();
            let reply = NamespaceReply::Refused(namespace, refusal);
            protocol.encode_namespace_reply(main, reply, &mut frames);
            return self.event_loop.push_bytes(connection, &frames);
        }
        let name: Arc<str> = namespace.into();
        let key = self.open_borrower(connection, variant, Some(Arc::clone(&name)));
        let sessions = self.namespaces.connections.entry(connection).or_default();
        sessions.named.retain(|named| named.name != name);
        sessions.named.push(Named {
            name,
            member: Member::Open(key),
            is_joining: true,
        });
        if is_backed {
            return self.request_backend(connection, key, namespace, credentials);
        }
        let data = Some(credentials);
        let (now, session) = (self.now, self.session(key));
        let login = Message::Auth(Auth::Request { data });
        let flow = self
            .sink
            .handle_message(&mut self.engine, now, session, &login);
        debug_assert_eq!(flow, Flow::Taken, "a new session waits for its login");
        self.has_unflushed = true;
    }

    /// Handles that a peer ends the session of a namespace; without a name, of the main one.
    pub(super) fn leave(&mut self, connection: Key, namespace: Option<&str>) {
        let Some(namespace) = namespace else {
            self.note_left(self.namespaces.main(connection));
            return self.replace_main(connection, Standing::Absent);
        };
        let member = self.remove_named(connection, namespace);
        if let Some(Member::Open(key)) = member {
            self.note_left(key);
            self.end_borrower(key);
        }
        self.restart_login(connection);
    }

    fn note_left(&mut self, key: Key) {
        let session = self.session(key);
        self.handle(Input::Left { session });
    }

    fn remove_named(&mut self, connection: Key, namespace: &str) -> Option<Member> {
        let sessions = self.namespaces.connections.get_mut(&connection)?;
        let mut named = sessions.named.iter();
        let index = named.position(|named| *named.name == *namespace)?;
        Some(sessions.named.swap_remove(index).member)
    }

    /// Ends the main session and opens another one, in which the peer may log in.
    fn replace_main(&mut self, connection: Key, standing: Standing) {
        let old = self.namespaces.main(connection);
        if old == connection {
            // Its slot stays with the connection.
            self.logins.remove(&old);
            let session = self.session(old);
            self.handle(Input::Closed { session });
        } else {
            self.end_borrower(old);
        }
        let Some(socket) = self.event_loop.connections_mut().get_mut(connection) else {
            return;
        };
        socket.state.binding.set_apart(true);
        let variant = socket.state.codec.variant();
        let key = self.open_borrower(connection, variant, None);
        let sessions = self.namespaces.connections.entry(connection).or_default();
        sessions.main = Some((key, standing));
    }

    /// If the connection has no open session, begins the time to log in again.
    fn restart_login(&mut self, connection: Key) {
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return;
        };
        if socket.state.phase == Phase::Open && !self.has_session(connection, None) {
            self.replace_main(connection, Standing::Absent);
        }
    }

    /// Whether a connection has an open session other than `except`.
    fn has_session(&self, connection: Key, except: Option<Key>) -> bool {
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return false;
        };
        let binding = socket.state.binding;
        let main = match self.namespaces.find(connection, binding, Namespace::Main) {
            Member::Open(key) => Some(key),
            Member::Ended | Member::Absent => None,
        };
        let named = self.namespaces.sessions(connection).skip(1);
        let mut open = main.into_iter().chain(named);
        open.any(|key| Some(key) != except && !self.namespaces.is_ending(key))
    }

    /// Informs the peer that the server ends a session, behind the messages of the turn. If that packet were in the outbox before, the end of
    /// another session in this turn would cut the connection off, as for a peer that does not read.
    fn announce_end(&mut self, connection: Key, session: Key) {
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return;
        };
        let codec = &socket.state.codec;
        let borrower = self.namespaces.borrowers.get(&session);
        let name = borrower.and_then(|borrower| borrower.name.clone());
        let namespace = name.as_deref().map_or(Namespace::Main, Namespace::Named);
        let mut frames = Vec::new();
        let reply = NamespaceReply::Ended(namespace);
        let protocol = codec.protocol();
        protocol.encode_namespace_reply(codec.variant(), reply, &mut frames);
        self.pongs.push((connection, frames));
        self.has_unflushed = true;
    }

    /// Continues with the message of a session that had to wait. If the session has waited for a login, that is decided.
    pub(super) fn continue_session(&mut self, session: Key) {
        let connection = self.namespaces.connection(session);
        self.settle_login(connection, session);
        if self.namespaces.waits_for(connection, session) {
            self.give_again(connection);
        }
        self.resume_carried(session);
    }

    /// Notes that the login of a session was decided.
    fn settle_login(&mut self, connection: Key, session: Key) {
        let id = self.session(session);
        let socket = self.event_loop.connections_mut().get_mut(connection);
        let Some(State { codec, .. }) = socket.map(|socket| &mut socket.state) else {
            return;
        };
        let protocol = codec.protocol();
        if !protocol.has_namespaces() && protocol.opens().is_none() {
            return;
        }
        let is_open = self.engine.user(id).is_some();
        if is_open && self.engine.has_backed_namespaces() {
            self.settle_backed(connection);
        }
        if protocol.opens().is_some() {
            if !is_open {
                self.open_at_backend(connection);
            }
            return;
        }
        let socket = self.event_loop.connections_mut().get_mut(connection);
        let Some(State { binding, .. }) = socket.map(|socket| &mut socket.state) else {
            return;
        };
        if session == self.namespaces.main(connection) {
            let main = self.namespaces.find(connection, *binding, Namespace::Main);
            if is_open || main != Member::Open(session) {
                return;
            }
            let sessions = self.namespaces.connections.entry(connection).or_default();
            match &mut sessions.main {
                Some((_, standing)) => *standing = Standing::Absent,
                None => binding.set_apart(true),
            }
        } else {
            let sessions = self.namespaces.connections.entry(connection).or_default();
            let mut named = sessions.named.iter_mut();
            let named = named.find(|named| named.member == Member::Open(session));
            let Some(named) = named.filter(|named| named.is_joining) else {
                return;
            };
            named.is_joining = false;
            if is_open {
                return;
            }
            self.namespaces.ending.push((session, Member::Absent));
        }
        let sessions = self.namespaces.connections.entry(connection).or_default();
        sessions.refused += 1;
        if sessions.refused >= self.namespaces.attempts_max {
            let reason = CloseReason::TooManyAuthAttempts;
            self.close(connection, CloseCause::Engine(reason));
        }
    }

    /// Handles that the engine closes a session. Returns the connection that has to be closed, or nothing if it continues without the session.
    pub(super) fn end_in_namespace(&mut self, session: Key, reason: CloseReason) -> Option<Key> {
        let connection = self.namespaces.connection(session);
        if !self.namespaces.has(connection) {
            return Some(connection);
        }
        let is_main = session == self.namespaces.main(connection);
        match reason {
            CloseReason::AuthenticationTimeout
                if is_main && self.has_session(connection, Some(session)) =>
            {
                return None;
            }
            // The connection continues, even without a session: its peer closes it, or joins again.
            CloseReason::Dismissed => {
                self.announce_end(connection, session);
                self.namespaces.ending.push((session, Member::Ended));
                return None;
            }
            CloseReason::Disconnected => {
                let sessions: Vec<Key> = self.namespaces.sessions(connection).collect();
                for session in sessions {
                    if self.engine.user(self.session(session)).is_some() {
                        self.announce_end(connection, session);
                    }
                }
                return Some(connection);
            }
            CloseReason::Revoked | CloseReason::Barred => {}
            // The other sessions end, too, and the client logs in again to all of them.
            _ => return Some(connection),
        }
        let has_unsent =
            |socket: &tidewire_net::connection::Connection<State>| socket.outbox_bytes() > 0;
        let connections = self.event_loop.connections();
        let is_mixed = reason.forfeits() && connections.get(connection).is_some_and(has_unsent);
        if is_mixed || !self.has_session(connection, Some(session)) {
            if !is_mixed && reason == CloseReason::Revoked && !is_main {
                self.announce_end(connection, session);
            }
            return Some(connection);
        }
        if reason == CloseReason::Barred {
            // It gets the answers of this turn.
            self.namespaces.ending.push((session, Member::Absent));
        } else {
            self.announce_end(connection, session);
            self.drop_session(connection, session, Member::Ended);
        }
        None
    }

    /// Ends a session that the server does not continue. `left` is the state of its namespace afterwards.
    fn drop_session(&mut self, connection: Key, session: Key, left: Member) {
        if session == self.namespaces.main(connection) {
            let standing = match left {
                Member::Ended => Standing::Ended,
                Member::Absent | Member::Open(_) => Standing::Absent,
            };
            self.replace_main(connection, standing);
        } else {
            let Some(sessions) = self.namespaces.connections.get_mut(&connection) else {
                return;
            };
            let is_it = |named: &Named| named.member == Member::Open(session);
            match left {
                Member::Ended => {
                    let mut named = sessions.named.iter_mut().filter(|named| is_it(named));
                    if let Some(named) = named.next() {
                        named.member = Member::Ended;
                    }
                }
                Member::Absent | Member::Open(_) => sessions.named.retain(|named| !is_it(named)),
            }
            self.end_borrower(session);
            self.restart_login(connection);
        }
        let sessions = self.namespaces.connections.get_mut(&connection);
        if sessions.is_some_and(|it| it.waiting.take_if(|it| *it == session).is_some()) {
            // No other event would continue with the message.
            self.give_again(connection);
        }
    }

    /// Ends the sessions that end with this turn, after all messages of the turn.
    pub(super) fn finish_namespaces(&mut self) {
        for (session, left) in std::mem::take(&mut self.namespaces.ending) {
            let connection = self.namespaces.connection(session);
            let is_there = self.namespaces.sessions(connection).any(|it| it == session);
            if is_there && self.event_loop.connections().get(connection).is_some() {
                self.drop_session(connection, session, left);
            }
        }
    }

    /// Ends all sessions of a connection but the one in its slot.
    pub(super) fn end_borrowers(&mut self, connection: Key) {
        if !self.namespaces.has(connection) {
            return;
        }
        let keys: Vec<Key> = self.namespaces.sessions(connection).collect();
        self.namespaces.connections.remove(&connection);
        for key in keys {
            if key != connection {
                self.end_borrower(key);
            }
        }
    }
}
