//! Memory for answers. A request reserves it before it asks the engine for an answer, and holds it until the answer's bytes
//! have left.
//!
//! Each answer is reserved twice: in the node's budget, and in the part of it that all answers of the API share. While an
//! answer is built, its bytes exist twice: in the reply of the shard, which counts them, and in the answer. So the shared part
//! is a quarter of the budget, and both copies together stay within half of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewire_net::memory_budget::{MemoryBudget, Share};
use tidewire_shard::share::{Caller, Seat, Shares};
use tokio::time::{Instant, sleep};

/// How long a request waits before it tries again to reserve memory. Other requests release memory within milliseconds, or only
/// at their end if their peer does not read. No notification announces it, so the request polls.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes of one frame of an answer. The HTTP library holds a whole frame in memory until the peer has read all of it.
const FRAME_BYTES: usize = 64 << 10;
/// Texts below this size are joined, so that an answer of many small texts has few frames.
const JOINED_BYTES: usize = 16 << 10;

/// The part of the node's memory that answers may use.
#[derive(Clone, Debug)]
pub(super) struct AnswerMemory {
    budget: MemoryBudget,
    shares: Arc<Shares>,
}

impl AnswerMemory {
    /// A quarter of a budget of `bytes_max` bytes. One caller may hold at most as much of it as it leaves free for the others.
    pub(super) fn new(budget: MemoryBudget, bytes_max: usize) -> Self {
        Self {
            budget,
            shares: Shares::new(bytes_max / 4),
        }
    }

    /// Reserves `bytes` for a caller; returns `None` if that is not possible now.
    pub(super) fn reserve(&self, caller: &Caller, bytes: usize) -> Option<Reserved> {
        let seat = self.shares.take(caller.clone(), 0).ok()?;
        let mut reserved = Reserved {
            share: self.budget.share(),
            bytes_max: self.shares.max() / 2,
            seat,
        };
        reserved.try_resize(bytes).then_some(reserved)
    }

    /// Reserves `bytes` for a caller, and waits until `deadline` if that is not possible at once.
    pub(super) async fn wait(
        &self,
        caller: &Caller,
        bytes: usize,
        deadline: Instant,
    ) -> Option<Reserved> {
        loop {
            if let Some(reserved) = self.reserve(caller, bytes) {
                return Some(reserved);
            }
            if Instant::now() >= deadline {
                return None;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Reserved memory, released on drop.
#[derive(Debug)]
pub(super) struct Reserved {
    seat: Seat,
    share: Share,
    /// The most that one caller can ever hold. `try_resize` caps requests at this size, because a larger one could never
    /// succeed.
    bytes_max: usize,
}

impl Reserved {
    /// Changes the reservation to `bytes`. Returns false, and changes nothing, if it would have to grow and the memory is not
    /// free.
    pub(super) fn try_resize(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.bytes_max);
        let before = self.seat.count();
        if self.seat.resize(bytes).is_err() {
            return false;
        }
        let is_there = self.share.try_report(bytes);
        if !is_there {
            // Shrinking always succeeds.
            let _ = self.seat.resize(before);
        }
        is_there
    }
}

/// Text whose memory stays reserved until its last byte has left.
struct ReservedText {
    text: String,
    _memory: Reserved,
}

impl AsRef<[u8]> for ReservedText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Turns text into bytes that keep `memory` reserved until they are dropped.
pub(super) fn reserved_bytes(text: String, mut memory: Reserved) -> Bytes {
    // The text already exists, so it is sent even if its full size can't be reserved.
    let _ = memory.try_resize(text.len());
    Bytes::from_owner(ReservedText {
        text,
        _memory: memory,
    })
}

/// An answer in pieces, given to the HTTP library one at a time as the peer reads.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    /// Small texts that follow the last piece.
    joined: String,
    bytes: usize,
}

impl Pieces {
    /// Appends text without reserved memory.
    pub(super) fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.bytes += text.len();
        if self.joined.len() >= JOINED_BYTES {
            self.end_joined();
        }
    }

    /// Appends text with reserved memory.
    pub(super) fn push_reserved(&mut self, text: String, memory: Reserved) {
        if text.len() < JOINED_BYTES {
            return self.push(&text);
        }
        self.end_joined();
        self.bytes += text.len();
        self.pieces.push_back(reserved_bytes(text, memory));
    }

    fn end_joined(&mut self) {
        if !self.joined.is_empty() {
            let joined = std::mem::take(&mut self.joined);
            self.pieces.push_back(Bytes::from(joined));
        }
    }

    /// Bytes that the HTTP library has not taken yet.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes and returns the next frame.
    pub(super) fn next_frame(&mut self) -> Option<Bytes> {
        self.end_joined();
        let piece = self.pieces.front_mut()?;
        let frame = match piece.len() > FRAME_BYTES {
            true => piece.split_to(FRAME_BYTES),
            false => self.pieces.pop_front()?,
        };
        self.bytes -= frame.len();
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn caller(number: u8) -> Caller {
        Caller::at(Ipv4Addr::new(192, 0, 2, number).into())
    }

    fn memory(bytes_max: usize) -> (MemoryBudget, AnswerMemory) {
        let budget = MemoryBudget::new(bytes_max);
        (budget.clone(), AnswerMemory::new(budget, bytes_max))
    }

    #[test]
    fn reserved_memory_is_held_until_the_last_byte_is_sent() {
        let (budget, memory) = memory(4 << 20);
        let reserved = memory.reserve(&caller(1), 400_000).expect("it is free");
        let mut pieces = Pieces::default();
        pieces.push("[");
        pieces.push_reserved("x".repeat(200_000), reserved);
        assert_eq!(budget.used(), 200_000, "what was not needed is given back");
        pieces.push("]");
        assert_eq!(pieces.bytes(), 200_002);
        let mut frames = Vec::new();
        while let Some(frame) = pieces.next_frame() {
            assert!(frame.len() <= FRAME_BYTES);
            frames.push(frame);
        }
        assert_eq!(frames.iter().map(Bytes::len).sum::<usize>(), 200_002);
        assert_eq!((frames.len(), pieces.bytes()), (6, 0));
        frames.truncate(2);
        assert_eq!(budget.used(), 200_000);
        frames.clear();
        assert_eq!((budget.used(), memory.shares.taken()), (0, 0));
    }

    #[test]
    fn one_caller_has_half_of_the_quarter_and_others_find_some() {
        let (budget, memory) = memory(800);
        let reserve = |number| memory.reserve(&caller(number), 50);
        let first = [reserve(1), reserve(1)];
        assert!(first.iter().all(Option::is_some) && reserve(1).is_none());
        assert!(reserve(2).is_some());
        let mut large = memory
            .reserve(&caller(2), 9_000)
            .expect("as much as there is for one");
        assert_eq!(budget.used(), 200);
        assert!(large.try_resize(10) && large.try_resize(50) && !large.try_resize(90));
        assert_eq!(budget.used(), 150);
        drop((first, large));
        let mut others = budget.share();
        others.report(780, 0);
        assert!(reserve(1).is_none(), "the node has no memory");
        assert_eq!((budget.used(), memory.shares.taken()), (780, 0));
    }

    #[tokio::test]
    async fn a_request_waits_for_memory_that_another_one_gives_back() {
        let (_, memory) = memory(400);
        let first = memory.reserve(&caller(1), 50).expect("it is free");
        let deadline = Instant::now() + Duration::from_secs(30);
        let second = tokio::spawn({
            let memory = memory.clone();
            async move { memory.wait(&caller(1), 50, deadline).await.is_some() }
        });
        drop(first);
        assert!(second.await.expect("no panic"));
    }
}
