//! All messages of a turn in one frame, for sessions that requested it.
//!
//! Their formats have messages without frames in the turn log. When the turn is flushed, a session's ranges are put into a frame:
//! compressed as a whole if both sides agreed on it, or else a header in front of the unchanged ranges. Sessions with the same ranges
//! share the frame, so the work is done for each set of ranges, not for each recipient.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use hashbrown::HashTable;
use tidewire_core::effect::{Format, Span};
use tidewire_net::outbox::LogRange;
use tidewire_net::turn_log::TurnLogs;
use tidewire_wire::frame::websocket;
use tidewire_wire::protocol::Encoding;

use super::deflation::Deflation;
use super::sink::FRAMES;
use super::stats::ShardStats;

/// Bytes of messages in one frame, unless one message alone is larger. A peer has to receive a whole frame before it reads the first
/// message of it, and compression finds nothing beyond 32 KiB.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// The frames of one turn.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    made: Vec<Made>,
    /// Indexes into `made`, by format and ranges.
    table: HashTable<u32>,
    hasher: BuildHasherDefault<DefaultHasher>,
    /// The ranges of which frames were made, and the ranges of these frames.
    spans: Vec<Span>,
    ranges: Vec<LogRange>,
    payload: Vec<u8>,
}

/// The frames of one set of ranges.
#[derive(Debug)]
struct Made {
    format: Format,
    spans: Range<usize>,
    ranges: Range<usize>,
}

impl Batches {
    /// The ranges to send for the ranges `spans` of a batched format.
    pub(crate) fn ranges(
        &mut self,
        format: Format,
        spans: &[Span],
        logs: &mut TurnLogs,
        deflation: &mut Deflation,
        stats: &ShardStats,
    ) -> &[LogRange] {
        // Most sessions have the same ranges as the session before.
        let index = match self.made.last() {
            Some(last) if self.is(last, format, spans) => self.made.len() - 1,
            _ => {
                let hash = hash_of(&self.hasher, format, spans);
                let known = self.table.find(hash, |index| {
                    self.is(&self.made[*index as usize], format, spans)
                });
                match known {
                    Some(index) => *index as usize,
                    None => {
                        self.make(format, spans, logs, deflation, stats);
                        let index = self.made.len() - 1;
                        self.remember(hash, index);
                        index
                    }
                }
            }
        };
        &self.ranges[self.made[index].ranges.clone()]
    }

    /// Forgets the frames of the turn. Their ranges stay in the logs.
    pub(crate) fn begin_turn(&mut self) {
        if self.made.is_empty() {
            return;
        }
        self.made.clear();
        self.table.clear();
        self.spans.clear();
        self.ranges.clear();
        self.payload.shrink_to(BATCH_BYTES_MAX);
    }

    fn is(&self, made: &Made, format: Format, spans: &[Span]) -> bool {
        made.format == format && self.spans[made.spans.clone()] == *spans
    }

    fn remember(&mut self, hash: u64, index: usize) {
        let (made, spans, hasher) = (&self.made, &self.spans, &self.hasher);
        let rehash = |index: &u32| {
            let made = &made[*index as usize];
            hash_of(hasher, made.format, &spans[made.spans.clone()])
        };
        self.table.insert_unique(hash, index as u32, rehash);
    }

    fn make(
        &mut self,
        format: Format,
        spans: &[Span],
        logs: &mut TurnLogs,
        deflation: &mut Deflation,
        stats: &ShardStats,
    ) {
        let (first_span, first_range) = (self.spans.len(), self.ranges.len());
        self.spans.extend_from_slice(spans);
        let encoding = Encoding::of(format.0);
        for pieces in cut(format, spans, logs) {
            let ranges = pieces.iter().map(|span| LogRange {
                format: format.0,
                range: span.start..span.end,
            });
            if encoding.is_deflated {
                self.payload.clear();
                for LogRange { format, range } in ranges.clone() {
                    self.payload.extend_from_slice(logs.slice(format, &range));
                }
                let payload = &self.payload;
                let range = logs
                    .log_mut(FRAMES)
                    .append(|out| deflation.deflate_frame(encoding.opcode(), payload, stats, out));
                if !range.is_empty() {
                    self.ranges.push(LogRange {
                        format: FRAMES,
                        range,
                    });
                    continue;
                }
            }
            let bytes = pieces.iter().map(Span::len).sum::<u64>() as usize;
            let range = logs
                .log_mut(FRAMES)
                .append(|out| websocket::encode_header(encoding.opcode(), bytes, out));
            self.ranges.push(LogRange {
                format: FRAMES,
                range,
            });
            self.ranges.extend(ranges);
        }
        self.made.push(Made {
            format,
            spans: first_span..self.spans.len(),
            ranges: first_range..self.ranges.len(),
        });
    }
}

