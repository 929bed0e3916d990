//! What shards record of publications, and the queue in which the exporter finds it.
//!
//! A shard never waits for the exporter: what that does not keep up with is dropped and counted.

use prometheus_client::metrics::counter::Counter;
use tidewire_core::text::Name;
use tokio::sync::mpsc;

/// The part that something plays in the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A publication is read, authorized, and posted to the shards with subscribers.
    Publish,
    /// It is on its way to a shard with subscribers, the mailbox included.
    Route,
    /// That shard encodes it and sends it to its subscribers.
    Deliver,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What.
    pub kind: Kind,
    /// Its trace.
    pub trace: [u8; 16],
    /// Itself.
    pub id: [u8; 8],
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// Nanoseconds since the Unix epoch.
    pub start: u64,
    /// Nanoseconds since the Unix epoch.
    pub end: u64,
    /// The event.
    pub event: Name,
    /// Where.
    pub shard: u16,
}

/// Counts of spans.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Spans that it has not, and that nobody keeps.
    pub dropped: Counter,
}

/// What shards give their spans to.
#[derive(Debug)]
pub struct Tracer {
    queue: mpsc::Sender<Span>,
    /// Of the publications that belong to no trace yet, the part that begins one.
    pub sample_ratio: f64,
    /// What waits for the exporter at most, and what a shard keeps of one turn.
    pub queue_max: usize,
    counts: Counts,
}

impl Tracer {
    /// A tracer and the spans that it is given, of which `queue_max` wait at most.
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

    /// Gives a span to the exporter, or drops it.
    pub fn record(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.inc();
        }
    }

    /// Counts spans that were not made, because too many were under way.
    pub fn drop_unmade(&self, count: u64) {
        self.counts.dropped.inc_by(count);
    }
}
