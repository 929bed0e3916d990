//! Sessions that outlive their connections: they lose a transport, wait without one, and continue on another connection.
//!
//! A session keeps its id, and with it its slot in the tables of connections and of the engine. While it is attached, its connection is in
//! that slot, so nothing has to be looked up to read or to send. When it is resumed on another connection, that connection moves into the
//! slot of the session. Such a session has a separate format (`sink.rs` `resumable_format`), so sends of other sessions do not pass here.
//! Decision: 0092.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{CloseReason, Flow, Format, Input, Span};
use tidewire_core::text::Name;
use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, Released};
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::protocol::{ConnectionCodec, Parts, ResumeRefusal, SessionReply};
use tokio::sync::oneshot;

use super::{Conductor, log_ranges};
use crate::connection::{Binding, CloseCause, PauseReasons, Phase, State, WaitingPayload};
use crate::handle::{Attachment, ShardHandle, UpgradedSocket};
use crate::peer::PeerDetails;
use crate::peer_log;
use crate::retained::Retained;
use crate::session_token::{OwnedSessionRequest, SessionToken, TokenKey};
use crate::sink::{plain_encoding, resumable_format};
use crate::stats::add;

/// Ended sessions of which the reason is kept, for peers that try to resume them.
const ENDED_MAX: usize = 1024;

/// A session that outlives its connections.
#[derive(Debug)]
struct Resumable {
    retained: Retained,
    /// Messages of the peer that the shard has taken, including one that waits.
    received: u64,
    /// The message of an earlier connection that has to wait. The engine may have read records for it, so it must be the next one of the
    /// session.
    waiting: Option<Box<Waiting>>,
    /// The peer of that connection, for a message that renews the login.
    peer: Option<Arc<PeerDetails>>,
    detached: Option<Detached>,
}

/// The state that a session without a transport takes from its last connection.
#[derive(Clone, Copy, Debug)]
struct Detached {
    /// The number of messages that were sent before.
    sent: u64,
    /// As in [`State::inflight_bytes`].
    inflight_bytes: u32,
    is_watched: bool,
    /// Whether the main session of the connection was not open, or had another slot.
    is_apart: bool,
}

#[derive(Debug)]
struct Waiting {
    payload: Box<WaitingPayload>,
    /// The message is decoded again, and its meaning may depend on earlier ones of its connection.
    codec: ConnectionCodec,
    parts: Parts,
}

/// A connection that is to become the transport of a session.
#[derive(Debug)]
struct Resume {
    from: Key,
    token: Option<SessionToken>,
    received: u64,
    /// Without it the reply is a message to the peer.
    reply: Option<oneshot::Sender<Result<u64, ResumeRefusal>>>,
}

#[derive(Debug)]
enum Pending {
    Keep {
        key: Key,
        /// Without it the reply is a message to the peer.
        reply: Option<oneshot::Sender<SessionToken>>,
    },
    Resume(Resume),
}

/// Messages that sessions with the same ranges share.
#[derive(Debug)]
struct Shared {
    format: Format,
    spans: Vec<Span>,
    frames: Arc<[u8]>,
}

/// The sessions of a shard that outlive their connections.
#[derive(Debug)]
pub(super) struct ResumableSessions {
    token_key: TokenKey,
    sessions: HashMap<Key, Resumable>,
    detached_count: usize,
    /// Requests of this turn.
    pending: Vec<Pending>,
    /// Connections that nothing is owed, so that they may move.
    ready: Vec<Resume>,
    /// The sessions that got messages in this turn.
    filled: Vec<Key>,
    /// Memory of all retained messages.
    bytes: usize,
    last: Option<Shared>,
    ended: HashMap<Key, ResumeRefusal>,
    ended_order: VecDeque<Key>,
}

impl ResumableSessions {
    /// No sessions.
    pub(super) fn new(token_key: TokenKey) -> Self {
        Self {
            token_key,
            sessions: HashMap::new(),
            detached_count: 0,
            pending: Vec::new(),
            ready: Vec::new(),
            filled: Vec::new(),
            bytes: 0,
            last: None,
            ended: HashMap::new(),
            ended_order: VecDeque::new(),
        }
    }

    /// The token of a session.
    pub(super) fn token(&self, session: SessionId) -> SessionToken {
        self.token_key.token(session)
    }

