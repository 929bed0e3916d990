//! The channel of a session without a socket, between its shard and a task of the front, such as an HTTP request. The other end is
//! in `carried_session.rs`.
//!
//! The messages of the engine go in both directions, in order, as owned values (`request.rs`, `reply.rs`). So such a session uses the same
//! code for login, permission, limits and metrics as one with a socket. Decision: 0020.
//!
//! Towards the shard, the front limits the messages: it accepts a limited number of requests at a time, each of limited size. Towards the
//! task, the outbox marks do: beyond them the session lags, and then it is ended, like a socket that is not read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidewire_core::effect::CloseReason;
use tidewire_net::connection::Key;
use tokio::sync::Notify;

use super::peer::PeerDetails;
use super::reply::Replies;
use super::request::OwnedRequest;
use crate::outlet::Outlet;
use crate::share::Standing;

/// Why a session was ended by its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine closes it.
    Engine(CloseReason),
    /// Too many bytes waited for it.
    Slow,
    /// Its user has used up its share of the places for requests.
    Share,
    /// The server stops.
    GoingAway,
    /// An operator has closed it.
    Operator,
    /// It has lost a right. It did not take the messages that were decided before in time, or must not take them.
    Severed,
}

/// The intended lifetime of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// One request. Presence does not count it.
    Passing {
        /// Bytes that may wait for it. The task requests all of them itself, and takes them at once.
        bytes_max: usize,
    },
    /// As long as its peer stays. As many bytes may wait for it as for a socket.
    Lasting {
        /// Whether it takes the newest value of a record in place of each change if it lags.
        coalesces: bool,
    },
}

/// Replies that wait for the task. A chunk has the replies of one turn.
#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Replies>,
    bytes: usize,
    end: Option<End>,
    /// The shard needs a notice when at most this many bytes wait.
    drain_to: Option<usize>,
    /// The shard needs a notice when the task has taken this many more chunks and handed them on.
    marked: Option<usize>,
    /// Whether the task has a chunk that it did not hand on yet.
    is_handing_on: bool,
}

/// A chunk that a task takes out of its channel.
pub(crate) struct Popped {
    pub(crate) chunk: Result<Replies, End>,
    /// Whether few bytes are left and the shard waits for that notice.
    pub(crate) has_drained: bool,
}

/// The shared part of a channel.
#[derive(Debug)]
pub(crate) struct Carrier {
    queue: Mutex<Queue>,
    pub(crate) filled: Notify,
    /// The session's key at its shard. Set before the shard handles any other mail about it.
    pub(crate) key: OnceLock<Key>,
    /// Bytes that wait in all channels of the shard.
    queued_bytes: Arc<AtomicUsize>,
    /// The outlet through which the task hands on its chunks, if handing on takes time.
    pub(crate) outlet: OnceLock<Arc<Outlet>>,
    /// Data that the webhook gives to clients that log in over HTTP, as JSON; set before the login is answered.
    pub(crate) token: OnceLock<String>,
}

