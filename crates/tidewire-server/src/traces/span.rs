//! A span, and a batch of them as OTLP's JSON has it (`ExportTraceServiceRequest` of OpenTelemetry's protocol, version 1).

use serde_json::{Value, json};
use tidewire_core::text::Name;

use crate::hex::hex;

/// The part that something plays in the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A publication is read, judged, and posted to the shards with subscribers.
    Publish,
    /// It is on its way to a shard with subscribers, the mailbox included.
    Route,
    /// That shard encodes it and sends it to its subscribers.
    Deliver,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Route => "route",
            Self::Deliver => "deliver",
        }
    }

    /// The number of OTLP's `SpanKind`: a server answers, an internal one does neither, a producer is waited for by nobody.
    fn number(self) -> u8 {
        match self {
            Self::Publish => 2,
            Self::Route => 1,
            Self::Deliver => 4,
        }
    }
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

/// A batch of spans of the service of this name.
pub fn request(service: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        text("service.name", service),
        text("service.version", version),
    ];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "tidewire", "version": version },
                "spans": spans.iter().map(Span::json).collect::<Vec<_>>(),
            }],
        }],
    })
}

impl Span {
    fn json(&self) -> Value {
        let mut span = json!({
            "traceId": hex(&self.trace),
            "spanId": hex(&self.id),
            "name": self.kind.name(),
            "kind": self.kind.number(),
            // Numbers of 64 bits are texts in the JSON of protobuf.
            "startTimeUnixNano": self.start.to_string(),
            "endTimeUnixNano": self.end.to_string(),
            "attributes": [
                text("messaging.system", "tidewire"),
                text("messaging.destination.name", &self.event),
                { "key": "tidewire.shard", "value": { "intValue": self.shard.to_string() } },
            ],
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = hex(&parent).into();
        }
        span
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_the_protocol_wants() {
        let span = Span {
            kind: Kind::Deliver,
            trace: [0xAB; 16],
            id: [1, 2, 3, 4, 5, 6, 7, 0xFF],
            parent: Some([9; 8]),
            start: 1_700_000_000_000_000_001,
            end: 1_700_000_000_000_000_002,
            event: "news".into(),
            shard: 3,
        };
        let root = Span {
            kind: Kind::Publish,
            parent: None,
            ..span.clone()
        };
        let request = request("shop", &[span, root]);
        let resource = &request["resourceSpans"][0]["resource"];
        assert_eq!(
            resource["attributes"][0],
            json!({ "key": "service.name", "value": { "stringValue": "shop" } })
        );
        let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(
            spans[0],
            json!({
                "traceId": "abababababababababababababababab",
                "spanId": "01020304050607ff",
                "parentSpanId": "0909090909090909",
                "name": "deliver",
                "kind": 4,
                "startTimeUnixNano": "1700000000000000001",
                "endTimeUnixNano": "1700000000000000002",
                "attributes": [
                    { "key": "messaging.system", "value": { "stringValue": "tidewire" } },
                    { "key": "messaging.destination.name", "value": { "stringValue": "news" } },
                    { "key": "tidewire.shard", "value": { "intValue": "3" } },
                ],
            })
        );
        assert_eq!(
            (&spans[1]["name"], &spans[1]["kind"]),
            (&json!("publish"), &json!(2))
        );
        assert_eq!(spans[1].get("parentSpanId"), None);
    }
}
