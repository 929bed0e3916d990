//! One shard's loop: its poll, its connections, the queue of connections to read, and the sends of a turn in slices.
//!
//! The poll is edge-triggered, so each connection remembers whether it may still have bytes to read and whether its
//! send buffer is full. The owner decides the meaning of bytes; the loop knows only bytes and ranges of turn logs.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::connection::{Connection, Connections, Key};
use crate::deadline_timer::DeadlineTimer;
use crate::memory_budget::{MemoryBudget, Share};
use crate::outbox::{LogRange, Outbox};
use crate::read_buffer::{ReadBuffer, ReadOutcome, Remainder};
use crate::read_queue::ReadQueue;
use crate::send_batch::{Completion, Path, SLICES_MAX, Sender};
use crate::tls::TlsState;
use crate::tls_send::Arena;
use crate::turn_log::TurnLogs;

mod settling;
mod without_socket;

pub use settling::{OutboxMarks, Settled};

/// Never the index of a connection, because the descriptor limit is far below.
const WAKER: Token = Token(usize::MAX);
/// Like [`WAKER`], never the index of a connection.
const DEADLINE_TIMER: Token = Token(usize::MAX - 1);

/// Readiness events that one poll takes from the kernel. Further ones stay there for the next turn.
const EVENTS_MAX: usize = 4096;

/// Sends of one slice of a flush. Between slices the owner polls its sockets, and small sends go first. On loopback
/// this many take half a millisecond, to thousands of sleeping readers one millisecond; 256 took 2 to 4 ms there,
/// 2,000 ten.
pub const SLICE_SENDS_MAX: usize = 64;

/// Before a flush of many sends the loop polls once for this many of them, and [`POLLS_MAX`] times at most. A poll
/// costs a fifteenth of a send, and input that it finds saves a second flush.
const SENDS_PER_POLL: usize = 4;

/// On loopback this many polls take as long as four sends.
const POLLS_MAX: usize = 64;

/// After this many polls without input, only one in this many small flushes polls. If messages come one by one, the
/// polls are the only avoidable cost, a hundredth of a flush to ten recipients.
const EMPTY_POLLS_MAX: u32 = 16;

/// Flushes of at least this many sends always poll: visiting all recipients twice costs a hundred times as much as
/// polling.
const POLL_ALWAYS_SENDS: usize = 256;

/// The requested sleep of [`EventLoop::sleep_and_poll`]. With the kernel's usual slack it takes about 80 µs, the time
/// of ten sends, in which a dozen messages arrive from a peer that sends them one by one.
const SLEEP: Duration = Duration::from_micros(30);

/// Counters of the loop since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounts {
    /// Sends, successful or not.
    pub sends: u64,
    /// Sends of which the kernel accepted only a part or nothing.
    pub short_sends: u64,
    /// Submissions to an `io_uring`, each of many sends.
    pub ring_submissions: u64,
    /// Bytes that the kernel accepted.
    pub bytes_out: u64,
    /// Bytes read.
    pub bytes_in: u64,
}

/// A queued send: ranges that are not yet in the connection's outbox, then the content of the outbox.
#[derive(Clone, Copy, Debug)]
struct Queued {
    key: Key,
    first: u32,
    count: u32,
}

/// A send of the slice that is being submitted.
#[derive(Clone, Debug)]
struct Submitted {
    queued: Queued,
    /// The sealed bytes, if the connection has TLS.
    sealed: Option<Range<usize>>,
}

/// A connection that left a loop, as [`EventLoop::add_with_tls`] takes it.
#[derive(Debug)]
pub struct Released<C> {
    /// The state of the loop's owner.
    pub state: C,
    /// The socket, which no loop watches now.
    pub socket: TcpStream,
    /// Bytes that were read and not handled.
    pub unread: Vec<u8>,
    /// The TLS state.
    pub tls: Option<Box<TlsState>>,
}

