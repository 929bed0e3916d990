//! The turn log: all output in one wire format, in the order of the decisions, encoded once.
//!
//! Offsets count from the start of the process and never repeat. A turn's bytes live until the end of the next turn;
//! a connection that still needs them has copied them by then.

use std::collections::VecDeque;
use std::ops::Range;

/// A buffer above this capacity is freed after its turn, so one large turn does not hold its memory.
const KEPT_CAPACITY_MAX: usize = 1 << 20;

/// An append-only log that forgets whole turns.
#[derive(Debug, Default)]
pub struct TurnLog {
    /// The turns that are still alive, oldest first; the last one grows.
    turns: VecDeque<Turn>,
    /// An empty buffer for reuse.
    spare: Vec<u8>,
    /// The offset of the next byte.
    end: u64,
}

#[derive(Debug)]
struct Turn {
    start: u64,
    bytes: Vec<u8>,
}

impl Turn {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl TurnLog {
    /// Lets `write` append to the current turn and returns the written range.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<u64> {
        if self.turns.is_empty() {
            self.begin_turn();
        }
        let start = self.end;
        if let Some(turn) = self.turns.back_mut() {
            write(&mut turn.bytes);
            self.end = turn.end();
        }
        debug_assert!(self.end >= start, "a log only grows");
        start..self.end
    }

    /// The offset of the next byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Seals the current turn: later bytes belong to the next one. Returns the offset at which the next turn starts.
    pub fn begin_turn(&mut self) -> u64 {
        if self.turns.back().is_none_or(|turn| !turn.bytes.is_empty()) {
            let bytes = std::mem::take(&mut self.spare);
            self.turns.push_back(Turn {
                start: self.end,
                bytes,
            });
        }
        self.end
    }

    /// Forgets all turns before `offset`, but never the current one.
    pub fn release_before(&mut self, offset: u64) {
        while self.turns.len() > 1 && self.turns[0].end() <= offset {
            let Some(Turn { mut bytes, .. }) = self.turns.pop_front() else {
                return;
            };
            bytes.clear();
            if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= KEPT_CAPACITY_MAX {
                self.spare = bytes;
            }
        }
    }

    /// The bytes of a range within one turn; `None` if that turn was released.
    #[must_use]
    pub fn slice(&self, range: &Range<u64>) -> Option<&[u8]> {
        // While a flush lasts, a turn lives for each small one that went first, so there may be many.
        let after = self.turns.partition_point(|turn| turn.start <= range.start);
        let turn = self.turns.get(after.checked_sub(1)?)?;
        let start = usize::try_from(range.start - turn.start).ok()?;
        let end = usize::try_from(range.end - turn.start).ok()?;
        turn.bytes.get(start..end)
    }

    /// Bytes in turns that are still alive.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let first = self.turns.front().map_or(self.end, |turn| turn.start);
        (self.end - first) as usize
    }
}

/// The logs of a shard, one for each wire format.
#[derive(Debug)]
pub struct TurnLogs {
    logs: Box<[TurnLog]>,
    /// A bit for each log with live bytes or with a mutable borrow in this turn. Most turns write to one of them.
    alive: u64,
    /// The start of the turn that is being collected, per log.
    starts: Box<[u64]>,
    /// The start of the turn that is being sent, per log.
    sending: Box<[u64]>,
}

impl TurnLogs {
    /// `count` empty logs.
    ///
    /// # Panics
    /// They are more than 64, which is a defect of the caller.
    #[must_use]
    pub fn new(count: u8) -> Self {
        assert!(
            u32::from(count) <= u64::BITS,
            "a word has a bit for each log"
        );
        let count = usize::from(count);
        Self {
            alive: 0,
            logs: (0..count).map(|_| TurnLog::default()).collect(),
            starts: vec![0; count].into(),
            sending: vec![0; count].into(),
        }
    }

    /// The log of one format.
    ///
    /// # Panics
    /// The format does not exist, which is a defect of the caller.
    pub fn log_mut(&mut self, format: u8) -> &mut TurnLog {
        let log = &mut self.logs[usize::from(format)];
        self.alive |= 1 << format;
        log
    }

    /// The bytes of a range within one turn, which must not be released.
    ///
    /// # Panics
    /// It spans two turns, or its turn was released, which is a defect of the caller. Without its bytes the peer
    /// would take the next bytes for them, because a header before them has announced their length.
    #[must_use]
    pub fn slice(&self, format: u8, range: &Range<u64>) -> &[u8] {
        let bytes = self
            .logs
            .get(usize::from(format))
            .and_then(|log| log.slice(range));
        bytes.unwrap_or_else(|| panic!("{range:?} of log {format} is not within one live turn"))
    }

    /// Seals the turn in every log, before its sends begin. All its ranges must be listed: otherwise a connection
    /// that still waits for a part of it would get it joined with a touching range of the next turn.
    pub fn begin_turn(&mut self) {
        for index in set_bits(self.alive) {
            self.sending[index] = self.starts[index];
            self.starts[index] = self.logs[index].begin_turn();
        }
    }

    /// Whether a range belongs to a turn before the one that is being sent, and so must be copied now.
    #[must_use]
    pub fn is_ending(&self, format: u8, range: &Range<u64>) -> bool {
        range.start < self.sending[usize::from(format)]
    }

