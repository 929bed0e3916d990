//! The unsent bytes of a connection after a short send: ranges of the turn logs while these live, copied bytes
//! afterwards, in one order. With TLS, ciphertext that was sealed for a send comes before them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::turn_log::TurnLogs;

/// A range of the turn log of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The log.
    pub format: u8,
    /// The bytes in it.
    pub range: Range<u64>,
}

impl LogRange {
    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX)
    }
}

#[derive(Debug)]
enum Piece {
    /// Memory of the connection, from `sent` on.
    Own { bytes: Vec<u8>, sent: usize },
    /// A range of a turn log.
    Log(LogRange),
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Own { bytes, sent } => bytes.len() - sent,
            Self::Log(range) => range.bytes(),
        }
    }
}

/// The bytes that wait for a connection. It exists only while there are some.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Ciphertext that the kernel did not accept, from `sealed_sent` on. It comes before all pieces, which are
    /// plaintext.
    sealed: Vec<u8>,
    sealed_sent: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the pieces.
    bytes: usize,
    /// Bytes of the pieces in own memory.
    own_bytes: usize,
    /// Bytes that don't count for its limit, see [`Outbox::forgive`].
    forgiven_bytes: usize,
    /// Marked bytes at the start of the pieces, see [`Outbox::mark`].
    marked_bytes: usize,
    /// Some of them were taken, to be sent or sealed.
    has_taken_marked: bool,
    /// Some of them are in the ciphertext.
    has_marked_sealed: bool,
}

impl Outbox {
    /// Bytes that count for the limit of an outbox.
    #[must_use]
    pub fn counted_bytes(&self) -> usize {
        self.own_bytes().saturating_sub(self.forgiven_bytes)
    }

    /// Excludes the bytes that wait now from the limit, because they came before the excess was known.
    pub fn forgive(&mut self) {
        self.forgiven_bytes = self.bytes();
    }

    /// Marks the bytes that wait now, until they were sent.
    pub fn mark(&mut self) {
        self.marked_bytes = self.bytes;
        self.has_taken_marked = false;
        self.has_marked_sealed = !self.sealed().is_empty();
    }

    /// Whether some of the bytes at the last [`Outbox::mark`] are still unsent. Later ciphertext may count too,
    /// because its plaintext is unknown.
    #[must_use]
    pub fn has_marked(&self) -> bool {
        self.marked_bytes > 0 || self.has_marked_sealed
    }

