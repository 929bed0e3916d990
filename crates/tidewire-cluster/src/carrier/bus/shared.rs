//! The state that the task of a connection and the carriers over it share: messages that wait in both directions, within limits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidewire_link::frame::Process;
use tokio::sync::{Notify, watch};

use super::envelope;
use crate::carrier::CarrierEvent;

/// Messages to or from one peer that may wait. A link has at most 4 MiB in flight, once more after a break.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Each waiting message counts this in addition to its length.
const MESSAGE_COST: usize = 64;
/// Messages that are published together. One may be longer.
const BATCH_BYTES: usize = 256 << 10;

/// A message for the inbox of a process.
#[derive(Debug)]
pub(in crate::carrier) struct Message {
    pub to: Process,
    /// The frame in its envelope.
    pub bytes: Vec<u8>,
}

/// The messages of one peer.
#[derive(Debug)]
struct Peer {
    /// The carrier to which the entry belongs.
    id: u64,
    /// The latest known birth of the node, whose inbox receives the frames.
    process: Process,
    /// Frames that have arrived.
    frames: VecDeque<Vec<u8>>,
    frame_bytes: usize,
    /// Bytes among the messages to be published.
    outgoing_bytes: usize,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the changes of the connection: it is up if the number is odd.
    changes: u64,
    /// A message to the own inbox has returned since the last question.
    is_checked: bool,
    outgoing: VecDeque<Message>,
    peers: HashMap<u16, Peer>,
    next_id: u64,
}

impl State {
    fn is_up(&self) -> bool {
        self.changes % 2 == 1
    }

    fn change(&mut self) {
        self.changes += 1;
        for peer in self.peers.values_mut() {
            peer.wake();
        }
    }
}

impl Peer {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// See the documentation of this module.
#[derive(Debug)]
pub(in crate::carrier) struct Shared {
    local: Process,
    state: Mutex<State>,
    /// Messages wait to be published.
    published: Notify,
    /// Whether the broker answers.
    answers: watch::Sender<bool>,
}

impl Shared {
    pub fn new(local: Process) -> Self {
        Self {
            local,
            state: Mutex::default(),
            published: Notify::new(),
            answers: watch::Sender::new(false),
        }
    }

    pub(super) fn answers(&self) -> watch::Receiver<bool> {
        self.answers.subscribe()
    }

    /// Notes whether the broker answers.
    pub(super) fn set_answers(&self, answers: bool) {
        self.answers
            .send_if_modified(|known| std::mem::replace(known, answers) != answers);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a peer. Returns the identity of its carrier.
    pub(super) fn add(&self, peer: Process) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        let added = Peer {
            id,
            process: peer,
            frames: VecDeque::new(),
            frame_bytes: 0,
            outgoing_bytes: 0,
            waker: None,
        };
        if let Some(mut earlier) = state.peers.insert(peer.node, added) {
            earlier.wake();
        }
        id
    }

    /// Removes the peer, unless another carrier has taken its place.
    pub(super) fn remove(&self, node: u16, id: u64) {
        let mut state = self.state();
        if state.peers.get(&node).is_some_and(|peer| peer.id == id) {
            state.peers.remove(&node);
        }
    }

