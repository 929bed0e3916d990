//! Encodes fields as a text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_core::json::escaped;
use tidewire_core::message::Position;

use super::key::name;
use crate::protobuf::Sink;
use crate::protocol::deepstream::fields::{Field, Fields, WireTopic, format_session};
use crate::protocol::deepstream::{Dialect, action};
use crate::traceparent;

/// Writes the present fields, topic and action first. Skips fields that the topic does not have.
pub(super) fn write(topic: WireTopic, fields: &Fields<'_>, dialect: Dialect, sink: &mut impl Sink) {
    sink.extend(b"{\"topic\":");
    decimal(topic.to_wire().into(), sink);
    member(Field::Action, sink);
    decimal(fields.action.into(), sink);
    for field in topic.layout().iter().flatten() {
        let is_answer = is_list_answer(topic, fields.action, *field);
        write_field(*field, fields, dialect, is_answer, sink);
    }
    sink.push(b'}');
}

/// Whether a list is the content of an answer. deepstream's client reads it without a check, so an empty one must be
/// present.
fn is_list_answer(topic: WireTopic, number: u32, field: Field) -> bool {
    match (topic, field) {
        (WireTopic::Presence, Field::Names) => number == action::presence::QUERY_ALL_RESPONSE,
        (WireTopic::Record, Field::Versions) => number == action::record::HEAD_RESPONSE_BULK,
        _ => false,
    }
}

fn write_field(
    field: Field,
    fields: &Fields<'_>,
    dialect: Dialect,
    is_answer: bool,
    sink: &mut impl Sink,
) {
    match field {
        Field::Action => {}
        Field::Data if is_parsed(fields, dialect) => {
            if let Some(data) = fields.data {
                sink.extend(b",\"parsedData\":");
                sink.extend(data.as_bytes());
            }
        }
        Field::Names => {
            if is_answer || !fields.names.is_empty() {
                member(field, sink);
                write_names(&fields.names, sink);
            }
        }
        Field::Except => {
            if !fields.except.is_empty() {
                member(field, sink);
                write_names(&fields.except, sink);
            }
        }
        Field::Session => {
            if let Some(session) = fields.session {
                member(field, sink);
                literal(&format_session(session), sink);
            }
        }
        Field::Versions => {
            if is_answer || !fields.versions.is_empty() {
                member(field, sink);
                write_versions(&fields.versions, sink);
            }
        }
        Field::IsError
        | Field::IsAck
        | Field::IsWriteAck
        | Field::Batches
        | Field::Existed
        | Field::IsLocal
        | Field::Jumps => {
            if let Some(flag) = fields.flag(field) {
                member(field, sink);
                sink.extend(if flag { b"true" } else { b"false" });
            }
        }
        Field::Version
        | Field::SeenVersion
        | Field::OriginalTopic
        | Field::OriginalAction
        | Field::Only
        | Field::Count
        | Field::Timeout
        | Field::Missed => {
            if let Some(number) = number(fields, field) {
                member(field, sink);
                decimal(number, sink);
            }
        }
        Field::Positions => {
            if !fields.positions.is_empty() {
                member(field, sink);
                write_positions(&fields.positions, sink);
            }
        }
        Field::Epoch | Field::Offset => {
            let number = match field {
                Field::Epoch => fields.epoch,
                _ => fields.offset,
            };
            if let Some(number) = number {
                member(field, sink);
                digits(number, sink);
            }
        }
        Field::Trace => {
            if let Some(trace) = &fields.trace {
                member(field, sink);
                literal(traceparent::format(trace).as_str(), sink);
            }
        }
        Field::Bytes => {
            if let Some(bytes) = fields.bytes {
                member(field, sink);
                literal(&STANDARD.encode(bytes), sink);
            }
        }
        Field::Attachments => {
            if !fields.attachments.is_empty() {
                member(field, sink);
                write_attachments(&fields.attachments, sink);
            }
        }
        Field::Incarnation => {
            if let Some(incarnation) = fields.incarnation {
                member(field, sink);
                literal(&incarnation.to_string(), sink);
            }
        }
        _ => {
            if let Some(text) = fields.text(field) {
                member(field, sink);
                literal(text, sink);
            }
        }
    }
}

/// Whether the payload is written as a value. A server's payload was validated on arrival. A client's was not, and
/// deepstream's client passes the text of an error on unchanged.
fn is_parsed(fields: &Fields<'_>, dialect: Dialect) -> bool {
    dialect != Dialect::Server && fields.is_error != Some(true)
}

fn number(fields: &Fields<'_>, field: Field) -> Option<i64> {
    match field {
        Field::Version => fields.version.map(i64::from),
        Field::SeenVersion => fields.seen_version.map(i64::from),
        Field::OriginalTopic => fields.original_topic.map(i64::from),
        Field::OriginalAction => fields.original_action.map(i64::from),
        Field::Only => fields.only.map(i64::from),
        Field::Missed => fields.missed.map(i64::from),
        Field::Count => fields.count.map(i64::from),
        Field::Timeout => fields.timeout.map(i64::from),
        _ => None,
    }
}

fn write_names(names: &[&str], sink: &mut impl Sink) {
    sink.push(b'[');
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            sink.push(b',');
        }
        literal(name, sink);
    }
    sink.push(b']');
}

fn write_attachments(attachments: &[&[u8]], sink: &mut impl Sink) {
    sink.push(b'[');
    for (index, bytes) in attachments.iter().enumerate() {
        if index > 0 {
            sink.push(b',');
        }
        literal(&STANDARD.encode(bytes), sink);
    }
    sink.push(b']');
}

fn write_versions(versions: &[(&str, i32)], sink: &mut impl Sink) {
    sink.push(b'{');
    for (index, (name, version)) in versions.iter().enumerate() {
        if index > 0 {
            sink.push(b',');
        }
        literal(name, sink);
        sink.push(b':');
        decimal((*version).into(), sink);
    }
    sink.push(b'}');
}

/// A list of objects, in the order of the names.
fn write_positions(positions: &[(&str, Option<Position>)], sink: &mut impl Sink) {
    sink.push(b'[');
    for (index, (name, position)) in positions.iter().enumerate() {
        if index > 0 {
            sink.push(b',');
        }
        sink.extend(b"{\"name\":");
        literal(name, sink);
        if let Some(position) = position {
            member(Field::Epoch, sink);
            digits(position.epoch, sink);
            member(Field::Offset, sink);
            digits(position.offset, sink);
        }
        sink.push(b'}');
    }
    sink.push(b']');
}

/// The name of a member after the first, and its colon.
fn member(field: Field, sink: &mut impl Sink) {
    sink.extend(b",\"");
    sink.extend(name(field).as_bytes());
    sink.extend(b"\":");
}

fn literal(text: &str, sink: &mut impl Sink) {
    sink.push(b'"');
    escaped(text).for_each(|piece| sink.extend(piece.as_bytes()));
    sink.push(b'"');
}

fn decimal(number: i64, sink: &mut impl Sink) {
    if number < 0 {
        sink.push(b'-');
    }
    digits(number.unsigned_abs(), sink);
}

fn digits(number: u64, sink: &mut impl Sink) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    sink.extend(&digits[first..]);
}
