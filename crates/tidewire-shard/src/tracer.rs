//! The spans that shards record of publications, and the queue from which the exporter takes them.
//!
//! A shard never waits for the exporter. Spans that exceed the queue are dropped and counted.

use prometheus_client::metrics::counter::Counter;
use tidewire_core::text::Name;
use tokio::sync::mpsc;

/// The step of a publication that a span measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A publication is read, authorized, and posted to the shards with subscribers.
    Publish,
    /// The publication is on its way to a shard with subscribers, including the mailbox.
    Route,
    /// That shard encodes it and sends it to its subscribers.
    Deliver,
}

/// A measured period of one publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The measured step.
    pub kind: SpanKind,
    /// Its trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub id: [u8; 8],
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// Nanoseconds since the Unix epoch.
    pub start: u64,
    /// Nanoseconds since the Unix epoch.
    pub end: u64,
    /// The event.
    pub event: Name,
    /// The shard that recorded it.
    pub shard: u16,
}

/// Counts of spans.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Spans that the collector has not taken and that are lost.
    pub dropped: Counter,
}

/// Collects the spans of shards.
#[derive(Debug)]
pub struct Tracer {
    queue: mpsc::Sender<Span>,
    /// The part of the publications without a trace that begins one.
    pub sample_ratio: f64,
    /// The most spans that wait for the exporter, and the most that a shard keeps in one turn.
    pub queue_max: usize,
    counts: Counts,
}

impl Tracer {
    /// Creates a tracer and the receiver of its spans, of which at most `queue_max` wait.
    #[must_use]
    pub fn new(
        queue_max: usize,
        sample_ratio: f64,
        counts: Counts,
    ) -> (Self, mpsc::Receiver<Span>) {
        // `config check` refuses 0.
        let (queue, spans) = mpsc::channel(queue_max.max(1));
        let tracer = Self {
            queue,
            sample_ratio,
            queue_max,
            counts,
        };
        (tracer, spans)
    }

    /// Passes a span to the exporter, or drops it.
    pub fn record(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.inc();
        }
    }

    /// Counts spans that were not made because too many deliveries were in progress.
    pub fn drop_unmade(&self, count: u64) {
        self.counts.dropped.inc_by(count);
    }
}
