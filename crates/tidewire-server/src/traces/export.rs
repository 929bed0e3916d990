//! Sends spans to a collector in the background: OTLP over HTTP with JSON, in batches.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use serde_json::Value;
use tidewire_auth::outbound;
use tidewire_config::section::Traces;
use tidewire_shard::tracer::{Counts, Span};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::span::request;

/// The most spans of one request; each has about 400 bytes.
const BATCH_MAX: usize = 512;
/// The statuses after which OTLP requires the client to repeat the request.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];
/// The delays before each retry of a request. After the last retry its spans are dropped, so that newer spans can be sent.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How many bytes of an answer are read. An answer contains at most the number of refused spans and the reason.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends the spans that shards record.
#[derive(Debug)]
pub struct Exporter {
    url: Url,
    client: Client,
    service: String,
    interval: Duration,
    spans: mpsc::Receiver<Span>,
    counts: Counts,
    /// Whether the last request failed. Only the first failure in a row is logged.
    is_failing: bool,
}

/// Why a request failed.
struct Failure {
    reason: String,
    is_retryable: bool,
}

impl Exporter {
    pub(super) fn new(
        url: Url,
        options: &Traces,
        spans: mpsc::Receiver<Span>,
        counts: Counts,
    ) -> Result<Self, String> {
        Ok(Self {
            url,
            client: outbound::client(options.timeout, None, 0)?,
            service: options.service_name.clone(),
            interval: options.interval,
            spans,
            counts,
            is_failing: false,
        })
    }

    /// Exports until all tracers are gone and every recorded span was sent or dropped.
    pub async fn run(mut self) {
        loop {
            let mut batch = Vec::new();
            if self.spans.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            let deadline = Instant::now() + self.interval;
            while batch.len() < BATCH_MAX {
                let room = BATCH_MAX - batch.len();
                match timeout_at(deadline, self.spans.recv_many(&mut batch, room)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            self.export(&batch).await;
        }
    }

    async fn export(&mut self, batch: &[Span]) {
        let body = request(&self.service, batch).to_string();
        let count = batch.len() as u64;
        let mut pauses = PAUSES.into_iter();
        loop {
            let failure = match self.post(body.clone()).await {
                Ok(refused) => {
                    let refused = refused.min(count);
                    self.counts.dropped.inc_by(refused);
                    self.counts.exported.inc_by(count - refused);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the trace collector accepts spans again");
                    }
                    return;
                }
                Err(failure) => failure,
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                let reason = failure.reason;
                tracing::warn!(%reason, "the trace collector does not accept spans; check it and `traces.endpoint`");
            }
            match pauses.next().filter(|_| failure.is_retryable) {
                Some(pause) => sleep(pause).await,
                None => {
                    self.counts.dropped.inc_by(count);
                    return;
                }
            }
        }
    }

    /// Sends a batch once. Returns how many of its spans the collector refused.
    async fn post(&self, body: String) -> Result<u64, Failure> {
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let answer = request.send().await.map_err(|error| Failure {
            reason: outbound::describe(error),
            is_retryable: true,
        })?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(Failure {
                reason: format!("it answers {status}"),
                is_retryable: RETRYABLE.contains(&status),
            });
        }
        // An answer that can't be read counts as an answer without refused spans.
        let answer = outbound::body(answer, ANSWER_BYTES_MAX).await;
        Ok(answer.map_or(0, |answer| refused(&answer)))
    }
}

/// The number of refused spans in an answer. OTLP's JSON has it as a string, but some collectors write a number.
fn refused(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let refused = &answer["partialSuccess"]["rejectedSpans"];
    let text = refused.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| refused.as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_a_collector_are_read_in_both_spellings() {
        for (answer, expected) in [
            ("{}", 0),
            ("", 0),
            (r#"{"partialSuccess":{}}"#, 0),
            (
                r#"{"partialSuccess":{"rejectedSpans":"7","errorMessage":"x"}}"#,
                7,
            ),
            (r#"{"partialSuccess":{"rejectedSpans":7}}"#, 7),
        ] {
            assert_eq!(refused(answer.as_bytes()), expected, "{answer}");
        }
    }
}
