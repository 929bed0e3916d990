//! Sessions of exchanges: their peers get messages in the answers to requests that wait for them, and send messages in the bodies of others.
//!
//! Such a session has a connection without a socket, so reading, limits, namespaces and memory work as for every connection. Its output
//! waits in the outbox of the connection until a request takes it, and the messages of a body are its input. The token of a session names
//! its connection. `switching.rs` gives the connection a socket. Decision: 0101.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tidewire_core::effect::CloseReason;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tidewire_net::read_buffer::READ_BYTES_MAX;
use tidewire_wire::frame::websocket::FrameError;
use tidewire_wire::protocol::{ExchangeRefusal, ForeignPayload, Introduction};
use tokio::sync::oneshot;

use super::Conductor;
use crate::connection::{CloseCause, PauseReasons, Phase, State};
use crate::exchange::{
    BodyFault, ExchangeMail, ForwardedId, NodeReply, OpenExchange, PollReply, PostReply,
};
use crate::exchange_request::Left;
use crate::peer::{ClientCertificate, PeerDetails};
use crate::session_token::SessionToken;
use crate::stats::add;

/// Approximate memory of a session of exchanges apart from its connection: its entries here.
const SESSION_BYTES: usize = 256;

/// A session whose messages are in the bodies of requests and answers.
#[derive(Debug)]
struct Exchange {
    /// The address and the certificate of the client that opened it, for later logins.
    address: SocketAddr,
    certificate: Option<ClientCertificate>,
    /// The request that waits for messages.
    poll: Option<PollReply>,
    /// Whether bytes of an answer have not left. Until then no other answer is made, so that a client that does not read occupies the
    /// memory of one.
    has_answer_out: bool,
    /// The request of another node that got this answer. That node reports when its bytes have left.
    answered_there: Option<ForwardedId>,
    /// Whether a change of rights waits for these bytes.
    is_marked: bool,
    post: Option<Post>,
    /// When the session ends if no request waits for messages until then.
    deadline: Option<Instant>,
    /// The connection that may become the transport of the session.
    switch: Option<Key>,
    /// Whether its peer has tested that connection. Then no request waits.
    is_probed: bool,
    /// Whether the session has ended while no request waited.
    is_late: bool,
}

/// A request that brings messages.
#[derive(Debug)]
struct Post {
    reply: PostReply,
    /// Its body, and how many bytes of it were given to the connection. Without it the front still reads the body.
    body: Option<(Bytes, usize)>,
    /// Whether the first part of the body was given.
    has_begun: bool,
}

/// The sessions of exchanges of a shard.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    sessions: HashMap<Key, Exchange>,
    /// Sessions for which no request waits, by their deadlines.
    unpolled: BTreeSet<(Instant, Key)>,
    /// Sessions whose waiting request may have an answer in this turn.
    due: Vec<Key>,
    /// The bodies that were not taken completely.
    posted_count: usize,
    posted_bytes: usize,
    /// Connections that may become transports, with the sessions.
    switches: HashMap<Key, Key>,
    /// The ones whose peers continue there.
    ready: Vec<Key>,
    /// Requests that wait for a turn: the new ones, and the ones of the last turn.
    new_polls: Vec<(SessionToken, PollReply)>,
    due_polls: Vec<(SessionToken, PollReply)>,
    /// Connections of sessions that have got a socket.
    switched: HashSet<Key>,
    /// Sessions whose answer waits for a congested link.
    congested: Vec<Key>,
}

impl Exchanges {
    /// The number of these sessions.
    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Memory of the sessions and of the bodies that were not taken completely.
    pub(super) fn bytes(&self) -> usize {
        self.sessions.len() * SESSION_BYTES + self.posted_bytes
    }

    /// Memory of the body for a session that was not taken completely.
    pub(super) fn bytes_of(&self, key: Key) -> usize {
        let exchange = self.sessions.get(&key);
        let post = exchange.and_then(|exchange| exchange.post.as_ref());
        post.and_then(|post| post.body.as_ref())
            .map_or(0, |(body, _)| body.len())
    }

