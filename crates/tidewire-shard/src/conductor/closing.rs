//! The end of connections: close frames, broken sockets, slow readers, and the drain of the whole shard.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_core::effect::{CloseReason, Input};
use tidewire_core::text::Name;
use tidewire_net::connection::Key;
use tidewire_wire::protocol::ResumeRefusal;
use tokio::sync::oneshot;

use super::Conductor;
use crate::backoff::DisconnectCause;
use crate::carrier::End;
use crate::connection::{CloseCause, PauseReasons, Phase};
use crate::handle::Quiet;
use crate::peer_log;
use crate::stats::add;

/// How long a peer may take to answer a close frame by closing its side.
const LINGER: Duration = Duration::from_secs(2);

impl Conductor {
    /// How to end a connection that the engine closes. If the peer must not get its unsent messages, the connection can only be cut off,
    /// because a close frame would have to follow the rest of a frame that is already partly sent.
    pub(super) fn cause(&self, key: Key, reason: CloseReason) -> CloseCause {
        let connection = self.event_loop.connections().get(key);
        let has_unsent = connection.is_some_and(|connection| connection.outbox_bytes() > 0);
        if has_unsent && reason.forfeits() {
            return CloseCause::Severed(reason);
        }
        CloseCause::Engine(reason)
    }

    /// Whether a connection exists and does not end.
    pub(super) fn is_open(&self, key: Key) -> bool {
        let connection = self.event_loop.connections().get(key);
        connection.is_some_and(|connection| connection.state.phase == Phase::Open)
    }

    /// Whether the shard does not read the connection of a session, so that it has not read an answer to a ping either.
    pub(super) fn is_held(&self, session: Key) -> bool {
        let connection = self.namespaces.connection(session);
        let connection = self.event_loop.connections().get(connection);
        let held = connection.map(|connection| connection.state.pause_reasons);
        held.is_some_and(|held| held.has(PauseReasons::HELD))
    }

    /// Ends a connection with this turn.
    pub(super) fn close(&mut self, key: Key, cause: CloseCause) {
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        if connection.state.phase == Phase::Open {
            connection.state.phase = Phase::Closing;
            self.hold(key, PauseReasons::CLOSING);
            self.closing.push((key, cause));
            if let Some(cause) = cause.cause() {
                self.note_disconnect(key, cause);
            }
        }
    }

    /// Closes a connection because an operator has requested it. Its session ends even if it could be resumed: the operator expects that
    /// its client logs in again. There is no back-off, because the client is not at fault.
    pub(super) fn disconnect(&mut self, key: Key, reply: oneshot::Sender<bool>) {
        let connection = self.event_loop.connections().get(key);
        let is_open = match connection {
            Some(connection) => connection.state.phase == Phase::Open,
            None => self.carried.waiting_bytes(key).is_some(),
        };
        if is_open {
            self.close(key, CloseCause::Operator);
            self.end_carried(key, End::Operator);
        }
        // The caller may have stopped waiting.
        let _ = reply.send(is_open);
    }

    /// Delays the next connections of a client that is closed for exceeding a limit.
    pub(super) fn note_disconnect(&self, key: Key, cause: DisconnectCause) {
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        // The shard forgets the peer at the login, but the kernel still knows its address.
        let peer = connection.state.peer.as_ref().map(|peer| peer.address);
        let address = peer.or_else(|| self.address(key));
        let user = self.user(key);
        let address = address.map(|address| address.ip());
        self.backoff
            .note_disconnect(self.now.monotonic, address, user, cause);
    }

    /// Appends the close frames to the messages of the turn, and reports the end of the sessions to the engine.
    pub(super) fn say_goodbyes(&mut self) {
        self.finish_carried();
        self.finish_namespaces();
        for (key, cause) in std::mem::take(&mut self.closing) {
            if matches!(cause, CloseCause::Severed(_)) {
                self.cut_off(key);
                continue;
            }
            self.say_goodbye(key, cause);
        }
    }