    /// Whether this node has made the token.
    pub(super) fn has_made(&self, token: &SessionToken) -> bool {
        self.token_key.has_made(token)
    }

    /// The number of these sessions.
    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// The number of sessions without a transport.
    pub(super) fn detached_count(&self) -> usize {
        self.detached_count
    }

    /// Memory of all retained messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory of the messages of one session.
    pub(super) fn bytes_of(&self, key: Key) -> usize {
        let session = self.sessions.get(&key);
        session.map_or(0, |session| session.retained.bytes())
    }

    /// Whether the session exists and outlives its connections.
    pub(super) fn has(&self, key: Key) -> bool {
        self.sessions.contains_key(&key)
    }

    /// Whether the session has no transport.
    pub(super) fn is_detached(&self, key: Key) -> bool {
        let session = self.sessions.get(&key);
        session.is_some_and(|session| session.detached.is_some())
    }

    /// The sessions without a transport.
    pub(super) fn detached(&self) -> impl Iterator<Item = Key> {
        let sessions = self.sessions.iter();
        let detached = sessions.filter(|(_, session)| session.detached.is_some());
        detached.map(|(key, _)| *key)
    }

    /// Whether a message of an earlier connection of the session has to wait.
    pub(super) fn has_waiting(&self, key: Key) -> bool {
        let session = self.sessions.get(&key);
        session.is_some_and(|session| session.waiting.is_some())
    }

    /// The peer whose message of an earlier connection is handled now.
    pub(super) fn peer(&self, key: Key) -> Option<Arc<PeerDetails>> {
        self.sessions.get(&key)?.peer.clone()
    }

    /// The number of messages for a session; all numbers if it does not outlive its connection.
    fn sent_to(&self, key: Key) -> u64 {
        let session = self.sessions.get(&key);
        session.map_or(u64::MAX, |session| session.retained.next())
    }

    fn detached_mut(&mut self, key: Key) -> Option<&mut Detached> {
        self.sessions.get_mut(&key)?.detached.as_mut()
    }

    /// Counts a message of the peer.
    pub(super) fn count_received(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&super::key(session)) {
            session.received += 1;
        }
    }

    /// Counts posts of a detached session as in flight. Returns false if the session is not detached.
    pub(super) fn charge(&mut self, key: Key, bytes: u32) -> bool {
        let detached = self.detached_mut(key);
        detached.is_some_and(|detached| {
            detached.inflight_bytes += bytes;
            true
        })
    }

    /// Notes that posts of a detached session were handled. Returns false if the session is not detached.
    pub(super) fn confirm_posts(&mut self, key: Key, bytes: u32) -> bool {
        let detached = self.detached_mut(key);
        detached.is_some_and(|detached| {
            detached.inflight_bytes -= bytes;
            true
        })
    }

    /// Keeps `count` messages for a session, and sends them if it has a transport.
    pub(super) fn deliver(
        &mut self,
        key: Key,
        (format, spans): (Format, &[Span]),
        count: u64,
        logs: &TurnLogs,
        event_loop: &mut EventLoop<State>,
    ) {
        if !self.sessions.contains_key(&key) {
            return;
        }
        let last = self.last.as_ref();
        let frames = match last.filter(|last| last.format == format && last.spans == spans) {
            Some(last) => Arc::clone(&last.frames),
            None => {
                let slices = log_ranges(format, spans);
                let slices: Vec<u8> = slices
                    .flat_map(|range| logs.slice(range.format, &range.range).iter().copied())
                    .collect();
                let frames: Arc<[u8]> = slices.into();
                self.last = Some(Shared {
                    format,
                    spans: spans.to_vec(),
                    frames: Arc::clone(&frames),
                });
                frames
            }
        };
        if self.keep_frames(key, || frames, count) {
            event_loop.push_ranges(key, log_ranges(format, spans));
        }
    }

    /// Keeps `count` messages for the peer of a connection, if its sessions outlive it. Returns whether it has a transport.
    pub(super) fn keep_frames(
        &mut self,
        key: Key,
        frames: impl FnOnce() -> Arc<[u8]>,
        count: u64,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&key) else {
            return true;
        };
        let before = session.retained.bytes();
        session.retained.push(frames(), count);
        self.bytes += session.retained.bytes() - before;
        self.filled.push(key);
        session.detached.is_none()
    }

    /// Forgets the ranges of the turn.
    pub(super) fn begin_turn(&mut self) {
        self.last = None;
    }

    /// Notes that the peer has the first `received` messages. Returns false if it can't have that many, or has missed one that was dropped.
    fn confirm(&mut self, key: Key, received: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&key) else {
            return false;
        };
        let before = session.retained.bytes();
        let is_possible = session.retained.confirm(received);
        self.bytes -= before - session.retained.bytes();
        is_possible
    }

    /// Drops the oldest messages above the bound, but none that a detached session has not been sent. Returns whether the rest is within
    /// the bound.
    fn limit(&mut self, key: Key, bytes_max: usize) -> bool {
        let Some(session) = self.sessions.get_mut(&key) else {
            return true;
        };
        let before = session.retained.bytes();
        let sent = match &session.detached {
            Some(detached) => detached.sent,
            None => session.retained.next(),
        };
        let is_within = session.retained.limit(bytes_max, sent);
        self.bytes -= before - session.retained.bytes();
        is_within
    }

    /// Forgets a session that ends, and keeps the reason for a peer that tries to resume it.
    pub(super) fn end(&mut self, key: Key, reason: ResumeRefusal) {
        let Some(session) = self.sessions.remove(&key) else {
            return;
        };
        self.bytes -= session.retained.bytes();
        self.detached_count -= usize::from(session.detached.is_some());
        if self.ended_order.len() >= ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.ended.insert(key, reason);
        self.ended_order.push_back(key);
    }

    /// The session of the shard with this key.
    fn find(&self, key: Key) -> Result<Key, ResumeRefusal> {
        match self.sessions.contains_key(&key) {
            true => Ok(key),
            false => Err(*self.ended.get(&key).unwrap_or(&ResumeRefusal::Unknown)),
        }
    }
}

