//! The engine's effects, on their way to the turn logs, the other shards, the store and the auth chain.
//!
//! Effects that need the connections or another call of the engine are only noted here. The conductor executes them as soon as the engine
//! has returned.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Flow, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::engine::Shard;
use tidewire_core::entry::Entry;
use tidewire_core::message::{Event, Message};
use tidewire_core::publication::InterestTopic;
use tidewire_core::settings::Liveness;
use tidewire_core::time::Now;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::protocol::{Encoding, encoding};

use super::ShardLimits;
use super::credit::Confirmations;
use super::deflation::Deflation;
use super::handle::{AuthReply, Requests, ShardHandle};
use super::message_count::MessageEnds;
use super::node_link::NodePosts;
use super::peer::PeerDetails;
use super::reply::ReplyLog;
use super::stats::{add, topic_index};
use super::tail::Tails;
use super::traces::ShardTraces;
use crate::interest::InterestMap;
use crate::interest::nodes::OwnInterest;
use crate::session_token::OwnedSessionRequest;
use crate::tracer::Tracer;

/// The engine's formats: one for each encoding, with a separate turn log, [`CARRIED`], and the formats of [`resumable_format`].
pub(crate) const FORMAT_COUNT: u8 = CARRIED.0 + 1 + encoding::PLAIN_COUNT as u8;

/// The log of frames made of ranges, behind the logs of the encodings (see [`super::batch`]).
pub(crate) const FRAMES: u8 = encoding::COUNT as u8;

/// The turn logs of a shard. The log of a format has its number, and that of frames the number of [`CARRIED`], which has none.
pub(crate) const LOG_COUNT: u8 = FORMAT_COUNT;

/// The format of sessions without a socket, which get owned replies. Other formats have the number of their [`Encoding`].
pub(crate) const CARRIED: Format = Format(encoding::COUNT as u8);

/// The format of a session that outlives its connection, for the format of other sessions. Its messages are neither compressed nor batched,
/// because the next connection may have another encoding.
pub(crate) fn resumable_format(format: Format) -> Format {
    Format(CARRIED.0 + 1 + plain_encoding(format).plain_index())
}

/// The protocol and variant of a format, which is not [`CARRIED`].
pub(crate) fn plain_encoding(format: Format) -> Encoding {
    match format.0.checked_sub(CARRIED.0 + 1) {
        Some(index) => Encoding::plain(index),
        None => Encoding::plain(Encoding::of(format.0).plain_index()),
    }
}

/// The liveness of the formats, by their number. The task of a session without a socket pings like a peer.
pub(crate) fn liveness() -> Vec<Liveness> {
    let formats = (0..FORMAT_COUNT).map(Format);
    formats
        .map(|format| match format {
            CARRIED => Liveness::PeerPings,
            format => {
                let Encoding {
                    protocol, variant, ..
                } = plain_encoding(format);
                protocol.liveness_of(variant)
            }
        })
        .collect()
}

/// A receiver of posts that may be congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A shard of this node.
    Shard(u16),
    /// Another node.
    Node(u16),
}

/// An effect that waits until the engine has returned.
#[derive(Debug)]
pub(crate) enum DeferredEffect {
    /// Interest changes up to this number are visible to all shards.
    Visible(u64),
    Authenticate(AuthRequest),
    Close(SessionId, CloseReason),
    Resume(SessionId),
    AwaitDrained(SessionId),
    /// A request of a peer about its session.
    SessionRequest(SessionId, OwnedSessionRequest),
    /// Messages that were encoded for a session before it introduced itself. They are sent unchanged, before all other messages.
    Send(SessionId, Format, Vec<Span>),
}

/// Collects the effects of one engine.
pub(crate) struct Sink {
    pub(crate) logs: TurnLogs,
    /// The log of [`CARRIED`].
    pub(crate) replies: ReplyLog,
    /// The ends of the messages of the turn.
    pub(crate) ends: MessageEnds,
    pub(crate) deflation: Deflation,
    pub(crate) deferred: VecDeque<DeferredEffect>,
    /// The entries for each shard that are posted at the end of the turn.
    pub(crate) outgoing: Box<[Vec<Entry>]>,
    /// The posts for other nodes, if one was linked.
    pub(crate) nodes: Option<Box<NodePosts>>,
    /// The interest of this shard, if its node is a member of a cluster.
    pub(crate) own_interest: Option<OwnInterest>,
    /// Whether the shard has adopted a view of a cluster.
    pub(crate) is_clustered: bool,
    /// Whether some shard or link is congested, as of the start of the turn.
    pub(crate) has_congested: bool,
    /// The congested target to which the current message goes, if the message has to wait for it.
    pub(crate) awaited: Option<Target>,
    /// Targets of the entries that the current message has caused.
    pub(crate) targets: Vec<u16>,
    /// Requests for stores that were not passed on yet.
    store_requests: Vec<StoreRequest>,
    /// Bytes that were compressed since the engine last asked.
    compressed_bytes: usize,
    /// The recording of traces, if a collector is configured.
    pub(super) traces: Option<Box<ShardTraces>>,
    /// The tails of operators, while there are some.
    pub(super) tails: Option<Box<Tails>>,
    address: Address,
    own: ShardHandle,
    interest: Arc<InterestMap>,
    requests: Arc<dyn Requests>,
}

