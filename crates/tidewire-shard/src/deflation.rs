//! Compression of a shard: it compresses each message once, for all recipients that agreed on it.
//!
//! One compressor serves all connections of a shard, since compression keeps no state between messages. The time that compression may
//! take in a turn is limited. Messages beyond the limit are sent uncompressed, which every recipient understands.

use tidewire_wire::frame::deflate::Deflater;
use tidewire_wire::frame::websocket::{self, Opcode};

use super::ShardLimits;
use super::stats::{ShardStats, add};

/// Starting a compression costs about as much as compressing this many bytes: 6 us, where 1 KiB takes 2.3 us more.
const START_BYTES: usize = 2560;

/// A buffer above this capacity is freed when its turn has ended.
const KEPT_CAPACITY_MAX: usize = 64 << 10;

/// Compresses the messages of a shard.
#[derive(Debug)]
pub(crate) struct Deflation {
    deflater: Deflater,
    /// Messages below this size are sent plain.
    bytes_min: usize,
    /// Bytes that a turn may compress, including [`START_BYTES`] for each message.
    turn_bytes_max: usize,
    turn_bytes: usize,
    /// The payload that was encoded last, and its compressed frame, which is empty if it is sent uncompressed. Variants of a protocol
    /// mostly have the same payload, which is then compressed once for all.
    payload: Vec<u8>,
    opcode: Opcode,
    frame: Vec<u8>,
    /// The payload that is being encoded.
    next: Vec<u8>,
}

impl Deflation {
    pub(crate) fn new(limits: &ShardLimits) -> Self {
        Self {
            deflater: Deflater::default(),
            bytes_min: limits.deflate_bytes_min,
            turn_bytes_max: limits.deflate_turn_bytes_max,
            turn_bytes: 0,
            payload: Vec::new(),
            opcode: Opcode::Binary,
            frame: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Appends the message that `encode` appends to a buffer as a frame, compressed if that saves enough.
    pub(crate) fn encode_frame(
        &mut self,
        opcode: Opcode,
        encode: impl FnOnce(&mut Vec<u8>),
        stats: &ShardStats,
        out: &mut Vec<u8>,
    ) {
        self.next.clear();
        encode(&mut self.next);
        if self.next != self.payload || self.opcode != opcode {
            self.opcode = opcode;
            std::mem::swap(&mut self.payload, &mut self.next);
            let (payload, mut frame) = (
                std::mem::take(&mut self.payload),
                std::mem::take(&mut self.frame),
            );
            frame.clear();
            self.deflate_frame(opcode, &payload, stats, &mut frame);
            (self.payload, self.frame) = (payload, frame);
        }
        if self.frame.is_empty() {
            websocket::encode(opcode, &self.payload, out);
        } else {
            out.extend_from_slice(&self.frame);
        }
    }

    /// Appends `payload` as a compressed frame, or nothing if that does not save enough.
    pub(crate) fn deflate_frame(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        stats: &ShardStats,
        out: &mut Vec<u8>,
    ) {
        if payload.len() < self.bytes_min {
            return;
        }
        let cost = payload.len() + START_BYTES;
        if self.turn_bytes + cost > self.turn_bytes_max {
            return add(&stats.deflate_skips, 1);
        }
        self.turn_bytes += cost;
        let before = out.len();
        if self.deflater.encode_frame(opcode, payload, out) {
            add(&stats.deflated_bytes, payload.len() as u64);
            add(&stats.deflated_to_bytes, (out.len() - before) as u64);
        }
    }

    /// Bytes that this turn has compressed, including [`START_BYTES`] for each message.
    pub(crate) fn turn_bytes(&self) -> usize {
        self.turn_bytes
    }

    /// Starts a turn, which may compress again.
    pub(crate) fn begin_turn(&mut self) {
        self.turn_bytes = 0;
        if self.payload.capacity().max(self.next.capacity()) > KEPT_CAPACITY_MAX {
            (self.payload, self.next, self.frame) = <_>::default();
        }
    }
}
