//! The sends of a turn: collected, submitted together, their completions counted.
//!
//! On Linux they leave in one submission to an `io_uring`. If that is missing, refused or disabled, each is one
//! system call. Every send carries MSG_DONTWAIT, so all of them are complete when [`Sender::submit`] returns and the
//! bytes that they borrowed are free again.

mod ring;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use ring::{Outcome, Ring};

pub use ring::RingFault;

/// A send never waits for room, and never kills the process because the peer has closed.
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Fewer sends than this are cheaper as separate system calls: one costs 7 % more through the ring, each of two 4 %
/// less, each of three 16 % less.
const RING_SENDS_MIN: usize = 2;

/// The kernel refuses more slices than this (IOV_MAX); the rest goes with the next send.
pub const SLICES_MAX: usize = 1024;

/// Sends in one submission. Between two submissions the shard polls its sockets and its mailbox.
pub const SENDS_MAX: usize = 2000;

/// Collected sends. Their bytes stay borrowed until they are submitted.
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

/// The result of one send.
#[derive(Debug)]
pub struct Completion {
    /// The token of [`SendBatch::push`].
    pub token: u32,
    /// Bytes that the kernel accepted. Fewer than submitted, or `WouldBlock`, if its buffer is full.
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

    /// The number of added sends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }
}

/// The path of sends to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// Many in one submission to an `io_uring`.
    Ring,
    /// One system call for each, as configured.
    #[default]
    Plain,
    /// One system call for each, because the ring was refused at the start or failed later.
    WithoutRing(RingFault),
}

impl Path {
    /// The name of the path in metrics.
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
    /// A sender that uses a ring if the kernel provides a working one, which this tests.
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

    /// A sender that makes a system call for each send.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// The path of sends to the kernel. It changes when a ring fails.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Submissions to the ring so far.
    #[must_use]
    pub fn submissions(&self) -> u64 {
        self.submissions
    }

    /// An empty batch in reused memory.
    pub fn batch<'a>(&mut self) -> SendBatch<'a> {
        recycle(std::mem::take(&mut self.spare))
    }

    /// Submits all sends and appends one completion for each, in their order.
    pub fn submit(&mut self, batch: SendBatch<'_>, completions: &mut Vec<Completion>) {
        let entries = self.ring.as_ref().map_or(usize::MAX, Ring::entries);
        for sends in batch.sends.chunks(entries) {
            self.outcomes.clear();
            self.outcomes.resize(sends.len(), None);
            if sends.len() >= RING_SENDS_MIN {
                self.submit_to_ring(sends, &batch.slices);
            }
            for (send, outcome) in sends.iter().zip(&self.outcomes) {
                completions.push(Completion {
                    token: send.token,
                    result: result(*outcome)
                        .unwrap_or_else(|| send_plainly(send.socket, send.slices(&batch.slices))),
                });
            }
        }
        self.spare = recycle(batch);
    }

    /// Submits through the ring. Sends that the ring did not begin have no outcome afterwards.
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

/// The result of a send's outcome; nothing if the send must still be done, as after a signal.
fn result(outcome: Outcome) -> Option<io::Result<usize>> {
    let outcome = outcome.filter(|&outcome| outcome != -libc::EINTR)?;
    Some(usize::try_from(outcome).map_err(|_| io::Error::from_raw_os_error(-outcome)))
}

/// Sends with one system call, nonblocking and without a signal on a closed connection. Every kernel supports it, and a single send uses
/// it in any case.
fn send_plainly(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let sent = if let [slice] = slices {
            // SAFETY: pointer and length belong to a live slice, which the call only reads.
            unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    slice.as_ptr().cast(),
                    slice.len(),
                    FLAGS,
                )
            }
        } else {
            let message = message(slices);
            // SAFETY: the header's array and all it points to live through the call, which only reads them.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &message, FLAGS) }
        };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The header of a send of several slices. It points to them; the caller must keep them alive.
fn message(slices: &[IoSlice<'_>]) -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: no address, no buffers, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` has the layout of `iovec`. The kernel only reads what a send points to.
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    message
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
            .map(|_| unreachable!("the batch is empty"))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
