//! Answers to looks at a shard, see [`crate::look`]. They change nothing, and nobody waits for a flush because of them.

use tidewire_core::look::LookedAt;
use tidewire_net::connection::Traffic;

use super::Conductor;
use crate::look::{Carriage, ConnectionView, Look, Places};

impl Conductor {
    pub(super) fn look(&self, look: Look) {
        // Whoever asked may have gone.
        match look {
            Look::Connections { places, reply } => {
                let _ = reply.send(self.look_at_connections(places));
            }
            Look::Names { places, reply } => {
                let _ = reply.send(self.engine.look_at_names(places.first, places.count));
            }
        }
    }

    fn look_at_connections(&self, places: Places) -> LookedAt<ConnectionView> {
        let Places { first, count } = places;
        let connections = self.event_loop.connections();
        let end = first.saturating_add(count);
        let view = |(key, connection)| {
            let session = self.engine.look_at_session(self.session(key));
            let Some(connection) = connection else {
                let outbox_bytes = self.carried.waiting_bytes(key)?;
                return Some(ConnectionView {
                    key,
                    carriage: Carriage::Http,
                    is_deflated: false,
                    is_encrypted: false,
                    address: None,
                    traffic: Traffic::default(),
                    outbox_bytes,
                    session,
                });
            };
            let connection: &tidewire_net::connection::Connection<_> = connection;
            let state: &crate::connection::State = &connection.state;
            Some(ConnectionView {
                key,
                carriage: match state.is_text {
                    true => Carriage::Json,
                    false => Carriage::Protobuf,
                },
                is_deflated: state.decoder.has_deflate(),
                is_encrypted: connection.is_encrypted(),
                address: connection.peer_address(),
                traffic: connection.traffic(),
                outbox_bytes: connection.outbox_bytes(),
                session,
            })
        };
        LookedAt {
            found: connections.look(first, count).filter_map(view).collect(),
            next: (end < connections.place_count()).then_some(end),
        }
    }
}
