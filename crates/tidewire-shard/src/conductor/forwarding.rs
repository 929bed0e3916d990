//! Requests for sessions of exchanges of other nodes. The shard forwards each to the shard of its session, over the link to its node, and
//! passes the reply to the front.
//!
//! The client has an HTTP connection to this node only, so this node reads bodies, and notices that a client leaves. The session's node
//! decides everything else. Decision: 0150.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use tidewire_core::address::{Address, SessionId};
use tidewire_core::entry::{Entry, ExchangeEntry, ExchangeReply, ExchangeRequest};
use tidewire_wire::protocol::ExchangeRefusal;
use tokio::sync::oneshot;

use super::Conductor;
use crate::exchange::{
    BodyFault, ExchangeMail, ForwardedId, NodeReply, PollReply, PostReply, Reply,
};
use crate::exchange_request::Left;
use crate::session_token::{SessionSecret, SessionToken};

/// Requests of one session that wait. A client that follows the protocol has three: for messages, with messages, and for a WebSocket.
const SESSION_REQUESTS_MAX: usize = 8;

/// Requests that wait at a shard. Each has an HTTP request, so the limits of connections and streams are usually lower.
const REQUESTS_MAX: usize = 1 << 16;

/// A request that waits for its reply.
#[derive(Debug)]
struct Forwarded {
    token: SessionToken,
    waiting: Waiting,
}

#[derive(Debug)]
enum Waiting {
    Poll(PollReply),
    Post {
        /// Until the session's node has allowed a body.
        admitted: Option<oneshot::Sender<usize>>,
        reply: PostReply,
    },
    Switch(PostReply),
}

impl Waiting {
    fn has_left(&self) -> bool {
        match self {
            Self::Poll(reply) => reply.is_closed(),
            Self::Post { reply, .. } | Self::Switch(reply) => reply.is_closed(),
        }
    }

    fn refuse(self, refusal: ExchangeRefusal) {
        // The caller may have stopped waiting. It looks for the reply when `admitted` is dropped, so the reply comes first.
        let _ = match self {
            Self::Poll(reply) => reply.send(Err(refusal)),
            Self::Post { reply, .. } | Self::Switch(reply) => reply.send(Err(refusal)),
        };
    }
}

/// An entry that waits for a congested link.
#[derive(Debug)]
struct Held {
    to: Address,
    request: u64,
    entry: Entry,
}

/// The forwarded requests of a shard.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    last: u64,
    requests: HashMap<u64, Forwarded>,
    by_session: HashMap<SessionId, Vec<u64>>,
    /// By node. A stuck node delays only requests for its sessions.
    held: BTreeMap<u16, VecDeque<Held>>,
}

impl Forwarding {
    fn add(&mut self, token: SessionToken, waiting: Waiting) -> Result<u64, Waiting> {
        let of_session = self.by_session.entry(token.session).or_default();
        if of_session.len() >= SESSION_REQUESTS_MAX || self.requests.len() >= REQUESTS_MAX {
            if of_session.is_empty() {
                self.by_session.remove(&token.session);
            }
            return Err(waiting);
        }
        self.last += 1;
        of_session.push(self.last);
        self.requests
            .insert(self.last, Forwarded { token, waiting });
        Ok(self.last)
    }

    fn remove(&mut self, request: u64) -> Option<Forwarded> {
        let forwarded = self.requests.remove(&request)?;
        let session = forwarded.token.session;
        if let Some(of_session) = self.by_session.get_mut(&session) {
            of_session.retain(|other| *other != request);
            if of_session.is_empty() {
                self.by_session.remove(&session);
            }
        }
        Some(forwarded)
    }

    /// The first request for a session that fulfils a condition.
    fn find(&self, token: SessionToken, is_right: impl Fn(&Waiting) -> bool) -> Option<u64> {
        let of_session = self.by_session.get(&token.session)?;
        let mut of_session = of_session.iter().copied();
        of_session.find(|request| {
            let forwarded = self.requests.get(request);
            forwarded.is_some_and(|it| it.token == token && is_right(&it.waiting))
        })
    }

    /// Drops the entries of a request that were held back. Returns whether one was left to be sent before.
    fn drop_held(&mut self, node: u16, request: u64) -> bool {
        let Some(held) = self.held.get_mut(&node) else {
            return false;
        };
        let is_new = held.iter().any(|held| {
            let Entry::Exchange(ExchangeEntry::Request { what, .. }) = &held.entry else {
                return false;
            };
            held.request == request && what.begins()
        });
        held.retain(|held| held.request != request);
        is_new
    }

