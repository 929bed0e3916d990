//! Exports trace spans to a collector. See `docs/operations.md`, "Traces".
//!
//! Shards record the spans (`shard/tracer.rs`) and never wait for the exporter.

mod export;
mod span;

pub use export::Exporter;
use tidewire_config::Problem;
use tidewire_config::outbound_url::outbound_url;
use tidewire_config::section::Traces;
use tidewire_http::metrics::Metrics;
use tidewire_shard::tracer::{Counts, Tracer};

/// Registers the counters of exported and dropped spans.
pub fn register(counts: &Counts, metrics: &Metrics) {
    let help = "Spans that the collector at traces.endpoint has accepted";
    metrics.register_counter("trace_exported_spans", help, &counts.exported);
    let help = "Spans dropped because the collector refused them or could not keep up";
    metrics.register_counter("trace_dropped_spans", help, &counts.dropped);
}

/// A tracer and the exporter of its spans; `None` without an endpoint.
///
/// # Errors
/// An option is invalid.
pub fn open(options: &Traces, counts: &Counts) -> Result<Option<(Tracer, Exporter)>, Problem> {
    if options.endpoint.is_empty() {
        return Ok(None);
    }
    let url = outbound_url(&options.endpoint)
        .map_err(|reason| Problem::new("traces.endpoint", reason))?;
    let ratio = options.sample_ratio.number();
    let (tracer, spans) = Tracer::new(options.queue_max, ratio, counts.clone());
    let exporter = Exporter::new(url, options, spans, counts.clone())
        .map_err(|reason| Problem::new("traces.endpoint", reason))?;
    Ok(Some((tracer, exporter)))
}
