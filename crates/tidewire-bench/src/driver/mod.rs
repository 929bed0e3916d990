//! The seam between a scenario and the protocol that a server speaks: what a connection says, and what it understands.
//!
//! A driver appends whole WebSocket frames to the bytes that its connection sends, and makes [`Incoming`] of the messages that
//! arrive. It knows no socket, clock or scenario. The family is closed: a new protocol is a file, a member of both enums
//! and their arms, and the compiler names the places that were forgotten.

mod deepstream;
mod nats;
mod plain;
mod socketio;

pub use deepstream::Deepstream;
pub use nats::Nats;
pub use plain::Plain;
pub use socketio::SocketIo;
use tidewire_wire::frame::websocket::Kind;

/// One mask for all frames: the bench protects no proxy, and unmasking costs the server the same with any key.
pub const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x81];

/// What everybody gives for a password; servers that ask for none do not look at it.
pub const PASSWORD: &str = "bench";

/// What the user of a connection is called.
#[must_use]
pub fn user_name(connection: usize) -> String {
    format!("user-{connection}")
}

/// A protocol that the bench speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Tidewire's, its null server's and deepstream's own.
    Deepstream,
    /// Socket.IO's, with the events of the programs in `rivals/`.
    SocketIo,
    /// NATS over WebSocket.
    Nats,
    /// The bench's contract for servers without a protocol of their own.
    Plain,
}

/// What a server can do beside publish and subscribe, as far as its driver speaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Versioned documents: `open_record`, `patch`, `write`.
    pub records: bool,
    /// Requests and responses: `provide`, `call`.
    pub rpc: bool,
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

    /// The path of the upgrade where a URL has none.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Deepstream => Deepstream::PATH,
            Self::SocketIo => SocketIo::PATH,
            Self::Nats => Nats::PATH,
            Self::Plain => Plain::PATH,
        }
    }

    /// More lines for the head of the upgrade, each with its line end; a subprotocol stands here.
    #[must_use]
    pub fn headers(self) -> &'static str {
        match self {
            Self::Deepstream | Self::SocketIo | Self::Nats | Self::Plain => "",
        }
    }

    /// Whether a frame's meaning depends on nothing but its bytes, so that equal frames may be counted without decoding. Not
    /// so where frames carry parts of a stream.
    #[must_use]
    pub fn has_whole_frames(self) -> bool {
        match self {
            Self::Deepstream | Self::SocketIo | Self::Plain => true,
            Self::Nats => false,
        }
    }

    /// Whether its clients must say from time to time that they are alive. Elsewhere servers ask, or nobody does.
    #[must_use]
    pub fn has_client_heartbeats(self) -> bool {
        match self {
            Self::Deepstream => true,
            Self::SocketIo | Self::Nats | Self::Plain => false,
        }
    }

    /// What it can do beside publish and subscribe.
    #[must_use]
    pub fn abilities(self) -> Abilities {
        match self {
            Self::Deepstream => Abilities {
                records: true,
                rpc: true,
            },
            Self::SocketIo => SocketIo::ABILITIES,
            Self::Nats => Nats::ABILITIES,
            Self::Plain => Abilities {
                records: false,
                rpc: false,
            },
        }
    }
}

/// What a received message means to a scenario. Texts are those of the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// The login is done; the connection may subscribe, publish and call.
    Ready,
    /// What was last asked for is in force: names or record subscribed to, rpc provided. One for each such call.
    Subscribed,
    /// A publication.
    Delivery {
        /// Its name, if the protocol says it.
        name: Option<&'a str>,
        /// What was given to `publish`, byte for byte.
        payload: &'a str,
    },
    /// A change of a record, by a patch.
    Patched {
        /// The record.
        name: &'a str,
        /// Its version, if the protocol has one.
        version: Option<i32>,
        /// What was given to `patch`.
        payload: &'a str,
    },
    /// The write with this number is durable.
    Written {
        /// The record.
        name: &'a str,
        /// The number that was given to `write`.
        number: u64,
    },
    /// The version of a record, 0 or less if there is none.
    Version {
        /// The record.
        name: &'a str,
        /// The version.
        version: i32,
    },
    /// The result of the call with this number.
    Response {
        /// The number that was given to `call`.
        number: u64,
    },
    /// A call came in. The driver has answered it already, with what it was called with.
    Served,
}

/// Why a driver can't go on: what the server sent, or did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unintelligible(pub String);

/// One connection's end of its protocol.
///
/// # Panics
/// Functions for records and rpc do where [`Protocol::abilities`] says that the protocol has none.
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
    /// For the connection with this number, which logs in as a user of its own; one that `reads_batches` says so, if its
    /// protocol knows them.
    #[must_use]
    pub fn new(protocol: Protocol, connection: usize, reads_batches: bool) -> Self {
        match protocol {
            Protocol::Deepstream => Self::Deepstream(Deepstream::new(connection, reads_batches)),
            Protocol::SocketIo => Self::SocketIo(SocketIo),
            Protocol::Nats => Self::Nats(Nats::new(connection)),
            Protocol::Plain => Self::Plain(Plain::default()),
        }
    }

    /// The upgrade is done: appends what a client says first.
    pub fn hello(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.hello(out),
            // Their servers speak first.
            Self::SocketIo(_) | Self::Nats(_) => {}
            Self::Plain(driver) => driver.hello(out),
        }
    }

    /// Says that the connection is alive, where [`Protocol::has_client_heartbeats`].
    pub fn heartbeat(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(_) => Deepstream::heartbeat(out),
            Self::SocketIo(_) | Self::Nats(_) | Self::Plain(_) => {}
        }
    }

    /// Takes a message. Answers that the protocol wants (steps of the login, heartbeats, calls) go to `out`; `handle` gets
    /// what concerns the scenario, in order, possibly nothing and possibly more than one thing.
    ///
    /// # Errors
    /// What `handle` says, or that the message does not belong there.
    pub fn take<E: From<Unintelligible>>(
        &mut self,
        kind: Kind,
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

    /// Asks for a record's version, which [`Incoming::Version`] says.
    pub fn head(&mut self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Deepstream(driver) => driver.head(name, out),
            _ => self.lacks("records"),
        }
    }

    /// Registers as provider of an rpc; [`Incoming::Subscribed`] follows once, and calls are answered with what they carry.
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

    /// A scenario asks for [`Protocol::abilities`] first, so this is a mistake of the bench.
    fn lacks(&self, what: &str) -> ! {
        panic!("{self:?} has no {what}");
    }
}

/// The text of a message of a text protocol.
fn text(payload: &[u8]) -> Result<&str, Unintelligible> {
    std::str::from_utf8(payload)
        .map_err(|error| Unintelligible(format!("received what is no text: {error}")))
}

#[cfg(test)]
mod tests {
    use tidewire_wire::frame::websocket::{self, Decoder, Role};

    use super::*;

    /// What a text driver makes of a message of the server, and what it answers.
    pub(super) fn take(
        driver: &mut Driver,
        payload: &[u8],
    ) -> (Result<Vec<String>, Unintelligible>, Vec<String>) {
        let mut seen = Vec::new();
        let mut result = Ok(());
        let answers = sent(|out| {
            result = driver.take(Kind::Text, payload, out, |incoming| {
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
