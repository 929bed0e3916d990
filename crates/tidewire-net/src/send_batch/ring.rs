//! Many sends in one submission to an `io_uring`.
//!
//! Every send carries MSG_DONTWAIT, with which the kernel completes it inside the submission or not at all. So the
//! usual submission is one system call, and its completions are in the queue when that returns. [`Ring::submit`]
//! still counts them all and does not return before each send that the kernel accepted is complete. Nothing is in
//! flight between two calls, so the ring needs no flags, no registered resources and no additional thread (decision
//! 5).

use std::fmt;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, opcode, squeue, types};

use super::{FLAGS, Prepared, SENDS_MAX, message};

/// Entries of the queue: a power of two for all sends between two polls of a shard. With a waiting reader for each,
/// 1,000 sends in one submission cost a sixth less than in four.
const ENTRIES: u32 = SENDS_MAX.next_power_of_two() as u32;

/// How often the ring retries while the kernel has no memory for requests, before it is dropped.
const STALLS_MAX: u32 = 16;

/// One send carries at most this many bytes; the rest is a short send.
const SEND_BYTES_MAX: usize = 1 << 30;

/// Why a ring is not used, or no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFault {
    /// The attempted action.
    pub action: &'static str,
    /// The kernel's answer.
    pub errno: i32,
}

impl RingFault {
    fn new(action: &'static str, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Self { action, errno }
    }
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "{} failed: {error}", self.action)
    }
}

/// The outcome of a send: none yet, or the kernel's result (bytes, or a negated error number).
pub(super) type Outcome = Option<i32>;

/// An `io_uring` without sends in flight between its submissions.
pub(super) struct Ring {
    ring: IoUring,
    /// The headers of this submission's sends of several slices. Reserved before any is pushed: they must not move.
    headers: Vec<Header>,
    /// Results of the next calls of `io_uring_enter`, which then do not reach the kernel.
    #[cfg(test)]
    planted: std::collections::VecDeque<i32>,
}

struct Header(libc::msghdr);

// SAFETY: its pointers mean something only inside `Ring::submit`, which runs on one thread.
unsafe impl Send for Header {}

impl Ring {
    /// Creates a ring and sends through it once in both forms. A kernel or a filter of system calls may refuse the
    /// setup, the submission or the operation; this detects all three.
    pub(super) fn new() -> Result<Self, RingFault> {
        Self::with_entries(ENTRIES)
    }

    /// The same with a queue of this many entries.
    pub(super) fn with_entries(entries: u32) -> Result<Self, RingFault> {
        let setup = |error: io::Error| RingFault::new("io_uring_setup", &error);
        let mut ring = Self {
            ring: IoUring::new(entries).map_err(setup)?,
            headers: Vec::new(),
            #[cfg(test)]
            planted: std::collections::VecDeque::new(),
        };
        ring.probe()?;
        Ok(ring)
    }

    /// The largest number of sends in one submission.
    pub(super) fn entries(&self) -> usize {
        self.ring.params().sq_entries() as usize
    }

