//! The spans that a shard records of publications: one for the publication at its publisher's shard, and for each shard with subscribers
//! one for the way there and one for the delivery.
//!
//! Without a collector nothing is recorded, and the trace context of a client's message is passed to the subscribers unchanged.

use std::mem;
use std::sync::Arc;

use tidewire_core::message::Message;
use tidewire_core::text::Name;
use tidewire_core::time::Instant;
use tidewire_core::trace::Trace;

use super::stats::Clock;
use crate::tracer::{Span, SpanKind, Tracer};

/// The recording of one shard.
#[derive(Debug)]
pub(crate) struct ShardTraces {
    tracer: Arc<Tracer>,
    shard: u16,
    clock: Clock,
    /// Publications without a trace that are skipped until one begins a trace; `None` if none ever does.
    to_skip: Option<u64>,
    deliveries: Vec<Delivery>,
    /// The number of deliveries whose sends are listed.
    listed: usize,
}

/// A publication for subscribers of this shard.
#[derive(Debug)]
struct Delivery {
    /// The trace as it arrived, with the publication as its span.
    published: Trace,
    route: [u8; 8],
    id: [u8; 8],
    event: Name,
    start: u64,
}

/// A publication that is recorded.
pub(super) struct RecordedPublication {
    pub(super) trace: Trace,
    parent: Option<[u8; 8]>,
    event: Name,
}

impl ShardTraces {
    pub(crate) fn new(tracer: Arc<Tracer>, shard: u16, clock: Clock) -> Self {
        Self {
            to_skip: skip(tracer.sample_ratio),
            tracer,
            shard,
            clock,
            deliveries: Vec::new(),
            listed: 0,
        }
    }

    /// Starts to record a message if its trace is sampled, or if it has no trace and is chosen by the sample ratio.
    pub(super) fn begin(&mut self, message: &Message<'_>) -> Option<RecordedPublication> {
        let Message::Event(event) = message else {
            return None;
        };
        let publication = event.published()?;
        let (name, given) = match publication.trace() {
            Some(trace) if trace.is_sampled => (publication.name, Some(*trace)),
            None if self.is_chosen() => (publication.name, None),
            _ => return None,
        };
        let trace = Trace {
            id: given.map_or_else(random, |given| given.id),
            span: random(),
            is_sampled: true,
            since: Instant(self.clock.nanos()),
        };
        Some(RecordedPublication {
            trace,
            parent: given.map(|given| given.span),
            event: Name::from(name),
        })
    }

    fn is_chosen(&mut self) -> bool {
        match &mut self.to_skip {
            None => false,
            Some(0) => {
                self.to_skip = skip(self.tracer.sample_ratio);
                true
            }
            Some(count) => {
                *count -= 1;
                false
            }
        }
    }

    pub(super) fn published(&self, publication: RecordedPublication) {
        let RecordedPublication {
            trace,
            parent,
            event,
        } = publication;
        self.tracer.record(Span {
            kind: SpanKind::Publish,
            trace: trace.id,
            id: trace.span,
            parent,
            start: self.clock.unix(trace.since.0),
            end: self.clock.unix(self.clock.nanos()),
            event,
            shard: self.shard,
        });
    }

    /// The trace that subscribers of this shard get: it names the delivery here as the cause of their actions. This is called once for
    /// each wire format of the same publication.
    pub(super) fn delivered_as(&mut self, event: &str, trace: Trace) -> Trace {
        if !trace.is_sampled {
            return trace;
        }
        let known = self.deliveries.last();
        if let Some(known) = known.filter(|known| known.published == trace) {
            return Trace {
                span: known.id,
                ..trace
            };
        }
        if self.deliveries.len() >= self.tracer.queue_max {
            self.tracer.drop_unmade(2);
            return trace;
        }
        let delivery = Delivery {
            published: trace,
            route: random(),
            id: random(),
            event: event.into(),
            start: self.clock.nanos(),
        };
        let span = delivery.id;
        self.deliveries.push(delivery);
        Trace { span, ..trace }
    }

    /// Notes that everything encoded so far is on the list of sends.
    pub(super) fn list(&mut self) {
        self.listed = self.deliveries.len();
    }

    /// Records the deliveries whose sends were made.
    pub(super) fn sent(&mut self) {
        if self.listed == 0 {
            return;
        }
        let end = self.clock.unix(self.clock.nanos());
        let mut deliveries = mem::take(&mut self.deliveries);
        for delivery in deliveries.drain(..mem::take(&mut self.listed)) {
            let Delivery {
                published,
                route,
                id,
                event,
                start,
            } = delivery;
            let start = self.clock.unix(start);
            let span = Span {
                kind: SpanKind::Route,
                trace: published.id,
                id: route,
                parent: Some(published.span),
                start: self.clock.unix(published.since.0),
                end: start,
                event,
                shard: self.shard,
            };
            self.tracer.record(span.clone());
            self.tracer.record(Span {
                kind: SpanKind::Deliver,
                id,
                parent: Some(route),
                start,
                end,
                ..span
            });
        }
        self.deliveries = deliveries;
    }
}

/// The number of publications to skip until the next chosen one, so that each is chosen with the same probability; `None` if none ever
/// is.
fn skip(ratio: f64) -> Option<u64> {
    if ratio <= 0.0 {
        return None;
    }
    if ratio >= 1.0 {
        return Some(0);
    }
    // From 0 to below 1, in steps that a number of this type can distinguish.
    let chance = (u64::from_le_bytes(random()) >> 11) as f64 / (1_u64 << 53) as f64;
    // The end of the range is far beyond any count.
    Some(((1.0 - chance).ln() / (1.0 - ratio).ln()) as u64)
}

/// Random bytes that are not all zero, as ids have to be.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // A system without random numbers could not have started the server.
    if getrandom::fill(&mut bytes).is_err() || bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_ratio_is_sampled() {
        for ratio in [0.01, 0.1, 0.5, 0.9] {
            let count = 20_000;
            let skipped: u64 = (0..count).filter_map(|_| skip(ratio)).sum();
            let found = f64::from(count) / (skipped as f64 + f64::from(count));
            assert!((found / ratio - 1.0).abs() < 0.1, "{ratio} {found}");
        }
        assert_eq!((skip(0.0), skip(1.0)), (None, Some(0)));
    }
}
