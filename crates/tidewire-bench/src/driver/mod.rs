//! The interface between a scenario and a server's protocol: outgoing messages, and the meaning of received ones.
//!
//! A driver appends whole WebSocket frames to the output of its connection, and translates received messages to
//! [`Incoming`]. It knows no socket, clock or scenario. The family is closed: a new protocol is a file, a member of
//! both enums and their arms, and the compiler names the missing places.

mod deepstream;
mod nats;
mod plain;
mod socketio;

pub use deepstream::Deepstream;
pub use nats::Nats;
pub use plain::Plain;
pub use socketio::SocketIo;
use tidewire_wire::frame::websocket::PayloadKind;

/// One mask for all frames: the bench protects no proxy, and unmasking costs the server the same with any key.
pub const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x81];

/// The password of every user; servers without passwords ignore it.
pub const PASSWORD: &str = "bench";

/// The user name of a connection.
#[must_use]
pub fn user_name(connection: usize) -> String {
    format!("user-{connection}")
}

/// A protocol of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Tidewire's, its null server's and deepstream's own.
    Deepstream,
    /// Socket.IO's, with the events of the programs in `rivals/`.
    SocketIo,
    /// NATS over WebSocket.
    Nats,
    /// The bench's contract for servers without a protocol.
    Plain,
}

/// The abilities of a server besides publish and subscribe, as far as its driver supports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Versioned documents: `open_record`, `patch`, `write`.
    pub records: bool,
    /// Requests and responses: `provide`, `call`.
    pub rpc: bool,
    /// Live queries: `subscribe_query`.
    pub queries: bool,
    /// Presence in scopes: `join_scope`, `update_scope`, `subscribe_scope`.
    pub scopes: bool,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Deepstream, Self::SocketIo, Self::Nats, Self::Plain];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deepstream => Deepstream::NAME,
            Self::SocketIo => SocketIo::NAME,
            Self::Nats => Nats::NAME,
            Self::Plain => Plain::NAME,
        }
    }

    /// The protocol of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    /// The path of the upgrade if a URL has none.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Deepstream => Deepstream::PATH,
            Self::SocketIo => SocketIo::PATH,
            Self::Nats => Nats::PATH,
            Self::Plain => Plain::PATH,
        }
    }

    /// More lines for the head of the upgrade, each with its line end, such as a subprotocol.
    #[must_use]
    pub fn headers(self) -> &'static str {
        match self {
            Self::Deepstream | Self::SocketIo | Self::Nats | Self::Plain => "",
        }
    }

    /// Whether a frame's meaning depends only on its bytes, so that equal frames may be counted without decoding. It
    /// does not if frames carry parts of a stream.
    #[must_use]
    pub fn has_whole_frames(self) -> bool {
        match self {
            Self::Deepstream | Self::SocketIo | Self::Plain => true,
            Self::Nats => false,
        }
    }

    /// Whether its clients must send heartbeats. In other protocols the server sends them, if at all.
    #[must_use]
    pub fn has_client_heartbeats(self) -> bool {
        match self {
            Self::Deepstream => true,
            Self::SocketIo | Self::Nats | Self::Plain => false,
        }
    }

    /// Its abilities besides publish and subscribe.
    #[must_use]
    pub fn abilities(self) -> Abilities {
        match self {
            Self::Deepstream => Abilities {
                records: true,
                rpc: true,
                queries: true,
                scopes: true,
            },
            Self::SocketIo => SocketIo::ABILITIES,
            Self::Nats => Nats::ABILITIES,
            Self::Plain => Abilities {
                records: false,
                rpc: false,
                queries: false,
                scopes: false,
            },
        }
    }
}

/// The meaning of a received message for a scenario. Texts are borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// The login is done; the connection may subscribe, publish and call.
    Ready,
    /// The last request is in force: the subscription of names or a record, or the provided rpc. One for each such
    /// call.
    Subscribed,
    /// A publication, or the changes of a live query or a scope.
    Delivery {
        /// Its name, if the protocol says it. For changes it is that of their [`Incoming::Snapshot`].
        name: Option<&'a str>,
        /// The payload of `publish`, byte for byte, or the changes.
        payload: &'a str,
    },
    /// The whole result of a live query, or all members of a scope.
    Snapshot {
        /// The number of `subscribe_query`; `None` for a scope.
        number: Option<u64>,
        /// The key of the query, or the scope.
        name: &'a str,
    },
    /// The connection is a member of a scope.
    Joined {
        /// The id of the member, as JSON.
        id: &'a str,
    },
    /// A change of a record, by a patch.
    Patched {
        /// The record.
        name: &'a str,
        /// Its version, if the protocol has one.
        version: Option<i32>,
        /// The payload of `patch`.
        payload: &'a str,
    },
    /// The write with this number is durable.
    Written {
        /// The record.
        name: &'a str,
        /// The number of `write`.
        number: u64,
    },
    /// The version of a record, 0 or less if it does not exist.
    Version {
        /// The record.
        name: &'a str,
        /// The version.
        version: i32,
    },
    /// The result of the call with this number.
    Response {
        /// The number of `call`.
        number: u64,
    },
    /// A call arrived. The driver has already answered it with its argument.
    Served,
}

