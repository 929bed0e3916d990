//! Compressed messages: permessage-deflate, RFC 7692, without context takeover. Contract: `spec/websocket.md`.
//!
//! Each message is compressed and inflated alone. So one [`Deflater`] and one [`Inflater`] serve all connections of a
//! shard, and all recipients can share a compressed message. [`crate::frame::offer`] negotiates the parameters.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::frame::websocket::{self, FrameError, Opcode};

/// The second of zlib's levels. On 2.5 KB of JSON it leaves 24 % in 13 us, while level 1 leaves 32 % in 5, 6 leaves
/// 23 % in 15 and 9 leaves 22 % in 22 (`examples/deflate_cost.rs`).
const LEVEL: u32 = 2;

/// The end of a flush, which a message omits (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// Appended to a received message: the omitted tail, and an empty final block, which the inflater reaches only if the
/// message was complete.
const END: [u8; 9] = [0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF];

/// Buffers above this capacity are freed after their message.
const KEPT_CAPACITY_MAX: usize = 64 << 10;

/// The initial capacity for the inflated bytes of a message.
const INFLATED_BYTES_MIN: usize = 4 << 10;

/// The largest compressed form of a message within `message_bytes_max`. Incompressible data grows, by an eighth if
/// the sender uses fixed codes of nine bits.
pub(crate) fn deflated_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.saturating_add(message_bytes_max / 8 + 64)
}

/// Compresses messages. Allocates nothing before the first one.
#[derive(Debug, Default)]
pub struct Deflater {
    state: Option<Compress>,
    deflated: Vec<u8>,
}

impl Deflater {
    /// Appends `payload` as one compressed frame of a server and returns true; appends nothing if compression does
    /// not shrink it.
    pub fn encode_frame(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(deflated) = self.deflate(payload) else {
            return false;
        };
        websocket::encode_deflated_header(opcode, deflated.len(), out);
        out.extend_from_slice(deflated);
        self.shrink();
        true
    }

    /// The same for a client, whose frames are masked.
    pub fn encode_masked_frame(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        key: [u8; 4],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(deflated) = self.deflate(payload) else {
            return false;
        };
        websocket::encode_deflated_masked(opcode, deflated, key, out);
        self.shrink();
        true
    }

    /// The compressed form without its tail, if it is shorter than `payload`.
    fn deflate(&mut self, payload: &[u8]) -> Option<&[u8]> {
        let state = self
            .state
            .get_or_insert_with(|| Compress::new(Compression::new(LEVEL), false));
        state.reset();
        self.deflated.clear();
        // The tail is cut off, so a form of this length is not shorter than the message.
        self.deflated.reserve(payload.len() + TAIL.len());
        let status = state.compress_vec(payload, &mut self.deflated, FlushCompress::Sync);
        let is_done = matches!(status, Ok(Status::Ok))
            && state.total_in() == payload.len() as u64
            && self.deflated.len() < payload.len() + TAIL.len();
        // Unused capacity proves that the flush is complete.
        let has_room = self.deflated.len() < self.deflated.capacity();
        if !is_done || !has_room {
            return None;
        }
        self.deflated.strip_suffix(&TAIL)
    }

    fn shrink(&mut self) {
        if self.deflated.capacity() > KEPT_CAPACITY_MAX {
            self.deflated = Vec::new();
        }
    }
}

/// Inflates messages. Allocates nothing before the first one.
#[derive(Debug, Default)]
pub struct Inflater {
    state: Option<Decompress>,
    inflated: Vec<u8>,
}

impl Inflater {
    /// Returns the plain bytes of a message, valid until the next call. Never holds much more than `bytes_max`,
    /// whatever the size of the inflated message.
    ///
    /// # Errors
    ///
    /// The message can't be inflated, or exceeds `bytes_max`.
    pub fn inflate(&mut self, payload: &[u8], bytes_max: usize) -> Result<&[u8], FrameError> {
        if self.inflated.capacity() > KEPT_CAPACITY_MAX {
            self.inflated = Vec::new();
        }
        self.inflated.clear();
        self.state
            .get_or_insert_with(|| Decompress::new(false))
            .reset(false);
        // A message that ends with a final block is already complete.
        if self.run(payload, bytes_max)? || self.run(&END, bytes_max)? {
            return Ok(&self.inflated);
        }
        Err(FrameError::Deflate)
    }

