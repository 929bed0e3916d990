//! The forms of packets on a connection: as text with attachments, or in MessagePack, which the first packet of a client decides; each for the
//! main session and for a session with a name.

use smallvec::SmallVec;
use tidewire_core::attachments::Attachments;
use tidewire_core::message::{Event, Message};

use super::packed;
use super::packet::{self, Packet};
use crate::frame::websocket::{self, Opcode};
use crate::protocol::Variant;

/// The form of the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The main session of a client with the default parser.
    Text,
    /// A session with a name of such a client.
    NamedText,
    /// The main session of a client with `socket.io-msgpack-parser`.
    MessagePack,
    /// A session with a name of such a client.
    NamedMessagePack,
}

/// The attachments of a message, borrowed.
pub type Borrowed<'m> = SmallVec<[&'m [u8]; 2]>;

impl Form {
    const ALL: [Self; 4] = [
        Self::Text,
        Self::NamedText,
        Self::MessagePack,
        Self::NamedMessagePack,
    ];
    /// The number of forms.
    pub const COUNT: u8 = Self::ALL.len() as u8;

    /// The form with the number of a variant.
    pub fn of(variant: Variant) -> Self {
        Self::ALL[usize::from(variant.0)]
    }

    /// Its number.
    pub fn variant(self) -> Variant {
        Variant(self as u8)
    }

    /// The form of the sessions with a name on the same connection.
    pub fn named(self) -> Self {
        match self {
            Self::Text | Self::NamedText => Self::NamedText,
            Self::MessagePack | Self::NamedMessagePack => Self::NamedMessagePack,
        }
    }

    /// Whether it is the form of a session with a name.
    pub fn is_named(self) -> bool {
        self.named() == self
    }

    /// The frames of a packet without attachments, in its own namespace.
    pub fn frame(self, packet: &Packet<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(packet, &[], &mut out);
        out
    }

    /// Appends the frames of a packet.
    pub fn write(self, packet: &Packet<'_>, attachments: &[&[u8]], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        self.write_payload(packet, attachments, &mut payload);
        match self {
            Self::Text | Self::NamedText => {
                websocket::encode(Opcode::Text, &payload, out);
                for bytes in attachments {
                    websocket::encode(Opcode::Binary, bytes, out);
                }
            }
            Self::MessagePack | Self::NamedMessagePack => {
                websocket::encode(Opcode::Binary, &payload, out);
            }
        }
    }

    /// Appends the first message of a packet without a frame.
    pub fn write_payload(self, packet: &Packet<'_>, attachments: &[&[u8]], out: &mut Vec<u8>) {
        match self {
            Self::Text | Self::NamedText => {
                out.push(b'4');
                packet.write(out);
            }
            Self::MessagePack | Self::NamedMessagePack => {
                packed::write(packet, attachments, self.is_named(), out);
            }
        }
    }

    /// Appends frames of a session with a name, in which the packets lack their namespace, with the namespace.
    pub fn put_in_namespace(self, namespace: &str, mut frames: &[u8], out: &mut Vec<u8>) {
        // The server encoded these frames itself, so they are complete.
        while let Some(bytes) = websocket::server_frame_bytes(frames) {
            let (frame, rest) = frames.split_at(bytes);
            frames = rest;
            match (self.named(), websocket::server_payload(frame)) {
                (Self::NamedText, Some((Opcode::Text, packet))) => {
                    let (start, end) = packet.split_at(packet::namespace_offset(packet));
                    websocket::encode_header(Opcode::Text, packet.len() + namespace.len() + 1, out);
                    for part in [start, namespace.as_bytes(), b",", end] {
                        out.extend_from_slice(part);
                    }
                }
                (Self::NamedMessagePack, Some((Opcode::Binary, packet))) => {
                    let bytes = packet.len() + packed::namespace_bytes(namespace);
                    websocket::encode_header(Opcode::Binary, bytes, out);
                    out.extend_from_slice(packet);
                    packed::put_in_namespace(namespace, out);
                }
                // An attachment belongs to the packet in front of it.
                _ => out.extend_from_slice(frame),
            }
        }
    }
}

/// The binary values of a message, by the numbers of their placeholders.
pub fn attachments_of<'m>(message: &'m Message<'_>) -> Borrowed<'m> {
    let attachments = match message {
        Message::Event(Event::Publication(publication)) => {
            if let Some(binary) = publication.binary() {
                return Borrowed::from_slice(&[binary.bytes()]);
            }
            publication.attachments()
        }
        Message::Backend(message) => message.attachments.as_ref(),
        _ => None,
    };
    let attachments = attachments.into_iter();
    attachments.flat_map(Attachments::iter).collect()
}
