//! A session that no socket carries: a channel between its shard and a task of the front, such as an HTTP request.
//!
//! In both directions go messages of the native protocol, one behind the other, without frames. So such a session takes
//! the same way through login, permission, limits and metrics as one with a socket. Decision: 0020.
//!
//! Towards the shard the bound is the front's: it takes so many requests at a time, each with so many bytes. Towards the
//! task it is the outbox's: beyond its marks the session lags, then it is ended, like a socket that is not read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tidewire_core::effect::CloseReason;
use tidewire_net::connection::Key;
use tokio::sync::Notify;

use super::handle::{Mail, Peer, ShardHandle};

/// Why a session was ended by its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine wants it.
    Engine(CloseReason),
    /// Too much waited for it.
    Slow,
    /// The server stops.
    GoingAway,
    /// It has lost a right while something waited for it that was decided before.
    Severed,
}

/// How long a session is meant to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// For one request; presence does not count it.
    Passing {
        /// Bytes that may wait for it. It asks for all of them itself, and takes them at once.
        bytes_max: usize,
    },
    /// As long as its peer wants. What may wait for it is what may wait for a socket.
    Lasting,
}

/// What waits for the task.
#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    end: Option<End>,
    /// The shard wants to know when no more than so many bytes wait.
    drain_to: Option<usize>,
}

/// The part of a channel that both sides have.
#[derive(Debug)]
pub(crate) struct Carrier {
    queue: Mutex<Queue>,
    filled: Notify,
    /// The session's place at its shard; set before anything else is taken out of the mailbox for it.
    pub(crate) key: OnceLock<Key>,
    /// What waits in all channels of the shard.
    queued_bytes: Arc<AtomicUsize>,
}

impl Carrier {
    /// Gives the task a chunk of whole messages. How many bytes wait now.
    pub(crate) fn push(&self, chunk: Bytes) -> usize {
        let mut queue = self.queue.lock();
        queue.bytes += chunk.len();
        self.queued_bytes.fetch_add(chunk.len(), Ordering::Relaxed);
        queue.chunks.push_back(chunk);
        let bytes = queue.bytes;
        drop(queue);
        self.filled.notify_one();
        bytes
    }

    /// Nothing more comes. What waits can still be read.
    pub(crate) fn end(&self, end: End) {
        self.queue.lock().end.get_or_insert(end);
        self.filled.notify_one();
    }

    /// Takes back what waits, and ends it; false if nothing waits.
    pub(crate) fn sever(&self) -> bool {
        let mut queue = self.queue.lock();
        if queue.bytes == 0 {
            return false;
        }
        self.queued_bytes.fetch_sub(queue.bytes, Ordering::Relaxed);
        queue.bytes = 0;
        queue.chunks.clear();
        queue.end = Some(End::Severed);
        drop(queue);
        self.filled.notify_one();
        true
    }

    /// Has the shard be told when at most `bytes` wait; false if that is so already.
    pub(crate) fn await_drained(&self, bytes: usize) -> bool {
        let mut queue = self.queue.lock();
        let is_full = queue.bytes > bytes;
        queue.drain_to = is_full.then_some(bytes);
        is_full
    }

    /// Takes the next chunk, and says whether the shard waits to hear that little is left.
    fn pop(&self) -> Option<(Result<Bytes, End>, bool)> {
        let mut queue = self.queue.lock();
        let Some(chunk) = queue.chunks.pop_front() else {
            return queue.end.map(|end| (Err(end), false));
        };
        queue.bytes -= chunk.len();
        self.queued_bytes.fetch_sub(chunk.len(), Ordering::Relaxed);
        let bytes = queue.bytes;
        let has_drained = queue.drain_to.take_if(|mark| bytes <= *mark).is_some();
        Some((Ok(chunk), has_drained))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let bytes = self.queue.get_mut().bytes;
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What lies in a shard's mailbox about such sessions.
#[derive(Debug)]
pub(crate) enum CarriedMail {
    /// A new one with its first messages.
    Open {
        carrier: Arc<Carrier>,
        peer: Arc<Peer>,
        stay: Stay,
        messages: Vec<u8>,
    },
    /// More messages.
    Messages {
        carrier: Arc<Carrier>,
        messages: Vec<u8>,
    },
    /// Little waits for the task any more.
    Drained(Arc<Carrier>),
    /// The task has ended.
    Gone(Arc<Carrier>),
}

/// The task's end of a session. Dropping it ends the session.
#[derive(Debug)]
pub struct CarriedSession {
    shard: ShardHandle,
    carrier: Arc<Carrier>,
}

impl CarriedSession {
    /// Opens a session at `shard` and gives it its first messages, encoded one behind the other.
    pub(super) fn open(
        shard: ShardHandle,
        queued_bytes: Arc<AtomicUsize>,
        peer: Arc<Peer>,
        stay: Stay,
        messages: Vec<u8>,
    ) -> Self {
        let carrier = Arc::new(Carrier {
            queue: Mutex::default(),
            filled: Notify::new(),
            key: OnceLock::new(),
            queued_bytes,
        });
        let session = Self { shard, carrier };
        session.mail(|carrier| CarriedMail::Open {
            carrier,
            peer,
            stay,
            messages,
        });
        session
    }

    /// Gives it more messages.
    pub fn send(&self, messages: Vec<u8>) {
        self.mail(|carrier| CarriedMail::Messages { carrier, messages });
    }

    /// The next whole messages, one behind the other. May be given up and called again.
    ///
    /// # Errors
    /// The shard has ended the session, and everything before that was received.
    pub async fn receive(&mut self) -> Result<Bytes, End> {
        loop {
            // A permit is kept for whoever comes late, so nothing is missed between the look and the wait.
            if let Some((chunk, has_drained)) = self.carrier.pop() {
                if has_drained {
                    self.mail(CarriedMail::Drained);
                }
                return chunk;
            }
            self.carrier.filled.notified().await;
        }
    }

    fn mail(&self, mail: impl FnOnce(Arc<Carrier>) -> CarriedMail) {
        let mail = mail(Arc::clone(&self.carrier));
        self.shard.0.mailbox.push(Mail::Carried(mail));
    }
}

impl Drop for CarriedSession {
    fn drop(&mut self) {
        self.mail(CarriedMail::Gone);
    }
}
