//! Sessions of namespaces that backends serve. The engine decides about them; here are their requests.

use tidewire_core::effect::{CloseReason, Flow, Input};
use tidewire_core::json;
use tidewire_core::message::{Backend, Message};
use tidewire_core::text::{Name, Payload};
use tidewire_net::connection::{Connection, Key};
use tidewire_wire::protocol::{Namespace, Payload as WirePayload};

use super::reading::Call;
use super::{Conductor, namespaces::Member};
use crate::connection::{CloseCause, Phase, State};
use crate::peer::PeerDetails;
use crate::stats::{add, topic_index};

impl Conductor {
    /// Requests that backends serve a session, whose peer joins its namespace with these credentials.
    pub(super) fn request_backend(
        &mut self,
        connection: Key,
        session: Key,
        namespace: &str,
        credentials: &str,
    ) {
        let peer = self.peer(connection);
        let handshake = handshake(peer.as_deref(), credentials);
        self.handle(Input::Backed {
            session: self.session(session),
            namespace: Name::from(namespace),
            handshake: Payload::from_checked(&handshake),
        });
    }

    /// Requests that a backend serves the session of a connection, if its protocol has no login.
    pub(super) fn open_at_backend(&mut self, connection: Key) {
        let Some(socket) = self.event_loop.connections().get(connection) else {
            return;
        };
        let (session, state) = (self.session(connection), &socket.state);
        let Some(namespace) = state.codec.protocol().opens() else {
            return;
        };
        // The first answer of the session may be delayed. It continues here then.
        if state.phase != Phase::Open || self.engine.is_delayed(session) {
            return;
        }
        if self.engine.is_backed(namespace) && !self.engine.was_refused(session) {
            return self.request_backend(connection, connection, namespace, "{}");
        }
        self.close(connection, CloseCause::Engine(CloseReason::Dismissed));
    }

    /// After a backend has opened the first session of a connection, the shard keeps the peer for the other namespaces only.
    pub(super) fn settle_backed(&mut self, connection: Key) {
        let socket = self.event_loop.connections_mut().get_mut(connection);
        let Some(peer) = socket.and_then(|socket| socket.state.peer.take()) else {
            return;
        };
        self.keep_peer(connection, &peer);
    }
}

/// The request of a peer and its credentials, as JSON.
fn handshake(peer: Option<&PeerDetails>, credentials: &str) -> String {
    let mut text = String::from("{");
    if let Some(peer) = peer {
        text.push_str("\"address\":");
        json::string(&peer.address.ip().to_canonical().to_string(), &mut text);
        text.push_str(",\"url\":");
        json::string(&peer.request.target, &mut text);
        text.push_str(",\"secure\":");
        text.push_str(match peer.request.is_encrypted {
            true => "true",
            false => "false",
        });
        text.push_str(",\"headers\":[");
        for (index, (name, value)) in peer.headers.iter().enumerate() {
            text.push_str(if index == 0 { "[" } else { ",[" });
            json::string(name, &mut text);
            text.push(',');
            json::string(value, &mut text);
            text.push(']');
        }
        text.push_str("],");
    }
    text.push_str("\"auth\":");
    text.push_str(credentials);
    text.push('}');
    text
}

impl Call<'_> {
    /// Passes a message for the backend of a session to the engine. Returns nothing if no backend serves its namespace.
    pub(super) fn give_backend(
        &mut self,
        key: Key,
        connection: &mut Connection<State>,
        (namespace, message): (Namespace<'_>, Box<Backend<'_>>),
        read: &WirePayload<'_>,
    ) -> Option<Result<Flow, CloseCause>> {
        let opens = connection.state.codec.protocol().opens();
        if !self.engine.is_backed(opens.unwrap_or(namespace.name())) {
            return None;
        }
        let binding = connection.state.binding;
        let flow = match self.namespaces.find(key, binding, namespace) {
            Member::Absent => {
                return Some(Err(super::reading::violation(
                    "the namespace was not joined",
                )));
            }
            // The peer may not know yet that the server has ended the session.
            Member::Ended => Flow::Taken,
            Member::Open(member) => {
                let message = Message::Backend(message);
                if !self.is_again {
                    add(&self.stats.messages_in[topic_index(&message)], 1);
                }
                let to = super::reading::with_key(self.session, member);
                let flow = self
                    .sink
                    .give(self.engine, self.confirmations, self.now, to, &message);
                self.namespaces.note_flow(key, member, flow);
                flow
            }
        };
        if flow == Flow::Taken {
            let State { codec, parts, .. } = &mut connection.state;
            codec.advance(parts, read);
        }
        Some(Ok(flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_has_the_request_and_the_credentials() {
        let peer = PeerDetails {
            address: ([127, 0, 0, 1], 9).into(),
            request: crate::peer::RequestDetails {
                target: "/x?a=\"".into(),
                is_encrypted: true,
            },
            headers: vec![
                ("cookie".into(), "a=1".into()),
                ("x".into(), "\u{1}".into()),
            ],
            certificate: None,
        };
        let expected = concat!(
            r#"{"address":"127.0.0.1","url":"/x?a=\"","secure":true,"#,
            r#""headers":[["cookie","a=1"],["x","\u0001"]],"auth":{"token":1}}"#
        );
        assert_eq!(handshake(Some(&peer), r#"{"token":1}"#), expected);
        assert_eq!(handshake(None, "{}"), r#"{"auth":{}}"#);
        let limits = json::JsonLimits {
            nesting_max: 8,
            bytes_max: 1_000,
            array_gap_max: 0,
        };
        assert!(json::check(expected, limits).is_ok());
    }
}