    /// Whether the connection is one of a session of exchanges.
    pub(super) fn has(&self, key: Key) -> bool {
        self.sessions.contains_key(&key)
    }

    /// Whether requests wait until the shard has read another connection of their peer.
    pub(super) fn has_polls(&self) -> bool {
        !self.new_polls.is_empty() || !self.due_polls.is_empty()
    }

    /// Whether some body was not taken completely.
    pub(super) fn has_input(&self) -> bool {
        self.posted_count > 0
    }

    /// Marks the answers whose bytes have not left, and returns their sessions.
    pub(super) fn mark_answers(&mut self) -> impl Iterator<Item = Key> {
        let sessions = self.sessions.iter_mut();
        sessions.filter_map(|(key, exchange)| {
            exchange.is_marked = exchange.has_answer_out;
            exchange.is_marked.then_some(*key)
        })
    }

    /// Whether bytes of a marked answer have not left.
    pub(super) fn has_marked(&self, key: Key) -> bool {
        let exchange = self.sessions.get(&key);
        exchange.is_some_and(|exchange| exchange.is_marked)
    }

    /// Whether no request waits for messages of the session.
    pub(super) fn is_away(&self, key: Key) -> bool {
        let exchange = self.sessions.get(&key);
        exchange.is_some_and(|exchange| exchange.poll.is_none())
    }

