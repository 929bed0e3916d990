//! WebSocket frames, RFC 6455, for both roles. Contract: `spec/websocket.md`.
//!
//! The decoder works on whatever bytes the caller has and owns none of them, except the fragments of an
//! unfinished message. An unfragmented message is unmasked where it lies and handed out without a copy. The
//! handshake's request is not here. Of the extensions only permessage-deflate is spoken; its part is in
//! [`crate::frame::deflate`].

use std::borrow::Cow;

use base64::Engine as _;
use sha1::{Digest, Sha1};
use thiserror::Error;

use crate::frame::deflate::{Inflater, deflated_bytes_max};

/// Control frames carry at most this many bytes (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: usize = 125;

/// Longest header: two bytes, a 64-bit length, a mask key.
const HEADER_BYTES_MAX: usize = 14;

/// The first reserved bit: a compressed message begins (RFC 7692, section 7.2.2).
const DEFLATED: u8 = 0x40;

/// Which end of the connection this is. It decides whether incoming frames must be masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads masked frames, writes unmasked ones.
    Server,
    /// Reads unmasked frames, writes masked ones.
    Client,
}

/// Whether a message was announced as text or as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8, checked.
    Text,
    /// Any bytes.
    Binary,
}

/// The four-bit frame type (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A further fragment of the message that was begun.
    Continuation,
    /// A text message, or its first fragment.
    Text,
    /// A binary message, or its first fragment.
    Binary,
    /// The end of the stream.
    Close,
    /// A question that a pong answers.
    Ping,
    /// The answer, or an unasked proof of life.
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
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The endpoint goes away: a server that stops.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL: Self = Self(1002);
    /// The peer sent a kind of message that this endpoint does not take.
    pub const UNSUPPORTED: Self = Self(1003);
    /// A text message that is not UTF-8, or a compressed one that can't be inflated.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// The peer broke a policy of this server: slow reader, rate, refused login.
    pub const POLICY: Self = Self(1008);
    /// A message above the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// The server met a condition that it can't handle.
    pub const INTERNAL: Self = Self(1011);
    /// The peer may come back later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// A code that may stand in a close frame: 1000 to 1003, 1007 to 1014, 3000 to 4999.
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

/// What a peer can do wrong on the level of frames. Each ends the connection with [`FrameError::close_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A reserved bit is set, though no extension was agreed on that gives it a meaning there.
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
    /// A continuation frame where no message was begun.
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
    /// The code to close with.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::Utf8 | Self::Deflate => CloseCode::INVALID_PAYLOAD,
            Self::TooBig => CloseCode::TOO_BIG,
            _ => CloseCode::PROTOCOL,
        }
    }
}

/// What one call of [`Decoder::decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// Bytes at the start of the input that are done with. The caller drops them before the next call; also with
    /// [`Event::NeedMore`], where non-final fragments may have been taken.
    pub consumed: usize,
    /// The event.
    pub event: Event<'b>,
}

/// One event of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// A whole message, unmasked and inflated. Owned only if it came in fragments.
    Message {
        /// Text or binary.
        kind: Kind,
        /// Its bytes; UTF-8 if it is text.
        payload: Cow<'b, [u8]>,
    },
    /// To be answered with a pong of the same payload.
    Ping(&'b [u8]),
    /// Needs no answer.
    Pong(&'b [u8]),
    /// The peer's last frame; nothing after it is decoded. It is answered with a close frame of the same code.
    Close {
        /// The peer's code, if it gave one.
        code: Option<CloseCode>,
        /// The peer's reason, possibly empty.
        reason: &'b str,
    },
    /// Nothing can be handed out before the unconsumed input has grown.
    NeedMore {
        /// The length that the unconsumed input must reach, at most the message limit plus a header; 1 inside a text
        /// frame, which is taken as it comes.
        bytes: usize,
    },
}

/// The state of one direction of a connection. Two words while no message is in fragments.
#[derive(Debug)]
pub struct Decoder {
    /// The begun message, absent while idle.
    fragments: Option<Box<Fragments>>,
    role: Role,
    /// Whether permessage-deflate was agreed on.
    takes_deflated: bool,
}

#[derive(Debug)]
struct Fragments {
    kind: Kind,
    is_deflated: bool,
    bytes: Vec<u8>,
    /// Length of the prefix of `bytes` that is known to be UTF-8; used for text only.
    checked: usize,
    /// The text frame that is being taken in pieces.
    open: Option<OpenFrame>,
}

/// What is left of a frame whose header was taken.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    fin: bool,
    /// The mask key, turned to the next byte.
    mask: Option<[u8; 4]>,
    /// Payload bytes that are still to come, at least one.
    left: usize,
}

