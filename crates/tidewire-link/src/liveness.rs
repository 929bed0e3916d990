//! Pings, round-trip time, and since when the peer was last heard.

use std::time::Duration;

use tidewire_core::time::Instant;

use crate::limits::PING_INTERVAL;

/// Signs of life of one birth of the peer.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// When a frame of the peer last arrived.
    pub heard_at: Instant,
    /// When the last ping was sent that has its answer, or the link began.
    pub answered_at: Instant,
    pub ping_at: Instant,
    /// The last answered ping.
    answered: u64,
    /// Smoothed; `None` before the first answer.
    round_trip: Option<Duration>,
}

impl Liveness {
    pub fn new(now: Instant) -> Self {
        Self {
            heard_at: now,
            answered_at: now,
            ping_at: now,
            answered: 0,
            round_trip: None,
        }
    }

    /// The number of a ping that leaves now.
    pub fn ping(&mut self, now: Instant) -> u64 {
        self.ping_at = now + PING_INTERVAL;
        // 0 would be absent.
        now.0.max(1)
    }

    /// Takes the answer of a ping, and returns the time since the ping. Late, repeated and invented answers have no effect.
    pub fn pong(&mut self, now: Instant, number: u64) -> Option<Duration> {
        if number <= self.answered || number > now.0.max(1) {
            return None;
        }
        self.answered = number;
        self.answered_at = self.answered_at.max(Instant(number));
        let measured = now.since(Instant(number));
        self.round_trip = Some(match self.round_trip {
            None => measured,
            Some(smoothed) => (smoothed * 7 + measured) / 8,
        });
        Some(measured)
    }

    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Moves the times by a pause of this process.
    pub fn skip(&mut self, pause: Duration) {
        self.heard_at = self.heard_at + pause;
        self.answered_at = self.answered_at + pause;
    }
}
