//! The state machine of one link: this process and one other node, through all lives of that node.
//!
//! A peer is known by its birth. Everything that belongs to a birth is in [`Peer`], so a new birth begins without any state of the earlier one.
//! Each input may produce outputs, which the driver takes with [`Link::poll_output`] before the next input.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;
use tidewire_core::time::Instant;

use crate::frame::{DecodeError, Frame, Hello, Levels, Process};
use crate::incoming::Incoming;
use crate::limits::{
    ANSWER_MAX, BROKEN_MAX, HELLO_DELAY_MAX, HELLO_DELAY_MIN, Limits, PAUSE_MIN, PING_INTERVAL,
    SILENCE_MAX,
};
use crate::liveness::Liveness;
use crate::outgoing::Outgoing;

/// The two ends of a link.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This process.
    pub local: Process,
    /// The node of the peer.
    pub peer: u16,
    /// Births of the peer before this one are refused.
    pub peer_birth_min: u64,
    /// The cluster, see [`crate::cluster_identity`].
    pub cluster: u64,
    /// The protocol levels of this process.
    pub levels: Levels,
    /// Limits.
    pub limits: Limits,
}

/// An output of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The carrier sends this frame. It may lose it.
    Send(Vec<u8>),
    /// The next piece of the peer's stream of entries. The driver calls [`Link::handled`] with both numbers after the shards have handled it.
    Deliver {
        /// The birth of the peer.
        birth: u64,
        /// The number of the frame.
        number: u64,
        /// The entries.
        entries: Vec<u8>,
    },
    /// The link is open: both processes know each other's birth.
    Linked {
        /// The birth of the peer.
        birth: u64,
        /// The highest protocol level that both know.
        level: u32,
    },
    /// The link to this birth has ended. No entry of it will be delivered.
    NodeLost {
        /// The birth of the peer.
        birth: u64,
    },
    /// The peer does not work as it should. A hint: the link continues.
    Suspect(Suspicion),
    /// The peer is not suspect any longer.
    Trusted,
    /// The peer has answered a ping that left so long ago.
    Answered(Duration),
    /// Whether sessions that post to the peer must wait.
    Congested(bool),
    /// The carrier should replace its connection, because the peer is silent.
    Reset,
    /// The peer can't be linked.
    Refused(Refusal),
}

/// Why a peer is suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suspicion {
    /// The carrier is broken for 500 ms.
    Broken,
    /// Nothing was received for 2 s, or the last pings have no answer.
    Silent,
    /// The peer handles nothing for 2 s, although entries wait for it.
    Stuck,
    /// More than `link_bytes_max` wait for the peer. The link has ended.
    Full,
}

/// Why a peer can't be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    /// The peer has another cluster key.
    #[error("the peer belongs to another cluster")]
    Cluster,
    /// No protocol level is known to both.
    #[error("the peer speaks the levels {min} to {max}, of which this node knows none")]
    Levels {
        /// The lowest level of the peer.
        min: u32,
        /// The highest one.
        max: u32,
    },
}

/// Why a frame is refused. The link continues without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The frame is from another node, or for another one.
    #[error("a frame from node {from} for node {to}")]
    Address {
        /// The sender.
        from: u16,
        /// The receiver.
        to: u16,
    },
    /// The peer acknowledges a frame that this process has not sent.
    #[error("the peer acknowledges a frame that was not sent")]
    NeverSent,
}

/// Counts of a link since its peer's birth, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The birth of the peer, 0 if no peer is linked.
    pub birth: u64,
    /// Smoothed.
    pub round_trip: Option<Duration>,
    /// Bytes that wait for their acknowledgement.
    pub waiting_bytes: usize,
    /// Bytes of received frames that wait for earlier ones.
    pub early_bytes: usize,
    /// Frames that were sent again.
    pub resent_count: u64,
    /// Frames that arrived again.
    pub duplicate_count: u64,
    /// Frames that arrived before an earlier one.
    pub early_count: u64,
}

