//! The client's end of one connection: socket, upgrade, login, subscription, then messages.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use tidewire_wire::frame::websocket::{self, Decoder, Event as FrameEvent, Role};
use tidewire_wire::message::{
    Auth, Change, Connection as ConnectionMessage, Event, EventBulk, Message, Record, RecordBulk,
    Write as RecordWrite,
};
use tidewire_wire::protocol::deepstream::Deepstream;

use crate::failure::Failure;
use crate::target::Target;

/// One key for all frames: the bench protects no proxy, and unmasking costs the server the same with any key.
const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x81];
/// The handshake's nonce, the example of RFC 6455.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// A server's answer to the upgrade is shorter than this.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// No message that a scenario provokes is longer.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// What a connection subscribes to before it counts as open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// Nothing; it is open when it is logged in.
    Nothing,
    /// An event.
    Event(String),
    /// A record, which is created if it is missing.
    Record(String),
}

/// How far a connection is. Each stage waits for the answer to what was sent when it was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The TCP connection is not there yet.
    Connecting,
    /// For the answer 101.
    Upgrading,
    /// For ACCEPT.
    Challenging,
    /// For AUTH_SUCCESSFUL.
    LoggingIn,
    /// For the ack.
    Subscribing,
    /// For nothing: messages are the scenario's.
    Open,
}

/// The client's end of one connection. It is driven by a [`crate::swarm::Swarm`].
#[derive(Debug)]
pub struct Connection {
    /// Its number in the swarm.
    number: usize,
    pub(crate) socket: TcpStream,
    decoder: Decoder,
    stage: Stage,
    /// Received bytes that do not make a whole frame yet.
    rest: Vec<u8>,
    /// Bytes that the socket did not take yet.
    outbox: Vec<u8>,
}

impl Connection {
    /// Begins to connect.
    ///
    /// # Errors
    /// The system refuses: descriptors or ports have run out.
    pub fn connect(number: usize, target: &Target) -> Result<Self, Failure> {
        let socket = TcpStream::connect(target.address)
            .and_then(|socket| socket.set_nodelay(true).map(|()| socket))
            .map_err(Failure::system(format!("connection {number}")))?;
        Ok(Self {
            number,
            socket,
            decoder: Decoder::new(Role::Client),
            stage: Stage::Connecting,
            rest: Vec::new(),
            outbox: Vec::new(),
        })
    }

    /// Whether login and subscription are done.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Bytes that were sent and that the socket did not take yet.
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Appends a message to what is to be sent, without sending it.
    pub fn push(&mut self, message: &Message<'_>) {
        Deepstream::encode_masked_frame(message, MASK, &mut self.outbox);
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let mut sent = 0;
        let result = loop {
            match self.socket.write(&self.outbox[sent..]) {
                Ok(0) => break Ok(()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(self.broken(&format!("broke while sending: {error}"))),
            }
        };
        self.outbox.drain(..sent);
        result
    }

    /// To be called when the socket became writable: finishes the connecting, goes on sending.
    pub(crate) fn handle_writable(&mut self, target: &Target) -> Result<(), Failure> {
        if self.stage == Stage::Connecting {
            if let Ok(Some(error)) = self.socket.take_error() {
                return Err(self.broken(&format!("is refused: {error}")));
            }
            self.stage = Stage::Upgrading;
            let (path, address) = (&target.path, target.address);
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\n\r\n"
            );
            self.outbox.extend_from_slice(request.as_bytes());
        }
        self.flush()
    }

