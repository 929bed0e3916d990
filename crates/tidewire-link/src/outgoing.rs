//! Frames on their way to the peer: a buffer until the peer has received them, and a window until it has handled them.
//!
//! Within the window, the carrier gets only as much at a time as it transports quickly: little after a break, then twice as much with each
//! quick acknowledgement. A broker that starts again on a busy machine would otherwise get the windows of all links at once.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire_core::time::Instant;

use crate::limits::{
    FLIGHT_LONG, FLIGHT_SHORT, FRAME_COST, Limits, RESEND_DELAY_MAX, RESEND_DELAY_MIN,
};

/// The frames that one process sends to one birth of its peer. Their numbers begin with 1.
#[derive(Debug)]
pub(crate) struct Outgoing {
    limits: Limits,
    /// Entries of this turn, which have no number yet.
    open: Vec<u8>,
    /// The entries of the frames after `received`.
    frames: VecDeque<Vec<u8>>,
    /// The cost of `frames`.
    buffered_bytes: usize,
    /// The cost of each frame after `handled`: its length and `FRAME_COST`.
    costs: VecDeque<usize>,
    /// The peer has received all frames up to this number.
    received: u64,
    /// The peer has handled all frames up to this number. Never above `received`.
    handled: u64,
    /// The next number to send.
    next: u64,
    /// The highest number that was sent.
    sent: u64,
    /// The cost of the frames after `handled` and before `next`.
    window_bytes: usize,
    /// The part of it that the peer has not received.
    flight_bytes: usize,
    /// The limit of `flight_bytes`. It adapts to the carrier.
    flight_bytes_max: usize,
    /// A frame in flight and when it was sent. Its acknowledgement shows how fast the carrier is.
    timed: Option<(u64, Instant)>,
    /// Frames have waited for `flight_bytes_max` since the timed one was sent.
    is_flight_full: bool,
    /// When the peer handled a frame, or the first one was sent.
    handled_at: Instant,
    /// When the oldest frame is sent again.
    resend_at: Instant,
    resend_delay: Duration,
    round_trip: Duration,
    pub resent_count: u64,
}

/// The peer acknowledges frames that were never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverSent;

