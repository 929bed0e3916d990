//! What is in the way of HTTP requests, and how often it was: one counter with a fixed list of causes.
//!
//! What refuses a login or an origin has metrics of its own, and so has what the engine refuses.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a request was refused, or its connection ended before there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The first head did not arrive within `http.head_timeout`.
    SlowHead,
    /// No further head arrived within `http.head_timeout`, as is usual at the end of a connection that is kept.
    Idle,
    /// The head has more than `http.head_bytes_max`, or more than 100 fields.
    LargeHead,
    /// The head is no head of HTTP, could be read in two ways, or asks for no WebSocket that there is.
    MalformedHead,
    /// The connection took longer than `http.connection_timeout` with what it was asked.
    SlowConnection,
    /// The body has more than `http.body_bytes_max`.
    LargeBody,
    /// The body did not arrive within `http.body_timeout`.
    SlowBody,
    /// The bodies of all requests have `http.bodies_bytes_max`.
    Bodies,
    /// The server works on `http.requests_max` requests.
    Requests,
    /// `http.streams_max` streams are open.
    Streams,
    /// The caller has its share of the requests.
    RequestShare,
    /// The caller has its share of the bytes of bodies.
    BodyShare,
    /// The caller has its share of the streams.
    StreamShare,
    /// A stream was ended because its client did not read while the node was short of memory.
    UnreadStream,
    /// A batch has more than `http.batch_commands_max` commands.
    Commands,
    /// The name of a record is empty, longer than `limits.name_bytes_max`, or not percent-encoded UTF-8.
    Names,
    /// The body or the query string does not say what the operation wants.
    Malformed,
    /// The new value of a record is none within the limits, or a patch does not fit its record.
    Value,
    /// A ticket was used before, has ended, or was never given.
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

    /// What ended a connection of hyper's, if that was the fault of its head. `is_first` says that no request came before.
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

/// How often each of them was in somebody's way. Clones count together.
#[derive(Clone, Debug)]
pub struct RequestRefusals(Family<[(&'static str, &'static str); 1], Counter>);

impl RequestRefusals {
    /// All at 0, and shown by this registry.
    pub fn registered(registry: &mut Registry) -> Self {
        let family = Family::default();
        let help = "HTTP requests refused, and connections ended without one, by the limit that was in their way";
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

    /// How often this was the cause.
    #[must_use]
    pub fn of(&self, cause: RequestRefusal) -> u64 {
        self.counter(cause).get()
    }

    fn counter(&self, cause: RequestRefusal) -> Counter {
        self.0.get_or_create_owned(&[("cause", cause.word())])
    }
}

impl Default for RequestRefusals {
    /// All at 0, and shown by nobody.
    fn default() -> Self {
        Self::registered(&mut Registry::default())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_cause_is_shown_before_it_was_met() {
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