    /// A node is lost with its sessions. The requests for them are refused, so that their clients open new sessions.
    pub(super) fn node_lost(&mut self, node: u16) {
        self.held.remove(&node);
        let requests = self.requests.iter();
        let lost = requests.filter(|(_, forwarded)| forwarded.token.node() == node);
        let mut lost: Vec<u64> = lost.map(|(request, _)| *request).collect();
        lost.sort_unstable();
        for request in lost {
            if let Some(forwarded) = self.remove(request) {
                forwarded.waiting.refuse(ExchangeRefusal::Unknown);
            }
        }
    }
}

impl Conductor {
    /// Handles mail about a session of another node.
    pub(super) fn forward(&mut self, token: SessionToken, mail: ExchangeMail) {
        match mail {
            ExchangeMail::Poll { reply, .. } => {
                let waiting = Waiting::Poll(reply);
                if let Some(request) = self.begin_forward(token, waiting, ExchangeRequest::Poll)
                    && self.is_draining
                {
                    self.post_request(token, request, ExchangeRequest::Release);
                }
            }
            ExchangeMail::Post {
                admitted, reply, ..
            } => {
                let waiting = Waiting::Post { admitted, reply };
                self.begin_forward(token, waiting, ExchangeRequest::Post);
            }
            ExchangeMail::MaySwitch { reply, .. } => {
                let waiting = Waiting::Switch(reply);
                self.begin_forward(token, waiting, ExchangeRequest::MaySwitch);
            }
            ExchangeMail::Body { body, .. } => self.forward_body(token, body),
            ExchangeMail::Gone(_) => self.forward_loss(token),
            ExchangeMail::ForwardedLeft { request, .. } => {
                self.post_request(token, request, ExchangeRequest::Left);
            }
            ExchangeMail::Open { .. } | ExchangeMail::Left(_) | ExchangeMail::Answer { .. } => {}
        }
    }

    fn begin_forward(
        &mut self,
        token: SessionToken,
        waiting: Waiting,
        what: ExchangeRequest,
    ) -> Option<u64> {
        let nodes = self.sink.nodes.as_ref();
        if !nodes.is_some_and(|nodes| nodes.takes_exchanges(token.node())) {
            waiting.refuse(ExchangeRefusal::Unknown);
            return None;
        }
        match self.forwarding.add(token, waiting) {
            Ok(request) => {
                self.post_request(token, request, what);
                Some(request)
            }
            Err(waiting) => {
                waiting.refuse(ExchangeRefusal::OutOfTurn);
                None
            }
        }
    }

    fn forward_body(&mut self, token: SessionToken, body: Result<Bytes, BodyFault>) {
        let is_admitted =
            |waiting: &Waiting| matches!(waiting, Waiting::Post { admitted: None, .. });
        let Some(request) = self.forwarding.find(token, is_admitted) else {
            return;
        };
        let what = match body {
            Ok(body) => ExchangeRequest::Body(Box::from(&body[..])),
            Err(fault) => {
                // The front has its answer.
                self.forwarding.remove(request);
                match fault {
                    BodyFault::TooLarge => ExchangeRequest::LargeBody,
                    BodyFault::Broken => ExchangeRequest::BrokenBody,
                }
            }
        };
        self.post_request(token, request, what);
    }

    /// Reports that the client of a request has left.
    fn forward_loss(&mut self, token: SessionToken) {
        while let Some(request) = self.forwarding.find(token, Waiting::has_left) {
            self.forwarding.remove(request);
            if !self.forwarding.drop_held(token.node(), request) {
                self.post_request(token, request, ExchangeRequest::Gone);
            }
        }
    }

    /// Lets the waiting requests end before this node stops.
    pub(super) fn release_forwarded(&mut self) {
        let requests = self.forwarding.requests.iter();
        let polls = requests.filter(|(_, it)| matches!(it.waiting, Waiting::Poll(_)));
        let mut polls: Vec<_> = polls.map(|(request, it)| (*request, it.token)).collect();
        polls.sort_unstable_by_key(|(request, _)| *request);
        for (request, token) in polls {
            self.post_request(token, request, ExchangeRequest::Release);
        }
    }

    fn post_request(&mut self, token: SessionToken, request: u64, what: ExchangeRequest) {
        let to = token.session.address;
        let entry = Entry::Exchange(ExchangeEntry::Request {
            session: token.session,
            secret: token.secret.bytes(),
            request,
            what,
        });
        let Some(nodes) = &mut self.sink.nodes else {
            return;
        };
        if nodes.is_congested(to.node) || self.forwarding.held.contains_key(&to.node) {
            let held = self.forwarding.held.entry(to.node).or_default();
            return held.push_back(Held { to, request, entry });
        }
        self.has_unflushed = true;
        nodes.post(self.address.shard, to, entry);
    }

