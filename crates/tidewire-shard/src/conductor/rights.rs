//! Changes of rights that are settled: the engine has authorized every session again, and earlier messages were sent.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tokio::sync::oneshot;

use super::{Conductor, key};
use crate::peer_log;
use crate::stats::add;

/// How long a session that has lost a right may take to read the messages that were decided before. A frame that has begun
/// must be finished and ciphertext can't be taken back. So the shard can't remove single messages that wait for a peer.
/// It cuts off a peer that does not read them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A change of rights that a caller waits for.
#[derive(Debug)]
pub(super) struct Settling {
    number: u64,
    reply: oneshot::Sender<()>,
    /// Who has not read what was decided before; once the engine is done.
    unread: Option<Unread>,
}

#[derive(Debug)]
struct Unread {
    deadline: Instant,
    keys: Vec<Key>,
    /// The same of sessions without a socket that have lost a right.
    carried: Vec<Key>,
    /// Sessions that must no longer get these messages.
    losers: BTreeSet<SessionId>,
}

impl Settling {
    pub(super) fn new(number: u64, reply: oneshot::Sender<()>) -> Self {
        Self {
            number,
            reply,
            unread: None,
        }
    }

    /// Latest end of the wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.unread.as_ref().map(|unread| unread.deadline)
    }
}

impl Conductor {
    /// Answers callers that wait for settled changes of rights. At the end of a turn: its messages were sent, or wait.
    pub(super) fn settle_rights(&mut self) {
        if self.settlings.is_empty() {
            return;
        }
        let settled = self.engine.settled();
        for mut settling in std::mem::take(&mut self.settlings) {
            if settling.number > settled {
                self.settlings.push(settling);
                continue;
            }
            let mut unread = match settling.unread.take() {
                Some(unread) => unread,
                None => self.begin_settling(),
            };
            let connections = self.event_loop.connections();
            unread.keys.retain(|key| {
                let connection = connections.get(*key);
                connection.is_some_and(|connection| connection.has_marked())
            });
            unread.carried.retain(|key| self.has_marked_carried(*key));
            let is_waiting = !unread.keys.is_empty() || !unread.carried.is_empty();
            if is_waiting && unread.deadline > self.now.monotonic {
                settling.unread = Some(unread);
                self.settlings.push(settling);
                continue;
            }
            for key in unread.keys {
                if unread.losers.contains(&self.session(key)) {
                    self.cut_loser(key);
                }
            }
            for key in unread.carried {
                self.sever_carried(key);
            }
            // The caller may have stopped waiting.
            let _ = settling.reply.send(());
        }
    }

    fn begin_settling(&mut self) -> Unread {
        let losers = self.engine.take_losers();
        let mut carried: Vec<Key> = losers.iter().map(|session| key(*session)).collect();
        carried.retain(|key| self.mark_carried(*key));
        Unread {
            deadline: self.now.monotonic + PATIENCE,
            keys: self.event_loop.mark_backlog(),
            carried,
            losers,
        }
    }

    fn cut_loser(&mut self, key: Key) {
        add(&self.stats().rights_cuts, 1);
        let connection = self.event_loop.connections().get(key);
        let address = connection.and_then(|connection| connection.peer_address());
        peer_log::peer_line(
            "connections that had lost a right and did not read were cut off",
            || {
                tracing::info!(
                    address = address.map(tracing::field::display),
                    "cut off: it has lost a right and does not read what waits for it"
                );
            },
        );
        self.cut_off(key);
    }
}