impl Decoder {
    /// A decoder for what the other end of `role` sends.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            fragments: None,
            role,
            takes_deflated: false,
        }
    }

    /// The same where permessage-deflate was agreed on: [`Decoder::decode_inflated`] takes compressed messages too.
    #[must_use]
    pub fn with_deflate(role: Role) -> Self {
        Self {
            takes_deflated: true,
            ..Self::new(role)
        }
    }

    /// Whether permessage-deflate was agreed on.
    #[must_use]
    pub fn has_deflate(&self) -> bool {
        self.takes_deflated
    }

    /// Whether a message is half received.
    #[must_use]
    pub fn is_inside_message(&self) -> bool {
        self.fragments.is_some()
    }

    /// Memory that the fragments of an unfinished message take.
    #[must_use]
    pub fn fragment_bytes(&self) -> usize {
        self.fragments
            .as_ref()
            .map_or(0, |fragments| fragments.bytes.len())
    }

    /// Takes the next event from the start of `input`. Frames that are not complete are left untouched, so the same
    /// bytes can be given again with more behind them; only text is taken piece by piece, because it has to be refused
    /// as soon as a byte shows that it is not UTF-8. A message may have at most `message_bytes_max` bytes, which is
    /// checked as soon as a header announces it.
    ///
    /// # Errors
    ///
    /// What the peer did wrong; the connection is to be closed and the decoder not to be used again.
    pub fn decode<'b>(
        &mut self,
        input: &'b mut [u8],
        message_bytes_max: usize,
    ) -> Result<Decoded<'b>, FrameError> {
        self.decode_with(input, message_bytes_max, None)
    }

    /// The same for a connection that may have agreed on permessage-deflate. The limit counts what a message has when
    /// it is inflated; it is refused as soon as it has more.
    ///
    /// # Errors
    ///
    /// As of [`Decoder::decode`].
    pub fn decode_inflated<'b>(
        &mut self,
        input: &'b mut [u8],
        message_bytes_max: usize,
        inflater: &'b mut Inflater,
    ) -> Result<Decoded<'b>, FrameError> {
        self.decode_with(input, message_bytes_max, Some(inflater))
    }

    fn decode_with<'b>(
        &mut self,
        input: &'b mut [u8],
        message_bytes_max: usize,
        inflater: Option<&'b mut Inflater>,
    ) -> Result<Decoded<'b>, FrameError> {
        let mut inflation = inflater.map(|inflater| Inflation {
            inflater,
            message_bytes_max,
        });
        let takes_deflated = self.takes_deflated && inflation.is_some();
        let mut consumed = 0;
        let mut rest = input;
        loop {
            if let Some(left) = self.left_of_frame() {
                if rest.is_empty() {
                    let event = Event::NeedMore { bytes: 1 };
                    return Ok(Decoded { consumed, event });
                }
                let (piece, behind) = rest.split_at_mut(left.min(rest.len()));
                rest = behind;
                consumed += piece.len();
                if let Some(event) = self.take_piece(piece, &mut inflation)? {
                    return Ok(Decoded { consumed, event });
                }
                continue;
            }
            let Some(header) = Header::decode(rest, self.role, takes_deflated)? else {
                let bytes = Header::bytes_needed(rest);
                return Ok(Decoded {
                    consumed,
                    event: Event::NeedMore { bytes },
                });
            };
            self.check(header, message_bytes_max)?;
            let frame_bytes = header.bytes + header.payload_bytes;
            if rest.len() < frame_bytes {
                if self.is_text(header) {
                    self.open_frame(header);
                    rest = &mut rest[header.bytes..];
                    consumed += header.bytes;
                    continue;
                }
                return Ok(Decoded {
                    consumed,
                    event: Event::NeedMore { bytes: frame_bytes },
                });
            }
            let (frame, behind) = rest.split_at_mut(frame_bytes);
            rest = behind;
            consumed += frame_bytes;
            let payload = &mut frame[header.bytes..];
            if let Some(key) = header.mask {
                apply_mask(payload, key);
            }
            if let Some(event) = self.take_frame(header, payload, &mut inflation)? {
                return Ok(Decoded { consumed, event });
            }
        }
    }

    /// The rules that need the state of the message or the limit, before the payload has arrived.
    fn check(&self, header: Header, message_bytes_max: usize) -> Result<(), FrameError> {
        let before = match (header.opcode, &self.fragments) {
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(FrameError::ExpectedContinuation);
            }
            (Opcode::Continuation, None) => return Err(FrameError::UnexpectedContinuation),
            (Opcode::Continuation, Some(fragments)) => fragments.bytes.len(),
            _ => 0,
        };
        let bytes_max = if self.is_deflated(header) {
            deflated_bytes_max(message_bytes_max)
        } else {
            message_bytes_max
        };
        if !header.opcode.is_control() && header.payload_bytes > bytes_max.saturating_sub(before) {
            return Err(FrameError::TooBig);
        }
        Ok(())
    }

    /// Whether a frame carries text that can be read, or a part of one.
    fn is_text(&self, header: Header) -> bool {
        match header.opcode {
            Opcode::Text => !header.is_deflated,
            Opcode::Continuation => self
                .fragments
                .as_ref()
                .is_some_and(|fragments| fragments.is_readable_text()),
            _ => false,
        }
    }

    /// Whether a frame carries a compressed message, or a part of one.
    fn is_deflated(&self, header: Header) -> bool {
        let is_begun = || {
            let fragments = self.fragments.as_ref();
            fragments.is_some_and(|fragments| fragments.is_deflated)
        };
        header.is_deflated || (header.opcode == Opcode::Continuation && is_begun())
    }

    /// What is still to come of the frame that is taken in pieces, if there is one.
    fn left_of_frame(&self) -> Option<usize> {
        let open = self.fragments.as_ref()?.open?;
        Some(open.left)
    }

    /// Goes on to take in pieces a text frame of which not all has arrived.
    fn open_frame(&mut self, header: Header) {
        let fragments = self
            .fragments
            .get_or_insert_with(|| Box::new(Fragments::new(Kind::Text, false)));
        fragments.open = Some(OpenFrame {
            fin: header.fin,
            mask: header.mask,
            left: header.payload_bytes,
        });
    }

    /// Handles the next bytes of the open frame, still masked; `None` if they finish no message.
    fn take_piece<'b>(
        &mut self,
        piece: &mut [u8],
        inflation: &mut Option<Inflation<'b>>,
    ) -> Result<Option<Event<'b>>, FrameError> {
        let Some(fragments) = &mut self.fragments else {
            return Ok(None);
        };
        let Some(mut open) = fragments.open.take() else {
            return Ok(None);
        };
        if let Some(key) = &mut open.mask {
            apply_mask(piece, *key);
            key.rotate_left(piece.len() % 4);
        }
        open.left -= piece.len();
        let is_whole = open.left == 0;
        if !is_whole {
            fragments.open = Some(open);
        }
        self.continue_message(is_whole && open.fin, piece, inflation)
    }

    /// Handles one whole, unmasked frame; `None` if it was a fragment that finishes nothing.
    fn take_frame<'b>(
        &mut self,
        header: Header,
        payload: &'b [u8],
        inflation: &mut Option<Inflation<'b>>,
    ) -> Result<Option<Event<'b>>, FrameError> {
        let kind = match header.opcode {
            Opcode::Ping => return Ok(Some(Event::Ping(payload))),
            Opcode::Pong => return Ok(Some(Event::Pong(payload))),
            Opcode::Close => return decode_close(payload).map(Some),
            Opcode::Continuation => return self.continue_message(header.fin, payload, inflation),
            Opcode::Text => Kind::Text,
            Opcode::Binary => Kind::Binary,
        };
        if header.fin {
            let payload = match header.is_deflated {
                true => inflate(inflation, payload)?,
                false => payload,
            };
            if kind == Kind::Text && std::str::from_utf8(payload).is_err() {
                return Err(FrameError::Utf8);
            }
            return Ok(Some(Event::Message {
                kind,
                payload: Cow::Borrowed(payload),
            }));
        }
        self.fragments = Some(Box::new(Fragments::new(kind, header.is_deflated)));
        self.continue_message(false, payload, inflation)
    }

    fn continue_message<'b>(
        &mut self,
        fin: bool,
        payload: &[u8],
        inflation: &mut Option<Inflation<'b>>,
    ) -> Result<Option<Event<'b>>, FrameError> {
        let Some(fragments) = &mut self.fragments else {
            return Err(FrameError::UnexpectedContinuation);
        };
        fragments.bytes.extend_from_slice(payload);
        if fragments.is_readable_text() {
            fragments.check_text(fin)?;
        }
        if !fin {
            return Ok(None);
        }
        let Some(fragments) = self.fragments.take() else {
            return Ok(None);
        };
        let (kind, payload) = (fragments.kind, fragments.bytes);
        if !fragments.is_deflated {
            let payload = Cow::Owned(payload);
            return Ok(Some(Event::Message { kind, payload }));
        }
        let payload = inflate(inflation, &payload)?;
        if kind == Kind::Text && std::str::from_utf8(payload).is_err() {
            return Err(FrameError::Utf8);
        }
        let payload = Cow::Borrowed(payload);
        Ok(Some(Event::Message { kind, payload }))
    }
}

