//! The sends of a turn: collected, submitted together, their completions counted.
//!
//! On Linux they go out in one submission to an `io_uring`; where that is missing, refused or not wanted, each is one
//! system call. Every send carries MSG_DONTWAIT, so all of them are complete when [`Sender::submit`] returns and the
//! bytes that they borrowed are free again.

mod plain;
mod ring;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use ring::{Outcome, Ring};

pub use ring::RingFault;

/// No send waits for room, and none ends the process because the peer is gone.
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Fewer sends than this are cheaper as system calls of their own: one costs 7 % more through the ring, each of two 4 %
/// less, each of three 16 % less.
const RING_SENDS_MIN: usize = 2;

/// More slices than this are refused by the kernel (IOV_MAX); the rest goes with the next send.
pub const SLICES_MAX: usize = 1024;

/// Sends in one submission. Between two submissions the shard looks at its sockets and its mailbox.
pub const SENDS_MAX: usize = 2000;

/// Collected sends. What they borrow stays borrowed until they are submitted.
#[derive(Debug, Default)]
pub struct SendBatch<'a> {
    slices: Vec<IoSlice<'a>>,
    sends: Vec<Prepared<'a>>,
}

#[derive(Debug)]
struct Prepared<'a> {
    token: u32,
    socket: BorrowedFd<'a>,
    first: u32,
    count: u32,
}

impl Prepared<'_> {
    /// Its part of the batch's slices.
    fn slices<'s, 'd>(&self, of: &'s [IoSlice<'d>]) -> &'s [IoSlice<'d>] {
        &of[self.first as usize..][..self.count as usize]
    }
}

/// How one send ended.
#[derive(Debug)]
pub struct Completion {
    /// As given with [`SendBatch::push`].
    pub token: u32,
    /// Bytes taken by the kernel; fewer than submitted, or `WouldBlock`, when its buffer is full.
    pub result: io::Result<usize>,
}

impl<'a> SendBatch<'a> {
    /// Adds a send of as many of `slices` as one send can carry.
    pub fn push(
        &mut self,
        token: u32,
        socket: BorrowedFd<'a>,
        slices: impl IntoIterator<Item = IoSlice<'a>>,
    ) {
        let first = self.slices.len();
        self.slices.extend(slices.into_iter().take(SLICES_MAX));
        self.sends.push(Prepared {
            token,
            socket,
            first: first as u32,
            count: (self.slices.len() - first) as u32,
        });
    }

    /// How many sends were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }
}

/// How sends reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// Many in one submission to an `io_uring`.
    Ring,
    /// One system call for each, as it was asked for.
    #[default]
    Plain,
    /// One system call for each, because the ring was refused at the start or failed later.
    WithoutRing(RingFault),
}

impl Path {
    /// The path as it stands in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ring => "io_uring",
            Self::Plain | Self::WithoutRing(_) => "plain",
        }
    }
}

/// Submits batches, and keeps their memory for the next one.
#[derive(Default)]
pub struct Sender {
    ring: Option<Ring>,
    path: Path,
    submissions: u64,
    outcomes: Vec<Outcome>,
    spare: SendBatch<'static>,
}

impl Sender {
    /// One that uses a ring if the kernel gives one that works, which is tried.
    #[must_use]
    pub fn detect() -> Self {
        let (ring, path) = match Ring::new() {
            Ok(ring) => (Some(ring), Path::Ring),
            Err(fault) => (None, Path::WithoutRing(fault)),
        };
        Self {
            ring,
            path,
            ..Self::default()
        }
    }

    /// One that makes a system call for each send.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// How sends reach the kernel. It changes when a ring fails.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Submissions to the ring so far.
    #[must_use]
    pub fn submissions(&self) -> u64 {
        self.submissions
    }

    /// An empty batch in memory that was used before.
    pub fn batch<'a>(&mut self) -> SendBatch<'a> {
        recycle(std::mem::take(&mut self.spare))
    }

    /// Submits all sends and appends one completion for each, in their order.
    pub fn submit(&mut self, batch: SendBatch<'_>, completions: &mut Vec<Completion>) {
        let places = self.ring.as_ref().map_or(usize::MAX, Ring::places);
        for sends in batch.sends.chunks(places) {
            self.outcomes.clear();
            self.outcomes.resize(sends.len(), None);
            if sends.len() >= RING_SENDS_MIN {
                self.submit_to_ring(sends, &batch.slices);
            }
            for (send, outcome) in sends.iter().zip(&self.outcomes) {
                completions.push(Completion {
                    token: send.token,
                    result: result(*outcome)
                        .unwrap_or_else(|| plain::send(send.socket, send.slices(&batch.slices))),
                });
            }
        }
        self.spare = recycle(batch);
    }

    /// Lets the ring do what it can. Sends that it did not begin have no outcome afterwards.
    fn submit_to_ring(&mut self, sends: &[Prepared<'_>], slices: &[IoSlice<'_>]) {
        let Some(ring) = &mut self.ring else { return };
        self.submissions += 1;
        if let Err(fault) = ring.submit(sends, slices, &mut self.outcomes) {
            self.path = Path::WithoutRing(fault);
            self.ring = None;
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What a send's outcome means; nothing when it is still to be done, as it is after a signal.
fn result(outcome: Outcome) -> Option<io::Result<usize>> {
    let outcome = outcome.filter(|&outcome| outcome != -libc::EINTR)?;
    Some(usize::try_from(outcome).map_err(|_| io::Error::from_raw_os_error(-outcome)))
}

/// Empties a batch and gives its memory another lifetime. Collecting an emptied vector into one of the same layout
/// keeps its allocation.
fn recycle<'b>(mut batch: SendBatch<'_>) -> SendBatch<'b> {
    batch.slices.clear();
    batch.sends.clear();
    SendBatch {
        slices: batch
            .slices
            .into_iter()
            .map(|_| IoSlice::new(&[]))
            .collect(),
        sends: batch
            .sends
            .into_iter()
            .map(|_| unreachable!("the batch was emptied"))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