impl Outgoing {
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            open: Vec::new(),
            frames: VecDeque::new(),
            buffered_bytes: 0,
            costs: VecDeque::new(),
            received: 0,
            handled: 0,
            next: 1,
            sent: 0,
            window_bytes: 0,
            flight_bytes: 0,
            flight_bytes_max: limits.start_bytes,
            timed: None,
            is_flight_full: false,
            handled_at: now,
            resend_at: now,
            resend_delay: RESEND_DELAY_MIN,
            round_trip: Duration::ZERO,
            resent_count: 0,
        }
    }

    /// The number of the last frame that has one.
    fn last(&self) -> u64 {
        self.received + self.frames.len() as u64
    }

    /// The number before the next one.
    pub fn sent(&self) -> u64 {
        self.next - 1
    }

    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes_with(0)
    }

    /// The cost of all frames, if as many bytes are added to the open one.
    fn waiting_bytes_with(&self, added: usize) -> usize {
        let open = self.open.len() + added;
        self.buffered_bytes + open + open.div_ceil(self.limits.frame_bytes_max) * FRAME_COST
    }

    /// Appends entries to the frame of this turn. Returns false if they exceed the limit; then nothing may be sent any longer.
    #[must_use]
    pub fn post(&mut self, entries: &[u8]) -> bool {
        if self.waiting_bytes_with(entries.len()) > self.limits.link_bytes_max {
            return false;
        }
        self.open.extend_from_slice(entries);
        true
    }

    /// Ends the turn: its entries are one frame, or several if they are longer than a frame may be.
    pub fn close_turn(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        // The usual case moves the buffer.
        if open.len() <= self.limits.frame_bytes_max {
            self.push(open);
            return;
        }
        for piece in open.chunks(self.limits.frame_bytes_max) {
            self.push(piece.to_vec());
        }
    }

    /// Adds entries behind those that wait. Turns that wait share a frame: after a break thousands of them may wait, and a broker takes
    /// much longer for as many messages than for their bytes. A frame that was sent never changes, because the peer may have it.
    fn push(&mut self, entries: Vec<u8>) {
        if self.last() > self.sent
            && let (Some(frame), Some(cost)) = (self.frames.back_mut(), self.costs.back_mut())
            && frame.len() + entries.len() <= self.limits.start_bytes
        {
            frame.extend_from_slice(&entries);
            *cost += entries.len();
            self.buffered_bytes += entries.len();
            return;
        }
        let cost = entries.len() + FRAME_COST;
        self.buffered_bytes += cost;
        self.costs.push_back(cost);
        self.frames.push_back(entries);
    }

    /// The next frame that the window allows. One frame is always allowed, however long it is.
    pub fn poll(&mut self, now: Instant) -> Option<u64> {
        if self.next > self.last() {
            return None;
        }
        let cost = self.costs[(self.next - self.handled - 1) as usize];
        if self.window_bytes > 0 && self.window_bytes + cost > self.limits.window_bytes {
            return None;
        }
        if self.flight_bytes > 0 && self.flight_bytes + cost > self.flight_bytes_max {
            self.is_flight_full = true;
            return None;
        }
        if self.next == self.received + 1 {
            self.restart_resend(now);
        }
        if self.window_bytes == 0 {
            self.handled_at = now;
        }
        let number = self.next;
        self.timed.get_or_insert((number, now));
        self.window_bytes += cost;
        self.flight_bytes += cost;
        self.next += 1;
        match number > self.sent {
            true => self.sent = number,
            false => self.resent_count += 1,
        }
        Some(number)
    }

    /// The entries of a frame that the peer has not received.
    pub fn entries(&self, number: u64) -> &[u8] {
        &self.frames[(number - self.received - 1) as usize]
    }

    /// Takes an acknowledgement. Late ones have no effect.
    pub fn acknowledge(
        &mut self,
        received: u64,
        handled: u64,
        now: Instant,
        round_trip: Duration,
    ) -> Result<(), NeverSent> {
        if received > self.sent || handled > received {
            return Err(NeverSent);
        }
        if received > self.received {
            for number in self.received + 1..=received {
                let entries = self.frames.pop_front().unwrap_or_default();
                let cost = entries.len() + FRAME_COST;
                self.buffered_bytes -= cost;
                if number < self.next {
                    self.flight_bytes -= cost;
                }
            }
            self.received = received;
            self.adapt(now);
            self.round_trip = round_trip;
            self.restart_resend(now);
        }
        if handled > self.handled {
            for number in self.handled + 1..=handled {
                let cost = self.costs.pop_front().unwrap_or_default();
                if number < self.next {
                    self.window_bytes -= cost;
                }
            }
            self.handled = handled;
            self.handled_at = now;
        }
        // After a rewind an earlier acknowledgement may pass the cursor.
        if self.next <= self.received {
            self.rewind(self.received);
        }
        Ok(())
    }

    /// Changes the bytes in flight by the time that the peer's acknowledgement of the timed frame took.
    fn adapt(&mut self, now: Instant) {
        let Some((_, sent_at)) = self.timed.take_if(|(number, _)| *number <= self.received) else {
            return;
        };
        let taken = now.since(sent_at);
        let Limits {
            start_bytes,
            window_bytes,
            ..
        } = self.limits;
        if taken > FLIGHT_LONG {
            self.flight_bytes_max = (self.flight_bytes_max / 2).max(start_bytes);
        } else if taken <= FLIGHT_SHORT && self.is_flight_full {
            self.flight_bytes_max = (self.flight_bytes_max * 2).min(window_bytes);
        }
        self.is_flight_full = false;
    }

    /// Continues after the frame `received`, which the peer has received as the last one, as slowly as at the beginning: the carrier is
    /// new, and may be much slower than before.
    pub fn resume(&mut self, received: u64) {
        self.flight_bytes_max = self.limits.start_bytes;
        self.timed = None;
        self.is_flight_full = false;
        self.rewind(received);
    }

    fn rewind(&mut self, received: u64) {
        self.next = received.clamp(self.received, self.last()) + 1;
        let count = (self.next - self.handled - 1) as usize;
        self.window_bytes = self.costs.iter().take(count).sum();
        let received = (self.received - self.handled) as usize;
        self.flight_bytes = self.costs.iter().take(count).skip(received).sum();
    }

    /// The frames after `received` up to `missing_to` that were sent and are kept.
    pub fn missing(&mut self, received: u64, missing_to: u64) -> std::ops::RangeInclusive<u64> {
        let range = received.max(self.received) + 1..=missing_to.min(self.next - 1);
        self.resent_count += range.clone().count() as u64;
        range
    }

    /// The oldest frame that was sent and that the peer has not received, if its acknowledgement is late.
    pub fn poll_late(&mut self, now: Instant) -> Option<u64> {
        let due = self.resend_deadline()?;
        if now < due {
            return None;
        }
        self.resend_delay = (self.resend_delay * 2).min(RESEND_DELAY_MAX);
        self.resend_at = now + self.resend_delay;
        self.resent_count += 1;
        Some(self.received + 1)
    }

    pub fn resend_deadline(&self) -> Option<Instant> {
        (self.next > self.received + 1).then_some(self.resend_at)
    }

    fn restart_resend(&mut self, now: Instant) {
        self.resend_delay = (self.round_trip * 2).clamp(RESEND_DELAY_MIN, RESEND_DELAY_MAX);
        self.resend_at = now + self.resend_delay;
    }

    /// Since when the peer has handled nothing, although there is something to handle.
    pub fn stuck_since(&self) -> Option<Instant> {
        (self.sent > self.handled).then_some(self.handled_at)
    }

    /// Moves the times by a pause of this process.
    pub fn skip(&mut self, pause: Duration) {
        self.handled_at = self.handled_at + pause;
    }
}
