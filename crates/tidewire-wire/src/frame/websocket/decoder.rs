//! Decodes frames into whole messages, unmasked and inflated, from the bytes that the caller has.
//!
//! The decoder owns none of the bytes, except the fragments of an unfinished message. It unmasks an unfragmented
//! message in place and returns it without a copy.

use std::borrow::Cow;

use super::header::Header;
use super::{CloseCode, FrameError, Opcode, PayloadKind, Role, apply_mask};
use crate::frame::deflate::{Inflater, deflated_bytes_max};

/// The result of one call of [`Decoder::decode`].
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// Consumed bytes at the start of the input. The caller drops them before the next call, also with
    /// [`Event::NeedMore`], because the decoder may have consumed non-final fragments.
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
        kind: PayloadKind,
        /// Its bytes; UTF-8 if it is text.
        payload: Cow<'b, [u8]>,
    },
    /// The caller answers it with a pong of the same payload.
    Ping(&'b [u8]),
    /// Needs no answer.
    Pong(&'b [u8]),
    /// The peer's last frame; the decoder reads nothing after it. The caller answers it with a close frame of the
    /// same code.
    Close {
        /// The peer's code, if it gave one.
        code: Option<CloseCode>,
        /// The peer's reason, possibly empty.
        reason: &'b str,
    },
    /// The decoder returns nothing before the unconsumed input has grown.
    NeedMore {
        /// The length that the unconsumed input must reach, at most the message limit plus a header; 1 inside a text
        /// frame, which the decoder consumes as it arrives.
        bytes: usize,
    },
}

/// The state of one direction of a connection. Two words while there are no fragments.
#[derive(Debug)]
pub struct Decoder {
    /// The unfinished message; absent while idle.
    fragments: Option<Box<Fragments>>,
    role: Role,
    /// Whether permessage-deflate was negotiated.
    takes_deflated: bool,
}

#[derive(Debug)]
struct Fragments {
    kind: PayloadKind,
    is_deflated: bool,
    bytes: Vec<u8>,
    /// Length of the prefix of `bytes` that was checked to be UTF-8; used for text only.
    checked: usize,
    /// The text frame that is consumed in pieces.
    open: Option<OpenFrame>,
}

/// The rest of a frame whose header was consumed.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    fin: bool,
    /// The mask key, rotated to the next byte.
    mask: Option<[u8; 4]>,
    /// Missing payload bytes, at least one.
    left: usize,
}

