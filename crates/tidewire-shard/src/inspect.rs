//! The view of a shard for operators: its connections, the names that they are subscribed to, and running calls.
//!
//! An inspection is handled like other mail. Each takes a limited part of a turn, so the page of an operator that lists everything sends
//! many of them, and they do not delay deliveries.

use std::net::SocketAddr;

use tidewire_core::inspect::{CallView, Inspected, SessionView, SubscribedName, Subscription};
use tidewire_net::connection::{Key, Traffic};
use tidewire_wire::protocol::Protocol;
use tokio::sync::oneshot;

/// A request in a shard's mailbox.
#[derive(Debug)]
pub(crate) enum Inspection {
    /// The connections in some entries of the table.
    Connections {
        slice: TableSlice,
        reply: oneshot::Sender<Inspected<ConnectionView>>,
    },
    /// The names in some entries of the table.
    Names {
        slice: TableSlice,
        reply: oneshot::Sender<Inspected<SubscribedName>>,
    },
    /// Some subscriptions of a session. It is absent in the reply if it has ended.
    Subscriptions {
        key: Key,
        slice: TableSlice,
        reply: oneshot::Sender<Option<Inspected<Subscription>>>,
    },
    /// Running calls of the rpcs that the shard owns.
    Calls {
        count_max: usize,
        reply: oneshot::Sender<Vec<CallView>>,
    },
}

/// A part of a shard's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSlice {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// How a peer is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// By a WebSocket.
    WebSocket(Protocol),
    /// By HTTP requests of a protocol, one after the other.
    Exchanges(Protocol),
    /// By an HTTP request or stream.
    Http,
}

/// The inspected state of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// Its key. No other connection of the shard ever has the same one.
    pub key: Key,
    /// How it is connected.
    pub carriage: Carriage,
    /// Whether its messages may be compressed.
    pub is_deflated: bool,
    /// Whether its socket speaks TLS.
    pub is_encrypted: bool,
    /// The peer address of its socket. Behind a proxy this is the address of the proxy. Unknown for HTTP.
    pub address: Option<SocketAddr>,
    /// Bytes read from and written to its socket.
    pub traffic: Traffic,
    /// Bytes that wait to be sent.
    pub outbox_bytes: usize,
    /// Its session, if the session has not ended.
    pub session: Option<SessionView>,
}
