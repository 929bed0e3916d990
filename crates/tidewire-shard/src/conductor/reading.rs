//! Reading: from the bytes of a socket to calls of the engine, and the reasons not to read.

use std::borrow::Cow;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{Flow, Input};
use tidewire_core::engine::Shard;
use tidewire_core::message::Message;
use tidewire_core::time::Now;
use tidewire_net::connection::{Connection, Key};
use tidewire_net::flush_policy::TURN_BYTES_MAX;
use tidewire_net::read_buffer::ReadOutcome;
use tidewire_wire::frame::websocket::{self, Decoded, Event, FrameError, Opcode, PayloadKind};
use tidewire_wire::protocol::{
    ForeignPayload, Introduction, Namespace, Payload, SessionRequest, Variant,
};

use super::namespaces::{Member, Namespaces};
use super::resumable::ResumableSessions;
use super::{Conductor, key};
use crate::connection::{Binding, CloseCause, PauseReasons, Phase, State, WaitingPayload};
use crate::credit::Confirmations;
use crate::session_token::OwnedSessionRequest;
use crate::sink::{DeferredEffect, Sink, Target, resumable_format};
use crate::stats::{ShardStats, add, topic_index};

/// For shorter messages, the engine's cost per message includes their bytes.
pub(super) const UNCOUNTED_PAYLOAD_MAX: usize = 256;
/// A read that costs at least this much work, the bytes included, is expensive: the connection is read behind the cheap ones afterwards.
const EXPENSIVE_READ: u64 = 64 << 10;
/// A turn that makes expensive reads has one part in this many of the work of other turns, because input that arrives during the turn waits for it.
const EXPENSIVE_PARTS: u64 = 4;
/// Cost of inflating a byte, relative to reading it.
const INFLATION_WORK: usize = 3;

impl Conductor {
    pub(super) fn read_sockets(&mut self) {
        for _ in 0..self.event_loop.readable_count() {
            let work = self.engine.work().wrapping_sub(self.turn_work_start);
            let work_max = self.limits.turn_work_max as u64;
            let is_long = match self.expensive_reads.have_begun() {
                false => work >= work_max,
                // The parts of a large message cost no work before the last one, but they are copied.
                true => work + self.turn_bytes as u64 >= work_max / EXPENSIVE_PARTS,
            };
            if is_long || self.turn_bytes >= TURN_BYTES_MAX || !self.may_read() {
                return;
            }
            if self.event_loop.is_next_expensive()
                && !self.expensive_reads.are_due(self.has_unflushed)
            {
                return;
            }
            let Some((key, outcome)) = self.event_loop.read_next(&mut self.buffer) else {
                return;
            };
            match outcome {
                ReadOutcome::Drained(count) | ReadOutcome::More(count) => {
                    self.turn_bytes += count;
                    let before = self.engine.work();
                    self.decode(key);
                    if self.exchanges.has_input() {
                        self.give_input(key);
                    }
                    let work = self.engine.work().wrapping_sub(before);
                    let is_expensive = work + count as u64 >= EXPENSIVE_READ;
                    self.event_loop.note_cost(key, is_expensive);
                }
                ReadOutcome::End | ReadOutcome::Failed(_) => self.lose(key),
            }
        }
    }