impl Conductor {
    /// Handles a request of a peer about its session.
    pub(super) fn request_session(&mut self, session: SessionId, request: OwnedSessionRequest) {
        let key = super::key(session);
        match request {
            OwnedSessionRequest::Confirm { received } => {
                if self.resumable.sent_to(key) < received {
                    return self.close(key, CloseCause::Confirmation);
                }
                self.resumable.confirm(key, received);
            }
            OwnedSessionRequest::Answer { frames } if frames.is_empty() => {}
            OwnedSessionRequest::Answer { frames } => self.event_loop.push_bytes(key, &frames),
            OwnedSessionRequest::Join {
                namespace,
                credentials,
            } => self.join(key, &namespace, &credentials),
            OwnedSessionRequest::Leave { namespace } => self.leave(key, namespace.as_deref()),
            OwnedSessionRequest::Close => self.close(key, CloseCause::Peer(None)),
            OwnedSessionRequest::Probe { frames } => self.probe_switch(key, &frames),
            OwnedSessionRequest::Switch => self.request_switch(key),
            OwnedSessionRequest::Keep => self.pend(key, Pending::Keep { key, reply: None }),
            OwnedSessionRequest::Resume { token, received } => {
                let resume = Resume {
                    from: key,
                    token,
                    received,
                    reply: None,
                };
                self.pend(key, Pending::Resume(resume));
            }
        }
    }

    /// Handles the request that a connection brings along.
    pub(super) fn attach(&mut self, key: Key, attachment: Attachment) {
        let pending = match attachment {
            Attachment::Switch { token } => return self.begin_switch(key, token),
            Attachment::Resumable(reply) => Pending::Keep {
                key,
                reply: Some(reply),
            },
            Attachment::Resume {
                token,
                received,
                reply,
            } => Pending::Resume(Resume {
                from: key,
                token: Some(token),
                received,
                reply,
            }),
        };
        self.pend(key, pending);
    }

    /// Stops reading a connection until its request is done, because the meaning of its next message depends on that.
    fn pend(&mut self, key: Key, pending: Pending) {
        self.hold(key, PauseReasons::TRANSPORT);
        self.has_unflushed = true;
        self.resumable.pending.push(pending);
    }

    /// Handles the requests of the turn. The flush owes no session anything now, so formats may change.
    pub(super) fn settle_requests(&mut self) {
        for pending in std::mem::take(&mut self.resumable.pending) {
            match pending {
                Pending::Keep { key, reply } => self.keep(key, reply),
                // The connection may have queued sends, which know it by its key.
                Pending::Resume(resume) => self.resumable.ready.push(resume),
            }
        }
    }