    fn probe(&mut self) -> Result<(), RingFault> {
        const PROBE: &str = "a test send through io_uring";
        let system = |error: io::Error| RingFault::new(PROBE, &error);
        let (near, mut far) = UnixStream::pair().map_err(system)?;
        let slices = [&b"one"[..], b"t", b"wo"].map(IoSlice::new);
        let send = |first, count| Prepared {
            token: 0,
            socket: near.as_fd(),
            first,
            count,
        };
        let mut outcomes = [None; 2];
        self.submit(&[send(0, 1), send(1, 2)], &slices, &mut outcomes)?;
        for outcome in outcomes {
            if outcome != Some(3) {
                let errno = outcome
                    .map_or(libc::EIO, i32::saturating_neg)
                    .max(libc::EPERM);
                return Err(RingFault {
                    action: PROBE,
                    errno,
                });
            }
        }
        let mut received = [0; 6];
        far.read_exact(&mut received).map_err(system)?;
        match &received {
            b"onetwo" => Ok(()),
            _ => Err(system(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Submits at most as many sends as there are entries and waits until each that the kernel accepted is complete.
    /// `outcomes`, one for each and all of them `None`, get the results.
    ///
    /// # Errors
    /// The ring no longer works and must be dropped. A send without an outcome was not begun.
    pub(super) fn submit(
        &mut self,
        sends: &[Prepared<'_>],
        slices: &[IoSlice<'_>],
        outcomes: &mut [Outcome],
    ) -> Result<(), RingFault> {
        self.push(sends, slices);
        let mut open = sends.len();
        let mut stalls = 0;
        while open > 0 {
            let queued = self.ring.submission().len();
            // The first submission does not wait. If the kernel accepted all entries and some are incomplete, the
            // next call waits for these.
            let wanted = if queued == 0 { open } else { 0 };
            let entered = self.enter(wanted);
            let reaped = self.reap(outcomes);
            open -= reaped;
            if reaped > 0 {
                stalls = 0;
                continue;
            }
            stalls += 1;
            match entered {
                Err(error) if stalls > STALLS_MAX || !is_transient(&error) => {
                    self.give_up(open, &error)?;
                }
                // The kernel reports success, but no send has completed.
                Ok(()) if stalls > STALLS_MAX => {
                    self.give_up(open, &io::Error::from_raw_os_error(libc::EIO))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, sends: &[Prepared<'_>], slices: &[IoSlice<'_>]) {
        assert!(
            sends.len() <= self.entries(),
            "the queue has an entry for each send"
        );
        self.headers.clear();
        self.headers.reserve(sends.len());
        let mut queue = self.ring.submission();
        debug_assert!(queue.is_empty(), "every submission leaves the queue empty");
        for (index, send) in sends.iter().enumerate() {
            let entry = entry(send, send.slices(slices), &mut self.headers);
            // SAFETY: socket, slices and header live, unmoved, until `submit` returns, which is after the completion
            // of every entry that the kernel took; the others are never submitted, because the ring is dropped.
            let pushed = unsafe { queue.push(&entry.user_data(index as u64)) };
            assert!(pushed.is_ok(), "the queue has an entry for each send");
        }
    }

    /// Passes the queued entries to the kernel, and waits for this many completions.
    fn enter(&mut self, wanted: usize) -> io::Result<()> {
        #[cfg(test)]
        if let Some(errno) = self.planted.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // If completions have overflowed their queue, this fetches them, too.
        self.ring.submit_and_wait(wanted).map(drop)
    }

    /// Takes the completions out of their queue; returns the number of sends that they complete.
    fn reap(&mut self, outcomes: &mut [Outcome]) -> usize {
        let mut reaped = 0;
        for completion in self.ring.completion() {
            let index = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            if let Some(outcome @ None) = outcomes.get_mut(index) {
                *outcome = Some(completion.result());
                reaped += 1;
            }
        }
        reaped
    }

    /// Ends a stuck submission, `open` of whose sends have no outcome.
    fn give_up(&mut self, open: usize, error: &io::Error) -> Result<(), RingFault> {
        let in_flight = open - self.ring.submission().len();
        if in_flight > 0 {
            // The kernel may still read the buffers of these sends, whose owners free them when this returns or
            // unwinds. The sends can't be awaited, and MSG_DONTWAIT should rule them out; so the process must abort.
            eprintln!("tidewire: can't wait for {in_flight} sends that are in flight: {error}");
            std::process::abort();
        }
        Err(RingFault::new("io_uring_enter", error))
    }
}

fn entry(send: &Prepared<'_>, slices: &[IoSlice<'_>], headers: &mut Vec<Header>) -> squeue::Entry {
    let socket = types::Fd(send.socket.as_raw_fd());
    if let [slice] = slices {
        let length = slice.len().min(SEND_BYTES_MAX) as u32;
        return opcode::Send::new(socket, slice.as_ptr(), length)
            .flags(FLAGS)
            .build();
    }
    headers.push(Header(message(slices)));
    let header = headers
        .last()
        .map_or(std::ptr::null(), |header| &raw const header.0);
    opcode::SendMsg::new(socket, header)
        .flags(FLAGS as u32)
        .build()
}

/// Whether a retry may help: a signal, no memory for requests, unfetched completions.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

/// A misbehaving kernel, for the tests of this module's parent.
#[cfg(test)]
impl Ring {
    /// The next calls of `io_uring_enter` fail so without reaching the kernel.
    pub(super) fn plant(&mut self, errnos: impl IntoIterator<Item = i32>) {
        self.planted.extend(errnos);
    }

    /// Leaves `rounds` queues full of unrequested completions; returns their number.
    pub(super) fn overfill_completions(&mut self, rounds: usize) -> usize {
        for _ in 0..rounds * self.entries() {
            if self.ring.submission().is_full() {
                self.ring.submit().unwrap();
            }
            let entry = opcode::Nop::new().build().user_data(u64::MAX);
            // SAFETY: the operation has no parameters.
            unsafe { self.ring.submission().push(&entry).unwrap() };
        }
        self.ring.submit().unwrap();
        let completions = self.ring.completion();
        assert!(completions.is_full(), "the completion queue is full");
        completions.len()
    }
}
