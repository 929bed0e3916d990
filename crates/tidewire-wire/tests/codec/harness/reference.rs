//! The same wire format as read by prost, an independent protobuf library and the reference for our decoder.

use std::collections::HashMap;

use prost::Message as _;
use tidewire_core::message::Position;
use tidewire_wire::protocol::deepstream::fields::{Fields, WireTopic};
use tidewire_wire::traceparent;

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(int32, optional, tag = "2")]
    topic: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    body: Option<Vec<u8>>,
}

/// Declares one topic's message with the numbers of `spec/deepstream.md`.
macro_rules! topic {
    ($topic:ident { $($kind:ident $field:ident = $tag:literal,)* } $({ $names:ident = $names_tag:literal })?) => {
        #[derive(Clone, PartialEq, prost::Message)]
        struct $topic {
            $(#[prost($kind, optional, tag = $tag)] $field: Option<topic!(@type $kind)>,)*
            $(#[prost(string, repeated, tag = $names_tag)] $names: Vec<String>,)?
        }
    };
    (@type string) => { String };
    (@type bool) => { bool };
    (@type int32) => { i32 };
}

topic!(Parser { int32 action = "1", string data = "2", int32 original_topic = "8", int32 original_action = "9", });
topic!(Connection {
    int32 action = "1", string data = "2", bool is_error = "3", bool is_ack = "4", string url = "5",
    string protocol_version = "6", string sdk_version = "7", string sdk_type = "8",
    bool batches = "15", bool jumps = "16",
});
topic!(Auth { int32 action = "1", string data = "2", bool is_error = "3", bool is_ack = "4", });
topic!(Event {
    int32 action = "1", string data = "2", string correlation = "3", bool is_error = "4", bool is_ack = "5",
    string name = "6", string subscription = "8", int32 original_topic = "10", int32 original_action = "11",
    int32 missed = "15",
} { names = "7" });

/// The field of the event, in a separate message so that `topic!` stays simple.
#[derive(Clone, PartialEq, prost::Message)]
struct EventPosition {
    #[prost(uint64, optional, tag = "16")]
    epoch: Option<u64>,
    #[prost(uint64, optional, tag = "17")]
    offset: Option<u64>,
    #[prost(message, repeated, tag = "18")]
    positions: Vec<NamedPosition>,
    #[prost(string, optional, tag = "19")]
    traceparent: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedPosition {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, optional, tag = "2")]
    epoch: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    offset: Option<u64>,
}

topic!(Rpc {
    int32 action = "1", string data = "2", string correlation = "3", bool is_error = "4", bool is_ack = "5",
    string name = "7", int32 original_action = "9", string requestor_name = "10", string requestor_data = "11",
} { names = "6" });
topic!(Presence {
    int32 action = "1", int32 original_topic = "2", int32 original_action = "3", string data = "4",
    string correlation = "5", bool is_error = "6", bool is_ack = "7", string name = "8",
} { names = "9" });

#[derive(Clone, PartialEq, prost::Message)]
struct Record {
    #[prost(int32, optional, tag = "1")]
    action: Option<i32>,
    #[prost(string, optional, tag = "2")]
    data: Option<String>,
    #[prost(string, optional, tag = "3")]
    correlation: Option<String>,
    #[prost(bool, optional, tag = "4")]
    is_error: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    is_ack: Option<bool>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
    #[prost(string, repeated, tag = "7")]
    names: Vec<String>,
    #[prost(string, optional, tag = "9")]
    subscription: Option<String>,
    #[prost(int32, optional, tag = "10")]
    original_action: Option<i32>,
    #[prost(bool, optional, tag = "11")]
    is_write_ack: Option<bool>,
    #[prost(string, optional, tag = "12")]
    path: Option<String>,
    #[prost(int32, optional, tag = "13")]
    version: Option<i32>,
    #[prost(map = "string, int32", tag = "14")]
    versions: HashMap<String, i32>,
    #[prost(uint64, optional, tag = "20")]
    incarnation: Option<u64>,
    #[prost(int32, optional, tag = "21")]
    only: Option<i32>,
    #[prost(bool, optional, tag = "22")]
    existed: Option<bool>,
    #[prost(string, optional, tag = "23")]
    key: Option<String>,
}

topic!(Query { int32 action = "1", string data = "2", string correlation = "3", bool is_error = "4", string name = "6", });

#[derive(Clone, PartialEq, prost::Message)]
struct Backend {
    #[prost(int32, optional, tag = "1")]
    action: Option<i32>,
    #[prost(string, optional, tag = "2")]
    data: Option<String>,
    #[prost(string, optional, tag = "3")]
    correlation: Option<String>,
    #[prost(bool, optional, tag = "4")]
    is_error: Option<bool>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
    #[prost(string, repeated, tag = "7")]
    names: Vec<String>,
    #[prost(string, repeated, tag = "16")]
    except: Vec<String>,
    #[prost(int32, optional, tag = "17")]
    count: Option<i32>,
    #[prost(bool, optional, tag = "18")]
    is_local: Option<bool>,
    #[prost(int32, optional, tag = "19")]
    timeout: Option<i32>,
}

/// Asserts that prost reads the same topic, body and fields from a payload that our decoder took.
///
/// # Panics
///
/// The two disagree.
pub fn assert_same(payload: &[u8], topic: WireTopic, body: &[u8], fields: &Fields<'_>) {
    let envelope = Envelope::decode_length_delimited(payload).expect("prost reads the envelope");
    assert_eq!(
        envelope.topic.unwrap_or_default(),
        topic.to_wire().cast_signed()
    );
    assert_eq!(envelope.body.unwrap_or_default(), body);
    macro_rules! same {
        ($message:ident: texts $($text:ident)*; flags $($flag:ident)*; numbers $($number:ident)*; $($names:ident)?) => {{
            let other = $message::decode(body).expect("prost reads the fields");
            assert_eq!(other.action.unwrap_or_default(), fields.action.cast_signed());
            $(assert_eq!(other.$text.as_deref(), fields.$text, stringify!($text));)*
            $(assert_eq!(other.$flag, fields.$flag, stringify!($flag));)*
            $(assert_eq!(other.$number, fields.$number.map(u32::cast_signed), stringify!($number));)*
            $(assert_eq!(other.$names, *fields.$names);)?
        }};
    }
    match topic {
        WireTopic::Parser => {
            same!(Parser: texts data; flags; numbers original_topic original_action;)
        }
        WireTopic::Connection => {
            same!(Connection: texts data url protocol_version sdk_version sdk_type; flags is_error is_ack batches jumps; numbers;)
        }
        WireTopic::Auth => same!(Auth: texts data; flags is_error is_ack; numbers;),
        WireTopic::Event => {
            same!(Event: texts data correlation name subscription; flags is_error is_ack;
            numbers original_topic original_action missed; names);
            let other = EventPosition::decode(body).expect("prost reads the position");
            assert_eq!((other.epoch, other.offset), (fields.epoch, fields.offset));
            let positions = other.positions.iter().map(|named| {
                let position = named.epoch.zip(named.offset);
                let position = position.map(|(epoch, offset)| Position { epoch, offset });
                (named.name.as_str(), position)
            });
            assert!(positions.eq(fields.positions.iter().copied()));
            let trace = other.traceparent.as_deref().and_then(traceparent::parse);
            assert_eq!(trace, fields.trace.as_deref().copied());
        }
        WireTopic::Rpc => same!(Rpc: texts data correlation name requestor_name requestor_data;
            flags is_error is_ack; numbers original_action; names),
        WireTopic::Presence => same!(Presence: texts data correlation name; flags is_error is_ack;
            numbers original_topic original_action; names),
        WireTopic::Query => {
            same!(Query: texts data correlation name; flags is_error; numbers;)
        }
        WireTopic::Backend => {
            same!(Backend: texts data correlation name; flags is_error is_local; numbers count timeout; names);
            let other = Backend::decode(body).expect("prost reads the fields");
            assert_eq!(other.except, *fields.except);
        }
        WireTopic::Record => {
            same!(Record: texts data correlation name subscription path key; flags is_error is_ack is_write_ack existed;
                numbers original_action only; names);
            let other = Record::decode(body).expect("prost reads the fields");
            assert_eq!(other.version, fields.version);
            assert_eq!(other.incarnation, fields.incarnation);
            let versions: HashMap<String, i32> = fields
                .versions
                .iter()
                .map(|(name, version)| ((*name).to_owned(), *version))
                .collect();
            assert_eq!(other.versions, versions);
        }
    }
}