    /// The next event of a carrier, which has reported `seen` changes of the connection.
    pub(super) fn poll_event(
        &self,
        context: &mut Context<'_>,
        node: u16,
        id: u64,
        seen: &mut u64,
    ) -> Poll<CarrierEvent> {
        let mut state = self.state();
        if *seen < state.changes {
            // A break that ended before the carrier was polled is still a break. Several ones are one.
            *seen += 1 + (state.changes - *seen - 1) / 2 * 2;
            return Poll::Ready(match *seen % 2 {
                1 => CarrierEvent::Up,
                _ => CarrierEvent::Down,
            });
        }
        let Some(peer) = state.peers.get_mut(&node).filter(|peer| peer.id == id) else {
            return Poll::Pending;
        };
        if let Some(frame) = peer.frames.pop_front() {
            peer.frame_bytes -= frame.len() + MESSAGE_COST;
            return Poll::Ready(CarrierEvent::Frame(frame));
        }
        peer.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes a frame for a peer, or drops it without a connection or room.
    pub(super) fn send(&self, node: u16, frame: &[u8]) {
        let mut state = self.state();
        if !state.is_up() {
            return;
        }
        let Some(peer) = state.peers.get_mut(&node) else {
            return;
        };
        let cost = envelope::BYTES + frame.len() + MESSAGE_COST;
        if peer.outgoing_bytes + cost > WAITING_BYTES_MAX {
            return;
        }
        peer.outgoing_bytes += cost;
        let message = Message {
            to: peer.process,
            bytes: envelope::encode(self.local, peer.process, frame),
        };
        state.outgoing.push_back(message);
        self.published.notify_one();
    }

    /// Sends a message to the own inbox.
    pub(super) fn send_check(&self) {
        let message = Message {
            to: self.local,
            bytes: envelope::encode(self.local, self.local, &[]),
        };
        self.state().outgoing.push_back(message);
        self.published.notify_one();
    }

    /// Whether a message to the own inbox has returned since the last call.
    pub(super) fn take_checked(&self) -> bool {
        std::mem::take(&mut self.state().is_checked)
    }

    /// Waits for messages to be published.
    pub(super) async fn next_messages(&self) -> Vec<Message> {
        loop {
            let messages = self.take_messages();
            if !messages.is_empty() {
                return messages;
            }
            self.published.notified().await;
        }
    }

    fn take_messages(&self) -> Vec<Message> {
        let mut state = self.state();
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(message) = state.outgoing.pop_front()
        {
            bytes += message.bytes.len();
            if message.to.node != self.local.node
                && let Some(peer) = state.peers.get_mut(&message.to.node)
            {
                let cost = message.bytes.len() + MESSAGE_COST;
                peer.outgoing_bytes = peer.outgoing_bytes.saturating_sub(cost);
            }
            messages.push(message);
        }
        messages
    }

    /// Takes a message from the inbox. The link checks the frame; messages for other processes and from unknown nodes are dropped.
    pub(super) fn receive(&self, message: &[u8]) {
        let Some((from, to, frame)) = envelope::decode(message) else {
            return;
        };
        // The inbox of a broker can be shared, and can have messages for an earlier life of this node.
        if to != self.local {
            return;
        }
        let mut state = self.state();
        if from == self.local {
            state.is_checked = true;
            if !state.is_up() {
                state.change();
                self.set_answers(true);
            }
            return;
        }
        let Some(peer) = state.peers.get_mut(&from.node) else {
            return;
        };
        peer.process.birth = peer.process.birth.max(from.birth);
        let cost = frame.len() + MESSAGE_COST;
        if peer.frame_bytes + cost > WAITING_BYTES_MAX {
            return;
        }
        peer.frame_bytes += cost;
        peer.frames.push_back(frame.to_vec());
        peer.wake();
    }

    /// The connection is lost: messages that were not published are dropped. Returns whether the connection has worked.
    pub(super) fn disconnect(&self) -> bool {
        let mut state = self.state();
        state.outgoing.clear();
        state.is_checked = false;
        for peer in state.peers.values_mut() {
            peer.outgoing_bytes = 0;
        }
        self.set_answers(false);
        let was_up = state.is_up();
        if was_up {
            state.change();
        }
        was_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Process = Process { node: 1, birth: 5 };
    const PEER: Process = Process { node: 2, birth: 3 };

    fn event(shared: &Shared, id: u64, seen: &mut u64) -> Option<CarrierEvent> {
        let mut context = Context::from_waker(Waker::noop());
        match shared.poll_event(&mut context, PEER.node, id, seen) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    fn check(shared: &Shared) {
        shared.receive(&envelope::encode(LOCAL, LOCAL, &[]));
    }

    #[test]
    fn waiting_messages_are_limited_in_both_directions() {
        let shared = Shared::new(LOCAL);
        let (id, mut seen) = (shared.add(PEER), 0);
        let frame = vec![0; 1 << 20];
        shared.send(PEER.node, &frame);
        assert!(shared.take_messages().is_empty(), "there is no connection");
        check(&shared);
        assert_eq!(event(&shared, id, &mut seen), Some(CarrierEvent::Up));
        for _ in 0..2 {
            for _ in 0..20 {
                shared.send(PEER.node, &frame);
                shared.receive(&envelope::encode(PEER, LOCAL, &frame));
            }
            let batches = std::iter::from_fn(|| Some(shared.take_messages()));
            let batches = batches.take_while(|batch| !batch.is_empty());
            assert_eq!(batches.map(|batch| batch.len()).sum::<usize>(), 15);
            let frames = std::iter::from_fn(|| event(&shared, id, &mut seen));
            assert_eq!(frames.count(), 15);
        }
    }

    #[test]
    fn messages_for_other_processes_and_from_unknown_nodes_are_dropped() {
        let shared = Shared::new(LOCAL);
        let (id, mut seen) = (shared.add(PEER), 0);
        let earlier = Process { birth: 4, ..LOCAL };
        let stranger = Process { node: 7, birth: 3 };
        for (from, to) in [
            (PEER, earlier),
            (PEER, stranger),
            (stranger, LOCAL),
            (LOCAL, PEER),
        ] {
            shared.receive(&envelope::encode(from, to, b"frame"));
        }
        shared.receive(b"short");
        assert_eq!(event(&shared, id, &mut seen), None);
        shared.receive(&envelope::encode(PEER, LOCAL, b"frame"));
        let frame = CarrierEvent::Frame(b"frame".to_vec());
        assert_eq!(event(&shared, id, &mut seen), Some(frame));
    }

    #[test]
    fn frames_follow_a_node_to_its_later_births() {
        let shared = Shared::new(LOCAL);
        shared.add(PEER);
        check(&shared);
        for (birth, to) in [(9, 9), (4, 9)] {
            let from = Process { birth, ..PEER };
            shared.receive(&envelope::encode(from, LOCAL, b"frame"));
            shared.send(PEER.node, b"frame");
            let sent = shared.take_messages();
            let births: Vec<u64> = sent.iter().map(|message| message.to.birth).collect();
            assert_eq!(births, [to]);
        }
    }

    #[test]
    fn a_carrier_reports_several_breaks_that_it_has_not_seen_as_one() {
        let shared = Shared::new(LOCAL);
        let (id, mut seen) = (shared.add(PEER), 0);
        let mut breaks = |count: usize, expected: &[CarrierEvent]| {
            for _ in 0..count {
                check(&shared);
                assert!(shared.disconnect());
            }
            check(&shared);
            let events: Vec<_> = std::iter::from_fn(|| event(&shared, id, &mut seen)).collect();
            assert_eq!(events, expected);
        };
        breaks(3, &[CarrierEvent::Up]);
        breaks(0, &[]);
        breaks(1, &[CarrierEvent::Down, CarrierEvent::Up]);
        breaks(4, &[CarrierEvent::Down, CarrierEvent::Up]);
        assert!(shared.disconnect());
        assert!(!shared.disconnect(), "it is down");
        assert_eq!(event(&shared, id, &mut seen), Some(CarrierEvent::Down));
    }

    #[test]
    fn a_second_carrier_to_a_node_takes_the_place_of_the_first() {
        let shared = Shared::new(LOCAL);
        let (first, second) = (shared.add(PEER), shared.add(PEER));
        shared.remove(PEER.node, first);
        shared.receive(&envelope::encode(PEER, LOCAL, b"frame"));
        assert_eq!(event(&shared, first, &mut 0), None);
        let frame = CarrierEvent::Frame(b"frame".to_vec());
        assert_eq!(event(&shared, second, &mut 0), Some(frame));
    }
}