    /// When the next session without a waiting request ends.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.unpolled.first().map(|(deadline, _)| *deadline)
    }

    /// The address of the client of a session.
    pub(super) fn address(&self, key: Key) -> Option<SocketAddr> {
        self.sessions.get(&key).map(|exchange| exchange.address)
    }

    /// The peer of a session, for a login after the first one.
    pub(super) fn peer(&self, key: Key) -> Option<Arc<PeerDetails>> {
        let exchange = self.sessions.get(&key)?;
        Some(Arc::new(PeerDetails {
            certificate: exchange.certificate.clone(),
            ..PeerDetails::at(exchange.address)
        }))
    }

    /// Ends the time to poll.
    fn stop_time(&mut self, key: Key) {
        let exchange = self.sessions.get_mut(&key);
        if let Some(deadline) = exchange.and_then(|exchange| exchange.deadline.take()) {
            self.unpolled.remove(&(deadline, key));
        }
    }

    fn begin_time(&mut self, key: Key, deadline: Instant) {
        self.stop_time(key);
        if let Some(exchange) = self.sessions.get_mut(&key) {
            exchange.deadline = Some(deadline);
            self.unpolled.insert((deadline, key));
        }
    }

    /// Takes the request that brings messages out of its session.
    fn take_post(&mut self, key: Key) -> Option<PostReply> {
        let post = self.sessions.get_mut(&key)?.post.take()?;
        if let Some((body, _)) = &post.body {
            self.posted_count -= 1;
            self.posted_bytes -= body.len();
        }
        Some(post.reply)
    }

    /// Forgets a session that ends or gets a socket. Returns the connection that was to become its transport.
    pub(super) fn forget(&mut self, key: Key) -> Option<Key> {
        self.stop_time(key);
        // The front answers a request whose reply is dropped.
        self.take_post(key);
        let exchange = self.sessions.remove(&key)?;
        let switch = exchange.switch?;
        self.switches.remove(&switch);
        Some(switch)
    }

    /// Notes that a connection is to become the transport of a session.
    pub(super) fn begin_switch(&mut self, from: Key, key: Key) {
        if let Some(exchange) = self.sessions.get_mut(&key) {
            exchange.switch = Some(from);
            self.switches.insert(from, key);
        }
    }

    /// Notes that a connection will not become a transport, because it has ended.
    pub(super) fn end_switch(&mut self, from: Key) {
        let session = self.switches.remove(&from);
        if let Some(exchange) = session.and_then(|key| self.sessions.get_mut(&key)) {
            (exchange.switch, exchange.is_probed) = (None, false);
        }
        self.switched.remove(&from);
    }

    /// Notes that the peer has tested the connection.
    pub(super) fn probe(&mut self, from: Key) {
        if let Some(key) = self.switches.get(&from)
            && let Some(exchange) = self.sessions.get_mut(key)
        {
            exchange.is_probed = true;
            self.due.push(*key);
        }
    }

    /// Notes that the peer continues on the connection.
    pub(super) fn ready(&mut self, from: Key) {
        self.ready.push(from);
    }

    /// Whether the peer of the session continues on another connection.
    fn is_ready(&self, key: Key) -> bool {
        let exchange = self.sessions.get(&key);
        let switch = exchange.and_then(|exchange| exchange.switch);
        switch.is_some_and(|from| self.ready.contains(&from))
    }

    pub(super) fn take_ready(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.ready)
    }

    /// The session of which a connection is to become the transport.
    pub(super) fn session_of(&self, from: Key) -> Option<Key> {
        self.switches.get(&from).copied()
    }

    /// Whether another connection is to become the transport of the session.
    pub(super) fn is_switching(&self, key: Key) -> bool {
        let exchange = self.sessions.get(&key);
        exchange.is_some_and(|exchange| exchange.switch.is_some())
    }

    /// Whether a request waits for messages of the session, or its messages have not been taken completely.
    pub(super) fn is_busy(&self, key: Key) -> bool {
        let exchange = self.sessions.get(&key);
        exchange.is_some_and(|exchange| {
            let has_body = exchange
                .post
                .as_ref()
                .is_some_and(|post| post.body.is_some());
            exchange.poll.is_some() || has_body
        })
    }

    /// Tries again to answer the requests that wait for a congested link.
    pub(super) fn retry_congested(&mut self) {
        self.due.append(&mut self.congested);
    }

    /// The replies that wait for a session, or to a turn, at shards of other nodes.
    fn replies_there(&mut self) -> impl Iterator<Item = (Key, &mut NodeReply)> {
        let sessions = self.sessions.iter_mut().flat_map(|(key, exchange)| {
            let poll = exchange.poll.as_mut().and_then(PollReply::there_mut);
            let post = exchange.post.as_mut();
            let post = post.and_then(|post| post.reply.there_mut());
            poll.into_iter().chain(post).map(|reply| (*key, reply))
        });
        let polls = self.new_polls.iter_mut().chain(&mut self.due_polls);
        let polls = polls
            .filter_map(|(token, reply)| Some((super::key(token.session), reply.there_mut()?)));
        sessions.chain(polls)
    }

    /// The reply to a request of another node that waits.
    fn reply_there(&mut self, key: Key, id: ForwardedId) -> Option<&mut NodeReply> {
        let exchange = self.sessions.get_mut(&key);
        let waiting = exchange.into_iter().flat_map(|exchange| {
            let poll = exchange.poll.as_mut().and_then(PollReply::there_mut);
            let post = exchange.post.as_mut();
            let post = post.and_then(|post| post.reply.there_mut());
            poll.into_iter().chain(post)
        });
        let polls = self.new_polls.iter_mut().chain(&mut self.due_polls);
        let polls = polls.filter_map(|(_, reply)| reply.there_mut());
        waiting.chain(polls).find(|reply| reply.id == id)
    }

    /// Notes that the bytes of an answer have left.
    fn answer_left(&mut self, key: Key, there: Option<ForwardedId>) {
        if let Some(exchange) = self.sessions.get_mut(&key)
            && exchange.answered_there == there
        {
            exchange.answered_there = None;
            (exchange.has_answer_out, exchange.is_marked) = (false, false);
            self.due.push(key);
        }
    }

    /// Notes that the connection of a session has got a socket.
    pub(super) fn has_switched(&mut self, key: Key) {
        self.switched.insert(key);
    }
}