    fn keep(&mut self, key: Key, reply: Option<oneshot::Sender<SessionToken>>) {
        let session = self.session(key);
        let connection = self.event_loop.connections_mut().get_mut(key);
        let Some(connection) = connection.filter(|it| it.state.phase == Phase::Open) else {
            return;
        };
        connection.state.binding.keep();
        if let Some(format) = self.engine.format(session)
            && let Some(owed) = self.engine.set_format(session, resumable_format(format))
        {
            debug_assert!(false, "the flush has just sent {owed:?}");
        }
        self.resumable.sessions.entry(key).or_insert(Resumable {
            retained: Retained::default(),
            received: 0,
            waiting: None,
            peer: None,
            detached: None,
        });
        let token = self.resumable.token(session);
        match reply {
            Some(reply) => {
                // The caller may have stopped waiting. Nothing else can resume the session then, and it ends at its deadline.
                let _ = reply.send(token);
            }
            None => self.reply(
                key,
                SessionReply::Kept {
                    token: &token.to_string(),
                },
            ),
        }
        self.release(key, PauseReasons::TRANSPORT);
    }

    /// Sends a reply behind the messages of the turn.
    fn reply(&mut self, key: Key, reply: SessionReply<'_>) {
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        let protocol = connection.state.codec.protocol();
        let format = self.engine.format(self.session(key));
        let variant = format.map_or_else(Default::default, |format| plain_encoding(format).variant);
        let mut frame = Vec::new();
        protocol.encode_session_reply(variant, reply, &mut frame);
        self.event_loop.push_bytes(key, &frame);
    }

    /// Moves connections to the sessions that they resume. No send is queued.
    pub(super) fn resume_sessions(&mut self) {
        for mut resume in std::mem::take(&mut self.resumable.ready) {
            let from = resume.from;
            // A peer without a login must not choose its shard with an invented token.
            let is_real = |token: &SessionToken| self.resumable.has_made(token);
            resume.token = resume.token.filter(is_real);
            if !self.is_open(from) {
                continue;
            }
            let is_logged_in = self.user(from).is_some();
            if let Some(token) = resume.token
                && let Some(shard) = self.handles.get(usize::from(token.shard()))
                && shard.index() != self.address.shard
                && !is_logged_in
            {
                self.hand_on(&shard.clone(), token, resume);
                continue;
            }
            let found = match is_logged_in || self.resumable.has(from) {
                true => Err(ResumeRefusal::LoggedIn),
                false => self.find_session(resume.token),
            };
            if let Ok(key) = found
                && let Some(old) = self.event_loop.connections().get(key)
                && old.state.phase == Phase::Closing
            {
                // The end of its input decides whether the session outlives it.
                self.resumable.ready.push(resume);
                continue;
            }
            if let Err(refusal) = found.and_then(|key| self.resume(key, &mut resume)) {
                add(&self.stats().resumes_refused, 1);
                match resume.reply {
                    Some(reply) => {
                        // The caller may have stopped waiting.
                        let _ = reply.send(Err(refusal));
                    }
                    None => self.reply(from, SessionReply::Refused(refusal)),
                }
                self.release(from, PauseReasons::TRANSPORT);
            }
        }
    }

    /// Moves a connection to the shard of the session that it resumes. There it is handled like a connection of the front.
    fn hand_on(&mut self, shard: &ShardHandle, token: SessionToken, resume: Resume) {
        let Resume { from, received, .. } = resume;
        let Some(released) = self.release_transport(from) else {
            // The peer has not read the answer to its introduction yet.
            return self.resumable.ready.push(resume);
        };
        let Ok(Released {
            state,
            socket,
            unread,
            tls,
        }) = released
        else {
            return;
        };
        let Some(peer) = state.peer else { return };
        shard.hand_over(vec![UpgradedSocket {
            stream: socket,
            tls,
            unread: unread.into(),
            peer,
            permit: state.permit,
            is_deflated: state.decoder.has_deflate(),
            protocol: state.codec.protocol(),
            attachment: Some(Box::new(Attachment::Resume {
                token,
                received,
                reply: resume.reply,
            })),
        }]);
    }

    fn find_session(&self, token: Option<SessionToken>) -> Result<Key, ResumeRefusal> {
        let token = token.filter(|token| token.session.address.shard == self.address.shard);
        let token = token.ok_or(ResumeRefusal::Unknown)?;
        self.resumable.find(super::key(token.session))
    }

