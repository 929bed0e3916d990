//! Answers to inspections of a shard, see [`crate::inspect`]. They change nothing and delay no flush.

use tidewire_core::inspect::Inspected;
use tidewire_net::connection::Traffic;

use super::Conductor;
use crate::inspect::{Carriage, ConnectionView, Inspection, TableSlice};

impl Conductor {
    pub(super) fn inspect(&self, inspection: Inspection) {
        // The caller may have stopped waiting.
        match inspection {
            Inspection::Connections { slice, reply } => {
                let _ = reply.send(self.inspect_connections(slice));
            }
            Inspection::Names { slice, reply } => {
                let _ = reply.send(self.engine.inspect_names(slice.first, slice.count));
            }
            Inspection::Subscriptions { key, slice, reply } => {
                let TableSlice { first, count } = slice;
                let session = self.session(self.shown(key));
                let _ = reply.send(self.engine.inspect_subscriptions(session, first, count));
            }
            Inspection::Calls { count_max, reply } => {
                let _ = reply.send(self.engine.inspect_calls(self.now.monotonic, count_max));
            }
        }
    }

    fn inspect_connections(&self, slice: TableSlice) -> Inspected<ConnectionView> {
        let TableSlice { first, count } = slice;
        let connections = self.event_loop.connections();
        let end = first.saturating_add(count);
        let view = |(key, connection)| {
            let session = self.session(self.shown(key));
            let session = self.engine.inspect_session(session);
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
                carriage: match self.exchanges.has(key) {
                    true => Carriage::Exchanges(state.codec.protocol()),
                    false => Carriage::WebSocket(state.codec.protocol()),
                },
                is_deflated: state.decoder.has_deflate(),
                is_encrypted: connection.is_encrypted(),
                address: self.address(key),
                traffic: connection.traffic(),
                outbox_bytes: connection.outbox_bytes(),
                session,
            })
        };
        Inspected {
            found: connections.inspect(first, count).filter_map(view).collect(),
            next: (end < connections.table_len()).then_some(end),
        }
    }
}
