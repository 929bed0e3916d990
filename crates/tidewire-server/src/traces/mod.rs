//! Traces: which publications are recorded, and the way of their spans to a collector. See `docs/operations.md`, "Traces".
//!
//! A shard makes spans of what it records (`shard/traces.rs`) and never waits for anybody: what the exporter does not keep up with is
//! dropped and counted.

mod export;
mod span;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

pub use export::Exporter;
pub use span::{Kind, Span};

use crate::config::outbound_url::outbound_url;
use crate::config::Problem;
use crate::config::section::Traces;
use crate::metrics::Metrics;

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Spans that it has not, and that nobody keeps.
    pub dropped: Counter,
}

impl Counts {
    /// Shows the numbers.
    pub fn register(&self, metrics: &Metrics) {
        let help = "Spans that the collector of traces.endpoint has taken";
        metrics.register_counter("trace_exported_spans", help, &self.exported);
        let help =
            "Spans dropped because the collector did not take them, or not as fast as they came";
        metrics.register_counter("trace_dropped_spans", help, &self.dropped);
    }
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
    /// A tracer and what exports its spans; nothing without an endpoint.
    ///
    /// # Errors
    /// An option is wrong.
    pub fn open(options: &Traces, counts: &Counts) -> Result<Option<(Self, Exporter)>, Problem> {
        if options.endpoint.is_empty() {
            return Ok(None);
        }
        let url = outbound_url(&options.endpoint)
            .map_err(|reason| Problem::new("traces.endpoint", reason))?;
        let queue_max = options.queue_max;
        // `config check` refuses 0.
        let (queue, spans) = mpsc::channel(queue_max.max(1));
        let tracer = Self {
            queue,
            sample_ratio: options.sample_ratio.number(),
            queue_max,
            counts: counts.clone(),
        };
        let exporter = Exporter::new(url, options, spans, counts.clone())
            .map_err(|reason| Problem::new("traces.endpoint", reason))?;
        Ok(Some((tracer, exporter)))
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
