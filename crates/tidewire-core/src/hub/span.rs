//! Sorted lists of ranges of the turn log.

use smallvec::SmallVec;

use crate::effect::Span;

/// Adds a range at the end, joined with the last one if they touch.
pub(super) fn append<const N: usize>(spans: &mut SmallVec<[Span; N]>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => spans.push(span),
    }
}

/// The parts of sorted ranges that start at `since` or later.
pub(super) fn clip(spans: &[Span], since: u64) -> impl Iterator<Item = Span> + '_ {
    spans
        .iter()
        .filter(move |span| span.end > since)
        .map(move |span| Span {
            start: span.start.max(since),
            end: span.end,
        })
}

/// Takes the ranges `own`, sorted, out of `spans`, sorted and not overlapping. `left` is memory to work in.
pub(super) fn subtract(spans: &mut Vec<Span>, own: &[Span], left: &mut Vec<Span>) {
    if own.is_empty() {
        return;
    }
    left.clear();
    let mut own = own.iter().peekable();
    for span in spans.iter() {
        let mut start = span.start;
        while let Some(cut) = own.peek() {
            if cut.end <= start {
                own.next();
            } else if cut.start < span.end {
                if start < cut.start {
                    left.push(Span {
                        start,
                        end: cut.start,
                    });
                }
                start = cut.end.min(span.end);
                if cut.end > span.end {
                    break;
                }
                own.next();
            } else {
                break;
            }
        }
        if start < span.end {
            left.push(Span {
                start,
                end: span.end,
            });
        }
    }
    std::mem::swap(spans, left);
}

/// Joins ranges, sorted by their starts, that touch or overlap.
pub(super) fn join_sorted(spans: &mut Vec<Span>) {
    spans.dedup_by(|next, last| {
        let is_joined = next.start <= last.end;
        if is_joined {
            last.end = last.end.max(next.end);
        }
        is_joined
    });
}
