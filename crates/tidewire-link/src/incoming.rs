//! Frames from the peer: delivered in order, kept while earlier ones are missing, acknowledged.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use tidewire_core::time::Instant;

use crate::limits::{ACKNOWLEDGE_DELAY, FRAME_COST, Limits, REORDER_DELAY, REQUEST_DELAY_MIN};

/// The frames of one birth of the peer.
#[derive(Debug)]
pub(crate) struct Incoming {
    limits: Limits,
    /// All frames up to this number were delivered.
    delivered: u64,
    /// All frames up to this number were handled.
    handled: u64,
    /// The cost of each frame after `handled`: its length and `FRAME_COST`.
    costs: VecDeque<usize>,
    /// Frames that arrived before an earlier one.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    /// The highest number that the peer has sent, as far as it is known.
    announced: u64,
    /// When missing frames are requested.
    request_at: Option<Instant>,
    /// When an acknowledgement is sent alone.
    acknowledge_at: Option<Instant>,
    /// Bytes delivered or handled since the last acknowledgement.
    unacknowledged_bytes: usize,
    pub duplicate_count: u64,
    pub early_count: u64,
}

impl Incoming {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            delivered: 0,
            handled: 0,
            costs: VecDeque::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            announced: 0,
            request_at: None,
            acknowledge_at: None,
            unacknowledged_bytes: 0,
            duplicate_count: 0,
            early_count: 0,
        }
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    pub fn handled_to(&self) -> u64 {
        self.handled
    }

    pub fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Takes a frame and calls `deliver` with each that is now in order.
    pub fn handle(
        &mut self,
        now: Instant,
        number: u64,
        entries: &[u8],
        mut deliver: impl FnMut(u64, Vec<u8>),
    ) {
        self.announce(now, number);
        if number <= self.delivered || self.early.contains_key(&number) {
            self.duplicate_count += 1;
            // The peer may have missed the acknowledgement.
            self.acknowledge_at = Some(now);
            return;
        }
        if number > self.delivered + 1 {
            // A frame without room is requested again later.
            let cost = entries.len() + FRAME_COST;
            if self.early_bytes + cost <= self.limits.window_bytes {
                self.early_bytes += cost;
                self.early_count += 1;
                self.early.insert(number, entries.to_vec());
            }
            return;
        }
        let mut next = Some(entries.to_vec());
        while let Some(entries) = next {
            self.delivered += 1;
            let cost = entries.len() + FRAME_COST;
            self.costs.push_back(cost);
            self.owe(now, cost);
            deliver(self.delivered, entries);
            next = self.early.remove(&(self.delivered + 1));
            self.early_bytes -= next.as_ref().map_or(0, |early| early.len() + FRAME_COST);
        }
        self.request_at = (self.announced > self.delivered).then(|| now + REORDER_DELAY);
    }

    /// Takes the highest number that the peer has sent.
    pub fn announce(&mut self, now: Instant, sent: u64) {
        self.announced = self.announced.max(sent);
        if self.announced > self.delivered && self.request_at.is_none() {
            self.request_at = Some(now + REORDER_DELAY);
        }
    }

    /// The peer continues after the last frame in order. It sends the later ones in any case, so they are not missing until it has sent
    /// them: on a slow carrier a request for them would be repeated all the time, and each would bring all of them again.
    pub fn resume(&mut self) {
        self.announced = self.delivered;
        self.request_at = None;
    }

    /// The last of the missing frames, if it is time to request them. Only the first gap is requested: the frames behind it are kept.
    pub fn poll_request(&mut self, now: Instant, round_trip: Duration) -> Option<u64> {
        if self.request_at.is_none_or(|at| now < at) {
            return None;
        }
        self.request_at = Some(now + (round_trip * 2).max(REQUEST_DELAY_MIN));
        let first_early = self.early.keys().next();
        Some(first_early.map_or(self.announced, |number| number - 1))
    }

    /// Takes the number up to which the entries were handled.
    pub fn handled(&mut self, now: Instant, number: u64) {
        while self.handled < number.min(self.delivered) {
            self.handled += 1;
            let cost = self.costs.pop_front().unwrap_or_default();
            self.owe(now, cost);
        }
    }

    fn owe(&mut self, now: Instant, bytes: usize) {
        self.unacknowledged_bytes += bytes;
        let at = match self.unacknowledged_bytes >= self.limits.window_bytes / 4 {
            true => now,
            false => now + ACKNOWLEDGE_DELAY,
        };
        let earlier = self.acknowledge_at.filter(|earlier| *earlier < at);
        self.acknowledge_at = Some(earlier.unwrap_or(at));
    }

    /// An acknowledgement leaves with a frame.
    pub fn acknowledged(&mut self) {
        self.acknowledge_at = None;
        self.unacknowledged_bytes = 0;
    }

    pub fn acknowledge_deadline(&self) -> Option<Instant> {
        self.acknowledge_at
    }

    pub fn request_deadline(&self) -> Option<Instant> {
        self.request_at
    }
}
