//! The change of a session of exchanges to a WebSocket.
//!
//! The connection of the session gets the socket of the connection that its peer has opened for that purpose. So the session does not
//! move: messages that no request has taken leave over the socket, in their order, and the messages of the peer on the socket
//! follow the messages of its requests. Decision: 0101.

use std::io;

use tidewire_core::effect::Input;
use tidewire_net::connection::Key;
use tidewire_net::event_loop::Released;

use super::Conductor;
use crate::connection::{CloseCause, PauseReasons, State};
use crate::session_token::SessionToken;
use crate::stats::add;

impl Conductor {
    /// Handles a new connection that is to become the transport of a session.
    pub(super) fn begin_switch(&mut self, from: Key, token: SessionToken) {
        match self.find_for_switch(token) {
            Ok(key) => self.exchanges.begin_switch(from, key),
            // The front has asked before, so the session has ended or got another connection since then.
            Err(_) => self.close(from, CloseCause::Peer(None)),
        }
    }

    /// Handles that the peer tests a new connection. `frames` are the answer.
    pub(super) fn probe_switch(&mut self, from: Key, frames: &[u8]) {
        self.event_loop.push_bytes(from, frames);
        self.exchanges.probe(from);
    }

    /// Handles that the peer continues on a new connection. It is not read until it has the session.
    pub(super) fn request_switch(&mut self, from: Key) {
        self.hold(from, PauseReasons::TRANSPORT);
        self.has_unflushed = true;
        // A request that waits is answered first.
        self.exchanges.probe(from);
        self.exchanges.ready(from);
    }

    /// Gives sessions the sockets on which their peers continue. No send is queued.
    pub(super) fn switch_transports(&mut self) {
        for from in self.exchanges.take_ready() {
            if !self.is_open(from) {
                continue;
            }
            let session = self.exchanges.session_of(from);
            match session.filter(|key| self.is_open(*key)) {
                Some(key) => self.switch(from, key),
                None => self.close(from, CloseCause::Peer(None)),
            }
        }
    }

    fn switch(&mut self, from: Key, key: Key) {
        let connections = self.event_loop.connections();
        let is_input_handled = connections.get(key).is_some_and(|it| it.is_input_handled());
        if self.exchanges.is_busy(key) || !is_input_handled {
            // The messages of a request come first, and a client that does not read its answer has not stopped to poll.
            return self.exchanges.ready(from);
        }
        let Some(released) = self.release_transport(from) else {
            // The peer has not read the answer to its test yet.
            return self.exchanges.ready(from);
        };
        self.exchanges.end_switch(from);
        let Ok(Released {
            state,
            socket,
            unread,
            tls,
        }) = released
        else {
            return;
        };
        self.exchanges.forget(key);
        if let Some(connection) = self.event_loop.connections_mut().get_mut(key) {
            // The place of the session is free again; the socket has its own.
            connection.state.permit = state.permit;
        }
        self.exchanges.has_switched(key);
        add(&self.stats().transport_switches, 1);
        if self
            .event_loop
            .give_socket(key, socket, &unread, tls)
            .is_err()
        {
            self.lose(key);
        }
    }

    /// Takes a connection out of the loop so that another session gets its transport. The session that began with the connection has done
    /// nothing, and ends. `None` if the connection has unsent bytes; an error if it is lost.
    pub(super) fn release_transport(&mut self, from: Key) -> Option<io::Result<Released<State>>> {
        let released = self.event_loop.release(from)?;
        self.count_out();
        if let Some(close_all) = &mut self.close_all {
            close_all.count(false);
        }
        self.logins.remove(&from);
        let session = self.session(from);
        self.handle(Input::Closed { session });
        self.free_key(from);
        Some(released)
    }
}