fn hash_of(hasher: &impl BuildHasher, format: Format, spans: &[Span]) -> u64 {
    let bounds = spans.iter().map(|span| (span.start, span.end));
    hasher.hash_one((format, bounds.collect::<Vec<_>>()))
}

/// Cuts ranges between messages into lists of at most [`BATCH_BYTES_MAX`] bytes, or one message each.
fn cut(format: Format, spans: &[Span], logs: &TurnLogs) -> Vec<Vec<Span>> {
    let bytes: u64 = spans.iter().map(Span::len).sum();
    if bytes <= BATCH_BYTES_MAX as u64 {
        return vec![spans.to_vec()];
    }
    let encoding = Encoding::of(format.0);
    let (mut lists, mut list, mut list_bytes) = (Vec::new(), Vec::new(), 0);
    for span in spans {
        let bytes = logs.slice(format.0, &(span.start..span.end));
        let (mut first, mut end) = (0, 0);
        while end < bytes.len() {
            // The server encoded these messages itself, so they are complete.
            let message = encoding
                .first_bytes(&bytes[end..])
                .unwrap_or(bytes.len() - end);
            if list_bytes > 0 && list_bytes + message > BATCH_BYTES_MAX {
                push(&mut list, *span, first..end);
                lists.push(std::mem::take(&mut list));
                (first, list_bytes) = (end, 0);
            }
            end += message;
            list_bytes += message;
        }
        push(&mut list, *span, first..end);
    }
    lists.push(list);
    lists
}

/// Adds a part of a range, unless it is empty.
fn push(list: &mut Vec<Span>, span: Span, part: Range<usize>) {
    if !part.is_empty() {
        list.push(Span {
            start: span.start + part.start as u64,
            end: span.start + part.end as u64,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::LOG_COUNT;
    use tidewire_wire::protocol::Protocol;

    /// A format with batches. Its messages begin with their length.
    fn batched() -> Format {
        let mut protocols = Protocol::ALL.iter();
        let protocol = protocols.find(|protocol| protocol.has_batches());
        let first = Encoding::first(*protocol.expect("one with batches"), false);
        Format(
            Encoding {
                is_batched: true,
                ..first
            }
            .id(),
        )
    }

    /// A log of messages with these sizes in bytes, as one range.
    fn log_of(messages: &[usize]) -> (TurnLogs, Span) {
        let mut logs = TurnLogs::new(LOG_COUNT);
        let range = logs.log_mut(batched().0).append(|out| {
            for bytes in messages {
                // The length of a message precedes it, in three bytes.
                let length = bytes - 3;
                out.extend([
                    length as u8 | 0x80,
                    (length >> 7) as u8 | 0x80,
                    (length >> 14) as u8,
                ]);
                out.extend(vec![0; length]);
            }
        });
        let span = Span {
            start: range.start,
            end: range.end,
        };
        (logs, span)
    }

    #[test]
    fn long_batches_are_cut_between_messages() {
        let check = |messages: &[usize], expected: &[u64]| {
            let (logs, span) = log_of(messages);
            let lists = cut(batched(), &[span], &logs);
            let lengths: Vec<u64> = lists
                .iter()
                .map(|list| list.iter().map(Span::len).sum())
                .collect();
            assert_eq!(lengths, expected, "{messages:?}");
        };
        check(&[1000, 2000], &[3000]);
        check(&[40_000, 40_000], &[40_000, 40_000]);
        check(&[65_000, 536, 1000], &[65_536, 1000]);
        check(&[100_000, 10, 10], &[100_000, 20]);
        check(&[10, 100_000], &[10, 100_000]);
    }

    #[test]
    fn ranges_that_do_not_touch_share_a_frame() {
        let (logs, span) = log_of(&[40_000, 40_000, 20_000]);
        let part = |start, end| Span {
            start: span.start + start,
            end: span.start + end,
        };
        let spans = [part(0, 40_000), part(80_000, 100_000)];
        assert_eq!(cut(batched(), &spans, &logs), [spans.to_vec()]);
        let spans = [part(0, 40_000), part(40_000, 100_000)];
        let lists = cut(batched(), &spans, &logs);
        assert_eq!(lists, [vec![part(0, 40_000)], vec![part(40_000, 100_000)]]);
    }
}
