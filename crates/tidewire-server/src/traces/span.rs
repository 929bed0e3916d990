//! Encodes a batch of spans as OTLP JSON (`ExportTraceServiceRequest` of OpenTelemetry's protocol, version 1).

use serde_json::{Value, json};
use tidewire_core::hex::hex;
use tidewire_shard::tracer::{Span, SpanKind};

/// The request that exports `spans` under the name of this service.
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
                "spans": spans.iter().map(span_json).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn kind_name(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Publish => "publish",
        SpanKind::Route => "route",
        SpanKind::Deliver => "deliver",
    }
}

/// The number of OTLP's `SpanKind`: 2 is a server, which answers a request; 1 is internal; 4 is a producer, which expects no answer.
fn kind_number(kind: SpanKind) -> u8 {
    match kind {
        SpanKind::Publish => 2,
        SpanKind::Route => 1,
        SpanKind::Deliver => 4,
    }
}

fn span_json(span: &Span) -> Value {
    let mut json = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": kind_name(span.kind),
        "kind": kind_number(span.kind),
        // OTLP's JSON has 64-bit numbers as strings.
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": [
            text("messaging.system", "tidewire"),
            text("messaging.destination.name", &span.event),
            { "key": "tidewire.shard", "value": { "intValue": span.shard.to_string() } },
        ],
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = hex(&parent).into();
    }
    json
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
            kind: SpanKind::Deliver,
            trace: [0xAB; 16],
            id: [1, 2, 3, 4, 5, 6, 7, 0xFF],
            parent: Some([9; 8]),
            start: 1_700_000_000_000_000_001,
            end: 1_700_000_000_000_000_002,
            event: "news".into(),
            shard: 3,
        };
        let root = Span {
            kind: SpanKind::Publish,
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