impl Sink {
    pub(crate) fn new(
        address: Address,
        own: ShardHandle,
        shard_count: usize,
        interest: Arc<InterestMap>,
        requests: Arc<dyn Requests>,
        tracer: Option<Arc<Tracer>>,
        limits: &ShardLimits,
    ) -> Self {
        let clock = own.0.clock;
        let traces = tracer.map(|tracer| ShardTraces::new(tracer, own.index(), clock));
        Self {
            traces: traces.map(Box::new),
            tails: None,
            logs: TurnLogs::new(LOG_COUNT),
            replies: ReplyLog::default(),
            ends: MessageEnds::new(FORMAT_COUNT),
            deflation: Deflation::new(limits),
            deferred: VecDeque::new(),
            outgoing: (0..shard_count).map(|_| Vec::new()).collect(),
            has_congested: false,
            nodes: None,
            is_clustered: false,
            awaited: None,
            targets: Vec::new(),
            store_requests: Vec::new(),
            compressed_bytes: 0,
            address,
            own,
            interest,
            own_interest: None,
            requests,
        }
    }

    /// Passes the requests to the stores, in their order.
    pub(super) fn request_stores(&mut self) {
        for request in self.store_requests.drain(..) {
            self.requests.store(self.own.index(), request);
        }
    }

    /// Other nodes may have confirmed interest changes of this shard, or were lost.
    pub(super) fn note_visible(&mut self) {
        if let (Some(own), Some(nodes)) = (&self.own_interest, &self.nodes) {
            let up_to = nodes.visible().unwrap_or(own.last());
            self.make_visible(up_to);
        }
    }

    /// Whether linked nodes do not know all interest of this shard yet.
    pub(super) fn has_more_to_announce(&self) -> bool {
        self.nodes
            .as_ref()
            .is_some_and(|nodes| nodes.has_more_to_announce())
    }

    /// Announces a piece of the interest of this shard to nodes that were linked.
    pub(super) fn announce_piece(&mut self) {
        if let (Some(own), Some(nodes)) = (&self.own_interest, &mut self.nodes) {
            nodes.announce_piece(self.address.shard, own);
        }
    }

    fn make_visible(&mut self, number: u64) {
        match self.deferred.back_mut() {
            Some(DeferredEffect::Visible(up_to)) => *up_to = number,
            _ => self.deferred.push_back(DeferredEffect::Visible(number)),
        }
    }

    /// The number of this node.
    pub(super) fn node(&self) -> u16 {
        self.address.node
    }

    /// Calls `visit` with the other shards that need publications of a name.
    pub(super) fn visit_interested(
        &self,
        topic: InterestTopic,
        name: &str,
        visit: impl FnMut(u16),
    ) {
        self.interest.visit(topic, name, self.own.index(), visit);
    }
}

/// Cost of compressing a byte, relative to copying it.
const COMPRESSION_WORK: usize = 4;

impl Effects for Sink {
    fn take_compressed_bytes(&mut self) -> usize {
        std::mem::take(&mut self.compressed_bytes) * COMPRESSION_WORK
    }

    fn append(&mut self, format: Format, message: &Message<'_>) -> Span {
        if let Some(traces) = &mut self.traces
            && let Message::Event(Event::Publication(publication)) = message
            && let Some(trace) = publication.trace()
        {
            let trace = traces.delivered_as(publication.name, *trace);
            let delivered = publication.clone().with_trace(trace);
            return self.encode(format, &Message::Event(Event::Publication(delivered)));
        }
        self.encode(format, message)
    }

    fn post(&mut self, to: Address, entry: Entry) {
        debug_assert!(to != self.address, "a shard does not post to itself");
        if to.node != self.address.node {
            if let Some(nodes) = &mut self.nodes {
                nodes.post(self.address.shard, to, entry);
            }
            return;
        }
        self.targets.push(to.shard);
        self.outgoing[usize::from(to.shard)].push(entry);
    }