/// What inflates the messages of one call, and how long they may become.
struct Inflation<'b> {
    inflater: &'b mut Inflater,
    message_bytes_max: usize,
}

/// The plain bytes of a message. A call of the decoder gives out one message, so this is used once.
fn inflate<'b>(
    inflation: &mut Option<Inflation<'b>>,
    payload: &[u8],
) -> Result<&'b [u8], FrameError> {
    // A header that announces compression is refused where nothing can inflate.
    let inflation = inflation.take().ok_or(FrameError::ReservedBits)?;
    let Inflation {
        inflater,
        message_bytes_max,
    } = inflation;
    inflater.inflate(payload, message_bytes_max)
}

impl Fragments {
    fn new(kind: Kind, is_deflated: bool) -> Self {
        Self {
            kind,
            is_deflated,
            bytes: Vec::new(),
            checked: 0,
            open: None,
        }
    }

    /// Whether it is text as it stands.
    fn is_readable_text(&self) -> bool {
        self.kind == Kind::Text && !self.is_deflated
    }

    /// Checks what came since the last call, so that bad text is refused with the byte that makes it bad. Only a
    /// character cut by the end of a fragment may be unfinished, and only if more is to come.
    fn check_text(&mut self, fin: bool) -> Result<(), FrameError> {
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(text) => self.checked += text.len(),
            Err(error) if error.error_len().is_none() && !fin => {
                self.checked += error.valid_up_to()
            }
            Err(_) => return Err(FrameError::Utf8),
        }
        Ok(())
    }
}

