//! Packets as `socket.io-msgpack-parser` writes them: a map of MessagePack in one binary message, with its binary values inside.

use tidewire_core::attachments::{Attachment, Attachments};

use super::message_pack::{self, Reader, Unreadable, Written};
use super::packet::{Packet, PacketType};
use super::{ForeignPayload, violation};

/// The name of the format in errors.
const FORMAT: &str = "Socket.IO packet in MessagePack";
/// The member that names the namespace. In the packets of a session with a name it is the last one, so that it can be appended.
const NAMESPACE: &str = "nsp";

/// A packet that was read. Binary values are attachments.
#[derive(Debug)]
pub struct Unpacked {
    packet_type: PacketType,
    namespace: Box<str>,
    ack: Option<Box<str>>,
    data: Option<Box<str>>,
    attachments: Vec<Attachment>,
}

impl Unpacked {
    /// Reads a message and checks the form of its packet.
    pub fn read(bytes: &[u8]) -> Result<Self, ForeignPayload> {
        Self::parse(bytes).map_err(|unreadable| match unreadable {
            Unreadable::At(offset) => ForeignPayload::Malformed {
                format: FORMAT,
                offset,
            },
            Unreadable::TooManyBinaries => violation("an event may have 10 binary values"),
            Unreadable::Placeholder => {
                violation("an event with binary values must not have a placeholder")
            }
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(bytes);
        let (mut packet_type, mut namespace, mut ack, mut data) = (None, None, None, None);
        for _ in 0..reader.map()? {
            // Of equal members the last one counts, as in JavaScript. The data can't be repeated, because their binary values are counted.
            match reader.string()? {
                "type" => packet_type = reader.whole()?,
                NAMESPACE => namespace = Some(reader.string()?),
                "id" => ack = reader.whole()?,
                "data" if data.is_none() && reader.binaries() == 0 => {
                    let mut text = String::new();
                    if reader.json(&mut text)? == Written::Value {
                        data = Some(text);
                    }
                }
                "data" => return Err(reader.here()),
                _ => reader.skip()?,
            }
        }
        let end = reader.here();
        if !reader.is_at_end() {
            return Err(end);
        }
        let packet_type = match packet_type {
            Some(0) => PacketType::Connect,
            Some(1) => PacketType::Disconnect,
            Some(2) => PacketType::Event,
            Some(3) => PacketType::Ack,
            Some(4) => PacketType::ConnectError,
            _ => return Err(end),
        };
        let unpacked = Self {
            packet_type,
            namespace: namespace.ok_or(end)?.into(),
            ack: ack.map(|number| number.to_string().into()),
            data: data.map(Into::into),
            attachments: reader.into_attachments()?,
        };
        match unpacked.packet().is_valid() {
            true => Ok(unpacked),
            false => Err(end),
        }
    }

    /// The packet, as it would be without MessagePack.
    pub fn packet(&self) -> Packet<'_> {
        Packet {
            packet_type: self.packet_type,
            attachments: self.attachments.len(),
            namespace: &self.namespace,
            ack: self.ack.as_deref(),
            data: self.data.as_deref(),
        }
    }

    /// Its binary values.
    pub fn attachments(&self) -> Option<Attachments> {
        Attachments::new(self.attachments.iter().cloned())
    }
}

/// Appends a packet. Its attachments are the binary values. [`put_in_namespace`] completes a packet of a session with a name.
pub fn write(packet: &Packet<'_>, attachments: &[&[u8]], is_named: bool, out: &mut Vec<u8>) {
    let members = 2 + u8::from(packet.data.is_some()) + u8::from(packet.ack.is_some());
    message_pack::write_small_map(members, out);
    message_pack::write_string("type", out);
    message_pack::write_unsigned(packet.packet_type as u64, out);
    if let Some(data) = packet.data {
        message_pack::write_string("data", out);
        message_pack::write_json(data, attachments, out);
    }
    // The digits were checked when a client or a backend sent them.
    if let Some(number) = packet.ack.and_then(|digits| digits.parse().ok()) {
        message_pack::write_string("id", out);
        message_pack::write_unsigned(number, out);
    }
    if !is_named {
        put_in_namespace(packet.namespace, out);
    }
}

/// Appends the member that a packet of a session with a name lacks.
pub fn put_in_namespace(namespace: &str, out: &mut Vec<u8>) {
    message_pack::write_string(NAMESPACE, out);
    message_pack::write_string(namespace, out);
}

/// Bytes of that member.
pub fn namespace_bytes(namespace: &str) -> usize {
    let mut member = Vec::new();
    put_in_namespace(namespace, &mut member);
    member.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::vectors;
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
        digits.map(|pair| byte(pair).expect("digits")).collect()
    }

    /// JSON without the binary values, each of which is its placeholder.
    fn placeholders(value: &Value, attachments: &mut Vec<Vec<u8>>) -> Value {
        match value {
            Value::Object(members) => match members.get("$hex").and_then(Value::as_str) {
                Some(digits) => {
                    attachments.push(hex(digits));
                    serde_json::json!({"_placeholder": true, "num": attachments.len() - 1})
                }
                None => members
                    .iter()
                    .map(|(key, value)| (key.clone(), placeholders(value, attachments)))
                    .collect(),
            },
            Value::Array(items) => {
                let items = items.iter();
                items.map(|item| placeholders(item, attachments)).collect()
            }
            other => other.clone(),
        }
    }