    /// Appends a close frame to the messages of a connection, and reports the end of its session to the engine.
    pub(super) fn say_goodbye(&mut self, key: Key, cause: CloseCause) {
        if self.exchanges.has(key) {
            return self.say_goodbye_in_exchange(key, cause);
        }
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        let goodbye = cause.frame(&connection.state.codec);
        // A peer that closes only its connection, or that is silent, may come back.
        let outlives = matches!(
            cause,
            CloseCause::Peer(_) | CloseCause::Engine(CloseReason::Silent)
        ) && self.outlive(key);
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        let state = &mut connection.state;
        state.phase = Phase::Lingering;
        state.waiting = None;
        state.peer = None;
        state.pause_reasons = PauseReasons::default();
        self.event_loop.push_last(key, &goodbye);
        // The shard reads and discards what the peer still sends: if it closed the socket with unread bytes, the kernel would reset the
        // connection, and the close frame could be lost.
        self.event_loop.resume(key);
        self.unsent_goodbyes.push(key);
        self.lingering.push_back((self.now.monotonic + LINGER, key));
        if !outlives {
            self.end_session(key);
        }
    }

    /// Ends the sessions of a connection without a socket, whose last bytes a request may still take.
    pub(super) fn linger(&mut self, key: Key) {
        self.lingering.push_back((self.now.monotonic + LINGER, key));
        self.end_session(key);
    }

    /// The address of the peer of a connection.
    pub(super) fn address(&self, key: Key) -> Option<SocketAddr> {
        let connection = self.event_loop.connections().get(key)?;
        let address = connection.peer_address();
        address.or_else(|| self.exchanges.address(key))
    }

    /// Reports the end of the sessions of a connection to the engine.
    fn end_session(&mut self, key: Key) {
        self.end_borrowers(key);
        self.logins.remove(&key);
        self.resumable.end(key, ResumeRefusal::Ended);
        let session = self.session(key);
        self.handle(Input::Closed { session });
    }

    /// Drops a connection that its peer has closed or that is broken. No client misses the unsent bytes.
    pub(super) fn lose(&mut self, key: Key) {
        if self.is_open(key) {
            self.outlive(key);
        }
        self.remove(key, false);
    }

    /// Drops a connection whose peer is still connected.
    pub(super) fn cut_off(&mut self, key: Key) {
        let connection = self.event_loop.connections().get(key);
        let has_unsent = connection.is_some_and(|connection| connection.outbox_bytes() > 0);
        // A peer that does not poll may have left.
        let is_away = self.exchanges.is_away(key);
        self.remove(key, has_unsent && !is_away);
    }

    pub(super) fn remove(&mut self, key: Key, misses_bytes: bool) {
        let Some(state) = self.event_loop.remove_and_lend(key) else {
            return;
        };
        self.exchanges.end_switch(key);
        if let Some(unused) = self.exchanges.forget(key) {
            self.close(unused, CloseCause::Peer(None));
        }
        let is_known = state.phase != Phase::Lingering;
        self.count_out();
        if let Some(close_all) = &mut self.close_all {
            close_all.count(misses_bytes);
        }
        if is_known {
            self.end_session(key);
        }
        if self.resumable.has(key) {
            // The detached session keeps its key, and its next connection gets that. The plans for this connection must not reach it.
            self.lingering.retain(|(_, lingering)| *lingering != key);
            self.unsent_goodbyes.retain(|closed| *closed != key);
        } else {
            self.free_key(key);
        }
    }

    /// Frees the key of a removed connection for another one, as soon as its session has released its names.
    pub(super) fn free_key(&mut self, key: Key) {
        // Two owners use the key as an index: the table of connections and the engine. If a new connection got it while the engine still
        // ends memberships of the old session, these would belong to the new one. So the key stays lent until the engine has finished,
        // and only then does its next user get it, with a new generation.
        if self.engine.is_leaving(self.session(key)) {
            self.leaving.push(key);
        } else {
            self.event_loop.connections_mut().take_back(key);
        }
    }

