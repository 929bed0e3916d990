//! The last events of one name, by their offsets.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire_message::binary::EventPayload;
use tidewire_message::history_rules::HistoryRule;
use tidewire_message::time::WallTime;

/// Approximate bytes that an event takes in addition to its data.
const EVENT_OVERHEAD_BYTES: usize = 48;

/// An event that is kept.
#[derive(Debug)]
struct Kept {
    payload: Option<EventPayload>,
    at: WallTime,
}

impl Kept {
    fn bytes(&self) -> usize {
        EVENT_OVERHEAD_BYTES + self.payload.as_ref().map_or(0, EventPayload::size)
    }
}

/// Events with offsets in steps of one.
#[derive(Debug)]
pub struct Ring {
    /// The offset of the first kept event, or of the next event if the ring is empty.
    first: u64,
    events: VecDeque<Kept>,
    bytes: usize,
}

impl Ring {
    /// No events; the next one gets the offset `next`.
    pub fn new(next: u64) -> Self {
        Self {
            first: next,
            events: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The offset of the first kept event, or of the next event if the ring is empty.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The offset of the next event.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// How many events are there.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an event and says its offset.
    pub fn push(&mut self, payload: Option<EventPayload>, at: WallTime) -> u64 {
        let kept = Kept { payload, at };
        self.bytes += kept.bytes();
        self.events.push_back(kept);
        self.next() - 1
    }

    /// Forgets the first event.
    pub fn pop(&mut self) {
        if let Some(kept) = self.events.pop_front() {
            self.first += 1;
            self.bytes -= kept.bytes();
            if self.events.capacity() > 4 * self.events.len().max(16) {
                self.events.shrink_to(2 * self.events.len());
            }
        }
    }

    /// Forgets what a rule does not keep.
    pub fn trim(&mut self, rule: &HistoryRule, now: WallTime) {
        while self.len() > rule.count_max
            || self.bytes > rule.bytes_max && self.len() > 0
            || self
                .lifetime(rule, now)
                .is_some_and(|lifetime| lifetime.is_zero())
        {
            self.pop();
        }
    }

    /// How long the first event still lives.
    pub fn lifetime(&self, rule: &HistoryRule, now: WallTime) -> Option<Duration> {
        let first = self.events.front()?;
        let age = Duration::from_millis(now.0.saturating_sub(first.at.0));
        Some(rule.age_max.saturating_sub(age))
    }

    /// The events from an offset on, which is not before the first one.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = (u64, &Option<EventPayload>)> {
        let skipped = usize::try_from(offset.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let events = self.events.iter().map(|kept| &kept.payload);
        (self.first..).zip(events).skip(skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_message::history_rules::Keep;
    use tidewire_message::name_pattern::NamePattern;
    use tidewire_message::text::Payload;

    fn rule(count_max: usize, bytes_max: usize, age_s: u64) -> HistoryRule {
        HistoryRule {
            pattern: NamePattern::new("*"),
            count_max,
            bytes_max,
            age_max: Duration::from_secs(age_s),
            keep: Keep::Memory,
        }
    }

    fn ring(count: u64) -> Ring {
        let mut ring = Ring::new(1);
        for number in 0..count {
            let data = EventPayload::Json(Payload::from_checked(&number.to_string()));
            assert_eq!(ring.push(Some(data), WallTime(number * 1_000)), number + 1);
        }
        ring
    }

    fn offsets(ring: &Ring, from: u64) -> Vec<u64> {
        ring.from(from).map(|(offset, _)| offset).collect()
    }

    #[test]
    fn each_bound_forgets_the_oldest() {
        let check = |rule: HistoryRule, now_s: u64, first: u64| {
            let mut ring = ring(10);
            ring.trim(&rule, WallTime(now_s * 1_000));
            assert_eq!((ring.first(), ring.next()), (first, 11), "{rule:?}");
            let bytes: usize = ring.events.iter().map(Kept::bytes).sum();
            assert_eq!(ring.bytes(), bytes);
        };
        check(rule(100, 1 << 20, 100), 9, 1);
        check(rule(4, 1 << 20, 100), 9, 7);
        check(rule(100, 3 * 49, 100), 9, 8);
        check(rule(100, 0, 100), 9, 11);
        // The first one is as old as it may be with the third second.
        check(rule(100, 1 << 20, 3), 2, 1);
        check(rule(100, 1 << 20, 3), 3, 2);
        check(rule(100, 1 << 20, 3), 1_000, 11);
    }

    #[test]
    fn offsets_continue_after_all_events_are_forgotten() {
        let mut ring = ring(3);
        ring.trim(&rule(0, 0, 0), WallTime(0));
        assert_eq!((ring.first(), ring.next(), ring.len()), (4, 4, 0));
        assert_eq!(ring.push(None, WallTime(9)), 4);
        assert_eq!(offsets(&ring, 4), [4]);
    }

    #[test]
    fn events_are_found_by_their_offset() {
        let mut ring = ring(5);
        ring.pop();
        assert_eq!(offsets(&ring, 2), [2, 3, 4, 5]);
        assert_eq!(offsets(&ring, 5), [5]);
        assert_eq!(offsets(&ring, 6), [0; 0]);
    }
}