    /// Bytes of the turns that the next [`TurnLogs::release`] forgets.
    #[must_use]
    pub fn ending_bytes(&self) -> usize {
        let ending = set_bits(self.alive).map(|index| {
            let kept = self.logs[index].end() - self.sending[index];
            self.logs[index].bytes().saturating_sub(kept as usize)
        });
        ending.sum()
    }

    /// Forgets the turns before the one that was just sent.
    pub fn release(&mut self) {
        for index in set_bits(self.alive) {
            let log = &mut self.logs[index];
            log.release_before(self.sending[index]);
            if log.bytes() == 0 {
                self.alive &= !(1 << index);
            }
        }
    }

    /// Bytes in turns that are still alive.
    #[must_use]
    pub fn bytes(&self) -> usize {
        set_bits(self.alive)
            .map(|index| self.logs[index].bytes())
            .sum()
    }
}

/// The positions of the set bits.
fn set_bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = bits.checked_ilog2()?;
        bits &= !(1 << index);
        Some(index as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(log: &mut TurnLog, text: &str) -> Range<u64> {
        log.append(|out| out.extend_from_slice(text.as_bytes()))
    }

    #[test]
    fn offsets_go_on_over_turns() {
        let mut log = TurnLog::default();
        let first = append(&mut log, "one");
        let second = append(&mut log, "two");
        log.begin_turn();
        let third = append(&mut log, "three");
        assert_eq!(
            (first.clone(), second.clone(), third.clone()),
            (0..3, 3..6, 6..11)
        );
        assert_eq!(log.slice(&(0..6)), Some(&b"onetwo"[..]));
        assert_eq!(log.slice(&third), Some(&b"three"[..]));
    }

    #[test]
    fn a_released_turn_is_gone_and_later_ones_stay() {
        let mut log = TurnLog::default();
        let old = append(&mut log, "old");
        let start = log.begin_turn();
        let new = append(&mut log, "new");
        log.release_before(start);
        assert_eq!(log.slice(&old), None);
        assert_eq!(log.slice(&new), Some(&b"new"[..]));
        assert_eq!(log.bytes(), 3);
    }

    #[test]
    fn a_turn_without_bytes_costs_no_buffer() {
        let mut log = TurnLog::default();
        for _ in 0..10 {
            let start = log.begin_turn();
            log.release_before(start);
        }
        assert_eq!(log.turns.len(), 1);
        assert_eq!(append(&mut log, "x"), 0..1);
    }

    #[test]
    fn the_buffer_of_a_large_turn_is_given_back() {
        let mut log = TurnLog::default();
        log.append(|out| out.resize(KEPT_CAPACITY_MAX + 1, 0));
        let start = log.begin_turn();
        log.release_before(start);
        assert!(log.spare.capacity() <= KEPT_CAPACITY_MAX);
        append(&mut log, "small");
        let start = log.begin_turn();
        log.release_before(start);
        assert!(log.spare.capacity() > 0);
    }

    #[test]
    fn a_log_that_was_quiet_takes_part_in_turns_again() {
        let mut logs = TurnLogs::new(3);
        let mut turn = |texts: [&str; 3], alive_bytes: usize| {
            for (format, text) in (0..).zip(texts) {
                if !text.is_empty() {
                    append(logs.log_mut(format), text);
                }
            }
            logs.begin_turn();
            logs.release();
            assert_eq!(logs.bytes(), alive_bytes, "{texts:?}");
        };
        turn(["ab", "", "c"], 3);
        turn(["", "d", ""], 1);
        turn(["", "", ""], 0);
        turn(["e", "", "fg"], 3);
        let last = logs.log_mut(2).append(|out| out.extend_from_slice(b"hij"));
        logs.begin_turn();
        assert!(logs.is_ending(2, &(1..3)), "sent a turn ago");
        assert!(!logs.is_ending(2, &last));
        assert_eq!(logs.slice(2, &(1..3)), b"fg");
        assert_eq!(logs.slice(2, &last), b"hij");
    }

    #[test]
    #[should_panic(expected = "0..4 of log 0 is not within one live turn")]
    fn a_range_of_two_turns_is_a_defect() {
        let mut logs = TurnLogs::new(1);
        append(logs.log_mut(0), "ab");
        logs.begin_turn();
        append(logs.log_mut(0), "cd");
        let _ = logs.slice(0, &(0..4));
    }

    #[test]
    fn logs_live_through_the_turn_after_their_own() {
        let mut logs = TurnLogs::new(2);
        let first = logs.log_mut(1).append(|out| out.extend_from_slice(b"a"));
        logs.begin_turn();
        logs.release();
        assert!(!logs.is_ending(1, &first), "its own turn is being sent");
        let second = logs.log_mut(1).append(|out| out.extend_from_slice(b"b"));
        logs.begin_turn();
        assert!(logs.is_ending(1, &first));
        assert!(!logs.is_ending(1, &second));
        assert_eq!(logs.slice(1, &first), b"a");
        logs.release();
        assert_eq!(logs.slice(1, &second), b"b");
        assert_eq!(logs.bytes(), 1);
    }
}