impl Conductor {
    pub(super) fn take_exchange(&mut self, mail: ExchangeMail) {
        if let Some(token) = mail.token()
            && token.node() != self.address.node
        {
            return self.forward(token, mail);
        }
        match mail {
            ExchangeMail::Open { opened, reply } => self.open_exchange(opened, reply),
            ExchangeMail::Poll { token, reply } => self.admit_poll(token, reply),
            ExchangeMail::Post {
                token,
                admitted,
                reply,
            } => self.admit_post(token, admitted, reply),
            ExchangeMail::Body { token, body } => self.take_body(token, body),
            ExchangeMail::MaySwitch { token, reply } => {
                // The caller may have stopped waiting.
                let _ = reply.send(self.find_for_switch(token).map(|_| ()));
            }
            ExchangeMail::Gone(token) => {
                if let Ok(key) = self.find_exchange(token) {
                    self.lose_exchange(key);
                }
            }
            ExchangeMail::Left(key) => self.exchanges.answer_left(key, None),
            ExchangeMail::Answer { id, reply } => self.answer_there(id, reply),
            ExchangeMail::ForwardedLeft { .. } => {}
        }
    }

    fn open_exchange(&mut self, opened: OpenExchange, reply: PollReply) {
        let OpenExchange {
            protocol,
            peer,
            permit,
        } = opened;
        let (address, certificate) = (peer.address, peer.certificate.clone());
        let state = State::new(peer, permit, false, protocol);
        let format = state.format(Introduction::default());
        let key = self.event_loop.add_without_socket(state);
        let exchange = Exchange {
            address,
            certificate,
            poll: Some(reply),
            has_answer_out: false,
            answered_there: None,
            is_marked: false,
            post: None,
            deadline: None,
            switch: None,
            is_probed: false,
            is_late: false,
        };
        self.exchanges.sessions.insert(key, exchange);
        let token = self.resumable.token(self.session(key));
        let mut frames = Vec::new();
        protocol.greet_exchange(&self.terms, &token.to_string(), &mut frames);
        self.event_loop.push_bytes(key, &frames);
        self.open_session(key, address, protocol, format);
        self.open_at_backend(key);
        if self.is_draining {
            self.close(key, CloseCause::GoingAway);
        }
    }

    /// The session with this token.
    fn find_exchange(&self, token: SessionToken) -> Result<Key, ExchangeRefusal> {
        let key = super::key(token.session);
        let is_here = token.session.address == self.address;
        if !is_here || !self.resumable.has_made(&token) {
            return Err(ExchangeRefusal::Unknown);
        }
        if self.exchanges.has(key) {
            return Ok(key);
        }
        match self.exchanges.switched.contains(&key) {
            true => Err(ExchangeRefusal::OutOfTurn),
            false => Err(ExchangeRefusal::Unknown),
        }
    }

    /// The session with this token, if a connection may become its transport.
    pub(super) fn find_for_switch(&self, token: SessionToken) -> Result<Key, ExchangeRefusal> {
        let key = self.find_open_exchange(token)?;
        match self.exchanges.is_switching(key) {
            true => Err(ExchangeRefusal::OutOfTurn),
            false => Ok(key),
        }
    }

    fn find_open_exchange(&self, token: SessionToken) -> Result<Key, ExchangeRefusal> {
        let key = self.find_exchange(token)?;
        match self.is_open(key) {
            true => Ok(key),
            false => Err(ExchangeRefusal::Unknown),
        }
    }

    /// Handles a request for messages. It waits for a turn in two cases. If a deadline is due, the session may end with it. If its peer has
    /// tested another connection, it may have continued there before it sent the request. The two arrive on different ways, so the shard looks
    /// at the other connection once more before it decides.
    pub(super) fn admit_poll(&mut self, token: SessionToken, reply: PollReply) {
        let now = self.now.monotonic;
        let is_due = self.engine_deadline.is_some_and(|due| due <= now);
        // No request overtakes an earlier one.
        let is_due = is_due || self.exchanges.has_polls();
        let exchange = self.exchanges.sessions.get(&super::key(token.session));
        match is_due || exchange.is_some_and(|exchange| exchange.is_probed) {
            true => self.exchanges.new_polls.push((token, reply)),
            false => self.poll_exchange(token, reply),
        }
    }