    /// Inflates the next piece; returns whether it ended with a final block.
    fn run(&mut self, mut input: &[u8], bytes_max: usize) -> Result<bool, FrameError> {
        let mut is_ended = false;
        let Some(state) = &mut self.state else {
            return Err(FrameError::Deflate);
        };
        loop {
            make_room(&mut self.inflated, bytes_max);
            let (taken, given) = (state.total_in(), self.inflated.len());
            let status = state
                .decompress_vec(input, &mut self.inflated, FlushDecompress::Sync)
                .map_err(|_| FrameError::Deflate)?;
            if self.inflated.len() > bytes_max {
                return Err(FrameError::TooBig);
            }
            let taken = usize::try_from(state.total_in() - taken).unwrap_or(input.len());
            input = &input[taken..];
            if status == Status::StreamEnd {
                // A final block may be followed by others (RFC 7692, section 7.2.3.4).
                state.reset(false);
                is_ended = true;
            } else if taken > 0 {
                is_ended = false;
            }
            let is_full = self.inflated.len() == self.inflated.capacity();
            if input.is_empty() && !is_full {
                return Ok(is_ended);
            }
            let is_stuck = taken == 0 && self.inflated.len() == given;
            if is_stuck && !is_full && status != Status::StreamEnd {
                return Err(FrameError::Deflate);
            }
        }
    }
}

/// Grows the buffer, up to one byte above the limit, because that byte shows that the message exceeds it.
fn make_room(inflated: &mut Vec<u8>, bytes_max: usize) {
    if inflated.len() < inflated.capacity() {
        return;
    }
    let above = bytes_max.saturating_add(1) - inflated.len();
    let more = inflated.len().max(INFLATED_BYTES_MIN).min(above);
    inflated.reserve_exact(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::websocket::{Decoded, Decoder, Event, Role};

    /// The compressed payloads of RFC 7692, section 7.2.3, that do not need a context.
    #[test]
    fn samples_of_the_rfc_are_inflated() {
        let samples: [&[u8]; 4] = [
            &[0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00],
            // Without compression.
            &[
                0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00,
            ],
            // With a final block.
            &[0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00],
            // In two blocks.
            &[
                0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07, 0x00,
            ],
        ];
        let mut inflater = Inflater::default();
        for sample in samples {
            assert_eq!(inflater.inflate(sample, 5), Ok(&b"Hello"[..]));
            assert_eq!(inflater.inflate(sample, 4), Err(FrameError::TooBig));
        }
        assert_eq!(inflater.inflate(&[0], 0), Ok(&b""[..]));
    }

    #[test]
    fn compressed_payloads_inflate_to_the_original() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for length in [40, 512, 4096, 4097, 65_536, 300_000] {
            let payload: Vec<u8> = (0..length).map(|index| (index % 13) as u8).collect();
            let mut frame = Vec::new();
            assert!(deflater.encode_frame(Opcode::Binary, &payload, &mut frame));
            assert!(frame.len() < payload.len());
            let mut decoder = Decoder::with_deflate(Role::Client);
            let Decoded { consumed, event } = decoder
                .decode_inflated(&mut frame, length, &mut inflater)
                .expect("our own frame");
            let Event::Message {
                payload: inflated, ..
            } = event
            else {
                panic!("not a message: {event:?}");
            };
            assert_eq!(*inflated, payload);
            assert_eq!(consumed, frame.len());
        }
    }

    #[test]
    fn a_payload_that_does_not_get_smaller_stays_uncompressed() {
        let mut deflater = Deflater::default();
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for length in [0, 1, 5, 100, 10_000] {
            let payload: Vec<u8> = (0..length).map(|_| noise()).collect();
            let mut out = Vec::new();
            assert!(!deflater.encode_frame(Opcode::Binary, &payload, &mut out));
            assert!(out.is_empty(), "{length} bytes");
        }
    }

    #[test]
    fn a_bomb_is_refused_and_takes_no_memory() {
        let mut deflater = Deflater::default();
        let bomb = vec![0; 64 << 20];
        let mut frame = Vec::new();
        assert!(deflater.encode_masked_frame(Opcode::Binary, &bomb, [0; 4], &mut frame));
        drop(bomb);
        assert!(frame.len() < 400_000, "{}", frame.len());
        let limit = 1 << 20;
        let mut inflater = Inflater::default();
        let error = Decoder::with_deflate(Role::Server)
            .decode_inflated(&mut frame, limit, &mut inflater)
            .expect_err("64 MiB are too much");
        assert_eq!(error, FrameError::TooBig);
        assert_eq!(error.close_code().number(), 1009);
        assert!(inflater.inflated.capacity() <= limit + 1);
        inflater.inflate(&[0], limit).expect("an empty message");
        assert!(inflater.inflated.capacity() <= KEPT_CAPACITY_MAX);
    }

    #[test]
    fn garbage_is_refused() {
        let mut inflater = Inflater::default();
        let garbage: [&[u8]; 5] = [
            &[0xFF; 8],
            &[0x06],
            &[0x00, 0x05, 0x00, 0x00, 0x00],
            // "Hello", cut.
            &[0xF2, 0x48, 0xCD],
            &[],
        ];
        for garbage in garbage {
            assert_eq!(
                inflater.inflate(garbage, 100),
                Err(FrameError::Deflate),
                "{garbage:02x?}"
            );
        }
        assert_eq!(FrameError::Deflate.close_code().number(), 1007);
    }
}