/// A decoded frame header.
#[derive(Clone, Copy, Debug)]
struct Header {
    fin: bool,
    /// The first reserved bit: the message that begins here is compressed.
    is_deflated: bool,
    opcode: Opcode,
    mask: Option<[u8; 4]>,
    payload_bytes: usize,
    /// Length of the header itself.
    bytes: usize,
}

impl Header {
    /// The header at the start of `input`, `None` if it is not all there. What its first two bytes forbid is refused
    /// before the rest arrives.
    fn decode(input: &[u8], role: Role, takes_deflated: bool) -> Result<Option<Self>, FrameError> {
        let &[first, second, ..] = input else {
            return Ok(None);
        };
        let is_deflated = first & DEFLATED != 0;
        if first & 0x30 != 0 || is_deflated && !takes_deflated {
            return Err(FrameError::ReservedBits);
        }
        let opcode = Opcode::from_wire(first & 0x0F)?;
        // The bit belongs to a message, so it stands in its first frame only (RFC 7692, section 6.1).
        if is_deflated && !matches!(opcode, Opcode::Text | Opcode::Binary) {
            return Err(FrameError::ReservedBits);
        }
        let fin = first & 0x80 != 0;
        let short_length = usize::from(second & 0x7F);
        let masked = second & 0x80 != 0;
        match (role, masked) {
            (Role::Server, false) => return Err(FrameError::Unmasked),
            (Role::Client, true) => return Err(FrameError::Masked),
            _ => {}
        }
        if opcode.is_control() && !fin {
            return Err(FrameError::ControlFragmented);
        }
        if opcode.is_control() && short_length > CONTROL_BYTES_MAX {
            return Err(FrameError::ControlTooLong);
        }
        let bytes = Self::bytes_needed(input);
        let Some(header) = input.get(..bytes) else {
            return Ok(None);
        };
        let (header, mask) = match header.split_last_chunk::<4>() {
            Some((header, key)) if masked => (header, Some(*key)),
            _ => (header, None),
        };
        let payload_bytes = match header {
            [_, _, high, low] => usize::from(u16::from_be_bytes([*high, *low])),
            [_, _, length @ ..] if length.len() == 8 => decode_long_length(length)?,
            _ => short_length,
        };
        Ok(Some(Self {
            fin,
            is_deflated,
            opcode,
            mask,
            payload_bytes,
            bytes,
        }))
    }

