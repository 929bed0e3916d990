//! Packets of Socket.IO 5: `TYPE[ATTACHMENTS-][NAMESPACE,][ACK][JSON]`, without the digit of the Engine.IO message.

use smallvec::SmallVec;
use tidewire_core::attachments::ATTACHMENTS_MAX;
use tidewire_core::json::{self, JsonKind, JsonLimits, Literal};

/// Bytes of the name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 256;
/// Digits of the number of an acknowledgement. JavaScript can't count further.
const ACK_DIGITS_MAX: usize = 16;
/// Levels of JSON in a packet. The limits of the configuration are lower by default.
pub const NESTING_MAX: usize = 128;
/// Events that each side fires itself. The parsers of both sides refuse packets with these names.
const RESERVED: [&str; 6] = [
    "connect",
    "connect_error",
    "disconnect",
    "disconnecting",
    "newListener",
    "removeListener",
];

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// The client joins a namespace, or the server confirms it.
    Connect,
    /// One side leaves a namespace.
    Disconnect,
    /// An event, also one with attachments.
    Event,
    /// An acknowledgement, also one with attachments.
    Ack,
    /// The server refuses [`PacketType::Connect`].
    ConnectError,
}

/// A packet, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub packet_type: PacketType,
    /// The number of binary messages that follow.
    pub attachments: usize,
    /// `/` is the default one.
    pub namespace: &'a str,
    /// The number of the acknowledgement, as decimal digits.
    pub ack: Option<&'a str>,
    /// JSON text.
    pub data: Option<&'a str>,
}

/// The text is not a packet. It has the position of the part that can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPacket(pub usize);

impl<'a> Packet<'a> {
    /// A packet of the default namespace without attachments.
    pub fn new(packet_type: PacketType, ack: Option<&'a str>, data: Option<&'a str>) -> Self {
        Self {
            packet_type,
            attachments: 0,
            namespace: "/",
            ack,
            data,
        }
    }

    /// Parses a packet and checks the form of its payload.
    pub fn parse(text: &'a str) -> Result<Self, MalformedPacket> {
        let at = |rest: &str| MalformedPacket(text.len() - rest.len());
        let (packet_type, has_attachments) = match text.as_bytes().first() {
            Some(b'0') => (PacketType::Connect, false),
            Some(b'1') => (PacketType::Disconnect, false),
            Some(b'2') => (PacketType::Event, false),
            Some(b'3') => (PacketType::Ack, false),
            Some(b'4') => (PacketType::ConnectError, false),
            Some(b'5') => (PacketType::Event, true),
            Some(b'6') => (PacketType::Ack, true),
            _ => return Err(MalformedPacket(0)),
        };
        let mut rest = &text[1..];
        let mut attachments = 0;
        if has_attachments {
            let (digits, after) = split_digits(rest);
            attachments = digits.parse().map_err(|_| at(rest))?;
            if attachments == 0 || attachments > ATTACHMENTS_MAX {
                return Err(at(rest));
            }
            rest = after.strip_prefix('-').ok_or(at(after))?;
        }
        let mut namespace = "/";
        if rest.starts_with('/') {
            (namespace, rest) = rest.split_once(',').unwrap_or((rest, ""));
            if namespace.len() > NAMESPACE_BYTES_MAX {
                return Err(at(rest));
            }
        }
        let (digits, data) = split_digits(rest);
        if digits.len() > ACK_DIGITS_MAX {
            return Err(at(rest));
        }
        let packet = Self {
            packet_type,
            attachments,
            namespace,
            ack: (!digits.is_empty()).then_some(digits),
            data: (!data.is_empty()).then_some(data),
        };
        match packet.is_well_formed() {
            true => Ok(packet),
            false => Err(at(data)),
        }
    }

    /// Whether the text of the packet would be one that [`Packet::parse`] reads so.
    pub fn is_valid(&self) -> bool {
        let name = self.namespace;
        let has_name = name.starts_with('/') && !name.contains(',');
        let digits = self.ack.map_or(0, str::len);
        has_name
            && name.len() <= NAMESPACE_BYTES_MAX
            && digits <= ACK_DIGITS_MAX
            && self.is_well_formed()
    }