    /// Handles the requests that have waited for a turn. The sockets of this turn were read.
    pub(super) fn take_polls(&mut self) {
        let new = std::mem::take(&mut self.exchanges.new_polls);
        for (token, reply) in std::mem::replace(&mut self.exchanges.due_polls, new) {
            if !reply.is_closed() {
                self.poll_exchange(token, reply);
            } else if let Ok(key) = self.find_exchange(token) {
                // Its client has left in the meantime.
                self.lose(key);
            }
        }
    }

    fn poll_exchange(&mut self, token: SessionToken, reply: PollReply) {
        let found = self.find_exchange(token).and_then(|key| {
            if self.exchanges.is_ready(key) {
                return Err(ExchangeRefusal::OutOfTurn);
            }
            let exchange = self.exchanges.sessions.get_mut(&key);
            exchange.map(|it| (key, it)).ok_or(ExchangeRefusal::Unknown)
        });
        let (key, exchange) = match found {
            Ok(found) => found,
            Err(refusal) => {
                // The caller may have stopped waiting, here and below.
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        let Some(pending) = exchange.poll.take() else {
            exchange.poll = Some(reply);
            self.exchanges.stop_time(key);
            self.exchanges.due.push(key);
            return;
        };
        // The peer has two requests that wait, so it has lost track of its messages. Each of them must learn that the session ends.
        add(&self.stats().protocol_errors, 1);
        let refusal = match pending.is_closed() {
            true => ExchangeRefusal::Unknown,
            false => ExchangeRefusal::OutOfTurn,
        };
        self.send_end(key, pending);
        let _ = reply.send(Err(refusal));
        self.remove(key, false);
    }

    /// Answers a waiting request with the end of its session alone.
    fn send_end(&mut self, key: Key, reply: PollReply) {
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        let codec = &connection.state.codec;
        let mut body = Vec::new();
        let frames = CloseCause::Peer(None).frame(codec);
        codec.protocol().exchange_output(&frames, false, &mut body);
        let _ = reply.send(Ok(self.own.answer_body(Left::Own(key), body)));
    }

    pub(super) fn admit_post(
        &mut self,
        token: SessionToken,
        admitted: Option<oneshot::Sender<usize>>,
        reply: PostReply,
    ) {
        let key = match self.find_open_exchange(token) {
            Ok(key) => key,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        let Some(exchange) = self.exchanges.sessions.get_mut(&key) else {
            return;
        };
        if exchange.post.is_some() {
            // The messages of the two requests have no order.
            add(&self.own.stats().protocol_errors, 1);
            let _ = reply.send(Err(ExchangeRefusal::OutOfTurn));
            if let Some(pending) = exchange.poll.take() {
                self.send_end(key, pending);
            }
            return self.remove(key, false);
        }
        // A message has its own limit, which is lower before the login.
        let bytes_max = self.message_bytes_max;
        if let Some(there) = reply.there() {
            there.admit(bytes_max);
        }
        exchange.post = Some(Post {
            reply,
            body: None,
            has_begun: false,
        });
        if let Some(admitted) = admitted {
            // The caller may have stopped waiting.
            let _ = admitted.send(bytes_max);
        }
    }

    pub(super) fn take_body(&mut self, token: SessionToken, body: Result<Bytes, BodyFault>) {
        let Ok(key) = self.find_open_exchange(token) else {
            return;
        };
        let body = match body {
            Ok(body) => body,
            Err(fault) => {
                add(&self.stats().protocol_errors, 1);
                self.exchanges.take_post(key);
                let cause = match fault {
                    BodyFault::TooLarge => {
                        self.log_too_big(key, self.message_bytes_max.saturating_add(1));
                        CloseCause::Frame(FrameError::TooBig)
                    }
                    BodyFault::Broken => {
                        let text = "the body of a request is incomplete or no text";
                        CloseCause::Foreign(ForeignPayload::Violation(text))
                    }
                };
                return self.close(key, cause);
            }
        };
        let exchange = self.exchanges.sessions.get_mut(&key);
        let Some(post) = exchange.and_then(|exchange| exchange.post.as_mut()) else {
            return;
        };
        self.exchanges.posted_count += 1;
        self.exchanges.posted_bytes += body.len();
        post.body = Some((body, 0));
        self.give_input(key);
    }

    /// Gives the connection of a session the next part of a body, if it has handled the part before. A part is as long as a read of a socket, so
    /// a body takes as many turns as the same messages over a WebSocket. After the last part, the request is answered; a message that
    /// has to wait is kept by the connection.
    pub(super) fn give_input(&mut self, key: Key) {
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        let exchange = self.exchanges.sessions.get_mut(&key);
        let post = exchange.and_then(|exchange| exchange.post.as_mut());
        let Some(Post {
            body: Some((body, given)),
            has_begun,
            ..
        }) = post
        else {
            return;
        };
        if connection.state.phase != Phase::Open || !connection.is_input_handled() {
            return;
        }
        if *has_begun && *given == body.len() {
            if let Some(reply) = self.exchanges.take_post(key) {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        *has_begun = true;
        let protocol = connection.state.codec.protocol();
        let mut input = Vec::new();
        match protocol.exchange_input(&body[*given..], READ_BYTES_MAX, &mut input) {
            Ok(taken) => {
                *given += taken;
                self.event_loop.push_input(key, &input);
                self.recount(key);
            }
            Err(foreign) => {
                add(&self.stats().protocol_errors, 1);
                self.close(key, CloseCause::Foreign(foreign));
            }
        }
    }

    /// Ends a session whose client has gone while a request of it waited.
    fn lose_exchange(&mut self, key: Key) {
        let Some(exchange) = self.exchanges.sessions.get(&key) else {
            return;
        };
        let is_poll_gone = exchange.poll.as_ref().is_some_and(PollReply::is_closed);
        let is_post_gone = exchange
            .post
            .as_ref()
            .is_some_and(|it| it.reply.is_closed());
        if is_poll_gone || is_post_gone {
            self.lose(key);
        }
    }

    /// Ends a session whose client has left the node to which it had sent a request.
    pub(super) fn lose_there(&mut self, token: SessionToken, id: ForwardedId) {
        let Ok(key) = self.find_exchange(token) else {
            return;
        };
        if let Some(reply) = self.exchanges.reply_there(key, id) {
            reply.is_gone = true;
            return self.lose_exchange(key);
        }
        // The messages of an answer that no client gets are lost.
        let exchange = self.exchanges.sessions.get(&key);
        if exchange.is_some_and(|exchange| exchange.answered_there == Some(id)) {
            self.lose(key);
        }
    }

    /// Notes that the bytes of an answer have left another node.
    pub(super) fn left_there(&mut self, token: SessionToken, id: ForwardedId) {
        if let Ok(key) = self.find_exchange(token) {
            self.exchanges.answer_left(key, Some(id));
        }
    }

    /// Answers a waiting request of a node that stops.
    pub(super) fn release_there(&mut self, token: SessionToken, id: ForwardedId) {
        if let Ok(key) = self.find_exchange(token)
            && let Some(reply) = self.exchanges.reply_there(key, id)
        {
            reply.is_released = true;
            self.exchanges.due.push(key);
        }
    }

    /// Ends the sessions whose requests or answers were at a node that is lost.
    pub(super) fn lose_exchanges_of(&mut self, node: u16) {
        let mut lost = Vec::new();
        for (key, reply) in self.exchanges.replies_there() {
            if reply.id.from.node == node {
                reply.is_gone = true;
                lost.push(key);
            }
        }
        let sessions = self.exchanges.sessions.iter();
        let answered = sessions.filter(|(_, exchange)| {
            let there = exchange.answered_there;
            there.is_some_and(|id| id.from.node == node)
        });
        lost.extend(answered.map(|(key, _)| *key));
        // In the order of their keys, so that the order does not depend on a hash.
        lost.sort_unstable();
        lost.dedup();
        for key in lost {
            if self.exchanges.has(key) {
                self.lose(key);
            }
        }
    }

    /// Ends the sessions for which no request has waited for too long.
    pub(super) fn end_unpolled(&mut self) {
        while let Some((deadline, key)) = self.exchanges.unpolled.first().copied()
            && deadline <= self.now.monotonic
        {
            self.exchanges.stop_time(key);
            self.close(key, CloseCause::Engine(CloseReason::Silent));
        }
    }

    /// Answers the requests whose sessions have got messages. This runs while the logs of the turn still have these, so they are copied
    /// once.
    pub(super) fn answer_polls(&mut self) {
        let mut due = self.event_loop.take_filled();
        due.append(&mut self.exchanges.due);
        for key in due {
            self.answer_poll(key);
        }
    }

    /// Answers the waiting request of a session, if there are messages, or the peer is about to leave for another transport.
    fn answer_poll(&mut self, key: Key) {
        let Some(exchange) = self.exchanges.sessions.get_mut(&key) else {
            return;
        };
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        let has_output = connection.outbox_bytes() > 0;
        let has_ended = connection.state.phase == Phase::Lingering;
        let there = exchange.poll.as_ref().and_then(PollReply::there);
        let answered_there = there.map(|there| there.id);
        let is_released = there.is_some_and(|there| there.is_released);
        let protocol = connection.state.codec.protocol();
        if exchange.has_answer_out || !(has_output || exchange.is_probed || is_released) {
            return;
        }
        if let (Some(id), Some(nodes)) = (answered_there, &self.sink.nodes)
            && nodes.is_congested(id.from.node)
        {
            return self.exchanges.congested.push(key);
        }
        let Some(reply) = exchange.poll.take() else {
            return;
        };
        let frames = self.event_loop.take_output(key, &self.sink.logs);
        let mut body = Vec::new();
        protocol.exchange_output(&frames, exchange.is_late, &mut body);
        exchange.has_answer_out = true;
        exchange.answered_there = answered_there;
        let body = self.own.answer_body(Left::Own(key), body);
        let is_gone = reply.send(Ok(body)).is_err();
        if is_gone || has_ended {
            return self.lose(key);
        }
        let patience = self.terms.heartbeat_interval + self.terms.heartbeat_timeout;
        self.exchanges
            .begin_time(key, self.now.monotonic + patience);
    }

    /// Ends a session that the shard closes. If its peer has left, or is at fault and no messages wait, later requests do not find it.
    /// Otherwise a request can still take the messages and the end.
    pub(super) fn say_goodbye_in_exchange(&mut self, key: Key, cause: CloseCause) {
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        let has_output = connection.outbox_bytes() > 0;
        let state = &mut connection.state;
        let protocol = state.codec.protocol();
        let is_by_peer = matches!(cause, CloseCause::Peer(_));
        let is_fault = matches!(cause, CloseCause::Frame(_) | CloseCause::Foreign(_));
        let is_silent = cause == CloseCause::Engine(CloseReason::Silent);
        let is_over = is_by_peer || is_silent || (is_fault && !has_output);
        let goodbye = (!is_over).then(|| cause.frame(&state.codec));
        if !is_over {
            state.phase = Phase::Lingering;
            state.waiting = None;
            state.peer = None;
            state.pause_reasons = PauseReasons::default();
        }
        if let Some(reply) = self.exchanges.take_post(key) {
            let _ = reply.send(match is_by_peer {
                true => Ok(()),
                false => Err(ExchangeRefusal::Unknown),
            });
        }
        let Some(exchange) = self.exchanges.sessions.get_mut(&key) else {
            return;
        };
        if let Some(goodbye) = goodbye {
            exchange.is_late = exchange.poll.is_none();
            self.event_loop.push_bytes(key, &goodbye);
            return self.linger(key);
        }
        match exchange.poll.take() {
            Some(reply) if is_by_peer => {
                let mut body = Vec::new();
                protocol.exchange_output(&[], false, &mut body);
                let _ = reply.send(Ok(self.own.answer_body(Left::Own(key), body)));
            }
            Some(reply) => self.send_end(key, reply),
            None => {}
        }
        self.remove(key, false);
    }
}