    /// Handles all whole frames in the read buffer, unless the connection must not be read.
    pub(super) fn decode(&mut self, key: Key) {
        // Frames are handled one by one, and the state is read again for each: a message may close the connection, or pause it because it
        // has to wait or has too many bytes in flight. The later frames then stay in the buffer, so a connection's messages are never
        // reordered. Effects run between two frames, because the answer to the first may change how the second is handled. The rest of
        // the buffer is stored with its connection at the end, because all connections of the shard share this buffer.
        let session = self.session(key);
        let mut needed = 0;
        while let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            let state = &mut connection.state;
            if state.phase != Phase::Open {
                return self.buffer.discard();
            }
            // The shard keeps the peer only until the login.
            let bytes_max = match state.peer {
                Some(_) => self.login_bytes_max,
                None => self.message_bytes_max,
            };
            // All parts of a message together have the limit of one.
            let parts_bytes = state.parts.bytes();
            let bytes_max = bytes_max.saturating_sub(parts_bytes);
            let unread = self.buffer.unread();
            if !state.pause_reasons.is_empty() || unread.is_empty() {
                break;
            }
            let Decoded { consumed, event } =
                match state
                    .decoder
                    .decode_inflated(unread, bytes_max, &mut self.inflater)
                {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        add(&self.own.stats().protocol_errors, 1);
                        if error == FrameError::TooBig {
                            let bytes = connection
                                .state
                                .decoder
                                .announced_bytes(self.buffer.unread());
                            self.log_too_big(key, bytes);
                        }
                        self.close(key, CloseCause::Frame(error));
                        continue;
                    }
                };
            let mut posted_bytes = None;
            let mut refused = None;
            match event {
                Event::Message { kind, payload } => {
                    self.has_unflushed = true;
                    let call = Call {
                        engine: &mut self.engine,
                        sink: &mut self.sink,
                        resumable: &mut self.resumable,
                        namespaces: &mut self.namespaces,
                        stats: self.own.stats(),
                        confirmations: &self.confirmations,
                        now: self.now,
                        session,
                        is_again: false,
                    };
                    let given = call.give(session, connection, kind, &payload);
                    let message_bytes = parts_bytes + payload.len();
                    posted_bytes = (!self.sink.targets.is_empty()).then_some(message_bytes);
                    match given {
                        Ok(Flow::Wait) => {
                            let state = &mut connection.state;
                            let bytes = payload.into_owned().into();
                            state.waiting = Some(Box::new(WaitingPayload { kind, bytes }));
                            match self.sink.awaited.take() {
                                Some(target) => self.await_shard(key, target),
                                None => {
                                    state.pause_reasons.add(PauseReasons::WAITING);
                                    self.event_loop.pause(key);
                                }
                            }
                        }
                        Ok(Flow::Taken) => {
                            if payload.len() > UNCOUNTED_PAYLOAD_MAX {
                                let inflated = usize::from(matches!(payload, Cow::Owned(_)));
                                let work = payload.len() * (1 + inflated * INFLATION_WORK);
                                let payer = self.namespaces.payer(session);
                                self.engine.add_work(payer, work);
                            }
                        }
                        Err(cause) => refused = Some(cause),
                    }
                }
                Event::Ping(payload) => {
                    let mut pong = Vec::new();
                    websocket::encode(Opcode::Pong, payload, &mut pong);
                    self.pongs.push((key, pong));
                    self.has_unflushed = true;
                }
                Event::Pong(_) => {}
                Event::Close { code, .. } => self.close(key, CloseCause::Peer(code)),
                Event::NeedMore { bytes } => {
                    needed = bytes;
                    self.buffer.consume(consumed);
                    break;
                }
            }
            self.buffer.consume(consumed);
            if let Some(cause) = refused {
                add(&self.own.stats().protocol_errors, 1);
                self.close(key, cause);
            }
            if let Some(bytes) = posted_bytes {
                self.charge(key, bytes);
            }
            if !self.sink.deferred.is_empty() {
                self.run_deferred();
            }
        }
        self.event_loop.store_rest(key, &mut self.buffer, needed);
        self.recount(key);
    }

    /// Counts the bytes that the connection keeps of messages that are incomplete or have to wait.
    pub(super) fn recount(&mut self, key: Key) {
        if let Some(connection) = self.event_loop.connections().get(key) {
            let state = &connection.state;
            let waiting = state.waiting.as_ref().map_or(0, |it| it.bytes.len());
            let kept = waiting + state.decoder.fragment_bytes() + state.parts.size();
            self.event_loop.recount(key, kept);
        }
    }

    /// Passes the waiting message to the engine again.
    pub(super) fn give_again(&mut self, key: Key) {
        let session = self.session(key);
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        let Some(payload) = connection.state.waiting.take() else {
            return;
        };
        let bytes = connection.state.parts.bytes() + payload.bytes.len();
        let call = Call {
            engine: &mut self.engine,
            sink: &mut self.sink,
            resumable: &mut self.resumable,
            namespaces: &mut self.namespaces,
            stats: self.own.stats(),
            confirmations: &self.confirmations,
            now: self.now,
            session,
            is_again: true,
        };
        let given = call.give(session, connection, payload.kind, &payload.bytes);
        self.has_unflushed = true;
        self.charge(key, bytes);
        if bytes > UNCOUNTED_PAYLOAD_MAX {
            // The message was decoded again.
            let payer = self.namespaces.payer(session);
            self.engine.add_work(payer, bytes);
        }
        match given {
            Ok(Flow::Wait) => {
                let target = self.sink.awaited.take();
                if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
                    connection.state.waiting = Some(payload);
                    if target.is_some() {
                        connection.state.pause_reasons.remove(PauseReasons::WAITING);
                    }
                }
                if let Some(target) = target {
                    self.await_shard(key, target);
                }
            }
            Ok(Flow::Taken) => {
                self.recount(key);
                self.release(key, PauseReasons::WAITING);
            }
            Err(cause) => {
                add(&self.own.stats().protocol_errors, 1);
                self.close(key, cause);
            }
        }
    }

    /// Counts the posts of a message of `bytes` as in flight.
    pub(super) fn charge(&mut self, key: Key, bytes: usize) {
        let mut message_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut charged = 0;
        let mut congested = None;
        for target in self.sink.targets.drain(..) {
            charged += self
                .credit
                .charge(target, key, std::mem::take(&mut message_bytes));
            if self.sink.has_congested && self.confirmations.is_congested(target) {
                congested = Some(Target::Shard(target));
            }
        }
        if self.resumable.charge(key, charged) {
            return;
        }
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        let state = &mut connection.state;
        state.inflight_bytes += charged;
        if state.inflight_bytes as usize > self.limits.inflight_bytes_max
            && !state.pause_reasons.has(PauseReasons::CREDIT)
        {
            self.without_credit.push(key);
            add(&self.own.stats().inflight_pauses, 1);
            self.hold(key, PauseReasons::CREDIT);
        }
        if let Some(target) = congested {
            self.await_shard(key, target);
        }
    }

    pub(super) fn hold(&mut self, key: Key, reason: PauseReasons) {
        if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            connection.state.pause_reasons.add(reason);
            self.event_loop.pause(key);
        }
    }

    pub(super) fn release(&mut self, key: Key, reason: PauseReasons) {
        if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            connection.state.pause_reasons.remove(reason);
            if connection.state.pause_reasons.is_empty() {
                self.event_loop.resume(key);
            }
        }
    }
}