impl Decoder {
    /// A decoder for the frames of `role`'s peer.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            fragments: None,
            role,
            takes_deflated: false,
        }
    }

    /// The same with permessage-deflate: [`Decoder::decode_inflated`] accepts compressed messages too.
    #[must_use]
    pub fn with_deflate(role: Role) -> Self {
        Self {
            takes_deflated: true,
            ..Self::new(role)
        }
    }

    /// Whether permessage-deflate was negotiated.
    #[must_use]
    pub fn has_deflate(&self) -> bool {
        self.takes_deflated
    }

    /// Whether a message is incomplete.
    #[must_use]
    pub fn is_inside_message(&self) -> bool {
        self.fragments.is_some()
    }

    /// Memory of the fragments of an unfinished message.
    #[must_use]
    pub fn fragment_bytes(&self) -> usize {
        self.fragments
            .as_ref()
            .map_or(0, |fragments| fragments.bytes.len())
    }

    /// The announced size of a message, if the next frame begins `input`: its payload, and the fragments before it.
    /// For the log, after [`FrameError::TooBig`].
    #[must_use]
    pub fn announced_bytes(&self, input: &[u8]) -> usize {
        let header = Header::decode(input, self.role, self.takes_deflated);
        let payload_bytes = header
            .ok()
            .flatten()
            .map_or(0, |header| header.payload_bytes);
        self.fragment_bytes().saturating_add(payload_bytes)
    }

    /// Takes the next event from the start of `input`. Incomplete frames stay unchanged, so the caller can pass the
    /// same bytes again with more after them. Only text is consumed piece by piece, because the decoder must refuse
    /// it as soon as a byte shows that it is not UTF-8. A message may have at most `message_bytes_max` bytes, which
    /// is checked as soon as a header announces its size.
    ///
    /// # Errors
    ///
    /// The peer's violation. Close the connection and do not use the decoder again.
    pub fn decode<'b>(
        &mut self,
        input: &'b mut [u8],
        message_bytes_max: usize,
    ) -> Result<Decoded<'b>, FrameError> {
        self.decode_with(input, message_bytes_max, None)
    }

    /// The same for a connection that may use permessage-deflate. The limit applies to the inflated message, which is
    /// refused as soon as it exceeds the limit.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::decode`].
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

    /// Checks the rules that need the state of the message or the limit, before the payload has arrived.
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

    /// Whether a frame contains readable text, or a part of one.
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

    /// Whether a frame contains a compressed message, or a part of one.
    fn is_deflated(&self, header: Header) -> bool {
        let is_begun = || {
            let fragments = self.fragments.as_ref();
            fragments.is_some_and(|fragments| fragments.is_deflated)
        };
        header.is_deflated || (header.opcode == Opcode::Continuation && is_begun())
    }

    /// The missing bytes of the frame that is consumed in pieces, if there is one.
    fn left_of_frame(&self) -> Option<usize> {
        let open = self.fragments.as_ref()?.open?;
        Some(open.left)
    }

    /// Starts to consume an incomplete text frame in pieces.
    fn open_frame(&mut self, header: Header) {
        let fragments = self
            .fragments
            .get_or_insert_with(|| Box::new(Fragments::new(PayloadKind::Text, false)));
        fragments.open = Some(OpenFrame {
            fin: header.fin,
            mask: header.mask,
            left: header.payload_bytes,
        });
    }

    /// Handles the next bytes of the open frame, still masked; `None` if they complete no message.
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

    /// Handles one whole, unmasked frame; `None` for a fragment that completes no message.
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
            Opcode::Text => PayloadKind::Text,
            Opcode::Binary => PayloadKind::Binary,
        };
        if header.fin {
            let payload = match header.is_deflated {
                true => inflate(inflation, payload)?,
                false => payload,
            };
            if kind == PayloadKind::Text && std::str::from_utf8(payload).is_err() {
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
        if kind == PayloadKind::Text && std::str::from_utf8(payload).is_err() {
            return Err(FrameError::Utf8);
        }
        let payload = Cow::Borrowed(payload);
        Ok(Some(Event::Message { kind, payload }))
    }
}

/// The inflater of one call, and the limit of its message.
struct Inflation<'b> {
    inflater: &'b mut Inflater,
    message_bytes_max: usize,
}

/// The plain bytes of a message. A call of the decoder returns one message, so this is used once.
fn inflate<'b>(
    inflation: &mut Option<Inflation<'b>>,
    payload: &[u8],
) -> Result<&'b [u8], FrameError> {
    // Without an inflater, a header that announces compression is refused.
    let inflation = inflation.take().ok_or(FrameError::ReservedBits)?;
    let Inflation {
        inflater,
        message_bytes_max,
    } = inflation;
    inflater.inflate(payload, message_bytes_max)
}

impl Fragments {
    fn new(kind: PayloadKind, is_deflated: bool) -> Self {
        Self {
            kind,
            is_deflated,
            bytes: Vec::new(),
            checked: 0,
            open: None,
        }
    }

    /// Whether it is uncompressed text.
    fn is_readable_text(&self) -> bool {
        self.kind == PayloadKind::Text && !self.is_deflated
    }

    /// Checks the bytes since the last call, so that bad text is refused at its first bad byte. Only a character
    /// split by the end of a fragment may be incomplete, and only if another fragment follows.
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

#[cfg(test)]
mod tests {
    use super::super::{close_payload, encode, encode_masked};
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
    fn frames_of_every_length_class_decode_to_what_was_encoded() {
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
}