/// Why a driver can't continue: an unexpected or missing message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unintelligible(pub String);

/// One connection's end of its protocol.
///
/// # Panics
/// Functions for records and rpc do if [`Protocol::abilities`] excludes them.
#[derive(Debug)]
pub enum Driver {
    /// See [`Protocol::Deepstream`].
    Deepstream(Deepstream),
    /// See [`Protocol::SocketIo`].
    SocketIo(SocketIo),
    /// See [`Protocol::Nats`].
    Nats(Nats),
    /// See [`Protocol::Plain`].
    Plain(Plain),
}

impl Driver {
    /// For the connection with this number, which logs in as a separate user; one that `reads_batches` announces it,
    /// if its protocol supports batches.
    #[must_use]
    pub fn new(protocol: Protocol, connection: usize, reads_batches: bool) -> Self {
        match protocol {
            Protocol::Deepstream => Self::Deepstream(Deepstream::new(connection, reads_batches)),
            Protocol::SocketIo => Self::SocketIo(SocketIo),
            Protocol::Nats => Self::Nats(Nats::new(connection)),
            Protocol::Plain => Self::Plain(Plain::default()),
        }
    }

    /// The upgrade is done: appends the client's first message.
    pub fn hello(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.hello(out),
            // Their servers speak first.
            Self::SocketIo(_) | Self::Nats(_) => {}
            Self::Plain(driver) => driver.hello(out),
        }
    }

    /// Sends a heartbeat, if [`Protocol::has_client_heartbeats`].
    pub fn heartbeat(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(_) => Deepstream::heartbeat(out),
            Self::SocketIo(_) | Self::Nats(_) | Self::Plain(_) => {}
        }
    }

    /// Handles a message. The protocol's own answers (steps of the login, heartbeats, calls) go to `out`; `handle`
    /// gets the events for the scenario, in order: none, one or several.
    ///
    /// # Errors
    /// The error of `handle`, or the message is unexpected.
    pub fn take<E: From<Unintelligible>>(
        &mut self,
        kind: PayloadKind,
        payload: &[u8],
        out: &mut Vec<u8>,
        handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Deepstream(driver) => driver.take(kind, payload, out, handle),
            Self::SocketIo(driver) => driver.take(payload, out, handle),
            Self::Nats(driver) => driver.take(payload, out, handle),
            Self::Plain(driver) => driver.take(payload, handle),
        }
    }

    /// Subscribes to all of `names` at once; [`Incoming::Subscribed`] follows once.
    pub fn subscribe(&mut self, names: &[&str], out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.subscribe(names, out),
            Self::SocketIo(driver) => driver.subscribe(names, out),
            Self::Nats(driver) => driver.subscribe(names, out),
            Self::Plain(driver) => driver.subscribe(names, out),
        }
    }

    /// Subscribes to the events whose names match a pattern; [`Incoming::Subscribed`] follows once.
    pub fn subscribe_pattern(&mut self, pattern: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.subscribe_pattern(pattern, out),
            _ => self.lacks("patterns"),
        }
    }

    /// Publishes `payload`, which is JSON text.
    pub fn publish(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.publish(name, payload, out),
            Self::SocketIo(driver) => driver.publish(name, payload, out),
            Self::Nats(driver) => driver.publish(name, payload, out),
            Self::Plain(driver) => driver.publish(name, payload, out),
        }
    }

    /// Subscribes to a record, reads it, and creates it if it is missing; [`Incoming::Subscribed`] follows once.
    pub fn open_record(&mut self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.open_record(name, out),
            _ => self.lacks("records"),
        }
    }

    /// Sets one path of a record, whatever its version, to `payload`, which is JSON text.
    pub fn patch(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.patch(name, payload, out),
            _ => self.lacks("records"),
        }
    }

    /// Writes a whole record, whatever its version. With a `number` the write is answered by [`Incoming::Written`] when it
    /// is durable.
    pub fn write(&mut self, name: &str, value: &str, number: Option<u64>, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.write(name, value, number, out),
            _ => self.lacks("records"),
        }
    }

    /// Requests a record's version; [`Incoming::Version`] follows.
    pub fn head(&mut self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.head(name, out),
            _ => self.lacks("records"),
        }
    }

    /// Subscribes to a live query; [`Incoming::Snapshot`] follows, and its changes. A `number` is used once for each connection.
    pub fn subscribe_query(
        &mut self,
        collection: &str,
        query: &str,
        number: u64,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Deepstream(driver) => driver.subscribe_query(collection, query, number, out),
            _ => self.lacks("queries"),
        }
    }

    /// Becomes a member of a scope with a state, which is JSON text; [`Incoming::Joined`] follows.
    pub fn join_scope(&mut self, name: &str, state: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.join_scope(name, state, out),
            _ => self.lacks("scopes"),
        }
    }

    /// Replaces the state of a member.
    pub fn update_scope(&mut self, name: &str, state: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.update_scope(name, state, out),
            _ => self.lacks("scopes"),
        }
    }

    /// Subscribes to the members of a scope; [`Incoming::Snapshot`] follows, and their changes.
    pub fn subscribe_scope(&mut self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.subscribe_scope(name, out),
            _ => self.lacks("scopes"),
        }
    }

    /// Registers as provider of an rpc; [`Incoming::Subscribed`] follows once, and calls are answered with their
    /// argument.
    pub fn provide(&mut self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.provide(name, out),
            Self::SocketIo(driver) => driver.provide(name, out),
            Self::Nats(driver) => driver.provide(name, out),
            Self::Plain(_) => self.lacks("rpc"),
        }
    }

    /// Calls an rpc; [`Incoming::Response`] follows. A `number` is used once for each connection.
    pub fn call(&mut self, name: &str, number: u64, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.call(name, number, out),
            Self::SocketIo(driver) => driver.call(name, number, out),
            Self::Nats(driver) => driver.call(name, number, out),
            Self::Plain(_) => self.lacks("rpc"),
        }
    }

    /// A scenario checks [`Protocol::abilities`] first, so this is a defect of the bench.
    fn lacks(&self, what: &str) -> ! {
        panic!("{self:?} has no {what}");
    }
}

