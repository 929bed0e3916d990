//! Waiting until a change of rights is settled: the engine has reauthorized every session, and earlier messages were sent, here and by the
//! shards of other nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::time::Instant;
use tidewire_net::connection::Key;
use tokio::sync::oneshot;

use super::{Conductor, key};
use crate::peer_log;
use crate::stats::add;

/// How long a session that has lost a right may take to read the messages that were decided before. The shard can't remove single
/// messages from an outbox, because a frame that is partly sent must be finished and encrypted bytes can't be taken back. It cuts off a
/// peer that does not read in time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A caller that waits for a change of rights.
#[derive(Debug)]
pub(super) struct Settling {
    number: u64,
    reply: oneshot::Sender<()>,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// The engine has not settled the change.
    Unsettled,
    /// Connections have unread earlier messages.
    Unread(Unread),
    /// No earlier message of this shard is on its way to a client. Earlier messages of other nodes may be.
    Sent,
}

#[derive(Debug)]
struct Unread {
    deadline: Instant,
    keys: Vec<Key>,
    /// The same for sessions without a socket that have lost a right.
    carried: Vec<Key>,
    /// Sessions that must no longer get these messages.
    losers: BTreeSet<SessionId>,
}

impl Settling {
    pub(super) fn new(number: u64, reply: oneshot::Sender<()>) -> Self {
        Self {
            number,
            reply,
            progress: Progress::Unsettled,
        }
    }

    /// The latest end of the wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.progress {
            Progress::Unread(unread) => Some(unread.deadline),
            Progress::Unsettled | Progress::Sent => None,
        }
    }
}

impl Conductor {
    /// Answers callers whose change of rights is settled. Runs at the end of a turn, when its messages are sent or wait in an outbox.
    pub(super) fn settle_rights(&mut self) {
        if self.settlings.is_empty() {
            return;
        }
        // The engine settles first; only then are the outboxes marked. Everything that was authorized by older rules is in front of the
        // mark, and everything behind it was authorized by the new ones. So the wait ends as soon as the marked bytes are sent, and it is
        // finite even if new messages keep arriving. After the deadline only losers are cut off: for the other sessions the old messages
        // are still allowed. The caller gets its answer in both cases, because nothing forbidden can arrive after it. The shards of other
        // nodes do the same for the same change, and report when they have; the answer waits for all of them.
        let settled = self.engine.settled();
        for mut settling in std::mem::take(&mut self.settlings) {
            settling.progress = match settling.progress {
                Progress::Unsettled if settling.number > settled => Progress::Unsettled,
                Progress::Unsettled => {
                    let unread = self.begin_settling();
                    self.wait_for_unread(settling.number, unread)
                }
                Progress::Unread(unread) => self.wait_for_unread(settling.number, unread),
                Progress::Sent => Progress::Sent,
            };
            let is_sent = matches!(settling.progress, Progress::Sent);
            if !is_sent || self.engine.sent_elsewhere() < settling.number {
                self.settlings.push(settling);
                continue;
            }
            // The caller may have stopped waiting.
            let _ = settling.reply.send(());
        }
    }

    /// Waits for the clients that have not read earlier messages, until the deadline.
    fn wait_for_unread(&mut self, number: u64, mut unread: Unread) -> Progress {
        let connections = self.event_loop.connections();
        unread.keys.retain(|key| {
            let connection = connections.get(*key);
            let has_marked = connection.is_some_and(|connection| connection.has_marked());
            has_marked || self.exchanges.has_marked(*key)
        });
        unread.carried.retain(|key| self.has_marked_carried(*key));
        let is_waiting = !unread.keys.is_empty() || !unread.carried.is_empty();
        if is_waiting && unread.deadline > self.now.monotonic {
            return Progress::Unread(unread);
        }
        for key in unread.keys {
            let is_loser = |key| unread.losers.contains(&self.session(key));
            if self.namespaces.sessions(key).any(is_loser) {
                self.cut_loser(key);
            }
        }
        for key in unread.carried {
            self.sever_carried(key);
        }
        self.engine.rights_sent(number, &mut self.sink);
        // The posts of this turn have left. The posts of this call leave at once with another turn.
        self.has_unflushed |= self.sink.nodes.is_some();
        Progress::Sent
    }

    fn begin_settling(&mut self) -> Unread {
        let losers = self.engine.take_losers();
        for session in &losers {
            self.forget_retained(key(*session));
        }
        let mut carried: Vec<Key> = losers.iter().map(|session| key(*session)).collect();
        carried.retain(|key| self.mark_carried(*key));
        let mut keys = self.event_loop.mark_backlog();
        keys.extend(self.exchanges.mark_answers());
        keys.sort_unstable();
        keys.dedup();
        Unread {
            deadline: self.now.monotonic + PATIENCE,
            keys,
            carried,
            losers,
        }
    }

    fn cut_loser(&mut self, key: Key) {
        add(&self.stats().rights_cuts, 1);
        let address = self.address(key);
        peer_log::peer_line("connections cut off after a lost right", || {
            tracing::info!(
                address = address.map(tracing::field::display),
                "cut off: it has lost a right and does not read its pending messages"
            );
        });
        self.cut_off(key);
    }
}
