//! The carrier between the two nodes: two directions with faults.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire_core::time::Instant;

use crate::random::Random;

/// The faults of a carrier.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Like a broker: frames may be reordered. Otherwise frames arrive in order, as over a connection.
    pub is_reordering: bool,
    pub lost_percent: usize,
    pub duplicated_percent: usize,
    pub delay_max: Duration,
}

impl Faults {
    pub fn draw(random: &mut Random) -> Self {
        let is_broker = random.chance(50);
        Self {
            is_reordering: is_broker && random.chance(70),
            lost_percent: *random.pick(&[0, 0, 1, 10, 30]) * usize::from(is_broker),
            duplicated_percent: *random.pick(&[0, 1, 20]) * usize::from(is_broker),
            delay_max: Duration::from_millis(*random.pick(&[0, 1, 5, 40])),
        }
    }

    pub const NONE: Self = Self {
        is_reordering: false,
        lost_percent: 0,
        duplicated_percent: 0,
        delay_max: Duration::from_millis(1),
    };
}

/// One direction.
#[derive(Debug, Default)]
pub struct Direction {
    /// Frames on their way by their arrival, in the order of sending if they arrive at one time.
    frames: BTreeMap<(Instant, u64), Vec<u8>>,
    sent: u64,
    last_arrival: Instant,
    /// Nothing arrives, without an error.
    pub cut_since: Option<Instant>,
    /// Frames that were sent.
    pub count: u64,
    /// The last frame that was lost, by the order of sending.
    lost: u64,
    /// The last frame that was received.
    received: u64,
    /// Frames may overtake each other.
    is_reordering: bool,
}

impl Direction {
    pub fn send(&mut self, now: Instant, frame: Vec<u8>, faults: &Faults, random: &mut Random) {
        self.count += 1;
        self.is_reordering |= faults.is_reordering;
        if random.chance(faults.lost_percent) {
            self.sent += 1;
            self.lost = self.sent;
            return;
        }
        let copies = 1 + usize::from(random.chance(faults.duplicated_percent));
        for _ in 0..copies {
            let delay = random.below(faults.delay_max.as_micros() as usize + 1);
            let mut at = now + Duration::from_micros(10 + delay as u64);
            if !faults.is_reordering {
                at = at.max(self.last_arrival);
                self.last_arrival = at;
            }
            self.sent += 1;
            self.frames.insert((at, self.sent), frame.clone());
        }
    }

    pub fn next_arrival(&self) -> Option<Instant> {
        self.frames.keys().next().map(|(at, _)| *at)
    }

    /// The next frame that has arrived.
    pub fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        loop {
            let entry = self.frames.first_entry()?;
            let (at, number) = *entry.key();
            if at > now {
                return None;
            }
            let frame = entry.remove();
            if self.cut_since.is_none() {
                self.received = number;
                return Some(frame);
            }
            self.lose(number);
        }
    }

    /// Loses all that is on its way.
    pub fn clear(&mut self) {
        self.lose(self.sent);
        self.frames.clear();
    }

    /// The frame that was received last is lost, because its receiver is not connected.
    pub fn lose_received(&mut self) {
        self.lose(self.received);
    }

    fn lose(&mut self, number: u64) {
        self.lost = self.lost.max(number);
    }

    /// All that was lost so far is sent again behind the frame that was received last, which is a hello.
    pub fn note_hello(&mut self) {
        if self.lost <= self.received {
            self.lost = 0;
        }
    }

    /// Whether frames are missing that may not arrive by themselves.
    pub fn has_gap(&self) -> bool {
        self.is_reordering || self.lost > 0
    }
}