    /// Length of the header that begins `input`, as far as it can be told; 2 if nothing can.
    fn bytes_needed(input: &[u8]) -> usize {
        let Some(second) = input.get(1) else {
            return 2;
        };
        let length = match second & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }
}

fn decode_long_length(bytes: &[u8]) -> Result<usize, FrameError> {
    let length = bytes
        .iter()
        .fold(0u64, |length, byte| length << 8 | u64::from(*byte));
    if length > i64::MAX.unsigned_abs() {
        return Err(FrameError::Length);
    }
    usize::try_from(length).map_err(|_| FrameError::TooBig)
}

fn decode_close(payload: &[u8]) -> Result<Event<'_>, FrameError> {
    let (code, reason) = match payload {
        [] => (None, payload),
        [_] => return Err(FrameError::CloseFrame),
        [high, low, reason @ ..] => {
            let code =
                CloseCode::new(u16::from_be_bytes([*high, *low])).ok_or(FrameError::CloseFrame)?;
            (Some(code), reason)
        }
    };
    let reason = std::str::from_utf8(reason).map_err(|_| FrameError::Utf8)?;
    Ok(Event::Close { code, reason })
}

/// Masks or unmasks `payload` in place (RFC 6455, section 5.3). Works on eight bytes at a time.
pub fn apply_mask(payload: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = payload.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends the header of an unfragmented, unmasked frame; the caller appends exactly `payload_bytes` behind it.
pub fn encode_header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    append_header(opcode.to_wire(), payload_bytes, None, out);
}

/// The same for a compressed message.
pub(crate) fn encode_deflated_header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    append_header(DEFLATED | opcode.to_wire(), payload_bytes, None, out);
}

/// Appends a masked frame of a compressed message, as a client sends it.
pub(crate) fn encode_deflated_masked(
    opcode: Opcode,
    payload: &[u8],
    key: [u8; 4],
    out: &mut Vec<u8>,
) {
    append_header(DEFLATED | opcode.to_wire(), payload.len(), Some(key), out);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], key);
}