/// A birth of the peer.
#[derive(Debug)]
struct Peer {
    birth: u64,
    level: u32,
    /// The peer knows the birth of this process.
    is_linked: bool,
    outgoing: Outgoing,
    incoming: Incoming,
    liveness: Liveness,
}

/// The carrier as the link knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CarrierState {
    Down,
    /// Up, and a hello of the peer has not arrived since. The link does not know yet which frames the carrier has lost.
    Up,
    Resumed,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct Link {
    config: Config,
    /// Births before this one have ended.
    birth_min: u64,
    /// The driver has ended the link, and the next birth has not begun.
    is_ended: bool,
    peer: Option<Peer>,
    carrier: CarrierState,
    /// Since when the carrier is not resumed.
    broken_since: Instant,
    /// Since when the link has no peer.
    alone_since: Instant,
    hello_at: Instant,
    hello_delay: Duration,
    /// The last end or hello that was sent because of an unexpected frame.
    corrected_at: Option<Instant>,
    last_input: Instant,
    suspicion: Option<Suspicion>,
    /// The carrier is not reset again before this time.
    reset_at: Instant,
    is_congested: bool,
    refusal: Option<(u64, Refusal)>,
    outputs: VecDeque<Output>,
}

impl Link {
    /// A link whose carrier is down.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            birth_min: config.peer_birth_min.max(1),
            config,
            is_ended: false,
            peer: None,
            carrier: CarrierState::Down,
            broken_since: now,
            alone_since: now,
            hello_at: now,
            hello_delay: HELLO_DELAY_MIN,
            corrected_at: None,
            last_input: now,
            suspicion: None,
            reset_at: now,
            is_congested: false,
            refusal: None,
            outputs: VecDeque::new(),
        }
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The carrier is connected, again or for the first time.
    pub fn carrier_up(&mut self, now: Instant) {
        self.begin_input(now);
        if self.carrier == CarrierState::Resumed {
            self.broken_since = now;
        }
        self.carrier = CarrierState::Up;
        self.hello_delay = HELLO_DELAY_MIN;
        self.hello_at = now;
        self.end_input(now);
    }

    /// The carrier has lost its connection.
    pub fn carrier_down(&mut self, now: Instant) {
        self.begin_input(now);
        if self.carrier == CarrierState::Resumed {
            self.broken_since = now;
        }
        self.carrier = CarrierState::Down;
        self.end_input(now);
    }

    /// Takes entries for this birth of the peer: one or several batches of `spec/entries.md`. They leave with [`Link::end_turn`]. Without a link
    /// to it they are dropped: [`Output::NodeLost`] has answered them already.
    pub fn post(&mut self, birth: u64, entries: &[u8]) {
        let Some(peer) = self.linked_to(birth) else {
            return;
        };
        if peer.outgoing.post(entries) {
            return;
        }
        // A gap in the stream would break its promise, so the stream ends here.
        self.suspicion = Some(Suspicion::Full);
        self.outputs.push_back(Output::Suspect(Suspicion::Full));
        self.send_end();
        self.lose();
        self.is_ended = true;
    }

    /// Ends the turn: its entries leave in one frame.
    pub fn end_turn(&mut self, now: Instant) {
        self.begin_input(now);
        if let Some(peer) = &mut self.peer {
            peer.outgoing.close_turn();
        }
        self.end_input(now);
    }

    /// The shards have handled all deliveries of this birth up to this number. Only then the peer sends more than its window.
    pub fn handled(&mut self, now: Instant, birth: u64, number: u64) {
        self.begin_input(now);
        if let Some(peer) = self.linked_to(birth) {
            peer.incoming.handled(now, number);
        }
        self.end_input(now);
    }

    /// Whether deliveries of the peer are not handled yet.
    #[must_use]
    pub fn has_unhandled(&self) -> bool {
        let peer = self.peer.as_ref();
        peer.is_some_and(|peer| peer.incoming.handled_to() < peer.incoming.delivered())
    }

    /// The view does not have the peer with this birth any longer: ends its link and those to earlier births.
    pub fn peer_left(&mut self, now: Instant, birth: u64) {
        self.begin_input(now);
        self.birth_min = self.birth_min.max(birth.saturating_add(1));
        if self.peer.as_ref().is_none_or(|peer| peer.birth <= birth) {
            self.send_end();
            self.lose();
            self.is_ended = true;
            self.clear_suspicion();
        }
        self.end_input(now);
    }

    /// Handles the passing of time. Must be called at [`Link::deadline`], and may be called at any time.
    pub fn handle_time(&mut self, now: Instant) {
        self.begin_input(now);
        self.end_input(now);
    }

    /// Takes a frame that the carrier has received.
    ///
    /// # Errors
    /// The frame is refused. The link is as before.
    pub fn handle_frame(&mut self, now: Instant, bytes: &[u8]) -> Result<(), FrameError> {
        self.begin_input(now);
        let frame = Frame::decode(bytes)?;
        if frame.from.node != self.config.peer || frame.to.node != self.config.local.node {
            let (from, to) = (frame.from.node, frame.to.node);
            return Err(FrameError::Address { from, to });
        }
        let result = self.route(now, &frame);
        self.end_input(now);
        result
    }

    /// Compares the births of a frame with the births of this link.
    fn route(&mut self, now: Instant, frame: &Frame<'_>) -> Result<(), FrameError> {
        let birth = frame.from.birth;
        if birth < self.birth_min {
            // The peer does not know yet that its link has ended. Only the last birth can learn it.
            if birth + 1 == self.birth_min && !frame.is_end && self.may_correct(now) {
                self.send_end_to(birth);
            }
            return Ok(());
        }
        let known = self.peer.as_ref().map(|peer| peer.birth);
        if known.is_some_and(|known| birth < known) {
            return Ok(());
        }
        if known != Some(birth) && !self.meet(now, frame) {
            return Ok(());
        }
        if frame.to.birth != self.config.local.birth {
            match frame.hello {
                Some(hello) if !hello.is_answer && frame.to.birth == 0 => self.send_hello(true),
                // The peer expects another life of this node. A hello tells it which one lives.
                _ if self.may_correct(now) => self.send_hello(false),
                _ => {}
            }
            return Ok(());
        }
        self.take(now, frame)
    }

    /// Takes the hello of an unknown birth. Returns false if the frame has no hello or is refused.
    fn meet(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        let Some(hello) = frame.hello else {
            if self.may_correct(now) {
                self.send_hello(false);
            }
            return false;
        };
        let birth = frame.from.birth;
        let ours = self.config.levels;
        let level = ours.max.min(hello.levels.max);
        let refusal = if hello.cluster != self.config.cluster {
            Some(Refusal::Cluster)
        } else if level < ours.min.max(hello.levels.min) {
            let (min, max) = (hello.levels.min, hello.levels.max);
            Some(Refusal::Levels { min, max })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            if self.refusal != Some((birth, refusal)) {
                self.refusal = Some((birth, refusal));
                self.outputs.push_back(Output::Refused(refusal));
            }
            return false;
        }
        self.lose();
        self.birth_min = birth;
        self.is_ended = false;
        self.clear_suspicion();
        self.peer = Some(Peer {
            birth,
            level,
            is_linked: false,
            outgoing: Outgoing::new(self.config.limits, now),
            incoming: Incoming::new(self.config.limits),
            liveness: Liveness::new(now),
        });
        true
    }

    /// Takes a frame between the two births of this link.
    fn take(&mut self, now: Instant, frame: &Frame<'_>) -> Result<(), FrameError> {
        let Some(peer) = &mut self.peer else {
            return Ok(());
        };
        if frame.is_end {
            let birth = peer.birth;
            self.lose();
            self.is_ended = true;
            self.birth_min = birth.saturating_add(1);
            self.clear_suspicion();
            return Ok(());
        }
        let round_trip = peer.liveness.round_trip().unwrap_or_default();
        let acknowledged =
            peer.outgoing
                .acknowledge(frame.received, frame.handled, now, round_trip);
        acknowledged.map_err(|_| FrameError::NeverSent)?;
        peer.liveness.heard_at = now;
        if !peer.is_linked {
            peer.is_linked = true;
            self.broken_since = now;
            let (birth, level) = (peer.birth, peer.level);
            self.outputs.push_back(Output::Linked { birth, level });
        }
        if frame.pong != 0
            && let Some(round_trip) = peer.liveness.pong(now, frame.pong)
        {
            self.outputs.push_back(Output::Answered(round_trip));
        }
        peer.incoming.announce(now, frame.sent);
        if frame.number != 0 {
            let (outputs, birth) = (&mut self.outputs, peer.birth);
            peer.incoming
                .handle(now, frame.number, frame.entries, |number, entries| {
                    outputs.push_back(Output::Deliver {
                        birth,
                        number,
                        entries,
                    });
                });
        }
        if frame.missing_to != 0 && self.carrier == CarrierState::Resumed {
            for number in peer.outgoing.missing(frame.received, frame.missing_to) {
                self.send_entries(number);
            }
        }
        match frame.hello {
            Some(hello) => self.resume(now, frame.received, hello.is_answer),
            None if frame.ping != 0 => self.send(|frame| frame, 0, frame.ping),
            None => {}
        }
        Ok(())
    }

    /// Takes a hello between the two births. Without an answer, the carrier of the peer is new, and may have lost what it carried.
    fn resume(&mut self, now: Instant, received: u64, is_answer: bool) {
        if !is_answer {
            self.send_hello(true);
        }
        if is_answer && self.carrier != CarrierState::Up {
            return;
        }
        if self.carrier == CarrierState::Up {
            self.carrier = CarrierState::Resumed;
        }
        if let Some(peer) = &mut self.peer {
            peer.outgoing.resume(received);
            peer.incoming.resume();
            // The ping tells the peer that its answer has arrived, and measures the time.
            peer.liveness.ping_at = now;
        }
    }

    /// The link to the peer ends, if there is one.
    fn lose(&mut self) {
        self.alone_since = self.last_input;
        if let Some(peer) = self.peer.take() {
            self.birth_min = peer.birth.saturating_add(1);
            if peer.is_linked {
                let birth = peer.birth;
                self.outputs.push_back(Output::NodeLost { birth });
            }
        }
        if self.is_congested {
            self.is_congested = false;
            self.outputs.push_back(Output::Congested(false));
        }
        if self.carrier == CarrierState::Resumed {
            self.carrier = CarrierState::Up;
        }
        self.hello_at = self.last_input;
        self.hello_delay = HELLO_DELAY_MIN;
    }

    fn clear_suspicion(&mut self) {
        if self.suspicion.take().is_some() {
            self.outputs.push_back(Output::Trusted);
        }
    }

    fn begin_input(&mut self, now: Instant) {
        let pause = now.since(self.last_input);
        self.last_input = now;
        if pause >= PAUSE_MIN {
            self.broken_since = self.broken_since + pause;
            self.alone_since = self.alone_since + pause;
            if let Some(peer) = &mut self.peer {
                peer.liveness.skip(pause);
                peer.outgoing.skip(pause);
            }
        }
    }

    /// Sends all frames that are due, the alone ones last: a frame with entries takes an acknowledgement along.
    fn end_input(&mut self, now: Instant) {
        self.send_due_hello(now);
        if self.carrier == CarrierState::Resumed {
            self.send_due_entries(now);
            self.send_due_signals(now);
        }
        self.note_congestion();
        self.note_suspicion(now);
    }

    fn send_due_hello(&mut self, now: Instant) {
        if self.carrier != CarrierState::Up || self.is_ended || now < self.hello_at {
            return;
        }
        self.hello_at = now + self.hello_delay;
        self.hello_delay = (self.hello_delay * 2).min(HELLO_DELAY_MAX);
        self.send_hello(false);
    }

    fn send_due_entries(&mut self, now: Instant) {
        while let Some(number) = self.peer_mut(|peer| peer.outgoing.poll(now)) {
            self.send_entries(number);
        }
        if let Some(number) = self.peer_mut(|peer| peer.outgoing.poll_late(now)) {
            self.send_entries(number);
        }
    }

    fn send_due_signals(&mut self, now: Instant) {
        let Some(peer) = self.peer.as_mut().filter(|peer| peer.is_linked) else {
            return;
        };
        let round_trip = peer.liveness.round_trip().unwrap_or_default();
        let missing_to = peer.incoming.poll_request(now, round_trip).unwrap_or(0);
        let ping = match now >= peer.liveness.ping_at {
            true => peer.liveness.ping(now),
            false => 0,
        };
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let sent = peer.outgoing.sent();
        if missing_to != 0 || ping != 0 || is_due(peer.incoming.acknowledge_deadline()) {
            let signals = |frame: Frame<'static>| Frame {
                missing_to,
                ping,
                sent: if ping == 0 { 0 } else { sent },
                ..frame
            };
            self.send(signals, 0, 0);
        }
    }

    fn linked_to(&mut self, birth: u64) -> Option<&mut Peer> {
        let peer = self.peer.as_mut();
        peer.filter(|peer| peer.is_linked && peer.birth == birth)
    }

    fn peer_mut(&mut self, take: impl FnOnce(&mut Peer) -> Option<u64>) -> Option<u64> {
        self.peer.as_mut().and_then(take)
    }

    fn send_entries(&mut self, number: u64) {
        self.send(|frame| frame, number, 0);
    }

    fn send_hello(&mut self, is_answer: bool) {
        let hello = Hello {
            cluster: self.config.cluster,
            levels: self.config.levels,
            is_answer,
        };
        let hello = Some(hello);
        self.send(|frame| Frame { hello, ..frame }, 0, 0);
    }

    fn send_end(&mut self) {
        if let Some(peer) = &self.peer {
            self.send_end_to(peer.birth);
        }
    }

    fn send_end_to(&mut self, birth: u64) {
        let to = Process {
            node: self.config.peer,
            birth,
        };
        let end = |frame| Frame {
            to,
            is_end: true,
            ..frame
        };
        self.send(end, 0, 0);
    }

    /// Sends a frame with the acknowledgements, if the carrier is up.
    fn send(
        &mut self,
        change: impl FnOnce(Frame<'static>) -> Frame<'static>,
        number: u64,
        pong: u64,
    ) {
        if self.carrier == CarrierState::Down {
            return;
        }
        let peer = self.peer.as_mut();
        let frame = Frame {
            from: self.config.local,
            to: Process {
                node: self.config.peer,
                birth: peer.as_ref().map_or(0, |peer| peer.birth),
            },
            received: peer.as_ref().map_or(0, |peer| peer.incoming.delivered()),
            handled: peer.as_ref().map_or(0, |peer| peer.incoming.handled_to()),
            pong,
            ..Frame::default()
        };
        let mut frame: Frame<'_> = change(frame);
        let mut bytes = Vec::new();
        match peer {
            Some(peer) => {
                if frame.to.birth == peer.birth {
                    peer.incoming.acknowledged();
                }
                if number != 0 {
                    frame.number = number;
                    frame.entries = peer.outgoing.entries(number);
                }
                frame.encode(&mut bytes);
            }
            None => frame.encode(&mut bytes),
        }
        self.outputs.push_back(Output::Send(bytes));
    }

    /// Whether an unexpected frame is answered. Its sender may repeat it many times before it knows.
    fn may_correct(&mut self, now: Instant) -> bool {
        let may = self
            .corrected_at
            .is_none_or(|at| now.since(at) >= HELLO_DELAY_MIN);
        if may {
            self.corrected_at = Some(now);
        }
        may
    }

    fn note_congestion(&mut self) {
        let Some(peer) = &self.peer else {
            return;
        };
        let (waiting, max) = (
            peer.outgoing.waiting_bytes(),
            self.config.limits.congestion_bytes,
        );
        let is_congested = match self.is_congested {
            true => waiting > max / 2,
            false => waiting >= max,
        };
        if is_congested != self.is_congested {
            self.is_congested = is_congested;
            self.outputs.push_back(Output::Congested(is_congested));
        }
    }

    fn note_suspicion(&mut self, now: Instant) {
        if self.is_ended {
            return;
        }
        let suspicions = self.suspicions();
        let mut reasons = suspicions.into_iter().flatten();
        let found = reasons.find(|(at, _)| now >= *at);
        let found = found.map(|(_, suspicion)| suspicion);
        match (self.suspicion, found) {
            (None, Some(suspicion)) => {
                self.suspicion = found;
                self.outputs.push_back(Output::Suspect(suspicion));
            }
            (Some(_), None) => self.clear_suspicion(),
            _ => {}
        }
        if self.reset_deadline().is_some_and(|at| now >= at) {
            self.reset_at = now + SILENCE_MAX;
            self.outputs.push_back(Output::Reset);
        }
    }

    /// When the carrier is to replace its connection. A connection may be dead without an error.
    fn reset_deadline(&self) -> Option<Instant> {
        let peer = self.peer.as_ref().filter(|peer| peer.is_linked)?;
        let silent_at = peer.liveness.heard_at + SILENCE_MAX;
        let unanswered_at = peer.liveness.answered_at + ANSWER_MAX;
        let at = silent_at.min(unanswered_at).max(self.reset_at);
        (self.carrier != CarrierState::Down).then_some(at)
    }

    /// Each reason to suspect the peer, with the time from which it holds.
    fn suspicions(&self) -> [Option<(Instant, Suspicion)>; 4] {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.is_linked) else {
            return [
                Some((self.alone_since + SILENCE_MAX, Suspicion::Silent)),
                None,
                None,
                None,
            ];
        };
        let is_broken = self.carrier != CarrierState::Resumed;
        let stuck = peer.outgoing.stuck_since();
        [
            is_broken.then(|| (self.broken_since + BROKEN_MAX, Suspicion::Broken)),
            Some((peer.liveness.heard_at + SILENCE_MAX, Suspicion::Silent)),
            Some((peer.liveness.answered_at + ANSWER_MAX, Suspicion::Silent)),
            stuck.map(|since| (since + SILENCE_MAX, Suspicion::Stuck)),
        ]
    }

    /// When [`Link::handle_time`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let mut deadlines = Vec::with_capacity(12);
        if !self.is_ended {
            // The longest time between two inputs shows a pause of this process.
            deadlines.push(self.last_input + PING_INTERVAL);
            deadlines.extend(self.reset_deadline());
            if self.carrier == CarrierState::Up {
                deadlines.push(self.hello_at);
            }
            if self.suspicion.is_none() {
                let suspicions = self.suspicions().into_iter().flatten();
                deadlines.extend(suspicions.map(|(at, _)| at));
            }
        }
        if let Some(peer) = &self.peer
            && self.carrier == CarrierState::Resumed
        {
            deadlines.push(peer.liveness.ping_at);
            deadlines.extend(peer.outgoing.resend_deadline());
            deadlines.extend(peer.incoming.acknowledge_deadline());
            deadlines.extend(peer.incoming.request_deadline());
        }
        deadlines.into_iter().min()
    }

    /// Whether the link to the current birth of the peer is open.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_linked)
    }

    /// Counts for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.is_linked) else {
            return Stats::default();
        };
        Stats {
            birth: peer.birth,
            round_trip: peer.liveness.round_trip(),
            waiting_bytes: peer.outgoing.waiting_bytes(),
            early_bytes: peer.incoming.early_bytes(),
            resent_count: peer.outgoing.resent_count,
            duplicate_count: peer.incoming.duplicate_count,
            early_count: peer.incoming.early_count,
        }
    }
}