/// The text of a message of a text protocol.
fn text(payload: &[u8]) -> Result<&str, Unintelligible> {
    std::str::from_utf8(payload)
        .map_err(|error| Unintelligible(format!("received a payload that is not UTF-8: {error}")))
}

#[cfg(test)]
mod tests {
    use tidewire_wire::frame::websocket::{self, Decoder, Role};

    use super::*;

    /// A text driver's events for a message of the server, and its answers.
    pub(super) fn take(
        driver: &mut Driver,
        payload: &[u8],
    ) -> (Result<Vec<String>, Unintelligible>, Vec<String>) {
        let mut seen = Vec::new();
        let mut result = Ok(());
        let answers = sent(|out| {
            result = driver.take(PayloadKind::Text, payload, out, |incoming| {
                seen.push(format!("{incoming:?}"));
                Ok::<_, Unintelligible>(())
            });
        });
        (result.map(|()| seen), answers)
    }

    /// The texts of the frames that `write` appends.
    pub(super) fn sent(write: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
        let mut frames = Vec::new();
        write(&mut frames);
        let mut frames = &mut frames[..];
        let mut texts = Vec::new();
        while !frames.is_empty() {
            let decoded = Decoder::new(Role::Server).decode(frames, 1 << 20).unwrap();
            let consumed = decoded.consumed;
            let websocket::Event::Message { payload, .. } = decoded.event else {
                panic!("half a frame");
            };
            texts.push(String::from_utf8(payload.into_owned()).unwrap());
            frames = &mut frames[consumed..];
        }
        texts
    }

    #[test]
    fn names_lead_to_their_protocol() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_name(protocol.name()), Some(protocol));
            assert!(protocol.path().starts_with('/'));
            let headers = protocol.headers();
            assert!(headers.is_empty() || headers.ends_with("\r\n"));
        }
        assert_eq!(Protocol::from_name("carrier pigeon"), None);
    }
}
