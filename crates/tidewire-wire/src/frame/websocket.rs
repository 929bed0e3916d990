//! WebSocket frames, RFC 6455, for both roles. Contract: `spec/websocket.md`.
//!
//! This file has the types of both directions; [`decoder`] reads frames, [`encoder`] writes them, [`header`] has
//! their first bytes. It does not read the handshake's request. permessage-deflate is the only extension; its part is
//! in [`crate::frame::deflate`].

mod decoder;
mod encoder;
mod header;

use base64::Engine as _;
use sha1::{Digest, Sha1};
use thiserror::Error;

pub use decoder::{Decoded, Decoder, Event};
pub use encoder::{
    apply_mask, close_payload, encode, encode_header, encode_masked, encode_masked_with,
};
pub(crate) use encoder::{encode_deflated_header, encode_deflated_masked};
use header::Header;

/// Control frames carry at most this many bytes (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: usize = 125;

/// The role of this end of the connection. It decides whether incoming frames must be masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads masked frames, writes unmasked ones.
    Server,
    /// Reads unmasked frames, writes masked ones.
    Client,
}

/// Whether a message was announced as text or as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// UTF-8, checked.
    Text,
    /// Any bytes.
    Binary,
}

/// The four-bit frame type (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A further fragment of the current message.
    Continuation,
    /// A text message, or its first fragment.
    Text,
    /// A binary message, or its first fragment.
    Binary,
    /// The end of the stream.
    Close,
    /// A ping, answered with a pong.
    Ping,
    /// The answer to a ping, or an unsolicited heartbeat.
    Pong,
}

impl Opcode {
    fn from_wire(number: u8) -> Result<Self, FrameError> {
        match number {
            0x0 => Ok(Self::Continuation),
            0x1 => Ok(Self::Text),
            0x2 => Ok(Self::Binary),
            0x8 => Ok(Self::Close),
            0x9 => Ok(Self::Ping),
            0xA => Ok(Self::Pong),
            _ => Err(FrameError::Opcode),
        }
    }

    fn to_wire(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// A status code of a close frame (RFC 6455, section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The connection has served its purpose.
    pub const NORMAL: Self = Self(1000);
    /// The endpoint shuts down, such as a stopping server.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL: Self = Self(1002);
    /// The peer sent a kind of message that this endpoint does not accept.
    pub const UNSUPPORTED: Self = Self(1003);
    /// A text message that is not UTF-8, or a compressed one that can't be inflated.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// The peer violated a policy of this server: slow reader, rate, refused login.
    pub const POLICY: Self = Self(1008);
    /// A message above the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// The server met a condition that it can't handle.
    pub const INTERNAL: Self = Self(1011);
    /// The peer may reconnect later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// Whether a close frame may contain this code: 1000 to 1003, 1007 to 1014, 3000 to 4999.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(number))
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// Violations of the frame format by a peer. Each closes the connection with [`FrameError::close_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A reserved bit is set without a negotiated extension that uses it there.
    #[error("reserved bits set")]
    ReservedBits,
    /// An opcode without a meaning.
    #[error("unknown opcode")]
    Opcode,
    /// A client's frame without a mask.
    #[error("frame of a client is not masked")]
    Unmasked,
    /// A server's frame with a mask.
    #[error("frame of a server is masked")]
    Masked,
    /// A control frame that is fragmented.
    #[error("fragmented control frame")]
    ControlFragmented,
    /// A control frame of more than 125 bytes.
    #[error("control frame too long")]
    ControlTooLong,
    /// A 64-bit length with its highest bit set.
    #[error("frame length out of range")]
    Length,
    /// A continuation frame without an unfinished message.
    #[error("continuation without a message")]
    UnexpectedContinuation,
    /// A new message before the last fragment of another.
    #[error("new message inside a fragmented one")]
    ExpectedContinuation,
    /// A close frame with a one-byte payload or a code that must not be sent.
    #[error("invalid close frame")]
    CloseFrame,
    /// A text message or a close reason that is not UTF-8.
    #[error("text is not utf-8")]
    Utf8,
    /// A message longer than the limit, before or after it was inflated.
    #[error("message longer than the limit")]
    TooBig,
    /// A compressed message that can't be inflated.
    #[error("compressed message is malformed")]
    Deflate,
}

impl FrameError {
    /// The close code for this error.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::Utf8 | Self::Deflate => CloseCode::INVALID_PAYLOAD,
            Self::TooBig => CloseCode::TOO_BIG,
            _ => CloseCode::PROTOCOL,
        }
    }
}

/// The value of `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455, section 4.2.2).
#[must_use]
pub fn accept_key(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(hash.finalize())
}

/// Bytes of the first frame of a server, which is not compressed; `None` if it is incomplete.
#[must_use]
pub fn server_frame_bytes(frames: &[u8]) -> Option<usize> {
    let header = Header::decode(frames, Role::Client, false).ok()??;
    let bytes = header.bytes + header.payload_bytes;
    (bytes <= frames.len()).then_some(bytes)
}

/// The payload of a whole frame of a server, which is not compressed. `None` if it is not text.
#[must_use]
pub fn server_text(frame: &[u8]) -> Option<&[u8]> {
    let (opcode, payload) = server_payload(frame)?;
    (opcode == Opcode::Text).then_some(payload)
}

/// The opcode and payload of a whole frame of a server, which is not compressed.
#[must_use]
pub fn server_payload(frame: &[u8]) -> Option<(Opcode, &[u8])> {
    let header = Header::decode(frame, Role::Client, false).ok()??;
    Some((header.opcode, frame.get(header.bytes..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_key_is_that_of_the_rfc() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