    /// All waiting bytes, including ciphertext.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.sealed().len()
    }

    /// The waiting bytes in memory of this connection alone.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.own_bytes + self.sealed().len()
    }

    /// Ciphertext that comes before everything else.
    #[must_use]
    pub fn sealed(&self) -> &[u8] {
        &self.sealed[self.sealed_sent..]
    }

    /// Appends ciphertext to the waiting ciphertext, and so before all pieces.
    pub fn push_sealed(&mut self, added: &[u8]) {
        // Moving the rest forward at every short send would let a slow reader cost the others time.
        if self.sealed_sent >= self.sealed.len() / 2 {
            self.sealed.drain(..std::mem::take(&mut self.sealed_sent));
        }
        self.sealed.extend_from_slice(added);
        self.has_marked_sealed |= self.has_taken_marked;
    }

    /// Drops the first `count` bytes of the ciphertext, which were sent.
    pub fn advance_sealed(&mut self, count: usize) {
        debug_assert!(
            count <= self.sealed().len(),
            "at most the pending bytes were sent"
        );
        self.sealed_sent = (self.sealed_sent + count).min(self.sealed.len());
        self.has_marked_sealed &= !self.sealed().is_empty();
    }

    /// The number of slices of the plaintext.
    #[must_use]
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of the first `count` pieces.
    #[must_use]
    pub fn bytes_of_pieces(&self, count: usize) -> usize {
        if count >= self.pieces.len() {
            return self.bytes;
        }
        self.pieces.iter().take(count).map(Piece::bytes).sum()
    }

    /// Whether the outbox is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Appends a range. Touching ranges are not joined here, because they may belong to different turns.
    pub fn push_range(&mut self, added: LogRange) {
        self.bytes += added.bytes();
        self.pieces.push_back(Piece::Log(added));
    }

    /// Prepends a range. Used for the rest of a send, last range first.
    pub fn push_range_front(&mut self, added: LogRange) {
        self.bytes += added.bytes();
        if self.marked_bytes > 0 {
            self.marked_bytes += added.bytes();
        }
        self.pieces.push_front(Piece::Log(added));
    }

    /// Appends a copy of `added`.
    pub fn push_own(&mut self, added: &[u8]) {
        self.bytes += added.len();
        self.own_bytes += added.len();
        if let Some(Piece::Own { bytes, .. }) = self.pieces.back_mut() {
            bytes.extend_from_slice(added);
            return;
        }
        self.pieces.push_back(Piece::Own {
            bytes: added.to_vec(),
            sent: 0,
        });
    }

    /// The plaintext in order, piece by piece.
    pub fn slices<'a>(&'a self, logs: &'a TurnLogs) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Own { bytes, sent } => &bytes[*sent..],
            Piece::Log(range) => logs.slice(range.format, &range.range),
        })
    }

    /// Drops the first `count` bytes of the pieces, which were sent or sealed.
    pub fn advance(&mut self, mut count: usize) {
        debug_assert!(count <= self.bytes, "at most the pending bytes were sent");
        self.bytes -= count.min(self.bytes);
        self.has_taken_marked |= self.marked_bytes > 0 && count > 0;
        self.marked_bytes = self.marked_bytes.saturating_sub(count);
        while let Some(piece) = self.pieces.front_mut() {
            let here = piece.bytes().min(count);
            match piece {
                Piece::Own { sent, .. } => {
                    *sent += here;
                    self.own_bytes -= here;
                }
                Piece::Log(range) => range.range.start += here as u64,
            }
            count -= here;
            if piece.bytes() > 0 {
                return;
            }
            self.pieces.pop_front();
        }
    }

    /// Bytes that the next [`Outbox::settle`] copies.
    #[must_use]
    pub fn ending_bytes(&self, logs: &TurnLogs) -> usize {
        let ranges = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Log(range) if logs.is_ending(range.format, &range.range) => Some(range.bytes()),
            Piece::Log(_) | Piece::Own { .. } => None,
        });
        ranges.sum()
    }

    /// Copies the ranges of a turn that is about to be released into own memory.
    pub fn settle(&mut self, logs: &TurnLogs) {
        let ending = self
            .pieces
            .iter()
            .rposition(|piece| matches!(piece, Piece::Log(range) if logs.is_ending(range.format, &range.range)));
        let Some(last) = ending else { return };
        let (mut own, mut own_sent) = match self.pieces.front_mut() {
            Some(Piece::Own { bytes, sent }) => (std::mem::take(bytes), std::mem::take(sent)),
            _ => (Vec::new(), 0),
        };
        // Moving the rest forward in every turn would let a slow reader cost the others time.
        if own_sent >= own.len() / 2 {
            own.drain(..std::mem::take(&mut own_sent));
        }
        for piece in self.pieces.drain(..=last) {
            match piece {
                Piece::Own { bytes, sent } => own.extend_from_slice(&bytes[sent..]),
                Piece::Log(range) => {
                    self.own_bytes += range.bytes();
                    own.extend_from_slice(logs.slice(range.format, &range.range));
                }
            }
        }
        self.pieces.push_front(Piece::Own {
            bytes: own,
            sent: own_sent,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(logs: &mut TurnLogs, text: &str) -> LogRange {
        let range = logs
            .log_mut(0)
            .append(|out| out.extend_from_slice(text.as_bytes()));
        LogRange { format: 0, range }
    }

    fn content(outbox: &Outbox, logs: &TurnLogs) -> String {
        let bytes: Vec<u8> = outbox
            .slices(logs)
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert_eq!(bytes.len(), outbox.bytes());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn any_sequence_of_short_sends_gives_the_same_bytes() {
        for step in 1..12 {
            let mut logs = TurnLogs::new(1);
            let mut outbox = Outbox::default();
            outbox.push_own(b"own1");
            outbox.push_range(log(&mut logs, "log1"));
            log(&mut logs, "others'");
            outbox.push_own(b"own2");
            outbox.push_range(log(&mut logs, "log2"));
            let mut sent = String::new();
            let mut turn = 0;
            while !outbox.is_empty() {
                let count = step.min(outbox.bytes());
                sent.push_str(&content(&outbox, &logs)[..count]);
                outbox.advance(count);
                turn += 1;
                logs.begin_turn();
                outbox.settle(&logs);
                logs.release();
                if turn == 1 && !outbox.is_empty() {
                    outbox.push_range(log(&mut logs, "log3"));
                }
            }
            assert!(
                "own1log1own2log2log3".starts_with(&sent) && sent.len() >= 16,
                "step {step}: {sent}"
            );
            assert_eq!(outbox.own_bytes(), 0);
        }
    }

    #[test]
    fn ciphertext_is_counted_and_goes_in_its_order() {
        let mut outbox = Outbox::default();
        outbox.push_own(b"plain");
        outbox.push_sealed(b"first");
        outbox.advance_sealed(4);
        outbox.push_sealed(b"second");
        assert_eq!(outbox.sealed(), b"tsecond");
        assert_eq!((outbox.bytes(), outbox.own_bytes()), (12, 12));
        outbox.advance(5);
        assert_eq!((outbox.bytes(), outbox.piece_count()), (7, 0));
        outbox.advance_sealed(7);
        assert!(outbox.is_empty());
    }

    #[test]
    fn marked_bytes_end_when_they_were_sent() {
        let mut outbox = Outbox::default();
        outbox.push_own(b"old");
        outbox.mark();
        outbox.push_own(b"new");
        outbox.advance(2);
        assert!(outbox.has_marked());
        outbox.advance(1);
        assert!(!outbox.has_marked());
        outbox.mark();
        // Sealing is not sending.
        outbox.advance(3);
        outbox.push_sealed(b"ciphertext");
        assert!(outbox.has_marked());
        outbox.advance_sealed(10);
        assert!(!outbox.has_marked());
    }

    #[test]
    fn a_range_is_copied_only_when_its_second_turn_ends() {
        let mut logs = TurnLogs::new(1);
        let mut outbox = Outbox::default();
        outbox.push_range(log(&mut logs, "old"));
        logs.begin_turn();
        outbox.settle(&logs);
        logs.release();
        assert_eq!(outbox.own_bytes(), 0);
        outbox.push_range(log(&mut logs, "new"));
        logs.begin_turn();
        outbox.settle(&logs);
        logs.release();
        assert_eq!(outbox.own_bytes(), 3);
        assert_eq!(content(&outbox, &logs), "oldnew");
    }
}