    fn publish(&mut self, topic: InterestTopic, name: &str, entry: impl Fn() -> Entry) {
        // Another node finds its interested shards itself.
        if let Some(nodes) = &mut self.nodes {
            nodes.post_to_interested(self.address.shard, topic, name, &entry);
        }
        if self.outgoing.len() == 1 {
            return;
        }
        let mut made = None;
        let (outgoing, targets) = (&mut self.outgoing, &mut self.targets);
        self.interest.visit(topic, name, self.own.index(), |shard| {
            let made = made.get_or_insert_with(&entry);
            targets.push(shard);
            outgoing[usize::from(shard)].push(made.clone());
        });
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        let Address { node, shard: own } = self.address;
        self.interest
            .visit_pattern_shards(event, own, |shard| visit(Address { node, shard }));
        if let Some(nodes) = &self.nodes {
            nodes.visit_pattern_shards(event, visit);
        }
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        if let Some(own) = &mut self.own_interest {
            own.change(number, &change);
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.announce(self.address.shard, number, &change);
        }
        self.interest.change(self.own.index(), change);
        let at_nodes = self.nodes.as_ref().and_then(|nodes| nodes.visible());
        self.make_visible(at_nodes.unwrap_or(number));
    }

    fn store(&mut self, request: StoreRequest) {
        self.store_requests.push(request);
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.deferred
            .push_back(DeferredEffect::Authenticate(request));
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        self.deferred
            .push_back(DeferredEffect::Close(session, reason));
    }

    fn resume(&mut self, session: SessionId) {
        self.deferred.push_back(DeferredEffect::Resume(session));
    }

    fn await_drained(&mut self, session: SessionId) {
        self.deferred
            .push_back(DeferredEffect::AwaitDrained(session));
    }
}

impl Sink {
    fn encode(&mut self, format: Format, message: &Message<'_>) -> Span {
        let span = self.encode_unnoted(format, message);
        if let Some(tails) = &mut self.tails {
            tails.note_encoded(format, span, message);
        }
        span
    }

    fn encode_unnoted(&mut self, format: Format, message: &Message<'_>) -> Span {
        let stats = self.own.stats();
        add(&stats.messages_out[topic_index(message)], 1);
        if format == CARRIED {
            let span = self.replies.append(message);
            self.ends.note(format, span.end);
            return span;
        }
        let log = self.logs.log_mut(format.0);
        let encoding = match format > CARRIED {
            true => plain_encoding(format),
            false => Encoding::of(format.0),
        };
        let range = if encoding.is_batched {
            log.append(|out| encoding.encode(message, out))
        } else if encoding.is_deflated {
            let deflation = &mut self.deflation;
            let before = deflation.turn_bytes();
            let encode = |payload: &mut Vec<u8>| encoding.encode(message, payload);
            let range =
                log.append(|out| deflation.encode_frame(encoding.opcode(), encode, stats, out));
            self.compressed_bytes += deflation.turn_bytes() - before;
            range
        } else {
            log.append(|out| encoding.encode_frame(message, out))
        };
        self.ends.note(format, range.end);
        Span {
            start: range.start,
            end: range.end,
        }
    }

    /// Passes a message of a connection to the engine, unless the message has to wait for a congested shard or link (`awaited`).
    #[inline]
    pub(crate) fn give(
        &mut self,
        engine: &mut Shard,
        confirmations: &Confirmations,
        now: Now,
        session: SessionId,
        message: &Message<'_>,
    ) -> Flow {
        if self.has_congested {
            self.awaited = self.congested_target(engine, confirmations, message);
            if self.awaited.is_some() {
                return Flow::Wait;
            }
        }
        self.handle_message(engine, now, session, message)
    }

    /// Passes a message of a session to the engine, and notes it for the tails of operators.
    pub(super) fn handle_message(
        &mut self,
        engine: &mut Shard,
        now: Now,
        session: SessionId,
        message: &Message<'_>,
    ) -> Flow {
        let flow = self.handle_traced(engine, now, session, message);
        if let Some(tails) = &mut self.tails
            && flow == Flow::Taken
        {
            tails.note_received(now.wall, session, engine.user(session), message);
        }
        flow
    }

    /// If the message is a publication that is traced, its span is recorded.
    fn handle_traced(
        &mut self,
        engine: &mut Shard,
        now: Now,
        session: SessionId,
        message: &Message<'_>,
    ) -> Flow {
        let begun = self.traces.as_mut().and_then(|it| it.begin(message));
        let (Some(recorded), Message::Event(event)) = (begun, message) else {
            return engine.message(now, session, message, self);
        };
        let mut event = event.clone();
        if let Event::Publication(publication) | Event::Publish { publication, .. } = &mut event {
            *publication = publication.clone().with_trace(recorded.trace);
        }
        let traced = Message::Event(event);
        let flow = engine.message(now, session, &traced, self);
        // The span of a message that has to wait is recorded when the message continues.
        if flow == Flow::Taken
            && let Some(traces) = &self.traces
        {
            traces.published(recorded);
        }
        flow
    }

    /// Passes a request to the auth chain. Returns its answer if that is known at once.
    pub(crate) fn ask_auth(&self, request: AuthRequest, peer: Arc<PeerDetails>) -> AuthReply {
        self.requests.authenticate(request, peer)
    }
}