    /// Makes a connection the transport of a session, and sends the messages that its peer has not received.
    fn resume(&mut self, key: Key, resume: &mut Resume) -> Result<(), ResumeRefusal> {
        let Resume { from, received, .. } = *resume;
        let connection = self.event_loop.connections().get(from);
        let protocol = connection.map(|connection| connection.state.codec.protocol());
        let format = self.engine.format(self.session(key));
        if protocol != format.map(|format| plain_encoding(format).protocol) {
            return Err(ResumeRefusal::Unknown);
        }
        // The peer may notice the loss of its old connection before the server does. The token proves that it is the same peer, so the old
        // connection ends here. The retained messages include those that it did not send.
        if !self.resumable.is_detached(key) {
            self.lose(key);
        }
        if !self.resumable.is_detached(key) {
            return Err(ResumeRefusal::Ended);
        }
        if self.event_loop.connections().get(key).is_some() {
            // The close handshake of the old connection has not ended.
            self.cut_off(key);
        }
        if !self.resumable.confirm(key, received) {
            self.end_detached(key, ResumeRefusal::Missed);
            return Err(ResumeRefusal::Missed);
        }
        // The session that began with the connection has done nothing. It ends, and the connection takes the slot of the resumed one.
        let unused = self.session(from);
        self.logins.remove(&from);
        self.handle(Input::Closed { session: unused });
        let relocated = self.event_loop.relocate(from, key);
        self.free_key(from);
        let connection = self.event_loop.connections_mut().get_mut(key);
        let (Some(connection), Some(session)) = (connection, self.resumable.sessions.get_mut(&key))
        else {
            return Err(ResumeRefusal::Ended);
        };
        let Some(detached) = session.detached.take() else {
            return Err(ResumeRefusal::Ended);
        };
        self.resumable.detached_count -= 1;
        if detached.is_watched {
            connection.watch();
        }
        let state = &mut connection.state;
        state.binding = Binding::Kept;
        state.binding.set_apart(detached.is_apart);
        state.peer = None;
        state.inflight_bytes = detached.inflight_bytes;
        state.pause_reasons.remove(PauseReasons::TRANSPORT);
        if session.waiting.is_some() {
            // The next message of the session is the one that waits.
            state.pause_reasons.add(PauseReasons::WAITING);
        }
        if detached.inflight_bytes as usize > self.limits.inflight_bytes_max {
            state.pause_reasons.add(PauseReasons::CREDIT);
            self.without_credit.push(key);
        }
        let is_read = state.pause_reasons.is_empty();
        if session.waiting.is_none() {
            // The socket of the connection is known.
            session.peer = None;
        }
        let taken = session.received;
        match resume.reply.take() {
            Some(reply) => {
                // The caller may have stopped waiting.
                let _ = reply.send(Ok(taken));
            }
            None => self.reply(key, SessionReply::Resumed { received: taken }),
        }
        if let Some(session) = self.resumable.sessions.get(&key) {
            for frames in session.retained.frames() {
                self.event_loop.push_bytes(key, frames);
            }
        }
        add(&self.stats().resumes, 1);
        self.handle_each(key, |session| Input::Attached { session });
        // The engine may wait for a notice that the last connection can't give any longer.
        self.event_loop.await_drained(key);
        match (relocated, is_read) {
            // The kernel does not report events of the connection. The session continues, and the peer tries again.
            (Err(_), _) => self.lose(key),
            (Ok(()), true) => self.event_loop.resume(key),
            (Ok(()), false) => {}
        }
        Ok(())
    }

    /// Takes the session of a connection over, if it outlives the connection. The caller then ends the connection, which the engine no
    /// longer knows.
    pub(super) fn outlive(&mut self, key: Key) -> bool {
        if !self.resumable.has(key) || self.resumable.is_detached(key) || self.is_draining {
            return false;
        }
        if self.user(key).is_none() {
            // Peers without a login would fill the memory with such sessions.
            return false;
        }
        let has_waiting = self.event_loop.connections().get(key);
        let has_waiting = has_waiting.is_some_and(|it| it.state.waiting.is_some());
        let peer = has_waiting.then(|| self.peer(key)).flatten();
        let connection = self.event_loop.connections_mut().get_mut(key);
        let (Some(connection), Some(entry)) = (connection, self.resumable.sessions.get_mut(&key))
        else {
            return false;
        };
        let is_watched = connection.is_watched();
        let state = &mut connection.state;
        if let Some(payload) = state.waiting.take() {
            let next = ConnectionCodec::new(state.codec.protocol());
            let codec = std::mem::replace(&mut state.codec, next);
            let parts = std::mem::take(&mut state.parts);
            let waiting = Waiting {
                payload,
                codec,
                parts,
            };
            entry.waiting = Some(Box::new(waiting));
            entry.peer = peer;
        }
        entry.detached = Some(Detached {
            sent: entry.retained.next(),
            inflight_bytes: std::mem::take(&mut state.inflight_bytes),
            is_watched,
            is_apart: state.binding.is_apart(),
        });
        self.resumable.detached_count += 1;
        state.phase = Phase::Lingering;
        add(&self.stats().detaches, 1);
        self.handle_each(key, |session| Input::Detached { session });
        true
    }

