//! Every message of `spec/vectors/deepstream`, both ways: through the exact fields and through the
//! one `Message`. What Tidewire writes differently on purpose is listed in [`as_tidewire_writes`].

use std::borrow::Cow;

use crate::hex::from_hex;
use serde::{Deserialize, Deserializer};
use tidewire_core::binary::from_base64;
use tidewire_core::message::{Message, Position};
use tidewire_wire::frame::websocket::{Decoded, Decoder, Event, Role};
use tidewire_wire::protocol::deepstream::fields::{Envelope, Fields, WireTopic};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};
use tidewire_wire::traceparent;

/// As deepstream's own codec writes them.
const VECTORS: &str = include_str!("../../../../spec/vectors/deepstream/messages.json");
/// What Tidewire adds.
const ADDITIONS: &str = include_str!("../../../../spec/vectors/deepstream/additions.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    direction: String,
    hex: String,
    topic_number: u32,
    action_number: u32,
    fields: VectorFields,
}

/// The names of `fields` in the file, as in the protocol.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VectorFields {
    data: Option<String>,
    correlation_id: Option<String>,
    is_error: Option<bool>,
    is_ack: Option<bool>,
    name: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    subscription: Option<String>,
    original_action: Option<u32>,
    is_write_ack: Option<bool>,
    path: Option<String>,
    version: Option<i32>,
    #[serde(default)]
    versions: serde_json::Map<String, serde_json::Value>,
    url: Option<String>,
    protocol_version: Option<String>,
    sdk_version: Option<String>,
    sdk_type: Option<String>,
    batches: Option<bool>,
    jumps: Option<bool>,
    missed: Option<u32>,
    epoch: Option<u64>,
    offset: Option<u64>,
    #[serde(default)]
    positions: Vec<VectorPosition>,
    traceparent: Option<String>,
    content_type: Option<String>,
    #[serde(default, deserialize_with = "bytes_of")]
    base64: Option<Vec<u8>>,
    #[serde(default)]
    attachments: Vec<VectorBytes>,
    incarnation: Option<u64>,
    only: Option<u32>,
    existed: Option<bool>,
    key: Option<String>,
    seen_version: Option<i32>,
    requestor_name: Option<String>,
    requestor_data: Option<String>,
}

/// Bytes whose form in a vector is base64.
#[derive(Deserialize)]
#[serde(transparent)]
struct VectorBytes(#[serde(deserialize_with = "bytes_of")] Option<Vec<u8>>);

fn bytes_of<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Vec<u8>>, D::Error> {
    Ok(from_base64(&String::deserialize(text)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorPosition {
    name: String,
    epoch: Option<u64>,
    offset: Option<u64>,
}

impl VectorPosition {
    fn entry(&self) -> (&str, Option<Position>) {
        let position = self.epoch.zip(self.offset);
        let position = position.map(|(epoch, offset)| Position { epoch, offset });
        (&self.name, position)
    }
}

impl Vector {
    fn bytes(&self) -> Vec<u8> {
        from_hex(&self.hex)
    }

    fn topic(&self) -> WireTopic {
        WireTopic::from_wire(self.topic_number).expect("a topic with fields")
    }

    /// The reader of this message.
    fn dialect(&self) -> Dialect {
        match self.direction.as_str() {
            "server->client" => Dialect::ClientWithPatchMulti,
            "client->server" => Dialect::Server,
            other => panic!("unknown direction {other}"),
        }
    }

    fn fields(&self) -> Fields<'_> {
        let fields = &self.fields;
        let version =
            |value: &serde_json::Value| value.as_i64().and_then(|value| i32::try_from(value).ok());
        Fields {
            action: self.action_number,
            data: fields.data.as_deref(),
            correlation: fields.correlation_id.as_deref(),
            is_error: fields.is_error,
            is_ack: fields.is_ack,
            name: fields.name.as_deref(),
            names: fields.names.iter().map(String::as_str).collect(),
            subscription: fields.subscription.as_deref(),
            original_topic: None,
            original_action: fields.original_action,
            is_write_ack: fields.is_write_ack,
            path: fields.path.as_deref(),
            version: fields.version,
            versions: fields
                .versions
                .iter()
                .map(|(name, value)| (name.as_str(), version(value).expect("a version")))
                .collect(),
            incarnation: fields.incarnation,
            only: fields.only,
            existed: fields.existed,
            key: fields.key.as_deref(),
            seen_version: fields.seen_version,
            url: fields.url.as_deref(),
            protocol_version: fields.protocol_version.as_deref(),
            sdk_version: fields.sdk_version.as_deref(),
            sdk_type: fields.sdk_type.as_deref(),
            batches: fields.batches,
            jumps: fields.jumps,
            missed: fields.missed,
            epoch: fields.epoch,
            offset: fields.offset,
            positions: fields.positions.iter().map(VectorPosition::entry).collect(),
            trace: fields
                .traceparent
                .as_deref()
                .and_then(traceparent::parse)
                .map(Box::new),
            content_type: fields.content_type.as_deref(),
            bytes: fields.base64.as_deref(),
            attachments: fields
                .attachments
                .iter()
                .map(|bytes| bytes.0.as_deref().expect("base64"))
                .collect(),
            requestor_name: fields.requestor_name.as_deref(),
            requestor_data: fields.requestor_data.as_deref(),
            ..Fields::default()
        }
    }
}

fn vectors() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = serde_json::from_str(VECTORS).expect("the vectors parse");
    assert_eq!(vectors.len(), 109);
    let additions: Vec<Vector> = serde_json::from_str(ADDITIONS).expect("the additions parse");
    vectors.extend(additions);
    vectors
}

/// The fields of a vector in Tidewire's encoding: it never writes an explicit `isWriteAck=false`, and INVALID_VERSION
/// is an error without the data of the refused write.
fn as_tidewire_writes<'a>(mut fields: Fields<'a>, name: &str) -> Fields<'a> {
    if fields.is_write_ack == Some(false) {
        fields.is_write_ack = None;
    }
    if name == "record invalid version" {
        fields.data = None;
        fields.is_error = Some(true);
    }
    fields
}

