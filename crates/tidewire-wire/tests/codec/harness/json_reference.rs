//! The same texts as read by serde_json, the reference for our own JSON reader.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidewire_core::message::Position;
use tidewire_wire::protocol::deepstream::fields::Fields;
use tidewire_wire::protocol::deepstream::json::{JsonFields, TextError};
use tidewire_wire::traceparent;

/// The members of each topic by its number, from 1, with the names of `spec/deepstream.md`.
const MEMBERS: [&[&str]; 7] = [
    &["data", "originalTopic", "originalAction"],
    &[
        "data",
        "isError",
        "isAck",
        "url",
        "protocolVersion",
        "sdkVersion",
        "sdkType",
        "batches",
        "jumps",
    ],
    &["data", "isError", "isAck"],
    &[
        "data",
        "correlationId",
        "isError",
        "isAck",
        "name",
        "names",
        "subscription",
        "originalTopic",
        "originalAction",
        "missed",
        "epoch",
        "offset",
        "positions",
        "traceparent",
    ],
    &[
        "data",
        "correlationId",
        "isError",
        "isAck",
        "name",
        "names",
        "subscription",
        "originalAction",
        "isWriteAck",
        "path",
        "version",
        "versions",
        "incarnation",
        "only",
        "existed",
        "key",
        "seenVersion",
    ],
    &[
        "data",
        "correlationId",
        "isError",
        "isAck",
        "name",
        "names",
        "originalAction",
        "requestorName",
        "requestorData",
    ],
    &[
        "data",
        "correlationId",
        "isError",
        "isAck",
        "name",
        "names",
        "originalTopic",
        "originalAction",
    ],
];

/// The members of an object; the last of equal ones.
type Members<'a> = HashMap<String, &'a RawValue>;

/// Asserts that serde_json takes for JSON what we do, and reads the same from a message that we can read.
///
/// # Panics
///
/// The two disagree.
pub fn assert_same(payload: &[u8], read: &Result<JsonFields<'_>, TextError>) {
    let is_json = serde_json::from_slice::<&RawValue>(payload).is_ok();
    let is_malformed = matches!(read, Err(TextError::Malformed { .. }));
    // Malformed text is the frames' matter.
    if std::str::from_utf8(payload).is_ok() {
        assert_eq!(is_json, !is_malformed, "what is JSON");
    }
    let Ok(read) = read else { return };
    // serde_json has no text for a lone surrogate, which may be in a key that means nothing.
    let Ok(members) = serde_json::from_slice::<Members<'_>>(payload) else {
        return;
    };
    let topic = value::<f64>(&members, "topic").unwrap_or_default();
    assert_eq!(topic, f64::from(read.topic()), "the topic");
    let names = (topic as usize)
        .checked_sub(1)
        .and_then(|index| MEMBERS.get(index));
    let Some(names) = names else {
        return assert_eq!(read.fields(), Fields::default(), "no topic, no fields");
    };
    let fields = read.fields();
    let action = value::<f64>(&members, "action").unwrap_or_default();
    assert_eq!(action, f64::from(fields.action), "the action");
    let has = |name| names.contains(&name);
    let text = |name| value::<String>(&members, name).filter(|_| has(name));
    let flag = |name| value::<bool>(&members, name).filter(|_| has(name));
    let number = |name| value::<f64>(&members, name).filter(|_| has(name));
    let parsed = members.get("parsedData").map(|raw| raw.get().to_owned());
    let data = parsed.filter(|_| has("data")).or_else(|| text("data"));
    let own = |text: Option<&str>| text.map(str::to_owned);
    assert_eq!(own(fields.data), data, "data");
    assert_eq!(own(fields.correlation), text("correlationId"));
    assert_eq!(own(fields.name), text("name"));
    assert_eq!(own(fields.subscription), text("subscription"));
    assert_eq!(own(fields.path), text("path"));
    assert_eq!(own(fields.key), text("key"));
    assert_eq!(own(fields.url), text("url"));
    assert_eq!(own(fields.protocol_version), text("protocolVersion"));
    assert_eq!(own(fields.sdk_version), text("sdkVersion"));
    assert_eq!(own(fields.sdk_type), text("sdkType"));
    assert_eq!(own(fields.requestor_name), text("requestorName"));
    assert_eq!(own(fields.requestor_data), text("requestorData"));
    assert_eq!(fields.is_error, flag("isError"));
    assert_eq!(fields.is_ack, flag("isAck"));
    assert_eq!(fields.is_write_ack, flag("isWriteAck"));
    assert_eq!(fields.existed, flag("existed"));
    assert_eq!(fields.batches, flag("batches"));
    assert_eq!(fields.jumps, flag("jumps"));
    assert_eq!(fields.version.map(f64::from), number("version"));
    assert_eq!(fields.seen_version.map(f64::from), number("seenVersion"));
    assert_eq!(
        fields.original_topic.map(f64::from),
        number("originalTopic")
    );
    assert_eq!(
        fields.original_action.map(f64::from),
        number("originalAction")
    );
    assert_eq!(fields.only.map(f64::from), number("only"));
    assert_eq!(fields.missed.map(f64::from), number("missed"));
    let incarnation = text("incarnation").map(|digits| digits.parse::<u64>().expect("digits"));
    assert_eq!(fields.incarnation, incarnation);
    let whole = |name| whole(members.get(name).copied().filter(|_| has(name)));
    assert_eq!(
        (fields.epoch, fields.offset),
        (whole("epoch"), whole("offset"))
    );
    let positions = value::<Vec<Members<'_>>>(&members, "positions").filter(|_| has("positions"));
    let positions: Vec<_> = positions.iter().flatten().map(position).collect();
    let ours = fields.positions.iter();
    let ours: Vec<_> = ours
        .map(|(name, position)| ((*name).to_owned(), *position))
        .collect();
    assert_eq!(ours, positions, "positions");
    let trace = text("traceparent").and_then(|text| traceparent::parse(&text));
    assert_eq!(fields.trace.as_deref().copied(), trace);
    let list = value::<Vec<String>>(&members, "names").filter(|_| has("names"));
    assert_eq!(fields.names.to_vec(), list.unwrap_or_default());
    let map = value::<HashMap<String, f64>>(&members, "versions").filter(|_| has("versions"));
    let versions = fields.versions.iter();
    let versions: HashMap<_, _> = versions
        .map(|(name, version)| ((*name).to_owned(), f64::from(*version)))
        .collect();
    assert_eq!(versions, map.unwrap_or_default());
}

/// A whole number of 64 bits in any spelling; `None` if it is absent or null.
fn whole(raw: Option<&RawValue>) -> Option<u64> {
    let raw = raw?.get();
    let exact = serde_json::from_str::<u64>(raw).ok();
    exact.or_else(|| serde_json::from_str::<f64>(raw).ok().map(|it| it as u64))
}

fn position(entry: &Members<'_>) -> (String, Option<Position>) {
    let name = value::<String>(entry, "name").unwrap_or_default();
    let number = |name| whole(entry.get(name).copied());
    let position = number("epoch").zip(number("offset"));
    let position = position.map(|(epoch, offset)| Position { epoch, offset });
    (name, position)
}

/// The value of a member; `None` if it is absent, null, or of another topic and so of any type.
fn value<'a, T: Deserialize<'a>>(members: &Members<'a>, name: &str) -> Option<T> {
    let raw = members.get(name)?.get();
    serde_json::from_str::<Option<T>>(raw).ok().flatten()
}