/// Appends an unfragmented, unmasked frame, as a server sends it.
pub fn encode(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    encode_header(opcode, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends an unfragmented, masked frame, as a client sends it.
pub fn encode_masked(opcode: Opcode, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    encode_masked_with(opcode, payload.len(), key, out, |out| {
        out.extend_from_slice(payload)
    });
}

/// Appends a masked frame whose payload of exactly `payload_bytes` is written by `write`.
pub fn encode_masked_with(
    opcode: Opcode,
    payload_bytes: usize,
    key: [u8; 4],
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.reserve(HEADER_BYTES_MAX + payload_bytes);
    append_header(opcode.to_wire(), payload_bytes, Some(key), out);
    let start = out.len();
    write(out);
    debug_assert_eq!(
        out.len() - start,
        payload_bytes,
        "the announced length is not what was written"
    );
    apply_mask(&mut out[start..], key);
}

/// The payload of a close frame. The reason is cut to what fits, at a character's edge.
#[must_use]
pub fn close_payload(code: CloseCode, reason: &str) -> Vec<u8> {
    let end = reason.floor_char_boundary(CONTROL_BYTES_MAX - 2);
    let mut payload = code.number().to_be_bytes().to_vec();
    payload.extend_from_slice(&reason.as_bytes()[..end]);
    payload
}

/// `first` is the opcode with its reserved bits.
fn append_header(first: u8, payload_bytes: usize, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let mask_bit = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | first);
    if payload_bytes < 126 {
        out.push(mask_bit | payload_bytes as u8);
    } else if let Ok(length) = u16::try_from(payload_bytes) {
        out.push(mask_bit | 126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(mask_bit | 127);
        out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    }
    out.extend_from_slice(mask.as_ref().map_or(&[], |key| &key[..]));
}

/// The value of `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key` (RFC 6455, section 4.2.2).
#[must_use]
pub fn accept_key(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_whole(role: Role, frame: &mut [u8]) -> (usize, Vec<u8>) {
        let limit = frame.len();
        match Decoder::new(role).decode(frame, limit) {
            Ok(Decoded {
                consumed,
                event: Event::Message { payload, .. },
            }) => (consumed, payload.into_owned()),
            other => panic!("not a message: {other:?}"),
        }
    }

    #[test]
    fn accept_key_is_that_of_the_rfc() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn headers_use_the_shortest_length() {
        let cases = [
            (0, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_535, vec![0x82, 126, 0xFF, 0xFF]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (length, expected) in cases {
            let mut out = Vec::new();
            encode_header(Opcode::Binary, length, &mut out);
            assert_eq!(out, expected, "{length} bytes");
        }
    }

    #[test]
    fn frames_of_every_length_class_come_back() {
        for length in [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 70_001] {
            let payload: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut frame = Vec::new();
            encode(Opcode::Binary, &payload, &mut frame);
            let bytes = frame.len();
            assert_eq!(
                decode_whole(Role::Client, &mut frame),
                (bytes, payload.clone())
            );

            frame.clear();
            encode_masked(Opcode::Binary, &payload, [1, 2, 3, 4], &mut frame);
            let bytes = frame.len();
            assert_eq!(decode_whole(Role::Server, &mut frame), (bytes, payload));
        }
    }

    #[test]
    fn masking_twice_is_nothing() {
        let payload: Vec<u8> = (0..40).collect();
        for length in 0..payload.len() {
            let mut bytes = payload[..length].to_vec();
            apply_mask(&mut bytes, [0xDE, 0xAD, 0xBE, 0xEF]);
            for (index, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, payload[index] ^ [0xDE, 0xAD, 0xBE, 0xEF][index % 4]);
            }
            apply_mask(&mut bytes, [0xDE, 0xAD, 0xBE, 0xEF]);
            assert_eq!(bytes, &payload[..length]);
        }
    }

    #[test]
    fn long_close_reasons_are_cut_at_a_character() {
        let payload = close_payload(CloseCode::POLICY, &"ö".repeat(100));
        assert_eq!(payload.len(), 2 + 122);
        assert_eq!(
            decode_close(&payload),
            Ok(Event::Close {
                code: Some(CloseCode::POLICY),
                reason: &"ö".repeat(61),
            })
        );
    }

    #[test]
    fn idle_decoder_is_two_words() {
        assert!(size_of::<Decoder>() <= 2 * size_of::<usize>());
    }

    #[test]
    fn fragments_are_freed_with_their_message() {
        let mut stream = [0x02, 1, b'a', 0x80, 1, b'b'];
        let mut decoder = Decoder::new(Role::Client);
        let decoded = decoder.decode(&mut stream[..3], 8).expect("a fragment");
        assert_eq!(
            decoded,
            Decoded {
                consumed: 3,
                event: Event::NeedMore { bytes: 2 }
            }
        );
        assert!(decoder.is_inside_message());
        assert!(decoder.fragment_bytes() > 0);
        let decoded = decoder
            .decode(&mut stream[3..], 8)
            .expect("the last fragment");
        assert!(matches!(
            decoded.event,
            Event::Message {
                payload: Cow::Owned(_),
                ..
            }
        ));
        assert!(!decoder.is_inside_message());
        assert_eq!(decoder.fragment_bytes(), 0);
    }
}
