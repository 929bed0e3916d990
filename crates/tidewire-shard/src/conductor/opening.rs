//! The beginning of connections: with a socket that the front has upgraded, and of sessions of exchanges.

use std::net::SocketAddr;

use tidewire_core::effect::{Format, Input};
use tidewire_net::connection::Key;
use tidewire_wire::protocol::{ConnectionCodec, Introduction, Protocol};

use super::Conductor;
use crate::connection::{CloseCause, State};
use crate::connection_limiter::Subject;
use crate::handle::{Attachment, UpgradedSocket};
use crate::peer_log;

impl Conductor {
    pub(super) fn add_connection(&mut self, connection: UpgradedSocket) {
        let UpgradedSocket {
            stream,
            tls,
            unread,
            peer,
            permit,
            is_deflated,
            protocol,
            attachment,
        } = connection;
        let address = peer.address;
        // The engine learns of the session before anything else can refer to it, and before its first message: the unread bytes of the
        // upgrade are handled in `read_sockets` later in this turn. If the peer has to wait, the delay also precedes that message. While
        // the shard drains, it takes the connection and closes it with a reason, because the front has already accepted it. If the kernel
        // refuses the socket, the handle has already counted the connection, so it is subtracted here.
        let mut state = State::new(peer, permit, is_deflated, protocol);
        let mut introduction = Introduction::default();
        let switches = matches!(attachment.as_deref(), Some(Attachment::Switch { .. }));
        if switches {
            state.codec = ConnectionCodec::switching(protocol);
            // Its session does nothing until the connection carries another one. A ping would be taken for the answer to a probe.
            let protocol = state.codec.protocol();
            let first = introduction.variant;
            introduction.variant = protocol.namespaced(first).unwrap_or_default();
        }
        let format = state.format(introduction);
        match self.event_loop.add_with_tls(stream, &unread, tls, state) {
            Ok(key) => {
                if !switches {
                    self.greet(key, protocol);
                }
                self.open_session(key, address, protocol, format);
                if let Some(attachment) = attachment {
                    self.attach(key, *attachment);
                }
                if !switches {
                    self.open_at_backend(key);
                }
                if self.is_draining {
                    self.close(key, CloseCause::GoingAway);
                }
            }
            Err(error) => {
                self.count_out();
                peer_log::peer_line("connections without a shard", || {
                    tracing::warn!(%address, %error, "could not register a connection with its shard");
                });
            }
        }
    }

    /// Opens the main session of a new connection.
    pub(super) fn open_session(
        &mut self,
        key: Key,
        address: SocketAddr,
        protocol: Protocol,
        format: Format,
    ) {
        let session = self.session(key);
        let coalesces = (!protocol.introduces()).then_some(false);
        self.handle(Input::Opened {
            session,
            format,
            coalesces,
        });
        let origin = Subject::new(address.ip()).hash();
        self.engine.set_origin(session, origin);
        if let Some(delay) = self.backoff.arrival(self.now.monotonic, address.ip()) {
            self.delay(session, delay);
        }
    }

    /// Sends the frames with which the protocol greets a new peer.
    fn greet(&mut self, key: Key, protocol: Protocol) {
        let mut frames = Vec::new();
        protocol.greet(&self.terms, &mut frames);
        if !frames.is_empty() {
            self.event_loop.push_bytes(key, &frames);
        }
    }
}