    fn is_well_formed(&self) -> bool {
        let Some(data) = self.data else {
            return match self.packet_type {
                // The reference accepts an event without a payload, which no handler can match.
                PacketType::Connect | PacketType::Disconnect => true,
                PacketType::Event => self.attachments == 0,
                PacketType::Ack | PacketType::ConnectError => false,
            };
        };
        let limits = JsonLimits {
            array_gap_max: usize::MAX,
            nesting_max: NESTING_MAX,
            bytes_max: usize::MAX,
        };
        let Ok(kind) = json::check(data, limits) else {
            return false;
        };
        let has_form = match self.packet_type {
            PacketType::Connect => kind == JsonKind::Object,
            PacketType::ConnectError => matches!(kind, JsonKind::Object | JsonKind::String),
            PacketType::Disconnect => false,
            PacketType::Event => is_event(data),
            PacketType::Ack => kind == JsonKind::Array,
        };
        has_form && (self.attachments == 0 || json::has_placeholders(data, self.attachments))
    }

    /// Appends the packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        let digit = match (self.packet_type, self.attachments) {
            (PacketType::Connect, _) => b'0',
            (PacketType::Disconnect, _) => b'1',
            (PacketType::Event, 0) => b'2',
            (PacketType::Ack, 0) => b'3',
            (PacketType::ConnectError, _) => b'4',
            (PacketType::Event, _) => b'5',
            (PacketType::Ack, _) => b'6',
        };
        out.push(digit);
        if self.attachments > 0 {
            out.extend_from_slice(self.attachments.to_string().as_bytes());
            out.push(b'-');
        }
        if self.namespace != "/" {
            out.extend_from_slice(self.namespace.as_bytes());
            out.push(b',');
        }
        for part in [self.ack, self.data].into_iter().flatten() {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// The place of the namespace in a message of Engine.IO with a packet of the server.
pub fn namespace_offset(message: &[u8]) -> usize {
    match message {
        [b'4', b'5' | b'6', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
            2 + digits.count() + 1
        }
        _ => 2,
    }
    .min(message.len())
}

/// Whether a checked JSON text is an event: an array that begins with its name.
pub fn is_event(data: &str) -> bool {
    let data = data.trim_ascii_start();
    if !data.starts_with('[') {
        return false;
    }
    let Some((_, first)) = json::entries(data).next() else {
        return false;
    };
    match Literal::scan(first) {
        Some(name) => name
            .text()
            .is_none_or(|name| !RESERVED.contains(&name.as_ref())),
        // A name may be a number.
        None => first.starts_with(|first: char| first == '-' || first.is_ascii_digit()),
    }
}

/// Whether a checked JSON text is the placeholder of the first attachment, and nothing else.
pub fn is_placeholder(data: &str) -> bool {
    let mut members: SmallVec<[_; 3]> = json::entries(data)
        .take(3)
        .map(|(key, value)| (key.map_or("", |key| key.inner), value))
        .collect();
    members.sort_unstable();
    members[..] == [("_placeholder", "true"), ("num", "0")]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::protocol::socketio::vectors;

    fn type_name(packet: &Packet<'_>) -> &'static str {
        match packet.packet_type {
            PacketType::Connect => "CONNECT",
            PacketType::Disconnect => "DISCONNECT",
            PacketType::Event => "EVENT",
            PacketType::Ack => "ACK",
            PacketType::ConnectError => "CONNECT_ERROR",
        }
    }

    /// The data with the attachments in place of their placeholders.
    fn filled(data: Value, attachments: &[Value]) -> Value {
        match data {
            Value::Array(items) => items
                .into_iter()
                .map(|item| filled(item, attachments))
                .collect(),
            Value::Object(members) if members.get("_placeholder") == Some(&Value::Bool(true)) => {
                let number = members["num"].as_u64().expect("a number") as usize;
                serde_json::json!({ "$hex": attachments[number]["hex"] })
            }
            Value::Object(members) => Value::Object(
                members
                    .into_iter()
                    .map(|(key, value)| (key, filled(value, attachments)))
                    .collect(),
            ),
            other => other,
        }
    }

    fn check(id: &str, text: &str, expected: &Value, attachments: &[Value]) {
        let packet = Packet::parse(text).unwrap_or_else(|error| panic!("{id}: {error:?}"));
        let name = expected["type"].as_str().expect("a type");
        assert_eq!(
            type_name(&packet),
            name.trim_start_matches("BINARY_"),
            "{id}"
        );
        assert_eq!(packet.namespace, expected["nsp"], "{id}");
        assert_eq!(packet.attachments, attachments.len(), "{id}");
        let ack = packet
            .ack
            .map(|ack| ack.parse::<u64>().expect("few digits"));
        assert_eq!(ack, expected["ack_id"].as_u64(), "{id}");
        let data: Option<Value> = packet
            .data
            .map(|data| serde_json::from_str(data).expect("checked JSON"));
        let data = data.map(|data| match packet.attachments {
            0 => data,
            _ => filled(data, attachments),
        });
        assert_eq!(data.as_ref(), expected.get("data"), "{id}");
    }

    #[test]
    fn packets_of_the_reference_are_read_and_written() {
        let vectors = vectors();
        let packets = vectors["packets"].as_array().expect("packets");
        assert_eq!(packets.len(), 33);
        for vector in packets {
            let id = vector["id"].as_str().expect("an id");
            let frames = vector["ws_frames"].as_array().expect("frames");
            let text = frames[0].as_str().expect("text");
            let text = text.strip_prefix('4').expect("a message");
            check(id, text, &vector["packet"], &frames[1..]);
            let mut written = Vec::new();
            Packet::parse(text).expect("read").write(&mut written);
            assert_eq!(written, text.as_bytes(), "{id}");
        }
    }

    #[test]
    fn packets_that_no_encoder_writes_are_read_too() {
        let vectors = vectors();
        let packets = vectors["decode_only"].as_array().expect("packets");
        assert_eq!(packets.len(), 9);
        for vector in packets {
            let id = vector["id"].as_str().expect("an id");
            // The reference reads the blank as a number. A stricter server may close.
            if id == "json-whitespace" {
                continue;
            }
            let frames = vector["frames"].as_array().expect("frames");
            check(
                id,
                frames[0].as_str().expect("text"),
                &vector["packet"],
                &frames[1..],
            );
        }
    }

    #[test]
    fn hostile_packets_are_refused() {
        let deep = format!(
            r#"2["x",{}{}]"#,
            "[".repeat(NESTING_MAX),
            "]".repeat(NESTING_MAX)
        );
        let long = format!("0/{},", "n".repeat(NAMESPACE_BYTES_MAX));
        let number = format!(r#"2{}["x"]"#, "1".repeat(ACK_DIGITS_MAX + 1));
        for text in [
            deep.as_str(),
            &long,
            &number,
            r#"511-["x"]"#,
            "599999999999999999999-[]",
        ] {
            assert!(Packet::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_placeholder_is_an_object_with_two_members() {
        for text in [
            r#"{"_placeholder":true,"num":0}"#,
            r#"{ "num" : 0, "_placeholder": true }"#,
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in [
            r#"{"_placeholder":true,"num":1}"#,
            r#"{"_placeholder":true}"#,
            r#"{"_placeholder":true,"num":0,"a":1}"#,
            r#"{"_placeholder":false,"num":0}"#,
            r#"[{"_placeholder":true,"num":0}]"#,
            r#"["_placeholder"]"#,
            "true",
        ] {
            assert!(!is_placeholder(text), "{text}");
        }
    }

    #[test]
    fn no_beginning_of_a_packet_is_read_as_a_shorter_event() {
        let text = r#"51-/admin,13["été",{"_placeholder":true,"num":0}]"#;
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(Packet::parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        assert!(Packet::parse(text).is_ok());
    }
}