impl Carrier {
    /// An empty channel. `queued_bytes` counts the bytes that wait in all channels of the shard.
    pub(crate) fn new(queued_bytes: Arc<AtomicUsize>) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            key: OnceLock::new(),
            queued_bytes,
            outlet: OnceLock::new(),
            token: OnceLock::new(),
        }
    }

    /// Appends a chunk for the task. Returns the number of bytes that wait now.
    pub(crate) fn push(&self, chunk: Replies) -> usize {
        let mut queue = self.queue.lock();
        queue.bytes += chunk.bytes();
        self.queued_bytes
            .fetch_add(chunk.bytes(), Ordering::Relaxed);
        queue.chunks.push_back(chunk);
        let bytes = queue.bytes;
        drop(queue);
        self.filled.notify_one();
        bytes
    }

    /// Bytes that the task has not taken yet.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Ends the channel. The task can still read the chunks that wait.
    pub(crate) fn end(&self, end: End) {
        self.queue.lock().end.get_or_insert(end);
        self.filled.notify_one();
    }

    /// Removes the bytes that wait. Bytes that the task has handed on and that the kernel does not have yet can't be removed. In that
    /// case the session ends together with its connection. Returns false if no bytes were affected.
    pub(crate) fn take_back(&self) -> bool {
        let mut queue = self.queue.lock();
        if queue.bytes == 0 && !queue.is_handing_on {
            return false;
        }
        self.queued_bytes.fetch_sub(queue.bytes, Ordering::Relaxed);
        queue.bytes = 0;
        queue.chunks.clear();
        queue.marked = None;
        let outlet = self.outlet.get().filter(|_| queue.is_handing_on);
        if outlet.is_some() {
            queue.end = Some(End::Severed);
        }
        drop(queue);
        if let Some(outlet) = outlet {
            outlet.shut();
        }
        self.filled.notify_one();
        true
    }

    /// Requests a notice to the shard when all bytes that wait now, or that the task holds, were handed on. Returns false if no bytes are
    /// left.
    pub(crate) fn mark(&self) -> bool {
        let mut queue = self.queue.lock();
        let count = queue.chunks.len();
        let is_something = count > 0 || queue.is_handing_on;
        queue.marked = is_something.then_some(count);
        is_something
    }

    /// Whether marked bytes were not handed on yet.
    pub(crate) fn has_marked(&self) -> bool {
        self.queue.lock().marked.is_some()
    }

    /// Notes that the task has handed on the bytes that it took. Returns true if these were all marked bytes.
    pub(crate) fn hand_on(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.is_handing_on = false;
        queue.marked.take_if(|count| *count == 0).is_some()
    }

    /// Requests a notice to the shard when at most `bytes` wait. Returns false if no more than that wait now.
    pub(crate) fn await_drained(&self, bytes: usize) -> bool {
        let mut queue = self.queue.lock();
        let is_full = queue.bytes > bytes;
        queue.drain_to = is_full.then_some(bytes);
        is_full
    }

    /// Takes the next chunk.
    pub(crate) fn pop(&self) -> Option<Popped> {
        let mut queue = self.queue.lock();
        let Some(chunk) = queue.chunks.pop_front() else {
            return queue.end.map(|end| Popped {
                chunk: Err(end),
                has_drained: false,
            });
        };
        queue.bytes -= chunk.bytes();
        self.queued_bytes
            .fetch_sub(chunk.bytes(), Ordering::Relaxed);
        let bytes = queue.bytes;
        let has_drained = queue.drain_to.take_if(|mark| bytes <= *mark).is_some();
        queue.marked = queue.marked.map(|count| count.saturating_sub(1));
        queue.is_handing_on = true;
        Some(Popped {
            chunk: Ok(chunk),
            has_drained,
        })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let bytes = self.queue.get_mut().bytes;
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Mail to a shard about sessions without a socket.
#[derive(Debug)]
pub(crate) enum CarriedMail {
    /// A new session with its first requests.
    Open {
        carrier: Arc<Carrier>,
        peer: Arc<PeerDetails>,
        standing: Option<Arc<Standing>>,
        stay: Stay,
        requests: Vec<OwnedRequest>,
    },
    /// More requests.
    Requests {
        carrier: Arc<Carrier>,
        requests: Vec<OwnedRequest>,
    },
    /// Few bytes still wait for the task.
    Drained(Arc<Carrier>),
    /// The task has handed on the marked bytes. The shard checks this at the end of its turn.
    Taken,
    /// The task has ended.
    Gone(Arc<Carrier>),
}

#[cfg(test)]
mod tests {
    use tidewire_core::message::{Connection, Message};

    use super::*;
    use crate::reply::ReplyLog;

    fn pong() -> Replies {
        let mut log = ReplyLog::default();
        let span = log.append(&Message::Connection(Connection::Pong));
        log.replies(&[span])
    }

    fn carrier() -> Carrier {
        Carrier {
            queue: Mutex::default(),
            filled: Notify::new(),
            key: OnceLock::new(),
            queued_bytes: Arc::default(),
            outlet: OnceLock::from(Arc::default()),
            token: OnceLock::new(),
        }
    }

    #[test]
    fn marked_bytes_are_reported_when_handed_on_without_waiting_for_later_ones() {
        let carrier = carrier();
        assert!(!carrier.mark());
        carrier.push(pong());
        carrier.push(pong());
        assert!(carrier.mark());
        carrier.push(pong());
        let tells = std::iter::from_fn(|| carrier.pop()).map(|_| carrier.hand_on());
        assert_eq!(tells.collect::<Vec<_>>(), [false, true, false]);
        assert!(!carrier.has_marked());
    }

    #[test]
    fn taken_bytes_are_waited_for_until_they_are_handed_on() {
        let carrier = carrier();
        carrier.push(pong());
        assert!(carrier.pop().is_some());
        assert!(carrier.mark() && carrier.has_marked());
        assert!(carrier.hand_on());
        assert!(!carrier.mark());
    }

    #[tokio::test]
    async fn bytes_that_were_handed_on_can_only_be_taken_back_with_the_connection() {
        let carrier = carrier();
        assert!(!carrier.take_back());
        carrier.push(pong());
        carrier.push(pong());
        assert!(carrier.pop().is_some() && carrier.mark());
        assert!(carrier.take_back() && !carrier.has_marked());
        assert_eq!(carrier.queued_bytes.load(Ordering::Relaxed), 0);
        let popped = carrier.pop().expect("its end");
        assert_eq!(popped.chunk.err(), Some(End::Severed));
        carrier.outlet.get().expect("it is set").was_shut().await;
    }

    #[test]
    fn waiting_bytes_are_taken_back_and_the_end_is_reported() {
        let carrier = carrier();
        carrier.push(pong());
        assert!(carrier.mark() && carrier.has_marked());
        assert!(carrier.take_back() && !carrier.has_marked());
        assert!(!carrier.take_back());
        assert!(carrier.pop().is_none());
        carrier.end(End::GoingAway);
        let popped = carrier.pop().expect("its end");
        assert_eq!(popped.chunk.err(), Some(End::GoingAway));
    }
}
