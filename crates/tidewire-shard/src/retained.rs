//! The messages that the server keeps for a session that outlives its connection, with their numbers.
//!
//! The kernel accepts bytes that a peer never receives if the connection breaks. So messages stay here after they were sent, until the peer
//! confirms them or the bound is reached. A peer that returns states how many messages it has received, and gets the later ones.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_wire::frame::websocket;

/// Memory of a chunk apart from its frames.
const CHUNK_BYTES: usize = 64;

/// Whole WebSocket frames of one turn, without compression and with one message each. Sessions with the same messages share them.
#[derive(Clone, Debug)]
struct Chunk {
    frames: Arc<[u8]>,
    /// Bytes at the start of `frames` that the peer has confirmed.
    confirmed: usize,
    /// The messages behind these bytes.
    count: u64,
}

impl Chunk {
    fn bytes(&self) -> usize {
        self.frames.len() + CHUNK_BYTES
    }

    /// Drops the first `count` messages, fewer than it has.
    fn confirm(&mut self, count: u64) {
        for _ in 0..count {
            // The server encoded these frames itself, so they are complete.
            let frame = websocket::server_frame_bytes(&self.frames[self.confirmed..]);
            self.confirmed += frame.unwrap_or_default();
        }
        self.count -= count;
    }
}

/// The messages that one session may still need.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    chunks: VecDeque<Chunk>,
    /// The number of messages before the first chunk.
    first: u64,
    /// The number of all messages so far.
    next: u64,
    bytes: usize,
}

impl Retained {
    /// The number of all messages so far.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The memory of the messages. A shared chunk counts for each session.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends `count` messages.
    pub(crate) fn push(&mut self, frames: Arc<[u8]>, count: u64) {
        let chunk = Chunk {
            frames,
            confirmed: 0,
            count,
        };
        self.bytes += chunk.bytes();
        self.next += count;
        self.chunks.push_back(chunk);
    }

    /// Drops the oldest messages whose numbers are below `unsent`, until at most `bytes_max` are left. Returns whether that is so.
    pub(crate) fn limit(&mut self, bytes_max: usize, unsent: u64) -> bool {
        while self.bytes > bytes_max {
            let first = self.chunks.front();
            if first.is_none_or(|chunk| self.first + chunk.count > unsent) {
                return false;
            }
            self.pop();
        }
        true
    }

    /// Drops the first `received` messages of all, because the peer has them. Returns false if the peer can't have that many, or has missed
    /// messages that were dropped before.
    pub(crate) fn confirm(&mut self, received: u64) -> bool {
        if received < self.first || received > self.next {
            return false;
        }
        while let Some(chunk) = self.chunks.front_mut() {
            let more = received - self.first;
            if more < chunk.count {
                chunk.confirm(more);
                self.first += more;
                break;
            }
            self.pop();
        }
        true
    }

    /// The frames of all messages, in order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks
            .iter()
            .map(|chunk| &chunk.frames[chunk.confirmed..])
    }

    fn pop(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.first += chunk.count;
            self.bytes -= chunk.bytes();
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_wire::frame::websocket::Opcode;

    use super::*;

    fn chunk(messages: &[&str]) -> (Arc<[u8]>, u64) {
        let mut frames = Vec::new();
        for message in messages {
            websocket::encode(Opcode::Text, message.as_bytes(), &mut frames);
        }
        (frames.into(), messages.len() as u64)
    }

    fn push(retained: &mut Retained, messages: &[&str]) {
        let (frames, count) = chunk(messages);
        retained.push(frames, count);
    }

    fn content(retained: &Retained) -> Vec<u8> {
        retained.frames().flatten().copied().collect()
    }

    #[test]
    fn confirmed_messages_are_dropped_one_by_one() {
        let long = "x".repeat(70_000);
        let medium = "y".repeat(300);
        let texts = ["a", &medium, &long, "b", "c"];
        for received in 0..=texts.len() {
            let mut retained = Retained::default();
            push(&mut retained, &texts[..3]);
            push(&mut retained, &texts[3..]);
            for step in 0..=received as u64 {
                assert!(retained.confirm(step));
            }
            assert_eq!(content(&retained)[..], chunk(&texts[received..]).0[..]);
            assert!(received == 0 || !retained.confirm(received as u64 - 1));
            assert!(!retained.confirm(6));
        }
    }

    #[test]
    fn without_messages_nothing_is_kept() {
        let mut retained = Retained::default();
        push(&mut retained, &["a", "b"]);
        assert!(retained.confirm(2));
        assert_eq!((retained.bytes(), retained.next()), (0, 2));
        assert_eq!(retained.chunks.capacity(), 0);
        push(&mut retained, &["c"]);
        assert!(!retained.confirm(1) && retained.confirm(2) && retained.confirm(3));
    }

    #[test]
    fn the_oldest_messages_are_dropped_at_the_bound_and_unsent_ones_are_not() {
        let mut retained = Retained::default();
        for text in ["a", "b", "c"] {
            push(&mut retained, &[text]);
        }
        let each = retained.bytes() / 3;
        assert!(retained.limit(2 * each, 3));
        assert!(!retained.confirm(0));
        assert_eq!(content(&retained)[..], chunk(&["b", "c"]).0[..]);
        assert!(!retained.limit(0, 2));
        assert_eq!(content(&retained)[..], chunk(&["c"]).0[..]);
        assert!(retained.confirm(2));
    }
}
