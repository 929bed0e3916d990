//! Changes of rights that are settled: the engine has judged everybody, and what had been decided before was sent.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tokio::sync::oneshot;

use super::{Conductor, key};
use crate::peer_log;
use crate::stats::add;

/// How long whoever has lost a right may take to read what was decided before. A frame that has begun must be finished and
/// ciphertext can't be taken back, so what waits for a peer can't be thinned out; who does not read it is cut off.
const PATIENCE: Duration = Duration::from_secs(1);

/// A change of rights that somebody waits for.
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
    /// Those who must not get it any more.
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

    /// When it is over at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.unread.as_ref().map(|unread| unread.deadline)
    }
}

impl Conductor {
    /// Answers who waits for changes of rights that are settled. At the end of a turn: what it had decided was sent, or waits.
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
            // Nobody may be waiting any more.
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