    /// Ends a session without a transport.
    pub(super) fn end_detached(&mut self, key: Key, reason: ResumeRefusal) {
        if !self.resumable.is_detached(key) {
            return;
        }
        let session = self.session(key);
        let bytes = self.resumable.bytes_of(key);
        let user = self.engine.user(session).map(Name::as_str);
        peer_log::peer_line("detached sessions closed", || {
            tracing::info!(user, bytes, %reason, "closed a session without a connection");
        });
        self.resumable.end(key, reason);
        self.end_borrowers(key);
        self.logins.remove(&key);
        self.handle(Input::Closed { session });
        // Otherwise the key is freed with the connection whose close handshake has not ended.
        if self.event_loop.connections().get(key).is_none() {
            self.free_key(key);
        }
    }

    /// Handles that the engine closes a session that may have no transport.
    pub(super) fn close_detached(&mut self, key: Key, reason: CloseReason) {
        let reason = match reason {
            CloseReason::DetachedTooLong => ResumeRefusal::DetachedTooLong,
            _ => ResumeRefusal::Ended,
        };
        self.end_detached(key, reason);
    }

    pub(super) fn end_all_detached(&mut self) {
        let keys: Vec<Key> = self.resumable.detached().collect();
        for key in keys {
            self.end_detached(key, ResumeRefusal::Ended);
        }
    }

    /// Drops the messages that a session must not get because it has lost a right to them.
    pub(super) fn forget_retained(&mut self, key: Key) {
        if self.resumable.bytes_of(key) == 0 {
            return;
        }
        if self.resumable.is_detached(key) {
            // It has not been sent some of them, and it would not notice that they are missing.
            return self.end_detached(key, ResumeRefusal::Ended);
        }
        // If the connection breaks before the peer has received all of them, the session can't be resumed.
        self.resumable.limit(key, 0);
    }

    /// Drops the oldest messages of sessions that exceed the bound, and ends detached sessions for which too much waits.
    pub(super) fn settle_retained(&mut self) {
        let bytes_max = self.limits.retained_bytes_max;
        for key in std::mem::take(&mut self.resumable.filled) {
            if !self.resumable.limit(key, bytes_max) {
                self.end_detached(key, ResumeRefusal::OutboxFull);
            }
        }
    }

    /// Passes the waiting message of an earlier connection to the engine again.
    pub(super) fn give_earlier(&mut self, key: Key) {
        let entry = self.resumable.sessions.get_mut(&key);
        let Some(waiting) = entry.and_then(|entry| entry.waiting.take()) else {
            return;
        };
        let session = self.session(key);
        let Waiting {
            payload,
            codec,
            parts,
        } = &*waiting;
        let mut flow = Flow::Taken;
        // It was a message when it arrived.
        if let Ok(read) = codec.read(parts, payload.kind, &payload.bytes)
            && let Some(message) = read.message()
        {
            let (sink, confirmations) = (&mut self.sink, &self.confirmations);
            flow = sink.give(&mut self.engine, confirmations, self.now, session, &message);
        }
        let bytes = parts.bytes() + payload.bytes.len();
        self.has_unflushed = true;
        self.charge(key, bytes);
        self.engine.add_work(session, bytes);
        if flow == Flow::Taken {
            return self.release(key, PauseReasons::WAITING);
        }
        if let Some(target) = self.sink.awaited.take() {
            self.congested.push((key, target));
        }
        if let Some(entry) = self.resumable.sessions.get_mut(&key) {
            entry.waiting = Some(waiting);
        }
    }
}