/// A shard's loop over its connections. `C` is the owner's state of each.
pub struct EventLoop<C> {
    poll: Poll,
    deadline_timer: DeadlineTimer,
    events: Events,
    connections: Connections<C>,
    to_read: ReadQueue,
    to_send: VecDeque<Queued>,
    /// The ranges of the queued sends, concatenated.
    ranges: Vec<LogRange>,
    /// Connections that have an outbox, and some that are closed.
    listed: Vec<Key>,
    /// Connections without a socket that have new output.
    filled: Vec<Key>,
    /// Received bytes of all connections that could not be handled yet.
    inbound_bytes: usize,
    /// Whether the waker ended the last poll.
    is_woken: bool,
    /// How many polls in a row before a flush found no input.
    empty_polls: u32,
    sender: Sender,
    completions: Vec<Completion>,
    slice: Vec<Submitted>,
    arena: Arena,
    counts: LoopCounts,
    /// The memory of the connections, as last reported.
    share: Share,
    outbox_bytes: usize,
}

impl<C> EventLoop<C> {
    /// A loop without connections that sends through `sender`, and a waker for other threads.
    ///
    /// # Errors
    /// The kernel has no descriptor for the poll, the waker or the deadline timer.
    pub fn new(budget: &MemoryBudget, sender: Sender) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let deadline_timer = DeadlineTimer::new()?;
        poll.registry().register(
            &mut SourceFd(&deadline_timer.fd()),
            DEADLINE_TIMER,
            Interest::READABLE,
        )?;
        let event_loop = Self {
            poll,
            deadline_timer,
            events: Events::with_capacity(EVENTS_MAX),
            connections: Connections::default(),
            to_read: ReadQueue::default(),
            to_send: VecDeque::new(),
            ranges: Vec::new(),
            listed: Vec::new(),
            filled: Vec::new(),
            inbound_bytes: 0,
            is_woken: false,
            empty_polls: 0,
            sender,
            completions: Vec::new(),
            slice: Vec::new(),
            arena: Arena::default(),
            counts: LoopCounts::default(),
            share: budget.share(),
            outbox_bytes: 0,
        };
        Ok((event_loop, waker))
    }

    /// The memory budget that all loops and their owners share.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        self.share.budget()
    }

    /// The connections.
    #[must_use]
    pub fn connections(&self) -> &Connections<C> {
        &self.connections
    }

    /// The connections.
    pub fn connections_mut(&mut self) -> &mut Connections<C> {
        &mut self.connections
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> LoopCounts {
        LoopCounts {
            ring_submissions: self.sender.submissions(),
            ..self.counts
        }
    }

    /// The path of sends to the kernel. It changes when an `io_uring` fails.
    #[must_use]
    pub fn send_path(&self) -> Path {
        self.sender.path()
    }

    /// Received bytes that could not be handled yet.
    #[must_use]
    pub fn inbound_bytes(&self) -> usize {
        self.inbound_bytes
    }

    /// Bytes in the memory of outboxes, as of the last [`EventLoop::settle`].
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox_bytes
    }

    /// Connections with an outbox.
    #[must_use]
    pub fn backlog_count(&self) -> usize {
        self.listed.len()
    }

    /// Marks the bytes that wait now and returns their connections; [`Connection::has_marked`] is true until they
    /// were sent.
    pub fn mark_backlog(&mut self) -> Vec<Key> {
        let mut keys = self.listed.clone();
        keys.retain(|key| {
            let connection = self.connections.get_mut(*key);
            let outbox = connection.and_then(|connection| connection.outbox.as_mut());
            outbox.is_some_and(|outbox| {
                outbox.mark();
                outbox.has_marked()
            })
        });
        keys
    }

    /// Adds a nonblocking socket. `unread` are bytes of its stream that were already read; the loop handles them
    /// first, without waiting for readiness.
    ///
    /// # Errors
    /// The kernel refuses to watch the socket.
    pub fn add(&mut self, socket: TcpStream, unread: &[u8], state: C) -> io::Result<Key> {
        self.add_with_tls(socket, unread, None, state)
    }

    /// The same for a connection after its TLS handshake, or one without TLS. `unread` is plaintext; still encrypted
    /// bytes of it are in the TLS state.
    ///
    /// # Errors
    /// The kernel refuses to watch the socket.
    pub fn add_with_tls(
        &mut self,
        socket: TcpStream,
        unread: &[u8],
        tls: Option<Box<TlsState>>,
        state: C,
    ) -> io::Result<Key> {
        let key = self.connections.next_key();
        let fd = socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut SourceFd(&fd), Token(key.index as usize), interest)?;
        let mut connection = Connection::new(state, Some(socket));
        connection.flags.reload = !unread.is_empty();
        // A TLS close message that was already read causes no event.
        connection.flags.readable = tls.as_ref().is_some_and(|tls| tls.is_peer_closed());
        connection.remainder = Remainder::from_unread(unread);
        connection.tls = tls;
        let key = self.connections.insert(connection);
        self.take_outgoing(key);
        self.recount(key, 0);
        self.queue_to_read(key);
        Ok(key)
    }

    /// Closes a connection and returns its owner's state. Unsent bytes are lost.
    pub fn remove(&mut self, key: Key) -> Option<C> {
        let state = self.remove_and_lend(key)?;
        self.connections.take_back(key);
        Some(state)
    }

    /// The same, but the connection's slot stays lent until [`Connections::take_back`].
    pub fn remove_and_lend(&mut self, key: Key) -> Option<C> {
        // Closing the descriptor removes it from the poll, because there is no copy of it.
        let connection = self.connections.remove_and_lend(key)?;
        self.inbound_bytes -= connection.inbound_bytes();
        let outbox_bytes = connection
            .outbox
            .as_ref()
            .map_or(0, |outbox| outbox.own_bytes());
        self.outbox_bytes = self.outbox_bytes.saturating_sub(outbox_bytes);
        // At once, so that no other holder is closed for the memory of this one.
        self.share.report(self.outbox_bytes + self.inbound_bytes, 0);
        Some(connection.state)
    }

    /// Takes a connection out of the loop, for another loop. Its slot stays lent until [`Connections::take_back`]. `None` if the connection
    /// has unsent bytes or no socket, or does not exist.
    ///
    /// # Errors
    /// The kernel still watches the socket. The connection is then closed.
    pub fn release(&mut self, key: Key) -> Option<io::Result<Released<C>>> {
        let connection = self.connections.get(key)?;
        if !connection.is_flushed() {
            return None;
        }
        connection.socket.as_ref()?;
        let connection = self.connections.remove_and_lend(key)?;
        self.inbound_bytes -= connection.inbound_bytes();
        let socket = connection.socket?;
        let fd = socket.as_raw_fd();
        let deregistered = self.poll.registry().deregister(&mut SourceFd(&fd));
        Some(deregistered.map(|()| Released {
            state: connection.state,
            socket,
            unread: connection.remainder.into_bytes(),
            tls: connection.tls,
        }))
    }

    /// Moves a connection to the lent slot `to`, and lends the slot that it leaves. The connection has no queued send. Unsent and unread bytes move
    /// with the connection.
    ///
    /// # Errors
    /// The kernel refuses to watch the socket under its new key. The connection is then at `to`, and its owner must remove it.
    pub fn relocate(&mut self, from: Key, to: Key) -> io::Result<()> {
        let Some(connection) = self.connections.relocate(from, to) else {
            return Ok(());
        };
        debug_assert!(
            !connection.flags.queued_to_send,
            "the queue of sends knows it by key"
        );
        // Entries with the old key in the queue of reads and in the list of outboxes find no connection and are dropped, so both are made
        // again. Events that the poll has not reported yet carry the old index. Registering again makes the kernel report the current
        // readiness under the new one, so no event is missed.
        let flags = &mut connection.flags;
        flags.queued_to_read = false;
        let fd = connection.socket.as_ref().map(AsRawFd::as_raw_fd);
        if flags.listed {
            self.listed.push(to);
        }
        self.queue_to_read(to);
        let Some(fd) = fd else {
            return Ok(());
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry.reregister(&mut SourceFd(&fd), Token(to.index as usize), interest)
    }

    /// Waits until a socket is ready, the waker was used, or `deadline` is reached, and records the ready sockets. It
    /// may return earlier at an earlier requested deadline.
    ///
    /// # Errors
    /// As for [`EventLoop::poll`].
    pub fn poll_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.deadline_timer.set(deadline)?;
        self.poll(None)
    }

    /// Waits until a socket is ready, `timeout` has passed, or the waker was used, and records the ready sockets.
    ///
    /// # Errors
    /// The poll itself failed, which no connection can cause.
    pub fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.is_woken = false;
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in &self.events {
            if event.token() == WAKER {
                self.is_woken = true;
                continue;
            }
            if event.token() == DEADLINE_TIMER {
                self.deadline_timer.expire();
                continue;
            }
            let index = event.token().0 as u32;
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            let Some(connection) = self.connections.at_mut(index) else {
                continue;
            };
            let flags = &mut connection.flags;
            // The owner must learn of a reset also while it pauses reading, because no further event reports it.
            flags.broken |= event.is_error();
            flags.paused &= !flags.broken;
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                flags.readable = true;
                flags.ended |= event.is_read_closed() || event.is_error();
                if !flags.paused && !flags.queued_to_read {
                    flags.queued_to_read = true;
                    self.to_read.push(key, flags.expensive);
                }
            }
            if event.is_writable() && flags.blocked {
                flags.blocked = false;
                if connection.outbox.is_some() && !flags.queued_to_send {
                    flags.queued_to_send = true;
                    self.to_send.push_back(Queued {
                        key,
                        first: 0,
                        count: 0,
                    });
                }
            }
        }
        Ok(())
    }

    /// Polls a few times, without waiting, before a flush of `send_count` sends; true if input has arrived. After
    /// polls without input a small flush mostly skips this.
    ///
    /// # Errors
    /// As for [`EventLoop::poll`].
    pub fn poll_repeatedly(&mut self, send_count: usize) -> io::Result<bool> {
        let polls = (send_count / SENDS_PER_POLL).min(POLLS_MAX);
        if polls == 0 {
            return Ok(false);
        }
        let is_vain = self.empty_polls >= EMPTY_POLLS_MAX
            && !self.empty_polls.is_multiple_of(EMPTY_POLLS_MAX)
            && send_count < POLL_ALWAYS_SENDS;
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if is_vain {
            return Ok(false);
        }
        for _ in 0..polls {
            if self.poll_again()? {
                self.empty_polls = 0;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps briefly and then polls. During the sleep no peer has to wake this thread, and other threads may use its
    /// core.
    ///
    /// # Errors
    /// As for [`EventLoop::poll`].
    pub fn sleep_and_poll(&mut self) -> io::Result<bool> {
        std::thread::sleep(SLEEP);
        self.poll_again()
    }

    /// Polls once, without waiting; true if a connection is readable or the mailbox has entries.
    ///
    /// # Errors
    /// As for [`EventLoop::poll`].
    pub fn poll_again(&mut self) -> io::Result<bool> {
        self.poll(Some(Duration::ZERO))?;
        Ok(self.is_woken || self.readable_count() > 0)
    }

    /// The number of connections that wait to be read.
    #[must_use]
    pub fn readable_count(&self) -> usize {
        self.to_read.len()
    }

    /// Whether the next connection to be read is one whose last read was expensive.
    #[must_use]
    pub fn is_next_expensive(&self) -> bool {
        self.to_read.is_next_expensive()
    }

    /// Whether sends are queued.
    #[must_use]
    pub fn has_sends(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Reads the next connection of the queue into `buffer`; `None` if the queue is empty. A connection that may have
    /// more bytes goes to the end of its queue.
    pub fn read_next(&mut self, buffer: &mut ReadBuffer) -> Option<(Key, ReadOutcome)> {
        while let Some(key) = self.to_read.pop() {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.flags.queued_to_read = false;
            if connection.flags.paused {
                continue;
            }
            return Some((key, self.read(key, buffer)));
        }
        None
    }

    fn read(&mut self, key: Key, buffer: &mut ReadBuffer) -> ReadOutcome {
        let Some(connection) = self.connections.get_mut(key) else {
            return ReadOutcome::Drained(0);
        };
        if std::mem::take(&mut connection.flags.reload) && !connection.flags.broken {
            buffer.load(&mut connection.remainder);
            self.queue_to_read(key);
            return ReadOutcome::More(0);
        }
        let is_encrypted = connection.tls.is_some();
        let Some(socket) = &connection.socket else {
            return ReadOutcome::Drained(0);
        };
        let outcome = match connection.tls.as_deref_mut() {
            None => buffer.read(socket, &mut connection.remainder),
            Some(tls) => buffer.read_sealed(socket, tls, &mut connection.remainder),
        };
        if let ReadOutcome::Drained(count) | ReadOutcome::More(count) = &outcome {
            connection.traffic.bytes_in += *count as u64;
        }
        match outcome {
            // The last bytes may come together with the end of the stream, and then no further event reports the end.
            ReadOutcome::Drained(count) if count == 0 || !connection.flags.ended => {
                connection.flags.readable = false
            }
            ReadOutcome::Drained(_) | ReadOutcome::More(_) => self.queue_to_read(key),
            ReadOutcome::End | ReadOutcome::Failed(_) => connection.flags.readable = false,
        }
        match &outcome {
            ReadOutcome::Drained(count) | ReadOutcome::More(count) => {
                self.counts.bytes_in += *count as u64;
                if is_encrypted {
                    self.take_outgoing(key);
                }
            }
            ReadOutcome::Failed(_) => self.send_alert(key),
            ReadOutcome::End => {}
        }
        outcome
    }

    /// Queues TLS's own records.
    fn take_outgoing(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Some(tls) = connection.tls.as_deref_mut()
            && tls.has_outgoing()
        {
            let outgoing = tls.take_outgoing();
            connection
                .outbox
                .get_or_insert_default()
                .push_sealed(&outgoing);
            self.list_and_queue(key);
        }
    }

    /// Tries to send the peer a TLS alert. Not after waiting bytes, because that peer is not reading.
    fn send_alert(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && let Some(tls) = connection.tls.as_deref_mut()
            && connection.outbox.is_none()
            && let Some(mut socket) = connection.socket.as_ref()
        {
            // The connection closes in any case.
            let _ = socket.write(&tls.take_outgoing());
        }
    }

    /// Counts the received bytes that wait with this connection: `owner_bytes` of its owner, and the rest of its last
    /// read.
    pub fn recount(&mut self, key: Key, owner_bytes: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            let sealed = connection.tls.as_ref().map_or(0, |tls| tls.kept_bytes());
            let bytes = owner_bytes + connection.remainder.capacity() + sealed;
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.inbound_bytes -= connection.inbound_bytes();
            self.inbound_bytes += bytes as usize;
            connection.counted_bytes = bytes;
        }
    }

    /// Stores the rest of `buffer` with its connection until it has `needed` bytes.
    pub fn store_rest(&mut self, key: Key, buffer: &mut ReadBuffer, needed: usize) {
        match self.connections.get_mut(key) {
            Some(connection) => buffer.store_rest(&mut connection.remainder, needed),
            None => buffer.discard(),
        }
    }

    /// Stops reading a connection, until [`EventLoop::resume`].
    pub fn pause(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.flags.paused = !connection.flags.broken;
        }
    }

    /// Reads a connection again: first its stored bytes, then its socket.
    pub fn resume(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.flags.paused = false;
            connection.flags.reload = connection.remainder.has_bytes();
            self.queue_to_read(key);
        }
    }

    fn queue_to_read(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            let flags = &mut connection.flags;
            if (flags.readable || flags.reload) && !flags.paused && !flags.queued_to_read {
                flags.queued_to_read = true;
                self.to_read.push(key, flags.expensive);
            }
        }
    }

    /// Notes whether the last read of a connection was expensive. Until a read is cheap again, the connection is read behind those whose
    /// reads are cheap.
    pub fn note_cost(&mut self, key: Key, is_expensive: bool) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.flags.expensive = is_expensive;
        }
    }

    /// Appends ranges of a turn log to the sends of a connection. All calls of a turn for one connection make one
    /// send.
    pub fn push_ranges(&mut self, key: Key, ranges: impl Iterator<Item = LogRange>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.outbox.is_some()
            || connection.flags.queued_to_send
            || connection.socket.is_none()
        {
            let outbox = connection.outbox.get_or_insert_default();
            ranges.for_each(|range| outbox.push_range(range));
            self.list_and_queue(key);
            return;
        }
        let first = self.ranges.len();
        self.ranges.extend(ranges);
        let count = self.ranges.len() - first;
        if count == 0 {
            return;
        }
        connection.flags.queued_to_send = true;
        self.to_send.push_back(Queued {
            key,
            first: first as u32,
            count: count as u32,
        });
    }

    /// Appends bytes for this connection alone.
    pub fn push_bytes(&mut self, key: Key, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.outbox.get_or_insert_default().push_own(bytes);
            self.list_and_queue(key);
        }
    }

    /// The same for the last bytes of a connection: with TLS its close message follows them.
    pub fn push_last(&mut self, key: Key, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.flags.ending = true;
        }
        self.push_bytes(key, bytes);
    }

    fn list_and_queue(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let flags = &mut connection.flags;
        if !flags.listed {
            flags.listed = true;
            self.listed.push(key);
        }
        if !flags.blocked && !flags.queued_to_send {
            flags.queued_to_send = true;
            if connection.socket.is_none() {
                return self.filled.push(key);
            }
            self.to_send.push_back(Queued {
                key,
                first: 0,
                count: 0,
            });
        }
    }

    /// Requests a report to the owner, at the end of this turn or a later one, when few bytes wait for the
    /// connection.
    pub fn await_drained(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            let flags = &mut connection.flags;
            flags.awaited = true;
            if !flags.listed {
                flags.listed = true;
                self.listed.push(key);
            }
        }
    }

    /// The number of queued sends.
    #[must_use]
    pub fn send_count(&self) -> usize {
        self.to_send.len()
    }

    /// Moves the last `count` sends of the queue to its front, in their order. Each connection has at most one send
    /// in the queue, so none of them overtakes bytes of the same connection.
    ///
    /// # Panics
    /// The queue has fewer, which is a defect of the caller.
    pub fn send_first(&mut self, count: usize) {
        self.to_send.rotate_right(count);
    }

    /// Submits the next slice of the queued sends. Appends connections with a broken socket to `broken`; their owner
    /// removes them.
    pub fn submit_slice(&mut self, logs: &TurnLogs, broken: &mut Vec<Key>) {
        self.collect_slice(logs, broken);
        let mut batch = self.sender.batch();
        // In a large fan-out nearly every recipient gets the same range as the one before.
        let mut last: Option<(&LogRange, &[u8])> = None;
        for (token, submitted) in (0u32..).zip(&self.slice) {
            let Some(connection) = self.connections.get(submitted.queued.key) else {
                continue;
            };
            let outbox = connection.outbox.as_deref();
            // A connection without a socket is never in the queue of sends.
            let Some(socket) = connection.socket.as_ref().map(AsFd::as_fd) else {
                continue;
            };
            match (&submitted.sealed, ranges_of(&self.ranges, submitted.queued)) {
                (None, [range]) if outbox.is_none() => {
                    let bytes = match last {
                        Some((known, bytes)) if known == range => bytes,
                        _ => logs.slice(range.format, &range.range),
                    };
                    last = Some((range, bytes));
                    batch.push(token, socket, [io::IoSlice::new(bytes)]);
                }
                (None, new) => {
                    let slices = new
                        .iter()
                        .map(|range| logs.slice(range.format, &range.range))
                        .chain(outbox.into_iter().flat_map(|outbox| outbox.slices(logs)));
                    batch.push(token, socket, slices.map(io::IoSlice::new));
                }
                (Some(sealed), _) => {
                    let slices = [
                        outbox.map_or(&[][..], Outbox::sealed),
                        self.arena.slice(sealed),
                    ];
                    let slices = slices.into_iter().filter(|slice| !slice.is_empty());
                    batch.push(token, socket, slices.map(io::IoSlice::new));
                }
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.sender.submit(batch, &mut completions);
        for Completion { token, result } in completions.drain(..) {
            let Submitted { queued, sealed } = self.slice[token as usize].clone();
            match sealed {
                None => self.complete(queued, result, broken),
                Some(sealed) => self.complete_sealed(queued, &sealed, result, broken),
            }
        }
        self.completions = completions;
        if self.to_send.is_empty() {
            self.ranges.clear();
        }
    }

    /// Takes the next sends out of the queue and seals those with TLS.
    fn collect_slice(&mut self, logs: &TurnLogs, broken: &mut Vec<Key>) {
        self.slice.clear();
        self.arena.clear();
        while self.slice.len() < SLICE_SENDS_MAX
            && !self.arena.is_full()
            && let Some(queued) = self.to_send.pop_front()
        {
            let Some(connection) = self.connections.get_mut(queued.key) else {
                continue;
            };
            let mut sealed = None;
            if connection.tls.is_some() {
                let new = ranges_of(&self.ranges, queued);
                match self.arena.seal(connection, new, logs) {
                    Ok(range) => sealed = Some(range),
                    Err(_) => {
                        broken.push(queued.key);
                        continue;
                    }
                }
            }
            self.slice.push(Submitted { queued, sealed });
        }
    }

    /// Records the result of a send with TLS. The connection keeps its sealed bytes.
    fn complete_sealed(
        &mut self,
        queued: Queued,
        sealed: &Range<usize>,
        result: io::Result<usize>,
        broken: &mut Vec<Key>,
    ) {
        let Some(connection) = self.connections.get_mut(queued.key) else {
            return;
        };
        connection.flags.queued_to_send = false;
        self.counts.sends += 1;
        let sent = match result {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return broken.push(queued.key),
        };
        self.counts.bytes_out += sent as u64;
        connection.traffic.bytes_out += sent as u64;
        let waiting = connection
            .outbox
            .as_ref()
            .map_or(0, |outbox| outbox.sealed().len());
        let is_short = sent < waiting + sealed.len();
        if is_short {
            let outbox = connection.outbox.get_or_insert_default();
            outbox.advance_sealed(sent.min(waiting));
            let of_arena = sent.saturating_sub(waiting);
            outbox.push_sealed(&self.arena.slice(sealed)[of_arena..]);
        } else if let Some(outbox) = &mut connection.outbox {
            outbox.advance_sealed(waiting);
        }
        connection.flags.blocked = is_short;
        self.counts.short_sends += u64::from(is_short);
        match &connection.outbox {
            Some(outbox) if outbox.is_empty() => connection.outbox = None,
            Some(_) => self.list_and_queue(queued.key),
            None => {}
        }
    }

    fn complete(&mut self, queued: Queued, result: io::Result<usize>, broken: &mut Vec<Key>) {
        let Some(connection) = self.connections.get_mut(queued.key) else {
            return;
        };
        connection.flags.queued_to_send = false;
        self.counts.sends += 1;
        let new = ranges_of(&self.ranges, queued);
        // The usual result: one range, completely sent, and an empty outbox.
        if let (Ok(sent), [range], None) = (&result, new, &connection.outbox)
            && *sent == range.bytes()
        {
            self.counts.bytes_out += *sent as u64;
            connection.traffic.bytes_out += *sent as u64;
            return;
        }
        let mut sent = match result {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return broken.push(queued.key),
        };
        self.counts.bytes_out += sent as u64;
        connection.traffic.bytes_out += sent as u64;
        let old_count = connection
            .outbox
            .as_ref()
            .map_or(0, |outbox| outbox.piece_count());
        let submitted_bytes = submitted_bytes(new, connection.outbox.as_deref());
        let is_short = sent < submitted_bytes;
        let all_sent = !is_short && new.len() + old_count <= SLICES_MAX;
        if all_sent {
            connection.outbox = None;
            return;
        }
        let outbox = connection.outbox.get_or_insert_default();
        let mut left = Vec::new();
        for range in new {
            let here = range.bytes().min(sent);
            sent -= here;
            if here < range.bytes() {
                let range_left = range.range.start + here as u64..range.range.end;
                left.push(LogRange {
                    format: range.format,
                    range: range_left,
                });
            }
        }
        outbox.advance(sent);
        left.into_iter()
            .rev()
            .for_each(|range| outbox.push_range_front(range));
        connection.flags.blocked = is_short;
        self.counts.short_sends += u64::from(is_short);
        self.list_and_queue(queued.key);
    }

    /// Memory of this connection alone: its outbox and its incomplete input.
    #[must_use]
    pub fn held_bytes(&self, key: Key) -> usize {
        self.connections.get(key).map_or(0, Connection::held_bytes)
    }

    /// All connections with their own memory.
    pub fn holders(&self) -> impl Iterator<Item = (usize, Key)> {
        self.connections
            .keys()
            .map(|key| (self.held_bytes(key), key))
    }
}

fn ranges_of(ranges: &[LogRange], queued: Queued) -> &[LogRange] {
    &ranges[queued.first as usize..][..queued.count as usize]
}

/// Bytes of the slices of one send.
fn submitted_bytes(new: &[LogRange], outbox: Option<&Outbox>) -> usize {
    let of_new: usize = new.iter().take(SLICES_MAX).map(LogRange::bytes).sum();
    let room = SLICES_MAX.saturating_sub(new.len());
    of_new + outbox.map_or(0, |outbox| outbox.bytes_of_pieces(room))
}