/// The session of the same shard with this key.
pub(super) fn with_key(session: SessionId, key: Key) -> SessionId {
    SessionId {
        index: key.index,
        generation: key.generation,
        ..session
    }
}

pub(super) const fn violation(text: &'static str) -> CloseCause {
    CloseCause::Foreign(ForeignPayload::Violation(text))
}

/// The context to pass one message to the engine while its bytes are in the read buffer.
pub(super) struct Call<'a> {
    pub(super) engine: &'a mut Shard,
    pub(super) sink: &'a mut Sink,
    resumable: &'a mut ResumableSessions,
    pub(super) namespaces: &'a mut Namespaces,
    pub(super) stats: &'a ShardStats,
    pub(super) confirmations: &'a Confirmations,
    pub(super) now: Now,
    /// The session in the slot of the connection.
    pub(super) session: SessionId,
    /// Whether the message had to wait.
    pub(super) is_again: bool,
}

impl Call<'_> {
    /// Passes a payload to the engine, or returns why the connection has to be closed.
    fn give(
        mut self,
        session: SessionId,
        connection: &mut Connection<State>,
        kind: PayloadKind,
        payload: &[u8],
    ) -> Result<Flow, CloseCause> {
        let State { codec, parts, .. } = &mut connection.state;
        let read = codec.read(parts, kind, payload);
        let read = read.map_err(CloseCause::Foreign)?;
        if read.is_unfinished() {
            codec.advance(parts, &read);
            return Ok(Flow::Taken);
        }
        if self.engine.has_backed_namespaces()
            && let Some(message) = read.application()
            && let Some(given) = self.give_backend(key(session), connection, message, &read)
        {
            return given;
        }
        if let Some(request) = read.session_request() {
            return self.request(session, connection, request, &read);
        }
        let Some(message) = read.message() else {
            add(&self.stats.undecodable, 1);
            if connection.state.binding.is_kept() && !self.is_again {
                self.resumable.count_received(session);
            }
            self.engine
                .handle(self.now, Input::Undecodable { session }, self.sink);
            return Ok(Flow::Taken);
        };
        let flow = self.give_message(session, connection, &message)?;
        if flow == Flow::Taken {
            let State { codec, parts, .. } = &mut connection.state;
            codec.advance(parts, &read);
        }
        Ok(flow)
    }

    /// Handles a payload with a request, or with a message for one of several sessions.
    fn request(
        mut self,
        session: SessionId,
        connection: &mut Connection<State>,
        request: SessionRequest<'_>,
        read: &Payload<'_>,
    ) -> Result<Flow, CloseCause> {
        let key = key(session);
        let binding = connection.state.binding;
        let member = match request {
            SessionRequest::Join { namespace, .. } | SessionRequest::Leave { namespace } => {
                Some(self.namespaces.find(key, binding, namespace))
            }
            SessionRequest::Within { namespace } => {
                let namespace = Namespace::Named(namespace);
                Some(self.namespaces.find(key, binding, namespace))
            }
            SessionRequest::Answer { namespace, .. } => {
                namespace.map(|namespace| self.namespaces.find(key, binding, namespace))
            }
            _ => None,
        };
        let mut flow = Flow::Taken;
        let mut to = session;
        match (request, member) {
            (SessionRequest::Join { .. }, Some(Member::Open(_))) => {
                return Err(violation("the namespace was joined before"));
            }
            (SessionRequest::Join { namespace, .. }, _) => {
                self.choose_variant(session, connection, read.next_variant());
                to = with_key(session, self.namespaces.main(key));
                let is_backed = self.engine.is_backed(Namespace::Main.name());
                if namespace == Namespace::Main && is_backed {
                    match self.engine.is_delayed(to) {
                        true => flow = Flow::Wait,
                        false => {
                            let binding = &mut connection.state.binding;
                            self.namespaces.main_joined(key, binding);
                        }
                    }
                } else if namespace == Namespace::Main {
                    flow = self.give_to(to, read);
                    if flow == Flow::Taken {
                        let binding = &mut connection.state.binding;
                        self.namespaces.main_joined(key, binding);
                    }
                } else if self.engine.is_delayed(to) {
                    // The delay of a connection is one of its main session.
                    flow = Flow::Wait;
                }
            }
            (_, Some(Member::Absent)) => {
                return Err(violation("the namespace was not joined"));
            }
            (
                SessionRequest::Within { .. } | SessionRequest::Answer { .. },
                Some(Member::Ended),
            ) => {
                // The server has ended the session, which the peer may not know yet.
                let State { codec, parts, .. } = &mut connection.state;
                codec.advance(parts, read);
                return Ok(Flow::Taken);
            }
            (SessionRequest::Within { .. }, Some(Member::Open(member))) => {
                to = with_key(session, member);
                flow = self.give_to(to, read);
            }
            _ => {}
        }
        self.namespaces.note_flow(key, super::key(to), flow);
        if flow == Flow::Taken {
            let is_backed = |name: &str| self.engine.is_backed(name);
            if let Some(request) = OwnedSessionRequest::of(request, is_backed) {
                let effect = DeferredEffect::SessionRequest(session, request);
                self.sink.deferred.push_back(effect);
            }
            let State { codec, parts, .. } = &mut connection.state;
            codec.advance(parts, read);
        }
        Ok(flow)
    }

    /// Gives the session in the slot of a connection the variant that its peer has chosen with its first message. Other sessions of the
    /// connection are opened later, with the right one.
    fn choose_variant(
        &mut self,
        session: SessionId,
        connection: &Connection<State>,
        variant: Variant,
    ) {
        if variant == Variant::default() {
            return;
        }
        let introduction = Introduction {
            variant,
            ..Introduction::default()
        };
        let format = connection.state.format(introduction);
        if let Some((format, spans)) = self.engine.set_format(session, format) {
            let effect = DeferredEffect::Send(session, format, spans);
            self.sink.deferred.push_back(effect);
        }
    }

    /// Passes the message of a payload to one of the sessions of its connection.
    fn give_to(&mut self, session: SessionId, read: &Payload<'_>) -> Flow {
        let Some(message) = read.message() else {
            return Flow::Taken;
        };
        if !self.is_again {
            add(&self.stats.messages_in[topic_index(&message)], 1);
        }
        let (sink, confirmations) = (&mut *self.sink, self.confirmations);
        sink.give(self.engine, confirmations, self.now, session, &message)
    }

    fn give_message(
        mut self,
        session: SessionId,
        connection: &mut Connection<State>,
        message: &Message<'_>,
    ) -> Result<Flow, CloseCause> {
        if !self.is_again {
            add(&self.stats.messages_in[topic_index(message)], 1);
        }
        let binding = connection.state.binding;
        if binding != Binding::Introduced {
            self.note_rare(session, connection, message);
            if binding.is_apart() {
                return self.give_apart(session, binding, message);
            }
        }
        Ok(self
            .sink
            .give(self.engine, self.confirmations, self.now, session, message))
    }

    /// Passes a message to the main session of a connection that has not joined, or has another slot.
    fn give_apart(
        self,
        session: SessionId,
        binding: Binding,
        message: &Message<'_>,
    ) -> Result<Flow, CloseCause> {
        let key = key(session);
        let to = match (message, self.namespaces.find(key, binding, Namespace::Main)) {
            // It shows that the peer is alive.
            (Message::Connection(_), _) => self.namespaces.main(key),
            (_, Member::Open(to)) => to,
            (_, Member::Ended) => return Ok(Flow::Taken),
            (_, Member::Absent) => return Err(violation("the namespace was not joined")),
        };
        let (sink, confirmations) = (self.sink, self.confirmations);
        let main = with_key(session, to);
        let flow = sink.give(self.engine, confirmations, self.now, main, message);
        self.namespaces.note_flow(key, to, flow);
        Ok(flow)
    }

    /// Notes a message of a peer that has not introduced itself, or of a session that outlives its connection.
    fn note_rare(
        &mut self,
        session: SessionId,
        connection: &mut Connection<State>,
        message: &Message<'_>,
    ) {
        let state = &mut connection.state;
        if state.binding.is_kept() && !self.is_again {
            self.resumable.count_received(session);
        }
        if state.binding.is_introduced() {
            return;
        }
        let Some(introduction) = state.codec.protocol().introduction(message) else {
            return;
        };
        state.binding.introduce();
        let mut format = state.format(introduction);
        if state.binding.is_kept() {
            format = resumable_format(format);
        }
        if introduction.coalesces {
            connection.watch();
        }
        if let Some((format, spans)) = self.engine.set_format(session, format) {
            let effect = DeferredEffect::Send(session, format, spans);
            self.sink.deferred.push_back(effect);
        }
    }
}