fn encode_fields(fields: &Fields<'_>, topic: WireTopic) -> Vec<u8> {
    let mut out = Vec::new();
    fields.encode_payload(topic, fields.measure(topic), &mut out);
    out
}

#[test]
fn fields_decode_and_encode_to_the_same_bytes() {
    for vector in vectors() {
        let bytes = vector.bytes();
        let envelope = Envelope::decode(&bytes).expect(&vector.name);
        assert_eq!(envelope.topic, vector.topic_number, "{}", vector.name);
        let fields = Fields::decode(vector.topic(), envelope.body).expect(&vector.name);
        assert_eq!(fields, vector.fields(), "{}", vector.name);
        assert_eq!(
            encode_fields(&fields, vector.topic()),
            bytes,
            "{}",
            vector.name
        );
    }
}

#[test]
fn messages_decode_and_encode_to_the_same_bytes() {
    let mut rewritten = Vec::new();
    for vector in vectors() {
        let bytes = vector.bytes();
        let message = Deepstream::decode(&bytes).expect(&vector.name);
        assert!(
            !matches!(message, Message::UnknownAction { .. }),
            "{}",
            vector.name
        );
        let expected = encode_fields(
            &as_tidewire_writes(vector.fields(), &vector.name),
            vector.topic(),
        );
        if expected != bytes {
            rewritten.push(vector.name.clone());
        }
        let mut encoded = Vec::new();
        Deepstream::encode(vector.dialect(), &message, &mut encoded);
        assert_eq!(encoded, expected, "{}", vector.name);
    }
    assert_eq!(
        rewritten,
        [
            "record update broadcast to another subscriber",
            "record patch broadcast",
            "record erase as broadcast (PATCH without data)",
            "record invalid version",
        ]
    );
}

#[test]
fn a_condition_that_is_not_known_makes_the_message_unreadable() {
    for (hex, what) in [
        (
            "1510051a11083e1a01373207626f6f6b732f31a80109",
            "a number of nothing",
        ),
        (
            "1510051a11083e1a01373207626f6f6b732f31a80103",
            "a state that is not told",
        ),
    ] {
        assert!(Deepstream::decode(&from_hex(hex)).is_err(), "{what}");
    }
}

#[test]
fn bytes_behind_the_envelope_are_ignored() {
    for vector in vectors() {
        let alone = vector.bytes();
        let mut followed = alone.clone();
        followed.extend_from_slice(b"\xff\xff");
        assert_eq!(
            Deepstream::decode(&followed),
            Deepstream::decode(&alone),
            "{}",
            vector.name
        );
    }
}

#[test]
fn every_cut_of_a_message_is_an_error() {
    for vector in vectors() {
        let bytes = vector.bytes();
        for end in 0..bytes.len() {
            assert!(
                Deepstream::decode(&bytes[..end]).is_err(),
                "{} cut at {end}",
                vector.name
            );
        }
    }
}

#[test]
fn frames_carry_the_payload_of_the_message() {
    for vector in vectors() {
        let bytes = vector.bytes();
        let message = Deepstream::decode(&bytes).expect(&vector.name);
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        Deepstream::encode(Dialect::Server, &message, &mut payload);
        Deepstream::encode_masked_frame(&message, [0xA1, 0xB2, 0xC3, 0xD4], &mut frame);
        assert_eq!(
            only_message(Role::Server, &mut frame),
            payload,
            "{}",
            vector.name
        );

        payload.clear();
        frame.clear();
        Deepstream::encode(Dialect::Client, &message, &mut payload);
        Deepstream::encode_frame(Dialect::Client, &message, &mut frame);
        assert_eq!(
            only_message(Role::Client, &mut frame),
            payload,
            "{}",
            vector.name
        );
    }
}

/// The payload of the one message that `frame` consists of.
fn only_message(role: Role, frame: &mut [u8]) -> Vec<u8> {
    let length = frame.len();
    let Decoded { consumed, event } = Decoder::new(role).decode(frame, length).expect("a frame");
    assert_eq!(consumed, length);
    match event {
        Event::Message {
            payload: Cow::Borrowed(payload),
            ..
        } => payload.to_vec(),
        other => panic!("not a message in one frame: {other:?}"),
    }
}