    /// Reads all that the socket has into `buffer`, which is grown where it must be, and gives messages to `handle`
    /// once the connection is open. A read that does not fill the buffer was the last one, unless the stream `is_ended`.
    pub(crate) fn handle_readable(
        &mut self,
        buffer: &mut Vec<u8>,
        is_ended: bool,
        subscription: &Subscription,
        handle: &mut impl FnMut(usize, &Message<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            let kept = self.rest.len();
            if buffer.len() < 2 * kept {
                buffer.resize(2 * kept, 0);
            }
            buffer[..kept].copy_from_slice(&self.rest);
            let count = match self.socket.read(&mut buffer[kept..]) {
                Ok(0) => return Err(self.broken("was closed by the server")),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(&format!("broke: {error}"))),
            };
            let input = &mut buffer[..kept + count];
            let consumed = self.take(input, subscription, handle)?;
            self.rest.clear();
            self.rest.extend_from_slice(&input[consumed..]);
            if kept + count < buffer.len() && !is_ended {
                return Ok(());
            }
        }
    }

    /// Handles what is whole in `input` and says how much of it that was.
    fn take(
        &mut self,
        input: &mut [u8],
        subscription: &Subscription,
        handle: &mut impl FnMut(usize, &Message<'_>) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let mut consumed = 0;
        if self.stage == Stage::Upgrading {
            match self.take_head(input)? {
                Some(bytes) => consumed = bytes,
                None => return Ok(0),
            }
        }
        loop {
            let decoded = self
                .decoder
                .decode(&mut input[consumed..], MESSAGE_BYTES_MAX);
            let decoded = decoded.map_err(|error| peer(self.number, error.to_string()))?;
            consumed += decoded.consumed;
            match decoded.event {
                FrameEvent::NeedMore { .. } => return Ok(consumed),
                FrameEvent::Message { payload, .. } => {
                    let message = Deepstream::decode(&payload)
                        .map_err(|error| peer(self.number, error.to_string()))?;
                    if self.stage == Stage::Open {
                        handle(self.number, &message)?;
                    } else {
                        self.handle_answer(&message, subscription)?;
                    }
                }
                FrameEvent::Close { code, reason } => {
                    let code = code.map_or(1005, |code| code.number());
                    let what = format!("was closed by the server with {code} {reason:?}");
                    return Err(self.broken(&what));
                }
                FrameEvent::Ping(payload) => {
                    let opcode = websocket::Opcode::Pong;
                    websocket::encode_masked(opcode, payload, MASK, &mut self.outbox);
                    self.flush()?;
                }
                FrameEvent::Pong(_) => {}
            }
        }
    }

    /// The length of the answer to the upgrade, `None` while it is not whole.
    fn take_head(&mut self, input: &[u8]) -> Result<Option<usize>, Failure> {
        let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") else {
            if input.len() > HEAD_BYTES_MAX {
                return Err(self.broken("has an endless answer to the upgrade"));
            }
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&input[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let accept = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"))
            .map(|(_, value)| value.trim());
        if !status.starts_with("HTTP/1.1 101") || accept != Some(&*websocket::accept_key(NONCE)) {
            return Err(self.broken(&format!("was not upgraded: {status:?}")));
        }
        let challenge = Message::Connection(ConnectionMessage::Challenge {
            url: None,
            protocol_version: Some("0.1a"),
            sdk_version: Some("7.0.5"),
            sdk_type: Some("javascript"),
        });
        self.advance(Stage::Challenging, &challenge)?;
        Ok(Some(end + 4))
    }

    fn handle_answer(
        &mut self,
        message: &Message<'_>,
        subscription: &Subscription,
    ) -> Result<(), Failure> {
        match (self.stage, message) {
            (Stage::Challenging, Message::Connection(ConnectionMessage::Accept)) => {
                let request = Auth::Request { data: Some("{}") };
                self.advance(Stage::LoggingIn, &Message::Auth(request))
            }
            (Stage::LoggingIn, Message::Auth(Auth::Successful { .. })) => match subscription {
                Subscription::Nothing => {
                    self.stage = Stage::Open;
                    Ok(())
                }
                Subscription::Event(name) => self.advance(Stage::Subscribing, &subscribe(name)),
                Subscription::Record(name) => self.advance(Stage::Subscribing, &open_record(name)),
            },
            (Stage::Subscribing, Message::Event(Event::Ack { .. }))
            | (Stage::Subscribing, Message::Record(Record::Ack { .. })) => {
                self.stage = Stage::Open;
                Ok(())
            }
            // Others may publish before the ack is here, and a record is read before or after it.
            (Stage::Subscribing, Message::Event(Event::Emit { .. }))
            | (
                Stage::Subscribing,
                Message::Record(Record::ReadResponse { .. } | Record::Write(..)),
            ) => Ok(()),
            (stage, message) => {
                Err(self.broken(&format!("was answered {message:?} while {stage:?}")))
            }
        }
    }

    fn advance(&mut self, stage: Stage, message: &Message<'_>) -> Result<(), Failure> {
        self.stage = stage;
        self.push(message);
        self.flush()
    }

    fn broken(&self, what: &str) -> Failure {
        peer(self.number, what.to_owned())
    }
}

fn peer(connection: usize, what: String) -> Failure {
    Failure::Peer { connection, what }
}

/// Publishes an event.
#[must_use]
pub fn emit<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    Message::Event(Event::Emit {
        name,
        data: Some(data),
    })
}

/// Subscribes to an event.
#[must_use]
pub fn subscribe(name: &str) -> Message<'_> {
    Message::Event(Event::Subscribe {
        names: vec![name],
        correlation: Some("0"),
    })
}

/// Acknowledges [`subscribe`].
#[must_use]
pub fn subscribe_ack<'a>(correlation: Option<&'a str>) -> Message<'a> {
    Message::Event(Event::Ack {
        action: EventBulk::Subscribe,
        correlation,
    })
}

/// Subscribes to a record, reads it, and creates it if it is missing.
#[must_use]
pub fn open_record(name: &str) -> Message<'_> {
    Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: vec![name],
        correlation: Some("0"),
    })
}

/// Asks for a record's version.
#[must_use]
pub fn head(name: &str) -> Message<'_> {
    Message::Record(Record::Head { name })
}

/// Writes a whole record, whatever its version. With a `correlation` the write is acknowledged when it is on disk.
#[must_use]
pub fn write<'a>(name: &'a str, data: &'a str, correlation: Option<&'a str>) -> Message<'a> {
    change(
        name,
        correlation,
        Change::CreateAndUpdate { data: Some(data) },
    )
}

/// Sets one path of a record, whatever its version.
#[must_use]
pub fn patch<'a>(name: &'a str, path: &'a str, data: &'a str) -> Message<'a> {
    let (path, data) = (Some(path), Some(data));
    change(name, None, Change::CreateAndPatch { path, data })
}

fn change<'a>(name: &'a str, correlation: Option<&'a str>, change: Change<'a>) -> Message<'a> {
    let write = RecordWrite {
        name,
        version: -1,
        correlation,
        write_ack: correlation.is_some(),
    };
    Message::Record(Record::Write(write, change))
}
