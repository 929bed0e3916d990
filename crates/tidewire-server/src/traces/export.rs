//! The way of spans to a collector: OTLP over HTTP with JSON, in batches, in the background.

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

/// Spans of one request at most; each has about 400 bytes.
const BATCH_MAX: usize = 512;
/// Statuses after which the protocol wants a request to be repeated.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];
/// The waits before a request is repeated. After the last one its spans are dropped, so that newer ones have their turn.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// Bytes of an answer that are read; it names at most how many spans were refused and why.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends what shards record.
#[derive(Debug)]
pub struct Exporter {
    url: Url,
    client: Client,
    service: String,
    interval: Duration,
    spans: mpsc::Receiver<Span>,
    counts: Counts,
    /// Whether the last request failed, which the log says once.
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

    /// Exports until nobody can record any more and everything was tried.
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
                        tracing::info!("the collector of traces takes spans again");
                    }
                    return;
                }
                Err(failure) => failure,
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                let reason = failure.reason;
                tracing::warn!(%reason, "the collector of traces.endpoint does not take spans");
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

    /// Sends a batch once; how many of its spans were refused.
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
        // What can't be read says nothing of spans that were refused.
        let answer = outbound::body(answer, ANSWER_BYTES_MAX).await;
        Ok(answer.map_or(0, |answer| refused(&answer)))
    }
}

/// How many spans an answer refuses. The number is a text in the JSON of protobuf, and some write a number.
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
    fn what_a_collector_refuses_is_read_in_both_spellings() {
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