    /// Frees the keys of sessions that have released their names.
    pub(super) fn free_keys(&mut self) {
        for key in std::mem::take(&mut self.leaving) {
            self.free_key(key);
        }
    }

    pub(super) fn count_out(&self) {
        // Other threads increase this count when they hand over connections.
        self.stats().connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn cut_slow(&mut self, key: Key) {
        let Some(connection) = self.event_loop.connections().get(key) else {
            return;
        };
        let outbox_bytes = connection.outbox_bytes();
        let inbound_bytes = connection.inbound_bytes();
        let address = self.address(key);
        let user = self.user(key).map(Name::as_str);
        add(&self.stats().slow_disconnects, 1);
        peer_log::peer_line("slow readers disconnected", || {
            tracing::info!(
                address = address.map(tracing::field::display),
                user,
                outbox_bytes,
                inbound_bytes,
                "disconnected: more than outbox_bytes_max is pending for it"
            );
        });
        self.note_disconnect(key, DisconnectCause::Slow);
        self.cut_off(key);
    }

    /// Logs that a connection is closed because its peer sent a message of `bytes`, which exceeds the limit. The application itself only
    /// sees that the connection ends.
    pub(super) fn log_too_big(&self, key: Key, bytes: usize) {
        let address = self.address(key);
        let user = self.user(key).map(Name::as_str);
        let message_bytes_max = self.message_bytes_max;
        peer_log::peer_line("connections closed for a large message", || {
            tracing::info!(
                ?address,
                user,
                bytes,
                message_bytes_max,
                "closed with 1009: a message exceeds limits.message_bytes_max"
            );
        });
    }

    /// Cuts off connections that do not close in time, and continues with the closing of all connections.
    pub(super) fn continue_closing(&mut self) {
        let now = self.now.monotonic;
        while let Some((_, key)) = self
            .lingering
            .pop_front_if(|(deadline, _)| *deadline <= now)
        {
            self.cut_off(key);
        }
        let Some(close_all) = &mut self.close_all else {
            return;
        };
        for key in close_all.take_due(now) {
            self.close(key, CloseCause::GoingAway);
        }
        if self
            .close_all
            .as_ref()
            .is_some_and(|close_all| close_all.is_over(now))
        {
            let left: Vec<Key> = self.event_loop.connections().keys().collect();
            left.into_iter().for_each(|key| self.cut_off(key));
        }
    }

    /// Reports to the caller that closed all connections that the last one is gone. This happens at the end of the same turn, because no
    /// other turn may follow soon.
    pub(super) fn finish_closing(&mut self) {
        if self.event_loop.connections().is_empty()
            && let Some(close_all) = self.close_all.take()
        {
            close_all.finish();
        }
    }

    pub(super) fn stop_reading(&mut self) {
        self.is_draining = true;
        let keys: Vec<Key> = self.event_loop.connections().keys().collect();
        for key in keys {
            self.hold(key, PauseReasons::DRAIN);
        }
        self.release_forwarded();
    }

    pub(super) fn answer_quiet(&mut self) {
        if self.quiet.is_empty() {
            return;
        }
        // All conditions are needed. A shard can be quiet only if its mailbox is empty, no answer to a load is left, no decision waits for a
        // flush, no commit is outstanding, no other node owes an answer about a record, no bytes wait for a socket, and the other shards have handled all its posts.
        // One quiet shard proves little, because another one may post to it a moment later. So the caller compares `mail_count` of two rounds over
        // all shards.
        let is_quiet = self.own.0.mailbox.is_empty()
            && self.loaded.is_empty()
            && !self.has_unflushed
            && !self.engine.is_uncommitted()
            && !self.engine.awaits_records()
            && self.event_loop.backlog_count() == 0
            && self.credit.is_settled();
        if is_quiet {
            for reply in self.quiet.drain(..) {
                // The caller may have stopped waiting.
                let _ = reply.send(Quiet {
                    mail_count: self.mail_count,
                });
            }
        }
    }
}
