//! What whoever runs the server sees of a shard: its connections and the names that they are subscribed to.
//!
//! A look is mail like any other. Each takes a bounded part of a turn, so whoever wants to see everything looks often, and what the
//! shard delivers does not wait for it.

use std::net::SocketAddr;

use tidewire_core::look::{LookedAt, SessionView, SubscribedName};
use tidewire_net::connection::{Key, Traffic};
use tokio::sync::oneshot;

use super::handle::{Mail, ShardHandle};

/// Places of connections that one look goes through.
const CONNECTIONS_MAX: usize = 256;
/// Places of names that one look goes through.
const NAMES_MAX: usize = 512;

/// A question that lies in a shard's mailbox.
#[derive(Debug)]
pub(crate) enum Look {
    /// The connections in some places.
    Connections {
        places: Places,
        reply: oneshot::Sender<LookedAt<ConnectionView>>,
    },
    /// The names in some places.
    Names {
        places: Places,
        reply: oneshot::Sender<LookedAt<SubscribedName>>,
    },
}

/// A part of a shard's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// How somebody is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// By a WebSocket that speaks deepstream's protocol.
    Protobuf,
    /// By one that speaks JSON.
    Json,
    /// By an HTTP request or stream.
    Http,
}

/// A connection as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// Its place; no other connection of the shard has the same, now or later.
    pub key: Key,
    /// How it is connected.
    pub carriage: Carriage,
    /// Whether its messages may be compressed.
    pub is_deflated: bool,
    /// Whether its socket speaks TLS.
    pub is_encrypted: bool,
    /// The other end of its socket: where a proxy stands in front, that of the proxy. Unknown for HTTP.
    pub address: Option<SocketAddr>,
    /// Bytes of its socket.
    pub traffic: Traffic,
    /// Bytes that wait to be sent.
    pub outbox_bytes: usize,
    /// Its session, if it has one still.
    pub session: Option<SessionView>,
}

impl ShardHandle {
    /// The connections in some places from `first` on; `None` if the shard has ended.
    pub async fn look_at_connections(&self, first: usize) -> Option<LookedAt<ConnectionView>> {
        let count = CONNECTIONS_MAX;
        self.look(|reply| Look::Connections {
            places: Places { first, count },
            reply,
        })
        .await
    }

    /// The subscribed names in some places from `first` on; `None` if the shard has ended.
    pub async fn look_at_names(&self, first: usize) -> Option<LookedAt<SubscribedName>> {
        let count = NAMES_MAX;
        self.look(|reply| Look::Names {
            places: Places { first, count },
            reply,
        })
        .await
    }

    async fn look<T>(&self, look: impl FnOnce(oneshot::Sender<T>) -> Look) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.0.mailbox.push(Mail::Look(look(reply)));
        answer.await.ok()
    }
}
