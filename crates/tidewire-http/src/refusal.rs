//! Counts refused HTTP requests: one counter with a fixed list of causes.
//!
//! Refused logins and origins have their own metrics, and so have refusals of the engine.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a request was refused, or why a connection ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The first head did not arrive within `http.head_timeout`.
    SlowHead,
    /// No further head arrived within `http.head_timeout`. This is the usual end of a keep-alive connection.
    Idle,
    /// The head is larger than `http.head_bytes_max`, or has more than 100 fields.
    LargeHead,
    /// The head is not valid HTTP, is ambiguous, or contains a malformed WebSocket handshake.
    MalformedHead,
    /// The connection took longer than `http.connection_timeout` for its requests.
    SlowConnection,
    /// The body is larger than `http.body_bytes_max`.
    LargeBody,
    /// The body did not arrive within `http.body_timeout`.
    SlowBody,
    /// The bodies of all requests together have reached `http.bodies_bytes_max`.
    Bodies,
    /// The server is already working on `http.requests_max` requests.
    Requests,
    /// `http.streams_max` streams are open.
    Streams,
    /// The caller has used its share of the requests.
    RequestShare,
    /// The caller has used its share of the bytes of bodies.
    BodyShare,
    /// The caller has used its share of the streams.
    StreamShare,
    /// The server ended a stream because its client did not read while the node was short of memory.
    UnreadStream,
    /// A batch has more than `http.batch_commands_max` commands.
    Commands,
    /// The name of a record is empty, longer than `limits.name_bytes_max`, or not percent-encoded UTF-8.
    Names,
    /// The body or the query string is not valid for the operation.
    Malformed,
    /// The new value of a record is invalid or exceeds a limit, or a patch does not fit the record.
    Value,
    /// A ticket was used before, has expired, or was never issued.
    Ticket,
}

impl RequestRefusal {
    /// All of them.
    const ALL: [Self; 19] = [
        Self::SlowHead,
        Self::Idle,
        Self::LargeHead,
        Self::MalformedHead,
        Self::SlowConnection,
        Self::LargeBody,
        Self::SlowBody,
        Self::Bodies,
        Self::Requests,
        Self::Streams,
        Self::RequestShare,
        Self::BodyShare,
        Self::StreamShare,
        Self::UnreadStream,
        Self::Commands,
        Self::Names,
        Self::Malformed,
        Self::Value,
        Self::Ticket,
    ];

    /// The cause if hyper ended the connection because of a faulty head. `is_first` means that the connection had no request
    /// before.
    #[must_use]
    pub fn of_connection(error: &hyper::Error, is_first: bool) -> Option<Self> {
        if error.is_timeout() {
            return Some(if is_first { Self::SlowHead } else { Self::Idle });
        }
        if error.is_parse_too_large() {
            return Some(Self::LargeHead);
        }
        error.is_parse().then_some(Self::MalformedHead)
    }

    /// The value of the metric's label.
    const fn word(self) -> &'static str {
        match self {
            Self::SlowHead => "slow_head",
            Self::Idle => "idle",
            Self::LargeHead => "large_head",
            Self::MalformedHead => "malformed_head",
            Self::SlowConnection => "slow_connection",
            Self::LargeBody => "large_body",
            Self::SlowBody => "slow_body",
            Self::Bodies => "bodies",
            Self::Requests => "requests",
            Self::Streams => "streams",
            Self::RequestShare => "request_share",
            Self::BodyShare => "body_share",
            Self::StreamShare => "stream_share",
            Self::UnreadStream => "unread_stream",
            Self::Commands => "commands",
            Self::Names => "names",
            Self::Malformed => "malformed",
            Self::Value => "value",
            Self::Ticket => "ticket",
        }
    }
}

/// How often each cause occurred. Clones share their counters.
#[derive(Clone, Debug)]
pub struct RequestRefusals(Family<[(&'static str, &'static str); 1], Counter>);

impl RequestRefusals {
    /// All counters at 0, registered in `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let family = Family::default();
        let help = "HTTP requests refused, and connections closed before a request, by the limit that caused it";
        registry.register("refused_requests", help, family.clone());
        let refusals = Self(family);
        for cause in RequestRefusal::ALL {
            drop(refusals.counter(cause));
        }
        refusals
    }

    /// Counts one.
    pub fn count(&self, cause: RequestRefusal) {
        self.counter(cause).inc();
    }

    /// How often this cause occurred.
    #[must_use]
    pub fn of(&self, cause: RequestRefusal) -> u64 {
        self.counter(cause).get()
    }

    fn counter(&self, cause: RequestRefusal) -> Counter {
        self.0.get_or_create_owned(&[("cause", cause.word())])
    }
}

impl Default for RequestRefusals {
    /// All counters at 0, in a registry that no page shows.
    fn default() -> Self {
        Self::registered(&mut Registry::default())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_cause_is_exported_before_it_occurs() {
        let mut registry = Registry::default();
        let refusals = RequestRefusals::registered(&mut registry);
        refusals.count(RequestRefusal::SlowBody);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for cause in RequestRefusal::ALL {
            let count = u64::from(cause == RequestRefusal::SlowBody);
            let line = format!(
                "refused_requests_total{{cause=\"{}\"}} {count}",
                cause.word()
            );
            assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
        }
    }
}