    /// Posts the entries that have waited for congested links.
    pub(super) fn forward_held(&mut self) {
        let Some(nodes) = &mut self.sink.nodes else {
            return;
        };
        while let Some(node) = self
            .forwarding
            .held
            .keys()
            .copied()
            .find(|it| !nodes.is_congested(*it))
        {
            self.has_unflushed = true;
            for Held { to, entry, .. } in self.forwarding.held.remove(&node).unwrap_or_default() {
                nodes.post(self.address.shard, to, entry);
            }
        }
    }

    /// Handles an entry of another node about a forwarded request.
    pub(super) fn take_forwarded(&mut self, from: Address, birth: u64, entry: ExchangeEntry) {
        let nodes = self.sink.nodes.as_ref();
        if nodes.and_then(|nodes| nodes.birth(from.node)) != Some(birth) {
            return;
        }
        match entry {
            ExchangeEntry::Request {
                session,
                secret,
                request,
                what,
            } => {
                let secret = SessionSecret::of(secret);
                let token = SessionToken { session, secret };
                self.take_request(token, ForwardedId { from, request }, what);
            }
            ExchangeEntry::Reply { request, what } => self.take_reply(from, request, what),
        }
    }

    fn take_request(&mut self, token: SessionToken, id: ForwardedId, what: ExchangeRequest) {
        let way = self.own.clone();
        let reply = || NodeReply::new(Box::new(way), id);
        match what {
            ExchangeRequest::Poll => self.admit_poll(token, Reply::There(reply())),
            ExchangeRequest::Post => {
                self.admit_post(token, None, Reply::There(reply()));
            }
            ExchangeRequest::Body(body) => self.take_body(token, Ok(body.into())),
            ExchangeRequest::LargeBody => self.take_body(token, Err(BodyFault::TooLarge)),
            ExchangeRequest::BrokenBody => self.take_body(token, Err(BodyFault::Broken)),
            ExchangeRequest::MaySwitch => {
                let reply = PostReply::There(reply());
                // The client may have left.
                let _ = reply.send(self.find_for_switch(token).map(|_| ()));
            }
            ExchangeRequest::Gone => self.lose_there(token, id),
            ExchangeRequest::Left => self.left_there(token, id),
            ExchangeRequest::Release => self.release_there(token, id),
        }
    }

    /// Posts a reply to the shard of another node that has forwarded the request. If that node is lost, the reply is dropped.
    pub(super) fn answer_there(&mut self, id: ForwardedId, what: ExchangeReply) {
        if let Some(nodes) = &mut self.sink.nodes {
            self.has_unflushed = true;
            let request = id.request;
            let entry = Entry::Exchange(ExchangeEntry::Reply { request, what });
            nodes.post(self.address.shard, id.from, entry);
        }
    }

    /// Passes a reply to the front. A request whose client has left is unknown here; its loss was reported.
    fn take_reply(&mut self, from: Address, request: u64, what: ExchangeReply) {
        let found = self.forwarding.requests.get_mut(&request);
        let Some(found) = found.filter(|it| it.token.session.address == from) else {
            return;
        };
        if let ExchangeReply::Admitted(bytes_max) = what {
            if let Waiting::Post { admitted, .. } = &mut found.waiting
                && let Some(admitted) = admitted.take()
            {
                // The caller may have stopped waiting.
                let _ = admitted.send(bytes_max);
            }
            return;
        }
        let Some(Forwarded { token, waiting }) = self.forwarding.remove(request) else {
            return;
        };
        match (what, waiting) {
            (ExchangeReply::Messages(body), Waiting::Poll(reply)) => {
                let body = self
                    .own
                    .answer_body(Left::Forwarded { token, request }, body);
                if reply.send(Ok(body)).is_err() {
                    self.post_request(token, request, ExchangeRequest::Gone);
                }
            }
            (ExchangeReply::Taken, Waiting::Post { reply, .. } | Waiting::Switch(reply)) => {
                // The caller may have stopped waiting.
                let _ = reply.send(Ok(()));
            }
            (ExchangeReply::OutOfTurn, waiting) => waiting.refuse(ExchangeRefusal::OutOfTurn),
            (_, waiting) => waiting.refuse(ExchangeRefusal::Unknown),
        }
    }
}