    #[test]
    fn packets_of_the_reference_are_read_and_written() {
        let vectors = vectors();
        let cases = vectors["msgpack"].as_array().expect("cases");
        assert_eq!(cases.len(), 7);
        for vector in cases {
            let id = vector["id"].as_str().expect("an id");
            let bytes = hex(vector["hex"].as_str().expect("digits"));
            let unpacked = Unpacked::read(&bytes).expect(id);
            let (packet, expected) = (unpacked.packet(), &vector["packet"]);
            let mut attachments = Vec::new();
            let data = placeholders(&expected["data"], &mut attachments);
            let read = packet
                .data
                .map(|data| serde_json::from_str(data).expect("JSON"));
            assert_eq!(packet.packet_type as u64, expected["type"], "{id}");
            assert_eq!(packet.namespace, expected["nsp"], "{id}");
            assert_eq!(read.unwrap_or(Value::Null), data, "{id}");
            let ack = packet.ack.map_or(Value::Null, |digits| {
                digits.parse::<u64>().expect("digits").into()
            });
            assert_eq!(ack, expected["id"], "{id}");
            let found: Vec<&[u8]> = unpacked.attachments.iter().map(|it| &**it).collect();
            assert_eq!(found, attachments, "{id}");
            let mut written = Vec::new();
            write(&packet, &found, false, &mut written);
            let again = Unpacked::read(&written).expect(id);
            assert_eq!(again.packet(), packet, "{id}");
            // Only the options and the order of the members differ from the reference.
            let lacks_options = expected.get("options").is_none();
            assert_eq!(written.len() == bytes.len(), lacks_options, "{id}");
        }
    }

    #[test]
    fn a_packet_has_the_form_of_one_in_text() {
        let read = |json: Value| {
            let mut bytes = Vec::new();
            message_pack::write_json(&json.to_string(), &[], &mut bytes);
            Unpacked::read(&bytes).is_ok()
        };
        for (packet, is_valid) in [
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": ["a"]}),
                true,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/a", "data": ["a"], "id": 9_007_199_254_740_991_u64, "x": [{}]}),
                true,
            ),
            (serde_json::json!({"type": 1, "nsp": "/"}), true),
            (serde_json::json!({"type": 0, "nsp": "/"}), true),
            (
                serde_json::json!({"type": 3, "nsp": "/", "data": [], "id": 0}),
                true,
            ),
            (
                serde_json::json!({"type": 3, "nsp": "/", "data": {}, "id": 0}),
                false,
            ),
            (serde_json::json!({"type": 1, "nsp": "/", "data": 1}), false),
            (
                serde_json::json!({"type": 0, "nsp": "/", "data": []}),
                false,
            ),
            (
                serde_json::json!({"type": 0, "nsp": "/", "data": null}),
                false,
            ),
            (
                serde_json::json!({"type": 5, "nsp": "/", "data": ["a"]}),
                false,
            ),
            (
                serde_json::json!({"type": "2", "nsp": "/", "data": ["a"]}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": []}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": ["connect"]}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "a", "data": ["a"]}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/a,b", "data": ["a"]}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": format!("/{}", "a".repeat(256)), "data": ["a"]}),
                false,
            ),
            (serde_json::json!({"type": 2, "data": ["a"]}), false),
            (serde_json::json!({"nsp": "/", "data": ["a"]}), false),
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": ["a"], "id": -1}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": ["a"], "id": 1.5}),
                false,
            ),
            (
                serde_json::json!({"type": 2, "nsp": "/", "data": ["a"], "id": 99_999_999_999_999_999_u64}),
                false,
            ),
            (serde_json::json!([2]), false),
        ] {
            assert_eq!(read(packet.clone()), is_valid, "{packet}");
        }
    }

    #[test]
    fn an_event_has_ten_binary_values() {
        let event = |count: usize, member: &str| {
            let mut bytes = hex("83a47479706502a36e7370a12fa464617461");
            bytes.extend([0x93, 0xa1, b'x', 0xdc, 0, count as u8]);
            for number in 0..count {
                bytes.extend([0xc4, 1, number as u8]);
            }
            bytes.push(0x81);
            message_pack::write_string(member, &mut bytes);
            bytes.push(0xc3);
            Unpacked::read(&bytes)
        };
        assert_eq!(event(10, "a").expect("an event").packet().attachments, 10);
        let refused = event(11, "a").expect_err("too many");
        assert_eq!(refused, violation("an event may have 10 binary values"));
        assert!(event(0, "_placeholder").is_ok(), "no reader replaces it");
        assert!(event(1, "_placeholder").is_err());
    }

    #[test]
    fn no_beginning_of_a_packet_is_a_packet() {
        let bytes = hex("84a2696407a47479706503a46461746192cd0105c4020102a36e7370a12f");
        for end in 0..bytes.len() {
            assert!(Unpacked::read(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Unpacked::read(&bytes).is_ok());
        assert!(Unpacked::read(&[&bytes[..], &[0xc0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(rest in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Unpacked::read(&rest);
            let mut bytes = hex("83a47479706502a36e7370a12fa464617461");
            bytes.extend(rest);
            let _ = Unpacked::read(&bytes);
        }
    }
}
