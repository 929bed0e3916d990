//! The number of messages in the ranges of a turn, so that deliveries are counted as messages.
//!
//! Encoding notes where each message ends. Consecutive recipients mostly get the same ranges, so counting for one more recipient is a
//! comparison. Only ranges that differ from the previous ones are looked up.

use tidewire_core::effect::{Format, Span};

/// After a turn with more messages than this, the memory for their ends shrinks to this many.
const ENDS_KEPT_MAX: usize = 4096;

/// The ends of the messages of one turn, by wire format.
#[derive(Debug)]
pub(crate) struct MessageEnds {
    by_format: Box<[Vec<u64>]>,
    /// The result of the last count.
    last: Counted,
}

#[derive(Debug)]
struct Counted {
    format: Format,
    spans: Vec<Span>,
    count: u64,
}

impl MessageEnds {
    /// Counts the messages of formats with numbers below `format_count`.
    pub(crate) fn new(format_count: u8) -> Self {
        Self {
            by_format: (0..format_count).map(|_| Vec::new()).collect(),
            last: Counted {
                format: Format(0),
                spans: Vec::new(),
                count: 0,
            },
        }
    }

    /// Notes the end of a message that was appended to the log of its format.
    pub(crate) fn note(&mut self, format: Format, end: u64) {
        self.by_format[usize::from(format.0)].push(end);
    }

    /// The number of messages in these ranges of the turn. A range begins and ends between messages.
    pub(crate) fn count(&mut self, format: Format, spans: &[Span]) -> u64 {
        let last = &self.last;
        if last.format == format && last.spans == spans {
            return last.count;
        }
        let ends = &self.by_format[usize::from(format.0)];
        let until = |offset: u64| ends.partition_point(|end| *end <= offset);
        let counts = spans
            .iter()
            .map(|span| (until(span.end) - until(span.start)) as u64);
        let count = counts.sum();
        self.last.format = format;
        self.last.spans.clear();
        self.last.spans.extend_from_slice(spans);
        self.last.count = count;
        count
    }

    /// Forgets the turn. All its ranges must have been counted.
    pub(crate) fn begin_turn(&mut self) {
        for ends in &mut self.by_format {
            ends.clear();
            ends.shrink_to(ENDS_KEPT_MAX);
        }
        self.last.spans.clear();
        self.last.spans.shrink_to(ENDS_KEPT_MAX);
        self.last.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_the_messages_that_end_in_them() {
        let mut ends = MessageEnds::new(3);
        let format = Format(1);
        for end in [110, 130, 135, 200] {
            ends.note(format, end);
        }
        ends.note(Format(2), 50);
        let span = |(start, end)| Span { start, end };
        for (spans, expected) in [
            (vec![], 0),
            (vec![(100, 110)], 1),
            (vec![(100, 200)], 4),
            (vec![(100, 200)], 4),
            (vec![(110, 135)], 2),
            (vec![(100, 110), (130, 200)], 3),
        ] {
            let spans: Vec<Span> = spans.into_iter().map(span).collect();
            assert_eq!(ends.count(format, &spans), expected, "{spans:?}");
        }
        assert_eq!(ends.count(Format(2), &[span((0, 50))]), 1);
        ends.begin_turn();
        assert_eq!(ends.count(Format(2), &[]), 0);
        ends.note(format, 210);
        assert_eq!(ends.count(format, &[span((200, 210))]), 1);
    }
}
